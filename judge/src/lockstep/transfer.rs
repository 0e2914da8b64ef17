//! Export and import of column families in lockstep: each engine exports the tables of a family,
//! and both import one of the two exports as a new family.
//!
//! A list beside an exported directory has the tables' names, levels, sequence numbers and bounds,
//! which both engines take. Without bounds neither can import a level whose tables have one range
//! tombstone, as RocksDB's compactions write them.

use super::engine::{Failure, Outcome};
use super::follow::path_text;
use super::karst;
use super::rocks::call;
use karst_engine::{
    Checkpoint, ColumnFamily, Db, ExportImportFilesMetaData, ExportedFile, ImportColumnFamilyOptions, Options,
};
use librocksdb_sys as ffi;
use rocksdb::AsRawPtr;
use std::ffi::{CStr, CString};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// An exported table.
struct Table {
    name: String,
    level: u32,
    seqs: [u64; 2],
    /// The smallest and the largest internal key.
    bounds: [Vec<u8>; 2],
}

unsafe extern "C" {
    fn karst_judge_bound(
        files: *const ffi::rocksdb_livefiles_t,
        at: libc::c_int,
        largest: libc::c_int,
        length: *mut usize,
    ) -> *const libc::c_char;
    fn karst_judge_set_bound(
        file: *mut ffi::rocksdb_livefile_t,
        largest: libc::c_int,
        key: *const libc::c_char,
        length: usize,
    );
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let byte = |at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    (0..text.len()).step_by(2).map(byte).collect()
}

/// Directory of an export, beside the database that it comes from.
fn directory(database: &Path, number: usize) -> PathBuf {
    database.with_extension(format!("export{number}"))
}

fn wrong(error: impl ToString) -> Failure {
    Failure { kind: "I/O", text: error.to_string() }
}

/// Writes the list of an export.
fn write_list(export: &Path, comparator: &str, tables: &[Table]) -> Outcome<()> {
    let mut lines = format!("{comparator}\n");
    for Table { name, level, seqs: [low, high], bounds: [smallest, largest] } in tables {
        let _ = writeln!(lines, "{name} {level} {low} {high} {} {}", hex(smallest), hex(largest));
    }
    std::fs::write(export.with_extension("list"), lines).map_err(wrong)
}

/// Reads the comparator and the tables of an export.
fn read_list(export: &Path) -> Outcome<(String, Vec<Table>)> {
    let text = std::fs::read_to_string(export.with_extension("list")).map_err(wrong)?;
    let mut lines = text.lines();
    let comparator = lines.next().unwrap_or_default().to_owned();
    let table = |line: &str| {
        let mut words = line.split(' ');
        Some(Table {
            name: words.next()?.to_owned(),
            level: words.next()?.parse().ok()?,
            seqs: [words.next()?.parse().ok()?, words.next()?.parse().ok()?],
            bounds: [unhex(words.next()?)?, unhex(words.next()?)?],
        })
    };
    let tables = lines.map(|line| table(line).ok_or_else(|| wrong(line))).collect::<Outcome<_>>()?;
    Ok((comparator, tables))
}

/// Exports a family of KarstDB.
pub(super) fn export_karst(db: &Db, family: &ColumnFamily, database: &Path, number: usize) -> Outcome<()> {
    let export = directory(database, number);
    let checkpoint = Checkpoint::new(db).map_err(karst::failure)?;
    let exported = checkpoint.export_column_family(family, &export).map_err(karst::failure)?;
    let tables: Vec<Table> = exported
        .files
        .into_iter()
        .map(|file| Table {
            name: file.name,
            level: file.level,
            seqs: [file.smallest_seq, file.largest_seq],
            bounds: [file.smallest, file.largest],
        })
        .collect();
    write_list(&export, &exported.db_comparator_name, &tables)
}

/// Imports an export of `database` into KarstDB.
pub(super) fn import_karst(
    db: &Db,
    (name, lines): (&str, &str),
    database: &Path,
    number: usize,
) -> Outcome<ColumnFamily> {
    let export = directory(database, number);
    let (db_comparator_name, tables) = read_list(&export)?;
    let file = |Table { name, level, seqs: [smallest_seq, largest_seq], bounds: [smallest, largest] }| {
        ExportedFile {
            name,
            directory: export.clone(),
            level,
            size_bytes: 0,
            smallest,
            largest,
            smallest_seq,
            largest_seq,
            epoch_number: 0,
            checksum: None,
        }
    };
    let metadata =
        ExportImportFilesMetaData { db_comparator_name, files: tables.into_iter().map(file).collect() };
    let options = karst::family_options(Options::new(), name, lines);
    db.create_column_family_with_import(name, &options, &ImportColumnFamilyOptions::default(), &metadata)
        .map_err(karst::failure)
}

