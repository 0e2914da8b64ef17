//! `rocksdb_cuckoo_table_options_t`: remembered without effect. New tables stay block-based, and a
//! database with cuckoo tables cannot be opened.

use super::{CNumber, Kept, OptionsHandle};
use crate::boundary::*;
use libc::c_uchar;

/// `rocksdb_cuckoo_table_options_t`.
#[derive(Debug)]
pub struct CuckooHandle(Kept);

const RATIO: &str = "rocksdb_cuckoo_options_set_hash_ratio";
const DEPTH: &str = "rocksdb_cuckoo_options_set_max_search_depth";
const BLOCK: &str = "rocksdb_cuckoo_options_set_cuckoo_block_size";
const IDENTITY: &str = "rocksdb_cuckoo_options_set_identity_as_first_hash";
const MODULE: &str = "rocksdb_cuckoo_options_set_use_module_hash";

impl CuckooHandle {
    /// Returns RocksDB's defaults.
    fn new() -> Self {
        let mut kept = Kept::default();
        kept.set(RATIO, 0.9_f64.number());
        kept.set(DEPTH, 100_u32.number());
        kept.set(BLOCK, 5_u32.number());
        kept.set(IDENTITY, 0_u8.number());
        kept.set(MODULE, 1_u8.number());
        CuckooHandle(kept)
    }
}

unsafe fn set(options: *mut CuckooHandle, name: &'static str, value: impl CNumber) {
    if let Some(options) = unsafe { options.as_mut() } {
        options.0.set(name, value.number());
    }
}

unsafe fn get<C: CNumber + Default>(options: *const CuckooHandle, name: &str) -> C {
    unsafe { options.as_ref() }.map_or(C::default(), |options| C::of(options.0.get(name)))
}

capi! {
    call rocksdb_cuckoo_options_create() -> *mut CuckooHandle { give(CuckooHandle::new()) }
    call rocksdb_cuckoo_options_destroy(options: *mut CuckooHandle) { end(options); }
    call rocksdb_cuckoo_options_set_hash_ratio(options: *mut CuckooHandle, ratio: f64) { set(options, RATIO, ratio) }
    call rocksdb_cuckoo_options_set_hash_table_ratio(options: *mut CuckooHandle, ratio: f64) { set(options, RATIO, ratio) }
    call rocksdb_cuckoo_options_get_hash_table_ratio(options: *const CuckooHandle) -> f64 { get(options, RATIO) }
    call rocksdb_cuckoo_options_set_max_search_depth(options: *mut CuckooHandle, depth: u32) { set(options, DEPTH, depth) }
    call rocksdb_cuckoo_options_get_max_search_depth(options: *const CuckooHandle) -> u32 { get(options, DEPTH) }
    call rocksdb_cuckoo_options_set_cuckoo_block_size(options: *mut CuckooHandle, size: u32) { set(options, BLOCK, size) }
    call rocksdb_cuckoo_options_get_cuckoo_block_size(options: *const CuckooHandle) -> u32 { get(options, BLOCK) }
    call rocksdb_cuckoo_options_set_identity_as_first_hash(options: *mut CuckooHandle, identity: c_uchar) { set(options, IDENTITY, identity) }
    call rocksdb_cuckoo_options_get_identity_as_first_hash(options: *const CuckooHandle) -> c_uchar { get(options, IDENTITY) }
    call rocksdb_cuckoo_options_set_use_module_hash(options: *mut CuckooHandle, module: c_uchar) { set(options, MODULE, module) }
    call rocksdb_cuckoo_options_get_use_module_hash(options: *const CuckooHandle) -> c_uchar { get(options, MODULE) }
    call rocksdb_options_set_cuckoo_table_factory(options: *mut OptionsHandle, cuckoo: *const CuckooHandle) {
        if let (Some(options), false) = (options.as_mut(), cuckoo.is_null()) {
            options.kept.set("rocksdb_options_set_cuckoo_table_factory", 1_u8.number());
        }
    }
}
