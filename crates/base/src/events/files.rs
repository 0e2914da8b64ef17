//! Structs that describe files and memtables to listeners.

use super::{Events, SubcompactionInfo};
use crate::error::Error;
use karst_format::properties::TableProperties;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The kind of job that creates a file. RocksDB's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TableFileCreationReason {
    /// A flush of memtables.
    Flush,
    /// A compaction.
    Compaction,
}

/// A table or blob file being created.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FileCreationInfo {
    /// The column family.
    pub column_family: String,
    /// Path of the file.
    pub path: PathBuf,
    /// Number of the job that creates it.
    pub job: u64,
    /// The kind of that job.
    pub reason: TableFileCreationReason,
}

/// A table that has been created.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TableFileCreationInfo {
    /// The file and the job that created it.
    pub file: FileCreationInfo,
    /// Size of the file in bytes.
    pub size_bytes: u64,
    /// The table's properties.
    pub table_properties: Arc<TableProperties>,
    /// Error that stopped the writing; the file is then removed. None on success.
    pub error: Option<Error>,
}

/// A blob file that has been created.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BlobFileCreationInfo {
    /// The file and the job that created it.
    pub file: FileCreationInfo,
    /// Number of blobs in the file.
    pub total_blob_count: u64,
    /// Size of the blob records in bytes.
    pub total_blob_bytes: u64,
    /// Error that stopped the writing; the file is then removed. None on success.
    pub error: Option<Error>,
}

/// A table or blob file that was removed, or whose removal failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FileDeletionInfo {
    /// Path of the file.
    pub path: PathBuf,
    /// Error that prevented the removal, which is retried with the next removals. None on success.
    pub error: Option<Error>,
}

impl FileDeletionInfo {
    /// Describes a removal.
    #[doc(hidden)]
    pub fn new(path: PathBuf, error: Option<Error>) -> Self {
        Self { path, error }
    }
}

/// A memtable that accepts no more entries.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MemTableInfo {
    /// The column family.
    pub column_family: String,
    /// Number of entries. A few whose sequence numbers were assigned earlier may still be inserted.
    pub entries: u64,
    /// Number of deletions among the entries.
    pub deletions: u64,
    /// Memory allocated, in bytes.
    pub memory_bytes: u64,
    /// Every entry has a larger sequence number.
    pub earliest_seq: u64,
    /// No entry has a larger sequence number.
    pub largest_seq: u64,
}

impl MemTableInfo {
    /// Describes a memtable.
    #[doc(hidden)]
    pub fn new(
        column_family: &str,
        (entries, deletions): (u64, u64),
        memory_bytes: u64,
        (earliest, largest): (u64, u64),
    ) -> Self {
        let column_family = column_family.to_owned();
        let (earliest_seq, largest_seq) = (earliest, largest);
        Self { column_family, entries, deletions, memory_bytes, earliest_seq, largest_seq }
    }
}

/// Reports the files that one job creates to listeners.
#[derive(Clone, Debug)]
pub struct FileCreations {
    events: Arc<Events>,
    column_family: String,
    job: u64,
    reason: TableFileCreationReason,
}

impl FileCreations {
    /// Returns `None` if there are no listeners.
    pub fn of(
        events: &Arc<Events>,
        column_family: &str,
        job: u64,
        reason: TableFileCreationReason,
    ) -> Option<FileCreations> {
        let column_family = || column_family.to_owned();
        events.has_listeners().then(|| FileCreations {
            events: events.clone(),
            column_family: column_family(),
            job,
            reason,
        })
    }

    /// Reports the begin or the end of a subcompaction; fills in `part`'s column family and job.
    pub fn subcompaction(&self, mut part: SubcompactionInfo, ended: bool) {
        part.column_family.clone_from(&self.column_family);
        part.job = self.job;
        self.events.tell(|listener| match ended {
            false => listener.subcompaction_begun(&part),
            true => listener.subcompaction_completed(&part),
        });
    }

    fn file(&self, path: &Path) -> FileCreationInfo {
        FileCreationInfo {
            column_family: self.column_family.clone(),
            path: path.to_owned(),
            job: self.job,
            reason: self.reason,
        }
    }

    /// Reports that a table has been started.
    pub fn table_started(&self, path: &Path) {
        let file = self.file(path);
        self.events.tell(|listener| listener.table_file_creation_started(&file));
    }

    /// Reports that a table was synced, or failed with `error`.
    pub fn table_created(
        &self,
        path: &Path,
        size_bytes: u64,
        properties: &TableProperties,
        error: Option<&Error>,
    ) {
        let info = TableFileCreationInfo {
            file: self.file(path),
            size_bytes,
            table_properties: Arc::new(properties.clone()),
            error: error.cloned(),
        };
        self.events.tell(|listener| listener.table_file_created(&info));
    }

    /// Reports that a blob file has been started.
    pub fn blob_file_started(&self, path: &Path) {
        let file = self.file(path);
        self.events.tell(|listener| listener.blob_file_creation_started(&file));
    }

    /// Reports that a blob file was synced, or failed with `error`.
    pub fn blob_file_created(
        &self,
        path: &Path,
        (total_blob_count, total_blob_bytes): (u64, u64),
        error: Option<&Error>,
    ) {
        let file = self.file(path);
        let info = BlobFileCreationInfo { file, total_blob_count, total_blob_bytes, error: error.cloned() };
        self.events.tell(|listener| listener.blob_file_created(&info));
    }
}
