//! Bad input: batches that are truncated or corrupt, names that no transaction has or another one
//! has. Each is refused with an error that names the cause, leaves no lock, and changes nothing.

use karst_engine::caller::{Caller, finish};
use karst_engine::format::{ColumnFamilyId, Op};
use karst_engine::{ErrorKind, Options, ReadOptions, Result, TransactionHooks, WriteBatch, WriteOptions};
use karst_txn::{
    Transaction, TransactionDb, TransactionDbOptions, TransactionOptions, TransactionState, WritePolicy,
};
use std::path::Path;

const POLICIES: [WritePolicy; 2] = [WritePolicy::WriteCommitted, WritePolicy::WritePrepared];

/// Opens a database with lock timeouts of 0.
fn open(path: &Path, write_policy: WritePolicy) -> TransactionDb {
    let options = Options::new()
        .db(|db| {
            db.create_if_missing = true;
            db.create_missing_column_families = true;
        })
        .set("merge_operator", "uint64add")
        .unwrap();
    let transactions = TransactionDbOptions {
        transaction_lock_timeout: 0,
        default_lock_timeout: 0,
        write_policy,
        ..TransactionDbOptions::default()
    };
    TransactionDb::open_cf(path, &options, &transactions, &["default", "other"]).unwrap()
}

fn begin(db: &TransactionDb) -> Transaction {
    db.begin(&WriteOptions::new(), &TransactionOptions::default())
}

fn named(db: &TransactionDb, name: &str) -> Transaction {
    let mut transaction = begin(db);
    transaction.set_name(name).unwrap();
    transaction
}

fn kind<T>(outcome: Result<T>) -> Option<ErrorKind> {
    outcome.err().map(|error| error.kind())
}

fn is_empty(db: &TransactionDb) -> bool {
    let families = ["default", "other"].map(|name| db.db().column_family(name).unwrap());
    families.iter().all(|family| {
        let mut iterator = db.iter_cf(&ReadOptions::new(), family).unwrap();
        iterator.seek_to_first().unwrap();
        iterator.status().unwrap();
        !iterator.valid()
    })
}

/// Returns a batch with each kind of operation.
fn batch_of_all(db: &TransactionDb) -> WriteBatch {
    let other = db.db().column_family("other").unwrap();
    let mut batch = WriteBatch::new();
    batch.put("a", "1").unwrap();
    batch.put_cf(&other, "a", "x".repeat(200)).unwrap();
    batch.delete("b").unwrap();
    batch.single_delete_cf(&other, "c").unwrap();
    batch.put_log_data("a note").unwrap();
    batch.merge("d", 1u64.to_le_bytes()).unwrap();
    batch
}

#[test]
fn a_batch_that_ends_in_the_midst_is_refused_wherever_that_is() {
    for policy in POLICIES {
        let directory = tempfile::tempdir().unwrap();
        let db = open(directory.path(), policy);
        let whole = batch_of_all(&db).as_bytes().to_vec();
        let before = db.db().latest_sequence_number();
        let mut transaction = begin(&db);
        transaction.put("z", "1").unwrap();
        for cut in 0..whole.len() {
            let error = WriteBatch::from_bytes(whole[..cut].to_vec()).expect_err("it is cut");
            assert_eq!(error.kind(), ErrorKind::Corruption, "{cut}: {error}");
            assert!(error.to_string().contains("write batch, offset"), "{cut}: {error}");
        }
        // It does not decode with extra bytes, or with a header that counts more or fewer
        // operations.
        let with_more = [&whole[..], &[0xFF]].concat();
        assert_eq!(kind(WriteBatch::from_bytes(with_more)), Some(ErrorKind::Corruption));
        for count in [0, 4, 6, u32::MAX] {
            let mut counted = whole.clone();
            counted[8..12].copy_from_slice(&u32::to_le_bytes(count));
            assert_eq!(kind(WriteBatch::from_bytes(counted)), Some(ErrorKind::Corruption), "{count}");
        }
        assert_eq!(db.lock_status().len(), 1, "the transaction's own");
        assert!(is_empty(&db) && db.db().latest_sequence_number() == before);

        // A whole batch is written, with locks on its keys that conflict with the transaction's.
        let batch = WriteBatch::from_bytes(whole).unwrap();
        let mut holder = begin(&db);
        holder.get_for_update(&ReadOptions::new(), "d").unwrap();
        assert_eq!(kind(db.write(&WriteOptions::new(), &batch)), Some(ErrorKind::TimedOut));
        assert_eq!(db.lock_status().len(), 2, "what it had locked before it is free again");
        drop(holder);
        db.write(&WriteOptions::new(), &batch).unwrap();
        transaction.commit().unwrap();
        let one = 1u64.to_le_bytes();
        assert_eq!(db.get("d").unwrap().as_deref(), Some(&one[..]));
        assert_eq!(db.get("z").unwrap().as_deref(), Some(&b"1"[..]));
        assert!(db.lock_status().is_empty());
    }
}

