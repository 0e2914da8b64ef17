//! Disk space and removal of obsolete files: which files count, what the limit refuses and how
//! writes resume, trash, and trash whose removal fails.

use karst_engine::{
    BackupEngine, BackupEngineOptions, Checkpoint, CompactRangeOptions, CompactionInfo, CreateBackupOptions,
    Db, ErrorKind, EventListener, FlushInfo, FlushOptions, IngestExternalFileOptions, Options, ReadOptions,
    Severity, SstFileManager, SstFileWriter, Statistics, StatsLevel, Ticker, WaitForCompactOptions,
    WriteOptions,
};
use karst_io::{Disturb, Disturbance, DisturbedFileSystem, Env, FileSystem, MemoryFileSystem};
use karst_testkit::eventually;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

fn env_of(files: Arc<dyn FileSystem>) -> Env {
    Env::builder().file_system(files).build()
}

fn options(env: &Env, manager: &SstFileManager) -> Options {
    Options::new()
        .env(env.clone())
        .sst_file_manager(manager.clone())
        .db(|db| {
            db.create_if_missing = true;
            db.bgerror_resume_retry_interval = 20_000;
        })
        .set("compression", "kNoCompression")
        .unwrap()
}

fn without_auto_compactions(options: Options) -> Options {
    options.column_families(|family| family.disable_auto_compactions = true)
}

fn value(number: u64) -> Vec<u8> {
    format!("{number:0>1000}").into_bytes()
}

/// Writes one table with a hundred keys, which are equal in all rounds.
fn table(db: &Db, round: u64) {
    for number in 0..100u64 {
        db.put(format!("{number:04}"), value(round * 100 + number)).unwrap();
    }
    db.flush(&FlushOptions::default()).unwrap();
}

fn check(db: &Db, round: u64) {
    let mut iterator = db.iter(&ReadOptions::new()).unwrap();
    iterator.seek_to_first().unwrap();
    for number in 0..100u64 {
        assert_eq!(iterator.key(), format!("{number:04}").as_bytes());
        assert_eq!(iterator.value(), value(round * 100 + number));
        iterator.next().unwrap();
    }
    assert!(!iterator.valid());
}

fn live(db: &Db) -> BTreeMap<PathBuf, u64> {
    db.live_files().into_iter().map(|file| (file.directory.join(file.name), file.size_bytes)).collect()
}

/// Returns the names in the database's directory that end with `end`.
fn ending(files: &dyn FileSystem, end: &str) -> Vec<String> {
    let names = files.list_dir(Path::new("/db")).unwrap();
    names.into_iter().filter(|name| name.ends_with(end)).collect()
}

fn compact(db: &Db) -> karst_engine::Result<()> {
    db.compact_range(&CompactRangeOptions::default(), None::<&[u8]>, None::<&[u8]>)
}

#[test]
fn all_tables_and_blob_files_count_with_their_sizes() {
    let files = Arc::new(MemoryFileSystem::new());
    let (env, manager) = (env_of(files.clone()), SstFileManager::new());
    let options = without_auto_compactions(options(&env, &manager)).column_families(|family| {
        family.enable_blob_files = true;
        family.min_blob_size = 500;
    });
    let db = Db::open("/db", &options).unwrap();
    let same = |db: &Db| {
        let live = live(db);
        assert_eq!(manager.tracked_files(), live);
        assert_eq!(manager.total_size(), live.values().sum::<u64>());
        for (path, bytes) in live {
            assert_eq!(files.metadata(&path).unwrap().len, bytes, "{}", path.display());
        }
    };
    table(&db, 0);
    table(&db, 1);
    same(&db);
    assert_eq!(manager.tracked_files().len(), 4);
    let mut writer = SstFileWriter::create(&options).unwrap();
    writer.open("/outside.sst").unwrap();
    writer.put("zz", "ingested").unwrap();
    writer.finish().unwrap();
    db.ingest_external_file(&IngestExternalFileOptions::default(), ["/outside.sst"]).unwrap();
    same(&db);
    compact(&db).unwrap();
    eventually(live(&db), || manager.tracked_files());
    same(&db);
    // A second database counts too.
    let other = Db::open("/other", &options).unwrap();
    let before = manager.total_size();
    table(&other, 0);
    assert_eq!(manager.total_size(), before + live(&other).values().sum::<u64>());
    other.close().unwrap();
    assert_eq!(manager.total_size(), before);
    db.put("in the log", "only").unwrap();
    db.close().unwrap();
    assert_eq!(manager.total_size(), 0);
    let db = Db::open("/db", &options).unwrap();
    same(&db);
    db.close().unwrap();
    Db::open_read_only("/db", &options).unwrap();
    assert_eq!(manager.total_size(), 0, "who only reads counts nothing");
}

