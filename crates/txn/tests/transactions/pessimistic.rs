//! Transactions that lock: the anomalies that each isolation level defines, deadlocks, expiry, and
//! release of every lock.

use karst_engine::io::{Clock, Disturb, Disturbance, DisturbedFileSystem, Env, PosixFileSystem, SystemClock};
use karst_engine::options::ReadTier;
use karst_engine::perf_context::{self, PerfLevel, PerfMetric};
use karst_engine::{ErrorKind, FlushOptions, Options, ReadOptions, Result, WriteBatch, WriteOptions};
use karst_txn::{
    Transaction, TransactionDb, TransactionDbOptions, TransactionOptions, TransactionState, WritePolicy,
};
use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A write policy, and `prepares` if transactions are prepared before they commit. No result here
/// may depend on either.
#[derive(Clone, Copy, Debug)]
struct Way {
    write_policy: WritePolicy,
    prepares: bool,
}

const WAYS: [Way; 4] = [
    Way { write_policy: WritePolicy::WriteCommitted, prepares: false },
    Way { write_policy: WritePolicy::WriteCommitted, prepares: true },
    Way { write_policy: WritePolicy::WritePrepared, prepares: false },
    Way { write_policy: WritePolicy::WritePrepared, prepares: true },
];

/// Runs `test` in each way, and prints the way first, so that a failure names its own.
fn in_each_way(test: impl Fn(Way)) {
    for way in WAYS {
        println!("{way:?}");
        test(way);
    }
}

impl Way {
    fn open(self, directory: &tempfile::TempDir, transactions: &TransactionDbOptions) -> TransactionDb {
        let options =
            Options::new().db(|db| db.create_if_missing = true).set("merge_operator", "uint64add").unwrap();
        let transactions = TransactionDbOptions { write_policy: self.write_policy, ..transactions.clone() };
        TransactionDb::open(directory.path(), &options, &transactions).unwrap()
    }

    /// Opens a database with lock timeouts of 0.
    fn impatient(self, directory: &tempfile::TempDir) -> TransactionDb {
        let transactions = TransactionDbOptions {
            transaction_lock_timeout: 0,
            default_lock_timeout: 0,
            ..TransactionDbOptions::default()
        };
        self.open(directory, &transactions)
    }

    /// Prepares a transaction under a name of its own, if this way prepares.
    fn prepare(self, transaction: &mut Transaction) -> Result<()> {
        if !self.prepares {
            return Ok(());
        }
        if transaction.name().is_none() {
            transaction.set_name(format!("{:?}", transaction.id()))?;
        }
        transaction.prepare()
    }

    fn commit(self, transaction: &mut Transaction) -> Result<()> {
        self.prepare(transaction)?;
        transaction.commit()
    }

    async fn commit_async(self, transaction: &mut Transaction) -> Result<()> {
        if self.prepares {
            transaction.set_name(format!("{:?}", transaction.id()))?;
            transaction.prepare_async().await?;
        }
        transaction.commit_async().await
    }
}

fn begin(db: &TransactionDb) -> Transaction {
    db.begin(&WriteOptions::new(), &TransactionOptions::default())
}

fn kind<T>(outcome: Result<T>) -> Option<ErrorKind> {
    outcome.err().map(|error| error.kind())
}

fn read(db: &TransactionDb, key: &str) -> Option<String> {
    db.db().get(key).unwrap().map(|value| String::from_utf8(value.to_vec()).unwrap())
}

#[test]
fn what_is_locked_waits_for_the_commit_and_is_seen_by_nobody_before() {
    in_each_way(|way| {
        let directory = tempfile::tempdir().unwrap();
        let db = way.impatient(&directory);
        let mut transaction = begin(&db);
        transaction.put("a", "1").unwrap();
        way.prepare(&mut transaction).unwrap();
        let timed_out = Some(ErrorKind::TimedOut);
        assert_eq!(kind(begin(&db).put("a", "2")), timed_out);
        assert_eq!(kind(begin(&db).get_for_update(&ReadOptions::new(), "a")), timed_out);
        assert_eq!(kind(db.put("a", "3")), timed_out);
        assert_eq!(kind(pollster::block_on(db.delete_async(b"a"))), timed_out);
        let mut batch = WriteBatch::new();
        batch.put("b", "4").unwrap();
        batch.put("a", "4").unwrap();
        assert_eq!(kind(db.write(&WriteOptions::new(), &batch)), timed_out);
        assert_eq!(read(&db, "a"), None);
        assert_eq!(transaction.get(&ReadOptions::new(), "a").unwrap().as_deref(), Some(&b"1"[..]));
        transaction.commit().unwrap();
        assert_eq!((read(&db, "a").as_deref(), read(&db, "b")), (Some("1"), None));
        db.write(&WriteOptions::new(), &batch).unwrap();
        assert!(db.lock_status().is_empty(), "those who were refused have left no lock");
        let mut ranges = WriteBatch::new();
        ranges.delete_range("a", "z").unwrap();
        assert_eq!(kind(db.write(&WriteOptions::new(), &ranges)), Some(ErrorKind::NotSupported));
    });
}

#[test]
fn how_long_is_waited_for_locks_can_be_set_later() {
    in_each_way(|way| {
        let directory = tempfile::tempdir().unwrap();
        let db = way.impatient(&directory);
        let (mut holder, mut waiter) = (begin(&db), begin(&db));
        holder.put("a", "1").unwrap();
        waiter.set_lock_timeout(20).unwrap();
        let refused = waiter.put("a", "2").unwrap_err();
        assert!(refused.kind() == ErrorKind::TimedOut && refused.to_string().contains("20 ms"), "{refused}");
        // No limit, in place of the database's timeout.
        waiter.set_lock_timeout(-1).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| waiter.put("a", "2"));
            way.commit(&mut holder).unwrap();
            waiting.join().unwrap().unwrap();
        });
        assert_eq!(kind(holder.set_lock_timeout(1)), Some(ErrorKind::InvalidArgument));
        way.commit(&mut waiter).unwrap();
        assert_eq!(read(&db, "a").as_deref(), Some("2"));
    });
}

