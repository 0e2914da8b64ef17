//! Compactions: asking the pickers, running what they pick, and lending places to compactions that somebody asks for.

use super::{Background, FamilyJobs, State};
use crate::column_family::Family;
use crate::error::{Error, ErrorKind};
use crate::events::CompactionInfo;
use crate::flush::{BoxFuture, Phase};
use crate::health::{BackgroundErrorReason, Reaction};
use karst_format::ids::ColumnFamilyId;
use karst_io::Priority;
use karst_lsm::pick::{self, Compaction, PickContext, RunningId};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// How long a family's compactions rest after one failed.
const REST: Duration = Duration::from_secs(1);

/// Runs compactions.
pub(crate) trait Compacts: Send + Sync + std::fmt::Debug {
    /// Carries out `compaction` of `family` and installs the result, unless `cancelled` becomes true before. Fills in `info` what it has read and written.
    fn run<'a>(
        &'a self,
        family: &'a Arc<Family>,
        compaction: &'a Compaction,
        info: &'a mut CompactionInfo,
        cancelled: &'a AtomicBool,
    ) -> BoxFuture<'a, Result<(), (Phase, Error)>>;
}

/// A compaction that was decided on; counted until it is dropped.
pub(super) struct CompactionJob {
    reserved: Reserved,
    /// Counts against the limit of compactions that start by themselves.
    _slot: CompactionSlot,
}

impl CompactionJob {
    pub(super) fn priority(&self) -> Priority {
        let compaction = &self.reserved.compaction;
        if compaction.bottommost && compaction.start_level().0 > 0 { Priority::Bottom } else { Priority::Low }
    }
}

struct CompactionSlot(Arc<Background>);

impl Drop for CompactionSlot {
    fn drop(&mut self) {
        self.0.state.lock().compactions -= 1;
        self.0.notify();
    }
}

/// Files that a compaction has for itself until this is dropped.
pub(crate) struct Reserved {
    background: Arc<Background>,
    pub(crate) family: Arc<Family>,
    pub(crate) compaction: Compaction,
    id: RunningId,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let mut state = self.background.state.lock();
        if let Some(jobs) = state.families.get_mut(&self.family.id()) {
            jobs.running.release(self.id);
        }
        drop(state);
        self.background.notify();
    }
}

