//! Connections of clients, plain or with TLS.
//!
//! Half of the connections that a simulation makes have TLS, of version 1.2 or 1.3: the seed
//! decides. Certificates are made once for the process, and have a fixed length; no session is
//! resumed. So the bytes of a handshake differ from run to run, and their number does not.

use super::Gone;
use karst_testkit::tls::{Authority, Identity, connection};
use karstdb::io::net::Stream;
use karstdb::io::{Env, FileSystem, Simulation};
use rustls::client::Resumption;
use rustls::{ClientConfig, ClientConnection, version};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// Address of the server for clients of TLS.
pub(super) const TLS: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)), 6380);

/// Certificates of the process.
struct Certificates {
    authority: Authority,
    server: Identity,
    /// Options of clients: versions 1.2 and 1.3.
    clients: [Arc<ClientConfig>; 2],
}

fn certificates() -> &'static Certificates {
    static MADE: OnceLock<Certificates> = OnceLock::new();
    MADE.get_or_init(|| {
        let authority = Authority::new("simulated");
        let (server, client) = (authority.identity(), authority.identity());
        let clients = [&version::TLS12, &version::TLS13].map(|version| {
            let mut config = (*authority.client(Some(&client), &[version])).clone();
            config.resumption = Resumption::disabled();
            Arc::new(config)
        });
        Certificates { authority, server, clients }
    })
}

/// Puts the server's certificates on the disk of a machine.
pub(super) fn install(simulation: &Simulation) {
    let Certificates { authority, server, .. } = certificates();
    let texts = [&server.certificate, &server.key, &authority.certificate];
    for ((_, path), text) in FILES.into_iter().zip(texts) {
        let mut file = simulation.fs().create(Path::new(path)).expect("a file");
        file.append(text.as_bytes()).and_then(|()| file.sync_all()).expect("a file");
    }
    simulation.fs().sync_dir(Path::new("/")).expect("a directory");
}

const FILES: [(&str, &str); 3] =
    [("tls-cert-file", "/server.crt"), ("tls-key-file", "/server.key"), ("tls-ca-cert-file", "/ca.crt")];

/// Settings of a server that has the certificates of [`install`]. Its clients need certificates,
/// which is the default.
pub(super) fn settings() -> Vec<(String, Vec<u8>)> {
    FILES.map(|(name, path)| (name.to_owned(), path.as_bytes().to_vec())).to_vec()
}

/// A client's end of a connection.
pub(super) enum Wire {
    Plain(Stream),
    Tls(Box<Secured>),
}

/// A client's end of a connection with TLS.
pub(super) struct Secured {
    stream: Stream,
    session: ClientConnection,
    received: Vec<u8>,
    /// The server has said that nothing more comes.
    has_ended: bool,
}

impl Wire {
    /// Connects, with TLS if the address is [`TLS`].
    pub(super) async fn connect(env: &Env, address: SocketAddr) -> Result<Self, Gone> {
        let stream = Stream::connect(env, address).await.map_err(|_| Gone)?;
        if address != TLS {
            return Ok(Self::Plain(stream));
        }
        let config = &certificates().clients[usize::from(!env.random_seed().is_multiple_of(4))];
        let session = connection(config.clone());
        let mut secured = Box::new(Secured { stream, session, received: Vec::new(), has_ended: false });
        while secured.session.is_handshaking() {
            secured.flush().await?;
            secured.receive().await?;
        }
        secured.flush().await?;
        Ok(Self::Tls(secured))
    }

    pub(super) fn buffered(&self) -> &[u8] {
        match self {
            Self::Plain(stream) => stream.receiver.buffered(),
            Self::Tls(secured) => &secured.received,
        }
    }

    pub(super) fn consume(&mut self, count: usize) {
        match self {
            Self::Plain(stream) => stream.receiver.consume(count),
            Self::Tls(secured) => drop(secured.received.drain(..count)),
        }
    }

    /// Receives more, one byte at least.
    pub(super) async fn fill(&mut self) -> Result<(), Gone> {
        match self {
            Self::Plain(stream) => match stream.receiver.fill().await {
                Ok(1..) => Ok(()),
                Ok(0) | Err(_) => Err(Gone),
            },
            Self::Tls(secured) => {
                let before = secured.received.len();
                while secured.received.len() == before {
                    secured.receive().await?;
                }
                Ok(())
            }
        }
    }

    pub(super) async fn send(&mut self, bytes: Vec<u8>) -> Result<(), Gone> {
        match self {
            Self::Plain(stream) => stream.sender.send(bytes).await.map(drop).map_err(|_| Gone),
            Self::Tls(secured) => {
                secured.session.set_buffer_limit(None);
                secured.session.writer().write_all(&bytes).map_err(|_| Gone)?;
                secured.flush().await
            }
        }
    }

    /// Sends a record that no key fits, if the connection has TLS.
    pub(super) async fn send_wrong_record(&mut self) -> Result<(), Gone> {
        let Self::Tls(secured) = self else { return Ok(()) };
        secured.session.writer().write_all(b"SHUTDOWN\r\n").map_err(|_| Gone)?;
        let mut records = secured.records();
        *records.last_mut().expect("a record") ^= 1;
        secured.stream.sender.send(records).await.map(drop).map_err(|_| Gone)
    }

    /// True if the server has said that nothing more comes.
    pub(super) fn is_told_the_end(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(secured) => secured.has_ended,
        }
    }
}

impl Secured {
    /// Receives some bytes and decrypts them.
    async fn receive(&mut self) -> Result<(), Gone> {
        if self.has_ended || !matches!(self.stream.receiver.fill().await, Ok(1..)) {
            return Err(Gone);
        }
        while !self.stream.receiver.buffered().is_empty() {
            let mut input = self.stream.receiver.buffered();
            let taken = self.session.read_tls(&mut input).map_err(|_| Gone)?;
            self.stream.receiver.consume(taken);
            // Each record that comes is right, because a reset loses only bytes behind those that
            // were received.
            let state = self.session.process_new_packets();
            let state = state.unwrap_or_else(|error| panic!("a record of the server: {error}"));
            let before = self.received.len();
            self.received.resize(before + state.plaintext_bytes_to_read(), 0);
            self.session.reader().read_exact(&mut self.received[before..]).expect("it is there");
            self.has_ended |= state.peer_has_closed();
            if self.has_ended {
                break;
            }
        }
        Ok(())
    }

    /// Records that are to be sent.
    fn records(&mut self) -> Vec<u8> {
        let mut records = Vec::new();
        while self.session.wants_write() {
            self.session.write_tls(&mut records).expect("memory takes all bytes");
        }
        records
    }

    async fn flush(&mut self) -> Result<(), Gone> {
        match self.records() {
            records if records.is_empty() => Ok(()),
            records => self.stream.sender.send(records).await.map(drop).map_err(|_| Gone),
        }
    }
}
