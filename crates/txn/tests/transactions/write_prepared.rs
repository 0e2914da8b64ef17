//! The write policy WritePrepared: prepared entries are in the memtables, and invisible until they
//! are committed.

use karst_engine::format::{Comparator, UserComparator};
use karst_engine::{
    CompactFilesOptions, CompactRangeOptions, Db, DbIterator, ErrorKind, FlushOptions, Options, ReadOptions,
    Snapshot, WriteBatch, WriteOptions,
};
use karst_txn::{
    OptimisticTransactionDb, OptimisticTransactionDbOptions, Transaction, TransactionDb,
    TransactionDbOptions, TransactionOptions, TransactionState, WritePolicy,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

fn options() -> Options {
    Options::new()
        .db(|db| {
            db.create_if_missing = true;
            db.create_missing_column_families = true;
        })
        .column_families(|family| family.disable_auto_compactions = true)
        .set("merge_operator", "uint64add")
        .unwrap()
}

fn policy(write_policy: WritePolicy) -> TransactionDbOptions {
    TransactionDbOptions {
        transaction_lock_timeout: 0,
        default_lock_timeout: 0,
        write_policy,
        ..TransactionDbOptions::default()
    }
}

fn try_open(path: &Path) -> karst_engine::Result<TransactionDb> {
    TransactionDb::open_cf(path, &options(), &policy(WritePolicy::WritePrepared), &["default", "other"])
}

fn open(path: &Path) -> TransactionDb {
    try_open(path).unwrap()
}

fn named(db: &TransactionDb, name: &str) -> Transaction {
    let mut transaction = db.begin(&WriteOptions::new(), &TransactionOptions::default());
    transaction.set_name(name).unwrap();
    transaction
}

/// Returns a batch of one put.
fn putting(key: &str, value: &str) -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.put(key, value).unwrap();
    batch
}

fn kind<T>(outcome: Result<T, karst_engine::Error>) -> Option<ErrorKind> {
    outcome.err().map(|error| error.kind())
}

fn text(value: &[u8]) -> String {
    String::from_utf8(value.to_vec()).unwrap()
}

type Contents = BTreeMap<String, String>;

