//! One budget of memory: what is kept beside blocks counts against the block cache, which evicts to make room.
//!
//! In: what tables, reads and iterators hold on to. Out: charges, given back when dropped.
//!
//! Invariant: nothing is refused for want of room; docs/decisions/memory-budget.md says why. What is read ahead of need stays small instead.

use std::sync::Arc;

use karst_mem::{Charge, ChargeKind};

use crate::table::cache::Shared;

/// What memtables are charged as. Blocks that found no room in the cache are kind 0.
pub(crate) const MEMTABLES: ChargeKind = ChargeKind(1);
/// Open tables, with the metadata that is their own.
pub(crate) const TABLES: ChargeKind = ChargeKind(2);
/// Reads in flight, and what iterators have read ahead.
pub(crate) const READS: ChargeKind = ChargeKind(3);

impl Shared {
    /// Counts `bytes` against the cache, if anything but blocks counts.
    #[inline]
    pub(crate) fn charge(&self, kind: ChargeKind, bytes: usize) -> Option<Charge> {
        self.charges_memory.then(|| self.cache.reserve(kind, bytes))
    }

    /// The same for what is read ahead: it counts for as long as either the read or who asked for it holds on to it.
    pub(crate) fn charge_ahead(&self, bytes: usize) -> Option<Arc<Charge>> {
        self.charge(READS, bytes).map(Arc::new)
    }

    /// How much more may be read ahead of need, in bytes. Why half of the capacity: the rest stays with blocks, which have been needed before.
    #[inline]
    pub(crate) fn room_ahead_bytes(&self) -> u64 {
        if !self.charges_memory {
            return u64::MAX;
        }
        let taken: usize = [MEMTABLES, TABLES, READS].map(|kind| self.cache.charged_bytes(kind)).iter().sum();
        (self.cache.capacity_bytes() / 2).saturating_sub(taken) as u64
    }
}
