//! Writing calls that are dropped, or no longer polled, after each of their polls in turn: after 0
//! polls, after 1, and so on until the call ends by itself. The rest of the database must not
//! notice: other calls end, no acknowledged write is lost, no write is applied twice, and no file
//! is left over.
//!
//! Writes are merges that add to counters, because an entry that is applied twice shows in the sum.

use karst_engine::io::MemoryFileSystem;
use karst_engine::{
    CompactRangeOptions, CompactionInfo, Db, EventListener, FlushOptions, Options, ReadOptions,
    WaitForCompactOptions, WriteBatch, WriteOptions,
};
use karst_io::testing::{in_steps, poll_times};
use karst_io::{Disturb, Disturbance, DisturbedFileSystem, Env, Simulation, Trouble, sleep};
use std::future::{Future, poll_fn};
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

const FAMILIES: [&str; 2] = ["default", "other"];
const KEYS: u64 = 4;
/// Number of polls that no call here reaches.
const MOST_POLLS: u64 = 1_000;

fn options(env: &Env) -> Options {
    Options::new()
        .env(env.clone())
        .db(|db| {
            db.create_if_missing = true;
            db.max_bgerror_resume_count = 0;
        })
        .set_all("merge_operator=uint64add;disable_auto_compactions=true")
        .unwrap()
}

fn open(options: &Options) -> Db {
    let db = Db::open("/db", options).unwrap();
    db.create_column_family("other", options).unwrap();
    db
}

/// Adds one to every counter of both families.
fn batch(db: &Db) -> WriteBatch {
    let mut batch = WriteBatch::new();
    for family in FAMILIES {
        let family = db.column_family(family).unwrap();
        for key in 0..KEYS {
            batch.merge_cf(&family, key.to_be_bytes(), 1u64.to_le_bytes()).unwrap();
        }
    }
    batch
}

fn count(db: &Db, times: u64) {
    (0..times).for_each(|_| db.write(&WriteOptions::default(), &batch(db)).unwrap());
}

fn number(value: &[u8]) -> u64 {
    u64::from_le_bytes(value.try_into().expect("a counter has eight bytes"))
}

/// Returns the value of the first counter of the first family.
fn counted(db: &Db) -> u64 {
    db.get(0u64.to_be_bytes()).unwrap().map_or(0, |value| number(&value))
}

/// Asserts that every way of reading returns `expected` for every counter.
fn check(db: &Db, expected: u64, when: &str) {
    let keys: Vec<[u8; 8]> = (0..KEYS).map(u64::to_be_bytes).collect();
    for name in FAMILIES {
        let family = db.column_family(name).unwrap();
        let options = ReadOptions::default();
        let got: Vec<u64> =
            keys.iter().map(|key| number(&db.get_cf(&options, &family, key).unwrap().unwrap())).collect();
        let at_once = db.multi_get_cf(&options, &family, &keys);
        let at_once: Vec<u64> = at_once.into_iter().map(|got| number(&got.unwrap().unwrap())).collect();
        let mut iter = db.iter_cf(&options, &family).unwrap();
        let (mut forward, mut backward) = (Vec::new(), Vec::new());
        iter.seek_to_first().unwrap();
        while iter.valid() {
            forward.push(number(iter.value()));
            iter.next().unwrap();
        }
        iter.seek_to_last().unwrap();
        while iter.valid() {
            backward.push(number(iter.value()));
            iter.prev().unwrap();
        }
        for (how, found) in
            [("get", got), ("multi_get", at_once), ("forward", forward), ("backward", backward)]
        {
            assert_eq!(found, [expected; KEYS as usize], "{name} by {how}, {when}");
        }
    }
}

