//! Calls of wakers. A waker is code of a foreign executor; its panic would unwind the thread that
//! wakes, which has others to wake and work to finish. It is therefore caught here.
//!
//! [`wake`] calls one waker; [`Event`] wakes many waiters of one event.

use crate::report;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

/// Calls a waker and catches its panic.
pub fn wake(waker: Waker) {
    if catch_unwind(AssertUnwindSafe(|| waker.wake())).is_err() {
        report!(error, "a waker has panicked");
    }
}

/// An event and its waiters: that of `event-listener`, except that wakers do not panic.
///
/// A panic in the middle of a notification would leave the other waiters asleep and the list
/// inconsistent.
#[derive(Debug, Default)]
pub struct Event(event_listener::Event);

impl Event {
    /// Returns an event without waiters.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a waiter at once: an event before the future's first poll counts.
    #[must_use]
    pub fn listen(&self) -> EventListener {
        EventListener { listener: self.0.listen(), shield: None }
    }

    /// Signals the event to at least `count` of its waiters.
    pub fn notify(&self, count: usize) {
        self.0.notify(count);
    }
}

/// A future that completes when the event is signaled.
#[derive(Debug)]
pub struct EventListener {
    listener: event_listener::EventListener,
    /// The waker of the last poll, and the panic-catching waker that wraps it.
    shield: Option<(Waker, Waker)>,
}

struct Shield(Waker);

impl Wake for Shield {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        wake(self.0.clone());
    }
}

impl Future for EventListener {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self { listener, shield } = &mut *self;
        let known = shield.take().filter(|(before, _)| before.will_wake(cx.waker()));
        let (_, stands_in) = shield.insert(known.unwrap_or_else(|| {
            let waker = cx.waker().clone();
            (waker.clone(), Waker::from(Arc::new(Shield(waker))))
        }));
        Pin::new(listener).poll(&mut Context::from_waker(stands_in))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Counts its calls, and panics in each if the flag is set.
    struct Told(AtomicU64, bool);

    impl Wake for Told {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
            assert!(!self.1, "the waker's own");
        }
    }

    #[test]
    fn a_waker_that_panics_leaves_nobody_asleep() {
        let event = Event::new();
        for _ in 0..2 {
            let told: Vec<_> = (0..6).map(|i| Arc::new(Told(AtomicU64::new(0), i % 2 == 0))).collect();
            let mut listeners: Vec<_> = told.iter().map(|_| event.listen()).collect();
            for (listener, told) in listeners.iter_mut().zip(&told) {
                let waker = Waker::from(told.clone());
                for _ in 0..2 {
                    assert!(Pin::new(&mut *listener).poll(&mut Context::from_waker(&waker)).is_pending());
                }
            }
            event.notify(usize::MAX);
            for (listener, told) in listeners.iter_mut().zip(&told) {
                assert_eq!(told.0.load(Ordering::Relaxed), 1);
                let waker = Waker::from(told.clone());
                assert!(Pin::new(listener).poll(&mut Context::from_waker(&waker)).is_ready());
            }
        }
    }
}
