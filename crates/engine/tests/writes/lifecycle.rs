//! The end of a database: after a handle is closed or the last one dropped, on any thread, the lock
//! is free and the next opening finds all writes, for logs of any length.

use karst_engine::io::{Disturb, Disturbance, DisturbedFileSystem, Env, FileSystem, MemoryFileSystem};
use karst_engine::{
    BackgroundError, Db, ErrorKind, EventListener, FlushInfo, FlushOptions, Options, ReadOptions, WriteBatch,
    WriteOptions,
};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Time limit that only a wait without end reaches.
const FOREVER: Duration = Duration::from_secs(120);

fn create() -> Options {
    Options::new().db(|db| {
        db.create_if_missing = true;
        db.create_missing_column_families = true;
    })
}

/// Meanwhile other threads start processes; each forked child holds every file of this process open
/// until it executes its program.
#[test]
fn a_closed_database_can_be_opened_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let over = AtomicBool::new(false);
    let started = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    assert!(std::process::Command::new("true").status().unwrap().success());
                    started.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut rounds = 0u64;
        while rounds < 60 || started.load(Ordering::Relaxed) < 60 {
            let db = Db::open(&path, &create()).unwrap_or_else(|e| panic!("round {rounds}: {e}"));
            assert_eq!(db.get(rounds.to_be_bytes()).unwrap(), None);
            db.put(rounds.to_be_bytes(), b"x").unwrap();
            if rounds.is_multiple_of(2) {
                db.close().unwrap();
            } else {
                drop(db);
            }
            rounds += 1;
        }
        over.store(true, Ordering::Relaxed);
    });
}

/// Listener that owns a handle of its database and drops or closes it in the callback.
#[derive(Debug)]
struct Owner {
    handle: Mutex<Option<Db>>,
    tell: Mutex<Sender<Result<(), ErrorKind>>>,
    closes: bool,
}

impl Owner {
    fn end(&self) {
        let Some(db) = self.handle.lock().unwrap().take() else { return };
        let outcome = if self.closes { db.close().map_err(|e| e.kind()) } else { Ok(()) };
        drop(db);
        self.tell.lock().unwrap().send(outcome).unwrap();
    }
}

impl EventListener for Owner {
    fn flush_completed(&self, _: &FlushInfo) {
        self.end();
    }
    fn background_error(&self, _: &BackgroundError) {
        self.end();
    }
}

fn ends_in_a_callback(closes: bool) {
    let files: Arc<dyn FileSystem> = Arc::new(MemoryFileSystem::new());
    let env = Env::builder().file_system(files).build();
    let (tell, told) = channel();
    let owner = Arc::new(Owner { handle: Mutex::default(), tell: Mutex::new(tell), closes });
    let db = Db::open("/db", &create().env(env.clone()).event_listener(owner.clone())).unwrap();
    db.put("key", "value").unwrap();
    *owner.handle.lock().unwrap() = Some(db.clone());
    db.flush(&FlushOptions { wait: false, ..FlushOptions::default() }).unwrap();
    drop(db);
    let outcome = told.recv_timeout(FOREVER).expect("the callback ends");
    assert_eq!(outcome, if closes { Err(ErrorKind::InvalidArgument) } else { Ok(()) });
    // Closing completes outside of the callback; soon the database can be opened.
    let mut rounds = 0;
    let db = loop {
        match Db::open("/db", &create().env(env.clone())) {
            Ok(db) => break db,
            Err(e) => assert!(e.to_string().contains("open elsewhere"), "{e}"),
        }
        rounds += 1;
        assert!(rounds < 12_000, "the database is never closed");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]));
    assert!(db.log_numbers().len() == 1, "what was flushed needs no log");
}

#[test]
fn the_last_handle_may_be_dropped_inside_a_background_job() {
    ends_in_a_callback(false);
}

#[test]
fn closing_inside_a_background_job_is_refused_and_the_drop_closes() {
    ends_in_a_callback(true);
}

