//! Statistics under RocksDB's names: tickers (counts), histograms (times, sizes) and their printed
//! form.
//!
//! In: `record` and `measure`, called by every layer of the engine from any thread, without a lock
//! or a shared cache line. Out: sums over all threads, and RocksDB's text. [`Statistics`] belongs
//! to one database or is shared by several; with [`StatsLevel::DisableAll`], the level of a
//! database without statistics, a call is one load and a branch.

mod histogram;
pub mod level_jobs;
mod names;
#[cfg(feature = "serde")]
mod serialized;
mod shard;
#[cfg(test)]
mod tests;
pub mod write_counts;

pub use histogram::Histogram;
pub(crate) use names::named;
pub use names::{HistogramKind, Ticker};

use crate::sync::counting::Mutex;
use crate::sync::counting::{AtomicU8, Ordering::Relaxed};
use karst_io::Env;
use shard::{OWNED, Shard};
use std::fmt::Write as _;
use std::sync::OnceLock;
use std::time::Duration;

/// The set of statistics collected; each level adds to the one before. RocksDB's names and order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
#[non_exhaustive]
pub enum StatsLevel {
    /// Nothing.
    DisableAll,
    /// Tickers only.
    ExceptHistogramOrTimers,
    /// Adds histograms of sizes and counts.
    ExceptTimers,
    /// Adds histograms of times, except costly ones. The default if statistics are enabled.
    ExceptDetailedTimers,
    /// Adds the costly times, except waiting on locks.
    ExceptTimeForMutex,
    /// Everything.
    All,
}

impl StatsLevel {
    const LEVELS: [StatsLevel; 6] = [
        StatsLevel::DisableAll,
        StatsLevel::ExceptHistogramOrTimers,
        StatsLevel::ExceptTimers,
        StatsLevel::ExceptDetailedTimers,
        StatsLevel::ExceptTimeForMutex,
        StatsLevel::All,
    ];
}

/// Counts and distributions of one or several databases. Share it as `Arc<Statistics>`; every
/// method takes `&self` and any thread may call it.
pub struct Statistics {
    level: AtomicU8,
    shards: Box<[OnceLock<Box<Shard>>]>,
    /// Values at the last [`Statistics::reset`], subtracted from the totals. Shards are not zeroed
    /// because that would race with the plain stores of their threads.
    baseline: Mutex<Option<Box<Baseline>>>,
}

struct Baseline {
    tickers: Vec<u64>,
    histograms: Vec<Histogram>,
}

impl std::fmt::Debug for Statistics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Statistics").field("level", &self.level()).finish_non_exhaustive()
    }
}

impl Default for Statistics {
    fn default() -> Self {
        Self::new(StatsLevel::ExceptDetailedTimers)
    }
}

