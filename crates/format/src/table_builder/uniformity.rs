//! Uniformity test: decides if an index block's keys are spread evenly enough for interpolation
//! search.
//!
//! In: the keys at restart points, as they are added. Out: true or false when the block ends.
//! Compat: RocksDB's measure (`BlockBuilder::ScanForUniformity`): each user key is reduced to the
//! eight bytes behind the common prefix of the first and the last, as a number; the measure is the
//! coefficient of variation of the distances between neighbours, summed in RocksDB's order, because
//! rounding may decide.

/// Minimum number of restart points; fewer are never uniform.
const FEWEST_KEYS: usize = 3;

/// Keys at the restart points of the block being built.
#[derive(Debug)]
pub(super) struct Uniformity {
    /// Maximum coefficient of variation of a uniform block; negative for never.
    threshold: f64,
    keys: Vec<u8>,
    ends: Vec<usize>,
}

impl Uniformity {
    pub(super) fn new(threshold: f64) -> Uniformity {
        Uniformity { threshold, keys: Vec::new(), ends: Vec::new() }
    }

    /// Adds a user key at a restart point.
    pub(super) fn note(&mut self, user_key: &[u8]) {
        if self.threshold >= 0.0 {
            self.keys.extend_from_slice(user_key);
            self.ends.push(self.keys.len());
        }
    }

    /// Returns true if the block is uniform, and starts the next block.
    pub(super) fn end_block(&mut self) -> bool {
        let keys = std::mem::take(&mut self.keys);
        let ends = std::mem::take(&mut self.ends);
        if ends.len() < FEWEST_KEYS {
            return false;
        }
        let key = |i: usize| &keys[if i == 0 { 0 } else { ends[i - 1] }..ends[i]];
        let (first, last) = (key(0), key(ends.len() - 1));
        let shared = first.iter().zip(last).take_while(|(a, b)| a == b).count();
        let variation = variation((0..ends.len()).map(|i| number(key(i), shared)));
        variation.is_some_and(|variation| variation < self.threshold)
    }
}

/// Returns the eight bytes from `offset` on as a number, missing ones as zeros.
fn number(key: &[u8], offset: usize) -> u64 {
    let rest = &key[offset.min(key.len())..];
    let mut bytes = [0; 8];
    let count = rest.len().min(8);
    bytes[..count].copy_from_slice(&rest[..count]);
    u64::from_be_bytes(bytes)
}

/// Returns the coefficient of variation of the distances between neighbours; `None` if there are
/// too few numbers, or their sum of distances is not positive.
fn variation(numbers: impl Iterator<Item = u64>) -> Option<f64> {
    let (mut previous, mut count, mut mean, mut squares) = (None, 0u32, 0.0, 0.0);
    for number in numbers {
        if let Some(previous) = previous {
            let distance = number.wrapping_sub(previous) as f64;
            count += 1;
            let before = distance - mean;
            mean += before / f64::from(count);
            squares += before * (distance - mean);
        }
        previous = Some(number);
    }
    (count >= 2 && mean > 0.0).then(|| (squares / f64::from(count)).sqrt() / mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uniform(threshold: f64, keys: &[&[u8]]) -> bool {
        let mut uniformity = Uniformity::new(threshold);
        keys.iter().for_each(|key| uniformity.note(key));
        uniformity.end_block()
    }

    #[test]
    fn equal_distances_are_uniform_and_others_by_the_threshold() {
        assert!(uniform(0.01, &[b"key1", b"key2", b"key3", b"key4"]));
        assert!(!uniform(0.0, &[b"key1", b"key2", b"key3"]), "below the threshold, not at it");
        // Distances 1, 1, 4: mean 2, variance 2.
        let uneven: [&[u8]; 4] = [b"a\x01", b"a\x02", b"a\x03", b"a\x07"];
        assert!(uniform(0.71, &uneven) && !uniform(0.70, &uneven));
        assert!(!uniform(-1.0, &[b"key1", b"key2", b"key3"]), "negative is never");
        assert!(!uniform(10.0, &[b"key1", b"key2"]), "too few");
        assert!(!uniform(10.0, &[b"key", b"key", b"key"]), "no distance at all");
    }

    #[test]
    fn bytes_behind_the_shared_prefix_count() {
        assert_eq!(number(b"abcdefghijk", 3), u64::from_be_bytes(*b"defghijk"));
        assert_eq!(number(b"abc", 1), u64::from_be_bytes(*b"bc\0\0\0\0\0\0"));
        assert_eq!(number(b"abc", 9), 0);
    }
}
