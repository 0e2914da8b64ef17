//! Transactions of both kinds of database.

use crate::batch::Batch;
use crate::boundary::*;
use crate::call_options::{Read, reading};
use crate::db::{families_of, values_out};
use crate::family::Family;
use crate::handle::{Pinned, SnapshotHandle};
use crate::iterator::Iter;
use karstdb::format::Op;
use karstdb::{
    ColumnFamily, Db, OptimisticTransaction, OptimisticTransactionDb, OptimisticTransactionOptions,
    ReadOptions, Snapshot, Transaction, TransactionDb, TransactionOptions, TransactionState, Value,
    WriteBatchWithIndex, WriteOptions,
};
use libc::{c_char, c_uchar};

/// `rocksdb_transaction_t`.
#[derive(Debug)]
pub struct TransactionHandle {
    pub(crate) inner: Kind,
    pub(crate) db: Db,
    /// Snapshots that handles point to.
    #[allow(clippy::vec_box, reason = "handles point to them")]
    lent: Vec<Box<Snapshot>>,
    name: Vec<u8>,
    again: Again,
    /// It has ended; the next call begins it anew.
    is_over: bool,
    /// The snapshot at the end. Compat: the transaction has it again when it is begun anew.
    snapshot: Option<Snapshot>,
    /// Timestamps set for reads and for the commit. Compat: they last beyond a rollback.
    timestamps: (Option<u64>, Option<u64>),
}

/// Arguments to begin a transaction anew.
#[derive(Clone, Debug)]
pub(crate) enum Again {
    Locking(TransactionDb, WriteOptions, TransactionOptions),
    Optimistic(OptimisticTransactionDb, WriteOptions, OptimisticTransactionOptions),
    /// The transaction was recovered as prepared when the database was opened; it is not begun
    /// anew.
    Never,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Locking(Box<Transaction>),
    Optimistic(Box<OptimisticTransaction>),
    /// It was moved to an asynchronous commit; the handle refuses all calls.
    Committing,
}

/// Returns the error of calls on a transaction that was moved to an asynchronous commit.
pub(crate) fn committing() -> karstdb::Error {
    invalid("the transaction was given to karst_transaction_commit_async")
}

/// Result of a call on a transaction that was moved to an asynchronous commit.
trait GivenAway {
    fn given_away() -> Self;
}

impl<T> GivenAway for karstdb::Result<T> {
    fn given_away() -> Self {
        Err(committing())
    }
}

impl<T> GivenAway for Option<T> {
    fn given_away() -> Self {
        None
    }
}

/// Calls a method of the transaction, of either kind.
macro_rules! on {
    ($handle:expr, $transaction:ident => $call:expr) => {
        match &mut $handle.inner {
            Kind::Locking($transaction) => $call,
            Kind::Optimistic($transaction) => $call,
            Kind::Committing => GivenAway::given_away(),
        }
    };
}

impl TransactionHandle {
    /// Begins a transaction; `None` if it cannot be begun anew.
    pub(crate) fn new(again: Again, db: &Db) -> Option<TransactionHandle> {
        let inner = again.begin()?;
        Some(TransactionHandle {
            inner,
            db: db.clone(),
            lent: Vec::new(),
            name: Vec::new(),
            again,
            is_over: false,
            snapshot: None,
            timestamps: (None, None),
        })
    }

    pub(crate) fn named(inner: Transaction, db: &Db, name: Vec<u8>) -> *mut TransactionHandle {
        let inner = Kind::Locking(Box::new(inner));
        let (again, is_over) = (Again::Never, false);
        let (db, lent, timestamps) = (db.clone(), Vec::new(), (None, None));
        give(TransactionHandle { inner, db, lent, name, again, is_over, snapshot: None, timestamps })
    }

    /// Returns a second handle for a transaction that is moved to an asynchronous commit.
    pub(crate) fn same(&self) -> TransactionHandle {
        TransactionHandle {
            inner: Kind::Committing,
            db: self.db.clone(),
            lent: Vec::new(),
            name: self.name.clone(),
            again: self.again.clone(),
            is_over: false,
            snapshot: None,
            timestamps: self.timestamps,
        }
    }

    pub(crate) fn holding(self, inner: Kind) -> TransactionHandle {
        TransactionHandle { inner, ..self }
    }

