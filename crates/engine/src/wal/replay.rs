//! What the records of the WAL do to the memtables.
//!
//! In: write batches in the order they were logged, each with the number of its log. Out: entries in the memtables of the column families that
//! still need them, and the last sequence number used.
//!
//! Invariants:
//! - An entry goes to its column family's memtable only if the family's own log number is not above the entry's log: what is older is in tables.
//! - Entries of column families that do not exist (any more) or are not open are passed over, but take their sequence numbers.
//! - Operations of a prepared transaction wait until its commit marker; without one they have no effect. A commit whose prepared section was not
//!   seen has no effect either: the section's log is gone because what it held is in tables.
//! - What was prepared under WritePrepared has the numbers that it was prepared with, and is in tables if the log of its section is older than its column family's own. It is added to the memtables
//!   when it is committed, or, for a database that goes on with it, when all was replayed: nobody else writes its keys meanwhile.
//!
//! Compat: RocksDB opens a log with prepared sections only as a transaction database; reading needs no such distinction. A database of the policy WritePrepared has each batch's operations numbered
//! alike in RocksDB's logs; in ours only prepared sections and rollbacks are, and other batches end in two marks ([`BATCH_END`]).

use super::sub_batches::SubBatches;
use crate::memtable::{DuplicateEntry, MemTable};
use karst_format::Corruption;
use karst_format::ids::{ColumnFamilyId, FileNumber};
use karst_format::key::{SeqNo, ValueType};
use karst_format::write_batch::{BatchReader, Op, PrepareKind, WriteBatch};
use std::collections::HashMap;
use std::sync::Arc;

/// What a batch ends with in a database of the policy WritePrepared whose operations have a number each: two markers without meaning. The first tells RocksDB, which would number them alike, that the batch ends.
/// RocksDB writes one.
pub(crate) const BATCH_END: [u8; 2] = [ValueType::Noop as u8; 2];

/// Where the entries of a column family go.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) cf: ColumnFamilyId,
    /// Logs below this number hold nothing that the family still needs.
    pub(crate) log_number: FileNumber,
    pub(crate) memtable: Arc<MemTable>,
    /// Bytes of memory above which the memtable is taken out ([`Replay::full_targets`]).
    pub(crate) memory_bytes: usize,
}

/// Operations between a prepare marker and its end.
#[derive(Debug)]
struct Section {
    kind: PrepareKind,
    /// The log that it is in.
    log: FileNumber,
    /// Its first sequence number, if it has any; otherwise that of the batch it was logged in.
    seq: SeqNo,
    ops: WriteBatch,
}

/// A transaction that is prepared and neither committed nor rolled back.
#[derive(Debug)]
pub(crate) struct Undecided {
    pub(crate) name: Vec<u8>,
    pub(crate) ops: WriteBatch,
    pub(crate) policy: Policy,
}

impl Undecided {
    /// Its first sequence number and how many there are, if its entries have any.
    pub(crate) fn range(&self) -> Option<(SeqNo, u32)> {
        match &self.policy {
            Policy::Prepared { first, numbers } => Some((*first, numbers.count())),
            Policy::Committed | Policy::Unprepared => None,
        }
    }
}

/// The policy under which a transaction was prepared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// Nothing of it is anywhere but in the log.
    Committed,
    /// Its entries may be in tables, with the numbers from `first` on.
    Prepared { first: SeqNo, numbers: SubBatches },
    /// It was written in parts.
    Unprepared,
}

/// Applies write batches to memtables.
#[derive(Debug)]
pub(crate) struct Replay {
    targets: Vec<Target>,
    /// The database is one of the policy WritePrepared.
    write_prepared: bool,
    /// Sections of transactions that are neither committed nor rolled back, by transaction.
    prepared: HashMap<Box<[u8]>, Vec<Section>>,
    next_seq: SeqNo,
    applied: u64,
    /// The last batch committed what was prepared in a log that is gone.
    open_ended: bool,
    /// A memtable has outgrown its target.
    full: bool,
}

/// Numbers operations as the writer did.
#[derive(Clone, Copy)]
struct Numbering {
    seq: SeqNo,
    /// Each operation takes a number of its own; or all up to the batch's end share one.
    each: bool,
}

