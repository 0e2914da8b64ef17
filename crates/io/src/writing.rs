//! Writes, syncs and reservations of files as futures: [`write_at`], [`sync_file`],
//! [`reserve_space`].
//!
//! In: a file open for writing at any offset. A file of the operating system is written by the
//! channel that is current at the first poll (a reactor's, or that of a `block_on`), else by the
//! driver's; a file inside this process by the future itself, in later polls; any other file by a
//! thread that may block.
//!
//! Invariants:
//! - Nothing is written twice: an operation stays with the channel that it began on. Polled where
//!   that channel is not current, it blocks until the operation has ended, and on another thread it
//!   fails.
//! - The data belongs to the channel until the operation has ended. A dropped future leaves an
//!   operation that has begun in flight, and it may still take effect at any time.

use crate::blocking::Blocking;
use crate::channel::slot::Request;
use crate::current::with_current;
use crate::env::Env;
use crate::error::{Error, Result};
use crate::file::{Disturbance, PositionalFile, WriteBackend};
use crate::operation::{ChannelOperation, Sleep, sleep};
use crate::transport::WriteAction;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Maximum number of interruptions in a row before a write of a file in this process fails.
const INTERRUPTIONS_AT_MOST: u32 = 1000;

/// Writes all of `data` at `offset` of `file`, whose [alignment](PositionalFile::alignment) is 1 or
/// which has blocking calls only. When it is done, the bytes have left the process, but are not
/// durable.
///
/// Nothing happens before the first poll. The future is polled on the thread of its first poll
/// only, unless that thread had no channel.
///
/// # Errors
/// The write failed; a part of `data` may have been written.
pub fn write_at(env: &Env, file: &Arc<dyn PositionalFile>, offset: u64, data: Arc<Vec<u8>>) -> WriteFuture {
    WriteFuture::new(env, file, WriteAction::Write { data, start: 0, offset })
}

/// Makes the data written before and the length durable (`fdatasync`), and with `all` all metadata
/// too (`fsync`). Polled like [`write_at`].
///
/// # Errors
/// The sync failed: bytes written since the last sync may be lost, and the caller must write
/// nothing more to the file.
pub fn sync_file(env: &Env, file: &Arc<dyn PositionalFile>, all: bool) -> WriteFuture {
    WriteFuture::new(env, file, WriteAction::Sync { all })
}

/// Reserves space for `len` bytes from `offset` as [`PositionalFile::reserve`] does. Polled like
/// [`write_at`].
///
/// # Errors
/// The device has no such space, or the reservation would take more than half of it.
pub fn reserve_space(env: &Env, file: &Arc<dyn PositionalFile>, offset: u64, len: u64) -> WriteFuture {
    WriteFuture::new(env, file, WriteAction::Reserve { offset, len })
}

/// An operation on a file open for writing; see [`write_at`]. If it is dropped before its first
/// poll, nothing happens; later, it may still take effect.
#[must_use = "futures do nothing unless polled"]
pub struct WriteFuture {
    file: Arc<dyn PositionalFile>,
    action: WriteAction,
    way: Way,
}

enum Way {
    Channel(ChannelOperation),
    Soft(SoftSteps),
    Later(Env),
    Thread(Blocking<Result<()>>),
}

impl WriteFuture {
    fn new(env: &Env, file: &Arc<dyn PositionalFile>, action: WriteAction) -> Self {
        let way = match file.backend() {
            WriteBackend::Fd(_) => {
                let request = Request::Write { file: file.clone(), action: action.clone() };
                Way::Channel(ChannelOperation::new(env, request))
            }
            WriteBackend::Soft => {
                Way::Soft(SoftSteps { env: env.clone(), next: None, interruptions: 0, is_counted: false })
            }
            WriteBackend::Blocking => Way::Later(env.clone()),
        };
        Self { file: file.clone(), action, way }
    }

    fn error(&self, e: io::Error) -> Error {
        let path = self.file.path();
        match self.action {
            WriteAction::Write { offset, .. } => Error::at("write", path, offset, e),
            WriteAction::Sync { .. } => Error::new("sync", path, e),
            WriteAction::Reserve { offset, .. } => Error::at("reserve space in", path, offset, e),
        }
    }
}

/// An operation on a file in this process, in steps.
struct SoftSteps {
    env: Env,
    /// The next step with its fault, and the pause before it.
    next: Option<(Disturbance, Sleep)>,
    interruptions: u32,
    is_counted: bool,
}

impl SoftSteps {
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        file: &dyn PositionalFile,
        action: &mut WriteAction,
    ) -> Poll<io::Result<Result<()>>> {
        if !std::mem::replace(&mut self.is_counted, true) {
            with_current(|channel| channel.iter().for_each(|channel| channel.count_write()));
        }
        loop {
            let (offset, len) = action.place();
            let (disturbance, pause) = self.next.get_or_insert_with(|| {
                let disturbance = file.disturb(offset, len).unwrap_or_default();
                let pause = sleep(&self.env, disturbance.delay.unwrap_or_default());
                (disturbance, pause)
            });
            std::task::ready!(Pin::new(pause).poll(cx));
            let (fail, shorten_to) = (disturbance.fail, disturbance.shorten_to);
            self.next = None;
            match fail {
                Some(libc::EINTR | libc::EAGAIN) if self.interruptions < INTERRUPTIONS_AT_MOST => {
                    self.interruptions += 1;
                    continue;
                }
                Some(errno) => return Poll::Ready(Err(io::Error::from_raw_os_error(errno))),
                None => self.interruptions = 0,
            }
            match (&mut *action, shorten_to.filter(|most| *most < len)) {
                (WriteAction::Write { data, start, .. }, Some(most)) => {
                    let end = *start + most.max(1);
                    if let Err(e) = file.write_at(offset, &data[*start..end]) {
                        return Poll::Ready(Ok(Err(e)));
                    }
                    *start = end;
                }
                _ => return Poll::Ready(Ok(call(file, action))),
            }
        }
    }
}

/// Carries an operation out by the file's own call.
fn call(file: &dyn PositionalFile, action: &WriteAction) -> Result<()> {
    match action {
        WriteAction::Write { data, start, offset } => file.write_at(offset + *start as u64, &data[*start..]),
        WriteAction::Sync { all: false } => file.sync(),
        WriteAction::Sync { all: true } => file.sync_all(),
        WriteAction::Reserve { offset, len } => file.reserve(*offset, *len),
    }
}

impl Future for WriteFuture {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        if let Way::Later(env) = &self.way {
            let (file, action) = (self.file.clone(), self.action.clone());
            self.way = Way::Thread(env.run_blocking(move |_| call(&*file, &action)));
        }
        let Self { file, action, way } = &mut *self;
        match way {
            Way::Channel(operation) => {
                let outcome = std::task::ready!(operation.poll(cx));
                Poll::Ready(outcome.map(drop).map_err(|failure| self.error(failure.to_io())))
            }
            Way::Soft(steps) => {
                let outcome = std::task::ready!(steps.poll(cx, &**file, action));
                Poll::Ready(outcome.unwrap_or_else(|e| Err(self.error(e))))
            }
            Way::Thread(blocking) => Pin::new(blocking).poll(cx),
            Way::Later(_) => unreachable!("it has just been started"),
        }
    }
}

impl fmt::Debug for WriteFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WriteFuture({}, {:?})", self.file.path().display(), self.action)
    }
}
