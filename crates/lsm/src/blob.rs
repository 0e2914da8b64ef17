//! One blob file's metadata in a version: what is in it, how much of it is garbage, which tables refer to it.
//!
//! Invariant: immutable; a version edit that touches a blob file makes a new value.
use std::collections::BTreeSet;

use karst_format::ids::FileNumber;
use karst_format::version_edit::BlobFileAddition;

/// A blob file of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobFileMetadata {
    /// The file as it was added: its number, counts, bytes and checksum.
    pub file: BlobFileAddition,
    /// Table files whose oldest blob file this is.
    pub linked_tables: BTreeSet<FileNumber>,
    /// Blobs that nothing refers to any longer.
    pub garbage_count: u64,
    /// Bytes of those blobs' records.
    pub garbage_bytes: u64,
}

impl BlobFileMetadata {
    /// A file that was just added: no garbage, no links.
    pub fn new(file: BlobFileAddition) -> BlobFileMetadata {
        BlobFileMetadata { file, linked_tables: BTreeSet::new(), garbage_count: 0, garbage_bytes: 0 }
    }

    /// The file's number.
    pub fn number(&self) -> FileNumber {
        self.file.number
    }

    /// No table refers to the file or to an older one through it, and all its blobs are garbage.
    pub fn is_obsolete(&self) -> bool {
        self.linked_tables.is_empty() && self.garbage_count >= self.file.total_count
    }
}
