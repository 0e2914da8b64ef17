//! Manual flushes with options, and waits for the work that follows them.

use super::{all_of, memory, options};
use karst_engine::io::{Disturb, Disturbance, DisturbedFileSystem, Env, MemoryFileSystem, Priority};
use karst_engine::{
    Db, ErrorKind, EventListener, FlushInfo, FlushOptions, Options, WaitForCompactOptions, WriteBatch,
    WriteOptions,
};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

const TOGETHER: fn() -> FlushOptions =
    || FlushOptions { force_atomic_flush: true, ..FlushOptions::default() };

/// Storage that refuses writes to tables after the first `most` of them.
#[derive(Debug)]
struct Tables {
    most: usize,
    seen: Mutex<BTreeSet<PathBuf>>,
}

impl Disturb for Tables {
    fn read(&self, _: &Path, _: u64, _: usize) -> Option<Disturbance> {
        None
    }
    fn write(&self, path: &Path) -> std::io::Result<()> {
        let mut seen = self.seen.lock().unwrap();
        if path.extension().is_some_and(|found| found == "sst") {
            seen.insert(path.to_owned());
            if seen.len() > self.most {
                return Err(std::io::Error::other("there are enough tables"));
            }
        }
        Ok(())
    }
}

#[test]
fn families_are_flushed_in_one_change_if_that_is_asked_for() {
    for together in [true, false] {
        let disk = DisturbedFileSystem::new(
            Arc::new(MemoryFileSystem::new()),
            Tables { most: 1, seen: Mutex::default() },
        );
        let env = Env::builder().file_system(Arc::new(disk)).build();
        let options = options(&env).db(|db| {
            db.create_if_missing = true;
            db.max_bgerror_resume_count = 0;
        });
        let db = Db::open("/db", &options).unwrap();
        let other = db.create_column_family("other", &options).unwrap();
        db.put("k", "v").unwrap();
        db.put_cf(&WriteOptions::default(), &other, "k", "v").unwrap();
        let families = [db.default_column_family(), &other];
        let how = FlushOptions { force_atomic_flush: together, ..FlushOptions::default() };
        let error = db.flush_cfs(&how, &families).unwrap_err();
        assert!(error.to_string().contains("enough tables"), "{error}");
        // Without an atomic flush, one table is installed.
        assert_eq!(db.live_files().len(), usize::from(!together));
    }
}

/// Number of batches that a writer may be ahead of the flushes.
const AHEAD: u64 = 1_000;

/// A crash leaves equal entries in both families, although no log has any of them.
#[test]
fn what_is_flushed_together_is_of_one_moment_beside_writers() {
    let files = Arc::new(MemoryFileSystem::new());
    let env = Env::builder().file_system(files.clone()).build();
    let options = Options::new().env(env.clone()).db(|db| db.create_if_missing = true);
    let db = Db::open("/db", &options).unwrap();
    let other = db.create_column_family("other", &options).unwrap();
    let (ended, written, flushed) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let copies = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let unlogged = WriteOptions { disable_wal: true, ..WriteOptions::default() };
            for number in 0_u64.. {
                let mut batch = WriteBatch::new();
                batch.put(format!("{number:06}"), "v").unwrap();
                batch.put_cf(&other, format!("{number:06}"), "v").unwrap();
                db.write(&unlogged, &batch).unwrap();
                written.store(number + 1, Ordering::Relaxed);
                // Not far ahead, because all copies are read afterwards, and would be the larger
                // the longer a flush takes on this machine.
                while number > flushed.load(Ordering::Relaxed) + AHEAD && !ended.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
                if ended.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let flusher = scope.spawn(|| {
            let mut copies = Vec::new();
            for round in 0..40 {
                while written.load(Ordering::Relaxed) == flushed.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
                flushed.store(written.load(Ordering::Relaxed), Ordering::Relaxed);
                let wait = round % 3 != 0;
                let how = FlushOptions { wait, ..TOGETHER() };
                db.flush_cfs(&how, &[db.default_column_family(), &other]).unwrap();
                // Copies here too, because the other thread may get no processor between two
                // flushes.
                if round % 9 == 4 {
                    copies.push(files.copy());
                }
            }
            // An atomic flush does not block later flushes of one family.
            db.flush(&FlushOptions::default()).unwrap();
            ended.store(true, Ordering::Relaxed);
            copies
        });
        let (mut copies, mut pause) = (Vec::new(), Duration::from_millis(1));
        while !ended.load(Ordering::Relaxed) {
            copies.push(files.copy());
            if copies.len() == 80 {
                // Every other copy is dropped, because the duration of the flushes is unknown.
                let mut number = 0;
                copies.retain(|_| {
                    number += 1;
                    number % 2 == 0
                });
                pause *= 2;
            }
            std::thread::sleep(pause);
        }
        writer.join().unwrap();
        let mut all = flusher.join().unwrap();
        all.append(&mut copies);
        all
    });
    let mut found = BTreeSet::new();
    for copy in copies {
        let env = Env::builder().file_system(Arc::new(copy)).build();
        let options = options.clone().env(env);
        let db = Db::open("/db", &options).unwrap();
        let [first, second] = ["default", "other"].map(|family| all_of(&db, family).len());
        // The last flush was of the default family alone.
        if first != second {
            assert!(first > second && found.iter().all(|count| *count <= second));
            continue;
        }
        found.insert(first);
    }
    assert!(found.len() > 2, "too few states were seen: {found:?}");
}

