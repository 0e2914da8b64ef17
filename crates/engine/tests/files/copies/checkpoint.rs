//! Checkpoints: their content, refused calls, and cleaning up after failures.

use crate::copies::{entries, key, memory, names, options, prefix};
use karst_engine::{
    Checkpoint, CompactRangeOptions, Db, ErrorKind, FlushOptions, Options, WriteBatch, WriteOptions,
};
use karst_io::testing::{foreign_block_on, in_steps, poll_times};
use karst_io::{Disturb, Disturbance, DisturbedFileSystem, Env, FileSystem, MemoryFileSystem};
use karst_testkit::eventually;
use karst_testkit::rocksdb_tools::{ldb, ldb_scan};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Returns a database with tables, blob files and a log.
fn filled(env: &Env, more: &str) -> Db {
    let all = options(env, &format!("enable_blob_files=true;min_blob_size=200;{more}"));
    let db = Db::open_cf("/db", &all, &["default", "second"]).unwrap();
    let second = db.column_family("second").unwrap();
    for number in 0..300 {
        db.put(key(number), vec![1; 100]).unwrap();
        db.put_cf(&WriteOptions::default(), &second, key(number), vec![2; 300]).unwrap();
        if number == 200 {
            db.flush_cfs(&FlushOptions::default(), &[db.default_column_family(), &second]).unwrap();
        }
    }
    db
}

fn is_whole(env: &Env, path: &str, more: &str) {
    let copy = Db::open(path, &options(env, more)).unwrap();
    assert_eq!((prefix(&copy, "default"), prefix(&copy, "second")), (300, 300));
    copy.put("zzz", "goes on").unwrap();
    copy.flush(&FlushOptions::default()).unwrap();
    copy.close().unwrap();
    // The copy was closed; reopening it finds equal entries.
    let copy = Db::open(path, &options(env, more)).unwrap();
    assert_eq!(entries(&copy, "default").len(), 301);
}

#[test]
fn a_checkpoint_is_a_database_of_its_own() {
    let (env, files) = memory();
    let db = filled(&env, "");
    for (to, limit) in [("/flushed", 0), ("/logged", u64::MAX), ("/short", 1_000_000)] {
        Checkpoint::new(&db).unwrap().create_checkpoint(to, limit).unwrap();
        assert!(!files.exists(Path::new(&format!("{to}.tmp"))).unwrap());
    }
    // The original continues and removes files that the copies still have.
    db.delete_range(key(0), key(300)).unwrap();
    db.compact_range(&CompactRangeOptions::default(), None::<&[u8]>, None::<&[u8]>).unwrap();
    assert_eq!(db.int_property("rocksdb.is-file-deletions-enabled"), Some(1));
    let tables = |names: Vec<String>| names.iter().filter(|name| name.ends_with(".sst")).count();
    let live = || tables(db.live_files().into_iter().map(|file| file.name).collect());
    eventually(true, || tables(names(&*files, "/db")) == live());
    db.close().unwrap();
    Db::destroy("/db", &options(&env, "")).unwrap();
    for to in ["/flushed", "/logged", "/short"] {
        is_whole(&env, to, "");
    }
}

