//! A table or blob file on storage, and the end of its life.
//!
//! In: everything that describes the file (its metadata in any version) shares one [`StoredFile`];
//! whoever takes the file out of the tree retires it. Out: when the last of them is dropped, a
//! retired file is reported to its [`Reaper`], once; one that was not retired, never. What the
//! engine opened of a blob file is attached here, and closed before that.
//!
//! Invariant: nothing can reach the file through a version any more when it is reported, so it may
//! be removed.
//!
//! Why not a count by number in one table: a version of ten thousand files would have to count each
//! of them up and down under a lock whenever an iterator pins or leaves it.
use karst_format::ids::FileNumber;
use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// What a stored file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StoredKind {
    /// A table.
    Table,
    /// A blob file.
    Blob,
}

/// Where and what a stored file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StoredId {
    /// Table or blob file.
    pub kind: StoredKind,
    /// Its number.
    pub number: FileNumber,
    /// Index into the directories for tables; 0 for blob files.
    pub path_id: u8,
}

/// Is told of files that nobody can reach any more.
pub trait Reaper: Send + Sync {
    /// The file was taken out of the tree, and the last version with it is gone. Called from
    /// wherever that version was dropped, a reader's thread also: must not block.
    fn unreachable(&self, file: StoredId);
}

/// One file's life; see the module. Shared (`Arc`) by all that describes the file.
pub struct StoredFile {
    id: StoredId,
    attachment: OnceLock<Box<dyn Any + Send + Sync>>,
    retired: OnceLock<Arc<dyn Reaper>>,
}

impl StoredFile {
    /// A file that is in use.
    pub fn new(id: StoredId) -> StoredFile {
        StoredFile { id, attachment: OnceLock::new(), retired: OnceLock::new() }
    }

    /// Where and what it is.
    pub fn id(&self) -> StoredId {
        self.id
    }

    /// The attached value, if it is of type `T`. Never blocks.
    #[inline]
    pub fn attachment<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.attachment.get()?.downcast_ref::<T>()
    }

    /// Attaches `value` for as long as anything describes the file, and returns what is attached
    /// now: `value`, or what another thread attached first. `None` if that is of another type.
    pub fn attach<T: Any + Send + Sync>(&self, value: T) -> Option<&T> {
        self.attachment.get_or_init(|| Box::new(value)).downcast_ref::<T>()
    }

    /// Says that the file left the tree: `reaper` is told once nobody describes it any more. The
    /// first call counts.
    pub fn retire(&self, reaper: Arc<dyn Reaper>) {
        // Why ignored: a file retired twice is still removed once.
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
