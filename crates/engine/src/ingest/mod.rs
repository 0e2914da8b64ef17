//! Making databases out of key streams, without a log and without compactions.
//!
//! In: entries in any order, or sorted. Out: a directory that RocksDB opens: tables over several levels, MANIFEST, CURRENT, IDENTITY, OPTIONS.

mod bulk;
#[cfg(test)]
mod tests;

pub use bulk::{BulkLoader, SortedRun};
