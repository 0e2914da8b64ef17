//! What kind of tables a column family gets: its options in the terms of the table builder.
//!
//! In: a column family's options and the level. Out: [`TableOptions`], or an error that names the option.

use crate::error::{Error, Result};
use crate::options::FamilyConfig;
use karst_format::checksum::ChecksumType;
use karst_format::compression::CompressionType;
use karst_format::filter::FilterPolicy;
use karst_format::index::IndexType;
use karst_format::options::choice::{
    Checksum, Compression, DataBlockIndexType, IndexShortening as Shortening,
};
use karst_format::table_builder::{IndexShortening, TableIdentity, TableOptions};

/// Options of a table of `level` in a column family.
pub(super) fn table_options(
    config: &FamilyConfig,
    level: usize,
    identity: TableIdentity,
) -> Result<TableOptions> {
    let family = &config.options;
    let tables = &family.table_factory.block_based;
    let bytes = |name: &str, n: u64| {
        usize::try_from(n).map_err(|_| Error::invalid_argument(format!("option {name}: {n} is too large")))
    };
    let last_level = level + 1 >= usize::try_from(family.num_levels).unwrap_or(1);
    let compression = match family.compression_per_level.as_slice() {
        _ if last_level && family.bottommost_compression != Compression::Disable => {
            family.bottommost_compression
        }
        [] => family.compression,
        // Compat: the last entry counts for all levels below.
        per_level => per_level[level.min(per_level.len() - 1)],
    };
    let compression_options = match last_level && family.bottommost_compression_opts.enabled {
        true => &family.bottommost_compression_opts,
        false => &family.compression_opts,
    };
    let filter_policy = match tables.filter_policy.text() {
        None => None,
        Some(text) => FilterPolicy::from_option_string(text)
            .map_err(|e| Error::invalid_argument(format!("option filter_policy: {}", e.what)))?,
    };
    Ok(TableOptions {
        comparator: config.comparator.clone(),
        block_bytes: bytes("block_size", tables.block_size)?,
        block_size_deviation_percent: usize::try_from(tables.block_size_deviation).unwrap_or(0),
        restart_interval: usize::try_from(tables.block_restart_interval).unwrap_or(1),
        index_restart_interval: usize::try_from(tables.index_block_restart_interval).unwrap_or(1),
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
        compress_index: tables.enable_index_compression,
        index_type: index_type(tables.index_type.number())?,
        index_shortening: match tables.index_shortening {
            Shortening::NoShortening => IndexShortening::NoShortening,
            Shortening::ShortenSeparators => IndexShortening::ShortenSeparators,
            Shortening::ShortenSeparatorsAndSuccessor => IndexShortening::ShortenSeparatorsAndSuccessor,
        },
        delta_encode_handles: !tables.block_align,
        metadata_block_bytes: bytes("metadata_block_size", tables.metadata_block_size)?,
        data_block_hash_ratio: match tables.data_block_index_type {
            DataBlockIndexType::BinarySearch => None,
            DataBlockIndexType::BinaryAndHash => Some(tables.data_block_hash_table_util_ratio),
        },
        separate_values: tables.separate_key_value_in_data_block,
        filter_policy,
        partition_filters: tables.partition_filters,
        whole_key_filtering: tables.whole_key_filtering,
        prefix_extractor: config.prefix_extractor.clone(),
        merge_operator_name: config.merge_operator.as_ref().map(|operator| operator.name().to_owned()),
        level: i32::try_from(level).ok(),
        external: false,
        identity,
    })
}

fn compression_type(choice: Compression) -> Result<CompressionType> {
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