/// Exports a family of RocksDB.
///
/// # Safety
/// Database and family are alive.
pub(super) unsafe fn export_rocks(
    db: *mut ffi::rocksdb_t,
    family: *mut ffi::rocksdb_column_family_handle_t,
    database: &Path,
    number: usize,
) -> Outcome<()> {
    let export = directory(database, number);
    let path = path_text(&export);
    // SAFETY: everything outlives the calls, and the created objects are freed once.
    unsafe {
        let checkpoint = call(|error| ffi::rocksdb_checkpoint_object_create(db, error))?;
        let exported = call(|error| {
            ffi::rocksdb_checkpoint_export_column_family(checkpoint, family, path.as_ptr(), error)
        });
        ffi::rocksdb_checkpoint_object_destroy(checkpoint);
        let exported = exported?;
        let files = ffi::rocksdb_export_import_files_metadata_get_files(exported);
        let name = ffi::rocksdb_export_import_files_metadata_get_db_comparator_name(exported);
        let comparator = CStr::from_ptr(name).to_string_lossy().into_owned();
        let table = |at| Table {
            name: CStr::from_ptr(ffi::rocksdb_livefiles_name(files, at))
                .to_string_lossy()
                .trim_start_matches('/')
                .to_owned(),
            level: ffi::rocksdb_livefiles_level(files, at).unsigned_abs(),
            seqs: [
                ffi::rocksdb_livefiles_smallest_seqno(files, at),
                ffi::rocksdb_livefiles_largest_seqno(files, at),
            ],
            bounds: [0, 1].map(|largest| {
                let mut length = 0;
                let key = karst_judge_bound(files, at, largest, &mut length);
                std::slice::from_raw_parts(key.cast(), length).to_vec()
            }),
        };
        let tables: Vec<Table> = (0..ffi::rocksdb_livefiles_count(files)).map(table).collect();
        ffi::rocksdb_free(name.cast());
        ffi::rocksdb_livefiles_destroy(files);
        ffi::rocksdb_export_import_files_metadata_destroy(exported);
        write_list(&export, &comparator, &tables)
    }
}

/// Imports an export of `database` into RocksDB.
///
/// # Safety
/// The database is alive.
pub(super) unsafe fn import_rocks(
    db: *mut ffi::rocksdb_t,
    (name, lines): (&str, &str),
    database: &Path,
    number: usize,
) -> Outcome<*mut ffi::rocksdb_column_family_handle_t> {
    let options = crate::rocks::options(lines).map_err(|text| Failure { kind: "invalid argument", text })?;
    let export = directory(database, number);
    let (comparator, tables) = read_list(&export)?;
    let [name, comparator] = [name, &*comparator].map(|text| CString::new(text).expect("no zero"));
    // SAFETY: everything outlives the calls; the list belongs to the metadata once it is set, and
    // the other created objects are freed once.
    unsafe {
        let files = files_of(&export, &tables);
        let metadata = ffi::rocksdb_export_import_files_metadata_create();
        ffi::rocksdb_export_import_files_metadata_set_db_comparator_name(metadata, comparator.as_ptr());
        ffi::rocksdb_export_import_files_metadata_set_files(metadata, files);
        let import = ffi::rocksdb_import_column_family_options_create();
        let family = call(|error| {
            let (options, name) = (options.as_raw_ptr(), name.as_ptr());
            ffi::rocksdb_create_column_family_with_import(db, options, name, import, metadata, error)
        });
        ffi::rocksdb_import_column_family_options_destroy(import);
        ffi::rocksdb_export_import_files_metadata_destroy(metadata);
        family
    }
}

/// Returns RocksDB's form of a list, which the caller passes on or frees.
fn files_of(export: &Path, tables: &[Table]) -> *mut ffi::rocksdb_livefiles_t {
    let export = path_text(export);
    // SAFETY: the calls copy, and `rocksdb_livefiles_add` frees each table.
    unsafe {
        let files = ffi::rocksdb_livefiles_create();
        for table in tables {
            let name = CString::new(&*table.name).expect("a file's name");
            let file = ffi::rocksdb_livefile_create();
            ffi::rocksdb_livefile_set_name(file, name.as_ptr());
            ffi::rocksdb_livefile_set_directory(file, export.as_ptr());
            ffi::rocksdb_livefile_set_level(file, table.level.cast_signed());
            ffi::rocksdb_livefile_set_smallest_seqno(file, table.seqs[0]);
            ffi::rocksdb_livefile_set_largest_seqno(file, table.seqs[1]);
            for (largest, bound) in (0..).zip(&table.bounds) {
                karst_judge_set_bound(file, largest, bound.as_ptr().cast(), bound.len());
            }
            ffi::rocksdb_livefiles_add(files, file);
        }
        files
    }
}
