//! Copies of an open database that is written to: disabled file deletions, checkpoints, exports and
//! backups, and crashes during all of them.
//!
//! | file | holds |
//! |---|---|
//! | `held` | disabled and enabled file deletions, the locked log, the list of live files |
//! | `checkpoint` | content of checkpoints, refused calls, cleaning up after failures |
//! | `export` | column families that another database imports |
//! | `import` | calls that are concurrent with an import, and metadata with hostile values |
//! | `backup` | backups, also those that RocksDB's tool makes and restores |
//! | `backup_options` | effects of the options of backups and of restoring |
//! | `states` | the states that a crash may leave, each opened and checked |
//! | `changes_of_trees` | power failures while families are imported and clipped, and files are ingested |
//! | `crashes` | power failures at every change of the disk while a checkpoint is made |
//! | `owners` | directories of another database, which no call may damage |
//! | `restore_crashes` | power failures at every change of the disk while a backup is restored |

mod backup;
mod backup_options;
mod changes_of_trees;
mod checkpoint;
mod crashes;
mod export;
mod held;
mod import;
mod owners;
mod restore_crashes;
mod states;

use karst_engine::{
    Checkpoint, Db, ExportImportFilesMetaData, FlushOptions, Options, ReadOptions, WriteOptions,
};
use karst_format::key::{self as format_key, SeqNo, ValueType};
use karst_io::{Env, FileSystem, MemoryFileSystem};
use std::path::Path;
use std::sync::Arc;

/// Returns an environment over files in memory, and these files.
fn memory() -> (Env, Arc<MemoryFileSystem>) {
    let files = Arc::new(MemoryFileSystem::new());
    (Env::builder().file_system(files.clone()).build(), files)
}

/// Returns options with small sizes, so that files of all kinds come and go.
fn options(env: &Env, more: &str) -> Options {
    let buffer = if more.contains("write_buffer_size") { "" } else { "write_buffer_size=60000;" };
    let text = format!(
        "create_if_missing=true;create_missing_column_families=true;stats_dump_period_sec=0;{buffer}{more}"
    );
    Options::new().env(env.clone()).set_all(&text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// Returns the names in a directory, without LOG, LOCK and `archive`.
fn names(files: &dyn FileSystem, directory: &str) -> Vec<String> {
    let mut names = files.list_dir(Path::new(directory)).unwrap();
    names.retain(|name| !name.starts_with("LO") && name != "archive");
    names
}

fn key(number: u64) -> Vec<u8> {
    format!("{number:08}").into_bytes()
}

/// Returns all entries of a column family.
fn entries(db: &Db, family: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
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

/// Returns the number of consecutive keys from 0 on in a family, and panics if one between is
/// missing.
fn prefix(db: &Db, family: &str) -> u64 {
    let found = entries(db, family);
    for (number, (found, _)) in found.iter().enumerate() {
        assert_eq!(*found, key(number as u64), "in {family}");
    }
    found.len() as u64
}

/// Returns an internal key.
fn internal(user_key: &[u8], trailer: u64) -> Vec<u8> {
    let mut internal = Vec::new();
    format_key::append(&mut internal, user_key, trailer);
    internal
}

/// Exports three tables as RocksDB's compactions write them: both tables of L1 have the tombstone
/// of all keys from `b` on, which their bounds cut at `d` and `k`. L2 has `m`, older than the
/// tombstone and right of both bounds, as if a compaction had taken the tombstone's rest with it.
pub(crate) fn export_of_cut_tombstones(db: &Db, directory: &str) -> ExportImportFilesMetaData {
    let flush = || db.flush(&FlushOptions::default()).unwrap();
    let family = db.default_column_family();
    db.put("m", "of L2").unwrap();
    flush();
    for key in ["a", "e"] {
        db.delete_range_cf(&WriteOptions::new(), family, "b", "z").unwrap();
        db.put(key, "of L1").unwrap();
        flush();
    }
    let mut metadata = Checkpoint::new(db).unwrap().export_column_family(family, directory).unwrap();
    metadata.files.sort_by_key(|file| file.smallest_seq);
    let [deep, left, right] = &mut metadata.files[..] else { panic!("{metadata:?}") };
    (deep.level, left.level, right.level) = (2, 1, 1);
    left.largest = internal(b"d", format_key::RANGE_TOMBSTONE_SENTINEL);
    let seq = SeqNo(right.smallest_seq);
    right.smallest = internal(b"d", format_key::pack_trailer(seq, ValueType::RangeDeletion));
    right.largest = internal(b"k", format_key::RANGE_TOMBSTONE_SENTINEL);
    metadata
}
