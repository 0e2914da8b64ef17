//! The locks, atomics, threads and thread locals of this crate: a mutex and a condition variable
//! that survive a fork, and the standard library's other types.
//!
//! Not parking_lot, because it keeps its sleepers in a table of the process. A forked child
//! inherits the entries of threads that it does not have, and its own threads, which reuse their
//! memory, corrupt the table. The standard library's locks sleep on a word of their own.
//!
//! Poison is ignored: every state in this crate is consistent between any two statements, which
//! makes a holder's panic harmless to other threads.
//!
//! With `--cfg loom` locks and atomics are loom's, which then explores the types that ship. With
//! `--cfg shuttle` all of this is shuttle's, which explores whole databases on their threads;
//! [`time`] then advances by itself.
//!
//! Invariant: no other module names `std::sync`'s locks and atomics, `std::thread` or
//! `thread_local!`, except those that `cargo xtask tidy` lists.

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

/// Process-wide numbers (counts, names) that decide nothing another thread waits for. loom and
/// shuttle do not explore them, and they may outlive an execution.
pub(crate) mod counting {
    pub(crate) use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

    /// Returns the next number of the counter `names`, unique in this process.
    #[cfg(not(shuttle))]
    #[inline]
    pub(crate) fn next_name(names: &AtomicU64) -> u64 {
        // Ordering: Relaxed, because the number publishes nothing.
        names.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the next number; each shuttle execution begins with the same one, because executions
    /// must be replayable.
    #[cfg(shuttle)]
    pub(crate) fn next_name(_: &AtomicU64) -> u64 {
        shuttle::lazy_static! { static ref NAMES: AtomicU64 = AtomicU64::new(1); }
        NAMES.fetch_add(1, Ordering::Relaxed)
    }
}

/// In the loom model, the fence between `SeqCst` accesses, which loom treats as weaker than they
/// are. Does nothing elsewhere.
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

    /// Waits for at most `timeout`. Returns the guard of `mutex`, and true if the time ran out.
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

    /// Waits without a clock: a short timeout ends once the other threads have had their turn. A
    /// long one never ends, which lets a test find a missing wake-up.
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

/// Simulated time under shuttle: a number that grows with every reading and by the length of each
/// wait.
#[cfg(shuttle)]
pub(crate) mod time {
    use std::cell::Cell;
    use std::time::Duration;

    /// Minimum length of a wait that never times out.
    pub(crate) const LONG: Duration = Duration::from_secs(1);
    const LOOK: Duration = Duration::from_micros(1);

    // The standard library's thread local, because all threads of an execution share one thread of
    // the operating system, and with it this value.
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
