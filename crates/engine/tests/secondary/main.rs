//! Secondary instances: they show states that the primary had, during any operation of the primary,
//! and write nothing to its directory.
//!
//! The long form (`KARST_LONG_TESTS=1`, `cargo xtask soak`) runs two processes for minutes and
//! kills the primary again and again.

mod errors;
mod interop;
mod load;
mod processes;
mod torn;

use karst_engine::{
    BottommostLevelCompaction, CompactRangeOptions, Db, ErrorKind, FlushOptions, Options, ReadOptions,
    WriteBatch, WriteOptions,
};
use karst_testkit::panics::panics;
use std::path::Path;
use tempfile::TempDir;

/// A primary, and the directory for its secondaries.
struct Pair {
    primary: Db,
    options: Options,
    directory: TempDir,
}

impl Pair {
    fn new(options: &str) -> Self {
        let options = Options::new()
            .set_all(&format!(
                "create_if_missing=true;create_missing_column_families=true;merge_operator=uint64add;{options}"
            ))
            .unwrap();
        let directory = tempfile::tempdir().unwrap();
        let primary = Db::open_cf(directory.path().join("db"), &options, &["default", "other"]).unwrap();
        Self { primary, options, directory }
    }

    fn path(&self) -> std::path::PathBuf {
        self.directory.path().join("db")
    }

    fn secondary(&self, name: &str) -> Db {
        Db::open_as_secondary(self.path(), self.directory.path().join(name), &self.options).unwrap()
    }

    /// Writes the next batch, which increments both families, by a put and by a merge.
    fn step(&self, number: u64) {
        step(&self.primary, number, &WriteOptions::new()).unwrap();
    }

    fn flush(&self) {
        self.primary.flush_cfs(&FlushOptions::default(), &[self.primary.default_column_family()]).unwrap();
    }
}

fn step(db: &Db, number: u64, options: &WriteOptions) -> karst_engine::Result<()> {
    let mut batch = WriteBatch::new();
    for family in ["default", "other"] {
        let family = db.column_family(family).unwrap();
        batch.put_cf(&family, "number", number.to_le_bytes())?;
        batch.put_cf(&family, format!("key{:04}", number % 300), number.to_le_bytes())?;
        batch.merge_cf(&family, "count", 1u64.to_le_bytes())?;
        batch.put_cf(&family, "padding", vec![b'p'; 100])?;
    }
    db.write(options, &batch)
}

fn as_number(value: Option<karst_engine::Value>) -> u64 {
    value.map_or(0, |value| u64::from_le_bytes(value[..].try_into().unwrap()))
}

/// Returns the step that a database shows; every way of reading must agree.
#[track_caller]
fn shown(db: &Db, read: &ReadOptions) -> u64 {
    let families = ["default", "other"].map(|name| db.column_family(name).unwrap());
    let [first, second] = &families;
    let keys = ["number", "count", "number", "count"];
    let all = db.multi_get_cfs(read, &[first, first, second, second], &keys);
    let numbers: Vec<u64> = all.into_iter().map(|value| as_number(value.unwrap())).collect();
    let number = numbers[0];
    assert_eq!(numbers, [number; 4], "number and count in both families");
    if read.snapshot.is_some() {
        for family in &families {
            for key in ["number", "count"] {
                assert_eq!(as_number(db.get_cf(read, family, key).unwrap()), number, "{key}");
            }
        }
    }
    number
}

/// Like `shown`, but by an iterator over all keys.
fn scanned(db: &Db, family: &str, read: &ReadOptions) -> u64 {
    let mut iter = db.iter_cf(read, &db.column_family(family).unwrap()).unwrap();
    let (mut found, mut count, mut keys) = (0, 0, Vec::new());
    iter.seek_to_first().unwrap();
    while iter.valid() {
        let value = || u64::from_le_bytes(iter.value().try_into().unwrap());
        match iter.key() {
            b"number" => found = value(),
            b"count" => count = value(),
            b"padding" => {}
            _ => keys.push(value()),
        }
        iter.next().unwrap();
    }
    keys.sort_unstable();
    let wanted: Vec<u64> = (found.saturating_sub(299).max(1)..=found).collect();
    assert_eq!((count, keys), (found, wanted), "what is shown of step {found} of {family}");
    found
}

fn names(path: &Path) -> Vec<(String, u64)> {
    let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
    // Files that are removed meanwhile are left out.
    let named = |entry: std::fs::DirEntry| {
        Some((entry.file_name().into_string().unwrap(), entry.metadata().ok()?.len()))
    };
    let mut names: Vec<_> = entries.filter_map(named).collect();
    names.sort();
    names
}

