//! Every form of a call: plain and asynchronous, in the default column family and in another one,
//! with and without conflict checks. All have the same effect, which the keys identify.

use futures_core::Stream;
use karst_engine::{
    ColumnFamily, Direction, ErrorKind, FlushOptions, Options, ReadOptions, Result, Statistics, StatsLevel,
    Ticker, Value, WriteOptions,
};
use karst_txn::{
    BatchDbIterator, BatchEntryStream, OptimisticTransaction, OptimisticTransactionDb,
    OptimisticTransactionDbOptions, OptimisticTransactionOptions, Transaction, TransactionDb,
    TransactionDbOptions, TransactionOptions, WriteBatchWithIndex, WritePolicy,
};
use std::future::poll_fn;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;

const FAMILIES: [&str; 2] = ["default", "other"];
const POLICIES: [WritePolicy; 2] = [WritePolicy::WriteCommitted, WritePolicy::WritePrepared];

fn options() -> Options {
    Options::new()
        .db(|db| {
            db.create_if_missing = true;
            db.create_missing_column_families = true;
        })
        .set("merge_operator", "uint64add")
        .unwrap()
}

/// Opens a database with lock timeouts of 0.
fn open(path: &Path, write_policy: WritePolicy) -> TransactionDb {
    let transactions = TransactionDbOptions {
        transaction_lock_timeout: 0,
        default_lock_timeout: 0,
        write_policy,
        ..TransactionDbOptions::default()
    };
    TransactionDb::open_cf(path, &options(), &transactions, &FAMILIES).unwrap()
}

fn begin(db: &TransactionDb) -> Transaction {
    db.begin(&WriteOptions::new(), &TransactionOptions::default())
}

fn kind<T>(outcome: Result<T>) -> Option<ErrorKind> {
    outcome.err().map(|error| error.kind())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Put,
    Delete,
    SingleDelete,
    Merge,
}

use Change::*;

const CHANGES: [Change; 4] = [Put, Delete, SingleDelete, Merge];

/// Value before a change.
const BEFORE: u64 = 5;
/// Value or operand of a change.
const NEW: [u8; 8] = 3u64.to_le_bytes();

impl Change {
    /// Returns the value of a key after the change, if it was [`BEFORE`].
    fn makes_of_it(self) -> Option<u64> {
        match self {
            Put => Some(3),
            Merge => Some(BEFORE + 3),
            Delete | SingleDelete => None,
        }
    }
}

fn number(value: Option<Value>) -> Option<u64> {
    value.map(|value| u64::from_le_bytes(value[..].try_into().unwrap()))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Plain,
    PlainAsync,
    Cf,
    CfAsync,
    Untracked,
    UntrackedAsync,
}

use Form::*;

const FORMS: [Form; 6] = [Plain, PlainAsync, Cf, CfAsync, Untracked, UntrackedAsync];

impl Form {
    fn names_a_family(self) -> bool {
        !matches!(self, Plain | PlainAsync)
    }

    fn is_tracked(self) -> bool {
        !matches!(self, Untracked | UntrackedAsync)
    }
}

/// Iterates over each change in each form, with the numbers of the families it can name.
fn each_write() -> impl Iterator<Item = (Change, Form, usize)> {
    let forms = FORMS.into_iter().flat_map(|form| {
        let families = if form.names_a_family() { 0..2 } else { 0..1 };
        families.map(move |family| (form, family))
    });
    forms.flat_map(|(form, family)| CHANGES.map(|change| (change, form, family)))
}

