//! Two-phase commit: a prepared transaction survives, has no effect before it is decided, and keeps
//! its locks and its log while they are needed.

use karst_engine::caller::{Caller, finish};
use karst_engine::io::Env;
use karst_engine::io::testing::ThreadAllowance;
use karst_engine::stats::{Statistics, Ticker};
use karst_engine::{
    Checkpoint, Db, ErrorKind, FlushOptions, Options, ReadOptions, TransactionHooks, WaitForCompactOptions,
    WriteBatch, WriteOptions,
};
use karst_txn::{
    BatchEntryKind, Transaction, TransactionDb, TransactionDbOptions, TransactionOptions, TransactionState,
    WritePolicy,
};
use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

fn options() -> Options {
    Options::new().db(|db| db.create_if_missing = true).set("merge_operator", "uint64add").unwrap()
}

fn try_open(path: &Path) -> karst_engine::Result<TransactionDb> {
    open_under(path, WritePolicy::WriteCommitted)
}

fn open_under(path: &Path, write_policy: WritePolicy) -> karst_engine::Result<TransactionDb> {
    let transactions = TransactionDbOptions {
        transaction_lock_timeout: 0,
        default_lock_timeout: 0,
        write_policy,
        ..TransactionDbOptions::default()
    };
    TransactionDb::open(path, &options(), &transactions)
}

fn open(path: &Path) -> TransactionDb {
    try_open(path).unwrap()
}

fn named(db: &TransactionDb, name: &str) -> Transaction {
    let mut transaction = db.begin(&WriteOptions::new(), &TransactionOptions::default());
    transaction.set_name(name).unwrap();
    transaction
}

fn prepared(db: &TransactionDb, name: &str, key: &str, value: &str) -> Transaction {
    let mut transaction = named(db, name);
    transaction.put(key, value).unwrap();
    transaction.prepare().unwrap();
    transaction
}

fn kind<T>(outcome: Result<T, karst_engine::Error>) -> Option<ErrorKind> {
    outcome.err().map(|error| error.kind())
}

fn read(db: &TransactionDb, key: &str) -> Option<String> {
    db.db().get(key).unwrap().map(|value| String::from_utf8(value.to_vec()).unwrap())
}

fn names(db: &TransactionDb) -> Vec<String> {
    db.get_all_prepared_transactions().into_iter().map(|name| String::from_utf8(name).unwrap()).collect()
}

#[test]
fn prepared_transactions_are_decided_after_the_next_opening() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    {
        let db = open(path);
        db.put("a", "old").unwrap();
        let mut one = prepared(&db, "one", "a", "new");
        assert_eq!((read(&db, "a").as_deref(), one.state()), (Some("old"), Some(TransactionState::Prepared)));
        assert_eq!(kind(one.put("b", "1")), Some(ErrorKind::InvalidArgument));
        assert_eq!(kind(one.prepare()), Some(ErrorKind::InvalidArgument));
        drop(one);
        assert_eq!(
            kind(db.put("a", "others")),
            Some(ErrorKind::TimedOut),
            "a dropped handle keeps its locks"
        );
        drop(prepared(&db, "two", "b", "2"));
        drop(prepared(&db, "three", "c", "3"));
        db.db().flush(&FlushOptions::default()).unwrap();
        db.put("d", "behind the flush").unwrap();
    }
    assert!(Db::open_read_only(path, &Options::new()).unwrap().get("b").unwrap().is_none());
    {
        let db = open(path);
        assert_eq!(names(&db), ["one", "three", "two"]);
        assert_eq!(read(&db, "a").as_deref(), Some("old"));
        assert_eq!(kind(db.put("a", "others")), Some(ErrorKind::TimedOut));
        let mut one = db.get_transaction_by_name("one").unwrap();
        assert_eq!(kind(db.get_transaction_by_name("one")), Some(ErrorKind::Busy));
        assert_eq!(one.get(&ReadOptions::new(), "a").unwrap().as_deref(), Some(&b"new"[..]));
        one.commit().unwrap();
        db.get_transaction_by_name("two").unwrap().rollback().unwrap();
        assert_eq!((read(&db, "a").as_deref(), read(&db, "b")), (Some("new"), None));
        db.put("b", "free again").unwrap();
        assert_eq!(names(&db), ["three"]);
    }
    {
        let db = open(path);
        assert_eq!(names(&db), ["three"]);
        assert_eq!((read(&db, "a").as_deref(), read(&db, "b").as_deref()), (Some("new"), Some("free again")));
        assert_eq!(kind(db.get_transaction_by_name("one")), Some(ErrorKind::NotFound));
        let mut three = db.get_transaction_by_name("three").unwrap();
        pollster::block_on(three.commit_async()).unwrap();
        assert_eq!(kind(three.commit()), Some(ErrorKind::InvalidArgument));
    }
    let db = open(path);
    assert_eq!((names(&db).len(), read(&db, "c").as_deref()), (0, Some("3")));
    assert_eq!(read(&db, "d").as_deref(), Some("behind the flush"));
    assert!(db.lock_status().is_empty());
}

