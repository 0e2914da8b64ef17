//! The persist step: one leader at a time takes all framed records, writes them to the logs, and
//! syncs the logs if a record asks for it.
//!
//! Records come from the order step's buffer. The result is the end of the tickets whose records
//! have left the process, and of those whose records are on the device; or a failure.
//!
//! A caller that finds work and no leader becomes the leader: a blocking writer on its own thread,
//! or, for asynchronous writers, a task of their reactor if that carries writes, else a job on a
//! thread that may block. A writer that leads does one round, leaves, applies its own batch, and
//! checks again before it waits for others, so that a batch is never delayed by its writer's work
//! for others. [`Leadership`] holds the leader flag and the requests.
//!
//! A task takes the files away while it leads ([`Carried`]), because no lock is held across an
//! await. It writes on the ring of its thread, and leaves rounds to a job that need calls which may
//! block: those that switch logs or close old ones, and the first sync of a log. A short write
//! without a sync is a call on the writer's own thread, which costs less than a handover.
//!
//! Invariants:
//! - Logs are written in order, and a sync covers every older log that has unsynced bytes, oldest
//!   first, so durable records are a prefix of the ordered ones.
//! - After a failed write or sync no file that was open then is written again.

use crate::handoff::{Fate, Goals, Leadership};
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
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Maximum number of bytes that a task writes by a call on its own thread.
const CALLED_AT_MOST: usize = 64 << 10;
/// Maximum capacity of a buffer that is kept for the next round.
const KEPT_BUFFER_BYTES: usize = 4 << 20;

/// The state of the persist step.
pub(crate) struct Persist<H> {
    around: Arc<Around<H>>,
    /// The leader is a writing thread, or a job from when it is started. A round without a ticket
    /// is asked for when a log was switched.
    leadership: Leadership,
    /// Bytes of the round that is being written.
    in_round: AtomicUsize,
    /// Number of rounds written, bytes written, and number of syncs. Changed by leaders only.
    rounds: AtomicU64,
    /// Those of `rounds` that tasks led.
    task_rounds: AtomicU64,
    log_bytes: AtomicU64,
    syncs: AtomicU64,
    /// The ticket after the last decision on a section inserted at prepare. Changed under the order
    /// lock.
    decided: AtomicU64,
    /// Logs below this number are no longer needed.
    released: AtomicU64,
    /// Lock: held by the leader while it writes. Others only try it, and may hold it briefly.
    /// `None` while a task that leads has the files.
    files: Mutex<Option<Files>>,
    /// Value of `written` at which a spinning waiter last gave up.
    standstill: Standstill,
    /// Notified after every round, for waiters without a ticket.
    progress: Event,
}

/// The open log files.
#[derive(Debug)]
pub(crate) struct Files {
    /// Logs that take no more writes and have unsynced bytes, oldest first.
    older: Vec<LogFile>,
    current: LogFile,
    /// Buffer that the next round hands to the order step.
    spare: Vec<u8>,
}

impl Files {
    /// Ends the newest log, and releases its unused space. Blocks.
    ///
    /// # Errors
    /// Those of [`LogFile::end`].
    pub(crate) fn end(&mut self) -> Result<()> {
        self.current.end()?;
        if let Some(give_back) = self.current.unused_space() {
            give_back();
        }
        Ok(())
    }

    /// Returns the number and the bytes of the newest log.
    pub(crate) fn newest(&self) -> (FileNumber, u64) {
        (self.current.number(), self.current.size())
    }

    /// Keeps the buffer of a round for the next one.
    fn keep(&mut self, mut records: Vec<u8>) {
        records.clear();
        if records.capacity() <= KEPT_BUFFER_BYTES {
            self.spare = records;
        }
    }

    /// Replaces all logs by the last of `logs`.
    pub(crate) fn replace(&mut self, logs: impl Iterator<Item = LogFile>) {
        if let Some(last) = logs.last() {
            self.current = last;
            self.older.clear();
        }
    }
}

/// Records that a leader writes at once, with the locked files. The owner leads until the round is
/// [written](Persist::write) and the leadership [given up](Persist::leave).
pub(crate) struct Round<'a> {
    files: LockedFiles<'a>,
    taken: Taken,
    /// The first ticket that is not written.
    first: u64,
    sync: bool,
    by_task: bool,
}

/// The locked files.
pub(crate) struct LockedFiles<'a>(MutexGuard<'a, Option<Files>>);

