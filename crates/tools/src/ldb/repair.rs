//! ldb's commands for damaged databases and for information about files: repair,
//! unsafe_remove_sst_file, list_file_range_deletes, list_live_files_metadata, get_property,
//! approxsize.

use super::arguments::Arguments;
use super::data::{Session, failed, take_db};
use crate::output::{Fault, note};
use crate::table_file::TableFile;
use karst_engine::range_del::{Fragments, RangeTombstone};
use karst_engine::{Db, LiveFile, SizeApproximationOptions};
use karst_format::comparator::Comparator;
use karst_format::key;
use std::io::Write;

/// Repairs the database from all readable files and prints the report to standard error. Afterwards
/// fails if tables or blob files are no longer part of the database.
pub(crate) fn repair(mut args: Arguments, out: &mut impl Write) -> Result<(), Fault> {
    let path = take_db(&mut args)?;
    args.take_flag("verbose")?;
    let opening = args.opening.clone();
    args.finish("repair")?;
    let report = Db::repair(&path, &opening)?;
    note!("{}", report.to_string().trim_end());
    // An error, because a script checks only the exit code.
    let (away, missing) = (report.tables_put_away(), report.missing.len());
    if away > 0 || missing > 0 {
        let what = format!(
            "repaired, but {away} tables and blob files were put away in `lost`, and {missing} are missing"
        );
        return Err(Fault::Failed(what));
    }
    writeln!(out, "OK").map_err(failed)
}

/// Removes a table from the tree.
pub(crate) fn unsafe_remove_sst_file(mut args: Arguments, out: &mut impl Write) -> Result<(), Fault> {
    let path = take_db(&mut args)?;
    let missing = || Fault::Usage("SST file number must be specified".into());
    let word = args.take_word().ok_or_else(missing)?;
    let number: u64 =
        word.parse().map_err(|_| Fault::Usage(format!("failed to parse SST file number {word}")))?;
    let opening = args.opening.clone();
    args.finish("unsafe_remove_sst_file")?;
    let removed = Db::unsafe_remove_sst_file(&path, &opening, number);
    removed.map_err(|e| format!("failed to unsafely remove SST file: {e}"))?;
    writeln!(out, "OK").map_err(failed)
}

/// Returns the tables of the session's family, level by level, in ldb's order.
fn tables(s: &Session) -> Vec<LiveFile> {
    let mut files = s.db.live_files();
    files.retain(|file| file.level.is_some() && file.column_family == s.family.name());
    files
}

/// Prints the range tombstones of each table.
pub(crate) fn list_file_range_deletes(mut args: Arguments, out: &mut impl Write) -> Result<(), Fault> {
    let s = Session::open(&mut args)?;
    // Compat: the default of 1000 is ldb's, although its help does not mention it.
    let mut left: i64 = args.take_number("max_keys")?.unwrap_or(1000);
    args.finish("list_file_range_deletes")?;
    let comparator = Comparator::from_name(s.family.comparator_name()).unwrap_or(Comparator::Bytewise);
    let mut cut = "";
    for file in tables(&s) {
        if left <= 0 {
            break;
        }
        let path = file.directory.join(&file.name);
        let table = TableFile::open(&path)?;
        let mut tombstones = Vec::new();
        table.range_tombstones(|start, end| {
            let (start, trailer) = key::split(start);
            tombstones.push(RangeTombstone::new(start, end, key::SeqNo(trailer >> 8)));
            Ok(())
        })?;
        writeln!(out, "=== file : {} ===", path.display()).map_err(failed)?;
        let fragments = Fragments::build(&comparator, tombstones);
        for at in 0..fragments.len() {
            for seq in fragments.seqs(at) {
                if left <= 0 {
                    break;
                }
                let hex = |key: &[u8]| key.iter().map(|byte| format!("{byte:02X}")).collect::<String>();
                let (start, end) = (hex(fragments.start(at)), hex(fragments.end(at)));
                writeln!(out, "start: {start} end: {end} seq: {seq}").map_err(failed)?;
                left -= 1;
                if left == 0 {
                    // Compat: ldb prints this note even if no more tombstones exist.
                    cut = "(results may not be complete)\n";
                }
            }
        }
    }
    writeln!(out, "{cut}").map_err(failed)
}

/// Prints the files of each level of the tree.
pub(crate) fn list_live_files_metadata(mut args: Arguments, out: &mut impl Write) -> Result<(), Fault> {
    let s = Session::open(&mut args)?;
    let by_name = args.take_flag("sort_by_filename")?;
    args.finish("list_live_files_metadata")?;
    let mut all = s.db.live_files();
    let shown = |file: &LiveFile| file.directory.join(&file.name).display().to_string();
    if by_name {
        writeln!(out, "Live SST and Blob Files:").map_err(failed)?;
        all.sort_by_key(shown);
        for file in &all {
            match file.level {
                Some(level) => {
                    writeln!(out, "{} : level {level}, column family '{}'", shown(file), file.column_family)
                }
                None => writeln!(out, "{} : column family '{}'", shown(file), file.column_family),
            }
            .map_err(failed)?;
        }
        return writeln!(out, "------------------------------").map_err(failed);
    }
    for family in s.db.column_families() {
        let name = family.name();
        let files: Vec<&LiveFile> = all.iter().filter(|file| file.column_family == name).collect();
        writeln!(out, "===== Column Family: {name} =====\nLive SST Files:").map_err(failed)?;
        let levels = u32::try_from(family.options().num_levels).unwrap_or(1);
        for level in 0..levels {
            writeln!(out, "---------- level {level} ----------").map_err(failed)?;
            for file in files.iter().filter(|file| file.level == Some(level)) {
                writeln!(out, "{}", shown(file)).map_err(failed)?;
            }
        }
        writeln!(out, "Live Blob Files:").map_err(failed)?;
        for file in files.iter().filter(|file| file.level.is_none()) {
            writeln!(out, "{}", shown(file)).map_err(failed)?;
        }
    }
    writeln!(out, "------------------------------").map_err(failed)
}

/// Prints one property of the database.
pub(crate) fn get_property(mut args: Arguments, out: &mut impl Write) -> Result<(), Fault> {
    let missing = || Fault::Usage("property name must be specified".into());
    let name = args.take_word().ok_or_else(missing)?;
    let s = Session::open(&mut args)?;
    args.finish("get_property")?;
    let value = s.db.property_cf(&s.family, &name);
    let value = value.ok_or_else(|| format!("failed to get property: {name}"))?;
    writeln!(out, "{name}: {value}").map_err(failed)
}

/// Prints the approximate size in bytes of a range of keys in files.
pub(crate) fn approxsize(mut args: Arguments, out: &mut impl Write) -> Result<(), Fault> {
    let s = Session::open(&mut args)?;
    let missing = |name: &str| Fault::Usage(format!("{name} must be specified for approxsize command"));
    let from = args.take_key("from", s.key_form)?.ok_or_else(|| missing("from"))?;
    let to = args.take_key("to", s.key_form)?.ok_or_else(|| missing("to"))?;
    args.finish("approxsize")?;
    let how = SizeApproximationOptions::default();
    let sizes = s.db.approximate_sizes_cf(&how, &s.family, &[(&from, &to)])?;
    writeln!(out, "{}", sizes[0]).map_err(failed)
}