#[test]
fn what_a_plain_opening_cannot_decide_it_refuses() {
    let directory = tempfile::tempdir().unwrap();
    drop(prepared(&open(directory.path()), "one", "a", "1"));
    let plain = options().db(|db| db.allow_2pc = false);
    let refused = Db::open(directory.path(), &plain).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotSupported);
    assert!(refused.to_string().contains("TransactionDb"), "{refused}");
    open(directory.path()).get_transaction_by_name("one").unwrap().rollback().unwrap();
    assert!(Db::open(directory.path(), &plain).unwrap().get("a").unwrap().is_none());
}

#[test]
fn bad_input_is_refused_and_leaves_no_lock() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(directory.path());
    let mut nameless = db.begin(&WriteOptions::new(), &TransactionOptions::default());
    nameless.put("a", "1").unwrap();
    assert_eq!(kind(nameless.prepare()), Some(ErrorKind::InvalidArgument));
    nameless.rollback().unwrap();
    let strict = TransactionOptions { skip_prepare: false, ..TransactionOptions::default() };
    let mut strict = db.begin(&WriteOptions::new(), &strict);
    strict.put("a", "1").unwrap();
    assert_eq!(kind(strict.commit()), Some(ErrorKind::InvalidArgument));
    drop(strict);
    assert_eq!(kind(db.get_transaction_by_name("nobody")), Some(ErrorKind::NotFound));
    let options = WriteOptions::new();
    let unknown = karst_engine::TransactionHooks::of(db.db()).commit_prepared(
        karst_engine::Caller::Thread,
        &options,
        b"nobody",
        None,
    );
    assert_eq!(kind(karst_engine::caller::finish(unknown)), Some(ErrorKind::NotFound));
    assert!(db.lock_status().is_empty());
    let mut empty = named(&db, "empty");
    empty.prepare().unwrap();
    empty.commit().unwrap();
}

/// The log with a prepared section stays until the section is decided and its entries are in a
/// table; then it is removed.
#[test]
fn a_log_is_kept_while_a_prepared_section_needs_it() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(directory.path());
    let mut transaction = prepared(&db, "one", "a", "1");
    let log = *db.db().log_numbers().last().unwrap();
    let kept = |db: &TransactionDb| db.db().log_numbers().contains(&log);
    let fill_and_flush = || {
        db.put("filler", "x").unwrap();
        db.db().flush(&FlushOptions::default()).unwrap();
    };
    for _ in 0..3 {
        fill_and_flush();
        assert!(kept(&db), "it is not decided");
    }
    transaction.commit().unwrap();
    assert!(kept(&db), "its entries are in memory only");
    fill_and_flush();
    assert!(!kept(&db), "they are in a table");
    drop((transaction, db));
    assert_eq!(read(&open(directory.path()), "a").as_deref(), Some("1"));
}

