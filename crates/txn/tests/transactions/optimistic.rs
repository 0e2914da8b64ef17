//! Optimistic transactions: the anomalies that each isolation level defines, against every kind of
//! other writer, with its entries in memtables or tables.

use karst_engine::format::{Comparator, UserComparator};
use karst_engine::{
    Db, ErrorKind, FlushOptions, IngestExternalFileOptions, Options, ReadOptions, SstFileWriter, WriteOptions,
};
use karst_txn::{
    OptimisticTransaction, OptimisticTransactionDb, OptimisticTransactionDbOptions,
    OptimisticTransactionOptions,
};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Waker};

fn options() -> Options {
    Options::new().db(|db| db.create_if_missing = true).set("merge_operator", "uint64add").unwrap()
}

fn open(directory: &tempfile::TempDir, buckets: u32) -> OptimisticTransactionDb {
    let transactions = OptimisticTransactionDbOptions { occ_lock_buckets: buckets };
    OptimisticTransactionDb::open(directory.path(), &options(), &transactions).unwrap()
}

fn begin(db: &OptimisticTransactionDb) -> OptimisticTransaction {
    db.begin(&WriteOptions::new(), &OptimisticTransactionOptions::default())
}

fn kind(outcome: Result<(), karst_engine::Error>) -> Option<ErrorKind> {
    outcome.err().map(|error| error.kind())
}

fn read(db: &Db, key: &str) -> Option<String> {
    db.get(key).unwrap().map(|value| String::from_utf8(value.to_vec()).unwrap())
}

#[test]
fn a_write_in_between_fails_the_commit_whoever_made_it() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(&directory, 1 << 20);
    for other in 0..5 {
        db.put("a", "before").unwrap();
        let mut transaction = begin(&db);
        assert!(transaction.get_for_update(&ReadOptions::new(), "a").unwrap().is_some());
        transaction.put("b", "mine").unwrap();
        match other {
            0 => db.put("a", "plain").unwrap(),
            1 => db.delete("a").unwrap(),
            2 => db.delete_range("A", "z").unwrap(),
            3 => {
                let mut other = begin(&db);
                other.put("a", "transaction").unwrap();
                other.commit().unwrap();
            }
            _ => {
                // The other write's entries are in a table, under later ones.
                db.put("a", "flushed").unwrap();
                db.flush(&FlushOptions::default()).unwrap();
                db.compact_range(&Default::default(), None, None).unwrap();
            }
        }
        assert_eq!(kind(transaction.commit()), Some(ErrorKind::Busy), "writer {other}");
        assert_eq!(read(&db, "b"), None);
        transaction.rollback().unwrap();
    }
}

/// Files with a number assigned by the ingestion, with the numbers that they came with, and older
/// than all.
#[test]
fn a_commit_does_not_pass_over_a_file_that_was_ingested_meanwhile() {
    let directory = tempfile::tempdir().unwrap();
    let all = options().db(|db| db.allow_ingest_behind = true);
    let db = OptimisticTransactionDb::open(directory.path(), &all, &Default::default()).unwrap();
    // Without `snapshot_consistency`, because a transaction that has read holds a snapshot, and
    // such files would be refused.
    let any = IngestExternalFileOptions { snapshot_consistency: false, ..Default::default() };
    for (number, how) in [
        any,
        IngestExternalFileOptions { allow_global_seqno: false, ..any },
        IngestExternalFileOptions { ingest_behind: true, ..any },
    ]
    .into_iter()
    .enumerate()
    {
        let path = directory.path().join(format!("{number}.file"));
        let key = format!("a{number}");
        let mut writer = SstFileWriter::create(&options()).unwrap();
        writer.open(&path).unwrap();
        writer.put(&key, "ingested").unwrap();
        writer.finish().unwrap();
        let mut transaction = begin(&db);
        assert!(transaction.get_for_update(&ReadOptions::new(), &key).unwrap().is_none());
        transaction.put("b", "mine").unwrap();
        db.ingest_external_file(&how, [&path]).unwrap();
        assert_eq!(kind(transaction.commit()), Some(ErrorKind::Busy), "{how:?}");
        assert_eq!((read(&db, &key).as_deref(), read(&db, "b")), (Some("ingested"), None));
        let mut later = begin(&db);
        assert!(later.get_for_update(&ReadOptions::new(), &key).unwrap().is_some());
        later.put(&key, "later").unwrap();
        later.commit().unwrap();
        assert_eq!(read(&db, &key).as_deref(), Some("later"));
    }
}

