//! TCP on the thread's own channel: [`Listener`] and [`Stream`].
//!
//! A socket belongs to the thread that made it: its operations go to that thread's ring (or epoll,
//! where io_uring is missing) beside the thread's reads of files, with no other thread in between.
//! Sockets are therefore not `Send`, and are used on a [`Reactor`](crate::Reactor) or inside
//! [`block_on`](crate::block_on). Several reactor threads share a port by
//! [`ListenOptions::reuse_port`]: each has a listener of its own, and the kernel deals connections
//! out.
//!
//! An environment with a [`MemoryNetwork`] connects its sockets inside the process. A simulation
//! has one: its seed determines the arrival of bytes and the connections that are reset.
//!
//! ```
//! # mod karstdb { pub use karst_io as io; }
//! use karstdb::io::{Env, block_on};
//! use karstdb::io::net::{ListenOptions, Listener, Stream};
//!
//! let env = Env::posix();
//! block_on(&env, async {
//!     let mut listener = Listener::bind(&env, "127.0.0.1:0".parse().unwrap(), ListenOptions::default())?;
//!     let mut client = Stream::connect(&env, listener.address()).await?;
//!     let mut server = listener.accept().await?;
//!     client.sender.send(b"PING\r\n".to_vec()).await?;
//!     while server.receiver.buffered().len() < 6 {
//!         assert!(server.receiver.fill().await? > 0);
//!     }
//!     assert_eq!(server.receiver.buffered(), b"PING\r\n");
//!     Ok::<(), karstdb::io::Error>(())
//! })?;
//! # Ok::<(), karstdb::io::Error>(())
//! ```

mod kernel;

use crate::env::Env;
use crate::error::{Error, Result};
use crate::memory_network::{MemoryListener, MemorySocket};
pub use crate::memory_network::{MemoryNetwork, NetworkFaults};
use crate::operation::sleep;
use kernel::{KernelListener, KernelSocket, Pending};
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

/// Room for the first receive of a connection, in bytes; the memory that an idle connection holds.
const RECEIVE_AT_LEAST: usize = 4 << 10;
/// Maximum room for one receive, in bytes. The room doubles while receives fill it.
const RECEIVE_AT_MOST: usize = 64 << 10;

/// Options of a [`Listener`].
#[derive(Clone, Copy, Debug)]
pub struct ListenOptions {
    /// Lets several listeners have the address; the kernel deals connections out (`SO_REUSEPORT`).
    /// Default: false.
    pub reuse_port: bool,
    /// Maximum number of connections that wait to be accepted; further peers wait or are refused.
    /// Default: 1024.
    pub backlog: u16,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self { reuse_port: false, backlog: 1024 }
    }
}

/// A socket that takes connections. Not `Send`: it belongs to the thread that made it.
pub struct Listener {
    address: SocketAddr,
    inner: Inner<KernelListener, Arc<MemoryListener>>,
}

/// A connection, in two halves that can be used at the same time. It ends when both are dropped:
/// the peer receives what was sent, and then the end.
#[derive(Debug)]
pub struct Stream {
    /// Half for the bytes that the peer sends.
    pub receiver: Receiver,
    /// Half for the bytes that go to the peer.
    pub sender: Sender,
}

/// The receiving half of a [`Stream`], with a buffer for bytes received and not consumed.
pub struct Receiver {
    shared: Rc<Shared>,
    buffer: Vec<u8>,
    /// Number of bytes at the front of `buffer` that were consumed.
    consumed: usize,
    /// Room for the next receive, in bytes.
    room: usize,
    /// Receive in flight, which holds the buffer.
    pending: Option<Pending>,
}

/// The sending half of a [`Stream`].
pub struct Sender {
    shared: Rc<Shared>,
    /// Send in flight; kept when its future is dropped.
    pending: Option<Pending>,
    /// Data to send, in order, each with its number of bytes sent in a memory network.
    queue: VecDeque<(Vec<u8>, usize)>,
}

/// State that both halves of a connection use.
struct Shared {
    peer: SocketAddr,
    inner: Inner<KernelSocket, MemorySocket>,
}

enum Inner<K, M> {
    Kernel(K),
    Memory(M),
}

