//! The lifetime of a table or blob file on storage.
//!
//! In: all values that describe the file (its metadata in any version) share one [`StoredFile`];
//! the code that removes the file from the tree retires it. Out: when the last of them is dropped,
//! a retired file is reported to its [`Reaper`], once; a file that was not retired never is. The
//! engine attaches an open blob file here; it is closed before the report.
//!
//! Invariant: when the file is reported, no version contains it, so it may be deleted.
//!
//! A shared owner instead of a table of counts by number, because a version of ten thousand files
//! would have to update ten thousand counts under a lock whenever an iterator pins or releases it.
use karst_format::ids::FileNumber;
use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// Kind of a stored file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StoredKind {
    /// A table.
    Table,
    /// A blob file.
    Blob,
}

/// Identity of a stored file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StoredId {
    /// Table or blob file.
    pub kind: StoredKind,
    /// The file's number.
    pub number: FileNumber,
    /// Index into the directories for tables; 0 for blob files.
    pub path_id: u8,
}

/// Receives files that no version contains any more.
pub trait Reaper: Send + Sync {
    /// Called when the file has been removed from the tree and the last version with it is dropped.
    /// Must not block, because it runs on the thread that dropped that version, which may be a
    /// reader's.
    fn unreachable(&self, file: StoredId);
}

/// One file's lifetime; see the module. Shared (`Arc`) by all values that describe the file.
pub struct StoredFile {
    id: StoredId,
    attachment: OnceLock<Box<dyn Any + Send + Sync>>,
    retired: OnceLock<Arc<dyn Reaper>>,
}

impl StoredFile {
    /// Returns a file that is in use.
    pub fn new(id: StoredId) -> StoredFile {
        StoredFile { id, attachment: OnceLock::new(), retired: OnceLock::new() }
    }

    /// Returns the file's identity.
    pub fn id(&self) -> StoredId {
        self.id
    }

    /// Returns the attached value, if it is of type `T`. Never blocks.
    #[inline]
    pub fn attachment<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.attachment.get()?.downcast_ref::<T>()
    }

    /// Attaches `value` for as long as any value describes the file, and returns the attached
    /// value: `value`, or one that another thread attached first. `None` if that is of another
    /// type.
    pub fn attach<T: Any + Send + Sync>(&self, value: T) -> Option<&T> {
        self.attachment.get_or_init(|| Box::new(value)).downcast_ref::<T>()
    }

    /// Marks the file as removed from the tree: it is reported to `reaper` once no value describes
    /// it any more. Only the first call has an effect.
    pub fn retire(&self, reaper: Arc<dyn Reaper>) {
        // A second call is ignored, because a file is deleted once.
        let _ = self.retired.set(reaper);
    }
}

impl Drop for StoredFile {
    fn drop(&mut self) {
        drop(self.attachment.take());
        if let Some(reaper) = self.retired.get() {
            reaper.unreachable(self.id);
        }
    }
}

impl fmt::Debug for StoredFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let retired = self.retired.get().is_some();
        f.debug_struct("StoredFile").field("id", &self.id).field("retired", &retired).finish()
    }
}
