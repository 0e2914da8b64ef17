//! The LSM tree as immutable values: versions, levels, file metadata, and the state that a MANIFEST
//! describes.
//!
//! Pure: nothing here reads a file, waits, or looks at a clock. `karst_engine` feeds it decoded
//! version edits and asks it which files may hold a key.
//!
//! | module | holds |
//! |---|---|
//! | [`mod@file`] | one table file's metadata, shared by every version that contains it |
//! | [`blob`] | one blob file's metadata: what is in it, what of it is garbage, which tables refer to it |
//! | [`level`] | the files of one level in a layout that is quick to search |
//! | [`stall`] | when writers are slowed down or stopped, and the rate they may go at |
//! | [`version`] | one column family's tree at one moment, and the search for a key's candidate files |
//! | [`version_builder`] | a version plus version edits gives the next version |
//! | [`version_set`] | the state of all column families |
//! | [`output_cutter`] | where a compaction ends one output file and begins the next |
//! | [`range_del`] | range tombstones, searched for the newest one over a key |
//! | [`pick`] | which files to compact next: leveled, universal, FIFO, by hand |
//! | [`replay`] | the edits of a MANIFEST give that state |
//! | [`snapshots`] | which sequence numbers readers still need |
//! | [`stored_file`] | a file on storage, and when nobody can reach it any more |
#![forbid(unsafe_code)]

pub mod blob;
pub mod error;
pub mod file;
pub mod level;
pub mod output_cutter;
pub mod pick;
pub mod range_del;
pub mod replay;
pub mod snapshots;
pub mod stall;
pub mod stored_file;
pub mod version;
pub mod version_builder;
pub mod version_set;

pub use blob::BlobFileMetadata;
pub use error::Inconsistent;
pub use file::{FileCounts, FileMetadata};
pub use level::LevelFiles;
pub use output_cutter::{OpenOutput, OutputCutter};
pub use pick::{Compaction, CompactionOptions, PickContext, Running};
pub use replay::{FoundFamily, ManifestReplay};
pub use snapshots::SnapshotList;
pub use stored_file::{Reaper, StoredFile, StoredId, StoredKind};
pub use version::{Candidate, SearchPosition, Version};
pub use version_builder::{TreeOptions, VersionBuilder};
pub use version_set::{ColumnFamilyState, VersionSet};
