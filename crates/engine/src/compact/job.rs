//! A compaction job: runs the compaction that a picker has chosen, and installs the result.
//!
//! In: a [`Compaction`], the snapshots at its start. Out: one change to the MANIFEST (inputs out,
//! outputs in, blob files and their garbage, the round-robin cursor), and a [`CompactionSummary`].
//! Moves and deletions of whole files only edit the MANIFEST.
//!
//! The work is cut into parts by ranges of keys if the compaction allows it; parts run in parallel,
//! on the threads of the job's priority.
//!
//! Invariants:
//! - Nothing is visible before everything is durable; a job that fails, is cancelled or dropped
//!   leaves the tree as it was, and no file.
//! - The caller has registered the compaction as running, so that no other job takes its inputs.
//!
//! Called by: `background`, and manual compactions.

use super::blob_garbage::BlobGarbage;
use super::entry_filter::EntryCounts;
use super::guarded_files::GuardedFiles;
use super::inputs::{self, boundaries};
use super::part::{self, PartRange, PartResult, Work};
use super::progress::Progress;
use super::read_back;
use super::stripes::Stripes;
use crate::sealing::SealsMemtables;
use crate::versions::{Change, Versions};
use karst_base::error::{Error, ErrorKind, Named, Result, caught};
use karst_base::events::{CompactionStats, FileCreations, SubcompactionInfo};
use karst_base::options::CurrentDbOptions;
use karst_base::pacing::{IoPriority, RateLimiter};
use karst_base::snapshot::Readers;
use karst_base::stats::level_jobs::JobSums;
use karst_base::stats::{HistogramKind, Statistics, Ticker, micros};
use karst_base::sync::atomic::Ordering;
use karst_base::sync::counting::AtomicU64;
use karst_format::ids::FileNumber;
use karst_format::properties::TableProperties;
use karst_format::version_edit::{BlobFileAddition, BlobFileGarbage, NewFile, VersionEdit};
use karst_io::{Env, Priority, report};
use karst_lsm::pick::{Compaction, CompactionReason, CompactionWork};
use karst_storage::column_family::Family;
use karst_storage::table::cache::file_counts;
use karst_storage::table::warming::Warming;
use karst_storage::table::writer::{Identity, Outputs, RunFiles, TablePlace, Throttle, writer_options};
use std::collections::BTreeSet;
use std::sync::Arc;

/// State of the database that all of its jobs share.
#[derive(Clone)]
pub(crate) struct JobSurroundings {
    pub(crate) versions: Arc<Versions>,
    pub(crate) options: Arc<CurrentDbOptions>,
    pub(crate) identity: Arc<Identity>,
    pub(crate) limiter: Option<RateLimiter>,
}

impl std::fmt::Debug for JobSurroundings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JobSurroundings").field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// One compaction, ready to run.
#[derive(Debug)]
pub(crate) struct CompactionJob {
    pub(crate) surroundings: Arc<JobSurroundings>,
    pub(crate) family: Arc<Family>,
    pub(crate) compaction: Arc<Compaction>,
    /// Snapshots and undecided sequence numbers at the job's creation.
    pub(crate) readers: Readers,
    /// The logs with the decisions that the job relies on; `None` if the database is not written.
    pub(crate) logs: Option<Arc<dyn SealsMemtables>>,
    pub(crate) progress: Arc<Progress>,
    /// Priority of the threads that run the parts.
    pub(crate) priority: Priority,
    /// Receives file creations, for listeners.
    pub(crate) creations: Option<FileCreations>,
    /// Receives the result before it is written to the MANIFEST.
    pub(crate) pre_commit: Option<PreCommit>,
}

/// Callback with the result of a compaction, called before it is written to the MANIFEST.
pub(crate) struct PreCommit(pub(crate) Box<dyn Fn(&CompactionSummary) + Send + Sync>);

impl std::fmt::Debug for PreCommit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PreCommit")
    }
}

