//! One table file's metadata, shared (`Arc`) by every version that contains the file.
//!
//! In: the file's MANIFEST record ([`NewFile`]). Out: its fields by name (`file.number`,
//! `file.smallest`, ...), the table's counts once they are known, and one slot in which the engine
//! may keep the open table.
//!
//! Invariant: the metadata never changes. Counts and slot are set at most once, and the slot's
//! value is dropped with the last version that contains the file. A file that was suggested for
//! compaction remains so.
use crate::stored_file::{StoredFile, StoredId, StoredKind};
use karst_format::version_edit::NewFile;
use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// A table file of a version.
pub struct FileMetadata {
    info: NewFile,
    counts: OnceLock<FileCounts>,
    suggested: AtomicBool,
    attachment: OnceLock<Box<dyn Any + Send + Sync>>,
    /// Dropped last, so that the attachment closes the file before the file is reported.
    stored: Arc<StoredFile>,
}

/// Counts from a table's properties that compaction decisions need and the MANIFEST does not
/// record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileCounts {
    /// Number of entries of all kinds.
    pub entries: u64,
    /// Number of deletions, range deletions included.
    pub deletions: u64,
    /// Number of range deletions.
    pub range_deletions: u64,
    /// Bytes of all keys.
    pub raw_key_bytes: u64,
    /// Bytes of all values.
    pub raw_value_bytes: u64,
    /// Time at which the newest key was written, in seconds of Unix time; 0 is unknown.
    pub newest_key_time_s: u64,
}

impl FileMetadata {
    /// Returns the metadata of a file that is added to the tree.
    pub fn new(info: NewFile) -> FileMetadata {
        let id = StoredId { kind: StoredKind::Table, number: info.number, path_id: info.path_id };
        let stored = Arc::new(StoredFile::new(id));
        FileMetadata {
            info,
            counts: OnceLock::new(),
            suggested: AtomicBool::new(false),
            attachment: OnceLock::new(),
            stored,
        }
    }

    /// Returns metadata with other contents for the same file, for example one that moved with
    /// changed fields: the file lives as long as either value.
    pub fn of_same_file(info: NewFile, other: &FileMetadata) -> FileMetadata {
        debug_assert_eq!(info.number, other.number, "one file has one number");
        let (counts, stored) = (other.counts.clone(), Arc::clone(&other.stored));
        let suggested = AtomicBool::new(other.suggested.load(Ordering::Relaxed));
        FileMetadata { info, counts, suggested, attachment: OnceLock::new(), stored }
    }

    /// Returns the file on storage.
    pub fn stored(&self) -> &Arc<StoredFile> {
        &self.stored
    }

    /// Returns the counts of the file's entries, or `None` until the table has been opened or
    /// written.
    pub fn counts(&self) -> Option<&FileCounts> {
        self.counts.get()
    }

    /// Returns an upper bound of the time at which the newest key was written, in seconds of Unix
    /// time; 0 is unknown.
    ///
    /// If the table has no such property, or has not been opened, this is the file's creation time.
    /// It is not the time of its oldest data, because FIFO compaction would then delete a merged
    /// file when the oldest of its inputs expires.
    pub fn newest_key_time_s(&self) -> u64 {
        let known = self.counts().map_or(0, |counts| counts.newest_key_time_s);
        [known, self.creation_time_s, self.oldest_ancestor_time_s]
            .into_iter()
            .find(|time| *time != 0)
            .unwrap_or(0)
    }

    /// Sets the counts, when the file is written or opened. Later calls change nothing.
    pub fn learn_counts(&self, counts: FileCounts) {
        let _ = self.counts.set(counts);
    }

    /// Returns true if the file is due for compaction independently of its level's size: it was
    /// marked when it was written, or by [`suggest_compaction`](Self::suggest_compaction).
    pub fn is_marked(&self) -> bool {
        self.info.marked_for_compaction || self.suggested.load(Ordering::Relaxed)
    }

    /// Marks the file for compaction. The mark is not recorded: it is lost when the database is
    /// closed.
    pub fn suggest_compaction(&self) {
        // Ordering: Relaxed, because the mark is a hint that the next picks may see late.
        self.suggested.store(true, Ordering::Relaxed);
    }

    /// Returns the value attached to the file, if it is of type `T`. Never blocks.
    ///
    /// The engine attaches the open table, so that a lookup reaches it through the file without a
    /// map or a lock. The type is the engine's own, which this crate cannot name.
    #[inline]
    pub fn attachment<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.attachment.get()?.downcast_ref::<T>()
    }

    /// Attaches `value` for as long as the file is in any version, and returns the attached value:
    /// `value`, or one that another thread attached first. `None` if that is of another type.
    pub fn attach<T: Any + Send + Sync>(&self, value: T) -> Option<&T> {
        self.attachment.get_or_init(|| Box::new(value)).downcast_ref::<T>()
    }
}

impl From<NewFile> for FileMetadata {
    fn from(info: NewFile) -> FileMetadata {
        FileMetadata::new(info)
    }
}

impl Deref for FileMetadata {
    type Target = NewFile;

    #[inline]
    fn deref(&self) -> &NewFile {
        &self.info
    }
}

impl fmt::Debug for FileMetadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileMetadata")
            .field("number", &self.info.number)
            .field("size_bytes", &self.info.size_bytes)
            .field("smallest", &self.info.smallest)
            .field("largest", &self.info.largest)
            .field("epoch_number", &self.info.epoch_number)
            .finish_non_exhaustive()
    }
}