#[test]
fn waits_for_locks_are_counted_and_timed() {
    in_each_way(|way| {
        let directory = tempfile::tempdir().unwrap();
        let waiting_ms = 20;
        let transactions =
            TransactionDbOptions { transaction_lock_timeout: waiting_ms, ..TransactionDbOptions::default() };
        let db = way.open(&directory, &transactions);
        let mut transaction = begin(&db);
        transaction.put("a", "1").unwrap();
        perf_context::set_level(PerfLevel::EnableTime);
        perf_context::reset();
        begin(&db).put("free", "2").unwrap();
        let counts = || [PerfMetric::KeyLockWaitCount, PerfMetric::KeyLockWaitTime].map(perf_context::get);
        assert_eq!(counts(), [0, 0]);
        assert_eq!(kind(begin(&db).put("a", "2")), Some(ErrorKind::TimedOut));
        let [count, nanos] = counts();
        assert!(count == 1 && nanos >= waiting_ms as u64 * 1_000_000, "{count} waits, {nanos} ns");
        perf_context::set_level(PerfLevel::Disable);
    });
}

#[test]
fn a_snapshot_finds_what_was_written_since_and_untracked_writes_do_not_ask() {
    in_each_way(|way| {
        let directory = tempfile::tempdir().unwrap();
        let db = way.impatient(&directory);
        let with_snapshot = TransactionOptions { set_snapshot: true, ..TransactionOptions::default() };
        let mut transaction = db.begin(&WriteOptions::new(), &with_snapshot);
        db.put("a", "since").unwrap();
        let (family, read_options) = (db.db().default_column_family(), ReadOptions::new());
        assert_eq!(kind(transaction.put("a", "1")), Some(ErrorKind::Busy));
        assert_eq!(kind(transaction.get_for_update(&read_options, "a")), Some(ErrorKind::Busy));
        assert!(db.lock_status().is_empty(), "a look that failed gives the lock back");
        assert!(transaction.get_for_update_cf(&read_options, family, "a", false, false).unwrap().is_some());
        assert_eq!(kind(transaction.put("a", "1")), Some(ErrorKind::Busy));
        assert!(!db.lock_status()[0].exclusive, "and an upgrade goes back to what it was");
        transaction.put_untracked(family, "a", "1").unwrap();
        transaction.put("b", "1").unwrap();
        way.commit(&mut transaction).unwrap();
        assert_eq!((read(&db, "a").as_deref(), read(&db, "b").as_deref()), (Some("1"), Some("1")));
    });
}

#[test]
fn a_save_point_takes_back_locks() {
    in_each_way(|way| {
        let directory = tempfile::tempdir().unwrap();
        let db = way.impatient(&directory);
        let mut transaction = begin(&db);
        transaction.put("kept", "1").unwrap();
        transaction.set_save_point().unwrap();
        transaction.put("kept", "2").unwrap();
        transaction.put("dropped", "1").unwrap();
        transaction.rollback_to_save_point().unwrap();
        db.put("dropped", "others").unwrap();
        assert_eq!(kind(db.put("kept", "others")), Some(ErrorKind::TimedOut));
        assert_eq!(kind(transaction.rollback_to_save_point()), Some(ErrorKind::NotFound));
        way.commit(&mut transaction).unwrap();
        assert_eq!(
            (read(&db, "kept").as_deref(), read(&db, "dropped").as_deref()),
            (Some("1"), Some("others"))
        );
    });
}

#[test]
fn a_save_point_that_is_popped_keeps_what_was_done_since_for_the_one_before_it() {
    in_each_way(|way| {
        let directory = tempfile::tempdir().unwrap();
        let db = way.impatient(&directory);
        let locked = |key: &str| db.lock_status().iter().any(|lock| lock.key == key.as_bytes());
        let mut transaction = begin(&db);
        transaction.put("a", "1").unwrap();
        transaction.set_save_point().unwrap();
        transaction.put("b", "1").unwrap();
        transaction.set_snapshot().unwrap();
        transaction.set_save_point().unwrap();
        transaction.put("a", "2").unwrap();
        transaction.put("c", "1").unwrap();
        transaction.pop_save_point().unwrap();
        assert!(locked("a") && locked("b") && locked("c"));
        assert_eq!((transaction.tracked_keys(), transaction.write_batch().unwrap().count()), (3, 4));
        let see = |transaction: &Transaction, key: &str| {
            let value = transaction.get(&ReadOptions::new(), key).unwrap();
            value.map(|value| String::from_utf8(value.to_vec()).unwrap())
        };
        assert_eq!(see(&transaction, "a").as_deref(), Some("2"));
        assert_eq!(see(&transaction, "c").as_deref(), Some("1"));
        transaction.rollback_to_save_point().unwrap();
        assert!(locked("a") && !locked("b") && !locked("c"), "what was popped is its, too");
        assert!(transaction.snapshot().is_none());
        assert_eq!((see(&transaction, "a").as_deref(), see(&transaction, "c")), (Some("1"), None));
        assert_eq!((transaction.tracked_keys(), transaction.write_batch().unwrap().count()), (1, 1));
        // The only save point.
        transaction.set_save_point().unwrap();
        transaction.put("d", "1").unwrap();
        transaction.pop_save_point().unwrap();
        assert_eq!(kind(transaction.pop_save_point()), Some(ErrorKind::NotFound));
        assert_eq!(kind(transaction.rollback_to_save_point()), Some(ErrorKind::NotFound));
        assert!(locked("d"));
        way.commit(&mut transaction).unwrap();
        let all = ["a", "b", "c", "d"].map(|key| read(&db, key));
        assert_eq!(all.each_ref().map(Option::as_deref), [Some("1"), None, None, Some("1")]);
        assert!(db.lock_status().is_empty());
    });
}

