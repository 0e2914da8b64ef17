//! Objects used by one call at a time, of threads and of tasks.

use crate::error::Busy;
use crate::shared::{Owned, lock};
use pyo3::prelude::*;
use std::future::poll_fn;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::thread::ThreadId;

/// The user that currently holds the object.
#[derive(Clone, Copy, PartialEq)]
enum User {
    Task,
    Thread(ThreadId),
}

/// An object that calls use in turns.
pub trait TakesTurns: Send {
    /// Name of the object for messages.
    const NAME: &'static str;

    /// Called if a call that held the object panicked.
    fn panicked(&mut self) {}
}

/// Place of an object between calls. One call at a time holds it; others wait for their turn.
pub struct Place<T: TakesTurns> {
    state: Mutex<State<T>>,
    returned: Condvar,
}

struct State<T: TakesTurns> {
    /// The object, or the user that holds it.
    held: Result<Owned<T>, User>,
    waiting: Vec<Waker>,
}

impl<T: TakesTurns> Place<T> {
    pub fn of(thing: T) -> Arc<Self> {
        let state = State { held: Ok(Owned::new(thing)), waiting: Vec::new() };
        Arc::new(Place { state: Mutex::new(state), returned: Condvar::new() })
    }

    fn take(self: &Arc<Self>, state: &mut State<T>, user: User) -> Result<Turn<T>, User> {
        match std::mem::replace(&mut state.held, Err(user)) {
            Ok(held) => Ok(Turn { held: Some(held), place: self.clone() }),
            Err(other) => {
                state.held = Err(other);
                Err(other)
            }
        }
    }

    /// Takes the object for a blocking call. Returns `Busy` if a task or this thread holds it,
    /// because this thread may have to drive the task.
    pub fn turn(self: &Arc<Self>) -> PyResult<Turn<T>> {
        let me = User::Thread(std::thread::current().id());
        let mut state = lock(&self.state);
        loop {
            match self.take(&mut state, me) {
                Ok(turn) => return Ok(turn),
                Err(other) if other == User::Task || other == me => {
                    return Err(Busy::new_err(format!("another call of this {} is under way", T::NAME)));
                }
                Err(_) => state = self.returned.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    pub async fn turn_async(self: &Arc<Self>) -> Turn<T> {
        poll_fn(|context| {
            let mut state = lock(&self.state);
            match self.take(&mut state, User::Task) {
                Ok(turn) => Poll::Ready(turn),
                Err(_) => {
                    state.waiting.push(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

/// The held object, which returns to its place when this is dropped.
pub struct Turn<T: TakesTurns> {
    held: Option<Owned<T>>,
    place: Arc<Place<T>>,
}

impl<T: TakesTurns> Turn<T> {
    pub fn held(&mut self) -> &mut T {
        self.held.as_mut().expect("it is there until the turn ends")
    }
}

impl<T: TakesTurns> Drop for Turn<T> {
    fn drop(&mut self) {
        let Some(mut held) = self.held.take() else { return };
        // In a fork the lock may be held by a thread that does not exist here.
        if !held.is_here() {
            return;
        }
        if std::thread::panicking() {
            held.panicked();
        }
        let mut state = lock(&self.place.state);
        state.held = Ok(held);
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        self.place.returned.notify_all();
        waiting.into_iter().for_each(Waker::wake);
    }
}
