//! The interface below the channel: a transport carries reads and writes to a device and returns
//! their completions.
//!
//! A [`Transport`] is `queue`, `submit`, `poll` and `wait`, used by one thread. Two exist: io_uring
//! ([`crate::ring`]) and threads ([`crate::thread_pool`]). One that can only be polled (a queue
//! pair mapped into the process) fits too: its `wait` spins until a completion, a wake-up or the
//! deadline.
//!
//! Invariant: an [`Op`]'s buffer and file belong to the transport from `queue` until the op comes
//! back in a [`Completion`]. No future ever owns memory that a device may write to.

use crate::buffer::{Buffer, Region};
use crate::file::{OpenOptions, PositionalFile, RandomAccessFile};
use crate::posix::PosixFile;
use crate::sync::{AtomicBool, Condvar, Mutex, Ordering, between_seq_cst};
use socket2::{SockAddr, Socket};
use std::ffi::CString;
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// One read in flight: `len` bytes at `offset` of `file` into `buffer` from `start`.
pub(crate) struct Op {
    /// Identifies the op in its channel; unique among those in flight.
    pub(crate) token: u32,
    pub(crate) file: Arc<dyn RandomAccessFile>,
    pub(crate) buffer: Buffer,
    pub(crate) start: usize,
    pub(crate) len: usize,
    pub(crate) offset: u64,
}

/// A request to open a file of the operating system for reading.
pub(crate) struct OpenOp {
    /// Identifies the op; shares the numbers of [`Op::token`].
    pub(crate) token: u32,
    pub(crate) path: CString,
    pub(crate) options: OpenOptions,
}

/// One operation on a file open for writing, whose backend is a file descriptor.
pub(crate) struct WriteOp {
    /// Identifies the op; shares the numbers of [`Op::token`].
    pub(crate) token: u32,
    pub(crate) file: Arc<dyn PositionalFile>,
    pub(crate) action: WriteAction,
    /// Maximum number of bytes that the next step writes.
    pub(crate) at_most: usize,
}

/// An operation on a file open for writing, with the memory that it reads.
#[derive(Clone)]
pub(crate) enum WriteAction {
    /// Writes the bytes of `data` from `start` on; the first byte of `data` goes to `offset`.
    Write { data: Arc<Vec<u8>>, start: usize, offset: u64 },
    /// Makes the data durable, with `all` the metadata too.
    Sync { all: bool },
    /// Reserves space, as far as the file system supports it.
    Reserve { offset: u64, len: u64 },
}

impl WriteAction {
    /// Returns the offset of the operation's next step, and its number of bytes: 0 unless it
    /// writes.
    pub(crate) fn place(&self) -> (u64, usize) {
        match self {
            Self::Write { data, start, offset } => (*offset + *start as u64, data.len() - *start),
            Self::Sync { .. } => (0, 0),
            Self::Reserve { offset, .. } => (*offset, 0),
        }
    }
}

impl fmt::Debug for WriteAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write { data, start, offset } => {
                write!(f, "Write({}..{} at {offset})", start, data.len())
            }
            Self::Sync { all } => write!(f, "Sync({all})"),
            Self::Reserve { offset, len } => write!(f, "Reserve({offset}+{len})"),
        }
    }
}

/// One operation on a socket. Sockets belong to the thread of their channel.
pub(crate) struct SocketOp {
    /// Identifies the operation in its channel, by the numbers of [`Op::token`].
    pub(crate) token: u32,
    pub(crate) socket: Arc<Socket>,
    pub(crate) action: SocketAction,
}

/// An operation on a socket, with the memory that it reads or writes.
pub(crate) enum SocketAction {
    /// Takes a connection from a listening socket.
    Accept { accepted: Option<Socket> },
    /// Connects to an address; boxed so that the address stays in place.
    Connect(Box<SockAddr>),
    /// Receives into the buffer's spare capacity, which is not empty, and makes it longer.
    Receive(Vec<u8>),
    /// Sends the buffer's bytes from `start` on.
    Send { data: Vec<u8>, start: usize },
}

/// A completed operation.
pub(crate) enum Completion {
    /// A read, with its number of bytes, 0 at the end of the file.
    Read { op: Op, result: io::Result<usize> },
    /// An open.
    Opened { token: u32, result: io::Result<PosixFile> },
    /// An operation on a file open for writing: the number of bytes written, 0 of other actions.
    Written { op: WriteOp, result: io::Result<usize> },
    /// An operation on a socket: the number of bytes received or sent, 0 of other actions.
    Socket { op: SocketOp, result: io::Result<usize> },
}

/// Opens files of the operating system and carries their reads and writes. All calls come from the
/// thread that created it.
pub(crate) trait Transport {
    /// Accepts an op. It need not start before [`Transport::submit`].
    fn queue(&mut self, op: Op);

    /// Accepts a request to open a file.
    fn queue_open(&mut self, op: OpenOp);

    /// Accepts an operation on a file open for writing.
    fn queue_write(&mut self, op: WriteOp);

    /// Accepts an operation on a socket. It may stay in flight for ever, and so does not count in
    /// [`Transport::in_flight`].
    fn queue_socket(&mut self, op: SocketOp);

    /// Ends an operation on a socket: it comes back soon, with `ECANCELED` unless it had completed.
    fn cancel_socket(&mut self, token: u32);

    /// Starts everything queued. Returns true if anything was queued.
    fn submit(&mut self) -> bool;

