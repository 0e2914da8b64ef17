//! Column families that are clipped to a range of keys: keys and bytes removed, and readers
//! unaffected.

use karst_engine::io::testing::foreign_block_on as wait;
use karst_engine::{
    ColumnFamily, CompactFilesOptions, CompactRangeOptions, Db, ErrorKind, FlushOptions, Options,
    ReadOptions, WriteOptions,
};
use karst_io::testing::poll_times;
use karst_io::{Env, MemoryFileSystem, Simulation};
use std::pin::pin;
use std::sync::Arc;

/// Number of polls that no call here reaches.
const MOST_POLLS: u64 = 1_000;

fn options(env: &Env) -> Options {
    let options = Options::new().env(env.clone()).db(|db| db.create_if_missing = true);
    options
        .set_all("disable_auto_compactions=true;target_file_size_base=16384;write_buffer_size=65536")
        .unwrap()
}

fn key(n: u32) -> String {
    format!("key{n:05}")
}

/// Writes keys all over the range to the last level, to L0 and to memory; their values do not
/// compress.
fn fill(db: &Db, family: &ColumnFamily) {
    let write = WriteOptions::new();
    let value = |n: u32| -> Vec<u8> {
        let mut state = u64::from(n) + 1;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        (0..200).map(|_| next()).collect()
    };
    for part in 0..3 {
        for n in (part..1000).step_by(3) {
            db.put_cf(&write, family, key(n), value(n)).unwrap();
        }
        match part {
            0 => db.compact_range_cf(&CompactRangeOptions::default(), family, None, None).unwrap(),
            1 => db.flush_cfs(&FlushOptions::default(), &[family]).unwrap(),
            _ => {}
        }
    }
}

fn keys(db: &Db, family: &ColumnFamily, options: &ReadOptions) -> Vec<String> {
    let mut iter = db.iter_cf(options, family).unwrap();
    let entries = iter.entries(karst_engine::Direction::Forward);
    entries.map(|entry| String::from_utf8_lossy(&entry.unwrap().0).into_owned()).collect()
}

fn in_memory() -> Env {
    Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build()
}

fn opened(env: &Env) -> (Db, ColumnFamily) {
    let db = Db::open("/db", &options(env)).unwrap();
    let family = db.create_column_family("clipped", &options(env)).unwrap();
    fill(&db, &family);
    (db, family)
}

/// Returns the smallest and the largest key of the family's tables.
fn bounds(db: &Db, family: &ColumnFamily) -> (String, String) {
    let files = db.live_files().into_iter().filter(|file| file.column_family == family.name());
    let text = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
    let (smallest, largest): (Vec<_>, Vec<_>) =
        files.map(|file| (text(&file.smallest_key), text(&file.largest_key))).unzip();
    (smallest.into_iter().min().unwrap_or_default(), largest.into_iter().max().unwrap_or_default())
}

fn expected(range: std::ops::Range<u32>) -> Vec<String> {
    range.map(key).collect()
}

#[test]
fn what_is_outside_is_gone_and_its_bytes_too() {
    let (db, family) = opened(&in_memory());
    db.put("other family", "stays").unwrap();
    db.clip_column_family(&family, key(300), key(700)).unwrap();
    assert_eq!(keys(&db, &family, &ReadOptions::new()), expected(300..700));
    assert_eq!(bounds(&db, &family), (key(300), key(699)));
    assert_eq!(db.int_property_cf(&family, "rocksdb.estimate-num-keys"), Some(400), "no deletion is left");
    assert_eq!(db.get("other family").unwrap().unwrap(), "stays");
    // Clips again, with the asynchronous call.
    wait(db.clip_column_family_async(&family, key(300).as_bytes(), key(700).as_bytes())).unwrap();
    wait(db.clip_column_family_async(&family, b"a", key(400).as_bytes())).unwrap();
    assert_eq!(keys(&db, &family, &ReadOptions::new()), expected(300..400));
    assert_eq!(bounds(&db, &family), (key(300), key(399)));
    // Begin and end are the first and the last key; the end is exclusive.
    db.clip_column_family(&family, key(300), key(399)).unwrap();
    assert_eq!(keys(&db, &family, &ReadOptions::new()), expected(300..399));
    assert_eq!(bounds(&db, &family), (key(300), key(398)));
    db.clip_column_family(&family, "key", "key").unwrap();
    assert!(keys(&db, &family, &ReadOptions::new()).is_empty());
    let left = db.live_files().into_iter().filter(|file| file.column_family == family.name());
    assert_eq!(left.count(), 0, "an empty range leaves nothing");
    let wrong = db.clip_column_family(&family, "b", "a").unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::InvalidArgument);
}

#[test]
fn snapshots_see_what_they_saw() {
    let (db, family) = opened(&in_memory());
    let snapshot = db.snapshot();
    db.clip_column_family(&family, key(300), key(700)).unwrap();
    assert_eq!(keys(&db, &family, &ReadOptions::new()), expected(300..700));
    let before = ReadOptions { snapshot: Some(snapshot), ..ReadOptions::new() };
    assert_eq!(keys(&db, &family, &before), expected(0..1000));
    drop(before);
    db.clip_column_family(&family, key(300), key(700)).unwrap();
    assert_eq!(bounds(&db, &family), (key(300), key(699)));
}

