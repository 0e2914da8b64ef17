//! Synchronization primitives under shuttle, which decides the thread to run at each of them.
//!
//! Locks and atomics are shuttle's with the interface of the production ones. An exchanged value is
//! arc-swap's behind a shuttle switch point: shuttle's threads all run on one operating system
//! thread, and none stops within arc-swap. An event is a list behind a lock.
//!
//! Trap: a primitive created here belongs to one execution, so none may live in a `static`.

use shuttle::sync as imp;
pub use shuttle::sync::atomic;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::{Arc, PoisonError, TryLockError};
use std::task::{Context, Poll, Waker};

/// A mutex without poisoning, like parking_lot's.
#[derive(Debug, Default)]
pub struct Mutex<T>(imp::Mutex<T>);

/// A held mutex. `None` only while a condition variable has it.
pub struct MutexGuard<'a, T>(Option<imp::MutexGuard<'a, T>>);

impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Self(imp::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(MutexGuard(Some(guard))),
            Err(TryLockError::Poisoned(poisoned)) => Some(MutexGuard(Some(poisoned.into_inner()))),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

const HELD: &str = "a guard holds its lock";

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.0.as_deref().expect(HELD)
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_deref_mut().expect(HELD)
    }
}

#[derive(Debug, Default)]
pub struct Condvar(imp::Condvar);

impl Condvar {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.0.take().expect(HELD);
        guard.0 = Some(self.0.wait(held).unwrap_or_else(PoisonError::into_inner));
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// A read-write lock without poisoning, like parking_lot's.
#[derive(Debug, Default)]
pub struct RwLock<T>(imp::RwLock<T>);

impl<T> RwLock<T> {
    pub fn read(&self) -> imp::RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn write(&self) -> imp::RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An arc-swap value; every access passes a shuttle switch point.
#[derive(Default)]
pub struct Observed<S> {
    inner: S,
    point: atomic::AtomicBool,
}

pub type ArcSwap<T> = Observed<arc_swap::ArcSwap<T>>;
pub type ArcSwapOption<T> = Observed<arc_swap::ArcSwapOption<T>>;

impl<T> Observed<arc_swap::ArcSwap<T>> {
    pub fn from_pointee(value: T) -> Self {
        Self { inner: arc_swap::ArcSwap::from_pointee(value), point: atomic::AtomicBool::default() }
    }
}

impl<S> Deref for Observed<S> {
    type Target = S;
    fn deref(&self) -> &S {
        self.point.load(atomic::Ordering::SeqCst);
        &self.inner
    }
}

impl<S: fmt::Debug> fmt::Debug for Observed<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// An event like that of `karst_io`: a listener created before the check misses no notification.
#[derive(Debug, Default)]
pub struct Event(Arc<Mutex<Listeners>>);

#[derive(Debug, Default)]
struct Listeners {
    next: u64,
    /// Listeners not notified yet, with their wakers.
    waiting: BTreeMap<u64, Option<Waker>>,
}

impl Event {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn listen(&self) -> Listener {
        let mut listeners = self.0.lock();
        let number = listeners.next;
        listeners.next += 1;
        listeners.waiting.insert(number, None);
        Listener { number, of: self.0.clone() }
    }

    /// Notifies all listeners; the engine uses no other count.
    pub fn notify(&self, count: usize) {
        assert_eq!(count, usize::MAX);
        let notified = std::mem::take(&mut self.0.lock().waiting);
        notified.into_values().flatten().for_each(karst_io::wake);
    }
}

#[derive(Debug)]
pub struct Listener {
    number: u64,
    of: Arc<Mutex<Listeners>>,
}

impl Future for Listener {
    type Output = ();
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match self.of.lock().waiting.get_mut(&self.number) {
            Some(waker) => *waker = Some(cx.waker().clone()),
            None => return Poll::Ready(()),
        }
        Poll::Pending
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let left = self.of.lock().waiting.remove(&self.number);
        drop(left);
    }
}
