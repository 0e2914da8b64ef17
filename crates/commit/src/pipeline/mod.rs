//! The commit protocol: its requirements, the four steps, and rejected alternatives.
//!
//! **Requirements.** Many concurrent writers, each with a batch. An acknowledged batch is recovered
//! after a crash, and every batch whole or not at all; readers see batches whole and in one order;
//! and a new reader sees all acknowledged writes. The device takes one write at a time and is slow.
//! An insert into a memtable is a chain of cache misses, and memtables take many at a time.
//!
//! **Four steps.** The part that needs one order is kept as short as possible, and all other work
//! runs concurrently:
//!
//! | step | done by | lock and work |
//! |---|---|---|
//! | [order](crate::order) | the writer | the order lock: takes a ticket and sequence numbers, frames the record into the log buffer, pins the memtable of every family it touches |
//! | [persist](crate::persist) | the leader, one at a time | the lock of the files: takes the whole buffer (the next one fills meanwhile), writes it, syncs if a record asks for it |
//! | [apply](crate::apply) | the writer | no lock: inserts its own batch, concurrently with others; or leaves a small one to be inserted together with the next ones |
//! | [publish](crate::publish) | the caller that finishes a ticket | no lock: the visible sequence number advances over the finished prefix of tickets |
//!
//! Each step has its own state, and does not know the others. This module alone knows all four: a
//! [write](Commit) passes through them, and the switch of logs (`logs`) and the holding up of
//! writers (`held`) involve several.
//!
//! **Return of a write.** A write returns when its own sequence number is visible. With
//! `unordered_write` it returns when its own inserts are done and everything ordered before it is
//! persisted; with `two_write_queues` the writes that insert nothing do. A read that begins before
//! the older inserts are done waits for them (`readable`), so reads return the same results in both
//! modes.
//!
//! **No wait for an absent writer.** From the order step on a batch belongs to the pipeline. Its
//! writer's future may be dropped, or not polled any more; a waiter behind it, or the leader, then
//! applies it. Work for a leader never lies idle: a writer that orders becomes leader if no one is,
//! and a leader that leaves checks again afterwards. Any query for the visible sequence number
//! first inserts the waiting entries.
//!
//! **After a failure** of the log every logged ticket that was not written fails and is published
//! empty. No write is ordered until [`Pipeline::resume`], which waits until all tickets are
//! published: a gap in the sequence numbers would end recovery, so every memtable is first sealed
//! with a new log and flushed. An insert that panics finishes its ticket and breaks the memtable,
//! and no write is ordered until the database is reopened.
//!
//! **Rejected.** *Write groups*, as in RocksDB: a group ends for all its writers when its slowest
//! member has inserted, and the next one forms only then. *Tickets without a lock*, with space in
//! the buffer reserved by an atomic add: a record's place in its block, its checksum and the pins
//! would each need a protocol of their own. *A queue of commits whose head publishes*: the head may
//! have lost its processor; here any writer that finishes publishes for all. *Apply concurrent with
//! persist*: an entry whose record failed would be in a memtable that must be flushed.
//! docs/decisions/commit-pipeline.md has the measurements, check-then-act.md the rules for checks
//! that are acted on later.
//!
//! Invariants:
//! - Tickets, sequence numbers, records in the log and pins have one order, that of the order lock.
//! - A logged batch is applied only after its record has left the process, and is on the device if
//!   it asked for that; so all memtable entries can be recovered.
//! - A ticket is finished exactly once, even if its writer goes away.
//!
//! Lock: order, then the files by a try only; the files (leader), then order. Neither is held while
//! waiting, and the order lock is not held during I/O.

mod held;
mod logs;
mod readable;
mod task_leader;
#[cfg(all(test, not(loom)))]
mod tests;
mod write;

pub use held::{HeldPipeline, TakenNumbers};
pub use readable::Readable;
pub use write::{Commit, WriteFuture};

