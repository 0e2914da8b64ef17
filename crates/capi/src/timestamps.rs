//! Keys with user-defined timestamps: their comparators, writes, reads, tables and history, and the
//! transactions that write them.
//!
//! In: keys, and timestamps as bytes beside them. Out: calls of the engine's functions with
//! timestamps, by RocksDB's conventions: a returned timestamp comes from malloc, like a value.

use crate::batch::{Batch, change};
use crate::boundary::*;
use crate::call_options::{Compaction, EnvOptions, Read, Write, reading};
use crate::callbacks::{ComparatorHandle, Compare, Destructor, Name, State, at};
use crate::db::{families_of, writing};
use crate::family::Family;
use crate::handle::{Database, Pinned};
use crate::indexed_batch::{IndexedBatch, batch_of_mut};
use crate::options::OptionsHandle;
use crate::sst_writer::Writer;
use crate::transaction::TransactionHandle;
use karstdb::format::{Comparator, UserComparator};
use karstdb::{ColumnFamily, ReadOptions, SstFileWriter};
use libc::{c_char, c_int, c_uchar, c_void};
use std::cmp::Ordering;
use std::sync::Arc;

type CompareBare =
    unsafe extern "C" fn(*mut c_void, *const c_char, usize, c_uchar, *const c_char, usize, c_uchar) -> c_int;
type TimestampSize = unsafe extern "C" fn(*mut c_void, u32) -> usize;

/// A user's comparator of keys with timestamps.
#[derive(Debug)]
struct TimedOrder {
    state: State,
    compare: Compare,
    compare_timestamps: Option<Compare>,
    compare_bare: Option<CompareBare>,
    timestamp_bytes: usize,
}

impl UserComparator for TimedOrder {
    fn name(&self) -> &str {
        &self.state.name
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        // SAFETY: the user's function; the bytes are valid during the call.
        unsafe { (self.compare)(self.state.state, at(a), a.len(), at(b), b.len()) }.cmp(&0)
    }

    fn timestamp_size(&self) -> usize {
        self.timestamp_bytes
    }

    fn compare_timestamps(&self, a: &[u8], b: &[u8]) -> Ordering {
        // Compat: without a function all timestamps are equal.
        let Some(compare) = self.compare_timestamps else { return Ordering::Equal };
        // SAFETY: the user's function; the bytes are valid during the call.
        unsafe { compare(self.state.state, at(a), a.len(), at(b), b.len()) }.cmp(&0)
    }

    fn compare_without_timestamp(
        &self,
        (a, timed_a): (&[u8], bool),
        (b, timed_b): (&[u8], bool),
    ) -> Ordering {
        let Some(compare) = self.compare_bare else { return self.compare(a, b) };
        let state = self.state.state;
        // SAFETY: the user's function; the bytes are valid during the call.
        unsafe { compare(state, at(a), a.len(), timed_a.into(), at(b), b.len(), timed_b.into()) }.cmp(&0)
    }
}

/// A value with its timestamp, or `None` for an absent key.
type Timed = Option<(Pinned, Vec<u8>)>;

/// Returns the value of a key. Compat: the timestamp is empty in a family without timestamps.
fn get(own: &Database, options: &ReadOptions, family: &ColumnFamily, key: &[u8]) -> karstdb::Result<Timed> {
    let (value, timestamp) = match family.comparator().timestamp_size() {
        0 => (own.db.get_cf(options, family, key)?, Vec::new()),
        _ => match own.db.get_cf_with_ts(options, family, key)? {
            Some((value, timestamp)) => (Some(value), timestamp.to_vec()),
            None => (None, Vec::new()),
        },
    };
    Ok(own.shown(value)?.map(|value| (value, timestamp)))
}

/// Returns a value and stores its timestamp. Compat: for an absent key the timestamp is null, where
/// RocksDB leaves the caller's variable unchanged.
unsafe fn timed_out(
    found: Timed,
    length: *mut usize,
    timestamp: *mut *mut c_char,
    timestamp_length: *mut usize,
) -> *mut c_char {
    let (value, at) = found.unzip();
    unsafe {
        put(timestamp, value_out(at, timestamp_length));
        value_out(value, length)
    }
}

