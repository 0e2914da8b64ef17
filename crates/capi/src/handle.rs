//! The handles of an open database, of a value and of a snapshot.

use crate::boundary::*;
use karstdb::{
    ColumnFamily, Db, DbWithTtl, ErrorKind, Snapshot, TransactionDb, Value, WriteBatch, WriteOptions,
};
use std::borrow::Cow;
use std::sync::{Mutex, PoisonError};

/// `rocksdb_t`. The handles of databases with transactions begin with one, as callers pass them
/// where a `rocksdb_t` is wanted; RocksDB's allow that.
#[derive(Debug)]
#[repr(C)]
pub struct Database {
    pub(crate) db: Db,
    /// The same database, if it was opened with a TTL: its values have the time of their write
    /// behind them.
    pub(crate) ttl: Option<DbWithTtl>,
    /// Set if transactions of the database lock keys: writes by this handle lock them, too.
    pub(crate) locking: Option<TransactionDb>,
    /// How often compactions by hand were enabled when they were not disabled.
    pub(crate) enabled_ahead: Mutex<u32>,
}

/// A call on what a handle writes to: the `TransactionDb`, or else the `Db`.
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

    /// A database whose transactions lock keys refuses it, as it locks no ranges.
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

    /// A value as it is stored.
    pub(crate) fn stored<'v>(&self, value: &'v [u8]) -> Cow<'v, [u8]> {
        self.ttl.as_ref().map_or(Cow::Borrowed(value), |ttl| ttl.stored(value).into())
    }

    /// A batch as it is written.
    fn stored_batch<'b>(&self, batch: &'b WriteBatch) -> karstdb::Result<Cow<'b, WriteBatch>> {
        match &self.ttl {
            Some(ttl) => ttl.stored_batch(batch).map(Cow::Owned),
            None => Ok(Cow::Borrowed(batch)),
        }
    }

    /// A value as it is read.
    pub(crate) fn shown(&self, found: Option<Value>) -> karstdb::Result<Option<Pinned>> {
        let Some(value) = found else { return Ok(None) };
        let shown = match &self.ttl {
            Some(ttl) => ttl.shown(value)?,
            None => value,
        };
        Ok(Some(Pinned::whole(shown)))
    }

    /// Compat: RocksDB counts below zero, so one that enables takes back one that disables later.
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
        // Why: it waits for compactions.
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

/// `rocksdb_snapshot_t`. From malloc and without a destructor of its own, as users end that of a
/// transaction by `rocksdb_free`.
#[derive(Debug)]
#[repr(C)]
pub struct SnapshotHandle {
    snapshot: *mut Snapshot,
}

impl SnapshotHandle {
    /// A handle to a snapshot that somebody else keeps.
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
