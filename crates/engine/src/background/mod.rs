//! Background work: which flush, compaction or recovery runs now, and who waits for it.
//!
//! | file | holds |
//! |---|---|
//! | this one | `Background`, its parts and what is known of the jobs that run |
//! | `flushes` | what makes a flush run, and running it |
//! | `by_hand` | compactions that somebody asks for |
//! | `aborts` | compactions that are all stopped, by whomever they were asked for |
//! | `compactions` | the same for compactions, which `lsm` picks and `compact` carries out |
//! | `ingests` | files that are ingested |
//! | `stalls` | a family's state as a condition for writers |
//! | `recover` | going on after a background error |
//! | `timers` | what is due by time alone |
//! | `wait` | work that closing waits for, pausing, waiting, closing |
//!
//! In: triggers of writers, calls of the user, the ends of jobs. Out: jobs on the environment's
//! threads: flushes at high priority, compactions at low, those into the last level at bottom
//! priority. Whatever changes something calls `Background::schedule`; one task sleeps until
//! something is due by time alone.
//!
//! Invariants:
//! - Every running job is counted, until it ends, however it ends.
//! - A family has at most one flush at a time; no file is in two compactions.
//! - Work that has begun, also a seal or a recovery, is a job of the database. It runs to its end
//!   even if its caller no longer waits, so nobody waits for a caller's future that is not polled.
//! - Compactions that wait for room wait as long as a recovery looks for room, or an error stands.
//! - After `Background::close` has returned nothing runs.
//!
//! Lock: `state`; held to decide and to count, never while waiting or writing. In it, the health's,
//! and a family's exchange, may be taken.

mod aborts;
mod by_hand;
mod compactions;
mod flushes;
mod ingests;
mod opening;
mod recover;
mod stalls;
mod timers;
mod wait;

pub(crate) use compactions::Reserved;
pub use ingests::IngestExternalFileOptions;
pub(crate) use ingests::{FamilyIngest, FileEnd, PreparedFile};
#[cfg(test)]
pub(crate) use stalls::overtaken;
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

/// What background work is done with.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) flush: FlushContext,
    pub(crate) families: Arc<Families>,
    pub(crate) health: Arc<Health>,
    pub(crate) stalls: Arc<StallController>,
    pub(crate) triggers: Arc<Triggers>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Background {
    parts: Parts,
    surroundings: Arc<JobSurroundings>,
    state: Mutex<State>,
    /// Something began, ended or was allowed.
    changed: Event,
    /// Writes statistics to the LOG file.
    stats_dump: OnceLock<StatsDump>,
    /// Keeps statistics.
    stats_kept: OnceLock<StatsDump>,
}

struct StatsDump(Box<dyn Fn() + Send + Sync>);

impl std::fmt::Debug for StatsDump {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StatsDump")
    }
}

/// Most jobs at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limits {
    flushes: usize,
    compactions: usize,
}

impl Limits {
    /// Compat: the two older options, where one is set, count instead of `max_background_jobs`;
    /// else a quarter of it are flushes.
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

    /// Has at least as many threads run background jobs.
    ///
    /// Why at most raised: databases that share an environment share its threads.
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
    /// Seals and recoveries that were asked for and have not ended.
    asked: usize,
    recovering: bool,
    /// The task that waits for what is due by time has not ended.
    keeps_time: bool,
    /// The task that opens tables has not ended.
    opens_files: bool,
    /// Jobs that have ended and may let others begin.
    settling: usize,
    /// Calls of `pause_background_work` that were not taken back.
    paused: usize,
    /// Compactions that somebody has asked for.
    by_hand: by_hand::ByHand,
    /// Calls of `abort_all_compactions` that were not taken back.
    aborted: usize,
    /// The database is about to be closed: from now on no pause has an effect.
    ending: bool,
    closing: bool,
    /// Background work was cancelled for good: no job begins any more.
    cancelled: bool,
    /// Every memtable with at most this largest sequence number was sealed together with all others
    /// of its moment.
    sealed_through: SeqNo,
    /// Families that are flushed in one change though the options do not say so.
    together: Vec<flushes::Together>,
    /// How many of those there have been.
    groups: u64,
    /// While there is no room for compactions none starts by itself.
    room_wanted: Option<RoomWanted>,
    /// The family whose compaction was the last to find no room, until one of its own succeeds.
    starved: Option<ColumnFamilyId>,
    /// How often it was tried to go on after an error since that has led to anything.
    vain_attempts: u32,
    /// Flushes that have failed since the database was opened.
    failed_flushes: u64,
    /// How fast delayed writers go.
    delayed_rate: Option<DelayedWriteRate>,
    /// Families whose compactions found no room at the look that is being made.
    refused: Vec<(Arc<Family>, Error)>,
    /// The family that is asked first for the next compaction.
    turn: ColumnFamilyId,
}

/// What a compaction needs that has failed for want of room.
#[derive(Clone, Debug)]
struct RoomWanted {
    family: ColumnFamilyId,
    /// Of its tables.
    directory: PathBuf,
    bytes: u64,
    error: Error,
}