impl Numbering {
    /// A batch ends here.
    fn end_batch(&mut self) {
        if !self.each {
            self.seq = SeqNo(self.seq.0 + 1);
        }
    }
}

impl Replay {
    /// Nothing replayed yet; `last_seq` is the last sequence number the MANIFEST knows.
    pub(crate) fn new(targets: Vec<Target>, last_seq: SeqNo, write_prepared: bool) -> Self {
        let next_seq = SeqNo(last_seq.0 + 1);
        Self {
            targets,
            write_prepared,
            prepared: HashMap::new(),
            next_seq,
            applied: 0,
            open_ended: false,
            full: false,
        }
    }

    /// The sequence number behind all that was replayed.
    pub(crate) fn next_seq(&self) -> SeqNo {
        self.next_seq
    }

    /// The targets whose memtables are as large as they should get. Asked between two batches, so that each is whole. The caller puts others in their place.
    pub(crate) fn full_targets(&mut self) -> impl Iterator<Item = &mut Target> {
        let any = std::mem::take(&mut self.full);
        let is_full = |target: &&mut Target| target.memtable.memory_bytes() >= target.memory_bytes;
        self.targets.iter_mut().filter(move |_| any).filter(is_full)
    }

    /// How many entries reached a memtable.
    pub(crate) fn applied(&self) -> u64 {
        self.applied
    }

    /// Adds what the transactions have inserted that are prepared under WritePrepared and not decided, for a database that goes on with them.
    pub(crate) fn add_undecided(&mut self) -> Result<(), Corruption> {
        let prepared = std::mem::take(&mut self.prepared);
        for section in prepared.values().flatten().filter(|section| section.kind == PrepareKind::Prepared) {
            self.write_section(section)?;
        }
        self.prepared = prepared;
        Ok(())
    }

    /// The transactions that are prepared and neither committed nor rolled back, in the order of their sequence numbers, if they have any, and names.
    pub(crate) fn into_undecided(self) -> Vec<Undecided> {
        let undecided = |name: &[u8], sections: &[Section]| {
            let policy = match sections {
                [section] if section.kind == PrepareKind::Prepared => {
                    Policy::Prepared { first: section.seq, numbers: self.numbers(section) }
                }
                sections if sections.iter().all(|section| section.kind == PrepareKind::Committed) => {
                    Policy::Committed
                }
                _ => Policy::Unprepared,
            };
            let mut ops = WriteBatch::new();
            for op in sections.iter().flat_map(|section| section.ops.reader().ops()) {
                // Invariant: every operation was decoded when it came in.
                ops.push(op.expect("a section decodes"));
            }
            Undecided { name: name.to_vec(), ops, policy }
        };
        let mut all: Vec<Undecided> =
            self.prepared.iter().map(|(name, sections)| undecided(name, sections)).collect();
        let first = |undecided: &Undecided| match undecided.policy {
            Policy::Prepared { first, .. } => first,
            _ => SeqNo::ZERO,
        };
        all.sort_unstable_by(|a, b| first(a).cmp(&first(b)).then_with(|| a.name.cmp(&b.name)));
        all
    }

    /// How the operations of a section of the policy WritePrepared are numbered.
    fn numbers(&self, section: &Section) -> SubBatches {
        let order = |cf, a: &[u8], b: &[u8]| match self.targets.iter().find(|target| target.cf == cf) {
            Some(target) => target.memtable.comparator().compare_user(a, b),
            None => a.cmp(b),
        };
        SubBatches::of(section.ops.reader().ops().map(|op| op.expect("a section decodes")), order)
    }

    /// How the operations of a batch are numbered that are in no section of the policy WriteCommitted.
    fn numbers_each(&self, batch: &BatchReader<'_>) -> bool {
        // Why first for the byte: most batches do not have it, and need not be decoded twice.
        if !self.write_prepared && !batch.bytes().contains(&(ValueType::BeginPersistedPrepareXid as u8)) {
            return true;
        }
        let mut last = [None; 2];
        for op in batch.ops() {
            let Ok(op) = op else { return true };
            if matches!(op, Op::BeginPrepare(PrepareKind::Prepared | PrepareKind::Unprepared)) {
                return false;
            }
            last = [last[1], Some(op)];
        }
        match last {
            _ if !self.write_prepared => true,
            [Some(Op::Noop), Some(Op::Noop)] => true,
            [_, Some(Op::Noop | Op::EndPrepare { .. } | Op::Commit { .. } | Op::Rollback { .. })] => false,
            // Compat: of before the policy was chosen.
            _ => true,
        }
    }