#[test]
fn writers_that_a_close_overtakes_are_told_so_and_nothing_is_written_behind_it() {
    let files = Arc::new(MemoryFileSystem::new());
    let env = Env::builder().file_system(files.clone()).build();
    for round in 0..20u64 {
        let db = Db::open("/db", &create().env(env.clone())).unwrap();
        let acknowledged = Mutex::new(Vec::new());
        let after = std::thread::scope(|scope| {
            for writer in 0..3u64 {
                let (db, acknowledged) = (&db, &acknowledged);
                scope.spawn(move || {
                    for n in 0.. {
                        let key = format!("{round}-{writer}-{n}");
                        match db.put(&key, "") {
                            Ok(()) => acknowledged.lock().unwrap().push(key),
                            Err(e) => return assert_eq!(e.kind(), ErrorKind::Closed, "{e}"),
                        }
                    }
                });
            }
            while acknowledged.lock().unwrap().len() < 50 {
                std::thread::yield_now();
            }
            db.close().unwrap();
            sizes(&files)
        });
        assert_eq!(sizes(&files), after, "somebody wrote to a file of a closed database");
        drop(db);
        let db = Db::open("/db", &create().env(env.clone())).unwrap();
        for key in acknowledged.into_inner().unwrap() {
            assert!(db.get(&key).unwrap().is_some(), "{key}");
        }
    }
}

fn sizes(files: &MemoryFileSystem) -> Vec<(String, u64)> {
    let names = files.list_dir(Path::new("/db")).unwrap();
    let size = |name: String| {
        let len = files.metadata(&Path::new("/db").join(&name)).unwrap().len;
        (name, len)
    };
    names.into_iter().filter(|name| name.ends_with(".log")).map(size).collect()
}

fn all_of(db: &Db, family: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let family = db.column_family(family).unwrap();
    let mut iterator = db.iter_cf(&ReadOptions::default(), &family).unwrap();
    iterator.seek_to_first().unwrap();
    let mut found = Vec::new();
    while iterator.valid() {
        found.push((iterator.key().to_vec(), iterator.value().to_vec()));
        iterator.next().unwrap();
    }
    found
}

/// The logs hold far more than one memtable.
#[test]
fn logs_are_replayed_one_memtable_at_a_time() {
    const MEMTABLE: usize = 64 << 10;
    const ENTRIES: u64 = 12_000;
    for keeps_logs in [false, true] {
        let env = Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build();
        let names = ["default", "other"];
        let db = Db::open_cf("/db", &create().env(env.clone()), &names).unwrap();
        let other = db.column_family("other").unwrap();
        for n in 0..ENTRIES {
            let key = (n * 7919 % (ENTRIES / 2)).to_be_bytes();
            let mut batch = WriteBatch::new();
            batch.put(key, [n as u8; 100]).unwrap();
            if n % 3 == 0 {
                batch.put_cf(&other, key, n.to_be_bytes()).unwrap();
            }
            db.write(&WriteOptions::default(), &batch).unwrap();
        }
        let before = names.map(|name| all_of(&db, name));
        let seq = db.latest_sequence_number();
        drop((db, other));
        let options = create()
            .env(env.clone())
            .db(move |db| db.avoid_flush_during_recovery = keeps_logs)
            .column_families(|cf| {
                cf.write_buffer_size = MEMTABLE;
                cf.disable_auto_compactions = true;
            });
        let db = Db::open_cf("/db", &options, &names).unwrap();
        assert_eq!((names.map(|name| all_of(&db, name)), db.latest_sequence_number()), (before, seq));
        let tables = db.live_files().len();
        assert!(tables > 15, "{tables} tables of a memtable each");
        assert!(db.live_files().iter().all(|file| file.size_bytes < 4 * MEMTABLE as u64));
        assert_eq!(db.log_numbers().len(), 1, "no log is needed of which a part is in tables");
    }
}

/// Lets another opener create the database, write to it and close it at the moment its directory is
/// created.
#[derive(Debug)]
struct Faster {
    env: Env,
    told: AtomicBool,
}

impl Disturb for Faster {
    fn read(&self, _: &Path, _: u64, _: usize) -> Option<Disturbance> {
        None
    }

    fn write(&self, path: &Path) -> std::io::Result<()> {
        if path == Path::new("/db") && !self.told.swap(true, Ordering::Relaxed) {
            let db = Db::open("/db", &create().env(self.env.clone())).unwrap();
            db.put(b"key", b"theirs").unwrap();
            db.flush(&FlushOptions::default()).unwrap();
            db.close().unwrap();
        }
        Ok(())
    }
}

#[test]
fn a_database_that_somebody_else_made_a_moment_ago_is_not_made_anew() {
    let memory = Arc::new(MemoryFileSystem::new());
    let env = Env::builder().file_system(memory.clone()).build();
    let faster = Faster { env, told: AtomicBool::new(false) };
    let files = DisturbedFileSystem::new(memory, faster);
    let env = Env::builder().file_system(Arc::new(files)).build();
    let db = Db::open("/db", &create().env(env)).unwrap();
    assert_eq!(db.get(b"key").unwrap().as_deref(), Some(&b"theirs"[..]));
}
