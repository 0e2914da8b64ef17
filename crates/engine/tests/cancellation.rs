//! Reads that are dropped at random moments, in three forms at once: tasks of a reactor, an
//! executor without channels, and `block_on`; concurrently, threads run blocking reads to their
//! ends.
//!
//! Checked: every completed read is right (or, on a failing file system, returns an error);
//! afterwards no slot is in use, no read in flight, no buffer lent and no block pinned.
//!
//! The default run takes one second per file system. `KARST_LONG_TESTS=1` (set by `cargo xtask ci`)
//! takes a minute in all and demands a thousand cancellations per second.

use karst_engine::db::Db;
use karst_engine::options::ReadOptions;
use karst_engine::{BlockCache, BulkLoader, Options, Value};
use karst_io::testing::{foreign_block_on, quiesce};
use karst_io::{
    Env, FaultFileSystem, FaultPlan, Faults, FileSystem, Latency, LatencyFileSystem, PosixFileSystem,
    Reactor, block_on, sleep, spawn_local, yield_now,
};
use karst_testkit::asked::{long, seed};
use karst_testkit::random::Random;
use std::future::{Future, poll_fn};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// Number of keys in the database.
const KEYS: usize = 3000;

fn key(i: usize) -> Vec<u8> {
    format!("key{i:06}").into_bytes()
}

/// Returns the value of key `i`, or `None`. Every third key was overwritten, every seventh deleted,
/// and keys from `KEYS` on were never written.
fn expected(i: usize) -> Option<Vec<u8>> {
    if i >= KEYS || i.is_multiple_of(7) {
        return None;
    }
    let generation = u64::from(i.is_multiple_of(3));
    Some(Random::new(i as u64 * 2 + generation).bytes(100 + i % 50))
}

/// Writes three levels and L0.
fn write(directory: &Path) {
    let options = "format_version=6;target_file_size_base=40000;target_file_size_multiplier=1;block_size=1024;\
                   filter_policy=bloomfilter:10:false;index_type=kTwoLevelIndexSearch;partition_filters=true;\
                   metadata_block_size=512";
    let mut loader = BulkLoader::create(directory, &Options::new().set_all(options).unwrap()).unwrap();
    let value = |i: usize, generation: u64| Random::new(i as u64 * 2 + generation).bytes(100 + i % 50);
    (0..KEYS).for_each(|i| loader.put(&key(i), &value(i, 0)).unwrap());
    loader.seal(5).unwrap();
    (0..KEYS).step_by(3).for_each(|i| loader.put(&key(i), &value(i, 1)).unwrap());
    loader.seal(2).unwrap();
    (0..KEYS).step_by(7).for_each(|i| loader.delete(&key(i)).unwrap());
    loader.seal(0).unwrap();
    loader.finish().unwrap();
}

/// Limit after which a read is dropped.
#[derive(Clone, Copy)]
enum Patience {
    /// Never.
    Unbounded,
    /// After this number of polls; 0 is before the first.
    Polls(u64),
    /// After this time.
    Time(Duration),
}

impl Patience {
    fn draw(random: &mut Random) -> Patience {
        match random.below(8) {
            0 => Patience::Unbounded,
            1..=4 => Patience::Polls(random.below(5)),
            _ => Patience::Time(Duration::from_micros(random.below(600))),
        }
    }
}

/// Returns the future's output, or `None` if the limit is reached first; the future is then dropped
/// in its current state.
async fn within<F: Future>(env: &Env, patience: Patience, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut polls = match patience {
        Patience::Polls(polls) => polls,
        _ => u64::MAX,
    };
    let mut alarm = match patience {
        Patience::Time(time) => Some(pin_box(sleep(env, time))),
        _ => None,
    };
    poll_fn(move |cx| {
        if polls == 0 {
            return Poll::Ready(None);
        }
        polls -= 1;
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        if polls == 0 {
            return Poll::Ready(None);
        }
        match &mut alarm {
            Some(alarm) => alarm.as_mut().poll(cx).map(|_| None),
            None => Poll::Pending,
        }
    })
    .await
}

fn pin_box<F: Future>(future: F) -> std::pin::Pin<Box<F>> {
    Box::pin(future)
}

/// Outcomes of one reader.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    given_up: u64,
    right: u64,
    failed: u64,
    /// Reads of storage that were in flight after the last call that waited for them had ended.
    abandoned: u64,
}

impl Tally {
    fn add(&mut self, other: Tally) {
        self.given_up += other.given_up;
        self.right += other.right;
        self.failed += other.failed;
        self.abandoned += other.abandoned;
    }
}

/// A database under test.
#[derive(Clone)]
struct Subject {
    db: Db,
    env: Env,
    /// True if its file system fails now and then.
    fails: bool,
    until: Duration,
}

