//! Work that a reactor thread finishes before it blocks: the rounds of a log that it writes on its
//! own ring.
//!
//! An attached task is no task of a user, and no user's future owns it. It runs behind the ready
//! tasks of a turn. It waits for operations of its thread's channel only, so it ends as long as
//! that channel is polled: by the reactor, else by [`finish`](Attached::finish), which every
//! blocking call of this crate on the thread, and the reactor's end, begin with. Other threads may
//! therefore wait for it. While the thread finishes such tasks, [`carries_writes`] is false: no new
//! one is attached, and one that others give ever more work ends, so the thread waits for a bounded
//! time.

use super::task::BoxedTask;
use super::{Local, with_local};
use crate::current::{Attached, Enter, with_current};
use crate::env::Env;
use crate::report;
use std::cell::Cell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Maximum number of writes that a task makes by calls without waiting.
const CALLS_AT_MOST: u32 = 64;

/// Returns true if [`attach`] takes a task of the calling code now: it is run by a reactor that
/// [carries writes](crate::ReactorBuilder::carries_writes), whose ring works, and whose thread does
/// not wait for its attached tasks. A task to which it returns false ends soon, because its thread
/// is about to block. In a simulation, half of the calls outside of blocking jobs return true.
#[doc(hidden)]
pub fn carries_writes(env: &Env) -> bool {
    if let Some(executor) = env.executor() {
        return executor.draws_carrying();
    }
    with_local(|local| {
        let Some(local) = local.filter(|local| local.carries_writes) else { return false };
        let channel = &local.channel;
        !local.finishes.get()
            && !channel.is_inherited()
            && !channel.is_broken()
            // Not inside of a `block_on`, which would not run it.
            && with_current(|current| current.is_some_and(|current| Rc::ptr_eq(current, channel)))
    })
}

/// Returns true if the calling code [carries writes](carries_writes) and may make one more short
/// write by a call: at most [`CALLS_AT_MOST`] from one await that waits to the next, because a task
/// whose writes are all ready at once would hold its thread.
#[doc(hidden)]
pub fn may_write_by_call(env: &Env) -> bool {
    let has_calls_left = || {
        with_local(|local| {
            let calls = local.map(|local| local.calls.replace(local.calls.get() + 1));
            calls.is_none_or(|calls| calls < CALLS_AT_MOST)
        })
    };
    carries_writes(env) && has_calls_left()
}

/// Runs `task` to its end on the calling thread's reactor, with the thread's ring as its channel.
/// It must wait for nothing but operations of this crate that began on that channel.
///
/// # Panics
/// [`carries_writes`] is false of the calling code.
#[doc(hidden)]
pub fn attach(env: &Env, task: impl Future<Output = ()> + Send + 'static) {
    match env.executor() {
        Some(executor) => executor.spawn(Box::pin(task)),
        None => with_local(|local| {
            let local = local.filter(|local| local.carries_writes);
            let local = local.expect("tasks are attached to reactors that carry writes");
            local.attached.add(&local.shared, Box::pin(Whole(Box::pin(task))));
        }),
    }
}

/// A task whose panic ends only itself.
struct Whole(BoxedTask);

impl Future for Whole {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(cx))).unwrap_or_else(|_| {
            report!(error, "a task that a reactor finishes has panicked");
            Poll::Ready(())
        })
    }
}

/// Sets a mark of the thread until this is dropped.
struct Marked<'a>(&'a Cell<bool>);

impl<'a> Marked<'a> {
    fn new(mark: &'a Cell<bool>) -> Self {
        mark.set(true);
        Self(mark)
    }
}

impl Drop for Marked<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl Local {
    /// Runs attached tasks that are ready, `at_most` of them, and calls `ran` after each.
    pub(super) fn run_attached(&self, at_most: usize, mut ran: impl FnMut()) {
        for _ in 0..at_most {
            let _running = Marked::new(&self.runs_attached);
            if !self.attached.run_next() {
                return;
            }
            ran();
        }
    }
}

impl Attached for Local {
    fn finish(&self) {
        // Code that an attached task calls may block; the task does not wait for its caller.
        if self.attached.is_empty() || self.runs_attached.get() || self.channel.is_inherited() {
            return;
        }
        let _entered = Enter::new(self.channel.clone());
        let _finishes = Marked::new(&self.finishes);
        loop {
            // All of them, because a wake may have gone to the inbox, which is not read here.
            self.attached.make_all_ready();
            self.run_attached(usize::MAX, || {});
            if self.attached.is_empty() {
                break;
            }
            self.channel.wait(None);
        }
        // The waits may have taken rings that were for the reactor's loop.
        self.shared.alarm.ring();
    }
}
