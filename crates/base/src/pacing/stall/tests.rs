//! Tests of [`super`]: writers are admitted, delayed and blocked, and every waiter is woken.

use super::*;
use crate::health::BackgroundErrorReason;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

const A: ColumnFamilyId = ColumnFamilyId(0);
const B: ColumnFamilyId = ColumnFamilyId(1);
const PATIENCE: Duration = Duration::from_secs(10);

struct Fixture {
    env: Env,
    stats: Statistics,
    health: Arc<Health>,
    stalls: StallController,
}

fn fixture() -> Fixture {
    let health = Arc::new(Health::new(true));
    Fixture {
        env: Env::posix(),
        stats: Statistics::default(),
        stalls: StallController::new(health.clone(), WriteBufferManager::new(0, false), 16 << 20, PATIENCE),
        health,
    }
}

fn bytes(bytes: u64) -> Entry {
    Entry { bytes, ..Entry::default() }
}

fn poll_once<F: Future + ?Sized>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn the_worst_family_decides() {
    let Fixture { stalls, .. } = fixture();
    assert!(stalls.is_open(&bytes(1)));
    stalls.set(A, WriteStall::Delayed(StallCause::L0FileCountLimit), true, false);
    assert_eq!((stalls.is_stopped(), stalls.actual_delayed_rate()), (false, 16 << 20));
    stalls.set(B, WriteStall::Stopped(StallCause::MemtableLimit), true, false);
    assert_eq!((stalls.is_stopped(), stalls.actual_delayed_rate()), (true, 0));
    stalls.set(A, WriteStall::Normal, false, false);
    assert!(stalls.is_stopped());
    stalls.forget(B);
    assert!(stalls.is_open(&bytes(1)) && !stalls.needs_speed());
}

/// Records wake-ups.
#[derive(Default)]
struct Woken(std::sync::atomic::AtomicBool);

impl std::task::Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, std::sync::atomic::Ordering::Release);
    }
}

