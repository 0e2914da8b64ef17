//! Options of databases with optimistic transactions, and of such transactions.

/// Options of an optimistic transaction database.
///
/// Compat: RocksDB's `validate_policy` is not here. There is one way to validate, which as
/// `kValidateParallel` does its work at the same time for transactions that do not meet, and as
/// `kValidateSerial` leaves out no writer.
#[derive(Clone, Copy, Debug)]
pub struct OptimisticTransactionDbOptions {
    /// Buckets in which the database takes note of keys that are written. Two keys in one bucket
    /// may have a transaction look twice, never fail. Eight bytes each, of which only those of
    /// buckets in use take memory. Default 2^20, as RocksDB's number of locks.
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
    /// As if [`OptimisticTransaction::set_snapshot`](super::OptimisticTransaction::set_snapshot)
    /// were called at the beginning. Default false.
    pub set_snapshot: bool,
}