/// After the flush, writes are refused; when the limit is raised they are accepted again,
/// automatically or by `resume`.
#[test]
fn a_flush_that_reaches_the_limit_stays_and_writes_are_refused() {
    for by_itself in [true, false] {
        let (env, manager) = (env_of(Arc::new(MemoryFileSystem::new())), SstFileManager::new());
        let options = without_auto_compactions(options(&env, &manager)).db(move |db| {
            db.max_bgerror_resume_count = if by_itself { i32::MAX } else { 0 };
        });
        let db = Db::open("/db", &options).unwrap();
        manager.set_max_allowed_space_usage(150_000);
        table(&db, 0);
        assert!(db.background_error().is_none());
        table(&db, 1);
        let error = db.background_error().expect("the limit is reached");
        assert_eq!((error.error.kind(), error.severity), (ErrorKind::SpaceLimit, Severity::Hard));
        assert!(manager.is_max_allowed_space_reached());
        let refused = db.put("0000", "more").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::SpaceLimit, "{refused}");
        assert!(refused.to_string().contains("150000"), "{refused}");
        assert_eq!(db.property("rocksdb.num-files-at-level0").as_deref(), Some("2"));
        check(&db, 1);
        if !by_itself {
            assert_eq!(db.resume().unwrap_err().kind(), ErrorKind::SpaceLimit);
        }
        manager.set_max_allowed_space_usage(1_000_000);
        match by_itself {
            true => eventually(true, || db.background_error().is_none()),
            false => db.resume().unwrap(),
        }
        table(&db, 2);
        check(&db, 2);
        db.close().unwrap();
    }
}

/// Listener that looks for a background error when a flush has ended.
#[derive(Debug, Default)]
struct Looks(OnceLock<Db>, Mutex<Vec<bool>>);

impl EventListener for Looks {
    fn flush_completed(&self, _: &FlushInfo) {
        let found = self.0.get().is_some_and(|db| db.background_error().is_some());
        self.1.lock().unwrap().push(found);
    }
}

/// A waiter may return as soon as the flush's table is installed.
#[test]
fn writes_are_refused_before_the_flush_is_over() {
    let (env, manager) = (env_of(Arc::new(MemoryFileSystem::new())), SstFileManager::new());
    let looks = Arc::new(Looks::default());
    let options = without_auto_compactions(options(&env, &manager)).event_listener(looks.clone());
    let db = Db::open("/db", &options).unwrap();
    assert!(looks.0.set(db.clone()).is_ok());
    manager.set_max_allowed_space_usage(150_000);
    table(&db, 0);
    table(&db, 1);
    db.close().unwrap();
    assert_eq!(*looks.1.lock().unwrap(), [false, true]);
}

#[test]
fn dropping_data_makes_room_too() {
    let (env, manager) = (env_of(Arc::new(MemoryFileSystem::new())), SstFileManager::new());
    let options = without_auto_compactions(options(&env, &manager));
    let db = Db::open("/db", &options).unwrap();
    let large = db.create_column_family("large", &options).unwrap();
    db.put_cf(&WriteOptions::default(), &large, "key", vec![1; 100_000]).unwrap();
    db.flush_cfs(&FlushOptions::default(), &[&large]).unwrap();
    manager.set_max_allowed_space_usage(150_000);
    table(&db, 0);
    assert_eq!(db.put("0000", "more").unwrap_err().kind(), ErrorKind::SpaceLimit);
    db.drop_column_family(&large).unwrap();
    drop(large);
    eventually(true, || db.put("0000", value(0)).is_ok());
    assert!(!manager.is_max_allowed_space_reached());
    check(&db, 0);
}

