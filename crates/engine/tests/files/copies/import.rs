//! Imports: concurrent calls, metadata with hostile values, and RocksDB's tools on the imported
//! database.

use crate::copies::{entries, export_of_cut_tombstones, key, memory, options};
use karst_engine::io::{Disturb, Disturbance, DisturbedFileSystem};
use karst_engine::{
    Checkpoint, CompactRangeOptions, Db, Error, ErrorKind, ExportImportFilesMetaData, FlushOptions,
    ImportColumnFamilyOptions, Options, ReadOptions, WriteOptions,
};
use karst_format::log::LogReader;
use karst_format::version_edit::VersionEdit;
use karst_io::{Env, FileSystem, MemoryFileSystem};
use karst_testkit::asked::seeds;
use karst_testkit::eventually;
use karst_testkit::random::Random;
use karst_testkit::rocksdb_tools::ldb_scan;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const CALM: &str =
    "disable_auto_compactions=true;level0_slowdown_writes_trigger=100;level0_stop_writes_trigger=100";

/// Blocks, while armed, the next write to a table of `/db` or the next link to one.
#[derive(Debug)]
struct AtTable {
    armed: AtomicBool,
    told: SyncSender<()>,
    go_on: Mutex<Receiver<()>>,
}

impl Disturb for AtTable {
    fn read(&self, _: &Path, _: u64, _: usize) -> Option<Disturbance> {
        None
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        let is_table = path.starts_with("/db") && path.extension().is_some_and(|end| end == "sst");
        if is_table && self.armed.swap(false, Ordering::SeqCst) {
            self.told.send(()).unwrap();
            // An error is ignored, because the sender is dropped when the test fails.
            let _ = self.go_on.lock().unwrap().recv();
        }
        Ok(())
    }
}

/// A database with an exported family of four tables, and an import that can be blocked.
struct Scene {
    files: Arc<dyn FileSystem>,
    all: Options,
    db: Db,
    metadata: ExportImportFilesMetaData,
    at_table: Arc<AtTable>,
    told: Mutex<Receiver<()>>,
    release: SyncSender<()>,
}

fn scene() -> Scene {
    let files: Arc<dyn FileSystem> = Arc::new(MemoryFileSystem::new());
    let (tell, told) = sync_channel(1);
    let (release, go_on) = sync_channel(1);
    let at_table = AtTable { armed: AtomicBool::new(false), told: tell, go_on: Mutex::new(go_on) };
    let disturbed = DisturbedFileSystem::new(files.clone(), at_table);
    let at_table = disturbed.between().clone();
    let env = Env::builder().file_system(Arc::new(disturbed)).build();
    let all = options(&env, CALM);
    let db = Db::open("/db", &all).unwrap();
    for table in 0..4 {
        (0..10).for_each(|number| db.put(key(table * 10 + number), "exported").unwrap());
        db.flush(&FlushOptions::default()).unwrap();
    }
    let family = db.default_column_family();
    let metadata = Checkpoint::new(&db).unwrap().export_column_family(family, "/export").unwrap();
    at_table.armed.store(true, Ordering::SeqCst);
    Scene { files, all, db, metadata, at_table, told: Mutex::new(told), release }
}

impl Scene {
    fn import(&self, move_files: bool) -> Result<(), Error> {
        let import = ImportColumnFamilyOptions { move_files };
        self.db.create_column_family_with_import("imported", &self.all, &import, &self.metadata).map(drop)
    }

    fn tables(&self, directory: &str) -> Vec<String> {
        let mut names = self.files.list_dir(Path::new(directory)).unwrap();
        names.retain(|name| name.ends_with(".sst"));
        names.sort();
        names
    }
}

