//! Per-thread shards of statistics, summed by readers.
//!
//! Invariant: shard `i < OWNED` has one writer at a time, the thread that holds slot `i`, which
//! counts with a plain load and store; only threads beyond that share one shard and pay for an
//! atomic addition. A slot is released when its thread ends, under a lock that orders the last
//! count of the old owner before the first of the next.
//! One atomic per counter would not do because a lookup raises about ten of them, and 64 threads on
//! one cache line cost more than the lookup.

use super::histogram::{BUCKETS, Histogram, bucket_of};
use super::names::{HistogramKind, Ticker};
use crate::sync::counting::Mutex;
use crate::sync::counting::{AtomicU64, Ordering::Relaxed};
use std::sync::OnceLock;

/// Number of slots that belong to one thread each.
pub(super) const OWNED: usize = 64;

/// Free slots, smallest last; filled at first use.
static FREE: Mutex<Option<Vec<usize>>> = Mutex::new(None);

/// A thread's slot; `OWNED` is the shared one.
struct Slot(usize);

impl Slot {
    fn take() -> Self {
        let mut free = FREE.lock();
        let free = free.get_or_insert_with(|| (0..OWNED).rev().collect());
        Self(free.pop().unwrap_or(OWNED))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.0 < OWNED
            && let Some(free) = FREE.lock().as_mut()
        {
            free.push(self.0);
        }
    }
}

thread_local! {
    static SLOT: Slot = Slot::take();
}

/// Returns the calling thread's slot; the shared one while the thread is being torn down.
#[inline]
pub(super) fn slot() -> usize {
    SLOT.try_with(|slot| slot.0).unwrap_or(OWNED)
}

/// The counts of one slot.
#[derive(Debug)]
pub(super) struct Shard {
    tickers: Box<[AtomicU64]>,
    /// Allocated at the first sample: most are never used, and each takes a kilobyte.
    histograms: Box<[OnceLock<Box<SharedHistogram>>]>,
    shared: bool,
}

impl Shard {
    pub(super) fn new(shared: bool) -> Self {
        Self {
            tickers: (0..Ticker::COUNT).map(|_| AtomicU64::new(0)).collect(),
            histograms: (0..HistogramKind::COUNT).map(|_| OnceLock::new()).collect(),
            shared,
        }
    }

    #[inline]
    fn bump(&self, counter: &AtomicU64, by: u64) {
        if self.shared {
            counter.fetch_add(by, Relaxed);
        } else {
            // Invariant: this thread is the only writer.
            counter.store(counter.load(Relaxed).wrapping_add(by), Relaxed);
        }
    }

    #[inline]
    pub(super) fn record(&self, ticker: Ticker, count: u64) {
        self.bump(&self.tickers[ticker as usize], count);
    }

    #[inline]
    pub(super) fn measure(&self, kind: HistogramKind, value: u64) {
        let histogram = self.histograms[kind as usize].get_or_init(Box::default);
        self.bump(&histogram.buckets[bucket_of(value)], 1);
        self.bump(&histogram.count, 1);
        self.bump(&histogram.sum, value);
        let squares = &histogram.sum_squares;
        if self.shared {
            let square = value as f64 * value as f64;
            let _ = squares.fetch_update(Relaxed, Relaxed, |b| Some((f64::from_bits(b) + square).to_bits()));
            histogram.min.fetch_min(value, Relaxed);
            histogram.max.fetch_max(value, Relaxed);
            return;
        }
        let sum = f64::from_bits(squares.load(Relaxed)) + value as f64 * value as f64;
        squares.store(sum.to_bits(), Relaxed);
        if value < histogram.min.load(Relaxed) {
            histogram.min.store(value, Relaxed);
        }
        if value > histogram.max.load(Relaxed) {
            histogram.max.store(value, Relaxed);
        }
    }

    pub(super) fn ticker(&self, ticker: Ticker) -> u64 {
        self.tickers[ticker as usize].load(Relaxed)
    }

    pub(super) fn merge_into(&self, kind: HistogramKind, into: &mut Histogram) {
        if let Some(histogram) = self.histograms[kind as usize].get() {
            into.merge(&histogram.load());
        }
    }
}

/// A [`Histogram`] of atomics. Readers may see a half-added sample, which statistics tolerate.
#[derive(Debug)]
struct SharedHistogram {
    buckets: [AtomicU64; BUCKETS],
    count: AtomicU64,
    sum: AtomicU64,
    /// Bits of an `f64`.
    sum_squares: AtomicU64,
    min: AtomicU64,
    max: AtomicU64,
}

impl Default for SharedHistogram {
    fn default() -> Self {
        Self {
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
            count: AtomicU64::new(0),
            sum: AtomicU64::new(0),
            sum_squares: AtomicU64::new(0),
            min: AtomicU64::new(u64::MAX),
            max: AtomicU64::new(0),
        }
    }
}

impl SharedHistogram {
    fn load(&self) -> Histogram {
        let mut out = Histogram::new();
        for (to, from) in out.buckets.iter_mut().zip(&self.buckets) {
            *to = from.load(Relaxed);
        }
        out.count = self.count.load(Relaxed);
        out.sum = self.sum.load(Relaxed);
        out.sum_squares = f64::from_bits(self.sum_squares.load(Relaxed));
        out.min = self.min.load(Relaxed);
        out.max = self.max.load(Relaxed);
        out
    }
}