/// The result of a compaction.
#[derive(Clone, Debug, Default)]
pub(crate) struct CompactionSummary {
    /// Tables that entered the tree, as the MANIFEST has them.
    pub(crate) tables: Vec<NewFile>,
    /// Properties of the new tables.
    pub(crate) properties: Vec<(FileNumber, Arc<TableProperties>)>,
    /// Properties of the input tables; for moved or deleted files only if there are listeners.
    pub(crate) input_properties: Vec<(FileNumber, Arc<TableProperties>)>,
    /// Blob files that entered the tree.
    pub(crate) blob_files: Vec<BlobFileAddition>,
    /// Values in blob files that became garbage.
    pub(crate) blob_garbage: Vec<BlobFileGarbage>,
    pub(crate) counts: EntryCounts,
    /// Bytes of input tables above the output level, and at the output level.
    pub(crate) read_bytes: (u64, u64),
    /// Bytes written to tables, and to blob files.
    pub(crate) written_bytes: (u64, u64),
    /// Keys and values of the tables before compression, in bytes.
    pub(crate) raw_bytes: u64,
    /// Duration, in microseconds.
    pub(crate) micros: u64,
    /// CPU time, in microseconds.
    pub(crate) cpu_micros: u64,
    /// Number of parts that ran.
    pub(crate) parts: usize,
    /// The kind of work done; `None` before it is decided.
    pub(crate) work: Option<CompactionWork>,
}

