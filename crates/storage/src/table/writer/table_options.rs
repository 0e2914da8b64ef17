//! Options of new tables: a column family's options in the terms of the table builder.
//!
//! In: a column family's options and the table's place. Out: [`TableOptions`], or an error that
//! names the option.

use karst_base::error::{Error, Result};
use karst_base::options::{ColumnFamilyOptions, FamilyConfig};
use karst_format::checksum::ChecksumType;
use karst_format::compression::CompressionType;
use karst_format::filter::FilterPolicy;
use karst_format::index::IndexType;
use karst_format::options::choice::{
    Checksum, CompactionStyle, Compression, DataBlockIndexType, IndexShortening as Shortening,
};
use karst_format::options::nested::CompressionOptions;
use karst_format::table_builder::{IndexShortening, TableIdentity, TableOptions};
use std::path::PathBuf;

/// The table's place and purpose, as far as its options depend on them.
#[derive(Clone, Debug, PartialEq)]
pub struct TablePlace {
    /// The level it is written for.
    pub level: usize,
    /// True if it is made from memtables.
    pub flush: bool,
    /// True if no table below the output level has keys in its range; filters may then be omitted,
    /// and the last level's compression is used.
    pub bottommost: bool,
    /// The level that L0 is compacted into: `compression_per_level[1]` is for this one.
    pub base_level: usize,
    /// Compression and its options, overriding the family's.
    pub compression: Option<(Compression, CompressionOptions)>,
    /// Path of a table written outside of a database for ingestion: the run's only table.
    pub external: Option<PathBuf>,
}

impl TablePlace {
    /// A table made from memtables.
    pub fn flush() -> TablePlace {
        TablePlace { flush: true, ..TablePlace::in_level(0) }
    }

    /// A table of a level that is not the last one in use.
    pub fn in_level(level: usize) -> TablePlace {
        TablePlace {
            level,
            flush: false,
            bottommost: false,
            base_level: 1,
            compression: None,
            external: None,
        }
    }

    /// A table written for ingestion at an unknown level.
    ///
    /// Compat: the compression is that of the last level, the level is unknown, and tables may be
    /// below.
    pub fn external(file: PathBuf, family: &ColumnFamilyOptions) -> TablePlace {
        let bottommost = family.bottommost_compression;
        let (compression, options) = match (bottommost, family.compression_per_level.last()) {
            (Compression::Disable, Some(last)) => (*last, &family.compression_opts),
            (Compression::Disable, None) => (family.compression, &family.compression_opts),
            _ if family.bottommost_compression_opts.enabled => {
                (bottommost, &family.bottommost_compression_opts)
            }
            _ => (bottommost, &family.compression_opts),
        };
        let compression = Some((compression, options.clone()));
        TablePlace { compression, external: Some(file), ..TablePlace::flush() }
    }

    fn compression(&self, family: &ColumnFamilyOptions) -> Compression {
        if let Some((given, _)) = self.compression {
            return given;
        }
        match family.compression_per_level.as_slice() {
            _ if self.uses_bottommost_options() && family.bottommost_compression != Compression::Disable => {
                family.bottommost_compression
            }
            [] => family.compression,
            // Compat: the first entry is for L0, the second for the base level; the last one for
            // all levels below.
            per_level => {
                let index = match self.level {
                    0 => 0,
                    level => (level + 1).saturating_sub(self.base_level),
                };
                per_level[index.min(per_level.len() - 1)]
            }
        }
    }

    fn uses_bottommost_options(&self) -> bool {
        self.bottommost && !self.flush
    }
}

/// Returns the compression options of a table.
fn compression_options<'a>(family: &'a ColumnFamilyOptions, place: &'a TablePlace) -> &'a CompressionOptions {
    match &place.compression {
        Some((_, given)) => given,
        None if place.uses_bottommost_options() && family.bottommost_compression_opts.enabled => {
            &family.bottommost_compression_opts
        }
        None => &family.compression_opts,
    }
}

/// Returns the number of threads that compress a table's blocks.
pub(super) fn compression_threads(config: &FamilyConfig, place: &TablePlace) -> u32 {
    compression_options(&config.options, place).parallel_threads.max(1)
}

/// Returns the level that selects the filter a Ribbon policy builds.
///
/// Compat: a flush is level -1. A table written outside of a database has none, nor has one of a
/// family without levels.
fn level_of_filters(family: &ColumnFamilyOptions, place: &TablePlace) -> Option<i32> {
    match family.compaction_style {
        CompactionStyle::Fifo | CompactionStyle::None => None,
        _ if place.external.is_some() => None,
        _ if place.flush => Some(-1),
        _ => i32::try_from(place.level).ok(),
    }
}

