//! The legacy Bloom filter, for tables with a format_version below 5: 32-bit hashes, all probes
//! within one line.
//!
//! | bytes | content |
//! |---|---|
//! | n * 2^k | lines; 2^k is the cache line size of the machine that wrote it, nearly always 64 bytes |
//! | 1 | number of probes, 1 to 127 |
//! | 4 | number of lines n |
//!
//! The line is the hash modulo n; the first probe is the hash, each next one adds the hash rotated
//! by 17, all modulo the bits of a line. Specified by RocksDB's util/bloom_impl.h and
//! filter_policy.cc.
//!
//! Invariant: n lines of equal length, a power of two, fill all the bits.

use super::{Line, METADATA_BYTES};

#[derive(Debug)]
pub(super) struct LegacyBloom {
    bits: Bits,
    probes: u8,
}

#[derive(Debug)]
enum Bits {
    Lines(Box<[Line]>),
    /// Lines of another length, from a machine with other cache lines.
    Foreign {
        bits: Box<[u8]>,
        lines: u32,
        log2_line_bytes: u32,
    },
}

impl LegacyBloom {
    /// Returns `None` if the number of lines does not divide the length.
    pub(super) fn parse(bits: &[u8], metadata: [u8; METADATA_BYTES]) -> Option<LegacyBloom> {
        let [probes, lines @ ..] = metadata;
        let lines = u32::from_le_bytes(lines);
        let line_bytes = bits.len().checked_div(lines as usize)?;
        if line_bytes.checked_mul(lines as usize) != Some(bits.len()) || !line_bytes.is_power_of_two() {
            return None;
        }
        let bits = if line_bytes == Line::BYTES {
            Bits::Lines(Line::all(bits))
        } else {
            Bits::Foreign { bits: bits.into(), lines, log2_line_bytes: line_bytes.trailing_zeros() }
        };
        Some(LegacyBloom { bits, probes })
    }

    #[inline]
    pub(super) fn may_match(&self, hash: u32) -> bool {
        match &self.bits {
            Bits::Lines(lines) => {
                let line = &lines[(hash % lines.len() as u32) as usize];
                bit_numbers(hash, self.probes).all(|bit| line.bit(bit))
            }
            Bits::Foreign { bits, lines, log2_line_bytes } => {
                let start = ((hash % lines) as usize) << log2_line_bytes;
                let mask = (1u64 << (log2_line_bytes + 3)) - 1;
                bit_numbers(hash, self.probes).all(|bit| {
                    let bit = (u64::from(bit) & mask) as usize;
                    bits[start + bit / 8] >> (bit % 8) & 1 != 0
                })
            }
        }
    }

    pub(super) fn probes(&self) -> u8 {
        self.probes
    }

    pub(super) fn memory_bytes(&self) -> usize {
        match &self.bits {
            Bits::Lines(lines) => lines.len() * Line::BYTES,
            Bits::Foreign { bits, .. } => bits.len(),
        }
    }
}

/// Yields the bit numbers of a hash, not yet reduced to the line.
#[inline(always)]
fn bit_numbers(hash: u32, probes: u8) -> impl Iterator<Item = u32> {
    let delta = hash.rotate_right(17);
    (0..u32::from(probes)).map(move |i| hash.wrapping_add(delta.wrapping_mul(i)))
}

/// Returns the number of probes for `bits_per_key`, rounded down.
pub(super) fn probes_for(bits_per_key: u32) -> u8 {
    ((f64::from(bits_per_key) * 0.69) as u32).clamp(1, 30) as u8
}

/// Returns the bytes of lines for `keys` keys. The number of lines is odd, so that more bits of the
/// hash choose the line.
pub(super) fn bytes_for(keys: usize, bits_per_key: u32) -> usize {
    if keys == 0 {
        return 0;
    }
    let bits = (keys as u64).saturating_mul(u64::from(bits_per_key)).min(0xffff_0000);
    let lines = bits.div_ceil(8 * Line::BYTES as u64) | 1;
    lines as usize * Line::BYTES
}

/// Returns the number of keys that fit into a block of `bytes`, metadata included.
pub(super) fn keys_for(bytes: usize, bits_per_key: u32) -> usize {
    let lines = bytes.saturating_sub(METADATA_BYTES).min(0xffff_0000 / 8) / Line::BYTES;
    let odd = if lines.is_multiple_of(2) { lines.saturating_sub(1) } else { lines };
    odd * Line::BYTES * 8 / bits_per_key as usize
}

/// Builds the filter block of the keys with these hashes.
pub(super) fn build(hashes: &[u64], bits_per_key: u32) -> Vec<u8> {
    let bytes = bytes_for(hashes.len(), bits_per_key);
    let lines = (bytes / Line::BYTES) as u32;
    let probes = probes_for(bits_per_key);
    let mut block = vec![0u8; bytes + METADATA_BYTES];
    for &hash in hashes {
        let hash = hash as u32;
        let start = (hash % lines) as usize * Line::BYTES;
        let line = &mut block[start..start + Line::BYTES];
        for bit in bit_numbers(hash, probes) {
            let bit = bit as usize % (8 * Line::BYTES);
            line[bit / 8] |= 1 << (bit % 8);
        }
    }
    block[bytes] = probes;
    block[bytes + 1..].copy_from_slice(&lines.to_le_bytes());
    block
}
