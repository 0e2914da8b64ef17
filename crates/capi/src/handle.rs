//! The handles of an open database, of a value and of a snapshot.

use crate::boundary::*;
use karstdb::{Db, ErrorKind, Snapshot, Value};
use std::sync::{Mutex, PoisonError};

/// `rocksdb_t`. The handles of databases with transactions begin with one, as callers pass them
/// where a `rocksdb_t` is wanted; RocksDB's allow that.
#[derive(Debug)]
#[repr(C)]
pub struct Database {
    pub(crate) db: Db,
    /// Values have the time of their write behind them; see `ttl`.
    pub(crate) stamps: bool,
    /// How often compactions by hand were enabled when they were not disabled.
    pub(crate) enabled_ahead: Mutex<u32>,
}

impl Database {
    pub(crate) fn plain(db: Db) -> Database {
        Database { db, stamps: false, enabled_ahead: Mutex::default() }
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
    pub(crate) value: Value,
    /// How much of it is shown.
    pub(crate) length: usize,
}

impl Pinned {
    pub(crate) fn whole(value: Value) -> Pinned {
        let length = value.len();
        Pinned { value, length }
    }
}

impl AsRef<[u8]> for Pinned {
    fn as_ref(&self) -> &[u8] {
        self.value.get(..self.length).unwrap_or_default()
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
