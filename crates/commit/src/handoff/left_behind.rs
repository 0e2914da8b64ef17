//! Work of writers that may not come back for it.
//!
//! Work is left under its ticket while its fate is open. It is handed out once: to its writer, if
//! that comes in time, or to a caller that [settles](LeftBehind::settled) it. A writer that comes
//! later learns if the work failed.
//!
//! Invariant: once its fate is known, work stays here only while its writer may still come for it
//! and no caller waits.
//!
//! Ordering: a caller that leaves work, abandons it, or waits stores that, fences, and checks the
//! fate; a leader that changes a fate fences (`Leadership::leave`) and checks here.

use super::leadership::Fate;
use super::waiters::Waiters;
use karst_mem::sync::{AtomicUsize, Mutex, Ordering, fence};
use std::collections::BTreeMap;

/// Work left by writers, with the number of waiters for it.
pub(crate) struct LeftBehind<T> {
    /// Work by ticket.
    left: Mutex<BTreeMap<u64, Left<T>>>,
    /// Number of pieces of work.
    count: AtomicUsize,
    /// Number of abandoned pieces.
    abandoned: AtomicUsize,
    /// Callers that wait for work of others.
    waiters: Waiters,
}

enum Left<T> {
    /// Work whose writer may come for it.
    Work(T),
    /// Work whose writer will not come.
    Abandoned(T),
    /// Work that was settled as failed. Kept because the fates may have been reset by a recovery
    /// before the writer comes.
    Failed,
}

impl<T> Default for LeftBehind<T> {
    fn default() -> Self {
        Self {
            left: Mutex::new(BTreeMap::new()),
            count: AtomicUsize::new(0),
            abandoned: AtomicUsize::new(0),
            waiters: Waiters::default(),
        }
    }
}

impl<T> LeftBehind<T> {
    /// Leaves work. Afterwards the caller checks its fate, or [abandons](Self::abandon) it.
    pub(crate) fn leave(&self, ticket: u64, work: T) {
        let mut left = self.left.lock();
        left.insert(ticket, Left::Work(work));
        self.count.fetch_add(1, Ordering::Relaxed);
        drop(left);
        fence(Ordering::SeqCst);
    }

    /// Takes work back.
    ///
    /// # Errors
    /// Its fate, `Persisted` or `Failed`, if another caller does the work, or has.
    pub(crate) fn take(&self, ticket: u64) -> Result<T, Fate> {
        let mut left = self.left.lock();
        match left.remove(&ticket) {
            Some(Left::Work(work)) => {
                self.count.fetch_sub(1, Ordering::Relaxed);
                Ok(work)
            }
            Some(Left::Failed) => Err(Fate::Failed),
            Some(Left::Abandoned(_)) => unreachable!("who gives it up does not come"),
            None => Err(Fate::Persisted),
        }
    }

    /// Marks work whose writer will not come. The caller [settles](Self::settled) afterwards.
    pub(crate) fn abandon(&self, ticket: u64) {
        let mut left = self.left.lock();
        if let Some(Left::Work(work)) = left.remove(&ticket) {
            left.insert(ticket, Left::Abandoned(work));
            self.abandoned.fetch_add(1, Ordering::Relaxed);
        }
        drop(left);
        fence(Ordering::SeqCst);
    }

    /// Counter of callers that wait for work of others. Each [settles](Self::settled) after it was
    /// counted.
    pub(crate) fn waiters(&self) -> &Waiters {
        &self.waiters
    }

    /// Takes out, in ticket order, the abandoned work whose fate is known; all work whose fate is
    /// known if there are waiters, here or among the `others`.
    pub(crate) fn settled(&self, others: &Waiters, fate: impl Fn(u64, &T) -> Fate) -> Vec<(u64, Fate, T)> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let all = self.waiters.any() || others.any();
        // Returns early because with many concurrent futures the list is long, and searching it
        // would find nothing.
        if !all && self.abandoned.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let mut left = self.left.lock();
        let known = |(ticket, left): (&u64, &Left<T>)| {
            let fate = match left {
                Left::Abandoned(work) => fate(*ticket, work),
                Left::Work(work) if all => fate(*ticket, work),
                Left::Work(_) | Left::Failed => Fate::Open,
            };
            (fate != Fate::Open).then_some((*ticket, fate))
        };
        let known: Vec<_> = left.iter().filter_map(known).collect();
        let take = |(ticket, fate)| match left.remove(&ticket)? {
            Left::Abandoned(work) => {
                self.abandoned.fetch_sub(1, Ordering::Relaxed);
                Some((ticket, fate, work))
            }
            Left::Work(work) => {
                if fate == Fate::Failed {
                    left.insert(ticket, Left::Failed);
                }
                Some((ticket, fate, work))
            }
            Left::Failed => None,
        };
        let settled: Vec<_> = known.into_iter().filter_map(take).collect();
        self.count.fetch_sub(settled.len(), Ordering::Relaxed);
        settled
    }
}
