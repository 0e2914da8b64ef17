//! Metadata of a column family by level, and the list of files that a copy of a database needs.
//!
//! Handles share the data by reference counts, so levels, tables and the family can be destroyed in
//! any order.

use crate::boundary::*;
use crate::family::Family;
use crate::handle::Database;
use karstdb::{
    ColumnFamily, ColumnFamilyMetaData, DatabaseFile, DatabaseFileKind, Db, LevelMetaData, LiveFile,
    LiveFilesStorageInfoOptions,
};
use libc::{c_char, c_int, c_uchar};
use std::ffi::CString;
use std::sync::Arc;

/// `rocksdb_column_family_metadata_t`.
#[derive(Debug)]
pub struct FamilyMetadata(Arc<ColumnFamilyMetaData>);

/// `rocksdb_level_metadata_t`.
#[derive(Debug)]
pub struct LevelMetadata(Arc<ColumnFamilyMetaData>, usize);

impl LevelMetadata {
    fn level(&self) -> &LevelMetaData {
        &self.0.levels[self.1]
    }
}

/// `rocksdb_sst_file_metadata_t`.
#[derive(Debug)]
pub struct TableMetadata(LiveFile);

/// `rocksdb_column_family_metadata_options_t`.
#[derive(Debug, Default)]
pub struct MetadataSettings {
    start: Option<Vec<u8>>,
    end: Option<Vec<u8>>,
    /// `None` for all levels.
    level: Option<u32>,
}

/// Returns the metadata that the options select. Levels without selected tables are left out.
fn part(db: &Db, family: &ColumnFamily, options: &MetadataSettings) -> *mut FamilyMetadata {
    let range = (options.start.as_deref(), options.end.as_deref());
    let found = db.column_family_metadata_in_range(family, range, options.level);
    let found = or_say("rocksdb_get_column_family_metadata_with_options", found);
    found.map_or(std::ptr::null_mut(), |found| give(FamilyMetadata(Arc::new(found))))
}

fn metadata(db: &Db, family: &ColumnFamily) -> *mut FamilyMetadata {
    let found = or_say("rocksdb_get_column_family_metadata", db.column_family_metadata(family));
    found.map_or(std::ptr::null_mut(), |found| give(FamilyMetadata(Arc::new(found))))
}

/// `rocksdb_livefiles_storage_info_options_t`.
#[derive(Debug, Default)]
pub struct StorageInfoSettings(LiveFilesStorageInfoOptions);

/// `rocksdb_livefiles_storage_info_t`: files, with their texts as C strings.
#[derive(Debug)]
pub struct StorageInfo(Vec<StoredFile>);

#[derive(Debug)]
struct StoredFile {
    file: DatabaseFile,
    name: CString,
    directory: CString,
    checksum: CString,
    checksum_function: CString,
}

impl StoredFile {
    fn new(file: DatabaseFile) -> StoredFile {
        let text = |bytes: &[u8]| {
            CString::new(bytes.iter().copied().take_while(|byte| *byte != 0).collect::<Vec<_>>())
        };
        let text = |bytes: &[u8]| text(bytes).unwrap_or_default();
        let (checksum, function) = file.checksum.clone().unwrap_or_default();
        StoredFile {
            name: text(file.name.as_bytes()),
            directory: text(file.directory.as_os_str().as_encoded_bytes()),
            checksum: text(&checksum),
            checksum_function: text(function.as_bytes()),
            file,
        }
    }

    /// Returns RocksDB's `FileType`.
    fn kind(&self) -> c_int {
        match self.file.kind {
            DatabaseFileKind::Wal => 0,
            DatabaseFileKind::Table => 2,
            DatabaseFileKind::Manifest => 3,
            DatabaseFileKind::Current => 4,
            DatabaseFileKind::Options => 9,
            DatabaseFileKind::Blob => 10,
            // Compat: RocksDB's number of a temporary file, which programs skip.
            _ => 5,
        }
    }
}

unsafe fn stored<'a>(info: *const StorageInfo, at: usize) -> Option<&'a StoredFile> {
    unsafe { info.as_ref() }?.0.get(at)
}

