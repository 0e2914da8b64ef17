//! An op slot: one operation of a channel, from the request to the last waiter.
//!
//! ```text
//!  Free -> Waiting -> Flying -> Done -> Free        (a local waiter fetches the outcome from the slot)
//!             |  ^      |
//!             |  |      +-> Held -> ...             (a soft file, or a delay: the channel's own timer completes it)
//!             |  +------+                           (a short or interrupted read or write goes on)
//!             +-> Free                              (abandoned before it started)
//!  Free -> Joined -> Done                           (another channel does the read, see [`super::sharing`])
//!             +-> Waiting                           (the other channel gave the read up)
//! ```
//!
//! A slot without waiters is abandoned: it stays in place until the transport returns its buffer,
//! and is then freed. Buffers belong to the slot or, while flying, to the transport; never to a
//! future. The states of an op started from another thread (locked, completing) are in
//! [`crate::remote`].

use super::outbox::Outbox;
use crate::buffer::{Buffer, ReadBuf};
use crate::error::Failure;
use crate::file::{Backend, Disturbance, FileId, OpenOptions, PositionalFile, RandomAccessFile};
use crate::remote::RemoteOp;
use crate::transport::{OpenOp, SocketOp, WriteAction, WriteOp};
use smallvec::SmallVec;
use socket2::Socket;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

/// A future's request to a channel.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    /// Reads `len` bytes at `offset`.
    Read { file: Arc<dyn RandomAccessFile>, offset: u64, len: usize },
    /// Opens a file of the operating system for reading.
    Open { path: PathBuf, options: OpenOptions },
    /// Writes, syncs or extends a file whose backend is a descriptor.
    Write { file: Arc<dyn PositionalFile>, action: WriteAction },
    /// Completes after a time.
    Sleep(Duration),
}

/// The successful result of a request.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Bytes(ReadBuf),
    File(Arc<dyn RandomAccessFile>),
    Slept,
    /// All was written, synced or reserved.
    Written,
    /// A connection was taken from a listening socket.
    Accepted(Arc<Socket>),
    Connected,
    /// The buffer of a receive, longer by the bytes received, or unchanged at the end of the
    /// stream; or with the failure that left it unchanged.
    Received(Vec<u8>, Option<Failure>),
    /// The buffer, all of which was sent.
    Sent(Vec<u8>),
}

pub(crate) type Outcome = Result<Answer, Failure>;

/// Identifies a read; identical reads have equal keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadKey {
    pub(crate) file: FileId,
    pub(crate) offset: u64,
    pub(crate) len: usize,
}

impl ReadKey {
    /// Returns a fast hash; the numbers are small and not chosen by an adversary.
    pub(crate) fn hash(&self) -> u64 {
        let mix = |hash: u64, n: u64| (hash.rotate_left(23) ^ n).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let hash = mix(mix(mix(0, self.file.0), self.offset), self.len as u64);
        hash ^ (hash >> 29)
    }
}

/// A future's claim on a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
    /// Index of the slot's waiter.
    pub(crate) waiter: u32,
}

pub(crate) enum Waiter {
    /// A future polled on the channel's own thread; it fetches the outcome from the slot.
    Local(Option<Waker>),
    /// A future polled anywhere; the outcome is sent to it.
    Remote(Arc<RemoteOp>),
    /// The waiter has its outcome, or was dropped.
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Free,
    /// Queued in the channel until the transport has room.
    Waiting,
    /// With the transport.
    Flying,
    /// On the channel's timer.
    Held,
    /// Joined to a read of another channel.
    Joined,
    /// Complete; the slot holds the outcome.
    Done,
}

/// The action of a held read when it is due.
pub(crate) enum Held {
    Nothing,
    /// Reads this many bytes from its soft file, or fails if the disturbance says so.
    Step(usize),
    /// Continues with the result of its transport.
    Landed(io::Result<usize>),
}

/// The progress of a read.
pub(crate) struct ReadWork {
    pub(crate) file: Arc<dyn RandomAccessFile>,
    pub(crate) key: ReadKey,
    /// Offset of the bytes to read: the request widened to the file's alignment.
    pub(crate) window_start: u64,
    pub(crate) window_len: usize,
    pub(crate) filled: usize,
    /// The destination, `None` while the transport has it.
    pub(crate) buffer: Option<Buffer>,
    pub(crate) disturbance: Disturbance,
    /// The action of a held slot when it is due.
    pub(crate) held: Held,
    /// Earliest time at which a delayed flying step may complete.
    pub(crate) not_before: Option<Duration>,
    pub(crate) interruptions: u32,
    /// Relation to the same read of other channels.
    pub(crate) sharing: Sharing,
}

