//! CLIENT PAUSE: until a time, the commands of all clients wait, or those that may write.

use super::bell::Bell;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The pause of a server.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    /// There is one, which may be over: looked at by each window of requests.
    is_set: AtomicBool,
    now: Mutex<Option<Paused>>,
    /// Woken when it is changed.
    changed: Bell,
}

/// A pause under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paused {
    /// Environment's monotonic time of its end.
    pub(crate) until: Duration,
    /// All commands wait, not only those that may write.
    pub(crate) of_all: bool,
}

impl Pause {
    /// Begins a pause, or extends the one under way.
    pub(crate) fn begin(&self, until: Duration, of_all: bool, now: Duration) {
        let mut paused = self.now.lock();
        let before = paused.filter(|before| before.until > now);
        *paused = Some(Paused {
            until: before.map_or(until, |before| before.until.max(until)),
            of_all: of_all || before.is_some_and(|before| before.of_all),
        });
        self.is_set.store(true, Ordering::SeqCst);
    }

    /// Ends the pause.
    pub(crate) fn end(&self) {
        let mut paused = self.now.lock();
        *paused = None;
        self.is_set.store(false, Ordering::SeqCst);
        self.changed.wake();
    }

    /// Returns false if no pause is set; true if one may be under way.
    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Relaxed)
    }

    /// The pause at this time.
    pub(crate) fn at(&self, now: Duration) -> Option<Paused> {
        let mut paused = self.now.lock();
        if paused.is_some_and(|paused| paused.until <= now) {
            *paused = None;
            self.is_set.store(false, Ordering::SeqCst);
        }
        *paused
    }

    /// Waits until the pause is ended by [`end`](Self::end).
    pub(crate) async fn ended(&self) {
        self.changed.rung_or(|| !self.is_set.load(Ordering::SeqCst)).await;
    }
}
