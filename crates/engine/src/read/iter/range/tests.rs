//! Tests of ranges against a sorted list: in each key order, from both ends, as iterators and as
//! streams.

use super::*;
use crate::{Db, FlushOptions, Options};
use karst_io::{Env, MemoryFileSystem, block_on};
use karst_testkit::random::Random;
use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;

type Entries = VecDeque<(Vec<u8>, Vec<u8>)>;

/// Creates a database with keys in tables and in a memtable; returns it with its entries in order.
fn database(order: &Comparator, random: &mut Random) -> (Db, Entries) {
    let env = Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build();
    let options =
        Options::new().env(env).comparator(None, order.clone()).db(|db| db.create_if_missing = true);
    let db = Db::open("/db", &options).unwrap();
    let mut all: Vec<Vec<u8>> = Vec::new();
    for round in 0..3 {
        for _ in 0..40 {
            let key = key(order, random);
            db.put(&key, format!("{round}")).unwrap();
            all.push(key);
        }
        let gone = all.swap_remove(random.index(all.len()));
        db.delete(&gone).unwrap();
        all.retain(|key| *key != gone);
        if round < 2 {
            db.flush(&FlushOptions::default()).unwrap();
        }
    }
    all.sort_by(|a, b| order.compare_user(a, b));
    all.dedup();
    let entries = all.into_iter().map(|key| {
        let value = db.get(&key).unwrap().expect("it was put").to_vec();
        (key, value)
    });
    let entries = entries.collect();
    (db, entries)
}

/// A random key of few letters, so that prefixes, bounds equal to a key, and 0xff are common.
fn key(order: &Comparator, random: &mut Random) -> Vec<u8> {
    if let Comparator::Uint64 = order {
        return random.below(300).to_le_bytes().to_vec();
    }
    let letters = [0, 1, b'a', b'b', 0xfe, 0xff];
    (0..1 + random.below(3)).map(|_| letters[random.index(letters.len())]).collect()
}

fn bound(order: &Comparator, random: &mut Random) -> Bound<Vec<u8>> {
    let key = key(order, random);
    match random.below(3) {
        0 => Bound::Included(key),
        1 => Bound::Excluded(key),
        _ => Bound::Unbounded,
    }
}

fn inside(order: &Comparator, key: &[u8], (lower, upper): &(Bound<Vec<u8>>, Bound<Vec<u8>>)) -> bool {
    let after = match lower {
        Bound::Included(lower) => order.compare_user(key, lower).is_ge(),
        Bound::Excluded(lower) => order.compare_user(key, lower).is_gt(),
        Bound::Unbounded => true,
    };
    let before = match upper {
        Bound::Included(upper) => order.compare_user(key, upper).is_le(),
        Bound::Excluded(upper) => order.compare_user(key, upper).is_lt(),
        Bound::Unbounded => true,
    };
    after && before
}

fn owned(entry: Result<(Box<[u8]>, Value)>) -> (Vec<u8>, Vec<u8>) {
    let (key, value) = entry.unwrap();
    (key.into(), value.to_vec())
}

/// Takes entries from random ends until both ends are exhausted.
fn agree(mut range: Range, mut wanted: Entries, random: &mut Random) {
    let only_one = random.below(4);
    loop {
        let front = only_one == 0 || (only_one > 1 && random.one_in(2));
        let (found, expected) = match front {
            true => (range.next(), wanted.pop_front()),
            false => (range.next_back(), wanted.pop_back()),
        };
        assert_eq!(found.map(owned), expected);
        if wanted.is_empty() {
            assert!(range.next().is_none() && range.next_back().is_none() && range.next().is_none());
            return;
        }
    }
}

fn stream(db: &Db, range: Range, direction: Direction) -> Entries {
    let mut stream = pin!(range.into_stream(direction).unwrap());
    let mut all = Entries::new();
    while let Some(entry) = block_on(db.env(), std::future::poll_fn(|cx| stream.as_mut().poll_next(cx))) {
        all.push_back(owned(entry));
    }
    all
}