#[test]
fn what_is_not_touched_by_others_commits() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(&directory, 1);
    let mut transaction = begin(&db);
    transaction.put("a", "1").unwrap();
    transaction.put_untracked(db.default_column_family(), "u", "1").unwrap();
    db.put("b", "same bucket, another key").unwrap();
    db.put("u", "not tracked").unwrap();
    db.flush(&FlushOptions::default()).unwrap();
    assert_eq!(transaction.get(&ReadOptions::new(), "a").unwrap().as_deref(), Some(&b"1"[..]));
    transaction.commit().unwrap();
    assert_eq!((read(&db, "a").as_deref(), read(&db, "u").as_deref()), (Some("1"), Some("1")));
}

#[test]
fn a_snapshot_counts_from_when_it_was_set() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(&directory, 1 << 10);
    let mut transaction =
        db.begin(&WriteOptions::new(), &OptimisticTransactionOptions { set_snapshot: true });
    db.put("a", "since the snapshot").unwrap();
    let at_snapshot = ReadOptions { snapshot: transaction.snapshot().cloned(), ..ReadOptions::new() };
    assert!(transaction.get(&at_snapshot, "a").unwrap().is_none());
    transaction.put("a", "mine").unwrap();
    assert_eq!(kind(transaction.commit()), Some(ErrorKind::Busy));
    transaction.rollback().unwrap();

    let mut transaction = begin(&db);
    db.put("a", "before the first touch").unwrap();
    transaction.put("a", "mine").unwrap();
    transaction.commit().unwrap();
    assert_eq!(read(&db, "a").as_deref(), Some("mine"));
}

#[test]
fn a_snapshot_that_was_taken_before_counts_from_then() {
    let (directory, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (db, other) = (open(&directory, 1 << 10), open(&elsewhere, 1 << 10));
    for late in [false, true] {
        let snapshot = db.snapshot();
        db.put("a", "since the snapshot").unwrap();
        let mut transaction = begin(&db);
        if late {
            // The foreign snapshot is then older than the one that the transaction holds.
            transaction.put("b", "mine").unwrap();
        }
        assert_eq!(kind(transaction.set_snapshot_to(other.snapshot())), Some(ErrorKind::InvalidArgument));
        assert!(transaction.snapshot().is_none());
        let number = snapshot.sequence_number();
        transaction.set_snapshot_to(snapshot).unwrap();
        assert_eq!(transaction.snapshot().map(|snapshot| snapshot.sequence_number()), Some(number));
        db.flush(&FlushOptions::default()).unwrap();
        transaction.put("a", "mine").unwrap();
        assert_eq!(kind(transaction.commit()), Some(ErrorKind::Busy));
        transaction.rollback().unwrap();
    }
}

#[test]
fn a_snapshot_is_taken_with_the_next_operation_where_that_was_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(&directory, 1 << 10);
    let read_options = ReadOptions::new();
    for conflict in [false, true] {
        let mut transaction = begin(&db);
        transaction.set_snapshot_on_next_operation().unwrap();
        db.put("a", "before the operation").unwrap();
        assert!(transaction.get(&read_options, "a").unwrap().is_some());
        assert!(transaction.snapshot().is_none(), "a plain read is none");
        transaction.get_for_update(&read_options, "a").unwrap();
        let taken = transaction.snapshot().map(|snapshot| snapshot.sequence_number());
        assert_eq!(taken, Some(db.latest_sequence_number()));
        if conflict {
            db.put("b", "since").unwrap();
        }
        transaction.put("b", "1").unwrap();
        let now = transaction.snapshot().map(|snapshot| snapshot.sequence_number());
        assert_eq!(now, taken, "it is taken once");
        assert_eq!(kind(transaction.commit()), conflict.then_some(ErrorKind::Busy));
    }
}

#[test]
fn a_snapshot_that_was_cleared_refuses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(&directory, 1 << 10);
    for cleared in [false, true] {
        let mut transaction = begin(&db);
        transaction.set_snapshot().unwrap();
        db.put("a", "since").unwrap();
        if cleared {
            transaction.clear_snapshot();
            assert!(transaction.snapshot().is_none());
            transaction.set_snapshot_on_next_operation().unwrap();
            transaction.clear_snapshot();
        }
        transaction.put("a", "1").unwrap();
        assert_eq!(transaction.snapshot().is_none(), cleared);
        assert_eq!(kind(transaction.commit()), (!cleared).then_some(ErrorKind::Busy));
    }
}

