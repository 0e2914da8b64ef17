//! The door that writers come through: open, narrow, or closed.
//!
//! In: how bad the rule in `lsm` finds each column family, the rate it wants, and which jobs that
//! would let writers go on fail. Out: writers that go on at once (one atomic load), after a while
//! (as the rate has it), when the door opens again, or with an error.
//!
//! Invariants:
//! - The worst of all conditions decides how far the door is open. Whoever waits at it learns of
//!   every change: another condition, a background error, the end.
//! - Nobody waits for ever for a job that fails each time. A writer that has waited as long as the
//!   options allow for that, or as long as its own `timeout`, is told the error.
//!
//! Lock: its own; never held while waiting. Ordering: `door` is Release by whoever changes a
//! condition, Acquire by writers.

use super::bucket::Bucket;
use super::{Raced, WriteBufferManager, race};
use crate::error::{Error, ErrorKind, Result};
use crate::health::Health;
use crate::stats::{HistogramKind, Statistics, Ticker, micros};
use crate::sync::Event;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use karst_format::ids::ColumnFamilyId;
use karst_io::{Env, report};
use karst_lsm::stall::{StallCause, WriteStall};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// A condition in words.
pub fn describe(stall: WriteStall) -> &'static str {
    match stall {
        WriteStall::Normal => "normal",
        WriteStall::Delayed(StallCause::MemtableLimit) => {
            "writes are slowed down: too many memtables wait to be flushed"
        }
        WriteStall::Delayed(StallCause::L0FileCountLimit) => {
            "writes are slowed down: too many tables are in L0"
        }
        WriteStall::Delayed(StallCause::PendingCompactionBytes) => {
            "writes are slowed down: too many bytes wait to be compacted"
        }
        WriteStall::Stopped(StallCause::MemtableLimit) => {
            "writes are stopped: too many memtables wait to be flushed"
        }
        WriteStall::Stopped(StallCause::L0FileCountLimit) => "writes are stopped: too many tables are in L0",
        WriteStall::Stopped(StallCause::PendingCompactionBytes) => {
            "writes are stopped: too many bytes wait to be compacted"
        }
    }
}

/// How a writer comes in.
#[derive(Clone, Copy, Debug, Default)]
pub struct Entry {
    /// Bytes it writes.
    pub bytes: u64,
    /// It would rather fail than wait.
    pub no_slowdown: bool,
    /// It gives way as soon as compaction needs help.
    pub low_pri: bool,
    /// How long it waits, whatever for.
    pub timeout: Option<Duration>,
}

/// What lets writers that wait go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Relief {
    /// A flush.
    Flush,
    /// A compaction.
    Compaction,
}

impl Relief {
    fn of(held: StallCause) -> Self {
        match held {
            StallCause::MemtableLimit => Self::Flush,
            StallCause::L0FileCountLimit | StallCause::PendingCompactionBytes => Self::Compaction,
        }
    }
}

/// A job that fails each time.
#[derive(Clone, Debug)]
struct Setback {
    /// When it failed first.
    since: Duration,
    /// Why it failed last.
    error: Error,
}

/// How often a column family's state held writers up; counted whenever the state is looked at, as
/// in RocksDB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StallCounts {
    /// Stops and delays by memtables that wait to be flushed.
    pub memtable_stops: u64,
    /// See `memtable_stops`.
    pub memtable_delays: u64,
    /// Stops and delays by files of L0.
    pub l0_stops: u64,
    /// See `l0_stops`.
    pub l0_delays: u64,
    /// Stops and delays by bytes that wait to be compacted.
    pub pending_stops: u64,
    /// See `pending_stops`.
    pub pending_delays: u64,
    /// Those of L0 while a compaction of L0 ran.
    pub l0_stops_compacting: u64,
    /// See `l0_stops_compacting`.
    pub l0_delays_compacting: u64,
}

impl StallCounts {
    fn count(&mut self, condition: WriteStall, l0_compacts: bool) {
        let counter = match condition {
            WriteStall::Normal => return,
            WriteStall::Stopped(StallCause::MemtableLimit) => &mut self.memtable_stops,
            WriteStall::Stopped(StallCause::L0FileCountLimit) => &mut self.l0_stops,
            WriteStall::Stopped(StallCause::PendingCompactionBytes) => &mut self.pending_stops,
            WriteStall::Delayed(StallCause::MemtableLimit) => &mut self.memtable_delays,
            WriteStall::Delayed(StallCause::L0FileCountLimit) => &mut self.l0_delays,
            WriteStall::Delayed(StallCause::PendingCompactionBytes) => &mut self.pending_delays,
        };
        *counter += 1;
        self.l0_stops_compacting +=
            u64::from(l0_compacts && condition == WriteStall::Stopped(StallCause::L0FileCountLimit));
        self.l0_delays_compacting +=
            u64::from(l0_compacts && condition == WriteStall::Delayed(StallCause::L0FileCountLimit));
    }

