//! Calls that block, made on a thread of their own, or, where none can be had, by whoever awaits
//! them: the future of [`crate::Env::run_blocking`].

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

/// The result of a job that runs on a thread that may block. It wakes its future from that thread.
#[must_use = "the job runs anyway, but its result is lost"]
pub struct Blocking<T> {
    outcome: Arc<Promise<thread::Result<T>>>,
    /// Where the job is if there was no thread for it.
    pub(crate) stranded: Option<Stranded>,
}

/// A job for a thread that may block, and what waits for its result.
pub(crate) fn job<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> (BlockingJob, Blocking<T>) {
    let (run, blocking) = apart(job);
    let run = move || {
        let _at_work = AtWork::new();
        run();
    };
    (Box::new(run), blocking)
}

/// The same for a thread that nobody else uses: such a job may wait for others.
pub(crate) fn apart<T: Send + 'static>(
    job: impl FnOnce() -> T + Send + 'static,
) -> (impl FnOnce() + Send + 'static, Blocking<T>) {
    let outcome = Arc::new(Promise::new());
    let theirs = outcome.clone();
    let run = move || theirs.end(catch_unwind(AssertUnwindSafe(job)));
    (run, Blocking { outcome, stranded: None })
}

impl<T> Blocking<T> {
    /// Whether the job has ended, so that the next poll gives its result.
    pub fn is_done(&self) -> bool {
        self.outcome.is_ended()
    }
}

impl<T> Future for Blocking<T> {
    type Output = T;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        // Why here: whoever awaits holds no lock.
        if let Some(stranded) = &self.stranded {
            stranded.help();
        }
        // Why resumed: a bug in the job is a bug of who asked for it.
        self.outcome.poll(cx).map(|result| result.unwrap_or_else(|panic| resume_unwind(panic)))
    }
}

impl<T> fmt::Debug for Blocking<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Blocking")
    }
}