/// Flushes cannot shorten logs that are too long while the oldest holds a prepared section; once
/// that is decided, its entries are flushed and the log is removed.
#[test]
fn logs_that_are_kept_for_a_transaction_cause_no_flushes() {
    let directory = tempfile::tempdir().unwrap();
    let stats = Arc::new(Statistics::default());
    let options = options().statistics(stats.clone()).db(|db| {
        db.create_missing_column_families = true;
        db.max_total_wal_size = 2_000;
    });
    let transactions = TransactionDbOptions::default();
    let db =
        TransactionDb::open_cf(directory.path(), &options, &transactions, &["default", "other"]).unwrap();
    let other = db.db().column_family("other").unwrap();
    let mut transaction = prepared(&db, "one", "a", "1");
    let log = *db.db().log_numbers().last().unwrap();
    let kept = || db.db().log_numbers().contains(&log);
    let write = || {
        db.put("filler", "x").unwrap();
        db.db().put_cf(&WriteOptions::new(), &other, "filler", "x").unwrap();
    };
    for _ in 0..1_000 {
        write();
    }
    db.db().wait_for_compact(&WaitForCompactOptions::default()).unwrap();
    assert_eq!(stats.ticker(Ticker::FlushWriteBytes), 0);
    assert!(kept());
    transaction.commit().unwrap();
    let began = Instant::now();
    while kept() {
        assert!(began.elapsed() < Duration::from_secs(300), "the log stays");
        write();
    }
    drop((transaction, other, db));
    let db =
        TransactionDb::open_cf(directory.path(), &options, &transactions, &["default", "other"]).unwrap();
    assert_eq!(read(&db, "a").as_deref(), Some("1"));
}

/// Copies the files as a crash of the process leaves them. None is removed meanwhile.
fn copy(db: &TransactionDb, from: &Path, to: &Path) {
    db.db().disable_file_deletions().unwrap();
    std::fs::create_dir(to).unwrap();
    for file in std::fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
    db.db().enable_file_deletions().unwrap();
}

/// A copy of the files at any moment of a transaction's life is the database before or after, with
/// the transaction prepared in between.
#[test]
fn a_crash_leaves_each_phase_whole() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(&directory.path().join("db"));
    let copy = |to: &str| {
        let to = directory.path().join(to);
        copy(&db, &directory.path().join("db"), &to);
        to
    };
    db.put("n", 5u64.to_le_bytes()).unwrap();
    let mut transaction = named(&db, "one");
    transaction.merge("n", 3u64.to_le_bytes()).unwrap();
    transaction.merge("n", 4u64.to_le_bytes()).unwrap();
    let before = copy("before");
    transaction.prepare().unwrap();
    let between = copy("between");
    transaction.commit().unwrap();
    let after = copy("after");
    db.put("m", "later").unwrap();
    let later = copy("later");
    let number =
        |db: &TransactionDb| u64::from_le_bytes(db.db().get("n").unwrap().unwrap()[..].try_into().unwrap());
    let db = open(&before);
    assert_eq!((number(&db), names(&db).len()), (5, 0));
    for round in 0..3 {
        // Reopened repeatedly, it is prepared once.
        let db = open(&between);
        assert_eq!((number(&db), names(&db).len()), (5, 1), "round {round}");
    }
    open(&between).get_transaction_by_name("one").unwrap().commit().unwrap();
    for path in [&between, &after, &later] {
        let db = open(path);
        assert_eq!((number(&db), names(&db).len()), (12, 0));
    }
    assert_eq!(read(&open(&later), "m").as_deref(), Some("later"));
}

/// A commit's record does not show how many numbers it took, and its section may be removed: that
/// is no gap in the history.
#[test]
fn a_commit_whose_section_is_gone_may_be_the_last_in_its_log() {
    let directory = tempfile::tempdir().unwrap();
    let options = options().db(|db| db.create_missing_column_families = true);
    let open = || {
        let transactions = TransactionDbOptions::default();
        TransactionDb::open_cf(directory.path(), &options, &transactions, &["default", "other"]).unwrap()
    };
    let db = open();
    let other = db.db().column_family("other").unwrap();
    let mut one = named(&db, "one");
    one.put("a", "1").unwrap();
    one.put("b", "1").unwrap();
    one.prepare().unwrap();
    db.put_cf(&WriteOptions::new(), &other, "x", "1").unwrap();
    let families = [db.db().default_column_family(), &other];
    db.db().flush_cfs(&FlushOptions::default(), &families).unwrap();
    db.put_cf(&WriteOptions::new(), &other, "y", "1").unwrap();
    one.commit().unwrap();
    db.db().flush(&FlushOptions::default()).unwrap();
    db.put_cf(&WriteOptions::new(), &other, "z", "1").unwrap();
    drop((one, db, other));
    let db = open();
    assert_eq!(db.db().log_damage(), None);
    let other = db.db().column_family("other").unwrap();
    for key in ["x", "y", "z"] {
        let found = db.db().get_cf(&ReadOptions::new(), &other, key).unwrap();
        assert_eq!(found.as_deref(), Some(&b"1"[..]), "{key}");
    }
    assert_eq!(read(&db, "b").as_deref(), Some("1"));
}

