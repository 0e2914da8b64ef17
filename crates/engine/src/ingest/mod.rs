//! Data that reaches a database otherwise than through its log.
//!
//! | file | holds |
//! |---|---|
//! | `arg` | what is ingested into one column family |
//! | `bring` | a file from outside that comes into the directory: linked or copied, and synced |
//! | `bulk` | whole databases out of key streams: tables over several levels, MANIFEST, CURRENT, IDENTITY, OPTIONS |
//! | `files` | files that are ingested into an open database |
//! | `look_over` | the entries of a table that was made elsewhere |
//! | `prepare` | the same before anything changes: brought into the directory, and looked at |
//! | `sst_file_writer` | tables made outside of a database, to be ingested |

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
