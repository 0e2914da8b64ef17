//! Write-stall control: admits, delays or blocks writers.
//!
//! In: the stall condition of each column family by the rule in `lsm`, the delayed write rate, and
//! failures of the jobs that would end a stall. Out: writers that proceed at once (one atomic
//! load), after a delay (by the rate), when the stall ends, or with an error.
//!
//! Invariants:
//! - The worst of all conditions decides. Waiting writers are woken by every change: a new
//!   condition, a background error, shutdown.
//! - No writer waits for ever for a job that keeps failing. After the patience set by the options,
//!   or after its own `timeout`, it gets the error.
//!
//! Lock: its own; never held while waiting. Ordering: `admission` is stored with Release by changes
//! of a condition, loaded with Acquire by writers.

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

/// Describes a condition in words.
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

/// A writer's request for admission.
#[derive(Clone, Copy, Debug, Default)]
pub struct Entry {
    /// Number of bytes to write.
    pub bytes: u64,
    /// Fail instead of waiting.
    pub no_slowdown: bool,
    /// Yield as soon as compaction falls behind.
    pub low_pri: bool,
    /// Maximum time to wait, for any reason.
    pub timeout: Option<Duration>,
}

/// The kind of job whose success ends a stall.
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

/// A job that keeps failing.
#[derive(Clone, Debug)]
struct Setback {
    /// Time of the first failure.
    since: Duration,
    /// The latest failure.
    error: Error,
}

/// Number of write stalls of a column family; counted whenever its state is evaluated, as in
/// RocksDB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StallCounts {
    /// Stops caused by unflushed memtables.
    pub memtable_stops: u64,
    /// Delays caused by unflushed memtables.
    pub memtable_delays: u64,
    /// Stops caused by the number of L0 files.
    pub l0_stops: u64,
    /// Delays caused by the number of L0 files.
    pub l0_delays: u64,
    /// Stops caused by pending compaction bytes.
    pub pending_stops: u64,
    /// Delays caused by pending compaction bytes.
    pub pending_delays: u64,
    /// Stops by L0 files while a compaction of L0 ran.
    pub l0_stops_compacting: u64,
    /// Delays by L0 files while a compaction of L0 ran.
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

    /// Returns the total number of stops and of delays.
    pub fn totals(&self) -> (u64, u64) {
        (
            self.memtable_stops + self.l0_stops + self.pending_stops,
            self.memtable_delays + self.l0_delays + self.pending_delays,
        )
    }
}

const ADMITS: u8 = 0;
/// Only low-priority writers are delayed.
const ADMITS_HIGH_PRI: u8 = 1;
const DELAYS: u8 = 2;
const BLOCKS: u8 = 3;
/// The database is being closed.
const REFUSES: u8 = 4;

/// Compat: RocksDB's fixed rate of low-priority writes while compaction falls behind.
const LOW_PRI_BYTES_PER_SEC: u64 = 1 << 20;

/// Write-stall control; see the module.
#[derive(Debug)]
pub struct StallController {
    admission: AtomicU8,
    rate: AtomicU64,
    /// Total time that writers were stalled, in microseconds.
    held_micros: AtomicU64,
    /// Number of stalls caused by the memtable budget.
    budget_stops: AtomicU64,
    state: Mutex<State>,
    changed: Event,
    health: Arc<Health>,
    write_buffers: WriteBufferManager,
    /// Default time that writers wait for a job that keeps failing.
    patience: Duration,
}

#[derive(Debug, Default)]
struct State {
    families: BTreeMap<ColumnFamilyId, (WriteStall, StallCounts)>,
    /// Jobs that failed and have not succeeded since, by family and kind.
    setbacks: BTreeMap<(ColumnFamilyId, Relief), Setback>,
    /// Families whose compaction has fallen behind without stalling writers yet.
    pressed: Vec<ColumnFamilyId>,
    /// Families that a seal that is under way will have stop writers.
    expected: Vec<ColumnFamilyId>,
    bucket: Bucket,
    low_pri: Bucket,
    shut: bool,
    /// Background work was cancelled, so stalls no longer end.
    abandoned: bool,
}

impl State {
    fn worst(&self) -> WriteStall {
        self.families.values().map(|(condition, _)| *condition).max().unwrap_or_default()
    }

