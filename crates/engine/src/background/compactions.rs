//! Compactions: calling the pickers, running the picked ones, and reserving files for manual ones.

use super::{Background, FamilyJobs, Limits, RoomWanted, State};
use crate::compact::job::{CompactionJob, CompactionSummary, PreCommit, add_outcome_stats, input_stats};
use crate::compact::progress::Progress;
use karst_base::error::{Error, ErrorKind, Result, caught};
use karst_base::events::{
    BlobFileAdditionInfo, BlobFileGarbageInfo, CompactionFileInfo, CompactionInfo, FileCreations, LogLevel,
    TableFileCreationReason,
};
use karst_base::health::{BackgroundErrorReason, Reaction};
use karst_base::pacing::Relief;
use karst_base::sst_file_manager::SpaceReservation;
use karst_base::stats::Ticker;
use karst_base::sync::counting::{AtomicU64, Ordering};
use karst_format::ids::{ColumnFamilyId, FileNumber, Level};
use karst_io::Priority;
use karst_lsm::pick::{self, Compaction, CompactionOptions, CompactionWork, PickContext, RunningId};
use karst_storage::column_family::Family;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Pause of a family's compactions after one failed.
const REST: Duration = Duration::from_secs(1);

/// A picked compaction, counted as running until it is dropped.
pub(super) struct PickedCompaction {
    reserved: Reserved,
    /// Counts against the limit of automatic compactions.
    _slot: CompactionSlot,
}

impl PickedCompaction {
    pub(super) fn priority(&self) -> Priority {
        self.reserved.priority()
    }
}

struct CompactionSlot(Arc<Background>);

impl Drop for CompactionSlot {
    fn drop(&mut self) {
        self.0.state.lock().compactions -= 1;
        self.0.notify();
    }
}

/// Files reserved for one compaction until this is dropped.
pub(crate) struct Reserved {
    background: Arc<Background>,
    pub(crate) family: Arc<Family>,
    pub(crate) compaction: Arc<Compaction>,
    pub(crate) progress: Arc<Progress>,
    id: RunningId,
    /// Space reserved for its outputs, if the total space is limited.
    _space: Option<SpaceReservation>,
}

/// Returns the number of sorted runs among a compaction's inputs: every file of L0, and each other
/// level.
fn sorted_runs(compaction: &Compaction) -> usize {
    let runs = compaction.inputs.iter().map(|input| if input.level.0 == 0 { input.files.len() } else { 1 });
    runs.sum()
}