#[test]
fn closing_waits_for_an_import_which_ends_and_leaves_nothing() {
    for move_files in [false, true] {
        let scene = scene();
        let before = scene.tables("/db");
        std::thread::scope(|scope| {
            let importing = scope.spawn(|| scene.import(move_files));
            scene.told.lock().unwrap().recv().unwrap();
            let (tell, closed) = sync_channel(1);
            let db = scene.db.clone();
            scope.spawn(move || tell.send(db.close()).unwrap());
            eventually(Some(ErrorKind::Closed), || scene.db.get("key").err().map(|error| error.kind()));
            // A close that does not wait would end within this time; one that waits cannot fail
            // here.
            let ended = closed.recv_timeout(Duration::from_millis(200));
            scene.release.send(()).unwrap();
            assert_eq!(ended.err(), Some(RecvTimeoutError::Timeout), "closed while a table is being made");
            closed.recv().unwrap().unwrap();
            assert_eq!(scene.tables("/db"), before);
            let error = importing.join().unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
        });
        assert_eq!(scene.tables("/export").len(), 4);
        let db = Db::open("/db", &scene.all).unwrap();
        assert!(db.column_family("imported").is_none());
        db.verify_checksum().unwrap();
        db.close().unwrap();
    }
}

#[test]
fn a_family_has_its_tables_when_it_can_be_reached() {
    for move_files in [false, true] {
        let scene = scene();
        let expected = entries(&scene.db, "default");
        std::thread::scope(|scope| {
            let importing = scope.spawn(|| scene.import(move_files));
            scene.told.lock().unwrap().recv().unwrap();
            assert!(scene.db.column_family("imported").is_none());
            // Meanwhile, other families accept writes.
            scene.db.put(key(5), "meanwhile").unwrap();
            scene.db.flush(&FlushOptions::default()).unwrap();
            scene.release.send(()).unwrap();
            importing.join().unwrap().unwrap();
        });
        assert_eq!(entries(&scene.db, "imported"), expected);
        let check = |db: &Db| {
            let cf = db.cf("imported").unwrap();
            assert_eq!(cf.get(key(7)).unwrap().as_deref(), Some(&b"newer"[..]));
            assert_eq!(entries(db, "imported").len(), expected.len());
        };
        let cf = scene.db.cf("imported").unwrap();
        cf.put(key(7), "newer").unwrap();
        check(&scene.db);
        cf.flush(&FlushOptions::default()).unwrap();
        check(&scene.db);
        cf.compact_range(&CompactRangeOptions::default(), None, None).unwrap();
        check(&scene.db);
        scene.db.close().unwrap();
        let db = Db::open("/db", &scene.all).unwrap();
        check(&db);
        db.close().unwrap();
    }
}

#[test]
fn the_name_belongs_to_who_has_made_the_family_first() {
    let scene = scene();
    std::thread::scope(|scope| {
        let importing = scope.spawn(|| scene.import(true));
        scene.told.lock().unwrap().recv().unwrap();
        let own = scene.db.create_column_family("imported", &scene.all).unwrap();
        scene.db.put_cf(&WriteOptions::new(), &own, "own", "1").unwrap();
        scene.release.send(()).unwrap();
        let error = importing.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    });
    assert_eq!(entries(&scene.db, "imported"), [(b"own".to_vec(), b"1".to_vec())]);
    eventually(4, || scene.tables("/db").len());
    assert_eq!(scene.tables("/export").len(), 4, "the exported files stay");
    assert!(!scene.at_table.armed.load(Ordering::SeqCst));
    scene.db.close().unwrap();
}

#[test]
fn files_of_a_database_are_not_moved() {
    let (env, files) = memory();
    let all = options(&env, CALM);
    let db = Db::open("/db", &all).unwrap();
    db.put("key", "value").unwrap();
    let family = db.default_column_family();
    let mut metadata = Checkpoint::new(&db).unwrap().export_column_family(family, "/export").unwrap();
    metadata.files[0].directory = "/db".into();
    let import = ImportColumnFamilyOptions { move_files: true };
    let error = db.create_column_family_with_import("imported", &all, &import, &metadata).unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidArgument && error.to_string().contains("/db"), "{error}");
    // Without `move_files` the tables are copied.
    db.create_column_family_with_import("imported", &all, &Default::default(), &metadata).unwrap();
    assert_eq!(entries(&db, "imported"), entries(&db, "default"));
    assert!(files.exists(&Path::new("/db").join(&metadata.files[0].name)).unwrap());
    db.verify_checksum().unwrap();
    db.close().unwrap();
}