    /// Returns the failing job that would end this stall, and that has failed for the longest time.
    fn setback(&self, hold: Hold) -> Option<&Setback> {
        let stopped_for = |relief, condition: WriteStall| matches!(condition, WriteStall::Stopped(held) if Relief::of(held) == relief);
        let matters = |(family, relief): (ColumnFamilyId, Relief), setback: &Setback| match hold {
            Hold::Budget => relief == Relief::Flush,
            // Any family counts because all jobs are held back while one finds no space.
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

    fn admission(&self) -> u8 {
        match self.worst() {
            _ if self.shut => REFUSES,
            _ if !self.expected.is_empty() => BLOCKS,
            WriteStall::Stopped(_) => BLOCKS,
            WriteStall::Delayed(_) => DELAYS,
            WriteStall::Normal if !self.pressed.is_empty() => ADMITS_HIGH_PRI,
            WriteStall::Normal => ADMITS,
        }
    }
}

/// The decision about a writer.
enum Way {
    In,
    /// Wait this long, then proceed, unless a change in between requires a new decision.
    After(Duration),
    /// Wait for a change.
    Wait(StallCause),
    Shut,
}

/// The reason a writer waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    /// A family stops writes.
    Stop,
    /// The memtables exceed their budget.
    Budget,
}

/// The time at which a writer stops waiting, and its error then.
type Limit = Option<(Duration, Error)>;

/// Waits for `change` or until the limit. The caller must then compute the limit again because a
/// failed job may have succeeded meanwhile.
///
/// # Errors
/// The limit's error: its time had passed before the wait.
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
    /// `patience` is the time writers wait for a job that keeps failing, unless they have a
    /// timeout.
    pub fn new(
        health: Arc<Health>,
        write_buffers: WriteBufferManager,
        rate: u64,
        patience: Duration,
    ) -> Self {
        Self {
            admission: AtomicU8::new(ADMITS),
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

    /// Returns the unused bytes of the memtable budget; `usize::MAX` without a budget.
    pub fn spare_memory_bytes(&self) -> usize {
        self.write_buffers.spare_bytes().unwrap_or(usize::MAX)
    }

    /// Sets a column family's condition. `speed_up`: its compaction has fallen behind;
    /// `l0_compacts`: a compaction of L0 files is running.
    pub fn set(&self, family: ColumnFamilyId, condition: WriteStall, speed_up: bool, l0_compacts: bool) {
        let mut state = self.state.lock();
        let entry = state.families.entry(family).or_default();
        let before = std::mem::replace(&mut entry.0, condition);
        entry.1.count(condition, l0_compacts);
        state.pressed.retain(|pressed| *pressed != family);
        let was_expected = state.expected.contains(&family);
        state.expected.retain(|expected| *expected != family);
        if speed_up {
            state.pressed.push(family);
        }
        self.republish_to_all(&mut state, was_expected || before != condition);
    }

    /// Records that a job of the family that would end a stall has failed.
    pub fn job_failed(&self, family: ColumnFamilyId, relief: Relief, now: Duration, error: &Error) {
        let mut state = self.state.lock();
        let new = || Setback { since: now, error: error.clone() };
        state.setbacks.entry((family, relief)).or_insert_with(new).error = error.clone();
        drop(state);
        self.changed.notify(usize::MAX);
    }

    /// Records that such a job has succeeded.
    pub fn job_succeeded(&self, family: ColumnFamilyId, relief: Relief) {
        self.state.lock().setbacks.remove(&(family, relief));
    }

    /// Removes a dropped column family.
    pub fn forget(&self, family: ColumnFamilyId) {
        let mut state = self.state.lock();
        state.families.remove(&family);
        state.setbacks.retain(|(of, _), _| *of != family);
        state.pressed.retain(|pressed| *pressed != family);
        state.expected.retain(|expected| *expected != family);
        self.republish(&mut state);
    }

    /// Stops writers on behalf of families of which a seal is about to make one memtable too many,
    /// until it is [said](Self::set) how they are.
    ///
    /// Why before the seal: a writer that comes between the seal and that would fill the next
    /// memtable, and so on.
    pub fn expect_stop(&self, families: impl IntoIterator<Item = ColumnFamilyId>) {
        let mut state = self.state.lock();
        state.expected.extend(families);
        self.republish(&mut state);
    }

    /// Takes [`expect_stop`](Self::expect_stop) back of families that were not sealed.
    pub fn expect_no_stop(&self, families: &[ColumnFamilyId]) {
        let mut state = self.state.lock();
        let expected = state.expected.len();
        state.expected.retain(|expected| !families.contains(expected));
        let changed = state.expected.len() != expected;
        self.republish_to_all(&mut state, changed);
    }

    /// Admits no more writers; waiting writers fail.
    pub fn shut(&self) {
        let mut state = self.state.lock();
        state.shut = true;
        self.republish(&mut state);
    }

    /// Makes writers that wait for a flush or compaction fail from now on; others are admitted as
    /// before.
    pub fn abandon(&self) {
        self.state.lock().abandoned = true;
        self.changed.notify(usize::MAX);
    }

    fn republish(&self, state: &mut State) {
        self.republish_to_all(state, false);
    }

    /// Publishes the state of admission. `changed`: a reason to stop writers is new or gone, so
    /// stopped writers are woken even if writers stay stopped, because the time that they wait
    /// depends on the reason.
    fn republish_to_all(&self, state: &mut State, changed: bool) {
        let admission = state.admission();
        let before = self.admission.swap(admission, Ordering::AcqRel);
        // Delayed writers are not woken, because each wake-up takes from the rate again.
        if before == admission && !(changed && admission == BLOCKS) {
            return;
        }
        if admission < DELAYS {
            state.bucket.clear();
        }
        self.changed.notify(usize::MAX);
    }

    /// Returns the delayed write rate in bytes per second.
    pub fn rate(&self) -> u64 {
        self.rate.load(Ordering::Relaxed)
    }

    /// Returns whether some family stops writes, and whether some family delays them.
    pub fn held(&self) -> (bool, bool) {
        let state = self.state.lock();
        let any = |of: fn(&WriteStall) -> bool| state.families.values().any(|(condition, _)| of(condition));
        (any(|c| matches!(c, WriteStall::Stopped(_))), any(|c| matches!(c, WriteStall::Delayed(_))))
    }

    /// Sets the delayed write rate.
    pub fn set_rate(&self, bytes_per_sec: u64) {
        self.rate.store(bytes_per_sec.max(1), Ordering::Relaxed);
    }

    /// Returns the rate if writers are delayed now, else 0: the property
    /// `rocksdb.actual-delayed-write-rate`.
    pub fn actual_delayed_rate(&self) -> u64 {
        if self.admission.load(Ordering::Acquire) == DELAYS { self.rate() } else { 0 }
    }

    /// Returns true if writers are stopped: the property `rocksdb.is-write-stopped`.
    pub fn is_stopped(&self) -> bool {
        self.admission.load(Ordering::Acquire) == BLOCKS
    }

    /// Returns the total time that writers were stalled, in microseconds.
    pub fn held_micros(&self) -> u64 {
        self.held_micros.load(Ordering::Relaxed)
    }

    /// Returns how often writers were stalled by the memtable budget.
    pub fn budget_stops(&self) -> u64 {
        self.budget_stops.load(Ordering::Relaxed)
    }

    /// Returns true if compaction should use all its parallelism.
    pub fn needs_speed(&self) -> bool {
        self.admission.load(Ordering::Acquire) != ADMITS
    }

    /// Returns a column family's condition and stall counts.
    pub fn family(&self, family: ColumnFamilyId) -> (WriteStall, StallCounts) {
        self.state.lock().families.get(&family).copied().unwrap_or_default()
    }

    /// Wakes all waiting writers to check again.
    pub fn wake(&self) {
        self.changed.notify(usize::MAX);
    }

    /// Returns true if the writer would be admitted at once. One load, and one more if memtables
    /// have a budget that stalls.
    #[inline]
    pub fn is_open(&self, entry: &Entry) -> bool {
        let admission = self.admission.load(Ordering::Acquire);
        (admission == ADMITS || (admission == ADMITS_HIGH_PRI && !entry.low_pri))
            && !self.write_buffers.should_stall()
    }

    /// Admits a writer, at once or after waiting. Dropping the future cancels the wait; bytes
    /// already taken from the rate are lost.
    ///
    /// # Errors
    /// A background error; `Closed` at shutdown; `Incomplete` with `no_slowdown` if it would have
    /// to wait; or, after the limit, the failure of the job that would end the stall, or `TimedOut`
    /// without one.
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

    /// Returns the limit for a writer that arrived at `start`.
    fn limit(&self, hold: Hold, start: Duration, entry: &Entry) -> Limit {
        let state = self.state.lock();
        if state.abandoned {
            let text = "writers are stopped, and the background work that they wait for was cancelled";
            return Some((Duration::ZERO, Error::new(ErrorKind::Closed, text)));
        }
        let setback = state.setback(hold);
        let until = match (entry.timeout, setback) {
            (Some(timeout), _) => start.saturating_add(timeout),
            // Counted from the failure because a job that has only just failed may succeed on
            // retry.
            (None, Some(setback)) => start.max(setback.since).saturating_add(self.patience),
            (None, None) => return None,
        };
        let error = setback.map_or_else(timed_out, |setback| {
            setback
                .error
                .clone()
                .in_context("writers are stopped, and the flush or compaction that they wait for fails")
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
        let (rate, bucket) = match (state.admission(), state.worst()) {
            (REFUSES, _) => return Way::Shut,
            _ if !state.expected.is_empty() => return Way::Wait(StallCause::MemtableLimit),
            (_, WriteStall::Stopped(held)) => return Way::Wait(held),
            (_, WriteStall::Delayed(_)) => (self.rate(), &mut state.bucket),
            (ADMITS_HIGH_PRI, WriteStall::Normal) if entry.low_pri => {
                (LOW_PRI_BYTES_PER_SEC, &mut state.low_pri)
            }
            (_, WriteStall::Normal) => return Way::In,
        };
        let mut paid = *bucket;
        let delay = paid.take(now, entry.bytes, rate);
        // Not stored for a `no_slowdown` writer that is refused, because it writes nothing and
        // leaves its share to others.
        if delay.is_zero() || !entry.no_slowdown {
            *bucket = paid;
        }
        if delay.is_zero() { Way::In } else { Way::After(delay) }
    }
}

#[cfg(test)]
mod tests;
