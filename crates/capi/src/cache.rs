//! Objects that databases share: caches, budgets of memtables, rate limiters, environments and
//! paths.

use crate::boundary::*;
use karstdb::io::{Env, MemoryFileSystem, Priority};
use karstdb::{BlockCache, CacheOptions, RateLimiter, SstFileManager, WriteBufferManager};
use libc::{c_char, c_int};
use std::sync::Arc;
use std::time::Duration;

/// `rocksdb_cache_t`.
#[derive(Debug)]
pub struct Cache(pub(crate) BlockCache);

/// `rocksdb_write_buffer_manager_t`.
#[derive(Debug)]
pub struct WriteBuffers {
    pub(crate) manager: WriteBufferManager,
    in_cache: bool,
}

/// `rocksdb_ratelimiter_t`.
#[derive(Debug)]
pub struct Limiter(pub(crate) RateLimiter);

/// `rocksdb_sst_file_manager_t`.
#[derive(Debug)]
pub struct FileManager(pub(crate) SstFileManager);

/// `rocksdb_env_t`.
#[derive(Debug)]
pub struct Environment(pub(crate) Env);

/// `rocksdb_dbpath_t`.
#[derive(Debug)]
pub struct DbPath(pub(crate) karstdb::DbPath);

fn cache(capacity: usize, strict_capacity: bool) -> *mut Cache {
    give(Cache(BlockCache::with_options(CacheOptions {
        capacity_bytes: capacity,
        strict_capacity,
        ..CacheOptions::default()
    })))
}

fn limiter(rate: i64, period_us: i64, fairness: i32, auto_tuned: bool) -> *mut Limiter {
    let number = |number: i64| u64::try_from(number).unwrap_or(0).max(1);
    let period = Duration::from_micros(number(period_us));
    let make = if auto_tuned { RateLimiter::auto_tuned } else { RateLimiter::with_periods };
    give(Limiter(make(number(rate), period, number(fairness.into()))))
}

/// RocksDB's number for a limiter of writes alone.
const WRITES_ONLY: c_int = 1;

unsafe fn threads(env: *const Environment, priority: Priority, count: c_int) {
    if let (Some(env), Ok(count)) = (unsafe { env.as_ref() }, usize::try_from(count)) {
        env.0.set_background_threads(priority, count.max(1));
    }
}

unsafe fn threads_of(env: *const Environment, priority: Priority) -> c_int {
    let threads = unsafe { env.as_ref() }.map_or(0, |env| env.0.background_threads(priority));
    c_int::try_from(threads).unwrap_or(c_int::MAX)
}

