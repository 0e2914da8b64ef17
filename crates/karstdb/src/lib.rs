//! KarstDB is an embedded, ordered key-value store. It reads and writes RocksDB's databases, and
//! its reads share one asynchronous path.
//!
//! Cached data is read by plain code on the caller's stack. Everything else is read from storage
//! through io_uring, many reads at a time. Each call that may wait has a blocking form and an
//! asynchronous one. Gets, writes, iterators, flushes, compactions and transactions run the same
//! code in both. Opening, closing, creating and dropping column families and changing options run
//! their asynchronous form on a thread of its own. Dropping the last open [`Db`] closes it and
//! blocks, so close it first.
//!
//! | caller | call | waiting |
//! |---|---|---|
//! | a thread | [`Db::get`] | blocks the calling thread, on its own ring; no other thread is involved |
//! | a task of any executor | [`Db::get_async`] | blocks no thread: a `Send` future, completed by the environment's driver |
//! | a task of a [`io::Reactor`] | [`Db::get_async`] | blocks no thread: that future, on the reactor thread's own ring |
//!
//! Writes are the same, except that for asynchronous ones a thread that may block writes the log,
//! unless their reactor [carries writes](io::ReactorBuilder::carries_writes).
//!
//! # Writing and reading
//!
//! ```
//! use karstdb::{Db, Options, WriteBatch, WriteOptions};
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("db");
//! // An existing database is opened with its own settings: column families, comparators and merge
//! // operators are found by the names in its files.
//! let options = Options::new().db(|db| db.create_if_missing = true);
//! let db = Db::open(&path, &options)?;
//! db.put("apple", "ripe")?; // visible to every read that begins from now on
//!
//! let value = db.get("apple")?.expect("it was put"); // a `Value` pins its block; nothing is copied
//! assert_eq!(value, "ripe");
//!
//! // A batch becomes visible as a whole. With `sync` it is on the device when the call returns.
//! let mut batch = WriteBatch::new();
//! batch.put("banana", "green")?;
//! batch.delete("apple")?;
//! db.write(&WriteOptions { sync: true, ..WriteOptions::new() }, &batch)?;
//!
//! // `multi_get` reads all the blocks that it needs concurrently.
//! let found = db.multi_get(&["banana", "durian"]);
//! assert!(found[0].as_ref().unwrap().is_some() && found[1].as_ref().unwrap().is_none());
//! db.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Ranges, snapshots, column families
//!
//! Ranges and prefixes are Rust iterators that own what they read from. [`Db::iter`] gives a cursor
//! to seek with.
//!
//! ```
//! use karstdb::{Db, Options, ReadOptions};
//! # let directory = tempfile::tempdir()?;
//! # let db = Db::open(directory.path(), &Options::new().db(|db| db.create_if_missing = true))?;
//! db.create_column_family("fruit", &Options::new())?;
//! let fruit = db.cf("fruit")?;
//! for (key, value) in [("apple", "ripe"), ("banana", "green"), ("cherry", "red")] {
//!     fruit.put(key, value)?;
//! }
//! for entry in fruit.range("b"..)?.rev() {
//!     let (key, value) = entry?;
//!     println!("{} = {}", key.escape_ascii(), value.escape_ascii());
//! }
//! assert_eq!(fruit.prefix("ba")?.keys().count(), 1);
//!
//! let before = db.snapshot(); // of all column families
//! fruit.put("banana", "ripe")?;
//! let old = ReadOptions { snapshot: Some(before), ..ReadOptions::new() };
//! let value = fruit.clone().with_read_options(old).get("banana")?;
//! assert!(value.is_some_and(|value| value == "green"));
//!
//! let mut cursor = fruit.iter()?;
//! cursor.seek_for_prev("bz")?;
//! assert!(cursor.valid());
//! assert_eq!(cursor.key(), b"banana");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Transactions
//!
//! ```
//! use karstdb::{Options, ReadOptions, TransactionDb, TransactionDbOptions, TransactionOptions, WriteOptions};
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("db");
//! let options = Options::new().db(|db| db.create_if_missing = true);
//! let db = TransactionDb::open(&path, &options, &TransactionDbOptions::default())?;
//! db.put("stock", "7")?; // locks the key for a moment
//!
//! let mut transaction = db.begin(&WriteOptions::new(), &TransactionOptions::default());
//! let stock = transaction.get_for_update(&ReadOptions::new(), "stock")?; // locked until the transaction has ended
//! assert_eq!(stock.unwrap(), "7");
//! transaction.put("stock", "6")?;
//! assert_eq!(db.get("stock")?.unwrap(), "7");
//! transaction.commit()?;
//! assert_eq!(db.get("stock")?.unwrap(), "6");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Asynchronously
//!
//! Futures are `Send` and belong to no executor. [`Range::into_stream`] and
//! [`DbIterator::into_stream`] make a `Stream`; so does [`BatchDbIterator::into_stream`] for the
//! iterators of transactions.
//!
//! ```
//! # use karstdb::{Db, Options};
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("db");
//! # pollster::block_on(async {
//! let options = Options::new().db(|db| db.create_if_missing = true);
//! let db = Db::open_async(&path, &options).await?;
//! db.put_async("apple", "ripe").await?;
//! let value = db.get_async("apple").await?;
//! let batch = db.multi_get_async(&["apple", "banana"]).await;
//! # assert!(value.is_some() && batch.len() == 2);
//! db.close_async().await?;
//! # Ok::<(), karstdb::Error>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Copies
//!
//! ```
//! use karstdb::{BackupEngine, BackupEngineOptions, Checkpoint, CreateBackupOptions, Db, Options};
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path();
//! # let db = Db::open(path.join("db"), &Options::new().db(|db| db.create_if_missing = true))?;
//! // A second database in one step, with hard links, on the same file system.
//! Checkpoint::new(&db)?.create_checkpoint(path.join("copy"), 0)?;
//!
//! // Any number of backups, which share their common files.
//! let mut backups = BackupEngine::open(&BackupEngineOptions::new(path.join("backups")), db.env())?;
//! let id = backups.create_new_backup(&db, &CreateBackupOptions::default())?;
//! backups.verify_backup(id, true)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Options
//!
//! A database is opened with the options in its own OPTIONS file. [`Options`] changes some of them:
//! by field, by RocksDB's names, or as an option string. Objects that no file can hold, such as a
//! custom merge operator, are given as instances.
//!
//! ```
//! use karstdb::{Options, Statistics};
//! let statistics = std::sync::Arc::new(Statistics::default());
//! let options = Options::new()
//!     .set_all("max_open_files=500;use_direct_reads=true")?
//!     .column_families(|family| family.table_factory.block_based.cache_index_and_filter_blocks = true)
//!     .column_family("logs", |family| family.compression = karstdb::options::Compression::Zstd)
//!     .set("filter_policy", "bloomfilter:10")? // in every column family
//!     .block_cache_bytes(1 << 30)
//!     .statistics(statistics.clone());
//! # let _ = options;
//! # Ok::<(), karstdb::Error>(())
//! ```
//!
//! # Index
//!
//! | | |
//! |---|---|
//! | [`Db`] | `put`, `delete`, `merge`, `write`, `get`, `multi_get`, iterators, snapshots, column families, flush and compaction, RocksDB's properties |
//! | [`Db::open_read_only`], [`Db::open_as_secondary`] | reading without writing a byte; following what another process writes |
//! | [`Cf`] | a column family with its calls: `db.cf("users")?.get(key)` |
//! | [`Range`] | the entries of a range of keys or of a prefix: a Rust iterator from both ends |
//! | [`OptimisticTransactionDb`] | transactions that are validated when they commit |
//! | [`TransactionDb`] | transactions that lock what they write or read for update |
//! | [`DbWithTtl`] | a database whose entries expire some time after they were written |
//! | [`WriteBatchWithIndex`] | a write batch that can be read before it is written |
//! | [`Checkpoint`], [`BackupEngine`] | copies of an open database: one with hard links; many that share their common files |
//! | [`Db::repair`], [`Db::verify_files`] | recovers the readable data of damaged files; reports damaged files |
//! | [`BulkLoader`] | makes a database from streams of entries |
//! | [`SstFileWriter`], [`Db::ingest_external_file`] | tables made elsewhere, and added to a database atomically |
//! | [`Statistics`], [`perf_context`] | RocksDB's tickers and histograms; costs of one thread's operations |
//! | [`compaction_filter`] | your code that keeps, changes or removes entries during compactions |
//! | [`merge_operator`], [`format::Comparator`], [`format::PrefixExtractor`] | RocksDB's own by name; yours as instances |
//! | [`ErrorKind`] | kinds of errors, grouped by how a caller can react |
//! | [`io`] | environments, file systems, the reactor; for tests, with the feature `testing`, a simulated machine |
//!
//! A database that is opened read-only is not written to, not even its LOCK. Any damage gives an
//! [`Error`] that names the file and the offset.
//!
//! # Features
//!
//! The compressions are features that are on by default: `snappy`, `zlib`, `bzip2`, `lz4`, `zstd`.
//! A build without one refuses to read and to write it, with an error that names the feature.
//! `bytes` makes a [`Value`] a `bytes::Bytes` without a copy. `serde` implements `Serialize` for
//! statistics and for information about files, logs and backups. `testing` adds a simulated machine
//! and other file systems to [`io`].
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[doc(inline)]
pub use karst_engine::pacing::ChargedCache;
#[doc(inline)]
pub use karst_engine::{
    Associative, AssociativeMergeOperator, BackgroundError, BackgroundErrorReason, BackupEngine,
    BackupEngineOptions, BackupInfo, BackupProgress, BlobFileAdditionInfo, BlobFileCreationInfo,
    BlobFileGarbageInfo, BlobGarbageCollectionPolicy, BlobMetaData, BlockBasedTableOptions, BlockCache,
    BottommostLevelCompaction, BulkLoader, CacheOptions, Cf, Checkpoint, ColumnFamily, ColumnFamilyMetaData,
    ColumnFamilyOptions, CompactFilesOptions, CompactOnDeletion, CompactRangeOptions, CompactionFileInfo,
    CompactionFilter, CompactionFilterFactory, CompactionInfo, CompactionStats, CreateBackupOptions,
    DamagedFile, DamagedOptions, DatabaseFile, DatabaseFileKind, Db, DbIterator, DbOptions, DbPath,
    DbWithTtl, Direction, Entries, EntryStream, Error, ErrorKind, EventListener, ExportImportFilesMetaData,
    ExportedFile, ExternalFileIngestionInfo, ExternalSstFileInfo, FileChecksumGenContext,
    FileChecksumGenCrc32cFactory, FileChecksumGenFactory, FileChecksumGenerator, FileCreationInfo,
    FileDeletionInfo, FileOperation, FileOperationInfo, FileTraceReader, FileTraceWriter, FlushInfo,
    FlushOptions, FlushReason, Histogram, HistogramKind, ImportColumnFamilyOptions, IngestExternalFileArg,
    IngestExternalFileOptions, IoPriority, KeyBounds, KeyRange, LevelMetaData, LiveFile,
    LiveFilesStorageInfoOptions, LogLevel, Logger, LostFile, MemTableInfo, MergeOperator, OptionSet, Options,
    PartitionerRequest, PreparedTransaction, Range, RateLimiter, ReadOptions, ReadTier, Recorder,
    RepairReport, RepairedFamily, ReplayOptions, Replayer, RestoreMode, RestoreOptions, Result, Severity,
    ShareFilesNaming, SizeApproximationOptions, Snapshot, SortedRun, SstFileManager, SstFileWriter,
    SstPartitioner, SstPartitionerContext, SstPartitionerFactory, SstPartitionerFixedPrefixFactory,
    Statistics, StatsLevel, StatsSlice, StopBackup, Streamed, SubcompactionInfo, TableFileCreationInfo,
    TableFileCreationReason, TableFilterFn, TablePropertiesCollection, TablePropertiesCollector,
    TablePropertiesCollectorFactory, Ticker, Timestamp, TraceAnswer, TraceFilter, TraceOptions, TraceQuery,
    TraceReader, TraceRecord, TraceWriter, TtlIterator, UserKeyRange, Value, VerifyProgress, VerifyReport,
    WaitForCompactOptions, WalFile, WalUpdate, WalUpdates, WriteBatch, WriteBufferManager, WriteOptions,
    WriteStallCondition, WriteStallInfo, compaction_filter, format, merge_operator, options, perf_context,
    table_properties_collector,
};
#[doc(inline)]
pub use karst_txn::{
    BatchDbIterator, BatchEntry, BatchEntryKind, BatchEntryStream, BatchIterator, BatchParams, DeadlockInfo,
    DeadlockPath, InBatch, LockStatus, OptimisticTransaction, OptimisticTransactionDb,
    OptimisticTransactionDbOptions, OptimisticTransactionOptions, Transaction, TransactionDb,
    TransactionDbOptions, TransactionOptions, TransactionState, WriteBatchWithIndex, WritePolicy,
};

