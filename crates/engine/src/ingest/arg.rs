//! What is ingested into one column family.

use crate::background::IngestExternalFileOptions;
use karst_storage::column_family::ColumnFamily;
use std::path::PathBuf;

/// What is ingested into one column family. RocksDB's names.
#[derive(Clone, Debug)]
pub struct IngestExternalFileArg {
    /// Where it goes.
    pub column_family: ColumnFamily,
    /// The files. Where they overlap, later ones are newer.
    pub external_files: Vec<PathBuf>,
    /// How.
    pub options: IngestExternalFileOptions,
    /// The checksum of each file, or none; looked at only with `file_checksum_gen_factory`.
    pub files_checksums: Vec<Vec<u8>>,
    /// The names of the functions that made them.
    pub files_checksum_func_names: Vec<String>,
}

impl IngestExternalFileArg {
    /// These files, without checksums, for a column family.
    pub fn new<P: Into<PathBuf>>(
        column_family: &ColumnFamily,
        files: impl IntoIterator<Item = P>,
        options: IngestExternalFileOptions,
    ) -> Self {
        Self {
            column_family: column_family.clone(),
            external_files: files.into_iter().map(Into::into).collect(),
            options,
            files_checksums: Vec::new(),
            files_checksum_func_names: Vec::new(),
        }
    }
}
