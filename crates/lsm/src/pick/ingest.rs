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
use crate::file::FileMetadata;
use karst_format::ids::{FileNumber, Level};
use karst_format::key::{SeqNo, user_key};

/// Where an ingested file goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IngestPlace {
    /// The level.
    pub level: Level,
    /// There is something in the file's range, or a compaction is about to write there: the file
    /// must have a sequence number that makes it the newest.
    pub overlaps: bool,
}

/// Why a file cannot be ingested behind all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotBehind {
    /// The last level is not kept free.
    NoLevel,
    /// The last level has something in the file's range, or a compaction is about to write there.
    Occupied,
    /// This file lies above, in the file's range, and has entries of number 0.
    Unnumbered(FileNumber),
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

/// The last level, if a file that is older than all that the tree has may go there: the level is
/// kept free for that and has nothing of the file's range yet, and no entry above it in that range
/// has the sequence number 0, which the file's own entries have.
///
/// A scan would show both of two entries of a key with one number, or the older one.
///
/// Compat: RocksDB refuses if any file above has an entry of number 0, in any range.
///
/// # Errors
/// The file cannot go there, for the reason given.
pub fn place_behind(
    context: PickContext<'_>,
    (smallest, largest): (&[u8], &[u8]),
) -> Result<Level, NotBehind> {
    let tree = Tree::new(context);
    let span = Span { smallest: Some(smallest), largest: Some(largest) };
    let Some(last) = tree.reserved_level() else { return Err(NotBehind::NoLevel) };
    if !tree.overlapping(last, span).is_empty() || tree.written_to(last, span) {
        return Err(NotBehind::Occupied);
    }
    let (comparator, range) = (tree.comparator(), [smallest, largest].map(user_key));
    let meets = |file: &FileMetadata| {
        comparator.compare_user(file.smallest_user_key(), range[1]).is_le()
            && comparator.compare_user(range[0], file.largest_user_key()).is_le()
    };
    let above = (0..last).flat_map(|level| tree.files(level));
    if let Some(file) = above.into_iter().find(|file| file.smallest_seq == SeqNo::ZERO && meets(file)) {
        return Err(NotBehind::Unnumbered(file.number));
    }
    Ok(Level(last as u8))
}
