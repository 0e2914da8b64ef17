//! A mutex and a condition variable that survive a fork.
//!
//! Why not parking_lot: it keeps its sleepers in a table of the process. A child inherits the entries of threads that
//! it does not have, and its own threads, whose memory is reused, get tangled up in them. The standard library's sleep
//! on a word of their own.
//!
//! A panic of a holder is no reason for others to panic: the states in this crate are whole between any two
//! statements, so poison is ignored.
//!
//! With `--cfg loom` they, and the atomics here, are loom's, so that it explores the very types that ship.

#[cfg(loom)]
use loom::sync as imp;
#[cfg(not(loom))]
use std::sync as imp;
use std::sync::PoisonError;
use std::time::Duration;

pub(crate) use imp::MutexGuard;
pub(crate) use imp::atomic::{AtomicBool, AtomicU64, Ordering};

/// Stands in the model for what `SeqCst` accesses on both sides of it promise, which loom takes for weaker ones. Nothing outside of it.
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

    /// The guard, and whether the time was up.
    pub(crate) fn wait_for<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> (MutexGuard<'a, T>, bool) {
        let (guard, result) = self.0.wait_timeout(guard, timeout).unwrap_or_else(PoisonError::into_inner);
        (guard, result.timed_out())
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}
