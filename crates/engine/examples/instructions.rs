//! Calls for a tool that counts instructions: `instructions cached_get|uncached_get|put COUNT`,
//! over files in memory.
//!
//! The cost of one call is the difference of two counts divided by the difference of their COUNTs,
//! for example with `valgrind --tool=callgrind target/release/examples/instructions put 20000` and
//! the same with 40000. Random numbers come from fixed seeds, and no background work runs
//! meanwhile, so two builds can be compared to 1 %.

use karst_engine::io::{Env, MemoryFileSystem, TransportKind};
use karst_engine::{CompactRangeOptions, Db, FlushOptions, Options};
use karst_testkit::dataset::db_bench_key;
use std::hint::black_box;
use std::sync::Arc;

const KEYS: u64 = 20_000;
const VALUE: [u8; 100] = [b'v'; 100];

fn open(env: &Env, cache_bytes: usize) -> Db {
    let options = Options::new()
        .env(env.clone())
        .block_cache_bytes(cache_bytes)
        .db(|db| db.create_if_missing = true)
        .set("filter_policy", "bloomfilter:10")
        .expect("an option");
    Db::open("/db", &options).expect("a database")
}

fn main() {
    let mut args = std::env::args().skip(1);
    let call = args.next().expect("cached_get, uncached_get or put");
    let count: u64 = args.next().and_then(|count| count.parse().ok()).expect("COUNT");
    let env = Env::builder()
        .file_system(Arc::new(MemoryFileSystem::new()))
        .transport(TransportKind::Threads)
        .seed(1)
        .build();
    let db = open(&env, if call == "uncached_get" { 0 } else { 1 << 30 });
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut key = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        db_bench_key(state % KEYS)
    };
    let get = |key: [u8; 16]| black_box(db.get(key).expect("a read")).is_some();
    match call.as_str() {
        "put" => (0..count).for_each(|_| db.put(key(), VALUE).expect("a write")),
        "cached_get" | "uncached_get" => {
            (0..KEYS).for_each(|n| db.put(db_bench_key(n), VALUE).expect("a write"));
            db.flush(&FlushOptions::default()).expect("a flush");
            db.compact_range(&CompactRangeOptions::default(), None, None).expect("a compaction");
            assert!((0..KEYS).all(|n| get(db_bench_key(n))), "every key is there");
            assert!((0..count).all(|_| get(key())), "every key is there");
        }
        unknown => panic!("no call `{unknown}`"),
    }
    db.close().expect("closing");
}
