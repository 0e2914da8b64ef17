//! Bounds of a memtable: the sequence numbers between which its entries lie, and its seal.

use super::MemTable;
use karst_base::sync::atomic::Ordering;
use karst_format::ids::FileNumber;
use karst_format::key::SeqNo;

/// The final state of a memtable that accepts no more writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    /// Every entry has a sequence number of at most this.
    ///
    /// Invariant: once everything up to this number is visible, every insert into the memtable has
    /// ended, and it may be flushed.
    pub largest_seq: SeqNo,
    /// Later entries of the family are in this log or a later one; it becomes the family's log
    /// number once the memtable is in a table.
    pub next_log: FileNumber,
}

impl MemTable {
    /// Records that everything up to `seq` was written before it. Only the first call has an
    /// effect.
    pub fn begins_behind(&self, seq: SeqNo) {
        // Ignored because the first bound is valid too.
        let _ = self.begun_behind.set(seq);
    }

    /// Returns a sequence number below every entry's; 0 if unknown.
    pub fn begun_behind(&self) -> SeqNo {
        self.begun_behind.get().copied().unwrap_or_default()
    }

    /// Seals the memtable: no further write goes to it. Called once, under the lock that orders
    /// writes.
    ///
    /// # Panics
    /// If it is already sealed.
    pub fn seal(&self, seal: Seal) {
        assert!(self.sealed.set(seal).is_ok(), "a memtable is sealed once");
        if let Some(charge) = self.charge.get() {
            charge.seal();
        }
    }

    /// Returns true for the first caller, which must have it sealed.
    #[inline]
    pub fn ask_to_be_sealed(&self) -> bool {
        // Ordering: the first caller acts; no other data is published.
        !self.asked.load(Ordering::Relaxed) && !self.asked.swap(true, Ordering::Relaxed)
    }

    /// Returns true if a caller was asked to have it sealed.
    pub fn is_asked_to_be_sealed(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Marks it as larger than the size at which it should have been sealed. No write is ordered
    /// into it from then on.
    #[cold]
    pub fn mark_overfull(&self) {
        // Ordering: advisory; writes under way are added in any case.
        self.overfull.store(true, Ordering::Relaxed);
    }

    /// Returns true if writes must wait until it is sealed.
    #[inline]
    pub fn is_overfull(&self) -> bool {
        self.overfull.load(Ordering::Relaxed)
    }

    /// Returns the seal; `None` while it accepts writes.
    #[inline]
    pub fn sealed(&self) -> Option<Seal> {
        self.sealed.get().copied()
    }

    /// Returns true if no write up to `seq` went to a successor of this memtable; `seq` was read
    /// when this was known to be the active one, or later.
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
