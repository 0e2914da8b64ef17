//! Databases with transactions, locking or optimistic.

use crate::batch::Batch;
use crate::boundary::*;
use crate::call_options::{
    Flush, LockingSettings, OptimisticDbSettings, OptimisticSettings, Read, TransactionSettings, WalFlush,
    Write, reading,
};
use crate::copies::CheckpointHandle;
use crate::db::{families_of, flushing, int_property, property, syncs, values_out, writing};
use crate::family::{Family, create};
use crate::handle::{Database, Pinned, SnapshotHandle};
use crate::iterator::Iter;
use crate::open::{Named, handles_out, wanted};
use crate::options::OptionsHandle;
use crate::transaction::{Again, TransactionHandle};
use karstdb::{Db, OptimisticTransactionDb, TransactionDb, Value};
use libc::{c_char, c_int, c_uchar};

/// `rocksdb_transactiondb_t`.
#[derive(Debug)]
#[repr(C)]
pub struct LockingDatabase {
    base: Database,
    db: TransactionDb,
}

/// `rocksdb_optimistictransactiondb_t`.
#[derive(Debug)]
#[repr(C)]
pub struct OptimisticDatabase {
    base: Database,
    db: OptimisticTransactionDb,
}

unsafe fn base<'a>(db: *const LockingDatabase) -> karstdb::Result<&'a Db> {
    Ok(&unsafe { of(db)? }.base.db)
}

unsafe fn open(
    options: *const OptionsHandle,
    settings: *const LockingSettings,
    name: *const c_char,
    named: Named,
) -> karstdb::Result<*mut LockingDatabase> {
    let (wanted, settings) = unsafe { (wanted(options, name, named)?, of(settings)?) };
    let names: &[&str] = if named.count == 0 { &["default"] } else { &wanted.names };
    let db = TransactionDb::open_cf(wanted.path, &wanted.options, &settings.options, names)?;
    unsafe { handles_out(db.db(), &wanted, named)? };
    Ok(give(LockingDatabase { base: Database::locking(db.clone()), db }))
}

unsafe fn open_optimistic(
    options: *const OptionsHandle,
    settings: *const OptimisticDbSettings,
    name: *const c_char,
    named: Named,
) -> karstdb::Result<*mut OptimisticDatabase> {
    let wanted = unsafe { wanted(options, name, named)? };
    let names: &[&str] = if named.count == 0 { &["default"] } else { &wanted.names };
    let db = Db::open_cf(wanted.path, &wanted.options, names)?;
    unsafe { handles_out(&db, &wanted, named)? };
    let base = Database::plain(db.clone());
    let settings = unsafe { settings.as_ref() }.map(OptimisticDbSettings::effective).unwrap_or_default();
    let db = OptimisticTransactionDb::over(db, &settings)?;
    Ok(give(OptimisticDatabase { base, db }))
}

fn pinned(value: Option<Value>) -> *mut Pinned {
    value.map_or(std::ptr::null_mut(), |value| give(Pinned::whole(value)))
}

/// Returns a handle for `new`; a non-null `old` is reused.
unsafe fn replacing(old: *mut TransactionHandle, new: Option<TransactionHandle>) -> *mut TransactionHandle {
    match (unsafe { old.as_mut() }, new) {
        (Some(place), Some(made)) => {
            *place = made;
            old
        }
        (None, Some(made)) => give(made),
        (_, None) => old,
    }
}

