//! The clients that are connected: their number, CLIENT LIST and CLIENT KILL.
//!
//! Lock: the list's mutex is held for a look-up or a copy; a client's own for its names.

use super::bell::Bell;
use super::mailbox::{Mailbox, OutputLimit};
use super::pubsub::{PubSub, Space, Subscriptions};
use crate::resp::Protocol;
use event_listener::Event;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

/// The connected clients, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    list: Mutex<BTreeMap<u64, Arc<Client>>>,
    last_id: AtomicU64,
    /// Notified when a client leaves.
    left: Event,
    pubsub: PubSub,
}

/// The part of a client that other connections see.
#[derive(Debug)]
pub(crate) struct Client {
    /// Its number, never used twice.
    pub(crate) id: u64,
    /// Where it is.
    pub(crate) peer: SocketAddr,
    /// The address that it connected to.
    pub(crate) local: SocketAddr,
    /// Rung to end the connection; woken when the mailbox gets something.
    pub(crate) end: Bell,
    /// Pushes that its connection has not taken yet.
    pub(crate) mailbox: Mailbox,
    pub(super) subscriptions: Subscriptions,
    /// One of [`FREE`], [`BLOCKED`], [`BY_TIMEOUT`] and [`BY_ERROR`].
    block: AtomicU8,
    /// Environment's monotonic time when it connected.
    since: Duration,
    /// Environment's monotonic time of its last command, in nanoseconds.
    last_seen: AtomicU64,
    db: AtomicU16,
    /// Number of queued commands; -1 outside of a transaction.
    queued: AtomicI64,
    /// Number of watched keys.
    watched: AtomicU64,
    is_resp3: AtomicBool,
    names: Mutex<Names>,
}

/// Its command does not wait.
const FREE: u8 = 0;
/// Its command waits.
const BLOCKED: u8 = 1;
/// CLIENT UNBLOCK has ended the wait, as a timeout does.
const BY_TIMEOUT: u8 = 2;
/// CLIENT UNBLOCK has ended the wait with an error.
const BY_ERROR: u8 = 3;

#[derive(Debug, Default)]
struct Names {
    name: Vec<u8>,
    library: Vec<u8>,
    library_version: Vec<u8>,
    last_command: &'static str,
}

/// A connected client; dropping it takes the client off the list.
pub(crate) struct Connected<'a> {
    clients: &'a Clients,
    /// The client.
    pub(crate) client: Arc<Client>,
}

impl Drop for Connected<'_> {
    fn drop(&mut self) {
        if self.client.is_subscribed() {
            self.clients.pubsub.leave(&self.client);
        }
        self.clients.list.lock().remove(&self.client.id);
        self.clients.left.notify(usize::MAX);
    }
}

impl Clients {
    /// Adds a client, unless there are `at_most` already.
    pub(crate) fn add(
        &self,
        peer: SocketAddr,
        local: SocketAddr,
        now: Duration,
        at_most: usize,
    ) -> Option<Connected<'_>> {
        let mut list = self.list.lock();
        if list.len() >= at_most {
            return None;
        }
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let client = Arc::new(Client {
            id,
            peer,
            local,
            end: Bell::default(),
            mailbox: Mailbox::default(),
            subscriptions: Subscriptions::default(),
            block: AtomicU8::new(FREE),
            since: now,
            last_seen: AtomicU64::new(now.as_nanos() as u64),
            db: AtomicU16::new(0),
            queued: AtomicI64::new(-1),
            watched: AtomicU64::new(0),
            is_resp3: AtomicBool::new(false),
            names: Mutex::default(),
        });
        list.insert(id, client.clone());
        Some(Connected { clients: self, client })
    }

    pub(crate) fn count(&self) -> usize {
        self.list.lock().len()
    }

    /// Clients whose connections are not being ended, by their numbers.
    pub(crate) fn all(&self) -> Vec<Arc<Client>> {
        self.list.lock().values().filter(|client| !client.end.is_rung()).cloned().collect()
    }

    /// Number of clients whose commands wait.
    pub(crate) fn blocked(&self) -> usize {
        self.list.lock().values().filter(|client| client.is_blocked()).count()
    }

    /// The subscriptions of all clients.
    pub(crate) fn pubsub(&self) -> &PubSub {
        &self.pubsub
    }

    /// Waits until no client is connected.
    pub(crate) async fn all_gone(&self) {
        while self.count() > 0 {
            let listener = self.left.listen();
            if self.count() > 0 {
                listener.await;
            }
        }
    }
}

impl Client {
    /// Puts a push, whose bytes are those of RESP3, into its mailbox. Ends its connection if that
    /// has too much in it.
    pub(crate) fn push(&self, bytes: &[u8], limit: &OutputLimit, now: Duration) {
        let (mark, rest) = bytes.split_at(bytes.len().min(1));
        let mark = if self.is_resp3.load(Ordering::Relaxed) { mark } else { b"*" };
        self.post([mark, rest], limit, now);
    }

    /// Puts bytes as they are into its mailbox, as [`push`](Self::push) does.
    pub(crate) fn post(&self, parts: [&[u8]; 2], limit: &OutputLimit, now: Duration) {
        match self.mailbox.put(parts, limit, now) {
            true => self.end.wake(),
            false => self.end.ring(),
        }
    }

