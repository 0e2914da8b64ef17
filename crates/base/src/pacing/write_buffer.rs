//! The budget of memtables, over column families and databases: RocksDB's `WriteBufferManager`.
//!
//! In: each memtable's [`Charge`], which follows its size. Out: whether some memtable should be
//! flushed now, and whether writers should wait.
//!
//! Memory that waits for the next memtables (`karst_mem`'s stock of blocks) is kept within what the
//! memtables leave of the budget, and within a small part of a cache that is charged.
//!
//! Invariant: `used` is the sum of all charges that live; `unflushed` of those whose memtables are
//! not in tables yet, `active` of those that still take writes. Writers wait for `unflushed` only:
//! what readers pin of flushed memtables goes when they do, and a writer may be such a reader.
//! Ordering: counters only; they steer, nothing is published with them.

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Event, EventListener};
use std::fmt;
use std::sync::Arc;

/// A budget for the memory of memtables. Cloning shares it.
#[derive(Clone, Debug)]
pub struct WriteBufferManager(Arc<Shared>);

/// A cache that is charged with what memtables take: the engine's block cache becomes one.
pub struct ChargedCache {
    /// Charges it with so many bytes.
    #[doc(hidden)]
    pub reserve: Box<dyn Fn(usize) -> karst_mem::Charge + Send + Sync>,
    #[doc(hidden)]
    pub capacity_bytes: Box<dyn Fn() -> usize + Send + Sync>,
}

/// The part of a charged cache that memory may have which waits for the next memtables.
const STOCK_PART: usize = 32;

/// The part of a cache's capacity that memtables may have where the cache is the only budget.
const PART_OF_CACHE: usize = 2;

struct Shared {
    limit_bytes: AtomicUsize,
    allow_stall: AtomicBool,
    /// What is charged with the memtables' memory as well.
    cache: Option<ChargedCache>,
    /// The budget is a part of that cache's capacity.
    is_part_of_cache: bool,
    /// What that is charged with. Lock: held to bring it up to what is used, or down.
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
    /// A budget of `limit_bytes`, 0 for none. When it is nearly used, the database that notices
    /// flushes its largest memtable; with `allow_stall` writers wait while it is exceeded.
    pub fn new(limit_bytes: usize, allow_stall: bool) -> Self {
        Self::charging(limit_bytes, None, false, allow_stall)
    }

    /// As [`new`](Self::new); the memtables' memory also counts against the capacity of `cache`,
    /// which evicts blocks to make room for it. Memtables are never refused: they exceed the
    /// capacity where nothing can be evicted, even if it is strict.
    pub fn with_cache(limit_bytes: usize, cache: impl Into<ChargedCache>, allow_stall: bool) -> Self {
        Self::charging(limit_bytes, Some(cache.into()), false, allow_stall)
    }

    /// As [`with_cache`](Self::with_cache) with a budget of half the capacity of `cache`, also
    /// after that was changed; writers wait while it is exceeded.
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

    /// The budget in bytes; 0 for none.
    #[inline]
    pub fn limit_bytes(&self) -> usize {
        self.0.limit_bytes.load(Ordering::Relaxed)
    }

    /// Changes the budget.
    pub fn set_limit_bytes(&self, bytes: usize) {
        self.0.limit_bytes.store(bytes, Ordering::Relaxed);
        self.0.shrunk.notify(usize::MAX);
    }

    /// Says whether writers wait from now on while the budget is exceeded. Those who wait go on
    /// once they need not.
    pub fn set_allow_stall(&self, allow: bool) {
        self.0.allow_stall.store(allow, Ordering::Relaxed);
        self.0.shrunk.notify(usize::MAX);
    }

    /// Bytes that the cache is charged with now for the memtables; 0 without a cache.
    pub fn charged_cache_bytes(&self) -> usize {
        self.0.of_cache.lock().as_ref().map_or(0, karst_mem::Charge::bytes)
    }

    /// Bytes of all memtables.
    #[inline]
    pub fn used_bytes(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }

    /// Bytes of the memtables that are not in tables yet.
    #[inline]
    pub fn unflushed_bytes(&self) -> usize {
        self.0.unflushed.load(Ordering::Relaxed)
    }

    /// Bytes of the memtables that take writes.
    #[inline]
    pub fn active_bytes(&self) -> usize {
        self.0.active.load(Ordering::Relaxed)
    }

    /// How much memory may wait for the next memtables: what those there are leave of the budget,
    /// and a small part of a cache that is charged. `None` without either.
    #[doc(hidden)]
    pub fn spare_bytes(&self) -> Option<usize> {
        let of_budget = match self.limit_bytes() {
            0 => None,
            limit => Some(limit.saturating_sub(self.used_bytes())),
        };
        let of_cache = self.0.cache.as_ref().map(|cache| (cache.capacity_bytes)() / STOCK_PART);
        of_budget.into_iter().chain(of_cache).min()
    }

    /// Bytes that wait for the next memtables of any database of this process. No budget counts
    /// them.
    pub fn stock_bytes() -> usize {
        karst_mem::stock_bytes()
    }

    /// Keeps the memory that waits for the next memtables within what it may have.
    ///
    /// Why it is not counted as used: it would be there to stay, and hold writers up for ever. Why
    /// each budget bounds it as if it were its own: it is the process's.
    fn bound_stock(&self) {
        if let Some(spare_bytes) = self.spare_bytes() {
            karst_mem::trim_stock(spare_bytes);
        }
    }

    /// Whether a memtable should be sealed and flushed.
    ///
    /// Compat: as in RocksDB, when those that take writes have seven eighths of the budget; or when
    /// the budget is used up and half of it or more is theirs, for otherwise flushes that are under
    /// way free enough.
    #[inline]
    pub fn should_flush(&self) -> bool {
        self.should_flush_beside(0)
    }

