//! The bulk loader accepts only directories without files of a database, and only readable keys.

use crate::bulk_loads::{contents, memory, options};
use karst_engine::{BulkLoader, Db, DbPath, ErrorKind, FlushOptions, Options};
use karst_format::ids::ColumnFamilyId;
use karst_format::key::ValueType;
use karst_io::{
    Env, FileLock, FileSystem, MemoryFileSystem, Metadata, OpenOptions, PositionalFile, RandomAccessFile,
    Result, WritableFile,
};
use std::path::Path;
use std::sync::{Arc, Mutex};

type Hook = Mutex<Option<Box<dyn FnOnce() + Send>>>;

/// Runs a function once, before a lock is taken.
struct BeforeLock(Arc<MemoryFileSystem>, Hook);

impl std::fmt::Debug for BeforeLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BeforeLock")
    }
}

impl FileSystem for BeforeLock {
    fn open_random(&self, path: &Path, options: OpenOptions) -> Result<Arc<dyn RandomAccessFile>> {
        self.0.open_random(path, options)
    }
    fn read_file(&self, path: &Path) -> Result<Vec<u8>> {
        self.0.read_file(path)
    }
    fn list_dir(&self, path: &Path) -> Result<Vec<String>> {
        self.0.list_dir(path)
    }
    fn metadata(&self, path: &Path) -> Result<Metadata> {
        self.0.metadata(path)
    }
    fn create(&self, path: &Path) -> Result<Box<dyn WritableFile>> {
        self.0.create(path)
    }
    fn append(&self, path: &Path) -> Result<Box<dyn WritableFile>> {
        self.0.append(path)
    }
    fn create_positional(&self, path: &Path) -> Result<Arc<dyn PositionalFile>> {
        self.0.create_positional(path)
    }
    fn create_direct(&self, path: &Path) -> Result<Arc<dyn PositionalFile>> {
        self.0.create_direct(path)
    }
    fn open_positional(&self, path: &Path) -> Result<Arc<dyn PositionalFile>> {
        self.0.open_positional(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.0.rename(from, to)
    }
    fn remove(&self, path: &Path) -> Result<()> {
        self.0.remove(path)
    }
    fn create_dir(&self, path: &Path) -> Result<()> {
        self.0.create_dir(path)
    }
    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.0.remove_dir(path)
    }
    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.0.sync_dir(path)
    }
    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        if let Some(hook) = self.1.lock().unwrap().take() {
            hook();
        }
        self.0.lock(path)
    }
}

fn new_db(options: &Options) -> Options {
    options.clone().db(|db| {
        db.create_if_missing = true;
        db.avoid_flush_during_shutdown = true;
    })
}

/// Asserts that a load into `/db` fails with an error that contains `what`, and that no file in
/// `directory` changes.
fn refused(files: &MemoryFileSystem, options: &Options, directory: &str, what: &str) {
    let before = contents(files, directory);
    let error = BulkLoader::create("/db", options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.to_string().contains(what), "{error}");
    assert_eq!(contents(files, directory), before);
}

#[test]
fn a_database_that_is_made_before_the_lock_is_taken_is_refused() {
    let (env, files) = memory();
    let theirs = new_db(&options(&env, ""));
    let other = theirs.clone();
    let hook: Box<dyn FnOnce() + Send> = Box::new(move || {
        let db = Db::open("/db", &other).unwrap();
        db.put("theirs", "acknowledged").unwrap();
        db.flush(&FlushOptions::default()).unwrap();
        db.close().unwrap();
    });
    let hooked = Arc::new(BeforeLock(files, Mutex::new(Some(hook))));
    let error =
        BulkLoader::create("/db", &options(&Env::builder().file_system(hooked).build(), "")).unwrap_err();
    assert!(error.to_string().contains("/db/CURRENT: there is a database already"), "{error}");
    assert!(Db::open("/db", &theirs).unwrap().get("theirs").unwrap().is_some());
}

#[test]
fn a_database_that_has_lost_current_is_refused_and_keeps_its_files() {
    let (env, files) = memory();
    let ours = options(&env, "");
    let db = Db::open("/db", &new_db(&ours)).unwrap();
    db.put("table", "precious").unwrap();
    db.flush(&FlushOptions::default()).unwrap();
    db.put("log", "precious").unwrap();
    db.close().unwrap();
    files.remove(Path::new("/db/CURRENT")).unwrap();
    refused(&files, &ours, "/db", "Db::repair");
    Db::repair("/db", &new_db(&ours)).unwrap();
    let db = Db::open("/db", &ours).unwrap();
    assert!(db.get("table").unwrap().is_some() && db.get("log").unwrap().is_some());
}