impl<'a> LockedFiles<'a> {
    /// Returns `None` if a task has the files.
    fn new(files: MutexGuard<'a, Option<Files>>) -> Option<Self> {
        files.is_some().then_some(Self(files))
    }
}

impl Deref for LockedFiles<'_> {
    type Target = Files;

    fn deref(&self) -> &Files {
        self.0.as_ref().expect("the files are here while this exists")
    }
}

impl DerefMut for LockedFiles<'_> {
    fn deref_mut(&mut self) -> &mut Files {
        self.0.as_mut().expect("the files are here while this exists")
    }
}

/// A round of a task, with the files. Its owner leads until the round is
/// [brought back](Persist::bring_back) and the leadership given up.
pub(crate) struct Carried {
    files: Files,
    /// Shared with the channel while it writes.
    records: Arc<Vec<u8>>,
    bytes: usize,
    log_bytes: u64,
    tickets: (u64, u64),
    sync: bool,
}

impl Round<'_> {
    /// Takes the files away. The round switches no log.
    pub(crate) fn carry(mut self) -> Carried {
        let Taken { switched, records, bytes, end, log_bytes } = self.taken;
        assert!(switched.is_empty(), "a task switches no log");
        let files = self.files.0.take().expect("the files are here while they are locked");
        Carried {
            files,
            records: Arc::new(records),
            bytes,
            log_bytes,
            tickets: (self.first, end),
            sync: self.sync,
        }
    }
}

