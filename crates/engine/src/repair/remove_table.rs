//! Removes a table from the tree of a closed database, regardless of the table's content.
//!
//! In: a file number. Out: a new MANIFEST whose tree lacks the table. Nothing else is checked,
//! because it serves databases that this table keeps from opening.

use crate::db::Db;
use crate::open::{Directory, Options, check_path, take_lock};
use crate::versions::{write_current, write_synced};
use karst_base::error::{Error, ErrorKind, Result};
use karst_format::file_name::FileName;
use karst_format::ids::{ColumnFamilyId, FileNumber, Level};
use karst_format::log::{LogReader, LogWriter};
use karst_format::version_edit::VersionEdit;
use std::collections::BTreeMap;
use std::path::Path;

impl Db {
    /// Removes table `number` from the tree of the database in `path`, which must not be open:
    /// RocksDB's `ldb unsafe_remove_sst_file`. Its entries are lost, and entries that they hid
    /// become visible again. The file itself is removed at the next opening. Blocks.
    ///
    /// # Errors
    /// `NotFound`: no tree has the table, or there is no database. `Corruption`: the MANIFEST is
    /// damaged. `Io`: the database is open, or cannot be written. The database is unchanged then.
    pub fn unsafe_remove_sst_file(path: impl AsRef<Path>, options: &Options, number: u64) -> Result<()> {
        remove_table(path.as_ref(), options, FileNumber(number))
    }
}

fn remove_table(path: &Path, options: &Options, number: FileNumber) -> Result<()> {
    check_path(path)?;
    let env = options.environment();
    // Checked before the lock, because LOCK must not be created if there is no database.
    Directory::list(&env, path)?.current_manifest()?;
    let _lock = take_lock(&env, path)?;
    // Checked again, because the database may have been open, and written a MANIFEST, until now.
    let directory = Directory::list(&env, path)?;
    let name = directory.current_manifest()?;
    let mut edits = Vec::new();
    let bytes = directory.read(name)?;
    let mut reader = LogReader::manifest(&bytes);
    while let Some(record) = reader.next_record() {
        let record = record.map_err(|damage| Error::in_file(&directory.file(name), 0, damage.corruption))?;
        let edit = VersionEdit::decode(record.bytes);
        edits.push(edit.map_err(|c| Error::in_file(&directory.file(name), record.offset, c))?);
    }
    let mut live: BTreeMap<FileNumber, (ColumnFamilyId, Level)> = BTreeMap::new();
    for edit in &edits {
        if edit.column_family_drop {
            live.retain(|_, (id, _)| *id != edit.column_family);
        }
        for (_, number) in &edit.deleted_files {
            live.remove(number);
        }
        for (level, file) in &edit.new_files {
            live.insert(file.number, (edit.column_family, *level));
        }
    }
    let missing = || Error::new(ErrorKind::NotFound, "File not present in any level");
    let (column_family, level) = *live.get(&number).ok_or_else(missing)?;
    let used = directory.files().iter().filter_map(FileName::number).max().unwrap_or_default();
    let said = edits.iter().filter_map(|edit| edit.next_file_number).max().unwrap_or_default();
    let next = FileNumber(used.max(said).0 + 1);
    let [written, temporary] = [1, 2].map(|more| FileNumber(next.0 + more));
    edits.push(VersionEdit {
        column_family,
        deleted_files: vec![(level, number)],
        next_file_number: Some(FileNumber(next.0 + 3)),
        ..VersionEdit::default()
    });
    let (mut writer, mut bytes) = (LogWriter::new(FileNumber(0), false), Vec::new());
    for edit in &edits {
        let added = writer.append(&edit.encode(), &mut bytes);
        added.map_err(|e| Error::with_source(ErrorKind::Io, "writing the MANIFEST", e))?;
    }
    let (fs, name) = (env.fs(), FileName::Manifest(next));
    let unfinished = directory.file(FileName::Temp(written));
    write_synced(fs.as_ref(), &unfinished, &bytes)?;
    fs.rename(&unfinished, &directory.file(name))?;
    fs.sync_dir(path)?;
    write_current(fs.as_ref(), path, name, temporary)
}
