//! Failures of writing or syncing logs.

use super::unordered::Slow;
use super::*;
use crate::apply::Gather;
use karst_base::error::ErrorKind;
use karst_base::options::{FamilyConfig, Instances};
use karst_format::comparator::UserComparator;
use karst_format::options::ColumnFamilyOptions;
use karst_format::slice_transform::{PrefixExtractor, SliceTransform};
use karst_io::{Disturb, Disturbance, DisturbedFileSystem, FaultFileSystem, FaultPlan, Faults};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

fn faulty() -> (Bench, Arc<Faults>) {
    faulty_by(rules())
}

pub(super) fn faulty_by(rules: Rules) -> (Bench, Arc<Faults>) {
    let files = MemoryFileSystem::new();
    files.create_dir(Path::new(DIRECTORY)).unwrap();
    let files = FaultFileSystem::new(Arc::new(files), Faults::new(1, FaultPlan::default()));
    let faults = files.between().clone();
    let env = Env::builder().file_system(Arc::new(files)).build();
    (Bench::on(env, Path::new(DIRECTORY), rules, &[CF]), faults)
}

fn disturbed<D: Disturb + Default>() -> (Bench, Arc<D>) {
    let files = MemoryFileSystem::new();
    files.create_dir(Path::new(DIRECTORY)).unwrap();
    let files = DisturbedFileSystem::new(Arc::new(files), D::default());
    let between = files.between().clone();
    let env = Env::builder().file_system(Arc::new(files)).build();
    (Bench::on(env, Path::new(DIRECTORY), rules(), &[CF]), between)
}

pub(super) fn failing() -> FaultPlan {
    FaultPlan { write_error: 1.0, ..FaultPlan::default() }
}

#[test]
fn a_failed_write_is_not_visible_and_its_numbers_are_not_used_again() {
    let (bench, faults) = faulty();
    bench.put("a", "1").unwrap();
    faults.set_plan(failing());
    let error = bench.put("b", "2").unwrap_err();
    assert!(error.kind() == ErrorKind::Io && error.to_string().contains("000001.log"), "{error}");
    assert_eq!(bench.failures.load(Ordering::SeqCst), 1);
    faults.set_plan(FaultPlan::default());
    // Refused although the disk works again, because the log may be torn.
    bench.put("c", "3").unwrap_err();
    bench.write(&WriteOptions::unlogged(), put(b"c", b"3")).unwrap_err();
    karst_io::block_on(&bench.env, bench.pipeline.flush_wal(true)).unwrap_err();
    assert_eq!(bench.entries(), ["a@1=1"]);
    let resumed = karst_io::block_on(&bench.env, bench.pipeline.resume(FileNumber(2)));
    assert!(resumed.unwrap_err().to_string().contains("replaced"));
    let before = bench.log_bytes(1);
    let sealed = bench.seal(2);
    assert_eq!(sealed[&CF].sealed().unwrap().largest_seq, SeqNo(2));
    bench.put("d", "4").unwrap_err();
    karst_io::block_on(&bench.env, bench.pipeline.resume(FileNumber(2))).unwrap();
    bench.write(&WriteOptions::synced(), put(b"e", b"5")).unwrap();
    bench.put("f", "6").unwrap();
    assert_eq!(bench.entries(), ["e@3=5", "f@4=6"]);
    assert_eq!(bench.log_bytes(1), before);
    let (found, _) = recover(&[(2, &bench.log_bytes(2))], RecoveryMode::AbsoluteConsistency).unwrap();
    assert_eq!(found, bench.entries());
    assert_eq!(bench.failures.load(Ordering::SeqCst), 1);
}

/// A flush that ends an earlier error needs the log that its seal named, even if that log fails
/// afterwards.
#[test]
fn a_log_that_fails_behind_the_seal_of_a_recovery_is_not_resumed_by_it() {
    let (bench, faults) = faulty();
    bench.put("a", "1").unwrap();
    bench.seal(2);
    faults.set_plan(failing());
    bench.put("b", "2").unwrap_err();
    faults.set_plan(FaultPlan::default());
    bench.seal(3);
    let resume = |log| karst_io::block_on(&bench.env, bench.pipeline.resume(FileNumber(log)));
    assert!(resume(2).unwrap_err().to_string().contains("replaced"));
    bench.put("c", "3").unwrap_err();
    resume(3).unwrap();
    bench.put("d", "4").unwrap();
}

