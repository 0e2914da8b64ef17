//! The names that one client is subscribed to.
//!
//! Lock: the mutex of the names, for single operations; the counts are read without it.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Memory of a subscription beside its name, in bytes, about.
const NAME_OVERHEAD: usize = 64;

/// Kind of the names of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    /// A channel of PUBLISH.
    Channels,
    /// A pattern of such channels.
    Patterns,
    /// A channel of SPUBLISH.
    Shards,
}

impl Space {
    pub(crate) const ALL: [Self; 3] = [Self::Channels, Self::Patterns, Self::Shards];
}

/// Names that a client is subscribed to.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    names: Mutex<[BTreeSet<Arc<[u8]>>; 3]>,
    counts: [AtomicUsize; 3],
    /// Sum of the lengths of the names.
    bytes: AtomicUsize,
}

impl Subscriptions {
    pub(super) fn count(&self, space: Space) -> usize {
        self.counts[space as usize].load(Ordering::SeqCst)
    }

    /// Memory of the names, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn insert(&self, space: Space, name: &Arc<[u8]>) -> bool {
        let mut names = self.names.lock();
        let is_new = names[space as usize].insert(name.clone());
        self.counts[space as usize].store(names[space as usize].len(), Ordering::SeqCst);
        if is_new {
            self.bytes.fetch_add(NAME_OVERHEAD + name.len(), Ordering::Relaxed);
        }
        is_new
    }

    pub(super) fn remove(&self, space: Space, name: &[u8]) -> bool {
        let mut names = self.names.lock();
        let was_there = names[space as usize].remove(name);
        self.counts[space as usize].store(names[space as usize].len(), Ordering::SeqCst);
        if was_there {
            self.bytes.fetch_sub(NAME_OVERHEAD + name.len(), Ordering::Relaxed);
        }
        was_there
    }

    pub(super) fn of(&self, space: Space) -> Vec<Arc<[u8]>> {
        self.names.lock()[space as usize].iter().cloned().collect()
    }
}
