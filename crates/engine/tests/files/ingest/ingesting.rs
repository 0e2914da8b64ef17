//! Effects of an ingested file: its level, its visibility, and its durability.

use super::*;
use karst_engine::io::block_on;
use karst_engine::{
    CompactRangeOptions, EventListener, ExternalFileIngestionInfo, FlushOptions, IngestExternalFileArg,
    IngestExternalFileOptions, WriteBatch, WriteOptions,
};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

fn options() -> IngestExternalFileOptions {
    IngestExternalFileOptions::default()
}

#[test]
fn ingested_entries_are_newer_than_all_that_was_written_and_older_than_all_that_will_be() {
    let how =
        in_memory().merge_operator(None, karst_engine::merge_operator::from_name("stringappend").unwrap());
    let db = Db::open("/db", &how).unwrap();
    db.put("in a table", "old").unwrap();
    db.put("deleted", "old").unwrap();
    db.flush(&FlushOptions::default()).unwrap();
    db.put("in memory", "old").unwrap();
    db.merge("list", "1").unwrap();
    let mut writer = SstFileWriter::create(&how).unwrap();
    writer.open("/file.sst").unwrap();
    writer.delete("deleted").unwrap();
    writer.put("in a table", "new").unwrap();
    writer.put("in memory", "new").unwrap();
    writer.merge("list", "2").unwrap();
    writer.put("spared", "new").unwrap();
    writer.delete_range("s", "t").unwrap();
    writer.finish().unwrap();
    db.put("sold", "old").unwrap();
    let before = db.snapshot();
    let (seen, at) = (all(&db), db.latest_sequence_number());
    db.ingest_external_file(&options(), ["/file.sst"]).unwrap();
    assert_eq!(db.latest_sequence_number(), at + 1);
    let ingested =
        entries(&[("in a table", "new"), ("in memory", "new"), ("list", "1,2"), ("spared", "new")]);
    assert_eq!(all(&db), ingested);
    for (key, value) in &ingested {
        assert_eq!(db.get(key).unwrap().as_deref(), Some(value.as_bytes()), "{key}");
    }
    let keys = ["deleted", "sold", "list"];
    let found: Vec<_> = db.multi_get(&keys).into_iter().map(|v| v.unwrap().map(|v| v.to_vec())).collect();
    assert_eq!(found, [None, None, Some(b"1,2".to_vec())]);
    assert_eq!(all_at(&db, &ReadOptions { snapshot: Some(before), ..ReadOptions::new() }), seen);
    db.merge("list", "3").unwrap();
    db.put("in memory", "newest").unwrap();
    let newest =
        entries(&[("in a table", "new"), ("in memory", "newest"), ("list", "1,2,3"), ("spared", "new")]);
    for _ in 0..2 {
        assert_eq!(all(&db), newest);
        db.compact_range(&CompactRangeOptions::default(), None, None).unwrap();
    }
    db.close().unwrap();
    assert_eq!(all(&Db::open("/db", &how).unwrap()), newest);
}

#[test]
fn what_is_in_the_log_only_is_replayed_once_beside_an_ingested_file() {
    let how =
        in_memory().merge_operator(None, karst_engine::merge_operator::from_name("stringappend").unwrap());
    let db = Db::open("/db", &how).unwrap();
    db.merge("a", "1").unwrap();
    db.merge("z", "1").unwrap();
    write_file(&how, "/file.sst", &[("m", "ingested")]);
    db.ingest_external_file(&options(), ["/file.sst"]).unwrap();
    assert_eq!(levels(&db), [6], "nothing of its range is in memory, so nothing is flushed");
    db.merge("a", "2").unwrap();
    db.close().unwrap();
    let db = Db::open("/db", &how).unwrap();
    assert_eq!(all(&db), entries(&[("a", "1,2"), ("m", "ingested"), ("z", "1")]));
    assert_eq!(db.latest_sequence_number(), 4);
}

