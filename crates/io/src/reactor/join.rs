//! The result of a spawned task, and the handle that waits for it: in async code or by blocking.

use super::task::TaskKey;
use super::{Message, Shared};
use crate::sync::{Condvar, Mutex};
use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};

/// Why a task has no result.
pub enum JoinError {
    /// It was aborted, or its reactor was shut down.
    Cancelled,
    /// It panicked, with this payload.
    Panicked(Box<dyn Any + Send>),
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cancelled => f.write_str("the task was cancelled"),
            Self::Panicked(payload) => {
                let text = payload.downcast_ref::<&str>().copied();
                let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
                write!(f, "the task panicked: {}", text.unwrap_or("(no message)"))
            }
        }
    }
}

impl std::error::Error for JoinError {}

/// Waits for a task: await it, or call [`JoinHandle::join`]. Dropping it lets the task run on.
pub struct JoinHandle<T> {
    pub(super) join: Arc<Join<T>>,
    pub(super) shared: Arc<Shared>,
}

/// Where a task's end is told, and waited for.
pub(crate) struct Join<T> {
    state: Mutex<State<T>>,
    finished: Condvar,
    pub(super) control: Arc<Control>,
}

/// What a handle can do to a task of any result.
#[derive(Default)]
pub(super) struct Control {
    pub(super) key: OnceLock<TaskKey>,
    pub(super) aborted: AtomicBool,
}

enum State<T> {
    Running(Option<Waker>),
    Finished(Result<T, JoinError>),
    Taken,
}

impl<T> Join<T> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State::Running(None)),
            finished: Condvar::new(),
            control: Arc::default(),
        })
    }

    pub(crate) fn finish(&self, result: Result<T, JoinError>) {
        let mut state = self.state.lock();
        let State::Running(waker) = &mut *state else { return };
        let waker = waker.take();
        *state = State::Finished(result);
        self.finished.notify_all();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(crate) fn is_finished(&self) -> bool {
        !matches!(*self.state.lock(), State::Running(_))
    }

    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Result<T, JoinError>> {
        let mut state = self.state.lock();
        if let State::Running(waker) = &mut *state {
            let old = waker.replace(cx.waker().clone());
            drop(state);
            drop(old);
            return Poll::Pending;
        }
        match std::mem::replace(&mut *state, State::Taken) {
            State::Finished(result) => Poll::Ready(result),
            _ => panic!("a future was polled after it had completed"),
        }
    }
}

impl<T> JoinHandle<T> {
    /// Block until the task has ended. Not to be called on the reactor that runs it: it would wait for itself.
    ///
    /// # Errors
    /// It was cancelled or panicked.
    pub fn join(self) -> Result<T, JoinError> {
        assert!(!self.shared.is_this_thread(), "a reactor's task blocked on a task of the same reactor");
        let mut state = self.join.state.lock();
        while matches!(*state, State::Running(_)) {
            state = self.join.finished.wait(state);
        }
        match std::mem::replace(&mut *state, State::Taken) {
            State::Finished(result) => result,
            _ => unreachable!("the result is taken by value"),
        }
    }

    /// Drop the task at its next await, unless it has ended.
    pub fn abort(&self) {
        self.join.control.aborted.store(true, Ordering::SeqCst);
        if let Some(key) = self.join.control.key.get() {
            self.shared.send(Message::Abort(*key));
        }
    }

    /// Whether the task has ended.
    pub fn is_finished(&self) -> bool {
        self.join.is_finished()
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.join.poll(cx)
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JoinHandle")
    }
}
