//! The write-ahead log: writing its files, and replaying them into memtables when a database is
//! opened.
//!
//! The recovered memtables are as they were when the last record was written, as far as the
//! recovery mode trusts the logs.

pub mod archive;
pub mod log_chain;
pub mod prepared;
pub mod recovery;
pub mod replay;
pub mod replay_duplicates;
pub mod retired;
pub mod sub_batches;
#[cfg(test)]
mod tests;
pub mod writer;
