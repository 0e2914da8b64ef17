//! The options of one life, drawn from what both engines support.
//!
//! In: a random generator and the properties that a family keeps for life (order, merge operator,
//! shape of its tree). Out: option strings for both engines, after the rules of [`known`] were
//! applied.

use super::engine::Policy;
use super::known::{self, Tally};
use karst_testkit::model::{Order, Prefix};
use karst_testkit::random::Random;
use karst_testkit::script::Merging;
use std::collections::BTreeMap;
use std::fmt::Write as _;

pub(super) type Lines = BTreeMap<&'static str, String>;

/// Properties that a family never changes.
#[derive(Clone, Debug)]
pub(super) struct Nature {
    pub(super) order: Order,
    pub(super) merging: Merging,
    merge_operator: &'static str,
    compaction_style: &'static str,
    num_levels: &'static str,
    /// Files may be ingested behind all entries.
    pub(super) behind: bool,
}

/// The options of one family in one life.
#[derive(Clone, Debug)]
pub(super) struct FamilyChoice {
    pub(super) family: Lines,
    pub(super) table: Lines,
    pub(super) prefix: Option<Prefix>,
}

type Choices = &'static [(&'static str, &'static [&'static str])];

const SELDOM: &[&str] = &["false", "false", "false", "true"];
const OFTEN: &[&str] = &["true", "false"];

const DATABASE: Choices = &[
    ("allow_concurrent_memtable_write", &["true", "true", "false"]),
    ("allow_fallocate", OFTEN),
    ("allow_mmap_reads", SELDOM),
    ("allow_mmap_writes", SELDOM),
    ("async_wal_precreate", SELDOM),
    ("atomic_flush", SELDOM),
    ("avoid_flush_during_recovery", OFTEN),
    ("avoid_flush_during_shutdown", OFTEN),
    ("avoid_unnecessary_blocking_io", OFTEN),
    ("background_close_inactive_wals", SELDOM),
    ("bytes_per_sync", &["0", "16384"]),
    ("compaction_readahead_size", &["2097152", "0", "4096"]),
    ("db_write_buffer_size", &["0", "0", "300000"]),
    ("enable_pipelined_write", SELDOM),
    ("enforce_single_del_contracts", OFTEN),
    ("fast_sst_open", SELDOM),
    ("manual_wal_flush", SELDOM),
    ("max_background_jobs", &["2", "4"]),
    ("max_compaction_trigger_wakeup_seconds", &["43200", "1"]),
    ("max_manifest_file_size", &["4000", "1000000"]),
    ("max_open_files", &["-1", "-1", "20"]),
    ("max_subcompactions", &["1", "3"]),
    ("max_total_wal_size", &["0", "0", "100000"]),
    ("max_write_batch_group_size_bytes", &["1048576", "1000"]),
    ("open_files_async", SELDOM),
    ("optimize_manifest_for_recovery", SELDOM),
    ("prefix_seek_opt_in_only", SELDOM),
    ("recycle_log_file_num", &["0", "0", "2"]),
    ("reuse_manifest_on_open", SELDOM),
    ("skip_stats_update_on_db_open", OFTEN),
    ("strict_bytes_per_sync", SELDOM),
    ("track_and_verify_wals", SELDOM),
    ("track_and_verify_wals_in_manifest", SELDOM),
    ("two_write_queues", SELDOM),
    ("unordered_write", SELDOM),
    ("use_direct_io_for_flush_and_compaction", SELDOM),
    ("use_direct_reads", SELDOM),
    ("use_fsync", SELDOM),
    ("verify_manifest_content_on_close", SELDOM),
    ("verify_sst_unique_id_in_manifest", OFTEN),
    ("WAL_ttl_seconds", &["0", "0", "0", "3600"]),
    ("wal_bytes_per_sync", &["0", "4096"]),
    ("wal_compression", &["kNoCompression", "kNoCompression", "kZSTD"]),
    (
        "wal_recovery_mode",
        &[
            "kPointInTimeRecovery",
            "kPointInTimeRecovery",
            "kPointInTimeRecovery",
            "kAbsoluteConsistency",
            "kTolerateCorruptedTailRecords",
            "kSkipAnyCorruptedRecords",
        ],
    ),
    ("writable_file_max_buffer_size", &["1048576", "4096"]),
    ("write_dbid_to_manifest", OFTEN),
    ("write_identity_file", &["true", "true", "true", "false"]),
];

