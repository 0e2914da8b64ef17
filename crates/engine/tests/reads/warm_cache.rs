//! `prepopulate_block_cache`: flushes and compactions insert the blocks that they write into the
//! block cache.

use karst_engine::{
    BlockCache, CompactRangeOptions, Db, FlushOptions, Options, ReadOptions, ReadTier, Statistics,
    StatsLevel, Ticker,
};
use karst_testkit::eventually;
use std::sync::Arc;

const KEYS: u32 = 3000;

fn key(number: u32) -> String {
    format!("key{number:05}")
}

struct Store {
    db: Db,
    statistics: Arc<Statistics>,
    _folder: tempfile::TempDir,
}

fn filled(options: &str) -> Store {
    let folder = tempfile::tempdir().unwrap();
    let statistics = Arc::new(Statistics::new(StatsLevel::All));
    let all =
        format!("disable_auto_compactions=true;filter_policy=bloomfilter:10:false;block_size=1K;{options}");
    let options = Options::new()
        .set_all(&all)
        .unwrap()
        .statistics(statistics.clone())
        .block_cache(BlockCache::new(64 << 20))
        .db(|db| db.create_if_missing = true);
    let db = Db::open(folder.path(), &options).unwrap();
    for round in 0..2 {
        for number in (round..KEYS).step_by(2) {
            db.put(key(number), vec![number as u8; 100]).unwrap();
        }
        db.flush(&FlushOptions::default()).unwrap();
    }
    Store { db, statistics, _folder: folder }
}

impl Store {
    /// Reads all keys from the cache alone and returns the number found.
    fn in_cache(&self) -> u32 {
        let options = ReadOptions { read_tier: ReadTier::BlockCache, ..ReadOptions::new() };
        let is_there = |number: &u32| match self.db.get_opt(&options, key(*number)) {
            Ok(value) => {
                assert_eq!(*value.unwrap(), *vec![*number as u8; 100]);
                true
            }
            Err(error) => {
                assert_eq!(error.kind(), karst_engine::ErrorKind::Incomplete);
                false
            }
        };
        (0..KEYS).filter(is_there).count() as u32
    }

    fn blocks_read(&self) -> u64 {
        let before = self.statistics.ticker(Ticker::BlockCacheMiss);
        for number in 0..KEYS {
            assert_eq!(*self.db.get(key(number)).unwrap().unwrap(), *vec![number as u8; 100]);
        }
        self.statistics.ticker(Ticker::BlockCacheMiss) - before
    }
}

/// Returns options of tables: blocks compressed or not, by one or several threads, metadata whole
/// or partitioned, cached or not.
fn shapes() -> Vec<String> {
    let mut shapes = Vec::new();
    for compression in [
        "compression=kNoCompression",
        "compression=kZSTD;compression_opts={parallel_threads=2;level=3;max_dict_bytes=4096;}",
    ] {
        for cached in [false, true] {
            for index in ["kBinarySearch", "kTwoLevelIndexSearch"] {
                let partition = index == "kTwoLevelIndexSearch";
                shapes.push(format!("{compression};cache_index_and_filter_blocks={cached};index_type={index};partition_filters={partition}"));
            }
        }
    }
    shapes
}

#[test]
fn a_flushed_table_is_read_without_a_miss() {
    for shape in shapes() {
        let cold = filled(&format!("{shape};prepopulate_block_cache=kDisable"));
        assert!(cold.blocks_read() > 50, "{shape}");
        let warm = filled(&format!("{shape};prepopulate_block_cache=kFlushOnly"));
        let added = warm.statistics.ticker(Ticker::BlockCacheDataAdd);
        assert!(added > 50, "{shape}: {added}");
        // The first read opens the tables and reads their metadata unless it is in the cache.
        warm.db.get(key(0)).unwrap();
        warm.db.get(key(1)).unwrap();
        assert_eq!(warm.statistics.ticker(Ticker::BlockCacheDataMiss), 0, "{shape}");
        assert_eq!(warm.in_cache(), KEYS, "{shape}");
        assert_eq!(warm.blocks_read(), 0, "{shape}");
        assert_eq!(warm.statistics.ticker(Ticker::BlockCacheDataAdd), added);
    }
}

