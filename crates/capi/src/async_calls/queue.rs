//! The completion queue.
//!
//! Lock: `state`, held for a few moves; the descriptor is written and read under it, so that it is
//! readable exactly while there are completions.

use super::op::{Completion, Op, Sink};
use crate::boundary::*;
use libc::c_int;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// `karst_completion_queue_t`.
#[derive(Debug, Default)]
pub struct Queue {
    state: Mutex<State>,
    came: Condvar,
}

#[derive(Debug, Default)]
struct State {
    ended: VecDeque<Arc<Op>>,
    /// Operations that were begun and not taken.
    outstanding: usize,
    sleeping: usize,
    /// Made when somebody asks for it; until then no completion costs a system call.
    eventfd: Option<File>,
    destroyed: bool,
}

impl Queue {
    /// The queue of a handle, kept for an operation.
    pub(super) unsafe fn share(queue: *const Queue) -> Option<Arc<Queue>> {
        if queue.is_null() {
            return None;
        }
        // SAFETY: handles come from `Arc::into_raw`, and the caller's is alive.
        unsafe {
            Arc::increment_strong_count(queue);
            Some(Arc::from_raw(queue))
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn expect_one(&self) {
        self.state().outstanding += 1;
    }

    /// Moves completions out, as many as there is room for.
    unsafe fn take(&self, state: &mut State, max: usize, out: *mut Completion) -> usize {
        let count = state.ended.len().min(max);
        if count == 0 || out.is_null() {
            return 0;
        }
        for (at, op) in state.ended.drain(..count).enumerate() {
            // SAFETY: the caller has room for `max`.
            unsafe { out.add(at).write(Op::handed_over(&op)) };
        }
        state.outstanding -= count;
        if state.ended.is_empty()
            && let Some(mut eventfd) = state.eventfd.as_ref()
        {
            let _ = eventfd.read(&mut [0; 8]);
        }
        count
    }

    fn eventfd(&self) -> std::io::Result<c_int> {
        let mut state = self.state();
        if let Some(eventfd) = &state.eventfd {
            return Ok(eventfd.as_raw_fd());
        }
        // SAFETY: the descriptor is new and nobody else's.
        let eventfd = unsafe {
            let fd = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
            if fd < 0 {
                return Err(std::io::Error::last_os_error());
            }
            File::from_raw_fd(fd)
        };
        if !state.ended.is_empty() {
            let _ = (&eventfd).write(&1u64.to_ne_bytes());
        }
        Ok(state.eventfd.insert(eventfd).as_raw_fd())
    }
}

impl Sink for Queue {
    fn push(self: Arc<Self>, op: Arc<Op>) {
        let mut state = self.state();
        if state.destroyed {
            drop(state);
            // SAFETY: the caller gave its share up with the queue.
            unsafe { Op::release(Arc::as_ptr(&op)) };
            return;
        }
        state.ended.push_back(op);
        if state.ended.len() == 1
            && let Some(mut eventfd) = state.eventfd.as_ref()
        {
            let _ = eventfd.write(&1u64.to_ne_bytes());
        }
        let wake = state.sleeping > 0;
        drop(state);
        if wake {
            self.came.notify_one();
        }
    }
}

capi! {
    /// A queue for the completions of any number of operations, of any reactors and databases.
    /// From any thread; so are all its functions.
    call karst_completion_queue_create() -> *const Queue { Arc::into_raw(Arc::new(Queue::default())) }
    /// Ends a queue, without waiting. Its operations that were not taken are released: those that
    /// are outstanding go on unless they were cancelled, and nobody is told of their end. Their
    /// karst_op_t are not to be used any more.
    call karst_completion_queue_destroy(queue: *const Queue) {
        if queue.is_null() { return }
        let queue = Arc::from_raw(queue);
        let ended = {
            let mut state = queue.state();
            state.destroyed = true;
            std::mem::take(&mut state.ended)
        };
        for op in ended { Op::release(Arc::as_ptr(&op)) }
    }
    /// A descriptor that is readable while there are completions to take, for poll, epoll and the
    /// like. It is the queue's: not to be read, written or closed. -1 if there is none to be had.
    call karst_completion_queue_fd(queue: *const Queue) -> c_int {
        queue.as_ref().map_or(-1, |queue| {
            or_say("karst_completion_queue_fd", queue.eventfd().map_err(|e| invalid(e.to_string()))).unwrap_or(-1)
        })
    }
    /// Takes completions, the oldest first, without waiting: their number, up to `max`. Each is
    /// to be released by karst_op_release(completion.op).
    call karst_completion_queue_poll(queue: *const Queue, max: usize, out: *mut Completion) -> usize {
        queue.as_ref().map_or(0, |queue| queue.take(&mut queue.state(), max, out))
    }
    /// Waits until there is a completion, then takes as karst_completion_queue_poll does. 0 after
    /// `timeout_us` microseconds; a negative number is no limit. It drives no reactor: not to be
    /// called on the thread that polls the reactor of these operations.
    call karst_completion_queue_wait(queue: *const Queue, max: usize, out: *mut Completion, timeout_us: i64) -> usize {
        let Some(queue) = queue.as_ref() else { return 0 };
        if max == 0 || out.is_null() { return 0 }
        let until = u64::try_from(timeout_us).ok().and_then(|limit| Instant::now().checked_add(Duration::from_micros(limit)));
        let mut state = queue.state();
        while state.ended.is_empty() {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) { return 0 }
            state.sleeping += 1;
            state = match left {
                Some(left) => queue.came.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
                None => queue.came.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
            state.sleeping -= 1;
        }
        queue.take(&mut state, max, out)
    }
    /// How many operations were begun for this queue and have not been taken from it.
    call karst_completion_queue_outstanding(queue: *const Queue) -> usize {
        queue.as_ref().map_or(0, |queue| queue.state().outstanding)
    }
}
