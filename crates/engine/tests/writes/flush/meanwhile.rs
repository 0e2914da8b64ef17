//! Events between two steps of a flush or of a recovery: a column family that is created or
//! dropped, a write that fails. The simulated machine stops the flush or the recovery after each of
//! its polls in turn, so that the tests are deterministic.

use super::all_of;
use karst_engine::{
    BackgroundError, Db, EventListener, FlushOptions, Options, WaitForCompactOptions, WriteBatch,
    WriteOptions,
};
use karst_io::testing::{in_steps, poll_times};
use karst_io::{Crash, Env, SimulatedFileSystem, Simulation, Trouble, sleep};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

/// Number of polls that no call here reaches.
const MOST_POLLS: u64 = 1_000;

fn options(env: &Env) -> Options {
    Options::new().env(env.clone()).db(|db| {
        db.create_if_missing = true;
        db.bgerror_resume_retry_interval = 20_000;
    })
}

fn failing() -> Trouble {
    Trouble { write_error: 1.0, ..Trouble::default() }
}

/// An unlogged batch is written to a family that is created after a flush of all families has
/// begun. The flush includes the whole batch or nothing of it.
#[test]
fn an_atomic_flush_takes_all_of_a_batch_to_a_family_that_is_made_meanwhile() {
    let mut whole = [0, 0];
    for polls in 0..MOST_POLLS {
        let simulation = Simulation::new(polls);
        let options = options(simulation.env()).db(|db| db.atomic_flush = true);
        let db = Db::open("/db", &options).unwrap();
        db.put(b"before", b"1").unwrap();
        let ended = simulation.run(async {
            let flush_options = FlushOptions::default();
            let mut flush = pin!(in_steps(db.env(), db.flush_async(&flush_options)));
            let ended = poll_times(flush.as_mut(), polls).await;
            let late = db.create_column_family("late", &options).unwrap();
            let mut batch = WriteBatch::new();
            batch.put(b"key", b"1").unwrap();
            batch.put_cf(&late, b"key", b"1").unwrap();
            db.write_async(&WriteOptions::unlogged(), &batch).await.unwrap();
            match ended {
                Some(flushed) => flushed.map(|()| true),
                None => flush.await.map(|()| false),
            }
        });
        let ended = ended.expect("the power is on").unwrap();
        simulation.fs().lose_power_now();
        drop(db);
        let simulation = simulation.restart(Crash::Power, polls + 1_000);
        let db = Db::open("/db", &options.env(simulation.env().clone())).unwrap();
        let found = ["default", "late"].map(|family| all_of(&db, family).contains_key(&b"key"[..]));
        assert_eq!(
            found[0], found[1],
            "made after {polls} polls of the flush: [default, late] have {found:?}"
        );
        whole[usize::from(found[0])] += 1;
        if ended {
            assert!(
                whole[0] > 0 && whole[1] > 0,
                "{whole:?} without and with the batch: the test shows nothing"
            );
            return;
        }
    }
    panic!("a flush ends");
}

/// A family that is recorded in the MANIFEST before the flush of the only other family must need
/// none of the logs that this flush has not synced: if their ends were lost, its table would be
/// ahead of them.
#[test]
fn a_flush_beside_which_a_family_is_made_is_not_ahead_of_the_logs() {
    let (mut begun, mut ended) = (0, 0);
    for (seed, polls) in (0..20).flat_map(|seed| (0..8).map(move |polls| (seed, polls))) {
        let simulation = Simulation::new(seed * 1_000 + polls);
        let options = options(simulation.env());
        let db = Db::open("/db", &options).unwrap();
        db.put(b"before", b"1").unwrap();
        let is_over = simulation.run(async {
            let flush_options = FlushOptions::default();
            let mut flush = pin!(in_steps(db.env(), db.flush_async(&flush_options)));
            let is_over = poll_times(flush.as_mut(), polls).await;
            let late = db.create_column_family("late", &options).unwrap();
            let mut batch = WriteBatch::new();
            batch.put(b"key", b"1").unwrap();
            batch.put_cf(&late, b"key", b"1").unwrap();
            db.write_async(&WriteOptions::default(), &batch).await.unwrap();
            match is_over {
                Some(flushed) => flushed.map(|()| true),
                None => flush.await.map(|()| false),
            }
        });
        let is_over = is_over.expect("the power is on").unwrap();
        (begun, ended) = (begun + u64::from(!is_over), ended + u64::from(is_over));
        simulation.fs().lose_power_now();
        drop(db);
        let simulation = simulation.restart(Crash::Power, seed * 7 + polls + 1_000);
        let db = Db::open("/db", &options.env(simulation.env().clone()));
        let db = db.unwrap_or_else(|e| panic!("seed {seed}, made after {polls} polls of the flush: {e}"));
        let found = ["default", "late"].map(|family| all_of(&db, family));
        assert!(found[0].contains_key(&b"before"[..]), "seed {seed}, {polls} polls");
        assert_eq!(
            found[0].contains_key(&b"key"[..]),
            found[1].contains_key(&b"key"[..]),
            "seed {seed}, {polls} polls"
        );
    }
    assert!(begun > 50 && ended > 0, "{begun} flushes were under way: the test shows nothing");
}

