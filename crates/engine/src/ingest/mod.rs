//! Data that enters a database without passing through its log: ingested files and bulk loads.
//!
//! | file | holds |
//! |---|---|
//! | `arg` | arguments of an ingestion into one column family |
//! | `bring` | linking or copying an external file into the directory, and syncing it |
//! | `bulk` | creating whole databases from key streams: tables over several levels, MANIFEST, CURRENT, IDENTITY, OPTIONS |
//! | `files` | ingestion of files into an open database |
//! | `look_over` | iteration over the entries of an external table |
//! | `prepare` | preparing files to ingest: brought into the directory, and checked |
//! | `sst_file_writer` | writing tables outside of a database, for ingestion |

mod arg;
mod bring;
mod bulk;
mod files;
mod look_over;
mod prepare;
mod sst_file_writer;
#[cfg(test)]
mod tests;

pub use arg::IngestExternalFileArg;
pub(crate) use bring::{Way, bring};
pub use bulk::{BulkLoader, SortedRun};
pub(crate) use bulk::{Numbers, TargetSize};
pub(crate) use files::ingest;
pub(crate) use look_over::{LookOver, MOST_SEQ, check_length, is_in_blob_file, look_over};
pub use sst_file_writer::{ExternalSstFileInfo, SstFileWriter};
