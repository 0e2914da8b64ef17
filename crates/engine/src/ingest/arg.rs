//! Arguments of an ingestion into one column family.

use crate::background::IngestExternalFileOptions;
use karst_storage::column_family::ColumnFamily;
use std::path::PathBuf;

/// Arguments of an ingestion into one column family, with RocksDB's names.
#[derive(Clone, Debug)]
pub struct IngestExternalFileArg {
    /// Destination of the files.
    pub column_family: ColumnFamily,
    /// Files to ingest. If they overlap, later ones are newer.
    pub external_files: Vec<PathBuf>,
    /// Options of the ingestion.
    pub options: IngestExternalFileOptions,
    /// Checksum of each file, or empty; used only with `file_checksum_gen_factory`.
    pub files_checksums: Vec<Vec<u8>>,
    /// Names of the functions that computed the checksums.
    pub files_checksum_func_names: Vec<String>,
}

impl IngestExternalFileArg {
    /// Returns arguments without checksums.
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