#[test]
fn files_of_one_call_that_overlap_are_newer_in_their_order() {
    let how = in_memory();
    let db = Db::open("/db", &how).unwrap();
    write_file(&how, "/1.sst", &[("a", "1"), ("c", "1"), ("m", "1")]);
    write_file(&how, "/2.sst", &[("b", "2"), ("c", "2")]);
    write_file(&how, "/3.sst", &[("c", "3"), ("d", "3")]);
    write_file(&how, "/4.sst", &[("x", "4")]);
    db.ingest_external_file(&options(), ["/1.sst", "/2.sst", "/3.sst", "/4.sst"]).unwrap();
    assert_eq!(all(&db), entries(&[("a", "1"), ("b", "2"), ("c", "3"), ("d", "3"), ("m", "1"), ("x", "4")]));
    assert_eq!(levels(&db), [6, 0, 0, 6], "an empty tree has no level between the first and the last");
    assert_eq!(db.latest_sequence_number(), 3);
    db.compact_range(&CompactRangeOptions::default(), None, None).unwrap();
    assert_eq!(all(&db)["c"], "3");
}

/// Under every style of compaction, with existing tables, and with files that keep their sequence
/// numbers.
#[test]
fn files_that_overlap_are_taken_under_every_style_of_compaction() {
    for style in [
        "compaction_style=kCompactionStyleLevel;level_compaction_dynamic_level_bytes=false",
        "compaction_style=kCompactionStyleLevel;level_compaction_dynamic_level_bytes=true",
        "compaction_style=kCompactionStyleUniversal",
        "compaction_style=kCompactionStyleFIFO",
    ] {
        let how = in_memory().set_all(style).unwrap();
        let db = Db::open("/db", &how).unwrap();
        for (key, value) in [("b", "old"), ("k", "old")] {
            db.put(key, value).unwrap();
            db.flush(&FlushOptions::default()).unwrap();
        }
        let files = ["/1.sst", "/2.sst", "/3.sst", "/4.sst"];
        write_file(&how, files[0], &[("a", "1"), ("c", "1"), ("m", "1")]);
        write_file(&how, files[1], &[("b", "2"), ("c", "2")]);
        write_file(&how, files[2], &[("c", "3"), ("d", "3"), ("m", "3")]);
        write_file(&how, files[3], &[("c", "4"), ("x", "4")]);
        db.ingest_external_file(&options(), files).unwrap();
        let found =
            entries(&[("a", "1"), ("b", "2"), ("c", "4"), ("d", "3"), ("k", "old"), ("m", "3"), ("x", "4")]);
        assert_eq!(all(&db), found, "{style}");
        db.compact_range(&CompactRangeOptions::default(), None, None).unwrap();
        assert_eq!(all(&db), found, "{style}, compacted");
        db.close().unwrap();
        let db = Db::open("/db", &how).unwrap();
        assert_eq!(all(&db), found, "{style}, reopened");
        // Tables of a database, each newer than the one before.
        let source = Db::open("/source", &how).unwrap();
        for round in 0..3 {
            source.put(format!("y{round}"), "source").unwrap();
            source.put("yy", format!("{round}")).unwrap();
            source.put("z", "source").unwrap();
            source.flush(&FlushOptions::default()).unwrap();
        }
        let mut tables = source.live_files();
        tables.sort_by_key(|table| table.number);
        let tables: Vec<_> = tables.iter().map(|table| format!("/source/{:06}.sst", table.number)).collect();
        let kept = IngestExternalFileOptions { allow_db_generated_files: true, ..options() };
        db.ingest_external_file(&kept, tables).unwrap();
        assert_eq!(db.get("yy").unwrap().as_deref(), Some(&b"2"[..]), "{style}");
        db.compact_range(&CompactRangeOptions::default(), None, None).unwrap();
        assert_eq!(db.get("yy").unwrap().as_deref(), Some(&b"2"[..]), "{style}, compacted");
        assert_eq!(all(&db).len(), 12, "{style}");
    }
}

