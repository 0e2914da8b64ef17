//! Write stalls: conditions that delay or stop writers until flushes and compactions catch up, and
//! the rate of delayed writers.
//!
//! In: numbers of unflushed memtables and sorted runs, bytes due for compaction, and the family's
//! options. Out: [`WriteStall`], the need for more compaction threads ([`needs_speed_up`]), and the
//! rate for delayed writers ([`DelayedWriteRate`]).
//!
//! The rules are RocksDB's: the first condition that holds applies, stops before delays; and the
//! rate follows the debt: down while it grows, up while it shrinks, down faster near a stop.
//!
//! Callers: the engine, whenever a column family's memtables, files or options have changed.

use crate::pick::{CompactionOptions, PickContext};
use crate::version::Version;
use karst_format::options::choice::CompactionStyle;

/// Condition that delays or stops writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StallCause {
    /// Too many unflushed memtables.
    MemtableLimit,
    /// Too many files of L0; under universal compaction, sorted runs.
    L0FileCountLimit,
    /// Too many bytes due for compaction.
    PendingCompactionBytes,
}

/// Effect of a column family's state on writers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WriteStall {
    /// Writers are not restricted.
    #[default]
    Normal,
    /// Writers are slowed down.
    Delayed(StallCause),
    /// Writers wait.
    Stopped(StallCause),
}

/// Outstanding flush and compaction work of a column family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Number of sealed memtables that are not flushed yet.
    pub unflushed_memtables: usize,
    /// Number of sorted runs, which count towards `level0_*_trigger`: see [`sorted_runs`].
    pub sorted_runs: usize,
    /// Result of
    /// [`estimated_pending_compaction_bytes`](crate::pick::estimated_pending_compaction_bytes).
    pub pending_compaction_bytes: u64,
}

impl Backlog {
    /// Returns the backlog of a family with this version and number of unflushed memtables. Takes
    /// time linear in the number of levels.
    pub fn new(version: &Version, options: &CompactionOptions, unflushed_memtables: usize) -> Backlog {
        Backlog {
            unflushed_memtables,
            sorted_runs: sorted_runs(version, options),
            pending_compaction_bytes: crate::pick::estimated_pending_compaction_bytes(version, options),
        }
    }
}

/// Returns the number of files of L0, and under universal compaction also of the other non-empty
/// levels.
pub fn sorted_runs(version: &Version, options: &CompactionOptions) -> usize {
    let mut levels = version.levels().iter();
    let files = levels.next().map_or(0, |level| level.len());
    match options.family.compaction_style {
        CompactionStyle::Universal => files + levels.filter(|level| !level.is_empty()).count(),
        _ => files,
    }
}

/// Returns `count >= limit`; a negative limit is never reached.
fn reaches(count: usize, limit: i32) -> bool {
    usize::try_from(limit).is_ok_and(|limit| count >= limit)
}

/// Returns the effect of the backlog on writers.
pub fn write_stall(backlog: &Backlog, options: &CompactionOptions) -> WriteStall {
    let family = &options.family;
    let compacts = !family.disable_auto_compactions;
    let memtables = backlog.unflushed_memtables;
    let pending = backlog.pending_compaction_bytes;
    let (soft, hard) =
        (family.soft_pending_compaction_bytes_limit, family.hard_pending_compaction_bytes_limit);
    let most = family.max_write_buffer_number;
    let last_but_one = most > 3
        && reaches(memtables, most - 1)
        && reaches(memtables.saturating_sub(1), family.min_write_buffer_number_to_merge);
    if reaches(memtables, most) {
        WriteStall::Stopped(StallCause::MemtableLimit)
    } else if compacts && reaches(backlog.sorted_runs, family.level0_stop_writes_trigger) {
        WriteStall::Stopped(StallCause::L0FileCountLimit)
    } else if compacts && hard > 0 && pending >= hard {
        WriteStall::Stopped(StallCause::PendingCompactionBytes)
    } else if last_but_one {
        WriteStall::Delayed(StallCause::MemtableLimit)
    } else if compacts && reaches(backlog.sorted_runs, family.level0_slowdown_writes_trigger) {
        WriteStall::Delayed(StallCause::L0FileCountLimit)
    } else if compacts && soft > 0 && pending >= soft {
        WriteStall::Delayed(StallCause::PendingCompactionBytes)
    } else {
        WriteStall::Normal
    }
}

/// Returns true if delayed writers are close to a stop: within two files of it, or in the last
/// quarter between the byte limits.
pub fn is_near_stop(stall: WriteStall, backlog: &Backlog, options: &CompactionOptions) -> bool {
    let family = &options.family;
    match stall {
        WriteStall::Delayed(StallCause::L0FileCountLimit) => {
            reaches(backlog.sorted_runs.saturating_add(2), family.level0_stop_writes_trigger)
        }
        WriteStall::Delayed(StallCause::PendingCompactionBytes) => {
            let (soft, hard) =
                (family.soft_pending_compaction_bytes_limit, family.hard_pending_compaction_bytes_limit);
            let above = backlog.pending_compaction_bytes.saturating_sub(soft);
            hard > 0 && u128::from(above) * 4 > u128::from(hard.saturating_sub(soft)) * 3
        }
        _ => false,
    }
}

/// Returns true if the unflushed memtables have reached a third of the limit at which writers stop.
///
/// A third, because the next memtable fills while the flush still runs, and writers are delayed one
/// memtable before the limit.
pub fn flush_is_pressing(backlog: &Backlog, options: &CompactionOptions) -> bool {
    reaches(backlog.unflushed_memtables.saturating_mul(3), options.family.max_write_buffer_number)
}

