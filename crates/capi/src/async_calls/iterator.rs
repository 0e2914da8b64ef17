//! Iterators with asynchronous moves.
//!
//! A move or a read holds the iterator's lease. The lease is exclusive, so that no call reads an
//! iterator while an operation moves it. A call that finds it taken fails with `Busy`.

use super::calls::without_ttl;
use super::op::{Found, Lent, Op};
use super::reactor::Runner;
use super::start::{Notify, start};
use crate::boundary::*;
use crate::call_options::{Read, reading};
use crate::family::{Family, family_or_default};
use crate::handle::Database;
use crate::transaction::{Kind, TransactionHandle, committing, ready};
use karstdb::{BatchDbIterator, DbIterator, Error, ErrorKind};
use libc::{c_char, c_uchar};
use std::cell::UnsafeCell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// `karst_iterator_t`.
pub struct Cursor {
    leased: AtomicBool,
    at: UnsafeCell<At>,
}

struct At {
    it: It,
    /// True if the last move succeeded and ended on an entry.
    placed: bool,
}

enum It {
    Db(Box<DbIterator>),
    Batch(Box<BatchDbIterator>),
}

// SAFETY: `at` is reached only through the exclusive lease, and iterators are `Send`.
unsafe impl Send for Cursor {}
// SAFETY: as above.
unsafe impl Sync for Cursor {}

const _: () = {
    const fn may_move<T: Send>() {}
    may_move::<DbIterator>();
    may_move::<BatchDbIterator>();
};

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cursor")
    }
}

/// The exclusive right to use an iterator, given up on drop.
struct Lease(Arc<Cursor>);

impl Lease {
    fn at(&self) -> &At {
        // SAFETY: the lease is exclusive.
        unsafe { &*self.0.at.get() }
    }

    fn at_mut(&mut self) -> &mut At {
        // SAFETY: as above.
        unsafe { &mut *self.0.at.get() }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.leased.store(false, Ordering::Release);
    }
}

enum Move {
    First,
    Last,
    Seek(Vec<u8>),
    SeekForPrev(Vec<u8>),
    Next,
    Prev,
}

/// Calls a method of the iterator, of either kind.
macro_rules! on {
    ($it:expr, $name:ident => $call:expr) => {
        match $it {
            It::Db($name) => $call,
            It::Batch($name) => $call,
        }
    };
}

impl At {
    async fn go(&mut self, to: &Move) -> karstdb::Result<()> {
        let was_placed = std::mem::replace(&mut self.placed, false);
        if matches!(to, Move::Next | Move::Prev) && !was_placed {
            return Err(invalid("the iterator is on no entry: seek first"));
        }
        on!(&mut self.it, it => match to {
            Move::First => it.seek_to_first_async().await,
            Move::Last => it.seek_to_last_async().await,
            Move::Seek(key) => it.seek_async(key).await,
            Move::SeekForPrev(key) => it.seek_for_prev_async(key).await,
            Move::Next => it.next_async().await,
            Move::Prev => it.prev_async().await,
        })?;
        on!(&self.it, it => it.status())?;
        self.placed = on!(&self.it, it => it.valid());
        Ok(())
    }

    fn entry(&self) -> Option<Lent> {
        self.placed.then(|| on!(&self.it, it => Lent { key: it.key(), value: it.value() }))
    }
}

impl Cursor {
    fn give(it: It) -> *const Cursor {
        let at = UnsafeCell::new(At { it, placed: false });
        Arc::into_raw(Arc::new(Cursor { leased: AtomicBool::new(false), at }))
    }

    unsafe fn lease(cursor: *const Cursor) -> karstdb::Result<Lease> {
        let busy = unsafe { of(cursor)? }.leased.swap(true, Ordering::Acquire);
        if busy {
            return Err(Error::new(ErrorKind::Busy, "another operation on the iterator is outstanding"));
        }
        // SAFETY: handles come from `Arc::into_raw`, and the caller's is alive.
        unsafe { Arc::increment_strong_count(cursor) };
        Ok(Lease(unsafe { Arc::from_raw(cursor) }))
    }
}

async fn go(mut lease: Lease, to: Move) -> karstdb::Result<Found> {
    lease.at_mut().go(&to).await?;
    let entry = lease.at().entry();
    Ok(Found::Entry(entry, lease.0.clone()))
}

unsafe fn begin(reactor: *const Runner, it: *const Cursor, to: Move, notify: *const Notify) -> *const Op {
    unsafe { start(reactor, notify, || Cursor::lease(it).map(|lease| go(lease, to))) }
}