/// Returns the options of a table in a column family.
pub fn table_options(
    config: &FamilyConfig,
    place: &TablePlace,
    identity: TableIdentity,
) -> Result<TableOptions> {
    let family = &config.options;
    let tables = &family.table_factory.block_based;
    let bytes = |name: &str, n: u64| {
        usize::try_from(n).map_err(|_| Error::invalid_argument(format!("option {name}: {n} is too large")))
    };
    let compression = place.compression(family);
    let compression_options = compression_options(family, place);
    let filter_policy = match tables.filter_policy.text() {
        None => None,
        // Compat: a key that is looked up down to the last level is expected to be there.
        Some(_) if place.bottommost && family.optimize_filters_for_hits => None,
        Some(text) => FilterPolicy::from_option_string(text)
            .map_err(|e| Error::invalid_argument(format!("option filter_policy: {}", e.what)))?,
    };
    let index_type = index_type(tables.index_type.number())?;
    Ok(TableOptions {
        comparator: config.comparator.clone(),
        // Compat: RocksDB takes these for the nearest sensible ones too.
        block_bytes: bytes("block_size", tables.block_size.max(1))?,
        block_size_deviation_percent: match tables.block_size_deviation {
            percent @ 0..=100 => percent as usize,
            _ => 0,
        },
        restart_interval: usize::try_from(tables.block_restart_interval.max(1)).unwrap_or(1),
        index_restart_interval: usize::try_from(tables.index_block_restart_interval.max(1)).unwrap_or(1),
        share_prefixes: tables.use_delta_encoding,
        align_blocks: tables.block_align,
        super_block_bytes: tables.super_block_alignment_size,
        super_block_overhead_ratio: tables.super_block_alignment_space_overhead_ratio,
        format_version: tables.format_version,
        checksum: checksum_type(tables.checksum)?,
        compression: compression_type(compression)?,
        // Compat: 32767 stands for the algorithm's own default.
        compression_level: Some(compression_options.level).filter(|level| *level != 32767),
        max_dictionary_bytes: compression_options.max_dict_bytes as usize,
        max_dictionary_buffer_bytes: bytes(
            "max_dict_buffer_bytes",
            compression_options.max_dict_buffer_bytes,
        )?,
        zstd_max_train_bytes: compression_options.zstd_max_train_bytes as usize,
        use_zstd_dict_trainer: compression_options.use_zstd_dict_trainer,
        sample_for_compression: family.sample_for_compression,
        keep_blocks: false,
        verify_compression: tables.verify_compression,
        verify_filters: tables.detect_filter_construct_corruption,
        compress_index: tables.enable_index_compression,
        index_type,
        index_shortening: match tables.index_shortening {
            Shortening::NoShortening => IndexShortening::NoShortening,
            Shortening::ShortenSeparators => IndexShortening::ShortenSeparators,
            Shortening::ShortenSeparatorsAndSuccessor => IndexShortening::ShortenSeparatorsAndSuccessor,
        },
        delta_encode_handles: !tables.block_align,
        metadata_block_bytes: bytes("metadata_block_size", tables.metadata_block_size.max(1))?,
        data_block_hash_ratio: match tables.data_block_index_type {
            DataBlockIndexType::BinarySearch => None,
            // Not supported, because a lookup key has another timestamp than the entry, and so
            // another hash.
            DataBlockIndexType::BinaryAndHash if config.comparator.timestamp_size() > 0 => None,
            // Compat: RocksDB omits the hash index here too.
            DataBlockIndexType::BinaryAndHash if config.comparator.different_bytes_may_be_equal() => None,
            DataBlockIndexType::BinaryAndHash => Some(tables.data_block_hash_table_util_ratio),
        },
        separate_values: tables.separate_key_value_in_data_block,
        property_collectors: config.collectors.iter().map(|factory| factory.name().to_owned()).collect(),
        uniform_cv_threshold: tables.uniform_cv_threshold,
        filter_policy,
        // Compat: the filter is partitioned only if the index is.
        partition_filters: tables.partition_filters && index_type == IndexType::TwoLevelIndexSearch,
        whole_key_filtering: tables.whole_key_filtering,
        prefix_extractor: config.prefix_extractor.clone(),
        merge_operator_name: config.merge_operator.as_ref().map(|operator| operator.name().to_owned()),
        level: level_of_filters(family, place),
        external: place.external.is_some(),
        identity,
    })
}

pub(super) fn compression_type(choice: Compression) -> Result<CompressionType> {
    let known = CompressionType::from_u8(choice.number());
    known.map_err(|_| {
        Error::invalid_argument(format!("option compression: {} cannot be written", choice.name()))
    })
}

fn checksum_type(choice: Checksum) -> Result<ChecksumType> {
    let known = ChecksumType::from_u8(choice.number());
    known.ok_or_else(|| {
        Error::invalid_argument(format!("option checksum: {} cannot be written", choice.name()))
    })
}

fn index_type(number: u8) -> Result<IndexType> {
    let known = IndexType::from_u32(number.into());
    known.ok_or_else(|| {
        Error::invalid_argument(format!("option index_type: number {number} cannot be written"))
    })
}
