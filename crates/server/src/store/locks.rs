//! Locks on keys, and watches of keys, both in stripes.
//!
//! A key's stripe follows from its hash. A writer holds the stripes of its keys until its write is
//! visible; several stripes are locked in ascending order, so no two writers wait for each other.
//! The stripes are asynchronous locks that all threads share: a task that waits holds no thread.
//!
//! A watch of a key is a counter that commits raise under the key's stripe.

use super::Key;
use async_lock::{Mutex, MutexGuardArc};
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Number of stripes.
const STRIPES: usize = 1024;

/// Stripes that a writer holds.
pub(super) type Guards = Vec<MutexGuardArc<()>>;

/// The stripes of a store.
pub(super) struct Locks {
    stripes: Vec<Arc<Mutex<()>>>,
    /// Watched keys. Held for single operations only, never while waiting.
    watched: parking_lot::Mutex<HashMap<Key, Arc<Counters>>>,
    /// Number of keys in `watched`, so that commits without watches take no lock.
    count: AtomicUsize,
}

/// Changes of a watched key.
#[derive(Debug, Default)]
pub(super) struct Counters {
    /// Changes of the key by itself.
    pub(super) changes: AtomicU64,
    /// Removals of the key's whole database, which matter if the key existed.
    pub(super) removals: AtomicU64,
}

impl Locks {
    pub(super) fn new() -> Locks {
        let stripes = (0..STRIPES).map(|_| Arc::new(Mutex::new(()))).collect();
        Locks { stripes, watched: Default::default(), count: AtomicUsize::new(0) }
    }

    fn stripe(key: &Key) -> usize {
        // A hasher with fixed keys, because a simulation repeats the order of waits.
        let mut hasher = std::hash::DefaultHasher::new();
        key.hash(&mut hasher);
        hasher.finish() as usize % STRIPES
    }

    /// Locks the stripes of `keys`.
    pub(super) async fn lock(&self, keys: &[Key]) -> Guards {
        if let [key] = keys {
            return vec![self.stripes[Self::stripe(key)].lock_arc().await];
        }
        let mut stripes: Vec<usize> = keys.iter().map(Self::stripe).collect();
        stripes.sort_unstable();
        stripes.dedup();
        let mut guards = Guards::with_capacity(stripes.len());
        for stripe in stripes {
            guards.push(self.stripes[stripe].lock_arc().await);
        }
        guards
    }

    /// Locks all stripes.
    pub(super) async fn lock_all(&self) -> Guards {
        let mut guards = Guards::with_capacity(STRIPES);
        for stripe in &self.stripes {
            guards.push(stripe.lock_arc().await);
        }
        guards
    }

    /// Returns the counters of a key, which is watched while they are held.
    pub(super) fn watch(&self, key: &Key) -> Arc<Counters> {
        let mut watched = self.watched.lock();
        let counters = watched.entry(key.clone()).or_default().clone();
        self.count.store(watched.len(), Ordering::Relaxed);
        counters
    }

    /// Gives counters of [`watch`](Self::watch) back.
    pub(super) fn unwatch(&self, key: &Key, counters: Arc<Counters>) {
        let mut watched = self.watched.lock();
        drop(counters);
        // One is the map's own; clones are made under its lock only.
        if watched.get(key).is_some_and(|counters| Arc::strong_count(counters) == 1) {
            watched.remove(key);
        }
        self.count.store(watched.len(), Ordering::Relaxed);
    }

    /// Notes a change of a key, whose stripe the caller holds.
    pub(super) fn touch(&self, key: &Key) {
        // A watch begins under the key's stripe, so its count is known to whoever has the stripe.
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        if let Some(counters) = self.watched.lock().get(key) {
            counters.changes.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes that all keys of a database are gone. The caller holds all stripes.
    pub(super) fn remove_all(&self, db: u16) {
        for (key, counters) in &*self.watched.lock() {
            if key.db == db {
                counters.removals.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Returns the watched keys of a database.
    pub(super) fn watched_in(&self, db: u16) -> Vec<Key> {
        self.watched.lock().keys().filter(|key| key.db == db).cloned().collect()
    }
}
