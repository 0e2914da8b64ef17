//! Transactions that take no locks.
//!
//! A commit writes all of the transaction's writes atomically if no other writer has changed a key
//! that the transaction depends on since; otherwise it fails with `Busy` and writes nothing.
//!
//! The commit pipeline records the keys of every write, so conflicts with plain writes through the
//! database are found like those with other transactions.

mod db;
mod options;
mod transaction;

pub use db::OptimisticTransactionDb;
pub use options::{OptimisticTransactionDbOptions, OptimisticTransactionOptions};
pub use transaction::OptimisticTransaction;
