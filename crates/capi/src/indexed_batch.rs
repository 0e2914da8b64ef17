//! Write batches with an index, which makes their operations readable before they are written.
//!
//! Compat: an iterator over a batch shows the batch as it was when the iterator was made; RocksDB's
//! also shows what is added later.

use crate::batch::{Visit1, Visit2, visit_default};
use crate::boundary::*;
use crate::call_options::{Read, Write, reading};
use crate::callbacks::ComparatorHandle;
use crate::db::writing;
use crate::family::{Family, family_or_default};
use crate::handle::{Database, Pinned};
use crate::iterator::Iter;
use crate::options::OptionsHandle;
use crate::transaction::{TransactionHandle, ready};
use karstdb::format::Comparator;
use karstdb::{BatchParams, InBatch, Value, WriteBatchWithIndex};
use libc::{c_char, c_int, c_uchar, c_void};

/// `rocksdb_writebatch_wi_t`: a batch of its own, or that of a transaction. Allocated by malloc and
/// without a destructor of its own, because users free that of a transaction by `rocksdb_free`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct IndexedBatch {
    own: *mut WriteBatchWithIndex,
    /// The transaction, or null. Its batch is not stored, because it is gone once the transaction
    /// ends.
    transaction: *const TransactionHandle,
}

impl IndexedBatch {
    fn given(params: BatchParams) -> *mut IndexedBatch {
        let own = give(WriteBatchWithIndex::with_params(params));
        array_out(&[IndexedBatch { own, transaction: std::ptr::null() }])
    }

    pub(crate) fn of_transaction(transaction: *const TransactionHandle) -> *mut IndexedBatch {
        array_out(&[IndexedBatch { own: std::ptr::null_mut(), transaction }])
    }
}

/// Returns the batch of a handle for a read.
pub(crate) unsafe fn batch_of<'a>(handle: *const IndexedBatch) -> karstdb::Result<&'a WriteBatchWithIndex> {
    let handle = unsafe { of(handle)? };
    match unsafe { handle.transaction.as_ref() } {
        None => unsafe { of(handle.own) },
        Some(transaction) => {
            transaction.indexed_batch().ok_or_else(|| invalid("the batch's transaction has ended"))
        }
    }
}

/// Returns the batch of a handle for a change; fails for a transaction's.
pub(crate) unsafe fn batch_of_mut<'a>(
    handle: *mut IndexedBatch,
) -> karstdb::Result<&'a mut WriteBatchWithIndex> {
    let handle = unsafe { of(handle)? };
    if handle.transaction.is_null() {
        unsafe { of_mut(handle.own) }
    } else {
        Err(not_supported("changing a transaction's batch other than through the transaction"))
    }
}

/// Changes a batch. An error goes to stderr, because RocksDB's call has no place for one.
unsafe fn change(
    name: &'static str,
    batch: *mut IndexedBatch,
    change: impl FnOnce(&mut WriteBatchWithIndex) -> karstdb::Result<()>,
) {
    or_say(name, unsafe { batch_of_mut(batch) }.and_then(change));
}

/// Returns the value that a batch alone has for a key; fails for operands without a base value.
fn said(found: InBatch) -> karstdb::Result<Option<Value>> {
    match found {
        InBatch::Value(value) => Ok(Some(value)),
        InBatch::Absent | InBatch::Deleted => Ok(None),
        InBatch::Operands(_) => Err(karstdb::Error::new(
            karstdb::ErrorKind::Incomplete,
            "the batch has only merge operands for the key, and their base value is in the database",
        )),
    }
}

/// Returns the value of a key in the batch laid over the database.
unsafe fn get(
    batch: *const IndexedBatch,
    db: *const Database,
    options: *const Read,
    cf: *const Family,
    key: &[u8],
) -> karstdb::Result<Option<Value>> {
    let (batch, own) = unsafe { (batch_of(batch)?, of(db)?) };
    if own.ttl.is_some() {
        return Err(not_supported("reading a batch with an index over a database with a TTL"));
    }
    let (family, options) = unsafe { (family_or_default(&own.db, cf), reading(options)) };
    batch.get_from_batch_and_db_cf(&own.db, &options, family, key)
}

