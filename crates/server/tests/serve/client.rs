//! A server of a test, and a blocking client with a parser of replies of its own.

use karst_server::{Running, ServerOptions};
use karstdb::io::Env;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use tempfile::TempDir;

/// A running server with a directory of its own.
pub(crate) struct Served {
    pub(crate) directory: TempDir,
    pub(crate) running: Option<Running>,
}

/// Options of most tests: a free port, two threads.
pub(crate) fn options() -> ServerOptions {
    ServerOptions {
        listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
        threads: 2,
        ..ServerOptions::default()
    }
}

impl Served {
    pub(crate) fn start() -> Self {
        Self::with(&options())
    }

    pub(crate) fn with(options: &ServerOptions) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let mut served = Self { directory, running: None };
        served.open(options);
        served
    }

    /// Starts the server in its directory.
    pub(crate) fn open(&mut self, options: &ServerOptions) {
        let path = self.directory.path().join("db");
        self.running = Some(Running::start(&path, options, &Env::posix()).expect("it starts"));
    }

    /// Ends the server and waits until its database is closed.
    pub(crate) fn close(&mut self) {
        self.running.take().expect("it runs").shut_down().expect("it closes");
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.running.as_ref().expect("it runs").addresses()[0]
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address())
    }

    /// Sends each command to a new client and compares its reply.
    pub(crate) fn check(&self, script: &[(&str, &str)]) {
        self.client().check(script);
    }
}

/// A connection.
pub(crate) struct Client(BufReader<Wire>);

/// The bytes of a connection, plain or with TLS.
enum Wire {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Wire {
    fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => &stream.sock,
        }
    }
}