#[test]
fn checksums_of_files_are_kept_if_they_are_right() {
    let (env, _) = memory();
    let all = options(&env, "file_checksum_gen_factory=FileChecksumGenCrc32cFactory");
    let db = Db::open("/db", &all).unwrap();
    db.put("key", "value").unwrap();
    let family = db.default_column_family();
    let mut metadata = Checkpoint::new(&db).unwrap().export_column_family(family, "/export").unwrap();
    let import = |name: &str, metadata: &ExportImportFilesMetaData| {
        db.create_column_family_with_import(name, &all, &Default::default(), metadata)
    };
    import("right", &metadata).unwrap();
    let (value, function) = metadata.files[0].checksum.take().expect("it was exported");
    import("none", &metadata).unwrap();
    metadata.files[0].checksum = Some((value.clone(), "unknown".into()));
    import("unknown", &metadata).unwrap();
    db.verify_file_checksums().unwrap();
    metadata.files[0].checksum = Some((value.iter().map(|byte| !byte).collect(), function));
    let error = import("wrong", &metadata).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    assert!(db.column_family("wrong").is_none());
    db.close().unwrap();
}

/// Changes one item of the metadata. Returns true if the import must detect the change; it accepts
/// any levels, epoch numbers and names of unknown functions.
fn spoil(metadata: &mut ExportImportFilesMetaData, random: &mut Random) -> bool {
    const NUMBERS: [u64; 12] = [
        0,
        1,
        1 << 32,
        (1 << 55) - 1,
        1 << 55,
        (1 << 56) - 3,
        (1 << 56) - 2,
        (1 << 56) - 1,
        1 << 56,
        1 << 63,
        u64::MAX - 1,
        u64::MAX,
    ];
    let at = random.index(metadata.files.len());
    let other = metadata.files[random.index(metadata.files.len())].clone();
    let file = &mut metadata.files[at];
    let number = |random: &mut Random, now: u64| match random.below(4) {
        0 => now.wrapping_add(random.below(5)).wrapping_sub(2),
        1 => random.next_u64() >> random.below(64),
        _ => NUMBERS[random.index(NUMBERS.len())],
    };
    let bytes = |random: &mut Random, now: &[u8]| match random.below(6) {
        0 => Vec::new(),
        1 => now[..random.index(now.len() + 1)].to_vec(),
        2 => vec![[0, 0xff][random.index(2)]; random.index(20)],
        3 => {
            let mut changed = now.to_vec();
            if let Some(at) = changed.len().checked_sub(1 + random.index(9)) {
                changed[at] = random.next_u64() as u8;
            }
            changed
        }
        4 => [&now[..now.len().saturating_sub(8)], &number(random, 7).to_le_bytes()].concat(),
        _ => {
            let len = random.index(40);
            random.bytes(len)
        }
    };
    match random.below(12) {
        0 => file.largest_seq = number(random, file.largest_seq),
        1 => file.smallest_seq = number(random, file.smallest_seq),
        2 => file.size_bytes = number(random, file.size_bytes),
        3 => file.smallest = bytes(random, &file.smallest),
        4 => file.largest = bytes(random, &file.largest),
        5 => (file.smallest, file.largest) = (other.smallest, other.largest),
        6 => file.directory = ["/db", "/nowhere", "", "/export/.."][random.index(4)].into(),
        7 => {
            let names = ["", "000099.sst", "../db/CURRENT", "CURRENT", "1.sst/", &other.name];
            file.name = names[random.index(names.len())].into();
        }
        8 => metadata.db_comparator_name = ["", "other"][random.index(2)].into(),
        9 => {
            let functions = ["", "FileChecksumCrc32c", "unknown"];
            let len = random.index(9);
            file.checksum = Some((random.bytes(len), functions[random.index(3)].into()));
        }
        10 => {
            let levels = [0, 1, 5, 6, 7, 63, 64, 255, 256, u32::MAX];
            file.level = levels[random.index(levels.len())];
            return false;
        }
        _ => {
            file.epoch_number = number(random, file.epoch_number);
            return false;
        }
    }
    true
}

