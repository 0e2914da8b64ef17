//! The options of a column family: section `[CFOptions "name"]`.
use super::OptionSet;
use super::block_based::BlockBasedTableOptions;
use super::choice::{
    CompactionPriority, CompactionStyle, Compression, FileTemperature, PrepopulateBlobCache,
};
use super::nested::{CompressionOptions, FifoOptions, UniversalOptions};
use super::text;
use super::value::{Cache, Object, OptionValue, ValueError, Verbatim, WithoutText};

/// Compat: RocksDB's default is Snappy in builds that have it, and none otherwise.
const DEFAULT_COMPRESSION: Compression =
    if cfg!(feature = "snappy") { Compression::Snappy } else { Compression::None };

option_table! {
    /// Options of one column family.
    ColumnFamilyOptions in ColumnFamily {
        comparator: Object = Object::new("leveldb.BytewiseComparator"), fixed, honoured, "Order of keys";
        merge_operator: Object = Object::NONE, fixed, honoured, "Function that combines merge operands into values";
        compaction_filter: Object = Object::NONE, fixed, honoured, "Function that drops or changes entries during compaction";
        compaction_filter_factory: Object = Object::NONE, fixed, honoured, "Factory that makes a compaction filter for each compaction";
        write_buffer_size: usize = 64 << 20, mutable, honoured, "Size in bytes at which a memtable is flushed";
        max_write_buffer_number: i32 = 2, mutable, honoured, "Maximum number of memtables, mutable and immutable";
        min_write_buffer_number_to_merge: i32 = 1, fixed, honoured, "Minimum number of memtables flushed together";
        max_write_buffer_size_to_maintain: i64 = 0, fixed, kept, "Bytes of flushed memtables kept for transactions; negative for max_write_buffer_number of them";
        compression: Compression = DEFAULT_COMPRESSION, mutable, honoured, "Compression of blocks";
        compression_per_level: Vec<Compression> = Vec::new(), mutable, honoured, "Compression of blocks, by level";
        compression_opts: CompressionOptions = CompressionOptions::default(), mutable, honoured, "Parameters of the compression library";
        bottommost_compression: Compression = Compression::Disable, mutable, honoured, "Compression of blocks of the last level";
        bottommost_compression_opts: CompressionOptions = CompressionOptions::default(), mutable, honoured, "Parameters of the compression library on the last level";
        compression_manager: Object = Object::NONE, mutable, kept, "Object that chooses compressions and compresses";
        sample_for_compression: u64 = 0, mutable, honoured, "Sample one block in this many for compressibility; 0 for none";
        prefix_extractor: Object = Object::NONE, mutable, honoured, "Function that returns the prefix of a key";
        table_factory: TableFactory = TableFactory::default(), mutable, honoured, "Format of tables";
        num_levels: i32 = 7, fixed, honoured, "Number of levels of the tree; fewer than the compaction style needs are as many as it needs", in i32::MIN..=256;
        level0_file_num_compaction_trigger: i32 = 4, mutable, honoured, "Number of L0 files that starts a compaction";
        level0_slowdown_writes_trigger: i32 = 20, mutable, honoured, "Number of L0 files that delays writes";
        level0_stop_writes_trigger: i32 = 36, mutable, honoured, "Number of L0 files that stops writes";
        target_file_size_base: u64 = 64 << 20, mutable, honoured, "Target size in bytes of a file of L1";
        target_file_size_multiplier: i32 = 1, mutable, honoured, "Factor from level to level of the target file size";
        target_file_size_is_upper_bound: bool = false, mutable, honoured, "Apply the target file size to the whole file instead of its data only";
        max_bytes_for_level_base: u64 = 256 << 20, mutable, honoured, "Target size in bytes of L1";
        max_bytes_for_level_multiplier: f64 = 10.0, mutable, honoured, "Factor from level to level of the target level size";
        max_bytes_for_level_multiplier_additional: Vec<i32> = vec![1; 7], mutable, honoured, "Further factors of the target level size, by level";
        level_compaction_dynamic_level_bytes: bool = true, fixed, honoured, "Derive target level sizes from the size of the last level";
        max_compaction_bytes: u64 = 0, mutable, honoured, "Maximum bytes that one compaction writes; 0 for 25 files";
        soft_pending_compaction_bytes_limit: u64 = 64 << 30, mutable, honoured, "Pending compaction bytes that delay writes";
        hard_pending_compaction_bytes_limit: u64 = 256 << 30, mutable, honoured, "Pending compaction bytes that stop writes";
        disable_auto_compactions: bool = false, mutable, honoured, "Run only manual compactions";
        compaction_style: CompactionStyle = CompactionStyle::Level, fixed, honoured, "Compaction strategy";
        compaction_pri: CompactionPriority = CompactionPriority::MinOverlappingRatio, fixed, honoured, "Order in which the files of a level are compacted";
        compaction_options_universal: UniversalOptions = UniversalOptions::default(), mutable, honoured, "Options of universal compaction";
        compaction_options_fifo: FifoOptions = FifoOptions::default(), mutable, honoured, "Options of FIFO compaction";
        ttl: u64 = u64::MAX - 1, mutable, honoured, "Seconds after which a file is compacted for its age; the default decides by itself";
        periodic_compaction_seconds: u64 = u64::MAX - 1, mutable, honoured, "Seconds after which every file is rewritten; the default decides by itself";
        read_triggered_compaction_threshold: f64 = 0.0, mutable, kept, "Reads per byte that make a file due for compaction; 0 for never";
        bottommost_file_compaction_delay: u32 = 0, mutable, honoured, "Seconds before files of the last level are compacted for released snapshots";
        preclude_last_level_data_seconds: u64 = 0, mutable, kept, "Seconds that data stays out of the last level";
        preserve_internal_time_seconds: u64 = 0, mutable, kept, "Seconds for which write times of entries are kept";
        table_properties_collectors: Verbatim = Verbatim::default(), fixed, honoured, "Collectors that add properties to tables; CompactOnDeletionCollector is known";
        sst_partitioner_factory: Object = Object::NONE, fixed, honoured, "Factory of partitioners, which cut tables at chosen keys";
        force_consistency_checks: bool = true, fixed, honoured, "Check the tree's invariants at every change";
        report_bg_io_stats: bool = false, mutable, kept, "Measure the I/O of flushes and compactions";
        optimize_filters_for_hits: bool = false, fixed, honoured, "Build no filters on the last level";
        paranoid_file_checks: bool = false, mutable, honoured, "Read each table back after it is written";
        verify_output_flags: u32 = 0, mutable, honoured, "Checks of a compaction's outputs, as bits: 1 block checksums, 2 entries, 4 whole-file checksums; 1024 enables them";
        max_sequential_skip_in_iterations: u64 = 8, mutable, honoured, "Number of versions of a key that an iterator steps over before it seeks";
        memtable_factory: Object = Object::new("SkipListFactory"), fixed, kept, "Data structure of memtables";
        memtable_insert_with_hint_prefix_extractor: Object = Object::NONE, fixed, kept, "Function that returns prefixes whose last insert position is remembered";
        memtable_prefix_bloom_size_ratio: f64 = 0.0, mutable, honoured, "Size of a memtable's filter as a fraction of write_buffer_size, at most 0.25; 0 for none";
        memtable_whole_key_filtering: bool = false, mutable, honoured, "Add whole keys to a memtable's filter";
        memtable_huge_page_size: usize = 0, mutable, kept, "Size of huge pages for memtables; 0 for none";
        memtable_protection_bytes_per_key: u32 = 0, mutable, honoured, "Bytes of checksum stored with each memtable entry";
        memtable_verify_per_key_checksum_on_seek: bool = false, mutable, honoured, "Check the checksums of memtable entries that a seek passes";
        memtable_max_range_deletions: u32 = 0, mutable, honoured, "Number of range deletions at which a memtable is flushed; 0 for no limit";
        memtable_op_scan_flush_trigger: u32 = 0, mutable, kept, "Number of hidden entries scanned by one operation that marks a memtable for flush; 0 for never";
        memtable_avg_op_scan_flush_trigger: u32 = 0, mutable, kept, "Average number of hidden entries scanned per operation that marks a memtable for flush; 0 for never";
        memtable_batch_lookup_optimization: bool = false, fixed, kept, "Look up the keys of a batch in a memtable together";
        min_tombstones_for_range_conversion: u32 = 0, mutable, kept, "Number of adjacent deletions that an iterator turns into a range deletion; 0 for never";
        bloom_locality: u32 = 0, fixed, kept, "Keep the probes of a memtable's filter in one cache line";
        arena_block_size: usize = 0, mutable, honoured, "Maximum bytes of one allocation of a memtable, from 8 KiB to 2 MiB; 0 takes write_buffer_size / 16";
        inplace_update_support: bool = false, fixed, kept, "Overwrite values in the memtable";
        inplace_update_num_locks: usize = 10_000, mutable, kept, "Number of locks for inplace_update_support";
        max_successive_merges: usize = 0, mutable, kept, "Number of merge operands of a key at which a write merges them; 0 for never";
        strict_max_successive_merges: bool = false, mutable, kept, "Merge operands on writing even if that reads from storage";
        experimental_mempurge_threshold: f64 = 0.0, mutable, kept, "Fraction of garbage at which a memtable is collected in memory instead of flushed; 0 for never";
        disallow_memtable_writes: bool = false, fixed, honoured, "Refuse writes other than ingestion; not for the default column family";
        paranoid_memory_checks: bool = false, mutable, honoured, "Check the order of memtable entries on reads";
        block_protection_bytes_per_key: u8 = 0, mutable, kept, "Bytes of checksum stored with each entry of a block in memory";
        uncache_aggressiveness: u32 = 0, mutable, honoured, "Persistence in erasing blocks of obsolete files from the block cache; 0 erases none";
        last_level_temperature: FileTemperature = FileTemperature::Unknown, mutable, kept, "Temperature of the last level's files";
        default_write_temperature: FileTemperature = FileTemperature::Unknown, mutable, kept, "Temperature of files above the last level";
        default_temperature: FileTemperature = FileTemperature::Unknown, fixed, kept, "Temperature assumed for files without one";
        enable_blob_files: bool = false, mutable, honoured, "Store large values in blob files";
        min_blob_size: u64 = 0, mutable, honoured, "Size in bytes of the smallest value stored in a blob file";
        blob_file_size: u64 = 256 << 20, mutable, honoured, "Target size in bytes of a blob file";
        blob_compression_type: Compression = Compression::None, mutable, honoured, "Compression of blobs";
        blob_compression_opts: CompressionOptions = CompressionOptions::default(), mutable, honoured, "Parameters of the compression library for blobs";
        enable_blob_garbage_collection: bool = false, mutable, honoured, "Let compactions move blobs out of old blob files";
        blob_garbage_collection_age_cutoff: f64 = 0.25, mutable, honoured, "Fraction of the blob files, oldest first, whose blobs are moved";
        blob_garbage_collection_force_threshold: f64 = 1.0, mutable, honoured, "Fraction of garbage in the blob files below the age cutoff that forces a compaction; 1 for never";
        blob_compaction_readahead_size: u64 = 0, mutable, kept, "Bytes that a compaction reads ahead in blob files";
        blob_file_starting_level: i32 = 0, mutable, honoured, "Lowest level whose values are stored in blob files";
        blob_cache: Cache = Cache::default(), fixed, honoured, "Cache for blobs: a size, or properties with the capacity";
        prepopulate_blob_cache: PrepopulateBlobCache = PrepopulateBlobCache::Disable, mutable, honoured, "Put blobs into the cache as they are written";
        enable_blob_direct_write: bool = false, fixed, kept, "Store values in blob files when they are written instead of on flush";
        blob_direct_write_partitions: u32 = 1, fixed, kept, "Number of blob files open for enable_blob_direct_write";
        blob_direct_write_partition_strategy: WithoutText = WithoutText, fixed, kept, "Function that assigns values to the blob files of enable_blob_direct_write";
        persist_user_defined_timestamps: bool = true, fixed, kept, "Keep user-defined timestamps in tables";
        cf_allow_ingest_behind: bool = false, fixed, honoured, "Keep the last level free for files that are ingested behind";
    }
    retired {
        "bottommost_temperature", "check_flush_compaction_key_order", "compaction_measure_io_stats",
        "expanded_compaction_factor", "filter_deletes", "hard_rate_limit", "ignore_max_compaction_bytes_for_input",
        "level_compaction_dynamic_file_size", "max_grandparent_overlap_factor", "max_mem_compaction_level",
        "max_write_buffer_number_to_maintain", "memtable_prefix_bloom_bits",
        "memtable_prefix_bloom_huge_page_tlb_size", "memtable_prefix_bloom_probes", "min_partial_merge_operands",
        "purge_redundant_kvs_while_flush", "rate_limit_delay_max_milliseconds", "snap_refresh_nanos",
        "soft_rate_limit", "source_compaction_factor", "verify_checksums_in_compaction",
    }
    aliases {
        "block_based_table_factory" => "table_factory",
        "memtable" => "memtable_factory",
        "memtable_veirfy_per_key_checksum_on_seek" => "memtable_verify_per_key_checksum_on_seek",
    }
}

