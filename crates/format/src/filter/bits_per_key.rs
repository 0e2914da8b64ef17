//! How large a filter is for what it holds, and how often it is wrong then.

use super::fast_bloom;

/// Bits a key, rounded to thousandths as RocksDB does: under half a bit is none, else 1 to 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BitsPerKey {
    milli: u32,
}

impl BitsPerKey {
    /// The nearest setting that filters are built with.
    #[must_use]
    pub fn new(bits: f64) -> BitsPerKey {
        let sane = if bits < 0.5 {
            0.0
        } else if bits < 1.0 {
            1.0
        } else if bits < 100.0 {
            bits
        } else {
            // Not a number, too: so does RocksDB.
            100.0
        };
        BitsPerKey { milli: (sane * 1000.0 + 0.500_001) as u32 }
    }

    /// Thousandths of a bit a key.
    #[must_use]
    pub fn milli(self) -> u32 {
        self.milli
    }

    /// Whole bits a key, as legacy filters are built with.
    #[must_use]
    pub fn whole(self) -> u32 {
        (self.milli + 500) / 1000
    }

    /// One false positive in how many keys a Bloom filter of this size gives; Ribbon filters aim at
    /// the same.
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

/// The false positive rate of a Bloom filter with all probes in one line of 512 bits: the mean over
/// lines that are fuller and emptier than average by a standard deviation.
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