/// Returns the values of keys, each of its family, all at one snapshot.
unsafe fn multi_get(
    own: &Database,
    options: *const Read,
    families: &[ColumnFamily],
    keys: &[&[u8]],
) -> Vec<karstdb::Result<Timed>> {
    let mut options = unsafe { reading(options) };
    if options.snapshot.is_none() && families.windows(2).any(|pair| pair[0].id() != pair[1].id()) {
        options.snapshot = Some(own.db.snapshot());
    }
    let mut found: Vec<_> = keys.iter().map(|_| Ok(None)).collect();
    let mut ids: Vec<_> = families.iter().map(ColumnFamily::id).collect();
    ids.sort_unstable();
    ids.dedup();
    for id in ids {
        let places: Vec<_> = (0..keys.len()).filter(|at| families[*at].id() == id).collect();
        let of_family: Vec<_> = places.iter().map(|at| keys[*at]).collect();
        for (place, value) in places.iter().zip(multi_get_of(own, &options, &families[places[0]], &of_family))
        {
            found[*place] = value;
        }
    }
    found
}

fn multi_get_of(
    own: &Database,
    options: &ReadOptions,
    family: &ColumnFamily,
    keys: &[&[u8]],
) -> Vec<karstdb::Result<Timed>> {
    let shown = |value, timestamp| Ok(own.shown(Some(value))?.map(|value| (value, timestamp)));
    if family.comparator().timestamp_size() == 0 {
        let found = own.db.multi_get_cf(options, family, keys).into_iter();
        return found.map(|found| found?.map_or(Ok(None), |value| shown(value, Vec::new()))).collect();
    }
    let found = own.db.multi_get_cf_with_ts(options, family, keys).into_iter();
    found.map(|found| found?.map_or(Ok(None), |(value, at)| shown(value, at.to_vec()))).collect()
}

/// Destination arrays of a `multi_get`.
struct Answers {
    values: *mut *mut c_char,
    lengths: *mut usize,
    timestamps: *mut *mut c_char,
    timestamp_lengths: *mut usize,
    errors: *mut *mut c_char,
}

impl Answers {
    unsafe fn give(&self, found: Vec<karstdb::Result<Timed>>) {
        for (at, found) in found.into_iter().enumerate() {
            unsafe {
                let error = self.errors.add(at);
                put(error, std::ptr::null_mut());
                let found = found.unwrap_or_else(|failed| {
                    save(error, &failed);
                    None
                });
                let (value, length) = (self.values.add(at), self.lengths.add(at));
                let (timestamp, size) = (self.timestamps.add(at), self.timestamp_lengths.add(at));
                put(value, timed_out(found, length, timestamp, size));
            }
        }
    }
}

/// Returns a function from a column family's id to the size of its timestamps, by the callback.
unsafe fn sizes(
    state: *mut c_void,
    size: Option<TimestampSize>,
) -> karstdb::Result<impl Fn(u32) -> Option<usize>> {
    let size = size.ok_or_else(|| invalid("the size of timestamps is not known"))?;
    // SAFETY: the user's function on the user's state. Compat: the greatest number stands for an
    // unknown column family.
    Ok(move |family| Some(unsafe { size(state, family) }).filter(|bytes| *bytes != usize::MAX))
}

/// Exports the calls that write one key, with and without a column family.
macro_rules! writes {
    ($($plain:ident $cf:ident $write:ident;)*) => {
        capi! {
            $(
                attempt $plain(db: *const Database, options: *const Write, key: *const c_char, keylen: usize, ts: *const c_char, tslen: usize) {
                    let db = &of(db)?.db;
                    db.$write(&writing(options), db.default_column_family(), bytes(key, keylen), bytes(ts, tslen))
                }
                attempt $cf(db: *const Database, options: *const Write, cf: *const Family, key: *const c_char, keylen: usize, ts: *const c_char, tslen: usize) {
                    of(db)?.db.$write(&writing(options), &of(cf)?.0, bytes(key, keylen), bytes(ts, tslen))
                }
            )*
        }
    };
}

mod removal {
    use super::*;
    writes! {
        rocksdb_delete_with_ts rocksdb_delete_cf_with_ts delete_cf_with_ts;
        rocksdb_singledelete_with_ts rocksdb_singledelete_cf_with_ts single_delete_cf_with_ts;
    }
}

