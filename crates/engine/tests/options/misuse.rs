//! Errors of callers and faults in their code: refused or reported at once, and never an obstacle
//! to reopening the database.

use karst_engine::compaction_filter::{FilterDecision, FilterInput};
use karst_engine::format::{ColumnFamilyId, Comparator, Op, UserComparator};
use karst_engine::io::{Env, MemoryFileSystem, block_on};
use karst_engine::{
    BulkLoader, CompactRangeOptions, CompactionFilter, Db, ErrorKind, FlushOptions, Options, ReadOptions,
    Result, Severity, WriteBatch, WriteOptions,
};
use std::cmp::Ordering;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

const PATH: &str = "/db";

fn memory() -> Env {
    Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build()
}

fn options(env: &Env) -> Options {
    Options::new().env(env.clone()).db(|db| {
        db.create_if_missing = true;
        db.create_missing_column_families = true;
    })
}

/// Returns the bytes of a batch with a put followed by this operation.
fn batch_with(op: Op<'_>) -> Vec<u8> {
    let mut batch = WriteBatch::new();
    batch.put("before", "1").unwrap();
    let mut bytes = batch.as_bytes().to_vec();
    op.encode(&mut |part| bytes.extend_from_slice(part));
    bytes[8..12].copy_from_slice(&2u32.to_le_bytes());
    bytes
}

fn refusal<T>(outcome: Result<T>) -> (ErrorKind, String) {
    let error = outcome.err().expect("it went well");
    (error.kind(), error.to_string())
}

#[test]
fn a_batch_of_bytes_that_could_not_be_flushed_is_refused() {
    let cf = ColumnFamilyId(0);
    let entity = |entity| Op::PutEntity { cf, key: b"key", entity };
    let damaged = [
        (&b""[..], "nothing"),
        (b"\x01", "no count"),
        (b"\x01\x01\x01a", "a column without its value"),
        (b"\x01\x01\x01a\x09value", "a value that is cut off"),
        (b"\x01\x01\x01a\x01value", "more than its columns"),
        (b"\x01\x02\x01b\x00\x01a\x00", "columns out of order"),
        (b"\x01\x02\x01a\x00\x01a\x00", "a column twice"),
        (b"\x07\x00", "an unknown version"),
        (b"an entity that is none", "text"),
    ];
    for (bytes, what) in damaged {
        let (kind, text) = refusal(WriteBatch::from_bytes(batch_with(entity(bytes))));
        assert_eq!(kind, ErrorKind::Corruption, "{what}: {text}");
        // The offset after the header and the put of "before".
        assert!(text.contains("write batch, offset 22") && text.contains("entity"), "{what}: {text}");
    }
    // A column that is a reference into a blob file, and a reference by itself.
    let with_blob = b"\x02\x01\x01\x01\x01\x11\x01\x01az";
    let index = Op::PutBlobIndex { cf, key: b"key", index: b"\x01\x07\x00\x05\x00" };
    for op in [entity(with_blob), index] {
        let (kind, text) = refusal(WriteBatch::from_bytes(batch_with(op)));
        assert!(kind == ErrorKind::NotSupported && text.contains("blob"), "{op:?}: {text}");
    }
    for (count, bytes) in [(1u32, batch_with(entity(b"\x01\x00"))), (3, batch_with(entity(b"\x01\x00")))] {
        let mut bytes = bytes;
        bytes[8..12].copy_from_slice(&count.to_le_bytes());
        assert_eq!(refusal(WriteBatch::from_bytes(bytes)).0, ErrorKind::Corruption);
    }

    // Accepted operations of every kind are flushed, compacted and found again.
    let env = memory();
    let options = options(&env).set("merge_operator", "StringAppendOperator").unwrap();
    let taken = [
        entity(b"\x01\x00"),
        entity(b"\x01\x02\x00\x01\x01a\x01xy"),
        Op::TimedPut { cf, key: b"key", value: b"v", write_unix_time: 7 },
        Op::Merge { cf, key: b"key", operand: b"" },
        Op::SingleDelete { cf, key: b"other" },
        Op::DeleteRange { cf, begin: b"b", end: b"b" },
        Op::Delete { cf, key: b"" },
        Op::Put { cf, key: b"", value: b"" },
    ];
    for op in taken {
        let db = Db::open(PATH, &options).unwrap();
        let batch = WriteBatch::from_bytes(batch_with(op)).unwrap_or_else(|e| panic!("{op:?}: {e}"));
        db.write(&WriteOptions::new(), &batch).unwrap();
        db.flush(&FlushOptions::default()).unwrap_or_else(|e| panic!("{op:?}: {e}"));
        db.write(&WriteOptions::new(), &batch).unwrap();
        db.compact_range(&CompactRangeOptions::default(), None, None).unwrap();
        db.get("key").unwrap();
        db.close().unwrap();
    }
}

