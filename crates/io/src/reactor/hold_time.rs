//! Hold times of a reactor: a histogram of the time from a task's start to its next await.
//!
//! Written by the reactor's thread alone, with plain loads and stores; read by any thread.

use crate::sync::counting::{AtomicU64, Ordering};
use std::fmt;
use std::time::Duration;

/// Buckets for each power of two, which bounds the error of a value to 1/8 of it.
const STEPS: usize = 8;
const BUCKETS: usize = 61 * STEPS + STEPS;

pub(crate) struct HoldTimes {
    buckets: Box<[AtomicU64; BUCKETS]>,
    total_ns: AtomicU64,
    max_ns: AtomicU64,
}

/// A snapshot of a reactor's hold times.
#[derive(Clone)]
pub struct HoldTimeHistogram {
    buckets: Vec<u64>,
    count: u64,
    total_ns: u64,
    max_ns: u64,
}

fn bucket_of(ns: u64) -> usize {
    if ns < STEPS as u64 {
        return ns as usize;
    }
    let power = ns.ilog2();
    ((power - 2) as usize) * STEPS + ((ns >> (power - 3)) as usize - STEPS)
}

/// Returns the largest value of a bucket.
fn end_of(bucket: usize) -> u64 {
    if bucket < STEPS {
        return bucket as u64;
    }
    let shift = bucket / STEPS - 1;
    let next = (STEPS + bucket % STEPS) as u128 + 1;
    u64::try_from((next << shift) - 1).unwrap_or(u64::MAX)
}

impl HoldTimes {
    pub(crate) fn new() -> Self {
        Self {
            buckets: Box::new([const { AtomicU64::new(0) }; BUCKETS]),
            total_ns: AtomicU64::new(0),
            max_ns: AtomicU64::new(0),
        }
    }

    pub(crate) fn record(&self, held: Duration) {
        let ns = u64::try_from(held.as_nanos()).unwrap_or(u64::MAX);
        let add = |counter: &AtomicU64, n: u64| {
            counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
        };
        add(&self.buckets[bucket_of(ns)], 1);
        add(&self.total_ns, ns);
        if ns > self.max_ns.load(Ordering::Relaxed) {
            self.max_ns.store(ns, Ordering::Relaxed);
        }
    }

    pub(crate) fn snapshot(&self) -> HoldTimeHistogram {
        let buckets: Vec<_> = self.buckets.iter().map(|b| b.load(Ordering::Relaxed)).collect();
        HoldTimeHistogram {
            count: buckets.iter().sum(),
            buckets,
            total_ns: self.total_ns.load(Ordering::Relaxed),
            max_ns: self.max_ns.load(Ordering::Relaxed),
        }
    }
}

impl fmt::Debug for HoldTimeHistogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HoldTimeHistogram")
            .field("count", &self.count)
            .field("mean_ns", &self.mean_ns())
            .field("p50_ns", &self.percentile_ns(50.0))
            .field("p99_ns", &self.percentile_ns(99.0))
            .field("max_ns", &self.max_ns)
            .finish()
    }
}

impl HoldTimeHistogram {
    /// Returns the number of holds: runs of a task from one await to the next.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the mean hold in nanoseconds.
    pub fn mean_ns(&self) -> u64 {
        self.total_ns.checked_div(self.count).unwrap_or(0)
    }

    /// Returns the longest hold in nanoseconds.
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// Returns the hold in nanoseconds that `percent` of all holds do not exceed; within an eighth.
    pub fn percentile_ns(&self, percent: f64) -> u64 {
        let rank = (self.count as f64 * percent / 100.0).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return end_of(bucket).min(self.max_ns);
            }
        }
        self.max_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_lies_in_its_bucket_within_an_eighth() {
        for ns in (0..5000).chain([1 << 20, (1 << 40) + 12345, u64::MAX]) {
            let bucket = bucket_of(ns);
            assert!(bucket < BUCKETS, "{ns}");
            assert!(
                end_of(bucket) >= ns && end_of(bucket) - ns <= ns / 8,
                "{ns} in a bucket up to {}",
                end_of(bucket)
            );
            assert!(bucket == 0 || end_of(bucket - 1) < ns, "{ns}");
        }
    }

    #[test]
    fn percentiles_of_known_values() {
        let times = HoldTimes::new();
        (1..=100).for_each(|us| times.record(Duration::from_micros(us)));
        let h = times.snapshot();
        assert_eq!((h.count(), h.mean_ns(), h.max_ns()), (100, 50_500, 100_000));
        assert!((50_000..=56_250).contains(&h.percentile_ns(50.0)), "{}", h.percentile_ns(50.0));
        assert_eq!(h.percentile_ns(100.0), 100_000);
    }
}
