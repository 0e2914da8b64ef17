//! Placement of ingested files: the level that a file is added to.
//!
//! In: a version, the running compactions, and the boundaries of a file whose entries are newer
//! than all entries of the tree. Out: the deepest level that has no data in the file's range, on it
//! or above it, and to which no running compaction writes in that range.
//!
//! Invariant: until the edit that adds the file is installed, the caller keeps compactions from
//! writing there ([`Running::reserve`](super::Running::reserve)).

use super::PickContext;
use super::tree::{Span, Tree};
use crate::file::FileMetadata;
use karst_format::ids::{FileNumber, Level};
use karst_format::key::{SeqNo, user_key};

/// Placement of an ingested file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IngestPlace {
    /// The level.
    pub level: Level,
    /// True if the tree has data in the file's range, or a compaction is about to write there: the
    /// file then needs a sequence number that makes it the newest.
    pub overlaps: bool,
}

/// Reason for which a file cannot be ingested behind all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotBehind {
    /// The last level is not reserved for such files.
    NoLevel,
    /// The last level has data in the file's range, or a compaction is about to write there.
    Occupied,
    /// This file of an upper level overlaps the file's range and has entries with sequence
    /// number 0.
    Unnumbered(FileNumber),
}

/// Returns the placement of a file with these boundaries (internal keys). With `above` it is newer
/// than another file that is added to that level with it, and must be placed above that level.
///
/// Compat: as in RocksDB, except that only the boundaries of files are compared, and not the keys
/// between them. Only leveled compaction can have files below L0 that are newer than data above
/// them, so under the other styles L0 is the only place.
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
    // Levels between L0 and the base level are skipped, because they are being drained and would
    // have to be drained again.
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

/// Returns the last level, if a file that is older than all data of the tree may be added there:
/// the level is reserved for that and has no data in the file's range yet, and no entry above it in
/// that range has the sequence number 0, which the file's own entries have.
///
/// A scan would otherwise show both of two entries of a key with equal numbers, or the older one.
///
/// Compat: RocksDB rejects the file if any file above has an entry with number 0, in any range.
///
/// # Errors
/// The reason for which the file cannot be added there.
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
