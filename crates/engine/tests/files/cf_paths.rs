//! Column families with directories of their own: the place of each file, and that every operation
//! on the database finds all of them.

use karst_engine::{
    BackupEngine, BackupEngineOptions, Checkpoint, ColumnFamily, CompactRangeOptions, CreateBackupOptions,
    Db, DbPath, ErrorKind, ExportImportFilesMetaData, FlushOptions, ImportColumnFamilyOptions,
    IngestExternalFileArg, IngestExternalFileOptions, LiveFilesStorageInfoOptions, Options, ReadOptions,
    RestoreOptions, SstFileManager, SstFileWriter, WaitForCompactOptions, WriteOptions,
};
use karst_testkit::eventually;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

const KIB: u64 = 1 << 10;
const OWN: &str = "own";

/// A database with two families, one of which has three directories of its own. The last of them is
/// the first directory of a third family.
struct Spread {
    directory: tempfile::TempDir,
    own: [PathBuf; 3],
}

impl Spread {
    fn new() -> Spread {
        let directory = tempfile::tempdir().unwrap();
        let own = ["own/first", "own/second", "third"].map(|name| directory.path().join(name));
        Spread { directory, own }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn plain() -> Options {
        let all = "create_if_missing=true;create_missing_column_families=true;stats_dump_period_sec=0;compression=kNoCompression;write_buffer_size=65536;target_file_size_base=65536;max_bytes_for_level_base=262144;max_bytes_for_level_multiplier=4;level0_file_num_compaction_trigger=2";
        Options::new().set_all(all).unwrap()
    }

    /// Assigns directories. L0 and L1 fit into the first path, L2 into the second.
    fn within(options: Options, own: [&Path; 3], beside: &Path) -> Options {
        let [first, second, third] = own;
        let paths = [DbPath::new(first, 600 * KIB), DbPath::new(second, 1500 * KIB), DbPath::new(third, 0)];
        options.cf_paths(Some(OWN), paths).cf_paths(Some("beside"), [DbPath::new(beside, 0)])
    }

    fn options(&self) -> Options {
        Self::within(Self::plain(), self.own.each_ref().map(PathBuf::as_path), &self.own[2])
    }

    fn open(&self, options: &Options) -> (Db, ColumnFamily, ColumnFamily) {
        opened(&self.at("db"), options)
    }

    /// Returns all tables and blob files in the directories.
    fn on_disk(&self) -> BTreeSet<PathBuf> {
        let places = self.own.iter().cloned().chain([self.at("db")]);
        places.flat_map(|place| files(&place)).collect()
    }
}

fn opened(path: &Path, options: &Options) -> (Db, ColumnFamily, ColumnFamily) {
    let db = Db::open_cf(path, options, &["default", OWN, "beside"]).unwrap();
    let family = |name: &str| db.column_families().into_iter().find(|of| of.name() == name).unwrap();
    let (own, beside) = (family(OWN), family("beside"));
    (db, own, beside)
}

fn files(directory: &Path) -> BTreeSet<PathBuf> {
    let Ok(names) = std::fs::read_dir(directory) else { return BTreeSet::new() };
    let files = names.map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|end| end == "sst" || end == "blob")).collect()
}

fn live(db: &Db) -> BTreeSet<PathBuf> {
    db.live_files().into_iter().map(|file| file.directory.join(file.name)).collect()
}

fn contents(db: &Db, family: &ColumnFamily) -> Contents {
    let mut iterator = db.iter_cf(&ReadOptions::new(), family).unwrap();
    let mut found = Contents::new();
    iterator.seek_to_first().unwrap();
    while iterator.valid() {
        found.insert(iterator.key().to_vec(), iterator.value().to_vec());
        iterator.next().unwrap();
    }
    iterator.status().unwrap();
    found
}

fn fill(db: &Db, families: &[&ColumnFamily], count: u64) {
    for number in 0..count {
        let key = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
        for family in families {
            let value = format!("{} {number:0>500}", family.name());
            db.put_cf(&WriteOptions::default(), family, format!("{key:08}"), value).unwrap();
        }
    }
    db.flush_cfs(&FlushOptions::default(), families).unwrap();
    db.wait_for_compact(&WaitForCompactOptions::default()).unwrap();
}

