//! Tests of the cache: one call at a time, against a model, and with racing threads.

use super::*;
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64};

const OVERHEAD: usize = BlockCache::<u64>::ENTRY_OVERHEAD_BYTES;

fn options(entries: usize, charge_bytes: usize) -> CacheOptions {
    CacheOptions {
        capacity_bytes: entries * (charge_bytes + OVERHEAD),
        estimated_entry_bytes: charge_bytes,
        ..CacheOptions::default()
    }
}

fn cache(entries: usize, charge_bytes: usize) -> BlockCache<u64> {
    BlockCache::new(options(entries, charge_bytes))
}

/// Counts its live instances in a shared counter; a second drop would make the count negative.
struct Counted {
    number: u64,
    live: std::sync::Arc<AtomicI64>,
}

impl Counted {
    fn new(number: u64, live: &std::sync::Arc<AtomicI64>) -> Self {
        live.fetch_add(1, Ordering::SeqCst);
        Self { number, live: live.clone() }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.number = u64::MAX;
        assert!(self.live.fetch_sub(1, Ordering::SeqCst) > 0);
    }
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

#[test]
fn memory_is_what_is_charged_and_free_slots() {
    let cache = cache(100, 1000);
    let empty = cache.memory_bytes();
    assert_eq!(cache.usage_bytes(), 0);
    assert!(empty >= SLOTS_AT_LEAST * OVERHEAD, "{empty}");
    drop(cache.insert(CacheKey(1, 0), 0, 1000, Priority::Low));
    assert_eq!(cache.memory_bytes(), empty + 1000, "its slot was there before");
    let charge = cache.reserve(ChargeKind(1), 500);
    assert_eq!(cache.memory_bytes(), empty + 1500);
    drop(charge);
    cache.erase(CacheKey(1, 0));
    assert_eq!(cache.memory_bytes(), empty);
    // More entries than estimated: the table has grown.
    for number in 0..600 {
        drop(cache.insert(CacheKey(1, number), number, 1, Priority::Low));
    }
    let (usage, memory) = (cache.usage_bytes(), cache.memory_bytes());
    assert!(memory > empty + 600 && memory > usage && memory < 4 * usage, "{memory} with {usage} charged");
}

#[test]
fn a_walk_shows_each_entry_and_is_no_use_of_it() {
    let cache = cache(100, 1000);
    for number in 0..50 {
        drop(cache.insert(CacheKey(1, number), number, 1000, Priority::Low));
    }
    let held = cache.get(CacheKey(1, 7)).unwrap();
    let gone = cache.get(CacheKey(1, 8)).unwrap();
    assert!(cache.erase(CacheKey(1, 8)));
    let walk = || {
        let (mut seen, mut bytes) = (Vec::new(), 0);
        cache.for_each(|number, charge| {
            seen.push(*number);
            bytes += charge;
        });
        seen.sort_unstable();
        (seen, bytes)
    };
    let expected: Vec<u64> = (0..50).filter(|number| *number != 8).collect();
    for _ in 0..20 {
        assert_eq!(walk(), (expected.clone(), 49 * (1000 + OVERHEAD)));
    }
    assert_eq!(cache.pinned_bytes(), 2 * (1000 + OVERHEAD), "no pin stays");
    drop((held, gone));
    // An entry shown twenty times is evicted like one never shown.
    let rounds = |walks: usize| {
        let cache = self::cache(10, 1000);
        (0..10).for_each(|number| drop(cache.insert(CacheKey(1, number), number, 1000, Priority::Low)));
        (0..walks).for_each(|_| cache.for_each(|_, _| {}));
        (10..15).for_each(|number| drop(cache.insert(CacheKey(1, number), number, 1000, Priority::Low)));
        (0..15).filter(|number| cache.get(CacheKey(1, *number)).is_some()).collect::<Vec<_>>()
    };
    assert_eq!(rounds(20), rounds(0));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| cache.for_each(|_, _| panic!())));
    assert!(panicked.is_err());
    assert_eq!(cache.pinned_bytes(), 0);
}

