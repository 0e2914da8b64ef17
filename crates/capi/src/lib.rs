//! RocksDB's C API over KarstDB: a shared library that takes the place of `librocksdb.so`.
//!
//! In: calls of C, with RocksDB's names and conventions. Out: calls of the crate `karstdb`. Every
//! function of RocksDB's header is exported: implemented where the engine has the operation,
//! remembered where a setting has no effect, and refused where the engine cannot do it
//! ([`functions`] has the list).
//!
//! Beyond RocksDB's API there are asynchronous calls (`async_calls`). The headers of both are made
//! from the functions themselves (`header`).
//!
//! Invariants: no panic crosses the boundary; what users free by `rocksdb_free` comes from malloc;
//! a call that fails leaves its error in `errptr`, where it has one.
//!
//! # Safety
//! The functions trust pointers as RocksDB does: a handle is one that this library gave out and
//! that was not destroyed; bytes are readable for their length. Null is taken for "none"
//! everywhere: a call on a null handle does nothing and returns null or 0.
#![allow(
    clippy::missing_safety_doc,
    clippy::undocumented_unsafe_blocks,
    clippy::too_many_arguments,
    missing_docs,
    unreachable_pub,
    unused_unsafe,
    reason = "one contract for all functions, told above; their names and meanings are RocksDB's"
)]

#[macro_use]
mod boundary;

mod allocator;
mod async_calls;
mod backup;
mod batch;
mod cache;
mod call_options;
mod callbacks;
mod compact_files;
mod copies;
mod db;
mod env_threads;
mod event_infos;
mod events;
mod family;
mod handle;
mod header;
mod import;
mod indexed_batch;
mod iterator;
mod levels;
mod loaded;
mod logger;
mod metadata;
mod observe;
mod open;
mod options;
mod refused;
mod retired;
mod signature;
mod sst_writer;
mod table;
mod table_properties;
mod timestamps;
mod trace;
mod transaction;
mod transaction_db;

pub use header::{asynchronous, karst_header, rocksdb_header};
pub use table::{Function, Served, functions, retired_functions};
