//! The workloads: each generates the same keys from the same seeds for every engine, checks every
//! answer, and counts its operations.

use super::data::{self, TREE_ENTRIES, TREE_KEY_LEN, VALUE_KEY_LEN, VALUES};
use super::measure::{Deadline, Figures, Meter};
use karst_engine::{Db, ReadOptions};
use karst_io::{Env, Reactor, spawn_local};
use karst_testkit::random::Random;
use rocksdb::DB;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Draws a uniformly random key; each worker has a seed of its own.
fn key_of(random: &mut Random) -> (u64, Vec<u8>) {
    let number = random.below(VALUES);
    (number, data::key(number, VALUE_KEY_LEN))
}

fn check_value(number: u64, value: Option<&[u8]>) -> Result<(), String> {
    match value {
        Some(value) if value.len() == data::VALUE_LEN && value[..8] == number.to_be_bytes() => Ok(()),
        Some(_) => Err(format!("key {number}: a wrong value")),
        None => Err(format!("key {number} was not found")),
    }
}

/// db_bench's batch of a strided multireadrandom over the tree.
fn strided(random: &mut Random, batch: u64, stride: u64) -> Vec<Vec<u8>> {
    let mut number = random.below(TREE_ENTRIES);
    if number + (batch - 1) * stride >= TREE_ENTRIES {
        number = TREE_ENTRIES - batch * stride;
    }
    (0..batch).map(|i| data::key(number + i * stride, TREE_KEY_LEN)).collect()
}

fn seed(worker: usize) -> u64 {
    worker as u64 * 7919 + 17
}

/// Runs `work`, which returns its number of operations, on `threads` threads until the deadline.
fn on_threads(
    threads: usize,
    seconds: f64,
    work: impl Fn(&mut Random) -> Result<u64, String> + Sync,
) -> Result<(Figures, u64), String> {
    let (total, calls) = (AtomicU64::new(0), AtomicU64::new(0));
    let meter = Meter::start();
    let deadline = Deadline::after(seconds);
    let results: Vec<Result<(), String>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|worker| {
                let (work, total, calls) = (&work, &total, &calls);
                scope.spawn(move || {
                    let mut random = Random::new(seed(worker));
                    let (mut done, mut count) = (0, 0);
                    while !deadline.passed() {
                        done += work(&mut random)?;
                        count += 1;
                    }
                    total.fetch_add(done, Ordering::Relaxed);
                    calls.fetch_add(count, Ordering::Relaxed);
                    Ok(())
                })
            })
            .collect();
        workers.into_iter().map(|w| w.join().unwrap_or_else(|_| Err("a worker panicked".into()))).collect()
    });
    let figures = meter.stop(total.into_inner());
    results.into_iter().collect::<Result<Vec<()>, String>>()?;
    Ok((figures, calls.into_inner()))
}

fn with_batch_time(figures: Figures, calls: u64, threads: usize) -> Figures {
    let batch_ms = Some(figures.seconds * 1000.0 * threads as f64 / calls.max(1) as f64);
    Figures { batch_ms, ..figures }
}

/// Replaces the process's count of read system calls by KarstDB's own count of reads. The bytes
/// remain those that storage delivered, alignment included.
fn with_counts(figures: Figures, env: &Env, before: karst_io::IoStats) -> Result<Figures, String> {
    let after = env.io_stats();
    if after.errors != before.errors {
        return Err(format!("{} reads failed", after.errors - before.errors));
    }
    Ok(Figures { reads: Some((after.reads - before.reads) as f64), ..figures })
}

/// Point reads by RocksDB's synchronous Get.
pub(super) fn rocks_get(db: &DB, threads: usize, seconds: f64) -> Result<Figures, String> {
    let options = rocksdb::ReadOptions::default();
    on_threads(threads, seconds, |random| {
        let (number, key) = key_of(random);
        let value = db.get_pinned_opt(key, &options).map_err(|e| e.to_string())?;
        check_value(number, value.as_deref()).map(|()| 1)
    })
    .map(|(figures, _)| figures)
}

