//! Listeners: `rocksdb_eventlistener_t`, with callbacks for flushes, compactions, ingestions,
//! errors and stalls.
//!
//! In: a state and callbacks of the user's, each of which may be null. Out: calls of them, on the
//! thread of the job that they report.
//!
//! Invariant: a callback's arguments are valid until it returns, and lie in the engine's own
//! structs (`event_infos`). Callbacks get null as their database, because they hold up the job, and
//! a call of the database that waits for the job would never return. Calls on null do nothing.

use crate::boundary::*;
use crate::callbacks::{Destructor, State};
use crate::handle::Database;
use crate::options::OptionsHandle;
use karstdb::{
    BackgroundError, BackgroundErrorReason, CompactionInfo, Error, EventListener, ExternalFileIngestionInfo,
    FlushInfo, MemTableInfo, SubcompactionInfo, WriteStallInfo,
};
use libc::c_void;
use std::ptr::null_mut;
use std::sync::Arc;

type OnFlushBegin = unsafe extern "C" fn(*mut c_void, *mut Database, *const FlushInfo);
type OnFlushCompleted = unsafe extern "C" fn(*mut c_void, *mut Database, *const FlushInfo);
type OnCompactionBegin = unsafe extern "C" fn(*mut c_void, *mut Database, *const CompactionInfo);
type OnCompactionCompleted = unsafe extern "C" fn(*mut c_void, *mut Database, *const CompactionInfo);
type OnSubcompactionBegin = unsafe extern "C" fn(*mut c_void, *const SubcompactionInfo);
type OnSubcompactionCompleted = unsafe extern "C" fn(*mut c_void, *const SubcompactionInfo);
type OnExternalFileIngested =
    unsafe extern "C" fn(*mut c_void, *mut Database, *const ExternalFileIngestionInfo);
type OnBackgroundError = unsafe extern "C" fn(*mut c_void, u32, *mut StatusPtr);
type OnStallConditionsChanged = unsafe extern "C" fn(*mut c_void, *const WriteStallInfo);
type OnMemtableSealed = unsafe extern "C" fn(*mut c_void, *const MemTableInfo);

/// `rocksdb_status_ptr_t`: an error that a callback may clear.
#[derive(Debug)]
pub struct StatusPtr(Option<Error>);

/// `rocksdb_eventlistener_t`.
#[derive(Debug)]
pub struct ListenerHandle(Arc<UserListener>);

#[derive(Debug)]
struct UserListener {
    state: State,
    flush_begin: Option<OnFlushBegin>,
    flush_completed: Option<OnFlushCompleted>,
    compaction_begin: Option<OnCompactionBegin>,
    compaction_completed: Option<OnCompactionCompleted>,
    subcompaction_begin: Option<OnSubcompactionBegin>,
    subcompaction_completed: Option<OnSubcompactionCompleted>,
    ingested: Option<OnExternalFileIngested>,
    background_error: Option<OnBackgroundError>,
    stall_changed: Option<OnStallConditionsChanged>,
    sealed: Option<OnMemtableSealed>,
}

/// Returns RocksDB's number.
fn number(reason: BackgroundErrorReason) -> u32 {
    match reason {
        BackgroundErrorReason::Compaction => 1,
        BackgroundErrorReason::WriteCallback => 2,
        BackgroundErrorReason::MemTable => 3,
        BackgroundErrorReason::ManifestWrite => 4,
        BackgroundErrorReason::FlushNoWal => 5,
        BackgroundErrorReason::ManifestWriteNoWal => 6,
        // Flushes, and reasons that this version does not know.
        _ => 0,
    }
}

impl UserListener {
    /// Calls the callback; returns true if it cleared the error.
    fn shows(&self, error: &BackgroundError) -> bool {
        let Some(call) = self.background_error else { return false };
        let mut status = StatusPtr(Some(error.error.clone()));
        // SAFETY: the user's function; the status is valid during the call.
        unsafe { call(self.state.state, number(error.reason), &mut status) };
        status.0.is_none()
    }
}

impl EventListener for UserListener {
    fn flush_begun(&self, flush: &FlushInfo) {
        if let Some(call) = self.flush_begin {
            // SAFETY: the user's function; its arguments are valid during the call, also in all
            // calls below.
            unsafe { call(self.state.state, null_mut(), flush) }
        }
    }

