//! Statistics, the perf context, and memory use.

use crate::boundary::*;
use crate::cache::Cache;
use crate::handle::Database;
use crate::options::OptionsHandle;
use karstdb::perf_context::{self, PerfLevel, PerfMetric};
use karstdb::{BlockCache, Db, Histogram, HistogramKind, Ticker};
use libc::{c_char, c_int, c_uchar};
use std::cell::Cell;

/// `rocksdb_slice_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Slice {
    data: *const c_char,
    size: usize,
}

impl Slice {
    pub(crate) fn of(bytes: Option<&[u8]>) -> Slice {
        // Not null for `None`, because callers turn it into slices of their languages, which forbid
        // null.
        let bytes = bytes.unwrap_or_default();
        Slice { data: bytes.as_ptr().cast(), size: bytes.len() }
    }

    /// Returns the bytes of a slice that C passes.
    pub(crate) unsafe fn bytes<'a>(&self) -> &'a [u8] {
        unsafe { bytes(self.data, self.size) }
    }
}

/// `rocksdb_statistics_histogram_data_t`.
#[derive(Debug, Default)]
pub struct HistogramData(Histogram);

/// `rocksdb_perfcontext_t`: that of the thread that calls; the handle is not bound to one.
#[derive(Debug)]
pub struct PerfContext(());

/// `rocksdb_memory_consumers_t`.
#[derive(Debug, Default)]
pub struct Consumers {
    dbs: Vec<Db>,
    caches: Vec<BlockCache>,
}

/// `rocksdb_memory_usage_t`.
#[derive(Debug)]
pub struct MemoryUsage {
    memtables: u64,
    unflushed: u64,
    readers: u64,
    caches: u64,
}

thread_local! {
    /// True once the calling thread has set its level or created a perf context.
    static COUNTS: Cell<bool> = const { Cell::new(false) };
}

/// Starts counting on the calling thread, unless it has set a level.
///
/// Compat: every thread of RocksDB counts, at the level `rocksdb_enable_count`. Here a thread that
/// never reads its counts does not pay for them.
fn count_on_this_thread() {
    if !COUNTS.replace(true) {
        perf_context::set_level(PerfLevel::EnableCount);
    }
}

unsafe fn histogram<T: Default>(data: *const HistogramData, get: impl FnOnce(&Histogram) -> T) -> T {
    unsafe { data.as_ref() }.map(|data| get(&data.0)).unwrap_or_default()
}