fn contents<const N: usize>(pairs: [(&str, &str); N]) -> Contents {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// Reads the default column family in every form, and checks that they agree.
fn all(db: &Db, snapshot: Option<&Snapshot>) -> Contents {
    let read = ReadOptions { snapshot: snapshot.cloned(), ..ReadOptions::new() };
    let mut found = Contents::new();
    let mut iterator = db.iter(&read).unwrap();
    iterator.seek_to_first().unwrap();
    while iterator.valid() {
        found.insert(text(iterator.key()), text(iterator.value()));
        iterator.next().unwrap();
    }
    iterator.status().unwrap();
    let mut backwards = Contents::new();
    iterator.seek_to_last().unwrap();
    while iterator.valid() {
        backwards.insert(text(iterator.key()), text(iterator.value()));
        iterator.prev().unwrap();
    }
    iterator.status().unwrap();
    assert_eq!(found, backwards);
    let keys: Vec<String> = ('a'..='h').map(String::from).collect();
    let expected: Vec<Option<String>> = keys.iter().map(|key| found.get(key).cloned()).collect();
    let gotten = |values: Vec<karst_engine::Result<Option<karst_engine::Value>>>| -> Vec<Option<String>> {
        values.into_iter().map(|value| value.unwrap().map(|value| text(&value))).collect()
    };
    let family = db.default_column_family();
    assert_eq!(gotten(keys.iter().map(|key| db.get_opt(&read, key)).collect()), expected);
    assert_eq!(gotten(db.multi_get_cf(&read, family, &keys)), expected);
    let families: Vec<_> = keys.iter().map(|_| family).collect();
    assert_eq!(gotten(db.multi_get_cfs(&read, &families, &keys)), expected);
    pollster::block_on(async {
        let mut one_by_one = Vec::new();
        for key in &keys {
            one_by_one.push(db.get_opt_async(&read, key.as_bytes()).await);
        }
        assert_eq!(gotten(one_by_one), expected);
        assert_eq!(gotten(db.multi_get_cf_async(&read, family, &keys).await), expected);
    });
    found
}

fn flush(db: &TransactionDb) {
    db.db().flush(&FlushOptions::default()).unwrap();
}

fn compact(db: &TransactionDb) {
    db.db().compact_range(&CompactRangeOptions::default(), None, None).unwrap();
}

/// Flushes and compactions between two phases.
const TREATMENTS: [fn(&TransactionDb); 3] = [
    |_| {},
    flush,
    |db| {
        flush(db);
        compact(db);
    },
];

#[test]
fn what_is_prepared_is_seen_from_its_commit_on_wherever_it_is() {
    for between in TREATMENTS {
        for behind in TREATMENTS {
            let directory = tempfile::tempdir().unwrap();
            let db = open(directory.path());
            db.put("a", "old").unwrap();
            db.put("b", "old").unwrap();
            db.put("d", "4").unwrap();
            flush(&db);
            let first = db.db().snapshot();
            let mut one = named(&db, "one");
            one.put("a", "new").unwrap();
            one.delete("b").unwrap();
            one.put("c", "new").unwrap();
            one.prepare().unwrap();
            db.put("d", "5").unwrap();
            let second = db.db().snapshot();
            between(&db);
            let old = contents([("a", "old"), ("b", "old"), ("d", "4")]);
            let meanwhile = contents([("a", "old"), ("b", "old"), ("d", "5")]);
            let new = contents([("a", "new"), ("c", "new"), ("d", "5")]);
            assert_eq!(all(db.db(), None), meanwhile);
            assert_eq!(one.get(&ReadOptions::new(), "a").unwrap().as_deref(), Some(&b"new"[..]));
            let mut iterator = db.db().iter(&ReadOptions::new()).unwrap();
            one.commit().unwrap();
            assert_eq!(all(db.db(), None), new);
            iterator.seek("a").unwrap();
            assert_eq!(iterator.value(), b"old", "an iterator changed");
            behind(&db);
            assert_eq!(all(db.db(), None), new);
            assert_eq!((all(db.db(), Some(&first)), all(db.db(), Some(&second))), (old, meanwhile));
            drop((first, second, iterator));
            behind(&db);
            assert_eq!(all(db.db(), None), new);
            drop((one, db));
            assert_eq!(all(open(directory.path()).db(), None), new);
        }
    }
}

/// The block of a table that ends with hidden entries of a key continues with the rest of the key
/// in the next block.
#[test]
fn what_is_hidden_fills_blocks_of_its_own() {
    for decide in [Transaction::commit, Transaction::rollback] {
        let directory = tempfile::tempdir().unwrap();
        let options = options().column_families(|family| family.table_factory.block_based.block_size = 1024);
        let db =
            TransactionDb::open(directory.path(), &options, &policy(WritePolicy::WritePrepared)).unwrap();
        let [old, new] = ["old", "new"].map(|text| text.repeat(1000));
        let [before, after] = [&old, &new].map(|a| contents([("a", &a[..]), ("b", &old[..])]));
        db.put("a", &old).unwrap();
        db.put("b", &old).unwrap();
        let mut one = named(&db, "one");
        one.put("a", &new).unwrap();
        one.prepare().unwrap();
        flush(&db);
        assert_eq!(all(db.db(), None), before);
        decide(&mut one).unwrap();
        let commits = one.state() == Some(TransactionState::Committed);
        for treat in TREATMENTS {
            treat(&db);
            assert_eq!(all(db.db(), None), if commits { after.clone() } else { before.clone() });
        }
    }
}

/// A key written many times in one undecided transaction is read at its older version, if the limit
/// of skipped entries allows, in either direction.
#[test]
fn entries_that_are_passed_over_are_limited_in_both_directions() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(directory.path());
    db.put("k", "old").unwrap();
    let mut one = named(&db, "one");
    (0..30).for_each(|n| one.put("k", n.to_string()).unwrap());
    one.prepare().unwrap();
    for (most, found) in [(25, None), (100, Some(&b"old"[..]))] {
        let read = ReadOptions { max_skippable_internal_keys: most, ..ReadOptions::new() };
        for seek in [DbIterator::seek_to_first, DbIterator::seek_to_last] {
            let mut iterator = db.db().iter(&read).unwrap();
            let outcome = seek(&mut iterator);
            assert_eq!(kind(outcome), found.is_none().then_some(ErrorKind::Incomplete), "at most {most}");
            assert_eq!(iterator.valid().then(|| iterator.value()), found, "at most {most}");
        }
    }
}