#[test]
fn a_flush_waits_for_the_logs_that_say_what_became_of_transactions() {
    let directory = tempfile::tempdir().unwrap();
    let statistics = Arc::new(Statistics::default());
    let options = options().statistics(statistics.clone());
    let db = TransactionDb::open(directory.path(), &options, &TransactionDbOptions::default()).unwrap();
    let mut one = prepared(&db, "one", "a", "1");
    one.commit().unwrap();
    let before = statistics.ticker(Ticker::WalFileSynced);
    db.db().flush(&FlushOptions::default()).unwrap();
    let after = statistics.ticker(Ticker::WalFileSynced);
    assert!(after > before, "a table has what was committed, and a power failure could take the commit");
}

/// For a plain write the option omits the log; for a two-phase transaction it has no effect.
#[test]
fn phases_are_logged_whatever_disable_wal_says() {
    for policy in [WritePolicy::WriteCommitted, WritePolicy::WritePrepared] {
        let directory = tempfile::tempdir().unwrap();
        let (path, crashed) = (directory.path().join("db"), directory.path().join("crashed"));
        let db = open_under(&path, policy).unwrap();
        db.put("c", "logged").unwrap();
        let begin = |options| {
            let mut transaction = db.begin(&options, &TransactionOptions::default());
            transaction.set_name(format!("{:?}", transaction.id())).unwrap();
            transaction
        };
        let unlogged = |key: &str| {
            let mut transaction = begin(WriteOptions::unlogged());
            transaction.put(key, "1").unwrap();
            transaction.prepare().unwrap();
            transaction
        };
        let mut committed = unlogged("a");
        let (mut task, prepared, mut rolled_back) = (unlogged("b"), unlogged("c"), unlogged("d"));
        committed.commit().unwrap();
        pollster::block_on(task.commit_async()).unwrap();
        rolled_back.rollback().unwrap();
        // It is not refused with `sync`, unlike a write.
        let mut synced = begin(WriteOptions { sync: true, ..WriteOptions::unlogged() });
        synced.put("e", "1").unwrap();
        assert_eq!(kind(synced.commit()), Some(ErrorKind::InvalidArgument));
        synced.prepare().unwrap();
        synced.commit().unwrap();
        let mut one_phase = begin(WriteOptions::unlogged());
        one_phase.put("f", "1").unwrap();
        one_phase.commit().unwrap();
        db.put_cf(&WriteOptions::unlogged(), db.db().default_column_family(), "g", "1").unwrap();
        let all = |db: &TransactionDb| ["a", "b", "c", "d", "e", "f", "g"].map(|key| read(db, key));
        let (one, logged) = (Some("1"), Some("logged"));
        assert_eq!(all(&db).each_ref().map(Option::as_deref), [one, one, logged, None, one, one, one]);
        copy(&db, &path, &crashed);
        let name = prepared.name().unwrap().to_vec();
        {
            let db = open_under(&crashed, policy).unwrap();
            assert_eq!(all(&db).each_ref().map(Option::as_deref), [one, one, logged, None, one, None, None]);
            assert_eq!((db.get_all_prepared_transactions(), db.lock_status().len()), (vec![name.clone()], 1));
            db.get_transaction_by_name(&name).unwrap().commit().unwrap();
        }
        let db = open_under(&crashed, policy).unwrap();
        assert_eq!(all(&db).each_ref().map(Option::as_deref), [one, one, one, None, one, None, None]);
        assert_eq!((names(&db).len(), db.db().log_damage()), (0, None));
    }
}

