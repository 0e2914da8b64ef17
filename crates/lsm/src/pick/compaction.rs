//! What a picker decides: which files are compacted, where their data goes, and what the job has to
//! know on the way.
//!
//! In: a picker makes a [`Compaction`]. Out: the engine registers it in
//! [`Running`](super::Running), carries it out, and installs the result.
//!
//! Invariants:
//! - `inputs` is not empty, its levels ascend, and each has at least one file, in the level's
//!   order.
//! - On every level but L0 the inputs are a clean cut: no file outside of them holds entries of a
//!   user key that one of them holds too (a user key whose only overlap is the end of a range
//!   tombstone does not count).
//! - No input was part of a running compaction when this one was picked.

use crate::file::FileMetadata;
use crate::version::Version;
use karst_format::ids::{FileNumber, Level};
use karst_format::options::choice::{CompactionStyle, Compression};
use karst_format::options::nested::CompressionOptions;
use karst_format::version_edit::Temperature;
use std::cmp::Ordering;
use std::sync::Arc;

/// Why a compaction was picked. The names and numbers are RocksDB's, which its listeners and LOG
/// show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CompactionReason {
    /// Leveled: L0 has too many files, or too many bytes.
    LevelL0FilesNum = 1,
    /// Leveled: a level is larger than its target.
    LevelMaxLevelSize = 2,
    /// Universal: newer runs take too much space beside the oldest.
    UniversalSizeAmplification = 3,
    /// Universal: neighbouring runs are of similar size.
    UniversalSizeRatio = 4,
    /// Universal: there are too many runs.
    UniversalSortedRunNum = 5,
    /// FIFO: the tables take more space than they may.
    FifoMaxSize = 6,
    /// FIFO: there are many small files.
    FifoReduceNumFiles = 7,
    /// FIFO: files are older than the time to live.
    FifoTtl = 8,
    /// Somebody asked for it.
    ManualCompaction = 9,
    /// A file was marked for compaction.
    FilesMarkedForCompaction = 10,
    /// Bottommost files hold what only released snapshots needed.
    BottommostFiles = 11,
    /// Leveled: files are older than the time to live.
    Ttl = 12,
    /// No compaction: the place is kept for a file that is being ingested.
    ExternalSstIngestion = 14,
    /// Files have not been rewritten for longer than `periodic_compaction_seconds`.
    PeriodicCompaction = 15,
    /// The oldest blob files are mostly garbage.
    ForcedBlobGc = 17,
    /// Leveled with round-robin priority: files are older than the time to live.
    RoundRobinTtl = 18,
    /// Files move to another level as they are, because `change_level` asked for it.
    RefitLevel = 19,
}

impl CompactionReason {
    /// RocksDB's number for it, as its listeners have it.
    pub fn number(self) -> u32 {
        self as u32
    }

    /// RocksDB's name for it, as in its LOG.
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

/// What is done with the inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompactionWork {
    /// Their entries are merged and written to new files on the output level.
    Merge,
    /// The files move to the output level as they are: an edit, no I/O.
    Move,
    /// The files are deleted: an edit, no I/O.
    Delete,
}

/// The files of one level that a compaction takes.
#[derive(Clone, Debug)]
pub struct CompactionInput {
    /// Their level.
    pub level: Level,
    /// The files in the level's order: newest first on L0, by key elsewhere.
    pub files: Vec<Arc<FileMetadata>>,
}

impl CompactionInput {
    /// The files' sizes together, in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.files.iter().fold(0, |sum, file| sum.saturating_add(file.size_bytes))
    }
}

