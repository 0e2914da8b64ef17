//! Reads, writes, snapshots, flushes, compactions and properties of an open database.

use crate::boundary::*;
use crate::call_options::{
    Compaction, Flush, Read, SizeApproximation, Wait, WalFlush, Write, reading, verifying,
};
use crate::family::{Family, family_or_default};
use crate::handle::{Database, Pinned, SnapshotHandle};
use crate::iterator::{Iter, iterators_of};
use crate::observe::Slice;
use karstdb::{Db, FlushOptions, Snapshot, WriteOptions};
use libc::{c_char, c_int, c_uchar};

/// Returns the write options of a handle; the defaults for null.
pub(crate) unsafe fn writing(options: *const Write) -> WriteOptions {
    unsafe { options.as_ref() }.map(|write| write.options).unwrap_or_default()
}

pub(crate) unsafe fn flushing(options: *const Flush) -> FlushOptions {
    unsafe { options.as_ref() }.map(|flush| flush.options).unwrap_or_default()
}

/// Returns true if a flush of the log syncs it; false for null.
pub(crate) unsafe fn syncs(options: *const WalFlush) -> bool {
    unsafe { options.as_ref() }.is_some_and(|options| options.options.sync)
}

/// Stores the values of a `multi_get` in three arrays.
pub(crate) unsafe fn values_out(
    found: Vec<karstdb::Result<Option<impl AsRef<[u8]>>>>,
    values: *mut *mut c_char,
    lengths: *mut usize,
    errors: *mut *mut c_char,
) {
    for (at, found) in found.into_iter().enumerate() {
        unsafe {
            let error = errors.add(at);
            put(error, std::ptr::null_mut());
            let value = found.unwrap_or_else(|failed| {
                save(error, &failed);
                None
            });
            values.add(at).write(value_out(value, lengths.add(at)));
        }
    }
}

pub(crate) unsafe fn families_of(
    handles: *const *const Family,
    count: usize,
) -> karstdb::Result<Vec<karstdb::ColumnFamily>> {
    unsafe { list(handles, count) }.iter().map(|handle| Ok(unsafe { of(*handle) }?.0.clone())).collect()
}

pub(crate) unsafe fn pairs<'a>(
    keys: *const *const c_char,
    values: *const *const c_char,
    count: c_int,
) -> karstdb::Result<Vec<(&'a str, &'a str)>> {
    let count = usize::try_from(count).unwrap_or(0);
    let (keys, values) = unsafe { (list(keys, count), list(values, count)) };
    keys.iter().zip(values).map(|(key, value)| Ok(unsafe { (text(*key)?, text(*value)?) })).collect()
}

unsafe fn multi_get(
    own: &Database,
    options: *const Read,
    families: Option<*const *const Family>,
    count: usize,
    keys: Vec<&[u8]>,
) -> Vec<karstdb::Result<Option<Pinned>>> {
    let (db, options) = (&own.db, unsafe { reading(options) });
    let found = match families.map(|families| unsafe { families_of(families, count) }) {
        None => db.multi_get_cf(&options, db.default_column_family(), &keys),
        Some(Ok(families)) => db.multi_get_cfs(&options, &families.iter().collect::<Vec<_>>(), &keys),
        Some(Err(error)) => return (0..count).map(|_| Err(error.clone())).collect(),
    };
    found.into_iter().map(|found| found.and_then(|found| own.shown(found))).collect()
}

/// Stores the approximate sizes of ranges, of the parts that the options include.
unsafe fn sizes(
    db: &Db,
    family: *const Family,
    count: c_int,
    (starts, start_lengths): (*const *const c_char, *const usize),
    (limits, limit_lengths): (*const *const c_char, *const usize),
    options: karstdb::SizeApproximationOptions,
    sizes: *mut u64,
) -> karstdb::Result<()> {
    let count = usize::try_from(count).unwrap_or(0);
    let (starts, limits) =
        unsafe { (byte_lists(starts, start_lengths, count), byte_lists(limits, limit_lengths, count)) };
    let ranges: Vec<_> = starts.into_iter().zip(limits).collect();
    let found = db.approximate_sizes_cf(&options, unsafe { family_or_default(db, family) }, &ranges)?;
    for (at, size) in found.into_iter().enumerate() {
        unsafe { put(sizes.add(at), size) };
    }
    Ok(())
}