#[test]
fn a_rollback_brings_back_what_was_there() {
    for between in TREATMENTS {
        for behind in TREATMENTS {
            let directory = tempfile::tempdir().unwrap();
            let db = open(directory.path());
            let eight = |n: u64| n.to_le_bytes();
            for key in ["a", "b", "c"] {
                db.put(key, "old").unwrap();
            }
            db.merge("m", eight(4)).unwrap();
            let mut one = named(&db, "one");
            one.put("a", "new").unwrap();
            one.delete("b").unwrap();
            one.single_delete("c").unwrap();
            one.put("d", "new").unwrap();
            one.merge("m", eight(5)).unwrap();
            one.merge("n", eight(6)).unwrap();
            one.prepare().unwrap();
            between(&db);
            let snapshot = db.db().snapshot();
            one.rollback().unwrap();
            behind(&db);
            let check = |db: &TransactionDb, snapshot: Option<&Snapshot>| {
                let read = ReadOptions { snapshot: snapshot.cloned(), ..ReadOptions::new() };
                let get = |key: &str| db.db().get_opt(&read, key).unwrap().map(|value| value.to_vec());
                for key in ["a", "b", "c"] {
                    assert_eq!(get(key), Some(b"old".to_vec()), "{key}");
                }
                assert_eq!((get("d"), get("m"), get("n")), (None, Some(eight(4).to_vec()), None));
            };
            check(&db, None);
            check(&db, Some(&snapshot));
            drop(snapshot);
            assert!(db.lock_status().is_empty());
            behind(&db);
            check(&db, None);
            drop((one, db));
            let db = open(directory.path());
            check(&db, None);
            compact(&db);
            check(&db, None);
        }
    }
}

#[test]
fn a_key_that_is_written_twice_is_prepared_as_it_was_last() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(directory.path());
    let mut one = named(&db, "one");
    one.put("a", "1").unwrap();
    one.put("a", "2").unwrap();
    one.set_save_point().unwrap();
    one.put("b", "taken back").unwrap();
    one.put("a", "taken back").unwrap();
    one.rollback_to_save_point().unwrap();
    one.delete("a").unwrap();
    one.put("a", "3").unwrap();
    one.put("c", "1").unwrap();
    one.prepare().unwrap();
    assert!(all(db.db(), None).is_empty());
    db.put("d", "behind").unwrap();
    one.commit().unwrap();
    let expected = contents([("a", "3"), ("c", "1"), ("d", "behind")]);
    assert_eq!(all(db.db(), None), expected);
    let mut two = named(&db, "two");
    two.put("a", "4").unwrap();
    two.put("a", "5").unwrap();
    two.prepare().unwrap();
    flush(&db);
    drop((one, two, db));
    let db = open(directory.path());
    assert_eq!(all(db.db(), None), expected);
    let mut two = db.get_transaction_by_name("two").unwrap();
    two.rollback().unwrap();
    compact(&db);
    assert_eq!(all(db.db(), None), expected);
}

#[test]
fn prepared_transactions_are_decided_after_any_number_of_openings() {
    for between in TREATMENTS {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let other = |db: &TransactionDb| db.db().column_family("other").unwrap();
        {
            let db = open(path);
            db.put("a", "old").unwrap();
            for (name, key) in [("one", "a"), ("two", "b"), ("three", "c")] {
                let mut transaction = named(&db, name);
                transaction.put(key, name).unwrap();
                transaction.put(key, "new").unwrap();
                transaction.put_cf(&other(&db), key, name).unwrap();
                transaction.merge("m".to_owned() + name, 1u64.to_le_bytes()).unwrap();
                transaction.prepare().unwrap();
                between(&db);
            }
            db.put("d", "behind").unwrap();
        }
        let old = contents([("a", "old"), ("d", "behind")]);
        for _ in 0..3 {
            assert_eq!(all(&Db::open_read_only(path, &Options::new()).unwrap(), None), old);
            let db = open(path);
            assert_eq!(db.get_all_prepared_transactions().len(), 3);
            assert_eq!(all(db.db(), None), old);
            assert_eq!(kind(db.put("a", "others")), Some(ErrorKind::TimedOut));
            between(&db);
            assert_eq!(all(db.db(), None), old);
        }
        {
            let db = open(path);
            db.get_transaction_by_name("one").unwrap().commit().unwrap();
            db.get_transaction_by_name("two").unwrap().rollback().unwrap();
            between(&db);
        }
        let db = open(path);
        let mut three = db.get_transaction_by_name("three").unwrap();
        pollster::block_on(three.commit_async()).unwrap();
        let get = |key: &str| db.db().get(key).unwrap().map(|value| text(&value));
        assert_eq!((get("a").as_deref(), get("b"), get("c").as_deref()), (Some("new"), None, Some("new")));
        let count = |name: &str| db.db().get("m".to_owned() + name).unwrap().map(|value| value.to_vec());
        let once = Some(1u64.to_le_bytes().to_vec());
        assert_eq!((count("one"), count("two"), count("three")), (once.clone(), None, once));
        let of_other = |key: &str| {
            db.db().get_cf(&ReadOptions::new(), &other(&db), key).unwrap().map(|value| text(&value))
        };
        assert_eq!((of_other("a").as_deref(), of_other("b")), (Some("one"), None));
        compact(&db);
        assert_eq!((get("a").as_deref(), get("b"), get("c").as_deref()), (Some("new"), None, Some("new")));
        assert!(db.lock_status().is_empty());
    }
}

