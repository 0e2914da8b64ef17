//! Numbers of a job's new files, each with the guard that keeps the file while it is being written
//! and removes it if the job fails.

use crate::versions::{FileGuard, Versions};
use karst_base::sync::Mutex;
use karst_format::ids::FileNumber;
use karst_storage::table::writer::NewFiles;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Allocates file numbers and holds their guards.
pub(crate) struct GuardedFiles {
    versions: Arc<Versions>,
    path_id: u8,
    /// Lock: held to add one guard or to take all.
    guards: Mutex<Vec<FileGuard>>,
}

impl GuardedFiles {
    /// Creates the guards of tables in the directory that the MANIFEST records under `path_id`.
    pub(crate) fn new(versions: Arc<Versions>, path_id: u8) -> Arc<GuardedFiles> {
        Arc::new(GuardedFiles { versions, path_id, guards: Mutex::default() })
    }

    /// Takes the guards of the files that will be installed. The other guards are dropped, which
    /// removes their files.
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