#[test]
fn files_for_several_families_come_at_once_to_readers_of_all() {
    let how = in_memory();
    let db = Db::open("/db", &how).unwrap();
    let other = db.create_column_family("other", &how).unwrap();
    let families = [db.default_column_family().clone(), other];
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..60 {
                let value = format!("{round:04}");
                write_file(&how, "/file.sst", &[("k", &value)]);
                let arg = |family| IngestExternalFileArg::new(family, ["/file.sst"], options());
                // Every third round also writes the key and value to memory.
                if round % 3 == 0 {
                    let mut batch = WriteBatch::new();
                    families.iter().for_each(|family| batch.put_cf(family, "k", &value).unwrap());
                    db.write(&WriteOptions::new(), &batch).unwrap();
                }
                db.ingest_external_files(&families.each_ref().map(arg)).unwrap();
            }
            done.store(true, Ordering::Release);
        });
        let mut newest = None;
        while !done.load(Ordering::Acquire) {
            let [a, b] = families.each_ref();
            let found = db.multi_get_cfs(&ReadOptions::new(), &[a, b], &["k", "k"]);
            let found: Vec<_> = found.into_iter().map(|v| v.unwrap().map(|v| v.to_vec())).collect();
            assert_eq!(found[0], found[1], "one without the other");
            assert!(found[0] >= newest, "an older one than was seen");
            newest = found[0].clone();
        }
    });
    assert_eq!(db.get("k").unwrap().as_deref(), Some(&b"0059"[..]));
}

/// A writer puts "a" before each ingestion of "b" and "c" after it: a reader of one of them also
/// sees those before.
#[test]
fn readers_see_writes_and_ingestions_in_their_order() {
    for text in ["unordered_write=false", "unordered_write=true;allow_concurrent_memtable_write=true"] {
        let how = in_memory().set_all(text).unwrap();
        let db = Db::open("/db", &how).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..100 {
                    let value = format!("{round:04}");
                    write_file(&how, "/file.sst", &[("b", &value)]);
                    db.put("a", &value).unwrap();
                    db.ingest_external_file(&options(), ["/file.sst"]).unwrap();
                    db.put("c", &value).unwrap();
                }
                done.store(true, Ordering::Release);
            });
            for reader in 0..2 {
                let (db, done) = (&db, &done);
                scope.spawn(move || {
                    while !done.load(Ordering::Acquire) {
                        let found = match reader {
                            0 => {
                                let found = db.multi_get(&["a", "b", "c"]);
                                let found = found.into_iter().map(|v| v.unwrap().map(|v| v.to_vec()));
                                found.collect::<Vec<_>>()
                            }
                            _ => {
                                let found = all(db);
                                let of = |key: &str| found.get(key).map(|v| v.clone().into_bytes());
                                ["a", "b", "c"].map(of).to_vec()
                            }
                        };
                        assert!(found[0] >= found[1] && found[1] >= found[2], "{text}: {found:?}");
                    }
                });
            }
        });
    }
}

#[test]
fn writers_go_on_while_files_are_ingested() {
    let how = in_memory();
    let db = Db::open("/db", &how).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..3 {
            let db = &db;
            scope.spawn(move || {
                for i in 0..2000 {
                    db.put(format!("{writer}-{i:05}"), "written").unwrap();
                }
            });
        }
        for file in 0..2 {
            let (db, how) = (&db, &how);
            scope.spawn(move || {
                for i in 0..30 {
                    let (path, key) = (format!("/{file}.sst"), format!("{file}-{:05}", 10 * i));
                    write_file(how, &path, &[(&key, "ingested"), (&format!("i{file}-{i:02}"), "ingested")]);
                    db.ingest_external_file(&options(), [path]).unwrap();
                }
            });
        }
    });
    let found = all(&db);
    assert_eq!(found.len(), 6000 + 60);
    assert!(found.values().filter(|value| *value == "ingested").count() >= 60);
    db.close().unwrap();
    assert_eq!(all(&Db::open("/db", &how).unwrap()), found);
}

