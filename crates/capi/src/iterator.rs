//! Iterators, of databases and of transactions.

use crate::boundary::*;
use crate::observe::Slice;
use karstdb::{BatchDbIterator, ColumnFamily, Db, DbIterator, Error, ReadOptions};
use libc::{c_char, c_uchar};

/// `rocksdb_iterator_t`.
#[derive(Debug)]
pub struct Iter {
    at: At,
    failed: Option<Error>,
    /// What `refresh` needs.
    origin: Option<(Db, ColumnFamily)>,
}

#[derive(Debug)]
enum At {
    Db(Box<DbIterator>),
    Batch(Box<BatchDbIterator>),
    /// The iterator could not be made; its status says why.
    Nowhere,
}

/// The same call on whichever iterator there is.
macro_rules! on {
    ($iter:expr, $it:ident => $call:expr, $none:expr) => {
        match &mut $iter.at {
            At::Db($it) => $call,
            At::Batch($it) => $call,
            At::Nowhere => $none,
        }
    };
}

impl Iter {
    pub(crate) fn new(db: &Db, options: ReadOptions, family: &ColumnFamily) -> *mut Iter {
        let origin = Some((db.clone(), family.clone()));
        give(match db.iter_cf(&options, family) {
            Ok(it) => Iter { at: At::Db(Box::new(it)), failed: None, origin },
            Err(error) => Iter { at: At::Nowhere, failed: Some(error), origin },
        })
    }

    pub(crate) fn over_batch(made: karstdb::Result<BatchDbIterator>) -> *mut Iter {
        give(match made {
            Ok(it) => Iter { at: At::Batch(Box::new(it)), failed: None, origin: None },
            Err(error) => Iter { at: At::Nowhere, failed: Some(error), origin: None },
        })
    }

    fn valid(&self) -> bool {
        match &self.at {
            At::Db(it) => it.valid(),
            At::Batch(it) => it.valid(),
            At::Nowhere => false,
        }
    }

    /// Compat: a move that fails leaves the iterator invalid, and the error in its status.
    fn moved(&mut self, outcome: karstdb::Result<()>) {
        self.failed = outcome.err();
    }
}

pub(crate) unsafe fn iterators_of(
    db: &Db,
    options: &ReadOptions,
    families: &[ColumnFamily],
    out: *mut *mut Iter,
) {
    for (at, family) in families.iter().enumerate() {
        unsafe { put(out.add(at), Iter::new(db, options.clone(), family)) };
    }
}

unsafe fn entry<'a>(iter: *const Iter, key: bool) -> Option<&'a [u8]> {
    let iter = unsafe { iter.as_ref() }.filter(|iter| iter.valid())?;
    Some(match (&iter.at, key) {
        (At::Db(it), true) => it.key(),
        (At::Db(it), false) => it.value(),
        (At::Batch(it), true) => it.key(),
        (At::Batch(it), false) => it.value(),
        (At::Nowhere, _) => return None,
    })
}

unsafe fn entry_out(iter: *const Iter, key: bool, length: *mut usize) -> *const c_char {
    match unsafe { entry(iter, key) } {
        Some(bytes) => unsafe { lend(bytes, length) },
        None => {
            unsafe { put(length, 0) };
            std::ptr::null()
        }
    }
}

capi! {
    call rocksdb_iter_destroy(iter: *mut Iter) { end(iter); }
    call rocksdb_iter_valid(iter: *const Iter) -> c_uchar { iter.as_ref().is_some_and(Iter::valid).into() }
    call rocksdb_iter_seek_to_first(iter: *mut Iter) {
        if let Some(iter) = iter.as_mut() { let outcome = on!(iter, it => it.seek_to_first(), return); iter.moved(outcome) }
    }
    call rocksdb_iter_seek_to_last(iter: *mut Iter) {
        if let Some(iter) = iter.as_mut() { let outcome = on!(iter, it => it.seek_to_last(), return); iter.moved(outcome) }
    }
    call rocksdb_iter_seek(iter: *mut Iter, key: *const c_char, keylen: usize) {
        if let Some(iter) = iter.as_mut() { let outcome = on!(iter, it => it.seek(bytes(key, keylen)), return); iter.moved(outcome) }
    }
    call rocksdb_iter_seek_for_prev(iter: *mut Iter, key: *const c_char, keylen: usize) {
        if let Some(iter) = iter.as_mut() { let outcome = on!(iter, it => it.seek_for_prev(bytes(key, keylen)), return); iter.moved(outcome) }
    }
    call rocksdb_iter_next(iter: *mut Iter) {
        if let Some(iter) = iter.as_mut().filter(|iter| iter.valid()) { let outcome = on!(iter, it => it.next(), return); iter.moved(outcome) }
    }
    call rocksdb_iter_prev(iter: *mut Iter) {
        if let Some(iter) = iter.as_mut().filter(|iter| iter.valid()) { let outcome = on!(iter, it => it.prev(), return); iter.moved(outcome) }
    }
    call rocksdb_iter_key(iter: *const Iter, length: *mut usize) -> *const c_char { entry_out(iter, true, length) }
    call rocksdb_iter_value(iter: *const Iter, length: *mut usize) -> *const c_char { entry_out(iter, false, length) }
    call rocksdb_iter_key_slice(iter: *const Iter) -> Slice { Slice::of(entry(iter, true)) }
    call rocksdb_iter_value_slice(iter: *const Iter) -> Slice { Slice::of(entry(iter, false)) }
    attempt rocksdb_iter_get_error(iter: *const Iter) {
        let iter = of(iter)?;
        if let Some(error) = &iter.failed { return Err(error.clone()); }
        match &iter.at { At::Db(it) => it.status(), At::Batch(it) => it.status(), At::Nowhere => Ok(()) }
    }
    attempt rocksdb_iter_refresh(iter: *mut Iter) {
        let iter = of_mut(iter)?;
        match (&mut iter.at, &iter.origin) {
            (At::Db(it), Some((db, family))) => { iter.failed = None; db.refresh(it, family, None) }
            _ => Err(not_supported("rocksdb_iter_refresh of a transaction's iterator")),
        }
    }
}
