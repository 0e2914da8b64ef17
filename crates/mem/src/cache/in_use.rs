//! The list of pinned values that found no room in the cache, by key.
//!
//! It maps keys to standalone slots, on which lookups of the same key take more pins. Without it,
//! concurrent lookups that need the same block, for example the index of a file, would each read,
//! check and decode it, when the cache is smaller than that block or has a capacity of 0.
//!
//! Lock: one for each shard, held for a few steps. No value is dropped under it. Invariants: a slot
//! on the list is alive: its last pin removes it from the list, under the lock, before it is freed.
//! Only a holder of a pin makes more of them, therefore the thread that released the last pin is
//! alone with the slot. Called from the cache's misses and from the last handles, never from a hit
//! in the table.

use super::key;
use super::slot::Slot;
use crate::sync::{AtomicUsize, Mutex, Ordering};
use std::ptr::NonNull;

/// Parts with a lock each. Several, because with a capacity of 0 every block that any thread reads
/// is listed here.
const SHARDS: usize = if cfg!(loom) { 1 } else { 16 };

/// Maximum average number of values in a bucket. A search through this many adjacent keys costs
/// about as much as one cache miss.
const BUCKET: usize = 32;

type Bucket<V> = Vec<([u64; 2], NonNull<Slot<V>>)>;

/// A part of the list: one bucket for the values of a few concurrent lookups, more of them for the
/// values of a large batch.
struct Shard<V> {
    /// The number of buckets is a power of two.
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
    /// Number of values on the list, which makes the check one load for a cache that is large
    /// enough.
    count: AtomicUsize,
}

// SAFETY: the list refers to slots like handles do, which share and drop values on any thread.
unsafe impl<V: Send + Sync> Send for InUse<V> {}
// SAFETY: as for `Send`; the list itself is behind locks.
unsafe impl<V: Send + Sync> Sync for InUse<V> {}

impl<V> InUse<V> {
    pub(super) fn new() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::new(Shard::new())), count: AtomicUsize::new(0) }
    }

    fn shard(&self, hash: u64) -> &Mutex<Shard<V>> {
        &self.shards[hash as usize % SHARDS]
    }

    /// Returns the slot of `key`, pinned for the caller, if it is pinned.
    pub(super) fn find(&self, key: [u64; 2]) -> Option<NonNull<Slot<V>>> {
        // Ordering: Relaxed; a thread that does not see a value listed just now misses it, as in
        // any cache.
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let hash = key::hash(key);
        find_in(self.shard(hash).lock().bucket(hash), key)
    }

    /// Lists `slot`, on which the caller has a pin, unless a pinned slot of this key is listed:
    /// then returns that one, pinned for the caller.
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

    /// Removes `slot` from the list, if it is listed.
    pub(super) fn remove(&self, key: [u64; 2], slot: NonNull<Slot<V>>) {
        self.remove_where(key, |listed| listed == slot);
    }

    /// Removes the slot of `key` from the list, which hides it from searches. Returns true if it
    /// was pinned.
    pub(super) fn erase(&self, key: [u64; 2]) -> bool {
        // SAFETY: a listed slot is alive.
        self.remove_where(key, |listed| unsafe { listed.as_ref() }.is_pinned())
    }

    /// Removes a slot of `key` for which `which` is true from the list. Returns true if one was
    /// found.
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
    // SAFETY: a listed slot is alive while its shard is locked. Not simply the first, because a
    // slot without pins is about to be removed.
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
