//! Debian's tools of RocksDB 7.8, which know one built-in comparator with timestamps, on databases
//! that KarstDB wrote. (`karst-judge timestamps` tests with RocksDB 11.8, which reads and writes
//! it.)

use crate::timestamps::model::{delete, put};
use karst_engine::format::Comparator;
use karst_engine::{Db, FlushOptions, Options, WriteOptions};
use karst_testkit::rocksdb_tools::{ldb, run};
use std::path::{Path, PathBuf};

const KEYS: u64 = 200;

/// Returns the tables of a database whose family `stamped` has timestamps and keeps history from
/// timestamp 2 on.
fn written(path: &Path, table: &str) -> Vec<PathBuf> {
    let options = Options::new()
        .comparator(Some("stamped"), Comparator::BytewiseU64Ts)
        .set_all("create_if_missing=true;create_missing_column_families=true;compression=kNoCompression")
        .unwrap()
        .set("block_based_table_factory", table)
        .unwrap();
    let db = Db::open_cf(path, &options, &["default", "stamped"]).unwrap();
    let family = db.column_family("stamped").unwrap();
    for number in 0..KEYS {
        let key = format!("key{number:04}");
        for at in 1..4 {
            put(&db, &family, key.as_bytes(), at, b"value");
        }
        if number % 5 == 0 {
            delete(&db, &family, key.as_bytes(), 4);
        } else if number % 5 == 1 {
            let write = WriteOptions::default();
            db.single_delete_cf_with_ts(&write, &family, &key, 5_u64.to_le_bytes()).unwrap();
        }
    }
    db.increase_full_history_ts_low(&family, 2_u64.to_le_bytes()).unwrap();
    db.flush_cfs(&FlushOptions::default(), &[&family]).unwrap();
    let files = db.live_files();
    db.close().unwrap();
    let tables: Vec<PathBuf> = files.iter().map(|file| path.join(&file.name)).collect();
    assert!(!tables.is_empty());
    tables
}

#[test]
fn rocksdb_checks_our_tables() {
    for table in [
        "{block_size=256;filter_policy=bloomfilter:10:false;format_version=5}",
        "{block_size=256;filter_policy=ribbonfilter:10:0;index_type=kTwoLevelIndexSearch;partition_filters=true;metadata_block_size=128;format_version=5}",
    ] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let mut entries = 0;
        for file in written(&path, table) {
            let file = format!("--file={}", file.display());
            let checked = run("sst_dump", &[&file, "--command=check", "--verify_checksum"], b"").unwrap();
            assert!(!checked.contains("orruption") && !checked.contains("rror"), "{checked}");
            let scanned = run("sst_dump", &[&file, "--command=scan", "--output_hex"], b"").unwrap();
            entries += scanned.lines().filter(|line| line.contains("=>")).count();
        }
        assert_eq!(entries, 680, "puts, deletions and single deletions");
    }
}

#[test]
fn rocksdb_dumps_our_manifest() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    written(&path, "{block_size=256}");
    let dumped = ldb(&path, &["manifest_dump", "--verbose"], b"").unwrap();
    for line in ["Comparator: leveldb.BytewiseComparator.u64ts", "ColumnFamilyAdd: stamped"] {
        assert!(dumped.contains(line), "{line}:\n{dumped}");
    }
    let low = [b"FullHistoryTsLow: ".as_slice(), &2_u64.to_le_bytes()].concat();
    assert!(dumped.contains(std::str::from_utf8(&low).unwrap()), "{dumped}");
}
