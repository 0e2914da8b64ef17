//! A Bloom filter that is read while it is filled.
//!
//! Any number of threads add 64-bit hashes and test if a hash may have been added. The filter lives
//! in memory only, which leaves its layout free: a hash selects one cache line and six bits in it;
//! adding and testing cost one cache miss each.
//!
//! Invariant: an added hash is found by every thread that knows, by other means, that it was added.

use crate::sync::{AtomicU64, Ordering};

/// Number of bits that a hash sets.
const PROBES: u32 = 6;
const WORDS: usize = 8;

/// One cache line of bits.
#[repr(align(64))]
struct Line([AtomicU64; WORDS]);

/// A Bloom filter of fixed size.
pub struct Bloom {
    lines: Box<[Line]>,
}

impl Bloom {
    /// Returns an empty filter of about `bytes`; at least one cache line.
    pub fn new(bytes: usize) -> Self {
        let lines = bytes.div_ceil(size_of::<Line>()).clamp(1, u32::MAX as usize);
        let empty = || Line(std::array::from_fn(|_| AtomicU64::new(0)));
        Self { lines: std::iter::repeat_with(empty).take(lines).collect() }
    }

    /// Adds a hash.
    #[inline]
    pub fn add(&self, hash: u64) {
        for (word, bit) in self.probes(hash) {
            // Ordering: Relaxed; entries found through the filter are published by other means.
            // Tested first, because a full line then stays shared between the processors' caches.
            if word.load(Ordering::Relaxed) & bit == 0 {
                word.fetch_or(bit, Ordering::Relaxed);
            }
        }
    }

    /// Returns true if `hash` may have been added; false means that it was not.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        // Ordering: Relaxed, as in `add`.
        self.probes(hash).all(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }

    /// Returns the bytes of memory in use.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.lines)
    }

    /// Returns the bits of a hash: its upper half selects the line, its lower half the bits, nine
    /// at a time.
    #[inline]
    fn probes(&self, hash: u64) -> impl Iterator<Item = (&AtomicU64, u64)> {
        let line = &self.lines[(((hash >> 32) * self.lines.len() as u64) >> 32) as usize].0;
        let mut bits = hash as u32;
        (0..PROBES).map(move |_| {
            let at = bits >> 23;
            bits = bits.wrapping_mul(0x9e37_79b9);
            (&line[(at / 64) as usize], 1u64 << (at % 64))
        })
    }
}

impl std::fmt::Debug for Bloom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bloom").field("bytes", &self.memory_bytes()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Returns a number spread like a hash.
    fn hash(n: u64) -> u64 {
        let n = (n ^ (n >> 31)).wrapping_mul(0x7fb5_d329_728e_a185);
        (n ^ (n >> 27)).wrapping_mul(0x81da_def4_bc2d_d44d)
    }

    #[test]
    #[cfg_attr(miri, ignore = "statistics")]
    fn what_was_added_is_found_and_little_else() {
        const ADDED: u64 = 10_000;
        let bloom = Bloom::new(ADDED as usize * 10 / 8);
        (1..=ADDED).for_each(|n| bloom.add(hash(n)));
        assert!((1..=ADDED).all(|n| bloom.may_contain(hash(n))));
        let wrong = (ADDED + 1..=10 * ADDED).filter(|n| bloom.may_contain(hash(*n))).count();
        assert!(
            wrong < 2 * 9 * ADDED as usize / 100,
            "{wrong} of {} are found and were not added",
            9 * ADDED
        );
    }

    #[test]
    fn the_smallest_filter_works() {
        let bloom = Bloom::new(0);
        assert_eq!(bloom.memory_bytes(), 64);
        assert!(!bloom.may_contain(hash(1)));
        [0, 1, u64::MAX].iter().for_each(|n| bloom.add(*n));
        assert!([0, 1, u64::MAX].iter().all(|n| bloom.may_contain(*n)));
    }

    #[test]
    fn stress_threads_that_add_find_what_each_other_added() {
        let bloom = Bloom::new(1 << 12);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let bloom = &bloom;
                scope.spawn(move || (0..500).for_each(|n| bloom.add(hash((thread << 32) | n))));
            }
        });
        for thread in 0..4u64 {
            assert!((0..500).all(|n| bloom.may_contain(hash((thread << 32) | n))));
        }
    }
}
