//! Manual operations on files: deleting those of a range, suggesting them for compaction,
//! compacting named ones; and tables that a collector marks for compaction.

use karst_engine::compaction_filter::{FilterDecision, FilterInput};
use karst_engine::{
    BottommostLevelCompaction, CompactFilesOptions, CompactOnDeletion, CompactRangeOptions, CompactionFilter,
    Db, ErrorKind, FlushOptions, Options, WaitForCompactOptions,
};
use karst_testkit::rocksdb_tools::ldb;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

fn open(path: &Path, text: &str) -> Db {
    let options = Options::new().db(|db| db.create_if_missing = true);
    Db::open(path, &options.set_all(text).unwrap()).unwrap()
}

fn level(db: &Db, level: u32) -> Vec<(String, String, u64)> {
    let text = |key: &[u8]| String::from_utf8(key.to_vec()).unwrap();
    let files = db.live_files();
    let files = files.iter().filter(|file| file.level == Some(level));
    files.map(|file| (text(&file.smallest_key), text(&file.largest_key), file.number)).collect()
}

/// Writes keys k000 to k399 to several files on L1, and one more file to L0.
fn several_files(db: &Db) {
    for i in 0..400 {
        db.put(format!("k{i:03}"), [b'v'; 100]).unwrap();
    }
    db.flush(&FlushOptions::default()).unwrap();
    let to_l1 = CompactRangeOptions {
        change_level: true,
        target_level: Some(1),
        bottommost_level_compaction: BottommostLevelCompaction::Force,
        ..CompactRangeOptions::default()
    };
    db.compact_range(&to_l1, None, None).unwrap();
    db.put("k200", "newer").unwrap();
    db.flush(&FlushOptions::default()).unwrap();
}

const SMALL: &str = "compression=kNoCompression;format_version=5;target_file_size_base=8000;disable_auto_compactions=true;\
                     level_compaction_dynamic_level_bytes=false;num_levels=4";

#[test]
fn files_within_a_range_are_deleted_and_rocksdb_finds_the_rest() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(directory.path(), SMALL);
    several_files(&db);
    let before = level(&db, 1);
    assert!(before.len() > 3, "{before:?}");
    let family = db.default_column_family();
    // Range from the second file's first key to the third's last.
    let (begin, end) = (before[1].0.as_bytes(), before[2].1.as_bytes());
    db.delete_files_in_ranges(family, &[(Some(begin), Some(end))], false).unwrap();
    let after = level(&db, 1);
    assert_eq!(after.len(), before.len() - 1, "the third file ends with the range");
    db.delete_files_in_ranges(family, &[(Some(begin), Some(end))], true).unwrap();
    assert_eq!(level(&db, 1).len(), before.len() - 2);
    assert!(db.get(&before[1].0).unwrap().is_none() && db.get(&before[0].0).unwrap().is_some());
    db.delete_files_in_ranges(family, &[(None, None)], true).unwrap();
    assert_eq!((level(&db, 1).len(), level(&db, 0).len()), (0, 1), "L0 stays");
    assert_eq!(db.get("k200").unwrap().as_deref(), Some(&b"newer"[..]));
    db.close().unwrap();
    assert_eq!(ldb(directory.path(), &["scan"], b"").unwrap(), "k200 : newer\n");
    let tables = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path());
    assert_eq!(tables.filter(|path| path.extension().is_some_and(|e| e == "sst")).count(), 1);
    let read_only = Db::open_read_only(directory.path(), &Options::new()).unwrap();
    let refused = read_only.delete_files_in_ranges(read_only.default_column_family(), &[(None, None)], true);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn suggested_files_move_down() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(directory.path(), SMALL);
    several_files(&db);
    let family = db.default_column_family();
    // No level below L1 has files, and suggestions do not compact the deepest level.
    db.suggest_compact_range(family, Some(b"k390"), None).unwrap();
    db.enable_auto_compaction(&[family]).unwrap();
    db.wait_for_compact(&WaitForCompactOptions::default()).unwrap();
    assert_eq!(level(&db, 0).len(), 1, "k200 does not overlap");
    db.suggest_compact_range(family, Some(b"k100"), Some(b"k300")).unwrap();
    db.wait_for_compact(&WaitForCompactOptions::default()).unwrap();
    assert_eq!(level(&db, 0).len(), 0);
    assert_eq!(db.get("k200").unwrap().as_deref(), Some(&b"newer"[..]));
}

