//! Periodic work: compaction of files that reach an age, statistics in the LOG file, and statistics
//! in memory.
//!
//! In: the time, and the current options. Out: a check of every family's tree, and calls that write
//! and store statistics.
//!
//! One task for all, because they are infrequent, and a single sleeping task is simple to end.
//! While it sleeps it holds the background work weakly, so it keeps nothing alive.

use super::{Background, StatsDump};
use karst_base::pacing::race;
use karst_io::{Env, Priority};
use karst_lsm::pick::CompactionOptions;
use karst_storage::column_family::Family;
use std::sync::Arc;
use std::time::Duration;

/// Number of checks for due files within the shortest age at which files become due; a file is
/// therefore late by at most this fraction of the age.
const LOOKS_PER_AGE: u64 = 10;

/// Time of the last run of each task.
#[derive(Clone, Copy, Debug)]
struct Last {
    look: Duration,
    dump: Duration,
    keep: Duration,
}

/// The tasks that are due, and the maximum time until the next check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Due {
    look: bool,
    dump: bool,
    keep: bool,
    next: Option<Duration>,
}

/// Period of each task; `None` if it is disabled.
#[derive(Clone, Copy, Debug)]
struct Every {
    look: Option<Duration>,
    dump: Option<Duration>,
    keep: Option<Duration>,
}

/// Returns the tasks that are due.
fn due(now: Duration, last: Last, every: Every) -> Due {
    let of = |last: Duration, every: Option<Duration>| match every {
        None => (false, None),
        Some(every) if now >= last.saturating_add(every) => (true, Some(every)),
        Some(every) => (false, Some(last.saturating_add(every) - now)),
    };
    let (look, next_look) = of(last.look, every.look);
    let (dump, next_dump) = of(last.dump, every.dump);
    let (keep, next_keep) = of(last.keep, every.keep);
    Due { look, dump, keep, next: [next_look, next_dump, next_keep].into_iter().flatten().min() }
}

/// Returns the shortest age in seconds at which a file of the family becomes due; `None` if none
/// ever does.
fn shortest_age_s(options: &CompactionOptions) -> Option<u64> {
    let family = &options.family;
    let delay = u64::from(family.bottommost_file_compaction_delay);
    [family.ttl, family.periodic_compaction_seconds, delay].into_iter().filter(|age| *age > 0).min()
}

impl Background {
    /// Starts the task for periodic work, which runs until the database is closed.
    pub(super) fn keep_time(self: &Arc<Self>) {
        self.state.lock().keeps_time = true;
        let slot = TimeSlot(Arc::downgrade(self));
        let env = self.env().clone();
        let now = env.now();
        drop(
            self.env().spawn(Priority::High, keep_time(env, slot, Last { look: now, dump: now, keep: now })),
        );
    }

    /// Sets the writer of statistics to the LOG file. Only the first call has an effect.
    pub(crate) fn on_stats_dump(&self, dump: impl Fn() + Send + Sync + 'static) {
        // Ignored, because there is only one caller.
        let _ = self.stats_dump.set(StatsDump(Box::new(dump)));
    }

    /// Sets the storage of statistics in memory. Only the first call has an effect.
    pub(crate) fn on_stats_kept(&self, keep: impl Fn() + Send + Sync + 'static) {
        // Ignored, because there is only one caller.
        let _ = self.stats_kept.set(StatsDump(Box::new(keep)));
    }

    /// Returns the period of checks for files that are due because of their age, or None.
    fn look_every(&self) -> Option<Duration> {
        let options = self.options();
        let age = |family: &Arc<Family>| {
            let mut state = self.state.lock();
            let jobs = state.jobs(&options, family);
            shortest_age_s(&jobs.options).filter(|_| !jobs.options.family.disable_auto_compactions)
        };
        let shortest = self.parts.families.all().iter().filter_map(age).min()?;
        let every_s = (shortest / LOOKS_PER_AGE).min(options.max_compaction_trigger_wakeup_seconds);
        Some(Duration::from_secs(every_s.max(1)))
    }

    fn every(&self) -> Every {
        let options = self.options();
        let period = |seconds: u32| (seconds > 0).then_some(Duration::from_secs(u64::from(seconds)));
        Every {
            look: self.look_every(),
            dump: period(options.stats_dump_period_sec),
            keep: period(options.stats_persist_period_sec),
        }
    }
}

async fn keep_time(env: Env, slot: TimeSlot, mut last: Last) {
    loop {
        let Some(background) = slot.0.upgrade() else { return };
        let changed = background.changed.listen();
        if background.state.lock().closing {
            return;
        }
        let now = env.now();
        let due = due(now, last, background.every());
        if due.look {
            last.look = now;
            background.parts.families.all().iter().for_each(|family| background.look_at(family));
            background.schedule();
        }
        if due.dump {
            last.dump = now;
            if let Some(StatsDump(dump)) = background.stats_dump.get() {
                dump();
            }
        }
        if due.keep {
            last.keep = now;
            if let Some(StatsDump(keep)) = background.stats_kept.get() {
                keep();
            }
        }
        drop(background);
        match due.next {
            Some(span) => drop(race(changed, karst_io::sleep(&env, span)).await),
            None => changed.await,
        }
    }
}

/// Marks the task as ended when dropped.
struct TimeSlot(std::sync::Weak<Background>);

impl Drop for TimeSlot {
    fn drop(&mut self) {
        if let Some(background) = self.0.upgrade() {
            background.state.lock().keeps_time = false;
            background.notify();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use karst_format::options::{ColumnFamilyOptions, DbOptions, OptionSet};

    #[test]
    fn what_is_due_is_done_once_a_period() {
        let s = Duration::from_secs;
        let last = Last { look: s(100), dump: s(50), keep: s(60) };
        let at = |now, look: Option<u64>, dump: Option<u64>, keep: Option<u64>| {
            let every = Every { look: look.map(s), dump: dump.map(s), keep: keep.map(s) };
            let due = due(s(now), last, every);
            (due.look, due.dump, due.keep, due.next)
        };
        assert_eq!(at(109, Some(10), None, None), (false, false, false, Some(s(1))));
        assert_eq!(at(110, Some(10), Some(100), None), (true, false, false, Some(s(10))));
        assert_eq!(at(149, None, Some(100), None), (false, false, false, Some(s(1))));
        assert_eq!(at(150, Some(500), Some(100), Some(95)), (false, true, false, Some(s(5))));
        assert_eq!(at(155, None, None, Some(95)), (false, false, true, Some(s(95))));
        assert_eq!(at(1 << 40, None, None, None), (false, false, false, None));
    }

    #[test]
    fn the_shortest_age_counts() {
        let age = |text: &str| {
            let mut family = ColumnFamilyOptions::default();
            family.set_all(text).unwrap();
            shortest_age_s(&CompactionOptions::new(&DbOptions::default(), &family, Vec::new()))
        };
        assert_eq!(age("ttl=500;periodic_compaction_seconds=300"), Some(300));
        assert_eq!(age("ttl=500;periodic_compaction_seconds=0;bottommost_file_compaction_delay=7"), Some(7));
        assert_eq!(age("ttl=0;periodic_compaction_seconds=0"), None);
    }
}