async fn in_transaction(
    transaction: &mut Transaction,
    (change, form): (Change, Form),
    family: &ColumnFamily,
    key: &str,
) -> Result<()> {
    let bytes = key.as_bytes();
    match (change, form) {
        (Put, Plain) => transaction.put(key, NEW),
        (Put, PlainAsync) => transaction.put_async(bytes, &NEW).await,
        (Put, Cf) => transaction.put_cf(family, key, NEW),
        (Put, CfAsync) => transaction.put_cf_async(family, bytes, &NEW).await,
        (Put, Untracked) => transaction.put_untracked(family, key, NEW),
        (Put, UntrackedAsync) => transaction.put_untracked_async(family, bytes, &NEW).await,
        (Delete, Plain) => transaction.delete(key),
        (Delete, PlainAsync) => transaction.delete_async(bytes).await,
        (Delete, Cf) => transaction.delete_cf(family, key),
        (Delete, CfAsync) => transaction.delete_cf_async(family, bytes).await,
        (Delete, Untracked) => transaction.delete_untracked(family, key),
        (Delete, UntrackedAsync) => transaction.delete_untracked_async(family, bytes).await,
        (SingleDelete, Plain) => transaction.single_delete(key),
        (SingleDelete, PlainAsync) => transaction.single_delete_async(bytes).await,
        (SingleDelete, Cf) => transaction.single_delete_cf(family, key),
        (SingleDelete, CfAsync) => transaction.single_delete_cf_async(family, bytes).await,
        (SingleDelete, Untracked) => transaction.single_delete_untracked(family, key),
        (SingleDelete, UntrackedAsync) => transaction.single_delete_untracked_async(family, bytes).await,
        (Merge, Plain) => transaction.merge(key, NEW),
        (Merge, PlainAsync) => transaction.merge_async(bytes, &NEW).await,
        (Merge, Cf) => transaction.merge_cf(family, key, NEW),
        (Merge, CfAsync) => transaction.merge_cf_async(family, bytes, &NEW).await,
        (Merge, Untracked) => transaction.merge_untracked(family, key, NEW),
        (Merge, UntrackedAsync) => transaction.merge_untracked_async(family, bytes, &NEW).await,
    }
}

#[test]
fn every_form_of_a_write_locks_its_key_and_is_seen_after_the_commit() {
    for (policy, prepares) in POLICIES.into_iter().flat_map(|policy| [(policy, false), (policy, true)]) {
        let directory = tempfile::tempdir().unwrap();
        let db = open(directory.path(), policy);
        let families = FAMILIES.map(|name| db.db().column_family(name).unwrap());
        let read = ReadOptions::new();
        let now =
            |key: &str| families.each_ref().map(|family| number(db.db().get_cf(&read, family, key).unwrap()));
        for (change, form, family) in each_write() {
            let what = format!("{change:?} {form:?} {family}, {policy:?} {prepares}");
            let key = format!("{what} key");
            for family in &families {
                db.put_cf(&WriteOptions::new(), family, &key, BEFORE.to_le_bytes()).unwrap();
            }
            let write = (change, form);
            let mut holder = begin(&db);
            holder.get_for_update_cf(&read, &families[family], &key, false, true).unwrap();
            let mut transaction = begin(&db);
            let refused =
                pollster::block_on(in_transaction(&mut transaction, write, &families[family], &key));
            assert_eq!(kind(refused), Some(ErrorKind::TimedOut), "{what}: it is locked");
            drop(holder);
            pollster::block_on(in_transaction(&mut transaction, write, &families[family], &key)).unwrap();
            let held = db.lock_status();
            assert_eq!((held.len(), transaction.tracked_keys()), (1, 1), "{what}");
            assert!(held[0].exclusive && held[0].family == families[family].id(), "{what}");
            let seen = transaction.get_cf(&read, &families[family], &key).unwrap();
            assert_eq!(number(seen), change.makes_of_it(), "{what}");
            assert_eq!(now(&key), [Some(BEFORE); 2], "{what}: nobody else sees it");
            if prepares {
                transaction.set_name(&key).unwrap();
                transaction.prepare().unwrap();
                assert_eq!(now(&key), [Some(BEFORE); 2], "{what}: nobody else sees it");
            }
            transaction.commit().unwrap();
            let mut expected = [Some(BEFORE); 2];
            expected[family] = change.makes_of_it();
            assert_eq!(now(&key), expected, "{what}");
            assert!(db.lock_status().is_empty(), "{what}");
        }
    }
}

#[test]
fn every_form_but_the_untracked_ones_looks_at_who_wrote_since_the_snapshot() {
    for policy in POLICIES {
        let directory = tempfile::tempdir().unwrap();
        let db = open(directory.path(), policy);
        let families = FAMILIES.map(|name| db.db().column_family(name).unwrap());
        for (change, form, family) in each_write() {
            let what = format!("{change:?} {form:?} {family} {policy:?}");
            let with_snapshot = TransactionOptions { set_snapshot: true, ..TransactionOptions::default() };
            let mut transaction = db.begin(&WriteOptions::new(), &with_snapshot);
            db.put_cf(&WriteOptions::new(), &families[family], &what, BEFORE.to_le_bytes()).unwrap();
            let write = in_transaction(&mut transaction, (change, form), &families[family], &what);
            let outcome = kind(pollster::block_on(write));
            assert_eq!(outcome, form.is_tracked().then_some(ErrorKind::Busy), "{what}");
            assert_eq!(db.lock_status().is_empty(), form.is_tracked(), "{what}: it is locked all the same");
            transaction.commit().unwrap();
            let found = number(db.db().get_cf(&ReadOptions::new(), &families[family], &what).unwrap());
            let written = if form.is_tracked() { Some(BEFORE) } else { change.makes_of_it() };
            assert_eq!(found, written, "{what}");
        }
    }
}