#[test]
fn named_files_are_checked() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(directory.path(), SMALL);
    several_files(&db);
    let (family, options) = (db.default_column_family(), CompactFilesOptions::default());
    let (l0, l1) = (level(&db, 0), level(&db, 1));
    let refuse = |files: &[u64], output: usize, what: &str| {
        let error = db.compact_files(&options, family, files, output).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(what), "{error}");
    };
    refuse(&[], 1, "at least one file");
    refuse(&[4711], 1, "4711");
    refuse(&[l1[0].2], 0, "below the output level");
    refuse(&[l0[0].2], 4, "exceeds 3");
    let made = db.compact_files(&options, family, &[l0[0].2], 1).unwrap();
    assert!(!made.is_empty() && level(&db, 0).is_empty());
    assert_eq!(level(&db, 1).len(), l1.len(), "one file of L1 went along");
    let made = db.compact_files(&options, family, &[l1[0].2], 2).unwrap();
    assert_eq!(level(&db, 2).iter().map(|file| file.2).collect::<Vec<_>>(), made);
}

/// Filter that keeps all entries, and blocks at key k000 until `go_on` receives.
#[derive(Debug)]
struct Halting {
    came: SyncSender<()>,
    go_on: Mutex<Receiver<()>>,
}

impl CompactionFilter for Halting {
    fn name(&self) -> &str {
        "Halting"
    }

    fn filter(&self, _: u32, key: &[u8], _: FilterInput<'_>) -> FilterDecision {
        if key == b"k000" {
            self.came.send(()).unwrap();
            self.go_on.lock().unwrap().recv().unwrap();
        }
        FilterDecision::Keep
    }
}

#[test]
fn files_that_a_compaction_has_may_be_tried_again() {
    let directory = tempfile::tempdir().unwrap();
    let ((came, at_it), (go_on, halted)) = (sync_channel(8), sync_channel(8));
    let filter = Arc::new(Halting { came, go_on: Mutex::new(halted) });
    let options = Options::new().db(|db| db.create_if_missing = true).compaction_filter(None, filter);
    let db = Db::open(directory.path(), &options.set_all(SMALL).unwrap()).unwrap();
    db.put("k000", "v").unwrap();
    db.flush(&FlushOptions::default()).unwrap();
    let (family, how) = (db.default_column_family(), CompactFilesOptions::default());
    let file = level(&db, 0)[0].2;
    std::thread::scope(|scope| {
        let first = scope.spawn(|| db.compact_files(&how, family, &[file], 1));
        at_it.recv().unwrap();
        let error = db.compact_files(&how, family, &[file], 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TryAgain, "{error}");
        go_on.send(()).unwrap();
        first.join().unwrap().unwrap();
    });
    // A retry succeeds, as `TryAgain` promises, because the files are no longer being compacted.
    go_on.send(()).unwrap();
    db.compact_files(&how, family, &[level(&db, 1)[0].2], 2).unwrap();
    assert_eq!(level(&db, 2).len(), 1);
}

