//! The storage engine: an LSM tree over files.
//!
//! In: a directory, [`Options`] and an environment ([`io::Env`]). Out: a [`Db`], whose calls read
//! and write the database; and copies, bulk loads and repairs of one. Users depend on the crate
//! `karstdb`, which re-exports this crate.
//!
//! | module | holds |
//! |---|---|
//! | [`db`] | the handle and its calls |
//! | `claims` | ownership of directories outside of the database's own |
//! | [`open`] | opening a directory for reading, for writing, or as a secondary |
//! | [`read`] | point lookups, batches of them, iterators |
//! | `pipeline_host` | the database's side of the commit pipeline of the crate `karst-commit` |
//! | `flush`, `compact` | memtables to tables, and tables to fewer tables |
//! | [`background`] | scheduling of these jobs, and waiting for them |
//! | `versions` | the tree, as the MANIFEST has it, and its changes |
//! | [`ingest`], [`copies`], [`repair`] | ingestion, copies, and recovery of damaged databases |
//! | [`trace`] | query traces, written to files and replayed |
//! | [`ttl`] | databases whose entries expire |
//! | [`properties`] | properties and metadata of the database |
#![forbid(unsafe_code)]

pub mod background;
mod claims;
pub(crate) mod compact;
pub mod copies;
pub mod db;
pub(crate) mod flush;
pub mod ingest;
pub mod open;
pub(crate) mod pipeline_host;
pub mod properties;
pub mod read;
pub mod repair;
pub(crate) mod sealing;
pub mod trace;
pub mod ttl;
pub(crate) mod versions;

pub(crate) mod write_half;

pub use background::{FlushOptions, IngestExternalFileOptions, WaitForCompactOptions};
pub use copies::{
    BackupEngine, BackupEngineOptions, BackupInfo, BackupProgress, Checkpoint, CreateBackupOptions,
    DatabaseFile, DatabaseFileKind, ExportImportFilesMetaData, ExportedFile, ImportColumnFamilyOptions,
    LiveFilesStorageInfoOptions, RestoreMode, RestoreOptions, ShareFilesNaming, StopBackup,
};
pub use db::{
    BlobMetaData, Cf, ColumnFamilyMetaData, Db, LevelMetaData, LiveFile, PreparedTransaction, StatsSlice,
    TablePropertiesCollection, TransactionHooks, Unchanged, WalFile, WalUpdate, WalUpdates,
};
pub use ingest::{BulkLoader, ExternalSstFileInfo, IngestExternalFileArg, SortedRun, SstFileWriter};
pub use karst_base::caller::Caller;
pub use karst_base::compaction_filter::{CompactionFilter, CompactionFilterFactory};
pub use karst_base::error::{Error, ErrorKind, Result};
#[doc(hidden)]
pub use karst_base::error::{Named, Shown};
pub use karst_base::events::{
    BlobFileAdditionInfo, BlobFileCreationInfo, BlobFileGarbageInfo, CompactionFileInfo, CompactionInfo,
    CompactionStats, EventListener, ExternalFileIngestionInfo, FileCreationInfo, FileDeletionInfo, FlushInfo,
    FlushReason, LogLevel, Logger, MemTableInfo, SubcompactionInfo, TableFileCreationInfo,
    TableFileCreationReason, WriteStallCondition, WriteStallInfo,
};
pub use karst_base::health::{BackgroundError, BackgroundErrorReason, Severity};
pub use karst_base::merge_operator::{Associative, AssociativeMergeOperator, MergeOperator};
pub use karst_base::options::{
    BlockBasedTableOptions, ColumnFamilyOptions, CompactOnDeletion, DbOptions, OptionSet, ReadOptions,
    ReadTier, TableFilterFn,
};
pub use karst_base::pacing::{IoPriority, RateLimiter, WriteBufferManager};
pub use karst_base::snapshot::Snapshot;
pub use karst_base::sst_file_manager::SstFileManager;
pub use karst_base::sst_partitioner::{
    PartitionerRequest, SstPartitioner, SstPartitionerContext, SstPartitionerFactory,
    SstPartitionerFixedPrefixFactory,
};
pub use karst_base::stats::{Histogram, HistogramKind, Recorder, Statistics, StatsLevel, Ticker};
pub use karst_base::table_properties_collector::{TablePropertiesCollector, TablePropertiesCollectorFactory};
pub use karst_base::trace::{TraceFilter, TraceOptions, TraceWriter};
pub use karst_base::{caller, compaction_filter, merge_operator, table_properties_collector};
pub use karst_commit::{WriteBatch, WriteOptions};
pub use karst_format::trace::Query as TraceQuery;
pub use karst_io::{FileOperation, FileOperationInfo};
pub use karst_lsm::pick::{
    BlobGarbageCollectionPolicy, BottommostLevelCompaction, CompactFilesOptions, CompactRangeOptions,
    UserKeyRange,
};
pub use karst_lsm::range_del;
pub use karst_mem::CacheOptions;
pub use karst_storage::column_family::ColumnFamily;
pub use karst_storage::file_checksum::{
    FileChecksumGenContext, FileChecksumGenCrc32cFactory, FileChecksumGenFactory, FileChecksumGenerator,
};
pub use karst_storage::value::Value;
pub use open::{BlockCache, DamagedOptions, DbPath, Options};
pub use read::iter::{DbIterator, Direction, Entries, EntryStream, KeyBounds, Range, Streamed};
pub use read::sizes::{KeyRange, SizeApproximationOptions};
pub use read::sought_key::Timestamp;
pub use repair::{DamagedFile, LostFile, RepairReport, RepairedFamily, VerifyProgress, VerifyReport};
pub use trace::{
    FileTraceReader, FileTraceWriter, ReplayOptions, Replayer, TraceAnswer, TraceReader, TraceRecord,
};
pub use ttl::{DbWithTtl, TtlIterator};

