//! Ingestion in lockstep: each engine writes a table outside of its database, and ingests its own
//! or the other's, as the newest entries of a family or behind all others.

use super::engine::{Change, Failure, Outcome};
use super::follow::path_text;
use super::karst;
use super::rocks::{at, call};
use karst_engine::{ColumnFamily, Db, IngestExternalFileOptions, Options, SstFileWriter};
use karst_testkit::script::Write;
use librocksdb_sys as ffi;
use rocksdb::AsRawPtr;
use std::path::{Path, PathBuf};

/// Options of an ingestion.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ways {
    /// The entries are older than all others of the family.
    pub(super) behind: bool,
    /// The file is linked and its original name removed, instead of copied.
    pub(super) moved: bool,
    pub(super) verified: bool,
}

/// Path of a file, beside the database whose engine writes it.
pub(super) fn path(database: &Path, number: usize) -> PathBuf {
    database.with_extension(format!("file{number}.sst"))
}

/// Writes a file for any family with KarstDB. The entries ascend.
pub(super) fn write_karst(lines: &str, path: &Path, entries: &[Change]) -> Outcome<()> {
    let write = || {
        let mut writer = SstFileWriter::create(&karst::family_options(Options::new(), "default", lines))?;
        writer.open(path)?;
        for entry in entries {
            match entry {
                Change::Plain(Write::Put { key, value, .. }) => writer.put(key, value),
                Change::Plain(Write::Merge { key, operand, .. }) => writer.merge(key, operand),
                Change::Plain(Write::DeleteRange { begin, end, .. }) => writer.delete_range(begin, end),
                other => writer.delete(other.key()),
            }?;
        }
        writer.finish().map(drop)
    };
    write().map_err(karst::failure)
}

/// Ingests a file into KarstDB.
pub(super) fn ingest_karst(db: &Db, family: &ColumnFamily, path: &Path, ways: Ways) -> Outcome<()> {
    let options = IngestExternalFileOptions {
        ingest_behind: ways.behind,
        move_files: ways.moved,
        verify_checksums_before_ingest: ways.verified,
        ..Default::default()
    };
    let arg = karst_engine::IngestExternalFileArg::new(family, [path], options);
    db.ingest_external_files(&[arg]).map_err(karst::failure)
}

/// Writes a file with RocksDB. The entries ascend.
pub(super) fn write_rocks(lines: &str, path: &Path, entries: &[Change]) -> Outcome<()> {
    let options = crate::rocks::options(lines).map_err(|text| Failure { kind: "invalid argument", text })?;
    let path = path_text(path);
    // SAFETY: everything outlives the calls, and the created objects are freed once.
    unsafe {
        let env = ffi::rocksdb_envoptions_create();
        let writer = ffi::rocksdb_sstfilewriter_create(env, options.as_raw_ptr());
        let write = || {
            call(|error| ffi::rocksdb_sstfilewriter_open(writer, path.as_ptr(), error))?;
            entries.iter().try_for_each(|entry| call(|error| add(writer, entry, error)))?;
            call(|error| ffi::rocksdb_sstfilewriter_finish(writer, error))
        };
        let written = write();
        ffi::rocksdb_sstfilewriter_destroy(writer);
        ffi::rocksdb_envoptions_destroy(env);
        written
    }
}

/// Adds an entry to a file.
///
/// # Safety
/// The writer is alive.
unsafe fn add(writer: *mut ffi::rocksdb_sstfilewriter_t, entry: &Change, error: *mut *mut libc::c_char) {
    // SAFETY: the bytes outlive the calls, which copy.
    unsafe {
        match entry {
            Change::Plain(Write::Put { key, value, .. }) => {
                ffi::rocksdb_sstfilewriter_put(writer, at(key), key.len(), at(value), value.len(), error);
            }
            Change::Plain(Write::Merge { key, operand, .. }) => {
                let (operand, length) = (at(operand), operand.len());
                ffi::rocksdb_sstfilewriter_merge(writer, at(key), key.len(), operand, length, error);
            }
            Change::Plain(Write::DeleteRange { begin, end, .. }) => {
                let (begin, length) = (at(begin), begin.len());
                ffi::rocksdb_sstfilewriter_delete_range(writer, begin, length, at(end), end.len(), error);
            }
            other => {
                let key = other.key();
                ffi::rocksdb_sstfilewriter_delete(writer, at(key), key.len(), error);
            }
        }
    }
}

/// Ingests a file into RocksDB.
///
/// # Safety
/// Database and family are alive.
pub(super) unsafe fn ingest_rocks(
    db: *mut ffi::rocksdb_t,
    family: *mut ffi::rocksdb_column_family_handle_t,
    path: &Path,
    ways: Ways,
) -> Outcome<()> {
    let path = path_text(path);
    let files = [path.as_ptr()];
    // SAFETY: everything outlives the calls, and the options are freed once.
    unsafe {
        let options = ffi::rocksdb_ingestexternalfileoptions_create();
        ffi::rocksdb_ingestexternalfileoptions_set_ingest_behind(options, ways.behind.into());
        ffi::rocksdb_ingestexternalfileoptions_set_move_files(options, ways.moved.into());
        let verified = ways.verified.into();
        ffi::rocksdb_ingestexternalfileoptions_set_verify_checksums_before_ingest(options, verified);
        let done = call(|error| {
            ffi::rocksdb_ingest_external_file_cf(db, family, files.as_ptr(), files.len(), options, error);
        });
        ffi::rocksdb_ingestexternalfileoptions_destroy(options);
        done
    }
}
