//! Counts of lookups and of expired keys, for INFO.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since the store was opened, or since CONFIG RESETSTAT.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    hits: AtomicU64,
    misses: AtomicU64,
    expired: AtomicU64,
}

impl Counts {
    /// Notes that a command that only reads has looked for a key.
    pub(super) fn note_lookup(&self, is_there: bool) {
        let count = if is_there { &self.hits } else { &self.misses };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that expired keys were deleted.
    pub(super) fn note_expired(&self, keys: u64) {
        if keys > 0 {
            self.expired.fetch_add(keys, Ordering::Relaxed);
        }
    }

    /// Keys that were looked for and found.
    pub(crate) fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// Keys that were looked for and not there.
    pub(crate) fn misses(&self) -> u64 {
        self.misses.load(Ordering::Relaxed)
    }

    /// Expired keys that were deleted.
    pub(crate) fn expired(&self) -> u64 {
        self.expired.load(Ordering::Relaxed)
    }

    /// Sets all to zero.
    pub(crate) fn reset(&self) {
        [&self.hits, &self.misses, &self.expired]
            .into_iter()
            .for_each(|count| count.store(0, Ordering::Relaxed));
    }
}