    /// The same once `sealed_bytes` of the memtables that take writes are sealed.
    #[doc(hidden)]
    #[inline]
    pub fn should_flush_beside(&self, sealed_bytes: usize) -> bool {
        let limit = self.limit_bytes();
        let active = self.active_bytes().saturating_sub(sealed_bytes);
        limit > 0 && (active > limit / 8 * 7 || (self.used_bytes() >= limit && active >= limit / 2))
    }

    /// Whether writers should wait: memtables that are not flushed have the whole budget.
    #[inline]
    pub fn should_stall(&self) -> bool {
        let limit = self.limit_bytes();
        self.0.allow_stall.load(Ordering::Relaxed) && limit > 0 && self.unflushed_bytes() >= limit
    }

    /// Resolves when memory was given back. Listen, ask [`should_stall`](Self::should_stall) again,
    /// then wait.
    #[doc(hidden)]
    pub fn listen(&self) -> EventListener {
        self.0.shrunk.listen()
    }

    /// The charge of a new memtable.
    #[doc(hidden)]
    pub fn charge(&self) -> Charge {
        let [bytes, flushed, sealed] = [(); 3].map(|()| AtomicUsize::new(0));
        Charge { budget: self.clone(), bytes, flushed, sealed }
    }
}

impl Shared {
    /// Brings a budget that is a part of the cache's capacity up to what that is now.
    fn follow_capacity(&self) {
        if let Some(cache) = self.cache.as_ref().filter(|_| self.is_part_of_cache) {
            self.limit_bytes.store((cache.capacity_bytes)() / PART_OF_CACHE, Ordering::Relaxed);
        }
    }

    /// Brings the cache's charge up to what is used.
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

    /// Gives the cache back what a memtable had: all of it if there is none left, else no more than
    /// a part of all memtables'.
    ///
    /// Why not all of it: writers that go on will want it again. Blocks that took its place in
    /// between would have to be evicted then one by one, and the memory of blocks that come and go
    /// stays with the allocator: the process would have the most of both.
    fn relieve_cache(&self) {
        let mut of_cache = self.of_cache.lock();
        let Some(charge) = &mut *of_cache else { return };
        match self.used.load(Ordering::Relaxed) {
            0 => *of_cache = None,
            used => charge.shrink_to(used.max(charge.bytes() - charge.bytes() / GIVEN_BACK)),
        }
    }
}

/// The part of the cache's charge that a memtable gives back at most when others are left.
const GIVEN_BACK: usize = 8;

/// A memtable's part of the budget.
#[derive(Debug)]
pub struct Charge {
    budget: WriteBufferManager,
    bytes: AtomicUsize,
    /// Of them, what does not count as unflushed any more.
    flushed: AtomicUsize,
    /// Of them, what does not count as active any more.
    sealed: AtomicUsize,
}

impl Charge {
    /// Growth below this is not worth a shared counter.
    const GRAIN: usize = 32 << 10;

    /// Follows the memtable's size. Any writer may call it, with whatever size it has read.
    #[inline]
    pub fn follow(&self, memory_bytes: usize) {
        let charged = self.bytes.load(Ordering::Relaxed);
        // Why the first bytes at once: many small memtables are not to go uncounted.
        if memory_bytes >= charged + Self::GRAIN || charged == 0 {
            self.raise(charged, memory_bytes);
        }
    }

    #[cold]
    fn raise(&self, charged: usize, to: usize) {
        // Why not a loop: whoever wins has just raised it to about the same.
        if self.bytes.compare_exchange(charged, to, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.budget.0.follow_capacity();
            self.budget.0.used.fetch_add(to - charged, Ordering::Relaxed);
            self.budget.0.unflushed.fetch_add(to - charged, Ordering::Relaxed);
            self.budget.0.active.fetch_add(to - charged, Ordering::Relaxed);
            self.budget.0.charge_cache();
            self.budget.bound_stock();
        }
    }

    /// Says that the memtable takes no writes any more: its memory is on the way out.
    pub fn seal(&self) {
        let bytes = self.bytes.load(Ordering::Relaxed);
        let before = self.sealed.swap(bytes, Ordering::Relaxed);
        self.budget.0.active.fetch_sub(bytes.saturating_sub(before), Ordering::Relaxed);
    }

    /// Says that the memtable, which is sealed, is in tables, or that it never will be: no writer
    /// waits for it any more, whoever reads it still.
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
        // Why here too: the memory of the memtable that goes has just become stock.
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
        a.follow(101 * KIB); // not worth it
        b.follow(64 * KIB);
        assert_eq!((budget.used_bytes(), budget.active_bytes()), (164 * KIB, 164 * KIB));
        a.seal();
        assert_eq!((budget.used_bytes(), budget.active_bytes()), (164 * KIB, 64 * KIB));
        // A writer that was still inside when it was sealed.
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
        // Over the budget, but what is sealed goes soon.
        assert!(!budget.should_flush() && budget.should_stall());
        b.follow(600 * KIB);
        assert!(budget.should_flush());
        // Who waits is woken where waiting is no more allowed.
        let listener = budget.listen();
        budget.set_allow_stall(false);
        assert!(!budget.should_stall());
        karst_io::block_on(&karst_io::Env::posix(), listener);
        budget.set_allow_stall(true);
        assert!(budget.should_stall());
        let listener = budget.listen();
        // Somebody reads it still.
        a.flushed();
        assert!(!budget.should_stall() && budget.used_bytes() >= 1024 * KIB);
        karst_io::block_on(&karst_io::Env::posix(), listener);
    }
}
