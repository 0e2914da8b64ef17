//! Writing tables and blob files: entries in, files out.
//!
//! | file | holds |
//! |---|---|
//! | this one | [`Outputs`], the common settings of all files of one job |
//! | `run` | [`RunWriter`]: one sorted run as a sequence of tables; large values go to blob files |
//! | `blob_files` | the blob files of a run |
//! | `parallel` | compression of blocks on several threads |
//! | `write_behind` | one file, written while the next piece is being built |
//! | `table_options` | a column family's options in the terms of the table builder |
//!
//! In: internal keys in ascending order with their values; range tombstones in fragments. Out:
//! synced files, described as the MANIFEST requires. The caller syncs the directory and installs
//! the edit; until then the files are unreferenced, and if the job fails the caller removes them.
//!
//! Invariant: adding an entry never waits. The caller checks after each one if a piece is ready and
//! then awaits [`RunWriter::make_room`], so that building and writing overlap, and a bounded part
//! of each open file is in memory.
//!
//! Used by flush, compaction, the bulk loader and the writer of files to be ingested.

mod blob_files;
mod collectors;
mod parallel;
mod run;
mod table_options;
#[cfg(test)]
mod tests;
mod write_behind;

use crate::blob::BlobWarming;
use crate::budget::FileCharge;
use crate::file_checksum::{FileChecksumGenFactory, RunningChecksum};
use crate::open_files::Shared;
use crate::table::warming::Warming;
use karst_base::error::{Error, Result};
use karst_base::events::FileCreations;
use karst_base::options::{DbOptions, FamilyConfig};
use karst_base::pacing::{IoPriority, RateLimiter};
use karst_base::sst_file_manager::SstFileManager;
use karst_base::stats::{HistogramKind, Statistics};
use karst_format::file_name::FileName;
use karst_format::ids::FileNumber;
use karst_format::properties::TableProperties;
use karst_format::table_builder::{TableBuilder, TableIdentity};
use karst_format::version_edit::Temperature;
use karst_io::{Env, WriterOptions};
pub use run::{CutPolicy, EntryHash, NeverCut, RunFiles, RunWriter, WrittenTable, visit_references};
use std::path::{Path, PathBuf};
use std::sync::Arc;
pub use table_options::{TablePlace, table_options};
use write_behind::FileTimes;

/// The rate limit of background writes.
#[derive(Clone, Debug)]
pub struct Throttle {
    /// The limiter called before each write.
    pub limiter: RateLimiter,
    /// Priority of the writes.
    pub priority: IoPriority,
}

/// Allocates numbers for new files, and protects these files from removal as obsolete while the job
/// runs.
pub trait NewFiles: Send + Sync + std::fmt::Debug {
    /// Returns the number of the next table.
    fn new_table(&self) -> FileNumber;
    /// Returns the number of the next blob file.
    fn new_blob_file(&self) -> FileNumber;
}

/// The database's identity, as recorded in table properties.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// Id of the database; empty if it has none.
    pub db_id: String,
    /// Id of the current open of the database.
    pub session_id: String,
    /// Name of the host; empty if not to be recorded.
    pub host_id: String,
}

/// The common settings of all files that one job writes.
#[derive(Clone)]
pub struct Outputs {
    /// The environment that creates and writes the files.
    pub env: Env,
    /// The column family, with its options.
    pub config: Arc<FamilyConfig>,
    /// The database's identity.
    pub identity: Arc<Identity>,
    /// Allocates file numbers.
    pub new_files: Arc<dyn NewFiles>,
    /// Directory of the tables.
    pub table_directory: PathBuf,
    /// The directory's number in the MANIFEST.
    pub path_id: u8,
    /// Temperature hint of tables for the file system.
    pub temperature: Temperature,
    /// Directory of blob files.
    pub blob_directory: PathBuf,
    /// The tables' level and purpose, which select their options.
    pub place: TablePlace,
    /// The order in which the entries reached L0; see `NewFile::epoch_number`.
    pub epoch: u64,
    /// Time when the oldest data among the entries was written, Unix time in seconds; 0 means the
    /// present.
    pub oldest_ancestor_time_s: u64,
    /// Time when the oldest key was written, Unix time in seconds; 0 if unknown.
    pub oldest_key_time_s: u64,
    /// Time when the newest key was written, Unix time in seconds; 0 if unknown.
    pub newest_key_time_s: u64,
    /// Rate limit of the writes, if any.
    pub throttle: Option<Throttle>,
    /// Options of file writing.
    pub writing: WriterOptions,
    /// Inserts written blocks into the block cache, if set.
    pub warming: Option<Warming>,
    /// Inserts written blob values into the blob cache, if set.
    pub blob_warming: Option<BlobWarming>,
    /// Memory budget charged for the files; `None` for none.
    pub memory: Option<Arc<Shared>>,
    /// Computes a checksum of each whole file, if set.
    pub file_checksums: Option<Arc<dyn FileChecksumGenFactory>>,
    /// Tracks the files' space as soon as they are written, and fails if the limit is reached;
    /// `None` if they are tracked once they are in a tree.
    pub space: Option<SstFileManager>,
    /// The statistics.
    pub stats: Arc<Statistics>,
    /// Reports the files to listeners; `None` without listeners.
    pub creations: Option<FileCreations>,
}

