//! The persist step: one leader at a time takes all that was framed, writes it to the logs, and
//! syncs them if any of it asks.
//!
//! In: the order step's buffer. Out: the tickets below which all logged batches have left the
//! process, and those below which they are on the device; or a failure.
//!
//! Whoever finds work and no leader becomes it: a writer on its own thread, or, for writers that
//! must not block theirs, a job on a thread that may. A leader does one round, leaves, applies its
//! own batch, and looks again before it waits for others, so that a batch is never held up by its
//! writer's work for others. Who leads and what was asked for is [`Leadership`]'s affair.
//!
//! Invariants:
//! - Logs are written in their order, and a sync covers every older log that has unsynced bytes,
//!   the oldest first: what is durable is a prefix of what was ordered.
//! - After a failed write or sync no file that was open then is written again.

use super::host::Host;
use super::pipeline::{Order, Pipeline, Switched};
use crate::wal::writer::LogFile;
use karst_base::error::{Error, ErrorKind, Result};
use karst_base::stats::write_counts::WriteCounts;
use karst_base::stats::{HistogramKind, Ticker};
use karst_base::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use karst_base::sync::{Event, EventListener};
use karst_base::sync::{Mutex, MutexGuard};
use karst_format::ids::FileNumber;
use karst_io::{Standstill, report};
use karst_mem::commit::{Fate, Leadership};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Rounds that a writer leads for others before it hands over to a thread that has nothing else to
/// do.
const ROUNDS_FOR_OTHERS: usize = 4;
/// A buffer that has grown larger than this is not kept for the next round.
const KEPT_BUFFER_BYTES: usize = 4 << 20;

/// The state of the persist step.
#[derive(Debug)]
pub(super) struct Persist {
    /// The leader is a thread that writes, or a job from when it is started. What it may be asked
    /// for without a ticket is to see a log that took over.
    pub(super) leadership: Leadership,
    /// Bytes of the leader at work.
    in_round: AtomicUsize,
    /// How often something was written to the logs, how many bytes, and how often they were synced.
    /// Changed by leaders only.
    rounds: AtomicU64,
    log_bytes: AtomicU64,
    syncs: AtomicU64,
    /// Behind the last ticket that decides about what was inserted undecided. Changed under the
    /// order lock.
    decided: AtomicU64,
    /// Logs below this number are needed no more.
    released: AtomicU64,
    /// Lock: the leader's, for as long as it writes; others when nobody leads. Who orders tries it,
    /// and may have it for a moment.
    files: Mutex<Files>,
    /// Where `written` stood when somebody had waited in vain.
    standstill: Standstill,
    /// Rung after every round, for those who wait without a ticket.
    progress: Event,
}

/// The open log files.
#[derive(Debug)]
pub(super) struct Files {
    /// Logs that take no more writes and have unsynced bytes, oldest first.
    older: Vec<LogFile>,
    current: LogFile,
    /// The buffer that the next round swaps in.
    spare: Vec<u8>,
}

impl Files {
    /// Ends the newest log, and gives back the space that it does not use. Blocks.
    ///
    /// # Errors
    /// As [`LogFile::end`].
    pub(super) fn end(&mut self) -> Result<()> {
        self.current.end()?;
        if let Some(give_back) = self.current.unused_space() {
            give_back();
        }
        Ok(())
    }

    /// The newest log, and its bytes.
    pub(super) fn newest(&self) -> (FileNumber, u64) {
        (self.current.number(), self.current.size())
    }

    /// Takes the last of `logs` in place of all there are.
    pub(super) fn replace(&mut self, logs: impl Iterator<Item = LogFile>) {
        if let Some(last) = logs.last() {
            self.current = last;
            self.older.clear();
        }
    }
}

/// What a leader writes at a time, and the logs. Who has one leads, until [`Pipeline::lead_round`]
/// is done with it, which it has to be given to.
pub(super) struct Round<'a> {
    files: MutexGuard<'a, Files>,
    taken: Vec<u8>,
    switched: Vec<Switched>,
    bytes: usize,
    /// The round's tickets: from the first to before the second.
    tickets: (u64, u64),
    sync: bool,
    /// Bytes of all logs that are still needed, once this is written.
    log_bytes: u64,
}

impl Persist {
    pub(super) fn new(log: LogFile) -> Self {
        Self {
            leadership: Leadership::default(),
            in_round: AtomicUsize::new(0),
            rounds: AtomicU64::new(0),
            log_bytes: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            decided: AtomicU64::new(0),
            released: AtomicU64::new(0),
            files: Mutex::new(Files { older: Vec::new(), current: log, spare: Vec::new() }),
            standstill: Standstill::default(),
            progress: Event::new(),
        }
    }

