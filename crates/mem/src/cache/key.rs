//! The 128-bit key of an entry, and its hash.

/// The key of a cached value, unique among all users of one cache.
///
/// The two words may be regular numbers (a file's number and an offset); they are hashed here.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct CacheKey(pub u64, pub u64);

impl CacheKey {
    #[inline(always)]
    pub(super) fn words(self) -> [u64; 2] {
        [self.0, self.1]
    }
}

/// Two rounds of a folded 128-bit product: every bit of the key reaches the high bits, which select
/// the group of slots.
#[inline(always)]
pub(super) fn hash(key: [u64; 2]) -> u64 {
    let folded = fold(key[0] ^ 0xa076_1d64_78bd_642f, key[1] ^ 0xe703_7ed1_a0b4_28db);
    fold(folded ^ key[0].rotate_left(32) ^ key[1], 0x8ebc_6af0_9c88_c6e3)
}

#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product >> 64) as u64 ^ product as u64
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Realistic keys (few files, offsets in even steps) must spread like random ones.
    #[test]
    #[cfg_attr(miri, ignore = "arithmetic only, and a lot of it")]
    fn regular_keys_spread_evenly() {
        const BUCKETS: usize = 1 << 12;
        const EACH: usize = 16;
        for step in [1u64, 8, 4096, 4101, 1 << 20, 1 << 32, 1 << 48] {
            for files in [1u64, 7, 1 << 10] {
                let mut found = vec![0u32; BUCKETS];
                for i in 0..(BUCKETS * EACH) as u64 {
                    let h = hash([i % files, (i / files).wrapping_mul(step)]);
                    found[((u128::from(h) * BUCKETS as u128) >> 64) as usize] += 1;
                }
                let chi2: f64 =
                    found.iter().map(|&n| (f64::from(n) - EACH as f64).powi(2) / EACH as f64).sum();
                let degrees = BUCKETS as f64 - 1.0;
                assert!(chi2 < degrees + 6.0 * (2.0 * degrees).sqrt(), "step {step}, {files} files: {chi2}");
            }
        }
    }
}