impl Listener {
    /// Listens at `address`; port 0 takes a free one. Blocks for some system calls.
    ///
    /// # Errors
    /// The address is in use or is not this machine's, or the process has no descriptor left.
    pub fn bind(env: &Env, address: SocketAddr, options: ListenOptions) -> Result<Self> {
        let failed = |e| failure("listen", address, e);
        let (inner, address) = match env.memory_network() {
            Some(network) => {
                let listener = network.listen(address, options.backlog).map_err(failed)?;
                let address = listener.address();
                (Inner::Memory(listener), address)
            }
            None => {
                let listener = KernelListener::bind(address, options).map_err(failed)?;
                let address = listener.address().map_err(failed)?;
                (Inner::Kernel(listener), address)
            }
        };
        Ok(Self { address, inner })
    }

    /// Returns the address of the listener, with the port that it was given.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for a connection. If the future is dropped, the next call takes the connection.
    ///
    /// # Errors
    /// The process has no descriptor left (the connection stays in the backlog), the peer has gone,
    /// or the thread runs no reactor and no `block_on`.
    pub async fn accept(&mut self) -> Result<Stream> {
        let accepted = match &mut self.inner {
            Inner::Kernel(listener) => poll_fn(|cx| listener.poll_accept(cx))
                .await
                .map(|(peer, socket)| (peer, Inner::Kernel(socket))),
            Inner::Memory(listener) => poll_fn(|cx| listener.poll_accept(cx))
                .await
                .map(|(peer, socket)| (peer, Inner::Memory(socket))),
        };
        let (peer, inner) = accepted.map_err(|e| failure("accept", self.address, e))?;
        Ok(Stream::new(peer, inner))
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Listener({})", self.address)
    }
}

impl Stream {
    /// Connects to a listener. If the future is dropped, the connection is closed.
    ///
    /// # Errors
    /// Nothing listens there, the peer cannot be reached, the process has no descriptor left, or
    /// the thread runs no reactor and no `block_on`.
    pub async fn connect(env: &Env, address: SocketAddr) -> Result<Self> {
        let inner = match env.memory_network() {
            Some(network) => {
                sleep(env, network.delay()).await;
                network.connect(address).map(Inner::Memory)
            }
            None => KernelSocket::connect(address).await.map(Inner::Kernel),
        };
        Ok(Self::new(address, inner.map_err(|e| failure("connect", address, e))?))
    }

    fn new(peer: SocketAddr, inner: Inner<KernelSocket, MemorySocket>) -> Self {
        let shared = Rc::new(Shared { peer, inner });
        let receiver = Receiver {
            shared: shared.clone(),
            buffer: Vec::new(),
            consumed: 0,
            room: RECEIVE_AT_LEAST,
            pending: None,
        };
        Self { receiver, sender: Sender { shared, pending: None, queue: VecDeque::new() } }
    }

    /// Returns the address of the peer.
    pub fn peer(&self) -> SocketAddr {
        self.receiver.shared.peer
    }

    /// Sends small messages at once, without waiting to fill a packet (`TCP_NODELAY`).
    ///
    /// # Errors
    /// The connection has failed.
    pub fn set_nodelay(&self, yes: bool) -> Result<()> {
        match &self.receiver.shared.inner {
            Inner::Kernel(socket) => {
                socket.set_nodelay(yes).map_err(|e| failure("set options of", self.peer(), e))
            }
            Inner::Memory(_) => Ok(()),
        }
    }
}

impl Receiver {
    /// Returns the bytes received and not consumed. Empty after a [`fill`](Self::fill) whose future
    /// was dropped, until the next one has ended.
    pub fn buffered(&self) -> &[u8] {
        &self.buffer[self.consumed..]
    }

    /// Removes bytes from the front of [`buffered`](Self::buffered).
    ///
    /// # Panics
    /// `count` is more than is buffered.
    pub fn consume(&mut self, count: usize) {
        assert!(count <= self.buffer.len() - self.consumed, "more is consumed than was received");
        self.consumed += count;
        if self.consumed == self.buffer.len() {
            self.consumed = 0;
            self.buffer.clear();
        }
    }