/// Result of a round.
pub(crate) struct Ended {
    /// Tickets of the round: the first, and the one after the last.
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
            task_rounds: AtomicU64::new(0),
            log_bytes: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            decided: AtomicU64::new(0),
            released: AtomicU64::new(0),
            files: Mutex::new(Some(Files { older: Vec::new(), current: log, spare: Vec::new() })),
            standstill: Standstill::default(),
            progress: Event::new(),
        }
    }

    /// Records that `ticket` decides a section inserted at prepare. Called under the order lock.
    pub(crate) fn decides(&self, ticket: u64) {
        self.decided.store(ticket + 1, Ordering::Release);
    }

    /// Returns true if all decisions ordered so far are synced, so that older logs are not needed
    /// for them.
    pub(crate) fn decisions_are_synced(&self) -> bool {
        self.leadership.synced() >= self.decided.load(Ordering::Acquire)
    }

    /// Asks that `ticket` and all before it are written, and synced if `sync`. Lock: under the
    /// order lock.
    #[inline]
    pub(crate) fn ask(&self, ticket: u64, sync: bool) {
        self.leadership.ask(ticket, sync);
    }

    /// Asks for a round that takes over a switched log. Lock: under the order lock.
    pub(crate) fn ask_for_switched_log(&self) {
        self.leadership.ask_for_switched_log();
    }

    /// Returns the current goals. Lock: under the order lock.
    #[inline]
    pub(crate) fn goals(&self) -> Goals {
        self.leadership.goals()
    }

    /// Returns true if these goals were reached, or never will be.
    #[inline]
    pub(crate) fn is_past(&self, goals: Goals) -> bool {
        self.leadership.is_past(goals)
    }

    /// Returns the fate of the record of a ticket that was asked for with the same `sync`.
    #[inline]
    pub(crate) fn fate(&self, ticket: u64, sync: bool) -> Fate {
        self.leadership.fate(ticket, sync)
    }

    /// Takes the leadership if it is free and there is work.
    #[inline]
    pub(crate) fn try_lead(&self) -> bool {
        self.leadership.try_lead()
    }

    /// Fails all tickets not reached yet. Called by the leader; lock: under the order lock.
    pub(crate) fn fail(&self) {
        self.leadership.fail();
    }

    /// Restarts at ticket `next` after a failure, with the last of `logs` in place of all files.
    /// Lock: under the order lock, by the leader.
    pub(crate) fn recover(&self, files: &mut Files, logs: Vec<LogFile>, next: u64) {
        files.replace(logs.into_iter());
        self.leadership.recover(next);
    }

    /// Spins for a moment while waiting for the log. Returns false if the caller should sleep.
    pub(crate) fn pass(&self, moments: &mut Moments) -> bool {
        moments.pass(self.leadership.written(), &self.standstill)
    }

    /// Listens for the end of a round. The caller checks its condition afterwards.
    fn listen(&self) -> EventListener {
        let listener = self.progress.listen();
        // Ordering: fenced between listening and checking, like all waiters; a leader fences when
        // it leaves, and notifies afterwards.
        fence(Ordering::SeqCst);
        listener
    }

    /// Waits until all tickets below `end` are written, or synced; fails if they never will be.
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

    /// Returns the bytes that a leader has taken and not written yet. The result may be stale.
    #[inline]
    pub(crate) fn in_round(&self) -> usize {
        self.in_round.load(Ordering::Relaxed)
    }

    /// Adds the leaders' counters to `counts`.
    pub(crate) fn count(&self, counts: WriteCounts) -> WriteCounts {
        WriteCounts {
            groups: counts.groups + self.rounds.load(Ordering::Relaxed),
            task_groups: self.task_rounds.load(Ordering::Relaxed),
            log_bytes: self.log_bytes.load(Ordering::Relaxed),
            log_syncs: self.syncs.load(Ordering::Relaxed),
            ..counts
        }
    }

    /// Waits until no leader is at work. A new one may start at any time, even without a record:
    /// for a sync, or because it has found work that another one has done since.
    pub(crate) async fn wait_for_leader(&self) {
        loop {
            let listener = self.listen();
            if !self.leadership.is_led() {
                return;
            }
            listener.await;
        }
    }

    /// Takes the leadership if it is free, even without work.
    pub(crate) fn try_take_lead(&self) -> bool {
        self.leadership.try_take()
    }

    /// Gives up the leadership. Afterwards the caller checks for work before it waits for others,
    /// and [notifies](Self::tell) waiters.
    #[inline]
    pub(crate) fn leave(&self) {
        self.leadership.leave();
    }

    /// Notifies the waiters without a ticket that a round has ended.
    #[inline]
    pub(crate) fn tell(&self) {
        self.progress.notify(usize::MAX);
    }

    pub(crate) fn release(&self, number: FileNumber) {
        self.released.fetch_max(number.0, Ordering::Relaxed);
    }

    /// Locks the files. The caller leads, so no task has them.
    pub(crate) fn files(&self) -> LockedFiles<'_> {
        LockedFiles::new(self.files.lock()).expect("a task has the files only while it leads")
    }

    /// Returns [`files`](Self::files) unless they are locked, or a task has them.
    pub(crate) fn try_files(&self) -> Option<LockedFiles<'_>> {
        LockedFiles::new(self.files.try_lock()?)
    }

    /// Takes a round if no leader is at work. Lock: under the order lock.
    ///
    /// Saves a writer that has just framed a record from locking the order lock again. The files'
    /// lock comes before the order lock, so it is only tried here.
    #[inline]
    pub(crate) fn try_take_round(&self, line: &mut Line) -> Option<Round<'_>> {
        let files = self.try_files()?;
        if self.leadership.try_lead() { self.take_round(files, line) } else { None }
    }

    /// [`try_take_round`](Self::try_take_round) of a task, which writes the round by a call: only
    /// if it is short and needs no sync. Lock: under the order lock.
    pub(crate) fn try_take_short_round(&self, line: &mut Line) -> Option<Round<'_>> {
        let bytes = line.buffered_bytes();
        if bytes > CALLED_AT_MOST || self.leadership.wants_sync() {
            return None;
        }
        let files = self.try_files()?;
        let log = &files.current;
        let fits = log.lacks_space(log.size() + bytes as u64).is_none();
        if !fits || !self.suits_tasks(&files, line) || !self.leadership.try_lead() {
            return None;
        }
        Some(Round { by_task: true, ..self.take_round(files, line)? })
    }

    /// Returns true if a task can lead the round that begins now. Lock: under the order lock.
    pub(crate) fn suits_tasks(&self, files: &Files, line: &Line) -> bool {
        let sync = self.leadership.wants_sync();
        // The end of a file that was removed may take long.
        let closes = files.older.iter().any(|log| log.number() < self.first_needed());
        !line.has_switched()
            && !closes
            && (files.older.is_empty() || !sync)
            && files.current.suits_tasks(line.buffered_bytes() as u64, sync)
    }

    /// Returns false if a job must lead in any case. The caller leads.
    pub(crate) fn may_suit_tasks(&self) -> bool {
        self.try_files().is_none_or(|files| !files.current.has_blocking_calls_only())
    }

    /// Returns the first log that is still needed.
    fn first_needed(&self) -> FileNumber {
        FileNumber(self.released.load(Ordering::Relaxed))
    }

    /// Takes all framed records. The caller leads; if the log has failed, this gives up the
    /// leadership and returns `None`. Lock: under the order lock.
    pub(crate) fn take_round<'a>(&'a self, mut files: LockedFiles<'a>, line: &mut Line) -> Option<Round<'a>> {
        let Some((first, sync)) = self.leadership.begin_round() else {
            drop(files);
            self.leave();
            self.tell();
            return None;
        };
        let taken = line.take(std::mem::take(&mut files.spare));
        self.in_round.store(taken.bytes, Ordering::Relaxed);
        Some(Round { files, taken, first, sync, by_task: false })
    }

    /// Writes a round. The caller still leads.
    pub(crate) fn write(&self, round: Round<'_>) -> Ended {
        let Round { mut files, taken, first, sync, by_task } = round;
        let Taken { switched, records, bytes, end, log_bytes } = taken;
        let mut outcome = unless_it_panics(|| self.write_logs(&mut files, switched, &records));
        self.in_round.store(0, Ordering::Relaxed);
        if outcome.is_ok() {
            self.has_written((first, end), bytes, log_bytes, by_task);
            if sync {
                outcome = unless_it_panics(|| self.sync_logs(&mut files));
                if outcome.is_ok() {
                    self.has_synced(end);
                }
            }
        }
        files.keep(records);
        Ended { tickets: (first, end), outcome }
    }

    /// Records that a round is written. Called by the leader.
    fn has_written(&self, (first, end): (u64, u64), bytes: usize, log_bytes: u64, by_task: bool) {
        self.around.host.logs_grew(log_bytes);
        // Counted before `reach_written`, so that a waiter for the round finds it counted.
        self.around.statistics.record(Ticker::WalFileBytes, bytes as u64);
        self.rounds.fetch_add(u64::from(end > first), Ordering::Relaxed);
        self.task_rounds.fetch_add(u64::from(by_task && end > first), Ordering::Relaxed);
        self.log_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.leadership.reach_written(end);
    }

    /// Records that a round is synced. Called by the leader.
    fn has_synced(&self, end: u64) {
        self.around.statistics.tick(Ticker::WalFileSynced);
        self.leadership.reach_synced(end);
        self.syncs.fetch_add(1, Ordering::Relaxed);
    }

    /// Writes a round that a task has taken, on the channel of its thread. The caller still leads.
    ///
    /// # Errors
    /// The log could not be written or synced.
    pub(crate) async fn write_carried(&self, round: &mut Carried) -> Result<()> {
        let Around { env, statistics, .. } = &*self.around;
        let Carried { files, records, bytes, log_bytes, tickets, sync } = round;
        files.current.write_async(env, records).await?;
        self.in_round.store(0, Ordering::Relaxed);
        self.has_written(*tickets, *bytes, *log_bytes, true);
        if *sync {
            let start = statistics.start_timer(env);
            files.current.sync_async(env).await?;
            statistics.measure_since(env, &[HistogramKind::WalFileSyncMicros], start);
            self.has_synced(tickets.1);
        }
        Ok(())
    }

    /// Puts the files of a round back. The caller still leads.
    pub(crate) fn bring_back(&self, round: Carried, outcome: Result<()>) -> Ended {
        let Carried { mut files, records, tickets, .. } = round;
        self.in_round.store(0, Ordering::Relaxed);
        // A channel has the records only after a failure of this process.
        files.keep(Arc::try_unwrap(records).unwrap_or_default());
        *self.files.lock() = Some(files);
        Ended { tickets, outcome }
    }

    /// Releases the unused space of an ended log, and reports its end to the host; on another
    /// thread, because writers wait for this one.
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
            // Invariant: a log is ended before the next one has a byte, because recovery continues
            // with that only after a log's end.
            files.current.end()?;
            let old = std::mem::replace(&mut files.current, next);
            self.let_go(&old);
            if old.is_unsynced() {
                files.older.push(old);
            } else if old.is_durable() {
                self.around.host.log_synced(old.number(), old.size());
            }
        }
        let first_needed = self.first_needed();
        files.older.retain(|log| log.number() >= first_needed);
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

/// Returns the result of `work` on the logs. A panic, of a user-supplied file system for instance,
/// becomes a log failure, because every writer waits for the leader, and its files must not be
/// written again.
fn unless_it_panics(work: impl FnOnce() -> Result<()>) -> Result<()> {
    // Unwind safe: after an error the files are only replaced.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(panicked()))
}

/// Returns the error of a log whose write or sync panicked.
pub(crate) fn panicked() -> Error {
    Error::new(ErrorKind::Io, "writing or syncing the log panicked")
}
