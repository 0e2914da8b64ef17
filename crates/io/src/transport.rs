//! The seam below the channel: something that carries reads to a device and brings them back.
//!
//! A [`Transport`] is `queue`, `submit`, `poll` and `wait`, used by one thread. Two exist: io_uring
//! ([`crate::ring`]) and threads ([`crate::thread_pool`]). One that can only be polled (a queue
//! pair mapped into the process) fits too: its `wait` spins until a completion, a wake or the
//! deadline.
//!
//! Invariant: an [`Op`]'s buffer and file belong to the transport from `queue` until the op comes
//! back in a [`Completion`]. No future ever owns memory that a device may write to.

use crate::buffer::{Buffer, Region};
use crate::file::{OpenOptions, RandomAccessFile};
use crate::posix::PosixFile;
use crate::sync::{AtomicBool, Condvar, Mutex, Ordering, between_seq_cst};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

/// One read on its way: `len` bytes at `offset` of `file` into `buffer` from `start`.
pub(crate) struct Op {
    /// Names the op in its channel; unique among those in flight.
    pub(crate) token: u32,
    pub(crate) file: Arc<dyn RandomAccessFile>,
    pub(crate) buffer: Buffer,
    pub(crate) start: usize,
    pub(crate) len: usize,
    pub(crate) offset: u64,
}

/// A file of the operating system to be opened for reading.
pub(crate) struct OpenOp {
    /// As [`Op::token`], and from the same numbers.
    pub(crate) token: u32,
    pub(crate) path: CString,
    pub(crate) options: OpenOptions,
}

/// What came back.
pub(crate) enum Completion {
    /// A read: how many bytes, 0 at the end of the file.
    Read { op: Op, result: io::Result<usize> },
    /// An open.
    Opened { token: u32, result: io::Result<PosixFile> },
}

/// Opens files of the operating system, and carries their reads. All calls come from the thread
/// that created it.
pub(crate) trait Transport {
    /// Accept an op. It need not start before [`Transport::submit`].
    fn queue(&mut self, op: Op);

    /// Accept a file to be opened.
    fn queue_open(&mut self, op: OpenOp);

    /// Start everything queued. Returns whether there was anything.
    fn submit(&mut self) -> bool;

    /// Hand over what has completed; never blocks.
    fn poll(&mut self, done: &mut Vec<Completion>);

    /// Start everything queued, then block until something completes, the alarm rings or the time
    /// is up.
    fn wait(&mut self, timeout: Option<Duration>, done: &mut Vec<Completion>);

    /// What other threads ring to end a [`Transport::wait`].
    fn alarm(&self) -> &Arc<Alarm>;

    /// Ops accepted and not handed back.
    fn in_flight(&self) -> usize;

    /// Offer memory that reads of direct files will often use. Returns whether it could be
    /// registered.
    fn register(&mut self, regions: &[Arc<Region>]) -> bool {
        let _ = regions;
        false
    }

    /// Leave everything to the kernel and the parent: this process is a fork's child, and must not
    /// touch it.
    fn abandon_after_fork(self: Box<Self>);

    /// For messages and reports.
    fn name(&self) -> &'static str;
}

/// Wakes the one thread that waits on a transport, from any thread, at the cost of a system call
/// only if it sleeps.
///
/// Ordering: the waker sets `rung` and then loads `sleeping`; the sleeper stores `sleeping` and
/// then loads `rung`. With both `SeqCst` at least one sees the other, so no ring is lost.
#[derive(Debug)]
pub(crate) struct Alarm {
    rung: AtomicBool,
    sleeping: AtomicBool,
    bell: Bell,
}

#[derive(Debug)]
enum Bell {
    /// A ring polls this descriptor.
    Eventfd(File),
    /// A thread waits on this.
    Condvar { rung: Mutex<bool>, condvar: Condvar },
}

impl Alarm {
    pub(crate) fn with_eventfd(eventfd: File) -> Arc<Self> {
        Self::with(Bell::Eventfd(eventfd))
    }

    pub(crate) fn with_condvar() -> Arc<Self> {
        Self::with(Bell::Condvar { rung: Mutex::new(false), condvar: Condvar::new() })
    }

    fn with(bell: Bell) -> Arc<Self> {
        Arc::new(Self { rung: AtomicBool::new(false), sleeping: AtomicBool::new(false), bell })
    }

    /// Make the waiting thread return from its wait, or not enter the next one.
    pub(crate) fn ring(&self) {
        // Why a swap: with a store, who takes this ring need not see what came before another
        // thread's, which this one replaces.
        self.rung.swap(true, Ordering::SeqCst);
        between_seq_cst();
        if self.sleeping.load(Ordering::SeqCst) {
            self.strike();
        }
    }

    fn strike(&self) {
        match &self.bell {
            // A full counter (`WouldBlock`) has woken the sleeper as well.
            Bell::Eventfd(file) => drop((&mut &*file).write(&1u64.to_ne_bytes())),
            Bell::Condvar { rung, condvar } => {
                *rung.lock() = true;
                condvar.notify_one();
            }
        }
    }

    /// Whether it has rung since this was last asked, or since the last sleep.
    pub(crate) fn take(&self) -> bool {
        self.rung.load(Ordering::Relaxed) && self.rung.swap(false, Ordering::SeqCst)
    }

    /// Announce that this thread is about to sleep. False: it has rung already; do not sleep.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.sleeping.store(true, Ordering::SeqCst);
        between_seq_cst();
        if self.rung.swap(false, Ordering::SeqCst) {
            self.sleeping.store(false, Ordering::SeqCst);
            return false;
        }
        true
    }

    /// The sleep is over. What the waker did before it rang is visible after this.
    pub(crate) fn wake_up(&self) {
        self.sleeping.store(false, Ordering::SeqCst);
        self.rung.swap(false, Ordering::SeqCst);
    }

    /// For transports without a descriptor: sleep until struck. Completions strike it too.
    pub(crate) fn sleep(&self, timeout: Option<Duration>) {
        let Bell::Condvar { rung, condvar } = &self.bell else {
            unreachable!("a ring sleeps in the kernel");
        };
        let mut has_rung = rung.lock();
        if !*has_rung {
            has_rung = match timeout {
                Some(timeout) => condvar.wait_for(rung, has_rung, timeout).0,
                None => condvar.wait(has_rung),
            };
        }
        *has_rung = false;
    }

    /// The descriptor a ring polls.
    pub(crate) fn eventfd(&self) -> Option<&File> {
        match &self.bell {
            Bell::Eventfd(file) => Some(file),
            Bell::Condvar { .. } => None,
        }
    }
}
