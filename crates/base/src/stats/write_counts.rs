//! Counts of a database's writes and logs since it was opened: the numbers of `rocksdb.dbstats`.
//!
//! They are counted even if statistics are disabled: some under the order lock, others by the log's
//! group leaders. The leaders' counts may therefore be slightly ahead of the others.

/// Sums over writes. Batch sizes include the header, as in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteCounts {
    /// Number of batches.
    pub writes: u64,
    /// Number of entries in those batches.
    pub keys: u64,
    /// Size of those batches in bytes.
    pub bytes: u64,
    /// Number of batches with a record in the log.
    pub logged: u64,
    /// Number of group writes to the log, plus batches without a record.
    pub groups: u64,
    /// Number of group writes to the log that a task led, on the thread of its reactor.
    pub task_groups: u64,
    /// Bytes written to logs.
    pub log_bytes: u64,
    /// Number of log syncs.
    pub log_syncs: u64,
    /// Total time that writers were stalled, in microseconds.
    pub stall_micros: u64,
}

impl WriteCounts {
    /// Returns the difference from `earlier`.
    pub fn since(&self, earlier: &WriteCounts) -> WriteCounts {
        WriteCounts {
            writes: self.writes - earlier.writes,
            keys: self.keys - earlier.keys,
            bytes: self.bytes - earlier.bytes,
            logged: self.logged - earlier.logged,
            groups: self.groups - earlier.groups,
            task_groups: self.task_groups - earlier.task_groups,
            log_bytes: self.log_bytes - earlier.log_bytes,
            log_syncs: self.log_syncs - earlier.log_syncs,
            stall_micros: self.stall_micros - earlier.stall_micros,
        }
    }
}
