//! Transactions in column families whose keys have timestamps: they lock and write keys without
//! timestamps, and the commit sets the timestamp of all of them.

use karst_engine::caller::{Caller, finish};
use karst_engine::format::{Comparator, UserComparator};
use karst_engine::io::testing::foreign_block_on as wait;
use karst_engine::{
    BottommostLevelCompaction, ColumnFamily, CompactRangeOptions, Db, Error, ErrorKind, FlushOptions,
    Options, ReadOptions, TransactionHooks, WriteBatch, WriteOptions,
};
use karst_txn::{
    BatchParams, InBatch, OptimisticTransactionDb, OptimisticTransactionDbOptions,
    OptimisticTransactionOptions, Transaction, TransactionDb, TransactionDbOptions, TransactionOptions,
    WriteBatchWithIndex, WritePolicy,
};
use std::cmp::Ordering;
use std::path::Path;
use std::sync::Arc;

const FAMILIES: [&str; 2] = ["default", "stamped"];

fn options() -> Options {
    let options = Options::new().comparator(Some("stamped"), Comparator::BytewiseU64Ts).db(|db| {
        db.create_if_missing = true;
        db.create_missing_column_families = true;
    });
    options.set("merge_operator", "StringAppendOperator").unwrap()
}

struct Setup {
    db: TransactionDb,
    family: ColumnFamily,
    directory: tempfile::TempDir,
}

fn opened_with(path: &Path, transactions: &TransactionDbOptions) -> (TransactionDb, ColumnFamily) {
    let db = TransactionDb::open_cf(path, &options(), transactions, &FAMILIES).unwrap();
    let family = db.db().column_family("stamped").unwrap();
    (db, family)
}

fn setup_with(transactions: &TransactionDbOptions) -> Setup {
    let directory = tempfile::tempdir().unwrap();
    let (db, family) = opened_with(directory.path(), transactions);
    Setup { db, family, directory }
}

fn setup() -> Setup {
    setup_with(&TransactionDbOptions::default())
}

impl Setup {
    fn begin(&self) -> Transaction {
        self.db.begin(&WriteOptions::new(), &TransactionOptions::default())
    }

    /// Writes one key in a transaction of its own.
    fn put(&self, key: &str, value: &str, timestamp: u64) {
        let mut transaction = self.begin();
        transaction.put_cf(&self.family, key, value).unwrap();
        transaction.set_commit_timestamp(timestamp).unwrap();
        transaction.commit().unwrap();
    }

    /// Returns the value at a timestamp, with the timestamp that it was written at.
    fn found(&self, key: &str, timestamp: u64) -> Option<(String, u64)> {
        found(self.db.db(), &self.family, key, timestamp)
    }

    /// Closes and opens the database, without a flush, as after a crash of the process.
    fn reopened(self) -> Setup {
        let Setup { db, family, directory } = self;
        drop((db, family));
        let (db, family) = opened_with(directory.path(), &TransactionDbOptions::default());
        Setup { db, family, directory }
    }
}

fn found(db: &Db, family: &ColumnFamily, key: &str, timestamp: u64) -> Option<(String, u64)> {
    let (value, at) = db.get_cf_with_ts(&read_at(timestamp), family, key).unwrap()?;
    Some((text(&value), u64::from_le_bytes(at[..].try_into().unwrap())))
}

fn read_at(timestamp: u64) -> ReadOptions {
    ReadOptions { timestamp: Some(timestamp.to_le_bytes().to_vec()), ..ReadOptions::new() }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn some(value: &str, timestamp: u64) -> Option<(String, u64)> {
    Some((value.to_owned(), timestamp))
}

#[track_caller]
fn refused<T>(outcome: Result<T, Error>) {
    let error = outcome.err().expect("it is refused");
    assert_eq!(error.kind(), ErrorKind::NotSupported, "{error}");
    assert!(error.to_string().contains("timestamps"), "{error}");
}

#[track_caller]
fn invalid<T>(outcome: Result<T, Error>, what: &str) {
    let error = outcome.err().expect("it is refused");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.to_string().contains(what), "{error}");
}

#[track_caller]
fn busy<T>(outcome: Result<T, Error>) {
    let error = outcome.err().expect("somebody has written it");
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
}

fn stamped(family: &ColumnFamily) -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.put_cf_with_ts(family, "key", [1; 8], "1").unwrap();
    batch
}

