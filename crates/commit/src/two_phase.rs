//! The two phases of a transaction, as records of the log.
//!
//! In: a transaction's name and batch. Out: the parts of a write that differ for each phase and
//! policy: what is logged, what is inserted, and which sequence numbers it takes.
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
//! | prepare | as above, with another begin marker | as [`SubBatches`] has them; the header counts operations | the batch, undecided |
//! | commit | as above | one | nothing; the batch counts from this number on |
//! | rollback | what was there before, rollback marker with the name | one for all | what was there before; it and the batch below it count from this number on |
//!
//! Where keys have timestamps, those of a section end in zeroes. Its commit says the timestamp in
//! the marker, and what is inserted has that in the zeroes' place. Only WriteCommitted has this.
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
    /// What it writes.
    pub batch: WriteBatch,
    /// Under WritePrepared: how its operations are numbered.
    numbers: Option<SubBatches>,
    /// What a log has to say before its prepare record: of its column families, which have
    /// timestamps.
    timestamps: Vec<TimestampSize>,
    /// The log that its prepare record went to; 0 before.
    log: AtomicU64,
    /// Whether memtables keep that log now that it was decided.
    held_by_memtables: AtomicBool,
    /// Whether its inserts were begun.
    may_be_inserted: AtomicBool,
    /// Under WritePrepared, once it was ordered: its sequence numbers, among those that are
    /// pending.
    range: OnceLock<Arc<Range>>,
}

impl Section {
    /// One that is to be prepared; with `numbers` under WritePrepared.
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

    /// The same, of which these column families have timestamps.
    #[must_use]
    pub fn with_timestamps(self, timestamps: Vec<TimestampSize>) -> Self {
        Self { timestamps, ..self }
    }

    /// Which of its column families have timestamps.
    pub fn timestamps(&self) -> &[TimestampSize] {
        &self.timestamps
    }

    /// One that was found prepared and is logged anew in `log`; its sequence numbers are pending
    /// again, if it has any.
    pub fn found(self, log: FileNumber, range: Option<Arc<Range>>) -> Self {
        let range = range.map_or_else(OnceLock::new, OnceLock::from);
        Self { log: AtomicU64::new(log.0), range, ..self }
    }

    /// The log that its prepare record went to; 0 if it was not ordered.
    pub fn log(&self) -> FileNumber {
        FileNumber(self.log.load(Ordering::Acquire))
    }

    /// Whether nothing but the decision itself, once it is durable, lets its log go: nothing that
    /// keeps it goes with a memtable.
    pub fn waits_for_sync(&self) -> bool {
        !self.held_by_memtables.load(Ordering::Acquire)
    }

    /// Whether some of it may be in memtables.
    pub fn may_be_inserted(&self) -> bool {
        self.may_be_inserted.load(Ordering::Acquire)
    }

    /// Whether it was, or is, inserted when it is prepared.
    pub fn is_inserted_early(&self) -> bool {
        self.numbers.is_some()
    }

    /// Its sequence numbers, among those that are pending.
    pub fn range(&self) -> Option<&Arc<Range>> {
        self.range.get()
    }
}

/// How the operations of a write are numbered.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Numbering<'a> {
    /// Each has a number of its own.
    Each,
    /// All have one number.
    Alike,
    SubBatches(&'a SubBatches),
}

impl Numbering<'_> {
    /// The number of the operation at `index`, given the first.
    #[inline]
    pub(crate) fn of(&self, first: SeqNo, index: usize) -> SeqNo {
        SeqNo(match self {
            Numbering::Each => first.0 + index as u64,
            Numbering::Alike => first.0,
            Numbering::SubBatches(numbers) => first.0 + u64::from(numbers.offset(index)),
        })
    }
}

/// A phase of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Its operations are logged, and undecided.
    Prepare,
    /// They count.
    Commit,
    /// They never will.
    Rollback,
}

/// A phase to be written.
#[derive(Clone, Debug)]
pub struct PhaseWrite {
    section: Arc<Section>,
    phase: Phase,
    /// What is inserted in the section's stead. For a rollback under WritePrepared that is what was
    /// there before, each key once; for a commit, the section with its timestamps.
    instead: Option<Arc<WriteBatch>>,
    /// Of a commit, where keys have timestamps.
    timestamp: Option<Box<[u8]>>,
    /// Of what the record has behind its header.
    body_bytes: usize,
}

impl PhaseWrite {
    /// A phase of that section.
    pub fn new(section: &Arc<Section>, phase: Phase) -> Self {
        Self::of(section, phase, None, None)
    }

    /// The commit of a section whose keys have timestamps, at one: inserts `stamped`, which is the
    /// section's batch with it.
    pub fn stamping(section: &Arc<Section>, timestamp: &[u8], stamped: WriteBatch) -> Self {
        debug_assert_eq!(stamped.count(), section.batch.count(), "it is the same but for timestamps");
        Self::of(section, Phase::Commit, Some(stamped.into()), Some(timestamp.into()))
    }

