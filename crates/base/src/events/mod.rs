//! Events: what happens in the background, told to listeners and written to the LOG file.
//!
//! In: jobs that begin and end, errors, stalls. Out: one line each in LOG, which a RocksDB user can
//! read as before, or to the user's logger; and a call of every listener.
//!
//! Invariant: nothing here fails a job, a listener that panics included. A LOG that cannot be
//! written is said once through `tracing`, and then done without.

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

/// How important a line of the LOG file is. RocksDB's levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// What helps to find a defect.
    Debug,
    /// What goes on.
    Info,
    /// What goes on all the same.
    Warn,
    /// What failed.
    Error,
    /// What the database cannot go on after.
    Fatal,
    /// What every LOG file begins with.
    Header,
}

/// So many column families have all their options written to LOG: RocksDB's number.
const DUMPED_FAMILIES: usize = 10;

/// A value as RocksDB's LOG has it: truth is a digit.
fn dumped(value: String) -> String {
    match value.as_str() {
        "true" => "1".into(),
        "false" => "0".into(),
        _ => value,
    }
}

/// What collects properties, in the words of RocksDB's LOG.
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

/// Why memtables were flushed. RocksDB's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FlushReason {
    /// One was full.
    WriteBufferFull,
    /// All together were over their budget.
    WriteBufferManager,
    /// The logs grew too long.
    WalFull,
    /// The user asked.
    ManualFlush,
    /// A compaction of a range asked, to have everything in tables.
    ManualCompaction,
    /// The database was closed.
    ShutDown,
    /// The database was opened, and its logs held entries.
    Recovery,
    /// To go on after a background error.
    ErrorRecovery,
    /// The files of the database are copied.
    GetLiveFiles,
    /// A file is ingested whose range has entries in memory.
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

/// A flush, as listeners see it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FlushInfo {
    /// The column family.
    pub column_family: String,
    /// Its number.
    pub column_family_id: u32,
    /// The job's number.
    pub job: u64,
    /// Why.
    pub reason: FlushReason,
    /// Memtables that are flushed together.
    pub memtables: usize,
    /// Entries in them, range tombstones included.
    pub entries: u64,
    /// Memory they have, in bytes.
    pub memory_bytes: u64,
    /// The table; `None` before the end, and if nothing was left to write.
    pub table: Option<u64>,
    /// Its size in bytes.
    pub table_bytes: u64,
    /// Bytes of blob files written.
    pub blob_bytes: u64,
    /// Where the table is.
    pub table_path: Option<PathBuf>,
    /// What it says of itself.
    pub table_properties: Option<Arc<TableProperties>>,
    /// The smallest and the largest sequence number in it.
    pub seqs: Option<(u64, u64)>,
    /// The oldest blob file that the table refers to.
    pub oldest_blob_file: Option<u64>,
    /// The blob files that were written.
    pub blob_files: Vec<BlobFileAdditionInfo>,
    /// How blobs are compressed.
    pub blob_compression: Compression,
    /// L0 has so many files that writes are slowed down.
    pub slows_writes: bool,
    /// L0 has so many files that writes are stopped.
    pub stops_writes: bool,
}

impl FlushInfo {
    /// A job that has done nothing yet.
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

    /// Takes note of how many files L0 has.
    #[doc(hidden)]
    pub fn set_l0_files(&mut self, files: usize, options: &ColumnFamilyOptions) {
        let reaches = |trigger: i32| usize::try_from(trigger).is_ok_and(|trigger| files >= trigger);
        self.slows_writes = reaches(options.level0_slowdown_writes_trigger);
        self.stops_writes = reaches(options.level0_stop_writes_trigger);
    }
}

