//! One budget of memory: what tables, reads and jobs keep beside blocks counts against the block
//! cache, which evicts blocks to make room.
//!
//! In: what tables, reads, iterators and the files that jobs write hold on to. Out: charges, given
//! back when dropped.
//!
//! Invariant: nothing is refused for want of room; docs/decisions/memory-budget.md says why. What
//! is read ahead of need stays small instead.

use crate::block::CachedBlock;
use crate::open_files::Shared;
use karst_mem::{Charge, ChargeKind};
use std::sync::Arc;

/// What memtables are charged as. Blocks that found no room in the cache are kind 0.
pub const MEMTABLES: ChargeKind = ChargeKind(1);
/// Open tables, with the metadata that is their own.
pub const TABLES: ChargeKind = ChargeKind(2);
/// Reads in flight, and what iterators have read ahead.
pub const READS: ChargeKind = ChargeKind(3);
/// Files that flushes and compactions are writing.
pub const JOBS: ChargeKind = ChargeKind(4);

impl Shared {
    /// Counts `bytes` against the cache, if anything but blocks counts.
    #[inline]
    pub fn charge(&self, kind: ChargeKind, bytes: usize) -> Option<Charge> {
        self.charges_memory.then(|| self.cache.reserve(kind, bytes))
    }

    /// What a block costs in the cache. Where all memory counts, that is what an allocator takes
    /// for it, rather than what was asked for: the common ones have four sizes from one power of
    /// two to the next, and blocks lie closely above one of them.
    pub(crate) fn block_charge(&self, block: &CachedBlock) -> usize {
        let bytes = block.charge_bytes();
        if self.charges_memory { allocated_bytes(bytes) } else { bytes }
    }

    /// The same for what is read ahead: it counts for as long as either the read or who asked for
    /// it holds on to it.
    pub fn charge_ahead(&self, bytes: usize) -> Option<Arc<Charge>> {
        self.charge(READS, bytes).map(Arc::new)
    }

    /// How much more may be read ahead of need, in bytes. Why half of the capacity: the rest stays
    /// with blocks, which have been needed before.
    #[inline]
    pub fn room_ahead_bytes(&self) -> u64 {
        if !self.charges_memory {
            return u64::MAX;
        }
        let taken: usize =
            [MEMTABLES, TABLES, READS, JOBS].map(|kind| self.cache.charged_bytes(kind)).iter().sum();
        (self.cache.capacity_bytes() / 2).saturating_sub(taken) as u64
    }
}

/// What an allocator takes for so many bytes.
fn allocated_bytes(bytes: usize) -> usize {
    bytes.next_multiple_of((bytes.next_power_of_two() / 8).max(16))
}

/// What a file that is being written has in memory: as much as was written, up to a limit.
#[derive(Debug)]
pub(crate) struct FileCharge {
    shared: Arc<Shared>,
    most_bytes: usize,
    charge: Option<Charge>,
}

impl FileCharge {
    /// For a file that has at most `most_bytes` in memory. `None` if nothing but blocks counts.
    pub(crate) fn new(shared: &Arc<Shared>, most_bytes: usize) -> Option<Self> {
        shared.charges_memory.then(|| Self { shared: shared.clone(), most_bytes, charge: None })
    }

    /// So many bytes more were written.
    pub(crate) fn add(&mut self, bytes: usize) {
        let has = self.charge.as_ref().map_or(0, Charge::bytes);
        let more = bytes.min(self.most_bytes - has);
        if more > 0
            && let Some(more) = self.shared.charge(JOBS, more)
        {
            match &mut self.charge {
                Some(charge) => charge.absorb(more),
                none => *none = Some(more),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocators_take_one_of_four_sizes_between_powers_of_two() {
        let pairs = [(1, 16), (16, 16), (100, 112), (4096, 4096), (4097, 5120), (5121, 6144), (8000, 8192)];
        for (bytes, taken) in pairs {
            assert_eq!(allocated_bytes(bytes), taken, "{bytes}");
        }
    }
}