/// The MANIFEST needs the log that a recovery's seal named, even if another seal came before writes
/// resumed. Recovery continues from one to the other only if the first has its beginning.
#[test]
fn a_log_that_is_replaced_before_writes_are_resumed_has_its_beginning() {
    let (bench, faults) = faulty();
    bench.put("a", "1").unwrap();
    faults.set_plan(failing());
    bench.put("b", "2").unwrap_err();
    faults.set_plan(FaultPlan::default());
    bench.seal(2);
    bench.seal(3);
    karst_io::block_on(&bench.env, bench.pipeline.resume(FileNumber(2))).unwrap();
    bench.put("c", "3").unwrap();
    let logs = [2, 3].map(|number| (number, bench.log_bytes(number)));
    let logs = logs.each_ref().map(|(number, bytes)| (*number, &bytes[..]));
    let (found, _) = recover(&logs, RecoveryMode::AbsoluteConsistency).unwrap();
    assert!(found.len() == 1 && found[0].starts_with("c@"), "{found:?}");
}

#[test]
fn a_failed_sync_fails_those_who_asked_for_it() {
    let (bench, faults) = faulty();
    bench.put("a", "1").unwrap();
    // This record is in the system's buffer already; only the sync is left.
    faults.set_plan(failing());
    let synced = karst_io::block_on(&bench.env, bench.pipeline.flush_wal(true));
    assert!(synced.unwrap_err().to_string().contains("sync"), "names what failed");
    assert_eq!(bench.entries(), ["a@1=1"]);
    bench.put("b", "2").unwrap_err();
}

/// Blocks writes while it is shut, and then fails them.
#[derive(Debug, Default)]
struct Gate {
    shut: AtomicBool,
    reached: AtomicBool,
}

impl Disturb for Gate {
    fn read(&self, _: &Path, _: u64, _: usize) -> Option<Disturbance> {
        None
    }
    fn write(&self, _: &Path) -> std::io::Result<()> {
        if !self.shut.load(Ordering::SeqCst) {
            return Ok(());
        }
        self.reached.store(true, Ordering::SeqCst);
        until(|| !self.shut.load(Ordering::SeqCst));
        Err(std::io::Error::other("it was shut"))
    }
}

