//! Small work that is put off, so that several pieces are done together.
//!
//! In: pieces of work whose tickets are the next to be published, one after the other. Out: the
//! same work, done together by whoever completes a group, or by the first who asks; then the
//! tickets are finished.
//!
//! Invariants:
//! - The tickets of what waits are the first that are not published.
//! - Work waits only while nobody waits for it: not if the next ticket is finished already, or
//!   there are [`Waiters`]; and whoever finishes a ticket in any other way
//!   [settles](Gathered::settle) after that.
//!
//! Lock: held while work is done, so that who finds that something waits also waits until it is
//! done; nothing else is taken under it but the ring's wakers.
//!
//! Ordering: who leaves work stores `count`, fences, and looks for those who wait behind it; they
//! make their mark, fence, and look at `count`. Who is told of a write by its writer sees its
//! `count`.

use super::waiters::Waiters;
use crate::ring::PublishRing;
use karst_mem::sync::{AtomicU64, Mutex, MutexGuard, Ordering, fence};

/// See the module's head. `T` is what waits, with a default for nothing.
pub(crate) struct Gathered<T> {
    /// How many pieces wait. Changed under the lock.
    count: AtomicU64,
    waiting: Mutex<Waiting<T>>,
}

struct Waiting<T> {
    work: T,
    /// Tickets that the work is of.
    tickets: u64,
    /// The last one's value.
    last_value: u64,
}

impl<T: Default> Default for Gathered<T> {
    fn default() -> Self {
        let waiting = Waiting { work: T::default(), tickets: 0, last_value: 0 };
        Self { count: AtomicU64::new(0), waiting: Mutex::new(waiting) }
    }
}

impl<T> Gathered<T> {
    /// Leaves the work of `ticket`, entered with `value`, if it is next, nobody else is at it, and
    /// it `fits` what waits. `add` says whether there is enough now; then, or if there are
    /// `waiters`, all is done with `work` before this returns. Returns whether it was taken.
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

    /// Whether anything waits. Behind a `SeqCst` fence of those who wait for it.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// Has everything done that waits.
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

/// Work that is being done. Its tickets are finished whatever happens, or everyone behind them
/// waits for ever.
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
        // Ordering: who finds nothing waiting finds it published, and the value with it.
        self.count.store(0, Ordering::Release);
    }
}

impl<T> std::fmt::Debug for Gathered<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gathered").field("count", &self.count).finish_non_exhaustive()
    }
}
