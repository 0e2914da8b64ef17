//! Flush, and what happens around it, through the public API: nothing is lost, writers are held up and let go, errors are overcome.

mod crashes;
mod failures;
mod stalls;

use karst_engine::io::{Env, MemoryFileSystem};
use karst_engine::{Db, FlushOptions, Options, ReadOptions, Statistics, Ticker, WaitForCompactOptions};
use std::collections::BTreeMap;
use std::sync::Arc;

fn memory() -> Env {
    Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build()
}

fn options(env: &Env) -> Options {
    Options::new()
        .env(env.clone())
        .db(|db| db.create_if_missing = true)
        .column_families(|cf| cf.write_buffer_size = 64 << 10)
}

fn key(i: u64) -> Vec<u8> {
    format!("key{:08}", i.wrapping_mul(0x9E37_79B9) % 100_000).into_bytes()
}

fn all(db: &Db) -> BTreeMap<Vec<u8>, Vec<u8>> {
    all_of(db, "default")
}

fn all_of(db: &Db, family: &str) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut iter = db.iter_cf(&ReadOptions::default(), &db.column_family(family).unwrap()).unwrap();
    iter.seek_to_first().unwrap();
    while iter.valid() {
        found.insert(iter.key().to_vec(), iter.value().to_vec());
        iter.next().unwrap();
    }
    found
}

#[test]
fn what_is_written_is_found_across_automatic_flushes_and_openings() {
    let env = memory();
    let stats = Arc::new(Statistics::default());
    let mut model = BTreeMap::new();
    for round in 0..3u64 {
        let db = Db::open("/db", &options(&env).statistics(stats.clone())).unwrap();
        assert_eq!(all(&db), model, "opening {round}");
        for i in 0..5_000 {
            let (key, value) = (key(i * (round + 1)), format!("{round}.{i}").into_bytes());
            if i % 7 == 3 {
                db.delete(&key).unwrap();
                model.remove(&key);
            } else {
                db.put(&key, &value).unwrap();
                model.insert(key, value);
            }
        }
        assert_eq!(all(&db), model);
        db.close().unwrap();
    }
    assert!(stats.ticker(Ticker::FlushWriteBytes) > 0);
    assert!(stats.ticker(Ticker::FlushReasonWriteBufferFull) > 0);
    let db = Db::open("/db", &options(&env)).unwrap();
    db.flush(&FlushOptions::default()).unwrap();
    db.wait_for_compact(&WaitForCompactOptions::default()).unwrap();
    assert_eq!(all(&db), model);
    assert_eq!(db.int_property("rocksdb.num-entries-active-mem-table"), Some(0));
}