#[test]
fn a_snapshot_is_taken_with_the_next_operation_where_that_was_asked_for() {
    in_each_way(|way| {
        let directory = tempfile::tempdir().unwrap();
        let db = way.impatient(&directory);
        let at =
            |transaction: &Transaction| transaction.snapshot().map(|snapshot| snapshot.sequence_number());
        let mut transaction = begin(&db);
        transaction.set_snapshot_on_next_operation().unwrap();
        db.put("a", "before the operation").unwrap();
        transaction.get(&ReadOptions::new(), "a").unwrap();
        assert_eq!(at(&transaction), None, "a plain read is none");
        transaction.put("a", "1").unwrap();
        let taken = at(&transaction).expect("that was the operation");
        assert_eq!(taken, db.db().latest_sequence_number());
        db.put("b", "since").unwrap();
        assert_eq!(kind(transaction.put("b", "1")), Some(ErrorKind::Busy));
        assert_eq!(at(&transaction), Some(taken), "it is taken once");
        let old = ReadOptions { snapshot: transaction.snapshot().cloned(), ..ReadOptions::new() };
        assert!(transaction.get(&old, "b").unwrap().is_none());

        // The request for a snapshot is undone with a save point, and made again.
        transaction.set_save_point().unwrap();
        transaction.set_snapshot_on_next_operation().unwrap();
        transaction.rollback_to_save_point().unwrap();
        transaction.get_for_update(&ReadOptions::new(), "a").unwrap();
        assert_eq!(at(&transaction), Some(taken));
        transaction.set_snapshot_on_next_operation().unwrap();
        transaction.get_for_update(&ReadOptions::new(), "b").unwrap();
        assert!(at(&transaction) > Some(taken));
        way.commit(&mut transaction).unwrap();
        assert_eq!(at(&transaction), None, "an ended transaction holds none");
    });
}

#[test]
fn a_snapshot_that_was_cleared_refuses_nothing() {
    in_each_way(|way| {
        let directory = tempfile::tempdir().unwrap();
        let db = way.impatient(&directory);
        let mut transaction = begin(&db);
        transaction.set_snapshot().unwrap();
        db.put("a", "since").unwrap();
        assert_eq!(kind(transaction.put("a", "1")), Some(ErrorKind::Busy));
        transaction.clear_snapshot();
        assert!(transaction.snapshot().is_none());
        transaction.put("a", "1").unwrap();
        // A requested snapshot is not taken either.
        transaction.set_snapshot_on_next_operation().unwrap();
        transaction.clear_snapshot();
        transaction.put("b", "1").unwrap();
        assert!(transaction.snapshot().is_none());
        db.put("c", "since").unwrap();
        transaction.put("c", "1").unwrap();
        way.commit(&mut transaction).unwrap();
        transaction.clear_snapshot();
        let all = ["a", "b", "c"].map(|key| read(&db, key));
        assert!(all.iter().all(|value| value.as_deref() == Some("1")), "{all:?}");
    });
}

/// Returns true if these bytes are in a log.
fn is_logged(directory: &tempfile::TempDir, bytes: &str) -> bool {
    let files = std::fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap().path());
    let mut logs = files.filter(|path| path.extension().is_some_and(|extension| extension == "log"));
    logs.any(|log| std::fs::read(log).unwrap().windows(bytes.len()).any(|window| window == bytes.as_bytes()))
}

#[test]
fn log_data_goes_to_the_log_and_nowhere_else() {
    in_each_way(|way| {
        let directory = tempfile::tempdir().unwrap();
        let db = way.impatient(&directory);
        let small = TransactionOptions { max_write_batch_size: 100, ..TransactionOptions::default() };
        let mut transaction = db.begin(&WriteOptions::new(), &small);
        transaction.put("a", "1").unwrap();
        transaction.put_log_data("a note beside it").unwrap();
        transaction.set_save_point().unwrap();
        transaction.put_log_data("a note taken back").unwrap();
        transaction.rollback_to_save_point().unwrap();
        assert_eq!(kind(transaction.put_log_data("x".repeat(100))), Some(ErrorKind::LimitReached));
        assert_eq!((transaction.tracked_keys(), transaction.write_batch().unwrap().count()), (1, 1));
        assert_eq!(db.lock_status().len(), 1);
        let before = db.db().latest_sequence_number();
        way.commit(&mut transaction).unwrap();
        assert!(is_logged(&directory, "a note beside it"));
        assert!(!is_logged(&directory, "a note taken back"));
        // Under WritePrepared the commit takes a number of its own.
        let decision = u64::from(way.prepares && way.write_policy == WritePolicy::WritePrepared);
        assert_eq!(db.db().latest_sequence_number(), before + 1 + decision, "it takes no number");
        let mut alone = begin(&db);
        alone.put_log_data("a note by itself").unwrap();
        way.commit(&mut alone).unwrap();
        assert!(is_logged(&directory, "a note by itself"));
        let mut iterator = db.iter(&ReadOptions::new()).unwrap();
        iterator.seek_to_first().unwrap();
        assert_eq!((iterator.key(), iterator.value()), (&b"a"[..], &b"1"[..]));
        iterator.next().unwrap();
        assert!(!iterator.valid());
        drop((iterator, transaction, alone, db));
        let db = way.impatient(&directory);
        assert_eq!((read(&db, "a").as_deref(), db.db().log_damage()), (Some("1"), None));
    });
}