#[test]
fn a_commit_writes_every_key_at_its_timestamp() {
    let setup = setup();
    setup.put("gone", "old", 1);
    setup.put("once", "old", 1);
    for asynchronous in [false, true] {
        let timestamp = if asynchronous { 20 } else { 10 };
        let mut transaction = setup.begin();
        if asynchronous {
            let family = &setup.family;
            wait(transaction.put_cf_async(family, b"put", b"v")).unwrap();
            wait(transaction.delete_cf_async(family, b"gone")).unwrap();
            wait(transaction.merge_cf_async(family, b"put", b"w")).unwrap();
            wait(transaction.put_async(b"plain", b"p")).unwrap();
        } else {
            transaction.put_cf(&setup.family, "put", "v").unwrap();
            transaction.delete_cf(&setup.family, "gone").unwrap();
            transaction.single_delete_cf(&setup.family, "once").unwrap();
            transaction.merge_cf(&setup.family, "put", "w").unwrap();
            transaction.put_untracked(&setup.family, "untracked", "u").unwrap();
            transaction.put("plain", "p").unwrap();
        }
        assert_eq!(transaction.commit_timestamp(), None);
        transaction.set_commit_timestamp(timestamp).unwrap();
        assert_eq!(transaction.commit_timestamp(), Some(timestamp));
        match asynchronous {
            true => wait(transaction.commit_async()).unwrap(),
            false => transaction.commit().unwrap(),
        }
        assert_eq!(setup.found("put", timestamp), some("v,w", timestamp));
        assert_eq!(setup.db.get("plain").unwrap().as_deref(), Some(&b"p"[..]));
    }
    assert_eq!(setup.found("put", 19), some("v,w", 10));
    assert_eq!(setup.found("put", 9), None);
    assert_eq!((setup.found("gone", 9), setup.found("gone", 10)), (some("old", 1), None));
    assert_eq!((setup.found("once", 9), setup.found("once", 10)), (some("old", 1), None));
    assert_eq!(setup.found("untracked", 10), some("u", 10));
    assert_eq!(setup.db.lock_status().len(), 0);
}

#[test]
fn a_commit_without_a_timestamp_fails_and_can_be_tried_again() {
    for prepared in [false, true] {
        let setup = setup();
        let mut transaction = setup.begin();
        transaction.set_name("one").unwrap();
        transaction.put("plain", "1").unwrap();
        transaction.put_cf(&setup.family, "key", "1").unwrap();
        if prepared {
            transaction.prepare().unwrap();
        }
        invalid(transaction.commit(), "needs one to commit at");
        invalid(wait(transaction.commit_async()), "needs one to commit at");
        assert_eq!((setup.found("key", 100), setup.db.lock_status().len()), (None, 2));
        // `u64::MAX` stands for none, as in RocksDB.
        transaction.set_commit_timestamp(5).unwrap();
        transaction.set_commit_timestamp(u64::MAX).unwrap();
        assert_eq!(transaction.commit_timestamp(), None);
        invalid(transaction.commit(), "needs one to commit at");
        transaction.set_commit_timestamp(6).unwrap();
        transaction.commit().unwrap();
        assert_eq!(setup.found("key", 100), some("1", 6));
        // A transaction without writes in families with timestamps needs no timestamp.
        let mut plain = setup.begin();
        plain.set_name("two").unwrap();
        plain.put("plain", "2").unwrap();
        if prepared {
            plain.prepare().unwrap();
        }
        plain.commit().unwrap();
        assert_eq!(setup.db.get("plain").unwrap().as_deref(), Some(&b"2"[..]));
    }
}