    /// Rolls back. Compat: RocksDB's transaction can be used after a rollback, unless it was
    /// prepared.
    fn rollback(&mut self) -> karstdb::Result<()> {
        self.revive()?;
        let was_prepared = match &self.inner {
            Kind::Locking(transaction) => transaction.state() != Some(TransactionState::Started),
            Kind::Optimistic(_) | Kind::Committing => false,
        };
        let snapshot = on!(self, transaction => transaction.snapshot().cloned());
        on!(self, transaction => transaction.rollback())?;
        (self.is_over, self.snapshot) = (!was_prepared, snapshot);
        Ok(())
    }

    /// Commits. Compat: RocksDB's optimistic transaction can be used after its commit.
    fn commit(&mut self) -> karstdb::Result<()> {
        self.revive()?;
        let snapshot = on!(self, transaction => transaction.snapshot().cloned());
        on!(self, transaction => transaction.commit())?;
        if matches!(self.inner, Kind::Optimistic(_)) {
            (self.is_over, self.snapshot) = (true, snapshot);
        }
        Ok(())
    }

    /// Begins the transaction anew if it has ended.
    fn revive(&mut self) -> karstdb::Result<()> {
        if !self.is_over {
            return Ok(());
        }
        let Some(inner) = self.again.begin() else { return Ok(()) };
        self.inner = inner;
        if let Some(snapshot) = self.snapshot.take() {
            on!(self, transaction => transaction.set_snapshot_to(snapshot))?;
        }
        if let (Kind::Locking(transaction), false) = (&mut self.inner, self.name.is_empty()) {
            transaction.set_name(&self.name)?;
        }
        if let Kind::Locking(transaction) = &mut self.inner {
            // Commit timestamp first, because setting it fails if it is not above the read
            // timestamp, and the original calls may have come in either order.
            let (read, commit) = self.timestamps;
            commit.into_iter().try_for_each(|at| transaction.set_commit_timestamp(at))?;
            read.into_iter().try_for_each(|at| transaction.set_read_timestamp_for_validation(at))?;
        }
        self.is_over = false;
        Ok(())
    }

    /// Returns the writes so far; `None` once the transaction has ended.
    pub(crate) fn indexed_batch(&self) -> Option<&WriteBatchWithIndex> {
        match &self.inner {
            Kind::Locking(transaction) => transaction.write_batch(),
            Kind::Optimistic(transaction) => Some(transaction.write_batch()),
            Kind::Committing => None,
        }
    }

    /// Returns a locking transaction; optimistic ones have no timestamps and fail.
    fn with_timestamps(&mut self) -> karstdb::Result<&mut Transaction> {
        self.revive()?;
        match &mut self.inner {
            Kind::Locking(transaction) => Ok(transaction),
            Kind::Optimistic(_) => Err(not_supported("timestamps of an optimistic transaction")),
            Kind::Committing => Err(committing()),
        }
    }

    pub(crate) fn set_commit_timestamp(&mut self, timestamp: u64) -> karstdb::Result<()> {
        self.with_timestamps()?.set_commit_timestamp(timestamp)?;
        self.timestamps.1 = Some(timestamp);
        Ok(())
    }

    pub(crate) fn set_read_timestamp(&mut self, timestamp: u64) -> karstdb::Result<()> {
        self.with_timestamps()?.set_read_timestamp_for_validation(timestamp)?;
        self.timestamps.0 = Some(timestamp);
        Ok(())
    }

    fn family(&self, family: Option<&Family>) -> ColumnFamily {
        family.map_or_else(|| self.db.default_column_family().clone(), |family| family.0.clone())
    }

    fn get(
        &mut self,
        options: &ReadOptions,
        family: Option<&Family>,
        key: &[u8],
    ) -> karstdb::Result<Option<Value>> {
        let family = self.family(family);
        on!(self, transaction => transaction.get_cf(options, &family, key))
    }

    fn get_for_update(
        &mut self,
        options: &ReadOptions,
        family: Option<&Family>,
        key: &[u8],
        exclusive: bool,
    ) -> karstdb::Result<Option<Value>> {
        let family = self.family(family);
        match &mut self.inner {
            Kind::Locking(transaction) => {
                transaction.get_for_update_cf(options, &family, key, exclusive, true)
            }
            Kind::Optimistic(transaction) => transaction.get_for_update_cf(options, &family, key),
            Kind::Committing => Err(committing()),
        }
    }

