//! The caller of an operation: a thread that may block, or a task that must not. One implementation
//! serves both forms of a call.
//!
//! In: code written as a future. Out: for a thread, the same code with every wait made on the
//! calling thread; for a task, a future that waits only for wakers.
//!
//! Invariant: code that runs for [`Caller::Thread`] never returns `Pending`, because each of its
//! waits blocks until it ends. [`finish`] therefore polls once and needs no executor.

use karst_io::{Env, block_on};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// The kind of caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A thread that may block.
    Thread,
    /// A task of some executor, or of a reactor, which must not block its thread.
    Task,
}

impl Caller {
    /// Awaits `future`: a `Thread` blocks until it is ready, a `Task` yields to its executor.
    pub async fn wait<F: Future>(self, env: &Env, future: F) -> F::Output {
        match self {
            Caller::Thread => block_on(env, future),
            Caller::Task => future.await,
        }
    }
}

/// Returns the output of code that runs for [`Caller::Thread`], polled once.
///
/// # Panics
/// If the code has awaited something otherwise than through [`Caller::wait`] or a blocking call.
pub fn finish<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("what runs for a thread waits on that thread"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    async fn slept(by: Caller, env: &Env) -> u32 {
        by.wait(env, karst_io::sleep(env, Duration::from_millis(1))).await;
        7
    }

    #[test]
    fn the_same_code_serves_a_thread_and_a_task() {
        let env = Env::posix();
        assert_eq!(finish(slept(Caller::Thread, &env)), 7);
        assert_eq!(block_on(&env, slept(Caller::Task, &env)), 7);
    }
}
