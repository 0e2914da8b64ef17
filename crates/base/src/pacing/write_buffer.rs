//! The memory budget of memtables, over column families and databases: RocksDB's
//! `WriteBufferManager`.
//!
//! In: each memtable's [`Charge`], which follows its size. Out: signals to flush a memtable and to
//! stall writers.
//!
//! Free blocks kept for the next memtables (`karst_mem`'s stock) are limited to the unused part of
//! the budget and to a small share of a charged cache.
//!
//! Invariant: `used` is the sum of all live charges; `unflushed` of those whose memtables are not
//! in tables yet; `active` of those that still accept writes. Writers wait for `unflushed` only:
//! flushed memtables pinned by readers are freed by those readers, and a waiting writer may be one
//! of them.
//! Ordering: counters only; no other data is published through them.

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Event, EventListener};
use std::fmt;
use std::sync::Arc;

/// A memory budget for memtables. Clones share it.
#[derive(Clone, Debug)]
pub struct WriteBufferManager(Arc<Shared>);

/// A cache that is charged with the memory of memtables, made from the engine's block cache.
pub struct ChargedCache {
    /// Charges the cache with this number of bytes.
    #[doc(hidden)]
    pub reserve: Box<dyn Fn(usize) -> karst_mem::Charge + Send + Sync>,
    #[doc(hidden)]
    pub capacity_bytes: Box<dyn Fn() -> usize + Send + Sync>,
}

/// A charged cache's capacity divided by this bounds the stock of free blocks.
const STOCK_PART: usize = 32;

/// The capacity of a cache that is the only budget, divided by this, is the memtables' budget.
const PART_OF_CACHE: usize = 2;

struct Shared {
    limit_bytes: AtomicUsize,
    allow_stall: AtomicBool,
    /// Cache that is also charged with the memtables' memory.
    cache: Option<ChargedCache>,
    /// True if the budget is a share of that cache's capacity.
    is_part_of_cache: bool,
    /// The cache's charge. Lock: held while the charge is adjusted to `used`.
    of_cache: Mutex<Option<karst_mem::Charge>>,
    used: AtomicUsize,
    unflushed: AtomicUsize,
    active: AtomicUsize,
    shrunk: Event,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteBufferManager")
            .field("limit_bytes", &self.limit_bytes)
            .field("allow_stall", &self.allow_stall)
            .field("used", &self.used)
            .field("unflushed", &self.unflushed)
            .field("active", &self.active)
            .field("charges_a_cache", &self.cache.is_some())
            .finish_non_exhaustive()
    }
}

impl WriteBufferManager {
    /// Creates a budget of `limit_bytes`, 0 for none. When it is nearly used up, the database that
    /// notices flushes its largest memtable; with `allow_stall`, writers wait while it is exceeded.
    pub fn new(limit_bytes: usize, allow_stall: bool) -> Self {
        Self::charging(limit_bytes, None, false, allow_stall)
    }

    /// Creates a budget like [`new`](Self::new) that also charges the memtables' memory to `cache`,
    /// which evicts blocks to make room. Memtables are never refused: if nothing can be evicted
    /// they exceed the capacity, even a strict one.
    pub fn with_cache(limit_bytes: usize, cache: impl Into<ChargedCache>, allow_stall: bool) -> Self {
        Self::charging(limit_bytes, Some(cache.into()), false, allow_stall)
    }

    /// Creates a charging budget of half the capacity of `cache`, which follows capacity changes;
    /// writers wait while it is exceeded.
    #[doc(hidden)]
    pub fn part_of_cache(cache: impl Into<ChargedCache>) -> Self {
        Self::charging(0, Some(cache.into()), true, true)
    }

    fn charging(
        limit_bytes: usize,
        cache: Option<ChargedCache>,
        is_part_of_cache: bool,
        allow_stall: bool,
    ) -> Self {
        let budget = Self(Arc::new(Shared {
            limit_bytes: AtomicUsize::new(limit_bytes),
            allow_stall: AtomicBool::new(allow_stall),
            cache,
            is_part_of_cache,
            of_cache: Mutex::new(None),
            used: AtomicUsize::new(0),
            unflushed: AtomicUsize::new(0),
            active: AtomicUsize::new(0),
            shrunk: Event::new(),
        }));
        budget.0.follow_capacity();
        budget
    }