#[test]
fn tables_of_deletions_ask_for_their_compaction() {
    let directory = tempfile::tempdir().unwrap();
    let rule = CompactOnDeletion { window_size: 128, deletion_trigger: 50, ..CompactOnDeletion::default() };
    let options = Options::new().db(|db| db.create_if_missing = true).compact_on_deletion(rule);
    let text = "level0_file_num_compaction_trigger=10;level_compaction_dynamic_level_bytes=false";
    let db = Db::open(directory.path(), &options.set_all(text).unwrap()).unwrap();
    for i in 0..300 {
        db.put(format!("k{i:03}"), "v").unwrap();
    }
    db.flush(&FlushOptions::default()).unwrap();
    let to_l1 =
        CompactRangeOptions { change_level: true, target_level: Some(1), ..CompactRangeOptions::default() };
    db.compact_range(&to_l1, None, None).unwrap();
    // Too few deletions for a mark: the table is not compacted.
    (0..40).for_each(|i| db.delete(format!("k{i:03}")).unwrap());
    db.flush(&FlushOptions::default()).unwrap();
    db.wait_for_compact(&WaitForCompactOptions::default()).unwrap();
    assert_eq!(level(&db, 0).len(), 1);
    (100..200).for_each(|i| db.delete(format!("k{i:03}")).unwrap());
    db.flush(&FlushOptions::default()).unwrap();
    db.wait_for_compact(&WaitForCompactOptions::default()).unwrap();
    assert_eq!(level(&db, 0).len(), 0, "L0 went to L1, far below its trigger");
    db.close().unwrap();
    let options = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path());
    let newest = options.filter(|path| path.to_str().unwrap().contains("OPTIONS-")).max().unwrap();
    let text = std::fs::read_to_string(newest).unwrap();
    let wanted =
        "table_properties_collectors={id=CompactOnDeletionCollector;window_size=128;deletion_trigger=50;";
    assert!(text.contains(wanted), "{text}");
}

#[test]
fn manual_compactions_are_cancelled_and_refused_while_they_are_disabled() {
    let directory = tempfile::tempdir().unwrap();
    let ((came, at_it), (go_on, halted)) = (sync_channel(8), sync_channel(8));
    let filter = Arc::new(Halting { came, go_on: Mutex::new(halted) });
    let options = Options::new().db(|db| db.create_if_missing = true).compaction_filter(None, filter);
    let many =
        "disable_auto_compactions=true;level0_stop_writes_trigger=1000;level0_slowdown_writes_trigger=1000";
    let options = options.set_all(SMALL).unwrap().set_all(many).unwrap();
    let db = Db::open(directory.path(), &options).unwrap();
    (0..6_000).for_each(|n| db.put(format!("k{n:03}"), "v".repeat(50)).unwrap());
    db.flush(&FlushOptions::default()).unwrap();
    let family = db.default_column_family();
    let files: Vec<u64> = level(&db, 0).iter().map(|file| file.2).collect();
    let before = db.live_files().len();
    let force = CompactRangeOptions {
        bottommost_level_compaction: BottommostLevelCompaction::Force,
        ..CompactRangeOptions::default()
    };
    let refused = |error: karst_engine::Error| assert_eq!(error.kind(), ErrorKind::Incomplete, "{error}");
    refused_unless_disabled(&db);
    std::thread::scope(|scope| {
        let running = scope.spawn(|| db.compact_files(&CompactFilesOptions::default(), family, &files, 1));
        at_it.recv().unwrap();
        let disabling = scope.spawn(|| db.disable_manual_compaction());
        // New manual compactions are refused at once, although one is still running.
        while db.compact_range(&force, Some(b"x"), None).is_ok() {
            std::thread::yield_now();
        }
        assert!(!disabling.is_finished(), "it waits until none runs");
        go_on.send(()).unwrap();
        disabling.join().unwrap().unwrap();
        refused(running.join().unwrap().unwrap_err());
    });
    assert_eq!(db.live_files().len(), before, "the tree is as it was");
    db.disable_manual_compaction().unwrap();
    refused(db.compact_range(&force, None, None).unwrap_err());
    refused(db.compact_files(&CompactFilesOptions::default(), family, &files, 1).unwrap_err());
    db.enable_manual_compaction().unwrap();
    refused(db.compact_range(&force, None, None).unwrap_err());
    // Deletion of whole files is still allowed.
    db.delete_files_in_ranges(family, &[(Some(b"x"), None)], false).unwrap();
    db.enable_manual_compaction().unwrap();
    refused_unless_disabled(&db);
    (0..8).for_each(|_| go_on.send(()).unwrap());
    db.compact_range(&force, None, None).unwrap();
    assert!(level(&db, 0).is_empty() && db.get("k5999").unwrap().is_some());
}