    /// `ticket` decides about what was inserted undecided. Under the order lock.
    pub(super) fn decides(&self, ticket: u64) {
        self.decided.store(ticket + 1, Ordering::Release);
    }

    /// Whether all decisions that were ordered so far are on the device, or needed in no log any
    /// more.
    pub(super) fn decisions_are_synced(&self) -> bool {
        self.leadership.synced() >= self.decided.load(Ordering::Acquire)
    }

    pub(super) fn standstill(&self) -> &Standstill {
        &self.standstill
    }

    /// Listens for a round's end. The caller looks after this.
    fn listen(&self) -> EventListener {
        let listener = self.progress.listen();
        // Ordering: as with all who wait, between saying so and looking; a leader fences when it
        // leaves, and then rings.
        fence(Ordering::SeqCst);
        listener
    }

    /// Waits until all tickets below `end` are written, or synced.
    pub(super) async fn wait(&self, end: u64, sync: bool) -> Result<(), ()> {
        let Some(last) = end.checked_sub(1) else { return Ok(()) };
        loop {
            let listener = self.listen();
            match self.leadership.fate(last, sync) {
                Fate::Persisted => return Ok(()),
                Fate::Failed => return Err(()),
                Fate::Open => listener.await,
            }
        }
    }

    /// Bytes that a leader has taken and not written yet. What it says may be old.
    #[inline]
    pub(super) fn in_round(&self) -> usize {
        self.in_round.load(Ordering::Relaxed)
    }

    /// `counts`, with what leaders have done.
    pub(super) fn count(&self, counts: WriteCounts) -> WriteCounts {
        WriteCounts {
            groups: counts.groups + self.rounds.load(Ordering::Relaxed),
            log_bytes: self.log_bytes.load(Ordering::Relaxed),
            log_syncs: self.syncs.load(Ordering::Relaxed),
            ..counts
        }
    }

    /// Waits until nobody leads. Nobody begins to if nothing is ordered any more and everything was
    /// persisted, or failed.
    pub(super) async fn wait_for_leader(&self) {
        loop {
            let listener = self.listen();
            if !self.leadership.is_led() {
                return;
            }
            listener.await;
        }
    }

    /// Gives the leadership back without having led.
    fn leave(&self) {
        self.leadership.leave();
        self.progress.notify(usize::MAX);
    }

    pub(super) fn release(&self, number: FileNumber) {
        self.released.fetch_max(number.0, Ordering::Relaxed);
    }

    pub(super) fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock()
    }
}

/// What `work` on the logs comes to. A panic of it, as of a file system that somebody else has
/// written, is a failed log like another: everybody waits for the leader, and its files are not
/// written again.
fn unless_it_panics(work: impl FnOnce() -> Result<()>) -> Result<()> {
    // Safe to go on: after an error nothing is done with the files but to replace them.
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(Error::new(ErrorKind::Io, "writing or syncing the log panicked")))
}

