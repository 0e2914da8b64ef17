//! Flushes: triggering, running, and handling their outcome.
//!
//! Invariant: in a database with `atomic_flush`, memtables of all families are sealed together and
//! flushed together, in one change.

use super::{Background, Limits, State, closed};
use crate::flush::{FamilyFlush, Phase, Trigger};
use crate::sealing::{SealRequest, Sealed, Sealing};
use karst_base::error::{Error, ErrorKind, Result};
use karst_base::events::{FlushReason, LogLevel};
use karst_base::health::{BackgroundErrorReason, Reaction};
use karst_base::pacing::Relief;
use karst_base::stats::Ticker;
use karst_format::ids::ColumnFamilyId;
use karst_format::key::SeqNo;
use karst_io::{Hurry, Priority};
use karst_storage::column_family::Family;
use karst_storage::memtable::MemTable;
use std::sync::Arc;
use std::time::Duration;

/// Pause after a failed flush that did not stop writes (`paranoid_checks=false`).
const REST: Duration = Duration::from_secs(1);

/// A flush that was decided on, counted as running until it is dropped.
pub(super) struct FlushJob {
    flushes: Vec<FamilyFlush>,
    reason: FlushReason,
    /// Set unless the reason is only a full memtable, because a caller then waits for the flush, or
    /// for the memory or the log that it frees.
    _hurry: Option<Hurry>,
    _slot: FlushSlot,
}

/// Releases the place of a flush when dropped.
pub(super) struct FlushSlot {
    background: Arc<Background>,
    families: Vec<ColumnFamilyId>,
}

impl Drop for FlushSlot {
    fn drop(&mut self) {
        {
            let mut state = self.background.state.lock();
            state.flushes -= 1;
            for family in &self.families {
                if let Some(jobs) = state.families.get_mut(family) {
                    jobs.flushing = false;
                    jobs.flushes_ended += 1;
                }
            }
        }
        self.background.notify();
    }
}

/// A group of families whose memtables are flushed in one change.
#[derive(Debug)]
pub(super) struct Together {
    number: u64,
    /// The families, and the largest sequence number of the memtables to flush; `None` until they
    /// are sealed. No flush begins meanwhile, because it might include a part of the sealed
    /// memtables.
    sealed: Option<(Vec<Arc<Family>>, SeqNo)>,
}

impl Together {
    /// Returns true if a memtable of the group is not in tables yet.
    fn is_left(&self) -> bool {
        self.sealed.as_ref().is_none_or(|(families, through)| {
            families.iter().any(|family| {
                let view = family.superversion();
                let is_part = |m: &Arc<MemTable>| m.sealed().is_some_and(|seal| seal.largest_seq <= *through);
                !family.is_dropped() && view.immutable().iter().any(is_part)
            })
        })
    }

    fn has(&self, family: &Family) -> bool {
        self.sealed.iter().flat_map(|(families, _)| families).any(|own| own.id() == family.id())
    }
}

/// A group that is about to be sealed. Dropping it before removes the group.
struct Gathering {
    background: Arc<Background>,
    number: u64,
}

impl Gathering {
    fn begin(background: &Arc<Background>) -> Gathering {
        let mut state = background.state.lock();
        state.groups += 1;
        let number = state.groups;
        state.together.push(Together { number, sealed: None });
        Gathering { background: background.clone(), number }
    }

    fn sealed(&self, state: &mut State, families: &[Arc<Family>], through: SeqNo) {
        if let Some(group) = state.together.iter_mut().find(|group| group.number == self.number) {
            group.sealed = Some((families.to_vec(), through));
        }
    }
}

impl Drop for Gathering {
    fn drop(&mut self) {
        let mut state = self.background.state.lock();
        state.together.retain(|group| group.number != self.number || group.sealed.is_some());
        drop(state);
        self.background.schedule();
    }
}

/// Families, with the sealed memtables of each that are not flushed.
pub(super) type SealedNow = Vec<(Arc<Family>, Vec<Arc<MemTable>>)>;

impl Background {
    /// Handles a trigger of a writer. Does not wait.
    pub(super) fn triggered(self: &Arc<Self>, trigger: Trigger) {
        let Some(_slot) = self.asked_slot() else { return };
        let answer = Answer { background: self.clone(), trigger, _slot };
        self.parts.flush.pipeline.seal_soon(Box::new(answer));
    }

