//! A connected client, as far as other connections see it: CLIENT LIST, pushes, CLIENT UNBLOCK.
//!
//! Lock: the mutex of its names, for a copy.

use super::bell::Bell;
use super::client_memory::{Charge, ClientMemory};
use super::mailbox::{Mailbox, OutputLimit};
use super::subscriptions::{Space, Subscriptions};
use super::users::User;
use crate::resp::Protocol;
use parking_lot::Mutex;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

/// The part of a client that other connections see.
#[derive(Debug)]
pub(crate) struct Client {
    /// Its number, never used twice.
    pub(crate) id: u64,
    /// Address of the client.
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
    /// Memory of queued commands and watched keys, in bytes.
    held: AtomicU64,
    /// Bytes that were received and are not carried out.
    input: AtomicU64,
    /// Bytes of replies that are being sent.
    output: AtomicU64,
    /// Memory of it that is counted with that of all.
    charge: Charge,
    /// It is not disconnected for its memory.
    is_kept: AtomicBool,
    is_resp3: AtomicBool,
    is_monitor: AtomicBool,
    /// Its commands wait for the end of CLIENT PAUSE.
    is_paused: AtomicBool,
    /// Its connection waits for its next command.
    is_receiving: AtomicBool,
    /// True once its connection is to be closed behind its replies.
    is_leaving: AtomicBool,
    /// Bits of a [`Mode`], which is that of no tracking before CLIENT TRACKING ON.
    tracking: AtomicU8,
    /// Number of the client that gets its invalidations; 0: itself.
    tracking_redirect: AtomicU64,
    names: Mutex<Names>,
}

/// Properties of a tracking client, as bits of its [`Client`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mode(u8);

impl Mode {
    pub(crate) const ON: Self = Self(1);
    /// It gets invalidations of all keys with its prefixes, read or not.
    pub(crate) const BROADCAST: Self = Self(2);
    /// Only reads behind CLIENT CACHING YES are noted.
    pub(crate) const OPT_IN: Self = Self(4);
    /// Reads behind CLIENT CACHING NO are not noted.
    pub(crate) const OPT_OUT: Self = Self(8);
    /// It is not told of its own writes.
    pub(crate) const NO_LOOP: Self = Self(16);
    /// The client that it redirects to has gone.
    pub(crate) const BROKEN: Self = Self(32);

    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) const fn has(self, part: Self) -> bool {
        self.0 & part.0 != 0
    }
}

/// Its command does not wait.
const FREE: u8 = 0;
/// Its command waits.
const BLOCKED: u8 = 1;
/// CLIENT UNBLOCK has ended the wait, as a timeout does.
const BY_TIMEOUT: u8 = 2;
/// CLIENT UNBLOCK has ended the wait with an error.
const BY_ERROR: u8 = 3;

#[derive(Debug)]
struct Names {
    user: Arc<User>,
    name: Vec<u8>,
    library: Vec<u8>,
    library_version: Vec<u8>,
    last_command: &'static str,
}

impl Client {
    pub(super) fn new(
        id: u64,
        (peer, local): (SocketAddr, SocketAddr),
        user: Arc<User>,
        memory: Arc<ClientMemory>,
        now: Duration,
    ) -> Self {
        let names = Names {
            user,
            name: Vec::new(),
            library: Vec::new(),
            library_version: Vec::new(),
            last_command: "",
        };
        Self {
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
            held: AtomicU64::new(0),
            input: AtomicU64::new(0),
            output: AtomicU64::new(0),
            charge: Charge::new(memory),
            is_kept: AtomicBool::new(false),
            is_resp3: AtomicBool::new(false),
            is_monitor: AtomicBool::new(false),
            is_paused: AtomicBool::new(false),
            is_receiving: AtomicBool::new(false),
            is_leaving: AtomicBool::new(false),
            tracking: AtomicU8::new(0),
            tracking_redirect: AtomicU64::new(0),
            names: Mutex::new(names),
        }
    }

    /// Puts a push, whose bytes are those of RESP3, into its mailbox. Ends its connection if that
    /// has too much in it.
    pub(crate) fn push(&self, bytes: &[u8], limit: &OutputLimit, now: Duration) {
        let (mark, rest) = bytes.split_at(bytes.len().min(1));
        let mark = if self.is_resp3() { mark } else { b"*" };
        self.post([mark, rest], limit, now);
    }

