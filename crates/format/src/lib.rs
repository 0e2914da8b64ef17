//! RocksDB's on-disk formats: bytes in, bytes out.
//!
//! No I/O, no async, no clock, no threads: callers read and write files, this crate encodes and
//! decodes their bytes. Every decoder treats its input as hostile and returns [`Corruption`] for
//! bad bytes. The byte tables are in docs/formats/.
#![forbid(unsafe_code)]

pub mod blob;
pub mod block;
pub mod block_kind;
pub mod checksum;
pub mod coding;
pub mod comparator;
pub mod compression;
mod corruption;
pub mod file_name;
pub mod filter;
pub mod footer;
pub mod handle;
pub mod hash;
pub mod ids;
pub mod index;
pub mod key;
pub mod log;
pub mod metaindex;
pub mod options;
pub mod properties;
pub mod slice_transform;
pub mod table_builder;
pub mod trace;
pub mod unique_id;
pub mod version_edit;
pub mod wide_column;
pub mod write_batch;

pub use corruption::Corruption;