#[test]
fn files_are_where_their_family_has_them() {
    let spread = Spread::new();
    let manager = SstFileManager::new();
    let options = spread.options().sst_file_manager(manager.clone());
    let (db, own, beside) = spread.open(&options);
    fill(&db, &[db.default_column_family(), &own, &beside], 6000);
    let mut levels = BTreeSet::new();
    for file in db.live_files() {
        let level = file.level.unwrap();
        let expected = match (file.column_family.as_str(), level) {
            (OWN, 0 | 1) => &spread.own[0],
            (OWN, 2) => &spread.own[1],
            (OWN, _) | ("beside", _) => &spread.own[2],
            _ => &spread.at("db"),
        };
        assert_eq!(&file.directory, expected, "L{level} of {}", file.column_family);
        levels.insert((file.column_family, level));
    }
    assert!(levels.contains(&(OWN.into(), 2)) && levels.contains(&(OWN.into(), 3)), "{levels:?}");
    eventually(live(&db), || spread.on_disk());
    eventually(live(&db), || manager.tracked_files().into_keys().collect());
    let listed = db.live_files_storage_info(&LiveFilesStorageInfoOptions::default()).unwrap();
    let listed = listed.into_iter().map(|file| file.directory.join(file.name));
    assert!(live(&db).is_subset(&listed.collect()));
    let all = [&own, &beside].map(|family| contents(&db, family));
    let (before, report) = (live(&db), db.verify_checksum());
    report.unwrap();
    db.close().unwrap();
    drop((db, own, beside));

    // Reopens twice, because only the second opening would miss a file that the first wrongly
    // removed. Files that a crash left are removed.
    for place in &spread.own {
        std::fs::write(place.join("900000.sst"), "left").unwrap();
    }
    for _ in 0..2 {
        let (db, own, beside) = spread.open(&options);
        assert_eq!([&own, &beside].map(|family| contents(&db, family)), all);
        assert_eq!(live(&db), before);
        db.close().unwrap();
        assert_eq!(spread.on_disk(), before);
    }
    let reader = Db::open_read_only(spread.at("db"), &spread.options()).unwrap();
    let own = reader.column_families().into_iter().find(|family| family.name() == OWN).unwrap();
    assert_eq!(contents(&reader, &own), all[0]);
    drop((reader, own));

    // Opening without the paths fails, and so does a family with too many. A repair with the paths
    // has nothing to do.
    let told = Db::open(spread.at("db"), &Spread::plain()).unwrap_err();
    assert!(matches!(told.kind(), ErrorKind::InvalidArgument | ErrorKind::Corruption), "{told}");
    let report = Db::repair(spread.at("db"), &spread.options()).unwrap();
    assert!(report.lost.is_empty() && report.missing.is_empty(), "{report}");
    let (db, own, _) = spread.open(&options);
    assert_eq!(contents(&db, &own), all[0], "nothing of it has changed anything");
    let many = (0..5).map(|number| DbPath::new(spread.at(&format!("{number}")), 0));
    let told = db.create_column_family("many", &Spread::plain().cf_paths(Some("many"), many)).unwrap_err();
    assert_eq!(told.kind(), ErrorKind::NotSupported, "{told}");
    db.close().unwrap();
    drop((db, own));
    Db::destroy(spread.at("db"), &spread.options()).unwrap();
    assert_eq!(spread.on_disk(), BTreeSet::new());
    assert!(!spread.own[1].exists());
}