    /// Counts a requested task; `None` if the database is being closed.
    pub(super) fn asked_slot(self: &Arc<Self>) -> Option<AskedSlot> {
        let mut state = self.state.lock();
        if state.closing {
            return None;
        }
        state.asked += 1;
        Some(AskedSlot(self.clone()))
    }

    /// Returns the families whose memtables must be sealed.
    fn families_for(self: &Arc<Self>, trigger: &Trigger) -> Vec<Arc<Family>> {
        match trigger {
            // Checked again, because it may have been sealed for another reason since, and the new
            // one is almost empty.
            Trigger::MemtableFull(family) => {
                let still = family.pin().mem().is_asked_to_be_sealed();
                still.then(|| family.clone()).into_iter().collect()
            }
            Trigger::OverBudget => self.largest_memtables(),
            Trigger::LogsTooLong => self.keepers_of_oldest_log(),
        }
    }

    /// Returns the families with the largest memtables, as many as the budget requires.
    ///
    /// Possibly several, because writers that wait for the budget send no triggers, so no later
    /// request follows.
    fn largest_memtables(&self) -> Vec<Arc<Family>> {
        let budget = self.parts.triggers.budget();
        let families = self.parts.families.all();
        let live = families.iter().filter(|family| !family.is_dropped());
        let mut sizes: Vec<(usize, &Arc<Family>)> = live
            .map(|family| (family.pin().mem().memory_bytes(), family))
            .filter(|(_, family)| !family.pin().mem().is_empty())
            .collect();
        sizes.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        let mut freed = 0;
        let is_wanted = |(bytes, _): &(usize, &Arc<Family>)| {
            let more = budget.should_flush_beside(freed);
            freed += bytes;
            more
        };
        sizes.into_iter().take_while(is_wanted).map(|(_, family)| family.clone()).collect()
    }

    /// Returns the families whose memtables must be sealed to make the oldest log obsolete.
    /// Families with sealed memtables flush these first, and are considered again if that was not
    /// enough.
    ///
    /// The logs stay over the limit until a flush ends, and each write triggers again. Sealing for
    /// each trigger would create tiny memtables, soon numerous enough to stop writers.
    ///
    /// A memtable that another caller seals before these are sealed leads to one small table more.
    fn keepers_of_oldest_log(self: &Arc<Self>) -> Vec<Arc<Family>> {
        let versions = &self.parts.flush.versions;
        // Invariant: the undecided sections are read first; see `PreparedLogs`.
        let undecided = versions.prepared_logs().oldest();
        let families = self.parts.families.all();
        let log_of = |family: &Arc<Family>| {
            let view = family.superversion();
            let holds = !view.mem().is_empty() || !view.immutable().is_empty();
            let log = versions.log_number(family.id()).filter(|_| holds && !family.is_dropped())?;
            view.memtables().filter_map(|mem| mem.needed_log()).chain([log]).min()
        };
        let oldest = families.iter().filter_map(log_of).min();
        // No flush makes a log with undecided prepared sections obsolete.
        if oldest.is_none() || undecided.is_some_and(|log| Some(log) <= oldest) {
            return Vec::new();
        }
        let keepers = families.iter().filter(|family| log_of(family) == oldest).cloned();
        let (sealed, open): (Vec<_>, Vec<_>) =
            keepers.partition(|family| !family.superversion().immutable().is_empty());
        {
            let mut state = self.state.lock();
            for family in &sealed {
                state.jobs(&self.options(), family).flush_wanted.get_or_insert(FlushReason::WalFull);
            }
        }
        self.schedule();
        open
    }

    /// Returns the limit of the total bytes of all logs.
    ///
    /// Compat: four times the memtable limit of all families, unless the option is set; like in
    /// RocksDB, there is no limit with a single family.
    pub(super) fn max_log_bytes(&self) -> u64 {
        let families = self.parts.families.all();
        if families.len() < 2 {
            return 0;
        }
        match self.options().max_total_wal_size {
            0 => {
                let memory = |family: &Arc<Family>| {
                    let settings = family.settings();
                    let options = &settings.options;
                    options.write_buffer_size as u64
                        * u64::try_from(options.max_write_buffer_number).unwrap_or(1)
                };
                families.iter().map(memory).fold(0u64, u64::saturating_add).saturating_mul(4)
            }
            bytes => bytes,
        }
    }

