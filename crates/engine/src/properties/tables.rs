//! Properties computed from the tables' properties blocks. Tables that are not open yet are opened,
//! which blocks.

use super::table_text::table_properties_text;
use karst_base::error::Result;
use karst_format::ids::Level;
use karst_format::properties::TableProperties;
use karst_lsm::FileMetadata;
use karst_storage::column_family::Family;
use karst_storage::superversion::SuperVersion;
use karst_storage::table::Table;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number of tables opened for an estimate; beyond that it is extrapolated.
const SAMPLE: usize = 1000;

fn open(family: &Family, level: Level, file: &Arc<FileMetadata>) -> Result<Arc<Table>> {
    let tables = &family.tables;
    if let Some(table) = tables.opened(file).cloned().or_else(|| tables.lookup(file)) {
        return Ok(table);
    }
    karst_io::block_on(&tables.shared.env, tables.clone().open(file, u32::from(level.0)))
}

/// Estimates the number of entries that a scan would return.
pub(super) fn estimate_num_keys(family: &Family, view: &SuperVersion) -> Result<u64> {
    let (mut entries, mut deletions, mut sampled) = (0u64, 0u64, 0usize);
    for (level, file) in view.version().all_files().take(SAMPLE) {
        let table = open(family, level, file)?;
        let properties = table.properties();
        entries += properties.num_entries;
        deletions += properties.num_deletions;
        sampled += 1;
    }
    // Deletions count twice, because a deletion is an entry itself, and removes another one.
    let mut keys = entries.saturating_sub(deletions.saturating_mul(2));
    let files = view.version().file_count();
    if sampled > 0 && files > sampled {
        keys = (keys as f64 * files as f64 / sampled as f64) as u64;
    }
    let in_memory: u64 = view.memtables().map(|m| m.entry_count()).sum();
    let deleted: u64 = view.memtables().map(|m| m.delete_count()).sum();
    Ok((keys + in_memory).saturating_sub(deleted.saturating_mul(2)))
}

/// Returns the memory of open tables outside of the block cache, in bytes.
pub(super) fn open_tables_bytes(family: &Family, view: &SuperVersion) -> u64 {
    let tables = &family.tables;
    let open = view.version().all_files().filter_map(|(_, file)| tables.opened(file));
    open.map(|table| table.memory_bytes() as u64).sum()
}

/// Returns the sums of the properties of all tables, or of those of one level.
fn sums(family: &Family, view: &SuperVersion, level: Option<Level>) -> Result<TableProperties> {
    let mut sum = TableProperties::default();
    sum.user_defined_timestamps_persisted = 1;
    // Compat: RocksDB's sum starts from unset properties.
    (sum.key_largest_seqno, sum.key_smallest_seqno) = (u64::MAX, u64::MAX);
    for (at, file) in view.version().all_files().filter(|(at, _)| level.is_none_or(|level| level == *at)) {
        let table = open(family, at, file)?;
        let p = table.properties();
        sum.data_size += p.data_size;
        sum.index_size += p.index_size;
        sum.index_partitions += p.index_partitions;
        sum.top_level_index_size += p.top_level_index_size;
        sum.index_key_is_user_key += p.index_key_is_user_key;
        sum.index_value_is_delta_encoded += p.index_value_is_delta_encoded;
        sum.filter_size += p.filter_size;
        sum.raw_key_size += p.raw_key_size;
        sum.raw_value_size += p.raw_value_size;
        sum.num_data_blocks += p.num_data_blocks;
        sum.num_data_blocks_compression_rejected += p.num_data_blocks_compression_rejected;
        sum.num_data_blocks_compression_bypassed += p.num_data_blocks_compression_bypassed;
        sum.num_uniform_blocks += p.num_uniform_blocks;
        sum.num_entries += p.num_entries;
        sum.num_filter_entries += p.num_filter_entries;
        sum.num_deletions += p.num_deletions;
        sum.num_merge_operands += p.num_merge_operands;
        sum.num_range_deletions += p.num_range_deletions;
        sum.slow_compression_estimated_data_size += p.slow_compression_estimated_data_size;
        sum.fast_compression_estimated_data_size += p.fast_compression_estimated_data_size;
    }
    Ok(sum)
}

/// Returns the sums as text.
pub(super) fn aggregated(family: &Family, view: &SuperVersion, level: Option<Level>) -> Result<String> {
    Ok(table_properties_text(&sums(family, view, level)?, "; ", "="))
}

/// Returns the sums as a map, under RocksDB's names.
pub(super) fn aggregated_map(
    family: &Family,
    view: &SuperVersion,
    level: Option<Level>,
) -> Result<BTreeMap<String, String>> {
    let sum = sums(family, view, level)?;
    let all = [
        ("data_size", sum.data_size),
        ("fast_compression_estimated_data_size", sum.fast_compression_estimated_data_size),
        ("filter_size", sum.filter_size),
        ("index_partitions", sum.index_partitions),
        ("index_size", sum.index_size),
        ("num_data_blocks", sum.num_data_blocks),
        ("num_deletions", sum.num_deletions),
        ("num_entries", sum.num_entries),
        ("num_filter_entries", sum.num_filter_entries),
        ("num_merge_operands", sum.num_merge_operands),
        ("num_range_deletions", sum.num_range_deletions),
        ("raw_key_size", sum.raw_key_size),
        ("raw_value_size", sum.raw_value_size),
        ("slow_compression_estimated_data_size", sum.slow_compression_estimated_data_size),
        ("top_level_index_size", sum.top_level_index_size),
    ];
    Ok(all.map(|(name, n)| (name.to_owned(), n.to_string())).into())
}

/// Returns bytes of keys and values per byte of file on one level; -1 if the level is empty.
pub(super) fn compression_ratio(family: &Family, view: &SuperVersion, level: Level) -> Result<String> {
    let (mut file_bytes, mut data_bytes) = (0u64, 0u64);
    for file in view.version().files(level) {
        let table = open(family, level, file)?;
        let raw = table.properties().raw_key_size + table.properties().raw_value_size;
        if raw > 0 {
            file_bytes += file.size_bytes;
            data_bytes += raw;
        }
    }
    let ratio = if file_bytes == 0 { -1.0 } else { data_bytes as f64 / file_bytes as f64 };
    Ok(format!("{ratio:.6}"))
}
