//! Compactions within L0: merge several of its newest files into one, which takes their place.
//!
//! In: a [`Tree`]. Out: files of L0 from the newest on, or none.
//!
//! They serve an L0 that has to wait for the base level, or is far smaller than it, so that
//! compacting L0 there would rewrite much more than it moves: fewer files make reads cheaper and
//! keep writes from being stopped.
//!
//! Invariant: the files are adjacent in age, so that the output is neither older nor newer than a
//! file that stays.

use super::tree::{Selection, Tree};

/// Minimum number of files that are worth merging while L0 waits.
const FEWEST: usize = 4;

/// Returns the newest free files, as many as still reduce the bytes rewritten per file removed.
/// Used if running compactions keep L0 from being compacted downwards.
pub(crate) fn beside_others(tree: &Tree<'_>) -> Option<Selection> {
    let trigger = usize::try_from(tree.options().family.level0_file_num_compaction_trigger).ok()?;
    if tree.files(0).len() < trigger.saturating_add(2) {
        return None;
    }
    by_cost(tree, FEWEST, u64::MAX)
}

/// Returns the longest sequence from the newest file on for which the bytes rewritten per file
/// removed still fall. `most` bounds those bytes.
pub(crate) fn by_cost(tree: &Tree<'_>, fewest: usize, most: u64) -> Option<Selection> {
    let files = tree.files(0);
    let max_compaction_bytes = tree.options().family.max_compaction_bytes;
    let newest = files.first().filter(|file| !tree.taken(file))?;
    let mut bytes = newest.size_bytes;
    let mut cost = u64::MAX;
    let mut count = 1;
    for file in &files[1..] {
        bytes = bytes.saturating_add(file.size_bytes);
        // `count` files are taken so far, so adding this one removes `count` files.
        let next_cost = bytes / count as u64;
        if tree.taken(file) || next_cost > cost || bytes > max_compaction_bytes {
            break;
        }
        cost = next_cost;
        count += 1;
    }
    (count >= fewest && cost < most).then(|| Selection::of(0, 0..count))
}

/// Returns the newest free files, if L0 is so small compared with the base level that a compaction
/// into it would mostly rewrite the base level.
pub(crate) fn too_small_for_base(tree: &Tree<'_>) -> Option<Selection> {
    let base = tree.targets.base_level.filter(|base| *base > 0)?;
    let family = &tree.options().family;
    let trigger = usize::try_from(family.level0_file_num_compaction_trigger).unwrap_or(0);
    let fewest = trigger.max(2);
    let files = tree.files(0);
    if files.len() < fewest {
        return None;
    }
    let l0_bytes = tree.compensated_level_bytes(0, false);
    let factor = family.max_bytes_for_level_multiplier.max(10.0) * 2.0;
    if tree.level_bytes(base) <= super::options::scaled(l0_bytes, factor) {
        return None;
    }
    let free = files.iter().take_while(|file| !tree.taken(file)).count();
    (free >= fewest).then(|| Selection::of(0, 0..free))
}