    /// Seals the memtables that `which` names, like [`seal_now`](Self::seal_now), in a job of the
    /// database: it continues if this is dropped or not polled, so that other seals get their turn.
    ///
    /// # Errors
    /// Those of [`seal_now`](Self::seal_now); the database is closed.
    pub(super) async fn seal(
        self: &Arc<Self>,
        which: Sealing,
        reason: FlushReason,
        together: bool,
    ) -> Result<SealedNow> {
        let slot = self.asked_slot().ok_or_else(closed)?;
        let this = self.clone();
        let task = self.env().spawn(Priority::High, async move {
            let sealed = this.seal_now(which, reason, together).await;
            drop(slot);
            sealed
        });
        task.await.unwrap_or_else(|error| Err(Error::of_task("a seal", &error)))
    }

    /// Seals the memtables that `which` names, or those of all families with `atomic_flush`, and
    /// schedules their flush, in one change if `together`. Returns the sealed memtables of these
    /// families that are not flushed.
    ///
    /// # Errors
    /// A new log could not be begun; writes are refused then until the database recovers.
    async fn seal_now(
        self: &Arc<Self>,
        which: Sealing,
        reason: FlushReason,
        together: bool,
    ) -> Result<SealedNow> {
        let atomic = self.options().atomic_flush;
        let group = (together && !atomic).then(|| Gathering::begin(self));
        let which = if atomic { Sealing::All } else { which };
        let sealed = match self.parts.flush.pipeline.seal(which).await {
            Ok(sealed) => sealed,
            Err(error) => {
                self.seal_failed(&error);
                return Err(error);
            }
        };
        // Read before the flush is requested, because a memtable that is sealed later may stay
        // until enough for a merged flush have accumulated, and this caller must not wait for that.
        let waiting =
            sealed.families.iter().map(|family| (family.clone(), family.superversion().immutable().to_vec()));
        let waiting: SealedNow = waiting.collect();
        self.note_sealed(&sealed, reason, atomic || together, group.as_ref());
        self.schedule();
        Ok(waiting)
    }

    /// Reports that a new log could not be begun.
    fn seal_failed(&self, error: &Error) {
        if error.kind() != ErrorKind::Closed {
            // Reported, because no later trigger follows for this memtable, so the recovery must
            // seal it.
            self.parts.health.report(error, BackgroundErrorReason::WriteCallback);
        }
    }

    /// Records the sealed memtables, and updates the write stalls; `in_one` if all of them are
    /// flushed in one change.
    fn note_sealed(
        self: &Arc<Self>,
        Sealed { families, largest_seq, .. }: &Sealed,
        reason: FlushReason,
        in_one: bool,
        group: Option<&Gathering>,
    ) {
        if in_one {
            self.parts.flush.stats.tick(match reason {
                FlushReason::WriteBufferFull => Ticker::AtomicFlushRequestReasonWriteBufferFull,
                FlushReason::WriteBufferManager => Ticker::AtomicFlushRequestReasonWriteBufferManager,
                _ => Ticker::AtomicFlushRequestReasonOther,
            });
        }
        {
            let mut state = self.state.lock();
            state.sealed_through = state.sealed_through.max(*largest_seq);
            if let Some(group) = group {
                group.sealed(&mut state, families, *largest_seq);
            }
            if reason != FlushReason::WriteBufferFull {
                for family in families {
                    state.jobs(&self.options(), family).flush_wanted = Some(reason);
                }
            }
        }
        for family in families {
            self.look_at(family);
        }
    }

