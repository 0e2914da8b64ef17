//! Removal of an obsolete table's blocks from the block cache (`uncache_aggressiveness`), because
//! they are no longer used.
//!
//! In: an open table without readers, and the aggressiveness. Out: a cache with fewer of its
//! blocks. Causes no reads: the blocks are listed by indexes in memory.
//!
//! Compat: like RocksDB, it continues while at least about `0.99 ^ (aggressiveness - 1)` of the
//! blocks looked up are found.

use super::{MetaBlock, Table, add_handles_in};
use crate::block::CachedBlock;
use karst_format::handle::BlockHandle;
use karst_mem::BlockCache;
use std::sync::Arc;

/// Number of misses allowed before the hit rate is checked.
const FIRST_MISSES: u32 = 3;

/// Decides if looking up more blocks is worthwhile.
#[derive(Debug)]
struct Advisor {
    allowed_misses: u32,
    threshold: f64,
    found: u32,
    missed: u32,
}

impl Advisor {
    fn new(aggressiveness: u32) -> Advisor {
        Advisor {
            allowed_misses: aggressiveness.min(FIRST_MISSES),
            threshold: 0.99_f64.powf(f64::from(aggressiveness) - 1.0),
            found: 0,
            missed: 0,
        }
    }

    fn goes_on(&self) -> bool {
        let (found, all) = (f64::from(self.found), f64::from(self.found) + f64::from(self.missed));
        self.missed < self.allowed_misses || (found + 1.0) / (all + 1.5) >= self.threshold
    }

    fn note(&mut self, found: bool) {
        let count = if found { &mut self.found } else { &mut self.missed };
        *count = count.saturating_add(1);
    }
}

impl Table {
    /// Marks the file as obsolete, and sets the aggressiveness of removing its blocks from `cache`
    /// after its last reader; 0 removes none. Only the first call has an effect.
    pub fn mark_leaving(&self, cache: &Arc<BlockCache<CachedBlock>>, aggressiveness: u32) {
        if aggressiveness > 0 {
            self.leaving.get_or_init(|| (cache.clone(), aggressiveness));
        }
    }

    fn uncache(&self, cache: &BlockCache<CachedBlock>, aggressiveness: u32) {
        let erase = |handle: BlockHandle| cache.erase(self.cache_key(handle));
        if let Some(filter) = &self.filter {
            if filter.is_partitioned() {
                for partition in self.handles_in(cache, &filter.block) {
                    erase(partition);
                }
            }
            erase(filter.block.handle);
        }
        let mut named = self.handles_in(cache, &self.index);
        if self.index_is_partitioned() {
            let partitions = std::mem::take(&mut named);
            for partition in partitions {
                let block = cache.get(self.cache_key(partition));
                block.into_iter().for_each(|block| self.add_handles(&block, &mut named));
                erase(partition);
            }
        }
        let mut advisor = Advisor::new(aggressiveness);
        let mut named = named.into_iter();
        while advisor.goes_on()
            && let Some(handle) = named.next()
        {
            advisor.note(erase(handle));
        }
        erase(self.index.handle);
    }

    /// Returns the handles in an index block, if it is in memory.
    fn handles_in(&self, cache: &BlockCache<CachedBlock>, index: &MetaBlock) -> Vec<BlockHandle> {
        let mut handles = Vec::new();
        match &index.held {
            Some(block) => self.add_handles(block, &mut handles),
            None => {
                let block = cache.get(self.cache_key(index.handle));
                block.into_iter().for_each(|block| self.add_handles(&block, &mut handles));
            }
        }
        handles
    }

    fn add_handles(&self, block: &CachedBlock, handles: &mut Vec<BlockHandle>) {
        // Damage is ignored because the file is obsolete, and its blocks will be evicted anyway.
        let _ = add_handles_in(block, self.file.size(), handles);
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if let Some((cache, aggressiveness)) = self.leaving.take() {
            self.uncache(&cache, aggressiveness);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of lookups before it gives up if every `one_in`th block is cached.
    fn tries(aggressiveness: u32, one_in: u32) -> u32 {
        let mut advisor = Advisor::new(aggressiveness);
        (0..10_000)
            .find(|n| {
                let goes_on = advisor.goes_on();
                advisor.note(n % one_in == 0);
                !goes_on
            })
            .unwrap_or(10_000)
    }

    #[test]
    fn it_ends_where_too_little_is_found() {
        assert_eq!(tries(1, 1), 10_000, "everything is there");
        assert_eq!(tries(1, u32::MAX), 2, "one miss is enough");
        assert_eq!(tries(10_000, u32::MAX), 10_000, "whatever is there");
        assert!((3..30).contains(&tries(69, 10)) && tries(69, 1) == 10_000);
        assert_eq!(tries(300, 10), 10_000, "a tenth is more than a twentieth");
    }
}
