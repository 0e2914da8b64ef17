//! Checksums of whole files by a user's function: computation, storage and verification, errors for
//! an unknown function, and a generator that panics. RocksDB's CRC32c is tested in `verify.rs`.

use karst_engine::io::{Env, MemoryFileSystem};
use karst_engine::{
    BackupEngine, BackupEngineOptions, Checkpoint, CompactRangeOptions, CreateBackupOptions, Db, ErrorKind,
    FileChecksumGenContext, FileChecksumGenFactory, FileChecksumGenerator, FlushOptions,
    IngestExternalFileArg, IngestExternalFileOptions, Options, Severity, SstFileWriter,
};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

const FUNCTION: &str = "test.Sum";

/// Factory of a checksum that sums bytes times their position; it knows only its own function.
#[derive(Debug, Default)]
struct Sums {
    made: AtomicU64,
    panics: Arc<AtomicBool>,
}

impl FileChecksumGenFactory for Sums {
    fn name(&self) -> &str {
        "test.SumFactory"
    }

    fn create(&self, context: &FileChecksumGenContext<'_>) -> Option<Box<dyn FileChecksumGenerator>> {
        assert!(context.file_name.extension().is_some(), "{context:?}");
        self.made.fetch_add(1, SeqCst);
        let known = ["", FUNCTION].contains(&context.requested_checksum_func_name);
        known.then(|| Box::new(Sum { sum: 0, at: 0, panics: self.panics.clone() }) as _)
    }
}

struct Sum {
    sum: u64,
    at: u64,
    panics: Arc<AtomicBool>,
}

impl FileChecksumGenerator for Sum {
    fn name(&self) -> &str {
        FUNCTION
    }

    fn update(&mut self, bytes: &[u8]) {
        assert!(!self.panics.load(SeqCst), "the generator's own");
        for byte in bytes {
            self.at += 1;
            self.sum = self.sum.wrapping_add(self.at.wrapping_mul(u64::from(*byte) + 1));
        }
    }

    fn finalize(self: Box<Self>) -> Vec<u8> {
        self.sum.to_le_bytes().to_vec()
    }
}

fn sum_of(bytes: &[u8]) -> Vec<u8> {
    let mut sum = Box::new(Sum { sum: 0, at: 0, panics: Arc::default() });
    sum.update(bytes);
    sum.finalize()
}

fn plain(text: &str) -> Options {
    let text = format!("disable_auto_compactions=true;format_version=5;{text}");
    Options::new().db(|db| db.create_if_missing = true).set_all(&text).unwrap()
}

fn with_sums(text: &str) -> (Options, Arc<Sums>) {
    let sums = Arc::new(Sums::default());
    (plain(text).file_checksum_gen_factory(sums.clone()), sums)
}

/// Makes a flushed table, a table of a compaction and, with `enable_blob_files`, their blob files.
fn fill(db: &Db) {
    for round in 0..3 {
        for key in ["a", "b", "c"] {
            db.put(format!("{key}{round}"), [b'x'; 300]).unwrap();
        }
        db.flush(&FlushOptions::default()).unwrap();
        if round == 1 {
            db.compact_range(&CompactRangeOptions::default(), None, None).unwrap();
        }
    }
}

/// Checks that every table has the checksum of its bytes, and returns the number of tables.
fn check_recorded(db: &Db) -> usize {
    let files = db.live_files();
    let tables: Vec<_> = files.iter().filter(|file| file.level.is_some()).collect();
    for table in &tables {
        let bytes = std::fs::read(table.directory.join(&table.name)).unwrap();
        assert_eq!(table.checksum, Some((sum_of(&bytes), FUNCTION.to_owned())), "{}", table.name);
    }
    tables.len()
}

fn damage(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[5] ^= 1;
    std::fs::remove_file(path).unwrap();
    std::fs::write(path, bytes).unwrap();
}

fn newest_options(path: &Path) -> String {
    let names = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let newest =
        names.filter(|name| name.file_name().unwrap().to_str().unwrap().starts_with("OPTIONS-")).max();
    std::fs::read_to_string(newest.unwrap()).unwrap()
}

