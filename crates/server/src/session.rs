//! State of one client: its database, protocol, authentication, transaction and watched keys.
//!
//! A session belongs to the thread of its connection. Handlers that run at the same time share it,
//! so that its parts are cells; only commands that run alone change it. The part that other
//! connections see (CLIENT LIST, CLIENT KILL) is its [`Client`].

use crate::resp::{Protocol, Request};
use crate::server::Client;
use crate::store::{Key, Watch};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

/// State of one client.
pub(crate) struct Session {
    /// The part that other connections see.
    pub(crate) client: Arc<Client>,
    db: Cell<u16>,
    protocol: Cell<Protocol>,
    is_authenticated: Cell<bool>,
    closes: Cell<bool>,
    /// Which replies are sent (CLIENT REPLY).
    pub(crate) replies: Cell<Replies>,
    /// Commands queued since MULTI.
    pub(crate) transaction: RefCell<Option<Transaction>>,
    /// Keys of WATCH. Ordered, because a simulation repeats the order in which they are unwatched.
    pub(crate) watched: RefCell<BTreeMap<Key, Watch>>,
    /// True while EXEC runs the commands of the transaction.
    is_in_exec: Cell<bool>,
    /// Memory of queued commands and watched keys since both were empty, in bytes.
    held: Cell<usize>,
}

/// Which replies a client gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replies {
    /// All.
    On,
    /// None.
    Off,
    /// Not that of CLIENT REPLY SKIP itself, nor the next one.
    SkipNext,
    /// Not the one of the command that runs.
    Skip,
}

/// Commands between MULTI and EXEC.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    /// The commands, in order.
    pub(crate) queued: Vec<Request>,
    /// A command was refused when it was to be queued, so that EXEC refuses all.
    pub(crate) is_refused: bool,
}

impl Session {
    /// State of a new client, in database 0 with RESP2.
    pub(crate) fn new(client: Arc<Client>, is_authenticated: bool) -> Self {
        Self {
            client,
            db: Cell::new(0),
            protocol: Cell::default(),
            is_authenticated: Cell::new(is_authenticated),
            closes: Cell::new(false),
            replies: Cell::new(Replies::On),
            transaction: RefCell::default(),
            watched: RefCell::default(),
            is_in_exec: Cell::new(false),
            held: Cell::new(0),
        }
    }

    /// Makes it as [`new`](Self::new) does, for RESET.
    pub(crate) fn reset(&self, is_authenticated: bool) {
        self.select(0);
        self.set_protocol(Protocol::Two);
        self.is_authenticated.set(is_authenticated);
        self.replies.set(Replies::On);
        self.transaction.take();
        self.unwatch();
        self.client.set_name(Vec::new());
    }

    /// Number of its database.
    pub(crate) fn db(&self) -> u16 {
        self.db.get()
    }

    pub(crate) fn select(&self, db: u16) {
        self.db.set(db);
        self.client.note_db(db);
    }

    /// A key of its database.
    pub(crate) fn key(&self, name: &[u8]) -> Key {
        Key { db: self.db(), name: name.to_vec() }
    }

    pub(crate) fn protocol(&self) -> Protocol {
        self.protocol.get()
    }

    pub(crate) fn set_protocol(&self, protocol: Protocol) {
        self.protocol.set(protocol);
        self.client.note_protocol(protocol);
    }

    pub(crate) fn is_authenticated(&self) -> bool {
        self.is_authenticated.get()
    }

    pub(crate) fn set_authenticated(&self) {
        self.is_authenticated.set(true);
    }

    /// True between MULTI and EXEC.
    pub(crate) fn is_in_transaction(&self) -> bool {
        self.transaction.borrow().is_some()
    }

    /// True while EXEC runs the commands of the transaction.
    pub(crate) fn is_in_exec(&self) -> bool {
        self.is_in_exec.get()
    }

    pub(crate) fn set_in_exec(&self, is_so: bool) {
        self.is_in_exec.set(is_so);
    }

    /// Notes that it is about to hold these arguments, of a command to queue or as a key to watch.
    /// Returns false if it would hold more than `at_most` bytes: it is to hold nothing any more.
    pub(crate) fn hold(&self, args: &[Vec<u8>], at_most: usize) -> bool {
        if self.transaction.borrow().as_ref().is_none_or(|it| it.queued.is_empty())
            && self.watched.borrow().is_empty()
        {
            self.held.set(0);
        }
        let bytes = args.iter().map(|argument| argument.len() + size_of::<Vec<u8>>()).sum();
        self.held.set(self.held.get().saturating_add(bytes));
        self.held.get() <= at_most
    }

    /// Tells the other connections what of its state they see.
    pub(crate) fn tell_state(&self) {
        let queued = self.transaction.borrow().as_ref().map(|transaction| transaction.queued.len());
        self.client.note_transaction(queued, self.watched.borrow().len());
    }

    /// Makes EXEC refuse the transaction, if there is one.
    pub(crate) fn refuse_transaction(&self) {
        if let Some(transaction) = self.transaction.borrow_mut().as_mut() {
            transaction.is_refused = true;
        }
    }

    /// Watches no key any more.
    pub(crate) fn unwatch(&self) {
        self.watched.take();
    }

    /// True once the connection is to be closed after the replies so far.
    pub(crate) fn closes(&self) -> bool {
        self.closes.get()
    }

    pub(crate) fn close(&self) {
        self.closes.set(true);
    }
}
