//! What a log says of the one before it, so that a lost end of that one is noticed.
//!
//! In: the number of a log that ends, the sequence number behind its last record, and where that
//! ends. Out: the first record of the log that takes over: a batch without operations, and with a
//! note that only this module reads.
//!
//! Why: after a loss of power the end of a log may be gone, at the border of two records too, while
//! the log behind it is there. Without the note the history would have a hole. The sequence numbers
//! alone do not tell: writes without a log take some as well.
//! Compat: a note in a batch (`PutLogData`) means nothing to RocksDB, whatever its version. Its own
//! record for this (`track_and_verify_wals`) stops releases before 10.

use karst_format::ids::FileNumber;
use karst_format::key::SeqNo;
use karst_format::write_batch::{BatchReader, Op, WriteBatch};

/// How the note begins.
const NAME: &[u8] = b"karstdb.follows";

/// What a log says of the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Follows {
    pub(super) log: FileNumber,
    /// Behind its last record; 0 if it has none.
    pub(super) end: SeqNo,
    /// Where its last record ends. Older notes do not say.
    pub(super) size_bytes: Option<u64>,
}

impl Follows {
    /// The batch that says it, ordered at `seq`.
    pub(super) fn batch(&self, seq: SeqNo) -> WriteBatch {
        let mut note = [NAME, &self.log.0.to_le_bytes(), &self.end.0.to_le_bytes()].concat();
        if let Some(size) = self.size_bytes {
            note.extend_from_slice(&size.to_le_bytes());
        }
        let mut batch = WriteBatch::new();
        batch.push(Op::LogData(&note));
        batch.set_seq(seq);
        batch
    }

    /// What a batch says, if it is one of these.
    pub(super) fn of(batch: &BatchReader<'_>) -> Option<Follows> {
        if batch.count() > 0 {
            return None;
        }
        let Some(Ok(Op::LogData(note))) = batch.ops().next() else { return None };
        let (log, end) = note.strip_prefix(NAME)?.split_first_chunk::<8>()?;
        let (end, size) = end.split_first_chunk::<8>()?;
        let size_bytes = match size {
            [] => None,
            size => Some(u64::from_le_bytes(size.try_into().ok()?)),
        };
        let (log, end) = (FileNumber(u64::from_le_bytes(*log)), SeqNo(u64::from_le_bytes(*end)));
        Some(Follows { log, end, size_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_read_and_nothing_else() {
        for size_bytes in [None, Some(1000)] {
            let follows = Follows { log: FileNumber(7), end: SeqNo(99), size_bytes };
            let batch = follows.batch(SeqNo(104));
            assert_eq!((batch.reader().seq(), Follows::of(&batch.reader())), (SeqNo(104), Some(follows)));
        }
        let of = |ops: &[Op<'_>]| {
            let mut batch = WriteBatch::new();
            ops.iter().for_each(|op| batch.push(*op));
            Follows::of(&batch.reader())
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[Op::LogData(b"karstdb.follows")]), None);
        assert_eq!(of(&[Op::LogData(b"karstdb.follows 1234567 12345678 and more")]), None);
        assert_eq!(of(&[Op::LogData(b"a user's note")]), None);
    }
}
