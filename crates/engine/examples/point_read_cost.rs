//! Cost of a cached point read: `point_read_cost DB [seconds]` prints nanoseconds per key for
//! `get`, `get_async`, `multi_get` and `multi_get_async` of random keys of the database, all of it
//! in the block cache.

use karst_engine::db::Db;
use karst_engine::open::Options;
use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

fn poll_once<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it was not in the cache"),
    }
}

/// Returns the CPU time of this thread in nanoseconds, which other load on the machine does not
/// affect.
fn cpu_nanos() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    stat.split(' ').next().and_then(|field| field.parse().ok()).expect("a number")
}

fn main() {
    let mut args = std::env::args().skip(1);
    let path = args.next().expect("a database directory");
    let seconds: f64 = args.next().map_or(1.0, |s| s.parse().expect("seconds"));
    let keys_in_db: u64 = args.next().map_or(1_000_000, |s| s.parse().expect("number of keys"));
    let db = Db::open_read_only(&path, &Options::new().block_cache_bytes(4 << 30)).unwrap();
    // db_bench's keys: the number in eight bytes, big-endian, then '0' up to 16 bytes.
    let key = |n: u64| {
        let mut key = [b'0'; 16];
        key[..8].copy_from_slice(&n.to_be_bytes());
        key
    };
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut keys = Vec::new();
    for _ in 0..1_000_000 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        keys.push(key(state % keys_in_db));
    }
    let mut found = 0;
    for n in 0..keys_in_db {
        found += u64::from(db.get(key(n)).unwrap().is_some());
    }
    println!("{found} of {keys_in_db} keys");
    let mut next = 0;
    let mut batch = || {
        next = (next + 64) % (keys.len() - 64);
        &keys[next..next + 64]
    };
    let mut measure = |name: &str, run: &mut dyn FnMut(&[[u8; 16]])| {
        let (begin, mut count) = (cpu_nanos(), 0u64);
        while ((cpu_nanos() - begin) as f64) < seconds * 1e9 {
            for _ in 0..256 {
                run(batch());
                count += 64;
            }
        }
        println!("{name:<16} {:7.1} ns of CPU a key", (cpu_nanos() - begin) as f64 / count as f64);
    };
    for _ in 0..2 {
        measure("get", &mut |keys| keys.iter().for_each(|key| drop(black_box(db.get(key).unwrap()))));
        measure("get_async", &mut |keys| {
            keys.iter().for_each(|key| drop(black_box(poll_once(db.get_async(key)).unwrap())));
        });
        measure("multi_get", &mut |keys| drop(black_box(db.multi_get(keys))));
        measure("multi_get_async", &mut |keys| drop(black_box(poll_once(db.multi_get_async(keys)))));
    }
}
