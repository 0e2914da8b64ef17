//! Transactions that lock the keys they write, or read for update.
//!
//! A commit applies all writes of a transaction atomically; two-phase commit needs a name, and
//! survives crashes between prepare and decision.
//!
//! | file | holds |
//! |---|---|
//! | `options` | RocksDB's options, with its names and defaults |
//! | `db` | [`TransactionDb`]: opening, plain writes, which take locks too, names and prepared transactions |
//! | `reading` | reads of committed data, without locks |
//! | `transaction` | [`Transaction`]: reads, writes and save points |
//! | `timestamps` | read and commit timestamps of a transaction |
//! | `ending` | prepare, commit and rollback |

mod db;
mod ending;
mod options;
mod reading;
mod timestamps;
mod transaction;

pub use db::TransactionDb;
pub use options::{TransactionDbOptions, TransactionOptions, WritePolicy};
pub use transaction::Transaction;
