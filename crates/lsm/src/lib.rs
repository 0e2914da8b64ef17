//! The LSM tree as immutable values: versions, levels, file metadata, and the state that a MANIFEST describes.
//!
//! Pure: nothing here reads a file, waits, or looks at a clock. `karst_engine` feeds it decoded version edits and
//! asks it which files may hold a key.
//!
//! | module | holds |
//! |---|---|
//! | [`file`] | one table file's metadata, shared by every version that contains it |
//! | [`blob`] | one blob file's metadata: what is in it, what of it is garbage, which tables refer to it |
//! | [`level`] | the files of one level in a layout that is quick to search |
//! | [`version`] | one column family's tree at one moment, and the search for a key's candidate files |
//! | [`snapshots`] | which sequence numbers readers still need |
#![forbid(unsafe_code)]

pub mod blob;
pub mod error;
pub mod file;
pub mod level;
pub mod snapshots;
pub mod version;

pub use blob::BlobFileMetadata;
pub use error::Inconsistent;
pub use file::FileMetadata;
pub use level::LevelFiles;
pub use snapshots::SnapshotList;
pub use version::{Candidate, SearchPosition, Version};