const COMPRESSION: &[&str] = &[
    "kNoCompression",
    "kSnappyCompression",
    "kZlibCompression",
    "kLZ4Compression",
    "kLZ4HCCompression",
    "kZSTD",
];

const FAMILY: Choices = &[
    ("arena_block_size", &["0", "4096"]),
    ("blob_compression_type", COMPRESSION),
    ("blob_file_size", &["30000", "1000000"]),
    ("blob_file_starting_level", &["0", "0", "1"]),
    ("blob_garbage_collection_age_cutoff", &["0.25", "1.0"]),
    ("blob_garbage_collection_force_threshold", &["1.0", "0.5"]),
    ("block_protection_bytes_per_key", &["0", "0", "8"]),
    ("bottommost_compression", &["kDisableCompressionOption", "kZSTD", "kNoCompression"]),
    ("bottommost_file_compaction_delay", &["0", "1"]),
    (
        "compaction_options_universal",
        &[
            "{allow_trivial_move=false}",
            "{allow_trivial_move=true}",
            "{size_ratio=10;max_merge_width=4}",
            "{incremental=true}",
        ],
    ),
    (
        "compaction_pri",
        &[
            "kByCompensatedSize",
            "kOldestLargestSeqFirst",
            "kOldestSmallestSeqFirst",
            "kMinOverlappingRatio",
            "kRoundRobin",
        ],
    ),
    ("compression", COMPRESSION),
    (
        "compression_opts",
        &[
            "{level=32767}",
            "{max_dict_bytes=4096}",
            "{max_dict_bytes=4096;zstd_max_train_bytes=20000}",
            "{parallel_threads=2}",
        ],
    ),
    ("disable_auto_compactions", SELDOM),
    ("enable_blob_files", SELDOM),
    ("enable_blob_garbage_collection", OFTEN),
    ("experimental_mempurge_threshold", &["0", "0", "0", "1.0"]),
    ("level0_file_num_compaction_trigger", &["2", "4"]),
    ("level0_slowdown_writes_trigger", &["1000"]),
    ("level0_stop_writes_trigger", &["2000"]),
    ("level_compaction_dynamic_level_bytes", OFTEN),
    ("max_bytes_for_level_base", &["50000", "1000000"]),
    ("max_bytes_for_level_multiplier", &["2", "10"]),
    ("max_compaction_bytes", &["0", "0", "60000"]),
    ("max_sequential_skip_in_iterations", &["8", "8", "0", "2"]),
    ("max_successive_merges", &["0", "0", "3"]),
    ("max_write_buffer_number", &["2", "4"]),
    ("max_write_buffer_size_to_maintain", &["0", "100000", "-1"]),
    ("memtable_batch_lookup_optimization", SELDOM),
    (
        "memtable_factory",
        &[
            "SkipListFactory",
            "SkipListFactory",
            "SkipListFactory",
            "vector",
            "prefix_hash",
            "hash_linkedlist",
        ],
    ),
    ("memtable_max_range_deletions", &["0", "0", "5"]),
    ("memtable_op_scan_flush_trigger", &["0", "0", "30"]),
    ("memtable_avg_op_scan_flush_trigger", &["0", "0", "30"]),
    ("memtable_prefix_bloom_size_ratio", &["0", "0.1"]),
    ("memtable_protection_bytes_per_key", &["0", "0", "8"]),
    ("memtable_verify_per_key_checksum_on_seek", SELDOM),
    ("memtable_whole_key_filtering", OFTEN),
    ("min_blob_size", &["0", "100"]),
    ("min_tombstones_for_range_conversion", &["0", "0", "3"]),
    ("min_write_buffer_number_to_merge", &["1", "1", "2"]),
    ("optimize_filters_for_hits", SELDOM),
    ("paranoid_file_checks", SELDOM),
    ("periodic_compaction_seconds", &["0", "0", "0", "1"]),
    ("preclude_last_level_data_seconds", &["0", "0", "0", "1000"]),
    ("preserve_internal_time_seconds", &["0", "0", "0", "1000"]),
    ("sst_partitioner_factory", &["", "", "", "{id=SstPartitionerFixedPrefixFactory;length=2}"]),
    ("strict_max_successive_merges", OFTEN),
    ("target_file_size_base", &["8000", "30000", "1000000"]),
    ("ttl", &["0", "0", "0", "1"]),
    ("uncache_aggressiveness", &["0", "100"]),
    ("verify_output_flags", &["0", "0", "4294967295"]),
    ("write_buffer_size", &["30000", "65536", "262144"]),
];

