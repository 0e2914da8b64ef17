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
//!
//! Compat: RocksDB opens a log with prepared sections only as a transaction database; reading needs no such distinction.

use crate::memtable::{DuplicateEntry, MemTable};
use karst_format::Corruption;
use karst_format::ids::{ColumnFamilyId, FileNumber};
use karst_format::key::{SeqNo, ValueType};
use karst_format::write_batch::{BatchReader, Op, PrepareKind, WriteBatch};
use std::collections::HashMap;
use std::sync::Arc;

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
    /// The sequence number of the batch it was logged in.
    seq: SeqNo,
    ops: WriteBatch,
}

/// A transaction that is prepared and neither committed nor rolled back.
#[derive(Debug)]
pub(crate) struct Undecided {
    pub(crate) name: Vec<u8>,
    pub(crate) ops: WriteBatch,
    /// It was prepared under the policy WriteCommitted: nothing of it is anywhere but in the log.
    pub(crate) committed_policy: bool,
}

/// Applies write batches to memtables.
#[derive(Debug)]
pub(crate) struct Replay {
    targets: Vec<Target>,
    /// Sections of transactions that are neither committed nor rolled back, by transaction.
    prepared: HashMap<Box<[u8]>, Vec<Section>>,
    next_seq: SeqNo,
    applied: u64,
    /// A memtable has outgrown its target.
    full: bool,
}

/// Numbers operations as the writer did.
#[derive(Clone, Copy)]
struct Numbering {
    seq: SeqNo,
    /// Each operation takes a number of its own; or all of a batch share one.
    each: bool,
}

impl Replay {
    /// Nothing replayed yet; `last_seq` is the last sequence number the MANIFEST knows.
    pub(crate) fn new(targets: Vec<Target>, last_seq: SeqNo) -> Self {
        Self { targets, prepared: HashMap::new(), next_seq: SeqNo(last_seq.0 + 1), applied: 0, full: false }
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

    /// The transactions that are prepared and neither committed nor rolled back, in the order of their names.
    pub(crate) fn into_undecided(self) -> Vec<Undecided> {
        let undecided = |(name, sections): (Box<[u8]>, Vec<Section>)| {
            let committed_policy = sections.iter().all(|section| section.kind == PrepareKind::Committed);
            let mut ops = WriteBatch::new();
            for op in sections.iter().flat_map(|section| section.ops.reader().ops()) {
                // Invariant: every operation was decoded when it came in.
                ops.push(op.expect("a section decodes"));
            }
            Undecided { name: name.into(), ops, committed_policy }
        };
        let mut all: Vec<Undecided> = self.prepared.into_iter().map(undecided).collect();
        all.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// Applies one batch of log `wal` and returns the sequence number behind it. Offsets of errors are within the batch.
    ///
    /// On an error a part of the batch may have been applied; the caller either fails or, where the recovery mode allows it, goes on.
    pub(crate) fn apply(&mut self, wal: FileNumber, batch: BatchReader<'_>) -> Result<SeqNo, Corruption> {
        let mut numbering = Numbering { seq: batch.seq(), each: true };
        let mut section: Option<Section> = None;
        let mut ops = batch.ops();
        loop {
            let at = ops.offset();
            let Some(op) = ops.next() else { break };
            let misplaced = |what: &'static str| Corruption::new(what, at);
            match op? {
                Op::BeginPrepare(kind) => {
                    if section.is_some() {
                        return Err(misplaced("a prepared section inside another"));
                    }
                    section = Some(Section { kind, seq: numbering.seq, ops: WriteBatch::new() });
                }
                Op::EndPrepare { xid } => {
                    let section =
                        section.take().ok_or(misplaced("the end of a prepared section without its start"))?;
                    self.prepared.entry(xid.into()).or_default().push(section);
                }
                Op::Commit { xid } | Op::CommitWithTimestamp { xid, .. } => {
                    self.commit(wal, xid, &mut numbering).map_err(|e| Corruption::new(e.what, at))?;
                }
                Op::Rollback { xid } => {
                    self.prepared.remove(xid);
                }
                Op::LogData(_) | Op::Noop => {}
                op => match &mut section {
                    Some(section) => section.ops.push(op),
                    None => self.write(wal, op, &mut numbering).map_err(|e| Corruption::new(e.what, at))?,
                },
            }
        }
        if section.is_some() {
            return Err(Corruption::new("a prepared section without its end", batch.bytes().len()));
        }
        self.next_seq = self.next_seq.max(numbering.seq);
        Ok(numbering.seq)
    }

    fn commit(&mut self, wal: FileNumber, xid: &[u8], numbering: &mut Numbering) -> Result<(), Corruption> {
        for section in self.prepared.remove(xid).unwrap_or_default() {
            // Why: a WritePrepared transaction's entries were numbered when it was prepared, all of a batch alike.
            let mut prepared = Numbering { seq: section.seq, each: false };
            let numbering = match section.kind {
                PrepareKind::Committed => &mut *numbering,
                PrepareKind::Prepared | PrepareKind::Unprepared => &mut prepared,
            };
            for op in section.ops.reader().ops() {
                self.write(wal, op?, numbering)?;
            }
            self.next_seq = self.next_seq.max(SeqNo(prepared.seq.0 + 1));
        }
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
