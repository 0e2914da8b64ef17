//! The write-ahead log: what it does to the memtables when a database is opened.
//!
//! In: log files. Out: memtables as they were when the last record was written, as far as the recovery mode trusts the logs.

pub(crate) mod recovery;
pub(crate) mod replay;
#[cfg(test)]
mod tests;