#[test]
fn what_cannot_be_made_is_refused_and_leaves_nothing() {
    let (env, files) = memory();
    let db = filled(&env, "");
    let checkpoint = Checkpoint::new(&db).unwrap();
    let tables = || db.live_files().len();
    let before = tables();
    for (to, kind) in [
        ("/db", ErrorKind::InvalidArgument),
        ("/missing/copy", ErrorKind::NotFound),
        ("/", ErrorKind::InvalidArgument),
        ("/db/CURRENT/copy", ErrorKind::InvalidArgument),
    ] {
        let refused = checkpoint.create_checkpoint(to, u64::MAX).unwrap_err();
        assert_eq!(refused.kind(), kind, "{to}: {refused}");
    }
    assert_eq!(checkpoint.create_checkpoint("/db", 0).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(tables(), before, "flushed for what is refused");
    assert_eq!(files.list_dir(Path::new("/")).unwrap(), ["db"]);
    // An unfinished checkpoint is replaced; other files are left alone and refused.
    files.write_file(Path::new("/copy.tmp/000007.sst"), vec![1]).unwrap();
    files.write_file(Path::new("/copy.tmp/CURRENT"), vec![1]).unwrap();
    for lock in ["", "karstdb.unfinished\n/another"] {
        files.write_file(Path::new("/copy.tmp/LOCK"), lock.into()).unwrap();
        let refused = checkpoint.create_checkpoint("/copy", 0).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused}");
        assert!(files.exists(Path::new("/copy.tmp/000007.sst")).unwrap(), "it may be a database's");
    }
    files.write_file(Path::new("/copy.tmp/LOCK"), "karstdb.unfinished\n/copy".into()).unwrap();
    checkpoint.create_checkpoint("/copy", 0).unwrap();
    assert_eq!(files.read_file(Path::new("/copy/LOCK")).unwrap(), b"");
    assert!(!files.exists(Path::new("/copy/000007.sst")).unwrap());
    is_whole(&env, "/copy", "");
    files.write_file(Path::new("/mine.tmp/diary.txt"), vec![1]).unwrap();
    let refused = checkpoint.create_checkpoint("/mine", 0).unwrap_err();
    assert!(refused.to_string().contains("diary.txt"), "{refused}");
    assert_eq!(files.list_dir(Path::new("/mine.tmp")).unwrap(), ["diary.txt"]);
    assert!(!files.exists(Path::new("/mine")).unwrap());
    // Two checkpoints of one name exclude each other.
    let lock = files.clone();
    files.create_dir(Path::new("/busy.tmp")).unwrap();
    let held = lock.lock(Path::new("/busy.tmp/LOCK")).unwrap();
    assert_eq!(checkpoint.create_checkpoint("/busy", 0).unwrap_err().kind(), ErrorKind::Locked);
    drop(held);
    checkpoint.create_checkpoint("/busy", 0).unwrap();
    db.close().unwrap();
    assert_eq!(checkpoint.create_checkpoint("/late", 0).unwrap_err().kind(), ErrorKind::Closed);
    assert!(Checkpoint::new(&db).is_err());
}

/// Lets a number of changes in the copy succeed, then fails one; or fails all links.
#[derive(Debug, Default)]
struct Failing {
    /// Changes before the failure; below 0 no change fails.
    left: AtomicI64,
    no_links: AtomicU64,
    links: AtomicU64,
}

impl Failing {
    fn after(changes: i64) -> Failing {
        Failing { left: AtomicI64::new(changes), ..Failing::default() }
    }
}

impl Disturb for Failing {
    fn read(&self, _: &Path, _: u64, _: usize) -> Option<Disturbance> {
        None
    }
    fn write(&self, path: &Path) -> io::Result<()> {
        let copy = path.starts_with("/copy") || path.starts_with("/copy.tmp") || path == Path::new("/");
        if !copy || self.left.load(Ordering::Relaxed) < 0 {
            return Ok(());
        }
        match self.left.fetch_sub(1, Ordering::Relaxed) {
            // Later changes succeed, so that the unfinished copy can be removed.
            0 => Err(io::Error::other("the disk fails")),
            _ => Ok(()),
        }
    }
    fn link(&self, _: &Path, to: &Path) -> io::Result<()> {
        self.links.fetch_add(1, Ordering::Relaxed);
        match self.no_links.load(Ordering::Relaxed) {
            0 => self.write(to),
            code => Err(io::Error::from_raw_os_error(code as i32)),
        }
    }
}

