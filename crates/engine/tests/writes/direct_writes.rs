//! Tables and blob files that are written and compacted with direct I/O, and the values that
//! RocksDB reads from them.

use karst_engine::{CompactRangeOptions, Db, FlushOptions, Options, WriteBatch, WriteOptions};
use karst_io::{Disturb, Disturbance, DisturbedFileSystem, Env, OpenOptions, PosixFileSystem};
use karst_testkit::rocksdb_tools as tools;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Names of files by the way they were created and opened.
#[derive(Debug, Default)]
struct Seen {
    refuses_direct: bool,
    created_direct: Mutex<BTreeSet<String>>,
    written: Mutex<BTreeSet<String>>,
    read_direct: Mutex<BTreeSet<String>>,
    read_buffered: Mutex<BTreeSet<String>>,
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

impl Disturb for Seen {
    fn read(&self, _: &Path, _: u64, _: usize) -> Option<Disturbance> {
        None
    }

    fn open_as(&self, path: &Path, options: OpenOptions) -> io::Result<()> {
        if options.direct && self.refuses_direct {
            return Err(io::Error::from_raw_os_error(22)); // EINVAL
        }
        let seen = if options.direct { &self.read_direct } else { &self.read_buffered };
        seen.lock().unwrap().insert(name(path));
        Ok(())
    }

