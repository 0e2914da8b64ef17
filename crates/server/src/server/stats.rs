//! Counters of a server, for INFO. Counted without locks, read one by one.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters since the start, or since CONFIG RESETSTAT.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    /// Connections accepted.
    pub(crate) connections: Counter,
    /// Connections refused because there are `maxclients` already.
    pub(crate) rejected: Counter,
    /// Clients disconnected for their memory.
    pub(crate) evicted: Counter,
    /// Commands carried out or refused.
    pub(crate) commands: Counter,
    /// Error replies.
    pub(crate) errors: Counter,
    /// Connections that TLS has ended: by a wrong record, a refused certificate or a slow
    /// handshake.
    pub(crate) tls_errors: Counter,
    /// Bytes received.
    pub(crate) received: Counter,
    /// Bytes sent.
    pub(crate) sent: Counter,
}

/// A counter of any thread.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

impl Stats {
    /// Sets all to zero.
    pub(crate) fn reset(&self) {
        let all = [
            &self.connections,
            &self.rejected,
            &self.evicted,
            &self.commands,
            &self.errors,
            &self.tls_errors,
            &self.received,
            &self.sent,
        ];
        all.into_iter().for_each(Counter::reset);
    }
}
