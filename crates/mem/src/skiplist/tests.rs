//! Tests of the skiplist: against a `BTreeMap`, its errors, and with racing threads.

use super::insert::height_for;
use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn bytewise(a: &[u8], b: &[u8]) -> cmp::Ordering {
    a.cmp(b)
}

type List = SkipList<fn(&[u8], &[u8]) -> cmp::Ordering>;

fn list() -> List {
    SkipList::new(bytewise)
}

fn insert_many(list: &List, entries: &[(&[u8], &[u8])]) -> usize {
    list.link_all(entries.iter().map(|(key, value)| list.prepare(key, &[], value)))
}

fn forward<C: KeyOrder>(list: &SkipList<C>) -> Vec<Vec<u8>> {
    std::iter::successors(list.first(), |p| list.next(*p)).map(|p| list.key(p).to_vec()).collect()
}

fn backward<C: KeyOrder>(list: &SkipList<C>) -> Vec<Vec<u8>> {
    std::iter::successors(list.last(), |p| list.prev(*p)).map(|p| list.key(p).to_vec()).collect()
}

#[test]
fn an_empty_list_has_no_entry() {
    let list = list();
    assert!(list.is_empty());
    assert_eq!(list.len(), 0);
    assert_eq!((list.first(), list.last(), list.seek_ge(b""), list.seek_lt(b"x")), (None, None, None, None));
}

#[test]
fn a_search_shows_what_it_compares_with_and_ends_when_it_is_told_to() {
    let list = list();
    let keys: Vec<[u8; 2]> = (0..600_u16).map(u16::to_be_bytes).collect();
    for key in &keys {
        list.link_all([list.prepare_parts([&key[..1], &key[1..]], [b"va", b"lue"])]);
    }
    for key in &keys {
        let mut seen = Vec::new();
        let found = list.try_seek_ge(key, |position| {
            seen.push(position);
            Ok::<_, ()>(())
        });
        assert_eq!(found, Ok(list.get(key)));
        assert!(seen.contains(&found.unwrap().unwrap()) && seen.len() < 200);
        assert_eq!((list.key(seen[0]).len(), list.value(seen[0])), (2, &b"value"[..]));
        assert_eq!(list.try_seek_ge(key, Err), Err(seen[0]));
    }
}

/// Compares searches that step in turns with searches one by one.
fn check_together(list: &List, keys: &[Vec<u8>]) {
    for keys in keys.chunks(LANES) {
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let found = list.seek_ge_together(&keys);
        let one_by_one: Vec<_> = keys.iter().map(|key| list.seek_ge(key)).collect();
        assert_eq!(found[..keys.len()], one_by_one);
        assert!(found[keys.len()..].iter().all(Option::is_none), "no key, no entry");
    }
}

#[test]
fn searches_that_step_in_turns_find_what_single_ones_find() {
    let list = list();
    let key = |n: u32| (n.wrapping_mul(0x9e37_79b1) >> 16).to_be_bytes().to_vec();
    let sought: Vec<Vec<u8>> = (0..500).map(key).chain([vec![], vec![0xff; 9]]).collect();
    check_together(&list, &sought);
    let many = if cfg!(miri) { 64 } else { 5_000 };
    for n in 0..many {
        list.link_all([list.prepare(&key(3 * n), &[], b"value")]);
        if n.is_power_of_two() {
            check_together(&list, &sought);
        }
    }
    check_together(&list, &sought);
    assert!(list.seek_ge_together(&[]).iter().all(Option::is_none));
    let seventeen: Vec<&[u8]> = vec![b""; LANES + 1];
    assert_eq!(list.seek_ge_together(&seventeen), [list.first(); LANES], "keys beyond the lanes wait");
}

#[test]
fn searches_that_step_in_turns_see_entries_of_racing_inserts() {
    let list = list();
    let (threads, each) = (2_u32, if cfg!(miri) { 40 } else { 20_000 });
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let list = &list;
            scope.spawn(move || {
                let key = |n: u32| (n * threads + thread).reverse_bits().to_be_bytes();
                for n in 0..each {
                    list.link_all([list.prepare(&key(n), &[], b"")]);
                    let mine = [key(n), key(n / 2), key(0)];
                    let found = list.seek_ge_together(&mine.each_ref().map(|key| &key[..]));
                    for (key, found) in mine.iter().zip(found) {
                        assert_eq!(list.key(found.unwrap()), key, "an entry of this thread");
                    }
                }
            });
        }
    });
}

