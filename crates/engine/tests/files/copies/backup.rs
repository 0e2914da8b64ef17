//! Backups: files they share, restored databases, detection of damage, and exchange with RocksDB's
//! backup tool in both directions.

use crate::copies::{entries, key, memory, options, prefix};
use karst_engine::{
    BackupEngine, BackupEngineOptions, CreateBackupOptions, Db, ErrorKind, FlushOptions,
    IngestExternalFileOptions, Options, RateLimiter, RestoreMode, RestoreOptions, SstFileWriter,
    WriteOptions,
};
use karst_io::testing::foreign_block_on;
use karst_io::{Disturb, Disturbance, DisturbedFileSystem, Env, FileSystem, MemoryFileSystem};
use karst_testkit::rocksdb_tools::{ldb, ldb_scan};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const PLAIN: RestoreOptions = RestoreOptions { keep_log_files: false, mode: RestoreMode::PurgeAllFiles };

fn engine(env: &Env) -> BackupEngine {
    let mut how = BackupEngineOptions::new("/backups");
    how.max_background_operations = 3;
    BackupEngine::open(&how, env).unwrap()
}

fn fill(db: &Db, range: std::ops::Range<u64>) {
    for number in range {
        db.put(key(number), vec![number as u8; 100 + (number % 2) as usize * 200]).unwrap();
    }
}

fn create(engine: &mut BackupEngine, db: &Db) -> u32 {
    engine.create_new_backup(db, &CreateBackupOptions::default()).unwrap()
}

/// Returns every file of the backups with its bytes.
fn all(files: &MemoryFileSystem) -> BTreeSet<(String, Vec<u8>)> {
    let mut all = BTreeSet::new();
    let mut directories = vec!["/backups".to_owned()];
    while let Some(directory) = directories.pop() {
        for name in files.list_dir(Path::new(&directory)).unwrap() {
            let path = format!("{directory}/{name}");
            match files.metadata(Path::new(&path)).unwrap().is_dir {
                true => directories.push(path),
                false => drop(all.insert((path.clone(), files.read_file(Path::new(&path)).unwrap()))),
            }
        }
    }
    all
}

fn restored(engine: &BackupEngine, env: &Env, id: u32, more: &str) -> u64 {
    engine.restore_db_from_backup(id, "/restored", "/restored", &PLAIN).unwrap();
    let db = Db::open("/restored", &options(env, more)).unwrap();
    let count = prefix(&db, "default");
    db.verify_checksum().unwrap();
    db.close().unwrap();
    count
}

const BLOBS: &str = "enable_blob_files=true;min_blob_size=200;write_buffer_size=4000000";

