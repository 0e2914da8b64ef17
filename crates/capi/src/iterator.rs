//! Iterators over databases and transactions.

use crate::boundary::*;
use crate::call_options::{Read, reading};
use crate::family::Family;
use crate::handle::Database;
use crate::observe::Slice;
use karstdb::{
    BatchDbIterator, ColumnFamily, Db, DbIterator, DbWithTtl, Error, ReadOptions, WriteBatchWithIndex,
};
use libc::{c_char, c_uchar};

/// `rocksdb_iterator_t`.
#[derive(Debug)]
pub struct Iter {
    at: At,
    failed: Option<Error>,
    /// The database and family, which `refresh` needs.
    origin: Option<(Db, ColumnFamily)>,
    /// True with `prefix_same_as_start`: the iterator stays within the prefix of its last seek.
    keeps_to_prefix: bool,
    /// True if values end with the time of their write, which is not shown.
    stamps: bool,
    /// Sequence number of the newest write that a tailing iterator sees; `None` for others.
    tail: Option<u64>,
    /// With `iter_start_ts`: the internal key of the current entry, which is shown as its key.
    internal_key: Option<Vec<u8>>,
}

#[derive(Debug)]
enum At {
    Db(Box<DbIterator>),
    Batch(Box<BatchDbIterator>),
    /// The iterator could not be created; `failed` has the error.
    Nowhere,
}