#[test]
fn each_file_of_a_database_is_refused_by_name() {
    let names = [
        "000005.sst",
        "000005.ldb",
        "000006.blob",
        "000004.log",
        "MANIFEST-000001",
        "OPTIONS-000007",
        "IDENTITY",
        "000009.dbtmp",
        "archive/000003.log",
    ];
    for name in names {
        let (env, files) = memory();
        let file = Path::new("/db").join(name);
        files.write_file(&file, b"theirs".to_vec()).unwrap();
        refused(&files, &options(&env, ""), "/db", &format!("{}: the file exists", file.display()));
        assert_eq!(files.read_file(&file).unwrap(), b"theirs");
    }
}

#[test]
fn other_files_do_not_matter() {
    let (env, files) = memory();
    files.write_file(Path::new("/db/notes.txt"), b"theirs".to_vec()).unwrap();
    files.write_file(Path::new("/db/LOCK"), Vec::new()).unwrap();
    let loader = BulkLoader::create("/db", &options(&env, "")).unwrap();
    loader.finish().unwrap();
    Db::open("/db", &options(&env, "")).unwrap();
    assert_eq!(files.read_file(Path::new("/db/notes.txt")).unwrap(), b"theirs");
}

#[test]
fn directories_of_tables_and_logs_must_be_unused_too() {
    for file in ["/fast/000005.sst", "/own/000008.blob", "/logs/000007.log", "/logs/archive/000007.log"] {
        let (env, files) = memory();
        files.write_file(Path::new(file), b"theirs".to_vec()).unwrap();
        let paths = options(&env, "wal_dir=/logs")
            .db_paths([DbPath::new("/db", 1 << 30), DbPath::new("/fast", 1 << 30)])
            .cf_paths(Some("other"), [DbPath::new("/own", 1 << 30)]);
        let directory = Path::new(file).parent().unwrap().to_string_lossy();
        refused(&files, &paths, &directory, file);
    }
}

#[test]
fn keys_have_room_for_their_timestamps() {
    let (env, _) = memory();
    let stamped = options(&env, "comparator=leveldb.BytewiseComparator.u64ts");
    let mut loader = BulkLoader::create("/db", &stamped).unwrap();
    let error = loader.put(b"short", b"value").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.to_string().contains("has 5 bytes"), "{error}");
    let mut run = loader.sorted_run(ColumnFamilyId::DEFAULT, 3).unwrap();
    assert!(run.write(ValueType::Deletion, b"1234567", b"").unwrap_err().to_string().contains("has 7 bytes"));
    run.put(b"12345678", b"the key is empty").unwrap();
    run.finish().unwrap();
    let error = loader.delete_range(b"from12345678", b"to12345678").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotSupported, "{error}");
    loader.finish().unwrap();
    let db = Db::open("/db", &stamped).unwrap();
    assert_eq!(db.live_files().len(), 1);
}

#[test]
fn the_level_for_files_that_are_ingested_behind_takes_no_run() {
    let (env, _) = memory();
    let behind = options(&env, "cf_allow_ingest_behind=true");
    let mut loader = BulkLoader::create("/db", &behind).unwrap();
    loader.put(b"key", b"value").unwrap();
    assert!(loader.seal(6).unwrap_err().to_string().contains("ingested behind"));
    loader.seal(5).unwrap();
    loader.finish().unwrap();
}

#[test]
fn a_range_that_ends_before_it_begins_and_a_reference_into_a_blob_file_are_refused() {
    let (env, _) = memory();
    let plain = options(&env, "");
    let mut loader = BulkLoader::create("/db", &plain).unwrap();
    loader.put(b"b", b"value").unwrap();
    let error = loader.delete_range(b"c", b"a").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.to_string().contains("ends before that"), "{error}");
    loader.delete_range(b"x", b"x").unwrap();
    let index = b"\x01\x07\x00\x05\x00";
    let family = ColumnFamilyId::DEFAULT;
    let error = loader.write(family, ValueType::BlobIndex, b"key", index).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.to_string().contains("blob file"), "{error}");
    loader.seal(3).unwrap();
    let mut run = loader.sorted_run(family, 2).unwrap();
    let error = run.write(ValueType::BlobIndex, b"key", index).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    run.finish().unwrap();
    loader.finish().unwrap();
    let db = Db::open("/db", &plain).unwrap();
    assert_eq!(db.get("b").unwrap().as_deref(), Some(&b"value"[..]));
    assert_eq!(db.get("key").unwrap(), None);
}