fn until(holds: impl Fn() -> bool) {
    let end = std::time::Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(std::time::Instant::now() < end, "it does not come to that");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The task of the failed write is polled only after the recovery.
#[test]
fn a_failed_write_that_is_polled_when_writing_was_resumed_has_failed() {
    let (bench, gate) = disturbed::<Gate>();
    let (options, mut cx) = (WriteOptions::new(), Context::from_waker(Waker::noop()));
    gate.shut.store(true, Ordering::SeqCst);
    let mut write = pin!(bench.pipeline.write_async(&options, Source::one(put(b"a", b"1")).unwrap()));
    assert!(write.as_mut().poll(&mut cx).is_pending());
    until(|| gate.reached.load(Ordering::SeqCst));
    gate.shut.store(false, Ordering::SeqCst);
    until(|| bench.failures.load(Ordering::SeqCst) == 1);
    bench.seal(2);
    karst_io::block_on(&bench.env, bench.pipeline.resume(FileNumber(2))).unwrap();
    let outcome = write.as_mut().poll(&mut cx);
    assert!(matches!(&outcome, Poll::Ready(Err(error)) if error.kind() == ErrorKind::Io), "{outcome:?}");
    bench.put("b", "2").unwrap();
    assert_eq!(bench.entries(), ["b@2=2"]);
}

/// Returns a pipeline that has failed for another reason while a leader syncs its log until the
/// gate is opened.
fn failed_beside_a_leader() -> (Bench, Arc<Gate>) {
    let (bench, gate) = disturbed::<Gate>();
    bench.put("a", "1").unwrap();
    gate.shut.store(true, Ordering::SeqCst);
    let mut synced = Box::pin(bench.pipeline.flush_wal(true));
    assert!(synced.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    until(|| gate.reached.load(Ordering::SeqCst));
    bench.pipeline.refuse(&Error::new(ErrorKind::Io, "something else"));
    drop(synced);
    (bench, gate)
}

/// The thread may have other tasks to serve.
#[test]
fn resuming_blocks_no_thread_behind_a_leader_that_still_syncs() {
    let (bench, gate) = failed_beside_a_leader();
    let pipeline = bench.pipeline.clone();
    let (tell, told) = std::sync::mpsc::channel();
    let resumes = std::thread::spawn(move || {
        let mut resumed = pin!(pipeline.resume(FileNumber(1)));
        let waits = resumed.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending();
        tell.send(waits).unwrap();
    });
    let waits = told.recv_timeout(Duration::from_secs(300));
    gate.shut.store(false, Ordering::SeqCst);
    resumes.join().unwrap();
    assert_eq!(waits, Ok(true), "it is polled for as long as the leader syncs");
}

#[test]
fn closing_waits_for_a_leader_that_still_syncs() {
    let (bench, gate) = failed_beside_a_leader();
    let mut closed = pin!(bench.pipeline.close_log());
    let outcome = closed.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    gate.shut.store(false, Ordering::SeqCst);
    assert!(outcome.is_pending(), "{outcome:?}");
    karst_io::block_on(&bench.env, closed).unwrap();
}

/// A waker that calls `at` when woken, and keeps the first result.
struct Looks<T, F> {
    at: F,
    seen: Mutex<Option<T>>,
}

impl<T: Send + 'static, F: Fn() -> T + Send + Sync + 'static> Wake for Looks<T, F> {
    fn wake(self: Arc<Self>) {
        self.seen.lock().get_or_insert_with(&self.at);
    }
}

fn looks<T, F: Fn() -> T>(at: F) -> Arc<Looks<T, F>> {
    Arc::new(Looks { at, seen: Mutex::new(None) })
}

/// A waiter that sees the failure may ask to resume, and a later report would stop writes again.
#[test]
fn a_failure_is_told_before_anybody_is_woken_by_it() {
    let (bench, gate) = disturbed::<Gate>();
    let failures = bench.failures.clone();
    let looks = looks(move || failures.load(Ordering::SeqCst));
    let (options, waker) = (WriteOptions::new(), Waker::from(looks.clone()));
    gate.shut.store(true, Ordering::SeqCst);
    let mut write = pin!(bench.pipeline.write_async(&options, Source::one(put(b"a", b"1")).unwrap()));
    assert!(write.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    until(|| gate.reached.load(Ordering::SeqCst));
    gate.shut.store(false, Ordering::SeqCst);
    until(|| looks.seen.lock().is_some());
    assert_eq!(*looks.seen.lock(), Some(1));
}

/// A writer that sees the batch published may write at once, and must not be mistaken for an
/// earlier one.
#[test]
fn writes_are_refused_before_a_batch_whose_insert_panicked_is_published() {
    let (bench, options) = (fragile_and_empty(rules()), WriteOptions::unlogged());
    let order = |key: &'static [u8]| Slow::order(&bench, &options, Source::one(put(key, b"")).unwrap());
    let [before, panics] = [&b"a"[..], b"boom"].map(order);
    before.apply();
    let health = bench.pipeline.around.health.clone();
    let looks = looks(move || health.check_writes().is_err());
    bench.pipeline.publish.register(1, &Waker::from(looks.clone()));
    assert!(catch_unwind(AssertUnwindSafe(|| panics.apply())).is_err());
    assert_eq!(*looks.seen.lock(), Some(true));
}

/// Lets a number of file changes succeed, and fails all later ones.
#[derive(Debug)]
struct Changes(AtomicU64);

impl Default for Changes {
    fn default() -> Self {
        Self(AtomicU64::new(u64::MAX))
    }
}

impl Disturb for Changes {
    fn read(&self, _: &Path, _: u64, _: usize) -> Option<Disturbance> {
        None
    }
    fn write(&self, _: &Path) -> std::io::Result<()> {
        let left = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        left.map(drop).map_err(|_| std::io::Error::other("no more"))
    }
}

/// RocksDB's pull request 15193: a record was in the log although its append was reported as
/// failed, and its number was used again.
#[test]
fn a_record_that_is_in_the_log_though_its_write_failed_shares_its_number_with_none() {
    let (bench, changes) = disturbed::<Changes>();
    bench.put("a", "1").unwrap();
    // The record is written, and its sync fails.
    changes.0.store(1, Ordering::SeqCst);
    bench.write(&WriteOptions::synced(), put(b"failed", b"2")).unwrap_err();
    changes.0.store(u64::MAX, Ordering::SeqCst);
    bench.seal(2);
    karst_io::block_on(&bench.env, bench.pipeline.resume(FileNumber(2))).unwrap();
    bench.put("b", "3").unwrap();
    assert_eq!(bench.entries(), ["b@3=3"]);
    let logs = [1, 2].map(|number| (number, bench.log_bytes(number)));
    let logs = logs.each_ref().map(|(number, bytes)| (*number, &bytes[..]));
    let (found, next) = recover(&logs, RecoveryMode::TolerateCorruptedTailRecords).unwrap();
    assert_eq!((found, next), (["a@1=1", "failed@2=2", "b@3=3"].map(String::from).to_vec(), SeqNo(4)));
}

/// Many writers while the disk fails again and again: acknowledged writes are in the memtables,
/// failed ones are not, and numbers only grow.
///
/// RocksDB's 15193 again, and others: numbers went backwards when writes resumed after a failure.
#[test]
fn stress_failures_under_load() {
    for unordered in [false, true] {
        fail_under_load(unordered);
    }
}

fn fail_under_load(unordered: bool) {
    let (bench, faults) = faulty_by(Rules { unordered, ..rules() });
    let mut recovered_before = SeqNo(0);
    for round in 0..20 {
        let next_log = 2 + round as u64;
        let acknowledged = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for thread in 0..5 {
                let (bench, acknowledged) = (&bench, &acknowledged);
                scope.spawn(move || {
                    for n in 0..200 {
                        let key = format!("{round}-{thread}-{n}");
                        let options = WriteOptions { sync: n % 40 == 5, ..WriteOptions::new() };
                        let op = put(key.as_bytes(), b"");
                        let outcome = match n % 2 {
                            0 => bench.write(&options, op),
                            _ => {
                                let source = Source::one(op).unwrap();
                                karst_io::block_on(&bench.env, bench.pipeline.write_async(&options, source))
                            }
                        };
                        match outcome {
                            Ok(()) => acknowledged.lock().push(key),
                            Err(_) => return,
                        }
                    }
                });
            }
            while acknowledged.lock().len() < 100 + round * 7 {
                std::thread::yield_now();
            }
            faults.set_plan(failing());
        });
        assert!(bench.pipeline.is_failed() || acknowledged.lock().len() == 1000);
        // A failure that no write has met fails the next one.
        bench.put("probe", "").unwrap_err();
        faults.set_plan(FaultPlan::default());
        let sealed = bench.seal(next_log)[&CF].clone();
        karst_io::block_on(&bench.env, bench.pipeline.resume(FileNumber(next_log))).unwrap();
        let seal = sealed.sealed().unwrap();
        // Every acknowledged write is visible in the end, and no reader goes back.
        assert_eq!([bench.pipeline.visible_seq(), bench.pipeline.read_seq()], [seal.largest_seq; 2]);
        let mut found: Vec<String> =
            entries(&sealed, SeqNo::MAX).iter().map(|e| e.split('@').next().unwrap().to_owned()).collect();
        let mut expected = acknowledged.into_inner();
        found.sort();
        expected.sort();
        assert_eq!(found, expected);
        let numbers: Vec<u64> = entries(&sealed, SeqNo::MAX)
            .iter()
            .map(|e| e.split(['@', '=']).nth(1).unwrap().parse().unwrap())
            .collect();
        assert!(
            numbers.is_sorted_by(|a, b| a < b) && numbers.first().is_none_or(|n| *n > recovered_before.0)
        );
        recovered_before = seal.largest_seq;
    }
    assert_eq!(bench.failures.load(Ordering::SeqCst), 20);
}

/// A comparator that panics on one key.
#[derive(Debug)]
struct Fragile;

impl UserComparator for Fragile {
    fn name(&self) -> &str {
        "fragile"
    }
    fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        assert!(a != b"boom" && b != b"boom", "the comparator's own");
        a.cmp(b)
    }
}

