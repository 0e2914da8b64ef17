//! Transactions that take no locks.
//!
//! In: reads and writes. Out: at commit, all writes at once if nobody has written since what the
//! transaction depends on; `Busy` and nothing otherwise.
//!
//! Whoever writes is seen: other transactions, and plain writes through the database, since it is
//! the commit pipeline that takes note of keys.

mod db;
mod options;
mod transaction;

pub use db::OptimisticTransactionDb;
pub use options::{OptimisticTransactionDbOptions, OptimisticTransactionOptions};
pub use transaction::OptimisticTransaction;
