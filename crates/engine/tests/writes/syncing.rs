//! Syncs of files, full and by range, as the options select: `use_fsync`, `bytes_per_sync`,
//! `wal_bytes_per_sync`, `strict_bytes_per_sync`.

use karst_engine::{Db, FlushOptions, Options, WriteOptions};
use karst_io::{Disturb, Disturbance, DisturbedFileSystem, Env, PosixFileSystem};
use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Kinds of files that were synced with all metadata, and those synced by range, strictly or not.
#[derive(Debug, Default)]
struct Seen {
    synced_all: Mutex<BTreeSet<String>>,
    told: Mutex<BTreeSet<(String, bool)>>,
}

fn kind(path: &Path) -> String {
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    let kind = name.trim_start_matches(|c: char| c.is_ascii_digit());
    kind.split('-').next().unwrap_or_default().to_owned()
}

impl Disturb for Seen {
    fn read(&self, _: &Path, _: u64, _: usize) -> Option<Disturbance> {
        None
    }

    fn sync_all(&self, path: &Path) -> io::Result<()> {
        self.synced_all.lock().unwrap().insert(kind(path));
        Ok(())
    }

    fn sync_range(&self, path: &Path, strict: bool) {
        self.told.lock().unwrap().insert((kind(path), strict));
    }
}

/// Writes, syncs and flushes enough for range syncs of every kind of file.
fn written(options: &str) -> (Vec<String>, Vec<(String, bool)>) {
    let folder = tempfile::tempdir().unwrap();
    let file_system = DisturbedFileSystem::new(Arc::new(PosixFileSystem), Seen::default());
    let seen = file_system.between().clone();
    let env = Env::builder().file_system(Arc::new(file_system)).build();
    let all = format!("{options};compression=kNoCompression;enable_blob_files=true;min_blob_size=8000");
    let options = Options::new().env(env).set_all(&all).unwrap().db(|db| db.create_if_missing = true);
    let db = Db::open(folder.path(), &options).unwrap();
    for number in 0..2000_u32 {
        let bytes = if number % 2 == 0 { 9000 } else { 4000 };
        db.put(format!("key{number}"), vec![number as u8; bytes]).unwrap();
    }
    db.put_opt(&WriteOptions::synced(), "last", "one").unwrap();
    db.flush(&FlushOptions::default()).unwrap();
    assert_eq!(db.get("key1999").unwrap().unwrap().len(), 4000);
    drop(db);
    let synced = seen.synced_all.lock().unwrap().iter().cloned().collect();
    let told = seen.told.lock().unwrap().iter().cloned().collect();
    (synced, told)
}

#[test]
fn files_are_synced_with_fsync_only_where_that_is_asked_for() {
    assert_eq!(written("use_fsync=false").0, Vec::<String>::new());
    assert_eq!(written("use_fsync=true").0, [".blob", ".log", ".sst", "MANIFEST"]);
}

#[test]
fn files_are_told_to_travel_after_so_many_bytes_and_waited_for_where_that_is_asked_for() {
    assert_eq!(written("bytes_per_sync=0").1, []);
    for strict in [false, true] {
        let told = |what: &str| written(&format!("{what};strict_bytes_per_sync={strict}")).1;
        assert_eq!(told("wal_bytes_per_sync=100K"), [(".log".to_owned(), strict)]);
        let tables = told("bytes_per_sync=100K");
        assert_eq!(tables, [(".blob".to_owned(), strict), (".sst".to_owned(), strict)]);
        // Direct writes bypass the page cache and need no range sync.
        assert_eq!(
            told("bytes_per_sync=100K;use_direct_io_for_flush_and_compaction=true"),
            tables_if_refused(&tables)
        );
    }
}

/// On a file system without direct I/O, files are written through the page cache.
fn tables_if_refused(tables: &[(String, bool)]) -> Vec<(String, bool)> {
    let folder = tempfile::tempdir().unwrap();
    let refused =
        karst_io::FileSystem::create_direct(&PosixFileSystem, &folder.path().join("probe")).is_err();
    if refused { tables.to_vec() } else { Vec::new() }
}
