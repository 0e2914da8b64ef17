//! Version edit: one record of the MANIFEST, a change to the tree, to the set of column families,
//! or to the set of logs.
//!
//! In: the payload of one MANIFEST log record (`log` does the framing). Out: a [`VersionEdit`], and
//! back. `docs/formats/manifest.md` has the byte tables.
//!
//! Invariants:
//! - A decoded edit is well formed in itself: keys are at least as long as an internal key's
//!   trailer, numbers fit their types. `karst_lsm` checks that it fits the tree it is applied to.
//! - An edit that RocksDB 7.8 or 11.8 wrote encodes to the bytes it was decoded from. Unknown tags
//!   that carry the "safe to ignore" bit are dropped on decoding, since their meaning is unknown.
//!
//! Callers: `karst_lsm` (replay), `karst_engine` (open), the tools (`manifest_dump`).
mod decode;
mod encode;
#[cfg(test)]
mod tests;

use crate::ids::{ColumnFamilyId, FileNumber, Level};
use crate::key::{self, SeqNo, TRAILER_BYTES};

/// A change to a database's state, decoded from one MANIFEST record. Absent fields change nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionEdit {
    /// The database's identity (as in the IDENTITY file).
    pub db_id: Option<Vec<u8>>,
    /// The name of the column family's comparator.
    pub comparator: Option<String>,
    /// True if table files store user-defined timestamps. RocksDB writes it together with
    /// `comparator`.
    pub persist_user_defined_timestamps: Option<bool>,
    /// Smallest log number whose entries this column family may still need.
    pub log_number: Option<FileNumber>,
    /// A live log before `log_number`; 0 in every database of this decade.
    pub prev_log_number: Option<FileNumber>,
    /// The next file number to assign.
    pub next_file_number: Option<FileNumber>,
    /// The largest column family id ever used.
    pub max_column_family: Option<ColumnFamilyId>,
    /// Smallest log number that a column family or prepared transaction may still need.
    pub min_log_number_to_keep: Option<FileNumber>,
    /// The last sequence number in use when the edit was written.
    pub last_sequence: Option<SeqNo>,
    /// Positions at which round-robin compaction continues: level, internal key.
    pub compact_cursors: Vec<(Level, Box<[u8]>)>,
    /// Table files removed from the tree.
    pub deleted_files: Vec<(Level, FileNumber)>,
    /// Table files added to the tree.
    pub new_files: Vec<(Level, NewFile)>,
    /// Blob files added to the tree.
    pub blob_file_additions: Vec<BlobFileAddition>,
    /// Garbage added to blob files of the tree.
    pub blob_file_garbages: Vec<BlobFileGarbage>,
    /// Logs created or closed (when the MANIFEST tracks logs).
    pub wal_additions: Vec<WalAddition>,
    /// Logs below this number are deleted (when the MANIFEST tracks logs).
    pub wal_deletion: Option<FileNumber>,
    /// The column family that the edit applies to.
    pub column_family: ColumnFamilyId,
    /// Name of the column family that the edit creates.
    pub column_family_add: Option<String>,
    /// True if the edit drops the column family.
    pub column_family_drop: bool,
    /// Number of edits that follow in the atomic group; `None` if the edit belongs to no group.
    pub remaining_in_atomic_group: Option<u32>,
    /// Timestamp below which the history of user-defined timestamps may be garbage collected. Never
    /// empty.
    pub full_history_ts_low: Option<Vec<u8>>,
    /// Progress of a resumable compaction (11.x; occurs in its own progress file rather than in a
    /// MANIFEST), undecoded.
    pub subcompaction_progress: Option<Vec<u8>>,
    /// Size of the MANIFEST when it was last rewritten, in bytes (11.x).
    pub last_compacted_manifest_file_size: Option<u64>,
}

/// Metadata of a table file, as recorded in the MANIFEST.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewFile {
    /// The file's number.
    pub number: FileNumber,
    /// Index into `db_paths` or `cf_paths`, 0 to 3.
    pub path_id: u8,
    /// The file's size in bytes.
    pub size_bytes: u64,
    /// The smallest internal key, encoded; at least 8 bytes.
    pub smallest: Box<[u8]>,
    /// The largest internal key, encoded; at least 8 bytes. If the file ends with a range tombstone
    /// it is that tombstone's end key with the largest sequence number, and is then exclusive.
    pub largest: Box<[u8]>,
    /// The smallest sequence number in the file.
    pub smallest_seq: SeqNo,
    /// The largest sequence number in the file.
    pub largest_seq: SeqNo,
    /// The order in which files were added to L0: larger is newer. 0 is unknown: written by a
    /// release before RocksDB 7.9, for example Debian's 7.8.
    pub epoch_number: u64,
    /// True if the user requested compaction of the file.
    pub marked_for_compaction: bool,
    /// Temperature with which the file system stores the file.
    pub temperature: Temperature,
    /// The oldest blob file that the table refers to, if any.
    pub oldest_blob_file: Option<FileNumber>,
    /// Unix time in seconds of the oldest ancestor's creation; 0 is unknown.
    pub oldest_ancestor_time_s: u64,
    /// Unix time in seconds of the file's creation; 0 is unknown.
    pub creation_time_s: u64,
    /// The whole file's checksum, if one was written; see [`FileChecksum::is_known`].
    pub checksum: Option<FileChecksum>,
    /// The file's unique id (internal form, two words), if known.
    pub unique_id: Option<[u64; 2]>,
    /// Estimated bytes that the file's range tombstones cover in the next level; 0 is none.
    pub compensated_range_deletion_bytes: u64,
    /// Size in bytes of all parts behind the data blocks; 0 is unknown.
    pub tail_size_bytes: u64,
    /// True if keys in the file carry their user-defined timestamps.
    pub user_defined_timestamps_persisted: bool,
    /// The smallest user-defined timestamp in the file; empty if unknown (11.x).
    pub min_timestamp: Box<[u8]>,
    /// The largest user-defined timestamp in the file; empty if unknown (11.x).
    pub max_timestamp: Box<[u8]>,
    /// Opaque metadata of the file system, passed to it when the file is opened again; may be empty
    /// (11.x).
    pub open_metadata: Box<[u8]>,
}