impl CompactionJob {
    /// Runs the compaction and installs its result.
    ///
    /// # Errors
    /// `Incomplete`: it was cancelled. `Corruption`: an input is damaged, or a contract is broken.
    /// `Io`: reading, writing or installing failed.
    pub(crate) async fn run(self) -> Result<CompactionSummary> {
        let stats = self.family.tables.shared.stats.clone();
        let result = self.run_inner(&stats).await;
        if result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Incomplete) {
            stats.tick(Ticker::CompactionCancelled);
        }
        result
    }

    async fn run_inner(&self, stats: &Statistics) -> Result<CompactionSummary> {
        let env = self.family.tables.shared.env.clone();
        let began = env.now();
        let mut summary = CompactionSummary::default();
        let work = self.work_to_do();
        summary.work = Some(work);
        let change = match work {
            CompactionWork::Merge => {
                // Compat: as in RocksDB, a picked job that moves or deletes files is not cancelled.
                // Such a job costs one record of the MANIFEST.
                self.progress.check()?;
                let change = self.merge(&env, &mut summary).await?;
                if let Some(logs) = &self.logs {
                    // If the end of a log is lost, a transaction whose decision it held is prepared
                    // again, and needs its own sequence numbers and the entries that this job
                    // dropped because of the decision. The decisions are therefore synced before
                    // the result is installed.
                    logs.sync_decisions().await?;
                }
                change
            }
            CompactionWork::Move => self.move_files(&mut summary),
            CompactionWork::Delete => {
                let mut edit = self.edit();
                if self.compaction.is_manual() {
                    // FIFO compactions need no such count, because they delete the oldest tables
                    // first, and a blob file is removed with the last table that refers to it or to
                    // an older one.
                    edit.blob_file_garbages = self.deleted_references().await?;
                    summary.blob_garbage.clone_from(&edit.blob_file_garbages);
                }
                Change::edit(edit)
            }
        };
        // Only for listeners, because it opens the tables.
        if work != CompactionWork::Merge && self.pre_commit.is_some() {
            summary.input_properties = self.input_properties().await;
        }
        let take_times = |summary: &mut CompactionSummary| {
            summary.micros = micros(env.now() - began);
            summary.cpu_micros = self.progress.cpu_nanos.load(Ordering::Relaxed) / 1000;
        };
        if let Some(PreCommit(tell)) = &self.pre_commit {
            take_times(&mut summary);
            tell(&summary);
        }
        self.surroundings.versions.install(change).await?;
        take_times(&mut summary);
        record(stats, &self.compaction, &summary);
        let level = self.compaction.output_level.index();
        self.family.jobs.add(level, self.priority, &sums(&self.compaction, &summary));
        Ok(summary)
    }

    /// Returns the picker's kind of work, unless the user's partitioner forbids moving a file.
    fn work_to_do(&self) -> CompactionWork {
        let compaction = &self.compaction;
        // Not for a level that replaces another, because its files must be moved unchanged.
        let may_merge = compaction.reason != CompactionReason::RefitLevel;
        if compaction.work == CompactionWork::Move
            && may_merge
            && let Some(mut partitioner) = part::partitioner(&self.family.config, compaction)
        {
            let mut files = compaction.input_files();
            let all_may_move = files.all(|(_, file)| {
                partitioner.can_do_trivial_move(file.smallest_user_key(), file.largest_user_key())
            });
            return if all_may_move { CompactionWork::Move } else { CompactionWork::Merge };
        }
        compaction.work
    }

    /// Returns the edit without outputs.
    fn edit(&self) -> VersionEdit {
        let compaction = &self.compaction;
        VersionEdit {
            column_family: self.family.id(),
            deleted_files: compaction.input_files().map(|(level, file)| (level, file.number)).collect(),
            compact_cursors: compaction.next_cursor.iter().cloned().collect(),
            ..VersionEdit::default()
        }
    }

    fn move_files(&self, summary: &mut CompactionSummary) -> Change {
        let mut edit = self.edit();
        for (_, file) in self.compaction.input_files() {
            let info = NewFile { marked_for_compaction: file.is_marked(), ..(**file).clone() };
            summary.tables.push(info.clone());
            edit.new_files.push((self.compaction.output_level, info));
        }
        Change::edit(edit)
    }

    /// Returns the values in blob files that become garbage when the input files are deleted. A
    /// table that cannot be read is not counted, but still deleted.
    async fn deleted_references(&self) -> Result<Vec<BlobFileGarbage>> {
        let (compaction, tables) = (&self.compaction, &self.family.tables);
        let mut garbage = BlobGarbage::default();
        let files = compaction.input_files().filter(|(_, file)| file.oldest_blob_file.is_some());
        // Collected for the reason in `inputs::look_at`.
        for (level, file) in files.collect::<Vec<_>>() {
            let mut of_file = BlobGarbage::default();
            match of_file.comes_from(tables, (level, file), || self.progress.check()).await {
                Ok(()) => garbage.add(&of_file),
                Err(error) if error.kind() == ErrorKind::Incomplete => return Err(error),
                Err(error) => {
                    let number = file.number;
                    report!(warn, table = %number, %error, "deleted, and its values not counted as garbage");
                }
            }
        }
        let mut total = garbage.total();
        // Compat: a table may name a blob file that is not in the tree.
        total.retain(|garbage| compaction.version.blob_files().contains_key(&garbage.number));
        Ok(total)
    }

    /// Returns the properties of the inputs. A table that cannot be read is left out, but still
    /// moved or deleted.
    async fn input_properties(&self) -> Vec<(FileNumber, Arc<TableProperties>)> {
        // Collected for the reason in `inputs::look_at`.
        let files: Vec<_> =
            self.compaction.input_files().map(|(level, file)| (level, file.clone())).collect();
        let mut properties = Vec::with_capacity(files.len());
        for (level, file) in files {
            match self.family.tables.clone().open(&file, u32::from(level.0)).await {
                Ok(table) => properties.push((file.number, table.properties().clone())),
                Err(error) => {
                    let number = file.number;
                    report!(warn, table = %number, %error, "a table's properties cannot be read; listeners do not get them");
                }
            }
        }
        properties
    }

    async fn merge(&self, env: &Env, summary: &mut CompactionSummary) -> Result<Change> {
        let files = GuardedFiles::new(self.surroundings.versions.clone(), self.compaction.output_path_id);
        let result = self.merge_into(env, &files, summary).await;
        if result.is_err() {
            // Taken explicitly, because the tasks of the parts may drop their references a little
            // later.
            drop(files.take(&BTreeSet::new()));
        }
        result
    }

    async fn merge_into(
        &self,
        env: &Env,
        files: &Arc<GuardedFiles>,
        summary: &mut CompactionSummary,
    ) -> Result<Change> {
        let compaction = &self.compaction;
        let work = Arc::new(self.work(env, files.clone()).await?);
        self.progress.input_records.store(work.facts.records, Ordering::Relaxed);
        let shared = &self.family.tables.shared;
        let cutting = shared.start_timer().filter(|_| compaction.max_subcompactions > 1);
        let ranges = self.ranges();
        shared.measure_since(HistogramKind::SubcompactionSetupTime, cutting);
        summary.parts = ranges.len();
        let results = run_parts(env, self.priority, &work, ranges).await?;

        let mut garbage = BlobGarbage::default();
        let mut edit = self.edit();
        let mut file_facts = Vec::new();
        for PartResult { files: run, counts, garbage: part_garbage, written_bytes } in results {
            summary.counts.add(&counts);
            summary.written_bytes.0 += written_bytes.0;
            summary.written_bytes.1 += written_bytes.1;
            garbage.add(&part_garbage);
            let RunFiles { tables, blob_files } = run;
            read_back::check(&self.family.tables, compaction.output_level, &tables).await?;
            let flags = work.outputs.config.options.verify_output_flags;
            read_back::check_output(&self.family.tables, flags, &tables).await?;
            for table in tables {
                summary.raw_bytes += table.properties.raw_key_size + table.properties.raw_value_size;
                file_facts.push((table.file.number, file_counts(&table.properties)));
                summary.properties.push((table.file.number, Arc::new(table.properties)));
                edit.new_files.push((compaction.output_level, table.file));
            }
            edit.blob_file_additions.extend(blob_files);
        }
        edit.blob_file_garbages = garbage.total();
        summary.tables = edit.new_files.iter().map(|(_, file)| file.clone()).collect();
        summary.blob_files.clone_from(&edit.blob_file_additions);
        summary.blob_garbage.clone_from(&edit.blob_file_garbages);
        summary.input_properties.clone_from(&work.facts.properties);
        self.verify(&work, &summary.counts)?;
        for input in &compaction.inputs {
            let of_output_level = input.level == compaction.output_level;
            let read = if of_output_level { &mut summary.read_bytes.1 } else { &mut summary.read_bytes.0 };
            *read += input.size_bytes();
        }
        let tables = edit.new_files.iter().map(|(_, file)| file.number);
        let installed: BTreeSet<_> =
            tables.chain(edit.blob_file_additions.iter().map(|file| file.number)).collect();
        Ok(Change { files: files.take(&installed), counts: file_facts, ..Change::edit(edit) })
    }

    async fn work(&self, env: &Env, new_files: Arc<GuardedFiles>) -> Result<Work> {
        // Read once, so that a later change of options does not affect the files being written.
        let (compaction, options) = (&self.compaction, &*self.surroundings.options.get());
        let shared = &self.family.tables.shared;
        let path_id = compaction.output_path_id;
        let table_directory = shared.directories.get(usize::from(path_id)).cloned().ok_or_else(|| {
            Error::invalid_argument(format!("a compaction writes to path {path_id}, which is not configured"))
        })?;
        let config = self.family.settings();
        let warming = Warming::of(shared, &config.options.table_factory.block_based, false);
        let outputs = Outputs {
            env: env.clone(),
            config,
            warming,
            blob_warming: None,
            memory: Some(shared.clone()),
            identity: self.surroundings.identity.clone(),
            new_files,
            table_directory,
            path_id,
            temperature: compaction.output_temperature,
            blob_directory: shared.directories[0].clone(),
            place: TablePlace {
                bottommost: compaction.bottommost,
                compression: Some((compaction.compression, compaction.compression_options.clone())),
                ..TablePlace::in_level(compaction.output_level.index())
            },
            epoch: compaction.output_epoch(),
            // Each part sets the ages of its own inputs.
            oldest_ancestor_time_s: 0,
            oldest_key_time_s: 0,
            newest_key_time_s: 0,
            throttle: self
                .surroundings
                .limiter
                .clone()
                .map(|limiter| Throttle { limiter, priority: IoPriority::Low }),
            writing: writer_options(options),
            file_checksums: shared.file_checksums.clone(),
            creations: self.creations.clone(),
            space: shared.space.clone(),
            stats: shared.stats.clone(),
        };
        let (tables, inputs) = if options.use_direct_io_for_compaction_reads && !shared.use_direct_reads {
            self.family.tables.reading_directly(&compaction.inputs)
        } else {
            (self.family.tables.clone(), compaction.inputs.clone())
        };
        Ok(Work {
            family: self.family.clone(),
            compaction: compaction.clone(),
            facts: inputs::look_at(&tables, &inputs).await?,
            tables,
            inputs,
            stripes: Stripes::of_readers(&self.readers),
            outputs,
            progress: self.progress.clone(),
            readahead_bytes: options.compaction_readahead_size as u64,
            verify_checksums: true,
            enforce_single_deletes: options.enforce_single_del_contracts,
            ingest_behind: options.allow_ingest_behind
                || self.family.settings().options.cf_allow_ingest_behind,
            blob_cutoff: compaction.blob_garbage_collection_cutoff,
        })
    }

    fn ranges(&self) -> Vec<PartRange> {
        let compaction = &self.compaction;
        let comparator = compaction.version.comparator();
        let mut cuts = boundaries(comparator, &compaction.inputs, compaction.max_subcompactions).into_iter();
        let mut ranges = Vec::new();
        let mut lower: Option<Box<[u8]>> = None;
        for cut in cuts.by_ref() {
            ranges.push((lower.replace(cut.clone()), Some(cut)));
        }
        ranges.push((lower, None));
        ranges
    }

    /// Compares the number of entries read with the number recorded in the input tables.
    fn verify(&self, work: &Work, counts: &EntryCounts) -> Result<()> {
        let expected = work.facts.records;
        if counts.input_records == expected || !self.surroundings.options.get().compaction_verify_record_count
        {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Corruption,
            format!(
                "a compaction of column family {:?} read {} entries, its input tables say that they have {expected}",
                Named(&self.family.config.name),
                counts.input_records
            ),
        ))
    }
}