async fn plainly(
    db: &TransactionDb,
    (change, form): (Change, Form),
    family: &ColumnFamily,
    key: &str,
) -> Result<()> {
    let (options, bytes) = (&WriteOptions::new(), key.as_bytes());
    match (change, form) {
        (Put, Plain) => db.put(key, NEW),
        (Put, PlainAsync) => db.put_async(bytes, &NEW).await,
        (Put, Cf) => db.put_cf(options, family, key, NEW),
        (Put, CfAsync) => db.put_cf_async(options, family, bytes, &NEW).await,
        (Delete, Plain) => db.delete(key),
        (Delete, PlainAsync) => db.delete_async(bytes).await,
        (Delete, Cf) => db.delete_cf(options, family, key),
        (Delete, CfAsync) => db.delete_cf_async(options, family, bytes).await,
        (SingleDelete, Plain) => db.single_delete(key),
        (SingleDelete, PlainAsync) => db.single_delete_async(bytes).await,
        (SingleDelete, Cf) => db.single_delete_cf(options, family, key),
        (SingleDelete, CfAsync) => db.single_delete_cf_async(options, family, bytes).await,
        (Merge, Plain) => db.merge(key, NEW),
        (Merge, PlainAsync) => db.merge_async(bytes, &NEW).await,
        (Merge, Cf) => db.merge_cf(options, family, key, NEW),
        (Merge, CfAsync) => db.merge_cf_async(options, family, bytes, &NEW).await,
        (_, Untracked | UntrackedAsync) => unreachable!("plain writes are not tracked"),
    }
}

#[test]
fn every_form_of_a_plain_write_asks_for_the_lock_on_its_key() {
    for policy in POLICIES {
        let directory = tempfile::tempdir().unwrap();
        let db = open(directory.path(), policy);
        let families = FAMILIES.map(|name| db.db().column_family(name).unwrap());
        let read = ReadOptions::new();
        for (change, form, family) in each_write().filter(|(_, form, _)| form.is_tracked()) {
            let key = format!("{change:?} {form:?} {family} {policy:?}");
            for family in &families {
                db.put_cf(&WriteOptions::new(), family, &key, BEFORE.to_le_bytes()).unwrap();
            }
            let write = || pollster::block_on(plainly(&db, (change, form), &families[family], &key));
            let mut transaction = begin(&db);
            transaction.get_for_update_cf(&read, &families[family], &key, false, true).unwrap();
            assert_eq!(kind(write()), Some(ErrorKind::TimedOut), "{key}: it is locked");
            drop(transaction);
            // A write to the other family is no conflict.
            let mut transaction = begin(&db);
            transaction.get_for_update_cf(&read, &families[1 - family], &key, true, true).unwrap();
            write().unwrap();
            drop(transaction);
            let mut expected = [Some(BEFORE); 2];
            expected[family] = change.makes_of_it();
            let found = families.each_ref().map(|family| number(db.get_cf(&read, family, &key).unwrap()));
            assert_eq!(found, expected, "{key}");
            assert!(db.lock_status().is_empty(), "{key}");
        }
    }
}

/// Returns the entries of an iterator, forward and backward, in both forms.
fn shown(iterator: &mut BatchDbIterator) -> Vec<(String, Vec<u8>)> {
    let entry = |iterator: &BatchDbIterator| {
        (String::from_utf8(iterator.key().to_vec()).unwrap(), iterator.value().to_vec())
    };
    let mut plain = Vec::new();
    iterator.seek_to_first().unwrap();
    while iterator.valid() {
        plain.push(entry(iterator));
        iterator.next().unwrap();
    }
    pollster::block_on(async {
        let (mut forward, mut backward) = (Vec::new(), Vec::new());
        iterator.seek_to_first_async().await.unwrap();
        while iterator.valid() {
            forward.push(entry(iterator));
            iterator.next_async().await.unwrap();
        }
        iterator.seek_to_last_async().await.unwrap();
        while iterator.valid() {
            backward.push(entry(iterator));
            iterator.prev_async().await.unwrap();
        }
        backward.reverse();
        assert_eq!((&forward, &backward), (&plain, &plain));
        for (key, value) in &plain {
            iterator.seek_async(key.as_bytes()).await.unwrap();
            assert_eq!(entry(iterator), (key.clone(), value.clone()));
            iterator.seek_for_prev_async(format!("{key}\0").as_bytes()).await.unwrap();
            assert_eq!(entry(iterator), (key.clone(), value.clone()));
        }
        iterator.seek_async(b"~").await.unwrap();
        assert!(!iterator.valid());
    });
    iterator.status().unwrap();
    plain
}