#[test]
fn a_walk_beside_others_shows_what_stays() {
    let cache = cache(200, 1000);
    let held: Vec<_> =
        (0..50).map(|number| cache.insert(CacheKey(1, number), number, 1000, Priority::Low)).collect();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2u64 {
            let (cache, over) = (&cache, &over);
            scope.spawn(move || {
                for round in 0.. {
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                    let key = CacheKey(2, round * 2 + thread);
                    drop(cache.insert(key, 1000 + round, 1000, Priority::Low));
                    assert!(cache.get(CacheKey(1, round % 50)).is_some());
                }
            });
        }
        for _ in 0..if cfg!(miri) { 3 } else { 200 } {
            let mut seen = 0;
            cache.for_each(|number, _| seen += u64::from(*number < 50));
            assert_eq!(seen, 50);
        }
        over.store(true, Ordering::Relaxed);
    });
    drop(held);
    assert_eq!(cache.pinned_bytes(), 0);
}

#[test]
fn a_cache_without_capacity_gives_usable_handles() {
    let cache = cache(0, 1000);
    let handle = cache.insert(CacheKey(1, 2), 7, 1000, Priority::High);
    let again = handle.clone();
    drop(handle);
    assert_eq!(*again, 7);
    assert_eq!((cache.usage_bytes(), cache.pinned_bytes()), (1000 + OVERHEAD, 1000 + OVERHEAD));
    assert_eq!(cache.counters().standalone_inserts, 1);
    drop(cache);
    assert_eq!(*again, 7);
}

#[test]
fn what_found_no_room_is_found_while_somebody_holds_it() {
    let live = std::sync::Arc::new(AtomicI64::new(0));
    let cache = BlockCache::new(options(0, 1000));
    let (key, other) = (CacheKey(1, 2), CacheKey(1, 3));
    let put = |key, number| cache.insert(key, Counted::new(number, &live), 1000, Priority::High);
    let first = put(key, 7);
    let found = cache.get(key).expect("it is held");
    assert!(Handle::ptr_eq(&first, &found) && cache.get(other).is_none());
    // The listed value wins, as in the table.
    let again = put(key, 8);
    assert!(Handle::ptr_eq(&first, &again));
    assert_eq!((live.load(Ordering::SeqCst), cache.usage_bytes()), (1, 1000 + OVERHEAD));
    assert!(cache.is_overcommitted());
    assert!(!first.is_alone(), "others may find it at any time");
    drop((first, found));
    assert_eq!(cache.get(key).expect("one is left").number, 7);
    drop(again);
    assert!(cache.get(key).is_none());
    assert_eq!((live.load(Ordering::SeqCst), cache.usage_bytes(), cache.entry_count()), (0, 0, 0));
    // Erased while pinned: only its holder still has it, and the key is free.
    let old = put(key, 9);
    assert!(cache.erase(key) && !cache.erase(key) && cache.get(key).is_none());
    let new = put(key, 10);
    assert_eq!((old.number, new.number), (9, 10));
    drop(old);
    assert_eq!(cache.get(key).expect("the new one is held").number, 10);
    let outlives = new.clone();
    drop((new, cache));
    assert_eq!(outlives.number, 10);
    drop(outlives);
    assert_eq!(live.load(Ordering::SeqCst), 0);
}

/// Threads look up a few keys that find no room, hold the found or inserted values for a moment,
/// and release them. A found value is that of its key, and in the end all values are gone.
#[test]
fn stress_values_that_are_found_only_while_held() {
    let live = std::sync::Arc::new(AtomicI64::new(0));
    let cache = BlockCache::new(options(0, 64));
    let found = AtomicU64::new(0);
    std::thread::scope(|s| {
        for seed in 0..4u64 {
            let (cache, live, found) = (&cache, &live, &found);
            s.spawn(move || {
                let mut held = [None, None];
                for i in 0..if cfg!(miri) { 40 } else { 100_000u64 } {
                    let k = (i * (seed + 3)) % 5;
                    let key = CacheKey(k, k);
                    let handle = match cache.get(key) {
                        Some(handle) => {
                            found.fetch_add(1, Ordering::Relaxed);
                            handle
                        }
                        None => cache.insert(key, Counted::new(k, live), 64, Priority::High),
                    };
                    assert_eq!(handle.number, k);
                    if i % 50 == seed {
                        cache.erase(key);
                    }
                    held[i as usize % 2] = Some(handle);
                }
            });
        }
    });
    assert!(found.into_inner() > 0);
    assert_eq!((cache.usage_bytes(), live.load(Ordering::SeqCst)), (0, 0));
}

