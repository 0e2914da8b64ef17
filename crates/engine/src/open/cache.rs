//! The block cache handle that databases share.

use karst_base::pacing::ChargedCache;
use karst_mem::CacheOptions;
use karst_storage::block::CachedBlock;
use karst_storage::budget;
use std::sync::Arc;

/// A cache of uncompressed blocks. Clones share it; several databases may use one.
#[derive(Clone)]
pub struct BlockCache(Arc<karst_mem::BlockCache<CachedBlock>>);

impl std::fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockCache")
            .field("capacity_bytes", &self.capacity_bytes())
            .field("usage_bytes", &self.usage_bytes())
            .finish()
    }
}

impl BlockCache {
    /// Creates a cache of `capacity_bytes`; 0 caches nothing.
    pub fn new(capacity_bytes: usize) -> Self {
        Self::with_options(CacheOptions { capacity_bytes, ..CacheOptions::default() })
    }

    /// Creates a cache with all its options: strictness, the part kept for metadata, the size of a
    /// typical block.
    pub fn with_options(options: CacheOptions) -> Self {
        Self(Arc::new(karst_mem::BlockCache::new(options)))
    }

    /// Returns the capacity in bytes.
    pub fn capacity_bytes(&self) -> usize {
        self.0.capacity_bytes()
    }

    /// Changes the capacity; entries are evicted as others are inserted.
    pub fn set_capacity(&self, bytes: usize) {
        self.0.set_capacity(bytes);
    }

    /// Returns the bytes of cached blocks, and of other memory charged to the cache.
    pub fn usage_bytes(&self) -> usize {
        self.0.usage_bytes()
    }

    /// Returns the bytes of memory that the cache takes: [`usage_bytes`](Self::usage_bytes), and
    /// unused space in its hash tables.
    pub fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }

    /// Returns the bytes of memtables in its usage; see
    /// [`WriteBufferManager::with_cache`](crate::WriteBufferManager::with_cache).
    pub fn memtable_bytes(&self) -> usize {
        self.0.charged_bytes(budget::MEMTABLES)
    }

    /// Returns the bytes in its usage that open tables keep outside of it; see
    /// [`Options::one_memory_budget`](crate::Options::one_memory_budget).
    pub fn table_bytes(&self) -> usize {
        self.0.charged_bytes(budget::TABLES)
    }

    /// Returns the bytes in its usage of reads in flight and of iterators' readahead; see
    /// [`Options::one_memory_budget`](crate::Options::one_memory_budget).
    pub fn read_bytes(&self) -> usize {
        self.0.charged_bytes(budget::READS)
    }

    /// Returns the bytes in its usage that flushes and compactions buffer of the files they write;
    /// see [`Options::one_memory_budget`](crate::Options::one_memory_budget).
    pub fn job_bytes(&self) -> usize {
        self.0.charged_bytes(budget::JOBS)
    }

    /// Returns the bytes of cached blocks that reads, values or open tables hold.
    pub fn pinned_bytes(&self) -> usize {
        self.0.pinned_bytes()
    }

    /// Returns the number of cached blocks.
    pub fn entry_count(&self) -> usize {
        self.0.entry_count()
    }

    pub(crate) fn shared(&self) -> &Arc<karst_mem::BlockCache<CachedBlock>> {
        &self.0
    }
}

impl From<&BlockCache> for ChargedCache {
    fn from(cache: &BlockCache) -> Self {
        charged(&cache.0)
    }
}

/// Returns callbacks that charge `cache` with the memory of memtables.
pub(crate) fn charged(cache: &Arc<karst_mem::BlockCache<CachedBlock>>) -> ChargedCache {
    let (reserves, tells) = (cache.clone(), cache.clone());
    ChargedCache {
        reserve: Box::new(move |bytes| reserves.reserve(budget::MEMTABLES, bytes)),
        capacity_bytes: Box::new(move || tells.capacity_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use karst_base::pacing::WriteBufferManager;

    const KIB: usize = 1 << 10;

    #[test]
    fn a_cache_gets_room_back_little_by_little_while_there_are_memtables() {
        let cache = BlockCache::new(6400 * KIB);
        let budget = WriteBufferManager::with_cache(0, &cache, false);
        let (a, b) = (budget.charge(), budget.charge());
        a.follow(400 * KIB);
        b.follow(400 * KIB);
        assert_eq!(cache.memtable_bytes(), 800 * KIB);
        drop(a);
        assert_eq!((budget.used_bytes(), cache.memtable_bytes()), (400 * KIB, 700 * KIB));
        b.follow(600 * KIB);
        assert_eq!(cache.memtable_bytes(), 700 * KIB, "which there is room for");
        b.follow(900 * KIB);
        assert_eq!(cache.memtable_bytes(), 900 * KIB);
        drop(b);
        assert_eq!((cache.memtable_bytes(), cache.usage_bytes()), (0, 0));
    }

    #[test]
    fn memory_waits_for_memtables_within_a_part_of_the_cache_they_are_charged_to() {
        let cache = BlockCache::new(6400 * KIB);
        let budget = WriteBufferManager::with_cache(0, &cache, false);
        assert_eq!(budget.spare_bytes(), Some(200 * KIB));
        cache.set_capacity(3200 * KIB);
        assert_eq!(budget.spare_bytes(), Some(100 * KIB));
        budget.set_limit_bytes(50 * KIB);
        assert_eq!(budget.spare_bytes(), Some(50 * KIB), "whichever is less");
    }
}