impl Subject {
    fn judge(&self, tally: &mut Tally, i: usize, got: karst_engine::Result<Option<Value>>) -> Option<Value> {
        match got {
            Ok(value) => {
                assert_eq!(value.as_deref(), expected(i).as_deref(), "key {i}");
                tally.right += 1;
                value
            }
            Err(error) => {
                assert!(self.fails, "{error}");
                tally.failed += 1;
                None
            }
        }
    }

    /// Reads and drops reads until `until`.
    async fn churn(self, seed: u64) -> Tally {
        let mut random = Random::new(seed);
        let mut tally = Tally::default();
        // Some values outlive their reads, and pin their blocks.
        let mut kept: Vec<Value> = Vec::new();
        let mut letting_go = Vec::new();
        while self.env.now() < self.until {
            match random.below(6) {
                0..=2 => self.one(&mut random, &mut tally, &mut kept).await,
                3..=4 => self.batch(&mut random, &mut tally, &mut kept).await,
                _ => self.scan(&mut random, &mut tally, &mut kept).await,
            }
            if kept.len() > 20 {
                let gone = kept.split_off(random.index(20));
                if random.one_in(8) {
                    // Values may be dropped on any thread.
                    letting_go.push(self.env.run_blocking(move |_| drop(gone)));
                }
            }
            if random.one_in(16) {
                yield_now().await;
            }
        }
        // Values whose job has not run yet still pin their blocks.
        for job in letting_go {
            job.await;
        }
        tally
    }

    async fn one(&self, random: &mut Random, tally: &mut Tally, kept: &mut Vec<Value>) {
        let i = random.index(KEYS + 50);
        let (key, patience) = (key(i), Patience::draw(random));
        match within(&self.env, patience, self.db.get_async(&key)).await {
            Some(got) => kept.extend(self.judge(tally, i, got)),
            None => tally.given_up += 1,
        }
    }

    async fn batch(&self, random: &mut Random, tally: &mut Tally, kept: &mut Vec<Value>) {
        let numbers: Vec<usize> = (0..1 + random.index(24)).map(|_| random.index(KEYS + 50)).collect();
        let keys: Vec<Vec<u8>> = numbers.iter().map(|i| key(*i)).collect();
        let patience = Patience::draw(random);
        match within(&self.env, patience, self.db.multi_get_async(&keys)).await {
            Some(got) => {
                assert_eq!(got.len(), keys.len());
                for (i, got) in numbers.into_iter().zip(got) {
                    kept.extend(self.judge(tally, i, got));
                }
            }
            None => tally.given_up += 1,
        }
    }

    /// Moves an iterator; after a dropped move it is positioned elsewhere and continues.
    async fn scan(&self, random: &mut Random, tally: &mut Tally, kept: &mut Vec<Value>) {
        let mut iter = self.db.iter(&ReadOptions::default()).unwrap();
        for _ in 0..1 + random.below(4) {
            let mut at = random.index(KEYS);
            let (target, forward) = (key(at), random.one_in(2));
            let patience = Patience::draw(random);
            let mut moved = if forward {
                within(&self.env, patience, iter.seek_async(&target)).await
            } else {
                within(&self.env, patience, iter.seek_for_prev_async(&target)).await
            };
            for _ in 0..random.below(60) {
                match &moved {
                    None => break,
                    Some(Ok(())) => {}
                    Some(Err(error)) => {
                        assert!(self.fails, "{error}");
                        tally.failed += 1;
                        break;
                    }
                }
                // The keys in between are deleted.
                let found = if forward {
                    (at..KEYS).find(|i| expected(*i).is_some())
                } else {
                    (0..=at).rev().find(|i| expected(*i).is_some())
                };
                assert_eq!(iter.valid(), found.is_some(), "behind {at}, forward {forward}");
                let Some(found) = found else { break };
                assert_eq!(iter.key(), key(found));
                assert_eq!(Some(iter.value()), expected(found).as_deref(), "key {found}");
                tally.right += 1;
                if random.one_in(30) {
                    kept.push(iter.pinned_value());
                }
                if !forward && found == 0 {
                    break;
                }
                at = if forward { found + 1 } else { found - 1 };
                let patience = if random.one_in(10) { Patience::draw(random) } else { Patience::Unbounded };
                moved = if forward {
                    within(&self.env, patience, iter.next_async()).await
                } else {
                    within(&self.env, patience, iter.prev_async()).await
                };
            }
            tally.given_up += u64::from(moved.is_none());
        }
    }

    /// Performs blocking reads, all to their ends, concurrently with the dropped ones.
    fn steadily(self, seed: u64) -> Tally {
        let mut random = Random::new(seed);
        let mut tally = Tally::default();
        while self.env.now() < self.until {
            let i = random.index(KEYS + 50);
            self.judge(&mut tally, i, self.db.get(key(i)));
            let numbers: Vec<usize> = (0..8).map(|_| random.index(KEYS + 50)).collect();
            let keys: Vec<Vec<u8>> = numbers.iter().map(|i| key(*i)).collect();
            for (i, got) in numbers.into_iter().zip(self.db.multi_get(&keys)) {
                self.judge(&mut tally, i, got);
            }
        }
        tally
    }
}

