//! Distributions in RocksDB's buckets, so that percentiles agree with RocksDB's for the same
//! samples.
//!
//! In: samples. Out: percentiles, mean, deviation, and the text `db_bench -histogram` prints.
//! Bucket limits grow by half, rounded down to two significant digits; a sample falls in the first
//! bucket whose limit is not below it; percentiles interpolate inside the bucket and are clamped to
//! the samples seen. [`Histogram`] is a plain value owned by one thread; the shared form is in
//! `shard`.

use std::fmt::Write as _;

/// Number of buckets.
pub(crate) const BUCKETS: usize = 109;

/// Upper limits of the buckets.
static LIMITS: [u64; BUCKETS] = limits();

/// Computes the limits: 1, 2, then `2 * 1.5^n`, each rounded down to two or three significant
/// digits.
const fn limits() -> [u64; BUCKETS] {
    let mut limits = [0; BUCKETS];
    limits[0] = 1;
    limits[1] = 2;
    let mut exact = 2.0f64;
    let mut i = 2;
    while i < BUCKETS {
        exact *= 1.5;
        let mut rounded = exact as u64;
        let mut unit = 1;
        while rounded / 10 > 10 {
            rounded /= 10;
            unit *= 10;
        }
        limits[i] = rounded * unit;
        i += 1;
    }
    // Invariant: the table ends where one more step would leave u64.
    assert!(exact * 1.5 > u64::MAX as f64);
    limits
}

/// Returns the bucket that `value` falls in.
#[inline]
pub(crate) fn bucket_of(value: u64) -> usize {
    if value >= LIMITS[BUCKETS - 1] { BUCKETS - 1 } else { LIMITS.partition_point(|limit| *limit < value) }
}

/// A distribution of samples.
#[derive(Clone, Debug)]
pub struct Histogram {
    pub(crate) buckets: [u64; BUCKETS],
    pub(crate) count: u64,
    pub(crate) sum: u64,
    /// A float, because RocksDB's integer wraps for samples beyond 2^32.
    pub(crate) sum_squares: f64,
    pub(crate) min: u64,
    pub(crate) max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: [0; BUCKETS], count: 0, sum: 0, sum_squares: 0.0, min: u64::MAX, max: 0 }
    }
}