use crate::apply::Apply;
use crate::conflicts::Claim;
use crate::handoff::Goals;
use crate::host::{Around, Host, Pins};
use crate::options::WriteOptions;
use crate::order::{BUFFERED_BYTES, Line, NotOrdered, Order, Ordered};
use crate::persist::{Ended, Persist, Round};
use crate::publish::Publish;
use crate::source::Source;
use crate::two_phase::Section;
use crate::wal::replay::BATCH_END;
use crate::wal::writer::{LogOptions, NewLog};
use karst_base::caller::Caller;
use karst_base::error::{Error, ErrorKind, Result};
use karst_base::health::Health;
use karst_base::options::DbOptions;
use karst_base::pacing::StallController;
use karst_base::stats::Statistics;
use karst_base::stats::write_counts::WriteCounts;
use karst_base::trace::Tracer;
use karst_format::ids::ColumnFamilyId;
use karst_format::key::SeqNo;
use karst_format::log::TimestampSize;
use karst_format::trace::Query;
use karst_format::write_batch::HEADER_BYTES;
use karst_io::{Env, report};
use karst_mem::PendingRanges;
use karst_storage::memtable::MemTable;
use smallvec::SmallVec;
use std::sync::Arc;
use write::Lead;

/// Rounds that a writer leads for others before it hands over to a background thread.
const ROUNDS_FOR_OTHERS: usize = 4;

/// Database options that the pipeline uses.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Options of logs.
    pub log: LogOptions,
    /// Records leave the process only when asked to, or when more bytes than this have gathered
    /// (`manual_wal_flush`, `writable_file_max_buffer_size`).
    pub manual_flush: Option<usize>,
    /// Writes return before older ones are visible (`unordered_write`).
    pub unordered: bool,
    /// Writes that insert nothing return before older ones are visible (`two_write_queues`).
    pub two_queues: bool,
}

impl Rules {
    /// Returns the rules of the database's options.
    ///
    /// # Errors
    /// The log options are not supported.
    pub fn of(options: &DbOptions) -> Result<Rules> {
        let manual_flush = options.manual_wal_flush.then_some(options.writable_file_max_buffer_size);
        Ok(Rules {
            log: LogOptions::of(options)?,
            manual_flush,
            unordered: options.unordered_write,
            two_queues: options.two_write_queues,
        })
    }
}

/// Parts of a new pipeline.
pub struct Parts<H> {
    /// Clock and threads.
    pub env: Env,
    /// Database of the pipeline.
    pub host: H,
    /// Background errors that refuse writes.
    pub health: Arc<Health>,
    /// Write-stall control.
    pub stalls: Arc<StallController>,
    /// Tickers and histograms.
    pub statistics: Arc<Statistics>,
    /// Trace of the writes.
    pub tracer: Arc<Tracer>,
    /// Options of the database.
    pub rules: Rules,
    /// Sequence numbers that are inserted and not decided, if transactions insert at prepare.
    pub pending: Option<Arc<PendingRanges>>,
    /// The last sequence number that was used.
    pub last_seq: SeqNo,
    /// Log of the first writes.
    pub log: NewLog,
}

/// The commit pipeline of one database, described in the module's head.
pub struct Pipeline<H: Host> {
    around: Arc<Around<H>>,
    rules: Rules,
    pending: Option<Arc<PendingRanges>>,
    order: Order,
    persist: Persist<H>,
    apply: Apply<H>,
    publish: Arc<Publish>,
}

impl<H: Host> Pipeline<H> {
    /// Creates a pipeline for writes after `parts.last_seq`.
    pub fn new(parts: Parts<H>) -> Arc<Self> {
        let Parts { env, host, health, stalls, statistics, tracer, rules, pending, last_seq, log } = parts;
        let around = Arc::new(Around { env, host, health, stalls, statistics, tracer });
        let publish = Arc::new(Publish::new(last_seq));
        Arc::new(Self {
            rules,
            pending,
            order: Order::new(last_seq, log.framing, log.head),
            persist: Persist::new(around.clone(), log.file),
            apply: Apply::new(around.clone(), publish.clone()),
            publish,
            around,
        })
    }

