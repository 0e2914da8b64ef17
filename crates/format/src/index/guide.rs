//! Search guide of a large index block: a few bytes of every sixteenth key, stored together, so
//! that a search touches little memory.
//!
//! In: a block of ascending keys and a target. Out: the restart points that the search must still
//! examine, at most sixteen of them unless digests are equal.
//!
//! The guide exists because the index of a table of 64 MiB has 16,000 entries in half a megabyte,
//! which is rarely in the processor's caches. A binary search of it waits for memory some twenty
//! times, one after the other, and that took longer than the rest of a lookup's search. The guide
//! is a fortieth of the block and stays in the caches; the bytes between two of its keys are then
//! prefetched all at once.
//!
//! It is built after a block has been searched a few times, because it does not pay for a block
//! that is read for one lookup.
//!
//! Invariant: digests ascend as keys do, so a smaller digest means a smaller key. Equal digests
//! leave the order open. Called by [`super::IndexCursor::seek`], only for keys in bytewise order.

use super::IndexLayout;
use crate::block::Block;
use crate::key::{self, TRAILER_BYTES};
use std::cmp::Ordering::{Equal, Greater, Less};
use std::hint::black_box;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Number of restart points per sample.
const STEP: usize = 16;
/// Minimum number of restart points of a block with a guide.
const RESTARTS_AT_LEAST: usize = 512;
/// Number of searches of a block before its guide is built.
const SEARCHES_BEFORE: u32 = 16;
/// Size of a cache line, in bytes.
const LINE_BYTES: usize = 64;
/// Maximum number of bytes of a block that are prefetched.
const AHEAD_AT_MOST: usize = 2048;

/// The guide of one large index block, built at most once.
#[derive(Debug, Default)]
pub(super) struct Guide {
    searches: AtomicU32,
    samples: OnceLock<Option<Samples>>,
}

#[derive(Debug)]
struct Samples {
    /// Common prefix of all keys.
    prefix: Box<[u8]>,
    /// The eight bytes behind the prefix of each sampled key, as a number.
    digests: Box<[u64]>,
    /// Offsets of the sampled entries in the block.
    offsets: Box<[u32]>,
}

impl Guide {
    /// Returns a guide, not yet built, if the block is large enough.
    pub(super) fn for_block(block: &Block) -> Option<Box<Guide>> {
        (block.restart_count() >= RESTARTS_AT_LEAST).then(Box::default)
    }

    /// Returns the memory that the guide of `block` will occupy, in bytes.
    pub(super) fn memory_bytes(block: &Block) -> usize {
        size_of::<Guide>() + block.restart_count() / STEP * (size_of::<u64>() + size_of::<u32>())
    }

    /// Returns the range of restart points that contains the first one whose key is not smaller
    /// than `target`, unless that is the range's end: those before have smaller keys, those behind
    /// greater ones.
    #[inline]
    pub(super) fn narrow(&self, block: &Block, layout: IndexLayout, target: &[u8]) -> Range<usize> {
        let samples = match self.samples.get() {
            Some(samples) => samples,
            // Ordering: Relaxed, because the counter guards no other memory.
            None if self.searches.fetch_add(1, Ordering::Relaxed) < SEARCHES_BEFORE => &None,
            None => self.samples.get_or_init(|| Samples::of(block, layout)),
        };
        match samples {
            Some(samples) => {
                samples.narrow(block, if layout.user_keys { target } else { key::user_key(target) })
            }
            None => 0..block.restart_count(),
        }
    }
}

impl Samples {
    /// Samples the block; returns `None` if the keys do not ascend bytewise, or some are malformed.
    #[cold]
    fn of(block: &Block, layout: IndexLayout) -> Option<Samples> {
        let user_key = |restart: usize| -> Option<(&[u8], usize)> {
            let (key, offset) = block.restart_entry(restart, layout.value_layout())?;
            let trailer = if layout.user_keys { 0 } else { TRAILER_BYTES };
            Some((&key[..key.len().checked_sub(trailer)?], offset))
        };
        let (first, last) = (user_key(0)?.0, user_key(block.restart_count() - 1)?.0);
        let prefix = &first[..first.iter().zip(last).take_while(|(a, b)| a == b).count()];
        let count = block.restart_count().div_ceil(STEP);
        let (mut digests, mut offsets) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for restart in (0..block.restart_count()).step_by(STEP) {
            let (key, offset) = user_key(restart)?;
            let digest = digest(key.strip_prefix(prefix)?);
            if digests.last().is_some_and(|last| *last > digest) {
                return None;
            }
            digests.push(digest);
            offsets.push(u32::try_from(offset).ok()?);
        }
        Some(Samples { prefix: prefix.into(), digests: digests.into(), offsets: offsets.into() })
    }

