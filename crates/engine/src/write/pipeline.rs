//! The commit pipeline: how writes get their order, and what every step may rely on.
//!
//! | step | who | under what |
//! |---|---|---|
//! | order | the writer | the order lock: takes sequence numbers and a ticket, frames the record into the log buffer, pins the memtable of every family it touches |
//! | persist | the leader, one at a time | the leader's lock: takes the whole buffer (the next one fills meanwhile), writes it, syncs if any of it asks |
//! | apply | the writer | nothing: inserts its own batch, at the same time as others; or leaves a small one to be inserted together with the next ones (`gather`) |
//! | publish | whoever finishes | nothing: `visible_seq` advances over the finished prefix of tickets ([`PublishRing`]) |
//!
//! A write returns when its own sequence is visible; with `unordered_write` already when its own
//! inserts are done and everything ordered before it is persisted, and so with `two_write_queues`
//! do those that insert nothing. In between a read that begins waits for the inserts that are left
//! (`readable`), so reads see the same either way.
//!
//! Why not RocksDB's write groups: a group ends for all its writers when its slowest member has
//! inserted, and the next one forms only then; here nobody waits for a group. Why the record is
//! copied under the lock: the order of records in the log must be that of their sequence numbers,
//! and a copy of some hundred bytes is cheaper than any way to tell others that it is not finished
//! yet.
//!
//! Invariants:
//! - Tickets, sequence numbers, records in the log and pins have one order, that of the order lock.
//!   A sequence number is never used twice, failed writes' included.
//! - Written, synced ([`Leadership`](karst_mem::commit::Leadership)): every logged ticket below has
//!   its bytes out of the process, or on the device. A logged batch is applied only after that, so
//!   what is in a memtable can be recovered.
//! - Whoever asks what is visible first has what is left to be inserted inserted; so an
//!   acknowledged write is visible to whoever asks.
//! - From order on a batch belongs to the pipeline. Its writer's future may be dropped, or not
//!   polled any more: then whoever waits behind it, or the leader, applies it (`orphans`).
//! - Work for a leader never lies idle: who orders becomes leader if there is none, and a leader
//!   that leaves looks again after it has left.
//! - An insert that panics ends its ticket, and with it the memtable's: nobody is given anything of
//!   it any more, and nothing is ordered, until the database is opened anew.
//! - After a failure every logged ticket that was not written fails and is published empty. Nothing
//!   is ordered until [`Pipeline::resume`], which waits until all tickets are published.
//!
//! Lock: `order`, then nothing (but for a try); `files` (leader), then `order`. Neither is held
//! while waiting, and `order` is not held during I/O.

use super::commit::{Commit, Lead};
use super::conflicts::{Claim, Conflicts, Written};
use super::gather::Gathering;
use super::host::Host;
use super::options::WriteOptions;
use super::orphans::Orphan;
use super::persist::{Persist, Round};
use super::source::{Pins, Source};
use crate::wal::replay::BATCH_END;
use crate::wal::writer::{LogFile, LogFraming, LogOptions, NewLog};
use karst_base::caller::Caller;
use karst_base::error::{Error, ErrorKind, Result};
use karst_base::health::Health;
use karst_base::options::DbOptions;
use karst_base::pacing::StallController;
use karst_base::stats::Statistics;
use karst_base::stats::write_counts::WriteCounts;
use karst_base::sync::Event;
use karst_base::sync::Mutex;
use karst_base::sync::atomic::{AtomicBool, Ordering, fence};
use karst_format::ids::{ColumnFamilyId, FileNumber};
use karst_format::key::SeqNo;
use karst_format::write_batch::HEADER_BYTES;
use karst_io::{Env, Standstill};
use karst_mem::commit::{Goals, LeftBehind, Waiters};
use karst_mem::{PendingRanges, PublishRing};
use karst_storage::memtable::Seal;
use std::sync::{Arc, OnceLock};

/// Most writes between order and publish.
///
/// Why not fewer: with `unordered_write` those behind a writer that lost its processor go on
/// meanwhile, until the ring is full. Why not more: the ring's slots are used in turn, and shall
/// stay near the processor.
pub(super) const IN_FLIGHT: usize = 4096;
/// Bytes of records that may wait for the leader; more writers wait before order.
pub(super) const BUFFERED_BYTES: usize = 64 << 20;

