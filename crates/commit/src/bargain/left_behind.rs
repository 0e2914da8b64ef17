//! The work of writers that may not come back for it.
//!
//! In: work by its ticket, whose fate is open. Out: the same work, once: to its writer, if that
//! comes in time, or to whoever [settles](LeftBehind::settled) it. A writer that comes later is
//! told if the work failed.
//!
//! Invariant: once its fate is known, work stays here only while its writer may still come for it
//! and nobody waits.
//!
//! Ordering: who leaves work, gives it up, or waits, says so, fences, and looks at the fate; who
//! moves a fate fences (`Leadership::leave`) and looks here.

use super::leadership::Fate;
use super::waiters::Waiters;
use karst_mem::sync::{AtomicUsize, Mutex, Ordering, fence};
use std::collections::BTreeMap;

/// See the module's head.
pub(crate) struct LeftBehind<T> {
    /// By ticket.
    left: Mutex<BTreeMap<u64, Left<T>>>,
    /// How much work there is.
    count: AtomicUsize,
    /// How many of them are abandoned.
    abandoned: AtomicUsize,
    /// Who waits for what others have to do.
    waiters: Waiters,
}

enum Left<T> {
    /// Its writer may come for it.
    Work(T),
    /// Its writer will not.
    Abandoned(T),
    /// It was settled, and had failed. Why kept: by the time its writer comes, what the others go
    /// by may have been started over.
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
    /// Leaves work. The caller looks at its fate after this, or [abandons](Self::abandon) it.
    pub(crate) fn leave(&self, ticket: u64, work: T) {
        let mut left = self.left.lock();
        left.insert(ticket, Left::Work(work));
        self.count.fetch_add(1, Ordering::Relaxed);
        drop(left);
        fence(Ordering::SeqCst);
    }

    /// Takes work back; or says what became of it, if somebody else does it, or has.
    ///
    /// # Errors
    /// `Persisted` or `Failed`.
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

    /// Says that the writer will not come. The caller [settles](Self::settled) after this.
    pub(crate) fn abandon(&self, ticket: u64) {
        let mut left = self.left.lock();
        if let Some(Left::Work(work)) = left.remove(&ticket) {
            left.insert(ticket, Left::Abandoned(work));
            self.abandoned.fetch_add(1, Ordering::Relaxed);
        }
        drop(left);
        fence(Ordering::SeqCst);
    }

    /// Those who wait for what others have to do. Each [settles](Self::settled) after it was
    /// counted.
    pub(crate) fn waiters(&self) -> &Waiters {
        &self.waiters
    }

    /// Takes out the work whose fate is known and whose writer will not come; all whose fate is
    /// known if somebody waits, here or among the `others`. In the order of tickets.
    pub(crate) fn settled(&self, others: &Waiters, fate: impl Fn(u64, &T) -> Fate) -> Vec<(u64, Fate, T)> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let all = self.waiters.any() || others.any();
        // Why: the others are many where many futures write at a time, and are looked through for
        // nothing.
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
