//! Creation and destruction of options, and their settings other than numbers: objects, lists and
//! texts.

use super::{ByName, FifoHandle, Number, OptionsHandle, TableHandle, UniversalHandle};
use crate::boundary::*;
use crate::cache::{Cache, DbPath, Environment, FileManager, Limiter, WriteBuffers};
use crate::callbacks::{ComparatorHandle, FactoryHandle, FilterHandle, MergeHandle, PrefixHandle};
use karstdb::options::{ColumnFamilyOptions, Compression, DbOptions, OptionSet};
use karstdb::{
    CompactOnDeletion, FileChecksumGenCrc32cFactory, FileChecksumGenFactory, SstPartitionerFactory,
    SstPartitionerFixedPrefixFactory, Statistics, StatsLevel,
};
use libc::{c_char, c_int, c_uchar};
use std::sync::Arc;

/// `rocksdb_filterpolicy_t`: the policy's text in options.
#[derive(Debug)]
pub struct FilterPolicy(String);

impl FilterPolicy {
    pub(crate) fn bloom(bits: f64) -> FilterPolicy {
        FilterPolicy(format!("bloomfilter:{bits}:false"))
    }

    /// Returns Ribbon filters, with Bloom filters on levels below `bloom_before_level`, where a
    /// flush counts as level -1.
    pub(crate) fn ribbon(bits: f64, bloom_before_level: c_int) -> FilterPolicy {
        FilterPolicy(format!("ribbonfilter:{bits}:{bloom_before_level}"))
    }
}

/// `rocksdb_sst_partitioner_factory_t`.
#[derive(Debug)]
pub struct PartitionerHandle(Arc<dyn SstPartitionerFactory>);

/// `rocksdb_file_checksum_gen_factory_t`: the only built-in one.
#[derive(Debug)]
pub struct ChecksumHandle;

fn set_text(options: &mut OptionsHandle, setter: &'static str, name: &str, text: &str) {
    if let Err(error) = options.assign(name, text) {
        say_once(setter, &error.to_string());
    }
}

unsafe fn set_c_text(options: *mut OptionsHandle, setter: &'static str, name: &str, value: *const c_char) {
    if let (Some(options), Ok(value)) = unsafe { (options.as_mut(), text(value)) } {
        set_text(options, setter, name, value);
    }
}

/// Sets some fields of `compression_opts` or `bottommost_compression_opts`.
unsafe fn compression(
    options: *mut OptionsHandle,
    setter: &'static str,
    outer: &str,
    fields: &[(&str, i128)],
) {
    let Some(options) = (unsafe { options.as_mut() }) else { return };
    for (name, value) in fields {
        options.set_number(setter, &format!("{outer}.{name}"), Number::Whole(*value));
    }
}

unsafe fn on_deletion(
    options: *mut OptionsHandle,
    window: usize,
    trigger: usize,
    ratio: f64,
    min_file_size: u64,
) {
    if let Some(options) = unsafe { options.as_mut() } {
        options.compact_on_deletion = Some(CompactOnDeletion {
            window_size: window as u64,
            deletion_trigger: trigger as u64,
            deletion_ratio: ratio,
            min_file_size,
        });
    }
}

/// Splits an option string into pairs, at the outer level of its braces.
fn split(text: &str) -> Vec<(&str, &str)> {
    let (mut depth, mut start, mut pairs) = (0_usize, 0, Vec::new());
    let ends = text.char_indices().chain([(text.len(), ';')]);
    for (at, letter) in ends {
        match letter {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ';' if depth == 0 || at == text.len() => {
                // A part without `=` becomes a name with an empty value; an unknown name is refused
                // later.
                let part = text[start..at].trim();
                if !part.is_empty() {
                    let (name, value) = part.split_once('=').unwrap_or((part, ""));
                    pairs.push((name.trim(), value.trim()));
                }
                start = at + 1;
            }
            _ => {}
        }
    }
    pairs
}

