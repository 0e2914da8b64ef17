//! Options of a table to be written.
//!
//! In: settings named after RocksDB's options. Out: [`TableOptions`], checked by the builder;
//! errors that name the option. Invariant: every option has an effect on the file.

use crate::checksum::ChecksumType;
use crate::comparator::Comparator;
use crate::compression::CompressionType;
use crate::corruption::Corruption;
use crate::filter::FilterPolicy;
use crate::footer::LATEST_FORMAT_VERSION;
use crate::index::IndexType;
use crate::properties::TableProperties;
use crate::slice_transform::PrefixExtractor;
use std::fmt;

/// Choice of index keys between the last key of a block and the first key of the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum IndexShortening {
    /// The last key of the block, whole.
    NoShortening,
    /// A short key between the two.
    #[default]
    ShortenSeparators,
    /// A short key between the two, and a short key behind the last key of the table.
    ShortenSeparatorsAndSuccessor,
}

/// Origin of a table; all fields are stored in its properties.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableIdentity {
    /// Identity of the database.
    pub db_id: String,
    /// Identity of the session; with the file number it makes the table unique.
    pub db_session_id: String,
    /// Name of the host.
    pub db_host_id: String,
    /// Number of the file; 0 is unknown.
    pub file_number: u64,
    /// Id of the column family; `None` is unknown.
    pub column_family_id: Option<u32>,
    /// Name of the column family.
    pub column_family_name: String,
    /// Time at which the oldest data was written, in seconds since 1970; 0 is unknown.
    pub creation_time: u64,
    /// Time at which the oldest key was written, in seconds since 1970; 0 is unknown.
    pub oldest_key_time: u64,
    /// Time at which the newest key was written, in seconds since 1970; 0 is unknown.
    pub newest_key_time: u64,
    /// Time at which the file is made, in seconds since 1970; 0 is unknown.
    pub file_creation_time: u64,
    /// A random number for this file, which makes the checksums of format_version 6 and later
    /// differ from those of every other file. 0 derives one from the fields above.
    pub context_seed: u32,
}

impl Default for TableIdentity {
    fn default() -> Self {
        TableIdentity {
            db_id: String::new(),
            db_session_id: String::new(),
            db_host_id: String::new(),
            file_number: 0,
            column_family_id: Some(0),
            column_family_name: "default".to_owned(),
            creation_time: 0,
            oldest_key_time: 0,
            newest_key_time: 0,
            file_creation_time: 0,
            context_seed: 0,
        }
    }
}