    /// Writes on the calling thread, which spins before it sleeps, and leads the log itself if no
    /// leader is at work.
    ///
    /// # Errors
    /// Those of [`write_async`](Self::write_async).
    pub fn write(self: &Arc<Self>, options: &WriteOptions, source: Source<'_>) -> Result<()> {
        Commit::new(self, *options, source, Lead::Here).run()
    }

    /// Returns one write as a future. Dropping it before its first poll writes nothing; dropping it
    /// later leaves the batch written whole or not at all.
    ///
    /// # Errors
    /// Writes are refused or, with `no_slowdown`, held up; a column family is not open; the log
    /// failed. After a log failure it is unknown if the write is recovered when the database is
    /// reopened; after any other error nothing was written.
    pub fn write_async<'a>(self: &'a Arc<Self>, options: &WriteOptions, source: Source<'a>) -> Commit<'a, H> {
        Commit::new(self, *options, source, Lead::Elsewhere)
    }

    /// Writes in the form that `by` selects, if the claim holds when the write is ordered.
    pub async fn write_by(
        self: &Arc<Self>,
        by: Caller,
        options: &WriteOptions,
        source: Source<'_>,
        claim: Option<&Claim>,
    ) -> Result<()> {
        match by {
            Caller::Thread => Commit::new(self, *options, source, Lead::Here).claiming(claim).run(),
            Caller::Task => Commit::new(self, *options, source, Lead::Elsewhere).claiming(claim).await,
        }
    }

