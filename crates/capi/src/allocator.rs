//! Allocators of cache memory: only the process's own exists.

use crate::call_options::{CacheSettings, HyperClockSettings};
use karstdb::{Error, ErrorKind};

/// `rocksdb_memory_allocator_t`: always null, which is the default of the settings.
#[derive(Debug)]
pub enum Allocator {}

capi! {
    // Compat: fails like a RocksDB that was built without jemalloc.
    attempt rocksdb_jemalloc_nodump_allocator_create() -> *mut Allocator {
        let without = "an allocator of jemalloc: the library is built without jemalloc";
        Err(Error::new(ErrorKind::NotSupported, without))
    }
    call rocksdb_memory_allocator_destroy(_allocator: *mut Allocator) {}
    call rocksdb_lru_cache_options_set_memory_allocator(_options: *mut CacheSettings, _allocator: *const Allocator) {}
    call rocksdb_hyper_clock_cache_options_set_memory_allocator(_options: *mut HyperClockSettings, _allocator: *const Allocator) {}
}