/// RocksDB has a commit cache of fixed size here, and keeps evicted entries for snapshots that need
/// them.
#[test]
fn very_many_old_snapshots_see_what_they_saw() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(directory.path());
    let mut taken: Vec<(Snapshot, Contents)> = Vec::new();
    let mut now = Contents::new();
    for round in 0..600 {
        let mut transaction = named(&db, &format!("{round}"));
        let key = char::from(b'a' + (round % 8) as u8).to_string();
        transaction.put(&key, round.to_string()).unwrap();
        taken.push((db.db().snapshot(), now.clone()));
        transaction.prepare().unwrap();
        taken.push((db.db().snapshot(), now.clone()));
        db.put("z", "so that there are numbers between").unwrap();
        now.insert("z".to_owned(), "so that there are numbers between".to_owned());
        taken.push((db.db().snapshot(), now.clone()));
        match round % 5 {
            0 => transaction.rollback().unwrap(),
            _ => {
                transaction.commit().unwrap();
                now.insert(key, round.to_string());
            }
        }
        if round % 150 == 99 {
            flush(&db);
        }
    }
    let check = |taken: &[(Snapshot, Contents)]| {
        for (snapshot, seen) in taken.iter().step_by(7) {
            assert_eq!(&all(db.db(), Some(snapshot)), seen);
        }
        assert_eq!(all(db.db(), None), now);
    };
    check(&taken);
    flush(&db);
    check(&taken);
    compact(&db);
    check(&taken);
    let kept: Vec<_> = taken.into_iter().skip(3).step_by(11).collect();
    compact(&db);
    check(&kept);
}

#[test]
fn a_write_that_was_prepared_before_a_snapshot_and_committed_behind_it_is_a_conflict() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(directory.path());
    for treatment in TREATMENTS {
        db.put("a", "old").unwrap();
        let mut one = named(&db, "one");
        one.put("a", "1").unwrap();
        one.prepare().unwrap();
        let with_snapshot = TransactionOptions { set_snapshot: true, ..TransactionOptions::default() };
        let mut two = db.begin(&WriteOptions::new(), &with_snapshot);
        one.commit().unwrap();
        treatment(&db);
        assert_eq!(kind(two.put("a", "lost update")), Some(ErrorKind::Busy));
        assert_eq!(kind(two.get_for_update(&ReadOptions::new(), "a")), Some(ErrorKind::Busy));
        two.put("b", "2").unwrap();
        // Without conflict checks, the last write wins.
        two.put_untracked(db.db().default_column_family(), "a", "2").unwrap();
        two.commit().unwrap();
        assert_eq!(db.db().get("a").unwrap().as_deref(), Some(&b"2"[..]));
    }
}

#[test]
fn write_skew_is_possible_with_plain_reads_and_not_with_reads_for_update() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(directory.path());
    let read = ReadOptions::new();
    for for_update in [false, true] {
        db.put("a", "on call").unwrap();
        db.put("b", "on call").unwrap();
        let (mut one, mut two) = (named(&db, "one"), named(&db, "two"));
        let others = |transaction: &mut Transaction, key: &str| match for_update {
            true => transaction.get_for_update(&read, key).map(drop),
            false => transaction.get(&read, key).map(drop),
        };
        others(&mut one, "b").unwrap();
        one.put("a", "off").unwrap();
        one.prepare().unwrap();
        let refused = others(&mut two, "a");
        assert_eq!(kind(refused), for_update.then_some(ErrorKind::TimedOut));
        if !for_update {
            two.put("b", "off").unwrap();
            two.prepare().unwrap();
            two.commit().unwrap();
        }
        one.commit().unwrap();
        let b = db.db().get("b").unwrap();
        assert_eq!(b.as_deref(), Some(if for_update { &b"on call"[..] } else { b"off" }));
    }
}

