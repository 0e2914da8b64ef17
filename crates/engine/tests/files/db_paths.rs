//! Tables in several directories: where compactions put them, and that every operation on the
//! database finds all of them.

use karst_engine::{
    BackupEngine, BackupEngineOptions, BottommostLevelCompaction, Checkpoint, CompactRangeOptions,
    CreateBackupOptions, Db, DbPath, ErrorKind, FlushOptions, Options, ReadOptions, RestoreOptions,
    WaitForCompactOptions,
};
use karst_testkit::rocksdb_tools::{ldb, ldb_scan};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

const KIB: u64 = 1 << 10;

/// Returns paths of which the first has room for L0 and L1 and the second for L2.
fn paths(of: [&Path; 3]) -> [DbPath; 3] {
    let [first, second, third] = of;
    [DbPath::new(first, 600 * KIB), DbPath::new(second, 1500 * KIB), DbPath::new(third, 0)]
}

fn options(paths: &[DbPath], more: &str) -> Options {
    let all = "create_if_missing=true;stats_dump_period_sec=0;format_version=5;compression=kNoCompression;write_buffer_size=65536;target_file_size_base=65536;max_bytes_for_level_base=262144;max_bytes_for_level_multiplier=4;level0_file_num_compaction_trigger=2";
    Options::new().db_paths(paths.to_vec()).set_all(all).unwrap().set_all(more).unwrap()
}

fn contents(db: &Db) -> Contents {
    let mut iterator = db.iter(&ReadOptions::new()).unwrap();
    let mut found = Contents::new();
    iterator.seek_to_first().unwrap();
    while iterator.valid() {
        found.insert(iterator.key().to_vec(), iterator.value().to_vec());
        iterator.next().unwrap();
    }
    iterator.status().unwrap();
    found
}

fn fill(db: &Db, count: u64) {
    for number in 0..count {
        let key = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
        db.put(format!("{key:08}"), format!("{number:0>500}")).unwrap();
    }
    db.flush(&FlushOptions::default()).unwrap();
    db.wait_for_compact(&WaitForCompactOptions::default()).unwrap();
}

/// Returns the tables and blob files in a directory.
fn tables(directory: &Path) -> BTreeSet<PathBuf> {
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|end| end == "sst" || end == "blob")).collect()
}

fn live(db: &Db) -> BTreeSet<PathBuf> {
    db.live_files().into_iter().map(|file| file.directory.join(file.name)).collect()
}

/// A database in three directories.
struct Spread {
    directory: tempfile::TempDir,
    places: [PathBuf; 3],
}