/// Options of the database that the pipeline follows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) log: LogOptions,
    /// Records leave the process only when asked to, or when more than so many bytes have gathered
    /// (`manual_wal_flush`, `writable_file_max_buffer_size`).
    pub(crate) manual_flush: Option<usize>,
    /// Writes return before older ones are visible (`unordered_write`).
    pub(crate) unordered: bool,
    /// Those that insert nothing do (`two_write_queues`).
    pub(crate) two_queues: bool,
}

impl Rules {
    /// What the database's options say.
    ///
    /// # Errors
    /// Logs cannot be written like that.
    pub(crate) fn of(options: &DbOptions) -> Result<Rules> {
        let manual_flush = options.manual_wal_flush.then_some(options.writable_file_max_buffer_size);
        Ok(Rules {
            log: LogOptions::of(options)?,
            manual_flush,
            unordered: options.unordered_write,
            two_queues: options.two_write_queues,
        })
    }
}

/// What a pipeline is made of.
pub(crate) struct Parts<H> {
    pub(crate) env: Env,
    pub(crate) host: H,
    pub(crate) health: Arc<Health>,
    pub(crate) stalls: Arc<StallController>,
    pub(crate) statistics: Arc<Statistics>,
    pub(crate) rules: Rules,
    /// What was inserted and is not decided, where transactions insert when they are prepared.
    pub(crate) pending: Option<Arc<PendingRanges>>,
    /// The last sequence number that was used.
    pub(crate) last_seq: SeqNo,
    /// Where the first writes go.
    pub(crate) log: NewLog,
}

/// The commit pipeline of one database. See the module's head.
pub(crate) struct Pipeline<H: Host> {
    pub(super) env: Env,
    pub(super) host: H,
    pub(super) health: Arc<Health>,
    pub(super) stalls: Arc<StallController>,
    pub(super) statistics: Arc<Statistics>,
    pub(super) rules: Rules,
    pub(super) pending: Option<Arc<PendingRanges>>,
    /// Tickets, and `visible_seq` as their value.
    pub(super) ring: PublishRing,
    /// Where publishing stood when somebody had waited in vain.
    pub(super) standstill: Standstill,
    pub(super) order: Mutex<Order>,
    pub(super) persist: Persist,
    /// Batches of writers that may not come back for them.
    pub(super) orphans: LeftBehind<Orphan<H>>,
    /// Whether an insert panicked, ever. Set before its ticket is finished.
    pub(super) has_panicked: AtomicBool,
    /// The tickets of batches whose insert panicked.
    pub(super) panicked: Mutex<Vec<u64>>,
    pub(super) gathering: Gathering,
    /// Which keys were written lately, once somebody wants to know. Set under the order lock.
    pub(super) conflicts: OnceLock<Conflicts>,
    /// Rung when there may be room in the ring or in the buffer, or when the ring may have run
    /// empty.
    room: Event,
    pub(super) room_waiters: Waiters,
}

/// What the order lock guards.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) next_ticket: u64,
    next_seq: SeqNo,
    framing: LogFraming,
    /// Framed records for the newest log that no leader has taken.
    pub(super) buffer: Vec<u8>,
    /// Logs that took over since a leader last came: the rest of the one before, and the new file.
    pub(super) switched: Vec<Switched>,
    /// Logs before the newest one that are still needed, and their sizes in bytes.
    older_logs: Vec<(FileNumber, u64)>,
    /// Whether entries went to memtables without a record.
    unlogged: bool,
    /// How often the log is locked: nothing is ordered meanwhile.
    wal_locks: u64,
    /// Why nothing is ordered.
    pub(super) refused: Option<Error>,
    /// The newest log when one failed last. It and older ones may lack what was ordered.
    failed_log: FileNumber,
    /// Writers are held up, and nothing is ordered; see [`Pipeline::hold`].
    held: bool,
    /// Nothing is ordered ever again, and no log is exchanged. Then `refused` says why, which may
    /// be a log that failed before.
    closed: bool,
    pub(super) counts: WriteCounts,
}

#[derive(Debug)]
pub(super) struct Switched {
    pub(super) rest: Vec<u8>,
    pub(super) next: LogFile,
}