#[test]
fn a_range_that_ends_before_it_begins_is_refused_in_a_batch_as_it_is_alone() {
    let env = memory();
    let options = options(&env)
        .comparator(Some("back"), Comparator::lookup("rocksdb.ReverseBytewiseComparator").unwrap());
    let db = Db::open_cf(PATH, &options, &["default", "back"]).unwrap();
    let back = db.column_family("back").unwrap();
    let write = WriteOptions::new();
    let in_batch = |build: &dyn Fn(&mut WriteBatch)| {
        let mut batch = WriteBatch::new();
        batch.put("a", "1").unwrap();
        build(&mut batch);
        let same = WriteBatch::from_bytes(batch.as_bytes().to_vec()).unwrap();
        let outcomes = [
            db.write(&write, &batch),
            block_on(db.env(), db.write_async(&write, &batch)),
            db.write(&write, &same),
        ];
        let [first, ..] = outcomes.map(|outcome| outcome.map_err(|e| (e.kind(), e.to_string())));
        first
    };
    let before = db.latest_sequence_number();
    let alone = refusal(db.delete_range("b", "a"));
    assert_eq!(alone.0, ErrorKind::InvalidArgument);
    assert_eq!(in_batch(&|batch| batch.delete_range("b", "a").unwrap()), Err(alone));
    // Compared by the column family's comparator.
    let alone = refusal(db.delete_range_cf(&write, &back, "a", "b"));
    assert_eq!(in_batch(&|batch| batch.delete_range_cf(&back, "a", "b").unwrap()), Err(alone));
    assert_eq!((db.latest_sequence_number(), db.get("a").unwrap().is_none()), (before, true), "a part of it");
    for (begin, end) in [("a", "a"), ("a", "b")] {
        db.delete_range(begin, end).unwrap();
        in_batch(&|batch| batch.delete_range(begin, end).unwrap()).unwrap();
    }
    db.delete_range_cf(&write, &back, "b", "a").unwrap();
    in_batch(&|batch| batch.delete_range_cf(&back, "b", "a").unwrap()).unwrap();
}

#[test]
fn room_that_there_is_no_memory_for_is_not_reserved() {
    for (reserved, most) in [(usize::MAX, 0), (usize::MAX / 2, 0), (usize::MAX, usize::MAX), (1 << 40, 100)] {
        let mut batch = WriteBatch::with_capacity(reserved, most);
        batch.put("key", "value").unwrap();
        assert_eq!(batch.count(), 1);
    }
}

#[test]
fn a_merge_without_an_operator_is_refused_before_anything_is_written() {
    let env = memory();
    let db = Db::open(PATH, &options(&env)).unwrap();
    let mut batch = WriteBatch::new();
    batch.put("a", "1").unwrap();
    batch.merge("k", "1").unwrap();
    for outcome in [db.merge("k", "1"), db.write(&WriteOptions::new(), &batch)] {
        let (kind, text) = refusal(outcome);
        assert_eq!(kind, ErrorKind::InvalidArgument, "{text}");
        assert!(text.contains("\"default\" has no merge operator"), "{text}");
    }
    assert_eq!(db.latest_sequence_number(), 0);
    db.flush(&FlushOptions::default()).unwrap();
    db.close().unwrap();
    Db::open(PATH, &options(&env)).unwrap();
}

