//! Removal of obsolete files, and guards of files that are being written.
//!
//! In: tables and blob files when the last version with them is dropped, logs and MANIFESTs that an
//! install supersedes, guards of files whose job failed. Out: the files removed, on a thread that
//! may block.
//!
//! Invariants:
//! - A file is removed only after the MANIFEST in force is known not to name it: while the outcome
//!   of a MANIFEST write is unknown, nothing is removed.
//! - Nothing is removed while a [`Hold`] lives or the user has disabled removals, after the
//!   database is closed, or by a process forked from the one that opened it, because its parent may
//!   still use the files. In these cases logs are not recycled or archived either.
//! - The lock on the database is released after the last removal has ended. Trash is no longer a
//!   file of the database: with an `SstFileManager` a removal ends with the rename to trash.
//!
//! Lock: the queue's own; held to change it, never while a file is removed.

use super::Versions;
use crate::claims::Claims;
use karst_base::error::Error;
use karst_base::events::{Events, FileDeletionInfo};
use karst_base::sync::Event;
use karst_base::sync::Mutex;
use karst_commit::wal::archive::Archive;
use karst_commit::wal::retired::RetiredLogs;
use karst_format::file_name::FileName;
use karst_format::ids::FileNumber;
use karst_io::{Env, FileLock, OwnProcess, report};
use karst_lsm::{Reaper, StoredId, StoredKind};
use karst_storage::open_files::Shared;
use karst_storage::table::writer::NewFiles;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};

/// A file to remove.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Gone {
    /// A table or a blob file.
    Stored(StoredId),
    /// A file found at this path that no tree has, although a tree may have another file of its
    /// number.
    Left(PathBuf),
    /// A log.
    Wal(FileNumber),
    /// Any other file of the database's own directory.
    Named(FileName),
}

/// Queue of files to remove, and the conditions for removing them.
pub(crate) struct ObsoleteFiles {
    env: Env,
    path: PathBuf,
    wal_path: PathBuf,
    shared: Arc<Shared>,
    retired_logs: Arc<RetiredLogs>,
    /// Locks on the directories outside `path`.
    claims: Claims,
    this: Weak<ObsoleteFiles>,
    queue: Mutex<Queue>,
    /// Signalled when a removal has ended.
    ended: Event,
    process: OwnProcess,
    /// Receives removals, once set.
    events: OnceLock<Arc<Events>>,
}

#[derive(Default)]
struct Queue {
    waiting: BTreeSet<Gone>,
    /// Files that could not be removed; retried with the next removal.
    failed: BTreeSet<Gone>,
    holds: usize,
    /// Number of `disable` calls without a matching `enable`.
    disabled: u64,
    /// The outcome of a MANIFEST write is unknown, so the files that it names are unknown too.
    uncertain: bool,
    removing: bool,
    /// Files are removed without the delete rate.
    at_once: bool,
    closed: bool,
    lock: Option<Box<dyn FileLock>>,
}

impl std::fmt::Debug for ObsoleteFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let queue = self.queue.lock();
        f.debug_struct("ObsoleteFiles")
            .field("waiting", &queue.waiting)
            .field("holds", &queue.holds)
            .field("disabled", &queue.disabled)
            .field("uncertain", &queue.uncertain)
            .finish_non_exhaustive()
    }
}

impl ObsoleteFiles {
    /// Creates an empty queue. `lock` is the lock on the database in `path`, whose logs are in
    /// `wal_path`, and `claims` holds those on its other directories.
    pub(crate) fn new(
        shared: Arc<Shared>,
        path: PathBuf,
        wal_path: PathBuf,
        retired_logs: Arc<RetiredLogs>,
        (lock, claims): (Box<dyn FileLock>, Claims),
    ) -> Arc<ObsoleteFiles> {
        let queue = Mutex::new(Queue { lock: Some(lock), ..Queue::default() });
        let env = shared.env.clone();
        Arc::new_cyclic(|this| ObsoleteFiles {
            env,
            path,
            wal_path,
            shared,
            retired_logs,
            claims,
            this: this.clone(),
            queue,
            ended: Event::new(),
            process: OwnProcess::new(),
            events: OnceLock::new(),
        })
    }