#[test]
fn every_file_has_one_which_is_kept_and_verified() {
    for blobs in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let (options, sums) = with_sums(&format!("enable_blob_files={blobs};min_blob_size=100"));
        let db = Db::open(directory.path(), &options).unwrap();
        fill(&db);
        assert_eq!(check_recorded(&db), 2);
        let files = db.live_files().len() as u64;
        assert_eq!(files, if blobs { 5 } else { 2 });
        assert_eq!(db.verify_file_checksums().unwrap(), files);
        assert!(newest_options(directory.path()).contains("file_checksum_gen_factory=test.SumFactory\n"));
        // Reopening writes the log's entries to a table with a checksum.
        db.put("d", "1").unwrap();
        db.close().unwrap();
        drop(db);
        let db =
            Db::open(directory.path(), &options.clone().set("avoid_flush_during_recovery", "false").unwrap())
                .unwrap();
        assert!(check_recorded(&db) >= 2);
        assert!(db.verify_file_checksums().unwrap() >= files);
        assert!(sums.made.load(SeqCst) > files);
        let table = db.live_files().into_iter().find(|file| file.level == Some(0)).unwrap();
        db.close().unwrap();
        drop(db);
        damage(&table.directory.join(&table.name));
        let db = Db::open_read_only(directory.path(), &options).unwrap();
        let told = db.verify_file_checksums().unwrap_err();
        assert!(told.kind() == ErrorKind::Corruption && told.to_string().contains(&table.name), "{told}");
    }
}

#[test]
fn rocksdb_finds_it_in_the_manifest() {
    let directory = tempfile::tempdir().unwrap();
    let (options, _) = with_sums("");
    let db = Db::open(directory.path(), &options).unwrap();
    fill(&db);
    let expected = db.live_files()[0].checksum.clone().unwrap().0;
    db.close().unwrap();
    let dump = std::process::Command::new("ldb")
        .args(["file_checksum_dump", "--hex", &format!("--db={}", directory.path().display())])
        .output()
        .unwrap();
    let text = String::from_utf8(dump.stdout).unwrap();
    let hex: String = expected.iter().map(|byte| format!("{byte:02X}")).collect();
    assert!(text.contains(FUNCTION) && text.contains(&hex), "{text} {hex}");
}

#[test]
fn a_function_that_is_not_known_is_named_and_writing_needs_the_factory() {
    let directory = tempfile::tempdir().unwrap();
    let (options, _) = with_sums("");
    let db = Db::open(directory.path(), &options).unwrap();
    fill(&db);
    db.close().unwrap();
    drop(db);
    let db = Db::open_read_only(directory.path(), &Options::new()).unwrap();
    let told = db.verify_file_checksums().unwrap_err();
    assert!(told.kind() == ErrorKind::InvalidArgument && told.to_string().contains(FUNCTION), "{told}");
    drop(db);
    let told = Db::open(directory.path(), &Options::new()).unwrap_err();
    assert!(told.kind() == ErrorKind::NotSupported, "{told}");
    assert!(told.to_string().contains("test.SumFactory") && told.to_string().contains("nullptr"), "{told}");
    let without = Options::new().set("file_checksum_gen_factory", "nullptr").unwrap();
    let db = Db::open(directory.path(), &without).unwrap();
    db.put("e", "1").unwrap();
    db.flush(&FlushOptions::default()).unwrap();
    assert!(db.live_files().iter().any(|file| file.checksum.is_none()));
    db.verify_file_checksums().unwrap_err();
    db.compact_range(&CompactRangeOptions::default(), None, None).unwrap();
    db.close().unwrap();
}

#[test]
fn crc32c_is_known_beside_it() {
    let directory = tempfile::tempdir().unwrap();
    let crc = plain("file_checksum_gen_factory=FileChecksumGenCrc32cFactory");
    let db = Db::open(directory.path(), &crc).unwrap();
    fill(&db);
    db.close().unwrap();
    drop(db);
    let (options, _) = with_sums("");
    let db = Db::open(directory.path(), &options).unwrap();
    db.put("e", "1").unwrap();
    db.flush(&FlushOptions::default()).unwrap();
    let mut functions: Vec<_> = db.live_files().into_iter().map(|file| file.checksum.unwrap().1).collect();
    functions.sort();
    assert_eq!(functions, ["FileChecksumCrc32c", "FileChecksumCrc32c", FUNCTION]);
    assert_eq!(db.verify_file_checksums().unwrap(), 3);
    db.close().unwrap();
}

#[test]
fn copies_keep_it_and_backups_compare_it() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let (options, _) = with_sums("");
    let db = Db::open(at("db"), &options).unwrap();
    fill(&db);
    Checkpoint::new(&db).unwrap().create_checkpoint(at("checkpoint"), 0).unwrap();
    let copy = Db::open(at("checkpoint"), &options).unwrap();
    assert_eq!((check_recorded(&copy), copy.verify_file_checksums().unwrap()), (2, 2));
    copy.close().unwrap();
    let export = Checkpoint::new(&db).unwrap();
    let exported = export.export_column_family(db.default_column_family(), at("export")).unwrap();
    assert!(exported.files.iter().all(|file| file.checksum.as_ref().unwrap().1 == FUNCTION));

    let mut engine = BackupEngine::open(&BackupEngineOptions::new(at("backups")), db.env()).unwrap();
    engine.create_new_backup(&db, &CreateBackupOptions::default()).unwrap();
    let table = db.live_files().into_iter().find(|file| file.level == Some(0)).unwrap();
    // A second set of backups, because files that a backup already has are not copied again.
    let mut others = BackupEngine::open(&BackupEngineOptions::new(at("others")), db.env()).unwrap();
    damage(&table.directory.join(&table.name));
    let told = others.create_new_backup(&db, &CreateBackupOptions::default()).unwrap_err();
    assert!(told.kind() == ErrorKind::Corruption && told.to_string().contains("whole file"), "{told}");
}

