//! A process that is forked while a database is open: its calls return errors, its drops wait for
//! nothing, and the parent is not affected.
//!
//! A single test, so that the process has no threads other than the database's.

use karst_engine::io::testing::foreign_block_on;
use karst_engine::io::{Disturb, Disturbance, DisturbedFileSystem, Env, MemoryFileSystem};
use karst_engine::{
    ColumnFamily, Db, DbIterator, ErrorKind, FlushOptions, IngestExternalFileOptions, Options, ReadOptions,
    Result, Snapshot, SstFileWriter, WriteOptions,
};
use karst_testkit::eventually;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Objects that the child has inherited.
struct Inherited {
    db: Db,
    for_reading: Db,
    iter: DbIterator,
    /// Iterator over a version that the parent has replaced since, so that only this iterator holds
    /// its files.
    old: DbIterator,
    snapshot: Snapshot,
    family: ColumnFamily,
}

fn refused<T>(what: &str, outcome: Result<T>) -> Result<(), String> {
    match outcome {
        Err(error) if error.kind() == ErrorKind::Closed && error.to_string().contains("forked") => Ok(()),
        Err(error) => Err(format!("{what}: {error}")),
        Ok(_) => Err(format!("{what} went well")),
    }
}

fn in_child(inherited: Inherited) -> Result<(), String> {
    let Inherited { db, for_reading, mut iter, mut old, snapshot, family } = inherited;
    refused("put", db.put("key", "of the child"))?;
    refused("put_cf", db.put_cf(&WriteOptions::unlogged(), &family, "key", "of the child"))?;
    refused("put_async", foreign_block_on(db.put_async(b"key", b"of the child")))?;
    refused("get", db.get("key"))?;
    let then = ReadOptions { snapshot: Some(snapshot), ..ReadOptions::new() };
    refused("get_opt", db.get_opt(&then, "key"))?;
    refused("iter", db.iter(&ReadOptions::new()))?;
    refused("seek", iter.seek("key"))?;
    refused("next", old.next())?;
    refused("flush", db.flush(&FlushOptions::default()))?;
    refused("set_options", db.set_options(&family, &[("write_buffer_size", "1234567")]))?;
    refused("create_column_family", db.create_column_family("new", &Options::new()))?;
    refused("close", db.close())?;
    if db.property("rocksdb.stats").is_some() {
        return Err("there is a property".into());
    }
    if for_reading.get("000").map_err(|e| e.to_string())?.as_deref() != Some(b"value") {
        return Err("a database that is open for reading only cannot be read".into());
    }
    drop((iter, old, then, family));
    drop((for_reading, db));
    // Time for background work that these drops could have caused.
    std::thread::sleep(Duration::from_millis(100));
    Ok(())
}

/// Runs `child` in a child of this process and returns its wait status: a signal if it hangs.
///
/// A hang does not panic, because threads that the caller blocks would then never be released.
fn forked(child: impl FnOnce() -> Result<(), String>) -> i32 {
    // SAFETY: the child allocates memory after the fork, which glibc supports, and leaves by
    // `_exit`.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
        let outcome = caught.unwrap_or_else(|_| Err("it panicked".into()));
        if let Err(text) = &outcome {
            let _ = writeln!(std::io::stderr(), "in the child: {text}");
        }
        // SAFETY: ends the child without running the parent's destructors.
        unsafe { libc::_exit(i32::from(outcome.is_err())) };
    }
    let end = Instant::now() + Duration::from_secs(300);
    let mut status = 0;
    loop {
        // SAFETY: waits for a child of this process.
        match unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) } {
            0 if Instant::now() > end => {
                // SAFETY: the child has not been waited for, so the number is its own.
                unsafe { libc::kill(pid, libc::SIGKILL) };
                std::thread::sleep(Duration::from_millis(5));
            }
            0 => std::thread::sleep(Duration::from_millis(5)),
            found => {
                assert_eq!(found, pid);
                return status;
            }
        }
    }
}

/// Blocks the next write to the MANIFEST.
#[derive(Debug)]
struct HeldUp {
    armed: AtomicBool,
    /// Name of the current MANIFEST; the previous one may be removed meanwhile.
    manifest: Mutex<String>,
    told: SyncSender<()>,
    go_on: Mutex<Receiver<()>>,
}

impl Disturb for HeldUp {
    fn read(&self, _: &Path, _: u64, _: usize) -> Option<Disturbance> {
        None
    }

    fn write(&self, path: &Path) -> std::io::Result<()> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if *name == **self.manifest.lock().unwrap() && self.armed.swap(false, Ordering::SeqCst) {
            self.told.send(()).unwrap();
            // An error is ignored, because the sender is dropped when the test fails.
            let _ = self.go_on.lock().unwrap().recv();
        }
        Ok(())
    }
}