/// While the log is locked, reads do not change, not by an ingested file either; and a lock waits
/// for a running ingestion.
#[test]
fn nothing_is_ingested_while_the_log_is_locked() {
    let how = in_memory();
    let db = Db::open("/db", &how).unwrap();
    write_file(&how, "/file.sst", &[("key", "ingested")]);
    db.lock_wal().unwrap();
    std::thread::scope(|scope| {
        let ingesting = scope.spawn(|| db.ingest_external_file(&options(), ["/file.sst"]));
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert!(!ingesting.is_finished() && all(&db).is_empty());
        db.unlock_wal().unwrap();
        ingesting.join().unwrap().unwrap();
    });
    assert_eq!(all(&db), entries(&[("key", "ingested")]));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in 0..50 {
                let path = format!("/{i}.sst");
                write_file(&how, &path, &[(&format!("{i:02}"), "ingested")]);
                db.ingest_external_file(&options(), [path]).unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        while !done.load(Ordering::Relaxed) {
            db.lock_wal().unwrap();
            let (seen, at) = (all(&db), db.latest_sequence_number());
            std::thread::yield_now();
            assert_eq!((all(&db), db.latest_sequence_number()), (seen, at));
            db.unlock_wal().unwrap();
        }
    });
    assert_eq!(all(&db).len(), 51);
}

/// A closed database's log is never unlocked, so no call may wait for that.
#[test]
fn an_ingestion_that_waits_for_the_log_ends_when_the_database_is_closed() {
    let how = in_memory();
    let db = Db::open("/db", &how).unwrap();
    write_file(&how, "/file.sst", &[("key", "ingested")]);
    db.lock_wal().unwrap();
    std::thread::scope(|scope| {
        let ingesting = scope.spawn(|| db.ingest_external_file(&options(), ["/file.sst"]));
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert!(!ingesting.is_finished());
        db.close().unwrap();
        let error = ingesting.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), karst_engine::ErrorKind::Closed, "{error}");
    });
    assert!(all(&Db::open("/db", &how).unwrap()).is_empty());
}

#[test]
fn a_file_is_copied_linked_or_moved() {
    let directory = tempfile::tempdir().unwrap();
    let how = Options::new().db(|db| db.create_if_missing = true);
    let db = Db::open(directory.path().join("db"), &how).unwrap();
    use std::os::unix::fs::MetadataExt;
    for (number, change) in [
        |_: &mut IngestExternalFileOptions| {},
        |options: &mut IngestExternalFileOptions| options.link_files = true,
        |options: &mut IngestExternalFileOptions| options.move_files = true,
    ]
    .into_iter()
    .enumerate()
    {
        let path = directory.path().join("file.sst");
        let key = format!("k{number}");
        write_file(&how, path.to_str().unwrap(), &[(&key, "v")]);
        let inode = std::fs::metadata(&path).unwrap().ino();
        let mut options = options();
        change(&mut options);
        db.ingest_external_file(&options, [&path]).unwrap();
        assert_eq!(path.exists(), number != 2);
        if number == 1 {
            // Replaces the linked path by another file.
            write_file(&how, path.to_str().unwrap(), &[("x", "y")]);
        }
        let newest = db.live_files().iter().map(|file| file.number).max().unwrap();
        let inside = directory.path().join(format!("db/{newest:06}.sst"));
        assert_eq!(std::fs::metadata(&inside).unwrap().ino() == inode, number != 0);
        db.verify_checksum().unwrap();
        assert_eq!(db.get(&key).unwrap().as_deref(), Some(&b"v"[..]));
    }
}

#[test]
fn a_file_on_another_device_is_copied_if_it_may_be() {
    let (directory, shm) = (tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap());
    let how = Options::new().db(|db| db.create_if_missing = true);
    let db = Db::open(directory.path().join("db"), &how).unwrap();
    let path = shm.path().join("file.sst");
    write_file(&how, path.to_str().unwrap(), &[("k", "v")]);
    let linked = IngestExternalFileOptions { link_files: true, ..options() };
    let no_copy = IngestExternalFileOptions { failed_move_fall_back_to_copy: false, ..linked };
    let error = db.ingest_external_file(&no_copy, [&path]).unwrap_err();
    assert!(error.to_string().contains("link"), "{error}");
    assert!(all(&db).is_empty());
    db.ingest_external_file(&linked, [&path]).unwrap();
    assert_eq!(all(&db), entries(&[("k", "v")]));
}

