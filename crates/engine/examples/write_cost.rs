//! What a write costs: threads, batch size, with and without the log. Keys of 16 bytes in random order, values of 100.
//!
//! `cargo run --release -p karst-engine --example write_cost [directory] [seconds] [threads,batch,wal]...`
//!
//! Each row says keys a second and processor time per key of the whole process, background work included; the second counts on a machine that others use too.
//! Compactions are off and memtables as db_bench has them, so that rows are comparable with `db_bench -benchmarks=fillrandom -disable_auto_compactions`.

use karst_engine::{Db, Options, WriteBatch, WriteOptions};
use std::path::Path;
use std::time::{Duration, Instant};

const KEYS: u64 = 10_000_000;

/// Processor time of this process so far.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("procfs");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("fields").split_whitespace().collect();
    let ticks: u64 = [11, 12].iter().map(|i| fields[*i].parse::<u64>().expect("a number")).sum();
    Duration::from_millis(ticks * 10)
}

fn write(db: &Db, options: &WriteOptions, batch_size: u64, seed: u64, deadline: Instant) -> u64 {
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut batch = WriteBatch::new();
    let (mut key, value, mut written) = ([b'0'; 16], [b'v'; 100], 0);
    while written % (64 * batch_size) != 0 || Instant::now() < deadline {
        batch.clear();
        for _ in 0..batch_size {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            key[..8].copy_from_slice(&(random % KEYS).to_be_bytes());
            if batch_size == 1 {
                db.put_opt(options, key, value).expect("a write");
            } else {
                batch.put(key, value).expect("a small batch");
            }
        }
        if batch_size > 1 {
            db.write(options, &batch).expect("a write");
        }
        written += batch_size;
    }
    written
}

fn row(directory: &Path, threads: u64, batch_size: u64, wal: bool, seconds: f64) {
    let path = directory.join("karst_write_cost");
    let options = Options::new()
        .db(|db| {
            db.create_if_missing = true;
            db.max_background_jobs = 4;
        })
        .column_families(|cf| {
            cf.disable_auto_compactions = true;
            cf.max_write_buffer_number = 16;
            cf.level0_slowdown_writes_trigger = 99_999;
            cf.level0_stop_writes_trigger = 99_999;
        });
    Db::destroy(&path, &options).expect("the directory is free");
    let db = Db::open(&path, &options).expect("a new database");
    let write_options = WriteOptions { disable_wal: !wal, ..WriteOptions::new() };
    let (cpu_before, start) = (cpu(), Instant::now());
    let deadline = start + Duration::from_secs_f64(seconds);
    let written: u64 = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..threads)
            .map(|seed| {
                let (db, options) = (&db, &write_options);
                scope.spawn(move || write(db, options, batch_size, seed + 1, deadline))
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().expect("a writer")).sum()
    });
    let (elapsed, cpu) = (start.elapsed(), cpu() - cpu_before);
    println!(
        "threads {threads:3}  batch {batch_size:3}  wal {:3}  {:9.0} keys/s  {:6.2} us CPU/key",
        if wal { "yes" } else { "no" },
        written as f64 / elapsed.as_secs_f64(),
        cpu.as_secs_f64() * 1e6 / written as f64
    );
    db.close().expect("closing");
    drop(db);
    Db::destroy(&path, &options).expect("cleaning up");
}

fn main() {
    let mut args = std::env::args().skip(1);
    let directory = args.next().unwrap_or_else(|| std::env::temp_dir().display().to_string());
    let seconds = args.next().map_or(2.0, |s| s.parse().expect("seconds"));
    let rows: Vec<String> = args.collect();
    if rows.is_empty() {
        for wal in [true, false] {
            for batch in [1, 8] {
                for threads in [1, 2, 8, 32] {
                    row(Path::new(&directory), threads, batch, wal, seconds);
                }
            }
        }
    }
    for text in rows {
        let parts: Vec<u64> = text.split(',').map(|p| p.parse().expect("threads,batch,0 or 1")).collect();
        row(Path::new(&directory), parts[0], parts[1], parts[2] == 1, seconds);
    }
}
