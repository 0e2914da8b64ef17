//! Events: background activity, reported to listeners and written to the LOG file.
//!
//! In: begins and ends of jobs, errors, stalls. Out: one line each in LOG, in a form that RocksDB
//! users know, or to the user's logger; and a call of every listener.
//!
//! Invariant: nothing here fails a job, not even a panicking listener. If LOG cannot be written,
//! `tracing` reports it once, and work continues without LOG.

mod date;
mod file_io;
mod files;
mod info_log;
mod jobs;

pub use file_io::FileIoEvents;
pub use files::{
    BlobFileCreationInfo, FileCreationInfo, FileCreations, FileDeletionInfo, MemTableInfo,
    TableFileCreationInfo, TableFileCreationReason,
};
pub use info_log::{InfoLog, Logger};
pub use jobs::{
    BlobFileAdditionInfo, BlobFileGarbageInfo, CompactionFileInfo, CompactionStats, WriteStallCondition,
    WriteStallInfo,
};

use crate::error::Error;
use crate::health::BackgroundError;
use crate::options::{CompactOnDeletion, FamilyConfig};
use crate::pacing::describe;
use crate::sync::counting::{AtomicBool, AtomicU64, Ordering};
use karst_format::ids::Level;
use karst_format::options::choice::Compression;
use karst_format::options::{BlockBasedTableOptions, ColumnFamilyOptions, DbOptions, OptionSet};
use karst_format::properties::TableProperties;
use karst_io::{FileOperationInfo, report};
use karst_lsm::stall::WriteStall;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The importance of a LOG line. RocksDB's levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Details that help to find a defect.
    Debug,
    /// Normal activity.
    Info,
    /// A problem the database survives.
    Warn,
    /// A failure.
    Error,
    /// A failure that ends the database's operation.
    Fatal,
    /// The first lines of every LOG file.
    Header,
}

/// Maximum number of column families whose full options are written to LOG. RocksDB's number.
const DUMPED_FAMILIES: usize = 10;

/// Formats an option's value as RocksDB's LOG does: booleans as digits.
fn dumped(value: String) -> String {
    match value.as_str() {
        "true" => "1".into(),
        "false" => "0".into(),
        _ => value,
    }
}

/// Formats a table properties collector as RocksDB's LOG does.
fn collectors_text(value: &str) -> String {
    match CompactOnDeletion::from_option_text(value) {
        Some(rule) => format!(
            "{} (Sliding window size = {} Deletion trigger = {} Deletion ratio = {})",
            CompactOnDeletion::NAME,
            rule.window_size,
            rule.deletion_trigger,
            rule.deletion_ratio
        ),
        None => value.to_owned(),
    }
}

/// The reason for a flush. RocksDB's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FlushReason {
    /// A memtable was full.
    WriteBufferFull,
    /// All memtables together exceeded their memory budget.
    WriteBufferManager,
    /// The logs grew too long.
    WalFull,
    /// The user called for it.
    ManualFlush,
    /// A manual compaction needed all entries in tables.
    ManualCompaction,
    /// The database was closed.
    ShutDown,
    /// The database was opened, and its logs held entries.
    Recovery,
    /// Recovery from a background error.
    ErrorRecovery,
    /// The database's files are being copied.
    GetLiveFiles,
    /// The key range of an ingested file overlaps a memtable.
    ExternalFileIngestion,
}

impl FlushReason {
    /// RocksDB's text.
    pub fn name(self) -> &'static str {
        match self {
            Self::WriteBufferFull => "Write Buffer Full",
            Self::WriteBufferManager => "Write Buffer Manager",
            Self::WalFull => "WAL Full",
            Self::ManualFlush => "Manual Flush",
            Self::ManualCompaction => "Manual Compaction",
            Self::ShutDown => "Shut down",
            Self::Recovery => "Recovery",
            Self::ErrorRecovery => "Error Recovery",
            Self::GetLiveFiles => "Get Live Files",
            Self::ExternalFileIngestion => "External File Ingestion",
        }
    }
}

