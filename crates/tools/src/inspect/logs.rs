//! Entries of a database that are in its logs and in no table yet.
//!
//! Input: the state of the MANIFEST and the logs that it still needs. Output: the number of entries
//! of each column family that only a log holds, and the logs that cannot be read to their end.

use crate::ldb::live_files::logs_in;
use karst_format::ids::{ColumnFamilyId, FileNumber};
use karst_format::log::{LogEvent, LogReader, RecoveryMode};
use karst_format::options::file::latest_options_file;
use karst_format::options::{OptionsFile, UnknownOptions};
use karst_format::write_batch::{BatchReader, Op};
use karst_lsm::VersionSet;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The logs that the database still needs.
#[derive(Default)]
pub(super) struct Logs {
    pub(super) files: usize,
    pub(super) bytes: u64,
    /// Number of entries that are in no table, by column family.
    pub(super) entries: BTreeMap<ColumnFamilyId, u64>,
    /// Errors of the logs that cannot be read to their end.
    pub(super) unreadable: Vec<String>,
}

/// Reads the logs.
pub(super) fn collect(db: &Path, set: &VersionSet) -> Result<Logs, String> {
    let directory = directory(db)?;
    let mut found = Logs::default();
    for name in logs_in(&directory)? {
        let number = name.number().unwrap_or_default();
        if number < set.min_log_number() {
            continue;
        }
        let path = directory.join(name.to_string());
        let bytes = std::fs::read(&path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        found.files += 1;
        found.bytes += bytes.len() as u64;
        if let Err(message) = count(&bytes, number, set, &mut found.entries) {
            found.unreadable.push(format!("{}: {message}", path.display()));
        }
    }
    Ok(found)
}

/// Returns the directory of the logs, which the newest OPTIONS file may name.
fn directory(db: &Path) -> Result<PathBuf, String> {
    let at = |e: std::io::Error| format!("{}: {e}", db.display());
    let entries = std::fs::read_dir(db).map_err(at)?.collect::<Result<Vec<_>, _>>().map_err(at)?;
    let names: Vec<_> = entries.iter().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let newest = latest_options_file(names.iter().map(String::as_str));
    let bytes = newest.and_then(|name| std::fs::read(db.join(name)).ok());
    // A damaged file counts as none, because opening the database reports it.
    let file = bytes.and_then(|bytes| OptionsFile::parse(&bytes, UnknownOptions::Keep).ok());
    Ok(match file {
        Some(file) if !file.db.wal_dir.is_empty() => PathBuf::from(file.db.wal_dir),
        _ => db.to_owned(),
    })
}

fn count(
    bytes: &[u8],
    number: FileNumber,
    set: &VersionSet,
    entries: &mut BTreeMap<ColumnFamilyId, u64>,
) -> Result<(), String> {
    let mut reader = LogReader::new(bytes, number, RecoveryMode::TolerateCorruptedTailRecords);
    while let Some(event) = reader.next_event() {
        let record = match event {
            LogEvent::Record(record) => record,
            LogEvent::Damage(damage) => return Err(damage.corruption.to_string()),
            LogEvent::OldRecord { .. } | LogEvent::Predecessor(_) => continue,
        };
        let at = |e| format!("record at offset {}: {e}", record.offset);
        for op in BatchReader::parse(record.bytes).map_err(at)?.ops() {
            let op: Op<'_> = op.map_err(at)?;
            let family = op.column_family().and_then(|id| Some((id, set.column_families.get(&id)?)));
            // A family needs only the logs from `log_number` on.
            if let Some((id, _)) = family.filter(|(_, family)| number >= family.log_number) {
                *entries.entry(id).or_default() += 1;
            }
        }
    }
    Ok(())
}