/// Runs all parts in parallel: the first on this task, the others on tasks of their own. Waits for
/// all of them, also if one fails.
async fn run_parts(
    env: &Env,
    priority: Priority,
    work: &Arc<Work>,
    mut ranges: Vec<PartRange>,
) -> Result<Vec<PartResult>> {
    let others = ranges.split_off(1);
    let mut tasks = Vec::with_capacity(others.len());
    for (range, number) in others.into_iter().zip(1..) {
        let work = work.clone();
        let of_task = env.clone();
        tasks.push(env.spawn(priority, async move { run_part(&of_task, &work, &range, number).await }));
    }
    let mut results = vec![run_part(env, work, &ranges[0], 0).await];
    if results[0].is_err() {
        work.progress.cancel();
    }
    for task in tasks {
        let ended = task.await.unwrap_or_else(|error| Err(Error::of_task("a part of a compaction", &error)));
        if ended.is_err() {
            work.progress.cancel();
        }
        results.push(ended);
    }
    // The first error that is not a cancellation, because that one cancelled the others.
    let cancelled = |error: &Error| error.kind() == ErrorKind::Incomplete;
    let failed = results.iter().filter_map(|result| result.as_ref().err());
    if let Some(error) = failed.clone().find(|error| !cancelled(error)).or(failed.clone().next()) {
        return Err(error.clone());
    }
    results.into_iter().collect()
}

