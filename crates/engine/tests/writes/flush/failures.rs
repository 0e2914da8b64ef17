//! Random failures while memtables are flushed and logs written: acknowledged writes stay, refused
//! writes never show, and the database continues when the failures end.

use super::{all_of, key};
use karst_engine::{
    BackgroundErrorReason, Db, ErrorKind, FlushOptions, HistogramKind, Options, Severity, Statistics, Ticker,
    WaitForCompactOptions, WriteBatch, WriteOptions,
};
use karst_io::{Crash, Env, Fault, Operation, Simulation, Trouble, sleep};
use karst_testkit::asked;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

fn options(env: &Env) -> Options {
    Options::new()
        .env(env.clone())
        .db(|db| {
            db.create_if_missing = true;
            db.bgerror_resume_retry_interval = 20_000;
        })
        .column_families(|cf| cf.write_buffer_size = 16 << 10)
}

/// Writes `count` entries to both families and adds the acknowledged ones to `model`. Returns the
/// number of refused entries.
async fn write(db: &Db, model: &mut Entries, from: u64, count: u64) -> u64 {
    let mut refused = 0;
    let other = db.column_family("other").unwrap();
    for i in from..from + count {
        let (key, value) = (key(i), format!("{i}.{}", "x".repeat(80)).into_bytes());
        let mut batch = WriteBatch::new();
        batch.put(&key, &value).unwrap();
        batch.put_cf(&other, &key, &value).unwrap();
        match db.write_async(&WriteOptions::default(), &batch).await {
            Ok(()) => drop(model.insert(key, value)),
            Err(error) => {
                assert!(error.kind().is_io(), "{error}");
                refused += 1;
                sleep(db.env(), Duration::from_millis(2)).await;
            }
        }
    }
    refused
}

fn assert_both(db: &Db, model: &Entries, when: &str) {
    for family in ["default", "other"] {
        assert_eq!(&all_of(db, family), model, "{family}, {when}");
    }
}

fn run(seed: u64, trouble: Trouble, manual: bool) -> u64 {
    let simulation = Simulation::new(seed);
    let env = simulation.env().clone();
    let attempts = if manual { 0 } else { i32::MAX };
    let options = options(&env).db(move |db| {
        db.max_bgerror_resume_count = attempts;
        db.atomic_flush = seed.is_multiple_of(3);
    });
    let db = Db::open("/db", &options).unwrap();
    db.create_column_family("other", &options).unwrap();
    let mut model = Entries::new();
    let refused = simulation
        .run(async {
            write(&db, &mut model, 0, 300).await;
            simulation.fs().set_trouble(trouble);
            let refused = write(&db, &mut model, 300, 400).await;
            simulation.fs().set_trouble(Trouble::default());
            // Every background error ends, by automatic recovery or by `resume`.
            while let Some(error) = db.background_error() {
                if manual {
                    db.resume_async().await.unwrap_or_else(|e| panic!("{e}, after {error:?}"));
                } else {
                    sleep(&env, Duration::from_millis(5)).await;
                }
            }
            assert_eq!(write(&db, &mut model, 5_000, 200).await, 0);
            refused
        })
        .expect("the power is on");
    assert_both(&db, &model, "live");
    db.flush(&FlushOptions::default()).unwrap();
    assert_both(&db, &model, "flushed");
    db.wait_for_compact(&WaitForCompactOptions::default()).unwrap();
    db.close().unwrap();
    drop(db);
    let db = Db::open("/db", &options).unwrap();
    assert_both(&db, &model, "opened again");
    simulation.fs().failures() + refused
}

/// Seeds from `KARST_SEED` and `KARST_SEEDS`; `KARST_LONG_TESTS=1` runs more of them.
fn seeds() -> std::ops::Range<u64> {
    asked::seeds(30, 1_000)
}

#[test]
fn failing_writes_lose_nothing_and_the_database_resumes_by_itself() {
    let mut failures = 0;
    for seed in seeds() {
        let trouble = Trouble {
            write_error: 0.02,
            sync_error: 0.05,
            name_error: 0.02,
            no_space: 0.3,
            ..Trouble::default()
        };
        failures += run(seed, trouble, false);
    }
    assert!(failures > 30, "{failures} failures: the test shows nothing");
}

#[test]
fn failing_writes_lose_nothing_and_the_database_resumes_when_asked() {
    let mut failures = 0;
    for seed in seeds() {
        let trouble = Trouble { write_error: 0.02, sync_error: 0.1, name_error: 0.02, ..Trouble::default() };
        failures += run(seed, trouble, true);
    }
    assert!(failures > 30, "{failures} failures: the test shows nothing");
}

