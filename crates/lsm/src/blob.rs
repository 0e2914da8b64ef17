//! One blob file's metadata in a version: its contents, its garbage, and the tables that refer to
//! it.
//!
//! Invariant: immutable; a version edit that touches a blob file makes a new value.
use crate::stored_file::{StoredFile, StoredId, StoredKind};
use karst_format::blob::{FOOTER_BYTES, HEADER_BYTES};
use karst_format::ids::FileNumber;
use karst_format::version_edit::BlobFileAddition;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A blob file of a version.
#[derive(Clone, Debug)]
pub struct BlobFileMetadata {
    /// The file's number, counts, bytes and checksum, as added.
    pub file: BlobFileAddition,
    /// Table files whose oldest blob file is this one.
    pub linked_tables: BTreeSet<FileNumber>,
    /// Number of blobs that are no longer referenced.
    pub garbage_count: u64,
    /// Bytes of these blobs' records.
    pub garbage_bytes: u64,
    /// Shared by all metadata values of the file.
    stored: Arc<StoredFile>,
}

impl PartialEq for BlobFileMetadata {
    /// Compares the metadata, without `stored`.
    fn eq(&self, other: &BlobFileMetadata) -> bool {
        self.file == other.file
            && self.linked_tables == other.linked_tables
            && self.garbage_count == other.garbage_count
            && self.garbage_bytes == other.garbage_bytes
    }
}

impl Eq for BlobFileMetadata {}

impl BlobFileMetadata {
    /// Returns the metadata of a file that was just added: no garbage, no links.
    pub fn new(file: BlobFileAddition) -> BlobFileMetadata {
        let id = StoredId { kind: StoredKind::Blob, number: file.number, path_id: 0 };
        let stored = Arc::new(StoredFile::new(id));
        BlobFileMetadata { file, linked_tables: BTreeSet::new(), garbage_count: 0, garbage_bytes: 0, stored }
    }

    /// Returns the file on storage.
    pub fn stored(&self) -> &Arc<StoredFile> {
        &self.stored
    }

    /// Returns the file's number.
    pub fn number(&self) -> FileNumber {
        self.file.number
    }

    /// Returns the file's size in bytes: header, blobs with their own headers and keys, footer.
    pub fn file_bytes(&self) -> u64 {
        self.file.total_bytes.saturating_add((HEADER_BYTES + FOOTER_BYTES) as u64)
    }

    /// Returns true if no table refers to the file or to an older one through it, and all its blobs
    /// are garbage.
    pub fn is_obsolete(&self) -> bool {
        self.linked_tables.is_empty() && self.garbage_count >= self.file.total_count
    }
}