/// Runs a part and reports it to listeners. A part that panics has failed.
async fn run_part(env: &Env, work: &Work, range: &PartRange, number: u32) -> Result<PartResult> {
    let creations = work.outputs.creations.as_ref();
    let mut info = creations.map(|_| {
        let compaction = &work.compaction;
        let mut info = SubcompactionInfo::default();
        info.column_family_id = work.family.id().0;
        info.compression = compaction.compression;
        info.blob_compression = work.outputs.config.options.blob_compression_type;
        (info.stats.is_full, info.stats.is_manual) = (compaction.full, compaction.is_manual());
        info.subcompaction = number;
        info.reason = compaction.reason.name().to_owned();
        info.reason_number = compaction.reason.number();
        info.base_level = u32::from(compaction.start_level().0);
        info.output_level = u32::from(compaction.output_level.0);
        info
    });
    if let (Some(creations), Some(info)) = (creations, &info) {
        creations.subcompaction(info.clone(), false);
    }
    let (began, cpu_nanos) = (env.now(), AtomicU64::new(0));
    let part = env.cpu_timed(part::run(work, range), &cpu_nanos);
    let result = caught("a part of a compaction", part).await;
    let cpu_nanos = cpu_nanos.into_inner();
    work.progress.cpu_nanos.fetch_add(cpu_nanos, Ordering::Relaxed);
    if let (Some(creations), Some(mut info)) = (creations, info.take()) {
        match &result {
            Ok(part) => {
                info.input_entries = part.counts.input_records;
                info.output_entries = part.counts.output_records;
                info.output_bytes = part.written_bytes.0 + part.written_bytes.1;
                add_counts(&mut info.stats, &part.counts, part.written_bytes);
                info.stats.output_files = part.files.tables.len();
                info.stats.output_blob_files = part.files.blob_files.len();
                add_output_keys(&mut info.stats, part.files.tables.iter().map(|table| &table.file));
            }
            Err(error) => info.error = Some(error.clone()),
        }
        info.stats.micros = micros(env.now() - began);
        info.stats.cpu_micros = cpu_nanos / 1000;
        creations.subcompaction(info, true);
    }
    result
}