/// Fills each family, partly in tables and partly in memtables. The transaction overwrites some of
/// both.
fn filled(db: &karst_engine::Db, put: impl Fn(&ColumnFamily, &str, u64)) -> [ColumnFamily; 2] {
    let families = FAMILIES.map(|name| db.column_family(name).unwrap());
    for (family, first) in families.iter().zip([10, 20]) {
        put(family, "a", first);
        put(family, "b", first + 1);
        put(family, "c", first + 2);
    }
    db.flush_cfs(&FlushOptions::default(), &families.each_ref()).unwrap();
    for (family, first) in families.iter().zip([10, 20]) {
        put(family, "d", first + 3);
        put(family, "e", first + 4);
    }
    families
}

const KEYS: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];

/// Returns the values seen by a transaction that put 1 to "a", deleted "b" and "d", added 3 to "c",
/// and put 6 to "f", in a family that [was filled](filled) from `first` on.
fn seen(first: u64) -> [Option<u64>; 7] {
    [Some(1), None, Some(first + 2 + 3), None, Some(first + 4), Some(6), None]
}

fn entries(values: [Option<u64>; 7]) -> Vec<(String, Vec<u8>)> {
    let present = KEYS.into_iter().zip(values).filter_map(|(key, value)| Some((key, value?)));
    present.map(|(key, value)| (key.to_owned(), value.to_le_bytes().to_vec())).collect()
}

/// Returns every key in each family, alternating.
fn in_both(families: &[ColumnFamily; 2]) -> (Vec<&ColumnFamily>, Vec<&'static str>) {
    KEYS.into_iter().flat_map(|key| families.iter().map(move |family| (family, key))).unzip()
}

/// Returns the values found there, given those of each family.
fn in_turns(default: [Option<u64>; 7], other: [Option<u64>; 7]) -> Vec<Option<u64>> {
    default.into_iter().zip(other).flat_map(|(default, other)| [default, other]).collect()
}

fn numbers(values: Vec<Result<Option<Value>>>) -> Vec<Option<u64>> {
    values.into_iter().map(|value| number(value.unwrap())).collect()
}

/// Checks that every plain read of a transaction, of either kind, in every form shows its view.
macro_rules! reads_show {
    ($transaction:expr, $families:expr) => {{
        let (transaction, families, read) = ($transaction, $families, ReadOptions::new());
        for (key, expected) in KEYS.into_iter().zip(seen(10)) {
            let in_either_form = [
                transaction.get(&read, key),
                pollster::block_on(transaction.get_async(&read, key.as_bytes())),
            ];
            assert_eq!(in_either_form.map(|value| number(value.unwrap())), [expected; 2], "{key}");
        }
        assert_eq!(numbers(transaction.multi_get(&read, &KEYS)), seen(10));
        assert_eq!(numbers(pollster::block_on(transaction.multi_get_async(&read, &KEYS))), seen(10));
        let (of_each, keys) = in_both(&families);
        let both = in_turns(seen(10), seen(20));
        assert_eq!(numbers(transaction.multi_get_cfs(&read, &of_each, &keys)), both);
        let multi = pollster::block_on(transaction.multi_get_cfs_async(&read, &of_each, &keys));
        assert_eq!(numbers(multi), both);
        assert_eq!(shown(&mut transaction.iter(&read).unwrap()), entries(seen(10)));
        for (family, first) in families.iter().zip([10, 20]) {
            for (key, expected) in KEYS.into_iter().zip(seen(first)) {
                let in_either_form = [
                    transaction.get_cf(&read, family, key),
                    pollster::block_on(transaction.get_cf_async(&read, family, key.as_bytes())),
                ];
                assert_eq!(in_either_form.map(|value| number(value.unwrap())), [expected; 2], "{key}");
            }
            assert_eq!(numbers(transaction.multi_get_cf(&read, family, &KEYS)), seen(first));
            let multi = pollster::block_on(transaction.multi_get_cf_async(&read, family, &KEYS));
            assert_eq!(numbers(multi), seen(first));
            assert_eq!(shown(&mut transaction.iter_cf(&read, family).unwrap()), entries(seen(first)));
        }
    }};
}

