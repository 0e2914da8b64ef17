//! Detection of log records that tables may already hold, during replay.
//!
//! Records of one column family whose sequence numbers do not exceed its tables' largest are held
//! back, in the order of their numbers. Those in no table are replayed.
//!
//! A sound database has no such records in tables: a flush takes all entries of a family up to some
//! sequence number, and the family's log number says that its tables hold all of the older logs.
//! Some databases were written by flushes that recorded a log of which the flushed memtable had a
//! part. A put may be replayed beside its table; a merge operand may not.
//!
//! The check takes the newest record first: the tables have an entry of its key, or a range
//! tombstone over it, at its sequence number or a larger one. A flush takes all entries up to some
//! number, so that record and every older one of the family are then in the tables. Compactions
//! preserve this until they set sequence numbers to 0: operands that were replayed and flushed, or
//! merged into the last level by a compaction, cannot be detected any more.
//!
//! Records are checked in lots of some thousands. The tables hold the oldest part, so the first lot
//! of which they hold none ends the checks: a large ingested file costs no more than one lot.
//!
//! The largest number in the tables is not sufficient, because an ingested file has its own number,
//! larger than those of records that are in no table. An ingested file never covers a key that is
//! in a memtable, because ingestion flushes that first.
//!
//! The check also holds for transactions and for writes without a log. Sections prepared under
//! WritePrepared keep the numbers they were inserted with, and their log is below the family's log
//! number once they are in a table. Sections prepared under WriteCommitted are inserted, and
//! numbered, at commit, like plain writes. A write without a log has no record; it takes a number
//! in the same order, so it only helps to detect that an older record was flushed.

use karst_base::error::Result;
use karst_format::ids::ColumnFamilyId;
use karst_format::key::SeqNo;
use karst_format::write_batch::{Op, WriteBatch};
use std::fmt::Debug;

/// The tables of a column family during replay.
pub trait Tables: Debug + Send + Sync {
    /// Returns the largest sequence number in the tables.
    fn largest_seq(&self) -> SeqNo;

    /// Returns true if they have an entry of `key` at a number larger than `seq`. Blocks.
    ///
    /// # Errors
    /// A table cannot be read.
    fn written_since(&self, key: &[u8], seq: SeqNo) -> Result<bool>;
}

/// Number of records checked at once.
const LOT: usize = 4096;

/// Records that were skipped because tables have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// Column family of the records.
    pub column_family: ColumnFamilyId,
    /// Number of skipped entries.
    pub entries: u64,
    /// The largest sequence number among them.
    pub through: SeqNo,
}

/// Records with their sequence numbers, oldest first.
#[derive(Debug, Default)]
pub(super) struct Held {
    seqs: Vec<SeqNo>,
    ops: WriteBatch,
}

impl Held {
    pub(super) fn entries(&self) -> impl DoubleEndedIterator<Item = (SeqNo, Op<'_>)> {
        // Invariant: every operation was decoded when it was added.
        let ops: Vec<Op<'_>> = self.ops.reader().ops().map(|op| op.expect("it decodes")).collect();
        self.seqs.iter().copied().zip(ops)
    }
}

/// Records of one column family that tables may hold.
#[derive(Debug, Default)]
pub(super) struct PossibleDuplicates {
    /// Records up to this number may be in tables.
    through: SeqNo,
    held: Held,
    passed: Option<Passed>,
}

impl PossibleDuplicates {
    pub(super) fn of(tables: Option<&dyn Tables>) -> Self {
        Self { through: tables.map_or(SeqNo::ZERO, Tables::largest_seq), ..Self::default() }
    }

    pub(super) fn through(&self) -> SeqNo {
        self.through
    }

    /// Returns true if a record with this number may be in tables.
    pub(super) fn may_hold(&self, seq: SeqNo) -> bool {
        seq <= self.through
    }

    pub(super) fn hold(&mut self, seq: SeqNo, op: Op<'_>) {
        self.held.seqs.push(seq);
        self.held.ops.push(op);
    }

    pub(super) fn holds_any(&self) -> bool {
        !self.held.seqs.is_empty()
    }

    /// Returns true if enough records are held back to check them.
    pub(super) fn is_full_lot(&self) -> bool {
        self.held.seqs.len() >= LOT
    }

    /// Checks the records held back, and returns those that are in no table.
    ///
    /// # Errors
    /// A table cannot be read.
    pub(super) fn decide(&mut self, column_family: ColumnFamilyId, tables: &dyn Tables) -> Result<Held> {
        let held = std::mem::take(&mut self.held);
        let mut flushed = None;
        for (seq, op) in held.entries().rev() {
            let Some(key) = key_of(&op) else { continue };
            let before = SeqNo(seq.0.saturating_sub(1));
            if tables.written_since(key, before)? {
                flushed = Some(seq);
                break;
            }
        }
        let Some(flushed) = flushed else {
            self.through = SeqNo::ZERO;
            return Ok(held);
        };
        let mut left = Held::default();
        let mut entries = 0;
        for (seq, op) in held.entries() {
            if seq <= flushed {
                entries += 1;
            } else {
                left.seqs.push(seq);
                left.ops.push(op);
            }
        }
        let before = self.passed.map_or(0, |passed| passed.entries);
        self.passed = Some(Passed { column_family, entries: before + entries, through: flushed });
        Ok(left)
    }

    pub(super) fn passed(&self) -> Option<Passed> {
        self.passed
    }
}

/// Returns the key that an operation writes; of a range its beginning.
fn key_of<'a>(op: &Op<'a>) -> Option<&'a [u8]> {
    match *op {
        Op::DeleteRange { begin, .. } => Some(begin),
        _ => op.key(),
    }
}