/// A compaction, as listeners see it.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CompactionInfo {
    /// The column family.
    pub column_family: String,
    /// Its number.
    pub column_family_id: u32,
    /// The job's number.
    pub job: u64,
    /// Why, in RocksDB's words.
    pub reason: String,
    /// RocksDB's number for that.
    pub reason_number: u32,
    /// The level of the first input.
    pub base_level: u32,
    /// The level of the output.
    pub output_level: u32,
    /// Files read, and their bytes.
    pub input_files: usize,
    /// See `input_files`.
    pub input_bytes: u64,
    /// Files written, and their bytes; 0 before the end.
    pub output_files: usize,
    /// See `output_files`.
    pub output_bytes: u64,
    /// Entries read; 0 before the end.
    pub input_entries: u64,
    /// Entries written; 0 before the end.
    pub output_entries: u64,
    /// Where the files are that are read, by level.
    pub input_paths: Vec<PathBuf>,
    /// Where the files are that were written; none before the end.
    pub output_paths: Vec<PathBuf>,
    /// What the tables say of themselves that were written, by where they are; none before the end.
    /// A table that was moved is not among them.
    pub table_properties: BTreeMap<PathBuf, Arc<TableProperties>>,
    /// How many parts ran at the same time or one after another; 0 before the end.
    pub subcompactions: usize,
    /// How long it took, in microseconds; 0 before the end.
    pub micros: u64,
    /// Its time on processors, in microseconds; 0 before the end.
    pub cpu_micros: u64,
    /// Files of L0 when it begins, or once it is in the tree.
    pub l0_files: usize,
    /// The files of `input_paths`, in their order.
    pub input_infos: Vec<CompactionFileInfo>,
    /// The files of `output_paths`, in their order.
    pub output_infos: Vec<CompactionFileInfo>,
    /// What the tables say of themselves that were merged, moved or deleted, by where they are;
    /// none before the end. A table that was not merged and cannot be read is not among them.
    pub input_table_properties: BTreeMap<PathBuf, Arc<TableProperties>>,
    /// How tables are compressed that are written.
    pub compression: Compression,
    /// How blobs are compressed.
    pub blob_compression: Compression,
    /// The blob files that were written; none before the end.
    pub blob_files: Vec<BlobFileAdditionInfo>,
    /// What of blob files became garbage; none before the end.
    pub blob_garbage: Vec<BlobFileGarbageInfo>,
    /// What it came to.
    pub stats: CompactionStats,
    /// Why it has failed; `None` before the end, and if it has not.
    pub error: Option<Error>,
}

/// A part of a compaction, as listeners see it.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SubcompactionInfo {
    /// The column family.
    pub column_family: String,
    /// Its number.
    pub column_family_id: u32,
    /// The number of the compaction's job.
    pub job: u64,
    /// Which part of the compaction it is, from 0.
    pub subcompaction: u32,
    /// Why there is the compaction, in RocksDB's words.
    pub reason: String,
    /// RocksDB's number for that.
    pub reason_number: u32,
    /// The level of the first input.
    pub base_level: u32,
    /// The level of the output.
    pub output_level: u32,
    /// Entries read; 0 before the end.
    pub input_entries: u64,
    /// Entries written; 0 before the end.
    pub output_entries: u64,
    /// Bytes of tables and blob files written; 0 before the end.
    pub output_bytes: u64,
    /// How tables are compressed that are written.
    pub compression: Compression,
    /// How blobs are compressed.
    pub blob_compression: Compression,
    /// What it came to.
    pub stats: CompactionStats,
    /// Why it has failed; `None` before the end, and if it has not.
    pub error: Option<Error>,
}

/// A file that was ingested, as listeners see it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ExternalFileIngestionInfo {
    /// The column family.
    pub column_family: String,
    /// Where the file was.
    pub external_file_path: PathBuf,
    /// Where it is in the database.
    pub internal_file_path: PathBuf,
    /// The sequence number that its entries were given; 0 if none.
    pub global_seqno: u64,
    /// What the file says of itself.
    pub table_properties: Arc<TableProperties>,
}