#[test]
fn a_value_larger_than_the_cache_stands_alone_and_evicts_nothing() {
    let cache = cache(10, 1000);
    drop(cache.insert(CacheKey(1, 0), 1, 1000, Priority::Low));
    let large = cache.insert(CacheKey(2, 0), 2, 100_000, Priority::Low);
    assert_eq!(*large, 2);
    assert!(cache.get(CacheKey(2, 0)).is_some() && cache.get(CacheKey(1, 0)).is_some());
    drop(large);
    assert!(cache.get(CacheKey(2, 0)).is_none());
    assert_eq!(cache.usage_bytes(), 1000 + OVERHEAD);
}

#[test]
fn a_strict_capacity_holds_when_all_is_pinned() {
    let cache = BlockCache::new(CacheOptions { strict_capacity: true, ..options(3, 100) });
    let pinned: Vec<_> = (0..3).map(|i| cache.insert(CacheKey(i, 0), i, 100, Priority::Low)).collect();
    assert_eq!(cache.try_insert(CacheKey(9, 0), 9, 100, Priority::Low).unwrap_err(), 9);
    assert!(cache.try_reserve(ChargeKind(1), 1).is_none());
    assert_eq!(*cache.insert(CacheKey(9, 0), 9, 100, Priority::Low), 9);
    assert!(cache.get(CacheKey(9, 0)).is_none());
    assert_eq!(cache.usage_bytes(), cache.capacity_bytes());
    assert_eq!(cache.pinned_bytes(), cache.capacity_bytes());
    drop(pinned);
    assert_eq!(cache.pinned_bytes(), 0);
    assert!(cache.try_insert(CacheKey(9, 0), 9, 100, Priority::Low).is_ok());
    assert!(cache.get(CacheKey(9, 0)).is_some());
    assert!(cache.usage_bytes() <= cache.capacity_bytes());
}

#[test]
fn a_lenient_capacity_is_exceeded_by_pins_and_recovers() {
    let cache = cache(3, 100);
    let pinned: Vec<_> = (0..9).map(|i| cache.insert(CacheKey(i, 0), i, 100, Priority::Low)).collect();
    assert!(pinned.iter().enumerate().all(|(i, h)| **h == i as u64));
    assert!((0..9).all(|i| cache.get(CacheKey(i, 0)).is_some()));
    assert_eq!(cache.usage_bytes(), 3 * cache.capacity_bytes());
    drop(pinned);
    drop(cache.insert(CacheKey(100, 0), 100, 100, Priority::Low));
    assert!(cache.usage_bytes() <= cache.capacity_bytes());
}

#[test]
fn an_erased_entry_is_gone_but_its_handles_live() {
    let live = std::sync::Arc::new(AtomicI64::new(0));
    let cache = BlockCache::new(options(10, 100));
    let handle = cache.insert(CacheKey(1, 0), Counted::new(5, &live), 100, Priority::Low);
    assert!(cache.erase(CacheKey(1, 0)));
    assert!(!cache.erase(CacheKey(1, 0)));
    assert!(cache.get(CacheKey(1, 0)).is_none());
    assert_eq!(handle.number, 5);
    // The key is free for a new value meanwhile.
    assert_eq!(cache.insert(CacheKey(1, 0), Counted::new(6, &live), 100, Priority::Low).number, 6);
    assert_eq!((handle.number, live.load(Ordering::SeqCst)), (5, 2));
    drop(handle);
    // The hand removes the erased entry at its next pass, before any other.
    cache.set_capacity(cache.usage_bytes() - 1);
    assert_eq!(cache.get(CacheKey(1, 0)).map(|h| h.number), Some(6));
    assert!(cache.erase(CacheKey(1, 0)));
    assert_eq!((live.load(Ordering::SeqCst), cache.usage_bytes(), cache.entry_count()), (0, 0, 0));
}

#[test]
fn handles_outlive_the_cache() {
    let live = std::sync::Arc::new(AtomicI64::new(0));
    let cache = BlockCache::new(options(100, 100));
    let put = |i| cache.insert(CacheKey(i, 0), Counted::new(i, &live), 100, Priority::Low);
    drop(put(0));
    let (a, b, erased) = (put(1), put(2), put(3));
    let charge = cache.reserve(ChargeKind(2), 50);
    assert_eq!([1, 2].map(|kind| cache.charged_bytes(ChargeKind(kind))), [0, 50]);
    cache.erase(CacheKey(3, 0));
    drop(cache);
    assert_eq!(live.load(Ordering::SeqCst), 3);
    let again = a.clone();
    drop(a);
    assert_eq!((again.number, b.number, erased.number), (1, 2, 3));
    std::thread::spawn(move || drop(again)).join().unwrap();
    drop((b, charge));
    assert_eq!(live.load(Ordering::SeqCst), 1);
    drop(erased);
    assert_eq!(live.load(Ordering::SeqCst), 0);
}

