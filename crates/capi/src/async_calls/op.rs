//! The operation and its completion, shared by all asynchronous calls.

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

/// `karst_completion_t`: the outcome of an operation that has ended.
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

/// `karst_op_t`: an asynchronous call, from its start until its caller releases it.
pub struct Op {
    user_data: *mut c_void,
    place: Place,
    cancelled: AtomicBool,
    /// The waker of the operation's task, while the task waits.
    waker: Mutex<Option<Waker>>,
    /// The outcome. Set once, before the completion is delivered.
    ended: OnceLock<Ended>,
}

// SAFETY: `user_data` is only handed back; the header's contract states the threads that call a
// callback; the `Arc` beside an entry's pointers keeps their iterator alive.
unsafe impl Send for Op {}
// SAFETY: as above.
unsafe impl Sync for Op {}

/// A receiver of ended operations: the completion queue.
pub(super) trait Sink: Send + Sync {
    fn push(self: Arc<Self>, op: Arc<Op>);
}

/// Destination of an operation's completion.
pub(super) enum Place {
    Queue(Arc<dyn Sink>),
    Callback(unsafe extern "C" fn(*const Completion)),
}

#[derive(Debug)]
struct Ended {
    verdict: Verdict,
    found: Found,
}

/// Outcome of an operation that did not fail.
#[derive(Debug)]
pub(crate) enum Found {
    Nothing,
    Value(Option<Value>),
    Many(Vec<(Verdict, Option<Value>)>),
    /// An iterator's entry, or `None` if it is on none, and the iterator that owns the bytes.
    Entry(Option<Lent>, #[allow(dead_code, reason = "keeps what is lent")] Arc<dyn Any + Send + Sync>),
    /// A transaction whose commit failed, with the error.
    NotCommitted(Error, Mutex<Option<TransactionHandle>>),
}

/// Pointers to an iterator's entry, valid until the iterator moves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lent {
    pub(crate) key: *const [u8],
    pub(crate) value: *const [u8],
}

// SAFETY: only the caller dereferences the pointers, by the header's contract.
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

    /// Returns true if the operation is cancelled; otherwise a later cancel calls `waker`.
    pub(super) fn is_cancelled_or_wakes(&self, waker: &Waker) -> bool {
        {
            let mut slot = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
            if !slot.as_ref().is_some_and(|slot| slot.will_wake(waker)) {
                *slot = Some(waker.clone());
            }
        }
        // Ordering: a cancel sets the flag and then takes the waker, under the waker's lock.
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

    /// Delivers the outcome. Called once.
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
                // SAFETY: the caller supplied this callback; `self` keeps the completion's pointers
                // valid.
                unsafe { call(&completion) }
            }
            Place::Queue(queue) => queue.clone().push(self),
        }
    }

    /// Drops the caller's reference.
    pub(crate) unsafe fn release(op: *const Op) {
        if !op.is_null() {
            drop(unsafe { Arc::from_raw(op) });
        }
    }

    /// Returns the completion, which carries the caller's reference.
    pub(crate) fn handed_over(op: &Arc<Op>) -> Completion {
        op.completion()
    }
}

fn parts(bytes: &[u8]) -> (*const c_char, usize) {
    (bytes.as_ptr().cast(), bytes.len())
}

/// Returns the answer for the key at `index`.
unsafe fn answer<'a>(op: *const Op, index: usize) -> Option<(&'a Verdict, Option<&'a Value>)> {
    let ended = unsafe { op.as_ref() }?.ended.get()?;
    match &ended.found {
        Found::Many(values) => values.get(index).map(|(verdict, value)| (verdict, value.as_ref())),
        Found::Value(value) if index == 0 => Some((&ended.verdict, value.as_ref())),
        _ => None,
    }
}

capi! {
    /// Asks an operation to end early. Callable from any thread until the operation is released;
    /// does not block. The operation completes with KARST_CANCELLED, unless it ends before that. A
    /// write or a commit that has started is not undone: it may take effect although its status is
    /// KARST_CANCELLED.
    call karst_op_cancel(op: *const Op) {
        if let Some(op) = op.as_ref() {
            op.cancelled.store(true, Ordering::Release);
            let waker = op.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(waker) = waker { waker.wake(); }
        }
    }
    /// Releases an operation whose completion was delivered, and all memory that the completion
    /// points to. Called once for each operation.
    call karst_op_release(op: *const Op) { Op::release(op); }
    /// Returns the status of one key of a completed operation, and stores its value and its
    /// message, or null for an absent key or message. The memory is the operation's. A pointer
    /// argument may be null. KARST_INVALID_ARGUMENT: `index` is out of range.
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
    /// Returns the transaction of a failed commit as a new handle for the caller to continue, roll
    /// back or destroy. Null if the operation has none, or if it was taken.
    call karst_op_take_transaction(op: *const Op) -> *mut TransactionHandle {
        let found = op.as_ref().and_then(|op| op.ended.get()).map(|ended| &ended.found);
        let Some(Found::NotCommitted(_, transaction)) = found else { return std::ptr::null_mut() };
        let taken = transaction.lock().unwrap_or_else(PoisonError::into_inner).take();
        taken.map_or(std::ptr::null_mut(), give)
    }
}