/// Options of a table to be written. Defaults are RocksDB's, except for the format_version (6,
/// which more RocksDB releases read than 7).
#[derive(Debug, Clone)]
pub struct TableOptions {
    /// Order of the keys.
    pub comparator: Comparator,
    /// Approximate bytes of a data block before compression (`block_size`).
    pub block_bytes: usize,
    /// Percentage of `block_bytes` by which a block may be too small when it is closed because the
    /// next entry would make it too large (`block_size_deviation`).
    pub block_size_deviation_percent: usize,
    /// Number of entries per restart point in data blocks (`block_restart_interval`).
    pub restart_interval: usize,
    /// True if keys in data blocks omit the bytes shared with the previous key
    /// (`use_delta_encoding`).
    pub share_prefixes: bool,
    /// True if each data block takes up a multiple of `block_bytes`, and holds no more than that
    /// (`block_align`).
    pub align_blocks: bool,
    /// Size in bytes of super blocks, whose borders no data block crosses if little padding avoids
    /// that; 0 for none (`super_block_alignment_size`).
    pub super_block_bytes: usize,
    /// Padding before a block is less than one part in this many of a super block; 0 for no padding
    /// (`super_block_alignment_space_overhead_ratio`).
    pub super_block_overhead_ratio: usize,
    /// Number of entries per restart point in index blocks (`index_block_restart_interval`).
    pub index_restart_interval: usize,
    /// The format_version, 2 to 7.
    pub format_version: u32,
    /// Checksum of all blocks.
    pub checksum: ChecksumType,
    /// Compression of data and index blocks.
    pub compression: CompressionType,
    /// Compression level of the algorithm; `None` for its default.
    pub compression_level: Option<i32>,
    /// Maximum bytes of the dictionary made from the data; 0 for no dictionary (`max_dict_bytes`).
    pub max_dictionary_bytes: usize,
    /// Maximum bytes of data held back until the dictionary is made; 0 for the whole file
    /// (`max_dict_buffer_bytes`).
    pub max_dictionary_buffer_bytes: usize,
    /// Bytes of data that ZSTD makes its dictionary from; 0 takes the dictionary directly from the
    /// data (`zstd_max_train_bytes`).
    pub zstd_max_train_bytes: usize,
    /// True if that dictionary is trained; otherwise it consists of the samples themselves, up to
    /// its maximum size (`use_zstd_dict_trainer`).
    pub use_zstd_dict_trainer: bool,
    /// Sampling rate: one data block in this many is also compressed with a fast and a slow
    /// algorithm, for the properties only; 0 for none (`sample_for_compression`).
    pub sample_for_compression: u64,
    /// True if the contents of blocks are kept for
    /// [`TableBuilder::take_blocks`](super::TableBuilder::take_blocks).
    pub keep_blocks: bool,
    /// True if each compressed block is decompressed again and compared (`verify_compression`).
    pub verify_compression: bool,
    /// True if each filter is verified when it is built: the hashes of its keys must equal those
    /// added, and all must match (`detect_filter_construct_corruption`).
    pub verify_filters: bool,
    /// True if index blocks are compressed (`enable_index_compression`).
    pub compress_index: bool,
    /// Kind of index. Hash indexes need a prefix extractor.
    pub index_type: IndexType,
    /// Choice of index keys (`index_shortening`).
    pub index_shortening: IndexShortening,
    /// True if handles in index blocks are delta-encoded, from format_version 4 on. (RocksDB does
    /// so unless `block_align` is set.)
    pub delta_encode_handles: bool,
    /// Approximate bytes of a partition of index or filter (`metadata_block_size`).
    pub metadata_block_bytes: usize,
    /// Keys per bucket of the hash index in data blocks, or `None` for no hash index
    /// (`data_block_hash_table_util_ratio`).
    pub data_block_hash_ratio: Option<f64>,
    /// True if data blocks store values apart from keys; only RocksDB 11 and later read that.
    pub separate_values: bool,
    /// Names of the table's property collectors, for its properties.
    pub property_collectors: Vec<String>,
    /// Threshold of evenness at which an index block is marked as uniform: standard deviation of
    /// the distances between restart points, divided by their mean; negative for never.
    pub uniform_cv_threshold: f64,
    /// Kind of filter to build, if any.
    pub filter_policy: Option<FilterPolicy>,
    /// True if the filter is partitioned. RocksDB then requires a two-level index.
    pub partition_filters: bool,
    /// True if the filter holds whole keys.
    pub whole_key_filtering: bool,
    /// Extractor of the prefixes for the filter and for hash indexes.
    pub prefix_extractor: Option<PrefixExtractor>,
    /// Name of the merge operator, for the properties.
    pub merge_operator_name: Option<String>,
    /// Level that the table is written to, -1 for a flush; some filter policies depend on it.
    pub level: Option<i32>,
    /// True for a table made outside a database, for ingestion.
    pub external: bool,
    /// Origin of the table.
    pub identity: TableIdentity,
}

