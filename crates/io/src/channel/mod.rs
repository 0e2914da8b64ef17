//! The channel: one thread's unit of I/O. It has op slots, buffers, a timer, and a transport.
//!
//! Requests come from futures polled on this thread, or from the driver; the channel stores their
//! outcomes and calls their wakers. A request takes a slot; while the transport is full, the slot
//! waits in the channel's backlog. The operation queues, never the future; dropping a future
//! therefore loses no place in a queue, and freed capacity has no future to wake
//! (docs/decisions/io-slots.md).
//!
//! Invariants:
//! - One thread owns a channel. Its state is borrowed only inside this file, and wakers, which may
//!   run any code, are called after the borrow has ended.
//! - At most `depth` ops are with the transport, whose completion queue is twice as long.
//! - Identical reads in flight share a slot, with each waiter counted. The slot lives until its
//!   last waiter has the outcome or is gone *and* the buffer is back. Identical reads of other
//!   channels have slots of their own there, and join through [`sharing`].

mod core;
pub(crate) mod outbox;
pub(crate) mod sharing;
pub(crate) mod slot;
mod writes;

#[cfg(all(test, loom))]
mod loom_tests;

use crate::buffer::slab::Slabs;
use crate::env::Clock;
use crate::remote::RemoteOp;
use crate::stats::Counters;
use crate::transport::{Alarm, Completion, SocketAction, Transport};
use crate::waking::wake;
use core::Core;
use outbox::{Message, Outbox};
use sharing::SharedReads;
use slot::{Outcome, Phase, Request, Ticket, Waiter};
use socket2::Socket;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

pub(crate) struct ChannelOptions {
    /// Maximum number of ops with the transport.
    pub(crate) depth: usize,
    /// Number of queued ops at which they are submitted to the transport.
    pub(crate) submit_batch: usize,
    /// Divisor of the number of pooled buffers.
    pub(crate) pool_share: u32,
    /// Memory from which pooled buffers are cut.
    pub(crate) slabs: Arc<Slabs>,
    /// True to register buffers with the kernel for direct reads.
    pub(crate) register: bool,
    /// Clock of the timer.
    pub(crate) clock: Arc<dyn Clock>,
    /// Reads in flight on all channels of the environment.
    pub(crate) flights: Arc<SharedReads>,
}

pub(crate) struct Channel {
    outbox: Arc<Outbox>,
    alarm: Arc<Alarm>,
    fork_generation: u64,
    core: RefCell<Core>,
    /// Ops queued in the transport since the last submit.
    queued: Cell<usize>,
}

impl Channel {
    pub(crate) fn new(
        transport: Box<dyn Transport>,
        counters: Arc<Counters>,
        options: &ChannelOptions,
    ) -> Self {
        let alarm = transport.alarm().clone();
        let outbox = Arc::new(Outbox::new(alarm.clone()));
        let core = Core::new(transport, outbox.clone(), counters, options);
        Self {
            outbox,
            alarm,
            fork_generation: crate::posix::fork_generation(),
            core: RefCell::new(core),
            queued: Cell::new(0),
        }
    }

    pub(crate) fn outbox(&self) -> &Arc<Outbox> {
        &self.outbox
    }

    pub(crate) fn alarm(&self) -> &Arc<Alarm> {
        &self.alarm
    }

    /// Returns the counters of this channel alone.
    pub(crate) fn counters(&self) -> Arc<Counters> {
        self.core.borrow().counters.clone()
    }

    /// Returns true if it was made in a process that this one was forked from.
    pub(crate) fn is_inherited(&self) -> bool {
        self.fork_generation != crate::posix::fork_generation()
    }

    /// Returns true if its transport carries out no operation any more.
    pub(crate) fn is_broken(&self) -> bool {
        self.core.borrow().transport.as_ref().is_none_or(|transport| transport.is_broken())
    }

