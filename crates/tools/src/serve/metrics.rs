//! The listener of `--metrics`: HTTP on a thread of its own, which answers one request at a time.

use karst_server::Server;
use karstdb::io::Env;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

/// Time that a client has to send its request or to take the answer.
const TIME: Duration = Duration::from_secs(5);
/// Maximum length of a request in bytes.
const REQUEST_AT_MOST: usize = 8192;

/// A listener that is bound. Dropping it ends its thread.
pub(super) struct Metrics {
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
    server: Server,
}

impl Metrics {
    /// Binds the listener and starts its thread.
    pub(super) fn start(address: SocketAddr, server: &Server, env: &Env) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let (address, told) = (listener.local_addr()?, server.clone());
        let serve = move || {
            for stream in listener.incoming() {
                if told.is_stopping() {
                    break;
                }
                // A client that fails has its connection closed, and no more.
                let _is_answered = stream.and_then(|stream| answer(stream, &told));
            }
        };
        let thread = env.spawn_thread("karst-metrics", serve).map_err(io::Error::other)?;
        Ok(Self { address, thread: Some(thread), server: server.clone() })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        self.server.stop();
        // The thread sees the end at the next connection.
        let _wakes_it = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

/// Reads a request up to its empty line, and sends the metrics if they are asked for.
fn answer(mut stream: TcpStream, server: &Server) -> io::Result<()> {
    stream.set_read_timeout(Some(TIME))?;
    stream.set_write_timeout(Some(TIME))?;
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