    /// Adds the operations of a batch as if each was called: keys are locked, or validated at the
    /// commit.
    pub(crate) fn rebuild(&mut self, batch: &karstdb::WriteBatch) -> karstdb::Result<()> {
        let families = self.db.column_families();
        let family = |id: u32| {
            let found = families.iter().find(|family| family.id() == id);
            found.ok_or_else(|| invalid(format!("the batch names column family {id}, which is not open")))
        };
        for op in batch.iter() {
            // Without timestamps, because the commit sets them.
            let op = match (op.column_family(), op.key()) {
                (Some(cf), Some(key)) => op.with_key(family(cf.0)?.comparator().bare(key)),
                _ => op,
            };
            match op {
                Op::Put { cf, key, value } => {
                    on!(self, transaction => transaction.put_cf(family(cf.0)?, key, value))?
                }
                Op::Delete { cf, key } => {
                    on!(self, transaction => transaction.delete_cf(family(cf.0)?, key))?
                }
                Op::SingleDelete { cf, key } => {
                    on!(self, transaction => transaction.single_delete_cf(family(cf.0)?, key))?
                }
                Op::Merge { cf, key, operand } => {
                    on!(self, transaction => transaction.merge_cf(family(cf.0)?, key, operand))?
                }
                Op::LogData(data) => on!(self, transaction => transaction.put_log_data(data))?,
                Op::Noop => {}
                _ => {
                    return Err(not_supported("rebuilding a transaction from a batch with other operations"));
                }
            }
        }
        Ok(())
    }
}

impl Again {
    fn begin(&self) -> Option<Kind> {
        match self {
            Again::Locking(db, write, options) => Some(Kind::Locking(Box::new(db.begin(write, options)))),
            Again::Optimistic(db, write, options) => {
                Some(Kind::Optimistic(Box::new(db.begin(write, options))))
            }
            Again::Never => None,
        }
    }
}

/// Returns the transaction of a handle, begun anew if it has ended.
pub(crate) unsafe fn ready<'a>(handle: *mut TransactionHandle) -> karstdb::Result<&'a mut TransactionHandle> {
    let handle = unsafe { of_mut(handle)? };
    handle.revive()?;
    Ok(handle)
}

/// Returns the transaction for a call without an `errptr`; an error goes to stderr.
unsafe fn ready_or_say<'a>(
    name: &'static str,
    handle: *mut TransactionHandle,
) -> Option<&'a mut TransactionHandle> {
    if handle.is_null() { None } else { or_say(name, unsafe { ready(handle) }) }
}

fn pinned(value: Option<Value>) -> *mut Pinned {
    value.map_or(std::ptr::null_mut(), |value| give(Pinned::whole(value)))
}

/// Reads many keys of a transaction, all at one snapshot, or locks them one after another.
unsafe fn each(
    handle: *mut TransactionHandle,
    options: *const Read,
    families: Option<*const *const Family>,
    keys: Vec<&[u8]>,
    for_update: bool,
) -> Vec<karstdb::Result<Option<Value>>> {
    let (options, count) = unsafe { (reading(options), keys.len()) };
    let handle = match unsafe { ready(handle) } {
        Ok(handle) => handle,
        Err(error) => return (0..count).map(|_| Err(error.clone())).collect(),
    };
    let families = match families.map(|families| unsafe { families_of(families, count) }) {
        None => vec![handle.db.default_column_family().clone(); count],
        Some(Ok(families)) => families,
        Some(Err(error)) => return (0..count).map(|_| Err(error.clone())).collect(),
    };
    if for_update {
        let lock = |(family, key): (ColumnFamily, &[u8])| {
            handle.get_for_update(&options, Some(&Family(family)), key, true)
        };
        return families.into_iter().zip(keys).map(lock).collect();
    }
    let families: Vec<_> = families.iter().collect();
    match &handle.inner {
        Kind::Locking(transaction) => transaction.multi_get_cfs(&options, &families, &keys),
        Kind::Optimistic(transaction) => transaction.multi_get_cfs(&options, &families, &keys),
        Kind::Committing => (0..count).map(|_| Err(committing())).collect(),
    }
}

