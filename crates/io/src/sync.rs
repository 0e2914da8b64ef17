//! The locks, atomics, threads and thread locals that the crate is written against: a mutex and a
//! condition variable that survive a fork, and the standard library's others.
//!
//! Why not parking_lot: it keeps its sleepers in a table of the process. A child inherits the
//! entries of threads that it does not have, and its own threads, whose memory is reused, get
//! tangled up in them. The standard library's sleep on a word of their own.
//!
//! Poison is ignored: the states in this crate are whole between any two statements, so a holder
//! that panics is no reason for others to panic.
//!
//! With `--cfg loom` locks and atomics are loom's, so that it explores the very types that ship.
//! With `--cfg shuttle` all of this is shuttle's, which explores what whole databases do on their
//! threads; [`time`] then goes on by itself.
//!
//! Invariant: no other module names `std::sync`'s locks and atomics, `std::thread` or
//! `thread_local!`, but for what `cargo xtask tidy` lists.

#[cfg(loom)]
use loom::sync as imp;
#[cfg(shuttle)]
use shuttle::sync as imp;
#[cfg(not(any(loom, shuttle)))]
use std::sync as imp;
use std::sync::PoisonError;
use std::time::Duration;

pub(crate) use imp::MutexGuard;
pub(crate) use imp::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

#[cfg(shuttle)]
pub(crate) use shuttle::{hint::spin_loop, sync::mpsc, thread, thread_local};
#[cfg(not(shuttle))]
pub(crate) use std::{hint::spin_loop, sync::mpsc, thread, thread_local};

/// Numbers of the process by which nothing is decided that another thread waits for (counts,
/// names), so they are no part of what loom and shuttle explore and may outlive an execution.
pub(crate) mod counting {
    pub(crate) use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

    /// The next name of those that `names` gives out in this process.
    #[cfg(not(shuttle))]
    #[inline]
    pub(crate) fn next_name(names: &AtomicU64) -> u64 {
        // Ordering: a name only; nothing is published with it.
        names.fetch_add(1, Ordering::Relaxed)
    }

    /// The same where an execution is to be replayed: each begins with the same names.
    #[cfg(shuttle)]
    pub(crate) fn next_name(_: &AtomicU64) -> u64 {
        shuttle::lazy_static! { static ref NAMES: AtomicU64 = AtomicU64::new(1); }
        NAMES.fetch_add(1, Ordering::Relaxed)
    }
}

/// Stands in the model for what `SeqCst` accesses on both sides of it promise, which loom takes for
/// weaker ones. Nothing outside of it.
#[inline(always)]
pub(crate) fn between_seq_cst() {
    #[cfg(loom)]
    imp::atomic::fence(Ordering::SeqCst);
}

#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(imp::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(imp::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Condvar(imp::Condvar);

impl Condvar {
    pub(crate) fn new() -> Self {
        Self(imp::Condvar::new())
    }

    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// The guard of `mutex`, and whether the time was up.
    #[cfg(not(shuttle))]
    pub(crate) fn wait_for<'a, T>(
        &self,
        _mutex: &'a Mutex<T>,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> (MutexGuard<'a, T>, bool) {
        let (guard, result) = self.0.wait_timeout(guard, timeout).unwrap_or_else(PoisonError::into_inner);
        (guard, result.timed_out())
    }

    /// The same where there is no clock: a short time is up when the others have had their turn. A
    /// long one never is, so that who is not woken is found.
    #[cfg(shuttle)]
    pub(crate) fn wait_for<'a, T>(
        &self,
        mutex: &'a Mutex<T>,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> (MutexGuard<'a, T>, bool) {
        if timeout >= time::LONG {
            return (self.wait(guard), false);
        }
        drop(guard);
        thread::yield_now();
        time::pass(timeout);
        (mutex.lock(), true)
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// What stands for time where shuttle says who goes on: a number that grows with every look and by
/// each wait.
#[cfg(shuttle)]
pub(crate) mod time {
    use std::cell::Cell;
    use std::time::Duration;

    /// A wait of so long, or longer, is one without an end.
    pub(crate) const LONG: Duration = Duration::from_secs(1);
    const LOOK: Duration = Duration::from_micros(1);

    // Why std's: all threads of an execution share it, and they share one thread of the operating
    // system.
    std::thread_local! {
        static NOW: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    }

    pub(crate) fn pass(span: Duration) {
        NOW.set(NOW.get() + span);
    }

    pub(crate) fn now() -> Duration {
        pass(LOOK);
        NOW.get()
    }
}
