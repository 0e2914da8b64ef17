//! Column families whose keys have timestamps take part in no transaction yet: every operation of
//! either kind says so, and changes nothing.

use karst_engine::caller::{Caller, finish};
use karst_engine::format::Comparator;
use karst_engine::io::testing::foreign_block_on as wait;
use karst_engine::{
    ColumnFamily, Error, ErrorKind, Options, ReadOptions, TransactionHooks, WriteBatch, WriteOptions,
};
use karst_txn::{
    BatchParams, OptimisticTransactionDb, OptimisticTransactionDbOptions, OptimisticTransactionOptions,
    TransactionDb, TransactionDbOptions, TransactionOptions, WriteBatchWithIndex,
};

const FAMILIES: [&str; 2] = ["default", "stamped"];

fn options() -> Options {
    let options = Options::new().comparator(Some("stamped"), Comparator::BytewiseU64Ts).db(|db| {
        db.create_if_missing = true;
        db.create_missing_column_families = true;
    });
    options.set("merge_operator", "StringAppendOperator").unwrap()
}

#[track_caller]
fn refused<T>(outcome: Result<T, Error>) {
    let error = outcome.err().expect("it is refused");
    assert_eq!(error.kind(), ErrorKind::NotSupported, "{error}");
    assert!(error.to_string().contains("timestamps"), "{error}");
}

fn stamped(family: &ColumnFamily) -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.put_cf_with_ts(family, "key", [1; 8], "1").unwrap();
    batch
}

#[test]
fn transactions_that_lock_refuse_keys_with_timestamps() {
    let directory = tempfile::tempdir().unwrap();
    let db =
        TransactionDb::open_cf(directory.path(), &options(), &TransactionDbOptions::default(), &FAMILIES)
            .unwrap();
    let (read, write) = (ReadOptions::new(), WriteOptions::new());
    let family = db.db().column_family("stamped").unwrap();
    let mut transaction = db.begin(&write, &TransactionOptions::default());
    transaction.put("plain", "1").unwrap();
    refused(transaction.put_cf(&family, "key", "1"));
    refused(wait(transaction.put_cf_async(&family, b"key", b"1")));
    refused(transaction.put_untracked(&family, "key", "1"));
    refused(transaction.delete_cf(&family, "key"));
    refused(transaction.single_delete_cf(&family, "key"));
    refused(transaction.merge_cf(&family, "key", "1"));
    refused(transaction.get_cf(&read, &family, "key"));
    refused(transaction.multi_get_cf(&read, &family, &["key"]).remove(0));
    refused(transaction.get_for_update_cf(&read, &family, "key", true, true));
    refused(transaction.iter_cf(&read, &family));
    assert_eq!((transaction.tracked_keys(), db.lock_status().len()), (1, 1));
    transaction.commit().unwrap();

    refused(db.put_cf(&write, &family, "key", "1"));
    refused(db.delete_cf(&write, &family, "key"));
    refused(wait(db.merge_cf_async(&write, &family, b"key", b"1")));
    refused(db.write(&write, &stamped(&family)));
    refused(wait(db.write_async(&write, stamped(&family))));
    let hooks = TransactionHooks::of(db.db());
    refused(finish(hooks.prepare(Caller::Thread, &write, b"name", stamped(&family))));
    assert_eq!(db.lock_status().len(), 0);
    assert_eq!(db.get("plain").unwrap().as_deref(), Some(&b"1"[..]));
    let mut stored = db.db().internal_iter(&read, &family).unwrap();
    stored.seek_to_first().unwrap();
    assert!(!stored.valid(), "nothing was written");
}

#[test]
fn optimistic_transactions_and_batches_with_an_index_refuse_keys_with_timestamps() {
    let directory = tempfile::tempdir().unwrap();
    let transactions = OptimisticTransactionDbOptions::default();
    let db =
        OptimisticTransactionDb::open_cf(directory.path(), &options(), &transactions, &FAMILIES).unwrap();
    let (read, write) = (ReadOptions::new(), WriteOptions::new());
    let family = db.column_family("stamped").unwrap();
    let mut transaction = db.begin(&write, &OptimisticTransactionOptions::default());
    transaction.put("plain", "1").unwrap();
    refused(transaction.put_cf(&family, "key", "1"));
    refused(transaction.put_untracked(&family, "key", "1"));
    refused(transaction.delete_cf(&family, "key"));
    refused(transaction.single_delete_cf(&family, "key"));
    refused(transaction.merge_cf(&family, "key", "1"));
    refused(transaction.get_cf(&read, &family, "key"));
    refused(transaction.get_for_update_cf(&read, &family, "key"));
    refused(transaction.iter_cf(&read, &family));
    assert_eq!(transaction.tracked_keys(), 1);
    transaction.commit().unwrap();
    assert!(db.get("plain").unwrap().is_some());
    // The database beside its transactions takes them.
    db.put_cf_with_ts(&write, &family, "key", [1; 8], "1").unwrap();

    let mut batch = WriteBatchWithIndex::new(&db, true);
    refused(batch.put_cf(&family, "key", "1"));
    refused(batch.get_from_batch_cf(&family, "key"));
    assert!(batch.is_empty());
    let params = BatchParams { comparator: Comparator::BytewiseU64Ts, ..BatchParams::default() };
    refused(WriteBatchWithIndex::with_params(params).put("key", "1"));
}
