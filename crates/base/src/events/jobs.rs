//! The structs that tell listeners of the files of a job, of its numbers, and of what holds writers
//! up.

use karst_format::ids::Level;
use karst_format::version_edit::{BlobFileAddition, BlobFileGarbage, NewFile};
use karst_lsm::stall::WriteStall;
use std::path::PathBuf;

/// A blob file that a flush or a compaction has added.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlobFileAdditionInfo {
    /// Where the file is.
    pub path: PathBuf,
    /// Its number.
    pub number: u64,
    /// How many blobs it has.
    pub total_blob_count: u64,
    /// Bytes of their records.
    pub total_blob_bytes: u64,
}

impl BlobFileAdditionInfo {
    /// A file, and where it is.
    #[doc(hidden)]
    pub fn new(path: PathBuf, file: &BlobFileAddition) -> Self {
        let (total_blob_count, total_blob_bytes) = (file.total_count, file.total_bytes);
        Self { path, number: file.number.0, total_blob_count, total_blob_bytes }
    }
}

/// What of a blob file became garbage by a compaction.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlobFileGarbageInfo {
    /// Where the file is.
    pub path: PathBuf,
    /// Its number.
    pub number: u64,
    /// How many of its blobs nobody refers to any more, by this compaction alone.
    pub garbage_blob_count: u64,
    /// Bytes of their records.
    pub garbage_blob_bytes: u64,
}

impl BlobFileGarbageInfo {
    /// What of a file became garbage, and where the file is.
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
    /// Its level.
    pub level: u32,
    /// Its number.
    pub number: u64,
    /// The oldest blob file that it refers to.
    pub oldest_blob_file: Option<u64>,
}

impl CompactionFileInfo {
    /// A table of a level.
    #[doc(hidden)]
    pub fn new(level: Level, file: &NewFile) -> Self {
        let oldest_blob_file = file.oldest_blob_file.map(|number| number.0);
        Self { level: u32::from(level.0), number: file.number.0, oldest_blob_file }
    }
}

/// What a compaction, or a part of one, came to. Until the end all is 0 but what is known of the
/// inputs. Of a part the numbers of input files and their bytes stay 0, since parts share them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompactionStats {
    /// How long it took, in microseconds.
    pub micros: u64,
    /// Its time on processors, in microseconds.
    pub cpu_micros: u64,
    /// Entries read.
    pub input_entries: u64,
    /// Deletions among them.
    pub input_deletions: u64,
    /// Their internal keys before compression, in bytes.
    pub input_key_bytes: u64,
    /// Their values before compression, in bytes.
    pub input_value_bytes: u64,
    /// Tables read, moved or removed, and their bytes.
    pub input_files: usize,
    /// See `input_files`.
    pub input_bytes: u64,
    /// Those among them of the output level.
    pub input_files_at_output_level: usize,
    /// Those among them that moved as they are.
    pub moved_files: usize,
    /// Values read from blob files, and their bytes.
    pub blobs_read: u64,
    /// See `blobs_read`.
    pub blob_bytes_read: u64,
    /// Entries written.
    pub output_entries: u64,
    /// Tables written, and their bytes.
    pub output_files: usize,
    /// See `output_files`.
    pub output_bytes: u64,
    /// Blob files written, and their bytes.
    pub output_blob_files: usize,
    /// See `output_blob_files`.
    pub output_blob_bytes: u64,
    /// The first bytes, eight at most, of the smallest user key that was written.
    pub smallest_output_prefix: Vec<u8>,
    /// The same of the largest.
    pub largest_output_prefix: Vec<u8>,
    /// Entries dropped since something newer hides them.
    pub replaced: u64,
    /// Deletions dropped since there is nothing left to delete.
    pub expired_deletions: u64,
    /// Single deletions dropped without having met an entry.
    pub single_deletes_without_entry: u64,
    /// Single deletions above something that they should not meet.
    pub single_deletes_mismatched: u64,
    /// Every table of the column family is read.
    pub is_full: bool,
    /// Somebody asked for it.
    pub is_manual: bool,
}

impl CompactionStats {
    /// The longest prefix of a key that is kept.
    const PREFIX: usize = 8;

    /// Takes note of the smallest and the largest user key that were written.
    #[doc(hidden)]
    pub fn set_output_keys(&mut self, smallest: &[u8], largest: &[u8]) {
        let prefix = |key: &[u8]| key[..key.len().min(Self::PREFIX)].to_vec();
        (self.smallest_output_prefix, self.largest_output_prefix) = (prefix(smallest), prefix(largest));
    }
}

/// What holds up the writers of a column family. RocksDB's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WriteStallCondition {
    /// They are slowed down.
    Delayed,
    /// They wait.
    Stopped,
    /// Nothing.
    Normal,
}

impl WriteStallCondition {
    /// The condition, whatever its cause.
    #[doc(hidden)]
    pub fn of(stall: WriteStall) -> Self {
        match stall {
            WriteStall::Normal => Self::Normal,
            WriteStall::Delayed(_) => Self::Delayed,
            WriteStall::Stopped(_) => Self::Stopped,
        }
    }
}

/// A change of what holds up the writers of a column family.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WriteStallInfo {
    /// The column family.
    pub column_family: String,
    /// How it was.
    pub before: WriteStallCondition,
    /// How it is now.
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
