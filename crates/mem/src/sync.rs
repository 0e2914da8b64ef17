//! The atomics, the lock and the cell of this crate: the standard ones; loom's with `--cfg loom`,
//! which then explores the types that ship; or shuttle's with `--cfg shuttle`, which explores the
//! crates above.
//!
//! For this crate and for the parts of the crate `commit` that loom explores. Invariant: no other
//! module of this crate names `std::sync::atomic`.

#[cfg(loom)]
use loom::sync as imp;
#[cfg(shuttle)]
use shuttle::sync as imp;
#[cfg(not(any(loom, shuttle)))]
use std::sync as imp;

pub use imp::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};

#[cfg(loom)]
pub(crate) use loom::sync::Arc;
#[cfg(not(loom))]
pub(crate) use std::sync::Arc;

/// A number that is only a hint: any value is correct, therefore loom does not explore it.
pub(crate) type Steering = std::sync::atomic::AtomicUsize;

#[cfg(any(loom, shuttle))]
pub use imp::MutexGuard;
#[cfg(not(any(loom, shuttle)))]
pub use parking_lot::MutexGuard;

/// A lock without poisoning, because no code here leaves broken state behind when it unwinds.
pub struct Mutex<T>(
    #[cfg(any(loom, shuttle))] imp::Mutex<T>,
    #[cfg(not(any(loom, shuttle)))] parking_lot::Mutex<T>,
);

#[cfg(not(any(loom, shuttle)))]
impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Self(parking_lot::Mutex::new(value))
    }
    pub fn lock(&self) -> parking_lot::MutexGuard<'_, T> {
        self.0.lock()
    }
    pub fn try_lock(&self) -> Option<parking_lot::MutexGuard<'_, T>> {
        self.0.try_lock()
    }
}

#[cfg(any(loom, shuttle))]
impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Self(imp::Mutex::new(value))
    }
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
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

/// A cell for a value that is replaced as a whole and read without a lock.
#[cfg(not(loom))]
pub(crate) struct Swap<T>(arc_swap::ArcSwap<T>, #[cfg(shuttle)] Point);
/// A value loaded from a `Swap`, kept alive.
#[cfg(not(loom))]
pub type Pinned<T> = arc_swap::Guard<Arc<T>>;

#[cfg(not(loom))]
impl<T> Swap<T> {
    pub(crate) fn new(value: Arc<T>) -> Self {
        Self(
            arc_swap::ArcSwap::new(value),
            #[cfg(shuttle)]
            Point::default(),
        )
    }
    pub(crate) fn load(&self) -> Pinned<T> {
        #[cfg(shuttle)]
        self.1.pass();
        self.0.load()
    }
    pub(crate) fn load_full(&self) -> Arc<T> {
        #[cfg(shuttle)]
        self.1.pass();
        self.0.load_full()
    }
    pub(crate) fn store(&self, value: Arc<T>) {
        #[cfg(shuttle)]
        self.1.pass();
        self.0.store(value);
    }
}

/// A point where shuttle may switch threads. That is enough for arc-swap, because all of shuttle's
/// threads share one thread of the operating system, and none stops within arc-swap.
#[cfg(shuttle)]
#[derive(Default)]
struct Point(AtomicBool);

#[cfg(shuttle)]
impl Point {
    fn pass(&self) {
        self.0.load(Ordering::SeqCst);
    }
}

// A lock and the standard library's `Arc` in the model, because the model covers the use of the
// value, while arc-swap and `Arc` are trusted. Crates above then see the same types with loom and
// without.
#[cfg(loom)]
pub(crate) struct Swap<T>(Mutex<std::sync::Arc<T>>);
/// A value loaded from a `Swap`, kept alive.
#[cfg(loom)]
#[derive(Debug)]
pub struct Pinned<T>(std::sync::Arc<T>);

#[cfg(loom)]
impl<T> Pinned<T> {
    /// Wraps a value like arc-swap's guard.
    pub fn from_inner(value: std::sync::Arc<T>) -> Self {
        Self(value)
    }
    /// Unwraps the value like arc-swap's guard.
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