/// One automatic and one manual compaction, both blocked in the middle.
#[test]
fn all_compactions_are_aborted_and_none_begins_until_they_are_resumed() {
    let directory = tempfile::tempdir().unwrap();
    let ((came, at_it), (go_on, halted)) = (sync_channel(64), sync_channel(64));
    let filter = Arc::new(Halting { came, go_on: Mutex::new(halted) });
    let options = Options::new().db(|db| db.create_if_missing = true).compaction_filter(None, filter);
    let text = format!("{SMALL};disable_auto_compactions=false");
    let db = Db::open(directory.path(), &options.set_all(&text).unwrap()).unwrap();
    let family = db.default_column_family();
    let wrong = db.resume_all_compactions().unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::InvalidArgument);
    let refused = |error: karst_engine::Error| assert_eq!(error.kind(), ErrorKind::Incomplete, "{error}");
    let force = CompactRangeOptions {
        bottommost_level_compaction: BottommostLevelCompaction::Force,
        ..CompactRangeOptions::default()
    };
    db.abort_all_compactions().unwrap();
    // Files gather in L0 without being compacted.
    for round in 0..6 {
        db.put("k000", format!("{round}")).unwrap();
        // Many entries, because a compaction checks for an abort only now and then.
        (1000..2000).for_each(|n| db.put(format!("k{n}"), "v").unwrap());
        db.put("z", "z").unwrap();
        db.flush(&FlushOptions::default()).unwrap();
    }
    refused(db.wait_for_compact(&WaitForCompactOptions::default()).unwrap_err());
    refused(db.compact_range(&force, None, None).unwrap_err());
    let files: Vec<u64> = level(&db, 0).iter().map(|file| file.2).collect();
    assert_eq!(files.len(), 6);
    refused(db.compact_files(&CompactFilesOptions::default(), family, &files, 1).unwrap_err());
    db.abort_all_compactions().unwrap();
    db.resume_all_compactions().unwrap();
    refused(db.compact_range(&force, None, None).unwrap_err());

    // Two calls, because aborts are counted. The due compaction begins and is aborted.
    db.resume_all_compactions().unwrap();
    at_it.recv().unwrap();
    std::thread::scope(|scope| {
        let aborting = scope.spawn(|| db.abort_all_compactions());
        while db.compact_range(&force, Some(b"x"), Some(b"y")).err().is_none() {
            std::thread::yield_now();
        }
        assert!(!aborting.is_finished(), "it waits until none runs");
        go_on.send(()).unwrap();
        aborting.join().unwrap().unwrap();
    });
    assert_eq!(level(&db, 0).len(), 6, "the tree is as it was");
    let tables = || {
        let paths = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path());
        paths.filter(|path| path.extension().is_some_and(|end| end == "sst")).count()
    };
    // Files are removed in the background.
    let began = Instant::now();
    while tables() != db.live_files().len() {
        assert!(began.elapsed() < Duration::from_secs(60), "what it wrote is still there");
        std::thread::sleep(Duration::from_millis(1));
    }

    (0..64).for_each(|_| go_on.try_send(()).unwrap());
    db.resume_all_compactions().unwrap();
    db.wait_for_compact(&WaitForCompactOptions::default()).unwrap();
    assert!(level(&db, 0).is_empty());
    assert_eq!(db.get("k000").unwrap().unwrap(), "5");
}

fn refused_unless_disabled(db: &Db) {
    assert_eq!(db.enable_manual_compaction().unwrap_err().kind(), ErrorKind::InvalidArgument);
}
