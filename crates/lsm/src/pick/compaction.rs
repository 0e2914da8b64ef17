//! The result of a pick: the inputs, the output level, and all settings that the compaction job
//! needs.
//!
//! In: pickers construct a [`Compaction`]. Out: the engine registers it in
//! [`Running`](super::Running), executes it, and installs the result.
//!
//! Invariants:
//! - `inputs` is not empty, its levels ascend, and each has at least one file, in the level's
//!   order.
//! - On every level but L0 the inputs are a clean cut: no file outside of them holds entries of a
//!   user key that one of them holds too (a user key at which a file only ends a range tombstone
//!   does not count).
//! - No input was part of a running compaction when this one was picked.

use crate::file::FileMetadata;
use crate::version::Version;
use karst_format::ids::{FileNumber, Level};
use karst_format::options::choice::{CompactionStyle, Compression};
use karst_format::options::nested::CompressionOptions;
use karst_format::version_edit::Temperature;
use std::cmp::Ordering;
use std::sync::Arc;

/// Reason for which a compaction was picked. The names and numbers are RocksDB's, which its
/// listeners and LOG show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CompactionReason {
    /// Leveled: L0 has too many files, or too many bytes.
    LevelL0FilesNum = 1,
    /// Leveled: a level is larger than its target.
    LevelMaxLevelSize = 2,
    /// Universal: newer runs take too much space compared with the oldest.
    UniversalSizeAmplification = 3,
    /// Universal: neighbouring runs are of similar size.
    UniversalSizeRatio = 4,
    /// Universal: there are too many runs.
    UniversalSortedRunNum = 5,
    /// FIFO: the tables exceed their size limit.
    FifoMaxSize = 6,
    /// FIFO: there are many small files.
    FifoReduceNumFiles = 7,
    /// FIFO: files are older than the time to live.
    FifoTtl = 8,
    /// Requested by the user.
    ManualCompaction = 9,
    /// A file was marked for compaction.
    FilesMarkedForCompaction = 10,
    /// Bottommost files hold entries that only released snapshots needed.
    BottommostFiles = 11,
    /// Leveled: files are older than the time to live.
    Ttl = 12,
    /// No compaction: the range is reserved for a file that is being ingested.
    ExternalSstIngestion = 14,
    /// Files have not been rewritten for longer than `periodic_compaction_seconds`.
    PeriodicCompaction = 15,
    /// The oldest blob files are mostly garbage.
    ForcedBlobGc = 17,
    /// Leveled with round-robin priority: files are older than the time to live.
    RoundRobinTtl = 18,
    /// Files move to another level without a rewrite, because `change_level` requested it.
    RefitLevel = 19,
}

impl CompactionReason {
    /// Returns RocksDB's number of the reason, as its listeners have it.
    pub fn number(self) -> u32 {
        self as u32
    }

    /// Returns RocksDB's name of the reason, as in its LOG.
    pub fn name(self) -> &'static str {
        match self {
            CompactionReason::LevelL0FilesNum => "LevelL0FilesNum",
            CompactionReason::LevelMaxLevelSize => "LevelMaxLevelSize",
            CompactionReason::UniversalSizeAmplification => "UniversalSizeAmplification",
            CompactionReason::UniversalSizeRatio => "UniversalSizeRatio",
            CompactionReason::UniversalSortedRunNum => "UniversalSortedRunNum",
            CompactionReason::FifoMaxSize => "FIFOMaxSize",
            CompactionReason::FifoReduceNumFiles => "FIFOReduceNumFiles",
            CompactionReason::FifoTtl => "FIFOTtl",
            CompactionReason::ManualCompaction => "ManualCompaction",
            CompactionReason::FilesMarkedForCompaction => "FilesMarkedForCompaction",
            CompactionReason::BottommostFiles => "BottommostFiles",
            CompactionReason::Ttl => "Ttl",
            CompactionReason::ExternalSstIngestion => "ExternalSstIngestion",
            CompactionReason::PeriodicCompaction => "PeriodicCompaction",
            CompactionReason::ForcedBlobGc => "ForcedBlobGC",
            CompactionReason::RoundRobinTtl => "RoundRobinTtl",
            CompactionReason::RefitLevel => "RefitLevel",
        }
    }
}

/// Work done with the inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompactionWork {
    /// Their entries are merged and written to new files on the output level.
    Merge,
    /// The files move to the output level unchanged: an edit, no I/O.
    Move,
    /// The files are deleted: an edit, no I/O.
    Delete,
}

/// The input files of one level.
#[derive(Clone, Debug)]
pub struct CompactionInput {
    /// Level of the files.
    pub level: Level,
    /// The files in the level's order: newest first on L0, by key elsewhere.
    pub files: Vec<Arc<FileMetadata>>,
}

impl CompactionInput {
    /// Returns the size of all files together, in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.files.iter().fold(0, |sum, file| sum.saturating_add(file.size_bytes))
    }
}

