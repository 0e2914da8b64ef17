//! Background work: scheduling flushes, compactions and recoveries, and waiting for them.
//!
//! | file | holds |
//! |---|---|
//! | this one | `Background`, its parts and the state of the running jobs |
//! | `flushes` | triggering and running flushes |
//! | `manual` | manual compactions |
//! | `aborts` | aborting all compactions, automatic and manual |
//! | `compactions` | automatic compactions, which `lsm` picks and `compact` runs |
//! | `ingests` | ingestion of files |
//! | `stalls` | write stalls that follow from a family's state |
//! | `recover` | recovery from background errors |
//! | `timers` | periodic work |
//! | `wait` | work that closing waits for, pausing, waiting, closing |
//!
//! In: triggers of writers, calls of the user, the ends of jobs. Out: jobs on the environment's
//! threads: flushes at high priority, compactions at low, those into the last level at bottom
//! priority. Every change of the state calls `Background::schedule`; one task sleeps until periodic
//! work is due.
//!
//! Invariants:
//! - Every running job is counted, until it ends in any way.
//! - A family has at most one flush at a time; no file is in two compactions.
//! - Started work, including a seal or a recovery, is a job of the database. It runs to its end
//!   even if its caller no longer waits, so no other work waits for a caller's future that is not
//!   polled.
//! - Compactions that wait for space wait while a recovery checks for space, or an error stands.
//! - No job runs after `Background::close` has returned.
//!
//! Lock: `state`; held to decide and to count, never while waiting or writing. The health's lock,
//! and a family's exchange lock, may be taken within it.

mod aborts;
mod compactions;
mod flushes;
mod ingests;
mod manual;
mod opening;
mod recover;
mod stalls;
mod timers;
mod wait;

pub(crate) use compactions::Reserved;
pub use ingests::IngestExternalFileOptions;
pub(crate) use ingests::{FamilyIngest, FileEnd, PreparedFile};
#[cfg(test)]
pub(crate) use stalls::race_hook;
pub use wait::{FlushOptions, WaitForCompactOptions};

use crate::compact::job::JobSurroundings;
use crate::compact::progress::Progress;
use crate::flush::{FlushContext, Triggers};
use karst_base::error::{Error, ErrorKind};
use karst_base::events::FlushReason;
use karst_base::health::Health;
use karst_base::options::DbOptions;
use karst_base::pacing::StallController;
use karst_base::sync::Event;
use karst_base::sync::Mutex;
use karst_base::sync::atomic::Ordering;
use karst_format::ids::ColumnFamilyId;
use karst_format::key::SeqNo;
use karst_io::{Env, Hurry, Priority};
use karst_lsm::pick::{CompactionOptions, Running};
use karst_lsm::stall::DelayedWriteRate;
use karst_storage::column_family::{Families, Family};
use karst_storage::table::cache::opened_together;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Parts of the database that background work uses.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) flush: FlushContext,
    pub(crate) families: Arc<Families>,
    pub(crate) health: Arc<Health>,
    pub(crate) stalls: Arc<StallController>,
    pub(crate) triggers: Arc<Triggers>,
}

/// Scheduler of background work; see the module.
#[derive(Debug)]
pub(crate) struct Background {
    parts: Parts,
    surroundings: Arc<JobSurroundings>,
    state: Mutex<State>,
    /// Notified when a job began, ended or was allowed.
    changed: Event,
    /// Writes statistics to the LOG file.
    stats_dump: OnceLock<StatsDump>,
    /// Stores statistics in memory.
    stats_kept: OnceLock<StatsDump>,
}

struct StatsDump(Box<dyn Fn() + Send + Sync>);

impl std::fmt::Debug for StatsDump {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StatsDump")
    }
}

/// Maximum numbers of concurrent jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limits {
    flushes: usize,
    compactions: usize,
}

impl Limits {
    /// Compat: the two older options, if one is set, replace `max_background_jobs`; otherwise a
    /// quarter of the jobs are flushes.
    fn new(options: &DbOptions) -> Self {
        let at_least_one = |n: i32| usize::try_from(n).unwrap_or(0).max(1);
        let (flushes, compactions) = (options.max_background_flushes, options.max_background_compactions);
        if flushes == -1 && compactions == -1 {
            let jobs = at_least_one(options.max_background_jobs);
            let flushes = (jobs / 4).max(1);
            return Self { flushes, compactions: jobs.saturating_sub(flushes).max(1) };
        }
        Self { flushes: at_least_one(flushes), compactions: at_least_one(compactions) }
    }