unsafe fn compact(
    db: *const Database,
    family: *const Family,
    options: *const Compaction,
    start: (*const c_char, usize),
    limit: (*const c_char, usize),
) -> karstdb::Result<()> {
    let db = unsafe { &of(db)?.db };
    let options = unsafe { options.as_ref() }.map(|options| options.options.clone()).unwrap_or_default();
    let (start, limit) = unsafe { (bound(start.0, start.1), bound(limit.0, limit.1)) };
    db.compact_range_cf(&options, unsafe { family_or_default(db, family) }, start, limit)
}

unsafe fn may_exist(
    db: *const Database,
    options: *const Read,
    family: *const Family,
    key: &[u8],
    value: *mut *mut c_char,
    length: *mut usize,
    found: *mut c_uchar,
) -> karstdb::Result<c_uchar> {
    let (db, own) = unsafe { (&of(db)?.db, of(db)?) };
    let (may, seen) = unsafe { db.key_may_exist_cf(&reading(options), family_or_default(db, family), key)? };
    let seen = own.shown(seen)?;
    // Compat: RocksDB sets `found` also for a key that is certainly absent, with an empty value;
    // the value is null here, because callers that see an absent key do not free it.
    let known = seen.is_some() || !may;
    unsafe {
        put(found, known.into());
        if !value.is_null() && known {
            value.write(value_out(seen, length));
        }
    }
    Ok(may.into())
}

/// Returns RocksDB's answer for a failed lookup: 0 for an invalid argument, else 1, because a key
/// that cannot be read may exist. `found` is 0.
fn may_exist_or_failed(outcome: karstdb::Result<c_uchar>, found: *mut c_uchar) -> c_uchar {
    outcome.unwrap_or_else(|error| {
        // SAFETY: the caller's address for the answer, or null.
        unsafe { put(found, 0) };
        (error.kind() != karstdb::ErrorKind::InvalidArgument).into()
    })
}

/// Verifies the checksums of whole files.
///
/// Compat: RocksDB refuses it for a database without a checksum generator, even if its files have
/// checksums.
fn verify_file_checksums(db: &Db) -> karstdb::Result<()> {
    if db.options().file_checksum_gen_factory.text().is_none() {
        return Err(invalid("Cannot verify file checksum if options.file_checksum_gen_factory is null"));
    }
    db.verify_file_checksums().map(drop)
}

/// Returns the `Db` of a database's handle.
unsafe fn base<'a>(db: *const Database) -> karstdb::Result<&'a Db> {
    Ok(unsafe { &of(db)?.db })
}

/// `rocksdb_pinnable_handle_t`: the header has two names of the type.
pub type PinnedHandle = Pinned;

/// Stores the values of keys of one column family, and an error for each.
unsafe fn batched_multi_get(
    db: *const Database,
    options: *const Read,
    cf: *const Family,
    keys: &[&[u8]],
    values: *mut *mut Pinned,
    errs: *mut *mut c_char,
) {
    unsafe {
        let (Ok(db), Ok(own)) = (base(db), of(db)) else { return };
        let found = db.multi_get_cf(&reading(options), family_or_default(db, cf), keys);
        for (at, found) in found.into_iter().enumerate() {
            put(errs.add(at), std::ptr::null_mut());
            let value = found.and_then(|found| own.shown(found)).unwrap_or_else(|error| {
                save(errs.add(at), &error);
                None
            });
            put(values.add(at), value.map_or(std::ptr::null_mut(), give));
        }
    }
}

/// Copies a value into the caller's memory if it fits, and returns 1 if it does.
unsafe fn copied_out(
    value: Option<&[u8]>,
    buffer: *mut c_char,
    size: usize,
    length: *mut usize,
    found: *mut c_uchar,
) -> c_uchar {
    unsafe {
        put(found, value.is_some().into());
        put(length, value.map_or(0, <[u8]>::len));
        let Some(value) = value.filter(|value| value.len() <= size) else { return 0 };
        if !value.is_empty() {
            std::ptr::copy_nonoverlapping(value.as_ptr(), buffer.cast(), value.len());
        }
        1
    }
}

