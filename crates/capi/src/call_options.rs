//! Options of single calls: reads, writes, flushes, compactions, ingests, transactions, backups.

use crate::boundary::*;
use crate::cache::Cache;
use crate::callbacks::{Destructor, TableFilter, table_filter};
use crate::handle::SnapshotHandle;
use crate::options::{CNumber, Kept};
use karstdb::io::{CpuPriority, Env};
use karstdb::options::Compression;
use karstdb::{
    BackupEngineOptions, BlobGarbageCollectionPolicy, BlockCache, BottommostLevelCompaction, CacheOptions,
    CompactFilesOptions, CompactRangeOptions, CreateBackupOptions, FlushOptions, IngestExternalFileOptions,
    OptimisticTransactionDbOptions, OptimisticTransactionOptions, ReadOptions, ReadTier, RestoreMode,
    RestoreOptions, ShareFilesNaming, SizeApproximationOptions, TransactionDbOptions, TransactionOptions,
    WaitForCompactOptions, WriteOptions, WritePolicy,
};
use libc::{c_char, c_int, c_uchar, c_void};
use std::time::Duration;

/// Defines handles around the options of a call, with its remembered settings.
macro_rules! handles {
    ($($(#[$about:meta])* $handle:ident($options:ty);)*) => {$(
        $(#[$about])*
        #[derive(Debug)]
        pub struct $handle {
            #[allow(dead_code, reason = "not every kind of options has any with an effect")]
            pub(crate) options: $options,
            #[allow(dead_code, reason = "not every kind of options has settings without effect")]
            pub(crate) kept: Kept,
        }

        impl $handle {
            pub(crate) fn new(options: $options) -> Self {
                $handle { options, kept: Kept::default() }
            }
        }
    )*};
}

handles! {
    /// `rocksdb_readoptions_t`.
    Read(ReadOptions);
    /// `rocksdb_writeoptions_t`.
    Write(WriteOptions);
    /// `rocksdb_flushoptions_t`.
    Flush(FlushOptions);
    /// `rocksdb_compactoptions_t`.
    Compaction(CompactRangeOptions);
    /// `rocksdb_ingestexternalfileoptions_t`.
    Ingest(IngestExternalFileOptions);
    /// `rocksdb_wait_for_compact_options_t`.
    Wait(WaitForCompactOptions);
    /// `rocksdb_transactiondb_options_t`.
    LockingSettings(TransactionDbOptions);
    /// `rocksdb_transaction_options_t`.
    TransactionSettings(TransactionOptions);
    /// `rocksdb_optimistictransaction_options_t`.
    OptimisticSettings(OptimisticTransactionOptions);
    /// `rocksdb_optimistictransactiondb_options_t`.
    OptimisticDbSettings(OptimisticTransactionDbOptions);
    /// `rocksdb_size_approximation_options_t`.
    SizeApproximation(SizeApproximationOptions);
    /// `rocksdb_flushwaloptions_t`.
    WalFlush(WalFlushOptions);
    /// `rocksdb_lru_cache_options_t`.
    CacheSettings(CacheOptions);
    /// `rocksdb_create_backup_options_t`.
    CreateBackup(CreateBackupOptions);
    /// `rocksdb_restore_options_t`.
    Restore(RestoreOptions);
    /// `rocksdb_wal_readoptions_t`. Logs are always verified.
    WalRead(());
    /// `rocksdb_envoptions_t`. The environment decides how files are read and written.
    EnvOptions(());
}

/// `rocksdb_backup_engine_options_t`.
#[derive(Debug)]
pub struct BackupSettings {
    pub(crate) options: BackupEngineOptions,
    /// Environment of the backups, if set.
    pub(crate) env: Option<Env>,
    kept: Kept,
}

/// `rocksdb_compaction_options_t`.
#[derive(Debug)]
pub struct CompactionSettings {
    pub(crate) options: CompactFilesOptions,
    /// Flag that cancels a compaction, or null. The caller owns it.
    pub(crate) canceled: *mut c_uchar,
    kept: Kept,
}

impl Default for CompactionSettings {
    fn default() -> Self {
        let options = CompactFilesOptions::default();
        CompactionSettings { options, canceled: std::ptr::null_mut(), kept: Kept::default() }
    }
}

impl WalRead {
    /// Returns the options of a new handle; verification is on, as it always is.
    fn defaults() -> Self {
        let mut options = WalRead::new(());
        options.kept.set("rocksdb_wal_readoptions_set_verify_checksums", 1_u8.number());
        options
    }
}

impl EnvOptions {
    /// Returns the options of a new handle, with RocksDB's defaults.
    fn defaults() -> Self {
        let mut options = EnvOptions::new(());
        for set in [
            "rocksdb_envoptions_set_use_mmap_writes",
            "rocksdb_envoptions_set_allow_fallocate",
            "rocksdb_envoptions_set_fd_cloexec",
            "rocksdb_envoptions_set_fallocate_with_keep_size",
        ] {
            options.kept.set(set, 1_u8.number());
        }
        options.kept.set("rocksdb_envoptions_set_writable_file_max_buffer_size", (1_usize << 20).number());
        options
    }
}

/// `rocksdb_hyper_clock_cache_options_t`: the header has two names of the type.
pub type HyperClockSettings = CacheSettings;

/// Options of a flush of the log.
#[derive(Clone, Copy, Debug, Default)]
pub struct WalFlushOptions {
    pub(crate) sync: bool,
}

/// `rocksdb_optimistictransactiondb_lock_buckets_t`: a number of buckets. Each database opened with
/// them allocates that number for itself.
#[derive(Debug)]
pub struct LockBuckets {
    count: u32,
}

const SHARED_BUCKETS: &str = "rocksdb_optimistictransactiondb_options_set_shared_lock_buckets";

impl OptimisticDbSettings {
    /// Returns the options to open a database with: shared buckets override the number.
    pub(crate) fn effective(&self) -> OptimisticTransactionDbOptions {
        match self.kept.has(SHARED_BUCKETS) {
            true => {
                OptimisticTransactionDbOptions { occ_lock_buckets: u32::of(self.kept.get(SHARED_BUCKETS)) }
            }
            false => self.options,
        }
    }
}

/// Checks the read options of a call that verifies files; null for the defaults. Fails for the time
/// limits, which such a call does not enforce; the other fields are ignored.
pub(crate) unsafe fn verifying(options: *const Read) -> karstdb::Result<()> {
    let options = unsafe { reading(options) };
    match (options.io_timeout, options.deadline) {
        (None, None) => Ok(()),
        _ => Err(not_supported("verifying files with io_timeout or deadline")),
    }
}

/// Returns the read options of a handle; the defaults for null.
pub(crate) unsafe fn reading(options: *const Read) -> ReadOptions {
    let Some(read) = (unsafe { options.as_ref() }) else { return ReadOptions::default() };
    let mut options = read.options.clone();
    let deadline = u64::of(read.kept.get(DEADLINE));
    if deadline > 0 {
        // The deadline, in Unix time, is converted to the monotonic clock, which all environments
        // of C share, because the calendar time may be set meanwhile.
        let clock = Env::posix();
        let left = Duration::from_micros(deadline).saturating_sub(clock.unix_time());
        options.deadline = Some(clock.now() + left);
    }
    options
}

const NAMING: &str = "rocksdb_backup_engine_options_set_share_files_with_checksum_naming";
const DEADLINE: &str = "rocksdb_readoptions_set_deadline";
const MERGE_OPERANDS: &str = "rocksdb_readoptions_set_merge_operand_count_threshold";
const REQUEST_ID: &str = "rocksdb_readoptions_set_request_id";
const TAILING: &str = "rocksdb_readoptions_set_tailing";
const MANAGED: &str = "rocksdb_readoptions_set_managed";

impl Read {
    pub(crate) fn is_tailing(&self) -> bool {
        u8::of(self.kept.get(TAILING)) != 0
    }

    pub(crate) fn is_managed(&self) -> bool {
        self.kept.has(MANAGED)
    }

    pub(crate) fn set_managed(&mut self, managed: bool) {
        match managed {
            true => self.kept.set(MANAGED, 1_u8.number()),
            false => self.kept.forget(MANAGED),
        }
    }
}

impl BackupSettings {
    /// Returns the options of a new handle.
    pub(crate) fn in_folder(options: BackupEngineOptions) -> Self {
        BackupSettings { options, env: None, kept: Kept::default() }
    }
}

impl Default for Restore {
    fn default() -> Self {
        Restore::new(RestoreOptions::default())
    }
}

/// Conversion of a field to and from its C type.
trait Field<C> {
    fn assign(&mut self, value: C);
    fn read(&self) -> C;
}

impl Field<c_uchar> for bool {
    fn assign(&mut self, value: c_uchar) {
        *self = value != 0;
    }
    fn read(&self) -> c_uchar {
        (*self).into()
    }
}

impl Field<c_int> for bool {
    fn assign(&mut self, value: c_int) {
        *self = value != 0;
    }
    fn read(&self) -> c_int {
        (*self).into()
    }
}

macro_rules! numbers {
    ($($c:ty, $field:ty;)*) => {$(
        impl Field<$c> for $field {
            fn assign(&mut self, value: $c) { *self = <$field>::try_from(value).unwrap_or(0); }
            fn read(&self) -> $c { <$c>::try_from(*self).unwrap_or(<$c>::MAX) }
        }
    )*};
}
numbers! { c_int, u8; c_int, u32; c_int, usize; u32, u32; u64, u64; usize, usize; i64, i64; usize, u64; u64, usize; }

impl Field<c_int> for CpuPriority {
    fn assign(&mut self, value: c_int) {
        *self = match value {
            0 => CpuPriority::Idle,
            1 => CpuPriority::Low,
            2 => CpuPriority::Normal,
            _ => CpuPriority::High,
        };
    }
    fn read(&self) -> c_int {
        *self as c_int
    }
}

/// Bit of a naming's number: the file's size is in the name.
const INCLUDES_FILE_SIZE: c_int = c_int::MIN;

impl Field<c_int> for ShareFilesNaming {
    fn assign(&mut self, value: c_int) {
        let include_file_size = value & INCLUDES_FILE_SIZE != 0;
        *self = match value & !INCLUDES_FILE_SIZE {
            1 => ShareFilesNaming::LegacyCrc32cAndFileSize,
            _ => ShareFilesNaming::UseDbSessionId { include_file_size },
        };
    }
    fn read(&self) -> c_int {
        match self {
            ShareFilesNaming::LegacyCrc32cAndFileSize => 1,
            ShareFilesNaming::UseDbSessionId { include_file_size: false } => 2,
            ShareFilesNaming::UseDbSessionId { include_file_size: true } => 2 | INCLUDES_FILE_SIZE,
        }
    }
}

impl Field<c_int> for RestoreMode {
    fn assign(&mut self, value: c_int) {
        *self = match value {
            1 => RestoreMode::KeepLatestDbSessionIdFiles,
            2 => RestoreMode::VerifyChecksum,
            _ => RestoreMode::PurgeAllFiles,
        };
    }
    fn read(&self) -> c_int {
        match self {
            RestoreMode::KeepLatestDbSessionIdFiles => 1,
            RestoreMode::VerifyChecksum => 2,
            RestoreMode::PurgeAllFiles => 0xffff,
        }
    }
}

impl Field<c_int> for BlobGarbageCollectionPolicy {
    fn assign(&mut self, value: c_int) {
        *self = match value {
            0 => BlobGarbageCollectionPolicy::Force,
            1 => BlobGarbageCollectionPolicy::Disable,
            _ => BlobGarbageCollectionPolicy::UseDefault,
        };
    }
    fn read(&self) -> c_int {
        *self as c_int
    }
}

/// A fraction; a number outside of 0..=1 means not set.
impl Field<f64> for Option<f64> {
    fn assign(&mut self, value: f64) {
        *self = (0.0..=1.0).contains(&value).then_some(value);
    }
    fn read(&self) -> f64 {
        self.unwrap_or(-1.0)
    }
}

impl Field<f64> for f64 {
    fn assign(&mut self, value: f64) {
        *self = value;
    }
    fn read(&self) -> f64 {
        *self
    }
}

impl Field<u64> for Duration {
    fn assign(&mut self, value: u64) {
        *self = Duration::from_micros(value);
    }
    fn read(&self) -> u64 {
        u64::try_from(self.as_micros()).unwrap_or(u64::MAX)
    }
}

impl Field<u64> for Option<Duration> {
    fn assign(&mut self, value: u64) {
        *self = (value > 0).then(|| Duration::from_micros(value));
    }
    fn read(&self) -> u64 {
        self.as_ref().map_or(0, Field::read)
    }
}

impl Field<c_int> for ReadTier {
    fn assign(&mut self, value: c_int) {
        *self = match value {
            1 => ReadTier::BlockCache,
            3 => ReadTier::Memtable,
            _ => ReadTier::All,
        };
    }
    fn read(&self) -> c_int {
        match self {
            ReadTier::BlockCache => 1,
            ReadTier::Memtable => 3,
            _ => 0,
        }
    }
}

impl Field<c_uchar> for BottommostLevelCompaction {
    fn assign(&mut self, value: c_uchar) {
        *self = match value {
            0 => BottommostLevelCompaction::Skip,
            1 => BottommostLevelCompaction::IfHaveCompactionFilter,
            2 => BottommostLevelCompaction::Force,
            _ => BottommostLevelCompaction::ForceOptimized,
        };
    }
    fn read(&self) -> c_uchar {
        *self as c_uchar
    }
}

impl Field<c_int> for Option<usize> {
    fn assign(&mut self, value: c_int) {
        *self = usize::try_from(value).ok();
    }
    fn read(&self) -> c_int {
        self.map_or(-1, |value| c_int::try_from(value).unwrap_or(c_int::MAX))
    }
}

impl Field<c_int> for Compression {
    fn assign(&mut self, value: c_int) {
        let known = u8::try_from(value).ok().and_then(Compression::from_number);
        *self = known.unwrap_or(Compression::Disable);
    }
    fn read(&self) -> c_int {
        self.number().into()
    }
}

impl Field<c_int> for WritePolicy {
    fn assign(&mut self, value: c_int) {
        *self = match value {
            0 => WritePolicy::WriteCommitted,
            1 => WritePolicy::WritePrepared,
            // Opening fails with it.
            _ => WritePolicy::WriteUnprepared,
        };
    }
    fn read(&self) -> c_int {
        match self {
            WritePolicy::WriteCommitted => 0,
            WritePolicy::WritePrepared => 1,
            _ => 2,
        }
    }
}

/// Exports setters and getters of fields, and of remembered settings.
macro_rules! fields {
    (served { $($set:ident $name:ident $handle:ident $c:ident $($field:ident).+;)* } kept { $($kset:ident $kname:ident $khandle:ident $kc:ident $key:ident;)* }) => {
        $( fields!(@served $set $name $handle $c $($field).+); )*
        $( fields!(@kept $kset $kname $khandle $kc $key); )*
        pub(crate) const SERVED: &[&str] = &[$(stringify!($name)),*];
        pub(crate) const KEPT: &[&str] = &[$(stringify!($kname)),*];
        pub(crate) const SIGNATURES: &[crate::signature::Signature] = &[
            $( crate::signature::accessor!($set $name $handle $c), )*
            $( crate::signature::accessor!($kset $kname $khandle $kc), )*
        ];
    };
    (@served set $name:ident $handle:ident $c:ident $($field:ident).+) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(handle: *mut $handle, value: $c) {
            guard(stringify!($name), || if let Some(handle) = unsafe { handle.as_mut() } { Field::<$c>::assign(&mut handle.options.$($field).+, value) })
        }
    };
    (@served get $name:ident $handle:ident $c:ident $($field:ident).+) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(handle: *const $handle) -> $c {
            guard(stringify!($name), || unsafe { handle.as_ref() }.map_or(Default::default(), |handle| Field::<$c>::read(&handle.options.$($field).+)))
        }
    };
    (@kept set $name:ident $handle:ident $c:ident $key:ident) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(handle: *mut $handle, value: $c) {
            guard(stringify!($name), || if let Some(handle) = unsafe { handle.as_mut() } { handle.kept.set(stringify!($key), value.number()) })
        }
    };
    (@kept get $name:ident $handle:ident $c:ident $key:ident) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(handle: *const $handle) -> $c {
            guard(stringify!($name), || unsafe { handle.as_ref() }.map_or(Default::default(), |handle| <$c>::of(handle.kept.get(stringify!($key)))))
        }
    };
}

