//! Costs of the calling thread's operations, under RocksDB's names (`PerfContext`).
//!
//! In: [`count`] and [`time`], called by the engine on the thread that does the work. Out: the
//! thread's own counts. Off by default ([`PerfLevel::Disable`]); a call then costs one thread-local
//! load and a branch. An asynchronous operation counts on the thread that polls it, so its counts
//! are meaningful on single-threaded executors, the reactor and the blocking API. Times are in
//! nanoseconds if the name contains `time` or `nanos`.

use crate::stats::named;
use karst_io::Env;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

/// The set of metrics collected; each level adds to the one before. RocksDB's names and order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PerfLevel {
    /// Nothing; the default.
    Disable,
    /// Counts, no times.
    EnableCount,
    /// Adds the time spent waiting for other threads.
    EnableWait,
    /// Adds times, except those spent on locks.
    EnableTimeExceptForMutex,
    /// Adds CPU times.
    EnableTimeAndCpuTimeExceptForMutex,
    /// Everything.
    EnableTime,
}

named! {
/// A per-thread counter.
PerfMetric {
    UserKeyComparisonCount = "user_key_comparison_count",
    BlockCacheHitCount = "block_cache_hit_count",
    BlockReadCount = "block_read_count",
    BlockReadByte = "block_read_byte",
    BlockReadTime = "block_read_time",
    BlockReadCpuTime = "block_read_cpu_time",
    BlockCacheIndexHitCount = "block_cache_index_hit_count",
    BlockCacheStandaloneHandleCount = "block_cache_standalone_handle_count",
    BlockCacheRealHandleCount = "block_cache_real_handle_count",
    IndexBlockReadCount = "index_block_read_count",
    BlockCacheFilterHitCount = "block_cache_filter_hit_count",
    FilterBlockReadCount = "filter_block_read_count",
    CompressionDictBlockReadCount = "compression_dict_block_read_count",
    BlockCacheIndexReadByte = "block_cache_index_read_byte",
    BlockCacheFilterReadByte = "block_cache_filter_read_byte",
    BlockCacheCompressionDictReadByte = "block_cache_compression_dict_read_byte",
    BlockCacheReadByte = "block_cache_read_byte",
    SecondaryCacheHitCount = "secondary_cache_hit_count",
    CompressedSecCacheInsertRealCount = "compressed_sec_cache_insert_real_count",
    CompressedSecCacheInsertDummyCount = "compressed_sec_cache_insert_dummy_count",
    CompressedSecCacheUncompressedBytes = "compressed_sec_cache_uncompressed_bytes",
    CompressedSecCacheCompressedBytes = "compressed_sec_cache_compressed_bytes",
    BlockChecksumTime = "block_checksum_time",
    BlockDecompressTime = "block_decompress_time",
    BlockDecompressCount = "block_decompress_count",
    GetReadBytes = "get_read_bytes",
    MultigetReadBytes = "multiget_read_bytes",
    IterReadBytes = "iter_read_bytes",
    BlobCacheHitCount = "blob_cache_hit_count",
    BlobCacheReadByte = "blob_cache_read_byte",
    BlobReadCount = "blob_read_count",
    BlobReadByte = "blob_read_byte",
    BlobReadTime = "blob_read_time",
    BlobChecksumTime = "blob_checksum_time",
    BlobDecompressTime = "blob_decompress_time",
    InternalKeySkippedCount = "internal_key_skipped_count",
    InternalDeleteSkippedCount = "internal_delete_skipped_count",
    InternalRecentSkippedCount = "internal_recent_skipped_count",
    InternalMergeCount = "internal_merge_count",
    InternalMergePointLookupCount = "internal_merge_point_lookup_count",
    InternalRangeDelReseekCount = "internal_range_del_reseek_count",
    GetSnapshotTime = "get_snapshot_time",
    GetFromMemtableTime = "get_from_memtable_time",
    GetFromMemtableCount = "get_from_memtable_count",
    GetPostProcessTime = "get_post_process_time",
    GetFromOutputFilesTime = "get_from_output_files_time",
    SeekOnMemtableTime = "seek_on_memtable_time",
    SeekOnMemtableCount = "seek_on_memtable_count",
    NextOnMemtableCount = "next_on_memtable_count",
    PrevOnMemtableCount = "prev_on_memtable_count",
    SeekChildSeekTime = "seek_child_seek_time",
    SeekChildSeekCount = "seek_child_seek_count",
    SeekMinHeapTime = "seek_min_heap_time",
    SeekMaxHeapTime = "seek_max_heap_time",
    SeekInternalSeekTime = "seek_internal_seek_time",
    FindNextUserEntryTime = "find_next_user_entry_time",
    WriteWalTime = "write_wal_time",
    WriteMemtableTime = "write_memtable_time",
    WriteDelayTime = "write_delay_time",
    WriteSchedulingFlushesCompactionsTime = "write_scheduling_flushes_compactions_time",
    WritePreAndPostProcessTime = "write_pre_and_post_process_time",
    WriteThreadWaitNanos = "write_thread_wait_nanos",
    DbMutexLockNanos = "db_mutex_lock_nanos",
    DbConditionWaitNanos = "db_condition_wait_nanos",
    MergeOperatorTimeNanos = "merge_operator_time_nanos",
    ReadIndexBlockNanos = "read_index_block_nanos",
    ReadFilterBlockNanos = "read_filter_block_nanos",
    NewTableBlockIterNanos = "new_table_block_iter_nanos",
    NewTableIteratorNanos = "new_table_iterator_nanos",
    BlockSeekNanos = "block_seek_nanos",
    FindTableNanos = "find_table_nanos",
    BloomMemtableHitCount = "bloom_memtable_hit_count",
    BloomMemtableMissCount = "bloom_memtable_miss_count",
    BloomSstHitCount = "bloom_sst_hit_count",
    BloomSstMissCount = "bloom_sst_miss_count",
    KeyLockWaitTime = "key_lock_wait_time",
    KeyLockWaitCount = "key_lock_wait_count",
    EnvNewSequentialFileNanos = "env_new_sequential_file_nanos",
    EnvNewRandomAccessFileNanos = "env_new_random_access_file_nanos",
    EnvNewWritableFileNanos = "env_new_writable_file_nanos",
    EnvReuseWritableFileNanos = "env_reuse_writable_file_nanos",
    EnvNewRandomRwFileNanos = "env_new_random_rw_file_nanos",
    EnvNewDirectoryNanos = "env_new_directory_nanos",
    EnvFileExistsNanos = "env_file_exists_nanos",
    EnvGetChildrenNanos = "env_get_children_nanos",
    EnvGetChildrenFileAttributesNanos = "env_get_children_file_attributes_nanos",
    EnvDeleteFileNanos = "env_delete_file_nanos",
    EnvCreateDirNanos = "env_create_dir_nanos",
    EnvCreateDirIfMissingNanos = "env_create_dir_if_missing_nanos",
    EnvDeleteDirNanos = "env_delete_dir_nanos",
    EnvGetFileSizeNanos = "env_get_file_size_nanos",
    EnvGetFileModificationTimeNanos = "env_get_file_modification_time_nanos",
    EnvRenameFileNanos = "env_rename_file_nanos",
    EnvLinkFileNanos = "env_link_file_nanos",
    EnvLockFileNanos = "env_lock_file_nanos",
    EnvUnlockFileNanos = "env_unlock_file_nanos",
    EnvNewLoggerNanos = "env_new_logger_nanos",
    GetCpuNanos = "get_cpu_nanos",
    IterNextCpuNanos = "iter_next_cpu_nanos",
    IterPrevCpuNanos = "iter_prev_cpu_nanos",
    IterSeekCpuNanos = "iter_seek_cpu_nanos",
    IterNextCount = "iter_next_count",
    IterPrevCount = "iter_prev_count",
    IterSeekCount = "iter_seek_count",
    EncryptDataNanos = "encrypt_data_nanos",
    DecryptDataNanos = "decrypt_data_nanos",
    NumberAsyncSeek = "number_async_seek",
    FileIngestionNanos = "file_ingestion_nanos",
    FileIngestionBlockingLiveWritesNanos = "file_ingestion_blocking_live_writes_nanos",
    DataBlockReadByte = "data_block_read_byte",
    IndexBlockReadByte = "index_block_read_byte",
    FilterBlockReadByte = "filter_block_read_byte",
    CompressionDictBlockReadByte = "compression_dict_block_read_byte",
    MetadataBlockReadByte = "metadata_block_read_byte",
    MultiscanPrepareCount = "multiscan_prepare_count",
    MultiscanBlocksPrefetched = "multiscan_blocks_prefetched",
    MultiscanBlocksFromCache = "multiscan_blocks_from_cache",
    MultiscanPrefetchBytes = "multiscan_prefetch_bytes",
    MultiscanIoRequests = "multiscan_io_requests",
    MultiscanIoCoalescedNonadjacent = "multiscan_io_coalesced_nonadjacent",
}
}

