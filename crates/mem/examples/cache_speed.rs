//! Measures a hit in a cache of a million entries, looked up at random, and an insert into a full
//! cache: `cargo run --release -p karst-mem --example cache_speed [entries] [threads]`.
//!
//! Times are CPU time of the measuring threads, which excludes other load on the machine.

use karst_mem::{BlockCache, CacheKey, CacheOptions, Priority};
use std::time::Duration;

/// A value of about the size that the engine stores for a data block.
struct Value {
    number: u64,
    _rest: [u64; 7],
}

fn value(number: u64) -> Value {
    Value { number, _rest: [0; 7] }
}

fn key(i: u64) -> CacheKey {
    CacheKey(i >> 14, (i & 0x3fff) * 4101)
}

fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes the time into the struct given.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn next(x: &mut u64) -> u64 {
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    *x
}

/// Returns the nanoseconds of an operation, run on each of `threads` threads.
fn measure(threads: u64, n: u64, operation: impl Fn(u64) -> u64 + Sync) -> f64 {
    let run = |seed: u64| {
        let mut x = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed + 1);
        let start = cpu_time();
        let sum = (0..n).fold(0u64, |sum, _| sum.wrapping_add(operation(next(&mut x))));
        std::hint::black_box(sum);
        cpu_time() - start
    };
    let run = &run;
    let times: Vec<Duration> = std::thread::scope(|s| {
        let all: Vec<_> = (0..threads).map(|t| s.spawn(move || run(t))).collect();
        all.into_iter().map(|t| t.join().expect("a measuring thread panicked")).collect()
    });
    times.iter().sum::<Duration>().as_nanos() as f64 / (threads * n) as f64
}

fn main() {
    let mut args = std::env::args().skip(1).map(|a| a.parse::<u64>().expect("a number"));
    let entries = args.next().unwrap_or(1_000_000);
    let threads = args.next().unwrap_or(2);
    let n = 5_000_000;
    let overhead = BlockCache::<Value>::ENTRY_OVERHEAD_BYTES;
    let new = |entries: u64| {
        BlockCache::new(CacheOptions {
            capacity_bytes: entries as usize * (4096 + overhead),
            ..CacheOptions::default()
        })
    };
    let cache = new(entries);
    let mut filled = 0;
    let fill = measure(1, 1, |_| {
        (0..entries).for_each(|i| drop(cache.insert(key(i), value(i), 4096, Priority::Low)));
        0
    });
    filled += cache.entry_count();
    println!(
        "slot {overhead} bytes; {filled} entries, {:.0} ns an insert with growth",
        fill / entries as f64
    );
    let pick = |x: u64| ((u128::from(x) * u128::from(entries)) >> 64) as u64;
    let plain: Vec<[u64; 16]> = vec![[1; 16]; (entries as usize * 5) / 3];
    let at =
        |x: u64| ((u128::from(x.wrapping_mul(0xa076_1d64_78bd_642f)) * plain.len() as u128) >> 64) as usize;
    println!("bound: one random read of an array of that size: {:.1} ns", measure(1, n, |x| plain[at(x)][0]));
    for round in 0..3 {
        let hit = |x: u64| cache.get(key(pick(x))).expect("all fit").number;
        println!(
            "round {round}: hit, 1 thread: {:.1} ns; {threads} threads: {:.1} ns",
            measure(1, n, hit),
            measure(threads, n, hit)
        );
    }
    let batch = |x: u64| {
        let mut x = x;
        let keys: [CacheKey; 16] = std::array::from_fn(|_| key(pick(next(&mut x))));
        keys.iter().for_each(|k| cache.prefetch(*k));
        keys.iter().map(|k| cache.get(*k).expect("all fit").number).fold(0, u64::wrapping_add)
    };
    println!(
        "hit in a batch of 16 with prefetch, 1 thread: {:.1} ns; {threads} threads: {:.1} ns",
        measure(1, n / 16, batch) / 16.0,
        measure(threads, n / 16, batch) / 16.0
    );
    let hot = |x: u64| cache.get(key(x & 15)).expect("all fit").number;
    println!(
        "hit of 16 hot keys, 1 thread: {:.1} ns; {threads} threads: {:.1} ns",
        measure(1, n, hot),
        measure(threads, n, hot)
    );
    let miss = |x: u64| u64::from(cache.get(CacheKey(u64::MAX, x)).is_none());
    println!("miss, 1 thread: {:.1} ns", measure(1, n, miss));
    let churn = new(entries / 2);
    let through = |x: u64| match churn.get(key(pick(x))) {
        Some(handle) => handle.number,
        None => churn.insert(key(pick(x)), value(pick(x)), 4096, Priority::Low).number,
    };
    measure(1, 2 * entries, through);
    let before = churn.counters();
    let time = measure(1, n, through);
    let after = churn.counters();
    println!(
        "get or insert, cache of half the entries, 1 thread: {time:.1} ns at {:.0} % hits",
        (after.hits - before.hits) as f64 * 100.0 / n as f64
    );
    println!("the same, {threads} threads: {:.1} ns", measure(threads, n, through));
}
