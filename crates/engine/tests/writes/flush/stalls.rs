//! Write stalls: writers are delayed, stopped and released; none waits forever, and writes with
//! `no_slowdown` fail.

use super::{all, key, memory};
use karst_engine::{
    Db, ErrorKind, EventListener, FlushInfo, FlushOptions, Options, Statistics, Ticker,
    WaitForCompactOptions, WriteBatch, WriteBufferManager, WriteOptions,
};
use karst_io::{Env, Priority, Simulation};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

fn options(env: &Env) -> Options {
    Options::new().env(env.clone()).db(|db| db.create_if_missing = true).column_families(|cf| {
        cf.write_buffer_size = 16 << 10;
        cf.max_write_buffer_number = 2;
    })
}

fn hasty() -> WriteOptions {
    WriteOptions { no_slowdown: true, ..WriteOptions::default() }
}

#[test]
fn writers_stop_when_memtables_wait_and_go_on_when_they_are_flushed() {
    let simulation = Simulation::new(1);
    let env = simulation.env().clone();
    let stats = Arc::new(Statistics::default());
    let db = Db::open("/db", &options(&env).statistics(stats.clone())).unwrap();
    db.pause_background_work().unwrap();
    let mut model = BTreeMap::new();
    let mut stopped = None;
    for i in 0..5_000 {
        let (key, value) = (key(i), vec![b'v'; 100]);
        match db.put_cf(&hasty(), db.default_column_family(), &key, &value) {
            Ok(()) => drop(model.insert(key, value)),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Incomplete, "{error}");
                stopped = Some(i);
                break;
            }
        }
        // Sleeps because a job seals memtables.
        simulation.run(karst_io::sleep(&env, std::time::Duration::from_micros(500)));
    }
    assert!(stopped.is_some(), "nobody was stopped");
    assert_eq!(db.int_property("rocksdb.is-write-stopped"), Some(1));
    assert_eq!(db.int_property("rocksdb.num-immutable-mem-table"), Some(2));
    assert_eq!(db.int_property("rocksdb.mem-table-flush-pending"), Some(1));
    let waiter = env.spawn(Priority::Low, {
        let db = db.clone();
        async move { db.put_async(b"waited", b"1").await }
    });
    simulation.run(karst_io::sleep(&env, std::time::Duration::from_secs(1)));
    assert!(!waiter.is_finished());
    db.continue_background_work().unwrap();
    simulation.run(waiter).unwrap().unwrap().unwrap();
    model.insert(b"waited".to_vec(), b"1".to_vec());
    db.flush(&FlushOptions::default()).unwrap();
    assert_eq!(db.int_property("rocksdb.is-write-stopped"), Some(0));
    assert!(stats.ticker(Ticker::StallMicros) >= 1_000_000);
    assert_eq!(all(&db), model);
}

/// Logs that are too long stay so until a flush ends. Writes until then go to memtables that are
/// kept, and stop no writer.
#[test]
fn logs_that_are_too_long_seal_each_memtable_once() {
    let simulation = Simulation::new(4);
    let env = simulation.env().clone();
    let options = options(&env)
        .db(|db| {
            db.create_missing_column_families = true;
            db.max_total_wal_size = 2_000;
        })
        .column_families(|cf| cf.min_write_buffer_number_to_merge = 2);
    let db = Db::open_cf("/db", &options, &["default", "other"]).unwrap();
    let families = ["default", "other"].map(|name| db.column_family(name).unwrap());
    let sealed = || families.each_ref().map(|f| db.int_property_cf(f, "rocksdb.num-immutable-mem-table"));
    db.pause_background_work().unwrap();
    let write = |from: u64| {
        for i in from..from + 100 {
            for family in &families {
                db.put_cf(&hasty(), family, key(i), b"value").unwrap();
            }
            // Sleeps because a job seals memtables.
            simulation.run(karst_io::sleep(&env, std::time::Duration::from_micros(500)));
        }
    };
    write(0);
    assert_eq!(sealed(), [Some(1), Some(1)]);
    let logs = db.log_numbers();
    db.continue_background_work().unwrap();
    db.wait_for_compact(&WaitForCompactOptions::default()).unwrap();
    // A single memtable is flushed too, although two are merged otherwise.
    assert_eq!(sealed(), [Some(0), Some(0)]);
    assert!(!db.log_numbers().contains(&logs[0]), "{logs:?}");
    // Later logs that are too long have the same effect.
    write(100);
    db.wait_for_compact(&WaitForCompactOptions::default()).unwrap();
    assert_eq!(sealed(), [Some(0), Some(0)]);
    assert!(!db.log_numbers().contains(logs.last().unwrap()), "{logs:?}");
}

