//! A connection with TLS: records around the halves of a stream of bytes.
//!
//! In: a connected stream and certificates. Out: the bytes that the client means, in both
//! directions.
//!
//! Invariants:
//! - Received bytes are decrypted at once, so `received` has all that has come but the beginning of
//!   one record, or of one message of a handshake, which has at most 64 KiB.
//! - After the handshake, new keys that the client asks for are sent in front of the next bytes, as
//!   RFC 8446 has it, so that a client that sends and does not read is not waited for. The refusal
//!   of a renegotiation is sent at once; the second request for one ends the connection.
//! - A `send` whose future is dropped has sent a part of its records, perhaps, and the connection
//!   is over: nothing is sent behind them, not even the end.

use karstdb::io::net::{Receiver, Sender, Stream};
use rustls::{Error, ServerConfig, ServerConnection};
use std::io::{BufRead, Write};
use std::sync::Arc;

/// Bytes that are encrypted and sent at a time, so that a long reply is not held twice.
const SENT_AT_ONCE: usize = 64 << 10;
/// Room of an empty buffer that is kept, in bytes.
const KEPT_AT_MOST: usize = 16 << 10;

/// The connection has failed. [`TlsStream::failure`] says why if TLS is the reason, rather than the
/// network.
#[derive(Debug)]
pub(crate) struct Broken;

/// A connection with TLS, whose client is connected.
pub(crate) struct TlsStream {
    receiver: Receiver,
    sender: Sender,
    session: ServerConnection,
    /// Decrypted bytes.
    received: Vec<u8>,
    /// Number of bytes at the front of `received` that were consumed.
    consumed: usize,
    /// The client sends no more: it has said so.
    has_ended: bool,
    /// True during a send, and after one whose future was dropped, until the next one has ended.
    is_sending: bool,
    failure: Option<Error>,
}

impl TlsStream {
    /// Begins with a client that is connected. Sends nothing yet.
    ///
    /// # Errors
    /// The certificates cannot be used.
    pub(crate) fn new(config: Arc<ServerConfig>, stream: Stream) -> Result<Self, Error> {
        let mut session = ServerConnection::new(config)?;
        // The parts that `send` takes are the limit.
        session.set_buffer_limit(None);
        let Stream { receiver, sender } = stream;
        Ok(Self {
            receiver,
            sender,
            session,
            received: Vec::new(),
            consumed: 0,
            has_ended: false,
            is_sending: false,
            failure: None,
        })
    }

    /// Carries out the handshake. Waits for the client, without a limit.
    ///
    /// # Errors
    /// The client has gone, or it is refused: it was told why then.
    pub(crate) async fn handshake(&mut self) -> Result<(), Broken> {
        loop {
            let decrypted = self.decrypt();
            self.flush().await?;
            decrypted?;
            if !self.session.is_handshaking() {
                return Ok(());
            }
            if self.has_ended || self.receiver.fill().await.map_err(|_| Broken)? == 0 {
                return Err(Broken);
            }
        }
    }

    /// Error of TLS with which the connection has failed; `None`: it has not, or the network has.
    pub(crate) fn failure(&self) -> Option<&Error> {
        self.failure.as_ref()
    }

    /// Bytes received and not consumed.
    pub(crate) fn buffered(&self) -> &[u8] {
        &self.received[self.consumed..]
    }

    /// Removes bytes from the front of [`buffered`](Self::buffered).
    ///
    /// # Panics
    /// `count` is more than is buffered.
    pub(crate) fn consume(&mut self, count: usize) {
        assert!(count <= self.buffered().len(), "more is consumed than was received");
        self.consumed += count;
        if self.consumed == self.received.len() {
            self.consumed = 0;
            self.received.clear();
        }
    }

    /// Receives more and adds it to [`buffered`](Self::buffered). Returns the number of bytes, 0
    /// once the client sends no more, whether it has said so or not. If the future is dropped
    /// nothing is lost: the next call goes on.
    ///
    /// # Errors
    /// The connection has failed. What was received before is there.
    pub(crate) async fn fill(&mut self) -> Result<usize, Broken> {
        self.make_room();
        let before = self.received.len();
        loop {
            let decrypted = self.decrypt();
            let count = self.received.len() - before;
            // Bytes in front of a failure are carried out; the next call returns it.
            if count == 0 {
                decrypted?;
            }
            if count > 0 || self.has_ended {
                return Ok(count);
            }
            self.flush().await?;
            if self.receiver.fill().await.map_err(|_| Broken)? == 0 {
                return Ok(0);
            }
        }
    }

    /// Moves what is buffered to the front, and gives back a buffer that was large and is empty.
    fn make_room(&mut self) {
        self.received.drain(..self.consumed);
        self.consumed = 0;
        if self.received.is_empty() && self.received.capacity() > KEPT_AT_MOST {
            self.received = Vec::new();
        }
    }

    /// Decrypts all bytes that have come.
    fn decrypt(&mut self) -> Result<(), Broken> {
        while self.failure.is_none() && !self.has_ended && !self.receiver.buffered().is_empty() {
            if let Err(error) = self.decrypt_some() {
                self.failure = Some(error);
            }
        }
        if self.failure.is_some() { Err(Broken) } else { Ok(()) }
    }

    /// Decrypts a part of the bytes that have come.
    fn decrypt_some(&mut self) -> Result<(), Error> {
        let mut input = self.receiver.buffered();
        let taken = self.session.read_tls(&mut input).map_err(|error| Error::General(error.to_string()))?;
        self.receiver.consume(taken);
        let state = self.session.process_new_packets();
        // Bytes of records in front of a wrong one are there too.
        let mut decrypted = self.session.reader();
        while let Ok(part @ [_, ..]) = decrypted.fill_buf() {
            self.received.extend_from_slice(part);
            let count = part.len();
            decrypted.consume(count);
        }
        self.has_ended = state?.peer_has_closed();
        match taken {
            0 if !self.has_ended => Err(Error::General("nothing more is taken".to_owned())),
            _ => Ok(()),
        }
    }

    /// Sends all of `data`, and gives the buffer back to be used again. Waits while the client does
    /// not take it.
    ///
    /// # Errors
    /// The connection has failed; a part of the data may have been sent, and no more will be.
    pub(crate) async fn send(&mut self, data: Vec<u8>) -> Result<Vec<u8>, Broken> {
        for part in data.chunks(SENT_AT_ONCE) {
            self.session.writer().write_all(part).map_err(|_| Broken)?;
            self.flush().await?;
        }
        Ok(data)
    }

    /// Tells the client that nothing more comes, in a record and by the end of the stream, unless a
    /// send has been given up. Waits while the client does not take it.
    ///
    /// # Errors
    /// The connection has failed.
    pub(crate) async fn finish(&mut self) -> Result<(), Broken> {
        if self.is_sending {
            return Ok(());
        }
        if self.failure.is_none() {
            self.session.send_close_notify();
        }
        self.flush().await?;
        self.sender.finish().await.map_err(|_| Broken)
    }

    /// Sends the records that there are.
    async fn flush(&mut self) -> Result<(), Broken> {
        while self.session.wants_write() {
            let mut records = Vec::new();
            while self.session.wants_write() {
                self.session.write_tls(&mut records).map_err(|_| Broken)?;
            }
            self.is_sending = true;
            self.sender.send(records).await.map_err(|_| Broken)?;
            self.is_sending = false;
        }
        Ok(())
    }
}
