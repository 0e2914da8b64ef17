//! Calls that block, made on a thread of their own: the future of [`crate::Env::run_blocking`].

use crate::current::AtWork;
use crate::sync::Mutex;
use crate::thread_pool::Job;
use std::any::Any;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// The result of a job that runs on a thread that may block. It wakes its future from that thread.
#[must_use = "the job runs anyway, but its result is lost"]
pub struct Blocking<T> {
    shared: Arc<Mutex<State<T>>>,
}

enum State<T> {
    Running(Option<Waker>),
    Done(std::result::Result<T, Box<dyn Any + Send>>),
    Taken,
}

/// A job for a thread that may block, and what waits for its result.
pub(crate) fn job<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> (Job, Blocking<T>) {
    let shared = Arc::new(Mutex::new(State::Running(None)));
    let theirs = shared.clone();
    let run = move || {
        let _at_work = AtWork::new();
        let result = catch_unwind(AssertUnwindSafe(job));
        let before = std::mem::replace(&mut *theirs.lock(), State::Done(result));
        if let State::Running(Some(waker)) = before {
            waker.wake();
        }
    };
    (Box::new(run), Blocking { shared })
}

impl<T> Blocking<T> {
    /// Whether the job has ended, so that the next poll gives its result.
    pub fn is_done(&self) -> bool {
        matches!(*self.shared.lock(), State::Done(_))
    }
}

impl<T> Future for Blocking<T> {
    type Output = T;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let mut state = self.shared.lock();
        if let State::Running(waker) = &mut *state {
            let old = waker.replace(cx.waker().clone());
            drop(state);
            drop(old);
            return Poll::Pending;
        }
        match std::mem::replace(&mut *state, State::Taken) {
            State::Done(Ok(value)) => Poll::Ready(value),
            // Why: a bug in the job is a bug of who asked for it.
            State::Done(Err(panic)) => resume_unwind(panic),
            _ => panic!("a future was polled after it had completed"),
        }
    }
}

impl<T> fmt::Debug for Blocking<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Blocking")
    }
}