#[test]
fn a_flipped_bit_changes_one_byte_of_one_entry() {
    let mut list = list();
    insert_many(&list, &[(b"a", b"1"), (b"b", b"2")]);
    let position = list.first().unwrap();
    list.flip_bits(position, 1, 2);
    assert_eq!((list.key(position), list.value(position)), (&b"a"[..], &b"3"[..]));
    list.flip_bits(position, 0, 0x40);
    assert_eq!((list.key(position), list.value(list.last().unwrap())), (&b"!"[..], &b"2"[..]));
}

#[test]
fn an_equal_key_is_refused_and_changes_nothing() {
    let list = list();
    assert!(list.insert(b"k", b"first"));
    assert!(!list.insert(b"k", b"second"));
    assert_eq!(list.len(), 1);
    assert_eq!(list.value(list.get(b"k").unwrap()), b"first");
    assert_eq!(list.get(b"j"), None);
}

#[test]
fn empty_and_large_keys_and_values() {
    let list = list();
    let large = vec![7; if cfg!(miri) { 3_000 } else { 100_000 }];
    assert!(list.insert(b"", &large));
    assert!(list.insert(&large, b""));
    assert_eq!(list.value(list.first().unwrap()), large);
    assert_eq!(list.key(list.last().unwrap()), large);
    assert_eq!(list.value(list.last().unwrap()), b"");
    assert!(list.memory_usage() >= 2 * large.len());
}

#[test]
fn the_given_order_rules() {
    let list = SkipList::new(|a: &[u8], b: &[u8]| b.cmp(a));
    for k in [b"b", b"c", b"a"] {
        list.insert(k, b"");
    }
    assert_eq!(forward(&list), [b"c", b"b", b"a"]);
    assert_eq!(backward(&list), [b"a", b"b", b"c"]);
}

#[test]
#[should_panic(expected = "used with list")]
fn a_position_of_another_list_panics() {
    let (a, b) = (list(), list());
    a.insert(b"k", b"");
    b.insert(b"k", b"");
    b.key(a.first().unwrap());
}

#[test]
#[cfg_attr(miri, ignore = "arithmetic only, and a lot of it")]
fn one_node_in_two_rises() {
    let mut at_least = [0usize; MAX_HEIGHT + 1];
    let n = 100_000u64;
    for i in 0..n {
        (1..=height_for(format!("user{i:016}").as_bytes(), &[])).for_each(|h| at_least[h] += 1);
    }
    for (h, found) in at_least.iter().enumerate().take(9).skip(1) {
        let expected = n as f64 / 2f64.powi(h as i32 - 1);
        assert!((*found as f64 / expected - 1.0).abs() < 0.15, "height {h}: {found} nodes");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 1 } else { 300 }, failure_persistence: None, ..Default::default() })]
    #[test]
    fn behaves_as_a_sorted_map(
        entries in prop::collection::vec((prop::collection::vec(0u8..4, 0..6), prop::collection::vec(any::<u8>(), 0..20)), 0..if cfg!(miri) { 20 } else { 80 }),
        probes in prop::collection::vec(prop::collection::vec(0u8..5, 0..7), 1..20),
    ) {
        let list = list();
        let mut model = BTreeMap::new();
        for (k, v) in &entries {
            let new = !model.contains_key(k);
            prop_assert_eq!(list.insert(k, v), new);
            model.entry(k.clone()).or_insert_with(|| v.clone());
        }
        prop_assert_eq!(list.len(), model.len());
        prop_assert_eq!(forward(&list), model.keys().cloned().collect::<Vec<_>>());
        prop_assert_eq!(backward(&list), model.keys().rev().cloned().collect::<Vec<_>>());
        for probe in &probes {
            let key = |p: Option<Position>| p.map(|p| list.key(p).to_vec());
            prop_assert_eq!(key(list.seek_ge(probe)), model.range(probe.clone()..).next().map(|e| e.0.clone()));
            prop_assert_eq!(key(list.seek_lt(probe)), model.range(..probe.clone()).next_back().map(|e| e.0.clone()));
            prop_assert_eq!(key(list.seek_le(probe)), model.range(..=probe.clone()).next_back().map(|e| e.0.clone()));
            prop_assert_eq!(list.get(probe).map(|p| list.value(p).to_vec()), model.get(probe).cloned());
        }
    }
}