    /// Returns the budget in bytes; 0 for none.
    #[inline]
    pub fn limit_bytes(&self) -> usize {
        self.0.limit_bytes.load(Ordering::Relaxed)
    }

    /// Changes the budget.
    pub fn set_limit_bytes(&self, bytes: usize) {
        self.0.limit_bytes.store(bytes, Ordering::Relaxed);
        self.0.shrunk.notify(usize::MAX);
    }

    /// Sets whether writers wait while the budget is exceeded. Wakes waiting writers to check
    /// again.
    pub fn set_allow_stall(&self, allow: bool) {
        self.0.allow_stall.store(allow, Ordering::Relaxed);
        self.0.shrunk.notify(usize::MAX);
    }

    /// Returns the bytes now charged to the cache for memtables; 0 without a cache.
    pub fn charged_cache_bytes(&self) -> usize {
        self.0.of_cache.lock().as_ref().map_or(0, karst_mem::Charge::bytes)
    }

    /// Returns the bytes of all memtables.
    #[inline]
    pub fn used_bytes(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }

    /// Returns the bytes of memtables that are not in tables yet.
    #[inline]
    pub fn unflushed_bytes(&self) -> usize {
        self.0.unflushed.load(Ordering::Relaxed)
    }

    /// Returns the bytes of memtables that accept writes.
    #[inline]
    pub fn active_bytes(&self) -> usize {
        self.0.active.load(Ordering::Relaxed)
    }

    /// Returns the maximum size of the stock of free blocks, in bytes: the smaller of the unused
    /// budget and a small share of a charged cache. `None` without either.
    #[doc(hidden)]
    pub fn spare_bytes(&self) -> Option<usize> {
        let of_budget = match self.limit_bytes() {
            0 => None,
            limit => Some(limit.saturating_sub(self.used_bytes())),
        };
        let of_cache = self.0.cache.as_ref().map(|cache| (cache.capacity_bytes)() / STOCK_PART);
        of_budget.into_iter().chain(of_cache).min()
    }

    /// Returns the bytes of free blocks kept for the next memtables of any database in this
    /// process. Not counted by any budget.
    pub fn stock_bytes() -> usize {
        karst_mem::stock_bytes()
    }

    /// Trims the stock of free blocks to its maximum size.
    ///
    /// The stock is not counted as used because it would never shrink and would stall writers for
    /// ever. Each budget bounds all of it because the stock is per process.
    fn bound_stock(&self) {
        if let Some(spare_bytes) = self.spare_bytes() {
            karst_mem::trim_stock(spare_bytes);
        }
    }

    /// Returns true if a memtable should be sealed and flushed.
    ///
    /// Compat: as in RocksDB, if active memtables use seven eighths of the budget; or if the budget
    /// is used up and at least half of it is active, because otherwise the flushes under way free
    /// enough.
    #[inline]
    pub fn should_flush(&self) -> bool {
        self.should_flush_beside(0)
    }

    /// Returns `should_flush` for the state after `sealed_bytes` of the active memtables are
    /// sealed.
    #[doc(hidden)]
    #[inline]
    pub fn should_flush_beside(&self, sealed_bytes: usize) -> bool {
        let limit = self.limit_bytes();
        let active = self.active_bytes().saturating_sub(sealed_bytes);
        limit > 0 && (active > limit / 8 * 7 || (self.used_bytes() >= limit && active >= limit / 2))
    }

    /// Returns true if writers should wait: unflushed memtables use the whole budget.
    #[inline]
    pub fn should_stall(&self) -> bool {
        let limit = self.limit_bytes();
        self.0.allow_stall.load(Ordering::Relaxed) && limit > 0 && self.unflushed_bytes() >= limit
    }

    /// Returns a listener that resolves when memory was released. Listen, call
    /// [`should_stall`](Self::should_stall) again, then wait.
    #[doc(hidden)]
    pub fn listen(&self) -> EventListener {
        self.0.shrunk.listen()
    }

