//! The phases of a two-phase commit, as records of the log.
//!
//! A phase takes a transaction's name and batch. It determines, for each phase and policy, the
//! logged record, the inserted operations, and the sequence numbers.
//!
//! Under the policy WriteCommitted:
//!
//! | phase | record | numbers | inserted |
//! |---|---|---|---|
//! | prepare | begin marker, the batch, end marker with the name | none; the header counts the batch's operations | nothing |
//! | commit | commit marker with the name | one for each operation of the batch; the header counts none | the batch |
//! | rollback | rollback marker with the name | none | nothing |
//!
//! Under WritePrepared:
//!
//! | phase | record | numbers | inserted |
//! |---|---|---|---|
//! | prepare | as above, with another begin marker | per [`SubBatches`]; the header counts operations | the batch, undecided |
//! | commit | as above | one | nothing; the batch becomes visible at this number |
//! | rollback | the previous values, rollback marker with the name | one for all | the previous values; they hide the batch from this number on |
//!
//! Keys with timestamps end in zeroes in a section. The commit's marker has the timestamp, which
//! replaces the zeroes in the inserted keys. Only WriteCommitted supports this.
//!
//! Compat: these are RocksDB's records of either policy, numbers included; each engine replays the
//! other's.

use super::batch::WriteBatch;
use super::host::{Host, Pins};
use crate::wal::sub_batches::SubBatches;
use karst_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use karst_format::ids::{ColumnFamilyId, FileNumber};
use karst_format::key::SeqNo;
use karst_format::log::TimestampSize;
use karst_format::write_batch::{self, HEADER_BYTES, Op, PrepareKind};
use karst_mem::PendingRanges;
use karst_mem::pending::Range;
use std::sync::{Arc, OnceLock};

/// A prepared transaction.
#[derive(Debug)]
pub struct Section {
    /// The transaction's name.
    pub name: Vec<u8>,
    /// Operations of the transaction.
    pub batch: WriteBatch,
    /// Under WritePrepared: the numbering of its operations.
    numbers: Option<SubBatches>,
    /// Timestamp sizes of its column families, which the log must name before its prepare record.
    timestamps: Vec<TimestampSize>,
    /// The log of its prepare record; 0 before it is ordered.
    log: AtomicU64,
    /// True if memtables keep that log after the decision.
    held_by_memtables: AtomicBool,
    /// True once its inserts have begun.
    may_be_inserted: AtomicBool,
    /// Under WritePrepared, once it was ordered: its pending sequence numbers.
    range: OnceLock<Arc<Range>>,
}

impl Section {
    /// Creates a section to be prepared; with `numbers` under WritePrepared.
    pub fn new(name: &[u8], batch: WriteBatch, numbers: Option<SubBatches>) -> Self {
        Self {
            name: name.to_vec(),
            batch,
            numbers,
            timestamps: Vec::new(),
            log: AtomicU64::new(0),
            held_by_memtables: AtomicBool::new(false),
            may_be_inserted: AtomicBool::new(false),
            range: OnceLock::new(),
        }
    }

    /// Sets the column families that have timestamps.
    #[must_use]
    pub fn with_timestamps(self, timestamps: Vec<TimestampSize>) -> Self {
        Self { timestamps, ..self }
    }

    /// Returns the timestamp sizes of its column families.
    pub fn timestamps(&self) -> &[TimestampSize] {
        &self.timestamps
    }

    /// Completes a section that was found prepared and is logged anew in `log`; its sequence
    /// numbers, if it has any, are pending again.
    pub fn found(self, log: FileNumber, range: Option<Arc<Range>>) -> Self {
        let range = range.map_or_else(OnceLock::new, OnceLock::from);
        Self { log: AtomicU64::new(log.0), range, ..self }
    }

    /// Returns the log of its prepare record; 0 if it was not ordered.
    pub fn log(&self) -> FileNumber {
        FileNumber(self.log.load(Ordering::Acquire))
    }

    /// Returns true if only a durable decision releases its log, because no memtable keeps the log.
    pub fn waits_for_sync(&self) -> bool {
        !self.held_by_memtables.load(Ordering::Acquire)
    }

    /// Returns true if some of it may be in memtables.
    pub fn may_be_inserted(&self) -> bool {
        self.may_be_inserted.load(Ordering::Acquire)
    }

    /// Returns true if it is inserted at prepare.
    pub fn is_inserted_early(&self) -> bool {
        self.numbers.is_some()
    }

    /// Returns its pending sequence numbers.
    pub fn range(&self) -> Option<&Arc<Range>> {
        self.range.get()
    }
}

/// Numbering of the operations of a write.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Numbering<'a> {
    /// Each operation has its own number.
    Each,
    /// All operations share one number.
    Alike,
    SubBatches(&'a SubBatches),
}

