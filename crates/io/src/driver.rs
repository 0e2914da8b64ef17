//! The driver: a thread of an environment that does the I/O of futures polled on foreign executors.
//!
//! Requests arrive in a lock-free queue; the alarm (an eventfd) is signaled only while the driver
//! sleeps. Outcomes go into the shared [`RemoteOp`], and the future's waker is called from this
//! thread. The first such request starts it; the end of the environment ends it.

use crate::channel::Channel;
use crate::env::{ChannelMaker, Purpose};
use crate::posix;
use crate::remote::RemoteOp;
use crate::sync::mpsc::{Receiver, Sender, channel};
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{AtomicBool, Ordering};
use crate::threads::Starter;
use crate::transport::Alarm;
use crate::waking::wake;
use std::rc::Rc;
use std::sync::Arc;

pub(crate) struct Driver {
    sender: Sender<Arc<RemoteOp>>,
    alarm: Arc<Alarm>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    fork_generation: u64,
}

impl Driver {
    /// Starts the thread. Returns when the thread is ready to receive operations.
    pub(crate) fn start(maker: Arc<ChannelMaker>, starter: &Starter) -> std::io::Result<Self> {
        let (sender, receiver) = channel();
        let (ready, is_ready) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = starter.start("karst-driver", move || {
            let channel = Rc::new(maker.make(Purpose::Many));
            crate::current::announce(&channel);
            let _ = ready.send(channel.alarm().clone());
            run(&channel, &receiver, &stopped);
        })?;
        let alarm = is_ready.recv().map_err(|_| std::io::Error::other("the I/O driver did not start"))?;
        Ok(Self { sender, alarm, stop, thread: Some(thread), fork_generation: posix::fork_generation() })
    }

    pub(crate) fn send(&self, op: Arc<RemoteOp>) {
        if let Err(unsent) = self.sender.send(op) {
            if let Some(waker) = unsent.0.fail("the I/O driver has ended") {
                wake(waker);
            }
            return;
        }
        self.alarm.ring();
    }

    /// Returns true if its thread belongs to the process that this one was forked from.
    pub(crate) fn is_inherited(&self) -> bool {
        self.fork_generation != posix::fork_generation()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if self.is_inherited() {
            return std::mem::forget(thread);
        }
        self.stop.store(true, Ordering::Release);
        self.alarm.ring();
        // Not joined from itself: the last owner of an environment may be a waker that this very
        // thread drops.
        if thread.thread().id() != thread::current().id() {
            let _ = thread.join();
        }
    }
}

fn run(channel: &Rc<Channel>, receiver: &Receiver<Arc<RemoteOp>>, stop: &AtomicBool) {
    loop {
        channel.alarm().take();
        while let Ok(op) = receiver.try_recv() {
            channel.start_remote(op);
        }
        if stop.load(Ordering::Acquire) {
            // Every sender, and every waiter for an outcome, held the environment, and the
            // environment is gone.
            return;
        }
        channel.wait(None);
    }
}