/// Adds the numbers read and written to a listener's statistics.
fn add_counts(stats: &mut CompactionStats, counts: &EntryCounts, written_bytes: (u64, u64)) {
    stats.input_entries = counts.input_records;
    stats.input_deletions = counts.input_deletions;
    stats.input_key_bytes = counts.input_key_bytes;
    stats.input_value_bytes = counts.input_value_bytes;
    stats.blobs_read = counts.blobs_read;
    stats.blob_bytes_read = counts.blob_bytes_read;
    stats.output_entries = counts.output_records;
    (stats.output_bytes, stats.output_blob_bytes) = written_bytes;
    stats.replaced = counts.dropped_hidden;
    stats.expired_deletions = counts.dropped_obsolete;
    stats.single_deletes_without_entry = counts.single_deletes_without_entry;
    stats.single_deletes_mismatched = counts.single_deletes_mismatched;
}

/// Adds the smallest and the largest output key; tables are in key order.
fn add_output_keys<'f>(stats: &mut CompactionStats, tables: impl Iterator<Item = &'f NewFile>) {
    let tables: Vec<_> = tables.collect();
    if let (Some(first), Some(last)) = (tables.first(), tables.last()) {
        stats.set_output_keys(first.smallest_user_key(), last.largest_user_key());
    }
}

/// Returns the input statistics of a compaction, for listeners.
pub(crate) fn input_stats(compaction: &Compaction) -> CompactionStats {
    let mut stats = CompactionStats::default();
    (stats.is_full, stats.is_manual) = (compaction.full, compaction.is_manual());
    stats.input_files = compaction.input_files().count();
    stats.input_bytes = compaction.input_bytes();
    let files = compaction.input_files();
    stats.input_files_at_output_level = files.filter(|(level, _)| *level == compaction.output_level).count();
    stats
}

/// Adds the result's statistics. Files that only move are not output.
pub(crate) fn add_outcome_stats(stats: &mut CompactionStats, summary: &CompactionSummary) {
    (stats.micros, stats.cpu_micros) = (summary.micros, summary.cpu_micros);
    match summary.work {
        Some(CompactionWork::Merge) => {
            add_counts(stats, &summary.counts, summary.written_bytes);
            stats.output_files = summary.tables.len();
            stats.output_blob_files = summary.blob_files.len();
            add_output_keys(stats, summary.tables.iter());
        }
        Some(CompactionWork::Move) => stats.moved_files = stats.input_files,
        Some(CompactionWork::Delete) | None => {}
    }
}