#[test]
fn timestamps_to_read_at_and_to_commit_at_keep_their_order() {
    let setup = setup();
    let mut transaction = setup.begin();
    transaction.set_read_timestamp_for_validation(10).unwrap();
    invalid(transaction.set_read_timestamp_for_validation(9), "cannot become 9");
    transaction.set_read_timestamp_for_validation(11).unwrap();
    for below in [10, 11] {
        invalid(transaction.set_commit_timestamp(below), "not above 11");
    }
    transaction.set_commit_timestamp(12).unwrap();
    transaction.put_cf(&setup.family, "key", "1").unwrap();
    transaction.commit().unwrap();
    assert_eq!(setup.found("key", 12), some("1", 12));
    let off = setup_with(&TransactionDbOptions { enable_udt_validation: false, ..Default::default() });
    let mut transaction = off.begin();
    transaction.set_read_timestamp_for_validation(10).unwrap();
    transaction.set_commit_timestamp(3).unwrap();
    assert_eq!(transaction.commit_timestamp(), Some(3));
    off.db.db().close().unwrap();
    assert_eq!(transaction.set_commit_timestamp(4).unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(transaction.set_read_timestamp_for_validation(11).unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn what_is_read_for_update_has_no_later_timestamp() {
    let setup = setup();
    setup.put("key", "old", 24);
    let family = &setup.family;
    for flushed in [false, true] {
        if flushed {
            setup.db.db().flush_cfs(&FlushOptions::default(), &[family]).unwrap();
        }
        let mut early = setup.begin();
        early.set_read_timestamp_for_validation(23).unwrap();
        let read = ReadOptions::new();
        busy(early.get_for_update_cf(&read, family, "key", true, true));
        busy(wait(early.get_for_update_cf_async(&read, family, b"key", false, true)));
        // Writes are validated too, except untracked ones.
        busy(early.put_cf(family, "key", "new"));
        busy(early.delete_cf(family, "key"));
        assert_eq!((early.tracked_keys(), setup.db.lock_status().len()), (0, 0));
        early.put_untracked(family, "key", "new").unwrap();
        early.rollback().unwrap();

        let mut late = setup.begin();
        late.set_read_timestamp_for_validation(24).unwrap();
        let value = late.get_for_update_cf(&read, family, "key", true, true).unwrap();
        assert_eq!(value.as_deref(), Some(&b"old"[..]));
        let nothing = late.get_for_update_cf(&read, family, "other", true, true).unwrap();
        assert_eq!((nothing, late.tracked_keys()), (None, 2));
        invalid(late.get_for_update_cf(&read_at(20), family, "more", true, true), "another timestamp");
        assert!(late.get_for_update_cf(&read_at(24), family, "key", true, true).unwrap().is_some());
        invalid(late.get_for_update_cf(&read, family, "key", true, false), "not validated");
        assert_eq!(late.tracked_keys(), 2);
        late.rollback().unwrap();

        let mut none = setup.begin();
        invalid(none.get_for_update_cf(&read, family, "key", true, true), "needs a timestamp");
        invalid(none.get_for_update_cf(&read_at(27), family, "key", true, true), "needs a timestamp");
        for options in [&read, &read_at(u64::MAX)] {
            let newest = none.get_for_update_cf(options, family, "key", true, false).unwrap();
            assert_eq!(newest.as_deref(), Some(&b"old"[..]));
        }
        none.rollback().unwrap();
        assert_eq!(setup.db.lock_status().len(), 0);
    }
    // A later deletion counts like any write.
    let mut removes = setup.begin();
    removes.delete_cf(family, "key").unwrap();
    removes.set_commit_timestamp(30).unwrap();
    removes.commit().unwrap();
    let mut reads = setup.begin();
    reads.set_read_timestamp_for_validation(25).unwrap();
    busy(reads.get_for_update_cf(&ReadOptions::new(), family, "key", true, true));
    // With a later read timestamp it succeeds.
    reads.set_read_timestamp_for_validation(30).unwrap();
    assert_eq!(reads.get_for_update_cf(&ReadOptions::new(), family, "key", true, true).unwrap(), None);
    reads.put_cf(family, "key", "again").unwrap();
    reads.set_commit_timestamp(31).unwrap();
    reads.commit().unwrap();
    assert_eq!(setup.found("key", 31), some("again", 31));
}

#[test]
fn a_snapshot_is_validated_beside_the_timestamp() {
    let setup = setup();
    let family = &setup.family;
    setup.put("key", "old", 10);
    let read = ReadOptions::new();
    let mut transaction = setup.begin();
    transaction.set_snapshot().unwrap();
    transaction.set_read_timestamp_for_validation(100).unwrap();
    assert!(transaction.get_for_update_cf(&read, family, "key", true, true).unwrap().is_some());
    setup.put("other", "new", 20);
    // The key has no later timestamp, but was written since the snapshot.
    busy(transaction.get_for_update_cf(&read, family, "other", true, true));
    busy(transaction.put_cf(family, "other", "mine"));
    transaction.set_snapshot().unwrap();
    assert!(transaction.get_for_update_cf(&read, family, "other", true, true).unwrap().is_some());
    transaction.rollback().unwrap();
}

#[test]
fn without_the_validation_of_timestamps_only_snapshots_count() {
    let setup = setup_with(&TransactionDbOptions { enable_udt_validation: false, ..Default::default() });
    let family = &setup.family;
    setup.put("key", "0", 20);
    let read = ReadOptions::new();
    let mut told = setup.begin();
    told.set_read_timestamp_for_validation(21).unwrap();
    invalid(told.get_for_update_cf(&read, family, "key", true, true), "enable_udt_validation");
    drop(told);
    let mut transaction = setup.begin();
    let value = transaction.get_for_update_cf(&read, family, "key", true, true).unwrap();
    assert_eq!(value.as_deref(), Some(&b"0"[..]));
    invalid(transaction.get_for_update_cf(&read_at(27), family, "key", true, true), "another timestamp");
    transaction.rollback().unwrap();
    let mut since = setup.begin();
    since.set_snapshot().unwrap();
    setup.put("key", "1", 21);
    busy(since.get_for_update_cf(&read, family, "key", true, true));
    let mut early = setup.begin();
    early.set_read_timestamp_for_validation(1).unwrap();
    early.put_cf(family, "key", "2").unwrap();
    early.set_commit_timestamp(22).unwrap();
    early.commit().unwrap();
    assert_eq!(setup.found("key", 22), some("2", 22));
}

#[test]
fn a_transaction_reads_what_it_wrote_over_what_there_is_at_a_timestamp() {
    let setup = setup();
    let family = &setup.family;
    for (key, value, timestamp) in [("a", "a1", 1), ("b", "b1", 2), ("b", "b2", 3), ("d", "d1", 4)] {
        setup.put(key, value, timestamp);
    }
    let mut transaction = setup.begin();
    transaction.put_cf(family, "c", "mine").unwrap();
    transaction.delete_cf(family, "a").unwrap();
    transaction.merge_cf(family, "b", "m").unwrap();
    let get =
        |at: u64, key: &str| transaction.get_cf(&read_at(at), family, key).unwrap().map(|value| text(&value));
    assert_eq!(get(2, "a"), None);
    assert_eq!((get(2, "b").as_deref(), get(3, "b").as_deref()), (Some("b1,m"), Some("b2,m")));
    assert_eq!(
        (get(2, "c").as_deref(), get(3, "d"), get(4, "d").as_deref()),
        (Some("mine"), None, Some("d1"))
    );
    let many = transaction.multi_get_cf(&read_at(3), family, &["a", "b", "c", "d"]);
    let many: Vec<_> = many.into_iter().map(|value| value.unwrap().map(|value| text(&value))).collect();
    assert_eq!(many, [None, Some("b2,m".to_owned()), Some("mine".to_owned()), None]);

    // A timestamp is needed even for a key that the batch has.
    for key in ["a", "c", "d"] {
        invalid(transaction.get_cf(&ReadOptions::new(), family, key), "is read at one");
        let many = transaction.multi_get_cf(&ReadOptions::new(), family, &[key]);
        many.into_iter().for_each(|outcome| invalid(outcome, "is read at one"));
        let short = ReadOptions { timestamp: Some(vec![1; 4]), ..ReadOptions::new() };
        invalid(transaction.get_cf(&short, family, key), "a timestamp of 4 bytes");
    }
    transaction.put("plain", "1").unwrap();
    invalid(transaction.get(&read_at(1), "plain"), "has no timestamps to read at");

    // In both directions, with the timestamps of the database's entries.
    let mut it = transaction.iter_cf(&read_at(4), family).unwrap();
    let at = |timestamp: u64| timestamp.to_le_bytes().to_vec();
    let expected = [("b", "b2,m", vec![]), ("c", "mine", vec![]), ("d", "d1", at(4))];
    it.seek_to_first().unwrap();
    for (key, value, timestamp) in &expected {
        assert_eq!(
            (it.key(), it.value(), it.timestamp()),
            (key.as_bytes(), value.as_bytes(), &timestamp[..])
        );
        it.next().unwrap();
    }
    assert!(!it.valid());
    it.seek_to_last().unwrap();
    for (key, value, timestamp) in expected.iter().rev() {
        assert_eq!(
            (it.key(), it.value(), it.timestamp()),
            (key.as_bytes(), value.as_bytes(), &timestamp[..])
        );
        it.prev().unwrap();
    }
    assert!(!it.valid());
    it.seek("c").unwrap();
    it.prev().unwrap();
    assert_eq!(it.key(), b"b");
    let mut early = transaction.iter_cf(&read_at(2), family).unwrap();
    early.seek("b").unwrap();
    assert_eq!(early.value(), b"b1,m");
    let bounded = ReadOptions { iterate_lower_bound: Some(b"c".to_vec()), ..read_at(4) };
    let mut bounded = transaction.iter_cf(&bounded, family).unwrap();
    bounded.seek_to_first().unwrap();
    assert_eq!(bounded.key(), b"c");

    invalid(transaction.iter_cf(&ReadOptions::new(), family), "is read at one");
    let history = ReadOptions { iter_start_ts: Some(vec![0; 8]), ..read_at(4) };
    let error = transaction.iter_cf(&history, family).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotSupported);
}

#[test]
fn save_points_take_back_keys_with_timestamps() {
    let setup = setup();
    let family = &setup.family;
    let mut transaction = setup.begin();
    transaction.put("plain", "1").unwrap();
    transaction.set_save_point().unwrap();
    transaction.put_cf(family, "key", "1").unwrap();
    transaction.rollback_to_save_point().unwrap();
    assert_eq!((transaction.tracked_keys(), setup.db.lock_status().len()), (1, 1));
    // No key with a timestamp is left, so the commit needs none.
    transaction.commit().unwrap();
    let mut transaction = setup.begin();
    transaction.put_cf(family, "kept", "1").unwrap();
    transaction.set_save_point().unwrap();
    transaction.put_cf(family, "kept", "2").unwrap();
    transaction.put_cf(family, "left", "2").unwrap();
    transaction.rollback_to_save_point().unwrap();
    transaction.set_commit_timestamp(3).unwrap();
    transaction.commit().unwrap();
    assert_eq!((setup.found("kept", 3), setup.found("left", 3)), (some("1", 3), None));
}

#[test]
fn a_prepared_transaction_gets_its_timestamp_when_it_commits() {
    for (synced, crashed) in [(false, false), (true, false), (true, true)] {
        let mut setup = setup();
        let write = WriteOptions { sync: synced, ..WriteOptions::new() };
        let begin = |setup: &Setup, name: &str, key: &str| {
            let mut transaction = setup.db.begin(&write, &TransactionOptions::default());
            transaction.set_name(name).unwrap();
            transaction.put_cf(&setup.family, key, "1").unwrap();
            transaction.merge_cf(&setup.family, key, "2").unwrap();
            transaction.put(key, "plain").unwrap();
            transaction.prepare().unwrap();
            transaction
        };
        let mut decided = begin(&setup, "decided", "a");
        decided.set_commit_timestamp(5).unwrap();
        decided.commit().unwrap();
        drop(decided);
        let mut undone = begin(&setup, "undone", "b");
        undone.rollback().unwrap();
        drop(undone);
        let mut open = begin(&setup, "open", "c");
        let mut never = begin(&setup, "never", "d");
        if crashed {
            drop((open, never));
            // Twice, because the second opening reads the records that the first has logged anew.
            setup = setup.reopened().reopened();
            assert_eq!(setup.db.get_all_prepared_transactions(), [b"never".to_vec(), b"open".to_vec()]);
            open = setup.db.get_transaction_by_name("open").unwrap();
            never = setup.db.get_transaction_by_name("never").unwrap();
            assert_eq!((open.tracked_keys(), open.commit_timestamp()), (2, None));
            // It holds its locks again, and reads as before.
            let options = TransactionOptions { lock_timeout: 0, ..TransactionOptions::default() };
            let mut other = setup.db.begin(&write, &options);
            let error = other.put_cf(&setup.family, "c", "3").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut);
            let value = open.get_cf(&read_at(1), &setup.family, "c").unwrap();
            assert_eq!(value.as_deref(), Some(&b"1,2"[..]));
            invalid(open.commit(), "needs one to commit at");
        }
        assert_eq!(setup.found("a", 5), some("1,2", 5));
        assert_eq!((setup.found("a", 4), setup.found("b", 100), setup.found("c", 100)), (None, None, None));
        open.set_commit_timestamp(9).unwrap();
        match synced {
            true => wait(open.commit_async()).unwrap(),
            false => open.commit().unwrap(),
        }
        never.rollback().unwrap();
        drop((open, never));
        for reopened in [false, true] {
            if reopened {
                setup = setup.reopened();
            }
            assert_eq!((setup.found("c", 8), setup.found("c", 9)), (None, some("1,2", 9)));
            assert_eq!((setup.found("a", 100), setup.found("d", 100)), (some("1,2", 5), None));
            assert_eq!(setup.db.get("c").unwrap().as_deref(), Some(&b"plain"[..]));
            assert_eq!(setup.db.get("d").unwrap(), None);
            assert!(setup.db.get_all_prepared_transactions().is_empty());
        }
    }
}

#[test]
fn prepared_keys_outlive_a_flush_between_the_phases() {
    let setup = setup();
    let mut transaction = setup.begin();
    transaction.set_name("one").unwrap();
    transaction.put_cf(&setup.family, "key", "1").unwrap();
    transaction.prepare().unwrap();
    setup.put("other", "1", 3);
    setup.db.db().flush_cfs(&FlushOptions::default(), &[&setup.family]).unwrap();
    transaction.set_commit_timestamp(7).unwrap();
    transaction.commit().unwrap();
    drop(transaction);
    let setup = setup.reopened();
    assert_eq!((setup.found("key", 6), setup.found("key", 7)), (None, some("1", 7)));
    assert_eq!(setup.found("other", 3), some("1", 3));
}

#[test]
fn a_family_that_was_dropped_needs_no_timestamp() {
    let setup = setup();
    let mut transaction = setup.begin();
    transaction.set_name("one").unwrap();
    transaction.put_cf(&setup.family, "key", "1").unwrap();
    transaction.put("plain", "1").unwrap();
    transaction.prepare().unwrap();
    drop(transaction);
    setup.db.db().drop_column_family(&setup.family).unwrap();
    let Setup { db, family, directory } = setup;
    drop((db, family));
    let db =
        TransactionDb::open(directory.path(), &Options::new(), &TransactionDbOptions::default()).unwrap();
    let mut transaction = db.get_transaction_by_name("one").unwrap();
    transaction.commit().unwrap();
    assert_eq!(db.get("plain").unwrap().as_deref(), Some(&b"1"[..]));
}

#[test]
fn beside_its_transactions_a_database_refuses_keys_with_timestamps() {
    let setup = setup();
    let (db, family) = (&setup.db, &setup.family);
    let (read, write) = (ReadOptions::new(), WriteOptions::new());
    refused(db.put_cf(&write, family, "key", "1"));
    refused(db.delete_cf(&write, family, "key"));
    refused(db.single_delete_cf(&write, family, "key"));
    refused(wait(db.merge_cf_async(&write, family, b"key", b"1")));
    refused(db.write(&write, &stamped(family)));
    refused(wait(db.write_async(&write, stamped(family))));
    assert_eq!(db.lock_status().len(), 0);
    let mut stored = db.db().internal_iter(&read, family).unwrap();
    stored.seek_to_first().unwrap();
    assert!(!stored.valid(), "nothing was written");
    // Sections that were prepared without a transaction need a timestamp as well.
    let hooks = TransactionHooks::of(db.db());
    finish(hooks.prepare(Caller::Thread, &write, b"name", stamped(family))).unwrap();
    let commit = |timestamp| finish(hooks.commit_prepared(Caller::Thread, &write, b"name", timestamp));
    invalid(commit(None), "a commit needs a timestamp");
    invalid(commit(Some(&[1; 4])), "a timestamp of 4 bytes");
    commit(Some(&8_u64.to_le_bytes())).unwrap();
    assert_eq!(setup.found("key", 8), some("1", 8));
}

#[test]
fn with_write_prepared_no_keys_have_timestamps() {
    let transactions =
        TransactionDbOptions { write_policy: WritePolicy::WritePrepared, ..TransactionDbOptions::default() };
    let setup = setup();
    setup.put("key", "1", 1);
    let Setup { db, family, directory } = setup;
    db.db().flush_cfs(&FlushOptions::default(), &[&family]).unwrap();
    drop((db, family));
    refused(TransactionDb::open_cf(directory.path(), &options(), &transactions, &FAMILIES));

    // A family that is created later is refused at its first use.
    let directory = tempfile::tempdir().unwrap();
    let plain = Options::new().db(|db| db.create_if_missing = true);
    let db = TransactionDb::open(directory.path(), &plain, &transactions).unwrap();
    let family = db.db().create_column_family("stamped", &options()).unwrap();
    let mut transaction = db.begin(&WriteOptions::new(), &TransactionOptions::default());
    refused(transaction.put_cf(&family, "key", "1"));
    refused(transaction.get_cf(&read_at(1), &family, "key"));
    refused(transaction.multi_get_cf(&read_at(1), &family, &["key"]).remove(0));
    refused(transaction.iter_cf(&read_at(1), &family));
    let hooks = TransactionHooks::of(db.db());
    refused(finish(hooks.prepare(Caller::Thread, &WriteOptions::new(), b"name", stamped(&family))));
    assert_eq!(db.lock_status().len(), 0);
}

/// Bytewise order, with timestamps of four bytes.
#[derive(Debug)]
struct FourBytes;

impl UserComparator for FourBytes {
    fn name(&self) -> &str {
        "four"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        let bare = |key: &[u8]| key.len().saturating_sub(4);
        let ((a, a_at), (b, b_at)) = (a.split_at(bare(a)), b.split_at(bare(b)));
        a.cmp(b).then_with(|| self.compare_timestamps(b_at, a_at))
    }

    fn timestamp_size(&self) -> usize {
        4
    }
}

#[test]
fn timestamps_of_transactions_have_eight_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let options = options().comparator(Some("stamped"), Comparator::custom(Arc::new(FourBytes)));
    let transactions = TransactionDbOptions::default();
    let outcome = TransactionDb::open_cf(directory.path(), &options, &transactions, &FAMILIES);
    invalid(outcome, "have 8 bytes");
}