#[test]
fn an_ended_transaction_takes_nothing_more() {
    in_each_way(|way| {
        let directory = tempfile::tempdir().unwrap();
        let db = way.impatient(&directory);
        let (mut committed, mut rolled_back) = (begin(&db), begin(&db));
        committed.set_name("one").unwrap();
        assert_eq!(
            kind(rolled_back.set_name("one")),
            Some(ErrorKind::InvalidArgument),
            "a name is used once"
        );
        assert_eq!(kind(rolled_back.set_name("")), Some(ErrorKind::InvalidArgument));
        committed.put("a", "1").unwrap();
        way.commit(&mut committed).unwrap();
        rolled_back.set_name("one").unwrap();
        rolled_back.put("b", "2").unwrap();
        rolled_back.rollback().unwrap();
        for transaction in [&mut committed, &mut rolled_back] {
            let refused = Some(ErrorKind::InvalidArgument);
            assert_eq!(kind(transaction.put("a", "3")), refused);
            assert_eq!(kind(transaction.commit()), refused);
            assert_eq!(kind(transaction.rollback()), refused);
            assert_eq!(kind(transaction.get(&ReadOptions::new(), "a")), refused);
            assert_eq!(kind(transaction.set_name("again")), refused);
        }
        drop((begin(&db), committed, rolled_back));
        assert_eq!((read(&db, "a").as_deref(), read(&db, "b")), (Some("1"), None));
        assert!(db.lock_status().is_empty());
    });
}

/// Returns a transaction that expires soon, and has done `first` before, even on a slow machine.
fn expiring(db: &TransactionDb, first: impl Fn(&mut Transaction) -> Result<()>) -> Transaction {
    let mut tried = (0..8).map(|round| {
        let soon = TransactionOptions { expiration: 500 << round, ..TransactionOptions::default() };
        let mut transaction = db.begin(&WriteOptions::new(), &soon);
        (kind(first(&mut transaction)), transaction)
    });
    tried.find(|(failed, _)| *failed != Some(ErrorKind::Expired)).unwrap().1
}

#[test]
fn an_expired_transaction_loses_its_locks_and_does_not_commit() {
    in_each_way(|way| {
        let directory = tempfile::tempdir().unwrap();
        let db = way.impatient(&directory);
        let at_once = TransactionOptions { expiration: 0, ..TransactionOptions::default() };
        let mut expired = db.begin(&WriteOptions::new(), &at_once);
        // No other transaction has stolen its locks yet.
        assert_eq!(kind(expired.get(&ReadOptions::new(), "a")), Some(ErrorKind::Expired));
        assert_eq!(kind(expired.set_save_point()), Some(ErrorKind::Expired));
        assert_eq!(kind(expired.put_log_data("a note")), Some(ErrorKind::Expired));
        assert_eq!(kind(expired.put("a", "1")), Some(ErrorKind::Expired));
        // Expiry is reported first, although it has no name either.
        assert_eq!(kind(expired.prepare()), Some(ErrorKind::Expired));
        assert_eq!(kind(way.commit(&mut expired)), Some(ErrorKind::Expired));
        expired.rollback().unwrap();

        let mut soon = expiring(&db, |soon| soon.put("a", "1"));
        let patient = TransactionOptions { lock_timeout: 600_000, ..TransactionOptions::default() };
        let mut other = db.begin(&WriteOptions::new(), &patient);
        other.put("a", "2").unwrap();
        assert_eq!(soon.state(), Some(TransactionState::LocksStolen));
        assert_eq!(kind(way.commit(&mut soon)), Some(ErrorKind::Expired));
        drop(soon);
        assert_eq!(db.lock_status()[0].transactions, vec![other.id().unwrap()]);
        way.commit(&mut other).unwrap();
        assert_eq!(read(&db, "a").as_deref(), Some("2"));
    });
}

/// The lock is granted only after the transaction has expired.
#[test]
fn a_transaction_that_expires_while_it_waits_for_a_key_does_not_keep_it() {
    in_each_way(|way| {
        let directory = tempfile::tempdir().unwrap();
        let db = way.impatient(&directory);
        let mut first = begin(&db);
        first.put("a", "1").unwrap();
        // Expires later in each attempt, until it waits first, so that slow machines pass too.
        let mut waited = (200..100_000).step_by(1_000).map(|expiration| {
            let soon =
                TransactionOptions { expiration, lock_timeout: 600_000, ..TransactionOptions::default() };
            let mut soon = db.begin(&WriteOptions::new(), &soon);
            let mut put = pin!(soon.put_async(b"a", b"2"));
            let mut cx = Context::from_waker(Waker::noop());
            if let Poll::Ready(outcome) = put.as_mut().poll(&mut cx) {
                assert_eq!(kind(outcome), Some(ErrorKind::Expired));
                return false;
            }
            std::thread::sleep(Duration::from_millis(expiration as u64 + 1));
            first.rollback().unwrap();
            let Poll::Ready(outcome) = put.as_mut().poll(&mut cx) else { panic!("nobody has the key") };
            assert_eq!(kind(outcome), Some(ErrorKind::Expired));
            true
        });
        assert!(waited.any(|waited| waited));
        assert!(db.lock_status().is_empty(), "{:?}", db.lock_status());
    });
}

/// A disk that blocks one write of a log, and fails it when it is released.
#[derive(Debug)]
struct HoldsUp {
    next: AtomicBool,
    /// Passed when the writer is blocked, and when it continues.
    gate: Barrier,
}

impl Disturb for HoldsUp {
    fn read(&self, _: &Path, _: u64, _: usize) -> Option<Disturbance> {
        None
    }

    fn write(&self, path: &Path) -> std::io::Result<()> {
        if path.extension().is_some_and(|of| of == "log") && self.next.swap(false, Ordering::SeqCst) {
            self.gate.wait();
            self.gate.wait();
            return Err(std::io::Error::other("the log is out of order"));
        }
        Ok(())
    }
}

/// The operating system's clock, moved ahead by `by_s` seconds.
#[derive(Debug, Default)]
struct Ahead {
    system: SystemClock,
    by_s: AtomicU64,
}

impl Clock for Ahead {
    fn now(&self) -> Duration {
        self.system.now() + Duration::from_secs(self.by_s.load(Ordering::SeqCst))
    }
    fn unix_time(&self) -> Duration {
        self.system.unix_time()
    }
}

