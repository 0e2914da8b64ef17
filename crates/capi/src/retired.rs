//! Functions that RocksDB 7.8 exported and a later release removed from `rocksdb/c.h`. A program
//! linked with `librocksdb.so.7.8` does not start without them.
//!
//! They are exported but in no header, because a program compiled against a later one cannot name
//! them. Functions of options that RocksDB has removed remember their value for the getter, and are
//! named on stderr when a database is opened, like other settings without effect.

use crate::boundary::*;
use crate::cache::Cache;
use crate::call_options::Read;
use crate::handle::Database;
use crate::options::{CNumber, FilterPolicy, OptionsHandle, TableHandle};
use crate::signature::Signature;
use libc::{c_char, c_int, c_uchar};

const ACCESS_HINT: &str = "rocksdb_options_set_access_hint_on_compaction_start";
const COMPRESSED_CACHE: &str = "rocksdb_block_based_options_set_block_cache_compressed";
const MAINTAINED: &str = "rocksdb_options_set_max_write_buffer_number_to_maintain";
const UNCHECKED_SIZES: &str = "rocksdb_options_set_skip_checking_sst_file_sizes_on_db_open";

unsafe fn set(options: *mut OptionsHandle, name: &'static str, value: impl CNumber) {
    if let Some(options) = unsafe { options.as_mut() } {
        options.kept.set(name, value.number());
    }
}

/// Returns the set value, or RocksDB's default.
unsafe fn get<C: CNumber>(options: *const OptionsHandle, name: &str, default: C) -> C {
    let set = unsafe { options.as_ref() }.filter(|options| options.kept.has(name));
    set.map_or(default, |options| C::of(options.kept.get(name)))
}

mod served {
    use super::*;
    capi! {
        // `format_version` alone selects legacy Bloom filters, as in later releases.
        call rocksdb_filterpolicy_create_bloom_format(bits: f64, _original_format: bool) -> *mut FilterPolicy { give(FilterPolicy::bloom(bits)) }
        call rocksdb_filterpolicy_create_ribbon_format(bits: f64, bloom_before_level: c_int) -> *mut FilterPolicy { give(FilterPolicy::ribbon(bits, bloom_before_level)) }
        // Compat: an iterator that is managed fails, as in RocksDB 7.8.
        call rocksdb_readoptions_set_managed(options: *mut Read, managed: c_uchar) {
            if let Some(options) = options.as_mut() { options.set_managed(managed != 0) }
        }
    }
}

mod kept {
    use super::*;
    capi! {
        call rocksdb_block_based_options_set_block_cache_compressed(options: *mut TableHandle, cache: *const Cache) {
            if let (Some(options), false) = (options.as_mut(), cache.is_null()) { options.kept.set(COMPRESSED_CACHE, 1_u8.number()) }
        }
        call rocksdb_options_get_access_hint_on_compaction_start(options: *const OptionsHandle) -> c_int { get(options, ACCESS_HINT, 1) }
        call rocksdb_options_get_max_write_buffer_number_to_maintain(options: *const OptionsHandle) -> c_int { get(options, MAINTAINED, 0) }
        call rocksdb_options_get_skip_checking_sst_file_sizes_on_db_open(options: *const OptionsHandle) -> c_uchar { get(options, UNCHECKED_SIZES, 0) }
        call rocksdb_options_set_access_hint_on_compaction_start(options: *mut OptionsHandle, hint: c_int) { set(options, ACCESS_HINT, hint) }
        call rocksdb_options_set_max_write_buffer_number_to_maintain(options: *mut OptionsHandle, number: c_int) { set(options, MAINTAINED, number) }
        call rocksdb_options_set_skip_checking_sst_file_sizes_on_db_open(options: *mut OptionsHandle, skip: c_uchar) { set(options, UNCHECKED_SIZES, skip) }
    }
}

mod refused {
    use super::*;
    capi! {
        // Has no errptr; RocksDB's function reports only in LOG that it did not delete a file.
        call rocksdb_delete_file(_db: *const Database, _name: *const c_char) {
            say_once("rocksdb_delete_file", "not supported, the file stays; rocksdb_delete_file_in_range deletes files");
        }
    }
}

/// Functions that behave like RocksDB 7.8's.
pub(crate) const SERVED: &[Signature] = served::NAMES;
/// Functions that only remember their value.
pub(crate) const KEPT: &[Signature] = kept::NAMES;
/// Functions that do nothing.
pub(crate) const REFUSED: &[Signature] = refused::NAMES;