/// Writers insert interleaved and contested keys while readers scan: a scan is always sorted, sees
/// every key that was inserted before it began, and never a torn value.
#[test]
fn stress_inserts_and_scans() {
    let list = list();
    let per_writer: u32 = if cfg!(miri) { 6 } else { 10_000 };
    let won = std::sync::atomic::AtomicU32::new(0);
    let done = std::sync::atomic::AtomicU32::new(0);
    std::thread::scope(|s| {
        for w in 0..3u32 {
            let (list, won, done) = (&list, &won, &done);
            s.spawn(move || {
                for i in 0..per_writer {
                    let own = (i.wrapping_mul(2_654_435_761) ^ (w << 30)).to_be_bytes();
                    assert!(list.insert(&[&own[..], &[w as u8]].concat(), &own));
                    // Every writer tries the contested key; exactly one may win.
                    let contested = [&i.to_be_bytes()[..], b"contested"].concat();
                    won.fetch_add(list.insert(&contested, &i.to_be_bytes()).into(), Ordering::Relaxed);
                }
                done.fetch_add(1, Ordering::Release);
            });
        }
        let (list, done) = (&list, &done);
        s.spawn(move || {
            while done.load(Ordering::Acquire) < 3 {
                let at_least = list.len();
                let mut seen = 0;
                let mut last: Option<Position> = None;
                for p in std::iter::successors(list.first(), |p| list.next(*p)) {
                    assert!(last.is_none_or(|l| list.key(l) < list.key(p)));
                    assert_eq!(list.value(p), &list.key(p)[..4]);
                    last = Some(p);
                    seen += 1;
                }
                assert!(seen >= at_least);
            }
        });
    });
    assert_eq!(won.into_inner(), per_writer);
    assert_eq!(list.len() as u32, 4 * per_writer);
    assert_eq!(forward(&list).len() as u32, 4 * per_writer);
}

#[test]
fn many_at_once_are_added_as_one_after_the_other() {
    let count = if cfg!(miri) { 60 } else { 5000u32 };
    let key = |n: u32| n.wrapping_mul(0x9e37_79b1).to_be_bytes();
    let (one, many): (List, List) = (SkipList::new(|a, b| a.cmp(b)), SkipList::new(|a, b| a.cmp(b)));
    // Groups of every size up to two rounds of searches, including neighbours and equal keys in one
    // group.
    let mut from = 0;
    let mut refused = 0;
    for size in (0..20).cycle() {
        let keys: Vec<[u8; 4]> = (from..from + size).map(|n| key(n % (count - 7) / 2)).collect();
        let values: Vec<[u8; 4]> = (from..from + size).map(u32::to_be_bytes).collect();
        let entries: Vec<(&[u8], &[u8])> = keys.iter().zip(&values).map(|(k, v)| (&k[..], &v[..])).collect();
        let refused_now = entries.iter().filter(|(k, v)| !one.insert(k, v)).count();
        assert_eq!(insert_many(&many, &entries), refused_now);
        refused += refused_now;
        from += size;
        if from > count {
            break;
        }
    }
    assert!(refused > 0);
    let all = |list: &List| -> Vec<(Vec<u8>, Vec<u8>)> {
        std::iter::successors(list.first(), |p| list.next(*p))
            .map(|p| (list.key(p).to_vec(), list.value(p).to_vec()))
            .collect()
    };
    assert_eq!(all(&one), all(&many));
    assert_eq!(one.len(), many.len());
}

