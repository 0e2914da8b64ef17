//! The 64-bit hash of filters: the preview of XXH3 that RocksDB froze ("XXPH3", of xxHash 0.7.2).
//!
//! Implemented here because the released XXH3 hashes differently at every length and shares only
//! the tables and constants with the preview. The empty string has a hash other than 0, unlike in
//! the preview. Specified by RocksDB's util/xxph3.h and by the tables it has written since
//! format_version 5.
//!
//! In: bytes. Out: 64 bits. No seed, because RocksDB's filters have none. Used only by this crate's
//! filters.

const PRIME32_1: u32 = 0x9e37_79b1;
const PRIME32_2: u32 = 0x85eb_ca77;
const PRIME32_3: u32 = 0xc2b2_ae3d;
const PRIME64_1: u64 = 0x9e37_79b1_85eb_ca87;
const PRIME64_2: u64 = 0xc2b2_ae3d_27d4_eb4f;
const PRIME64_3: u64 = 0x1656_67b1_9e37_79f9;
const PRIME64_4: u64 = 0x85eb_ca77_c2b2_ae63;
const PRIME64_5: u64 = 0x27d4_eb2f_1656_67c5;

/// XXH3's default secret.
const SECRET: [u8; 192] = [
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c, 0xde,
    0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f, 0xcb, 0x79,
    0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21, 0xb8, 0x08, 0x46,
    0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c, 0x3c, 0x28, 0x52, 0xbb,
    0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3, 0x71, 0x64, 0x48, 0x97, 0xa2,
    0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8, 0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c,
    0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d, 0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59,
    0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64, 0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3,
    0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb, 0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3,
    0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e, 0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8,
    0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce, 0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb,
    0xca, 0xbb, 0x4b, 0x40, 0x7e,
];

const STRIPE_BYTES: usize = 64;
/// Bytes by which the offset into the secret grows per stripe; a block ends where the secret does.
const SECRET_STEP: usize = 8;
const BLOCK_STRIPES: usize = (SECRET.len() - STRIPE_BYTES) / SECRET_STEP;
/// Longest input that is mixed 16 bytes at a time; longer ones are mixed in stripes.
const MIDDLE_MAX: usize = 240;
/// Length of the shortest secret that the algorithm accepts; the last bytes of middle inputs are
/// mixed with the secret's bytes before this offset.
const SECRET_MIN: usize = 136;

/// Returns the hash of `input`.
#[inline]
#[must_use]
pub fn hash64(input: &[u8]) -> u64 {
    match input.len() {
        9..=16 => hash_9_to_16(input),
        17..=128 => hash_17_to_128(input),
        4..=8 => hash_4_to_8(input),
        1..=3 => hash_1_to_3(input),
        0 => fold(secret(0), PRIME64_2),
        129..=MIDDLE_MAX => hash_129_to_240(input),
        _ => hash_long(input),
    }
}

fn hash_1_to_3(input: &[u8]) -> u64 {
    let n = input.len();
    let bytes = [input[0], input[n >> 1], input[n - 1], n as u8];
    let keyed = u64::from(u32::from_le_bytes(bytes)) ^ (secret(0) & 0xffff_ffff);
    avalanche(keyed.wrapping_mul(PRIME64_1))
}

fn hash_4_to_8(input: &[u8]) -> u64 {
    let (low, high) = (word32(input, 0), word32(input, input.len() - 4));
    let keyed = (u64::from(low) | u64::from(high) << 32) ^ secret(0);
    let mixed = (keyed ^ keyed >> 51).wrapping_mul(u64::from(PRIME32_1)).wrapping_add(input.len() as u64);
    avalanche((mixed ^ mixed >> 47).wrapping_mul(PRIME64_2))
}

#[inline(always)]
fn hash_9_to_16(input: &[u8]) -> u64 {
    let low = word(input, 0) ^ secret(0);
    let high = word(input, input.len() - 8) ^ secret(8);
    avalanche((input.len() as u64).wrapping_add(low).wrapping_add(high).wrapping_add(fold(low, high)))
}

#[inline(always)]
fn hash_17_to_128(input: &[u8]) -> u64 {
    let n = input.len();
    let mut acc = (n as u64).wrapping_mul(PRIME64_1);
    acc = acc.wrapping_add(mix16(input, 0, 0)).wrapping_add(mix16(input, n - 16, 16));
    if n > 32 {
        acc = acc.wrapping_add(mix16(input, 16, 32)).wrapping_add(mix16(input, n - 32, 48));
        if n > 64 {
            acc = acc.wrapping_add(mix16(input, 32, 64)).wrapping_add(mix16(input, n - 48, 80));
            if n > 96 {
                acc = acc.wrapping_add(mix16(input, 48, 96)).wrapping_add(mix16(input, n - 64, 112));
            }
        }
    }
    avalanche(acc)
}

#[inline(never)]
fn hash_129_to_240(input: &[u8]) -> u64 {
    let n = input.len();
    let mut acc = (n as u64).wrapping_mul(PRIME64_1);
    for i in 0..8 {
        acc = acc.wrapping_add(mix16(input, 16 * i, 16 * i));
    }
    acc = avalanche(acc);
    for i in 8..n / 16 {
        acc = acc.wrapping_add(mix16(input, 16 * i, 16 * (i - 8) + 3));
    }
    avalanche(acc.wrapping_add(mix16(input, n - 16, SECRET_MIN - 17)))
}

