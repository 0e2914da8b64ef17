//! Entries of one key and timestamp in different places: the memtable, sealed memtables, files of
//! L0 and of several levels, blocks of one file. Each form of reading must agree with a list of all
//! writes at each timestamp and snapshot.

use crate::timestamps::all_writes::{AllWrites, Kind};
use crate::timestamps::writes::Stamped;
use karst_engine::format::Comparator;
use karst_engine::io::block_on;
use karst_engine::merge_operator::from_name;
use karst_engine::{
    BottommostLevelCompaction, CompactFilesOptions, CompactRangeOptions, Db, FlushOptions, Options, Snapshot,
    WriteOptions,
};
use karst_testkit::random::Random;
use std::sync::Arc;

/// A database with the list of all writes to it.
struct Store {
    db: Db,
    writes: AllWrites,
    /// Snapshots, each with the number of writes that it sees.
    snapshots: Vec<(Snapshot, usize)>,
    random: Random,
}

impl Store {
    fn write(&mut self, key: &str, at: u64, kind: Kind) {
        let family = self.db.default_column_family();
        let batch = self.writes.write(family, &mut self.random, (key, at, kind));
        self.db.write(&WriteOptions::default(), &batch).unwrap();
    }

    fn write_any(&mut self) {
        let batch = self.writes.write_any(self.db.default_column_family(), &mut self.random);
        self.db.write(&WriteOptions::default(), &batch).unwrap();
    }

    /// Moves entries elsewhere by a flush or a compaction, chosen at random.
    fn move_any(&mut self) {
        let family = self.db.default_column_family();
        match self.random.below(10) {
            0..5 => self.db.flush(&FlushOptions::default()).unwrap(),
            5..8 => {
                // The files of a random level move to a random level below it.
                let tree = self.db.column_family_metadata(family).unwrap();
                let filled: Vec<_> = tree.levels.iter().filter(|level| !level.files.is_empty()).collect();
                if filled.is_empty() {
                    return;
                }
                let level = filled[self.random.index(filled.len())];
                let files: Vec<u64> = level.files.iter().map(|file| file.number).collect();
                let from = level.level as usize;
                let first = from.max(1);
                let to = first + self.random.index(tree.levels.len() - first);
                let options = CompactFilesOptions::default();
                self.db.compact_files(&options, family, &files, to).unwrap();
            }
            8 => {
                let options = CompactRangeOptions::default();
                self.db.compact_range(&options, Some(b"key03"), Some(b"key07")).unwrap();
            }
            _ => {
                if self.random.below(4) == 0 {
                    compact_all(&self.db);
                }
            }
        }
    }

    /// Compares all forms of reading with the list at each timestamp from `from` on.
    fn check(&self, what: &str, from: u64) {
        let (db, family) = (&self.db, self.db.default_column_family());
        let snapshots = self.snapshots.iter().map(|(snapshot, count)| (Some(snapshot), *count));
        for held in [(None, self.writes.count)].into_iter().chain(snapshots) {
            for at in from..=self.writes.latest().max(from) + 1 {
                block_on(db.env(), self.writes.check((db, family), held, at, what)).unwrap();
            }
        }
    }
}

fn compact_all(db: &Db) {
    let options = CompactRangeOptions {
        bottommost_level_compaction: BottommostLevelCompaction::Force,
        ..CompactRangeOptions::default()
    };
    db.compact_range(&options, None, None).unwrap();
}

fn options(comparator: &Comparator, text: &str) -> Options {
    Options::new()
        .comparator(None, comparator.clone())
        .merge_operator(None, from_name("stringappend").unwrap())
        .set_all("create_if_missing=true;disable_auto_compactions=true;level_compaction_dynamic_level_bytes=false;num_levels=5;compression=kNoCompression;target_file_size_base=1024;max_write_buffer_number=8")
        .unwrap()
        .set_all(text)
        .unwrap()
}

