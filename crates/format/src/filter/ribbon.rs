//! The Standard128 Ribbon filter: a third smaller than a Bloom filter of the same accuracy, slower
//! to build and to query.
//!
//! | bytes | content |
//! |---|---|
//! | 16 * n | segments of 128 bits |
//! | 1 | 0xfe |
//! | 1 | seed |
//! | 3 | number of blocks b, at least 2 |
//!
//! The filter is the solution of a system of linear equations over bits: 128 b slots, each a row of
//! bits, such that for every key added the exclusive or of some of the 128 slots from its start on
//! is the key's result row. The hash determines the slots and the result row. A key that was not
//! added matches with a probability of about 1 in 2^columns.
//!
//! Slots are stored in blocks of 128, each block as one segment a column. If the n segments do not
//! divide evenly, the first blocks have one column less than the last ones. Specified by RocksDB's
//! util/ribbon_impl.h and ribbon_alg.h.
//!
//! Invariant: the segments cover all blocks, so that no hash reads behind them.

use super::METADATA_BYTES;

/// Number of slots in a block, and of coefficients of a key.
pub(super) const BLOCK_SLOTS: u32 = 128;
/// Length of a segment in bytes.
pub(super) const SEGMENT_BYTES: usize = 16;
/// Number of bits in a result row, the maximum of columns.
const MAX_COLUMNS: u32 = 32;

/// The equation that a key's hash determines.
#[derive(Debug, Clone, Copy)]
pub(super) struct Equation {
    /// The first slot of the equation.
    pub(super) start: u32,
    /// One bit for each of the 128 slots from `start` on; the lowest bit is always set.
    pub(super) coefficients: u128,
    /// Exclusive or that these slots must have, column 0 in the lowest bit.
    pub(super) result: u32,
}

/// Maps the hash of a key to its equation, for one seed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hasher {
    raw_seed: u64,
    starts: u32,
}

impl Hasher {
    pub(super) fn new(seed: u8, blocks: u32) -> Hasher {
        // Spread because neighbouring seeds must not produce neighbouring hashes.
        let spread = u64::from(seed).wrapping_mul(0xc782_19a2_3eea_dd03);
        let mixed = spread ^ (spread & 0xf0f0_f0f0_f0f0_f0f0) >> 4;
        Hasher { raw_seed: mixed & 0xffff_ffff, starts: (blocks - 1) * BLOCK_SLOTS + 1 }
    }

    #[inline(always)]
    pub(super) fn equation(&self, hash: u64) -> Equation {
        let seeded = (hash ^ self.raw_seed).wrapping_mul(0x6193_d459_236a_3a0d);
        let start = ((u128::from(seeded) * u128::from(self.starts)) >> 64) as u32;
        let spread = seeded.wrapping_mul(0xc28f_8282_2b65_0bed);
        let coefficients = u128::from(spread) << 64 | u128::from(spread ^ 0xc367_844a_6e52_731d) | 1;
        Equation { start, coefficients, result: spread.swap_bytes() as u32 }
    }
}

/// Distribution of the segments over the blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) blocks: u32,
    /// Columns of the last blocks.
    pub(super) upper_columns: u32,
    /// The first block with `upper_columns`; the blocks before have one column less.
    pub(super) upper_start: u32,
}

impl Layout {
    pub(super) fn new(segments: u32, blocks: u32) -> Layout {
        let upper_columns = segments.div_ceil(blocks);
        if upper_columns > MAX_COLUMNS {
            return Layout { blocks, upper_columns: MAX_COLUMNS, upper_start: 0 };
        }
        // 64 bits because a hostile number of blocks times the columns may exceed 32.
        let all_upper = u64::from(upper_columns) * u64::from(blocks);
        Layout { blocks, upper_columns, upper_start: (all_upper - u64::from(segments)) as u32 }
    }

    pub(super) fn segments(&self) -> usize {
        self.upper_columns as usize * self.blocks as usize - self.upper_start as usize
    }

    /// Returns the first segment of a block, and the number of its segments.
    #[inline(always)]
    pub(super) fn block(&self, block: u32) -> (usize, usize) {
        let first = block as usize * self.upper_columns as usize - block.min(self.upper_start) as usize;
        (first, self.upper_columns as usize - usize::from(block < self.upper_start))
    }
}

#[derive(Debug)]
pub(super) struct Ribbon {
    segments: Box<[u128]>,
    layout: Layout,
    hasher: Hasher,
}

impl Ribbon {
    /// Returns `None` for less than two blocks, which no writer makes, and for more bits than
    /// segments can be counted.
    pub(super) fn parse(bits: &[u8], metadata: [u8; METADATA_BYTES]) -> Option<Ribbon> {
        let [_, seed, blocks @ ..] = metadata;
        let blocks = u32::from_le_bytes([blocks[0], blocks[1], blocks[2], 0]);
        if blocks < 2 {
            return None;
        }
        let layout = Layout::new(u32::try_from(bits.len() / SEGMENT_BYTES).ok()?, blocks);
        let segments: Box<[u128]> = bits
            .chunks_exact(SEGMENT_BYTES)
            .take(layout.segments())
            .map(|s| s.first_chunk().map_or(0, |s| u128::from_le_bytes(*s)))
            .collect();
        debug_assert_eq!(segments.len(), layout.segments());
        Some(Ribbon { segments, layout, hasher: Hasher::new(seed, blocks) })
    }

    #[inline]
    pub(super) fn may_match(&self, hash: u64) -> bool {
        let equation = self.hasher.equation(hash);
        let (first, columns) = self.layout.block(equation.start / BLOCK_SLOTS);
        let shift = equation.start % BLOCK_SLOTS;
        let here = equation.coefficients << shift;
        if shift == 0 {
            let segments = &self.segments[first..first + columns];
            return segments
                .iter()
                .zip(0..)
                .all(|(segment, column)| parity(segment & here) == equation.result >> column & 1);
        }
        let next = equation.coefficients >> (BLOCK_SLOTS - shift);
        // Invariant: the next block has as many columns or one more.
        let segments = &self.segments[first..first + 2 * columns];
        let (in_this, in_next) = segments.split_at(columns);
        in_this
            .iter()
            .zip(in_next)
            .zip(0..)
            .all(|((a, b), column)| parity(a & here ^ b & next) == equation.result >> column & 1)
    }

    pub(super) fn columns(&self) -> u32 {
        self.layout.upper_columns
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.segments.len() * SEGMENT_BYTES
    }
}

#[inline(always)]
pub(super) fn parity(bits: u128) -> u32 {
    (bits as u64 ^ (bits >> 64) as u64).count_ones() & 1
}
