//! The futures of the channel: [`read`], [`open`], [`sleep`], and the choice of the channel that
//! carries an operation out.
//!
//! An operation binds when it is first polled: to the current reactor's channel, else to the
//! current `block_on`'s, else to the environment's driver thread. If it is polled again where its
//! channel is not current (it moved to another thread, or into a nested `block_on`), it takes an
//! outcome that has already arrived, or gives its claim up and starts again; it never waits on a
//! ring that no thread polls. A driver always polls. A write ([`crate::write_at`]) does not start
//! again, because it would be written twice: see there.
//!
//! Dropping a future at any time is safe: the claim is given up, and the slot keeps the buffer
//! until the kernel is done with it.

use crate::blocking::Blocking;
use crate::buffer::ReadBuf;
use crate::channel::Channel;
use crate::channel::outbox::{Message, Outbox};
use crate::channel::slot::{Answer, Outcome, Request, Ticket};
use crate::current;
use crate::env::Env;
use crate::error::{Error, Failure};
use crate::file::{OpenOptions, RandomAccessFile};
use crate::observed::{FileOperation, FileOperationInfo};
use crate::posix;
use crate::remote::RemoteOp;
use std::fmt;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Reads `len` bytes at `offset` of `file`.
///
/// The result is short only at the end of the file, and empty beyond it. Nothing happens before the
/// first poll. The channel aligns the read as the file requires. The read joins an identical one in
/// flight on the same channel, or on the channel of another thread of the environment while that
/// thread polls its channel.
pub fn read(env: &Env, file: &Arc<dyn RandomAccessFile>, offset: u64, len: usize) -> ReadFuture {
    let begun = env.observers().map(|_| env.now());
    ReadFuture {
        operation: ChannelOperation::new(env, Request::Read { file: file.clone(), offset, len }),
        begun,
    }
}

/// Opens a file for reading without blocking the calling thread. Any number of files can be opened
/// at the same time.
///
/// Nothing happens before the first poll. The channel opens a file of the operating system, as it
/// does reads; a file of another file system is opened on a thread that may block.
pub fn open(env: &Env, path: &Path, options: OpenOptions) -> OpenFuture {
    let opening = if env.fs().is_posix() {
        Opening::Channel(ChannelOperation::new(env, Request::Open { path: path.into(), options }))
    } else {
        Opening::Later { env: env.clone(), options }
    };
    OpenFuture { path: path.into(), opening }
}

/// Completes after `span`, on a reactor, in `block_on` and on any other executor.
pub fn sleep(env: &Env, span: Duration) -> Sleep {
    Sleep { operation: ChannelOperation::new(env, Request::Sleep(span)) }
}

/// A read; see [`read`]. May be moved between threads and dropped at any time.
#[must_use = "futures do nothing unless polled"]
pub struct ReadFuture {
    operation: ChannelOperation,
    /// Time of the request, if the environment has observers.
    begun: Option<Duration>,
}

impl ReadFuture {
    /// Reports the read to the file observers.
    #[cold]
    fn tell(&self, begun: Duration, outcome: &Result<ReadBuf, Error>) {
        let (env, Request::Read { file, offset, len }) = (&self.operation.env, &self.operation.request)
        else {
            return;
        };
        if let Some(observers) = env.observers() {
            observers.tell(&FileOperationInfo {
                operation: FileOperation::Read,
                path: file.path(),
                offset: *offset,
                length: *len as u64,
                duration: env.now().saturating_sub(begun),
                error: outcome.as_ref().err(),
            });
        }
    }
}

impl Future for ReadFuture {
    type Output = Result<ReadBuf, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let operation = &mut self.operation;
        let polled = operation.poll(cx).map(|outcome| match (outcome, &operation.request) {
            (Ok(Answer::Bytes(bytes)), _) => Ok(bytes),
            (Err(failure), Request::Read { file, offset, .. }) => {
                Err(Error::at("read", file.path(), *offset, failure.to_io()))
            }
            _ => unreachable!("a read is answered with bytes"),
        });
        if let (Some(begun), Poll::Ready(outcome)) = (self.begun, &polled) {
            self.tell(begun, outcome);
        }
        polled
    }
}

impl fmt::Debug for ReadFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReadFuture({:?})", self.operation.request)
    }
}

/// A file being opened; see [`open`]. Dropping it closes the file if it is open already.
#[must_use = "futures do nothing unless polled"]
pub struct OpenFuture {
    path: PathBuf,
    opening: Opening,
}

enum Opening {
    Channel(ChannelOperation),
    Later { env: Env, options: OpenOptions },
    Thread(Blocking<Result<Arc<dyn RandomAccessFile>, Error>>),
}

