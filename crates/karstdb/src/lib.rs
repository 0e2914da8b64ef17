//! KarstDB: an embedded, ordered key-value store that reads and writes RocksDB's databases, through
//! one asynchronous read path.
//!
//! A read never blocks a thread that did not ask for it: cached data is plain code on the caller's
//! stack, and what has to come from storage is read through io_uring, many reads at a time. Every
//! call that may wait has two forms: gets, writes, iterators, flushes, compactions and transactions
//! over the same code; opening, closing, creating and dropping column families and changing options
//! with the asynchronous form on a thread of its own. Dropping the last open [`Db`] blocks, so
//! close it first.
//!
//! | caller | call | who waits |
//! |---|---|---|
//! | a thread | [`Db::get`] | the calling thread, on its own ring; no other thread is involved |
//! | a task of any executor | [`Db::get_async`] | nobody: a `Send` future, completed by the environment's driver |
//! | a task of a [`io::Reactor`] | [`Db::get_async`] | nobody: the same future, on the reactor thread's own ring |
//!
//! # Reading a database
//!
//! ```
//! use karstdb::{BulkLoader, Db, Options};
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("db");
//! # let mut loader = BulkLoader::create(&path, &Options::new())?;
//! # for fruit in ["apple", "banana", "cherry"] { loader.put(fruit.as_bytes(), b"ripe")?; }
//! # loader.finish()?;
//! // Column families, comparators and merge operators are found by the names in the database's own files.
//! let db = Db::open_read_only(&path, &Options::new())?;
//!
//! let value = db.get("apple")?;
//! assert_eq!(value.as_deref(), Some(&b"ripe"[..])); // a `Value` pins its block; nothing is copied
//!
//! // A batch reads all it needs at the same time.
//! let found = db.multi_get(&["banana", "durian"]);
//! assert!(found[0].as_ref().unwrap().is_some() && found[1].as_ref().unwrap().is_none());
//!
//! // Ranges and prefixes are Rust iterators, from both ends; `Db::iter` gives a cursor to seek with.
//! for entry in db.range("b"..)? {
//!     let (key, value) = entry?;
//!     println!("{} = {}", key.escape_ascii(), value.escape_ascii());
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Writing
//!
//! ```
//! use karstdb::{Db, FlushOptions, Options, WriteBatch, WriteOptions};
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("db");
//! let options = Options::new().db(|db| db.create_if_missing = true);
//! let db = Db::open(&path, &options)?;
//! db.put("apple", "ripe")?; // visible to every read that begins from now on
//!
//! // A batch is seen whole or not at all; with `sync` it is on the device when the call returns.
//! let mut batch = WriteBatch::new();
//! batch.put("banana", "green")?;
//! batch.delete("apple")?;
//! db.write(&WriteOptions { sync: true, ..WriteOptions::new() }, &batch)?;
//!
//! let before = db.snapshot();
//! db.put("banana", "ripe")?;
//! let options = karstdb::ReadOptions { snapshot: Some(before), ..karstdb::ReadOptions::new() };
//! assert_eq!(db.get_opt(&options, "banana")?.as_deref(), Some(&b"green"[..]));
//! db.flush(&FlushOptions::default())?; // not needed: memtables are flushed in the background
//! db.close()?;
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
//! assert_eq!(stock.as_deref(), Some(&b"7"[..]));
//! transaction.put("stock", "6")?;
//! assert_eq!(db.get("stock")?.as_deref(), Some(&b"7"[..]));
//! transaction.commit()?;
//! assert_eq!(db.get("stock")?.as_deref(), Some(&b"6"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Asynchronously
//!
//! Futures are `Send` and belong to no executor; iterators become a `Stream` with
//! [`DbIterator::into_stream`], those of transactions with [`BatchDbIterator::into_stream`].
//!
//! ```
//! # use karstdb::{BulkLoader, Db, Options};
//! # let directory = tempfile::tempdir()?;
//! # let mut loader = BulkLoader::create(directory.path(), &Options::new())?;
//! # loader.put(b"apple", b"ripe")?;
//! # loader.finish()?;
//! # let db = Db::open_read_only(directory.path(), &Options::new())?;
//! # pollster::block_on(async {
//! let value = db.get_async(b"apple").await?;
//! let batch = db.multi_get_async(&["apple", "banana"]).await;
//! # assert!(value.is_some() && batch.len() == 2);
//! # Ok::<(), karstdb::Error>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Options
//!
//! A database is opened with the options in its own OPTIONS file; [`Options`] changes what shall be
//! different, by field, by RocksDB's names, or as an option string. Things that no file can hold
//! are given as instances.
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
//! # What is there
//!
//! | | |
//! |---|---|
//! | [`Db`] | `put`, `delete`, `merge`, `write`, `get`, `multi_get`, iterators, snapshots, column families, flush and compaction, RocksDB's properties |
//! | [`Cf`] | a column family with its calls: `db.cf("users")?.get(key)` |
//! | [`Range`] | the entries of a range of keys or of a prefix, a Rust iterator from both ends |
//! | [`OptimisticTransactionDb`] | transactions that are validated when they commit |
//! | [`TransactionDb`] | transactions that lock what they write or read for update |
//! | [`WriteBatchWithIndex`] | a write batch that can be read before it is written |
//! | [`Checkpoint`], [`BackupEngine`] | copies of an open database: with hard links; many that share what they have in common |
//! | [`BulkLoader`] | makes a database from streams of entries |
//! | [`SstFileWriter`], [`Db::ingest_external_file`] | tables made elsewhere, and taken into a database at one moment |
//! | [`Statistics`], [`perf_context`] | RocksDB's tickers and histograms; what a thread's operations cost |
//! | [`compaction_filter`] | your say in which entries survive compactions |
//! | [`merge_operator`], [`format::Comparator`], [`format::PrefixExtractor`] | RocksDB's own by name; yours as instances |
//! | [`io`] | environments, file systems, the reactor; for tests, with the feature `testing`, a simulated machine |
//!
//! A database that is opened read-only is not written to, not even its LOCK, and any damage ends in
//! an [`Error`] that names the file and the offset.
//!
//! # Features
//!
//! By default there are the compressions: `snappy`, `zlib`, `bzip2`, `lz4`, `zstd`. A build without
//! one refuses to read and to write it, with an error that names the feature. `bytes` makes a
//! [`Value`] a `bytes::Bytes` without a copy; `serde` has `Serialize` for statistics and for what
//! is told of files, logs and backups; `testing` adds a simulated machine and other file systems to
//! [`io`].
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[doc(inline)]
pub use karst_engine::pacing::ChargedCache;
#[doc(inline)]
pub use karst_engine::{
    Associative, AssociativeMergeOperator, BackgroundError, BackgroundErrorReason, BackupEngine,
    BackupEngineOptions, BackupInfo, BackupProgress, BlobGarbageCollection, BlockBasedTableOptions,
    BlockCache, BottommostLevelCompaction, BulkLoader, CacheOptions, Cf, Checkpoint, ColumnFamily,
    ColumnFamilyOptions, CompactFilesOptions, CompactOnDeletion, CompactRangeOptions, CompactionFilter,
    CompactionFilterFactory, CompactionInfo, CreateBackupOptions, DamagedOptions, DatabaseFile,
    DatabaseFileKind, Db, DbIterator, DbOptions, DbPath, Direction, Entries, EntryStream, Error, ErrorKind,
    EventListener, ExportImportFilesMetaData, ExportedFile, ExternalFileIngestionInfo, ExternalSstFileInfo,
    FlushInfo, FlushOptions, FlushReason, Histogram, HistogramKind, ImportColumnFamilyOptions,
    IngestExternalFileArg, IngestExternalFileOptions, IoPriority, KeyBounds, KeyRange, LiveFile,
    LiveFilesStorageInfoOptions, MergeOperator, OptionSet, Options, PreparedTransaction, Range, RateLimiter,
    ReadOptions, ReadTier, Recorder, RestoreOptions, Result, Severity, SizeApproximationOptions, Snapshot,
    SortedRun, SstFileWriter, Statistics, StatsLevel, StopBackup, Streamed, Ticker, UserKeyRange, Value,
    WaitForCompactOptions, WalFile, WalUpdate, WalUpdates, WriteBatch, WriteBufferManager, WriteOptions,
    compaction_filter, format, merge_operator, options, perf_context,
};
#[doc(inline)]
pub use karst_txn::{
    BatchDbIterator, BatchEntry, BatchEntryKind, BatchEntryStream, BatchIterator, DeadlockInfo, DeadlockPath,
    InBatch, LockStatus, OptimisticTransaction, OptimisticTransactionDb, OptimisticTransactionDbOptions,
    OptimisticTransactionOptions, Transaction, TransactionDb, TransactionDbOptions, TransactionOptions,
    TransactionState, WriteBatchWithIndex, WritePolicy,
};

