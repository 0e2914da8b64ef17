//! Ribbon filter builder: computes the filter's size and solves its equations.
//!
//! Banding adds each key's equation to a matrix in which a row begins at its slot; a slot that is
//! taken is eliminated by exclusive or, which moves the rest of the equation on, until a free slot
//! is found. If equations contradict each other, another seed is tried, up to 256 in all. Back
//! substitution then runs from the last slot to the first, all columns at once, and stores a
//! segment per column whenever a block is complete.
//!
//! In: hashes of keys. Out: a filter block, or nothing if a Bloom filter is smaller; RocksDB
//! decides the same way. Specified by RocksDB's util/ribbon_config.cc (sizes), ribbon_alg.h
//! (banding, back substitution) and filter_policy.cc.
//! Invariant: equal hashes in equal order produce RocksDB's bits.

use super::ribbon::{BLOCK_SLOTS, Equation, Hasher, Layout, SEGMENT_BYTES, parity};
use super::{METADATA_BYTES, RIBBON_MARKER, fast_bloom};

/// Maximum number of keys; beyond it RocksDB builds a Bloom filter.
pub(super) const MAX_KEYS: usize = 950_000_000;

/// Number of keys that 2^i slots hold if one in twenty seeds may fail, for i from 8 to 17; measured
/// by RocksDB's authors.
const KEYS_FOR_POWER: [f64; 10] =
    [248.851, 499.532, 1001.26, 2003.97, 4005.59, 8000.39, 15966.6, 31828.1, 63447.3, 126_506.0];
const FIRST_POWER: u32 = 8;
const LAST_POWER: u32 = 17;
/// Growth of the slots per key with each doubling beyond the last power.
const GROWTH_PER_POWER: f64 = 0.0038;
/// Compat: rounded as in RocksDB, because the digits affect sizes.
#[allow(clippy::approx_constant, reason = "an exact constant would size some filters differently")]
const LOG2_E: f64 = 1.442_695_040_9;

/// Returns the number of keys that 2^power slots hold; 0 if the slots are too few.
fn keys_for_power(power: u32) -> f64 {
    if power < FIRST_POWER {
        0.0
    } else if power <= LAST_POWER {
        KEYS_FOR_POWER[(power - FIRST_POWER) as usize]
    } else {
        (power as f64).exp2() / slots_per_key(f64::from(power))
    }
}

fn slots_per_key(log2_slots: f64) -> f64 {
    let known = f64::from(1u32 << LAST_POWER) / KEYS_FOR_POWER[KEYS_FOR_POWER.len() - 1];
    (known - f64::from(LAST_POWER) * GROWTH_PER_POWER) + log2_slots * GROWTH_PER_POWER
}

/// Returns the number of slots that `keys` need, a multiple of a block and at least two blocks.
fn slots_for(keys: u32) -> u32 {
    let log2_keys = f64::from(keys).ln() * LOG2_E;
    let mut power = (log2_keys + 0.5) as u32;
    let mut lower = keys_for_power(power);
    let slots = if power == 0 || lower == 0.0 {
        2 * BLOCK_SLOTS
    } else {
        let upper;
        if f64::from(keys) < lower {
            upper = lower;
            power -= 1;
            lower = keys_for_power(power);
        } else {
            upper = keys_for_power(power + 1);
        }
        let portion = (f64::from(keys) - lower) / (upper - lower);
        let lower_slots = f64::from(power).exp2();
        (portion * lower_slots + lower_slots + 0.999_999_999) as u32
    };
    round_up_slots(slots)
}

fn round_up_slots(slots: u32) -> u32 {
    slots.next_multiple_of(BLOCK_SLOTS).max(2 * BLOCK_SLOTS)
}

