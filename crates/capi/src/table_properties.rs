//! `rocksdb_table_properties_t`: a table's properties, for callbacks.
//!
//! The handle is the engine's own value, valid during the call; texts lie in it.

use crate::boundary::*;
use karstdb::format::TableProperties;
use libc::{c_char, c_uchar};

/// Name of the property in which RocksDB stores the times of sequence numbers.
const SEQNO_TO_TIME: &[u8] = b"rocksdb.seqno.time.map";

macro_rules! getters {
    (numbers { $($number:ident $number_field:ident;)* } texts { $($text:ident $text_field:ident;)* }) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $number(table: *const TableProperties) -> u64 {
                guard(stringify!($number), || unsafe { table.as_ref() }.map_or(0, |table| table.$number_field))
            }
        )*
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $text(table: *const TableProperties, size: *mut usize) -> *const c_char {
                guard(stringify!($text), || unsafe { text_of(table, size, |table| table.$text_field.as_bytes()) })
            }
        )*
        /// The getters of fields.
        pub(crate) const FIELDS: &[$crate::signature::Signature] = &[
            $($crate::signature::accessor!(get $number TableProperties u64),)*
            $($crate::signature::Signature {
                about: &[],
                head: concat!("call ", stringify!($text)),
                arguments: &[("table", "*const TableProperties"), ("size", "*mut usize")],
                returned: "*const c_char",
            },)*
        ];
    };
}

/// Returns bytes of a table's properties; empty for a null handle.
unsafe fn text_of(
    table: *const TableProperties,
    size: *mut usize,
    of: impl FnOnce(&TableProperties) -> &[u8],
) -> *const c_char {
    match unsafe { table.as_ref() } {
        Some(table) => unsafe { lend(of(table), size) },
        None => {
            unsafe { put(size, 0) };
            std::ptr::null()
        }
    }
}

/// Returns a user-collected property by its index; empty behind the last.
fn collected(table: &TableProperties, at: usize) -> (&[u8], &[u8]) {
    table.user_collected.iter().nth(at).map(|(key, value)| (&**key, &**value)).unwrap_or_default()
}

capi! {
    call rocksdb_table_properties_has_key_largest_seqno(table: *const TableProperties) -> c_uchar {
        table.as_ref().is_some_and(|table| table.key_largest_seqno != u64::MAX).into()
    }
    call rocksdb_table_properties_has_key_smallest_seqno(table: *const TableProperties) -> c_uchar {
        table.as_ref().is_some_and(|table| table.key_smallest_seqno != u64::MAX).into()
    }
    call rocksdb_table_properties_seqno_to_time_mapping(table: *const TableProperties, size: *mut usize) -> *const c_char {
        text_of(table, size, |table| table.user_collected.get(SEQNO_TO_TIME).map(Vec::as_slice).unwrap_or_default())
    }
    // 0: no collector that C can create adds readable properties, in RocksDB either.
    call rocksdb_table_properties_readable_properties_count(_table: *const TableProperties) -> usize { 0 }
    call rocksdb_table_properties_readable_properties_key_at(_table: *const TableProperties, _at: usize, size: *mut usize) -> *const c_char {
        lend_or_null(None, size)
    }
    call rocksdb_table_properties_readable_properties_value_at(_table: *const TableProperties, _at: usize, size: *mut usize) -> *const c_char {
        lend_or_null(None, size)
    }
    call rocksdb_table_properties_user_collected_properties_count(table: *const TableProperties) -> usize {
        table.as_ref().map_or(0, |table| table.user_collected.len())
    }
    call rocksdb_table_properties_user_collected_properties_key_at(table: *const TableProperties, at: usize, size: *mut usize) -> *const c_char {
        text_of(table, size, |table| collected(table, at).0)
    }
    call rocksdb_table_properties_user_collected_properties_value_at(table: *const TableProperties, at: usize, size: *mut usize) -> *const c_char {
        text_of(table, size, |table| collected(table, at).1)
    }
}

getters! {
    numbers {
        rocksdb_table_properties_column_family_id column_family_id;
        rocksdb_table_properties_creation_time creation_time;
        rocksdb_table_properties_data_block_restart_interval data_block_restart_interval;
        rocksdb_table_properties_data_size data_size;
        rocksdb_table_properties_external_sst_file_global_seqno_offset external_sst_file_global_seqno_offset;
        rocksdb_table_properties_fast_compression_estimated_data_size fast_compression_estimated_data_size;
        rocksdb_table_properties_file_creation_time file_creation_time;
        rocksdb_table_properties_filter_size filter_size;
        rocksdb_table_properties_fixed_key_len fixed_key_len;
        rocksdb_table_properties_format_version format_version;
        rocksdb_table_properties_index_block_restart_interval index_block_restart_interval;
        rocksdb_table_properties_index_key_is_user_key index_key_is_user_key;
        rocksdb_table_properties_index_partitions index_partitions;
        rocksdb_table_properties_index_size index_size;
        rocksdb_table_properties_index_value_is_delta_encoded index_value_is_delta_encoded;
        rocksdb_table_properties_key_largest_seqno key_largest_seqno;
        rocksdb_table_properties_key_smallest_seqno key_smallest_seqno;
        rocksdb_table_properties_newest_key_time newest_key_time;
        rocksdb_table_properties_num_data_blocks num_data_blocks;
        rocksdb_table_properties_num_data_blocks_compression_bypassed num_data_blocks_compression_bypassed;
        rocksdb_table_properties_num_data_blocks_compression_rejected num_data_blocks_compression_rejected;
        rocksdb_table_properties_num_deletions num_deletions;
        rocksdb_table_properties_num_entries num_entries;
        rocksdb_table_properties_num_filter_entries num_filter_entries;
        rocksdb_table_properties_num_merge_operands num_merge_operands;
        rocksdb_table_properties_num_range_deletions num_range_deletions;
        rocksdb_table_properties_num_uniform_blocks num_uniform_blocks;
        rocksdb_table_properties_oldest_key_time oldest_key_time;
        rocksdb_table_properties_orig_file_number orig_file_number;
        rocksdb_table_properties_raw_key_size raw_key_size;
        rocksdb_table_properties_raw_value_size raw_value_size;
        rocksdb_table_properties_separate_key_value_in_data_block separate_key_value_in_data_block;
        rocksdb_table_properties_slow_compression_estimated_data_size slow_compression_estimated_data_size;
        rocksdb_table_properties_tail_start_offset tail_start_offset;
        rocksdb_table_properties_top_level_index_size top_level_index_size;
        rocksdb_table_properties_udi_is_primary_index udi_is_primary_index;
        rocksdb_table_properties_user_defined_timestamps_persisted user_defined_timestamps_persisted;
    }
    texts {
        rocksdb_table_properties_column_family_name column_family_name;
        rocksdb_table_properties_comparator_name comparator_name;
        rocksdb_table_properties_compression_name compression_name;
        rocksdb_table_properties_compression_options compression_options;
        rocksdb_table_properties_db_host_id db_host_id;
        rocksdb_table_properties_db_id db_id;
        rocksdb_table_properties_db_session_id db_session_id;
        rocksdb_table_properties_filter_policy_name filter_policy_name;
        rocksdb_table_properties_merge_operator_name merge_operator_name;
        rocksdb_table_properties_prefix_extractor_name prefix_extractor_name;
        rocksdb_table_properties_property_collectors_names property_collectors_names;
    }
}
