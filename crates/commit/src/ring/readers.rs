//! Those who wait until the published value has reached theirs: reads that raced with a write.
//!
//! In: values with wakers. Out: the wakers of those whose value was reached. Only the ring calls
//! this.
//!
//! Invariant: `least` is at most the smallest value that anyone waits for.
//!
//! Ordering: who waits lowers `least`, fences (`SeqCst`) and looks at the value again before
//! sleeping; who raises the value fences and looks at `least` then. One of them sees the other.

use karst_mem::sync::{AtomicU64, Mutex, Ordering, fence};
use std::task::Waker;

/// See the module's head.
pub(super) struct Readers {
    /// `u64::MAX` if nobody waits. Changed under the lock.
    least: AtomicU64,
    waiting: Mutex<Vec<(u64, Waker)>>,
}

impl Readers {
    pub(super) fn new() -> Self {
        Self { least: AtomicU64::new(u64::MAX), waiting: Mutex::new(Vec::new()) }
    }

    /// Has `waker` called once `value` is reached. Look again after this.
    pub(super) fn register(&self, value: u64, waker: &Waker) {
        {
            let mut waiting = self.waiting.lock();
            waiting.push((value, waker.clone()));
            // Why a plain store: the lock is held.
            self.least.store(self.least.load(Ordering::Relaxed).min(value), Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
    }

    /// Whether anybody waits.
    #[inline]
    pub(super) fn any(&self) -> bool {
        // Ordering: only steers.
        self.least.load(Ordering::Relaxed) != u64::MAX
    }

    /// Moves the wakers of those whose value is at most `value` to `wakers`. The caller has raised
    /// the value and fenced.
    #[inline]
    pub(super) fn reached(&self, value: u64, wakers: &mut Vec<Waker>) {
        if self.least.load(Ordering::Relaxed) <= value {
            self.take(value, wakers);
        }
    }

    #[cold]
    fn take(&self, value: u64, wakers: &mut Vec<Waker>) {
        let mut waiting = self.waiting.lock();
        let mut least = u64::MAX;
        waiting.retain(|(wanted, waker)| {
            let reached = *wanted <= value;
            match reached {
                true => wakers.push(waker.clone()),
                false => least = least.min(*wanted),
            }
            !reached
        });
        self.least.store(least, Ordering::Relaxed);
    }
}
