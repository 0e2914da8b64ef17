//! Files that nobody needs any more, and files that are being written.
//!
//! In: tables and blob files as the last version with them is dropped, logs and MANIFESTs as an install leaves them behind, guards of files whose
//! job failed. Out: the files removed, on a thread that may block.
//!
//! Invariants:
//! - A file is removed only after the MANIFEST in force is known not to name it: while the outcome of a MANIFEST write is not known, nothing is removed.
//! - Nothing is removed while a [`Hold`] lives, nor once the database is closed.
//! - The lock on the database is given back after the last removal has ended.
//!
//! Lock: the queue's own; held to change it, never while a file is removed.

use crate::table::cache::Shared;
use karst_format::file_name::FileName;
use karst_format::ids::FileNumber;
use karst_io::{Env, FileLock};
use karst_lsm::{Reaper, StoredId, StoredKind};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

/// A file to remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Gone {
    /// A table or a blob file.
    Stored(StoredId),
    /// A log.
    Wal(FileNumber),
    /// Any other file of the database's own directory.
    Named(FileName),
}

/// What is to be removed, and whether it may be now.
pub(crate) struct ObsoleteFiles {
    env: Env,
    path: PathBuf,
    wal_path: PathBuf,
    shared: Arc<Shared>,
    this: Weak<ObsoleteFiles>,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    waiting: BTreeSet<Gone>,
    /// Files that could not be removed; tried again with the next ones.
    failed: BTreeSet<Gone>,
    holds: usize,
    /// The outcome of a MANIFEST write is not known, so neither is which files the MANIFEST names.
    uncertain: bool,
    removing: bool,
    closed: bool,
    lock: Option<Box<dyn FileLock>>,
}

impl std::fmt::Debug for ObsoleteFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let queue = self.queue.lock();
        f.debug_struct("ObsoleteFiles")
            .field("waiting", &queue.waiting)
            .field("holds", &queue.holds)
            .field("uncertain", &queue.uncertain)
            .finish_non_exhaustive()
    }
}

impl ObsoleteFiles {
    /// Nothing to remove. `lock` is the lock on the database in `path`, whose logs are in `wal_path`.
    pub(crate) fn new(
        shared: Arc<Shared>,
        path: PathBuf,
        wal_path: PathBuf,
        lock: Box<dyn FileLock>,
    ) -> Arc<ObsoleteFiles> {
        let queue = Mutex::new(Queue { lock: Some(lock), ..Queue::default() });
        let env = shared.env.clone();
        Arc::new_cyclic(|this| ObsoleteFiles { env, path, wal_path, shared, this: this.clone(), queue })
    }

    /// Removes these files as soon as that is allowed. Returns at once.
    pub(crate) fn remove(&self, files: impl IntoIterator<Item = Gone>) {
        let mut queue = self.queue.lock();
        queue.waiting.extend(files);
        self.start(&mut queue);
    }

    /// From now on nothing is removed until [`certain`](Self::certain).
    pub(super) fn uncertain(&self) {
        self.queue.lock().uncertain = true;
    }

    /// A MANIFEST is in force whose content is known.
    pub(super) fn certain(&self) {
        let mut queue = self.queue.lock();
        queue.uncertain = false;
        self.start(&mut queue);
    }

    /// Keeps all files that are there until the hold is dropped, for copying them.
    pub(crate) fn hold(self: &Arc<Self>) -> Hold {
        self.queue.lock().holds += 1;
        Hold(self.clone())
    }

    /// Removes what may be removed, on this thread, and gives the lock on the database back. Nothing is removed after that.
    pub(crate) fn close(&self) {
        self.purge();
        let mut queue = self.queue.lock();
        queue.closed = true;
        if !queue.removing {
            let lock = queue.lock.take();
            drop(queue);
            drop(lock);
        }
    }

