//! Numbers for the files of a job, each with the guard that keeps the file while it is being
//! written and removes it if the job fails.

use crate::versions::{FileGuard, Versions};
use karst_base::sync::Mutex;
use karst_format::ids::FileNumber;
use karst_storage::table::writer::NewFiles;
use std::collections::BTreeSet;
use std::sync::Arc;

/// See the module.
pub(crate) struct GuardedFiles {
    versions: Arc<Versions>,
    path_id: u8,
    /// Lock: held to add one or to take all.
    guards: Mutex<Vec<FileGuard>>,
}

impl GuardedFiles {
    /// For tables in the directory that the MANIFEST knows under `path_id`.
    pub(crate) fn new(versions: Arc<Versions>, path_id: u8) -> Arc<GuardedFiles> {
        Arc::new(GuardedFiles { versions, path_id, guards: Mutex::default() })
    }

    /// The guards of the files that are to be installed. Those of other files are dropped, and so
    /// are the files.
    pub(crate) fn take(&self, installed: &BTreeSet<FileNumber>) -> Vec<FileGuard> {
        let mut guards = std::mem::take(&mut *self.guards.lock());
        guards.retain(|guard| installed.contains(&guard.number()));
        guards
    }

    fn keep(&self, guard: FileGuard) -> FileNumber {
        let number = guard.number();
        self.guards.lock().push(guard);
        number
    }
}

impl NewFiles for GuardedFiles {
    fn new_table(&self) -> FileNumber {
        self.keep(self.versions.new_table(self.path_id))
    }

    fn new_blob_file(&self) -> FileNumber {
        self.keep(self.versions.new_blob_file())
    }
}

impl std::fmt::Debug for GuardedFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GuardedFiles").field("guards", &self.guards.lock().len()).finish_non_exhaustive()
    }
}