    /// Creates the charge of a new memtable.
    #[doc(hidden)]
    pub fn charge(&self) -> Charge {
        let [bytes, flushed, sealed] = [(); 3].map(|()| AtomicUsize::new(0));
        Charge { budget: self.clone(), bytes, flushed, sealed }
    }
}

impl Shared {
    /// Updates a budget that is a share of the cache's capacity.
    fn follow_capacity(&self) {
        if let Some(cache) = self.cache.as_ref().filter(|_| self.is_part_of_cache) {
            self.limit_bytes.store((cache.capacity_bytes)() / PART_OF_CACHE, Ordering::Relaxed);
        }
    }

    /// Raises the cache's charge to the bytes used.
    fn charge_cache(&self) {
        let Some(cache) = &self.cache else { return };
        let mut of_cache = self.of_cache.lock();
        let has = of_cache.as_ref().map_or(0, karst_mem::Charge::bytes);
        let used = self.used.load(Ordering::Relaxed);
        if used > has {
            let more = (cache.reserve)(used - has);
            match &mut *of_cache {
                Some(charge) => charge.absorb(more),
                none => *none = Some(more),
            }
        }
    }

    /// Releases a dropped memtable's memory from the cache's charge: the whole charge after the
    /// last memtable, otherwise at most one `GIVEN_BACK`th of it.
    ///
    /// Not released at once because writers will need it again. Blocks cached in between would then
    /// be evicted one by one, and the allocator keeps the memory of such blocks: the process would
    /// hold the peak of both.
    fn relieve_cache(&self) {
        let mut of_cache = self.of_cache.lock();
        let Some(charge) = &mut *of_cache else { return };
        match self.used.load(Ordering::Relaxed) {
            0 => *of_cache = None,
            used => charge.shrink_to(used.max(charge.bytes() - charge.bytes() / GIVEN_BACK)),
        }
    }
}

/// A memtable's drop releases at most the cache's charge divided by this while others are left.
const GIVEN_BACK: usize = 8;

/// A memtable's share of the budget.
#[derive(Debug)]
pub struct Charge {
    budget: WriteBufferManager,
    bytes: AtomicUsize,
    /// Bytes of `bytes` that no longer count as unflushed.
    flushed: AtomicUsize,
    /// Bytes of `bytes` that no longer count as active.
    sealed: AtomicUsize,
}

impl Charge {
    /// Minimum growth, in bytes, that updates the shared counters.
    const GRAIN: usize = 32 << 10;

    /// Updates the charge to the memtable's size. Any writer may call it, even with an outdated
    /// size.
    #[inline]
    pub fn follow(&self, memory_bytes: usize) {
        let charged = self.bytes.load(Ordering::Relaxed);
        // The first bytes count at once, so that many small memtables are not missed.
        if memory_bytes >= charged + Self::GRAIN || charged == 0 {
            self.raise(charged, memory_bytes);
        }
    }

    #[cold]
    fn raise(&self, charged: usize, to: usize) {
        // No loop, because the winner has just raised it to about the same value.
        if self.bytes.compare_exchange(charged, to, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.budget.0.follow_capacity();
            self.budget.0.used.fetch_add(to - charged, Ordering::Relaxed);
            self.budget.0.unflushed.fetch_add(to - charged, Ordering::Relaxed);
            self.budget.0.active.fetch_add(to - charged, Ordering::Relaxed);
            self.budget.0.charge_cache();
            self.budget.bound_stock();
        }
    }

    /// Marks the memtable as accepting no more writes.
    pub fn seal(&self) {
        let bytes = self.bytes.load(Ordering::Relaxed);
        let before = self.sealed.swap(bytes, Ordering::Relaxed);
        self.budget.0.active.fetch_sub(bytes.saturating_sub(before), Ordering::Relaxed);
    }

