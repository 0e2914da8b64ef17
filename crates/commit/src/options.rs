//! Options of one write. RocksDB's names and defaults.
//!
//! In: what the user sets. Out: plain fields that the commit pipeline consults. A field that it
//! does not honour is not here.

use std::time::Duration;

/// Options of one write. Cheap to copy; pass the same one to many writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// The write is on the device (`fdatasync`) when the call returns, together with all that was
    /// logged before it. Without it a write that was acknowledged survives the process but not the
    /// machine. Default false.
    pub sync: bool,
    /// Do not log the write: it is lost with the process unless its memtable was flushed. Default
    /// false.
    pub disable_wal: bool,
    /// Fail with `Incomplete` where the write would have to wait because writes are slowed down or
    /// stopped. Default false.
    pub no_slowdown: bool,
    /// How long the write may wait where writes are slowed down or stopped. Then it fails: if what
    /// would let it go on fails, for want of room for instance, with that error, else with
    /// `TimedOut`; nothing was written. `None`, the default: for what succeeds as long as it takes,
    /// for what fails each time as long as
    /// `Options::stopped_write_timeout` has it. A write
    /// that is refused because of a background error does not wait.
    pub timeout: Option<Duration>,
    /// The write gives way to others as soon as compaction needs help. Default false.
    pub low_pri: bool,
    /// Pass over operations on column families that are not open (any more), which otherwise fail
    /// the write. Default false.
    pub ignore_missing_column_families: bool,
    /// Bytes of checksum that protect each key of the write in memory, from the call on until it is
    /// logged, and where memtables have checksums (`memtable_protection_bytes_per_key`) until it is
    /// flushed: 0 or 8. Not for what transactions prepare and commit. Default 0.
    pub protection_bytes_per_key: usize,
}

impl WriteOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// The defaults, with `sync`.
    pub fn synced() -> Self {
        Self { sync: true, ..Self::default() }
    }

    /// The defaults, with `disable_wal`.
    pub fn unlogged() -> Self {
        Self { disable_wal: true, ..Self::default() }
    }
}