/// Errors: kind, message, and location.
pub mod error {
    pub use karst_base::error::{Error, ErrorKind, Result};
    #[doc(hidden)]
    pub use karst_base::error::{Named, Shown};
}

/// Listeners and their information about flushes, compactions, errors and stalls.
pub mod events {
    pub use karst_base::events::{
        BlobFileAdditionInfo, BlobFileCreationInfo, BlobFileGarbageInfo, CompactionFileInfo, CompactionInfo,
        CompactionStats, EventListener, ExternalFileIngestionInfo, FileCreationInfo, FileDeletionInfo,
        FlushInfo, FlushReason, LogLevel, Logger, MemTableInfo, SubcompactionInfo, TableFileCreationInfo,
        TableFileCreationReason, WriteStallCondition, WriteStallInfo,
    };
    pub use karst_io::{FileOperation, FileOperationInfo};
}

/// Background errors, and the operations that the database refuses because of them.
pub mod health {
    pub use karst_base::health::{BackgroundError, BackgroundErrorReason, Severity};
}

/// Options of the database, of a column family, of one read.
pub mod options {
    pub use karst_base::options::{
        Assigned, BlockBasedTableOptions, CacheTier, Checksum, ColumnFamilyOptions, CompactOnDeletion,
        CompactionPriority, CompactionStopStyle, CompactionStyle, Compression, CompressionOptions,
        DataBlockIndexType, DbOptions, FifoOptions, FileTemperature, FileTemperatureAge,
        IndexBlockSearchType, IndexShortening, IndexType, InfoLogLevel, MetadataCacheOptions,
        NamedCollectors, Object, OptionEntry, OptionError, OptionErrorKind, OptionInfo, OptionSet,
        OptionValue, PinningTier, PrepopulateBlobCache, PrepopulateBlockCache, ReadOptions, ReadTier,
        Section, TableFactory, TableFilterFn, UniversalOptions, Unprinted, ValueError, WalRecoveryMode,
        WithoutText,
    };
    pub use karst_format::options::file::{
        NamedColumnFamily, OptionsFile, UnknownOption, UnknownOptions, latest_options_file,
    };
}

/// Rate limits and memory budgets of writers and jobs.
pub mod pacing {
    pub use karst_base::pacing::{ChargedCache, IoPriority, RateLimiter, WriteBufferManager};
}

/// Costs of the calling thread's operations, under RocksDB's names (`PerfContext`).
pub mod perf_context {
    pub use karst_base::perf_context::{
        LevelMetric, PerfLevel, PerfMetric, count, count_at_level, get, get_at_level, level, reset,
        set_by_level, set_level, time, timing, to_text,
    };
}

/// Consistent read views.
pub mod snapshot {
    pub use karst_base::snapshot::Snapshot;
}

/// Statistics under RocksDB's names.
pub mod stats {
    pub use karst_base::stats::{Histogram, HistogramKind, Recorder, Statistics, StatsLevel, Ticker};
}

/// Parts of the file formats that users of the engine need: orders, prefixes, entry types.
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
