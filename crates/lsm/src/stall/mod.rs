//! When writers are slowed down or stopped so that flushes and compactions keep up, and how fast
//! they may go then.
//!
//! In: how many memtables wait, how many sorted runs there are to look into, how many bytes are due
//! for compaction, and the family's options. Out: [`WriteStall`], whether compaction needs help
//! already ([`needs_speed_up`]), and the rate for delayed writers ([`DelayedWriteRate`]).
//!
//! The rules are RocksDB's: the first condition that holds counts, stops before delays; and the
//! rate follows the debt: down while it grows, up while it shrinks, down faster near a stop.
//!
//! Callers: the engine, whenever a column family's memtables, files or options have changed.

use crate::pick::{CompactionOptions, PickContext};
use crate::version::Version;
use karst_format::options::choice::CompactionStyle;

/// What holds writers up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StallCause {
    /// Memtables that wait to be flushed.
    MemtableLimit,
    /// Files of L0; under universal compaction, sorted runs.
    L0FileCountLimit,
    /// Bytes that wait to be compacted.
    PendingCompactionBytes,
}

/// What a column family's state means for writers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WriteStall {
    /// Nothing.
    #[default]
    Normal,
    /// They are slowed down.
    Delayed(StallCause),
    /// They wait.
    Stopped(StallCause),
}

/// How far behind a column family is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Sealed memtables that are not flushed yet.
    pub unflushed_memtables: usize,
    /// Sorted runs that count towards `level0_*_trigger`: see [`sorted_runs`].
    pub sorted_runs: usize,
    /// See [`estimated_pending_compaction_bytes`](crate::pick::estimated_pending_compaction_bytes).
    pub pending_compaction_bytes: u64,
}

impl Backlog {
    /// The backlog of a family with this version and so many unflushed memtables. Linear in the
    /// number of levels.
    pub fn new(version: &Version, options: &CompactionOptions, unflushed_memtables: usize) -> Backlog {
        Backlog {
            unflushed_memtables,
            sorted_runs: sorted_runs(version, options),
            pending_compaction_bytes: crate::pick::estimated_pending_compaction_bytes(version, options),
        }
    }
}

/// Files of L0, and under universal compaction the other levels that have files too.
pub fn sorted_runs(version: &Version, options: &CompactionOptions) -> usize {
    let mut levels = version.levels().iter();
    let files = levels.next().map_or(0, |level| level.len());
    match options.family.compaction_style {
        CompactionStyle::Universal => files + levels.filter(|level| !level.is_empty()).count(),
        _ => files,
    }
}

/// `count >= limit`, where a negative limit is never reached.
fn reaches(count: usize, limit: i32) -> bool {
    usize::try_from(limit).is_ok_and(|limit| count >= limit)
}

/// What the backlog means for writers.
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

/// Whether delayed writers will soon be stopped: two files before, or in the last quarter between
/// the byte limits.
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

/// Whether a third of what lies before writers are stopped for want of a flush is used up.
///
/// Why no later: what is sealed next takes as long to fill as the flush has left, and one memtable
/// before the last writers are slowed down.
pub fn flush_is_pressing(backlog: &Backlog, options: &CompactionOptions) -> bool {
    reaches(backlog.unflushed_memtables.saturating_mul(3), options.family.max_write_buffer_number)
}

/// Whether half of what lies before writers are slowed down for want of a compaction is used up.
pub fn compaction_is_pressing(backlog: &Backlog, options: &CompactionOptions) -> bool {
    let family = &options.family;
    let soft = family.soft_pending_compaction_bytes_limit;
    !family.disable_auto_compactions
        && (reaches(backlog.sorted_runs.saturating_mul(2), family.level0_slowdown_writes_trigger)
            || (soft > 0 && backlog.pending_compaction_bytes >= soft / 2))
}

/// Whether compactions should run in parallel as far as they may, though writers are not held up
/// yet: L0 is a quarter of the way from its compaction to the slowdown, or what is due is much
/// beside the data that rests at the bottom.
pub fn needs_speed_up(context: PickContext<'_>, backlog: &Backlog) -> bool {
    let options = context.options;
    let family = &options.family;
    if reaches(backlog.sorted_runs, speed_up_runs(options)) || family.soft_pending_compaction_bytes_limit == 0
    {
        return true;
    }
    backlog.pending_compaction_bytes >= speed_up_bytes(context) || marked_files(context.version) >= 2
}

/// Negative if L0 never is a reason.
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
    // Why the minimum: a small family is not to claim all of the database's compactions.
    let least = family.max_bytes_for_level_base.saturating_mul(2);
    (bottom / 8).max(least).min(toward_slowdown)
}

/// Bytes of the deepest level.
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

/// The rate at which delayed writers go on, in bytes per second; one for a database.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DelayedWriteRate {
    most: u64,
    rate: u64,
}

/// What is known when a column family's backlog is looked at again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateSignal {
    /// Some family of the database was stopped until now.
    pub was_stopped: bool,
    /// Some family of the database was delayed until now.
    pub was_delayed: bool,
    /// The family is delayed, and near a stop.
    pub near_stop: bool,
    /// Bytes that were due in the family when it was looked at before; 0 the first time.
    pub pending_before: u64,
    /// Bytes that are due now.
    pub pending: u64,
}

impl DelayedWriteRate {
    /// Slower than this helps nobody.
    const LEAST: u64 = 16 << 10;
    /// What `delayed_write_rate=0` stands for, if there is no rate limiter whose rate it takes.
    pub const DEFAULT: u64 = 16 << 20;

    /// Begins at `most` (`delayed_write_rate`), which it never exceeds.
    pub fn new(most: u64) -> DelayedWriteRate {
        let most = most.max(1);
        DelayedWriteRate { most, rate: most }
    }

    /// The rate now.
    pub fn bytes_per_sec(&self) -> u64 {
        self.rate
    }

    /// Changes `delayed_write_rate`; the rate begins there again.
    pub fn set_most(&mut self, most: u64) {
        *self = DelayedWriteRate::new(most);
    }

    /// A family was looked at and is delayed: what the rate should be from now on.
    pub fn delayed(&mut self, signal: RateSignal, options: &CompactionOptions) {
        if options.family.disable_auto_compactions {
            // The debt says nothing then.
            self.rate = self.most;
        } else if signal.was_delayed && self.most > DelayedWriteRate::LEAST {
            self.rate = self.adapted(signal);
        }
    }

    fn adapted(&self, signal: RateSignal) -> u64 {
        // Why down faster than up: a stop costs writers more than a slow second.
        const NEAR_STOP: f64 = 0.6;
        const DOWN: f64 = 0.8;
        let times = |factor: f64| (self.rate as f64 * factor) as u64;
        if signal.was_stopped || signal.near_stop {
            return times(NEAR_STOP).max(DelayedWriteRate::LEAST);
        }
        // Why also down while it stays the same: then it is memtables that fill up, and nothing
        // else says so.
        if signal.pending_before > 0 && signal.pending_before <= signal.pending {
            return times(DOWN).max(DelayedWriteRate::LEAST);
        }
        if signal.pending_before > signal.pending {
            return times(1.0 / DOWN).min(self.most);
        }
        self.rate
    }

    /// A family was looked at and is not delayed any more, though the database was: a reward, so
    /// that the rate does not only fall from delay to delay.
    pub fn recovered(&mut self) {
        const REWARD: f64 = 1.4;
        self.rate = ((self.rate as f64 * REWARD) as u64).min(self.most);
    }
}

#[cfg(test)]
mod tests;