impl Default for TableOptions {
    fn default() -> Self {
        TableOptions {
            comparator: Comparator::Bytewise,
            block_bytes: 4096,
            block_size_deviation_percent: 10,
            restart_interval: 16,
            share_prefixes: true,
            align_blocks: false,
            super_block_bytes: 0,
            super_block_overhead_ratio: 128,
            index_restart_interval: 1,
            format_version: 6,
            checksum: ChecksumType::Xxh3,
            compression: CompressionType::None,
            compression_level: None,
            max_dictionary_bytes: 0,
            max_dictionary_buffer_bytes: 0,
            zstd_max_train_bytes: 0,
            use_zstd_dict_trainer: true,
            sample_for_compression: 0,
            keep_blocks: false,
            verify_compression: false,
            verify_filters: false,
            compress_index: true,
            index_type: IndexType::BinarySearch,
            index_shortening: IndexShortening::default(),
            delta_encode_handles: true,
            metadata_block_bytes: 4096,
            data_block_hash_ratio: None,
            separate_values: false,
            uniform_cv_threshold: -1.0,
            property_collectors: Vec::new(),
            filter_policy: None,
            partition_filters: false,
            whole_key_filtering: true,
            prefix_extractor: None,
            merge_operator_name: None,
            level: None,
            external: false,
            identity: TableIdentity::default(),
        }
    }
}

impl TableOptions {
    /// Checks that a table can be written with these options.
    ///
    /// # Errors
    /// [`TableBuildError::BadOptions`] if they contradict each other, or exceed the limits of the
    /// format.
    pub fn check(&self) -> Result<(), TableBuildError> {
        let refuse = |why: String| Err(TableBuildError::BadOptions(why));
        if !(2..=LATEST_FORMAT_VERSION).contains(&self.format_version) {
            return refuse(format!("format_version {} cannot be written", self.format_version));
        }
        if self.block_bytes == 0 || self.metadata_block_bytes == 0 {
            return refuse("blocks of 0 bytes".into());
        }
        if self.block_size_deviation_percent > 100 {
            return refuse(format!("block_size_deviation of {} percent", self.block_size_deviation_percent));
        }
        if self.restart_interval == 0 || self.index_restart_interval == 0 {
            return refuse("a restart interval of 0".into());
        }
        if self.index_type == IndexType::HashSearch && self.prefix_extractor.is_none() {
            return refuse("a hash index needs a prefix extractor".into());
        }
        if self.partition_filters && self.index_type != IndexType::TwoLevelIndexSearch {
            return refuse("partitioned filters need a two-level index".into());
        }
        if self.align_blocks
            && (self.compression != CompressionType::None || !self.block_bytes.is_power_of_two())
        {
            return refuse("aligned blocks have a power of two of bytes, and no compression".into());
        }
        if self.super_block_bytes != 0 && !self.super_block_bytes.is_power_of_two() {
            return refuse(format!("super blocks of {} bytes", self.super_block_bytes));
        }
        if self.data_block_hash_ratio.is_some() && self.comparator.different_bytes_may_be_equal() {
            return refuse(
                "a hash index in data blocks needs a comparator that equates equal bytes only".into(),
            );
        }
        if self.compression == CompressionType::ZstdNotFinal {
            return refuse("ZSTDNotFinal is read, not written; use ZSTD".into());
        }
        Ok(())
    }

    /// Returns the base of the context checksums; 0 before format_version 6.
    pub(super) fn context_base(&self) -> u32 {
        if self.format_version < 6 {
            return 0;
        }
        let identity = &self.identity;
        let base = match identity.context_seed {
            0 => {
                let name = format!(
                    "{}\0{}\0{}\0{}",
                    identity.db_id, identity.db_session_id, identity.file_number, identity.file_creation_time
                );
                xxhash_rust::xxh3::xxh3_64(name.as_bytes()) as u32
            }
            seed => seed,
        };
        base.max(1)
    }