/// Converts to whole microseconds, the unit of histograms and listeners.
pub fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Statistics {
    /// Creates empty statistics that collect at `level`.
    pub fn new(level: StatsLevel) -> Self {
        Self {
            level: AtomicU8::new(level as u8),
            shards: (0..=OWNED).map(|_| OnceLock::new()).collect(),
            baseline: Mutex::new(None),
        }
    }

    /// Returns the current level.
    #[inline]
    pub fn level(&self) -> StatsLevel {
        StatsLevel::LEVELS[usize::from(self.level.load(Relaxed))]
    }

    /// Sets the level from now on.
    pub fn set_level(&self, level: StatsLevel) {
        self.level.store(level as u8, Relaxed);
    }

    /// Returns true if tickers are collected.
    #[inline]
    pub fn enabled(&self) -> bool {
        self.level.load(Relaxed) > StatsLevel::DisableAll as u8
    }

    /// Returns true if times are collected; otherwise callers skip reading the clock.
    #[inline]
    pub fn timers_enabled(&self) -> bool {
        self.level.load(Relaxed) > StatsLevel::ExceptTimers as u8
    }

    /// Returns the current time if times are collected; otherwise the clock is not read.
    #[doc(hidden)]
    #[inline]
    pub fn start_timer(&self, env: &Env) -> Option<Duration> {
        self.timers_enabled().then(|| env.now())
    }

    /// Adds the time since `began`, if set, to histograms. Returns it in whole microseconds, or 0.
    #[doc(hidden)]
    #[inline]
    pub fn measure_since(&self, env: &Env, kinds: &[HistogramKind], began: Option<Duration>) -> u64 {
        let Some(began) = began else { return 0 };
        let micros = micros(env.now().saturating_sub(began));
        let recorder = self.recorder();
        kinds.iter().for_each(|kind| recorder.measure(*kind, micros));
        micros
    }

    /// Returns true if the costly times, of compression and decompression, are collected.
    #[inline]
    pub fn detailed_timers_enabled(&self) -> bool {
        self.level.load(Relaxed) > StatsLevel::ExceptDetailedTimers as u8
    }

    /// Adds `count` to a ticker.
    #[inline]
    pub fn record(&self, ticker: Ticker, count: u64) {
        if self.enabled() {
            self.shard().record(ticker, count);
        }
    }

    /// Adds one to a ticker.
    #[inline]
    pub fn tick(&self, ticker: Ticker) {
        self.record(ticker, 1);
    }

    /// Adds a sample to a histogram of sizes, counts or times; for times check
    /// [`Statistics::timers_enabled`] first.
    #[inline]
    pub fn measure(&self, kind: HistogramKind, value: u64) {
        if self.level.load(Relaxed) > StatsLevel::ExceptHistogramOrTimers as u8 {
            self.shard().measure(kind, value);
        }
    }

    /// Returns the calling thread's counters, for callers that raise several in a row.
    #[inline]
    pub fn recorder(&self) -> Recorder<'_> {
        let level = self.level.load(Relaxed);
        Recorder {
            shard: (level > StatsLevel::DisableAll as u8).then(|| self.shard()),
            level,
            _here: std::marker::PhantomData,
        }
    }

    #[inline]
    fn shard(&self) -> &Shard {
        let slot = shard::slot();
        self.shards[slot].get_or_init(|| Box::new(Shard::new(slot == OWNED)))
    }

    /// Returns the sum of a ticker over all threads since the last reset.
    pub fn ticker(&self, ticker: Ticker) -> u64 {
        let baseline = self.baseline.lock();
        let taken = baseline.as_ref().map_or(0, |b| b.tickers[ticker as usize]);
        self.total(ticker).wrapping_sub(taken)
    }

    fn total(&self, ticker: Ticker) -> u64 {
        self.shards.iter().filter_map(OnceLock::get).fold(0, |sum, s| sum.wrapping_add(s.ticker(ticker)))
    }

    /// Returns the distribution of a histogram over all threads since the last reset.
    ///
    /// After a reset the smallest and largest sample are bounds from the buckets that have grown
    /// since, not exact values.
    pub fn histogram(&self, kind: HistogramKind) -> Histogram {
        let all = self.merged(kind);
        match self.baseline.lock().as_ref() {
            None => all,
            Some(baseline) => all.since(&baseline.histograms[kind as usize]),
        }
    }

    fn merged(&self, kind: HistogramKind) -> Histogram {
        let mut all = Histogram::new();
        for shard in self.shards.iter().filter_map(OnceLock::get) {
            shard.merge_into(kind, &mut all);
        }
        all
    }

    /// Restarts all counts from 0.
    pub fn reset(&self) {
        let taken = Baseline {
            tickers: Ticker::all().map(|t| self.total(t)).collect(),
            histograms: HistogramKind::all().map(|k| self.merged(k)).collect(),
        };
        *self.baseline.lock() = Some(Box::new(taken));
    }
}

/// RocksDB's text: `name COUNT : n` for each ticker, then one line of percentiles for each
/// histogram.
impl std::fmt::Display for Statistics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = String::with_capacity(20_000);
        for ticker in Ticker::all() {
            let _ = writeln!(text, "{} COUNT : {}", ticker.name(), self.ticker(ticker));
        }
        for kind in HistogramKind::all() {
            let _ = writeln!(text, "{} {}", kind.name(), self.histogram(kind).summary());
        }
        f.write_str(&text)
    }
}

/// The calling thread's counters; see [`Statistics::recorder`].
///
/// Invariant: it stays on its thread, which writes without atomic read-modify-writes; it is
/// therefore not `Send`.
#[derive(Clone, Copy)]
pub struct Recorder<'a> {
    shard: Option<&'a Shard>,
    level: u8,
    /// Makes the type not `Send`, because the slot belongs to the thread.
    _here: std::marker::PhantomData<*const ()>,
}

impl Recorder<'_> {
    /// Adds `count` to a ticker.
    #[inline]
    pub fn record(&self, ticker: Ticker, count: u64) {
        if let Some(shard) = self.shard {
            shard.record(ticker, count);
        }
    }

    /// Adds one to a ticker.
    #[inline]
    pub fn tick(&self, ticker: Ticker) {
        self.record(ticker, 1);
    }

    /// Adds a sample to a histogram.
    #[inline]
    pub fn measure(&self, kind: HistogramKind, value: u64) {
        if let Some(shard) = self.shard.filter(|_| self.level > StatsLevel::ExceptHistogramOrTimers as u8) {
            shard.measure(kind, value);
        }
    }
}
