//! The atomics, the lock and the cell that the crate is written against: the standard ones, or loom's
//! when the crate is compiled with `--cfg loom`, so that loom explores the very types that ship.
//!
//! Crate-private. Invariant: no module of this crate names `std::sync::atomic` but through here.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};

#[cfg(loom)]
pub(crate) use loom::sync::Arc;
#[cfg(not(loom))]
pub(crate) use std::sync::Arc;

/// A number that only steers how something is done: any value is right, so it is no part of what loom explores.
pub(crate) type Steering = std::sync::atomic::AtomicUsize;

#[cfg(loom)]
pub(crate) use loom::sync::MutexGuard;
#[cfg(not(loom))]
pub(crate) use parking_lot::MutexGuard;

/// A lock without poisoning: nothing here leaves broken state behind when it unwinds.
pub(crate) struct Mutex<T>(#[cfg(loom)] loom::sync::Mutex<T>, #[cfg(not(loom))] parking_lot::Mutex<T>);

#[cfg(not(loom))]
impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(parking_lot::Mutex::new(value))
    }
    pub(crate) fn lock(&self) -> parking_lot::MutexGuard<'_, T> {
        self.0.lock()
    }
    pub(crate) fn try_lock(&self) -> Option<parking_lot::MutexGuard<'_, T>> {
        self.0.try_lock()
    }
}

#[cfg(loom)]
impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }
    pub(crate) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
        self.0.lock().expect("a model thread panicked")
    }
    pub(crate) fn try_lock(&self) -> Option<loom::sync::MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }
}

/// A cell whose accesses loom sees (it reports a read that races with a write).
#[cfg(loom)]
pub(crate) type Cell<T> = loom::cell::UnsafeCell<T>;

/// A cell whose accesses loom sees; outside loom a bare `UnsafeCell`.
#[cfg(not(loom))]
#[repr(transparent)]
pub(crate) struct Cell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> Cell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }
    #[inline(always)]
    pub(crate) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }
    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }
}

/// A place for a value that is exchanged as a whole, and read without a lock.
#[cfg(not(loom))]
pub(crate) struct Swap<T>(arc_swap::ArcSwap<T>);
/// A value that was in a `Swap`, kept in hand.
#[cfg(not(loom))]
pub type Pinned<T> = arc_swap::Guard<Arc<T>>;

#[cfg(not(loom))]
impl<T> Swap<T> {
    pub(crate) fn new(value: Arc<T>) -> Self {
        Self(arc_swap::ArcSwap::new(value))
    }
    pub(crate) fn load(&self) -> Pinned<T> {
        self.0.load()
    }
    pub(crate) fn load_full(&self) -> Arc<T> {
        self.0.load_full()
    }
    pub(crate) fn store(&self, value: Arc<T>) {
        self.0.store(value);
    }
}

// Why a lock in the model, and std's `Arc`: what is modelled is what is done with the value; arc-swap and `Arc` are taken at their word. So crates above see the same types with loom and without.
#[cfg(loom)]
pub(crate) struct Swap<T>(Mutex<std::sync::Arc<T>>);
/// A value that was in a `Swap`, kept in hand.
#[cfg(loom)]
#[derive(Debug)]
pub struct Pinned<T>(std::sync::Arc<T>);

#[cfg(loom)]
impl<T> Pinned<T> {
    /// As arc-swap's guard.
    pub fn from_inner(value: std::sync::Arc<T>) -> Self {
        Self(value)
    }
    /// As arc-swap's guard.
    pub fn into_inner(pinned: Self) -> std::sync::Arc<T> {
        pinned.0
    }
}

#[cfg(loom)]
impl<T> std::ops::Deref for Pinned<T> {
    type Target = std::sync::Arc<T>;
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

#[cfg(loom)]
impl<T> Swap<T> {
    pub(crate) fn new(value: std::sync::Arc<T>) -> Self {
        Self(Mutex::new(value))
    }
    pub(crate) fn load(&self) -> Pinned<T> {
        Pinned(self.load_full())
    }
    pub(crate) fn load_full(&self) -> std::sync::Arc<T> {
        self.0.lock().clone()
    }
    pub(crate) fn store(&self, value: std::sync::Arc<T>) {
        *self.0.lock() = value;
    }
}
