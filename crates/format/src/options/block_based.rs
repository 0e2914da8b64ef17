//! The options of block-based tables: section `[TableOptions/BlockBasedTable "name"]`.
use super::choice::{
    Checksum, DataBlockIndexType, IndexBlockSearchType, IndexShortening, IndexType, PrepopulateBlockCache,
};
use super::nested::MetadataCacheOptions;
use super::value::{Cache, Object};

option_table! {
    /// Options for writing, reading and caching block-based tables.
    BlockBasedTableOptions in BlockBasedTable {
        flush_block_policy_factory: Object = Object::new("FlushBlockBySizePolicyFactory"), fixed, kept, "What decides that a data block is full";
        cache_index_and_filter_blocks: bool = false, mutable, honoured, "Keep indexes and filters in the block cache instead of with the open table";
        cache_index_and_filter_blocks_with_high_priority: bool = true, mutable, honoured, "Cached indexes and filters outlive data blocks";
        pin_l0_filter_and_index_blocks_in_cache: bool = false, mutable, honoured, "Pin the metadata of L0 tables in the cache";
        pin_top_level_index_and_filter: bool = true, mutable, honoured, "Pin the top level of partitioned metadata in the cache";
        metadata_cache_options: MetadataCacheOptions = MetadataCacheOptions::default(), fixed, honoured, "What is pinned, by kind of metadata";
        index_type: IndexType = IndexType::BinarySearch, mutable, honoured, "How new tables are indexed";
        index_block_search_type: IndexBlockSearchType = IndexBlockSearchType::Binary, mutable, kept, "How index blocks are searched";
        data_block_index_type: DataBlockIndexType = DataBlockIndexType::BinarySearch, mutable, honoured, "Whether new data blocks get a hash index";
        data_block_hash_table_util_ratio: f64 = 0.75, mutable, honoured, "Keys per bucket of that hash index", in 0.0..=f64::MAX;
        checksum: Checksum = Checksum::Xxh3, mutable, honoured, "The checksum behind new blocks";
        no_block_cache: bool = false, mutable, honoured, "Cache no blocks: each is read anew, but for metadata that open tables hold";
        block_size: u64 = 4096, mutable, honoured, "Uncompressed bytes of user data in a block, about", in 1..=u64::from(u32::MAX);
        block_size_deviation: i32 = 10, mutable, honoured, "Percent of a block left free rather than overfilled", in 0..=100;
        block_restart_interval: i32 = 16, mutable, honoured, "Keys between restart points of a data block", in 1..=i32::MAX;
        index_block_restart_interval: i32 = 1, mutable, honoured, "Keys between restart points of an index block", in 1..=i32::MAX;
        metadata_block_size: u64 = 4096, mutable, honoured, "Bytes of an index or filter partition, about", in 1..=u64::MAX;
        partition_filters: bool = false, mutable, honoured, "Partition filters as the index is";
        decouple_partitioned_filters: bool = true, mutable, kept, "Cut filter partitions independently of index partitions";
        optimize_filters_for_memory: bool = true, mutable, kept, "Size filters to what the allocator gives";
        use_delta_encoding: bool = true, mutable, honoured, "Share key prefixes within data blocks";
        filter_policy: Object = Object::NONE, fixed, honoured, "The filters of new tables: bloomfilter:10, ribbonfilter:10:-1, or none";
        user_defined_index_factory: Object = Object::NONE, fixed, kept, "A further index of one's own";
        use_udi_as_primary_index: bool = false, mutable, kept, "That index replaces the built-in one";
        fail_if_no_udi_on_open: bool = false, mutable, kept, "Refuse tables without that index";
        whole_key_filtering: bool = true, mutable, honoured, "Put whole keys into filters";
        detect_filter_construct_corruption: bool = false, mutable, honoured, "Check filters while they are built";
        verify_compression: bool = false, mutable, honoured, "Decompress what was compressed and compare";
        read_amp_bytes_per_bit: u32 = 0, mutable, kept, "Estimate read amplification, this many bytes a bit; 0 for not";
        format_version: u32 = 6, mutable, honoured, "The format of new tables; RocksDB 11.8 defaults to 7, which fewer releases read", in 0..=7;
        separate_key_value_in_data_block: bool = false, mutable, honoured, "Store the values of a data block behind its keys";
        uniform_cv_threshold: f64 = -1.0, mutable, honoured, "How even keys must lie for an index block to be marked uniform; negative for never";
        enable_index_compression: bool = true, mutable, honoured, "Compress index blocks";
        block_align: bool = false, mutable, honoured, "Align data blocks to their size";
        super_block_alignment_size: usize = 0, mutable, honoured, "Let no data block straddle a multiple of this many bytes; 0 for not";
        super_block_alignment_space_overhead_ratio: usize = 128, mutable, honoured, "Pad at most one byte in this many for it";
        index_shortening: IndexShortening = IndexShortening::ShortenSeparators, mutable, honoured, "Which index keys are shortened";
        max_auto_readahead_size: usize = 256 << 10, mutable, honoured, "Most bytes that an iterator reads ahead by itself";
        prepopulate_block_cache: PrepopulateBlockCache = PrepopulateBlockCache::Disable, mutable, honoured, "Put blocks into the cache as they are written";
        initial_auto_readahead_size: usize = 8 << 10, mutable, honoured, "Bytes of the first readahead that an iterator starts by itself";
        num_file_reads_for_auto_readahead: u64 = 2, mutable, honoured, "Sequential reads before an iterator reads ahead by itself";
        block_cache: Cache = Cache::default(), fixed, honoured, "The cache for blocks, of all column families together: a size, or properties with the capacity";
    }
    retired {
        "hash_index_allow_collision", "index_per_partition", "reserve_table_builder_memory",
        "reserve_table_reader_memory", "skip_table_builder_flush", "block_cache_compressed",
    }
    aliases {}
}
