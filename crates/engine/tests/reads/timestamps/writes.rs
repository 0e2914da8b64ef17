//! Writes at timestamps: through every call, in batches, into the log and replayed from it, from
//! external tables; and refused writes.

use karst_engine::format::{ColumnFamilyId, Comparator, Op, UserComparator};
use karst_engine::io::testing::foreign_block_on as wait;
use karst_engine::io::{Env, MemoryFileSystem};
use karst_engine::{
    ColumnFamily, Db, Error, ErrorKind, FlushOptions, Options, ReadOptions, SstFileWriter, WriteBatch,
    WriteOptions,
};
use karst_format::write_batch;
use karst_testkit::rocksdb_tools::run;
use std::cmp::Ordering;
use std::path::Path;
use std::sync::Arc;

const PUT: u8 = 1;
const SINGLE_DELETION: u8 = 7;
const DELETION: u8 = 0x14;
const MERGE: u8 = 2;

/// An entry: key, timestamp, kind, value.
type Entry = (String, u64, u8, String);

fn entry(key: &str, timestamp: u64, kind: u8, value: &str) -> Entry {
    (key.to_owned(), timestamp, kind, value.to_owned())
}

fn ts(timestamp: u64) -> [u8; 8] {
    timestamp.to_le_bytes()
}

fn options(comparator: Comparator) -> Options {
    let options = Options::new().comparator(Some("stamped"), comparator).db(|db| {
        db.create_if_missing = true;
        db.create_missing_column_families = true;
    });
    options.set("merge_operator", "StringAppendOperator").unwrap()
}

fn open(path: &Path, options: &Options) -> Db {
    Db::open_cf(path, options, &["default", "stamped"]).unwrap()
}

/// A database in memory whose default column family has timestamps.
fn stamped_default() -> Db {
    let env = Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build();
    let options = Options::new().env(env).comparator(None, Comparator::BytewiseU64Ts);
    Db::open("/db", &options.db(|db| db.create_if_missing = true)).unwrap()
}

/// Returns all internal entries of the column family.
fn entries(db: &Db, family: &ColumnFamily) -> Vec<Entry> {
    let mut iter = db.internal_iter(&ReadOptions::new(), family).unwrap();
    iter.seek_to_first().unwrap();
    let mut all = Vec::new();
    while iter.valid() {
        let (user_key, trailer) = iter.key().split_at(iter.key().len() - 8);
        let (key, timestamp) = user_key.split_at(user_key.len() - 8);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let timestamp = u64::from_le_bytes(timestamp.try_into().unwrap());
        all.push((text(key), timestamp, trailer[0], text(iter.value())));
        iter.next().unwrap();
    }
    all
}

fn refused<T>(outcome: Result<T, Error>, kind: ErrorKind, what: &str) {
    let error = outcome.err().expect("it is refused");
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(what), "{error}");
}

/// Copies to another directory the files that a crash of the process would leave. None is removed
/// or renamed meanwhile.
fn copied(db: &Db, from: &Path, to: &Path) {
    db.disable_file_deletions().unwrap();
    std::fs::create_dir(to).unwrap();
    for found in std::fs::read_dir(from).unwrap() {
        let found = found.unwrap();
        if found.file_name() != "LOCK" {
            std::fs::copy(found.path(), to.join(found.file_name())).unwrap();
        }
    }
    db.enable_file_deletions().unwrap();
}

/// Returns the path of the newest log.
fn newest_log(path: &Path) -> std::path::PathBuf {
    let mut logs: Vec<_> = std::fs::read_dir(path).unwrap().map(|found| found.unwrap().path()).collect();
    logs.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
    logs.sort();
    logs.pop().unwrap()
}