/// While its locks cannot be stolen a waiter sets no timer for that: it has found the transaction
/// expired and ending.
#[test]
fn who_waits_is_told_when_a_transaction_that_has_expired_fails_to_end() {
    in_each_way(|way| {
        let directory = tempfile::tempdir().unwrap();
        let disk = HoldsUp { next: AtomicBool::new(false), gate: Barrier::new(2) };
        let files = DisturbedFileSystem::new(Arc::new(PosixFileSystem), disk);
        let disk = files.between().clone();
        let clock = Arc::new(Ahead::default());
        let env = Env::builder().file_system(Arc::new(files)).clock(clock.clone()).build();
        let options = Options::new().env(env).db(|db| db.create_if_missing = true);
        let transactions =
            TransactionDbOptions { write_policy: way.write_policy, ..TransactionDbOptions::default() };
        let db = TransactionDb::open(directory.path(), &options, &transactions).unwrap();
        let soon = TransactionOptions { expiration: 600_000, ..TransactionOptions::default() };
        let mut soon = db.begin(&WriteOptions::new(), &soon);
        soon.put("a", "1").unwrap();
        disk.next.store(true, Ordering::SeqCst);
        std::thread::scope(|scope| {
            let ends = scope.spawn(|| kind(way.commit(&mut soon)));
            disk.gate.wait();
            clock.by_s.store(600, Ordering::SeqCst);
            let endless = TransactionOptions { lock_timeout: -1, ..TransactionOptions::default() };
            let mut waits = db.begin(&WriteOptions::new(), &endless);
            let read = ReadOptions::new();
            let mut got = pin!(waits.get_for_update_async(&read, b"a"));
            let mut cx = Context::from_waker(Waker::noop());
            assert!(got.as_mut().poll(&mut cx).is_pending(), "it is held by who has begun to end");
            disk.gate.wait();
            assert_eq!(ends.join().unwrap(), Some(ErrorKind::Io));
            assert!(matches!(got.as_mut().poll(&mut cx), Poll::Ready(Ok(None))));
        });
        assert_eq!(soon.state(), Some(TransactionState::LocksStolen));
    });
}

#[test]
fn every_call_on_a_transaction_whose_locks_were_stolen_says_that_it_has_expired() {
    in_each_way(|way| {
        let directory = tempfile::tempdir().unwrap();
        let db = way.impatient(&directory);
        let mut victim = expiring(&db, |victim| {
            victim.set_name("victim")?;
            victim.put("a", "stale")?;
            victim.set_save_point()?;
            victim.put("b", "stale")
        });
        let patient = TransactionOptions { lock_timeout: 600_000, ..TransactionOptions::default() };
        let mut thief = db.begin(&WriteOptions::new(), &patient);
        thief.put("a", "1").unwrap();
        // Its own thread continues with it, and does not know of the theft.
        std::thread::scope(|scope| scope.spawn(|| use_it(&db, &mut victim)).join().unwrap());
        let held = db.lock_status();
        assert!(
            held.iter().any(|lock| lock.key == b"a" && lock.transactions == [thief.id().unwrap()]),
            "{held:?}"
        );
        victim.rollback().unwrap();
        assert_eq!((victim.state(), db.lock_status().len()), (Some(TransactionState::RolledBack), 1));
        way.commit(&mut thief).unwrap();
        assert_eq!((read(&db, "a").as_deref(), read(&db, "b")), (Some("1"), None));
        assert!(db.lock_status().is_empty());
    });
}

/// Makes every call that changes a transaction, or reads through it, in both forms.
fn use_it(db: &TransactionDb, victim: &mut Transaction) {
    let (family, options) = (db.db().default_column_family(), ReadOptions::new());
    let expired = Some(ErrorKind::Expired);
    assert_eq!(victim.state(), Some(TransactionState::LocksStolen));
    // It still holds "b"; "c" is free.
    for key in ["a", "b", "c"] {
        let bytes = key.as_bytes();
        assert_eq!(kind(victim.put(key, "x")), expired);
        assert_eq!(kind(victim.put_cf(family, key, "x")), expired);
        assert_eq!(kind(victim.put_untracked(family, key, "x")), expired);
        assert_eq!(kind(victim.delete(key)), expired);
        assert_eq!(kind(victim.delete_cf(family, key)), expired);
        assert_eq!(kind(victim.delete_untracked(family, key)), expired);
        assert_eq!(kind(victim.single_delete(key)), expired);
        assert_eq!(kind(victim.single_delete_cf(family, key)), expired);
        assert_eq!(kind(victim.single_delete_untracked(family, key)), expired);
        assert_eq!(kind(victim.merge(key, 1u64.to_le_bytes())), expired);
        assert_eq!(kind(victim.merge_cf(family, key, 1u64.to_le_bytes())), expired);
        assert_eq!(kind(victim.merge_untracked(family, key, 1u64.to_le_bytes())), expired);
        assert_eq!(kind(victim.get_for_update(&options, key)), expired);
        assert_eq!(kind(victim.get_for_update_cf(&options, family, key, false, false)), expired);
        assert_eq!(kind(victim.get(&options, key)), expired);
        assert_eq!(kind(victim.multi_get(&options, &[key]).remove(0)), expired);
        assert_eq!(kind(victim.multi_get_cfs(&options, &[family], &[key]).remove(0)), expired);
        pollster::block_on(async {
            assert_eq!(kind(victim.put_async(bytes, b"x").await), expired);
            assert_eq!(kind(victim.put_cf_async(family, bytes, b"x").await), expired);
            assert_eq!(kind(victim.put_untracked_async(family, bytes, b"x").await), expired);
            assert_eq!(kind(victim.delete_async(bytes).await), expired);
            assert_eq!(kind(victim.delete_untracked_async(family, bytes).await), expired);
            assert_eq!(kind(victim.single_delete_async(bytes).await), expired);
            assert_eq!(kind(victim.single_delete_untracked_async(family, bytes).await), expired);
            assert_eq!(kind(victim.merge_async(bytes, &1u64.to_le_bytes()).await), expired);
            assert_eq!(kind(victim.merge_untracked_async(family, bytes, &1u64.to_le_bytes()).await), expired);
            assert_eq!(kind(victim.get_for_update_async(&options, bytes).await), expired);
            assert_eq!(kind(victim.get_async(&options, bytes).await), expired);
        });
    }
    assert_eq!(kind(victim.iter(&options)), expired);
    assert_eq!(kind(victim.set_name("another")), expired);
    assert_eq!(kind(victim.set_lock_timeout(1)), expired);
    assert_eq!(kind(victim.set_snapshot()), expired);
    assert_eq!(kind(victim.set_snapshot_on_next_operation()), expired);
    assert_eq!(kind(victim.set_save_point()), expired);
    assert_eq!(kind(victim.rollback_to_save_point()), expired);
    assert_eq!(kind(victim.pop_save_point()), expired);
    assert_eq!(kind(victim.put_log_data("x")), expired);
    assert_eq!(kind(victim.prepare()), expired);
    assert_eq!(kind(pollster::block_on(victim.prepare_async())), expired);
    assert_eq!(kind(victim.commit()), expired);
    assert_eq!(kind(pollster::block_on(victim.commit_async())), expired);
    assert_eq!(victim.state(), Some(TransactionState::LocksStolen), "it is as it was");
}