    /// Returns the next flush that may run now, counted as running.
    pub(super) fn next_flush(self: &Arc<Self>, state: &mut State) -> Option<FlushJob> {
        if state.flushes >= Limits::new(&self.options()).flushes || !self.parts.health.allows_flush() {
            return None;
        }
        let families = self.parts.families.all();
        // The flush of a closing waits for no rest, because its failure ends the closing.
        let now = if state.ending { Duration::MAX } else { self.env().now() };
        let mut due: Vec<(usize, Arc<Family>)> = Vec::new();
        for family in families.iter().filter(|family| !family.is_dropped()) {
            let sealed = family.superversion().immutable().len();
            let fewest = usize::try_from(family.settings().options.min_write_buffer_number_to_merge)
                .unwrap_or(1)
                .max(1);
            let jobs = state.jobs(&self.options(), family);
            if sealed == 0 {
                jobs.flush_wanted = None;
            }
            let wanted = sealed >= fewest || (sealed > 0 && jobs.flush_wanted.is_some());
            if wanted && !jobs.flushing && now >= jobs.rests_until {
                due.push((sealed, family.clone()));
            }
        }
        #[cfg(test)]
        super::race_hook::run();
        let flushes: Vec<FamilyFlush> = if self.options().atomic_flush {
            let busy = families.iter().any(|family| state.jobs(&self.options(), family).flushing);
            let all = families.iter().filter(|_| !due.is_empty() && !busy);
            all.filter_map(|family| self.flush_of(state, family)).collect()
        } else if let Some(together) = self.next_together(state, now) {
            together
        } else if state.together.iter().any(|group| group.sealed.is_none()) {
            Vec::new()
        } else {
            due.retain(|(_, family)| !state.together.iter().any(|group| group.has(family)));
            // Not only the family with the most memtables, because it may have been dropped just
            // now, and the others are not considered again.
            due.sort_by_key(|(sealed, _)| *sealed);
            due.iter().rev().find_map(|(_, family)| self.flush_of(state, family)).into_iter().collect()
        };
        let first = flushes.first()?;
        let reason =
            state.jobs(&self.options(), &first.family).flush_wanted.unwrap_or(FlushReason::WriteBufferFull);
        let hurries = reason != FlushReason::WriteBufferFull;
        let _hurry = hurries.then(|| self.env().hurry(Priority::High));
        Some(FlushJob { _slot: self.flush_slot(state, &flushes), flushes, reason, _hurry })
    }

    /// Returns the memtables of a group to flush in one change, if all of it can be flushed now.
    fn next_together(&self, state: &mut State, now: Duration) -> Option<Vec<FamilyFlush>> {
        state.together.retain(Together::is_left);
        let may_begin = |family: &Arc<Family>| {
            let jobs = state.families.get(&family.id());
            jobs.is_none_or(|jobs| !jobs.flushing && now >= jobs.rests_until)
        };
        let sealed = state.together.iter().filter_map(|group| group.sealed.as_ref());
        let (families, through) = sealed.into_iter().find(|(families, _)| families.iter().all(may_begin))?;
        let versions = &self.parts.flush.versions;
        Some(families.iter().filter_map(|family| FamilyFlush::of(versions, family, Some(*through))).collect())
    }

    /// Returns the memtables of a family to flush.
    fn flush_of(&self, state: &State, family: &Arc<Family>) -> Option<FamilyFlush> {
        let through = self.options().atomic_flush.then_some(state.sealed_through);
        FamilyFlush::of(&self.parts.flush.versions, family, through)
    }

    /// Counts a flush as running.
    pub(super) fn flush_slot(self: &Arc<Self>, state: &mut State, flushes: &[FamilyFlush]) -> FlushSlot {
        state.flushes += 1;
        for flush in flushes {
            let jobs = state.jobs(&self.options(), &flush.family);
            jobs.flushing = true;
            jobs.flushes_begun += 1;
        }
        FlushSlot {
            background: self.clone(),
            families: flushes.iter().map(|flush| flush.family.id()).collect(),
        }
    }

    pub(super) async fn flush(self: &Arc<Self>, job: FlushJob) {
        let FlushJob { flushes, reason, _hurry, _slot } = job;
        let families: Vec<_> = flushes.iter().map(|flush| flush.family.clone()).collect();
        match self.parts.flush.run(flushes, None, reason).await {
            Ok(_) => self.flush_succeeded(&families),
            Err((phase, error)) => self.flush_failed(&families, phase, &error),
        }
        for family in &families {
            self.look_at(family);
        }
        self.settle(_slot);
    }

