//! The handles of an open database and of a snapshot.

use crate::boundary::*;
use karstdb::{Db, Snapshot};

/// `rocksdb_t`.
#[derive(Debug)]
pub struct Database {
    pub(crate) db: Db,
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