/// A clip is dropped after each of its polls in turn: it has removed all keys outside or none, it
/// has kept all keys inside, and a second call completes it.
#[test]
fn a_clip_that_is_given_up_removes_all_or_nothing() {
    let (begin, end) = (key(300), key(700));
    let (mut whole, mut clipped) = (0, 0);
    for polls in 0..MOST_POLLS {
        let simulation = Simulation::new(polls);
        let (db, family) = opened(simulation.env());
        let ended = simulation.run(async {
            let clip = db.clip_column_family_async(&family, begin.as_bytes(), end.as_bytes());
            poll_times(pin!(clip), polls).await.transpose().unwrap().is_some()
        });
        let ended = ended.expect("the power is on");
        let found = keys(&db, &family, &ReadOptions::new());
        if found.len() < 1000 {
            assert_eq!(found, expected(300..700), "{polls} polls");
            clipped += 1;
        } else {
            assert_eq!(found, expected(0..1000), "{polls} polls");
            whole += 1;
        }
        if !ended {
            db.clip_column_family(&family, &begin, &end).unwrap();
        }
        assert_eq!(keys(&db, &family, &ReadOptions::new()), expected(300..700));
        assert_eq!(bounds(&db, &family), (begin.clone(), key(699)));
        db.close().unwrap();
        if ended {
            assert!(whole > 0 && clipped > 1, "{whole} and {clipped}: the test shows nothing");
            return;
        }
    }
    panic!("a clip ends");
}

/// A table outside of the range has a deletion of a key whose older entry is in a table inside.
#[test]
fn deleted_keys_stay_deleted() {
    type Delete = fn(&Db, &ColumnFamily);
    let deletes: [(&str, Delete); 4] = [
        ("a", |db, _| db.delete("a").unwrap()),
        ("a", |db, family| db.delete_range_cf(&WriteOptions::new(), family, "a", "b").unwrap()),
        ("z", |db, _| db.delete("z").unwrap()),
        ("z", |db, family| db.delete_range_cf(&WriteOptions::new(), family, "y", "zz").unwrap()),
    ];
    for (number, (gone, delete)) in deletes.into_iter().enumerate() {
        for in_memory_too in [false, true] {
            let db = Db::open("/db", &options(&in_memory())).unwrap();
            let family = db.default_column_family().clone();
            ["a", "m", "z"].iter().for_each(|key| db.put(key, "1").unwrap());
            db.compact_range(&CompactRangeOptions::default(), None, None).unwrap();
            delete(&db, &family);
            db.flush(&FlushOptions::default()).unwrap();
            let newest = db.live_files().into_iter().find(|file| file.level == Some(0)).unwrap().number;
            let moved = CompactFilesOptions { allow_trivial_move: true, ..Default::default() };
            db.compact_files(&moved, &family, &[newest], 5).unwrap();
            if in_memory_too {
                // These keys are neither the first nor the last one, and are not flushed.
                db.put("b", "1").unwrap();
                db.put("y", "1").unwrap();
            }
            assert!(db.get(gone).unwrap().is_none());
            db.clip_column_family(&family, "c", "n").unwrap();
            assert_eq!(keys(&db, &family, &ReadOptions::new()), ["m"], "{number}, {in_memory_too}");
            assert_eq!(bounds(&db, &family), ("m".into(), "m".into()));
            db.close().unwrap();
        }
    }
}

#[test]
fn values_of_clipped_keys_in_blob_files_are_garbage() {
    let env = in_memory();
    let more = "enable_blob_files=true;min_blob_size=10;target_file_size_base=2K;blob_file_size=4K";
    let options = options(&env).set_all(more).unwrap();
    let db = Db::open("/db", &options).unwrap();
    let family = db.default_column_family().clone();
    let fill_400 = |db: &Db| {
        for n in 0..400 {
            db.put(key(n), "x".repeat(100)).unwrap();
            if n % 50 == 49 {
                db.flush(&FlushOptions::default()).unwrap();
            }
        }
        db.compact_range(&CompactRangeOptions::default(), None, None).unwrap();
    };
    fill_400(&db);
    let sizes = |db: &Db| {
        let number = |name: &str| db.int_property(name).unwrap();
        (number("rocksdb.total-blob-file-size"), number("rocksdb.live-blob-file-garbage-size"))
    };
    let (total, garbage) = sizes(&db);
    assert_eq!(garbage, 0);
    db.clip_column_family(&family, key(100), key(120)).unwrap();
    let check = |db: &Db| {
        assert_eq!(keys(db, db.default_column_family(), &ReadOptions::new()), expected(100..120));
        let (left, garbage) = sizes(db);
        // Twenty of 400 values, and at most one more file on either side.
        let live = left - garbage;
        assert!(
            live * 18 < total && left * 12 < total,
            "{left} bytes of {total} are left, {garbage} garbage"
        );
    };
    check(&db);
    db.close().unwrap();
    let db = Db::open("/db", &options).unwrap();
    check(&db);
    db.clip_column_family(db.default_column_family(), "key", "key").unwrap();
    assert_eq!(sizes(&db), (0, 0));
    // Blobs of files that `delete_files_in_ranges` removes count as garbage too.
    fill_400(&db);
    let (total, _) = sizes(&db);
    let (begin, end) = (key(40), key(360));
    let range = [(Some(begin.as_bytes()), Some(end.as_bytes()))];
    db.delete_files_in_ranges(db.default_column_family(), &range, true).unwrap();
    let left = keys(&db, db.default_column_family(), &ReadOptions::new()).len() as u64;
    assert!(left < 300, "{left} keys are left: no file was deleted");
    let (now, garbage) = sizes(&db);
    let live = now - garbage;
    assert!(live < left * total / 300, "{left} keys, {live} bytes that are no garbage, {total} before");
    db.close().unwrap();
}
