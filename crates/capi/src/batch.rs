//! Write batches.

use crate::boundary::*;
use crate::family::Family;
use karstdb::WriteBatch;
use karstdb::format::{ColumnFamilyId, Op};
use libc::{c_char, c_int, c_void};

/// `rocksdb_writebatch_t`.
#[derive(Debug, Default)]
pub struct Batch {
    pub(crate) batch: WriteBatch,
}

pub(crate) type Visit2 =
    Option<unsafe extern "C" fn(*mut c_void, *const c_char, usize, *const c_char, usize)>;
pub(crate) type Visit1 = Option<unsafe extern "C" fn(*mut c_void, *const c_char, usize)>;
type VisitCf2 = Option<unsafe extern "C" fn(*mut c_void, u32, *const c_char, usize, *const c_char, usize)>;
type VisitCf1 = Option<unsafe extern "C" fn(*mut c_void, u32, *const c_char, usize)>;

/// Callbacks by kind of operation. Single deletions call none.
///
/// Compat: RocksDB's C calls install a handler with methods for these kinds alone. In the default
/// column family its base class ignores single deletions and, in the walk without column families,
/// merge operands; any other operation is an error, which ends the walk silently.
pub(crate) struct Visitors {
    pub(crate) put: VisitCf2,
    pub(crate) deleted: VisitCf1,
    pub(crate) merge: VisitCf2,
    pub(crate) log: Visit1,
}

fn at(bytes: &[u8]) -> *const c_char {
    bytes.as_ptr().cast()
}

/// Handles an operation that has no method, calling `log` for log data; returns true if the walk
/// continues.
unsafe fn pass(op: &Op<'_>, state: *mut c_void, log: Visit1) -> bool {
    match op {
        Op::SingleDelete { cf, .. } | Op::Merge { cf, .. } => *cf == ColumnFamilyId::DEFAULT,
        Op::LogData(data) => {
            if let Some(log) = log {
                unsafe { log(state, at(data), data.len()) }
            }
            true
        }
        Op::Noop => true,
        _ => false,
    }
}

pub(crate) unsafe fn visit(batch: &WriteBatch, state: *mut c_void, visitors: &Visitors) {
    for op in batch.iter() {
        unsafe {
            match op {
                Op::Put { cf, key, value } => {
                    if let Some(put) = visitors.put {
                        put(state, cf.0, at(key), key.len(), at(value), value.len())
                    }
                }
                Op::Delete { cf, key } => {
                    if let Some(deleted) = visitors.deleted {
                        deleted(state, cf.0, at(key), key.len())
                    }
                }
                Op::Merge { cf, key, operand } => {
                    if let Some(merge) = visitors.merge {
                        merge(state, cf.0, at(key), key.len(), at(operand), operand.len())
                    }
                }
                other => {
                    if !pass(&other, state, visitors.log) {
                        return;
                    }
                }
            }
        }
    }
}

/// Walks a batch like [`visit`], with callbacks that get no column family, up to the first
/// operation on a column family other than the default.
pub(crate) unsafe fn visit_default(
    batch: &WriteBatch,
    state: *mut c_void,
    put: Visit2,
    deleted: Visit1,
    log: Visit1,
) {
    for op in batch.iter() {
        unsafe {
            match op {
                Op::Put { cf: ColumnFamilyId::DEFAULT, key, value } => {
                    if let Some(put) = put {
                        put(state, at(key), key.len(), at(value), value.len())
                    }
                }
                Op::Delete { cf: ColumnFamilyId::DEFAULT, key } => {
                    if let Some(deleted) = deleted {
                        deleted(state, at(key), key.len())
                    }
                }
                other => {
                    if !pass(&other, state, log) {
                        return;
                    }
                }
            }
        }
    }
}

/// Changes a batch. An error goes to stderr, because RocksDB's call has no place for one.
pub(crate) unsafe fn change(
    name: &'static str,
    batch: *mut Batch,
    change: impl FnOnce(&mut WriteBatch) -> karstdb::Result<()>,
) {
    or_say(name, unsafe { of_mut(batch) }.and_then(|batch| change(&mut batch.batch)));
}

