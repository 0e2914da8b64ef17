//! Write stalls that follow from a family's state, updated whenever its memtables or its tree have
//! changed. The rules are in `lsm`.

use super::{Background, FamilyJobs};
use karst_lsm::pick::CompactionOptions;
use karst_lsm::stall::{self, Backlog, DelayedWriteRate, RateSignal, WriteStall};
use karst_storage::column_family::Family;
use std::sync::Arc;

fn backlog(family: &Family, options: &CompactionOptions) -> Backlog {
    let view = family.superversion();
    Backlog::new(view.version(), options, view.immutable().len())
}

impl Background {
    /// Updates the write stall for the family's current state.
    pub(crate) fn look_at(&self, family: &Arc<Family>) {
        let stalls = &self.parts.stalls;
        let mut state = self.state.lock();
        // Lock: checked within. Dropping a family is followed by such an update, which comes later
        // than one that has not seen the drop.
        if family.is_dropped() {
            return self.forget_backlog(&mut state, family);
        }
        #[cfg(test)]
        race_hook::run();
        let mut rate = state.delayed_rate.unwrap_or_else(|| DelayedWriteRate::new(stalls.rate()));
        let (before, _) = stalls.family(family.id());
        let held_before = stalls.held();
        let jobs = state.jobs(&self.options(), family);
        let options = jobs.options.clone();
        let l0_compacts = jobs.running.holds_l0();
        let backlog = backlog(family, &options);
        let now = stall::write_stall(&backlog, &options);
        let speed_up = self.with_context(jobs, family, |context| stall::needs_speed_up(context, &backlog));
        match now {
            WriteStall::Delayed(_) => {
                let signal = Self::signal(held_before, now, &backlog, jobs);
                rate.delayed(signal, &options);
            }
            WriteStall::Normal if held_before.1 => rate.recovered(),
            WriteStall::Normal | WriteStall::Stopped(_) => {}
        }
        let flush = stall::flush_is_pressing(&backlog, &options);
        jobs.hurry.set(self.env(), flush, stall::compaction_is_pressing(&backlog, &options));
        jobs.pending_bytes = backlog.pending_compaction_bytes;
        state.delayed_rate = Some(rate);
        stalls.set_rate(rate.bytes_per_sec());
        // Lock: set within, so that of two concurrent updates the older state does not remain.
        stalls.set(family.id(), now, speed_up, l0_compacts);
        drop(state);
        if before != now {
            self.parts.flush.events.stall_changed(&family.config.name, before, now);
        }
    }

    fn signal(
        (was_stopped, was_delayed): (bool, bool),
        now: WriteStall,
        backlog: &Backlog,
        jobs: &FamilyJobs,
    ) -> RateSignal {
        RateSignal {
            was_stopped,
            was_delayed,
            near_stop: stall::is_near_stop(now, backlog, &jobs.options),
            pending_before: jobs.pending_bytes,
            pending: backlog.pending_compaction_bytes,
        }
    }

    /// Returns true if one more memtable, and its table, would delay or stop writers.
    pub(super) fn flush_would_stall(&self, family: &Family) -> bool {
        let options = self.state.lock().jobs(&self.options(), family).options.clone();
        let now = backlog(family, &options);
        let then = Backlog {
            unflushed_memtables: now.unflushed_memtables + 1,
            sorted_runs: now.sorted_runs + 1,
            ..now
        };
        stall::write_stall(&then, &options) != WriteStall::Normal
    }
}

/// Test hook that runs between reading a family's state and acting on it.
#[cfg(test)]
pub(crate) mod race_hook {
    use std::cell::RefCell;

    thread_local! {
        /// Action that overtakes the next check of this thread, of a family or of the memtables to
        /// flush.
        pub(crate) static ACTION: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
    }

    pub(crate) fn run() {
        if let Some(between) = ACTION.take() {
            between();
        }
    }
}