    /// The rollback of what was inserted: writes what was there `before`, each key once.
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

    /// The record that prepares a recovered transaction anew, its header included: whatever an
    /// older log says of it is undone first, so that it counts once if both are replayed.
    /// `next_seq` is what comes next in the log. Returns also the header's sequence number and how
    /// many the record takes.
    pub fn again(section: &Section, next_seq: SeqNo) -> (Vec<u8>, SeqNo, u32) {
        // Compat: the rollback's marker takes a number where batches are numbered alike, so the
        // section has that behind it: its own.
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

    /// What is inserted.
    pub(super) fn inserted(&self) -> Option<&WriteBatch> {
        let batch = &self.section.batch;
        match (self.phase, &self.section.numbers) {
            (Phase::Prepare, Some(_)) => Some(batch),
            (Phase::Commit, None) => Some(self.instead.as_deref().unwrap_or(batch)),
            (Phase::Rollback, _) => self.instead.as_deref(),
            (Phase::Prepare, None) | (Phase::Commit, Some(_)) => None,
        }
    }

    /// Column families whose memtables have to do with it.
    pub(super) fn families(&self) -> &[ColumnFamilyId] {
        match (self.phase, &self.section.numbers) {
            (Phase::Prepare, None) => &[],
            _ => self.section.batch.families(),
        }
    }

    /// What the log has to say of timestamps before its record, but for those of the
    /// [families](Self::families).
    pub(super) fn named_timestamps(&self) -> &[TimestampSize] {
        match self.phase {
            Phase::Prepare => &self.section.timestamps,
            Phase::Commit | Phase::Rollback => &[],
        }
    }

    /// How many sequence numbers it takes.
    pub(super) fn count(&self) -> u32 {
        match (self.phase, &self.section.numbers) {
            (Phase::Prepare, Some(numbers)) => numbers.count(),
            (Phase::Commit | Phase::Rollback, Some(_)) => 1,
            (Phase::Commit, None) => self.section.batch.count(),
            (Phase::Prepare | Phase::Rollback, None) => 0,
        }
    }

    /// How what is inserted is numbered.
    pub(super) fn numbering(&self) -> Numbering<'_> {
        match (self.phase, &self.section.numbers) {
            (Phase::Prepare, Some(numbers)) => Numbering::SubBatches(numbers),
            (Phase::Rollback, _) => Numbering::Alike,
            _ => Numbering::Each,
        }
    }

    /// What the header of its record counts.
    pub(super) fn logged_count(&self) -> u32 {
        match self.phase {
            Phase::Prepare => self.section.batch.count(),
            Phase::Commit => 0,
            Phase::Rollback => self.instead.as_ref().map_or(0, |before| before.count()),
        }
    }

    /// Whether it decides about what was inserted when it was prepared.
    pub(super) fn decides_inserted(&self) -> bool {
        self.phase != Phase::Prepare && self.section.is_inserted_early()
    }

    pub(super) fn body_bytes(&self) -> usize {
        self.body_bytes
    }

    /// Gives out the record behind its header, part by part.
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

    /// It was ordered at `first_seq`, and its record is in `log`. Lock: under the order lock.
    ///
    /// Invariant: a section's numbers are pending before anything that is ordered behind it can be
    /// acknowledged, so nobody reads at one of them, or above, without knowing.
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
            // Why also where it inserts nothing: the section's log may go only once this is
            // durable, and it is when one of these memtables is.
            Phase::Commit | Phase::Rollback => {
                let inserts = self.inserted().is_some_and(|batch| !batch.is_empty());
                let memtables = pins.iter().map(|(_, pin)| H::memtable(pin));
                let mut held = false;
                // Why not an empty one, if nothing is inserted: it may stay so, and would keep the
                // log for as long.
                for memtable in memtables.filter(|memtable| inserts || !memtable.is_empty()) {
                    memtable.need_log(section.log());
                    held = true;
                }
                section.held_by_memtables.store(held, Ordering::Release);
            }
        }
    }

    /// What it inserts is about to be.
    pub(crate) fn applies(&self) {
        if self.phase == Phase::Prepare && self.section.is_inserted_early() {
            self.section.may_be_inserted.store(true, Ordering::Release);
        }
    }

    /// It was ordered at `seq` and is persisted, and what it inserts is in the memtables; it is not
    /// visible yet.
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

/// A batch of operations that were read from a log.
pub fn batch_of(records: &write_batch::WriteBatch) -> WriteBatch {
    let mut batch = WriteBatch::new();
    for op in records.reader().ops() {
        // Invariant: replay has decoded and encoded them.
        batch.push_checked(op.expect("a section decodes"));
    }
    batch
}