#[test]
fn every_form_of_a_read_sees_the_transaction_over_the_database() {
    for (policy, prepares) in POLICIES.into_iter().flat_map(|policy| [(policy, false), (policy, true)]) {
        let directory = tempfile::tempdir().unwrap();
        let db = open(directory.path(), policy);
        let families = filled(db.db(), |family, key, value| {
            db.put_cf(&WriteOptions::new(), family, key, value.to_le_bytes()).unwrap();
        });
        let mut transaction = begin(&db);
        for family in &families {
            transaction.put_cf(family, "a", 1u64.to_le_bytes()).unwrap();
            transaction.delete_cf(family, "b").unwrap();
            transaction.merge_cf(family, "c", NEW).unwrap();
            transaction.single_delete_cf(family, "d").unwrap();
            transaction.put_cf(family, "f", 6u64.to_le_bytes()).unwrap();
        }
        let read = ReadOptions::new();
        if !prepares {
            let default = seen(10);
            for (key, expected) in KEYS.into_iter().zip(default) {
                let bytes = key.as_bytes();
                let family = &families[0];
                let got = pollster::block_on(async {
                    [
                        transaction.get_for_update(&read, key),
                        transaction.get_for_update_async(&read, bytes).await,
                        transaction.get_for_update_cf(&read, family, key, false, false),
                        transaction.get_for_update_cf_async(&read, family, bytes, false, false).await,
                    ]
                });
                assert_eq!(got.map(|value| number(value.unwrap())), [expected; 4], "{key}");
            }
            assert_eq!(transaction.tracked_keys(), 12, "what was read for update is locked");
        } else {
            transaction.set_name("prepared").unwrap();
            transaction.prepare().unwrap();
        }
        reads_show!(&transaction, &families);
        let ((of_each, keys), both) = (in_both(&families), in_turns(seen(10), seen(20)));

        // The batch of the transaction, read alone.
        let batch = transaction.write_batch().unwrap();
        assert_eq!(numbers(batch.multi_get_from_batch_and_db(db.db(), &read, &KEYS)), seen(10));
        let multi = batch.multi_get_from_batch_and_db_async(db.db(), &read, &KEYS);
        assert_eq!(numbers(pollster::block_on(multi)), seen(10));
        assert_eq!(numbers(batch.multi_get_from_batch_and_db_cfs(db.db(), &read, &of_each, &keys)), both);
        let multi = batch.multi_get_from_batch_and_db_cfs_async(db.db(), &read, &of_each, &keys);
        assert_eq!(numbers(pollster::block_on(multi)), both);
        for (key, expected) in KEYS.into_iter().zip(seen(10)) {
            let task = batch.get_from_batch_and_db_async(db.db(), &read, key.as_bytes());
            let in_either_form = [batch.get_from_batch_and_db(db.db(), &read, key), pollster::block_on(task)];
            assert_eq!(in_either_form.map(|value| number(value.unwrap())), [expected; 2], "{key}");
        }
        for (family, first) in families.iter().zip([10, 20]) {
            let multi = batch.multi_get_from_batch_and_db_cf(db.db(), &read, family, &KEYS);
            assert_eq!(numbers(multi), seen(first));
            let multi = batch.multi_get_from_batch_and_db_cf_async(db.db(), &read, family, &KEYS);
            assert_eq!(numbers(pollster::block_on(multi)), seen(first));
            for (key, expected) in KEYS.into_iter().zip(seen(first)) {
                let task = batch.get_from_batch_and_db_cf_async(db.db(), &read, family, key.as_bytes());
                let in_either_form =
                    [batch.get_from_batch_and_db_cf(db.db(), &read, family, key), pollster::block_on(task)];
                assert_eq!(in_either_form.map(|value| number(value.unwrap())), [expected; 2], "{key}");
            }
            let mut over = batch.iter_with_base_cf(db.db(), &read, family).unwrap();
            assert_eq!(shown(&mut over), entries(seen(first)));
        }
    }
}

