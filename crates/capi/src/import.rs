//! Export of column families, and import of exported ones.

use crate::boundary::*;
use crate::copies::CheckpointHandle;
use crate::family::Family;
use crate::handle::Database;
use crate::metadata::{Live, LiveFiles};
use crate::options::OptionsHandle;
use karstdb::{Checkpoint, ExportImportFilesMetaData, ImportColumnFamilyOptions};
use libc::{c_char, c_uchar};
use std::time::Duration;

/// `rocksdb_export_import_files_metadata_t`.
#[derive(Debug, Default)]
pub struct Exports {
    comparator: String,
    files: Vec<Live>,
}

/// `rocksdb_import_column_family_options_t`.
#[derive(Debug, Default)]
pub struct Import(ImportColumnFamilyOptions);

capi! {
    attempt rocksdb_checkpoint_export_column_family(checkpoint: *const CheckpointHandle, family: *const Family, dir: *const c_char) -> *mut Exports {
        let (db, family) = (&of(checkpoint)?.0, &of(family)?.0);
        let exported = Checkpoint::new(db)?.export_column_family(family, path(dir)?)?;
        let files = exported.files.into_iter().map(Live::exported).collect();
        Ok(give(Exports { comparator: exported.db_comparator_name, files }))
    }
    call rocksdb_export_import_files_metadata_create() -> *mut Exports { give(Exports::default()) }
    call rocksdb_export_import_files_metadata_destroy(exports: *mut Exports) { end(exports); }
    call rocksdb_export_import_files_metadata_get_db_comparator_name(exports: *const Exports) -> *mut c_char {
        exports.as_ref().map_or(std::ptr::null_mut(), |exports| text_out(&exports.comparator))
    }
    call rocksdb_export_import_files_metadata_set_db_comparator_name(exports: *mut Exports, name: *const c_char) {
        let name = or_say("rocksdb_export_import_files_metadata_set_db_comparator_name", text(name));
        if let (Some(exports), Some(name)) = (exports.as_mut(), name) { exports.comparator = name.to_owned() }
    }
    call rocksdb_export_import_files_metadata_get_files(exports: *const Exports) -> *mut LiveFiles {
        exports.as_ref().map_or(std::ptr::null_mut(), |exports| give(LiveFiles(exports.files.clone())))
    }
    // The call destroys the handle of the files.
    call rocksdb_export_import_files_metadata_set_files(exports: *mut Exports, files: *mut LiveFiles) {
        let files = take(files);
        if let Some(exports) = exports.as_mut() { exports.files = files.unwrap_or_default().0 }
    }

    call rocksdb_import_column_family_options_create() -> *mut Import { give(Import::default()) }
    call rocksdb_import_column_family_options_destroy(options: *mut Import) { end(options); }
    call rocksdb_import_column_family_options_set_move_files(options: *mut Import, value: c_uchar) {
        if let Some(options) = options.as_mut() { options.0.move_files = value != 0 }
    }
    call rocksdb_import_column_family_options_get_move_files(options: *const Import) -> c_uchar {
        options.as_ref().is_some_and(|options| options.0.move_files).into()
    }
    attempt rocksdb_create_column_family_with_import(db: *const Database, options: *const OptionsHandle, name: *const c_char, import: *const Import, exports: *const Exports) -> *mut Family {
        let (db, options, name, exports) = (of(db)?, of(options)?, text(name)?, of(exports)?);
        let import = import.as_ref().map(|import| import.0).unwrap_or_default();
        let files = exports.files.iter().map(Live::to_exported).collect::<karstdb::Result<_>>()?;
        let metadata = ExportImportFilesMetaData { db_comparator_name: exports.comparator.clone(), files };
        let mut options = options.to_options(&[(name, options)])?;
        if let Some(ttl) = &db.ttl {
            // Entries of a family created this way never expire; see `family`.
            options = ttl.new_family_options(&options, Duration::ZERO);
        }
        Ok(give(Family(db.db.create_column_family_with_import(name, &options, &import, &metadata)?)))
    }
}