#[test]
fn compactions_do_so_only_if_they_are_asked_to() {
    for (mode, is_warm) in [("kDisable", false), ("kFlushOnly", false), ("kFlushAndCompaction", true)] {
        let store = filled(&format!("prepopulate_block_cache={mode}"));
        let before = store.statistics.ticker(Ticker::BlockCacheDataAdd);
        store.db.compact_range(&CompactRangeOptions::default(), None, None).unwrap();
        let added = store.statistics.ticker(Ticker::BlockCacheDataAdd) - before;
        assert_eq!(added > 50, is_warm, "{mode}: {added}");
        store.db.get(key(0)).unwrap();
        assert_eq!(store.blocks_read() == 0, is_warm, "{mode}");
    }
}

/// `no_block_cache`: neither reads nor writes insert into the cache, and all keys are found.
#[test]
fn nothing_is_cached_where_the_options_say_so() {
    for more in ["", "partition_filters=true;index_type=kTwoLevelIndexSearch;metadata_block_size=512;"] {
        let store = filled(&format!(
            "block_based_table_factory={{no_block_cache=true;prepopulate_block_cache=kFlushAndCompaction;{more}}}"
        ));
        store.db.compact_range(&CompactRangeOptions::default(), None, None).unwrap();
        for _ in 0..2 {
            for number in (0..KEYS).step_by(7) {
                assert_eq!(*store.db.get(key(number)).unwrap().unwrap(), *vec![number as u8; 100]);
            }
        }
        assert_eq!(store.statistics.ticker(Ticker::BlockCacheAdd), 0, "{more}");
        assert_eq!(store.db.int_property("rocksdb.block-cache-usage"), Some(0), "{more}");
        assert_eq!(store.in_cache(), 0, "{more}");
    }
}

/// Blocks of tables that a compaction removed leave the cache if `uncache_aggressiveness` is set.
#[test]
fn blocks_of_removed_tables_leave_the_cache_where_that_is_asked_for() {
    let partitioned = "index_type=kTwoLevelIndexSearch;partition_filters=true;metadata_block_size=300;cache_index_and_filter_blocks=true";
    for more in ["", partitioned] {
        for (aggressiveness, reads, stays) in [(0, KEYS, true), (300, KEYS, false), (1, 0, true)] {
            let store = filled(&format!("uncache_aggressiveness={aggressiveness};{more}"));
            (0..reads).for_each(|number| drop(store.db.get(key(number)).unwrap()));
            let usage = || store.db.int_property("rocksdb.block-cache-usage").unwrap();
            let before = usage();
            assert_eq!(before > 300_000, reads > 0, "{more} {before}");
            store.db.compact_range(&CompactRangeOptions::default(), None, None).unwrap();
            if stays {
                assert!(usage() >= before, "{more} {aggressiveness}: {before} {}", usage());
            } else {
                // Tables are removed in the background.
                eventually(true, || usage() < before / 4);
            }
        }
    }
}

/// Values that a flush writes to blob files are inserted into the blob cache.
#[test]
fn flushed_values_are_in_the_blob_cache_where_that_is_asked_for() {
    let blobs = "enable_blob_files=true;min_blob_size=50;blob_cache=8M;prepopulate_block_cache=kFlushOnly";
    for compression in ["kNoCompression", "kSnappyCompression"] {
        let more = format!("{blobs};blob_compression_type={compression}");
        // The first read of a table opens it.
        let opened = |more: &str| {
            let store = filled(more);
            (0..2).for_each(|number| drop(store.db.get(key(number)).unwrap()));
            store
        };
        assert_eq!(opened(&more).in_cache(), 2, "what was read");
        let warm = opened(&format!("{more};prepopulate_blob_cache=kFlushOnly"));
        assert_eq!(warm.in_cache(), KEYS);
        assert_eq!(warm.statistics.ticker(Ticker::BlobDbCacheAdd), KEYS.into());
        let usage = warm.db.int_property("rocksdb.blob-cache-usage").unwrap();
        assert!(usage >= u64::from(KEYS) * 100, "{usage}");
    }
    let without_cache = "enable_blob_files=true;min_blob_size=50;prepopulate_blob_cache=kFlushOnly";
    assert_eq!(filled(without_cache).statistics.ticker(Ticker::BlobDbCacheAdd), 0);
}
