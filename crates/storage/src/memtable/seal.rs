//! Where a memtable begins and ends: the sequence numbers between which all its entries are, and
//! whether it is to take no more.

use super::MemTable;
use karst_base::sync::atomic::Ordering;
use karst_format::ids::FileNumber;
use karst_format::key::SeqNo;

/// What is known of a memtable once no write goes to it any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    /// Every entry in it has a sequence number of at most this.
    ///
    /// Invariant: when everything up to this number is visible, every insert into the memtable has
    /// ended; then it may be flushed.
    pub largest_seq: SeqNo,
    /// Entries of the family written later are in this log or a later one; so it becomes the
    /// family's log number once the memtable is in a table.
    pub next_log: FileNumber,
}

impl MemTable {
    /// Says that everything up to `seq` was written before it. The first call counts.
    pub fn begins_behind(&self, seq: SeqNo) {
        // Why ignored: what was known first is as true.
        let _ = self.begun_behind.set(seq);
    }

    /// Every entry in it has a sequence number above this; 0 where nobody has said it.
    pub fn begun_behind(&self) -> SeqNo {
        self.begun_behind.get().copied().unwrap_or_default()
    }

    /// Says that no further write goes to it. Called once, under the lock that orders writes.
    ///
    /// # Panics
    /// When it was sealed before.
    pub fn seal(&self, seal: Seal) {
        assert!(self.sealed.set(seal).is_ok(), "a memtable is sealed once");
        if let Some(charge) = self.charge.get() {
            charge.seal();
        }
    }

    /// Whether the caller is the first to find that it should be sealed.
    #[inline]
    pub fn ask_to_be_sealed(&self) -> bool {
        // Ordering: whoever is first tells; nothing is published with it.
        !self.asked.load(Ordering::Relaxed) && !self.asked.swap(true, Ordering::Relaxed)
    }

    /// Whether somebody was told that it should be sealed.
    pub fn is_asked_to_be_sealed(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Says that it has grown past the size at which somebody was told to seal it. No write is
    /// ordered into it from then on.
    #[cold]
    pub fn mark_overfull(&self) {
        // Ordering: it steers only; writes that are under way come on top either way.
        self.overfull.store(true, Ordering::Relaxed);
    }

    /// Whether writes wait until it is sealed.
    #[inline]
    pub fn is_overfull(&self) -> bool {
        self.overfull.load(Ordering::Relaxed)
    }

    /// The seal; `None` while writes go to it.
    #[inline]
    pub fn sealed(&self) -> Option<Seal> {
        self.sealed.get().copied()
    }

    /// Whether nothing up to `seq` went to a memtable that took its place; `seq` was taken when
    /// this was known to be the newest, or later.
    #[inline]
    pub fn has_all_to(&self, seq: SeqNo) -> bool {
        self.sealed().is_none_or(|seal| seal.largest_seq >= seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use karst_format::comparator::Comparator;

    #[test]
    fn what_was_said_first_of_the_beginning_counts() {
        let memtable = MemTable::new(Comparator::Bytewise);
        assert_eq!(memtable.begun_behind(), SeqNo(0));
        memtable.begins_behind(SeqNo(7));
        memtable.begins_behind(SeqNo(9));
        assert_eq!(memtable.begun_behind(), SeqNo(7));
    }
}