/// What is known of a family's jobs.
#[derive(Debug)]
struct FamilyJobs {
    /// What is sealed shall be flushed however little it is.
    flush_wanted: Option<FlushReason>,
    flushing: bool,
    /// Flushes that have begun, and of them those that have ended.
    flushes_begun: u64,
    flushes_ended: u64,
    running: Running,
    /// Of the compactions that run.
    progress: Vec<Arc<Progress>>,
    /// Sorted runs that are being compacted.
    compacted_runs: usize,
    /// Bytes that were due for compaction when it was looked at last.
    pending_bytes: u64,
    /// The error of the last flush, if it failed, and how many had failed with it.
    flush_failure: Option<(u64, Error)>,
    /// No compaction before this time, since the last one failed.
    rests_until: Duration,
    /// Why the compaction that is due was not begun, if there is no room for it.
    no_room: Option<Error>,
    options: Arc<CompactionOptions>,
    /// While its backlog presses.
    hurry: Hurries,
}

/// Why jobs do not give way to others.
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

/// What the compactions of a family go by.
pub(crate) fn compaction_options(options: &DbOptions, family: &Family) -> CompactionOptions {
    let paths = family.tables.shared.path_target_sizes.clone();
    CompactionOptions::new(options, &family.settings().options, paths)
}

impl State {
    fn jobs(&mut self, options: &DbOptions, family: &Family) -> &mut FamilyJobs {
        self.families.entry(family.id()).or_insert_with(|| FamilyJobs::new(options, family))
    }

    /// Forgets families that are open no more, but for those that have jobs.
    fn forget_closed(&mut self, open: &Families) {
        // Why also the last: who has reserved something gives it back.
        let works =
            |jobs: &FamilyJobs| jobs.flushing || !jobs.progress.is_empty() || !jobs.running.is_empty();
        self.families.retain(|id, jobs| works(jobs) || open.get(*id).is_some());
    }

    /// Whether no flush and no compaction runs, by whomever it was asked for.
    fn has_no_job(&self) -> bool {
        // Why those too: compactions by hand are not among those that are counted.
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
    /// Nothing runs yet; connects itself to what it has to hear of.
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

    /// A family was created.
    pub(crate) fn family_added(self: &Arc<Self>, family: &Arc<Family>) {
        let families = self.parts.families.all();
        let place = families.partition_point(|other| other.id() <= family.id());
        self.parts.flush.events.family_created(&family.settings(), place);
        self.follow_log_limit();
        self.look_at(family);
    }

    /// Options of these families, or of the database, are others now.
    pub(crate) fn options_changed(self: &Arc<Self>, families: &[Arc<Family>]) {
        let options = self.options();
        Limits::new(&options).raise_threads(self.env());
        {
            let mut state = self.state.lock();
            for family in families {
                // Why again from the family: of two that change, whoever comes last here may have
                // changed first.
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

    /// Writers that are delayed go at this rate at first.
    pub(crate) fn set_delayed_write_rate(&self, bytes_per_sec: u64) {
        let mut state = self.state.lock();
        state.delayed_rate = Some(DelayedWriteRate::new(bytes_per_sec));
        // Lock: set within, so that it is not set behind a look that went by it already.
        self.parts.stalls.set_rate(bytes_per_sec);
    }

    /// A family was dropped: it stalls nobody and gets no jobs any more.
    pub(crate) fn family_dropped(self: &Arc<Self>, family: &Arc<Family>) {
        self.look_at(family);
        self.follow_log_limit();
        // What those of earlier ones leave whose jobs run still goes with the next.
        self.state.lock().forget_closed(&self.parts.families);
        self.changed.notify(usize::MAX);
    }

    /// What the family has to do holds up nobody any more.
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

    /// Puts the limit of all logs in force as the options and the families are now.
    fn follow_log_limit(&self) {
        // Lock: of two who come at once, the later one has seen what both have changed.
        let _state = self.state.lock();
        self.parts.triggers.set_max_log_bytes(self.max_log_bytes());
    }

    /// Starts whatever may run now. Called after anything that may allow a job; never waits.
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

    /// Gives the place of a job back and starts what may run then.
    ///
    /// Why counted: in between nothing runs, though the end of this job may make another due, and
    /// whoever waits for all of them must not take that for the end.
    fn settle(self: &Arc<Self>, slot: impl Drop) {
        /// However it ends.
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

    /// Somebody waits for jobs of all kinds.
    fn hurry(&self) -> [Hurry; 3] {
        Priority::ALL.map(|priority| self.env().hurry(priority))
    }

    /// Families that something is kept of.
    #[cfg(test)]
    pub(crate) fn known_families(&self) -> usize {
        self.state.lock().families.len()
    }

    pub(crate) fn env(&self) -> &Env {
        &self.parts.flush.env
    }

    /// The database's options as they are now.
    fn options(&self) -> Arc<DbOptions> {
        self.parts.flush.options.get()
    }

    /// Tells everybody who waits that something has changed.
    fn notify(&self) {
        self.changed.notify(usize::MAX);
    }

    /// Waits until `check` has an answer; it is asked again after every change.
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