#[inline(never)]
fn hash_long(input: &[u8]) -> u64 {
    const LAST_STRIPE_SECRET: usize = SECRET.len() - STRIPE_BYTES - 7;
    const MERGE_SECRET: usize = 11;
    let mut acc = [
        u64::from(PRIME32_3),
        PRIME64_1,
        PRIME64_2,
        PRIME64_3,
        PRIME64_4,
        u64::from(PRIME32_2),
        PRIME64_5,
        u64::from(PRIME32_1),
    ];
    let mut blocks = input.chunks_exact(BLOCK_STRIPES * STRIPE_BYTES);
    for block in &mut blocks {
        accumulate_stripes(&mut acc, block);
        for (i, a) in acc.iter_mut().enumerate() {
            let mixed = *a ^ *a >> 47 ^ secret(SECRET.len() - STRIPE_BYTES + 8 * i);
            *a = mixed.wrapping_mul(u64::from(PRIME32_1));
        }
    }
    accumulate_stripes(&mut acc, blocks.remainder());
    if !input.len().is_multiple_of(STRIPE_BYTES) {
        accumulate(&mut acc, &input[input.len() - STRIPE_BYTES..], LAST_STRIPE_SECRET);
    }
    let mut merged = (input.len() as u64).wrapping_mul(PRIME64_1);
    for i in 0..4 {
        let (low, high) = (secret(MERGE_SECRET + 16 * i), secret(MERGE_SECRET + 16 * i + 8));
        merged = merged.wrapping_add(fold(acc[2 * i] ^ low, acc[2 * i + 1] ^ high));
    }
    avalanche(merged)
}

/// Accumulates the whole stripes of at most one block.
fn accumulate_stripes(acc: &mut [u64; 8], block: &[u8]) {
    for (n, stripe) in block.chunks_exact(STRIPE_BYTES).enumerate() {
        accumulate(acc, stripe, n * SECRET_STEP);
    }
}

#[inline(always)]
fn accumulate(acc: &mut [u64; 8], stripe: &[u8], secret_at: usize) {
    for (i, a) in acc.iter_mut().enumerate() {
        let data = word(stripe, 8 * i);
        let keyed = data ^ secret(secret_at + 8 * i);
        *a = a.wrapping_add(data).wrapping_add((keyed & 0xffff_ffff).wrapping_mul(keyed >> 32));
    }
}

#[inline(always)]
fn mix16(input: &[u8], at: usize, secret_at: usize) -> u64 {
    fold(word(input, at) ^ secret(secret_at), word(input, at + 8) ^ secret(secret_at + 8))
}

/// Returns the two halves of the product, combined by exclusive or.
#[inline(always)]
const fn fold(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    product as u64 ^ (product >> 64) as u64
}

#[inline(always)]
const fn avalanche(mut h: u64) -> u64 {
    h ^= h >> 37;
    h = h.wrapping_mul(PRIME64_3);
    h ^ h >> 32
}

#[inline(always)]
fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("the caller chose the branch by the length"))
}

#[inline(always)]
fn word32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("the caller chose the branch by the length"))
}

#[inline(always)]
fn secret(at: usize) -> u64 {
    word(&SECRET, at)
}

#[cfg(test)]
mod tests {
    use super::hash64;

    fn bytes(n: usize) -> Vec<u8> {
        (0..n).map(|i| (i as u8).wrapping_mul(101) ^ (i >> 3) as u8).collect()
    }

    #[test]
    fn pinned_values() {
        // Results of RocksDB's implementation, on both sides of every change of algorithm.
        let input = bytes(5000);
        for (n, hash) in [
            (0, 5_999_572_062_939_766_020),
            (1, 8_185_528_957_457_134_470),
            (2, 12_108_048_718_572_448_141),
            (3, 16_528_750_233_882_301_728),
            (4, 5_130_321_848_532_378_713),
            (7, 2_644_601_670_497_584_822),
            (8, 6_095_495_573_974_003_629),
            (9, 10_171_754_966_195_109_895),
            (16, 17_241_378_008_466_540_759),
            (17, 9_331_716_831_015_014_269),
            (32, 10_670_508_404_546_213_682),
            (33, 1_230_706_384_344_699_241),
            (64, 6_080_395_747_234_279_081),
            (65, 17_878_511_783_296_979_746),
            (96, 15_465_527_168_167_722_585),
            (97, 9_257_238_516_938_726_891),
            (128, 8_895_616_055_401_553_172),
            (129, 7_604_058_069_338_002_179),
            (240, 12_676_374_343_875_781_635),
            (241, 13_268_886_583_017_714_383),
            (1024, 7_235_454_661_039_844_656),
            (1025, 13_893_394_474_943_650_008),
            (2100, 15_533_530_723_118_291_183),
        ] {
            assert_eq!(hash64(&input[..n]), hash, "{n} bytes");
        }
        let all = (0..input.len())
            .fold(0u64, |all, n| all.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(hash64(&input[..n])));
        assert_eq!(all, 214_645_277_291_285_906);
    }

    #[test]
    fn every_length_hashes_apart() {
        let input = bytes(3000);
        let mut seen: Vec<u64> = (0..input.len()).map(|n| hash64(&input[..n])).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), input.len());
    }

    #[test]
    fn every_bit_counts() {
        for n in [1, 3, 4, 8, 9, 16, 17, 32, 33, 64, 65, 96, 97, 128, 129, 240, 241, 1024, 1025, 2100] {
            let input = bytes(n);
            let whole = hash64(&input);
            for i in 0..n {
                let mut other = input.clone();
                other[i] ^= 1;
                assert_ne!(hash64(&other), whole, "byte {i} of {n}");
            }
        }
    }
}
