//! Structs that describe a job's files, its counts, and write stalls to listeners.

use karst_format::ids::Level;
use karst_format::version_edit::{BlobFileAddition, BlobFileGarbage, NewFile};
use karst_lsm::stall::WriteStall;
use std::path::PathBuf;

/// A blob file that a flush or a compaction has added.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlobFileAdditionInfo {
    /// Path of the file.
    pub path: PathBuf,
    /// The file's number.
    pub number: u64,
    /// Number of blobs in the file.
    pub total_blob_count: u64,
    /// Size of the blob records in bytes.
    pub total_blob_bytes: u64,
}

impl BlobFileAdditionInfo {
    /// Describes a blob file and its path.
    #[doc(hidden)]
    pub fn new(path: PathBuf, file: &BlobFileAddition) -> Self {
        let (total_blob_count, total_blob_bytes) = (file.total_count, file.total_bytes);
        Self { path, number: file.number.0, total_blob_count, total_blob_bytes }
    }
}

/// Blobs of one file that a compaction made garbage.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlobFileGarbageInfo {
    /// Path of the file.
    pub path: PathBuf,
    /// The file's number.
    pub number: u64,
    /// Number of blobs that became unreferenced by this compaction alone.
    pub garbage_blob_count: u64,
    /// Size of those blobs' records in bytes.
    pub garbage_blob_bytes: u64,
}

impl BlobFileGarbageInfo {
    /// Describes a file's path and its new garbage.
    #[doc(hidden)]
    pub fn new(path: PathBuf, garbage: &BlobFileGarbage) -> Self {
        let (garbage_blob_count, garbage_blob_bytes) = (garbage.count, garbage.bytes);
        Self { path, number: garbage.number.0, garbage_blob_count, garbage_blob_bytes }
    }
}

/// A table that a compaction reads or has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompactionFileInfo {
    /// The table's level.
    pub level: u32,
    /// The table's file number.
    pub number: u64,
    /// The oldest blob file that the table refers to.
    pub oldest_blob_file: Option<u64>,
}

impl CompactionFileInfo {
    /// Describes a table of `level`.
    #[doc(hidden)]
    pub fn new(level: Level, file: &NewFile) -> Self {
        let oldest_blob_file = file.oldest_blob_file.map(|number| number.0);
        Self { level: u32::from(level.0), number: file.number.0, oldest_blob_file }
    }
}

/// Counts of a compaction or subcompaction. Until it ends, only fields about known inputs are
/// nonzero. A subcompaction leaves the numbers and bytes of input files at 0 because subcompactions
/// share inputs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompactionStats {
    /// Elapsed time, in microseconds.
    pub micros: u64,
    /// Processor time, in microseconds.
    pub cpu_micros: u64,
    /// Entries read.
    pub input_entries: u64,
    /// Deletions among the entries read.
    pub input_deletions: u64,
    /// Size of the internal keys read, before compression, in bytes.
    pub input_key_bytes: u64,
    /// Size of the values read, before compression, in bytes.
    pub input_value_bytes: u64,
    /// Tables read, moved or removed.
    pub input_files: usize,
    /// Size of those tables in bytes.
    pub input_bytes: u64,
    /// Input tables that were on the output level.
    pub input_files_at_output_level: usize,
    /// Input tables that were moved unchanged.
    pub moved_files: usize,
    /// Values read from blob files.
    pub blobs_read: u64,
    /// Size of those values in bytes.
    pub blob_bytes_read: u64,
    /// Entries written.
    pub output_entries: u64,
    /// Tables written.
    pub output_files: usize,
    /// Size of the tables written, in bytes.
    pub output_bytes: u64,
    /// Blob files written.
    pub output_blob_files: usize,
    /// Size of the blob files written, in bytes.
    pub output_blob_bytes: u64,
    /// The first bytes, at most eight, of the smallest user key written.
    pub smallest_output_prefix: Vec<u8>,
    /// The first bytes, at most eight, of the largest user key written.
    pub largest_output_prefix: Vec<u8>,
    /// Entries dropped because a newer entry hides them.
    pub replaced: u64,
    /// Deletions dropped because nothing is left to delete.
    pub expired_deletions: u64,
    /// Single deletions dropped without meeting an entry.
    pub single_deletes_without_entry: u64,
    /// Single deletions that met an entry they must not delete.
    pub single_deletes_mismatched: u64,
    /// True if every table of the column family is read.
    pub is_full: bool,
    /// True if the user started the compaction.
    pub is_manual: bool,
}

impl CompactionStats {
    /// Maximum length of a stored key prefix, in bytes.
    const PREFIX: usize = 8;

    /// Stores the prefixes of the smallest and largest user key written.
    #[doc(hidden)]
    pub fn set_output_keys(&mut self, smallest: &[u8], largest: &[u8]) {
        let prefix = |key: &[u8]| key[..key.len().min(Self::PREFIX)].to_vec();
        (self.smallest_output_prefix, self.largest_output_prefix) = (prefix(smallest), prefix(largest));
    }
}

/// Write-stall state of a column family. RocksDB's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WriteStallCondition {
    /// Writers are slowed down.
    Delayed,
    /// Writers wait.
    Stopped,
    /// Writers are admitted at once.
    Normal,
}

impl WriteStallCondition {
    /// Returns the state without its cause.
    #[doc(hidden)]
    pub fn of(stall: WriteStall) -> Self {
        match stall {
            WriteStall::Normal => Self::Normal,
            WriteStall::Delayed(_) => Self::Delayed,
            WriteStall::Stopped(_) => Self::Stopped,
        }
    }
}

/// A change of a column family's write-stall state.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WriteStallInfo {
    /// The column family.
    pub column_family: String,
    /// The state before.
    pub before: WriteStallCondition,
    /// The state now.
    pub now: WriteStallCondition,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_long_keys_the_beginning_is_kept() {
        let mut stats = CompactionStats::default();
        stats.set_output_keys(b"key", b"a key that is long");
        assert_eq!(stats.smallest_output_prefix, b"key");
        assert_eq!(stats.largest_output_prefix, b"a key th");
    }
}
