//! Compaction: entries of several tables in, fewer entries in new tables out.
//!
//! | module | holds |
//! |---|---|
//! | `job` | carries out one compaction: inputs looked at, work cut into parts, result installed |
//! | `part` | one part: entries from the inputs through the filter into new files |
//! | `inputs` | what has to be known of the input files first |
//! | `entry_filter` | which entries survive, and as what: RocksDB's "compaction iterator"; flush uses it too |
//! | `stripes` | the ranges of sequence numbers that no snapshot tells apart |
//! | `tombstones` | range tombstones while entries pass by, and what is left of them |
//! | `blob_garbage` | which values in blob files nobody refers to any more |
//! | `guarded_files` | numbers and guards of a job's new files; flush uses it too |
//! | `read_back` | reads the output once more, if options ask for it; flush and recovery use it too |
//! | `progress` | how far a job is, and whether it has to stop |

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