impl Numbering<'_> {
    /// Returns the number of the operation at `index`, given the first.
    #[inline]
    pub(crate) fn of(&self, first: SeqNo, index: usize) -> SeqNo {
        SeqNo(match self {
            Numbering::Each => first.0 + index as u64,
            Numbering::Alike => first.0,
            Numbering::SubBatches(numbers) => first.0 + u64::from(numbers.offset(index)),
        })
    }
}

/// A phase of a two-phase commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Logs the operations as undecided.
    Prepare,
    /// Makes the operations visible.
    Commit,
    /// Discards the operations.
    Rollback,
}

/// A phase to be written.
#[derive(Clone, Debug)]
pub struct PhaseWrite {
    section: Arc<Section>,
    phase: Phase,
    /// Batch inserted in the section's stead: for a rollback under WritePrepared the previous
    /// values, each key once; for a commit the section with its timestamps.
    instead: Option<Arc<WriteBatch>>,
    /// Timestamp of a commit, if keys have timestamps.
    timestamp: Option<Box<[u8]>>,
    /// Bytes of the record after its header.
    body_bytes: usize,
}

impl PhaseWrite {
    /// Creates a phase of `section`.
    pub fn new(section: &Arc<Section>, phase: Phase) -> Self {
        Self::of(section, phase, None, None)
    }

    /// Creates the commit, at a timestamp, of a section whose keys have timestamps: inserts
    /// `stamped`, the section's batch with the timestamp.
    pub fn stamping(section: &Arc<Section>, timestamp: &[u8], stamped: WriteBatch) -> Self {
        debug_assert_eq!(stamped.count(), section.batch.count(), "it is the same but for timestamps");
        Self::of(section, Phase::Commit, Some(stamped.into()), Some(timestamp.into()))
    }

    /// Creates the rollback of an inserted section: writes the previous values `before`, each key
    /// once.
    pub fn restoring(section: &Arc<Section>, before: WriteBatch) -> Self {
        Self::of(section, Phase::Rollback, Some(before.into()), None)
    }

    fn of(
        section: &Arc<Section>,
        phase: Phase,
        instead: Option<Arc<WriteBatch>>,
        timestamp: Option<Box<[u8]>>,
    ) -> Self {
        let mut write = Self { section: section.clone(), phase, instead, timestamp, body_bytes: 0 };
        let mut bytes = 0;
        write.encode(&mut |part| bytes += part.len());
        write.body_bytes = bytes;
        write
    }

    /// Returns the record, header included, that prepares a recovered transaction anew, with the
    /// header's sequence number and the count that it takes. It first rolls back the section of
    /// older logs, so that the section counts once if both are replayed. `next_seq` is the log's
    /// next sequence number.
    pub fn again(section: &Section, next_seq: SeqNo) -> (Vec<u8>, SeqNo, u32) {
        // Compat: the rollback marker takes a number where batches share one, so the section keeps
        // its own numbers after it.
        let (seq, numbers) = match section.range() {
            None => (next_seq, 0),
            Some(range) => (SeqNo(range.first() - 1), (range.end() - range.first()) as u32 + 1),
        };
        let mut record = seq.0.to_le_bytes().to_vec();
        record.extend_from_slice(&section.batch.count().to_le_bytes());
        let mut put = |part: &[u8]| record.extend_from_slice(part);
        Op::Rollback { xid: &section.name }.encode(&mut put);
        put_prepared(section, &mut put);
        (record, seq, numbers)
    }

    /// Returns the inserted batch.
    pub(super) fn inserted(&self) -> Option<&WriteBatch> {
        let batch = &self.section.batch;
        match (self.phase, &self.section.numbers) {
            (Phase::Prepare, Some(_)) => Some(batch),
            (Phase::Commit, None) => Some(self.instead.as_deref().unwrap_or(batch)),
            (Phase::Rollback, _) => self.instead.as_deref(),
            (Phase::Prepare, None) | (Phase::Commit, Some(_)) => None,
        }
    }

    /// Returns the column families whose memtables it inserts into, or that must keep the section's
    /// log.
    pub(super) fn families(&self) -> &[ColumnFamilyId] {
        match (self.phase, &self.section.numbers) {
            (Phase::Prepare, None) => &[],
            _ => self.section.batch.families(),
        }
    }

    /// Returns the timestamp sizes that the log must name before its record, apart from those of
    /// the [families](Self::families).
    pub(super) fn named_timestamps(&self) -> &[TimestampSize] {
        match self.phase {
            Phase::Prepare => &self.section.timestamps,
            Phase::Commit | Phase::Rollback => &[],
        }
    }

