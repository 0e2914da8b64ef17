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

/// The most values of a bucket on average. A search through this many adjacent numbers costs about
/// as much as one cache miss.
const BUCKET: usize = 32;

type Bucket<V> = Vec<([u64; 2], NonNull<Slot<V>>)>;

/// A part of the list: in one bucket what a few lookups in flight hold, in more of them what the
/// values of a large batch hold.
struct Shard<V> {
    /// A power of two.
    buckets: Vec<Bucket<V>>,
    len: usize,
}

impl<V> Shard<V> {
    fn new() -> Self {
        Shard { buckets: vec![Vec::new()], len: 0 }
    }

    fn bucket(&mut self, hash: u64) -> &mut Bucket<V> {
        let mask = self.buckets.len() - 1;
        &mut self.buckets[(hash as usize / SHARDS) & mask]
    }

    fn push(&mut self, hash: u64, key: [u64; 2], slot: NonNull<Slot<V>>) {
        if self.len == BUCKET * self.buckets.len() {
            let more = (0..2 * self.buckets.len()).map(|_| Vec::new()).collect();
            for (key, slot) in std::mem::replace(&mut self.buckets, more).into_iter().flatten() {
                self.bucket(key::hash(key)).push((key, slot));
            }
        }
        self.bucket(hash).push((key, slot));
        self.len += 1;
    }

    fn swap_remove(&mut self, hash: u64, at: usize) {
        self.bucket(hash).swap_remove(at);
        self.len -= 1;
        if self.len == 0 && self.buckets.len() > 1 {
            *self = Self::new();
        }
    }
}

pub(super) struct InUse<V> {
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
        Self { shards: std::array::from_fn(|_| Mutex::new(Shard::new())), count: AtomicUsize::new(0) }
    }

    fn shard(&self, hash: u64) -> &Mutex<Shard<V>> {
        &self.shards[hash as usize % SHARDS]
    }

    /// The slot of `key`, pinned for the caller, if somebody holds it.
    pub(super) fn find(&self, key: [u64; 2]) -> Option<NonNull<Slot<V>>> {
        // Ordering: Relaxed; whoever comes too early to see a value on the list misses it, as in
        // any cache.
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let hash = key::hash(key);
        find_in(self.shard(hash).lock().bucket(hash), key)
    }

    /// Lists `slot`, which the caller has a pin on, unless there is one of this key that somebody
    /// holds: that one, pinned for the caller, comes back.
    pub(super) fn add(&self, key: [u64; 2], slot: NonNull<Slot<V>>) -> Option<NonNull<Slot<V>>> {
        let hash = key::hash(key);
        let mut shard = self.shard(hash).lock();
        let there = find_in(shard.bucket(hash), key);
        if there.is_none() {
            shard.push(hash, key, slot);
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
        let hash = key::hash(key);
        let mut shard = self.shard(hash).lock();
        let listed = shard.bucket(hash).iter().position(|(listed, slot)| *listed == key && which(*slot));
        let Some(at) = listed else { return false };
        shard.swap_remove(hash, at);
        self.count.fetch_sub(1, Ordering::Relaxed);
        true
    }
}

fn find_in<V>(bucket: &Bucket<V>, key: [u64; 2]) -> Option<NonNull<Slot<V>>> {
    // SAFETY: on the list, and so alive for as long as its shard is locked. Why not the first: one
    // that nobody holds any more is about to leave.
    let pinned = |slot: &NonNull<Slot<V>>| unsafe { slot.as_ref() }.pin_if_pinned();
    bucket.iter().filter(|(listed, _)| *listed == key).map(|(_, slot)| *slot).find(pinned)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_search_looks_at_a_few_however_many_are_held() {
        const COUNT: u64 = 50_000;
        let list = InUse::<u8>::new();
        // Not a real slot: the list reads a slot only if its key is searched for.
        let slot = |number: u64| {
            NonNull::new(std::ptr::without_provenance_mut::<Slot<u8>>(number as usize * 64 + 64)).unwrap()
        };
        for number in 0..COUNT {
            assert!(list.add([7, number * 4096], slot(number)).is_none());
        }
        let longest = || {
            let of_shard = |shard: &Mutex<Shard<u8>>| shard.lock().buckets.iter().map(Vec::len).max();
            list.shards.iter().filter_map(of_shard).max().unwrap()
        };
        assert!(longest() <= 4 * BUCKET, "{} in one bucket", longest());
        for number in 0..COUNT {
            assert!(list.find([8, number * 4096]).is_none());
            list.remove([7, number * 4096], slot(number));
        }
        assert_eq!((list.count.load(Ordering::Relaxed), longest()), (0, 0));
        assert!(list.shards.iter().all(|shard| shard.lock().buckets.len() == 1));
    }
}