/// A memtable that fills up after the flush has begun is not part of the flush. It stays until two
/// can be merged.
#[test]
fn a_flush_does_not_wait_for_a_memtable_that_fills_up_meanwhile() {
    let mut kept = 0;
    for polls in 0..MOST_POLLS {
        let simulation = Simulation::new(polls);
        let options = options(simulation.env()).column_families(|cf| {
            cf.write_buffer_size = 64 << 10;
            cf.max_write_buffer_number = 3;
            cf.min_write_buffer_number_to_merge = 2;
        });
        let db = Db::open("/db", &options).unwrap();
        db.put(b"before", b"1").unwrap();
        let ended = simulation.run(async {
            let flush_options = FlushOptions::default();
            let mut flush = pin!(in_steps(db.env(), db.flush_async(&flush_options)));
            let ended = poll_times(flush.as_mut(), polls).await;
            // Sleeps because memtables are sealed by jobs, which run while the flush itself is not
            // polled.
            sleep(db.env(), Duration::from_millis(10)).await;
            db.put_async("fills it", &vec![0u8; 80 << 10]).await.unwrap();
            sleep(db.env(), Duration::from_millis(10)).await;
            let ends = ended.is_some();
            let mut flushed = pin!(async {
                match ended {
                    Some(flushed) => flushed,
                    None => flush.await,
                }
            });
            let mut late = pin!(sleep(db.env(), Duration::from_secs(60)));
            std::future::poll_fn(|context| match flushed.as_mut().poll(context) {
                Poll::Ready(flushed) => Poll::Ready(Some(flushed)),
                Poll::Pending => late.as_mut().poll(context).map(|()| None),
            })
            .await
            .unwrap_or_else(|| panic!("a memtable that is full after {polls} polls is waited for"))
            .unwrap();
            ends
        });
        kept += u64::from(db.int_property("rocksdb.num-immutable-mem-table") == Some(1));
        if ended.expect("the power is on") {
            assert!(polls > 5 && kept > 0, "{polls} polls, {kept} kept: the test shows nothing");
            return;
        }
    }
    panic!("a flush ends");
}

/// A failed log may lack any write, so replay stops at it. No family may need it once writes are
/// accepted again.
#[test]
fn no_family_that_is_made_while_the_database_recovers_needs_the_failed_log() {
    for polls in 0..MOST_POLLS {
        let simulation = Simulation::new(polls);
        let options = options(simulation.env()).db(|db| db.max_bgerror_resume_count = 0);
        let db = Db::open("/db", &options).unwrap();
        db.put(b"before", b"1").unwrap();
        simulation.fs().set_trouble(failing());
        db.put(b"refused", b"1").unwrap_err();
        simulation.fs().set_trouble(Trouble::default());
        let failed = *db.log_numbers().last().unwrap();
        let ended = simulation.run(async {
            let mut resume = pin!(in_steps(db.env(), db.resume_async()));
            let ended = poll_times(resume.as_mut(), polls).await;
            db.create_column_family("late", &options).unwrap();
            let ends = ended.is_some();
            match ended {
                Some(resumed) => resumed.unwrap(),
                None => resume.await.unwrap(),
            }
            ends
        });
        let needed = db.int_property("rocksdb.min-log-number-to-keep").unwrap();
        assert!(
            needed > failed,
            "made after {polls} polls of the recovery: log {failed} failed, {needed} is needed"
        );
        let mut batch = WriteBatch::new();
        batch.put(b"after", b"1").unwrap();
        batch.put_cf(&db.column_family("late").unwrap(), b"after", b"1").unwrap();
        db.write(&WriteOptions::synced(), &batch).unwrap();
        simulation.fs().lose_power_now();
        drop(db);
        let simulation = simulation.restart(Crash::Power, polls + 1_000);
        let db = Db::open("/db", &options.env(simulation.env().clone())).unwrap();
        let found = ["default", "late"].map(|family| all_of(&db, family).into_keys().collect::<Vec<_>>());
        assert_eq!(
            found,
            [vec![b"after".to_vec(), b"before".to_vec()], vec![b"after".to_vec()]],
            "{polls} polls"
        );
        if ended.expect("the power is on") {
            assert!(polls > 5, "{polls} polls: the test shows nothing");
            return;
        }
    }
    panic!("a recovery ends");
}