    pub(crate) fn transport_name(&self) -> &'static str {
        self.core.borrow().transport.as_ref().map_or("", |t| t.name())
    }

    /// Begins an operation for a future polled on this thread, or joins one in flight.
    pub(crate) fn start(&self, request: Request, waker: Waker) -> Ticket {
        self.begin(request, Waiter::Local(Some(waker)))
    }

    /// Begins an operation on a socket for a future polled on this thread. It is joined by no
    /// other.
    pub(crate) fn start_socket(&self, socket: Arc<Socket>, action: SocketAction, waker: Waker) -> Ticket {
        let mut core = self.core.borrow_mut();
        let ticket = core.begin_socket(socket, action, Waiter::Local(Some(waker)));
        core.issue_backlog(&self.queued);
        ticket
    }

    /// Counts a write that the channel does not carry.
    pub(crate) fn count_write(&self) {
        Counters::bump(&self.core.borrow().counters.writes, 1);
    }

    /// Begins an operation for a future polled elsewhere.
    pub(crate) fn start_remote(&self, op: Arc<RemoteOp>) {
        if let Some(request) = op.take_request() {
            self.begin(request, Waiter::Remote(op));
            self.wake_all();
        }
    }

    fn begin(&self, request: Request, waiter: Waiter) -> Ticket {
        let mut core = self.core.borrow_mut();
        let ticket = core.begin(request, waiter);
        core.issue_backlog(&self.queued);
        ticket
    }

    /// Returns the outcome, or registers the future's waker to be called when it arrives.
    pub(crate) fn poll_ticket(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Outcome> {
        let mut old = None;
        let mut core = self.core.borrow_mut();
        let slot = core.claimed(ticket);
        if slot.phase != Phase::Done {
            let Waiter::Local(waker) = &mut slot.waiters[ticket.waiter as usize] else {
                unreachable!("a future's waiter is local until it is gone");
            };
            if !waker.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
                old = waker.replace(cx.waker().clone());
            }
            drop(core);
            drop(old);
            return Poll::Pending;
        }
        Poll::Ready(core.fetch(ticket))
    }

    /// Returns the outcome if it has arrived, for a future polled while this channel is not the
    /// current one.
    pub(crate) fn fetch_if_done(&self, ticket: Ticket) -> Option<Outcome> {
        let mut core = self.core.borrow_mut();
        (core.claimed(ticket).phase == Phase::Done).then(|| core.fetch(ticket))
    }

    /// Returns the outcome of an operation of this thread; blocks until it has arrived, while other
    /// completions are taken in.
    pub(crate) fn outlast(&self, ticket: Ticket) -> Outcome {
        loop {
            if let Some(outcome) = self.fetch_if_done(ticket) {
                // The waits may have taken rings that were for the thread's own loop.
                self.alarm.ring();
                return outcome;
            }
            self.wait(None);
        }
    }

    /// Called when a future of this thread is dropped.
    pub(crate) fn abandon(&self, ticket: Ticket) {
        let mut core = self.core.borrow_mut();
        let gone = core.abandon(ticket);
        self.queued.set(self.queued.get() + std::mem::take(&mut core.cancels));
        drop(core);
        drop(gone); // dropping wakers and outcomes may run any code
    }

    /// Returns true if any op is with the transport or on the timer.
    pub(crate) fn has_left_overs(&self) -> bool {
        let mut core = self.core.borrow_mut();
        core.next_due().is_some() || core.in_flight() > 0
    }

    /// Submits the queued ops to the transport.
    pub(crate) fn submit(&self) {
        // Not by `queued` alone, because the transport queues entries of its own: the second half
        // of an open.
        self.core.borrow_mut().submit(&self.queued);
    }

    /// Submits the queued ops, unless enough ops are in flight to let the queue wait for more: an
    /// idle device gains more by an early start than a system call costs
    /// (docs/decisions/io-uring.md).
    pub(crate) fn submit_if_few_fly(&self) {
        const FLYING_A_QUEUED: usize = 16;
        let queued = self.queued.get();
        if queued > 0 && queued > self.core.borrow().in_flight() / FLYING_A_QUEUED {
            self.submit();
        }
    }

    /// Takes in completions and wakes their waiters. Never blocks.
    pub(crate) fn poll(&self) {
        self.take_in(|transport, done| transport.poll(done));
    }

    /// Returns the time at which the next held operation is due, by the channel's clock.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.core.borrow_mut().next_due()
    }

    /// Submits, then blocks until an op completes, the alarm rings, or `at_most` has passed.
    pub(crate) fn wait(&self, at_most: Option<Duration>) {
        let timeout = {
            let mut core = self.core.borrow_mut();
            let due = core.next_due().map(|at| at.saturating_sub(core.now()));
            due.into_iter().chain(at_most).min()
        };
        // Does not block with messages pending, because a poll may have taken the alarm's ring for
        // them, and it does not ring again.
        let timeout = if self.outbox.has_messages() { Some(Duration::ZERO) } else { timeout };
        if self.queued.replace(0) > 0 {
            Counters::bump(&self.core.borrow().counters.submits, 1);
        }
        self.take_in(|transport, done| match timeout {
            Some(Duration::ZERO) => {
                transport.submit();
                transport.poll(done);
            }
            _ => transport.wait(timeout, done),
        });
    }

    fn take_in(&self, receive: impl FnOnce(&mut dyn Transport, &mut Vec<Completion>)) {
        {
            let mut core = self.core.borrow_mut();
            let mut done = std::mem::take(&mut core.completions);
            if let Some(transport) = &mut core.transport {
                self.outbox.beat();
                receive(&mut **transport, &mut done);
                self.outbox.beat();
            }
            for completion in done.drain(..) {
                core.landed(completion);
            }
            core.completions = done;
        }
        // After the wait, because a message ends the wait.
        self.outbox.take().into_iter().for_each(|message| self.hear(message));
        {
            let mut core = self.core.borrow_mut();
            core.fire_timer();
            core.issue_backlog(&self.queued);
            core.note_in_flight();
        }
        self.wake_all();
    }

    fn hear(&self, message: Message) {
        match message {
            Message::Abandoned(ticket) => self.abandon(ticket),
            Message::Landed(joiner, outcome) => self.core.borrow_mut().hear(joiner, Some(outcome)),
            Message::Released(joiner) => self.core.borrow_mut().hear(joiner, None),
        }
    }

    /// Releases the other channels that joined reads of this one, because this thread may not poll
    /// it for a while.
    pub(crate) fn rest(&self) {
        // `try_borrow_mut`, because a panic inside of the borrow may be unwinding. Joiners then
        // notice by themselves.
        if let Ok(mut core) = self.core.try_borrow_mut() {
            core.keep_all_private();
        }
    }

    fn wake_all(&self) {
        let mut wakers = std::mem::take(&mut self.core.borrow_mut().wakers);
        wakers.drain(..).for_each(wake);
        let mut core = self.core.borrow_mut();
        if core.wakers.is_empty() {
            core.wakers = wakers; // keeps its capacity
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        let core = self.core.get_mut();
        if self.fork_generation != crate::posix::fork_generation() {
            return core.transport.take().into_iter().for_each(|t| t.abandon_after_fork());
        }
        core.close();
        core.wakers.drain(..).for_each(wake);
    }
}
