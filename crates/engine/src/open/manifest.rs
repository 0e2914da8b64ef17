//! Reading the database's state from its MANIFEST.
//!
//! In: the MANIFEST's bytes. Out: the replayed edits, and then, once the column families' options
//! are known, the trees. Errors have the MANIFEST's path and the offset of the record.

use super::directory::{Directory, read_from};
use karst_base::error::{Error, Named, Result};
use karst_format::file_name::FileName;
use karst_format::log::{BLOCK_BYTES, LogReader};
use karst_format::version_edit::VersionEdit;
use karst_io::{Env, report};
use karst_lsm::ManifestReplay;
use karst_lsm::replay::whole::{AddedFile, WholeError, WholeReplay};
use std::path::PathBuf;

/// A MANIFEST whose edits have been replayed.
#[derive(Clone, Debug)]
pub(crate) struct Manifest {
    pub(crate) path: PathBuf,
    pub(crate) name: FileName,
    pub(crate) size_bytes: u64,
    pub(crate) replay: ManifestReplay,
    /// Offset of the end of the last record.
    end: u64,
}

impl Manifest {
    /// Returns a MANIFEST without a file, from edits reconstructed from other sources.
    pub(crate) fn made_up(path: PathBuf, name: FileName, replay: ManifestReplay) -> Manifest {
        Manifest { path, name, size_bytes: 0, replay, end: 0 }
    }

    /// Reads and replays the MANIFEST that CURRENT names.
    pub(crate) fn read(directory: &Directory) -> Result<Manifest> {
        let name = directory.current_manifest()?;
        let path = directory.file(name);
        let bytes = directory.read(name)?;
        let (replay, size_bytes) = (ManifestReplay::new(), bytes.len() as u64);
        let mut manifest = Manifest { path, name, size_bytes, replay, end: 0 };
        if manifest.replay((0, &bytes))? == 0 {
            return Err(Error::corruption_at(&manifest.path, 0, "expected version edits, found no record"));
        }
        if manifest.replay.in_atomic_group() {
            report!(warn, manifest = %manifest.path.display(), "an atomic group is cut short at the end and has no effect");
        }
        Ok(manifest)
    }

    /// Reads the MANIFEST `name`, as far as it is readable, with each column family in its newest
    /// state whose files all exist, according to `is_there`, which gets the family's name. Returns
    /// it with notes about the omitted state.
    ///
    /// # Errors
    /// It cannot be read, or not far enough for any state; or `is_there` failed.
    pub(crate) fn read_whole(
        directory: &Directory,
        name: FileName,
        mut is_there: impl FnMut(&str, AddedFile<'_>) -> Result<bool>,
    ) -> Result<(Manifest, Vec<String>)> {
        let path = directory.file(name);
        let bytes = directory.read(name)?;
        let (mut most, mut damage) = (usize::MAX, None);
        loop {
            let (mut whole, mut end, mut count) = (WholeReplay::new(), 0, 0);
            let mut reader = LogReader::manifest(&bytes);
            while count < most
                && let Some(record) = reader.next_record()
            {
                let record = match record {
                    Ok(record) => record,
                    Err(found) => {
                        damage = Some(Error::in_file(&path, 0, found.corruption));
                        break;
                    }
                };
                let added = match VersionEdit::decode(record.bytes) {
                    Ok(edit) => whole.add(edit, &mut is_there),
                    Err(found) => {
                        damage = Some(Error::corruption_at(&path, record.offset, found.what));
                        break;
                    }
                };
                match added {
                    Ok(()) => (end, count) = (record.end, count + 1),
                    Err(WholeError::Asking(error)) => return Err(error),
                    Err(WholeError::Inconsistent(found)) => {
                        damage = Some(Error::corruption_at(&path, record.offset, found));
                        break;
                    }
                }
            }
            if damage.is_some() && most == usize::MAX {
                // Replayed again up to there, because an inconsistent edit leaves the replay in an
                // undefined state.
                most = count;
                continue;
            }
            if !whole.has_begun() {
                let nothing = || Error::corruption_at(&path, 0, "expected version edits, found too few");
                return Err(damage.unwrap_or_else(nothing));
            }
            let (replay, set_back) = whole.into_replay();
            let set_back = set_back.iter().map(|name| {
                format!(
                    "column family {:?} is set back to an older state, whose files all exist",
                    Named(name)
                )
            });
            let ends = damage.map(|error| format!("the MANIFEST was read up to its damage: {error}"));
            let size_bytes = bytes.len() as u64;
            return Ok((Manifest { path, name, size_bytes, replay, end }, set_back.chain(ends).collect()));
        }
    }

    /// Reads the edits appended since the last read. Returns true if there were any.
    ///
    /// # Errors
    /// It cannot be read, has become shorter, or has a record that is no edit. It must not be used
    /// further then, except for the edits read before.
    pub(crate) fn read_on(&mut self, env: &Env) -> Result<bool> {
        let base = self.end - self.end % BLOCK_BYTES as u64;
        let bytes = read_from(env, &self.path, base)?;
        let size = base + bytes.len() as u64;
        if size < self.end {
            let what = format!("the MANIFEST has {size} bytes, and had {} before", self.end);
            return Err(Error::corruption_at(&self.path, size, what));
        }
        self.size_bytes = size;
        Ok(self.replay((base, &bytes))? > 0)
    }

    /// Replays the records in a part of the file after the last replayed one; returns their number.
    fn replay(&mut self, (base, bytes): (u64, &[u8])) -> Result<usize> {
        let path = &self.path;
        let mut reader = LogReader::manifest(bytes);
        if self.end > 0 {
            reader = reader.resumed(base, self.end, false);
        }
        let mut records = 0;
        while let Some(record) = reader.next_record() {
            let record = record.map_err(|damage| Error::in_file(path, 0, damage.corruption))?;
            // The offset within the record is text, because a record may be cut into fragments with
            // headers between them.
            let edit = VersionEdit::decode(record.bytes).map_err(|e| {
                let what = format!("version edit: {} (byte {} of the record)", e.what, e.offset);
                Error::corruption_at(path, record.offset, what)
            })?;
            self.replay.add(edit).map_err(|e| Error::corruption_at(path, record.offset, e))?;
            self.end = record.end;
            records += 1;
        }
        Ok(records)
    }
}
