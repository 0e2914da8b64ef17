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
use karst_format::log::{LogEvent, LogReader, RecoveryMode};
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

/// Whether a log has nothing but its note, so that a copy of it can do without if no older log goes
/// with it.
pub fn is_only_a_note(bytes: &[u8], log: FileNumber) -> bool {
    let mut reader = LogReader::new(bytes, log, RecoveryMode::AbsoluteConsistency);
    while let Some(event) = reader.next_event() {
        let LogEvent::Record(record) = event else { return false };
        if !BatchReader::parse(record.bytes).is_ok_and(|batch| Follows::of(&batch).is_some()) {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use karst_format::log::LogWriter;

    #[test]
    fn a_log_of_a_note_is_told_from_one_with_anything_else() {
        let log = FileNumber(9);
        let note = Follows { log: FileNumber(7), end: SeqNo(99), size_bytes: Some(10) }.batch(SeqNo(100));
        let mut put = WriteBatch::new();
        put.push(Op::LogData(b"a user's note"));
        let of = |records: &[&WriteBatch]| {
            let (mut writer, mut bytes) = (LogWriter::new(log, false), Vec::new());
            records.iter().for_each(|batch| writer.append(batch.as_bytes(), &mut bytes).unwrap());
            bytes
        };
        assert!(is_only_a_note(&of(&[&note]), log) && is_only_a_note(&[], log));
        assert!(!is_only_a_note(&of(&[&note, &put]), log) && !is_only_a_note(&of(&[&put]), log));
        let mut damaged = of(&[&note]);
        *damaged.last_mut().unwrap() ^= 1;
        assert!(!is_only_a_note(&damaged, log), "damage is for the opening to find");
    }

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