#[test]
fn every_form_of_a_read_of_the_database_sees_what_is_committed() {
    for policy in POLICIES {
        let directory = tempfile::tempdir().unwrap();
        let db = open(directory.path(), policy);
        let families = filled(db.db(), |family, key, value| {
            db.put_cf(&WriteOptions::new(), family, key, value.to_le_bytes()).unwrap();
        });
        let (of_each, keys) = in_both(&families);
        let [default, other] = &families;
        let read = ReadOptions::new();
        let snapshot = db.snapshot();
        let mut transaction = begin(&db);
        transaction.put("a", 1u64.to_le_bytes()).unwrap();
        transaction.delete("b").unwrap();
        transaction.set_name("one").unwrap();
        transaction.prepare().unwrap();
        let old = [Some(10), Some(11), Some(12), Some(13), Some(14), None, None];
        let check = |expected: [Option<u64>; 7]| {
            assert_eq!(numbers(db.multi_get(&KEYS)), expected);
            assert_eq!(numbers(pollster::block_on(db.multi_get_async(&KEYS))), expected);
            for (key, expected) in KEYS.into_iter().zip(expected) {
                let in_either_form = [db.get(key), pollster::block_on(db.get_async(key.as_bytes()))];
                assert_eq!(in_either_form.map(|value| number(value.unwrap())), [expected; 2], "{key}");
            }
            let mut iterator = db.iter(&read).unwrap();
            let mut found = Vec::new();
            iterator.seek_to_first().unwrap();
            while iterator.valid() {
                let key = String::from_utf8(iterator.key().to_vec()).unwrap();
                found.push((key, iterator.value().to_vec()));
                iterator.next().unwrap();
            }
            assert_eq!(found, entries(expected));
        };
        check(old);
        transaction.commit().unwrap();
        check([Some(1), None, Some(12), Some(13), Some(14), None, None]);
        let at_snapshot = ReadOptions { snapshot: Some(snapshot), ..ReadOptions::new() };
        let not_written = [Some(20), Some(21), Some(22), Some(23), Some(24), None, None];
        for (options, family, expected) in [(&at_snapshot, default, old), (&read, other, not_written)] {
            for (key, expected) in KEYS.into_iter().zip(expected) {
                let task = db.get_cf_async(options, family, key.as_bytes());
                let in_either_form = [db.get_cf(options, family, key), pollster::block_on(task)];
                assert_eq!(in_either_form.map(|value| number(value.unwrap())), [expected; 2], "{key}");
            }
            assert_eq!(numbers(db.multi_get_cf(options, family, &KEYS)), expected);
            let multi = pollster::block_on(db.multi_get_cf_async(options, family, &KEYS));
            assert_eq!(numbers(multi), expected);
        }
        let both = in_turns(old, not_written);
        assert_eq!(numbers(db.multi_get_cfs(&at_snapshot, &of_each, &keys)), both);
        let multi = pollster::block_on(db.multi_get_cfs_async(&at_snapshot, &of_each, &keys));
        assert_eq!(numbers(multi), both);
        let mut iterator = db.iter_cf(&at_snapshot, default).unwrap();
        iterator.seek("b").unwrap();
        assert_eq!(iterator.value(), 11u64.to_le_bytes());
        let mut iterator = db.iter_cf(&read, other).unwrap();
        iterator.seek("b").unwrap();
        assert_eq!(iterator.value(), 21u64.to_le_bytes());
    }
}

async fn collected(stream: BatchEntryStream) -> Vec<(String, Vec<u8>)> {
    let (mut stream, mut found) = (pin!(stream), Vec::new());
    while let Some(entry) = poll_fn(|cx| stream.as_mut().poll_next(cx)).await {
        let (key, value) = entry.unwrap();
        found.push((String::from_utf8(key.into()).unwrap(), value.to_vec()));
    }
    found
}

#[test]
fn a_stream_shows_what_the_iterator_would_from_where_it_stands() {
    let directory = tempfile::tempdir().unwrap();
    let db = open_optimistic(directory.path());
    filled(&db, |family, key, value| {
        db.put_cf(&WriteOptions::new(), family, key, value.to_le_bytes()).unwrap();
    });
    let mut transaction = db.begin(&WriteOptions::new(), &OptimisticTransactionOptions::default());
    transaction.put("a", 1u64.to_le_bytes()).unwrap();
    transaction.delete("b").unwrap();
    transaction.merge("c", NEW).unwrap();
    transaction.single_delete("d").unwrap();
    transaction.put("f", 6u64.to_le_bytes()).unwrap();
    let iterator = || transaction.iter(&ReadOptions::new()).unwrap();
    let forward = entries(seen(10));
    let mut backward = forward.clone();
    backward.reverse();
    for (direction, all) in [(Direction::Forward, &forward), (Direction::Backward, &backward)] {
        let streamed =
            |iterator: BatchDbIterator| pollster::block_on(collected(iterator.into_stream(direction)));
        assert_eq!(&streamed(iterator()), all);
        for (at, (key, _)) in all.iter().enumerate() {
            let mut sent = iterator();
            sent.seek(key).unwrap();
            assert_eq!(streamed(sent), all[at..], "{direction:?} from {key}");
        }
        let mut beyond = iterator();
        beyond.seek("z").unwrap();
        assert_eq!(streamed(beyond), []);
    }
}

