//! The last handle of a database is dropped while iterators, snapshots, values, futures and
//! transactions still exist: their behaviour afterwards, that the next opening gets the lock at
//! once, and that no resource is left once they are dropped too.

use karstdb::io::testing::poll_times;
use karstdb::io::{Env, Latency, LatencyFileSystem, PosixFileSystem};
use karstdb::{
    CompactRangeOptions, Db, DbIterator, ErrorKind, FlushOptions, Options, ReadOptions, Snapshot,
    TransactionDb, TransactionDbOptions, TransactionOptions, TransactionState, Value, WriteOptions,
};
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const KEYS: u64 = 500;

fn options() -> Options {
    Options::new().db(|db| db.create_if_missing = true).set_all("compression=kNoCompression").unwrap()
}

/// Serializes the tests of this file, because they count resources of the whole process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the numbers of descriptors, threads and mapped files of this process. Kernel threads do
/// not count: a ring gets one with the first read that has to wait, and keeps it.
fn resources() -> [usize; 3] {
    let of_kernel = |task: &Path| {
        std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name.starts_with("iou-wrk"))
    };
    let count = |what: &str| {
        let entries = std::fs::read_dir(format!("/proc/self/{what}")).unwrap();
        entries.filter(|entry| !of_kernel(&entry.as_ref().unwrap().path())).count()
    };
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mapped = maps.lines().filter(|line| line.contains(".log") || line.contains(".sst")).count();
    [count("fd"), count("task"), mapped]
}

/// Waits until the process has no more resources than `before`.
fn nothing_is_left(before: [usize; 3]) {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        // A thread drops its rings of databases that were closed elsewhere at its next read.
        karstdb::io::block_on(&Env::posix(), async {});
        let now = resources();
        if now.iter().zip(before).all(|(now, before)| *now <= before) {
            return;
        }
        assert!(Instant::now() < end, "descriptors, threads and maps: {now:?}, before {before:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn value(key: u64, generation: u64) -> Vec<u8> {
    format!("{key}.{generation}.{}", "x".repeat(300)).into_bytes()
}

/// Writes two generations of each key: tables of both, and the second half of the second in memory.
fn filled(path: &Path, options: &Options) -> Db {
    let db = Db::open(path, options).unwrap();
    for generation in 0..2 {
        for key in 0..KEYS {
            db.put(key.to_be_bytes(), value(key, generation)).unwrap();
            if key == KEYS / 2 {
                db.flush(&FlushOptions::default()).unwrap();
            }
        }
    }
    db
}

/// Reads all entries from the current position, and then all of them backward.
fn reads_all(iter: &mut DbIterator, from: u64) {
    for key in from..KEYS {
        assert!(iter.valid(), "{key}");
        assert_eq!((iter.key(), iter.value()), (&key.to_be_bytes()[..], &value(key, 1)[..]));
        iter.next().unwrap();
    }
    assert!(!iter.valid());
    iter.seek_to_last().unwrap();
    for key in (0..KEYS).rev() {
        assert_eq!((iter.key(), iter.value()), (&key.to_be_bytes()[..], &value(key, 1)[..]));
        iter.prev().unwrap();
    }
    iter.seek(7u64.to_be_bytes()).unwrap();
    assert_eq!(iter.value(), value(7, 1));
}

#[test]
fn iterators_and_values_go_on_and_the_next_opening_is_not_held_up() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    for mapped in [false, true] {
        let options = options().db(move |db| (db.allow_mmap_reads, db.allow_mmap_writes) = (mapped, mapped));
        drop(filled(path, &options));
        let before = resources();
        let db = filled(path, &options);
        let mut iters: Vec<DbIterator> = (0..2).map(|_| db.iter(&ReadOptions::new()).unwrap()).collect();
        iters[0].seek(3u64.to_be_bytes()).unwrap();
        let of_iterator = iters[0].pinned_value();
        let values: Vec<Value> = [1, KEYS / 2, KEYS - 1]
            .map(|key| db.get(key.to_be_bytes()).unwrap().unwrap())
            .into_iter()
            .chain([of_iterator])
            .collect();
        let snapshot: Snapshot = db.snapshot();
        drop(db);

        // Another opener, which replaces every table that they are positioned in.
        let db = Db::open(path, &options).unwrap();
        for key in 0..KEYS {
            db.put(key.to_be_bytes(), value(key, 2)).unwrap();
        }
        db.flush(&FlushOptions::default()).unwrap();
        db.compact_range(&CompactRangeOptions::default(), None, None).unwrap();
        reads_all(&mut iters[0], 3);
        let told = db.get_opt(&ReadOptions { snapshot: Some(snapshot.clone()), ..ReadOptions::new() }, "x");
        assert_eq!(told.unwrap_err().kind(), ErrorKind::InvalidArgument, "a snapshot of another database");
        db.close().unwrap();
        drop(db);
        Db::destroy(path, &options).unwrap();
        // The second iterator has not been positioned yet.
        iters[1].seek_to_first().unwrap();
        reads_all(&mut iters[1], 0);
        for (at, key) in [1, KEYS / 2, KEYS - 1, 3].into_iter().enumerate() {
            assert_eq!(values[at].as_ref(), value(key, 1));
        }
        // Any thread may drop the last reference.
        std::thread::spawn(move || drop((iters, snapshot, values))).join().unwrap();
        nothing_is_left(before);
    }
}