impl ExternalFileIngestionInfo {
    /// A file that was taken from `from` and is `to` now.
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

/// Is told what happens in the background. Called on any thread: mostly of the job that it is
/// about, but `background_error` also on that of a writer, or in a task that writes, which found
/// the log failed, and `stall_changed` where options change. Calls of several jobs may come at the
/// same time. A call must not block for long, as it holds up its job or writer, and must not call
/// the database, which would wait for itself; one that panics is reported and counts as made.
pub trait EventListener: Send + Sync + std::fmt::Debug {
    /// A flush begins.
    fn flush_begun(&self, flush: &FlushInfo) {
        let _ = flush;
    }
    /// A flush is in the MANIFEST.
    fn flush_completed(&self, flush: &FlushInfo) {
        let _ = flush;
    }
    /// A compaction begins.
    fn compaction_begun(&self, compaction: &CompactionInfo) {
        let _ = compaction;
    }
    /// A part of a compaction begins, on the thread that does it. A compaction has at least one,
    /// unless its files only move or go.
    fn subcompaction_begun(&self, part: &SubcompactionInfo) {
        let _ = part;
    }
    /// A part of a compaction has ended; nothing of it is in the MANIFEST yet. A part whose job is
    /// given up at once, as at the end of the process, is not told.
    fn subcompaction_completed(&self, part: &SubcompactionInfo) {
        let _ = part;
    }
    /// All files of a compaction are written, and it goes to the MANIFEST next: its inputs are
    /// still its own, and nobody sees its outputs. It may yet fail.
    fn compaction_pre_commit(&self, compaction: &CompactionInfo) {
        let _ = compaction;
    }
    /// A compaction is in the MANIFEST.
    fn compaction_completed(&self, compaction: &CompactionInfo) {
        let _ = compaction;
    }
    /// A compaction that has begun came to nothing: its `error` says why. It may be tried again.
    ///
    /// Compat: RocksDB tells it by `OnCompactionCompleted`.
    fn compaction_failed(&self, compaction: &CompactionInfo) {
        let _ = compaction;
    }
    /// A file was ingested: it is in the MANIFEST, and whoever reads from now on sees it.
    fn external_file_ingested(&self, file: &ExternalFileIngestionInfo) {
        let _ = file;
    }
    /// Whether the failure of a flush or compaction is to stop nothing: the job is then tried again
    /// after a pause, as often as it fails, and `background_error` is not told. Asked before the
    /// error counts, of every listener; one that says yes is enough. What writes of the log and the
    /// MANIFEST leave behind cannot be passed over, and is not asked about. Default: no.
    ///
    /// Compat: RocksDB lets `OnBackgroundError` take an error away.
    fn suppresses_background_error(&self, error: &BackgroundError) -> bool {
        let _ = error;
        false
    }
    /// Something went wrong in the background.
    fn background_error(&self, error: &BackgroundError) {
        let _ = error;
    }
    /// A background error is overcome.
    fn recovered(&self, error: &BackgroundError) {
        let _ = error;
    }
    /// An attempt to overcome a background error begins.
    fn error_recovery_begun(&self, error: &BackgroundError) {
        let _ = error;
    }
    /// The attempt has ended; `failed` says why it has led to nothing, `None` that the error is
    /// overcome.
    fn error_recovery_ended(&self, error: &BackgroundError, failed: Option<&Error>) {
        let _ = (error, failed);
    }
    /// A table is begun by a flush or a compaction.
    fn table_file_creation_started(&self, file: &FileCreationInfo) {
        let _ = file;
    }
    /// The table is complete and synced, or could not be written to its end. It is no part of the
    /// database before its job has ended.
    fn table_file_created(&self, table: &TableFileCreationInfo) {
        let _ = table;
    }
    /// A table that nobody needs any more was removed, or could not be.
    fn table_file_deleted(&self, file: &FileDeletionInfo) {
        let _ = file;
    }
    /// A blob file is begun by a flush or a compaction.
    fn blob_file_creation_started(&self, file: &FileCreationInfo) {
        let _ = file;
    }
    /// The blob file is complete and synced, or could not be written to its end.
    fn blob_file_created(&self, file: &BlobFileCreationInfo) {
        let _ = file;
    }
    /// A blob file that nobody needs any more was removed, or could not be.
    fn blob_file_deleted(&self, file: &FileDeletionInfo) {
        let _ = file;
    }
    /// A memtable was exchanged for an empty one, and is going to be flushed.
    fn memtable_sealed(&self, memtable: &MemTableInfo) {
        let _ = memtable;
    }
    /// The user has asked for a flush of these column families, and their memtables are sealed.
    fn manual_flush_scheduled(&self, column_families: &[String]) {
        let _ = column_families;
    }
    /// Whether the calls about single operations on files are wanted. Asked once, when the database
    /// is opened; where no listener says yes, nothing is measured. Default: no.
    fn should_be_notified_on_file_io(&self) -> bool {
        false
    }
    /// A read of a file has ended, well or not. Blocks that are read together are one read; who
    /// joins a read that is in flight is told of it as well.
    fn file_read_finished(&self, operation: &FileOperationInfo<'_>) {
        let _ = operation;
    }
    /// A write to a file has ended. With `allow_mmap_writes` those of the log are none.
    fn file_write_finished(&self, operation: &FileOperationInfo<'_>) {
        let _ = operation;
    }
    /// A sync of a file has ended.
    fn file_sync_finished(&self, operation: &FileOperationInfo<'_>) {
        let _ = operation;
    }
    /// A stretch of a file was told to begin to travel to the device.
    fn file_range_sync_finished(&self, operation: &FileOperationInfo<'_>) {
        let _ = operation;
    }
    /// A file was cut.
    fn file_truncate_finished(&self, operation: &FileOperationInfo<'_>) {
        let _ = operation;
    }
    /// A file that was written was closed.
    fn file_close_finished(&self, operation: &FileOperationInfo<'_>) {
        let _ = operation;
    }
    /// One of these operations has failed; told after its own call.
    fn io_error(&self, operation: &FileOperationInfo<'_>) {
        let _ = operation;
    }
    /// The database begins to close. Jobs may still run, and other calls come.
    fn db_shutdown_begun(&self) {}
    /// Writers of a column family are slowed down, stopped, or let go again; the text says why.
    fn stall_changed(&self, column_family: &str, state: &str) {
        let _ = (column_family, state);
    }
    /// The same, but told only where more than the reason has changed.
    fn write_stall_condition_changed(&self, stall: &WriteStallInfo) {
        let _ = stall;
    }
}

/// Where a database's events go.
#[derive(Debug)]
pub struct Events {
    log: Option<InfoLog>,
    listeners: Vec<Arc<dyn EventListener>>,
    jobs: AtomicU64,
    shutdown_told: AtomicBool,
}

impl Events {
    /// `log` is `None` for a database that writes nothing.
    pub fn new(log: Option<InfoLog>, listeners: Vec<Arc<dyn EventListener>>) -> Self {
        Self { log, listeners, jobs: AtomicU64::new(1), shutdown_told: AtomicBool::new(false) }
    }

