//! `ReadOptions::table_filter`: the tables that an iterator passes to the filter, the entries it
//! shows without the rejected tables, and a filter that panics.

use karst_engine::format::TableProperties;
use karst_engine::io::{Env, MemoryFileSystem, block_on};
use karst_engine::{CompactRangeOptions, Db, DbIterator, FlushOptions, Options, ReadOptions, TableFilterFn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

/// Returns a database with small tables in a level, two tables in L0, and a memtable. Each table
/// has a different number of entries.
fn filled() -> Db {
    let env = Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build();
    let options = Options::new()
        .env(env)
        .db(|db| db.create_if_missing = true)
        .set_all("disable_auto_compactions=true")
        .unwrap();
    let db = Db::open("/db", &options).unwrap();
    // The tables of the level, with 3, 4 and 5 entries, which do not overlap.
    for (first, count) in [('a', 3), ('b', 4), ('c', 5)] {
        for index in 0..count {
            db.put(format!("{first}{index}"), "level").unwrap();
        }
        db.flush(&FlushOptions::default()).unwrap();
        let bounds = [format!("{first}"), format!("{first}9")];
        let options = CompactRangeOptions::default();
        db.compact_range(&options, Some(bounds[0].as_bytes()), Some(bounds[1].as_bytes())).unwrap();
    }
    // L0: a table with 1 entry, which hides one of the level, and a table with 1 entry and a
    // tombstone over two, which counts as an entry too.
    db.put("a0", "newer").unwrap();
    db.flush(&FlushOptions::default()).unwrap();
    db.put("e", "L0").unwrap();
    db.delete_range("c1", "c3").unwrap();
    db.flush(&FlushOptions::default()).unwrap();
    db.put("f", "memtable").unwrap();
    db
}

/// Returns read options that reject tables with these numbers of entries.
fn without(counts: &'static [u64]) -> ReadOptions {
    let wanted = move |table: &TableProperties| !counts.contains(&table.num_entries);
    ReadOptions { table_filter: Some(TableFilterFn::new(wanted)), ..ReadOptions::new() }
}

fn entry(iter: &DbIterator) -> String {
    format!("{}={}", String::from_utf8_lossy(iter.key()), String::from_utf8_lossy(iter.value()))
}

/// Returns all entries. Forward, backward and asynchronous iteration must agree.
fn shown(db: &Db, options: &ReadOptions) -> String {
    let mut iter = db.iter(options).unwrap();
    let (mut forward, mut backward, mut later) = (Vec::new(), Vec::new(), Vec::new());
    iter.seek_to_first().unwrap();
    while iter.valid() {
        forward.push(entry(&iter));
        iter.next().unwrap();
    }
    iter.seek_to_last().unwrap();
    while iter.valid() {
        backward.push(entry(&iter));
        iter.prev().unwrap();
    }
    backward.reverse();
    block_on(db.env(), async {
        let mut iter = db.iter(options).unwrap();
        iter.seek_to_first_async().await.unwrap();
        while iter.valid() {
            later.push(entry(&iter));
            iter.next_async().await.unwrap();
        }
    });
    assert_eq!(forward, backward);
    assert_eq!(forward, later);
    forward.join(" ")
}

#[test]
fn tables_are_passed_by_and_their_tombstones_count() {
    let db = filled();
    let (a, b) = ("a0=newer a1=level a2=level", "b0=level b1=level b2=level b3=level");
    let (c, rest) = ("c0=level c3=level c4=level", "e=L0 f=memtable");
    assert_eq!(shown(&db, &ReadOptions::new()), format!("{a} {b} {c} {rest}"));
    assert_eq!(shown(&db, &without(&[])), format!("{a} {b} {c} {rest}"));
    // Rejects the middle table of a level, then both ends, then all.
    assert_eq!(shown(&db, &without(&[4])), format!("{a} {c} {rest}"));
    assert_eq!(shown(&db, &without(&[3, 5])), format!("a0=newer {b} {rest}"));
    assert_eq!(shown(&db, &without(&[3, 4, 5])), format!("a0=newer {rest}"));
    // Without the L0 table, the entry that it hides is visible.
    assert_eq!(shown(&db, &without(&[1])), format!("a0=level a1=level a2=level {b} {c} {rest}"));
    assert_eq!(shown(&db, &without(&[1, 2, 3, 4, 5])), "f=memtable");
    let tombstone_alone = ReadOptions {
        table_filter: Some(TableFilterFn::new(|table| table.num_range_deletions == 0)),
        ..ReadOptions::new()
    };
    assert_eq!(shown(&db, &tombstone_alone), format!("{a} {b} {c} f=memtable"));
}

#[test]
fn seeks_land_behind_what_is_passed_by() {
    let db = filled();
    let mut iter = db.iter(&without(&[4])).unwrap();
    iter.seek("b1").unwrap();
    assert_eq!(iter.key(), b"c0");
    iter.prev().unwrap();
    assert_eq!(iter.key(), b"a2");
    iter.seek_for_prev("b1").unwrap();
    assert_eq!(iter.key(), b"a2");
    iter.next().unwrap();
    assert_eq!(iter.key(), b"c0");
    let mut none = db.iter(&without(&[1, 2, 3, 4, 5])).unwrap();
    none.seek("b1").unwrap();
    assert_eq!(none.key(), b"f");
    none.prev().unwrap();
    assert!(!none.valid() && none.status().is_ok());
}

#[test]
fn each_table_is_asked_about_once_and_only_by_iterators_that_come_to_it() {
    let db = filled();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let notes = asked.clone();
    let filter = TableFilterFn::new(move |table| {
        notes.lock().unwrap().push(table.num_entries);
        true
    });
    let options = ReadOptions { table_filter: Some(filter), ..ReadOptions::new() };
    assert!(db.get_opt(&options, "b1").unwrap().is_some());
    assert!(
        db.multi_get_cf(&options, db.default_column_family(), &["a1", "b1"])
            .iter()
            .all(|found| found.as_ref().unwrap().is_some())
    );
    assert!(asked.lock().unwrap().is_empty(), "point lookups ask nothing");
    let mut iter = db.iter(&options).unwrap();
    iter.seek_to_first().unwrap();
    while iter.valid() {
        iter.next().unwrap();
    }
    let mut counts = std::mem::take(&mut *asked.lock().unwrap());
    counts.sort_unstable();
    assert_eq!(counts, [1, 2, 3, 4, 5]);
    let bounded = ReadOptions {
        iterate_lower_bound: Some(b"b".to_vec()),
        iterate_upper_bound: Some(b"c".to_vec()),
        ..options
    };
    let mut iter = db.iter(&bounded).unwrap();
    iter.seek("b0").unwrap();
    while iter.valid() {
        iter.next().unwrap();
    }
    assert_eq!(*asked.lock().unwrap(), [4]);
}

#[test]
fn a_filter_that_panics_is_its_callers_own() {
    let db = filled();
    let calls = Arc::new(AtomicU64::new(0));
    let counts = calls.clone();
    let filter = TableFilterFn::new(move |_| {
        assert!(counts.fetch_add(1, SeqCst) != 1, "the user's own");
        true
    });
    let options = ReadOptions { table_filter: Some(filter), ..ReadOptions::new() };
    let mut iter = db.iter(&options).unwrap();
    let moved = catch_unwind(AssertUnwindSafe(|| iter.seek_to_first().map(drop)));
    assert!(moved.is_err(), "it did not panic");
    iter.seek("b0").unwrap();
    assert_eq!(iter.key(), b"b0");
    drop(iter);
    assert!(db.get("b0").unwrap().is_some());
    db.close().unwrap();
}
