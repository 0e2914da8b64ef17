//! Effects of the options of backups and of restoring.

use crate::copies::{key, memory, options, prefix};
use karst_engine::{
    BackupEngine, BackupEngineOptions, CreateBackupOptions, Db, ErrorKind, FileOperation, FileOperationInfo,
    FlushOptions, RestoreMode, RestoreOptions, ShareFilesNaming,
};
use karst_io::{CpuPriority, Env, FileObserver, FileSystem, MemoryFileSystem};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Operations on files of backups and of restored databases.
#[derive(Debug, Default)]
struct Seen(Mutex<Vec<(FileOperation, PathBuf, u64)>>);

impl FileObserver for Seen {
    fn ended(&self, info: &FileOperationInfo<'_>) {
        let is_other = info.path.starts_with("/db");
        if !is_other {
            self.0.lock().unwrap().push((info.operation, info.path.to_owned(), info.length));
        }
    }
}

impl Seen {
    fn take(&self) -> Vec<(FileOperation, PathBuf, u64)> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Writes two tables and two blob files, and more to the log.
fn database(env: &Env) -> Db {
    let more = "enable_blob_files=true;min_blob_size=200;write_buffer_size=4000000;\
                disable_auto_compactions=true;compression=kNoCompression";
    let db = Db::open("/db", &options(env, more)).unwrap();
    for round in 0..2_u64 {
        for number in round * 100..(round + 1) * 100 {
            db.put(key(number), vec![number as u8; 100 + (number % 2) as usize * 2000]).unwrap();
        }
        db.flush(&FlushOptions::default()).unwrap();
    }
    db.put(key(200), "last").unwrap();
    db
}

fn open(env: &Env, how: &BackupEngineOptions) -> BackupEngine {
    BackupEngine::open(how, env).unwrap()
}

fn backups() -> BackupEngineOptions {
    BackupEngineOptions::new("/backups")
}

fn create(engine: &mut BackupEngine, db: &Db) -> u32 {
    engine.create_new_backup(db, &CreateBackupOptions::default()).unwrap()
}

fn restore(engine: &BackupEngine, mode: RestoreMode) {
    let how = RestoreOptions { mode, ..RestoreOptions::default() };
    engine.restore_db_from_latest_backup("/restored", "/restored", &how).unwrap();
}

fn count(env: &Env) -> u64 {
    let db = Db::open("/restored", &options(env, "enable_blob_files=true")).unwrap();
    db.verify_checksum().unwrap();
    prefix(&db, "default")
}

fn listed(files: &MemoryFileSystem, directory: &str) -> Vec<String> {
    files.list_dir(Path::new(directory)).unwrap()
}

#[test]
fn limits_are_kept_where_there_is_no_limiter() {
    let (env, _) = memory();
    let db = database(&env);
    let total = 200 * 1100;
    let limited = BackupEngineOptions {
        backup_rate_limit: total * 3,
        restore_rate_limit: total * 3,
        io_buffer_size: 10_000,
        ..backups()
    };
    let mut engine = open(&env, &limited);
    for copy in [
        &mut |engine: &mut BackupEngine| {
            create(engine, &db);
        },
        &mut |engine: &mut BackupEngine| restore(engine, RestoreMode::PurgeAllFiles),
    ] as [&mut dyn FnMut(&mut BackupEngine); 2]
    {
        let begin = Instant::now();
        copy(&mut engine);
        let took = begin.elapsed();
        assert!(took > Duration::from_millis(150), "it took {took:?}");
    }
    assert_eq!(count(&env), 201);
}

#[test]
fn files_are_durable_if_they_are_to_be_and_copied_in_pieces_of_the_given_size() {
    for (sync, io_buffer_size) in [(true, 0), (false, 5_000)] {
        let (env, _) = memory();
        let db = database(&env);
        let seen = Arc::new(Seen::default());
        env.observe(&(seen.clone() as Arc<dyn FileObserver>));
        let mut engine = open(&env, &BackupEngineOptions { sync, io_buffer_size, ..backups() });
        create(&mut engine, &db);
        let made = seen.take();
        restore(&engine, RestoreMode::PurgeAllFiles);
        for (what, done) in [("backup", made), ("restored", seen.take())] {
            let synced = done.iter().filter(|(operation, ..)| *operation == FileOperation::Sync).count();
            assert_eq!(synced > 5, sync, "{what}: {synced} of {done:?}");
            assert_eq!(synced == 0, !sync, "{what}: {done:?}");
            let written = done.iter().filter(|(operation, ..)| *operation == FileOperation::Write);
            let largest = written.map(|(.., length)| *length).max().unwrap();
            match io_buffer_size {
                0 => assert!(largest > 100_000, "{what}: {largest}"),
                size => assert_eq!(largest, size as u64, "{what}"),
            }
        }
        engine.verify_backup(1, true).unwrap();
        assert_eq!(count(&env), 201);
    }
}

#[test]
fn an_engine_for_reading_knows_as_many_backups_as_it_may() {
    let (env, files) = memory();
    let db = database(&env);
    let mut engine = open(&env, &BackupEngineOptions { max_valid_backups_to_open: 1, ..backups() });
    for _ in 0..5 {
        create(&mut engine, &db);
    }
    let ids = |engine: &BackupEngine| -> Vec<u32> {
        engine.get_backup_info().iter().map(|info| info.backup_id).collect()
    };
    assert_eq!(ids(&engine), [1, 2, 3, 4, 5], "an engine for all purposes knows all");
    drop(engine);
    files.write_file(Path::new("/backups/meta/4"), b"damaged".to_vec()).unwrap();
    for (most, known) in [(2, vec![3, 5]), (9, vec![1, 2, 3, 5]), (0, vec![])] {
        let how = BackupEngineOptions { max_valid_backups_to_open: most, ..backups() };
        let engine = BackupEngine::open_read_only(&how, &env).unwrap();
        assert_eq!(ids(&engine), known);
    }
}

#[test]
fn the_second_schema_is_written_if_it_is_asked_for() {
    let (env, files) = memory();
    let db = database(&env);
    for (schema_version, kind) in [(0, ErrorKind::InvalidArgument), (3, ErrorKind::NotSupported)] {
        let mut engine = open(&env, &BackupEngineOptions { schema_version, ..backups() });
        let refused = engine.create_new_backup(&db, &CreateBackupOptions::default()).unwrap_err();
        assert_eq!(refused.kind(), kind, "{refused}");
        assert_eq!(engine.get_backup_info(), []);
    }
    let mut engine = open(&env, &BackupEngineOptions { schema_version: 2, ..backups() });
    let id = create(&mut engine, &db);
    let text = files.read_file(Path::new(&format!("/backups/meta/{id}"))).unwrap();
    assert!(text.starts_with(b"schema_version 2.1\n"), "{}", String::from_utf8_lossy(&text));
    drop(engine);
    let engine = open(&env, &backups());
    engine.verify_backup(id, true).unwrap();
    restore(&engine, RestoreMode::PurgeAllFiles);
    assert_eq!(count(&env), 201);
}

#[test]
fn shared_files_have_names_of_the_kind_that_is_asked_for() {
    let (env, files) = memory();
    let db = database(&env);
    let mut found = Vec::new();
    for naming in [
        ShareFilesNaming::LegacyCrc32cAndFileSize,
        ShareFilesNaming::UseDbSessionId { include_file_size: false },
        ShareFilesNaming::UseDbSessionId { include_file_size: true },
    ] {
        let how = BackupEngineOptions { share_files_with_checksum_naming: naming, ..backups() };
        let mut engine = open(&env, &BackupEngineOptions { destroy_old_data: true, ..how });
        create(&mut engine, &db);
        let second = create(&mut engine, &db);
        let mut names = listed(&files, "/backups/shared_checksum");
        assert_eq!(names.len(), 4, "two tables and two blob files once: {names:?}");
        names.retain(|name| name.ends_with(".sst"));
        let words: Vec<Vec<_>> = names.iter().map(|name| name.split(['_', '.']).collect()).collect();
        found.push((words[0].len(), words[0][1].starts_with('s')));
        engine.verify_backup(second, true).unwrap();
        restore(&engine, RestoreMode::PurgeAllFiles);
        assert_eq!(count(&env), 201);
    }
    assert_eq!(found, [(4, false), (3, true), (4, true)]);
}

#[test]
fn files_that_are_the_backups_stay_as_far_as_the_mode_says() {
    let tables = |of: &[(FileOperation, PathBuf, u64)], extension: &str| {
        let written = of.iter().filter(|(operation, ..)| *operation == FileOperation::Write);
        let mut paths: Vec<_> = written.map(|(_, path, _)| path.clone()).collect();
        paths.dedup();
        paths.iter().filter(|path| path.extension().is_some_and(|found| found == extension)).count()
    };
    // Numbers of tables and blob files that are copied when one of each is damaged.
    for (mode, copied, is_whole) in [
        (RestoreMode::PurgeAllFiles, (2, 2), true),
        (RestoreMode::VerifyChecksum, (1, 1), true),
        // The session is in a table's end, which is the only part read, and all of this one is near
        // its end. Blob files have no session.
        (RestoreMode::KeepLatestDbSessionIdFiles, (1, 2), true),
    ] {
        let (env, files) = memory();
        let db = database(&env);
        let mut engine = open(&env, &backups());
        create(&mut engine, &db);
        restore(&engine, RestoreMode::PurgeAllFiles);
        // Adds files of another database, and damages a table and a blob file that the backup has.
        let mut names = listed(&files, "/restored");
        names.sort();
        for extension in ["sst", "blob"] {
            let name = names.iter().find(|name| name.ends_with(extension)).unwrap();
            let path = PathBuf::from(format!("/restored/{name}"));
            let mut bytes = files.read_file(&path).unwrap();
            bytes[50] ^= 1;
            files.write_file(&path, bytes).unwrap();
            files.write_file(Path::new(&format!("/restored/000099.{extension}")), vec![1]).unwrap();
        }
        let seen = Arc::new(Seen::default());
        env.observe(&(seen.clone() as Arc<dyn FileObserver>));
        restore(&engine, mode);
        let done = seen.take();
        assert_eq!((tables(&done, "sst"), tables(&done, "blob")), copied, "{mode:?}");
        let names = listed(&files, "/restored");
        assert!(!names.iter().any(|name| name.starts_with("000099")), "{mode:?}: {names:?}");
        let db = Db::open("/restored", &options(&env, "enable_blob_files=true")).unwrap();
        assert_eq!(db.verify_checksum().is_ok(), is_whole, "{mode:?}");
    }
    // A table of another session is copied even if its number and size match.
    let (env, _) = memory();
    let db = database(&env);
    let mut engine = open(&env, &backups());
    create(&mut engine, &db);
    db.close().unwrap();
    let other = "enable_blob_files=true;min_blob_size=200;disable_auto_compactions=true";
    let other = Db::open("/restored", &options(&env, other)).unwrap();
    other.put(key(7), "other").unwrap();
    other.flush(&FlushOptions::default()).unwrap();
    other.close().unwrap();
    restore(&engine, RestoreMode::KeepLatestDbSessionIdFiles);
    assert_eq!(count(&env), 201);
}

/// Returns the nice value and the scheduling policy of the calling thread.
fn scheduling() -> (i64, i64) {
    let text = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    let fields: Vec<_> = text.rsplit_once(')').unwrap().1.split_whitespace().collect();
    (fields[16].parse().unwrap(), fields[38].parse().unwrap())
}

#[test]
fn backups_are_copied_by_threads_of_lower_priority_if_they_are_to_be() {
    let (env, _) = memory();
    let db = database(&env);
    let mut engine = open(&env, &BackupEngineOptions { callback_trigger_interval_size: 1, ..backups() });
    let ordinary = scheduling();
    let mut threads = |decrease: bool, priority: CpuPriority| {
        let found = Arc::new(Mutex::new(Vec::new()));
        let told = found.clone();
        let how = CreateBackupOptions {
            decrease_background_thread_cpu_priority: decrease,
            background_thread_cpu_priority: priority,
            progress_callback: Some(Arc::new(move || told.lock().unwrap().push(scheduling()))),
            ..CreateBackupOptions::default()
        };
        engine.create_new_backup(&db, &how).unwrap();
        let mut found = std::mem::take(&mut *found.lock().unwrap());
        found.dedup();
        assert_eq!(found.len(), 1, "{found:?}");
        found[0]
    };
    const SCHED_IDLE: i64 = 5;
    assert_eq!(threads(false, CpuPriority::Low), ordinary, "it is not asked for");
    assert_eq!(threads(true, CpuPriority::High), ordinary, "it is only ever lowered");
    assert_eq!(threads(true, CpuPriority::Low), (19, ordinary.1));
    assert_eq!(threads(true, CpuPriority::Normal), (19, ordinary.1), "it stays so");
    assert_eq!(threads(true, CpuPriority::Idle).1, SCHED_IDLE);
    assert_eq!(threads(false, CpuPriority::Normal).1, SCHED_IDLE, "it stays so");
    assert_eq!(scheduling(), ordinary);
}
