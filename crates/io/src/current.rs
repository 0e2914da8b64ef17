//! The channel that this thread's futures use, the work that must end before the thread blocks, and
//! the mark that a thread runs a background job.
//!
//! A reactor makes its channel current while it runs, and `block_on` its thread's own channel for
//! the length of the call. On any other thread no channel is current, and reads go to the driver. A
//! channel can be found by its number on its own thread only.

use crate::channel::Channel;
use crate::sync::thread_local;
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

thread_local! {
    static CURRENT: RefCell<Option<Rc<Channel>>> = const { RefCell::new(None) };
    static JOBS: Cell<u32> = const { Cell::new(0) };
    static ATTACHED: RefCell<Option<Rc<dyn Attached>>> = const { RefCell::new(None) };
    static HERE: RefCell<Vec<(u64, Weak<Channel>)>> = const { RefCell::new(Vec::new()) };
}

/// Makes a channel current until this is dropped, then restores the previous one.
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

/// Calls `f` with the channel that futures polled now use, or with `None` if this thread has none.
pub(crate) fn with_current<R>(f: impl FnOnce(Option<&Rc<Channel>>) -> R) -> R {
    // Cloned, because `f` may poll and re-enter. The count is not atomic.
    let current = CURRENT.try_with(|c| c.borrow().clone()).ok().flatten();
    f(current.as_ref())
}

/// Work that other threads may wait for and that only this thread can finish.
pub(crate) trait Attached {
    /// Finishes it; blocks.
    fn finish(&self);
}

/// Sets the work that [`finish_attached`] finishes, or none.
pub(crate) fn set_attached(attached: Option<Rc<dyn Attached>>) {
    let _ = ATTACHED.try_with(|slot| slot.replace(attached));
}

/// Finishes the work of this thread that others may wait for. Called before the thread blocks.
pub(crate) fn finish_attached() {
    let attached = ATTACHED.try_with(|slot| slot.borrow().clone()).ok().flatten();
    if let Some(attached) = attached {
        attached.finish();
    }
}

/// Makes a channel of this thread known to [`here`].
pub(crate) fn announce(channel: &Rc<Channel>) {
    HERE.with(|list| {
        let mut list = list.borrow_mut();
        list.retain(|(_, weak)| weak.strong_count() > 0);
        list.push((channel.outbox().channel, Rc::downgrade(channel)));
    });
}

/// Removes channels that have ended from the list.
pub(crate) fn forget_ended() {
    let _ = HERE.try_with(|list| {
        if let Ok(mut list) = list.try_borrow_mut() {
            list.retain(|(_, weak)| weak.strong_count() > 0);
        }
    });
}

/// Returns the channel of that number, if it belongs to this thread and this process.
pub(crate) fn here(number: u64) -> Option<Rc<Channel>> {
    let found = HERE.try_with(|list| {
        let list = list.borrow();
        list.iter().find(|(n, _)| *n == number).and_then(|(_, weak)| weak.upgrade())
    });
    found.ok().flatten().filter(|channel| !channel.is_inherited())
}

/// Marks this thread as running a background job until this is dropped.
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

/// Returns true if the calling code is part of a job started with [`Env::spawn`](crate::Env::spawn)
/// or [`Env::run_blocking`](crate::Env::run_blocking). Such code must not block on other jobs: they
/// may need its thread, or wait for the calling job.
pub fn in_background() -> bool {
    JOBS.try_with(|jobs| jobs.get() > 0).unwrap_or(false)
}