impl std::fmt::Debug for Outputs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outputs")
            .field("column_family", &self.config.name)
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

impl Outputs {
    /// Returns true if tables get a hash of their entries, which is compared when they are read
    /// back.
    fn hashes_entries(&self) -> bool {
        /// Bits of `verify_output_flags`: compare entries, of compactions.
        const COMPACTED_ENTRIES: u32 = 1 << 1 | 1 << 10;
        let (options, place) = (&self.config.options, &self.place);
        let flags = options.verify_output_flags & COMPACTED_ENTRIES;
        options.paranoid_file_checks || (!place.flush && flags == COMPACTED_ENTRIES)
    }

    /// Starts the checksum of a new file, if checksums are enabled.
    fn checksum(&self, path: &Path) -> Option<RunningChecksum> {
        self.file_checksums.as_ref().and_then(|factory| RunningChecksum::of_new(factory, path))
    }

    /// Returns the charge for one file's memory while it is written.
    fn file_charge(&self) -> Option<FileCharge> {
        self.memory.as_ref().and_then(|shared| FileCharge::new(shared, write_behind::MEMORY_BYTES))
    }

    /// Returns the origin recorded in the table with this number. `now_s` is the Unix time in
    /// seconds.
    fn table_identity(&self, number: FileNumber, now_s: u64) -> TableIdentity {
        TableIdentity {
            db_id: self.identity.db_id.clone(),
            db_session_id: self.identity.session_id.clone(),
            db_host_id: self.identity.host_id.clone(),
            file_number: number.0,
            column_family_id: Some(self.config.id.0),
            column_family_name: self.config.name.clone(),
            creation_time: self.oldest_ancestor_time_s(now_s),
            oldest_key_time: self.oldest_key_time_s,
            newest_key_time: self.newest_key_time_s,
            file_creation_time: now_s,
            context_seed: 0,
        }
    }

    /// Inserts a table's new blocks into the cache, if enabled. Properties are given once the table
    /// is finished.
    fn warm(
        &self,
        builder: &mut TableBuilder,
        number: FileNumber,
        properties: Option<&TableProperties>,
    ) -> Result<()> {
        let Some(warming) = &self.warming else { return Ok(()) };
        let taken = warming.take(number, builder.take_blocks(), properties);
        taken.map_err(|corruption| Error::in_file(&self.table_path(number), 0, corruption))
    }

    fn oldest_ancestor_time_s(&self, now_s: u64) -> u64 {
        if self.oldest_ancestor_time_s == 0 { now_s } else { self.oldest_ancestor_time_s }
    }

    /// Returns the histograms of a file's times: `sync`, `write`, and the one for writes of this
    /// kind of job.
    fn times(&self, sync: HistogramKind, write: HistogramKind) -> FileTimes {
        let of_job = match self.place.flush {
            true => HistogramKind::FileWriteFlushMicros,
            false => HistogramKind::FileWriteCompactionMicros,
        };
        FileTimes { stats: self.stats.clone(), sync, writes: [write, of_job] }
    }

    /// Adds a written file to the tracked space.
    fn takes_room(&self, path: impl FnOnce() -> PathBuf, bytes: u64) -> Result<()> {
        let Some(space) = &self.space else { return Ok(()) };
        space.add(path(), bytes);
        space.check()
    }

    fn table_path(&self, number: FileNumber) -> PathBuf {
        match &self.place.external {
            Some(file) => file.clone(),
            None => self.table_directory.join(FileName::Table(number).to_string()),
        }
    }

    fn blob_path(&self, number: FileNumber) -> PathBuf {
        self.blob_directory.join(FileName::Blob(number).to_string())
    }
}

/// Returns the options of writing tables and blob files.
pub fn writer_options(options: &DbOptions) -> WriterOptions {
    WriterOptions {
        window: write_behind::WINDOW_BYTES,
        sync_every: options.bytes_per_sync,
        strict: options.strict_bytes_per_sync,
        fsync: options.use_fsync,
        direct: options.use_direct_io_for_flush_and_compaction,
        ..WriterOptions::default()
    }
}

/// Returns the host name recorded in tables, from `db_host_id`.
pub fn host_id(env: &Env, options: &DbOptions) -> String {
    match options.db_host_id.as_str() {
        "__hostname__" => env.host_name(),
        given => given.to_owned(),
    }
}