    /// Puts bytes as they are into its mailbox, as [`push`](Self::push) does.
    pub(crate) fn post(&self, parts: [&[u8]; 2], limit: &OutputLimit, now: Duration) {
        match self.mailbox.put(parts, limit, now) {
            true => self.end.wake(),
            false => self.end.ring(),
        }
        self.charge.set(self.memory());
    }

    /// Notes whether it sees the commands of all. Returns what was.
    pub(super) fn set_monitor(&self, is_so: bool) -> bool {
        self.is_monitor.swap(is_so, Ordering::SeqCst)
    }

    /// Mode of CLIENT TRACKING.
    pub(crate) fn tracking(&self) -> Mode {
        Mode(self.tracking.load(Ordering::Relaxed))
    }

    pub(crate) fn tracking_redirect(&self) -> u64 {
        self.tracking_redirect.load(Ordering::Relaxed)
    }

    pub(super) fn set_tracking(&self, mode: Mode, redirect: u64) {
        self.tracking_redirect.store(redirect, Ordering::Relaxed);
        self.tracking.store(mode.0, Ordering::Relaxed);
    }

    pub(super) fn set_tracking_broken(&self) {
        self.tracking.fetch_or(Mode::BROKEN.0, Ordering::Relaxed);
    }

    pub(crate) fn is_resp3(&self) -> bool {
        self.is_resp3.load(Ordering::Relaxed)
    }

    /// Notes that its connection is to be closed behind its replies.
    pub(crate) fn leave(&self) {
        self.is_leaving.store(true, Ordering::SeqCst);
    }

    /// True if its connection is being ended, or is to be.
    pub(super) fn is_leaving(&self) -> bool {
        self.end.is_rung() || self.is_leaving.load(Ordering::SeqCst)
    }

    /// Notes that its command waits.
    pub(crate) fn block(&self) {
        self.block.store(BLOCKED, Ordering::SeqCst);
    }

    pub(super) fn is_blocked(&self) -> bool {
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
        Space::ALL.iter().any(|space| self.subscribed(*space) > 0)
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
        let is_monitor = self.is_monitor.load(Ordering::Relaxed);
        let tracking = self.tracking();
        let all = [
            ('O', is_monitor),
            ('P', self.is_subscribed()),
            ('x', is_queueing),
            ('b', self.is_blocked()),
            ('t', tracking.has(Mode::ON)),
            ('R', tracking.has(Mode::BROKEN)),
            ('B', tracking.has(Mode::BROADCAST)),
            ('e', self.is_kept()),
        ];
        let flags: String = all.iter().filter(|(_, has)| *has).map(|(flag, _)| *flag).collect();
        if flags.is_empty() { "N".to_owned() } else { flags }
    }

    /// Notes that it has sent a command.
    pub(crate) fn note_command(&self, name: &'static str, now: Duration) {
        self.last_seen.store(now.as_nanos() as u64, Ordering::Relaxed);
        self.names.lock().last_command = name;
    }

    /// Notes whether its connection waits for its next command.
    pub(crate) fn set_receiving(&self, is_so: bool) {
        self.is_receiving.store(is_so, Ordering::Relaxed);
    }

    /// True if it has sent no command for a time, and waits for nothing.
    pub(crate) fn is_idle(&self, now: Duration, time: Duration) -> bool {
        let since = Duration::from_nanos(self.last_seen.load(Ordering::Relaxed));
        let waits = !self.is_receiving.load(Ordering::Relaxed)
            || self.is_subscribed()
            || self.is_monitor.load(Ordering::Relaxed);
        !waits && now.saturating_sub(since) > time
    }

    pub(crate) fn note_db(&self, db: u16) {
        self.db.store(db, Ordering::Relaxed);
    }

    /// Notes how many commands a transaction has queued, if there is one, how many keys are
    /// watched, and the memory of both in bytes.
    pub(crate) fn note_transaction(&self, queued: Option<usize>, watched: usize, held: usize) {
        self.held.store(held as u64, Ordering::Relaxed);
        self.queued.store(queued.map_or(-1, |queued| queued as i64), Ordering::Relaxed);
        self.watched.store(watched as u64, Ordering::Relaxed);
    }