#[test]
fn whatever_the_metadata_says_an_import_is_right_or_refused_and_uses_up_no_numbers() {
    let (mut taken, mut refused) = (0, 0);
    for seed in seeds(4, 200) {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let timestamps = random.one_in(2);
        let (env, files) = memory();
        let more = if timestamps { "comparator=leveldb.BytewiseComparator.u64ts" } else { "" };
        let all = options(&env, &format!("{CALM};{more}"));
        let db = Db::open("/db", &all).unwrap();
        for table in 0..4u64 {
            for number in 0..20 {
                let (key, value) = (key(table * 10 + number), format!("{table}"));
                match timestamps {
                    true => db.put_with_ts(key, table.to_le_bytes(), value).unwrap(),
                    false => db.put(key, value).unwrap(),
                }
            }
            if !timestamps {
                db.delete_range_cf(&WriteOptions::new(), db.default_column_family(), key(3), key(5)).unwrap();
            }
            db.flush(&FlushOptions::default()).unwrap();
            if table == 1 {
                db.compact_range(&CompactRangeOptions::default(), None, None).unwrap();
            }
        }
        let read =
            ReadOptions { timestamp: timestamps.then(|| 9u64.to_le_bytes().to_vec()), ..ReadOptions::new() };
        let found = |db: &Db, name: &str| {
            let family = db.column_family(name).unwrap();
            let mut iter = db.iter_cf(&read, &family).unwrap();
            let all = iter.entries(karst_engine::Direction::Forward);
            all.map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap())
                .collect::<Vec<_>>()
        };
        let expected = found(&db, "default");
        let family = db.default_column_family();
        let metadata = Checkpoint::new(&db).unwrap().export_column_family(family, "/export").unwrap();
        let tables = || {
            let mut names = files.list_dir(Path::new("/db")).unwrap();
            names.retain(|name| name.ends_with(".sst"));
            names.len()
        };
        // The compaction's inputs are removed in the background.
        eventually(metadata.files.len(), tables);
        for round in 0..60 {
            let mut spoiled = metadata.clone();
            let mut is_checked = true;
            for _ in 0..=random.below(3) {
                is_checked &= spoil(&mut spoiled, &mut random);
            }
            let (numbers, before) = (db.latest_sequence_number(), tables());
            let name = format!("imported{round}");
            let what = format!("seed {seed}, round {round}: {spoiled:?}");
            match db.create_column_family_with_import(&name, &all, &Default::default(), &spoiled) {
                Ok(family) => {
                    taken += 1;
                    if is_checked {
                        assert_eq!(found(&db, &name), expected, "{what}");
                    }
                    let whole = CompactRangeOptions::default();
                    db.compact_range_cf(&whole, &family, None, None)
                        .unwrap_or_else(|e| panic!("{e}: {what}"));
                    if is_checked {
                        assert_eq!(found(&db, &name), expected, "{what}");
                    }
                    db.drop_column_family(&family).unwrap();
                    drop(family);
                }
                Err(error) => {
                    refused += 1;
                    let kinds = [ErrorKind::InvalidArgument, ErrorKind::Corruption, ErrorKind::NotFound];
                    assert!(
                        kinds.contains(&error.kind()) || error.kind().is_io(),
                        "{:?} {error}: {what}",
                        error.kind()
                    );
                    assert!(db.column_family(&name).is_none(), "{what}");
                }
            }
            assert_eq!(db.latest_sequence_number(), numbers, "{what}");
            eventually(before, tables);
        }
        assert!(db.background_error().is_none());
        db.verify_checksum().unwrap();
        db.close().unwrap();
        Db::open("/db", &all).unwrap().close().unwrap();
    }
    assert!(taken > 0 && refused > 0, "{taken} taken, {refused} refused: the test shows nothing");
}