#[test]
fn ranges_are_what_a_sorted_list_has() {
    let mut random = Random::new(karst_testkit::asked::seed());
    for order in [Comparator::Bytewise, Comparator::ReverseBytewise, Comparator::Uint64] {
        let (db, all) = database(&order, &mut random);
        let mut empty = 0;
        for _ in 0..400 {
            let bounds = (bound(&order, &mut random), bound(&order, &mut random));
            let ends_before = key_of(&bounds.0)
                .zip(key_of(&bounds.1))
                .is_some_and(|(a, b)| order.compare_user(a, b).is_gt());
            if ends_before {
                assert!(db.range(bounds).unwrap_err().to_string().contains("ends before"));
                continue;
            }
            let wanted: Entries =
                all.iter().filter(|(key, _)| inside(&order, key, &bounds)).cloned().collect();
            empty += u32::from(wanted.is_empty());
            agree(db.range(bounds.clone()).unwrap(), wanted.clone(), &mut random);
            let forward = stream(&db, db.range(bounds.clone()).unwrap(), Direction::Forward);
            assert_eq!(forward, wanted, "{bounds:?}");
            let mut backward = stream(&db, db.range(bounds).unwrap(), Direction::Backward);
            backward.make_contiguous().reverse();
            assert_eq!(backward, wanted);
        }
        assert!((1..200).contains(&empty), "{empty} ranges were empty: the test shows little");
    }
}

#[test]
fn prefixes_need_no_extractor_and_an_order_by_bytes() {
    let mut random = Random::new(karst_testkit::asked::seed());
    for order in [Comparator::Bytewise, Comparator::ReverseBytewise] {
        let (db, all) = database(&order, &mut random);
        for prefix in [&b""[..], b"a", b"b\xff", b"\xff", b"\xff\xff", b"\0", b"zz"] {
            let wanted: Entries = all.iter().filter(|(key, _)| key.starts_with(prefix)).cloned().collect();
            agree(db.prefix(prefix).unwrap(), wanted, &mut random);
        }
    }
    let (db, _) = database(&Comparator::Uint64, &mut random);
    assert_eq!(db.prefix("a").unwrap_err().kind(), crate::ErrorKind::NotSupported);
}

#[test]
fn a_range_stays_as_it_was_and_finds_all_prefixes() {
    let env = Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build();
    let options = Options::new()
        .env(env)
        .set("prefix_extractor", "fixed:1")
        .unwrap()
        .db(|db| db.create_if_missing = true);
    let db = Db::open("/db", &options).unwrap();
    for key in ["a1", "b1", "c1"] {
        db.put(key, key).unwrap();
        db.flush(&FlushOptions::default()).unwrap();
    }
    let mut range = db.range("a".."c2").unwrap();
    assert_eq!(owned(range.next().unwrap()).0, b"a1");
    // The back end starts after the changes and sees none of them.
    db.put("c11", "late").unwrap();
    db.delete("c1").unwrap();
    db.flush(&FlushOptions::default()).unwrap();
    assert_eq!(owned(range.next_back().unwrap()), (b"c1".to_vec(), b"c1".to_vec()));
    assert_eq!(range.next().map(owned).unwrap().0, b"b1");
    assert!(range.next_back().is_none());
    let keys: Result<Vec<_>> = db.range(..).unwrap().keys().rev().collect();
    assert_eq!(keys.unwrap().iter().map(|key| &key[..]).collect::<Vec<_>>(), [&b"c11"[..], b"b1", b"a1"]);
    let values: Result<Vec<_>> = db.range("b"..="b1").unwrap().values().collect();
    assert_eq!(values.unwrap().len(), 1);
    // A cursor is a Rust iterator too, from its position on.
    let mut cursor = db.iter(&ReadOptions::new()).unwrap();
    cursor.seek("b").unwrap();
    assert_eq!(cursor.into_iter().count(), 2);
    assert_eq!(db.iter(&ReadOptions::new()).unwrap().into_iter().count(), 3);
}