named! {
/// A per-thread counter kept for each level of the tree.
LevelMetric {
    BloomFilterUseful = "bloom_filter_useful",
    BloomFilterFullPositive = "bloom_filter_full_positive",
    BloomFilterFullTruePositive = "bloom_filter_full_true_positive",
    UserKeyReturnCount = "user_key_return_count",
    GetFromTableNanos = "get_from_table_nanos",
    BlockCacheHitCount = "block_cache_hit_count",
    BlockCacheMissCount = "block_cache_miss_count",
}
}

struct Context {
    counts: [Cell<u64>; PerfMetric::COUNT],
    level_counts: RefCell<BTreeMap<u32, [u64; LevelMetric::COUNT]>>,
}

thread_local! {
    // Separate variables because a thread-local without a destructor is a plain load, without a
    // check that it still exists.
    static LEVEL: Cell<PerfLevel> = const { Cell::new(PerfLevel::Disable) };
    static BY_LEVEL: Cell<bool> = const { Cell::new(false) };
    static CONTEXT: Context = const {
        Context {
            counts: [const { Cell::new(0) }; PerfMetric::COUNT],
            level_counts: RefCell::new(BTreeMap::new()),
        }
    };
}

/// Sets the calling thread's level.
pub fn set_level(level: PerfLevel) {
    LEVEL.set(level);
}

