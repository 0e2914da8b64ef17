//! Transactions that take no locks.
//!
//! In: reads and writes. Out: at commit, all writes at once if nobody has written since what the
//! transaction depends on; `Busy` and nothing otherwise.
//!
//! Every writer is noticed, other transactions and plain writes through the database alike, because
//! the commit pipeline takes note of the keys.

mod db;
mod options;
mod transaction;

pub use db::OptimisticTransactionDb;
pub use options::{OptimisticTransactionDbOptions, OptimisticTransactionOptions};
pub use transaction::OptimisticTransaction;