    fn flush_completed(&self, flush: &FlushInfo) {
        if let Some(call) = self.flush_completed {
            unsafe { call(self.state.state, null_mut(), flush) }
        }
    }

    fn compaction_begun(&self, compaction: &CompactionInfo) {
        if let Some(call) = self.compaction_begin {
            unsafe { call(self.state.state, null_mut(), compaction) }
        }
    }

    fn compaction_completed(&self, compaction: &CompactionInfo) {
        if let Some(call) = self.compaction_completed {
            unsafe { call(self.state.state, null_mut(), compaction) }
        }
    }

    // Compat: RocksDB reports a failed compaction as completed, with its error as the status.
    fn compaction_failed(&self, compaction: &CompactionInfo) {
        self.compaction_completed(compaction);
    }

    fn subcompaction_begun(&self, part: &SubcompactionInfo) {
        if let Some(call) = self.subcompaction_begin {
            unsafe { call(self.state.state, part) }
        }
    }

    fn subcompaction_completed(&self, part: &SubcompactionInfo) {
        if let Some(call) = self.subcompaction_completed {
            unsafe { call(self.state.state, part) }
        }
    }

    fn external_file_ingested(&self, file: &ExternalFileIngestionInfo) {
        if let Some(call) = self.ingested {
            unsafe { call(self.state.state, null_mut(), file) }
        }
    }

    fn suppresses_background_error(&self, error: &BackgroundError) -> bool {
        self.shows(error)
    }

    fn background_error(&self, error: &BackgroundError) {
        // A job's failure was already reported by `suppresses_background_error`.
        if !error.reason.is_of_job() {
            self.shows(error);
        }
    }

    fn write_stall_condition_changed(&self, stall: &WriteStallInfo) {
        if let Some(call) = self.stall_changed {
            unsafe { call(self.state.state, stall) }
        }
    }

    fn memtable_sealed(&self, memtable: &MemTableInfo) {
        if let Some(call) = self.sealed {
            unsafe { call(self.state.state, memtable) }
        }
    }
}

capi! {
    /// Each callback may be null. They are called on the threads of jobs and writers, which they
    /// block, several at once, and must not call the database; the rocksdb_t* they get is null.
    call rocksdb_eventlistener_create(state: *mut c_void, destructor: Destructor, on_flush_begin: Option<OnFlushBegin>, on_flush_completed: Option<OnFlushCompleted>, on_compaction_begin: Option<OnCompactionBegin>, on_compaction_completed: Option<OnCompactionCompleted>, on_subcompaction_begin: Option<OnSubcompactionBegin>, on_subcompaction_completed: Option<OnSubcompactionCompleted>, on_external_file_ingested: Option<OnExternalFileIngested>, on_background_error: Option<OnBackgroundError>, on_stall_conditions_changed: Option<OnStallConditionsChanged>, on_memtable_sealed: Option<OnMemtableSealed>) -> *mut ListenerHandle {
        give(ListenerHandle(Arc::new(UserListener {
            state: State::new(state, destructor, None),
            flush_begin: on_flush_begin,
            flush_completed: on_flush_completed,
            compaction_begin: on_compaction_begin,
            compaction_completed: on_compaction_completed,
            subcompaction_begin: on_subcompaction_begin,
            subcompaction_completed: on_subcompaction_completed,
            ingested: on_external_file_ingested,
            background_error: on_background_error,
            stall_changed: on_stall_conditions_changed,
            sealed: on_memtable_sealed,
        })))
    }
    /// Only for a listener that was not added to any options.
    call rocksdb_eventlistener_destroy(listener: *mut ListenerHandle) { end(listener); }
    /// The options own the listener from now on: the caller must not destroy it.
    call rocksdb_options_add_eventlistener(options: *mut OptionsHandle, listener: *mut ListenerHandle) {
        if let (Some(listener), Some(options)) = (take(listener), options.as_mut()) { options.listeners.push(listener.0) }
    }
    /// Clears the failure of a flush or a compaction: the database does not stop, and the job is
    /// retried. Other errors stay.
    call rocksdb_reset_status(status: *mut StatusPtr) {
        if let Some(status) = status.as_mut() { status.0 = None }
    }
    attempt rocksdb_status_ptr_get_error(status: *mut StatusPtr) {
        match &of(status)?.0 { Some(error) => Err(error.clone()), None => Ok(()) }
    }
}