#[test]
fn every_call_is_found_after_a_crash_and_in_the_tables_that_come_of_it() {
    for more in ["", "wal_compression=kZSTD", "recycle_log_file_num=2", "track_and_verify_wals=true"] {
        let directory = tempfile::tempdir().unwrap();
        let (path, copy) = (directory.path().join("db"), directory.path().join("copy"));
        let options = options(Comparator::BytewiseU64Ts).set_all(more).unwrap();
        let db = open(&path, &options);
        let write = WriteOptions::new();
        let family = db.column_family("stamped").unwrap();
        let mut expected = Vec::new();
        for round in 0..2 {
            let at = |n: u64| round * 100 + n;
            db.put("plain", "1").unwrap();
            db.put_cf_with_ts(&write, &family, "a", ts(at(1)), "one").unwrap();
            db.delete_cf_with_ts(&write, &family, "a", ts(at(2))).unwrap();
            db.single_delete_cf_with_ts(&write, &family, "a", ts(at(3))).unwrap();
            wait(db.put_cf_with_ts_async(&write, &family, b"b", &ts(at(4)), b"four")).unwrap();
            wait(db.delete_cf_with_ts_async(&write, &family, b"b", &ts(at(5)))).unwrap();
            wait(db.single_delete_cf_with_ts_async(&write, &family, b"b", &ts(at(6)))).unwrap();
            let mut batch = if round == 0 { WriteBatch::new() } else { WriteBatch::protected() };
            batch.put_cf_with_ts(&family, "c", ts(at(7)), "seven").unwrap();
            batch.put("plain", "2").unwrap();
            batch.merge_cf_with_ts(&family, "c", ts(at(8)), "eight").unwrap();
            batch.single_delete_cf_with_ts(&family, "c", ts(at(9))).unwrap();
            batch.delete_cf_with_ts(&family, "c", ts(at(10))).unwrap();
            db.write(&write, &batch).unwrap();
            expected.extend([
                entry("a", at(3), SINGLE_DELETION, ""),
                entry("a", at(2), DELETION, ""),
                entry("a", at(1), PUT, "one"),
                entry("b", at(6), SINGLE_DELETION, ""),
                entry("b", at(5), DELETION, ""),
                entry("b", at(4), PUT, "four"),
                entry("c", at(10), DELETION, ""),
                entry("c", at(9), SINGLE_DELETION, ""),
                entry("c", at(8), MERGE, "eight"),
                entry("c", at(7), PUT, "seven"),
            ]);
            if round == 0 {
                // A log that the flush begins repeats the record of the families' timestamp sizes.
                db.flush_cfs(&FlushOptions::default(), &[db.default_column_family()]).unwrap();
            }
        }
        // Keys ascend, and the timestamps of each key descend.
        expected.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
        assert_eq!(entries(&db, &family), expected, "{more}");
        copied(&db, &path, &copy);
        let recovered = open(&copy, &options);
        let of_copy = recovered.column_family("stamped").unwrap();
        assert_eq!(entries(&recovered, &of_copy), expected, "{more}");
        assert_eq!(recovered.get("plain").unwrap().as_deref(), Some(&b"2"[..]));
        recovered.close().unwrap();
        let again = open(&copy, &options);
        assert_eq!(entries(&again, &again.column_family("stamped").unwrap()), expected, "{more}");
    }
}

#[test]
fn the_default_column_family_may_have_timestamps() {
    let db = stamped_default();
    db.put_with_ts("a", ts(1), "one").unwrap();
    db.delete_with_ts("a", ts(2)).unwrap();
    db.single_delete_with_ts("a", ts(3)).unwrap();
    wait(db.put_with_ts_async(b"b", &ts(4), b"four")).unwrap();
    wait(db.delete_with_ts_async(b"b", &ts(5))).unwrap();
    wait(db.single_delete_with_ts_async(b"b", &ts(6))).unwrap();
    let expected = [
        entry("a", 3, SINGLE_DELETION, ""),
        entry("a", 2, DELETION, ""),
        entry("a", 1, PUT, "one"),
        entry("b", 6, SINGLE_DELETION, ""),
        entry("b", 5, DELETION, ""),
        entry("b", 4, PUT, "four"),
    ];
    assert_eq!(entries(&db, db.default_column_family()), expected);
    // A batch does not know that the default column family of its database has timestamps.
    let mut batch = WriteBatch::new();
    batch.put("eight bytes or more", "1").unwrap();
    refused(db.write(&WriteOptions::new(), &batch), ErrorKind::InvalidArgument, "timestamp is required");
    batch.clear();
    batch.delete_range("a", "b").unwrap();
    refused(db.write(&WriteOptions::new(), &batch), ErrorKind::NotSupported, "removing a range");
    batch.clear();
    batch.put_log_data("a note").unwrap();
    db.write(&WriteOptions::new(), &batch).unwrap();
    assert_eq!(entries(&db, db.default_column_family()), expected);
}

