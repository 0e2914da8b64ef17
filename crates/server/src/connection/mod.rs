//! One connection: requests in, replies out, in order.
//!
//! In: a connected stream. Out: nothing; the future ends with the connection.
//!
//! Requests that have arrived are carried out in windows: neighbours of one [`Company`], at most
//! [`WINDOW`]. Those that only read run at the same time, each with its own view and output, so
//! that their reads of the device are in flight together; those that write keys are committed
//! together; each other request is a window of its own. A request is parsed after all requests that
//! may change its limits, such as AUTH, were carried out. Replies are sent when no complete request
//! is left, or when they fill [`OUTPUT_AT_MOST`].
//!
//! Invariants:
//! - While replies are being sent nothing is received or carried out.
//! - Requests of a window run ahead of the replies' sending as far as their replies fit into
//!   [`REPLIES_AHEAD`], if they are as long as the longest of the last ones; one request at least.
//!   A single reply has no bound.
//! - An idle connection keeps no large buffer.
//! - A connection with endless requests lets others run after [`WINDOW`] of them, and is ended in
//!   between.

mod transport;
mod waiting;

use crate::commands::{self, Company, company};
use crate::resp::{Encoder, Limits, Malformed, Parser, Request};
use crate::server::Server;
use crate::session::{Replies, Session};
use crate::wrong::Wrong;
use futures_util::StreamExt;
use futures_util::future::{Either, poll_immediate, select};
use futures_util::stream::FuturesOrdered;
use karstdb::io::net::Stream;
use karstdb::io::{sleep, yield_now};
use std::cell::Cell;
use std::net::SocketAddr;
use std::pin::pin;
use std::slice::IterMut;
use std::time::Duration;
use transport::Transport;
use waiting::Early;

/// Maximum number of requests of a window.
const WINDOW: usize = 128;
/// Bytes of requests after which a window is closed.
const WINDOW_BYTES: usize = 1 << 20;
/// Bytes of replies that are sent at once although more requests wait.
const OUTPUT_AT_MOST: usize = 64 << 10;
/// Bytes of replies for which requests of a window run ahead.
const REPLIES_AHEAD: usize = 1 << 20;
/// Length of a reply that is expected of a new client: 16 requests run ahead.
const FIRST_EXPECTED: usize = 64 << 10;
/// Number of requests for which an idle connection has room.
const REQUESTS_KEPT: usize = 8;
/// Time that a client has to take its last replies when the server stops.
const LAST_REPLIES: Duration = Duration::from_secs(5);

/// The connection is over: its peer has gone, or it is to be closed.
struct Over;

/// Serves a client, with TLS or without, until it leaves or the server stops.
pub(crate) async fn serve(server: Server, mut stream: Stream, local: SocketAddr, is_tls: bool) {
    let peer = stream.peer();
    // A connection that has failed already says so when it is read.
    let _is_set = stream.set_nodelay(true);
    let (clients, now, at_most) = (server.clients(), server.env().now(), server.settings().max_clients());
    let Some(connected) = clients.add(peer, local, server.users().default(), now, at_most) else {
        server.stats().rejected.add(1);
        // As in Redis, a client of TLS is not told, because that takes a handshake.
        if !is_tls {
            let why = b"-ERR max number of clients reached\r\n".to_vec();
            let _is_gone = stream.sender.send(why).await;
        }
        return;
    };
    if server.is_stopping() {
        return; // it was accepted after `Server::stop` had rung the bells of all clients
    }
    let transport = match is_tls {
        true => Transport::with_tls(&server, &connected.client, stream).await,
        false => Some(Transport::Plain(stream)),
    };
    let Some(transport) = transport else { return };
    let session = Session::new(connected.client.clone());
    let mut connection = Connection {
        server: &server,
        session,
        transport,
        early: Early::default(),
        parser: Parser::default(),
        out: Encoder::default(),
        requests: Vec::new(),
        company: Company::Alone,
        ahead: None,
        expected: Cell::new(FIRST_EXPECTED),
        since_pause: 0,
        last_moment: None,
    };
    let _over = connection.run().await;
    let time = connection.time_for_last_replies();
    connection.transport.end(&server, peer, time).await;
}

struct Connection<'a> {
    server: &'a Server,
    session: Session,
    transport: Transport,
    /// Bytes that were received while a command waited.
    early: Early,
    parser: Parser,
    out: Encoder,
    /// Requests of the window.
    requests: Vec<Request>,
    /// Company of the requests of the window.
    company: Company,
    /// The request behind the window, if it was parsed already.
    ahead: Option<(Request, Company)>,
    /// Length of a reply that is expected, in bytes.
    expected: Cell<usize>,
    /// Requests carried out since other tasks ran.
    since_pause: usize,
    /// Environment's monotonic time until which the last replies may be sent, once the server has
    /// stopped while the client was not taking them.
    last_moment: Option<Duration>,
}