#[test]
fn optimistic_transactions_refuse_keys_with_timestamps() {
    let directory = tempfile::tempdir().unwrap();
    let transactions = OptimisticTransactionDbOptions::default();
    let db =
        OptimisticTransactionDb::open_cf(directory.path(), &options(), &transactions, &FAMILIES).unwrap();
    let (read, write) = (read_at(1), WriteOptions::new());
    let family = db.column_family("stamped").unwrap();
    let mut transaction = db.begin(&write, &OptimisticTransactionOptions::default());
    transaction.put("plain", "1").unwrap();
    refused(transaction.put_cf(&family, "key", "1"));
    refused(transaction.put_untracked(&family, "key", "1"));
    refused(transaction.delete_cf(&family, "key"));
    refused(transaction.single_delete_cf(&family, "key"));
    refused(transaction.merge_cf(&family, "key", "1"));
    refused(transaction.get_cf(&read, &family, "key"));
    refused(transaction.multi_get_cf(&read, &family, &["key"]).remove(0));
    refused(transaction.get_for_update_cf(&read, &family, "key"));
    refused(transaction.iter_cf(&read, &family));
    assert_eq!(transaction.tracked_keys(), 1);
    transaction.commit().unwrap();
    assert!(db.get("plain").unwrap().is_some());
    // The underlying database accepts them.
    db.put_cf_with_ts(&write, &family, "key", [1; 8], "1").unwrap();
}