    /// Applies one batch of log `wal` and returns the sequence number behind it. Offsets of errors are within the batch.
    ///
    /// On an error a part of the batch may have been applied; the caller either fails or, where the recovery mode allows it, goes on.
    pub(crate) fn apply(&mut self, wal: FileNumber, batch: BatchReader<'_>) -> Result<SeqNo, Corruption> {
        let mut numbering = Numbering { seq: batch.seq(), each: self.numbers_each(&batch) };
        let mut section: Option<Section> = None;
        self.open_ended = false;
        // What this record has rolled back: name, first sequence number and log.
        let mut undone: Option<(&[u8], SeqNo, FileNumber)> = None;
        // Whether anything came since a batch ended: a record may have several.
        let mut inside = false;
        let mut ops = batch.ops();
        loop {
            let at = ops.offset();
            let Some(op) = ops.next() else { break };
            let misplaced = |what: &'static str| Corruption::new(what, at);
            let op = op?;
            let ends = matches!(op, Op::EndPrepare { .. } | Op::Commit { .. } | Op::Rollback { .. })
                || (matches!(op, Op::Noop) && inside);
            inside = !ends && !matches!(op, Op::Noop);
            match op {
                Op::BeginPrepare(kind) => {
                    if section.is_some() {
                        return Err(misplaced("a prepared section inside another"));
                    }
                    section = Some(Section { kind, log: wal, seq: numbering.seq, ops: WriteBatch::new() });
                }
                Op::EndPrepare { xid } => {
                    let mut section =
                        section.take().ok_or(misplaced("the end of a prepared section without its start"))?;
                    if section.kind == PrepareKind::Prepared {
                        let last = section.seq.0 + u64::from(self.numbers(&section).count()) - 1;
                        numbering.seq = SeqNo(numbering.seq.0.max(last));
                        self.next_seq = self.next_seq.max(SeqNo(last + 1));
                    }
                    // Why: what is logged anew by an opening that came to no end has been in tables for as long as before.
                    if let Some((name, seq, log)) = undone
                        && (name, seq) == (xid, section.seq)
                    {
                        section.log = log;
                    }
                    // Why: under WriteCommitted it takes no number, whatever the database is opened as now.
                    numbering.each |= section.kind == PrepareKind::Committed;
                    self.prepared.entry(xid.into()).or_default().push(section);
                }
                Op::Commit { xid } | Op::CommitWithTimestamp { xid, .. } => {
                    self.commit(wal, xid, &mut numbering).map_err(|e| Corruption::new(e.what, at))?;
                }
                Op::Rollback { xid } => {
                    let removed = self.prepared.remove(xid).unwrap_or_default();
                    numbering.each |= removed.iter().any(|section| section.kind == PrepareKind::Committed);
                    let early = removed.iter().find(|section| section.kind == PrepareKind::Prepared);
                    undone = early.map(|section| (xid, section.seq, section.log));
                }
                Op::LogData(_) | Op::Noop => {}
                op => match &mut section {
                    Some(section) => section.ops.push(op),
                    None => self.write(wal, op, &mut numbering).map_err(|e| Corruption::new(e.what, at))?,
                },
            }
            if ends && section.is_none() {
                numbering.end_batch();
            }
        }
        if section.is_some() {
            return Err(Corruption::new("a prepared section without its end", batch.bytes().len()));
        }
        self.next_seq = self.next_seq.max(numbering.seq);
        Ok(numbering.seq)
    }

    /// Whether the last batch may have taken more numbers than it is known to have.
    pub(crate) fn is_open_ended(&self) -> bool {
        self.open_ended
    }