fn optimistically(
    transaction: &mut OptimisticTransaction,
    (change, form): (Change, Form),
    family: &ColumnFamily,
    key: &str,
) -> Option<Result<()>> {
    Some(match (change, form) {
        (Put, Plain) => transaction.put(key, NEW),
        (Put, Cf) => transaction.put_cf(family, key, NEW),
        (Put, Untracked) => transaction.put_untracked(family, key, NEW),
        (Delete, Plain) => transaction.delete(key),
        (Delete, Cf) => transaction.delete_cf(family, key),
        (Delete, Untracked) => transaction.delete_untracked(family, key),
        (SingleDelete, Plain) => transaction.single_delete(key),
        (SingleDelete, Cf) => transaction.single_delete_cf(family, key),
        (SingleDelete, Untracked) => transaction.single_delete_untracked(family, key),
        (Merge, Plain) => transaction.merge(key, NEW),
        (Merge, Cf) => transaction.merge_cf(family, key, NEW),
        (Merge, Untracked) => transaction.merge_untracked(family, key, NEW),
        // Never waits, so it has one form only.
        (_, PlainAsync | CfAsync | UntrackedAsync) => return None,
    })
}

fn open_optimistic(path: &Path) -> OptimisticTransactionDb {
    let transactions = OptimisticTransactionDbOptions::default();
    OptimisticTransactionDb::open_cf(path, &options(), &transactions, &FAMILIES).unwrap()
}

#[test]
fn every_form_of_an_optimistic_write_but_the_untracked_ones_fails_where_others_wrote() {
    let directory = tempfile::tempdir().unwrap();
    let db = open_optimistic(directory.path());
    let families = FAMILIES.map(|name| db.column_family(name).unwrap());
    let read = ReadOptions::new();
    for (change, form, family) in each_write() {
        // Another writer changes no key, the key in the other family, or the key.
        for others in [None, Some(1 - family), Some(family)] {
            let key = format!("{change:?} {form:?} {family} {others:?}");
            for family in &families {
                db.put_cf(&WriteOptions::new(), family, &key, BEFORE.to_le_bytes()).unwrap();
            }
            let mut transaction = db.begin(&WriteOptions::new(), &OptimisticTransactionOptions::default());
            let Some(written) = optimistically(&mut transaction, (change, form), &families[family], &key)
            else {
                continue;
            };
            written.unwrap();
            let seen = number(transaction.get_cf(&read, &families[family], &key).unwrap());
            assert_eq!(seen, change.makes_of_it(), "{key}");
            if let Some(others) = others {
                db.put_cf(&WriteOptions::new(), &families[others], &key, BEFORE.to_le_bytes()).unwrap();
            }
            let refused = form.is_tracked() && others == Some(family);
            assert_eq!(kind(transaction.commit()), refused.then_some(ErrorKind::Busy), "{key}");
            let mut expected = [Some(BEFORE); 2];
            if !refused {
                expected[family] = change.makes_of_it();
            }
            // Skipped, because a single deletion of a key that was put twice has no defined result.
            if change != SingleDelete || others != Some(family) {
                let found = families.each_ref().map(|family| number(db.get_cf(&read, family, &key).unwrap()));
                assert_eq!(found, expected, "{key}");
            }
        }
    }
}

#[test]
fn every_form_of_a_read_sees_the_optimistic_transaction_over_the_database() {
    let directory = tempfile::tempdir().unwrap();
    let db = open_optimistic(directory.path());
    let families = filled(&db, |family, key, value| {
        db.put_cf(&WriteOptions::new(), family, key, value.to_le_bytes()).unwrap();
    });
    let mut transaction = db.begin(&WriteOptions::new(), &OptimisticTransactionOptions::default());
    for family in &families {
        transaction.put_cf(family, "a", 1u64.to_le_bytes()).unwrap();
        transaction.delete_cf(family, "b").unwrap();
        transaction.merge_cf(family, "c", NEW).unwrap();
        transaction.single_delete_cf(family, "d").unwrap();
        transaction.put_cf(family, "f", 6u64.to_le_bytes()).unwrap();
    }
    let read = ReadOptions::new();
    reads_show!(&transaction, &families);
    assert_eq!(transaction.tracked_keys(), 10, "plain reads are none of the commit's business");
    transaction.commit().unwrap();
    let refused = transaction.multi_get_cf(&read, &families[0], &KEYS);
    assert!(refused.into_iter().all(|value| kind(value) == Some(ErrorKind::InvalidArgument)));
}

