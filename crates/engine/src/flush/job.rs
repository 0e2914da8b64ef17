//! One flush: the sealed memtables of a family, or of several atomically, become tables of L0.
//!
//! In: memtables, oldest first. Out: for each family at most one table and its blob files,
//! installed by one atomic change, and the memtables removed from the superversion.
//!
//! Invariants:
//! - The entries read from the memtables are counted and compared with those inserted, so that a
//!   lost entry fails the flush instead of being lost silently.
//! - Until the change is installed no version refers to the files; a flush that ends early, for any
//!   reason, removes them.

use crate::compact::entry_filter::{EntryCounts, EntryFilter, EntrySink, FilterOptions, Pushed, UserFilter};
use crate::compact::guarded_files::GuardedFiles;
use crate::compact::read_back;
use crate::compact::stripes::Stripes;
use crate::compact::tombstones::left_over;
use crate::read::iter::job_input::{InputOptions, JobInput};
use crate::sealing::SealsMemtables;
use crate::versions::{Change, FileGuard, Versions};
use karst_base::compaction_filter::{FilterContext, TableCreationReason};
use karst_base::error::{Error, ErrorKind, Named, Result, caught};
use karst_base::events::{
    BlobFileAdditionInfo, Events, FileCreations, FlushInfo, FlushReason, TableFileCreationReason,
};
use karst_base::options::CurrentDbOptions;
use karst_base::pacing::{IoPriority, RateLimiter};
use karst_base::snapshot::Snapshots;
use karst_base::stats::{HistogramKind, Statistics, Ticker, micros};
use karst_base::sync::atomic::{AtomicBool, Ordering};
use karst_base::sync::counting::AtomicU64;
use karst_format::ids::{FileNumber, Level};
use karst_format::key::SeqNo;
use karst_format::properties::TableProperties;
use karst_format::version_edit::{Temperature, VersionEdit};
use karst_io::Env;
use karst_lsm::FileCounts;
use karst_lsm::range_del::{Fragments, RangeTombstone};
use karst_storage::blob::BlobWarming;
use karst_storage::column_family::{Families, Family, History};
use karst_storage::memtable::MemTable;
use karst_storage::open_files::Shared;
use karst_storage::table::cache::file_counts;
use karst_storage::table::warming::Warming;
use karst_storage::table::writer::{
    Identity, NeverCut, NewFiles, Outputs, RunFiles, RunWriter, TablePlace, Throttle, writer_options,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// State shared by all flushes of a database.
#[derive(Debug)]
pub(crate) struct FlushContext {
    pub(crate) env: Env,
    pub(crate) options: Arc<CurrentDbOptions>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) versions: Arc<Versions>,
    pub(crate) identity: Arc<Identity>,
    pub(crate) families: Arc<Families>,
    pub(crate) pipeline: Arc<dyn SealsMemtables>,
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) stats: Arc<Statistics>,
    pub(crate) events: Arc<Events>,
    pub(crate) limiter: Option<RateLimiter>,
    /// True if the database is being closed without waiting.
    pub(crate) cancelled: Arc<AtomicBool>,
}

/// The memtables of one family to flush.
#[derive(Clone, Debug)]
pub(crate) struct FamilyFlush {
    pub(crate) family: Arc<Family>,
    /// Sealed memtables, oldest first; at least one.
    pub(crate) memtables: Vec<Arc<MemTable>>,
    /// Epoch number of the table, which orders it in L0.
    pub(crate) epoch: u64,
}

impl FamilyFlush {
    /// Returns all sealed memtables of the family, or those with sequence numbers up to `through`;
    /// `None` if there is no such memtable.
    ///
    /// Lock: that of background work, held until the family counts as flushing, so that no other
    /// job takes these memtables. If the family is dropped later, the install fails.
    pub(crate) fn of(versions: &Versions, family: &Arc<Family>, through: Option<SeqNo>) -> Option<Self> {
        let view = family.superversion();
        let within = |m: &&Arc<MemTable>| {
            through.is_none_or(|through| m.sealed().is_some_and(|seal| seal.largest_seq <= through))
        };
        let memtables: Vec<_> = view.immutable().iter().rev().filter(within).cloned().collect();
        if memtables.is_empty() || family.is_dropped() {
            return None;
        }
        Some(Self { family: family.clone(), memtables, epoch: versions.new_epoch(family.id()) })
    }