/// Runs all forms together for `span`; afterwards no resource may be in use.
fn load(
    directory: &Path,
    file_system: Arc<dyn FileSystem>,
    options: Options,
    cache_bytes: usize,
    span: Duration,
    faults: Option<&Faults>,
) -> Tally {
    let env = Env::builder().file_system(file_system).seed(1 + seed()).build();
    let cache = BlockCache::new(cache_bytes);
    let options = options.env(env.clone()).block_cache(cache.clone());
    if let Some(faults) = faults {
        faults.set_plan(FaultPlan::default());
    }
    let db = Db::open_read_only(directory, &options).unwrap();
    if let Some(faults) = faults {
        faults.set_plan(FaultPlan {
            read_error: 0.01,
            short_read: 0.02,
            bit_flip: 0.01,
            stuck: 0.02,
            stuck_for: Duration::from_millis(5),
            ..FaultPlan::default()
        });
    }
    let subject = Subject { db, env: env.clone(), fails: faults.is_some(), until: env.now() + span };
    let reactor = Reactor::builder(&env).threads(2).build().unwrap();
    let tasks: Vec<_> = (0..4u64)
        .map(|task| {
            let subject = subject.clone();
            reactor.spawn(move || async move {
                let part = |i: u64| spawn_local(subject.clone().churn(seed() + 1000 + task * 10 + i));
                let parts: Vec<_> = (0..4).map(part).collect();
                let mut tally = Tally::default();
                for part in parts {
                    tally.add(part.await.unwrap());
                }
                tally
            })
        })
        .collect();
    let threads: Vec<_> = (0..5)
        .map(|i| {
            let subject = subject.clone();
            std::thread::spawn(move || match i {
                0 | 1 => foreign_block_on(subject.churn(seed() + i)),
                2 | 3 => block_on(&subject.env.clone(), subject.churn(seed() + i)),
                _ => subject.steadily(seed() + i),
            })
        })
        .collect();
    let mut tally = Tally::default();
    threads.into_iter().for_each(|thread| tally.add(thread.join().unwrap()));
    tasks.into_iter().for_each(|task| tally.add(task.join().unwrap()));
    drop(reactor);
    quiesce(&env);
    tally.abandoned = env.io_stats().abandoned;
    // Checked before and after closing: few open tables pin and unpin blocks at any time, but reads
    // pin none by now.
    drop(subject);
    assert_eq!(cache.pinned_bytes(), 0, "{tally:?}");
    assert!(env.io_stats().is_quiescent(), "{:?}", env.io_stats());
    tally
}

#[test]
fn nothing_leaks_and_every_result_is_right() {
    let directory = tempfile::Builder::new().tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    write(directory.path());
    let posix = || -> Arc<dyn FileSystem> { Arc::new(PosixFileSystem) };
    let slow = || -> Arc<dyn FileSystem> {
        let latency =
            Latency::of_reads(Duration::from_micros(100)).with_jitter(Duration::from_micros(400), 3);
        Arc::new(LatencyFileSystem::new(posix(), latency))
    };
    let faulty = Arc::new(FaultFileSystem::new(posix(), Faults::new(4 + seed(), FaultPlan::default())));
    let metadata_in_cache = || {
        Options::new()
            .db(|db| db.max_open_files = 20)
            .column_families(|family| family.table_factory.block_based.cache_index_and_filter_blocks = true)
    };
    let direct = || Options::new().db(|db| db.use_direct_reads = true);
    let span = if long() { Duration::from_secs(10) } else { Duration::from_millis(700) };
    let path = directory.path();
    let faulted = || load(path, faulty.clone(), metadata_in_cache(), 30_000, span, Some(faulty.between()));
    let runs: [(&str, &dyn Fn() -> Tally); 6] = [
        ("no cache", &|| load(path, posix(), metadata_in_cache(), 0, span, None)),
        ("small cache", &|| load(path, posix(), metadata_in_cache(), 60_000, span, None)),
        ("direct", &|| load(path, posix(), direct(), 0, span, None)),
        ("slow, no cache", &|| load(path, slow(), metadata_in_cache(), 0, span, None)),
        ("slow, small cache", &|| load(path, slow(), Options::new(), 60_000, span, None)),
        ("faults", &faulted),
    ];
    let mut all = Tally::default();
    for (name, run) in runs {
        // Until enough has happened, because the number of reads in a span depends on the machine.
        let mut tally = Tally::default();
        while tally.given_up == 0
            || tally.right == 0
            || tally.abandoned == 0
            || (name == "faults" && tally.failed == 0)
        {
            tally.add(run());
            println!("{name}: {tally:?}");
        }
        all.add(tally);
    }
    if long() {
        assert!(all.given_up >= 6 * 10 * 1000, "{all:?}");
    }
}