#[test]
fn whatever_fails_leaves_nothing_behind() {
    for changes in 0.. {
        let files = Arc::new(MemoryFileSystem::new());
        let disk = DisturbedFileSystem::new(files.clone(), Failing::after(-1));
        let env = Env::builder().file_system(Arc::new(disk.clone())).build();
        let db = filled(&env, "");
        disk.between().left.store(changes, Ordering::Relaxed);
        let made = Checkpoint::new(&db).unwrap().create_checkpoint("/copy", u64::MAX);
        disk.between().left.store(-1, Ordering::Relaxed);
        if made.is_ok() {
            assert!(changes > 15, "only {changes} changes were tried");
            is_whole(&env, "/copy", "");
            return;
        }
        let told = made.unwrap_err().to_string();
        assert!(told.contains("/copy") && told.contains("the disk fails"), "{told}");
        assert_eq!(files.list_dir(Path::new("/")).unwrap(), ["db"], "after {changes} changes");
        // The database is unchanged, and file deletions are enabled again.
        assert_eq!((prefix(&db, "default"), prefix(&db, "second")), (300, 300));
        assert_eq!(db.int_property("rocksdb.is-file-deletions-enabled"), Some(1));
        Checkpoint::new(&db).unwrap().create_checkpoint("/copy", u64::MAX).unwrap();
        db.close().unwrap();
        is_whole(&env, "/copy", "");
    }
}

#[test]
fn where_there_are_no_links_files_are_copied() {
    for code in [libc::EXDEV, libc::EPERM, libc::EMLINK, libc::EOPNOTSUPP] {
        let files = Arc::new(MemoryFileSystem::new());
        let disk = DisturbedFileSystem::new(files.clone(), Failing::after(-1));
        let env = Env::builder().file_system(Arc::new(disk.clone())).build();
        let db = filled(&env, "");
        disk.between().no_links.store(code as u64, Ordering::Relaxed);
        Checkpoint::new(&db).unwrap().create_checkpoint("/copy", 0).unwrap();
        assert!(disk.between().links.load(Ordering::Relaxed) > 0, "nothing was to be linked");
        db.close().unwrap();
        is_whole(&env, "/copy", "");
    }
}

/// The future is dropped after each of its polls in turn.
#[test]
fn one_that_is_given_up_is_whole_or_not_there() {
    let (env, files) = memory();
    let db = filled(&env, "");
    let mut given_up = 0;
    for polls in 0..1_000 {
        let checkpoint = Checkpoint::new(&db).unwrap();
        let made = {
            let making = checkpoint.create_checkpoint_async(Path::new("/copy"), u64::MAX);
            let mut making = Box::pin(in_steps(&env, making));
            foreign_block_on(poll_times(making.as_mut(), polls))
        };
        given_up += u64::from(made.is_none());
        eventually(Some(1), || db.int_property("rocksdb.is-file-deletions-enabled"));
        assert!(!files.exists(Path::new("/copy.tmp")).unwrap(), "after {polls} polls");
        if files.exists(Path::new("/copy")).unwrap() {
            is_whole(&env, "/copy", "");
            Db::destroy("/copy", &options(&env, "")).unwrap();
            assert!(!files.exists(Path::new("/copy")).unwrap());
        }
        if let Some(made) = made {
            made.unwrap();
            break;
        }
    }
    assert!(given_up > 0, "it was never given up");
}

/// A copy whose `wal_dir` named the original's directory would replay these logs and write there.
#[test]
fn a_checkpoint_has_its_logs_in_its_own_directory() {
    let (env, files) = memory();
    let all = options(&env, "").db(|db| db.wal_dir = "/logs".into());
    let db = Db::open("/db", &all).unwrap();
    db.put("before", "1").unwrap();
    Checkpoint::new(&db).unwrap().create_checkpoint("/copy", u64::MAX).unwrap();
    db.put("after", "1").unwrap();
    assert!(names(&*files, "/copy").iter().any(|name| name.ends_with(".log")));
    let logs = names(&*files, "/logs");
    let copy = Db::open("/copy", &Options::new().env(env.clone())).unwrap();
    assert_eq!(copy.options().wal_dir, "");
    assert_eq!(entries(&copy, "default").len(), 1);
    copy.put("copy", "1").unwrap();
    assert_eq!(names(&*files, "/logs"), logs);
    copy.close().unwrap();
    db.close().unwrap();
    drop((db, copy));
    let db = Db::open("/db", &Options::new().env(env)).unwrap();
    assert_eq!(entries(&db, "default").len(), 2);
}

