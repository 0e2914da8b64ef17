//! Writing tables and blob files: entries in, files out.
//!
//! | file | holds |
//! |---|---|
//! | this one | [`Outputs`], what all files of one job have in common |
//! | `run` | [`RunWriter`]: one sorted run as a sequence of tables, values that are large enough in blob files |
//! | `blob_files` | the blob files of a run |
//! | `parallel` | compressing blocks on several threads |
//! | `write_behind` | one file, written while the next piece is being built |
//! | `table_options` | a column family's options in the terms of the table builder |
//!
//! In: internal keys in ascending order with their values; range tombstones in fragments. Out:
//! synced files, described as the MANIFEST needs them. The caller syncs the directory and installs
//! the edit; until then nobody refers to the files, and if the job fails the caller removes them.
//!
//! Invariant: adding an entry never waits. The caller asks after each one whether a piece is ready
//! and awaits [`RunWriter::make_room`] then, so that building and writing go on at the same time,
//! and a bounded part of each open file is in memory.
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

/// Slows background writes down, as the rate limiter of the database says.
#[derive(Clone, Debug)]
pub struct Throttle {
    /// What is asked before a write.
    pub limiter: RateLimiter,
    /// Whose turn it is before others.
    pub priority: IoPriority,
}

/// Hands out numbers for new files, and keeps the files of these numbers from being taken for
/// obsolete while the job runs.
pub trait NewFiles: Send + Sync + std::fmt::Debug {
    /// The number of the next table.
    fn new_table(&self) -> FileNumber;
    /// The number of the next blob file.
    fn new_blob_file(&self) -> FileNumber;
}

/// Who the database is, as tables say it in their properties.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// Identity of the database, empty if it has none.
    pub db_id: String,
    /// Identity of the time since it was opened.
    pub session_id: String,
    /// Name of the host; empty if it is not to be told.
    pub host_id: String,
}

/// What all files that one job writes have in common.
#[derive(Clone)]
pub struct Outputs {
    /// Creates and writes the files.
    pub env: Env,
    /// The column family, with its options.
    pub config: Arc<FamilyConfig>,
    /// Who writes them.
    pub identity: Arc<Identity>,
    /// Gives out their numbers.
    pub new_files: Arc<dyn NewFiles>,
    /// Where tables go, and the number under which the MANIFEST knows the directory.
    pub table_directory: PathBuf,
    /// The directory they go to, by its number.
    pub path_id: u8,
    /// Where the file system is to keep tables.
    pub temperature: Temperature,
    /// Where blob files go.
    pub blob_directory: PathBuf,
    /// What the options say of tables here.
    pub place: TablePlace,
    /// The order in which the entries reached L0; see `NewFile::epoch_number`.
    pub epoch: u64,
    /// When the oldest data among the entries was written, Unix time in seconds; 0 if that is the
    /// present.
    pub oldest_ancestor_time_s: u64,
    /// When the oldest key was written, Unix time in seconds; 0 unknown.
    pub oldest_key_time_s: u64,
    /// When the newest key was written, Unix time in seconds; 0 unknown.
    pub newest_key_time_s: u64,
    /// What holds the writing up, if anything.
    pub throttle: Option<Throttle>,
    /// How files are written.
    pub writing: WriterOptions,
    /// What is written goes into the block cache too.
    pub warming: Option<Warming>,
    /// Values of blob files go into the blob cache too.
    pub blob_warming: Option<BlobWarming>,
    /// What the memory of the files counts against; `None` for nothing.
    pub memory: Option<Arc<Shared>>,
    /// Makes a checksum of each whole file.
    pub file_checksums: Option<Arc<dyn FileChecksumGenFactory>>,
    /// What the files count with as soon as they are written, and fail if there is no room for
    /// them; `None` where they count once they are in a tree.
    pub space: Option<SstFileManager>,
    /// What is counted.
    pub stats: Arc<Statistics>,
    /// Who is told of the files, if anybody.
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
    /// Whether tables get a hash of their entries, by which they are compared when they are read
    /// back.
    fn hashes_entries(&self) -> bool {
        /// Bits of `verify_output_flags`: entries are compared, those of compactions.
        const COMPACTED_ENTRIES: u32 = 1 << 1 | 1 << 10;
        let (options, place) = (&self.config.options, &self.place);
        let flags = options.verify_output_flags & COMPACTED_ENTRIES;
        options.paranoid_file_checks || (!place.flush && flags == COMPACTED_ENTRIES)
    }

    /// The checksum of a file that is begun, if there is to be one.
    fn checksum(&self, path: &Path) -> Option<RunningChecksum> {
        self.file_checksums.as_ref().and_then(|factory| RunningChecksum::of_new(factory, path))
    }

    /// Counts what one file has in memory while it is written.
    fn file_charge(&self) -> Option<FileCharge> {
        self.memory.as_ref().and_then(|shared| FileCharge::new(shared, write_behind::MEMORY_BYTES))
    }

    /// What a table with this number is told about its origin. `now_s` is the Unix time in seconds.
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

    /// Puts the blocks into the cache that a table has got since the last time, if they belong
    /// there. Its properties are known when it is finished.
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

    /// Where the times of a file are counted: `sync` and, besides what says which job it was,
    /// `write`.
    fn times(&self, sync: HistogramKind, write: HistogramKind) -> FileTimes {
        let of_job = match self.place.flush {
            true => HistogramKind::FileWriteFlushMicros,
            false => HistogramKind::FileWriteCompactionMicros,
        };
        FileTimes { stats: self.stats.clone(), sync, writes: [write, of_job] }
    }

    /// Counts a file that was written.
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

/// How tables and blob files are written.
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

/// The name of the host that tables tell, from `db_host_id`.
pub fn host_id(env: &Env, options: &DbOptions) -> String {
    match options.db_host_id.as_str() {
        "__hostname__" => env.host_name(),
        given => given.to_owned(),
    }
}
