//! A ring of tickets that may be finished in any order and are published in ticket order: the
//! published prefix carries a number (the value of its last ticket) that readers load with one
//! atomic read.
//!
//! Tickets 0, 1, 2, ... are entered in sequence under a lock of the caller's, each with a value
//! that is not below its predecessor's, and later finished by the caller that did a ticket's work.
//! The ring provides the number of published tickets, the value of the last one, and wakes for
//! waiters for a ticket or for a value.
//!
//! A ticket whose work is done may be *acknowledged* before the earlier ones are finished. A reader
//! that must not miss acknowledged tickets takes [`acknowledged`](PublishRing::acknowledged), and
//! waits until [`value`](PublishRing::value) has reached it.
//!
//! Invariants:
//! - A ticket is published when it and all before it are finished; everything its finisher did
//!   before `finish` is seen by a reader that loads a value that includes it.
//! - There is no publisher thread: a caller that finishes a ticket publishes all that can be, so a
//!   sleeping thread delays only the tickets after its own.
//! - `acknowledged` never falls and is never below a `value` that was loaded before. It is always
//!   the value of an entered ticket, so `value` reaches it.
//! - A slot is reused only after its ticket is published (`has_room`), so slots need no reset and
//!   no generation.
//!
//! Ordering: `finish` stores `done`, then checks from `published` on; a publisher moves
//! `published`, then checks the next `done`. A `SeqCst` fence between store and check on both sides
//! makes at least one see the other, so no finished ticket stays unpublished. The same pairing of
//! `waiting` with `published` ensures that no waiter sleeps through a publication.

use karst_mem::sync::{AtomicU64, Mutex, Ordering, fence};
use readers::Readers;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, loom))]
mod pending_loom_tests;
mod readers;
#[cfg(all(test, not(loom)))]
mod tests;

/// Calls a waker, which is code of an unknown executor. Catches its panic, because other waiters
/// must be woken.
fn wake(waker: Waker) {
    // Not reported: this crate has no reporting, and the program's panic hook has run.
    let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
}

/// Aligned to a cache line, for data that different threads write.
#[repr(align(64))]
struct Padded<T>(T);

#[repr(align(64))]
struct Slot {
    /// The slot's ticket plus one once that ticket is finished.
    done: AtomicU64,
    value: AtomicU64,
    /// 1 if `waker` holds a waker, otherwise 0.
    waiting: AtomicU64,
    waker: Mutex<Option<Waker>>,
}

/// Tickets finished in any order, published in ticket order.
pub(crate) struct PublishRing {
    slots: Box<[Slot]>,
    /// Tickets below this are published.
    published: Padded<AtomicU64>,
    front: Padded<Front>,
    readers: Padded<Readers>,
}

/// State that readers load, in one cache line.
struct Front {
    /// The value of the last published ticket; may lag behind `published` until it is stored.
    value: AtomicU64,
    /// The largest value of a ticket that was acknowledged before it was published; 0 if none was.
    acknowledged: AtomicU64,
}

impl PublishRing {
    /// Creates an empty ring for at most `capacity` tickets (rounded up to a power of two); `value`
    /// is published already.
    pub(crate) fn new(capacity: usize, value: u64) -> Self {
        let slot = |_| Slot {
            done: AtomicU64::new(0),
            value: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            waker: Mutex::new(None),
        };
        Self {
            slots: (0..capacity.next_power_of_two()).map(slot).collect(),
            published: Padded(AtomicU64::new(0)),
            front: Padded(Front { value: AtomicU64::new(value), acknowledged: AtomicU64::new(0) }),
            readers: Padded(Readers::new()),
        }
    }

    /// Returns the value of the last published ticket.
    #[inline]
    pub(crate) fn value(&self) -> u64 {
        self.front.0.value.load(Ordering::Acquire)
    }

    /// Returns the largest value that is published or acknowledged. The work it includes is visible
    /// once [`value`](Self::value) has reached it.
    #[inline]
    pub(crate) fn acknowledged(&self) -> u64 {
        // Loaded in this order, because the result must be at least any `value` loaded before.
        let acknowledged = self.front.0.acknowledged.load(Ordering::Acquire);
        acknowledged.max(self.value())
    }

    /// Acknowledges `ticket`, entered with `value` and finished:
    /// [`acknowledged`](Self::acknowledged) includes it from now on.
    ///
    /// Writes no shared memory if the ticket is published already, the usual case.
    #[inline]
    pub(crate) fn acknowledge(&self, ticket: u64, value: u64) {
        if !self.is_published(ticket, value) {
            self.front.0.acknowledged.fetch_max(value, Ordering::AcqRel);
        }
    }

    /// Returns true if any reader is [registered](Self::register_reader). The result may be stale.
    #[inline]
    pub(crate) fn has_readers(&self) -> bool {
        self.readers.0.any()
    }

    /// Registers `waker` to be called once [`value`](Self::value) has reached `value`, which an
    /// entered ticket must have. The caller checks again afterwards, before it sleeps. The
    /// registration lasts until then; wakes may be spurious.
    pub(crate) fn register_reader(&self, value: u64, waker: &Waker) {
        self.readers.0.register(value, waker);
    }

    /// Returns the number of published tickets.
    #[inline]
    pub(crate) fn published(&self) -> u64 {
        self.published.0.load(Ordering::Acquire)
    }