capi! {
    call rocksdb_options_statistics_get_string(options: *const OptionsHandle) -> *mut c_char {
        let statistics = options.as_ref().and_then(|options| options.statistics.as_ref());
        statistics.map_or(std::ptr::null_mut(), |statistics| text_out(&statistics.to_string()))
    }
    call rocksdb_options_statistics_get_ticker_count(options: *const OptionsHandle, ticker: u32) -> u64 {
        let statistics = options.as_ref().and_then(|options| options.statistics.as_ref());
        statistics.zip(Ticker::all().nth(ticker as usize)).map_or(0, |(statistics, ticker)| statistics.ticker(ticker))
    }
    call rocksdb_options_statistics_get_histogram_data(options: *const OptionsHandle, kind: u32, data: *mut HistogramData) {
        let statistics = options.as_ref().and_then(|options| options.statistics.as_ref());
        if let (Some((statistics, kind)), Some(data)) = (statistics.zip(HistogramKind::all().nth(kind as usize)), data.as_mut()) {
            data.0 = statistics.histogram(kind);
        }
    }
    call rocksdb_statistics_histogram_data_create() -> *mut HistogramData { give(HistogramData::default()) }
    call rocksdb_statistics_histogram_data_destroy(data: *mut HistogramData) { end(data); }
    call rocksdb_statistics_histogram_data_get_median(data: *const HistogramData) -> f64 { histogram(data, |data| data.percentile(50.0)) }
    call rocksdb_statistics_histogram_data_get_p95(data: *const HistogramData) -> f64 { histogram(data, |data| data.percentile(95.0)) }
    call rocksdb_statistics_histogram_data_get_p99(data: *const HistogramData) -> f64 { histogram(data, |data| data.percentile(99.0)) }
    call rocksdb_statistics_histogram_data_get_average(data: *const HistogramData) -> f64 { histogram(data, Histogram::average) }
    call rocksdb_statistics_histogram_data_get_std_dev(data: *const HistogramData) -> f64 { histogram(data, Histogram::standard_deviation) }
    call rocksdb_statistics_histogram_data_get_max(data: *const HistogramData) -> f64 { histogram(data, |data| data.max() as f64) }
    call rocksdb_statistics_histogram_data_get_min(data: *const HistogramData) -> f64 { histogram(data, |data| data.min() as f64) }
    call rocksdb_statistics_histogram_data_get_count(data: *const HistogramData) -> u64 { histogram(data, Histogram::count) }
    call rocksdb_statistics_histogram_data_get_sum(data: *const HistogramData) -> u64 { histogram(data, Histogram::sum) }

    call rocksdb_set_perf_level(level: c_int) {
        COUNTS.set(true);
        perf_context::set_level(match level {
            ..=1 => PerfLevel::Disable,
            2 => PerfLevel::EnableCount,
            3 => PerfLevel::EnableTimeExceptForMutex,
            _ => PerfLevel::EnableTime,
        });
    }
    call rocksdb_perfcontext_create() -> *mut PerfContext {
        count_on_this_thread();
        give(PerfContext(()))
    }
    call rocksdb_perfcontext_reset(_context: *const PerfContext) {
        count_on_this_thread();
        perf_context::reset();
    }
    call rocksdb_perfcontext_report(_context: *const PerfContext, exclude_zero_counters: c_uchar) -> *mut c_char {
        count_on_this_thread();
        text_out(&perf_context::to_text(exclude_zero_counters != 0))
    }
    call rocksdb_perfcontext_metric(_context: *const PerfContext, metric: c_int) -> u64 {
        count_on_this_thread();
        let name = usize::try_from(metric).ok().and_then(|metric| METRICS.get(metric).copied());
        name.and_then(PerfMetric::from_name).map_or(0, perf_context::get)
    }
    call rocksdb_perfcontext_destroy(context: *mut PerfContext) { end(context); }

    call rocksdb_memory_consumers_create() -> *mut Consumers { give(Consumers::default()) }
    call rocksdb_memory_consumers_add_db(consumers: *mut Consumers, db: *const Database) {
        if let (Some(consumers), Some(db)) = (consumers.as_mut(), db.as_ref()) { consumers.dbs.push(db.db.clone()) }
    }
    call rocksdb_memory_consumers_add_cache(consumers: *mut Consumers, cache: *const Cache) {
        if let (Some(consumers), Some(cache)) = (consumers.as_mut(), cache.as_ref()) { consumers.caches.push(cache.0.clone()) }
    }
    call rocksdb_memory_consumers_destroy(consumers: *mut Consumers) { end(consumers); }
    attempt rocksdb_approximate_memory_usage_create(consumers: *const Consumers) -> *mut MemoryUsage {
        let consumers = of(consumers)?;
        let sum = |property: &str| {
            let each = consumers.dbs.iter().flat_map(|db| db.column_families().into_iter().filter_map(|family| db.int_property_cf(&family, property)));
            each.sum::<u64>()
        };
        Ok(give(MemoryUsage {
            memtables: sum("rocksdb.size-all-mem-tables"),
            unflushed: sum("rocksdb.cur-size-all-mem-tables"),
            readers: sum("rocksdb.estimate-table-readers-mem"),
            caches: consumers.caches.iter().map(|cache| cache.memory_bytes() as u64).sum(),
        }))
    }
    call rocksdb_approximate_memory_usage_destroy(usage: *mut MemoryUsage) { end(usage); }
    call rocksdb_approximate_memory_usage_get_mem_table_total(usage: *const MemoryUsage) -> u64 { usage.as_ref().map_or(0, |usage| usage.memtables) }
    call rocksdb_approximate_memory_usage_get_mem_table_unflushed(usage: *const MemoryUsage) -> u64 { usage.as_ref().map_or(0, |usage| usage.unflushed) }
    call rocksdb_approximate_memory_usage_get_mem_table_readers_total(usage: *const MemoryUsage) -> u64 { usage.as_ref().map_or(0, |usage| usage.readers) }
    call rocksdb_approximate_memory_usage_get_cache_total(usage: *const MemoryUsage) -> u64 { usage.as_ref().map_or(0, |usage| usage.caches) }
}

