//! `ldb manifest_dump`: the edits of a MANIFEST in RocksDB's format, and the resulting trees.

use crate::text::{Form, write_bare, write_internal_key};
use karst_format::comparator::Comparator;
use karst_format::file_name::{FileName, parse_current};
use karst_format::ids::FileNumber;
use karst_format::log::{LogEvent, LogReader, RecoveryMode};
use karst_format::version_edit::{NewFile, Temperature, VersionEdit};
use karst_lsm::{ManifestReplay, TreeOptions, Version, VersionSet};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Number of levels that ldb shows for any tree, ignoring the database's options.
const SHOWN_LEVELS: usize = 64;

/// Returns the path of the MANIFEST that CURRENT names.
pub(crate) fn current(db: &Path) -> Result<PathBuf, String> {
    let path = db.join("CURRENT");
    let contents = std::fs::read(&path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    match parse_current(&contents) {
        Some(name @ FileName::Manifest(_)) => Ok(db.join(name.to_string())),
        _ => Err(format!("{}: `{}` is not the name of a MANIFEST", path.display(), contents.escape_ascii())),
    }
}

/// Returns the edits of a MANIFEST, in order. The error for a damaged record names the file and the
/// offset.
pub(crate) fn edits(path: &Path) -> Result<Vec<VersionEdit>, String> {
    let bytes = std::fs::read(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    let mut edits = Vec::new();
    // Compat: a MANIFEST is a log without a number, and ends before an incomplete last record.
    let mut reader = LogReader::new(&bytes, FileNumber(0), RecoveryMode::TolerateCorruptedTailRecords);
    while let Some(event) = reader.next_event() {
        match event {
            LogEvent::Record(record) => {
                let edit = VersionEdit::decode(record.bytes)
                    .map_err(|e| format!("{}: record at offset {}: {e}", path.display(), record.offset))?;
                edits.push(edit);
            }
            LogEvent::Damage(damage) => return Err(format!("{}: {}", path.display(), damage.corruption)),
            LogEvent::OldRecord { .. } | LogEvent::Predecessor(_) => {}
        }
    }
    Ok(edits)
}

/// Returns the state after all `edits`, with as many levels as ldb shows.
pub(crate) fn replay(path: &Path, edits: &[VersionEdit]) -> Result<VersionSet, String> {
    let mut replay = ManifestReplay::new();
    for edit in edits {
        replay.add(edit.clone()).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    replay
        .finish(|family| {
            let name = family.comparator.unwrap_or("leveldb.BytewiseComparator");
            // A dump needs an order only to sort files, so bytewise order replaces a custom
            // comparator.
            let comparator = Comparator::from_name(name).unwrap_or(Comparator::Bytewise);
            Ok(Some(TreeOptions { comparator, level_count: SHOWN_LEVELS, ..TreeOptions::default() }))
        })
        .map_err(|e| format!("{}: {e}", path.display()))
}

/// Writes the trees and counters at the end of a dump.
pub(crate) fn write_state(out: &mut impl Write, set: &VersionSet, form: Form) -> io::Result<()> {
    for (index, (id, family)) in set.column_families.iter().enumerate() {
        writeln!(out, "--------------- Column family \"{}\"  (ID {}) --------------", family.name, id.0)?;
        writeln!(out, "log number: {}", family.log_number.0)?;
        writeln!(out, "comparator: {}", family.version.comparator().name())?;
        // Compat: RocksDB numbers versions as it makes them, first an empty one for each family.
        write_version(out, &family.version, set.column_families.len() + index, form)?;
    }
    writeln!(
        out,
        "next_file_number {} last_sequence {}  prev_log_number {} max_column_family {} min_log_number_to_keep {}",
        set.next_file_number.0,
        set.last_sequence,
        set.prev_log_number.0,
        set.max_column_family.0,
        set.min_log_number_to_keep.0
    )
}

fn write_version(out: &mut impl Write, version: &Version, number: usize, form: Form) -> io::Result<()> {
    for level in version.levels() {
        write!(out, "--- level {} --- version# {number}", level.level().0)?;
        if let Some(cursor) = version.compact_cursors().get(&level.level()) {
            write!(out, " --- compact_cursor: ")?;
            write_internal_key(out, cursor, form)?;
        }
        writeln!(out, " ---")?;
        for file in level.files() {
            write!(
                out,
                " {}:{}[{} .. {}][",
                file.number.0, file.size_bytes, file.smallest_seq, file.largest_seq
            )?;
            write_internal_key(out, &file.smallest, form)?;
            out.write_all(b" .. ")?;
            write_internal_key(out, &file.largest, form)?;
            out.write_all(b"]")?;
            if let Some(blob) = file.oldest_blob_file {
                write!(out, " blob_file:{}", blob.0)?;
            }
            writeln!(out)?;
        }
    }
    if !version.blob_files().is_empty() {
        writeln!(out, "--- blob files --- version# {number} ---")?;
        for blob in version.blob_files().values() {
            writeln!(
                out,
                "blob_file_number: {} total_blob_count: {} total_blob_bytes: {} garbage_blob_count: {} garbage_blob_bytes: {}",
                blob.number().0,
                blob.file.total_count,
                blob.file.total_bytes,
                blob.garbage_count,
                blob.garbage_bytes
            )?;
        }
    }
    Ok(())
}

/// Writes one edit, one line per field.
pub(crate) fn write_edit(out: &mut impl Write, edit: &VersionEdit, form: Form) -> io::Result<()> {
    write!(out, "VersionEdit {{")?;
    if let Some(id) = &edit.db_id {
        write!(out, "\n  DB ID: {}", String::from_utf8_lossy(id))?;
    }
    if let Some(name) = &edit.comparator {
        write!(out, "\n  Comparator: {name}")?;
    }
    if let Some(persisted) = edit.persist_user_defined_timestamps {
        write!(out, "\n  PersistUserDefinedTimestamps: {persisted}")?;
    }
    let numbers = [
        ("LogNumber", edit.log_number.map(|n| n.0)),
        ("PrevLogNumber", edit.prev_log_number.map(|n| n.0)),
        ("NextFileNumber", edit.next_file_number.map(|n| n.0)),
        ("MaxColumnFamily", edit.max_column_family.map(|n| u64::from(n.0))),
        ("MinLogNumberToKeep", edit.min_log_number_to_keep.map(|n| n.0)),
        ("LastSeq", edit.last_sequence.map(|n| n.0)),
    ];
    for (name, number) in numbers {
        if let Some(number) = number {
            write!(out, "\n  {name}: {number}")?;
        }
    }
    for (level, key) in &edit.compact_cursors {
        write!(out, "\n  CompactCursor: {} ", level.0)?;
        write_internal_key(out, key, form)?;
    }
    for (level, number) in &edit.deleted_files {
        write!(out, "\n  DeleteFile: {} {}", level.0, number.0)?;
    }
    for (level, file) in &edit.new_files {
        write!(out, "\n  AddFile: {} ", level.0)?;
        write_new_file(out, file, form)?;
    }
    for blob in &edit.blob_file_additions {
        write!(
            out,
            "\n  BlobFileAddition: blob_file_number: {} total_blob_count: {} total_blob_bytes: {} checksum_method: {} checksum_value: ",
            blob.number.0,
            blob.total_count,
            blob.total_bytes,
            String::from_utf8_lossy(&blob.checksum_method)
        )?;
        write_bare(out, &blob.checksum_value, Form::Hex)?;
    }
    for garbage in &edit.blob_file_garbages {
        write!(
            out,
            "\n  BlobFileGarbage: blob_file_number: {} garbage_blob_count: {} garbage_blob_bytes: {}",
            garbage.number.0, garbage.count, garbage.bytes
        )?;
    }
    for wal in &edit.wal_additions {
        let size = wal.synced_size_bytes.map_or("unknown".to_string(), |n| n.to_string());
        write!(out, "\n  WalAddition: log_number: {} synced_size_in_bytes: {size}", wal.number.0)?;
    }
    if let Some(below) = edit.wal_deletion {
        write!(out, "\n  WalDeletion: log_number: {}", below.0)?;
    }
    write!(out, "\n  ColumnFamily: {}", edit.column_family.0)?;
    if let Some(name) = &edit.column_family_add {
        write!(out, "\n  ColumnFamilyAdd: {name}")?;
    }
    if edit.column_family_drop {
        write!(out, "\n  ColumnFamilyDrop")?;
    }
    if let Some(remaining) = edit.remaining_in_atomic_group {
        write!(out, "\n  AtomicGroup: {remaining} entries remains")?;
    }
    if let Some(low) = &edit.full_history_ts_low {
        write!(out, "\n FullHistoryTsLow: ")?;
        write_bare(out, low, form)?;
    }
    if let Some(size) = edit.last_compacted_manifest_file_size {
        write!(out, "\n  LastCompactedManifestFileSize: {size}")?;
    }
    writeln!(out, "\n}}")
}

fn write_new_file(out: &mut impl Write, file: &NewFile, form: Form) -> io::Result<()> {
    write!(out, "{} {} ", file.number.0, file.size_bytes)?;
    write_internal_key(out, &file.smallest, form)?;
    out.write_all(b" .. ")?;
    write_internal_key(out, &file.largest, form)?;
    if let Some(blob) = file.oldest_blob_file {
        write!(out, " blob_file:{}", blob.0)?;
    }
    write!(
        out,
        " oldest_ancester_time:{} file_creation_time:{} epoch_number:{} file_checksum:",
        file.oldest_ancestor_time_s, file.creation_time_s, file.epoch_number
    )?;
    let function = match &file.checksum {
        Some(checksum) => {
            write_bare(out, &checksum.value, Form::Hex)?;
            String::from_utf8_lossy(&checksum.function).into_owned()
        }
        None => "Unknown".to_string(),
    };
    write!(out, " file_checksum_func_name: {function}")?;
    if file.temperature != Temperature::Unknown {
        write!(out, " temperature: {}", file.temperature as u8)?;
    }
    if let Some([a, b]) = file.unique_id {
        write!(out, " unique_id(internal): {{{a},{b}}}")?;
    }
    write!(
        out,
        " tail size: {} User-defined timestamps persisted: {}",
        file.tail_size_bytes, file.user_defined_timestamps_persisted
    )
}