/// Relation of a read to the same read of other channels.
pub(crate) enum Sharing {
    /// Other channels cannot join it.
    Private,
    /// Other channels can join it.
    Open,
    /// It has joined a read of the channel of `owner`; `beats` is that channel's count when it was
    /// last checked.
    Joined { owner: Arc<Outbox>, beats: u64 },
}

impl ReadWork {
    /// Widens a request to whole units of the file's alignment.
    pub(crate) fn new(file: Arc<dyn RandomAccessFile>, offset: u64, len: usize) -> Result<Self, Failure> {
        let invalid = || Failure::new(io::ErrorKind::InvalidInput, "the read's end is beyond any file");
        let unit = u64::from(file.alignment().max(1));
        let end = offset.checked_add(len as u64).filter(|end| *end <= i64::MAX as u64).ok_or_else(invalid)?;
        let window_start = offset - offset % unit;
        let window_end = end.checked_next_multiple_of(unit).ok_or_else(invalid)?;
        let window_len = usize::try_from(window_end - window_start).map_err(|_| invalid())?;
        let key = ReadKey { file: file.id(), offset, len };
        Ok(Self {
            file,
            key,
            window_start,
            window_len,
            filled: 0,
            buffer: None,
            disturbance: Disturbance::default(),
            held: Held::Nothing,
            not_before: None,
            interruptions: 0,
            sharing: Sharing::Private,
        })
    }

    /// Ends a held step that is due, and returns its result.
    pub(crate) fn end_hold(&mut self) -> io::Result<usize> {
        match std::mem::replace(&mut self.held, Held::Nothing) {
            Held::Landed(result) => result,
            Held::Step(len) => match (self.disturbance.fail, self.file.backend(), &mut self.buffer) {
                (Some(errno), ..) => Err(io::Error::from_raw_os_error(errno)),
                (None, Backend::Soft(soft), Some(buffer)) => {
                    let offset = self.window_start + self.filled as u64;
                    soft.read_at(offset, buffer.zeroed_slice(self.filled, len)).map(|n| n.min(len))
                }
                _ => unreachable!("only soft files are read by the timer"),
            },
            Held::Nothing => unreachable!("a held read holds something"),
        }
    }

    /// Returns true if a step that read `step` bytes was the last.
    ///
    /// # Errors
    /// The step stopped inside a unit of the device before the end of the file; the read could only
    /// continue at an aligned offset.
    pub(crate) fn is_complete_after(&mut self, step: usize) -> io::Result<bool> {
        self.filled += step;
        let unit = self.file.alignment().max(1) as usize;
        if step == 0 || self.filled >= self.window_len {
            return Ok(true);
        }
        let odd = self.filled % unit;
        if odd == 0 {
            return Ok(false);
        }
        if self.window_start + self.filled as u64 >= self.file.size() {
            return Ok(true);
        }
        if step <= odd {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the device read less than its own unit",
            ));
        }
        self.filled -= odd; // reads the partial unit again
        Ok(false)
    }

    /// Returns the requested bytes out of those read.
    pub(crate) fn finish(&mut self) -> ReadBuf {
        let skip = (self.key.offset - self.window_start) as usize;
        let len = self.filled.saturating_sub(skip).min(self.key.len);
        match self.buffer.take() {
            Some(buffer) if len > 0 => buffer.freeze(skip, len),
            _ => ReadBuf::empty(),
        }
    }
}

/// The progress of an operation on a file open for writing.
pub(crate) struct WriteWork {
    /// `None` while the transport has it.
    pub(crate) op: Option<WriteOp>,
    pub(crate) interruptions: u32,
}

pub(crate) enum Work {
    None,
    Read(ReadWork),
    /// `Some` until the transport has it.
    Open(Option<OpenOp>),
    Write(WriteWork),
    /// `Some` until it flies, and while it waits to go on.
    Socket(Option<SocketOp>),
    Sleep,
}

pub(crate) struct Slot {
    pub(crate) generation: u32,
    pub(crate) phase: Phase,
    pub(crate) work: Work,
    pub(crate) waiters: SmallVec<[Waiter; 2]>,
    /// Number of waiters that are not gone.
    pub(crate) interested: u32,
    pub(crate) outcome: Option<Outcome>,
}

impl Slot {
    pub(crate) fn new() -> Self {
        Self {
            generation: 0,
            phase: Phase::Free,
            work: Work::None,
            waiters: SmallVec::new(),
            interested: 0,
            outcome: None,
        }
    }
}
