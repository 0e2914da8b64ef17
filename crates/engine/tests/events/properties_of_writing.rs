//! Properties and statistics of a database that is written: the work of writers, logs, flushes and
//! compactions.

use karst_engine::{
    CompactFilesOptions, CompactRangeOptions, Db, FlushOptions, HistogramKind, Options, ReadOptions,
    Statistics, StatsLevel, Ticker, WriteBatch, WriteOptions,
};
use karst_testkit::eventually;
use std::path::Path;
use std::sync::Arc;

fn open(path: &Path, options: &str, statistics: &Arc<Statistics>) -> Db {
    let options = Options::new()
        .db(|db| db.create_if_missing = true)
        .statistics(statistics.clone())
        .set_all(options)
        .unwrap();
    Db::open(path, &options).unwrap()
}

fn line<'a>(text: &'a str, start: &str) -> &'a str {
    text.lines()
        .find(|line| line.starts_with(start))
        .unwrap_or_else(|| panic!("{start} is missing in {text}"))
}

fn fill(db: &Db, from: u32, to: u32) {
    for i in from..to {
        db.put(i.to_be_bytes(), format!("{i:0100}")).unwrap();
    }
}

#[test]
fn dbstats_counts_writes_and_the_interval_since_it_was_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let statistics = Arc::new(Statistics::default());
    let db = open(directory.path(), "", &statistics);
    fill(&db, 0, 50);
    let mut batch = WriteBatch::new();
    (0u32..30).for_each(|i| batch.put(i.to_be_bytes(), b"v").unwrap());
    db.write(&WriteOptions { sync: true, ..WriteOptions::default() }, &batch).unwrap();
    let unlogged = WriteOptions { disable_wal: true, ..WriteOptions::default() };
    db.put_opt(&unlogged, b"k", b"v").unwrap();
    let text = db.property("rocksdb.dbstats").unwrap();
    let writes = "writes: 52 writes, 81 keys, 52 commit groups, 1.0 writes per commit group, ingest: 0.0";
    assert!(line(&text, "Cumulative").starts_with(&format!("Cumulative {writes}")), "{text}");
    assert!(line(&text, "Interval").starts_with(&format!("Interval {writes}")), "{text}");
    assert!(
        line(&text, "Cumulative WAL").contains("WAL: 51 writes, 1 syncs, 51.00 writes per sync"),
        "{text}"
    );
    assert_eq!(line(&text, "Cumulative stall"), "Cumulative stall: 00:00:0.000 H:M:S, 0.0 percent");
    assert!(text.ends_with("Write Stall (count): write-buffer-manager-limit-stops: 0\n"), "{text}");
    let map = db.map_property("rocksdb.dbstats").unwrap();
    let of_map = |name: &str| map[name].clone();
    assert_eq!([of_map("db.user_writes_by_self"), of_map("db.user_keys_written")], ["52", "81"]);
    assert_eq!([of_map("db.user_writes_with_wal"), of_map("db.wal_syncs")], ["51", "1"]);
    assert!(map.contains_key("db.uptime") && map.len() == 10, "{map:?}");
    db.put(b"k", b"v").unwrap();
    let text = db.property("rocksdb.stats").unwrap();
    assert!(line(&text, "Cumulative writes").contains(": 53 writes, 82 keys"), "{text}");
    assert!(line(&text, "Interval writes").contains(": 1 writes, 1 keys, 1 commit groups"), "{text}");
    assert_eq!(statistics.ticker(Ticker::WriteDoneBySelf), 53);
    assert_eq!(statistics.ticker(Ticker::WriteDoneByOther), 0);
    assert_eq!(statistics.ticker(Ticker::WriteWithWal), 52);
    assert_eq!(statistics.ticker(Ticker::NumberKeysWritten), 82);
    assert_eq!(statistics.ticker(Ticker::WalFileSynced), 1);
    let log_bytes = statistics.ticker(Ticker::WalFileBytes);
    assert!(log_bytes > statistics.ticker(Ticker::BytesWritten) - 200, "{log_bytes}");
    assert_eq!(statistics.histogram(HistogramKind::DbWrite).count(), 53);
    assert_eq!(statistics.histogram(HistogramKind::WalFileSyncMicros).count(), 1);
    db.flush_wal(true).unwrap();
    assert_eq!(statistics.ticker(Ticker::WalFileSynced), 2, "a sync by a call counts once");
}