    /// Sends the removals of tables and blob files to `events` from now on.
    pub(crate) fn tell(&self, events: &Arc<Events>) {
        let _ = self.events.set(events.clone());
    }

    /// Takes an obsolete log to recycle as the next log's file; None while files are kept. The
    /// caller owns it.
    pub(crate) fn take_spare_log(&self) -> Option<FileNumber> {
        let queue = self.queue.lock();
        // Taken under the lock, so that a caller that begins to keep files finds it either taken or
        // kept.
        if queue.may_remove() { self.retired_logs.take() } else { None }
    }

    /// Logs available for recycling.
    pub(crate) fn retired_logs(&self) -> &Arc<RetiredLogs> {
        &self.retired_logs
    }

    /// Locks on the directories outside the database's own.
    pub(crate) fn claims(&self) -> &Claims {
        &self.claims
    }

    /// Queues these files for removal as soon as it is allowed. Does not wait.
    pub(crate) fn remove(&self, files: impl IntoIterator<Item = Gone>) {
        if !self.process.is_current() {
            return;
        }
        let mut queue = self.queue.lock();
        queue.waiting.extend(files);
        self.start(&mut queue);
    }

    /// Removes files without the delete rate from now on, or with it again.
    pub(crate) fn remove_at_once(&self, at_once: bool) {
        self.queue.lock().at_once = at_once;
    }

    /// Suspends removals until [`certain`](Self::certain).
    pub(super) fn uncertain(&self) {
        self.queue.lock().uncertain = true;
    }

    /// Resumes removals, because a MANIFEST with known content is in force.
    pub(super) fn certain(&self) {
        let mut queue = self.queue.lock();
        queue.uncertain = false;
        self.start(&mut queue);
    }

    /// Keeps all existing files until the hold is dropped, for copying them. No removal is in
    /// progress when it returns.
    pub(crate) async fn hold(self: &Arc<Self>) -> Hold {
        self.queue.lock().holds += 1;
        let hold = Hold(self.clone());
        self.removed().await;
        hold
    }

    /// Disables removals until [`enable`](Self::enable) was called as many times. No removal is in
    /// progress when it returns. Takes effect at the first poll.
    pub(crate) async fn disable(&self) {
        self.queue.lock().disabled += 1;
        self.removed().await;
    }

    /// Reverts one [`disable`](Self::disable), if any. When it returns, all files that may be
    /// removed are. Takes effect at the first poll.
    pub(crate) async fn enable(&self) {
        {
            let mut queue = self.queue.lock();
            queue.disabled = queue.disabled.saturating_sub(1);
            self.start(&mut queue);
        }
        self.removed().await;
    }

    /// Returns true if removals are neither held nor disabled.
    pub(crate) fn is_enabled(&self) -> bool {
        let queue = self.queue.lock();
        queue.holds == 0 && queue.disabled == 0
    }

    /// Waits until what could be removed is.
    pub(crate) async fn removed(&self) {
        loop {
            let ended = self.ended.listen();
            if !self.queue.lock().removing {
                return;
            }
            ended.await;
        }
    }

    /// Removes all files that may be removed, and releases the lock on the database. Nothing is
    /// removed after that. A second call only waits.
    pub(crate) async fn close(&self) {
        self.remove(self.retired_logs.close().into_iter().map(Gone::Wal));
        let mut tried_again = false;
        loop {
            let ended = self.ended.listen();
            {
                let mut queue = self.queue.lock();
                if !queue.removing && !std::mem::replace(&mut tried_again, true) {
                    let failed = std::mem::take(&mut queue.failed);
                    queue.waiting.extend(failed);
                }
                self.start(&mut queue);
                if !queue.removing {
                    queue.closed = true;
                    let lock = queue.lock.take();
                    drop(queue);
                    if let Some(space) = &self.shared.space {
                        let places = self.shared.all_places().into_iter();
                        space.forget(&places.map(|(_, directory)| directory).collect::<Vec<_>>());
                    }
                    // Released before the lock, because the next opener that gets the lock needs
                    // these directories too.
                    self.claims.give_back();
                    return drop(lock);
                }
            }
            ended.await;
        }
    }

