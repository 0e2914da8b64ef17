//! Values that found no room in the cache, by key, for as long as somebody holds them.
//!
//! In: standalone slots that were made under a key. Out: more pins on them, for whoever looks for
//! that key meanwhile. Without this, lookups in flight that need the same block, as all lookups in
//! a file need its index, would each have it read, checked and decoded, when the cache is smaller
//! than that block or has a capacity of 0.
//!
//! Lock: each shard's own, for a few steps. Nothing is dropped under it. Invariants: a slot on the
//! list is alive: its last pin takes it off the list, under the lock, before it is freed. Nobody
//! but a holder makes a pin out of none, so whoever gave up the last pin is alone with the slot.
//! Calls come from the cache's misses and from the last handles, never from a hit in the table.

use super::key;
use super::slot::Slot;
use crate::sync::{AtomicUsize, Mutex, Ordering};
use std::ptr::NonNull;

/// Parts with a lock each. Why: with a capacity of 0 every block that any thread reads comes here.
const SHARDS: usize = if cfg!(loom) { 1 } else { 16 };

type Shard<V> = Vec<([u64; 2], NonNull<Slot<V>>)>;

pub(super) struct InUse<V> {
    /// Why a vector: a shard holds what a few lookups in flight hold; as a search compares numbers
    /// that lie together, hundreds of them cost less than a read.
    shards: [Mutex<Shard<V>>; SHARDS],
    /// How many are on the list, so that a cache that is large enough pays one load.
    count: AtomicUsize,
}

// SAFETY: the list refers to slots as handles do, which share and drop values on any thread.
unsafe impl<V: Send + Sync> Send for InUse<V> {}
// SAFETY: as above; the list itself is behind locks.
unsafe impl<V: Send + Sync> Sync for InUse<V> {}

impl<V> InUse<V> {
    pub(super) fn new() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::new(Vec::new())), count: AtomicUsize::new(0) }
    }

    fn shard(&self, key: [u64; 2]) -> &Mutex<Shard<V>> {
        &self.shards[key::hash(key) as usize % SHARDS]
    }

    /// The slot of `key`, pinned for the caller, if somebody holds it.
    pub(super) fn find(&self, key: [u64; 2]) -> Option<NonNull<Slot<V>>> {
        // Ordering: Relaxed; whoever comes too early to see a value on the list misses it, as in
        // any cache.
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        find_in(&self.shard(key).lock(), key)
    }

    /// Lists `slot`, which the caller has a pin on, unless there is one of this key that somebody
    /// holds: that one, pinned for the caller, comes back.
    pub(super) fn add(&self, key: [u64; 2], slot: NonNull<Slot<V>>) -> Option<NonNull<Slot<V>>> {
        let mut shard = self.shard(key).lock();
        let there = find_in(&shard, key);
        if there.is_none() {
            shard.push((key, slot));
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        there
    }

    /// Takes `slot` off the list, if it is there.
    pub(super) fn remove(&self, key: [u64; 2], slot: NonNull<Slot<V>>) {
        self.remove_where(key, |listed| listed == slot);
    }

    /// Takes the slot of `key` off the list, so that nobody finds it any more; whether somebody
    /// would have.
    pub(super) fn erase(&self, key: [u64; 2]) -> bool {
        // SAFETY: on the list, and so alive.
        self.remove_where(key, |listed| unsafe { listed.as_ref() }.is_pinned())
    }

    /// Takes the slots of `key` for which `which` is true off the list; whether there was one.
    fn remove_where(&self, key: [u64; 2], which: impl Fn(NonNull<Slot<V>>) -> bool) -> bool {
        let mut shard = self.shard(key).lock();
        let Some(at) = shard.iter().position(|(listed, slot)| *listed == key && which(*slot)) else {
            return false;
        };
        shard.swap_remove(at);
        self.count.fetch_sub(1, Ordering::Relaxed);
        true
    }
}

fn find_in<V>(shard: &Shard<V>, key: [u64; 2]) -> Option<NonNull<Slot<V>>> {
    // SAFETY: on the list, and so alive for as long as its shard is locked. Why not the first: one
    // that nobody holds any more is about to leave.
    let pinned = |slot: &NonNull<Slot<V>>| unsafe { slot.as_ref() }.pin_if_pinned();
    shard.iter().filter(|(listed, _)| *listed == key).map(|(_, slot)| *slot).find(pinned)
}