/// Calls a method of the iterator, of either kind.
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
    /// Creates an iterator over each column family, all of one state.
    unsafe fn over(db: &Db, options: *const Read, families: &[&ColumnFamily]) -> karstdb::Result<Vec<Iter>> {
        if unsafe { options.as_ref() }.is_some_and(Read::is_managed) {
            return Err(not_supported("a managed iterator"));
        }
        let is_tailing = unsafe { options.as_ref() }.is_some_and(Read::is_tailing);
        let mut options = unsafe { reading(options) };
        let keeps_to_prefix = options.prefix_same_as_start;
        // Read before the iterators are created, because they may see newer writes but not fewer.
        let tail = is_tailing.then(|| db.latest_sequence_number());
        // Compat: with `iter_start_ts` RocksDB's iterators return internal keys.
        let tells_internal_keys = |family: &ColumnFamily| {
            family.comparator().timestamp_size() > 0 && options.iter_start_ts.is_some()
        };
        if is_tailing && families.iter().any(|family| tells_internal_keys(family)) {
            return Err(not_supported("a tailing iterator with iter_start_ts"));
        }
        let internal_keys: Vec<_> =
            families.iter().map(|family| tells_internal_keys(family).then(Vec::new)).collect();
        if is_tailing {
            // Compat: a tailing iterator sees the newest writes, even if the options have a
            // snapshot.
            options.snapshot = None;
        }
        let made = match families {
            [family] => vec![db.iter_cf(&options, family)?],
            _ => db.iter_cfs(&options, families)?,
        };
        let made = made.into_iter().zip(families).zip(internal_keys);
        let iterators = made.map(|((it, family), internal_key)| Iter {
            at: At::Db(Box::new(it)),
            origin: Some((db.clone(), (*family).clone())),
            keeps_to_prefix,
            tail,
            internal_key,
            ..Iter::nowhere(None)
        });
        Ok(iterators.collect())
    }

    pub(crate) unsafe fn new(db: &Db, options: *const Read, family: &ColumnFamily) -> *mut Iter {
        give(match unsafe { Iter::over(db, options, &[family]) } {
            Ok(mut made) => made.pop().unwrap_or_else(|| Iter::nowhere(None)),
            Err(error) => Iter::nowhere(Some(error)),
        })
    }

    /// Creates an iterator over a database that may have been opened with a TTL.
    pub(crate) unsafe fn of(own: &Database, options: *const Read, family: &ColumnFamily) -> *mut Iter {
        let iter = unsafe { Iter::new(&own.db, options, family) };
        if let Some(iter) = unsafe { iter.as_mut() } {
            iter.stamps = own.ttl.is_some();
        }
        iter
    }

    /// Refreshes a tailing iterator if the database has newer writes. Returns true if it did; the
    /// iterator is then on no entry.
    fn follow(&mut self) -> karstdb::Result<bool> {
        let (Some(seen), At::Db(it), Some((db, family))) = (self.tail, &mut self.at, &self.origin) else {
            return Ok(false);
        };
        let now = db.latest_sequence_number();
        if now == seen {
            return Ok(false);
        }
        db.refresh(it, family, None)?;
        self.tail = Some(now);
        Ok(true)
    }

    fn seek(&mut self, key: Option<&[u8]>) {
        let outcome = self.follow().and_then(|_| match key {
            Some(key) => on!(self, it => it.seek(key), Ok(())),
            None => on!(self, it => it.seek_to_first(), Ok(())),
        });
        self.moved(outcome);
    }

    /// Moves to the next key; a tailing iterator includes keys written since its last move.
    fn next(&mut self) -> karstdb::Result<()> {
        let at = self.tail.and_then(|_| match &self.at {
            At::Db(it) => Some(it.key().to_vec()),
            _ => None,
        });
        if let Some(key) = at
            && self.follow()?
            && let At::Db(it) = &mut self.at
        {
            it.seek(&key)?;
            // Otherwise the key is gone, and the seek has reached the next one.
            return if it.valid() && it.key() == key { it.next() } else { Ok(()) };
        }
        on!(self, it => it.next(), Ok(()))
    }

    /// Moves back; fails for a tailing iterator.
    fn back(&mut self, go: impl FnOnce(&mut Iter) -> karstdb::Result<()>) {
        let outcome = match self.tail {
            Some(_) => Err(not_supported("moving a tailing iterator back")),
            None => go(self),
        };
        self.moved(outcome);
    }

    pub(crate) fn over_batch(made: karstdb::Result<BatchDbIterator>) -> *mut Iter {
        give(match made {
            Ok(it) => Iter { at: At::Batch(Box::new(it)), ..Iter::nowhere(None) },
            Err(error) => Iter::nowhere(Some(error)),
        })
    }

    fn nowhere(failed: Option<Error>) -> Iter {
        Iter {
            at: At::Nowhere,
            failed,
            origin: None,
            keeps_to_prefix: false,
            stamps: false,
            tail: None,
            internal_key: None,
        }
    }

    /// Returns an iterator over a batch and `base`, which it consumes; without a family, one of the
    /// default family. `options` has the bounds of the batch's keys.
    pub(crate) unsafe fn with_batch(
        batch: karstdb::Result<&WriteBatchWithIndex>,
        base: *mut Iter,
        family: Option<&Family>,
        options: *const Read,
    ) -> *mut Iter {
        let Some(base) = (unsafe { take(base) }) else { return std::ptr::null_mut() };
        let options = unsafe { reading(options) };
        let made = batch.and_then(|batch| base.below(batch, family, options));
        Iter::over_batch(made)
    }

    fn below(
        self,
        batch: &WriteBatchWithIndex,
        family: Option<&Family>,
        options: ReadOptions,
    ) -> karstdb::Result<BatchDbIterator> {
        if let Some(failed) = self.failed {
            return Err(failed);
        }
        let (At::Db(base), Some((db, own))) = (self.at, &self.origin) else {
            return Err(not_supported("a batch over an iterator that is over a batch already"));
        };
        let family = family.map_or(db.default_column_family(), |family| &family.0);
        if family.id() != own.id() || !family.is_beside(own) {
            return Err(invalid("the iterator below the batch is over another column family"));
        }
        if self.keeps_to_prefix || options.prefix_same_as_start {
            return Err(not_supported("prefix_same_as_start in an iterator over a batch"));
        }
        if self.tail.is_some() {
            return Err(not_supported("a batch over a tailing iterator"));
        }
        if self.stamps {
            return Err(not_supported("a batch over an iterator of a database with a TTL"));
        }
        batch.iter_over(*base, family, (options.iterate_lower_bound, options.iterate_upper_bound))
    }

    fn valid(&self) -> bool {
        match &self.at {
            _ if self.failed.is_some() => false,
            At::Db(it) => it.valid(),
            At::Batch(it) => it.valid(),
            At::Nowhere => false,
        }
    }

    /// Records the outcome of a move. Compat: a move that fails leaves the iterator invalid, with
    /// the error as its status. An iterator that could not be created keeps its error through all
    /// moves.
    fn moved(&mut self, outcome: karstdb::Result<()>) {
        if !matches!(self.at, At::Nowhere) {
            self.failed = outcome.err();
        }
        if let (Some(internal_key), At::Db(it)) = (&mut self.internal_key, &self.at)
            && it.valid()
        {
            internal_key.clear();
            internal_key.extend_from_slice(it.key());
            internal_key.extend_from_slice(it.timestamp());
            internal_key.extend_from_slice(&it.trailer().to_le_bytes());
        }
    }
}