/// Point reads by KarstDB's synchronous get.
pub(super) fn karst_get(db: &Db, threads: usize, seconds: f64) -> Result<Figures, String> {
    let before = db.env().io_stats();
    let (figures, _) = on_threads(threads, seconds, |random| {
        let (number, key) = key_of(random);
        let value = db.get(key).map_err(|e| e.to_string())?;
        check_value(number, value.as_deref()).map(|()| 1)
    })?;
    with_counts(figures, db.env(), before)
}

/// Point reads by tasks of one reactor thread, `depth` of them in flight.
pub(super) fn karst_reactor(db: &Db, depth: usize, seconds: f64) -> Result<Figures, String> {
    let reactor = Reactor::builder(db.env()).build().map_err(|e| e.to_string())?;
    let before = db.env().io_stats();
    let meter = Meter::start();
    let deadline = Deadline::after(seconds);
    let store = db.clone();
    let all = move || async move {
        let count = Rc::new(Cell::new(0_u64));
        let tasks: Vec<_> = (0..depth)
            .map(|worker| {
                let (db, count) = (store.clone(), count.clone());
                spawn_local(async move {
                    let options = ReadOptions::default();
                    let mut random = Random::new(seed(worker));
                    while !deadline.passed() {
                        let (number, key) = key_of(&mut random);
                        let value = db.get_opt_async(&options, &key).await.map_err(|e| e.to_string())?;
                        check_value(number, value.as_deref())?;
                        count.set(count.get() + 1);
                    }
                    Ok::<(), String>(())
                })
            })
            .collect();
        for task in tasks {
            task.await.map_err(|e| format!("{e:?}"))??;
        }
        Ok::<u64, String>(count.get())
    };
    let done = reactor.spawn(all).join().map_err(|e| format!("{e:?}"))??;
    let figures = meter.stop(done);
    with_counts(figures, db.env(), before)
}

/// Batches over the tree by RocksDB's MultiGet.
pub(super) fn rocks_multi_get(
    db: &DB,
    async_io: bool,
    batch: u64,
    stride: u64,
    threads: usize,
    seconds: f64,
) -> Result<Figures, String> {
    let family = db.cf_handle("default").ok_or("no default column family")?;
    let (figures, calls) = on_threads(threads, seconds, |random| {
        let mut options = rocksdb::ReadOptions::default();
        options.set_async_io(async_io);
        let keys = strided(random, batch, stride);
        let values = db.batched_multi_get_cf_opt(family, &keys, false, &options);
        for value in values {
            value.map_err(|e| e.to_string())?.ok_or("a key was not found")?;
        }
        Ok(batch)
    })?;
    let figures = Figures { reads: None, ..figures };
    Ok(with_batch_time(figures, calls, threads))
}

/// Batches over the tree by KarstDB's synchronous multi_get.
pub(super) fn karst_multi_get(
    db: &Db,
    options: &ReadOptions,
    batch: u64,
    stride: u64,
    threads: usize,
    seconds: f64,
) -> Result<Figures, String> {
    let before = db.env().io_stats();
    let family = db.default_column_family();
    let (figures, calls) = on_threads(threads, seconds, |random| {
        for value in db.multi_get_cf(options, family, &strided(random, batch, stride)) {
            value.map_err(|e| e.to_string())?.ok_or("a key was not found")?;
        }
        Ok(batch)
    })?;
    Ok(with_batch_time(with_counts(figures, db.env(), before)?, calls, threads))
}