/// Bytewise comparator that panics at one key while armed.
#[derive(Debug, Default)]
struct Fragile(AtomicBool);

impl UserComparator for Fragile {
    fn name(&self) -> &str {
        "tests.Fragile"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        assert!(!self.0.load(SeqCst) || (a != b"boom" && b != b"boom"), "the comparator's own");
        a.cmp(b)
    }
}

#[test]
fn a_memtable_that_an_insert_has_broken_gives_errors_and_no_wrong_answers() {
    let mut acknowledged = 0;
    // Small writes are inserted in groups of eight, or by the first reader; the panic occurs at one
    // of these counts. With `None`, the writer inserts its batch itself.
    for lone in (300..308).map(Some).chain([None]) {
        let (env, fragile) = (memory(), Arc::new(Fragile::default()));
        let options = options(&env).comparator(None, Comparator::Custom(fragile.clone()));
        let db = Db::open(PATH, &options).unwrap();
        let (snapshot, mut early) = {
            db.put("flushed", "1").unwrap();
            db.flush(&FlushOptions::default()).unwrap();
            db.put("old", "1").unwrap();
            assert!(db.get("old").unwrap().is_some(), "it is inserted");
            let mut iter = db.iter(&ReadOptions::new()).unwrap();
            iter.seek_to_first().unwrap();
            (db.snapshot(), iter)
        };
        // For a while after a read, writers insert their own entries.
        (0..lone.unwrap_or(0)).for_each(|n| db.put(format!("many{n:03}"), "1").unwrap());
        fragile.0.store(true, SeqCst);
        let write = || match lone {
            Some(_) => ["a", "boom", "c"].into_iter().for_each(|key| db.put(key, "1").unwrap()),
            None => {
                let mut batch = WriteBatch::new();
                (0..40).for_each(|n| batch.put(format!("b{n:02}"), "2").unwrap());
                ["boom", "a", "c"].into_iter().for_each(|key| batch.put(key, "1").unwrap());
                db.write(&WriteOptions::new(), &batch).unwrap();
            }
        };
        let is_acknowledged = catch_unwind(AssertUnwindSafe(write)).is_ok();
        if is_acknowledged {
            catch_unwind(AssertUnwindSafe(|| db.get("x"))).expect_err("the first who asks meets the panic");
            acknowledged += 1;
        }
        fragile.0.store(false, SeqCst);
        let default = db.default_column_family();
        let then = ReadOptions { snapshot: Some(snapshot.clone()), ..ReadOptions::new() };
        let mut outcomes = vec![
            ("get", db.get("c").map(drop)),
            ("get", db.get("a").map(drop)),
            ("get of what is in tables", db.get("flushed").map(drop)),
            ("get as of before", db.get_opt(&then, "a").map(drop)),
            ("get_async", block_on(db.env(), db.get_async(b"c")).map(drop)),
            ("multi_get", db.multi_get(&["c"]).remove(0).map(drop)),
            ("multi_get_cfs", db.multi_get_cfs(&then, &[default], &["c"]).remove(0).map(drop)),
            ("key_may_exist", db.key_may_exist("c").map(drop)),
        ];
        for (what, seek) in [("seek_to_first", 0), ("seek_to_last", 1), ("seek", 2), ("seek_for_prev", 3)] {
            let mut iter = db.iter(&ReadOptions::new()).unwrap();
            outcomes.push((
                what,
                match seek {
                    0 => iter.seek_to_first(),
                    1 => iter.seek_to_last(),
                    2 => iter.seek("c"),
                    _ => iter.seek_for_prev("c"),
                },
            ));
            assert!(!iter.valid(), "{what}");
        }
        for (what, outcome) in outcomes {
            let error = outcome.expect_err(what);
            assert_eq!(error.kind(), ErrorKind::Panicked, "{what}: {error}");
            assert!(error.to_string().contains("opened anew"), "{what}: {error}");
        }
        let refused = db.put("later", "1").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Panicked, "{refused}");
        db.flush(&FlushOptions::default()).unwrap_err();
        // An older iterator still shows the entries of its snapshot.
        assert_eq!(early.key(), b"flushed");
        early.next().unwrap();
        assert_eq!(early.key(), b"old");
        drop((early, then, snapshot));
        db.close().unwrap();
        drop(db);
        let db = Db::open(PATH, &options).unwrap();
        for key in ["flushed", "old", "boom"] {
            assert!(db.get(key).unwrap().is_some(), "{key} was logged");
        }
        for n in 0..lone.unwrap_or(0) {
            assert!(db.get(format!("many{n:03}")).unwrap().is_some(), "many{n:03} was acknowledged");
        }
        let all = ["a", "c"].iter().all(|key| db.get(key).unwrap().is_some());
        assert!(all || (lone.is_some() && !is_acknowledged), "what was acknowledged is gone");
    }
    assert!(acknowledged > 0, "in no case a write was acknowledged before it was inserted");
}

