//! Tests of the statistics that reads record, and of reads where an older source has a newer entry.

use crate::ingest::BulkLoader;
use crate::{BlockCache, Db, Options, ReadOptions};
use karst_base::stats::{HistogramKind, Statistics, StatsLevel, Ticker};
use karst_format::ids::FileNumber;
use karst_format::key::{SeqNo, ValueType};
use karst_io::{Env, MemoryFileSystem, Reactor, spawn_local};
use karst_storage::memtable::Seal;
use std::sync::Arc;

#[test]
fn times_are_measured_where_the_level_says_so_and_only_there() {
    let directory = tempfile::tempdir().unwrap();
    let mut loader = BulkLoader::create(directory.path(), &Options::new()).unwrap();
    for i in 0..100_u32 {
        loader.put(&i.to_be_bytes(), &[b'v'; 100]).unwrap();
    }
    loader.finish().unwrap();
    for level in [StatsLevel::DisableAll, StatsLevel::ExceptTimers, StatsLevel::ExceptDetailedTimers] {
        let statistics = Arc::new(Statistics::new(level));
        let options = Options::new().statistics(statistics.clone());
        let db = Db::open_read_only(directory.path(), &options).unwrap();
        for key in [1_u32, 2, 3, 1000] {
            db.get(key.to_be_bytes()).unwrap();
        }
        assert!(db.multi_get(&[5_u32.to_be_bytes(), 6_u32.to_be_bytes()]).into_iter().all(|r| r.is_ok()));
        let mut iter = db.iter(&ReadOptions::default()).unwrap();
        iter.seek(50_u32.to_be_bytes()).unwrap();
        iter.next().unwrap();
        iter.seek_for_prev(20_u32.to_be_bytes()).unwrap();
        iter.seek_to_last().unwrap();
        let timed = u64::from(level > StatsLevel::ExceptTimers);
        let count = |kind: HistogramKind| statistics.histogram(kind).count();
        for (kind, calls) in [
            (HistogramKind::DbGet, 4),
            (HistogramKind::DbMultiget, 1),
            (HistogramKind::DbSeek, 3),
            (HistogramKind::TableOpenIoMicros, 1),
            // The one block that both get and multi_get read.
            (HistogramKind::FileReadGetMicros, 1),
            (HistogramKind::FileReadMultigetMicros, 0),
        ] {
            assert_eq!(count(kind), calls * timed, "{} {level:?}", kind.name());
        }
        let by_iterator = count(HistogramKind::FileReadDbIteratorMicros);
        assert_eq!(by_iterator > 0, timed > 0, "{level:?}");
        assert_eq!(count(HistogramKind::SstReadMicros), timed + by_iterator, "{level:?}");
    }
}

#[test]
fn lookups_that_wait_for_the_same_metadata_decode_it_once() {
    const KEYS: u32 = 40_000;
    let directory = tempfile::tempdir().unwrap();
    let mut loader = BulkLoader::create(directory.path(), &Options::new()).unwrap();
    for i in 0..KEYS {
        loader.put(&i.to_be_bytes(), &[b'v'; 100]).unwrap();
    }
    loader.finish().unwrap();
    let (env, statistics) = (Env::posix(), Arc::new(Statistics::new(StatsLevel::All)));
    let cache = BlockCache::new(8 << 20);
    let options = Options::new()
        .env(env.clone())
        .statistics(statistics.clone())
        .block_cache(cache.clone())
        .column_families(|family| family.table_factory.block_based.cache_index_and_filter_blocks = true);
    let db = Db::open_read_only(directory.path(), &options).unwrap();
    // Drops the blocks that opening the tables has cached.
    cache.set_capacity(0);
    assert_eq!(cache.entry_count(), 0);
    cache.set_capacity(8 << 20);
    let metadata =
        || statistics.ticker(Ticker::BlockCacheIndexAdd) + statistics.ticker(Ticker::BlockCacheFilterAdd);
    let before = metadata();
    let reactor = Reactor::builder(&env).build().unwrap();
    let together = reactor.spawn(move || async move {
        let lookups: Vec<_> = (0..16_u32)
            .map(|i| {
                let db = db.clone();
                spawn_local(async move { db.get_async(&(i * KEYS / 16).to_be_bytes()).await })
            })
            .collect();
        for lookup in lookups {
            assert!(lookup.await.unwrap().unwrap().is_some());
        }
        db.live_files().len() as u64
    });
    let files = together.join().unwrap();
    let added = metadata() - before;
    assert!((1..=2 * files).contains(&added), "{added} indexes and filters of {files} tables were decoded");
}

/// If a log was replayed beside a table with its entries, and the table's operands were merged
/// before, the older source has a newer entry than the newer one. It stands for older operands too,
/// so it must not be lost; duplicates count twice unless they are below a base. All ways to read
/// agree.
#[test]
fn an_older_source_with_something_newer_is_read_to_its_end() {
    let env = Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build();
    let options = Options::new().env(env).db(|db| db.create_if_missing = true);
    let options = options.set_all("merge_operator={id=StringAppendOperator;delimiter=,}").unwrap();
    let db = Db::open("/db", &options).unwrap();
    (0..9).for_each(|_| db.put(b"else", b"").unwrap());
    let family = db.column_family("default").unwrap().0;
    let memtable = |entries: &[(u64, ValueType, &str)]| {
        let memtable = family.new_memtable();
        for (seq, kind, value) in entries {
            memtable.add(SeqNo(*seq), *kind, b"key", value.as_bytes()).unwrap();
        }
        memtable
    };
    let merges = |seqs: std::ops::RangeInclusive<u64>| -> Vec<_> {
        seqs.map(|seq| (seq, ValueType::Merge, ["6", "7", "8", "9"][seq as usize - 6])).collect()
    };
    use ValueType::{Deletion, Merge, RangeDeletion, Value};
    for (older, newer, expected) in [
        (&[(5, Merge, "1,2,3,4,5"), (9, Merge, "6,7,8,9")][..], 6..=7, "1,2,3,4,5,6,7,6,7,8,9"),
        (&[(9, Value, "1,2,3,4,5,6,7,8,9")], 6..=9, "1,2,3,4,5,6,7,8,9,9"),
        (&[(8, Value, "0"), (9, Merge, "6,7,8,9")], 6..=7, "0,6,7,8,9"),
        (&[(9, Deletion, "")], 6..=9, "9"),
        (&[(9, RangeDeletion, "l")], 6..=9, "9"),
        (&[(8, Value, "0"), (5, Merge, "5")], 6..=9, "0,8,9"),
    ] {
        family.replace_memtable(memtable(older));
        family.seal(Seal { largest_seq: SeqNo(9), next_log: FileNumber(0) }, memtable(&merges(newer)));
        let sealed = family.superversion().immutable().to_vec();

        let text = |value: Option<crate::Value>| String::from_utf8(value.unwrap().to_vec()).unwrap();
        assert_eq!(text(db.get(b"key").unwrap()), expected, "{older:?}");
        let many = db.multi_get(&[b"key"]).pop().unwrap().unwrap();
        assert_eq!(text(many), expected, "{older:?}");
        let mut iter = db.iter(&ReadOptions::default()).unwrap();
        iter.seek(b"key").unwrap();
        assert_eq!(iter.value(), expected.as_bytes(), "{older:?}");
        iter.seek_to_last().unwrap();
        assert_eq!((iter.key(), iter.value()), (&b"key"[..], expected.as_bytes()), "{older:?}");
        family.install(family.superversion().version().clone(), &sealed, None);
    }
}