    fn sum(&self, of: impl Fn(&MemTable) -> u64) -> u64 {
        self.memtables.iter().map(|memtable| of(memtable)).sum()
    }

    /// Returns the first log that may hold later writes, and the largest sequence number in the
    /// memtables.
    fn seal(&self) -> (FileNumber, SeqNo) {
        let seals = self.memtables.iter().map(|m| m.sealed().expect("only sealed memtables are flushed"));
        seals.fold((FileNumber(0), SeqNo::ZERO), |(log, seq), seal| {
            (log.max(seal.next_log), seq.max(seal.largest_seq))
        })
    }
}

/// Phase in which a flush failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Writing the tables.
    Write,
    /// Writing the MANIFEST.
    Install,
}

/// Output of a flush.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flushed {
    /// Number of tables written.
    pub(crate) tables: usize,
    /// Bytes of tables and blob files.
    pub(crate) bytes: u64,
}

/// The output of one family, not installed yet.
#[derive(Debug)]
struct Written {
    edit: VersionEdit,
    files: Vec<FileGuard>,
    counts: Vec<(FileNumber, FileCounts)>,
    /// Number of entries in the memtables once all inserts had ended.
    entries: u64,
    table: Option<FileNumber>,
    table_bytes: u64,
    blob_bytes: u64,
    properties: Option<Arc<TableProperties>>,
}

/// Returns the first log that may hold writes later than the flushed memtables.
fn newest_log(jobs: &[(FamilyFlush, FlushInfo)]) -> Option<FileNumber> {
    jobs.iter().map(|(flush, _)| flush.seal().0).max()
}

impl FlushContext {
    /// Flushes all of `flushes` as one change. With `first_log` the change records for every family
    /// that it needs no log before that one.
    ///
    /// # Errors
    /// The error, and the phase in which it occurred. The memtables stay then.
    pub(crate) async fn run(
        &self,
        flushes: Vec<FamilyFlush>,
        first_log: Option<FileNumber>,
        reason: FlushReason,
    ) -> Result<Flushed, (Phase, Error)> {
        let mut jobs = Vec::with_capacity(flushes.len());
        for flush in flushes {
            let job = self.events.next_job();
            let mut info = FlushInfo::new(&flush.family.settings(), job, reason);
            info.memtables = flush.memtables.len();
            info.entries = flush.sum(MemTable::entry_count);
            info.memory_bytes = flush.sum(|m| m.memory_bytes() as u64);
            self.count(&info);
            jobs.push((flush, info));
        }
        let start = self.env.now();
        let outcome = self.run_jobs(&mut jobs, first_log, reason, start).await;
        if let Err((_, error)) = &outcome {
            for (_, info) in &jobs {
                self.events.job_failed(&info.column_family, info.job, "flush", error);
            }
        }
        outcome
    }

    /// Updates statistics for a flush that begins.
    fn count(&self, info: &FlushInfo) {
        let recorder = self.stats.recorder();
        recorder.measure(HistogramKind::FlushMemtableMemoryBytes, info.memory_bytes);
        let (ticker, memory) = match info.reason {
            FlushReason::WriteBufferFull => {
                (Ticker::FlushReasonWriteBufferFull, HistogramKind::FlushWriteBufferFullMemtableMemoryBytes)
            }
            FlushReason::WriteBufferManager => (
                Ticker::FlushReasonWriteBufferManager,
                HistogramKind::FlushWriteBufferManagerMemtableMemoryBytes,
            ),
            _ => return,
        };
        recorder.tick(ticker);
        recorder.measure(memory, info.memory_bytes);
    }

    /// Updates statistics for the output of a family.
    fn count_written(&self, flush: &FamilyFlush, written: &Written, took: Duration, cpu_micros: u64) {
        self.stats.record(Ticker::FlushWriteBytes, written.table_bytes + written.blob_bytes);
        let micros = micros(took);
        if self.stats.timers_enabled() {
            self.stats.measure(HistogramKind::FlushTime, micros);
        }
        flush.family.jobs.flush((micros, cpu_micros), written.table_bytes, written.blob_bytes);
    }