/// Under WritePrepared the entries were inserted, and were dropped with the family. Under
/// WriteCommitted the commit would write there, and is refused like any such write; except for a
/// recovered transaction, which could otherwise never be committed.
#[test]
fn what_a_prepared_transaction_had_written_to_a_family_goes_with_it() {
    for policy in [WritePolicy::WriteCommitted, WritePolicy::WritePrepared] {
        for recovered in [false, true] {
            println!("{policy:?} {recovered}");
            let directory = tempfile::tempdir().unwrap();
            let mut db = open_under(directory.path(), policy).unwrap();
            let other = db.db().create_column_family("other", &options()).unwrap();
            for name in ["one", "two"] {
                let mut transaction = named(&db, name);
                transaction.put(name, "1").unwrap();
                transaction.put_cf(&other, name, "1").unwrap();
                transaction.prepare().unwrap();
            }
            db.db().drop_column_family(&other).unwrap();
            drop(other);
            if recovered {
                drop(db);
                db = open_under(directory.path(), policy).unwrap();
            }
            let mut one = db.get_transaction_by_name("one").unwrap();
            let refused = policy == WritePolicy::WriteCommitted && !recovered;
            let outcome = one.commit();
            assert_eq!(kind(outcome), refused.then_some(ErrorKind::InvalidArgument));
            if refused {
                assert_eq!(
                    kind(db.put("one", "others")),
                    Some(ErrorKind::TimedOut),
                    "it is prepared as before"
                );
                one.rollback().unwrap();
            }
            db.get_transaction_by_name("two").unwrap().rollback().unwrap();
            let expected = (!refused).then_some("1");
            assert_eq!((read(&db, "one").as_deref(), read(&db, "two")), (expected, None));
            assert!(db.lock_status().is_empty() && names(&db).is_empty());
            drop((one, db));
            let db = open_under(directory.path(), policy).unwrap();
            assert_eq!((read(&db, "one").as_deref(), read(&db, "two")), (expected, None));
            assert_eq!(db.db().log_damage(), None);
        }
    }
}

/// Polls once, and drops the future. Returns true if it was pending.
fn give_up(future: impl Future<Output = karst_engine::Result<()>>) -> bool {
    let outcome = pin!(future).poll(&mut Context::from_waker(Waker::noop()));
    outcome.map(Result::unwrap).is_pending()
}

/// Checks the handle of a transaction whose prepare, commit or rollback was dropped: it is empty.
fn check_given_up(transaction: &mut Transaction) {
    let refused = Some(ErrorKind::InvalidArgument);
    assert_eq!((transaction.state(), transaction.id(), transaction.name()), (None, None, None));
    assert_eq!((transaction.tracked_keys(), transaction.write_batch().is_none()), (0, true));
    assert_eq!(kind(transaction.put("a", "x")), refused);
    assert_eq!(kind(transaction.get(&ReadOptions::new(), "a")), refused);
    assert_eq!(kind(transaction.set_save_point()), refused);
    assert_eq!(kind(transaction.prepare()), refused);
    assert_eq!(kind(transaction.commit()), refused);
    assert_eq!(kind(pollster::block_on(transaction.commit_async())), refused);
    assert_eq!(kind(transaction.rollback()), refused);
    transaction.clear_snapshot();
    assert!(transaction.snapshot().is_none());
}

#[test]
fn a_phase_that_is_given_up_goes_on_without_its_handle() {
    for policy in [WritePolicy::WriteCommitted, WritePolicy::WritePrepared] {
        let directory = tempfile::tempdir().unwrap();
        let db = open_under(directory.path(), policy).unwrap();
        let by_name = |name: &str| {
            let end = Instant::now() + Duration::from_secs(60);
            loop {
                match db.get_transaction_by_name(name) {
                    Ok(transaction) => return Some(transaction),
                    Err(e) if e.kind() == ErrorKind::NotFound => return None,
                    Err(e) => assert!(e.kind() == ErrorKind::Busy && Instant::now() < end, "{name}: {e}"),
                }
                std::thread::yield_now();
            }
        };
        let mut given_up = [0; 3];
        for round in 0..10 {
            let name = format!("{round}");
            let mut transaction = db.begin(&WriteOptions::synced(), &TransactionOptions::default());
            transaction.set_name(&name).unwrap();
            transaction.put("a", &name).unwrap();
            if give_up(transaction.prepare_async()) {
                given_up[0] += 1;
                check_given_up(&mut transaction);
            }
            drop(transaction);
            let mut transaction = by_name(&name).expect("it is prepared");
            assert_eq!((transaction.state(), db.lock_status().len()), (Some(TransactionState::Prepared), 1));
            let before = read(&db, "a");
            let (goes_on, which) = match round % 2 {
                0 => (give_up(transaction.commit_async()), 1),
                _ => (give_up(transaction.rollback_async()), 2),
            };
            if goes_on {
                given_up[which] += 1;
                check_given_up(&mut transaction);
            }
            drop(transaction);
            assert!(by_name(&name).is_none(), "it is decided");
            let expected = if round % 2 == 0 { Some(name) } else { before };
            assert_eq!(read(&db, "a"), expected);
            assert!(db.lock_status().is_empty());
        }
        assert!(given_up.iter().all(|count| *count > 0), "{given_up:?}: the test shows nothing");
    }
}