#[test]
fn misuse_and_a_closed_database_end_it_with_one_error() {
    let env = Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build();
    let options = Options::new().env(env).db(|db| db.create_if_missing = true);
    let db = Db::open("/db", &options).unwrap();
    db.put("a", "1").unwrap();
    db.put("b", "2").unwrap();
    let mut read_from = db.range(..).unwrap();
    read_from.next().unwrap().unwrap();
    assert!(read_from.into_stream(Direction::Forward).is_err());
    let text = db.cf("nosuch").unwrap_err().to_string();
    assert!(text.contains("nosuch") && text.contains("create_column_family"), "{text}");
    let mut begun = db.range(..).unwrap();
    begun.next().unwrap().unwrap();
    let fresh = db.iter(&ReadOptions::new()).unwrap();
    let whole = db.cf("default").unwrap();
    db.close().unwrap();
    for entries in [begun.collect::<Vec<_>>(), fresh.into_iter().collect()] {
        assert!(
            matches!(&entries[..], [Err(error)] if error.kind() == crate::ErrorKind::Closed),
            "{entries:?}"
        );
    }
    assert!(db.range(..).is_err() && whole.range(..).is_err() && whole.put("a", "b").is_err());
}

/// Each call of a column family handle acts on that family alone, with the family's options.
#[test]
fn a_column_family_with_its_calls() {
    use crate::{CompactRangeOptions, WriteOptions};
    let env = Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build();
    let options = Options::new().env(env).set("merge_operator", "uint64add").unwrap();
    let options = options.db(|db| db.create_if_missing = true);
    let db = Db::open("/db", &options).unwrap();
    db.create_column_family("own", &options).unwrap();
    let own = db.cf("own").unwrap();
    let one = 1_u64.to_le_bytes();
    own.put("a", "1").unwrap();
    own.put("b", "2").unwrap();
    own.put("c", "3").unwrap();
    own.put("d", "4").unwrap();
    own.delete("a").unwrap();
    own.single_delete("b").unwrap();
    own.delete_range("c", "cc").unwrap();
    own.merge("n", one).unwrap();
    let env = db.env();
    block_on(env, own.merge_async("n", &one)).unwrap();
    block_on(env, own.put_async("e", &vec![b'5'])).unwrap();
    block_on(env, own.put_async("f", "6")).unwrap();
    block_on(env, own.delete_async(b"f")).unwrap();
    let before =
        own.clone().with_read_options(ReadOptions { snapshot: Some(db.snapshot()), ..ReadOptions::new() });
    block_on(env, own.delete_range_async("d", "dd")).unwrap();
    own.flush(&FlushOptions::default()).unwrap();
    block_on(env, own.flush_async(&FlushOptions::default())).unwrap();
    own.compact_range(&CompactRangeOptions::default(), None, None).unwrap();
    block_on(env, own.compact_range_async(&CompactRangeOptions::default(), None, None)).unwrap();

    let keys = |range: Range| range.keys().map(|key| key.unwrap()[0]).collect::<Vec<_>>();
    assert_eq!(keys(own.range(..).unwrap()), b"en");
    assert_eq!(keys(before.range("b"..).unwrap()), b"den");
    assert_eq!(keys(own.prefix("n").unwrap()), b"n");
    assert_eq!(own.get("n").unwrap().unwrap().as_ref(), 2_u64.to_le_bytes());
    assert_eq!(block_on(env, own.get_async("e")).unwrap().unwrap().as_ref(), b"5");
    let there = |found: Vec<Result<Option<Value>>>| {
        found.into_iter().map(|v| v.unwrap().is_some()).collect::<Vec<_>>()
    };
    assert_eq!(there(own.multi_get(&["d", "e"])), [false, true]);
    assert_eq!(there(block_on(env, before.multi_get_async(&["d", "e"]))), [true, true]);
    assert_eq!(own.iter().unwrap().into_iter().count(), 2);
    assert_eq!(db.range(..).unwrap().count(), 0);

    let refused =
        own.clone().with_write_options(WriteOptions { sync: true, disable_wal: true, ..WriteOptions::new() });
    assert_eq!(refused.put("a", "b").unwrap_err().kind(), crate::ErrorKind::InvalidArgument);
    own.set_options(&[("level0_file_num_compaction_trigger", "7")]).unwrap();
    assert_eq!(own.options().unwrap().level0_file_num_compaction_trigger, 7);
    assert_eq!(own.int_property("rocksdb.num-immutable-mem-table"), Some(0));
    assert!(own.property("rocksdb.stats").is_some());
    assert_eq!((own.name(), own.column_family().name(), own.db().path()), ("own", "own", db.path()));
}