#[test]
fn a_timestamp_that_is_missing_or_of_another_size_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(&directory.path().join("db"), &options(Comparator::BytewiseU64Ts));
    let (write, plain) = (WriteOptions::new(), db.default_column_family().clone());
    let family = db.column_family("stamped").unwrap();
    let required = "a timestamp is required in column family \"stamped\"";
    let kind = ErrorKind::InvalidArgument;
    refused(db.put_cf(&write, &family, "key", "1"), kind, required);
    refused(db.delete_cf(&write, &family, "key"), kind, required);
    refused(db.single_delete_cf(&write, &family, "key"), kind, required);
    refused(db.merge_cf(&write, &family, "key", "1"), kind, required);
    refused(db.delete_range_cf(&write, &family, "a", "b"), kind, required);
    refused(wait(db.put_cf_async(&write, &family, b"key", b"1")), kind, required);

    let of_others = "those of column family \"stamped\" have 8";
    refused(db.put_cf_with_ts(&write, &family, "key", "short", "1"), kind, of_others);
    refused(db.delete_cf_with_ts(&write, &family, "key", [0; 9]), kind, of_others);
    let none = "column family \"default\" has no timestamps";
    refused(db.put_with_ts("key", ts(1), "1"), kind, none);
    refused(db.single_delete_cf_with_ts(&write, &plain, "key", ""), kind, none);

    let mut batch = WriteBatch::new();
    batch.put_cf(&plain, "key", "1").unwrap();
    let before = batch.as_bytes().to_vec();
    refused(batch.put_cf_with_ts(&family, "key", "short", "1"), kind, of_others);
    refused(batch.merge_cf_with_ts(&plain, "key", ts(1), "1"), kind, none);
    refused(batch.delete_range_cf(&family, "a", "b"), ErrorKind::NotSupported, "removing a range");
    refused(batch.put_entity(Some(&family), "key", &[(b"", b"1")]), kind, required);
    assert_eq!(batch.as_bytes(), before);
    assert!(!batch.needs_timestamps());
    assert_eq!(entries(&db, &family), []);
}

#[test]
fn a_batch_gets_its_timestamps_late_or_is_not_written() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(&directory.path().join("db"), &options(Comparator::BytewiseU64Ts));
    let (write, plain) = (WriteOptions::new(), db.default_column_family().clone());
    let family = db.column_family("stamped").unwrap();
    let size_of = |id| Some(if id == family.id() { 8 } else { 0 });
    for mut batch in [WriteBatch::new(), WriteBatch::protected()] {
        batch.put_cf(&plain, "key of many bytes", "1").unwrap();
        batch.set_save_point();
        batch.put_cf(&family, "a", "1").unwrap();
        batch.delete_cf(&family, "b").unwrap();
        assert!(batch.needs_timestamps());
        let unwritten = "without their timestamps";
        refused(db.write(&write, &batch), ErrorKind::InvalidArgument, unwritten);
        refused(wait(db.write_async(&write, &batch)), ErrorKind::InvalidArgument, unwritten);
        batch.rollback_to_save_point().unwrap();
        assert!(!batch.needs_timestamps());
        db.write(&write, &batch).unwrap();
        batch.merge_cf(&family, "c", "3").unwrap();
        batch.single_delete_cf(&family, "d").unwrap();
        batch.put_cf_with_ts(&family, "e", ts(5), "5").unwrap();
        refused(db.write(&write, &batch), ErrorKind::InvalidArgument, unwritten);
        refused(batch.update_timestamps([0; 4], size_of), ErrorKind::InvalidArgument, "of 4 bytes");
        batch.update_timestamps(ts(7), size_of).unwrap();
        db.write(&write, &batch).unwrap();
        // Writes the batch again, with a later timestamp.
        batch.update_timestamps(ts(9), size_of).unwrap();
        let protected = WriteOptions { protection_bytes_per_key: 8, ..WriteOptions::new() };
        db.write(&protected, &batch).unwrap();
    }
    let found = entries(&db, &family);
    // Each entry was written twice, by two batches.
    let once: Vec<_> = found.iter().step_by(2).cloned().collect();
    let twice: Vec<_> = found.iter().skip(1).step_by(2).cloned().collect();
    assert_eq!(once, twice);
    let expected = [
        entry("c", 9, MERGE, "3"),
        entry("c", 7, MERGE, "3"),
        entry("d", 9, SINGLE_DELETION, ""),
        entry("d", 7, SINGLE_DELETION, ""),
        entry("e", 9, PUT, "5"),
        entry("e", 7, PUT, "5"),
    ];
    assert_eq!(once, expected);
    assert!(db.get("key of many bytes").unwrap().is_some());
}

