//! The calls that write, through the public API: their effects, their errors, and the entries after
//! closing and reopening.

use karst_engine::io::{Env, MemoryFileSystem, block_on};
use karst_engine::{
    CompactRangeOptions, Db, DbIterator, ErrorKind, FlushOptions, Options, ReadOptions,
    WaitForCompactOptions, WriteBatch, WriteOptions,
};
use karst_testkit::eventually;
use std::sync::Arc;

const PATH: &str = "/db";

fn options() -> Options {
    let env = Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build();
    Options::new().env(env).db(|db| {
        db.create_if_missing = true;
        db.create_missing_column_families = true;
    })
}

fn get(db: &Db, key: &str) -> Option<String> {
    db.get(key).unwrap().map(|value| String::from_utf8(value.to_vec()).unwrap())
}

#[test]
fn what_is_written_is_read_now_and_after_opening_again() {
    let options = options().set("merge_operator", "StringAppendOperator").unwrap();
    let db = Db::open(PATH, &options).unwrap();
    db.put("a", "1").unwrap();
    db.put("b", "2").unwrap();
    db.put("c", "3").unwrap();
    let before = db.snapshot();
    db.delete("a").unwrap();
    db.single_delete("b").unwrap();
    db.merge("m", "x").unwrap();
    db.merge_opt(&WriteOptions::synced(), "m", "y").unwrap();
    db.delete_range("c", "d").unwrap();
    block_on(db.env(), async {
        db.put_async(b"e", b"5").await.unwrap();
        let mut batch = WriteBatch::new();
        batch.put("f", "6").unwrap();
        batch.put_entity(None, "w", &[(b"", b"default"), (b"x", b"1")]).unwrap();
        batch.delete("e").unwrap();
        db.write_async(&WriteOptions::new(), &batch).await.unwrap();
        db.flush_wal_async(true).await.unwrap();
    });
    let seen = |db: &Db| ["a", "b", "c", "m", "e", "f", "w"].map(|key| get(db, key));
    let expected =
        [None, None, None, Some("x,y"), None, Some("6"), Some("default")].map(|v| v.map(str::to_owned));
    assert_eq!(seen(&db), expected);
    let then = ReadOptions { snapshot: Some(before), ..ReadOptions::new() };
    assert_eq!(db.get_opt(&then, "c").unwrap().as_deref(), Some(&b"3"[..]));
    assert_eq!(db.latest_sequence_number(), 12);
    drop(then);
    db.close().unwrap();
    assert_eq!(db.put("late", "").unwrap_err().kind(), ErrorKind::Closed);
    drop(db);
    let db = Db::open(PATH, &options).unwrap();
    assert_eq!(seen(&db), expected);
    assert!(db.latest_sequence_number() >= 12);
    db.put("a", "again").unwrap();
    assert_eq!(get(&db, "a").as_deref(), Some("again"));
}

#[test]
fn column_families_are_written_together() {
    let options = options();
    let db = Db::open_cf(PATH, &options, &["default", "users"]).unwrap();
    let users = db.column_family("users").unwrap();
    let mut batch = WriteBatch::new();
    batch.put("k", "default").unwrap();
    batch.put_cf(&users, "k", "users").unwrap();
    db.write(&WriteOptions::new(), &batch).unwrap();
    let read = ReadOptions::new();
    assert_eq!(db.get_cf(&read, &users, "k").unwrap().as_deref(), Some(&b"users"[..]));
    assert_eq!(get(&db, "k").as_deref(), Some("default"));
    db.drop_column_family(&users).unwrap();
    let error = db.put_cf(&WriteOptions::new(), &users, "k", "v").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    db.write(&WriteOptions::new(), &batch).unwrap_err();
    assert_eq!(db.latest_sequence_number(), 2);
    let lenient = WriteOptions { ignore_missing_column_families: true, ..WriteOptions::new() };
    db.write(&lenient, &batch).unwrap();
    assert_eq!(db.latest_sequence_number(), 4);
}

