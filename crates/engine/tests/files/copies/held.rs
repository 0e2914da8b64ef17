//! Disabled and enabled file deletions, the locked log, and the list of live files.

use crate::copies::{key, memory, names, options, prefix};
use karst_engine::{
    CompactRangeOptions, DatabaseFileKind, Db, ErrorKind, FlushOptions, LiveFilesStorageInfoOptions, Options,
    WriteOptions,
};
use karst_io::testing::foreign_block_on;
use karst_io::{Env, FileSystem, MemoryFileSystem};
use karst_testkit::eventually;
use std::collections::BTreeSet;
use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

const ENABLED: &str = "rocksdb.is-file-deletions-enabled";

/// Makes files of every kind obsolete.
fn use_up(db: &Db, round: u64) {
    for key in 0..200u64 {
        db.put(key.to_be_bytes(), vec![round as u8; 500]).unwrap();
    }
    db.flush(&FlushOptions::default()).unwrap();
    db.compact_range(&CompactRangeOptions::default(), None::<&[u8]>, None::<&[u8]>).unwrap();
    let size = (60_000 + round).to_string();
    db.set_options(db.default_column_family(), &[("write_buffer_size", &size)]).unwrap();
}

/// Returns the files that the database does not need, as an error.
fn is_tidy(db: &Db, files: &MemoryFileSystem) -> Result<(), Vec<String>> {
    let (live, _) = db.live_file_names();
    let live: BTreeSet<&str> = live.iter().map(|name| name.trim_start_matches('/')).collect();
    let logs = db.log_numbers();
    let mut names = names(files, "/db");
    let mut options = 0;
    names.retain(|name| {
        let log = name.strip_suffix(".log").and_then(|number| number.parse().ok());
        if name.starts_with("OPTIONS-") {
            options += 1;
            return options > 2;
        }
        name != "IDENTITY" && !live.contains(&**name) && !log.is_some_and(|log| logs.contains(&log))
    });
    if names.is_empty() { Ok(()) } else { Err(names) }
}

