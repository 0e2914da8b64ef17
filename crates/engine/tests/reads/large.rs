//! Keys of one MiB, values of 100 MiB and long runs of tombstones work like small ones; a key or
//! value that is too large is refused before anything is written.

use karst_engine::io::{Env, MemoryFileSystem};
use karst_engine::perf_context::{self, PerfLevel, PerfMetric};
use karst_engine::{
    CompactRangeOptions, Db, ErrorKind, FlushOptions, Options, ReadOptions, WriteBatch, WriteOptions,
};
use std::sync::Arc;

const MIB: usize = 1 << 20;

fn options() -> Options {
    let env = Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build();
    let text = "create_if_missing=true;compression=kNoCompression;write_buffer_size=1048576";
    Options::new().env(env).set_all(text).unwrap()
}

/// Returns a key that differs from its neighbours only in its last byte.
fn key(number: u8) -> Vec<u8> {
    let mut key = vec![b'k'; MIB];
    *key.last_mut().unwrap() = number;
    key
}

fn value(number: u8, bytes: usize) -> Vec<u8> {
    let part: Vec<u8> = (0..251).map(|at: u8| at.wrapping_mul(31).wrapping_add(number)).collect();
    let mut value = part.repeat(bytes / part.len() + 1);
    value.truncate(bytes);
    value
}

/// Returns a value of 100 MiB between two small ones.
fn with_a_large_value() -> Vec<(Vec<u8>, Vec<u8>)> {
    [10, 100 * MIB, 20].into_iter().zip(0..).map(|(bytes, at)| (vec![at], value(at, bytes))).collect()
}

/// Asserts that every way of reading returns exactly the `expected` entries.
fn holds(db: &Db, expected: &[(Vec<u8>, Vec<u8>)], when: &str) {
    let keys: Vec<&[u8]> = expected.iter().map(|(key, _)| &key[..]).collect();
    for ((key, value), found) in expected.iter().zip(db.multi_get(&keys)) {
        assert!(db.get(key).unwrap().as_deref() == Some(value), "{when}");
        assert!(found.unwrap().as_deref() == Some(value), "{when}: multi_get");
    }
    let mut iter = db.iter(&ReadOptions::new()).unwrap();
    iter.seek_to_first().unwrap();
    for (key, value) in expected {
        assert!(iter.valid() && iter.key() == key && iter.value() == value, "{when}: forward");
        iter.next().unwrap();
    }
    assert!(!iter.valid(), "{when}");
    iter.seek_for_prev(keys.last().unwrap()).unwrap();
    for (key, value) in expected.iter().rev() {
        assert!(iter.valid() && iter.key() == key && iter.value() == value, "{when}: backward");
        iter.prev().unwrap();
    }
    assert!(!iter.valid(), "{when}");
}

fn through_its_life(options: &Options, expected: &[(Vec<u8>, Vec<u8>)]) {
    let db = Db::open("/db", options).unwrap();
    // Two rounds, because one table alone would not be compacted.
    for round in 0..2 {
        for (key, value) in expected {
            db.put(key, if round == 0 { &value[..value.len() / 2] } else { value }).unwrap();
        }
        if round == 0 {
            db.flush(&FlushOptions::default()).unwrap();
        }
    }
    holds(&db, expected, "in memory");
    drop(db);
    let db = Db::open("/db", options).unwrap();
    holds(&db, expected, "replayed");
    db.flush(&FlushOptions::default()).unwrap();
    holds(&db, expected, "flushed");
    db.compact_range(&CompactRangeOptions::default(), None, None).unwrap();
    holds(&db, expected, "compacted");
    db.verify_checksum().unwrap();
    db.close().unwrap();
    drop(db);
    let db = Db::open_read_only("/db", options).unwrap();
    holds(&db, expected, "for reading only");
}

#[test]
fn keys_of_a_mebibyte() {
    let expected: Vec<_> = (b'a'..b'g').map(|number| (key(number), vec![number; 10])).collect();
    through_its_life(&options().set("filter_policy", "bloomfilter:10").unwrap(), &expected);
    // A partitioned index whose entries are as large as the keys.
    let parted = "index_type=kTwoLevelIndexSearch;partition_filters=true;filter_policy=bloomfilter:10;\
                  format_version=6";
    through_its_life(&options().set_all(parted).unwrap(), &expected);
}

#[test]
fn values_of_a_hundred_mebibytes_in_tables() {
    through_its_life(&options(), &with_a_large_value());
}

#[test]
fn values_of_a_hundred_mebibytes_in_blob_files() {
    let options = options().set_all("enable_blob_files=true;min_blob_size=1000").unwrap();
    through_its_life(&options, &with_a_large_value());
    let db = Db::open_read_only("/db", &options).unwrap();
    let [tables, blobs] = ["total-sst-files-size", "live-blob-file-size"]
        .map(|name| db.int_property(&format!("rocksdb.{name}")).unwrap());
    assert!(tables < MIB as u64 && blobs > 100 * MIB as u64, "the value is in a blob file: {tables} {blobs}");
}

