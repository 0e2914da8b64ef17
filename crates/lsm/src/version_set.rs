//! The state of a whole database as its MANIFEST describes it: all column families, their trees,
//! and the counters.
//!
//! In: [`ManifestReplay`](crate::ManifestReplay) makes it. Out: what recovery needs: which logs to
//! replay into which column family, from which sequence number on, and which file numbers are
//! taken.
//!
//! Invariant: every column family in it has a version; dropped ones are gone; ids are at most
//! `max_column_family`.
use crate::version::Version;
use karst_format::ids::{ColumnFamilyId, FileNumber};
use karst_format::key::SeqNo;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The name that every database's first column family has.
pub const DEFAULT_COLUMN_FAMILY: &str = "default";

/// A database's state, replayed from its MANIFEST.
#[derive(Clone, Debug)]
pub struct VersionSet {
    /// The database's identity, if the MANIFEST has it.
    pub db_id: Option<Vec<u8>>,
    /// The next file number that nobody has used.
    pub next_file_number: FileNumber,
    /// The last sequence number that the MANIFEST knows; logs may hold later ones.
    pub last_sequence: SeqNo,
    /// A log older than the column families' own that is live too; 0 is none.
    pub prev_log_number: FileNumber,
    /// Logs below this number hold nothing that anyone needs; 0 if the MANIFEST does not say.
    pub min_log_number_to_keep: FileNumber,
    /// The largest column family id ever used.
    pub max_column_family: ColumnFamilyId,
    /// The logs that the MANIFEST tracks, with the bytes known to be synced; empty if it does not
    /// track them.
    pub wals: BTreeMap<FileNumber, Option<u64>>,
    /// Size of the MANIFEST when it was last rewritten, in bytes, if it says.
    pub last_compacted_manifest_file_size: Option<u64>,
    /// The open column families by id.
    pub column_families: BTreeMap<ColumnFamilyId, ColumnFamilyState>,
    /// Column families that exist but that the caller chose not to open, by id.
    pub unopened: BTreeMap<ColumnFamilyId, String>,
}

impl VersionSet {
    /// The open column family with this name.
    pub fn column_family(&self, name: &str) -> Option<&ColumnFamilyState> {
        self.column_families.values().find(|family| family.name == name)
    }

    /// The smallest number of a log that some open column family may still need. Recovery replays
    /// this log and later ones, and from each only the entries of families whose own `log_number`
    /// is not above it.
    pub fn min_log_number(&self) -> FileNumber {
        let needed = self.column_families.values().map(|family| family.log_number).min();
        needed.unwrap_or_default().max(self.min_log_number_to_keep)
    }
}

/// One column family of a database.
#[derive(Clone, Debug)]
pub struct ColumnFamilyState {
    /// Its id.
    pub id: ColumnFamilyId,
    /// Its name.
    pub name: String,
    /// Logs below this number hold nothing that the family still needs.
    pub log_number: FileNumber,
    /// Its tree.
    pub version: Arc<Version>,
    /// The epoch number of the next file that reaches L0.
    pub next_epoch_number: u64,
    /// History of user-defined timestamps below this may be collected.
    pub full_history_ts_low: Option<Vec<u8>>,
    /// Whether user-defined timestamps reach table files.
    pub persist_user_defined_timestamps: bool,
}