    /// Whether anybody is told.
    pub fn has_listeners(&self) -> bool {
        !self.listeners.is_empty()
    }

    /// An attempt to overcome `error` begins.
    pub fn error_recovery_begun(&self, error: &BackgroundError) {
        self.tell(|listener| listener.error_recovery_begun(error));
    }

    /// It has ended, and failed if there is an error.
    pub fn error_recovery_ended(&self, error: &BackgroundError, failed: Option<&Error>) {
        self.tell(|listener| listener.error_recovery_ended(error, failed));
    }

    /// A table, or else a blob file, was removed or could not be.
    pub fn file_deleted(&self, is_table: bool, file: &FileDeletionInfo) {
        self.tell(|listener| match is_table {
            true => listener.table_file_deleted(file),
            false => listener.blob_file_deleted(file),
        });
    }

    /// A memtable was sealed.
    pub fn memtable_sealed(&self, memtable: &MemTableInfo) {
        self.tell(|listener| listener.memtable_sealed(memtable));
    }

    /// The user has asked for a flush.
    pub fn manual_flush_scheduled(&self, column_families: &[String]) {
        self.tell(|listener| listener.manual_flush_scheduled(column_families));
    }

    /// The files of a compaction are written.
    pub fn compaction_pre_commit(&self, compaction: &CompactionInfo) {
        self.tell(|listener| listener.compaction_pre_commit(compaction));
    }