impl Connection<'_> {
    /// Serves the client until the connection is over.
    async fn run(&mut self) -> Result<(), Over> {
        loop {
            let malformed = self.collect().err();
            self.take_mail();
            if self.requests.is_empty() && malformed.is_none() {
                self.send().await?;
                self.receive().await?;
                continue;
            }
            if self.server.pause().is_set() {
                self.sit_out().await?;
            }
            // Boxed, because the state of a command is large, and idle connections would hold its
            // room.
            Box::pin(self.carry_out()).await?;
            if let Some(malformed) = malformed {
                let wrong = Wrong::err(format_args!("Protocol error: {malformed}"));
                self.server.note_errors(&wrong, 1);
                self.out.error(&wrong);
                self.session.close();
            }
            if self.session.closes() {
                self.send().await?;
                return self.transport.finish().await;
            }
            if self.since_pause >= WINDOW {
                self.since_pause = 0;
                yield_now().await;
            }
        }
    }

    /// Adds pushes of other connections to what is sent.
    fn take_mail(&mut self) {
        let mailbox = &self.session.client.mailbox;
        if mailbox.has_mail() {
            self.out.encoded(mailbox.take());
        }
    }

    /// Takes complete requests of one company from what was received, a window at most.
    fn collect(&mut self) -> Result<(), Malformed> {
        let is_stranger = !self.session.is_authenticated();
        let limits = Limits { is_stranger, ..self.server.settings().limits() };
        let mut bytes = 0;
        while self.requests.len() < WINDOW && bytes < WINDOW_BYTES {
            let (request, company) = match self.ahead.take() {
                Some(ahead) => ahead,
                None => {
                    self.early.go_on(&mut self.transport);
                    let input = self.early.or(self.transport.buffered());
                    let (consumed, request) = self.parser.parse(input, &limits)?;
                    self.early.consume(consumed, &mut self.transport);
                    bytes += consumed;
                    let Some(request) = request else { break };
                    let company = match self.server.scripts().is_busy() {
                        true => Company::Alone,
                        false => company(&request, &self.session),
                    };
                    (request, company)
                }
            };
            if !self.requests.is_empty() && self.company != company {
                self.ahead = Some((request, company));
                break;
            }
            self.company = company;
            self.requests.push(request);
            if company == Company::Alone {
                break;
            }
        }
        let waiting = self.early.or(self.transport.buffered()).len() + self.parser.memory();
        self.session.client.note_input(bytes + waiting);
        self.server.fit_clients();
        Ok(())
    }

    /// Carries out the requests of the window, and leaves none.
    async fn carry_out(&mut self) -> Result<(), Over> {
        let mut requests = std::mem::take(&mut self.requests);
        self.since_pause += requests.len();
        match (&mut requests[..], self.company) {
            ([], _) => {}
            ([request], _) => self.carry_out_one(request).await?,
            (run, Company::Readers) => self.carry_out_readers(run).await?,
            (run, Company::Writers | Company::Alone) => self.carry_out_writers(run).await?,
        }
        requests.clear();
        self.requests = requests;
        if self.out.len() >= OUTPUT_AT_MOST {
            self.send().await?;
        }
        Ok(())
    }

    async fn carry_out_one(&mut self, request: &mut Request) -> Result<(), Over> {
        let before = self.out.len();
        let waiting = commands::execute(self.server, &self.session, request, &mut self.out).await;
        self.session.tell_state();
        let is_replied = self.is_replied();
        if !is_replied {
            self.out.truncate(before);
        }
        if let Some(waiting) = waiting {
            let reply = self.wait(waiting, request).await?;
            if is_replied {
                self.out.append(reply);
            }
        }
        Ok(())
    }

    /// True if the client gets the reply of the command that has run.
    fn is_replied(&self) -> bool {
        let replies = &self.session.replies;
        match replies.get() {
            Replies::On => return true,
            Replies::Off => {}
            Replies::SkipNext => replies.set(Replies::Skip),
            Replies::Skip => replies.set(Replies::On),
        }
        false
    }

    /// Carries out requests that only read, several at the same time.
    async fn carry_out_readers(&mut self, mut requests: &mut [Request]) -> Result<(), Over> {
        loop {
            let gets = commands::gets(&self.session, requests).min(at_once(&self.expected));
            if gets > 1 {
                let (session, out) = (&self.session, &mut self.out);
                let now = &requests[..gets];
                let (done, longest) =
                    commands::execute_gets(self.server, session, now, OUTPUT_AT_MOST, out).await;
                expect(&self.expected, longest);
                requests = &mut requests[done..];
            } else {
                let mut waiting = requests.iter_mut();
                self.read(&mut waiting).await;
                requests = waiting.into_slice();
            }
            if requests.is_empty() {
                return Ok(());
            }
            if self.out.len() >= OUTPUT_AT_MOST {
                self.send().await?;
            }
        }
    }

    /// Carries out requests that only read until none waits, or until replies are to be sent. No
    /// request is under way then, whose view would be kept while the client takes its replies.
    async fn read(&mut self, waiting: &mut IterMut<'_, Request>) {
        let (server, session, expected) = (self.server, &self.session, &self.expected);
        let mut running = FuturesOrdered::new();
        loop {
            let mut ended = None;
            while ended.is_none()
                && self.out.len() < OUTPUT_AT_MOST
                && running.len() < at_once(expected)
                && let Some(request) = waiting.next()
            {
                running.push_back(async move {
                    let mut out = Encoder::new(session.protocol());
                    commands::execute(server, session, request, &mut out).await;
                    expect(expected, out.len());
                    out
                });
                // It begins before the next one, which is not begun if replies that are in memory
                // are many bytes.
                ended = poll_immediate(running.next()).await.flatten();
            }
            let answer = match ended {
                Some(answer) => Some(answer),
                None => running.next().await,
            };
            match answer {
                Some(answer) => self.out.append(answer),
                None => return,
            }
        }
    }

    /// Carries out requests that write keys, several with one commit.
    async fn carry_out_writers(&mut self, requests: &mut [Request]) -> Result<(), Over> {
        let mut rest = &*requests;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(at_once(&self.expected).min(rest.len()));
            let before = self.out.len();
            commands::execute_writers(self.server, &self.session, now, &mut self.out).await;
            let mean = (self.out.len() - before) / now.len();
            now.iter().for_each(|_| expect(&self.expected, mean));
            rest = later;
            if self.out.len() >= OUTPUT_AT_MOST {
                self.send().await?;
            }
        }
        Ok(())
    }

    /// Receives more. Returns early if there is mail.
    async fn receive(&mut self) -> Result<(), Over> {
        self.requests.shrink_to(REQUESTS_KEPT);
        // The end comes first: bytes may be there whenever they are asked for.
        let client = &self.session.client;
        let end = pin!(client.end.rung_or(|| client.mailbox.has_mail()));
        client.set_receiving(true);
        let filled = pin!(self.transport.fill());
        let received = select(end, filled).await;
        client.set_receiving(false);
        match received {
            Either::Right((Ok(received @ 1..), _)) => {
                self.server.stats().received.add(received as u64);
                Ok(())
            }
            Either::Left(_) if !client.end.is_rung() => Ok(()),
            Either::Right((Ok(0) | Err(_), _)) | Either::Left(_) => Err(Over),
        }
    }

    /// Sends all replies. A client whose connection is ended meanwhile gets no more of them. If the
    /// server stops, the client has [`LAST_REPLIES`] to take all of its last replies.
    async fn send(&mut self) -> Result<(), Over> {
        if self.out.len() == 0 {
            return Ok(());
        }
        let bytes = self.out.take();
        self.session.client.note_output(bytes.len());
        self.server.stats().sent.add(bytes.len() as u64);
        let sending = pin!(self.transport.send(bytes));
        let sent = match select(sending, pin!(self.session.client.end.rung())).await {
            Either::Left((sent, _)) => sent,
            Either::Right((_, sending)) if self.server.is_stopping() => {
                let now = self.server.env().now();
                let moment = *self.last_moment.get_or_insert(now + LAST_REPLIES);
                let late = sleep(self.server.env(), moment.saturating_sub(now));
                match select(sending, pin!(late)).await {
                    Either::Left((sent, _)) => sent,
                    Either::Right(_) => return Err(Over),
                }
            }
            Either::Right(_) => return Err(Over),
        };
        self.out.reuse(sent?);
        self.session.client.note_output(0);
        Ok(())
    }

    /// Time that the client has to take the last of its replies, or the end.
    fn time_for_last_replies(&self) -> Duration {
        let left = self.last_moment.map(|moment| moment.saturating_sub(self.server.env().now()));
        left.unwrap_or(LAST_REPLIES)
    }
}

/// Number of requests that run ahead, or with one commit, if their replies are as expected.
fn at_once(expected: &Cell<usize>) -> usize {
    (REPLIES_AHEAD / expected.get().max(1)).clamp(1, WINDOW)
}

/// Has replies be expected that are as long as one that has come; shorter ones only after many.
fn expect(expected: &Cell<usize>, length: usize) {
    let before = expected.get();
    expected.set(length.max(before - before.div_ceil(8)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_requests_run_ahead_of_large_replies() {
        let expected = Cell::new(FIRST_EXPECTED);
        assert_eq!(at_once(&expected), 16);
        (0..32).for_each(|_| expect(&expected, 5));
        assert_eq!(at_once(&expected), WINDOW);
        expect(&expected, 20 << 20);
        assert_eq!(at_once(&expected), 1);
        expect(&expected, 5);
        assert_eq!(at_once(&expected), 1);
    }
}