#[test]
fn what_does_not_fit_is_refused_before_anything_is_written() {
    let db = Db::open(PATH, &options()).unwrap();
    let refused = |outcome: karst_engine::Result<()>, what: &str| {
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().contains(what), "{error}");
    };
    refused(db.merge("k", "v"), "merge operator");
    let mut batch = WriteBatch::new();
    batch.put("a", "1").unwrap();
    batch.merge("k", "v").unwrap();
    refused(db.write(&WriteOptions::new(), &batch), "merge operator");
    refused(db.delete_range("b", "a"), "ends before that");
    let other = Db::open(PATH, &options()).unwrap();
    refused(other.put_cf(&WriteOptions::new(), db.default_column_family(), "a", "1"), "another database");
    refused(
        block_on(db.env(), other.delete_cf_async(&WriteOptions::new(), db.default_column_family(), b"a")),
        "another database",
    );
    let mut foreign = WriteBatch::new();
    foreign.put_cf(db.default_column_family(), "a", "1").unwrap();
    refused(other.write(&WriteOptions::new(), &foreign), "another database");
    refused(
        db.put_opt(&WriteOptions { sync: true, disable_wal: true, ..WriteOptions::new() }, "a", "1"),
        "without a log",
    );
    assert_eq!((db.latest_sequence_number(), get(&db, "a")), (0, None));
    assert_eq!(other.latest_sequence_number(), 0);
}

#[test]
fn a_database_open_for_reading_only_refuses_writes() {
    let options = options();
    Db::open(PATH, &options).unwrap().put("a", "1").unwrap();
    let db = Db::open_read_only(PATH, &options).unwrap();
    assert_eq!(get(&db, "a").as_deref(), Some("1"));
    for outcome in [db.put("a", "2"), db.flush_wal(true), block_on(db.env(), db.delete_async(b"a"))] {
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
}

/// Several threads write more than a few memtables, so that memtables are switched and flushed
/// concurrently with the writers.
#[test]
fn stress_writers_across_flushes() {
    let options = options().set("write_buffer_size", "65536").unwrap();
    let db = Db::open(PATH, &options).unwrap();
    let (threads, each) = (4, 1500);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let db = &db;
            scope.spawn(move || {
                for n in 0..each {
                    let key = format!("{thread}-{n:05}");
                    db.put(&key, vec![b'v'; 100]).unwrap();
                    if n % 100 == 0 {
                        assert!(db.get(&key).unwrap().is_some());
                    }
                }
            });
        }
    });
    let check = |db: &Db| {
        for thread in 0..threads {
            for n in 0..each {
                assert!(db.get(format!("{thread}-{n:05}")).unwrap().is_some(), "{thread}-{n:05}");
            }
        }
        assert_eq!(db.latest_sequence_number(), threads * each);
    };
    check(&db);
    // Waits because, with more threads than processors, the sealing job may run late.
    db.wait_for_compact(&WaitForCompactOptions::default()).unwrap();
    assert!(!db.live_files().is_empty());
    db.close().unwrap();
    drop(db);
    check(&Db::open(PATH, &options).unwrap());
}

