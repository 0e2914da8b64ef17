//! Level targets, scores and pending bytes, on trees of known shape.

use super::*;

const MIB: u64 = 1 << 20;

/// Returns a tree whose levels have these sizes in MiB, from L0 on; each level is one file.
fn tree(text: &str, sizes: &[u64]) -> TestTree {
    let mut tree = TestTree::new(text);
    for (level, size) in sizes.iter().enumerate().filter(|(_, size)| **size > 0) {
        tree.file(level as u8, "a", "z", size * MIB);
    }
    tree
}

fn targets(text: &str, sizes: &[u64]) -> LevelTargets {
    let tree = tree(text, sizes);
    LevelTargets::new(&tree.version(), &tree.options)
}

fn mib(targets: &LevelTargets) -> Vec<u64> {
    targets.max_bytes.iter().map(|bytes| bytes / MIB).collect()
}

const DYNAMIC: &str = "max_bytes_for_level_base=100M;num_levels=5";
const FIXED: &str = "max_bytes_for_level_base=100M;num_levels=5;level_compaction_dynamic_level_bytes=false";

#[test]
fn fixed_levels_grow_by_the_multiplier() {
    let found = targets(FIXED, &[]);
    assert_eq!((found.base_level, mib(&found)), (Some(1), vec![100, 100, 1000, 10_000, 100_000]));
    let more = format!(
        "{FIXED};max_bytes_for_level_multiplier=2;max_bytes_for_level_multiplier_additional=1:3:1:5:1"
    );
    assert_eq!(mib(&targets(&more, &[])), [100, 100, 600, 1200, 12_000]);
}

#[test]
fn an_empty_tree_takes_l0_to_the_last_level() {
    let found = targets(DYNAMIC, &[300]);
    assert_eq!((found.base_level, found.lowest_unnecessary), (Some(4), None));
    assert_eq!(found.max_bytes[3], u64::MAX);
}

/// The last level's size sets all targets: the base level is the first from below that fits
/// max_bytes_for_level_base.
#[test]
fn dynamic_levels_follow_the_last_one() {
    let found = targets(DYNAMIC, &[0, 0, 0, 0, 90]);
    assert_eq!(
        (found.base_level, found.of(4) / MIB),
        (Some(4), 100),
        "the last level is small enough to be the base"
    );
    let found = targets(DYNAMIC, &[0, 0, 0, 0, 500]);
    assert_eq!((found.base_level, found.of(3) / MIB, found.of(4) / MIB), (Some(3), 100, 500));
    // 30 GB at the bottom: 3000 and 300 above would leave 30, which fits.
    let found = targets(DYNAMIC, &[0, 0, 0, 0, 30_000]);
    assert_eq!(found.base_level, Some(1));
    assert_eq!(found.max_bytes[1..].iter().map(|b| b / MIB).collect::<Vec<_>>(), [100, 300, 3000, 30_000]);
    // Too large for L1 to stay within max_bytes_for_level_base; the targets are then the static
    // ones.
    let found = targets(DYNAMIC, &[0, 0, 0, 0, 300_000]);
    assert_eq!(
        found.max_bytes[1..].iter().map(|b| b / MIB).collect::<Vec<_>>(),
        [100, 1000, 10_000, 100_000]
    );
}

#[test]
fn levels_that_the_data_does_not_need_are_drained() {
    let tree = tree(DYNAMIC, &[0, 50, 0, 0, 200]);
    let found = LevelTargets::new(&tree.version(), &tree.options);
    // 200 needs only a level of 20 above it, but L1 has files.
    assert_eq!((found.base_level, found.lowest_unnecessary), (Some(1), Some(2)));
    let scores = tree.with(Scores::new);
    assert!(scores.of(1) > 10.0 && scores.of(1) < 10.1, "{scores:?}");
    assert_eq!(tree.picked(), "L1[1] -> L2 move");
}

