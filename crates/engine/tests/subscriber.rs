//! A panicking subscriber of `tracing`, alone in its process because a subscriber is global: no
//! event of the database makes a call panic or wait forever, and no acknowledged write is lost.

use karst_engine::io::{Disturb, Disturbance, DisturbedFileSystem, Env, FileSystem, MemoryFileSystem};
use karst_engine::{Db, EventListener, FlushInfo, FlushOptions, Options, WriteOptions};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Time limit that only a wait without end reaches.
const FOREVER: Duration = Duration::from_secs(600);
const PATH: &str = "/db";

static ARMED: AtomicBool = AtomicBool::new(false);
static PANICS: AtomicU64 = AtomicU64::new(0);

/// Subscriber that panics at warnings and errors while armed.
struct Bad;

impl Subscriber for Bad {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        // The event's target names a crate of the engine, because subscribers select by the
        // reporting module.
        let target = event.metadata().target();
        let of_engine =
            ["karst_engine::", "karst_commit::", "karst_base::"].iter().any(|of| target.starts_with(of));
        if ARMED.load(SeqCst) && of_engine {
            PANICS.fetch_add(1, SeqCst);
            panic!("the subscriber's own");
        }
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Fails all operations on files whose names contain this text, unless it is empty.
#[derive(Debug, Default)]
struct Fails(Mutex<String>);

impl Fails {
    fn set(&self, name: &str) {
        name.clone_into(&mut self.0.lock().unwrap());
    }
}

impl Disturb for Fails {
    fn read(&self, _: &Path, _: u64, _: usize) -> Option<Disturbance> {
        None
    }
    fn write(&self, path: &Path) -> std::io::Result<()> {
        let name = self.0.lock().unwrap();
        match !name.is_empty() && path.to_string_lossy().contains(&*name) {
            true => Err(std::io::Error::from_raw_os_error(libc::EIO)),
            false => Ok(()),
        }
    }
}

#[derive(Debug)]
struct BadListener;

impl EventListener for BadListener {
    fn flush_begun(&self, _: &FlushInfo) {
        panic!("the listener's own");
    }
}

/// Asserts that `threads` threads running `work` concurrently all end, without a panic.
fn all_end(what: &str, threads: usize, work: impl Fn(usize) + Send + Sync + 'static) {
    let (tell, told) = channel();
    let work = Arc::new(work);
    for thread in 0..threads {
        let (tell, work) = (tell.clone(), work.clone());
        std::thread::spawn(move || {
            work(thread);
            let _ = tell.send(());
        });
    }
    drop(tell);
    for _ in 0..threads {
        told.recv_timeout(FOREVER).unwrap_or_else(|e| panic!("{what}: {e}"));
    }
}

fn flush(db: &Db) -> karst_engine::Result<()> {
    db.flush(&FlushOptions::default())
}

/// A database with a key, and the faults of its files.
struct Bench {
    files: Arc<dyn FileSystem>,
    fails: Arc<Fails>,
    options: Options,
    db: Db,
}

impl Bench {
    fn new(listener: bool) -> Bench {
        let files = DisturbedFileSystem::new(Arc::new(MemoryFileSystem::new()), Fails::default());
        let (fails, files) = (files.between().clone(), Arc::new(files));
        let env = Env::builder().file_system(files.clone()).build();
        let mut options =
            Options::new().env(env).set_all("create_if_missing=true;max_bgerror_resume_count=0").unwrap();
        if listener {
            options = options.event_listener(Arc::new(BadListener));
        }
        let db = Db::open(PATH, &options).unwrap();
        db.put("key", "1").unwrap();
        ARMED.store(true, SeqCst);
        Bench { files, fails, options, db }
    }

    /// Asserts that one thread's work with the database ends.
    fn ends(&self, what: &str, work: impl Fn(&Db) + Send + Sync + 'static) {
        let db = self.db.clone();
        all_end(what, 1, move |_| work(&db));
    }

    /// Asserts that the database closes, that the subscriber was called, and that these keys exist.
    fn end(self, keys: &[&str]) {
        self.ends("closing", |db| db.close().unwrap());
        ARMED.store(false, SeqCst);
        self.fails.set("");
        assert!(PANICS.swap(0, SeqCst) > 0, "nothing is reported: the test shows nothing");
        drop(self.db);
        let db = Db::open(PATH, &self.options).unwrap();
        for key in keys {
            assert!(db.get(key).unwrap().is_some(), "{key}");
        }
        db.close().unwrap();
    }
}

fn an_obsolete_log_cannot_be_removed() {
    let bench = Bench::new(false);
    let names = bench.files.list_dir(Path::new(PATH)).unwrap();
    bench.fails.set(names.iter().find(|name| name.ends_with(".log")).unwrap());
    bench.ends("a flush", |db| flush(db).unwrap());
    bench.end(&["key"]);
}

fn the_log_cannot_be_written() {
    let bench = Bench::new(false);
    bench.fails.set(".log");
    bench.ends("a write", |db| assert!(db.put_opt(&WriteOptions::synced(), "lost", "1").is_err()));
    bench.ends("the next write", |db| assert!(db.put("lost", "1").is_err()));
    bench.fails.set("");
    bench.ends("resuming", |db| db.resume().unwrap());
    bench.ends("a write after it", |db| db.put("late", "1").unwrap());
    bench.end(&["key", "late"]);
}

fn the_manifest_cannot_be_written() {
    let bench = Bench::new(false);
    bench.fails.set("MANIFEST");
    bench.ends("a flush", |db| assert!(flush(db).is_err()));
    bench.fails.set("");
    bench.ends("resuming", |db| db.resume().unwrap());
    bench.ends("a write after it", |db| db.put("late", "1").unwrap());
    bench.end(&["key", "late"]);
}

fn a_listener_panics() {
    let bench = Bench::new(true);
    bench.ends("a flush", |db| flush(db).unwrap());
    bench.end(&["key"]);
}

/// Several threads fail at a time.
fn calls_meet_failures(file: &str) {
    let bench = Bench::new(true);
    bench.fails.set(file);
    let acknowledged = Arc::new(Mutex::new(vec!["key".to_owned()]));
    let (db, noted) = (bench.db.clone(), acknowledged.clone());
    all_end("calls that fail", 4, move |thread| {
        for round in 0..20 {
            let key = format!("{thread} {round}");
            if db.put_opt(&WriteOptions::synced(), &key, "1").is_ok() {
                noted.lock().unwrap().push(key.clone());
            }
            if round == 10 {
                let _ = flush(&db);
            }
            let _ = db.get(&key);
        }
    });
    bench.fails.set("");
    let db = bench.db.clone();
    all_end("resume and close", 4, move |thread| {
        let _ = if thread == 0 { db.resume() } else { db.close() };
    });
    let acknowledged = acknowledged.lock().unwrap();
    bench.end(&acknowledged.iter().map(String::as_str).collect::<Vec<_>>());
}

/// A single test, because the subscriber is global and only one test may arm it.
#[test]
fn a_subscriber_that_panics_changes_nothing() {
    tracing::subscriber::set_global_default(Bad).unwrap();
    an_obsolete_log_cannot_be_removed();
    the_log_cannot_be_written();
    the_manifest_cannot_be_written();
    a_listener_panics();
    calls_meet_failures(".log");
    calls_meet_failures(".sst");
}
