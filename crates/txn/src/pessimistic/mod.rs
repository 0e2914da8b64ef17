//! Transactions that lock the keys they write, or read for update.
//!
//! In: reads and writes; for two-phase commit names, and the decision. Out: all of a transaction at
//! once, or nothing of it.
//!
//! | file | holds |
//! |---|---|
//! | `options` | RocksDB's options, with its names and defaults |
//! | `db` | [`TransactionDb`]: opening, plain writes, which take locks too, names and prepared transactions |
//! | `reading` | what it reads as any database does |
//! | `transaction` | [`Transaction`]: reads, writes and save points |
//! | `timestamps` | at which timestamps it reads and commits, where keys have any |
//! | `ending` | its prepare, commit and rollback |

mod db;
mod ending;
mod options;
mod reading;
mod timestamps;
mod transaction;

pub use db::TransactionDb;
pub use options::{TransactionDbOptions, TransactionOptions, WritePolicy};
pub use transaction::Transaction;
