//! RocksDB's options of transaction databases and transactions, with its names and defaults. What
//! is not honoured is not here.

/// When a transaction's writes go into the memtable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WritePolicy {
    /// When it commits.
    #[default]
    WriteCommitted,
    /// When it is prepared: a commit costs the same however much was written, and memory for what
    /// is prepared is that of memtables. Nobody sees it before it is committed. What is committed
    /// without being prepared is written then, as under `WriteCommitted`.
    WritePrepared,
    /// When they are made. Not supported: opening fails.
    WriteUnprepared,
}

/// Options of a transaction database.
#[derive(Clone, Debug)]
pub struct TransactionDbOptions {
    /// Most keys of one column family that may be locked at the same time; negative: no limit. More
    /// fail with `LimitReached`. Default -1.
    pub max_num_locks: i64,
    /// How many deadlocks are kept to be asked for. Default 5.
    pub max_num_deadlocks: u32,
    /// Parts into which the locks of a column family are divided, each with its own mutex.
    /// Default 16.
    pub num_stripes: usize,
    /// How long a transaction waits for a lock, in milliseconds, unless its own options say
    /// otherwise; negative: for ever. Default 1000.
    pub transaction_lock_timeout: i64,
    /// How long a plain write waits for a lock, in milliseconds; negative: for ever, 0: not at all.
    /// Default 1000.
    pub default_lock_timeout: i64,
    /// When transactions' writes go into the memtable.
    pub write_policy: WritePolicy,
    /// `TransactionDb::write` takes no locks; the caller makes sure that no two batches write the
    /// same key, nor one and a transaction. Calls that write one key lock it, and transactions lock
    /// unless their own options say otherwise. Default false.
    pub skip_concurrency_control: bool,
    /// Where keys have timestamps, a key that is locked and validated must have no later one than
    /// what the transaction reads at (its `set_read_timestamp_for_validation`), and a commit's
    /// timestamp is above that. Without it no transaction may set one. Default true.
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
    /// As if [`Transaction::set_snapshot`](super::Transaction::set_snapshot) were called at the
    /// beginning. Default false.
    pub set_snapshot: bool,
    /// Before it waits for a lock, look whether that would never end; then fail with `Deadlock`.
    /// Only transactions with this option are seen waiting. Default false.
    pub deadlock_detect: bool,
    /// How long it waits for a lock, in milliseconds; negative: as the database's
    /// `transaction_lock_timeout` has it; 0: not at all. Default -1.
    pub lock_timeout: i64,
    /// After so many milliseconds others may take its locks, and its commit fails with `Expired`;
    /// negative: never. Default -1.
    pub expiration: i64,
    /// How many transactions that wait are looked at for a deadlock; beyond, one is assumed.
    /// Default 50.
    pub deadlock_detect_depth: i64,
    /// Most bytes of its write batch; 0: no limit. Default 0.
    pub max_write_batch_size: usize,
    /// It takes no locks. Default false.
    pub skip_concurrency_control: bool,
    /// It may be committed without having been prepared. Default true.
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
