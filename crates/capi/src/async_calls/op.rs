//! The operation and its completion, which all asynchronous calls share.

use super::status::{Status, Verdict};
use crate::boundary::*;
use crate::transaction::TransactionHandle;
use karstdb::{Error, Value};
use libc::{c_char, c_int, c_void};
use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::Waker;

/// `karst_completion_t`: an operation has ended.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Completion {
    pub(crate) op: *const Op,
    pub(crate) user_data: *mut c_void,
    pub(crate) status: c_int,
    pub(crate) message: *const c_char,
    pub(crate) key: *const c_char,
    pub(crate) key_length: usize,
    pub(crate) value: *const c_char,
    pub(crate) value_length: usize,
    pub(crate) count: usize,
}

/// `karst_op_t`: an asynchronous call, from its beginning until its caller releases it.
pub struct Op {
    user_data: *mut c_void,
    place: Place,
    cancelled: AtomicBool,
    /// The waker of its task, while that waits.
    waker: Mutex<Option<Waker>>,
    /// Set once, before the completion is handed on.
    ended: OnceLock<Ended>,
}

// SAFETY: `user_data` is only handed back; whom a callback's pointer may be called by is the
// header's contract; what `Found` lends is kept by its cursor.
unsafe impl Send for Op {}
// SAFETY: as above.
unsafe impl Sync for Op {}

/// What takes operations that have ended.
pub(super) trait Sink: Send + Sync {
    fn push(self: Arc<Self>, op: Arc<Op>);
}

/// Where the completion goes.
pub(super) enum Place {
    Queue(Arc<dyn Sink>),
    Callback(unsafe extern "C" fn(*const Completion)),
}

#[derive(Debug)]
struct Ended {
    verdict: Verdict,
    found: Found,
}

/// What an operation brings.
#[derive(Debug)]
pub(crate) enum Found {
    Nothing,
    Value(Option<Value>),
    Many(Vec<(Verdict, Option<Value>)>),
    /// Where an iterator stands, and what lends it.
    Entry(Option<Lent>, #[allow(dead_code, reason = "keeps what is lent")] Arc<dyn Any + Send + Sync>),
    /// A transaction that was not committed, and the database that it is of.
    NotCommitted(Error, Mutex<Option<TransactionHandle>>),
}

/// The entry of an iterator, until that moves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lent {
    pub(crate) key: *const [u8],
    pub(crate) value: *const [u8],
}

// SAFETY: it is only dereferenced by the caller, by the header's contract.
unsafe impl Send for Lent {}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Op").field("ended", &self.ended).finish_non_exhaustive()
    }
}

impl Op {
    pub(super) fn new(user_data: *mut c_void, place: Place) -> Arc<Op> {
        let (cancelled, waker) = (AtomicBool::new(false), Mutex::new(None));
        Arc::new(Op { user_data, place, cancelled, waker, ended: OnceLock::new() })
    }

    /// Whether it shall end early; if not, `waker` is called once it shall.
    pub(super) fn is_cancelled_or_wakes(&self, waker: &Waker) -> bool {
        {
            let mut slot = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
            if !slot.as_ref().is_some_and(|slot| slot.will_wake(waker)) {
                *slot = Some(waker.clone());
            }
        }
        // Ordering: whoever cancels sets the flag and then takes the waker, under the same lock.
        self.cancelled.load(Ordering::Acquire)
    }

    fn completion(&self) -> Completion {
        let mut completion = Completion {
            op: self,
            user_data: self.user_data,
            status: Status::Cancelled as c_int,
            message: std::ptr::null(),
            key: std::ptr::null(),
            key_length: 0,
            value: std::ptr::null(),
            value_length: 0,
            count: 0,
        };
        let Some(ended) = self.ended.get() else { return completion };
        completion.status = ended.verdict.status as c_int;
        completion.message = ended.verdict.message.as_ref().map_or(std::ptr::null(), |text| text.as_ptr());
        match &ended.found {
            Found::Value(value) => {
                completion.count = 1;
                if let Some(value) = value {
                    (completion.value, completion.value_length) = parts(value.as_ref());
                }
            }
            Found::Many(values) => completion.count = values.len(),
            Found::Entry(Some(lent), _) => {
                (completion.key, completion.key_length) = (lent.key.cast(), lent.key.len());
                (completion.value, completion.value_length) = (lent.value.cast(), lent.value.len());
            }
            Found::Nothing | Found::Entry(None, _) | Found::NotCommitted(..) => {}
        }
        completion
    }

