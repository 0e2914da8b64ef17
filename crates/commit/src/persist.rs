//! The persist step: one leader at a time takes all that was framed, writes it to the logs, and
//! syncs them if any of it asks.
//!
//! In: the order step's buffer. Out: the tickets below which all logged batches have left the
//! process, and those below which they are on the device; or a failure.
//!
//! Whoever finds work and no leader becomes it: a writer on its own thread, or, for writers that
//! must not block theirs, a job on a thread that may. A leader does one round, leaves, applies its
//! own batch, and looks again before it waits for others, so that a batch is never held up by its
//! writer's work for others. [`Leadership`] knows who leads and what was asked for.
//!
//! Invariants:
//! - Logs are written in their order, and a sync covers every older log that has unsynced bytes,
//!   the oldest first: what is durable is a prefix of what was ordered.
//! - After a failed write or sync no file that was open then is written again.

use crate::bargain::{Fate, Goals, Leadership};
use crate::host::{Around, Host};
use crate::order::{Line, Switched, Taken};
use crate::wal::writer::LogFile;
use karst_base::error::{Error, ErrorKind, Result};
use karst_base::stats::write_counts::WriteCounts;
use karst_base::stats::{HistogramKind, Ticker};
use karst_base::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use karst_base::sync::{Event, EventListener};
use karst_base::sync::{Mutex, MutexGuard};
use karst_format::ids::FileNumber;
use karst_io::{Moments, Standstill};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A buffer that has grown larger than this is not kept for the next round.
const KEPT_BUFFER_BYTES: usize = 4 << 20;

/// The state of the persist step.
pub(crate) struct Persist<H> {
    around: Arc<Around<H>>,
    /// The leader is a thread that writes, or a job from when it is started. What it may be asked
    /// for without a ticket is to see a log that took over.
    leadership: Leadership,
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
pub(crate) struct Files {
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
    pub(crate) fn end(&mut self) -> Result<()> {
        self.current.end()?;
        if let Some(give_back) = self.current.unused_space() {
            give_back();
        }
        Ok(())
    }

    /// The newest log, and its bytes.
    pub(crate) fn newest(&self) -> (FileNumber, u64) {
        (self.current.number(), self.current.size())
    }

    /// Takes the last of `logs` in place of all there are.
    pub(crate) fn replace(&mut self, logs: impl Iterator<Item = LogFile>) {
        if let Some(last) = logs.last() {
            self.current = last;
            self.older.clear();
        }
    }
}

/// What a leader writes at a time, and the logs. Who has one leads, until it is
/// [written](Persist::write) and the leadership [given back](Persist::leave).
pub(crate) struct Round<'a> {
    files: MutexGuard<'a, Files>,
    taken: Taken,
    /// The first ticket that is not written.
    first: u64,
    sync: bool,
}

/// What a round came to.
pub(crate) struct Ended {
    /// Its tickets: from the first to before the second.
    pub(crate) tickets: (u64, u64),
    pub(crate) outcome: Result<()>,
}

