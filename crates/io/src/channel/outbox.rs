//! What other threads may say to a channel: that a future which waited on it is gone.
//!
//! A future that is dropped, or polled, on another thread than the one it started on gives up its claim here; the
//! channel looks in at its next poll. Lock: held for a push or a swap; never on the path of a read that stays on its thread.

use super::slot::Ticket;
use crate::posix;
use crate::sync::Mutex;
use crate::transport::Alarm;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[derive(Debug)]
pub(crate) struct Outbox {
    /// Names the channel; no other of this process has it.
    pub(crate) channel: u64,
    abandoned: Mutex<Vec<Ticket>>,
    any: AtomicBool,
    alarm: Arc<Alarm>,
    fork_generation: u64,
}

impl Outbox {
    pub(crate) fn new(alarm: Arc<Alarm>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self {
            channel: NEXT.fetch_add(1, Ordering::Relaxed),
            abandoned: Mutex::default(),
            any: AtomicBool::new(false),
            alarm,
            fork_generation: posix::fork_generation(),
        }
    }

    pub(crate) fn abandon(&self, ticket: Ticket) {
        if self.fork_generation != posix::fork_generation() {
            return; // the channel is the parent's
        }
        {
            let mut abandoned = self.abandoned.lock();
            abandoned.push(ticket);
            self.any.store(true, Ordering::Release);
        }
        // A reactor that sleeps shall not keep the buffer until something else wakes it.
        self.alarm.ring();
    }

    pub(crate) fn take(&self) -> Vec<Ticket> {
        if !self.any.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut abandoned = self.abandoned.lock();
        self.any.store(false, Ordering::Relaxed);
        std::mem::take(&mut *abandoned)
    }
}
