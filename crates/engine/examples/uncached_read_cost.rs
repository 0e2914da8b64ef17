//! Cost of an uncached point read on one reactor thread:
//! `uncached_read_cost DB KEYS_IN_DB [DEPTH] [SECONDS] [BATCH] [CACHE_BYTES] [spin] [metadata]
//! [sync] [hot]`: under a tool that runs one thread at a time, `spin` keeps the reactor from
//! sleeping in the kernel; with `metadata`, indexes and filters live in the block cache; with
//! `sync`, DEPTH threads read one key at a time; with `hot`, few keys get most of the reads.
//!
//! DEPTH tasks read random keys with direct I/O through a block cache that is almost empty; with
//! BATCH, each reads batches of BATCH keys. Prints lookups per second, CPU time and reads per
//! lookup, and the number of shared reads.

use karst_engine::db::Db;
use karst_engine::open::Options;
use karst_io::{Env, IdlePolicy, Reactor, spawn_local};
use karst_testkit::dataset::db_bench_key as key;
use karst_testkit::processor_time::ProcessorTime;
use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

async fn worker(
    db: Db,
    keys_in_db: u64,
    batch: usize,
    seed: u64,
    until: Instant,
    count: Rc<Cell<(u64, u64)>>,
) {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        key((state >> 11) % keys_in_db)
    };
    while Instant::now() < until {
        let (done, found) = if batch <= 1 {
            (1, u64::from(db.get_async(&next()).await.expect("read").is_some()))
        } else {
            let keys: Vec<[u8; 16]> = (0..batch).map(|_| next()).collect();
            let results = db.multi_get_async(&keys).await;
            let found = results.into_iter().filter(|r| r.as_ref().expect("read").is_some()).count();
            (batch as u64, found as u64)
        };
        let (all, hits) = count.get();
        count.set((all + done, hits + found));
    }
}

/// Reads random keys, one at a time, on one thread.
fn read_keys(db: &Db, keys_in_db: u64, hot: bool, seed: u64, until: Instant) -> (u64, u64) {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let (mut done, mut found) = (0, 0);
    while Instant::now() < until {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let mut number = (state >> 11) % keys_in_db;
        if hot {
            // Distributed like db_bench's --read_random_exp_range=15, then scattered over the keys.
            let skewed = (number as f64 / keys_in_db as f64 * -15.0).exp() * keys_in_db as f64;
            number = (skewed as u64).wrapping_mul(0x9E37_79B1) % keys_in_db;
        }
        found += u64::from(db.get(key(number)).expect("read").is_some());
        done += 1;
    }
    (done, found)
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, default: f64| args.get(i).map_or(default, |s| s.parse().expect("a number"));
    let (depth, seconds, batch) = (number(2, 64.0) as u64, number(3, 3.0), number(4, 1.0) as usize);
    let keys_in_db = number(1, 1e6) as u64;
    let env = Env::posix();
    let cache_bytes = number(5, f64::from(1 << 20)) as usize;
    let flag = |name: &str| args.iter().any(|arg| arg == name);
    let (in_cache, sync, hot) = (flag("metadata"), flag("sync"), flag("hot"));
    let options = Options::new()
        .env(env.clone())
        .block_cache_bytes(cache_bytes)
        .db(|db| db.use_direct_reads = true)
        .column_families(move |family| {
            family.table_factory.block_based.cache_index_and_filter_blocks = in_cache;
        });
    let db = Db::open_read_only(&args[0], &options).expect("open");
    let idle = if flag("spin") { IdlePolicy::Spin } else { IdlePolicy::Block };
    let reactor = Reactor::builder(&env).idle(idle).build().expect("reactor");
    let (before, io_before, begin) = (ProcessorTime::now(), env.io_stats(), Instant::now());
    let until = begin + Duration::from_secs_f64(seconds);
    let begin_sync = |db: Db| -> (u64, u64) {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..depth)
                .map(|seed| {
                    scope.spawn({
                        let db = &db;
                        move || read_keys(db, keys_in_db, hot, seed + 1, until)
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("thread"))
                .fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
        })
    };
    let (lookups, found) = if sync {
        begin_sync(db)
    } else {
        reactor
            .spawn(move || async move {
                let count = Rc::new(Cell::new((0, 0)));
                let tasks: Vec<_> = (0..depth)
                    .map(|i| spawn_local(worker(db.clone(), keys_in_db, batch, i + 1, until, count.clone())))
                    .collect();
                for task in tasks {
                    task.await.expect("task");
                }
                count.get()
            })
            .join()
            .expect("job")
    };
    let (cpu, elapsed) = (before.elapsed(), begin.elapsed().as_secs_f64());
    let io = env.io_stats();
    let reads = io.reads - io_before.reads;
    let each = lookups as f64;
    println!(
        "{:.0} lookups/s ({found} of {lookups} found), CPU {:.2} us user + {:.2} us system, {:.3} reads a lookup; \
         {} reads joined another thread's, {} of them in vain",
        each / elapsed,
        cpu.user.as_secs_f64() * 1e6 / each,
        cpu.system.as_secs_f64() * 1e6 / each,
        reads as f64 / each,
        io.joined_elsewhere - io_before.joined_elsewhere,
        io.left - io_before.left
    );
}
