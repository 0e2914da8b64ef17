//! The reactor without a thread of its own: whoever makes it polls it, on the thread that made it.
//!
//! In: tasks, from its own thread and, by [`Spawner`], from others. It is for loops that others
//! own, such as a storage server's poller, which shall give their thread to the reads and get it
//! back.

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

/// Gives tasks to a [`PolledReactor`] from any thread.
#[derive(Clone)]
pub struct Spawner(Arc<super::Shared>);

impl PolledReactor {
    /// A reactor of the calling thread, with a channel of its own.
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
        Ok(Self { local: Rc::new(Local::new(&io, inbox)), messages, polled: Cell::new(false) })
    }

    /// Adds a task, which begins with the next [`poll`](Self::poll) and tells its end by itself.
    pub fn spawn(&self, task: Pin<Box<dyn Future<Output = ()>>>) {
        self.local.tasks.add(&self.local.shared, task);
    }

    /// What gives it tasks from other threads. Tasks that come after its end are dropped.
    pub fn spawner(&self) -> Spawner {
        Spawner(self.local.shared.clone())
    }

    /// Takes in what has completed, runs each task that is ready once, and hands new reads to the
    /// kernel. Never blocks, unless a task does. Inside one of its own tasks it does nothing.
    pub fn poll(&self) {
        if self.polled.get() {
            return;
        }
        self.inside(|| {
            let _goes_on = turn(&self.local, &self.messages);
            self.local.channel.submit();
        });
    }

    /// Blocks until a read completes, another thread wakes a task or brings one, or `at_most` is
    /// over; at once if a task is ready. Runs no task. Inside one of its own tasks it does nothing.
    pub fn wait(&self, at_most: Option<Duration>) {
        if !self.polled.get() && self.local.tasks.ready_count() == 0 {
            self.inside(|| self.local.channel.wait(at_most));
        }
    }

    /// Whether it is being polled: the caller is one of its tasks.
    pub fn is_polled(&self) -> bool {
        self.polled.get()
    }

    /// Runs `f` with the thread's futures on this reactor's channel.
    fn inside<T>(&self, f: impl FnOnce() -> T) -> T {
        /// What the thread had before, again.
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
    /// Adds a task, which tells its end by itself, and ends the reactor's wait.
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