/// A flush, as reported to listeners.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FlushInfo {
    /// The column family.
    pub column_family: String,
    /// The column family's id.
    pub column_family_id: u32,
    /// The job's number.
    pub job: u64,
    /// The reason for the flush.
    pub reason: FlushReason,
    /// Number of memtables flushed together.
    pub memtables: usize,
    /// Entries in them, range tombstones included.
    pub entries: u64,
    /// Memory of those memtables, in bytes.
    pub memory_bytes: u64,
    /// The table's file number; `None` before the end, and if the output was empty.
    pub table: Option<u64>,
    /// Size of the table in bytes.
    pub table_bytes: u64,
    /// Size of the blob files written, in bytes.
    pub blob_bytes: u64,
    /// Path of the table.
    pub table_path: Option<PathBuf>,
    /// The table's properties.
    pub table_properties: Option<Arc<TableProperties>>,
    /// The smallest and the largest sequence number in the table.
    pub seqs: Option<(u64, u64)>,
    /// The oldest blob file that the table refers to.
    pub oldest_blob_file: Option<u64>,
    /// The blob files that were written.
    pub blob_files: Vec<BlobFileAdditionInfo>,
    /// Compression of blobs.
    pub blob_compression: Compression,
    /// True if L0 has enough files to slow down writes.
    pub slows_writes: bool,
    /// True if L0 has enough files to stop writes.
    pub stops_writes: bool,
}

impl FlushInfo {
    /// Describes a job that has done nothing yet.
    #[doc(hidden)]
    pub fn new(family: &FamilyConfig, job: u64, reason: FlushReason) -> Self {
        let (memtables, entries, memory_bytes) = (0, 0, 0);
        let (table, table_bytes, blob_bytes) = (None, 0, 0);
        Self {
            column_family: family.name.clone(),
            column_family_id: family.id.0,
            job,
            reason,
            memtables,
            entries,
            memory_bytes,
            table,
            table_bytes,
            blob_bytes,
            table_path: None,
            table_properties: None,
            seqs: None,
            oldest_blob_file: None,
            blob_files: Vec::new(),
            blob_compression: family.options.blob_compression_type,
            slows_writes: false,
            stops_writes: false,
        }
    }

    /// Sets the stall flags from the number of files in L0.
    #[doc(hidden)]
    pub fn set_l0_files(&mut self, files: usize, options: &ColumnFamilyOptions) {
        let reaches = |trigger: i32| usize::try_from(trigger).is_ok_and(|trigger| files >= trigger);
        self.slows_writes = reaches(options.level0_slowdown_writes_trigger);
        self.stops_writes = reaches(options.level0_stop_writes_trigger);
    }
}

/// A compaction, as reported to listeners.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CompactionInfo {
    /// The column family.
    pub column_family: String,
    /// The column family's id.
    pub column_family_id: u32,
    /// The job's number.
    pub job: u64,
    /// The reason, in RocksDB's words.
    pub reason: String,
    /// RocksDB's number for the reason.
    pub reason_number: u32,
    /// The level of the first input.
    pub base_level: u32,
    /// The level of the output.
    pub output_level: u32,
    /// Number of files read.
    pub input_files: usize,
    /// Size of the files read, in bytes.
    pub input_bytes: u64,
    /// Number of files written; 0 before the end.
    pub output_files: usize,
    /// Size of the files written, in bytes; 0 before the end.
    pub output_bytes: u64,
    /// Entries read; 0 before the end.
    pub input_entries: u64,
    /// Entries written; 0 before the end.
    pub output_entries: u64,
    /// Paths of the files read, by level.
    pub input_paths: Vec<PathBuf>,
    /// Paths of the files written; empty before the end.
    pub output_paths: Vec<PathBuf>,
    /// Properties of the tables written, by path; empty before the end. Moved tables are not
    /// included.
    pub table_properties: BTreeMap<PathBuf, Arc<TableProperties>>,
    /// Number of subcompactions, run in parallel or in sequence; 0 before the end.
    pub subcompactions: usize,
    /// Elapsed time, in microseconds; 0 before the end.
    pub micros: u64,
    /// Processor time, in microseconds; 0 before the end.
    pub cpu_micros: u64,
    /// Number of L0 files at the begin, or after the result is applied.
    pub l0_files: usize,
    /// Details of the files in `input_paths`, in the same order.
    pub input_infos: Vec<CompactionFileInfo>,
    /// Details of the files in `output_paths`, in the same order.
    pub output_infos: Vec<CompactionFileInfo>,
    /// Properties of the tables merged, moved or deleted, by path; empty before the end. A table
    /// that was not merged and cannot be read is not included.
    pub input_table_properties: BTreeMap<PathBuf, Arc<TableProperties>>,
    /// Compression of the tables written.
    pub compression: Compression,
    /// Compression of blobs.
    pub blob_compression: Compression,
    /// The blob files written; empty before the end.
    pub blob_files: Vec<BlobFileAdditionInfo>,
    /// The new garbage in blob files; empty before the end.
    pub blob_garbage: Vec<BlobFileGarbageInfo>,
    /// Counts of the compaction.
    pub stats: CompactionStats,
    /// The failure; `None` before the end, and on success.
    pub error: Option<Error>,
}