fn pinned(value: Option<Value>) -> *mut Pinned {
    value.map_or(std::ptr::null_mut(), |value| give(Pinned::whole(value)))
}

/// Exports the calls of one operation, with and without a column family.
macro_rules! operations {
    ($($plain:ident $cf:ident $put:ident $put_cf:ident ($($arg:ident $len:ident),*);)*) => {
        capi! {
            $(
                call $plain(batch: *mut IndexedBatch, $($arg: *const c_char, $len: usize),*) {
                    change(stringify!($plain), batch, |batch| batch.$put($(bytes($arg, $len)),*))
                }
                call $cf(batch: *mut IndexedBatch, family: *const Family, $($arg: *const c_char, $len: usize),*) {
                    change(stringify!($cf), batch, |batch| batch.$put_cf(&of(family)?.0, $(bytes($arg, $len)),*))
                }
            )*
        }
    };
}

mod operation {
    use super::*;
    operations! {
        rocksdb_writebatch_wi_put rocksdb_writebatch_wi_put_cf put put_cf (key klen, val vlen);
        rocksdb_writebatch_wi_merge rocksdb_writebatch_wi_merge_cf merge merge_cf (key klen, val vlen);
        rocksdb_writebatch_wi_delete rocksdb_writebatch_wi_delete_cf delete delete_cf (key klen);
        rocksdb_writebatch_wi_singledelete rocksdb_writebatch_wi_singledelete_cf single_delete single_delete_cf (key klen);
    }
}

/// Exports the calls of one operation with keys and values in parts.
macro_rules! in_parts {
    ($($plain:ident $cf:ident $put:ident $put_cf:ident ($($count:ident $parts:ident $sizes:ident),*);)*) => {
        capi! {
            $(
                call $plain(batch: *mut IndexedBatch, $($count: c_int, $parts: *const *const c_char, $sizes: *const usize),*) {
                    change(stringify!($plain), batch, |batch| batch.$put($(joined($parts, $sizes, $count)),*))
                }
                call $cf(batch: *mut IndexedBatch, family: *const Family, $($count: c_int, $parts: *const *const c_char, $sizes: *const usize),*) {
                    change(stringify!($cf), batch, |batch| batch.$put_cf(&of(family)?.0, $(joined($parts, $sizes, $count)),*))
                }
            )*
        }
    };
}

mod parts {
    use super::*;
    in_parts! {
        rocksdb_writebatch_wi_putv rocksdb_writebatch_wi_putv_cf put put_cf (num_keys keys key_sizes, num_values values value_sizes);
        rocksdb_writebatch_wi_mergev rocksdb_writebatch_wi_mergev_cf merge merge_cf (num_keys keys key_sizes, num_values values value_sizes);
        rocksdb_writebatch_wi_deletev rocksdb_writebatch_wi_deletev_cf delete delete_cf (num_keys keys key_sizes);
    }
}

