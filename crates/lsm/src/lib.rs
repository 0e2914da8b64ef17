//! The LSM tree as immutable values: versions, levels, file metadata, and the database state that a
//! MANIFEST records.
//!
//! Pure: nothing here reads a file, waits, or reads a clock. `karst_engine` passes in decoded
//! version edits and queries the files that may hold a key.
//!
//! | module | holds |
//! |---|---|
//! | [`mod@file`] | one table file's metadata, shared by every version that contains it |
//! | [`blob`] | one blob file's metadata: its contents, its garbage, and the tables that refer to it |
//! | [`level`] | the files of one level in a layout that is fast to search |
//! | [`stall`] | write stalls: conditions that delay or stop writers, and the delayed write rate |
//! | [`version`] | one column family's tree at one moment, and the search for a key's candidate files |
//! | [`version_builder`] | builds the next version from a version and version edits |
//! | [`version_set`] | the state of all column families |
//! | [`output_cutter`] | boundaries between a compaction's output files |
//! | [`range_del`] | range tombstones, searched for the newest one over a key |
//! | [`pick`] | choice of the next compaction: leveled, universal, FIFO, manual |
//! | [`replay`] | rebuilds the state from the edits of a MANIFEST |
//! | [`snapshots`] | sequence numbers that readers still need |
//! | [`stored_file`] | a file on storage, reported when no version contains it any more |
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
