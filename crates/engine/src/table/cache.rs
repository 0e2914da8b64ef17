//! The open tables of a column family, and what they share with the rest of the database.
//!
//! In: a file of a version. Out: its open [`Table`], at once if it is open, else through `Pending` and [`TableCache::open`].
//!
//! With `max_open_files = -1` (the default) a table stays open for as long as a version contains its file, and is found through
//! the file itself: no map, no lock, no reference count. With a limit, open files are kept in one table for the whole database and
//! the ones not used lately are closed; a read that uses one keeps it open.
//!
//! Why no single flight across threads: a reader that waits for another reader's open waits for a future which may never be
//! polled again, or whose reads are bound to another thread's ring. Inside one operation an open is shared (see `fetch`); two threads
//! that open the same file at the same moment both do it, and the first to finish is kept.

use karst_base::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::collections::BTreeMap;
use std::collections::{HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::path::PathBuf;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use karst_base::sync::{Mutex, RwLock};
use karst_format::comparator::Comparator;
use karst_format::file_name::FileName;
use karst_format::ids::FileNumber;
use karst_format::properties::TableProperties;
use karst_format::slice_transform::PrefixExtractor;
use karst_io::Env;
use karst_lsm::pick::CompactionInput;
use karst_lsm::{FileCounts, FileMetadata, Version};
use karst_mem::BlockCache;

use crate::blob::{BlobFile, BlobFiles};
use crate::table::block::CachedBlock;
use crate::table::{FilterHistory, Table};
use karst_base::error::{Error, Result};
use karst_base::options::{BlockBasedTableOptions, DbOptions, FamilyConfig};
use karst_base::perf_context::{self, PerfMetric};
use karst_base::stats::{HistogramKind, Statistics, Ticker};

/// Bits of a file's id that hold its number; the rest tells databases of one process apart.
const FILE_NUMBER_BITS: u32 = 40;

/// What all column families of a database share for reading files.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) env: Env,
    pub(crate) cache: Arc<BlockCache<CachedBlock>>,
    pub(crate) stats: Arc<Statistics>,
    /// Directories of table files, by path id. Never empty.
    pub(crate) directories: Vec<PathBuf>,
    /// Files are read with O_DIRECT.
    pub(crate) use_direct_reads: bool,
    /// Where the file system refuses that, they are read without.
    pub(crate) may_read_buffered: bool,
    /// A table must have the unique id that the MANIFEST says, if it says any.
    pub(crate) verify_unique_ids: bool,
    /// Iterators ask prefix filters only where their options say so.
    pub(crate) prefix_seek_opt_in_only: bool,
    /// Tables, reads and iterators count against the cache.
    pub(super) charges_memory: bool,
    /// None: files stay open.
    open_files: Option<OpenFiles>,
    /// The blob files that stay open; tables are kept with their metadata.
    /// Lock: taken for one look at the map, and only for a value that no cache has.
    open_blobs: RwLock<BTreeMap<FileNumber, Arc<BlobFile>>>,
    instance: u64,
}

impl Shared {
    /// As `options` have it.
    pub(crate) fn new(
        env: Env,
        cache: Arc<BlockCache<CachedBlock>>,
        stats: Arc<Statistics>,
        directories: Vec<PathBuf>,
        options: &DbOptions,
        charges_memory: bool,
    ) -> Self {
        let instance = cache.new_user();
        // Compat: a negative number stands for no limit.
        let open_files = usize::try_from(options.max_open_files).ok().map(OpenFiles::new);
        Shared {
            env,
            cache,
            stats,
            directories,
            use_direct_reads: options.use_direct_reads,
            may_read_buffered: false,
            verify_unique_ids: options.verify_sst_unique_id_in_manifest,
            prefix_seek_opt_in_only: options.prefix_seek_opt_in_only,
            charges_memory,
            open_files,
            open_blobs: RwLock::default(),
            instance,
        }
    }

    /// The same files in the same cache, read with O_DIRECT where that is to be had. What it opens stays open with the metadata that it is opened by.
    fn reading_directly(&self) -> Shared {
        Shared {
            env: self.env.clone(),
            cache: self.cache.clone(),
            stats: self.stats.clone(),
            directories: self.directories.clone(),
            use_direct_reads: true,
            may_read_buffered: true,
            verify_unique_ids: self.verify_unique_ids,
            prefix_seek_opt_in_only: self.prefix_seek_opt_in_only,
            charges_memory: self.charges_memory,
            open_files: None,
            open_blobs: RwLock::default(),
            instance: self.instance,
        }
    }

