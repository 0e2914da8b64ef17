//! The network inside the process: connections that are pairs of queues of bytes.
//!
//! In a simulation the seed determines delays, the number of bytes that arrive at a time, and
//! resets, in the order in which the simulated tasks run.
//!
//! Lock: one mutex for each connection's direction, one for each listener and one for the names,
//! each held for a copy; wakers are called after it was released.

use crate::random::Random;
use crate::sync::Mutex;
use crate::sync::counting::{AtomicU64, Ordering};
use crate::waking::wake;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Bytes on their way in one direction, at most; a sender waits beyond.
const WINDOW: usize = 64 << 10;
/// Ports that listeners of port 0 and connecting sockets get.
const FIRST_FREE_PORT: u16 = 32768;

/// Listeners and connections of one process. Clones are the same network.
#[derive(Clone)]
pub struct MemoryNetwork(Arc<State>);

/// Faults of a [`MemoryNetwork`]; probabilities of each call, from 0 to 1.
#[derive(Clone, Copy, Debug, Default)]
pub struct NetworkFaults {
    /// A receive or send takes a part of what it could.
    pub partial: f64,
    /// A receive or send finds the connection reset by the peer.
    pub reset: f64,
    /// Connecting waits, for `delay` at most.
    pub late: f64,
    /// Longest wait of a connection that is late.
    pub delay: Duration,
}

struct State {
    /// By address. Those that were dropped stay until their address is taken again.
    listeners: Mutex<HashMap<SocketAddr, Weak<MemoryListener>>>,
    next_port: AtomicU64,
    fate: Mutex<Fate>,
}

/// The faults, and the numbers that decide when they happen.
struct Fate {
    faults: NetworkFaults,
    random: Random,
}

pub(crate) struct MemoryListener {
    address: SocketAddr,
    backlog: usize,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    /// Connections that wait to be accepted.
    arrived: VecDeque<(SocketAddr, MemorySocket)>,
    waker: Option<Waker>,
}

/// One end of a connection. Dropping it ends the connection.
pub(crate) struct MemorySocket {
    network: MemoryNetwork,
    incoming: Arc<Pipe>,
    outgoing: Arc<Pipe>,
}

/// One direction of a connection.
#[derive(Default)]
struct Pipe(Mutex<PipeState>);

#[derive(Default)]
struct PipeState {
    bytes: VecDeque<u8>,
    /// The sender sends no more.
    finished: bool,
    /// Either end has gone with bytes on their way, or the network has reset the connection.
    reset: bool,
    receiver: Option<Waker>,
    sender: Option<Waker>,
}

impl MemoryNetwork {
    /// A network without faults. Those that are set later are drawn from `seed`.
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(State {
            listeners: Mutex::default(),
            next_port: AtomicU64::new(FIRST_FREE_PORT.into()),
            fate: Mutex::new(Fate { faults: NetworkFaults::default(), random: Random::new(seed) }),
        }))
    }

    /// Sets the faults of all calls from now on.
    pub fn set_faults(&self, faults: NetworkFaults) {
        self.0.fate.lock().faults = faults;
    }

    fn free_port(&self) -> u16 {
        let ports = u64::from(u16::MAX - FIRST_FREE_PORT);
        FIRST_FREE_PORT + (self.0.next_port.fetch_add(1, Ordering::Relaxed) % ports) as u16
    }

    /// Returns true if the connection is reset now.
    fn resets(&self) -> bool {
        let mut fate = self.0.fate.lock();
        let probability = fate.faults.reset;
        fate.random.chance(probability)
    }

    /// Returns the number of `length` bytes that one call takes; at least one.
    fn part_of(&self, length: usize) -> usize {
        let mut fate = self.0.fate.lock();
        let probability = fate.faults.partial;
        match fate.random.chance(probability) {
            true => 1 + fate.random.below(length as u64) as usize,
            false => length,
        }
    }

    pub(crate) fn listen(&self, address: SocketAddr, backlog: u16) -> io::Result<Arc<MemoryListener>> {
        let mut listeners = self.0.listeners.lock();
        let is_taken = |address: &SocketAddr| listeners.get(address).is_some_and(|l| l.strong_count() > 0);
        let address = match address.port() {
            0 => loop {
                let free = SocketAddr::new(address.ip(), self.free_port());
                if !is_taken(&free) {
                    break free;
                }
            },
            _ => address,
        };
        if is_taken(&address) {
            return Err(io::Error::from_raw_os_error(libc::EADDRINUSE));
        }
        let listener = Arc::new(MemoryListener { address, backlog: backlog.into(), queue: Mutex::default() });
        listeners.insert(address, Arc::downgrade(&listener));
        Ok(listener)
    }

    /// Returns the time that the next connection takes to be made.
    pub(crate) fn delay(&self) -> Duration {
        let mut fate = self.0.fate.lock();
        let NetworkFaults { late, delay, .. } = fate.faults;
        match fate.random.chance(late) {
            true => Duration::from_nanos(fate.random.below(delay.as_nanos() as u64)),
            false => Duration::ZERO,
        }
    }

    pub(crate) fn connect(&self, address: SocketAddr) -> io::Result<MemorySocket> {
        let refused = || io::Error::from_raw_os_error(libc::ECONNREFUSED);
        let listener = self.0.listeners.lock().get(&address).and_then(Weak::upgrade).ok_or_else(refused)?;
        let (there, back) = (Arc::<Pipe>::default(), Arc::<Pipe>::default());
        let ours = MemorySocket { network: self.clone(), incoming: back.clone(), outgoing: there.clone() };
        let theirs = MemorySocket { network: self.clone(), incoming: there, outgoing: back };
        let from = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), self.free_port());
        let waker = {
            let mut queue = listener.queue.lock();
            if queue.arrived.len() >= listener.backlog {
                return Err(refused());
            }
            queue.arrived.push_back((from, theirs));
            queue.waker.take()
        };
        waker.into_iter().for_each(wake);
        Ok(ours)
    }
}