    fn start(&self, queue: &mut Queue) {
        if queue.removing || !queue.may_remove() || queue.waiting.is_empty() {
            return;
        }
        let Some(this) = self.this.upgrade() else { return };
        queue.removing = true;
        drop(self.env.run_blocking(move |_| this.purge()));
    }

    /// Removes all files that may be removed. The caller has set `removing`.
    fn purge(&self) {
        let mut retry = std::mem::take(&mut self.queue.lock().failed);
        loop {
            let mut batch = {
                let mut queue = self.queue.lock();
                let may = queue.may_remove();
                if queue.waiting.is_empty() && retry.is_empty() || !may {
                    queue.failed.append(&mut retry);
                    queue.removing = false;
                    drop(queue);
                    self.ended.notify(usize::MAX);
                    return;
                }
                let mut batch = std::mem::take(&mut queue.waiting);
                batch.append(&mut retry);
                batch
            };
            while let Some(gone) = batch.pop_first() {
                if !self.remove_one(&gone) {
                    self.queue.lock().failed.insert(gone);
                }
                // Checked after each file, because a caller that wants to keep files should wait
                // for one removal at most.
                let mut queue = self.queue.lock();
                if !queue.may_remove() {
                    queue.waiting.append(&mut batch);
                }
            }
            if let Some(archive) = &self.retired_logs.archive
                && self.queue.lock().may_remove()
            {
                archive.purge(&self.env);
            }
        }
    }

    /// Moves a log to the archive. Returns true if it is gone from its place.
    fn archive(&self, archive: &Archive, log: FileNumber) -> bool {
        match archive.take(&self.env, log) {
            Ok(()) => true,
            Err(e) if e.is_not_found() => true,
            Err(error) => {
                report!(warn, %log, %error, "a log could not be archived");
                false
            }
        }
    }

    /// Removes a file. Returns true if it is gone.
    fn remove_one(&self, gone: &Gone) -> bool {
        let path = match *gone {
            Gone::Stored(id) => return self.remove_stored(gone, id),
            Gone::Left(ref path) => path.clone(),
            Gone::Wal(number) if self.retired_logs.keeps(number) => return true,
            Gone::Wal(number) if let Some(archive) = &self.retired_logs.archive => {
                return self.archive(archive, number);
            }
            Gone::Wal(number) => self.wal_path.join(FileName::Wal(number).to_string()),
            Gone::Named(name) => self.path.join(name.to_string()),
        };
        self.remove_at(gone, path).unwrap_or(true)
    }

    /// Removes a table or blob file. Returns true if it is gone.
    ///
    /// Tries the directories of all families, because the file's family may be closed, and numbers
    /// are unique in a database.
    fn remove_stored(&self, gone: &Gone, id: StoredId) -> bool {
        self.shared.open_files.forget(id.number);
        let name = match id.kind {
            StoredKind::Table => FileName::Table(id.number),
            StoredKind::Blob => FileName::Blob(id.number),
        };
        let places = self.shared.all_places().into_iter().filter(|(path_id, _)| *path_id == id.path_id);
        let mut removed = places.map(|(_, directory)| self.remove_at(gone, directory.join(name.to_string())));
        removed.find_map(|removed| removed).unwrap_or(true)
    }

    /// Removes the file at `path`. Returns true if it is gone; `None` if it did not exist.
    fn remove_at(&self, gone: &Gone, path: PathBuf) -> Option<bool> {
        match self.remove_file(gone, &path) {
            Ok(()) => {
                report!(debug, file = %path.display(), "removed");
                self.tell_removed(gone, path, None);
                Some(true)
            }
            Err(e) if e.is_not_found() => None,
            Err(e) => {
                report!(warn, file = %path.display(), error = %e, "an obsolete file could not be removed");
                self.tell_removed(gone, path, Some(e));
                Some(false)
            }
        }
    }

