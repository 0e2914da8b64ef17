//! Scans of values in blob files: readahead reads the values in large requests, and scans return
//! the values that lookups return.

use karst_engine::{
    CompactRangeOptions, Db, DbIterator, FlushOptions, Options, ReadOptions, Snapshot, WriteBatch,
    WriteOptions,
};
use karst_io::Env;
use std::collections::BTreeMap;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

const KEYS: u64 = 4000;

fn key(number: u64) -> Vec<u8> {
    format!("key{number:06}").into_bytes()
}

fn value(number: u64, version: u64) -> Vec<u8> {
    let length = 300 + (number * 37 + version * 101) % 700;
    format!("{number}.{version};").into_bytes().into_iter().cycle().take(length as usize).collect()
}

fn options() -> Options {
    Options::new()
        .db(|db| {
            db.create_if_missing = true;
            db.use_direct_reads = true;
        })
        .set("enable_blob_files", "true")
        .and_then(|options| options.set("min_blob_size", "1"))
        .and_then(|options| options.set("merge_operator", "stringappend"))
        .and_then(|options| options.set("disable_auto_compactions", "true"))
        .expect("these are options")
}

/// Writes several generations of values to separate files, removes or merges some keys, and takes a
/// snapshot of the state before the last generation. Returns the database and the snapshot, each
/// with its model.
fn filled(path: &std::path::Path) -> (Db, Model, Snapshot, Model) {
    let db = Db::open(path, &options()).unwrap();
    let mut model = Model::new();
    let write = |model: &mut Model, version: u64, step: u64| {
        let mut batch = WriteBatch::new();
        for number in (0..KEYS).filter(|n| n % step == 0) {
            batch.put(key(number), value(number, version)).unwrap();
            model.insert(key(number), value(number, version));
        }
        db.write(&WriteOptions::new(), &batch).unwrap();
        db.flush(&FlushOptions::default()).unwrap();
    };
    write(&mut model, 0, 1);
    db.compact_range(&CompactRangeOptions::default(), None, None).unwrap();
    write(&mut model, 1, 5);
    let (snapshot, before) = (db.snapshot(), model.clone());
    write(&mut model, 2, 7);
    for number in (0..KEYS).filter(|n| n % 11 == 0) {
        db.delete(key(number)).unwrap();
        model.remove(&key(number));
    }
    for number in (0..KEYS).filter(|n| n % 13 == 0) {
        db.merge(key(number), b"more").unwrap();
        let merged = match model.remove(&key(number)) {
            Some(value) => [&value[..], b",more"].concat(),
            None => b"more".to_vec(),
        };
        model.insert(key(number), merged);
    }
    db.flush(&FlushOptions::default()).unwrap();
    (db, model, snapshot, before)
}

fn collect(mut iter: DbIterator, forward: bool) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    if forward { iter.seek_to_first() } else { iter.seek_to_last() }.unwrap();
    while iter.valid() {
        found.push((iter.key().to_vec(), iter.value().to_vec()));
        if forward { iter.next() } else { iter.prev() }.unwrap();
    }
    if !forward {
        found.reverse();
    }
    found
}

#[test]
fn scans_show_what_the_model_has_in_both_directions_and_at_a_snapshot() {
    let directory = tempfile::tempdir().unwrap();
    let (db, model, snapshot, before) = filled(directory.path());
    for forward in [true, false] {
        for (at, expected) in [(None, &model), (Some(snapshot.clone()), &before)] {
            let mut read = ReadOptions::new();
            read.snapshot = at;
            let expected: Vec<_> = expected.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
            assert_eq!(collect(db.iter(&read).unwrap(), forward), expected);
            read.verify_checksums = false;
            read.readahead_size = 100_000;
            assert_eq!(collect(db.iter(&read).unwrap(), forward), expected);
        }
    }
}

#[test]
fn a_scan_that_turns_and_seeks_shows_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let (db, model, ..) = filled(directory.path());
    let mut iter = db.iter(&ReadOptions::new()).unwrap();
    let mut state = 7u64;
    for _ in 0..300 {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let start = key((state >> 33) % KEYS);
        iter.seek(&start).unwrap();
        let mut at = model.range(start..).next().map(|(key, _)| key.clone());
        for turn in 0..3 {
            for _ in 0..(state >> (10 * turn)) % 40 {
                let Some(expected) = at.as_ref() else { break };
                assert_eq!((iter.key(), iter.value()), (&expected[..], &model[expected][..]));
                if turn % 2 == 0 {
                    iter.next().unwrap();
                    at = model
                        .range((std::ops::Bound::Excluded(expected.clone()), std::ops::Bound::Unbounded))
                        .next()
                        .map(|(key, _)| key.clone());
                } else {
                    iter.prev().unwrap();
                    at = model.range(..expected.clone()).next_back().map(|(key, _)| key.clone());
                }
            }
            assert_eq!(iter.valid(), at.is_some());
        }
    }
}

#[test]
fn a_scan_reads_its_values_in_few_requests() {
    let directory = tempfile::tempdir().unwrap();
    let values = {
        let (db, model, ..) = filled(directory.path());
        db.close().unwrap();
        model.len() as u64
    };
    for forward in [true, false] {
        let env = Env::posix();
        let db = Db::open_read_only(directory.path(), &options().env(env.clone())).unwrap();
        let before = env.io_stats().reads;
        assert_eq!(collect(db.iter(&ReadOptions::new()).unwrap(), forward).len() as u64, values);
        let reads = env.io_stats().reads - before;
        assert!(reads < values / 10, "{reads} reads for {values} values");
        let mut bounded = ReadOptions::new();
        bounded.iterate_upper_bound = Some(key(KEYS / 2));
        bounded.iterate_lower_bound = Some(key(KEYS / 2 - 20));
        let before = env.io_stats().bytes;
        assert_eq!(collect(db.iter(&bounded).unwrap(), forward).len(), 18);
        let bytes = env.io_stats().bytes - before;
        assert!(bytes < 100_000, "{bytes} bytes for 18 values of about 650");
    }
}
