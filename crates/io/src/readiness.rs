//! Operations on sockets where io_uring is not available: tried at once, and again when epoll says
//! that the socket is ready.
//!
//! In: the operations of one channel's thread. Out: those that have completed. No thread blocks in
//! an operation, so ten thousand connections that wait need none. The descriptors of sockets are
//! not blocking here.
//!
//! Invariant: epoll watches a socket for exactly the directions in which an operation waits, once
//! (`EPOLLONESHOT`); `waiting` holds these operations.

use crate::posix::{self, Epoll};
use crate::transport::{Alarm, Completion, SocketAction, SocketOp};
use socket2::Socket;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::Duration;

/// epoll's data for the alarm; no descriptor has this number.
const ALARM: u64 = u64::MAX;

pub(crate) struct Readiness {
    epoll: Epoll,
    /// By the descriptor of the socket.
    waiting: HashMap<RawFd, Waiting>,
    /// Descriptor of the socket and direction, by the token of the operation.
    places: HashMap<u32, (RawFd, Direction)>,
    completed: Vec<Completion>,
}

/// Operations that wait for one socket.
#[derive(Default)]
struct Waiting {
    input: Option<SocketOp>,
    output: Option<SocketOp>,
    /// epoll knows the descriptor.
    known: bool,
}

#[derive(Clone, Copy)]
enum Direction {
    Input,
    Output,
}

impl Waiting {
    fn place(&mut self, direction: Direction) -> &mut Option<SocketOp> {
        match direction {
            Direction::Input => &mut self.input,
            Direction::Output => &mut self.output,
        }
    }

    fn events(&self) -> u32 {
        let input = if self.input.is_some() { libc::EPOLLIN } else { 0 };
        let output = if self.output.is_some() { libc::EPOLLOUT } else { 0 };
        if input | output == 0 { 0 } else { (input | output | libc::EPOLLONESHOT) as u32 }
    }
}