/// Exports the calls of one operation, with and without a column family.
macro_rules! operations {
    ($($plain:ident $cf:ident $put:ident $put_cf:ident ($($arg:ident $len:ident),*);)*) => {
        capi! {
            $(
                call $plain(batch: *mut Batch, $($arg: *const c_char, $len: usize),*) {
                    change(stringify!($plain), batch, |batch| batch.$put($(bytes($arg, $len)),*))
                }
                call $cf(batch: *mut Batch, family: *const Family, $($arg: *const c_char, $len: usize),*) {
                    change(stringify!($cf), batch, |batch| batch.$put_cf(&of(family)?.0, $(bytes($arg, $len)),*))
                }
            )*
        }
    };
}

mod operation {
    use super::*;
    operations! {
        rocksdb_writebatch_put rocksdb_writebatch_put_cf put put_cf (key klen, val vlen);
        rocksdb_writebatch_merge rocksdb_writebatch_merge_cf merge merge_cf (key klen, val vlen);
        rocksdb_writebatch_delete rocksdb_writebatch_delete_cf delete delete_cf (key klen);
        rocksdb_writebatch_singledelete rocksdb_writebatch_singledelete_cf single_delete single_delete_cf (key klen);
        rocksdb_writebatch_delete_range rocksdb_writebatch_delete_range_cf delete_range delete_range_cf (start startlen, end endlen);
    }
}

