//! Every public call of transactions, and of their databases, fails with `Closed` once the database
//! is closed. The lists below are compared with the sources.

use karst_engine::io::testing::foreign_block_on as wait;
use karst_engine::{
    ColumnFamily, Error, ErrorKind, Options, ReadOptions, Result, Snapshot, WriteBatch, WriteOptions,
};
use karst_txn::{
    BatchDbIterator, OptimisticTransaction, OptimisticTransactionDb, OptimisticTransactionDbOptions,
    OptimisticTransactionOptions, Transaction, TransactionDb, TransactionDbOptions, TransactionOptions,
};
use std::collections::BTreeSet;
use std::path::Path;

/// Result of a call, reduced to its error.
trait Told {
    fn error(self) -> Option<Error>;
}

impl<T> Told for Result<T> {
    fn error(self) -> Option<Error> {
        self.err()
    }
}

impl<T> Told for Vec<Result<T>> {
    fn error(self) -> Option<Error> {
        assert_eq!(self.len(), 2, "one for each key");
        self.into_iter().map(Result::err).reduce(|a, b| a.and(b)).flatten()
    }
}

type Calls = Vec<(&'static str, Option<Error>)>;

macro_rules! calls {
    ($($name:ident $call:expr;)*) => { vec![$((stringify!($name), Told::error($call))),*] };
}

fn of_transaction_db(db: &TransactionDb, family: &ColumnFamily) -> Calls {
    let (read, write) = (ReadOptions::new(), WriteOptions::new());
    let (keys, of_keys) = (["a", "b"], [family, family]);
    let mut batch = WriteBatch::new();
    batch.put("locked", "1").unwrap();
    calls! {
        get_transaction_by_name db.get_transaction_by_name("parked");
        write db.write(&write, &batch);
        write_async wait(db.write_async(&write, batch.clone()));
        get db.get("a");
        get_cf db.get_cf(&read, family, "a");
        get_async wait(db.get_async(b"a"));
        get_cf_async wait(db.get_cf_async(&read, family, b"a"));
        multi_get db.multi_get(&keys);
        multi_get_cf db.multi_get_cf(&read, family, &keys);
        multi_get_cfs db.multi_get_cfs(&read, &of_keys, &keys);
        multi_get_async wait(db.multi_get_async(&keys));
        multi_get_cf_async wait(db.multi_get_cf_async(&read, family, &keys));
        multi_get_cfs_async wait(db.multi_get_cfs_async(&read, &of_keys, &keys));
        iter db.iter(&read);
        iter_cf db.iter_cf(&read, family);
        put db.put("locked", "1");
        put_cf db.put_cf(&write, family, "locked", "1");
        put_async wait(db.put_async(b"locked", b"1"));
        put_cf_async wait(db.put_cf_async(&write, family, b"locked", b"1"));
        delete db.delete("locked");
        delete_cf db.delete_cf(&write, family, "locked");
        delete_async wait(db.delete_async(b"locked"));
        delete_cf_async wait(db.delete_cf_async(&write, family, b"locked"));
        single_delete db.single_delete("locked");
        single_delete_cf db.single_delete_cf(&write, family, "locked");
        single_delete_async wait(db.single_delete_async(b"locked"));
        single_delete_cf_async wait(db.single_delete_cf_async(&write, family, b"locked"));
        merge db.merge("locked", "1");
        merge_cf db.merge_cf(&write, family, "locked", "1");
        merge_async wait(db.merge_async(b"locked", b"1"));
        merge_cf_async wait(db.merge_cf_async(&write, family, b"locked", b"1"));
    }
}

const OTHERS_OF_TRANSACTION_DB: &[&str] = &[
    "open",
    "open_cf",
    "get_all_prepared_transactions",
    "begin",
    "db",
    "lock_status",
    "get_deadlock_info_buffer",
    "set_deadlock_info_buffer_size",
    "snapshot",
];

fn of_transaction(it: &mut Transaction, family: &ColumnFamily, snapshot: &Snapshot) -> Calls {
    let read = ReadOptions::new();
    let (keys, of_keys) = (["a", "b"], [family, family]);
    calls! {
        set_lock_timeout it.set_lock_timeout(5);
        set_name it.set_name("other");
        set_read_timestamp_for_validation it.set_read_timestamp_for_validation(1);
        set_commit_timestamp it.set_commit_timestamp(2);
        set_snapshot it.set_snapshot();
        set_snapshot_to it.set_snapshot_to(snapshot.clone());
        set_snapshot_on_next_operation it.set_snapshot_on_next_operation();
        get it.get(&read, "mine");
        get_async wait(it.get_async(&read, b"mine"));
        get_cf it.get_cf(&read, family, "mine");
        get_cf_async wait(it.get_cf_async(&read, family, b"mine"));
        multi_get it.multi_get(&read, &keys);
        multi_get_async wait(it.multi_get_async(&read, &keys));
        multi_get_cf it.multi_get_cf(&read, family, &keys);
        multi_get_cf_async wait(it.multi_get_cf_async(&read, family, &keys));
        multi_get_cfs it.multi_get_cfs(&read, &of_keys, &keys);
        multi_get_cfs_async wait(it.multi_get_cfs_async(&read, &of_keys, &keys));
        get_for_update it.get_for_update(&read, "mine");
        get_for_update_async wait(it.get_for_update_async(&read, b"mine"));
        get_for_update_cf it.get_for_update_cf(&read, family, "mine", true, true);
        get_for_update_cf_async wait(it.get_for_update_cf_async(&read, family, b"mine", true, true));
        iter_cf it.iter_cf(&read, family);
        iter it.iter(&read);
        set_save_point it.set_save_point();
        rollback_to_save_point it.rollback_to_save_point();
        pop_save_point it.pop_save_point();
        put_log_data it.put_log_data("note");
        put it.put("mine", "1");
        put_async wait(it.put_async(b"mine", b"1"));
        put_cf it.put_cf(family, "mine", "1");
        put_cf_async wait(it.put_cf_async(family, b"mine", b"1"));
        put_untracked it.put_untracked(family, "mine", "1");
        put_untracked_async wait(it.put_untracked_async(family, b"mine", b"1"));
        delete it.delete("mine");
        delete_async wait(it.delete_async(b"mine"));
        delete_cf it.delete_cf(family, "mine");
        delete_cf_async wait(it.delete_cf_async(family, b"mine"));
        delete_untracked it.delete_untracked(family, "mine");
        delete_untracked_async wait(it.delete_untracked_async(family, b"mine"));
        single_delete it.single_delete("mine");
        single_delete_async wait(it.single_delete_async(b"mine"));
        single_delete_cf it.single_delete_cf(family, "mine");
        single_delete_cf_async wait(it.single_delete_cf_async(family, b"mine"));
        single_delete_untracked it.single_delete_untracked(family, "mine");
        single_delete_untracked_async wait(it.single_delete_untracked_async(family, b"mine"));
        merge it.merge("mine", "1");
        merge_async wait(it.merge_async(b"mine", b"1"));
        merge_cf it.merge_cf(family, "mine", "1");
        merge_cf_async wait(it.merge_cf_async(family, b"mine", b"1"));
        merge_untracked it.merge_untracked(family, "mine", "1");
        merge_untracked_async wait(it.merge_untracked_async(family, b"mine", b"1"));
        prepare it.prepare();
        prepare_async wait(it.prepare_async());
        commit it.commit();
        commit_async wait(it.commit_async());
        rollback it.rollback();
        rollback_async wait(it.rollback_async());
    }
}

const OTHERS_OF_TRANSACTION: &[&str] =
    &["id", "state", "name", "snapshot", "clear_snapshot", "write_batch", "tracked_keys", "commit_timestamp"];

fn of_optimistic_transaction(
    it: &mut OptimisticTransaction,
    family: &ColumnFamily,
    snapshot: &Snapshot,
) -> Calls {
    let read = ReadOptions::new();
    let (keys, of_keys) = (["a", "b"], [family, family]);
    calls! {
        set_snapshot it.set_snapshot();
        set_snapshot_to it.set_snapshot_to(snapshot.clone());
        set_snapshot_on_next_operation it.set_snapshot_on_next_operation();
        get it.get(&read, "mine");
        get_async wait(it.get_async(&read, b"mine"));
        get_cf it.get_cf(&read, family, "mine");
        get_cf_async wait(it.get_cf_async(&read, family, b"mine"));
        multi_get it.multi_get(&read, &keys);
        multi_get_async wait(it.multi_get_async(&read, &keys));
        multi_get_cf it.multi_get_cf(&read, family, &keys);
        multi_get_cf_async wait(it.multi_get_cf_async(&read, family, &keys));
        multi_get_cfs it.multi_get_cfs(&read, &of_keys, &keys);
        multi_get_cfs_async wait(it.multi_get_cfs_async(&read, &of_keys, &keys));
        get_for_update it.get_for_update(&read, "mine");
        get_for_update_async wait(it.get_for_update_async(&read, b"mine"));
        get_for_update_cf it.get_for_update_cf(&read, family, "mine");
        get_for_update_cf_async wait(it.get_for_update_cf_async(&read, family, b"mine"));
        iter_cf it.iter_cf(&read, family);
        iter it.iter(&read);
        set_save_point it.set_save_point();
        rollback_to_save_point it.rollback_to_save_point();
        pop_save_point it.pop_save_point();
        put_log_data it.put_log_data("note");
        put it.put("mine", "1");
        put_cf it.put_cf(family, "mine", "1");
        put_untracked it.put_untracked(family, "mine", "1");
        delete it.delete("mine");
        delete_cf it.delete_cf(family, "mine");
        delete_untracked it.delete_untracked(family, "mine");
        single_delete it.single_delete("mine");
        single_delete_cf it.single_delete_cf(family, "mine");
        single_delete_untracked it.single_delete_untracked(family, "mine");
        merge it.merge("mine", "1");
        merge_cf it.merge_cf(family, "mine", "1");
        merge_untracked it.merge_untracked(family, "mine", "1");
        commit it.commit();
        commit_async wait(it.commit_async());
        rollback it.rollback();
    }
}

const OTHERS_OF_OPTIMISTIC_TRANSACTION: &[&str] =
    &["snapshot", "clear_snapshot", "write_batch", "tracked_keys"];

/// A pending call, which returns its name and its error.
type Call = Box<dyn FnOnce() -> (&'static str, Option<Error>)>;

/// Calls of iterators that are at an entry.
fn of_iterators(new: &mut dyn FnMut() -> BatchDbIterator) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    macro_rules! moves {
        ($($name:ident |$it:ident| $call:expr;)*) => {
            $({
                let mut $it = new();
                calls.push(Box::new(move || (stringify!($name), Told::error($call))));
            })*
        };
    }
    moves! {
        seek_to_first |it| it.seek_to_first();
        seek_to_first_async |it| wait(it.seek_to_first_async());
        seek_to_last |it| it.seek_to_last();
        seek_to_last_async |it| wait(it.seek_to_last_async());
        seek |it| it.seek("a");
        seek_async |it| wait(it.seek_async(b"a"));
        seek_for_prev |it| it.seek_for_prev("a");
        seek_for_prev_async |it| wait(it.seek_for_prev_async(b"a"));
        next |it| it.next();
        next_async |it| wait(it.next_async());
        prev |it| it.prev();
        prev_async |it| wait(it.prev_async());
    }
    calls
}

/// Returns the public functions in sources of this crate, those made by macros included.
fn public_functions(sources: &[&str]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
    for source in sources {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(source);
        let text = std::fs::read_to_string(path).unwrap();
        for line in text.lines().map(str::trim_start) {
            let after = ["pub fn ", "pub async fn "].into_iter().find_map(|start| line.strip_prefix(start));
            found.extend(after.map(|rest| rest.chars().take_while(|c| is_name(*c)).collect::<String>()));
            // A line of names, all of one operation: `put put_cf put_untracked (value);`.
            if let Some((names, rest)) = line.split_once(" (")
                && names.contains(' ')
                && names.chars().all(|c| is_name(c) || c == ' ')
                && (rest.ends_with(");") || rest.contains("= |it, by|"))
            {
                found.extend(names.split(' ').map(str::to_owned));
            }
        }
    }
    found.remove("");
    assert!(found.len() > 10, "{sources:?} were not understood");
    found
}

fn check(of: &str, told: Calls, others: &[&str], sources: &[&str]) {
    for (name, error) in &told {
        let error = error.as_ref().unwrap_or_else(|| panic!("{of}, {name}: it went well"));
        assert_eq!(error.kind(), ErrorKind::Closed, "{of}, {name}: {error}");
    }
    let mut missing = public_functions(sources);
    missing.retain(|name| !told.iter().any(|told| told.0 == name) && !others.contains(&name.as_str()));
    assert!(missing.is_empty(), "public calls of {of} that are in no list of this test: {missing:?}");
}

fn options() -> Options {
    Options::new().db(|db| db.create_if_missing = true).set("merge_operator", "StringAppendOperator").unwrap()
}

#[test]
fn every_call_of_a_closed_transaction_database_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let db = TransactionDb::open(directory.path(), &options(), &TransactionDbOptions::default()).unwrap();
    let family = &db.db().default_column_family().clone();
    db.put("a", "1").unwrap();
    let begin = || db.begin(&WriteOptions::new(), &TransactionOptions::default());
    let mut parked = begin();
    parked.set_name("parked").unwrap();
    parked.put("of parked", "1").unwrap();
    parked.prepare().unwrap();
    drop(parked);
    let mut open = begin();
    open.put("locked", "1").unwrap();
    open.put("mine", "1").unwrap();
    open.set_save_point().unwrap();
    let mut prepared = begin();
    prepared.set_name("prepared").unwrap();
    prepared.put("prepared", "1").unwrap();
    prepared.prepare().unwrap();
    let iterators = of_iterators(&mut || {
        let mut iter = open.iter(&ReadOptions::new()).unwrap();
        iter.seek_to_first().unwrap();
        iter
    });
    let snapshot = db.snapshot();
    db.db().close().unwrap();
    let sources = ["pessimistic/db.rs", "pessimistic/reading.rs"];
    check("a transaction database", of_transaction_db(&db, family), OTHERS_OF_TRANSACTION_DB, &sources);
    let sources = ["pessimistic/transaction.rs", "pessimistic/ending.rs", "reads.rs"];
    for transaction in [&mut open, &mut prepared] {
        check(
            "a transaction",
            of_transaction(transaction, family, &snapshot),
            OTHERS_OF_TRANSACTION,
            &sources,
        );
    }
    let moves = iterators.into_iter().map(|call| call()).collect();
    let others = [
        "valid",
        "key",
        "value",
        "pinned_value",
        "timestamp",
        "status",
        "iter_with_base",
        "iter_with_base_cf",
        "iter_over",
    ];
    check("an iterator", moves, &others, &["batch/iter.rs"]);
    // Prepared transactions are recovered; others are gone with their locks.
    drop((open, prepared));
    assert_eq!(db.lock_status().len(), 2, "those of what is prepared");
    drop(db);
    let db = TransactionDb::open(directory.path(), &options(), &TransactionDbOptions::default()).unwrap();
    assert_eq!(db.get_all_prepared_transactions(), [&b"parked"[..], b"prepared"]);
    for key in ["mine", "locked", "prepared", "of parked"] {
        assert!(db.get(key).unwrap().is_none(), "{key}");
    }
    for name in ["parked", "prepared"] {
        db.get_transaction_by_name(name).unwrap().rollback().unwrap();
    }
}

#[test]
fn every_call_of_an_optimistic_transaction_says_so_once_its_database_is_closed() {
    let directory = tempfile::tempdir().unwrap();
    let db = OptimisticTransactionDb::open(
        directory.path(),
        &options(),
        &OptimisticTransactionDbOptions::default(),
    )
    .unwrap();
    let family = &db.default_column_family().clone();
    db.put("a", "1").unwrap();
    let mut open = db.begin(&WriteOptions::new(), &OptimisticTransactionOptions::default());
    open.put("mine", "1").unwrap();
    open.set_save_point().unwrap();
    let snapshot = db.snapshot();
    db.close().unwrap();
    let again = OptimisticTransactionDb::over(db.db().clone(), &OptimisticTransactionDbOptions::default());
    assert_eq!(again.err().map(|error| error.kind()), Some(ErrorKind::Closed));
    let sources = ["optimistic/transaction.rs", "reads.rs"];
    let told = of_optimistic_transaction(&mut open, family, &snapshot);
    check("an optimistic transaction", told, OTHERS_OF_OPTIMISTIC_TRANSACTION, &sources);
}