#[test]
fn small_entries_make_the_table_grow_instead_of_being_evicted() {
    let n = if cfg!(miri) { 30 } else { 100_000 };
    let cache = BlockCache::new(CacheOptions { estimated_entry_bytes: 1 << 20, ..options(n, 8) });
    for i in 0..n as u64 {
        drop(cache.insert(CacheKey(i, i), i, 8, Priority::Low));
        assert!(cache.get(CacheKey(i / 2, i / 2)).is_some_and(|h| *h == i / 2), "{i}");
    }
    assert!((0..n as u64).all(|i| *cache.get(CacheKey(i, i)).unwrap() == i));
    assert_eq!((cache.entry_count(), cache.counters().evictions), (n, 0));
}

#[test]
fn pinned_entries_stay_in_place_while_the_table_grows() {
    let n = if cfg!(miri) { 30 } else { 50_000u64 };
    let live = std::sync::Arc::new(AtomicI64::new(0));
    let cache = BlockCache::new(options(2 * n as usize, 8));
    let put = |i| cache.insert(CacheKey(i, 0), Counted::new(i, &live), 8, Priority::Low);
    let mut pinned: Vec<_> = (0..10).map(put).collect();
    (10..n).for_each(|i| drop(put(i)));
    for (i, handle) in pinned.iter().enumerate() {
        assert!(Handle::ptr_eq(handle, &cache.get(CacheKey(i as u64, 0)).unwrap()));
    }
    // One stays in its first table to the end; the others move when they are hit.
    let longest = pinned.pop().unwrap();
    drop(pinned);
    for round in 0..2 * n {
        assert_eq!(cache.get(CacheKey(round % 10, 0)).unwrap().number, round % 10);
    }
    assert_eq!((cache.entry_count() as u64, live.load(Ordering::SeqCst)), (n, n as i64));
    assert!(cache.erase(CacheKey(9, 0)) && cache.get(CacheKey(9, 0)).is_none());
    drop(cache);
    assert_eq!((longest.number, live.load(Ordering::SeqCst)), (9, 1));
}

#[test]
fn metadata_survives_a_scan_and_goes_when_unused() {
    let rounds = if cfg!(miri) { 2 } else { 20 };
    let entries = if cfg!(miri) { 12 } else { 1000 };
    let cache = cache(entries as usize, 100);
    let meta = |i| CacheKey(u64::MAX, i);
    for i in 0..entries / 2 {
        drop(cache.insert(meta(i), i, 100, Priority::High));
    }
    // A scan of data many times the capacity, while metadata is used rarely.
    for round in 0..rounds {
        for i in 0..entries {
            drop(cache.insert(CacheKey(round, i), i, 100, Priority::Low));
        }
        let kept = (0..entries / 2).filter(|i| cache.get(meta(*i)).is_some()).count() as u64;
        assert_eq!(kept, entries / 2, "round {round}");
    }
    // Metadata of removed files does not stay forever.
    for round in 0..if cfg!(miri) { 40 } else { 100 } {
        for i in 0..entries {
            drop(cache.insert(CacheKey(1000 + round, i), i, 100, Priority::Low));
        }
    }
    assert_eq!(cache.counters().high_bytes, 0);
}

/// More metadata than fits beside data: no cliff; it keeps at least its fraction while data streams
/// through.
#[test]
#[cfg_attr(miri, ignore = "statistics")]
fn metadata_larger_than_the_cache_keeps_its_fraction() {
    let cache = cache(1000, 100);
    let (mut hits, mut lookups) = (0, 0);
    let mut x = 1u64;
    for i in 0..60_000u64 {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let meta = CacheKey(u64::MAX, (x >> 33) % 2000);
        lookups += u64::from(i > 20_000);
        match cache.get(meta) {
            Some(_) => hits += u64::from(i > 20_000),
            None => drop(cache.insert(meta, 0, 100, Priority::High)),
        }
        drop(cache.insert(CacheKey(1, i), i, 100, Priority::Low));
    }
    let rate = hits as f64 / lookups as f64;
    // 1000 entries, of which 750 may be metadata, of 2000 in use: 0.375 without other entries.
    assert!(rate > 0.30, "{rate}");
}