impl<H: Host> Persist<H> {
    pub(crate) fn new(around: Arc<Around<H>>, log: LogFile) -> Self {
        Self {
            around,
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
    pub(crate) fn decides(&self, ticket: u64) {
        self.decided.store(ticket + 1, Ordering::Release);
    }

    /// Whether all decisions that were ordered so far are on the device, or needed in no log any
    /// more.
    pub(crate) fn decisions_are_synced(&self) -> bool {
        self.leadership.synced() >= self.decided.load(Ordering::Acquire)
    }

    /// Wants `ticket` and all before it written, and synced if asked. Lock: under the order lock.
    #[inline]
    pub(crate) fn ask(&self, ticket: u64, sync: bool) {
        self.leadership.ask(ticket, sync);
    }

    /// Wants a leader to come, to see a log that took over. Lock: under the order lock.
    pub(crate) fn ask_errand(&self) {
        self.leadership.ask_errand();
    }

    /// What was asked for so far. Lock: under the order lock.
    #[inline]
    pub(crate) fn goals(&self) -> Goals {
        self.leadership.goals()
    }

    /// Whether nobody waits for these any more: they were reached, or never will be.
    #[inline]
    pub(crate) fn is_past(&self, goals: Goals) -> bool {
        self.leadership.is_past(goals)
    }

    /// What became of the record of a ticket that was asked for with the same `sync`.
    #[inline]
    pub(crate) fn fate(&self, ticket: u64, sync: bool) -> Fate {
        self.leadership.fate(ticket, sync)
    }

    /// Takes the leadership if it is free and there is something to do.
    #[inline]
    pub(crate) fn try_lead(&self) -> bool {
        self.leadership.try_lead()
    }

    /// What is not reached never will be. By the leader; lock: under the order lock.
    pub(crate) fn fail(&self) {
        self.leadership.fail();
    }

    /// Starts over behind ticket `next` after a failure, with the last of `logs` in place of all
    /// there are. Lock: under the order lock, and by who has the files.
    pub(crate) fn recover(&self, files: &mut Files, logs: Vec<LogFile>, next: u64) {
        files.replace(logs.into_iter());
        self.leadership.recover(next);
    }

    /// Passes a moment of waiting for the log. `false` if it is better to sleep.
    pub(crate) fn pass(&self, moments: &mut Moments) -> bool {
        moments.pass(self.leadership.written(), &self.standstill)
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
    pub(crate) async fn wait(&self, end: u64, sync: bool) -> Result<(), ()> {
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
    pub(crate) fn in_round(&self) -> usize {
        self.in_round.load(Ordering::Relaxed)
    }

    /// `counts`, with what leaders have done.
    pub(crate) fn count(&self, counts: WriteCounts) -> WriteCounts {
        WriteCounts {
            groups: counts.groups + self.rounds.load(Ordering::Relaxed),
            log_bytes: self.log_bytes.load(Ordering::Relaxed),
            log_syncs: self.syncs.load(Ordering::Relaxed),
            ..counts
        }
    }

    /// Waits until nobody leads. Nobody begins to if nothing is ordered any more and everything was
    /// persisted, or failed.
    pub(crate) async fn wait_for_leader(&self) {
        loop {
            let listener = self.listen();
            if !self.leadership.is_led() {
                return;
            }
            listener.await;
        }
    }

    /// Gives the leadership back. The caller looks again after this before it waits for others, and
    /// [tells](Self::tell) of it.
    #[inline]
    pub(crate) fn leave(&self) {
        self.leadership.leave();
    }

    /// Tells those who wait without a ticket that a round has ended.
    #[inline]
    pub(crate) fn tell(&self) {
        self.progress.notify(usize::MAX);
    }

    pub(crate) fn release(&self, number: FileNumber) {
        self.released.fetch_max(number.0, Ordering::Relaxed);
    }

    pub(crate) fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock()
    }

    /// As [`files`](Self::files); `None` where they are taken.
    pub(crate) fn try_files(&self) -> Option<MutexGuard<'_, Files>> {
        self.files.try_lock()
    }

    /// Takes what a leader is to write, if nobody leads. Lock: under the order lock.
    ///
    /// Why: who has just framed a record has the order lock, and would have to take it again. It is
    /// behind that of the files, so these are only tried.
    #[inline]
    pub(crate) fn try_take_round(&self, line: &mut Line) -> Option<Round<'_>> {
        let files = self.files.try_lock()?;
        if self.leadership.try_lead() { self.take_round(files, line) } else { None }
    }

    /// Takes all that was framed. The caller leads; it does so no more if the log has failed. Lock:
    /// under the order lock.
    pub(crate) fn take_round<'a>(
        &'a self,
        mut files: MutexGuard<'a, Files>,
        line: &mut Line,
    ) -> Option<Round<'a>> {
        let Some((first, sync)) = self.leadership.begin_round() else {
            drop(files);
            self.leave();
            self.tell();
            return None;
        };
        let taken = line.take(std::mem::take(&mut files.spare));
        self.in_round.store(taken.bytes, Ordering::Relaxed);
        Some(Round { files, taken, first, sync })
    }

    /// Writes a round. The caller still leads.
    pub(crate) fn write(&self, round: Round<'_>) -> Ended {
        let Round { mut files, taken, first, sync } = round;
        let Taken { switched, mut records, bytes, end, log_bytes } = taken;
        let Around { host, statistics, .. } = &*self.around;
        let mut outcome = unless_it_panics(|| self.write_logs(&mut files, switched, &records));
        self.in_round.store(0, Ordering::Relaxed);
        if outcome.is_ok() {
            host.logs_grew(log_bytes);
            // Why first: who has waited for a round finds it counted.
            statistics.record(Ticker::WalFileBytes, bytes as u64);
            self.rounds.fetch_add(u64::from(end > first), Ordering::Relaxed);
            self.log_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            self.leadership.reach_written(end);
            if sync {
                outcome = unless_it_panics(|| self.sync_logs(&mut files));
                if outcome.is_ok() {
                    statistics.tick(Ticker::WalFileSynced);
                    self.leadership.reach_synced(end);
                    self.syncs.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        records.clear();
        if records.capacity() <= KEPT_BUFFER_BYTES {
            files.spare = records;
        }
        Ended { tickets: (first, end), outcome }
    }

    /// Gives back the space that an ended log does not use, and says that it has ended; elsewhere,
    /// as writers wait here.
    fn let_go(&self, log: &LogFile) {
        let (around, number, give_back) = (self.around.clone(), log.number(), log.unused_space());
        drop(self.around.env.run_blocking(move |_| {
            if let Some(give_back) = give_back {
                give_back();
            }
            around.host.log_ended(number);
        }));
    }

    fn write_logs(&self, files: &mut Files, switched: Vec<Switched>, taken: &[u8]) -> Result<()> {
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
                self.around.host.log_synced(old.number(), old.size());
            }
        }
        let released = FileNumber(self.released.load(Ordering::Relaxed));
        files.older.retain(|log| log.number() >= released);
        files.current.write(taken)
    }

    fn sync_logs(&self, files: &mut Files) -> Result<()> {
        let start = self.around.statistics.start_timer(&self.around.env);
        while let Some(oldest) = files.older.first_mut() {
            oldest.sync()?;
            self.around.host.log_synced(oldest.number(), oldest.size());
            files.older.remove(0);
        }
        files.current.sync()?;
        self.around.statistics.measure_since(&self.around.env, &[HistogramKind::WalFileSyncMicros], start);
        Ok(())
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
