//! The storage engine: where the tree's state meets I/O.
#![forbid(unsafe_code)]

pub(crate) mod blob;
pub(crate) mod column_family;
pub mod db;
pub mod error;
pub mod ingest;
pub(crate) mod memtable;
pub mod merge_operator;
pub mod open;
pub mod options;
pub mod perf_context;
pub mod properties;
pub mod range_del;
pub mod read;
pub mod snapshot;
pub mod stats;
pub(crate) mod superversion;
pub(crate) mod table;
pub(crate) mod wal;

pub use column_family::ColumnFamily;
pub use db::{Db, LiveFile};
pub use error::{Error, ErrorKind, Result};
pub use ingest::BulkLoader;
pub use merge_operator::MergeOperator;
pub use open::{BlockCache, Options};
pub use options::{BlockBasedTableOptions, ColumnFamilyOptions, DbOptions, ReadOptions, ReadTier};
pub use snapshot::Snapshot;
pub use stats::{Statistics, StatsLevel};
pub use table::Value;