    /// Marks the sealed memtable as flushed or discarded: writers no longer wait for its memory,
    /// even if readers still hold it.
    pub fn flushed(&self) {
        let bytes = self.bytes.load(Ordering::Relaxed);
        let before = self.flushed.swap(bytes, Ordering::Relaxed);
        self.budget.0.unflushed.fetch_sub(bytes.saturating_sub(before), Ordering::Relaxed);
        self.budget.0.shrunk.notify(usize::MAX);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let bytes = *self.bytes.get_mut();
        let (flushed, sealed) = (*self.flushed.get_mut(), *self.sealed.get_mut());
        self.budget.0.unflushed.fetch_sub(bytes - flushed, Ordering::Relaxed);
        self.budget.0.used.fetch_sub(bytes, Ordering::Relaxed);
        self.budget.0.active.fetch_sub(bytes - sealed, Ordering::Relaxed);
        self.budget.0.relieve_cache();
        self.budget.0.shrunk.notify(usize::MAX);
        // Trimmed here too because the dropped memtable's memory has just become stock.
        self.budget.bound_stock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1 << 10;

    #[test]
    fn charges_add_up_and_vanish() {
        let budget = WriteBufferManager::new(0, false);
        let (a, b) = (budget.charge(), budget.charge());
        a.follow(100 * KIB);
        a.follow(90 * KIB); // read earlier, reported later
        a.follow(101 * KIB); // below the grain
        b.follow(64 * KIB);
        assert_eq!((budget.used_bytes(), budget.active_bytes()), (164 * KIB, 164 * KIB));
        a.seal();
        assert_eq!((budget.used_bytes(), budget.active_bytes()), (164 * KIB, 64 * KIB));
        // A writer was still inserting when the memtable was sealed.
        a.follow(200 * KIB);
        a.seal();
        assert_eq!((budget.used_bytes(), budget.active_bytes()), (264 * KIB, 64 * KIB));
        assert_eq!(budget.unflushed_bytes(), 264 * KIB);
        a.flushed();
        assert_eq!((budget.used_bytes(), budget.unflushed_bytes()), (264 * KIB, 64 * KIB));
        drop((a, b));
        assert_eq!((budget.used_bytes(), budget.active_bytes(), budget.unflushed_bytes()), (0, 0, 0));
        let small = budget.charge();
        small.follow(KIB);
        assert_eq!(budget.used_bytes(), KIB, "the first bytes count at once");
        drop(small);
        assert!(!budget.should_flush() && !budget.should_stall());
    }

    #[test]
    fn what_memtables_leave_of_the_budget_is_told() {
        let none = WriteBufferManager::new(0, false);
        assert_eq!(none.spare_bytes(), None);
        let budget = WriteBufferManager::new(1024 * KIB, false);
        let charge = budget.charge();
        charge.follow(1000 * KIB);
        assert_eq!(budget.spare_bytes(), Some(24 * KIB));
        charge.follow(1100 * KIB);
        assert_eq!(budget.spare_bytes(), Some(0));
        drop(charge);
        assert_eq!(budget.spare_bytes(), Some(1024 * KIB));
    }

    #[test]
    fn flushes_what_helps_and_stalls_when_full() {
        let budget = WriteBufferManager::new(1024 * KIB, true);
        let (a, b) = (budget.charge(), budget.charge());
        a.follow(800 * KIB);
        assert!(!budget.should_flush());
        a.follow(900 * KIB);
        assert!(budget.should_flush());
        a.seal();
        b.follow(400 * KIB);
        // Over the budget, but most of it is sealed and will be flushed soon.
        assert!(!budget.should_flush() && budget.should_stall());
        b.follow(600 * KIB);
        assert!(budget.should_flush());
        // Waiting writers wake when stalling is disabled.
        let listener = budget.listen();
        budget.set_allow_stall(false);
        assert!(!budget.should_stall());
        karst_io::block_on(&karst_io::Env::posix(), listener);
        budget.set_allow_stall(true);
        assert!(budget.should_stall());
        let listener = budget.listen();
        // A reader still holds the memtable.
        a.flushed();
        assert!(!budget.should_stall() && budget.used_bytes() >= 1024 * KIB);
        karst_io::block_on(&karst_io::Env::posix(), listener);
    }
}