/// A subcompaction, as reported to listeners.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SubcompactionInfo {
    /// The column family.
    pub column_family: String,
    /// The column family's id.
    pub column_family_id: u32,
    /// The number of the compaction's job.
    pub job: u64,
    /// Index of the subcompaction, from 0.
    pub subcompaction: u32,
    /// The reason for the compaction, in RocksDB's words.
    pub reason: String,
    /// RocksDB's number for the reason.
    pub reason_number: u32,
    /// The level of the first input.
    pub base_level: u32,
    /// The level of the output.
    pub output_level: u32,
    /// Entries read; 0 before the end.
    pub input_entries: u64,
    /// Entries written; 0 before the end.
    pub output_entries: u64,
    /// Size of the tables and blob files written, in bytes; 0 before the end.
    pub output_bytes: u64,
    /// Compression of the tables written.
    pub compression: Compression,
    /// Compression of blobs.
    pub blob_compression: Compression,
    /// Counts of the subcompaction.
    pub stats: CompactionStats,
    /// The failure; `None` before the end, and on success.
    pub error: Option<Error>,
}

/// An ingested file, as reported to listeners.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ExternalFileIngestionInfo {
    /// The column family.
    pub column_family: String,
    /// Path of the file before ingestion.
    pub external_file_path: PathBuf,
    /// Path of the file in the database.
    pub internal_file_path: PathBuf,
    /// The sequence number assigned to its entries; 0 if none.
    pub global_seqno: u64,
    /// The file's properties.
    pub table_properties: Arc<TableProperties>,
}

impl ExternalFileIngestionInfo {
    /// Describes a file that was ingested from `from` as `to`.
    #[doc(hidden)]
    pub fn new(
        column_family: String,
        (from, to): (PathBuf, PathBuf),
        global_seqno: u64,
        table_properties: Arc<TableProperties>,
    ) -> Self {
        let (external_file_path, internal_file_path) = (from, to);
        Self { column_family, external_file_path, internal_file_path, global_seqno, table_properties }
    }
}

