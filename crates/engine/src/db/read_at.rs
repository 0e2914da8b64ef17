//! Where a read reads: the sequence number that it takes when it begins, and what it has to wait for.
//!
//! In: read options. Out: a sequence number with what does not count up to it, and whether everything up to it is in the memtables yet. It always is unless the database has `unordered_write` set and a write
//! is being inserted right now; then the blocking calls wait on the calling thread and the asynchronous ones as futures.
//!
//! Invariant: first the superversion is pinned, then the sequence number is taken, then waited for, and the pinned superversion is read at that number. Why not pinned anew after the
//! wait: a job may have dropped meanwhile what is read at the number.

use super::Db;
use crate::error::{Error, Result};
use crate::options::ReadOptions;
use crate::read::Gate;
use crate::snapshot::ReadAt;
use crate::table::drive::Attempt;
use karst_format::key::SeqNo;

impl Db {
    /// Everything that is visible or acknowledged now has at most this sequence number.
    #[inline]
    pub(super) fn newest_seq(&self) -> SeqNo {
        match &self.0.live {
            Some(live) => live.pipeline.read_seq(),
            None => self.0.last_seq,
        }
    }

    /// Where to read. Called after the superversion was pinned; wait for its sequence number before reading.
    #[inline]
    pub(super) fn read_at(&self, options: &ReadOptions) -> Result<ReadAt> {
        match &options.snapshot {
            None => Ok(self.0.snapshots.newest(|| self.newest_seq())),
            Some(snapshot) if snapshot.belongs_to(&self.0.snapshots) => Ok(snapshot.read_at()),
            Some(_) => Err(Error::invalid_argument("the snapshot is of another database")),
        }
    }

    #[inline]
    fn is_readable(&self, seq: SeqNo) -> bool {
        self.0.live.as_ref().is_none_or(|live| live.pipeline.is_readable(seq))
    }

    /// Blocks the calling thread until everything up to `seq` can be read.
    #[inline]
    pub(super) fn wait_until_readable(&self, seq: SeqNo) {
        if let Some(live) = self.0.live.as_ref().filter(|live| !live.pipeline.is_readable(seq)) {
            live.pipeline.wait_until_readable(seq);
        }
    }

    /// What has to be waited for before reading at `seq`, if anything.
    #[inline]
    pub(super) fn gate(&self, seq: SeqNo) -> Option<Box<dyn Gate>> {
        let live = self.0.live.as_ref().filter(|live| !live.pipeline.is_readable(seq))?;
        Some(Box::new(live.pipeline.readable(seq)))
    }

    /// `read`, at once if `seq` can be read, and otherwise when it can. `read` borrows nothing that a wait must not hold.
    #[inline]
    pub(super) fn attempt_at<'a, T: Send + 'a>(
        &self,
        seq: SeqNo,
        read: impl FnOnce() -> Attempt<'a, T> + Send + 'a,
    ) -> Attempt<'a, T> {
        if self.is_readable(seq) { read() } else { self.attempt_later(seq, read) }
    }

    #[cold]
    fn attempt_later<'a, T: Send + 'a>(
        &self,
        seq: SeqNo,
        read: impl FnOnce() -> Attempt<'a, T> + Send + 'a,
    ) -> Attempt<'a, T> {
        let gate = self.gate(seq);
        Attempt::Waiting(Box::pin(async move {
            if let Some(gate) = gate {
                gate.await;
            }
            match read() {
                Attempt::Done(value) => value,
                Attempt::Waiting(rest) => rest.await,
            }
        }))
    }
}