    /// Notes that its command waits.
    pub(crate) fn block(&self) {
        self.block.store(BLOCKED, Ordering::SeqCst);
    }

    fn is_blocked(&self) -> bool {
        self.block.load(Ordering::SeqCst) == BLOCKED
    }

    /// Ends the wait of its command. Returns false if it does not wait.
    pub(crate) fn unblock(&self, by_error: bool) -> bool {
        let by = if by_error { BY_ERROR } else { BY_TIMEOUT };
        let was_blocked = self.block.compare_exchange(BLOCKED, by, Ordering::SeqCst, Ordering::SeqCst);
        self.end.wake();
        was_blocked.is_ok()
    }

    /// True once CLIENT UNBLOCK has ended the wait of its command.
    pub(crate) fn is_unblocked(&self) -> bool {
        self.block.load(Ordering::SeqCst) > BLOCKED
    }

    /// Ends the wait of its command because that has something to commit. Returns false if
    /// [`unblock`](Self::unblock) was first, or the connection is being ended.
    pub(crate) fn claim(&self) -> bool {
        !self.end.is_rung()
            && self.block.compare_exchange(BLOCKED, FREE, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Ends the wait of its command. Returns true if that gets an error.
    pub(crate) fn unblocked_by_error(&self) -> bool {
        self.block.swap(FREE, Ordering::SeqCst) == BY_ERROR
    }

    /// True if it has a subscription of any kind.
    pub(crate) fn is_subscribed(&self) -> bool {
        [Space::Channels, Space::Patterns, Space::Shards].iter().any(|space| self.subscribed(*space) > 0)
    }

    /// Number of its subscriptions of a kind.
    pub(crate) fn subscribed(&self, space: Space) -> usize {
        self.subscriptions.count(space)
    }

    /// Memory of its subscriptions, in bytes.
    pub(crate) fn subscribed_bytes(&self) -> usize {
        self.subscriptions.bytes()
    }

    /// Its properties as CLIENT LIST has them, a letter each.
    fn flags(&self) -> String {
        let is_queueing = self.queued.load(Ordering::Relaxed) >= 0;
        let all = [('P', self.is_subscribed()), ('x', is_queueing), ('b', self.is_blocked())];
        let flags: String = all.iter().filter(|(_, has)| *has).map(|(flag, _)| *flag).collect();
        if flags.is_empty() { "N".to_owned() } else { flags }
    }

    /// Notes that it has sent a command.
    pub(crate) fn note_command(&self, name: &'static str, now: Duration) {
        self.last_seen.store(now.as_nanos() as u64, Ordering::Relaxed);
        self.names.lock().last_command = name;
    }

    pub(crate) fn note_db(&self, db: u16) {
        self.db.store(db, Ordering::Relaxed);
    }

    /// Notes how many commands a transaction has queued, if there is one, and how many keys are
    /// watched.
    pub(crate) fn note_transaction(&self, queued: Option<usize>, watched: usize) {
        self.queued.store(queued.map_or(-1, |queued| queued as i64), Ordering::Relaxed);
        self.watched.store(watched as u64, Ordering::Relaxed);
    }

    pub(crate) fn note_protocol(&self, protocol: Protocol) {
        self.is_resp3.store(protocol == Protocol::Three, Ordering::Relaxed);
    }

    /// The name that it has given itself; empty without one.
    pub(crate) fn name(&self) -> Vec<u8> {
        self.names.lock().name.clone()
    }

    pub(crate) fn set_name(&self, name: Vec<u8>) {
        self.names.lock().name = name;
    }

    /// Sets name (`false`) or version (`true`) of its library.
    pub(crate) fn set_library(&self, is_version: bool, text: Vec<u8>) {
        let mut names = self.names.lock();
        match is_version {
            true => names.library_version = text,
            false => names.library = text,
        }
    }

    /// Its line in CLIENT LIST, in Redis' form, without the line break. Redis' sizes of buffers are
    /// left out, because they are not kept.
    pub(crate) fn line(&self, now: Duration) -> String {
        let names = self.names.lock();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let protocol = if self.is_resp3.load(Ordering::Relaxed) { 3 } else { 2 };
        let mut line = String::new();
        let _never_fails = write!(
            line,
            "id={} addr={} laddr={} fd=-1 name={} age={} idle={} flags={} db={} sub={} psub={} ssub={} \
             multi={} watch={} cmd={} user=default redir=-1 resp={protocol} lib-name={} lib-ver={}",
            self.id,
            self.peer,
            self.local,
            text(&names.name),
            now.saturating_sub(self.since).as_secs(),
            now.as_nanos().saturating_sub(self.last_seen.load(Ordering::Relaxed).into()) / 1_000_000_000,
            self.flags(),
            self.db.load(Ordering::Relaxed),
            self.subscribed(Space::Channels),
            self.subscribed(Space::Patterns),
            self.subscribed(Space::Shards),
            self.queued.load(Ordering::Relaxed),
            self.watched.load(Ordering::Relaxed),
            if names.last_command.is_empty() { "NULL" } else { names.last_command },
            text(&names.library),
            text(&names.library_version),
        );
        line
    }
}
