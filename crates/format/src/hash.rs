//! RocksDB's oldest hash function: MurmurHash1, which the format fixed with its sign-extension
//! quirk.
//!
//! The data-block hash index, legacy Bloom filters and prefix hashes are built with it; newer
//! filters hash with XXH3 instead. Specified by RocksDB's util/hash.cc. In: bytes and a seed. Out:
//! 32 bits.

/// Returns the hash of `bytes`.
#[must_use]
pub fn legacy_hash(bytes: &[u8], seed: u32) -> u32 {
    const MULTIPLIER: u32 = 0xc6a4_a793;
    let mut h = seed ^ (bytes.len() as u32).wrapping_mul(MULTIPLIER);
    let mut words = bytes.chunks_exact(4);
    for word in &mut words {
        h = h.wrapping_add(u32::from_le_bytes([word[0], word[1], word[2], word[3]])).wrapping_mul(MULTIPLIER);
        h ^= h >> 16;
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        for (i, &byte) in rest.iter().enumerate() {
            // Compat: the bytes of the tail are sign-extended, because existing files depend on it.
            h = h.wrapping_add((i32::from(byte as i8) as u32) << (8 * i));
        }
        h = h.wrapping_mul(MULTIPLIER);
        h ^= h >> 24;
    }
    h
}

#[cfg(test)]
mod tests {
    use super::legacy_hash;

    #[test]
    fn known_values() {
        // Values that RocksDB's own test pins, the tail bytes with and without their top bit set.
        let seed = 0xbc9f_1d34;
        assert_eq!(legacy_hash(b"", seed), 3_164_544_308);
        assert_eq!(legacy_hash(&[0x08], seed), 422_599_524);
        assert_eq!(legacy_hash(&[0x9a], seed), 3_195_034_349);
        assert_eq!(legacy_hash(&[0x91, 0xf7], seed), 31_066_776);
        assert_eq!(legacy_hash(&[0x56, 0xdc, 0xd6], seed), 2_157_698_265);
        assert_eq!(legacy_hash(&[0x46, 0xdc, 0x54, 0xbe], seed), 447_346_355);
        assert_eq!(legacy_hash(&[0x38, 0xd6, 0xf7, 0x28, 0x20, 0xb4, 0x8a, 0xe9], seed), 3_530_274_698);
    }
}