/// Seeks to random keys of the tree by RocksDB, `nexts` moves after each; an operation is a move.
pub(super) fn rocks_seeks(
    db: &DB,
    async_io: bool,
    nexts: u64,
    threads: usize,
    seconds: f64,
) -> Result<Figures, String> {
    let (figures, _) = on_threads(threads, seconds, |random| {
        let mut options = rocksdb::ReadOptions::default();
        options.set_async_io(async_io);
        let mut iter = db.raw_iterator_opt(options);
        iter.seek(data::key(random.below(TREE_ENTRIES), TREE_KEY_LEN));
        let mut moves = 0;
        while moves < nexts && iter.valid() {
            iter.next();
            moves += 1;
        }
        iter.status().map_err(|e| e.to_string()).map(|()| moves.max(1))
    })?;
    Ok(Figures { reads: None, ..figures })
}

/// Seeks to random keys of the tree by KarstDB, `nexts` moves after each; an operation is a move.
pub(super) fn karst_seeks(db: &Db, nexts: u64, threads: usize, seconds: f64) -> Result<Figures, String> {
    let before = db.env().io_stats();
    let (figures, _) = on_threads(threads, seconds, |random| {
        let mut iter = db.iter(&ReadOptions::default()).map_err(|e| e.to_string())?;
        iter.seek(data::key(random.below(TREE_ENTRIES), TREE_KEY_LEN)).map_err(|e| e.to_string())?;
        let mut moves = 0;
        while moves < nexts && iter.valid() {
            iter.next().map_err(|e| e.to_string())?;
            moves += 1;
        }
        Ok(moves.max(1))
    })?;
    with_counts(figures, db.env(), before)
}

/// Number of keys of the cached rows: a part of the tree that fits every cache and is read once
/// before.
pub(super) const CACHED: u64 = 100_000;

fn cached_key(random: &mut Random) -> Vec<u8> {
    data::key(random.below(CACHED) * (TREE_ENTRIES / CACHED), TREE_KEY_LEN)
}

fn missing() -> String {
    "a key was not found".into()
}

/// Runs a workload without file reads on one thread; `some` does several operations between two
/// looks at the clock and returns their number.
fn cached_loop(
    seconds: f64,
    mut some: impl FnMut(&mut Random) -> Result<u64, String>,
) -> Result<Figures, String> {
    let mut random = Random::new(5);
    let meter = Meter::start();
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    let mut done = 0;
    while Instant::now() < until {
        done += some(&mut random)?;
    }
    let figures = meter.stop(done);
    Ok(Figures { reads: None, bytes: None, ..figures })
}

/// Cached gets, or batches of `batch`, by RocksDB.
pub(super) fn rocks_cached(db: &DB, batch: usize, seconds: f64) -> Result<Figures, String> {
    let family = db.cf_handle("default").ok_or("no default column family")?;
    let options = rocksdb::ReadOptions::default();
    cached_loop(seconds, |random| {
        if batch == 1 {
            for _ in 0..64 {
                let value = db.get_pinned_opt(cached_key(random), &options).map_err(|e| e.to_string())?;
                value.ok_or_else(missing)?;
            }
            return Ok(64);
        }
        let keys: Vec<Vec<u8>> = (0..batch).map(|_| cached_key(random)).collect();
        for value in db.batched_multi_get_cf_opt(family, &keys, false, &options) {
            value.map_err(|e| e.to_string())?.ok_or_else(missing)?;
        }
        Ok(batch as u64)
    })
}