#[test]
fn files_that_are_ingested_have_it() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let (options, _) = with_sums("");
    let db = Db::open(at("db"), &options).unwrap();
    let write = |name: &str| {
        let mut writer = SstFileWriter::create(&options).unwrap();
        writer.open(at(name)).unwrap();
        writer.put("k", "v").unwrap();
        let info = writer.finish().unwrap();
        assert_eq!(info.file_checksum, sum_of(&std::fs::read(at(name)).unwrap()));
        assert_eq!(info.file_checksum_func_name, FUNCTION);
        info.file_checksum
    };
    let arg = |name: &str, given: Option<(&[u8], &str)>, verify_file_checksum| {
        let options = IngestExternalFileOptions { verify_file_checksum, ..Default::default() };
        let mut arg = IngestExternalFileArg::new(db.default_column_family(), [at(name)], options);
        arg.files_checksums = given.iter().map(|(value, _)| value.to_vec()).collect();
        arg.files_checksum_func_names = given.iter().map(|(_, function)| (*function).to_owned()).collect();
        arg
    };
    let checksum = write("1.sst");
    let mut wrong = checksum.clone();
    wrong[0] ^= 1;
    let kind = |arg| db.ingest_external_files(&[arg]).unwrap_err().kind();
    assert_eq!(kind(arg("1.sst", Some((&wrong, FUNCTION)), true)), ErrorKind::Corruption);
    assert_eq!(kind(arg("1.sst", Some((&checksum, "Other")), true)), ErrorKind::InvalidArgument);
    assert_eq!(kind(arg("1.sst", Some((&checksum, "Other")), false)), ErrorKind::InvalidArgument);
    db.ingest_external_files(&[arg("1.sst", Some((&checksum, FUNCTION)), true)]).unwrap();
    db.ingest_external_files(&[arg("1.sst", None, true)]).unwrap();
    assert_eq!((check_recorded(&db), db.verify_file_checksums().unwrap()), (2, 2));
    db.ingest_external_files(&[arg("1.sst", Some((&wrong, FUNCTION)), false)]).unwrap();
    assert_eq!(db.verify_file_checksums().unwrap_err().kind(), ErrorKind::Corruption, "it was believed");
    db.close().unwrap();
}

#[test]
fn a_repair_makes_them_for_what_it_writes() {
    let directory = tempfile::tempdir().unwrap();
    let (options, _) = with_sums("");
    let db = Db::open(directory.path(), &options).unwrap();
    fill(&db);
    db.put("only in the log", "1").unwrap();
    db.close().unwrap();
    drop(db);
    for entry in std::fs::read_dir(directory.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_str().unwrap().starts_with("MANIFEST-") {
            std::fs::remove_file(path).unwrap();
        }
    }
    Db::repair(directory.path(), &options).unwrap();
    let db = Db::open(directory.path(), &options).unwrap();
    assert!(db.get("only in the log").unwrap().is_some());
    db.compact_range(&CompactRangeOptions::default(), None, None).unwrap();
    assert!(db.verify_file_checksums().unwrap() > 0);
    assert!(check_recorded(&db) > 0);
    db.close().unwrap();
}

#[test]
fn a_generator_that_panics_stops_the_database_with_an_error_and_loses_nothing() {
    let env = Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build();
    let (options, sums) = with_sums("");
    let options = options.env(env);
    let db = Db::open("/db", &options).unwrap();
    db.put("a", "1").unwrap();
    sums.panics.store(true, SeqCst);
    let told = db.flush(&FlushOptions::default()).unwrap_err();
    assert_eq!(told.kind(), ErrorKind::Panicked, "{told}");
    assert_eq!(db.background_error().unwrap().severity, Severity::Fatal);
    assert!(db.get("a").unwrap().is_some());
    db.close().unwrap();
    drop(db);
    sums.panics.store(false, SeqCst);
    let db = Db::open("/db", &options).unwrap();
    assert!(db.get("a").unwrap().is_some());
    db.flush(&FlushOptions::default()).unwrap();
    assert!(db.verify_file_checksums().unwrap() > 0);
    db.close().unwrap();
}
