//! Opening, closing, listing, destroying and repairing databases.

use crate::boundary::*;
use crate::family::{Family, time_to_live};
use crate::handle::Database;
use crate::options::OptionsHandle;
use karstdb::{Db, DbWithTtl, Error, ErrorKind, Options};
use libc::{c_char, c_int, c_uchar};
use std::path::Path;

/// Arguments of an open call: path, options and names of column families.
pub(crate) struct Wanted<'a> {
    pub(crate) path: &'a Path,
    pub(crate) options: Options,
    pub(crate) names: Vec<&'a str>,
}

/// Column families named by a caller, as three arrays.
#[derive(Clone, Copy)]
pub(crate) struct Named {
    pub(crate) count: c_int,
    pub(crate) names: *const *const c_char,
    pub(crate) options: *const *const OptionsHandle,
    pub(crate) handles: *mut *mut Family,
}

impl Named {
    pub(crate) const NONE: Named =
        Named { count: 0, names: std::ptr::null(), options: std::ptr::null(), handles: std::ptr::null_mut() };
}

pub(crate) unsafe fn wanted<'a>(
    options: *const OptionsHandle,
    name: *const c_char,
    named: Named,
) -> karstdb::Result<Wanted<'a>> {
    unsafe {
        let count = usize::try_from(named.count).unwrap_or(0);
        let mut families = Vec::with_capacity(count);
        for (name, options) in list(named.names, count).iter().zip(list(named.options, count)) {
            families.push((text(*name)?, of(*options)?));
        }
        let own = of(options)?;
        let mut options = own.to_options(&families)?;
        // Compat: a caller that names no comparator means the default one, not the database's.
        if families.is_empty() {
            options = own.with_comparator(options, None);
        }
        for (name, own) in &families {
            options = own.with_comparator(options, Some(name));
        }
        Ok(Wanted { path: path(name)?, options, names: families.iter().map(|(name, _)| *name).collect() })
    }
}

/// Stores handles of the named families, in their order.
pub(crate) unsafe fn handles_out(db: &Db, wanted: &Wanted<'_>, named: Named) -> karstdb::Result<()> {
    let found = wanted.names.iter().map(|name| {
        db.column_family(name).ok_or_else(|| invalid(format!("column family {name:?} was not opened")))
    });
    let found = found.collect::<karstdb::Result<Vec<_>>>()?;
    for (at, family) in found.into_iter().enumerate() {
        unsafe { put(named.handles.add(at), give(Family(family))) };
    }
    Ok(())
}

/// Opens a database for writing.
unsafe fn open(
    options: *const OptionsHandle,
    name: *const c_char,
    named: Named,
) -> karstdb::Result<*mut Database> {
    let wanted = unsafe { wanted(options, name, named)? };
    let db = if named.count == 0 {
        Db::open_cf(wanted.path, &wanted.options, &["default"])?
    } else {
        Db::open_cf(wanted.path, &wanted.options, &wanted.names)?
    };
    unsafe { handles_out(&db, &wanted, named)? };
    // Compat: LOG contains the options by the time the open call returns.
    db.wait_for_info_log()?;
    Ok(give(Database::plain(db)))
}

/// Opens a database for writing and drops entries newer than a timestamp.
unsafe fn open_and_trim(
    options: *const OptionsHandle,
    name: *const c_char,
    named: Named,
    timestamp: &[u8],
) -> karstdb::Result<*mut Database> {
    let wanted = unsafe { wanted(options, name, named)? };
    let db = Db::open_and_trim_history(wanted.path, &wanted.options, &wanted.names, timestamp)?;
    unsafe { handles_out(&db, &wanted, named)? };
    db.wait_for_info_log()?;
    Ok(give(Database::plain(db)))
}

/// Opens a database for writing, with a TTL in seconds for each family.
unsafe fn open_with_ttl(
    options: *const OptionsHandle,
    name: *const c_char,
    named: Named,
    ttls: &[c_int],
) -> karstdb::Result<*mut Database> {
    let mut wanted = unsafe { wanted(options, name, named)? };
    if named.count == 0 {
        wanted.names.push("default");
    }
    let ttls = ttls.iter().map(|ttl| time_to_live(*ttl));
    let families: Vec<_> = wanted.names.iter().copied().zip(ttls).collect();
    let db = DbWithTtl::open_cf(wanted.path, &wanted.options, &families)?;
    if named.count > 0 {
        unsafe { handles_out(db.db(), &wanted, named)? };
    }
    Ok(give(Database::expiring(db)))
}