capi! {
    call rocksdb_get_column_family_metadata(db: *const Database) -> *mut FamilyMetadata {
        db.as_ref().map_or(std::ptr::null_mut(), |db| metadata(&db.db, db.db.default_column_family()))
    }
    call rocksdb_get_column_family_metadata_cf(db: *const Database, family: *const Family) -> *mut FamilyMetadata {
        match (db.as_ref(), family.as_ref()) {
            (Some(db), Some(family)) => metadata(&db.db, &family.0),
            _ => std::ptr::null_mut(),
        }
    }
    call rocksdb_get_column_family_metadata_with_options(db: *const Database, options: *const MetadataSettings) -> *mut FamilyMetadata {
        let none = MetadataSettings::default();
        let options = options.as_ref().unwrap_or(&none);
        db.as_ref().map_or(std::ptr::null_mut(), |db| part(&db.db, db.db.default_column_family(), options))
    }
    call rocksdb_get_column_family_metadata_cf_with_options(db: *const Database, family: *const Family, options: *const MetadataSettings) -> *mut FamilyMetadata {
        let none = MetadataSettings::default();
        let options = options.as_ref().unwrap_or(&none);
        match (db.as_ref(), family.as_ref()) {
            (Some(db), Some(family)) => part(&db.db, &family.0, options),
            _ => std::ptr::null_mut(),
        }
    }
    call rocksdb_column_family_metadata_options_create() -> *mut MetadataSettings { give(MetadataSettings::default()) }
    call rocksdb_column_family_metadata_options_destroy(options: *mut MetadataSettings) { end(options); }
    call rocksdb_column_family_metadata_options_set_start_key(options: *mut MetadataSettings, key: *const c_char, keylen: usize) {
        if let Some(options) = options.as_mut() { options.start = bound(key, keylen).map(<[u8]>::to_vec) }
    }
    call rocksdb_column_family_metadata_options_get_start_key(options: *const MetadataSettings, keylen: *mut usize) -> *const c_char {
        lend_or_null(options.as_ref().and_then(|options| options.start.as_deref()), keylen)
    }
    call rocksdb_column_family_metadata_options_set_end_key(options: *mut MetadataSettings, key: *const c_char, keylen: usize) {
        if let Some(options) = options.as_mut() { options.end = bound(key, keylen).map(<[u8]>::to_vec) }
    }
    call rocksdb_column_family_metadata_options_get_end_key(options: *const MetadataSettings, keylen: *mut usize) -> *const c_char {
        lend_or_null(options.as_ref().and_then(|options| options.end.as_deref()), keylen)
    }
    // A negative number selects all levels.
    call rocksdb_column_family_metadata_options_set_level(options: *mut MetadataSettings, level: c_int) {
        if let Some(options) = options.as_mut() { options.level = u32::try_from(level).ok() }
    }
    call rocksdb_column_family_metadata_options_get_level(options: *const MetadataSettings) -> c_int {
        options.as_ref().and_then(|options| options.level).map_or(-1, |level| level as c_int)
    }
    call rocksdb_column_family_metadata_destroy(metadata: *mut FamilyMetadata) { end(metadata); }
    call rocksdb_column_family_metadata_get_name(metadata: *const FamilyMetadata) -> *mut c_char { metadata.as_ref().map_or(std::ptr::null_mut(), |metadata| text_out(&metadata.0.name)) }
    call rocksdb_column_family_metadata_get_size(metadata: *const FamilyMetadata) -> u64 { metadata.as_ref().map_or(0, |metadata| metadata.0.size_bytes) }
    call rocksdb_column_family_metadata_get_file_count(metadata: *const FamilyMetadata) -> usize { metadata.as_ref().map_or(0, |metadata| metadata.0.file_count) }
    call rocksdb_column_family_metadata_get_level_count(metadata: *const FamilyMetadata) -> usize { metadata.as_ref().map_or(0, |metadata| metadata.0.levels.len()) }
    call rocksdb_column_family_metadata_get_level_metadata(metadata: *const FamilyMetadata, at: usize) -> *mut LevelMetadata {
        let found = metadata.as_ref().filter(|metadata| at < metadata.0.levels.len());
        found.map_or(std::ptr::null_mut(), |metadata| give(LevelMetadata(metadata.0.clone(), at)))
    }
    call rocksdb_level_metadata_destroy(level: *mut LevelMetadata) { end(level); }
    call rocksdb_level_metadata_get_level(level: *const LevelMetadata) -> c_int { level.as_ref().map_or(0, |level| level.level().level as c_int) }
    call rocksdb_level_metadata_get_size(level: *const LevelMetadata) -> u64 { level.as_ref().map_or(0, |level| level.level().size_bytes) }
    call rocksdb_level_metadata_get_file_count(level: *const LevelMetadata) -> usize { level.as_ref().map_or(0, |level| level.level().files.len()) }
    call rocksdb_level_metadata_get_sst_file_metadata(level: *const LevelMetadata, at: usize) -> *mut TableMetadata {
        let found = level.as_ref().and_then(|level| level.level().files.get(at));
        found.map_or(std::ptr::null_mut(), |file| give(TableMetadata(file.clone())))
    }
    call rocksdb_sst_file_metadata_destroy(table: *mut TableMetadata) { end(table); }
    call rocksdb_sst_file_metadata_get_relative_filename(table: *const TableMetadata) -> *mut c_char { table.as_ref().map_or(std::ptr::null_mut(), |table| text_out(&table.0.name)) }
    call rocksdb_sst_file_metadata_get_directory(table: *const TableMetadata) -> *mut c_char { table.as_ref().map_or(std::ptr::null_mut(), |table| text_out(&table.0.directory.to_string_lossy())) }
    call rocksdb_sst_file_metadata_get_size(table: *const TableMetadata) -> u64 { table.as_ref().map_or(0, |table| table.0.size_bytes) }
    call rocksdb_sst_file_metadata_get_smallestkey(table: *const TableMetadata, size: *mut usize) -> *mut c_char { value_out(table.as_ref().map(|table| &table.0.smallest_key), size) }
    call rocksdb_sst_file_metadata_get_largestkey(table: *const TableMetadata, size: *mut usize) -> *mut c_char { value_out(table.as_ref().map(|table| &table.0.largest_key), size) }

    call rocksdb_livefiles_storage_info_options_create() -> *mut StorageInfoSettings { give(StorageInfoSettings::default()) }
    call rocksdb_livefiles_storage_info_options_destroy(options: *mut StorageInfoSettings) { end(options); }
    call rocksdb_livefiles_storage_info_options_set_include_checksum_info(options: *mut StorageInfoSettings, value: c_uchar) {
        if let Some(options) = options.as_mut() { options.0.include_checksum_info = value != 0 }
    }
    call rocksdb_livefiles_storage_info_options_get_include_checksum_info(options: *const StorageInfoSettings) -> c_uchar { options.as_ref().is_some_and(|options| options.0.include_checksum_info).into() }
    call rocksdb_livefiles_storage_info_options_set_wal_size_for_flush(options: *mut StorageInfoSettings, bytes: u64) {
        if let Some(options) = options.as_mut() { options.0.wal_size_for_flush = bytes }
    }
    call rocksdb_livefiles_storage_info_options_get_wal_size_for_flush(options: *const StorageInfoSettings) -> u64 { options.as_ref().map_or(0, |options| options.0.wal_size_for_flush) }
    call rocksdb_livefiles_storage_info_options_set_atomic_flush(options: *mut StorageInfoSettings, value: c_uchar) {
        if let Some(options) = options.as_mut() { options.0.atomic_flush = value != 0 }
    }
    call rocksdb_livefiles_storage_info_options_get_atomic_flush(options: *const StorageInfoSettings) -> c_uchar { options.as_ref().is_some_and(|options| options.0.atomic_flush).into() }
    attempt rocksdb_get_livefiles_storage_info(db: *const Database, options: *const StorageInfoSettings) -> *mut StorageInfo {
        let options = options.as_ref().map(|options| options.0).unwrap_or_default();
        let files = of(db)?.db.live_files_storage_info(&options)?;
        Ok(give(StorageInfo(files.into_iter().map(StoredFile::new).collect())))
    }
    call rocksdb_livefiles_storage_info_destroy(info: *mut StorageInfo) { end(info); }
    call rocksdb_livefiles_storage_info_count(info: *const StorageInfo) -> usize { info.as_ref().map_or(0, |info| info.0.len()) }
    call rocksdb_livefiles_storage_info_relative_filename(info: *const StorageInfo, at: usize) -> *const c_char { stored(info, at).map_or(std::ptr::null(), |stored| stored.name.as_ptr()) }
    call rocksdb_livefiles_storage_info_directory(info: *const StorageInfo, at: usize) -> *const c_char { stored(info, at).map_or(std::ptr::null(), |stored| stored.directory.as_ptr()) }
    call rocksdb_livefiles_storage_info_file_number(info: *const StorageInfo, at: usize) -> u64 { stored(info, at).map_or(0, |stored| stored.file.number) }
    call rocksdb_livefiles_storage_info_file_type(info: *const StorageInfo, at: usize) -> c_int { stored(info, at).map_or(0, StoredFile::kind) }
    call rocksdb_livefiles_storage_info_size(info: *const StorageInfo, at: usize) -> u64 { stored(info, at).map_or(0, |stored| stored.file.size_bytes) }
    // 0, for unknown: files have no temperature.
    call rocksdb_livefiles_storage_info_temperature(_info: *const StorageInfo, _at: usize) -> c_int { 0 }
    call rocksdb_livefiles_storage_info_file_checksum(info: *const StorageInfo, at: usize) -> *const c_char { stored(info, at).map_or(std::ptr::null(), |stored| stored.checksum.as_ptr()) }
    call rocksdb_livefiles_storage_info_file_checksum_func_name(info: *const StorageInfo, at: usize) -> *const c_char { stored(info, at).map_or(std::ptr::null(), |stored| stored.checksum_function.as_ptr()) }
    call rocksdb_livefiles_storage_info_replacement_contents(info: *const StorageInfo, at: usize, size: *mut usize) -> *const c_char {
        stored(info, at).map_or(std::ptr::null(), |stored| lend(stored.file.replacement_contents.as_deref().unwrap_or_default().as_bytes(), size))
    }
    call rocksdb_livefiles_storage_info_trim_to_size(info: *const StorageInfo, at: usize) -> c_uchar { stored(info, at).is_some_and(|stored| stored.file.trim_to_size).into() }
}
