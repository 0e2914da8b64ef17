//! The cache one call at a time, and threads that race.

use super::*;

const OVERHEAD: usize = BlockCache::<u64>::ENTRY_OVERHEAD_BYTES;

fn cache(entries: usize, charge_bytes: usize) -> BlockCache<u64> {
    BlockCache::new(CacheOptions {
        capacity_bytes: entries * (charge_bytes + OVERHEAD),
        estimated_entry_bytes: charge_bytes,
        ..CacheOptions::default()
    })
}

#[test]
fn what_was_put_in_is_found() {
    let cache = cache(100, 1000);
    let key = CacheKey(1, 2);
    assert!(cache.get(key).is_none());
    assert_eq!(*cache.insert(key, 7, 1000, Priority::Low), 7);
    assert_eq!(*cache.get(key).unwrap(), 7);
    // The existing entry wins.
    assert_eq!(*cache.insert(key, 8, 1000, Priority::Low), 7);
    assert_eq!(cache.usage_bytes(), 1000 + OVERHEAD);
    let c = cache.counters();
    assert_eq!((c.hits, c.misses, c.inserts, c.entries, c.low_bytes), (1, 1, 1, 1, 1000 + OVERHEAD));
}
