//! The note in a log about its predecessor, by which a lost end of the predecessor is detected.
//!
//! The note is the first record of a log: a batch without operations, with log data that only this
//! module reads. It has the predecessor's number, the sequence number after its last record, and
//! the offset where that ends.
//!
//! After a loss of power the end of a log may be missing, possibly at a record boundary, while the
//! next log is intact. Without the note the recovered history would have a gap. Sequence numbers
//! alone do not show it, because writes without a log take some too.
//! Compat: RocksDB of any version ignores a note in a batch (`PutLogData`). Its own record for this
//! (`track_and_verify_wals`) stops releases before 10.

use karst_format::ids::FileNumber;
use karst_format::key::SeqNo;
use karst_format::log::{LogEvent, LogReader, RecoveryMode};
use karst_format::write_batch::{BatchReader, Op, WriteBatch};

/// Prefix of the note.
const NAME: &[u8] = b"karstdb.follows";

/// Contents of the note: a log's predecessor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Follows {
    pub(super) log: FileNumber,
    /// Sequence number after its last record; 0 if it has none.
    pub(super) end: SeqNo,
    /// Offset of the end of its last record. Absent in older notes.
    pub(super) size_bytes: Option<u64>,
}

impl Follows {
    /// Returns the batch that holds the note, ordered at `seq`.
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

    /// Returns the note of a batch, if it has one.
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

/// Returns true if a log has no records beside its note, so that a copy can omit the log if it
/// omits all older ones.
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
