//! Which level a file goes to that is ingested.
//!
//! In: a version, what runs, and the boundaries of a file whose entries are newer than all that the
//! tree has. Out: the deepest level that has nothing of the file's range, on it or above it, and
//! that no running compaction writes to in that range.
//!
//! Invariant: between the answer and the change that adds the file, the caller keeps compactions
//! from writing there ([`Running::reserve`](super::Running::reserve)).

use super::PickContext;
use super::tree::{Span, Tree};
use karst_format::ids::Level;

/// Where an ingested file goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IngestPlace {
    /// The level.
    pub level: Level,
    /// There is something in the file's range, or a compaction is about to write there: the file
    /// must have a sequence number that makes it the newest.
    pub overlaps: bool,
}

/// Where a file with these boundaries (internal keys) goes. With `above` it is newer than another
/// one that goes to that level together with it, and must lie above.
///
/// Compat: as RocksDB, but that only files' boundaries are compared, and not the keys between them.
/// Only leveled compaction has files below L0 that are newer than what is above, so elsewhere L0 is
/// the only place.
pub fn place_ingested(
    context: PickContext<'_>,
    (smallest, largest): (&[u8], &[u8]),
    above: Option<Level>,
) -> IngestPlace {
    let tree = Tree::new(context);
    let span = Span { smallest: Some(smallest), largest: Some(largest) };
    let is_free = |level: usize| {
        let files = if level == 0 { tree.overlapping_l0(span) } else { tree.overlapping(level, span) };
        files.is_empty() && !tree.written_to(level, span)
    };
    let Some(base) = tree.targets.base_level else {
        return IngestPlace { level: Level(0), overlaps: !(0..tree.level_count).all(is_free) };
    };
    let mut place = IngestPlace { level: Level(0), overlaps: false };
    // Why none between L0 and the base level: nothing but what is drained lies there, and the
    // levels would have to be drained again.
    for level in (0..tree.level_count).filter(|level| *level == 0 || *level >= base) {
        if !is_free(level) {
            return IngestPlace { overlaps: true, ..place };
        }
        let may_go = level <= tree.last_output_level() && above.is_none_or(|above| level < above.index());
        if may_go {
            place.level = Level(level as u8);
        }
    }
    place
}

/// The last level, if a file that is older than all that the tree has may go there: it is kept free
/// for that, has nothing of the file's range yet, and nothing is being written there. A compaction
/// that began before the level was kept free may still write to it.
pub fn place_behind(context: PickContext<'_>, (smallest, largest): (&[u8], &[u8])) -> Option<Level> {
    let tree = Tree::new(context);
    let span = Span { smallest: Some(smallest), largest: Some(largest) };
    let last = tree.level_count - 1;
    let is_kept_free = tree.last_output_level() < last;
    let is_free = tree.overlapping(last, span).is_empty() && !tree.written_to(last, span);
    (is_kept_free && is_free).then_some(Level(last as u8))
}