/// Receives reports of background activity, on any thread: mostly that of the job concerned, but
/// `background_error` also on a writer's thread or in a writing task that found the log failed, and
/// `stall_changed` on a thread that changes options. Jobs may call it concurrently. A call must not
/// block for long, because its job or writer waits, and must not call the database, which would
/// deadlock; a panic is reported and otherwise ignored.
pub trait EventListener: Send + Sync + std::fmt::Debug {
    /// A flush begins.
    fn flush_begun(&self, flush: &FlushInfo) {
        let _ = flush;
    }
    /// A flush has been recorded in the MANIFEST.
    fn flush_completed(&self, flush: &FlushInfo) {
        let _ = flush;
    }
    /// A compaction begins.
    fn compaction_begun(&self, compaction: &CompactionInfo) {
        let _ = compaction;
    }
    /// A subcompaction begins, on its own thread. A compaction has at least one, unless its files
    /// are only moved or removed.
    fn subcompaction_begun(&self, part: &SubcompactionInfo) {
        let _ = part;
    }
    /// A subcompaction has ended, before its result is in the MANIFEST. Not called if the job is
    /// abandoned, as at the end of the process.
    fn subcompaction_completed(&self, part: &SubcompactionInfo) {
        let _ = part;
    }
    /// All files of a compaction are written, and its MANIFEST write is next: it still owns its
    /// inputs, and readers do not see its outputs yet. It may still fail.
    fn compaction_pre_commit(&self, compaction: &CompactionInfo) {
        let _ = compaction;
    }
    /// A compaction has been recorded in the MANIFEST.
    fn compaction_completed(&self, compaction: &CompactionInfo) {
        let _ = compaction;
    }
    /// A compaction failed with `error`. It may be retried.
    ///
    /// Compat: RocksDB reports it with `OnCompactionCompleted`.
    fn compaction_failed(&self, compaction: &CompactionInfo) {
        let _ = compaction;
    }
    /// A file was ingested: it is in the MANIFEST and visible to reads from now on.
    fn external_file_ingested(&self, file: &ExternalFileIngestionInfo) {
        let _ = file;
    }
    /// Returns true if the failure of a flush or compaction should stop nothing: the job is then
    /// retried after a pause, as often as it fails, and `background_error` is not called. Every
    /// listener is called before the error takes effect; one true suffices. Failed writes of the
    /// log or the MANIFEST cannot be suppressed and are not passed here. Default: false.
    ///
    /// Compat: RocksDB lets `OnBackgroundError` clear an error.
    fn suppresses_background_error(&self, error: &BackgroundError) -> bool {
        let _ = error;
        false
    }
    /// A background operation failed.
    fn background_error(&self, error: &BackgroundError) {
        let _ = error;
    }
    /// The database has recovered from a background error.
    fn recovered(&self, error: &BackgroundError) {
        let _ = error;
    }
    /// An attempt to recover from a background error begins.
    fn error_recovery_begun(&self, error: &BackgroundError) {
        let _ = error;
    }
    /// The attempt has ended; `failed` is the reason it did not succeed, or `None` if it did.
    fn error_recovery_ended(&self, error: &BackgroundError, failed: Option<&Error>) {
        let _ = (error, failed);
    }
    /// A flush or compaction has started a table.
    fn table_file_creation_started(&self, file: &FileCreationInfo) {
        let _ = file;
    }
    /// The table is complete and synced, or its writing failed. It becomes part of the database
    /// only when its job ends.
    fn table_file_created(&self, table: &TableFileCreationInfo) {
        let _ = table;
    }
    /// An obsolete table was removed, or its removal failed.
    fn table_file_deleted(&self, file: &FileDeletionInfo) {
        let _ = file;
    }
    /// A flush or compaction has started a blob file.
    fn blob_file_creation_started(&self, file: &FileCreationInfo) {
        let _ = file;
    }
    /// The blob file is complete and synced, or its writing failed.
    fn blob_file_created(&self, file: &BlobFileCreationInfo) {
        let _ = file;
    }
    /// An obsolete blob file was removed, or its removal failed.
    fn blob_file_deleted(&self, file: &FileDeletionInfo) {
        let _ = file;
    }
    /// A memtable was replaced by an empty one and will be flushed.
    fn memtable_sealed(&self, memtable: &MemTableInfo) {
        let _ = memtable;
    }
    /// The user has called for a flush of these column families, and their memtables are sealed.
    fn manual_flush_scheduled(&self, column_families: &[String]) {
        let _ = column_families;
    }
    /// Returns true if the listener wants calls about single file operations. Called once, when the
    /// database is opened; if no listener returns true, nothing is measured. Default: false.
    fn should_be_notified_on_file_io(&self) -> bool {
        false
    }
    /// A read of a file has ended, successfully or not. Blocks read together are one read; a read
    /// that joins one in flight is reported too.
    fn file_read_finished(&self, operation: &FileOperationInfo<'_>) {
        let _ = operation;
    }
    /// A write to a file has ended. With `allow_mmap_writes`, writes to the log are not reported.
    fn file_write_finished(&self, operation: &FileOperationInfo<'_>) {
        let _ = operation;
    }
    /// A sync of a file has ended.
    fn file_sync_finished(&self, operation: &FileOperationInfo<'_>) {
        let _ = operation;
    }
    /// Writeback of a file range was requested.
    fn file_range_sync_finished(&self, operation: &FileOperationInfo<'_>) {
        let _ = operation;
    }
    /// A file was truncated.
    fn file_truncate_finished(&self, operation: &FileOperationInfo<'_>) {
        let _ = operation;
    }
    /// A file opened for writing was closed.
    fn file_close_finished(&self, operation: &FileOperationInfo<'_>) {
        let _ = operation;
    }
    /// One of these operations has failed; called after the operation's own call.
    fn io_error(&self, operation: &FileOperationInfo<'_>) {
        let _ = operation;
    }
    /// The database begins to close. Jobs may still run, and other calls follow.
    fn db_shutdown_begun(&self) {}
    /// Writers of a column family are slowed down, stopped, or released; `state` gives the reason.
    fn stall_changed(&self, column_family: &str, state: &str) {
        let _ = (column_family, state);
    }
    /// The write-stall state changed; unlike `stall_changed`, not called if only the reason
    /// changed.
    fn write_stall_condition_changed(&self, stall: &WriteStallInfo) {
        let _ = stall;
    }
}

/// Destinations of a database's events: LOG and listeners.
#[derive(Debug)]
pub struct Events {
    log: Option<InfoLog>,
    listeners: Vec<Arc<dyn EventListener>>,
    jobs: AtomicU64,
    shutdown_told: AtomicBool,
}