/// The batch has a part in a family whose memtable is intact; a reader of that family would see
/// half of it.
#[test]
fn a_batch_that_broke_a_memtable_is_not_half_seen_in_another() {
    let (env, fragile) = (memory(), Arc::new(Fragile::default()));
    let options = options(&env).comparator(None, Comparator::Custom(fragile.clone()));
    let db = Db::open(PATH, &options).unwrap();
    let other = db.create_column_family("other", &options).unwrap();
    db.put_cf(&WriteOptions::new(), &other, "old", "1").unwrap();
    assert!(db.get_cf(&ReadOptions::new(), &other, "old").unwrap().is_some(), "it is inserted");
    let third = db.create_column_family("third", &options).unwrap();
    let mut batch = WriteBatch::new();
    batch.put("a", "1").unwrap();
    batch.put_cf(&third, "a", "1").unwrap();
    batch.put_cf(&other, "boom", "1").unwrap();
    batch.put("c", "1").unwrap();
    fragile.0.store(true, SeqCst);
    catch_unwind(AssertUnwindSafe(|| db.write(&WriteOptions::new(), &batch))).expect_err("it panics");
    fragile.0.store(false, SeqCst);
    for (family, key) in [(db.default_column_family(), "a"), (db.default_column_family(), "c"), (&third, "a")]
    {
        let error = db.get_cf(&ReadOptions::new(), family, key).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Panicked, "{} {key}: {error}", family.name());
    }
    drop((db, other, third));
    let db = Db::open(PATH, &options).unwrap();
    assert!(["a", "c"].iter().all(|key| db.get(key).unwrap().is_some()), "the log has all of it");
}

/// Filter that panics at one key.
#[derive(Debug)]
struct FragileFilter;

impl CompactionFilter for FragileFilter {
    fn name(&self) -> &str {
        "tests.FragileFilter"
    }

    fn filter(&self, _: u32, key: &[u8], _: FilterInput<'_>) -> FilterDecision {
        assert!(key != b"boom", "the filter's own");
        FilterDecision::Keep
    }
}

#[test]
fn a_compaction_that_panics_says_so_and_stops_the_database() {
    let env = memory();
    let options = options(&env).compaction_filter(None, Arc::new(FragileFilter));
    let db = Db::open(PATH, &options).unwrap();
    db.put("boom", "1").unwrap();
    db.flush(&FlushOptions::default()).unwrap();
    let told = db.compact_range(&CompactRangeOptions::default(), None, None).unwrap_err();
    assert_eq!(told.kind(), ErrorKind::Panicked, "{told}");
    assert!(told.to_string().contains("the filter's own"), "{told}");
    let stands = db.background_error().expect("it stops the database");
    assert_eq!((stands.severity, stands.error.kind()), (Severity::Fatal, ErrorKind::Panicked));
    assert!(stands.error.to_string().contains("the filter's own"), "{}", stands.error);
    let refused = db.put("key", "1").unwrap_err();
    assert!(refused.to_string().contains("the filter's own"), "{refused}");
    assert!(db.get("boom").unwrap().is_some(), "it is read as before");
    db.close().unwrap();
}

