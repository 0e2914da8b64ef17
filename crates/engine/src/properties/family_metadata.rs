//! The files and levels of a column family: RocksDB's `ColumnFamilyMetaData`. Nothing is read.

use super::Subject;
use super::live::{LiveFile, live_table};
use karst_format::file_name::FileName;
use karst_storage::blob;
use karst_storage::column_family::Family;
use std::path::PathBuf;
use std::sync::Arc;

/// The tables and blob files of a column family, as the MANIFEST describes them.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ColumnFamilyMetaData {
    /// The column family's name.
    pub name: String,
    /// Bytes of all tables.
    pub size_bytes: u64,
    /// Number of tables.
    pub file_count: usize,
    /// The levels, from L0 to the last, empty ones too.
    pub levels: Vec<LevelMetaData>,
    /// Bytes of all blob files.
    pub blob_file_size_bytes: u64,
    /// The blob files, by number.
    pub blob_files: Vec<BlobMetaData>,
}

/// One level of a column family.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LevelMetaData {
    /// The level's number, 0 for L0.
    pub level: u32,
    /// Bytes of its tables.
    pub size_bytes: u64,
    /// Its tables; those of L0 from new to old, others by key.
    pub files: Vec<LiveFile>,
}

/// One blob file.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct BlobMetaData {
    /// The file's number.
    pub number: u64,
    /// The file's name, such as `000123.blob`.
    pub name: String,
    /// The file's directory.
    pub directory: PathBuf,
    /// The file's size in bytes.
    pub size_bytes: u64,
    /// Number of blobs in the file.
    pub total_blob_count: u64,
    /// Bytes of all blobs' records.
    pub total_blob_bytes: u64,
    /// Number of blobs that no table refers to any longer.
    pub garbage_blob_count: u64,
    /// Bytes of their records.
    pub garbage_blob_bytes: u64,
    /// The name of the function that made `checksum_value`; empty if none was recorded.
    pub checksum_method: String,
    /// The checksum of the whole file; empty if none was recorded.
    pub checksum_value: Vec<u8>,
}

pub(crate) fn column_family_metadata(db: Subject<'_>, family: &Arc<Family>) -> ColumnFamilyMetaData {
    let being_compacted = db.being_compacted(family);
    let view = family.superversion();
    let version = view.version();
    let levels = version.levels().iter().map(|level| {
        let files = level.files().iter();
        let table = |file| live_table(family, level.level(), file, &being_compacted);
        LevelMetaData {
            level: u32::from(level.level().0),
            size_bytes: level.size_bytes(),
            files: files.map(|file| table(file)).collect(),
        }
    });
    let blobs = version.blob_files().iter().map(|(number, described)| BlobMetaData {
        number: number.0,
        name: FileName::Blob(*number).to_string(),
        directory: db.read.path.clone(),
        size_bytes: blob::file_bytes(described),
        total_blob_count: described.file.total_count,
        total_blob_bytes: described.file.total_bytes,
        garbage_blob_count: described.garbage_count,
        garbage_blob_bytes: described.garbage_bytes,
        checksum_method: String::from_utf8_lossy(&described.file.checksum_method).into_owned(),
        checksum_value: described.file.checksum_value.clone(),
    });
    let blob_files: Vec<_> = blobs.collect();
    ColumnFamilyMetaData {
        name: family.config.name.clone(),
        size_bytes: version.size_bytes(),
        file_count: version.file_count(),
        levels: levels.collect(),
        blob_file_size_bytes: blob_files.iter().map(|blob| blob.size_bytes).sum(),
        blob_files,
    }
}
