//! Approximate sizes of ranges, and `key_may_exist`: calls that read no data blocks.

use karst_engine::{
    BlockCache, CompactRangeOptions, Db, ErrorKind, FlushOptions, KeyRange, Options, ReadOptions,
    SizeApproximationOptions,
};
use std::future::Future;

const KEYS: u32 = 20_000;
const VALUE_BYTES: u64 = 100;

fn key(number: u32) -> Vec<u8> {
    format!("key{number:06}").into_bytes()
}

fn open(folder: &tempfile::TempDir, more: &str) -> Db {
    let all = format!(
        "disable_auto_compactions=true;compression=kNoCompression;block_size=1K;filter_policy=bloomfilter:10:false;{more}"
    );
    let options = Options::new()
        .set_all(&all)
        .unwrap()
        .block_cache(BlockCache::new(8 << 20))
        .db(|db| db.create_if_missing = true);
    Db::open(folder.path(), &options).unwrap()
}

/// Puts all keys in files of the last level, and a third of them again in two files of L0.
fn fill(db: &Db) {
    let put = |numbers: &mut dyn Iterator<Item = u32>| {
        numbers.for_each(|number| db.put(key(number), [number as u8; VALUE_BYTES as usize]).unwrap());
        db.flush(&FlushOptions::default()).unwrap();
    };
    put(&mut (0..KEYS).step_by(2));
    put(&mut (1..KEYS).step_by(2));
    db.compact_range(&CompactRangeOptions::default(), None, None).unwrap();
    put(&mut (0..KEYS).step_by(6));
    put(&mut (3..KEYS).step_by(6));
}

fn sizes(db: &Db, bounds: &[(u32, u32)]) -> Vec<u64> {
    let keys: Vec<_> = bounds.iter().map(|(from, to)| (key(*from), key(*to))).collect();
    let ranges: Vec<KeyRange<'_>> = keys.iter().map(|(from, to)| (&from[..], &to[..])).collect();
    db.approximate_sizes(&ranges).unwrap()
}

#[test]
fn ranges_have_their_share_of_the_files_and_add_up() {
    let two_level = "index_type=kTwoLevelIndexSearch;metadata_block_size=512";
    for more in [
        "target_file_size_base=300K",
        "target_file_size_base=20K;max_open_files=12",
        two_level,
        "index_type=kBinarySearchWithFirstKey",
        "cache_index_and_filter_blocks=true",
        &format!(
            "{two_level};cache_index_and_filter_blocks=true;target_file_size_base=20K;max_open_files=12"
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let db = open(&folder, more);
        fill(&db);
        let all = db.int_property("rocksdb.total-sst-files-size").unwrap();
        db.close().unwrap();
        // The cache holds only the blocks that opening reads.
        let db = open(&folder, more);
        let bounds = [(0, KEYS), (0, KEYS / 2), (KEYS / 2, KEYS), (100, 200), (500, 500), (700, 600)];
        let found = sizes(&db, &bounds);
        assert_eq!(found[0], all, "{more}");
        assert!(found[1].abs_diff(all / 2) < all / 20, "{more}: {found:?}");
        // The two parts of each file are rounded down.
        assert!(all - (found[1] + found[2]) < 10, "{more}: {found:?}");
        let entries = 100 + 100 / 3;
        assert!(found[3].abs_diff(entries * VALUE_BYTES) < 8 << 10, "{more}: {found:?}");
        assert_eq!(found[4..], [0, 0]);
        assert_eq!(sizes(&db, &[(KEYS, KEYS * 2)]), [0]);
        // More ranges than are measured in one batch.
        let narrow: Vec<(u32, u32)> =
            (0..100).map(|part| (part * KEYS / 100, (part + 1) * KEYS / 100)).collect();
        let sum: u64 = sizes(&db, &narrow).iter().sum();
        assert!(all.abs_diff(sum) < 1000, "{more}: {sum} of {all}");
    }
}

#[test]
fn keys_in_reverse_and_files_of_tombstones_only() {
    let folder = tempfile::tempdir().unwrap();
    let db = open(&folder, "comparator=rocksdb.ReverseBytewiseComparator");
    (0..KEYS).for_each(|number| db.put(key(number), [1; VALUE_BYTES as usize]).unwrap());
    db.flush(&FlushOptions::default()).unwrap();
    let all = db.int_property("rocksdb.total-sst-files-size").unwrap();
    let found = sizes(&db, &[(KEYS, 0), (0, KEYS), (KEYS, KEYS / 2)]);
    // The range is exclusive of its end, so it lacks the block of that key.
    assert!(all - found[0] < all / 100, "{found:?} of {all}");
    assert_eq!(found[1], 0);
    assert!(found[2].abs_diff(all / 2) < all / 20, "{found:?}");
    db.delete_range(key(KEYS), key(0)).unwrap();
    db.flush(&FlushOptions::default()).unwrap();
    let more = db.int_property("rocksdb.total-sst-files-size").unwrap() - all;
    assert_eq!(sizes(&db, &[(KEYS, KEYS / 2)]), [found[2] + more]);
}

#[test]
fn the_asynchronous_form_can_be_sent() {
    fn sent<F: Future + Send>(future: F) -> F {
        future
    }
    let folder = tempfile::tempdir().unwrap();
    let db = open(&folder, "cache_index_and_filter_blocks=true");
    fill(&db);
    let (from, to) = (key(7), key(KEYS - 7));
    let (options, ranges) = (SizeApproximationOptions::default(), [(&from[..], &to[..])]);
    let family = db.default_column_family();
    let future = sent(db.approximate_sizes_cf_async(&options, family, &ranges));
    assert_eq!(karst_io::block_on(db.env(), future).unwrap(), sizes(&db, &[(7, KEYS - 7)]));
}

#[test]
fn what_is_in_memory_counts_if_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let db = open(&folder, "");
    (0..KEYS).for_each(|number| db.put(key(number), [1; VALUE_BYTES as usize]).unwrap());
    let (from, middle, to) = (key(0), key(KEYS / 2), key(KEYS));
    let family = db.default_column_family();
    let of = |options: SizeApproximationOptions, range: KeyRange<'_>| {
        db.approximate_sizes_cf(&options, family, &[range]).unwrap()[0]
    };
    let memtables = SizeApproximationOptions { include_memtables: true, ..Default::default() };
    assert_eq!(of(SizeApproximationOptions::default(), (&from, &to)), 0);
    let [whole, half] = [(&from[..], &to[..]), (&from, &middle)].map(|range| of(memtables, range));
    let bytes = u64::from(KEYS) * VALUE_BYTES;
    assert!(whole > bytes / 2 && whole < bytes * 4, "{whole} of {bytes}");
    assert!(half > whole / 4 && half < whole, "{half} of {whole}");
    let (entries, estimated) = db.approximate_memtable_stats_cf(family, (&from, &to)).unwrap();
    assert!(entries.abs_diff(u64::from(KEYS)) < u64::from(KEYS) / 2 && estimated == whole, "{entries}");
    db.flush(&FlushOptions::default()).unwrap();
    let files = of(memtables, (&from, &to));
    assert_eq!(files, of(SizeApproximationOptions::default(), (&from, &to)));
    assert!(files > bytes);
    let neither = SizeApproximationOptions { include_files: false, ..memtables };
    assert_eq!(of(neither, (&from, &to)), 0);
}

