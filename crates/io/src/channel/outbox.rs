//! What other threads say to a channel, and what they may know of it.
//!
//! A future that is dropped, or polled, on another thread than the one it started on gives up its
//! claim here; a channel that did a read which this one has joined tells the outcome here. The
//! channel looks in at its next poll. Lock: held for a push or a swap; never on the path of a read
//! that stays on its thread.
//!
//! Ordering: `any` is stored before the alarm rings. Who takes the ring, and with it forgets that
//! it rang, sees `any` after that.

use super::slot::{Outcome, Ticket};
use crate::posix;
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering, counting};
use crate::transport::Alarm;
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct Outbox {
    /// Names the channel; no other of this process has it.
    pub(crate) channel: u64,
    messages: Mutex<Vec<Message>>,
    any: AtomicBool,
    alarm: Arc<Alarm>,
    /// See [`Outbox::beats`].
    beat: AtomicU64,
    fork_generation: u64,
}

#[derive(Debug)]
pub(crate) enum Message {
    /// A future of this channel's is gone.
    Abandoned(Ticket),
    /// A read that was joined has ended.
    Landed(Joiner, Outcome),
    /// A read that was joined will have no outcome.
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
        // A thread that sleeps shall not keep the buffer, or go without the outcome, until
        // something else wakes it.
        self.alarm.ring();
    }

    /// Whether there is something to take.
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

    /// The channel's thread goes to look for completions, or is back from there.
    pub(crate) fn beat(&self) {
        // Only this thread writes it. Ordering: a sign of life; nothing is published with it.
        self.beat.store(self.beat.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// How often the channel's thread has [gone or come](Outbox::beat): odd while it waits for
    /// completions, and it takes what it finds. If it is even and stays the same, the thread does
    /// something else, and it cannot be known for how long.
    pub(crate) fn beats(&self) -> u64 {
        self.beat.load(Ordering::Relaxed)
    }
}