impl Events {
    /// `log` is `None` for a database opened read-only.
    pub fn new(log: Option<InfoLog>, listeners: Vec<Arc<dyn EventListener>>) -> Self {
        Self { log, listeners, jobs: AtomicU64::new(1), shutdown_told: AtomicBool::new(false) }
    }

    /// Returns true if there are listeners.
    pub fn has_listeners(&self) -> bool {
        !self.listeners.is_empty()
    }

    /// Reports that an attempt to recover from `error` begins.
    pub fn error_recovery_begun(&self, error: &BackgroundError) {
        self.tell(|listener| listener.error_recovery_begun(error));
    }

    /// Reports that the attempt has ended, with the reason if it failed.
    pub fn error_recovery_ended(&self, error: &BackgroundError, failed: Option<&Error>) {
        self.tell(|listener| listener.error_recovery_ended(error, failed));
    }

    /// Reports that a table (`is_table`) or a blob file was removed, or that its removal failed.
    pub fn file_deleted(&self, is_table: bool, file: &FileDeletionInfo) {
        self.tell(|listener| match is_table {
            true => listener.table_file_deleted(file),
            false => listener.blob_file_deleted(file),
        });
    }

    /// Reports that a memtable was sealed.
    pub fn memtable_sealed(&self, memtable: &MemTableInfo) {
        self.tell(|listener| listener.memtable_sealed(memtable));
    }

    /// Reports that the user has called for a flush.
    pub fn manual_flush_scheduled(&self, column_families: &[String]) {
        self.tell(|listener| listener.manual_flush_scheduled(column_families));
    }

    /// Reports that the files of a compaction are written.
    pub fn compaction_pre_commit(&self, compaction: &CompactionInfo) {
        self.tell(|listener| listener.compaction_pre_commit(compaction));
    }

    /// Reports that the database begins to close. Only the first call has an effect.
    pub fn db_shutdown_begun(&self) {
        if !self.shutdown_told.swap(true, Ordering::Relaxed) {
            self.tell(|listener| listener.db_shutdown_begun());
        }
    }

    /// Returns true if a listener suppresses `error`, and logs it.
    pub fn suppresses(&self, error: &BackgroundError) -> bool {
        let suppressed = Cell::new(false);
        self.tell(|listener| {
            if listener.suppresses_background_error(error) {
                suppressed.set(true);
            }
        });
        if suppressed.get() {
            let text = format_args!("A listener suppresses {:?}: {}", error.reason, error.error);
            self.log(LogLevel::Warn, text);
        }
        suppressed.get()
    }

    /// Returns a new job number.
    pub fn next_job(&self) -> u64 {
        self.jobs.fetch_add(1, Ordering::Relaxed)
    }

    /// Calls every listener.
    ///
    /// Listeners' panics are caught here because they would take down a job, or a writer that found
    /// the log failed and that others wait for.
    fn tell(&self, call: impl Fn(&dyn EventListener)) {
        for listener in &self.listeners {
            if catch_unwind(AssertUnwindSafe(|| call(&**listener))).is_err() {
                report!(error, ?listener, "an event listener panicked");
                self.log(LogLevel::Error, format_args!("An event listener panicked"));
            }
        }
    }

    /// Writes a line to LOG.
    pub fn log(&self, level: LogLevel, text: std::fmt::Arguments<'_>) {
        if let Some(log) = &self.log {
            log.write(level, text);
        }
    }

    /// Waits until all lines are in the file.
    pub async fn written(&self) {
        if let Some(log) = &self.log {
            log.written().await;
        }
    }

    /// Writes the options in effect to the head of the LOG file.
    pub fn opened(&self, path: &std::path::Path, options: &DbOptions) {
        self.log(LogLevel::Header, format_args!("KarstDB version: {}", env!("CARGO_PKG_VERSION")));
        self.log(LogLevel::Header, format_args!("DB: {}", path.display()));
        self.supported();
        for entry in DbOptions::table() {
            let value = dumped(options.get(entry.info.name).unwrap_or_default());
            let name = format!("Options.{}", entry.info.name);
            self.log(LogLevel::Header, format_args!("{name:>48}: {value}"));
        }
        self.without_effect("database", options, &DbOptions::default());
    }

