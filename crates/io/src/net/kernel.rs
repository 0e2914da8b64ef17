//! Sockets of the operating system, whose operations go to the channel of their thread.

use super::ListenOptions;
use crate::channel::outbox::{Message, Outbox};
use crate::channel::slot::{Answer, Ticket};
use crate::current;
use crate::posix::OwnProcess;
use crate::transport::SocketAction;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io;
use std::marker::PhantomData;
use std::net::{Shutdown, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// An operation that a channel of this thread carries out. Dropping it ends the operation.
pub(super) struct Pending {
    outbox: Arc<Outbox>,
    ticket: Ticket,
    /// Bytes in the buffer of a receive when it began.
    length: usize,
    finished: bool,
    _not_send: PhantomData<Rc<()>>,
}

impl Pending {
    /// Starts an operation on the channel that is current.
    ///
    /// # Errors
    /// The thread has none.
    fn start(socket: &Arc<Socket>, action: SocketAction, cx: &Context<'_>) -> io::Result<Self> {
        let length = match &action {
            SocketAction::Receive(buffer) => buffer.len(),
            _ => 0,
        };
        current::with_current(|channel| {
            let channel = channel.ok_or_else(|| {
                let why = "sockets are for code that a reactor or `block_on` runs";
                io::Error::new(io::ErrorKind::Unsupported, why)
            })?;
            let ticket = channel.start_socket(socket.clone(), action, cx.waker().clone());
            let outbox = channel.outbox().clone();
            Ok(Self { outbox, ticket, length, finished: false, _not_send: PhantomData })
        })
    }

    pub(super) fn length(&self) -> usize {
        self.length
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Answer>> {
        let Some(channel) = current::here(self.outbox.channel) else {
            let why = "the channel of the socket has ended";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::BrokenPipe, why)));
        };
        let is_current = current::with_current(|current| {
            current.is_some_and(|current| current.outbox().channel == self.outbox.channel)
        });
        if !is_current {
            // The call around this one does not poll the channel, so this future does, until the
            // operation ends.
            channel.submit();
            channel.poll();
            cx.waker().wake_by_ref();
        }
        let outcome = ready!(channel.poll_ticket(self.ticket, cx));
        self.finished = true;
        Poll::Ready(outcome.map_err(|failure| failure.to_io()))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        match current::here(self.outbox.channel) {
            Some(channel) => channel.abandon(self.ticket),
            None => self.outbox.send(Message::Abandoned(self.ticket)),
        }
    }
}

/// Polls the operation in `place`; starts the one that `action` gives if `place` is empty.
fn poll_in(
    place: &mut Option<Pending>,
    socket: &Arc<Socket>,
    cx: &mut Context<'_>,
    action: impl FnOnce() -> io::Result<SocketAction>,
) -> Poll<io::Result<Answer>> {
    if place.is_none() {
        *place = Some(Pending::start(socket, action()?, cx)?);
    }
    let answer = match place {
        Some(pending) => ready!(pending.poll(cx)),
        None => unreachable!("it has just been started"),
    };
    *place = None;
    Poll::Ready(answer)
}

pub(super) struct KernelListener {
    socket: KernelSocket,
    pending: Option<Pending>,
}

impl KernelListener {
    pub(super) fn bind(address: SocketAddr, options: ListenOptions) -> io::Result<Self> {
        let socket = new_socket(address)?;
        // Without it a server that is started again cannot have its port for a minute.
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(options.reuse_port)?;
        socket.bind(&address.into())?;
        socket.listen(options.backlog.into())?;
        Ok(Self { socket: KernelSocket::new(socket.into()), pending: None })
    }

    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        as_address(&self.socket.socket.local_addr()?)
    }

    pub(super) fn poll_accept(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<(SocketAddr, KernelSocket)>> {
        let accept = || Ok(SocketAction::Accept { accepted: None });
        let answer = ready!(poll_in(&mut self.pending, &self.socket.socket, cx, accept))?;
        let Answer::Accepted(socket) = answer else {
            unreachable!("an accept is answered with a connection")
        };
        let peer = as_address(&socket.peer_addr()?)?;
        Poll::Ready(Ok((peer, KernelSocket::new(socket))))
    }
}

/// A socket, shut down when it is dropped.
///
/// An operation in flight keeps the descriptor open until its thread polls the channel again. The
/// shutdown tells the peer of a connection at once, and frees the address of a listener. A forked
/// child leaves the parent's sockets alone.
pub(super) struct KernelSocket {
    socket: Arc<Socket>,
    process: OwnProcess,
}

impl Drop for KernelSocket {
    fn drop(&mut self) {
        if Arc::strong_count(&self.socket) > 1 && self.process.is_current() {
            // Fails if the peer has ended the connection.
            let _ = self.socket.shutdown(Shutdown::Both);
        }
    }
}

impl KernelSocket {
    fn new(socket: Arc<Socket>) -> Self {
        Self { socket, process: OwnProcess::new() }
    }

    pub(super) async fn connect(address: SocketAddr) -> io::Result<Self> {
        let socket = Self::new(new_socket(address)?.into());
        let mut pending = None;
        let connect = || Ok(SocketAction::Connect(Box::new(address.into())));
        std::future::poll_fn(|cx| poll_in(&mut pending, &socket.socket, cx, connect)).await?;
        Ok(socket)
    }

    pub(super) fn set_nodelay(&self, yes: bool) -> io::Result<()> {
        self.socket.set_tcp_nodelay(yes)
    }

    pub(super) fn shutdown(&self) -> io::Result<()> {
        self.socket.shutdown(Shutdown::Write)
    }

    /// Receives into `buffer`, which the operation has meanwhile.
    pub(super) fn poll_receive(
        &self,
        cx: &mut Context<'_>,
        pending: &mut Option<Pending>,
        buffer: &mut Vec<u8>,
    ) -> Poll<io::Result<()>> {
        let receive = || Ok(SocketAction::Receive(std::mem::take(buffer)));
        let answer = ready!(poll_in(pending, &self.socket, cx, receive))?;
        let Answer::Received(received, failure) = answer else {
            unreachable!("a receive is answered with its buffer")
        };
        *buffer = received;
        Poll::Ready(failure.map_or(Ok(()), |failure| Err(failure.to_io())))
    }

    /// Continues a send, or begins with `data`. Returns the buffer that was sent.
    pub(super) fn poll_send(
        &self,
        cx: &mut Context<'_>,
        pending: &mut Option<Pending>,
        data: impl FnOnce() -> Vec<u8>,
    ) -> Poll<io::Result<Vec<u8>>> {
        let send = || Ok(SocketAction::Send { data: data(), start: 0 });
        let answer = ready!(poll_in(pending, &self.socket, cx, send))?;
        let Answer::Sent(data) = answer else { unreachable!("a send is answered with its buffer") };
        Poll::Ready(Ok(data))
    }
}

fn new_socket(address: SocketAddr) -> io::Result<Socket> {
    Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))
}

fn as_address(address: &SockAddr) -> io::Result<SocketAddr> {
    address
        .as_socket()
        .ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, "no address of the internet"))
}