#[test]
fn it_shows_what_the_primary_has_written_when_it_catches_up() {
    let before = panics();
    let pair = Pair::new("");
    (1..=10).for_each(|number| pair.step(number));
    let db = pair.secondary("second");
    let read = ReadOptions::new();
    assert_eq!(shown(&db, &read), 10);
    pair.step(11);
    assert_eq!(shown(&db, &read), 10, "without a catch-up");
    let snapshot = ReadOptions { snapshot: Some(db.snapshot()), ..ReadOptions::new() };
    let mut iter = db.iter(&read).unwrap();
    db.try_catch_up_with_primary().unwrap();
    assert_eq!((shown(&db, &read), shown(&db, &snapshot)), (11, 10));
    // Entries that moved to tables count once, and the snapshot is unchanged.
    pair.flush();
    (12..=20).for_each(|number| pair.step(number));
    let range = CompactRangeOptions::default();
    pair.primary.compact_range(&range, None, None).unwrap();
    karst_io_block(&db);
    assert_eq!((shown(&db, &read), shown(&db, &snapshot)), (20, 10));
    assert_eq!((scanned(&db, "default", &read), scanned(&db, "other", &snapshot)), (20, 10));
    pair.flush();
    pair.primary.compact_range(&range, None, None).unwrap();
    pair.step(21);
    db.try_catch_up_with_primary().unwrap();
    assert_eq!((scanned(&db, "other", &read), scanned(&db, "default", &snapshot)), (21, 10));
    iter.seek("number").unwrap();
    assert_eq!(iter.value(), 10u64.to_le_bytes());
    db.refresh(&mut iter, db.default_column_family(), None).unwrap();
    iter.seek("number").unwrap();
    assert_eq!(iter.value(), 21u64.to_le_bytes());
    assert_eq!(db.latest_sequence_number(), pair.primary.latest_sequence_number());
    let of = |db: &Db| db.live_files().into_iter().map(|file| file.name).collect::<Vec<_>>();
    assert_eq!(of(&db), of(&pair.primary));
    assert_eq!(db.int_property("rocksdb.num-immutable-mem-table"), Some(0));
    assert_eq!(panics(), before);
}

/// Catches up by the asynchronous call.
fn karst_io_block(db: &Db) {
    karst_io::block_on(db.env(), db.try_catch_up_with_primary_async()).unwrap();
}

#[test]
fn it_goes_on_over_restarts_of_the_primary_and_needs_none() {
    let mut pair = Pair::new("");
    pair.step(1);
    let db = pair.secondary("second");
    for number in 2..8u64 {
        let path = pair.path();
        pair.primary.close().unwrap();
        if number.is_multiple_of(2) {
            db.try_catch_up_with_primary().unwrap();
            assert_eq!(shown(&db, &ReadOptions::new()), number - 1, "without a primary");
        }
        pair.primary = Db::open(&path, &pair.options).unwrap();
        pair.step(number);
        db.try_catch_up_with_primary().unwrap();
        assert_eq!(shown(&db, &ReadOptions::new()), number);
        assert_eq!(scanned(&db, "other", &ReadOptions::new()), number);
    }
}

/// The primary removes files that a snapshot and an iterator of the secondary read, and begins new
/// MANIFESTs.
#[test]
fn snapshots_keep_their_files_over_new_manifests() {
    for blobs in ["false", "true"] {
        for manifests in 0..3 {
            let when = format!("blob files {blobs}, {manifests} MANIFESTs");
            let mut pair = Pair::new(&format!("enable_blob_files={blobs}"));
            let path = pair.path();
            pair.primary.put("key", "first").unwrap();
            pair.flush();
            let db = pair.secondary("second");
            let mut iter = db.iter(&ReadOptions::new()).unwrap();
            let snapshot = ReadOptions { snapshot: Some(db.snapshot()), ..ReadOptions::new() };
            for _ in 0..manifests {
                pair.primary.close().unwrap();
                pair.primary = Db::open(&path, &pair.options).unwrap();
                db.try_catch_up_with_primary().unwrap();
            }
            pair.primary.put("key", "second").unwrap();
            pair.flush();
            let all = CompactRangeOptions {
                bottommost_level_compaction: BottommostLevelCompaction::Force,
                ..CompactRangeOptions::default()
            };
            pair.primary.compact_range(&all, None, None).unwrap();
            if manifests > 0 {
                pair.primary.close().unwrap();
                pair.primary = Db::open(&path, &pair.options).unwrap();
            }
            for number in 0..3 {
                pair.primary.put(format!("other{number}"), "value").unwrap();
                pair.flush();
                db.try_catch_up_with_primary().unwrap();
            }
            assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"second"[..]), "{when}");
            let before = db.get_opt(&snapshot, "key").unwrap_or_else(|e| panic!("{when}: {e}"));
            assert_eq!(before.as_deref(), Some(&b"first"[..]), "{when}");
            iter.seek("key").unwrap();
            assert_eq!(iter.value(), b"first", "{when}");
        }
    }
}