impl fmt::Debug for MemoryNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryNetwork({} listeners)", self.0.listeners.lock().len())
    }
}

impl MemoryListener {
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(SocketAddr, MemorySocket)>> {
        let mut queue = self.queue.lock();
        match queue.arrived.pop_front() {
            Some(connection) => Poll::Ready(Ok(connection)),
            None => {
                let old = queue.waker.replace(cx.waker().clone());
                drop(queue);
                drop(old);
                Poll::Pending
            }
        }
    }
}

impl MemorySocket {
    pub(crate) fn poll_receive(&self, cx: &mut Context<'_>, buffer: &mut Vec<u8>) -> Poll<io::Result<()>> {
        let room = buffer.capacity() - buffer.len();
        let mut pipe = self.incoming.0.lock();
        if pipe.reset || (!pipe.bytes.is_empty() && self.network.resets()) {
            drop(pipe);
            return Poll::Ready(Err(self.reset()));
        }
        let ready = pipe.bytes.len().min(room);
        if ready == 0 && !pipe.finished {
            let old = pipe.receiver.replace(cx.waker().clone());
            drop(pipe);
            drop(old);
            return Poll::Pending;
        }
        let count = if ready == 0 { 0 } else { self.network.part_of(ready) };
        buffer.extend(pipe.bytes.drain(..count));
        let waker = pipe.sender.take();
        drop(pipe);
        waker.into_iter().for_each(wake);
        Poll::Ready(Ok(()))
    }

    /// Sends the bytes of `data` behind the first `sent`.
    pub(crate) fn poll_send(
        &self,
        cx: &mut Context<'_>,
        data: &[u8],
        sent: &mut usize,
    ) -> Poll<io::Result<()>> {
        while *sent < data.len() {
            let rest = &data[*sent..];
            let resets = self.network.resets();
            let mut pipe = self.outgoing.0.lock();
            if pipe.finished {
                return Poll::Ready(Err(io::Error::from_raw_os_error(libc::EPIPE)));
            }
            if pipe.reset || resets {
                drop(pipe);
                return Poll::Ready(Err(self.reset()));
            }
            let room = WINDOW - pipe.bytes.len();
            if room == 0 {
                let old = pipe.sender.replace(cx.waker().clone());
                drop(pipe);
                drop(old);
                return Poll::Pending;
            }
            let count = self.network.part_of(rest.len().min(room));
            pipe.bytes.extend(&rest[..count]);
            *sent += count;
            let waker = pipe.receiver.take();
            drop(pipe);
            waker.into_iter().for_each(wake);
        }
        Poll::Ready(Ok(()))
    }

    /// Resets the connection, both directions.
    fn reset(&self) -> io::Error {
        self.incoming.end(|pipe| pipe.reset = true);
        self.outgoing.end(|pipe| pipe.reset = true);
        io::Error::from_raw_os_error(libc::ECONNRESET)
    }

    pub(crate) fn shutdown(&self) {
        self.outgoing.end(|pipe| pipe.finished = true);
    }
}

impl Drop for MemorySocket {
    fn drop(&mut self) {
        self.outgoing.end(|pipe| pipe.finished = true);
        // What the peer sends now is lost, which it is to know.
        self.incoming.end(|pipe| pipe.reset = true);
    }
}

impl Pipe {
    /// Changes the state, and wakes both ends.
    fn end(&self, change: impl FnOnce(&mut PipeState)) {
        let wakers = {
            let mut pipe = self.0.lock();
            change(&mut pipe);
            [pipe.receiver.take(), pipe.sender.take()]
        };
        wakers.into_iter().flatten().for_each(wake);
    }
}
