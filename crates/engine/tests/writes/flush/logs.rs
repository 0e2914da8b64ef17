//! Logs become current in the order of their numbers, even if the flush that needed a log was
//! abandoned.

use super::all;
use karst_engine::io::{Disturb, Disturbance, DisturbedFileSystem, Env, FileSystem, MemoryFileSystem};
use karst_engine::{CompactRangeOptions, Db, FlushOptions, Options, ReadOptions, WriteBatch, WriteOptions};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Blocks the creation of a log while armed, until it is opened.
#[derive(Debug, Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default, PartialEq)]
enum State {
    #[default]
    Open,
    Armed,
    /// A thread is blocked here.
    Held,
}

impl Gate {
    fn set(&self, state: State) {
        *self.state.lock() = state;
        self.changed.notify_all();
    }
}

impl Disturb for Gate {
    fn read(&self, _: &Path, _: u64, _: usize) -> Option<Disturbance> {
        None
    }

    fn write(&self, path: &Path) -> std::io::Result<()> {
        let mut state = self.state.lock();
        if path.extension().is_some_and(|of| of == "log") && *state == State::Armed {
            *state = State::Held;
            self.changed.notify_all();
            while *state == State::Held {
                self.changed.wait(&mut state);
            }
        }
        Ok(())
    }
}

