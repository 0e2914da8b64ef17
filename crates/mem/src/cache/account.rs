//! Accounting of a cache, in bytes and events, and charges for memory outside of it.
//!
//! Invariant: `usage_bytes` is the sum of the entries' charges, of live [`Charge`]s and of inserts
//! in progress. Shared by the cache and by charges, which may outlive it. A hit writes nothing
//! here.

use super::Priority;
use crate::sync::{Arc, AtomicU64, AtomicUsize, Ordering};
use std::fmt;

pub(super) struct Account {
    pub(super) capacity_bytes: AtomicUsize,
    pub(super) usage_bytes: AtomicUsize,
    /// Bytes of entries in the table, by priority.
    pub(super) entry_bytes: [AtomicUsize; 3],
    /// Bytes of standalone handles and reservations, by kind; all of them pinned.
    pub(super) charged_bytes: [AtomicUsize; ChargeKind::COUNT],
    pub(super) inserts: AtomicU64,
    pub(super) evictions: AtomicU64,
    pub(super) standalone_inserts: AtomicU64,
}

impl Account {
    pub(super) fn new(capacity_bytes: usize) -> Self {
        Self {
            capacity_bytes: AtomicUsize::new(capacity_bytes),
            usage_bytes: AtomicUsize::new(0),
            entry_bytes: std::array::from_fn(|_| AtomicUsize::new(0)),
            charged_bytes: std::array::from_fn(|_| AtomicUsize::new(0)),
            inserts: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
            standalone_inserts: AtomicU64::new(0),
        }
    }

    pub(super) fn all_charged_bytes(&self) -> usize {
        self.charged_bytes.iter().map(|bytes| bytes.load(Ordering::Relaxed)).sum()
    }

    pub(super) fn entry_added(&self, bytes: usize, priority: Priority) {
        self.entry_bytes[priority as usize].fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn entry_removed(&self, bytes: usize, priority: Priority) {
        self.entry_bytes[priority as usize].fetch_sub(bytes, Ordering::Relaxed);
        self.usage_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The purpose of a [`Charge`]: a number below [`ChargeKind::COUNT`] to which the cache's owner
/// gives a meaning. Values that found no room in the cache are charged as 0 too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChargeKind(pub u8);

impl ChargeKind {
    /// Number of kinds.
    pub const COUNT: usize = 5;
}

/// Memory outside of the cache that counts against its capacity: reads in flight, iterators, table
/// metadata.
///
/// Released when dropped. May outlive the cache.
pub struct Charge {
    bytes: usize,
    kind: ChargeKind,
    account: Arc<Account>,
}

impl Charge {
    /// REQUIRES: `bytes` are already in `usage_bytes`.
    pub(super) fn admitted(kind: ChargeKind, bytes: usize, account: &Arc<Account>) -> Self {
        let charge = Self { bytes, kind, account: Arc::clone(account) };
        charge.charged().fetch_add(bytes, Ordering::Relaxed);
        charge
    }

    fn charged(&self) -> &AtomicUsize {
        &self.account.charged_bytes[usize::from(self.kind.0)]
    }

    /// Merges another charge of the same cache and kind into this one.
    ///
    /// # Panics
    /// `other` belongs to another cache or kind.
    pub fn absorb(&mut self, mut other: Charge) {
        assert!(Arc::ptr_eq(&self.account, &other.account) && self.kind == other.kind);
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Returns the charged bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Releases all but `bytes`; does nothing if it holds no more than that.
    pub fn shrink_to(&mut self, bytes: usize) {
        let less = self.bytes.saturating_sub(bytes);
        self.bytes -= less;
        self.charged().fetch_sub(less, Ordering::Relaxed);
        self.account.usage_bytes.fetch_sub(less, Ordering::Relaxed);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

impl fmt::Debug for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Charge({} bytes)", self.bytes)
    }
}
