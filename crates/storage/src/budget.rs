//! Memory budget: memory of tables, reads and jobs is charged to the block cache, which evicts
//! blocks to make room.
//!
//! In: memory held by tables, reads, iterators and the files that jobs write. Out: charges,
//! released when dropped.
//!
//! Invariant: no request is refused for lack of room, for the reasons in
//! docs/decisions/memory-budget.md. Readahead is limited instead.

use crate::block::CachedBlock;
use crate::open_files::Shared;
use karst_mem::{Charge, ChargeKind};
use std::sync::Arc;

/// Charge kind of memtables. Kind 0 is for blocks that found no room in the cache.
pub const MEMTABLES: ChargeKind = ChargeKind(1);
/// Charge kind of open tables with their own metadata.
pub const TABLES: ChargeKind = ChargeKind(2);
/// Charge kind of reads in flight and iterators' readahead.
pub const READS: ChargeKind = ChargeKind(3);
/// Charge kind of files that flushes and compactions are writing.
pub const JOBS: ChargeKind = ChargeKind(4);

impl Shared {
    /// Charges `bytes` to the cache, if memory besides blocks is charged.
    #[inline]
    pub fn charge(&self, kind: ChargeKind, bytes: usize) -> Option<Charge> {
        self.charges_memory.then(|| self.cache.reserve(kind, bytes))
    }

    /// Returns a block's charge in the cache. If all memory is charged, this is the allocator's
    /// size class instead of the requested size: common allocators have four classes between powers
    /// of two, and blocks are slightly larger than one of them.
    pub(crate) fn block_charge(&self, block: &CachedBlock) -> usize {
        let bytes = block.charge_bytes();
        if self.charges_memory { allocated_bytes(bytes) } else { bytes }
    }

    /// Charges readahead; the charge lives as long as either the read or the scan holds it.
    pub fn charge_ahead(&self, bytes: usize) -> Option<Arc<Charge>> {
        self.charge(READS, bytes).map(Arc::new)
    }

    /// Returns the number of bytes that may still be read ahead. The limit is half of the capacity
    /// because the rest stays with blocks, which have been needed before.
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

/// Returns the allocator's size class for `bytes`.
fn allocated_bytes(bytes: usize) -> usize {
    bytes.next_multiple_of((bytes.next_power_of_two() / 8).max(16))
}

/// The charge of a file being written: the bytes written, up to a limit.
#[derive(Debug)]
pub(crate) struct FileCharge {
    shared: Arc<Shared>,
    most_bytes: usize,
    charge: Option<Charge>,
}

impl FileCharge {
    /// Creates the charge of a file with at most `most_bytes` in memory. `None` if only blocks are
    /// charged.
    pub(crate) fn new(shared: &Arc<Shared>, most_bytes: usize) -> Option<Self> {
        shared.charges_memory.then(|| Self { shared: shared.clone(), most_bytes, charge: None })
    }

    /// Charges another `bytes` written.
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