#[test]
fn a_policy_is_changed_only_when_nothing_is_undecided() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let families = ["default", "other"];
    let committed = |path: &Path| {
        TransactionDb::open_cf(path, &options(), &policy(WritePolicy::WriteCommitted), &families)
    };
    let mut one = named(&open(path), "one");
    one.put("a", "1").unwrap();
    one.prepare().unwrap();
    drop(one);
    let refused = committed(path).unwrap_err();
    assert!(refused.to_string().contains("WritePrepared"), "{refused}");
    let plain = options().db(|db| db.allow_2pc = false);
    assert_eq!(kind(Db::open_cf(path, &plain, &families)), Some(ErrorKind::NotSupported));
    let db = open(path);
    db.get_transaction_by_name("one").unwrap().commit().unwrap();
    drop(db);
    let db = committed(path).unwrap();
    assert_eq!(all(db.db(), None), contents([("a", "1")]));
    let mut two = named(&db, "two");
    two.put("a", "2").unwrap();
    two.prepare().unwrap();
    drop((two, db));
    let refused = try_open(path).unwrap_err();
    assert!(refused.to_string().contains("WriteCommitted"), "{refused}");
    let db = committed(path).unwrap();
    db.get_transaction_by_name("two").unwrap().commit().unwrap();
    db.put("b", "2").unwrap();
    drop(db);
    assert_eq!(all(open(path).db(), None), contents([("a", "2"), ("b", "2")]));
}

#[test]
fn ranges_are_not_removed_in_what_is_prepared() {
    let directory = tempfile::tempdir().unwrap();
    let transactions =
        TransactionDbOptions { skip_concurrency_control: true, ..policy(WritePolicy::WritePrepared) };
    let db = TransactionDb::open(directory.path(), &options(), &transactions).unwrap();
    db.put("a", "1").unwrap();
    let mut one = named(&db, "one");
    one.put("b", "1").unwrap();
    one.prepare().unwrap();
    let mut batch = WriteBatch::new();
    batch.delete_range("a", "b").unwrap();
    db.write(&WriteOptions::new(), &batch).unwrap();
    assert!(all(db.db(), None).is_empty());
    let refused = karst_engine::caller::finish(karst_engine::TransactionHooks::of(db.db()).prepare(
        karst_engine::caller::Caller::Thread,
        &WriteOptions::new(),
        b"range",
        batch,
    ));
    assert_eq!(kind(refused), Some(ErrorKind::NotSupported));
    one.commit().unwrap();
    assert_eq!(all(db.db(), None), contents([("b", "1")]));
}

/// Flushes the other column family only, so that the logs keep the default one's entries.
fn flush_other(db: &TransactionDb) {
    let other = db.db().column_family("other").unwrap();
    db.db().flush_cfs(&FlushOptions::default(), &[&other]).unwrap();
}

