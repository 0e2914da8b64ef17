//! The wait-for graph of transactions, and the search for cycles in it.
//!
//! A transaction that is about to wait enters the graph with the holders it would wait for, and
//! leaves when its guard is dropped. Entering fails with `Deadlock` and the cycle if the wait would
//! close one.
//!
//! Invariant: every edge leads from a transaction that waits now to one that holds the lock now.
//! The transaction that closes a cycle therefore finds it and alone gets the error, and no reported
//! cycle is false.

use super::Request;
use crate::sync::{AtomicUsize, Mutex, Ordering};
use karst_engine::io::Env;
use karst_engine::{Error, ErrorKind, Result, Shown};
use std::collections::{HashMap, VecDeque};
use std::fmt;

/// One transaction of a cycle: it waits for a lock that the next one holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadlockInfo {
    /// Id of the transaction.
    pub transaction: u64,
    /// Id of the column family of the key that it waits for.
    pub family: u32,
    /// Key that it waits for.
    pub waiting_key: Vec<u8>,
    /// True if it waits for the lock exclusively.
    pub exclusive: bool,
}

/// A cycle of transactions, each waiting for the next, and the last for the first.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadlockPath {
    /// The cycle. Begins with a transaction that the refused one would have waited for, and ends
    /// with the refused one. Empty if the limit was exceeded.
    pub path: Vec<DeadlockInfo>,
    /// More waiting transactions than `deadlock_detect_depth` were found; a deadlock was assumed.
    pub limit_exceeded: bool,
    /// Time of detection, in seconds since 1970.
    pub deadlock_time: u64,
}

