//! Reads that give up waiting for storage: `deadline` and `io_timeout`.

use karst_engine::{Db, ErrorKind, FlushOptions, Options, ReadOptions, WriteBatch, WriteOptions};
use karst_io::{Disturb, Disturbance, DisturbedFileSystem, Env, PosixFileSystem, block_on};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Delay of a stalled read: longer than any test waits, unless a limit is ignored.
const STALL: Duration = Duration::from_secs(300);
const SHORT: Duration = Duration::from_millis(5);
const LONG: Duration = Duration::from_secs(100);

/// Storage that stalls every read while the flag is set.
#[derive(Debug, Default)]
struct Stalls(AtomicBool);

impl Disturb for Stalls {
    fn read(&self, _: &Path, _: u64, _: usize) -> Option<Disturbance> {
        let delay = self.0.load(Ordering::Relaxed).then_some(STALL);
        Some(Disturbance { delay, ..Disturbance::default() })
    }
}

fn key(number: u32) -> Vec<u8> {
    format!("key{number:05}").into_bytes()
}

/// Returns a database with 2,000 keys in tables, one in the memtable and only the blocks that
/// opening needs in the cache, and the switch that stalls its storage.
fn opened(directory: &Path) -> (Db, Arc<Stalls>) {
    let file_system = DisturbedFileSystem::new(Arc::new(PosixFileSystem), Stalls::default());
    let stalls = file_system.between().clone();
    let env = Env::builder().file_system(Arc::new(file_system)).build();
    let db = Db::open(directory, &Options::new().env(env).db(|db| db.create_if_missing = true)).unwrap();
    let mut batch = WriteBatch::new();
    for number in 0..2000 {
        batch.put(key(number), [7; 100]).unwrap();
    }
    db.write(&WriteOptions::new(), &batch).unwrap();
    db.flush(&FlushOptions::default()).unwrap();
    db.put(key(2000), "new").unwrap();
    (db, stalls)
}

/// Read options with each of the two limits.
fn limited(db: &Db) -> [ReadOptions; 2] {
    let deadline = ReadOptions { deadline: Some(db.env().now() + SHORT), ..ReadOptions::new() };
    [deadline, ReadOptions { io_timeout: Some(SHORT), ..ReadOptions::new() }]
}

#[test]
fn a_lookup_gives_up_and_finds_what_is_in_memory_all_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let (db, stalls) = opened(directory.path());
    db.get(key(3)).unwrap();
    stalls.0.store(true, Ordering::Relaxed);
    for read in limited(&db) {
        let kind = |result: karst_engine::Result<_>| {
            result.map(|_: Option<karst_engine::Value>| ()).map_err(|e| e.kind())
        };
        assert_eq!(kind(db.get_opt(&read, key(1500))), Err(ErrorKind::TimedOut));
        assert_eq!(kind(block_on(db.env(), db.get_opt_async(&read, &key(1500)))), Err(ErrorKind::TimedOut));
        for in_memory in [3, 2000] {
            assert!(db.get_opt(&read, key(in_memory)).unwrap().is_some());
        }
        let answers =
            db.multi_get_cf(&read, db.default_column_family(), &[key(3), key(1500), key(2000), key(1900)]);
        let kinds: Vec<_> = answers.into_iter().map(kind).collect();
        let late = Err(ErrorKind::TimedOut);
        assert_eq!(kinds, [Ok(()), late, Ok(()), late]);
    }
    stalls.0.store(false, Ordering::Relaxed);
    let patient =
        ReadOptions { deadline: Some(db.env().now() + LONG), io_timeout: Some(LONG), ..ReadOptions::new() };
    assert_eq!(db.get_opt(&patient, key(1500)).unwrap().as_deref(), Some(&[7; 100][..]));
}

#[test]
fn an_iterator_that_gave_up_goes_on_after_a_seek() {
    let directory = tempfile::tempdir().unwrap();
    let (db, stalls) = opened(directory.path());
    for (start, read) in [key(500), key(1500)].into_iter().zip(limited(&db)) {
        let mut iter = db.iter(&read).unwrap();
        stalls.0.store(true, Ordering::Relaxed);
        assert_eq!(iter.seek(&start).map_err(|e| e.kind()), Err(ErrorKind::TimedOut));
        assert!(!iter.valid() && iter.status().is_err());
        stalls.0.store(false, Ordering::Relaxed);
        // The old deadline has passed but does not matter, because it is checked only when a read
        // waits for storage, and these blocks are in memory by now.
        let patient = ReadOptions { deadline: Some(db.env().now() + LONG), ..ReadOptions::new() };
        let mut other = db.iter(&patient).unwrap();
        other.seek(&start).unwrap();
        iter.seek(&start).unwrap();
        assert_eq!((iter.key(), iter.value()), (other.key(), other.value()));
    }
}