#[test]
fn rocksdb_reads_what_was_imported() {
    let directory = tempfile::tempdir().unwrap();
    let (path, export) = (directory.path().join("db"), directory.path().join("export"));
    let all = options(&Env::posix(), &format!("{CALM};format_version=5"));
    let db = Db::open(&path, &all).unwrap();
    for round in 0..3u64 {
        (0..50).for_each(|number| db.put(key(number * (round + 1)), format!("{round}")).unwrap());
        db.flush(&FlushOptions::default()).unwrap();
        if round == 0 {
            db.compact_range(&CompactRangeOptions::default(), None, None).unwrap();
        }
    }
    let family = db.default_column_family();
    let metadata = Checkpoint::new(&db).unwrap().export_column_family(family, &export).unwrap();
    let import = ImportColumnFamilyOptions { move_files: true };
    let imported = db.create_column_family_with_import("imported", &all, &import, &metadata).unwrap();
    db.put_cf(&WriteOptions::new(), &imported, key(7), "newer").unwrap();
    let expected = [entries(&db, "default"), entries(&db, "imported")];
    db.close().unwrap();
    assert_eq!(ldb_scan(&path, "default").unwrap(), expected[0]);
    assert_eq!(ldb_scan(&path, "imported").unwrap(), expected[1]);
}

/// RocksDB's secondaries and its `best_efforts_recovery` refuse a MANIFEST where a group of edits
/// adds a family.
#[test]
fn no_group_of_edits_in_the_manifest_adds_the_imported_family() {
    let (env, files) = memory();
    let all = options(&env, CALM);
    let db = Db::open("/db", &all).unwrap();
    (0..10).for_each(|number| db.put(key(number), "exported").unwrap());
    let family = db.default_column_family();
    let metadata = Checkpoint::new(&db).unwrap().export_column_family(family, "/export").unwrap();
    let import = ImportColumnFamilyOptions::default();
    db.create_column_family_with_import("imported", &all, &import, &metadata).unwrap();
    let current = files.read_file(Path::new("/db/CURRENT")).unwrap();
    let manifest = Path::new("/db").join(String::from_utf8(current).unwrap().trim_end());
    let bytes = files.read_file(&manifest).unwrap();
    let (mut reader, mut added) = (LogReader::manifest(&bytes), Vec::new());
    while let Some(record) = reader.next_record() {
        let edit = VersionEdit::decode(record.unwrap().bytes).unwrap();
        if let Some(name) = edit.column_family_add {
            assert_eq!(edit.remaining_in_atomic_group, None);
            added.push(String::from_utf8_lossy(name.as_ref()).into_owned());
        }
    }
    assert!(added.iter().any(|name| name == "imported"), "{added:?}");
}

/// A tombstone that reaches beyond its table counts up to the table's bound, so tables of one level
/// that have one tombstone lie side by side, and entries of older levels beyond the bounds are
/// seen. Without bounds in the metadata such tables overlap, as RocksDB finds too, and nothing is
/// left of the import.
#[test]
fn tombstones_of_imported_tables_end_at_the_bounds_that_were_exported() {
    let (env, files) = memory();
    let all = options(&env, CALM);
    let db = Db::open("/db", &all).unwrap();
    let metadata = export_of_cut_tombstones(&db, "/export");
    let expected = [("a", "of L1"), ("e", "of L1"), ("m", "of L2")];
    let expected = expected.map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec()));

    let family = db.create_column_family_with_import("whole", &all, &Default::default(), &metadata).unwrap();
    assert_eq!(entries(&db, "whole"), expected);
    db.compact_range_cf(&CompactRangeOptions::default(), &family, None, None).unwrap();
    assert_eq!(entries(&db, "whole"), expected);
    drop(family);

    let mut without = metadata.clone();
    for file in &mut without.files {
        file.smallest.clear();
        file.largest.clear();
    }
    let before = files.list_dir(Path::new("/db")).unwrap();
    let error =
        db.create_column_family_with_import("without", &all, &Default::default(), &without).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.to_string().contains("overlap; without the smallest and largest"), "{error}");
    assert!(db.column_family("without").is_none());
    eventually(before, || files.list_dir(Path::new("/db")).unwrap());
    db.close().unwrap();
    let db = Db::open("/db", &all).unwrap();
    assert_eq!(entries(&db, "whole"), expected);
}