    /// Sets all `properties` that do not depend on the data.
    pub(super) fn describe(&self, properties: &mut TableProperties) {
        let identity = &self.identity;
        properties.orig_file_number = identity.file_number;
        properties.db_id.clone_from(&identity.db_id);
        properties.db_session_id.clone_from(&identity.db_session_id);
        properties.db_host_id.clone_from(&identity.db_host_id);
        if let Some(id) = identity.column_family_id {
            properties.column_family_id = id.into();
        }
        properties.column_family_name.clone_from(&identity.column_family_name);
        properties.creation_time = identity.creation_time;
        properties.oldest_key_time = identity.oldest_key_time;
        properties.newest_key_time = identity.newest_key_time;
        properties.file_creation_time = identity.file_creation_time;
        properties.format_version = self.format_version.into();
        properties.comparator_name = self.comparator.name().to_owned();
        let none = || "nullptr".to_owned();
        properties.merge_operator_name = self.merge_operator_name.clone().unwrap_or_else(none);
        properties.prefix_extractor_name =
            self.prefix_extractor.as_ref().map_or_else(none, |e| e.name().into_owned());
        properties.property_collectors_names = format!("[{}]", self.property_collectors.join(","));
        properties.filter_policy_name =
            self.filter_policy.as_ref().map_or_else(String::new, |p| p.property_name().to_owned());
        properties.compression_name = self.compression.name().to_owned();
        properties.compression_options = format!(
            "window_bits=-14; level={}; strategy=0; max_dict_bytes={}; zstd_max_train_bytes={}; enabled=0; \
             max_dict_buffer_bytes={}; use_zstd_dict_trainer={}; ",
            self.compression_level.unwrap_or(32767),
            self.max_dictionary_bytes,
            self.zstd_max_train_bytes,
            self.max_dictionary_buffer_bytes,
            u8::from(self.use_zstd_dict_trainer)
        );
        properties.data_block_restart_interval = self.restart_interval as u64;
        properties.index_block_restart_interval = self.effective_index_restart_interval() as u64;
        properties.separate_key_value_in_data_block = self.separate_values.into();
        properties.set_index_type(self.index_type);
        properties.set_filtering(self.whole_key_filtering, self.prefix_extractor.is_some());
        if self.partition_filters {
            properties.set_decoupled_partitioned_filters();
        }
        if self.external {
            properties.set_external_file();
        }
    }

    /// Returns the bytes of samples that a dictionary is trained on, or `None` if it is not
    /// trained.
    pub(super) fn training_bytes(&self) -> Option<usize> {
        let trains = self.compression == CompressionType::Zstd && self.use_zstd_dict_trainer;
        Some(self.zstd_max_train_bytes).filter(|bytes| trains && *bytes > 0)
    }

    /// Returns the exclusive upper limit of the padding before a data block, in bytes; 0 for no
    /// padding.
    pub(super) fn super_block_padding_limit(&self) -> usize {
        self.super_block_bytes.checked_div(self.super_block_overhead_ratio).unwrap_or(0)
    }

    /// Returns the restart interval of the index: 1 for a hash index, which refers to entries by
    /// restart point.
    pub(super) fn effective_index_restart_interval(&self) -> usize {
        if self.index_type == IndexType::HashSearch { 1 } else { self.index_restart_interval }
    }
}

/// Reason for which a table cannot be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TableBuildError {
    /// Options that contradict each other or RocksDB.
    BadOptions(String),
    /// A key that is no internal key.
    BadKey(Corruption),
    /// A key that is not greater than the previous one.
    OutOfOrder {
        /// The rejected key.
        key: Vec<u8>,
        /// The previous key.
        after: Vec<u8>,
    },
    /// An entry that cannot be added by this function or at this point.
    Misplaced(&'static str),
    /// Bytes that changed in memory while the table was built, or that a library compressed
    /// wrongly. The table must not be used.
    Damaged(String),
}

impl fmt::Display for TableBuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TableBuildError::BadOptions(why) => write!(f, "table options: {why}"),
            TableBuildError::BadKey(c) => c.fmt(f),
            TableBuildError::OutOfOrder { key, after } => {
                write!(f, "key {} added after {}", key.escape_ascii(), after.escape_ascii())
            }
            TableBuildError::Misplaced(what) => write!(f, "table builder was given {what}"),
            TableBuildError::Damaged(what) => write!(f, "table being built: {what}"),
        }
    }
}

impl std::error::Error for TableBuildError {}
