//! The database inside executors: blocking calls made there, which succeed or return an error, and
//! thousands of futures that are dropped before they complete.
//!
//! A blocking call occupies its thread and so delays the tasks that need this thread. It must not
//! wait for any of them: a write that was begun by a task that is no longer polled is completed by
//! the next waiter. A key lock that only such a task can release is waited for up to the caller's
//! timeout.

use karstdb::io::testing::{foreign_block_on, poll_times};
use karstdb::io::{Env, Priority, Reactor, block_on, in_background, reap, spawn_local, yield_now};
use karstdb::{
    CompactRangeOptions, Db, ErrorKind, FlushOptions, Options, ReadOptions, TransactionDb,
    TransactionDbOptions, TransactionOptions, WriteBatch, WriteOptions,
};
use std::future::Future;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Time limit that only a wait without end reaches.
const FOREVER: Duration = Duration::from_secs(600);

const TASKS: u64 = 32;
const ROUNDS: u64 = 20;

fn options() -> Options {
    let options = Options::new().db(|db| {
        db.create_if_missing = true;
        db.create_missing_column_families = true;
    });
    options.set_all("merge_operator=uint64add;write_buffer_size=65536").unwrap()
}

/// Runs `work` on a thread of its own, and panics if it does not end.
fn ends<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = channel();
    let worker = std::thread::spawn(move || {
        let result = work();
        tell.send(()).unwrap();
        result
    });
    match told.recv_timeout(FOREVER) {
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("{what} does not end"),
        _ => worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
    }
}

/// Operations of one task: tasks with even numbers block their thread with each call, the others
/// await.
async fn mixture(db: Db, task: u64) {
    let synced = WriteOptions { sync: true, ..WriteOptions::new() };
    for round in 0..ROUNDS {
        let (own, one) = (format!("{task:02}-{round:02}"), 1u64.to_le_bytes());
        if task.is_multiple_of(2) {
            db.put(&own, vec![b'x'; 700]).unwrap();
            db.merge("sum", one).unwrap();
            if round % 7 == 3 {
                db.put_opt(&synced, &own, "synced").unwrap();
                db.flush(&FlushOptions::default()).unwrap();
            }
            assert!(db.get(&own).unwrap().is_some());
            let mut iter = db.iter(&ReadOptions::new()).unwrap();
            iter.seek(&own).unwrap();
            assert_eq!(iter.key(), own.as_bytes());
        } else {
            db.put_async(own.as_bytes(), &[b'y'; 700]).await.unwrap();
            db.merge_async(b"sum", &one).await.unwrap();
            if round % 7 == 3 {
                db.put_opt_async(&synced, own.as_bytes(), b"synced").await.unwrap();
                db.flush_async(&FlushOptions::default()).await.unwrap();
            }
            assert!(db.get_async(own.as_bytes()).await.unwrap().is_some());
        }
        yield_now().await;
    }
    if task == 0 {
        db.compact_range(&CompactRangeOptions::default(), None, None).unwrap();
        let other = db.create_column_family("other", &Options::new()).unwrap();
        db.drop_column_family(&other).unwrap();
    }
}

type Tasks = Vec<Pin<Box<dyn Future<Output = ()> + Send>>>;

/// Runs all tasks on an executor. The last handle of the database is dropped there, and another
/// database is opened and closed there.
fn check(what: &'static str, run: impl FnOnce(Tasks) + Send + 'static) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    let db = Db::open(&path, &options()).unwrap();
    let mut tasks: Tasks = (0..TASKS).map(|task| Box::pin(mixture(db.clone(), task)) as _).collect();
    let elsewhere = path.join("elsewhere");
    tasks.push(Box::pin(async move {
        let db = Db::open(&elsewhere, &options()).unwrap();
        db.put("key", "value").unwrap();
        db.close().unwrap();
    }));
    drop(db);
    ends(what, move || run(tasks));
    let db = Db::open(&path, &options()).unwrap();
    assert_eq!(number(&db, "sum"), TASKS * ROUNDS, "{what}");
    for task in 0..TASKS {
        let last = format!("{task:02}-{:02}", ROUNDS - 1);
        assert!(db.get(&last).unwrap().is_some(), "{what}: {last}");
    }
}

fn number(db: &Db, key: &str) -> u64 {
    db.get(key).unwrap().map_or(0, |value| u64::from_le_bytes(value.as_ref().try_into().unwrap()))
}

