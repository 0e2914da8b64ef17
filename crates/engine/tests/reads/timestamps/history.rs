//! Histories: writes at several timestamps, read at every timestamp, through flushes, compactions,
//! reopening and trimmed history.

use crate::timestamps::model::{Model, agree, agree_on_all, delete, number, put, read_at};
use karst_engine::format::Comparator;
use karst_engine::{
    BottommostLevelCompaction, CompactRangeOptions, Db, ErrorKind, FlushOptions, Options, ReadOptions,
};

pub(crate) fn options(comparator: &Comparator, text: &str) -> Options {
    Options::new()
        .comparator(None, comparator.clone())
        .set_all("create_if_missing=true;write_buffer_size=65536;target_file_size_base=16384;level0_file_num_compaction_trigger=3;max_bytes_for_level_base=32768;compression=kNoCompression;block_based_table_factory={block_size=512;filter_policy=bloomfilter:10:false};max_sequential_skip_in_iterations=2")
        .unwrap()
        .set_all(text)
        .unwrap()
}

pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

fn key(i: u64) -> Vec<u8> {
    // Keys of several lengths, among them the empty key and keys that are prefixes of others.
    match i % 4 {
        0 if i == 0 => Vec::new(),
        0 => format!("k{i}").into_bytes(),
        1 => format!("key{i:04}").into_bytes(),
        2 => [b"key", &[0xff; 3][..], &i.to_be_bytes()].concat(),
        _ => [b"key".as_slice(), &[0; 3], &i.to_le_bytes()].concat(),
    }
}

pub(crate) const TIMES: u64 = 40;

/// Writes random puts and deletions. Compat: RocksDB demands that the timestamps of a key never
/// decrease; equal ones are allowed.
pub(crate) fn write(db: &Db, model: &mut Model, random: &mut Random, count: u64) {
    let family = db.default_column_family();
    for _ in 0..count {
        let key = key(random.below(60));
        let at = (model.latest(&key) + [0, 1, 1, 2][random.below(4) as usize]).min(TIMES);
        if random.below(4) == 0 {
            delete(db, family, &key, at);
            model.write(&key, at, None);
        } else {
            let value = format!("{at}-{}-{}", random.below(1000), "v".repeat(random.below(120) as usize));
            put(db, family, &key, at, value.as_bytes());
            model.write(&key, at, Some(value.as_bytes()));
        }
    }
}

fn all() -> CompactRangeOptions {
    CompactRangeOptions {
        bottommost_level_compaction: BottommostLevelCompaction::Force,
        ..CompactRangeOptions::default()
    }
}

pub(crate) fn check(db: &Db, model: &Model, from: u64) {
    for at in (from..TIMES).step_by(7).chain([from, TIMES, u64::MAX]) {
        agree(db, db.default_column_family(), model, at, None);
    }
    for (start, at) in [(from, u64::MAX), (from + 3, from + 9), (from, from)] {
        agree_on_all(db, db.default_column_family(), model, start, at);
    }
}

fn histories(comparator: &Comparator, text: &str, seed: u64) {
    let dir = tempfile::tempdir().unwrap();
    let options = options(comparator, text);
    let reversed = comparator.name().contains("Reverse");
    let (mut model, mut random) = (Model { reversed, ..Model::default() }, Random(seed));
    let mut db = Db::open(dir.path(), &options).unwrap();
    for round in 0..4 {
        write(&db, &mut model, &mut random, 500);
        check(&db, &model, 0);
        match round {
            0 => db.flush(&FlushOptions::default()).unwrap(),
            1 => {
                drop(db);
                db = Db::open(dir.path(), &options).unwrap();
            }
            2 => db.compact_range(&all(), None, None).unwrap(),
            _ => {
                let (begin, end) = (key(9), key(33));
                db.compact_range(&all(), Some(&begin), Some(&end)).unwrap();
            }
        }
        check(&db, &model, 0);
    }
    // Without a `full_history_ts_low`, no compaction may drop any history.
    db.compact_range(&all(), None, None).unwrap();
    check(&db, &model, 0);
    let read_only = {
        db.close().unwrap();
        Db::open_read_only(dir.path(), &Options::new()).unwrap()
    };
    check(&read_only, &model, 0);
}

#[test]
fn every_state_of_the_past_is_read() {
    histories(&Comparator::BytewiseU64Ts, "", 1);
    histories(&Comparator::ReverseBytewiseU64Ts, "", 2);
}

#[test]
fn so_it_is_with_other_tables() {
    histories(
        &Comparator::BytewiseU64Ts,
        "block_based_table_factory={block_size=256;index_type=kTwoLevelIndexSearch;partition_filters=true;metadata_block_size=256;filter_policy=ribbonfilter:10:0;data_block_index_type=kDataBlockBinaryAndHash;cache_index_and_filter_blocks=true}",
        3,
    );
    histories(
        &Comparator::BytewiseU64Ts,
        "enable_blob_files=true;min_blob_size=60;blob_file_size=8192;enable_blob_garbage_collection=true;blob_garbage_collection_age_cutoff=1;prefix_extractor=fixed:3;memtable_prefix_bloom_size_ratio=0.1;memtable_whole_key_filtering=true;max_subcompactions=4",
        4,
    );
    histories(
        &Comparator::ReverseBytewiseU64Ts,
        "compaction_style=kCompactionStyleUniversal;block_based_table_factory={block_size=256;index_shortening=kNoShortening;format_version=5;index_type=kBinarySearchWithFirstKey}",
        5,
    );
}