capi! {
    attempt rocksdb_put(db: *const Database, options: *const Write, key: *const c_char, keylen: usize, val: *const c_char, vallen: usize) {
        of(db)?.put(&writing(options), base(db)?.default_column_family(), bytes(key, keylen), bytes(val, vallen))
    }
    attempt rocksdb_put_cf(db: *const Database, options: *const Write, cf: *const Family, key: *const c_char, keylen: usize, val: *const c_char, vallen: usize) {
        of(db)?.put(&writing(options), &of(cf)?.0, bytes(key, keylen), bytes(val, vallen))
    }
    attempt rocksdb_merge(db: *const Database, options: *const Write, key: *const c_char, keylen: usize, val: *const c_char, vallen: usize) {
        of(db)?.merge(&writing(options), base(db)?.default_column_family(), bytes(key, keylen), bytes(val, vallen))
    }
    attempt rocksdb_merge_cf(db: *const Database, options: *const Write, cf: *const Family, key: *const c_char, keylen: usize, val: *const c_char, vallen: usize) {
        of(db)?.merge(&writing(options), &of(cf)?.0, bytes(key, keylen), bytes(val, vallen))
    }
    attempt rocksdb_delete(db: *const Database, options: *const Write, key: *const c_char, keylen: usize) {
        of(db)?.delete(&writing(options), base(db)?.default_column_family(), bytes(key, keylen))
    }
    attempt rocksdb_delete_cf(db: *const Database, options: *const Write, cf: *const Family, key: *const c_char, keylen: usize) {
        of(db)?.delete(&writing(options), &of(cf)?.0, bytes(key, keylen))
    }
    attempt rocksdb_singledelete(db: *const Database, options: *const Write, key: *const c_char, keylen: usize) {
        of(db)?.single_delete(&writing(options), base(db)?.default_column_family(), bytes(key, keylen))
    }
    attempt rocksdb_singledelete_cf(db: *const Database, options: *const Write, cf: *const Family, key: *const c_char, keylen: usize) {
        of(db)?.single_delete(&writing(options), &of(cf)?.0, bytes(key, keylen))
    }
    attempt rocksdb_delete_range_cf(db: *const Database, options: *const Write, cf: *const Family, start: *const c_char, startlen: usize, end: *const c_char, endlen: usize) {
        of(db)?.delete_range(&writing(options), &of(cf)?.0, bytes(start, startlen), bytes(end, endlen))
    }
    attempt rocksdb_write(db: *const Database, options: *const Write, batch: *const crate::batch::Batch) {
        of(db)?.write(&writing(options), &of(batch)?.batch)
    }

    attempt rocksdb_get(db: *const Database, options: *const Read, key: *const c_char, keylen: usize, vallen: *mut usize) -> *mut c_char {
        put(vallen, 0);
        let (db, own) = (base(db)?, of(db)?);
        Ok(value_out(own.shown(db.get_cf(&reading(options), db.default_column_family(), bytes(key, keylen))?)?, vallen))
    }
    attempt rocksdb_get_cf(db: *const Database, options: *const Read, cf: *const Family, key: *const c_char, keylen: usize, vallen: *mut usize) -> *mut c_char {
        put(vallen, 0);
        Ok(value_out(of(db)?.shown(base(db)?.get_cf(&reading(options), &of(cf)?.0, bytes(key, keylen))?)?, vallen))
    }
    attempt rocksdb_get_pinned(db: *const Database, options: *const Read, key: *const c_char, keylen: usize) -> *mut Pinned {
        let (db, own) = (base(db)?, of(db)?);
        let value = db.get_cf(&reading(options), db.default_column_family(), bytes(key, keylen))?;
        Ok(own.shown(value)?.map_or(std::ptr::null_mut(), give))
    }
    attempt rocksdb_get_pinned_cf(db: *const Database, options: *const Read, cf: *const Family, key: *const c_char, keylen: usize) -> *mut Pinned {
        let value = base(db)?.get_cf(&reading(options), &of(cf)?.0, bytes(key, keylen))?;
        Ok(of(db)?.shown(value)?.map_or(std::ptr::null_mut(), give))
    }
    call rocksdb_pinnableslice_value(slice: *const Pinned, vlen: *mut usize) -> *const c_char {
        lend_or_null(slice.as_ref().map(AsRef::as_ref), vlen)
    }
    call rocksdb_pinnableslice_destroy(slice: *mut Pinned) { end(slice); }

    call rocksdb_multi_get(db: *const Database, options: *const Read, num_keys: usize, keys: *const *const c_char, key_sizes: *const usize, values: *mut *mut c_char, value_sizes: *mut usize, errs: *mut *mut c_char) {
        let Ok(own) = of(db) else { return };
        let found = multi_get(own, options, None, num_keys, byte_lists(keys, key_sizes, num_keys));
        values_out(found, values, value_sizes, errs);
    }
    call rocksdb_multi_get_cf(db: *const Database, options: *const Read, cfs: *const *const Family, num_keys: usize, keys: *const *const c_char, key_sizes: *const usize, values: *mut *mut c_char, value_sizes: *mut usize, errs: *mut *mut c_char) {
        let Ok(own) = of(db) else { return };
        let found = multi_get(own, options, Some(cfs), num_keys, byte_lists(keys, key_sizes, num_keys));
        values_out(found, values, value_sizes, errs);
    }
    call rocksdb_batched_multi_get_cf(db: *const Database, options: *const Read, cf: *const Family, num_keys: usize, keys: *const *const c_char, key_sizes: *const usize, values: *mut *mut Pinned, errs: *mut *mut c_char, _sorted_input: bool) {
        batched_multi_get(db, options, cf, &byte_lists(keys, key_sizes, num_keys), values, errs);
    }
    call rocksdb_batched_multi_get_cf_slice(db: *const Database, options: *const Read, cf: *const Family, num_keys: usize, keys: *const Slice, values: *mut *mut Pinned, errs: *mut *mut c_char, _sorted_input: bool) {
        let keys: Vec<_> = list(keys, num_keys).iter().map(|key| key.bytes()).collect();
        batched_multi_get(db, options, cf, &keys, values, errs);
    }
    attempt rocksdb_get_pinned_v2(db: *const Database, options: *const Read, key: *const c_char, keylen: usize) -> *mut PinnedHandle {
        let (db, own) = (base(db)?, of(db)?);
        let value = db.get_cf(&reading(options), db.default_column_family(), bytes(key, keylen))?;
        Ok(own.shown(value)?.map_or(std::ptr::null_mut(), give))
    }
    attempt rocksdb_get_pinned_cf_v2(db: *const Database, options: *const Read, cf: *const Family, key: *const c_char, keylen: usize) -> *mut PinnedHandle {
        let value = base(db)?.get_cf(&reading(options), &of(cf)?.0, bytes(key, keylen))?;
        Ok(of(db)?.shown(value)?.map_or(std::ptr::null_mut(), give))
    }
    call rocksdb_pinnable_handle_get_value(slice: *const PinnedHandle, vlen: *mut usize) -> *const c_char {
        lend_or_null(slice.as_ref().map(AsRef::as_ref), vlen)
    }
    call rocksdb_pinnable_handle_destroy(slice: *mut PinnedHandle) { end(slice); }
    /// Copies a value into `buffer`, and returns 1 if it fits. `vallen` is the value's length;
    /// `found` is 0 if the key is absent.
    attempt rocksdb_get_into_buffer(db: *const Database, options: *const Read, key: *const c_char, keylen: usize, buffer: *mut c_char, buffer_size: usize, vallen: *mut usize, found: *mut c_uchar) -> c_uchar {
        copied_out(None, buffer, buffer_size, vallen, found);
        let (db, own) = (base(db)?, of(db)?);
        let value = own.shown(db.get_cf(&reading(options), db.default_column_family(), bytes(key, keylen))?)?;
        Ok(copied_out(value.as_ref().map(AsRef::as_ref), buffer, buffer_size, vallen, found))
    }
    attempt rocksdb_get_into_buffer_cf(db: *const Database, options: *const Read, cf: *const Family, key: *const c_char, keylen: usize, buffer: *mut c_char, buffer_size: usize, vallen: *mut usize, found: *mut c_uchar) -> c_uchar {
        copied_out(None, buffer, buffer_size, vallen, found);
        let value = of(db)?.shown(base(db)?.get_cf(&reading(options), &of(cf)?.0, bytes(key, keylen))?)?;
        Ok(copied_out(value.as_ref().map(AsRef::as_ref), buffer, buffer_size, vallen, found))
    }
    // RocksDB would store the value's timestamp in `timestamp`; C callers never see it.
    call rocksdb_key_may_exist(db: *const Database, options: *const Read, key: *const c_char, keylen: usize, value: *mut *mut c_char, vallen: *mut usize, _timestamp: *const c_char, _timestamp_len: usize, found: *mut c_uchar) -> c_uchar {
        may_exist_or_failed(may_exist(db, options, std::ptr::null(), bytes(key, keylen), value, vallen, found), found)
    }
    call rocksdb_key_may_exist_cf(db: *const Database, options: *const Read, cf: *const Family, key: *const c_char, keylen: usize, value: *mut *mut c_char, vallen: *mut usize, _timestamp: *const c_char, _timestamp_len: usize, found: *mut c_uchar) -> c_uchar {
        may_exist_or_failed(may_exist(db, options, cf, bytes(key, keylen), value, vallen, found), found)
    }

    call rocksdb_create_iterator(db: *const Database, options: *const Read) -> *mut Iter {
        match of(db) {
            Ok(own) => Iter::of(own, options, own.db.default_column_family()),
            Err(_) => std::ptr::null_mut(),
        }
    }
    call rocksdb_create_iterator_cf(db: *const Database, options: *const Read, cf: *const Family) -> *mut Iter {
        match (of(db), of(cf)) {
            (Ok(own), Ok(family)) => Iter::of(own, options, &family.0),
            _ => std::ptr::null_mut(),
        }
    }
    attempt rocksdb_create_iterators(db: *const Database, options: *const Read, cfs: *const *const Family, iterators: *mut *mut Iter, size: usize) {
        iterators_of(of(db)?, options, &families_of(cfs, size)?, iterators)
    }
    call rocksdb_create_snapshot(db: *const Database) -> *mut SnapshotHandle {
        base(db).map_or(std::ptr::null_mut(), |db| SnapshotHandle::given(db.snapshot()))
    }
    call rocksdb_release_snapshot(_db: *const Database, snapshot: *mut SnapshotHandle) { SnapshotHandle::release(snapshot) }
    call rocksdb_snapshot_get_sequence_number(snapshot: *const SnapshotHandle) -> u64 {
        SnapshotHandle::get(snapshot).map_or(0, Snapshot::sequence_number)
    }
    call rocksdb_get_latest_sequence_number(db: *const Database) -> u64 {
        base(db).map_or(0, Db::latest_sequence_number)
    }

    attempt rocksdb_flush(db: *const Database, options: *const Flush) {
        base(db)?.flush_cfs(&flushing(options), &[base(db)?.default_column_family()])
    }
    attempt rocksdb_flush_cf(db: *const Database, options: *const Flush, cf: *const Family) {
        base(db)?.flush_cfs(&flushing(options), &[&of(cf)?.0])
    }
    attempt rocksdb_flush_cfs(db: *const Database, options: *const Flush, cfs: *const *const Family, count: c_int) {
        let families = families_of(cfs, usize::try_from(count).unwrap_or(0))?;
        base(db)?.flush_cfs(&flushing(options), &families.iter().collect::<Vec<_>>())
    }
    attempt rocksdb_flush_wal(db: *const Database, sync: c_uchar) { base(db)?.flush_wal(sync != 0) }
    attempt rocksdb_disable_file_deletions(db: *const Database) { base(db)?.disable_file_deletions() }
    attempt rocksdb_enable_file_deletions(db: *const Database) { base(db)?.enable_file_deletions() }
    attempt rocksdb_pause_background_work(db: *const Database) { base(db)?.pause_background_work() }
    attempt rocksdb_continue_background_work(db: *const Database) { base(db)?.continue_background_work() }
    attempt rocksdb_verify_checksum(db: *const Database) { base(db)?.verify_checksum() }
    attempt rocksdb_flush_wal_with_options(db: *const Database, options: *const WalFlush) { base(db)?.flush_wal(syncs(options)) }
    attempt rocksdb_verify_checksum_with_options(db: *const Database, options: *const Read) {
        verifying(options)?;
        base(db)?.verify_checksum()
    }
    attempt rocksdb_verify_file_checksums_with_options(db: *const Database, options: *const Read) {
        verifying(options)?;
        verify_file_checksums(base(db)?)
    }
    attempt rocksdb_verify_file_checksums(db: *const Database) { verify_file_checksums(base(db)?) }
    attempt rocksdb_try_catch_up_with_primary(db: *const Database) { base(db)?.try_catch_up_with_primary() }
    attempt rocksdb_wait_for_compact(db: *const Database, options: *const Wait) {
        let options = options.as_ref().map(|wait| wait.options).unwrap_or_default();
        base(db)?.wait_for_compact(&options)
    }
    call rocksdb_disable_manual_compaction(db: *const Database) {
        if let Ok(db) = of(db) { or_say("rocksdb_disable_manual_compaction", db.disable_manual_compaction()); }
    }
    call rocksdb_enable_manual_compaction(db: *const Database) {
        if let Ok(db) = of(db) { or_say("rocksdb_enable_manual_compaction", db.enable_manual_compaction()); }
    }
    call rocksdb_cancel_all_background_work(db: *const Database, wait: c_uchar) {
        if let Ok(db) = base(db) { or_say("rocksdb_cancel_all_background_work", db.cancel_all_background_work(wait != 0)); }
    }

    call rocksdb_compact_range(db: *const Database, start: *const c_char, startlen: usize, limit: *const c_char, limitlen: usize) {
        or_say("rocksdb_compact_range", compact(db, std::ptr::null(), std::ptr::null(), (start, startlen), (limit, limitlen)));
    }
    call rocksdb_compact_range_cf(db: *const Database, cf: *const Family, start: *const c_char, startlen: usize, limit: *const c_char, limitlen: usize) {
        or_say("rocksdb_compact_range_cf", compact(db, cf, std::ptr::null(), (start, startlen), (limit, limitlen)));
    }
    call rocksdb_compact_range_opt(db: *const Database, options: *const Compaction, start: *const c_char, startlen: usize, limit: *const c_char, limitlen: usize) {
        or_say("rocksdb_compact_range_opt", compact(db, std::ptr::null(), options, (start, startlen), (limit, limitlen)));
    }
    call rocksdb_compact_range_cf_opt(db: *const Database, cf: *const Family, options: *const Compaction, start: *const c_char, startlen: usize, limit: *const c_char, limitlen: usize) {
        or_say("rocksdb_compact_range_cf_opt", compact(db, cf, options, (start, startlen), (limit, limitlen)));
    }
    attempt rocksdb_suggest_compact_range(db: *const Database, start: *const c_char, startlen: usize, limit: *const c_char, limitlen: usize) {
        let db = base(db)?;
        db.suggest_compact_range(db.default_column_family(), bound(start, startlen), bound(limit, limitlen))
    }
    attempt rocksdb_suggest_compact_range_cf(db: *const Database, cf: *const Family, start: *const c_char, startlen: usize, limit: *const c_char, limitlen: usize) {
        base(db)?.suggest_compact_range(&of(cf)?.0, bound(start, startlen), bound(limit, limitlen))
    }
    attempt rocksdb_delete_file_in_range(db: *const Database, start: *const c_char, startlen: usize, limit: *const c_char, limitlen: usize) {
        let db = base(db)?;
        db.delete_files_in_ranges(db.default_column_family(), &[(bound(start, startlen), bound(limit, limitlen))], true)
    }
    attempt rocksdb_delete_file_in_range_cf(db: *const Database, cf: *const Family, start: *const c_char, startlen: usize, limit: *const c_char, limitlen: usize) {
        base(db)?.delete_files_in_ranges(&of(cf)?.0, &[(bound(start, startlen), bound(limit, limitlen))], true)
    }
    attempt rocksdb_set_options(db: *const Database, count: c_int, keys: *const *const c_char, values: *const *const c_char) {
        let db = base(db)?;
        db.set_options(db.default_column_family(), &pairs(keys, values, count)?)
    }
    attempt rocksdb_set_options_cf(db: *const Database, cf: *const Family, count: c_int, keys: *const *const c_char, values: *const *const c_char) {
        base(db)?.set_options(&of(cf)?.0, &pairs(keys, values, count)?)
    }
    attempt rocksdb_set_db_options(db: *const Database, count: c_int, keys: *const *const c_char, values: *const *const c_char) {
        base(db)?.set_db_options(&pairs(keys, values, count)?)
    }

    call rocksdb_property_value(db: *const Database, name: *const c_char) -> *mut c_char {
        property(base(db), None, name)
    }
    call rocksdb_property_value_cf(db: *const Database, cf: *const Family, name: *const c_char) -> *mut c_char {
        property(base(db), cf.as_ref(), name)
    }
    call rocksdb_property_int(db: *const Database, name: *const c_char, out: *mut u64) -> c_int {
        int_property(base(db), None, name, out)
    }
    call rocksdb_property_int_cf(db: *const Database, cf: *const Family, name: *const c_char, out: *mut u64) -> c_int {
        int_property(base(db), cf.as_ref(), name, out)
    }
    call rocksdb_get_db_identity(db: *const Database, length: *mut usize) -> *mut c_char {
        value_out(base(db).ok().and_then(Db::identity), length)
    }
    attempt rocksdb_approximate_sizes(db: *const Database, count: c_int, starts: *const *const c_char, startlens: *const usize, limits: *const *const c_char, limitlens: *const usize, out: *mut u64) {
        sizes(base(db)?, std::ptr::null(), count, (starts, startlens), (limits, limitlens), Default::default(), out)
    }
    attempt rocksdb_approximate_sizes_cf(db: *const Database, cf: *const Family, count: c_int, starts: *const *const c_char, startlens: *const usize, limits: *const *const c_char, limitlens: *const usize, out: *mut u64) {
        sizes(base(db)?, cf, count, (starts, startlens), (limits, limitlens), Default::default(), out)
    }
    attempt rocksdb_approximate_sizes_cf_with_flags(db: *const Database, cf: *const Family, count: c_int, starts: *const *const c_char, startlens: *const usize, limits: *const *const c_char, limitlens: *const usize, flags: u8, out: *mut u64) {
        let options = karstdb::SizeApproximationOptions {
            include_memtables: flags & 1 != 0,
            include_files: flags & 2 != 0,
            include_blob_files: flags & 4 != 0,
            ..Default::default()
        };
        sizes(base(db)?, cf, count, (starts, startlens), (limits, limitlens), options, out)
    }
    attempt rocksdb_approximate_sizes_with_options(db: *const Database, options: *const SizeApproximation, count: c_int, starts: *const *const c_char, startlens: *const usize, limits: *const *const c_char, limitlens: *const usize, out: *mut u64) {
        let options = options.as_ref().map(|options| options.options).unwrap_or_default();
        sizes(base(db)?, std::ptr::null(), count, (starts, startlens), (limits, limitlens), options, out)
    }
    attempt rocksdb_approximate_sizes_cf_with_options(db: *const Database, cf: *const Family, options: *const SizeApproximation, count: c_int, starts: *const *const c_char, startlens: *const usize, limits: *const *const c_char, limitlens: *const usize, out: *mut u64) {
        let options = options.as_ref().map(|options| options.options).unwrap_or_default();
        sizes(base(db)?, cf, count, (starts, startlens), (limits, limitlens), options, out)
    }
    call rocksdb_free(memory: *mut libc::c_void) { libc::free(memory) }
}

/// Returns a property as text, for the user to free.
pub(crate) unsafe fn property(
    db: karstdb::Result<&Db>,
    family: Option<&Family>,
    name: *const c_char,
) -> *mut c_char {
    let found = db.and_then(|db| {
        let family = family.map_or(db.default_column_family(), |family| &family.0);
        Ok(db.property_cf(family, unsafe { text(name) }?))
    });
    found.ok().flatten().map_or(std::ptr::null_mut(), |value| text_out(&value))
}

/// Stores a property as a number and returns 0, or -1 if it has none, as RocksDB does.
pub(crate) unsafe fn int_property(
    db: karstdb::Result<&Db>,
    family: Option<&Family>,
    name: *const c_char,
    out: *mut u64,
) -> c_int {
    let found = db.and_then(|db| {
        let family = family.map_or(db.default_column_family(), |family| &family.0);
        Ok(db.int_property_cf(family, unsafe { text(name) }?))
    });
    match found.ok().flatten() {
        Some(value) => {
            unsafe { put(out, value) };
            0
        }
        None => -1,
    }
}