/// Returns the job's contribution to its level's sums.
fn sums(compaction: &Compaction, summary: &CompactionSummary) -> JobSums {
    if summary.work != Some(CompactionWork::Merge) {
        let moves = summary.work == Some(CompactionWork::Move);
        return JobSums {
            moved_bytes: if moves { compaction.input_bytes() } else { 0 },
            ..JobSums::default()
        };
    }
    JobSums {
        count: 1,
        micros: summary.micros,
        cpu_micros: summary.cpu_micros,
        read_above_bytes: summary.read_bytes.0,
        read_level_bytes: summary.read_bytes.1,
        read_blob_bytes: summary.counts.blob_bytes_read,
        written_bytes: summary.written_bytes.0,
        raw_bytes: summary.raw_bytes,
        written_blob_bytes: summary.written_bytes.1,
        moved_bytes: 0,
        input_records: summary.counts.input_records,
        dropped_records: summary.counts.input_records.saturating_sub(summary.counts.output_records),
    }
}

fn record(stats: &Statistics, compaction: &Compaction, summary: &CompactionSummary) {
    let counts = &summary.counts;
    let recorder = stats.recorder();
    let read = summary.read_bytes.0 + summary.read_bytes.1;
    let written = summary.written_bytes.0 + summary.written_bytes.1;
    recorder.record(Ticker::CompactReadBytes, read);
    recorder.record(Ticker::CompactWriteBytes, written);
    let of_reason = match compaction.reason {
        CompactionReason::FilesMarkedForCompaction => {
            Some((Ticker::CompactReadBytesMarked, Ticker::CompactWriteBytesMarked))
        }
        CompactionReason::PeriodicCompaction => {
            Some((Ticker::CompactReadBytesPeriodic, Ticker::CompactWriteBytesPeriodic))
        }
        CompactionReason::Ttl => Some((Ticker::CompactReadBytesTtl, Ticker::CompactWriteBytesTtl)),
        _ => None,
    };
    if let Some((of_read, of_written)) = of_reason {
        recorder.record(of_read, read);
        recorder.record(of_written, written);
    }
    match compaction.reason {
        CompactionReason::FifoMaxSize => recorder.tick(Ticker::FifoMaxSizeCompactions),
        CompactionReason::FifoTtl => recorder.tick(Ticker::FifoTtlCompactions),
        _ => {}
    }
    recorder.record(Ticker::CompactionKeyDropNewerEntry, counts.dropped_hidden);
    recorder.record(Ticker::CompactionKeyDropObsolete, counts.dropped_obsolete);
    recorder.record(Ticker::CompactionKeyDropRangeDel, counts.dropped_range_del);
    recorder.record(Ticker::CompactionKeyDropUser, counts.dropped_user);
    recorder.record(Ticker::CompactionRangeDelDropObsolete, counts.range_dels_dropped);
    recorder.record(Ticker::CompactionOptimizedDelDropObsolete, counts.dropped_optimized);
    recorder.record(Ticker::BlobDbGcNumKeysRelocated, counts.blobs_relocated);
    recorder.record(Ticker::BlobDbGcBytesRelocated, counts.blob_bytes_relocated);
    if stats.timers_enabled() {
        stats.measure(HistogramKind::CompactionTime, summary.micros);
        stats.measure(HistogramKind::CompactionCpuTime, summary.cpu_micros);
    }
    if summary.cpu_micros > 0 {
        stats.record(Ticker::CompactionCpuTotalTime, summary.cpu_micros);
    }
    let files: usize = compaction.inputs.iter().map(|input| input.files.len()).sum();
    stats.measure(HistogramKind::NumFilesInSingleCompaction, files as u64);
    if summary.parts > 1 {
        stats.measure(HistogramKind::NumSubcompactionsScheduled, summary.parts as u64);
    }
}