    /// Returns the number of sequence numbers that it takes.
    pub(super) fn count(&self) -> u32 {
        match (self.phase, &self.section.numbers) {
            (Phase::Prepare, Some(numbers)) => numbers.count(),
            (Phase::Commit | Phase::Rollback, Some(_)) => 1,
            (Phase::Commit, None) => self.section.batch.count(),
            (Phase::Prepare | Phase::Rollback, None) => 0,
        }
    }

    /// Returns the numbering of the inserted batch.
    pub(super) fn numbering(&self) -> Numbering<'_> {
        match (self.phase, &self.section.numbers) {
            (Phase::Prepare, Some(numbers)) => Numbering::SubBatches(numbers),
            (Phase::Rollback, _) => Numbering::Alike,
            _ => Numbering::Each,
        }
    }

    /// Returns the count in the header of its record.
    pub(super) fn logged_count(&self) -> u32 {
        match self.phase {
            Phase::Prepare => self.section.batch.count(),
            Phase::Commit => 0,
            Phase::Rollback => self.instead.as_ref().map_or(0, |before| before.count()),
        }
    }

    /// Returns true if it decides a section that was inserted at prepare.
    pub(super) fn decides_inserted(&self) -> bool {
        self.phase != Phase::Prepare && self.section.is_inserted_early()
    }

    pub(super) fn body_bytes(&self) -> usize {
        self.body_bytes
    }

    /// Passes the record after its header to `put`, part by part.
    pub(super) fn encode(&self, put: &mut impl FnMut(&[u8])) {
        let xid = &self.section.name[..];
        match self.phase {
            Phase::Prepare => put_prepared(&self.section, put),
            Phase::Commit => match &self.timestamp {
                Some(timestamp) => Op::CommitWithTimestamp { xid, timestamp }.encode(put),
                None => Op::Commit { xid }.encode(put),
            },
            Phase::Rollback => {
                if let Some(before) = &self.instead {
                    put(&before.as_bytes()[HEADER_BYTES..]);
                }
                Op::Rollback { xid }.encode(put);
            }
        }
    }

    /// Updates section, host and memtables after the phase was ordered at `first_seq`, with its
    /// record in `log`. Lock: under the order lock.
    ///
    /// Invariant: a section's numbers are pending before any later write can be acknowledged, so no
    /// reader at one of them, or above, misses that they are pending.
    pub(crate) fn ordered<H: Host>(
        &self,
        host: &H,
        pending: Option<(&PendingRanges, SeqNo)>,
        (log, first_seq): (FileNumber, SeqNo),
        pins: &Pins<H::Pin>,
    ) {
        let section = &self.section;
        match self.phase {
            Phase::Prepare => {
                section.log.store(log.0, Ordering::Release);
                host.prepared(log);
                if let (Some(numbers), Some((pending, visible))) = (&section.numbers, pending) {
                    let range = pending.add(first_seq.0, u64::from(numbers.count()), visible.0);
                    section.range.set(range).expect("a section is ordered once");
                }
            }
            // Even if it inserts nothing, because the section's log may be removed only once the
            // decision is durable, which holds when one of these memtables is flushed.
            Phase::Commit | Phase::Rollback => {
                let inserts = self.inserted().is_some_and(|batch| !batch.is_empty());
                let memtables = pins.iter().map(|(_, pin)| H::memtable(pin));
                let mut held = false;
                // Skips an empty memtable if nothing is inserted, because it may stay empty, and
                // would keep the log for that time.
                for memtable in memtables.filter(|memtable| inserts || !memtable.is_empty()) {
                    memtable.need_log(section.log());
                    held = true;
                }
                section.held_by_memtables.store(held, Ordering::Release);
            }
        }
    }

    /// Marks the start of its inserts.
    pub(crate) fn applies(&self) {
        if self.phase == Phase::Prepare && self.section.is_inserted_early() {
            self.section.may_be_inserted.store(true, Ordering::Release);
        }
    }

    /// Decides its range at `seq`, once it is persisted and its inserts are in the memtables; it is
    /// not visible yet.
    pub(crate) fn applied(&self, seq: SeqNo) {
        if self.phase != Phase::Prepare
            && let Some(range) = self.section.range()
        {
            range.decide(seq.0);
        }
    }
}

fn put_prepared(section: &Section, put: &mut impl FnMut(&[u8])) {
    let kind = if section.is_inserted_early() { PrepareKind::Prepared } else { PrepareKind::Committed };
    Op::BeginPrepare(kind).encode(put);
    put(&section.batch.as_bytes()[HEADER_BYTES..]);
    Op::EndPrepare { xid: &section.name }.encode(put);
}

/// Returns a batch of operations that were read from a log.
pub fn batch_of(records: &write_batch::WriteBatch) -> WriteBatch {
    let mut batch = WriteBatch::new();
    for op in records.reader().ops() {
        // Invariant: replay has decoded and encoded them.
        batch.push_checked(op.expect("a section decodes"));
    }
    batch
}
