//! Evidence in a cell's files of the options they were written with: each option line of a family
//! is looked for in footers, metaindexes and properties, read by `karst_format`.
//!
//! Invariant: a cell whose options left no trace where they must is an error, never a pass.

use super::cells::Cell;
use karst_format::footer::{Footer, MAX_FOOTER_BYTES};
use karst_format::metaindex::{COMPRESSION_DICT, FilterKind, HASH_INDEX_PREFIXES, Metaindex};
use karst_format::properties::TableProperties;
use karst_testkit::matrix::{Family, record_types};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// A table's metadata.
struct Table {
    footer: Footer,
    metaindex: Metaindex,
    properties: TableProperties,
}

impl Table {
    fn read(path: &Path) -> Result<Self, String> {
        let bytes = fs::read(path).map_err(|e| e.to_string())?;
        let tail = &bytes[bytes.len().saturating_sub(MAX_FOOTER_BYTES)..];
        let footer = Footer::decode(tail, bytes.len() as u64).map_err(|e| e.to_string())?;
        // Both blocks are written without compression.
        let block = |offset: u64, size: u64| -> Result<Box<[u8]>, String> {
            let (start, end) = (offset as usize, (offset + size) as usize);
            match (bytes.get(start..end), bytes.get(end)) {
                (Some(contents), Some(0)) => Ok(contents.into()),
                _ => Err("a meta block lies outside the file or is compressed".into()),
            }
        };
        let at = footer.metaindex_handle;
        let metaindex =
            Metaindex::decode(block(at.offset, at.size)?, bytes.len() as u64).map_err(|e| e.to_string())?;
        let at = metaindex.properties().ok_or("no properties")?;
        let properties = TableProperties::decode(block(at.offset, at.size)?).map_err(|e| e.to_string())?;
        Ok(Table { footer, metaindex, properties })
    }
}

/// Looks for the features of a cell in the files of its folder.
pub(crate) fn prove(cell: &Cell, path: &Path) -> Result<(), String> {
    let mut tables = Vec::new();
    let (mut blobs, mut logs) = (0, Vec::new());
    for entry in fs::read_dir(path).map_err(|e| e.to_string())? {
        let file = entry.map_err(|e| e.to_string())?.path();
        match file.extension().and_then(|e| e.to_str()) {
            Some("sst") => {
                let in_file = |e| format!("{}: {e}", file.display());
                tables.push(Table::read(&file).map_err(in_file)?);
            }
            Some("blob") => blobs += 1,
            Some("log") => logs.push(fs::read(&file).map_err(|e| e.to_string())?),
            _ => {}
        }
    }
    for family in &cell.families {
        let own: Vec<&Table> =
            tables.iter().filter(|t| t.properties.column_family_name == family.name).collect();
        if own.len() < 3 {
            return Err(format!("column family {} has {} tables", family.name, own.len()));
        }
        for line in family.table.iter().chain(&family.options) {
            if !shows(line, &own, blobs) {
                return Err(format!("column family {}: no table shows {line}", family.name));
            }
        }
        prove_operations(cell, family, &own)?;
    }
    // An ingested file keeps the property of a file that was written outside of a database.
    if cell.ingest && tables.iter().all(|t| t.properties.external_file_version().is_none()) {
        return Err("no table was ingested".into());
    }
    prove_logs(cell, &logs)
}

fn prove_operations(cell: &Cell, family: &Family, tables: &[&Table]) -> Result<(), String> {
    let some = |what: &str, wanted: bool, count: fn(&TableProperties) -> u64| {
        if wanted && tables.iter().all(|t| count(&t.properties) == 0) {
            return Err(format!("column family {}: no table has {what}", family.name));
        }
        Ok(())
    };
    some("deletions", true, |p| p.num_deletions)?;
    some("merge operands", cell.merges, |p| p.num_merge_operands)?;
    some("range deletions", cell.delete_ranges, |p| p.num_range_deletions)?;
    let prefixed = |t: &&&Table| t.properties.prefix_extractor_name != "nullptr";
    if family.prefix.is_some() && tables.iter().filter(prefixed).count() != tables.len() {
        return Err(format!("column family {}: no prefix extractor", family.name));
    }
    Ok(())
}

