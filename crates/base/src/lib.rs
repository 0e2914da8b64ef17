//! Types that every part of the engine uses, and that depend on none of these parts.
//!
//! In: the environment, the format's types, decisions of `lsm`. Out: types that all crates above
//! share; users see most of them through `karst_engine` under the same names. Items not meant for
//! users are hidden from the documentation or not re-exported.
//!
//! | module | holds |
//! |---|---|
//! | [`error`] | errors, by what a user can do about them, with their place |
//! | [`caller`] | the caller of an operation: a blocking thread or a task |
//! | [`life`] | the check that a database is still open |
//! | [`options`] | the options of databases, column families and reads, as the engine takes them |
//! | [`merge_operator`], [`compaction_filter`], [`sst_partitioner`], [`table_properties_collector`] | users' callbacks |
//! | [`ttl`] | values with a write time appended |
//! | [`stats`], [`perf_context`] | counters and timers |
//! | [`health`] | background errors, and the operations they refuse |
//! | [`events`] | reports to listeners and LOG |
//! | [`pacing`] | write stalls and rate limits, which keep memory and disk within bounds |
//! | [`sst_file_manager`] | the space limit of files, and the rate of their deletion |
//! | [`snapshot`] | sequence numbers that reads use and that readers still need |
//! | [`trace`] | recording of a database's operations |
//! | [`sync`] | locks, atomics and events; shuttle's in explored builds |
#![forbid(unsafe_code)]

pub mod caller;
pub mod compaction_filter;
pub mod error;
pub mod events;
pub mod health;
pub mod life;
pub mod merge_operator;
pub mod options;
pub mod pacing;
pub mod perf_context;
pub mod snapshot;
pub mod sst_file_manager;
pub mod sst_partitioner;
pub mod stats;
pub mod sync;
pub mod table_properties_collector;
pub mod trace;
pub mod ttl;
