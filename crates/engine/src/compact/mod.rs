//! Compaction: merges the entries of several tables into fewer entries in new tables.
//!
//! | module | holds |
//! |---|---|
//! | `job` | runs one compaction: opens the inputs, cuts the work into parts, installs the result |
//! | `part` | one part: entries from the inputs through the filter into new files |
//! | `inputs` | facts about the input files that a job needs first |
//! | `entry_filter` | which entries survive, and in which form: RocksDB's "compaction iterator"; flush uses it too |
//! | `stripes` | the ranges of sequence numbers that no snapshot separates |
//! | `tombstones` | range tombstones applied to passing entries, and the tombstones to write |
//! | `blob_garbage` | values in blob files that are no longer referenced |
//! | `guarded_files` | numbers and guards of a job's new files; flush uses it too |
//! | `read_back` | reads the output again, if options ask for it; flush and recovery use it too |
//! | `progress` | progress of a job, and its cancellation |

mod blob_garbage;
pub(crate) mod entry_filter;
pub(crate) mod guarded_files;
pub(crate) mod inputs;
pub(crate) mod job;
mod part;
pub(crate) mod progress;
pub(crate) mod read_back;
pub(crate) mod stripes;
#[cfg(test)]
mod tests;
pub(crate) mod tombstones;
