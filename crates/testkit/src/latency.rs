//! Latencies: a histogram fine enough for p99.9 with an exact maximum, and the pace of a load whose
//! latencies count from the scheduled time.

use std::time::{Duration, Instant};

/// Schedule of one worker's operations.
#[derive(Clone, Debug)]
pub struct Pace {
    due: Instant,
    step: Duration,
}

impl Pace {
    /// Schedules the first operation now, and each further one `step` after the one before.
    #[must_use]
    pub fn new(step: Duration) -> Self {
        Self { due: Instant::now(), step }
    }

    /// Returns the time at which the next operation is due.
    #[must_use]
    pub fn due(&self) -> Instant {
        self.due
    }

    /// Waits until the next operation is due. Returns the start of its latency: the due time for a
    /// worker that is late, the wake-up time for one that slept.
    pub fn wait(&mut self) -> Instant {
        let now = Instant::now();
        // A sleep overshoots by about 50 us; for shorter waits the schedule is kept by bursts.
        let from = if self.due > now + Duration::from_micros(60) {
            std::thread::sleep(self.due - now);
            Instant::now()
        } else {
            self.due.min(now)
        };
        self.due += self.step;
        from
    }
}

/// Counts of latencies, within 1.6 %: 64 buckets for each power of two of nanoseconds.
#[derive(Clone, Debug)]
pub struct Latencies {
    counts: Vec<u64>,
    total: u64,
    worst_ns: u64,
}

const SUB_BITS: u32 = 6;
const SUBS: u64 = 1 << SUB_BITS;

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

impl Latencies {
    /// Creates an empty histogram.
    #[must_use]
    pub fn new() -> Self {
        Latencies { counts: vec![0; ((64 - SUB_BITS as usize) + 1) << SUB_BITS], total: 0, worst_ns: 0 }
    }

    /// Counts an operation that took `ns` nanoseconds.
    pub fn add(&mut self, ns: u64) {
        self.counts[Self::bucket(ns)] += 1;
        self.total += 1;
        self.worst_ns = self.worst_ns.max(ns);
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Latencies) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(own, more)| *own += more);
        self.total += other.total;
        self.worst_ns = self.worst_ns.max(other.worst_ns);
    }

    /// Returns the number of operations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.total
    }

    fn bucket(ns: u64) -> usize {
        if ns < SUBS {
            return ns as usize;
        }
        let shift = ns.ilog2() - SUB_BITS;
        (((u64::from(shift) + 1) << SUB_BITS) + ((ns >> shift) - SUBS)) as usize
    }

    fn upper_ns(bucket: usize) -> u64 {
        let (octave, sub) = ((bucket as u64) >> SUB_BITS, bucket as u64 & (SUBS - 1));
        if octave == 0 { sub } else { ((SUBS + sub + 1) << (octave - 1)) - 1 }
    }

    /// Returns the latency that `percent` of all operations do not exceed, in microseconds.
    #[must_use]
    pub fn percentile_us(&self, percent: f64) -> f64 {
        let wanted = (self.total as f64 * percent / 100.0).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return Self::upper_ns(bucket).min(self.worst_ns) as f64 / 1000.0;
            }
        }
        self.worst_us()
    }

    /// Returns the longest latency, in microseconds.
    #[must_use]
    pub fn worst_us(&self) -> f64 {
        self.worst_ns as f64 / 1000.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_close_and_the_worst_is_exact() {
        let mut latencies = Latencies::new();
        (1..=100_000_u64).for_each(|n| latencies.add(n * 100));
        for percent in [1.0, 50.0, 99.0, 99.9] {
            let (found, exact) = (latencies.percentile_us(percent), percent * 100.0);
            assert!((found / exact - 1.0).abs() < 0.02, "{percent}: {found}, not {exact}");
        }
        assert_eq!(latencies.worst_us(), 10_000.0);
        for ns in [0, 1, 63, 64, 65, 127, 128, 1_000_000, u64::MAX / 2] {
            let bucket = Latencies::bucket(ns);
            assert!(
                Latencies::upper_ns(bucket) >= ns && (bucket == 0 || Latencies::upper_ns(bucket - 1) < ns)
            );
        }
    }
}