    /// Keeps at most so many files open from now on, if there is a limit at all.
    pub(crate) fn set_max_open_files(&self, max_open_files: usize) {
        if let Some(files) = &self.open_files {
            files.set_limit(max_open_files);
        }
    }

    /// The time, if times are collected; else the clock is not read.
    #[inline]
    pub(crate) fn start_timer(&self) -> Option<Duration> {
        self.stats.start_timer(&self.env)
    }

    /// Adds the time since `began` to a histogram, if times are collected.
    #[inline]
    pub(crate) fn measure_since(&self, kind: HistogramKind, began: Option<Duration>) {
        self.stats.measure_since(&self.env, &[kind], began);
    }

    /// Does a decompression and takes its time, if anybody wants to know.
    #[inline]
    pub(crate) fn time_decompression<R>(&self, work: impl FnOnce() -> R) -> R {
        let counts = self.stats.detailed_timers_enabled();
        let (result, nanos) = perf_context::timed(&self.env, PerfMetric::BlockDecompressTime, counts, work);
        if counts {
            self.stats.measure(HistogramKind::DecompressionTimesNanos, nanos);
        }
        result
    }

    /// Names a file within the process: the first half of the cache keys of its blocks.
    ///
    /// Why not from the file's unique id: a counter cannot collide, needs no read, and lasts over closing and reopening the file.
    pub(crate) fn file_id(&self, number: FileNumber) -> u64 {
        (self.instance << FILE_NUMBER_BITS) | (number.0 & ((1 << FILE_NUMBER_BITS) - 1))
    }

    /// The path of a table file.
    pub(crate) fn table_path(&self, number: FileNumber, path_id: u8) -> Result<PathBuf> {
        let directory = self.directories.get(usize::from(path_id)).ok_or_else(|| {
            Error::invalid_argument(format!(
                "table file {} is in path {path_id}, but only {} paths are configured",
                number.0,
                self.directories.len()
            ))
        })?;
        Ok(directory.join(FileName::Table(number).to_string()))
    }

    /// The path of a blob file.
    pub(crate) fn blob_path(&self, number: FileNumber) -> PathBuf {
        self.directories[0].join(FileName::Blob(number).to_string())
    }

    pub(crate) fn open_blob(&self, number: FileNumber) -> Option<Arc<BlobFile>> {
        let Some(files) = &self.open_files else { return self.open_blobs.read().get(&number).cloned() };
        match files.get(number)? {
            OpenFile::Blob(file) => Some(file),
            OpenFile::Table(_) => None,
        }
    }

    /// Closes a file that is about to be removed, once no read uses it any more.
    pub(crate) fn forget(&self, number: FileNumber) {
        let blob = self.open_blobs.write().remove(&number);
        let limited = self.open_files.as_ref().and_then(|files| files.forget(number));
        drop((blob, limited));
    }

    /// Remembers an open blob file; returns the one that is kept.
    pub(crate) fn keep_blob(&self, number: FileNumber, file: Arc<BlobFile>) -> Arc<BlobFile> {
        let Some(files) = &self.open_files else {
            return self.open_blobs.write().entry(number).or_insert(file).clone();
        };
        match files.keep(number, OpenFile::Blob(file.clone())) {
            OpenFile::Blob(kept) => kept,
            OpenFile::Table(_) => file,
        }
    }
}

/// How a column family reads its tables.
#[derive(Debug)]
pub(crate) struct TableCache {
    pub(crate) shared: Arc<Shared>,
    pub(crate) blobs: Arc<BlobFiles>,
    pub(crate) comparator: Comparator,
    pub(crate) table_options: BlockBasedTableOptions,
    pub(crate) prefix_extractor: Option<PrefixExtractor>,
    /// The longest tail of a table opened so far, in bytes; 0 before the first.
    pub(crate) typical_tail_bytes: AtomicU64,
    /// Files of L0 up to this size count as just flushed where only those pin their metadata, in bytes.
    pub(crate) max_flushed_bytes: u64,
    /// The bottom of the tree, whether it has files or not.
    last_level: u32,
    /// What lookups that wait for filters go by.
    pub(crate) filter_history: FilterHistory,
}