/// Returns options with slow reads, so that a future can be dropped half-way.
fn slow() -> Options {
    let latency = Latency::of_reads(Duration::from_millis(20));
    let files = LatencyFileSystem::new(Arc::new(PosixFileSystem), latency);
    options().env(Env::builder().file_system(Arc::new(files)).build()).block_cache_bytes(0)
}

#[test]
fn futures_that_own_the_last_handle_end_or_are_dropped() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    drop(filled(path, &options()));
    let before = resources();
    for polls in [0, 1, 2, u64::MAX] {
        let db = Db::open(path, &slow()).unwrap();
        let reads = {
            let db = db.clone();
            async move {
                let keys: Vec<_> = (0..KEYS).step_by(50).map(u64::to_be_bytes).collect();
                let mut iter = db.iter(&ReadOptions::new()).unwrap();
                iter.seek_async(5u64.to_be_bytes()).await.unwrap();
                let found = db.multi_get_async(&keys).await;
                assert!(found.into_iter().all(|found| found.unwrap().is_some()));
                iter.value().to_vec()
            }
        };
        let writes = {
            let db = db.clone();
            async move {
                db.put_opt_async(&WriteOptions::synced(), b"late", b"1").await.unwrap();
                db.flush_async(&FlushOptions::default()).await.unwrap();
                db.compact_range_async(&CompactRangeOptions::default(), None, None).await.unwrap();
            }
        };
        drop(db);
        pollster::block_on(async move {
            let mut reads = Box::pin(reads);
            if let Some(found) = poll_times(reads.as_mut(), polls).await {
                assert_eq!(found, value(5, 1));
            }
            let mut writes = Box::pin(writes);
            assert_eq!(poll_times(writes.as_mut(), polls).await.is_some(), polls == u64::MAX);
            drop((reads, writes));
        });
        let db = Db::open(path, &options()).unwrap_or_else(|e| panic!("after {polls} polls: {e}"));
        assert!(polls < u64::MAX || db.get("late").unwrap().is_some());
        assert_eq!(db.get(5u64.to_be_bytes()).unwrap().as_deref(), Some(&value(5, 1)[..]));
        drop(db);
    }
    nothing_is_left(before);
}

/// Each transaction holds a handle of the database, which may be the last one.
#[test]
fn transactions_keep_the_database_open_until_they_are_gone() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let open = || TransactionDb::open(path, &options(), &TransactionDbOptions::default()).unwrap();
    drop(open());
    let before = resources();
    let (write, own) = (WriteOptions::new(), TransactionOptions::default());
    let db = open();
    let begin = |name: &str| {
        let mut transaction = db.begin(&write, &own);
        transaction.set_name(name).unwrap();
        transaction.put(name, "1").unwrap();
        transaction
    };
    let (mut committed, left, mut prepared) = (begin("committed"), begin("left"), begin("prepared"));
    let mut iter = committed.iter(&ReadOptions::new()).unwrap();
    drop(db);
    let told = TransactionDb::open(path, &options(), &TransactionDbOptions::default()).unwrap_err();
    assert!(told.to_string().contains("open elsewhere"), "{told}");
    prepared.prepare().unwrap();
    committed.commit().unwrap();
    let told = committed.put("after", "1").unwrap_err();
    assert_eq!(committed.state(), Some(TransactionState::Committed), "{told}");
    drop((committed, left));
    // Another thread drops the last transaction.
    std::thread::spawn(move || drop(prepared)).join().unwrap();
    iter.seek_to_first().unwrap();
    assert_eq!(iter.key(), b"committed", "what it was made over");
    drop(iter);

    let db = open();
    assert_eq!(db.get_all_prepared_transactions(), [b"prepared"]);
    assert!(db.db().get("committed").unwrap().is_some());
    assert!(db.db().get("left").unwrap().is_none());
    db.get_transaction_by_name("prepared").unwrap().commit().unwrap();
    assert!(db.db().get("prepared").unwrap().is_some());
    // The last handle begins a commit whose future is dropped.
    let mut last = db.begin(&write, &own);
    last.put("begun", "1").unwrap();
    drop(db);
    pollster::block_on(async {
        let polled = poll_times(pin!(last.commit_async()), 1).await;
        polled.unwrap_or(Ok(())).unwrap();
    });
    drop(last);
    let opened = opened_at_last(path);
    assert!(opened.db().get("begun").unwrap().is_some());
    drop(opened);
    nothing_is_left(before);
}

/// Opens as soon as the lock is free, because an unawaited commit may end a moment later.
fn opened_at_last(path: &Path) -> TransactionDb {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        match TransactionDb::open(path, &options(), &TransactionDbOptions::default()) {
            Ok(db) => return db,
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
