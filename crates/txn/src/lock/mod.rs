//! Locks on keys: holders, waiters, timeouts and deadlock detection.
//!
//! A transaction asks for a key, shared or exclusive, with a timeout. It gets the lock, or an
//! error: the timeout has passed, waiting would deadlock, or the limit of locks is reached.
//!
//! Invariants:
//! - A key is held by one transaction exclusively, or by any number of them shared.
//! - A waiter examines the lock and begins to listen under the stripe's mutex. A release changes
//!   the lock under that mutex and notifies afterwards, so no notification is missed.
//! - A transaction is in the wait-for graph exactly while it waits, and enters under the mutex
//!   under which it read the lock's holders. A release removes the waiters' edges to the holder
//!   under the same mutex.
//! - A wait holds no mutex, on a thread and on a task alike.
//!
//! Lock: a stripe's, then the graph's.

mod deadlock;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(test)]
mod tests;

pub use deadlock::{DeadlockInfo, DeadlockPath};

use crate::holder::Holder;
use crate::sync::Mutex;
use deadlock::{WaitGraph, Waiters};
use karst_engine::caller::Caller;
use karst_engine::io::{Env, Event, EventListener, sleep};
use karst_engine::perf_context::{self, PerfMetric};
use karst_engine::{Error, ErrorKind, Result, Shown};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::hash::{DefaultHasher, Hasher};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

/// A request for a lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) family: u32,
    pub(crate) key: &'a [u8],
    pub(crate) exclusive: bool,
    /// Longest wait; `None`: no limit.
    pub(crate) timeout: Option<Duration>,
    /// Maximum number of waiting transactions that deadlock detection visits; `None`: no detection.
    pub(crate) detect_depth: Option<usize>,
}

/// A lock that is held.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockStatus {
    /// The key's column family, by id.
    pub family: u32,
    /// The key.
    pub key: Vec<u8>,
    /// Ids of the holders.
    pub transactions: Vec<u64>,
    /// True if the lock is held exclusively.
    pub exclusive: bool,
}

#[derive(Debug)]
struct Lock {
    exclusive: bool,
    holders: Vec<Arc<Holder>>,
}

/// Trees rather than hash maps, because a stripe holds few keys at a time, and a database has few
/// families.
#[derive(Debug, Default)]
struct Stripe {
    keys: Mutex<BTreeMap<Box<[u8]>, Lock>>,
    /// Waiters of this stripe that are in the wait-for graph.
    detecting: Waiters,
    released: Event,
}

/// Locks on the keys of one column family.
#[derive(Debug)]
struct LockMap {
    stripes: Box<[Stripe]>,
    locked: AtomicU64,
}

/// All locks of a database.
#[derive(Debug)]
pub(crate) struct Locks {
    env: Env,
    stripes: usize,
    /// Maximum number of locks on keys of one column family.
    most: Option<u64>,
    families: RwLock<BTreeMap<u32, Arc<LockMap>>>,
    /// Hasher seeded with the environment's random seed: the assignment of keys to stripes is
    /// unpredictable, but reproducible in a simulation.
    hashing: DefaultHasher,
    graph: WaitGraph,
}

/// Result of one attempt at a lock.
enum Look {
    Granted,
    TooMany,
    /// Held by others; the earliest of their expirations is `until`.
    Held {
        by: Vec<u64>,
        until: Option<Duration>,
    },
}

impl Locks {
    pub(crate) fn new(env: Env, stripes: usize, most: Option<u64>, deadlocks_kept: usize) -> Self {
        let mut hashing = DefaultHasher::new();
        hashing.write_u64(env.random_seed());
        Self {
            env,
            stripes: stripes.max(1),
            most,
            families: RwLock::default(),
            hashing,
            graph: WaitGraph::new(deadlocks_kept),
        }
    }

    fn map(&self, family: u32) -> Arc<LockMap> {
        if let Some(map) = self.families.read().get(&family) {
            return map.clone();
        }
        let new = || {
            let stripes = (0..self.stripes).map(|_| Stripe::default()).collect();
            Arc::new(LockMap { stripes, locked: AtomicU64::new(0) })
        };
        self.families.write().entry(family).or_insert_with(new).clone()
    }