/// The environment: file systems, clock, threads, reactors.
///
/// A database accesses files, clock and threads only through its [`Env`](io::Env). The feature
/// `testing` adds the simulated machine and file systems that are slow, faulty or observed.
pub mod io {
    #[doc(hidden)]
    pub use karst_engine::io::report;
    #[doc(inline)]
    pub use karst_engine::io::{
        Backend, Blocking, Clock, CpuPriority, Disturbance, Env, EnvBuilder, Error, FileId, FileLock,
        FileSystem, HoldTimeHistogram, IdlePolicy, IoStats, JoinError, JoinHandle, MAP_ALIGNMENT,
        MappedRange, MemoryFileSystem, Metadata, OpenFuture, OpenOptions, PolledReactor, PositionalFile,
        PosixFileSystem, Priority, RandomAccessFile, Reactor, ReactorBuilder, ReactorStats, ReadBuf,
        ReadFuture, Result, Sleep, SoftFile, Spawner, SystemClock, Task, TransportKind, WritableFile,
        WriteBackend, WriteFuture, YieldNow, block_on, in_background, net, open, read, reap, reserve_space,
        sleep, spawn_local, sync_file, write_at, yield_now,
    };
    #[cfg(feature = "testing")]
    #[doc(inline)]
    pub use karst_engine::io::{
        Crash, CrashPoint, CrashStates, Disturb, DisturbedFileSystem, Fault, FaultCounts, FaultFileSystem,
        FaultPlan, Faults, Image, Journal, Latency, LatencyFileSystem, Operation, SimulatedFileSystem,
        Simulation, Trouble, testing,
    };
}

/// The code snippets of the README and of the user pages, compiled as doctests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../../../docs/ingest.md")]
#[doc = include_str!("../../../docs/using.md")]
#[doc = include_str!("../../../docs/copies.md")]
#[doc = include_str!("../../../docs/secondary.md")]
#[doc = include_str!("../../../docs/timestamps.md")]
struct Pages;