    async fn run_jobs(
        &self,
        jobs: &mut [(FamilyFlush, FlushInfo)],
        first_log: Option<FileNumber>,
        reason: FlushReason,
        start: Duration,
    ) -> Result<Flushed, (Phase, Error)> {
        let mut change = Change { first_log, ..Change::default() };
        let mut flushed = Flushed::default();
        for (flush, info) in jobs.iter_mut() {
            let (began, nanos) = (self.env.now(), AtomicU64::new(0));
            let written = self.env.cpu_timed(caught("a flush", self.write(flush, info)), &nanos).await;
            let written = written.map_err(|e| (Phase::Write, e))?;
            let took = self.env.now().saturating_sub(began);
            // Counted before the install, because a caller that waits for the flush returns as soon
            // as it is installed, and must find it counted.
            self.count_written(flush, &written, took, nanos.into_inner() / 1000);
            info.entries = written.entries;
            info.table = written.table.map(|number| number.0);
            (info.table_bytes, info.blob_bytes) = (written.table_bytes, written.blob_bytes);
            if let Some((_, file)) = written.edit.new_files.first() {
                info.table_path = flush.family.tables.shared.table_path(file.number, file.path_id).ok();
                info.seqs = Some((file.smallest_seq.0, file.largest_seq.0));
                info.oldest_blob_file = file.oldest_blob_file.map(|number| number.0);
            }
            info.table_properties = written.properties;
            let (blobs, shared) = (&written.edit.blob_file_additions, &flush.family.tables.shared);
            let blobs =
                blobs.iter().map(|blob| BlobFileAdditionInfo::new(shared.blob_path(blob.number), blob));
            info.blob_files = blobs.collect();
            flushed.tables += usize::from(written.table.is_some());
            flushed.bytes += written.table_bytes + written.blob_bytes;
            change.edits.push(written.edit);
            change.files.extend(written.files);
            change.counts.extend(written.counts);
            change.flushed.push((flush.family.id(), flush.memtables.clone()));
        }
        let depends_on_logs = self.families.all().len() > 1 || self.options.get().allow_2pc;
        if reason == FlushReason::ErrorRecovery && self.pipeline.log_has_failed() {
            // Checked again, because the log may have failed since the recovery began. If a
            // transaction is prepared, that log is still needed, and a table must not hold entries
            // after its end.
            self.pipeline.check_resumable().map_err(|e| (Phase::Write, e))?;
        } else if depends_on_logs {
            // Synced, because a batch may go to several families. If this family's part of it is in
            // a table and the others' is lost with the end of a log, the batch is torn, and the
            // database does not open. Moreover, a table's entries of a transaction must not outlive
            // the record of its prepare or commit. Not synced after a failure of the log, because
            // the recovery from that flushes all families in one change, so that no log is needed.
            self.pipeline.sync_logs().await.map_err(|e| (Phase::Write, e))?;
        } else {
            // A column family that is being created may enter the MANIFEST before this flush does,
            // and then needs the oldest log that any family needs. That log is not synced, and if
            // its end is lost this table would be ahead of the logs. No entry was written to such a
            // family before these memtables were sealed.
            change.first_log = change.first_log.max(newest_log(jobs));
        }
        // After the sync, because another install may record the advanced log numbers at any time,
        // and then entries that these logs lose are a hole.
        self.advance_idle(jobs);
        self.versions.install(change).await.map_err(|e| (Phase::Install, e))?;
        self.pipeline.installed();
        let took = self.env.now().saturating_sub(start);
        for (flush, info) in jobs.iter_mut() {
            let version = flush.family.superversion().version().clone();
            let files: Vec<usize> = version.levels().iter().map(|level| level.files().len()).collect();
            info.set_l0_files(files[0], &flush.family.settings().options);
            self.events.flush_completed(info, took, &files);
        }
        Ok(flushed)
    }

    /// Advances the log number of families without entries in memory past this flush too, because
    /// they would otherwise keep logs that other families have filled.
    fn advance_idle(&self, jobs: &[(FamilyFlush, FlushInfo)]) {
        let Some(log) = newest_log(jobs) else { return };
        for family in self.families.all().iter() {
            let view = family.superversion();
            // Invariant: everything ordered before that log began is visible, so no earlier entry
            // is on its way to a memtable that is empty now.
            if view.mem().is_empty() && view.immutable().is_empty() {
                self.versions.advance_log_number(family.id(), log);
            }
        }
    }