/// A checkpoint that flushes includes unlogged writes, with all families of a batch.
#[test]
fn what_was_not_logged_is_flushed_or_missing() {
    let (env, _) = memory();
    let db = Db::open("/db", &options(&env, "")).unwrap();
    db.put("logged", "1").unwrap();
    db.put_opt(&WriteOptions::unlogged(), "unlogged", "1").unwrap();
    Checkpoint::new(&db).unwrap().create_checkpoint("/without", u64::MAX).unwrap();
    Checkpoint::new(&db).unwrap().create_checkpoint("/with", 0).unwrap();
    for (to, count) in [("/without", 1), ("/with", 2)] {
        assert_eq!(entries(&Db::open(to, &options(&env, "")).unwrap(), "default").len(), count, "{to}");
    }
}

/// On a disk, where a table is one file with two names. RocksDB's tool opens the copy.
#[test]
fn rocksdb_opens_a_checkpoint() {
    use std::os::unix::fs::MetadataExt;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let all = Options::new().db(|db| db.create_if_missing = true).set("format_version", "5").unwrap();
    let db = Db::open(&path, &all).unwrap();
    for number in 0..1000 {
        db.put(key(number), "value").unwrap();
        if number == 500 {
            db.flush(&FlushOptions::default()).unwrap();
        }
    }
    for (name, limit) in [("flushed", 0), ("logged", u64::MAX)] {
        let copy = directory.path().join(name);
        Checkpoint::new(&db).unwrap().create_checkpoint(&copy, limit).unwrap();
        let table = db.live_files().into_iter().next().unwrap();
        let inode = |at: &Path| std::fs::metadata(at.join(&table.name)).unwrap().ino();
        assert_eq!(inode(&path), inode(&copy), "it is a hard link");
        assert_eq!(ldb_scan(&copy, "default").unwrap().len(), 1000);
        ldb(&copy, &["put", "more", "1"], b"").unwrap();
        ldb(&copy, &["checkconsistency"], b"").unwrap();
        let copy = Db::open(&copy, &Options::new()).unwrap();
        assert_eq!(entries(&copy, "default").len(), 1001);
    }
}

/// A batch to a family that is created during the copy is in the copy completely or not at all.
#[test]
fn no_batch_is_torn_by_a_family_that_comes() {
    let (env, _) = memory();
    let all = options(&env, "");
    let db = Db::open("/db", &all).unwrap();
    db.put("key", "1").unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..400 {
                let name = format!("f{number:03}");
                let family = db.create_column_family(&name, &all).unwrap();
                let mut batch = WriteBatch::new();
                batch.put(&name, "1").unwrap();
                batch.put_cf(&family, &name, "1").unwrap();
                db.write(&WriteOptions::default(), &batch).unwrap();
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let mut copies = 0;
        while !done.load(std::sync::atomic::Ordering::Relaxed) {
            let to = format!("/copy{copies}");
            copies += 1;
            Checkpoint::new(&db).unwrap().create_checkpoint(&to, u64::MAX).unwrap();
            let copy = Db::open_read_only(&to, &all).unwrap();
            for entry in copy.prefix("f").unwrap() {
                let (name, _) = entry.unwrap();
                let text = std::str::from_utf8(&name).unwrap();
                let whole = copy.cf(text).and_then(|family| family.get(&name));
                assert!(whole.is_ok_and(|value| value.is_some()), "{to}: {text}");
            }
        }
        assert!(copies > 1, "{copies} copies");
    });
}