    /// Raises the number of background threads to at least these.
    ///
    /// Never lowered, because databases that share an environment share its threads.
    fn raise_threads(self, env: &Env) {
        for (priority, threads) in [(Priority::High, self.flushes), (Priority::Low, self.compactions)] {
            env.set_background_threads(priority, threads.max(env.background_threads(priority)));
        }
    }
}

#[derive(Debug, Default)]
struct State {
    families: BTreeMap<ColumnFamilyId, FamilyJobs>,
    flushes: usize,
    compactions: usize,
    /// Requested seals and recoveries that have not ended.
    asked: usize,
    recovering: bool,
    /// True while the task for periodic work exists.
    keeps_time: bool,
    /// True while the task that opens tables exists.
    opens_files: bool,
    /// Ended jobs that have not yet scheduled their successors.
    settling: usize,
    /// Calls of `pause_background_work` that were not undone.
    paused: usize,
    /// Manual compactions.
    manual: manual::ManualCompactions,
    /// Calls of `abort_all_compactions` that were not undone.
    aborted: usize,
    /// True if the database is about to be closed: a pause has no effect any more.
    ending: bool,
    closing: bool,
    /// True if background work was cancelled permanently: no job begins any more.
    cancelled: bool,
    /// Every memtable with at most this largest sequence number was sealed together with those of
    /// all other families.
    sealed_through: SeqNo,
    /// Families that are flushed in one change although the options do not require it.
    together: Vec<flushes::Together>,
    /// Number of such groups so far.
    groups: u64,
    /// Set while compactions lack space; no automatic one starts then.
    room_wanted: Option<RoomWanted>,
    /// The family whose compaction was the last to lack space, until one of its own succeeds.
    starved: Option<ColumnFamilyId>,
    /// Number of failed recovery attempts since the last success.
    vain_attempts: u32,
    /// Number of failed flushes since the database was opened.
    failed_flushes: u64,
    /// Rate of delayed writers.
    delayed_rate: Option<DelayedWriteRate>,
    /// Families whose compactions lacked space in the current pass of the scheduler.
    refused: Vec<(Arc<Family>, Error)>,
    /// The family considered first for the next compaction.
    turn: ColumnFamilyId,
}

/// Space required by a compaction that failed for lack of it.
#[derive(Clone, Debug)]
struct RoomWanted {
    family: ColumnFamilyId,
    /// Directory of its outputs.
    directory: PathBuf,
    bytes: u64,
    error: Error,
}

/// State of a family's jobs.
#[derive(Debug)]
struct FamilyJobs {
    /// Reason to flush sealed memtables even if they are few, or None.
    flush_wanted: Option<FlushReason>,
    flushing: bool,
    /// Number of flushes that have begun, and number of those that have ended.
    flushes_begun: u64,
    flushes_ended: u64,
    running: Running,
    /// Progress of the running compactions.
    progress: Vec<Arc<Progress>>,
    /// Number of sorted runs being compacted.
    compacted_runs: usize,
    /// Bytes pending compaction at the last check.
    pending_bytes: u64,
    /// Error of the last flush, if it failed, and the count of failed flushes including it.
    flush_failure: Option<(u64, Error)>,
    /// Time before which no compaction starts, because the last one failed.
    rests_until: Duration,
    /// Error of the due compaction, if it lacks space.
    no_room: Option<Error>,
    options: Arc<CompactionOptions>,
    /// Held while the family's backlog is urgent.
    hurry: Hurries,
}

/// Urgency of jobs, which then do not yield to others.
#[derive(Debug, Default)]
struct Hurries {
    flush: Option<Hurry>,
    compaction: Option<[Hurry; 2]>,
}

impl Hurries {
    fn set(&mut self, env: &Env, flush: bool, compaction: bool) {
        if flush != self.flush.is_some() {
            self.flush = flush.then(|| env.hurry(Priority::High));
        }
        if compaction != self.compaction.is_some() {
            self.compaction = compaction.then(|| Priority::COMPACTIONS.map(|p| env.hurry(p)));
        }
    }
}