    async fn write(&self, flush: &FamilyFlush, info: &FlushInfo) -> Result<Written> {
        let (log, largest_seq) = flush.seal();
        self.pipeline.wait_visible(largest_seq).await?;
        // Counted only now, because until here writers may still have inserted.
        let entries = flush.sum(MemTable::entry_count);
        let mut begun = info.clone();
        begun.entries = entries;
        let l0_files = flush.family.superversion().version().files(Level(0)).len();
        begun.set_l0_files(l0_files, &flush.family.settings().options);
        self.events.flush_begun(&begun);
        let files = GuardedFiles::new(self.versions.clone(), 0);
        let outputs = self.outputs(flush, info, files.clone())?;
        let (run, counts) = self.write_entries(flush, outputs).await?;
        read_back::check(&flush.family.tables, Level(0), &run.tables).await?;
        let points = counts.input_records;
        let tombstones = flush.sum(|m| m.range_tombstone_count() as u64);
        if self.options.get().flush_verify_memtable_count && points + tombstones != entries {
            return Err(Error::new(
                ErrorKind::Corruption,
                format!(
                    "column family {:?}: memtables have {entries} entries, but {points} and {tombstones} range tombstones were found in them",
                    Named(&info.column_family)
                ),
            ));
        }
        let mut edit = VersionEdit {
            column_family: flush.family.id(),
            log_number: Some(log),
            // The table may have less than this number: the newest entries may have left nothing,
            // as a single deletion with its put does. The log that has them is not needed any more,
            // and their numbers must not be given again.
            last_sequence: Some(largest_seq),
            ..VersionEdit::default()
        };
        let blob_bytes = run.blob_files.iter().map(|blob| blob.total_bytes).sum();
        let table = run.tables.first().map(|written| written.file.number);
        let table_bytes = run.tables.iter().map(|written| written.file.size_bytes).sum();
        let counts = run.tables.iter().map(|written| (written.file.number, file_counts(&written.properties)));
        let counts = counts.collect();
        let properties = run.tables.first().map(|written| Arc::new(written.properties.clone()));
        edit.new_files = run.tables.into_iter().map(|written| (Level(0), written.file)).collect();
        edit.blob_file_additions = run.blob_files;
        let mut installed: BTreeSet<FileNumber> =
            edit.new_files.iter().map(|(_, file)| file.number).collect();
        installed.extend(edit.blob_file_additions.iter().map(|blob| blob.number));
        Ok(Written {
            edit,
            files: files.take(&installed),
            counts,
            entries,
            table,
            table_bytes,
            blob_bytes,
            properties,
        })
    }

    fn outputs(
        &self,
        flush: &FamilyFlush,
        info: &FlushInfo,
        new_files: Arc<dyn NewFiles>,
    ) -> Result<Outputs> {
        let now_s = self.env.unix_time().as_secs();
        let first_writes = flush.memtables.iter().filter_map(|memtable| memtable.first_written_s());
        let oldest_s = first_writes.fold(now_s, u64::min);
        let throttle = self.limiter.clone().map(|limiter| Throttle { limiter, priority: IoPriority::High });
        let directory = &flush.family.tables.shared.directories[0];
        let config = flush.family.settings();
        let warming = Warming::of(&self.shared, &config.options.table_factory.block_based, true);
        Ok(Outputs {
            env: self.env.clone(),
            blob_warming: BlobWarming::of_flush(
                &flush.family.tables.blobs,
                config.options.prepopulate_blob_cache,
            ),
            config,
            warming,
            memory: Some(self.shared.clone()),
            identity: self.identity.clone(),
            new_files,
            table_directory: directory.clone(),
            path_id: 0,
            temperature: Temperature::Unknown,
            blob_directory: directory.clone(),
            place: TablePlace::flush(),
            epoch: flush.epoch,
            oldest_ancestor_time_s: oldest_s,
            oldest_key_time_s: oldest_s,
            newest_key_time_s: now_s,
            throttle,
            writing: writer_options(&self.options.get()),
            file_checksums: self.shared.file_checksums.clone(),
            creations: FileCreations::of(
                &self.events,
                &info.column_family,
                info.job,
                TableFileCreationReason::Flush,
            ),
            space: None,
            stats: self.stats.clone(),
        })
    }

