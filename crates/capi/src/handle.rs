//! Handles of an open database, of a value and of a snapshot.

use crate::boundary::*;
use karstdb::{
    ColumnFamily, Db, DbWithTtl, ErrorKind, Snapshot, TransactionDb, Value, WriteBatch, WriteOptions,
};
use std::borrow::Cow;
use std::sync::{Mutex, PoisonError};

/// `rocksdb_t`. It is the first field of the handles of databases with transactions, because
/// callers pass those in place of a `rocksdb_t`, which RocksDB's allow.
#[derive(Debug)]
#[repr(C)]
pub struct Database {
    pub(crate) db: Db,
    /// The database with its TTL, if it was opened with one: values end with the time of their
    /// write.
    pub(crate) ttl: Option<DbWithTtl>,
    /// The database with transactions that lock keys, if it has those. Writes by this handle lock
    /// them, too.
    pub(crate) locking: Option<TransactionDb>,
    /// Number of calls that enabled manual compactions while they were not disabled.
    pub(crate) enabled_ahead: Mutex<u32>,
}

/// Calls a method of the handle's write target: the `TransactionDb`, or else the `Db`.
macro_rules! by_kind {
    ($handle:expr, $db:ident => $call:expr) => {
        match &$handle.locking {
            Some($db) => $call,
            None => {
                let $db = &$handle.db;
                $call
            }
        }
    };
}

impl Database {
    pub(crate) fn plain(db: Db) -> Database {
        Database { db, ttl: None, locking: None, enabled_ahead: Mutex::default() }
    }

    pub(crate) fn expiring(db: DbWithTtl) -> Database {
        Database { ttl: Some(db.clone()), ..Database::plain(db.db().clone()) }
    }

    pub(crate) fn locking(db: TransactionDb) -> Database {
        Database { locking: Some(db.clone()), ..Database::plain(db.db().clone()) }
    }

    pub(crate) fn put(
        &self,
        options: &WriteOptions,
        family: &ColumnFamily,
        key: &[u8],
        value: &[u8],
    ) -> karstdb::Result<()> {
        by_kind!(self, db => db.put_cf(options, family, key, self.stored(value)))
    }

    pub(crate) fn merge(
        &self,
        options: &WriteOptions,
        family: &ColumnFamily,
        key: &[u8],
        operand: &[u8],
    ) -> karstdb::Result<()> {
        by_kind!(self, db => db.merge_cf(options, family, key, self.stored(operand)))
    }

    pub(crate) fn delete(
        &self,
        options: &WriteOptions,
        family: &ColumnFamily,
        key: &[u8],
    ) -> karstdb::Result<()> {
        by_kind!(self, db => db.delete_cf(options, family, key))
    }

    pub(crate) fn single_delete(
        &self,
        options: &WriteOptions,
        family: &ColumnFamily,
        key: &[u8],
    ) -> karstdb::Result<()> {
        by_kind!(self, db => db.single_delete_cf(options, family, key))
    }

    /// Deletes a range. A database whose transactions lock keys refuses it, because it locks no
    /// ranges.
    pub(crate) fn delete_range(
        &self,
        options: &WriteOptions,
        family: &ColumnFamily,
        begin: &[u8],
        end: &[u8],
    ) -> karstdb::Result<()> {
        match &self.locking {
            None => self.db.delete_range_cf(options, family, begin, end),
            Some(db) => {
                let mut batch = WriteBatch::new();
                batch.delete_range_cf(family, begin, end)?;
                db.write(options, &batch)
            }
        }
    }

    pub(crate) fn write(&self, options: &WriteOptions, batch: &WriteBatch) -> karstdb::Result<()> {
        let batch = self.stored_batch(batch)?;
        by_kind!(self, db => db.write(options, &batch))
    }

    /// Returns a value in its stored form, with a time if the database has a TTL.
    pub(crate) fn stored<'v>(&self, value: &'v [u8]) -> Cow<'v, [u8]> {
        self.ttl.as_ref().map_or(Cow::Borrowed(value), |ttl| ttl.stored(value).into())
    }

    /// Returns a batch in its stored form, with times if the database has a TTL.
    fn stored_batch<'b>(&self, batch: &'b WriteBatch) -> karstdb::Result<Cow<'b, WriteBatch>> {
        match &self.ttl {
            Some(ttl) => ttl.stored_batch(batch).map(Cow::Owned),
            None => Ok(Cow::Borrowed(batch)),
        }
    }

    /// Returns a value without the time that a database with a TTL stores.
    pub(crate) fn shown(&self, found: Option<Value>) -> karstdb::Result<Option<Pinned>> {
        let Some(value) = found else { return Ok(None) };
        let shown = match &self.ttl {
            Some(ttl) => ttl.shown(value)?,
            None => value,
        };
        Ok(Some(Pinned::whole(shown)))
    }

    /// Compat: RocksDB's counter may be negative, so an enabling call cancels a later disabling
    /// one.
    pub(crate) fn enable_manual_compaction(&self) -> karstdb::Result<()> {
        let mut ahead = self.enabled_ahead.lock().unwrap_or_else(PoisonError::into_inner);
        match self.db.enable_manual_compaction() {
            Err(error) if error.kind() == ErrorKind::InvalidArgument => {
                *ahead += 1;
                Ok(())
            }
            outcome => outcome,
        }
    }

    pub(crate) fn disable_manual_compaction(&self) -> karstdb::Result<()> {
        let mut ahead = self.enabled_ahead.lock().unwrap_or_else(PoisonError::into_inner);
        if *ahead > 0 {
            *ahead -= 1;
            return Ok(());
        }
        // Released here because disabling waits for compactions.
        drop(ahead);
        self.db.disable_manual_compaction()
    }
}

/// `rocksdb_pinnableslice_t`.
#[derive(Debug)]
pub struct Pinned {
    value: Value,
}

impl Pinned {
    pub(crate) fn whole(value: Value) -> Pinned {
        Pinned { value }
    }
}

impl AsRef<[u8]> for Pinned {
    fn as_ref(&self) -> &[u8] {
        &self.value
    }
}

/// `rocksdb_snapshot_t`. Allocated by malloc and without a destructor of its own, because users
/// free that of a transaction by `rocksdb_free`.
#[derive(Debug)]
#[repr(C)]
pub struct SnapshotHandle {
    snapshot: *mut Snapshot,
}

impl SnapshotHandle {
    /// Returns a handle to a snapshot that another object owns.
    pub(crate) fn lent(snapshot: *mut Snapshot) -> *mut SnapshotHandle {
        array_out(&[snapshot]).cast()
    }

    pub(crate) fn given(snapshot: Snapshot) -> *mut SnapshotHandle {
        Self::lent(give(snapshot))
    }

    pub(crate) unsafe fn get<'a>(handle: *const SnapshotHandle) -> Option<&'a Snapshot> {
        unsafe { handle.as_ref().and_then(|handle| handle.snapshot.as_ref()) }
    }

    pub(crate) unsafe fn release(handle: *mut SnapshotHandle) {
        unsafe {
            if let Some(own) = handle.as_ref() {
                drop(take(own.snapshot));
            }
            libc::free(handle.cast());
        }
    }
}
