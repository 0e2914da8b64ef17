//! CPU time of a future, summed over all threads that poll it.
//!
//! Excludes work that the future hands to other threads.
//!
//! The thread's CPU clock is read around every poll and not only at both ends, because a thread
//! polls other tasks in between. Jobs are pending only for reads and writes, which makes it one or
//! two system calls for each of these.

use crate::env::Env;
use crate::sync::counting::{AtomicU64, Ordering};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// See [`Env::cpu_timed`].
#[must_use = "futures do nothing unless polled"]
pub struct CpuTimed<'a, F> {
    env: &'a Env,
    inner: Pin<Box<F>>,
    nanos: &'a AtomicU64,
}

impl Env {
    /// Wraps `future` to add its CPU time to `nanos`, in nanoseconds. Adds nothing if the clock
    /// does not measure CPU time.
    #[doc(hidden)]
    pub fn cpu_timed<'a, F: Future>(&'a self, future: F, nanos: &'a AtomicU64) -> CpuTimed<'a, F> {
        CpuTimed { env: self, inner: Box::pin(future), nanos }
    }
}

impl<F: Future> Future for CpuTimed<'_, F> {
    type Output = F::Output;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let env = self.env;
        let clock = env.clock();
        let before = clock.thread_cpu_time();
        let polled = self.inner.as_mut().poll(cx);
        let spent = clock.thread_cpu_time().saturating_sub(before);
        self.nanos.fetch_add(u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        polled
    }
}

impl<F> std::fmt::Debug for CpuTimed<'_, F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CpuTimed")
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::block_on;

    #[test]
    fn work_counts_and_waiting_does_not() {
        let env = Env::posix();
        let (idle, busy) = (AtomicU64::new(0), AtomicU64::new(0));
        let rested = crate::sleep(&env, std::time::Duration::from_millis(30));
        block_on(&env, env.cpu_timed(rested, &idle));
        let worked = async { (0..30_000_000u64).fold(1u64, |x, y| std::hint::black_box(x ^ y)) };
        block_on(&env, env.cpu_timed(worked, &busy));
        let (idle, busy) = (idle.into_inner(), busy.into_inner());
        assert!(busy > idle, "{busy} ns of work, {idle} ns of sleep");
    }
}
