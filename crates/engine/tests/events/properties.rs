//! Properties and statistics, compared with `ldb get_property` on the same database.

use karst_engine::{Db, HistogramKind, Options, ReadOptions, Statistics, Ticker};
use karst_testkit::rocksdb_tools::{db_bench, ldb};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

fn theirs(directory: &Path, name: &str) -> String {
    let text = ldb(directory, &["get_property", name], b"").unwrap();
    text.strip_prefix(&format!("{name}: ")).unwrap_or(&text).trim_end_matches('\n').to_owned()
}

/// Returns a map as `ldb get_property` prints it.
fn as_ldb(db: &Db, name: &str) -> Vec<String> {
    db.map_property(name).unwrap().iter().map(|(key, value)| format!("{name}.{key}: {value}")).collect()
}

fn check(flags: &[&str]) -> BTreeMap<String, String> {
    let directory = tempfile::tempdir().unwrap();
    let mut all = vec![
        "--benchmarks=fillrandom,deleterandom,overwrite",
        "--num=4000",
        "--write_buffer_size=100000",
        "--target_file_size_base=60000",
        "--max_bytes_for_level_base=150000",
        "--level0_stop_writes_trigger=1000",
        "--level0_slowdown_writes_trigger=1000",
    ];
    all.extend(flags);
    db_bench(directory.path(), &all).unwrap();
    let db = Db::open_read_only(directory.path(), &Options::new()).unwrap();
    let mut seen = BTreeMap::new();
    for name in [
        "rocksdb.levelstats",
        "rocksdb.sstables",
        "rocksdb.estimate-num-keys",
        "rocksdb.total-sst-files-size",
        "rocksdb.live-sst-files-size",
        "rocksdb.estimate-live-data-size",
        "rocksdb.num-files-at-level0",
        "rocksdb.num-files-at-level1",
        "rocksdb.compression-ratio-at-level0",
        "rocksdb.compression-ratio-at-level5",
        "rocksdb.num-entries-active-mem-table",
        "rocksdb.num-deletes-active-mem-table",
        "rocksdb.num-immutable-mem-table",
        "rocksdb.num-snapshots",
        "rocksdb.blob-stats",
        "rocksdb.num-blob-files",
        "rocksdb.total-blob-file-size",
        "rocksdb.live-blob-file-size",
        "rocksdb.num-running-compactions",
        "rocksdb.is-write-stopped",
        "rocksdb.background-errors",
        "rocksdb.min-log-number-to-keep",
        "rocksdb.num-live-versions",
        "rocksdb.is-file-deletions-enabled",
        "rocksdb.num-immutable-mem-table-flushed",
        "rocksdb.actual-delayed-write-rate",
        "rocksdb.num-running-flushes",
        "rocksdb.num-deletes-imm-mem-tables",
        "rocksdb.num-entries-imm-mem-tables",
        "rocksdb.live-blob-file-garbage-size",
        "rocksdb.live-sst-files-size-at-temperature0",
        "rocksdb.live-sst-files-size-at-temperature4",
    ] {
        let ours = db.property(name).unwrap_or_else(|| panic!("{name} is missing"));
        let theirs = theirs(directory.path(), name);
        assert_eq!(ours.trim_end_matches('\n'), theirs, "{name} {flags:?}");
        seen.insert(name.to_owned(), theirs);
    }
    // These depend on the options of the database, which ldb takes from the OPTIONS file only with
    // `--try_load_options`.
    for name in ["rocksdb.base-level", "rocksdb.estimate-pending-compaction-bytes"] {
        let text = ldb(directory.path(), &["get_property", "--try_load_options", name], b"").unwrap();
        let theirs = text.trim_end_matches('\n').strip_prefix(&format!("{name}: ")).unwrap().to_owned();
        assert_eq!(db.property(name).unwrap(), theirs, "{name} {flags:?}");
        seen.insert(name.to_owned(), theirs);
    }
    // ldb prints the sums as a map, under other names.
    let sums = theirs(directory.path(), "rocksdb.aggregated-table-properties");
    let ours = db.property("rocksdb.aggregated-table-properties").unwrap();
    for (theirs, ours_name) in
        [("num_entries", "# entries"), ("data_size", "data block size"), ("raw_key_size", "raw key size")]
    {
        let line = sums.lines().find_map(|line| line.split_once(&format!("{theirs}: "))).unwrap();
        assert!(ours.contains(&format!("; {ours_name}={}; ", line.1)), "{theirs}: {ours}");
    }
    // ldb prints maps in preference to text.
    let aggregated = "rocksdb.aggregated-table-properties";
    assert_eq!(as_ldb(&db, aggregated), sums.lines().collect::<Vec<_>>());
    let mut cf_stats = as_ldb(&db, "rocksdb.cfstats");
    // Compat: 7.8 names stalls differently, and lacks some of 11.8's rows.
    cf_stats.retain(|line| line.contains(".compaction.") && !line.contains("WPreCompGB"));
    let text = theirs(directory.path(), "rocksdb.cfstats");
    let their_lines: Vec<&str> = text.lines().filter(|line| line.contains(".compaction.")).collect();
    assert!(their_lines.len() > 20 && cf_stats.len() == their_lines.len(), "{their_lines:?}");
    for (ours, theirs) in cf_stats.iter().zip(their_lines) {
        // Scores differ, because ldb opened the database for writing, with its own options.
        assert_eq!(ours.split(':').next(), theirs.split(':').next());
        assert!(ours == theirs || ours.contains("Score"), "{ours}, theirs {theirs}");
    }
    assert_eq!(db.map_property("rocksdb.levelstats"), None);
    let levels: u64 = (0..7)
        .filter_map(|n| db.map_property(&format!("{aggregated}-at-level{n}")))
        .map(|map| map["num_entries"].parse::<u64>().unwrap())
        .sum();
    assert_eq!(levels.to_string(), db.map_property(aggregated).unwrap()["num_entries"]);
    assert_eq!(db.map_property(&format!("{aggregated}-at-level99")), None);
    assert!(db.property("rocksdb.stats").unwrap().contains("** Compaction Stats [default] **"));
    assert!(db.property("rocksdb.nonsense").is_none() && db.property("levelstats").is_none());
    assert!(db.property("rocksdb.num-files-at-level99").is_none());
    assert_eq!(db.int_property("rocksdb.block-cache-capacity"), Some(32 << 20));
    seen
}

