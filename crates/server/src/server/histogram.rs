//! Histograms of durations that any thread adds to.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Bits of a duration that are kept behind its highest one: buckets are 1/16 wide.
const BITS: u32 = 4;
/// Buckets for each power of two.
const STEPS: usize = 1 << BITS;
/// Durations of more bits, in nanoseconds, count as the longest one: 18 minutes.
const BITS_AT_MOST: u32 = 40;
const BUCKETS: usize = (BITS_AT_MOST - BITS + 1) as usize * STEPS;

/// A histogram; about 4.7 KiB.
#[derive(Debug)]
pub(crate) struct Histogram([AtomicU64; BUCKETS]);

impl Default for Histogram {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; BUCKETS])
    }
}

fn bucket(nanos: u64) -> usize {
    let nanos = nanos.min((1 << BITS_AT_MOST) - 1);
    match nanos.checked_ilog2() {
        Some(highest) if highest >= BITS => {
            let shift = highest - BITS;
            (shift as usize + 1) * STEPS + (nanos >> shift) as usize % STEPS
        }
        _ => nanos as usize,
    }
}

/// The longest duration of a bucket, in nanoseconds.
fn longest(bucket: usize) -> u64 {
    match (bucket / STEPS).checked_sub(1) {
        None => bucket as u64,
        Some(shift) => (((STEPS + bucket % STEPS + 1) as u64) << shift) - 1,
    }
}

impl Histogram {
    pub(crate) fn add(&self, took: Duration, count: u64) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.0[bucket(nanos)].fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn reset(&self) {
        self.0.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    }

    /// Longest duration of each bucket with one, in nanoseconds, and their number.
    fn counts(&self) -> Vec<(u64, u64)> {
        let counts =
            self.0.iter().enumerate().map(|(at, count)| (longest(at), count.load(Ordering::Relaxed)));
        counts.filter(|(_, count)| *count > 0).collect()
    }

    /// The durations in nanoseconds below which these percentages are; none if there is nothing in
    /// it.
    pub(crate) fn percentiles(&self, of: &[f64]) -> Option<Vec<u64>> {
        let counts = self.counts();
        let total: u64 = counts.iter().map(|(_, count)| count).sum();
        let (last, _) = *counts.last()?;
        let below = |percent: f64| {
            let wanted = ((percent / 100.0 * total as f64).ceil() as u64).max(1);
            let mut sum = 0;
            let mut found = counts.iter().filter(|(_, count)| {
                sum += count;
                sum >= wanted
            });
            found.next().map_or(last, |(nanos, _)| *nanos)
        };
        Some(of.iter().map(|percent| below(*percent)).collect())
    }

    /// Numbers of durations up to powers of two of nanoseconds from 1024 on, as pairs of
    /// microseconds and a number; only those where the number grows.
    pub(crate) fn cumulative(&self) -> Vec<(u64, u64)> {
        let counts = self.counts();
        let (mut sum, mut at, mut found) = (0, 0, Vec::new());
        for power in 10..=BITS_AT_MOST {
            let before = sum;
            while let Some((nanos, count)) = counts.get(at)
                && *nanos < 1 << power
            {
                sum += count;
                at += 1;
            }
            if sum > before {
                found.push(((1 << power) / 1000, sum));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_a_sixteenth_wide() {
        let mut before = None;
        for nanos in (0..4096).chain([1 << 20, (1 << 20) + 1, u64::MAX >> 1, u64::MAX]) {
            let at = bucket(nanos);
            assert!(at < BUCKETS && before.is_none_or(|before| at >= before), "{nanos}");
            before = Some(at);
            if nanos < 1 << BITS_AT_MOST {
                assert!(
                    longest(at) >= nanos && longest(at) - nanos <= nanos / 16,
                    "{nanos}: {}",
                    longest(at)
                );
            }
        }
        assert_eq!(longest(BUCKETS - 1), (1 << BITS_AT_MOST) - 1);
    }

    #[test]
    fn percentiles_and_sums_are_of_what_was_added() {
        let histogram = Histogram::default();
        assert_eq!((histogram.percentiles(&[50.0]), histogram.cumulative()), (None, Vec::new()));
        (1..=100).for_each(|micros| histogram.add(Duration::from_micros(micros), 1));
        let found = histogram.percentiles(&[0.0, 50.0, 100.0]).unwrap();
        for (found, micros) in found.iter().zip([1, 50, 100]) {
            assert!((micros * 1000..micros * 1070).contains(found), "{found} for {micros}");
        }
        let cumulative = histogram.cumulative();
        assert_eq!((cumulative[0], *cumulative.last().unwrap()), ((1, 1), (131, 100)));
        histogram.reset();
        assert_eq!(histogram.cumulative(), []);
    }
}