    /// Performs the order step. Fills `pins`. With [`Lead::Here`] and no leader at work, or with
    /// [`Lead::AtOnce`] if that round is short, returns the round that holds its record, and the
    /// caller must lead it.
    fn order(
        &self,
        options: &WriteOptions,
        source: &Source<'_>,
        claim: Option<&Claim>,
        pins: &mut Pins<H::Pin>,
        lead: Lead,
    ) -> Result<(Ordered, Option<Round<'_>>), NotOrdered> {
        let count = source.count();
        // Compat: RocksDB replays the batch with one sequence number for all operations, and a
        // range at that number does not cover the batch's earlier operations.
        let apart = (self.pending.is_some() && source.mixes_ranges()).then(|| source.with_ranges_apart());
        let body_bytes = apart.as_ref().map_or(source.bytes() - HEADER_BYTES, Vec::len);
        let written = self.order.written_by(source);
        let mut guard = self.order.lock();
        let line = &mut *guard;
        line.check().map_err(NotOrdered::Refused)?;
        let ticket = line.next_ticket();
        if !line.is_open() && options.no_slowdown {
            let why = if line.is_held() { "files are being ingested" } else { "the log is locked" };
            let text = format!("{why}, and this write would not wait");
            return Err(NotOrdered::Refused(Error::new(ErrorKind::Incomplete, text)));
        }
        if !self.has_room_in(line) {
            return Err(NotOrdered::Full);
        }
        // Checked again under the lock. A seal stops writes before it takes this lock, so that no
        // memtable gets writes that should have waited.
        if self.around.stalls.is_stopped() {
            return Err(NotOrdered::Stopped);
        }
        if let Some(claim) = claim {
            self.order.check_claim(claim)?;
        }
        let mut timestamps: SmallVec<[TimestampSize; 2]> = SmallVec::new();
        for family in source.families() {
            match self.around.host.pin(*family).map_err(NotOrdered::Refused)? {
                // Checked on the pinned memtable, because a seal needs this lock.
                Some(pin) if H::memtable(&pin).is_overfull() => return Err(NotOrdered::Full),
                Some(pin) => {
                    timestamps.extend(timestamp_size(*family, H::memtable(&pin))?);
                    pins.push((*family, pin));
                }
                None if options.ignore_missing_column_families => {}
                None => {
                    let text = format!("a write to column family {family}, which is not open");
                    return Err(NotOrdered::Refused(Error::invalid_argument(text)));
                }
            }
        }
        let first_seq = line.next_seq();
        let last_seq = SeqNo(first_seq.0 + u64::from(count) - 1);
        if last_seq > SeqNo::MAX {
            let error = Error::new(ErrorKind::LimitReached, "the sequence numbers are used up");
            return Err(NotOrdered::Refused(error));
        }
        if !options.disable_wal {
            let mut head = [0; HEADER_BYTES];
            head[..8].copy_from_slice(&first_seq.0.to_le_bytes());
            head[8..].copy_from_slice(&source.logged_count().to_le_bytes());
            // Compat: where all operations of a batch share a number, RocksDB needs a mark at its
            // end; and our replay needs one because we number them otherwise.
            let ends = self.pending.is_some() && count > 0 && source.phase().is_none();
            let tail = if ends { &BATCH_END[..] } else { &[] };
            let put = |record: &mut Vec<u8>| {
                record.extend_from_slice(&head);
                match &apart {
                    Some(body) => record.extend_from_slice(body),
                    None => source.put_body(record),
                }
                record.extend_from_slice(tail);
            };
            let record = (HEADER_BYTES + body_bytes + tail.len(), put);
            if let Some(phase) = source.phase() {
                timestamps.extend_from_slice(phase.named_timestamps());
            }
            if !timestamps.is_empty() {
                line.name_timestamps(&timestamps);
            }
            line.frame(count, record)?;
        }
        if let Some(phase) = source.phase() {
            let pending = self.pending.as_deref().map(|pending| (pending, self.publish.visible()));
            phase.ordered(&self.around.host, pending, (line.log(), first_seq), pins);
            if phase.decides_inserted() {
                self.persist.decides(ticket);
            }
        }
        line.give(last_seq, (count, source.bytes()), !options.disable_wal);
        self.order.note(written, source, last_seq);
        self.publish.enter(ticket, last_seq);
        if self.around.tracer.preserves_write_order() {
            self.trace(source);
        }
        // Limited by `BUFFERED_BYTES`, because with more in the buffer no write is ordered, and no
        // caller would flush it.
        let gathers =
            self.rules.manual_flush.is_some_and(|most| line.buffered_bytes() < most.min(BUFFERED_BYTES));
        let persists = !options.disable_wal && (options.sync || !gathers);
        let ahead = self.persist.goals();
        let mut round = None;
        if persists {
            self.persist.ask(ticket, options.sync);
            round = match lead {
                Lead::Here => self.persist.try_take_round(line),
                Lead::AtOnce => self.persist.try_take_short_round(line),
                Lead::Elsewhere => None,
            };
        }
        Ok((Ordered { ticket, first_seq, last_seq, persists, ahead }, round))
    }

    /// Adds a write to the trace. Of a transaction's phase only the inserted entries are traced,
    /// because a replay of the trace writes its entries as they are.
    #[cold]
    fn trace(&self, source: &Source<'_>) {
        if let Some(batch) = source.inserted() {
            self.around.tracer.record(&Query::Write(&batch));
        }
    }

    /// Tracks the keys of all writes from now on, in `buckets` buckets.
    ///
    /// # Errors
    /// Transactions insert at prepare: a commit makes earlier inserts visible, and names no key.
    pub fn track_conflicts(&self, buckets: u32) -> Result<()> {
        if self.pending.is_some() {
            let text = "writes that depend on keys do not go with the write policy WritePrepared";
            return Err(Error::not_supported(text));
        }
        self.order.track_conflicts(buckets);
        Ok(())
    }