#[test]
fn l0_counts_by_files_and_by_bytes() {
    let mut tree = TestTree::new(FIXED);
    for _ in 0..2 {
        tree.file(0, "a", "b", MIB);
    }
    assert_eq!(tree.with(Scores::new).of(0), 0.5);
    tree.file(0, "a", "b", 398 * MIB);
    assert_eq!(tree.with(Scores::new).of(0), 4.0, "400 MiB of 100");
    // Under dynamic levels L0 is compared with its target level, and scores from 1 on count ten
    // times.
    let dynamic = super::scores::tree(DYNAMIC, &[150, 0, 0, 0, 90]);
    assert_eq!(dynamic.with(Scores::new).of(0), 15.0);
    let dynamic = super::scores::tree(DYNAMIC, &[100, 0, 0, 0, 900]);
    assert!((dynamic.with(Scores::new).of(0) - 10.1).abs() < 1e-9, "large enough to be due, no more");
}

#[test]
fn what_comes_down_makes_a_level_wait() {
    // L3 is twice its target of 100; alone it scores 20, with 300 coming from L0 200 /
    // (100 + 300) * 10.
    let alone = tree(DYNAMIC, &[0, 0, 0, 200, 900]);
    assert_eq!(alone.with(Scores::new).by_urgency[0], (3, 20.0));
    let pressed = tree(DYNAMIC, &[300, 0, 0, 200, 900]);
    let scores = pressed.with(Scores::new);
    assert_eq!((scores.of(3), scores.by_urgency[0].0), (5.0, 0));
}

#[test]
fn what_is_being_compacted_does_not_count() {
    let mut tree = TestTree::new(&format!("{FIXED};max_compaction_bytes=1"));
    tree.file(1, "a", "b", 90 * MIB);
    tree.file(1, "c", "d", 60 * MIB);
    tree.file(2, "a", "b", MIB);
    tree.file(2, "c", "d", MIB);
    assert_eq!(tree.with(Scores::new).of(1), 1.5);
    let first = tree.run().unwrap();
    assert_eq!(shown(&first), "L1[1] L2[3] -> L2");
    assert_eq!(tree.with(Scores::new).of(1), 0.6);
    assert_eq!(tree.pick().map(|c| shown(&c)), None);
}

#[test]
fn pending_bytes_run_down_the_levels() {
    let pending = |text: &str, sizes: &[u64]| {
        let tree = tree(text, sizes);
        estimated_pending_compaction_bytes(&tree.version(), &tree.options) / MIB
    };
    assert_eq!(pending(FIXED, &[90, 90, 900]), 0, "all within their targets");
    // L1 is 100 too large; each of its bytes is merged with 1000 / 200 bytes of the next level, and
    // itself.
    assert_eq!(pending(FIXED, &[0, 200, 1000]), 100 * (5 + 1));
    // L0 is due with all of L1, and the excess of L1 moves on.
    assert_eq!(pending(FIXED, &[100, 100, 1000]), 100 + 100 + 100 * (5 + 1));
    assert_eq!(pending("compaction_style=kCompactionStyleUniversal", &[9000]), 0);
}

/// Deletions make a file count for more once they outnumber the entries that they can delete.
#[test]
fn deletions_weigh() {
    let mut tree = TestTree::new(FIXED);
    tree.file(1, "a", "b", 50 * MIB);
    tree.file(1, "c", "d", 30 * MIB);
    let version = tree.version();
    let files = version.files(Level(1));
    let counts = |entries, deletions| crate::FileCounts {
        entries,
        deletions,
        raw_value_bytes: 80 * MIB,
        raw_key_bytes: 0,
        ..Default::default()
    };
    files[0].learn_counts(counts(1000, 0));
    files[1].learn_counts(counts(1000, 900));
    let context = PickContext {
        version: &version,
        options: &tree.options,
        running: &tree.running,
        oldest_snapshot: tree.oldest_snapshot,
        now_s: tree.now_s,
    };
    let score = Scores::new(context).of(1);
    let average = 160 * MIB / 1100 * 80 * MIB / (160 * MIB);
    let expected = (80 * MIB + 800 * average * 2) as f64 / (100 * MIB) as f64;
    assert!((score - expected).abs() < 1e-9, "{score} {expected}");
}
