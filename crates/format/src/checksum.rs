//! Checksums of blocks and footers.
//!
//! A block is followed by five bytes:
//!
//! | bytes | content |
//! |---|---|
//! | 1 | compression type |
//! | 4 | checksum, little-endian, over block and compression type |
//!
//! From format_version 6 on the stored checksum has a modifier added that depends on the file's
//! random base and on the block's offset, so that a block from another file or another offset does
//! not pass ([`context_modifier`]). Specified by RocksDB's table/format.h and table/format.cc.
//!
//! In: bytes as read. Out: a checksum, or the block's compression type byte, or [`Corruption`].

use crate::corruption::Corruption;
use crate::handle::BLOCK_TRAILER_BYTES;

/// Checksum algorithm of a table's blocks, by the number that the footer stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ChecksumType {
    /// No checksum: it is stored as 0. The context is still added and checked, so a misplaced block
    /// is detected.
    None = 0,
    /// CRC32c, rotated and offset ("masked").
    Crc32c = 1,
    /// 32-bit xxHash.
    XxHash = 2,
    /// The lower half of 64-bit xxHash.
    XxHash64 = 3,
    /// The lower half of 64-bit XXH3 over all bytes but the last, the last folded in separately.
    Xxh3 = 4,
}

/// Multiplier for the last byte in XXH3 checksums.
const XXH3_LAST_BYTE_PRIME: u32 = 0x6b90_83d9;
/// Constant added to a rotated CRC32c, so that a checksum over stored checksums stays useful.
const CRC_MASK_DELTA: u32 = 0xa282_ead8;

impl ChecksumType {
    /// Returns the type with RocksDB's number `n`.
    #[must_use]
    pub const fn from_u8(n: u8) -> Option<ChecksumType> {
        Some(match n {
            0 => ChecksumType::None,
            1 => ChecksumType::Crc32c,
            2 => ChecksumType::XxHash,
            3 => ChecksumType::XxHash64,
            4 => ChecksumType::Xxh3,
            _ => return None,
        })
    }

    /// Returns the name in option strings, such as `kCRC32c`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ChecksumType::None => "kNoChecksum",
            ChecksumType::Crc32c => "kCRC32c",
            ChecksumType::XxHash => "kxxHash",
            ChecksumType::XxHash64 => "kxxHash64",
            ChecksumType::Xxh3 => "kXXH3",
        }
    }

    /// Returns the type with the name `name` in option strings.
    #[must_use]
    pub fn from_name(name: &str) -> Option<ChecksumType> {
        (0..=4).filter_map(ChecksumType::from_u8).find(|t| t.name() == name)
    }
}

/// Rotates and offsets a CRC32c as it is stored.
#[inline]
#[must_use]
pub const fn mask_crc(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(CRC_MASK_DELTA)
}

/// Undoes [`mask_crc`].
#[inline]
#[must_use]
pub const fn unmask_crc(masked: u32) -> u32 {
    masked.wrapping_sub(CRC_MASK_DELTA).rotate_left(15)
}

/// Returns the checksum of `bytes`, without context; 0 for [`ChecksumType::None`].
#[must_use]
pub fn compute(checksum: ChecksumType, bytes: &[u8]) -> u32 {
    match checksum {
        ChecksumType::None => 0,
        ChecksumType::Crc32c => mask_crc(crc32c::crc32c(bytes)),
        ChecksumType::XxHash => xxhash_rust::xxh32::xxh32(bytes, 0),
        ChecksumType::XxHash64 => xxhash_rust::xxh64::xxh64(bytes, 0) as u32,
        ChecksumType::Xxh3 => match bytes.split_last() {
            // Compat: RocksDB keeps the last byte (the compression type) out of the hash, which is
            // fast on contiguous input only, and combines it afterwards.
            Some((&last, rest)) => {
                // `twox_hash` instead of the crate that hashes keys, because it selects the
                // processor's widest registers at run time.
                twox_hash::XxHash3_64::oneshot(rest) as u32
                    ^ u32::from(last).wrapping_mul(XXH3_LAST_BYTE_PRIME)
            }
            None => 0,
        },
    }
}

/// Returns the value added to the checksum of the block at `offset` in a file with this base; 0 for
/// a file without context checksums (base 0).
#[inline]
#[must_use]
pub const fn context_modifier(base_context_checksum: u32, offset: u64) -> u32 {
    if base_context_checksum == 0 {
        return 0;
    }
    base_context_checksum ^ (offset as u32).wrapping_add((offset >> 32) as u32)
}

