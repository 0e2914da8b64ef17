//! Secondary instances in lockstep: one of each engine, opened on the directory of its own
//! engine's primary or of the other's, caught up and read while the primaries go on writing.

use super::engine::{Answer, Failure, FamilyToOpen, Key, Outcome};
use super::karst;
use super::rocks::{ReadOptions, at, call, entry, taken};
use crate::rocks::options;
use karst_engine::{ColumnFamily, Db, Options};
use karst_testkit::Entry;
use librocksdb_sys as ffi;
use rocksdb::AsRawPtr;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;

/// Options of secondaries: memtables that take no concurrent inserts, which some kinds refuse.
const DATABASE: &str = "max_open_files=-1;allow_concurrent_memtable_write=false;";

/// Maximum number of attempts to read a primary whose background jobs remove files meanwhile. Both
/// engines document that such a call fails and may be repeated.
const ATTEMPTS: usize = 30;

/// Repeats a call while it fails because a file is gone.
fn again<T>(mut attempt: impl FnMut() -> Outcome<T>) -> Outcome<T> {
    let is_gone = |failure: &Failure| ["I/O", "not found", "busy"].contains(&failure.kind);
    for _ in 1..ATTEMPTS {
        match attempt() {
            Err(failure) if is_gone(&failure) => {}
            outcome => return outcome,
        }
    }
    attempt()
}

/// Name of KarstDB's directory.
pub(super) const KARST: &str = "karstdb";
/// Name of RocksDB's directory.
pub(super) const ROCKS: &str = "rocksdb";

/// Directory of an engine's secondary, beside the databases.
fn directory(beside: &Path, engine: &str) -> PathBuf {
    beside.with_file_name(format!("secondary-{engine}"))
}

pub(super) fn path_text(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("a path")
}

/// A secondary of KarstDB.
pub(super) struct KarstSecondary {
    db: Db,
    families: BTreeMap<usize, ColumnFamily>,
}

impl KarstSecondary {
    pub(super) fn open(primary: &Path, families: &[FamilyToOpen]) -> Outcome<Self> {
        let mut options =
            Options::new().ignore_options_file(true).set_all(DATABASE).map_err(karst::failure)?;
        for (_, name, lines) in families {
            options = karst::family_options(options, name, lines);
        }
        let names: Vec<&str> = families.iter().map(|(_, name, _)| name.as_str()).collect();
        let own = directory(primary, KARST);
        let db = again(|| Db::open_cf_as_secondary(primary, &own, &options, &names).map_err(karst::failure))?;
        let handle = |name: &str| db.column_family(name).expect("it was opened with the database");
        let families = families.iter().map(|(number, name, _)| (*number, handle(name))).collect();
        Ok(Self { db, families })
    }

    pub(super) fn catch_up(&self) -> Outcome<()> {
        again(|| self.db.try_catch_up_with_primary().map_err(karst::failure))
    }

    /// Returns all entries in both directions, and the entry of each key.
    pub(super) fn read(&self, family: usize, keys: &[Key]) -> Outcome<Answer> {
        self.all(&self.families[&family], keys).map(Answer::Walked).map_err(karst::failure)
    }

    fn all(&self, family: &ColumnFamily, keys: &[Key]) -> karst_engine::Result<Vec<Option<Entry>>> {
        let options = karst_engine::ReadOptions { total_order_seek: true, ..Default::default() };
        let mut iterator = self.db.iter_cf(&options, family)?;
        let mut walked = Vec::new();
        iterator.seek_to_first()?;
        while iterator.valid() {
            walked.push(Some((iterator.key().to_vec(), iterator.value().to_vec())));
            iterator.next()?;
        }
        walked.push(None);
        iterator.seek_to_last()?;
        while iterator.valid() {
            walked.push(Some((iterator.key().to_vec(), iterator.value().to_vec())));
            iterator.prev()?;
        }
        walked.push(None);
        for key in keys {
            let found = self.db.get_cf(&options, family, &**key)?;
            walked.push(found.map(|value| (key.0.clone(), value.to_vec())));
        }
        Ok(walked)
    }

    pub(super) fn close(self) -> Outcome<()> {
        drop(self.families);
        self.db.close().map_err(karst::failure)
    }
}

