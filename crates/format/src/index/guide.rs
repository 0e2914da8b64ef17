//! A guide to a large index block: a few bytes of every sixteenth key, kept together, so that a
//! search touches little memory.
//!
//! In: a block of ascending keys and a target. Out: the restart points among which the search has
//! to go on, at most sixteen of them unless keys are alike.
//!
//! Why: the index of a table of 64 MiB has 16,000 entries in half a megabyte, which is rarely in
//! the processor's caches. Halving it waits for memory some twenty times, one after the other, and
//! that took longer than all the rest of a lookup's search. The guide is a fortieth of the block
//! and stays in the caches; what lies between two of its keys is then brought all at once.
//!
//! It is made when a block has been searched a few times: a block that is read for one lookup is
//! not worth it.
//!
//! Invariant: digests ascend as keys do, so a smaller digest means a smaller key. Equal ones mean
//! nothing. Called by [`super::IndexCursor::seek`], only where keys are in bytewise order.

use super::IndexLayout;
use crate::block::Block;
use crate::key::{self, TRAILER_BYTES};
use std::cmp::Ordering::{Equal, Greater, Less};
use std::hint::black_box;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Every so many restart points there is a sample.
const STEP: usize = 16;
/// Blocks with fewer restart points are searched as they are.
const RESTARTS_AT_LEAST: usize = 512;
/// The guide is made at this search of the block.
const SEARCHES_BEFORE: u32 = 16;
/// What the processor's caches bring at once, in bytes.
const LINE_BYTES: usize = 64;
/// No more of a block than this is brought ahead of a search, in bytes.
const AHEAD_AT_MOST: usize = 2048;

/// Made once for each large index block.
#[derive(Debug, Default)]
pub(super) struct Guide {
    searches: AtomicU32,
    samples: OnceLock<Option<Samples>>,
}

#[derive(Debug)]
struct Samples {
    /// What all keys begin with.
    prefix: Box<[u8]>,
    /// The eight bytes behind the prefix of each sampled key, as a number.
    digests: Box<[u64]>,
    /// Where the sampled entries lie in the block.
    offsets: Box<[u32]>,
}

impl Guide {
    /// For a block that is large enough.
    pub(super) fn for_block(block: &Block) -> Option<Box<Guide>> {
        (block.restart_count() >= RESTARTS_AT_LEAST).then(Box::default)
    }

    /// What it will take for `block`, in bytes.
    pub(super) fn memory_bytes(block: &Block) -> usize {
        size_of::<Guide>() + block.restart_count() / STEP * (size_of::<u64>() + size_of::<u32>())
    }

    /// The restart points to search for the first one whose key is not smaller than `target`: those
    /// before have smaller keys, those behind greater ones.
    #[inline]
    pub(super) fn narrow(&self, block: &Block, layout: IndexLayout, target: &[u8]) -> Range<usize> {
        let samples = match self.samples.get() {
            Some(samples) => samples,
            // Ordering: Relaxed; a count, and nothing else.
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
    /// `None` if the keys do not ascend bytewise, or some are no keys.
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

/// The first of ascending numbers that is not smaller than `sought`.
///
/// Why not by halving alone: where keys are spread evenly, which is common, a rule of three leads
/// to the right cache line at once. Where they are not, the steps from there double, and the cost
/// is that of halving.
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
        // Invariant: the last is not smaller, so this ends inside.
        while ascending[high] < sought {
            (low, high, step) = (high + 1, (high + step).min(ascending.len() - 1), step * 2);
        }
    } else {
        // Invariant: the first is smaller, so this ends inside.
        while ascending[low] >= sought {
            (low, high, step) = (low.saturating_sub(step), low, step * 2);
        }
        low += 1;
    }
    low + ascending[low..high].partition_point(|number| *number < sought)
}

/// Has the processor bring the entries in `range` and the restart points from `restart` on, all at
/// the same time.
#[inline]
fn bring(block: &Block, restart: usize, range: Range<usize>) {
    let contents = block.contents();
    let entries = contents.get(range.start..range.end.min(contents.len())).unwrap_or_default();
    let points = contents.get(block.restart_position(restart)).copied().unwrap_or_default();
    black_box(entries.iter().step_by(LINE_BYTES).fold(points, |all, byte| all ^ byte));
}

/// The first eight bytes as a number that orders as they do; where there are fewer, zeros stand for
/// them.
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