#[test]
fn a_compaction_that_might_pass_the_limit_is_not_begun() {
    let (env, manager) = (env_of(Arc::new(MemoryFileSystem::new())), SstFileManager::new());
    let statistics = Arc::new(Statistics::new(StatsLevel::All));
    let options = options(&env, &manager)
        .statistics(statistics.clone())
        .column_families(|family| family.level0_file_num_compaction_trigger = 2);
    let db = Db::open("/db", &options).unwrap();
    manager.set_max_allowed_space_usage(300_000);
    table(&db, 0);
    table(&db, 1);
    let told = db.wait_for_compact(&WaitForCompactOptions::default());
    assert_eq!(told.unwrap_err().kind(), ErrorKind::SpaceLimit);
    let refused = compact(&db).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::SpaceLimit, "{refused}");
    assert!(statistics.ticker(Ticker::CompactionCancelled) >= 2);
    assert_eq!(db.property("rocksdb.num-files-at-level0").as_deref(), Some("2"));
    assert!(db.background_error().is_none(), "writes go on");
    // A move or a deletion of whole files needs no space.
    db.delete_files_in_ranges(db.default_column_family(), &[], true).unwrap();
    manager.set_max_allowed_space_usage(450_000);
    db.wait_for_compact(&WaitForCompactOptions::default()).unwrap();
    assert_eq!(db.property("rocksdb.num-files-at-level0").as_deref(), Some("0"));
    check(&db, 1);
    eventually(live(&db), || manager.tracked_files());
    // The compaction buffer is reserved in addition.
    manager.set_compaction_buffer_size(400_000);
    table(&db, 2);
    assert_eq!(compact(&db).unwrap_err().kind(), ErrorKind::SpaceLimit);
    manager.set_compaction_buffer_size(0);
    compact(&db).unwrap();
    check(&db, 2);
    assert!(!manager.is_max_allowed_space_reached_including_compactions());
}

/// Writers that wait for a compaction that never begins get an error.
#[test]
fn writers_that_wait_for_such_a_compaction_are_told() {
    let (env, manager) = (env_of(Arc::new(MemoryFileSystem::new())), SstFileManager::new());
    let options =
        options(&env, &manager).stopped_write_timeout(Duration::from_millis(300)).column_families(|family| {
            family.level0_file_num_compaction_trigger = 2;
            family.level0_slowdown_writes_trigger = 2;
            family.level0_stop_writes_trigger = 2;
        });
    let db = Db::open("/db", &options).unwrap();
    manager.set_max_allowed_space_usage(300_000);
    table(&db, 0);
    table(&db, 1);
    eventually(Some(ErrorKind::SpaceLimit), || db.put("0000", "more").err().map(|told| told.kind()));
    manager.set_max_allowed_space_usage(0);
    eventually(true, || db.put("0000", value(100)).is_ok());
    check(&db, 1);
}

/// Listener that lowers the limit once a compaction has begun.
#[derive(Debug)]
struct Shrinks(SstFileManager, AtomicBool);

impl EventListener for Shrinks {
    fn compaction_begun(&self, _: &CompactionInfo) {
        if self.1.swap(false, Ordering::SeqCst) {
            self.0.set_max_allowed_space_usage(self.0.total_size() + 1000);
        }
    }
}

#[test]
fn a_limit_that_is_reached_within_a_compaction_leaves_the_tree_as_it_was() {
    for blobs in [false, true] {
        let files = Arc::new(MemoryFileSystem::new());
        let (env, manager) = (env_of(files.clone()), SstFileManager::new());
        let shrinks = Arc::new(Shrinks(manager.clone(), AtomicBool::new(true)));
        let options = without_auto_compactions(options(&env, &manager))
            .event_listener(shrinks)
            .db(|db| db.max_bgerror_resume_count = 0)
            .column_families(move |family| {
                family.target_file_size_base = 20_000;
                family.enable_blob_files = blobs;
                family.enable_blob_garbage_collection = blobs;
                family.blob_garbage_collection_age_cutoff = 1.0;
            });
        let db = Db::open("/db", &options).unwrap();
        table(&db, 0);
        table(&db, 1);
        let before = live(&db);
        let failed = compact(&db).unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::SpaceLimit, "{failed}");
        let error = db.background_error().expect("it is an error of the database");
        assert_eq!((error.error.kind(), error.severity), (ErrorKind::SpaceLimit, Severity::Hard));
        assert_eq!(db.put("0000", "more").unwrap_err().kind(), ErrorKind::SpaceLimit);
        assert_eq!(live(&db), before);
        eventually(before.clone(), || manager.tracked_files());
        let left = [ending(&*files, ".sst"), ending(&*files, ".blob")].concat();
        assert_eq!(left.len(), before.len(), "{left:?}");
        check(&db, 1);
        manager.set_max_allowed_space_usage(0);
        db.resume().unwrap();
        compact(&db).unwrap();
        check(&db, 1);
        db.close().unwrap();
        let db = Db::open("/db", &options).unwrap();
        check(&db, 1);
    }
}

/// Returns a manager so slow that it removes only the first file.
fn slow() -> SstFileManager {
    let manager = SstFileManager::new();
    manager.set_delete_rate_bytes_per_second(1);
    manager.set_max_trash_db_ratio(100.0);
    manager
}