    /// Appends the completions to `done`; never blocks.
    fn poll(&mut self, done: &mut Vec<Completion>);

    /// Starts everything queued, then blocks until an operation completes, the alarm rings or the
    /// timeout expires.
    fn wait(&mut self, timeout: Option<Duration>, done: &mut Vec<Completion>);

    /// Returns the alarm that other threads ring to end a [`Transport::wait`].
    fn alarm(&self) -> &Arc<Alarm>;

    /// Returns the number of reads, opens and writes accepted and not handed back.
    fn in_flight(&self) -> usize;

    /// Registers memory that reads of direct files often use. Returns true if it was registered.
    fn register(&mut self, regions: &[Arc<Region>]) -> bool {
        let _ = regions;
        false
    }

    /// Returns true if it fails all operations, for good.
    fn is_broken(&self) -> bool {
        false
    }

    /// Leaks everything that belongs to the kernel and the parent, because this process is a forked
    /// child and must not touch it.
    fn abandon_after_fork(self: Box<Self>);

    /// Returns the transport's name for messages and reports.
    fn name(&self) -> &'static str;
}

/// Wakes the one thread that waits on a transport, from any thread, with a system call only if it
/// sleeps.
///
/// Ordering: the waker sets `rung` and then loads `sleeping`; the sleeper stores `sleeping` and
/// then loads `rung`. With both `SeqCst` at least one sees the other, which means that no ring is
/// lost.
#[derive(Debug)]
pub(crate) struct Alarm {
    rung: AtomicBool,
    sleeping: AtomicBool,
    bell: Bell,
}

#[derive(Debug)]
enum Bell {
    /// Descriptor that a ring polls.
    Eventfd(File),
    /// Condition variable that a thread waits on, or descriptor that it polls once that is set.
    Condvar { rung: Mutex<bool>, condvar: Condvar, eventfd: OnceLock<File> },
}

impl Alarm {
    pub(crate) fn with_eventfd(eventfd: File) -> Arc<Self> {
        Self::with(Bell::Eventfd(eventfd))
    }

    pub(crate) fn with_condvar() -> Arc<Self> {
        Self::with(Bell::Condvar {
            rung: Mutex::new(false),
            condvar: Condvar::new(),
            eventfd: OnceLock::new(),
        })
    }

    fn with(bell: Bell) -> Arc<Self> {
        Arc::new(Self { rung: AtomicBool::new(false), sleeping: AtomicBool::new(false), bell })
    }

    /// Makes the waiting thread return from its wait, or not enter the next one.
    pub(crate) fn ring(&self) {
        // A swap, because a plain store that replaces another thread's ring would not publish that
        // thread's earlier writes to the thread that takes this ring.
        self.rung.swap(true, Ordering::SeqCst);
        between_seq_cst();
        if self.sleeping.load(Ordering::SeqCst) {
            self.strike();
        }
    }

    fn strike(&self) {
        match &self.bell {
            // A full counter (`WouldBlock`) wakes the sleeper too.
            Bell::Eventfd(file) => drop((&mut &*file).write(&1u64.to_ne_bytes())),
            Bell::Condvar { rung, condvar, eventfd } => {
                *rung.lock() = true;
                condvar.notify_one();
                // Set before the sleeper announced its sleep, which this thread has seen.
                if let Some(mut eventfd) = eventfd.get() {
                    drop(eventfd.write(&1u64.to_ne_bytes()));
                }
            }
        }
    }

    /// Returns true if it has rung since the last call or the last sleep.
    pub(crate) fn take(&self) -> bool {
        self.rung.load(Ordering::Relaxed) && self.rung.swap(false, Ordering::SeqCst)
    }

    /// Announces that this thread is about to sleep. Returns false if it has already rung; the
    /// thread must then not sleep.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.sleeping.store(true, Ordering::SeqCst);
        between_seq_cst();
        if self.rung.swap(false, Ordering::SeqCst) {
            self.sleeping.store(false, Ordering::SeqCst);
            return false;
        }
        true
    }

    /// Ends the sleep. The waker's writes before its ring are visible after this.
    pub(crate) fn wake_up(&self) {
        self.sleeping.store(false, Ordering::SeqCst);
        self.rung.swap(false, Ordering::SeqCst);
    }

    /// Sleeps until struck, for transports without a descriptor. Completions strike it too.
    pub(crate) fn sleep(&self, timeout: Option<Duration>) {
        let Bell::Condvar { rung, condvar, .. } = &self.bell else {
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

    /// Returns the descriptor that a ring polls.
    pub(crate) fn eventfd(&self) -> Option<&File> {
        match &self.bell {
            Bell::Eventfd(file) => Some(file),
            Bell::Condvar { eventfd, .. } => eventfd.get(),
        }
    }

    /// Adds a descriptor to an alarm with a condition variable, which it strikes from now on.
    /// Called by the thread that sleeps.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub(crate) fn add_eventfd(&self) -> io::Result<()> {
        if let Bell::Condvar { eventfd, .. } = &self.bell
            && eventfd.get().is_none()
        {
            let _ = eventfd.set(crate::posix::eventfd()?);
        }
        Ok(())
    }

    /// Empties the descriptor, so that it does not end the next wait.
    pub(crate) fn silence(&self) {
        if let Some(mut eventfd) = self.eventfd() {
            let _ = eventfd.read(&mut [0; 8]);
        }
    }
}