/// A flush that is abandoned while its log is being created leaves it to the next flush. No other
/// log may be created and become current meanwhile: the first has a smaller number, and recovery
/// would skip writes to it.
#[test]
fn a_log_whose_flush_was_given_up_comes_before_any_that_is_made_later() {
    let files = Arc::new(MemoryFileSystem::new());
    let disturbed = DisturbedFileSystem::new(files.clone(), Gate::default());
    let gate = disturbed.between().clone();
    let env = Env::builder().file_system(Arc::new(disturbed)).build();
    let options = Options::new().env(env.clone()).db(|db| db.create_if_missing = true);
    let db = Db::open("/db", &options).unwrap();
    let flush = FlushOptions::default();
    db.put(b"a", b"1").unwrap();

    gate.set(State::Armed);
    let mut cx = Context::from_waker(Waker::noop());
    {
        let mut given_up = pin!(db.flush_async(&flush));
        while *gate.state.lock() != State::Held {
            assert!(given_up.as_mut().poll(&mut cx).is_pending());
            std::thread::yield_now();
        }
    }
    // Starts another flush, which may have to wait for the log that is being created.
    let mut second = pin!(db.flush_async(&flush));
    let mut ended = false;
    for _ in 0..200 {
        ended = ended || matches!(second.as_mut().poll(&mut cx), Poll::Ready(Ok(())));
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    gate.set(State::Open);
    if !ended {
        karst_engine::io::block_on(&env, second).unwrap();
    }
    for key in [b"b", b"c", b"d"] {
        db.put(key, b"2").unwrap();
        db.flush(&flush).unwrap();
        db.put(key, b"3").unwrap();
        let as_killed = Env::builder().file_system(Arc::new(copy_of(&db, &files))).build();
        let reopened = Db::open("/db", &options.clone().env(as_killed)).unwrap();
        assert_eq!(all(&reopened), all(&db));
    }
}

/// Copies the files that a killed process leaves of an open database, none of which is removed
/// meanwhile.
fn copy_of(db: &Db, files: &MemoryFileSystem) -> MemoryFileSystem {
    db.disable_file_deletions().unwrap();
    let copy = copy(files);
    db.enable_file_deletions().unwrap();
    copy
}

fn copy(files: &MemoryFileSystem) -> MemoryFileSystem {
    let copy = MemoryFileSystem::new();
    let directory = Path::new("/db");
    for name in files.list_dir(directory).unwrap() {
        let path = directory.join(name);
        copy.write_file(&path, files.read_file(&path).unwrap()).unwrap();
    }
    copy
}

fn counters(env: &Env) -> Options {
    Options::new()
        .env(env.clone())
        .db(|db| db.create_if_missing = true)
        .set_all("merge_operator=uint64add")
        .unwrap()
}

fn add(db: &Db, key: &str) {
    let mut batch = WriteBatch::new();
    batch.merge(key, 1u64.to_le_bytes()).unwrap();
    batch.merge("all", 1u64.to_le_bytes()).unwrap();
    db.write(&WriteOptions::new(), &batch).unwrap();
}

/// Returns the counters; every way of reading must agree on them.
fn counts(db: &Db) -> BTreeMap<Vec<u8>, u64> {
    let number = |value: &[u8]| u64::from_le_bytes(value.try_into().unwrap());
    let forward: BTreeMap<_, _> = all(db).iter().map(|(key, value)| (key.clone(), number(value))).collect();
    let keys: Vec<_> = forward.keys().collect();
    for (key, value) in keys.iter().zip(db.multi_get(&keys)) {
        let (got, value) = (db.get(key).unwrap().unwrap(), value.unwrap().unwrap());
        assert_eq!((number(&got), number(&value)), (forward[*key], forward[*key]), "{}", key.escape_ascii());
    }
    forward
}

/// Regression test: the tables of a database held entries that its logs held too, because a flush
/// had recorded a log that contained the beginning of the flushed memtable. Before replay skipped
/// such entries, `all` was 23 here, not 13.
#[test]
fn entries_that_a_table_has_are_not_replayed_beside_it() {
    let files = Arc::new(MemoryFileSystem::new());
    let env = Env::builder().file_system(files.clone()).build();
    let db = Db::open("/db", &counters(&env)).unwrap();
    add(&db, "first");
    db.flush(&FlushOptions::default()).unwrap();
    (0..10).for_each(|n| add(&db, &format!("key{}", n % 4)));
    let then = Arc::new(copy_of(&db, &files));
    let log = *db.log_numbers().last().unwrap();
    add(&db, "key1");
    add(&db, "last");
    let expected = counts(&db);
    let log = files.read_file(&Path::new("/db").join(format!("{log:06}.log"))).unwrap();

    // Flushes the entries before the last two to a table, and then restores the whole log.
    let env = Env::builder().file_system(then.clone()).build();
    let db = Db::open("/db", &counters(&env)).unwrap();
    let number = *db.log_numbers().last().unwrap();
    db.close().unwrap();
    then.write_file(&Path::new("/db").join(format!("{number:06}.log")), log).unwrap();

    let read_only = Db::open_read_only("/db", &counters(&env)).unwrap();
    assert_eq!(counts(&read_only), expected);
    assert!(read_only.log_duplicates().unwrap().contains("\"default\": 20 entries up to sequence number 22"));
    for keeps_logs in [false, true] {
        let env = Env::builder().file_system(Arc::new(copy(&then))).build();
        let options = counters(&env).db(move |db| db.avoid_flush_during_recovery = keeps_logs);
        for opening in 0..3 {
            let db = Db::open("/db", &options).unwrap();
            assert_eq!(counts(&db), expected);
            let duplicates = db.log_duplicates();
            assert_eq!(duplicates.is_some(), opening == 0, "{keeps_logs} {opening}: {duplicates:?}");
            // The compaction zeroes sequence numbers, which identified entries that the logs have
            // too.
            db.compact_range(&CompactRangeOptions::default(), None, None).unwrap();
            assert_eq!(counts(&db), expected);
            db.close().unwrap();
            let info = String::from_utf8(env.fs().read_file(Path::new("/db/LOG")).unwrap()).unwrap();
            assert_eq!(info.contains("entries that tables have already"), opening == 0, "{info}");
        }
    }
}

/// A family with a single write keeps all logs that other families fill, until their total size
/// exceeds `max_total_wal_size`.
#[test]
fn a_family_that_keeps_too_many_logs_is_flushed() {
    const MOST: u64 = 256 << 10;
    let env = Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build();
    let options = counters(&env).db(|db| db.max_total_wal_size = MOST);
    let db = Db::open("/db", &options).unwrap();
    let quiet = db.create_column_family("quiet", &options).unwrap();
    db.put_cf(&WriteOptions::new(), &quiet, "key", "value").unwrap();
    let in_memory = || db.int_property_cf(&quiet, "rocksdb.num-entries-active-mem-table").unwrap();
    assert_eq!(in_memory(), 1);
    let value = vec![7; 16 << 10];
    for written in (0..).map(|n| n * value.len() as u64) {
        db.put(format!("{written:010}"), &value).unwrap();
        if in_memory() == 0 {
            assert!(written > MOST / 2, "flushed after {written} bytes already");
            break;
        }
        assert!(written < 64 * MOST, "nothing is flushed after {written} bytes of logs");
    }
    karst_testkit::eventually(true, || db.log_numbers().len() <= 2);
    assert_eq!(db.get_cf(&ReadOptions::new(), &quiet, "key").unwrap().as_deref(), Some(&b"value"[..]));
}