#[test]
fn jobs_are_counted_by_level_and_by_priority() {
    let directory = tempfile::tempdir().unwrap();
    let statistics = Arc::new(Statistics::default());
    let options = "disable_auto_compactions=true;compression=kLZ4Compression;enable_blob_files=true;min_blob_size=90;\
                   enable_blob_garbage_collection=true;blob_garbage_collection_age_cutoff=1.0";
    let db = open(directory.path(), options, &statistics);
    for round in 0..3 {
        fill(&db, round * 100, round * 100 + 500);
        for i in 0u32..40 {
            db.put([b"small", &i.to_be_bytes()[..]].concat(), b"a value that is short enough for a table")
                .unwrap();
        }
        db.flush(&FlushOptions::default()).unwrap();
    }
    let before = db.int_property("rocksdb.total-sst-files-size").unwrap();
    assert_eq!(db.int_property("rocksdb.num-blob-files"), Some(3));
    let bytes_on_disk = |suffix: &str| -> u64 {
        let files = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap());
        let files = files.filter(|file| file.file_name().to_str().unwrap().ends_with(suffix));
        files.map(|file| file.metadata().unwrap().len()).sum()
    };
    assert_eq!(before, bytes_on_disk(".sst"));
    assert_eq!(db.int_property("rocksdb.total-blob-file-size"), Some(bytes_on_disk(".blob")));
    assert_eq!(statistics.ticker(Ticker::BlobDbBlobFileBytesWritten), bytes_on_disk(".blob"));
    // An iterator keeps the version that it reads.
    let iterator = db.iter(&ReadOptions::default()).unwrap();
    let range = CompactRangeOptions::default();
    db.compact_range(&range, None, None).unwrap();
    // The job releases the version that it began with shortly after it has reported its end.
    eventually(Some(2), || db.int_property("rocksdb.num-live-versions"));
    let live = db.int_property("rocksdb.live-sst-files-size").unwrap();
    assert_eq!(db.int_property("rocksdb.total-sst-files-size"), Some(before + live));
    drop(iterator);
    assert_eq!(db.int_property("rocksdb.num-live-versions"), Some(1));
    assert_eq!(db.int_property("rocksdb.total-sst-files-size"), Some(live));

    let text = db.property("rocksdb.cfstats").unwrap();
    let columns = |row: &str| -> Vec<String> {
        let found = text.lines().find(|line| line.trim_start().starts_with(row));
        found.unwrap_or_else(|| panic!("{row}: {text}")).split_whitespace().map(str::to_owned).collect()
    };
    // Level, files, size and its unit, score, ..., number of jobs, average, input records, dropped
    // ones.
    assert_eq!(columns("L0")[17], "3", "{text}");
    assert_eq!(columns("L6")[17], "1", "{text}");
    assert_eq!(columns("L6")[19..21], ["1620", "880"], "{text}");
    assert_eq!(columns("High")[17], "3", "{text}");
    assert_eq!(columns("Sum")[17], "4", "{text}");
    assert!(text.contains("** Compaction Stats [default] **\nPriority    Files   Size"), "{text}");
    assert!(
        text.contains("Blob file count: 1, total size: 0.0 GB, garbage size: 0.0 GB, space amp: 1.0"),
        "{text}"
    );
    assert_eq!(
        line(&text, "Write Stall (count)"),
        db.property("rocksdb.cf-write-stall-stats").unwrap().trim_end()
    );
    assert_eq!(statistics.ticker(Ticker::CompactionKeyDropNewerEntry), 880);
    assert!(statistics.ticker(Ticker::CompactionCpuTotalTime) > 0);
    assert_eq!(statistics.ticker(Ticker::BlobDbGcNumKeysRelocated), 700);
    assert_eq!(statistics.ticker(Ticker::BlobDbGcBytesRelocated), 70_000);
    assert!(statistics.ticker(Ticker::FlushWriteBytes) >= before);
    assert!(statistics.ticker(Ticker::NumberBlockCompressed) >= 3);
    assert!(statistics.ticker(Ticker::BytesCompressedFrom) > statistics.ticker(Ticker::BytesCompressedTo));
    for (kind, count) in [
        (HistogramKind::FlushTime, 3),
        (HistogramKind::CompactionTime, 1),
        (HistogramKind::TableSyncMicros, 3),
        (HistogramKind::CompactionOutfileSyncMicros, 1),
        (HistogramKind::BlobDbBlobFileSyncMicros, 4),
    ] {
        assert_eq!(statistics.histogram(kind).count(), count, "{}", kind.name());
    }
}