/// A secondary of RocksDB. Invariant: all pointers are alive until it is dropped.
pub(super) struct RocksSecondary {
    db: *mut ffi::rocksdb_t,
    families: BTreeMap<usize, *mut ffi::rocksdb_column_family_handle_t>,
}

impl RocksSecondary {
    pub(super) fn open(primary: &Path, families: &[FamilyToOpen]) -> Outcome<Self> {
        let wrong = |text: String| Failure { kind: "invalid argument", text };
        let database = options(DATABASE).map_err(wrong)?;
        let of_families = families.iter().map(|(_, _, lines)| options(lines));
        let of_families = of_families.collect::<Result<Vec<_>, String>>().map_err(wrong)?;
        let names: Vec<CString> =
            families.iter().map(|(_, name, _)| CString::new(name.as_str()).expect("a name")).collect();
        let name_pointers: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
        // SAFETY: the options outlive the pointers.
        let option_pointers: Vec<*const ffi::rocksdb_options_t> =
            of_families.iter().map(|o| unsafe { o.as_raw_ptr() }.cast_const()).collect();
        let (path, own) = (path_text(primary), path_text(&directory(primary, ROCKS)));
        let mut handles = vec![null_mut(); names.len()];
        // SAFETY: all arrays have one element per family, and everything outlives the calls.
        let db = again(|| unsafe {
            call(|error| {
                ffi::rocksdb_open_as_secondary_column_families(
                    database.as_raw_ptr(),
                    path.as_ptr(),
                    own.as_ptr(),
                    names.len() as i32,
                    name_pointers.as_ptr(),
                    option_pointers.as_ptr(),
                    handles.as_mut_ptr(),
                    error,
                )
            })
        })?;
        let families = families.iter().map(|(number, _, _)| *number).zip(handles).collect();
        Ok(Self { db, families })
    }

    pub(super) fn catch_up(&self) -> Outcome<()> {
        // SAFETY: the secondary is open.
        again(|| call(|error| unsafe { ffi::rocksdb_try_catch_up_with_primary(self.db, error) }))
    }

    /// Returns all entries in both directions, and the entry of each key.
    pub(super) fn read(&self, family: usize, keys: &[Key]) -> Outcome<Answer> {
        let (options, family) = (ReadOptions::in_total_order(), self.families[&family]);
        let mut walked = Vec::new();
        // SAFETY: everything outlives the calls; the iterator is moved by steps while it is valid,
        // and is destroyed before the end.
        unsafe {
            let iterator = ffi::rocksdb_create_iterator_cf(self.db, options.pointer(), family);
            let mut all = |next: unsafe extern "C" fn(*mut ffi::rocksdb_iterator_t)| {
                while ffi::rocksdb_iter_valid(iterator) != 0 {
                    walked.push(Some(entry(iterator)));
                    next(iterator);
                }
                walked.push(None);
                call(|error| ffi::rocksdb_iter_get_error(iterator, error))
            };
            ffi::rocksdb_iter_seek_to_first(iterator);
            let forward = all(ffi::rocksdb_iter_next);
            ffi::rocksdb_iter_seek_to_last(iterator);
            let backward = all(ffi::rocksdb_iter_prev);
            ffi::rocksdb_iter_destroy(iterator);
            forward.and(backward)?;
            for key in keys {
                let mut length = 0;
                let found = call(|error| {
                    let (key, size) = (at(key), key.len());
                    ffi::rocksdb_get_cf(self.db, options.pointer(), family, key, size, &mut length, error)
                })?;
                walked.push(taken(found, length).map(|value| (key.0.clone(), value)));
            }
        }
        Ok(Answer::Walked(walked))
    }
}

impl Drop for RocksSecondary {
    fn drop(&mut self) {
        // SAFETY: all pointers are alive and not used after this; the database is closed last.
        unsafe {
            for family in std::mem::take(&mut self.families).into_values() {
                ffi::rocksdb_column_family_handle_destroy(family);
            }
            ffi::rocksdb_close(self.db);
        }
    }
}

/// Removes the directory that a secondary had.
pub(super) fn remove(beside: &Path, engine: &str) -> Outcome<()> {
    match std::fs::remove_dir_all(directory(beside, engine)) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(Failure { kind: "I/O", text: e.to_string() })
        }
        _ => Ok(()),
    }
}