#[test]
fn nothing_is_written_beside_the_primary_s_files_and_nothing_may_be() {
    let pair = Pair::new("");
    (1..=10).for_each(|number| pair.step(number));
    pair.flush();
    pair.step(11);
    pair.primary.close().unwrap();
    std::fs::remove_file(pair.path().join("LOCK")).unwrap();
    let before = names(&pair.path());
    let db = pair.secondary("second");
    db.try_catch_up_with_primary().unwrap();
    assert_eq!(shown(&db, &ReadOptions::new()), 11);
    for error in [
        db.put("key", "value").unwrap_err(),
        db.flush(&FlushOptions::default()).unwrap_err(),
        db.create_column_family("new", &pair.options).unwrap_err(),
        db.compact_range(&CompactRangeOptions::default(), None, None).unwrap_err(),
        db.set_db_options(&[("max_background_jobs", "3")]).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().contains("open for reading only"), "{error}");
    }
    db.close().unwrap();
    assert_eq!(db.get("number").unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(db.try_catch_up_with_primary().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(names(&pair.path()), before);
    let own: Vec<String> = names(&pair.directory.path().join("second")).into_iter().map(|(n, _)| n).collect();
    assert_eq!(own, ["LOG"]);
    let log = std::fs::read_to_string(pair.directory.path().join("second/LOG")).unwrap();
    assert!(log.contains("caught up from sequence number 0"), "{log}");
    // One directory cannot be both the primary's and the secondary's.
    let error = Db::open_as_secondary(pair.path(), pair.path(), &pair.options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    let plain = Db::open_read_only(pair.path(), &pair.options).unwrap();
    assert_eq!(plain.try_catch_up_with_primary().unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn families_that_come_are_not_shown_and_those_that_go_stay() {
    let pair = Pair::new("");
    pair.step(1);
    pair.flush();
    let db = pair.secondary("second");
    let other = db.column_family("other").unwrap();
    pair.primary.create_column_family("new", &pair.options).unwrap();
    pair.primary.put_cf(&WriteOptions::new(), &pair.primary.column_family("new").unwrap(), "k", "v").unwrap();
    db.try_catch_up_with_primary().unwrap();
    assert!(db.column_family("new").is_none());
    let again =
        Db::open_cf_as_secondary(pair.path(), pair.directory.path().join("third"), &pair.options, &["new"]);
    let again = again.unwrap();
    let new = again.column_family("new").unwrap();
    assert_eq!(again.get_cf(&ReadOptions::new(), &new, "k").unwrap().as_deref(), Some(&b"v"[..]));
    assert_eq!(again.unopened_column_families(), ["other"]);
    pair.primary.drop_column_family(&pair.primary.column_family("other").unwrap()).unwrap();
    pair.primary.put("number", 2u64.to_le_bytes()).unwrap();
    pair.flush();
    db.try_catch_up_with_primary().unwrap();
    let get = |family| as_number(db.get_cf(&ReadOptions::new(), family, "number").unwrap());
    assert_eq!((get(db.default_column_family()), get(&other)), (2, 1));
}

#[test]
fn a_follower_catches_up_by_itself() {
    let mut pair = Pair::new("");
    pair.options = pair.options.clone().set("follower_refresh_catchup_period_ms", "5").unwrap();
    pair.step(1);
    let db = Db::open_as_follower(pair.path(), pair.directory.path().join("second"), &pair.options).unwrap();
    for number in 2..20 {
        pair.step(number);
        if number.is_multiple_of(5) {
            pair.flush();
        }
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while shown(&db, &ReadOptions::new()) < number {
            assert!(std::time::Instant::now() < until, "it does not follow");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
    // A failed catch-up is retried and reported.
    let (current, aside) = (pair.path().join("CURRENT"), pair.path().join("aside"));
    std::fs::rename(&current, &aside).unwrap();
    let log = pair.directory.path().join("second/LOG");
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let told = || {
        let log = std::fs::read_to_string(&log).unwrap();
        log.contains("not caught up") && log.contains("CURRENT")
    };
    while !told() {
        assert!(std::time::Instant::now() < until, "it is not told that nothing can be read");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    std::fs::rename(&aside, &current).unwrap();
    pair.step(20);
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while shown(&db, &ReadOptions::new()) < 20 {
        assert!(std::time::Instant::now() < until, "it does not follow any more");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    db.close().unwrap();
}