capi! {
    attempt rocksdb_transactiondb_open(options: *const OptionsHandle, settings: *const LockingSettings, name: *const c_char) -> *mut LockingDatabase { open(options, settings, name, Named::NONE) }
    attempt rocksdb_transactiondb_open_column_families(options: *const OptionsHandle, settings: *const LockingSettings, name: *const c_char, count: c_int, names: *const *const c_char, family_options: *const *const OptionsHandle, handles: *mut *mut Family) -> *mut LockingDatabase {
        open(options, settings, name, Named { count, names, options: family_options, handles })
    }
    call rocksdb_transactiondb_close(db: *mut LockingDatabase) {
        if let Some(db) = take(db) { or_say("rocksdb_transactiondb_close", db.base.db.close()); }
    }
    call rocksdb_transactiondb_get_base_db(db: *const LockingDatabase) -> *mut Database { base(db).map_or(std::ptr::null_mut(), |db| give(Database::plain(db.clone()))) }
    call rocksdb_transactiondb_close_base_db(db: *mut Database) { end(db); }
    attempt rocksdb_transactiondb_create_column_family(db: *const LockingDatabase, options: *const OptionsHandle, name: *const c_char) -> *mut Family { create(base(db)?, options, name) }
    call rocksdb_transaction_begin(db: *const LockingDatabase, write: *const Write, settings: *const TransactionSettings, old: *mut TransactionHandle) -> *mut TransactionHandle {
        let Some(db) = db.as_ref() else { return std::ptr::null_mut() };
        let settings = settings.as_ref().map(|settings| settings.options.clone()).unwrap_or_default();
        replacing(old, TransactionHandle::new(Again::Locking(db.db.clone(), writing(write), settings), &db.base.db))
    }
    call rocksdb_transactiondb_get_prepared_transactions(db: *const LockingDatabase, count: *mut usize) -> *mut *mut TransactionHandle {
        put(count, 0);
        let Some(db) = db.as_ref() else { return std::ptr::null_mut() };
        let mut found = Vec::new();
        for name in db.db.get_all_prepared_transactions() {
            if let Some(transaction) = or_say("rocksdb_transactiondb_get_prepared_transactions", db.db.get_transaction_by_name(&name)) {
                found.push(TransactionHandle::named(transaction, &db.base.db, name));
            }
        }
        if found.is_empty() { return std::ptr::null_mut() }
        put(count, found.len());
        array_out(&found)
    }

    call rocksdb_transactiondb_create_snapshot(db: *const LockingDatabase) -> *mut SnapshotHandle { base(db).map_or(std::ptr::null_mut(), |db| SnapshotHandle::given(db.snapshot())) }
    call rocksdb_transactiondb_release_snapshot(_db: *const LockingDatabase, snapshot: *mut SnapshotHandle) { SnapshotHandle::release(snapshot) }
    call rocksdb_transactiondb_property_value(db: *const LockingDatabase, name: *const c_char) -> *mut c_char { property(base(db), None, name) }
    call rocksdb_transactiondb_property_int(db: *const LockingDatabase, name: *const c_char, out: *mut u64) -> c_int { int_property(base(db), None, name, out) }
    attempt rocksdb_transactiondb_checkpoint_object_create(db: *const LockingDatabase) -> *mut CheckpointHandle { Ok(give(CheckpointHandle(base(db)?.clone()))) }

    attempt rocksdb_transactiondb_put(db: *const LockingDatabase, write: *const Write, key: *const c_char, keylen: usize, val: *const c_char, vallen: usize) {
        of(db)?.db.put_cf(&writing(write), base(db)?.default_column_family(), bytes(key, keylen), bytes(val, vallen))
    }
    attempt rocksdb_transactiondb_put_cf(db: *const LockingDatabase, write: *const Write, cf: *const Family, key: *const c_char, keylen: usize, val: *const c_char, vallen: usize) {
        of(db)?.db.put_cf(&writing(write), &of(cf)?.0, bytes(key, keylen), bytes(val, vallen))
    }
    attempt rocksdb_transactiondb_merge(db: *const LockingDatabase, write: *const Write, key: *const c_char, keylen: usize, val: *const c_char, vallen: usize) {
        of(db)?.db.merge_cf(&writing(write), base(db)?.default_column_family(), bytes(key, keylen), bytes(val, vallen))
    }
    attempt rocksdb_transactiondb_merge_cf(db: *const LockingDatabase, write: *const Write, cf: *const Family, key: *const c_char, keylen: usize, val: *const c_char, vallen: usize) {
        of(db)?.db.merge_cf(&writing(write), &of(cf)?.0, bytes(key, keylen), bytes(val, vallen))
    }
    attempt rocksdb_transactiondb_delete(db: *const LockingDatabase, write: *const Write, key: *const c_char, keylen: usize) {
        of(db)?.db.delete_cf(&writing(write), base(db)?.default_column_family(), bytes(key, keylen))
    }
    attempt rocksdb_transactiondb_delete_cf(db: *const LockingDatabase, write: *const Write, cf: *const Family, key: *const c_char, keylen: usize) {
        of(db)?.db.delete_cf(&writing(write), &of(cf)?.0, bytes(key, keylen))
    }
    attempt rocksdb_transactiondb_write(db: *const LockingDatabase, write: *const Write, batch: *const Batch) { of(db)?.db.write(&writing(write), &of(batch)?.batch) }

    attempt rocksdb_transactiondb_get(db: *const LockingDatabase, options: *const Read, key: *const c_char, keylen: usize, vallen: *mut usize) -> *mut c_char {
        put(vallen, 0);
        let db = base(db)?;
        Ok(value_out(db.get_cf(&reading(options), db.default_column_family(), bytes(key, keylen))?, vallen))
    }
    attempt rocksdb_transactiondb_get_cf(db: *const LockingDatabase, options: *const Read, cf: *const Family, key: *const c_char, keylen: usize, vallen: *mut usize) -> *mut c_char {
        put(vallen, 0);
        Ok(value_out(base(db)?.get_cf(&reading(options), &of(cf)?.0, bytes(key, keylen))?, vallen))
    }
    attempt rocksdb_transactiondb_get_pinned(db: *const LockingDatabase, options: *const Read, key: *const c_char, keylen: usize) -> *mut Pinned {
        let db = base(db)?;
        Ok(pinned(db.get_cf(&reading(options), db.default_column_family(), bytes(key, keylen))?))
    }
    attempt rocksdb_transactiondb_get_pinned_cf(db: *const LockingDatabase, options: *const Read, cf: *const Family, key: *const c_char, keylen: usize) -> *mut Pinned {
        Ok(pinned(base(db)?.get_cf(&reading(options), &of(cf)?.0, bytes(key, keylen))?))
    }
    call rocksdb_transactiondb_multi_get(db: *const LockingDatabase, options: *const Read, count: usize, keys: *const *const c_char, key_sizes: *const usize, values: *mut *mut c_char, value_sizes: *mut usize, errs: *mut *mut c_char) {
        let Ok(db) = base(db) else { return };
        values_out(db.multi_get_cf(&reading(options), db.default_column_family(), &byte_lists(keys, key_sizes, count)), values, value_sizes, errs);
    }
    call rocksdb_transactiondb_multi_get_cf(db: *const LockingDatabase, options: *const Read, cfs: *const *const Family, count: usize, keys: *const *const c_char, key_sizes: *const usize, values: *mut *mut c_char, value_sizes: *mut usize, errs: *mut *mut c_char) {
        let (Ok(db), Ok(families)) = (base(db), families_of(cfs, count)) else { return };
        let families: Vec<_> = families.iter().collect();
        values_out(db.multi_get_cfs(&reading(options), &families, &byte_lists(keys, key_sizes, count)), values, value_sizes, errs);
    }
    call rocksdb_transactiondb_create_iterator(db: *const LockingDatabase, options: *const Read) -> *mut Iter {
        base(db).map_or(std::ptr::null_mut(), |db| Iter::new(db, options, db.default_column_family()))
    }
    call rocksdb_transactiondb_create_iterator_cf(db: *const LockingDatabase, options: *const Read, cf: *const Family) -> *mut Iter {
        match (base(db), of(cf)) { (Ok(db), Ok(cf)) => Iter::new(db, options, &cf.0), _ => std::ptr::null_mut() }
    }
    attempt rocksdb_transactiondb_flush(db: *const LockingDatabase, options: *const Flush) { base(db)?.flush_cfs(&flushing(options), &[base(db)?.default_column_family()]) }
    attempt rocksdb_transactiondb_flush_cf(db: *const LockingDatabase, options: *const Flush, cf: *const Family) { base(db)?.flush_cfs(&flushing(options), &[&of(cf)?.0]) }
    attempt rocksdb_transactiondb_flush_cfs(db: *const LockingDatabase, options: *const Flush, cfs: *const *const Family, count: c_int) {
        let families = families_of(cfs, usize::try_from(count).unwrap_or(0))?;
        base(db)?.flush_cfs(&flushing(options), &families.iter().collect::<Vec<_>>())
    }
    attempt rocksdb_transactiondb_flush_wal(db: *const LockingDatabase, sync: c_uchar) { base(db)?.flush_wal(sync != 0) }

    attempt rocksdb_transactiondb_flush_wal_with_options(db: *const LockingDatabase, options: *const WalFlush) { base(db)?.flush_wal(syncs(options)) }

    attempt rocksdb_optimistictransactiondb_open(options: *const OptionsHandle, name: *const c_char) -> *mut OptimisticDatabase { open_optimistic(options, std::ptr::null(), name, Named::NONE) }
    attempt rocksdb_optimistictransactiondb_open_column_families(options: *const OptionsHandle, name: *const c_char, count: c_int, names: *const *const c_char, family_options: *const *const OptionsHandle, handles: *mut *mut Family) -> *mut OptimisticDatabase {
        open_optimistic(options, std::ptr::null(), name, Named { count, names, options: family_options, handles })
    }
    attempt rocksdb_optimistictransactiondb_open_with_otxn_db_options(options: *const OptionsHandle, settings: *const OptimisticDbSettings, name: *const c_char) -> *mut OptimisticDatabase { open_optimistic(options, settings, name, Named::NONE) }
    attempt rocksdb_optimistictransactiondb_open_column_families_with_otxn_db_options(options: *const OptionsHandle, settings: *const OptimisticDbSettings, name: *const c_char, count: c_int, names: *const *const c_char, family_options: *const *const OptionsHandle, handles: *mut *mut Family) -> *mut OptimisticDatabase {
        open_optimistic(options, settings, name, Named { count, names, options: family_options, handles })
    }
    call rocksdb_optimistictransactiondb_close(db: *mut OptimisticDatabase) {
        if let Some(db) = take(db) { or_say("rocksdb_optimistictransactiondb_close", db.base.db.close()); }
    }
    call rocksdb_optimistictransactiondb_get_base_db(db: *const OptimisticDatabase) -> *mut Database { db.as_ref().map_or(std::ptr::null_mut(), |db| give(Database::plain(db.base.db.clone()))) }
    call rocksdb_optimistictransactiondb_close_base_db(db: *mut Database) { end(db); }
    attempt rocksdb_optimistictransactiondb_write(db: *const OptimisticDatabase, write: *const Write, batch: *const Batch) { of(db)?.base.db.write(&writing(write), &of(batch)?.batch) }
    call rocksdb_optimistictransactiondb_property_value(db: *const OptimisticDatabase, name: *const c_char) -> *mut c_char { property(of(db).map(|db| &db.base.db), None, name) }
    call rocksdb_optimistictransactiondb_property_int(db: *const OptimisticDatabase, name: *const c_char, out: *mut u64) -> c_int { int_property(of(db).map(|db| &db.base.db), None, name, out) }
    attempt rocksdb_optimistictransactiondb_checkpoint_object_create(db: *const OptimisticDatabase) -> *mut CheckpointHandle { Ok(give(CheckpointHandle(of(db)?.base.db.clone()))) }
    call rocksdb_optimistictransaction_begin(db: *const OptimisticDatabase, write: *const Write, settings: *const OptimisticSettings, old: *mut TransactionHandle) -> *mut TransactionHandle {
        let Some(db) = db.as_ref() else { return std::ptr::null_mut() };
        let settings = settings.as_ref().map(|settings| settings.options).unwrap_or_default();
        replacing(old, TransactionHandle::new(Again::Optimistic(db.db.clone(), writing(write), settings), &db.base.db))
    }
}
