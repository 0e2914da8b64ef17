//! The open tables of a column family.
//!
//! In: a file of a version. Out: its open [`Table`], at once if it is open, else through `Needs`
//! and [`TableCache::open`]. `open_files.rs` defines the time a table stays open.
//!
//! Opens are not shared across threads, because a reader that waits for another reader's open would
//! wait for a future which may never be polled again, or whose reads belong to another thread's
//! ring. Inside one operation an open is shared (see `fetch`); two threads that open a file at the
//! same moment both do it, and the first to finish is kept.

use crate::blob::BlobFiles;
use crate::block::CachedBlock;
use crate::open_files::Shared;
use crate::table::{FilterHistory, Table};
use karst_base::error::Result;
use karst_base::options::{BlockBasedTableOptions, DbOptions, FamilyConfig};
use karst_base::stats::{HistogramKind, Ticker};
use karst_base::sync::atomic::{AtomicU64, Ordering};
use karst_format::comparator::Comparator;
use karst_format::ids::FileNumber;
use karst_format::properties::TableProperties;
use karst_format::slice_transform::PrefixExtractor;
use karst_lsm::pick::CompactionInput;
use karst_lsm::{FileCounts, FileMetadata, Version};
use karst_mem::BlockCache;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;

/// The column family options that affect reading its tables.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// The comparator of keys.
    pub comparator: Comparator,
    /// The table options.
    pub table_options: BlockBasedTableOptions,
    /// Extracts the prefix of a key, if configured.
    pub prefix_extractor: Option<PrefixExtractor>,
    /// Maximum size in bytes of an L0 file that counts as just flushed for metadata pinning.
    pub(crate) max_flushed_bytes: u64,
    /// The last level of the tree, even if it has no files.
    last_level: u32,
}

/// The open tables of a column family, and the state for reading them.
#[derive(Debug)]
pub struct TableCache {
    /// State shared with other column families.
    pub shared: Arc<Shared>,
    /// The family's blob files.
    pub blobs: Arc<BlobFiles>,
    /// The relevant options.
    pub configuration: Configuration,
    /// The longest tail of a table opened so far, in bytes; 0 before the first.
    pub(crate) typical_tail_bytes: AtomicU64,
    /// Recent filter results, used by lookups that wait for filters.
    pub filter_history: FilterHistory,
}

impl TableCache {
    /// Creates a cache without open tables. `blob_cache` is the cache of blob values, if
    /// configured.
    pub fn new(
        shared: Arc<Shared>,
        config: &FamilyConfig,
        blob_cache: Option<Arc<BlockCache<CachedBlock>>>,
    ) -> Self {
        let options = &config.options;
        TableCache {
            blobs: Arc::new(BlobFiles::new(shared.clone(), config.id, blob_cache)),
            shared,
            configuration: Configuration {
                comparator: config.comparator.clone(),
                table_options: options.table_factory.block_based.clone(),
                prefix_extractor: config.prefix_extractor.clone(),
                max_flushed_bytes: options.write_buffer_size as u64 / 2 * 3,
                last_level: u32::try_from(options.num_levels).unwrap_or(1).saturating_sub(1),
            },
            typical_tail_bytes: AtomicU64::new(0),
            filter_history: FilterHistory::default(),
        }
    }

    /// Returns a table cache for a job that reads with O_DIRECT, and copies of its input files,
    /// which hold the tables that it opens.
    ///
    /// The files are copied so that user reads keep their own open tables.
    pub fn reading_directly(&self, inputs: &[CompactionInput]) -> (Arc<Self>, Vec<CompactionInput>) {
        let copy = |file: &Arc<FileMetadata>| Arc::new(FileMetadata::of_same_file((**file).clone(), file));
        let copies = inputs.iter().map(|input| CompactionInput {
            level: input.level,
            files: input.files.iter().map(copy).collect(),
        });
        let tables = TableCache {
            shared: Arc::new(self.shared.reading_directly()),
            blobs: self.blobs.clone(),
            configuration: self.configuration.clone(),
            typical_tail_bytes: AtomicU64::new(self.typical_tail_bytes.load(Ordering::Relaxed)),
            filter_history: FilterHistory::default(),
        };
        (Arc::new(tables), copies.collect())
    }

    /// Returns true if no level is below `level`.
    pub(crate) fn is_last_level(&self, level: u32) -> bool {
        level == self.configuration.last_level
    }

    /// Returns a file's id within the process.
    pub(crate) fn file_id(&self, number: FileNumber) -> u64 {
        self.shared.file_id(number)
    }

    /// Returns the file's table if it stays open with the file.
    #[inline]
    pub fn opened<'a>(&self, file: &'a FileMetadata) -> Option<&'a Arc<Table>> {
        file.attachment::<Arc<Table>>()
    }

    /// Returns the file's table if it is open under a limit on open files.
    pub fn lookup(&self, file: &FileMetadata) -> Option<Arc<Table>> {
        let open = &self.shared.open_files;
        if open.is_limited() { open.get(file.number) } else { None }
    }

    /// Opens the file's table and keeps it open. If another reader was quicker, returns its table.
    pub async fn open(self: Arc<Self>, file: &Arc<FileMetadata>, level: u32) -> Result<Arc<Table>> {
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
        if self.shared.open_files.is_limited() {
            return Ok(self.shared.open_files.keep(file.number, table));
        }
        match file.attach(table) {
            Some(kept) => Ok(kept.clone()),
            None => unreachable!("only tables are attached to table files"),
        }
    }
}

/// Returns the table counts that compaction decisions use.
pub fn file_counts(properties: &TableProperties) -> FileCounts {
    FileCounts {
        entries: properties.num_entries,
        deletions: properties.num_deletions,
        range_deletions: properties.num_range_deletions,
        raw_key_bytes: properties.raw_key_size,
        raw_value_bytes: properties.raw_value_size,
        newest_key_time_s: properties.newest_key_time,
    }
}

/// Returns the number of tables opened concurrently when all are opened.
pub fn opened_together(options: &DbOptions) -> usize {
    usize::try_from(options.max_file_opening_threads).unwrap_or(1).max(1)
}

impl TableCache {
    /// Opens all tables of `version`, several at the same time, so that a damaged or missing file
    /// is found when the database is opened. For databases whose files stay open. Stops at the
    /// first error. At most `together` are opened at a time: RocksDB's `max_file_opening_threads`,
    /// although the environment's blocking threads and asynchronous reads do the work.
    pub async fn open_all(self: &Arc<Self>, version: &Version, together: usize) -> Result<()> {
        let mut files = version.all_files().collect::<Vec<_>>().into_iter();
        let mut running = Vec::new();
        poll_fn(|cx| {
            loop {
                while running.len() < together.max(1)
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
