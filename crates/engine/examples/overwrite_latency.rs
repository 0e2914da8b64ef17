//! Latency of overwrites at a steady rate: four writers, with the log, 5 million keys of 16 bytes,
//! values of 100 bytes, with concurrent flushes and compactions.
//!
//! `cargo run --release -p karst-engine --example overwrite_latency DIRECTORY KEYS_A_SECOND SECONDS
//! [none|compactions|all]`
//!
//! The last argument selects the threads that run at a lower priority than the writers. A late
//! write is measured from the time when it was due. The directory's database is created anew.
//! `cargo xtask compare --rows write-overwrite` measures this workload against RocksDB.

use karst_engine::{Db, Options};
use karst_io::{Env, Priority};
use karst_testkit::dataset::db_bench_key;
use karst_testkit::latency::{Latencies, Pace};
use karst_testkit::processor_time::ProcessorTime;
use karst_testkit::random::Random;
use std::path::Path;
use std::time::{Duration, Instant};

const KEYS: u64 = 5_000_000;
const WRITERS: u64 = 4;

fn write(db: &Db, writer: u64, step: Duration, end: Instant) -> Latencies {
    let mut latencies = Latencies::new();
    let mut random = Random::new(writer * 7919 + 17);
    let pool = random.bytes(1 << 20);
    let mut pace = Pace::new(step);
    while pace.due().max(Instant::now()) < end {
        let at = random.below((1 << 20) - 100) as usize;
        let from = pace.wait();
        db.put(db_bench_key(random.below(KEYS)), &pool[at..at + 100]).expect("a write");
        latencies.add(from.elapsed().as_nanos() as u64);
    }
    latencies
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, rate, seconds, rest @ ..] = &arguments[..] else {
        panic!("DIRECTORY KEYS_A_SECOND SECONDS [none|compactions|all]")
    };
    let rate: f64 = rate.parse().expect("keys a second");
    let seconds: f64 = seconds.parse().expect("seconds");
    let env = match rest.first().map(String::as_str) {
        None => Env::builder(),
        Some("none") => Env::builder().jobs_give_way(&[]),
        Some("compactions") => Env::builder().jobs_give_way(&Priority::COMPACTIONS),
        Some("all") => Env::builder().jobs_give_way(&Priority::ALL),
        Some(other) => panic!("{other}: none, compactions or all"),
    };
    let path = Path::new(directory);
    let _ = std::fs::remove_dir_all(path);
    let options = "create_if_missing=true;write_buffer_size=67108864;max_write_buffer_number=5;max_background_jobs=4;compression=kNoCompression;\
                   block_based_table_factory={filter_policy=bloomfilter:10:false;}";
    let options = Options::new().set_all(options).expect("options").env(env.build());
    let db = Db::open(path, &options).expect("a database");
    let (time, begin) = (ProcessorTime::now(), Instant::now());
    let step = Duration::from_secs_f64(WRITERS as f64 / rate);
    let end = begin + Duration::from_secs_f64(seconds);
    let mut latencies = Latencies::new();
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                scope.spawn({
                    let db = &db;
                    move || write(db, writer, step, end)
                })
            })
            .collect();
        for writer in writers {
            latencies.merge(&writer.join().expect("a writer"));
        }
    });
    let (elapsed, keys) = (begin.elapsed(), latencies.count() as f64);
    println!(
        "{:.0} keys/s, {:.1} us CPU each; waited, ms: p50 {:.2}, p99 {:.2}, p99.9 {:.2}, worst {:.2}",
        keys / elapsed.as_secs_f64(),
        time.elapsed().total().as_secs_f64() * 1e6 / keys,
        latencies.percentile_us(50.0) / 1e3,
        latencies.percentile_us(99.0) / 1e3,
        latencies.percentile_us(99.9) / 1e3,
        latencies.worst_us() / 1e3,
    );
    db.close().expect("closed");
    std::fs::remove_dir_all(path).expect("removed");
}