mod whole {
    use super::*;
    capi! {
        call rocksdb_writebatch_create() -> *mut Batch { give(Batch::default()) }
        call rocksdb_writebatch_create_from(rep: *const c_char, size: usize) -> *mut Batch {
            let batch = WriteBatch::from_bytes(bytes(rep, size).to_vec());
            or_say("rocksdb_writebatch_create_from", batch).map_or(std::ptr::null_mut(), |batch| give(Batch { batch }))
        }
        call rocksdb_writebatch_create_with_params(reserved: usize, max: usize, protection: usize, default_cf_ts_sz: usize) -> *mut Batch {
            let batch = WriteBatch::with_capacity(reserved, max).with_default_timestamp_size(default_cf_ts_sz);
            give(Batch { batch: if protection == 0 { batch } else { batch.to_protected() } })
        }
        call rocksdb_writebatch_destroy(batch: *mut Batch) { end(batch); }
        call rocksdb_writebatch_clear(batch: *mut Batch) { if let Some(batch) = batch.as_mut() { batch.batch.clear() } }
        call rocksdb_writebatch_count(batch: *const Batch) -> c_int {
            batch.as_ref().map_or(0, |batch| c_int::try_from(batch.batch.count()).unwrap_or(c_int::MAX))
        }
        call rocksdb_writebatch_data(batch: *const Batch, size: *mut usize) -> *const c_char {
            batch.as_ref().map_or(std::ptr::null(), |batch| lend(batch.batch.as_bytes(), size))
        }
        call rocksdb_writebatch_put_log_data(batch: *mut Batch, blob: *const c_char, len: usize) {
            change("rocksdb_writebatch_put_log_data", batch, |batch| batch.put_log_data(bytes(blob, len)))
        }
        call rocksdb_writebatch_set_save_point(batch: *mut Batch) { if let Some(batch) = batch.as_mut() { batch.batch.set_save_point() } }
        attempt rocksdb_writebatch_rollback_to_save_point(batch: *mut Batch) { of_mut(batch)?.batch.rollback_to_save_point() }
        attempt rocksdb_writebatch_pop_save_point(batch: *mut Batch) { of_mut(batch)?.batch.pop_save_point() }
        attempt rocksdb_writebatch_verify_checksum(batch: *const Batch) { of(batch)?.batch.verify() }
        call rocksdb_writebatch_putv(batch: *mut Batch, num_keys: c_int, keys: *const *const c_char, key_sizes: *const usize, num_values: c_int, values: *const *const c_char, value_sizes: *const usize) {
            change("rocksdb_writebatch_putv", batch, |batch| batch.put(joined(keys, key_sizes, num_keys), joined(values, value_sizes, num_values)))
        }
        call rocksdb_writebatch_putv_cf(batch: *mut Batch, family: *const Family, num_keys: c_int, keys: *const *const c_char, key_sizes: *const usize, num_values: c_int, values: *const *const c_char, value_sizes: *const usize) {
            change("rocksdb_writebatch_putv_cf", batch, |batch| batch.put_cf(&of(family)?.0, joined(keys, key_sizes, num_keys), joined(values, value_sizes, num_values)))
        }
        call rocksdb_writebatch_mergev(batch: *mut Batch, num_keys: c_int, keys: *const *const c_char, key_sizes: *const usize, num_values: c_int, values: *const *const c_char, value_sizes: *const usize) {
            change("rocksdb_writebatch_mergev", batch, |batch| batch.merge(joined(keys, key_sizes, num_keys), joined(values, value_sizes, num_values)))
        }
        call rocksdb_writebatch_mergev_cf(batch: *mut Batch, family: *const Family, num_keys: c_int, keys: *const *const c_char, key_sizes: *const usize, num_values: c_int, values: *const *const c_char, value_sizes: *const usize) {
            change("rocksdb_writebatch_mergev_cf", batch, |batch| batch.merge_cf(&of(family)?.0, joined(keys, key_sizes, num_keys), joined(values, value_sizes, num_values)))
        }
        call rocksdb_writebatch_deletev(batch: *mut Batch, num_keys: c_int, keys: *const *const c_char, key_sizes: *const usize) {
            change("rocksdb_writebatch_deletev", batch, |batch| batch.delete(joined(keys, key_sizes, num_keys)))
        }
        call rocksdb_writebatch_deletev_cf(batch: *mut Batch, family: *const Family, num_keys: c_int, keys: *const *const c_char, key_sizes: *const usize) {
            change("rocksdb_writebatch_deletev_cf", batch, |batch| batch.delete_cf(&of(family)?.0, joined(keys, key_sizes, num_keys)))
        }
        call rocksdb_writebatch_delete_rangev(batch: *mut Batch, num_keys: c_int, starts: *const *const c_char, start_sizes: *const usize, ends: *const *const c_char, end_sizes: *const usize) {
            change("rocksdb_writebatch_delete_rangev", batch, |batch| batch.delete_range(joined(starts, start_sizes, num_keys), joined(ends, end_sizes, num_keys)))
        }
        call rocksdb_writebatch_delete_rangev_cf(batch: *mut Batch, family: *const Family, num_keys: c_int, starts: *const *const c_char, start_sizes: *const usize, ends: *const *const c_char, end_sizes: *const usize) {
            change("rocksdb_writebatch_delete_rangev_cf", batch, |batch| batch.delete_range_cf(&of(family)?.0, joined(starts, start_sizes, num_keys), joined(ends, end_sizes, num_keys)))
        }
        call rocksdb_writebatch_iterate(batch: *const Batch, state: *mut c_void, put: Visit2, deleted: Visit1) {
            if let Some(batch) = batch.as_ref() { visit_default(&batch.batch, state, put, deleted, None) }
        }
        call rocksdb_writebatch_iterate_ld(batch: *const Batch, state: *mut c_void, put: Visit2, deleted: Visit1, log: Visit1) {
            if let Some(batch) = batch.as_ref() { visit_default(&batch.batch, state, put, deleted, log) }
        }
        call rocksdb_writebatch_iterate_cf(batch: *const Batch, state: *mut c_void, put: VisitCf2, deleted: VisitCf1, merge: VisitCf2) {
            if let Some(batch) = batch.as_ref() { visit(&batch.batch, state, &Visitors { put, deleted, merge, log: None }) }
        }
        call rocksdb_writebatch_iterate_cf_ld(batch: *const Batch, state: *mut c_void, put: VisitCf2, deleted: VisitCf1, merge: VisitCf2, log: Visit1) {
            if let Some(batch) = batch.as_ref() { visit(&batch.batch, state, &Visitors { put, deleted, merge, log }) }
        }
    }
}

pub(crate) const NAMES: &[&[crate::signature::Signature]] = &[operation::NAMES, whole::NAMES];
