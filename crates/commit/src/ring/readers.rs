//! Readers that wait until the published value has reached theirs, after a race with a write.
//!
//! Holds wakers by value, and hands out those whose value was reached. Only the ring calls this.
//!
//! Invariant: `least` is at most the smallest value that any reader waits for.
//!
//! Ordering: a reader lowers `least`, fences (`SeqCst`) and checks the value again before it
//! sleeps; a publisher raises the value, fences and then checks `least`. At least one sees the
//! other.

use karst_mem::sync::{AtomicU64, Mutex, Ordering, fence};
use std::task::Waker;

/// Waiting readers, with the smallest value they wait for.
pub(super) struct Readers {
    /// `u64::MAX` if no reader waits. Changed under the lock.
    least: AtomicU64,
    waiting: Mutex<Vec<(u64, Waker)>>,
}

impl Readers {
    pub(super) fn new() -> Self {
        Self { least: AtomicU64::new(u64::MAX), waiting: Mutex::new(Vec::new()) }
    }

    /// Registers `waker` to be called once `value` is reached. The caller checks the value
    /// afterwards.
    pub(super) fn register(&self, value: u64, waker: &Waker) {
        {
            let mut waiting = self.waiting.lock();
            waiting.push((value, waker.clone()));
            // A plain store suffices because the lock is held.
            self.least.store(self.least.load(Ordering::Relaxed).min(value), Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
    }

    /// Returns true if a reader waits.
    #[inline]
    pub(super) fn any(&self) -> bool {
        // Ordering: `Relaxed`, because the result is only a hint.
        self.least.load(Ordering::Relaxed) != u64::MAX
    }

    /// Moves the wakers of readers whose value is at most `value` to `wakers`. The caller has
    /// raised the value and fenced.
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
