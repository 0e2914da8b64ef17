//! The storage engine: where the tree's state meets I/O.
#![forbid(unsafe_code)]

pub mod background;
pub(crate) mod blob;
pub mod caller;
pub(crate) mod column_family;
pub(crate) mod compact;
pub mod compaction_filter;
pub mod db;
pub mod error;
pub mod events;
pub(crate) mod flush;
pub mod health;
pub mod ingest;
pub(crate) mod life;
pub(crate) mod live;
pub(crate) mod memtable;
pub mod merge_operator;
pub mod open;
pub mod options;
pub mod pacing;
pub mod perf_context;
pub mod properties;
pub mod read;
pub(crate) mod sealing;
pub mod snapshot;
pub mod stats;
pub(crate) mod superversion;
mod sync;
pub(crate) mod table;
pub(crate) mod versions;
pub(crate) mod wal;
pub mod write;

pub use background::{FlushOptions, WaitForCompactOptions};
pub use caller::Caller;
pub use column_family::ColumnFamily;
pub use compaction_filter::{CompactionFilter, CompactionFilterFactory};
pub use db::{Db, LiveFile, PreparedTransaction, Unchanged, WalFile, WalUpdate, WalUpdates};
pub use error::{Error, ErrorKind, Result};
#[doc(hidden)]
pub use error::{Named, Shown};
pub use events::{CompactionInfo, EventListener, FlushInfo, FlushReason};
pub use health::{BackgroundError, BackgroundErrorReason, Severity};
pub use ingest::{BulkLoader, SortedRun};
pub use karst_lsm::pick::{
    BlobGarbageCollection, BottommostLevelCompaction, CompactFilesOptions, CompactRangeOptions, UserKeyRange,
};
pub use karst_lsm::range_del;
pub use karst_mem::CacheOptions;
pub use merge_operator::{Associative, AssociativeMergeOperator, MergeOperator};
pub use open::{BlockCache, DamagedOptions, Options};
pub use options::{
    BlockBasedTableOptions, ColumnFamilyOptions, CompactOnDeletion, DbOptions, OptionSet, ReadOptions,
    ReadTier,
};
pub use pacing::{IoPriority, RateLimiter, WriteBufferManager};
pub use read::iter::{DbIterator, Direction, Entries, EntryStream, Streamed};
pub use read::sizes::{KeyRange, SizeApproximationOptions};
pub use snapshot::Snapshot;
pub use stats::{Histogram, HistogramKind, Recorder, Statistics, StatsLevel, Ticker};
pub use table::Value;
pub use write::{WriteBatch, WriteOptions};

/// What a user of the engine needs of the formats: orders, prefixes, entry types.
pub mod format {
    pub use karst_format::comparator::{Comparator, UserComparator};
    pub use karst_format::ids::ColumnFamilyId;
    pub use karst_format::key::ValueType;
    pub use karst_format::properties::TableProperties;
    pub use karst_format::slice_transform::{PrefixExtractor, SliceTransform};
    pub use karst_format::write_batch::Op;
}

/// The environment: files, clock, threads, I/O channels, reactors.
pub use karst_io as io;