/// A waiter returns as soon as the flush is installed, and may read the statistics at once.
#[test]
fn a_flush_is_counted_before_it_is_installed() {
    let simulation = Simulation::new(7);
    let stats = Arc::new(Statistics::default());
    let options =
        options(simulation.env()).db(|db| db.max_bgerror_resume_count = 0).statistics(stats.clone());
    let db = Db::open("/db", &options).unwrap();
    db.put(b"key", b"value").unwrap();
    simulation.fs().set_faults(|operation, path| {
        let of_manifest = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("MANIFEST"));
        (of_manifest && operation == Operation::Sync).then_some(Fault::Fail(libc::EIO))
    });
    db.flush(&FlushOptions::default()).unwrap_err();
    assert!(stats.ticker(Ticker::FlushWriteBytes) > 0);
    assert_eq!(stats.histogram(HistogramKind::FlushTime).count(), 1);
    assert_eq!(db.property("rocksdb.num-files-at-level0").as_deref(), Some("0"));
}

/// A failed flush is tried again after a pause of a second, on the virtual clock. The flush of a
/// closing, of entries that are in no log, begins at once.
#[test]
fn a_closing_does_not_wait_for_the_pause_after_a_failed_flush() {
    let simulation = Simulation::new(9);
    let env = simulation.env().clone();
    let options = options(&env).db(|db| db.paranoid_checks = false);
    let db = Db::open("/db", &options).unwrap();
    db.put_opt(&WriteOptions { disable_wal: true, ..WriteOptions::new() }, b"key", b"value").unwrap();
    simulation.fs().set_trouble(Trouble { write_error: 1.0, ..Trouble::default() });
    db.flush(&FlushOptions::default()).unwrap_err();
    assert!(db.background_error().is_none());
    simulation.fs().set_trouble(Trouble::default());
    let begun = env.now();
    db.close().unwrap();
    let took = env.now() - begun;
    assert!(took < Duration::from_millis(500), "{took:?}");
    let db = Db::open("/db", &options).unwrap();
    assert_eq!(db.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
}

#[test]
fn a_log_that_cannot_be_begun_refuses_writes_until_it_can() {
    let simulation = Simulation::new(5);
    let env = simulation.env().clone();
    let db = Db::open("/db", &options(&env)).unwrap();
    db.create_column_family("other", &options(&env)).unwrap();
    let mut model = Entries::new();
    simulation.run(async {
        simulation.fs().set_trouble(Trouble { name_error: 1.0, ..Trouble::default() });
        assert!(write(&db, &mut model, 0, 500).await > 0, "memtables grow without end");
        let error = db.background_error().unwrap();
        assert_eq!((error.severity, error.reason), (Severity::Hard, BackgroundErrorReason::WriteCallback));
        simulation.fs().set_trouble(Trouble::default());
        while db.background_error().is_some() {
            sleep(&env, Duration::from_millis(5)).await;
        }
        assert_eq!(write(&db, &mut model, 500, 500).await, 0);
    });
    assert_both(&db, &model, "resumed");
    assert!(db.int_property("rocksdb.background-errors") > Some(0));
}

/// Entries that are buffered for a log that fails never reach it; but they were acknowledged, so
/// they are in the memtables that are flushed before writes are accepted again.
#[test]
fn what_flush_wal_says_after_a_failure_that_was_overcome_holds_though_the_log_lacks_it() {
    for begins_before in [false, true] {
        let simulation = Simulation::new(7);
        let env = simulation.env().clone();
        let options = options(&env).db(|db| {
            db.manual_wal_flush = true;
            db.max_bgerror_resume_count = 0;
        });
        let db = Db::open("/db", &options).unwrap();
        db.create_column_family("other", &options).unwrap();
        let mut model = Entries::new();
        simulation.run(async {
            assert_eq!(write(&db, &mut model, 0, 20).await, 0);
            simulation.fs().set_trouble(Trouble { write_error: 1.0, ..Trouble::default() });
            let mut synced = pin!(db.flush_wal_async(true));
            if begins_before {
                assert!(poll_fn(|cx| Poll::Ready(synced.as_mut().poll(cx).is_pending())).await);
            } else {
                assert_eq!(db.flush_wal_async(true).await.unwrap_err().kind(), ErrorKind::Io);
            }
            while db.background_error().is_none() {
                sleep(&env, Duration::from_millis(1)).await;
            }
            simulation.fs().set_trouble(Trouble::default());
            db.resume_async().await.unwrap();
            synced.await.unwrap();
        });
        simulation.fs().lose_power_now();
        drop(db);
        let simulation = simulation.restart(Crash::Power, 8);
        let db = Db::open("/db", &options.env(simulation.env().clone())).unwrap();
        assert_both(&db, &model, "after a loss of power");
    }
}
