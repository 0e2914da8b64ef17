//! Translation of db_bench's flags that are database options into pairs of the options table.
//!
//! Input: flags as given. Output: `(option, value)` pairs for `Options::set`, in order. Most flags
//! have their option's name; the others are listed here: another name, a choice by number, a scaled
//! number, a flag for several options.
//!
//! Invariant: a flag that is neither listed here nor an option's name is not translated; the caller
//! reports it as not honoured.

use karst_format::options::{BlockBasedTableOptions, ColumnFamilyOptions, DbOptions, OptionInfo, OptionSet};

/// Options that db_bench sets for a new database, other than RocksDB's defaults.
pub(crate) const NEW_DATABASE: [(&str, &str); 4] = [
    ("level_compaction_dynamic_level_bytes", "false"),
    ("hard_pending_compaction_bytes_limit", "137438953472"),
    ("delayed_write_rate", "8388608"),
    ("index_shortening", "kShortenSeparatorsAndSuccessor"),
];

/// Flags whose option has another name.
const RENAMED: [(&str, &str); 27] = [
    ("compression_level", "compression_opts.level"),
    ("compression_max_dict_buffer_bytes", "compression_opts.max_dict_buffer_bytes"),
    ("compression_max_dict_bytes", "compression_opts.max_dict_bytes"),
    ("compression_parallel_threads", "compression_opts.parallel_threads"),
    ("compression_use_zstd_dict_trainer", "compression_opts.use_zstd_dict_trainer"),
    ("compression_zstd_max_train_bytes", "compression_opts.zstd_max_train_bytes"),
    ("fifo_age_for_warm", "compaction_options_fifo.age_for_warm"),
    ("fifo_compaction_allow_compaction", "compaction_options_fifo.allow_compaction"),
    ("fifo_compaction_ttl", "ttl"),
    ("file_opening_threads", "max_file_opening_threads"),
    ("memtable_bloom_size_ratio", "memtable_prefix_bloom_size_ratio"),
    ("mmap_read", "allow_mmap_reads"),
    ("mmap_write", "allow_mmap_writes"),
    ("open_files", "max_open_files"),
    ("subcompactions", "max_subcompactions"),
    ("ttl_seconds", "ttl"),
    ("universal_allow_trivial_move", "compaction_options_universal.allow_trivial_move"),
    ("universal_compression_size_percent", "compaction_options_universal.compression_size_percent"),
    ("universal_incremental", "compaction_options_universal.incremental"),
    ("universal_max_merge_width", "compaction_options_universal.max_merge_width"),
    ("universal_max_read_amp", "compaction_options_universal.max_read_amp"),
    (
        "universal_max_size_amplification_percent",
        "compaction_options_universal.max_size_amplification_percent",
    ),
    ("universal_min_merge_width", "compaction_options_universal.min_merge_width"),
    ("universal_reduce_file_locking", "compaction_options_universal.reduce_file_locking"),
    ("universal_size_ratio", "compaction_options_universal.size_ratio"),
    ("wal_size_limit_MB", "WAL_size_limit_MB"),
    ("wal_ttl_seconds", "WAL_ttl_seconds"),
];

/// Flags that choose by number: the flag, its option, and the names in the order of their numbers.
const CHOICES: [(&str, &str, &[&str]); 7] = [
    (
        "compaction_style",
        "compaction_style",
        &[
            "kCompactionStyleLevel",
            "kCompactionStyleUniversal",
            "kCompactionStyleFIFO",
            "kCompactionStyleNone",
        ],
    ),
    (
        "compaction_pri",
        "compaction_pri",
        &[
            "kByCompensatedSize",
            "kOldestLargestSeqFirst",
            "kOldestSmallestSeqFirst",
            "kMinOverlappingRatio",
            "kRoundRobin",
        ],
    ),
    ("checksum_type", "checksum", &["kNoChecksum", "kCRC32c", "kxxHash", "kxxHash64", "kXXH3"]),
    (
        "index_shortening_mode",
        "index_shortening",
        &["kNoShortening", "kShortenSeparators", "kShortenSeparatorsAndSuccessor"],
    ),
    (
        "prepopulate_block_cache",
        "prepopulate_block_cache",
        &["kDisable", "kFlushOnly", "kFlushAndCompaction"],
    ),
    ("prepopulate_blob_cache", "prepopulate_blob_cache", &["kDisable", "kFlushOnly"]),
    (
        "universal_stop_style",
        "compaction_options_universal.stop_style",
        &["kCompactionStopStyleSimilarSize", "kCompactionStopStyleTotalSize"],
    ),
];

const COMPRESSIONS: [(&str, &str); 9] = [
    ("none", "kNoCompression"),
    ("no", "kNoCompression"),
    ("snappy", "kSnappyCompression"),
    ("zlib", "kZlibCompression"),
    ("bzip2", "kBZip2Compression"),
    ("lz4", "kLZ4Compression"),
    ("lz4hc", "kLZ4HCCompression"),
    ("xpress", "kXpressCompression"),
    ("zstd", "kZSTD"),
];