pub(super) fn fragile() -> Bench {
    fragile_by(rules())
}

pub(super) fn fragile_by(rules: Rules) -> Bench {
    let bench = fragile_and_empty(rules);
    bench.put("a", "1").unwrap();
    bench
}

fn fragile_and_empty(rules: Rules) -> Bench {
    let bench = Bench::new(rules);
    bench.memtables.lock().insert(CF, Arc::new(MemTable::new(Comparator::Custom(Arc::new(Fragile)))));
    bench
}

/// Entries gathered behind a write whose insert is under way, and before one that waits for both.
#[test]
fn what_is_gathered_before_an_insert_that_panics_is_inserted() {
    let (bench, options) = (fragile_and_empty(rules()), WriteOptions::unlogged());
    let order = |key: &'static [u8]| Slow::order(&bench, &options, Source::one(put(key, b"")).unwrap());
    let [first, panics, last] = [&b"b"[..], b"boom", b"c"].map(order);
    last.insert();
    assert_eq!(first.gather(), Gather::Waits);
    assert!(catch_unwind(AssertUnwindSafe(|| panics.apply())).is_err());
    assert_eq!(bench.pipeline.publish.visible(), SeqNo(3));
}

#[test]
fn a_panic_in_an_insert_holds_up_nobody() {
    let bench = fragile();
    // A small write may be left for the first reader to insert.
    let insert = || {
        bench.put("boom", "2").unwrap();
        bench.pipeline.visible_seq()
    };
    assert!(catch_unwind(AssertUnwindSafe(insert)).is_err());
    assert_eq!(bench.pipeline.visible_seq(), SeqNo(2));
    let refused = bench.put("b", "3").unwrap_err().to_string();
    assert!(refused.contains("panicked") && refused.contains("opened anew"), "{refused}");
    // The log has the write, for a later opening with a comparator that works.
    let (found, _) = recover(&[(1, &bench.log_bytes(1))], RecoveryMode::AbsoluteConsistency).unwrap();
    assert_eq!(found, ["a@1=1", "boom@2=2"]);
    karst_io::block_on(&bench.env, bench.pipeline.close_log()).unwrap();
}

