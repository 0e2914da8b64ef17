//! Compaction priority: the order in which the files of a level are compacted (`compaction_pri`).
//!
//! In: a [`Tree`] and a level. Out: the indexes of the level's files, in the order of compaction.

use super::tree::Tree;
use crate::file::FileMetadata;
use karst_format::ids::Level;
use karst_format::options::choice::CompactionPriority;
use std::cmp::{Ordering, Reverse};
use std::sync::Arc;

/// Returns the indexes of `level`'s files in the order in which they should be compacted.
pub(crate) fn order(tree: &Tree<'_>, level: usize) -> Vec<usize> {
    let files = tree.files(level);
    let mut order: Vec<usize> = (0..files.len()).collect();
    match tree.options().family.compaction_pri {
        CompactionPriority::ByCompensatedSize => {
            order.sort_by_key(|&index| Reverse(tree.compensated_bytes(&files[index])));
        }
        CompactionPriority::OldestLargestSeqFirst => order.sort_by_key(|&index| files[index].largest_seq),
        CompactionPriority::OldestSmallestSeqFirst => order.sort_by_key(|&index| files[index].smallest_seq),
        CompactionPriority::MinOverlappingRatio => by_overlap(tree, level, &mut order),
        CompactionPriority::RoundRobin => by_turn(tree, level, &mut order),
    }
    order
}

/// Orders files by the bytes of the next level that they overlap per byte of their own, the fewest
/// first. Marked files precede all others, and files near their time to live count as cheaper, so
/// that they are compacted in time without a compaction of their own.
fn by_overlap(tree: &Tree<'_>, level: usize, order: &mut [usize]) {
    let files = tree.files(level);
    let boost = TtlBoost::new(tree, level);
    let overlaps = if level == 0 { overlaps_one_by_one(tree) } else { overlaps_in_one_pass(tree, level) };
    let cost: Vec<u64> = files
        .iter()
        .zip(overlaps)
        .map(|(file, overlap)| {
            let bytes = tree.compensated_bytes(file).max(1);
            let ratio = u128::from(overlap) * 1024 / u128::from(bytes);
            u64::try_from(ratio).unwrap_or(u64::MAX) / boost.of(file)
        })
        .collect();
    // Ties are broken by key, so that neighbours that move without a rewrite go together, and picks
    // are reproducible.
    order.sort_by(|&a, &b| {
        let marked = files[b].is_marked().cmp(&files[a].is_marked());
        let keys = || tree.comparator().compare_internal(&files[a].smallest, &files[b].smallest);
        marked.then(cost[a].cmp(&cost[b])).then_with(keys)
    });
}

/// Returns the next level that files of `level` are merged into.
fn next_level(tree: &Tree<'_>, level: usize) -> usize {
    if level == 0 { tree.targets.base_level.unwrap_or(1) } else { level + 1 }
}

fn overlaps_one_by_one(tree: &Tree<'_>) -> Vec<u64> {
    let next = next_level(tree, 0);
    tree.files(0).iter().map(|file| tree.overlapping_bytes(next, tree.span([file]))).collect()
}

/// Both levels are sorted, so one walk over both finds every overlap.
fn overlaps_in_one_pass(tree: &Tree<'_>, level: usize) -> Vec<u64> {
    let comparator = tree.comparator();
    let next = tree.files(next_level(tree, level));
    let mut at = 0;
    let overlap = |file: &Arc<FileMetadata>| {
        while next
            .get(at)
            .is_some_and(|other| comparator.compare_internal(&other.largest, &file.smallest).is_lt())
        {
            at += 1;
        }
        let mut bytes = 0u64;
        while let Some(other) = next.get(at) {
            if comparator.compare_internal(&other.smallest, &file.largest) != Ordering::Less {
                break;
            }
            bytes = bytes.saturating_add(other.size_bytes);
            // A file that extends beyond this one's end overlaps the next one too.
            if comparator.compare_internal(&other.largest, &file.largest).is_gt() {
                break;
            }
            at += 1;
        }
        bytes
    };
    tree.files(level).iter().map(overlap).collect()
}

/// Orders files from the cursor of the last turn on. If L0's files overlap, its oldest file is
/// first.
fn by_turn(tree: &Tree<'_>, level: usize, order: &mut [usize]) {
    let files = tree.files(level);
    if level == 0 && !tree.l0_disjoint() {
        order.sort_by_key(|&index| files[index].smallest_seq);
        return;
    }
    let Some(cursor) = tree.context.version.compact_cursors().get(&Level(level as u8)) else { return };
    let comparator = tree.comparator();
    let at = files.partition_point(|file| comparator.compare_internal(&file.smallest, cursor).is_lt());
    if at < order.len() {
        order.rotate_left(at);
    }
}

/// Factor by which a file counts as cheaper because of its age.
///
/// There is no boost before half of the time to live has passed. The deeper the level, the later
/// the boost begins: ranges halve from level to level, so that a file that is boosted on one level
/// is not boosted again at once on the next.
struct TtlBoost {
    now_s: u64,
    /// Age at which the boost begins, and seconds for each step; `None` for no boost.
    range: Option<(u64, u64)>,
}

impl TtlBoost {
    fn new(tree: &Tree<'_>, level: usize) -> TtlBoost {
        const STEPS: u64 = 16;
        let ttl = tree.options().family.ttl;
        let deepest = tree.deepest.unwrap_or(0);
        let now_s = tree.context.now_s;
        if ttl == 0 || level == 0 || level >= deepest {
            return TtlBoost { now_s, range: None };
        }
        let begin = ttl / 2;
        let all = (ttl / 32 * 31).saturating_sub(begin);
        let range = all >> (deepest - level).min(63);
        TtlBoost { now_s, range: Some((begin.saturating_add(range), (range / STEPS).max(1))) }
    }

    fn of(&self, file: &FileMetadata) -> u64 {
        let Some((begin, step)) = self.range else { return 1 };
        // Compat: RocksDB treats a file of unknown age as one from 1970; here it is not boosted.
        if file.oldest_ancestor_time_s == 0 {
            return 1;
        }
        let age = self.now_s.saturating_sub(file.oldest_ancestor_time_s);
        if age <= begin { 1 } else { (age - begin) / step + 1 }
    }
}
