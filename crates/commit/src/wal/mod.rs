//! The write-ahead log: its files as they are written, and what they do to the memtables when a
//! database is opened.
//!
//! In: batches as the commit pipeline orders them; log files. Out: log files; memtables as they
//! were when the last record was written, as far as the recovery mode trusts the logs.

pub mod archive;
pub mod doubts;
pub mod following;
pub mod prepared;
pub mod recovery;
pub mod replay;
pub mod retired;
pub mod sub_batches;
#[cfg(test)]
mod tests;
pub mod writer;
