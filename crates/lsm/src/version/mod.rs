//! One column family's tree at one moment, and the search for the files that may hold a key.
//!
//! In: levels and blob files from [`VersionBuilder`](crate::VersionBuilder). Out: for a user key
//! the candidate files from newest to oldest, level by level; for a range the files that overlap
//! it.
//!
//! Invariants:
//! - L0's files are ordered from newest to oldest: by epoch number, then by sequence numbers, then
//!   by file number.
//! - On every other level files are ordered by key and do not overlap (they may share a user key at
//!   their boundary).
//! - A version never changes. Readers share it in an `Arc`, and versions share levels that no edit
//!   has touched.
#[cfg(test)]
mod tests;

use crate::blob::BlobFileMetadata;
use crate::file::FileMetadata;
use crate::level::{LevelFiles, seek_trailer};
use karst_format::comparator::Comparator;
use karst_format::ids::{FileNumber, Level};
use karst_format::key::SeqNo;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A column family's tree. Immutable.
#[derive(Clone, Debug)]
pub struct Version {
    pub(crate) comparator: Comparator,
    pub(crate) levels: Vec<Arc<LevelFiles>>,
    pub(crate) blob_files: BTreeMap<FileNumber, Arc<BlobFileMetadata>>,
    pub(crate) compact_cursors: BTreeMap<Level, Box<[u8]>>,
}

/// Position in a key's search: a small value that a caller keeps between steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchPosition {
    level: u8,
    /// The next file to search; `UNSOUGHT` before the level was searched.
    file: u32,
}

const UNSOUGHT: u32 = u32::MAX;

impl SearchPosition {
    /// The position before the newest file.
    pub const START: SearchPosition = SearchPosition { level: 0, file: UNSOUGHT };

    /// Returns the position at the start of `level`.
    pub fn at_level(level: Level) -> SearchPosition {
        SearchPosition { level: level.0, file: UNSOUGHT }
    }

    /// Returns the level that is searched next.
    pub fn level(&self) -> Level {
        Level(self.level)
    }
}

impl Default for SearchPosition {
    fn default() -> SearchPosition {
        SearchPosition::START
    }
}

/// A file whose boundaries include the key that is searched.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'v> {
    /// The file's level.
    pub level: Level,
    /// The file's index in its level.
    pub index: usize,
    /// The file.
    pub file: &'v Arc<FileMetadata>,
}

impl Version {
    /// Returns a tree with `level_count` empty levels (at least one).
    pub fn empty(comparator: Comparator, level_count: usize) -> Version {
        let count = level_count.clamp(1, usize::from(u8::MAX) + 1);
        let levels = (0..count)
            .map(|level| Arc::new(LevelFiles::new(Level(level as u8), Vec::new(), &comparator)))
            .collect();
        Version { comparator, levels, blob_files: BTreeMap::new(), compact_cursors: BTreeMap::new() }
    }

    /// Returns the comparator that orders the tree.
    pub fn comparator(&self) -> &Comparator {
        &self.comparator
    }

    /// Returns all levels, empty ones included, L0 first. Never empty.
    #[inline]
    pub fn levels(&self) -> &[Arc<LevelFiles>] {
        &self.levels
    }

    /// Returns one level's files; an empty slice for a level that the tree does not have.
    pub fn files(&self, level: Level) -> &[Arc<FileMetadata>] {
        self.levels.get(level.index()).map_or(&[], |files| files.files())
    }

    /// Returns every table file with its level, in search order.
    pub fn all_files(&self) -> impl Iterator<Item = (Level, &Arc<FileMetadata>)> {
        self.levels.iter().flat_map(|level| level.files().iter().map(move |file| (level.level(), file)))
    }

    /// Returns the table file with this number and its level, if the tree has it. Takes time linear
    /// in the number of files.
    pub fn find_file(&self, number: FileNumber) -> Option<(Level, &Arc<FileMetadata>)> {
        self.all_files().find(|(_, file)| file.number == number)
    }

    /// Returns the number of table files.
    pub fn file_count(&self) -> usize {
        self.levels.iter().map(|level| level.len()).sum()
    }

    /// Returns the size of all table files together, in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.levels.iter().fold(0, |sum, level| sum.saturating_add(level.size_bytes()))
    }

    /// Returns the blob files, by number.
    pub fn blob_files(&self) -> &BTreeMap<FileNumber, Arc<BlobFileMetadata>> {
        &self.blob_files
    }

    /// Returns the positions at which round-robin compaction continues: internal keys by level.
    pub fn compact_cursors(&self) -> &BTreeMap<Level, Box<[u8]>> {
        &self.compact_cursors
    }

    /// Returns the next file, from newest to oldest, that may hold `user_key` at or before sequence
    /// number `seq`, and advances `position` past it. `None` when no file is left.
    ///
    /// Several files of one level are returned only on L0, or if neighbours share `user_key` as a
    /// boundary. Does not allocate. Every call with one position must pass the same key and
    /// sequence number.
    #[inline]
    pub fn next_candidate(
        &self,
        user_key: &[u8],
        seq: SeqNo,
        position: &mut SearchPosition,
    ) -> Option<Candidate<'_>> {
        while let Some(level) = self.levels.get(usize::from(position.level)) {
            let found = if level.overlapping_files() {
                let from = if position.file == UNSOUGHT { 0 } else { position.file as usize };
                let found =
                    (from..level.len()).find(|&index| level.contains(&self.comparator, index, user_key));
                found.map(|index| (index, true))
            } else {
                self.next_in_sorted(level, user_key, seq, position.file)
            };
            let goes_on = found.is_some_and(|(_, goes_on)| goes_on);
            let at = position.level;
            if let (Some((index, _)), true) = (found, goes_on) {
                position.file = index as u32 + 1;
            } else if let Some(next) = at.checked_add(1) {
                *position = SearchPosition { level: next, file: UNSOUGHT };
            } else {
                // Past the last file of the last possible level, where every search ends.
                position.file = level.len() as u32;
            }
            match found {
                Some((index, _)) => {
                    return Some(Candidate { level: Level(at), index, file: &level.files()[index] });
                }
                None if position.level == at => return None,
                None => {}
            }
        }
        None
    }

    /// Returns the next file of a level sorted by key, and true if the file behind it may hold the
    /// key too. `next` is the file behind one that ended with the key, if there was one.
    #[inline]
    fn next_in_sorted(
        &self,
        level: &LevelFiles,
        user_key: &[u8],
        seq: SeqNo,
        next: u32,
    ) -> Option<(usize, bool)> {
        if next == UNSOUGHT {
            return level.find(&self.comparator, user_key, seek_trailer(seq));
        }
        let index = next as usize;
        let file = level.files().get(index)?;
        if self.comparator.compare_user(user_key, file.smallest_user_key()) == Ordering::Less {
            return None;
        }
        let ends = self.comparator.compare_user(user_key, file.largest_user_key()) == Ordering::Equal;
        Some((index, ends))
    }

    /// Returns an iterator over the candidate files of a key; see
    /// [`next_candidate`](Self::next_candidate).
    pub fn candidates<'v>(&'v self, user_key: &'v [u8], seq: SeqNo) -> impl Iterator<Item = Candidate<'v>> {
        let mut position = SearchPosition::START;
        std::iter::from_fn(move || self.next_candidate(user_key, seq, &mut position))
    }
}