impl FamilyJobs {
    fn new(options: &DbOptions, family: &Family) -> Self {
        Self {
            flush_wanted: None,
            flushing: false,
            flushes_begun: 0,
            flushes_ended: 0,
            running: Running::new(),
            progress: Vec::new(),
            compacted_runs: 0,
            pending_bytes: 0,
            flush_failure: None,
            rests_until: Duration::ZERO,
            no_room: None,
            options: Arc::new(compaction_options(options, family)),
            hurry: Hurries::default(),
        }
    }
}

/// Returns the options for compactions of a family.
pub(crate) fn compaction_options(options: &DbOptions, family: &Family) -> CompactionOptions {
    let paths = family.tables.shared.path_target_sizes.clone();
    CompactionOptions::new(options, &family.settings().options, paths)
}

impl State {
    fn jobs(&mut self, options: &DbOptions, family: &Family) -> &mut FamilyJobs {
        self.families.entry(family.id()).or_insert_with(|| FamilyJobs::new(options, family))
    }

    /// Removes the state of closed families without jobs.
    fn forget_closed(&mut self, open: &Families) {
        // Reservations are checked too, because their holders still release them.
        let works =
            |jobs: &FamilyJobs| jobs.flushing || !jobs.progress.is_empty() || !jobs.running.is_empty();
        self.families.retain(|id, jobs| works(jobs) || open.get(*id).is_some());
    }

    /// Returns true if no flush and no compaction, automatic or manual, runs.
    fn has_no_job(&self) -> bool {
        // Checked too, because manual compactions are not in the count of compactions.
        let compacts = self.families.values().any(|jobs| !jobs.progress.is_empty());
        self.flushes == 0 && self.compactions == 0 && !compacts
    }

    fn is_idle(&self) -> bool {
        self.has_no_job() && self.asked == 0 && self.settling == 0 && !self.recovering
    }

    fn is_paused(&self) -> bool {
        self.paused > 0 && !self.ending
    }
}

impl Background {
    /// Creates the scheduler without jobs, and connects it to its sources of events.
    pub(crate) fn new(parts: Parts) -> Arc<Background> {
        Limits::new(&parts.flush.options.get()).raise_threads(&parts.flush.env);
        let background = Arc::new(Background {
            surroundings: Arc::new(JobSurroundings {
                versions: parts.flush.versions.clone(),
                options: parts.flush.options.clone(),
                identity: parts.flush.identity.clone(),
                limiter: parts.flush.limiter.clone(),
            }),
            state: Mutex::default(),
            changed: Event::new(),
            stats_dump: OnceLock::new(),
            stats_kept: OnceLock::new(),
            parts,
        });
        background.connect();
        background.keep_time();
        let options = background.options();
        if options.open_files_async && options.max_open_files < 0 {
            background.open_files(opened_together(&options));
        }
        background.schedule();
        background
    }

    fn connect(self: &Arc<Self>) {
        let weak = Arc::downgrade(self);
        self.parts.triggers.connect(move |trigger| {
            if let Some(this) = weak.upgrade() {
                this.triggered(trigger);
            }
        });
        let weak = Arc::downgrade(self);
        self.parts.health.connect(move |error, reaction| {
            if let Some(this) = weak.upgrade() {
                this.failed(error, reaction);
            }
        });
        self.follow_log_limit();
        for family in self.parts.families.all().iter() {
            self.look_at(family);
        }
    }

    /// Called when a family was created.
    pub(crate) fn family_added(self: &Arc<Self>, family: &Arc<Family>) {
        let families = self.parts.families.all();
        let place = families.partition_point(|other| other.id() <= family.id());
        self.parts.flush.events.family_created(&family.settings(), place);
        self.follow_log_limit();
        self.look_at(family);
    }

    /// Called when options of these families, or of the database, have changed.
    pub(crate) fn options_changed(self: &Arc<Self>, families: &[Arc<Family>]) {
        let options = self.options();
        Limits::new(&options).raise_threads(self.env());
        {
            let mut state = self.state.lock();
            for family in families {
                // Read from the family again, because of two concurrent changes the last caller
                // here may have changed first.
                let settled = compaction_options(&options, family);
                state.jobs(&options, family).options = Arc::new(settled);
            }
        }
        self.follow_log_limit();
        for family in families {
            self.look_at(family);
        }
        self.notify();
        self.schedule();
    }

    /// Sets the initial rate of delayed writers.
    pub(crate) fn set_delayed_write_rate(&self, bytes_per_sec: u64) {
        let mut state = self.state.lock();
        state.delayed_rate = Some(DelayedWriteRate::new(bytes_per_sec));
        // Lock: set within, so that a concurrent check cannot overwrite it with the older rate.
        self.parts.stalls.set_rate(bytes_per_sec);
    }