#[test]
fn a_deadlock_is_told_to_one_with_its_circle_and_the_other_goes_on() {
    in_each_way(|way| {
        let directory = tempfile::tempdir().unwrap();
        let db = way.open(&directory, &TransactionDbOptions::default());
        let detecting = TransactionOptions {
            deadlock_detect: true,
            lock_timeout: 60_000,
            ..TransactionOptions::default()
        };
        let barrier = std::sync::Barrier::new(2);
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let run = |first: &'static str, second: &'static str| {
                let (db, barrier, detecting) = (&db, &barrier, &detecting);
                scope.spawn(move || {
                    let mut transaction = db.begin(&WriteOptions::new(), detecting);
                    transaction.put(first, "x").unwrap();
                    barrier.wait();
                    transaction.put(second, "x")?;
                    way.commit(&mut transaction)
                })
            };
            let threads = [run("a", "b"), run("b", "a")];
            threads.into_iter().map(|thread| kind(thread.join().unwrap())).collect()
        });
        assert!(outcomes.contains(&None) && outcomes.contains(&Some(ErrorKind::Deadlock)), "{outcomes:?}");
        let deadlocks = db.get_deadlock_info_buffer();
        assert_eq!((deadlocks.len(), deadlocks[0].path.len()), (1, 2));
        assert!(db.lock_status().is_empty());
    });
}