impl fmt::Display for DeadlockPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.limit_exceeded {
            return f.write_str("more transactions wait for each other than deadlock_detect_depth allows");
        }
        for (index, info) in self.path.iter().enumerate() {
            let next = &self.path[(index + 1) % self.path.len()];
            let mode = if info.exclusive { "exclusive" } else { "shared" };
            write!(
                f,
                "{}transaction {} waits for {} (key {}, column family {}, {mode})",
                if index == 0 { "" } else { "; " },
                info.transaction,
                next.transaction,
                Shown(&info.waiting_key),
                info.family
            )?;
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Waiting {
    of: Vec<u64>,
    info: DeadlockInfo,
}

#[derive(Debug, Default)]
struct Graph {
    waiting: HashMap<u64, Waiting>,
    /// Deadlocks found, newest first, at most `kept`.
    found: VecDeque<DeadlockPath>,
    kept: usize,
}

/// The wait-for graph of a database.
#[derive(Debug)]
pub(super) struct WaitGraph {
    graph: Mutex<Graph>,
}

/// Number of transactions in the graph that wait for locks of one stripe; at 0 the graph need not
/// be locked.
///
/// Ordering: `Relaxed`, because it is incremented and read under the stripe's mutex, and
/// decremented only after the waiter has left the graph.
#[derive(Debug, Default)]
pub(super) struct Waiters(AtomicUsize);

impl Waiters {
    fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

/// Guard of a transaction's entry in the graph; leaves the graph when dropped.
#[derive(Debug)]
pub(super) struct InGraph<'a> {
    graph: &'a WaitGraph,
    waiters: &'a Waiters,
    transaction: u64,
}

impl Drop for InGraph<'_> {
    fn drop(&mut self) {
        self.graph.graph.lock().waiting.remove(&self.transaction);
        self.waiters.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl WaitGraph {
    pub(super) fn new(kept: usize) -> Self {
        Self { graph: Mutex::new(Graph { kept, ..Graph::default() }) }
    }

    /// Removes the edges to `holder`, which has released a lock or downgraded it to shared. Called
    /// under the stripe's mutex, before another transaction can see the change.
    ///
    /// Not left to the waiters, because `holder` may begin to wait for one of them before they have
    /// looked at the lock again.
    pub(super) fn let_go(
        &self,
        waiters: &Waiters,
        holder: u64,
        family: u32,
        key: &[u8],
        is_shared_now: bool,
    ) {
        if !waiters.any() {
            return;
        }
        for Waiting { of, info } in self.graph.lock().waiting.values_mut() {
            let is_held = is_shared_now && info.exclusive;
            if !is_held && info.family == family && info.waiting_key == key {
                of.retain(|other| *other != holder);
            }
        }
    }

    /// Adds edges from exclusive waiters to `holder`, which has joined a shared lock. Called under
    /// the stripe's mutex.
    pub(super) fn join(&self, waiters: &Waiters, holder: u64, family: u32, key: &[u8]) {
        if !waiters.any() {
            return;
        }
        for Waiting { of, info } in self.graph.lock().waiting.values_mut() {
            let waits = info.exclusive && info.family == family && info.waiting_key == key;
            if waits && !of.contains(&holder) {
                of.push(holder);
            }
        }
    }

    /// Enters `transaction`, which is about to wait for all of `of`, or fails with `Deadlock`.
    /// Called under the stripe's mutex.
    pub(super) fn enter<'a>(
        &'a self,
        waiters: &'a Waiters,
        env: &Env,
        transaction: u64,
        of: Vec<u64>,
        request: &Request<'_>,
        depth: usize,
    ) -> Result<InGraph<'a>> {
        let info = DeadlockInfo {
            transaction,
            family: request.family,
            waiting_key: request.key.to_vec(),
            exclusive: request.exclusive,
        };
        let mut graph = self.graph.lock();
        graph.waiting.insert(transaction, Waiting { of, info });
        let found = match graph.circle(transaction, depth) {
            Found::Nothing => {
                waiters.0.fetch_add(1, Ordering::Relaxed);
                return Ok(InGraph { graph: self, waiters, transaction });
            }
            Found::Circle(path) => (path, false),
            Found::TooDeep => (Vec::new(), true),
        };
        graph.waiting.remove(&transaction);
        let deadlock_time = env.unix_time().as_secs();
        let found = DeadlockPath { path: found.0, limit_exceeded: found.1, deadlock_time };
        let error = Error::new(ErrorKind::Deadlock, found.to_string());
        graph.found.push_front(found);
        let kept = graph.kept;
        graph.found.truncate(kept);
        Err(error)
    }

    #[cfg(test)]
    pub(super) fn waiting_count(&self) -> usize {
        self.graph.lock().waiting.len()
    }

    pub(super) fn deadlocks(&self) -> Vec<DeadlockPath> {
        self.graph.lock().found.iter().cloned().collect()
    }

    pub(super) fn keep(&self, most: usize) {
        let mut graph = self.graph.lock();
        graph.kept = most;
        graph.found.truncate(most);
    }
}

enum Found {
    Nothing,
    Circle(Vec<DeadlockInfo>),
    TooDeep,
}

impl Graph {
    /// Searches breadth first, over up to `depth` transactions, for a cycle through `start`.
    fn circle(&self, start: u64, depth: usize) -> Found {
        // Transactions to visit, each with the queue index of its predecessor.
        let mut queue: Vec<(u64, Option<usize>)> = Vec::new();
        let push = |queue: &mut Vec<(u64, Option<usize>)>, of: &[u64], parent| {
            for next in of {
                if !queue.iter().any(|(known, _)| known == next) {
                    queue.push((*next, parent));
                }
            }
        };
        push(&mut queue, &self.waiting[&start].of, None);
        let mut head = 0;
        while head < queue.len() {
            if head >= depth {
                return Found::TooDeep;
            }
            let (transaction, _) = queue[head];
            if transaction == start {
                return Found::Circle(self.path(&queue, head));
            }
            if let Some(waiting) = self.waiting.get(&transaction) {
                push(&mut queue, &waiting.of, Some(head));
            }
            head += 1;
        }
        Found::Nothing
    }

    fn path(&self, queue: &[(u64, Option<usize>)], end: usize) -> Vec<DeadlockInfo> {
        let mut path = Vec::new();
        let mut at = Some(end);
        while let Some(index) = at {
            let (transaction, parent) = queue[index];
            path.push(self.waiting[&transaction].info.clone());
            at = parent;
        }
        path.reverse();
        path
    }
}
