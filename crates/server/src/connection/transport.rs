//! The bytes of a connection, which come plain or with TLS.

use super::Over;
use crate::server::{Client, Server};
use crate::tls::TlsStream;
use futures_util::future::{Either, select};
use karstdb::io::net::Stream;
use karstdb::io::{report, sleep};
use std::fmt::Display;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

/// Time that a client has for its handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// A client's stream of bytes.
pub(super) enum Transport {
    Plain(Stream),
    /// Boxed, because its state is large, and plain connections would hold its room.
    Tls(Box<TlsStream>),
}

impl Transport {
    /// Carries out the handshake of a client. `None`: it has not come to an end, because the client
    /// is refused, has gone or is too slow, or because its connection is ended.
    pub(super) async fn with_tls(server: &Server, client: &Client, stream: Stream) -> Option<Self> {
        let peer = stream.peer();
        let mut tls = match TlsStream::new(server.tls()?, stream) {
            Ok(tls) => Box::new(tls),
            Err(error) => {
                note_failure(server, peer, error);
                return None;
            }
        };
        let late = pin!(sleep(server.env(), HANDSHAKE));
        let ended = pin!(client.end.rung());
        let shaken = match select(ended, select(pin!(tls.handshake()), late)).await {
            Either::Right((Either::Left((shaken, _)), _)) => shaken,
            Either::Right((Either::Right(_), _)) => {
                note_failure(server, peer, format_args!("the handshake took more than {HANDSHAKE:?}"));
                return None;
            }
            Either::Left(_) => return None,
        };
        if let Some(error) = tls.failure() {
            note_failure(server, peer, error);
        }
        shaken.ok()?;
        // Requests may have come with the last message of the handshake.
        server.stats().received.add(tls.buffered().len() as u64);
        Some(Self::Tls(tls))
    }

    /// Bytes received and not consumed.
    pub(super) fn buffered(&self) -> &[u8] {
        match self {
            Self::Plain(stream) => stream.receiver.buffered(),
            Self::Tls(stream) => stream.buffered(),
        }
    }

    /// Removes bytes from the front of [`buffered`](Self::buffered). `count` is at most its length.
    pub(super) fn consume(&mut self, count: usize) {
        match self {
            Self::Plain(stream) => stream.receiver.consume(count),
            Self::Tls(stream) => stream.consume(count),
        }
    }

    /// Receives more. Returns the number of bytes, 0 once the client sends no more. If the future
    /// is dropped nothing is lost: the next call goes on.
    pub(super) async fn fill(&mut self) -> Result<usize, Over> {
        match self {
            Self::Plain(stream) => stream.receiver.fill().await.map_err(|_| Over),
            Self::Tls(stream) => stream.fill().await.map_err(|_| Over),
        }
    }

    /// Sends all of `data`, and gives the buffer back. Waits while the client does not take it. If
    /// the future is dropped, the connection is over.
    pub(super) async fn send(&mut self, data: Vec<u8>) -> Result<Vec<u8>, Over> {
        match self {
            Self::Plain(stream) => stream.sender.send(data).await.map_err(|_| Over),
            Self::Tls(stream) => stream.send(data).await.map_err(|_| Over),
        }
    }

    /// Tells a client that was answered that nothing more comes. With TLS, [`end`](Self::end) does.
    pub(super) async fn finish(&mut self) -> Result<(), Over> {
        match self {
            Self::Plain(stream) => stream.sender.finish().await.map_err(|_| Over),
            Self::Tls(_) => Ok(()),
        }
    }

    /// Ends a connection that is over. With TLS it counts a failure, and sends the alert of the
    /// failure or close_notify, for at most `time`. Without TLS it does nothing.
    pub(super) async fn end(&mut self, server: &Server, peer: SocketAddr, time: Duration) {
        let Self::Tls(stream) = self else { return };
        if let Some(error) = stream.failure() {
            note_failure(server, peer, error);
        }
        let late = pin!(sleep(server.env(), time));
        // A client that has gone already gets neither.
        let _finished = select(pin!(stream.finish()), late).await;
    }
}

/// Counts a connection that TLS has ended.
fn note_failure(server: &Server, peer: SocketAddr, error: impl Display) {
    server.stats().tls_errors.add(1);
    report!(info, %peer, %error, "a connection with TLS has failed");
}
