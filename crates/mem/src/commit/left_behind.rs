//! Work of writers that may not come back for it.
//!
//! In: work by its ticket, whose fate is open. Out: the same work, once: to its writer, if that comes in time, or to whoever [settles](LeftBehind::settled) it.
//!
//! Invariant: once its fate is known, work stays here only while its writer may still come for it and nobody waits.
//!
//! Ordering: who leaves work, gives it up, or waits, says so, fences, and looks at the fate; who moves a fate fences (`Leadership::leave`) and looks here.

use super::leadership::Fate;
use super::waiters::Waiters;
use crate::sync::{AtomicUsize, Mutex, Ordering, fence};
use std::collections::BTreeMap;

/// See the module's head.
pub struct LeftBehind<T> {
    /// By ticket.
    left: Mutex<BTreeMap<u64, Left<T>>>,
    count: AtomicUsize,
    /// How many of them are abandoned.
    abandoned: AtomicUsize,
    /// Who waits for what others have to do.
    waiters: Waiters,
}

struct Left<T> {
    work: T,
    /// Its writer will not come for it.
    abandoned: bool,
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
    /// Leaves work; for good if it is `abandoned`. The caller looks at its fate after this.
    pub fn leave(&self, ticket: u64, work: T, abandoned: bool) {
        self.abandoned.fetch_add(usize::from(abandoned), Ordering::Relaxed);
        self.left.lock().insert(ticket, Left { work, abandoned });
        self.count.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Takes work back; `None` if somebody else does it, or has.
    pub fn take(&self, ticket: u64) -> Option<T> {
        let left = self.left.lock().remove(&ticket)?;
        self.count.fetch_sub(1, Ordering::Relaxed);
        Some(left.work)
    }

    /// Says that the writer will not come. The caller [settles](Self::settled) after this.
    pub fn abandon(&self, ticket: u64) {
        if let Some(left) = self.left.lock().get_mut(&ticket) {
            left.abandoned = true;
            self.abandoned.fetch_add(1, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
    }

    /// Those who wait for what others have to do. Each [settles](Self::settled) after it was counted.
    pub fn waiters(&self) -> &Waiters {
        &self.waiters
    }

    /// Takes out the work whose fate is known and whose writer will not come; all whose fate is known if somebody waits, or `others_wait`. In the order of tickets.
    pub fn settled(
        &self,
        others_wait: impl FnOnce() -> bool,
        fate: impl Fn(u64, &T) -> Fate,
    ) -> Vec<(u64, Fate, T)> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let all = self.waiters.any() || others_wait();
        // Why: the others are many where many futures write at a time, and are looked through for nothing.
        if !all && self.abandoned.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let mut left = self.left.lock();
        let known = |(ticket, left): (&u64, &Left<T>)| {
            let fate = if all || left.abandoned { fate(*ticket, &left.work) } else { Fate::Open };
            (fate != Fate::Open).then_some((*ticket, fate))
        };
        let known: Vec<_> = left.iter().filter_map(known).collect();
        let mut abandoned = 0;
        let take = |(ticket, fate)| {
            let taken = left.remove(&ticket)?;
            abandoned += usize::from(taken.abandoned);
            Some((ticket, fate, taken.work))
        };
        let settled: Vec<_> = known.into_iter().filter_map(take).collect();
        self.count.fetch_sub(settled.len(), Ordering::Relaxed);
        self.abandoned.fetch_sub(abandoned, Ordering::Relaxed);
        settled
    }
}
