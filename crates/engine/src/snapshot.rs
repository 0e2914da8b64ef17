//! Snapshots: a sequence number to read at, kept in a list while anyone reads at it.
//!
//! In: the sequence number that was visible when the snapshot was taken. Out: a handle to put into `ReadOptions`, and for jobs
//! that drop old entries the list of numbers still read at.
//! Lock: the list's own; held to add, remove or copy, never while waiting.

use karst_format::key::SeqNo;
use karst_lsm::SnapshotList;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The snapshots of one database.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    held: Mutex<SnapshotList>,
    /// Below it nobody reads any more, though somebody did; see [`Snapshots::released_below`].
    released_below: AtomicU64,
}

impl Snapshots {
    /// Takes a snapshot at `visible()`, which is asked under the lock with which jobs copy the list.
    /// Why: a number taken before the lock could be dropped by a job that copies the list in between.
    pub(crate) fn take(self: &Arc<Self>, visible: impl FnOnce() -> SeqNo, now_s: u64) -> Snapshot {
        let mut held = self.held.lock();
        let seq = visible();
        held.acquire(seq, now_s);
        Snapshot(Arc::new(Held { seq, list: self.clone() }))
    }

    /// How many snapshots are held, and when the oldest was taken (Unix time in seconds).
    pub(crate) fn count_and_oldest_s(&self) -> (usize, Option<u64>) {
        let held = self.held.lock();
        (held.len(), held.oldest_time_s())
    }

    /// Every sequence number read at, ascending. For jobs, which copy it once everything that they read is visible.
    pub(crate) fn sequences(&self) -> Vec<SeqNo> {
        self.held.lock().sequences().collect()
    }

    /// A sequence number below which nobody reads any more since a snapshot was released; 0 while none was. Files that were written while it was held may keep
    /// entries for it in vain.
    pub(crate) fn released_below(&self) -> SeqNo {
        // Ordering: advice for pickers only.
        SeqNo(self.released_below.load(Ordering::Relaxed))
    }

    /// The smallest sequence number read at.
    pub(crate) fn oldest(&self) -> Option<SeqNo> {
        self.held.lock().oldest()
    }
}

/// The database as it was at one moment. Cloning is cheap; the moment is kept while any clone, or any read made with one, lives.
#[derive(Clone, Debug)]
pub struct Snapshot(Arc<Held>);

#[derive(Debug)]
struct Held {
    seq: SeqNo,
    list: Arc<Snapshots>,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut held = self.list.held.lock();
        held.release(self.seq);
        let below = held.oldest().unwrap_or(self.seq);
        self.list.released_below.fetch_max(below.0, Ordering::Relaxed);
    }
}

impl Snapshot {
    /// The sequence number it reads at.
    pub fn sequence_number(&self) -> u64 {
        self.0.seq.0
    }

    /// The same, typed.
    #[inline]
    pub(crate) fn seq(&self) -> SeqNo {
        self.0.seq
    }

    /// Whether it was taken from the database that has this list.
    pub(crate) fn belongs_to(&self, list: &Arc<Snapshots>) -> bool {
        Arc::ptr_eq(&self.0.list, list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_held_while_any_clone_lives() {
        let list = Arc::new(Snapshots::default());
        let a = list.take(|| SeqNo(7), 100);
        let b = a.clone();
        let c = list.take(|| SeqNo(9), 200);
        assert_eq!(list.count_and_oldest_s(), (2, Some(100)));
        drop(a);
        assert_eq!(list.released_below(), SeqNo::ZERO);
        assert_eq!((list.oldest(), b.sequence_number()), (Some(SeqNo(7)), 7));
        drop(b);
        assert_eq!((list.oldest(), list.count_and_oldest_s()), (Some(SeqNo(9)), (1, Some(200))));
        assert!(c.belongs_to(&list) && !c.belongs_to(&Arc::default()));
        assert_eq!(list.released_below(), SeqNo(9));
        drop(c);
        assert_eq!(list.oldest(), None);
    }
}