#[test]
fn an_empty_path_is_called_by_its_name() {
    let env = memory();
    let options = options(&env);
    let outcomes = [
        Db::open("", &options).map(drop),
        Db::open_cf("", &options, &["default"]).map(drop),
        Db::open_read_only("", &options).map(drop),
        Db::destroy("", &options),
        Db::list_column_families("", &options).map(drop),
        BulkLoader::create("", &options).map(drop),
    ];
    for outcome in outcomes {
        let (kind, text) = refusal(outcome);
        assert!(
            kind == ErrorKind::InvalidArgument && text.contains("path of the database is empty"),
            "{text}"
        );
    }
}

#[test]
fn a_directory_of_logs_that_is_missing_is_made_where_the_database_is_written() {
    let env = memory();
    let options = options(&env).db(|db| db.wal_dir = "/elsewhere/logs".into());
    let directory = Path::new("/elsewhere/logs");
    let db = Db::open(PATH, &options).unwrap();
    db.put("key", "1").unwrap();
    assert!(!env.fs().list_dir(directory).unwrap().is_empty(), "logs are there");
    db.flush(&FlushOptions::default()).unwrap();
    db.close().unwrap();
    for name in env.fs().list_dir(directory).unwrap() {
        env.fs().remove(&directory.join(name)).unwrap();
    }
    env.fs().remove_dir(directory).unwrap();
    let (_, text) = refusal(Db::open_read_only(PATH, &options));
    assert!(text.contains("wal_dir") && text.contains("/elsewhere/logs"), "{text}");
    assert!(!env.fs().exists(directory).unwrap(), "reading has made it");
    let db = Db::open(PATH, &options).unwrap();
    assert!(db.get("key").unwrap().is_some());
    db.put("key", "2").unwrap();
    db.close().unwrap();
    let db = Db::open_read_only(PATH, &options).unwrap();
    assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"2"[..]));
}

#[test]
fn huge_names_of_column_families_do_not_flood_messages() {
    let env = memory();
    let options = options(&env);
    let huge = "x".repeat(1 << 20);
    let db = Db::open_cf(PATH, &options, &["default", &huge]).unwrap();
    let family = db.column_family(&huge).unwrap();
    let elsewhere = Db::open("/other", &options).unwrap();
    let mut foreign = WriteBatch::new();
    foreign.put("a", "1").unwrap();
    foreign.put_cf(elsewhere.default_column_family(), "a", "1").unwrap();
    let mut outcomes = vec![
        db.create_column_family(&huge, &options).map(drop),
        db.set_options(&family, &[("no_such_option", "1")]),
        db.merge_cf(&WriteOptions::new(), &family, "a", "1"),
        elsewhere.put_cf(&WriteOptions::new(), &family, "a", "1"),
        foreign.put_cf(&family, "a", "1"),
        db.refresh(&mut db.iter(&ReadOptions::new()).unwrap(), &family, None),
    ];
    let unknown = options.clone().set("merge_operator", "my.Operator").unwrap();
    outcomes.push(db.create_column_family(&"y".repeat(1 << 20), &unknown).map(drop));
    db.close().unwrap();
    outcomes.push(Db::open_cf(PATH, &options, &["default"]).map(drop));
    outcomes.push(Db::open_cf_read_only(PATH, &options, &["default", "missing"]).map(drop));
    let db = Db::open(PATH, &options).unwrap();
    let family = db.column_family(&huge).unwrap();
    db.drop_column_family(&family).unwrap();
    outcomes.push(db.put_cf(&WriteOptions::new(), &family, "a", "1"));
    for (number, outcome) in outcomes.into_iter().enumerate() {
        let (_, text) = refusal(outcome);
        assert!(text.len() < 500, "message {number} has {} bytes", text.len());
        assert!(
            text.contains("1048576 bytes") || text.contains("no_such_option"),
            "message {number}: {text}"
        );
    }
}