    /// Returns a claim that none of `keys` is written after `seen`; `None` is any key of its
    /// family.
    ///
    /// # Errors
    /// Keys are not tracked.
    pub fn claim<'a>(
        &self,
        keys: impl Iterator<Item = (ColumnFamilyId, Option<&'a [u8]>)>,
        seen: SeqNo,
    ) -> Result<Claim> {
        self.order.claim(keys, seen)
    }

    /// Waits until `holds` is true; a finished write or a leader may make it true.
    async fn wait_for_room(&self, holds: impl Fn(&Self) -> bool) {
        let _waiting = self.publish.wait_for_room();
        loop {
            let listener = self.publish.listen_for_room();
            self.settle_orphans();
            if holds(self) {
                return;
            }
            listener.await;
        }
    }

    /// Returns true if one more write to `families` could be ordered, or is refused. Without
    /// families, a write that goes to no memtable.
    fn has_room_for(&self, families: &[ColumnFamilyId]) -> bool {
        let line = self.order.lock();
        let is_overfull = |family: &ColumnFamilyId| self.around.host.is_overfull(*family);
        line.refused().is_some() || (self.has_room_in(&line) && !families.iter().any(is_overfull))
    }

    fn has_room_in(&self, line: &Line) -> bool {
        line.is_open()
            && self.publish.has_room(line.next_ticket())
            && line.buffered_bytes() + self.persist.in_round() <= BUFFERED_BYTES
    }

    /// Returns true if everything that was ordered is published.
    fn has_published_all(&self) -> bool {
        let line = self.order.lock();
        self.publish.published() == line.next_ticket()
    }

    /// Returns the first unused sequence number.
    pub fn next_seq(&self) -> SeqNo {
        self.order.lock().next_seq()
    }

    /// Assigns all sequence numbers up to `last` to one ticket, which the caller must finish.
    fn enter_to(&self, line: &mut Line, last: SeqNo) -> u64 {
        let ticket = line.next_ticket();
        debug_assert!(last >= line.next_seq() && self.publish.has_room(ticket));
        line.give_to(last);
        self.publish.enter(ticket, last);
        ticket
    }

    /// Waits until everything up to `seq`, which must have been ordered, is visible, and its
    /// inserts are complete.
    pub async fn wait_until_visible(&self, seq: SeqNo) {
        self.wait_for_room(|pipeline| {
            pipeline.apply.settle();
            pipeline.publish.visible() >= seq
        })
        .await;
    }

    /// Returns the environment.
    pub fn env(&self) -> &Env {
        &self.around.env
    }

    /// Returns write-stall control.
    pub fn stalls(&self) -> &StallController {
        &self.around.stalls
    }

    /// Returns the database of the pipeline.
    pub fn host(&self) -> &H {
        &self.around.host
    }

    /// Returns the background errors that refuse writes.
    pub fn health(&self) -> &Arc<Health> {
        &self.around.health
    }

    /// Returns the counters of writers and logs.
    pub fn write_counts(&self) -> WriteCounts {
        let counts = self.order.lock().counts();
        WriteCounts { stall_micros: self.around.stalls.held_micros(), ..self.persist.count(counts) }
    }

    /// Returns the error of refused writes.
    fn refusal(&self) -> Error {
        let refused = self.order.lock().refused().cloned();
        refused.unwrap_or_else(|| Error::new(ErrorKind::Io, "the log failed while this write waited"))
    }

    /// Refuses writes because of a failed log, and fails all that was not written. Called by the
    /// leader. Returns the next ticket.
    fn refuse(&self, error: &Error) -> u64 {
        let mut line = self.order.lock();
        line.fail(error);
        // Under the order lock, so that a resumption sees both or neither.
        self.persist.fail();
        line.next_ticket()
    }

    /// Returns the error of a write whose record may not have been written.
    fn failure(&self) -> Error {
        self.refusal().in_context("the write was not logged")
    }