#[test]
fn tables_in_l0_slow_writers_down_then_stop_them_and_lie_in_order() {
    let simulation = Simulation::new(2);
    let env = simulation.env().clone();
    let options = options(&env).column_families(|cf| {
        cf.disable_auto_compactions = false;
        cf.level0_file_num_compaction_trigger = 3;
        cf.level0_slowdown_writes_trigger = 3;
        cf.level0_stop_writes_trigger = 5;
    });
    let db = Db::open("/db", &options).unwrap();
    db.disable_auto_compaction(&[db.default_column_family()]).unwrap();
    let at_once = FlushOptions { allow_write_stall: true, ..FlushOptions::default() };
    for round in 0..6 {
        // Two keys, because tables that overlap are merged, not moved.
        db.put(b"key", format!("{round}")).unwrap();
        db.put(b"other", format!("{round}")).unwrap();
        db.flush(&at_once).unwrap();
    }
    // Without compactions that would end a stall, no writer stalls.
    assert_eq!(db.int_property("rocksdb.is-write-stopped"), Some(0));
    let files = db.live_files();
    let mut l0: Vec<_> = files.iter().filter(|file| file.level == Some(0)).collect();
    l0.sort_by_key(|file| std::cmp::Reverse(file.epoch_number));
    assert_eq!(l0.len(), 6);
    assert!(l0.windows(2).all(|pair| pair[0].smallest_seq > pair[1].largest_seq), "{l0:?}");
    assert_eq!(db.get(b"key").unwrap().as_deref(), Some(b"5".as_slice()));
    db.pause_background_work().unwrap();
    db.enable_auto_compaction(&[db.default_column_family()]).unwrap();
    assert_eq!(db.int_property("rocksdb.is-write-stopped"), Some(1));
    assert_eq!(db.int_property("rocksdb.compaction-pending"), Some(1));
    assert_eq!(
        db.put_cf(&hasty(), db.default_column_family(), b"key", b"6").unwrap_err().kind(),
        ErrorKind::Incomplete
    );
    db.continue_background_work().unwrap();
    // This write waits for the compaction.
    db.put(b"key", b"6").unwrap();
    db.wait_for_compact(&WaitForCompactOptions::default()).unwrap();
    assert_eq!(db.int_property("rocksdb.is-write-stopped"), Some(0));
    assert_eq!(db.property("rocksdb.num-files-at-level0").as_deref(), Some("0"));
    assert_eq!(db.live_files().len(), 1, "{:?}", db.live_files());
    assert_eq!(db.get(b"key").unwrap().as_deref(), Some(b"6".as_slice()));
}

#[test]
fn writers_that_are_delayed_go_on_at_the_rate() {
    let simulation = Simulation::new(3);
    let env = simulation.env().clone();
    let options = options(&env).db(|db| db.delayed_write_rate = 1 << 20).column_families(|cf| {
        cf.write_buffer_size = 16 << 20;
        cf.level0_file_num_compaction_trigger = 2;
        cf.level0_slowdown_writes_trigger = 2;
        cf.level0_stop_writes_trigger = 50;
    });
    let db = Db::open("/db", &options).unwrap();
    db.disable_auto_compaction(&[db.default_column_family()]).unwrap();
    for round in 0..2 {
        db.put(b"a", format!("{round}")).unwrap();
        db.put(b"b", format!("{round}")).unwrap();
        db.flush(&FlushOptions { allow_write_stall: true, ..FlushOptions::default() }).unwrap();
    }
    db.pause_background_work().unwrap();
    db.enable_auto_compaction(&[db.default_column_family()]).unwrap();
    assert_eq!(db.int_property("rocksdb.actual-delayed-write-rate"), Some(1 << 20));
    // The clock is virtual, and the cost of a log does not count.
    let start = env.now();
    simulation.run(async {
        for i in 0..512 {
            let mut batch = WriteBatch::new();
            batch.put(key(i), [b'v'; 1024]).unwrap();
            db.write_async(&WriteOptions::unlogged(), &batch).await.unwrap();
        }
    });
    let took = (env.now() - start).as_secs_f64();
    assert!((0.4..0.7).contains(&took), "half a MiB took {took} s at 1 MiB/s");
    db.continue_background_work().unwrap();
    db.wait_for_compact(&WaitForCompactOptions::default()).unwrap();
    assert_eq!(db.int_property("rocksdb.actual-delayed-write-rate"), Some(0));
}

#[test]
fn several_threads_write_through_stalls_and_lose_nothing() {
    let env = memory();
    let db = Db::open("/db", &options(&env)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let db = &db;
            scope.spawn(move || {
                for i in 0..2_000u64 {
                    db.put(format!("{thread}.{i:05}"), vec![thread as u8; 60]).unwrap();
                }
            });
        }
    });
    assert_eq!(all(&db).len(), 8_000);
    db.close().unwrap();
    drop(db);
    let db = Db::open("/db", &options(&env)).unwrap();
    assert_eq!(all(&db).len(), 8_000);
}