impl Reserved {
    /// Returns the estimated output size in bytes, extrapolated from the progress at its end.
    fn expected_bytes(&self) -> u64 {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let progress = &self.progress;
        let (all, read) = (of(&progress.input_records), of(&progress.records_read));
        let written = of(&progress.bytes_written);
        if read == 0 || written == 0 {
            return self.compaction.input_bytes();
        }
        let bytes = u128::from(written) * u128::from(all.max(read)) / u128::from(read);
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    pub(super) fn priority(&self) -> Priority {
        let into_last = self.compaction.bottommost && self.compaction.start_level().0 > 0;
        if into_last { Priority::Bottom } else { Priority::Low }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let mut state = self.background.state.lock();
        if let Some(jobs) = state.families.get_mut(&self.family.id()) {
            jobs.running.release(self.id);
            jobs.compacted_runs -= sorted_runs(&self.compaction);
            jobs.progress.retain(|progress| !Arc::ptr_eq(progress, &self.progress));
        }
        drop(state);
        self.background.notify();
    }
}

/// Adds the outcome of a compaction to the info for listeners.
fn add_outcome(
    info: &mut CompactionInfo,
    family: &Family,
    compaction: &Compaction,
    summary: &CompactionSummary,
) {
    let shared = &family.tables.shared;
    info.output_files = summary.tables.len();
    info.output_bytes = summary.tables.iter().map(|file| file.size_bytes).sum();
    info.input_entries = summary.counts.input_records;
    info.output_entries = summary.counts.output_records;
    let paths = summary.tables.iter().map(|file| shared.table_path(file.number, file.path_id));
    info.output_paths = paths.filter_map(Result::ok).collect();
    // Moved tables are not new, and all new ones are written to one path.
    let path = |number| shared.table_path(number, compaction.output_path_id).ok();
    let properties = summary.properties.iter();
    info.table_properties =
        properties.filter_map(|(number, of)| Some((path(*number)?, of.clone()))).collect();
    info.subcompactions = summary.parts;
    (info.micros, info.cpu_micros) = (summary.micros, summary.cpu_micros);
    let tables = summary.tables.iter();
    info.output_infos = tables.map(|file| CompactionFileInfo::new(compaction.output_level, file)).collect();
    let inputs: BTreeMap<u64, &PathBuf> =
        info.input_infos.iter().map(|file| file.number).zip(&info.input_paths).collect();
    let properties = summary.input_properties.iter();
    let properties: BTreeMap<PathBuf, _> =
        properties.filter_map(|(number, of)| Some(((*inputs.get(&number.0)?).clone(), of.clone()))).collect();
    info.input_table_properties = properties;
    let blobs = summary.blob_files.iter();
    info.blob_files =
        blobs.map(|blob| BlobFileAdditionInfo::new(shared.blob_path(blob.number), blob)).collect();
    let garbage = summary.blob_garbage.iter();
    info.blob_garbage =
        garbage.map(|blob| BlobFileGarbageInfo::new(shared.blob_path(blob.number), blob)).collect();
    add_outcome_stats(&mut info.stats, summary);
}

/// Returns the number of files on a family's L0.
fn l0_files(family: &Family) -> usize {
    family.superversion().version().files(Level(0)).len()
}

impl Background {
    /// Calls `decide` with the state that a pick for the family depends on.
    pub(super) fn with_context<T>(
        &self,
        jobs: &FamilyJobs,
        family: &Family,
        decide: impl FnOnce(PickContext<'_>) -> T,
    ) -> T {
        let view = family.superversion();
        let flush = &self.parts.flush;
        decide(PickContext {
            version: view.version(),
            options: &jobs.options,
            running: &jobs.running,
            // Compat: like in RocksDB, files are only re-examined for entries that snapshots needed
            // once a snapshot was released; before, they hold no garbage.
            oldest_snapshot: flush.snapshots.released_below(),
            now_s: flush.env.unix_time().as_secs(),
        })
    }

    /// Makes `choose` pick a compaction of `family`, and reserves its files until the result is
    /// dropped. `None` if it picks none.
    ///
    /// # Errors
    /// `SpaceLimit`: the space limit does not allow the picked compaction.
    pub(super) fn reserve_in(
        self: &Arc<Self>,
        state: &mut State,
        family: &Arc<Family>,
        choose: impl FnOnce(PickContext<'_>) -> Option<Compaction>,
    ) -> Result<Option<Reserved>> {
        let jobs = state.jobs(&self.options(), family);
        let Some(compaction) = self.with_context(jobs, family, choose) else { return Ok(None) };
        let writes = compaction.work == CompactionWork::Merge;
        let space = match self.parts.flush.shared.space.as_ref().filter(|_| writes) {
            Some(space) => Some(space.reserve(compaction.input_bytes())?),
            None => None,
        };
        let id = jobs.running.register(&compaction);
        jobs.compacted_runs += sorted_runs(&compaction);
        let progress = Arc::new(Progress::default());
        jobs.progress.push(progress.clone());
        let compaction = Arc::new(compaction);
        let (background, family) = (self.clone(), family.clone());
        Ok(Some(Reserved { background, family, compaction, progress, id, _space: space }))
    }

    /// Returns true if automatic compactions of the family are enabled.
    fn compacts_by_itself(jobs: &FamilyJobs) -> bool {
        !jobs.options.family.disable_auto_compactions
    }

    /// Returns the number of sorted runs being compacted, of all families.
    pub(crate) fn compacted_runs(&self) -> usize {
        self.state.lock().families.values().map(|jobs| jobs.compacted_runs).sum()
    }

    /// Returns the options for compactions of the family.
    pub(crate) fn compaction_options(&self, family: &Family) -> Arc<CompactionOptions> {
        self.state.lock().jobs(&self.options(), family).options.clone()
    }

    /// Returns by level the compaction score and the number of files being compacted; and the total
    /// bytes pending compaction.
    pub(crate) fn compaction_state(&self, family: &Arc<Family>) -> (Vec<f64>, Vec<usize>, u64) {
        let mut state = self.state.lock();
        let jobs = state.jobs(&self.options(), family);
        self.with_context(jobs, family, |context| {
            let scores = pick::Scores::new(context);
            let levels = context.version.levels();
            let taken = |level: &Arc<karst_lsm::LevelFiles>| {
                level.files().iter().filter(|file| context.running.holds(file)).count()
            };
            (
                (0..levels.len()).map(|level| scores.of(level)).collect(),
                levels.iter().map(taken).collect(),
                pick::estimated_pending_compaction_bytes(context.version, context.options),
            )
        })
    }

    /// Returns the tables of a family that are being compacted.
    pub(crate) fn being_compacted(&self, family: &Arc<Family>) -> BTreeSet<FileNumber> {
        let mut state = self.state.lock();
        let jobs = state.jobs(&self.options(), family);
        self.with_context(jobs, family, |context| {
            let files = context.version.all_files().map(|(_, file)| file);
            files.filter(|file| context.running.holds(file)).map(|file| file.number).collect()
        })
    }

    /// Returns the next compaction that may run now, counted as running.
    pub(super) fn next_compaction(self: &Arc<Self>, state: &mut State) -> Option<PickedCompaction> {
        // Compat: one compaction at a time suffices while it delays no writer.
        let limit =
            if self.parts.stalls.needs_speed() { Limits::new(&self.options()).compactions } else { 1 };
        let allowed =
            self.parts.health.allows_compaction() && state.room_wanted.is_none() && state.aborted == 0;
        if state.compactions >= limit || !allowed {
            return None;
        }
        let now = self.env().now();
        let families = self.parts.families.all();
        let first = families.iter().position(|family| family.id() >= state.turn).unwrap_or(0);
        for family in families[first..].iter().chain(&families[..first]).filter(|f| !f.is_dropped()) {
            let jobs = state.jobs(&self.options(), family);
            // A family that rests only for lack of space is tried too, because space may be
            // available now.
            let rested_until = jobs.rests_until;
            let rests = now < rested_until;
            let lacked_room = jobs.no_room.take().is_some();
            if !Self::compacts_by_itself(jobs) || (rests && !lacked_room) {
                continue;
            }
            jobs.rests_until = Duration::ZERO;
            match self.reserve_in(state, family, pick::pick) {
                Ok(Some(reserved)) => {
                    state.compactions += 1;
                    state.turn = ColumnFamilyId(family.id().0 + 1);
                    return Some(PickedCompaction { reserved, _slot: CompactionSlot(self.clone()) });
                }
                Ok(None) => {}
                Err(error) => {
                    let jobs = state.jobs(&self.options(), family);
                    jobs.no_room = Some(error.clone());
                    jobs.rests_until = if rests { rested_until } else { now + REST };
                    if !rests {
                        state.refused.push((family.clone(), error));
                    }
                }
            }
        }
        None
    }

    /// Handles due compactions of these families that did not begin for lack of space. They are
    /// retried after a pause.
    pub(super) fn refused_room(self: &Arc<Self>, refused: &[(Arc<Family>, Error)]) {
        let Some((_, error)) = refused.first() else { return };
        let text = format_args!("compactions of {} column families wait: {error}", refused.len());
        self.parts.flush.events.log(LogLevel::Warn, text);
        let now = self.env().now();
        for (family, error) in refused {
            self.parts.flush.stats.tick(Ticker::CompactionCancelled);
            self.parts.stalls.job_failed(family.id(), Relief::Compaction, now, error);
        }
        self.notify();
        self.schedule_after(REST);
    }

    /// Returns true if a compaction of a family is due.
    pub(crate) fn compaction_pending(&self, family: &Arc<Family>) -> bool {
        let mut state = self.state.lock();
        let jobs = state.jobs(&self.options(), family);
        Self::compacts_by_itself(jobs) && self.with_context(jobs, family, pick::pick).is_some()
    }

    pub(super) async fn compact(self: &Arc<Self>, job: PickedCompaction) {
        let PickedCompaction { reserved, _slot } = job;
        let outcome = self.run_reserved(&reserved).await;
        let family = reserved.family.clone();
        if let Err(error) = outcome {
            self.compaction_failed(&reserved, &error);
        }
        drop(reserved);
        self.look_at(&family);
        self.settle(_slot);
    }

    /// Runs a compaction, automatic or manual, and notifies listeners of its beginning and end.
    /// Returns the summary, and the info passed to listeners at the end.
    ///
    /// # Errors
    /// Those of [`CompactionJob::run`].
    pub(crate) async fn run_reserved(
        &self,
        reserved: &Reserved,
    ) -> Result<(CompactionSummary, CompactionInfo)> {
        let (family, compaction) = (&reserved.family, &reserved.compaction);
        let events = &self.parts.flush.events;
        let mut info = CompactionInfo::default();
        info.column_family = family.config.name.clone();
        info.column_family_id = family.id().0;
        info.job = events.next_job();
        info.reason = compaction.reason.name().to_owned();
        info.reason_number = compaction.reason.number();
        info.base_level = u32::from(compaction.start_level().0);
        info.output_level = u32::from(compaction.output_level.0);
        info.input_files = compaction.input_files().count();
        info.input_bytes = compaction.input_bytes();
        let shared = &family.tables.shared;
        let path = |number, path_id| shared.table_path(number, path_id).ok();
        let inputs = compaction.input_files();
        let inputs = inputs.filter_map(|(level, file)| {
            Some((path(file.number, file.path_id)?, CompactionFileInfo::new(level, file)))
        });
        (info.input_paths, info.input_infos) = inputs.unzip();
        info.l0_files = l0_files(family);
        info.compression = compaction.compression;
        info.blob_compression = family.settings().options.blob_compression_type;
        info.stats = input_stats(compaction);
        events.compaction_begun(&info);
        // A file that is being ingested is in the tree a moment before its number is visible.
        let newest = compaction.input_files().map(|(_, file)| file.largest_seq).max();
        self.parts.flush.pipeline.wait_published(newest.unwrap_or_default()).await;
        let job = CompactionJob {
            surroundings: self.surroundings.clone(),
            family: family.clone(),
            compaction: compaction.clone(),
            // Invariant: copied after everything in the inputs became visible, so a snapshot taken
            // later needs no entry that the job drops.
            readers: self.parts.flush.snapshots.readers(),
            logs: Some(self.parts.flush.pipeline.clone()),
            progress: reserved.progress.clone(),
            priority: reserved.priority(),
            creations: FileCreations::of(
                events,
                &info.column_family,
                info.job,
                TableFileCreationReason::Compaction,
            ),
            pre_commit: events.has_listeners().then(|| {
                let (events, begun) = (events.clone(), info.clone());
                let (family, compaction) = (family.clone(), compaction.clone());
                PreCommit(Box::new(move |summary| {
                    let mut info = begun.clone();
                    add_outcome(&mut info, &family, &compaction, summary);
                    events.compaction_pre_commit(&info);
                }))
            }),
        };
        let start = self.env().now();
        match caught("a compaction", job.run()).await {
            Ok(summary) => {
                add_outcome(&mut info, family, compaction, &summary);
                info.l0_files = l0_files(family);
                let version = family.superversion().version().clone();
                let files: Vec<usize> = version.levels().iter().map(|level| level.files().len()).collect();
                events.compaction_completed(&info, self.env().now().saturating_sub(start), &files);
                self.parts.flush.pipeline.installed();
                self.compaction_succeeded(reserved, summary.work != Some(CompactionWork::Merge));
                Ok((summary, info))
            }
            Err(error) => {
                info.error = Some(error.clone());
                events.compaction_failed(&info, &error);
                Err(error)
            }
        }
    }

    fn compaction_succeeded(&self, reserved: &Reserved, moved: bool) {
        if moved {
            // Moved files needed no space, so the success says nothing about compactions that do.
            return;
        }
        self.parts.stalls.job_succeeded(reserved.family.id(), Relief::Compaction);
        let mut state = self.state.lock();
        // Only then, because space for this compaction does not imply space for the one that
        // failed.
        if state.starved.is_none_or(|family| family == reserved.family.id()) {
            (state.room_wanted, state.starved, state.vain_attempts) = (None, None, 0);
        }
    }

    pub(super) fn compaction_failed(self: &Arc<Self>, reserved: &Reserved, error: &Error) {
        let family = &reserved.family;
        let given_up = matches!(error.kind(), ErrorKind::Closed | ErrorKind::Incomplete);
        if self.is_cancelled() || family.is_dropped() || given_up {
            return;
        }
        self.parts.stalls.job_failed(family.id(), Relief::Compaction, self.env().now(), error);
        if error.kind() == ErrorKind::NoSpace {
            let directories = &family.tables.shared.directories;
            let directory = directories.get(usize::from(reserved.compaction.output_path_id));
            let directory = directory.unwrap_or(&directories[0]).clone();
            let bytes = reserved.expected_bytes();
            // Set before the report, because the recovery then checks for space.
            let wanted = RoomWanted { family: family.id(), directory, bytes, error: error.clone() };
            let mut state = self.state.lock();
            (state.room_wanted, state.starved) = (Some(wanted), Some(family.id()));
        }
        if self.parts.health.report(error, BackgroundErrorReason::Compaction) != Reaction::Retry {
            return;
        }
        let until = self.env().now() + REST;
        let mut state = self.state.lock();
        state.room_wanted = None;
        state.jobs(&self.options(), family).rests_until = until;
        drop(state);
        self.schedule_after(REST);
    }
}