/// Batches given as bytes, for example those that another database has logged.
#[test]
fn what_comes_as_bytes_has_its_timestamps_or_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(&directory.path().join("db"), &options(Comparator::BytewiseU64Ts));
    let (write, family) = (WriteOptions::new(), db.column_family("stamped").unwrap());
    let foreign =
        |batch: &write_batch::WriteBatch| WriteBatch::from_bytes(batch.as_bytes().to_vec()).unwrap();
    let cf = ColumnFamilyId(family.id());
    let mut good = write_batch::WriteBatch::new();
    let key = [&b"a"[..], &ts(3)].concat();
    good.push(Op::Put { cf, key: &key, value: b"3" });
    good.push(Op::Put { cf: ColumnFamilyId(0), key: b"short", value: b"plain" });
    let mut short = good.clone();
    short.push(Op::Delete { cf, key: b"7 bytes" });
    let mut range = good.clone();
    range.push(Op::DeleteRange { cf, begin: &key, end: &key });
    let too_short = "its timestamp alone would have 8";
    refused(db.write(&write, &foreign(&short)), ErrorKind::InvalidArgument, too_short);
    refused(db.write(&write, &foreign(&range)), ErrorKind::NotSupported, "removing a range");
    assert_eq!((entries(&db, &family), db.get("short").unwrap().is_some()), (vec![], false));
    db.write(&write, &foreign(&good)).unwrap();
    assert_eq!(entries(&db, &family), [entry("a", 3, PUT, "3")]);
    // A batch that is read back from the log is accepted too.
    let logged = db.get_updates_since(1).unwrap().next().unwrap().unwrap();
    db.write(&write, &logged.batch).unwrap();
    assert_eq!(entries(&db, &family).len(), 2);
}

/// Orders keys bytewise and their timestamps, `.0` bytes long, in descending order.
#[derive(Debug)]
pub(crate) struct Stamped(pub(crate) usize);

impl UserComparator for Stamped {
    fn name(&self) -> &str {
        "test.Stamped"
    }
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        let ((a, of_a), (b, of_b)) = (a.split_at(a.len() - self.0), b.split_at(b.len() - self.0));
        a.cmp(b).then_with(|| of_b.cmp(of_a))
    }
    fn timestamp_size(&self) -> usize {
        self.0
    }
    fn compare_timestamps(&self, a: &[u8], b: &[u8]) -> Ordering {
        a.cmp(b)
    }
    fn compare_without_timestamp(&self, a: (&[u8], bool), b: (&[u8], bool)) -> Ordering {
        let bare = |(key, stamped): (&[u8], bool)| key[..key.len() - usize::from(stamped) * self.0].to_vec();
        bare(a).cmp(&bare(b))
    }
}

#[test]
fn a_log_under_timestamps_of_another_size_keeps_the_database_from_being_opened() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let with = |bytes| options(Comparator::custom(Arc::new(Stamped(bytes))));
    let db = open(&path, &with(8));
    db.put("plain", "1").unwrap();
    let family = db.column_family("stamped").unwrap();
    db.put_cf_with_ts(&WriteOptions::new(), &family, "key", "12345678", "1").unwrap();
    db.close().unwrap();
    let log = newest_log(&path);
    for mode in [
        "kTolerateCorruptedTailRecords",
        "kAbsoluteConsistency",
        "kPointInTimeRecovery",
        "kSkipAnyCorruptedRecords",
    ] {
        for (bytes, what) in [(4, "have 8 bytes, and 4 in"), (0, "have 8 bytes, and 0 in")] {
            let options = with(bytes).set("wal_recovery_mode", mode).unwrap();
            let outcome = Db::open_cf(&path, &options, &["default", "stamped"]);
            let error = outcome.expect_err("its keys would be taken for others");
            assert_eq!(error.kind(), ErrorKind::Corruption);
            let place = format!("{}, offset ", log.display());
            assert!(error.to_string().contains(&place), "{mode}: {error}");
            assert!(error.to_string().contains(what), "{mode}: {error}");
        }
    }
    let db = open(&path, &with(8));
    let family = db.column_family("stamped").unwrap();
    let mut iter = db.internal_iter(&ReadOptions::new(), &family).unwrap();
    iter.seek_to_first().unwrap();
    assert_eq!(&iter.key()[..11], b"key12345678");
}

