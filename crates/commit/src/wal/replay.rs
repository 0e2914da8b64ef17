//! Replay of WAL records into memtables.
//!
//! It takes write batches in the order they were logged, each with the number of its log. Their
//! entries go to the memtables of the column families that still need them; the replay keeps the
//! last sequence number used.
//!
//! Invariants:
//! - An entry goes to its column family's memtable only if the family's own log number is not above
//!   the entry's log; older entries are in tables.
//! - No entry that a table has is replayed beside it, because a merge operand would be applied
//!   twice. The log number alone ensures that in a sound database; duplicates of an unsound one are
//!   skipped and reported ([`replay_duplicates`](super::replay_duplicates)).
//! - Entries of column families that do not exist (any more) or are not open are skipped, but take
//!   their sequence numbers.
//! - Operations of a prepared transaction wait until its commit marker; without one they have no
//!   effect. Keys with timestamps get the commit's. A commit whose prepared section was not seen
//!   has no effect either: the section's log was removed because tables hold its entries.
//! - A section prepared under WritePrepared is added where it is in the log, with the numbers that
//!   it was prepared with, to the families whose tables do not have it; decided or not, because
//!   tables may have undecided ones too. Entries therefore come in the order of their numbers, even
//!   if two transactions write one key. The caller that opens the database hides undecided entries.
//! - The form of a record and the sections it refers to determine its meaning, never the mode in
//!   which the database is opened.
//!
//! Compat: RocksDB opens a log with prepared sections only as a transaction database; replay needs
//! no such distinction. In a RocksDB database of the policy WritePrepared the operations of a batch
//! are numbered per [`SubBatches`], and records end in a mark: that of a plain batch has no
//! meaning, the others belong to their phase. In ours only prepared sections and rollbacks are so
//! numbered, and other batches end in a mark and an empty note ([`BATCH_END`]). Under the policy
//! WriteCommitted each operation has its own number. Records whose numbering is unclear
//! (`Replay::numbers_each`) are numbered as sub-batches: no number is then too large, so no entry
//! becomes newer than later ones.

use super::replay_duplicates::{Passed, PossibleDuplicates, Tables};
use super::sub_batches::SubBatches;
use karst_base::error::{Error, ErrorKind};
use karst_base::pacing::WriteBufferManager;
use karst_format::Corruption;
use karst_format::ids::{ColumnFamilyId, FileNumber};
use karst_format::key::{SeqNo, ValueType};
use karst_format::log::TimestampSize;
use karst_format::write_batch::{BatchReader, Op, PrepareKind, WriteBatch};
use karst_storage::memtable::{DuplicateEntry, MemTable};
use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// End mark of a batch whose operations have a number each, in a database of the policy
/// WritePrepared: a marker without meaning, and an empty note. The marker tells RocksDB, which
/// would give all one number, that the batch ends; the note, which takes no number there,
/// identifies the batch as ours.
///
/// Compat: RocksDB's batches end with one marker; with two, if a batch was written a second time.
pub const BATCH_END: [u8; 3] = [ValueType::Noop as u8, ValueType::LogData as u8, 0];

/// Destination of a column family's entries.
#[derive(Clone, Debug)]
pub struct Target {
    /// The column family.
    pub cf: ColumnFamilyId,
    /// Logs below this number hold no entries that the family still needs.
    pub log_number: FileNumber,
    /// The family's memtable.
    pub memtable: Arc<MemTable>,
    /// Bytes of memory at which the memtable is taken out ([`Replay::full_targets`]).
    pub memory_bytes: usize,
    /// The family's tables in the MANIFEST, if it has any.
    pub tables: Option<Arc<dyn Tables>>,
}

/// Operations between a prepare marker and its end.
#[derive(Debug)]
struct Section {
    kind: PrepareKind,
    /// The log of its first record, to which its entries belong.
    log: FileNumber,
    /// The log of its newest record, which is kept while it is undecided.
    kept_in: FileNumber,
    /// Its first sequence number, if it has any; otherwise that of the batch it was logged in.
    seq: SeqNo,
    ops: WriteBatch,
    /// Numbering of its operations, once it is complete; `None` if it was prepared under
    /// WriteCommitted.
    numbers: Option<SubBatches>,
}

