//! The future of [`crate::Env::run_blocking`]: a blocking call made on a thread of its own or, if
//! no thread can be started, on the thread that awaits it.

use crate::current::AtWork;
use crate::promise::Promise;
use crate::sync::thread;
use crate::thread_pool::{BlockingJob, Stranded};
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The result of a job on a thread that may block. The job's thread wakes the waiter.
#[must_use = "the job runs anyway, but its result is lost"]
pub struct Blocking<T> {
    outcome: Arc<Promise<thread::Result<T>>>,
    /// The job's place in the pool's queue if the pool had no thread for it.
    pub(crate) stranded: Option<Stranded>,
}

/// Wraps `job` for a thread that may block; returns it with the future of its result.
pub(crate) fn job<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> (BlockingJob, Blocking<T>) {
    let (run, blocking) = apart(job);
    let run = move || {
        let _at_work = AtWork::new();
        run();
    };
    (Box::new(run), blocking)
}

/// Wraps `job` for a thread of its own, where it may wait for other jobs.
pub(crate) fn apart<T: Send + 'static>(
    job: impl FnOnce() -> T + Send + 'static,
) -> (impl FnOnce() + Send + 'static, Blocking<T>) {
    let outcome = Arc::new(Promise::new());
    let theirs = outcome.clone();
    let run = move || theirs.end(catch_unwind(AssertUnwindSafe(job)));
    (run, Blocking { outcome, stranded: None })
}

impl<T> Blocking<T> {
    /// Returns true if the job has ended and the next poll returns its result.
    pub fn is_done(&self) -> bool {
        self.outcome.is_ended()
    }
}

impl<T> Future for Blocking<T> {
    type Output = T;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        // The stranded job runs here, because a caller that awaits holds no lock.
        if let Some(stranded) = &self.stranded {
            stranded.help();
        }
        // The panic resumes here, because a bug in the job is a bug of its caller.
        self.outcome.poll(cx).map(|result| result.unwrap_or_else(|panic| resume_unwind(panic)))
    }
}

impl<T> fmt::Debug for Blocking<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Blocking")
    }
}
