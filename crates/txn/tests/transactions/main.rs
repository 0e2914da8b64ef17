//! Transactions of both kinds, with both write policies.

mod bad_input;
mod closed;
mod following;
mod forms;
mod large;
mod manifest_failures;
mod optimistic;
mod pessimistic;
mod reactor;
mod rocksdb_reads;
mod timestamps;
mod two_phase;
mod write_prepared;
