//! Compaction filters through the public interface; RocksDB 7.8's `ldb` reads the remaining
//! entries.

use karst_engine::compaction_filter::{FilterContext, FilterDecision, FilterInput, TableCreationReason};
use karst_engine::{
    BottommostLevelCompaction, CompactRangeOptions, CompactionFilter, CompactionFilterFactory, Db, ErrorKind,
    FlushOptions, Options, Statistics, Ticker,
};
use karst_testkit::rocksdb_tools::ldb;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Filter that decides by the first byte of the value.
#[derive(Debug)]
struct ByValue;

impl CompactionFilter for ByValue {
    fn name(&self) -> &str {
        "my.ByValue"
    }

    fn filter(&self, _: u32, key: &[u8], entry: FilterInput<'_>) -> FilterDecision {
        let FilterInput::Value(value) = entry else { return FilterDecision::Keep };
        match value.first() {
            Some(b'r') => FilterDecision::Remove,
            Some(b'c') => FilterDecision::ChangeValue([b"changed ", value].concat()),
            Some(b's') => FilterDecision::RemoveAndSkipUntil([key, b"~"].concat()),
            _ => FilterDecision::Keep,
        }
    }
}

#[derive(Debug, Default)]
struct Factory {
    flushes: bool,
    contexts: Mutex<Vec<FilterContext>>,
}

impl CompactionFilterFactory for Factory {
    fn name(&self) -> &str {
        "my.Factory"
    }

    fn should_filter(&self, reason: TableCreationReason) -> bool {
        self.flushes || reason == TableCreationReason::Compaction
    }

    fn create(&self, context: &FilterContext) -> Option<Box<dyn CompactionFilter>> {
        self.contexts.lock().unwrap().push(*context);
        Some(Box::new(ByValue))
    }
}

fn options(text: &str) -> Options {
    let all = format!("disable_auto_compactions=true;compression=kNoCompression;format_version=5;{text}");
    Options::new().db(|db| db.create_if_missing = true).set_all(&all).unwrap()
}

fn everything() -> CompactRangeOptions {
    CompactRangeOptions {
        bottommost_level_compaction: BottommostLevelCompaction::ForceOptimized,
        ..CompactRangeOptions::default()
    }
}

fn fill(db: &Db) {
    for (key, value) in [
        ("k1", "keep"),
        ("k2", "remove"),
        ("k3", "change"),
        ("k4", "skip"),
        ("k4x", "passed over"),
        ("k5", "last"),
    ] {
        db.put(key, value).unwrap();
    }
}

fn scan(path: &Path) -> String {
    ldb(path, &["scan"], b"").unwrap()
}

const FILTERED: &str = "k1 : keep\nk3 : changed change\nk5 : last\n";

#[test]
fn a_compaction_asks_the_filter_and_rocksdb_reads_what_is_left() {
    let directory = tempfile::tempdir().unwrap();
    let statistics = Arc::new(Statistics::default());
    let filtered = options("").compaction_filter(None, Arc::new(ByValue)).statistics(statistics.clone());
    let db = Db::open(directory.path(), &filtered).unwrap();
    fill(&db);
    // Flushes do not call a filter instance.
    db.flush(&FlushOptions::default()).unwrap();
    assert_eq!(db.get("k2").unwrap().as_deref(), Some(&b"remove"[..]));
    let snapshot = db.snapshot();
    db.compact_range(&everything(), None, None).unwrap();
    assert!(db.get("k2").unwrap().is_none() && db.get("k4x").unwrap().is_none());
    let at = karst_engine::ReadOptions { snapshot: Some(snapshot), ..Default::default() };
    assert!(db.get_opt(&at, "k2").unwrap().is_none(), "a snapshot keeps nothing from a filter");
    assert_eq!(statistics.ticker(Ticker::CompactionKeyDropUser), 1);
    drop(at);
    db.close().unwrap();
    assert_eq!(scan(directory.path()), FILTERED);
    let text = karst_options(directory.path());
    assert!(text.contains("compaction_filter=my.ByValue\n"), "{text}");
    assert!(!text.contains("compaction_filter_factory="), "{text}");
    // Without the instance the database opens and no entry is filtered.
    let db = Db::open(directory.path(), &options("")).unwrap();
    db.put("k2", "remove").unwrap();
    db.compact_range(&everything(), None, None).unwrap();
    assert!(db.get("k2").unwrap().is_some());
    db.close().unwrap();
    assert!(
        !karst_options(directory.path()).contains("compaction_filter="),
        "what is not there is not named"
    );
}

fn karst_options(path: &Path) -> String {
    let names = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let newest =
        names.filter(|name| name.file_name().unwrap().to_str().unwrap().starts_with("OPTIONS-")).max();
    std::fs::read_to_string(newest.unwrap()).unwrap()
}