    /// All stops and all delays.
    pub fn totals(&self) -> (u64, u64) {
        (
            self.memtable_stops + self.l0_stops + self.pending_stops,
            self.memtable_delays + self.l0_delays + self.pending_delays,
        )
    }
}

const OPEN: u8 = 0;
/// Only low-priority writers pay.
const PRESSED: u8 = 1;
const NARROW: u8 = 2;
const CLOSED: u8 = 3;
/// The database is being closed.
const SHUT: u8 = 4;

/// Compat: RocksDB's fixed rate of low-priority writes while compaction needs help.
const LOW_PRI_BYTES_PER_SEC: u64 = 1 << 20;

/// See the module.
#[derive(Debug)]
pub struct StallController {
    door: AtomicU8,
    rate: AtomicU64,
    /// How long writers were held up, all together.
    held_micros: AtomicU64,
    /// How often they were because of the budget of memtables.
    budget_stops: AtomicU64,
    state: Mutex<State>,
    changed: Event,
    health: Arc<Health>,
    write_buffers: WriteBufferManager,
    /// How long writers wait for what fails each time, unless they say it themselves.
    patience: Duration,
}

#[derive(Debug, Default)]
struct State {
    families: BTreeMap<ColumnFamilyId, (WriteStall, StallCounts)>,
    /// What fails, of which family, since it has succeeded last.
    setbacks: BTreeMap<(ColumnFamilyId, Relief), Setback>,
    /// Families whose compaction needs help though writers are not held up yet.
    pressed: Vec<ColumnFamilyId>,
    bucket: Bucket,
    low_pri: Bucket,
    shut: bool,
    /// Nothing that writers wait for will happen any more.
    abandoned: bool,
}

impl State {
    fn worst(&self) -> WriteStall {
        self.families.values().map(|(condition, _)| *condition).max().unwrap_or_default()
    }

    /// What would let go those who wait and fails, for the longest time.
    fn setback(&self, hold: Hold) -> Option<&Setback> {
        let stopped_for = |relief, condition: WriteStall| matches!(condition, WriteStall::Stopped(held) if Relief::of(held) == relief);
        let matters = |(family, relief): (ColumnFamilyId, Relief), setback: &Setback| match hold {
            Hold::Budget => relief == Relief::Flush,
            // Why of any family: while one's job finds no room, no other's is tried.
            Hold::Stop if setback.error.kind() == ErrorKind::NoSpace => {
                self.families.values().any(|(condition, _)| stopped_for(relief, *condition))
            }
            Hold::Stop => {
                self.families.get(&family).is_some_and(|(condition, _)| stopped_for(relief, *condition))
            }
        };
        let matter = self.setbacks.iter().filter(|(of, setback)| matters(**of, setback));
        matter.map(|(_, setback)| setback).min_by_key(|setback| setback.since)
    }

    fn door(&self) -> u8 {
        match self.worst() {
            _ if self.shut => SHUT,
            WriteStall::Stopped(_) => CLOSED,
            WriteStall::Delayed(_) => NARROW,
            WriteStall::Normal if !self.pressed.is_empty() => PRESSED,
            WriteStall::Normal => OPEN,
        }
    }
}

/// What a writer has to do at the door.
enum Way {
    In,
    /// Wait so long, then go in if the door is not closed by then.
    After(Duration),
    /// Wait until something changes.
    Wait(StallCause),
    Shut,
}

/// What a writer waits for at the door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    /// That no family stops writers.
    Stop,
    /// That memtables are within their budget.
    Budget,
}

/// Until when a writer waits, and what it is told then.
type Limit = Option<(Duration, Error)>;

/// Waits for `change`, or until the limit, which is then to be asked for anew: what failed may have
/// succeeded meanwhile.
///
/// # Errors
/// The limit has been reached already.
async fn wait_within(env: &Env, change: impl Future + Unpin, limit: Limit) -> Result<()> {
    let Some((until, error)) = limit else {
        change.await;
        return Ok(());
    };
    let left = until.saturating_sub(env.now());
    if left.is_zero() {
        return Err(error);
    }
    race(change, karst_io::sleep(env, left)).await;
    Ok(())
}

fn timed_out() -> Error {
    Error::new(ErrorKind::TimedOut, "writers are held up, and this write has waited as long as its timeout")
}

impl StallController {
    /// `patience` is how long writers wait for what fails each time, unless they say it themselves.
    pub fn new(
        health: Arc<Health>,
        write_buffers: WriteBufferManager,
        rate: u64,
        patience: Duration,
    ) -> Self {
        Self {
            door: AtomicU8::new(OPEN),
            rate: AtomicU64::new(rate.max(1)),
            held_micros: AtomicU64::new(0),
            budget_stops: AtomicU64::new(0),
            state: Mutex::default(),
            changed: Event::new(),
            health,
            write_buffers,
            patience,
        }
    }

