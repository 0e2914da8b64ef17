//! A flag that is set once, and wakes those that wait for it.

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

    pub(crate) fn is_rung(&self) -> bool {
        self.rung.load(Ordering::SeqCst)
    }

    /// Waits until it is set.
    pub(crate) async fn rung(&self) {
        while !self.is_rung() {
            let listener = self.event.listen();
            // Ordering: it is looked at again, because it may have rung before the listener was
            // there.
            if !self.is_rung() {
                listener.await;
            }
        }
    }
}
