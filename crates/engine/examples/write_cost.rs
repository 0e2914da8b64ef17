//! Cost of a write by number of threads, batch size, and with or without the log. Keys of 16 bytes
//! in random order or ascending per thread, values of 100 bytes.
//!
//! `cargo run --release -p karst-engine --example write_cost [directory] [seconds]
//! [threads,batch,wal[,unordered[,in order]]]...`
//!
//! Each row shows keys per second, and processor time and context switches per key of the whole
//! process, background work included; these two are meaningful on a machine with other load too.
//! Compactions are off and memtables like db_bench's, so that rows are comparable with
//! `db_bench -benchmarks=fillrandom -disable_auto_compactions`.

use karst_engine::{Db, Options, WriteBatch, WriteOptions};
use karst_testkit::processor_time::ProcessorTime;
use std::path::Path;
use std::time::{Duration, Instant};

const KEYS: u64 = 10_000_000;

fn write(
    db: &Db,
    options: &WriteOptions,
    batch_size: u64,
    in_order: bool,
    seed: u64,
    deadline: Instant,
) -> u64 {
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = seed << 40;
    let mut batch = WriteBatch::new();
    let (mut key, value, mut written) = ([b'0'; 16], [b'v'; 100], 0);
    while written % (64 * batch_size) != 0 || Instant::now() < deadline {
        batch.clear();
        for _ in 0..batch_size {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            next += 1;
            key[..8].copy_from_slice(&(if in_order { next } else { random % KEYS }).to_be_bytes());
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

/// Returns the voluntary and the involuntary context switches of this process so far.
fn switches() -> (u64, u64) {
    let mut sum = (0, 0);
    for task in std::fs::read_dir("/proc/self/task").expect("procfs") {
        let status = std::fs::read_to_string(task.expect("a task").path().join("status")).unwrap_or_default();
        let of = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.map_or(0, |count| count.trim().parse::<u64>().expect("a number"))
        };
        sum.0 += of("voluntary_ctxt_switches:");
        sum.1 += of("nonvoluntary_ctxt_switches:");
    }
    sum
}

fn row(
    directory: &Path,
    threads: u64,
    batch_size: u64,
    wal: bool,
    unordered: bool,
    in_order: bool,
    seconds: f64,
) {
    let path = directory.join("karst_write_cost");
    let options = Options::new()
        .db(move |db| {
            db.create_if_missing = true;
            db.unordered_write = unordered;
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
    let done = std::sync::Barrier::new(threads as usize + 1);
    let (cpu_before, start) = (ProcessorTime::now(), Instant::now());
    let deadline = start + Duration::from_secs_f64(seconds);
    let (written, switches): (u64, (u64, u64)) = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..threads)
            .map(|seed| {
                let (db, options, done) = (&db, &write_options, &done);
                scope.spawn(move || {
                    let written = write(db, options, batch_size, in_order, seed + 1, deadline);
                    done.wait();
                    // A thread that has ended no longer counts.
                    done.wait();
                    written
                })
            })
            .collect();
        done.wait();
        let switches = switches();
        done.wait();
        (writers.into_iter().map(|writer| writer.join().expect("a writer")).sum(), switches)
    });
    let (elapsed, cpu) = (start.elapsed(), cpu_before.elapsed().total());
    let per_1000 = |count: u64| count as f64 * 1000.0 / written as f64;
    println!(
        "threads {threads:3}  batch {batch_size:3}  wal {:3}  {:9}  {:9.0} keys/s  {:6.2} us CPU/key  {:6.2} waits and {:6.2} preemptions per 1000 keys",
        if wal { "yes" } else { "no" },
        if unordered { "unordered" } else { "ordered" },
        written as f64 / elapsed.as_secs_f64(),
        cpu.as_secs_f64() * 1e6 / written as f64,
        per_1000(switches.0),
        per_1000(switches.1),
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
                    row(Path::new(&directory), threads, batch, wal, false, false, seconds);
                    row(Path::new(&directory), threads, batch, wal, true, false, seconds);
                }
            }
        }
    }
    for text in rows {
        let parts: Vec<u64> =
            text.split(',').map(|p| p.parse().expect("threads,batch,0 or 1,0 or 1")).collect();
        let unordered = parts.get(3) == Some(&1);
        row(
            Path::new(&directory),
            parts[0],
            parts[1],
            parts[2] == 1,
            unordered,
            parts.get(4) == Some(&1),
            seconds,
        );
    }
}