#[test]
fn every_form_of_an_optimistic_read_for_update_fails_the_commit_where_others_wrote() {
    let directory = tempfile::tempdir().unwrap();
    let db = open_optimistic(directory.path());
    let families = FAMILIES.map(|name| db.column_family(name).unwrap());
    let read = ReadOptions::new();
    for (form, family) in [(Plain, 0), (PlainAsync, 0), (Cf, 0), (Cf, 1), (CfAsync, 0), (CfAsync, 1)] {
        for others in [1 - family, family] {
            for family in &families {
                db.put_cf(&WriteOptions::new(), family, "a", BEFORE.to_le_bytes()).unwrap();
            }
            let mut transaction = db.begin(&WriteOptions::new(), &OptimisticTransactionOptions::default());
            let got = match form {
                Plain => transaction.get_for_update(&read, "a"),
                PlainAsync => pollster::block_on(transaction.get_for_update_async(&read, b"a")),
                Cf => transaction.get_for_update_cf(&read, &families[family], "a"),
                _ => pollster::block_on(transaction.get_for_update_cf_async(&read, &families[family], b"a")),
            };
            assert_eq!(number(got.unwrap()), Some(BEFORE));
            db.put_cf(&WriteOptions::new(), &families[others], "a", NEW).unwrap();
            let outcome = kind(transaction.commit());
            assert_eq!(outcome, (others == family).then_some(ErrorKind::Busy), "{form:?} {family} {others}");
        }
    }
}

#[test]
fn a_batch_with_its_index_is_ingested_whole_without_a_log() {
    let directory = tempfile::tempdir().unwrap();
    let options = options().statistics(Arc::new(Statistics::new(StatsLevel::ExceptTimers)));
    let transactions = TransactionDbOptions::default();
    let db = TransactionDb::open_cf(directory.path(), &options, &transactions, &FAMILIES).unwrap();
    let other = db.db().column_family("other").unwrap();
    let unlogged = WriteOptions { disable_wal: true, ..WriteOptions::new() };
    let of = |overwrite_key| {
        let mut batch = WriteBatchWithIndex::new(db.db(), overwrite_key);
        batch.put("a", 1u64.to_le_bytes()).unwrap();
        batch.merge("a", 2u64.to_le_bytes()).unwrap();
        batch.put_cf(&other, "b", "once").unwrap();
        batch.delete_cf(&other, "b").unwrap();
        batch.put_cf(&other, "c", "kept").unwrap();
        batch
    };
    for (batch, options) in [(of(true), WriteOptions::new()), (of(false), unlogged)] {
        assert_eq!(kind(batch.ingest(db.db(), &options)), Some(ErrorKind::NotSupported));
        let asynchronous = pollster::block_on(batch.ingest_async(db.db(), &options));
        assert_eq!(kind(asynchronous), Some(ErrorKind::NotSupported));
    }
    assert_eq!(db.db().latest_sequence_number(), 0);
    let wal = |db: &TransactionDb| db.db().statistics().ticker(Ticker::WalFileBytes);
    db.put("logged", 1u64.to_le_bytes()).unwrap();
    let logged = wal(&db);
    assert!(logged > 0);
    of(true).ingest(db.db(), &unlogged).unwrap();
    pollster::block_on(of(true).ingest_async(db.db(), &unlogged)).unwrap();
    assert_eq!((wal(&db), db.db().statistics().ticker(Ticker::NumberWbwiIngest)), (logged, 2));
    let seen = |db: &TransactionDb| {
        let (read, other) = (ReadOptions::new(), db.db().column_family("other").unwrap());
        let keys = [db.get("a"), db.get_cf(&read, &other, "b"), db.get_cf(&read, &other, "c")];
        keys.map(|value| value.unwrap().map(|value| value.to_vec()))
    };
    let all = [Some(3u64.to_le_bytes().to_vec()), None, Some(b"kept".to_vec())];
    assert_eq!(seen(&db), all);
    let families = [db.db().default_column_family(), &other];
    db.db().flush_cfs(&FlushOptions::default(), &families).unwrap();
    drop((db, other));
    assert_eq!(seen(&open(directory.path(), WritePolicy::WriteCommitted)), all);
}