/// A transaction that is prepared and neither committed nor rolled back.
#[derive(Debug)]
pub struct Undecided {
    /// The transaction's name.
    pub name: Vec<u8>,
    /// Operations of the transaction.
    pub ops: WriteBatch,
    /// Policy under which it was prepared.
    pub policy: Policy,
}

impl Undecided {
    /// Returns its first sequence number and their count, if its entries have any.
    pub fn range(&self) -> Option<(SeqNo, u32)> {
        match &self.policy {
            Policy::Prepared { first, numbers } => Some((*first, numbers.count())),
            Policy::Committed | Policy::Unprepared => None,
        }
    }
}

/// The policy under which a transaction was prepared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Policy {
    /// WriteCommitted: its entries are in the log only.
    Committed,
    /// WritePrepared: its entries may be in tables, at the numbers from `first` on.
    Prepared {
        /// The first of its numbers.
        first: SeqNo,
        /// Numbering of its operations.
        numbers: SubBatches,
    },
    /// WriteUnprepared: it was written in parts.
    Unprepared,
}

/// Applies write batches to memtables.
#[derive(Debug)]
pub struct Replay {
    targets: Vec<Target>,
    /// Records that tables may hold, by target.
    duplicates: Vec<PossibleDuplicates>,
    /// Sections of transactions that are neither committed nor rolled back, by transaction.
    prepared: HashMap<Box<[u8]>, Vec<Section>>,
    next_seq: SeqNo,
    /// Largest column family id in any record, even of families that do not exist.
    largest_family: ColumnFamilyId,
    applied: u64,
    /// A memtable has outgrown its target, or all of them the budget.
    full: bool,
    /// The memory budget, if it applies during replay.
    budget: Option<Budget>,
    /// The first error of records that were held back.
    failed: Option<Error>,
    /// A record had a prepared section, or a decision about one.
    two_phases: bool,
}

/// The memory budget of memtables during replay (`enforce_write_buffer_manager_during_recovery`).
#[derive(Debug)]
struct Budget {
    manager: WriteBufferManager,
    /// Bytes of the memtables that were filled and not taken out yet.
    held_bytes: usize,
    /// The memtables should be taken out.
    used_up: bool,
}

/// Divisor of the budget: replayed memtables are taken out for its sake only if they occupy at
/// least this part of it.
///
/// Without it each record would become a table while other databases use up the budget.
const LEAST_PART: usize = 16;

impl Budget {
    fn grew(&mut self, memtable: &MemTable, before: usize) {
        let now = memtable.memory_bytes();
        memtable.follow_budget(&self.manager, now);
        self.held_bytes += now.saturating_sub(before);
        self.used_up |=
            self.held_bytes >= self.manager.limit_bytes() / LEAST_PART && self.manager.should_flush();
    }
}

/// Range of the sequence numbers at which the next record may begin. More than one if a record does
/// not show how many numbers it took.
pub type Behind = RangeInclusive<SeqNo>;

const OVER: &str = "sequence numbers run over 56 bits";

/// Operations of a record outside of sections, with their offsets in it.
type Gathered<'a> = Vec<(usize, Op<'a>)>;

impl Replay {
    /// Creates an empty replay; `last_seq` is the last sequence number that the MANIFEST knows.
    pub fn new(mut targets: Vec<Target>, last_seq: SeqNo) -> Self {
        targets.sort_by_key(|target| target.cf);
        let duplicates: Vec<_> =
            targets.iter().map(|target| PossibleDuplicates::of(target.tables.as_deref())).collect();
        // The tables' numbers count too, because no new entry may have a number that they contain.
        let in_tables = duplicates.iter().map(PossibleDuplicates::through).max().unwrap_or_default();
        let next_seq = SeqNo(last_seq.max(in_tables).0 + 1);
        let (prepared, largest_family) = (HashMap::new(), ColumnFamilyId::DEFAULT);
        Self {
            targets,
            duplicates,
            prepared,
            next_seq,
            largest_family,
            applied: 0,
            full: false,
            budget: None,
            failed: None,
            two_phases: false,
        }
    }

