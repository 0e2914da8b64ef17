//! Background work that is cancelled permanently: calls that still work, errors of the others, and
//! that no entry is lost.

use karst_engine::{
    CompactRangeOptions, CompactionInfo, Db, Error, ErrorKind, EventListener, FlushInfo, FlushOptions,
    Options, SstFileManager, WaitForCompactOptions, WriteOptions,
};
use karst_io::{Env, FileSystem, MemoryFileSystem};
use karst_testkit::eventually;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

fn options(files: &Arc<MemoryFileSystem>) -> Options {
    let env = Env::builder().file_system(files.clone()).build();
    let options = Options::new().env(env).set("compression", "kNoCompression").unwrap();
    options.db(|db| db.create_if_missing = true).column_families(|family| {
        family.disable_auto_compactions = true;
    })
}

fn is_closed<T: std::fmt::Debug>(told: Result<T, Error>) {
    let told = told.unwrap_err();
    assert_eq!(told.kind(), ErrorKind::Closed, "{told}");
    assert!(told.to_string().contains("cancelled"), "{told}");
}

fn compact(db: &Db) -> Result<(), Error> {
    db.compact_range(&CompactRangeOptions::default(), None::<&[u8]>, None::<&[u8]>)
}

fn tables(files: &MemoryFileSystem) -> usize {
    let names = files.list_dir(Path::new("/db")).unwrap();
    names.iter().filter(|name| name.ends_with(".sst")).count()
}

#[test]
fn writes_go_on_until_they_would_wait_and_closing_loses_nothing() {
    let files = Arc::new(MemoryFileSystem::new());
    let options = options(&files).column_families(|family| {
        family.write_buffer_size = 64 << 10;
        family.max_write_buffer_number = 3;
    });
    let db = Db::open("/db", &options).unwrap();
    db.put("before", "1").unwrap();
    db.flush(&FlushOptions::default()).unwrap();
    for wait in [false, true, true] {
        db.cancel_all_background_work(wait).unwrap();
    }
    is_closed(db.flush(&FlushOptions::default()));
    is_closed(db.flush(&FlushOptions { wait: false, allow_write_stall: true, ..FlushOptions::default() }));
    is_closed(compact(&db));
    is_closed(db.wait_for_compact(&WaitForCompactOptions::default()));
    let mut written = 0u64;
    let refused = loop {
        match db.put(written.to_be_bytes(), vec![7; 1000]) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 10_000, "memtables are full");
    };
    assert!(written > 100, "three memtables: {written}");
    is_closed::<()>(Err(refused));
    assert_eq!(db.get("before").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(db.int_property("rocksdb.num-files-at-level0").unwrap_or(1), 1);
    // Deleting whole files needs no background job.
    db.delete_files_in_ranges(db.default_column_family(), &[], true).unwrap();
    db.close().unwrap();
    let db = Db::open("/db", &options).unwrap();
    assert_eq!(db.get("before").unwrap().as_deref(), Some(&b"1"[..]));
    for number in 0..written {
        assert!(db.get(number.to_be_bytes()).unwrap().is_some(), "{number} of {written}");
    }
    db.flush(&FlushOptions::default()).unwrap();
}

/// Blocks the first job that begins, until `let_go`.
#[derive(Debug, Default)]
struct Keeps {
    state: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl Keeps {
    fn begun(&self) {
        let mut state = self.state.lock().unwrap();
        state.0 = true;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |state| !state.1).unwrap());
    }

    fn wait_until_begun(&self) {
        drop(self.changed.wait_while(self.state.lock().unwrap(), |state| !state.0).unwrap());
    }

    fn let_go(&self) {
        self.state.lock().unwrap().1 = true;
        self.changed.notify_all();
    }
}

#[derive(Debug)]
struct KeepsCompactions(Arc<Keeps>);

impl EventListener for KeepsCompactions {
    fn compaction_begun(&self, _: &CompactionInfo) {
        self.0.begun();
    }
}

#[derive(Debug)]
struct KeepsFlushes(Arc<Keeps>);

impl EventListener for KeepsFlushes {
    fn flush_begun(&self, _: &FlushInfo) {
        self.0.begun();
    }
}

#[test]
fn a_manual_compaction_that_runs_is_told_and_leaves_nothing() {
    let files = Arc::new(MemoryFileSystem::new());
    let keeps = Arc::new(Keeps::default());
    let options = options(&files).event_listener(Arc::new(KeepsCompactions(keeps.clone())));
    let db = Db::open("/db", &options).unwrap();
    for round in 0..2 {
        (0..100).for_each(|number| db.put(format!("{number:03}"), format!("{round}")).unwrap());
        db.flush(&FlushOptions::default()).unwrap();
    }
    let runs = {
        let db = db.clone();
        std::thread::spawn(move || compact(&db))
    };
    keeps.wait_until_begun();
    db.cancel_all_background_work(false).unwrap();
    let waits = {
        let db = db.clone();
        std::thread::spawn(move || db.cancel_all_background_work(true))
    };
    std::thread::sleep(Duration::from_millis(50));
    assert!(!waits.is_finished(), "the compaction has not ended");
    keeps.let_go();
    is_closed(runs.join().unwrap());
    waits.join().unwrap().unwrap();
    assert_eq!(db.property("rocksdb.num-files-at-level0").as_deref(), Some("2"));
    eventually(2, || tables(&files));
    db.close().unwrap();
    let db = Db::open("/db", &options).unwrap();
    assert_eq!(db.get("050").unwrap().as_deref(), Some(&b"1"[..]));
}

