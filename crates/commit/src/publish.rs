//! The publish step: tickets finished in any order become visible in ticket order, and waiters are
//! woken.
//!
//! Tickets are entered under the order lock and finished by the caller that did their work. The
//! step provides the visible sequence number and the one that reads use.
//!
//! There is no publisher thread: a caller that finishes a ticket publishes all that can be
//! ([`PublishRing`]). A sleeping thread therefore delays only the tickets after its own.
//!
//! Lock: only those of wakers; it may be called under any lock.

use crate::handoff::{Gathered, Waiter, Waiters};
use crate::ring::PublishRing;
use karst_base::sync::atomic::fence;
use karst_base::sync::{Event, EventListener, atomic};
use karst_format::key::SeqNo;
use karst_io::{Moments, Standstill};
use std::task::Waker;

/// Maximum number of writes between order and publish.
///
/// Large, because with `unordered_write` the writes behind a writer that lost its processor
/// continue until the ring is full. Not larger, because the ring's slots are used in turn, and
/// should stay in the processor's cache.
pub(crate) const IN_FLIGHT: usize = 4096;

/// State of the publish step.
pub(crate) struct Publish {
    /// Ring of tickets; a ticket's value is its last sequence number.
    ring: PublishRing,
    /// Value of `published` at which a spinning waiter last gave up.
    standstill: Standstill,
    /// Notified when there may be room in the ring or in the buffer, or when the ring may have
    /// become empty.
    room: Event,
    room_waiters: Waiters,
}

impl Publish {
    /// Creates the state with everything up to `last_seq` visible.
    pub(crate) fn new(last_seq: SeqNo) -> Self {
        Self {
            ring: PublishRing::new(IN_FLIGHT, last_seq.0),
            standstill: Standstill::default(),
            room: Event::new(),
            room_waiters: Waiters::default(),
        }
    }

    /// Returns true if `ticket` may be entered. Stays true once it is.
    #[inline]
    pub(crate) fn has_room(&self, ticket: u64) -> bool {
        self.ring.has_room(ticket)
    }

    /// Enters the next ticket, whose last sequence number is `last_seq`. Lock: under the order
    /// lock.
    #[inline]
    pub(crate) fn enter(&self, ticket: u64, last_seq: SeqNo) {
        self.ring.enter(ticket, last_seq.0);
    }

    /// Finishes `ticket`, and publishes all that can be.
    pub(crate) fn finish(&self, ticket: u64) {
        self.ring.finish(ticket);
    }

    /// Returns the sequence number up to which everything is visible.
    #[inline]
    pub(crate) fn visible(&self) -> SeqNo {
        SeqNo(self.ring.value())
    }

    /// Returns the sequence number up to which everything is visible, or acknowledged and about to
    /// be.
    #[inline]
    pub(crate) fn acknowledged(&self) -> SeqNo {
        SeqNo(self.ring.acknowledged())
    }

    /// Returns the number of published tickets.
    #[inline]
    pub(crate) fn published(&self) -> u64 {
        self.ring.published()
    }

    /// Returns true if `ticket`, whose last sequence number is `last_seq`, is published.
    #[inline]
    pub(crate) fn is_published(&self, ticket: u64, last_seq: SeqNo) -> bool {
        self.ring.is_published(ticket, last_seq.0)
    }

    /// Acknowledges a ticket that is finished and not published, unless a read sleeps. Returns true
    /// if it did.
    ///
    /// Not while a read sleeps, because that read waits for a writer without a processor, and would
    /// wait for as long as others keep theirs.
    pub(crate) fn acknowledge_early(
        &self,
        ticket: u64,
        last_seq: SeqNo,
        is_allowed: impl FnOnce() -> bool,
    ) -> bool {
        let early = !self.ring.has_readers() && self.ring.is_finished(ticket) && is_allowed();
        if early {
            self.ring.acknowledge(ticket, last_seq.0);
        }
        early
    }

    /// Registers `waker` to be called when `ticket` is published, or [woken](Self::wake).
    pub(crate) fn register(&self, ticket: u64, waker: &Waker) {
        self.ring.register(ticket, waker);
    }

    /// Wakes the waiters for all tickets from `first` up to, not including, `end`.
    pub(crate) fn wake(&self, first: u64, end: u64) {
        self.ring.wake(first, end);
    }

    /// Registers `waker` to be called when everything up to `seq`, which was ordered, is visible.
    pub(crate) fn register_reader(&self, seq: SeqNo, waker: &Waker) {
        self.ring.register_reader(seq.0, waker);
    }

    /// Spins for a moment while waiting for publication. Returns false if the caller should sleep.
    pub(crate) fn pass(&self, moments: &mut Moments) -> bool {
        moments.pass(self.ring.published(), &self.standstill)
    }

    /// Leaves the work of a ticket with `gathered`, if it is next. See [`Gathered::leave`].
    pub(crate) fn leave<T>(
        &self,
        gathered: &Gathered<T>,
        (ticket, last_seq): (u64, SeqNo),
        fits: impl FnOnce(&T) -> bool,
        add: impl FnOnce(&mut T) -> bool,
        work: impl FnOnce(&mut T),
    ) -> bool {
        gathered.leave(&self.ring, (ticket, last_seq.0), fits, add, &self.room_waiters, work)
    }

    /// Does all work that waits with `gathered`, and publishes it.
    pub(crate) fn settle<T>(&self, gathered: &Gathered<T>, work: impl FnOnce(&mut T)) {
        gathered.settle(&self.ring, work);
    }

    /// Returns the counter of callers that wait for room.
    pub(crate) fn room_waiters(&self) -> &Waiters {
        &self.room_waiters
    }

    /// Counts the caller among those who wait for room, until the result is dropped.
    pub(crate) fn wait_for_room(&self) -> Waiter<'_> {
        self.room_waiters.enter()
    }

    /// Listens for room. The caller, already counted, checks for room afterwards.
    pub(crate) fn listen_for_room(&self) -> EventListener {
        let listener = self.room.listen();
        fence(atomic::Ordering::SeqCst);
        listener
    }

    /// Wakes the callers that wait for room.
    pub(crate) fn ring_room(&self) {
        // Ordering: a fence (in the ring's `finish` or `wake`) or the order lock separates making
        // room from this check; a fence in `listen_for_room` separates being counted from checking
        // for room. At least one side sees the other.
        if self.room_waiters.any() {
            self.room.notify(usize::MAX);
        }
    }
}

impl std::fmt::Debug for Publish {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.ring.fmt(f)
    }
}
