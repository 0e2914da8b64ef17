//! Compactions within L0: several of its newest files become one, which is put in their place.
//!
//! In: a [`Tree`]. Out: files of L0 from the newest on, or none.
//!
//! Why: when L0 has to wait for the base level, or is so much smaller that compacting it there
//! would rewrite far more than it moves, fewer files still make reads cheaper and keep writes from
//! being stopped.
//!
//! Invariant: the files follow each other, with none left out, so that the output is neither older
//! nor newer than a file that stays.

use super::tree::{Selection, Tree};

/// Fewest files that are worth it while L0 waits.
const FEWEST: usize = 4;

/// The newest files that nothing has taken, as many as make the work for each file that goes away
/// less. For when L0 cannot be compacted downwards because of what runs.
pub(crate) fn beside_others(tree: &Tree<'_>) -> Option<Selection> {
    let trigger = usize::try_from(tree.options().family.level0_file_num_compaction_trigger).ok()?;
    if tree.files(0).len() < trigger.saturating_add(2) {
        return None;
    }
    by_cost(tree, FEWEST, u64::MAX)
}

/// The longest run from the newest file on for which the bytes rewritten for each file that goes
/// away still fall. `most` bounds those bytes.
pub(crate) fn by_cost(tree: &Tree<'_>, fewest: usize, most: u64) -> Option<Selection> {
    let files = tree.files(0);
    let max_compaction_bytes = tree.options().family.max_compaction_bytes;
    let newest = files.first().filter(|file| !tree.taken(file))?;
    let mut bytes = newest.size_bytes;
    let mut cost = u64::MAX;
    let mut count = 1;
    for file in &files[1..] {
        bytes = bytes.saturating_add(file.size_bytes);
        // `count` files are in so far, so with this one as many go away.
        let next_cost = bytes / count as u64;
        if tree.taken(file) || next_cost > cost || bytes > max_compaction_bytes {
            break;
        }
        cost = next_cost;
        count += 1;
    }
    (count >= fewest && cost < most).then(|| Selection::of(0, 0..count))
}

/// The newest files that nothing has taken, if the base level is so much larger than L0 that a
/// compaction into it would mostly rewrite the base level.
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
