//! A change to install, and the future with its outcome.
//!
//! In: edits with the objects that belong to them (flushed memtables, guards of new files, a new
//! family). Out: the outcome, once the MANIFEST is synced and the new versions are published.
//!
//! Invariant: a queued change is installed even if its caller no longer waits; dropping a job in
//! the middle of its install therefore cannot remove a file that the MANIFEST names.

use super::obsolete::FileGuard;
use crate::sealing::TakenNumbers;
use karst_base::error::{Error, ErrorKind, Result};
use karst_base::sync::Mutex;
use karst_format::ids::{ColumnFamilyId, FileNumber};
use karst_format::key::SeqNo;
use karst_format::version_edit::VersionEdit;
use karst_lsm::{FileCounts, Version};
use karst_storage::column_family::Family;
use karst_storage::memtable::MemTable;
use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// A change to the database's state, applied atomically.
#[derive(Debug, Default)]
pub(crate) struct Change {
    /// The edits, in order. Several edits of trees are one atomic group, and so is the creation of
    /// a family with the edit that adds its tables. The install fills in `next_file_number`,
    /// `last_sequence`, `prev_log_number`, `min_log_number_to_keep` and the group's counts.
    pub(crate) edits: Vec<VersionEdit>,
    /// Sealed memtables whose entries are in tables that the edits add.
    pub(crate) flushed: Vec<(ColumnFamilyId, Vec<Arc<MemTable>>)>,
    /// Guards of the files that the edits add. If the change fails, its guards remove the files as
    /// soon as that is safe.
    pub(crate) files: Vec<FileGuard>,
    /// Entry counts of the tables that the edits add.
    pub(crate) counts: Vec<(FileNumber, FileCounts)>,
    /// First log that any family needs from now on. Applies to the families that exist when the
    /// change is staged: their older entries are in tables, including those of this change.
    pub(crate) first_log: Option<FileNumber>,
    /// Set if the edits add ingested files: readers at this sequence number or a later one must see
    /// them. The number is not visible yet.
    pub(crate) ingested: Option<SeqNo>,
    /// Sequence numbers of ingested files, if some entries have older ones: readers at any number
    /// must then see all of the files or none, in all families. If all entries have numbers of
    /// their own, the caller keeps them.
    pub(crate) at_once: Option<TakenNumbers>,
    /// The column family that the edits create. The install fills in its log number.
    pub(crate) created: Option<Arc<Family>>,
}

impl Change {
    /// Creates a change of one edit.
    pub(crate) fn edit(edit: VersionEdit) -> Change {
        Change { edits: vec![edit], ..Change::default() }
    }
}

/// A change that waits for its turn.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) change: Change,
    outcome: Arc<Outcome>,
}

#[derive(Debug, Default)]
struct Outcome(Mutex<(Option<Result<()>>, Option<Waker>)>);

impl Request {
    pub(super) fn new(change: Change) -> (Request, Installed) {
        let outcome = Arc::new(Outcome::default());
        (Request { change, outcome: outcome.clone() }, Installed(outcome))
    }

    /// Releases the guards of the files that the edits add. Other guards stay, and remove files
    /// that the job began and did not need.
    pub(super) fn keep_files(&mut self) {
        let edits = &self.change.edits;
        let tables = edits.iter().flat_map(|edit| &edit.new_files).map(|(_, file)| file.number);
        let blobs = edits.iter().flat_map(|edit| &edit.blob_file_additions).map(|file| file.number);
        let added: BTreeSet<FileNumber> = tables.chain(blobs).collect();
        let guards = std::mem::take(&mut self.change.files).into_iter();
        guards.filter(|guard| added.contains(&guard.number())).for_each(FileGuard::keep);
    }

    /// Passes the entry counts to the files that the change adds to `version`.
    pub(super) fn tell_counts(&self, version: &Version) {
        let known = |number: FileNumber| self.change.counts.iter().find(|(of, _)| *of == number);
        let added = self.change.edits.iter().flat_map(|edit| &edit.new_files);
        for (level, new) in added {
            let Some((_, counts)) = known(new.number) else { continue };
            if let Some(file) = version.files(*level).iter().find(|file| file.number == new.number) {
                file.learn_counts(*counts);
            }
        }
    }

    /// Returns the sequence number from which readers must see the files ingested into this family,
    /// or None.
    pub(super) fn ingests_into(&self, family: ColumnFamilyId) -> Option<SeqNo> {
        let adds = self.change.edits.iter().any(|edit| edit.column_family == family);
        self.change.ingested.filter(|_| adds)
    }

    /// Passes the outcome to the caller.
    pub(super) fn complete(self, result: Result<()>) {
        self.outcome.set(result);
    }
}

impl Outcome {
    fn set(&self, result: Result<()>) {
        let mut state = self.0.lock();
        if state.0.is_some() {
            return;
        }
        state.0 = Some(result);
        let waker = state.1.take();
        drop(state);
        if let Some(waker) = waker {
            karst_io::wake(waker);
        }
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        // An install that ended in a panic must not leave its caller waiting.
        self.outcome.set(Err(Error::new(ErrorKind::Panicked, "a change to the MANIFEST was given up")));
    }
}

/// The outcome of an install. Dropping it does not stop the install.
#[derive(Debug)]
#[must_use = "an install may fail"]
pub(crate) struct Installed(Arc<Outcome>);

impl Future for Installed {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let mut state = self.0.0.lock();
        if let Some(result) = &state.0 {
            return Poll::Ready(result.clone());
        }
        let old = state.1.replace(cx.waker().clone());
        drop(state);
        drop(old);
        Poll::Pending
    }
}