/// A checkpoint has the prepared section in its logs, with or without a flush, and the original's
/// decision does not affect it.
#[test]
fn what_is_prepared_is_prepared_in_a_checkpoint_too() {
    for policy in [WritePolicy::WriteCommitted, WritePolicy::WritePrepared] {
        let directory = tempfile::tempdir().unwrap();
        let db = open_under(&directory.path().join("db"), policy).unwrap();
        db.put("a", "old").unwrap();
        let mut first = prepared(&db, "first", "a", "new");
        db.db().flush(&FlushOptions::default()).unwrap();
        let mut second = prepared(&db, "second", "b", "1");
        db.put("c", "behind").unwrap();
        let copies = [("flushed", 0), ("logged", u64::MAX)].map(|(name, limit)| {
            let path = directory.path().join(name);
            Checkpoint::new(db.db()).unwrap().create_checkpoint(&path, limit).unwrap();
            path
        });
        first.commit().unwrap();
        second.rollback().unwrap();
        let decided = directory.path().join("decided");
        Checkpoint::new(db.db()).unwrap().create_checkpoint(&decided, u64::MAX).unwrap();
        drop((first, second, db));
        for path in copies {
            let copy = open_under(&path, policy).unwrap();
            assert_eq!(names(&copy), ["first", "second"], "{policy:?}, {}", path.display());
            assert_eq!((read(&copy, "a").as_deref(), read(&copy, "b")), (Some("old"), None));
            assert_eq!(read(&copy, "c").as_deref(), Some("behind"));
            copy.get_transaction_by_name("first").unwrap().rollback().unwrap();
            copy.get_transaction_by_name("second").unwrap().commit().unwrap();
            assert_eq!((read(&copy, "a").as_deref(), read(&copy, "b").as_deref()), (Some("old"), Some("1")));
        }
        let copy = open_under(&decided, policy).unwrap();
        assert_eq!(names(&copy).len(), 0);
        assert_eq!((read(&copy, "a").as_deref(), read(&copy, "b")), (Some("new"), None));
    }
}

/// Prepares a batch as it is, as RocksDB's transactions can with entities and ranges.
fn prepare_batch(db: &TransactionDb, name: &str, batch: WriteBatch) {
    let hooks = TransactionHooks::of(db.db());
    finish(hooks.prepare(Caller::Thread, &WriteOptions::new(), name.as_bytes(), batch)).unwrap();
}