/// Names of the metrics, at the index of RocksDB's number in C.
pub(crate) const METRICS: &[&str] = &[
    "user_key_comparison_count",
    "block_cache_hit_count",
    "block_read_count",
    "block_read_byte",
    "block_read_time",
    "block_checksum_time",
    "block_decompress_time",
    "get_read_bytes",
    "multiget_read_bytes",
    "iter_read_bytes",
    "internal_key_skipped_count",
    "internal_delete_skipped_count",
    "internal_recent_skipped_count",
    "internal_merge_count",
    "get_snapshot_time",
    "get_from_memtable_time",
    "get_from_memtable_count",
    "get_post_process_time",
    "get_from_output_files_time",
    "seek_on_memtable_time",
    "seek_on_memtable_count",
    "next_on_memtable_count",
    "prev_on_memtable_count",
    "seek_child_seek_time",
    "seek_child_seek_count",
    "seek_min_heap_time",
    "seek_max_heap_time",
    "seek_internal_seek_time",
    "find_next_user_entry_time",
    "write_wal_time",
    "write_memtable_time",
    "write_delay_time",
    "write_pre_and_post_process_time",
    "db_mutex_lock_nanos",
    "db_condition_wait_nanos",
    "merge_operator_time_nanos",
    "read_index_block_nanos",
    "read_filter_block_nanos",
    "new_table_block_iter_nanos",
    "new_table_iterator_nanos",
    "block_seek_nanos",
    "find_table_nanos",
    "bloom_memtable_hit_count",
    "bloom_memtable_miss_count",
    "bloom_sst_hit_count",
    "bloom_sst_miss_count",
    "key_lock_wait_time",
    "key_lock_wait_count",
    "env_new_sequential_file_nanos",
    "env_new_random_access_file_nanos",
    "env_new_writable_file_nanos",
    "env_reuse_writable_file_nanos",
    "env_new_random_rw_file_nanos",
    "env_new_directory_nanos",
    "env_file_exists_nanos",
    "env_get_children_nanos",
    "env_get_children_file_attributes_nanos",
    "env_delete_file_nanos",
    "env_create_dir_nanos",
    "env_create_dir_if_missing_nanos",
    "env_delete_dir_nanos",
    "env_get_file_size_nanos",
    "env_get_file_modification_time_nanos",
    "env_rename_file_nanos",
    "env_link_file_nanos",
    "env_lock_file_nanos",
    "env_unlock_file_nanos",
    "env_new_logger_nanos",
    "number_async_seek",
    "blob_cache_hit_count",
    "blob_read_count",
    "blob_read_byte",
    "blob_read_time",
    "blob_checksum_time",
    "blob_decompress_time",
    "internal_range_del_reseek_count",
    "block_read_cpu_time",
    "internal_merge_point_lookup_count",
    "data_block_read_byte",
    "index_block_read_byte",
    "filter_block_read_byte",
    "compression_dict_block_read_byte",
    "metadata_block_read_byte",
    "blob_cache_read_byte",
];