#[test]
fn backups_share_what_they_have_in_common() {
    let (env, files) = memory();
    let db = Db::open("/db", &options(&env, BLOBS)).unwrap();
    let mut engine = engine(&env);
    fill(&db, 0..200);
    db.flush(&FlushOptions::default()).unwrap();
    let first = create(&mut engine, &db);
    let before = all(&files);
    let shared = |all: &BTreeSet<(String, Vec<u8>)>| {
        all.iter().filter(|(path, _)| path.starts_with("/backups/shared")).count()
    };
    assert_eq!(shared(&before), 2, "a table and a blob file");
    fill(&db, 200..300);
    let second = create(&mut engine, &db);
    let after = all(&files);
    assert_eq!((first, second, shared(&after)), (1, 2, 2), "what is in the log is private");
    assert!(before.is_subset(&after), "what was backed up does not change");
    fill(&db, 300..400);
    let flushed = CreateBackupOptions {
        flush_before_backup: true,
        app_metadata: b"third\n".to_vec(),
        ..Default::default()
    };
    let third = foreign_block_on(engine.create_new_backup_async(&db, &flushed)).unwrap();
    assert_eq!(shared(&all(&files)), 4);
    // The next engine reads equal information.
    let info = engine.get_backup_info();
    drop(engine);
    let engine = self::engine(&env);
    assert_eq!(engine.get_backup_info(), info);
    assert_eq!(info.iter().map(|info| info.backup_id).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(info[2].app_metadata, b"third\n");
    assert_eq!(info[2].sequence_number, 400);
    assert!(info[0].size < info[2].size && info[0].number_files < info[2].number_files);
    db.close().unwrap();
    for (id, keys) in [(third, 400), (first, 200), (second, 300)] {
        foreign_block_on(engine.verify_backup_async(id, true)).unwrap();
        assert_eq!(restored(&engine, &env, id, BLOBS), keys);
    }
    engine.restore_db_from_latest_backup("/restored", "/restored", &PLAIN).unwrap();
    assert_eq!(prefix(&Db::open("/restored", &options(&env, BLOBS)).unwrap(), "default"), 400);
    let missing = engine.restore_db_from_backup(9, "/x", "/x", &PLAIN).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
}

#[test]
fn backups_go_when_they_are_told_to_and_no_others_file_with_them() {
    let (env, files) = memory();
    let db = Db::open("/db", &options(&env, BLOBS)).unwrap();
    let mut engine = engine(&env);
    for round in 0..5 {
        fill(&db, round * 50..(round + 1) * 50);
        db.flush(&FlushOptions::default()).unwrap();
        create(&mut engine, &db);
    }
    engine.delete_backup(2).unwrap();
    assert_eq!(engine.delete_backup(2).unwrap_err().kind(), ErrorKind::NotFound);
    engine.purge_old_backups(2).unwrap();
    let ids: Vec<u32> = engine.get_backup_info().iter().map(|info| info.backup_id).collect();
    assert_eq!(ids, [4, 5]);
    for id in ids {
        engine.verify_backup(id, true).unwrap();
    }
    assert_eq!(files.list_dir(Path::new("/backups/private")).unwrap(), ["4", "5"]);
    // Opening removes files of no backup, but no shared ones while any backup is unreadable.
    let stray = Path::new("/backups/shared_checksum/000099_s00000000000000000000_1.sst");
    files.write_file(stray, vec![1]).unwrap();
    files.write_file(Path::new("/backups/private/77/CURRENT"), vec![1]).unwrap();
    files.write_file(Path::new("/backups/meta/.77.tmp"), vec![1]).unwrap();
    files.write_file(Path::new("/backups/meta/6"), b"damaged".to_vec()).unwrap();
    drop(engine);
    let mut engine = self::engine(&env);
    assert!(files.exists(stray).unwrap(), "it may be the damaged one's");
    assert!(!files.exists(Path::new("/backups/private/77")).unwrap());
    assert!(!files.exists(Path::new("/backups/meta/.77.tmp")).unwrap());
    let corrupt = engine.get_corrupted_backups();
    assert_eq!((corrupt.len(), corrupt[0].0, corrupt[0].1.kind()), (1, 6, ErrorKind::Corruption));
    assert_eq!(engine.verify_backup(6, false).unwrap_err().kind(), ErrorKind::Corruption);
    engine.delete_backup(6).unwrap();
    assert!(!files.exists(stray).unwrap());
    // Ids are not reused.
    assert_eq!(create(&mut engine, &db), 78);
    // One writing engine at a time, and any number of reading ones.
    let how = BackupEngineOptions::new("/backups");
    assert_eq!(BackupEngine::open(&how, &env).unwrap_err().kind(), ErrorKind::Locked);
    let mut reader = BackupEngine::open_read_only(&how, &env).unwrap();
    reader.verify_backup(78, true).unwrap();
    assert_eq!(reader.delete_backup(78).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let refused = reader.create_new_backup(&db, &CreateBackupOptions::default()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    drop(engine);
    let fresh = BackupEngineOptions { destroy_old_data: true, ..how };
    assert!(BackupEngine::open(&fresh, &env).unwrap().get_backup_info().is_empty());
    assert_eq!(all(&files).iter().filter(|(path, _)| !path.ends_with("LOCK")).count(), 0);
}

/// Each file of a backup is damaged, cut and removed in turn.
#[test]
fn damage_is_found_before_it_is_restored() {
    let (env, files) = memory();
    let db = Db::open("/db", &options(&env, BLOBS)).unwrap();
    fill(&db, 0..100);
    db.flush(&FlushOptions::default()).unwrap();
    fill(&db, 100..150);
    let mut engine = engine(&env);
    let id = create(&mut engine, &db);
    db.close().unwrap();
    let mut damaged = 0;
    for (path, bytes) in all(&files) {
        if path.ends_with("LOCK") || path.contains("/meta/") {
            continue;
        }
        damaged += 1;
        let at = Path::new(&path);
        let restore = || engine.restore_db_from_backup(id, "/restored", "/restored", &PLAIN);
        let mut flipped = bytes.clone();
        flipped[bytes.len() / 2] ^= 4;
        files.write_file(at, flipped).unwrap();
        engine.verify_backup(id, false).unwrap();
        assert_eq!(engine.verify_backup(id, true).unwrap_err().kind(), ErrorKind::Corruption, "{path}");
        let told = restore().unwrap_err();
        assert!(told.kind() == ErrorKind::Corruption && told.to_string().contains(&path), "{told}");
        assert!(!files.exists(Path::new("/restored/CURRENT")).unwrap(), "no database is there");
        files.write_file(at, bytes[..bytes.len() - 1].to_vec()).unwrap();
        assert_eq!(engine.verify_backup(id, true).unwrap_err().kind(), ErrorKind::Corruption, "{path}");
        let by_size = engine.verify_backup(id, false).is_err();
        assert_eq!(by_size, path.contains("shared_checksum"), "the name of {path} tells its size");
        files.remove(at).unwrap();
        assert_eq!(engine.verify_backup(id, false).unwrap_err().kind(), ErrorKind::Corruption, "{path}");
        // Restoring from a backup that lacks a file leaves the existing database alone.
        files.write_file(Path::new("/restored/CURRENT"), b"some".to_vec()).unwrap();
        assert_eq!(restore().unwrap_err().kind(), ErrorKind::Corruption);
        assert!(files.exists(Path::new("/restored/CURRENT")).unwrap());
        files.write_file(at, bytes).unwrap();
    }
    assert!(damaged >= 5, "{damaged} files were damaged");
    assert_eq!(restored(&engine, &env, id, BLOBS), 150);
}

#[test]
fn a_database_is_restored_in_place_of_another_and_may_keep_its_logs() {
    let (env, files) = memory();
    let all = options(&env, "WAL_ttl_seconds=100000");
    let db = Db::open("/db", &all).unwrap();
    fill(&db, 0..100);
    let mut engine = engine(&env);
    let id = create(&mut engine, &db);
    fill(&db, 100..200);
    db.flush(&FlushOptions::default()).unwrap();
    fill(&db, 200..300);
    let open = engine.restore_db_from_backup(id, "/db", "/db", &PLAIN).unwrap_err();
    assert_eq!(open.kind(), ErrorKind::Locked, "{open}");
    assert_eq!(prefix(&db, "default"), 300);
    db.close().unwrap();
    drop(db);
    files.write_file(Path::new("/db/notes.txt"), vec![1]).unwrap();
    engine
        .restore_db_from_backup(id, "/db", "/db", &RestoreOptions { keep_log_files: true, ..PLAIN })
        .unwrap();
    let db = Db::open("/db", &all).unwrap();
    assert_eq!(prefix(&db, "default"), 300, "the logs have what was written since");
    db.close().unwrap();
    drop(db);
    assert!(files.exists(Path::new("/db/notes.txt")).unwrap());
    engine.restore_db_from_backup(id, "/db", "/db", &PLAIN).unwrap();
    assert_eq!(prefix(&Db::open("/db", &all).unwrap(), "default"), 100);
    // Restores the logs to another directory.
    engine.restore_db_from_backup(id, "/new/db", "/new/logs", &PLAIN).unwrap();
    let apart = options(&env, "").db(|db| db.wal_dir = "/new/logs".into());
    assert_eq!(prefix(&Db::open("/new/db", &apart).unwrap(), "default"), 100);
}

#[test]
fn logs_that_stay_bring_nothing_to_a_family_that_is_made_later() {
    let (env, _) = memory();
    let all = options(&env, "avoid_flush_during_recovery=true;avoid_flush_during_shutdown=true");
    let db = Db::open("/db", &all).unwrap();
    fill(&db, 0..10);
    let id = create(&mut engine(&env), &db);
    let later = db.create_column_family("later", &all).unwrap();
    db.put_cf(&WriteOptions::default(), &later, key(0), "of later").unwrap();
    db.close().unwrap();
    drop(db);
    let kept = RestoreOptions { keep_log_files: true, ..PLAIN };
    engine(&env).restore_db_from_backup(id, "/db", "/db", &kept).unwrap();
    let db = Db::open("/db", &all).unwrap();
    assert!(db.column_family("later").is_none(), "the backup is from before it");
    let new = db.create_column_family("new", &all).unwrap();
    db.put_cf(&WriteOptions::default(), &new, key(1), "of new").unwrap();
    db.close().unwrap();
    drop(db);
    let db = Db::open("/db", &all).unwrap();
    assert_eq!(entries(&db, "new"), [(key(1), b"of new".to_vec())]);
    assert_eq!(prefix(&db, "default"), 10);
}

#[test]
fn options_say_what_is_shared_and_whether_logs_are_there() {
    let (env, files) = memory();
    let db = Db::open("/db", &options(&env, "")).unwrap();
    fill(&db, 0..100);
    db.flush(&FlushOptions::default()).unwrap();
    fill(&db, 100..150);
    for (name, with_checksum, share, logs, directory) in [
        ("/by_number", false, true, true, "shared"),
        ("/apart", true, false, true, "private/1"),
        ("/without", true, true, false, "shared_checksum"),
    ] {
        let how = BackupEngineOptions {
            share_files_with_checksum: with_checksum,
            share_table_files: share,
            backup_log_files: logs,
            ..BackupEngineOptions::new(name)
        };
        let mut engine = BackupEngine::open(&how, &env).unwrap();
        let first = create(&mut engine, &db);
        let second = create(&mut engine, &db);
        let tables = files.list_dir(Path::new(&format!("{name}/{directory}"))).unwrap();
        assert_eq!(tables.iter().filter(|name| name.ends_with(".sst")).count(), 1, "{name}: {tables:?}");
        for id in [first, second] {
            engine.verify_backup(id, true).unwrap();
            let expected = if logs { 150 } else { 100 };
            assert_eq!(restored(&engine, &env, id, ""), expected, "{name}");
        }
    }
    // Another database has a different table of this number.
    let other = Db::open("/other", &options(&env, "")).unwrap();
    fill(&other, 0..100);
    other.flush(&FlushOptions::default()).unwrap();
    let how =
        BackupEngineOptions { share_files_with_checksum: false, ..BackupEngineOptions::new("/by_number") };
    let mut engine = BackupEngine::open(&how, &env).unwrap();
    let refused = engine.create_new_backup(&other, &CreateBackupOptions::default()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Corruption, "{refused}");
    engine.verify_backup(1, true).unwrap();
}

/// Lets a number of changes of the backups succeed, then fails one.
#[derive(Debug)]
struct Failing(AtomicI64);

impl Disturb for Failing {
    fn read(&self, _: &Path, _: u64, _: usize) -> Option<Disturbance> {
        None
    }
    fn write(&self, path: &Path) -> std::io::Result<()> {
        if path.starts_with("/backups") && self.0.fetch_sub(1, Ordering::Relaxed) == 0 {
            return Err(std::io::Error::other("the disk fails"));
        }
        Ok(())
    }
}

#[test]
fn whatever_fails_leaves_the_backups_as_they_were() {
    let files = Arc::new(MemoryFileSystem::new());
    let disk = DisturbedFileSystem::new(files.clone(), Failing(AtomicI64::new(-1)));
    let env = Env::builder().file_system(Arc::new(disk.clone())).build();
    let db = Db::open("/db", &options(&env, BLOBS)).unwrap();
    let mut engine = BackupEngine::open(&BackupEngineOptions::new("/backups"), &env).unwrap();
    fill(&db, 0..50);
    db.flush(&FlushOptions::default()).unwrap();
    create(&mut engine, &db);
    fill(&db, 50..100);
    db.flush(&FlushOptions::default()).unwrap();
    let before = all(&files);
    for changes in 0.. {
        disk.between().0.store(changes, Ordering::Relaxed);
        let made = engine.create_new_backup(&db, &CreateBackupOptions::default());
        disk.between().0.store(-1, Ordering::Relaxed);
        match made {
            Ok(id) => {
                assert!(changes > 15, "only {changes} changes were tried");
                assert_eq!(restored(&engine, &env, id, BLOBS), 100);
                break;
            }
            Err(told) => assert!(told.to_string().contains("the disk fails"), "{told}"),
        }
        assert_eq!(all(&files), before, "after {changes} changes");
        engine.verify_backup(1, true).unwrap();
        assert_eq!(db.int_property("rocksdb.is-file-deletions-enabled"), Some(1));
    }
}

#[test]
fn a_backup_tells_how_it_goes_on_keeps_to_its_rate_and_is_stopped() {
    let (env, files) = memory();
    let db = Db::open("/db", &options(&env, "compression=kNoCompression;write_buffer_size=8000000")).unwrap();
    (0..300u64).for_each(|number| db.put(key(number), vec![number as u8; 10_000]).unwrap());
    db.flush(&FlushOptions::default()).unwrap();
    let calls = Arc::new(AtomicU64::new(0));
    let counted = calls.clone();
    let how = BackupEngineOptions {
        callback_trigger_interval_size: 1 << 20,
        backup_rate_limiter: Some(RateLimiter::new(10 << 20)),
        ..BackupEngineOptions::new("/backups")
    };
    let mut engine = BackupEngine::open(&how, &env).unwrap();
    let told = CreateBackupOptions {
        progress_callback: Some(Arc::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        })),
        ..CreateBackupOptions::default()
    };
    let begin = Instant::now();
    engine.create_new_backup(&db, &told).unwrap();
    assert!(begin.elapsed() > Duration::from_millis(150), "3 MB at 10 MB/s took {:?}", begin.elapsed());
    let calls = calls.load(Ordering::Relaxed);
    assert!((2..=4).contains(&calls), "called {calls} times");
    // A second backup is stopped from its own callback.
    db.put("more", vec![1; 3_000_000]).unwrap();
    let stopper = engine.stopper();
    let stops = CreateBackupOptions {
        flush_before_backup: true,
        progress_callback: Some(Arc::new(move || stopper.stop_backup())),
        ..CreateBackupOptions::default()
    };
    let before = all(&files);
    let stopped = engine.create_new_backup(&db, &stops).unwrap_err();
    assert_eq!(stopped.kind(), ErrorKind::Incomplete, "{stopped}");
    assert_eq!(all(&files), before);
    let later = engine.create_new_backup(&db, &CreateBackupOptions::default()).unwrap_err();
    assert_eq!(later.kind(), ErrorKind::Incomplete, "it stays stopped");
    drop(engine);
    create(&mut self::engine(&env), &db);
}

#[test]
fn a_backup_that_is_given_up_is_in_nobodys_way() {
    use karst_io::testing::{in_steps, poll_times};
    let (env, files) = memory();
    let db = Db::open("/db", &options(&env, BLOBS)).unwrap();
    fill(&db, 0..100);
    db.put_opt(&WriteOptions::unlogged(), key(100), "1").unwrap();
    let mut engine = engine(&env);
    let flushed = CreateBackupOptions { flush_before_backup: true, ..CreateBackupOptions::default() };
    let mut given_up = 0;
    for polls in 0..1_000 {
        let made = {
            let mut making = Box::pin(in_steps(&env, engine.create_new_backup_async(&db, &flushed)));
            foreign_block_on(poll_times(making.as_mut(), polls))
        };
        if let Some(made) = made {
            made.unwrap();
            break;
        }
        given_up += 1;
    }
    assert!(given_up > 1, "given up {given_up} times");
    engine.garbage_collect().unwrap();
    let backups = engine.get_backup_info();
    let ids: Vec<String> = backups.iter().map(|info| info.backup_id.to_string()).collect();
    let names = files.list_dir(Path::new("/backups/meta")).unwrap();
    assert!(ids.iter().all(|id| names.contains(id)), "{ids:?}, {names:?}");
    drop(engine);
    let engine = self::engine(&env);
    for info in engine.get_backup_info() {
        engine.verify_backup(info.backup_id, true).unwrap();
        assert_eq!(restored(&engine, &env, info.backup_id, BLOBS), 101);
    }
}

/// RocksDB's tool restores KarstDB's backup and adds one without copying existing files, which
/// KarstDB restores.
#[test]
fn rocksdb_and_karstdb_take_each_others_backups() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let text = |name: &str| at(name).to_str().unwrap().to_owned();
    let backups = format!("--backup_dir={}", text("backups"));
    let shared = || std::fs::read_dir(at("backups").join("shared_checksum")).unwrap().count();
    let env = Env::posix();
    let open = |name: &str| {
        let all = Options::new().db(|db| db.create_if_missing = true);
        Db::open(at(name), &all.set_all("format_version=5;enable_blob_files=true;min_blob_size=200").unwrap())
    };
    let db = open("db").unwrap();
    fill(&db, 0..300);
    db.flush(&FlushOptions::default()).unwrap();
    fill(&db, 300..400);
    let how = BackupEngineOptions::new(at("backups"));
    let mut engine = BackupEngine::open(&how, &env).unwrap();
    create(&mut engine, &db);
    drop(engine);
    let live = entries(&db, "default");
    db.close().unwrap();
    drop(db);
    let restore = |name: &str| {
        let said = ldb(&at(name), &["restore", &backups], b"").unwrap();
        assert!(said.contains("restore from backup OK"), "{said}");
    };
    restore("of_karst");
    assert_eq!(ldb_scan(&at("of_karst"), "default").unwrap(), live);
    // RocksDB backs up the database into the same backups. Opening it flushes the log.
    let before = shared();
    let said = ldb(&at("db"), &["backup", &backups], b"").unwrap();
    assert!(said.contains("create new backup OK"), "{said}");
    let new = shared() - before;
    assert!((1..=2).contains(&new), "{new} files are new; the log was one table, and blobs at most");
    let mut engine = BackupEngine::open(&how, &env).unwrap();
    let ids: Vec<u32> = engine.get_backup_info().iter().map(|info| info.backup_id).collect();
    assert_eq!(ids, [1, 2]);
    for id in ids {
        engine.verify_backup(id, true).unwrap();
        engine.restore_db_from_backup(id, at("of_rocksdb"), at("of_rocksdb"), &PLAIN).unwrap();
        assert_eq!(entries(&open("of_rocksdb").unwrap(), "default"), live);
    }
    // KarstDB adds a backup to RocksDB's.
    let db = open("db").unwrap();
    let before = shared();
    let third = create(&mut engine, &db);
    assert_eq!((third, shared()), (3, before), "all of it was there");
    engine.purge_old_backups(1).unwrap();
    drop(engine);
    restore("once_more");
    assert_eq!(ldb_scan(&at("once_more"), "default").unwrap(), live);
    let info = ldb(&at("once_more"), &["checkconsistency"], b"").unwrap();
    assert!(info.contains("OK"), "{info}");
}