#[test]
fn bottom_goes_before_low() {
    let cache = cache(64, 100);
    for i in 0..32 {
        drop(cache.insert(CacheKey(0, i), i, 100, Priority::Low));
        drop(cache.insert(CacheKey(1, i), i, 100, Priority::Bottom));
    }
    for i in 0..32 {
        drop(cache.insert(CacheKey(2, i), i, 100, Priority::Low));
    }
    assert_eq!((0..32).filter(|i| cache.get(CacheKey(0, *i)).is_some()).count(), 32);
    assert_eq!(cache.counters().bottom_bytes, 0);
}

#[test]
fn reservations_push_entries_out() {
    let cache = cache(10, 100);
    for i in 0..10 {
        drop(cache.insert(CacheKey(i, 0), i, 100, Priority::Low));
    }
    let mut charge = cache.reserve(ChargeKind(2), cache.capacity_bytes() / 2);
    assert_eq!((cache.entry_count(), cache.pinned_bytes()), (5, charge.bytes()));
    charge.shrink_to(10);
    assert_eq!(cache.usage_bytes(), 5 * (100 + OVERHEAD) + 10);
    drop(charge);
    let too_much = cache.reserve(ChargeKind(2), 10 * cache.capacity_bytes());
    assert_eq!((cache.entry_count(), cache.usage_bytes()), (0, too_much.bytes()));
}

#[test]
fn capacity_changes_at_run_time() {
    let (few, many) = if cfg!(miri) { (20, 40) } else { (100, 1000) };
    let cache = cache(few as usize, 100);
    for i in 0..few {
        drop(cache.insert(CacheKey(i, 0), i, 100, Priority::High));
    }
    let pinned = cache.get(CacheKey(7, 0)).unwrap();
    cache.set_capacity(10 * (100 + OVERHEAD));
    assert_eq!(cache.entry_count(), 10);
    cache.set_capacity(0);
    assert_eq!((cache.entry_count(), *pinned), (1, 7));
    cache.set_capacity(many as usize * (100 + OVERHEAD));
    for i in 0..many {
        drop(cache.insert(CacheKey(i, 0), i, 100, Priority::High));
    }
    assert_eq!((cache.entry_count(), cache.counters().entries), (many as usize, many as usize));
}

#[test]
fn pin_counters_do_not_run_over() {
    let slot = Slot::<u64>::empty();
    let entry = Entry { key: [1, 2], value: 5, charge: 1, priority: Priority::High, count: 2 };
    slot.publish(entry, 3);
    // Simulates almost 2^27 pins and releases of the slot.
    let many = (1 << 27) - 10;
    slot.word.fetch_add(many * (slot::TAKEN_ONE + RELEASED_ONE), Ordering::Relaxed);
    for i in 0..1000 {
        assert!(slot.try_pin([1, 2]));
        let word = slot.load(Ordering::Relaxed);
        assert_eq!((word.pins(), word.is_visible(), word.priority()), (4, true, Priority::High), "{i}");
        slot.word.fetch_add(RELEASED_ONE, Ordering::Relaxed);
    }
    assert!(slot.load(Ordering::Relaxed).count() < 2000);
}