/// Returns a batch that decodes, with this operation behind others.
fn batch_with(op: Op<'_>) -> Vec<u8> {
    let mut batch = WriteBatch::new();
    batch.put("a", "1").unwrap();
    batch.put("b", "1").unwrap();
    let mut bytes = batch.as_bytes().to_vec();
    op.encode(&mut |part| bytes.extend_from_slice(part));
    let count = 2 + u32::from(op.is_counted());
    bytes[8..12].copy_from_slice(&count.to_le_bytes());
    bytes
}

#[test]
fn a_batch_that_cannot_be_written_leaves_no_lock_and_nothing_of_itself() {
    for policy in POLICIES {
        let directory = tempfile::tempdir().unwrap();
        let db = open(directory.path(), policy);
        for marker in
            [Op::Commit { xid: b"one" }, Op::Rollback { xid: b"one" }, Op::EndPrepare { xid: b"one" }]
        {
            let refused = WriteBatch::from_bytes(batch_with(marker));
            assert_eq!(kind(refused), Some(ErrorKind::NotSupported), "{marker:?}");
        }
        let nobodys = Op::Put { cf: ColumnFamilyId(77), key: b"c", value: b"1" };
        let unmerged = Op::Merge { cf: ColumnFamilyId(77), key: b"c", operand: b"1" };
        let range = Op::DeleteRange { cf: ColumnFamilyId(0), begin: b"a", end: b"z" };
        let options = WriteOptions::new();
        let refusals = [
            (nobodys, ErrorKind::InvalidArgument),
            (unmerged, ErrorKind::InvalidArgument),
            (range, ErrorKind::NotSupported),
        ];
        for (op, refusal) in refusals {
            let batch = WriteBatch::from_bytes(batch_with(op)).unwrap();
            let before = db.db().latest_sequence_number();
            for options in [WriteOptions::new(), WriteOptions::unlogged()] {
                assert_eq!(kind(db.write(&options, &batch)), Some(refusal), "{op:?}");
                let task = db.write_async(&options, batch.clone());
                assert_eq!(kind(pollster::block_on(task)), Some(refusal), "{op:?}");
            }
            assert!(db.lock_status().is_empty(), "{op:?}");
            assert!(is_empty(&db) && db.db().latest_sequence_number() == before, "{op:?}");
            let prepared =
                finish(TransactionHooks::of(db.db()).prepare(Caller::Thread, &options, b"one", batch));
            match (policy, op) {
                // It is not inserted undecided, and its name stays free.
                (WritePolicy::WritePrepared, _) => assert_eq!(kind(prepared), Some(refusal), "{op:?}"),
                // A prepare that inserts nothing yet may name a family that is not open; it cannot
                // be committed.
                _ => {
                    prepared.unwrap();
                    if op != range {
                        let committed = finish(TransactionHooks::of(db.db()).commit_prepared(
                            Caller::Thread,
                            &options,
                            b"one",
                            None,
                        ));
                        assert_eq!(kind(committed), Some(refusal), "{op:?}");
                    }
                    finish(TransactionHooks::of(db.db()).rollback_prepared(Caller::Thread, &options, b"one"))
                        .unwrap();
                }
            }
            assert!(is_empty(&db) && db.lock_status().is_empty(), "{op:?}");
            assert!(db.get_all_prepared_transactions().is_empty());
        }
        let mut one = named(&db, "one");
        one.put("a", "1").unwrap();
        one.prepare().unwrap();
        one.commit().unwrap();
        drop((one, db));
        let db = open(directory.path(), policy);
        assert_eq!((db.db().log_damage(), db.get("a").unwrap().is_some()), (None, true));
    }
}

