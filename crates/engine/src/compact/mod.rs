//! Compaction: entries of several tables in, fewer entries in new tables out.
//!
//! | module | holds |
//! |---|---|
//! | `entry_filter` | which entries survive, and as what: RocksDB's "compaction iterator"; flush uses it too |
//! | `stripes` | the ranges of sequence numbers that no snapshot tells apart |
//! | `tombstones` | range tombstones while entries pass by, and what is left of them |

pub(crate) mod entry_filter;
pub(crate) mod stripes;
pub(crate) mod tombstones;