/// A compaction that is ready to run. Made by the pickers only.
#[derive(Clone, Debug)]
pub struct Compaction {
    /// The version it was picked from; it keeps the inputs alive.
    pub version: Arc<Version>,
    /// What is taken, by level from the newest.
    pub inputs: Vec<CompactionInput>,
    /// Where the output goes.
    pub output_level: Level,
    /// Index of the path that outputs are written to.
    pub output_path_id: u8,
    /// What is done.
    pub work: CompactionWork,
    /// Why.
    pub reason: CompactionReason,
    /// How urgent the start level was; -1 where no score led here.
    pub score: f64,
    /// Size in bytes that output files are cut at where a good place offers itself.
    pub target_file_size: u64,
    /// Size in bytes at which an output file ends in any case (but never within a user key): the
    /// target, or twice the target where files of the next level may offer better places to cut.
    pub max_output_file_size: u64,
    /// The size at which files are cut counts index and filters too
    /// (`target_file_size_is_upper_bound`).
    pub size_includes_tail: bool,
    /// Most bytes that a later compaction of one output file should take, its overlap with the next
    /// level included.
    pub max_compaction_bytes: u64,
    /// Most parts to run at a time; 1 if the compaction must not be cut.
    pub max_subcompactions: u32,
    /// Files of the first level below the output level that the range overlaps, by key: where
    /// outputs are best cut.
    pub grandparents: Vec<Arc<FileMetadata>>,
    /// Nothing older than the outputs can hold a key of the range: deletions have nothing left to
    /// delete, and sequence numbers may become 0.
    pub bottommost: bool,
    /// Every table file of the version is an input.
    pub full: bool,
    /// The smallest user key of the inputs.
    pub smallest_user_key: Box<[u8]>,
    /// The largest user key of the inputs, inclusive.
    pub largest_user_key: Box<[u8]>,
    /// How outputs are compressed.
    pub compression: Compression,
    /// How the compression library is used.
    pub compression_options: CompressionOptions,
    /// Where outputs are kept.
    pub output_temperature: Temperature,
    /// Blobs in files below this number are moved to new blob files; 0 for none, the largest number
    /// for all.
    pub blob_garbage_collection_cutoff: FileNumber,
    /// Round robin: outputs are cut before this internal key, where the output level's own turn
    /// goes on.
    pub output_split_key: Option<Box<[u8]>>,
    /// Round robin: the edit that installs the result says that the start level's turn goes on at
    /// this internal key.
    pub next_cursor: Option<(Level, Box<[u8]>)>,
    /// Input files of the output level that are near their time to live: outputs are cut at their
    /// boundaries.
    pub ttl_cuts: Vec<Arc<FileMetadata>>,
    /// The family's compaction style.
    pub style: CompactionStyle,
}

impl Compaction {
    /// The newest level among the inputs.
    pub fn start_level(&self) -> Level {
        self.inputs.first().map_or(self.output_level, |input| input.level)
    }

    /// All input files with their levels.
    pub fn input_files(&self) -> impl Iterator<Item = (Level, &Arc<FileMetadata>)> {
        self.inputs.iter().flat_map(|input| input.files.iter().map(move |file| (input.level, file)))
    }

    /// The sizes of all inputs, in bytes.
    pub fn input_bytes(&self) -> u64 {
        self.inputs.iter().fold(0, |sum, input| sum.saturating_add(input.size_bytes()))
    }

    /// Whether somebody asked for it.
    pub fn is_manual(&self) -> bool {
        self.reason == CompactionReason::ManualCompaction
    }

    /// The epoch number that outputs get: the smallest of the inputs'.
    ///
    /// Why: what is newer than any input stays newer than the output, also when the output lands on
    /// L0.
    pub fn output_epoch(&self) -> u64 {
        self.input_files().map(|(_, file)| file.epoch_number).min().unwrap_or(0)
    }

    /// A search for keys that files below the output level may hold.
    pub fn older_data(&self) -> OlderData<'_> {
        OlderData { compaction: self, positions: vec![0; self.version.levels().len()] }
    }
}

/// Answers whether a key may exist below a compaction's output level; for keys that ascend.
#[derive(Clone, Debug)]
pub struct OlderData<'c> {
    compaction: &'c Compaction,
    /// By level: the first file that does not end before the last key asked for.
    positions: Vec<usize>,
}

impl OlderData<'_> {
    /// Whether data older than the compaction's may hold `user_key`. No, and a deletion of the key
    /// may go once no snapshot needs it. Keys must not descend from call to call. Does not
    /// allocate.
    ///
    /// On L0, and under compaction styles other than leveled, the answer is yes unless the
    /// compaction is bottommost: files of the output level itself may be older there.
    pub fn may_hold(&mut self, user_key: &[u8]) -> bool {
        self.may_overlap(user_key, user_key)
    }

    /// The same for all user keys from `begin` to `end`, both inclusive. Ranges must not begin
    /// before an earlier call's.
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
