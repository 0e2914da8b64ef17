//! Keys with many versions: the entries that an iterator returns do not depend on when it seeks
//! past versions (`max_sequential_skip_in_iterations`), and it does seek.

use karst_engine::{
    Db, DbIterator, FlushOptions, Options, ReadOptions, Snapshot, Statistics, StatsLevel, Ticker,
};
use std::sync::Arc;

const SKIPS: [&str; 4] = ["0", "1", "8", "1000000"];

type Entries = Vec<(String, String)>;

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn here(iter: &DbIterator) -> (String, String) {
    (text(iter.key()), text(iter.value()))
}

fn forward(iter: &mut DbIterator) -> Entries {
    let mut all = Vec::new();
    iter.seek_to_first().unwrap();
    while iter.valid() {
        all.push(here(iter));
        iter.next().unwrap();
    }
    all
}

fn backward(iter: &mut DbIterator) -> Entries {
    let mut all = Vec::new();
    iter.seek_to_last().unwrap();
    while iter.valid() {
        all.push(here(iter));
        iter.prev().unwrap();
    }
    all.reverse();
    all
}

/// Moves forward and back over each pair of neighbours.
fn zigzag(iter: &mut DbIterator) -> Entries {
    let mut all = Vec::new();
    iter.seek_to_first().unwrap();
    while iter.valid() {
        let now = here(iter);
        iter.next().unwrap();
        if iter.valid() {
            iter.prev().unwrap();
            assert_eq!(here(iter), now, "back where it was");
            iter.next().unwrap();
        }
        all.push(now);
    }
    all
}

struct Store {
    db: Db,
    statistics: Arc<Statistics>,
    snapshots: Vec<Snapshot>,
}

/// Writes eight keys with 120 versions each: puts, deletions, operands, one key under range
/// tombstones. With `flushed`, all but the newest versions are in tables.
fn store(directory: &std::path::Path, flushed: bool) -> Store {
    let statistics = Arc::new(Statistics::new(StatsLevel::All));
    let options = Options::new()
        .set_all("merge_operator=StringAppendOperator;disable_auto_compactions=true")
        .unwrap()
        .statistics(statistics.clone())
        .db(|db| db.create_if_missing = true);
    let db = Db::open(directory, &options).unwrap();
    let mut snapshots = Vec::new();
    for version in 0..120u32 {
        for number in 0..8u32 {
            let key = format!("key{number}");
            match (number, version % 40) {
                (1, 39) | (2, _) if version > 60 => db.delete(&key),
                (3, 1..30) | (4, _) => db.merge(&key, version.to_string()),
                (5, 20) => db.delete_range(&key, format!("{key}x")),
                (6, 25..) => db.delete(&key),
                (7, _) if version < 60 => Ok(()),
                _ => db.put(&key, version.to_string()),
            }
            .unwrap();
        }
        // One snapshot per version, because a flush drops versions that no snapshot sees.
        snapshots.push(db.snapshot());
        if flushed && version % 30 == 29 && version < 110 {
            db.flush(&FlushOptions::default()).unwrap();
        }
    }
    Store { db, statistics, snapshots }
}

impl Store {
    fn reseeks(&self) -> u64 {
        self.statistics.ticker(Ticker::NumberOfReseeksInIteration)
    }
}

#[test]
fn what_is_shown_does_not_depend_on_when_it_seeks() {
    for flushed in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path(), flushed);
        let family = store.db.default_column_family();
        let seen = |snapshot: &Snapshot| {
            let options = ReadOptions { snapshot: Some(snapshot.clone()), ..ReadOptions::default() };
            let got = |n: u32| {
                let key = format!("key{n}");
                let value = store.db.get_opt(&options, &key).unwrap();
                value.map(|value| (key, text(&value)))
            };
            ((0..8).filter_map(got).collect::<Entries>(), options)
        };
        for skips in SKIPS {
            store.db.set_options(family, &[("max_sequential_skip_in_iterations", skips)]).unwrap();
            let before = store.reseeks();
            for snapshot in store.snapshots.iter().step_by(7) {
                let (expected, options) = seen(snapshot);
                let mut iter = store.db.iter(&options).unwrap();
                assert_eq!(forward(&mut iter), expected, "forward, {skips}");
                assert_eq!(backward(&mut iter), expected, "backward, {skips}");
                assert_eq!(zigzag(&mut iter), expected, "to and fro, {skips}");
                for (key, value) in &expected {
                    iter.seek(key).unwrap();
                    assert_eq!(here(&iter), (key.clone(), value.clone()));
                    iter.seek_for_prev(key).unwrap();
                    assert_eq!(here(&iter), (key.clone(), value.clone()));
                }
            }
            let reseeks = store.reseeks() - before;
            assert_eq!(reseeks > 0, skips != "1000000", "{reseeks} with {skips}");
        }
    }
}

/// A forward scan seeks at most twice for each key: the snapshot lies in the middle of its
/// versions.
#[test]
fn each_long_key_takes_two_seeks_at_most() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), true);
    let options = ReadOptions { snapshot: Some(store.snapshots[59].clone()), ..ReadOptions::default() };
    let mut iter = store.db.iter(&options).unwrap();
    let before = store.reseeks();
    let forward = forward(&mut iter);
    let after = store.reseeks();
    // Past the newer versions of a key, and past the older ones.
    assert!((8..=16).contains(&(after - before)), "{}", after - before);
    assert_eq!(backward(&mut iter), forward);
    let backward = store.reseeks() - after;
    assert!((8..=24).contains(&backward), "{backward}");
}

/// A scan of the newest versions never meets invisible ones; it passes only the older versions
/// after each key.
#[test]
fn a_scan_of_the_newest_seeks_past_older_versions() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), true);
    let mut iter = store.db.iter(&ReadOptions::default()).unwrap();
    let before = store.reseeks();
    let keys = forward(&mut iter).len() as u64;
    let seeks = store.reseeks() - before;
    assert!(keys > 3 && (keys..=8).contains(&seeks), "{seeks} for {keys} keys");
}
