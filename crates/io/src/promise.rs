//! A promise: one thread stores the result of some work, and another waits for it by polling or by
//! blocking.
//!
//! One result is stored, by any thread, and returned once, to the waiter. The storing thread calls
//! the waiter's waker.

use crate::sync::{Condvar, Mutex};
use crate::waking::wake;
use std::task::{Context, Poll, Waker};

pub(crate) struct Promise<T> {
    state: Mutex<State<T>>,
    ended: Condvar,
}

enum State<T> {
    Running(Option<Waker>),
    Ended(T),
    Taken,
}

impl<T> Promise<T> {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::new(State::Running(None)), ended: Condvar::new() }
    }

    /// Stores the result and wakes the waiter. Later results are dropped.
    pub(crate) fn end(&self, result: T) {
        let mut state = self.state.lock();
        let State::Running(waker) = &mut *state else { return };
        let waker = waker.take();
        *state = State::Ended(result);
        self.ended.notify_all();
        drop(state);
        if let Some(waker) = waker {
            wake(waker);
        }
    }

    /// Returns true if the work has ended.
    pub(crate) fn is_ended(&self) -> bool {
        !matches!(*self.state.lock(), State::Running(_))
    }

    /// Returns the result, or registers the waker to be called when it is stored.
    ///
    /// # Panics
    /// The result was already taken.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<T> {
        let mut state = self.state.lock();
        if let State::Running(waker) = &mut *state {
            let old = waker.replace(cx.waker().clone());
            drop(state);
            drop(old);
            return Poll::Pending;
        }
        Poll::Ready(taken(&mut state))
    }

    /// Returns the result; blocks until it is stored.
    ///
    /// # Panics
    /// The result was already taken.
    pub(crate) fn wait(&self) -> T {
        let mut state = self.state.lock();
        while matches!(*state, State::Running(_)) {
            state = self.ended.wait(state);
        }
        taken(&mut state)
    }
}

fn taken<T>(state: &mut State<T>) -> T {
    match std::mem::replace(state, State::Taken) {
        State::Ended(result) => result,
        _ => panic!("a future was polled after it had completed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl std::task::Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn the_last_who_polled_is_woken_and_the_first_result_counts() {
        let (early, late) = (Arc::new(Wakes::default()), Arc::new(Wakes::default()));
        let outcome = Promise::new();
        for wakes in [&early, &late] {
            let waker = wakes.clone().into();
            assert!(outcome.poll(&mut Context::from_waker(&waker)).is_pending());
        }
        assert!(!outcome.is_ended());
        outcome.end(7);
        outcome.end(8);
        assert_eq!((early.0.load(Ordering::Relaxed), late.0.load(Ordering::Relaxed)), (0, 1));
        assert!(outcome.is_ended());
        assert_eq!(outcome.wait(), 7);
    }
}