    /// Makes memtables be taken out also when their memory budget is used up.
    pub fn keep_within(&mut self, manager: WriteBufferManager) {
        self.budget = Some(Budget { manager, held_bytes: 0, used_up: false });
    }

    /// Returns the first sequence number after all replayed ones.
    pub fn next_seq(&self) -> SeqNo {
        self.next_seq
    }

    /// Returns true if a record had a prepared section, or a decision about one.
    pub(crate) fn has_two_phases(&self) -> bool {
        self.two_phases
    }

    /// Returns the largest column family id in any record, even of families that do not exist.
    pub(crate) fn largest_family(&self) -> ColumnFamilyId {
        self.largest_family
    }

    /// Returns all targets, so that the caller can exchange memtables between two batches. The
    /// order must stay.
    pub fn targets_mut(&mut self) -> &mut [Target] {
        &mut self.targets
    }

    /// Ignores a column family from now on.
    pub fn forget_family(&mut self, cf: ColumnFamilyId) {
        if let Ok(index) = self.targets.binary_search_by_key(&cf, |target| target.cf) {
            self.targets.remove(index);
            self.duplicates.remove(index);
        }
    }

    /// Continues after a replay that has [ended](Self::end), with records logged after the current
    /// MANIFEST: none of them is in a table. `last_seq` is the MANIFEST's last number.
    pub fn follow(&mut self, last_seq: SeqNo) {
        self.next_seq = self.next_seq.max(SeqNo(last_seq.0 + 1));
        self.duplicates.fill_with(PossibleDuplicates::default);
        self.targets.iter_mut().for_each(|target| target.tables = None);
    }

    /// Iterates over the ranges that are inserted and not decided: first number and count.
    pub fn undecided_ranges(&self) -> impl Iterator<Item = (SeqNo, u32)> {
        let early = |section: &&Section| section.kind == PrepareKind::Prepared;
        let sections = self.prepared.values().flatten().filter(early);
        sections.filter_map(|section| Some((section.seq, section.numbers.as_ref()?.count())))
    }

    /// Forgets the sections in logs below `needed`, the oldest log that the MANIFEST needs: they
    /// were decided, and tables hold their entries.
    ///
    /// A secondary may not read their commit or rollback, because the primary may remove its log
    /// first. A remaining section would hide committed entries, and the commit of the next
    /// transaction of that name would write it.
    pub fn forget_decided(&mut self, needed: FileNumber) {
        self.prepared.retain(|_, sections| {
            sections.retain(|section| section.kept_in >= needed);
            !sections.is_empty()
        });
    }

    /// Returns true if a transaction was written in parts, whose entries are inserted at commit, at
    /// older numbers than entries inserted before.
    pub fn has_unprepared(&self) -> bool {
        self.prepared.values().flatten().any(|section| section.kind == PrepareKind::Unprepared)
    }

    /// Iterates over the targets whose memtables are full. Called between two batches, so that each
    /// batch is in one memtable. The caller replaces the memtables.
    pub fn full_targets(&mut self) -> impl Iterator<Item = &mut Target> {
        let any = std::mem::take(&mut self.full);
        let used_up = self.budget.as_mut().is_some_and(|budget| {
            let used_up = std::mem::take(&mut budget.used_up);
            budget.held_bytes = if used_up { 0 } else { budget.held_bytes };
            used_up
        });
        let is_full = move |target: &&mut Target| {
            let memtable = &target.memtable;
            memtable.memory_bytes() >= target.memory_bytes || (used_up && !memtable.is_empty())
        };
        self.targets.iter_mut().filter(move |_| any).filter(is_full)
    }

    /// Returns the number of entries added to memtables.
    pub fn applied(&self) -> u64 {
        self.applied
    }

