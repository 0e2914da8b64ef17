//! What is due by time alone: files that grow too old to be left as they are, statistics in the LOG
//! file, and statistics that are kept.
//!
//! In: the time, and the options at that time. Out: a look at every family's tree, and calls to
//! what writes and what keeps statistics.
//!
//! Why one task for all: they come rarely, and one task that sleeps is one task to end. While it
//! sleeps it holds the background work weakly, so it keeps nothing alive.

use super::{Background, StatsDump};
use karst_base::pacing::race;
use karst_io::{Env, Priority};
use karst_lsm::pick::CompactionOptions;
use karst_storage::column_family::Family;
use std::sync::Arc;
use std::time::Duration;

/// Looks for files that are due are so many times as frequent as files can become due: a file waits
/// at most so much longer than it has to.
const LOOKS_PER_AGE: u64 = 10;

/// When each thing was done last.
#[derive(Clone, Copy, Debug)]
struct Last {
    look: Duration,
    dump: Duration,
    keep: Duration,
}

/// What it is time for, and in how long to look again at the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Due {
    look: bool,
    dump: bool,
    keep: bool,
    next: Option<Duration>,
}

/// How often each thing is done; `None` where nothing of the kind is ever due.
#[derive(Clone, Copy, Debug)]
struct Every {
    look: Option<Duration>,
    dump: Option<Duration>,
    keep: Option<Duration>,
}

/// Decides.
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

/// The shortest age in seconds at which a file of the family becomes due; `None` if none ever does.
fn shortest_age_s(options: &CompactionOptions) -> Option<u64> {
    let family = &options.family;
    let delay = u64::from(family.bottommost_file_compaction_delay);
    [family.ttl, family.periodic_compaction_seconds, delay].into_iter().filter(|age| *age > 0).min()
}

impl Background {
    /// Begins to keep the time, until the database is closed.
    pub(super) fn keep_time(self: &Arc<Self>) {
        self.state.lock().keeps_time = true;
        let slot = TimeSlot(Arc::downgrade(self));
        let env = self.env().clone();
        let now = env.now();
        drop(
            self.env().spawn(Priority::High, keep_time(env, slot, Last { look: now, dump: now, keep: now })),
        );
    }

    /// Says who writes statistics to the LOG file. The first call counts.
    pub(crate) fn on_stats_dump(&self, dump: impl Fn() + Send + Sync + 'static) {
        // Why ignored: nobody calls twice.
        let _ = self.stats_dump.set(StatsDump(Box::new(dump)));
    }

    /// Says who keeps statistics. The first call counts.
    pub(crate) fn on_stats_kept(&self, keep: impl Fn() + Send + Sync + 'static) {
        // Why ignored: nobody calls twice.
        let _ = self.stats_kept.set(StatsDump(Box::new(keep)));
    }

    /// How often to look for files that are due for their age.
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

/// Says that the time is kept no more.
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