/// What a write got from the order step.
#[derive(Clone, Copy)]
pub(super) struct Ordered {
    pub(super) ticket: u64,
    pub(super) first_seq: SeqNo,
    /// The last sequence number of the write, or of those before it if it takes none.
    pub(super) last_seq: SeqNo,
    /// Whether it has a record that must leave the process before it is applied.
    pub(super) persists: bool,
    /// What writes ordered before it wait for.
    pub(super) ahead: Goals,
}

/// Why a write was not ordered.
pub(super) enum NotOrdered {
    /// Too many are in flight, or the log is locked; wait for room.
    Full,
    Refused(Error),
}

impl<H: Host> Pipeline<H> {
    /// A pipeline that goes on behind `parts.last_seq`.
    pub(crate) fn new(parts: Parts<H>) -> Arc<Self> {
        let Parts { env, host, health, stalls, statistics, rules, pending, last_seq, log } = parts;
        Arc::new(Self {
            env,
            host,
            health,
            stalls,
            statistics,
            rules,
            pending,
            ring: PublishRing::new(IN_FLIGHT, last_seq.0),
            standstill: Standstill::default(),
            order: Mutex::new(Order {
                next_ticket: 0,
                next_seq: SeqNo(last_seq.0 + 1),
                framing: log.framing,
                buffer: log.head,
                switched: Vec::new(),
                older_logs: Vec::new(),
                unlogged: false,
                wal_locks: 0,
                refused: None,
                failed_log: FileNumber(0),
                held: false,
                closed: false,
                counts: WriteCounts::default(),
            }),
            persist: Persist::new(log.file),
            orphans: LeftBehind::default(),
            has_panicked: AtomicBool::new(false),
            panicked: Mutex::default(),
            gathering: Gathering::default(),
            conflicts: OnceLock::new(),
            room: Event::new(),
            room_waiters: Waiters::default(),
        })
    }

    /// One write, on the calling thread: it spins before it sleeps, and leads the log itself when
    /// it is its turn.
    ///
    /// # Errors
    /// See [`write_async`](Self::write_async).
    pub(crate) fn write(self: &Arc<Self>, options: &WriteOptions, source: Source<'_>) -> Result<()> {
        Commit::new(self, *options, source, Lead::Here).run()
    }

