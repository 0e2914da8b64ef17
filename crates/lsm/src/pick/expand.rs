//! The files of the output level that belong to a compaction, and more of the start level where it
//! costs nothing.
//!
//! In: what a picker chose on the start level. Out: both levels' files as clean cuts, or nothing if
//! a running compaction has taken one of them.

use super::tree::{Selection, Span, Tree};

/// How the start level may be extended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grow {
    /// To both sides.
    Both,
    /// Towards larger keys only: round robin goes one way.
    Right,
}

/// What a compaction between two levels takes.
#[derive(Clone, Debug)]
pub(crate) struct TwoLevels {
    pub(crate) start: Selection,
    /// Empty if nothing of the output level overlaps.
    pub(crate) output: Selection,
}

/// Every file of L0 that must go along with `start`, because it overlaps it or one that does.
/// `None` if what they overlap on the output level is being compacted.
pub(crate) fn with_overlapping_l0(
    tree: &Tree<'_>,
    start: &Selection,
    output_level: usize,
) -> Option<Selection> {
    let all = tree.overlapping_l0(tree.span_of(&[start]));
    if tree.any_taken(&all) {
        return None;
    }
    if output_level > 0 {
        let below = tree.overlapping(output_level, tree.span_of(&[&all]));
        if tree.any_taken(&below) {
            return None;
        }
    }
    Some(all)
}

/// Adds the files of the output level, and grows the start level as long as that takes no further
/// file of the output level.
pub(crate) fn with_output_level(
    tree: &Tree<'_>,
    start: Selection,
    output_level: usize,
    grow: Grow,
) -> Option<TwoLevels> {
    if start.level == output_level {
        return Some(TwoLevels { start, output: Selection::of(output_level, []) });
    }
    let output = tree.overlapping(output_level, tree.span_of(&[&start]));
    if output.is_empty() {
        return Some(TwoLevels { start, output });
    }
    let output = tree.free_clean_cut(&output)?;
    let start = grown(tree, &start, &output, grow).unwrap_or(start);
    Some(TwoLevels { start, output })
}

/// More files of the start level whose compaction needs no more of the output level: one compaction
/// less later on, and each byte of the output level is rewritten once for more of them.
fn grown(tree: &Tree<'_>, start: &Selection, output: &Selection, grow: Grow) -> Option<Selection> {
    let both = tree.span_of(&[start, output]);
    // Why twice: the compaction saves another one, so it may be larger than others, but not without
    // bound.
    let limit = tree.options().family.max_compaction_bytes.saturating_mul(2);
    let fits = |more: &Selection| {
        let bytes = tree.selected_bytes(output).saturating_add(tree.selected_bytes(more));
        more.len() > start.len() && !tree.any_taken(more) && bytes < limit
    };
    let span = match grow {
        Grow::Both => both,
        Grow::Right => Span { smallest: tree.span_of(&[start]).smallest, largest: both.largest },
    };
    let overlapping = if start.level == 0 {
        tree.overlapping_l0(span)
    } else {
        tree.clean_cut(&tree.overlapping(start.level, span))
    };
    if fits(&overlapping) {
        let below = tree.overlapping(output.level, tree.span_of(&[&overlapping]));
        let below = tree.free_clean_cut(&below);
        if below.is_some_and(|below| below.len() == output.len()) {
            return Some(overlapping);
        }
    }
    if start.level == 0 {
        return None;
    }
    // Not all that overlap, but those that lie within, to the same sides.
    let within = tree.clean_within(start.level, span);
    let covers = start.indexes.iter().all(|index| within.indexes.contains(index));
    (covers && fits(&within)).then_some(within)
}
