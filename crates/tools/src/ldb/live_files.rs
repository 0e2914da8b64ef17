//! `ldb dump_live_files`: the MANIFEST, every table and blob file, and the logs, each dumped in
//! turn.

use super::arguments::Arguments;
use super::data::{failed, take_db};
use super::{manifest, wal};
use crate::output::{Fault, cannot_write};
use crate::table_file::TableFile;
use crate::text::{Form, write_entry};
use karst_format::file_name::FileName;
use std::io::Write;
use std::path::Path;

const LINE: &str = "==============================";

pub(super) fn dump(mut args: Arguments, out: &mut impl Write) -> Result<(), Fault> {
    let path = take_db(&mut args)?;
    args.finish("dump_live_files")?;
    let db = Path::new(&path);
    let manifest_path = manifest::current(db)?;
    writeln!(out, "Manifest File\n{LINE}\n{}", manifest_path.display()).map_err(failed)?;
    let set = manifest::replay(&manifest_path, &manifest::edits(&manifest_path)?)?;
    manifest::write_state(out, &set, Form::Raw).map_err(failed)?;
    writeln!(out).map_err(failed)?;
    for family in set.column_families.values() {
        writeln!(out, "Column family name: {}\n{LINE}\n\nSST Files\n{LINE}", family.name).map_err(failed)?;
        for (level, file) in family.version.all_files() {
            let file = db.join(FileName::Table(file.number).to_string());
            let short = "------------------------------";
            writeln!(out, "{} level:{}\n{short}", file.display(), level.0).map_err(failed)?;
            dump_table(out, &file)?;
            writeln!(out).map_err(failed)?;
        }
        writeln!(out, "Blob Files\n{LINE}").map_err(failed)?;
        for blob in family.version.blob_files().values() {
            let file = db.join(FileName::Blob(blob.number()).to_string());
            writeln!(
                out,
                "{}: {} blobs of {} bytes, of these {} blobs of {} bytes are garbage",
                file.display(),
                blob.file.total_count,
                blob.file.total_bytes,
                blob.garbage_count,
                blob.garbage_bytes
            )
            .map_err(failed)?;
        }
    }
    writeln!(out, "\nWrite Ahead Log Files\n{LINE}").map_err(failed)?;
    for log in logs_in(db)? {
        let log = db.join(log.to_string());
        writeln!(out, "{}", log.display()).map_err(failed)?;
        wal::dump(out, &log, true, true)?;
    }
    Ok(())
}

fn dump_table(out: &mut impl Write, path: &Path) -> Result<(), Fault> {
    let table = TableFile::open(path)?;
    writeln!(out, "Process {}\nSst file format: block-based", path.display()).map_err(failed)?;
    for row in table.index_rows()? {
        table.block_entries(row.handle, |key, value| {
            write_entry(out, key, value, Form::Raw).map_err(cannot_write)?;
            Ok(true)
        })?;
    }
    table.range_tombstones(|key, end| write_entry(out, key, end, Form::Raw).map_err(cannot_write))?;
    let text = karst_engine::properties::table_properties_text(&table.properties, "\n", "=");
    writeln!(out, "\nTable Properties:\n{text}\n").map_err(failed)
}

/// Returns the logs in the directory, oldest first.
pub(crate) fn logs_in(db: &Path) -> Result<Vec<FileName>, String> {
    let at = |e: std::io::Error| format!("{}: {e}", db.display());
    let mut logs = Vec::new();
    for entry in std::fs::read_dir(db).map_err(at)? {
        let name = entry.map_err(at)?.file_name();
        if let Some(log @ FileName::Wal(_)) = name.to_str().and_then(FileName::parse) {
            logs.push(log);
        }
    }
    logs.sort_by_key(FileName::number);
    Ok(logs)
}
