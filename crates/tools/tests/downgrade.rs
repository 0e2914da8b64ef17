//! Downgrade: databases that KarstDB wrote with the options of docs/downgrade.md are read, checked
//! and written by RocksDB 7.8's tools, and then read by KarstDB again.

use karst_testkit::rocksdb_tools::{db_bench, ldb, ldb_scan, verify_tables};
use karstdb::{
    BackupEngine, BackupEngineOptions, Checkpoint, CreateBackupOptions, Db, FlushOptions,
    ImportColumnFamilyOptions, IngestExternalFileOptions, Options, ReadOptions, RestoreOptions,
    SstFileWriter, TransactionDb, TransactionDbOptions, TransactionOptions, WriteOptions, WritePolicy,
};
use std::path::Path;
use std::process::Command;

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// Returns the options that the page names, and more.
fn options(more: &str) -> Options {
    let options = Options::new().set_all("create_if_missing=true").unwrap().readable_by("7.8").unwrap();
    options.set_all(more).unwrap()
}

fn key(number: u64) -> String {
    // The keys of db_bench.
    format!("{number:016}")
}

/// Writes tables of several levels, tombstones of keys and of ranges, long values, and some entries
/// that stay in the log.
fn fill(db: &Db) {
    for round in 0..5u64 {
        for number in 0..400 {
            let value = format!("{round} {number} ").repeat(if number % 7 == 0 { 60 } else { 1 });
            db.put(key(number * 3 % 700 + round), value).unwrap();
        }
        db.delete(key(round * 11)).unwrap();
        db.delete_range(key(100 + round * 50), key(120 + round * 50)).unwrap();
        if round < 4 {
            db.flush(&FlushOptions::default()).unwrap();
        }
        if round == 1 {
            db.compact_range(&Default::default(), None, None).unwrap();
        }
    }
}

fn entries_of(db: &Db, family: &str) -> Entries {
    let family = db.column_family(family).unwrap();
    let mut iterator = db.iter_cf(&ReadOptions::new(), &family).unwrap();
    let mut found = Vec::new();
    iterator.seek_to_first().unwrap();
    while iterator.valid() {
        found.push((iterator.key().to_vec(), iterator.value().to_vec()));
        iterator.next().unwrap();
    }
    iterator.status().unwrap();
    found
}