fn spread(comparator: &Comparator, text: &str, seed: u64) {
    let dir = tempfile::tempdir().unwrap();
    let options = options(comparator, text);
    let db = Db::open(dir.path(), &options).unwrap();
    let random = Random::new(seed);
    let mut store = Store { db, writes: AllWrites::default(), snapshots: Vec::new(), random };
    for round in 0..24 {
        let what = format!("seed {seed}, round {round}");
        for _ in 0..=store.random.index(13) {
            store.write_any();
            if store.random.below(12) == 0 && store.snapshots.len() < 3 {
                store.snapshots.push((store.db.snapshot(), store.writes.count));
            }
        }
        store.move_any();
        if store.random.below(8) == 0 && !store.snapshots.is_empty() {
            let released = store.random.index(store.snapshots.len());
            store.snapshots.remove(released);
        }
        if round % 9 == 8 {
            store.snapshots.clear();
            store.db.close().unwrap();
            store.db = Db::open(dir.path(), &options).unwrap();
        }
        store.check(&what, 1);
    }
    // Trimming history below `low` removes nothing visible at later timestamps.
    let family = store.db.default_column_family();
    let low = store.writes.latest() / 2;
    store.db.increase_full_history_ts_low(family, low.to_le_bytes()).unwrap();
    for round in 0..6 {
        store.check(&format!("seed {seed}, history from {low}, round {round}"), low);
        store.move_any();
    }
    compact_all(&store.db);
    store.check(&format!("seed {seed}, history from {low}, all compacted"), low);
    store.snapshots.clear();
    compact_all(&store.db);
    store.check(&format!("seed {seed}, history from {low}, snapshots released"), low);
}

#[test]
fn all_forms_of_reading_agree_wherever_entries_lie() {
    let (bytewise, custom) = (Comparator::BytewiseU64Ts, Comparator::custom(Arc::new(Stamped(8))));
    for (seed, comparator, text) in [
        (1, &bytewise, "block_based_table_factory={block_size=64;filter_policy=bloomfilter:10:false}"),
        (
            2,
            &bytewise,
            "block_based_table_factory={block_size=64;no_block_cache=true;index_shortening=kNoShortening}",
        ),
        (
            3,
            &bytewise,
            "block_based_table_factory={block_size=200;index_type=kTwoLevelIndexSearch;metadata_block_size=64;partition_filters=true;filter_policy=ribbonfilter:10:0;cache_index_and_filter_blocks=true}",
        ),
        (
            4,
            &bytewise,
            "block_based_table_factory={block_size=64;index_type=kBinarySearchWithFirstKey;data_block_index_type=kDataBlockBinaryAndHash};enable_blob_files=true;min_blob_size=30",
        ),
        (
            5,
            &bytewise,
            "memtable_prefix_bloom_size_ratio=0.1;memtable_whole_key_filtering=true;max_successive_merges=3",
        ),
        (6, &custom, "block_based_table_factory={block_size=64;no_block_cache=true}"),
        (
            7,
            &custom,
            "block_based_table_factory={block_size=64;index_type=kTwoLevelIndexSearch;metadata_block_size=64;filter_policy=bloomfilter:10:false}",
        ),
    ] {
        spread(comparator, text, seed);
        spread(comparator, text, seed + 1000);
    }
}

#[test]
fn operands_at_one_timestamp_are_merged_whatever_table_they_lie_in() {
    for (first, compacted, flushed) in
        [(20, true, true), (26, false, false), (26, true, false), (26, true, true)]
    {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path(), &options(&Comparator::BytewiseU64Ts, "")).unwrap();
        let mut store =
            Store { db, writes: AllWrites::default(), snapshots: Vec::new(), random: Random::new(1) };
        store.write("k", first, Kind::Merge);
        if compacted {
            compact_all(&store.db);
        }
        store.write("k", 26, Kind::Merge);
        if flushed {
            store.db.flush(&FlushOptions::default()).unwrap();
        }
        store.check(&format!("compacted {compacted}, flushed {flushed}"), 1);
        // A merge that is added after the entries were compacted gives the expected value too.
        store.write("k", 26, Kind::Merge);
        compact_all(&store.db);
        store.check("all compacted", 1);
    }
}

#[test]
fn a_snapshot_keeps_what_was_overwritten_at_its_own_timestamp() {
    for earlier in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path(), &options(&Comparator::BytewiseU64Ts, "")).unwrap();
        let mut store =
            Store { db, writes: AllWrites::default(), snapshots: Vec::new(), random: Random::new(1) };
        if earlier {
            store.write("k", 10, Kind::Put);
        }
        store.write("k", 30, Kind::Put);
        compact_all(&store.db);
        store.snapshots.push((store.db.snapshot(), store.writes.count));
        store.write("k", 30, Kind::Put);
        store.check("second write in the memtable", 9);
        store.db.flush(&FlushOptions::default()).unwrap();
        store.check("second write in a table", 9);
        compact_all(&store.db);
        store.check("both in one table", 9);
    }
}