    /// Bytes of the budget of memtables that nobody has; without a budget there is no end to them.
    pub fn spare_memory_bytes(&self) -> usize {
        self.write_buffers.spare_bytes().unwrap_or(usize::MAX)
    }

    /// Says how a column family is. `speed_up` is whether its compaction needs help already,
    /// `l0_compacts` whether files of L0 are being compacted.
    pub fn set(&self, family: ColumnFamilyId, condition: WriteStall, speed_up: bool, l0_compacts: bool) {
        let mut state = self.state.lock();
        let entry = state.families.entry(family).or_default();
        entry.0 = condition;
        entry.1.count(condition, l0_compacts);
        state.pressed.retain(|pressed| *pressed != family);
        if speed_up {
            state.pressed.push(family);
        }
        self.republish(&mut state);
    }

    /// A job of the family that would let writers go on has failed.
    pub fn job_failed(&self, family: ColumnFamilyId, relief: Relief, now: Duration, error: &Error) {
        let mut state = self.state.lock();
        let new = || Setback { since: now, error: error.clone() };
        state.setbacks.entry((family, relief)).or_insert_with(new).error = error.clone();
        drop(state);
        self.changed.notify(usize::MAX);
    }

    /// One has succeeded.
    pub fn job_succeeded(&self, family: ColumnFamilyId, relief: Relief) {
        self.state.lock().setbacks.remove(&(family, relief));
    }

    /// Forgets a column family that was dropped.
    pub fn forget(&self, family: ColumnFamilyId) {
        let mut state = self.state.lock();
        state.families.remove(&family);
        state.setbacks.retain(|(of, _), _| *of != family);
        state.pressed.retain(|pressed| *pressed != family);
        self.republish(&mut state);
    }

    /// Lets nobody in any more; whoever waits fails.
    pub fn shut(&self) {
        let mut state = self.state.lock();
        state.shut = true;
        self.republish(&mut state);
    }

    /// Whoever waits for a flush or a compaction fails from now on; others go in as before.
    pub fn abandon(&self) {
        self.state.lock().abandoned = true;
        self.changed.notify(usize::MAX);
    }

    fn republish(&self, state: &mut State) {
        let door = state.door();
        if self.door.swap(door, Ordering::AcqRel) == door {
            return;
        }
        if door < NARROW {
            state.bucket.clear();
        }
        self.changed.notify(usize::MAX);
    }

    /// The rate in bytes per second at which delayed writers go on.
    pub fn rate(&self) -> u64 {
        self.rate.load(Ordering::Relaxed)
    }

    /// Whether some family stops writers, and whether some family delays them.
    pub fn held(&self) -> (bool, bool) {
        let state = self.state.lock();
        let any = |of: fn(&WriteStall) -> bool| state.families.values().any(|(condition, _)| of(condition));
        (any(|c| matches!(c, WriteStall::Stopped(_))), any(|c| matches!(c, WriteStall::Delayed(_))))
    }

    /// Changes it.
    pub fn set_rate(&self, bytes_per_sec: u64) {
        self.rate.store(bytes_per_sec.max(1), Ordering::Relaxed);
    }

    /// The rate if writers are delayed now, else 0: the property
    /// `rocksdb.actual-delayed-write-rate`.
    pub fn actual_delayed_rate(&self) -> u64 {
        if self.door.load(Ordering::Acquire) == NARROW { self.rate() } else { 0 }
    }

    /// Whether writers wait until something changes: the property `rocksdb.is-write-stopped`.
    pub fn is_stopped(&self) -> bool {
        self.door.load(Ordering::Acquire) == CLOSED
    }

    /// How long writers were held up, all together, in microseconds.
    pub fn held_micros(&self) -> u64 {
        self.held_micros.load(Ordering::Relaxed)
    }

    /// How often writers were held up because memtables were over their budget.
    pub fn budget_stops(&self) -> u64 {
        self.budget_stops.load(Ordering::Relaxed)
    }

    /// Whether compaction should use all it may.
    pub fn needs_speed(&self) -> bool {
        self.door.load(Ordering::Acquire) != OPEN
    }

    /// The condition of a column family, and how often it held writers up.
    pub fn family(&self, family: ColumnFamilyId) -> (WriteStall, StallCounts) {
        self.state.lock().families.get(&family).copied().unwrap_or_default()
    }

    /// Wakes everybody who waits, to look again.
    pub fn wake(&self) {
        self.changed.notify(usize::MAX);
    }

