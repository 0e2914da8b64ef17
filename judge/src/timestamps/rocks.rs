//! RocksDB 11.8 with timestamps, through its C API, because the crate wraps only a part of it.

use super::model::{Bounds, Cursor, Found, Row, Store, View};
use super::order::Order;
use super::{Family, Step, Write, Writer};
use crate::rocks::{options, said};
use karst_format::key::ValueType;
use librocksdb_sys as ffi;
use rocksdb::{
    AsColumnFamilyRef, AsRawPtr, BottommostLevelCompaction, ColumnFamilyDescriptor, CompactOptions, DB,
};
use std::path::Path;
use std::ptr::{null, null_mut};

type Handle = *mut ffi::rocksdb_column_family_handle_t;

pub(super) struct Rocks {
    db: DB,
    families: Vec<(String, Order)>,
    read_only: bool,
}

fn at(bytes: &[u8]) -> *const libc::c_char {
    bytes.as_ptr().cast()
}

/// Makes a C call and returns the error of its error argument.
fn call<T>(call: impl FnOnce(*mut *mut libc::c_char) -> T) -> Result<T, String> {
    let mut error = null_mut();
    let result = call(&mut error);
    said(error).map(|()| result)
}

/// Copies and frees bytes that RocksDB allocated; None for a null pointer.
fn taken(bytes: *mut libc::c_char, length: usize) -> Option<Vec<u8>> {
    if bytes.is_null() {
        return None;
    }
    // SAFETY: not null, so of this length, and ours to free.
    unsafe {
        let copy = std::slice::from_raw_parts(bytes.cast::<u8>(), length).to_vec();
        ffi::rocksdb_free(bytes.cast());
        Some(copy)
    }
}

/// Read options and the memory they point to.
struct Reading {
    raw: *mut ffi::rocksdb_readoptions_t,
    _pointed_to: Vec<Vec<u8>>,
}

impl Reading {
    fn new(order: Order, view: View, bounds: Bounds<'_>) -> Reading {
        let mut pointed_to = Vec::new();
        // SAFETY: the options point to heap memory that lives as long as they do.
        unsafe {
            let raw = ffi::rocksdb_readoptions_create();
            let mut point = |bytes: Vec<u8>| {
                let place = (at(&bytes), bytes.len());
                pointed_to.push(bytes);
                place
            };
            if let Some(read) = view.at {
                let (bytes, length) = point(order.stamp(read));
                ffi::rocksdb_readoptions_set_timestamp(raw, bytes, length);
            }
            if let Some(start) = view.start {
                let (bytes, length) = point(order.stamp(start));
                ffi::rocksdb_readoptions_set_iter_start_ts(raw, bytes, length);
            }
            if let Some((lower, upper)) = bounds {
                let (bytes, length) = point(lower.to_vec());
                ffi::rocksdb_readoptions_set_iterate_lower_bound(raw, bytes, length);
                let (bytes, length) = point(upper.to_vec());
                ffi::rocksdb_readoptions_set_iterate_upper_bound(raw, bytes, length);
            }
            ffi::rocksdb_readoptions_set_total_order_seek(raw, 1);
            Reading { raw, _pointed_to: pointed_to }
        }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        // SAFETY: the options were created with this struct and are not used after it.
        unsafe { ffi::rocksdb_readoptions_destroy(self.raw) };
    }
}

fn descriptors(families: &[Family]) -> Result<Vec<ColumnFamilyDescriptor>, String> {
    let one = |family: &Family| {
        let mut options = options(&family.options)?;
        family.order.set(&mut options);
        Ok(ColumnFamilyDescriptor::new(family.name, options))
    };
    families.iter().map(one).collect()
}

impl Rocks {
    pub(super) fn open(path: &Path, db_options: &str, families: &[Family]) -> Result<Rocks, String> {
        let db = DB::open_cf_descriptors(&options(db_options)?, path, descriptors(families)?);
        Rocks::of(db, families, false)
    }

    pub(super) fn open_read_only(
        path: &Path,
        db_options: &str,
        families: &[Family],
    ) -> Result<Rocks, String> {
        let of_families = descriptors(families)?;
        Rocks::of(
            DB::open_cf_descriptors_read_only(&options(db_options)?, path, of_families, false),
            families,
            true,
        )
    }

    fn of(db: Result<DB, rocksdb::Error>, families: &[Family], read_only: bool) -> Result<Rocks, String> {
        let db = db.map_err(|e| e.to_string())?;
        let families = families.iter().map(|family| (family.name.to_string(), family.order)).collect();
        Ok(Rocks { db, families, read_only })
    }

    fn family(&self, number: usize) -> (&rocksdb::ColumnFamily, Order) {
        let (name, order) = &self.families[number];
        (self.db.cf_handle(name).expect("it was opened with the database"), *order)
    }

    fn raw(&self) -> *mut ffi::rocksdb_t {
        // SAFETY: it is used while the database is borrowed.
        unsafe { self.db.as_raw_ptr() }
    }

