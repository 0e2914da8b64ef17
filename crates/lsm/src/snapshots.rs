//! Which sequence numbers readers still need.
//!
//! In: the sequence number of each snapshot as it is taken and given back. Out: the distinct
//! numbers in order, for the jobs that decide which old entries may go.
//!
//! Invariant: every number in the list has at least one holder. The list has no lock; its owner
//! guards it.
use karst_format::key::SeqNo;
use std::collections::BTreeMap;

/// The sequence numbers that live snapshots read at, each with what is known of its holders.
#[derive(Clone, Debug, Default)]
pub struct SnapshotList {
    held: BTreeMap<SeqNo, Holders>,
    count: usize,
}

#[derive(Clone, Copy, Debug)]
struct Holders {
    count: usize,
    /// When the first of them was taken. Unix time in seconds.
    since_s: u64,
}

impl SnapshotList {
    /// A list without snapshots.
    pub fn new() -> SnapshotList {
        SnapshotList::default()
    }

    /// A snapshot at `seq` is taken at the Unix time `now_s`, in seconds.
    pub fn acquire(&mut self, seq: SeqNo, now_s: u64) {
        self.held.entry(seq).or_insert(Holders { count: 0, since_s: now_s }).count += 1;
        self.count += 1;
    }

    /// A snapshot at `seq` is given back. Returns whether it was the last one at this number.
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

    /// How many snapshots are held.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether no snapshot is held.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The smallest number that a snapshot reads at.
    pub fn oldest(&self) -> Option<SeqNo> {
        self.held.keys().next().copied()
    }

    /// The largest number that a snapshot reads at.
    pub fn newest(&self) -> Option<SeqNo> {
        self.held.keys().next_back().copied()
    }

    /// When the oldest snapshot was taken. Unix time in seconds.
    pub fn oldest_time_s(&self) -> Option<u64> {
        self.held.values().next().map(|holders| holders.since_s)
    }

    /// The distinct numbers, ascending.
    pub fn sequences(&self) -> impl DoubleEndedIterator<Item = SeqNo> + '_ {
        self.held.keys().copied()
    }

    /// Whether a snapshot can tell an entry at `older` from the entry of the same key at `newer`
    /// that hides it: it reads at a number from `older` up to, not including, `newer`.
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