    /// Writes the capabilities of this build and processor, in RocksDB's words.
    fn supported(&self) {
        #[cfg(target_arch = "x86_64")]
        let (fast, kind) = (std::arch::is_x86_feature_detected!("sse4.2"), "x86");
        #[cfg(target_arch = "aarch64")]
        let (fast, kind) = (std::arch::is_aarch64_feature_detected!("crc"), "Arm64");
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let (fast, kind) = (false, std::env::consts::ARCH);
        let fast = if fast { "Supported" } else { "Not supported" };
        self.log(LogLevel::Header, format_args!("Fast CRC32 supported: {fast} on {kind}"));
        self.log(LogLevel::Header, format_args!("Jemalloc supported: 0"));
    }

    /// Writes all options of each column family, for as many families as RocksDB does.
    pub fn opened_families<F: std::ops::Deref<Target = FamilyConfig>>(
        &self,
        families: impl Iterator<Item = F>,
    ) {
        for (at, family) in families.enumerate() {
            if at < DUMPED_FAMILIES {
                self.dump_family(&family);
            }
            self.opened_family(&family);
        }
    }

    /// Reports a column family created while the database is open; `families` counts it too.
    pub fn family_created(&self, family: &FamilyConfig, families: usize) {
        self.log(
            LogLevel::Info,
            format_args!("Created column family [{}] (ID {})", family.name, family.id.0),
        );
        if families <= DUMPED_FAMILIES {
            self.dump_family(family);
        }
        self.opened_family(family);
    }

    fn dump_family(&self, family: &FamilyConfig) {
        let line = |name: &str, value: String| {
            self.log(LogLevel::Header, format_args!("{:>48}: {value}", format!("Options.{name}")));
        };
        let head = format_args!("--------------- Options for column family [{}]:", family.name);
        self.log(LogLevel::Header, head);
        for entry in ColumnFamilyOptions::table().iter().filter(|entry| entry.info.printed) {
            let value = family.options.get(entry.info.name).unwrap_or_default();
            let value = match entry.info.name {
                "table_properties_collectors" => collectors_text(&value),
                _ => dumped(value),
            };
            line(entry.info.name, value);
        }
        let tables = &family.options.table_factory.block_based;
        let tables = BlockBasedTableOptions::table().iter().filter(|entry| entry.info.printed).map(|entry| {
            let value = tables.get(entry.info.name).unwrap_or_default();
            // Compat: LOG has a number for each option that OPTIONS has a name for.
            let value = match entry.info.name {
                "checksum" => tables.checksum.number().to_string(),
                "data_block_index_type" => tables.data_block_index_type.number().to_string(),
                "index_shortening" => tables.index_shortening.number().to_string(),
                "index_type" => tables.index_type.number().to_string(),
                "prepopulate_block_cache" => tables.prepopulate_block_cache.number().to_string(),
                _ => dumped(value),
            };
            format!("  {}: {value}\n", entry.info.name)
        });
        line(
            "table_factory",
            format!("{}\n{}", family.options.table_factory.name, tables.collect::<String>()),
        );
    }

    /// Writes a column family's options that differ from the defaults, and its notes.
    fn opened_family(&self, family: &FamilyConfig) {
        self.differing(family, &family.options);
        self.differing(family, &family.options.table_factory.block_based);
        self.family_without_effect(family);
        family
            .notes
            .iter()
            .for_each(|note| self.log(LogLevel::Warn, format_args!("[{}] {note}", family.name)));
    }

