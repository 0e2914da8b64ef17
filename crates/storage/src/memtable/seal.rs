//! Where a memtable begins and ends: the sequence numbers between which all its entries are.

use super::MemTable;
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
