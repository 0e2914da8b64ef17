//! The write-ahead log: its files as they are written, and what they do to the memtables when a
//! database is opened.
//!
//! In: batches as the commit pipeline orders them; log files. Out: log files; memtables as they
//! were when the last record was written, as far as the recovery mode trusts the logs.

pub(crate) mod archive;
pub(crate) mod doubts;
mod following;
pub(crate) mod prepared;
pub(crate) mod recovery;
pub(crate) mod replay;
pub(crate) mod retired;
pub(crate) mod sub_batches;
#[cfg(test)]
mod tests;
pub(crate) mod writer;
