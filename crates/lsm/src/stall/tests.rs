//! The stall rules as RocksDB documents them, by cases; and the rate over time.

use super::*;
use crate::pick::tests::TestTree;

const GIB: u64 = 1 << 30;

fn backlog(unflushed_memtables: usize, sorted_runs: usize, pending: u64) -> Backlog {
    Backlog { unflushed_memtables, sorted_runs, pending_compaction_bytes: pending }
}

fn stall(options: &str, backlog: Backlog) -> WriteStall {
    write_stall(&backlog, &TestTree::new(options).options)
}

/// The defaults: 2 memtables, 20 and 36 files of L0, 64 and 256 GiB.
#[test]
fn the_first_condition_that_holds_counts() {
    use StallCause::*;
    use WriteStall::*;
    for (memtables, runs, pending, expected) in [
        (0, 0, 0, Normal),
        (1, 19, 64 * GIB - 1, Normal),
        (2, 0, 0, Stopped(MemtableLimit)),
        (2, 40, 300 * GIB, Stopped(MemtableLimit)),
        (0, 36, 0, Stopped(L0FileCountLimit)),
        (0, 36, 300 * GIB, Stopped(L0FileCountLimit)),
        (0, 20, 256 * GIB, Stopped(PendingCompactionBytes)),
        (0, 20, 64 * GIB, Delayed(L0FileCountLimit)),
        (0, 35, 0, Delayed(L0FileCountLimit)),
        (0, 19, 64 * GIB, Delayed(PendingCompactionBytes)),
    ] {
        assert_eq!(stall("", backlog(memtables, runs, pending)), expected, "{memtables} {runs} {pending}");
    }
}

#[test]
fn memtables_delay_only_where_there_are_many() {
    use WriteStall::*;
    let memtables = StallCause::MemtableLimit;
    assert_eq!(stall("max_write_buffer_number=3", backlog(2, 0, 0)), Normal);
    assert_eq!(stall("max_write_buffer_number=4", backlog(2, 0, 0)), Normal);
    assert_eq!(stall("max_write_buffer_number=4", backlog(3, 0, 0)), Delayed(memtables));
    assert_eq!(stall("max_write_buffer_number=4", backlog(4, 0, 0)), Stopped(memtables));
    // Memtables that are to be merged in a flush do not delay writers.
    let together = "max_write_buffer_number=4;min_write_buffer_number_to_merge=3";
    assert_eq!(stall(together, backlog(3, 0, 0)), Normal);
    // A delay comes after every stop.
    assert_eq!(stall("max_write_buffer_number=4", backlog(3, 36, 0)), Stopped(StallCause::L0FileCountLimit));
}

#[test]
fn limits_can_be_off() {
    let off = "soft_pending_compaction_bytes_limit=0;hard_pending_compaction_bytes_limit=0";
    assert_eq!(stall(off, backlog(0, 0, u64::MAX)), WriteStall::Normal);
    assert_eq!(stall("disable_auto_compactions=true", backlog(0, 100, u64::MAX)), WriteStall::Normal);
    let memtables = WriteStall::Stopped(StallCause::MemtableLimit);
    assert_eq!(stall("disable_auto_compactions=true", backlog(2, 0, 0)), memtables);
    assert_eq!(stall("compaction_style=kCompactionStyleFIFO", backlog(0, 1000, 0)), WriteStall::Normal);
    // Without a soft limit the hard limit applies.
    let hard = "soft_pending_compaction_bytes_limit=0;hard_pending_compaction_bytes_limit=10";
    assert_eq!(stall(hard, backlog(0, 0, 9)), WriteStall::Normal);
    assert_eq!(stall(hard, backlog(0, 0, 10)), WriteStall::Stopped(StallCause::PendingCompactionBytes));
}

#[test]
fn near_a_stop() {
    let options =
        TestTree::new("soft_pending_compaction_bytes_limit=100;hard_pending_compaction_bytes_limit=200")
            .options;
    let near = |backlog: Backlog| is_near_stop(write_stall(&backlog, &options), &backlog, &options);
    assert!(!near(backlog(0, 33, 0)));
    assert!(near(backlog(0, 34, 0)));
    assert!(!near(backlog(0, 0, 175)));
    assert!(near(backlog(0, 0, 176)));
    assert!(!near(backlog(0, 0, 0)));
}