    /// Whether a writer with these wishes would go in at once. One load, and one more where
    /// memtables have a budget that stalls.
    #[inline]
    pub fn is_open(&self, entry: &Entry) -> bool {
        let door = self.door.load(Ordering::Acquire);
        (door == OPEN || (door == PRESSED && !entry.low_pri)) && !self.write_buffers.should_stall()
    }

    /// Lets a writer in, now or later. Dropping the future gives up its place; what it paid is
    /// lost.
    ///
    /// # Errors
    /// A background error, the end of the database, with `no_slowdown` that it would have to wait,
    /// or that it has waited long enough: then why what would let it go on fails, or else
    /// `TimedOut`.
    pub async fn enter(&self, env: &Env, stats: &Statistics, entry: Entry) -> Result<()> {
        self.health.check_writes()?;
        if self.is_open(&entry) {
            return Ok(());
        }
        let start = env.now();
        let outcome = self.wait(env, entry, start).await;
        let micros = micros(env.now() - start);
        self.held_micros.fetch_add(micros, Ordering::Relaxed);
        stats.record(Ticker::StallMicros, micros);
        stats.measure(HistogramKind::WriteStall, micros);
        outcome
    }

    /// Until when a writer waits that came at `start`.
    fn limit(&self, hold: Hold, start: Duration, entry: &Entry) -> Limit {
        let state = self.state.lock();
        if state.abandoned {
            let text = "writers are stopped, and background work, which would let them go on, was cancelled";
            return Some((Duration::ZERO, Error::new(ErrorKind::Closed, text)));
        }
        let setback = state.setback(hold);
        let until = match (entry.timeout, setback) {
            (Some(timeout), _) => start.saturating_add(timeout),
            // Why from the failure on: what has only just failed may succeed when it is tried
            // again.
            (None, Some(setback)) => start.max(setback.since).saturating_add(self.patience),
            (None, None) => return None,
        };
        let error = setback.map_or_else(timed_out, |setback| {
            setback.error.clone().in_context("writers are stopped, and what would let them go on fails")
        });
        Some((until, error))
    }

    async fn wait(&self, env: &Env, entry: Entry, start: Duration) -> Result<()> {
        loop {
            let mut changed = self.changed.listen();
            let mut budget = self.write_buffers.listen();
            let health = self.health.listen();
            self.health.check_writes()?;
            let way = self.way(env.now(), &entry);
            if entry.no_slowdown && !matches!(way, Way::In | Way::Shut) {
                return Err(Error::new(
                    ErrorKind::Incomplete,
                    "writers are held up, and this write would not wait",
                ));
            }
            match way {
                Way::In if self.write_buffers.should_stall() => {
                    self.budget_stops.fetch_add(1, Ordering::Relaxed);
                    if entry.no_slowdown {
                        let text = "memtables are over their budget, and this write would not wait";
                        return Err(Error::new(ErrorKind::Incomplete, text));
                    }
                    let change = race(&mut budget, race(&mut changed, health));
                    wait_within(env, change, self.limit(Hold::Budget, start, &entry)).await?;
                }
                Way::In => return Ok(()),
                Way::Shut => return Err(Error::new(ErrorKind::Closed, "the database is closed")),
                Way::Wait(held) => {
                    report!(debug, "{}", describe(WriteStall::Stopped(held)));
                    wait_within(env, race(&mut changed, health), self.limit(Hold::Stop, start, &entry))
                        .await?;
                }
                Way::After(span) => {
                    let left = entry
                        .timeout
                        .map(|timeout| (start.saturating_add(timeout)).saturating_sub(env.now()));
                    let pause = left.map_or(span, |left| left.min(span));
                    if let Raced::Second(()) =
                        race(race(&mut changed, health), karst_io::sleep(env, pause)).await
                    {
                        return if pause < span { Err(timed_out()) } else { self.health.check_writes() };
                    }
                }
            }
        }
    }

    fn way(&self, now: Duration, entry: &Entry) -> Way {
        let mut state = self.state.lock();
        let (rate, bucket) = match (state.door(), state.worst()) {
            (SHUT, _) => return Way::Shut,
            (_, WriteStall::Stopped(held)) => return Way::Wait(held),
            (_, WriteStall::Delayed(_)) => (self.rate(), &mut state.bucket),
            (PRESSED, WriteStall::Normal) if entry.low_pri => (LOW_PRI_BYTES_PER_SEC, &mut state.low_pri),
            (_, WriteStall::Normal) => return Way::In,
        };
        let mut paid = *bucket;
        let delay = paid.take(now, entry.bytes, rate);
        // Why not always: who would rather fail than wait has not written, and leaves its share to
        // others.
        if delay.is_zero() || !entry.no_slowdown {
            *bucket = paid;
        }
        if delay.is_zero() { Way::In } else { Way::After(delay) }
    }
}

#[cfg(test)]
mod tests;
