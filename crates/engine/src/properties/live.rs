//! The live files of a database.

use super::Subject;
use karst_format::file_name::FileName;
use karst_format::ids::{FileNumber, Level};
use karst_format::key;
use karst_lsm::FileMetadata;
use karst_storage::blob;
use karst_storage::column_family::Family;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// A table or blob file of the database, as the MANIFEST describes it.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LiveFile {
    /// Name of its column family.
    pub column_family: String,
    /// The file's name, such as `000123.sst`.
    pub name: String,
    /// The file's number.
    pub number: u64,
    /// The file's directory.
    pub directory: PathBuf,
    /// The table's level; `None` for a blob file.
    pub level: Option<u32>,
    /// The file's size in bytes.
    pub size_bytes: u64,
    /// The smallest user key; empty for a blob file.
    pub smallest_key: Vec<u8>,
    /// The largest user key; empty for a blob file.
    pub largest_key: Vec<u8>,
    /// The smallest sequence number; 0 for a blob file.
    pub smallest_seq: u64,
    /// The largest sequence number; 0 for a blob file.
    pub largest_seq: u64,
    /// The order in which files reached L0; 0 if unknown.
    pub epoch_number: u64,
    /// The checksum of the whole file and the name of its function, if recorded.
    pub checksum: Option<(Vec<u8>, String)>,
    /// Entries in the table, or blobs in the blob file; `None` if the table was never opened.
    pub num_entries: Option<u64>,
    /// Deletions among the entries; `None` if the table was never opened.
    pub num_deletions: Option<u64>,
    /// The oldest blob file that the table refers to.
    pub oldest_blob_file_number: Option<u64>,
    /// Time at which the table's oldest data was written, in seconds of Unix time; 0 if unknown.
    pub oldest_ancester_time: u64,
    /// Time at which the table was created, in seconds of Unix time; 0 if unknown.
    pub file_creation_time: u64,
    /// True while a compaction reads the file.
    pub being_compacted: bool,
}

/// Returns the public metadata of a family's table.
pub(super) fn live_table(
    family: &Family,
    level: Level,
    file: &FileMetadata,
    being_compacted: &BTreeSet<FileNumber>,
) -> LiveFile {
    let directories = &family.tables.shared.directories;
    LiveFile {
        column_family: family.config.name.clone(),
        name: FileName::Table(file.number).to_string(),
        number: file.number.0,
        directory: directories.get(usize::from(file.path_id)).cloned().unwrap_or_default(),
        level: Some(u32::from(level.0)),
        size_bytes: file.size_bytes,
        smallest_key: key::user_key(&file.smallest).to_vec(),
        largest_key: key::user_key(&file.largest).to_vec(),
        smallest_seq: file.smallest_seq.0,
        largest_seq: file.largest_seq.0,
        epoch_number: file.epoch_number,
        checksum: file
            .checksum
            .as_ref()
            .map(|c| (c.value.to_vec(), String::from_utf8_lossy(&c.function).into_owned())),
        num_entries: file.counts().map(|counts| counts.entries),
        num_deletions: file.counts().map(|counts| counts.deletions),
        oldest_blob_file_number: file.oldest_blob_file.map(|number| number.0),
        oldest_ancester_time: file.oldest_ancestor_time_s,
        file_creation_time: file.creation_time_s,
        being_compacted: being_compacted.contains(&file.number),
    }
}

/// Returns all files: by column family, its tables by level and place in the level, then its blob
/// files.
pub(crate) fn live_files(db: Subject<'_>) -> Vec<LiveFile> {
    let read = db.read;
    let mut all = Vec::new();
    for family in read.families.all().iter() {
        let being_compacted = db.being_compacted(family);
        let view = family.superversion();
        let tables = view.version().all_files();
        all.extend(tables.map(|(level, file)| live_table(family, level, file, &being_compacted)));
        for (number, blob) in view.version().blob_files() {
            all.push(LiveFile {
                column_family: family.config.name.clone(),
                name: FileName::Blob(*number).to_string(),
                number: number.0,
                directory: family.tables.shared.directories[0].clone(),
                level: None,
                size_bytes: blob::file_bytes(blob),
                smallest_key: Vec::new(),
                largest_key: Vec::new(),
                smallest_seq: 0,
                largest_seq: 0,
                epoch_number: 0,
                checksum: None,
                num_entries: Some(blob.file.total_count),
                num_deletions: Some(0),
                oldest_blob_file_number: None,
                oldest_ancester_time: 0,
                file_creation_time: 0,
                being_compacted: false,
            });
        }
    }
    all
}

/// Returns the names of the files in a copy of the database, without its logs, and the number of
/// bytes of the MANIFEST to copy.
pub(crate) fn live_file_names(db: Subject<'_>) -> (Vec<String>, u64) {
    let mut names: Vec<String> = live_files(db).into_iter().map(|file| file.name).collect();
    names.push(FileName::Current.to_string());
    let (manifest, manifest_bytes) = db.manifest();
    names.push(manifest.to_string());
    names.extend(db.options_file().map(|name| name.to_string()));
    (names, manifest_bytes)
}
