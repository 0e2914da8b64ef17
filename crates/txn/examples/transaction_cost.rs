//! Measures the cost of a transaction of two keys:
//! `transaction_cost DIRECTORY [THREADS] [SECONDS] [prepare] [write-prepared]`.
//!
//! Each transaction reads two of 500,000 keys for update, writes them and commits, with a log; with
//! `prepare` it is prepared first. The directory is created and removed. Prints transactions per
//! second and CPU time per transaction.

use karst_engine::{Options, ReadOptions, WriteBatch, WriteOptions};
use karst_testkit::dataset::db_bench_key as key;
use karst_testkit::processor_time::ProcessorTime;
use karst_testkit::random::Random;
use karst_txn::{TransactionDb, TransactionDbOptions, TransactionOptions, WritePolicy};
use std::path::Path;
use std::time::{Duration, Instant};

const KEYS: u64 = 500_000;

/// Runs transactions until `until`, and returns their number.
fn work(db: &TransactionDb, thread: u64, until: Instant, prepare: bool) -> u64 {
    let (write, read) = (WriteOptions::default(), ReadOptions::new());
    let (name, mut done) = (format!("t{thread}"), 0);
    let mut random = Random::new(thread);
    while Instant::now() < until {
        let mut transaction = db.begin(&write, &TransactionOptions::default());
        for key in [key(random.below(KEYS)), key(random.below(KEYS))] {
            transaction.get_for_update(&read, key).expect("a lock and a read");
            transaction.put(key, [b'v'; 100]).expect("a write");
        }
        if prepare {
            transaction.set_name(&name).expect("a name");
            transaction.prepare().expect("prepare");
        }
        transaction.commit().expect("commit");
        done += 1;
    }
    done
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let has = |word: &str| args.iter().any(|arg| arg == word);
    let numbers: Vec<f64> = args.iter().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    let threads = numbers.first().map_or(2, |n| *n as u64);
    let seconds = numbers.get(1).copied().unwrap_or(2.0);
    let path = Path::new(&args[0]);
    let options = Options::new().db(|db| db.create_if_missing = true);
    let mut transactions = TransactionDbOptions::default();
    if has("write-prepared") {
        transactions.write_policy = WritePolicy::WritePrepared;
    }
    let db = TransactionDb::open(path, &options, &transactions).expect("open");
    for first in (0..KEYS).step_by(100) {
        let mut batch = WriteBatch::new();
        (first..first + 100).for_each(|number| batch.put(key(number), [b'v'; 100]).expect("room"));
        db.write(&WriteOptions::default(), &batch).expect("load");
    }
    let (before, begin) = (ProcessorTime::now(), Instant::now());
    let until = begin + Duration::from_secs_f64(seconds);
    let done: u64 = std::thread::scope(|scope| {
        let work = |thread| work(&db, thread, until, has("prepare"));
        let workers: Vec<_> = (1..=threads).map(|thread| scope.spawn(move || work(thread))).collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker")).sum()
    });
    let (cpu, elapsed) = (before.elapsed(), begin.elapsed().as_secs_f64());
    println!(
        "{:.0} transactions/s, CPU {:.2} us user + {:.2} us system a transaction",
        done as f64 / elapsed,
        cpu.user.as_secs_f64() * 1e6 / done as f64,
        cpu.system.as_secs_f64() * 1e6 / done as f64
    );
    db.db().close().expect("close");
    std::fs::remove_dir_all(path).expect("remove the directory");
}
