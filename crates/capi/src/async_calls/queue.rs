//! The completion queue.
//!
//! Lock: `state`, held for a few moves; the eventfd is written and read under it, so that it is
//! readable exactly while completions are queued.

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
    /// Operations that were started for this queue and not taken from it.
    outstanding: usize,
    sleeping: usize,
    /// Created by the first call that asks for the descriptor; before that no completion costs a
    /// system call.
    eventfd: Option<File>,
    destroyed: bool,
}

impl Queue {
    /// Returns a new reference to the queue of a handle; `None` if it is null.
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

    /// Moves at most `max` completions into `out`, and returns their number.
    unsafe fn take(&self, state: &mut State, max: usize, out: *mut Completion) -> usize {
        let count = state.ended.len().min(max);
        if count == 0 || out.is_null() {
            return 0;
        }
        for (at, op) in state.ended.drain(..count).enumerate() {
            // SAFETY: `out` has room for `max` completions.
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
        // SAFETY: the descriptor is new and has no other owner.
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
            // SAFETY: the caller gave up its references by destroying the queue.
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
    /// Creates a queue for the completions of any number of operations, of any reactors and
    /// databases. All its functions can be called from any thread.
    call karst_completion_queue_create() -> *const Queue { Arc::into_raw(Arc::new(Queue::default())) }
    /// Destroys a queue without blocking. Operations that were not taken from it are released:
    /// those that are outstanding continue unless they were cancelled, and their completions are
    /// dropped. Their karst_op_t must not be used any more.
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
    /// Returns a descriptor that is readable while completions are queued, for poll, epoll and the
    /// like. The queue owns it: it must not be read, written or closed. -1 if it cannot be created.
    call karst_completion_queue_fd(queue: *const Queue) -> c_int {
        queue.as_ref().map_or(-1, |queue| {
            or_say("karst_completion_queue_fd", queue.eventfd().map_err(|e| invalid(e.to_string()))).unwrap_or(-1)
        })
    }
    /// Takes up to `max` completions, oldest first, without blocking, and returns their number.
    /// Each must be released by karst_op_release(completion.op).
    call karst_completion_queue_poll(queue: *const Queue, max: usize, out: *mut Completion) -> usize {
        queue.as_ref().map_or(0, |queue| queue.take(&mut queue.state(), max, out))
    }
    /// Blocks until a completion is queued, then takes completions like
    /// karst_completion_queue_poll. Returns 0 after `timeout_us` microseconds; a negative number is
    /// no limit. It does not run a reactor: must not be called on the thread that polls the reactor
    /// of these operations.
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
    /// Returns the number of operations started for this queue and not taken from it.
    call karst_completion_queue_outstanding(queue: *const Queue) -> usize {
        queue.as_ref().map_or(0, |queue| queue.state().outstanding)
    }
}
