//! Atomics and mutex of the lock code: those of std and parking_lot, or loom's when the crate is
//! compiled with `--cfg loom`, so that loom explores the types that ship.
//!
//! Crate-private. Loom explores [`holder`](crate::holder) and [`lock`](crate::lock), with the
//! events of `event-listener`, which has such a switch of its own.

#[cfg(loom)]
use loom::sync as imp;
#[cfg(not(loom))]
use std::sync as imp;

pub(crate) use imp::atomic::{AtomicU8, AtomicUsize, Ordering};

#[cfg(not(loom))]
pub(crate) use parking_lot::Mutex;

/// Loom's mutex with parking_lot's interface.
#[cfg(loom)]
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

#[cfg(loom)]
impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }
    pub(crate) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
        self.0.lock().expect("a model thread panicked")
    }
}
