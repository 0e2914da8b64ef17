//! The fast local Bloom filter, RocksDB's default from format_version 5 on.
//!
//! | bytes | content |
//! |---|---|
//! | 64 * n | lines of 512 bits |
//! | 1 | 0xff |
//! | 1 | 0: this layout; others are reserved |
//! | 1 | top 3 bits 0: lines of 64 bytes; others are reserved. Low 5 bits: number of probes, 1 to 30 |
//! | 2 | 0; reserved |
//!
//! The low half of a key's hash, scaled to the number of lines, chooses the line. The high half is
//! multiplied by the 32-bit golden ratio for each further probe; its top 9 bits are the number of
//! the bit within the line. Specified by RocksDB's util/bloom_impl.h and filter_policy.cc.
//!
//! Invariant: at least one line, so that every hash maps to one.

use super::{Line, METADATA_BYTES, NEW_BLOOM_MARKER, fast_range32};

const GOLDEN_RATIO: u32 = 0x9e37_79b9;
const MAX_PROBES: u8 = 30;
/// Size in bytes of the largest filter; beyond it 32 bits cannot count its bytes.
pub(super) const MAX_BYTES: usize = 0xffff_ffc0;

/// Multipliers of the hash's high half, one per probe. A table, because its products do not depend
/// on each other.
const MULTIPLIERS: [u32; 32] = {
    let mut powers = [1u32; 32];
    let mut i = 1;
    while i < powers.len() {
        powers[i] = powers[i - 1].wrapping_mul(GOLDEN_RATIO);
        i += 1;
    }
    powers
};

#[derive(Debug)]
pub(super) struct FastBloom {
    lines: Box<[Line]>,
    probes: u8,
}

impl FastBloom {
    /// Returns `None` for reserved metadata, or without a whole line.
    pub(super) fn parse(bits: &[u8], metadata: [u8; METADATA_BYTES]) -> Option<FastBloom> {
        let [_, layout, block_and_probes, reserved @ ..] = metadata;
        let probes = block_and_probes & 31;
        let known = layout == 0
            && block_and_probes >> 5 == 0
            && reserved == [0, 0]
            && (1..=MAX_PROBES).contains(&probes);
        if !known || bits.len() < Line::BYTES || bits.len() > MAX_BYTES {
            return None;
        }
        Some(FastBloom { lines: Line::all(bits), probes })
    }

    #[inline(always)]
    pub(super) fn may_match(&self, hash: u64) -> bool {
        let line = &self.lines[fast_range32(hash as u32, self.lines.len() as u32) as usize];
        let h = (hash >> 32) as u32;
        // A constant number of probes lets the loop unroll, and all bits are tested without a
        // branch between them. The number is equal for all filters of a policy, so the jump is
        // predicted.
        match self.probes {
            6 => all_set::<6>(line, h),
            7 => all_set::<7>(line, h),
            5 => all_set::<5>(line, h),
            8 => all_set::<8>(line, h),
            4 => all_set::<4>(line, h),
            3 => all_set::<3>(line, h),
            2 => all_set::<2>(line, h),
            1 => all_set::<1>(line, h),
            _ => all_set::<8>(line, h) && self.rest_set(line, h),
        }
    }

    #[inline(never)]
    fn rest_set(&self, line: &Line, h: u32) -> bool {
        MULTIPLIERS[8..usize::from(self.probes)].iter().all(|m| line.bit(h.wrapping_mul(*m) >> 23))
    }

    pub(super) fn probes(&self) -> u8 {
        self.probes
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.lines.len() * Line::BYTES
    }
}

#[inline(always)]
fn all_set<const PROBES: usize>(line: &Line, h: u32) -> bool {
    let mut all = true;
    for multiplier in &MULTIPLIERS[..PROBES] {
        all &= line.bit(h.wrapping_mul(*multiplier) >> 23);
    }
    all
}

/// Returns the bytes of lines for `keys` keys. Invariant: a multiple of 64, and at least one line
/// for one key.
pub(super) fn bytes_for(keys: usize, millibits_per_key: u32) -> usize {
    let bits = (keys as u128 * u128::from(millibits_per_key)).div_ceil(1000);
    let bytes = usize::try_from(bits.div_ceil(8)).unwrap_or(MAX_BYTES).min(MAX_BYTES);
    bytes.next_multiple_of(Line::BYTES)
}

/// Returns the number of keys that fit into a block of `bytes`, metadata included.
pub(super) fn keys_for(bytes: usize, millibits_per_key: u32) -> usize {
    let lines = bytes.saturating_sub(METADATA_BYTES).min(MAX_BYTES) / Line::BYTES;
    (8000 * (lines * Line::BYTES) as u64 / u64::from(millibits_per_key)) as usize
}

/// Returns the number of probes, which RocksDB's authors chose by measurement.
pub(super) fn probes_for(millibits_per_key: u32) -> u8 {
    match millibits_per_key {
        0..=2080 => 1,
        2081..=3580 => 2,
        3581..=5100 => 3,
        5101..=6640 => 4,
        6641..=8300 => 5,
        8301..=10070 => 6,
        10071..=11720 => 7,
        11721..=14001 => 8,
        14002..=16050 => 9,
        16051..=18300 => 10,
        18301..=22001 => 11,
        22002..=25501 => 12,
        25502..=50000 => ((millibits_per_key - 1) / 2000 - 1) as u8,
        50001.. => 24,
    }
}

/// Builds the filter block of the keys with these hashes.
pub(super) fn build(hashes: &[u64], millibits_per_key: u32) -> Vec<u8> {
    let bytes = bytes_for(hashes.len(), millibits_per_key);
    let probes = probes_for(millibits_per_key);
    let mut block = vec![0u8; bytes + METADATA_BYTES];
    let lines = (bytes / Line::BYTES) as u32;
    for &hash in hashes {
        let start = fast_range32(hash as u32, lines) as usize * Line::BYTES;
        let line = &mut block[start..start + Line::BYTES];
        let h = (hash >> 32) as u32;
        for multiplier in &MULTIPLIERS[..usize::from(probes)] {
            let bit = h.wrapping_mul(*multiplier) >> 23;
            line[bit as usize / 8] |= 1 << (bit % 8);
        }
    }
    block[bytes..].copy_from_slice(&[NEW_BLOOM_MARKER, 0, probes, 0, 0]);
    block
}