/// `count` transactions wait for each other in a cycle, which the last one closes with this depth.
/// Returns its error.
fn close_a_circle(db: &TransactionDb, count: usize, depth: i64) -> karst_engine::Error {
    let options = |depth| TransactionOptions {
        deadlock_detect: true,
        deadlock_detect_depth: depth,
        lock_timeout: 60_000,
        ..TransactionOptions::default()
    };
    let (family, key) = (db.db().default_column_family(), |n: usize| format!("circle{n}"));
    let mut transactions: Vec<_> =
        (0..count).map(|_| db.begin(&WriteOptions::new(), &options(count as i64))).collect();
    transactions[count - 1] = db.begin(&WriteOptions::new(), &options(depth));
    for (n, transaction) in transactions.iter_mut().enumerate() {
        transaction.put(key(n), "x").unwrap();
    }
    let (last, others) = transactions.split_last_mut().unwrap();
    let keys: Vec<String> = (1..count).map(key).collect();
    // Each waits, like a task that has been polled once.
    let mut waits: Vec<_> = others
        .iter_mut()
        .zip(&keys)
        .map(|(transaction, key)| Box::pin(transaction.put_cf_async(family, key.as_bytes(), b"x")))
        .collect();
    for wait in &mut waits {
        assert!(wait.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    last.put(key(0), "x").unwrap_err()
}

#[test]
fn no_more_transactions_are_looked_at_for_a_deadlock_than_the_depth_says() {
    in_each_way(|way| {
        let directory = tempfile::tempdir().unwrap();
        let db = way.impatient(&directory);
        for (count, depth) in [(2, 2), (2, 1), (5, 5), (5, 4), (5, 1), (5, 0), (5, -1), (5, 50)] {
            let error = close_a_circle(&db, count, depth);
            assert_eq!(error.kind(), ErrorKind::Deadlock, "{count} {depth}: {error}");
            let exceeded = depth < count as i64;
            assert_eq!(error.to_string().contains("deadlock_detect_depth"), exceeded, "{error}");
            let found = db.get_deadlock_info_buffer().remove(0);
            let path = if exceeded { 0 } else { count };
            assert_eq!((found.limit_exceeded, found.path.len()), (exceeded, path), "{count} {depth}");
            assert!(db.lock_status().is_empty());
        }
        // A chain longer than the depth, without a cycle.
        let mut head = begin(&db);
        head.put("head", "x").unwrap();
        let waits = |depth| TransactionOptions {
            deadlock_detect: true,
            deadlock_detect_depth: depth,
            lock_timeout: 20,
            ..TransactionOptions::default()
        };
        let family = db.db().default_column_family();
        let mut middle = db.begin(&WriteOptions::new(), &waits(50));
        middle.put("middle", "x").unwrap();
        let mut wait = pin!(middle.put_cf_async(family, b"head", b"x"));
        assert!(wait.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        for (depth, outcome) in [(1, ErrorKind::Deadlock), (2, ErrorKind::TimedOut)] {
            let mut tail = db.begin(&WriteOptions::new(), &waits(depth));
            assert_eq!(kind(tail.put("middle", "x")), Some(outcome), "{depth}");
        }
    });
}

#[test]
fn no_more_deadlocks_are_kept_than_were_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let way = WAYS[0];
    let db = way.open(&directory, &TransactionDbOptions { max_num_deadlocks: 3, ..Default::default() });
    // The cycles differ in their number of transactions.
    let kept = || -> Vec<usize> {
        db.get_deadlock_info_buffer().iter().map(|deadlock| deadlock.path.len()).collect()
    };
    let deadlock = |count| assert_eq!(close_a_circle(&db, count, 50).kind(), ErrorKind::Deadlock);
    (2..=5).for_each(deadlock);
    assert_eq!(kept(), [5, 4, 3], "the newest first");
    db.set_deadlock_info_buffer_size(2);
    assert_eq!(kept(), [5, 4], "what is too many goes at once");
    deadlock(6);
    assert_eq!(kept(), [6, 5]);
    db.set_deadlock_info_buffer_size(4);
    assert_eq!(kept(), [6, 5], "what is gone is gone");
    (2..=4).for_each(deadlock);
    assert_eq!(kept(), [4, 3, 2, 6]);
    db.set_deadlock_info_buffer_size(0);
    deadlock(2);
    assert_eq!(kept(), []);
    db.set_deadlock_info_buffer_size(1);
    deadlock(3);
    assert_eq!(kept(), [3]);
}

/// Two transactions read both keys and each writes one. Shared locks on the keys read prevent write
/// skew; plain reads do not.
#[test]
fn write_skew_is_what_the_reads_make_it() {
    in_each_way(|way| {
        let directory = tempfile::tempdir().unwrap();
        let db = way.impatient(&directory);
        let (family, options) = (db.db().default_column_family().clone(), ReadOptions::new());
        for locking in [true, false] {
            let (mut one, mut two) = (begin(&db), begin(&db));
            for transaction in [&mut one, &mut two] {
                for key in ["x", "y"] {
                    match locking {
                        true => transaction.get_for_update_cf(&options, &family, key, false, true).unwrap(),
                        false => transaction.get(&options, key).unwrap(),
                    };
                }
            }
            let refused = locking.then_some(ErrorKind::TimedOut);
            assert_eq!((kind(one.put("x", "0")), kind(two.put("y", "0"))), (refused, refused));
        }
    });
}

/// No update is lost, on threads and on tasks, with plain writers beside.
#[test]
fn concurrent_increments_are_all_there() {
    in_each_way(|way| {
        const THREADS: u64 = 4;
        const EACH: u64 = 200;
        let directory = tempfile::tempdir().unwrap();
        let db = way
            .open(&directory, &TransactionDbOptions { transaction_lock_timeout: -1, ..Default::default() });
        let number = |value: Option<karst_engine::Value>| {
            value.map_or(0, |value| u64::from_le_bytes(value[..].try_into().unwrap()))
        };
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let db = &db;
                scope.spawn(move || {
                    let (family, options) = (db.db().default_column_family(), ReadOptions::new());
                    for round in 0..EACH {
                        let key = format!("counter{}", round % 2);
                        let mut transaction = begin(db);
                        if thread % 2 == 0 {
                            let now = number(transaction.get_for_update(&options, &key).unwrap());
                            transaction.put(&key, (now + 1).to_le_bytes()).unwrap();
                            way.commit(&mut transaction).unwrap();
                        } else {
                            pollster::block_on(async {
                                let key = key.as_bytes();
                                let read =
                                    transaction.get_for_update_cf_async(&options, family, key, true, true);
                                let now = number(read.await.unwrap());
                                let next = (now + 1).to_le_bytes();
                                transaction.put_cf_async(family, key, &next).await.unwrap();
                                way.commit_async(&mut transaction).await.unwrap();
                            });
                        }
                        db.merge("merged", 1u64.to_le_bytes()).unwrap();
                    }
                });
            }
        });
        let total: u64 = (0..2).map(|n| number(db.db().get(format!("counter{n}")).unwrap())).sum();
        assert_eq!(total, THREADS * EACH);
        assert_eq!(number(db.db().get("merged").unwrap()), THREADS * EACH);
        assert!(db.lock_status().is_empty());
    });
}

#[test]
fn a_commit_that_is_dropped_on_the_way_ends_all_the_same() {
    in_each_way(|way| {
        let directory = tempfile::tempdir().unwrap();
        let db = way
            .open(&directory, &TransactionDbOptions { default_lock_timeout: 60_000, ..Default::default() });
        for round in 0..20 {
            let mut transaction = begin(&db);
            transaction.put("a", format!("{round}")).unwrap();
            way.prepare(&mut transaction).unwrap();
            {
                let commit = pin!(transaction.commit_async());
                let _ = commit.poll(&mut Context::from_waker(Waker::noop()));
            }
            drop(transaction);
            // The lock is free only once the commit is done.
            let mut next = db.begin(
                &WriteOptions::new(),
                &TransactionOptions { lock_timeout: 60_000, ..TransactionOptions::default() },
            );
            let found = next.get_for_update(&ReadOptions::new(), "a").unwrap().unwrap();
            assert_eq!(&found[..], format!("{round}").as_bytes());
        }
    });
}