impl<H: Host> Pipeline<H> {
    /// Takes what a leader is to write, if nobody leads.
    ///
    /// Why: who has just framed a record has the order lock, and would have to take it again. It is
    /// behind that of the files, so these are only tried.
    #[inline]
    pub(super) fn try_take_round(&self, order: &mut Order) -> Option<Round<'_>> {
        let files = self.persist.files.try_lock()?;
        if self.persist.leadership.try_lead() { self.take_round(files, order) } else { None }
    }

    /// Takes all that was framed. The caller leads; it does so no more if the log has failed.
    fn take_round<'a>(&'a self, mut files: MutexGuard<'a, Files>, order: &mut Order) -> Option<Round<'a>> {
        let persist = &self.persist;
        let Some((first, sync)) = persist.leadership.begin_round() else {
            drop(files);
            persist.leave();
            return None;
        };
        let spare = std::mem::take(&mut files.spare);
        let bytes = order.buffered_bytes();
        persist.in_round.store(bytes, Ordering::Relaxed);
        Some(Round {
            files,
            taken: std::mem::replace(&mut order.buffer, spare),
            switched: std::mem::take(&mut order.switched),
            bytes,
            tickets: (first, order.next_ticket),
            sync,
            log_bytes: order.log_bytes(),
        })
    }

    /// Leads one round. The caller has taken the leadership.
    pub(super) fn lead(self: &Arc<Self>) {
        let files = self.persist.files.lock();
        let round = self.take_round(files, &mut self.order.lock());
        if let Some(round) = round {
            self.lead_round(round);
        }
    }

    /// Writes a round, and gives the leadership back.
    pub(super) fn lead_round(self: &Arc<Self>, round: Round<'_>) {
        let persist = &self.persist;
        let Round { mut files, mut taken, switched, bytes, tickets: (first, end), sync, log_bytes } = round;
        let mut outcome = unless_it_panics(|| self.write_logs(&mut files, switched, &taken));
        persist.in_round.store(0, Ordering::Relaxed);
        if outcome.is_ok() {
            self.host.logs_grew(log_bytes);
            // Why first: who has waited for a round finds it counted.
            self.statistics.record(Ticker::WalFileBytes, bytes as u64);
            persist.rounds.fetch_add(u64::from(end > first), Ordering::Relaxed);
            persist.log_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            persist.leadership.reach_written(end);
            if sync {
                outcome = unless_it_panics(|| self.sync_logs(&mut files));
                if outcome.is_ok() {
                    self.statistics.tick(Ticker::WalFileSynced);
                    persist.leadership.reach_synced(end);
                    persist.syncs.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        taken.clear();
        if taken.capacity() <= KEPT_BUFFER_BYTES {
            files.spare = taken;
        }
        drop(files);
        let mut wake_end = end;
        if let Err(error) = &outcome {
            self.refuse(error);
            wake_end = self.order.lock().next_ticket;
        }
        persist.leadership.leave();
        if let Err(error) = outcome {
            report!(error, "writes are refused: {error}");
            // Why before anyone is woken: who sees the failure may ask to resume, and a report that
            // came later would end writing once more.
            self.host.log_failed(&error);
        }
        self.ring.wake(first, wake_end);
        persist.progress.notify(usize::MAX);
        self.ring_room();
        self.settle_orphans();
    }

    /// Leads for others after this thread's own round, so that nobody's record waits while nobody
    /// leads.
    pub(super) fn lead_for_others(self: &Arc<Self>) {
        for _ in 0..ROUNDS_FOR_OTHERS {
            if !self.persist.leadership.try_lead() {
                return;
            }
            self.lead();
        }
        self.lead_elsewhere();
    }

    /// Has a thread that may block lead until nothing is left to do. The job belongs to the
    /// pipeline: it goes on whatever becomes of the caller.
    pub(super) fn lead_elsewhere(self: &Arc<Self>) {
        if self.persist.leadership.try_lead() {
            let pipeline = self.clone();
            drop(self.env.run_blocking(move |_| {
                loop {
                    pipeline.lead();
                    if !pipeline.persist.leadership.try_lead() {
                        return;
                    }
                }
            }));
        }
    }

    /// Gives back the space that an ended log does not use, and says that it has ended; elsewhere,
    /// as writers wait here.
    fn let_go(self: &Arc<Self>, log: &LogFile) {
        let (pipeline, number, give_back) = (self.clone(), log.number(), log.unused_space());
        drop(self.env.run_blocking(move |_| {
            if let Some(give_back) = give_back {
                give_back();
            }
            pipeline.host.log_ended(number);
        }));
    }

    fn write_logs(self: &Arc<Self>, files: &mut Files, switched: Vec<Switched>, taken: &[u8]) -> Result<()> {
        for Switched { rest, next } in switched {
            files.current.write(&rest)?;
            // Invariant: before the next log has a byte, since recovery goes on with it only behind
            // a log's end.
            files.current.end()?;
            let old = std::mem::replace(&mut files.current, next);
            self.let_go(&old);
            if old.is_unsynced() {
                files.older.push(old);
            } else if old.is_durable() {
                self.host.log_synced(old.number(), old.size());
            }
        }
        let released = FileNumber(self.persist.released.load(Ordering::Relaxed));
        files.older.retain(|log| log.number() >= released);
        files.current.write(taken)
    }

    fn sync_logs(&self, files: &mut Files) -> Result<()> {
        let start = self.statistics.start_timer(&self.env);
        while let Some(oldest) = files.older.first_mut() {
            oldest.sync()?;
            self.host.log_synced(oldest.number(), oldest.size());
            files.older.remove(0);
        }
        files.current.sync()?;
        self.statistics.measure_since(&self.env, &[HistogramKind::WalFileSyncMicros], start);
        Ok(())
    }

    /// The error for a write whose record may not have been written.
    pub(super) fn failure(&self) -> Error {
        self.refusal().in_context("the write was not logged")
    }
}