capi! {
    call rocksdb_transaction_destroy(handle: *mut TransactionHandle) { end(handle); }
    attempt rocksdb_transaction_commit(handle: *mut TransactionHandle) { of_mut(handle)?.commit() }
    attempt rocksdb_transaction_rollback(handle: *mut TransactionHandle) { of_mut(handle)?.rollback() }
    attempt rocksdb_transaction_prepare(handle: *mut TransactionHandle) {
        match &mut ready(handle)?.inner {
            Kind::Locking(transaction) => transaction.prepare(),
            Kind::Optimistic(_) => Err(invalid("an optimistic transaction cannot be prepared")),
            Kind::Committing => Err(committing()),
        }
    }
    attempt rocksdb_transaction_set_name(handle: *mut TransactionHandle, name: *const c_char, length: usize) {
        let handle = ready(handle)?;
        match &mut handle.inner {
            Kind::Locking(transaction) => transaction.set_name(bytes(name, length))?,
            Kind::Optimistic(_) => return Err(invalid("an optimistic transaction has no name")),
            Kind::Committing => return Err(committing()),
        }
        handle.name = bytes(name, length).to_vec();
        Ok(())
    }
    call rocksdb_transaction_get_name(handle: *const TransactionHandle, length: *mut usize) -> *mut c_char {
        value_out(handle.as_ref().map(|handle| &handle.name), length)
    }
    call rocksdb_transaction_set_savepoint(handle: *mut TransactionHandle) {
        if let Some(handle) = ready_or_say("rocksdb_transaction_set_savepoint", handle) { or_say("rocksdb_transaction_set_savepoint", on!(handle, transaction => transaction.set_save_point())); }
    }
    attempt rocksdb_transaction_rollback_to_savepoint(handle: *mut TransactionHandle) { on!(ready(handle)?, transaction => transaction.rollback_to_save_point()) }
    call rocksdb_transaction_put_log_data(handle: *mut TransactionHandle, blob: *const c_char, length: usize) {
        if let Some(handle) = ready_or_say("rocksdb_transaction_put_log_data", handle) { or_say("rocksdb_transaction_put_log_data", on!(handle, transaction => transaction.put_log_data(bytes(blob, length)))); }
    }
    attempt rocksdb_transaction_rebuild_from_writebatch(handle: *mut TransactionHandle, batch: *const Batch) {
        ready(handle)?.rebuild(&of(batch)?.batch)
    }
    call rocksdb_transaction_get_snapshot(handle: *mut TransactionHandle) -> *mut SnapshotHandle {
        let Some(handle) = ready_or_say("rocksdb_transaction_get_snapshot", handle) else { return std::ptr::null_mut() };
        let snapshot = on!(handle, transaction => transaction.snapshot().cloned());
        // Compat: a handle is returned even without a snapshot.
        let Some(snapshot) = snapshot else { return SnapshotHandle::lent(std::ptr::null_mut()) };
        handle.lent.push(Box::new(snapshot));
        handle.lent.last_mut().map_or(std::ptr::null_mut(), |snapshot| SnapshotHandle::lent(&mut **snapshot))
    }

    attempt rocksdb_transaction_put(handle: *mut TransactionHandle, key: *const c_char, keylen: usize, val: *const c_char, vallen: usize) {
        on!(ready(handle)?, transaction => transaction.put(bytes(key, keylen), bytes(val, vallen)))
    }
    attempt rocksdb_transaction_put_cf(handle: *mut TransactionHandle, cf: *const Family, key: *const c_char, keylen: usize, val: *const c_char, vallen: usize) {
        on!(ready(handle)?, transaction => transaction.put_cf(&of(cf)?.0, bytes(key, keylen), bytes(val, vallen)))
    }
    attempt rocksdb_transaction_merge(handle: *mut TransactionHandle, key: *const c_char, keylen: usize, val: *const c_char, vallen: usize) {
        on!(ready(handle)?, transaction => transaction.merge(bytes(key, keylen), bytes(val, vallen)))
    }
    attempt rocksdb_transaction_merge_cf(handle: *mut TransactionHandle, cf: *const Family, key: *const c_char, keylen: usize, val: *const c_char, vallen: usize) {
        on!(ready(handle)?, transaction => transaction.merge_cf(&of(cf)?.0, bytes(key, keylen), bytes(val, vallen)))
    }
    attempt rocksdb_transaction_delete(handle: *mut TransactionHandle, key: *const c_char, keylen: usize) {
        on!(ready(handle)?, transaction => transaction.delete(bytes(key, keylen)))
    }
    attempt rocksdb_transaction_delete_cf(handle: *mut TransactionHandle, cf: *const Family, key: *const c_char, keylen: usize) {
        on!(ready(handle)?, transaction => transaction.delete_cf(&of(cf)?.0, bytes(key, keylen)))
    }

    attempt rocksdb_transaction_get(handle: *mut TransactionHandle, options: *const Read, key: *const c_char, keylen: usize, vallen: *mut usize) -> *mut c_char {
        put(vallen, 0);
        Ok(value_out(ready(handle)?.get(&reading(options), None, bytes(key, keylen))?, vallen))
    }
    attempt rocksdb_transaction_get_cf(handle: *mut TransactionHandle, options: *const Read, cf: *const Family, key: *const c_char, keylen: usize, vallen: *mut usize) -> *mut c_char {
        put(vallen, 0);
        Ok(value_out(ready(handle)?.get(&reading(options), cf.as_ref(), bytes(key, keylen))?, vallen))
    }
    attempt rocksdb_transaction_get_pinned(handle: *mut TransactionHandle, options: *const Read, key: *const c_char, keylen: usize) -> *mut Pinned {
        Ok(pinned(ready(handle)?.get(&reading(options), None, bytes(key, keylen))?))
    }
    attempt rocksdb_transaction_get_pinned_cf(handle: *mut TransactionHandle, options: *const Read, cf: *const Family, key: *const c_char, keylen: usize) -> *mut Pinned {
        Ok(pinned(ready(handle)?.get(&reading(options), cf.as_ref(), bytes(key, keylen))?))
    }
    attempt rocksdb_transaction_get_for_update(handle: *mut TransactionHandle, options: *const Read, key: *const c_char, keylen: usize, vallen: *mut usize, exclusive: c_uchar) -> *mut c_char {
        put(vallen, 0);
        Ok(value_out(ready(handle)?.get_for_update(&reading(options), None, bytes(key, keylen), exclusive != 0)?, vallen))
    }
    attempt rocksdb_transaction_get_for_update_cf(handle: *mut TransactionHandle, options: *const Read, cf: *const Family, key: *const c_char, keylen: usize, vallen: *mut usize, exclusive: c_uchar) -> *mut c_char {
        put(vallen, 0);
        Ok(value_out(ready(handle)?.get_for_update(&reading(options), cf.as_ref(), bytes(key, keylen), exclusive != 0)?, vallen))
    }
    attempt rocksdb_transaction_get_pinned_for_update(handle: *mut TransactionHandle, options: *const Read, key: *const c_char, keylen: usize, exclusive: c_uchar) -> *mut Pinned {
        Ok(pinned(ready(handle)?.get_for_update(&reading(options), None, bytes(key, keylen), exclusive != 0)?))
    }
    attempt rocksdb_transaction_get_pinned_for_update_cf(handle: *mut TransactionHandle, options: *const Read, cf: *const Family, key: *const c_char, keylen: usize, exclusive: c_uchar) -> *mut Pinned {
        Ok(pinned(ready(handle)?.get_for_update(&reading(options), cf.as_ref(), bytes(key, keylen), exclusive != 0)?))
    }
    call rocksdb_transaction_multi_get(handle: *mut TransactionHandle, options: *const Read, count: usize, keys: *const *const c_char, key_sizes: *const usize, values: *mut *mut c_char, value_sizes: *mut usize, errs: *mut *mut c_char) {
        values_out(each(handle, options, None, byte_lists(keys, key_sizes, count), false), values, value_sizes, errs)
    }
    call rocksdb_transaction_multi_get_cf(handle: *mut TransactionHandle, options: *const Read, cfs: *const *const Family, count: usize, keys: *const *const c_char, key_sizes: *const usize, values: *mut *mut c_char, value_sizes: *mut usize, errs: *mut *mut c_char) {
        values_out(each(handle, options, Some(cfs), byte_lists(keys, key_sizes, count), false), values, value_sizes, errs)
    }
    call rocksdb_transaction_multi_get_for_update(handle: *mut TransactionHandle, options: *const Read, count: usize, keys: *const *const c_char, key_sizes: *const usize, values: *mut *mut c_char, value_sizes: *mut usize, errs: *mut *mut c_char) {
        values_out(each(handle, options, None, byte_lists(keys, key_sizes, count), true), values, value_sizes, errs)
    }
    call rocksdb_transaction_multi_get_for_update_cf(handle: *mut TransactionHandle, options: *const Read, cfs: *const *const Family, count: usize, keys: *const *const c_char, key_sizes: *const usize, values: *mut *mut c_char, value_sizes: *mut usize, errs: *mut *mut c_char) {
        values_out(each(handle, options, Some(cfs), byte_lists(keys, key_sizes, count), true), values, value_sizes, errs)
    }
    call rocksdb_transaction_create_iterator(handle: *mut TransactionHandle, options: *const Read) -> *mut Iter {
        let Some(handle) = ready_or_say("rocksdb_transaction_create_iterator", handle) else { return std::ptr::null_mut() };
        Iter::over_batch(on!(handle, transaction => transaction.iter(&reading(options))))
    }
    call rocksdb_transaction_create_iterator_cf(handle: *mut TransactionHandle, options: *const Read, cf: *const Family) -> *mut Iter {
        let (Some(handle), Some(cf)) = (ready_or_say("rocksdb_transaction_create_iterator_cf", handle), cf.as_ref()) else { return std::ptr::null_mut() };
        Iter::over_batch(on!(handle, transaction => transaction.iter_cf(&reading(options), &cf.0)))
    }
}