capi! {
    call rocksdb_cache_create_lru(capacity: usize) -> *mut Cache { cache(capacity, false) }
    call rocksdb_cache_create_lru_with_strict_capacity_limit(capacity: usize) -> *mut Cache { cache(capacity, true) }
    call rocksdb_cache_create_hyper_clock(capacity: usize, estimated_entry_charge: usize) -> *mut Cache {
        give(Cache(BlockCache::with_options(CacheOptions { capacity_bytes: capacity, estimated_entry_bytes: estimated_entry_charge, ..CacheOptions::default() })))
    }
    call rocksdb_cache_destroy(cache: *mut Cache) { end(cache); }
    // The memory stays allocated when the cache is destroyed, for processes that exit then.
    call rocksdb_cache_disown_data(cache: *const Cache) { if let Some(cache) = cache.as_ref() { std::mem::forget(cache.0.clone()) } }
    call rocksdb_cache_set_capacity(cache: *const Cache, capacity: usize) { if let Some(cache) = cache.as_ref() { cache.0.set_capacity(capacity) } }
    call rocksdb_cache_get_capacity(cache: *const Cache) -> usize { cache.as_ref().map_or(0, |cache| cache.0.capacity_bytes()) }
    call rocksdb_cache_get_usage(cache: *const Cache) -> usize { cache.as_ref().map_or(0, |cache| cache.0.usage_bytes()) }
    call rocksdb_cache_get_pinned_usage(cache: *const Cache) -> usize { cache.as_ref().map_or(0, |cache| cache.0.pinned_bytes()) }
    call rocksdb_cache_get_occupancy_count(cache: *const Cache) -> usize { cache.as_ref().map_or(0, |cache| cache.0.entry_count()) }

    call rocksdb_write_buffer_manager_create(size: usize, allow_stall: bool) -> *mut WriteBuffers {
        give(WriteBuffers { manager: WriteBufferManager::new(size, allow_stall), in_cache: false })
    }
    call rocksdb_write_buffer_manager_create_with_cache(size: usize, cache: *const Cache, allow_stall: bool) -> *mut WriteBuffers {
        match cache.as_ref() {
            Some(cache) => give(WriteBuffers { manager: WriteBufferManager::with_cache(size, &cache.0, allow_stall), in_cache: true }),
            None => give(WriteBuffers { manager: WriteBufferManager::new(size, allow_stall), in_cache: false }),
        }
    }
    call rocksdb_write_buffer_manager_destroy(buffers: *mut WriteBuffers) { end(buffers); }
    call rocksdb_write_buffer_manager_enabled(buffers: *const WriteBuffers) -> bool { buffers.as_ref().is_some_and(|buffers| buffers.manager.limit_bytes() > 0) }
    call rocksdb_write_buffer_manager_cost_to_cache(buffers: *const WriteBuffers) -> bool { buffers.as_ref().is_some_and(|buffers| buffers.in_cache) }
    call rocksdb_write_buffer_manager_memory_usage(buffers: *const WriteBuffers) -> usize { buffers.as_ref().map_or(0, |buffers| buffers.manager.used_bytes()) }
    call rocksdb_write_buffer_manager_mutable_memtable_memory_usage(buffers: *const WriteBuffers) -> usize { buffers.as_ref().map_or(0, |buffers| buffers.manager.active_bytes()) }
    call rocksdb_write_buffer_manager_buffer_size(buffers: *const WriteBuffers) -> usize { buffers.as_ref().map_or(0, |buffers| buffers.manager.limit_bytes()) }
    call rocksdb_write_buffer_manager_dummy_entries_in_cache_usage(buffers: *const WriteBuffers) -> usize { buffers.as_ref().map_or(0, |buffers| buffers.manager.charged_cache_bytes()) }
    call rocksdb_write_buffer_manager_set_allow_stall(buffers: *const WriteBuffers, allow: bool) { if let Some(buffers) = buffers.as_ref() { buffers.manager.set_allow_stall(allow) } }
    call rocksdb_write_buffer_manager_set_buffer_size(buffers: *const WriteBuffers, size: usize) { if let Some(buffers) = buffers.as_ref() { buffers.manager.set_limit_bytes(size) } }

    call rocksdb_ratelimiter_create(rate: i64, period_us: i64, fairness: i32) -> *mut Limiter { limiter(rate, period_us, fairness, false) }
    call rocksdb_ratelimiter_create_auto_tuned(rate: i64, period_us: i64, fairness: i32) -> *mut Limiter { limiter(rate, period_us, fairness, true) }
    // Only writes are limited; a limiter of reads is refused.
    call rocksdb_ratelimiter_create_with_mode(rate: i64, period_us: i64, fairness: i32, mode: c_int, auto_tuned: bool) -> *mut Limiter {
        if mode == WRITES_ONLY { return limiter(rate, period_us, fairness, auto_tuned) }
        say_once("rocksdb_ratelimiter_create_with_mode", "reads are not limited: there is no limiter");
        std::ptr::null_mut()
    }
    call rocksdb_ratelimiter_destroy(limiter: *mut Limiter) { end(limiter); }

    call rocksdb_sst_file_manager_create(_env: *const Environment) -> *mut FileManager { give(FileManager(SstFileManager::new())) }
    call rocksdb_sst_file_manager_destroy(manager: *mut FileManager) { end(manager); }
    call rocksdb_sst_file_manager_set_max_allowed_space_usage(manager: *const FileManager, bytes: u64) { if let Some(manager) = manager.as_ref() { manager.0.set_max_allowed_space_usage(bytes) } }
    call rocksdb_sst_file_manager_set_compaction_buffer_size(manager: *const FileManager, bytes: u64) { if let Some(manager) = manager.as_ref() { manager.0.set_compaction_buffer_size(bytes) } }
    call rocksdb_sst_file_manager_is_max_allowed_space_reached(manager: *const FileManager) -> bool { manager.as_ref().is_some_and(|manager| manager.0.is_max_allowed_space_reached()) }
    call rocksdb_sst_file_manager_is_max_allowed_space_reached_including_compactions(manager: *const FileManager) -> bool { manager.as_ref().is_some_and(|manager| manager.0.is_max_allowed_space_reached_including_compactions()) }
    call rocksdb_sst_file_manager_get_total_size(manager: *const FileManager) -> u64 { manager.as_ref().map_or(0, |manager| manager.0.total_size()) }
    call rocksdb_sst_file_manager_get_total_trash_size(manager: *const FileManager) -> u64 { manager.as_ref().map_or(0, |manager| manager.0.total_trash_size()) }
    call rocksdb_sst_file_manager_get_delete_rate_bytes_per_second(manager: *const FileManager) -> i64 {
        manager.as_ref().map_or(0, |manager| i64::try_from(manager.0.delete_rate_bytes_per_second()).unwrap_or(i64::MAX))
    }
    call rocksdb_sst_file_manager_set_delete_rate_bytes_per_second(manager: *const FileManager, rate: i64) {
        if let Some(manager) = manager.as_ref() { manager.0.set_delete_rate_bytes_per_second(u64::try_from(rate).unwrap_or(0)) }
    }
    call rocksdb_sst_file_manager_get_max_trash_db_ratio(manager: *const FileManager) -> f64 { manager.as_ref().map_or(0.0, |manager| manager.0.max_trash_db_ratio()) }
    call rocksdb_sst_file_manager_set_max_trash_db_ratio(manager: *const FileManager, ratio: f64) { if let Some(manager) = manager.as_ref() { manager.0.set_max_trash_db_ratio(ratio) } }

    call rocksdb_create_default_env() -> *mut Environment { give(Environment(Env::posix())) }
    call rocksdb_create_mem_env() -> *mut Environment {
        give(Environment(Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build()))
    }
    attempt rocksdb_create_dir_if_missing(env: *const Environment, dir: *const c_char) {
        Ok(of(env)?.0.fs().create_dir(path(dir)?)?)
    }
    call rocksdb_env_destroy(env: *mut Environment) { end(env); }
    call rocksdb_env_set_background_threads(env: *const Environment, n: c_int) { threads(env, Priority::Low, n) }
    call rocksdb_env_get_background_threads(env: *const Environment) -> c_int { threads_of(env, Priority::Low) }
    call rocksdb_env_set_low_priority_background_threads(env: *const Environment, n: c_int) { threads(env, Priority::Low, n) }
    call rocksdb_env_get_low_priority_background_threads(env: *const Environment) -> c_int { threads_of(env, Priority::Low) }
    call rocksdb_env_set_high_priority_background_threads(env: *const Environment, n: c_int) { threads(env, Priority::High, n) }
    call rocksdb_env_get_high_priority_background_threads(env: *const Environment) -> c_int { threads_of(env, Priority::High) }
    call rocksdb_env_set_bottom_priority_background_threads(env: *const Environment, n: c_int) { threads(env, Priority::Bottom, n) }
    call rocksdb_env_get_bottom_priority_background_threads(env: *const Environment) -> c_int { threads_of(env, Priority::Bottom) }

    call rocksdb_dbpath_create(at: *const c_char, target_size: u64) -> *mut DbPath {
        or_say("rocksdb_dbpath_create", path(at)).map_or(std::ptr::null_mut(), |path| give(DbPath(karstdb::DbPath::new(path, target_size))))
    }
    call rocksdb_dbpath_destroy(path: *mut DbPath) { end(path); }
}
