//! A blocking client of Redis' protocol, RESP2: requests in pipelines, replies one by one.
//!
//! Memory grows with the bytes that a server has sent, not with the lengths that it announces; what
//! it may send for one reply is limited.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Bytes that are read at once.
const AT_ONCE: usize = 256 << 10;
/// Bytes of one line, of one bulk string, and elements of one array.
const LINE_AT_MOST: usize = 64 << 10;
const BULK_AT_MOST: u64 = 4 << 30;
const ARRAY_AT_MOST: u64 = 1 << 20;
const DEPTH_AT_MOST: usize = 4;
/// Time after which a wait looks for a signal.
const PERIOD: Duration = Duration::from_millis(200);
/// Time in which the server has to connect, and to send something or take something.
const CONNECTED_WITHIN: Duration = Duration::from_secs(10);
const SILENT_AT_MOST: Duration = Duration::from_secs(300);

/// A reply.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// A status, or a bulk string.
    Text(Vec<u8>),
    Error(String),
    Integer(i64),
    Null,
    Array(Vec<Reply>),
}

/// A connection. `R` is its socket.
pub(super) struct Client<R> {
    socket: R,
    stop: Arc<AtomicBool>,
    buffer: Vec<u8>,
    taken: usize,
}

fn broken(why: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

/// True of the error that a signal made; see [`Client::fill`].
pub(super) fn is_stop(error: &io::Error) -> bool {
    error.kind() == ErrorKind::Interrupted
}

impl Client<TcpStream> {
    /// Connects to the first address of a host and port that answers.
    pub(super) fn connect(address: &str, stop: Arc<AtomicBool>) -> io::Result<Self> {
        let mut failed = io::Error::new(ErrorKind::NotFound, "the host has no address");
        for address in address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, CONNECTED_WITHIN) {
                Ok(socket) => {
                    socket.set_nodelay(true)?;
                    socket.set_read_timeout(Some(PERIOD))?;
                    socket.set_write_timeout(Some(SILENT_AT_MOST))?;
                    return Ok(Self::new(socket, stop));
                }
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }
}

impl<R: Read + Write> Client<R> {
    pub(super) fn new(socket: R, stop: Arc<AtomicBool>) -> Self {
        Self { socket, stop, buffer: Vec::new(), taken: 0 }
    }

    /// Sends requests, each a name with arguments.
    pub(super) fn send(&mut self, requests: &[&[&[u8]]]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for request in requests {
            bytes.extend(format!("*{}\r\n", request.len()).into_bytes());
            for word in *request {
                bytes.extend(format!("${}\r\n", word.len()).into_bytes());
                bytes.extend_from_slice(word);
                bytes.extend_from_slice(b"\r\n");
            }
        }
        self.socket.write_all(&bytes)
    }

    /// Sends a request and returns its reply. No other reply is awaited.
    pub(super) fn call(&mut self, request: &[&[u8]]) -> io::Result<Reply> {
        self.send(&[request])?;
        self.reply()
    }

    /// Waits for the next reply.
    ///
    /// # Errors
    /// The connection has ended, the bytes are no reply or too many, nothing has come for five
    /// minutes, or a signal came ([`is_stop`]). No further reply can be read.
    pub(super) fn reply(&mut self) -> io::Result<Reply> {
        self.reply_within(DEPTH_AT_MOST)
    }

    fn reply_within(&mut self, depth: usize) -> io::Result<Reply> {
        let line = self.line()?;
        let (kind, rest) = line.split_first().ok_or_else(|| broken("a reply without a type"))?;
        let text = || String::from_utf8_lossy(rest).into_owned();
        let number = || text().parse::<i64>().map_err(|_| broken("a reply with a wrong number"));
        match kind {
            b'+' => Ok(Reply::Text(rest.to_vec())),
            b'-' => Ok(Reply::Error(text())),
            b':' => Ok(Reply::Integer(number()?)),
            b'$' | b'*' if number()? == -1 => Ok(Reply::Null),
            b'$' => {
                let length = u64::try_from(number()?).ok().filter(|length| *length <= BULK_AT_MOST);
                let length = length.ok_or_else(|| broken("a string of more than 4 GiB"))?;
                let bytes = self.take(length)?;
                match &*self.take(2)? {
                    b"\r\n" => Ok(Reply::Text(bytes)),
                    _ => Err(broken("a string without its end")),
                }
            }
            b'*' => {
                let count = u64::try_from(number()?).ok().filter(|count| *count <= ARRAY_AT_MOST);
                let count = count.ok_or_else(|| broken("an array of more than 1,048,576 elements"))?;
                let depth = depth.checked_sub(1).ok_or_else(|| broken("arrays in arrays"))?;
                let mut elements = Vec::new();
                for _ in 0..count {
                    elements.push(self.reply_within(depth)?);
                }
                Ok(Reply::Array(elements))
            }
            _ => Err(broken("a reply of no type of RESP2; is it a Redis server?")),
        }
    }

    fn line(&mut self) -> io::Result<Vec<u8>> {
        let mut line = Vec::new();
        loop {
            let bytes = self.fill()?;
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let count = end.map_or(bytes.len(), |end| end + 1);
            line.extend_from_slice(&bytes[..count]);
            self.taken += count;
            if line.len() > LINE_AT_MOST {
                return Err(broken("a line of more than 64 KiB"));
            }
            if end.is_some() {
                let end = line.strip_suffix(b"\r\n").ok_or_else(|| broken("a line without its end"))?.len();
                line.truncate(end);
                return Ok(line);
            }
        }
    }

    fn take(&mut self, count: u64) -> io::Result<Vec<u8>> {
        let (mut taken, count) = (Vec::new(), usize::try_from(count).map_err(|_| broken("too long"))?);
        while taken.len() < count {
            let bytes = self.fill()?;
            let some = bytes.len().min(count - taken.len());
            taken.extend_from_slice(&bytes[..some]);
            self.taken += some;
        }
        Ok(taken)
    }

    /// Returns bytes that have come and were not taken; one at least.
    fn fill(&mut self) -> io::Result<&[u8]> {
        if self.taken == self.buffer.len() {
            self.buffer.resize(AT_ONCE, 0);
            self.taken = AT_ONCE;
            let since = Instant::now();
            let read = loop {
                if self.stop.load(Ordering::Relaxed) {
                    return Err(io::Error::new(ErrorKind::Interrupted, "interrupted"));
                }
                match self.socket.read(&mut self.buffer) {
                    Ok(0) => {
                        return Err(io::Error::new(ErrorKind::UnexpectedEof, "the server has closed it"));
                    }
                    Ok(read) => break read,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                        if since.elapsed() > SILENT_AT_MOST {
                            let why = "the server has sent nothing for five minutes";
                            return Err(io::Error::new(ErrorKind::TimedOut, why));
                        }
                    }
                    Err(error) => return Err(error),
                }
            };
            self.buffer.truncate(read);
            self.taken = 0;
        }
        Ok(&self.buffer[self.taken..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn client(bytes: &[u8]) -> Client<Cursor<Vec<u8>>> {
        Client::new(Cursor::new(bytes.to_vec()), Arc::default())
    }

    #[test]
    fn replies_of_all_types_are_read() {
        let mut client =
            client(b"+OK\r\n-ERR no\r\n:-5\r\n$3\r\na\r\n\r\n$-1\r\n*2\r\n$0\r\n\r\n*1\r\n:1\r\n*-1\r\n");
        let text = |text: &str| Reply::Text(text.into());
        let array = Reply::Array(vec![text(""), Reply::Array(vec![Reply::Integer(1)])]);
        for expected in [
            text("OK"),
            Reply::Error("ERR no".to_owned()),
            Reply::Integer(-5),
            text("a\r\n"),
            Reply::Null,
            array,
            Reply::Null,
        ] {
            assert_eq!(client.reply().unwrap(), expected);
        }
        assert_eq!(client.reply().unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn hostile_replies_are_refused() {
        for (bytes, why) in [
            (&b"\r\n"[..], "without a type"),
            (b"+OK\n", "without its end"),
            (b":x\r\n", "wrong number"),
            (b"$-2\r\n", "4 GiB"),
            (b"$4294967297\r\n", "4 GiB"),
            (b"$4294967296\r\nabc", "closed"),
            (b"$1\r\nabc", "without its end"),
            (b"*1048577\r\n", "1,048,576"),
            (b"*1048576\r\n", "closed"),
            (b"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n", "arrays in arrays"),
            (b"HTTP/1.1 400\r\n", "is it a Redis"),
            (&[b'+'; 70 << 10], "64 KiB"),
        ] {
            let error = client(bytes).reply().unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn requests_are_arrays_of_strings() {
        let mut client = client(b"");
        client.send(&[&[b"GET", b"a\r\n"], &[b"PING"]]).unwrap();
        let sent = client.socket.into_inner();
        assert_eq!(sent, b"*2\r\n$3\r\nGET\r\n$3\r\na\r\n\r\n*1\r\n$4\r\nPING\r\n");
    }

    #[test]
    fn a_signal_ends_a_wait() {
        let mut client = client(b"+OK\r\n");
        client.stop.store(true, Ordering::Relaxed);
        assert!(is_stop(&client.reply().unwrap_err()));
    }
}
