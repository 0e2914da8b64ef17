//! Waking whoever waits. A waker is code of an executor that this crate does not know; one that
//! panics does so on the thread of whoever wakes, who has others to wake and work to end. So its
//! panic ends here.
//!
//! In: wakers. Out: [`wake`], which calls one, and [`Event`], for many who wait for the same.

use crate::report;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

/// Calls a waker. Its panic goes no further.
pub fn wake(waker: Waker) {
    if catch_unwind(AssertUnwindSafe(|| waker.wake())).is_err() {
        report!(error, "a waker has panicked");
    }
}

/// Something that may happen, and who waits for it: the one of `event-listener`, but that wakers
/// do not panic.
///
/// Why: in the middle of a notification a panic would leave the others asleep, and its list in
/// disorder.
#[derive(Debug, Default)]
pub struct Event(event_listener::Event);

impl Event {
    /// Nobody waits.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits from now on: what happens before the future is polled counts.
    #[must_use]
    pub fn listen(&self) -> EventListener {
        EventListener { listener: self.0.listen(), shield: None }
    }

    /// It has happened: at least so many of those who wait go on.
    pub fn notify(&self, count: usize) {
        self.0.notify(count);
    }
}

/// A future that ends when the event has happened.
#[derive(Debug)]
pub struct EventListener {
    listener: event_listener::EventListener,
    /// The waker of the last poll, and what stands in for it.
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

    /// Counts how often it is called, and may panic then.
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
