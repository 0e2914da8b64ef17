//! What a database's writers and its logs have done since it was opened: the numbers of
//! `rocksdb.dbstats`.
//!
//! They are counted whether or not statistics are collected: under the order lock, and by the
//! leaders of the log. So those of leaders may be of a little later than the others.

/// Sums over writes. Bytes are those of batches as the log has them, with their headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteCounts {
    /// Batches, and the entries in them.
    pub writes: u64,
    /// See `writes`.
    pub keys: u64,
    /// See `writes`.
    pub bytes: u64,
    /// Batches with a record in the log.
    pub logged: u64,
    /// Times that somebody wrote to the log for all who waited, and batches without a record.
    pub groups: u64,
    /// Bytes written to logs, and how often they were synced.
    pub log_bytes: u64,
    /// See `log_bytes`.
    pub log_syncs: u64,
    /// How long writers were held up, all together, in microseconds.
    pub stall_micros: u64,
}

impl WriteCounts {
    /// What came since `earlier`.
    pub fn since(&self, earlier: &WriteCounts) -> WriteCounts {
        WriteCounts {
            writes: self.writes - earlier.writes,
            keys: self.keys - earlier.keys,
            bytes: self.bytes - earlier.bytes,
            logged: self.logged - earlier.logged,
            groups: self.groups - earlier.groups,
            log_bytes: self.log_bytes - earlier.log_bytes,
            log_syncs: self.log_syncs - earlier.log_syncs,
            stall_micros: self.stall_micros - earlier.stall_micros,
        }
    }
}