    fn start(&self, queue: &mut Queue) {
        if queue.removing || !queue.may_remove() || queue.waiting.is_empty() {
            return;
        }
        let Some(this) = self.this.upgrade() else { return };
        queue.removing = true;
        drop(self.env.run_blocking(move |_| this.purge_marked()));
    }

    /// Removes what may be removed, on this thread, unless another is at it.
    fn purge(&self) {
        {
            let mut queue = self.queue.lock();
            if queue.removing || !queue.may_remove() {
                return;
            }
            queue.removing = true;
        }
        self.purge_marked();
    }

    /// The same by whoever has set `removing`.
    fn purge_marked(&self) {
        let mut retry = std::mem::take(&mut self.queue.lock().failed);
        loop {
            let batch = {
                let mut queue = self.queue.lock();
                let may = queue.may_remove();
                if queue.waiting.is_empty() && retry.is_empty() || !may {
                    queue.failed.append(&mut retry);
                    queue.removing = false;
                    let lock = if queue.closed { queue.lock.take() } else { None };
                    drop(queue);
                    return drop(lock);
                }
                let mut batch = std::mem::take(&mut queue.waiting);
                batch.append(&mut retry);
                batch
            };
            for gone in batch {
                if !self.remove_one(gone) {
                    self.queue.lock().failed.insert(gone);
                }
            }
        }
    }

    /// Whether the file is gone.
    fn remove_one(&self, gone: Gone) -> bool {
        let path = match gone {
            Gone::Stored(StoredId { kind: StoredKind::Blob, number, .. }) => self.shared.blob_path(number),
            Gone::Stored(StoredId { kind: StoredKind::Table, number, path_id }) => {
                match self.shared.table_path(number, path_id) {
                    Ok(path) => path,
                    Err(_) => return true,
                }
            }
            Gone::Wal(number) => self.wal_path.join(FileName::Wal(number).to_string()),
            Gone::Named(name) => self.path.join(name.to_string()),
        };
        if let Gone::Stored(id) = gone {
            self.shared.forget(id.number);
        }
        match self.env.fs().remove(&path) {
            Ok(()) => {
                tracing::debug!(file = %path.display(), "removed");
                true
            }
            Err(e) if e.is_not_found() => true,
            Err(e) => {
                tracing::warn!(file = %path.display(), error = %e, "an obsolete file could not be removed");
                false
            }
        }
    }

    /// Files that wait to be removed.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> Vec<Gone> {
        self.queue.lock().waiting.iter().copied().collect()
    }
}

impl Queue {
    fn may_remove(&self) -> bool {
        self.holds == 0 && !self.uncertain && !self.closed
    }
}

impl Reaper for ObsoleteFiles {
    fn unreachable(&self, file: StoredId) {
        self.remove([Gone::Stored(file)]);
    }
}

/// Keeps files from being removed.
#[derive(Debug)]
pub(crate) struct Hold(Arc<ObsoleteFiles>);

impl Drop for Hold {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock();
        queue.holds -= 1;
        self.0.start(&mut queue);
    }
}

/// A table or blob file that is being written. Give it to [`Change::files`](super::Change) with the edit that adds the file; dropped otherwise, it removes the file.
#[derive(Debug)]
pub(crate) struct FileGuard {
    id: StoredId,
    obsolete: Option<Arc<ObsoleteFiles>>,
}

impl FileGuard {
    pub(super) fn new(id: StoredId, obsolete: Arc<ObsoleteFiles>) -> FileGuard {
        FileGuard { id, obsolete: Some(obsolete) }
    }

    /// The file's number.
    pub(crate) fn number(&self) -> FileNumber {
        self.id.number
    }

    /// The file is part of the database now.
    pub(super) fn keep(mut self) {
        self.obsolete = None;
    }
}

impl Drop for FileGuard {
    fn drop(&mut self) {
        if let Some(obsolete) = self.obsolete.take() {
            obsolete.remove([Gone::Stored(self.id)]);
        }
    }
}