#[test]
fn snapshots_and_timestamps_both_count() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), &options(&Comparator::BytewiseU64Ts, "")).unwrap();
    let (mut model, mut random) = (Model::default(), Random(6));
    write(&db, &mut model, &mut random, 300);
    let (then, snapshot) = (model.clone(), db.snapshot());
    write(&db, &mut model, &mut random, 300);
    let families = |at| {
        agree(&db, db.default_column_family(), &then, at, Some(&snapshot));
        agree(&db, db.default_column_family(), &model, at, None);
    };
    families(TIMES / 2);
    db.increase_full_history_ts_low(db.default_column_family(), 10_u64.to_le_bytes()).unwrap();
    db.compact_range(&all(), None, None).unwrap();
    [10, 11, TIMES / 2, TIMES].into_iter().for_each(families);
}

#[test]
fn history_that_is_given_up_goes_and_the_rest_stays() {
    for (comparator, text) in [
        (Comparator::BytewiseU64Ts, ""),
        (Comparator::ReverseBytewiseU64Ts, "compaction_style=kCompactionStyleUniversal"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let options = options(&comparator, text);
        let reversed = comparator.name().contains("Reverse");
        let (mut model, mut random) = (Model { reversed, ..Model::default() }, Random(7));
        let db = Db::open(dir.path(), &options).unwrap();
        write(&db, &mut model, &mut random, 1500);
        db.flush(&FlushOptions::default()).unwrap();
        let family = db.default_column_family();
        assert_eq!(db.full_history_ts_low(family).unwrap(), None);
        for low in [8_u64, 20, 35] {
            let before = entries(&db);
            let options =
                CompactRangeOptions { full_history_ts_low: Some(low.to_le_bytes().to_vec()), ..all() };
            db.compact_range(&options, None, None).unwrap();
            assert_eq!(db.full_history_ts_low(family).unwrap(), Some(low.to_le_bytes().to_vec()));
            for at in low..=TIMES {
                agree(&db, family, &model, at, None);
            }
            let after = entries(&db);
            assert!(after < before, "{after} of {before} entries are left with history from {low}");
            let refused = db.get_cf(&read_at(low - 1), family, key(1)).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
            assert!(refused.to_string().contains("full_history_ts_low"), "{refused}");
            let from =
                ReadOptions { iter_start_ts: Some((low - 1).to_le_bytes().to_vec()), ..read_at(TIMES) };
            assert!(db.iter_cf(&from, family).is_ok(), "it shows what is left before");
            let back = db.increase_full_history_ts_low(family, (low - 1).to_le_bytes()).unwrap_err();
            assert_eq!(back.kind(), ErrorKind::InvalidArgument);
        }
        // Below the limit one entry of each key remains, or none if that is a deletion.
        let newest = model.shown(34).len();
        let later: usize = model.all(35, u64::MAX).len();
        let left = entries(&db);
        assert!(left <= newest + later, "{left} entries, {newest} + {later} are needed");
        write(&db, &mut model, &mut random, 200);
        drop(db);
        let db = Db::open(dir.path(), &options).unwrap();
        let family = db.default_column_family();
        let low = db.full_history_ts_low(family).unwrap().map(|low| number(&low));
        assert_eq!(low, Some(35), "the MANIFEST has it");
        assert!(db.get_cf(&read_at(34), family, key(1)).is_err());
    }
}

/// Returns the number of internal entries in the column family.
pub(crate) fn entries(db: &Db) -> usize {
    let mut iter = db.internal_iter(&ReadOptions::new(), db.default_column_family()).unwrap();
    iter.seek_to_first().unwrap();
    let mut count = 0;
    while iter.valid() {
        count += 1;
        iter.next().unwrap();
    }
    count
}

#[test]
fn reads_say_their_timestamp_or_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let with = options(&Comparator::BytewiseU64Ts, "");
    let db = Db::open(dir.path(), &with).unwrap();
    let plain =
        db.create_column_family("plain", &Options::new().comparator(None, Comparator::Bytewise)).unwrap();
    let family = db.default_column_family();
    put(&db, family, b"key", 5, b"value");
    let kind = |error: karst_engine::Error| error.kind();
    assert_eq!(kind(db.get("key").unwrap_err()), ErrorKind::InvalidArgument);
    assert_eq!(kind(db.iter_cf(&ReadOptions::new(), family).unwrap_err()), ErrorKind::InvalidArgument);
    assert_eq!(kind(db.get_cf(&read_at(5), &plain, "key").unwrap_err()), ErrorKind::InvalidArgument);
    assert_eq!(kind(db.get_cf_with_ts(&read_at(5), &plain, "key").unwrap_err()), ErrorKind::InvalidArgument);
    let short = ReadOptions { timestamp: Some(vec![0; 7]), ..ReadOptions::new() };
    assert_eq!(kind(db.get_cf(&short, family, "key").unwrap_err()), ErrorKind::InvalidArgument);
    for result in db.multi_get_cfs(&read_at(5), &[family, &plain], &["key", "key"]) {
        assert_eq!(kind(result.unwrap_err()), ErrorKind::InvalidArgument);
    }
    assert_eq!(kind(db.full_history_ts_low(&plain).unwrap_err()), ErrorKind::InvalidArgument);
    assert_eq!(
        kind(db.increase_full_history_ts_low(&plain, [0; 8]).unwrap_err()),
        ErrorKind::InvalidArgument
    );
    assert_eq!(
        kind(db.increase_full_history_ts_low(family, [0; 4]).unwrap_err()),
        ErrorKind::InvalidArgument
    );
    assert!(db.get_cf(&read_at(4), family, "key").unwrap().is_none());
    assert!(db.get_cf(&read_at(5), family, "key").unwrap().is_some());
    assert!(db.key_may_exist_cf(&read_at(5), family, "key").unwrap().0);
    assert_eq!(db.approximate_memtable_stats_cf(family, (b"a", b"z")).unwrap().0, 1);
}