/// Forks while the parent blocks snapshots; in the child nothing will ever unblock them.
fn a_child_takes_snapshots_whatever_the_parent_was_doing() {
    let ((told, tells), (release, go_on)) = (sync_channel(1), sync_channel(1));
    let held_up =
        HeldUp { armed: AtomicBool::new(false), manifest: Mutex::default(), told, go_on: Mutex::new(go_on) };
    let files = DisturbedFileSystem::new(Arc::new(MemoryFileSystem::new()), held_up);
    let held_up = files.between().clone();
    let env = Env::builder().file_system(Arc::new(files)).build();
    let options = Options::new().env(env).db(|db| db.create_if_missing = true);
    let db = Db::open("/db", &options).unwrap();
    let mut writer = SstFileWriter::create(&options).unwrap();
    writer.open("/file.sst").unwrap();
    writer.put("key", "ingested").unwrap();
    writer.finish().unwrap();
    // From here on, only the ingestion writes to the MANIFEST.
    db.put("written", "before").unwrap();
    db.flush(&FlushOptions::default()).unwrap();
    db.wait_for_compact(&Default::default()).unwrap();
    let (names, _) = db.live_file_names();
    *held_up.manifest.lock().unwrap() = names.into_iter().find(|name| name.starts_with("MANIFEST")).unwrap();
    let unnumbered = IngestExternalFileOptions { allow_global_seqno: false, ..Default::default() };
    std::thread::scope(|scope| {
        held_up.armed.store(true, Ordering::SeqCst);
        let ingesting = scope.spawn(|| db.ingest_external_file(&unnumbered, ["/file.sst"]));
        tells.recv().unwrap();
        let status = forked(|| {
            let then = ReadOptions { snapshot: Some(db.snapshot()), ..ReadOptions::new() };
            refused("get_opt", db.get_opt(&then, "key"))
        });
        release.send(()).unwrap();
        ingesting.join().unwrap().unwrap();
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "the child failed: {status:#x}");
    });
    let then = ReadOptions { snapshot: Some(db.snapshot()), ..ReadOptions::new() };
    assert_eq!(db.get_opt(&then, "key").unwrap().as_deref(), Some(&b"ingested"[..]));
    db.close().unwrap();
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    names
}

#[test]
fn the_child_of_a_fork_is_refused_and_leaves_everything_to_its_parent() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::new().db(|db| db.create_if_missing = true);
    let db = Db::open(directory.path(), &options).unwrap();
    let fill = || {
        (0..100).for_each(|n| db.put(format!("{n:03}"), "value").unwrap());
        db.flush(&FlushOptions::default()).unwrap();
    };
    fill();
    let at_first = || {
        let mut iter = db.iter(&ReadOptions::new()).unwrap();
        iter.seek_to_first().unwrap();
        iter
    };
    let old = at_first();
    fill();
    db.compact_range(&Default::default(), None, None).unwrap();
    db.put("key", "of the parent").unwrap();
    let inherited = || Inherited {
        db: db.clone(),
        for_reading: Db::open_read_only(directory.path(), &options).unwrap(),
        iter: at_first(),
        old: db.iter(&ReadOptions::new()).unwrap(),
        snapshot: db.snapshot(),
        family: db.default_column_family().clone(),
    };
    let inherited = Inherited { old, ..inherited() };
    let count = |ending: &str| names(directory.path()).iter().filter(|name| name.ends_with(ending)).count();
    // Files replaced by the flushes and the compaction are gone, except for those that are being
    // read.
    eventually([2, 1, 0], || [".sst", ".log", ".dbtmp"].map(count));
    let before = names(directory.path());
    // The child's only handles, so that it drops the last ones.
    let handles = (inherited, db);
    let handles = std::cell::Cell::new(Some(handles));
    let take = || handles.take().unwrap();
    let status = forked(|| {
        let (inherited, db) = take();
        drop(db);
        in_child(inherited)
    });
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "the child failed: {status:#x}");

    let (mut inherited, db) = take();
    assert_eq!(names(directory.path()), before, "the child has changed the directory");
    let elsewhere = Db::open(directory.path(), &options).unwrap_err();
    assert!(elsewhere.to_string().contains("open elsewhere"), "{elsewhere}");
    let mut found = 0;
    // The parent can still read the iterator that the child has dropped.
    while inherited.old.valid() {
        assert_eq!(inherited.old.value(), b"value");
        inherited.old.next().unwrap();
        found += 1;
    }
    assert_eq!(found, 100);
    db.put("more", "of the parent").unwrap();
    db.flush(&FlushOptions::default()).unwrap();
    drop(inherited);
    db.close().unwrap();
    let db = Db::open(directory.path(), &options).unwrap();
    for key in ["key", "more"] {
        assert_eq!(db.get(key).unwrap().as_deref(), Some(&b"of the parent"[..]));
    }
    db.close().unwrap();
    a_child_takes_snapshots_whatever_the_parent_was_doing();
}
