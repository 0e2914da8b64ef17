//! Column families of an open database.

use crate::boundary::*;
use crate::handle::Database;
use crate::options::OptionsHandle;
use karstdb::{ColumnFamily, Db, DbWithTtl};
use libc::{c_char, c_int};
use std::time::Duration;

/// `rocksdb_column_family_handle_t`.
#[derive(Debug)]
pub struct Family(pub(crate) ColumnFamily);

/// Returns the family of a handle; the default one for null.
pub(crate) unsafe fn family_or_default(db: &Db, family: *const Family) -> &ColumnFamily {
    unsafe { family.as_ref() }.map_or(db.default_column_family(), |family| &family.0)
}

/// Creates a family with the options of a handle.
pub(crate) unsafe fn create(
    db: &Db,
    options: *const OptionsHandle,
    name: *const c_char,
) -> karstdb::Result<*mut Family> {
    let (options, name) = unsafe { (of(options)?, text(name)?) };
    Ok(give(Family(db.create_column_family(name, &options.to_options(&[(name, options)])?)?)))
}

/// Creates a family whose entries expire after `ttl`.
unsafe fn create_expiring(
    db: &DbWithTtl,
    options: *const OptionsHandle,
    name: *const c_char,
    ttl: Duration,
) -> karstdb::Result<*mut Family> {
    let (options, name) = unsafe { (of(options)?, text(name)?) };
    let options = options.to_options(&[(name, options)])?;
    Ok(give(Family(db.create_column_family(name, &options, ttl)?)))
}

/// Creates a family of entries that never expire, in a database with or without a TTL.
unsafe fn create_in(
    db: &Database,
    options: *const OptionsHandle,
    name: *const c_char,
) -> karstdb::Result<*mut Family> {
    unsafe {
        match &db.ttl {
            Some(ttl) => create_expiring(ttl, options, name, Duration::ZERO),
            None => create(&db.db, options, name),
        }
    }
}

/// Returns a TTL of RocksDB's: 0 and negative numbers of seconds mean no expiry.
pub(crate) fn time_to_live(seconds: c_int) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

capi! {
    attempt rocksdb_create_column_family(db: *const Database, options: *const OptionsHandle, name: *const c_char) -> *mut Family {
        create_in(of(db)?, options, name)
    }
    attempt rocksdb_create_column_family_with_ttl(db: *const Database, options: *const OptionsHandle, name: *const c_char, ttl: c_int) -> *mut Family {
        let db = of(db)?;
        let Some(db) = &db.ttl else { return Err(invalid("the database was not opened with a TTL")) };
        create_expiring(db, options, name, time_to_live(ttl))
    }
    attempt rocksdb_create_column_families(db: *const Database, options: *const OptionsHandle, count: c_int, names: *const *const c_char, created: *mut usize) -> *mut *mut Family {
        put(created, 0);
        let (db, count) = (of(db)?, usize::try_from(count).unwrap_or(0));
        let mut families = Vec::with_capacity(count);
        for name in list(names, count) {
            families.push(create_in(db, options, *name)?);
        }
        put(created, count);
        Ok(array_out(&families))
    }
    call rocksdb_create_column_families_destroy(families: *mut *mut Family) { libc::free(families.cast()) }
    attempt rocksdb_drop_column_family(db: *const Database, family: *const Family) {
        of(db)?.db.drop_column_family(&of(family)?.0)
    }
    call rocksdb_get_default_column_family_handle(db: *const Database) -> *mut Family {
        of(db).map_or(std::ptr::null_mut(), |db| give(Family(db.db.default_column_family().clone())))
    }
    call rocksdb_column_family_handle_destroy(family: *mut Family) { end(family); }
    call rocksdb_column_family_handle_get_id(family: *const Family) -> u32 {
        of(family).map_or(0, |family| family.0.id())
    }
    call rocksdb_column_family_handle_get_name(family: *const Family, length: *mut usize) -> *mut c_char {
        value_out(of(family).ok().map(|family| family.0.name()), length)
    }
}