impl Future for OpenFuture {
    type Output = Result<Arc<dyn RandomAccessFile>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { path, opening } = &mut *self;
        if let Opening::Later { env, options } = opening {
            let (path, options) = (path.clone(), *options);
            *opening = Opening::Thread(env.run_blocking(move |env| env.fs().open_random(&path, options)));
        }
        match opening {
            Opening::Channel(operation) => operation.poll(cx).map(|outcome| match outcome {
                Ok(Answer::File(file)) => Ok(file),
                Err(failure) => Err(Error::new("open", &*path, failure.to_io())),
                Ok(_) => unreachable!("an open is answered with a file"),
            }),
            Opening::Thread(blocking) => Pin::new(blocking).poll(cx),
            Opening::Later { .. } => unreachable!("it has just been started"),
        }
    }
}

impl fmt::Debug for OpenFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenFuture({})", self.path.display())
    }
}

/// A pause; see [`sleep`].
#[must_use = "futures do nothing unless polled"]
pub struct Sleep {
    operation: ChannelOperation,
}

impl Future for Sleep {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.operation.poll(cx).map(drop)
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sleep({:?})", self.operation.request)
    }
}

pub(crate) struct ChannelOperation {
    env: Env,
    request: Request,
    state: State,
}

enum State {
    New,
    /// Started on the channel of a thread.
    Local {
        outbox: Arc<Outbox>,
        ticket: Ticket,
    },
    /// Sent to the driver of the process with this fork generation.
    Remote {
        op: Arc<RemoteOp>,
        fork_generation: u64,
    },
    Finished,
}

impl ChannelOperation {
    pub(crate) fn new(env: &Env, request: Request) -> Self {
        Self { env: env.clone(), request, state: State::New }
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Outcome> {
        let is_write = matches!(self.request, Request::Write { .. });
        let polled = match &self.state {
            State::New => None,
            State::Local { outbox, ticket } => current::with_current(|channel| match channel {
                Some(channel) if channel.outbox().channel == outbox.channel => {
                    Some(channel.poll_ticket(*ticket, cx))
                }
                _ => {
                    let own = current::here(outbox.channel);
                    let ended = |channel: Rc<Channel>| match is_write {
                        true => Some(channel.outlast(*ticket)),
                        false => channel.fetch_if_done(*ticket),
                    };
                    own.and_then(ended).map(Poll::Ready)
                }
            }),
            State::Remote { op, fork_generation } => {
                (*fork_generation == posix::fork_generation()).then(|| op.poll(cx))
            }
            State::Finished => panic!("a future was polled after it had completed"),
        };
        match polled {
            Some(Poll::Ready(outcome)) => {
                self.state = State::Finished;
                Poll::Ready(outcome)
            }
            Some(Poll::Pending) => Poll::Pending,
            None if is_write && !matches!(self.state, State::New) => {
                self.give_up();
                let why = "a write was polled on another thread, or in another process, than it began";
                Poll::Ready(Err(Failure::new(io::ErrorKind::Other, why)))
            }
            None => self.bind(cx),
        }
    }

    /// Starts the operation on the channel that is current here, or on the driver.
    fn bind(&mut self, cx: &mut Context<'_>) -> Poll<Outcome> {
        self.give_up();
        let request = &self.request;
        let local = current::with_current(|channel| {
            let channel = channel?;
            let ticket = channel.start(request.clone(), cx.waker().clone());
            Some((channel.outbox().clone(), ticket, channel.fetch_if_done(ticket)))
        });
        self.state = match local {
            Some((.., Some(outcome))) => {
                self.state = State::Finished;
                return Poll::Ready(outcome);
            }
            Some((outbox, ticket, None)) => State::Local { outbox, ticket },
            None => {
                let op = Arc::new(RemoteOp::new(request.clone(), cx.waker().clone()));
                self.env.driver_send(op.clone());
                State::Remote { op, fork_generation: posix::fork_generation() }
            }
        };
        Poll::Pending
    }

    fn give_up(&mut self) {
        match std::mem::replace(&mut self.state, State::Finished) {
            State::Local { outbox, ticket } => match current::here(outbox.channel) {
                Some(channel) => channel.abandon(ticket),
                None => outbox.send(Message::Abandoned(ticket)),
            },
            State::Remote { op, fork_generation } if fork_generation == posix::fork_generation() => {
                op.abandon()
            }
            // Leaked, because the parent's driver may have held its lock at the moment of the fork.
            State::Remote { op, .. } => std::mem::forget(op),
            State::New | State::Finished => {}
        }
    }
}

impl Drop for ChannelOperation {
    fn drop(&mut self) {
        self.give_up();
    }
}