/// Returns true if the tables show the effect of an option line, and for lines that leave no trace
/// in a table.
fn shows(line: &str, tables: &[&Table], blobs: usize) -> bool {
    let Some((name, value)) = line.split_once('=') else { return false };
    let all = |test: &dyn Fn(&Table) -> bool| tables.iter().all(|t| test(t));
    let any = |test: &dyn Fn(&Table) -> bool| tables.iter().any(|t| test(t));
    let index = |number: u32| all(&|t| t.properties.index_type().is_ok_and(|i| i as u32 == number));
    match (name, value) {
        ("format_version", _) => all(&|t| value == t.footer.format_version.to_string()),
        ("checksum", _) => {
            let names = ["kNoChecksum", "kCRC32c", "kxxHash", "kxxHash64", "kXXH3"];
            all(&|t| names.get(t.footer.checksum as usize) == Some(&value))
        }
        ("index_type", "kBinarySearch") => index(0),
        ("index_type", "kHashSearch") => index(1) && any(&|t| t.metaindex.get(HASH_INDEX_PREFIXES).is_some()),
        ("index_type", "kTwoLevelIndexSearch") => index(2) && any(&|t| t.properties.index_partitions > 1),
        ("index_type", "kBinarySearchWithFirstKey") => index(3),
        ("partition_filters", "true") => {
            any(&|t| t.metaindex.filter().is_some_and(|(kind, ..)| kind == FilterKind::Partitioned))
        }
        ("decouple_partitioned_filters", "true") => all(&|t| t.properties.decoupled_partitioned_filters()),
        ("filter_policy", _) => any(&|t| {
            let policy = &t.properties.filter_policy_name;
            let ribbon = value.starts_with("ribbonfilter");
            t.properties.filter_size > 0 && policy.contains(if ribbon { "ribbon" } else { "bloom" })
        }),
        ("whole_key_filtering", "false") => all(&|t| !t.properties.whole_key_filtering()),
        ("separate_key_value_in_data_block", "true") => {
            all(&|t| t.properties.separate_key_value_in_data_block == 1)
        }
        ("uniform_cv_threshold", _) => any(&|t| t.properties.num_uniform_blocks > 0),
        ("compression", "kNoCompression") => {
            all(&|t| t.properties.num_data_blocks > 0 || t.properties.num_range_deletions > 0)
        }
        ("compression", _) => {
            // From format_version 7 on the types are hexadecimal numbers after the manager's name.
            let names = [
                ("kSnappyCompression", "Snappy", "01"),
                ("kZlibCompression", "Zlib", "02"),
                ("kBZip2Compression", "BZip2", "03"),
                ("kLZ4Compression", "LZ4", "04"),
                ("kLZ4HCCompression", "LZ4HC", "05"),
                ("kZSTD", "ZSTD", "07"),
            ];
            let Some((_, old, new)) = names.iter().find(|(option, ..)| *option == value) else {
                return false;
            };
            any(&|t| {
                let name = &t.properties.compression_name;
                name == old || (t.footer.format_version >= 7 && name.contains(new))
            })
        }
        ("compression_opts", _) if value.contains("max_dict_bytes") => {
            any(&|t| t.metaindex.get(COMPRESSION_DICT).is_some())
        }
        ("merge_operator", _) => all(&|t| t.properties.merge_operator_name != "nullptr"),
        ("enable_blob_files", "true") => blobs >= 3,
        _ => true,
    }
}

/// Checks that the logs contain the record types that the options of the log produce.
fn prove_logs(cell: &Cell, logs: &[Vec<u8>]) -> Result<(), String> {
    let seen: BTreeSet<u8> = logs.iter().flat_map(|log| record_types(log)).collect();
    let wanted: &[(&str, &[u8])] = &[
        ("wal_compression=", &[9]),
        ("recycle_log_file_num=", &[5, 6, 131]),
        ("track_and_verify_wals=true", &[130, 131]),
    ];
    let options = cell.db_options.join(";");
    for (option, types) in wanted {
        if options.contains(option) && !types.iter().any(|kind| seen.contains(kind)) {
            return Err(format!("logs have records of types {seen:?}, which does not show {option}"));
        }
    }
    if seen.is_empty() {
        return Err("no log has a record: nothing is left to replay".into());
    }
    Ok(())
}
