//! What a cache holds, in bytes and in events, and the charges that count against it from outside.
//!
//! Invariant: `usage_bytes` is the sum of the entries' charges, of live [`Charge`]s and of inserts under way.
//! Shared by the cache and by charges, which may outlive it. Nothing here is written on a hit.

use super::Priority;
use crate::sync::{Arc, AtomicU64, AtomicUsize, Ordering};
use std::fmt;

pub(super) struct Account {
    pub(super) capacity_bytes: AtomicUsize,
    pub(super) usage_bytes: AtomicUsize,
    /// Of entries in the table, by priority.
    pub(super) entry_bytes: [AtomicUsize; 3],
    /// Of standalone handles and reservations: pinned by nature.
    pub(super) charged_bytes: AtomicUsize,
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
            charged_bytes: AtomicUsize::new(0),
            inserts: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
            standalone_inserts: AtomicU64::new(0),
        }
    }

    pub(super) fn entry_added(&self, bytes: usize, priority: Priority) {
        self.entry_bytes[priority as usize].fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn entry_removed(&self, bytes: usize, priority: Priority) {
        self.entry_bytes[priority as usize].fetch_sub(bytes, Ordering::Relaxed);
        self.usage_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Memory outside of the cache that counts against its capacity: reads in flight, iterators, table metadata.
///
/// Given up when dropped. May outlive the cache.
pub struct Charge {
    bytes: usize,
    account: Arc<Account>,
}

impl Charge {
    /// REQUIRES: `bytes` are in `usage_bytes` already.
    pub(super) fn admitted(bytes: usize, account: &Arc<Account>) -> Self {
        account.charged_bytes.fetch_add(bytes, Ordering::Relaxed);
        Self { bytes, account: Arc::clone(account) }
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Give back all but `bytes`; does nothing if it holds no more than that.
    pub fn shrink_to(&mut self, bytes: usize) {
        let less = self.bytes.saturating_sub(bytes);
        self.bytes -= less;
        self.account.charged_bytes.fetch_sub(less, Ordering::Relaxed);
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