/// The writer has no limit while the stop is only expected, although a flush has failed before.
#[test]
fn a_writer_stopped_by_an_expected_stop_learns_of_its_limit_when_the_stop_is_certain() {
    let Fixture { env, stats, stalls, .. } = fixture();
    let stopped = WriteStall::Stopped(StallCause::MemtableLimit);
    stalls.job_failed(A, Relief::Flush, Duration::ZERO, &Error::new(ErrorKind::NoSpace, "full"));
    stalls.expect_stop([A, B]);
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let mut writer = Box::pin(stalls.enter(&env, &stats, bytes(100)));
    let mut pend = || {
        assert!(writer.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        woken.0.swap(false, std::sync::atomic::Ordering::AcqRel)
    };
    let limit = || stalls.limit(Hold::Stop, Duration::ZERO, &bytes(100)).map(|(until, _)| until);
    pend();
    assert_eq!(limit(), None);
    stalls.set(A, stopped, true, false);
    assert_eq!(limit(), Some(PATIENCE));
    assert!(pend(), "the stop is certain");
    assert!(!pend());
    stalls.set(A, stopped, true, false);
    assert!(!pend(), "nothing has changed");
    stalls.expect_no_stop(&[B]);
    assert!(pend(), "one reason is gone");
    stalls.set(B, WriteStall::Stopped(StallCause::L0FileCountLimit), true, false);
    assert!(pend(), "one reason is new");
}

#[test]
fn writers_wait_while_it_is_closed_and_go_on_when_it_opens() {
    let Fixture { env, stats, stalls, .. } = fixture();
    stalls.set(A, WriteStall::Stopped(StallCause::MemtableLimit), true, false);
    let mut writers: Vec<_> = (0..5).map(|_| Box::pin(stalls.enter(&env, &stats, bytes(100)))).collect();
    for writer in &mut writers {
        assert!(poll_once(writer.as_mut()).is_pending());
    }
    stalls.set(A, WriteStall::Normal, false, false);
    for writer in &mut writers {
        assert!(matches!(poll_once(writer.as_mut()), Poll::Ready(Ok(()))));
    }
    drop(writers);
    assert_eq!(stats.histogram(HistogramKind::WriteStall).count(), 5);
    assert_eq!(stalls.family(A).1.totals(), (1, 0));
}

#[test]
fn a_delayed_writer_pays_and_a_stop_meanwhile_counts() {
    let Fixture { env, stats, stalls, .. } = fixture();
    stalls.set_rate(1_000_000);
    stalls.set(A, WriteStall::Delayed(StallCause::L0FileCountLimit), true, false);
    karst_io::block_on(&env, stalls.enter(&env, &stats, bytes(5_000))).unwrap();
    assert!(stats.ticker(Ticker::StallMicros) > 0);
    let mut writer = pin!(stalls.enter(&env, &stats, bytes(1 << 30)));
    assert!(poll_once(writer.as_mut()).is_pending());
    stalls.set(A, WriteStall::Stopped(StallCause::L0FileCountLimit), true, false);
    assert!(poll_once(writer.as_mut()).is_pending());
    stalls.set(A, WriteStall::Normal, false, false);
    assert!(matches!(poll_once(writer.as_mut()), Poll::Ready(Ok(()))));
}

#[test]
fn who_would_not_wait_fails_and_pays_nothing() {
    let Fixture { env, stats, stalls, .. } = fixture();
    let hasty = Entry { no_slowdown: true, ..bytes(1 << 30) };
    for condition in
        [WriteStall::Stopped(StallCause::L0FileCountLimit), WriteStall::Delayed(StallCause::L0FileCountLimit)]
    {
        stalls.set(A, condition, true, false);
        let error = karst_io::block_on(&env, stalls.enter(&env, &stats, hasty)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Incomplete);
    }
    // If the refused writer had taken bytes from the rate, this one would wait for a minute.
    karst_io::block_on(&env, stalls.enter(&env, &stats, bytes(10))).unwrap();
}

#[test]
fn low_priority_writers_give_way_to_compaction() {
    let Fixture { env, stats, stalls, .. } = fixture();
    stalls.set(A, WriteStall::Normal, true, false);
    assert!(stalls.is_open(&bytes(1)));
    let mut patient = pin!(stalls.enter(&env, &stats, Entry { low_pri: true, ..bytes(1 << 30) }));
    assert!(poll_once(patient.as_mut()).is_pending());
    let hasty = Entry { low_pri: true, no_slowdown: true, ..bytes(1 << 30) };
    karst_io::block_on(&env, stalls.enter(&env, &stats, hasty)).unwrap_err();
    stalls.set(A, WriteStall::Normal, false, false);
    assert!(matches!(poll_once(patient.as_mut()), Poll::Ready(Ok(()))));
}

#[test]
fn errors_and_the_end_reach_those_who_wait() {
    let Fixture { env, stats, health, stalls } = fixture();
    stalls.set(A, WriteStall::Stopped(StallCause::MemtableLimit), true, false);
    let mut writer = pin!(stalls.enter(&env, &stats, bytes(1)));
    assert!(poll_once(writer.as_mut()).is_pending());
    health.report(&Error::new(ErrorKind::Io, "the disk is gone"), BackgroundErrorReason::Flush);
    let Poll::Ready(Err(error)) = poll_once(writer.as_mut()) else { panic!("it goes on waiting") };
    assert!(error.to_string().contains("the disk is gone"));
    health.begin_recovery().unwrap().unwrap().succeed().unwrap();
    let mut writer = pin!(stalls.enter(&env, &stats, bytes(1)));
    assert!(poll_once(writer.as_mut()).is_pending());
    stalls.shut();
    let Poll::Ready(Err(error)) = poll_once(writer.as_mut()) else { panic!("it goes on waiting") };
    assert_eq!(error.kind(), ErrorKind::Closed);
}

#[test]
fn memtables_over_their_budget_stop_writers() {
    let health = Arc::new(Health::new(true));
    let budget = WriteBufferManager::new(64 << 10, true);
    let stalls = StallController::new(health, budget.clone(), 1 << 20, PATIENCE);
    let (env, stats) = (Env::posix(), Statistics::default());
    let memtable = budget.charge();
    memtable.follow(100 << 10);
    let mut writer = pin!(stalls.enter(&env, &stats, bytes(1)));
    assert!(poll_once(writer.as_mut()).is_pending());
    drop(memtable);
    assert!(matches!(poll_once(writer.as_mut()), Poll::Ready(Ok(()))));
}

#[test]
fn nobody_waits_for_ever_for_what_fails_each_time() {
    let Fixture { stats, stalls, .. } = fixture();
    let simulation = karst_io::Simulation::new(1);
    let env = simulation.env();
    let full =
        Error::from(karst_io::Error::new("write", "/db/1.sst", std::io::ErrorKind::StorageFull.into()));
    let broken = Error::new(ErrorKind::Io, "the disk is broken");
    // Returns the writer's error and the seconds it waited; `None` if it still waits after 100
    // seconds.
    let told = |entry: Entry| {
        let start = env.now();
        let limit = karst_io::sleep(env, Duration::from_secs(100));
        let entered = Box::pin(stalls.enter(env, &stats, entry));
        match karst_io::block_on(env, race(entered, limit)) {
            Raced::First(outcome) => Some((outcome.unwrap_err().kind(), (env.now() - start).as_secs())),
            Raced::Second(()) => None,
        }
    };
    let patient = |secs| Entry { timeout: Some(Duration::from_secs(secs)), ..bytes(1) };
    stalls.set(A, WriteStall::Stopped(StallCause::L0FileCountLimit), true, false);
    assert_eq!((told(bytes(1)), told(patient(3))), (None, Some((ErrorKind::TimedOut, 3))));
    // Neither another family's failure nor a failed flush affects a writer that waits for this
    // compaction.
    stalls.job_failed(B, Relief::Compaction, env.now(), &broken);
    stalls.job_failed(A, Relief::Flush, env.now(), &broken);
    assert_eq!(told(bytes(1)), None);
    // Without space no compaction is tried, in any family.
    stalls.job_failed(B, Relief::Compaction, env.now(), &full);
    assert_eq!(told(bytes(1)), Some((ErrorKind::NoSpace, 10)), "it has failed for more than ten seconds");
    stalls.job_failed(A, Relief::Compaction, env.now(), &broken);
    stalls.job_succeeded(B, Relief::Compaction);
    assert_eq!(told(bytes(1)), Some((ErrorKind::Io, 10)));
    let ever = Entry { timeout: Some(Duration::MAX), ..bytes(1) };
    assert_eq!((told(patient(0)), told(ever)), (Some((ErrorKind::Io, 0)), None));
    stalls.job_succeeded(A, Relief::Compaction);
    assert_eq!(told(bytes(1)), None);
}

#[test]
fn a_failure_while_writers_wait_already_counts_from_then_on() {
    let Fixture { stats, stalls, .. } = fixture();
    let simulation = karst_io::Simulation::new(1);
    let env = simulation.env();
    stalls.set(A, WriteStall::Stopped(StallCause::MemtableLimit), true, false);
    let fails = async {
        karst_io::sleep(env, Duration::from_secs(60)).await;
        stalls.job_failed(A, Relief::Flush, env.now(), &Error::new(ErrorKind::Io, "the disk is broken"));
        std::future::pending::<()>().await;
    };
    let start = env.now();
    let entered = Box::pin(stalls.enter(env, &stats, bytes(1)));
    let Raced::First(outcome) = karst_io::block_on(env, race(entered, Box::pin(fails))) else {
        unreachable!()
    };
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Io);
    assert_eq!((env.now() - start).as_secs(), 70);
}