#[test]
fn stress_groups_of_many_threads() {
    let (threads, groups) = if cfg!(miri) { (2, 6) } else { (4, 4000u32) };
    let list: List = SkipList::new(|a, b| a.cmp(b));
    std::thread::scope(|s| {
        for thread in 0..threads {
            let list = &list;
            s.spawn(move || {
                for group in 0..groups {
                    let keys: Vec<[u8; 4]> = (0..8u32)
                        .map(|n| ((group * 8 + n) * threads + thread).wrapping_mul(0x9e37_79b1).to_be_bytes())
                        .collect();
                    let entries: Vec<(&[u8], &[u8])> = keys.iter().map(|k| (&k[..], &k[..])).collect();
                    assert_eq!(insert_many(list, &entries), 0);
                    assert!(keys.iter().all(|k| list.get(k).is_some()));
                }
            });
        }
    });
    let mut found = 0;
    let mut last: Option<Vec<u8>> = None;
    let mut at = list.first();
    while let Some(position) = at {
        let key = list.key(position).to_vec();
        assert!(last.is_none_or(|last| last < key));
        (last, found, at) = (Some(key), found + 1, list.next(position));
    }
    assert_eq!(found, threads * groups * 8);
    assert_eq!(list.len(), found as usize);
}

#[test]
fn keys_in_order_are_linked_along_the_finger() {
    let list = list();
    let count = if cfg!(miri) { 40 } else { 3000u32 };
    for n in 0..count {
        assert!(list.insert(&n.to_be_bytes(), b""));
        assert!(list.finger_stands_behind(list.get(&n.to_be_bytes()).unwrap()));
    }
    // From another place onwards, up to a key that already exists.
    for n in (0..count).rev().step_by(7) {
        for next in 0..3u8 {
            assert!(list.insert(&[&n.to_be_bytes()[..], &[next]].concat(), b""));
        }
        assert!(!list.insert(&n.to_be_bytes(), b""));
    }
    let found = forward(&list);
    assert!(found.is_sorted() && found.len() == list.len());
    assert_eq!(found.len(), (count + count.div_ceil(7) * 3) as usize);
}

#[test]
fn keys_without_an_order_leave_the_finger_alone_until_there_is_one_again() {
    let list = list();
    let insert = |n: u32| assert!(list.insert(&n.to_be_bytes(), b""));
    let at_finger = |n: u32| list.finger_stands_behind(list.get(&n.to_be_bytes()).unwrap());
    let strayed = insert::STRAYED as u32;
    let down = |n: u32| 1 << 20 | (10_000 - n);
    (0..insert::LOOKED_AT as u32).for_each(|n| insert(down(n)));
    assert!(strayed < insert::LOOKED_AT as u32 && at_finger(down(insert::LOOKED_AT as u32 - 1)));
    insert(down(insert::LOOKED_AT as u32));
    assert!(!at_finger(down(insert::LOOKED_AT as u32)), "it is not looked at any more");
    // When the finger is tried again, two keys in order are enough.
    let count = insert::OF_ENTRIES as u32;
    (0..count).for_each(|n| insert(2 << 20 | n));
    assert!(at_finger(2 << 20 | (count - 1)));
    assert!(forward(&list).is_sorted() && forward(&list).len() == list.len());
}

#[test]
fn going_through_in_order_finds_what_single_steps_find() {
    let list = list();
    assert!(list.first().is_none());
    for n in 0..200u32 {
        list.insert(&n.wrapping_mul(0x9e37_79b9).to_be_bytes(), &vec![b'v'; n as usize]);
    }
    let through = std::iter::successors(list.first(), |p| list.next_of_many(*p));
    let through: Vec<Vec<u8>> = through.map(|p| list.key(p).to_vec()).collect();
    assert_eq!(through, forward(&list));
    assert_eq!(through.len(), 200);
}

fn swept<C: KeyOrder>(list: &SkipList<C>) -> Vec<Vec<u8>> {
    let mut sweep = Sweep::default();
    let keys = std::iter::from_fn(|| list.sweep(&mut sweep)).map(|p| list.key(p).to_vec()).collect();
    assert!(list.sweep(&mut sweep).is_none(), "the end stays the end");
    keys
}