#[test]
fn compaction_is_sped_up_before_writers_feel_it() {
    let mut tree = TestTree::new("max_bytes_for_level_base=1M");
    tree.file(6, "a", "z", 80 << 20);
    let of = |tree: &TestTree, runs, pending| {
        tree.with(|context| needs_speed_up(context, &backlog(0, runs, pending)))
    };
    // From 4 files, the compaction trigger, a quarter of the way to 20 is equal to twice 4.
    assert!(!of(&tree, 7, 0));
    assert!(of(&tree, 8, 0));
    // An eighth of the bytes on the bottommost level.
    assert!(!of(&tree, 0, (10 << 20) - 1));
    assert!(of(&tree, 0, 10 << 20));
    tree.file(0, "a", "z", 1).marked_for_compaction = true;
    assert!(!of(&tree, 0, 0));
    tree.file(0, "a", "z", 1).marked_for_compaction = true;
    assert!(of(&tree, 0, 0));
    // A small family does not claim all of the database's compactions for a small debt.
    let mut small = TestTree::new("max_bytes_for_level_base=1M");
    small.file(6, "a", "z", 1 << 20);
    assert!(!of(&small, 0, (2 << 20) - 1));
    assert!(of(&small, 0, 2 << 20));
}

#[test]
fn what_presses_is_well_before_writers_are_held_up() {
    let of = |options: &str, memtables, runs, pending| {
        let (backlog, options) = (backlog(memtables, runs, pending), TestTree::new(options).options);
        (flush_is_pressing(&backlog, &options), compaction_is_pressing(&backlog, &options))
    };
    assert_eq!(of("", 0, 9, 32 * GIB - 1), (false, false));
    assert_eq!(of("", 1, 10, 0), (true, true), "one of two memtables, half of 20 files");
    assert_eq!(of("", 0, 0, 32 * GIB), (false, true));
    assert_eq!(of("max_write_buffer_number=5", 1, 0, 0), (false, false));
    assert_eq!(of("max_write_buffer_number=5", 2, 0, 0), (true, false));
    // A backlog that no compaction reduces is not pressing.
    assert_eq!(of("disable_auto_compactions=true", 0, 100, 300 * GIB), (false, false));
    let off = "soft_pending_compaction_bytes_limit=0;hard_pending_compaction_bytes_limit=0";
    assert_eq!(of(off, 0, 9, u64::MAX), (false, false));
}

#[test]
fn universal_counts_levels_as_runs() {
    let mut tree = TestTree::new("compaction_style=kCompactionStyleUniversal");
    tree.file(6, "a", "z", 1);
    tree.file(5, "a", "z", 1);
    tree.file(0, "a", "z", 1);
    assert_eq!(sorted_runs(&tree.version(), &tree.options), 3);
    tree.options.family.compaction_style = CompactionStyle::Level;
    assert_eq!(sorted_runs(&tree.version(), &tree.options), 1);
}

fn signal(pending_before: u64, pending: u64) -> RateSignal {
    RateSignal { was_delayed: true, pending_before, pending, ..RateSignal::default() }
}

#[test]
fn the_rate_follows_the_debt() {
    let options = TestTree::new("").options;
    let mut rate = DelayedWriteRate::new(16_000_000);
    rate.delayed(RateSignal { was_delayed: false, ..signal(1, 9) }, &options);
    assert_eq!(rate.bytes_per_sec(), 16_000_000, "a delay begins at the rate as it is");
    rate.delayed(signal(100, 200), &options);
    assert_eq!(rate.bytes_per_sec(), 12_800_000, "more debt");
    rate.delayed(signal(200, 200), &options);
    assert_eq!(rate.bytes_per_sec(), 10_240_000, "no less");
    rate.delayed(signal(200, 150), &options);
    assert_eq!(rate.bytes_per_sec(), 12_800_000, "less debt");
    rate.delayed(RateSignal { near_stop: true, ..signal(150, 100) }, &options);
    assert_eq!(rate.bytes_per_sec(), 7_680_000, "near the stop the debt does not matter");
    rate.delayed(RateSignal { was_stopped: true, ..signal(150, 100) }, &options);
    assert_eq!(rate.bytes_per_sec(), 4_608_000);
    rate.recovered();
    assert_eq!(rate.bytes_per_sec(), 6_451_200);
    for _ in 0..9 {
        rate.recovered();
    }
    assert_eq!(rate.bytes_per_sec(), 16_000_000, "never above the option");
}

#[test]
fn the_rate_has_bounds() {
    let options = TestTree::new("").options;
    let mut rate = DelayedWriteRate::new(1 << 20);
    for _ in 0..100 {
        rate.delayed(RateSignal { near_stop: true, ..signal(1, 1) }, &options);
    }
    assert_eq!(rate.bytes_per_sec(), 16 << 10);
    // A smaller configured rate is used unchanged.
    let mut slow = DelayedWriteRate::new(5_000);
    slow.delayed(signal(100, 200), &options);
    assert_eq!(slow.bytes_per_sec(), 5_000);
    // With compactions off, the debt can only grow.
    let manual = TestTree::new("disable_auto_compactions=true").options;
    rate.delayed(signal(100, 200), &manual);
    assert_eq!(rate.bytes_per_sec(), 1 << 20);
}
