//! Manual compactions on databases that take writes.

use karst_engine::io::block_on;
use karst_engine::{
    BottommostLevelCompaction, CompactFilesOptions, CompactRangeOptions, Db, FlushOptions, Options,
    ReadOptions,
};
use std::collections::BTreeMap;
use std::future::Future;
use std::task::{Context, Waker};

fn options(text: &str) -> Options {
    Options::new()
        .set_all("create_if_missing=true;disable_auto_compactions=true;compression=kNoCompression;merge_operator=stringappend")
        .unwrap()
        .set_all(text)
        .unwrap()
}

fn key(i: u32) -> Vec<u8> {
    format!("key{i:05}").into_bytes()
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Writes a few flushed rounds and returns the resulting entries.
fn fill(db: &Db, rounds: u32) -> Model {
    let mut model = Model::new();
    for round in 0..rounds {
        for i in 0..600u32 {
            let k = key(i * 7919 % 1000 + round);
            let value = format!("{round}-{i}").into_bytes();
            match (i + round) % 7 {
                0 => {
                    db.delete(&k).unwrap();
                    model.remove(&k);
                }
                1 => {
                    db.merge(&k, &value).unwrap();
                    let merged = model.entry(k).or_default();
                    if !merged.is_empty() {
                        merged.push(b',');
                    }
                    merged.extend_from_slice(&value);
                }
                _ => {
                    db.put(&k, &value).unwrap();
                    model.insert(k, value);
                }
            }
        }
        let (from, to) = (key(100 * round), key(100 * round + 40));
        db.delete_range(&from, &to).unwrap();
        model.retain(|k, _| *k < from || *k >= to);
        db.flush(&FlushOptions::default()).unwrap();
    }
    model
}

fn contents(db: &Db) -> Model {
    let mut iter = db.iter(&ReadOptions::new()).unwrap();
    iter.seek_to_first().unwrap();
    let mut found = Model::new();
    while iter.valid() {
        found.insert(iter.key().to_vec(), iter.value().to_vec());
        iter.next().unwrap();
    }
    found
}

fn levels(db: &Db) -> BTreeMap<u32, usize> {
    let mut levels = BTreeMap::new();
    for level in db.live_files().iter().filter_map(|file| file.level) {
        *levels.entry(level).or_default() += 1;
    }
    levels
}

#[test]
fn everything_comes_to_one_level_and_reads_the_same() {
    for style in
        ["", "compaction_style=kCompactionStyleUniversal", "level_compaction_dynamic_level_bytes=false"]
    {
        let directory = tempfile::tempdir().unwrap();
        let options = options(style);
        let db = Db::open(directory.path(), &options).unwrap();
        let model = fill(&db, 4);
        assert_eq!(contents(&db), model);
        assert!(levels(&db)[&0] >= 4);
        db.put(key(5000), b"in memory").unwrap();
        db.compact_range(&CompactRangeOptions::default(), None, None).unwrap();
        let after = levels(&db);
        assert!(after.len() == 1 && !after.contains_key(&0), "{style}: {after:?}");
        let mut model = model;
        model.insert(key(5000), b"in memory".to_vec());
        assert_eq!(contents(&db), model);
        let stats = db.property("rocksdb.stats").unwrap();
        let row = |name: &str| -> Vec<String> {
            let line = stats.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
            line.split_whitespace().map(str::to_owned).collect()
        };
        let (level, flushes) = (format!("L{} ", after.keys().next().unwrap()), row("L0 "));
        assert_eq!(flushes[17], "5", "{stats}");
        assert_eq!(row(&level)[17], "1", "{stats}");
        assert_ne!(row(&level)[19], "0", "entries came in: {stats}");
        // Deletions and range deletions were dropped together with the entries that they covered.
        assert_eq!(db.int_property("rocksdb.estimate-num-keys"), Some(model.len() as u64), "{style}");
        db.close().unwrap();
        drop(db);
        assert_eq!(contents(&Db::open(directory.path(), &options).unwrap()), model);
    }
}

#[test]
fn a_part_of_the_keys_only() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(directory.path(), &options("")).unwrap();
    for (from, to) in [(0, 100), (1000, 1100)] {
        for i in from..to {
            db.put(key(i), b"v").unwrap();
        }
        db.flush(&FlushOptions::default()).unwrap();
    }
    db.compact_range(&CompactRangeOptions::default(), Some(&key(1050)), Some(&key(3000))).unwrap();
    let files = db.live_files();
    let level_of =
        |k: Vec<u8>| files.iter().find(|f| f.smallest_key <= k && k <= f.largest_key).unwrap().level;
    assert_eq!(level_of(key(50)), Some(0));
    assert!(level_of(key(1050)) > Some(0));
}

