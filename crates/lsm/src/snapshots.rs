//! Snapshot list: the sequence numbers that readers still need.
//!
//! In: the sequence number of each snapshot when it is taken and released. Out: the distinct
//! numbers in order, for the jobs that decide which old entries may be dropped.
//!
//! Invariant: every number in the list has at least one holder. The list has no lock; its owner
//! guards it.
use karst_format::key::SeqNo;
use std::collections::BTreeMap;

/// The sequence numbers of live snapshots, each with its number of holders.
#[derive(Clone, Debug, Default)]
pub struct SnapshotList {
    held: BTreeMap<SeqNo, Holders>,
    count: usize,
}

#[derive(Clone, Copy, Debug)]
struct Holders {
    count: usize,
    /// Time at which the first of them was taken, Unix time in seconds.
    since_s: u64,
}

impl SnapshotList {
    /// Returns a list without snapshots.
    pub fn new() -> SnapshotList {
        SnapshotList::default()
    }

    /// Adds a snapshot at `seq`, taken at the Unix time `now_s`, in seconds.
    pub fn acquire(&mut self, seq: SeqNo, now_s: u64) {
        self.held.entry(seq).or_insert(Holders { count: 0, since_s: now_s }).count += 1;
        self.count += 1;
    }

    /// Releases a snapshot at `seq`. Returns true if it was the last one at this number.
    ///
    /// # Panics
    /// When no snapshot at `seq` is held, which is a bug of the caller.
    pub fn release(&mut self, seq: SeqNo) -> bool {
        let holders = self.held.get_mut(&seq).expect("a snapshot is released once");
        holders.count -= 1;
        let last = holders.count == 0;
        if last {
            self.held.remove(&seq);
        }
        self.count -= 1;
        last
    }

    /// Returns the number of snapshots held.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns true if no snapshot is held.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the smallest sequence number of a snapshot.
    pub fn oldest(&self) -> Option<SeqNo> {
        self.held.keys().next().copied()
    }

    /// Returns the largest sequence number of a snapshot.
    pub fn newest(&self) -> Option<SeqNo> {
        self.held.keys().next_back().copied()
    }

    /// Returns the time at which the oldest snapshot was taken, Unix time in seconds.
    pub fn oldest_time_s(&self) -> Option<u64> {
        self.held.values().next().map(|holders| holders.since_s)
    }

    /// Returns the distinct numbers, ascending.
    pub fn sequences(&self) -> impl DoubleEndedIterator<Item = SeqNo> + '_ {
        self.held.keys().copied()
    }

    /// Returns true if a snapshot sees the entry at `older`, although the entry of the same key at
    /// `newer` hides it from later readers: its number is in `[older, newer)`.
    pub fn separates(&self, older: SeqNo, newer: SeqNo) -> bool {
        older < newer && self.held.range(older..newer).next().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_are_counted_by_number() {
        let mut list = SnapshotList::new();
        list.acquire(SeqNo(7), 100);
        list.acquire(SeqNo(3), 200);
        list.acquire(SeqNo(7), 300);
        assert_eq!((list.len(), list.oldest(), list.newest()), (3, Some(SeqNo(3)), Some(SeqNo(7))));
        assert_eq!(list.oldest_time_s(), Some(200));
        assert!(!list.release(SeqNo(7)));
        assert!(list.release(SeqNo(7)));
        assert_eq!(list.sequences().collect::<Vec<_>>(), [SeqNo(3)]);
        assert!(list.release(SeqNo(3)));
        assert!(list.is_empty());
        assert_eq!((list.oldest(), list.oldest_time_s()), (None, None));
    }

    #[test]
    fn a_snapshot_separates_what_it_sees_from_what_it_does_not() {
        let mut list = SnapshotList::new();
        list.acquire(SeqNo(10), 0);
        assert!(list.separates(SeqNo(10), SeqNo(11)));
        assert!(list.separates(SeqNo(9), SeqNo(11)));
        assert!(!list.separates(SeqNo(9), SeqNo(10)));
        assert!(!list.separates(SeqNo(11), SeqNo(12)));
        assert!(!list.separates(SeqNo(12), SeqNo(9)));
    }

    #[test]
    #[should_panic(expected = "released once")]
    fn releasing_twice_is_a_bug() {
        let mut list = SnapshotList::new();
        list.acquire(SeqNo(1), 0);
        list.release(SeqNo(1));
        list.release(SeqNo(1));
    }
}
