//! Calls of an environment that change nothing here, as the threads of all databases have one
//! priority and none is started for the caller.

use crate::boundary::*;
use crate::cache::Environment;

const WITHOUT: &str = "it has no effect; see docs/c-api.md";

capi! {
    // Compat: RocksDB waits for threads that its environment has started for the caller, of which C
    // has no way to ask.
    call rocksdb_env_join_all_threads(_env: *const Environment) {}
    call rocksdb_env_lower_thread_pool_io_priority(_env: *const Environment) { say_once("rocksdb_env_lower_thread_pool_io_priority", WITHOUT) }
    call rocksdb_env_lower_high_priority_thread_pool_io_priority(_env: *const Environment) { say_once("rocksdb_env_lower_high_priority_thread_pool_io_priority", WITHOUT) }
    call rocksdb_env_lower_thread_pool_cpu_priority(_env: *const Environment) { say_once("rocksdb_env_lower_thread_pool_cpu_priority", WITHOUT) }
    call rocksdb_env_lower_high_priority_thread_pool_cpu_priority(_env: *const Environment) { say_once("rocksdb_env_lower_high_priority_thread_pool_cpu_priority", WITHOUT) }
}