#[test]
fn who_is_not_prepared_is_not_decided() {
    for policy in POLICIES {
        let directory = tempfile::tempdir().unwrap();
        let db = open(directory.path(), policy);
        let options = WriteOptions::new();
        let decide = |name: &[u8]| {
            [
                finish(TransactionHooks::of(db.db()).commit_prepared(Caller::Thread, &options, name, None)),
                finish(TransactionHooks::of(db.db()).rollback_prepared(Caller::Thread, &options, name)),
                pollster::block_on(TransactionHooks::of(db.db()).commit_prepared(
                    Caller::Task,
                    &options,
                    name,
                    None,
                )),
                pollster::block_on(TransactionHooks::of(db.db()).rollback_prepared(
                    Caller::Task,
                    &options,
                    name,
                )),
                db.get_transaction_by_name(name).map(drop),
            ]
            .map(kind)
        };
        let missing = [Some(ErrorKind::NotFound); 5];
        let before = db.db().latest_sequence_number();
        assert_eq!(decide(b"nobody"), missing);
        assert_eq!(decide(b""), missing);
        assert_eq!(decide(&[0xFF; 600]), missing);
        let mut one = named(&db, "one");
        one.put("a", "1").unwrap();
        let mut in_hand = missing;
        in_hand[4] = Some(ErrorKind::Busy);
        assert_eq!(decide(b"one"), in_hand, "it has a name, and is not prepared");
        assert_eq!(db.db().latest_sequence_number(), before);
        one.prepare().unwrap();
        assert_eq!(decide(b"on"), missing);
        assert_eq!(decide(b"one\0"), missing);
        one.commit().unwrap();
        assert_eq!(decide(b"one"), missing, "it was committed");
        let mut two = named(&db, "two");
        two.put("b", "1").unwrap();
        two.prepare().unwrap();
        two.rollback().unwrap();
        assert_eq!(decide(b"two"), missing, "it was rolled back");
        assert!(db.lock_status().is_empty() && db.get_all_prepared_transactions().is_empty());

        // Another caller decides it: the handle's calls fail, and end nothing.
        let mut three = named(&db, "three");
        three.put("c", "1").unwrap();
        three.prepare().unwrap();
        finish(TransactionHooks::of(db.db()).commit_prepared(Caller::Thread, &options, b"three", None))
            .unwrap();
        assert_eq!(kind(three.rollback()), Some(ErrorKind::NotFound));
        assert_eq!(kind(three.commit()), Some(ErrorKind::NotFound));
        assert_eq!(kind(pollster::block_on(three.rollback_async())), Some(ErrorKind::NotFound));
        assert_eq!(kind(pollster::block_on(three.commit_async())), Some(ErrorKind::NotFound));
        assert_eq!(three.state(), Some(TransactionState::Prepared));
        let present = |db: &TransactionDb| ["a", "b", "c"].map(|key| db.get(key).unwrap().is_some());
        assert_eq!(present(&db), [true, false, true]);
        drop((one, two, three, db));
        let db = open(directory.path(), policy);
        assert_eq!(present(&db), [true, false, true]);
        assert!(db.lock_status().is_empty() && db.get_all_prepared_transactions().is_empty());
    }
}

#[test]
fn the_name_of_a_recovered_transaction_is_its_own_until_it_is_decided() {
    for policy in POLICIES {
        for rolled_back in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            {
                let db = open(directory.path(), policy);
                let mut one = named(&db, "one");
                one.put("a", "old").unwrap();
                one.prepare().unwrap();
            }
            let db = open(directory.path(), policy);
            let mut namesake = begin(&db);
            namesake.put("b", "new").unwrap();
            let taken = Some(ErrorKind::InvalidArgument);
            assert_eq!(kind(namesake.set_name("one")), taken, "nobody has its handle");
            assert_eq!(kind(namesake.prepare()), taken);
            assert_eq!(namesake.name(), None);
            let mut one = db.get_transaction_by_name("one").unwrap();
            assert_eq!(kind(namesake.set_name("one")), taken, "somebody has its handle");
            assert_eq!(kind(one.set_name("two")), taken, "it has a name, and is prepared");
            // A refused name does not end with the transaction that asked for it.
            let mut another = begin(&db);
            assert_eq!(kind(another.set_name("one")), taken);
            drop(another);
            assert_eq!(kind(namesake.set_name("one")), taken);
            assert_eq!(one.name(), Some(&b"one"[..]));
            if rolled_back {
                one.rollback().unwrap();
            } else {
                one.commit().unwrap();
            }
            namesake.set_name("one").unwrap();
            namesake.prepare().unwrap();
            drop((one, namesake, db));
            let db = open(directory.path(), policy);
            let mut namesake = db.get_transaction_by_name("one").unwrap();
            assert_eq!(db.lock_status().len(), 1);
            namesake.commit().unwrap();
            let a = db.get("a").unwrap();
            assert_eq!(a.as_deref(), (!rolled_back).then_some(&b"old"[..]));
            assert_eq!(db.get("b").unwrap().as_deref(), Some(&b"new"[..]));
        }
    }
}