/// Returns the options that a flag stands for; `None` if it is no option of the database.
///
/// # Errors
/// The flag does not allow the value.
pub(crate) fn translate(flag: &str, value: &str) -> Option<Result<Vec<(String, String)>, String>> {
    let one = |option: &str, value: &str| Some(Ok(vec![(option.to_string(), value.to_string())]));
    if let Some((_, option, names)) = CHOICES.iter().find(|(name, ..)| *name == flag) {
        let chosen = value.parse::<usize>().ok().and_then(|number| names.get(number));
        return match chosen {
            Some(chosen) => one(option, chosen),
            None => Some(Err(format!("flag --{flag}: {value} is not a number below {}", names.len()))),
        };
    }
    match flag {
        "compression_type" => Some(compression("compression", flag, value)),
        "blob_compression_type" | "wal_compression" => Some(compression(flag, flag, value)),
        "fifo_compaction_max_table_files_size_mb" => {
            Some(megabytes("compaction_options_fifo.max_table_files_size", flag, value))
        }
        "max_bytes_for_level_multiplier_additional" => one(flag, &value.replace(',', ":")),
        "memtablerep" if value == "skip_list" => one("memtable_factory", "SkipListFactory"),
        "memtablerep" => Some(Err(format!("flag --memtablerep: {value} is not known; there is skip_list"))),
        "file_checksum" => {
            Some(Ok(if_set(value, &[("file_checksum_gen_factory", "FileChecksumGenCrc32cFactory")])))
        }
        "use_hash_search" => Some(Ok(if_set(value, &[("index_type", "kHashSearch")]))),
        "index_with_first_key" => Some(Ok(if_set(value, &[("index_type", "kBinarySearchWithFirstKey")]))),
        "partition_index" => Some(Ok(if_set(value, &[("index_type", "kTwoLevelIndexSearch")]))),
        "partition_index_and_filters" => {
            Some(Ok(if_set(value, &[("index_type", "kTwoLevelIndexSearch"), ("partition_filters", "true")])))
        }
        "use_data_block_hash_index" => {
            Some(Ok(if_set(value, &[("data_block_index_type", "kDataBlockBinaryAndHash")])))
        }
        _ => {
            let option = RENAMED.iter().find(|(name, _)| *name == flag).map_or(flag, |(_, option)| option);
            info(option).and_then(|_| one(option, value))
        }
    }
}

/// Returns the description of an option of the database, of a column family or of its tables.
pub(crate) fn info(option: &str) -> Option<&'static OptionInfo> {
    DbOptions::info(option)
        .or_else(|| ColumnFamilyOptions::info(option))
        .or_else(|| BlockBasedTableOptions::info(option))
}

fn if_set(value: &str, options: &[(&str, &str)]) -> Vec<(String, String)> {
    let pairs = options.iter().map(|(option, value)| ((*option).to_string(), (*value).to_string()));
    if value == "true" { pairs.collect() } else { Vec::new() }
}

fn compression(option: &str, flag: &str, value: &str) -> Result<Vec<(String, String)>, String> {
    let wanted = value.to_ascii_lowercase();
    match COMPRESSIONS.iter().find(|(name, _)| *name == wanted) {
        Some((_, name)) => Ok(vec![(option.to_string(), (*name).to_string())]),
        None => Err(format!("flag --{flag}: there is no compression {value}")),
    }
}

fn megabytes(option: &str, flag: &str, value: &str) -> Result<Vec<(String, String)>, String> {
    let bytes = value.parse::<u64>().ok().and_then(|n| n.checked_mul(1 << 20));
    let bytes = bytes.ok_or_else(|| format!("flag --{flag}: `{value}` is not a number of megabytes"))?;
    Ok(vec![(option.to_string(), bytes.to_string())])
}

#[cfg(test)]
mod tests {
    use super::super::known_flags::KNOWN;
    use super::*;
    use karst_engine::Options;

    fn pairs(flag: &str, value: &str) -> Vec<(String, String)> {
        translate(flag, value).expect("an option").expect("a value")
    }

    #[test]
    fn every_name_on_the_right_is_an_option_and_every_one_on_the_left_a_flag() {
        let known = |flag: &str| KNOWN.binary_search_by_key(&flag, |(name, _)| name).is_ok();
        for (flag, option) in RENAMED {
            assert!(known(flag), "{flag}");
            assert!(info(option).is_some(), "{option}");
        }
        for (flag, option, names) in CHOICES {
            assert!(known(flag), "{flag}");
            for name in names {
                Options::new().set(option, name).unwrap();
            }
        }
        for (option, value) in NEW_DATABASE {
            Options::new().set(option, value).unwrap();
        }
        for (_, name) in COMPRESSIONS {
            Options::new().set("compression", name).unwrap();
        }
    }

    #[test]
    fn flags_become_options() {
        let own = |option: &str, value: &str| vec![(option.to_string(), value.to_string())];
        assert_eq!(pairs("write_buffer_size", "1048576"), own("write_buffer_size", "1048576"));
        assert_eq!(pairs("compression_type", "ZSTD"), own("compression", "kZSTD"));
        assert_eq!(pairs("compaction_style", "1"), own("compaction_style", "kCompactionStyleUniversal"));
        assert_eq!(pairs("partition_index_and_filters", "true").len(), 2);
        assert!(pairs("partition_index_and_filters", "false").is_empty());
        assert_eq!(
            pairs("file_checksum", "true"),
            own("file_checksum_gen_factory", "FileChecksumGenCrc32cFactory")
        );
        assert_eq!(
            pairs("fifo_compaction_max_table_files_size_mb", "2"),
            own("compaction_options_fifo.max_table_files_size", "2097152")
        );
        assert!(translate("sync", "true").is_none());
        assert!(translate("compaction_style", "9").unwrap().is_err());
        assert!(translate("compression_type", "rar").unwrap().is_err());
        for (option, value) in pairs("universal_size_ratio", "3") {
            Options::new().set(&option, &value).unwrap();
        }
    }
}