    /// Tells the end. Called once.
    pub(super) fn complete(self: Arc<Self>, verdict: Verdict, found: Found) {
        let verdict = match &found {
            Found::NotCommitted(error, _) => Verdict::of(error),
            _ => verdict,
        };
        let _ = self.ended.set(Ended { verdict, found });
        let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(waker);
        match &self.place {
            Place::Callback(call) => {
                let completion = self.completion();
                // SAFETY: the caller gave it for this; `self` keeps what the completion points to.
                unsafe { call(&completion) }
            }
            Place::Queue(queue) => queue.clone().push(self),
        }
    }

    /// Gives up the caller's share.
    pub(crate) unsafe fn release(op: *const Op) {
        if !op.is_null() {
            drop(unsafe { Arc::from_raw(op) });
        }
    }

    /// The completion, for the caller to keep; it has the caller's share.
    pub(crate) fn handed_over(op: &Arc<Op>) -> Completion {
        op.completion()
    }
}

fn parts(bytes: &[u8]) -> (*const c_char, usize) {
    (bytes.as_ptr().cast(), bytes.len())
}

/// The answer for one key.
unsafe fn answer<'a>(op: *const Op, index: usize) -> Option<(&'a Verdict, Option<&'a Value>)> {
    let ended = unsafe { op.as_ref() }?.ended.get()?;
    match &ended.found {
        Found::Many(values) => values.get(index).map(|(verdict, value)| (verdict, value.as_ref())),
        Found::Value(value) if index == 0 => Some((&ended.verdict, value.as_ref())),
        _ => None,
    }
}

capi! {
    /// Asks that an operation ends early. From any thread, before the operation is released; it
    /// does not wait. The operation completes with KARST_CANCELLED, unless it ends by itself
    /// first. A write or a commit that was begun is not taken back: it may take effect although
    /// its operation says that it was cancelled.
    call karst_op_cancel(op: *const Op) {
        if let Some(op) = op.as_ref() {
            op.cancelled.store(true, Ordering::Release);
            let waker = op.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(waker) = waker { waker.wake(); }
        }
    }
    /// Ends an operation whose completion was delivered, and all that the completion points to.
    /// Once for each operation.
    call karst_op_release(op: *const Op) { Op::release(op); }
    /// The answer for one of the keys of an operation that is completed: its status; its value,
    /// or null where there is none; and its message, or null. They are the operation's. Null can
    /// be passed for what is not wanted. KARST_INVALID_ARGUMENT: there is no such key.
    call karst_op_result(op: *const Op, index: usize, value: *mut *const c_char, value_length: *mut usize, message: *mut *const c_char) -> c_int {
        let (found, text, status) = match answer(op, index) {
            Some((verdict, value)) => (
                value.map(|value| parts(value.as_ref())),
                verdict.message.as_ref().map_or(std::ptr::null(), |text| text.as_ptr()),
                verdict.status,
            ),
            None => (None, std::ptr::null(), Status::InvalidArgument),
        };
        put(value, found.map_or(std::ptr::null(), |(data, _)| data));
        put(value_length, found.map_or(0, |(_, length)| length));
        put(message, text);
        status as c_int
    }
    /// The transaction that a commit could not commit, as a new handle for the caller to go on
    /// with, roll back or destroy. Null if there is none, or if it was taken.
    call karst_op_take_transaction(op: *const Op) -> *mut TransactionHandle {
        let found = op.as_ref().and_then(|op| op.ended.get()).map(|ended| &ended.found);
        let Some(Found::NotCommitted(_, transaction)) = found else { return std::ptr::null_mut() };
        let taken = transaction.lock().unwrap_or_else(PoisonError::into_inner).take();
        taken.map_or(std::ptr::null_mut(), give)
    }
}