#[test]
fn a_factory_is_told_of_each_job_and_may_filter_flushes() {
    let directory = tempfile::tempdir().unwrap();
    let factory = Arc::new(Factory { flushes: true, ..Factory::default() });
    let db =
        Db::open(directory.path(), &options("").compaction_filter_factory(None, factory.clone())).unwrap();
    fill(&db);
    db.flush(&FlushOptions::default()).unwrap();
    assert!(db.get("k2").unwrap().is_none() && db.get("k4").unwrap().is_none());
    assert_eq!(db.get("k3").unwrap().as_deref(), Some(&b"changed change"[..]));
    db.put("k6", "r").unwrap();
    db.compact_range(&everything(), None, None).unwrap();
    let contexts = factory.contexts.lock().unwrap().clone();
    assert_eq!(contexts[0].reason, TableCreationReason::Flush);
    assert_eq!((contexts[0].input_start_level, contexts[0].column_family_id), (None, 0));
    let last = contexts.last().unwrap();
    assert_eq!(last.reason, TableCreationReason::Compaction);
    assert!(last.is_manual_compaction && last.is_full_compaction, "{last:?}");
    drop(contexts);
    db.close().unwrap();
    // The filter saw the value that it had changed itself and changed it again.
    let text = scan(directory.path());
    assert!(text.starts_with("k1 : keep\nk3 : changed ") && text.ends_with("k5 : last\n"), "{text}");
    assert!(karst_options(directory.path()).contains("compaction_filter_factory=my.Factory\n"));
}

#[test]
fn values_in_blob_files_are_filtered_and_become_garbage() {
    let directory = tempfile::tempdir().unwrap();
    let with_blobs =
        options("enable_blob_files=true;min_blob_size=4").compaction_filter(None, Arc::new(ByValue));
    let db = Db::open(directory.path(), &with_blobs).unwrap();
    fill(&db);
    db.flush(&FlushOptions::default()).unwrap();
    assert_eq!(db.int_property("rocksdb.live-blob-file-garbage-size"), Some(0));
    db.compact_range(&everything(), None, None).unwrap();
    // Records of k2, k3, k4 and k4x, each of 32 bytes plus key and value, which no table references
    // any more.
    let garbage = [("k2", "remove"), ("k3", "change"), ("k4", "skip"), ("k4x", "passed over")];
    let garbage: usize = garbage.iter().map(|(key, value)| 32 + key.len() + value.len()).sum();
    assert_eq!(db.int_property("rocksdb.live-blob-file-garbage-size"), Some(garbage as u64));
    assert_eq!(db.int_property("rocksdb.num-blob-files"), Some(2));
    db.close().unwrap();
    assert_eq!(scan(directory.path()), FILTERED);
    ldb(directory.path(), &["checkconsistency"], b"").unwrap();
}

#[test]
fn rocksdbs_own_filter_is_found_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let db =
        Db::open(directory.path(), &options("compaction_filter=RemoveEmptyValueCompactionFilter")).unwrap();
    db.put("a", "").unwrap();
    db.put("b", "v").unwrap();
    db.compact_range(&everything(), None, None).unwrap();
    db.close().unwrap();
    assert_eq!(scan(directory.path()), "b : v\n");
}

#[test]
fn parts_of_a_compaction_have_filters_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    let factory = Arc::new(Factory::default());
    let text = "max_subcompactions=4;target_file_size_base=20000;level0_file_num_compaction_trigger=100";
    let db =
        Db::open(directory.path(), &options(text).compaction_filter_factory(None, factory.clone())).unwrap();
    for round in 0..4 {
        for i in 0..2000 {
            let value = if i % 2 == 0 { format!("r{i:060}") } else { format!("k{i:060}") };
            db.put(format!("{:05}", i * 4 + round), value).unwrap();
        }
        db.flush(&FlushOptions::default()).unwrap();
    }
    db.compact_range(&everything(), None, None).unwrap();
    factory.contexts.lock().unwrap().clear();
    db.compact_range(&everything(), None, None).unwrap();
    assert!(factory.contexts.lock().unwrap().len() > 1, "one part only");
    db.close().unwrap();
    assert_eq!(scan(directory.path()).lines().count(), 4000);
}

#[test]
fn a_filter_that_respects_snapshots_is_refused() {
    #[derive(Debug)]
    struct Partial;
    impl CompactionFilter for Partial {
        fn name(&self) -> &str {
            "my.Partial"
        }
        fn filter(&self, _: u32, _: &[u8], _: FilterInput<'_>) -> FilterDecision {
            FilterDecision::Keep
        }
        fn ignore_snapshots(&self) -> bool {
            false
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let partial = options("").compaction_filter(None, Arc::new(Partial));
    let error = Db::open(directory.path(), &partial).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("my.Partial"), "{error}");
}