impl TableCache {
    /// No table open yet. `blob_cache` is the cache of blob values, if one is configured.
    pub(crate) fn new(
        shared: Arc<Shared>,
        config: &FamilyConfig,
        blob_cache: Option<Arc<BlockCache<CachedBlock>>>,
    ) -> Self {
        let options = &config.options;
        TableCache {
            blobs: Arc::new(BlobFiles::new(shared.clone(), config.id, blob_cache)),
            shared,
            comparator: config.comparator.clone(),
            table_options: options.table_factory.block_based.clone(),
            prefix_extractor: config.prefix_extractor.clone(),
            typical_tail_bytes: AtomicU64::new(0),
            max_flushed_bytes: options.write_buffer_size as u64 / 2 * 3,
            last_level: u32::try_from(options.num_levels).unwrap_or(1).saturating_sub(1),
            filter_history: FilterHistory::default(),
        }
    }

    /// The same for a job that reads with O_DIRECT, and copies of its input files, which hold the tables that it opens.
    ///
    /// Why copies: those who read for users go on with the tables that they have.
    pub(crate) fn reading_directly(&self, inputs: &[CompactionInput]) -> (Arc<Self>, Vec<CompactionInput>) {
        let copy = |file: &Arc<FileMetadata>| Arc::new(FileMetadata::of_same_file((**file).clone(), file));
        let copies = inputs.iter().map(|input| CompactionInput {
            level: input.level,
            files: input.files.iter().map(copy).collect(),
        });
        let tables = TableCache {
            shared: Arc::new(self.shared.reading_directly()),
            blobs: self.blobs.clone(),
            comparator: self.comparator.clone(),
            table_options: self.table_options.clone(),
            prefix_extractor: self.prefix_extractor.clone(),
            typical_tail_bytes: AtomicU64::new(self.typical_tail_bytes.load(Ordering::Relaxed)),
            max_flushed_bytes: self.max_flushed_bytes,
            last_level: self.last_level,
            filter_history: FilterHistory::default(),
        };
        (Arc::new(tables), copies.collect())
    }

    /// Whether nothing can lie below `level`.
    pub(crate) fn is_last_level(&self, level: u32) -> bool {
        level == self.last_level
    }

    /// Names a file within the process.
    pub(crate) fn file_id(&self, number: FileNumber) -> u64 {
        self.shared.file_id(number)
    }

    /// The file's table if it stays open with the file.
    #[inline]
    pub(crate) fn opened<'a>(&self, file: &'a FileMetadata) -> Option<&'a Arc<Table>> {
        file.attachment::<Arc<Table>>()
    }

    /// The file's table if it is open under a limit on open files.
    pub(crate) fn lookup(&self, file: &FileMetadata) -> Option<Arc<Table>> {
        match self.shared.open_files.as_ref()?.get(file.number)? {
            OpenFile::Table(table) => Some(table),
            OpenFile::Blob(_) => None,
        }
    }

    /// Opens the file's table and keeps it open. If another reader was quicker, its table is returned.
    pub(crate) async fn open(self: Arc<Self>, file: &Arc<FileMetadata>, level: u32) -> Result<Arc<Table>> {
        if let Some(table) = self.opened(file) {
            return Ok(table.clone());
        }
        let shared = &self.shared;
        let began = shared.start_timer();
        let table = Table::open(&self, file, level).await;
        shared.measure_since(HistogramKind::TableOpenIoMicros, began);
        let table = match table {
            Ok(table) => Arc::new(table),
            Err(error) => {
                self.shared.stats.tick(Ticker::NoFileErrors);
                return Err(error);
            }
        };
        self.shared.stats.tick(Ticker::NoFileOpens);
        file.learn_counts(file_counts(table.properties()));
        match &self.shared.open_files {
            None => match file.attach(table.clone()) {
                Some(kept) => Ok(kept.clone()),
                None => unreachable!("only tables are attached to table files"),
            },
            Some(open) => match open.keep(file.number, OpenFile::Table(table.clone())) {
                OpenFile::Table(kept) => Ok(kept),
                OpenFile::Blob(_) => Ok(table),
            },
        }
    }
}

