//! Flushes through the public API: no write is lost, stalled writers continue, errors are recovered
//! from.

mod asked;
mod crashes;
mod failures;
mod late;
mod logs;
mod meanwhile;
mod panics;
mod stalls;

use karst_engine::io::{Env, MemoryFileSystem};
use karst_engine::{
    Db, EventListener, FlushInfo, FlushOptions, IoPriority, Options, RateLimiter, ReadOptions, Statistics,
    Ticker, WaitForCompactOptions, WriteOptions,
};
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

#[derive(Debug, Default)]
struct Told(std::sync::Mutex<Vec<String>>);

impl EventListener for Told {
    fn flush_begun(&self, flush: &FlushInfo) {
        self.0.lock().unwrap().push(format!("begun {} {}", flush.column_family, flush.entries));
    }
    fn flush_completed(&self, flush: &FlushInfo) {
        let wrote = flush.table.is_some() && flush.table_bytes > 0;
        self.0.lock().unwrap().push(format!("completed {} {} {wrote}", flush.column_family, flush.entries));
    }
}

#[test]
fn a_flush_is_told_logged_and_limited() {
    let env = memory();
    let (told, limiter) = (Arc::new(Told::default()), RateLimiter::new(1 << 30));
    let stats = Arc::new(Statistics::default());
    let options = options(&env)
        .event_listener(told.clone())
        .rate_limiter(limiter.clone())
        .statistics(stats.clone())
        .set_all(
            "bloom_locality=1;read_amp_bytes_per_bit=8;compression=kZSTD;compression_opts={checksum=true}",
        )
        .unwrap();
    let db = Db::open("/db", &options).unwrap();
    for i in 0..100 {
        db.put(key(i), b"value").unwrap();
    }
    db.delete_range(b"a", b"b").unwrap();
    db.flush(&FlushOptions::default()).unwrap();
    let bytes = db.live_files()[0].size_bytes;
    assert_eq!(limiter.total_bytes_through(Some(IoPriority::High)), bytes);
    assert_eq!(stats.ticker(Ticker::FlushWriteBytes), bytes);
    // The job calls listeners and may end after the call that started it.
    db.close().unwrap();
    assert_eq!(*told.0.lock().unwrap(), ["begun default 101", "completed default 101 true"]);
    let log = String::from_utf8(env.fs().read_file(std::path::Path::new("/db/LOG")).unwrap()).unwrap();
    assert!(log.contains("Options.max_background_jobs: 2"), "{log}");
    assert!(log.contains("[default] Options.compression=kZSTD"), "{log}");
    for names in ["compression_opts.checksum, bloom_locality", "read_amp_bytes_per_bit"] {
        let line = format!("[default] Options that have no effect in KarstDB: {names}\n");
        assert!(log.contains(&line), "{line}{log}");
    }
    assert!(
        log.contains(&format!("Flushed 101 entries to table #{}: {bytes} bytes", table_number(&db))),
        "{log}"
    );
}

/// With `atomic_flush`, all families are flushed together except those without sealed memtables.
#[test]
fn an_atomic_flush_leaves_out_families_without_anything() {
    let (env, told) = (memory(), Arc::new(Told::default()));
    let options = options(&env).event_listener(told.clone()).db(|db| db.atomic_flush = true);
    let db = Db::open("/db", &options).unwrap();
    for name in ["empty", "filled"] {
        db.create_column_family(name, &options).unwrap();
    }
    let filled = db.column_family("filled").unwrap();
    for round in 1..3 {
        db.put_cf(&WriteOptions::new(), &filled, "key", "value").unwrap();
        db.flush(&FlushOptions::default()).unwrap();
        assert_eq!(db.live_files().len(), round);
    }
    db.close().unwrap();
    let flush = ["begun filled 1", "completed filled 1 true"];
    assert_eq!(*told.0.lock().unwrap(), [flush, flush].concat());
}

fn table_number(db: &Db) -> u64 {
    db.live_files()[0].number
}

#[test]
fn what_nobody_sees_any_more_is_not_flushed_and_what_a_snapshot_sees_is() {
    let env = memory();
    let db = Db::open("/db", &options(&env)).unwrap();
    for i in 0..10 {
        db.put(b"key", format!("{i}")).unwrap();
    }
    db.flush(&FlushOptions::default()).unwrap();
    let entries = |db: &Db| db.int_property("rocksdb.estimate-num-keys");
    assert_eq!(entries(&db), Some(1));
    db.put(b"key", b"old").unwrap();
    let snapshot = db.snapshot();
    db.put(b"key", b"new").unwrap();
    db.delete_range(b"k", b"l").unwrap();
    db.flush(&FlushOptions::default()).unwrap();
    let then = ReadOptions { snapshot: Some(snapshot), ..ReadOptions::default() };
    assert_eq!(db.get_opt(&then, b"key").unwrap().as_deref(), Some(b"old".as_slice()));
    assert_eq!(db.get(b"key").unwrap(), None);
}

#[test]
fn a_memtable_with_so_many_range_deletions_is_flushed() {
    for most in [3_u32, 0] {
        let env = memory();
        let options = options(&env).column_families(move |cf| cf.memtable_max_range_deletions = most);
        let db = Db::open("/db", &options).unwrap();
        db.put("key", "value").unwrap();
        db.delete_range("a", "b").unwrap();
        db.delete_range("b", "c").unwrap();
        db.wait_for_compact(&WaitForCompactOptions::default()).unwrap();
        assert!(db.live_files().is_empty(), "two are not too many");
        db.delete_range("c", "d").unwrap();
        // A writer that fills a memtable does not wait for its flush.
        db.wait_for_compact(&WaitForCompactOptions::default()).unwrap();
        let tables = usize::from(most == 3);
        karst_testkit::eventually(tables, || db.live_files().len());
    }
}