#[test]
fn logs_mean_the_same_to_whoever_opens_the_database() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let other = |db: &TransactionDb| db.db().column_family("other").unwrap();
    {
        let db = open(path);
        db.put("a", "old").unwrap();
        db.put("b", "old").unwrap();
        db.put("c", "old").unwrap();
        let mut rolled_back = named(&db, "rolled back");
        rolled_back.put("a", "never").unwrap();
        rolled_back.put("b", "never").unwrap();
        rolled_back.put("c", "never").unwrap();
        rolled_back.prepare().unwrap();
        // All writes of the rollback share one number, and later writes have larger ones.
        rolled_back.rollback().unwrap();
        db.put("b", "new").unwrap();
        db.put("c", "new").unwrap();
        db.put_cf(&WriteOptions::new(), &other(&db), "o", "1").unwrap();
        let mut committed = named(&db, "committed");
        committed.put("d", "1").unwrap();
        committed.put("e", "1").unwrap();
        committed.prepare().unwrap();
        committed.commit().unwrap();
        // The log ends in the commit.
        flush_other(&db);
        db.put("f", "behind").unwrap();
        let mut undecided = named(&db, "undecided");
        undecided.put("a", "undecided").unwrap();
        undecided.prepare().unwrap();
    }
    let pairs = [("a", "old"), ("b", "new"), ("c", "new"), ("d", "1"), ("e", "1"), ("f", "behind")];
    assert_eq!(all(&Db::open_read_only(path, &options()).unwrap(), None), contents(pairs));
    {
        let db = open(path);
        assert_eq!(all(db.db(), None), contents(pairs));
        db.get_transaction_by_name("undecided").unwrap().rollback().unwrap();
        db.put("a", "newer").unwrap();
    }
    let pairs = [("a", "newer"), ("b", "new"), ("c", "new"), ("d", "1"), ("e", "1"), ("f", "behind")];
    let families = ["default", "other"];
    let committed =
        TransactionDb::open_cf(path, &options(), &policy(WritePolicy::WriteCommitted), &families).unwrap();
    assert_eq!(all(committed.db(), None), contents(pairs));
}

#[test]
fn a_log_of_the_other_policy_may_end_in_a_commit_whose_section_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    {
        let families = ["default", "other"];
        let db = TransactionDb::open_cf(path, &options(), &policy(WritePolicy::WriteCommitted), &families)
            .unwrap();
        let other = db.db().column_family("other").unwrap();
        let mut one = named(&db, "one");
        one.put("a", "1").unwrap();
        one.put("b", "1").unwrap();
        one.put("c", "1").unwrap();
        one.prepare().unwrap();
        db.put_cf(&WriteOptions::new(), &other, "x", "flushed").unwrap();
        flush_other(&db);
        db.put_cf(&WriteOptions::new(), &other, "y", "1").unwrap();
        one.commit().unwrap();
        flush(&db);
        db.put_cf(&WriteOptions::new(), &other, "z", "1").unwrap();
    }
    let db = open(path);
    let other = db.db().column_family("other").unwrap();
    let get = |key: &str| db.db().get_cf(&ReadOptions::new(), &other, key).unwrap().map(|value| text(&value));
    assert_eq!((get("y").as_deref(), get("z").as_deref()), (Some("1"), Some("1")));
    assert_eq!(all(db.db(), None), contents([("a", "1"), ("b", "1"), ("c", "1")]));
}

/// Without locks, the larger number wins, wherever the entries are after a crash.
#[test]
fn an_older_entry_that_is_decided_late_is_replayed_below_a_newer_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let unlocked =
        TransactionDbOptions { skip_concurrency_control: true, ..policy(WritePolicy::WritePrepared) };
    let open = |bytes: usize| {
        let options = options().column_families(move |family| family.write_buffer_size = bytes);
        TransactionDb::open(path, &options, &unlocked).unwrap()
    };
    {
        let db = open(64 << 20);
        let mut one = named(&db, "one");
        one.put("a", "older").unwrap();
        one.prepare().unwrap();
        db.write(&WriteOptions::new(), &putting("a", "newer")).unwrap();
        for number in 0..300 {
            db.put(format!("b{number}"), "x".repeat(1000)).unwrap();
        }
        one.commit().unwrap();
        assert_eq!(db.db().get("a").unwrap().as_deref(), Some(&b"newer"[..]));
    }
    assert_eq!(open(64 << 10).db().get("a").unwrap().as_deref(), Some(&b"newer"[..]));
}

/// Compares letters without case.
#[derive(Debug)]
struct CaseBlind;

impl UserComparator for CaseBlind {
    fn name(&self) -> &str {
        "tests.CaseBlind"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        a.to_ascii_lowercase().cmp(&b.to_ascii_lowercase())
    }
}

#[test]
fn keys_that_the_comparator_holds_for_equal_are_rolled_back_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let open = || {
        let options = options().comparator(None, Comparator::Custom(Arc::new(CaseBlind)));
        TransactionDb::open(path, &options, &policy(WritePolicy::WritePrepared)).unwrap()
    };
    for rolled_back in [true, false] {
        {
            let db = open();
            db.put("a", "old").unwrap();
            let mut one = named(&db, "one");
            one.put("A", "1").unwrap();
            one.put("a", "2").unwrap();
            one.put("b", "2").unwrap();
            one.prepare().unwrap();
            if rolled_back {
                one.rollback().unwrap();
            } else {
                one.commit().unwrap();
            }
        }
        let db = open();
        let a = db.db().get("a").unwrap().map(|value| text(&value));
        assert_eq!(a.as_deref(), Some(if rolled_back { "old" } else { "2" }));
        assert_eq!(db.db().get("B").unwrap().is_none(), rolled_back);
    }
}

