//! Databases made by the bulk loader: directories that it refuses, entries that it keeps, and loads
//! that end in a crash, on a failing device or on a full disk.
//!
//! | file | holds |
//! |---|---|
//! | `refused` | directories that hold files of another database, and keys that cannot be stored |
//! | `kept` | timestamps, several directories |
//! | `crashes` | a crash at every change of the disk, a fault in every operation, a full disk |

mod crashes;
mod kept;
mod refused;

use karst_engine::{Db, Options, ReadOptions};
use karst_io::{Env, FileSystem, MemoryFileSystem};
use std::path::Path;
use std::sync::Arc;

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// Returns an environment over files in memory, and these files.
fn memory() -> (Env, Arc<MemoryFileSystem>) {
    let files = Arc::new(MemoryFileSystem::new());
    (Env::builder().file_system(files.clone()).build(), files)
}

/// Returns all entries of a column family.
fn entries(db: &Db, family: &str) -> Entries {
    let family = db.column_family(family).unwrap();
    let mut iter = db.iter_cf(&ReadOptions::new(), &family).unwrap();
    let mut all = Vec::new();
    iter.seek_to_first().unwrap();
    while iter.valid() {
        all.push((iter.key().to_vec(), iter.value().to_vec()));
        iter.next().unwrap();
    }
    all
}

/// Returns the files of a directory with their bytes, without LOCK.
fn contents(files: &dyn FileSystem, directory: &str) -> Entries {
    let directory = Path::new(directory);
    let mut names = files.list_dir(directory).unwrap();
    names.retain(|name| name != "LOCK" && !files.metadata(&directory.join(name)).unwrap().is_dir);
    names
        .into_iter()
        .map(|name| (name.clone().into(), files.read_file(&directory.join(name)).unwrap()))
        .collect()
}

fn options(env: &Env, more: &str) -> Options {
    Options::new().env(env.clone()).set_all(&format!("stats_dump_period_sec=0;{more}")).unwrap()
}