    #[inline]
    fn narrow(&self, block: &Block, target: &[u8]) -> Range<usize> {
        let count = block.restart_count();
        let shared = target.len().min(self.prefix.len());
        match target[..shared].cmp(&self.prefix) {
            Less => return 0..0,
            Greater => return count..count,
            Equal => {}
        }
        let sought = digest(&target[shared..]);
        let not_below = first_not_below(&self.digests, sought);
        let alike = self.digests[not_below..].iter().take_while(|digest| **digest == sought).count();
        let above = not_below + alike;
        let (low, start) = match not_below.checked_sub(1) {
            Some(below) => (below * STEP + 1, self.offsets[below] as usize),
            None => (0, 0),
        };
        let (high, end) = match self.offsets.get(above) {
            Some(offset) => (above * STEP, *offset as usize),
            None => (count, start + AHEAD_AT_MOST),
        };
        bring(block, low, start..end.min(start + AHEAD_AT_MOST));
        low..high
    }
}

/// Returns the index of the first of ascending numbers that is not smaller than `sought`.
///
/// Starts by interpolation, because keys are often evenly spread and the right cache line is then
/// found at once. If they are not, the steps from there double, and the cost is that of a binary
/// search.
#[inline]
fn first_not_below(ascending: &[u64], sought: u64) -> usize {
    let (Some(&first), Some(&last)) = (ascending.first(), ascending.last()) else { return 0 };
    if sought <= first {
        return 0;
    }
    if sought > last {
        return ascending.len();
    }
    let share = (sought - first) as f64 / (last - first) as f64;
    let guess = ((share * ascending.len() as f64) as usize).min(ascending.len() - 1);
    let (mut low, mut high, mut step) = (guess, guess, 1);
    if ascending[guess] < sought {
        // Invariant: the last number is not smaller, so the loop ends inside.
        while ascending[high] < sought {
            (low, high, step) = (high + 1, (high + step).min(ascending.len() - 1), step * 2);
        }
    } else {
        // Invariant: the first number is smaller, so the loop ends inside.
        while ascending[low] >= sought {
            (low, high, step) = (low.saturating_sub(step), low, step * 2);
        }
        low += 1;
    }
    low + ascending[low..high].partition_point(|number| *number < sought)
}

/// Prefetches the entries in `range` and the restart points from `restart` on, all at the same
/// time.
#[inline]
fn bring(block: &Block, restart: usize, range: Range<usize>) {
    let contents = block.contents();
    let entries = contents.get(range.start..range.end.min(contents.len())).unwrap_or_default();
    let points = contents.get(block.restart_position(restart)).copied().unwrap_or_default();
    black_box(entries.iter().step_by(LINE_BYTES).fold(points, |all, byte| all ^ byte));
}

/// Returns the first eight bytes as a number of the same order; missing bytes count as zeros.
#[inline]
fn digest(bytes: &[u8]) -> u64 {
    if let Some(eight) = bytes.first_chunk::<8>() {
        return u64::from_be_bytes(*eight);
    }
    let mut eight = [0; 8];
    eight[..bytes.len()].copy_from_slice(bytes);
    u64::from_be_bytes(eight)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::first_not_below;

    proptest! {
        #[test]
        fn the_guess_changes_nothing(
            mut numbers in proptest::collection::vec(
                prop_oneof![any::<u64>(), 0u64..50, Just(u64::MAX), Just(1u64 << 40)],
                0..200,
            ),
            more in proptest::collection::vec(any::<u64>(), 0..20),
        ) {
            numbers.sort_unstable();
            let near = numbers.iter().flat_map(|n| [n.saturating_sub(1), *n, n.saturating_add(1)]);
            for sought in near.chain(more) {
                let expected = numbers.partition_point(|number| *number < sought);
                prop_assert_eq!(first_not_below(&numbers, sought), expected);
            }
        }
    }
}