#[test]
fn a_wait_that_is_dropped_has_locked_nothing() {
    in_each_way(|way| {
        let directory = tempfile::tempdir().unwrap();
        let db = way.open(&directory, &TransactionDbOptions::default());
        let (mut one, mut two) = (begin(&db), begin(&db));
        one.put("a", "1").unwrap();
        {
            let family = db.db().default_column_family();
            let waiting = pin!(two.put_cf_async(family, b"a", b"2"));
            assert!(waiting.poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        way.commit(&mut one).unwrap();
        assert!(db.lock_status().is_empty());
        two.put("b", "2").unwrap();
        way.commit(&mut two).unwrap();
        assert_eq!((read(&db, "a").as_deref(), read(&db, "b").as_deref()), (Some("1"), Some("2")));
    });
}

#[test]
fn a_write_policy_that_is_not_there_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::new().db(|db| db.create_if_missing = true);
    let write_policy = WritePolicy::WriteUnprepared;
    let prepared = TransactionDbOptions { write_policy, ..TransactionDbOptions::default() };
    let refused = TransactionDb::open(directory.path(), &options, &prepared);
    assert_eq!(kind(refused), Some(ErrorKind::NotSupported));
}

#[test]
fn a_write_that_does_not_fit_leaves_no_lock() {
    in_each_way(|way| {
        let directory = tempfile::tempdir().unwrap();
        let db = way.impatient(&directory);
        let small = TransactionOptions { max_write_batch_size: 100, ..TransactionOptions::default() };
        let mut transaction = db.begin(&WriteOptions::new(), &small);
        let family = db.db().default_column_family().clone();
        let read = ReadOptions::new();
        transaction.put("a", "1").unwrap();
        transaction.get_for_update_cf(&read, &family, "shared", false, true).unwrap();
        let held = |db: &TransactionDb| {
            let mut held: Vec<(Vec<u8>, bool)> =
                db.lock_status().into_iter().map(|lock| (lock.key, lock.exclusive)).collect();
            held.sort();
            held
        };
        let expected = [(b"a".to_vec(), true), (b"shared".to_vec(), false)];
        let large = "x".repeat(100);
        for with_save_point in [false, true] {
            if with_save_point {
                transaction.set_save_point().unwrap();
            }
            for key in ["a", "b", "shared"] {
                let refused = Some(ErrorKind::LimitReached);
                assert_eq!(kind(transaction.put(key, &large)), refused);
                assert_eq!(kind(transaction.put_untracked(&family, key, &large)), refused);
                assert_eq!(
                    kind(pollster::block_on(transaction.put_cf_async(
                        &family,
                        key.as_bytes(),
                        large.as_bytes()
                    ))),
                    refused
                );
                assert_eq!(held(&db), expected, "{key}");
            }
            assert_eq!(transaction.tracked_keys(), 2);
        }
        transaction.put("c", "1").unwrap();
        transaction.rollback_to_save_point().unwrap();
        assert_eq!(held(&db), expected);
        way.commit(&mut transaction).unwrap();
        assert!(db.lock_status().is_empty());
    });
}

#[test]
fn a_read_for_update_that_fails_leaves_no_lock() {
    in_each_way(|way| {
        let directory = tempfile::tempdir().unwrap();
        let db = way.impatient(&directory);
        for key in ["a", "b", "c"] {
            db.put(key, "in a table").unwrap();
        }
        db.db().flush(&FlushOptions::default()).unwrap();
        let family = db.db().default_column_family();
        let cached = ReadOptions { read_tier: ReadTier::BlockCache, ..ReadOptions::new() };
        let mut transaction = begin(&db);
        let unread = ReadOptions { read_tier: ReadTier::Memtable, ..ReadOptions::new() };
        transaction.get_for_update_cf(&unread, family, "b", false, true).unwrap();
        transaction.get_for_update(&unread, "c").unwrap();
        let held = || {
            let mut held: Vec<(Vec<u8>, bool)> =
                db.lock_status().into_iter().map(|lock| (lock.key, lock.exclusive)).collect();
            held.sort();
            held
        };
        let expected = [(b"b".to_vec(), false), (b"c".to_vec(), true)];
        assert_eq!(held(), expected);
        for with_save_point in [false, true] {
            if with_save_point {
                transaction.set_save_point().unwrap();
            }
            for key in ["a", "b", "c"] {
                let refused = Some(ErrorKind::Incomplete);
                assert_eq!(kind(transaction.get_for_update(&cached, key)), refused, "{key}");
                let read = transaction.get_for_update_cf(&cached, family, key, false, false);
                assert_eq!(kind(read), refused, "{key}");
                let read = pollster::block_on(transaction.get_for_update_async(&cached, key.as_bytes()));
                assert_eq!(kind(read), refused, "{key}");
                assert_eq!((held(), transaction.tracked_keys()), (expected.to_vec(), 2), "{key}");
            }
        }
        transaction.rollback_to_save_point().unwrap();
        assert_eq!(held(), expected);
        assert!(transaction.get_for_update(&ReadOptions::new(), "a").unwrap().is_some());
        way.commit(&mut transaction).unwrap();
        assert!(db.lock_status().is_empty());
    });
}

#[test]
fn no_more_keys_are_locked_than_allowed_whoever_asks() {
    in_each_way(|way| {
        let directory = tempfile::tempdir().unwrap();
        let db = way.open(&directory, &TransactionDbOptions { max_num_locks: 2, ..Default::default() });
        let refused = Some(ErrorKind::LimitReached);
        let mut transaction = begin(&db);
        transaction.put("a", "1").unwrap();
        // A batch that exceeds the limit of locks releases those it has taken.
        let mut batch = WriteBatch::new();
        batch.put("b", "others").unwrap();
        batch.put("c", "others").unwrap();
        for _ in 0..3 {
            assert_eq!(kind(db.write(&WriteOptions::new(), &batch)), refused);
            assert_eq!(
                kind(pollster::block_on(db.write_async(&WriteOptions::new(), batch.clone()))),
                refused
            );
            assert_eq!(db.lock_status().len(), 1);
        }
        transaction.put("b", "1").unwrap();
        assert_eq!(kind(transaction.put("c", "1")), refused);
        assert_eq!(kind(transaction.get_for_update(&ReadOptions::new(), "c")), refused);
        assert_eq!(kind(db.put("c", "others")), refused);
        transaction.put("a", "2").unwrap();
        assert_eq!((transaction.tracked_keys(), db.lock_status().len()), (2, 2));
        way.commit(&mut transaction).unwrap();
        db.write(&WriteOptions::new(), &batch).unwrap();
        let all = ["a", "b", "c"].map(|key| read(&db, key));
        assert_eq!(all.each_ref().map(Option::as_deref), [Some("2"), Some("others"), Some("others")]);
    });
}