#[derive(Clone, Debug)]
enum Op {
    Get(u64),
    Insert(u64, usize, Priority, bool),
    Erase(u64),
    Unpin(usize),
    Reserve(usize),
    Capacity(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let key = 0u64..60;
    let priority = prop::sample::select(vec![Priority::High, Priority::Low, Priority::Bottom]);
    prop_oneof![
        4 => key.clone().prop_map(Op::Get),
        6 => (key.clone(), 1usize..400, priority, prop::bool::weighted(0.2))
            .prop_map(|(k, c, p, pin)| Op::Insert(k, c, p, pin)),
        1 => key.prop_map(Op::Erase),
        2 => (0usize..10).prop_map(Op::Unpin),
        1 => (0usize..1000).prop_map(Op::Reserve),
        1 => (0usize..20_000).prop_map(Op::Capacity),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 1 } else { 400 }, failure_persistence: None, ..Default::default() })]
    #[test]
    fn behaves_as_a_map_that_forgets(ops in prop::collection::vec(op(), 1..if cfg!(miri) { 25 } else { 300 }), strict: bool) {
        let live = std::sync::Arc::new(AtomicI64::new(0));
        let cache: BlockCache<Counted> = BlockCache::new(CacheOptions {
            capacity_bytes: 10_000, estimated_entry_bytes: 1000, strict_capacity: strict, metadata_fraction: 0.5,
        });
        // The last value of each key; the cache may have forgotten it, but must not return another.
        let mut model: HashMap<u64, u64> = HashMap::new();
        let mut pinned = Vec::new();
        let mut charges = Vec::new();
        for (number, op) in ops.into_iter().enumerate() {
            let number = number as u64;
            match op {
                Op::Get(k) => if let Some(h) = cache.get(CacheKey(k, k)) {
                    prop_assert_eq!(Some(&h.number), model.get(&k));
                },
                Op::Insert(k, charge, priority, pin) => {
                    let before = cache.get(CacheKey(k, k)).map(|h| h.number);
                    let h = cache.insert(CacheKey(k, k), Counted::new(number, &live), charge, priority);
                    prop_assert_eq!(h.number, before.unwrap_or(number));
                    model.insert(k, h.number);
                    if pin {
                        pinned.push((h.number, h));
                    }
                }
                Op::Erase(k) => {
                    let there = cache.get(CacheKey(k, k)).is_some();
                    prop_assert_eq!(cache.erase(CacheKey(k, k)), there);
                    prop_assert!(cache.get(CacheKey(k, k)).is_none());
                }
                Op::Unpin(i) => if i < pinned.len() { pinned.swap_remove(i); },
                Op::Reserve(bytes) => {
                    charges.extend(cache.try_reserve(ChargeKind(1), bytes));
                    if charges.len() > 3 { charges.remove(0); }
                }
                Op::Capacity(bytes) => cache.set_capacity(bytes),
            }
            for (number, h) in &pinned {
                prop_assert_eq!(h.number, *number);
            }
            let c = cache.counters();
            prop_assert_eq!(c.usage_bytes, c.charged_bytes + c.high_bytes + c.low_bytes + c.bottom_bytes);
            prop_assert!(cache.pinned_bytes() <= c.usage_bytes);
        }
        pinned.clear();
        charges.clear();
        cache.set_capacity(0);
        prop_assert_eq!((cache.usage_bytes(), cache.entry_count(), live.load(Ordering::SeqCst)), (0, 0, 0));
    }
}

/// Threads get, insert, erase, reserve and resize while the table grows. Every value found is that
/// of its key, no value is dropped early or twice, and in the end all accounts are zero.
#[test]
fn stress_all_operations_at_once() {
    let live = std::sync::Arc::new(AtomicI64::new(0));
    let keys = if cfg!(miri) { 24 } else { 40_000 };
    let per_thread = if cfg!(miri) { 30 } else { 200_000 };
    let cache = BlockCache::new(CacheOptions { estimated_entry_bytes: 1 << 20, ..options(keys / 2, 64) });
    let full = cache.capacity_bytes();
    let lookups = AtomicU64::new(0);
    std::thread::scope(|s| {
        for seed in 0..4u64 {
            let (cache, live, lookups) = (&cache, &live, &lookups);
            s.spawn(move || {
                let mut x = seed + 1;
                let mut pinned = std::collections::VecDeque::new();
                let mut own = 0;
                for i in 0..per_thread {
                    x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let k = (x >> 33) % keys as u64;
                    let key = CacheKey(k, k * 4096);
                    match (x >> 24) & 63 {
                        0 => drop(cache.erase(key)),
                        1 if i % 1000 == 0 => cache.set_capacity(full / 4),
                        2 => cache.set_capacity(full),
                        3 => drop(cache.reserve(ChargeKind(2), 10_000)),
                        n => {
                            own += 1;
                            let found = cache.get(key);
                            let priority = Priority::ALL[n as usize & 3];
                            let found = found
                                .unwrap_or_else(|| cache.insert(key, Counted::new(k, live), 64, priority));
                            assert_eq!(found.number, k);
                            if n < 16 {
                                pinned.push_back((k, found));
                            }
                        }
                    }
                    if pinned.len() > 50 {
                        let (k, handle) = pinned.pop_front().unwrap();
                        assert_eq!(handle.number, k);
                        assert_eq!(handle.clone().number, k);
                    }
                }
                lookups.fetch_add(own, Ordering::Relaxed);
            });
        }
    });
    let c = cache.counters();
    assert_eq!(c.hits + c.misses, lookups.into_inner());
    assert_eq!(c.usage_bytes, c.high_bytes + c.low_bytes + c.bottom_bytes);
    assert_eq!(live.load(Ordering::SeqCst), c.entries as i64);
    cache.set_capacity(0);
    assert_eq!((cache.usage_bytes(), cache.entry_count(), live.load(Ordering::SeqCst)), (0, 0, 0));
}

