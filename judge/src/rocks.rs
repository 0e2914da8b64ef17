//! RocksDB 11.8 as a [`Subject`], with options parsed from the strings of OPTIONS files.
//!
//! The `rocksdb` crate wraps only some options; option strings set all of them through the C API.

use karst_testkit::subject::{Cursor, Move, ReadSettings, Subject};
use librocksdb_sys as ffi;
use rocksdb::{AsRawPtr, ColumnFamily, ColumnFamilyDescriptor, DB, DBRawIterator, Options, ReadOptions};
use std::ffi::{CStr, CString};
use std::path::Path;
use std::ptr;

/// Parses options from `name=value;name={nested=value;}`.
pub(crate) fn options(text: &str) -> Result<Options, String> {
    let base = Options::default();
    let parsed = Options::default();
    let text_c = CString::new(text).map_err(|e| e.to_string())?;
    let mut error: *mut libc::c_char = ptr::null_mut();
    // SAFETY: both options outlive the call, the string is terminated, and RocksDB sets the error
    // to null or to a string that it allocated.
    unsafe {
        ffi::rocksdb_get_options_from_string(
            base.as_raw_ptr(),
            text_c.as_ptr(),
            parsed.as_raw_ptr(),
            &mut error,
        );
    }
    said(error).map(|()| parsed).map_err(|message| format!("options {text}: {message}"))
}

/// Converts and frees the error argument of a C call.
pub(crate) fn said(error: *mut libc::c_char) -> Result<(), String> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: not null, so a terminated string that RocksDB allocated and that is ours to free.
    Err(unsafe {
        let message = CStr::from_ptr(error).to_string_lossy().into_owned();
        ffi::rocksdb_free(error.cast());
        message
    })
}

/// An open database.
pub(crate) struct Rocks {
    db: DB,
    /// Column families with a prefix extractor, whose cursors need `total_order_seek`.
    prefixed: Vec<String>,
    families: Vec<String>,
}

impl Rocks {
    /// Opens a database read-only, each family with its option string.
    pub(crate) fn open(
        path: &Path,
        db_options: &str,
        families: &[(String, String)],
        prefixed: Vec<String>,
    ) -> Result<Self, String> {
        let options = options(db_options)?;
        let db = DB::open_cf_descriptors_read_only(&options, path, descriptors(families)?, false)
            .map_err(|e| e.to_string())?;
        Ok(Rocks { db, prefixed, families: families.iter().map(|(name, _)| name.clone()).collect() })
    }

    /// Opens a database for writing.
    pub(crate) fn open_for_writing(
        path: &Path,
        db_options: &str,
        families: &[(String, String)],
    ) -> Result<Self, String> {
        let db = DB::open_cf_descriptors(&options(db_options)?, path, descriptors(families)?);
        let families = families.iter().map(|(name, _)| name.clone()).collect();
        Ok(Rocks { db: db.map_err(|e| e.to_string())?, prefixed: Vec::new(), families })
    }

    pub(crate) fn db(&self) -> &DB {
        &self.db
    }

    pub(crate) fn families(&self) -> &[String] {
        &self.families
    }

    pub(crate) fn family(&self, name: &str) -> Result<&ColumnFamily, String> {
        self.db.cf_handle(name).ok_or_else(|| format!("no column family {name}"))
    }
}

/// Descriptors of these column families.
pub(crate) fn descriptors(families: &[(String, String)]) -> Result<Vec<ColumnFamilyDescriptor>, String> {
    families.iter().map(|(name, text)| Ok(ColumnFamilyDescriptor::new(name, options(text)?))).collect()
}

impl Subject for Rocks {
    fn name(&self) -> String {
        "RocksDB 11.8".into()
    }

    fn column_families(&self) -> Result<Vec<String>, String> {
        Ok(self.families.clone())
    }

    fn get(&self, column_family: &str, key: &[u8]) -> Result<Option<Vec<u8>>, String> {
        self.db.get_cf(self.family(column_family)?, key).map_err(|e| e.to_string())
    }

    fn multi_get(&self, column_family: &str, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, String> {
        let found = self.db.batched_multi_get_cf(self.family(column_family)?, keys, false);
        found.into_iter().map(|v| v.map(|v| v.map(|v| v.to_vec())).map_err(|e| e.to_string())).collect()
    }

    fn cursor<'a>(
        &'a self,
        column_family: &str,
        settings: &ReadSettings,
    ) -> Result<Box<dyn Cursor + 'a>, String> {
        let mut options = ReadOptions::default();
        if let Some(key) = &settings.lower_bound {
            options.set_iterate_lower_bound(key.clone());
        }
        if let Some(key) = &settings.upper_bound {
            options.set_iterate_upper_bound(key.clone());
        }
        options.set_prefix_same_as_start(settings.prefix_same_as_start);
        let prefixed = self.prefixed.iter().any(|name| name == column_family);
        options.set_total_order_seek(prefixed && !settings.prefix_same_as_start);
        Ok(Box::new(RocksCursor(self.db.raw_iterator_cf_opt(self.family(column_family)?, options))))
    }
}

struct RocksCursor<'a>(DBRawIterator<'a>);

impl Cursor for RocksCursor<'_> {
    fn apply(&mut self, step: &Move) -> Result<(), String> {
        match step {
            Move::First => self.0.seek_to_first(),
            Move::Last => self.0.seek_to_last(),
            Move::Seek(key) => self.0.seek(key),
            Move::SeekForPrev(key) => self.0.seek_for_prev(key),
            Move::Next => self.0.next(),
            Move::Prev => self.0.prev(),
        }
        self.0.status().map_err(|e| e.to_string())
    }

    fn current(&self) -> Option<(&[u8], &[u8])> {
        self.0.item()
    }
}