/// Cached gets, or batches of `batch`, by KarstDB, synchronous or asynchronous.
pub(super) fn karst_cached(
    db: &Db,
    batch: usize,
    asynchronous: bool,
    seconds: f64,
) -> Result<Figures, String> {
    let options = ReadOptions::default();
    let family = db.default_column_family();
    if asynchronous {
        // A future that is ready at its first poll needs no executor beyond this one.
        return crate::karst::foreign_block_on(async {
            let mut random = Random::new(5);
            let meter = Meter::start();
            let until = Instant::now() + Duration::from_secs_f64(seconds);
            let mut done = 0;
            while Instant::now() < until {
                if batch == 1 {
                    for _ in 0..64 {
                        let key = cached_key(&mut random);
                        db.get_opt_async(&options, &key)
                            .await
                            .map_err(|e| e.to_string())?
                            .ok_or_else(missing)?;
                    }
                    done += 64;
                } else {
                    let keys: Vec<Vec<u8>> = (0..batch).map(|_| cached_key(&mut random)).collect();
                    for value in db.multi_get_cf_async(&options, family, &keys).await {
                        value.map_err(|e| e.to_string())?.ok_or_else(missing)?;
                    }
                    done += batch as u64;
                }
            }
            let figures = meter.stop(done);
            Ok(Figures { reads: None, bytes: None, ..figures })
        });
    }
    cached_loop(seconds, |random| {
        if batch == 1 {
            for _ in 0..64 {
                db.get_opt(&options, cached_key(random)).map_err(|e| e.to_string())?.ok_or_else(missing)?;
            }
            return Ok(64);
        }
        let keys: Vec<Vec<u8>> = (0..batch).map(|_| cached_key(random)).collect();
        for value in db.multi_get_cf(&options, family, &keys) {
            value.map_err(|e| e.to_string())?.ok_or_else(missing)?;
        }
        Ok(batch as u64)
    })
}

/// Gets every key of the cached rows once.
pub(super) fn warm(mut get: impl FnMut(&[u8]) -> Result<bool, String>) -> Result<(), String> {
    for number in 0..CACHED {
        if !get(&data::key(number * (TREE_ENTRIES / CACHED), TREE_KEY_LEN))? {
            return Err(missing());
        }
    }
    Ok(())
}

/// A scan forward by RocksDB: entries, and bytes of keys and values.
pub(super) fn rocks_scan(db: &DB, options: rocksdb::ReadOptions, seconds: f64) -> Result<Figures, String> {
    let mut iter = db.raw_iterator_opt(options);
    let meter = Meter::start();
    let deadline = Deadline::after(seconds);
    let mut bytes = 0_u64;
    iter.seek_to_first();
    while let Some((key, value)) = iter.item() {
        bytes += (key.len() + value.len()) as u64;
        if deadline.passed() {
            break;
        }
        iter.next();
    }
    iter.status().map_err(|e| e.to_string())?;
    Ok(megabytes(meter, bytes))
}

/// A scan forward by KarstDB.
pub(super) fn karst_scan(db: &Db, options: &ReadOptions, seconds: f64) -> Result<Figures, String> {
    let before = db.env().io_stats();
    let mut iter = db.iter(options).map_err(|e| e.to_string())?;
    let meter = Meter::start();
    let deadline = Deadline::after(seconds);
    let mut bytes = 0_u64;
    iter.seek_to_first().map_err(|e| e.to_string())?;
    while iter.valid() {
        bytes += (iter.key().len() + iter.value().len()) as u64;
        if deadline.passed() {
            break;
        }
        iter.next().map_err(|e| e.to_string())?;
    }
    with_counts(megabytes(meter, bytes), db.env(), before)
}

/// The unit of a scan is a megabyte (10^6 bytes) of keys and values.
fn megabytes(meter: Meter, bytes: u64) -> Figures {
    let figures = meter.stop(1);
    Figures { operations: bytes as f64 / 1e6, ..figures }
}

/// Mean time of one batch of 64 keys on a database that was just opened.
pub(super) fn cold_batch(
    runs: usize,
    mut open_and_read: impl FnMut(&[Vec<u8>]) -> Result<Duration, String>,
) -> Result<Figures, String> {
    let mut random = Random::new(99);
    let meter = Meter::start();
    let mut total = Duration::ZERO;
    for _ in 0..runs {
        let mut keys: Vec<Vec<u8>> = (0..64).map(|_| key_of(&mut random).1).collect();
        keys.sort();
        keys.dedup();
        total += open_and_read(&keys)?;
    }
    let figures = meter.stop(runs as u64);
    let batch_ms = Some(total.as_secs_f64() * 1000.0 / runs as f64);
    Ok(Figures { seconds: total.as_secs_f64(), batch_ms, reads: None, bytes: None, ..figures })
}
