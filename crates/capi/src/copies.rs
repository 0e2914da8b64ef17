//! Checkpoints, and ingestion of table files.

use crate::boundary::*;
use crate::call_options::Ingest;
use crate::family::{Family, family_or_default};
use crate::handle::Database;
use karstdb::{Checkpoint, ColumnFamily, Db, IngestExternalFileArg};
use libc::c_char;
use std::path::PathBuf;

/// `rocksdb_checkpoint_t`.
#[derive(Debug)]
pub struct CheckpointHandle(pub(crate) Db);

unsafe fn ingest(
    db: &Db,
    family: &ColumnFamily,
    files: *const *const c_char,
    count: usize,
    options: *const Ingest,
) -> karstdb::Result<()> {
    let options = unsafe { options.as_ref() }.map(|ingest| ingest.options).unwrap_or_default();
    let files = unsafe { list(files, count) }.iter().map(|file| Ok(unsafe { path(*file)? }.to_owned()));
    let files = files.collect::<karstdb::Result<Vec<PathBuf>>>()?;
    db.ingest_external_files(&[IngestExternalFileArg::new(family, files, options)])
}

capi! {
    attempt rocksdb_checkpoint_object_create(db: *const Database) -> *mut CheckpointHandle {
        let db = &of(db)?.db;
        Checkpoint::new(db)?;
        Ok(give(CheckpointHandle(db.clone())))
    }
    attempt rocksdb_checkpoint_create(checkpoint: *const CheckpointHandle, dir: *const c_char, log_size_for_flush: u64) {
        Checkpoint::new(&of(checkpoint)?.0)?.create_checkpoint(path(dir)?, log_size_for_flush)
    }
    call rocksdb_checkpoint_object_destroy(checkpoint: *mut CheckpointHandle) { end(checkpoint); }

    attempt rocksdb_ingest_external_file(db: *const Database, files: *const *const c_char, count: usize, options: *const Ingest) {
        let db = &of(db)?.db;
        ingest(db, db.default_column_family(), files, count, options)
    }
    attempt rocksdb_ingest_external_file_cf(db: *const Database, family: *const Family, files: *const *const c_char, count: usize, options: *const Ingest) {
        let db = &of(db)?.db;
        ingest(db, family_or_default(db, family), files, count, options)
    }
}