/// Opens the engine after the jobs of a dropped one have ended.
fn engine_after(env: &Env) -> BackupEngine {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        match BackupEngine::open(&BackupEngineOptions::new("/backups"), env) {
            Ok(engine) => return engine,
            Err(error) => assert!(error.kind() == ErrorKind::Locked && Instant::now() < until, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// An engine dropped during a call leaves running jobs, and the next engine waits for them.
#[test]
fn an_engine_that_is_dropped_at_work_keeps_the_next_one_out() {
    use karst_io::testing::{in_steps, poll_times};
    let (env, _) = memory();
    let db = Db::open("/db", &options(&env, BLOBS)).unwrap();
    fill(&db, 0..100);
    let how = CreateBackupOptions { flush_before_backup: true, ..CreateBackupOptions::default() };
    for polls in 0..200 {
        let mut engine = engine_after(&env);
        db.put_opt(&WriteOptions::unlogged(), key(100), "1").unwrap();
        let made = {
            let mut making = Box::pin(in_steps(&env, engine.create_new_backup_async(&db, &how)));
            foreign_block_on(poll_times(making.as_mut(), polls))
        };
        drop(engine);
        let engine = engine_after(&env);
        for info in engine.get_backup_info() {
            engine.verify_backup(info.backup_id, true).unwrap();
        }
        if let Some(made) = made {
            made.unwrap();
            return assert!(polls > 0, "it was never given up");
        }
    }
    panic!("it does not end");
}

/// Files that belong to no backup, and an unreadable backup, do not affect other backups.
#[test]
fn odd_names_are_nobodys_backups() {
    let (env, files) = memory();
    let db = Db::open("/db", &options(&env, BLOBS)).unwrap();
    fill(&db, 0..10);
    let mut engine = engine(&env);
    let id = create(&mut engine, &db);
    drop(engine);
    let meta = files.read_file(Path::new("/backups/meta/1")).unwrap();
    for name in ["0", "007", "+5", "4294967296", "x"] {
        files.write_file(&Path::new("/backups/meta").join(name), meta.clone()).unwrap();
    }
    files.create_dir(Path::new("/backups/meta/5")).unwrap();
    files.write_file(Path::new("/backups/meta/4294967295"), Vec::new()).unwrap();
    let mut engine = self::engine(&env);
    let found: Vec<u32> = engine.get_backup_info().iter().map(|info| info.backup_id).collect();
    assert_eq!(found, [id]);
    let corrupt: Vec<u32> = engine.get_corrupted_backups().iter().map(|(id, _)| *id).collect();
    assert_eq!(corrupt, [5, u32::MAX]);
    let told = engine.create_new_backup(&db, &CreateBackupOptions::default()).unwrap_err();
    assert_eq!(told.kind(), ErrorKind::LimitReached, "{told}");
    assert_eq!(restored(&engine, &env, id, BLOBS), 10);
}

/// Writes, with one writer, one file to ingest per value, with one key: equal in size and session.
fn files_of_one_session(env: &Env, values: [&str; 2]) {
    let mut writer = SstFileWriter::create(&options(env, "")).unwrap();
    for value in values {
        writer.open(format!("/file_{value}")).unwrap();
        writer.put("key", value).unwrap();
        writer.finish().unwrap();
    }
}

#[test]
fn tables_of_one_session_number_and_size_are_told_apart() {
    const VALUES: [&str; 2] = ["AAAA", "BBBB"];
    let (env, files) = memory();
    files_of_one_session(&env, VALUES);
    let mut engine = engine(&env);
    let mut ids = Vec::new();
    for value in VALUES {
        let db = Db::open(format!("/db_{value}"), &options(&env, "")).unwrap();
        let file = format!("/file_{value}");
        db.ingest_external_file(&IngestExternalFileOptions::default(), [file]).unwrap();
        ids.push(create(&mut engine, &db));
        // The second backup shares the table with the first one.
        create(&mut engine, &db);
        db.close().unwrap();
    }
    assert_eq!(files.list_dir(Path::new("/backups/shared_checksum")).unwrap().len(), VALUES.len());
    for mode in
        [RestoreMode::PurgeAllFiles, RestoreMode::KeepLatestDbSessionIdFiles, RestoreMode::VerifyChecksum]
    {
        // Restores each over the other.
        for (id, value) in ids.iter().zip(VALUES) {
            engine.verify_backup(*id, true).unwrap();
            let how = RestoreOptions { mode, ..PLAIN };
            engine.restore_db_from_backup(*id, "/restored", "/restored", &how).unwrap();
            let db = Db::open("/restored", &options(&env, "")).unwrap();
            assert_eq!(db.get("key").unwrap().as_deref(), Some(value.as_bytes()), "{mode:?}");
            db.close().unwrap();
        }
    }
}

/// Compat: RocksDB and older releases name the backup of an ingested table by its session.
#[test]
fn a_name_that_another_table_has_in_the_backups_is_not_trusted() {
    let (env, files) = memory();
    let db = Db::open("/db", &options(&env, "")).unwrap();
    fill(&db, 0..50);
    db.flush(&FlushOptions::default()).unwrap();
    let mut engine = engine(&env);
    let first = create(&mut engine, &db);
    // Under the name that this table should get, the backups hold a different table.
    let name = &files.list_dir(Path::new("/backups/shared_checksum")).unwrap()[0];
    let shared = Path::new("/backups/shared_checksum").join(name);
    let whole = files.read_file(&shared).unwrap();
    let mut another = whole.clone();
    let at = whole.len() - 200;
    another[at] ^= 1;
    files.write_file(&shared, another.clone()).unwrap();
    let second = create(&mut engine, &db);
    assert_eq!(restored(&engine, &env, second, ""), 50);
    assert!(engine.verify_backup(first, true).is_err());
    assert_eq!(files.read_file(&shared).unwrap(), another, "it is the first backup's");
}

#[test]
fn a_backup_without_logs_names_none_in_its_manifest() {
    for flush_before_backup in [false, true] {
        let (env, _) = memory();
        let all = options(&env, "track_and_verify_wals_in_manifest=true");
        let db = Db::open("/db", &all).unwrap();
        let other = db.create_column_family("other", &all).unwrap();
        for number in 0..3 {
            db.put_cf(&WriteOptions::default(), &other, key(number), "of other").unwrap();
            db.put(key(number), "1").unwrap();
            db.sync_wal().unwrap();
            db.flush(&FlushOptions::default()).unwrap();
        }
        let mut how = BackupEngineOptions::new("/backups");
        how.backup_log_files = false;
        let mut engine = BackupEngine::open(&how, &env).unwrap();
        let how = CreateBackupOptions { flush_before_backup, ..CreateBackupOptions::default() };
        let id = engine.create_new_backup(&db, &how).unwrap();
        engine.verify_backup(id, true).unwrap();
        assert_eq!(restored(&engine, &env, id, ""), 3, "flush {flush_before_backup}");
        // The restored database tracks its logs again.
        let db = Db::open("/restored", &Options::new().env(env.clone())).unwrap();
        assert!(db.options().track_and_verify_wals_in_manifest);
        fill(&db, 3..10);
        db.sync_wal().unwrap();
        fill(&db, 10..20);
        db.close().unwrap();
        drop(db);
        let db = Db::open("/restored", &Options::new().env(env.clone())).unwrap();
        assert_eq!(prefix(&db, "default"), 20);
    }
}
