//! The options of block-based tables: section `[TableOptions/BlockBasedTable "name"]`.
use super::choice::{
    Checksum, DataBlockIndexType, IndexBlockSearchType, IndexShortening, IndexType, PrepopulateBlockCache,
};
use super::nested::MetadataCacheOptions;
use super::value::{Cache, Object};

option_table! {
    /// Options for writing, reading and caching block-based tables.
    BlockBasedTableOptions in BlockBasedTable {
        flush_block_policy_factory: Object = Object::new("FlushBlockBySizePolicyFactory"), fixed, kept, "Factory of the policy that ends data blocks";
        cache_index_and_filter_blocks: bool = false, mutable, honoured, "Keep indexes and filters in the block cache instead of with the open table";
        cache_index_and_filter_blocks_with_high_priority: bool = true, mutable, honoured, "Evict indexes and filters from the block cache after data blocks";
        pin_l0_filter_and_index_blocks_in_cache: bool = false, mutable, honoured, "Pin the metadata of L0 tables in the cache";
        pin_top_level_index_and_filter: bool = true, mutable, honoured, "Pin the top level of partitioned metadata in the cache";
        metadata_cache_options: MetadataCacheOptions = MetadataCacheOptions::default(), fixed, honoured, "Pinning of metadata in the block cache, by kind";
        index_type: IndexType = IndexType::BinarySearch, mutable, honoured, "Structure of a new table's index";
        index_block_search_type: IndexBlockSearchType = IndexBlockSearchType::Binary, mutable, kept, "Search algorithm for index blocks";
        data_block_index_type: DataBlockIndexType = DataBlockIndexType::BinarySearch, mutable, honoured, "Search structure of new data blocks: binary search, or also a hash index";
        data_block_hash_table_util_ratio: f64 = 0.75, mutable, honoured, "Keys per bucket of a data block's hash index";
        checksum: Checksum = Checksum::Xxh3, mutable, honoured, "Checksum of new blocks";
        no_block_cache: bool = false, mutable, honoured, "Disable the block cache: blocks are read from files each time, except metadata that open tables hold";
        block_size: u64 = 4096, mutable, honoured, "Approximate size of a data block in bytes, before compression";
        block_size_deviation: i32 = 10, mutable, honoured, "Percentage of a block that stays free if the next entry would overfill it; 0 if it is not from 0 to 100";
        block_restart_interval: i32 = 16, mutable, honoured, "Number of keys between restart points of a data block; below 1 it is 1";
        index_block_restart_interval: i32 = 1, mutable, honoured, "Number of keys between restart points of an index block; below 1 it is 1";
        metadata_block_size: u64 = 4096, mutable, honoured, "Approximate size in bytes of an index or filter partition";
        partition_filters: bool = false, mutable, honoured, "Partition filters like the index";
        decouple_partitioned_filters: bool = true, mutable, kept, "Cut filter partitions independently of index partitions";
        optimize_filters_for_memory: bool = true, mutable, kept, "Fit filter sizes to the allocator's size classes";
        use_delta_encoding: bool = true, mutable, honoured, "Share key prefixes within data blocks";
        filter_policy: Object = Object::NONE, fixed, honoured, "Filter of new tables: bloomfilter:10, ribbonfilter:10:-1, or none";
        user_defined_index_factory: Object = Object::NONE, fixed, kept, "Factory of an additional user-defined index";
        use_udi_as_primary_index: bool = false, mutable, kept, "Read through the user-defined index instead of the built-in one";
        fail_if_no_udi_on_open: bool = false, mutable, kept, "Refuse tables without the user-defined index";
        whole_key_filtering: bool = true, mutable, honoured, "Add whole keys to filters";
        detect_filter_construct_corruption: bool = false, mutable, honoured, "Check filters while they are built";
        verify_compression: bool = false, mutable, honoured, "Decompress each block after compression and compare it";
        read_amp_bytes_per_bit: u32 = 0, mutable, kept, "Bytes per bit of the bitmap that estimates read amplification; 0 disables it";
        format_version: u32 = 6, mutable, honoured, "Format version of new tables; RocksDB 11.8 defaults to 7, which fewer releases read", in 0..=7;
        separate_key_value_in_data_block: bool = false, mutable, honoured, "Store the values of a data block behind its keys";
        uniform_cv_threshold: f64 = -1.0, mutable, honoured, "Largest coefficient of variation of key distances at which an index block is marked uniform; negative for never";
        enable_index_compression: bool = true, mutable, honoured, "Compress index blocks";
        block_align: bool = false, mutable, honoured, "Align data blocks to their size";
        super_block_alignment_size: usize = 0, mutable, honoured, "Size in bytes of super blocks, whose boundaries no data block crosses; 0 for none";
        super_block_alignment_space_overhead_ratio: usize = 128, mutable, honoured, "Super block size divided by the limit on padding before a block; 0 for no padding";
        index_shortening: IndexShortening = IndexShortening::ShortenSeparators, mutable, honoured, "Index keys that are shortened";
        max_auto_readahead_size: usize = 256 << 10, mutable, honoured, "Maximum bytes of an iterator's automatic readahead";
        prepopulate_block_cache: PrepopulateBlockCache = PrepopulateBlockCache::Disable, mutable, honoured, "Put blocks into the cache as they are written";
        initial_auto_readahead_size: usize = 8 << 10, mutable, honoured, "Bytes of an iterator's first automatic readahead";
        num_file_reads_for_auto_readahead: u64 = 2, mutable, honoured, "Number of sequential reads after which an iterator's automatic readahead starts";
        block_cache: Cache = Cache::default(), fixed, honoured, "Cache for blocks, shared by all column families: a size, or properties with the capacity";
    }
    retired {
        "hash_index_allow_collision", "index_per_partition", "reserve_table_builder_memory",
        "reserve_table_reader_memory", "skip_table_builder_flush", "block_cache_compressed",
    }
    aliases {}
}
