//! The state of a whole database as its MANIFEST records it: all column families, their trees, and
//! the counters.
//!
//! In: built by [`ManifestReplay`](crate::ManifestReplay). Out: the data that recovery needs: the
//! logs to replay into each column family, the sequence number to start from, and the file numbers
//! in use.
//!
//! Invariant: every column family in it has a version; dropped ones are absent; ids are at most
//! `max_column_family`.
use crate::version::Version;
use karst_format::ids::{ColumnFamilyId, FileNumber};
use karst_format::key::SeqNo;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Name of every database's first column family.
pub const DEFAULT_COLUMN_FAMILY: &str = "default";

/// A database's state, replayed from its MANIFEST.
#[derive(Clone, Debug)]
pub struct VersionSet {
    /// The database's identity, if the MANIFEST records it.
    pub db_id: Option<Vec<u8>>,
    /// The next unused file number.
    pub next_file_number: FileNumber,
    /// The last sequence number that the MANIFEST records; logs may hold later ones.
    pub last_sequence: SeqNo,
    /// A live log older than the column families' own; 0 is none.
    pub prev_log_number: FileNumber,
    /// Logs below this number are not needed by any column family or prepared transaction; 0 if the
    /// MANIFEST does not record it.
    pub min_log_number_to_keep: FileNumber,
    /// The largest column family id ever used.
    pub max_column_family: ColumnFamilyId,
    /// The logs that the MANIFEST tracks, with the bytes known to be synced; empty if it does not
    /// track logs.
    pub wals: BTreeMap<FileNumber, Option<u64>>,
    /// Size of the MANIFEST when it was last rewritten, in bytes, if recorded.
    pub last_compacted_manifest_file_size: Option<u64>,
    /// The open column families by id.
    pub column_families: BTreeMap<ColumnFamilyId, ColumnFamilyState>,
    /// Existing column families that the caller chose not to open, by id.
    pub unopened: BTreeMap<ColumnFamilyId, String>,
}

impl VersionSet {
    /// Returns the open column family with this name.
    pub fn column_family(&self, name: &str) -> Option<&ColumnFamilyState> {
        self.column_families.values().find(|family| family.name == name)
    }

    /// Returns the smallest number of a log that an open column family may still need. Recovery
    /// replays this log and later ones, and from each only the entries of families whose own
    /// `log_number` is not above it.
    pub fn min_log_number(&self) -> FileNumber {
        let needed = self.column_families.values().map(|family| family.log_number).min();
        needed.unwrap_or_default().max(self.min_log_number_to_keep)
    }
}

/// One column family of a database.
#[derive(Clone, Debug)]
pub struct ColumnFamilyState {
    /// The family's id.
    pub id: ColumnFamilyId,
    /// The family's name.
    pub name: String,
    /// Logs below this number hold no entries that the family still needs.
    pub log_number: FileNumber,
    /// The family's tree.
    pub version: Arc<Version>,
    /// The epoch number of the next file added to L0.
    pub next_epoch_number: u64,
    /// Timestamp below which the history of user-defined timestamps may be garbage collected.
    pub full_history_ts_low: Option<Vec<u8>>,
    /// True if table files store user-defined timestamps.
    pub persist_user_defined_timestamps: bool,
}