#[test]
fn two_prepared_transactions_that_wrote_one_key_without_locks_are_found_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    for write_policy in [WritePolicy::WriteCommitted, WritePolicy::WritePrepared] {
        let unlocked = TransactionOptions { skip_concurrency_control: true, ..TransactionOptions::default() };
        {
            let db = TransactionDb::open(path, &options(), &policy(write_policy)).unwrap();
            for name in ["one", "two"] {
                let mut transaction = db.begin(&WriteOptions::new(), &unlocked);
                transaction.set_name(name).unwrap();
                transaction.put("a", name).unwrap();
                transaction.prepare().unwrap();
            }
        }
        let transactions = TransactionDbOptions { max_num_locks: 1, ..policy(write_policy) };
        let db = TransactionDb::open(path, &options(), &transactions).unwrap();
        let locked = || kind(db.put("a", "others")) == Some(ErrorKind::TimedOut);
        assert!(locked());
        db.get_transaction_by_name("one").unwrap().commit().unwrap();
        assert!(locked(), "the other has it as well");
        db.get_transaction_by_name("two").unwrap().commit().unwrap();
        assert_eq!(all(db.db(), None), contents([("a", "two")]));
        assert!(!locked());
    }
}

/// A put that was rolled back does not interfere with a single deletion.
#[test]
fn a_single_deletion_does_not_uncover_what_was_rolled_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let db = open(path);
    for (before, present) in [("old", true), ("old", false)] {
        for at_once in [false, true] {
            if present {
                db.put("a", before).unwrap();
            }
            let mut one = named(&db, &format!("{present} {at_once}"));
            one.put("a", "never").unwrap();
            one.prepare().unwrap();
            if !at_once {
                flush(&db);
            }
            one.rollback().unwrap();
            if !present {
                db.put("a", "once").unwrap();
            }
            db.single_delete("a").unwrap();
            // One table has the deletion and the entry that it deletes; another, which is not
            // compacted with it, has the older entries.
            flush(&db);
            assert!(all(db.db(), None).is_empty());
            db.put("a", "again").unwrap();
            flush(&db);
            db.single_delete("a").unwrap();
            flush(&db);
            assert!(all(db.db(), None).is_empty(), "{present} {at_once}");
            compact(&db);
            assert!(all(db.db(), None).is_empty(), "{present} {at_once}");
        }
    }
}

/// This also holds after a change of the policy: a single deletion must not meet the put that the
/// rollback restored, and leave the older one below it.
#[test]
fn a_single_deletion_under_another_policy_does_not_uncover_what_was_brought_back() {
    for (rolled_back, flushed) in
        [("single_delete", true), ("single_delete", false), ("put", true), ("put", false)]
    {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let db = open(path);
        db.put("a", "old").unwrap();
        compact(&db);
        let mut one = named(&db, "one");
        match rolled_back {
            "put" => one.put("a", "never").unwrap(),
            _ => one.single_delete("a").unwrap(),
        }
        one.prepare().unwrap();
        one.rollback().unwrap();
        db.put("0", "").unwrap();
        if flushed {
            flush(&db);
        }
        db.db().close().unwrap();
        drop((one, db));
        let db = Db::open_cf(path, &options(), &["default", "other"]).unwrap();
        db.single_delete("a").unwrap();
        // Overlapping tables are compacted rather than moved.
        db.put("0", "").unwrap();
        db.flush(&FlushOptions::default()).unwrap();
        assert_eq!(files(&db, |level| level > 1).len(), 1, "the put that was rolled back to is below");
        assert_eq!(db.get("a").unwrap().as_deref(), None);
        compact_top(&db);
        assert_eq!(db.get("a").unwrap().as_deref(), None, "{rolled_back}, flushed before: {flushed}");
    }
}