impl NewFile {
    /// Returns a file with only the basic fields set. The keys must be encoded internal keys.
    pub fn new(
        number: FileNumber,
        size_bytes: u64,
        smallest: impl Into<Box<[u8]>>,
        largest: impl Into<Box<[u8]>>,
        smallest_seq: SeqNo,
        largest_seq: SeqNo,
    ) -> NewFile {
        let (smallest, largest) = (smallest.into(), largest.into());
        assert!(
            smallest.len() >= TRAILER_BYTES && largest.len() >= TRAILER_BYTES,
            "boundaries are internal keys"
        );
        NewFile {
            number,
            path_id: 0,
            size_bytes,
            smallest,
            largest,
            smallest_seq,
            largest_seq,
            epoch_number: 0,
            marked_for_compaction: false,
            temperature: Temperature::Unknown,
            oldest_blob_file: None,
            oldest_ancestor_time_s: 0,
            creation_time_s: 0,
            checksum: None,
            unique_id: None,
            compensated_range_deletion_bytes: 0,
            tail_size_bytes: 0,
            user_defined_timestamps_persisted: true,
            min_timestamp: Box::default(),
            max_timestamp: Box::default(),
            open_metadata: Box::default(),
        }
    }

    /// Returns the user key of the smallest internal key.
    #[inline]
    pub fn smallest_user_key(&self) -> &[u8] {
        key::user_key(&self.smallest)
    }

    /// Returns the user key of the largest internal key.
    #[inline]
    pub fn largest_user_key(&self) -> &[u8] {
        key::user_key(&self.largest)
    }

    /// Returns the trailer (sequence number and kind) of the smallest internal key.
    #[inline]
    pub fn smallest_trailer(&self) -> u64 {
        key::split(&self.smallest).1
    }

    /// Returns the trailer (sequence number and kind) of the largest internal key.
    #[inline]
    pub fn largest_trailer(&self) -> u64 {
        key::split(&self.largest).1
    }
}

/// Checksum of a whole file, and the name of the function that computed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChecksum {
    /// The checksum's bytes.
    pub value: Box<[u8]>,
    /// The function's name, such as `FileChecksumCrc32c`. Never empty.
    pub function: Box<[u8]>,
}

impl FileChecksum {
    /// Returns true if the checksum was computed. RocksDB 7.8 writes a function named `Unknown` for
    /// files without one.
    pub fn is_known(&self) -> bool {
        *self.function != *b"Unknown"
    }
}

/// Expected access frequency of a file's data, for file systems that place files by it.
///
/// The numbers are the on-disk ones. A value that this release does not know reads as `Unknown`, as
/// in RocksDB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Temperature {
    /// Not specified.
    #[default]
    Unknown = 0,
    /// Read often.
    Hot = 0x04,
    /// Read now and then.
    Warm = 0x08,
    /// Between warm and cold (11.x).
    Cool = 0x0A,
    /// Read rarely.
    Cold = 0x0C,
    /// Practically never read (11.x).
    Ice = 0x10,
}

impl Temperature {
    /// Returns the temperature with this on-disk number; `Unknown` for one that this release does
    /// not know.
    pub fn from_number(number: u8) -> Temperature {
        match number {
            0x04 => Temperature::Hot,
            0x08 => Temperature::Warm,
            0x0A => Temperature::Cool,
            0x0C => Temperature::Cold,
            0x10 => Temperature::Ice,
            _ => Temperature::Unknown,
        }
    }
}

/// A blob file added to the tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlobFileAddition {
    /// The file's number.
    pub number: FileNumber,
    /// Number of blobs in the file.
    pub total_count: u64,
    /// Bytes of all blob records, headers and keys included.
    pub total_bytes: u64,
    /// Name of the checksum function; empty if no checksum was recorded.
    pub checksum_method: Vec<u8>,
    /// The whole file's checksum; empty if none was recorded.
    pub checksum_value: Vec<u8>,
}