/// Returns a database with trash.
fn with_trash(env: &Env, manager: &SstFileManager) -> Db {
    let db = Db::open("/db", &without_auto_compactions(options(env, manager))).unwrap();
    (0..3).for_each(|round| table(&db, round));
    compact(&db).unwrap();
    // A job renames them one after the other.
    eventually(live(&db).len(), || ending(env.fs().as_ref(), ".sst").len());
    assert!(ending(env.fs().as_ref(), ".sst.trash").len() >= 2);
    db
}

#[test]
fn obsolete_files_are_trash_first_and_go_by_and_by() {
    let files = Arc::new(MemoryFileSystem::new());
    let (env, manager) = (env_of(files.clone()), slow());
    let db = with_trash(&env, &manager);
    assert!(!ending(&*files, ".log.trash").is_empty(), "logs beside the tables, too");
    assert!(manager.total_trash_size() > 200_000);
    assert!(manager.total_size() > live(&db).values().sum::<u64>() + 200_000, "trash counts");
    // Trash disturbs no other operation.
    check(&db, 2);
    Checkpoint::new(&db).unwrap().create_checkpoint("/copy", 0).unwrap();
    let mut backups = BackupEngine::open(&BackupEngineOptions::new("/backups"), &env).unwrap();
    backups.create_new_backup(&db, &CreateBackupOptions::default()).unwrap();
    let secondary = Db::open_as_secondary("/db", "/secondary", &Options::new().env(env.clone())).unwrap();
    check(&secondary, 2);
    secondary.close().unwrap();
    let copy = Db::open("/copy", &Options::new().env(env.clone())).unwrap();
    check(&copy, 2);
    assert!(files.list_dir(Path::new("/copy")).unwrap().iter().all(|name| !name.ends_with(".trash")));
    // With deletions disabled, files are kept for copying, but existing trash is still removed.
    db.disable_file_deletions().unwrap();
    manager.set_delete_rate_bytes_per_second(0);
    eventually(0, || manager.total_trash_size());
    assert_eq!(ending(&*files, ".trash"), Vec::<String>::new());
    assert_eq!(manager.tracked_files(), live(&db));
}

#[test]
fn trash_goes_on_leaving_when_the_database_is_closed_and_otherwise_at_the_next_opening() {
    let files = Arc::new(MemoryFileSystem::new());
    let (env, manager) = (env_of(files.clone()), slow());
    let db = with_trash(&env, &manager);
    db.close().unwrap();
    drop(db);
    assert!(ending(&*files, ".sst.trash").len() >= 2);
    assert_eq!(manager.tracked_files().len(), ending(&*files, ".sst.trash").len());
    // Files of a killed process: an opening without a manager removes trash at once.
    let killed = Arc::new(files.copy());
    let of_killed = env_of(killed.clone());
    let reader = Db::open_read_only("/db", &Options::new().env(of_killed.clone())).unwrap();
    check(&reader, 2);
    assert!(ending(&*killed, ".sst.trash").len() >= 2, "reading removes nothing");
    drop(reader);
    let db = Db::open("/db", &Options::new().env(of_killed)).unwrap();
    assert_eq!(ending(&*killed, ".trash"), Vec::<String>::new());
    check(&db, 2);
    // With another manager the trash is kept and removed at that manager's rate.
    let killed = Arc::new(files.copy());
    let second = slow();
    let db = Db::open("/db", &without_auto_compactions(options(&env_of(killed.clone()), &second))).unwrap();
    assert!(second.total_trash_size() > 0);
    second.set_delete_rate_bytes_per_second(0);
    eventually(0, || second.total_trash_size());
    assert_eq!(ending(&*killed, ".trash"), Vec::<String>::new());
    check(&db, 2);
    // Repairs a copy, and destroys another one.
    let killed = Arc::new(files.copy());
    let of_killed = Options::new().env(env_of(killed.clone()));
    Db::repair("/db", &of_killed).unwrap();
    check(&Db::open("/db", &of_killed).unwrap(), 2);
    let killed = Arc::new(files.copy());
    Db::destroy("/db", &Options::new().env(env_of(killed.clone()))).unwrap();
    assert!(!killed.exists(Path::new("/db")).unwrap());
    // The first manager still has trash to remove.
    manager.set_delete_rate_bytes_per_second(0);
    // The size of all files does not count logs.
    eventually((0, 0), || (manager.total_size(), manager.total_trash_size()));
    assert_eq!(ending(&*files, ".trash"), Vec::<String>::new());
}

