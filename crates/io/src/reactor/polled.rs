//! The reactor without a thread of its own: its owner polls it, on the thread that made it.
//!
//! Tasks come from its own thread and, through [`Spawner`], from others. It serves loops that other
//! code owns, such as a storage server's poller, which lends its thread to the reads.

use super::{LOCAL, Local, Message, SendTask, turn};
use crate::current::Enter;
use crate::env::{Env, Purpose};
use crate::error::Error;
use crate::sync::mpsc::{Receiver, channel};
use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// A reactor that runs only while it is polled, and stays on its thread. Dropping it drops its
/// tasks.
pub struct PolledReactor {
    local: Rc<Local>,
    messages: Receiver<Message>,
    polled: Cell<bool>,
}

/// Sends tasks to a [`PolledReactor`] from any thread.
#[derive(Clone)]
pub struct Spawner(Arc<super::Shared>);

impl PolledReactor {
    /// Returns a reactor of the calling thread, with a channel of its own.
    ///
    /// # Errors
    /// `Unsupported`: the environment is simulated.
    pub fn new(env: &Env) -> Result<Self, Error> {
        if env.executor().is_some() {
            let e = io::Error::new(io::ErrorKind::Unsupported, "a simulation has no reactors");
            return Err(Error::new("make reactor", "", e));
        }
        let (inbox, messages) = channel();
        let io = Rc::new(env.maker().make(Purpose::Many));
        Ok(Self { local: Rc::new(Local::new(&io, inbox, false)), messages, polled: Cell::new(false) })
    }

    /// Adds a task, which begins with the next [`poll`](Self::poll) and reports its own end.
    pub fn spawn(&self, task: Pin<Box<dyn Future<Output = ()>>>) {
        self.local.tasks.add(&self.local.shared, task);
    }

    /// Returns a handle that adds tasks from other threads. Tasks sent after the reactor's end are
    /// dropped.
    pub fn spawner(&self) -> Spawner {
        Spawner(self.local.shared.clone())
    }

    /// Takes in completions, runs each ready task once, and submits new reads to the kernel. Never
    /// blocks, unless a task does. Does nothing inside one of its own tasks.
    pub fn poll(&self) {
        if self.polled.get() {
            return;
        }
        self.inside(|| {
            let _goes_on = turn(&self.local, &self.messages);
            self.local.channel.submit();
        });
    }

    /// Blocks until a read completes, another thread wakes or adds a task, or `at_most` has passed;
    /// returns at once if a task is ready. Runs no task. Does nothing inside one of its own tasks.
    pub fn wait(&self, at_most: Option<Duration>) {
        if !self.polled.get() && self.local.tasks.ready_count() == 0 {
            self.inside(|| self.local.channel.wait(at_most));
        }
    }

    /// Returns true if it is being polled, which means that the caller is one of its tasks.
    pub fn is_polled(&self) -> bool {
        self.polled.get()
    }

    /// Runs `f` with this reactor's channel current on the thread.
    fn inside<T>(&self, f: impl FnOnce() -> T) -> T {
        /// Restores the thread's previous reactor.
        struct Before<'a>(&'a Cell<bool>, Option<Rc<Local>>);
        impl Drop for Before<'_> {
            fn drop(&mut self) {
                self.0.set(false);
                let before = self.1.take();
                let ours = LOCAL.try_with(|slot| std::mem::replace(&mut *slot.borrow_mut(), before));
                drop(ours);
            }
        }
        self.polled.set(true);
        let before = LOCAL.with(|slot| slot.borrow_mut().replace(self.local.clone()));
        let _before = Before(&self.polled, before);
        let _entered = Enter::new(self.local.channel.clone());
        f()
    }
}

impl Drop for PolledReactor {
    fn drop(&mut self) {
        self.inside(|| self.local.tasks.clear());
    }
}

impl Spawner {
    /// Adds a task, which reports its own end, and ends the reactor's wait.
    pub fn spawn(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        let task: SendTask = task;
        self.0.send(Message::Task(task));
    }
}

impl fmt::Debug for PolledReactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PolledReactor")
    }
}

impl fmt::Debug for Spawner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Spawner")
    }
}