/// Blobs of a blob file that are no longer referenced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlobFileGarbage {
    /// The blob file's number.
    pub number: FileNumber,
    /// Number of blobs that became garbage with this edit.
    pub count: u64,
    /// Bytes that became garbage with this edit.
    pub bytes: u64,
}

/// A log that was created (without size) or closed (with its synced size).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalAddition {
    /// The log's number.
    pub number: FileNumber,
    /// Bytes known to be on stable storage; `None` for a log just created.
    pub synced_size_bytes: Option<u64>,
}

/// The tags of a MANIFEST record's entries.
mod tag {
    pub(super) const COMPARATOR: u32 = 1;
    pub(super) const LOG_NUMBER: u32 = 2;
    pub(super) const NEXT_FILE_NUMBER: u32 = 3;
    pub(super) const LAST_SEQUENCE: u32 = 4;
    pub(super) const COMPACT_CURSOR: u32 = 5;
    pub(super) const DELETED_FILE: u32 = 6;
    pub(super) const NEW_FILE: u32 = 7;
    pub(super) const PREV_LOG_NUMBER: u32 = 9;
    pub(super) const MIN_LOG_NUMBER_TO_KEEP: u32 = 10;
    pub(super) const NEW_FILE_2: u32 = 100;
    pub(super) const NEW_FILE_3: u32 = 102;
    pub(super) const NEW_FILE_4: u32 = 103;
    pub(super) const COLUMN_FAMILY: u32 = 200;
    pub(super) const COLUMN_FAMILY_ADD: u32 = 201;
    pub(super) const COLUMN_FAMILY_DROP: u32 = 202;
    pub(super) const MAX_COLUMN_FAMILY: u32 = 203;
    pub(super) const IN_ATOMIC_GROUP: u32 = 300;
    pub(super) const BLOB_FILE_ADDITION: u32 = 400;
    pub(super) const BLOB_FILE_GARBAGE: u32 = 401;

    /// Bit of tags whose length-prefixed contents are skipped by readers that do not know them.
    pub(super) const SAFE_TO_IGNORE: u32 = 1 << 13;
    pub(super) const DB_ID: u32 = SAFE_TO_IGNORE + 1;
    pub(super) const BLOB_FILE_ADDITION_OLD: u32 = SAFE_TO_IGNORE + 2;
    pub(super) const BLOB_FILE_GARBAGE_OLD: u32 = SAFE_TO_IGNORE + 3;
    pub(super) const WAL_ADDITION: u32 = SAFE_TO_IGNORE + 4;
    pub(super) const WAL_DELETION: u32 = SAFE_TO_IGNORE + 5;
    pub(super) const FULL_HISTORY_TS_LOW: u32 = SAFE_TO_IGNORE + 6;
    pub(super) const WAL_ADDITION_2: u32 = SAFE_TO_IGNORE + 7;
    pub(super) const WAL_DELETION_2: u32 = SAFE_TO_IGNORE + 8;
    pub(super) const PERSIST_USER_DEFINED_TIMESTAMPS: u32 = SAFE_TO_IGNORE + 9;
    pub(super) const SUBCOMPACTION_PROGRESS: u32 = SAFE_TO_IGNORE + 10;
    pub(super) const LAST_COMPACTED_MANIFEST_FILE_SIZE: u32 = SAFE_TO_IGNORE + 11;
}

/// The tags of a new-file entry's custom fields (each followed by a length-prefixed value).
mod field {
    pub(super) const TERMINATE: u32 = 1;
    pub(super) const NEED_COMPACTION: u32 = 2;
    pub(super) const MIN_LOG_NUMBER_TO_KEEP: u32 = 3;
    pub(super) const OLDEST_BLOB_FILE_NUMBER: u32 = 4;
    pub(super) const OLDEST_ANCESTOR_TIME: u32 = 5;
    pub(super) const FILE_CREATION_TIME: u32 = 6;
    pub(super) const FILE_CHECKSUM: u32 = 7;
    pub(super) const FILE_CHECKSUM_FUNCTION: u32 = 8;
    pub(super) const TEMPERATURE: u32 = 9;
    pub(super) const MIN_TIMESTAMP: u32 = 10;
    pub(super) const MAX_TIMESTAMP: u32 = 11;
    pub(super) const UNIQUE_ID: u32 = 12;
    pub(super) const EPOCH_NUMBER: u32 = 13;
    pub(super) const COMPENSATED_RANGE_DELETION_SIZE: u32 = 14;
    pub(super) const TAIL_SIZE: u32 = 15;
    pub(super) const USER_DEFINED_TIMESTAMPS_PERSISTED: u32 = 16;
    pub(super) const FILE_OPEN_METADATA: u32 = 17;

    /// Bit of fields that make readers that do not know them reject the edit; other unknown fields
    /// are skipped.
    pub(super) const NOT_IGNORABLE: u32 = 1 << 6;
    pub(super) const PATH_ID: u32 = NOT_IGNORABLE + 1;
}

/// Tags inside a log addition.
mod wal_tag {
    pub(super) const TERMINATE: u32 = 1;
    pub(super) const SYNCED_SIZE: u32 = 2;
}