/// Asserts, after closing, that the directory holds no file that the database does not need.
fn check_files(db: &Db, when: &str) {
    let (live, _) = db.live_file_names();
    let logs = db.log_numbers();
    for name in db.env().fs().list_dir(db.path()).unwrap() {
        let needed = match name.rsplit_once('.') {
            Some((_, "sst" | "blob")) => live.iter().any(|live| live.trim_start_matches('/') == name),
            Some((number, "log")) => logs.contains(&number.parse().unwrap()),
            _ => true,
        };
        assert!(needed, "{name} is left over, {when}; needed are {live:?} and logs {logs:?}");
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Flush,
    CompactRange,
    Write,
}

impl Call {
    async fn make(self, db: &Db) {
        let made = match self {
            Self::Flush => db.flush_async(&FlushOptions::default()).await,
            Self::CompactRange => db.compact_range_async(&CompactRangeOptions::default(), None, None).await,
            Self::Write => db.write_async(&WriteOptions::synced(), &batch(db)).await,
        };
        made.unwrap();
    }
}

/// End of a call after its last poll.
#[derive(Clone, Copy, Debug)]
enum End {
    Dropped,
    /// The database is closed while the call still stands.
    Closed,
}

/// Polls `call` at most `polls` times and then ends it as `end` says. Returns true if the call
/// ended by itself.
fn give_up(call: Call, end: End, polls: u64) -> bool {
    let when = format!("{call:?} was {end:?} after {polls} polls");
    let simulation = Simulation::new(polls);
    simulation.set_most_steps(1_000_000);
    let options = options(simulation.env());
    let mut db = open(&options);
    let mut expected = 0;
    for _ in 0..3 {
        count(&db, 3);
        expected += 3;
        let other = db.column_family("other").unwrap();
        db.flush_cfs(&FlushOptions::default(), &[db.default_column_family(), &other]).unwrap();
    }
    count(&db, 2);
    expected += 2;
    let ended = simulation
        .run(async {
            let mut made = Box::pin(in_steps(db.env(), call.make(&db)));
            let ended = poll_times(made.as_mut(), polls).await.is_some();
            if matches!(end, End::Closed) {
                db.close().unwrap();
            }
            ended
        })
        .expect("the power is on");
    if matches!(end, End::Closed) {
        check_files(&db, &when);
        drop(db);
        db = Db::open("/db", &options).unwrap();
    }
    count(&db, 1);
    expected += 1;
    // A write that has begun is applied or not; any later write finds that decided.
    let extra = counted(&db) - expected;
    let possible = if call != Call::Write || polls == 0 { 0..=0 } else { u64::from(ended)..=1 };
    assert!(possible.contains(&extra), "{when}: it counts {extra} times");
    expected += extra;
    check(&db, expected, &when);
    db.flush(&FlushOptions::default()).unwrap();
    check(&db, expected, &format!("{when}, and it was flushed"));
    count(&db, 1);
    expected += 1;
    for family in FAMILIES {
        let family = db.column_family(family).unwrap();
        db.compact_range_cf(&CompactRangeOptions::default(), &family, None, None).unwrap();
    }
    db.wait_for_compact(&WaitForCompactOptions::default()).unwrap();
    check(&db, expected, &format!("{when}, and it was compacted"));
    count(&db, 1);
    expected += 1;
    db.close().unwrap();
    check_files(&db, &when);
    drop(db);
    let db = Db::open("/db", &options).unwrap();
    check(&db, expected, &format!("{when}, and it was opened again"));
    ended
}

#[test]
fn a_call_that_is_given_up_after_any_poll_leaves_everything_else_as_it_was() {
    for call in [Call::Flush, Call::CompactRange, Call::Write] {
        for end in [End::Dropped, End::Closed] {
            let polls = (0..MOST_POLLS).find(|polls| give_up(call, end, *polls));
            let polls = polls.expect("a call ends");
            assert!(polls > 1, "{call:?} ends after {polls} polls: the test shows nothing");
        }
    }
}

#[test]
fn a_recovery_that_is_given_up_flushes_nothing_twice() {
    for polls in 0..MOST_POLLS {
        let simulation = Simulation::new(polls);
        let options = options(simulation.env());
        let db = open(&options);
        count(&db, 5);
        simulation.fs().set_trouble(Trouble { write_error: 1.0, ..Trouble::default() });
        db.delete(b"refused").unwrap_err();
        simulation.fs().set_trouble(Trouble::default());
        let ended = simulation.run(async {
            let mut resumed = Box::pin(in_steps(db.env(), db.resume_async()));
            let ended = poll_times(resumed.as_mut(), polls).await;
            drop(resumed);
            // The recovery that was dropped may still run, and then its outcome is not this call's.
            db.resume_async().await.unwrap();
            ended.map(|resumed| resumed.unwrap()).is_some()
        });
        let when = format!("the recovery was dropped after {polls} polls");
        check(&db, 5, &when);
        count(&db, 1);
        for family in FAMILIES {
            let family = db.column_family(family).unwrap();
            db.compact_range_cf(&CompactRangeOptions::default(), &family, None, None).unwrap();
        }
        check(&db, 6, &when);
        db.close().unwrap();
        check_files(&db, &when);
        drop(db);
        check(&Db::open("/db", &options).unwrap(), 6, &when);
        if ended.expect("the power is on") {
            assert!(polls > 1, "{polls} polls: the test shows nothing");
            return;
        }
    }
    panic!("a recovery ends");
}

/// A flush that is kept but not polled any more holds no turn that others wait for.
#[test]
fn nobody_waits_for_a_flush_that_is_not_polled() {
    for polls in 0..MOST_POLLS {
        let simulation = Simulation::new(polls);
        let options = options(simulation.env());
        let db = open(&options);
        count(&db, 1);
        let ended = simulation.run(async {
            let mut kept = Box::pin(in_steps(db.env(), Call::Flush.make(&db)));
            let ended = poll_times(kept.as_mut(), polls).await.is_some();
            let (other, at_once) = (db.column_family("other").unwrap(), FlushOptions::default());
            let families = [&other];
            let flushed = pin!(db.flush_cfs_async(&at_once, &families));
            let late = pin!(sleep(db.env(), Duration::from_secs(60)));
            assert!(first_ends(flushed, late).await, "a flush waits for one that got {polls} polls");
            ended
        });
        if ended.expect("the power is on") {
            return;
        }
    }
    panic!("a flush ends");
}

/// Returns true if `first` ends before `second`.
async fn first_ends<T, U>(
    mut first: Pin<&mut impl Future<Output = T>>,
    mut second: Pin<&mut impl Future<Output = U>>,
) -> bool {
    poll_fn(|cx| match first.as_mut().poll(cx) {
        Poll::Ready(_) => Poll::Ready(true),
        Poll::Pending => second.as_mut().poll(cx).map(|_| false),
    })
    .await
}

/// Blocks the creation of each log whose number is above `behind`, until `behind` is `u64::MAX`.
#[derive(Debug)]
struct HoldsLogs {
    behind: AtomicU64,
    held: mpsc::SyncSender<()>,
}

impl HoldsLogs {
    fn holds(&self, path: &Path) -> bool {
        let name = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".log")?.parse().ok());
        name.is_some_and(|number: u64| number > self.behind.load(Ordering::Acquire))
    }
}