/// Returns the calling thread's level.
#[inline]
pub fn level() -> PerfLevel {
    LEVEL.get()
}

/// Returns true if the calling thread takes times; otherwise the engine skips reading the clock.
#[inline]
pub fn timing() -> bool {
    level() >= PerfLevel::EnableTimeExceptForMutex
}

/// Enables counting per level of the tree on the calling thread. Off by default.
pub fn set_by_level(enabled: bool) {
    BY_LEVEL.set(enabled);
}

/// Resets the calling thread's counts to 0.
pub fn reset() {
    CONTEXT.with(|c| {
        c.counts.iter().for_each(|count| count.set(0));
        c.level_counts.borrow_mut().clear();
    });
}

/// Returns one of the calling thread's counts.
pub fn get(metric: PerfMetric) -> u64 {
    CONTEXT.with(|c| c.counts[metric as usize].get())
}

/// Returns one of the calling thread's counts for one level of the tree.
pub fn get_at_level(metric: LevelMetric, tree_level: u32) -> u64 {
    CONTEXT.with(|c| c.level_counts.borrow().get(&tree_level).map_or(0, |counts| counts[metric as usize]))
}

/// Adds to a count, if the thread counts.
#[inline]
pub fn count(metric: PerfMetric, by: u64) {
    if level() >= PerfLevel::EnableCount {
        add(metric, by);
    }
}

/// Adds nanoseconds to a time, if the thread takes times; see [`timing`].
#[inline]
pub fn time(metric: PerfMetric, nanos: u64) {
    if timing() {
        add(metric, nanos);
    }
}

/// Measures an operation's time if the thread takes times; otherwise the clock is not read.
///
/// If the operation fails or is dropped before `stop`, its time is not counted.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Timer(Option<Duration>);

impl Timer {
    /// A timer that measures nothing.
    pub const NONE: Timer = Timer(None);

    /// Starts a timer if the calling thread takes times.
    #[inline]
    pub fn start(env: &Env) -> Self {
        Self(if timing() { Some(now(env)) } else { None })
    }

    /// Starts a timer if the calling thread times its waits for other threads.
    #[inline]
    pub fn start_waiting(env: &Env) -> Self {
        Self(if level() >= PerfLevel::EnableWait { Some(now(env)) } else { None })
    }

    /// Returns the nanoseconds since the start; 0 if the timer is not running.
    #[inline]
    pub fn nanos(self, env: &Env) -> u64 {
        self.0.map_or(0, |began| now(env).saturating_sub(began).as_nanos() as u64)
    }