    /// Receives more and adds it to [`buffered`](Self::buffered). Returns the number of bytes, 0
    /// once the peer sends no more. If the future is dropped nothing is lost: the next call goes
    /// on.
    ///
    /// # Errors
    /// The connection was reset or has failed; [`buffered`](Self::buffered) stays as it was.
    pub async fn fill(&mut self) -> Result<usize> {
        let before = match &self.pending {
            // Its buffer begins at what was not consumed.
            Some(pending) => pending.length(),
            None => {
                self.make_room();
                self.buffer.len()
            }
        };
        let received = match &self.shared.inner {
            Inner::Kernel(socket) => {
                let (pending, buffer) = (&mut self.pending, &mut self.buffer);
                poll_fn(|cx| socket.poll_receive(cx, pending, buffer)).await
            }
            Inner::Memory(socket) => {
                let buffer = &mut self.buffer;
                poll_fn(|cx| socket.poll_receive(cx, buffer)).await
            }
        };
        received.map_err(|e| failure("receive from", self.shared.peer, e))?;
        let received = self.buffer.len() - before;
        self.room = match received {
            full if full >= self.room => (2 * self.room).min(RECEIVE_AT_MOST),
            some if some < self.room / 4 => (self.room / 2).max(RECEIVE_AT_LEAST),
            _ => self.room,
        };
        Ok(received)
    }

    /// Makes room for the next receive: moves what is buffered to the front, and gives back a
    /// buffer that was large and is empty.
    fn make_room(&mut self) {
        self.buffer.drain(..self.consumed);
        self.consumed = 0;
        if self.buffer.is_empty() && self.buffer.capacity() > 2 * self.room {
            self.buffer = Vec::new();
        }
        self.buffer.reserve_exact(self.room);
    }
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Receiver({}, {} bytes buffered)", self.shared.peer, self.buffered().len())
    }
}

impl Sender {
    /// Sends all of `data`, and gives the buffer back to be used again. Waits while the peer does
    /// not take it. Data of a call whose future was dropped is sent first, in order, by the next
    /// call; it is lost if the sender is dropped instead.
    ///
    /// # Errors
    /// The connection was reset or has failed; a part of the data may have been sent, and no more
    /// will be.
    pub async fn send(&mut self, data: Vec<u8>) -> Result<Vec<u8>> {
        self.queue.push_back((data, 0));
        Ok(self.flush().await?.unwrap_or_default())
    }

    /// Sends the data of calls whose futures were dropped, then tells the peer that nothing more
    /// comes.
    ///
    /// # Errors
    /// The connection was reset or has failed.
    pub async fn finish(&mut self) -> Result<()> {
        self.flush().await?;
        match &self.shared.inner {
            Inner::Kernel(socket) => socket.shutdown().map_err(|e| failure("shut down", self.shared.peer, e)),
            Inner::Memory(socket) => {
                socket.shutdown();
                Ok(())
            }
        }
    }

    /// Sends all of the queue. Returns the last buffer that was sent.
    async fn flush(&mut self) -> Result<Option<Vec<u8>>> {
        let mut last = None;
        while self.pending.is_some() || !self.queue.is_empty() {
            let (pending, queue) = (&mut self.pending, &mut self.queue);
            let next = |queue: &mut VecDeque<(Vec<u8>, usize)>| queue.pop_front().map(|(data, _)| data);
            let sent = match &self.shared.inner {
                Inner::Kernel(socket) => {
                    poll_fn(|cx| socket.poll_send(cx, pending, || next(queue).unwrap_or_default())).await
                }
                Inner::Memory(socket) => {
                    let sent = poll_fn(|cx| match queue.front_mut() {
                        Some((data, sent)) => socket.poll_send(cx, data, sent),
                        None => Poll::Ready(Ok(())),
                    });
                    let sent = sent.await;
                    sent.map(|()| next(queue).unwrap_or_default())
                }
            };
            match sent {
                Ok(buffer) => last = Some(buffer),
                Err(e) => {
                    self.queue.clear();
                    return Err(failure("send to", self.shared.peer, e));
                }
            }
        }
        Ok(last)
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sender({})", self.shared.peer)
    }
}

fn failure(op: &'static str, address: SocketAddr, e: io::Error) -> Error {
    Error::new(op, address.to_string(), e)
}