    fn create_direct(&self, path: &Path) -> io::Result<()> {
        if self.refuses_direct {
            return Err(io::Error::from_raw_os_error(22));
        }
        self.created_direct.lock().unwrap().insert(name(path));
        Ok(())
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        self.written.lock().unwrap().insert(name(path));
        Ok(())
    }
}

fn key(number: u32) -> String {
    format!("key{number:06}")
}

/// Fills a database with values of many sizes, some of them in blob files, and compacts it once.
fn filled(directory: &Path, options: &str, seen: Seen) -> (Db, Arc<Seen>) {
    let file_system = DisturbedFileSystem::new(Arc::new(PosixFileSystem), seen);
    let seen = file_system.between().clone();
    let env = Env::builder().file_system(Arc::new(file_system)).build();
    let all = format!(
        "{options};compression=kNoCompression;format_version=5;enable_blob_files=true;min_blob_size=3000;disable_auto_compactions=true;target_file_size_base=300K"
    );
    let options = Options::new().env(env).set_all(&all).unwrap().db(|db| db.create_if_missing = true);
    let db = Db::open(directory, &options).unwrap();
    for round in 0..3u32 {
        let mut batch = WriteBatch::new();
        for number in (round..6000).step_by(1 + round as usize) {
            let size = (number * 37 % 700) as usize + if number % 50 == 0 { 3000 } else { 0 };
            batch.put(key(number), vec![b'a' + round as u8; size]).unwrap();
        }
        db.write(&WriteOptions::new(), &batch).unwrap();
        db.flush(&FlushOptions::default()).unwrap();
    }
    (db, seen)
}

fn check(db: &Db) {
    for number in 0..6000u32 {
        let size = (number * 37 % 700) as usize + if number % 50 == 0 { 3000 } else { 0 };
        let round = if number >= 2 && (number - 2) % 3 == 0 { 2 } else { u8::from(number % 2 == 1) };
        let value = db.get(key(number)).unwrap().unwrap();
        assert!(value.len() == size && value.iter().all(|byte| *byte == b'a' + round), "{number}");
    }
}

fn on_disk() -> tempfile::TempDir {
    // Not the temporary directory, because that may be in memory, without direct I/O.
    tempfile::Builder::new().tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn is_data(name: &str) -> bool {
    [".sst", ".blob"].iter().any(|extension| name.ends_with(extension))
}

/// Returns the tables and blob files that the database needs. The directory may hold more, because
/// obsolete files are removed a moment later.
fn files_of(db: &Db) -> BTreeSet<String> {
    let (names, _) = db.live_file_names();
    names.iter().map(|file| name(Path::new(file))).filter(|name| is_data(name)).collect()
}

#[test]
fn all_data_is_written_directly_and_rocksdb_reads_it() {
    let folder = on_disk();
    let path = folder.path().join("db");
    let (db, seen) = filled(&path, "use_direct_io_for_flush_and_compaction=true", Seen::default());
    check(&db);
    let flushed = files_of(&db);
    assert!(flushed.iter().any(|name| name.ends_with(".blob")) && flushed.len() > 4, "{flushed:?}");
    db.compact_range(&CompactRangeOptions::default(), None, None).unwrap();
    check(&db);
    let compacted: BTreeSet<String> = files_of(&db).difference(&flushed).cloned().collect();
    assert!(compacted.len() > 4, "{compacted:?}");
    let direct = seen.created_direct.lock().unwrap().clone();
    assert!(flushed.union(&compacted).all(|name| direct.contains(name)), "{direct:?}");
    assert!(direct.iter().all(|name| is_data(name)), "{direct:?}");
    assert!(seen.read_direct.lock().unwrap().is_empty(), "reads are another option's");
    // A file's length is that of its content, not rounded up to a block.
    let lengths =
        files_of(&db).iter().map(|name| path.join(name).metadata().unwrap().len()).collect::<Vec<_>>();
    assert!(lengths.iter().any(|len| len % 512 != 0), "{lengths:?}");
    drop(db);
    tools::verify_tables(&path).unwrap();
    let entries = tools::ldb_scan(&path, "default").unwrap();
    assert_eq!(entries.len(), 6000);
    check(&Db::open_read_only(&path, &Options::new()).unwrap());
}

#[test]
fn inputs_of_compactions_are_read_directly_and_nothing_else_is() {
    let folder = on_disk();
    let path = folder.path().join("db");
    for (round, max_open_files) in [-1, 100].into_iter().enumerate() {
        let options = format!(
            "use_direct_io_for_compaction_reads=true;max_open_files={max_open_files};cache_index_and_filter_blocks={}",
            round == 1
        );
        let (db, seen) = filled(&path, &options, Seen::default());
        check(&db);
        let flushed = files_of(&db);
        let tables: BTreeSet<String> = flushed.into_iter().filter(|name| name.ends_with(".sst")).collect();
        assert!(seen.read_direct.lock().unwrap().is_empty());
        db.compact_range(&CompactRangeOptions::default(), None, None).unwrap();
        let direct = seen.read_direct.lock().unwrap().clone();
        assert!(tables.iter().all(|name| direct.contains(name)), "{tables:?} {direct:?}");
        assert!(direct.iter().all(|name| name.ends_with(".sst")), "{direct:?}");
        check(&db);
        let (direct, buffered) = (seen.read_direct.lock().unwrap(), seen.read_buffered.lock().unwrap());
        let mut compacted = files_of(&db);
        compacted.retain(|name| name.ends_with(".sst"));
        assert!(compacted.len() > 1);
        for name in compacted {
            assert!(buffered.contains(&name) && !direct.contains(&name), "{name} is read for users");
        }
        assert!(seen.created_direct.lock().unwrap().is_empty());
        drop((direct, buffered));
        drop(db);
        std::fs::remove_dir_all(&path).unwrap();
    }
}

#[test]
fn where_the_file_system_refuses_everything_goes_through_the_page_cache() {
    let folder = on_disk();
    let path: PathBuf = folder.path().join("db");
    let options = "use_direct_io_for_flush_and_compaction=true;use_direct_io_for_compaction_reads=true";
    let (db, seen) = filled(&path, options, Seen { refuses_direct: true, ..Seen::default() });
    db.compact_range(&CompactRangeOptions::default(), None, None).unwrap();
    check(&db);
    let written = seen.written.lock().unwrap().clone();
    assert!(files_of(&db).iter().all(|name| written.contains(name)));
    assert!(seen.created_direct.lock().unwrap().is_empty() && seen.read_direct.lock().unwrap().is_empty());
}