    /// Leads one round. The caller has taken the leadership.
    fn lead(self: &Arc<Self>) {
        let files = self.persist.files();
        let round = self.persist.take_round(files, &mut self.order.lock());
        if let Some(round) = round {
            self.lead_round(round);
        }
    }

    /// Writes a round, and gives up the leadership.
    fn lead_round(self: &Arc<Self>, round: Round<'_>) {
        self.end_round(self.persist.write(round));
    }

    /// Gives up the leadership after a round, and wakes the waiters for it.
    fn end_round(self: &Arc<Self>, ended: Ended) {
        let Ended { tickets: (first, end), outcome } = ended;
        let wake_end = outcome.as_ref().map_or_else(|error| self.refuse(error), |()| end);
        self.persist.leave();
        if let Err(error) = outcome {
            report!(error, "writes are refused: {error}");
            // Reported before waiters are woken, because one that sees the failure may ask to
            // resume, and a later report would stop writes again.
            self.around.host.log_failed(&error);
        }
        self.publish.wake(first, wake_end);
        self.persist.tell();
        self.publish.ring_room();
        self.settle_orphans();
    }

    /// Leads further rounds after this thread's own, so that no record waits without a leader.
    fn lead_for_others(self: &Arc<Self>) {
        for _ in 0..ROUNDS_FOR_OTHERS {
            if !self.persist.try_lead() {
                return;
            }
            self.lead();
        }
        self.lead_elsewhere();
    }

    /// Applies batches that their writers have left, where due; see [`Apply::settle_orphans`].
    fn settle_orphans(&self) {
        self.apply.settle_orphans(|ticket, sync| self.persist.fate(ticket, sync));
    }

    /// Returns true if a write that is applied, or being applied by another caller, may return now.
    /// Every read that begins afterwards sees it.
    ///
    /// It waits for the writes ordered `ahead` to be persisted even with `unordered_write`, because
    /// reads wait for everything up to the acknowledged write, and must not wait for the device.
    #[inline]
    fn acknowledges(&self, ticket: u64, last_seq: SeqNo, ahead: Goals, only_logs: bool) -> bool {
        if self.publish.is_published(ticket, last_seq) {
            return true;
        }
        let early = self.rules.unordered || (self.rules.two_queues && only_logs);
        early && self.publish.acknowledge_early(ticket, last_seq, || self.persist.is_past(ahead))
    }

    /// Removes decided ranges that are visible to every new reader. Not done in every commit,
    /// because it copies the list.
    pub fn forget_decided(&self) {
        if let Some(pending) = &self.pending {
            pending.remove_decided(self.publish.visible().0);
        }
    }

    /// Withdraws the sequence numbers of a section that was ordered but not written.
    pub fn withdraw(&self, section: &Section) {
        if let (Some(pending), Some(range)) = (&self.pending, section.range()) {
            pending.withdraw(range);
        }
    }

    /// Checks that memtables hold all that was inserted into them.
    ///
    /// # Errors
    /// An insert ever panicked.
    pub fn check_inserts(&self) -> Result<()> {
        self.apply.check_inserts()
    }
}

/// Returns the timestamp size that a log must name for a column family; `None` if it has no
/// timestamps.
#[inline]
fn timestamp_size(cf: ColumnFamilyId, memtable: &MemTable) -> Result<Option<TimestampSize>, NotOrdered> {
    let bytes = memtable.comparator().timestamp_size();
    if bytes == 0 {
        return Ok(None);
    }
    let too_long = |_| {
        let text = format!("timestamps of {bytes} bytes in column family {cf}; a log can name {}", u16::MAX);
        NotOrdered::Refused(Error::invalid_argument(text))
    };
    Ok(Some(TimestampSize { cf, bytes: u16::try_from(bytes).map_err(too_long)? }))
}

impl<H: Host> std::fmt::Debug for Pipeline<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pipeline")
            .field("publish", &self.publish)
            .field("rules", &self.rules)
            .finish_non_exhaustive()
    }
}