#[test]
fn a_batch_with_an_index_gets_its_timestamps_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open_cf(directory.path(), &options(), &FAMILIES).unwrap();
    let (family, write) = (db.column_family("stamped").unwrap(), WriteOptions::new());
    db.put_cf_with_ts(&write, &family, "below", 1_u64.to_le_bytes(), "b").unwrap();
    let mut batch = WriteBatchWithIndex::new(&db, true);
    batch.put_cf(&family, "key", "1").unwrap();
    batch.merge_cf(&family, "below", "m").unwrap();
    batch.put("a plain key", "1").unwrap();
    invalid(db.write(&write, batch.write_batch()), "update_timestamps");
    let shown = |batch: &WriteBatchWithIndex| {
        let key = match batch.get_from_batch_cf(&family, "key").unwrap() {
            InBatch::Value(value) => text(&value),
            other => panic!("{other:?}"),
        };
        let get = |at| batch.get_from_batch_and_db_cf(&db, &read_at(at), &family, "below").unwrap();
        let mut it = batch.iter_cf(&family).unwrap();
        it.seek_to_first();
        assert_eq!((it.entry().key, it.entry().value), (&b"below"[..], &b"m"[..]));
        (key, text(&get(0).unwrap()), text(&get(1).unwrap()))
    };
    let expected = ("1".to_owned(), "m".to_owned(), "b,m".to_owned());
    assert_eq!(shown(&batch), expected);
    let size = |id: u32| Some(if id == family.id() { 8 } else { 0 });
    invalid(batch.update_timestamps([1; 4], size), "a timestamp of 4 bytes");
    batch.update_timestamps(3_u64.to_le_bytes(), size).unwrap();
    assert_eq!(shown(&batch), expected, "what is read in the batch has no timestamps");
    db.write(&write, batch.write_batch()).unwrap();
    assert_eq!(found(&db, &family, "key", 3), some("1", 3));
    assert_eq!(found(&db, &family, "below", 3), some("b,m", 3));
    assert_eq!(found(&db, &family, "key", 2), None);

    // In a batch that is bound to no database, keys that name no family get room for a timestamp
    // per the batch's own comparator.
    let params = BatchParams { comparator: Comparator::BytewiseU64Ts, ..BatchParams::default() };
    let mut batch = WriteBatchWithIndex::with_params(params);
    batch.put("key", "2").unwrap();
    assert!(batch.write_batch().needs_timestamps());
    assert!(matches!(batch.get_from_batch("key").unwrap(), InBatch::Value(value) if &value[..] == b"2"));
    batch.update_timestamps(4_u64.to_le_bytes(), |_| Some(8)).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let options = Options::new().comparator(None, Comparator::BytewiseU64Ts);
    let db = Db::open(directory.path(), &options.db(|db| db.create_if_missing = true)).unwrap();
    db.write(&write, batch.write_batch()).unwrap();
    assert_eq!(found(&db, db.default_column_family(), "key", 4), some("2", 4));
}

