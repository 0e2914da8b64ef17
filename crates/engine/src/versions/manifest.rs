//! The MANIFEST being written, and the file CURRENT that names it.
//!
//! In: encoded version edits. Out: records that are durable when a call returns.
//!
//! Invariants:
//! - CURRENT names a MANIFEST whose snapshot is complete and durable, before and after every step
//!   of the switch to a new one: the new file and its name are synced, then CURRENT is replaced by
//!   renaming, then its name is synced.
//! - After a failed write or sync the file is not written again; its content is unknown until
//!   CURRENT names another.

use karst_base::error::{Error, ErrorKind, Result};
use karst_format::file_name::FileName;
use karst_format::ids::FileNumber;
use karst_format::log::LogWriter;
use karst_format::version_edit::VersionEdit;
use karst_io::{FileSystem, WritableFile};
use std::path::{Path, PathBuf};

/// A MANIFEST open for writing.
#[derive(Debug)]
pub(super) struct ManifestFile {
    number: FileNumber,
    file: Box<dyn WritableFile>,
    log: LogWriter,
    /// Size after its initial snapshot, in bytes.
    begun_bytes: u64,
    /// Bytes of space reserved for it so far.
    reserved: u64,
    how: Writing,
}

/// Write settings of a MANIFEST.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Writing {
    /// Bytes of space reserved per step; 0 for no reservation.
    pub(super) reserve_bytes: u64,
    /// Syncs with `fsync` instead of `fdatasync`.
    pub(super) fsync: bool,
}

/// Failed write of edits.
#[derive(Debug)]
pub(super) struct NotWritten {
    pub(super) error: Error,
    /// The edits may still be found when the database is opened.
    pub(super) may_count: bool,
}

impl ManifestFile {
    /// Begins a MANIFEST with the edits of `snapshot` and makes CURRENT name it. `temporary` is an
    /// unused file number.
    pub(super) fn begin(
        fs: &dyn FileSystem,
        directory: &Path,
        number: FileNumber,
        temporary: FileNumber,
        snapshot: &[VersionEdit],
        how: Writing,
    ) -> Result<ManifestFile, NotWritten> {
        let name = FileName::Manifest(number);
        let path = directory.join(name.to_string());
        let made = Self::make(fs, directory, &path, (number, snapshot, how)).and_then(|manifest| {
            let temporary = current_to_be(fs, directory, name, temporary)?;
            Ok((manifest, temporary))
        });
        // Removed at once, because CURRENT does not name it, and a full disk has no room for its
        // beginning.
        let (manifest, temporary) = made.map_err(|error| {
            let _ = fs.remove(&path);
            NotWritten { error, may_count: false }
        })?;
        let put = put_current(fs, directory, &temporary);
        put.map(|()| manifest).map_err(|error| NotWritten { error, may_count: true })
    }

    fn make(
        fs: &dyn FileSystem,
        directory: &Path,
        path: &Path,
        (number, snapshot, how): (FileNumber, &[VersionEdit], Writing),
    ) -> Result<ManifestFile> {
        let file = fs.create(path)?;
        let log = LogWriter::new(FileNumber(0), false);
        let mut manifest = ManifestFile { number, file, log, begun_bytes: 0, reserved: 0, how };
        manifest.append(snapshot)?;
        manifest.sync()?;
        manifest.begun_bytes = manifest.file.size();
        // Synced before the rename, because CURRENT must not outlive the name of the file that it
        // names.
        fs.sync_dir(directory)?;
        Ok(manifest)
    }

    pub(super) fn number(&self) -> FileNumber {
        self.number
    }

    pub(super) fn size_bytes(&self) -> u64 {
        self.file.size()
    }

    pub(super) fn begun_bytes(&self) -> u64 {
        self.begun_bytes
    }

    /// Appends the edits. They are durable after [`sync`](Self::sync).
    pub(super) fn append(&mut self, edits: &[VersionEdit]) -> Result<()> {
        let mut bytes = Vec::new();
        for edit in edits {
            self.log
                .append(&edit.encode(), &mut bytes)
                .map_err(|e| Error::with_source(ErrorKind::Io, "writing the MANIFEST", e))?;
        }
        let end = self.file.size() + bytes.len() as u64;
        if self.how.reserve_bytes > 0 && end > self.reserved {
            let more = (end - self.reserved).next_multiple_of(self.how.reserve_bytes);
            // An error is ignored, because the write may find space even if it cannot be reserved.
            let _ = self.file.reserve(self.reserved, more);
            self.reserved += more;
        }
        Ok(self.file.append(&bytes)?)
    }

    pub(super) fn sync(&mut self) -> Result<()> {
        Ok(if self.how.fsync { self.file.sync_all() } else { self.file.sync() }?)
    }

    /// Returns unused reserved space. No write follows.
    pub(super) fn end(mut self) {
        let size = self.file.size();
        if self.reserved > size {
            // An error is ignored, because only space is lost, until another MANIFEST replaces this
            // one.
            let _ = self.file.truncate(size);
        }
    }
}

/// Makes CURRENT name `manifest`.
pub(crate) fn write_current(
    fs: &dyn FileSystem,
    directory: &Path,
    manifest: FileName,
    temporary: FileNumber,
) -> Result<()> {
    let temporary = current_to_be(fs, directory, manifest, temporary)?;
    put_current(fs, directory, &temporary)
}

/// Writes a temporary file with the future content of CURRENT.
fn current_to_be(
    fs: &dyn FileSystem,
    directory: &Path,
    manifest: FileName,
    temporary: FileNumber,
) -> Result<PathBuf> {
    let temporary = directory.join(FileName::Temp(temporary).to_string());
    write_synced(fs, &temporary, format!("{manifest}\n").as_bytes())?;
    Ok(temporary)
}

/// Renames the temporary file to CURRENT.
fn put_current(fs: &dyn FileSystem, directory: &Path, temporary: &Path) -> Result<()> {
    fs.rename(temporary, &directory.join(FileName::Current.to_string()))?;
    Ok(fs.sync_dir(directory)?)
}

/// Creates a file with these bytes, durable except for its name. Removes it on failure.
pub(crate) fn write_synced(fs: &dyn FileSystem, path: &Path, bytes: &[u8]) -> Result<()> {
    let write = || -> Result<()> {
        let mut file = fs.create(path)?;
        file.append(bytes)?;
        Ok(file.sync()?)
    };
    // The result of the removal is ignored, because opening the database removes leftover files.
    write().inspect_err(|_| drop(fs.remove(path)))
}
