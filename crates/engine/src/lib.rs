//! The storage engine: where the tree's state meets I/O.
#![forbid(unsafe_code)]

pub(crate) mod blob;
pub mod error;
pub(crate) mod memtable;
pub mod merge_operator;
pub mod options;
pub mod perf_context;
pub mod range_del;
pub(crate) mod read;
pub mod snapshot;
pub mod stats;
pub(crate) mod superversion;
pub(crate) mod table;
pub(crate) mod wal;

pub use table::Value;