/// A prefix extractor that panics on one key.
#[derive(Debug)]
struct FragilePrefix;

impl SliceTransform for FragilePrefix {
    fn name(&self) -> &str {
        "fragile"
    }
    fn in_domain(&self, _: &[u8]) -> bool {
        true
    }
    fn transform<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        assert!(key != b"boom", "the extractor's own");
        key
    }
}

/// A lone put is gathered, but its prefix is extracted at once.
#[test]
fn a_prefix_extractor_that_panics_in_a_lone_put_holds_up_nobody() {
    let bench = Bench::new(rules());
    let options = ColumnFamilyOptions { memtable_prefix_bloom_size_ratio: 0.01, ..Default::default() };
    let prefix_extractor = Some(PrefixExtractor::Custom(Arc::new(FragilePrefix)));
    let instances = Instances { prefix_extractor, ..Instances::default() };
    let config = FamilyConfig::resolve(CF, "default", options, None, instances).unwrap();
    bench.memtables.lock().insert(CF, Arc::new(MemTable::of(&config)));
    bench.put("a", "1").unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| bench.put("boom", "2"))).is_err());
    // Checked first, because waiters behind an open ticket would wait for ever.
    assert_eq!(bench.pipeline.publish.published(), bench.pipeline.order.lock().next_ticket());
    let refused = bench.put("b", "3").unwrap_err().to_string();
    assert!(refused.contains("panicked") && refused.contains("opened anew"), "{refused}");
    assert_eq!((bench.pipeline.visible_seq(), bench.entries()), (SeqNo(2), vec!["a@1=1".to_owned()]));
    let (found, _) = recover(&[(1, &bench.log_bytes(1))], RecoveryMode::AbsoluteConsistency).unwrap();
    assert_eq!(found, ["a@1=1", "boom@2=2"]);
    karst_io::block_on(&bench.env, bench.pipeline.close_log()).unwrap();
}