#[test]
fn a_save_point_that_is_popped_keeps_what_was_done_since_for_the_one_before_it() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(&directory, 1 << 10);
    let mut transaction = begin(&db);
    transaction.put("a", "1").unwrap();
    transaction.set_save_point().unwrap();
    transaction.put("b", "1").unwrap();
    transaction.set_save_point().unwrap();
    transaction.put("a", "2").unwrap();
    transaction.put("c", "1").unwrap();
    transaction.pop_save_point().unwrap();
    assert_eq!((transaction.tracked_keys(), transaction.write_batch().count()), (3, 4));
    transaction.rollback_to_save_point().unwrap();
    assert_eq!((transaction.tracked_keys(), transaction.write_batch().count()), (1, 1));
    assert_eq!(kind(transaction.pop_save_point()), Some(ErrorKind::NotFound));
    db.put("c", "others").unwrap();
    transaction.set_save_point().unwrap();
    transaction.put("d", "1").unwrap();
    transaction.pop_save_point().unwrap();
    assert_eq!(kind(transaction.rollback_to_save_point()), Some(ErrorKind::NotFound));
    transaction.commit().unwrap();
    assert_eq!(kind(transaction.set_save_point()), Some(ErrorKind::InvalidArgument));
    assert_eq!(kind(transaction.rollback_to_save_point()), Some(ErrorKind::InvalidArgument));
    assert_eq!(kind(transaction.pop_save_point()), Some(ErrorKind::InvalidArgument));
    let all = ["a", "b", "c", "d"].map(|key| read(&db, key));
    assert_eq!(all.each_ref().map(Option::as_deref), [Some("1"), None, Some("others"), Some("1")]);

    // The commit also depends on changes kept by a popped save point.
    let mut transaction = begin(&db);
    transaction.set_save_point().unwrap();
    transaction.put("a", "3").unwrap();
    transaction.pop_save_point().unwrap();
    db.put("a", "others").unwrap();
    assert_eq!(kind(transaction.commit()), Some(ErrorKind::Busy));
}

#[test]
fn log_data_goes_to_the_log_and_nowhere_else() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(&directory, 1 << 10);
    let is_logged = |bytes: &str| {
        let log = directory.path().join(format!("{:06}.log", db.log_numbers().last().unwrap()));
        std::fs::read(log).unwrap().windows(bytes.len()).any(|window| window == bytes.as_bytes())
    };
    // A batch of log data alone is written without checks; beside a key, only if no other writer
    // changed that.
    for key in [None, Some("a")] {
        let note = format!("a note beside {key:?}");
        let mut transaction = begin(&db);
        transaction.put_log_data(&note).unwrap();
        if let Some(key) = key {
            transaction.put(key, "1").unwrap();
        }
        let keys = usize::from(key.is_some());
        let counts = (transaction.tracked_keys(), transaction.write_batch().count() as usize);
        assert_eq!(counts, (keys, keys));
        let before = db.latest_sequence_number();
        assert!(!is_logged(&note));
        transaction.commit().unwrap();
        assert!(is_logged(&note));
        assert_eq!(db.latest_sequence_number(), before + keys as u64, "it takes no number");
        assert_eq!(kind(transaction.put_log_data("behind the end")), Some(ErrorKind::InvalidArgument));
    }
}

#[test]
fn a_call_that_was_refused_is_none_of_the_commits_business() {
    let (directory, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (db, foreign) = (open(&directory, 1 << 10), open(&elsewhere, 1 << 10));
    let foreign_family = foreign.default_column_family();
    let plain = Options::new().db(|db| db.create_if_missing = true);
    let family = db.create_column_family("without an operator", &plain).unwrap();
    let refused = Some(ErrorKind::InvalidArgument);
    let mut transaction = begin(&db);
    transaction.get_for_update(&ReadOptions::new(), "a").unwrap();
    for with_save_point in [false, true] {
        if with_save_point {
            transaction.set_save_point().unwrap();
        }
        assert_eq!(kind(transaction.put_cf(foreign_family, "b", "1")), refused);
        assert_eq!(kind(transaction.put_untracked(foreign_family, "b", "1")), refused);
        assert_eq!(kind(transaction.delete_cf(foreign_family, "b")), refused);
        assert_eq!(kind(transaction.merge_cf(foreign_family, "b", 1u64.to_le_bytes())), refused);
        assert_eq!(kind(transaction.merge_cf(&family, "b", 1u64.to_le_bytes())), refused);
        let options = ReadOptions::new();
        let read = transaction.get_for_update_cf(&options, foreign_family, "b");
        assert_eq!(kind(read.map(drop)), refused);
        let read = transaction.get_for_update_cf_async(&options, foreign_family, b"b");
        assert_eq!(kind(pollster::block_on(read).map(drop)), refused);
        assert_eq!((transaction.tracked_keys(), transaction.write_batch().count()), (1, 0));
    }
    transaction.rollback_to_save_point().unwrap();
    transaction.put("a", "1").unwrap();
    db.put("b", "others").unwrap();
    transaction.commit().unwrap();
    assert_eq!(read(&db, "a").as_deref(), Some("1"));
}

#[test]
fn a_save_point_takes_back_writes_and_what_they_depend_on() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(&directory, 1 << 10);
    let mut transaction = begin(&db);
    transaction.put("kept", "1").unwrap();
    transaction.set_save_point().unwrap();
    transaction.put("dropped", "1").unwrap();
    transaction.rollback_to_save_point().unwrap();
    assert_eq!(transaction.tracked_keys(), 1);
    db.put("dropped", "others").unwrap();
    transaction.commit().unwrap();
    assert_eq!((read(&db, "kept").as_deref(), read(&db, "dropped").as_deref()), (Some("1"), Some("others")));
    let mut transaction = begin(&db);
    assert_eq!(kind(transaction.rollback_to_save_point()), Some(ErrorKind::NotFound));
    assert_eq!(kind(transaction.pop_save_point()), Some(ErrorKind::NotFound));
}