fn set_from_string(options: &mut OptionsHandle, text: &str) -> karstdb::Result<()> {
    for (name, value) in split(text) {
        let outcome = if DbOptions::info(name).is_some() || ColumnFamilyOptions::info(name).is_some() {
            options.assign(name, value)
        } else {
            options.family.table_factory.block_based.set(name, value).map(drop)
        };
        outcome.map_err(|error| invalid(error.to_string()))?;
    }
    Ok(())
}

capi! {
    // User-defined indexes do not exist here, so there is nothing to clear or to name.
    call rocksdb_block_based_options_clear_user_defined_index_factory(_table: *mut TableHandle) {}
    call rocksdb_block_based_options_get_user_defined_index_factory_name(_table: *const TableHandle, size: *mut usize) -> *const c_char {
        lend_or_null(None, size)
    }
    call rocksdb_options_create() -> *mut OptionsHandle { give(OptionsHandle::default()) }
    call rocksdb_options_create_copy(options: *const OptionsHandle) -> *mut OptionsHandle {
        options.as_ref().map_or(std::ptr::null_mut(), |options| give(options.clone()))
    }
    call rocksdb_options_destroy(options: *mut OptionsHandle) { end(options); }
    attempt rocksdb_get_options_from_string(base: *const OptionsHandle, text_: *const c_char, new: *mut OptionsHandle) {
        let mut changed = of(base)?.clone();
        set_from_string(&mut changed, text(text_)?)?;
        *of_mut(new)? = changed;
        Ok(())
    }

    call rocksdb_options_set_comparator(options: *mut OptionsHandle, comparator: *const ComparatorHandle) {
        if let Some(options) = options.as_mut() { options.comparator = comparator.as_ref().map(|comparator| comparator.0.clone()) }
    }
    call rocksdb_options_set_merge_operator(options: *mut OptionsHandle, operator: *mut MergeHandle) {
        if let Some(options) = options.as_mut() { options.merge_operator = take(operator).map(|operator| operator.0) }
    }
    call rocksdb_options_set_uint64add_merge_operator(options: *mut OptionsHandle) {
        if let Some(options) = options.as_mut() { set_text(options, "rocksdb_options_set_uint64add_merge_operator", "merge_operator", "UInt64AddOperator") }
    }
    call rocksdb_options_set_compaction_filter(options: *mut OptionsHandle, filter: *const FilterHandle) {
        if let Some(options) = options.as_mut() { options.compaction_filter = filter.as_ref().map(FilterHandle::filter) }
    }
    call rocksdb_options_set_compaction_filter_factory(options: *mut OptionsHandle, factory: *mut FactoryHandle) {
        if let Some(options) = options.as_mut() { options.compaction_filter_factory = take(factory).map(|factory| factory.0) }
    }
    call rocksdb_options_set_prefix_extractor(options: *mut OptionsHandle, prefix: *mut PrefixHandle) {
        if let Some(options) = options.as_mut() { options.prefix_extractor = take(prefix).map(|prefix| prefix.0) }
    }
    call rocksdb_sst_partitioner_fixed_prefix_factory_create(length: usize) -> *mut PartitionerHandle {
        give(PartitionerHandle(Arc::new(SstPartitionerFixedPrefixFactory { length })))
    }
    call rocksdb_sst_partitioner_factory_destroy(factory: *mut PartitionerHandle) { end(factory); }
    call rocksdb_options_set_sst_partitioner_factory(options: *mut OptionsHandle, factory: *const PartitionerHandle) {
        if let (Some(options), Some(factory)) = (options.as_mut(), factory.as_ref()) { options.sst_partitioner_factory = Some(factory.0.clone()) }
    }
    call rocksdb_file_checksum_gen_crc32c_factory_create() -> *mut ChecksumHandle { give(ChecksumHandle) }
    call rocksdb_file_checksum_gen_factory_destroy(factory: *mut ChecksumHandle) { end(factory); }
    call rocksdb_options_set_file_checksum_gen_factory(options: *mut OptionsHandle, factory: *const ChecksumHandle) {
        if let (Some(options), Some(_)) = (options.as_mut(), factory.as_ref()) { set_text(options, "rocksdb_options_set_file_checksum_gen_factory", "file_checksum_gen_factory", FileChecksumGenCrc32cFactory.name()) }
    }
    call rocksdb_options_set_env(options: *mut OptionsHandle, env: *const Environment) {
        if let Some(options) = options.as_mut() { options.env = env.as_ref().map(|env| env.0.clone()) }
    }
    call rocksdb_options_set_ratelimiter(options: *mut OptionsHandle, limiter: *const Limiter) {
        if let Some(options) = options.as_mut() { options.rate_limiter = limiter.as_ref().map(|limiter| limiter.0.clone()) }
    }
    call rocksdb_options_set_sst_file_manager(options: *mut OptionsHandle, manager: *const FileManager) {
        if let Some(options) = options.as_mut() { options.file_manager = manager.as_ref().map(|manager| manager.0.clone()) }
    }
    call rocksdb_options_set_write_buffer_manager(options: *mut OptionsHandle, buffers: *const WriteBuffers) {
        if let Some(options) = options.as_mut() { options.write_buffers = buffers.as_ref().map(|buffers| buffers.manager.clone()) }
    }
    call rocksdb_options_set_blob_cache(options: *mut OptionsHandle, cache: *const Cache) {
        if let Some(options) = options.as_mut() { options.blob_cache = cache.as_ref().map(|cache| cache.0.clone()) }
    }
    call rocksdb_options_set_db_paths(options: *mut OptionsHandle, paths: *const *const DbPath, count: usize) {
        if let Some(options) = options.as_mut() {
            options.paths = list(paths, count).iter().filter_map(|path| Some(path.as_ref()?.0.clone())).collect();
        }
    }
    call rocksdb_options_set_cf_paths(options: *mut OptionsHandle, paths: *const *const DbPath, count: usize) {
        if let Some(options) = options.as_mut() {
            options.family_paths = list(paths, count).iter().filter_map(|path| Some(path.as_ref()?.0.clone())).collect();
        }
    }
    call rocksdb_options_set_block_based_table_factory(options: *mut OptionsHandle, table: *const TableHandle) {
        if let (Some(options), Some(table)) = (options.as_mut(), table.as_ref()) {
            options.family.table_factory.block_based = table.options.clone();
            options.block_cache = table.cache.clone();
            options.kept.0.extend(table.kept.0.clone());
        }
    }
    call rocksdb_options_set_universal_compaction_options(options: *mut OptionsHandle, universal: *const UniversalHandle) {
        if let (Some(options), Some(universal)) = (options.as_mut(), universal.as_ref()) {
            options.family.compaction_options_universal = universal.options.clone();
            options.kept.0.extend(universal.kept.0.clone());
        }
    }
    call rocksdb_options_set_fifo_compaction_options(options: *mut OptionsHandle, fifo: *const FifoHandle) {
        if let (Some(options), Some(fifo)) = (options.as_mut(), fifo.as_ref()) {
            options.family.compaction_options_fifo = fifo.options.clone();
            options.kept.0.extend(fifo.kept.0.clone());
        }
    }
    call rocksdb_options_set_compression_per_level(options: *mut OptionsHandle, levels: *const c_int, count: usize) {
        let Some(options) = options.as_mut() else { return };
        let level = |level: &c_int| u8::try_from(*level).ok().and_then(Compression::from_number).map(Compression::name);
        match list(levels, count).iter().map(level).collect::<Option<Vec<_>>>() {
            Some(names) => set_text(options, "rocksdb_options_set_compression_per_level", "compression_per_level", &names.join(":")),
            None => say_once("rocksdb_options_set_compression_per_level", "no compression has this number"),
        }
    }
    call rocksdb_options_set_min_level_to_compress(options: *mut OptionsHandle, level: c_int) {
        let (Some(options), Ok(level)) = (options.as_mut(), usize::try_from(level)) else { return };
        let family = &mut options.family;
        let levels = usize::try_from(family.num_levels).unwrap_or(0);
        let of_level = |at| if at < level { Compression::None } else { family.compression };
        family.compression_per_level = (0..levels).map(of_level).collect();
    }
    call rocksdb_options_set_max_bytes_for_level_multiplier_additional(options: *mut OptionsHandle, levels: *const c_int, count: usize) {
        let Some(options) = options.as_mut() else { return };
        let levels: Vec<_> = list(levels, count).iter().map(c_int::to_string).collect();
        set_text(options, "rocksdb_options_set_max_bytes_for_level_multiplier_additional", "max_bytes_for_level_multiplier_additional", &levels.join(":"));
    }
    call rocksdb_options_set_compression_options(options: *mut OptionsHandle, window_bits: c_int, level: c_int, strategy: c_int, max_dict_bytes: c_int) {
        compression(options, "rocksdb_options_set_compression_options", "compression_opts", &[("window_bits", window_bits.into()), ("level", level.into()), ("strategy", strategy.into()), ("max_dict_bytes", max_dict_bytes.into())]);
    }
    call rocksdb_options_set_bottommost_compression_options(options: *mut OptionsHandle, window_bits: c_int, level: c_int, strategy: c_int, max_dict_bytes: c_int, enabled: c_uchar) {
        compression(options, "rocksdb_options_set_bottommost_compression_options", "bottommost_compression_opts", &[("window_bits", window_bits.into()), ("level", level.into()), ("strategy", strategy.into()), ("max_dict_bytes", max_dict_bytes.into()), ("enabled", enabled.into())]);
    }
    call rocksdb_options_set_bottommost_compression_options_zstd_max_train_bytes(options: *mut OptionsHandle, bytes: c_int, enabled: c_uchar) {
        compression(options, "rocksdb_options_set_bottommost_compression_options_zstd_max_train_bytes", "bottommost_compression_opts", &[("zstd_max_train_bytes", bytes.into()), ("enabled", enabled.into())]);
    }
    call rocksdb_options_set_bottommost_compression_options_use_zstd_dict_trainer(options: *mut OptionsHandle, trainer: c_uchar, enabled: c_uchar) {
        compression(options, "rocksdb_options_set_bottommost_compression_options_use_zstd_dict_trainer", "bottommost_compression_opts", &[("use_zstd_dict_trainer", trainer.into()), ("enabled", enabled.into())]);
    }
    call rocksdb_options_set_bottommost_compression_options_max_dict_buffer_bytes(options: *mut OptionsHandle, bytes: u64, enabled: c_uchar) {
        compression(options, "rocksdb_options_set_bottommost_compression_options_max_dict_buffer_bytes", "bottommost_compression_opts", &[("max_dict_buffer_bytes", bytes.into()), ("enabled", enabled.into())]);
    }
    call rocksdb_options_set_db_log_dir(options: *mut OptionsHandle, dir: *const c_char) { set_c_text(options, "rocksdb_options_set_db_log_dir", "db_log_dir", dir) }
    call rocksdb_options_set_wal_dir(options: *mut OptionsHandle, dir: *const c_char) { set_c_text(options, "rocksdb_options_set_wal_dir", "wal_dir", dir) }
    call rocksdb_options_set_daily_offpeak_time_utc(options: *mut OptionsHandle, time: *const c_char) { set_c_text(options, "rocksdb_options_set_daily_offpeak_time_utc", "daily_offpeak_time_utc", time) }
    call rocksdb_options_get_daily_offpeak_time_utc(options: *const OptionsHandle, size: *mut usize) -> *const c_char {
        options.as_ref().map_or(std::ptr::null(), |options| lend(options.db.daily_offpeak_time_utc.as_bytes(), size))
    }
    call rocksdb_options_get_db_log_dir(options: *const OptionsHandle, size: *mut usize) -> *const c_char {
        options.as_ref().map_or(std::ptr::null(), |options| lend(options.db.db_log_dir.as_bytes(), size))
    }
    call rocksdb_options_set_db_host_id(options: *mut OptionsHandle, id: *const c_char) { set_c_text(options, "rocksdb_options_set_db_host_id", "db_host_id", id) }
    call rocksdb_options_get_db_host_id(options: *const OptionsHandle, size: *mut usize) -> *const c_char {
        options.as_ref().map_or(std::ptr::null(), |options| lend(options.db.db_host_id.as_bytes(), size))
    }
    call rocksdb_options_get_wal_dir(options: *const OptionsHandle, size: *mut usize) -> *const c_char {
        options.as_ref().map_or(std::ptr::null(), |options| lend(options.db.wal_dir.as_bytes(), size))
    }
    call rocksdb_options_compaction_readahead_size(options: *mut OptionsHandle, bytes: usize) {
        if let Some(options) = options.as_mut() { options.db.compaction_readahead_size = bytes }
    }

    call rocksdb_options_add_compact_on_deletion_collector_factory(options: *mut OptionsHandle, window: usize, trigger: usize) { on_deletion(options, window, trigger, 0.0, 0) }
    call rocksdb_options_add_compact_on_deletion_collector_factory_del_ratio(options: *mut OptionsHandle, window: usize, trigger: usize, ratio: f64) { on_deletion(options, window, trigger, ratio, 0) }
    call rocksdb_options_add_compact_on_deletion_collector_factory_min_file_size(options: *mut OptionsHandle, window: usize, trigger: usize, ratio: f64, min_file_size: u64) { on_deletion(options, window, trigger, ratio, min_file_size) }

    call rocksdb_options_increase_parallelism(options: *mut OptionsHandle, threads: c_int) {
        if let Some(options) = options.as_mut() { options.db.max_background_jobs = threads.max(1) }
    }
    call rocksdb_options_optimize_for_point_lookup(options: *mut OptionsHandle, cache_mb: u64) {
        let Some(options) = options.as_mut() else { return };
        let table = &mut options.family.table_factory.block_based;
        or_say("rocksdb_options_optimize_for_point_lookup", table.set("filter_policy", "bloomfilter:10").map_err(|e| invalid(e.to_string())));
        table.data_block_index_type = karstdb::options::DataBlockIndexType::BinaryAndHash;
        options.block_cache = Some(karstdb::BlockCache::new(usize::try_from(cache_mb << 20).unwrap_or(usize::MAX)));
        options.set_number("rocksdb_options_optimize_for_point_lookup", "memtable_prefix_bloom_size_ratio", Number::Real(0.02));
        options.set_number("rocksdb_options_optimize_for_point_lookup", "memtable_whole_key_filtering", Number::Whole(1));
    }
    call rocksdb_options_optimize_level_style_compaction(options: *mut OptionsHandle, budget: u64) {
        let Some(options) = options.as_mut() else { return };
        let name = "rocksdb_options_optimize_level_style_compaction";
        for (option, value) in [("write_buffer_size", budget / 4), ("min_write_buffer_number_to_merge", 2), ("max_write_buffer_number", 6), ("level0_file_num_compaction_trigger", 2), ("target_file_size_base", budget / 8), ("max_bytes_for_level_base", budget)] {
            options.set_number(name, option, Number::Whole(value.into()));
        }
        set_text(options, name, "compaction_style", "kCompactionStyleLevel");
    }
    call rocksdb_options_optimize_universal_style_compaction(options: *mut OptionsHandle, budget: u64) {
        let Some(options) = options.as_mut() else { return };
        let name = "rocksdb_options_optimize_universal_style_compaction";
        for (option, value) in [("write_buffer_size", budget / 4), ("min_write_buffer_number_to_merge", 2), ("max_write_buffer_number", 6)] {
            options.set_number(name, option, Number::Whole(value.into()));
        }
        set_text(options, name, "compaction_style", "kCompactionStyleUniversal");
        options.family.compaction_options_universal.compression_size_percent = 80;
    }
    call rocksdb_options_prepare_for_bulk_load(options: *mut OptionsHandle) {
        let Some(options) = options.as_mut() else { return };
        let big = 1_i128 << 30;
        for (option, value) in [("level0_file_num_compaction_trigger", big), ("level0_slowdown_writes_trigger", big), ("level0_stop_writes_trigger", big), ("disable_auto_compactions", 1), ("max_write_buffer_number", 6), ("min_write_buffer_number_to_merge", 1), ("max_background_flushes", 4), ("max_background_compactions", 2), ("target_file_size_base", 256 << 20), ("num_levels", 2), ("max_compaction_bytes", i128::from(u64::MAX >> 1)), ("soft_pending_compaction_bytes_limit", 0), ("hard_pending_compaction_bytes_limit", 0)] {
            options.set_number("rocksdb_options_prepare_for_bulk_load", option, Number::Whole(value));
        }
    }

    call rocksdb_options_enable_statistics(options: *mut OptionsHandle) {
        if let Some(options) = options.as_mut() { options.statistics = Some(Arc::new(Statistics::new(StatsLevel::ExceptDetailedTimers))) }
    }
    // Compat: the level belongs to the statistics, which exist once they are enabled.
    call rocksdb_options_set_statistics_level(options: *mut OptionsHandle, level: c_int) {
        let Some(statistics) = options.as_ref().and_then(|options| options.statistics.as_ref()) else { return };
        statistics.set_level(match level {
            ..=0 => StatsLevel::DisableAll,
            1 => StatsLevel::ExceptHistogramOrTimers,
            2 => StatsLevel::ExceptTimers,
            3 => StatsLevel::ExceptDetailedTimers,
            4 => StatsLevel::ExceptTimeForMutex,
            _ => StatsLevel::All,
        });
    }
    call rocksdb_options_get_statistics_level(options: *const OptionsHandle) -> c_int {
        let statistics = options.as_ref().and_then(|options| options.statistics.as_ref());
        statistics.map_or(StatsLevel::DisableAll, |statistics| statistics.level()) as c_int
    }

    call rocksdb_block_based_options_create() -> *mut TableHandle { give(TableHandle::default()) }
    call rocksdb_block_based_options_destroy(options: *mut TableHandle) { end(options); }
    call rocksdb_block_based_options_set_block_cache(options: *mut TableHandle, cache: *const Cache) {
        if let Some(options) = options.as_mut() { options.cache = cache.as_ref().map(|cache| cache.0.clone()) }
    }
    call rocksdb_block_based_options_set_filter_policy(options: *mut TableHandle, policy: *mut FilterPolicy) {
        let (Some(options), Some(policy)) = (options.as_mut(), take(policy)) else { return };
        or_say("rocksdb_block_based_options_set_filter_policy", options.assign("filter_policy", &policy.0).map_err(|e| invalid(e.to_string())));
    }
    call rocksdb_filterpolicy_create_bloom(bits: f64) -> *mut FilterPolicy { give(FilterPolicy::bloom(bits)) }
    call rocksdb_filterpolicy_create_bloom_full(bits: f64) -> *mut FilterPolicy { give(FilterPolicy::bloom(bits)) }
    // Compat: Ribbon on every level, flushed tables included; option strings by default use Bloom
    // for flushed tables.
    call rocksdb_filterpolicy_create_ribbon(bits: f64) -> *mut FilterPolicy { give(FilterPolicy::ribbon(bits, -1)) }
    call rocksdb_filterpolicy_create_ribbon_hybrid(bits: f64, bloom_before_level: c_int) -> *mut FilterPolicy { give(FilterPolicy::ribbon(bits, bloom_before_level)) }
    call rocksdb_filterpolicy_destroy(policy: *mut FilterPolicy) { end(policy); }

    call rocksdb_universal_compaction_options_create() -> *mut UniversalHandle { give(UniversalHandle::default()) }
    call rocksdb_universal_compaction_options_destroy(options: *mut UniversalHandle) { end(options); }
    call rocksdb_fifo_compaction_options_create() -> *mut FifoHandle { give(FifoHandle::default()) }
    call rocksdb_fifo_compaction_options_destroy(options: *mut FifoHandle) { end(options); }
}
