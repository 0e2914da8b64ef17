//! Iterators that may skip keys of other prefixes: all that do not ask for total order, or, with
//! `prefix_seek_opt_in_only`, only those that ask for it.

use karst_engine::{Db, FlushOptions, Options, ReadOptions, Statistics, StatsLevel, Ticker};
use std::sync::Arc;

/// Writes keys of two prefixes to two tables whose filters hold prefixes only. Returns the keys
/// that an iterator shows after a seek to a prefix that exists, and the number of data blocks read.
fn shown(opt_in_only: bool, options: &ReadOptions) -> (Vec<String>, u64) {
    let folder = tempfile::tempdir().unwrap();
    let statistics = Arc::new(Statistics::new(StatsLevel::All));
    let text = format!(
        "prefix_extractor=rocksdb.FixedPrefix.2;filter_policy=bloomfilter:20:false;whole_key_filtering=false;disable_auto_compactions=true;prefix_seek_opt_in_only={opt_in_only}"
    );
    let all = Options::new().set_all(&text).unwrap().statistics(statistics.clone());
    let db = Db::open(folder.path(), &all.db(|db| db.create_if_missing = true)).unwrap();
    for prefix in ["aa", "cc"] {
        for number in 0..3 {
            db.put(format!("{prefix}{number}"), "").unwrap();
        }
        db.flush(&FlushOptions::default()).unwrap();
    }
    let mut iter = db.iter(options).unwrap();
    let mut keys = Vec::new();
    let before = statistics.ticker(Ticker::BlockCacheDataMiss);
    iter.seek("aa1").unwrap();
    while iter.valid() {
        keys.push(String::from_utf8(iter.key().to_vec()).unwrap());
        iter.next().unwrap();
    }
    (keys, statistics.ticker(Ticker::BlockCacheDataMiss) - before)
}

#[test]
fn an_iterator_that_asks_for_nothing_shows_all_keys_if_prefixes_are_to_be_asked_for() {
    let (plain, total) = (ReadOptions::new(), ReadOptions { total_order_seek: true, ..ReadOptions::new() });
    let same_prefix = ReadOptions { prefix_same_as_start: true, ..ReadOptions::new() };
    let all = ["aa1", "aa2", "cc0", "cc1", "cc2"];
    // The table of the other prefix is skipped because its filter does not hold the sought prefix.
    assert_eq!(shown(false, &plain), (all[..2].iter().map(|key| (*key).to_owned()).collect(), 1));
    assert_eq!(shown(true, &plain), (all.map(str::to_owned).to_vec(), 2));
    for opt_in_only in [false, true] {
        assert_eq!(shown(opt_in_only, &total), (all.map(str::to_owned).to_vec(), 2));
        // `prefix_same_as_start` opts in.
        let few = all[..2].iter().map(|key| (*key).to_owned()).collect();
        assert_eq!(shown(opt_in_only, &same_prefix), (few, 1));
    }
}

/// `auto_prefix_mode` promises total order: keys that a seek may skip are shown when the iterator
/// leaves the sought prefix.
#[test]
fn filters_are_asked_only_for_the_prefix_that_was_sought() {
    let folder = tempfile::tempdir().unwrap();
    let text = "prefix_extractor=rocksdb.FixedPrefix.2;filter_policy=bloomfilter:20:false;whole_key_filtering=false;disable_auto_compactions=true;create_if_missing=true";
    let db = Db::open(folder.path(), &Options::new().set_all(text).unwrap()).unwrap();
    for key in ["p1x", "p2a"] {
        db.put(key, "").unwrap();
        db.flush(&FlushOptions::default()).unwrap();
    }
    let read = ReadOptions { auto_prefix_mode: true, ..ReadOptions::new() };
    let bounded = |lower: Option<&[u8]>| ReadOptions {
        iterate_lower_bound: lower.map(<[u8]>::to_vec),
        iterate_upper_bound: Some(b"p2z".to_vec()),
        ..read.clone()
    };
    let mut iter = db.iter(&bounded(None)).unwrap();
    let mut from_first = db.iter(&bounded(Some(b"p1"))).unwrap();
    // Versions newer than the iterators' snapshots, and more than an iterator steps over before it
    // seeks.
    for _ in 0..20 {
        db.put("p1x", "new").unwrap();
    }
    iter.seek("p2a").unwrap();
    iter.prev().unwrap();
    assert_eq!(iter.key(), b"p1x");
    iter.next().unwrap();
    assert!(iter.valid() && iter.key() == b"p2a", "after a turn");
    iter.seek("p2a").unwrap();
    iter.seek_to_first().unwrap();
    assert_eq!(iter.key(), b"p1x");
    iter.next().unwrap();
    assert!(iter.valid() && iter.key() == b"p2a", "after versions that were passed by a seek");
    from_first.seek("p2a").unwrap();
    from_first.seek_to_first().unwrap();
    assert!(from_first.valid() && from_first.key() == b"p1x", "from the lower bound");
    from_first.next().unwrap();
    assert!(from_first.valid() && from_first.key() == b"p2a", "behind the lower bound");
}