/// Returns the number of keys that `slots` slots hold.
fn keys_for_slots(slots: u32) -> u32 {
    if slots == 0 {
        return 0;
    }
    let log2_slots = f64::from(slots).ln() * LOG2_E;
    let power = log2_slots as u32;
    if power < LAST_POWER {
        let ceil_portion = f64::from(slots) / f64::from(1u32 << power) - 1.0;
        (ceil_portion * keys_for_power(power + 1) + (1.0 - ceil_portion) * keys_for_power(power)) as u32
    } else {
        (f64::from(slots) / slots_per_key(log2_slots)) as u32
    }
}

/// Returns the bytes of segments that give one false positive in `one_in`; (`rounding` + 0.5) /
/// 2^32 is added before the number of blocks with fewer columns is rounded down.
fn segment_bytes_for(slots: u32, one_in: f64, rounding: u32) -> usize {
    let rate = 1.0 / one_in;
    let typical = one_in > 1.0 && rate < 1.0;
    if !typical {
        return SEGMENT_BYTES;
    }
    if one_in > f64::from(u32::MAX) {
        return slots as usize * 4;
    }
    let lower_columns = (one_in as u32).ilog2();
    let lower_rate = (-f64::from(lower_columns)).exp2();
    let upper_rate = (-f64::from(lower_columns + 1)).exp2();
    let lower_portion = (rate - upper_rate) / (lower_rate - upper_rate);
    let bias = (f64::from(rounding) + 0.5) / 4_294_967_296.0;
    let starts = slots - BLOCK_SLOTS + 1;
    let upper_start = ((lower_portion * f64::from(starts) + bias) / f64::from(BLOCK_SLOTS)) as usize;
    let blocks = (slots / BLOCK_SLOTS) as usize;
    (blocks * lower_columns as usize + (blocks - upper_start.min(blocks))) * SEGMENT_BYTES
}

/// Returns slots and bytes of segments for `keys` keys whose first has the hash `first`; `None` if
/// a Bloom filter is smaller or the keys are too many for a Ribbon filter.
fn size_for(keys: usize, first: u64, one_in: f64, bloom_millibits_per_key: u32) -> Option<(u32, usize)> {
    if keys > MAX_KEYS {
        return None;
    }
    let slots = slots_for(keys as u32);
    let bytes = segment_bytes_for(slots, one_in, (first >> 32) as u32);
    let bloom_is_smaller = || fast_bloom::bytes_for(keys, bloom_millibits_per_key) < bytes;
    if slots < 1024 && bloom_is_smaller() { None } else { Some((slots, bytes)) }
}

/// Returns the bytes of bits for `keys` keys, of a Ribbon or Bloom filter.
pub(super) fn bytes_for(keys: usize, first: u64, one_in: f64, bloom_millibits_per_key: u32) -> usize {
    match size_for(keys, first, one_in, bloom_millibits_per_key) {
        Some((_, bytes)) => bytes,
        None => fast_bloom::bytes_for(keys, bloom_millibits_per_key),
    }
}

/// Returns the number of keys that fit into a block of `bytes`, metadata included.
pub(super) fn keys_for(bytes: usize, one_in: f64, bloom_millibits_per_key: u32) -> usize {
    let segments = bytes.saturating_sub(METADATA_BYTES) / SEGMENT_BYTES * SEGMENT_BYTES;
    let typical = one_in > 1.0;
    if !typical {
        return MAX_KEYS;
    }
    // A slight underestimate of the bits per slot, then whole blocks downwards until they fit.
    let bits_per_slot = if one_in > f64::from(u32::MAX) {
        32.0
    } else {
        let upper_columns = 1 + (one_in as u32).ilog2();
        let upper_rate = (-f64::from(upper_columns)).exp2();
        f64::from(upper_columns) - (1.0 / one_in - upper_rate) / upper_rate
    };
    let most_slots = segments as f64 * 8.0 / bits_per_slot;
    if most_slots >= f64::from(slots_for(MAX_KEYS as u32)) {
        return MAX_KEYS;
    }
    let mut slots = round_up_slots(most_slots as u32);
    while slots > 0 && segment_bytes_for(slots, one_in, 0) > segments {
        let below = (slots - 1) / BLOCK_SLOTS * BLOCK_SLOTS;
        slots = if below == BLOCK_SLOTS { 0 } else { below };
    }
    let keys = keys_for_slots(slots) as usize;
    if slots < 1024 {
        keys.max(fast_bloom::keys_for(bytes, bloom_millibits_per_key))
    } else {
        keys.min(MAX_KEYS)
    }
}