/// Panics on every write while it is armed.
#[derive(Debug, Default)]
struct Mine(AtomicBool);

impl Disturb for Mine {
    fn read(&self, _: &Path, _: u64, _: usize) -> Option<Disturbance> {
        None
    }
    fn write(&self, _: &Path) -> std::io::Result<()> {
        assert!(!self.0.load(Ordering::SeqCst), "the file system's own");
        Ok(())
    }
}

#[test]
fn a_panic_of_the_leader_fails_everybody_and_the_log_can_be_replaced() {
    for sync in [false, true] {
        let (bench, mine) = disturbed::<Mine>();
        bench.put("a", "1").unwrap();
        mine.0.store(true, Ordering::SeqCst);
        std::thread::scope(|scope| {
            for number in 0..4 {
                let (bench, key) = (&bench, format!("b{number}"));
                let options = if sync { WriteOptions::synced() } else { WriteOptions::new() };
                scope.spawn(move || bench.write(&options, put(key.as_bytes(), b"2")).unwrap_err());
            }
        });
        let refused = bench.put("c", "3").unwrap_err();
        assert!(refused.kind() == ErrorKind::Io && refused.to_string().contains("panicked"), "{refused}");
        assert_eq!(bench.failures.load(Ordering::SeqCst), 1);
        mine.0.store(false, Ordering::SeqCst);
        bench.seal(2);
        karst_io::block_on(&bench.env, bench.pipeline.resume(FileNumber(2))).unwrap();
        bench.put("d", "4").unwrap();
        let entries = bench.entries();
        assert!(entries.len() == 1 && entries[0].starts_with("d@"), "{entries:?}");
    }
}

/// The writers' futures were dropped, so the leader inserts for them, including the write behind
/// the panic.
#[test]
fn a_panic_in_an_insert_for_a_writer_that_has_gone_holds_up_nobody() {
    let bench = fragile();
    let options = WriteOptions::new();
    {
        let write = |key: &'static str| {
            bench.pipeline.write_async(&options, Source::one(put(key.as_bytes(), b"")).unwrap())
        };
        let (mut c, mut boom, mut d) = (pin!(write("c")), pin!(write("boom")), pin!(write("d")));
        let mut cx = Context::from_waker(Waker::noop());
        let polled = catch_unwind(AssertUnwindSafe(|| {
            let _ = (c.as_mut().poll(&mut cx), boom.as_mut().poll(&mut cx), d.as_mut().poll(&mut cx));
        }));
        // A log in memory may be fast enough for the first poll to insert.
        drop(polled);
    }
    let visible = || karst_io::block_on(&bench.env, bench.pipeline.wait_until_visible(SeqNo(3)));
    let _ = catch_unwind(AssertUnwindSafe(visible));
    visible();
    bench.put("e", "").unwrap_err();
    karst_io::block_on(&bench.env, bench.pipeline.close_log()).unwrap();
    // A background leader may be about to finish the last ticket.
    let all_are_finished = || bench.pipeline.publish.published() == bench.pipeline.order.lock().next_ticket();
    until(all_are_finished);
}
