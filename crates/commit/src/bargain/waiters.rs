//! The number of callers that wait.
//!
//! Ordering: who waits is counted, fences, and looks for what it waits for; who makes that true
//! fences and looks for those who wait.

use karst_mem::sync::{AtomicUsize, Ordering, fence};

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Waiters(AtomicUsize);

impl Default for Waiters {
    fn default() -> Self {
        Self(AtomicUsize::new(0))
    }
}

/// One who waits, counted for as long as it lives.
#[derive(Debug)]
pub(crate) struct Waiter<'a>(&'a Waiters);

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.count_out();
    }
}

impl Waiters {
    /// Counts one who waits. It looks for what it waits for after this.
    pub(crate) fn enter(&self) -> Waiter<'_> {
        self.count_in();
        Waiter(self)
    }

    /// The same for one who cannot hold a [`Waiter`], and [counts itself out](Self::count_out).
    pub(crate) fn count_in(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// One less.
    pub(crate) fn count_out(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether anybody waits. Behind a `SeqCst` fence of the caller's.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}
