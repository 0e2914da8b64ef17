//! Table properties in RocksDB's text format.

use karst_format::properties::TableProperties;

/// Returns the properties in RocksDB 11.8's order and wording, each as `name`, `between`, `value`,
/// `behind`: these are `"="` and `"; "` in database properties, `": "` and `"\n  "` in `sst_dump`.
#[must_use]
pub fn table_properties_text(p: &TableProperties, behind: &str, between: &str) -> String {
    let mut text = String::with_capacity(1024);
    let mut line = |name: &str, value: String| {
        text.push_str(name);
        text.push_str(between);
        text.push_str(&value);
        text.push_str(behind);
    };
    let average = |bytes: u64| if p.num_entries == 0 { 0.0 } else { bytes as f64 / p.num_entries as f64 };
    let known = |text: &str| if text.is_empty() { "N/A".to_owned() } else { text.to_owned() };
    line("# data blocks", p.num_data_blocks.to_string());
    line("# data blocks compression rejected", p.num_data_blocks_compression_rejected.to_string());
    line("# data blocks compression bypassed", p.num_data_blocks_compression_bypassed.to_string());
    line("# uniform blocks", p.num_uniform_blocks.to_string());
    line("# entries", p.num_entries.to_string());
    line("# deletions", p.num_deletions.to_string());
    line("# merge operands", p.num_merge_operands.to_string());
    line("# range deletions", p.num_range_deletions.to_string());
    line("raw key size", p.raw_key_size.to_string());
    line("raw average key size", format!("{:.6}", average(p.raw_key_size)));
    line("raw value size", p.raw_value_size.to_string());
    line("raw average value size", format!("{:.6}", average(p.raw_value_size)));
    line("data block size", p.data_size.to_string());
    let (user_key, delta) = (p.index_key_is_user_key, p.index_value_is_delta_encoded);
    line(&format!("index block size (user-key? {user_key}, delta-value? {delta})"), p.index_size.to_string());
    if p.index_partitions != 0 {
        line("# index partitions", p.index_partitions.to_string());
        line("top-level index size", p.top_level_index_size.to_string());
    }
    line("filter block size", p.filter_size.to_string());
    line("# entries for filter", p.num_filter_entries.to_string());
    line("(estimated) table size", (p.data_size + p.index_size + p.filter_size).to_string());
    line("filter policy name", known(&p.filter_policy_name));
    line("prefix extractor name", known(&p.prefix_extractor_name));
    let unknown_family = u64::from(i32::MAX as u32);
    let family = p.column_family_id;
    line("column family ID", if family == unknown_family { "N/A".into() } else { family.to_string() });
    line("column family name", known(&p.column_family_name));
    line("comparator name", known(&p.comparator_name));
    line("user defined timestamps persisted", (p.user_defined_timestamps_persisted != 0).to_string());
    line("largest sequence number in file", p.key_largest_seqno.to_string());
    line("smallest sequence number in file", p.key_smallest_seqno.to_string());
    line("merge operator name", known(&p.merge_operator_name));
    line("property collectors names", known(&p.property_collectors_names));
    line("SST file compression algo", known(&p.compression_name));
    line("SST file compression options", known(&p.compression_options));
    line("creation time", p.creation_time.to_string());
    line("time stamp of earliest key", p.oldest_key_time.to_string());
    line("time stamp of newest key", p.newest_key_time.to_string());
    line("file creation time", p.file_creation_time.to_string());
    line("slow compression estimated data size", p.slow_compression_estimated_data_size.to_string());
    line("fast compression estimated data size", p.fast_compression_estimated_data_size.to_string());
    line("DB identity", p.db_id.clone());
    line("DB session identity", p.db_session_id.clone());
    line("DB host id", p.db_host_id.clone());
    line("original file number", p.orig_file_number.to_string());
    text
}