    pub(super) fn flush_succeeded(&self, families: &[Arc<Family>]) {
        families.iter().for_each(|family| self.parts.stalls.job_succeeded(family.id(), Relief::Flush));
        let mut state = self.state.lock();
        for family in families {
            if let Some(jobs) = state.families.get_mut(&family.id()) {
                jobs.flush_failure = None;
            }
        }
    }

    /// Handles a failed flush.
    pub(super) fn flush_failed(self: &Arc<Self>, families: &[Arc<Family>], phase: Phase, error: &Error) {
        let reason = match phase {
            Phase::Write => BackgroundErrorReason::Flush,
            Phase::Install => BackgroundErrorReason::ManifestWrite,
        };
        // Not reported if the database is closing or the family is gone, nor if the MANIFEST's
        // writer has already reported its failure.
        let gone = families.iter().any(|family| family.is_dropped());
        let known = phase == Phase::Install && error.kind().is_io();
        if self.is_cancelled() || gone || error.kind() == ErrorKind::Closed {
            return;
        }
        let now = self.env().now();
        families.iter().for_each(|f| self.parts.stalls.job_failed(f.id(), Relief::Flush, now, error));
        // Before waiters are woken, because they check whether the database has stopped.
        let reaction = (!known).then(|| self.parts.health.report(error, reason));
        {
            let mut state = self.state.lock();
            state.failed_flushes += 1;
            let failure = (state.failed_flushes, error.clone());
            for family in families {
                state.jobs(&self.options(), family).flush_failure = Some(failure.clone());
            }
        }
        if reaction.is_some_and(|reaction| reaction != Reaction::Retry) {
            return;
        }
        let until = self.env().now() + REST;
        let mut state = self.state.lock();
        for family in families {
            state.jobs(&self.options(), family).rests_until = until;
        }
        drop(state);
        self.schedule_after(REST);
    }

    /// Calls [`schedule`](Self::schedule) after `span`, unless the database is closed before.
    pub(super) fn schedule_after(self: &Arc<Self>, span: Duration) {
        let this = self.clone();
        drop(self.env().spawn(Priority::High, async move {
            if this.sleep(span).await {
                this.schedule();
                // Needed even if no job was due, because waiters must then learn that no family
                // rests any more.
                this.notify();
            }
        }));
    }
}

/// Handling of a trigger.
struct Answer {
    background: Arc<Background>,
    trigger: Trigger,
    _slot: AskedSlot,
}

impl SealRequest for Answer {
    fn which(&self) -> Option<Sealing> {
        let families = self.background.families_for(&self.trigger);
        if let Trigger::OverBudget = self.trigger {
            // Reset first, because a trigger during the seal requires another check.
            self.background.parts.triggers.budget_dealt_with();
        }
        let atomic = self.background.options().atomic_flush;
        let wanted = !families.is_empty();
        wanted.then(|| if atomic { Sealing::All } else { Sealing::Of(families) })
    }

    fn ended(&self, outcome: Result<&Sealed>) {
        let background = &self.background;
        match outcome {
            Ok(sealed) => {
                let atomic = background.options().atomic_flush;
                background.note_sealed(sealed, self.trigger.reason(), atomic, None);
            }
            Err(error) => {
                background.seal_failed(&error);
                // Only logged, because the pipeline reports a log that cannot be begun.
                let text = format_args!("memtables could not be sealed: {error}");
                background.parts.flush.events.log(LogLevel::Warn, text);
            }
        }
    }

    fn told(&self) {
        self.background.schedule();
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if let Trigger::LogsTooLong = self.trigger {
            // Reset last, because until it is sealed a memtable keeps the log, and would be sealed
            // twice.
            self.background.parts.triggers.logs_dealt_with();
        }
    }
}

/// Counts a requested task until it ends.
#[derive(Debug)]
pub(crate) struct AskedSlot(Arc<Background>);

impl Drop for AskedSlot {
    fn drop(&mut self) {
        self.0.state.lock().asked -= 1;
        self.0.notify();
    }
}

#[cfg(test)]
impl Background {
    /// Seals all memtables without scheduling their flush.
    pub(crate) fn seal_untold(&self) -> Result<()> {
        karst_io::block_on(self.env(), self.parts.flush.pipeline.seal(Sealing::All)).map(drop)
    }
}