/// Builds the filter block of the keys with these hashes; `None` if a Bloom filter is smaller, or
/// no seed has a solution.
pub(super) fn build(hashes: &[u64], one_in: f64, bloom_millibits_per_key: u32) -> Option<Vec<u8>> {
    let first = *hashes.first()?;
    let (slots, bytes) = size_for(hashes.len(), first, one_in, bloom_millibits_per_key)?;
    let blocks = slots / BLOCK_SLOTS;
    // The first seed is taken from a hash and not 0, because keys that one filter lets through by
    // chance should not pass all filters.
    let (seed, banding) = (0..=255u8)
        .map(|i| (first as u8).wrapping_add(i))
        .find_map(|seed| Some((seed, Banding::solve(slots, Hasher::new(seed, blocks), hashes)?)))?;
    let mut block = banding.back_substitute(Layout::new((bytes / SEGMENT_BYTES) as u32, blocks));
    block.resize(bytes, 0);
    let [b0, b1, b2, _] = blocks.to_le_bytes();
    block.extend_from_slice(&[RIBBON_MARKER, seed, b0, b1, b2]);
    Some(block)
}

/// The equations in echelon form: slot i has an equation whose first coefficient is slot i, or
/// none.
struct Banding {
    /// 0 for a slot without equation.
    coefficients: Vec<u128>,
    results: Vec<u32>,
}

impl Banding {
    /// Returns `None` if two equations contradict each other.
    fn solve(slots: u32, hasher: Hasher, hashes: &[u64]) -> Option<Banding> {
        let mut banding = Banding { coefficients: vec![0; slots as usize], results: vec![0; slots as usize] };
        hashes.iter().all(|hash| banding.add(hasher.equation(*hash))).then_some(banding)
    }

    fn add(&mut self, equation: Equation) -> bool {
        let Equation { start, mut coefficients, mut result } = equation;
        let mut slot = start as usize;
        loop {
            let taken = self.coefficients[slot];
            if taken == 0 {
                self.coefficients[slot] = coefficients;
                self.results[slot] = result;
                return true;
            }
            coefficients ^= taken;
            result ^= self.results[slot];
            if coefficients == 0 {
                // The equation is a sum of others. It holds if their results agree, as for a hash
                // added twice.
                return result == 0;
            }
            let zeros = coefficients.trailing_zeros();
            slot += zeros as usize;
            coefficients >>= zeros;
        }
    }

    /// Returns the segments of the solution.
    fn back_substitute(&self, layout: Layout) -> Vec<u8> {
        let mut bytes = vec![0; layout.segments() * SEGMENT_BYTES];
        // For each column, the solution of the 128 slots from the current one on.
        let mut state = vec![0u128; layout.upper_columns as usize];
        for block in (0..layout.blocks).rev() {
            let (first, columns) = layout.block(block);
            let start = (block * BLOCK_SLOTS) as usize;
            for slot in (start..start + BLOCK_SLOTS as usize).rev() {
                let (coefficients, result) = (self.coefficients[slot], self.results[slot]);
                for (column, bits) in state[..columns].iter_mut().enumerate() {
                    let shifted = *bits << 1;
                    *bits = shifted | u128::from(parity(shifted & coefficients) ^ result >> column & 1);
                }
            }
            for (column, bits) in state[..columns].iter().enumerate() {
                let at = (first + column) * SEGMENT_BYTES;
                bytes[at..at + SEGMENT_BYTES].copy_from_slice(&bits.to_le_bytes());
            }
        }
        bytes
    }
}