    /// One write, as a future. Dropping it before its first poll writes nothing; after that the
    /// write may happen or not, whole either way.
    ///
    /// # Errors
    /// Writes are refused or, with `no_slowdown`, held up; a column family is not open; the log
    /// failed. On the last it is not known whether the write is found again after the database is
    /// opened anew; after any other error nothing was written.
    pub(crate) fn write_async<'a>(
        self: &'a Arc<Self>,
        options: &WriteOptions,
        source: Source<'a>,
    ) -> Commit<'a, H> {
        Commit::new(self, *options, source, Lead::Elsewhere)
    }

    /// Either form, if the claim holds when the write is ordered.
    pub(crate) async fn write_by(
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

    /// The order step. Fills `pins`. With [`Lead::Here`] and nobody who leads, the caller has the
    /// round that its record is in, and has to lead it.
    pub(super) fn order(
        &self,
        options: &WriteOptions,
        source: &Source<'_>,
        claim: Option<&Claim>,
        pins: &mut Pins<H::Pin>,
        lead: Lead,
    ) -> Result<(Ordered, Option<Round<'_>>), NotOrdered> {
        let count = source.count();
        // Compat: RocksDB replays the batch with one number for all, and a range of that number
        // does not cover what the batch put into it before.
        let apart = (self.pending.is_some() && source.mixes_ranges()).then(|| source.with_ranges_apart());
        let body_bytes = apart.as_ref().map_or(source.bytes() - HEADER_BYTES, Vec::len);
        let written = self.conflicts.get().map(|conflicts| conflicts.written_by(source));
        let mut guard = self.order.lock();
        let order = &mut *guard;
        if let Some(error) = &order.refused {
            return Err(NotOrdered::Refused(error.clone()));
        }
        let ticket = order.next_ticket;
        if !order.is_open() && options.no_slowdown {
            let why = if order.held { "files are being ingested" } else { "the log is locked" };
            let text = format!("{why}, and this write would not wait");
            return Err(NotOrdered::Refused(Error::new(ErrorKind::Incomplete, text)));
        }
        if !self.has_room_in(order) {
            return Err(NotOrdered::Full);
        }
        if let Some(claim) = claim {
            self.check_claim(claim)?;
        }
        for family in source.families() {
            match self.host.pin(*family) {
                Some(pin) => pins.push((*family, pin)),
                None if options.ignore_missing_column_families => {}
                None => {
                    let text = format!("a write to column family {family}, which is not open");
                    return Err(NotOrdered::Refused(Error::invalid_argument(text)));
                }
            }
        }
        let first_seq = order.next_seq;
        let last_seq = SeqNo(first_seq.0 + u64::from(count) - 1);
        if last_seq > SeqNo::MAX {
            let error = Error::new(ErrorKind::LimitReached, "the sequence numbers are used up");
            return Err(NotOrdered::Refused(error));
        }
        if options.disable_wal {
            order.unlogged |= count > 0;
        } else {
            let mut head = [0; HEADER_BYTES];
            head[..8].copy_from_slice(&first_seq.0.to_le_bytes());
            head[8..].copy_from_slice(&source.logged_count().to_le_bytes());
            // Compat: where batches are numbered alike, RocksDB needs to be told where one ends;
            // and we, that it was numbered otherwise.
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
            order.framing.append(first_seq, count, record, &mut order.buffer).map_err(|e| {
                let text = format!("framing a record of log {}: {e}", order.framing.number());
                NotOrdered::Refused(Error::with_source(ErrorKind::Io, text, e))
            })?;
        }
        if let Some(phase) = source.phase() {
            self.phase_ordered(phase, (order.framing.number(), first_seq), pins);
            if phase.decides_inserted() {
                self.persist.decides(ticket);
            }
        }
        order.counts.writes += 1;
        order.counts.keys += u64::from(count);
        order.counts.bytes += source.bytes() as u64;
        order.counts.logged += u64::from(!options.disable_wal);
        order.counts.groups += u64::from(options.disable_wal);
        order.next_ticket = ticket + 1;
        order.next_seq = SeqNo(last_seq.0 + 1);
        if let Some(conflicts) = self.conflicts.get() {
            // Why computed again where it is missing: somebody has begun to take note since.
            let written = written.unwrap_or_else(|| conflicts.written_by(source));
            conflicts.note(&written, last_seq);
        }
        self.ring.enter(ticket, last_seq.0);
        // Why at most that: with more in the buffer nothing is ordered, and nobody would have come
        // for it.
        let gathers =
            self.rules.manual_flush.is_some_and(|most| order.buffered_bytes() < most.min(BUFFERED_BYTES));
        let persists = !options.disable_wal && (options.sync || !gathers);
        let ahead = self.persist.leadership.goals();
        let mut round = None;
        if persists {
            self.persist.leadership.ask(ticket, options.sync);
            if lead == Lead::Here {
                round = self.try_take_round(order);
            }
        }
        Ok((Ordered { ticket, first_seq, last_seq, persists, ahead }, round))
    }

    /// Takes note from now on of the keys of all writes, in so many buckets.
    ///
    /// # Errors
    /// Transactions insert when they are prepared: what a commit makes visible was written before,
    /// and it names no key.
    pub(crate) fn track_conflicts(&self, buckets: u32) -> Result<()> {
        if self.pending.is_some() {
            let text = "writes that depend on keys do not go with the write policy WritePrepared";
            return Err(Error::not_supported(text));
        }
        let order = self.order.lock();
        self.conflicts.get_or_init(|| Conflicts::new(buckets, SeqNo(order.next_seq.0 - 1)));
        Ok(())
    }

    /// A claim that none of `keys` is written behind `seen`.
    ///
    /// # Errors
    /// Nobody takes note of what is written.
    pub(crate) fn claim<'a>(
        &self,
        keys: impl Iterator<Item = (ColumnFamilyId, &'a [u8])>,
        seen: SeqNo,
    ) -> Result<Claim> {
        let conflicts = self.conflicts.get();
        let missing = || Error::invalid_argument("a write that depends on keys needs `track_conflicts`");
        Ok(conflicts.ok_or_else(missing)?.claim(keys, seen))
    }

    /// Lock: under the order lock.
    fn check_claim(&self, claim: &Claim) -> Result<(), NotOrdered> {
        match self.conflicts.get().is_some_and(|conflicts| conflicts.holds(claim)) {
            true => Ok(()),
            false => {
                let text = "a key that the write depends on may have been written";
                Err(NotOrdered::Refused(Error::new(ErrorKind::Busy, text)))
            }
        }
    }

    /// The publish step.
    pub(super) fn finish(&self, ticket: u64) {
        self.ring.finish(ticket);
        // Why: whoever waits behind this ticket may wait for those too, and nobody else would come
        // for them.
        self.settle();
        self.ring_room();
    }

    /// Tells those who wait for room to look again.
    pub(super) fn ring_room(&self) {
        // Ordering: between what makes room and this there is a fence, in the ring's `finish` or
        // `wake`, or the order lock, as there is a fence in `wait_for_room` between being counted
        // and looking for room. One sees the other.
        if self.room_waiters.any() {
            self.room.notify(usize::MAX);
        }
    }

    /// Waits until `holds` is true, which whoever finishes a write or leads may have made true.
    pub(super) async fn wait_for_room(&self, holds: impl Fn(&Self) -> bool) {
        let _waiting = self.room_waiters.enter();
        loop {
            let listener = self.room.listen();
            fence(Ordering::SeqCst);
            self.settle_orphans();
            if holds(self) {
                return;
            }
            listener.await;
        }
    }

    /// Whether one more write could be ordered, as far as room goes.
    pub(super) fn has_room(&self) -> bool {
        let order = self.order.lock();
        order.refused.is_some() || self.has_room_in(&order)
    }

    fn has_room_in(&self, order: &Order) -> bool {
        order.is_open()
            && self.ring.has_room(order.next_ticket)
            && order.buffered_bytes() + self.persist.in_round() <= BUFFERED_BYTES
    }

    /// Ends the memtables, and the log that takes writes now if it has any record or has failed;
    /// then `spare` takes its place. `exchange` is called under the order lock with the seal for
    /// every memtable that it exchanges; it calls `Family::seal` for each and does nothing else.
    /// Writes ordered before go to the old ones, writes ordered later to the new ones. A log
    /// without records goes on, the seal names it, and `spare` stays where it is.
    ///
    /// Returns `None`, and has done nothing, if a new log is needed and `spare` has none.
    ///
    /// A sealed memtable may be flushed once `visible_seq` has reached `largest_seq`:
    /// [`wait_until_visible`](Self::wait_until_visible).
    ///
    /// Invariant: whether a log is needed is decided here, under the order lock, and nowhere else.
    /// A seal names a log that has nothing of what is sealed, or recovery would replay it a second
    /// time.
    ///
    /// # Errors
    /// The pipeline is closed; the beginning of the new log could not be framed; its number is not
    /// above that of the present one, and recovery reads logs in the order of their numbers.
    /// Nothing was exchanged.
    pub(crate) fn seal<T>(
        self: &Arc<Self>,
        spare: &mut Option<NewLog>,
        exchange: impl FnOnce(Seal) -> T,
    ) -> Result<Option<T>> {
        let mut guard = self.order.lock();
        let order = &mut *guard;
        if order.closed {
            return Err(closed());
        }
        let switches = order.needs_new_log();
        if switches {
            let Some(NewLog { mut framing, file, mut head }) = spare.take() else { return Ok(None) };
            if framing.number() <= order.framing.number() {
                let text = format!("log {} cannot follow log {}", framing.number(), order.framing.number());
                return Err(Error::invalid_argument(text));
            }
            framing.follow(&order.framing, order.next_seq, &mut head).map_err(|e| {
                let text = format!("framing the beginning of log {}: {e}", framing.number());
                Error::with_source(ErrorKind::Io, text, e)
            })?;
            order.older_logs.push((order.framing.number(), order.framing.bytes()));
            let rest = std::mem::replace(&mut order.buffer, head);
            order.framing = framing;
            order.switched.push(Switched { rest, next: file });
            self.persist.leadership.ask_errand();
        }
        let largest_seq = SeqNo(order.next_seq.0 - 1);
        let outcome = exchange(Seal { largest_seq, next_log: order.framing.number() });
        let refused = order.refused.is_some();
        drop(guard);
        if switches && !refused {
            // Why: what gathered for the old log under `manual_wal_flush` has no other way out, and
            // the old file can be let go.
            self.lead_elsewhere();
        }
        Ok(Some(outcome))
    }

    /// Whether a [`seal`](Self::seal) would need a new log now. A hint: the seal itself decides.
    pub(crate) fn needs_new_log(&self) -> bool {
        self.order.lock().needs_new_log()
    }

    /// Has nothing ordered until [`unhold`](Self::unhold); false if somebody else has, or the log
    /// is locked.
    ///
    /// # Errors
    /// Writes are refused.
    pub(super) fn try_hold(&self) -> Result<bool> {
        let mut order = self.order.lock();
        match &order.refused {
            Some(error) => Err(error.clone()),
            None if !order.is_open() => Ok(false),
            None => {
                order.held = true;
                Ok(true)
            }
        }
    }

    /// Whether [`try_hold`](Self::try_hold) would hold, or fail.
    pub(super) fn is_not_held(&self) -> bool {
        let order = self.order.lock();
        order.refused.is_some() || order.is_open()
    }

    /// Waits until what was held is held no more; somebody else may hold it by then.
    pub(crate) async fn wait_until_not_held(&self) {
        self.wait_for_room(|pipeline| !pipeline.order.lock().held).await;
    }

    /// Takes back [`try_hold`](Self::try_hold).
    pub(super) fn unhold(&self) {
        self.order.lock().held = false;
        self.ring_room();
    }

    /// Whether everything that was ordered is published.
    pub(super) fn has_published_all(&self) -> bool {
        let order = self.order.lock();
        self.ring.published() == order.next_ticket
    }

    /// The first sequence number that nobody has taken.
    pub(super) fn next_seq(&self) -> SeqNo {
        self.order.lock().next_seq
    }

    /// Takes all sequence numbers up to `last`, for entries of unknown keys. Returns the ticket,
    /// which the caller finishes.
    ///
    /// # Errors
    /// Writes are refused.
    pub(super) fn take_to(&self, last: SeqNo) -> Result<u64> {
        let mut order = self.order.lock();
        if let Some(error) = &order.refused {
            return Err(error.clone());
        }
        debug_assert!(order.held);
        if let Some(conflicts) = self.conflicts.get() {
            conflicts.note(&Written::of_any_key(), last);
        }
        Ok(self.enter_to(&mut order, last))
    }

    /// Gives all sequence numbers up to `last` to one ticket, which has to be finished.
    fn enter_to(&self, order: &mut Order, last: SeqNo) -> u64 {
        let ticket = order.next_ticket;
        debug_assert!(last >= order.next_seq && self.ring.has_room(ticket));
        order.next_ticket += 1;
        order.next_seq = SeqNo(last.0 + 1);
        self.ring.enter(ticket, last.0);
        ticket
    }

    /// Waits until everything up to `seq`, which must have been ordered, is visible; then no insert
    /// of it is under way any more.
    pub(crate) async fn wait_until_visible(&self, seq: SeqNo) {
        self.wait_for_room(|pipeline| {
            pipeline.settle();
            pipeline.ring.value() >= seq.0
        })
        .await;
    }

    /// What writers and logs have done so far.
    pub(crate) fn write_counts(&self) -> WriteCounts {
        let counts = self.order.lock().counts;
        WriteCounts { stall_micros: self.stalls.held_micros(), ..self.persist.count(counts) }
    }

    /// Whether any write went to a memtable without a record.
    pub(crate) fn has_unlogged(&self) -> bool {
        self.order.lock().unlogged
    }

    /// How new logs are written; for [`NewLog::create`].
    pub(crate) fn log_options(&self) -> LogOptions {
        self.rules.log
    }

    /// Has all that was ordered so far leave the process, and with `sync` reach the device; all
    /// older logs that are still needed too.
    ///
    /// # Errors
    /// The log failed, now or before.
    pub(crate) async fn flush_wal(self: &Arc<Self>, sync: bool) -> Result<()> {
        let end = {
            let order = self.order.lock();
            if let Some(error) = &order.refused {
                return Err(error.clone());
            }
            if let Some(last) = order.next_ticket.checked_sub(1) {
                self.persist.leadership.ask(last, sync);
            }
            order.next_ticket
        };
        self.lead_elsewhere();
        self.persist.wait(end, sync).await.map_err(|()| self.refusal())
    }

    /// Orders nothing from now on, until the lock is given back as often as it was taken. What was
    /// ordered before has left the process when this returns, and is visible.
    ///
    /// # Errors
    /// As [`flush_wal`](Self::flush_wal); it is not locked then.
    pub(crate) async fn lock_wal(self: &Arc<Self>) -> Result<()> {
        self.order.lock().wal_locks += 1;
        let locked = LockedWal(self);
        // Why first: what is being ingested takes its numbers from here.
        self.wait_until_not_held().await;
        let last_seq = SeqNo(self.next_seq().0 - 1);
        self.flush_wal(false).await?;
        self.wait_until_visible(last_seq).await;
        std::mem::forget(locked);
        Ok(())
    }

    /// Gives the lock on the log back.
    ///
    /// # Errors
    /// It is not locked.
    pub(crate) fn unlock_wal(&self) -> Result<()> {
        {
            let mut order = self.order.lock();
            if order.wal_locks == 0 {
                return Err(Error::invalid_argument("the log is not locked"));
            }
            order.wal_locks -= 1;
        }
        self.ring_room();
        Ok(())
    }

    /// Has what is written from now on have sequence numbers above `seq`, and makes everything up
    /// to it visible, as a write of so many entries without a log would. Does nothing where that is
    /// so already.
    ///
    /// # Errors
    /// Writes are refused.
    pub(crate) async fn skip_to(&self, seq: SeqNo) -> Result<()> {
        loop {
            self.wait_for_room(Self::has_room).await;
            if let Some(reached) = self.try_skip_to(seq)? {
                self.wait_until_visible(reached).await;
                return Ok(());
            }
        }
    }

    /// The number that is reached; `None` if there is no room.
    fn try_skip_to(&self, seq: SeqNo) -> Result<Option<SeqNo>> {
        let mut order = self.order.lock();
        if let Some(error) = &order.refused {
            return Err(error.clone());
        }
        if order.next_seq > seq {
            return Ok(Some(SeqNo(order.next_seq.0 - 1)));
        }
        if !self.has_room_in(&order) {
            return Ok(None);
        }
        let ticket = self.enter_to(&mut order, seq);
        drop(order);
        self.finish(ticket);
        Ok(Some(seq))
    }

    /// The newest log when one failed last.
    pub(crate) fn failed_log(&self) -> FileNumber {
        self.order.lock().failed_log
    }

    /// The logs that are open for writing or were since the database was opened and are needed,
    /// each with how many of its bytes have left the process; the last is the newest. Those are
    /// whole records. Blocks, while a leader writes.
    pub(crate) fn written_logs(&self) -> Vec<(FileNumber, u64)> {
        // Invariant: nobody writes while this has the files, so no log is seen in the middle of a
        // round.
        let files = self.persist.files();
        let newest = files.newest();
        let mut logs = self.order.lock().older_logs.clone();
        logs.retain(|(number, _)| *number < newest.0);
        logs.push(newest);
        logs
    }

    /// Has every decision that was ordered so far about what was inserted undecided reach the
    /// device. Without such a decision it does nothing.
    ///
    /// # Errors
    /// As [`flush_wal`](Self::flush_wal).
    pub(crate) async fn sync_decisions(self: &Arc<Self>) -> Result<()> {
        if self.persist.decisions_are_synced() { Ok(()) } else { self.flush_wal(true).await }
    }

    /// Says that logs below `number` are needed no more: their files are closed unsynced.
    pub(crate) fn release_logs(&self, number: FileNumber) {
        self.order.lock().older_logs.retain(|(log, _)| *log >= number);
        self.persist.release(number);
    }

    /// Takes no more writes, has all that was ordered leave the process, and gives back the space
    /// that the log does not use. When this returns, with an error too, nobody writes to a log any
    /// more.
    ///
    /// # Errors
    /// The log failed now. What failed before was told before.
    pub(crate) async fn close_log(self: &Arc<Self>) -> Result<()> {
        let (end, had_failed) = {
            let mut order = self.order.lock();
            order.closed = true;
            let had_failed = order.refused.is_some();
            if !had_failed {
                if let Some(last) = order.next_ticket.checked_sub(1) {
                    self.persist.leadership.ask(last, false);
                }
                order.refused = Some(closed());
            }
            (order.next_ticket, had_failed)
        };
        self.ring_room();
        if had_failed {
            self.persist.wait_for_leader().await;
            return Ok(());
        }
        self.lead_elsewhere();
        let written = self.persist.wait(end, false).await;
        self.persist.wait_for_leader().await;
        written.map_err(|()| Error::new(ErrorKind::Io, "the log failed while the database was closed"))?;
        let pipeline = self.clone();
        self.env.run_blocking(move |_| pipeline.persist.files().end()).await
    }

    /// Why writes are refused.
    pub(super) fn refusal(&self) -> Error {
        let refused = self.order.lock().refused.clone();
        refused.unwrap_or_else(|| Error::new(ErrorKind::Io, "the log failed while this write waited"))
    }

    /// Whether the log failed and the pipeline takes no writes.
    pub(crate) fn is_failed(&self) -> bool {
        self.order.lock().refused.is_some()
    }

    /// Takes writes again after a failure. Before it, every memtable was sealed with the new log
    /// `first_log` ([`seal`](Self::seal)) and flushed, and the MANIFEST needs no log before that:
    /// the sequence numbers of failed writes are a hole at which recovery would end.
    ///
    /// # Errors
    /// That log, or one behind it, has failed as well, or no new log took its place; the pipeline
    /// is closed.
    pub(crate) async fn resume(self: &Arc<Self>, first_log: FileNumber) -> Result<()> {
        self.wait_for_room(|pipeline| {
            pipeline.settle();
            let order = pipeline.order.lock();
            pipeline.ring.published() == order.next_ticket
        })
        .await;
        if !self.is_failed() {
            return Ok(());
        }
        // Why: a leader has the files for as long as it writes and syncs. None writes behind it
        // while writes are refused.
        self.persist.wait_for_leader().await;
        {
            let mut files = self.persist.files();
            let mut order = self.order.lock();
            if order.closed {
                return Err(closed());
            }
            if order.refused.is_none() {
                return Ok(());
            }
            if first_log.min(order.framing.number()) <= order.failed_log {
                return Err(Error::invalid_argument(
                    "writes cannot be resumed before the failed log is replaced",
                ));
            }
            // Why: bytes framed for logs before `first_log` are of writes that failed.
            let is_first = |switched: &Switched| switched.next.number() == first_log;
            let failed = order.switched.iter().position(is_first).map_or(order.switched.len(), |at| at + 1);
            files.replace(order.switched.drain(..failed).map(|switched| switched.next));
            self.persist.leadership.recover(order.next_ticket);
            if !order.switched.is_empty() {
                // Why: a seal has replaced `first_log` meanwhile, but it is needed, and recovery
                // goes on behind it only if it has its beginning.
                self.persist.leadership.ask_errand();
            }
            order.refused = None;
        }
        self.lead_elsewhere();
        self.ring_room();
        Ok(())
    }

    /// Refuses writes from now on, because of a failed log, and gives up what was not written.
    /// Called by the leader.
    pub(super) fn refuse(&self, error: &Error) {
        let mut order = self.order.lock();
        if order.refused.is_none() {
            order.refused = Some(error.clone());
        }
        order.failed_log = order.framing.number();
        order.buffer.clear();
        order.switched.iter_mut().for_each(|switched| switched.rest.clear());
        // Why under the lock: whoever resumes finds both or neither.
        self.persist.leadership.fail();
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the database is closed")
}

/// Gives the lock on the log back where whoever took it fails or is given up.
struct LockedWal<'a, H: Host>(&'a Pipeline<H>);

impl<H: Host> Drop for LockedWal<'_, H> {
    fn drop(&mut self) {
        drop(self.0.unlock_wal());
    }
}

impl Order {
    /// Whether writes may be ordered: the log is not locked, and nothing is being ingested.
    fn is_open(&self) -> bool {
        self.wal_locks == 0 && !self.held
    }

    /// Bytes of records that no leader has taken.
    #[inline]
    pub(super) fn buffered_bytes(&self) -> usize {
        self.buffer.len() + self.switched.iter().map(|switched| switched.rest.len()).sum::<usize>()
    }

    /// Whether what is written after a seal must not go to the present log: it has records, or it
    /// failed.
    fn needs_new_log(&self) -> bool {
        !self.framing.is_empty() || self.refused.is_some()
    }

    /// Bytes of all logs that are still needed.
    pub(super) fn log_bytes(&self) -> u64 {
        self.framing.bytes() + self.older_logs.iter().map(|(_, bytes)| bytes).sum::<u64>()
    }
}

impl<H: Host> std::fmt::Debug for Pipeline<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pipeline")
            .field("ring", &self.ring)
            .field("rules", &self.rules)
            .finish_non_exhaustive()
    }
}
