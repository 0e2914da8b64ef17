//! The files that the database consists of.

use crate::open::Opened;
use karst_format::file_name::FileName;
use karst_format::key;
use karst_storage::blob;
use std::path::PathBuf;

/// A table or blob file of the database, as the MANIFEST describes it.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LiveFile {
    /// The column family it belongs to.
    pub column_family: String,
    /// Its name, such as `000123.sst`.
    pub name: String,
    /// Its number.
    pub number: u64,
    /// Its directory.
    pub directory: PathBuf,
    /// The level; `None` for a blob file.
    pub level: Option<u32>,
    /// Its size in bytes.
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
}

/// All tables by column family, level and place in the level, then the blob files of the column
/// family.
pub(crate) fn live_files(opened: &Opened) -> Vec<LiveFile> {
    let mut all = Vec::new();
    for family in opened.families.all().iter() {
        let view = family.superversion();
        for (level, file) in view.version().all_files() {
            let directories = &opened.shared.directories;
            all.push(LiveFile {
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
            });
        }
        for (number, blob) in view.version().blob_files() {
            all.push(LiveFile {
                column_family: family.config.name.clone(),
                name: FileName::Blob(*number).to_string(),
                number: number.0,
                directory: opened.shared.directories[0].clone(),
                level: None,
                size_bytes: blob::file_bytes(blob),
                smallest_key: Vec::new(),
                largest_key: Vec::new(),
                smallest_seq: 0,
                largest_seq: 0,
                epoch_number: 0,
                checksum: None,
            });
        }
    }
    all
}

/// What a copy of the database consists of, without its logs; and how much of the MANIFEST counts.
pub(crate) fn live_file_names(opened: &Opened) -> (Vec<String>, u64) {
    let mut names: Vec<String> = live_files(opened).into_iter().map(|file| file.name).collect();
    names.push(FileName::Current.to_string());
    let (manifest, manifest_bytes) = opened.manifest();
    names.push(manifest.to_string());
    names.extend(opened.options_file().map(|name| name.to_string()));
    (names, manifest_bytes)
}
