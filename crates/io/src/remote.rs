//! An operation started from a thread that has no channel, carried out by the driver's.
//!
//! The future and the driver share a [`RemoteOp`]. Its states: waiting (with or without a waker),
//! done, taken, abandoned. Lock: a mutex of its own, held for a store by either side; it replaces
//! the states "locked" (the future stores its waker) and "completing" (the driver stores the
//! outcome) of a hand-written state machine, at the price of one uncontended atomic operation.

use crate::channel::slot::{Outcome, Request};
use crate::error::Failure;
use crate::sync::Mutex;
use std::io;
use std::task::{Context, Poll, Waker};

#[derive(Debug)]
pub(crate) struct RemoteOp {
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Waiting {
        request: Option<Request>,
        waker: Option<Waker>,
    },
    Done(Outcome),
    /// The outcome went to the future, or the future is gone.
    Closed,
}

impl RemoteOp {
    pub(crate) fn new(request: Request, waker: Waker) -> Self {
        Self { state: Mutex::new(State::Waiting { request: Some(request), waker: Some(waker) }) }
    }

    /// Returns the request, for the driver, once; `None` if the future is gone.
    pub(crate) fn take_request(&self) -> Option<Request> {
        match &mut *self.state.lock() {
            State::Waiting { request, .. } => request.take(),
            _ => None,
        }
    }

    /// Stores the outcome, for the driver. Returns the future's waker, to be called after the
    /// driver has ended its borrow of the channel.
    pub(crate) fn complete(&self, outcome: Outcome) -> Option<Waker> {
        let mut state = self.state.lock();
        let State::Waiting { waker, .. } = &mut *state else { return None };
        let waker = waker.take();
        *state = State::Done(outcome);
        waker
    }

    /// Stores a failure, for a driver that ends.
    pub(crate) fn fail(&self, why: &str) -> Option<Waker> {
        self.complete(Err(Failure::new(io::ErrorKind::BrokenPipe, why)))
    }

    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Outcome> {
        let mut state = self.state.lock();
        match &mut *state {
            State::Waiting { waker, .. } => {
                if !waker.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
                    let old = waker.replace(cx.waker().clone());
                    drop(state);
                    drop(old); // dropping a waker may run any code
                }
                Poll::Pending
            }
            _ => match std::mem::replace(&mut *state, State::Closed) {
                State::Done(outcome) => Poll::Ready(outcome),
                _ => unreachable!("an operation was polled after it had completed"),
            },
        }
    }

    /// Called when the future is dropped. The driver drops the outcome when it arrives.
    pub(crate) fn abandon(&self) {
        let old = std::mem::replace(&mut *self.state.lock(), State::Closed);
        drop(old);
    }
}
