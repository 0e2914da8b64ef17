//! Priorities of the threads of an environment.

use crate::cache::Environment;
use karstdb::io::Priority;

capi! {
    // Compat: RocksDB waits for the threads that its environment started for the caller; no C
    // function starts one, so that this has no threads to wait for.
    call rocksdb_env_join_all_threads(_env: *const Environment) {}
    call rocksdb_env_lower_thread_pool_io_priority(env: *const Environment) {
        if let Some(env) = env.as_ref() { env.0.lower_thread_pool_io_priority(Priority::Low) }
    }
    call rocksdb_env_lower_high_priority_thread_pool_io_priority(env: *const Environment) {
        if let Some(env) = env.as_ref() { env.0.lower_thread_pool_io_priority(Priority::High) }
    }
    call rocksdb_env_lower_thread_pool_cpu_priority(env: *const Environment) {
        if let Some(env) = env.as_ref() { env.0.lower_thread_pool_cpu_priority(Priority::Low) }
    }
    call rocksdb_env_lower_high_priority_thread_pool_cpu_priority(env: *const Environment) {
        if let Some(env) = env.as_ref() { env.0.lower_thread_pool_cpu_priority(Priority::High) }
    }
}
