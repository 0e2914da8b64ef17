//! RocksDB's options of transaction databases and transactions, with its names and defaults.
//! Options without effect are left out.

/// Time at which a transaction's writes go into the memtable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WritePolicy {
    /// At commit.
    #[default]
    WriteCommitted,
    /// At prepare: the commit's cost does not depend on the amount written, and prepared data
    /// occupies memtables. It is invisible until the commit. A commit without prepare writes at
    /// commit, like `WriteCommitted`.
    WritePrepared,
    /// At each write. Not supported: opening fails.
    WriteUnprepared,
}

/// Options of a transaction database.
#[derive(Clone, Debug)]
pub struct TransactionDbOptions {
    /// Maximum number of keys of one column family that are locked at a time; negative: no limit.
    /// Further locks fail with `LimitReached`. Default -1.
    pub max_num_locks: i64,
    /// Maximum number of deadlocks kept for `get_deadlock_info_buffer`. Default 5.
    pub max_num_deadlocks: u32,
    /// Number of stripes into which the locks of a column family are divided, each with its own
    /// mutex. Default 16.
    pub num_stripes: usize,
    /// Longest wait of a transaction for a lock, in milliseconds, unless its own options set one;
    /// negative: no limit. Default 1000.
    pub transaction_lock_timeout: i64,
    /// Longest wait of a plain write for a lock, in milliseconds; negative: no limit, 0: no wait.
    /// Default 1000.
    pub default_lock_timeout: i64,
    /// Time at which transactions' writes go into the memtable. Default `WriteCommitted`.
    pub write_policy: WritePolicy,
    /// `TransactionDb::write` takes no locks; the caller must ensure that no two batches, nor a
    /// batch and a transaction, write the same key. Calls that write one key lock it, and
    /// transactions lock unless their own options disable it. Default false.
    pub skip_concurrency_control: bool,
    /// In column families with timestamps, a key that is locked and validated must have no
    /// timestamp later than the transaction's read timestamp (`set_read_timestamp_for_validation`),
    /// and a commit's timestamp must be above that. Without this option reads for update fail
    /// there if a read timestamp is set. Default true.
    pub enable_udt_validation: bool,
}

impl Default for TransactionDbOptions {
    fn default() -> Self {
        Self {
            max_num_locks: -1,
            max_num_deadlocks: 5,
            num_stripes: 16,
            transaction_lock_timeout: 1000,
            default_lock_timeout: 1000,
            write_policy: WritePolicy::WriteCommitted,
            skip_concurrency_control: false,
            enable_udt_validation: true,
        }
    }
}

/// Options of one transaction.
#[derive(Clone, Debug)]
pub struct TransactionOptions {
    /// Calls [`Transaction::set_snapshot`](super::Transaction::set_snapshot) at the beginning.
    /// Default false.
    pub set_snapshot: bool,
    /// Fails with `Deadlock` instead of waiting for a lock in a cycle. Only waiters with this
    /// option are part of the search. Default false.
    pub deadlock_detect: bool,
    /// Longest wait for a lock, in milliseconds; negative: the database's
    /// `transaction_lock_timeout`; 0: no wait. Default -1.
    pub lock_timeout: i64,
    /// Milliseconds after which others may take its locks, and its commit fails with `Expired`;
    /// negative: never. Default -1.
    pub expiration: i64,
    /// Maximum number of waiting transactions that a deadlock search visits; beyond it a deadlock
    /// is assumed. Default 50.
    pub deadlock_detect_depth: i64,
    /// Maximum bytes of its write batch; 0: no limit. Default 0.
    pub max_write_batch_size: usize,
    /// The transaction takes no locks. Default false.
    pub skip_concurrency_control: bool,
    /// The transaction may be committed without having been prepared. Default true.
    pub skip_prepare: bool,
}

impl Default for TransactionOptions {
    fn default() -> Self {
        Self {
            set_snapshot: false,
            deadlock_detect: false,
            lock_timeout: -1,
            expiration: -1,
            deadlock_detect_depth: 50,
            max_write_batch_size: 0,
            skip_concurrency_control: false,
            skip_prepare: true,
        }
    }
}