capi! {
    call rocksdb_cache_create_lru_opts(options: *const CacheSettings) -> *mut Cache {
        options.as_ref().map_or(std::ptr::null_mut(), |options| give(Cache(BlockCache::with_options(options.options.clone()))))
    }
    call rocksdb_cache_create_hyper_clock_opts(options: *const HyperClockSettings) -> *mut Cache {
        options.as_ref().map_or(std::ptr::null_mut(), |options| give(Cache(BlockCache::with_options(options.options.clone()))))
    }
    call rocksdb_lru_cache_options_create() -> *mut CacheSettings { give(CacheSettings::new(CacheOptions::default())) }
    call rocksdb_lru_cache_options_destroy(options: *mut CacheSettings) { end(options); }
    call rocksdb_lru_cache_options_set_capacity(options: *mut CacheSettings, capacity: usize) { if let Some(options) = options.as_mut() { options.options.capacity_bytes = capacity } }
    call rocksdb_hyper_clock_cache_options_create(capacity: usize, estimated_entry_charge: usize) -> *mut HyperClockSettings {
        give(CacheSettings::new(CacheOptions { capacity_bytes: capacity, estimated_entry_bytes: estimated_entry_charge, ..CacheOptions::default() }))
    }
    call rocksdb_hyper_clock_cache_options_destroy(options: *mut HyperClockSettings) { end(options); }
    call rocksdb_hyper_clock_cache_options_set_capacity(options: *mut HyperClockSettings, capacity: usize) { if let Some(options) = options.as_mut() { options.options.capacity_bytes = capacity } }
    call rocksdb_hyper_clock_cache_options_set_estimated_entry_charge(options: *mut HyperClockSettings, charge: usize) { if let Some(options) = options.as_mut() { options.options.estimated_entry_bytes = charge } }
    call rocksdb_readoptions_create() -> *mut Read { give(Read::new(ReadOptions::default())) }
    call rocksdb_readoptions_destroy(options: *mut Read) { end(options); }
    call rocksdb_readoptions_set_snapshot(options: *mut Read, snapshot: *const SnapshotHandle) {
        if let Some(options) = options.as_mut() { options.options.snapshot = SnapshotHandle::get(snapshot).cloned() }
    }
    call rocksdb_readoptions_set_iterate_upper_bound(options: *mut Read, key: *const c_char, keylen: usize) {
        if let Some(options) = options.as_mut() { options.options.iterate_upper_bound = bound(key, keylen).map(<[u8]>::to_vec) }
    }
    call rocksdb_readoptions_set_iterate_lower_bound(options: *mut Read, key: *const c_char, keylen: usize) {
        if let Some(options) = options.as_mut() { options.options.iterate_lower_bound = bound(key, keylen).map(<[u8]>::to_vec) }
    }
    call rocksdb_readoptions_set_table_filter(options: *mut Read, state: *mut c_void, destructor: Destructor, filter: Option<TableFilter>) {
        let filter = table_filter(state, destructor, filter);
        if let Some(options) = options.as_mut() { options.options.table_filter = filter }
    }
    call rocksdb_readoptions_clear_table_filter(options: *mut Read) {
        if let Some(options) = options.as_mut() { options.options.table_filter = None }
    }
    call rocksdb_readoptions_has_table_filter(options: *const Read) -> c_uchar {
        options.as_ref().is_some_and(|options| options.options.table_filter.is_some()).into()
    }
    call rocksdb_readoptions_set_tailing(options: *mut Read, tailing: c_uchar) {
        if let Some(options) = options.as_mut() { options.kept.set(TAILING, tailing.number()) }
    }
    call rocksdb_readoptions_get_tailing(options: *const Read) -> c_uchar { options.as_ref().is_some_and(Read::is_tailing).into() }
    // The number is kept too, because RocksDB's getter returns an invalid naming unchanged.
    call rocksdb_backup_engine_options_set_share_files_with_checksum_naming(options: *mut BackupSettings, naming: c_int) {
        if let Some(options) = options.as_mut() {
            options.options.share_files_with_checksum_naming.assign(naming);
            options.kept.set(NAMING, naming.number());
        }
    }
    call rocksdb_backup_engine_options_get_share_files_with_checksum_naming(options: *const BackupSettings) -> c_int {
        let told = |options: &BackupSettings| match options.kept.has(NAMING) {
            true => c_int::of(options.kept.get(NAMING)),
            false => options.options.share_files_with_checksum_naming.read(),
        };
        options.as_ref().map_or(0, told)
    }
    // Microseconds of Unix time; 0 for none.
    call rocksdb_readoptions_set_deadline(options: *mut Read, micros: u64) {
        if let Some(options) = options.as_mut() { options.kept.set(DEADLINE, micros.number()) }
    }
    call rocksdb_readoptions_get_deadline(options: *const Read) -> u64 { options.as_ref().map_or(0, |options| u64::of(options.kept.get(DEADLINE))) }
    // User-defined indexes do not exist here, so there is nothing to clear or to name.
    call rocksdb_readoptions_clear_table_index_factory(_options: *mut Read) {}
    call rocksdb_readoptions_get_table_index_factory_name(_options: *const Read, size: *mut usize) -> *const c_char {
        lend_or_null(None, size)
    }
    call rocksdb_size_approximation_options_create() -> *mut SizeApproximation { give(SizeApproximation::new(SizeApproximationOptions::default())) }
    call rocksdb_size_approximation_options_destroy(options: *mut SizeApproximation) { end(options); }
    call rocksdb_flushwaloptions_create() -> *mut WalFlush {
        let mut options = WalFlush::new(WalFlushOptions::default());
        // RocksDB's default: not limited by the rate limiter.
        options.kept.set("rocksdb_flushwaloptions_set_rate_limiter_priority", 4_i32.number());
        give(options)
    }
    call rocksdb_flushwaloptions_destroy(options: *mut WalFlush) { end(options); }
    call rocksdb_optimistictransactiondb_options_create() -> *mut OptimisticDbSettings {
        let mut options = OptimisticDbSettings::new(OptimisticTransactionDbOptions::default());
        // RocksDB's default: parallel validation.
        options.kept.set("rocksdb_optimistictransactiondb_options_set_validate_policy", 1_i32.number());
        give(options)
    }
    call rocksdb_optimistictransactiondb_options_destroy(options: *mut OptimisticDbSettings) { end(options); }
    call rocksdb_optimistictransactiondb_options_set_shared_lock_buckets(options: *mut OptimisticDbSettings, buckets: *const LockBuckets) {
        match (options.as_mut(), buckets.as_ref()) {
            (Some(options), Some(buckets)) => options.kept.set(SHARED_BUCKETS, buckets.count.number()),
            (Some(options), None) => options.kept.forget(SHARED_BUCKETS),
            (None, _) => {}
        }
    }
    call rocksdb_optimistictransactiondb_lock_buckets_create(count: usize, _cache_aligned: c_uchar) -> *mut LockBuckets {
        give(LockBuckets { count: u32::try_from(count).unwrap_or(u32::MAX).max(1) })
    }
    // Eight bytes for each bucket of a database.
    call rocksdb_optimistictransactiondb_lock_buckets_approximate_memory_usage(buckets: *const LockBuckets) -> usize {
        buckets.as_ref().map_or(0, |buckets| 8 * buckets.count as usize)
    }
    call rocksdb_optimistictransactiondb_lock_buckets_destroy(buckets: *mut LockBuckets) { end(buckets); }
    call rocksdb_writeoptions_create() -> *mut Write { give(Write::new(WriteOptions::default())) }
    call rocksdb_writeoptions_destroy(options: *mut Write) { end(options); }
    call rocksdb_flushoptions_create() -> *mut Flush { give(Flush::new(FlushOptions::default())) }
    call rocksdb_flushoptions_destroy(options: *mut Flush) { end(options); }
    call rocksdb_compactoptions_create() -> *mut Compaction { give(Compaction::new(CompactRangeOptions::default())) }
    call rocksdb_compactoptions_destroy(options: *mut Compaction) { end(options); }
    call rocksdb_ingestexternalfileoptions_create() -> *mut Ingest { give(Ingest::new(IngestExternalFileOptions::default())) }
    call rocksdb_ingestexternalfileoptions_destroy(options: *mut Ingest) { end(options); }
    call rocksdb_compaction_options_create() -> *mut CompactionSettings { give(CompactionSettings::default()) }
    call rocksdb_compaction_options_destroy(options: *mut CompactionSettings) { end(options); }
    call rocksdb_create_backup_options_create() -> *mut CreateBackup { give(CreateBackup::new(CreateBackupOptions::default())) }
    call rocksdb_create_backup_options_destroy(options: *mut CreateBackup) { end(options); }
    call rocksdb_wal_readoptions_create() -> *mut WalRead { give(WalRead::defaults()) }
    call rocksdb_wal_readoptions_destroy(options: *mut WalRead) { end(options); }
    call rocksdb_envoptions_create() -> *mut EnvOptions { give(EnvOptions::defaults()) }
    call rocksdb_envoptions_destroy(options: *mut EnvOptions) { end(options); }
    call rocksdb_wait_for_compact_options_create() -> *mut Wait { give(Wait::new(WaitForCompactOptions::default())) }
    call rocksdb_wait_for_compact_options_destroy(options: *mut Wait) { end(options); }
    call rocksdb_transactiondb_options_create() -> *mut LockingSettings { give(LockingSettings::new(TransactionDbOptions::default())) }
    call rocksdb_transactiondb_options_destroy(options: *mut LockingSettings) { end(options); }
    call rocksdb_transaction_options_create() -> *mut TransactionSettings { give(TransactionSettings::new(TransactionOptions::default())) }
    call rocksdb_transaction_options_destroy(options: *mut TransactionSettings) { end(options); }
    call rocksdb_optimistictransaction_options_create() -> *mut OptimisticSettings { give(OptimisticSettings::new(OptimisticTransactionOptions::default())) }
    call rocksdb_optimistictransaction_options_destroy(options: *mut OptimisticSettings) { end(options); }
}

