//! A ring of tickets that may be finished in any order and are published in theirs: the published
//! prefix carries a number (the value of its last ticket) that readers load with one atomic read.
//!
//! In: tickets 0, 1, 2, ... entered one after the other under a lock of the caller's, each with a
//! value that is not below its predecessor's; later `finish` by whoever did a ticket's work. Out:
//! how many tickets are published, the value of the last one, and a wake for who waits for a ticket
//! or for a value.
//!
//! A ticket whose work is done may be *acknowledged* before those ahead of it are finished. Whoever
//! must not miss what was acknowledged takes [`acknowledged`](PublishRing::acknowledged) as the
//! value to go by, and waits until [`value`](PublishRing::value) has reached it.
//!
//! Invariants:
//! - A ticket is published when it and all before it are finished; everything its finisher did
//!   before `finish` is seen by whoever loads a value that includes it.
//! - There is no publisher: whoever finishes a ticket publishes all that can be, so a thread that
//!   sleeps holds up only what is behind its own ticket.
//! - `acknowledged` never falls and is never below a `value` that was loaded before. It is always
//!   the value of an entered ticket, so `value` reaches it.
//! - A slot is used again only after its ticket is published (`has_room`), so slots need no reset
//!   and no generation.
//!
//! Ordering: `finish` stores `done`, then looks from `published` on; a publisher moves `published`,
//! then looks at the next `done`. A `SeqCst` fence between store and look on both sides makes one
//! of them see the other, so nothing finished stays unpublished. The same pairing, `waiting`
//! against `published`, makes sure that nobody sleeps through a publication.

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

/// Calls a waker, which is code of an executor that nobody here knows. Its panic ends here: others
/// are to be woken.
fn wake(waker: Waker) {
    // Why not told: this crate tells nobody anything, and the program's panic hook has.
    let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
}

/// A line of its own for what different threads write.
#[repr(align(64))]
struct Padded<T>(T);

#[repr(align(64))]
struct Slot {
    /// The slot's ticket plus one once that ticket is finished.
    done: AtomicU64,
    value: AtomicU64,
    /// Whether `waker` holds one.
    waiting: AtomicU64,
    waker: Mutex<Option<Waker>>,
}

/// Tickets finished in any order, published in theirs. See the module's head.
pub(crate) struct PublishRing {
    slots: Box<[Slot]>,
    /// Tickets below this are published.
    published: Padded<AtomicU64>,
    front: Padded<Front>,
    readers: Padded<Readers>,
}

/// What readers load: one line of memory.
struct Front {
    /// The value of the last published ticket; may lag behind `published` for as long as it takes
    /// to store it.
    value: AtomicU64,
    /// The largest value of a ticket that was acknowledged before it was published; 0 if none was.
    acknowledged: AtomicU64,
}

impl PublishRing {
    /// A ring for at most `capacity` tickets at a time (rounded up to a power of two), with nothing
    /// in it; `value` is what is published so far.
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

    /// The value of the last published ticket.
    #[inline]
    pub(crate) fn value(&self) -> u64 {
        self.front.0.value.load(Ordering::Acquire)
    }

    /// The largest value that is published or acknowledged. What it includes can be relied on once
    /// [`value`](Self::value) has reached it.
    #[inline]
    pub(crate) fn acknowledged(&self) -> u64 {
        // Why this order: the result is to be at least what `value` says from here on back.
        let acknowledged = self.front.0.acknowledged.load(Ordering::Acquire);
        acknowledged.max(self.value())
    }

    /// Says that `ticket`, entered with `value` and finished, is relied on from now on:
    /// [`acknowledged`](Self::acknowledged) includes it.
    ///
    /// Costs the others nothing if the ticket is published already, as it mostly is.
    #[inline]
    pub(crate) fn acknowledge(&self, ticket: u64, value: u64) {
        if !self.is_published(ticket, value) {
            self.front.0.acknowledged.fetch_max(value, Ordering::AcqRel);
        }
    }

    /// Whether any reader is [registered](Self::register_reader). What it says may be old.
    #[inline]
    pub(crate) fn has_readers(&self) -> bool {
        self.readers.0.any()
    }

    /// Has `waker` called once [`value`](Self::value) has reached `value`, which an entered ticket
    /// must have. Look again after this, before going to sleep. Once registered it stays so until
    /// then; wakes may be spurious.
    pub(crate) fn register_reader(&self, value: u64, waker: &Waker) {
        self.readers.0.register(value, waker);
    }

    /// How many tickets are published.
    #[inline]
    pub(crate) fn published(&self) -> u64 {
        self.published.0.load(Ordering::Acquire)
    }

    /// Whether `ticket` may be entered now. Once it may, it stays so.
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

    /// Says that the work of `ticket` is done, and publishes what can be. Called once for each
    /// ticket.
    pub(crate) fn finish(&self, ticket: u64) {
        self.finish_run(ticket, 1);
    }

    /// The same for `count` tickets from `first` on, at the price of one. Another thread may
    /// publish them and be about to store their value; [`is_published`](Self::is_published) does
    /// not return before it is there.
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
        // Why at the end: a wake is a system call, and nobody's ticket shall wait for another's
        // wake.
        wakers.into_iter().for_each(wake);
    }

    /// Where the run of finished tickets ends that begins with `next`, and the value of its last;
    /// `None` if there is none.
    ///
    /// What it says is true if `published` still is `next` afterwards: behind that, slots may be
    /// used again.
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

    /// Whether `ticket`, which is not published yet or only just, was finished.
    #[inline]
    pub(crate) fn is_finished(&self, ticket: u64) -> bool {
        self.slot(ticket).done.load(Ordering::Acquire) == ticket + 1
    }

    /// Whether `ticket`, entered with `value`, is published. When it is, [`value`](Self::value)
    /// includes it from now on.
    #[inline]
    pub(crate) fn is_published(&self, ticket: u64, value: u64) -> bool {
        if self.published() <= ticket {
            return false;
        }
        // Why: who published it may be asleep between its two stores; the value is known here too.
        if self.value() < value {
            self.front.0.value.fetch_max(value, Ordering::AcqRel);
        }
        true
    }

    /// Has `waker` called when `ticket` is published, or when someone calls [`wake`](Self::wake).
    /// Look again after this, before going to sleep. Wakes may be spurious.
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
        // Why: it may be that of an earlier ticket of this slot, whose publisher will find ours in
        // its place.
        if let Some(before) = before {
            wake(before);
        }
    }

    /// Wakes who is registered for any ticket from `first` up to, not including, `end`.
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
        // Why usize: capacities are far below its range, and the mask makes the index valid.
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