fn karst_ldb(path: &Path, args: &[&str]) -> String {
    let flag = format!("--db={}", path.display());
    let output =
        Command::new(env!("CARGO_BIN_EXE_karstdb")).arg("ldb").arg(flag).args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Asserts that RocksDB's tools find `expected` in each family and can write to the database, and
/// that KarstDB can continue after them.
fn goes_down_and_up(path: &Path, expected: &[(&str, Entries)], how: &Options) {
    // First the commands that change nothing.
    for (family, entries) in expected {
        assert!(!entries.is_empty());
        assert_eq!(&ldb_scan(path, family).unwrap(), entries, "{family}");
    }
    let checked = ldb(path, &["checkconsistency"], b"").unwrap();
    assert_eq!(checked.trim(), "OK");
    assert_eq!(karst_ldb(path, &["checkconsistency"]), checked);
    verify_tables(path).unwrap();
    // OPTIONS has the options that RocksDB needs; 7.8 ignores the unknown ones.
    let with_options = ["--try_load_options", "--ignore_unknown_options", "put", "zz", "by RocksDB"];
    ldb(path, &with_options, b"").unwrap();
    if expected.len() == 1 {
        // db_bench opens only one family.
        db_bench(path, &["-use_existing_db", "-benchmarks=overwrite,flush,readseq", "-num=300"]).unwrap();
    }
    for (family, _) in expected {
        ldb(path, &[&format!("--column_family={family}"), "compact"], b"").unwrap();
    }
    verify_tables(path).unwrap();
    let db = Db::open(path, how).unwrap();
    assert_eq!(db.get("zz").unwrap().as_deref(), Some(&b"by RocksDB"[..]));
    db.put("zzz", "by KarstDB").unwrap();
    db.flush(&FlushOptions::default()).unwrap();
    let now: Vec<Entries> = expected.iter().map(|(family, _)| entries_of(&db, family)).collect();
    db.close().unwrap();
    for ((family, _), entries) in expected.iter().zip(now) {
        assert_eq!(ldb_scan(path, family).unwrap(), entries, "{family}");
    }
}

fn default_goes_down(path: &Path, db: Db, how: &Options) {
    let expected = entries_of(&db, "default");
    db.close().unwrap();
    drop(db);
    goes_down_and_up(path, &[("default", expected)], how);
}

#[test]
fn what_was_written_flushed_and_compacted() {
    let styles = [
        "compression=kNoCompression",
        "compression=kZSTD;compaction_style=kCompactionStyleUniversal;filter_policy=ribbonfilter:10",
        "compression=kLZ4Compression;index_type=kTwoLevelIndexSearch;partition_filters=true;filter_policy=bloomfilter:10;metadata_block_size=200;checksum=kXXH3",
        "enable_blob_files=true;min_blob_size=100;blob_file_size=10000;enable_blob_garbage_collection=true;blob_garbage_collection_age_cutoff=1.0",
        "recycle_log_file_num=2;wal_recovery_mode=kPointInTimeRecovery;level_compaction_dynamic_level_bytes=true",
    ];
    for style in styles {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let how = options(style);
        let db = Db::open(&path, &how).unwrap();
        fill(&db);
        default_goes_down(&path, db, &how);
    }
}

/// Options that 7.8 does not know are requested, but not used.
#[test]
fn what_a_release_can_read_goes_before_what_it_cannot() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let newer = "format_version=7;separate_key_value_in_data_block=true;uniform_cv_threshold=0.2;track_and_verify_wals=true";
    let new = Options::new().set_all("create_if_missing=true").unwrap().set_all(newer).unwrap();
    // Without `readable_by`, no tool of 7.8 opens it.
    let db = Db::open(&path, &new).unwrap();
    fill(&db);
    db.close().unwrap();
    drop(db);
    assert!(ldb(&path, &["scan"], b"").is_err());
    Db::destroy(&path, &Options::new()).unwrap();

    let how = options(newer);
    let db = Db::open(&path, &how).unwrap();
    fill(&db);
    let tables = db.get_options(db.default_column_family()).unwrap().table_factory.block_based;
    assert_eq!(tables.format_version, 5);
    default_goes_down(&path, db, &how);
    // OPTIONS keeps the adjusted values for openings that do not name a release.
    let db = Db::open(&path, &Options::new()).unwrap();
    fill(&db);
    default_goes_down(&path, db, &Options::new());
}

#[test]
fn what_was_ingested_and_imported() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let how = options("");
    let db = Db::open(at("db"), &how).unwrap();
    fill(&db);
    let mut writer = SstFileWriter::create(&how).unwrap();
    writer.open(at("file.sst")).unwrap();
    for number in 200..600 {
        writer.put(key(number), "ingested").unwrap();
    }
    writer.delete_range(key(600), key(620)).unwrap();
    writer.finish().unwrap();
    db.ingest_external_file(&IngestExternalFileOptions::default(), [at("file.sst")]).unwrap();
    db.put(key(300), "behind").unwrap();
    // From a database with other sequence numbers.
    let other = Db::open(at("other"), &how).unwrap();
    fill(&other);
    let exported = Checkpoint::new(&other).unwrap();
    let exported = exported.export_column_family(other.default_column_family(), at("export")).unwrap();
    let import = ImportColumnFamilyOptions { move_files: false };
    let family = db.create_column_family_with_import("imported", &how, &import, &exported).unwrap();
    db.put_cf(&WriteOptions::default(), &family, key(1), "behind").unwrap();
    drop(family);
    let expected = ["default", "imported"].map(|family| (family, entries_of(&db, family)));
    db.close().unwrap();
    drop(db);
    goes_down_and_up(&at("db"), &expected, &how);
    default_goes_down(&at("other"), other, &how);
}