/// Remembered settings other than numbers.
mod remembered {
    use super::*;
    capi! {
        // RocksDB reports in the status of a successful read that a key has more operands than
        // this; C does not see such a status.
        call rocksdb_readoptions_has_merge_operand_count_threshold(options: *const Read) -> c_uchar {
            options.as_ref().is_some_and(|options| options.kept.has(MERGE_OPERANDS)).into()
        }
        call rocksdb_readoptions_clear_merge_operand_count_threshold(options: *mut Read) {
            if let Some(options) = options.as_mut() { options.kept.forget(MERGE_OPERANDS) }
        }
        // Only file systems of RocksDB's users read it.
        call rocksdb_readoptions_set_request_id(options: *mut Read, id: *const c_char, length: usize) {
            if let Some(options) = options.as_mut() { options.kept.set_bytes(REQUEST_ID, bound(id, length)) }
        }
        call rocksdb_readoptions_clear_request_id(options: *mut Read) {
            if let Some(options) = options.as_mut() { options.kept.set_bytes(REQUEST_ID, None) }
        }
        call rocksdb_readoptions_get_request_id(options: *const Read, length: *mut usize) -> *const c_char {
            lend_or_null(options.as_ref().and_then(|options| options.kept.bytes(REQUEST_ID)), length)
        }
    }
}
pub(crate) use remembered::NAMES as REMEMBERED;