impl Read for Wire {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(bytes),
            Self::Tls(stream) => stream.read(bytes),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

/// A reply. As text: `+OK`, `-ERR why`, `:1`, `"text"`, `nil`, `[a b]`, `{key value}`, `(push)`,
/// `,1.5`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    Line(char, String),
    Bulk(Vec<u8>),
    Nil,
    List(char, Vec<Reply>),
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_nodelay(true).expect("an open socket");
        Self(BufReader::new(Wire::Plain(stream)))
    }

    /// Connects with TLS. The handshake is carried out with the first bytes.
    pub(crate) fn connect_tls(address: SocketAddr, config: &Arc<ClientConfig>) -> Self {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_nodelay(true).expect("an open socket");
        let session = karst_testkit::tls::connection(config.clone());
        Self(BufReader::new(Wire::Tls(Box::new(StreamOwned::new(session, stream)))))
    }

    /// The client's end of TLS, and its socket.
    pub(crate) fn tls(&mut self) -> &mut StreamOwned<ClientConnection, TcpStream> {
        match self.0.get_mut() {
            Wire::Tls(stream) => stream,
            Wire::Plain(_) => panic!("the connection has no TLS"),
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let wire = self.0.get_mut();
        wire.write_all(bytes).and_then(|()| wire.flush()).expect("the server receives");
    }

    /// Sends a command of one line, which the server may not receive any more.
    pub(crate) fn try_line(&mut self, line: &str) -> Option<Reply> {
        let wire = self.0.get_mut();
        wire.write_all(line.as_bytes()).and_then(|()| wire.write_all(b"\r\n")).ok()?;
        wire.flush().ok()?;
        self.reply()
    }

    /// Reads until the connection ends. True if the server has said so.
    pub(crate) fn is_told_the_end(&mut self) -> bool {
        self.0.read_to_end(&mut Vec::new()).is_ok()
    }

    /// Sends bytes to a server that may close the connection meanwhile. Returns false if it has.
    pub(crate) fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.0.get_mut().write_all(bytes).is_ok()
    }

    /// Sends a command of any arguments.
    pub(crate) fn send_command<A: AsRef<[u8]>>(&mut self, args: &[A]) {
        self.send(&encoded(args));
    }

    /// Sends a command whose arguments are separated by single spaces.
    pub(crate) fn send_line(&mut self, line: &str) {
        self.send_command(&line.split(' ').collect::<Vec<_>>());
    }

    /// Asks until `count` clients wait.
    pub(crate) fn wait_for_blocked(&mut self, count: usize) {
        let field = format!("\r\nblocked_clients:{count}\r\n");
        while !self.line("INFO clients").text().contains(&field) {}
    }

    /// Reads a reply; `None`: the server has closed the connection.
    pub(crate) fn reply(&mut self) -> Option<Reply> {
        let mut line = String::new();
        if self.0.read_line(&mut line).unwrap_or(0) == 0 {
            return None;
        }
        let line = line.strip_suffix("\r\n").expect("a line ends");
        let (mark, rest) = (line.chars().next().expect("a mark"), &line[1..]);
        let number = || rest.parse::<i64>().unwrap_or_else(|_| panic!("a number: {line}"));
        Some(match mark {
            '$' | '=' if number() >= 0 => {
                let mut bytes = vec![0; number() as usize + 2];
                self.0.read_exact(&mut bytes).expect("the whole string comes");
                assert!(bytes.ends_with(b"\r\n"));
                bytes.truncate(bytes.len() - 2);
                Reply::Bulk(bytes)
            }
            '$' | '_' => Reply::Nil,
            '*' if number() < 0 => Reply::Nil,
            '*' | '~' | '%' | '>' => {
                let count = if mark == '%' { 2 * number() } else { number() };
                Reply::List(mark, (0..count).map(|_| self.reply().expect("an element")).collect())
            }
            mark => Reply::Line(mark, rest.to_owned()),
        })
    }

    /// Reads the next line of a reply.
    pub(crate) fn raw_line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("the server is there");
        line.trim_end().to_owned()
    }

    /// Reads the next replies or pushes and compares them.
    pub(crate) fn expect(&mut self, replies: &[&str]) {
        for expected in replies {
            assert_eq!(self.reply().expect("a reply").to_string(), *expected);
        }
    }

    pub(crate) fn call<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Reply {
        self.send_command(args);
        self.reply().expect("a reply")
    }

    /// Sends a line of words as a command.
    pub(crate) fn line(&mut self, line: &str) -> Reply {
        self.call(&line.split(' ').collect::<Vec<_>>())
    }

    /// Sends each command and compares its reply.
    pub(crate) fn check(&mut self, script: &[(&str, &str)]) {
        for (line, expected) in script {
            assert_eq!(self.line(line).to_string(), *expected, "{line}");
        }
    }

    /// True if the server has closed the connection, once it has.
    pub(crate) fn is_closed(&mut self) -> bool {
        matches!(self.0.read(&mut [0]), Ok(0) | Err(_))
    }

    /// Tells the server that nothing more comes.
    pub(crate) fn finish(&mut self) {
        self.0.get_ref().socket().shutdown(std::net::Shutdown::Write).expect("an open socket");
    }
}

/// Bytes of a command.
pub(crate) fn encoded<A: AsRef<[u8]>>(args: &[A]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        bytes.extend(format!("${}\r\n", arg.as_ref().len()).bytes());
        bytes.extend_from_slice(arg.as_ref());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

impl Reply {
    pub(crate) fn integer(&self) -> i64 {
        match self {
            Self::Line(':', number) => number.parse().expect("an integer"),
            other => panic!("no integer: {other}"),
        }
    }

    pub(crate) fn list(self) -> Vec<Reply> {
        match self {
            Self::List(_, elements) => elements,
            other => panic!("no list: {other}"),
        }
    }

    /// Text of a string.
    pub(crate) fn text(self) -> String {
        match self {
            Self::Bulk(bytes) => String::from_utf8(bytes).expect("text"),
            other => panic!("no string: {other}"),
        }
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(mark, text) => write!(f, "{mark}{text}"),
            Self::Bulk(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Self::Nil => f.write_str("nil"),
            Self::List(mark, elements) => {
                let (open, close) = match mark {
                    '*' => ('[', ']'),
                    '~' => ('<', '>'),
                    '>' => ('(', ')'),
                    _ => ('{', '}'),
                };
                let elements: Vec<_> = elements.iter().map(ToString::to_string).collect();
                write!(f, "{open}{}{close}", elements.join(" "))
            }
        }
    }
}