/// Other threads release handles while and after the cache is dropped.
#[test]
fn stress_release_against_the_end_of_the_cache() {
    for round in 0..if cfg!(miri) { 2 } else { 300 } {
        let live = std::sync::Arc::new(AtomicI64::new(0));
        let cache = BlockCache::new(options(100, 100));
        let handles: Vec<_> = (0..20)
            .map(|i| cache.insert(CacheKey(i, round), Counted::new(i, &live), 100, Priority::Low))
            .collect();
        let go = AtomicBool::new(false);
        std::thread::scope(|s| {
            for part in handles.chunks(10) {
                let mine: Vec<_> = part.to_vec();
                let go = &go;
                s.spawn(move || {
                    while !go.load(Ordering::Acquire) {
                        std::hint::spin_loop();
                    }
                    drop(mine);
                });
            }
            drop(handles);
            go.store(true, Ordering::Release);
            drop(cache);
        });
        assert_eq!(live.load(Ordering::SeqCst), 0);
    }
}

/// The hand empties neighbouring slots together; the slots before it must not become one long
/// stretch that every search walks.
#[test]
#[cfg_attr(miri, ignore = "many entries")]
fn searches_stay_short_in_a_cache_that_has_been_full_for_long() {
    let cache = BlockCache::new(CacheOptions { capacity_bytes: 64 << 20, ..CacheOptions::default() });
    for offset in 0..400_000u64 {
        drop(cache.insert(CacheKey(1, offset * 2500), [0u8; 16], 4096, Priority::Low));
    }
    let longest = (0..20_000u64).map(|i| cache.groups_searched(CacheKey(2, i * 2500))).max();
    assert!(longest.is_some_and(|groups| groups <= 64), "{longest:?}");
}

#[test]
fn a_value_that_only_one_handle_holds_is_replaced_in_place() {
    let mut alone = Handle::standalone(vec![1]);
    assert_eq!(alone.replace_if_alone(vec![2]), Ok(vec![1]));
    let other = alone.clone();
    assert!(!alone.is_alone() && !other.is_alone());
    assert_eq!(alone.replace_if_alone(vec![3]), Err(vec![3]));
    assert_eq!((&*alone, &*other), (&vec![2], &vec![2]));
    drop(other);
    assert!(alone.is_alone());
    assert_eq!(alone.replace_if_alone(vec![4]), Ok(vec![2]));
    assert_eq!(*alone, vec![4]);

    let cache = BlockCache::new(CacheOptions { capacity_bytes: 1 << 20, ..CacheOptions::default() });
    let mut cached = cache.insert(CacheKey(1, 1), vec![5], 8, Priority::Low);
    assert_eq!(cached.replace_if_alone(vec![6]), Err(vec![6]), "others may find it");
}

#[test]
#[cfg_attr(miri, ignore = "a large table")]
fn the_hand_passes_free_slots_at_once() {
    let cache = cache(10_000, 4000);
    for number in 0..3 {
        drop(cache.insert(CacheKey(1, number), number, 4000, Priority::Bottom));
    }
    let (table, mut evicted, mut swept) = (cache.current(), Vec::new(), Swept::default());
    assert!(table.len() > 5000);
    // Each sweep visits one entry. All were used once and age in the first round.
    for _ in 0..6 {
        swept += table.sweep(1, false, &mut |entry| {
            evicted.push(entry.value);
            cache.removed(entry);
        });
    }
    evicted.sort_unstable();
    assert_eq!((evicted, swept.aged, cache.entry_count()), (vec![0, 1, 2], 3, 0));
    assert!((table.len()..=3 * table.len()).contains(&swept.slots), "{} slots in two rounds", swept.slots);
    // An empty table is passed once, for any number of slots.
    assert_eq!(table.sweep(1, false, &mut |_| unreachable!("it is empty")).slots, table.len() + 1);
}