unsafe fn entry(it: *const Cursor) -> Option<Lent> {
    unsafe { Cursor::lease(it) }.ok().and_then(|lease| lease.at().entry())
}

unsafe fn part(it: *const Cursor, length: *mut usize, of: fn(Lent) -> *const [u8]) -> *const c_char {
    let part = unsafe { entry(it) }.map(of);
    unsafe { put(length, part.map_or(0, |part| part.len())) };
    part.map_or(std::ptr::null(), |part| part.cast())
}

capi! {
    /// Creates an iterator for asynchronous moves over the database's current state; it is on no
    /// entry yet. Does not block. `cf` and `options` may be null.
    attempt karst_iter_create(db: *const Database, options: *const Read, cf: *const Family) -> *const Cursor {
        let db = without_ttl(db)?;
        Ok(Cursor::give(It::Db(Box::new(db.iter_cf(&reading(options), family_or_default(db, cf))?))))
    }
    /// Creates an iterator over a transaction's own writes and the database; like
    /// karst_iter_create.
    attempt karst_transaction_iter_create(transaction: *mut TransactionHandle, options: *const Read, cf: *const Family) -> *const Cursor {
        let handle = ready(transaction)?;
        let (options, cf) = (reading(options), family_or_default(&handle.db, cf).clone());
        let it = match &mut handle.inner {
            Kind::Locking(transaction) => transaction.iter_cf(&options, &cf),
            Kind::Optimistic(transaction) => transaction.iter_cf(&options, &cf),
            Kind::Committing => Err(committing()),
        };
        Ok(Cursor::give(It::Batch(Box::new(it?))))
    }
    /// Destroys an iterator. An outstanding operation on it continues, and completes.
    call karst_iter_destroy(it: *const Cursor) { if !it.is_null() { drop(Arc::from_raw(it)) } }
    /// Returns 1 if the iterator is on an entry; 0 if it is not, or if an operation is moving it.
    call karst_iter_valid(it: *const Cursor) -> c_uchar { entry(it).is_some().into() }
    /// Returns the key of its entry, valid until the next move; null if it is on no entry or an
    /// operation is moving it.
    call karst_iter_key(it: *const Cursor, length: *mut usize) -> *const c_char { part(it, length, |entry| entry.key) }
    /// Returns the value of its entry; like karst_iter_key.
    call karst_iter_value(it: *const Cursor, length: *mut usize) -> *const c_char { part(it, length, |entry| entry.value) }
    /// Moves to the first key that is not less than `key`. The completion has the entry, or null
    /// behind the last; its bytes are valid until the iterator is moved or the operation is
    /// released. KARST_BUSY: another operation on the iterator is outstanding, and continues. After
    /// a move that failed or was cancelled the iterator is on no entry, and can seek again.
    call karst_iter_seek_async(reactor: *const Runner, it: *const Cursor, key: *const c_char, key_length: usize, notify: *const Notify) -> *const Op {
        begin(reactor, it, Move::Seek(bytes(key, key_length).to_vec()), notify)
    }
    /// Moves to the last key that is not greater than `key`; like karst_iter_seek_async.
    call karst_iter_seek_for_prev_async(reactor: *const Runner, it: *const Cursor, key: *const c_char, key_length: usize, notify: *const Notify) -> *const Op {
        begin(reactor, it, Move::SeekForPrev(bytes(key, key_length).to_vec()), notify)
    }
    /// Moves to the first key; like karst_iter_seek_async.
    call karst_iter_seek_to_first_async(reactor: *const Runner, it: *const Cursor, notify: *const Notify) -> *const Op { begin(reactor, it, Move::First, notify) }
    /// Moves to the last key; like karst_iter_seek_async.
    call karst_iter_seek_to_last_async(reactor: *const Runner, it: *const Cursor, notify: *const Notify) -> *const Op { begin(reactor, it, Move::Last, notify) }
    /// Moves to the next key; like karst_iter_seek_async. KARST_INVALID_ARGUMENT: it is on no
    /// entry.
    call karst_iter_next_async(reactor: *const Runner, it: *const Cursor, notify: *const Notify) -> *const Op { begin(reactor, it, Move::Next, notify) }
    /// Moves to the previous key; like karst_iter_next_async.
    call karst_iter_prev_async(reactor: *const Runner, it: *const Cursor, notify: *const Notify) -> *const Op { begin(reactor, it, Move::Prev, notify) }
}