    fn remove_file(&self, gone: &Gone, path: &Path) -> karst_io::Result<()> {
        // Compat: RocksDB's SstFileManager removes files that may be large and lie beside the
        // tables.
        let is_its = match gone {
            Gone::Stored(_) | Gone::Left(_) => true,
            Gone::Wal(_) => self.wal_path == self.path,
            Gone::Named(_) => false,
        };
        // No file is counted that is removed at once: only an opening asks for that, and it removes
        // logs and files that are in no tree.
        let is_its = is_its && !self.queue.lock().at_once;
        match self.shared.space.as_ref().filter(|_| is_its) {
            Some(space) => space.remove(&self.env, &self.shared.stats, path),
            None => self.env.fs().remove(path),
        }
    }

    /// Removes trash that this process or another left behind.
    pub(crate) fn remove_trash(&self, trash: Vec<PathBuf>) {
        for path in trash {
            match &self.shared.space {
                Some(space) => space.adopt(&self.env, &self.shared.stats, path),
                None => {
                    if let Err(error) = self.env.fs().remove(&path)
                        && !error.is_not_found()
                    {
                        report!(warn, %error, "trash could not be removed");
                    }
                }
            }
        }
    }

    /// Removes trash that another process left behind, without the delete rate.
    pub(crate) fn remove_trash_at_once(&self, trash: &[PathBuf]) {
        for path in trash {
            // Ignored, because it is removed again once the database is open.
            let _ = self.env.fs().remove(path);
        }
    }

    fn tell_removed(&self, gone: &Gone, path: PathBuf, error: Option<karst_io::Error>) {
        let is_table = match gone {
            Gone::Stored(StoredId { kind, .. }) => *kind == StoredKind::Table,
            Gone::Left(path) => path.extension().is_some_and(|end| end == "sst"),
            Gone::Wal(_) | Gone::Named(_) => return,
        };
        if let Some(events) = self.events.get() {
            let info = FileDeletionInfo::new(path, error.map(Error::from));
            events.file_deleted(is_table, &info);
        }
    }

    /// Returns true while files are being removed.
    #[cfg(test)]
    pub(super) fn is_removing(&self) -> bool {
        self.queue.lock().removing
    }

    /// Returns the files that wait for removal.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> Vec<Gone> {
        self.queue.lock().waiting.iter().cloned().collect()
    }
}

impl Queue {
    fn may_remove(&self) -> bool {
        self.holds == 0 && self.disabled == 0 && !self.uncertain && !self.closed
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

/// Guard of a table or blob file that is being written. Pass it to
/// [`Change::files`](super::Change) with the edit that adds the file; otherwise its drop removes
/// the file.
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

    /// Releases the file, which is now part of the database.
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

/// The files of one job, each with its guard.
#[derive(Debug)]
pub(crate) struct JobFiles {
    versions: Arc<Versions>,
    path_id: u8,
    /// Lock: held to add guards or to take all.
    guards: Mutex<Vec<FileGuard>>,
}

impl JobFiles {
    pub(super) fn new(versions: Arc<Versions>, path_id: u8) -> Arc<JobFiles> {
        Arc::new(JobFiles { versions, path_id, guards: Mutex::default() })
    }

    /// Takes the guards of all files so far, for [`Change::files`](super::Change).
    pub(crate) fn take(&self) -> Vec<FileGuard> {
        std::mem::take(&mut *self.guards.lock())
    }

    fn guarded(&self, guard: FileGuard) -> FileNumber {
        let number = guard.number();
        self.guards.lock().push(guard);
        number
    }
}

impl NewFiles for JobFiles {
    fn new_table(&self) -> FileNumber {
        self.guarded(self.versions.new_table(self.path_id))
    }

    fn new_blob_file(&self) -> FileNumber {
        self.guarded(self.versions.new_blob_file())
    }
}