mod others {
    use super::*;
    capi! {
        call rocksdb_comparator_with_ts_create(state: *mut c_void, destructor: Destructor, compare: Compare, compare_ts: Option<Compare>, compare_without_ts: Option<CompareBare>, name: Name, timestamp_size: usize) -> *mut ComparatorHandle {
            let order = TimedOrder { state: State::new(state, destructor, name), compare, compare_timestamps: compare_ts, compare_bare: compare_without_ts, timestamp_bytes: timestamp_size };
            give(ComparatorHandle(Comparator::custom(Arc::new(order))))
        }

        attempt rocksdb_put_with_ts(db: *const Database, options: *const Write, key: *const c_char, keylen: usize, ts: *const c_char, tslen: usize, val: *const c_char, vallen: usize) {
            let own = of(db)?;
            own.db.put_cf_with_ts(&writing(options), own.db.default_column_family(), bytes(key, keylen), bytes(ts, tslen), own.stored(bytes(val, vallen)))
        }
        attempt rocksdb_put_cf_with_ts(db: *const Database, options: *const Write, cf: *const Family, key: *const c_char, keylen: usize, ts: *const c_char, tslen: usize, val: *const c_char, vallen: usize) {
            let own = of(db)?;
            own.db.put_cf_with_ts(&writing(options), &of(cf)?.0, bytes(key, keylen), bytes(ts, tslen), own.stored(bytes(val, vallen)))
        }

        attempt rocksdb_get_with_ts(db: *const Database, options: *const Read, key: *const c_char, keylen: usize, vallen: *mut usize, ts: *mut *mut c_char, tslen: *mut usize) -> *mut c_char {
            timed_out(None, vallen, ts, tslen);
            let own = of(db)?;
            let found = get(own, &reading(options), own.db.default_column_family(), bytes(key, keylen))?;
            Ok(timed_out(found, vallen, ts, tslen))
        }
        attempt rocksdb_get_cf_with_ts(db: *const Database, options: *const Read, cf: *const Family, key: *const c_char, keylen: usize, vallen: *mut usize, ts: *mut *mut c_char, tslen: *mut usize) -> *mut c_char {
            timed_out(None, vallen, ts, tslen);
            let found = get(of(db)?, &reading(options), &of(cf)?.0, bytes(key, keylen))?;
            Ok(timed_out(found, vallen, ts, tslen))
        }
        call rocksdb_multi_get_with_ts(db: *const Database, options: *const Read, num_keys: usize, keys: *const *const c_char, key_sizes: *const usize, values: *mut *mut c_char, value_sizes: *mut usize, timestamps: *mut *mut c_char, timestamp_sizes: *mut usize, errs: *mut *mut c_char) {
            let Ok(own) = of(db) else { return };
            let keys = byte_lists(keys, key_sizes, num_keys);
            let found = multi_get_of(own, &reading(options), own.db.default_column_family(), &keys);
            Answers { values, lengths: value_sizes, timestamps, timestamp_lengths: timestamp_sizes, errors: errs }.give(found)
        }
        call rocksdb_multi_get_cf_with_ts(db: *const Database, options: *const Read, cfs: *const *const Family, num_keys: usize, keys: *const *const c_char, key_sizes: *const usize, values: *mut *mut c_char, value_sizes: *mut usize, timestamps: *mut *mut c_char, timestamp_sizes: *mut usize, errs: *mut *mut c_char) {
            let Ok(own) = of(db) else { return };
            let keys = byte_lists(keys, key_sizes, num_keys);
            let found = match families_of(cfs, num_keys) {
                Ok(families) => multi_get(own, options, &families, &keys),
                Err(error) => keys.iter().map(|_| Err(error.clone())).collect(),
            };
            Answers { values, lengths: value_sizes, timestamps, timestamp_lengths: timestamp_sizes, errors: errs }.give(found)
        }

        call rocksdb_readoptions_set_timestamp(options: *mut Read, ts: *const c_char, tslen: usize) {
            if let Some(options) = options.as_mut() { options.options.timestamp = bound(ts, tslen).map(<[u8]>::to_vec) }
        }
        call rocksdb_readoptions_set_iter_start_ts(options: *mut Read, ts: *const c_char, tslen: usize) {
            if let Some(options) = options.as_mut() { options.options.iter_start_ts = bound(ts, tslen).map(<[u8]>::to_vec) }
        }

        attempt rocksdb_increase_full_history_ts_low(db: *const Database, cf: *const Family, ts_low: *const c_char, ts_lowlen: usize) {
            of(db)?.db.increase_full_history_ts_low(&of(cf)?.0, bytes(ts_low, ts_lowlen))
        }
        attempt rocksdb_get_full_history_ts_low(db: *const Database, cf: *const Family, ts_len: *mut usize) -> *mut c_char {
            put(ts_len, 0);
            let low = of(db)?.db.full_history_ts_low(&of(cf)?.0)?;
            Ok(value_out(Some(low.unwrap_or_default()), ts_len))
        }
        call rocksdb_compactoptions_set_full_history_ts_low(options: *mut Compaction, ts: *mut c_char, tslen: usize) {
            if let Some(options) = options.as_mut() { options.options.full_history_ts_low = bound(ts, tslen).map(<[u8]>::to_vec) }
        }

        // Compat: the comparator of the options is used, as in RocksDB.
        call rocksdb_sstfilewriter_create_with_comparator(_env: *const EnvOptions, options: *const OptionsHandle, _comparator: *const ComparatorHandle) -> *mut Writer {
            let made = of(options).and_then(|options| SstFileWriter::create(&options.to_options(&[])?));
            or_say("rocksdb_sstfilewriter_create_with_comparator", made).map_or(std::ptr::null_mut(), Writer::given)
        }
        attempt rocksdb_sstfilewriter_put_with_ts(writer: *mut Writer, key: *const c_char, keylen: usize, ts: *const c_char, tslen: usize, val: *const c_char, vallen: usize) {
            of_mut(writer)?.0.put_with_ts(bytes(key, keylen), bytes(ts, tslen), bytes(val, vallen))
        }
        attempt rocksdb_sstfilewriter_delete_with_ts(writer: *mut Writer, key: *const c_char, keylen: usize, ts: *const c_char, tslen: usize) {
            of_mut(writer)?.0.delete_with_ts(bytes(key, keylen), bytes(ts, tslen))
        }

        call rocksdb_writebatch_put_cf_with_ts(batch: *mut Batch, cf: *const Family, key: *const c_char, klen: usize, ts: *const c_char, tslen: usize, val: *const c_char, vlen: usize) {
            change("rocksdb_writebatch_put_cf_with_ts", batch, |batch| batch.put_cf_with_ts(&of(cf)?.0, bytes(key, klen), bytes(ts, tslen), bytes(val, vlen)))
        }
        call rocksdb_writebatch_delete_cf_with_ts(batch: *mut Batch, cf: *const Family, key: *const c_char, klen: usize, ts: *const c_char, tslen: usize) {
            change("rocksdb_writebatch_delete_cf_with_ts", batch, |batch| batch.delete_cf_with_ts(&of(cf)?.0, bytes(key, klen), bytes(ts, tslen)))
        }
        call rocksdb_writebatch_singledelete_cf_with_ts(batch: *mut Batch, cf: *const Family, key: *const c_char, klen: usize, ts: *const c_char, tslen: usize) {
            change("rocksdb_writebatch_singledelete_cf_with_ts", batch, |batch| batch.single_delete_cf_with_ts(&of(cf)?.0, bytes(key, klen), bytes(ts, tslen)))
        }
        attempt rocksdb_writebatch_update_timestamps(batch: *mut Batch, ts: *const c_char, tslen: usize, state: *mut c_void, get_ts_size: Option<TimestampSize>) {
            of_mut(batch)?.batch.update_timestamps(bytes(ts, tslen), sizes(state, get_ts_size)?)
        }
        attempt rocksdb_writebatch_wi_update_timestamps(batch: *mut IndexedBatch, ts: *const c_char, tslen: usize, state: *mut c_void, get_ts_size: Option<TimestampSize>) {
            batch_of_mut(batch)?.update_timestamps(bytes(ts, tslen), sizes(state, get_ts_size)?)
        }

        call rocksdb_transaction_set_commit_timestamp(txn: *mut TransactionHandle, commit_timestamp: u64) {
            let set = of_mut(txn).and_then(|txn| txn.set_commit_timestamp(commit_timestamp));
            or_say("rocksdb_transaction_set_commit_timestamp", set);
        }
        call rocksdb_transaction_set_read_timestamp_for_validation(txn: *mut TransactionHandle, read_timestamp: u64) {
            let set = of_mut(txn).and_then(|txn| txn.set_read_timestamp(read_timestamp));
            or_say("rocksdb_transaction_set_read_timestamp_for_validation", set);
        }
    }
}

pub(crate) const NAMES: &[&[crate::signature::Signature]] = &[removal::NAMES, others::NAMES];
