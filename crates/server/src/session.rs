//! State of one client: its database, protocol, authentication, transaction and watched keys.
//!
//! A session belongs to the thread of its connection. Handlers that run at the same time share it,
//! so that its parts are cells; only commands that run alone change it. The part that other
//! connections see (CLIENT LIST, CLIENT KILL) is its [`Client`].

use crate::resp::{Protocol, Request};
use crate::server::{Client, Mode, User};
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
    /// The user, which is that of `client`.
    user: RefCell<Arc<User>>,
    /// It has authenticated itself, or the default user was open when it connected.
    has_authenticated: Cell<bool>,
    closes: Cell<bool>,
    /// Which replies are sent (CLIENT REPLY).
    pub(crate) replies: Cell<Replies>,
    /// Commands queued since MULTI.
    pub(crate) transaction: RefCell<Option<Transaction>>,
    /// Keys of WATCH. Ordered, because a simulation repeats the order in which they are unwatched.
    pub(crate) watched: RefCell<BTreeMap<Key, Watch>>,
    /// True while EXEC runs the commands of the transaction.
    is_in_exec: Cell<bool>,
    /// True if CLIENT CACHING is for the next command or transaction.
    pub(crate) caching: Cell<bool>,
    /// It is the session of a script, which the client's one does not see.
    is_script: bool,
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
    pub(crate) fn new(client: Arc<Client>) -> Self {
        let user = client.user();
        Self {
            has_authenticated: Cell::new(user.is_open()),
            user: RefCell::new(user),
            client,
            db: Cell::new(0),
            protocol: Cell::default(),
            closes: Cell::new(false),
            replies: Cell::new(Replies::On),
            transaction: RefCell::default(),
            watched: RefCell::default(),
            is_in_exec: Cell::new(false),
            caching: Cell::new(false),
            is_script: false,
            held: Cell::new(0),
        }
    }

    /// State of a script that the client runs: it begins in the client's database with the client's
    /// rights, and what it changes ends with it.
    pub(crate) fn of_script(&self) -> Self {
        let session = Self::new(self.client.clone());
        session.db.set(self.db());
        session.caching.set(self.caching.get());
        session.is_in_exec.set(true);
        Self {
            user: RefCell::new(self.user()),
            has_authenticated: Cell::new(true),
            is_script: true,
            ..session
        }
    }

    /// True for the state of a script.
    pub(crate) fn is_script(&self) -> bool {
        self.is_script
    }

    /// Makes it as [`new`](Self::new) does, for RESET, with the default user.
    pub(crate) fn reset(&self, user: &Arc<User>) {
        self.select(0);
        self.set_protocol(Protocol::Two);
        self.set_user(user.clone(), user.is_open());
        self.replies.set(Replies::On);
        self.caching.set(false);
        self.transaction.take();
        self.unwatch();
        self.client.set_kept(false);
        self.client.set_name(Vec::new());
    }

    /// Number of its database.
    pub(crate) fn db(&self) -> u16 {
        self.db.get()
    }

    pub(crate) fn select(&self, db: u16) {
        self.db.set(db);
        if !self.is_script {
            self.client.note_db(db);
        }
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

    /// True if it may send commands that need authentication. A client that has not authenticated
    /// itself is the default user, which may need none by now.
    pub(crate) fn is_authenticated(&self) -> bool {
        self.has_authenticated.get() || self.user.borrow().is_open()
    }

    /// True once it has authenticated itself.
    pub(crate) fn has_authenticated(&self) -> bool {
        self.has_authenticated.get()
    }

    pub(crate) fn user(&self) -> Arc<User> {
        self.user.borrow().clone()
    }

    /// True if its user may do all, so that nothing needs to be checked.
    pub(crate) fn is_unrestricted(&self) -> bool {
        self.user.borrow().is_unrestricted()
    }

    pub(crate) fn set_user(&self, user: Arc<User>, has_authenticated: bool) {
        self.client.set_user(user.clone());
        self.user.replace(user);
        self.has_authenticated.set(has_authenticated);
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
        let watched = self.watched.borrow().len();
        let is_empty = queued.is_none_or(|queued| queued == 0) && watched == 0;
        self.client.note_transaction(queued, watched, if is_empty { 0 } else { self.held.get() });
    }

    /// Makes EXEC refuse the transaction, if there is one.
    pub(crate) fn refuse_transaction(&self) {
        if let Some(transaction) = self.transaction.borrow_mut().as_mut() {
            transaction.is_refused = true;
        }
    }

    /// True if keys that the client reads may be noted.
    pub(crate) fn tracks(&self) -> bool {
        let mode = self.client.tracking();
        mode.has(Mode::ON) && !mode.has(Mode::BROADCAST)
    }

    /// True if the keys that the next command reads are noted, so that the client is told of their
    /// changes.
    pub(crate) fn is_tracking(&self) -> bool {
        let mode = self.client.tracking();
        self.tracks()
            && (!mode.has(Mode::OPT_IN) || self.caching.get())
            && (!mode.has(Mode::OPT_OUT) || !self.caching.get())
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
        self.client.leave();
        self.closes.set(true);
    }
}