#[test]
fn an_ended_transaction_takes_nothing_more() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(&directory, 1 << 10);
    let mut committed = begin(&db);
    committed.put("a", "1").unwrap();
    committed.commit().unwrap();
    let mut rolled_back = begin(&db);
    rolled_back.put("a", "2").unwrap();
    rolled_back.rollback().unwrap();
    for transaction in [&mut committed, &mut rolled_back] {
        let refused = Some(ErrorKind::InvalidArgument);
        assert_eq!(kind(transaction.put("a", "3")), refused);
        assert_eq!(kind(transaction.commit()), refused);
        assert_eq!(kind(transaction.rollback()), refused);
        assert_eq!(kind(transaction.get(&ReadOptions::new(), "a").map(drop)), refused);
        assert_eq!(kind(transaction.iter(&ReadOptions::new()).map(drop)), refused);
        assert_eq!(kind(transaction.set_save_point()), refused);
    }
    assert_eq!(read(&db, "a").as_deref(), Some("1"));
}

#[test]
fn a_commit_that_is_given_up_is_whole_or_not_and_its_transaction_takes_nothing_more() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(&directory, 1 << 10);
    let mut given_up = 0;
    for round in 0..10 {
        let value = round.to_string();
        let mut transaction = db.begin(&WriteOptions::synced(), &OptimisticTransactionOptions::default());
        transaction.put("a", &value).unwrap();
        transaction.put("b", &value).unwrap();
        let goes_on = {
            let commit = pin!(transaction.commit_async());
            commit.poll(&mut Context::from_waker(Waker::noop())).map(Result::unwrap).is_pending()
        };
        if goes_on {
            given_up += 1;
            let refused = Some(ErrorKind::InvalidArgument);
            assert_eq!(kind(transaction.put("a", "x")), refused);
            assert_eq!(kind(transaction.get(&ReadOptions::new(), "a").map(drop)), refused);
            assert_eq!(kind(transaction.commit()), refused);
            assert_eq!(kind(transaction.rollback()), refused);
        }
        drop(transaction);
        // The next write shows the outcome of the commit before it.
        db.put("c", &value).unwrap();
        let (a, b) = (read(&db, "a"), read(&db, "b"));
        assert!(a == b && (goes_on || a == Some(value)), "{a:?} and {b:?}");
    }
    assert!(given_up > 0, "the test shows nothing");
}

/// Write skew: two transactions read both keys and each writes one. Reads for update prevent it,
/// plain reads do not.
#[test]
fn write_skew_is_what_the_reads_make_it() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(&directory, 1 << 10);
    for for_update in [true, false] {
        db.put("x", "1").unwrap();
        db.put("y", "1").unwrap();
        let (mut one, mut two) = (begin(&db), begin(&db));
        for transaction in [&mut one, &mut two] {
            for key in ["x", "y"] {
                let options = ReadOptions::new();
                match for_update {
                    true => transaction.get_for_update(&options, key).unwrap(),
                    false => transaction.get(&options, key).unwrap(),
                };
            }
        }
        one.put("x", "0").unwrap();
        two.put("y", "0").unwrap();
        one.commit().unwrap();
        assert_eq!(kind(two.commit()), for_update.then_some(ErrorKind::Busy));
    }
}