/// Listener that receives the flushes of the default family and blocks in each until `may_go`
/// receives.
#[derive(Debug)]
struct Slow {
    begun: mpsc::Sender<()>,
    may_go: Mutex<mpsc::Receiver<()>>,
    told: AtomicBool,
}

impl EventListener for Slow {
    fn flush_completed(&self, flush: &FlushInfo) {
        if flush.column_family == "default" {
            self.begun.send(()).unwrap();
            self.may_go.lock().unwrap().recv().unwrap();
            self.told.store(true, Ordering::SeqCst);
        }
    }
}

#[test]
fn a_flush_waits_until_listeners_were_told_if_it_is_to() {
    let (begun, begins) = mpsc::channel();
    let (go, may_go) = mpsc::channel();
    let listener = Arc::new(Slow { begun, may_go: Mutex::new(may_go), told: AtomicBool::new(false) });
    let env = memory();
    // Four threads, because the listener occupies one of them.
    env.set_background_threads(Priority::High, 4);
    let options = options(&env).event_listener(listener.clone());
    let db = Db::open("/db", &options).unwrap();
    let other = db.create_column_family("other", &options).unwrap();
    for (listener_wait, force_atomic_flush) in [(false, false), (true, false), (true, true)] {
        db.put("k", "v").unwrap();
        std::thread::scope(|scope| {
            let (db, other, begins) = (&db, &other, &begins);
            let listener = &listener;
            let flush = scope.spawn(move || {
                let how = FlushOptions { listener_wait, force_atomic_flush, ..FlushOptions::default() };
                db.flush(&how).unwrap();
                listener.told.swap(false, Ordering::SeqCst)
            });
            begins.recv().unwrap();
            // Another flush wakes the waiter, which must keep waiting.
            let at_once = FlushOptions { wait: false, ..FlushOptions::default() };
            db.put_cf(&WriteOptions::default(), other, "k", "v").unwrap();
            db.flush_cfs(&at_once, &[other]).unwrap();
            if listener_wait {
                std::thread::sleep(Duration::from_millis(50));
                assert!(!flush.is_finished());
                go.send(()).unwrap();
                assert!(flush.join().unwrap());
            } else {
                assert!(!flush.join().unwrap(), "it waits for the table alone");
                go.send(()).unwrap();
                let waits = FlushOptions { listener_wait: true, ..FlushOptions::default() };
                db.flush(&waits).unwrap();
                assert!(listener.told.swap(false, Ordering::SeqCst), "also for that of somebody else");
            }
        });
    }
}

#[test]
fn a_database_is_closed_when_nothing_is_left_to_compact_if_it_is_to_be() {
    let env = memory();
    let options = options(&env);
    let close = WaitForCompactOptions { close_db: true, ..WaitForCompactOptions::default() };
    let unlogged = WriteOptions { disable_wal: true, ..WriteOptions::default() };
    let db = Db::open("/db", &options).unwrap();
    db.put_opt(&unlogged, "k", "first").unwrap();
    db.pause_background_work().unwrap();
    let soon = WaitForCompactOptions { abort_on_pause: true, ..close };
    assert_eq!(db.wait_for_compact(&soon).unwrap_err().kind(), ErrorKind::Incomplete);
    assert_eq!(db.get("k").unwrap().as_deref(), Some(&b"first"[..]), "it stays open");
    db.continue_background_work().unwrap();
    db.wait_for_compact(&close).unwrap();
    assert_eq!(db.get("k").unwrap_err().kind(), ErrorKind::Closed);
    let again = Db::open("/db", &options).unwrap();
    assert_eq!(again.get("k").unwrap().as_deref(), Some(&b"first"[..]));
    karst_engine::io::block_on(&env, again.wait_for_compact_async(&close)).unwrap();
    assert_eq!(again.get("k").unwrap_err().kind(), ErrorKind::Closed);
    Db::open("/db", &options).unwrap();
}
