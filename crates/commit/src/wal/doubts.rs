//! Records of a log that tables may hold already.
//!
//! In: records of one column family with a number that its tables reach, in the order of their
//! numbers.
//! Out: those that are in no table, to be replayed.
//!
//! In a sound database there are none: a flush takes all of a family up to some sequence number,
//! and the family's log number says that its tables have all that is in older logs. Databases were
//! written in which a flush recorded a log that the flushed memtable had a part of. Puts forgive
//! being replayed beside their table; merge operands do not.
//!
//! What decides, for the newest record first: the tables have something of its key, or a range
//! tombstone over it, with its sequence number or a larger one. As a flush takes all up to some
//! number, that record is in the tables, and so is every older one of the family. Compactions keep
//! this decidable until they set sequence numbers to 0: operands that were replayed and flushed, or
//! that a compaction has merged down to the last level, cannot be told apart any more.
//!
//! Records are decided some thousands at a time. What tables have is the oldest part, so the first
//! lot of which they have nothing ends the doubt: a large file that was ingested costs no more than
//! that.
//!
//! Why not the largest number in the tables alone: an ingested file has a number of its own, larger
//! than those of records that are in no table. It never reaches over a key that is in a memtable,
//! since ingesting flushes that first.
//!
//! It holds for what transactions and writes without a log leave as well. What was prepared under
//! WritePrepared has the numbers that it was inserted with, and its log is below the family's log
//! number once it is in a table. What was prepared under WriteCommitted is inserted, and numbered,
//! when it is committed, as plain writes are. A write without a log is in no record; it takes a
//! number in the same order, so it only helps to tell that an older record was flushed.

use karst_base::error::Result;
use karst_format::ids::ColumnFamilyId;
use karst_format::key::SeqNo;
use karst_format::write_batch::{Op, WriteBatch};
use std::fmt::Debug;

/// The tables of a column family, while logs are replayed.
pub trait Tables: Debug + Send + Sync {
    /// The largest sequence number of all.
    fn largest_seq(&self) -> SeqNo;

    /// Whether they have something of `key` with a larger number than `seq`. Blocks.
    ///
    /// # Errors
    /// A table cannot be read.
    fn written_since(&self, key: &[u8], seq: SeqNo) -> Result<bool>;
}

/// Records that are decided together.
const LOT: usize = 4096;

/// Records that were passed over because tables have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// Whose they are.
    pub column_family: ColumnFamilyId,
    /// How many entries they have.
    pub entries: u64,
    /// The largest sequence number among them.
    pub through: SeqNo,
}

/// Records with their sequence numbers, the older first.
#[derive(Debug, Default)]
pub(super) struct Held {
    seqs: Vec<SeqNo>,
    ops: WriteBatch,
}

impl Held {
    pub(super) fn entries(&self) -> impl DoubleEndedIterator<Item = (SeqNo, Op<'_>)> {
        // Invariant: every operation was decoded when it came in.
        let ops: Vec<Op<'_>> = self.ops.reader().ops().map(|op| op.expect("it decodes")).collect();
        self.seqs.iter().copied().zip(ops)
    }
}

/// What is in doubt of one column family.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    /// Records up to this number may be in tables.
    through: SeqNo,
    held: Held,
    passed: Option<Passed>,
}

impl Doubts {
    pub(super) fn of(tables: Option<&dyn Tables>) -> Self {
        Self { through: tables.map_or(SeqNo::ZERO, Tables::largest_seq), ..Self::default() }
    }

    pub(super) fn through(&self) -> SeqNo {
        self.through
    }

    /// Whether a record with this number may be in tables.
    pub(super) fn concern(&self, seq: SeqNo) -> bool {
        seq <= self.through
    }

    pub(super) fn hold(&mut self, seq: SeqNo, op: Op<'_>) {
        self.held.seqs.push(seq);
        self.held.ops.push(op);
    }

    pub(super) fn hold_any(&self) -> bool {
        !self.held.seqs.is_empty()
    }

    /// Whether so many are held back that they should be decided.
    pub(super) fn hold_a_lot(&self) -> bool {
        self.held.seqs.len() >= LOT
    }

    /// What of the records held back is in no table.
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

/// The key that an operation writes; of a range its beginning.
fn key_of<'a>(op: &Op<'a>) -> Option<&'a [u8]> {
    match *op {
        Op::DeleteRange { begin, .. } => Some(begin),
        _ => op.key(),
    }
}
