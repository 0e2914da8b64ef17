//! What a write costs, without a database around the pipeline. Run by hand:
//! `cargo test --release -p karst-engine --lib write::tests::cost -- --ignored --nocapture`, with `KARST_COST="threads,batch,wal,seconds"` for one row only.

use super::*;
use std::time::{Duration, Instant};

fn row(threads: usize, batch_size: u64, wal: bool, seconds: f64) {
    let directory = tempfile::tempdir().unwrap();
    let bench = Bench::on(Env::posix(), directory.path(), rules(), &[CF]);
    let options = WriteOptions { disable_wal: !wal, ..WriteOptions::new() };
    let deadline = Instant::now() + Duration::from_secs_f64(seconds);
    let cpu_before = cpu_us();
    let start = Instant::now();
    let written: u64 = std::thread::scope(|scope| {
        let switcher = scope.spawn(|| {
            let mut log = 2;
            while Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(2));
                if bench.memtables.lock()[&CF].memory_bytes() > 64 << 20 {
                    drop(bench.seal(Some(log)));
                    let _ = bench.env.fs().remove(&bench.log_path(log - 1));
                    bench.pipeline.release_logs(FileNumber(log));
                    log += 1;
                }
            }
        });
        let threads: Vec<_> = (0..threads)
            .map(|thread| {
                let (bench, options) = (&bench, &options);
                scope.spawn(move || {
                    let mut random = thread as u64 + 1;
                    let mut batch = WriteBatch::new();
                    let value = [b'v'; 100];
                    let mut key = [b'0'; 16];
                    let mut count = 0;
                    while count % 64 != 0 || Instant::now() < deadline {
                        batch.clear();
                        for _ in 0..batch_size {
                            random ^= random << 13;
                            random ^= random >> 7;
                            random ^= random << 17;
                            key[..8].copy_from_slice(&(random % 10_000_000).to_be_bytes());
                            if batch_size == 1 {
                                bench.write(options, put(&key, &value)).unwrap();
                            } else {
                                batch.put(key, value).unwrap();
                            }
                        }
                        if batch_size > 1 {
                            bench.pipeline.write(options, Source::Batch(&batch)).unwrap();
                        }
                        count += 1;
                    }
                    count * batch_size
                })
            })
            .collect();
        let sum = threads.into_iter().map(|t| t.join().unwrap()).sum();
        switcher.join().unwrap();
        sum
    });
    let elapsed = start.elapsed().as_secs_f64();
    let cpu = (cpu_us() - cpu_before) as f64 / written as f64;
    let rate = written as f64 / elapsed / 1000.0;
    println!(
        "threads {threads:2}  batch {batch_size}  wal {wal:5}  {rate:8.0} k keys/s  {cpu:.2} us CPU/key"
    );
}

/// Processor time of this process.
fn cpu_us() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    (fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()) * 10_000
}

#[test]
#[ignore = "a measurement"]
fn cost_of_writes() {
    if let Ok(text) = std::env::var("KARST_COST") {
        let parts: Vec<&str> = text.split(',').collect();
        let wal = parts[2] == "true";
        return row(parts[0].parse().unwrap(), parts[1].parse().unwrap(), wal, parts[3].parse().unwrap());
    }
    for wal in [true, false] {
        for batch in [1, 8] {
            for threads in [1, 2, 8, 32] {
                row(threads, batch, wal, 1.5);
            }
        }
    }
}
