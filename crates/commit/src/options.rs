//! Options of one write, with RocksDB's names and defaults.
//!
//! Plain fields that the commit pipeline reads. RocksDB's options without effect here are left out.

use std::time::Duration;

/// Options of one write. Cheap to copy and reusable for many writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// Syncs the log (`fdatasync`) before the call returns, so that the write and all logged before
    /// it are durable. Without it an acknowledged write survives a crash of the process but not of
    /// the machine. Default false.
    pub sync: bool,
    /// Does not log the write: it is lost with the process unless its memtable is flushed before.
    /// Default false.
    pub disable_wal: bool,
    /// Fails with `Incomplete` if the write would wait because writes are slowed down or stopped.
    /// Default false.
    pub no_slowdown: bool,
    /// Longest wait while writes are slowed down or stopped. A write that exceeds it fails and
    /// writes nothing: with the error of the flush or compaction that it waits for, out of space
    /// for instance, if that fails, otherwise with `TimedOut`. `None`, the default: no limit while
    /// that work succeeds, and `Options::stopped_write_timeout` while every attempt fails. A write
    /// that is refused because of a background error does not wait.
    pub timeout: Option<Duration>,
    /// Delays the write as soon as compaction falls behind. Default false.
    pub low_pri: bool,
    /// Skips operations on column families that are not open, which otherwise fail the write.
    /// Default false.
    pub ignore_missing_column_families: bool,
    /// Bytes of checksum that protect each key of the write in memory until it is logged or, if
    /// memtables have checksums (`memtable_protection_bytes_per_key`), flushed: 0 or 8. No effect
    /// on writes of transactions' prepare and commit. Default 0.
    pub protection_bytes_per_key: usize,
}

impl WriteOptions {
    /// Returns the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the defaults with `sync`.
    pub fn synced() -> Self {
        Self { sync: true, ..Self::default() }
    }

    /// Returns the defaults with `disable_wal`.
    pub fn unlogged() -> Self {
        Self { disable_wal: true, ..Self::default() }
    }
}