#[test]
fn prepared_entities_are_decided_after_the_next_opening() {
    for policy in [WritePolicy::WriteCommitted, WritePolicy::WritePrepared] {
        for commits in [true, false] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path();
            {
                let db = open_under(path, policy).unwrap();
                db.put("a", "old").unwrap();
                db.put("b", "old").unwrap();
                let mut batch = WriteBatch::new();
                batch.put_entity(None, "a", &[(b"column", b"1"), (b"", b"of the entity")]).unwrap();
                batch.put_entity(None, "b", &[(b"column", b"2")]).unwrap();
                batch.put("c", "plain").unwrap();
                prepare_batch(&db, "one", batch);
            }
            let db = open_under(path, policy).unwrap();
            assert_eq!(names(&db), ["one"]);
            for key in ["a", "b", "c"] {
                assert_eq!(kind(db.put(key, "others")), Some(ErrorKind::TimedOut), "{key}");
            }
            let mut one = db.get_transaction_by_name("one").unwrap();
            let options = ReadOptions::new();
            let seen = |key: &str| {
                one.get(&options, key).unwrap().map(|value| String::from_utf8(value.to_vec()).unwrap())
            };
            assert_eq!(
                ["a", "b", "c"].map(seen),
                ["of the entity", "", "plain"].map(|text| Some(text.into()))
            );
            let mut iterator = one.iter(&options).unwrap();
            iterator.seek_to_first().unwrap();
            assert_eq!((iterator.key(), iterator.value()), (&b"a"[..], &b"of the entity"[..]));
            drop(iterator);
            let mut entries = one.write_batch().unwrap().iter();
            entries.seek("a");
            assert_eq!(entries.entry().kind, BatchEntryKind::PutEntity);
            if commits { one.commit() } else { one.rollback() }.unwrap();
            drop((one, db));
            let db = open_under(path, policy).unwrap();
            let expected = if commits {
                [Some("of the entity"), Some(""), Some("plain")]
            } else {
                [Some("old"), Some("old"), None]
            };
            assert_eq!(
                ["a", "b", "c"].map(|key| read(&db, key)),
                expected.map(|text| text.map(str::to_owned))
            );
            assert!(names(&db).is_empty() && db.lock_status().is_empty());
        }
    }
}

/// Compat: RocksDB does not open a database with such a transaction any more.
#[test]
fn prepared_removals_of_ranges_are_decided_after_the_next_opening() {
    for commits in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        {
            let db = open(path);
            ["a", "b", "c", "d"].into_iter().for_each(|key| db.put(key, "old").unwrap());
            let mut batch = WriteBatch::new();
            batch.put("a", "new").unwrap();
            batch.delete_range("b", "d").unwrap();
            prepare_batch(&db, "one", batch);
        }
        for _ in 0..2 {
            let db = open(path);
            assert_eq!(names(&db), ["one"]);
            assert_eq!(kind(db.put("a", "others")), Some(ErrorKind::TimedOut));
            let one = db.get_transaction_by_name("one").unwrap();
            let options = ReadOptions::new();
            assert_eq!(kind(one.get(&options, "b")), Some(ErrorKind::NotSupported), "it would be wrong");
            assert_eq!(kind(one.iter(&options)), Some(ErrorKind::NotSupported));
            let both = one.multi_get(&options, &["a", "b"]);
            assert!(both.into_iter().all(|value| kind(value) == Some(ErrorKind::NotSupported)));
        }
        // What is inserted when it is prepared cannot remove ranges.
        let refused = open_under(path, WritePolicy::WritePrepared).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NotSupported, "{refused}");
        let db = open(path);
        let mut one = db.get_transaction_by_name("one").unwrap();
        if commits { one.commit() } else { one.rollback() }.unwrap();
        drop((one, db));
        let db = open(path);
        let expected = if commits { [Some("new"), None, None, Some("old")] } else { [Some("old"); 4] };
        let found = ["a", "b", "c", "d"].map(|key| read(&db, key));
        assert_eq!(found, expected.map(|text| text.map(str::to_owned)));
        assert!(names(&db).is_empty());
    }
}

/// An open database keeps the threads that finish started operations, so a decision that is no
/// longer awaited always has one.
#[test]
fn a_decision_that_is_given_up_ends_where_no_thread_is_left() {
    for commits in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let allowance = ThreadAllowance::new(2);
        let options = options().env(Env::builder().thread_allowance(allowance).build());
        let db = TransactionDb::open(directory.path(), &options, &TransactionDbOptions::default()).unwrap();
        for round in 0..20 {
            let (name, key) = (format!("transaction {round}"), format!("key {round}"));
            let mut transaction = prepared(&db, &name, &key, "value");
            {
                let decides = async {
                    if commits {
                        transaction.commit_async().await
                    } else {
                        transaction.rollback_async().await
                    }
                };
                let _ = pin!(decides).as_mut().poll(&mut Context::from_waker(Waker::noop()));
            }
            drop(transaction);
            // It gets the lock once the decision is made.
            let mut next = db
                .begin(&WriteOptions::new(), &TransactionOptions { lock_timeout: -1, ..Default::default() });
            let found = next.get_for_update(&ReadOptions::new(), &key).unwrap();
            assert_eq!(found.is_some(), commits);
        }
        assert!(names(&db).is_empty());
    }
}