#[test]
fn what_was_repaired() {
    for blobs in ["", "enable_blob_files=true;min_blob_size=100"] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let how = options(blobs);
        let db = Db::open(&path, &how).unwrap();
        fill(&db);
        db.close().unwrap();
        drop(db);
        for entry in std::fs::read_dir(&path).unwrap() {
            let file = entry.unwrap();
            if file.file_name().to_string_lossy().starts_with("MANIFEST") {
                std::fs::remove_file(file.path()).unwrap();
            }
        }
        assert_eq!(karst_ldb(&path, &["repair"]), "OK\n");
        let db = Db::open(&path, &how).unwrap();
        default_goes_down(&path, db, &how);
    }
}

/// The backup is restored under other paths, and the old ones are gone.
#[test]
fn what_was_restored_under_other_paths() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let logs_in = |name: &str| format!("wal_dir={}", at(name).display());
    let how = options(&logs_in("old_logs"));
    let db = Db::open(at("old"), &how).unwrap();
    fill(&db);
    let expected = entries_of(&db, "default");
    let mut engine = BackupEngine::open(&BackupEngineOptions::new(at("backups")), db.env()).unwrap();
    let without_flush = CreateBackupOptions { flush_before_backup: false, ..Default::default() };
    engine.create_new_backup(&db, &without_flush).unwrap();
    db.close().unwrap();
    drop((db, engine));
    for gone in ["old", "old_logs"] {
        std::fs::remove_dir_all(at(gone)).unwrap();
    }
    std::fs::rename(at("backups"), at("moved")).unwrap();
    let env = karstdb::io::Env::posix();
    let engine = BackupEngine::open_read_only(&BackupEngineOptions::new(at("moved")), &env).unwrap();
    let plain = RestoreOptions::default();
    engine.restore_db_from_latest_backup(at("new"), at("new_logs"), &plain).unwrap();
    let logs = std::fs::read_dir(at("new_logs")).unwrap().count();
    assert!(logs > 0, "part of it is in the log only");
    let how = options(&logs_in("new_logs"));
    let db = Db::open(at("new"), &how).unwrap();
    assert_eq!(entries_of(&db, "default"), expected);
    assert!(!at("old_logs").exists(), "the path in the OPTIONS file is not gone by");
    // From now on OPTIONS has the path, and openings need not name it.
    db.close().unwrap();
    drop(db);
    let again = Db::open(at("new"), &options("")).unwrap();
    assert_eq!(again.options().wal_dir, at("new_logs").display().to_string());
    again.put("last", "in the log").unwrap();
    again.close().unwrap();
    drop(again);
    let flags = ["--try_load_options", "--ignore_unknown_options", "get", "last"];
    assert_eq!(ldb(&at("new"), &flags, b"").unwrap().trim(), "in the log");
    // All in one directory: the logs next to the tables, and `wal_dir` empty.
    engine.restore_db_from_latest_backup(at("one"), at("one"), &plain).unwrap();
    let how = options("wal_dir=");
    let db = Db::open(at("one"), &how).unwrap();
    assert_eq!(entries_of(&db, "default"), expected);
    default_goes_down(&at("one"), db, &how);
}

#[test]
fn what_transactions_wrote_once_they_are_decided() {
    for write_policy in [WritePolicy::WriteCommitted, WritePolicy::WritePrepared] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let how = options("");
        let transactions = TransactionDbOptions { write_policy, ..Default::default() };
        let db = TransactionDb::open(&path, &how, &transactions).unwrap();
        fill(db.db());
        for number in 0..30u64 {
            let mut transaction = db.begin(&WriteOptions::new(), &TransactionOptions::default());
            transaction.set_name(format!("transaction {number}")).unwrap();
            for at in 0..5 {
                transaction.put(key(number * 20 + at), format!("prepared {number}")).unwrap();
            }
            transaction.prepare().unwrap();
            if number == 10 {
                // Inserted but undecided entries are flushed to a table.
                db.db().flush(&FlushOptions::default()).unwrap();
            }
            match number % 3 {
                0 => transaction.rollback().unwrap(),
                _ => transaction.commit().unwrap(),
            }
        }
        let expected = entries_of(db.db(), "default");
        if write_policy == WritePolicy::WritePrepared {
            // A plain opening by RocksDB refuses logs of this policy.
            db.db().flush(&FlushOptions::default()).unwrap();
        }
        drop(db);
        goes_down_and_up(&path, &[("default", expected)], &how);
    }
}