unsafe fn open_read_only(
    options: *const OptionsHandle,
    name: *const c_char,
    named: Named,
    error_if_wal_file_exists: bool,
) -> karstdb::Result<*mut Database> {
    let wanted = unsafe { wanted(options, name, named)? };
    let names: &[&str] = if named.count == 0 { &["default"] } else { &wanted.names };
    let db = Db::open_cf_read_only(wanted.path, &wanted.options, names)?;
    if error_if_wal_file_exists && !db.get_sorted_wal_files()?.is_empty() {
        return Err(Error::new(ErrorKind::Corruption, "there are logs, and error_if_wal_file_exists is set"));
    }
    unsafe { handles_out(&db, &wanted, named)? };
    Ok(give(Database::plain(db)))
}

unsafe fn open_secondary(
    options: *const OptionsHandle,
    name: *const c_char,
    own: *const c_char,
    named: Named,
) -> karstdb::Result<*mut Database> {
    let wanted = unsafe { wanted(options, name, named)? };
    let names: &[&str] = if named.count == 0 { &["default"] } else { &wanted.names };
    let db = Db::open_cf_as_secondary(wanted.path, unsafe { path(own)? }, &wanted.options, names)?;
    unsafe { handles_out(&db, &wanted, named)? };
    Ok(give(Database::plain(db)))
}

capi! {
    attempt rocksdb_open(options: *const OptionsHandle, name: *const c_char) -> *mut Database { open(options, name, Named::NONE) }
    attempt rocksdb_open_column_families(options: *const OptionsHandle, name: *const c_char, count: c_int, names: *const *const c_char, family_options: *const *const OptionsHandle, handles: *mut *mut Family) -> *mut Database {
        open(options, name, Named { count, names, options: family_options, handles })
    }
    attempt rocksdb_open_and_trim_history(options: *const OptionsHandle, name: *const c_char, count: c_int, names: *const *const c_char, family_options: *const *const OptionsHandle, handles: *mut *mut Family, trim_ts: *mut c_char, trim_tslen: usize) -> *mut Database {
        open_and_trim(options, name, Named { count, names, options: family_options, handles }, bytes(trim_ts, trim_tslen))
    }
    attempt rocksdb_open_with_ttl(options: *const OptionsHandle, name: *const c_char, ttl: c_int) -> *mut Database {
        open_with_ttl(options, name, Named::NONE, &[ttl])
    }
    attempt rocksdb_open_column_families_with_ttl(options: *const OptionsHandle, name: *const c_char, count: c_int, names: *const *const c_char, family_options: *const *const OptionsHandle, handles: *mut *mut Family, ttls: *const c_int) -> *mut Database {
        let named = Named { count, names, options: family_options, handles };
        open_with_ttl(options, name, named, list(ttls, usize::try_from(count).unwrap_or(0)))
    }
    attempt rocksdb_open_for_read_only(options: *const OptionsHandle, name: *const c_char, error_if_wal_file_exists: c_uchar) -> *mut Database {
        open_read_only(options, name, Named::NONE, error_if_wal_file_exists != 0)
    }
    attempt rocksdb_open_for_read_only_column_families(options: *const OptionsHandle, name: *const c_char, count: c_int, names: *const *const c_char, family_options: *const *const OptionsHandle, handles: *mut *mut Family, error_if_wal_file_exists: c_uchar) -> *mut Database {
        open_read_only(options, name, Named { count, names, options: family_options, handles }, error_if_wal_file_exists != 0)
    }
    attempt rocksdb_open_as_secondary(options: *const OptionsHandle, name: *const c_char, own: *const c_char) -> *mut Database {
        open_secondary(options, name, own, Named::NONE)
    }
    attempt rocksdb_open_as_secondary_column_families(options: *const OptionsHandle, name: *const c_char, own: *const c_char, count: c_int, names: *const *const c_char, family_options: *const *const OptionsHandle, handles: *mut *mut Family) -> *mut Database {
        open_secondary(options, name, own, Named { count, names, options: family_options, handles })
    }
    call rocksdb_close(db: *mut Database) {
        if let Some(db) = take(db) { or_say("rocksdb_close", db.db.close()); }
    }
    attempt rocksdb_list_column_families(options: *const OptionsHandle, name: *const c_char, count: *mut usize) -> *mut *mut c_char {
        put(count, 0);
        let names = Db::list_column_families(path(name)?, &of(options)?.to_options(&[])?)?;
        put(count, names.len());
        Ok(array_out(&names.iter().map(|name| text_out(name)).collect::<Vec<_>>()))
    }
    call rocksdb_list_column_families_destroy(names: *mut *mut c_char, count: usize) {
        for name in list(names, count) { libc::free((*name).cast()) }
        libc::free(names.cast());
    }
    attempt rocksdb_destroy_db(options: *const OptionsHandle, name: *const c_char) { Db::destroy(path(name)?, &of(options)?.to_options(&[])?) }
    attempt rocksdb_repair_db(options: *const OptionsHandle, name: *const c_char) { Db::repair(path(name)?, &of(options)?.to_options(&[])?).map(drop) }
}