#[test]
fn without_timers_no_time_is_taken() {
    let directory = tempfile::tempdir().unwrap();
    let statistics = Arc::new(Statistics::new(StatsLevel::ExceptTimers));
    let db = open(directory.path(), "", &statistics);
    fill(&db, 0, 100);
    db.flush(&FlushOptions::default()).unwrap();
    db.compact_range(&CompactRangeOptions::default(), None, None).unwrap();
    for kind in HistogramKind::all().filter(|kind| kind.name().contains("micros")) {
        assert_eq!(statistics.histogram(kind).count(), 0, "{}", kind.name());
    }
    assert_eq!(statistics.ticker(Ticker::NumberKeysWritten), 100);
}

#[test]
fn stalls_are_counted_by_reason() {
    let directory = tempfile::tempdir().unwrap();
    let statistics = Arc::new(Statistics::default());
    let options =
        "level0_file_num_compaction_trigger=2;level0_slowdown_writes_trigger=2;level0_stop_writes_trigger=50";
    let db = open(directory.path(), options, &statistics);
    for round in 0..2 {
        fill(&db, 0, round + 1);
        db.flush(&FlushOptions::default()).unwrap();
    }
    // Compat: as in RocksDB, each check of a family in a stall condition counts; the flush made at
    // least one before the compaction could end the condition.
    let text = db.property("rocksdb.cf-write-stall-stats").unwrap();
    let count = |name: &str| -> u64 {
        let count =
            text.split([',', '\n']).find_map(|part| part.trim().strip_prefix(name)?.strip_prefix(": "));
        count.unwrap_or_else(|| panic!("{name}: {text}")).parse().unwrap()
    };
    assert!(count("l0-file-count-limit-delays") >= 1, "{text}");
    assert_eq!(count("total-delays"), count("l0-file-count-limit-delays"));
    assert_eq!(count("total-stops"), 0);
    let interval = format!("interval: {} total count\n", count("total-delays"));
    assert!(text.ends_with(&interval), "{text}");
}

/// A deletion is dropped, and counted, if no file below has its key, although others have keys
/// around it.
#[test]
fn deletions_that_go_above_the_bottom_are_counted() {
    let statistics = Arc::new(Statistics::new(StatsLevel::All));
    let directory = tempfile::tempdir().unwrap();
    let db = open(directory.path(), "disable_auto_compactions=true", &statistics);
    let flush = || db.flush(&FlushOptions::default()).unwrap();
    for (first, last) in [("a", "b"), ("y", "z")] {
        db.put(first, "1").unwrap();
        db.put(last, "1").unwrap();
        flush();
        let range = CompactRangeOptions { change_level: true, target_level: Some(6), ..Default::default() };
        db.compact_range(&range, Some(first.as_bytes()), Some(last.as_bytes())).unwrap();
    }
    for value in ["2", "3"] {
        db.put("a", value).unwrap();
        match value {
            "2" => db.put("m", value).unwrap(),
            _ => db.delete("m").unwrap(),
        }
        db.put("z", value).unwrap();
        flush();
    }
    let upper: Vec<u64> =
        db.live_files().iter().filter(|file| file.level == Some(0)).map(|file| file.number).collect();
    assert_eq!(upper.len(), 2);
    db.compact_files(&CompactFilesOptions::default(), db.default_column_family(), &upper, 1).unwrap();
    assert_eq!(statistics.ticker(Ticker::CompactionOptimizedDelDropObsolete), 1);
    assert_eq!(statistics.ticker(Ticker::CompactionKeyDropObsolete), 1);
    assert_eq!(db.get("m").unwrap(), None);
}