    fn commit(&mut self, wal: FileNumber, xid: &[u8], numbering: &mut Numbering) -> Result<(), Corruption> {
        let Some(sections) = self.prepared.remove(xid) else {
            // Why: under WriteCommitted it took as many as the section has operations.
            self.open_ended = !self.write_prepared;
            return Ok(());
        };
        for section in sections {
            if section.kind != PrepareKind::Committed {
                self.write_section(&section)?;
                continue;
            }
            numbering.each = true;
            for op in section.ops.reader().ops() {
                self.write(wal, op?, numbering)?;
            }
        }
        Ok(())
    }

    /// Writes a section with the numbers that it was prepared with.
    fn write_section(&mut self, section: &Section) -> Result<(), Corruption> {
        let numbers = self.numbers(section);
        let mut index = 0;
        for op in section.ops.reader().ops() {
            let op = op?;
            let seq = SeqNo(section.seq.0 + u64::from(numbers.offset(index)));
            index += usize::from(op.column_family().is_some());
            self.write(section.log, op, &mut Numbering { seq, each: false })?;
        }
        self.next_seq = self.next_seq.max(SeqNo(section.seq.0 + u64::from(numbers.count())));
        Ok(())
    }

    /// Writes one operation and advances the numbering.
    fn write(&mut self, wal: FileNumber, op: Op<'_>, numbering: &mut Numbering) -> Result<(), Corruption> {
        if numbering.seq > SeqNo::MAX {
            return Err(Corruption::new("sequence numbers run over 56 bits", 0u64));
        }
        let cf = op.column_family().unwrap_or(ColumnFamilyId::DEFAULT);
        let target = self.targets.iter().find(|t| t.cf == cf && t.log_number <= wal);
        if let Some(target) = target {
            // Compat: where all operations of a batch share a number, a second write of the same key starts a sub-batch with the next number.
            let added = add(&target.memtable, numbering.seq, op).or_else(|DuplicateEntry| {
                numbering.seq = SeqNo(numbering.seq.0 + 1);
                add(&target.memtable, numbering.seq, op)
            });
            if added.is_err() {
                return Err(Corruption::new(
                    format!(
                        "sequence number {} of column family {cf} is used twice for one key",
                        numbering.seq
                    ),
                    0u64,
                ));
            }
            self.applied += 1;
            self.full |= target.memtable.memory_bytes() >= target.memory_bytes;
        }
        if numbering.each {
            numbering.seq = SeqNo(numbering.seq.0 + 1);
        }
        Ok(())
    }
}

/// Adds what one operation of a batch writes to its family's memtable; markers write nothing.
pub(crate) fn add(memtable: &MemTable, seq: SeqNo, op: Op<'_>) -> Result<(), DuplicateEntry> {
    match op {
        Op::Put { key, value, .. } => memtable.add(seq, ValueType::Value, key, value),
        Op::Delete { key, .. } => memtable.add(seq, ValueType::Deletion, key, b""),
        Op::SingleDelete { key, .. } => memtable.add(seq, ValueType::SingleDeletion, key, b""),
        Op::DeleteRange { begin, end, .. } => memtable.add(seq, ValueType::RangeDeletion, begin, end),
        Op::Merge { key, operand, .. } => memtable.add(seq, ValueType::Merge, key, operand),
        Op::PutBlobIndex { key, index, .. } => memtable.add(seq, ValueType::BlobIndex, key, index),
        Op::PutEntity { key, entity, .. } => memtable.add(seq, ValueType::WideColumnEntity, key, entity),
        Op::TimedPut { key, value, .. } => {
            // Why: the preferred sequence number only matters to compaction; the largest one never takes effect.
            let mut packed = Vec::with_capacity(value.len() + 8);
            packed.extend_from_slice(value);
            packed.extend_from_slice(&SeqNo::MAX.0.to_le_bytes());
            memtable.add(seq, ValueType::ValuePreferredSeqno, key, &packed)
        }
        Op::LogData(_)
        | Op::Noop
        | Op::BeginPrepare(_)
        | Op::EndPrepare { .. }
        | Op::Commit { .. }
        | Op::CommitWithTimestamp { .. }
        | Op::Rollback { .. } => Ok(()),
    }
}
