//! Options of databases with optimistic transactions, and of such transactions.

/// Options of an optimistic transaction database.
///
/// Compat: RocksDB's `validate_policy` is absent. The only validation runs concurrently for
/// transactions without common buckets, like `kValidateParallel`, and checks every writer, like
/// `kValidateSerial`.
#[derive(Clone, Copy, Debug)]
pub struct OptimisticTransactionDbOptions {
    /// Number of buckets in which the database records the sequence numbers of written keys. Two
    /// keys in one bucket may cause a second check, never a failure. Eight bytes each; only buckets
    /// in use take memory. Default 2^20, RocksDB's number of locks.
    pub occ_lock_buckets: u32,
}

impl Default for OptimisticTransactionDbOptions {
    fn default() -> Self {
        Self { occ_lock_buckets: 1 << 20 }
    }
}

/// Options of one optimistic transaction.
#[derive(Clone, Copy, Debug, Default)]
pub struct OptimisticTransactionOptions {
    /// Calls [`OptimisticTransaction::set_snapshot`](super::OptimisticTransaction::set_snapshot) at
    /// the beginning. Default false.
    pub set_snapshot: bool,
}
