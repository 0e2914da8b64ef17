//! Cost of a scan:
//! `scan_cost DB [direct|buffered] [forward|backward] [fill|nofill] [SECONDS] [READAHEAD]`.
//!
//! Reads the default column family from end to end repeatedly until the time is up, or once if
//! SECONDS is 0 (for instruction counts). Prints entries and megabytes (10^6 bytes of keys and
//! values) per second, CPU time per megabyte and reads.

use karst_engine::db::Db;
use karst_engine::open::Options;
use karst_engine::options::ReadOptions;
use karst_io::Env;
use karst_testkit::processor_time::ProcessorTime;
use std::time::Instant;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let has = |word: &str| args.iter().any(|arg| arg == word);
    let numbers: Vec<f64> = args.iter().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    let (seconds, readahead) =
        (numbers.first().copied().unwrap_or(3.0), numbers.get(1).copied().unwrap_or(0.0));
    let env = Env::posix();
    let direct = !has("buffered");
    let options =
        Options::new().env(env.clone()).block_cache_bytes(8 << 20).db(move |db| db.use_direct_reads = direct);
    let db = Db::open_read_only(&args[0], &options).expect("open");
    let options =
        ReadOptions { fill_cache: has("fill"), readahead_size: readahead as usize, ..ReadOptions::default() };
    let (before, io_before, begin) = (ProcessorTime::now(), env.io_stats(), Instant::now());
    let (mut entries, mut bytes) = (0_u64, 0_u64);
    let until = |entries: u64| {
        entries.is_multiple_of(1024) && seconds > 0.0 && begin.elapsed().as_secs_f64() > seconds
    };
    'all: loop {
        let mut iter = db.iter(&options).expect("an iterator");
        if has("backward") { iter.seek_to_last() } else { iter.seek_to_first() }.expect("seek");
        while iter.valid() {
            entries += 1;
            bytes += (iter.key().len() + iter.value().len()) as u64;
            if until(entries) {
                break 'all;
            }
            if has("backward") { iter.prev() } else { iter.next() }.expect("a move");
        }
        if seconds == 0.0 {
            break;
        }
    }
    let (cpu, io, elapsed) = (before.elapsed(), env.io_stats(), begin.elapsed().as_secs_f64());
    let megabytes = bytes as f64 / 1e6;
    let reads = io.reads - io_before.reads;
    println!(
        "{entries} entries, {:.0} MB/s, CPU {:.3} ms user + {:.3} ms system a MB, {:.0} ns user an entry, {reads} reads",
        megabytes / elapsed,
        cpu.user.as_secs_f64() * 1e3 / megabytes,
        cpu.system.as_secs_f64() * 1e3 / megabytes,
        cpu.user.as_secs_f64() * 1e9 / entries as f64,
    );
}