/// Calls that name no family use a default column family with timestamps.
#[test]
fn the_default_family_may_have_timestamps() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::new().comparator(None, Comparator::BytewiseU64Ts);
    let options = options.db(|db| db.create_if_missing = true);
    let transactions = TransactionDbOptions::default();
    let db = TransactionDb::open(directory.path(), &options, &transactions).unwrap();
    let mut transaction = db.begin(&WriteOptions::new(), &TransactionOptions::default());
    transaction.set_read_timestamp_for_validation(1).unwrap();
    assert_eq!(transaction.get_for_update(&ReadOptions::new(), "key").unwrap(), None);
    transaction.put("key", "1").unwrap();
    assert!(transaction.get(&read_at(1), "key").unwrap().is_some());
    transaction.set_commit_timestamp(2).unwrap();
    transaction.commit().unwrap();
    assert_eq!(found(db.db(), db.db().default_column_family(), "key", 2), some("1", 2));
    refused(db.put("key", "2"));
}

/// A compaction drops a deletion from before `full_history_ts_low`, and nothing tells of it then.
#[test]
fn validation_at_a_timestamp_whose_history_is_given_up_is_refused() {
    for compacted in [false, true] {
        let setup = setup();
        setup.put("key", "old", 5);
        let mut removes = setup.begin();
        removes.delete_cf(&setup.family, "key").unwrap();
        removes.set_commit_timestamp(10).unwrap();
        removes.commit().unwrap();
        let db = setup.db.db();
        db.increase_full_history_ts_low(&setup.family, 20_u64.to_le_bytes()).unwrap();
        if compacted {
            db.flush_cfs(&FlushOptions::default(), &[&setup.family]).unwrap();
            let whole = CompactRangeOptions {
                bottommost_level_compaction: BottommostLevelCompaction::Force,
                ..CompactRangeOptions::default()
            };
            db.compact_range_cf(&whole, &setup.family, None, None).unwrap();
            assert_eq!(found(db, &setup.family, "key", u64::MAX), None);
        }
        for (read, kept) in [(7, false), (19, false), (20, true), (25, true)] {
            for asynchronous in [false, true] {
                let mut transaction = setup.begin();
                transaction.set_read_timestamp_for_validation(read).unwrap();
                let put = match asynchronous {
                    true => wait(transaction.put_cf_async(&setup.family, b"key", b"new")),
                    false => transaction.put_cf(&setup.family, "key", "new"),
                };
                if kept {
                    put.unwrap();
                } else {
                    invalid(put, "full_history_ts_low");
                    assert_eq!(transaction.tracked_keys(), 0, "a call that is refused locks nothing");
                    let options = ReadOptions::new();
                    let got = transaction.get_for_update_cf(&options, &setup.family, "key", true, true);
                    invalid(got, "full_history_ts_low");
                }
            }
        }
        assert!(setup.db.lock_status().is_empty());
    }
}