fields! {
    served {
        get rocksdb_flushwaloptions_get_sync WalFlush c_uchar sync;
        set rocksdb_flushwaloptions_set_sync WalFlush c_uchar sync;
        get rocksdb_optimistictransactiondb_options_get_occ_lock_buckets OptimisticDbSettings u32 occ_lock_buckets;
        set rocksdb_optimistictransactiondb_options_set_occ_lock_buckets OptimisticDbSettings u32 occ_lock_buckets;
        get rocksdb_size_approximation_options_get_files_size_error_margin SizeApproximation f64 files_size_error_margin;
        get rocksdb_size_approximation_options_get_include_blob_files SizeApproximation c_uchar include_blob_files;
        get rocksdb_size_approximation_options_get_include_files SizeApproximation c_uchar include_files;
        get rocksdb_size_approximation_options_get_include_memtables SizeApproximation c_uchar include_memtables;
        set rocksdb_size_approximation_options_set_files_size_error_margin SizeApproximation f64 files_size_error_margin;
        set rocksdb_size_approximation_options_set_include_blob_files SizeApproximation c_uchar include_blob_files;
        set rocksdb_size_approximation_options_set_include_files SizeApproximation c_uchar include_files;
        set rocksdb_size_approximation_options_set_include_memtables SizeApproximation c_uchar include_memtables;
        get rocksdb_backup_engine_options_get_backup_log_files BackupSettings c_uchar backup_log_files;
        get rocksdb_backup_engine_options_get_callback_trigger_interval_size BackupSettings u64 callback_trigger_interval_size;
        get rocksdb_backup_engine_options_get_destroy_old_data BackupSettings c_uchar destroy_old_data;
        get rocksdb_backup_engine_options_get_max_background_operations BackupSettings c_int max_background_operations;
        get rocksdb_backup_engine_options_get_share_files_with_checksum BackupSettings c_uchar share_files_with_checksum;
        get rocksdb_backup_engine_options_get_share_table_files BackupSettings c_uchar share_table_files;
        set rocksdb_backup_engine_options_set_backup_log_files BackupSettings c_uchar backup_log_files;
        set rocksdb_backup_engine_options_set_callback_trigger_interval_size BackupSettings u64 callback_trigger_interval_size;
        set rocksdb_backup_engine_options_set_destroy_old_data BackupSettings c_uchar destroy_old_data;
        set rocksdb_backup_engine_options_set_max_background_operations BackupSettings c_int max_background_operations;
        set rocksdb_backup_engine_options_set_share_files_with_checksum BackupSettings c_uchar share_files_with_checksum;
        set rocksdb_backup_engine_options_set_share_table_files BackupSettings c_uchar share_table_files;
        get rocksdb_backup_engine_options_get_backup_rate_limit BackupSettings u64 backup_rate_limit;
        set rocksdb_backup_engine_options_set_backup_rate_limit BackupSettings u64 backup_rate_limit;
        get rocksdb_backup_engine_options_get_restore_rate_limit BackupSettings u64 restore_rate_limit;
        set rocksdb_backup_engine_options_set_restore_rate_limit BackupSettings u64 restore_rate_limit;
        get rocksdb_backup_engine_options_get_sync BackupSettings c_uchar sync;
        set rocksdb_backup_engine_options_set_sync BackupSettings c_uchar sync;
        get rocksdb_backup_engine_options_get_io_buffer_size BackupSettings u64 io_buffer_size;
        set rocksdb_backup_engine_options_set_io_buffer_size BackupSettings u64 io_buffer_size;
        get rocksdb_backup_engine_options_get_max_valid_backups_to_open BackupSettings c_int max_valid_backups_to_open;
        set rocksdb_backup_engine_options_set_max_valid_backups_to_open BackupSettings c_int max_valid_backups_to_open;
        get rocksdb_backup_engine_options_get_schema_version BackupSettings c_int schema_version;
        set rocksdb_backup_engine_options_set_schema_version BackupSettings c_int schema_version;
        get rocksdb_create_backup_options_get_background_thread_cpu_priority CreateBackup c_int background_thread_cpu_priority;
        set rocksdb_create_backup_options_set_background_thread_cpu_priority CreateBackup c_int background_thread_cpu_priority;
        get rocksdb_create_backup_options_get_decrease_background_thread_cpu_priority CreateBackup c_uchar decrease_background_thread_cpu_priority;
        set rocksdb_create_backup_options_set_decrease_background_thread_cpu_priority CreateBackup c_uchar decrease_background_thread_cpu_priority;
        get rocksdb_restore_options_get_mode Restore c_int mode;
        set rocksdb_restore_options_set_mode Restore c_int mode;
        get rocksdb_wait_for_compact_options_get_close_db Wait c_uchar close_db;
        set rocksdb_wait_for_compact_options_set_close_db Wait c_uchar close_db;
        get rocksdb_flushoptions_get_force_atomic_flush Flush c_uchar force_atomic_flush;
        set rocksdb_flushoptions_set_force_atomic_flush Flush c_uchar force_atomic_flush;
        get rocksdb_flushoptions_get_listener_wait Flush c_uchar listener_wait;
        set rocksdb_flushoptions_set_listener_wait Flush c_uchar listener_wait;
        get rocksdb_compaction_options_get_allow_trivial_move CompactionSettings c_uchar allow_trivial_move;
        set rocksdb_compaction_options_set_allow_trivial_move CompactionSettings c_uchar allow_trivial_move;
        get rocksdb_compactoptions_get_blob_garbage_collection_policy Compaction c_int blob_garbage_collection_policy;
        set rocksdb_compactoptions_set_blob_garbage_collection_policy Compaction c_int blob_garbage_collection_policy;
        get rocksdb_compactoptions_get_blob_garbage_collection_age_cutoff Compaction f64 blob_garbage_collection_age_cutoff;
        set rocksdb_compactoptions_set_blob_garbage_collection_age_cutoff Compaction f64 blob_garbage_collection_age_cutoff;
        get rocksdb_compaction_options_get_compression CompactionSettings c_int compression;
        set rocksdb_compaction_options_set_compression CompactionSettings c_int compression;
        get rocksdb_compaction_options_get_output_file_size_limit CompactionSettings u64 output_file_size_limit;
        set rocksdb_compaction_options_set_output_file_size_limit CompactionSettings u64 output_file_size_limit;
        get rocksdb_compaction_options_get_max_subcompactions CompactionSettings u32 max_subcompactions;
        set rocksdb_compaction_options_set_max_subcompactions CompactionSettings u32 max_subcompactions;
        get rocksdb_compactoptions_get_allow_write_stall Compaction c_uchar allow_write_stall;
        get rocksdb_compactoptions_get_bottommost_level_compaction Compaction c_uchar bottommost_level_compaction;
        get rocksdb_compactoptions_get_change_level Compaction c_uchar change_level;
        get rocksdb_compactoptions_get_exclusive_manual_compaction Compaction c_uchar exclusive_manual_compaction;
        get rocksdb_compactoptions_get_max_subcompactions Compaction c_int max_subcompactions;
        get rocksdb_compactoptions_get_target_level Compaction c_int target_level;
        get rocksdb_compactoptions_get_target_path_id Compaction c_int target_path_id;
        set rocksdb_compactoptions_set_allow_write_stall Compaction c_uchar allow_write_stall;
        set rocksdb_compactoptions_set_bottommost_level_compaction Compaction c_uchar bottommost_level_compaction;
        set rocksdb_compactoptions_set_change_level Compaction c_uchar change_level;
        set rocksdb_compactoptions_set_exclusive_manual_compaction Compaction c_uchar exclusive_manual_compaction;
        set rocksdb_compactoptions_set_max_subcompactions Compaction c_int max_subcompactions;
        set rocksdb_compactoptions_set_target_level Compaction c_int target_level;
        set rocksdb_compactoptions_set_target_path_id Compaction c_int target_path_id;
        get rocksdb_flushoptions_get_allow_write_stall Flush c_uchar allow_write_stall;
        get rocksdb_flushoptions_get_wait Flush c_uchar wait;
        set rocksdb_flushoptions_set_allow_write_stall Flush c_uchar allow_write_stall;
        set rocksdb_flushoptions_set_wait Flush c_uchar wait;
        get rocksdb_ingestexternalfileoptions_get_allow_blocking_flush Ingest c_uchar allow_blocking_flush;
        get rocksdb_ingestexternalfileoptions_get_allow_db_generated_files Ingest c_uchar allow_db_generated_files;
        get rocksdb_ingestexternalfileoptions_get_allow_global_seqno Ingest c_uchar allow_global_seqno;
        get rocksdb_ingestexternalfileoptions_get_fail_if_not_bottommost_level Ingest c_uchar fail_if_not_bottommost_level;
        get rocksdb_ingestexternalfileoptions_get_failed_move_fall_back_to_copy Ingest c_uchar failed_move_fall_back_to_copy;
        get rocksdb_ingestexternalfileoptions_get_fill_cache Ingest c_uchar fill_cache;
        get rocksdb_ingestexternalfileoptions_get_ingest_behind Ingest c_uchar ingest_behind;
        get rocksdb_ingestexternalfileoptions_get_link_files Ingest c_uchar link_files;
        get rocksdb_ingestexternalfileoptions_get_move_files Ingest c_uchar move_files;
        get rocksdb_ingestexternalfileoptions_get_snapshot_consistency Ingest c_uchar snapshot_consistency;
        get rocksdb_ingestexternalfileoptions_get_verify_checksums_before_ingest Ingest c_uchar verify_checksums_before_ingest;
        get rocksdb_ingestexternalfileoptions_get_verify_file_checksum Ingest c_uchar verify_file_checksum;
        set rocksdb_ingestexternalfileoptions_set_allow_blocking_flush Ingest c_uchar allow_blocking_flush;
        set rocksdb_ingestexternalfileoptions_set_allow_db_generated_files Ingest c_uchar allow_db_generated_files;
        set rocksdb_ingestexternalfileoptions_set_allow_global_seqno Ingest c_uchar allow_global_seqno;
        set rocksdb_ingestexternalfileoptions_set_fail_if_not_bottommost_level Ingest c_uchar fail_if_not_bottommost_level;
        set rocksdb_ingestexternalfileoptions_set_failed_move_fall_back_to_copy Ingest c_uchar failed_move_fall_back_to_copy;
        set rocksdb_ingestexternalfileoptions_set_fill_cache Ingest c_uchar fill_cache;
        set rocksdb_ingestexternalfileoptions_set_ingest_behind Ingest c_uchar ingest_behind;
        set rocksdb_ingestexternalfileoptions_set_link_files Ingest c_uchar link_files;
        set rocksdb_ingestexternalfileoptions_set_move_files Ingest c_uchar move_files;
        set rocksdb_ingestexternalfileoptions_set_snapshot_consistency Ingest c_uchar snapshot_consistency;
        set rocksdb_ingestexternalfileoptions_set_verify_checksums_before_ingest Ingest c_uchar verify_checksums_before_ingest;
        set rocksdb_ingestexternalfileoptions_set_verify_file_checksum Ingest c_uchar verify_file_checksum;
        get rocksdb_optimistictransaction_options_get_set_snapshot OptimisticSettings c_uchar set_snapshot;
        set rocksdb_optimistictransaction_options_set_set_snapshot OptimisticSettings c_uchar set_snapshot;
        get rocksdb_readoptions_get_adaptive_readahead Read c_uchar adaptive_readahead;
        get rocksdb_readoptions_get_async_io Read c_uchar async_io;
        get rocksdb_readoptions_get_auto_prefix_mode Read c_uchar auto_prefix_mode;
        get rocksdb_readoptions_get_auto_readahead_size Read c_uchar auto_readahead_size;
        get rocksdb_readoptions_get_fill_cache Read c_uchar fill_cache;
        get rocksdb_readoptions_get_ignore_range_deletions Read c_uchar ignore_range_deletions;
        get rocksdb_readoptions_get_io_timeout Read u64 io_timeout;
        get rocksdb_readoptions_get_max_skippable_internal_keys Read u64 max_skippable_internal_keys;
        get rocksdb_readoptions_get_optimize_multiget_for_io Read c_uchar optimize_multiget_for_io;
        get rocksdb_readoptions_get_prefix_same_as_start Read c_uchar prefix_same_as_start;
        get rocksdb_readoptions_get_read_tier Read c_int read_tier;
        get rocksdb_readoptions_get_readahead_size Read usize readahead_size;
        get rocksdb_readoptions_get_total_order_seek Read c_uchar total_order_seek;
        get rocksdb_readoptions_get_value_size_soft_limit Read u64 value_size_soft_limit;
        get rocksdb_readoptions_get_verify_checksums Read c_uchar verify_checksums;
        set rocksdb_readoptions_set_adaptive_readahead Read c_uchar adaptive_readahead;
        set rocksdb_readoptions_set_async_io Read c_uchar async_io;
        set rocksdb_readoptions_set_auto_prefix_mode Read c_uchar auto_prefix_mode;
        set rocksdb_readoptions_set_auto_readahead_size Read c_uchar auto_readahead_size;
        set rocksdb_readoptions_set_fill_cache Read c_uchar fill_cache;
        set rocksdb_readoptions_set_ignore_range_deletions Read c_uchar ignore_range_deletions;
        set rocksdb_readoptions_set_io_timeout Read u64 io_timeout;
        set rocksdb_readoptions_set_max_skippable_internal_keys Read u64 max_skippable_internal_keys;
        set rocksdb_readoptions_set_optimize_multiget_for_io Read c_uchar optimize_multiget_for_io;
        set rocksdb_readoptions_set_prefix_same_as_start Read c_uchar prefix_same_as_start;
        set rocksdb_readoptions_set_read_tier Read c_int read_tier;
        set rocksdb_readoptions_set_readahead_size Read usize readahead_size;
        set rocksdb_readoptions_set_total_order_seek Read c_uchar total_order_seek;
        set rocksdb_readoptions_set_value_size_soft_limit Read u64 value_size_soft_limit;
        set rocksdb_readoptions_set_verify_checksums Read c_uchar verify_checksums;
        get rocksdb_transaction_options_get_deadlock_detect TransactionSettings c_uchar deadlock_detect;
        get rocksdb_transaction_options_get_deadlock_detect_depth TransactionSettings i64 deadlock_detect_depth;
        get rocksdb_transaction_options_get_expiration TransactionSettings i64 expiration;
        get rocksdb_transaction_options_get_lock_timeout TransactionSettings i64 lock_timeout;
        get rocksdb_transaction_options_get_max_write_batch_size TransactionSettings usize max_write_batch_size;
        get rocksdb_transaction_options_get_set_snapshot TransactionSettings c_uchar set_snapshot;
        get rocksdb_transaction_options_get_skip_concurrency_control TransactionSettings c_uchar skip_concurrency_control;
        get rocksdb_transaction_options_get_skip_prepare TransactionSettings c_uchar skip_prepare;
        set rocksdb_transaction_options_set_deadlock_detect TransactionSettings c_uchar deadlock_detect;
        set rocksdb_transaction_options_set_deadlock_detect_depth TransactionSettings i64 deadlock_detect_depth;
        set rocksdb_transaction_options_set_expiration TransactionSettings i64 expiration;
        set rocksdb_transaction_options_set_lock_timeout TransactionSettings i64 lock_timeout;
        set rocksdb_transaction_options_set_max_write_batch_size TransactionSettings usize max_write_batch_size;
        set rocksdb_transaction_options_set_set_snapshot TransactionSettings c_uchar set_snapshot;
        set rocksdb_transaction_options_set_skip_concurrency_control TransactionSettings c_uchar skip_concurrency_control;
        set rocksdb_transaction_options_set_skip_prepare TransactionSettings c_uchar skip_prepare;
        get rocksdb_transactiondb_options_get_default_lock_timeout LockingSettings i64 default_lock_timeout;
        get rocksdb_transactiondb_options_get_enable_udt_validation LockingSettings c_uchar enable_udt_validation;
        get rocksdb_transactiondb_options_get_max_num_deadlocks LockingSettings u32 max_num_deadlocks;
        get rocksdb_transactiondb_options_get_max_num_locks LockingSettings i64 max_num_locks;
        get rocksdb_transactiondb_options_get_num_stripes LockingSettings usize num_stripes;
        get rocksdb_transactiondb_options_get_skip_concurrency_control LockingSettings c_uchar skip_concurrency_control;
        get rocksdb_transactiondb_options_get_transaction_lock_timeout LockingSettings i64 transaction_lock_timeout;
        get rocksdb_transactiondb_options_get_write_policy LockingSettings c_int write_policy;
        set rocksdb_transactiondb_options_set_default_lock_timeout LockingSettings i64 default_lock_timeout;
        set rocksdb_transactiondb_options_set_enable_udt_validation LockingSettings c_uchar enable_udt_validation;
        set rocksdb_transactiondb_options_set_max_num_deadlocks LockingSettings u32 max_num_deadlocks;
        set rocksdb_transactiondb_options_set_max_num_locks LockingSettings i64 max_num_locks;
        set rocksdb_transactiondb_options_set_num_stripes LockingSettings usize num_stripes;
        set rocksdb_transactiondb_options_set_skip_concurrency_control LockingSettings c_uchar skip_concurrency_control;
        set rocksdb_transactiondb_options_set_transaction_lock_timeout LockingSettings i64 transaction_lock_timeout;
        set rocksdb_transactiondb_options_set_write_policy LockingSettings c_int write_policy;
        get rocksdb_wait_for_compact_options_get_abort_on_pause Wait c_uchar abort_on_pause;
        get rocksdb_wait_for_compact_options_get_flush Wait c_uchar flush;
        get rocksdb_wait_for_compact_options_get_timeout Wait u64 timeout;
        set rocksdb_wait_for_compact_options_set_abort_on_pause Wait c_uchar abort_on_pause;
        set rocksdb_wait_for_compact_options_set_flush Wait c_uchar flush;
        set rocksdb_wait_for_compact_options_set_timeout Wait u64 timeout;
        set rocksdb_writeoptions_disable_WAL Write c_int disable_wal;
        get rocksdb_writeoptions_get_disable_WAL Write c_uchar disable_wal;
        get rocksdb_writeoptions_get_ignore_missing_column_families Write c_uchar ignore_missing_column_families;
        get rocksdb_writeoptions_get_low_pri Write c_uchar low_pri;
        get rocksdb_writeoptions_get_no_slowdown Write c_uchar no_slowdown;
        get rocksdb_writeoptions_get_protection_bytes_per_key Write usize protection_bytes_per_key;
        get rocksdb_writeoptions_get_sync Write c_uchar sync;
        set rocksdb_writeoptions_set_ignore_missing_column_families Write c_uchar ignore_missing_column_families;
        set rocksdb_writeoptions_set_low_pri Write c_uchar low_pri;
        set rocksdb_writeoptions_set_no_slowdown Write c_uchar no_slowdown;
        set rocksdb_writeoptions_set_protection_bytes_per_key Write usize protection_bytes_per_key;
        set rocksdb_writeoptions_set_sync Write c_uchar sync;
    }
    kept {
        get rocksdb_flushwaloptions_get_rate_limiter_priority WalFlush c_int rocksdb_flushwaloptions_set_rate_limiter_priority;
        set rocksdb_flushwaloptions_set_rate_limiter_priority WalFlush c_int rocksdb_flushwaloptions_set_rate_limiter_priority;
        set rocksdb_hyper_clock_cache_options_set_num_shard_bits HyperClockSettings c_int rocksdb_hyper_clock_cache_options_set_num_shard_bits;
        set rocksdb_lru_cache_options_set_num_shard_bits CacheSettings c_int rocksdb_lru_cache_options_set_num_shard_bits;
        get rocksdb_optimistictransactiondb_options_get_validate_policy OptimisticDbSettings c_int rocksdb_optimistictransactiondb_options_set_validate_policy;
        set rocksdb_optimistictransactiondb_options_set_validate_policy OptimisticDbSettings c_int rocksdb_optimistictransactiondb_options_set_validate_policy;
        get rocksdb_backup_engine_options_get_current_temperatures_override_manifest BackupSettings c_uchar rocksdb_backup_engine_options_set_current_temperatures_override_manifest;
        set rocksdb_backup_engine_options_set_current_temperatures_override_manifest BackupSettings c_uchar rocksdb_backup_engine_options_set_current_temperatures_override_manifest;
        get rocksdb_compaction_options_get_output_temperature_override CompactionSettings c_int rocksdb_compaction_options_set_output_temperature_override;
        set rocksdb_compaction_options_set_output_temperature_override CompactionSettings c_int rocksdb_compaction_options_set_output_temperature_override;
        get rocksdb_envoptions_get_allow_fallocate EnvOptions c_uchar rocksdb_envoptions_set_allow_fallocate;
        set rocksdb_envoptions_set_allow_fallocate EnvOptions c_uchar rocksdb_envoptions_set_allow_fallocate;
        get rocksdb_envoptions_get_bytes_per_sync EnvOptions u64 rocksdb_envoptions_set_bytes_per_sync;
        set rocksdb_envoptions_set_bytes_per_sync EnvOptions u64 rocksdb_envoptions_set_bytes_per_sync;
        get rocksdb_envoptions_get_compaction_readahead_size EnvOptions usize rocksdb_envoptions_set_compaction_readahead_size;
        set rocksdb_envoptions_set_compaction_readahead_size EnvOptions usize rocksdb_envoptions_set_compaction_readahead_size;
        get rocksdb_envoptions_get_fallocate_with_keep_size EnvOptions c_uchar rocksdb_envoptions_set_fallocate_with_keep_size;
        set rocksdb_envoptions_set_fallocate_with_keep_size EnvOptions c_uchar rocksdb_envoptions_set_fallocate_with_keep_size;
        get rocksdb_envoptions_get_fd_cloexec EnvOptions c_uchar rocksdb_envoptions_set_fd_cloexec;
        set rocksdb_envoptions_set_fd_cloexec EnvOptions c_uchar rocksdb_envoptions_set_fd_cloexec;
        get rocksdb_envoptions_get_strict_bytes_per_sync EnvOptions c_uchar rocksdb_envoptions_set_strict_bytes_per_sync;
        set rocksdb_envoptions_set_strict_bytes_per_sync EnvOptions c_uchar rocksdb_envoptions_set_strict_bytes_per_sync;
        get rocksdb_envoptions_get_use_direct_reads EnvOptions c_uchar rocksdb_envoptions_set_use_direct_reads;
        set rocksdb_envoptions_set_use_direct_reads EnvOptions c_uchar rocksdb_envoptions_set_use_direct_reads;
        get rocksdb_envoptions_get_use_direct_writes EnvOptions c_uchar rocksdb_envoptions_set_use_direct_writes;
        set rocksdb_envoptions_set_use_direct_writes EnvOptions c_uchar rocksdb_envoptions_set_use_direct_writes;
        get rocksdb_envoptions_get_use_mmap_reads EnvOptions c_uchar rocksdb_envoptions_set_use_mmap_reads;
        set rocksdb_envoptions_set_use_mmap_reads EnvOptions c_uchar rocksdb_envoptions_set_use_mmap_reads;
        get rocksdb_envoptions_get_use_mmap_writes EnvOptions c_uchar rocksdb_envoptions_set_use_mmap_writes;
        set rocksdb_envoptions_set_use_mmap_writes EnvOptions c_uchar rocksdb_envoptions_set_use_mmap_writes;
        get rocksdb_envoptions_get_writable_file_max_buffer_size EnvOptions usize rocksdb_envoptions_set_writable_file_max_buffer_size;
        set rocksdb_envoptions_set_writable_file_max_buffer_size EnvOptions usize rocksdb_envoptions_set_writable_file_max_buffer_size;
        get rocksdb_wal_readoptions_get_verify_checksums WalRead c_uchar rocksdb_wal_readoptions_set_verify_checksums;
        set rocksdb_wal_readoptions_set_verify_checksums WalRead c_uchar rocksdb_wal_readoptions_set_verify_checksums;
        get rocksdb_ingestexternalfileoptions_get_file_opening_threads Ingest c_int rocksdb_ingestexternalfileoptions_set_file_opening_threads;
        get rocksdb_ingestexternalfileoptions_get_prefetch_lmax_index_and_filter_blocks Ingest c_uchar rocksdb_ingestexternalfileoptions_set_prefetch_lmax_index_and_filter_blocks;
        get rocksdb_ingestexternalfileoptions_get_verify_checksums_readahead_size Ingest usize rocksdb_ingestexternalfileoptions_set_verify_checksums_readahead_size;
        get rocksdb_ingestexternalfileoptions_get_write_global_seqno Ingest c_uchar rocksdb_ingestexternalfileoptions_set_write_global_seqno;
        set rocksdb_ingestexternalfileoptions_set_file_opening_threads Ingest c_int rocksdb_ingestexternalfileoptions_set_file_opening_threads;
        set rocksdb_ingestexternalfileoptions_set_prefetch_lmax_index_and_filter_blocks Ingest c_uchar rocksdb_ingestexternalfileoptions_set_prefetch_lmax_index_and_filter_blocks;
        set rocksdb_ingestexternalfileoptions_set_verify_checksums_readahead_size Ingest usize rocksdb_ingestexternalfileoptions_set_verify_checksums_readahead_size;
        set rocksdb_ingestexternalfileoptions_set_write_global_seqno Ingest c_uchar rocksdb_ingestexternalfileoptions_set_write_global_seqno;
        get rocksdb_readoptions_get_allow_unprepared_value Read c_uchar rocksdb_readoptions_set_allow_unprepared_value;
        get rocksdb_readoptions_get_auto_refresh_iterator_with_snapshot Read c_uchar rocksdb_readoptions_set_auto_refresh_iterator_with_snapshot;
        get rocksdb_readoptions_get_background_purge_on_iterator_cleanup Read c_uchar rocksdb_readoptions_set_background_purge_on_iterator_cleanup;
        get rocksdb_readoptions_get_io_activity Read c_int rocksdb_readoptions_set_io_activity;
        get rocksdb_readoptions_get_merge_operand_count_threshold Read usize rocksdb_readoptions_set_merge_operand_count_threshold;
        get rocksdb_readoptions_get_pin_data Read c_uchar rocksdb_readoptions_set_pin_data;
        get rocksdb_readoptions_get_rate_limiter_priority Read c_int rocksdb_readoptions_set_rate_limiter_priority;
        set rocksdb_readoptions_set_allow_unprepared_value Read c_uchar rocksdb_readoptions_set_allow_unprepared_value;
        set rocksdb_readoptions_set_auto_refresh_iterator_with_snapshot Read c_uchar rocksdb_readoptions_set_auto_refresh_iterator_with_snapshot;
        set rocksdb_readoptions_set_background_purge_on_iterator_cleanup Read c_uchar rocksdb_readoptions_set_background_purge_on_iterator_cleanup;
        set rocksdb_readoptions_set_io_activity Read c_int rocksdb_readoptions_set_io_activity;
        set rocksdb_readoptions_set_merge_operand_count_threshold Read usize rocksdb_readoptions_set_merge_operand_count_threshold;
        set rocksdb_readoptions_set_pin_data Read c_uchar rocksdb_readoptions_set_pin_data;
        set rocksdb_readoptions_set_rate_limiter_priority Read c_int rocksdb_readoptions_set_rate_limiter_priority;
        get rocksdb_transaction_options_get_commit_bypass_memtable TransactionSettings c_uchar rocksdb_transaction_options_set_commit_bypass_memtable;
        get rocksdb_transaction_options_get_deadlock_timeout_us TransactionSettings i64 rocksdb_transaction_options_set_deadlock_timeout_us;
        get rocksdb_transaction_options_get_large_txn_commit_optimize_byte_threshold TransactionSettings u64 rocksdb_transaction_options_set_large_txn_commit_optimize_byte_threshold;
        get rocksdb_transaction_options_get_large_txn_commit_optimize_threshold TransactionSettings u32 rocksdb_transaction_options_set_large_txn_commit_optimize_threshold;
        get rocksdb_transaction_options_get_use_only_the_last_commit_time_batch_for_recovery TransactionSettings c_uchar rocksdb_transaction_options_set_use_only_the_last_commit_time_batch_for_recovery;
        get rocksdb_transaction_options_get_write_batch_flush_threshold TransactionSettings i64 rocksdb_transaction_options_set_write_batch_flush_threshold;
        get rocksdb_transaction_options_get_write_batch_track_timestamp_size TransactionSettings c_uchar rocksdb_transaction_options_set_write_batch_track_timestamp_size;
        set rocksdb_transaction_options_set_commit_bypass_memtable TransactionSettings c_uchar rocksdb_transaction_options_set_commit_bypass_memtable;
        set rocksdb_transaction_options_set_deadlock_timeout_us TransactionSettings i64 rocksdb_transaction_options_set_deadlock_timeout_us;
        set rocksdb_transaction_options_set_large_txn_commit_optimize_byte_threshold TransactionSettings u64 rocksdb_transaction_options_set_large_txn_commit_optimize_byte_threshold;
        set rocksdb_transaction_options_set_large_txn_commit_optimize_threshold TransactionSettings u32 rocksdb_transaction_options_set_large_txn_commit_optimize_threshold;
        set rocksdb_transaction_options_set_use_only_the_last_commit_time_batch_for_recovery TransactionSettings c_uchar rocksdb_transaction_options_set_use_only_the_last_commit_time_batch_for_recovery;
        set rocksdb_transaction_options_set_write_batch_flush_threshold TransactionSettings i64 rocksdb_transaction_options_set_write_batch_flush_threshold;
        set rocksdb_transaction_options_set_write_batch_track_timestamp_size TransactionSettings c_uchar rocksdb_transaction_options_set_write_batch_track_timestamp_size;
        get rocksdb_transactiondb_options_get_default_write_batch_flush_threshold LockingSettings i64 rocksdb_transactiondb_options_set_default_write_batch_flush_threshold;
        get rocksdb_transactiondb_options_get_rollback_merge_operands LockingSettings c_uchar rocksdb_transactiondb_options_set_rollback_merge_operands;
        get rocksdb_transactiondb_options_get_txn_commit_bypass_memtable_threshold LockingSettings u32 rocksdb_transactiondb_options_set_txn_commit_bypass_memtable_threshold;
        get rocksdb_transactiondb_options_get_use_per_key_point_lock_mgr LockingSettings c_uchar rocksdb_transactiondb_options_set_use_per_key_point_lock_mgr;
        set rocksdb_transactiondb_options_set_default_write_batch_flush_threshold LockingSettings i64 rocksdb_transactiondb_options_set_default_write_batch_flush_threshold;
        set rocksdb_transactiondb_options_set_rollback_merge_operands LockingSettings c_uchar rocksdb_transactiondb_options_set_rollback_merge_operands;
        set rocksdb_transactiondb_options_set_txn_commit_bypass_memtable_threshold LockingSettings u32 rocksdb_transactiondb_options_set_txn_commit_bypass_memtable_threshold;
        set rocksdb_transactiondb_options_set_use_per_key_point_lock_mgr LockingSettings c_uchar rocksdb_transactiondb_options_set_use_per_key_point_lock_mgr;
        get rocksdb_wait_for_compact_options_get_wait_for_purge Wait c_uchar rocksdb_wait_for_compact_options_set_wait_for_purge;
        set rocksdb_wait_for_compact_options_set_wait_for_purge Wait c_uchar rocksdb_wait_for_compact_options_set_wait_for_purge;
        get rocksdb_writeoptions_get_io_activity Write c_int rocksdb_writeoptions_set_io_activity;
        get rocksdb_writeoptions_get_memtable_insert_hint_per_batch Write c_uchar rocksdb_writeoptions_set_memtable_insert_hint_per_batch;
        get rocksdb_writeoptions_get_rate_limiter_priority Write c_int rocksdb_writeoptions_set_rate_limiter_priority;
        set rocksdb_writeoptions_set_io_activity Write c_int rocksdb_writeoptions_set_io_activity;
        set rocksdb_writeoptions_set_memtable_insert_hint_per_batch Write c_uchar rocksdb_writeoptions_set_memtable_insert_hint_per_batch;
        set rocksdb_writeoptions_set_rate_limiter_priority Write c_int rocksdb_writeoptions_set_rate_limiter_priority;
    }
}
