//! Size of a filter in bits per key, and the false positive rate that follows from it.

use super::fast_bloom;

/// Bits per key, rounded to thousandths like RocksDB: below 0.5 is 0, else 1 to 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BitsPerKey {
    milli: u32,
}

impl BitsPerKey {
    /// Returns the setting nearest to `bits`.
    #[must_use]
    pub fn new(bits: f64) -> BitsPerKey {
        let sane = if bits < 0.5 {
            0.0
        } else if bits < 1.0 {
            1.0
        } else if bits < 100.0 {
            bits
        } else {
            // Compat: RocksDB maps NaN to 100 too.
            100.0
        };
        BitsPerKey { milli: (sane * 1000.0 + 0.500_001) as u32 }
    }

    /// Returns the thousandths of a bit per key.
    #[must_use]
    pub fn milli(self) -> u32 {
        self.milli
    }

    /// Returns whole bits per key, used by legacy filters.
    #[must_use]
    pub fn whole(self) -> u32 {
        (self.milli + 500) / 1000
    }

    /// Returns the reciprocal of the false positive rate of a Bloom filter of this size; Ribbon
    /// filters aim at the same rate.
    pub(super) fn one_in_false_positives(self) -> f64 {
        1.0 / cache_local_rate(f64::from(self.milli) / 1000.0, fast_bloom::probes_for(self.milli))
    }
}

impl std::fmt::Display for BitsPerKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (whole, milli) = (self.milli / 1000, self.milli % 1000);
        if milli == 0 {
            return write!(f, "{whole}");
        }
        let digits = format!("{milli:03}");
        write!(f, "{whole}.{}", digits.trim_end_matches('0'))
    }
}

/// Returns the false positive rate of a Bloom filter whose probes all fall into one line of 512
/// bits: the mean over lines that are fuller and emptier than average by a standard deviation.
fn cache_local_rate(bits_per_key: f64, probes: u8) -> f64 {
    const LINE_BITS: f64 = 512.0;
    if bits_per_key <= 0.0 {
        return 1.0;
    }
    let rate = |keys: f64| (1.0 - (-f64::from(probes) / (LINE_BITS / keys)).exp()).powi(i32::from(probes));
    let keys = LINE_BITS / bits_per_key;
    let deviation = keys.sqrt();
    (rate(keys + deviation) + rate(keys - deviation)) / 2.0
}
