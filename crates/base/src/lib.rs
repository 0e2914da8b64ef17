//! Types that every part of the engine uses, and that use none of these parts.
//!
//! In: the environment, the formats' words, what `lsm` decides. Out: types that all crates above
//! share, most of which users see through `karst_engine` under the same names. What users are not
//! to call is hidden from the documentation, or not passed on.
//!
//! | module | holds |
//! |---|---|
//! | [`error`] | what went wrong, by what a user can do about it, and where |
//! | [`caller`] | whether a call blocks a thread or is a future |
//! | [`life`] | whether a database may still be used |
//! | [`options`] | the options of databases, column families and reads, as the engine takes them |
//! | [`merge_operator`], [`compaction_filter`], [`sst_partitioner`], [`table_properties_collector`] | code of users |
//! | [`ttl`] | values with the time of their write behind them |
//! | [`stats`], [`perf_context`] | what is counted and timed |
//! | [`health`] | errors of background work, and what is refused because of them |
//! | [`events`] | what listeners and the LOG are told |
//! | [`pacing`] | who has to wait so that memory and disk keep up |
//! | [`sst_file_manager`] | how much room files take, and how fast they leave it |
//! | [`snapshot`] | where a read reads, and which sequence numbers readers need |
//! | [`trace`] | what is asked of a database, written down while it runs |
//! | [`sync`] | locks, atomics and events; shuttle's where threads are explored |
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
