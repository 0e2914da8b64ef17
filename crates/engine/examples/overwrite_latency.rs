//! How long overwrites wait that come at a steady pace: four writers, with the log, 5 million keys of 16 bytes, values of 100; flushes and compactions beside them.
//!
//! `cargo run --release -p karst-engine --example overwrite_latency DIRECTORY KEYS_A_SECOND SECONDS [none|compactions|all]`
//!
//! The last says whose threads give way to the writers. A write that is late counts from when it was due. The directory's database is made anew.
//! `cargo xtask compare --rows write-overwrite` measures the same beside RocksDB.

use karst_engine::{Db, Options};
use karst_io::{Env, Priority};
use karst_testkit::dataset::db_bench_key;
use karst_testkit::processor_time::ProcessorTime;
use karst_testkit::random::Random;
use std::path::Path;
use std::time::{Duration, Instant};

const KEYS: u64 = 5_000_000;
const WRITERS: u64 = 4;

/// Writes by how long they waited, in steps of 10 us up to 10 s.
struct Waited(Vec<u64>);

impl Waited {
    fn new() -> Self {
        Self(vec![0; 1_000_000])
    }

    fn add(&mut self, time: Duration) {
        let last = self.0.len() - 1;
        self.0[(time.as_micros() as usize / 10).min(last)] += 1;
    }

    fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// What so many of a thousand did not exceed, in milliseconds.
    fn per_mille(&self, share: f64) -> f64 {
        let (most, mut seen) = (self.count() as f64 * share / 1000.0, 0);
        let found = self.0.iter().position(|count| {
            seen += count;
            seen as f64 >= most
        });
        (found.expect("the counts add up") + 1) as f64 / 100.0
    }
}

fn write(db: &Db, writer: u64, step: Duration, end: Instant) -> Waited {
    let mut waited = Waited::new();
    let mut random = Random::new(writer * 7919 + 17);
    let pool = random.bytes(1 << 20);
    let mut due = Instant::now();
    while due.max(Instant::now()) < end {
        let at = random.below((1 << 20) - 100) as usize;
        let now = Instant::now();
        // Why: a sleep overshoots by some 50 us; below that the schedule is kept by bursts.
        let from = if due > now + Duration::from_micros(60) {
            std::thread::sleep(due - now);
            Instant::now()
        } else {
            due.min(now)
        };
        due += step;
        db.put(db_bench_key(random.below(KEYS)), &pool[at..at + 100]).expect("a write");
        waited.add(from.elapsed());
    }
    waited
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
        Some("compactions") => Env::builder().jobs_give_way(&[Priority::Low, Priority::Bottom]),
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
    let mut waited = Waited::new();
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
            let of_writer = writer.join().expect("a writer");
            waited.0.iter_mut().zip(of_writer.0).for_each(|(sum, count)| *sum += count);
        }
    });
    let (elapsed, keys) = (begin.elapsed(), waited.count() as f64);
    println!(
        "{:.0} keys/s, {:.1} us CPU each; waited, ms: p50 {:.2}, p99 {:.2}, p99.9 {:.2}, worst {:.2}",
        keys / elapsed.as_secs_f64(),
        time.elapsed().total().as_secs_f64() * 1e6 / keys,
        waited.per_mille(500.0),
        waited.per_mille(990.0),
        waited.per_mille(999.0),
        waited.per_mille(1000.0),
    );
    db.close().expect("closed");
    std::fs::remove_dir_all(path).expect("removed");
}