fn tokio_of(workers: usize) -> tokio::runtime::Runtime {
    match workers {
        0 => tokio::runtime::Builder::new_current_thread().build().unwrap(),
        _ => tokio::runtime::Builder::new_multi_thread().worker_threads(workers).build().unwrap(),
    }
}

fn on_tokio(runtime: &tokio::runtime::Runtime, tasks: Tasks) {
    runtime.block_on(async {
        let tasks: Vec<_> = tasks.into_iter().map(tokio::spawn).collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
}

/// Functions of `karstdb::io` for blocking callers: `in_background` returns true in a job, and
/// `reap` collects dropped reads.
#[test]
fn callers_can_ask_whether_they_are_part_of_a_job() {
    let env = Env::posix();
    assert!(!in_background());
    let of_a_job = env.spawn(Priority::Low, async { in_background() });
    assert!(block_on(&env, of_a_job).unwrap());
    assert!(block_on(&env, env.run_blocking(|_| in_background())));
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(directory.path(), &options().env(env.clone())).unwrap();
    db.put("key", "value").unwrap();
    db.flush(&FlushOptions::default()).unwrap();
    // The future is dropped in the middle of its read.
    let given_up = foreign_block_on(poll_times(pin!(db.get_async(b"key")), 1));
    assert!(given_up.is_none(), "the read did not wait");
    reap(&env);
    assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]));
    db.close().unwrap();
}

#[test]
fn blocking_calls_work_in_tasks_of_one_thread_of_tokio() {
    check("one thread", |tasks| on_tokio(&tokio_of(0), tasks));
}

#[test]
fn blocking_calls_work_in_tasks_of_several_threads_of_tokio() {
    check("several threads", |tasks| on_tokio(&tokio_of(2), tasks));
}

#[test]
fn blocking_calls_work_in_tasks_of_a_reactor() {
    check("a reactor", |tasks| {
        let reactor = Reactor::builder(&Env::posix()).threads(1).build().unwrap();
        let all = reactor.spawn(move || async move {
            let tasks: Vec<_> = tasks.into_iter().map(spawn_local).collect();
            for task in tasks {
                task.await.unwrap();
            }
        });
        all.join().unwrap();
    });
}

/// Only the task that holds the key's lock could release it, and it needs the blocked thread.
#[test]
fn who_blocks_the_thread_that_his_lock_needs_is_told_after_his_time_is_up() {
    ends("a transaction", || {
        tokio_of(0).block_on(async {
            let directory = tempfile::tempdir().unwrap();
            let patience = TransactionDbOptions { default_lock_timeout: 200, ..Default::default() };
            let db = TransactionDb::open(directory.path(), &options(), &patience).unwrap();
            let (holder, tried) = (db.clone(), Arc::new(AtomicBool::new(false)));
            let may_end = tried.clone();
            let holds = tokio::spawn(async move {
                let write = WriteOptions::new();
                let mut transaction = holder.begin(&write, &TransactionOptions::default());
                transaction.put_async(b"key", b"of the holder").await.unwrap();
                // No fixed number of yields, because a task may be polled many times before the
                // other one is.
                while !may_end.load(Relaxed) {
                    yield_now().await;
                }
                transaction.commit_async().await.unwrap();
            });
            while db.lock_status().is_empty() {
                yield_now().await;
            }
            let began = Instant::now();
            let told = db.put("key", "of another").unwrap_err();
            assert_eq!(told.kind(), ErrorKind::TimedOut, "{told}");
            assert!(began.elapsed() >= Duration::from_millis(200));
            tried.store(true, Relaxed);
            holds.await.unwrap();
            db.put("key", "of another").unwrap();
        });
    });
}