mod whole {
    use super::*;
    capi! {
        attempt rocksdb_transaction_rebuild_from_writebatch_wi(handle: *mut TransactionHandle, batch: *const IndexedBatch) {
            // Copied because it may be the transaction's own batch.
            let batch = batch_of(batch)?.write_batch().clone();
            ready(handle)?.rebuild(&batch)
        }
        call rocksdb_transaction_get_writebatch_wi(handle: *mut TransactionHandle) -> *mut IndexedBatch {
            if handle.is_null() { std::ptr::null_mut() } else { IndexedBatch::of_transaction(handle) }
        }
        call rocksdb_writebatch_wi_create(reserved_bytes: usize, overwrite_keys: c_uchar) -> *mut IndexedBatch {
            IndexedBatch::given(BatchParams { reserved_bytes, overwrite_key: overwrite_keys != 0, ..BatchParams::default() })
        }
        call rocksdb_writebatch_wi_create_with_params(comparator: *const ComparatorHandle, reserved_bytes: usize, overwrite_key: c_uchar, max_bytes: usize, protection_bytes_per_key: usize) -> *mut IndexedBatch {
            IndexedBatch::given(BatchParams {
                reserved_bytes,
                overwrite_key: overwrite_key != 0,
                max_bytes,
                is_protected: protection_bytes_per_key != 0,
                comparator: comparator.as_ref().map_or(Comparator::Bytewise, |comparator| comparator.0.clone()),
            })
        }
        call rocksdb_writebatch_wi_destroy(batch: *mut IndexedBatch) {
            if let Some(batch) = batch.as_ref() { end(batch.own) }
            libc::free(batch.cast())
        }
        call rocksdb_writebatch_wi_clear(batch: *mut IndexedBatch) {
            change("rocksdb_writebatch_wi_clear", batch, |batch| { batch.clear(); Ok(()) })
        }
        call rocksdb_writebatch_wi_count(batch: *const IndexedBatch) -> c_int {
            batch_of(batch).map_or(0, |batch| c_int::try_from(batch.count()).unwrap_or(c_int::MAX))
        }
        call rocksdb_writebatch_wi_data(batch: *const IndexedBatch, size: *mut usize) -> *const c_char {
            lend_or_null(batch_of(batch).ok().map(|batch| batch.write_batch().as_bytes()), size)
        }
        call rocksdb_writebatch_wi_put_log_data(batch: *mut IndexedBatch, blob: *const c_char, len: usize) {
            change("rocksdb_writebatch_wi_put_log_data", batch, |batch| batch.put_log_data(bytes(blob, len)))
        }
        call rocksdb_writebatch_wi_set_save_point(batch: *mut IndexedBatch) {
            change("rocksdb_writebatch_wi_set_save_point", batch, |batch| { batch.set_save_point(); Ok(()) })
        }
        attempt rocksdb_writebatch_wi_rollback_to_save_point(batch: *mut IndexedBatch) { batch_of_mut(batch)?.rollback_to_save_point() }
        // Compat: fails, because an indexed batch takes no range deletions. RocksDB's fails too,
        // but its C call reports nothing.
        call rocksdb_writebatch_wi_delete_range(batch: *mut IndexedBatch, start_key: *const c_char, start_key_len: usize, end_key: *const c_char, end_key_len: usize) {
            change("rocksdb_writebatch_wi_delete_range", batch, |batch| batch.delete_range(bytes(start_key, start_key_len), bytes(end_key, end_key_len)))
        }
        call rocksdb_writebatch_wi_delete_range_cf(batch: *mut IndexedBatch, _family: *const Family, start_key: *const c_char, start_key_len: usize, end_key: *const c_char, end_key_len: usize) {
            change("rocksdb_writebatch_wi_delete_range_cf", batch, |batch| batch.delete_range(bytes(start_key, start_key_len), bytes(end_key, end_key_len)))
        }
        call rocksdb_writebatch_wi_delete_rangev(batch: *mut IndexedBatch, num_keys: c_int, starts: *const *const c_char, start_sizes: *const usize, ends: *const *const c_char, end_sizes: *const usize) {
            change("rocksdb_writebatch_wi_delete_rangev", batch, |batch| batch.delete_range(joined(starts, start_sizes, num_keys), joined(ends, end_sizes, num_keys)))
        }
        call rocksdb_writebatch_wi_delete_rangev_cf(batch: *mut IndexedBatch, _family: *const Family, num_keys: c_int, starts: *const *const c_char, start_sizes: *const usize, ends: *const *const c_char, end_sizes: *const usize) {
            change("rocksdb_writebatch_wi_delete_rangev_cf", batch, |batch| batch.delete_range(joined(starts, start_sizes, num_keys), joined(ends, end_sizes, num_keys)))
        }
        call rocksdb_writebatch_wi_iterate(batch: *const IndexedBatch, state: *mut c_void, put: Visit2, deleted: Visit1) {
            if let Ok(batch) = batch_of(batch) { visit_default(batch.write_batch(), state, put, deleted, None) }
        }
        attempt rocksdb_write_writebatch_wi(db: *const Database, options: *const Write, batch: *const IndexedBatch) {
            of(db)?.write(&writing(options), batch_of(batch)?.write_batch())
        }

        attempt rocksdb_writebatch_wi_get_from_batch(batch: *const IndexedBatch, _options: *const OptionsHandle, key: *const c_char, keylen: usize, vallen: *mut usize) -> *mut c_char {
            put(vallen, 0);
            Ok(value_out(said(batch_of(batch)?.get_from_batch(bytes(key, keylen))?)?, vallen))
        }
        attempt rocksdb_writebatch_wi_get_from_batch_cf(batch: *const IndexedBatch, _options: *const OptionsHandle, cf: *const Family, key: *const c_char, keylen: usize, vallen: *mut usize) -> *mut c_char {
            put(vallen, 0);
            Ok(value_out(said(batch_of(batch)?.get_from_batch_cf(&of(cf)?.0, bytes(key, keylen))?)?, vallen))
        }
        attempt rocksdb_writebatch_wi_get_from_batch_and_db(batch: *const IndexedBatch, db: *const Database, options: *const Read, key: *const c_char, keylen: usize, vallen: *mut usize) -> *mut c_char {
            put(vallen, 0);
            Ok(value_out(get(batch, db, options, std::ptr::null(), bytes(key, keylen))?, vallen))
        }
        attempt rocksdb_writebatch_wi_get_from_batch_and_db_cf(batch: *const IndexedBatch, db: *const Database, options: *const Read, cf: *const Family, key: *const c_char, keylen: usize, vallen: *mut usize) -> *mut c_char {
            put(vallen, 0);
            Ok(value_out(get(batch, db, options, cf, bytes(key, keylen))?, vallen))
        }
        attempt rocksdb_writebatch_wi_get_pinned_from_batch_and_db(batch: *const IndexedBatch, db: *const Database, options: *const Read, key: *const c_char, keylen: usize) -> *mut Pinned {
            Ok(pinned(get(batch, db, options, std::ptr::null(), bytes(key, keylen))?))
        }
        attempt rocksdb_writebatch_wi_get_pinned_from_batch_and_db_cf(batch: *const IndexedBatch, db: *const Database, options: *const Read, cf: *const Family, key: *const c_char, keylen: usize) -> *mut Pinned {
            Ok(pinned(get(batch, db, options, cf, bytes(key, keylen))?))
        }

        call rocksdb_writebatch_wi_create_iterator_with_base(batch: *const IndexedBatch, base: *mut Iter) -> *mut Iter {
            Iter::with_batch(batch_of(batch), base, None, std::ptr::null())
        }
        call rocksdb_writebatch_wi_create_iterator_with_base_readopts(batch: *const IndexedBatch, base: *mut Iter, options: *const Read) -> *mut Iter {
            Iter::with_batch(batch_of(batch), base, None, options)
        }
        call rocksdb_writebatch_wi_create_iterator_with_base_cf(batch: *const IndexedBatch, base: *mut Iter, cf: *const Family) -> *mut Iter {
            Iter::with_batch(batch_of(batch), base, cf.as_ref(), std::ptr::null())
        }
        call rocksdb_writebatch_wi_create_iterator_with_base_cf_readopts(batch: *const IndexedBatch, base: *mut Iter, cf: *const Family, options: *const Read) -> *mut Iter {
            Iter::with_batch(batch_of(batch), base, cf.as_ref(), options)
        }
    }
}

pub(crate) const NAMES: &[&[crate::signature::Signature]] = &[operation::NAMES, parts::NAMES, whole::NAMES];