/// No update is lost: threads and tasks add to a few counters in transactions, others write beside
/// them, and memtables are flushed all the time.
#[test]
fn concurrent_increments_are_all_there() {
    for unordered in ["false", "true"] {
        increments_are_all_there(&options().set("unordered_write", unordered).unwrap());
    }
}

fn increments_are_all_there(options: &Options) {
    const THREADS: u64 = 4;
    const EACH: u64 = 300;
    let directory = tempfile::tempdir().unwrap();
    let transactions = OptimisticTransactionDbOptions { occ_lock_buckets: 64 };
    let db = OptimisticTransactionDb::open(directory.path(), options, &transactions).unwrap();
    let busy = AtomicU64::new(0);
    let number = |value: Option<karst_engine::Value>| {
        value.map_or(0, |value| u64::from_le_bytes(value[..].try_into().unwrap()))
    };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (db, busy) = (&db, &busy);
            scope.spawn(move || {
                for round in 0..EACH {
                    let key = format!("counter{}", (thread + round) % 3);
                    loop {
                        let mut transaction = begin(db);
                        let now = number(transaction.get_for_update(&ReadOptions::new(), &key).unwrap());
                        transaction.put(&key, (now + 1).to_le_bytes()).unwrap();
                        let outcome = match thread % 2 {
                            0 => transaction.commit(),
                            _ => pollster::block_on(transaction.commit_async()),
                        };
                        match outcome {
                            Ok(()) => break,
                            Err(e) => assert_eq!(e.kind(), ErrorKind::Busy),
                        }
                        busy.fetch_add(1, Ordering::Relaxed);
                    }
                    db.put(format!("beside{thread}"), "x").unwrap();
                    if round % 100 == 99 {
                        db.flush(&FlushOptions::default()).unwrap();
                    }
                }
            });
        }
    });
    let total: u64 = (0..3).map(|n| number(db.get(format!("counter{n}")).unwrap())).sum();
    assert_eq!(total, THREADS * EACH, "{} commits were refused", busy.load(Ordering::Relaxed));
}

#[derive(Debug)]
struct IgnoresCase;

impl UserComparator for IgnoresCase {
    fn name(&self) -> &str {
        "ignores case"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        a.to_ascii_lowercase().cmp(&b.to_ascii_lowercase())
    }
}

/// Two spellings of a key are one key, so a commit fails whichever of them was written meanwhile.
#[test]
fn increments_are_all_there_whatever_the_spelling_of_their_key() {
    const THREADS: usize = 4;
    const EACH: u64 = 300;
    let directory = tempfile::tempdir().unwrap();
    let transactions = OptimisticTransactionDbOptions { occ_lock_buckets: 1 << 20 };
    let options = options().comparator(None, Comparator::custom(Arc::new(IgnoresCase)));
    let db = OptimisticTransactionDb::open(directory.path(), &options, &transactions).unwrap();
    let number = |value: Option<karst_engine::Value>| {
        value.map_or(0, |value| u64::from_le_bytes(value[..].try_into().unwrap()))
    };
    std::thread::scope(|scope| {
        for key in ["counter", "Counter", "COUNTER", "cOUNTER"].into_iter().take(THREADS) {
            let db = &db;
            scope.spawn(move || {
                for _ in 0..EACH {
                    loop {
                        let mut transaction = begin(db);
                        let now = number(transaction.get_for_update(&ReadOptions::new(), key).unwrap());
                        transaction.put(key, (now + 1).to_le_bytes()).unwrap();
                        match transaction.commit() {
                            Ok(()) => break,
                            Err(e) => assert_eq!(e.kind(), ErrorKind::Busy),
                        }
                    }
                }
            });
        }
    });
    assert_eq!(number(db.get("counter").unwrap()), THREADS as u64 * EACH);
}

#[test]
fn merges_and_iterators_see_the_transaction() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(&directory, 1 << 10);
    db.put("n", 5u64.to_le_bytes()).unwrap();
    let mut transaction = begin(&db);
    transaction.merge("n", 3u64.to_le_bytes()).unwrap();
    transaction.put("m", "new").unwrap();
    let mut iter = transaction.iter(&ReadOptions::new()).unwrap();
    pollster::block_on(iter.seek_to_last_async()).unwrap();
    assert_eq!((iter.key(), iter.value()), (&b"n"[..], &8u64.to_le_bytes()[..]));
    pollster::block_on(iter.prev_async()).unwrap();
    assert_eq!(iter.key(), b"m");
    transaction.commit().unwrap();
    assert_eq!(&db.get("n").unwrap().unwrap()[..], 8u64.to_le_bytes());
}