impl Disturb for HoldsLogs {
    fn read(&self, _: &Path, _: u64, _: usize) -> Option<Disturbance> {
        None
    }

    fn write(&self, path: &Path) -> std::io::Result<()> {
        if self.holds(path) {
            // An error means that the receiver is gone.
            let _ = self.held.try_send(());
        }
        while self.holds(path) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

/// Closing must wait because the next opener of the database may give one of its logs the number of
/// the log that is still being created.
#[test]
fn closing_waits_for_a_log_that_is_being_made_for_nobody() {
    let (held, is_held) = mpsc::sync_channel(1);
    let holds = HoldsLogs { behind: AtomicU64::new(u64::MAX), held };
    let files = DisturbedFileSystem::new(Arc::new(MemoryFileSystem::new()), holds);
    let holds = files.between().clone();
    let env = Env::builder().file_system(Arc::new(files)).build();
    let db = open(&options(&env));
    count(&db, 1);
    holds.behind.store(*db.log_numbers().last().unwrap(), Ordering::Release);
    {
        let mut flush = Box::pin(Call::Flush.make(&db));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(flush.as_mut().poll(&mut cx).is_pending());
        is_held.recv_timeout(Duration::from_secs(60)).unwrap();
    }
    // Measures how long closing takes on this machine right now when nothing blocks it.
    let free = Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build();
    let other = open(&options(&free));
    count(&other, 1);
    let began = Instant::now();
    other.close().unwrap();
    let long = began.elapsed() * 20 + Duration::from_millis(200);
    let (tell, told) = mpsc::channel();
    let closing = db.clone();
    let closer = std::thread::spawn(move || {
        tell.send(closing.close()).unwrap();
    });
    let early = told.recv_timeout(long);
    assert!(early.is_err(), "the database was closed, and a log is still being made: {early:?}");
    holds.behind.store(u64::MAX, Ordering::Release);
    told.recv_timeout(Duration::from_secs(60)).unwrap().unwrap();
    closer.join().unwrap();
    check_files(&db, "the flush was dropped");
}

#[derive(Debug, Default)]
struct Compactions {
    begun: AtomicU64,
    completed: AtomicU64,
}

impl EventListener for Compactions {
    fn compaction_begun(&self, _: &CompactionInfo) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }
    fn compaction_completed(&self, _: &CompactionInfo) {
        self.completed.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn while_background_work_is_paused_no_manual_compaction_runs_either() {
    for polls in 0..MOST_POLLS {
        let simulation = Simulation::new(polls);
        let told = Arc::new(Compactions::default());
        let db = open(&options(simulation.env()).event_listener(told.clone()));
        for _ in 0..2 {
            count(&db, 1);
            db.flush(&FlushOptions::default()).unwrap();
        }
        let ended = simulation.run(async {
            let mut compacted = Box::pin(in_steps(db.env(), Call::CompactRange.make(&db)));
            let ended = poll_times(compacted.as_mut(), polls).await.is_some();
            db.pause_background_work_async().await.unwrap();
            let now = || [&told.begun, &told.completed].map(|count| count.load(Ordering::Relaxed));
            let [begun, completed] = now();
            assert_eq!(begun, completed, "{polls} polls of the compaction: it runs, and all is paused");
            if !ended {
                let late = pin!(sleep(db.env(), Duration::from_millis(100)));
                let through = first_ends(compacted.as_mut(), late).await;
                assert_eq!(now()[0], begun, "{polls} polls of the compaction: it began while all was paused");
                db.continue_background_work().unwrap();
                if !through {
                    compacted.await;
                }
            }
            ended
        });
        if ended.expect("the power is on") {
            assert!(told.completed.load(Ordering::Relaxed) > 0 && polls > 1, "the test shows nothing");
            return;
        }
    }
    panic!("a compaction ends");
}

#[test]
fn a_pause_that_is_given_up_is_taken_back() {
    let simulation = Simulation::new(1);
    let db = open(&options(simulation.env()));
    count(&db, 1);
    simulation.run(async {
        db.flush_async(&FlushOptions { wait: false, ..FlushOptions::default() }).await.unwrap();
        let mut paused = Box::pin(db.pause_background_work_async());
        let ended = poll_times(paused.as_mut(), 1).await;
        assert!(ended.is_none(), "no flush ran: the test shows nothing");
        drop(paused);
        db.continue_background_work().expect_err("nobody has paused");
        db.write_async(&WriteOptions::default(), &batch(&db)).await.unwrap();
        db.flush_async(&FlushOptions::default()).await.unwrap();
    });
    check(&db, 2, "after the pause");
}