#[test]
fn without_a_sequence_number_a_file_must_not_meet_anything() {
    let how = in_memory();
    let db = Db::open("/db", &how).unwrap();
    write_file(&how, "/file.sst", &[("m", "ingested")]);
    let plain = IngestExternalFileOptions { allow_global_seqno: false, ..options() };
    db.ingest_external_file(&plain, ["/file.sst"]).unwrap();
    assert_eq!((db.latest_sequence_number(), all(&db)), (1, entries(&[("m", "ingested")])));
    let refused = db.ingest_external_file(&plain, ["/file.sst"]).unwrap_err();
    assert!(refused.to_string().contains("allow_global_seqno"), "{refused}");
    write_file(&how, "/other.sst", &[("x", "ingested")]);
    let snapshot = db.snapshot();
    assert!(db.ingest_external_file(&plain, ["/other.sst"]).is_err(), "a snapshot would see it");
    let seen = IngestExternalFileOptions { snapshot_consistency: false, ..plain };
    db.ingest_external_file(&seen, ["/other.sst"]).unwrap();
    assert!(all_at(&db, &ReadOptions { snapshot: Some(snapshot), ..ReadOptions::new() }).contains_key("x"));
    assert_eq!(db.latest_sequence_number(), 2, "one for each that came");
}

#[test]
fn files_go_behind_all_others_where_the_last_level_is_kept_free() {
    let how = in_memory();
    let refusing = Db::open("/refusing", &how).unwrap();
    write_file(&how, "/file.sst", &[("a", "history"), ("b", "history"), ("c", "history")]);
    let behind = IngestExternalFileOptions { ingest_behind: true, ..options() };
    assert!(refusing.ingest_external_file(&behind, ["/file.sst"]).is_err());
    let how = how.db(|db| db.allow_ingest_behind = true);
    let db = Db::open("/db", &how).unwrap();
    db.put("b", "written").unwrap();
    db.delete("c").unwrap();
    db.ingest_external_file(&behind, ["/file.sst"]).unwrap();
    let expected = entries(&[("a", "history"), ("b", "written")]);
    assert_eq!(all(&db), expected);
    db.flush(&FlushOptions::default()).unwrap();
    db.compact_range(&CompactRangeOptions::default(), None, None).unwrap();
    assert_eq!(all(&db), expected);
    assert!(db.ingest_external_file(&behind, ["/file.sst"]).is_err(), "twice in one place");
    write_file(&how, "/newer.sst", &[("n", "newer")]);
    db.ingest_external_file(&options(), ["/newer.sst"]).unwrap();
    assert!(levels(&db).last().unwrap() < &6, "the last level stays free: {:?}", levels(&db));
    db.close().unwrap();
    assert_eq!(all(&Db::open("/db", &how).unwrap())["a"], "history");
}

#[test]
fn a_file_for_the_last_level_is_refused_if_it_cannot_go_there() {
    let how = in_memory();
    let db = Db::open("/db", &how).unwrap();
    write_file(&how, "/file.sst", &[("a", "1"), ("c", "1")]);
    let last = IngestExternalFileOptions { fail_if_not_bottommost_level: true, ..options() };
    db.ingest_external_file(&last, ["/file.sst"]).unwrap();
    let error = db.ingest_external_file(&last, ["/file.sst"]).unwrap_err();
    assert_eq!(error.kind(), karst_engine::ErrorKind::Incomplete, "{error}");
    db.ingest_external_file(&options(), ["/file.sst"]).unwrap();
}

#[test]
fn tables_of_another_database_keep_their_sequence_numbers() {
    let how = in_memory();
    let from = Db::open("/from", &how).unwrap();
    for i in 0..100 {
        from.put(format!("k{:02}", i % 50), format!("{i}")).unwrap();
    }
    from.flush(&FlushOptions::default()).unwrap();
    let table = format!("/from/{:06}.sst", from.live_files()[0].number);
    let db = Db::open("/db", &how).unwrap();
    db.put("other", "here").unwrap();
    let error = db.ingest_external_file(&options(), [&table]).unwrap_err();
    assert!(error.to_string().contains("allow_db_generated_files"), "{error}");
    let any = IngestExternalFileOptions { allow_db_generated_files: true, ..options() };
    db.ingest_external_file(&any, [&table]).unwrap();
    let mut expected = all(&from);
    expected.insert("other".into(), "here".into());
    assert_eq!(all(&db), expected);
    assert_eq!(db.latest_sequence_number(), 100, "what is written next is newer than any of it");
    db.put("k00", "newest").unwrap();
    assert_eq!(db.get("k00").unwrap().as_deref(), Some(&b"newest"[..]));
    assert!(db.ingest_external_file(&any, [&table]).is_err(), "it meets what is there");
}