    fn write(&self, writes: &[Write]) -> Result<(), String> {
        // SAFETY: slices outlive each call; batch and options are destroyed at the end.
        unsafe {
            let batch = ffi::rocksdb_writebatch_create();
            for Write { family, key, at: time, value, single } in writes {
                let (handle, order) = self.family(*family);
                let (cf, stamp): (Handle, _) = (handle.inner(), order.stamp(*time));
                let (k, n, t, m) = (at(key), key.len(), at(&stamp), stamp.len());
                match (value, single, order == Order::Plain) {
                    (Some(v), _, true) => ffi::rocksdb_writebatch_put_cf(batch, cf, k, n, at(v), v.len()),
                    (None, true, true) => ffi::rocksdb_writebatch_singledelete_cf(batch, cf, k, n),
                    (None, false, true) => ffi::rocksdb_writebatch_delete_cf(batch, cf, k, n),
                    (Some(v), _, false) => {
                        ffi::rocksdb_writebatch_put_cf_with_ts(batch, cf, k, n, t, m, at(v), v.len());
                    }
                    (None, true, false) => {
                        ffi::rocksdb_writebatch_singledelete_cf_with_ts(batch, cf, k, n, t, m);
                    }
                    (None, false, false) => {
                        ffi::rocksdb_writebatch_delete_cf_with_ts(batch, cf, k, n, t, m);
                    }
                }
            }
            let options = ffi::rocksdb_writeoptions_create();
            let written = call(|error| ffi::rocksdb_write(self.raw(), options, batch, error));
            ffi::rocksdb_writeoptions_destroy(options);
            ffi::rocksdb_writebatch_destroy(batch);
            written
        }
    }
}

impl Writer for Rocks {
    fn apply(&mut self, step: &Step) -> Result<(), String> {
        let error = |e: rocksdb::Error| e.to_string();
        match step {
            Step::Write(writes) => self.write(writes),
            Step::Flush(family) => self.db.flush_cf(self.family(*family).0).map_err(error),
            Step::Compact { family, low, range, force } => {
                let (handle, order) = self.family(*family);
                let mut options = CompactOptions::default();
                if let Some(low) = low {
                    options.set_full_history_ts_low(order.stamp(*low));
                }
                if *force {
                    options.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
                }
                let (begin, end) = range.clone().unzip();
                self.db.compact_range_cf_opt(handle, begin, end, &options);
                Ok(())
            }
            Step::Raise(family, low) => {
                let (handle, order) = self.family(*family);
                self.db.increase_full_history_ts_low(handle, order.stamp(*low)).map_err(error)
            }
        }
    }

    fn store(&self) -> &dyn Store {
        self
    }

    fn close(self: Box<Self>) -> Result<(), String> {
        Ok(())
    }
}

impl Store for Rocks {
    fn name(&self) -> String {
        "RocksDB 11.8".into()
    }

    fn get(&self, family: usize, view: View, key: &[u8]) -> Result<Found, String> {
        let (handle, order) = self.family(family);
        if view.at.is_none() {
            let found = self.db.get_cf(handle, key).map_err(|e| e.to_string())?;
            return Ok(found.map(|value| (value, Vec::new())));
        }
        let reading = Reading::new(order, view, None);
        let (mut length, mut stamp, mut stamp_length) = (0, null_mut(), 0);
        // SAFETY: all arguments outlive the call; the returned memory is ours.
        let value = call(|error| unsafe {
            let (raw, cf) = (self.raw(), handle.inner());
            let (k, n) = (at(key), key.len());
            let (l, s, m) = (&mut length, &mut stamp, &mut stamp_length);
            ffi::rocksdb_get_cf_with_ts(raw, reading.raw, cf, k, n, l, s, m, error)
        })?;
        let value = taken(value, length);
        Ok(value.map(|value| (value, taken(stamp, stamp_length).unwrap_or_default())))
    }

    fn multi_get(&self, family: usize, view: View, keys: &[Vec<u8>]) -> Result<Vec<Found>, String> {
        if view.at.is_none() {
            return keys.iter().map(|key| self.get(family, view, key)).collect();
        }
        let (handle, order) = self.family(family);
        let reading = Reading::new(order, view, None);
        let count = keys.len();
        let families: Vec<*const ffi::rocksdb_column_family_handle_t> = vec![handle.inner(); count];
        let starts: Vec<_> = keys.iter().map(|key| at(key)).collect();
        let lengths: Vec<_> = keys.iter().map(Vec::len).collect();
        let (mut values, mut sizes) = (vec![null_mut(); count], vec![0; count]);
        let (mut stamps, mut stamp_sizes) = (vec![null_mut(); count], vec![0; count]);
        let mut errors = vec![null_mut(); count];
        // SAFETY: all arrays have `count` elements; the returned memory is ours.
        unsafe {
            ffi::rocksdb_multi_get_cf_with_ts(
                self.raw(),
                reading.raw,
                families.as_ptr(),
                count,
                starts.as_ptr(),
                lengths.as_ptr(),
                values.as_mut_ptr(),
                sizes.as_mut_ptr(),
                stamps.as_mut_ptr(),
                stamp_sizes.as_mut_ptr(),
                errors.as_mut_ptr(),
            );
        }
        let one = |index: usize| {
            let (value, stamp) =
                (taken(values[index], sizes[index]), taken(stamps[index], stamp_sizes[index]));
            said(errors[index]).map(|()| value.map(|value| (value, stamp.unwrap_or_default())))
        };
        let all: Vec<Result<Found, String>> = (0..count).map(one).collect();
        all.into_iter().collect()
    }

