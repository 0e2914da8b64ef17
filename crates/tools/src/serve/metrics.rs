//! The listener of `--metrics`: HTTP on a thread of its own, which answers one request at a time.

use karst_server::Server;
use karstdb::io::Env;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Time that a client has to send its request and to take the answer.
const TIME: Duration = Duration::from_secs(5);
/// Maximum length of a request in bytes.
const REQUEST_AT_MOST: usize = 8192;

/// The connection that is being served.
#[derive(Clone, Default)]
struct Current(Arc<Mutex<Option<TcpStream>>>);

impl Current {
    /// Replaces it.
    fn set(&self, stream: Option<TcpStream>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = stream;
    }

    /// Ends it, so that reads and writes of it end too.
    fn close(&self) {
        if let Some(stream) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            let _is_open = stream.shutdown(Shutdown::Both);
        }
    }
}

/// A listener that is bound. Dropping it stops the server and ends its thread, also while a client
/// is being served.
pub(super) struct Metrics {
    address: SocketAddr,
    current: Current,
    thread: Option<JoinHandle<()>>,
    server: Server,
}

impl Metrics {
    /// Binds the listener and starts its thread.
    pub(super) fn start(address: SocketAddr, server: &Server, env: &Env) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let (address, told, clock) = (listener.local_addr()?, server.clone(), env.clone());
        let current = Current::default();
        let served = current.clone();
        let serve = move || {
            for stream in listener.incoming() {
                served.set(stream.as_ref().ok().and_then(|stream| stream.try_clone().ok()));
                // Seen here, or the connection is seen by who stops the server.
                if told.is_stopping() {
                    break;
                }
                // A client that fails has its connection closed, and no more.
                let _is_answered = stream.and_then(|stream| answer(&mut Timed::new(stream, &clock), &told));
                served.set(None);
            }
        };
        let thread = env.spawn_thread("karst-metrics", serve).map_err(io::Error::other)?;
        Ok(Self { address, current, thread: Some(thread), server: server.clone() })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        self.server.stop();
        self.current.close();
        // The thread sees the end at the next connection: this one, or one that is in its way.
        let _wakes_it = TcpStream::connect_timeout(&self.address, TIME);
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

/// A connection whose reads and writes end [`TIME`] after it was accepted.
struct Timed<'a> {
    stream: TcpStream,
    env: &'a Env,
    until: Duration,
}

impl<'a> Timed<'a> {
    fn new(stream: TcpStream, env: &'a Env) -> Self {
        Self { stream, env, until: env.now() + TIME }
    }

    /// The time that is left.
    fn left(&self) -> io::Result<Option<Duration>> {
        match self.until.saturating_sub(self.env.now()) {
            Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
            left => Ok(Some(left)),
        }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(bytes)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads a request up to its empty line, and sends the metrics if they are asked for.
fn answer(stream: &mut Timed<'_>, server: &Server) -> io::Result<()> {
    let mut request = Vec::new();
    let mut part = [0; 1024];
    while !request.windows(4).any(|four| four == b"\r\n\r\n") && request.len() < REQUEST_AT_MOST {
        match stream.read(&mut part)? {
            0 => return Ok(()),
            count => request.extend_from_slice(&part[..count]),
        }
    }
    let (status, body) = match request.starts_with(b"GET /metrics ") {
        true => ("200 OK", server.metrics()),
        false => ("404 Not Found", "the metrics are at /metrics\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: \
         close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}
