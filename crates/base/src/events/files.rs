//! The structs that tell listeners of files and memtables.

use super::{Events, SubcompactionInfo};
use crate::error::Error;
use karst_format::properties::TableProperties;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a file is made for. RocksDB's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TableFileCreationReason {
    /// A flush of memtables.
    Flush,
    /// A compaction.
    Compaction,
}

/// A table or blob file that is being made.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FileCreationInfo {
    /// The column family.
    pub column_family: String,
    /// Where the file is.
    pub path: PathBuf,
    /// The number of the job that makes it.
    pub job: u64,
    /// What it is made for.
    pub reason: TableFileCreationReason,
}

/// A table that has been made.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TableFileCreationInfo {
    /// The file, and who made it.
    pub file: FileCreationInfo,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// What it says of itself.
    pub table_properties: Arc<TableProperties>,
    /// Why it could not be written to its end; then it is removed.
    pub error: Option<Error>,
}

/// A blob file that has been made.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BlobFileCreationInfo {
    /// The file, and who made it.
    pub file: FileCreationInfo,
    /// How many blobs it has.
    pub total_blob_count: u64,
    /// Bytes of their records.
    pub total_blob_bytes: u64,
    /// Why it could not be written to its end; then it is removed.
    pub error: Option<Error>,
}

/// A table or blob file that was removed, or could not be.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FileDeletionInfo {
    /// Where the file was.
    pub path: PathBuf,
    /// Why it is still there; it is tried again with the next ones.
    pub error: Option<Error>,
}

impl FileDeletionInfo {
    /// A file.
    #[doc(hidden)]
    pub fn new(path: PathBuf, error: Option<Error>) -> Self {
        Self { path, error }
    }
}

/// A memtable that takes no more entries.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MemTableInfo {
    /// The column family.
    pub column_family: String,
    /// Entries in it. A few that were ordered before may be on their way still.
    pub entries: u64,
    /// Deletions among them.
    pub deletions: u64,
    /// Memory it has, in bytes.
    pub memory_bytes: u64,
    /// Every entry in it has a sequence number above this.
    pub earliest_seq: u64,
    /// No entry in it has a larger sequence number.
    pub largest_seq: u64,
}

impl MemTableInfo {
    /// A memtable.
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

/// Tells listeners of the files that one job makes.
#[derive(Clone, Debug)]
pub struct FileCreations {
    events: Arc<Events>,
    column_family: String,
    job: u64,
    reason: TableFileCreationReason,
}

impl FileCreations {
    /// `None` if nobody listens.
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

    /// A part of the compaction begins, or has ended. `part` lacks only the family and the job.
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

    /// A table is begun.
    pub fn table_started(&self, path: &Path) {
        let file = self.file(path);
        self.events.tell(|listener| listener.table_file_creation_started(&file));
    }

    /// A table is synced, or could not be.
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

    /// A blob file is begun.
    pub fn blob_file_started(&self, path: &Path) {
        let file = self.file(path);
        self.events.tell(|listener| listener.blob_file_creation_started(&file));
    }

    /// A blob file is synced, or could not be.
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