/// RocksDB's name of the only table format that KarstDB knows.
pub const BLOCK_BASED_TABLE: &str = "BlockBasedTable";

/// The format of a column family's tables, with the options of block-based ones.
///
/// It prints only the format's name, because the options have a section of their own.
#[derive(Clone, Debug, PartialEq)]
pub struct TableFactory {
    /// The format's name; a name other than [`BLOCK_BASED_TABLE`] is kept, and the engine rejects
    /// it.
    pub name: String,
    /// Options of block-based tables; defaults for other formats.
    pub block_based: BlockBasedTableOptions,
}

impl TableFactory {
    /// Returns true if tables are block-based.
    pub fn is_block_based(&self) -> bool {
        self.name == BLOCK_BASED_TABLE
    }
}

impl Default for TableFactory {
    fn default() -> TableFactory {
        TableFactory { name: BLOCK_BASED_TABLE.to_owned(), block_based: BlockBasedTableOptions::default() }
    }
}

impl OptionValue for TableFactory {
    const KIND: &'static str = "table factory";

    /// Takes a name, or properties: the name as `id` and options of block-based tables. Nothing
    /// between braces changes nothing.
    fn assign(&mut self, value: &str) -> Result<(), ValueError> {
        let properties = text::strip_braces(value);
        if properties.is_empty() {
            return Ok(());
        }
        if !properties.contains('=') {
            properties.clone_into(&mut self.name);
            return Ok(());
        }
        let mut changed = self.clone();
        for (name, value) in text::split(properties).map_err(|error| ValueError::new(error.to_string()))? {
            if name == "id" {
                value.clone_into(&mut changed.name);
            } else {
                changed.assign_part(name, value)?;
            }
        }
        *self = changed;
        Ok(())
    }

    fn assign_part(&mut self, part: &str, value: &str) -> Result<(), ValueError> {
        self.block_based.set(part, value).map(|_| ()).map_err(|error| ValueError::new(error.to_string()))
    }

    fn print(&self) -> String {
        self.name.clone()
    }
}