/// A put that hid the deletion of rolled back entries is removed by a single deletion; the rolled
/// back entries below both must stay hidden.
#[test]
fn a_single_deletion_under_another_policy_does_not_uncover_what_was_never_committed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let db = open(path);
    let mut one = named(&db, "one");
    one.put("a", "never").unwrap();
    one.prepare().unwrap();
    compact(&db);
    one.rollback().unwrap();
    // Overlapping tables are compacted rather than moved.
    db.put("0", "").unwrap();
    flush(&db);
    db.db().close().unwrap();
    drop((one, db));
    let db = Db::open_cf(path, &options(), &["default", "other"]).unwrap();
    let mut removing = WriteBatch::new();
    removing.single_delete("a").unwrap();
    // First the put hides the deletion that the rollback wrote, then the single deletion meets the
    // put.
    for (mut batch, value) in [(putting("a", "once"), Some("once")), (removing, None)] {
        batch.put("0", "").unwrap();
        db.write(&WriteOptions::new(), &batch).unwrap();
        db.flush(&FlushOptions::default()).unwrap();
        assert_eq!(files(&db, |level| level > 1).len(), 1, "what was rolled back is below");
        compact_top(&db);
        assert_eq!(db.get("a").unwrap().map(|value| text(&value)).as_deref(), value);
    }
}

/// Returns the numbers of the files in the levels that `wanted` selects.
fn files(db: &Db, wanted: impl Fn(u32) -> bool) -> Vec<u64> {
    let files = db.live_files().into_iter().filter(|file| file.level.is_some_and(&wanted));
    files.map(|file| file.number).collect()
}

/// Compacts levels 0 and 1 into one run of level 1, and leaves the levels below.
fn compact_top(db: &Db) {
    let top = files(db, |level| level <= 1);
    db.compact_files(&CompactFilesOptions::default(), db.default_column_family(), &top, 1).unwrap();
}

/// Each opening logs undecided sections anew; they must not be added again to families whose tables
/// have them.
#[test]
fn what_is_undecided_is_found_once_where_openings_keep_what_is_in_logs() {
    let directory = tempfile::tempdir().unwrap();
    let open = || {
        let options = options().db(|db| db.avoid_flush_during_recovery = true);
        TransactionDb::open(directory.path(), &options, &policy(WritePolicy::WritePrepared)).unwrap()
    };
    {
        let db = open();
        let mut one = named(&db, "one");
        one.merge("m", 1u64.to_le_bytes()).unwrap();
        one.prepare().unwrap();
    }
    {
        let db = open();
        flush(&db);
        db.put("in the log", "1").unwrap();
    }
    for _ in 0..2 {
        assert_eq!(open().db().get("m").unwrap(), None);
    }
    let db = open();
    db.get_transaction_by_name("one").unwrap().commit().unwrap();
    assert_eq!(db.db().get("m").unwrap().as_deref(), Some(&1u64.to_le_bytes()[..]));
}

/// A commit inserts no entries, so a conflict check by inserted keys would miss it.
#[test]
fn optimistic_transactions_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(directory.path());
    let over = OptimisticTransactionDb::over(db.db().clone(), &OptimisticTransactionDbOptions::default());
    assert_eq!(kind(over), Some(ErrorKind::NotSupported));
    assert_eq!(
        kind(karst_engine::TransactionHooks::of(db.db()).track_conflicts(16)),
        Some(ErrorKind::NotSupported)
    );
}

/// Compat: the database's option applies to batches only.
#[test]
fn transactions_and_single_keys_lock_where_batches_do_not() {
    for write_policy in [WritePolicy::WriteCommitted, WritePolicy::WritePrepared] {
        let directory = tempfile::tempdir().unwrap();
        let transactions = TransactionDbOptions { skip_concurrency_control: true, ..policy(write_policy) };
        let db = TransactionDb::open(directory.path(), &options(), &transactions).unwrap();
        let mut one = named(&db, "one");
        one.put("a", "1").unwrap();
        assert_eq!(kind(named(&db, "two").put("a", "2")), Some(ErrorKind::TimedOut));
        assert_eq!(kind(db.put("a", "plain")), Some(ErrorKind::TimedOut));
        assert_eq!(kind(pollster::block_on(db.put_async(b"a", b"plain"))), Some(ErrorKind::TimedOut));
        db.write(&WriteOptions::new(), &putting("a", "plain")).unwrap();
        pollster::block_on(db.write_async(&WriteOptions::new(), putting("a", "plain"))).unwrap();
        one.commit().unwrap();
        assert_eq!(all(db.db(), None), contents([("a", "1")]));
    }
}