    /// Returns true if `ticket` may be entered now. Stays true once it is.
    #[inline]
    pub(crate) fn has_room(&self, ticket: u64) -> bool {
        ticket - self.published() < self.slots.len() as u64
    }

    /// Enters the next ticket. Called for each ticket once, in order, under one lock.
    ///
    /// # Panics
    /// If there is no room; see [`has_room`](Self::has_room).
    #[inline]
    pub(crate) fn enter(&self, ticket: u64, value: u64) {
        assert!(self.has_room(ticket), "ticket {ticket} does not fit the ring");
        self.slot(ticket).value.store(value, Ordering::Relaxed);
    }

    /// Finishes `ticket`, and publishes all that can be. Called once for each ticket.
    pub(crate) fn finish(&self, ticket: u64) {
        self.finish_run(ticket, 1);
    }

    /// Finishes `count` tickets from `first` on, with a single fence. Another thread may publish
    /// them and be about to store their value; [`is_published`](Self::is_published) does not return
    /// before it is stored.
    pub(crate) fn finish_run(&self, first: u64, count: u64) {
        for ticket in first..first + count {
            let slot = self.slot(ticket);
            debug_assert!(
                slot.done.load(Ordering::Relaxed) != ticket + 1,
                "ticket {ticket} is finished twice"
            );
            slot.done.store(ticket + 1, Ordering::Release);
        }
        fence(Ordering::SeqCst);
        let mut wakers = Vec::new();
        let mut next = self.published.0.load(Ordering::Acquire);
        while let Some((end, value)) = self.finished_from(next) {
            let moved = self.published.0.compare_exchange(next, end, Ordering::AcqRel, Ordering::Acquire);
            if let Err(now) = moved {
                next = now;
                continue;
            }
            self.front.0.value.fetch_max(value, Ordering::AcqRel);
            fence(Ordering::SeqCst);
            self.readers.0.reached(value, &mut wakers);
            for ticket in next..end {
                let slot = self.slot(ticket);
                if slot.waiting.load(Ordering::Relaxed) != 0 {
                    wakers.extend(slot.take_waker());
                }
            }
            next = end;
        }
        // Woken last, because a wake is a system call, and no ticket should wait for another's
        // wake.
        wakers.into_iter().for_each(wake);
    }

    /// Returns the end of the run of finished tickets that begins with `next`, and the value of its
    /// last ticket; `None` if `next` is not finished.
    ///
    /// The result is valid only if `published` still is `next` afterwards, because published slots
    /// may be reused.
    #[inline]
    fn finished_from(&self, next: u64) -> Option<(u64, u64)> {
        let mut run = None;
        for ticket in next..next + self.slots.len() as u64 {
            if !self.is_finished(ticket) {
                break;
            }
            run = Some((ticket + 1, self.slot(ticket).value.load(Ordering::Relaxed)));
        }
        run
    }

    /// Returns true if `ticket`, which is not published yet or only just, was finished.
    #[inline]
    pub(crate) fn is_finished(&self, ticket: u64) -> bool {
        self.slot(ticket).done.load(Ordering::Acquire) == ticket + 1
    }

    /// Returns true if `ticket`, entered with `value`, is published. [`value`](Self::value)
    /// includes it from then on.
    #[inline]
    pub(crate) fn is_published(&self, ticket: u64, value: u64) -> bool {
        if self.published() <= ticket {
            return false;
        }
        // The publisher may be asleep between its two stores, so this thread stores the value too.
        if self.value() < value {
            self.front.0.value.fetch_max(value, Ordering::AcqRel);
        }
        true
    }

    /// Registers `waker` to be called when `ticket` is published, or by [`wake`](Self::wake). The
    /// caller checks again afterwards, before it sleeps. Wakes may be spurious.
    pub(crate) fn register(&self, ticket: u64, waker: &Waker) {
        let slot = self.slot(ticket);
        let before = {
            let mut held = slot.waker.lock();
            slot.waiting.store(1, Ordering::Relaxed);
            match &*held {
                Some(same) if same.will_wake(waker) => None,
                _ => held.replace(waker.clone()),
            }
        };
        fence(Ordering::SeqCst);
        // The replaced waker may be that of an earlier ticket of this slot, whose publisher will
        // find the new one instead.
        if let Some(before) = before {
            wake(before);
        }
    }

    /// Wakes the waiters for all tickets from `first` up to, not including, `end`.
    pub(crate) fn wake(&self, first: u64, end: u64) {
        fence(Ordering::SeqCst);
        let first = first.max(end.saturating_sub(self.slots.len() as u64));
        for ticket in first..end {
            let slot = self.slot(ticket);
            if slot.waiting.load(Ordering::Relaxed) != 0
                && let Some(waker) = slot.take_waker()
            {
                wake(waker);
            }
        }
    }

    #[inline]
    fn slot(&self, ticket: u64) -> &Slot {
        // The conversion loses nothing: capacities are far below the range of usize, and the mask
        // keeps the index valid.
        &self.slots[ticket as usize & (self.slots.len() - 1)]
    }
}

impl Slot {
    fn take_waker(&self) -> Option<Waker> {
        let mut held = self.waker.lock();
        self.waiting.store(0, Ordering::Relaxed);
        held.take()
    }
}

impl fmt::Debug for PublishRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublishRing")
            .field("capacity", &self.slots.len())
            .field("published", &self.published())
            .field("value", &self.value())
            .finish()
    }
}
