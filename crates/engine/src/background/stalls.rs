//! A family's state as a condition for writers: looked at whenever its memtables or its tree have
//! changed. The rules are `lsm`'s.

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
    /// Looks at what the family's state means for writers.
    pub(crate) fn look_at(&self, family: &Arc<Family>) {
        let stalls = &self.parts.stalls;
        let mut state = self.state.lock();
        // Lock: asked within. Whoever has dropped the family looks at it then, and that look comes
        // later than one that has not seen it yet.
        if family.is_dropped() {
            return self.forget_backlog(&mut state, family);
        }
        #[cfg(test)]
        overtaken::come_between();
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
        // Lock: set within, so that two who look at once do not leave the older state behind.
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

    /// Whether one more memtable, and its table, would hold writers up.
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

/// What a test has come between a look at a family and what follows from it.
#[cfg(test)]
pub(crate) mod overtaken {
    use std::cell::RefCell;

    thread_local! {
        /// By what the next look of this thread is overtaken, at a family or at what is to be
        /// flushed.
        pub(crate) static BETWEEN: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
    }

    pub(crate) fn come_between() {
        if let Some(between) = BETWEEN.take() {
            between();
        }
    }
}