/// What decisions about compaction want to know of a table.
pub(crate) fn file_counts(properties: &TableProperties) -> FileCounts {
    FileCounts {
        entries: properties.num_entries,
        deletions: properties.num_deletions,
        range_deletions: properties.num_range_deletions,
        raw_key_bytes: properties.raw_key_size,
        raw_value_bytes: properties.raw_value_size,
        newest_key_time_s: properties.newest_key_time,
    }
}

/// How many tables are opened at the same time when all are. Why: the work is done by the environment's blocking threads and by
/// reads in flight; more would only hold more tails in memory.
const OPENED_TOGETHER: usize = 32;

impl TableCache {
    /// Opens all tables of `version`, many at the same time. For databases whose files stay open: a damaged or missing file is then
    /// found when the database is opened. Stops at the first error.
    pub(crate) async fn open_all(self: &Arc<Self>, version: &Version) -> Result<()> {
        let mut files = version.all_files().collect::<Vec<_>>().into_iter();
        let mut running = Vec::new();
        poll_fn(|cx| {
            loop {
                while running.len() < OPENED_TOGETHER
                    && let Some((level, file)) = files.next()
                {
                    let (tables, file) = (self.clone(), file.clone());
                    running.push(Box::pin(
                        async move { tables.open(&file, u32::from(level.0)).await.map(drop) },
                    ));
                }
                let before = running.len();
                let mut index = 0;
                while index < running.len() {
                    match running[index].as_mut().poll(cx) {
                        Poll::Ready(Ok(())) => drop(running.swap_remove(index)),
                        Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                        Poll::Pending => index += 1,
                    }
                }
                if running.is_empty() && files.len() == 0 {
                    return Poll::Ready(Ok(()));
                }
                if running.len() == before {
                    return Poll::Pending;
                }
            }
        })
        .await
    }
}

#[derive(Clone, Debug)]
enum OpenFile {
    Table(Arc<Table>),
    Blob(Arc<BlobFile>),
}

/// Open files under a limit. Second chance: a file used since it was last considered is considered again later.
#[derive(Debug)]
struct OpenFiles {
    capacity: AtomicUsize,
    /// Lock: held for a map operation only, never while a file is opened or dropped.
    inner: Mutex<OpenFilesInner>,
}

#[derive(Debug, Default)]
struct OpenFilesInner {
    files: HashMap<FileNumber, (OpenFile, bool)>,
    order: VecDeque<FileNumber>,
}

/// Files that a database needs besides tables: logs, MANIFEST, lock. RocksDB keeps as many back.
const RESERVED_FILES: usize = 10;

impl OpenFiles {
    fn new(max_open_files: usize) -> Self {
        let files = OpenFiles { capacity: AtomicUsize::new(0), inner: Mutex::default() };
        files.set_limit(max_open_files);
        files
    }

    /// Files beyond a lowered limit are closed when others are opened.
    fn set_limit(&self, max_open_files: usize) {
        let capacity = max_open_files.saturating_sub(RESERVED_FILES).max(1);
        // Ordering: a number only.
        self.capacity.store(capacity, Ordering::Relaxed);
    }

    fn get(&self, number: FileNumber) -> Option<OpenFile> {
        let mut inner = self.inner.lock();
        let (file, used) = inner.files.get_mut(&number)?;
        *used = true;
        Some(file.clone())
    }

    /// Takes a file out; it is closed when the last read that uses it ends.
    fn forget(&self, number: FileNumber) -> Option<OpenFile> {
        let mut inner = self.inner.lock();
        let (file, _) = inner.files.remove(&number)?;
        inner.order.retain(|other| *other != number);
        Some(file)
    }

    /// Keeps `file` unless one is kept under this number already; returns the one that is.
    fn keep(&self, number: FileNumber, file: OpenFile) -> OpenFile {
        let mut dropped = Vec::new();
        let mut inner = self.inner.lock();
        if let Some((kept, used)) = inner.files.get_mut(&number) {
            *used = true;
            return kept.clone();
        }
        while inner.files.len() >= self.capacity.load(Ordering::Relaxed)
            && let Some(candidate) = inner.order.pop_front()
        {
            match inner.files.get_mut(&candidate) {
                Some((_, used)) if *used => {
                    *used = false;
                    inner.order.push_back(candidate);
                }
                _ => dropped.push(inner.files.remove(&candidate)),
            }
        }
        inner.files.insert(number, (file.clone(), false));
        inner.order.push_back(number);
        drop(inner);
        drop(dropped);
        file
    }
}
