//! The result of a spawned task, and the handle that waits for it: in async code or by blocking.

use super::task::TaskKey;
use super::{Message, Shared};
use crate::current::finish_attached;
use crate::promise::Promise;
use crate::sync::{AtomicBool, Ordering};
use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

/// The reason that a task has no result.
#[non_exhaustive]
pub enum JoinError {
    /// The task was aborted, or its reactor was shut down.
    Cancelled,
    /// The task panicked, with this payload.
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

/// The shared state of a task and its handle: the task's outcome, and the handle's control.
pub(crate) struct Join<T> {
    outcome: Promise<Result<T, JoinError>>,
    pub(super) control: Arc<Control>,
}

/// State through which a handle aborts a task, independent of the result's type.
#[derive(Default)]
pub(super) struct Control {
    pub(super) key: OnceLock<TaskKey>,
    pub(super) aborted: AtomicBool,
}

impl<T> Join<T> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { outcome: Promise::new(), control: Arc::default() })
    }

    pub(crate) fn finish(&self, result: Result<T, JoinError>) {
        self.outcome.end(result);
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.outcome.is_ended()
    }

    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Result<T, JoinError>> {
        self.outcome.poll(cx)
    }
}

impl<T> JoinHandle<T> {
    /// Blocks until the task has ended. Must not be called on the reactor that runs the task,
    /// because it would wait for itself.
    ///
    /// # Errors
    /// The task was cancelled or panicked.
    pub fn join(self) -> Result<T, JoinError> {
        assert!(!self.shared.is_this_thread(), "a reactor's task blocked on a task of the same reactor");
        finish_attached();
        self.join.outcome.wait()
    }

    /// Drops the task at its next await, unless it has ended.
    pub fn abort(&self) {
        self.join.control.aborted.store(true, Ordering::SeqCst);
        if let Some(key) = self.join.control.key.get() {
            self.shared.send(Message::Abort(*key));
        }
    }

    /// Returns true if the task has ended.
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