impl Spread {
    fn new() -> Spread {
        let directory = tempfile::tempdir().unwrap();
        let places = ["db", "second", "a/third"].map(|name| directory.path().join(name));
        Spread { directory, places }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn paths(&self) -> [DbPath; 3] {
        paths(self.places.each_ref().map(PathBuf::as_path))
    }

    fn open(&self, more: &str) -> Db {
        Db::open(&self.places[0], &options(&self.paths(), more)).unwrap()
    }

    /// Returns all tables and blob files in the directories.
    fn on_disk(&self) -> BTreeSet<PathBuf> {
        self.places.iter().flat_map(|place| tables(place)).collect()
    }
}

#[test]
fn levels_go_to_the_path_in_which_they_fit() {
    let spread = Spread::new();
    let db = spread.open("");
    fill(&db, 6000);
    let all = contents(&db);
    let mut levels = BTreeMap::new();
    for file in db.live_files() {
        let level = file.level.unwrap();
        let expected = match level {
            0 | 1 => 0,
            2 => 1,
            _ => 2,
        };
        assert_eq!(file.directory, spread.places[expected], "L{level}");
        *levels.entry(level).or_insert(0) += 1;
    }
    assert!(levels.contains_key(&2) && levels.contains_key(&3), "{levels:?}");
    // The next opening knows all files, and no directory holds an obsolete one.
    let files = live(&db);
    db.close().unwrap();
    drop(db);
    assert_eq!(spread.on_disk(), files);
    // Files that a crash left are removed from all directories.
    let left: Vec<PathBuf> = spread.places.iter().map(|place| place.join("000001.sst")).collect();
    left.iter().for_each(|file| std::fs::write(file, "left").unwrap());
    let db = spread.open("");
    assert_eq!(contents(&db), all);
    db.close().unwrap();
    drop(db);
    assert!(left.iter().all(|file| !file.exists()));
    let fewer = options(&spread.paths()[..2], "");
    assert_eq!(Db::open(&spread.places[0], &fewer).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let five = [&spread.paths()[..], &spread.paths()[..2]].concat();
    let refused = Db::open(&spread.places[0], &options(&five, "")).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotSupported, "{refused}");
    Db::destroy(&spread.places[0], &options(&spread.paths(), "")).unwrap();
    assert!(spread.places.iter().all(|place| !place.exists()));
}

#[test]
fn a_run_of_universal_compaction_goes_where_it_fits() {
    let spread = Spread::new();
    let db = spread.open("compaction_style=kCompactionStyleUniversal");
    fill(&db, 6000);
    let files = db.live_files();
    let largest = files.iter().max_by_key(|file| (file.level, file.size_bytes)).unwrap();
    assert_eq!(largest.directory, spread.places[2], "{files:?}");
    assert_eq!(contents(&db).len(), 6000);
}

#[test]
fn a_manual_compaction_goes_where_it_is_told() {
    let spread = Spread::new();
    let db = spread.open("disable_auto_compactions=true;enable_blob_files=true;min_blob_size=100");
    for number in 0..200u32 {
        db.put(format!("{number:05}"), "v".repeat(200)).unwrap();
    }
    db.flush(&FlushOptions::default()).unwrap();
    let to = |target_path_id| CompactRangeOptions { target_path_id, ..Default::default() };
    db.compact_range(&to(1), None, None).unwrap();
    for file in db.live_files() {
        let place = usize::from(file.level.is_some());
        assert_eq!(file.directory, spread.places[place], "{}", file.name);
    }
    assert!(db.compact_range(&to(3), None, None).is_err());
}

#[test]
fn copies_repairs_and_secondaries_know_all_paths() {
    let spread = Spread::new();
    let db = spread.open("enable_blob_files=true;min_blob_size=400;blob_garbage_collection_age_cutoff=1");
    fill(&db, 1000);
    db.put("a short one", "1").unwrap();
    let to_second = CompactRangeOptions { target_path_id: 1, change_level: true, ..Default::default() };
    db.compact_range(&to_second, None, None).unwrap();
    db.put("later", "2").unwrap();
    db.flush(&FlushOptions::default()).unwrap();
    let all = contents(&db);
    let used: BTreeSet<PathBuf> = db.live_files().into_iter().map(|file| file.directory).collect();
    assert!(used.len() >= 2, "{used:?}");

    let secondary = Db::open_as_secondary(
        &spread.places[0],
        spread.at("secondary"),
        &options(&spread.paths(), "max_open_files=-1"),
    )
    .unwrap();
    assert_eq!(contents(&secondary), all);
    drop(secondary);

    // A copy has one directory for all paths.
    let one = |name: &str| {
        let place = spread.at(name);
        options(&paths([&place, &place, &place]), "")
    };
    let opens = |name: &str| {
        // Twice, because only the second opening would miss a file that the first wrongly removed.
        for _ in 0..2 {
            let copy = Db::open(spread.at(name), &one(name)).unwrap();
            assert_eq!(contents(&copy), all);
            copy.close().unwrap();
        }
    };
    Checkpoint::new(&db).unwrap().create_checkpoint(spread.at("checkpoint"), 0).unwrap();
    opens("checkpoint");
    let mut engine = BackupEngine::open(&BackupEngineOptions::new(spread.at("backups")), db.env()).unwrap();
    engine.create_new_backup(&db, &CreateBackupOptions::default()).unwrap();
    engine
        .restore_db_from_latest_backup(spread.at("back"), spread.at("back"), &RestoreOptions::default())
        .unwrap();
    opens("back");

    db.close().unwrap();
    drop(db);
    let manifests = std::fs::read_dir(&spread.places[0]).unwrap().map(|entry| entry.unwrap().path());
    for manifest in manifests.filter(|path| path.to_string_lossy().contains("/MANIFEST")) {
        std::fs::remove_file(manifest).unwrap();
    }
    let report = Db::repair(&spread.places[0], &options(&spread.paths(), "")).unwrap();
    let db = spread.open("disable_auto_compactions=true");
    assert_eq!(contents(&db), all, "{report}");
    db.wait_for_compact(&WaitForCompactOptions::default()).unwrap();
    let files = live(&db);
    db.close().unwrap();
    drop(db);
    assert_eq!(spread.on_disk(), files);
}

/// RocksDB's tools know only the database's own directory.
#[test]
fn all_of_it_goes_back_into_one_directory() {
    let spread = Spread::new();
    let db = spread.open("");
    fill(&db, 3000);
    assert!(!tables(&spread.places[1]).is_empty());
    let all = contents(&db);
    db.close().unwrap();
    drop(db);
    // Automatic compactions would move them on to the paths of their levels.
    let db = spread.open("disable_auto_compactions=true");
    let anew = CompactRangeOptions {
        bottommost_level_compaction: BottommostLevelCompaction::ForceOptimized,
        ..Default::default()
    };
    db.compact_range(&anew, None, None).unwrap();
    db.close().unwrap();
    drop(db);
    assert!(spread.places[1..].iter().all(|place| tables(place).is_empty()));
    assert_eq!(ldb(&spread.places[0], &["checkconsistency"], b"").unwrap().trim(), "OK");
    assert_eq!(ldb_scan(&spread.places[0], "default").unwrap().into_iter().collect::<Contents>(), all);
}

#[test]
fn blob_files_are_in_the_first_path_wherever_the_database_is() {
    let spread = Spread::new();
    let [database, first, second] = &spread.places;
    let how = options(&paths([first, second, second]), "enable_blob_files=true;min_blob_size=100");
    let db = Db::open(database, &how).unwrap();
    db.put("key", "value".repeat(100)).unwrap();
    db.flush(&FlushOptions::default()).unwrap();
    let all = contents(&db);
    assert!(live(&db).iter().all(|file| file.starts_with(first)));
    db.close().unwrap();
    drop(db);
    assert_eq!(tables(first).len(), 2);
    let db = Db::open(database, &how).unwrap();
    assert_eq!(contents(&db), all);
    db.close().unwrap();
    drop(db);
    assert_eq!(tables(first).len(), 2);
}
