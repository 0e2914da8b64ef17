//! A connection whose command waits for an element, or for the end of a pause.
//!
//! It goes on to receive, because that is how it knows that the client has gone: what comes is kept
//! for afterwards. Pushes are sent meanwhile.

use super::transport::Transport;
use super::{Connection, Over};
use crate::commands::{self, Waiting};
use crate::resp::{Encoder, Request};
use futures_util::future::{Either, pending, select};
use karstdb::io::sleep;
use std::pin::pin;

/// Bytes that are kept of a client that has not authenticated itself.
const STRANGE_AT_MOST: usize = 1 << 20;

/// Bytes that were received while a command waited: they come before those of the transport.
#[derive(Debug, Default)]
pub(super) struct Early {
    bytes: Vec<u8>,
    /// Number of bytes at the front that are consumed.
    consumed: usize,
}

impl Early {
    /// Takes everything that was received.
    fn take(&mut self, transport: &mut Transport) {
        let received = transport.buffered();
        if !received.is_empty() {
            self.bytes.drain(..std::mem::take(&mut self.consumed));
        }
        self.bytes.extend_from_slice(received);
        transport.consume(received.len());
    }

    /// Takes what was received behind bytes of before that are no whole request.
    pub(super) fn go_on(&mut self, transport: &mut Transport) {
        if !self.bytes.is_empty() {
            self.take(transport);
        }
    }

    /// Returns the bytes that are kept, or those of the transport if none are kept.
    pub(super) fn or<'a>(&'a self, received: &'a [u8]) -> &'a [u8] {
        if self.bytes.is_empty() { received } else { &self.bytes[self.consumed..] }
    }

    /// Removes bytes from the front of [`or`](Self::or).
    pub(super) fn consume(&mut self, count: usize, transport: &mut Transport) {
        if self.bytes.is_empty() {
            transport.consume(count);
            return;
        }
        self.consumed += count;
        if self.consumed >= self.bytes.len() {
            *self = Self::default();
        }
    }
}

/// Why a wait is interrupted.
enum Woken {
    /// A key was written.
    Signalled,
    /// Its time is over, or CLIENT UNBLOCK has ended it.
    Ended,
}

impl Connection<'_> {
    /// Waits until a command has its element or gives up. Returns its reply.
    pub(super) async fn wait(&mut self, waiting: Waiting, request: &Request) -> Result<Encoder, Over> {
        let mut reply = Encoder::new(self.session.protocol());
        let mut waiting = Some(waiting);
        while let Some(command) = waiting.take() {
            match self.woken(&command).await? {
                Woken::Signalled => {
                    waiting =
                        commands::resume(self.server, &self.session, command, request, &mut reply).await;
                }
                Woken::Ended => {
                    commands::give_up(self.server, &self.session, command, request, &mut reply);
                }
            }
        }
        Ok(reply)
    }

    /// Keeps what was received, which is limited as a request is.
    fn keep_early(&mut self) -> Result<(), Over> {
        self.early.take(&mut self.transport);
        let limits = self.server.settings().limits();
        let at_most = if self.session.is_authenticated() { limits.request } else { STRANGE_AT_MOST };
        let kept = self.early.bytes.len() - self.early.consumed;
        self.session.client.note_input(kept);
        self.server.fit_clients();
        match kept > at_most {
            true => Err(Over),
            false => Ok(()),
        }
    }

    /// Waits while CLIENT PAUSE is for the requests of the window.
    pub(super) async fn sit_out(&mut self) -> Result<(), Over> {
        let (client, server) = (self.session.client.clone(), self.server);
        while let Some(paused) = server.pause().at(server.env().now()) {
            let may_write = |request: &Request| commands::may_write(request, &self.session);
            if !paused.of_all && !self.requests.iter().any(may_write) {
                break;
            }
            self.take_mail();
            self.send().await?;
            if client.end.is_rung() {
                // What was received before the server stops is answered.
                return if server.is_stopping() { Ok(()) } else { Err(Over) };
            }
            self.keep_early()?;
            client.note_paused(true);
            let late = pin!(sleep(server.env(), paused.until.saturating_sub(server.env().now())));
            let ended = pin!(server.pause().ended());
            let told = pin!(client.end.rung_or(|| client.mailbox.has_mail()));
            match select(told, select(pin!(self.transport.fill()), select(ended, late))).await {
                Either::Right((Either::Left((Ok(received @ 1..), _)), _)) => {
                    server.stats().received.add(received as u64);
                }
                Either::Right((Either::Left((Ok(0) | Err(_), _)), _)) => return Err(Over),
                Either::Left(_) | Either::Right((Either::Right(_), _)) => {}
            }
        }
        client.note_paused(false);
        Ok(())
    }

    async fn woken(&mut self, waiting: &Waiting) -> Result<Woken, Over> {
        let client = self.session.client.clone();
        let waiter = waiting.waiter();
        loop {
            self.take_mail();
            if self.out.len() > 0 && waiter.set_busy() {
                let sent = self.send().await;
                waiter.set_idle();
                sent?;
            }
            if client.end.is_rung() {
                return Err(Over);
            }
            if client.is_unblocked() {
                return Ok(Woken::Ended);
            }
            self.keep_early()?;
            let env = self.server.env();
            let late = async {
                match waiting.until() {
                    Some(until) => sleep(env, until.saturating_sub(env.now())).await,
                    None => pending().await,
                }
            };
            let signalled = pin!(waiter.signalled());
            let told = pin!(client.end.rung_or(|| client.mailbox.has_mail() || client.is_unblocked()));
            let (received, late) = (pin!(self.transport.fill()), pin!(late));
            // The client's end comes before the element, which is for others then.
            match select(told, select(received, select(signalled, late))).await {
                Either::Left(_) => {}
                Either::Right((Either::Left((Ok(received @ 1..), _)), _)) => {
                    self.server.stats().received.add(received as u64);
                }
                Either::Right((Either::Left((Ok(0) | Err(_), _)), _)) => return Err(Over),
                Either::Right((Either::Right((Either::Left(_), _)), _)) => return Ok(Woken::Signalled),
                Either::Right((Either::Right((Either::Right(_), _)), _)) => return Ok(Woken::Ended),
            }
        }
    }
}