    /// Called when a family was dropped: it stalls no writer and gets no jobs any more.
    pub(crate) fn family_dropped(self: &Arc<Self>, family: &Arc<Family>) {
        self.look_at(family);
        self.follow_log_limit();
        // State of previously dropped families whose jobs have ended since is removed as well.
        self.state.lock().forget_closed(&self.parts.families);
        self.changed.notify(usize::MAX);
    }

    /// Releases the stalls caused by a family's backlog.
    fn forget_backlog(&self, state: &mut State, family: &Arc<Family>) {
        self.parts.stalls.forget(family.id());
        if state.room_wanted.as_ref().is_some_and(|wanted| wanted.family == family.id()) {
            state.room_wanted = None;
        }
        if state.starved == Some(family.id()) {
            (state.starved, state.vain_attempts) = (None, 0);
        }
        if let Some(jobs) = state.families.get_mut(&family.id()) {
            jobs.hurry = Hurries::default();
        }
    }

    /// Sets the limit of all logs for the current options and families.
    fn follow_log_limit(&self) {
        // Lock: of two concurrent callers, the later one sees both changes.
        let _state = self.state.lock();
        self.parts.triggers.set_max_log_bytes(self.max_log_bytes());
    }

    /// Starts the jobs that may run now. Called after any event that may allow a job; never waits.
    pub(crate) fn schedule(self: &Arc<Self>) {
        let mut starts: Vec<Start> = Vec::new();
        let refused = {
            let mut state = self.state.lock();
            if state.closing || state.cancelled || state.is_paused() {
                return;
            }
            while let Some(flush) = self.next_flush(&mut state) {
                starts.push(Start::Flush(flush));
            }
            while let Some(compaction) = self.next_compaction(&mut state) {
                starts.push(Start::Compaction(compaction));
            }
            std::mem::take(&mut state.refused)
        };
        self.refused_room(&refused);
        for start in starts {
            let this = self.clone();
            match start {
                Start::Flush(job) => {
                    drop(self.env().spawn(Priority::High, async move { this.flush(job).await }))
                }
                Start::Compaction(job) => {
                    drop(self.env().spawn(job.priority(), async move { this.compact(job).await }));
                }
            }
        }
    }

    /// Releases the place of a job and starts the jobs that may run then.
    ///
    /// Counted, because no job runs in between, though the end of this one may make another due,
    /// and a caller that waits for all jobs must not return then.
    fn settle(self: &Arc<Self>, slot: impl Drop) {
        /// Decrements the count on every exit.
        struct Settling<'a>(&'a Background);
        impl Drop for Settling<'_> {
            fn drop(&mut self) {
                self.0.state.lock().settling -= 1;
                self.0.notify();
            }
        }
        self.state.lock().settling += 1;
        let _settling = Settling(self);
        drop(slot);
        self.schedule();
    }

    /// Raises the priority of jobs of all kinds while a caller waits for them.
    fn hurry(&self) -> [Hurry; 3] {
        Priority::ALL.map(|priority| self.env().hurry(priority))
    }

    /// Returns the number of families with state.
    #[cfg(test)]
    pub(crate) fn known_families(&self) -> usize {
        self.state.lock().families.len()
    }

    pub(crate) fn env(&self) -> &Env {
        &self.parts.flush.env
    }

    /// Returns the current options of the database.
    fn options(&self) -> Arc<DbOptions> {
        self.parts.flush.options.get()
    }

    /// Wakes all waiters after a change.
    fn notify(&self) {
        self.changed.notify(usize::MAX);
    }

    /// Waits until `check` returns a value; it is called again after every change.
    async fn wait_for<T>(&self, mut check: impl FnMut() -> Option<T>) -> T {
        loop {
            let changed = self.changed.listen();
            if let Some(answer) = check() {
                return answer;
            }
            changed.await;
        }
    }

    fn is_cancelled(&self) -> bool {
        self.parts.flush.cancelled.load(Ordering::Acquire)
    }
}

fn cancelled() -> Error {
    Error::new(ErrorKind::Closed, "background work was cancelled; close the database and open it again")
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the database is closed")
}

enum Start {
    Flush(flushes::FlushJob),
    Compaction(compactions::PickedCompaction),
}