    fn stripe<'a>(&self, map: &'a LockMap, key: &[u8]) -> &'a Stripe {
        let mut hasher = self.hashing.clone();
        hasher.write(key);
        &map.stripes[(hasher.finish() % map.stripes.len() as u64) as usize]
    }

    /// Takes a lock, or upgrades a shared one of `holder`. Dropped while it waits, it has taken no
    /// lock.
    ///
    /// # Errors
    /// `TimedOut`, `Deadlock` with the cycle, `LimitReached`.
    pub(crate) async fn lock(&self, by: Caller, holder: &Arc<Holder>, request: Request<'_>) -> Result<()> {
        let mut waits_since = None;
        let outcome = self.wait_for(by, holder, request, &mut waits_since).await;
        if let Some(since) = waits_since.filter(|_| request.timeout != Some(Duration::ZERO)) {
            perf_context::count(PerfMetric::KeyLockWaitCount, 1);
            if perf_context::timing() {
                let nanos = self.env.now().saturating_sub(since).as_nanos();
                perf_context::time(PerfMetric::KeyLockWaitTime, u64::try_from(nanos).unwrap_or(u64::MAX));
            }
        }
        outcome
    }

    /// Waits for the lock; sets `waits_since` to the time at which waiting began, if it had to
    /// wait.
    async fn wait_for(
        &self,
        by: Caller,
        holder: &Arc<Holder>,
        request: Request<'_>,
        waits_since: &mut Option<Duration>,
    ) -> Result<()> {
        let map = self.map(request.family);
        let stripe = self.stripe(&map, request.key);
        loop {
            let (listener, waiting, until) = {
                let mut keys = stripe.keys.lock();
                let (held_by, until) = match self.look(&map, stripe, &mut keys, holder, &request) {
                    Look::Granted => return Ok(()),
                    Look::TooMany => return Err(self.too_many(&request)),
                    Look::Held { by, until } => (by, until),
                };
                // Read only now because a free lock needs no clock.
                let now = self.env.now();
                let since = *waits_since.get_or_insert(now);
                let deadline = request.timeout.map(|timeout| since.saturating_add(timeout));
                if deadline.is_some_and(|deadline| deadline <= now) {
                    return Err(timed_out(&request, &held_by));
                }
                let waiting = match request.detect_depth {
                    Some(depth) => {
                        let (waiters, id) = (&stripe.detecting, holder.id);
                        Some(self.graph.enter(waiters, &self.env, id, held_by, &request, depth)?)
                    }
                    None => None,
                };
                let until = [deadline, until].into_iter().flatten().min();
                (stripe.released.listen(), waiting, until.map(|until| until.saturating_sub(now)))
            };
            by.wait(&self.env, self.rung(listener, until)).await;
            drop(waiting);
        }
    }

    /// Waits for a notification, for at most `at_most`.
    async fn rung(&self, listener: EventListener, at_most: Option<Duration>) {
        let Some(at_most) = at_most else { return listener.await };
        let (mut listener, mut alarm) = (pin!(listener), pin!(sleep(&self.env, at_most)));
        poll_fn(|cx| match listener.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => alarm.as_mut().poll(cx).map(drop),
        })
        .await;
    }

    fn look(
        &self,
        map: &LockMap,
        stripe: &Stripe,
        keys: &mut BTreeMap<Box<[u8]>, Lock>,
        holder: &Arc<Holder>,
        request: &Request<'_>,
    ) -> Look {
        let Some(lock) = keys.get_mut(request.key) else {
            // The limit is not exact: two concurrent requests may both find room for the last lock,
            // as in RocksDB.
            if self.most.is_some_and(|most| map.locked.load(Ordering::Relaxed) >= most) {
                return Look::TooMany;
            }
            map.locked.fetch_add(1, Ordering::Relaxed);
            let lock = Lock { exclusive: request.exclusive, holders: vec![holder.clone()] };
            keys.insert(request.key.into(), lock);
            return Look::Granted;
        };
        let is_mine = |other: &Arc<Holder>| other.id == holder.id;
        if !lock.exclusive && !request.exclusive {
            if !lock.holders.iter().any(is_mine) {
                lock.holders.push(holder.clone());
                self.graph.join(&stripe.detecting, holder.id, request.family, request.key);
            }
            return Look::Granted;
        }
        let others: Vec<Arc<Holder>> = lock.holders.iter().filter(|other| !is_mine(other)).cloned().collect();
        let mine = others.len() < lock.holders.len();
        let now = self.env.now();
        if others.iter().all(|other| other.is_expired(|| now)) && others.iter().all(|other| other.steal()) {
            // No notification is needed: waiters of the expired holders have a timer for the
            // expiration, or are notified when the locks can be stolen again (`look_again`), and
            // then find the new holder.
            for other in &others {
                self.graph.let_go(&stripe.detecting, other.id, request.family, request.key, false);
            }
            lock.holders = vec![holder.clone()];
            // An exclusive lock that it already has stays exclusive.
            lock.exclusive = request.exclusive || (mine && lock.exclusive);
            return Look::Granted;
        }
        let until = others.iter().filter_map(|other| other.expires_at()).filter(|at| *at > now).min();
        Look::Held { by: others.iter().map(|other| other.id).collect(), until }
    }

    /// Takes a lock exclusively beside any other holders and regardless of the limit, because a
    /// transaction prepared before a restart must keep its keys. Others get the lock once all
    /// holders have released it.
    pub(crate) fn hold(&self, holder: &Arc<Holder>, family: u32, key: &[u8]) {
        let map = self.map(family);
        let mut keys = self.stripe(&map, key).keys.lock();
        let lock = keys.entry(key.into()).or_insert_with(|| {
            map.locked.fetch_add(1, Ordering::Relaxed);
            Lock { exclusive: true, holders: Vec::new() }
        });
        lock.exclusive = true;
        if !lock.holders.iter().any(|other| other.id == holder.id) {
            lock.holders.push(holder.clone());
        }
    }

    /// Releases a lock, if `holder` has it (it may have been stolen).
    pub(crate) fn unlock(&self, holder: &Holder, family: u32, key: &[u8]) {
        let map = self.map(family);
        let stripe = self.stripe(&map, key);
        {
            let mut keys = stripe.keys.lock();
            let Some(lock) = keys.get_mut(key) else { return };
            let before = lock.holders.len();
            lock.holders.retain(|other| other.id != holder.id);
            if lock.holders.len() == before {
                return;
            }
            self.graph.let_go(&stripe.detecting, holder.id, family, key, false);
            if lock.holders.is_empty() {
                keys.remove(key);
                map.locked.fetch_sub(1, Ordering::Relaxed);
            }
        }
        stripe.released.notify(usize::MAX);
    }

    /// Makes an exclusive lock of `holder` a shared one.
    pub(crate) fn downgrade(&self, holder: &Holder, family: u32, key: &[u8]) {
        let map = self.map(family);
        let stripe = self.stripe(&map, key);
        if let Some(lock) = stripe.keys.lock().get_mut(key)
            && lock.holders.iter().any(|other| other.id == holder.id)
        {
            lock.exclusive = false;
            self.graph.let_go(&stripe.detecting, holder.id, family, key, true);
        }
        stripe.released.notify(usize::MAX);
    }

    /// Wakes the waiters of a lock whose expired holder has become one from which locks may be
    /// stolen.
    pub(crate) fn look_again(&self, family: u32, key: &[u8]) {
        let map = self.map(family);
        let stripe = self.stripe(&map, key);
        // Under the mutex, because a waiter that saw the holder's earlier state has begun to listen
        // by now, and later ones see the new state.
        drop(stripe.keys.lock());
        stripe.released.notify(usize::MAX);
    }

    /// Returns all locks that are held, each as of its own moment.
    pub(crate) fn status(&self) -> Vec<LockStatus> {
        let maps: Vec<(u32, Arc<LockMap>)> =
            self.families.read().iter().map(|(family, map)| (*family, map.clone())).collect();
        let mut all = Vec::new();
        for (family, map) in maps {
            for stripe in &map.stripes {
                all.extend(stripe.keys.lock().iter().map(|(key, lock)| LockStatus {
                    family,
                    key: key.to_vec(),
                    transactions: lock.holders.iter().map(|holder| holder.id).collect(),
                    exclusive: lock.exclusive,
                }));
            }
        }
        all
    }

    /// Returns the most recent deadlocks, newest first.
    pub(crate) fn deadlocks(&self) -> Vec<DeadlockPath> {
        self.graph.deadlocks()
    }

    pub(crate) fn keep_deadlocks(&self, most: usize) {
        self.graph.keep(most);
    }

    fn too_many(&self, request: &Request<'_>) -> Error {
        let most = self.most.unwrap_or_default();
        let text = format!("{most} keys of column family {} are locked, the most allowed", request.family);
        Error::new(ErrorKind::LimitReached, text)
    }
}

fn timed_out(request: &Request<'_>, held_by: &[u64]) -> Error {
    let (key, family) = (Shown(request.key), request.family);
    let waited = request.timeout.unwrap_or_default().as_millis();
    let text = format!(
        "a lock on key {key} of column family {family} was waited for {waited} ms; transactions {held_by:?} hold it"
    );
    Error::new(ErrorKind::TimedOut, text)
}
