//! Expansion of inputs: adds the files of the output level that belong to a compaction, and more of
//! the start level at no extra cost.
//!
//! In: a picker's files of the start level. Out: both levels' files as clean cuts, or `None` if one
//! of them is an input of a running compaction.

use super::tree::{Selection, Span, Tree};

/// Direction in which the start level may be extended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grow {
    /// To both sides.
    Both,
    /// Towards larger keys only, because round robin moves in one direction.
    Right,
}

/// Inputs of a compaction between two levels.
#[derive(Clone, Debug)]
pub(crate) struct TwoLevels {
    pub(crate) start: Selection,
    /// Empty if no file of the output level overlaps.
    pub(crate) output: Selection,
}

/// Returns `start` and every file of L0 that must be compacted with it, because it overlaps it or
/// another such file. `None` if the files they overlap on the output level are being compacted.
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

/// Adds the files of the output level, and grows the start level as long as that adds no further
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

/// Returns more files of the start level whose compaction needs no more of the output level: that
/// saves a later compaction, and each rewritten byte of the output level serves more of them.
fn grown(tree: &Tree<'_>, start: &Selection, output: &Selection, grow: Grow) -> Option<Selection> {
    let both = tree.span_of(&[start, output]);
    // Twice, because the compaction saves another one, so it may be larger than others, but not
    // without bound.
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
    // Not all overlapping files, but those that lie within the span.
    let within = tree.clean_within(start.level, span);
    let covers = start.indexes.iter().all(|index| within.indexes.contains(index));
    (covers && fits(&within)).then_some(within)
}