/// Returns a hash of `bytes` seeded with `seed`, for comparing sequences in memory. No file stores
/// it.
#[must_use]
pub fn running_hash(seed: u64, bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(bytes, seed)
}

/// Checks the five bytes behind a block and returns the compression type byte.
///
/// `block_and_trailer` is the block as stored, then its trailer; `context` is [`context_modifier`]
/// for the block's offset.
pub fn verify_block_trailer(
    checksum: ChecksumType,
    block_and_trailer: &[u8],
    context: u32,
) -> Result<u8, Corruption> {
    let Some((covered, stored)) = block_and_trailer
        .split_last_chunk::<4>()
        .filter(|(covered, _)| covered.len() + 4 >= BLOCK_TRAILER_BYTES)
    else {
        return Err(Corruption::new("block is too short for its trailer", block_and_trailer.len()));
    };
    let compression = covered[covered.len() - 1];
    let stored = u32::from_le_bytes(*stored);
    let computed = compute(checksum, covered).wrapping_add(context);
    if stored == computed {
        Ok(compression)
    } else {
        Err(Corruption::new(
            format!(
                "block checksum mismatch ({}): stored {stored:#010x}, computed {computed:#010x}",
                checksum.name()
            ),
            covered.len(),
        ))
    }
}

/// Appends the trailer of the block that `out[block_start..]` holds: compression type and checksum.
pub fn append_block_trailer(
    out: &mut Vec<u8>,
    block_start: usize,
    compression: u8,
    checksum: ChecksumType,
    context: u32,
) {
    out.push(compression);
    let value = compute(checksum, &out[block_start..]).wrapping_add(context);
    out.extend_from_slice(&value.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_values() {
        // Standard check values of each algorithm over "123456789", before RocksDB's changes.
        assert_eq!(unmask_crc(compute(ChecksumType::Crc32c, b"123456789")), 0xe306_9283);
        assert_eq!(compute(ChecksumType::XxHash, b"123456789"), 0x937b_ad67);
        assert_eq!(compute(ChecksumType::XxHash64, b"123456789"), 0x8cb8_41db_40e6_ae83_u64 as u32);
        assert_eq!(compute(ChecksumType::None, b"123456789"), 0);
        assert_eq!(compute(ChecksumType::Xxh3, b""), 0);
        // XXH3 of nothing is 0x2d06800538d394c2; the one byte is combined with it.
        assert_eq!(compute(ChecksumType::Xxh3, &[1]), 0x38d3_94c2 ^ XXH3_LAST_BYTE_PRIME);
    }

    #[test]
    fn context_depends_on_both_parts() {
        assert_eq!(context_modifier(0, 123), 0);
        assert_eq!(context_modifier(7, 0), 7);
        assert_eq!(context_modifier(7, 8), 15);
        assert_eq!(context_modifier(7, 8 << 32), 15);
    }

    proptest! {
        #[test]
        fn trailer_round_trip_and_flip(
            block in proptest::collection::vec(any::<u8>(), 0..300),
            kind in 0u8..=4, compression in 0u8..8, context: u32, bit: proptest::sample::Index,
        ) {
            let kind = ChecksumType::from_u8(kind).unwrap();
            prop_assert_eq!(ChecksumType::from_name(kind.name()), Some(kind));
            let mut bytes = block.clone();
            append_block_trailer(&mut bytes, 0, compression, kind, context);
            prop_assert_eq!(verify_block_trailer(kind, &bytes, context).unwrap(), compression);
            prop_assert!(verify_block_trailer(kind, &bytes, context.wrapping_add(1)).is_err());
            let bit = bit.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            let covered = kind != ChecksumType::None || bit / 8 >= bytes.len() - 4;
            prop_assert_eq!(verify_block_trailer(kind, &bytes, context).is_err(), covered);
        }

        #[test]
        fn mask_is_a_bijection(crc: u32) {
            prop_assert_eq!(unmask_crc(mask_crc(crc)), crc);
        }
    }

    #[test]
    fn too_short() {
        for n in 0..5 {
            assert!(verify_block_trailer(ChecksumType::None, &[0; 5][..n], 0).is_err());
        }
    }
}