#[test]
fn a_snapshot_keeps_its_entries_until_it_is_released() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(directory.path(), &options("")).unwrap();
    db.put(b"a", b"old").unwrap();
    let snapshot = db.snapshot();
    db.put(b"a", b"new").unwrap();
    db.delete(b"b").unwrap();
    let force = CompactRangeOptions {
        bottommost_level_compaction: BottommostLevelCompaction::Force,
        ..CompactRangeOptions::default()
    };
    db.compact_range(&force, None, None).unwrap();
    let mut read = ReadOptions::new();
    read.snapshot = Some(snapshot.clone());
    let family = db.default_column_family();
    assert_eq!(db.get_cf(&read, family, b"a").unwrap().as_deref(), Some(&b"old"[..]));
    assert_eq!(db.get(b"a").unwrap().as_deref(), Some(&b"new"[..]));
    drop((read, snapshot));
    db.compact_range(&force, None, None).unwrap();
    assert_eq!(db.int_property("rocksdb.estimate-num-keys"), Some(1));
}

#[test]
fn named_files_and_what_has_to_go_along() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(directory.path(), &options("")).unwrap();
    let model = fill(&db, 3);
    let newest = db.live_files().iter().map(|file| file.number).max().unwrap();
    let family = db.default_column_family();
    let made = db.compact_files(&CompactFilesOptions::default(), family, &[newest], 3).unwrap();
    assert_eq!(levels(&db), [(3, made.len())].into());
    assert_eq!(contents(&db), model);
    let error = db.compact_files(&CompactFilesOptions::default(), family, &[newest], 3).unwrap_err();
    assert!(error.to_string().contains(&newest.to_string()), "{error}");
    // This variant also returns the information that listeners receive.
    let options = CompactFilesOptions::default();
    let work = db.compact_files_with_info_async(&options, family, &made, 4);
    let (again, info) = block_on(db.env(), work).unwrap();
    assert_eq!((info.input_paths.len(), info.output_level), (made.len(), 4));
    let numbers: Vec<u64> = info.output_infos.iter().map(|file| file.number).collect();
    assert_eq!((info.output_paths.len(), numbers), (again.len(), again));
    assert!(info.output_paths.iter().all(|path| path.exists()) && info.error.is_none());
}

#[test]
fn a_call_that_is_given_up_leaves_a_database_that_works() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(directory.path(), &options("")).unwrap();
    let model = fill(&db, 3);
    {
        let options = CompactRangeOptions::default();
        let mut future = std::pin::pin!(db.compact_range_async(&options, None, None));
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..50 {
            if future.as_mut().poll(&mut context).is_ready() {
                break;
            }
            std::thread::yield_now();
        }
    }
    assert_eq!(contents(&db), model);
    db.compact_range(&CompactRangeOptions::default(), None, None).unwrap();
    assert_eq!(contents(&db), model);
    assert!(!levels(&db).contains_key(&0));
    db.close().unwrap();
    assert!(db.compact_range(&CompactRangeOptions::default(), None, None).is_err());
}