impl Readiness {
    /// Watches the alarm, which ends [`Self::wait`].
    ///
    /// # Errors
    /// The process has no descriptor left, or the alarm has none.
    pub(crate) fn new(alarm: &Alarm) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        let bell = alarm.eventfd().ok_or(io::ErrorKind::Unsupported)?;
        epoll.add(bell.as_fd(), libc::EPOLLIN as u32, ALARM)?;
        Ok(Self { epoll, waiting: HashMap::new(), places: HashMap::new(), completed: Vec::new() })
    }

    /// Tries the operation, and keeps it if its socket is not ready.
    pub(crate) fn start(&mut self, mut op: SocketOp) {
        let begun = match op.action {
            // The others take a flag for the call. This one belongs to the socket, which another
            // process or a ring may use too.
            SocketAction::Accept { .. } | SocketAction::Connect(_) => op.socket.set_nonblocking(true),
            SocketAction::Receive(_) | SocketAction::Send { .. } => Ok(()),
        };
        let begun = begun.and_then(|()| perform(&mut op, true));
        self.went(op, begun);
    }

    /// Gives the operation back with `ECANCELED` if it still waits.
    pub(crate) fn cancel(&mut self, token: u32) {
        let Some((fd, direction)) = self.places.remove(&token) else { return };
        let Some(op) = self.waiting.get_mut(&fd).and_then(|waiting| waiting.place(direction).take()) else {
            return;
        };
        self.completed.push(completion(op, Err(io::Error::from_raw_os_error(libc::ECANCELED))));
        self.watch(fd);
    }

    /// Hands over what has completed.
    pub(crate) fn take(&mut self, done: &mut Vec<Completion>) {
        done.append(&mut self.completed);
    }

    /// Tries what waits for sockets that are ready. Blocks until one is or the alarm rings, for
    /// `timeout` at most, unless something has completed already.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) {
        let timeout = if self.completed.is_empty() { timeout } else { Some(Duration::ZERO) };
        let ready = match self.epoll.wait(timeout) {
            Ok(ready) => ready,
            // Interrupted: the caller waits again.
            Err(_) => return,
        };
        for (events, data) in ready {
            if data == ALARM {
                continue; // the transport silences it
            }
            let fd = data as RawFd;
            let broken = events & (libc::EPOLLERR | libc::EPOLLHUP) as u32 != 0;
            for (direction, event) in [(Direction::Input, libc::EPOLLIN), (Direction::Output, libc::EPOLLOUT)]
            {
                if !broken && events & event as u32 == 0 {
                    continue;
                }
                let Some(mut op) =
                    self.waiting.get_mut(&fd).and_then(|waiting| waiting.place(direction).take())
                else {
                    continue;
                };
                self.places.remove(&op.token);
                let result = perform(&mut op, false);
                self.went(op, result);
            }
            self.watch(fd);
        }
    }

    /// An operation was tried.
    fn went(&mut self, op: SocketOp, result: io::Result<usize>) {
        let waits = result.as_ref().is_err_and(|e| match op.action {
            SocketAction::Connect(_) => e.raw_os_error() == Some(libc::EINPROGRESS),
            _ => e.kind() == io::ErrorKind::WouldBlock,
        });
        if !waits {
            self.completed.push(completion(op, result));
            return;
        }
        let fd = op.socket.as_raw_fd();
        let direction = match op.action {
            SocketAction::Accept { .. } | SocketAction::Receive(_) => Direction::Input,
            SocketAction::Connect(_) | SocketAction::Send { .. } => Direction::Output,
        };
        let place = self.waiting.entry(fd).or_default().place(direction);
        assert!(place.is_none(), "two operations wait for one direction of a socket");
        self.places.insert(op.token, (fd, direction));
        *place = Some(op);
        self.watch(fd);
    }

    /// Has epoll watch the socket for what waits for it, or forget it.
    fn watch(&mut self, fd: RawFd) {
        let Some(waiting) = self.waiting.get_mut(&fd) else { return };
        let events = waiting.events();
        if events == 0 {
            if waiting.known {
                // The descriptor may have been closed: then epoll has forgotten it by itself.
                let _ = self.epoll.delete(fd);
            }
            self.waiting.remove(&fd);
            return;
        }
        let watched = match waiting.known {
            true => self.epoll.modify(fd, events, fd as u64),
            false => self.epoll.add_raw(fd, events, fd as u64),
        };
        match watched {
            Ok(()) => waiting.known = true,
            Err(e) => {
                let errno = e.raw_os_error().unwrap_or(libc::EIO);
                if waiting.known {
                    let _ = self.epoll.delete(fd);
                }
                let ops = [waiting.input.take(), waiting.output.take()];
                self.waiting.remove(&fd);
                for op in ops.into_iter().flatten() {
                    self.places.remove(&op.token);
                    self.completed.push(completion(op, Err(io::Error::from_raw_os_error(errno))));
                }
            }
        }
    }

    /// Ends all operations, which come back with `ECANCELED`.
    pub(crate) fn cancel_all(&mut self) {
        let tokens: Vec<u32> = self.places.keys().copied().collect();
        tokens.into_iter().for_each(|token| self.cancel(token));
    }
}

fn completion(op: SocketOp, result: io::Result<usize>) -> Completion {
    Completion::Socket { op, result }
}

/// Tries an operation without blocking.
fn perform(op: &mut SocketOp, first: bool) -> io::Result<usize> {
    let socket: &Socket = &op.socket;
    match &mut op.action {
        SocketAction::Accept { accepted } => {
            let (connection, _) = socket.accept()?;
            *accepted = Some(connection);
            Ok(0)
        }
        SocketAction::Connect(address) if first => socket.connect(address).map(|()| 0),
        SocketAction::Connect(_) => match socket.take_error()? {
            Some(e) => Err(e),
            None => Ok(0),
        },
        SocketAction::Receive(buffer) => posix::receive_into(socket.as_fd(), buffer),
        SocketAction::Send { data, start } => {
            socket.send_with_flags(&data[*start..], libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT)
        }
    }
}