/// Increments a counter of the task and a shared one, in two families, `calls` times, and drops
/// most of the calls after some polls. Returns the number of acknowledged increments and the
/// maximum number.
async fn adds_and_gives_up(db: Db, task: u64, calls: u64) -> (u64, u64) {
    let other = db.column_family("other").unwrap();
    let (mut acknowledged, mut possible) = (0, 0);
    let (own, one) = (format!("of {task}"), 1u64.to_le_bytes());
    for call in 0..calls {
        let drawn = mixed(task * calls + call);
        let mut batch = WriteBatch::new();
        batch.merge("all", one).unwrap();
        batch.merge(&own, one).unwrap();
        batch.merge_cf(&other, "all", one).unwrap();
        batch.merge_cf(&other, &own, one).unwrap();
        let options = WriteOptions { sync: drawn.is_multiple_of(50), ..WriteOptions::new() };
        let polls = if drawn.is_multiple_of(3) { u64::MAX } else { drawn / 64 % 4 };
        let written = poll_times(pin!(db.write_async(&options, &batch)), polls).await;
        possible += u64::from(polls > 0);
        if let Some(written) = written {
            written.unwrap();
            acknowledged += 1;
        }
        // Reads and flushes are dropped too.
        match drawn / 1024 % 64 {
            0 => drop(poll_times(pin!(db.flush_async(&FlushOptions::default())), polls).await),
            1..16 => {
                let found = poll_times(pin!(db.get_async(own.as_bytes())), polls).await;
                let found = found.map(|found| found.unwrap().map_or(0, |value| counter(&value)));
                assert!(found.is_none_or(|found| (acknowledged..=possible).contains(&found)), "{found:?}");
            }
            16..20 => {
                let mut iter = db.iter(&ReadOptions::new()).unwrap();
                drop(poll_times(pin!(iter.seek_async("of ")), polls).await);
            }
            _ => yield_now().await,
        }
    }
    (acknowledged, possible)
}

fn counter(value: &[u8]) -> u64 {
    u64::from_le_bytes(value.try_into().expect("a counter has eight bytes"))
}

fn mixed(i: u64) -> u64 {
    let z = (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z ^ (z >> 29)
}

/// Returns the counters of both families by iterators; `get` must agree.
fn counters(db: &Db) -> [Vec<(Vec<u8>, u64)>; 2] {
    ["default", "other"].map(|family| {
        let family = db.column_family(family).unwrap();
        let mut iter = db.iter_cf(&ReadOptions::new(), &family).unwrap();
        iter.seek_to_first().unwrap();
        let mut found = Vec::new();
        while iter.valid() {
            let got = db.get_cf(&ReadOptions::new(), &family, iter.key()).unwrap().unwrap();
            assert_eq!(got.as_ref(), iter.value());
            found.push((iter.key().to_vec(), counter(iter.value())));
            iter.next().unwrap();
        }
        found
    })
}

#[test]
fn a_thousand_tasks_that_give_up_half_way_neither_lose_nor_tear_nor_repeat_anything() {
    const MANY: u64 = 1_000;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    let at = path.clone();
    let given_up = Arc::new(AtomicU64::new(0));
    let told = given_up.clone();
    let bounds: Vec<(u64, u64)> = ends("a thousand tasks", move || {
        let db = open_both(&at);
        let bounds = tokio_of(3).block_on(async {
            let start = |task| tokio::spawn(adds_and_gives_up(db.clone(), task, 20));
            let tasks: Vec<_> = (0..MANY).map(start).collect();
            let mut bounds = Vec::new();
            for task in tasks {
                bounds.push(task.await.unwrap());
            }
            bounds
        });
        told.store(bounds.iter().map(|(least, most)| most - least).sum(), Relaxed);
        db.close().unwrap();
        bounds
    });
    let (least, most) = bounds.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    println!("{least} batches acknowledged, of {most} that were begun");
    assert!(given_up.load(Relaxed) > 1_000, "hardly any call was given up: the test shows nothing");
    for opening in 0..2 {
        let db = open_both(&path);
        let [first, second] = counters(&db);
        assert_eq!(first, second, "opening {opening}: a batch is torn");
        let all = first.iter().find(|(key, _)| key == b"all").unwrap().1;
        assert!((least..=most).contains(&all), "opening {opening}: {all} is not within {least}..={most}");
        let of_tasks: u64 = first.iter().filter(|(key, _)| key != b"all").map(|(_, count)| count).sum();
        assert_eq!(of_tasks, all, "opening {opening}: a batch is torn");
        for (task, (least, most)) in bounds.iter().enumerate() {
            let own = format!("of {task}");
            let found = first.iter().find(|(key, _)| key == own.as_bytes()).map_or(0, |found| found.1);
            assert!((*least..=*most).contains(&found), "{own}: {found} is not within {least}..={most}");
        }
        db.verify_checksum().unwrap();
        db.compact_range(&CompactRangeOptions::default(), None, None).unwrap();
        db.close().unwrap();
    }
}

fn open_both(path: &Path) -> Db {
    Db::open_cf(path, &options(), &["default", "other"]).unwrap()
}