/// The environment: file systems, clock, threads, reactors.
///
/// A database reaches the world through its [`Env`](io::Env) alone. With the feature `testing`
/// there are the simulated machine and file systems that are slow, faulty or watched besides.
pub mod io {
    #[doc(inline)]
    pub use karst_engine::io::{
        Backend, Blocking, Clock, Disturbance, Env, EnvBuilder, Error, FileId, FileLock, FileSystem,
        HoldTimeHistogram, IdlePolicy, IoStats, JoinError, JoinHandle, MAP_ALIGNMENT, MappedRange,
        MemoryFileSystem, Metadata, OpenFuture, OpenOptions, PositionalFile, PosixFileSystem, Priority,
        RandomAccessFile, Reactor, ReactorBuilder, ReactorStats, ReadBuf, ReadFuture, Result, Sleep,
        SoftFile, SystemClock, Task, TransportKind, WritableFile, YieldNow, block_on, open, read, sleep,
        spawn_local, yield_now,
    };
    #[cfg(feature = "testing")]
    #[doc(inline)]
    pub use karst_engine::io::{
        Crash, CrashPoint, CrashStates, Disturb, DisturbedFileSystem, Fault, FaultCounts, FaultFileSystem,
        FaultPlan, Faults, Image, Journal, Latency, LatencyFileSystem, Operation, SimulatedFileSystem,
        Simulation, Trouble, testing,
    };
}

/// The snippets of the README and of the pages for users, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../../../docs/ingest.md")]
#[doc = include_str!("../../../docs/using.md")]
#[doc = include_str!("../../../docs/copies.md")]
struct Pages;
