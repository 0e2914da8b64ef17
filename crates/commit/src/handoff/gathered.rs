//! Small work that is deferred, so that several pieces are done together.
//!
//! It takes pieces of work whose tickets are the next to be published, in sequence. They are done
//! together, by the caller that completes a group or by the first that asks; then their tickets are
//! finished.
//!
//! Invariants:
//! - The tickets of waiting work are the first ones that are not published.
//! - Work waits only while no caller waits for it: it does not wait if the next ticket is finished
//!   already, or if there are [`Waiters`]; and a caller that finishes a ticket in any other way
//!   [settles](Gathered::settle) afterwards.
//!
//! Lock: held while work is done, so that a caller that finds waiting work also waits for its
//! completion; only the ring's wakers are locked under it.
//!
//! Ordering: a writer that leaves work stores `count`, fences, and checks for waiters behind it; a
//! waiter sets its mark, fences, and checks `count`. A reader that synchronizes with an
//! acknowledged writer sees its `count`.

use super::waiters::Waiters;
use crate::ring::PublishRing;
use karst_mem::sync::{AtomicU64, Mutex, MutexGuard, Ordering, fence};

/// Deferred work of several tickets. `T` accumulates the work; its default is empty.
pub(crate) struct Gathered<T> {
    /// Number of waiting pieces. Changed under the lock.
    count: AtomicU64,
    waiting: Mutex<Waiting<T>>,
}

struct Waiting<T> {
    work: T,
    /// Number of tickets of the work.
    tickets: u64,
    /// Value of the last ticket.
    last_value: u64,
}

impl<T: Default> Default for Gathered<T> {
    fn default() -> Self {
        let waiting = Waiting { work: T::default(), tickets: 0, last_value: 0 };
        Self { count: AtomicU64::new(0), waiting: Mutex::new(waiting) }
    }
}

impl<T> Gathered<T> {
    /// Leaves the work of `ticket`, entered with `value`, if the ticket is next, the lock is free,
    /// and the work `fits`. `add` returns true if the group is full; then, or if there are
    /// `waiters`, `work` does all before this returns. Returns true if the work was taken.
    pub(crate) fn leave(
        &self,
        ring: &PublishRing,
        (ticket, value): (u64, u64),
        fits: impl FnOnce(&T) -> bool,
        add: impl FnOnce(&mut T) -> bool,
        waiters: &Waiters,
        work: impl FnOnce(&mut T),
    ) -> bool {
        let Some(mut waiting) = self.waiting.try_lock() else { return false };
        if ring.published() + waiting.tickets != ticket || !fits(&waiting.work) {
            return false;
        }
        let enough = add(&mut waiting.work);
        waiting.tickets += 1;
        waiting.last_value = value;
        self.count.store(waiting.tickets, Ordering::Release);
        fence(Ordering::SeqCst);
        if enough || ring.is_finished(ticket + 1) || waiters.any() {
            self.do_all(ring, waiting, work);
        }
        true
    }

    /// Returns true if work waits. A waiter calls it after a `SeqCst` fence.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// Does all waiting work.
    #[cold]
    pub(crate) fn settle(&self, ring: &PublishRing, work: impl FnOnce(&mut T)) {
        self.do_all(ring, self.waiting.lock(), work);
    }

    fn do_all(&self, ring: &PublishRing, waiting: MutexGuard<'_, Waiting<T>>, work: impl FnOnce(&mut T)) {
        if waiting.tickets > 0 {
            let mut doing = Doing { ring, count: &self.count, waiting };
            work(&mut doing.waiting.work);
        }
    }
}

/// Work in progress. Its tickets are finished even if it panics; otherwise later tickets would wait
/// for ever.
struct Doing<'a, T> {
    ring: &'a PublishRing,
    count: &'a AtomicU64,
    waiting: MutexGuard<'a, Waiting<T>>,
}

impl<T> Drop for Doing<'_, T> {
    fn drop(&mut self) {
        let (first, tickets) = (self.ring.published(), std::mem::take(&mut self.waiting.tickets));
        self.ring.finish_run(first, tickets);
        let published = self.ring.is_published(first + tickets - 1, self.waiting.last_value);
        debug_assert!(published, "all before them were published");
        // Ordering: `Release`, so that a caller that reads 0 sees the tickets published, and their
        // value.
        self.count.store(0, Ordering::Release);
    }
}

impl<T> std::fmt::Debug for Gathered<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gathered").field("count", &self.count).finish_non_exhaustive()
    }
}