impl Background {
    /// What a decision about the family depends on, handed to `decide`.
    fn with_context<T>(
        &self,
        jobs: &FamilyJobs,
        family: &Family,
        decide: impl FnOnce(PickContext<'_>) -> T,
    ) -> T {
        let view = family.superversion();
        let flush = &self.parts.flush;
        let oldest = flush.snapshots.oldest().unwrap_or_else(|| flush.versions.last_sequence());
        decide(PickContext {
            version: view.version(),
            options: &jobs.options,
            running: &jobs.running,
            oldest_snapshot: oldest,
            now_s: flush.env.unix_time().as_secs(),
        })
    }

    /// Has `choose` pick a compaction of `family`, whose files nobody else takes until the result is dropped. For compactions that somebody asks for.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        family: &Arc<Family>,
        choose: impl FnOnce(PickContext<'_>) -> Option<Compaction>,
    ) -> Option<Reserved> {
        let mut state = self.state.lock();
        if state.closing {
            return None;
        }
        self.reserve_in(&mut state, family, choose)
    }

    fn reserve_in(
        self: &Arc<Self>,
        state: &mut State,
        family: &Arc<Family>,
        choose: impl FnOnce(PickContext<'_>) -> Option<Compaction>,
    ) -> Option<Reserved> {
        let jobs = state.jobs(self.options(), family);
        let compaction = self.with_context(jobs, family, choose)?;
        let id = jobs.running.register(&compaction);
        Some(Reserved { background: self.clone(), family: family.clone(), compaction, id })
    }

    /// Whether compactions of the family start by themselves.
    fn compacts_by_itself(jobs: &FamilyJobs, family: &Family) -> bool {
        jobs.auto_compaction.unwrap_or(!family.config.options.disable_auto_compactions)
    }

    /// The next compaction that may run now, counted.
    pub(super) fn next_compaction(self: &Arc<Self>, state: &mut State) -> Option<CompactionJob> {
        // Compat: as long as nobody is held up by it, one compaction at a time is enough.
        let limit = if self.parts.stalls.needs_speed() { self.limits.compactions } else { 1 };
        if self.compactor.get().is_none()
            || state.compactions >= limit
            || !self.parts.health.allows_compaction()
        {
            return None;
        }
        let now = self.env().now();
        let families = self.parts.families.all();
        let first = families.iter().position(|family| family.id() >= state.turn).unwrap_or(0);
        for family in families[first..].iter().chain(&families[..first]).filter(|f| !f.is_dropped()) {
            let jobs = state.jobs(self.options(), family);
            if !Self::compacts_by_itself(jobs, family) || now < jobs.rests_until {
                continue;
            }
            if let Some(reserved) = self.reserve_in(state, family, pick::pick) {
                state.compactions += 1;
                state.turn = ColumnFamilyId(family.id().0 + 1);
                return Some(CompactionJob { reserved, _slot: CompactionSlot(self.clone()) });
            }
        }
        None
    }

    /// Whether a family's tree wants a compaction.
    pub(crate) fn compaction_pending(&self, family: &Arc<Family>) -> bool {
        let mut state = self.state.lock();
        let jobs = state.jobs(self.options(), family);
        Self::compacts_by_itself(jobs, family) && self.with_context(jobs, family, pick::pick).is_some()
    }

    pub(super) async fn compact(self: &Arc<Self>, job: CompactionJob) {
        let CompactionJob { reserved, _slot } = job;
        let outcome = self.run_reserved(&reserved).await;
        let family = reserved.family.clone();
        if let Err((phase, error)) = outcome {
            self.compaction_failed(&family, phase, &error);
        }
        drop(reserved);
        self.look_at(&family);
        drop(_slot);
        self.schedule();
    }

    /// Runs a compaction, whoever has asked for it, and tells of its beginning and end.
    pub(crate) async fn run_reserved(&self, reserved: &Reserved) -> Result<CompactionInfo, (Phase, Error)> {
        let missing =
            || Error::new(ErrorKind::NotSupported, "this database has nothing that runs compactions");
        let compactor = self.compactor.get().ok_or_else(|| (Phase::Write, missing()))?.clone();
        let (family, compaction) = (&reserved.family, &reserved.compaction);
        let events = &self.parts.flush.events;
        let mut info = CompactionInfo {
            column_family: family.config.name.clone(),
            job: events.next_job(),
            reason: compaction.reason.name().to_owned(),
            base_level: u32::from(compaction.start_level().0),
            output_level: u32::from(compaction.output_level.0),
            input_files: compaction.input_files().count(),
            input_bytes: compaction.input_bytes(),
            output_files: 0,
            output_bytes: 0,
            input_entries: 0,
            output_entries: 0,
        };
        events.compaction_begun(&info);
        let start = self.env().now();
        let cancelled = &self.parts.flush.cancelled;
        match compactor.run(family, compaction, &mut info, cancelled).await {
            Ok(()) => {
                let version = family.superversion().version().clone();
                let files: Vec<usize> = version.levels().iter().map(|level| level.files().len()).collect();
                events.compaction_completed(&info, self.env().now().saturating_sub(start), &files);
                Ok(info)
            }
            Err((phase, error)) => {
                events.job_failed(&info.column_family, info.job, "compaction", &error);
                Err((phase, error))
            }
        }
    }

    fn compaction_failed(self: &Arc<Self>, family: &Arc<Family>, phase: Phase, error: &Error) {
        if self.is_cancelled() || family.is_dropped() || error.kind() == ErrorKind::Closed {
            return;
        }
        let known = phase == Phase::Install && error.kind() == ErrorKind::Io;
        if !known && self.parts.health.report(error, BackgroundErrorReason::Compaction) != Reaction::Retry {
            return;
        }
        let until = self.env().now() + REST;
        self.state.lock().jobs(self.options(), family).rests_until = until;
        self.schedule_after(REST);
    }
}
