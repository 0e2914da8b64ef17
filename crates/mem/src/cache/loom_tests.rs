//! Every interleaving of small scenarios on the cache. The crate documentation has the command.

use super::*;
use loom::sync::Arc;
use loom::thread;

/// A value that reveals a leak or a double drop through the count of live values.
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

    /// Drops the cache, and checks that every value was dropped exactly once.
    fn end(self) {
        drop(self.cache);
        assert_eq!(self.live.load(Ordering::SeqCst), 0);
    }
}

/// Explores every interleaving with at most this many preemptions; each scenario is exhaustive
/// within that bound.
fn model(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    // Raised, because the hand passes a small table several times in search of room.
    builder.max_branches = 20_000;
    builder.check(body);
}

#[test]
fn loom_get_against_insert() {
    model(4, || {
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

#[test]
fn loom_insert_against_insert_of_the_same_key() {
    model(3, || {
        let scene = Scene::new(4);
        let other = scene.fork(|s| assert_eq!(s.put(1, 10).number / 10, 1));
        assert_eq!(scene.put(1, 11).number / 10, 1);
        other.join().unwrap();
        assert_eq!(scene.get(1).unwrap().number / 10, 1);
        assert!(scene.cache.erase(CacheKey(1, 0)));
        assert!(scene.get(1).is_none());
        scene.end();
    });
}

#[test]
fn loom_get_against_eviction() {
    model(3, || {
        // Room for one entry: the second insert must evict the first, unless it is pinned at that
        // moment.
        let scene = Scene::new(1);
        drop(scene.put(1, 10));
        let other = scene.fork(|s| assert_eq!(s.put(2, 20).number, 20));
        if let Some(found) = scene.get(1) {
            assert_eq!(found.number, 10);
            let again = found.clone();
            drop(found);
            assert_eq!(again.number, 10);
        }
        other.join().unwrap();
        scene.end();
    });
}

#[test]
fn loom_get_against_erase() {
    model(4, || {
        let scene = Scene::new(4);
        drop(scene.put(1, 10));
        let other = scene.fork(|s| {
            assert!(s.cache.erase(CacheKey(1, 0)));
            assert!(s.get(1).is_none());
        });
        if let Some(found) = scene.get(1) {
            assert_eq!(found.number, 10);
        }
        other.join().unwrap();
        assert!(scene.get(1).is_none());
        scene.end();
    });
}

#[test]
fn loom_release_against_erase_and_eviction() {
    model(3, || {
        let scene = Scene::new(1);
        let pinned = scene.put(1, 10);
        let other = scene.fork(move |s| {
            assert_eq!(pinned.number, 10);
            drop(pinned);
            assert!(s.get(1).is_none_or(|h| h.number == 10));
        });
        scene.cache.erase(CacheKey(1, 0));
        drop(scene.put(2, 20));
        other.join().unwrap();
        scene.end();
    });
}

#[test]
fn loom_a_slot_used_again_is_not_taken_for_its_former_entry() {
    model(3, || {
        let scene = Scene::new(4);
        drop(scene.put(1, 10));
        let other = scene.fork(|s| {
            s.cache.erase(CacheKey(1, 0));
            drop(s.put(2, 20));
        });
        if let Some(found) = scene.get(1) {
            assert_eq!(found.number, 10);
        }
        if let Some(found) = scene.get(2) {
            assert_eq!(found.number, 20);
        }
        other.join().unwrap();
        scene.end();
    });
}

#[test]
fn loom_releases_against_the_end_of_the_cache() {
    model(4, || {
        let scene = Scene::new(4);
        let (a, b) = (scene.put(1, 10), scene.put(2, 20));
        let a_again = a.clone();
        let first = thread::spawn(move || {
            assert_eq!(a.number, 10);
            drop((a, b));
        });
        let second = thread::spawn(move || {
            assert_eq!(a_again.number, 10);
            drop(a_again.clone());
            drop(a_again);
        });
        let live = scene.live.clone();
        drop(scene);
        first.join().unwrap();
        second.join().unwrap();
        assert_eq!(live.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn loom_standalone_handles() {
    model(4, || {
        let scene = Scene::new(0);
        let handle = scene.put(1, 10);
        let again = handle.clone();
        let other = thread::spawn(move || {
            assert_eq!(again.number, 10);
            drop(again);
        });
        let live = scene.live.clone();
        drop(handle);
        drop(scene);
        other.join().unwrap();
        assert_eq!(live.load(Ordering::SeqCst), 0);
    });
}

/// Returns a scene whose next insert grows the table from seven slots to fourteen and moves the
/// entries 1 to 5.
fn about_to_grow() -> Scene {
    let scene = Scene::new(16);
    (1..=5).for_each(|k| drop(scene.put(k, k * 10)));
    scene
}

#[test]
fn loom_get_against_growth() {
    model(2, || {
        let scene = about_to_grow();
        let other = scene.fork(|s| assert!(s.get(2).is_none_or(|h| h.number == 20)));
        drop(scene.put(6, 60));
        other.join().unwrap();
        for key in 1..=6 {
            assert_eq!(scene.get(key).unwrap().number, key * 10);
        }
        assert_eq!(scene.cache.entry_count(), 6);
        scene.end();
    });
}

#[test]
fn loom_release_against_growth() {
    model(2, || {
        let scene = about_to_grow();
        let pinned = scene.get(1).unwrap();
        let other = thread::spawn(move || {
            assert_eq!(pinned.number, 10);
            drop(pinned);
        });
        drop(scene.put(6, 60));
        // The entry is found in either table; a hit in the old one moves it.
        assert_eq!(scene.get(1).unwrap().number, 10);
        other.join().unwrap();
        assert_eq!(scene.cache.entry_count(), 6);
        scene.end();
    });
}

#[test]
fn loom_insert_against_growth() {
    model(1, || {
        let scene = about_to_grow();
        let other = scene.fork(|s| drop(s.put(7, 70)));
        drop(scene.put(6, 60));
        other.join().unwrap();
        for key in 1..=5 {
            assert_eq!(scene.get(key).unwrap().number, key * 10);
        }
        // With few slots, an insert that finds the lock held on its way to a larger table becomes
        // standalone.
        for key in 6..=7 {
            assert!(scene.get(key).is_none_or(|h| h.number == key * 10));
        }
        scene.end();
    });
}

#[test]
fn loom_erase_against_growth() {
    model(2, || {
        let scene = about_to_grow();
        let other = scene.fork(|s| {
            assert!(s.cache.erase(CacheKey(1, 0)));
            assert!(s.get(1).is_none());
        });
        drop(scene.put(6, 60));
        other.join().unwrap();
        assert!(scene.get(1).is_none());
        scene.end();
    });
}

/// The last handle of a value that found no room is dropped, while another thread looks the value
/// up or inserts it again.
#[test]
fn loom_find_against_the_last_handle_of_what_found_no_room() {
    model(3, || {
        let scene = Scene::new(0);
        let held = scene.put(1, 10);
        let other = scene.fork(|s| {
            if let Some(found) = s.get(1) {
                assert_eq!(found.number, 10);
            }
            assert_eq!(s.put(1, 11).number / 10, 1);
        });
        drop(held);
        other.join().unwrap();
        assert!(scene.get(1).is_none());
        assert_eq!(scene.cache.usage_bytes(), 0);
        scene.end();
    });
}