#[test]
fn a_sweep_finds_what_single_steps_find() {
    // No entries, fewer than one lane takes, and more than all lanes take at once, several times.
    for count in if cfg!(miri) { [0, 1, 40, 3000] } else { [0, 1, 40, 30_000_u32] } {
        let list = list();
        for n in 0..count {
            list.insert(&n.wrapping_mul(0x9e37_79b9).to_be_bytes(), &[b'v'; 3]);
        }
        assert_eq!(swept(&list), forward(&list));
    }
}

/// Concurrent inserts never make a sweep omit an existing entry or lose the order.
#[test]
fn stress_sweeps_beside_inserts() {
    let list = list();
    let key = |n: u32| n.wrapping_mul(0x9e37_79b9).to_be_bytes();
    let count = if cfg!(miri) { 100 } else { 20_000_u32 };
    (0..count).for_each(|n| assert!(list.insert(&key(n), b"")));
    let before = forward(&list);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| (count..4 * count).for_each(|n| assert!(list.insert(&key(n), b""))));
        loop {
            let ends = writer.is_finished();
            let keys = swept(&list);
            assert!(keys.is_sorted_by(|a, b| a < b));
            let mut found = keys.iter();
            assert!(before.iter().all(|key| found.any(|k| k == key)));
            if ends {
                break;
            }
        }
    });
    assert_eq!(swept(&list), forward(&list));
}

#[test]
fn an_entry_is_in_the_list_only_once_it_is_linked() {
    let list = list();
    let entries: Vec<Unlinked> = [b"b", b"a", b"c"].map(|key| list.prepare(key, b"#", key)).into();
    let _never_linked = list.prepare(b"d", b"#", b"");
    assert_eq!((list.is_empty(), list.len()), (true, 0));
    assert_eq!(list.link_all(entries), 0);
    assert_eq!(forward(&list), [b"a#", b"b#", b"c#"]);
    assert_eq!(list.value(list.get(b"b#").unwrap()), b"b");
}

#[test]
#[should_panic(expected = "linked to list")]
fn an_entry_of_another_list_is_not_linked() {
    let (a, b) = (list(), list());
    b.link_all([a.prepare(b"k", b"", b"")]);
}

/// Each writer counts up in a range of its own, which makes every finger another writer's.
#[test]
fn stress_sequential_writers_share_the_finger() {
    let (threads, count) = if cfg!(miri) { (2u32, 20) } else { (4, 20_000u32) };
    let list = list();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let list = &list;
            scope.spawn(move || {
                for n in 0..count {
                    let key = [&thread.to_be_bytes()[..], &n.to_be_bytes()].concat();
                    assert!(list.insert(&key, &key));
                    assert!(list.get(&key).is_some());
                }
            });
        }
    });
    let found = forward(&list);
    assert!(found.is_sorted() && found.len() as u32 == threads * count && list.len() == found.len());
}

#[test]
fn ranges_are_estimated() {
    let list = SkipList::new(|a: &[u8], b: &[u8]| a.cmp(b));
    let entries: u32 = if cfg!(miri) { 300 } else { 50_000 };
    assert_eq!(list.estimate_between(b"", b"z"), 0);
    for number in 0..entries {
        // In an order other than that of the keys.
        let number = (u64::from(number) * 7919 % u64::from(entries)) as u32;
        assert!(list.insert(&number.to_be_bytes(), b""));
    }
    let between = |from: u32, to: u32| list.estimate_between(&from.to_be_bytes(), &to.to_be_bytes());
    assert_eq!((between(10, 10), between(20, 10), between(entries, u32::MAX)), (0, 0, 0));
    assert_eq!(between(5, 25), 20, "few are counted");
    for (from, to) in [(0, entries), (entries / 4, entries / 2), (entries / 3, entries / 3 + 250)] {
        let (found, exact) = (between(from, to) as f64, f64::from(to.min(entries) - from));
        assert!((found / exact - 1.0).abs() < 0.5, "{found}, there are {exact}");
    }
}
