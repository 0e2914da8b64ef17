//! Messages of other threads to a channel, and the channel's state that other threads may read.
//!
//! A future that is dropped, or polled, on another thread than the one it started on gives up its
//! claim here; a channel that did a read which this one has joined sends the outcome here. The
//! channel takes the messages at its next poll. Lock: held for a push or a swap; never on the path
//! of a read that stays on its thread.
//!
//! Ordering: `any` is stored before the alarm rings. A thread that takes the ring, which clears it,
//! sees `any` after that.

use super::slot::{Outcome, Ticket};
use crate::posix;
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering, counting};
use crate::transport::Alarm;
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct Outbox {
    /// Number of the channel; unique in this process.
    pub(crate) channel: u64,
    messages: Mutex<Vec<Message>>,
    any: AtomicBool,
    alarm: Arc<Alarm>,
    /// Number of beats; see [`Outbox::beats`].
    beat: AtomicU64,
    fork_generation: u64,
}

#[derive(Debug)]
pub(crate) enum Message {
    /// A future of this channel was dropped.
    Abandoned(Ticket),
    /// A joined read has ended.
    Landed(Joiner, Outcome),
    /// A joined read will have no outcome.
    Released(Joiner),
}

/// A slot that has joined another channel's read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Joiner {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl Outbox {
    pub(crate) fn new(alarm: Arc<Alarm>) -> Self {
        static NEXT: counting::AtomicU64 = counting::AtomicU64::new(1);
        Self {
            channel: counting::next_name(&NEXT),
            messages: Mutex::default(),
            any: AtomicBool::new(false),
            alarm,
            beat: AtomicU64::new(0),
            fork_generation: posix::fork_generation(),
        }
    }

    pub(crate) fn send(&self, message: Message) {
        if self.fork_generation != posix::fork_generation() {
            return; // the channel is the parent's
        }
        {
            let mut messages = self.messages.lock();
            messages.push(message);
            self.any.store(true, Ordering::Release);
        }
        // Rings, because a sleeping thread would otherwise keep the buffer, or wait for the
        // outcome, until another event wakes it.
        self.alarm.ring();
    }

    /// Returns true if messages are pending.
    pub(crate) fn has_messages(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    pub(crate) fn take(&self) -> Vec<Message> {
        if !self.has_messages() {
            return Vec::new();
        }
        let mut messages = self.messages.lock();
        self.any.store(false, Ordering::Relaxed);
        std::mem::take(&mut *messages)
    }

    /// Called by the channel's thread before and after it looks for completions.
    pub(crate) fn beat(&self) {
        // Only this thread writes it. Ordering: Relaxed, because the sign of life publishes
        // nothing.
        self.beat.store(self.beat.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Returns the number of [beats](Outbox::beat): odd while the channel's thread waits for
    /// completions, which it then takes. An even number that stays equal means that the thread does
    /// other work, for an unknown time.
    pub(crate) fn beats(&self) -> u64 {
        self.beat.load(Ordering::Relaxed)
    }
}