#[test]
fn blob_files_logs_and_ingested_files_go_there_too_and_leave_with_the_family() {
    let spread = Spread::new();
    let options = spread.options().column_families(|family| {
        family.enable_blob_files = true;
        family.min_blob_size = 100;
        family.disable_auto_compactions = true;
    });
    let (db, own, _) = spread.open(&options);
    fill(&db, &[&own], 50);
    let mut writer = SstFileWriter::create(&options).unwrap();
    writer.open(spread.at("outside")).unwrap();
    writer.put("zz", "ingested").unwrap();
    writer.finish().unwrap();
    let ingest = IngestExternalFileOptions::default();
    db.ingest_external_files(&[IngestExternalFileArg::new(&own, [spread.at("outside")], ingest)]).unwrap();
    assert_eq!(live(&db), files(&spread.own[0]));
    assert!(live(&db).iter().any(|path| path.extension().is_some_and(|end| end == "blob")));
    db.put_cf(&WriteOptions::default(), &own, "in the log", vec![7; 200]).unwrap();
    let all = contents(&db, &own);
    drop(own);
    db.close().unwrap();
    drop(db);
    // Tables recovered from the logs go to the first path.
    let (db, own, beside) = spread.open(&options);
    assert_eq!(contents(&db, &own), all);
    assert_eq!(live(&db), files(&spread.own[0]));
    db.compact_range_cf(&CompactRangeOptions::default(), &own, None, None).unwrap();
    assert_eq!(contents(&db, &own), all);
    eventually(live(&db), || spread.on_disk());
    fill(&db, &[&beside], 50);
    db.drop_column_family(&own).unwrap();
    drop(own);
    eventually(live(&db), || spread.on_disk());
    assert!(files(&spread.own[0]).is_empty());
    // A family that is created while the database is open, and one without paths of its own.
    let new = options.clone().cf_paths(None, [DbPath::new(spread.at("new"), 0)]);
    let made = db.create_column_family("made", &new).unwrap();
    fill(&db, &[&made], 50);
    assert!(!files(&spread.at("new")).is_empty());
    let other = db.create_column_family("other", &Spread::plain()).unwrap();
    fill(&db, &[&other], 50);
    assert!(!files(&spread.at("db")).is_empty());
}

#[test]
fn copies_have_all_in_one_directory() {
    let spread = Spread::new();
    let (db, own, beside) = spread.open(&spread.options());
    fill(&db, &[db.default_column_family(), &own, &beside], 6000);
    let all = [&own, &beside].map(|family| contents(&db, family));
    let opens = |name: &str| {
        let place = spread.at(name);
        let options = Spread::within(Spread::plain(), [&place, &place, &place], &place);
        for _ in 0..2 {
            let (copy, own, beside) = opened(&place, &options);
            assert_eq!([&own, &beside].map(|family| contents(&copy, family)), all);
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
    // Exports a family and imports it into directories of its own, where no compaction exchanges
    // the files between the two lists of them.
    let exported: ExportImportFilesMetaData =
        Checkpoint::new(&db).unwrap().export_column_family(&own, spread.at("export")).unwrap();
    let options = Spread::plain().cf_paths(Some("imported"), [DbPath::new(spread.at("imported"), 0)]);
    let options = options.column_families(|family| family.disable_auto_compactions = true);
    let import = ImportColumnFamilyOptions::default();
    let imported = db.create_column_family_with_import("imported", &options, &import, &exported).unwrap();
    assert_eq!(contents(&db, &imported), all[0]);
    let there = files(&spread.at("imported"));
    assert!(!there.is_empty() && there.is_subset(&live(&db)));
}

/// Obsolete files are recognized by their real path, under any name of their directory.
#[test]
fn one_directory_may_have_several_names() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    std::fs::create_dir(at("db")).unwrap();
    std::os::unix::fs::symlink(at("db"), at("alias")).unwrap();
    for own in [at("alias"), at("db/../db"), at("./db/"), at("alias/own"), at("db/own")] {
        let options = Spread::plain()
            .cf_paths(Some(OWN), [DbPath::new(&own, 0)])
            .cf_paths(Some("beside"), [DbPath::new(at("db/own"), 0)]);
        let open = || Db::open_cf(at("db"), &options, &["default", OWN, "beside"]).unwrap();
        let families = |db: &Db| {
            [
                db.default_column_family().clone(),
                db.column_family(OWN).unwrap(),
                db.column_family("beside").unwrap(),
            ]
        };
        let db = open();
        let all = families(&db);
        fill(&db, &all.iter().collect::<Vec<_>>(), 500);
        let expected = all.each_ref().map(|family| contents(&db, family));
        db.close().unwrap();
        drop((db, all));
        for round in 0..3 {
            if round == 1 {
                let report = Db::repair(at("db"), &options).unwrap();
                assert!(
                    report.lost.is_empty() && report.missing.is_empty() && report.renumbered.is_empty(),
                    "{report}"
                );
            }
            let db = open();
            let found = families(&db).each_ref().map(|family| contents(&db, family));
            assert_eq!(found, expected, "{}, {round}", own.display());
            db.close().unwrap();
        }
        Db::destroy(at("db"), &options).unwrap();
        std::fs::create_dir_all(at("db")).unwrap();
    }
}