    /// Adds the time since the start to a metric of the calling thread; returns it in nanoseconds.
    #[inline]
    pub fn stop(self, env: &Env, metric: PerfMetric) -> u64 {
        let nanos = self.nanos(env);
        // Checked again because the timer may end on another thread, or after a change of the
        // level.
        if nanos > 0 && level() >= PerfLevel::EnableWait {
            add(metric, nanos);
        }
        nanos
    }
}

/// Runs `work` and adds its time to a metric of the calling thread, if the thread takes times.
/// Returns the time in nanoseconds if the thread takes times or `asked` is true; otherwise 0,
/// without reading the clock.
#[inline]
pub fn timed<R>(env: &Env, metric: PerfMetric, asked: bool, work: impl FnOnce() -> R) -> (R, u64) {
    if !asked && !timing() {
        return (work(), 0);
    }
    let began = env.now();
    let result = work();
    let nanos = env.now().saturating_sub(began).as_nanos() as u64;
    time(metric, nanos);
    (result, nanos)
}

#[cold]
fn now(env: &Env) -> Duration {
    env.now()
}

#[cold]
fn add(metric: PerfMetric, by: u64) {
    CONTEXT.with(|c| {
        let cell = &c.counts[metric as usize];
        cell.set(cell.get().wrapping_add(by));
    });
}

/// Adds to a count of one level of the tree, if the thread counts by level.
#[inline]
pub fn count_at_level(metric: LevelMetric, tree_level: u32, by: u64) {
    if BY_LEVEL.get() && level() >= PerfLevel::EnableCount {
        add_at_level(metric, tree_level, by);
    }
}

#[cold]
fn add_at_level(metric: LevelMetric, tree_level: u32, by: u64) {
    CONTEXT.with(|c| {
        let mut levels = c.level_counts.borrow_mut();
        levels.entry(tree_level).or_insert([0; LevelMetric::COUNT])[metric as usize] += by;
    });
}

/// Returns RocksDB's text, `name = n, name = n`, optionally without counts that are 0.
pub fn to_text(exclude_zero_counters: bool) -> String {
    CONTEXT.with(|c| {
        let mut text = String::new();
        for metric in PerfMetric::all() {
            let count = c.counts[metric as usize].get();
            if count > 0 || !exclude_zero_counters {
                let _ = write!(text, "{} = {count}, ", metric.name());
            }
        }
        if BY_LEVEL.get() {
            for metric in LevelMetric::all() {
                let _ = write!(text, "{} = ", metric.name());
                for (tree_level, counts) in c.level_counts.borrow().iter() {
                    let count = counts[metric as usize];
                    if count > 0 || !exclude_zero_counters {
                        let _ = write!(text, "{count}@level{tree_level}, ");
                    }
                }
            }
        }
        text.truncate(text.trim_end_matches([',', ' ']).len());
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_counts_until_asked_and_each_thread_counts_for_itself() {
        reset();
        count(PerfMetric::BlockReadCount, 3);
        assert_eq!(get(PerfMetric::BlockReadCount), 0);
        set_level(PerfLevel::EnableCount);
        count(PerfMetric::BlockReadCount, 3);
        time(PerfMetric::BlockReadTime, 500);
        assert_eq!((get(PerfMetric::BlockReadCount), get(PerfMetric::BlockReadTime)), (3, 0));
        set_level(PerfLevel::EnableTimeExceptForMutex);
        assert!(timing());
        time(PerfMetric::BlockReadTime, 500);
        std::thread::spawn(|| assert_eq!(level(), PerfLevel::Disable)).join().unwrap();
        assert_eq!(to_text(true), "block_read_count = 3, block_read_time = 500");
        assert!(to_text(false).starts_with("user_key_comparison_count = 0, block_cache_hit_count = 0, "));
        reset();
        set_level(PerfLevel::Disable);
        assert_eq!(to_text(true), "");
    }

    #[test]
    fn levels_are_kept_apart() {
        set_level(PerfLevel::EnableCount);
        count_at_level(LevelMetric::BlockCacheHitCount, 1, 1);
        set_by_level(true);
        count_at_level(LevelMetric::BlockCacheHitCount, 1, 2);
        count_at_level(LevelMetric::BlockCacheHitCount, 6, 4);
        assert_eq!(get_at_level(LevelMetric::BlockCacheHitCount, 1), 2);
        assert_eq!(get_at_level(LevelMetric::BlockCacheHitCount, 0), 0);
        assert!(to_text(true).contains("block_cache_hit_count = 2@level1, 4@level6"));
    }
}
