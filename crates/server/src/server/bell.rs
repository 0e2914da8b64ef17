//! A flag that is set once, and wakes those that wait for it.

use crate::until::until;
use event_listener::Event;
use std::sync::atomic::{AtomicBool, Ordering};

/// A flag that is set once. `Sync`; waiting is for any number of tasks of any thread.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    rung: AtomicBool,
    event: Event,
}

impl Bell {
    /// Sets it, and wakes all that wait.
    pub(crate) fn ring(&self) {
        self.rung.store(true, Ordering::SeqCst);
        self.event.notify(usize::MAX);
    }

    /// Wakes all that wait, so that those in [`rung_or`](Self::rung_or) look again. Does not set
    /// it.
    pub(crate) fn wake(&self) {
        self.event.notify(usize::MAX);
    }

    pub(crate) fn is_rung(&self) -> bool {
        self.rung.load(Ordering::SeqCst)
    }

    /// Waits until it is set.
    pub(crate) async fn rung(&self) {
        self.rung_or(|| false).await;
    }

    /// Waits until it is set, or `is_so` returns true. The task that makes it true calls
    /// [`wake`](Self::wake) afterwards.
    pub(crate) async fn rung_or(&self, is_so: impl Fn() -> bool) {
        until(&self.event, || self.is_rung() || is_so()).await;
    }
}