    /// Notes how many bytes were received and are not carried out.
    pub(crate) fn note_input(&self, bytes: usize) {
        self.input.store(bytes as u64, Ordering::Relaxed);
        self.charge.set(self.memory());
    }

    /// Notes how many bytes of replies are being sent.
    pub(crate) fn note_output(&self, bytes: usize) {
        self.output.store(bytes as u64, Ordering::Relaxed);
        self.charge.set(self.memory());
    }

    /// Memory of its requests, its transaction, its replies and its pushes, in bytes.
    fn memory(&self) -> u64 {
        let of_requests = self.input.load(Ordering::Relaxed) + self.held.load(Ordering::Relaxed);
        of_requests + self.output.load(Ordering::Relaxed) + self.mailbox.size() as u64
    }

    /// Memory that is counted with that of all clients, in bytes.
    pub(super) fn counted_memory(&self) -> u64 {
        self.charge.bytes()
    }

    /// Counts no memory of it from now on.
    pub(super) fn close_charge(&self) {
        self.charge.close();
    }

    /// Sets CLIENT NO-EVICT: an eviction does not disconnect the client while it is on.
    pub(crate) fn set_kept(&self, is_kept: bool) {
        self.is_kept.store(is_kept, Ordering::Relaxed);
    }

    pub(super) fn is_kept(&self) -> bool {
        self.is_kept.load(Ordering::Relaxed)
    }

    pub(crate) fn note_protocol(&self, protocol: Protocol) {
        self.is_resp3.store(protocol == Protocol::Three, Ordering::Relaxed);
    }

    /// The name that it has given itself; empty without one.
    pub(crate) fn name(&self) -> Vec<u8> {
        self.names.lock().name.clone()
    }

    /// The user that it is.
    pub(crate) fn user(&self) -> Arc<User> {
        self.names.lock().user.clone()
    }

    pub(crate) fn set_user(&self, user: Arc<User>) {
        self.names.lock().user = user;
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

    /// Notes whether its commands wait for the end of a pause.
    pub(crate) fn note_paused(&self, is_paused: bool) {
        self.is_paused.store(is_paused, Ordering::Relaxed);
    }

    /// True while its commands wait for the end of a pause.
    pub(crate) fn is_paused(&self) -> bool {
        self.is_paused.load(Ordering::Relaxed)
    }

    /// Time since it connected.
    pub(crate) fn age(&self, now: Duration) -> Duration {
        now.saturating_sub(self.since)
    }

    /// Its line in CLIENT LIST, in Redis' form, without the line break. Of Redis' sizes of buffers
    /// there are those that are kept.
    pub(crate) fn line(&self, now: Duration) -> String {
        let names = self.names.lock();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let protocol = if self.is_resp3() { 3 } else { 2 };
        let (input, held) = (self.input.load(Ordering::Relaxed), self.held.load(Ordering::Relaxed));
        let output = self.output.load(Ordering::Relaxed) + self.mailbox.size() as u64;
        let redirect = match self.tracking().has(Mode::ON) {
            true => self.tracking_redirect().cast_signed(),
            false => -1,
        };
        let mut line = String::new();
        let _never_fails = write!(
            line,
            "id={} addr={} laddr={} fd=-1 name={} age={} idle={} flags={} db={} sub={} psub={} ssub={} \
             multi={} watch={} qbuf={input} multi-mem={held} omem={output} tot-mem={} cmd={} user={} redir={redirect} resp={protocol} lib-name={} lib-ver={}",
            self.id,
            self.peer,
            self.local,
            text(&names.name),
            self.age(now).as_secs(),
            now.as_nanos().saturating_sub(self.last_seen.load(Ordering::Relaxed).into()) / 1_000_000_000,
            self.flags(),
            self.db.load(Ordering::Relaxed),
            self.subscribed(Space::Channels),
            self.subscribed(Space::Patterns),
            self.subscribed(Space::Shards),
            self.queued.load(Ordering::Relaxed),
            self.watched.load(Ordering::Relaxed),
            input + held + output,
            if names.last_command.is_empty() { "NULL" } else { names.last_command },
            text(&names.user.name),
            text(&names.library),
            text(&names.library_version),
        );
        line
    }
}