const TABLE: Choices = &[
    ("block_align", SELDOM),
    ("block_restart_interval", &["16", "1", "4"]),
    ("block_size", &["256", "1024", "4096"]),
    ("cache_index_and_filter_blocks", OFTEN),
    ("checksum", &["kXXH3", "kCRC32c", "kxxHash", "kxxHash64", "kNoChecksum"]),
    ("data_block_index_type", &["kDataBlockBinarySearch", "kDataBlockBinaryAndHash"]),
    ("decouple_partitioned_filters", OFTEN),
    ("detect_filter_construct_corruption", SELDOM),
    ("enable_index_compression", OFTEN),
    ("filter_policy", &["", "bloomfilter:10:false", "ribbonfilter:10", "bloomfilter:4:false"]),
    ("format_version", &["2", "3", "4", "5", "6", "7"]),
    ("index_block_restart_interval", &["1", "4"]),
    ("index_block_search_type", &["kBinary", "kBinary", "kInterpolation", "kAuto"]),
    ("index_shortening", &["kNoShortening", "kShortenSeparators", "kShortenSeparatorsAndSuccessor"]),
    ("index_type", &["kBinarySearch", "kHashSearch", "kTwoLevelIndexSearch", "kBinarySearchWithFirstKey"]),
    ("initial_auto_readahead_size", &["8192", "0"]),
    ("metadata_block_size", &["4096", "128"]),
    ("no_block_cache", SELDOM),
    ("optimize_filters_for_memory", OFTEN),
    ("partition_filters", OFTEN),
    ("pin_l0_filter_and_index_blocks_in_cache", OFTEN),
    ("pin_top_level_index_and_filter", OFTEN),
    ("prepopulate_block_cache", &["kDisable", "kFlushOnly", "kFlushAndCompaction"]),
    ("read_amp_bytes_per_bit", &["0", "0", "8"]),
    ("separate_key_value_in_data_block", SELDOM),
    ("super_block_alignment_size", &["0", "0", "16384"]),
    ("uniform_cv_threshold", &["-1", "0.5"]),
    ("use_delta_encoding", &["true", "true", "false"]),
    ("verify_compression", SELDOM),
    ("whole_key_filtering", OFTEN),
];

fn draw(random: &mut Random, choices: Choices) -> Lines {
    let mut lines = Lines::new();
    for (name, values) in choices {
        let value = values[random.index(values.len())];
        if !value.is_empty() {
            lines.insert(name, value.into());
        }
    }
    lines
}

/// Draws options of the database. `history` is the write policy of its transactions, and true if
/// logs were recycled in an earlier life.
pub(super) fn database(random: &mut Random, history: (Option<Policy>, bool), tally: &mut Tally) -> Lines {
    let mut lines = draw(random, DATABASE);
    known::take_back_of_database(&mut lines, history, tally);
    for name in ["create_if_missing", "create_missing_column_families"] {
        lines.insert(name, "true".into());
    }
    lines
}

impl Nature {
    pub(super) fn draw(random: &mut Random) -> Self {
        let (merge_operator, merging) = match random.below(3) {
            0 => ("uint64add", Merging::Add),
            1 => ("{id=StringAppendTESTOperator;delimiter=+}", Merging::Append(b"+".to_vec())),
            _ => ("{id=StringAppendOperator;delimiter=+}", Merging::Append(b"+".to_vec())),
        };
        let styles = [
            ("kCompactionStyleLevel", "7"),
            ("kCompactionStyleLevel", "4"),
            ("kCompactionStyleLevel", "2"),
            ("kCompactionStyleUniversal", "5"),
            ("kCompactionStyleUniversal", "1"),
            ("kCompactionStyleFIFO", "1"),
        ];
        let (compaction_style, num_levels) = styles[random.index(styles.len())];
        let order = if random.one_in(3) { Order::ReverseBytewise } else { Order::Bytewise };
        // RocksDB supports it with universal compaction only.
        let behind = num_levels == "5" && random.one_in(2);
        Self { order, merging, merge_operator, compaction_style, num_levels, behind }
    }

