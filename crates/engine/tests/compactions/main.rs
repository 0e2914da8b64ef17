//! Compactions of every style, and the hooks that they call.

mod collectors;
mod compact_range;
mod compaction_filter;
mod due_by_time;
mod manual;
mod many_families;
mod memory_budget;
mod sst_partitioner;
mod ttl;
