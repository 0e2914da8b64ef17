//! The database's state from its MANIFEST.
//!
//! In: the MANIFEST's bytes. Out: the edits replayed, and then, once the column families' options
//! are known, the trees. Errors have the MANIFEST's path and the offset of the record they come
//! from.

use karst_base::error::{Error, Result};
use karst_format::file_name::FileName;
use karst_format::log::LogReader;
use karst_format::version_edit::VersionEdit;
use karst_io::report;
use karst_lsm::ManifestReplay;
use std::path::PathBuf;

use super::directory::Directory;

/// A MANIFEST whose edits have been replayed.
#[derive(Debug)]
pub(crate) struct Manifest {
    pub(crate) path: PathBuf,
    pub(crate) name: FileName,
    pub(crate) size_bytes: u64,
    pub(crate) replay: ManifestReplay,
}

impl Manifest {
    /// Reads and replays the MANIFEST that CURRENT names.
    pub(crate) fn read(directory: &Directory) -> Result<Manifest> {
        let name = directory.current_manifest()?;
        let path = directory.file(name);
        let bytes = directory.read(name)?;
        let mut replay = ManifestReplay::new();
        let mut reader = LogReader::manifest(&bytes);
        let mut records = 0;
        while let Some(record) = reader.next_record() {
            let record = record.map_err(|damage| Error::in_file(&path, 0, damage.corruption))?;
            // Why: a record may be cut into fragments with headers between them, so an offset
            // within it is given as text.
            let edit = VersionEdit::decode(record.bytes).map_err(|e| {
                let what = format!("version edit: {} (byte {} of the record)", e.what, e.offset);
                Error::corruption_at(&path, record.offset, what)
            })?;
            replay.add(edit).map_err(|e| Error::corruption_at(&path, record.offset, e))?;
            records += 1;
        }
        if records == 0 {
            return Err(Error::corruption_at(&path, 0, "expected version edits, found no record"));
        }
        if replay.in_atomic_group() {
            report!(warn, manifest = %path.display(), "an atomic group is cut short at the end and has no effect");
        }
        Ok(Manifest { path, name, size_bytes: bytes.len() as u64, replay })
    }
}