/// An iterator shows the state of its creation during later writes, flushes and compactions, and
/// keeps only the files that it needs.
#[test]
fn an_iterator_keeps_its_moment_and_its_files_until_it_is_refreshed() {
    let db = Db::open(PATH, &options()).unwrap();
    let family = db.default_column_family().clone();
    let entries = |iterator: &mut DbIterator| {
        let mut all = Vec::new();
        iterator.seek_to_first().unwrap();
        while iterator.valid() {
            all.push(String::from_utf8([iterator.key(), b"=", iterator.value()].concat()).unwrap());
            iterator.next().unwrap();
        }
        all
    };
    // Obsolete files are removed in the background.
    let come_down_to = |expected: usize| {
        eventually(expected, || {
            let names = db.env().fs().list_dir(PATH.as_ref()).unwrap();
            let tables = names.iter().filter(|name| name.ends_with(".sst")).count();
            assert!(tables >= expected, "{tables} tables are left where {expected} are needed");
            tables
        });
    };
    db.put("a", "1").unwrap();
    db.flush(&FlushOptions::default()).unwrap();
    db.put("b", "1").unwrap();
    let mut iterator = db.iter(&ReadOptions::new()).unwrap();
    let between = db.snapshot();
    db.put("a", "2").unwrap();
    db.delete("b").unwrap();
    db.put("c", "2").unwrap();
    db.flush(&FlushOptions::default()).unwrap();
    db.compact_range(&CompactRangeOptions::default(), None, None).unwrap();
    assert_eq!(entries(&mut iterator), ["a=1", "b=1"]);
    come_down_to(2); // The first table for the iterator, and the compacted one.
    assert_eq!(entries(&mut iterator), ["a=1", "b=1"]);

    db.refresh(&mut iterator, &family, None).unwrap();
    assert!(!iterator.valid(), "a refreshed iterator stands nowhere");
    come_down_to(1);
    assert_eq!(entries(&mut iterator), ["a=2", "c=2"]);
    db.refresh(&mut iterator, &family, Some(&between)).unwrap();
    assert_eq!(entries(&mut iterator), ["a=1", "b=1"]);

    let other = db.create_column_family("other", &options()).unwrap();
    assert_eq!(db.refresh(&mut iterator, &other, None).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(entries(&mut iterator), ["a=1", "b=1"], "a refusal leaves the iterator as it was");
}

/// Options of the log: logs written with them are read back, and the file shows their format.
#[test]
fn logs_are_written_as_the_options_say() {
    let cases = [
        ("wal_compression", "kZSTD"),
        ("track_and_verify_wals", "true"),
        ("recycle_log_file_num", "2"),
        ("wal_bytes_per_sync", "4096"),
        ("manual_wal_flush", "true"),
        ("track_and_verify_wals_in_manifest", "true"),
        ("allow_mmap_writes", "true"),
    ];
    for (name, value) in cases {
        let options = options().set(name, value).unwrap().set("avoid_flush_during_recovery", "true").unwrap();
        let db = Db::open(PATH, &options).unwrap();
        let log = std::path::Path::new(PATH).join(format!("{:06}.log", db.log_numbers().last().unwrap()));
        let log_bytes = || db.env().fs().read_file(&log).unwrap();
        for n in 0..100 {
            db.put(format!("key{n:03}"), vec![b'v'; 500]).unwrap();
        }
        let before_flush = log_bytes().len();
        db.sync_wal().unwrap();
        let bytes = log_bytes();
        match name {
            "wal_compression" => assert!(bytes[6] == 9 && bytes.len() < 20_000, "{}", bytes.len()),
            "recycle_log_file_num" => assert_eq!(bytes[6], 5),
            "manual_wal_flush" => assert!(before_flush < 1000 && bytes.len() > 50_000),
            "allow_mmap_writes" => {
                assert!(bytes[6] == 1 && before_flush == 256 << 10 && bytes.len() == 256 << 10);
            }
            _ => assert!(bytes[6] == 1 && bytes.len() > 50_000),
        }
        db.flush(&karst_engine::FlushOptions::default()).unwrap();
        db.put_opt(&WriteOptions::synced(), "last", "1").unwrap();
        db.close().unwrap();
        drop(db);
        let db = Db::open(PATH, &options).unwrap();
        assert_eq!(get(&db, "last").as_deref(), Some("1"), "{name}");
        assert!((0..100).all(|n| get(&db, &format!("key{n:03}")).is_some()), "{name}");
    }
    let error = Db::open(PATH, &options().set("wal_compression", "kLZ4Compression").unwrap()).unwrap_err();
    assert!(error.to_string().contains("wal_compression"), "{error}");
}

#[test]
fn a_new_iterator_streams_everything_and_one_that_has_ended_nothing() {
    use karst_engine::Direction;
    let db = Db::open(PATH, &options()).unwrap();
    for key in ["a", "b", "c"] {
        db.put(key, "").unwrap();
    }
    let streamed = |iter: DbIterator, direction| {
        let mut stream = std::pin::pin!(iter.into_stream(direction));
        let mut keys = String::new();
        while let Some(entry) = block_on(
            db.env(),
            std::future::poll_fn(|cx| futures_core::Stream::poll_next(stream.as_mut(), cx)),
        ) {
            keys.push_str(std::str::from_utf8(&entry.unwrap().0).unwrap());
        }
        keys
    };
    let iterate = |mut iter: DbIterator, direction| -> String {
        let entries =
            iter.entries(direction).map(|entry| String::from_utf8(entry.unwrap().0.to_vec()).unwrap());
        entries.collect()
    };
    let new = || db.iter(&ReadOptions::new()).unwrap();
    let sent = |key: &str| {
        let mut iter = new();
        iter.seek(key).unwrap();
        iter
    };
    for (direction, all, from_b) in [(Direction::Forward, "abc", "bc"), (Direction::Backward, "cba", "ba")] {
        assert_eq!((streamed(new(), direction), iterate(new(), direction)), (all.to_owned(), all.to_owned()));
        let from = (streamed(sent("b"), direction), iterate(sent("b"), direction));
        assert_eq!(from, (from_b.to_owned(), from_b.to_owned()));
        let behind = (streamed(sent("d"), direction), iterate(sent("d"), direction));
        assert_eq!(behind, (String::new(), String::new()), "it was sent where nothing is");
    }
}

#[test]
fn tables_are_read_back_if_they_shall_be() {
    use karst_engine::io::{FaultFileSystem, FaultPlan, Faults};
    for (paranoid, outcome) in [("true", Err(ErrorKind::Corruption)), ("false", Ok(()))] {
        let memory = Arc::new(MemoryFileSystem::new());
        let files = Arc::new(FaultFileSystem::new(memory, Faults::new(1, FaultPlan::default())));
        let env = Env::builder().file_system(files.clone()).build();
        let text = "enable_blob_files=true;min_blob_size=1000;compression=kSnappyCompression;disable_auto_compactions=true";
        let options =
            options().env(env).set_all(text).unwrap().set("paranoid_file_checks", paranoid).unwrap();
        let db = Db::open(PATH, &options).unwrap();
        let fill = || {
            for n in 0..500u32 {
                let bytes = if n % 10 == 0 { 2000 } else { 50 };
                db.put(n.to_string(), vec![b'v'; bytes]).unwrap();
            }
            db.delete_range("2", "3").unwrap();
        };
        for _ in 0..2 {
            fill();
            db.flush(&FlushOptions::default()).unwrap();
        }
        db.compact_range(&CompactRangeOptions::default(), None, None).unwrap();
        assert!(get(&db, "10").is_some() && get(&db, "20").is_none());
        // From now on every read flips bits; only code that reads notices.
        fill();
        files.between().set_plan(FaultPlan { bit_flip: 1.0, ..FaultPlan::default() });
        let flushed = db.flush(&FlushOptions::default());
        assert_eq!(flushed.map_err(|error| error.kind()), outcome, "paranoid_file_checks={paranoid}");
    }
}

/// Each kind of output verification alone detects that a compaction's table is read back wrongly,
/// and only if it is enabled.
#[test]
fn outputs_of_compactions_are_verified_as_the_flags_say() {
    use karst_engine::io::{FaultFileSystem, FaultPlan, Faults};
    let corrupt = Err(ErrorKind::Corruption);
    for (flags, outcome) in
        [(0, Ok(())), (7, Ok(())), (1025, corrupt), (1026, corrupt), (1028, corrupt), (2048 | 7, Ok(()))]
    {
        let memory = Arc::new(MemoryFileSystem::new());
        let files = Arc::new(FaultFileSystem::new(memory, Faults::new(1, FaultPlan::default())));
        let env = Env::builder().file_system(files.clone()).build();
        let text = "file_checksum_gen_factory=FileChecksumGenCrc32cFactory;disable_auto_compactions=true";
        let options = options().env(env).set_all(text).unwrap();
        let options = options.column_families(move |family| family.verify_output_flags = flags);
        let db = Db::open(PATH, &options).unwrap();
        for round in 0..2 {
            (0..500u32).for_each(|n| db.put(n.to_string(), format!("value {round}")).unwrap());
            db.flush(&FlushOptions::default()).unwrap();
        }
        // Older blocks are in the cache, so only the newly written ones are read wrongly.
        assert!(get(&db, "7").is_some());
        let mut iter = db.iter(&ReadOptions::new()).unwrap();
        iter.seek_to_first().unwrap();
        while iter.valid() {
            iter.next().unwrap();
        }
        drop(iter);
        let plan = FaultPlan { bit_flip: 1.0, ..FaultPlan::default() };
        let begun = files.clone();
        begun.between().set_plan(plan);
        let compacted = db.compact_range(&CompactRangeOptions::default(), None, None);
        assert_eq!(compacted.map_err(|error| error.kind()), outcome, "verify_output_flags={flags}");
    }
}

#[test]
fn ranges_that_were_deleted_are_there_where_deletions_of_ranges_are_ignored() {
    let db = Db::open(PATH, &options()).unwrap();
    let ignoring = ReadOptions { ignore_range_deletions: true, ..ReadOptions::new() };
    for n in 0..10 {
        db.put(format!("{n}"), "value").unwrap();
    }
    // Flushes keep the versions that a snapshot sees.
    let _snapshot = db.snapshot();
    db.delete("9").unwrap();
    db.delete_range("3", "8").unwrap();
    let entries = |read: &ReadOptions| {
        let mut iter = db.iter(read).unwrap();
        iter.seek_to_first().unwrap();
        let mut entries = 0;
        while iter.valid() {
            entries += 1;
            iter.next().unwrap();
        }
        entries
    };
    // From a memtable, then from a table.
    for _ in 0..2 {
        assert!(db.get("5").unwrap().is_none() && db.multi_get(&["5"]).remove(0).unwrap().is_none());
        assert!(db.get_opt(&ignoring, "5").unwrap().is_some());
        let batch = db.multi_get_cf(&ignoring, db.default_column_family(), &["9", "5"]);
        let found: Vec<bool> = batch.into_iter().map(|value| value.unwrap().is_some()).collect();
        assert_eq!(found, [false, true], "a deletion of one key counts");
        assert_eq!((entries(&ReadOptions::new()), entries(&ignoring)), (4, 9));
        db.flush(&FlushOptions::default()).unwrap();
    }
}

#[test]
fn a_batch_of_reads_ends_when_its_values_are_larger_than_the_limit() {
    let db = Db::open(PATH, &options()).unwrap();
    let keys: Vec<String> = (0..6).map(|n| n.to_string()).collect();
    keys.iter().for_each(|key| db.put(key, [b'v'; 100]).unwrap());
    // From a memtable, then from a table.
    for _ in 0..2 {
        for (limit, expected) in [(0, 1), (99, 1), (100, 2), (250, 3), (599, 6), (u64::MAX, 6)] {
            let read = ReadOptions { value_size_soft_limit: limit, ..ReadOptions::new() };
            let values = db.multi_get_cf(&read, db.default_column_family(), &keys);
            let (found, refused): (Vec<_>, Vec<_>) = values.into_iter().partition(Result::is_ok);
            assert_eq!((found.len(), refused.len()), (expected, 6 - expected), "{limit}");
            for error in refused {
                assert_eq!(error.unwrap_err().kind(), ErrorKind::LimitReached);
            }
        }
        db.flush(&FlushOptions::default()).unwrap();
    }
}