    /// Returns the transactions that are prepared and neither committed nor rolled back, ordered by
    /// sequence number, if they have any, and name.
    pub fn into_undecided(self) -> Vec<Undecided> {
        let undecided = |name: &[u8], sections: &[Section]| {
            let policy = match sections {
                [Section { kind: PrepareKind::Prepared, seq, numbers: Some(numbers), .. }] => {
                    Policy::Prepared { first: *seq, numbers: numbers.clone() }
                }
                sections if sections.iter().all(|section| section.kind == PrepareKind::Committed) => {
                    Policy::Committed
                }
                _ => Policy::Unprepared,
            };
            let mut ops = WriteBatch::new();
            for op in sections.iter().flat_map(|section| section.ops.reader().ops()) {
                // Invariant: every operation was decoded when it was added.
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

    /// Returns the numbering of operations that share a number until a key repeats.
    fn numbers<'o>(&self, ops: impl Iterator<Item = Op<'o>>) -> SubBatches {
        let order = |cf, a: &[u8], b: &[u8]| match self.targets.iter().find(|target| target.cf == cf) {
            Some(target) => target.memtable.comparator().compare_user(a, b),
            None => a.cmp(b),
        };
        SubBatches::of(ops, order)
    }

    /// Returns true if each operation of a record outside of sections has its own number. Reads the
    /// whole record, so that one that does not decode is an error before any of it is applied.
    fn numbers_each(&self, batch: &BatchReader<'_>) -> Result<bool, Corruption> {
        let is_of = |xid: &[u8], kind| {
            self.prepared.get(xid).is_some_and(|sections| sections.iter().any(|section| section.kind == kind))
        };
        let (mut is_committed, mut last) = (false, None);
        for op in batch.ops() {
            let op = op?;
            is_committed |= match op {
                Op::BeginPrepare(kind) => kind == PrepareKind::Committed,
                Op::Commit { xid } | Op::CommitWithTimestamp { xid, .. } | Op::Rollback { xid } => {
                    is_of(xid, PrepareKind::Committed)
                }
                _ => false,
            };
            last = Some(op);
        }
        let ends_in_mark =
            matches!(last, Some(Op::Noop | Op::EndPrepare { .. } | Op::Commit { .. } | Op::Rollback { .. }));
        Ok(is_committed || !ends_in_mark)
    }

    /// Checks the timestamp sizes that log `wal` names against the comparators of the column
    /// families that a batch writes to, and its keys against both.
    ///
    /// Compat: RocksDB fills in timestamps for a family that got them after the log was written, if
    /// timestamps are not persisted; here they always are, so the sizes must agree. Logs of
    /// versions before 8.4 do not name them.
    ///
    /// # Errors
    /// The sizes differ, or a key is shorter than its timestamp, so that it would be mistaken for
    /// another key. `NotSupported`: an operation that keys with timestamps do not support. A batch
    /// that does not decode is left to [`apply`](Self::apply).
    pub fn check_timestamps(
        &self,
        wal: FileNumber,
        batch: &BatchReader<'_>,
        sizes: &[TimestampSize],
    ) -> Result<(), Error> {
        let any = |target: &Target| target.memtable.comparator().timestamp_size() > 0;
        if sizes.is_empty() && !self.targets.iter().any(any) {
            return Ok(());
        }
        // True inside a section; true inside one that is inserted at prepare.
        let (mut in_section, mut early) = (false, false);
        for op in batch.ops().map_while(Result::ok) {
            match op {
                Op::BeginPrepare(kind) => (in_section, early) = (true, kind != PrepareKind::Committed),
                Op::EndPrepare { .. } => (in_section, early) = (false, false),
                Op::Commit { xid } => self.check_commit(wal, xid, None)?,
                Op::CommitWithTimestamp { xid, timestamp } => self.check_commit(wal, xid, Some(timestamp))?,
                _ => {}
            }
            let Some(cf) = op.column_family() else { continue };
            let Ok(index) = self.targets.binary_search_by_key(&cf, |target| target.cf) else { continue };
            let target = &self.targets[index];
            // Sections are always checked, because their entries belong to the log of their commit.
            if target.log_number > wal && !in_section {
                continue;
            }
            let has = target.memtable.comparator().timestamp_size();
            let said = sizes.iter().find(|size| size.cf == cf).map_or(0, |size| usize::from(size.bytes));
            if said != has {
                let name = target.memtable.comparator().name();
                let text = format!(
                    "timestamps of column family {cf} have {said} bytes, and {has} in the comparator {name}"
                );
                return Err(Error::new(ErrorKind::Corruption, text));
            }
            let (what, key) = match op {
                _ if has == 0 => continue,
                Op::DeleteRange { .. } => ("a removed range", None),
                _ if early => ("a transaction that is inserted when it is prepared", None),
                Op::Put { key, .. }
                | Op::TimedPut { key, .. }
                | Op::Delete { key, .. }
                | Op::SingleDelete { key, .. }
                | Op::Merge { key, .. }
                | Op::PutBlobIndex { key, .. }
                | Op::PutEntity { key, .. } => ("", Some(key)),
                _ => continue,
            };
            let Some(key) = key else {
                let text = format!("{what} in column family {cf}, whose keys have timestamps");
                return Err(Error::not_supported(text));
            };
            if key.len() < has {
                let bytes = key.len();
                let text =
                    format!("a key of {bytes} bytes in column family {cf}, whose timestamps have {has}");
                return Err(Error::new(ErrorKind::Corruption, text));
            }
        }
        Ok(())
    }

    /// Checks that a commit's timestamp, or its absence, fits the section it commits.
    fn check_commit(&self, wal: FileNumber, xid: &[u8], timestamp: Option<&[u8]>) -> Result<(), Error> {
        for section in self.prepared.get(xid).into_iter().flatten() {
            if section.kind == PrepareKind::Committed {
                for op in section.ops.reader().ops().map_while(Result::ok) {
                    self.stamped(wal, op, timestamp)
                        .map_err(|what| Error::new(ErrorKind::Corruption, what))?;
                }
            }
        }
        Ok(())
    }

    /// Returns the key of a section's operation that log `wal` commits, with the timestamp in place
    /// of its zeroes. `None` if the key needs no timestamp, or is not written.
    fn stamped(
        &self,
        wal: FileNumber,
        op: Op<'_>,
        timestamp: Option<&[u8]>,
    ) -> Result<Option<Vec<u8>>, String> {
        let (Some(cf), Some(key)) = (op.column_family(), op.key()) else { return Ok(None) };
        let Ok(index) = self.targets.binary_search_by_key(&cf, |target| target.cf) else { return Ok(None) };
        let target = &self.targets[index];
        let size = target.memtable.comparator().timestamp_size();
        if size == 0 || target.log_number > wal {
            return Ok(None);
        }
        match (timestamp, key.len().checked_sub(size)) {
            (None, _) => Err(format!(
                "a commit without a timestamp, of keys in column family {cf}, whose timestamps have {size} bytes"
            )),
            (Some(timestamp), _) if timestamp.len() != size => Err(format!(
                "a commit at a timestamp of {} bytes; those of column family {cf} have {size}",
                timestamp.len()
            )),
            (_, None) => Err(format!(
                "a key of {} bytes in column family {cf}, whose timestamps have {size}",
                key.len()
            )),
            (Some(timestamp), Some(bare)) => Ok(Some([&key[..bare], timestamp].concat())),
        }
    }

    /// Makes [`check`](Self::check) return `error`, the reason that records cannot be replayed.
    pub(crate) fn fail(&mut self, error: Error) {
        self.failed.get_or_insert(error);
    }

    /// Applies one batch of log `wal` and returns where the next may begin. Offsets of errors are
    /// within the batch.
    ///
    /// A batch that does not decode is not applied at all. On another error (misplaced sections, or
    /// a number used twice for a key) a part of it may have been.
    pub fn apply(&mut self, wal: FileNumber, batch: BatchReader<'_>) -> Result<Behind, Corruption> {
        let each = self.numbers_each(&batch)?;
        let mut seq = batch.seq();
        // Checked here too, so that adding offsets below cannot overflow.
        if seq > SeqNo::MAX {
            return Err(Corruption::new(OVER, 0u64));
        }
        // Number of operations outside of sections; true if it is a guess that they share numbers.
        let (mut operations, mut guessed) = (0, !each);
        // True if a commit took an unknown count of numbers.
        let mut open_ended = false;
        let mut gathered = Gathered::new();
        let mut section: Option<Section> = None;
        // The transaction that this record has rolled back: its name, and its log if it was
        // inserted at prepare.
        let mut undone: Option<(&[u8], Option<FileNumber>)> = None;
        let mut ops = batch.ops();
        loop {
            let at = ops.offset();
            let Some(op) = ops.next() else { break };
            let misplaced = |what: &'static str| Corruption::new(what, at);
            let op = op?;
            self.largest_family = self.largest_family.max(op.column_family().unwrap_or_default());
            self.two_phases |= matches!(
                op,
                Op::BeginPrepare(_)
                    | Op::Commit { .. }
                    | Op::CommitWithTimestamp { .. }
                    | Op::Rollback { .. }
            );
            match op {
                Op::BeginPrepare(kind) => {
                    if section.is_some() {
                        return Err(misplaced("a prepared section inside another"));
                    }
                    self.write_gathered(wal, &mut gathered, &mut seq)?;
                    let ops = WriteBatch::new();
                    section = Some(Section { kind, log: wal, kept_in: wal, seq, ops, numbers: None });
                }
                Op::EndPrepare { xid } => {
                    let mut section =
                        section.take().ok_or(misplaced("the end of a prepared section without its start"))?;
                    if section.kind != PrepareKind::Committed {
                        // A section logged anew begins one number before its own.
                        if section.seq == SeqNo::ZERO {
                            return Err(misplaced("a prepared section with the sequence number 0"));
                        }
                        guessed = false;
                        let ops = section.ops.reader().ops().map(|op| op.expect("a section decodes"));
                        let numbers = self.numbers(ops);
                        seq = SeqNo(seq.0 + u64::from(numbers.count()));
                        section.numbers = Some(numbers);
                        match undone {
                            // Not added, because an opening has logged it anew: it was added from
                            // its first log if that is still needed, and is in tables otherwise.
                            Some((name, first_log)) if name == xid => {
                                section.log = first_log.unwrap_or(wal);
                            }
                            _ if section.kind == PrepareKind::Prepared => {
                                self.write_section(&section).map_err(|e| Corruption::new(e.what, at))?;
                            }
                            _ => {}
                        }
                    }
                    self.prepared.entry(xid.into()).or_default().push(section);
                }
                Op::Commit { xid } | Op::CommitWithTimestamp { xid, .. } => {
                    let timestamp = match op {
                        Op::CommitWithTimestamp { timestamp, .. } => Some(timestamp),
                        _ => None,
                    };
                    let alone = gathered.is_empty();
                    self.write_gathered(wal, &mut gathered, &mut seq)?;
                    let sections = self.prepared.remove(xid);
                    open_ended |= sections.is_none();
                    guessed &= sections.is_none();
                    seq = SeqNo(seq.0 + u64::from(alone && !each));
                    for section in sections.unwrap_or_default() {
                        self.commit(wal, &section, timestamp, &mut seq)
                            .map_err(|e| Corruption::new(e.what, at))?;
                    }
                }
                Op::Rollback { xid } => {
                    let alone = gathered.is_empty();
                    self.write_gathered(wal, &mut gathered, &mut seq)?;
                    let sections = self.prepared.remove(xid).unwrap_or_default();
                    guessed &= sections.is_empty();
                    seq = SeqNo(seq.0 + u64::from(alone && !each));
                    let early = sections.iter().find(|section| section.kind == PrepareKind::Prepared);
                    undone = Some((xid, early.map(|section| section.log)));
                }
                Op::Noop => self.write_gathered(wal, &mut gathered, &mut seq)?,
                Op::LogData(_) => {}
                op => match &mut section {
                    Some(section) => section.ops.push(op),
                    None if each => {
                        self.write(wal, op, seq).map_err(|e| Corruption::new(e.what, at))?;
                        seq = SeqNo(seq.0 + 1);
                    }
                    None => {
                        operations += 1;
                        gathered.push((at, op));
                    }
                },
            }
        }
        if section.is_some() {
            return Err(Corruption::new("a prepared section without its end", batch.bytes().len()));
        }
        self.write_gathered(wal, &mut gathered, &mut seq)?;
        self.next_seq = self.next_seq.max(seq);
        let by_each = if guessed { SeqNo(batch.seq().0 + operations) } else { seq };
        let most = if open_ended && (each || guessed) { SeqNo(u64::MAX) } else { seq.max(by_each) };
        Ok(seq.min(by_each)..=most)
    }

    /// Writes the operations of a batch that ends, and advances `seq` past it.
    fn write_gathered(
        &mut self,
        wal: FileNumber,
        gathered: &mut Gathered<'_>,
        seq: &mut SeqNo,
    ) -> Result<(), Corruption> {
        if gathered.is_empty() {
            return Ok(());
        }
        let numbers = self.numbers(gathered.iter().map(|(_, op)| *op));
        for (index, (at, op)) in gathered.drain(..).enumerate() {
            let of_op = SeqNo(seq.0 + u64::from(numbers.offset(index)));
            self.write(wal, op, of_op).map_err(|e| Corruption::new(e.what, at))?;
        }
        *seq = SeqNo(seq.0 + u64::from(numbers.count()));
        Ok(())
    }

    /// Writes the operations of a commit, unless they were written at prepare, and advances `seq`
    /// past them.
    fn commit(
        &mut self,
        wal: FileNumber,
        section: &Section,
        timestamp: Option<&[u8]>,
        seq: &mut SeqNo,
    ) -> Result<(), Corruption> {
        match section.kind {
            PrepareKind::Prepared => {}
            PrepareKind::Committed => {
                for op in section.ops.reader().ops() {
                    let op = op?;
                    let stamped =
                        self.stamped(wal, op, timestamp).map_err(|what| Corruption::new(what, 0u64))?;
                    self.write(wal, stamped.as_deref().map_or(op, |key| op.with_key(key)), *seq)?;
                    *seq = SeqNo(seq.0 + 1);
                }
            }
            PrepareKind::Unprepared => self.write_section(section)?,
        }
        Ok(())
    }

    /// Writes a section with the numbers that it was prepared with.
    fn write_section(&mut self, section: &Section) -> Result<(), Corruption> {
        let numbers =
            section.numbers.as_ref().expect("it has numbers, as it was not prepared under WriteCommitted");
        let ops =
            section.ops.reader().ops().filter(|op| op.as_ref().is_ok_and(|op| op.column_family().is_some()));
        for (index, op) in ops.enumerate() {
            self.write(section.log, op?, SeqNo(section.seq.0 + u64::from(numbers.offset(index))))?;
        }
        self.next_seq = self.next_seq.max(SeqNo(section.seq.0 + u64::from(numbers.count())));
        Ok(())
    }

    /// Writes one operation.
    fn write(&mut self, wal: FileNumber, op: Op<'_>, seq: SeqNo) -> Result<(), Corruption> {
        if seq > SeqNo::MAX {
            return Err(Corruption::new(OVER, 0u64));
        }
        let cf = op.column_family().unwrap_or(ColumnFamilyId::DEFAULT);
        let Ok(index) = self.targets.binary_search_by_key(&cf, |target| target.cf) else { return Ok(()) };
        if self.targets[index].log_number > wal {
            return Ok(());
        }
        if self.duplicates[index].may_hold(seq) {
            self.duplicates[index].hold(seq, op);
            if self.duplicates[index].is_full_lot() {
                self.decide(index);
            }
            return Ok(());
        }
        self.decide(index);
        self.insert(index, seq, op)
    }

    fn insert(&mut self, index: usize, seq: SeqNo, op: Op<'_>) -> Result<(), Corruption> {
        let target = &self.targets[index];
        if let Err(error) = target.memtable.check_takes_writes() {
            self.failed
                .get_or_insert_with(|| error.in_context(format!("a log has column family {}", target.cf)));
            return Ok(());
        }
        let before = if self.budget.is_some() { target.memtable.memory_bytes() } else { 0 };
        if add(&target.memtable, seq, op).is_err() {
            let what =
                format!("sequence number {seq} of column family {} is used twice for one key", target.cf);
            return Err(Corruption::new(what, 0u64));
        }
        self.applied += 1;
        self.full |= target.memtable.memory_bytes() >= target.memory_bytes;
        if let Some(budget) = &mut self.budget {
            budget.grew(&target.memtable, before);
            self.full |= budget.used_up;
        }
        Ok(())
    }

    /// Replays the records held back for a target that are not in its tables.
    ///
    /// Errors are kept for [`check`](Self::check), because they are no damage of the current
    /// record.
    fn decide(&mut self, index: usize) {
        let target = &self.targets[index];
        let Some(tables) = target.tables.clone().filter(|_| self.duplicates[index].holds_any()) else {
            return;
        };
        let decided = self.duplicates[index].decide(target.cf, &*tables);
        let inserted =
            decided.map_err(|e| e.in_context("comparing a log's records with tables")).and_then(|held| {
                held.entries().try_for_each(|(seq, op)| {
                    self.insert(index, seq, op).map_err(|e| {
                        Error::with_source(ErrorKind::Corruption, format!("the logs: {}", e.what), e)
                    })
                })
            });
        if let Err(error) = inserted {
            self.failed.get_or_insert(error);
        }
    }

    /// Returns true if memtables hold all records so far: no section is undecided, and no record is
    /// or was a possible duplicate.
    pub(crate) fn holds_nothing(&self) -> bool {
        let is_certain = |it: &PossibleDuplicates| !it.holds_any() && it.passed().is_none();
        self.prepared.is_empty() && self.duplicates.iter().all(is_certain)
    }

    /// Returns the first error of records that were held back.
    ///
    /// # Errors
    /// Tables could not be read, which is no damage of a log; or a number is used twice for one
    /// key.
    pub fn check(&mut self) -> Result<(), Error> {
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Ends the replay: decides the records held back, and returns those that tables had.
    ///
    /// # Errors
    /// A table cannot be read, or a number is used twice for one key.
    pub fn end(&mut self) -> Result<Vec<Passed>, Error> {
        (0..self.targets.len()).for_each(|index| self.decide(index));
        self.check()?;
        Ok(self.duplicates.iter().filter_map(PossibleDuplicates::passed).collect())
    }
}

/// Adds the entry of one operation to its family's memtable; markers add none.
pub fn add(memtable: &MemTable, seq: SeqNo, op: Op<'_>) -> Result<(), DuplicateEntry> {
    match op {
        Op::Put { key, value, .. } => memtable.add(seq, ValueType::Value, key, value),
        Op::Delete { key, .. } => memtable.add(seq, ValueType::Deletion, key, b""),
        Op::SingleDelete { key, .. } => memtable.add(seq, ValueType::SingleDeletion, key, b""),
        Op::DeleteRange { begin, end, .. } => memtable.add(seq, ValueType::RangeDeletion, begin, end),
        Op::Merge { key, operand, .. } => memtable.add(seq, ValueType::Merge, key, operand),
        Op::PutBlobIndex { key, index, .. } => memtable.add(seq, ValueType::BlobIndex, key, index),
        Op::PutEntity { key, entity, .. } => memtable.add(seq, ValueType::WideColumnEntity, key, entity),
        Op::TimedPut { key, value, .. } => {
            // The preferred sequence number matters to compaction only; the largest one never takes
            // effect.
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