    /// True if a compaction of all files leaves only visible entries.
    pub(super) fn drops_what_is_hidden(&self) -> bool {
        self.compaction_style != "kCompactionStyleFIFO" && !self.behind
    }

    /// Draws options of a family of this nature, consistent with the database's options and write
    /// policy in `beside`.
    pub(super) fn options(
        &self,
        random: &mut Random,
        beside: (&Lines, Option<Policy>),
        tally: &mut Tally,
    ) -> FamilyChoice {
        let mut family = draw(random, FAMILY);
        let mut table = draw(random, TABLE);
        let prefix = match random.below(4) {
            0 => None,
            1 => Some(Prefix::Capped(3)),
            2 => Some(Prefix::Fixed(3)),
            _ => Some(Prefix::Fixed(4)),
        };
        let order = match self.order {
            Order::Bytewise => "leveldb.BytewiseComparator",
            Order::ReverseBytewise => "rocksdb.ReverseBytewiseComparator",
        };
        family.insert("comparator", order.into());
        family.insert("merge_operator", self.merge_operator.into());
        family.insert("compaction_style", self.compaction_style.into());
        family.insert("num_levels", self.num_levels.into());
        family.insert("cf_allow_ingest_behind", self.behind.to_string());
        let extractor = match prefix {
            None => "nullptr".into(),
            Some(Prefix::Fixed(n)) => format!("rocksdb.FixedPrefix.{n}"),
            Some(Prefix::Capped(n)) => format!("rocksdb.CappedPrefix.{n}"),
        };
        family.insert("prefix_extractor", extractor);
        if self.compaction_style == "kCompactionStyleFIFO" {
            // FIFO compaction must drop no file for its size or age.
            let fifo = [
                "{max_table_files_size=1000000000000}",
                "{max_table_files_size=1000000000000;allow_compaction=true}",
            ];
            family.insert("compaction_options_fifo", fifo[random.index(fifo.len())].into());
            family.insert("ttl", "0".into());
            family.insert("periodic_compaction_seconds", "0".into());
        }
        known::take_back_of_family(&mut family, &mut table, beside, tally);
        FamilyChoice { family, table, prefix }
    }
}

impl FamilyChoice {
    /// True if large values are written to blob files.
    pub(super) fn has_blobs(&self) -> bool {
        self.family.get("enable_blob_files").is_some_and(|value| value == "true")
    }

    /// One option string, in the form that both engines parse.
    pub(super) fn text(&self) -> String {
        format!("{}block_based_table_factory={{{}}};", text(&self.family), text(&self.table))
    }
}

/// `name=value;` for each.
pub(super) fn text(lines: &Lines) -> String {
    lines.iter().fold(String::new(), |mut text, (name, value)| {
        let _ = write!(text, "{name}={value};");
        text
    })
}

/// Options that are changed while a family is open.
pub(super) const CHANGES: Choices = &[
    ("write_buffer_size", &["20000", "65536", "262144"]),
    ("level0_file_num_compaction_trigger", &["2", "3", "6"]),
    ("target_file_size_base", &["8000", "60000"]),
    ("max_bytes_for_level_base", &["50000", "400000"]),
    ("disable_auto_compactions", &["true", "false", "false"]),
    ("compression", COMPRESSION),
    ("bottommost_compression", &["kZSTD", "kNoCompression"]),
    ("enable_blob_files", &["true", "false"]),
    ("min_blob_size", &["0", "50", "1000"]),
    ("enable_blob_garbage_collection", &["true", "false"]),
    ("max_sequential_skip_in_iterations", &["1", "8", "100"]),
    ("paranoid_file_checks", &["true", "false"]),
    ("memtable_prefix_bloom_size_ratio", &["0", "0.2"]),
    ("max_compaction_bytes", &["40000", "1000000"]),
    ("block_based_table_factory", &["{block_size=512}", "{block_size=2048}"]),
    // Refused by both.
    ("no_such_option", &["1"]),
    ("write_buffer_size", &["many"]),
    ("num_levels", &["9"]),
];