    /// Reports only options without effect, because a database opened read-only has no LOG.
    pub fn opened_for_reading<'f>(
        &self,
        options: &DbOptions,
        families: impl Iterator<Item = &'f FamilyConfig>,
    ) {
        self.without_effect("database", options, &DbOptions::default());
        families.for_each(|family| self.family_without_effect(family));
    }

    /// Writes the options that differ from the defaults.
    fn differing(&self, family: &FamilyConfig, options: &impl OptionSet) {
        for info in options.changed().iter().filter(|info| info.printed) {
            let value = options.get(info.name).unwrap_or_default();
            self.log(LogLevel::Header, format_args!("[{}] Options.{}={value}", family.name, info.name));
        }
    }

    /// Writes the database options that differ from `before`.
    pub fn options_changed(&self, before: &DbOptions, now: &DbOptions) {
        self.changed("database", before, now);
    }

    /// Writes a column family's options that differ from `before`.
    pub fn family_options_changed(&self, before: &FamilyConfig, now: &FamilyConfig) {
        let (was, is) = (&before.options, &now.options);
        self.changed(&now.name, was, is);
        self.changed(&now.name, &was.table_factory.block_based, &is.table_factory.block_based);
    }

    fn changed<O: OptionSet>(&self, whose: &str, before: &O, now: &O) {
        let changed = now.changed_from(before);
        for name in changed.iter().map(|info| info.name) {
            let [was, is] = [before, now].map(|options| options.get(name).unwrap_or_default());
            self.log(LogLevel::Info, format_args!("[{whose}] Options.{name}={is}, was {was}"));
        }
        self.without_effect(whose, now, before);
    }

    fn family_without_effect(&self, family: &FamilyConfig) {
        let default = ColumnFamilyOptions::default();
        let tables = |options: &ColumnFamilyOptions| options.table_factory.block_based.clone();
        self.without_effect(&family.name, &family.options, &default);
        self.without_effect(&family.name, &tables(&family.options), &tables(&default));
    }

    /// Reports the options that differ from `before` and have no effect.
    fn without_effect<O: OptionSet>(&self, whose: &str, now: &O, before: &O) {
        let names = now.changed_without_effect(before);
        if !names.is_empty() {
            let names = names.join(", ");
            report!(info, of = whose, "options without effect: {names}");
            self.log(
                LogLevel::Warn,
                format_args!("[{whose}] Options that have no effect in KarstDB: {names}"),
            );
        }
    }

    /// Reports that a flush begins.
    pub fn flush_begun(&self, flush: &FlushInfo) {
        self.log(
            LogLevel::Info,
            format_args!(
                "[{}] [JOB {}] Flushing {} memtables: {} entries, {} bytes of memory, reason {}",
                flush.column_family,
                flush.job,
                flush.memtables,
                flush.entries,
                flush.memory_bytes,
                flush.reason.name()
            ),
        );
        self.tell(|listener| listener.flush_begun(flush));
    }

    /// Reports a flush that has been applied; `files_by_level` has the number of files on each
    /// level.
    pub fn flush_completed(&self, flush: &FlushInfo, took: Duration, files_by_level: &[usize]) {
        let table = flush.table.map_or_else(|| "no table".to_owned(), |number| format!("table #{number}"));
        self.log(
            LogLevel::Info,
            format_args!(
                "[{}] [JOB {}] Flushed {} entries to {table}: {} bytes, blob bytes {}, took {} us, lsm_state {}",
                flush.column_family,
                flush.job,
                flush.entries,
                flush.table_bytes,
                flush.blob_bytes,
                took.as_micros(),
                levels(files_by_level)
            ),
        );
        self.tell(|listener| listener.flush_completed(flush));
    }

    /// Reports that a compaction begins.
    pub fn compaction_begun(&self, compaction: &CompactionInfo) {
        let c = compaction;
        self.log(
            LogLevel::Info,
            format_args!(
                "[{}] [JOB {}] Compacting {} files ({} bytes) from L{} to L{}, reason {}",
                c.column_family, c.job, c.input_files, c.input_bytes, c.base_level, c.output_level, c.reason
            ),
        );
        self.tell(|listener| listener.compaction_begun(compaction));
    }

    /// Reports a compaction that has been applied; `files` has the number of files on each level.
    pub fn compaction_completed(&self, compaction: &CompactionInfo, took: Duration, files: &[usize]) {
        let c = compaction;
        self.log(
            LogLevel::Info,
            format_args!(
                "[{}] [JOB {}] Compacted {} files, {} entries, {} bytes from L{} => {} files, {} entries, {} bytes to L{}, took {} us, lsm_state {}",
                c.column_family,
                c.job,
                c.input_files,
                c.input_entries,
                c.input_bytes,
                c.base_level,
                c.output_files,
                c.output_entries,
                c.output_bytes,
                c.output_level,
                took.as_micros(),
                levels(files)
            ),
        );
        self.tell(|listener| listener.compaction_completed(compaction));
    }

    /// Reports that a compaction failed.
    pub fn compaction_failed(&self, compaction: &CompactionInfo, error: &Error) {
        self.job_failed(&compaction.column_family, compaction.job, "compaction", error);
        self.tell(|listener| listener.compaction_failed(compaction));
    }

    /// Reports that a file was ingested.
    pub fn external_file_ingested(
        &self,
        file: &ExternalFileIngestionInfo,
        job: u64,
        level: Level,
        took: Duration,
    ) {
        self.log(
            LogLevel::Info,
            format_args!(
                "[{}] [JOB {job}] Ingested {} as {}: {} entries to {level}, global sequence number {}, took {} us",
                file.column_family,
                file.external_file_path.display(),
                file.internal_file_path.display(),
                file.table_properties.num_entries,
                file.global_seqno,
                took.as_micros()
            ),
        );
        self.tell(|listener| listener.external_file_ingested(file));
    }

    /// Reports that a job failed; it may be retried.
    pub fn job_failed(&self, column_family: &str, job: u64, what: &str, error: &Error) {
        self.log(LogLevel::Warn, format_args!("[{column_family}] [JOB {job}] {what} failed: {error}"));
    }

    /// Reports that background work failed.
    pub fn background_error(&self, error: &BackgroundError) {
        let text =
            format_args!("Background error, {:?}, {:?}: {}", error.severity, error.reason, error.error);
        self.log(LogLevel::Error, text);
        self.tell(|listener| listener.background_error(error));
    }

    /// Reports that the database has recovered from `error`.
    pub fn recovered(&self, error: &BackgroundError) {
        self.log(LogLevel::Warn, format_args!("Recovered from the background error {}", error.error));
        self.tell(|listener| listener.recovered(error));
    }

    /// Reports a change of a column family's write-stall state.
    pub fn stall_changed(&self, column_family: &str, before: WriteStall, now: WriteStall) {
        let state = describe(now);
        self.log(LogLevel::Warn, format_args!("[{column_family}] Stall state: {state}"));
        self.tell(|listener| listener.stall_changed(column_family, state));
        let [before, now] = [before, now].map(WriteStallCondition::of);
        if before != now {
            let info = WriteStallInfo { column_family: column_family.to_owned(), before, now };
            self.tell(|listener| listener.write_stall_condition_changed(&info));
        }
    }
}

