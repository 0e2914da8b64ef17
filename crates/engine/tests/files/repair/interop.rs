//! RocksDB's databases repaired by KarstDB and read by RocksDB, and the reverse.

use crate::repair::*;
use karst_testkit::rocksdb_tools::{ldb, ldb_load, ldb_scan, verify_tables};

fn remove(directory: &Path, part: &str) -> usize {
    let mut removed = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_string_lossy().starts_with(part) {
            std::fs::remove_file(path).unwrap();
            removed += 1;
        }
    }
    removed
}

fn as_options(format: &str) -> Options {
    Options::new().set_all("stats_dump_period_sec=0").unwrap().set("format_version", format).unwrap()
}

#[test]
fn a_database_of_rocksdb_is_repaired_by_karstdb_and_read_by_rocksdb() {
    for lost in [&["MANIFEST"][..], &["CURRENT"], &["MANIFEST", "CURRENT", "OPTIONS"]] {
        let directory = tempfile::tempdir().unwrap();
        let db = directory.path().join("db");
        let create = ["--create_if_missing"];
        for round in 0..6u32 {
            let entries: Vec<_> = (0..400u32)
                .map(|at| (key(u64::from(at * 7 + round) % 900), format!("{round} {at}").into_bytes()))
                .collect();
            ldb_load(&db, "default", &create, &entries).unwrap();
            if round == 1 {
                ldb(&db, &["create_column_family", "second"], b"").unwrap();
            }
            if round > 1 {
                ldb_load(&db, "second", &[], &entries).unwrap();
                ldb(&db, &["deleterange", "000100", "000150"], b"").unwrap();
            }
            if round == 3 {
                ldb(&db, &["compact"], b"").unwrap();
            }
        }
        let before = ["default", "second"].map(|family| ldb_scan(&db, family).unwrap());
        assert!(before.iter().all(|entries| entries.len() > 500));
        lost.iter().for_each(|part| assert!(remove(&db, part) > 0));
        let report = Db::repair(&db, &as_options("5")).unwrap();
        let after = ["default", "second"].map(|family| ldb_scan(&db, family).unwrap());
        assert_eq!(after, before, "{report}");
        assert_eq!(ldb(&db, &["checkconsistency"], b"").unwrap().trim(), "OK");
        verify_tables(&db).unwrap();
        // RocksDB writes to the repaired database.
        ldb(&db, &["put", "zzz", "later"], b"").unwrap();
        ldb(&db, &["compact"], b"").unwrap();
        assert_eq!(ldb_scan(&db, "default").unwrap().len(), before[0].len() + 1);
        assert_eq!(ldb_scan(&db, "second").unwrap(), before[1]);
    }
}

#[test]
fn what_karstdb_repairs_of_its_own_rocksdb_reads() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let how = options(&Env::posix(), "format_version=5");
    let there = fill(&path, &how, 9);
    remove(&path, "MANIFEST");
    let report = Db::repair(&path, &how).unwrap();
    assert!(report.trees_made_anew.is_some(), "{report}");
    for family in ["default", "second"] {
        let found: Contents = ldb_scan(&path, family).unwrap().into_iter().collect();
        assert_eq!(found, there[family], "{family}: {report}");
    }
    assert_eq!(ldb(&path, &["checkconsistency"], b"").unwrap().trim(), "OK");
}

#[test]
fn what_rocksdb_repairs_of_karstdbs_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let how = Options::new()
        .set_all(
            "create_if_missing=true;stats_dump_period_sec=0;format_version=5;disable_auto_compactions=true",
        )
        .unwrap();
    let db = Db::open(&path, &how).unwrap();
    for round in 0..4u64 {
        for number in 0..200 {
            db.put(key(number * 3 % 250 + round), format!("{round} {number}")).unwrap();
        }
        if round < 3 {
            db.flush(&FlushOptions::default()).unwrap();
        }
    }
    let there = contents(&db, "default");
    db.close().unwrap();
    remove(&path, "MANIFEST");
    ldb(&path, &["repair"], b"").unwrap();
    let db = Db::open(&path, &how).unwrap();
    assert_eq!(contents(&db, "default"), there);
    db.close().unwrap();
    let report = Db::repair(&path, &how).unwrap();
    assert_eq!(report.trees_made_anew, None, "{report}");
    let found: Contents = ldb_scan(&path, "default").unwrap().into_iter().collect();
    assert_eq!(found, there);
}

/// The steps of docs/downgrade.md, "A database that is there already".
#[test]
fn a_database_of_the_newest_format_goes_back_to_rocksdb_7_8() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let there = fill(&path, &options(&Env::posix(), ""), 5);
    assert!(verify_tables(&path).is_err(), "7.8 reads tables of format_version 6");
    let how = options(&Env::posix(), "format_version=5");
    Db::open(&path, &how).unwrap().close().unwrap();
    let db = Db::open(&path, &how).unwrap();
    let anew = karst_engine::CompactRangeOptions {
        bottommost_level_compaction: karst_engine::BottommostLevelCompaction::ForceOptimized,
        ..Default::default()
    };
    for family in db.column_families() {
        db.compact_range_cf(&anew, &family, None, None).unwrap();
    }
    db.put("in the log", "only").unwrap();
    db.close().unwrap();
    verify_tables(&path).unwrap();
    for family in ["default", "second"] {
        let mut found: Contents = ldb_scan(&path, family).unwrap().into_iter().collect();
        found.remove(&b"in the log"[..]);
        assert_eq!(found, there[family], "{family}");
    }
    let flags = ["--try_load_options", "--ignore_unknown_options", "get", "in the log"];
    assert_eq!(ldb(&path, &flags, b"").unwrap().trim(), "only");
}
