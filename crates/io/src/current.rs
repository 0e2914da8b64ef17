//! Which channel this thread's futures use, and whether it is at work on a background job.
//!
//! A reactor makes its channel current for as long as it runs, and `block_on` its thread's own
//! channel for the length of the call; on any other thread there is none, and reads go to the
//! driver. A channel is found by its number on its own thread only.

use crate::channel::Channel;
use crate::sync::thread_local;
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

thread_local! {
    static CURRENT: RefCell<Option<Rc<Channel>>> = const { RefCell::new(None) };
    static JOBS: Cell<u32> = const { Cell::new(0) };
    static HERE: RefCell<Vec<(u64, Weak<Channel>)>> = const { RefCell::new(Vec::new()) };
}

/// Makes a channel current until it is dropped, then the one before again.
pub(crate) struct Enter {
    before: Option<Rc<Channel>>,
}

impl Enter {
    pub(crate) fn new(channel: Rc<Channel>) -> Self {
        Self { before: CURRENT.with(|c| c.borrow_mut().replace(channel)) }
    }
}

impl Drop for Enter {
    fn drop(&mut self) {
        let before = self.before.take();
        let ours = CURRENT.try_with(|c| std::mem::replace(&mut *c.borrow_mut(), before));
        drop(ours);
    }
}

/// Runs `f` on the channel that futures polled now use, if this thread has one.
pub(crate) fn with_current<R>(f: impl FnOnce(Option<&Rc<Channel>>) -> R) -> R {
    // Why a clone: `f` may poll, and so re-enter. It is not atomic.
    let current = CURRENT.try_with(|c| c.borrow().clone()).ok().flatten();
    f(current.as_ref())
}

/// Make a channel of this thread known to [`here`].
pub(crate) fn announce(channel: &Rc<Channel>) {
    HERE.with(|list| {
        let mut list = list.borrow_mut();
        list.retain(|(_, weak)| weak.strong_count() > 0);
        list.push((channel.outbox().channel, Rc::downgrade(channel)));
    });
}

/// Keeps no note of channels that have ended.
pub(crate) fn forget_ended() {
    let _ = HERE.try_with(|list| {
        if let Ok(mut list) = list.try_borrow_mut() {
            list.retain(|(_, weak)| weak.strong_count() > 0);
        }
    });
}

/// The channel of that number, if it is this thread's and this process's.
pub(crate) fn here(number: u64) -> Option<Rc<Channel>> {
    let found = HERE.try_with(|list| {
        let list = list.borrow();
        list.iter().find(|(n, _)| *n == number).and_then(|(_, weak)| weak.upgrade())
    });
    found.ok().flatten().filter(|channel| !channel.is_inherited())
}

/// Marks this thread as one at work on a background job, until it is dropped.
pub(crate) struct AtWork(());

impl AtWork {
    pub(crate) fn new() -> Self {
        JOBS.with(|jobs| jobs.set(jobs.get() + 1));
        Self(())
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        let _ = JOBS.try_with(|jobs| jobs.set(jobs.get() - 1));
    }
}

/// Whether the calling code is a part of a job that was started with
/// [`Env::spawn`](crate::Env::spawn) or [`Env::run_blocking`](crate::Env::run_blocking). Such code
/// must not wait for other jobs by blocking: they may need its thread, or wait for itself.
pub fn in_background() -> bool {
    JOBS.try_with(|jobs| jobs.get() > 0).unwrap_or(false)
}