#[test]
fn a_leveled_tree() {
    // A manual compaction, because db_bench may end before an automatic one has begun.
    let seen = check(&["--benchmarks=fillrandom,deleterandom,compact,overwrite"]);
    // RocksDB decides which level the files are in.
    let files_of =
        |line: &str| line.split_whitespace().map(|n| n.parse::<f64>().unwrap()).collect::<Vec<_>>();
    let levels = seen["rocksdb.levelstats"].lines().skip(2).map(files_of);
    assert!(levels.skip(1).any(|level| level[1] > 0.0), "{}", seen["rocksdb.levelstats"]);
}

#[test]
fn files_of_l0_only_and_blobs() {
    let seen = check(&[
        "--disable_auto_compactions",
        "--enable_blob_files",
        "--value_size=50",
        "--compression_type=none",
    ]);
    assert_ne!(seen["rocksdb.num-blob-files"], "0");
}

#[test]
fn snapshots_and_statistics_count() {
    let directory = tempfile::tempdir().unwrap();
    db_bench(directory.path(), &["--benchmarks=fillrandom,compact", "--num=3000"]).unwrap();
    let statistics = Arc::new(Statistics::default());
    let db = Db::open_read_only(directory.path(), &Options::new().statistics(statistics.clone())).unwrap();
    let snapshot = db.snapshot();
    assert_eq!(db.int_property("rocksdb.num-snapshots"), Some(1));
    assert_eq!(db.int_property("rocksdb.oldest-snapshot-sequence"), Some(snapshot.sequence_number()));
    assert!(db.int_property("rocksdb.oldest-snapshot-time").unwrap() > 1_600_000_000);
    let at = ReadOptions { snapshot: Some(snapshot), ..ReadOptions::new() };
    let key = |i: u64| [&i.to_be_bytes()[..], b"00000000"].concat();
    let found = (0..3000).filter(|i| db.get_opt(&at, key(*i)).unwrap().is_some()).count() as u64;
    drop(at);
    assert_eq!(db.int_property("rocksdb.num-snapshots"), Some(0));
    assert!(found > 1500);
    assert_eq!(statistics.ticker(Ticker::NumberKeysRead), 3000);
    assert_eq!(statistics.ticker(Ticker::BytesRead), found * 100);
    assert_eq!(statistics.histogram(HistogramKind::BytesPerRead).count(), found);
    let blocks = statistics.ticker(Ticker::BlockCacheDataMiss);
    assert!(blocks > 10 && statistics.ticker(Ticker::BlockCacheDataHit) + blocks <= 3000, "{blocks}");
    let line = format!("rocksdb.number.keys.read COUNT : {}\n", 3000);
    assert!(db.property("rocksdb.options-statistics").unwrap().contains(&line));
    let batch: Vec<_> = (0..64).map(key).collect();
    db.multi_get(&batch);
    assert_eq!(statistics.ticker(Ticker::NumberMultigetCalls), 1);
    assert_eq!(statistics.ticker(Ticker::NumberMultigetKeysRead), 64);
}
