//! A family's state as a condition for writers: looked at whenever its memtables or its tree have changed.

use super::Background;
use crate::column_family::Family;
use crate::options::ColumnFamilyOptions;
use crate::pacing::{Condition, Held};
use std::sync::Arc;

/// What the rule looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Backlog {
    sealed_memtables: usize,
    l0_files: usize,
    pending_bytes: u64,
}

/// Compat: RocksDB's rule and its order: what stops comes before what slows down, memtables before L0 before pending bytes.
fn condition(backlog: Backlog, options: &ColumnFamilyOptions, auto_compaction: bool) -> Condition {
    let Backlog { sealed_memtables: sealed, l0_files, pending_bytes } = backlog;
    let at_least = |limit: i32, n: usize| usize::try_from(limit).is_ok_and(|limit| n >= limit);
    let most = options.max_write_buffer_number;
    let hard = options.hard_pending_compaction_bytes_limit;
    let soft = options.soft_pending_compaction_bytes_limit;
    if at_least(most, sealed) {
        return Condition::Stopped(Held::Memtables);
    }
    if auto_compaction && at_least(options.level0_stop_writes_trigger, l0_files) {
        return Condition::Stopped(Held::L0Files);
    }
    if auto_compaction && hard > 0 && pending_bytes >= hard {
        return Condition::Stopped(Held::PendingCompactionBytes);
    }
    let merged = options.min_write_buffer_number_to_merge;
    if most > 3 && at_least(most - 1, sealed) && at_least(merged, sealed.saturating_sub(1)) {
        return Condition::Delayed(Held::Memtables);
    }
    if auto_compaction && at_least(options.level0_slowdown_writes_trigger, l0_files) {
        return Condition::Delayed(Held::L0Files);
    }
    if auto_compaction && soft > 0 && pending_bytes >= soft {
        return Condition::Delayed(Held::PendingCompactionBytes);
    }
    Condition::Normal
}

/// Whether compaction should use all it may, though writers are not held up yet.
///
/// Compat: RocksDB's: when L0 is at twice its trigger, or a quarter of the way to where writers are slowed down; or at a quarter of the soft limit.
fn speed_up(backlog: Backlog, options: &ColumnFamilyOptions) -> bool {
    let trigger = i64::from(options.level0_file_num_compaction_trigger);
    let slowdown = i64::from(options.level0_slowdown_writes_trigger);
    let soft = options.soft_pending_compaction_bytes_limit;
    let l0 = if trigger < 0 { i64::MAX } else { (2 * trigger).min(trigger + (slowdown - trigger) / 4) };
    backlog.l0_files as i64 >= l0.max(1) || (soft > 0 && backlog.pending_bytes >= soft / 4)
}

impl Background {
    fn backlog(&self, family: &Family) -> Backlog {
        let view = family.superversion();
        Backlog {
            sealed_memtables: view.immutable().len(),
            l0_files: view.version().levels().first().map_or(0, |level| level.files().len()),
            pending_bytes: 0,
        }
    }

    /// Looks at what the family's state means for writers.
    pub(crate) fn look_at(&self, family: &Arc<Family>) {
        if family.is_dropped() {
            return self.parts.stalls.forget(family.id());
        }
        let backlog = self.backlog(family);
        let options = &family.config.options;
        let now = condition(backlog, options, !options.disable_auto_compactions);
        let (before, _) = self.parts.stalls.family(family.id());
        self.parts.stalls.set(family.id(), now, speed_up(backlog, options));
        if before != now {
            self.parts.flush.events.stall_changed(&family.config.name, &now.to_string());
        }
    }

    /// Whether one more memtable, and its table, would hold writers up.
    pub(super) fn flush_would_stall(&self, family: &Family) -> bool {
        let now = self.backlog(family);
        let then = Backlog { sealed_memtables: now.sealed_memtables + 1, l0_files: now.l0_files + 1, ..now };
        let options = &family.config.options;
        condition(then, options, !options.disable_auto_compactions) != Condition::Normal
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_come_before_delays() {
        let mut options = ColumnFamilyOptions::default();
        options.max_write_buffer_number = 5;
        options.level0_slowdown_writes_trigger = 20;
        options.level0_stop_writes_trigger = 36;
        options.soft_pending_compaction_bytes_limit = 100;
        options.hard_pending_compaction_bytes_limit = 200;
        let rule = |sealed_memtables, l0_files, pending_bytes| {
            condition(Backlog { sealed_memtables, l0_files, pending_bytes }, &options, true)
        };
        assert_eq!(rule(3, 19, 99), Condition::Normal);
        assert_eq!(rule(4, 0, 0), Condition::Delayed(Held::Memtables));
        assert_eq!(rule(5, 36, 200), Condition::Stopped(Held::Memtables));
        assert_eq!(rule(4, 20, 0), Condition::Delayed(Held::Memtables));
        assert_eq!(rule(0, 20, 100), Condition::Delayed(Held::L0Files));
        assert_eq!(rule(4, 36, 0), Condition::Stopped(Held::L0Files));
        assert_eq!(rule(0, 0, 100), Condition::Delayed(Held::PendingCompactionBytes));
        assert_eq!(rule(0, 0, 200), Condition::Stopped(Held::PendingCompactionBytes));
        let without =
            condition(Backlog { sealed_memtables: 0, l0_files: 99, pending_bytes: 999 }, &options, false);
        assert_eq!(without, Condition::Normal);
    }
}