/// A compaction that is ready to run. Constructed only by the pickers.
#[derive(Clone, Debug)]
pub struct Compaction {
    /// The version from which it was picked; it keeps the inputs alive.
    pub version: Arc<Version>,
    /// The input files, by level from the newest.
    pub inputs: Vec<CompactionInput>,
    /// The level that outputs are added to.
    pub output_level: Level,
    /// Index of the path that outputs are written to.
    pub output_path_id: u8,
    /// Work done with the inputs.
    pub work: CompactionWork,
    /// Reason of the pick.
    pub reason: CompactionReason,
    /// Score of the start level; -1 if the pick was not caused by a score.
    pub score: f64,
    /// Size in bytes at which output files are cut if a good boundary is near.
    pub target_file_size: u64,
    /// Size in bytes at which an output file ends in any case (but never within a user key): the
    /// target, or twice the target if files of the next level may offer better boundaries.
    pub max_output_file_size: u64,
    /// True if the size at which files are cut includes index and filters
    /// (`target_file_size_is_upper_bound`).
    pub size_includes_tail: bool,
    /// Maximum bytes that a later compaction of one output file should take, including its overlap
    /// with the next level.
    pub max_compaction_bytes: u64,
    /// Maximum number of subcompactions at a time; 1 if the compaction must not be split.
    pub max_subcompactions: u32,
    /// Files that the range overlaps on the first overlapped level below the output level, by key:
    /// outputs are best cut at their boundaries.
    pub grandparents: Vec<Arc<FileMetadata>>,
    /// True if no data older than the outputs can hold a key of the range: deletions have nothing
    /// left to delete, and sequence numbers may become 0.
    pub bottommost: bool,
    /// True if every table file of the version is an input.
    pub full: bool,
    /// The smallest user key of the inputs.
    pub smallest_user_key: Box<[u8]>,
    /// The largest user key of the inputs, inclusive.
    pub largest_user_key: Box<[u8]>,
    /// Compression of the outputs.
    pub compression: Compression,
    /// Options of the compression library.
    pub compression_options: CompressionOptions,
    /// Temperature of the outputs.
    pub output_temperature: Temperature,
    /// Blobs in files below this number are moved to new blob files; 0 moves none, the largest
    /// number all.
    pub blob_garbage_collection_cutoff: FileNumber,
    /// Round robin: internal key before which outputs are cut, because the output level's own
    /// cursor is there.
    pub output_split_key: Option<Box<[u8]>>,
    /// Round robin: the start level and the internal key of its new cursor, for the edit that
    /// installs the result.
    pub next_cursor: Option<(Level, Box<[u8]>)>,
    /// Input files of the output level that are near their time to live; outputs are cut at their
    /// boundaries.
    pub ttl_cuts: Vec<Arc<FileMetadata>>,
    /// The family's compaction style.
    pub style: CompactionStyle,
}

impl Compaction {
    /// Returns the newest level among the inputs.
    pub fn start_level(&self) -> Level {
        self.inputs.first().map_or(self.output_level, |input| input.level)
    }

    /// Returns all input files with their levels.
    pub fn input_files(&self) -> impl Iterator<Item = (Level, &Arc<FileMetadata>)> {
        self.inputs.iter().flat_map(|input| input.files.iter().map(move |file| (input.level, file)))
    }

    /// Returns the size of all inputs together, in bytes.
    pub fn input_bytes(&self) -> u64 {
        self.inputs.iter().fold(0, |sum, input| sum.saturating_add(input.size_bytes()))
    }

    /// Returns true if the user requested the compaction.
    pub fn is_manual(&self) -> bool {
        self.reason == CompactionReason::ManualCompaction
    }

    /// Returns the epoch number of the outputs: the smallest of the inputs'.
    ///
    /// The smallest, because data newer than any input must stay newer than the output, also if the
    /// output is added to L0.
    pub fn output_epoch(&self) -> u64 {
        self.input_files().map(|(_, file)| file.epoch_number).min().unwrap_or(0)
    }

    /// Returns a search for keys that files below the output level may hold.
    pub fn older_data(&self) -> OlderData<'_> {
        OlderData { compaction: self, positions: vec![0; self.version.levels().len()] }
    }
}

/// Search for older data below a compaction's output level, for ascending keys.
#[derive(Clone, Debug)]
pub struct OlderData<'c> {
    compaction: &'c Compaction,
    /// By level: the first file that does not end before the last key searched.
    positions: Vec<usize>,
}

impl OlderData<'_> {
    /// Returns true if data older than the compaction's may hold `user_key`. If not, a deletion of
    /// the key may be dropped once no snapshot needs it. Keys must not descend from call to call.
    /// Does not allocate.
    ///
    /// On L0, and under compaction styles other than leveled, returns true unless the compaction is
    /// bottommost, because files of the output level itself may be older there.
    pub fn may_hold(&mut self, user_key: &[u8]) -> bool {
        self.may_overlap(user_key, user_key)
    }

    /// Returns true if data older than the compaction's may hold a user key from `begin` to `end`,
    /// both inclusive. Ranges must not begin before an earlier call's.
    pub fn may_overlap(&mut self, begin: &[u8], end: &[u8]) -> bool {
        let compaction = self.compaction;
        if compaction.bottommost {
            return false;
        }
        if compaction.output_level.0 == 0 || compaction.style != CompactionStyle::Level {
            return true;
        }
        let comparator = compaction.version.comparator();
        let first = compaction.output_level.index() + 1;
        let levels = compaction.version.levels().iter().zip(&mut self.positions).skip(first);
        for (level, position) in levels {
            let ends_before = |file: &Arc<FileMetadata>| {
                comparator.compare_user(file.largest_user_key(), begin) == Ordering::Less
            };
            while level.files().get(*position).is_some_and(ends_before) {
                *position += 1;
            }
            let starts_within = |file: &Arc<FileMetadata>| {
                comparator.compare_user(file.smallest_user_key(), end) != Ordering::Greater
            };
            if level.files().get(*position).is_some_and(starts_within) {
                return true;
            }
        }
        false
    }
}