    /// The database begins to close. The first call counts.
    pub fn db_shutdown_begun(&self) {
        if !self.shutdown_told.swap(true, Ordering::Relaxed) {
            self.tell(|listener| listener.db_shutdown_begun());
        }
    }

    /// Whether a listener wants `error` to stop nothing.
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

    /// A number for a job.
    pub fn next_job(&self) -> u64 {
        self.jobs.fetch_add(1, Ordering::Relaxed)
    }

    /// Calls every listener.
    ///
    /// Why a panic ends here: it is the listener's, and would take with it a job, or the writer
    /// that found the log failed, for whom others wait.
    fn tell(&self, call: impl Fn(&dyn EventListener)) {
        for listener in &self.listeners {
            if catch_unwind(AssertUnwindSafe(|| call(&**listener))).is_err() {
                report!(error, ?listener, "an event listener panicked");
                self.log(LogLevel::Error, format_args!("An event listener panicked"));
            }
        }
    }

    /// Writes a line.
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

    /// The options in effect: at the head of the LOG file.
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

    /// What this build and this processor can do, in RocksDB's words.
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

    /// All options of a column family, as RocksDB writes them, of as many families as it does.
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

    /// A column family that was created while the database is open, which has `families` with it.
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
            // Compat: where the OPTIONS file has a name, LOG has a number.
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

    /// The options of a column family that differ from the defaults: as those of the database.
    fn opened_family(&self, family: &FamilyConfig) {
        self.differing(family, &family.options);
        self.differing(family, &family.options.table_factory.block_based);
        self.family_without_effect(family);
        family
            .notes
            .iter()
            .for_each(|note| self.log(LogLevel::Warn, format_args!("[{}] {note}", family.name)));
    }

    /// The same of a database that is open for reading, and has no LOG: only what has no effect is
    /// said.
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

    /// The options of the database that are others than `before`.
    pub fn options_changed(&self, before: &DbOptions, now: &DbOptions) {
        self.changed("database", before, now);
    }

    /// The options of a column family that are others than `before`.
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

    /// Says which options differ from those before and have no effect here.
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

    /// A flush begins.
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

    /// A flush is in the tree, whose levels have so many files now.
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

    /// A compaction begins.
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

    /// A compaction is in the tree, whose levels have so many files now.
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

    /// A compaction failed.
    pub fn compaction_failed(&self, compaction: &CompactionInfo, error: &Error) {
        self.job_failed(&compaction.column_family, compaction.job, "compaction", error);
        self.tell(|listener| listener.compaction_failed(compaction));
    }

    /// A file was ingested.
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

    /// A job failed; it may be tried again.
    pub fn job_failed(&self, column_family: &str, job: u64, what: &str, error: &Error) {
        self.log(LogLevel::Warn, format_args!("[{column_family}] [JOB {job}] {what} failed: {error}"));
    }

    /// Background work failed.
    pub fn background_error(&self, error: &BackgroundError) {
        let text =
            format_args!("Background error, {:?}, {:?}: {}", error.severity, error.reason, error.error);
        self.log(LogLevel::Error, text);
        self.tell(|listener| listener.background_error(error));
    }

    /// The database has recovered from `error`.
    pub fn recovered(&self, error: &BackgroundError) {
        self.log(LogLevel::Warn, format_args!("Recovered from the background error {}", error.error));
        self.tell(|listener| listener.recovered(error));
    }

    /// What holds up writers of a family changed.
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