/// Size of memtables whose flush is late or never happens while many threads write: at most their
/// configured size, one arena block and the writes in flight.
#[test]
fn writers_fill_no_memtable_beyond_its_size() {
    const THREADS: usize = 8;
    const SIZE: u64 = 256 << 10;
    const MOST: u64 = 3;
    // Bytes of the entries in flight: a value of 1,000 and the overhead of an entry in memory.
    let under_way = THREADS as u64 * (1000 + 200);
    let env = memory();
    let options = options(&env).column_families(|cf| {
        cf.write_buffer_size = SIZE as usize;
        cf.max_write_buffer_number = MOST as i32;
    });
    let db = Db::open("/db", &options).unwrap();
    let largest = AtomicU64::new(0);
    let write = |thread: usize, count: usize, options: &WriteOptions| {
        for i in 0..count {
            let outcome =
                db.put_cf(options, db.default_column_family(), format!("{thread}.{i:06}"), [7; 1000]);
            let active = db.int_property("rocksdb.cur-size-active-mem-table").unwrap();
            largest.fetch_max(active, Ordering::Relaxed);
            match outcome {
                Ok(()) => {}
                Err(error) => return assert_eq!(error.kind(), ErrorKind::Incomplete, "{error}"),
            }
        }
        assert!(!options.no_slowdown, "nobody was stopped");
    };
    let write_all = |count: usize, options: &WriteOptions| {
        std::thread::scope(|scope| {
            (0..THREADS).for_each(|thread| drop(scope.spawn(move || write(thread, count, options))));
        });
        let largest = largest.load(Ordering::Relaxed);
        assert!(largest <= SIZE + SIZE / 10 + under_way, "a memtable of {SIZE} bytes has {largest}");
    };
    // While nothing is flushed, memtables are still sealed, until there are too many.
    db.pause_background_work().unwrap();
    write_all(100_000, &hasty());
    let sealed = db.int_property("rocksdb.num-immutable-mem-table").unwrap();
    assert_eq!(sealed, MOST, "sealed memtables");
    let all = db.int_property("rocksdb.cur-size-all-mem-tables").unwrap();
    assert!(all <= (MOST + 1) * (SIZE + SIZE / 10 + under_way), "{all} bytes of memtables");
    db.continue_background_work().unwrap();
    write_all(2_000, &WriteOptions::default());
}

/// Code on the threads of flushes may write, and does not wait for seals that need these threads.
#[test]
fn a_listener_that_writes_fills_memtables_on_the_threads_of_flushes() {
    #[derive(Debug)]
    struct Writes(OnceLock<Weak<Db>>, AtomicU64);
    impl EventListener for Writes {
        fn flush_completed(&self, _: &FlushInfo) {
            let Some(db) = self.0.get().and_then(Weak::upgrade) else { return };
            // Three times only, because each flush causes another one.
            if self.1.fetch_add(1, Ordering::Relaxed) < 3 {
                (0..40u64).for_each(|i| db.put(key(i), [7; 1000]).unwrap());
            }
        }
    }
    let env = memory();
    let listener = Arc::new(Writes(OnceLock::new(), AtomicU64::new(0)));
    let options = options(&env)
        .event_listener(listener.clone())
        .db(|db| db.max_background_jobs = 1)
        .column_families(|cf| cf.max_write_buffer_number = 100);
    let db = Arc::new(Db::open("/db", &options).unwrap());
    listener.0.set(Arc::downgrade(&db)).unwrap();
    (0..100u64).for_each(|i| db.put(key(i), [7; 1000]).unwrap());
    db.wait_for_compact(&WaitForCompactOptions::default()).unwrap();
    karst_testkit::eventually(true, || listener.1.load(Ordering::Relaxed) > 3);
}

#[test]
fn a_budget_over_two_databases_flushes_and_holds() {
    let budget = WriteBufferManager::new(256 << 10, true);
    let env = memory();
    let large = |path: &str| {
        let options = options(&env).column_families(|cf| cf.write_buffer_size = 64 << 20);
        Db::open(path, &options.write_buffer_manager(budget.clone())).unwrap()
    };
    let (a, b) = (large("/a"), large("/b"));
    for i in 0..8_000 {
        a.put(key(i), vec![b'a'; 100]).unwrap();
        b.put(key(i), vec![b'b'; 100]).unwrap();
    }
    let tables = |db: &Db| db.live_files().len();
    assert!(tables(&a) + tables(&b) > 0, "nothing was flushed");
    assert!(budget.used_bytes() <= 512 << 10, "{}", budget.used_bytes());
    assert_eq!(all(&a).len(), all(&b).len());
    drop((a, b));
    // A job that has just ended may hold the last reference to a memtable.
    karst_testkit::eventually(0, || budget.used_bytes());
}