/// Compat: as in RocksDB, a move completes, because it costs only one record of the MANIFEST.
#[test]
fn a_file_that_is_being_moved_arrives() {
    for closes in [false, true] {
        let files = Arc::new(MemoryFileSystem::new());
        let keeps = Arc::new(Keeps::default());
        let options = options(&files).event_listener(Arc::new(KeepsCompactions(keeps.clone())));
        let db = Db::open("/db", &options).unwrap();
        db.put("key", "value").unwrap();
        db.flush(&FlushOptions::default()).unwrap();
        let runs = {
            let db = db.clone();
            std::thread::spawn(move || compact(&db))
        };
        keeps.wait_until_begun();
        if closes {
            let closing = {
                let db = db.clone();
                std::thread::spawn(move || db.close())
            };
            eventually(true, || db.put("key", "value").is_err_and(|error| error.kind() == ErrorKind::Closed));
            keeps.let_go();
            closing.join().unwrap().unwrap();
        } else {
            db.cancel_all_background_work(false).unwrap();
            keeps.let_go();
            db.cancel_all_background_work(true).unwrap();
            db.close().unwrap();
        }
        let _either_it_was_in_time_or_it_is_told = runs.join().unwrap();
        let db = Db::open_read_only("/db", &options).unwrap();
        let levels = [0, 6].map(|level| db.property(&format!("rocksdb.num-files-at-level{level}")).unwrap());
        assert_eq!(levels, ["0", "1"], "closed meanwhile: {closes}");
    }
}

#[test]
fn a_flush_that_runs_ends_and_what_it_had_stays_in_memory_and_in_the_log() {
    let files = Arc::new(MemoryFileSystem::new());
    let keeps = Arc::new(Keeps::default());
    let options = options(&files).event_listener(Arc::new(KeepsFlushes(keeps.clone())));
    let db = Db::open("/db", &options).unwrap();
    // More than one write to the table, so that the flush checks for cancellation.
    (0..3000).for_each(|number| db.put(format!("{number:04}"), vec![number as u8; 2000]).unwrap());
    let runs = {
        let db = db.clone();
        std::thread::spawn(move || db.flush(&FlushOptions::default()))
    };
    keeps.wait_until_begun();
    db.cancel_all_background_work(false).unwrap();
    keeps.let_go();
    is_closed(runs.join().unwrap());
    db.cancel_all_background_work(true).unwrap();
    assert!(db.background_error().is_none(), "that is no failure");
    assert_eq!(db.get("0007").unwrap().as_deref(), Some(&[7u8; 2000][..]));
    eventually(0, || tables(&files));
    db.close().unwrap();
    let db = Db::open("/db", &options).unwrap();
    assert_eq!(db.get("0007").unwrap().as_deref(), Some(&[7u8; 2000][..]));
}

#[test]
fn what_is_in_no_log_is_flushed_first_and_later_entries_are_told_of() {
    let files = Arc::new(MemoryFileSystem::new());
    let options = options(&files);
    let no_log = WriteOptions { disable_wal: true, ..WriteOptions::default() };
    let db = Db::open("/db", &options).unwrap();
    db.put_cf(&no_log, db.default_column_family(), "first", "1").unwrap();
    db.cancel_all_background_work(true).unwrap();
    db.put_cf(&no_log, db.default_column_family(), "second", "2").unwrap();
    is_closed(db.close());
    let db = Db::open("/db", &options).unwrap();
    assert_eq!(db.get("first").unwrap().as_deref(), Some(&b"1"[..]));
    assert!(db.get("second").unwrap().is_none());
    db.set_db_options(&[("avoid_flush_during_shutdown", "true")]).unwrap();
    db.put_cf(&no_log, db.default_column_family(), "third", "3").unwrap();
    db.cancel_all_background_work(true).unwrap();
    db.close().unwrap();
    let db = Db::open("/db", &options).unwrap();
    assert!(db.get("third").unwrap().is_none());
}

#[test]
fn nothing_recovers_any_more() {
    let files = Arc::new(MemoryFileSystem::new());
    let manager = SstFileManager::new();
    manager.set_max_allowed_space_usage(100);
    let options = options(&files).sst_file_manager(manager.clone());
    let db = Db::open("/db", &options).unwrap();
    db.put("key", "value").unwrap();
    db.flush(&FlushOptions::default()).unwrap();
    assert_eq!(db.background_error().unwrap().error.kind(), ErrorKind::SpaceLimit);
    db.cancel_all_background_work(true).unwrap();
    manager.set_max_allowed_space_usage(0);
    is_closed(db.resume());
    assert_eq!(db.put("key", "more").unwrap_err().kind(), ErrorKind::SpaceLimit);
    db.close().unwrap();
    let db = Db::open("/db", &options).unwrap();
    db.put("key", "more").unwrap();
}