    /// Writes the surviving entries of the memtables.
    async fn write_entries(&self, flush: &FamilyFlush, outputs: Outputs) -> Result<(RunFiles, EntryCounts)> {
        let config = &flush.family.settings();
        // Invariant: copied after everything in the memtables became visible, so no snapshot that
        // is taken later needs entries that the filter drops.
        let stripes = Stripes::of_readers(&self.snapshots.readers());
        for memtable in &flush.memtables {
            memtable.check_tombstones()?;
        }
        let all = tombstones_of(flush);
        let left =
            all.as_deref().map(|all| left_over(&config.comparator, all, &stripes, |_, _| true).fragments);
        let context = FilterContext {
            is_full_compaction: false,
            is_manual_compaction: false,
            input_start_level: None,
            column_family_id: config.id.0,
            reason: TableCreationReason::Flush,
        };
        let mut filter = EntryFilter::new(FilterOptions {
            config: config.clone(),
            stripes,
            tombstones: all,
            bottommost: false,
            may_hold: None,
            enforce_single_deletes: self.options.get().enforce_single_del_contracts,
            write_conflict_snapshot: SeqNo::MAX,
            blob_cutoff: FileNumber(0),
            history_low: flush.family.history().and_then(History::full_history_ts_low),
            trim_ts: None,
            user: config.filter_for(&context).map(|filter| UserFilter::new(filter, 0)).transpose()?,
        });
        let options = InputOptions { readahead_bytes: 0, verify_checksums: true, lower: None, upper: None };
        let mut input = JobInput::new(flush.family.tables.clone(), &flush.memtables, &[], options);
        let mut sink = Sink { run: RunWriter::new(outputs, NeverCut, left, (None, None))?, payload_bytes: 0 };
        let mut payload_bytes = 0;
        input.start().await?;
        while input.valid() {
            let (internal_key, value) = input.entry();
            payload_bytes += (internal_key.len() + value.len()) as u64;
            if filter.push(internal_key, value, &mut sink)? == Pushed::NeedsBlob {
                let text = format!(
                    "column family {:?}: a merge onto, or a filter of, a blob reference that was written as such",
                    Named(&config.name)
                );
                return Err(Error::not_supported(text));
            }
            if sink.run.needs_room() {
                if self.cancelled.load(Ordering::Acquire) {
                    return Err(Error::new(ErrorKind::Closed, "the database is being closed"));
                }
                sink.run.make_room().await?;
            }
            if !input.advance()? {
                input.arrive().await?;
            }
        }
        filter.finish(&mut sink)?;
        let counts = filter.counts().clone();
        let (files, _) = sink.run.finish().await?;
        self.stats.record(Ticker::MemtablePayloadBytesAtFlush, payload_bytes);
        let garbage_bytes = payload_bytes.saturating_sub(sink.payload_bytes);
        self.stats.record(Ticker::MemtableGarbageBytesAtFlush, garbage_bytes);
        Ok((files, counts))
    }
}

struct Sink {
    run: RunWriter<NeverCut>,
    /// Bytes of internal keys and of values as the user wrote them.
    payload_bytes: u64,
}

impl EntrySink for Sink {
    fn emit(&mut self, internal_key: &[u8], value: &[u8]) -> Result<()> {
        self.payload_bytes += (internal_key.len() + value.len()) as u64;
        self.run.add(internal_key, value)
    }
}

/// Returns the range tombstones of all memtables, merged.
fn tombstones_of(flush: &FamilyFlush) -> Option<Arc<Fragments>> {
    let mut of_each: Vec<_> = flush.memtables.iter().filter_map(|m| m.range_tombstones()).collect();
    if of_each.len() < 2 {
        return of_each.pop();
    }
    let mut all = Vec::new();
    for fragments in &of_each {
        for i in 0..fragments.len() {
            let (start, end) = (fragments.start(i), fragments.end(i));
            all.extend(fragments.seqs(i).iter().map(|seq| RangeTombstone::new(start, end, *seq)));
        }
    }
    Some(Arc::new(Fragments::build(&flush.family.config.comparator, all)))
}
