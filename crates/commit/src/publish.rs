//! The publish step: tickets that were finished in any order become visible in theirs, and those
//! who wait for that, or for room, are told.
//!
//! In: tickets, entered under the order lock and finished by whoever did their work. Out: the
//! sequence number up to which everything is visible, the one that reads go by, and wakes.
//!
//! There is no publisher: whoever finishes a ticket publishes all that can be ([`PublishRing`]). So
//! a thread that sleeps holds up only what is behind its own ticket.
//!
//! Lock: none of its own but those of wakers; it may be called under any.

use crate::bargain::{Gathered, Waiter, Waiters};
use crate::ring::PublishRing;
use karst_base::sync::atomic::fence;
use karst_base::sync::{Event, EventListener, atomic};
use karst_format::key::SeqNo;
use karst_io::{Moments, Standstill};
use std::task::Waker;

/// Most writes between order and publish.
///
/// Why not fewer: with `unordered_write` those behind a writer that lost its processor go on
/// meanwhile, until the ring is full. Why not more: the ring's slots are used in turn, and shall
/// stay near the processor.
pub(crate) const IN_FLIGHT: usize = 4096;

/// See the module's head.
pub(crate) struct Publish {
    /// Tickets, and the number up to which everything is visible as their value.
    ring: PublishRing,
    /// Where publishing stood when somebody had waited in vain.
    standstill: Standstill,
    /// Rung when there may be room in the ring or in the buffer, or when the ring may have run
    /// empty.
    room: Event,
    room_waiters: Waiters,
}

impl Publish {
    /// Everything up to `last_seq` is visible.
    pub(crate) fn new(last_seq: SeqNo) -> Self {
        Self {
            ring: PublishRing::new(IN_FLIGHT, last_seq.0),
            standstill: Standstill::default(),
            room: Event::new(),
            room_waiters: Waiters::default(),
        }
    }

    /// Whether `ticket` may be entered. Once it may, it stays so.
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

    /// The work of `ticket` is done. Publishes what can be.
    pub(crate) fn finish(&self, ticket: u64) {
        self.ring.finish(ticket);
    }

    /// Everything up to this is visible.
    #[inline]
    pub(crate) fn visible(&self) -> SeqNo {
        SeqNo(self.ring.value())
    }

    /// Everything up to this is visible, or was acknowledged and is about to be.
    #[inline]
    pub(crate) fn acknowledged(&self) -> SeqNo {
        SeqNo(self.ring.acknowledged())
    }

    /// How many tickets are published.
    #[inline]
    pub(crate) fn published(&self) -> u64 {
        self.ring.published()
    }

    /// Whether `ticket`, whose last sequence number is `last_seq`, is published.
    #[inline]
    pub(crate) fn is_published(&self, ticket: u64, last_seq: SeqNo) -> bool {
        self.ring.is_published(ticket, last_seq.0)
    }

    /// Acknowledges a ticket that is finished and not published, unless a read sleeps. Whether it
    /// did.
    ///
    /// Why not while a read sleeps: that read waits for a writer that has no processor, and would
    /// for as long as others keep theirs.
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

    /// Has `waker` called when `ticket` is published, or [woken](Self::wake).
    pub(crate) fn register(&self, ticket: u64, waker: &Waker) {
        self.ring.register(ticket, waker);
    }

    /// Wakes who is registered for any ticket from `first` up to, not including, `end`.
    pub(crate) fn wake(&self, first: u64, end: u64) {
        self.ring.wake(first, end);
    }

    /// Has `waker` called when everything up to `seq`, which was ordered, is visible.
    pub(crate) fn register_reader(&self, seq: SeqNo, waker: &Waker) {
        self.ring.register_reader(seq.0, waker);
    }

    /// Passes a moment of waiting for publication. `false` if it is better to sleep.
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

    /// Has everything done that waits with `gathered`, and publishes it.
    pub(crate) fn settle<T>(&self, gathered: &Gathered<T>, work: impl FnOnce(&mut T)) {
        gathered.settle(&self.ring, work);
    }

    /// Those who wait for room.
    pub(crate) fn room_waiters(&self) -> &Waiters {
        &self.room_waiters
    }

    /// Counts the caller among those who wait for room, for as long as it has the result.
    pub(crate) fn wait_for_room(&self) -> Waiter<'_> {
        self.room_waiters.enter()
    }

    /// Listens for room. The caller, who is counted, looks after this.
    pub(crate) fn listen_for_room(&self) -> EventListener {
        let listener = self.room.listen();
        fence(atomic::Ordering::SeqCst);
        listener
    }

    /// Tells those who wait for room to look again.
    pub(crate) fn ring_room(&self) {
        // Ordering: between what makes room and this there is a fence, in the ring's `finish` or
        // `wake`, or the order lock, as there is a fence in `listen_for_room` between being counted
        // and looking for room. One sees the other.
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
