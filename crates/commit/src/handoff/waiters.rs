//! The number of callers that wait.
//!
//! Ordering: a waiter counts itself, fences, and checks its condition; a caller that makes the
//! condition true fences and checks for waiters.

use karst_mem::sync::{AtomicUsize, Ordering, fence};

/// Number of callers that wait.
#[derive(Debug)]
pub(crate) struct Waiters(AtomicUsize);

impl Default for Waiters {
    fn default() -> Self {
        Self(AtomicUsize::new(0))
    }
}

/// A waiter, counted while it lives.
#[derive(Debug)]
pub(crate) struct Waiter<'a>(&'a Waiters);

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.count_out();
    }
}

impl Waiters {
    /// Counts a waiter. The caller checks its condition afterwards.
    pub(crate) fn enter(&self) -> Waiter<'_> {
        self.count_in();
        Waiter(self)
    }

    /// Counts a waiter that cannot hold a [`Waiter`], and [counts itself out](Self::count_out).
    pub(crate) fn count_in(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Counts a waiter out.
    pub(crate) fn count_out(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns true if there are waiters. Called after a `SeqCst` fence.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}
