//! RocksDB 7.8's own tool on a log with prepared, committed and rolled back transactions.

use karst_engine::{Options, WriteOptions};
use karst_testkit::rocksdb_tools::ldb;
use karst_txn::{TransactionDb, TransactionDbOptions, TransactionOptions};

/// RocksDB's replay of the log has the committed entries, numbers included: of keys written before,
/// by the commit, and after it.
#[test]
fn rocksdb_replays_the_phases_of_transactions() {
    let directory = tempfile::tempdir().unwrap();
    // Compat: this tool must be able to read the tables that recovery writes.
    let options = Options::new()
        .db(|db| db.create_if_missing = true)
        .column_families(|family| family.table_factory.block_based.format_version = 5);
    let db = TransactionDb::open(directory.path(), &options, &TransactionDbOptions::default()).unwrap();
    db.put("a", "before").unwrap();
    let begin = |name: &str| {
        let mut transaction = db.begin(&WriteOptions::new(), &TransactionOptions::default());
        transaction.set_name(name).unwrap();
        transaction
    };
    let (mut committed, mut rolled_back, mut open) =
        (begin("committed"), begin("rolled back"), begin("open"));
    for (transaction, key) in [(&mut committed, "a"), (&mut rolled_back, "b"), (&mut open, "c")] {
        transaction.put(key, "transaction").unwrap();
        transaction.put(format!("{key}{key}"), "transaction").unwrap();
        transaction.prepare().unwrap();
    }
    db.put("d", "between").unwrap();
    committed.commit().unwrap();
    rolled_back.rollback().unwrap();
    db.put("aa", "after").unwrap();
    drop((committed, rolled_back, open, db));
    let scanned = ldb(directory.path(), &["--try_load_options", "scan"], b"").unwrap();
    let expected = ["a : transaction", "aa : after", "d : between"];
    let lines: Vec<&str> = scanned.lines().filter(|line| line.contains(" : ")).collect();
    assert_eq!(lines, expected);

    // After a reopening the remaining transaction is in a new log, rolled back and prepared in one
    // record.
    let db = TransactionDb::open(directory.path(), &options, &TransactionDbOptions::default()).unwrap();
    db.get_transaction_by_name("open").unwrap().commit().unwrap();
    drop(db);
    let scanned = ldb(directory.path(), &["--try_load_options", "scan"], b"").unwrap();
    let lines: Vec<&str> = scanned.lines().filter(|line| line.contains(" : ")).collect();
    assert_eq!(
        lines,
        ["a : transaction", "aa : after", "c : transaction", "cc : transaction", "d : between"]
    );
}
