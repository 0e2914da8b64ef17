//! Every interleaving of small scenarios on the cache. Run as the crate's head says.

use super::*;
use loom::sync::Arc;
use loom::thread;

/// A value that tells, through the count of live ones, of a leak or a double drop.
struct Value {
    number: u64,
    live: Arc<loom::sync::atomic::AtomicUsize>,
}

impl Drop for Value {
    fn drop(&mut self) {
        assert_ne!(self.live.fetch_sub(1, Ordering::SeqCst), 0);
        self.number = u64::MAX;
    }
}

struct Scene {
    cache: Arc<BlockCache<Value>>,
    live: Arc<loom::sync::atomic::AtomicUsize>,
}

impl Scene {
    fn new(entries: usize) -> Self {
        let capacity_bytes = entries * (1 + BlockCache::<Value>::ENTRY_OVERHEAD_BYTES);
        let cache = BlockCache::new(CacheOptions {
            capacity_bytes,
            estimated_entry_bytes: 1,
            strict_capacity: false,
            metadata_fraction: 0.5,
        });
        Self { cache: Arc::new(cache), live: Arc::new(loom::sync::atomic::AtomicUsize::new(0)) }
    }

    fn put(&self, key: u64, number: u64) -> Handle<Value> {
        self.live.fetch_add(1, Ordering::SeqCst);
        self.cache.insert(CacheKey(key, 0), Value { number, live: self.live.clone() }, 1, Priority::Low)
    }

    fn fork(&self, body: impl FnOnce(Scene) + 'static) -> thread::JoinHandle<()> {
        let scene = Scene { cache: self.cache.clone(), live: self.live.clone() };
        thread::spawn(move || body(scene))
    }

    fn get(&self, key: u64) -> Option<Handle<Value>> {
        self.cache.get(CacheKey(key, 0))
    }

    /// Every value is dropped exactly once, with the cache.
    fn end(self) {
        drop(self.cache);
        assert_eq!(self.live.load(Ordering::SeqCst), 0);
    }
}

#[test]
fn loom_get_against_insert() {
    loom::model(|| {
        let scene = Scene::new(4);
        let other = scene.fork(|s| drop(s.put(1, 10)));
        if let Some(found) = scene.get(1) {
            assert_eq!(found.number, 10);
        }
        other.join().unwrap();
        assert_eq!(scene.get(1).unwrap().number, 10);
        scene.end();
    });
}
