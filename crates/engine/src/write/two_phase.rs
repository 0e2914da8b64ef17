//! The two phases of a transaction, as records of the log.
//!
//! In: a transaction's name and batch. Out: the parts of a write that differ for each phase: what is logged, what is inserted, and how many sequence numbers it takes.
//!
//! | phase | record | numbers | inserted |
//! |---|---|---|---|
//! | prepare | begin marker, the batch, end marker with the name | none; the header counts the batch's operations | nothing |
//! | commit | commit marker with the name | one for each operation of the batch; the header counts none | the batch |
//! | rollback | rollback marker with the name | none | nothing |
//!
//! Compat: these are the records of RocksDB's WriteCommitted policy, numbers included; each engine replays the other's.

use super::batch::WriteBatch;
use super::host::Host;
use super::pipeline::Pipeline;
use super::source::Pins;
use karst_format::ids::{ColumnFamilyId, FileNumber};
use karst_format::write_batch::{self, HEADER_BYTES, Op, PrepareKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A prepared transaction.
#[derive(Debug)]
pub(crate) struct Section {
    pub(crate) name: Vec<u8>,
    pub(crate) batch: WriteBatch,
    /// The log that its prepare record went to; 0 before.
    log: AtomicU64,
}

impl Section {
    pub(crate) fn new(name: &[u8], batch: WriteBatch, log: FileNumber) -> Self {
        Self { name: name.to_vec(), batch, log: AtomicU64::new(log.0) }
    }

    /// The log that its prepare record went to; 0 if it was not ordered.
    pub(crate) fn log(&self) -> FileNumber {
        FileNumber(self.log.load(Ordering::Acquire))
    }

    pub(super) fn set_log(&self, log: FileNumber) {
        self.log.store(log.0, Ordering::Release);
    }
}

/// A phase of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Prepare,
    Commit,
    Rollback,
}

/// A phase to be written.
#[derive(Clone, Debug)]
pub(crate) struct PhaseWrite {
    pub(super) section: Arc<Section>,
    pub(super) phase: Phase,
    /// The record behind its header.
    pub(super) body: Arc<[u8]>,
}

impl PhaseWrite {
    pub(crate) fn new(section: &Arc<Section>, phase: Phase) -> Self {
        let xid = &section.name[..];
        let body = match phase {
            Phase::Prepare => prepare_body(section),
            Phase::Commit => encoded(&[Op::Commit { xid }]),
            Phase::Rollback => encoded(&[Op::Rollback { xid }]),
        };
        Self { section: section.clone(), phase, body: body.into() }
    }

    /// The record with its header's count that prepares a recovered transaction anew: whatever an older log says of it is undone first, so that it counts once if both are replayed.
    pub(crate) fn again(section: &Section) -> (u32, Vec<u8>) {
        let mut body = encoded(&[Op::Rollback { xid: &section.name }]);
        body.extend_from_slice(&prepare_body(section));
        (section.batch.count(), body)
    }

    /// What is inserted.
    pub(super) fn inserted(&self) -> Option<&WriteBatch> {
        (self.phase == Phase::Commit).then_some(&self.section.batch)
    }

    pub(super) fn families(&self) -> &[ColumnFamilyId] {
        self.inserted().map_or(&[], WriteBatch::families)
    }

    /// What the header of its record counts.
    pub(super) fn logged_count(&self) -> u32 {
        if self.phase == Phase::Prepare { self.section.batch.count() } else { 0 }
    }
}

impl<H: Host> Pipeline<H> {
    /// A phase was ordered, and its record is in `log`. Lock: under the order lock.
    pub(super) fn phase_ordered(&self, write: &PhaseWrite, log: FileNumber, pins: &Pins<H::Pin>) {
        match write.phase {
            Phase::Prepare => {
                write.section.set_log(log);
                self.host.prepared(log);
            }
            Phase::Commit => {
                for (_, pin) in pins {
                    H::memtable(pin).need_log(write.section.log());
                }
            }
            Phase::Rollback => {}
        }
    }
}

fn encoded(ops: &[Op<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    ops.iter().for_each(|op| op.encode(&mut |part| bytes.extend_from_slice(part)));
    bytes
}

fn prepare_body(section: &Section) -> Vec<u8> {
    let mut body = encoded(&[Op::BeginPrepare(PrepareKind::Committed)]);
    body.extend_from_slice(&section.batch.as_bytes()[HEADER_BYTES..]);
    body.extend_from_slice(&encoded(&[Op::EndPrepare { xid: &section.name }]));
    body
}

/// A batch of operations that were read from a log.
pub(crate) fn batch_of(records: &write_batch::WriteBatch) -> WriteBatch {
    let mut batch = WriteBatch::new();
    for op in records.reader().ops() {
        // Invariant: replay has decoded and encoded them.
        batch.push_checked(op.expect("a section decodes"));
    }
    batch
}