#[test]
fn blob_files_count_by_the_tables_share_of_a_range() {
    let folder = tempfile::tempdir().unwrap();
    let db = open(&folder, "enable_blob_files=true");
    fill(&db);
    let blobs = db.int_property("rocksdb.live-blob-file-size").unwrap();
    let (from, middle, to) = (key(0), key(KEYS / 2), key(KEYS));
    let of = |include_files: bool, include_blob_files: bool, range: KeyRange<'_>| {
        let options = SizeApproximationOptions { include_files, include_blob_files, ..Default::default() };
        db.approximate_sizes_cf(&options, db.default_column_family(), &[range]).map(|sizes| sizes[0])
    };
    let whole = (&from[..], &to[..]);
    let alone = of(false, true, whole).unwrap();
    assert!(blobs > u64::from(KEYS) * VALUE_BYTES && alone.abs_diff(blobs) <= 1, "{alone} {blobs}");
    assert_eq!(of(true, true, whole).unwrap(), alone + of(true, false, whole).unwrap());
    let half = of(false, true, (&from, &middle)).unwrap();
    assert!(half > blobs / 4 && half < blobs / 4 * 3, "{half} of {blobs}");
    assert_eq!(of(false, false, whole).unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn a_margin_spares_the_look_at_indexes() {
    let folder = tempfile::tempdir().unwrap();
    let db = open(&folder, "target_file_size_base=100K");
    fill(&db);
    let (from, to) = (key(10), key(KEYS - 10));
    let of = |margin: f64| {
        let options = SizeApproximationOptions { files_size_error_margin: margin, ..Default::default() };
        db.approximate_sizes_cf(&options, db.default_column_family(), &[(&from, &to)]).unwrap()[0]
    };
    let (exact, wide) = (of(-1.0), of(10.0));
    assert_eq!(of(0.0), exact);
    assert!(wide != exact && wide.abs_diff(exact) < exact / 2, "{wide} {exact}");
}

#[test]
fn keys_that_may_exist() {
    let folder = tempfile::tempdir().unwrap();
    let db = open(&folder, "");
    (0..KEYS).for_each(|number| db.put(key(number), b"value").unwrap());
    db.flush(&FlushOptions::default()).unwrap();
    db.put("new", "in memory").unwrap();
    db.delete(key(7)).unwrap();
    let look = |key: &[u8]| {
        let (may, value) = db.key_may_exist_cf(&ReadOptions::new(), db.default_column_family(), key).unwrap();
        (may, value.map(|value| value.to_vec()))
    };
    assert_eq!(look(b"new"), (true, Some(b"in memory".to_vec())));
    assert_eq!(look(&key(7)), (false, None));
    assert_eq!(look(&key(8)), (true, None), "its block is not in the cache");
    db.get(key(8)).unwrap();
    assert_eq!(look(&key(8)), (true, Some(b"value".to_vec())));
    let absent = (0..1000).filter(|number| !db.key_may_exist(format!("key{number:05}x")).unwrap()).count();
    assert!(absent > 900, "the filter says no: {absent}");
    assert!(db.key_may_exist("new").unwrap() && !db.key_may_exist(key(7)).unwrap());
}
