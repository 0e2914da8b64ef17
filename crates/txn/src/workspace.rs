//! State common to both kinds of transactions: writes, tracked keys, snapshots and save points.
//!
//! Invariant: batch, tracked keys and snapshots have the same save points.

use crate::batch::WriteBatchWithIndex;
use crate::tracked::TrackedKeys;
use karst_engine::caller::Caller;
use karst_engine::{Db, Error, Result, Snapshot, TransactionHooks, WriteOptions};

/// State common to both kinds of transactions.
#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) db: Db,
    pub(crate) batch: WriteBatchWithIndex,
    pub(crate) tracked: TrackedKeys,
    /// Snapshot set by the user.
    snapshot: Option<Snapshot>,
    snapshot_on_next_operation: bool,
    /// Oldest snapshot taken or set, held because validation needs the entries since then.
    held: Option<Snapshot>,
    save_points: Vec<(Option<Snapshot>, bool)>,
}

impl Workspace {
    /// Creates an empty state whose batch holds at most `max_bytes` (0: no limit).
    pub(crate) fn new(db: Db, max_bytes: usize) -> Self {
        Self {
            batch: WriteBatchWithIndex::with_limit(&db, true, max_bytes),
            db,
            tracked: TrackedKeys::default(),
            snapshot: None,
            snapshot_on_next_operation: false,
            held: None,
            save_points: Vec::new(),
        }
    }

    pub(crate) fn snapshot(&self) -> Option<&Snapshot> {
        self.snapshot.as_ref()
    }

    pub(crate) fn take_snapshot(&mut self) {
        let snapshot = self.db.snapshot();
        self.held.get_or_insert_with(|| snapshot.clone());
        self.snapshot = Some(snapshot);
        self.snapshot_on_next_operation = false;
    }

    /// Sets a snapshot that was taken before.
    ///
    /// # Errors
    /// The snapshot is of another database.
    pub(crate) fn use_snapshot(&mut self, snapshot: Snapshot) -> Result<()> {
        if !TransactionHooks::of(&self.db).has_taken(&snapshot) {
            return Err(Error::invalid_argument("the snapshot is of another database"));
        }
        if self.held.as_ref().is_none_or(|held| held.sequence_number() > snapshot.sequence_number()) {
            self.held = Some(snapshot.clone());
        }
        self.snapshot = Some(snapshot);
        self.snapshot_on_next_operation = false;
        Ok(())
    }

    pub(crate) fn ask_for_snapshot(&mut self) {
        self.snapshot_on_next_operation = true;
    }

    pub(crate) fn clear_snapshot(&mut self) {
        self.snapshot = None;
        self.snapshot_on_next_operation = false;
    }

    /// Starts an operation: takes the snapshot that was asked for.
    pub(crate) fn begin_operation(&mut self) {
        if self.snapshot_on_next_operation {
            self.take_snapshot();
        }
    }

    /// Returns the sequence number after which no other writer may change a key that is tracked
    /// now. A snapshot at or below it is held from now on.
    pub(crate) fn since(&mut self) -> u64 {
        self.held.get_or_insert_with(|| self.db.snapshot());
        match &self.snapshot {
            Some(snapshot) => snapshot.sequence_number(),
            None => self.db.latest_sequence_number(),
        }
    }

    /// Writes the batch unless it is empty, with this timestamp on keys that need one.
    ///
    /// # Errors
    /// Those of [`Db::write`]; a key needs a timestamp, and `timestamp` is `None`.
    pub(crate) async fn write(
        &self,
        by: Caller,
        options: &WriteOptions,
        timestamp: Option<&[u8]>,
    ) -> Result<()> {
        // A copy, because a commit that fails may be retried at another timestamp.
        let stamped = timestamp
            .filter(|_| self.batch.write_batch().needs_timestamps())
            .map(|timestamp| self.batch.stamped(timestamp))
            .transpose()?;
        match (stamped.as_ref().unwrap_or(self.batch.write_batch()), by) {
            (batch, _) if batch.is_empty() => Ok(()),
            (batch, Caller::Thread) => self.db.write(options, batch),
            (batch, Caller::Task) => self.db.write_async(options, batch).await,
        }
    }

    pub(crate) fn set_save_point(&mut self) {
        self.batch.set_save_point();
        self.tracked.set_save_point();
        self.save_points.push((self.snapshot.clone(), self.snapshot_on_next_operation));
    }

    /// Calls `let_go` with each key that is no longer tracked.
    pub(crate) fn rollback_to_save_point(&mut self, let_go: impl FnMut(u32, &[u8])) -> Result<()> {
        self.batch.rollback_to_save_point()?;
        self.tracked.rollback_to_save_point(let_go);
        let point = self.save_points.pop().expect("all have the same save points");
        (self.snapshot, self.snapshot_on_next_operation) = point;
        Ok(())
    }

    pub(crate) fn pop_save_point(&mut self) -> Result<()> {
        self.batch.pop_save_point()?;
        self.tracked.pop_save_point();
        self.save_points.pop();
        Ok(())
    }

    /// Removes all writes, tracked keys, save points and snapshots.
    pub(crate) fn clear(&mut self) {
        self.batch.clear();
        self.tracked.clear();
        self.save_points.clear();
        self.held = None;
        self.clear_snapshot();
    }
}