fn levels(files: &[usize]) -> String {
    let mut text = String::from("[");
    for (level, count) in files.iter().enumerate() {
        let _ = write!(text, "{}{count}", if level == 0 { "" } else { ", " });
    }
    text + "]"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Mutex;
    use karst_format::ids::ColumnFamilyId;
    use karst_lsm::stall::StallCause;

    #[derive(Debug)]
    struct Panics;

    impl EventListener for Panics {
        fn stall_changed(&self, _: &str, _: &str) {
            panic!("a listener's panic");
        }
    }

    #[derive(Debug, Default)]
    struct Counts(AtomicU64);

    impl EventListener for Counts {
        fn stall_changed(&self, _: &str, _: &str) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_listener_that_panics_harms_nobody() {
        let counts = Arc::new(Counts::default());
        let events = Events::new(None, vec![Arc::new(Panics), counts.clone()]);
        let stopped = WriteStall::Stopped(StallCause::MemtableLimit);
        events.stall_changed("default", WriteStall::Normal, stopped);
        events.stall_changed("default", stopped, WriteStall::Normal);
        assert_eq!(counts.0.load(Ordering::Relaxed), 2);
    }

    #[derive(Debug, Default)]
    struct Conditions(Mutex<Vec<WriteStallInfo>>);

    impl EventListener for Conditions {
        fn write_stall_condition_changed(&self, stall: &WriteStallInfo) {
            self.0.lock().push(stall.clone());
        }
    }

    #[test]
    fn another_reason_is_no_other_condition() {
        let heard = Arc::new(Conditions::default());
        let events = Events::new(None, vec![heard.clone()]);
        let [first, second] = [StallCause::MemtableLimit, StallCause::L0FileCountLimit];
        let states = [
            WriteStall::Normal,
            WriteStall::Delayed(first),
            WriteStall::Delayed(second),
            WriteStall::Stopped(second),
        ];
        for pair in states.windows(2) {
            events.stall_changed("default", pair[0], pair[1]);
        }
        use WriteStallCondition::{Delayed, Normal, Stopped};
        let heard: Vec<_> = heard.0.lock().iter().map(|stall| (stall.before, stall.now)).collect();
        assert_eq!(heard, [(Normal, Delayed), (Delayed, Stopped)]);
    }

    #[test]
    fn files_of_l0_count_from_the_triggers_on() {
        let (id, options) = (ColumnFamilyId(0), ColumnFamilyOptions::default());
        let family = FamilyConfig::resolve(id, "default", options, None, Default::default()).unwrap();
        let mut flush = FlushInfo::new(&family, 1, FlushReason::ManualFlush);
        for (files, held) in [(19, (false, false)), (20, (true, false)), (36, (true, true))] {
            flush.set_l0_files(files, &family.options);
            assert_eq!((flush.slows_writes, flush.stops_writes), held, "{files}");
        }
    }
}