fn stays_while_held(more: &str) {
    let (env, files) = memory();
    let all = format!(
        "max_manifest_file_size=100;max_manifest_space_amp_pct=0;enable_blob_files=true;min_blob_size=100;\
         enable_blob_garbage_collection=true;blob_garbage_collection_age_cutoff=1.0;{more}"
    );
    let db = Db::open("/db", &options(&env, &all)).unwrap();
    use_up(&db, 0);
    assert_eq!(db.int_property(ENABLED), Some(1));
    db.disable_file_deletions().unwrap();
    foreign_block_on(db.disable_file_deletions_async()).unwrap();
    assert_eq!(db.int_property(ENABLED), Some(0));
    let mut there: BTreeSet<String> = BTreeSet::new();
    let archived = || files.list_dir(Path::new("/db/archive")).unwrap_or_default();
    let archive = archived();
    for round in 1..6 {
        there.extend(names(&*files, "/db"));
        use_up(&db, round);
        let now: BTreeSet<String> = names(&*files, "/db").into_iter().collect();
        let gone: Vec<_> = there.difference(&now).filter(|name| !name.ends_with(".dbtmp")).collect();
        assert!(gone.is_empty(), "{gone:?} went although files are kept");
    }
    assert_eq!(archived(), archive, "logs moved although files are kept");
    for kind in [".sst", ".blob", ".log", "MANIFEST-", "OPTIONS-"] {
        let count = there.iter().filter(|name| name.contains(kind)).count();
        assert!(count > 3, "only {count} files with {kind} came: the test shows nothing");
    }
    db.enable_file_deletions().unwrap();
    assert_eq!(db.int_property(ENABLED), Some(0), "two were asked for");
    use_up(&db, 6);
    assert!(is_tidy(&db, &files).is_err());
    db.enable_file_deletions().unwrap();
    assert_eq!(db.int_property(ENABLED), Some(1));
    if more.is_empty() {
        eventually(Ok(()), || is_tidy(&db, &files));
    } else {
        eventually(false, || names(&*files, "/db").iter().filter(|name| name.ends_with(".sst")).count() > 2);
    }
    if more.contains("WAL_ttl") {
        eventually(true, || archived().len() > archive.len());
    }
    // A surplus call to enable does not cancel a later call to disable.
    db.enable_file_deletions().unwrap();
    db.disable_file_deletions().unwrap();
    assert_eq!(db.int_property(ENABLED), Some(0));
    db.close().unwrap();
    assert_eq!(db.disable_file_deletions().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(db.enable_file_deletions().unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn nothing_is_removed_while_files_are_held_and_everything_due_afterwards() {
    stays_while_held("");
}

#[test]
fn no_log_is_recycled_while_files_are_held() {
    stays_while_held("recycle_log_file_num=3");
}

#[test]
fn no_log_is_archived_while_files_are_held() {
    stays_while_held("WAL_ttl_seconds=100000");
}

/// Files kept at the end are removed when the database is reopened.
#[test]
fn a_database_that_is_closed_while_files_are_held_is_tidied_when_it_is_opened() {
    let (env, files) = memory();
    let db = Db::open("/db", &options(&env, "")).unwrap();
    db.disable_file_deletions().unwrap();
    (0..3).for_each(|round| use_up(&db, round));
    assert!(is_tidy(&db, &files).is_err());
    db.close().unwrap();
    drop(db);
    let db = Db::open("/db", &options(&env, "")).unwrap();
    eventually(Ok(()), || is_tidy(&db, &files));
}

#[test]
fn a_database_open_for_reading_holds_no_files() {
    let (env, _) = memory();
    Db::open("/db", &options(&env, "")).unwrap().close().unwrap();
    let db = Db::open_read_only("/db", &options(&env, "")).unwrap();
    let all = LiveFilesStorageInfoOptions::default();
    for refused in [
        db.disable_file_deletions().unwrap_err(),
        db.enable_file_deletions().unwrap_err(),
        db.lock_wal().unwrap_err(),
        db.unlock_wal().unwrap_err(),
        db.live_files_storage_info(&all).unwrap_err(),
    ] {
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused}");
    }
    assert_eq!(db.int_property(ENABLED), Some(1));
}

/// Copies the live files by the rules of the list, like a user's program.
fn copy_listed_files(db: &Db, files: &MemoryFileSystem, to: &str, info: &LiveFilesStorageInfoOptions) {
    db.disable_file_deletions().unwrap();
    for file in db.live_files_storage_info(info).unwrap() {
        let bytes = match &file.replacement_contents {
            Some(contents) => contents.clone().into_bytes(),
            None => {
                let bytes = files.read_file(&file.path()).unwrap();
                let size = file.size_bytes as usize;
                assert!(bytes.len() == size || file.trim_to_size && bytes.len() > size, "{file:?}");
                bytes[..size].to_vec()
            }
        };
        assert_eq!(bytes.len() as u64, file.size_bytes, "{file:?}");
        files.write_file(&Path::new(to).join(&file.name), bytes).unwrap();
    }
    db.enable_file_deletions().unwrap();
}

fn copies_beside_a_writer(more: &str, unlogged: bool) {
    let (env, files) = memory();
    let all = options(&env, more);
    let db = Db::open_cf("/db", &all, &["default", "second"]).unwrap();
    let second = db.column_family("second").unwrap();
    let (done, end) = (AtomicU64::new(0), AtomicBool::new(false));
    let end = &end;
    let _ends = Ends(end);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let how = WriteOptions { disable_wal: unlogged, ..WriteOptions::default() };
            for number in 0.. {
                let mut batch = karst_engine::WriteBatch::new();
                batch.put(key(number), vec![7; 100]).unwrap();
                batch.put_cf(&second, key(number), vec![8; 300]).unwrap();
                db.write(&how, &batch).unwrap();
                done.store(number + 1, Ordering::Release);
                if end.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let _ends = Ends(end);
        for (round, limit) in [u64::MAX, 0, 30_000, u64::MAX, u64::MAX, 0].into_iter().enumerate() {
            let wanted = done.load(Ordering::Relaxed) + 60;
            eventually(true, || done.load(Ordering::Relaxed) > wanted);
            let limit = if unlogged { 0 } else { limit };
            let before = done.load(Ordering::Acquire);
            let to = format!("/copy{round}");
            copy_listed_files(
                &db,
                &files,
                &to,
                &LiveFilesStorageInfoOptions { wal_size_for_flush: limit, ..Default::default() },
            );
            let copy = Db::open(&to, &options(&env, more)).unwrap();
            let (first, second) = (prefix(&copy, "default"), prefix(&copy, "second"));
            assert!(first == second, "a batch is there in part: {first} and {second} with {more}");
            assert!(first >= before, "{before} were acknowledged, {first} are there with {more}");
            assert!(copy.log_damage().is_none(), "{:?}", copy.log_damage());
            assert!(copy.log_duplicates().is_none(), "{:?}", copy.log_duplicates());
            copy.put("more", "1").unwrap();
            copy.close().unwrap();
        }
    });
}

struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_copy_of_the_live_files_is_a_state_of_the_database() {
    copies_beside_a_writer("", false);
}

#[test]
fn so_it_is_with_unordered_writes_and_mapped_logs() {
    copies_beside_a_writer("unordered_write=true;allow_mmap_writes=true", false);
}

#[test]
fn so_it_is_with_recycled_logs_and_a_recovery_that_bears_no_damage() {
    // Compat: RocksDB refuses this mode with recycled logs.
    copies_beside_a_writer("recycle_log_file_num=3;wal_compression=kZSTD", false);
    copies_beside_a_writer("wal_recovery_mode=kAbsoluteConsistency;track_and_verify_wals=true", false);
}

#[test]
fn so_it_is_with_tracked_logs_and_small_manifests() {
    copies_beside_a_writer(
        "track_and_verify_wals_in_manifest=true;max_manifest_file_size=500;max_manifest_space_amp_pct=0",
        false,
    );
}

#[test]
fn so_it_is_with_logs_that_are_flushed_manually() {
    copies_beside_a_writer("manual_wal_flush=true", false);
}

#[test]
fn so_it_is_without_logs_where_families_are_flushed_together() {
    copies_beside_a_writer("atomic_flush=true", true);
}

#[test]
fn the_list_says_what_each_file_is() {
    let (env, files) = memory();
    let all = options(&env, "file_checksum_gen_factory=FileChecksumGenCrc32cFactory;enable_blob_files=true");
    let db = Db::open("/db", &all.db(|db| db.wal_dir = "/logs".into())).unwrap();
    db.put("key", vec![1; 1000]).unwrap();
    db.flush(&FlushOptions::default()).unwrap();
    db.put("other", vec![1; 1000]).unwrap();
    let none = LiveFilesStorageInfoOptions { wal_size_for_flush: u64::MAX, ..Default::default() };
    let list = db.live_files_storage_info(&none).unwrap();
    let kinds: Vec<_> = list.iter().map(|file| file.kind).collect();
    use DatabaseFileKind::{Blob, Current, Manifest, Table, Wal};
    assert_eq!(kinds, [Table, Blob, Manifest, Current, DatabaseFileKind::Options, Wal]);
    for file in &list {
        let trims = matches!(file.kind, Manifest | Wal);
        assert_eq!(file.trim_to_size, trims, "{file:?}");
        assert_eq!(file.directory, Path::new(if file.kind == Wal { "/logs" } else { "/db" }));
        assert!(file.checksum.is_none() && files.exists(&file.path()).unwrap(), "{file:?}");
        assert_eq!(file.replacement_contents.is_some(), file.kind == Current);
    }
    let with = LiveFilesStorageInfoOptions {
        include_checksum_info: true,
        wal_size_for_flush: 1_000_000,
        ..Default::default()
    };
    let table = db.live_files_storage_info(&with).unwrap().remove(0);
    let (value, function) = table.checksum.clone().unwrap();
    assert_eq!((value.len(), &*function), (4, "FileChecksumCrc32c"));
    let flushes = LiveFilesStorageInfoOptions { wal_size_for_flush: 500, ..Default::default() };
    let list = db.live_files_storage_info(&flushes).unwrap();
    assert_eq!(list.iter().filter(|file| file.kind == Table).count(), 2, "the log was longer");
}

#[test]
fn a_locked_log_holds_writers_up_and_is_seen_whole() {
    let (env, _) = memory();
    let db = Db::open("/db", &options(&env, "manual_wal_flush=true")).unwrap();
    assert_eq!(db.unlock_wal().unwrap_err().kind(), ErrorKind::InvalidArgument);
    db.put("before", "1").unwrap();
    db.lock_wal().unwrap();
    foreign_block_on(db.lock_wal_async()).unwrap();
    // Acknowledged writes have been written to the file.
    assert_eq!(
        Db::open_read_only("/db", &options(&env, "")).unwrap().get("before").unwrap().as_deref(),
        Some(&b"1"[..])
    );
    let now = WriteOptions { no_slowdown: true, ..WriteOptions::default() };
    assert_eq!(db.put_opt(&now, "no", "1").unwrap_err().kind(), ErrorKind::Incomplete);
    let seq = db.latest_sequence_number();
    let threads: Vec<_> = (0..3)
        .map(|number| {
            let db = db.clone();
            std::thread::spawn(move || db.put(format!("waits{number}"), "1"))
        })
        .collect();
    std::thread::sleep(Duration::from_millis(50));
    db.flush(&FlushOptions::default()).unwrap();
    db.unlock_wal().unwrap();
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(db.latest_sequence_number(), seq, "it was locked twice");
    assert!(threads.iter().all(|thread| !thread.is_finished()));
    db.unlock_wal().unwrap();
    threads.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
    assert_eq!(db.latest_sequence_number(), seq + 3);
    // A lock call that is dropped does not count.
    {
        let mut given_up = pin!(db.lock_wal_async());
        db.lock_wal().unwrap();
        let _ = given_up.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        db.unlock_wal().unwrap();
    }
    drop(db.unlock_wal());
    db.put("after", "1").unwrap();
    // Closing fails writers that wait for the log.
    db.lock_wal().unwrap();
    let waits = {
        let db = db.clone();
        std::thread::spawn(move || db.put("late", "1"))
    };
    std::thread::sleep(Duration::from_millis(50));
    db.close().unwrap();
    assert_eq!(waits.join().unwrap().unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn a_log_that_failed_is_not_locked() {
    let files = Arc::new(MemoryFileSystem::new());
    let disk = karst_io::DisturbedFileSystem::new(files, Loses::default());
    let env = Env::builder().file_system(Arc::new(disk.clone())).build();
    let all =
        Options::new().env(env).db(|db| (db.create_if_missing, db.max_bgerror_resume_count) = (true, 0));
    let db = Db::open("/db", &all).unwrap();
    disk.between().0.store(true, Ordering::Relaxed);
    drop(db.put("key", "value"));
    assert!(db.lock_wal().is_err());
    disk.between().0.store(false, Ordering::Relaxed);
    db.resume().unwrap();
    db.put("key", "value").unwrap();
}

/// Storage that refuses all writes to logs while the flag is set.
#[derive(Debug, Default)]
struct Loses(AtomicBool);

impl karst_io::Disturb for Loses {
    fn read(&self, _: &Path, _: u64, _: usize) -> Option<karst_io::Disturbance> {
        None
    }
    fn write(&self, path: &Path) -> std::io::Result<()> {
        let lost = self.0.load(Ordering::Relaxed) && path.extension().is_some_and(|end| end == "log");
        if lost { Err(std::io::Error::other("it is lost")) } else { Ok(()) }
    }
}