    fn cursor(&self, family: usize, view: View, bounds: Bounds<'_>) -> Result<Box<dyn Cursor + '_>, String> {
        let (handle, order) = self.family(family);
        let reading = Reading::new(order, view, bounds);
        // SAFETY: the options live as long as the iterator.
        let raw = unsafe { ffi::rocksdb_create_iterator_cf(self.raw(), reading.raw, handle.inner()) };
        let cursor = RocksCursor { raw, order, shows_all: view.start.is_some(), _reading: reading };
        cursor.status()?;
        Ok(Box::new(cursor))
    }

    fn refuses_at_once(&self) -> bool {
        self.read_only
    }

    fn shows_all_backward(&self) -> bool {
        false
    }

    fn low(&self, family: usize) -> Result<Option<Vec<u8>>, String> {
        let handle = self.family(family).0.inner();
        let mut length = 0;
        // SAFETY: all arguments outlive the call; the returned memory is ours.
        let low = call(|error| unsafe {
            ffi::rocksdb_get_full_history_ts_low(self.raw(), handle, &mut length, error)
        })?;
        Ok(taken(low, length))
    }
}

struct RocksCursor {
    raw: *mut ffi::rocksdb_iterator_t,
    order: Order,
    shows_all: bool,
    _reading: Reading,
}

impl Drop for RocksCursor {
    fn drop(&mut self) {
        // SAFETY: the iterator was created with this struct; its options are dropped afterwards.
        unsafe { ffi::rocksdb_iter_destroy(self.raw) };
    }
}

impl RocksCursor {
    fn status(&self) -> Result<(), String> {
        // SAFETY: the iterator is alive.
        call(|error| unsafe { ffi::rocksdb_iter_get_error(self.raw, error) })
    }

    fn bytes(
        &self,
        get: unsafe extern "C" fn(*const ffi::rocksdb_iterator_t, *mut usize) -> *const libc::c_char,
    ) -> Vec<u8> {
        let mut length = 0;
        // SAFETY: the iterator is valid; the borrowed bytes are copied before it moves.
        unsafe {
            let start = get(self.raw, &mut length);
            if length == 0 || start == null() {
                return Vec::new();
            }
            std::slice::from_raw_parts(start.cast::<u8>(), length).to_vec()
        }
    }
}

// SAFETY of all: the iterator is alive, and keys outlive the calls.
impl Cursor for RocksCursor {
    fn first(&mut self) -> Result<(), String> {
        unsafe { ffi::rocksdb_iter_seek_to_first(self.raw) };
        self.status()
    }

    fn last(&mut self) -> Result<(), String> {
        unsafe { ffi::rocksdb_iter_seek_to_last(self.raw) };
        self.status()
    }

    fn seek(&mut self, key: &[u8]) -> Result<(), String> {
        unsafe { ffi::rocksdb_iter_seek(self.raw, at(key), key.len()) };
        self.status()
    }

    fn seek_for_prev(&mut self, key: &[u8]) -> Result<(), String> {
        unsafe { ffi::rocksdb_iter_seek_for_prev(self.raw, at(key), key.len()) };
        self.status()
    }

    fn next(&mut self) -> Result<(), String> {
        unsafe { ffi::rocksdb_iter_next(self.raw) };
        self.status()
    }

    fn prev(&mut self) -> Result<(), String> {
        unsafe { ffi::rocksdb_iter_prev(self.raw) };
        self.status()
    }

    fn row(&self) -> Option<Row> {
        if unsafe { ffi::rocksdb_iter_valid(self.raw) } == 0 {
            return None;
        }
        let mut key = self.bytes(ffi::rocksdb_iter_key);
        let (mut trailer, mut is_deletion) = (0, false);
        // These are internal keys, with timestamp, sequence number and kind.
        let stamp = if self.shows_all {
            let end = key.split_off(key.len() - 8);
            trailer = u64::from_le_bytes(end.try_into().expect("eight bytes"));
            is_deletion = ValueType::from_u8(trailer as u8).is_some_and(ValueType::is_deletion);
            key.split_off(key.len() - self.order.bytes())
        } else if self.order == Order::Plain {
            Vec::new()
        } else {
            self.bytes(ffi::rocksdb_iter_timestamp)
        };
        let value = (!is_deletion).then(|| self.bytes(ffi::rocksdb_iter_value));
        Some(Row { key, stamp, trailer, value })
    }
}
