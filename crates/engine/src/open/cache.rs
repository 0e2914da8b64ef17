//! The block cache as its owner sees it: a handle to share between databases.

use crate::pacing::{ChargedCache, WriteBufferManager};
use crate::table::{CachedBlock, budget};
use karst_mem::CacheOptions;
use std::sync::Arc;

/// A cache of uncompressed blocks. Cloning shares it; several databases may use one.
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
    /// A cache of `capacity_bytes`; 0 caches nothing.
    pub fn new(capacity_bytes: usize) -> Self {
        Self::with_options(CacheOptions { capacity_bytes, ..CacheOptions::default() })
    }

    /// A cache with all its options: strictness, the part kept for metadata, the size of a typical block.
    pub fn with_options(options: CacheOptions) -> Self {
        Self(Arc::new(karst_mem::BlockCache::new(options)))
    }

    /// Its capacity in bytes.
    pub fn capacity_bytes(&self) -> usize {
        self.0.capacity_bytes()
    }

    /// Changes its capacity; entries are evicted as others come.
    pub fn set_capacity(&self, bytes: usize) {
        self.0.set_capacity(bytes);
    }

    /// Bytes of blocks in it, and of what else is charged to it.
    pub fn usage_bytes(&self) -> usize {
        self.0.usage_bytes()
    }

    /// Of those, bytes of memtables; see [`WriteBufferManager::with_cache`].
    pub fn memtable_bytes(&self) -> usize {
        self.0.charged_bytes(budget::MEMTABLES)
    }

    /// Of those, bytes that open tables keep outside of it; see [`Options::one_memory_budget`](crate::Options::one_memory_budget).
    pub fn table_bytes(&self) -> usize {
        self.0.charged_bytes(budget::TABLES)
    }

    /// Of those, bytes of reads in flight and of what iterators have read ahead; see [`Options::one_memory_budget`](crate::Options::one_memory_budget).
    pub fn read_bytes(&self) -> usize {
        self.0.charged_bytes(budget::READS)
    }

    /// Of those, bytes that flushes and compactions have in memory of the files they write; see
    /// [`Options::one_memory_budget`](crate::Options::one_memory_budget).
    pub fn job_bytes(&self) -> usize {
        self.0.charged_bytes(budget::JOBS)
    }

    /// Bytes of blocks in it that reads, values or open tables hold on to.
    pub fn pinned_bytes(&self) -> usize {
        self.0.pinned_bytes()
    }

    /// How many blocks are in it.
    pub fn entry_count(&self) -> usize {
        self.0.entry_count()
    }

    pub(crate) fn shared(&self) -> &Arc<karst_mem::BlockCache<CachedBlock>> {
        &self.0
    }
}

impl WriteBufferManager {
    /// As [`new`](Self::new); the memtables' memory also counts against the capacity of `cache`, which evicts blocks to make room for it. Memtables are never refused: they
    /// exceed the capacity where nothing can be evicted, even if it is strict.
    pub fn with_cache(limit_bytes: usize, cache: &BlockCache, allow_stall: bool) -> Self {
        Self::with_shared_cache(limit_bytes, &cache.0, allow_stall)
    }

    pub(crate) fn with_shared_cache(
        limit_bytes: usize,
        cache: &Arc<karst_mem::BlockCache<CachedBlock>>,
        allow_stall: bool,
    ) -> Self {
        let (reserves, tells) = (cache.clone(), cache.clone());
        let charged = ChargedCache {
            reserve: Box::new(move |bytes| reserves.reserve(budget::MEMTABLES, bytes)),
            capacity_bytes: Box::new(move || tells.capacity_bytes()),
        };
        Self::charging(limit_bytes, Some(charged), allow_stall)
    }
}