pub(crate) unsafe fn iterators_of(
    own: &Database,
    options: *const Read,
    families: &[ColumnFamily],
    out: *mut *mut Iter,
) -> karstdb::Result<()> {
    let made = unsafe { Iter::over(&own.db, options, &families.iter().collect::<Vec<_>>())? };
    for (at, iter) in made.into_iter().enumerate() {
        unsafe { put(out.add(at), give(Iter { stamps: own.ttl.is_some(), ..iter })) };
    }
    Ok(())
}

unsafe fn entry<'a>(iter: *const Iter, key: bool) -> Option<&'a [u8]> {
    let iter = unsafe { iter.as_ref() }.filter(|iter| iter.valid())?;
    let found = match (&iter.at, key) {
        (At::Db(it), true) => iter.internal_key.as_deref().unwrap_or(it.key()),
        (At::Db(it), false) => it.value(),
        (At::Batch(it), true) => it.key(),
        (At::Batch(it), false) => it.value(),
        (At::Nowhere, _) => return None,
    };
    let cut = if iter.stamps && !key { DbWithTtl::STAMP_BYTES } else { 0 };
    Some(&found[..found.len().saturating_sub(cut)])
}

/// Returns the timestamp of the current entry; `None` if there is no entry, empty if the family has
/// no timestamps.
unsafe fn timestamp<'a>(iter: *const Iter) -> Option<&'a [u8]> {
    let iter = unsafe { iter.as_ref() }.filter(|iter| iter.valid())?;
    match &iter.at {
        At::Db(it) => Some(it.timestamp()),
        At::Batch(it) => Some(it.timestamp()),
        At::Nowhere => None,
    }
}

unsafe fn entry_out(iter: *const Iter, key: bool, length: *mut usize) -> *const c_char {
    match unsafe { entry(iter, key) } {
        Some(bytes) => unsafe { lend(bytes, length) },
        None => unsafe { lend(&[], length) },
    }
}

capi! {
    call rocksdb_iter_destroy(iter: *mut Iter) { end(iter); }
    call rocksdb_iter_valid(iter: *const Iter) -> c_uchar { iter.as_ref().is_some_and(Iter::valid).into() }
    call rocksdb_iter_seek_to_first(iter: *mut Iter) {
        if let Some(iter) = iter.as_mut() { iter.seek(None) }
    }
    call rocksdb_iter_seek_to_last(iter: *mut Iter) {
        if let Some(iter) = iter.as_mut() { iter.back(|iter| on!(iter, it => it.seek_to_last(), Ok(()))) }
    }
    call rocksdb_iter_seek(iter: *mut Iter, key: *const c_char, keylen: usize) {
        if let Some(iter) = iter.as_mut() { iter.seek(Some(bytes(key, keylen))) }
    }
    call rocksdb_iter_seek_for_prev(iter: *mut Iter, key: *const c_char, keylen: usize) {
        if let Some(iter) = iter.as_mut() { iter.back(|iter| on!(iter, it => it.seek_for_prev(bytes(key, keylen)), Ok(()))) }
    }
    call rocksdb_iter_next(iter: *mut Iter) {
        if let Some(iter) = iter.as_mut().filter(|iter| iter.valid()) { let outcome = iter.next(); iter.moved(outcome) }
    }
    call rocksdb_iter_prev(iter: *mut Iter) {
        if let Some(iter) = iter.as_mut().filter(|iter| iter.valid()) { iter.back(|iter| on!(iter, it => it.prev(), Ok(()))) }
    }
    call rocksdb_iter_key(iter: *const Iter, length: *mut usize) -> *const c_char { entry_out(iter, true, length) }
    call rocksdb_iter_value(iter: *const Iter, length: *mut usize) -> *const c_char { entry_out(iter, false, length) }
    call rocksdb_iter_key_slice(iter: *const Iter) -> Slice { Slice::of(entry(iter, true)) }
    call rocksdb_iter_value_slice(iter: *const Iter) -> Slice { Slice::of(entry(iter, false)) }
    call rocksdb_iter_timestamp(iter: *const Iter, length: *mut usize) -> *const c_char { lend(timestamp(iter).unwrap_or_default(), length) }
    call rocksdb_iter_timestamp_slice(iter: *const Iter) -> Slice { Slice::of(timestamp(iter)) }
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
