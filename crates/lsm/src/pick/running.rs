//! The running compactions, registered so that no two of them take the same file or write to the
//! same range.
//!
//! In: each [`Compaction`] when it starts and when it ends. Out: the files in use, the use of L0,
//! and the ranges of keys that are being written to on a level.
//!
//! Invariant: a file is an input of at most one registered compaction. The value has no lock; its
//! owner (one for each column family) guards it, and holds the guard from a pick until the pick is
//! registered.

use super::compaction::{Compaction, CompactionReason};
use crate::file::FileMetadata;
use karst_format::comparator::Comparator;
use karst_format::ids::{FileNumber, Level};
use karst_format::options::choice::CompactionStyle;
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashSet};

/// Id of a running compaction of one column family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunningId(u64);

/// The compactions of one column family that were picked and have been neither installed nor
/// abandoned.
#[derive(Debug, Default)]
pub struct Running {
    next_id: u64,
    compactions: BTreeMap<RunningId, Outline>,
    files: HashSet<FileNumber>,
}

/// The properties of a running compaction that other picks depend on.
#[derive(Debug)]
struct Outline {
    files: Vec<FileNumber>,
    output_level: Level,
    smallest_user_key: Box<[u8]>,
    largest_user_key: Box<[u8]>,
    holds_l0: bool,
    reason: CompactionReason,
    input_bytes: u64,
}

impl Running {
    /// Returns a value without compactions.
    pub fn new() -> Running {
        Running::default()
    }

    /// Registers a compaction that was picked from this very state.
    ///
    /// # Panics
    /// When one of its files is already in use: the state has changed since the pick, which is a
    /// bug of the caller.
    pub fn register(&mut self, compaction: &Compaction) -> RunningId {
        let files: Vec<FileNumber> = compaction.input_files().map(|(_, file)| file.number).collect();
        for file in &files {
            assert!(self.files.insert(*file), "table file {file} is being compacted already");
        }
        let id = RunningId(self.next_id);
        self.next_id += 1;
        // Compat: as in RocksDB, universal compactions exclude each other on L0, from any start
        // level.
        let holds_l0 = compaction.start_level().0 == 0 || compaction.style == CompactionStyle::Universal;
        let outline = Outline {
            files,
            output_level: compaction.output_level,
            smallest_user_key: compaction.smallest_user_key.clone(),
            largest_user_key: compaction.largest_user_key.clone(),
            holds_l0,
            reason: compaction.reason,
            input_bytes: compaction.input_bytes(),
        };
        self.compactions.insert(id, outline);
        id
    }

    /// Keeps compactions from writing to `level` within the range of user keys, both ends
    /// inclusive, for a file that is about to be ingested there.
    pub fn reserve(&mut self, level: Level, smallest: &[u8], largest: &[u8]) -> RunningId {
        let id = RunningId(self.next_id);
        self.next_id += 1;
        let outline = Outline {
            files: Vec::new(),
            output_level: level,
            smallest_user_key: smallest.into(),
            largest_user_key: largest.into(),
            holds_l0: false,
            reason: CompactionReason::ExternalSstIngestion,
            input_bytes: 0,
        };
        self.compactions.insert(id, outline);
        id
    }

    /// Removes a compaction that was installed or abandoned.
    ///
    /// # Panics
    /// When it is not registered, which is a bug of the caller.
    pub fn release(&mut self, id: RunningId) {
        let outline = self.compactions.remove(&id).expect("a compaction is released once");
        for file in &outline.files {
            self.files.remove(file);
        }
    }

    /// Returns the number of running compactions.
    pub fn len(&self) -> usize {
        self.compactions.len()
    }

    /// Returns true if no compaction runs.
    pub fn is_empty(&self) -> bool {
        self.compactions.is_empty()
    }

    /// Returns the number of files that are being compacted.
    pub fn file_count(&self) -> usize {
        self.files.len()
    }

    /// Returns the bytes of all files that are being compacted.
    pub fn input_bytes(&self) -> u64 {
        self.compactions.values().fold(0, |sum, outline| sum.saturating_add(outline.input_bytes))
    }

    /// Returns true if a manual compaction runs.
    pub fn has_manual(&self) -> bool {
        self.compactions.values().any(|outline| outline.reason == CompactionReason::ManualCompaction)
    }

    /// Returns true if the file is being compacted.
    #[inline]
    pub fn holds(&self, file: &FileMetadata) -> bool {
        self.files.contains(&file.number)
    }

    /// Returns true if one of the files is being compacted.
    pub fn holds_any<'f>(&self, files: impl IntoIterator<Item = &'f std::sync::Arc<FileMetadata>>) -> bool {
        !self.files.is_empty() && files.into_iter().any(|file| self.holds(file))
    }

    /// Returns true if a compaction that takes files of L0 runs; only one may, except for
    /// compactions within L0.
    pub fn holds_l0(&self) -> bool {
        self.compactions.values().any(|outline| outline.holds_l0)
    }

    /// Returns true if a running compaction may write to `level` within the range of user keys,
    /// both ends inclusive.
    pub fn writes_to(&self, comparator: &Comparator, level: Level, smallest: &[u8], largest: &[u8]) -> bool {
        self.compactions.values().any(|outline| {
            outline.output_level == level
                && comparator.compare_user(smallest, &outline.largest_user_key) != Ordering::Greater
                && comparator.compare_user(largest, &outline.smallest_user_key) != Ordering::Less
        })
    }
}