impl Histogram {
    /// An empty distribution.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one sample.
    pub fn add(&mut self, value: u64) {
        self.buckets[bucket_of(value)] += 1;
        self.count += 1;
        self.sum = self.sum.wrapping_add(value);
        self.sum_squares += value as f64 * value as f64;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Adds all samples of `other`.
    pub fn merge(&mut self, other: &Histogram) {
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum = self.sum.wrapping_add(other.sum);
        self.sum_squares += other.sum_squares;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Returns the samples added since `earlier`, an older copy of this distribution.
    pub(crate) fn since(&self, earlier: &Histogram) -> Histogram {
        let mut new = Histogram::new();
        for (i, bucket) in new.buckets.iter_mut().enumerate() {
            *bucket = self.buckets[i].saturating_sub(earlier.buckets[i]);
            if *bucket > 0 {
                new.min = new.min.min(if i == 0 { 0 } else { LIMITS[i - 1] + 1 }).max(self.min);
                new.max = LIMITS[i].min(self.max);
            }
        }
        new.count = self.count - earlier.count.min(self.count);
        new.sum = self.sum.wrapping_sub(earlier.sum);
        new.sum_squares = (self.sum_squares - earlier.sum_squares).max(0.0);
        new
    }

    /// Returns the number of samples.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the sum of the samples.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// Returns the smallest sample; 0 without samples.
    pub fn min(&self) -> u64 {
        if self.count == 0 { 0 } else { self.min }
    }

    /// Returns the largest sample; 0 without samples.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Returns the mean; 0 without samples.
    pub fn average(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// Returns the standard deviation; 0 without samples.
    pub fn standard_deviation(&self) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        let (n, sum) = (self.count as f64, self.sum as f64);
        ((self.sum_squares * n - sum * sum) / (n * n)).max(0.0).sqrt()
    }

    /// Returns the value that `percent` percent of the samples do not exceed, interpolated inside
    /// its bucket.
    pub fn percentile(&self, percent: f64) -> f64 {
        let threshold = self.count as f64 * (percent / 100.0);
        let mut before = 0u64;
        for (i, in_bucket) in self.buckets.iter().enumerate() {
            let upto = before + in_bucket;
            if upto as f64 >= threshold {
                let left = if i == 0 { 0 } else { LIMITS[i - 1] } as f64;
                let right = LIMITS[i] as f64;
                let share =
                    if *in_bucket == 0 { 0.0 } else { (threshold - before as f64) / *in_bucket as f64 };
                let value = left + (right - left) * share;
                // Compat: without samples RocksDB's clamp ends at its maximum, 0.
                return value.max(self.min() as f64).min(self.max as f64);
            }
            before = upto;
        }
        self.max as f64
    }

    /// Returns the line `Statistics` prints: median, P95, P99, maximum, count and sum.
    pub(crate) fn summary(&self) -> String {
        format!(
            "P50 : {:.6} P95 : {:.6} P99 : {:.6} P100 : {:.6} COUNT : {} SUM : {}",
            self.percentile(50.0),
            self.percentile(95.0),
            self.percentile(99.0),
            self.max as f64,
            self.count,
            self.sum
        )
    }
}

/// RocksDB's multi-line text: totals, percentiles and one line a bucket with marks of 5 % each.
impl std::fmt::Display for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = String::new();
        let _ = writeln!(
            text,
            "Count: {} Average: {:.4}  StdDev: {:.2}",
            self.count,
            self.average(),
            self.standard_deviation()
        );
        let _ =
            writeln!(text, "Min: {}  Median: {:.4}  Max: {}", self.min(), self.percentile(50.0), self.max);
        let _ = writeln!(
            text,
            "Percentiles: P50: {:.2} P75: {:.2} P99: {:.2} P99.9: {:.2} P99.99: {:.2}",
            self.percentile(50.0),
            self.percentile(75.0),
            self.percentile(99.0),
            self.percentile(99.9),
            self.percentile(99.99)
        );
        text.push_str("------------------------------------------------------\n");
        let percent = 100.0 / self.count as f64;
        let mut upto = 0;
        for (i, in_bucket) in self.buckets.iter().enumerate().filter(|(_, n)| **n > 0) {
            upto += in_bucket;
            let (bracket, left) = if i == 0 { ('[', 0) } else { ('(', LIMITS[i - 1]) };
            let _ = write!(
                text,
                "{bracket} {left:>7}, {:>7} ] {in_bucket:>8} {:>7.3}% {:>7.3}% ",
                LIMITS[i],
                percent * *in_bucket as f64,
                percent * upto as f64
            );
            let marks = (percent * *in_bucket as f64 / 5.0 + 0.5) as usize;
            text.push_str(&"#".repeat(marks));
            text.push('\n');
        }
        f.write_str(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_rocksdb_s() {
        assert_eq!(&LIMITS[..14], &[1, 2, 3, 4, 6, 10, 15, 22, 34, 51, 76, 110, 170, 250]);
        assert!(LIMITS.windows(2).all(|w| w[0] < w[1]));
        assert_eq!(bucket_of(0), 0);
        assert_eq!(bucket_of(1), 0);
        assert_eq!(bucket_of(5), 4);
        assert_eq!(bucket_of(6), 4);
        assert_eq!(bucket_of(7), 5);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn an_empty_histogram_prints_zeros() {
        let empty = Histogram::new();
        assert_eq!(
            empty.summary(),
            "P50 : 0.000000 P95 : 0.000000 P99 : 0.000000 P100 : 0.000000 COUNT : 0 SUM : 0"
        );
    }

    #[test]
    fn percentiles_interpolate_and_clamp() {
        let mut h = Histogram::new();
        for value in 1..=100 {
            h.add(value);
        }
        assert_eq!(h.sum(), 5050);
        // 50 samples reach into the bucket (34, 51] at 16 of 17 of its width.
        assert!((h.percentile(50.0) - 50.0).abs() < 1e-9, "{}", h.percentile(50.0));
        assert_eq!(h.percentile(100.0), 100.0);
        let mut one = Histogram::new();
        one.add(1000);
        assert_eq!(one.percentile(1.0), 1000.0);
    }

    #[test]
    fn merging_is_adding_all_samples() {
        let (mut a, mut b, mut both) = (Histogram::new(), Histogram::new(), Histogram::new());
        for i in 0..1000u64 {
            let value = i * i % 7919;
            if i % 3 == 0 {
                a.add(value)
            } else {
                b.add(value)
            }
            both.add(value);
        }
        a.merge(&b);
        assert_eq!(a.to_string(), both.to_string());
    }
}