/// Returns true if the backlog has reached half of a limit at which writers are delayed because
/// compaction lags.
pub fn compaction_is_pressing(backlog: &Backlog, options: &CompactionOptions) -> bool {
    let family = &options.family;
    let soft = family.soft_pending_compaction_bytes_limit;
    !family.disable_auto_compactions
        && (reaches(backlog.sorted_runs.saturating_mul(2), family.level0_slowdown_writes_trigger)
            || (soft > 0 && backlog.pending_compaction_bytes >= soft / 2))
}

/// Returns true if compactions should use all of their parallelism although writers are not delayed
/// yet: L0 is a quarter of the way from its compaction trigger to the slowdown, or the bytes due
/// are many compared with the data on the bottommost level.
pub fn needs_speed_up(context: PickContext<'_>, backlog: &Backlog) -> bool {
    let options = context.options;
    let family = &options.family;
    if reaches(backlog.sorted_runs, speed_up_runs(options)) || family.soft_pending_compaction_bytes_limit == 0
    {
        return true;
    }
    backlog.pending_compaction_bytes >= speed_up_bytes(context) || marked_files(context.version) >= 2
}

/// Returns the number of sorted runs that calls for a speed-up; negative if L0 never does.
fn speed_up_runs(options: &CompactionOptions) -> i32 {
    let trigger = options.family.level0_file_num_compaction_trigger;
    if trigger < 0 {
        return -1;
    }
    let quarter = trigger + (options.family.level0_slowdown_writes_trigger - trigger) / 4;
    trigger.saturating_mul(2).min(quarter)
}

fn speed_up_bytes(context: PickContext<'_>) -> u64 {
    let family = &context.options.family;
    let toward_slowdown = family.soft_pending_compaction_bytes_limit / 4;
    let bottom = bottommost_bytes(context);
    if bottom == 0 {
        return toward_slowdown;
    }
    // At least this much, so that a small family does not claim all of the database's compactions.
    let least = family.max_bytes_for_level_base.saturating_mul(2);
    (bottom / 8).max(least).min(toward_slowdown)
}

/// Returns the bytes of the deepest level.
///
/// Compat: RocksDB adds files of other levels with nothing below them, which a settled tree hardly
/// has.
fn bottommost_bytes(context: PickContext<'_>) -> u64 {
    let deepest = context.version.levels().iter().rev().find(|level| !level.is_empty());
    deepest.map_or(0, |level| level.size_bytes())
}

fn marked_files(version: &Version) -> usize {
    let deepest = version.levels().iter().rposition(|level| !level.is_empty()).unwrap_or(0);
    let above = version.all_files().filter(|(level, _)| level.index() < deepest.max(1));
    above.filter(|(_, file)| file.is_marked()).take(2).count()
}

/// The rate of delayed writers, in bytes per second; one for each database.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DelayedWriteRate {
    most: u64,
    rate: u64,
}

/// Inputs for an update of the rate, taken when a column family's backlog is recomputed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateSignal {
    /// True if a family of the database was stopped until now.
    pub was_stopped: bool,
    /// True if a family of the database was delayed until now.
    pub was_delayed: bool,
    /// True if the family is delayed and near a stop.
    pub near_stop: bool,
    /// Bytes that were due in the family at the previous update; 0 the first time.
    pub pending_before: u64,
    /// Bytes that are due now.
    pub pending: u64,
}

impl DelayedWriteRate {
    /// Smallest rate in bytes per second, below which slowing down has no further benefit.
    const LEAST: u64 = 16 << 10;
    /// Rate for `delayed_write_rate=0` without a rate limiter to take the rate from.
    pub const DEFAULT: u64 = 16 << 20;

    /// Starts at `most` (`delayed_write_rate`), which the rate never exceeds.
    pub fn new(most: u64) -> DelayedWriteRate {
        let most = most.max(1);
        DelayedWriteRate { most, rate: most }
    }

    /// Returns the current rate.
    pub fn bytes_per_sec(&self) -> u64 {
        self.rate
    }

    /// Changes `delayed_write_rate`; the rate starts there again.
    pub fn set_most(&mut self, most: u64) {
        *self = DelayedWriteRate::new(most);
    }

    /// Updates the rate for a family that is delayed.
    pub fn delayed(&mut self, signal: RateSignal, options: &CompactionOptions) {
        if options.family.disable_auto_compactions {
            // Without automatic compactions the debt can only grow, so it is ignored.
            self.rate = self.most;
        } else if signal.was_delayed && self.most > DelayedWriteRate::LEAST {
            self.rate = self.adapted(signal);
        }
    }

    fn adapted(&self, signal: RateSignal) -> u64 {
        // The rate falls faster than it rises, because a stop costs writers more than a slow
        // second.
        const NEAR_STOP: f64 = 0.6;
        const DOWN: f64 = 0.8;
        let times = |factor: f64| (self.rate as f64 * factor) as u64;
        if signal.was_stopped || signal.near_stop {
            return times(NEAR_STOP).max(DelayedWriteRate::LEAST);
        }
        // An unchanged debt lowers the rate too, because the delay is then caused by memtables,
        // which have no other signal.
        if signal.pending_before > 0 && signal.pending_before <= signal.pending {
            return times(DOWN).max(DelayedWriteRate::LEAST);
        }
        if signal.pending_before > signal.pending {
            return times(1.0 / DOWN).min(self.most);
        }
        self.rate
    }

    /// Raises the rate for a family that is no longer delayed while the database was, so that the
    /// rate does not only fall from delay to delay.
    pub fn recovered(&mut self) {
        const REWARD: f64 = 1.4;
        self.rate = ((self.rate as f64 * REWARD) as u64).min(self.most);
    }
}

#[cfg(test)]
mod tests;