/// A recovery flushes the memtables that it finds; the memtables of a family dropped meanwhile must
/// not be flushed.
#[test]
fn a_family_that_is_dropped_while_the_database_recovers_does_not_fail_the_recovery() {
    for polls in 0..MOST_POLLS {
        let simulation = Simulation::new(polls);
        let options = options(simulation.env()).db(|db| db.max_bgerror_resume_count = 0);
        let db = Db::open("/db", &options).unwrap();
        let dropped = db.create_column_family("dropped", &options).unwrap();
        db.put(b"before", b"1").unwrap();
        db.put_cf(&WriteOptions::default(), &dropped, b"before", b"1").unwrap();
        simulation.fs().set_trouble(failing());
        db.put(b"refused", b"1").unwrap_err();
        simulation.fs().set_trouble(Trouble::default());
        let ended = simulation.run(async {
            let mut resume = pin!(in_steps(db.env(), db.resume_async()));
            let ended = poll_times(resume.as_mut(), polls).await;
            db.drop_column_family(&dropped).unwrap();
            let ends = ended.is_some();
            let resumed = match ended {
                Some(resumed) => resumed,
                None => resume.await,
            };
            resumed.unwrap_or_else(|e| panic!("dropped after {polls} polls of the recovery: {e}"));
            ends
        });
        assert_eq!(all_of(&db, "default").into_keys().collect::<Vec<_>>(), [b"before".to_vec()]);
        if ended.expect("the power is on") {
            assert!(polls > 5, "{polls} polls: the test shows nothing");
            return;
        }
    }
    panic!("a recovery ends");
}

/// Listener that makes a write fail during the callback for the first recovery.
#[derive(Debug, Default)]
struct FailsAgain(Mutex<Option<(Db, SimulatedFileSystem)>>);

impl EventListener for FailsAgain {
    fn recovered(&self, _: &BackgroundError) {
        let Some((db, disk)) = self.0.lock().unwrap().take() else { return };
        disk.set_trouble(failing());
        db.put(b"refused", b"2").unwrap_err();
        disk.set_trouble(Trouble::default());
    }
}

#[test]
fn an_error_that_comes_while_a_recovery_is_told_is_recovered_from_too() {
    let simulation = Simulation::new(3);
    let listener = Arc::new(FailsAgain::default());
    let options = options(simulation.env()).event_listener(listener.clone());
    let db = Db::open("/db", &options).unwrap();
    *listener.0.lock().unwrap() = Some((db.clone(), simulation.fs().clone()));
    simulation.fs().set_trouble(failing());
    db.put(b"refused", b"1").unwrap_err();
    simulation.fs().set_trouble(Trouble::default());
    simulation.run(async {
        for _ in 0..1_000 {
            if db.background_error().is_none() && listener.0.lock().unwrap().is_none() {
                return;
            }
            sleep(db.env(), Duration::from_millis(5)).await;
        }
        panic!("nobody recovers from {:?}", db.background_error());
    });
    db.put(b"accepted", b"1").unwrap();
    db.wait_for_compact(&WaitForCompactOptions::default()).unwrap();
    assert_eq!(all_of(&db, "default").into_keys().collect::<Vec<_>>(), [b"accepted".to_vec()]);
}