/// A power failure undoes a rename to trash that was not durable: the file has its old name.
#[test]
fn a_file_whose_new_name_is_lost_is_removed_at_the_next_opening() {
    let files = Arc::new(MemoryFileSystem::new());
    let (env, manager) = (env_of(files.clone()), slow());
    let _db = with_trash(&env, &manager);
    let after = Arc::new(files.copy());
    for (count, name) in ending(&*after, ".trash").into_iter().enumerate() {
        let old = name.strip_suffix(".trash").unwrap();
        if count % 2 == 0 {
            after.rename(&Path::new("/db").join(&name), &Path::new("/db").join(old)).unwrap();
        }
    }
    let db = Db::open("/db", &Options::new().env(env_of(after.clone()))).unwrap();
    check(&db, 2);
    eventually(live(&db).len(), || ending(&*after, ".sst").len());
    assert_eq!(ending(&*after, ".trash"), Vec::<String>::new());
    db.close().unwrap();
    assert_eq!(ending(&*after, ".log").len(), 1);
}

/// Storage on which files with one ending can be neither renamed, removed nor changed.
#[derive(Debug, Default)]
struct Stuck(Mutex<Option<&'static str>>);

impl Disturb for Stuck {
    fn read(&self, _: &Path, _: u64, _: usize) -> Option<Disturbance> {
        None
    }
    fn write(&self, path: &Path) -> std::io::Result<()> {
        let stuck = self.0.lock().unwrap().is_some_and(|end| path.to_string_lossy().ends_with(end));
        if stuck { Err(std::io::Error::other("it is stuck")) } else { Ok(()) }
    }
}

#[test]
fn trash_that_cannot_be_removed_is_tried_again_with_the_next() {
    let files = Arc::new(MemoryFileSystem::new());
    let disk = DisturbedFileSystem::new(files.clone(), Stuck::default());
    let env = env_of(Arc::new(disk.clone()));
    let manager = SstFileManager::new();
    manager.set_delete_rate_bytes_per_second(1 << 40);
    manager.set_max_trash_db_ratio(100.0);
    let db = Db::open("/db", &without_auto_compactions(options(&env, &manager))).unwrap();
    (0..3).for_each(|round| table(&db, round));
    *disk.between().0.lock().unwrap() = Some(".sst.trash");
    compact(&db).unwrap();
    eventually(3, || ending(&*files, ".sst.trash").len());
    check(&db, 2);
    assert!(manager.total_size() > live(&db).values().sum(), "they take room still");
    *disk.between().0.lock().unwrap() = None;
    table(&db, 3);
    compact(&db).unwrap();
    eventually(live(&db), || manager.tracked_files());
    eventually(Vec::<String>::new(), || ending(&*files, ".trash"));
    check(&db, 3);
}

#[test]
fn a_file_that_can_be_neither_renamed_nor_removed_is_tried_again() {
    let files = Arc::new(MemoryFileSystem::new());
    let disk = DisturbedFileSystem::new(files.clone(), Stuck::default());
    let env = env_of(Arc::new(disk.clone()));
    let manager = slow();
    let db = Db::open("/db", &without_auto_compactions(options(&env, &manager))).unwrap();
    (0..3).for_each(|round| table(&db, round));
    let old = live(&db);
    let first = old.keys().next().unwrap().file_name().unwrap().to_string_lossy().into_owned();
    *disk.between().0.lock().unwrap() = Some(first.clone().leak());
    compact(&db).unwrap();
    eventually(true, || ending(&*files, ".sst.trash").len() + 1 >= old.len() - 1);
    assert!(ending(&*files, ".sst").contains(&first));
    assert!(manager.tracked_files().contains_key(&Path::new("/db").join(&first)), "it takes room still");
    *disk.between().0.lock().unwrap() = None;
    table(&db, 3);
    compact(&db).unwrap();
    eventually(false, || ending(&*files, ".sst").contains(&first));
    check(&db, 3);
}

#[test]
fn logs_elsewhere_are_removed_at_once() {
    let files = Arc::new(MemoryFileSystem::new());
    let (env, manager) = (env_of(files.clone()), slow());
    let options = without_auto_compactions(options(&env, &manager)).db(|db| db.wal_dir = "/logs".into());
    let db = Db::open("/db", &options).unwrap();
    (0..3).for_each(|round| table(&db, round));
    eventually(true, || {
        let names = files.list_dir(Path::new("/logs")).unwrap();
        names.len() <= 2 && names.iter().all(|name| !name.ends_with(".trash"))
    });
}
