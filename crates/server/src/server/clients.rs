//! The clients that are connected: their number, CLIENT LIST and CLIENT KILL.
//!
//! Lock: the mutexes of the list and of the monitors are held for a look-up or a copy.

use super::client::Client;
use super::client_memory::ClientMemory;
use super::pubsub::PubSub;
use super::tracking::Tracking;
use super::users::User;
use crate::store::Interests;
use crate::until::until;
use event_listener::Event;
use parking_lot::Mutex;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The connected clients, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    list: Mutex<BTreeMap<u64, Arc<Client>>>,
    last_id: AtomicU64,
    memory: Arc<ClientMemory>,
    /// Memory left by the last eviction, in bytes, if that is above the limit; 0 otherwise.
    kept: AtomicU64,
    /// Notified when a client leaves.
    left: Event,
    pubsub: PubSub,
    tracking: Tracking,
    /// The news that the server asks the store for.
    interests: Arc<Interests>,
    /// Clients of MONITOR.
    monitors: Mutex<Vec<Arc<Client>>>,
    has_monitors: AtomicBool,
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
        self.client.leave();
        self.client.close_charge();
        self.clients.remove_monitor(&self.client);
        self.clients.tracking.disable(&self.client, &self.clients.interests);
        self.clients.list.lock().remove(&self.client.id);
        self.clients.left.notify(usize::MAX);
    }
}

impl Clients {
    /// No clients yet, of a server that asks the store for these news.
    pub(super) fn new(interests: Arc<Interests>) -> Self {
        Self { interests, ..Self::default() }
    }

    /// Adds a client, unless there are `at_most` already.
    pub(crate) fn add(
        &self,
        peer: SocketAddr,
        local: SocketAddr,
        user: &Arc<User>,
        now: Duration,
        at_most: usize,
    ) -> Option<Connected<'_>> {
        let mut list = self.list.lock();
        if list.len() >= at_most {
            return None;
        }
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let client = Arc::new(Client::new(id, (peer, local), user.clone(), self.memory.clone(), now));
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

    /// The client of this number, unless its connection is being ended.
    pub(crate) fn find(&self, id: u64) -> Option<Arc<Client>> {
        self.list.lock().get(&id).filter(|client| !client.is_leaving()).cloned()
    }

    /// Memory of all clients together.
    pub(crate) fn memory(&self) -> &ClientMemory {
        &self.memory
    }

    /// Disconnects the clients with the most memory until all others have at most `limit` bytes
    /// together, or only clients with CLIENT NO-EVICT are left. Returns the number of disconnected
    /// clients.
    pub(super) fn evict(&self, limit: u64) -> u64 {
        let mut all = self.all();
        all.retain(|client| !client.is_kept() && client.counted_memory() > 0);
        all.sort_by_cached_key(|client| Reverse(client.counted_memory()));
        let mut evicted = 0;
        for client in all {
            if self.memory.bytes() <= limit {
                break;
            }
            // It counts no more, so that no other is disconnected for memory that is about to be
            // free.
            client.close_charge();
            client.end.ring();
            evicted += 1;
        }
        let left = self.memory.bytes();
        self.kept.store(if left > limit { left } else { 0 }, Ordering::Relaxed);
        evicted
    }

    /// True if the memory of clients may be brought below `limit` bytes: false if it has not grown
    /// since an eviction that could not.
    pub(super) fn may_evict(&self, limit: u64) -> bool {
        self.memory.bytes() > limit.max(self.kept.load(Ordering::Relaxed))
    }

    /// Has [`may_evict`](Self::may_evict) forget the last eviction.
    pub(crate) fn forget_eviction(&self) {
        self.kept.store(0, Ordering::Relaxed);
    }

    /// Number of clients whose commands wait, also for the end of a pause.
    pub(crate) fn blocked(&self) -> usize {
        self.list.lock().values().filter(|client| client.is_blocked() || client.is_paused()).count()
    }

    /// Has a client see the commands of all.
    pub(crate) fn add_monitor(&self, client: &Arc<Client>) {
        let mut monitors = self.monitors.lock();
        if !client.set_monitor(true) {
            monitors.push(client.clone());
        }
        self.has_monitors.store(true, Ordering::SeqCst);
    }

    /// Ends what [`add_monitor`](Self::add_monitor) began.
    pub(crate) fn remove_monitor(&self, client: &Client) {
        if client.set_monitor(false) {
            let mut monitors = self.monitors.lock();
            monitors.retain(|other| other.id != client.id);
            self.has_monitors.store(!monitors.is_empty(), Ordering::SeqCst);
        }
    }

    pub(crate) fn has_monitors(&self) -> bool {
        self.has_monitors.load(Ordering::Relaxed)
    }

    /// Calls `each` with every client of MONITOR. None is added or removed meanwhile, so that a
    /// client gets no line behind the end of its monitoring.
    pub(crate) fn each_monitor(&self, each: impl FnMut(&Arc<Client>)) {
        self.monitors.lock().iter().for_each(each);
    }

    /// The clients with CLIENT TRACKING.
    pub(crate) fn tracking(&self) -> &Tracking {
        &self.tracking
    }

    /// The subscriptions of all clients.
    pub(crate) fn pubsub(&self) -> &PubSub {
        &self.pubsub
    }

    /// Waits until no client is connected.
    pub(crate) async fn all_gone(&self) {
        until(&self.left, || self.count() == 0).await;
    }
}