#[test]
fn a_secondary_goes_on_in_a_log_that_said_of_timestamps_before() {
    let directory = tempfile::tempdir().unwrap();
    let (path, own) = (directory.path().join("db"), directory.path().join("own"));
    let options = options(Comparator::BytewiseU64Ts);
    let db = open(&path, &options);
    let (write, family) = (WriteOptions::new(), db.column_family("stamped").unwrap());
    let long = "v".repeat(20_000);
    let mut count = 0;
    let mut put = |many: u64| {
        for _ in 0..many {
            count += 1;
            db.put_cf_with_ts(&write, &family, "key", ts(count), &long).unwrap();
        }
        count
    };
    put(1);
    let secondary = Db::open_cf_as_secondary(&path, &own, &options, &["default", "stamped"]).unwrap();
    let followed = secondary.column_family("stamped").unwrap();
    for many in [1, 5, 1, 5] {
        let count = put(many);
        secondary.try_catch_up_with_primary().unwrap();
        let found = entries(&secondary, &followed);
        let timestamps: Vec<u64> = found.into_iter().map(|(_, timestamp, ..)| timestamp).collect();
        assert_eq!(timestamps, (1..=count).rev().collect::<Vec<_>>());
    }
}

/// RocksDB writes records of timestamp sizes since 8.4. `ldb` 7.8 stops at the first of them as at
/// damage, so it shows all of a log in which no key has a timestamp.
#[test]
fn an_old_ldb_dumps_our_log_up_to_the_first_key_with_a_timestamp() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let db = open(&path, &options(Comparator::BytewiseU64Ts));
    let dumped = || {
        let walfile = format!("--walfile={}", newest_log(&path).display());
        run("ldb", &["dump_wal", &walfile, "--print_value"], b"").unwrap()
    };
    db.put("plain", "1").unwrap();
    db.delete("plain").unwrap();
    let expected = "1,1,21,0,PUT(0) : 0x706C61696E : 0x31 \n2,1,19,28,DELETE(0) : 0x706C61696E \n";
    assert_eq!(dumped(), expected);
    let (write, family) = (WriteOptions::new(), db.column_family("stamped").unwrap());
    db.put_cf_with_ts(&write, &family, "k", ts(3), "2").unwrap();
    db.put("behind", "3").unwrap();
    assert_eq!(dumped(), expected);
}

#[test]
fn tables_of_others_have_timestamps_in_their_order() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("stamped.sst");
    let options = Options::new().comparator(None, Comparator::BytewiseU64Ts);
    let mut writer = SstFileWriter::create(&options).unwrap();
    writer.open(&file).unwrap();
    let kind = ErrorKind::InvalidArgument;
    let required = "a timestamp is required";
    refused(writer.put("a", "1"), kind, required);
    refused(writer.delete("a"), kind, required);
    refused(writer.merge("a", "1"), kind, required);
    refused(writer.put_entity("a", &[(b"", b"1")]), kind, required);
    refused(writer.delete_range("a", "b"), kind, required);
    refused(writer.put_with_ts("a", "short", "1"), kind, "of 5 bytes");
    writer.put_with_ts("a", ts(300), "300").unwrap();
    writer.delete_with_ts("a", ts(200)).unwrap();
    refused(writer.put_with_ts("a", ts(200), "again"), kind, "is not greater than the previous key");
    refused(writer.put_with_ts("a", ts(250), "later"), kind, "is not greater than the previous key");
    writer.put_with_ts("a", ts(100), "100").unwrap();
    writer.put_with_ts("b", ts(400), "400").unwrap();
    refused(writer.put_with_ts("a", ts(1), "1"), kind, "is not greater than the previous key");
    let info = writer.finish().unwrap();
    assert_eq!(info.num_entries, 4);
    assert_eq!(info.smallest_key, [&b"a"[..], &ts(300)].concat());
    assert_eq!(info.largest_key, [&b"b"[..], &ts(400)].concat());

    let mut plain = SstFileWriter::create(&Options::new()).unwrap();
    plain.open(directory.path().join("plain.sst")).unwrap();
    refused(plain.put_with_ts("a", ts(1), "1"), kind, "have 0");
    refused(plain.put_with_ts("a", "", "1"), kind, "have 0");

    let db = stamped_default();
    let bytes = std::fs::read(&file).unwrap();
    let inside = Path::new("/stamped.sst");
    let mut writer = db.env().fs().create(inside).unwrap();
    writer.append(&bytes).unwrap();
    drop(writer);
    db.ingest_external_file(&Default::default(), [inside]).unwrap();
    let expected = [
        entry("a", 300, PUT, "300"),
        entry("a", 200, DELETION, ""),
        entry("a", 100, PUT, "100"),
        entry("b", 400, PUT, "400"),
    ];
    assert_eq!(entries(&db, db.default_column_family()), expected);
}