#[test]
fn blocks_that_are_looked_at_are_cached_or_not() {
    let how = in_memory().statistics(Arc::default());
    for fill_cache in [true, false] {
        let db = Db::open(format!("/db{fill_cache}"), &how).unwrap();
        write_file(&how, "/file.sst", &[("a", "1")]);
        db.ingest_external_file(&IngestExternalFileOptions { fill_cache, ..options() }, ["/file.sst"])
            .unwrap();
        let misses = |db: &Db| db.statistics().ticker(karst_engine::Ticker::BlockCacheDataMiss);
        let before = misses(&db);
        assert!(db.get("a").unwrap().is_some());
        assert_eq!(misses(&db) - before, u64::from(!fill_cache));
    }
}

#[derive(Debug, Default)]
struct Told(Mutex<Vec<ExternalFileIngestionInfo>>);

impl EventListener for Told {
    fn external_file_ingested(&self, file: &ExternalFileIngestionInfo) {
        self.0.lock().unwrap().push(file.clone());
    }
}

#[test]
fn listeners_log_and_statistics_tell_of_it() {
    let told = Arc::new(Told::default());
    let statistics = Arc::new(karst_engine::Statistics::default());
    let how = in_memory().event_listener(told.clone()).statistics(statistics.clone());
    let db = Db::open("/db", &how).unwrap();
    db.put("a", "old").unwrap();
    write_file(&how, "/file.sst", &[("a", "1"), ("b", "2")]);
    block_on(db.env(), db.ingest_external_file_async(&options(), ["/file.sst"])).unwrap();
    let infos = told.0.lock().unwrap().clone();
    let [info] = &infos[..] else { panic!("{infos:?}") };
    assert_eq!((&*info.column_family, info.global_seqno), ("default", 2));
    assert_eq!(info.external_file_path.to_str(), Some("/file.sst"));
    assert!(info.internal_file_path.starts_with("/db"), "{info:?}");
    assert_eq!(info.table_properties.num_entries, 2);
    for kind in [
        karst_engine::HistogramKind::IngestExternalFilePrepareTime,
        karst_engine::HistogramKind::IngestExternalFileRunTime,
    ] {
        assert_eq!(statistics.histogram(kind).count(), 1, "{kind:?}");
    }
    db.close().unwrap();
    let log = String::from_utf8(db.env().fs().read_file("/db/LOG".as_ref()).unwrap()).unwrap();
    assert!(log.contains("Ingested /file.sst as /db/"), "{log}");
    assert!(log.contains("reason External File Ingestion"), "{log}");
}

#[test]
fn optimistic_writers_notice_an_ingested_file() {
    let how = in_memory();
    let db = Db::open("/db", &how).unwrap();
    let hooks = karst_engine::TransactionHooks::of(&db);
    hooks.track_conflicts(1 << 10).unwrap();
    let since = db.latest_sequence_number();
    write_file(&how, "/file.sst", &[("a", "1")]);
    db.ingest_external_file(&options(), ["/file.sst"]).unwrap();
    let family = db.default_column_family().clone();
    let unchanged = [karst_engine::Unchanged { family, key: b"a".to_vec(), since }];
    let mut batch = WriteBatch::new();
    batch.put("a", "2").unwrap();
    let by = karst_engine::Caller::Thread;
    let outcome = block_on(db.env(), hooks.write_if_unchanged(by, &WriteOptions::new(), &batch, &unchanged));
    assert_eq!(outcome.unwrap_err().kind(), karst_engine::ErrorKind::Busy);
}