#[test]
fn what_reaches_four_gibibytes_is_refused_before_anything_is_written() {
    let db = Db::open("/db", &options().set("merge_operator", "StringAppendOperator").unwrap()).unwrap();
    // The zeroes are never touched, so they cost address space only.
    let huge = vec![0u8; (4usize << 30) + 1];
    let half = &huge[..2 << 30];
    let mut batch = WriteBatch::new();
    batch.put("small", "1").unwrap();
    let mut refused = vec![
        db.put(b"key", &huge),
        db.put(&huge, b"value"),
        db.merge(b"key", &huge),
        db.delete(&huge),
        batch.put(b"key", &huge),
        batch.put(&huge, b"value"),
    ];
    batch.put(b"half", half).unwrap();
    refused.push(batch.put(b"other half", half));
    for (number, outcome) in refused.into_iter().enumerate() {
        let error = outcome.expect_err("it is too large");
        let (kind, said) = match number {
            0..6 => (ErrorKind::InvalidArgument, "is the most"),
            _ => (ErrorKind::LimitReached, "would grow over its limit"),
        };
        let text = error.to_string();
        assert!(error.kind() == kind && text.contains(said) && text.len() < 300, "{number}: {text:.300}");
    }
    // The refused entries are not in the batch, and those in it are still valid.
    assert_eq!(batch.count(), 2);
    assert_eq!(db.latest_sequence_number(), 0);
    db.put("key", "value").unwrap();
    assert!(db.get(&huge[..64 * MIB]).unwrap().is_none());
}

const TOMBSTONES: u64 = 100_000;

/// Returns a database with keys on both sides of `TOMBSTONES` deleted ones.
fn behind_tombstones() -> Db {
    let db = Db::open("/db", &options().set("disable_auto_compactions", "true").unwrap()).unwrap();
    let middle = |number: u64| format!("m{number:08}");
    for deletes in [false, true] {
        for start in (0..TOMBSTONES).step_by(1000) {
            let mut batch = WriteBatch::new();
            for number in start..start + 1000 {
                if deletes {
                    batch.delete(middle(number)).unwrap();
                } else {
                    batch.put(middle(number), "gone").unwrap();
                }
            }
            db.write(&WriteOptions::new(), &batch).unwrap();
        }
        db.put(if deletes { "a" } else { "z" }, "1").unwrap();
        db.flush(&FlushOptions::default()).unwrap();
    }
    db
}

fn counted(work: impl FnOnce()) -> fn(PerfMetric) -> u64 {
    perf_context::reset();
    perf_context::set_level(PerfLevel::EnableCount);
    work();
    perf_context::set_level(PerfLevel::Disable);
    perf_context::get
}

#[test]
fn a_seek_behind_a_hundred_thousand_tombstones_passes_each_once() {
    let db = behind_tombstones();
    let mut iter = db.iter(&ReadOptions::new()).unwrap();
    for forward in [true, false] {
        let count =
            counted(|| if forward { iter.seek("b").unwrap() } else { iter.seek_for_prev("y").unwrap() });
        assert_eq!(iter.key(), if forward { b"z" } else { b"a" });
        let (deleted, skipped) =
            (count(PerfMetric::InternalDeleteSkippedCount), count(PerfMetric::InternalKeySkippedCount));
        assert_eq!(deleted, TOMBSTONES, "forward {forward}");
        // Each tombstone is skipped, and so is the value that it hides.
        assert!((2 * TOMBSTONES..=2 * TOMBSTONES + 10).contains(&skipped), "forward {forward}: {skipped}");
    }
    // A seek does not pass the upper bound.
    let bounded = ReadOptions { iterate_upper_bound: Some(b"m00000010".to_vec()), ..ReadOptions::new() };
    let mut iter = db.iter(&bounded).unwrap();
    let count = counted(|| iter.seek("b").unwrap());
    assert!(!iter.valid() && count(PerfMetric::InternalDeleteSkippedCount) <= 11);
    // After a compaction there are no tombstones to skip.
    db.compact_range(&CompactRangeOptions::default(), None, None).unwrap();
    let mut iter = db.iter(&ReadOptions::new()).unwrap();
    let count = counted(|| iter.seek("b").unwrap());
    assert!(iter.key() == b"z" && count(PerfMetric::InternalDeleteSkippedCount) == 0);
}

/// Compat: as in RocksDB, a seek fails with `Incomplete` when it would skip more than the limit,
/// and another seek of the same iterator may succeed.
#[test]
fn max_skippable_internal_keys_bounds_a_seek() {
    let db = behind_tombstones();
    for limit in [1, 1000, TOMBSTONES] {
        let options = ReadOptions { max_skippable_internal_keys: limit, ..ReadOptions::new() };
        let mut iter = db.iter(&options).unwrap();
        for forward in [true, false] {
            let count = counted(|| {
                let told = if forward { iter.seek("b") } else { iter.seek_for_prev("y") };
                let told = told.unwrap_err();
                assert_eq!(told.kind(), ErrorKind::Incomplete, "{told}");
                assert!(told.to_string().contains("max_skippable_internal_keys"), "{told}");
            });
            assert!(!iter.valid());
            let skipped = count(PerfMetric::InternalKeySkippedCount);
            assert!((limit..=limit + 2).contains(&skipped), "forward {forward}: {skipped} of {limit}");
        }
        iter.seek("z").unwrap();
        assert_eq!(iter.key(), b"z");
        assert_eq!(iter.prev().unwrap_err().kind(), ErrorKind::Incomplete);
        iter.seek_to_first().unwrap();
        assert_eq!(iter.key(), b"a");
    }
    let enough = ReadOptions { max_skippable_internal_keys: 2 * TOMBSTONES + 10, ..ReadOptions::new() };
    let mut iter = db.iter(&enough).unwrap();
    iter.seek("b").unwrap();
    assert_eq!(iter.key(), b"z");
}
