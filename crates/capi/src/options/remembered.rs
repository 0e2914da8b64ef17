//! Options without effect that are not numbers: sets, and memtable types.
//!
//! They are remembered for their getters, and named on stderr when a database is opened.

use super::{CNumber, OptionsHandle};
use libc::{c_int, c_uchar};
use std::collections::{BTreeMap, BTreeSet};

const HANDOFF: &str = "checksum_handoff_file_types";
const HINTS: &str = "calculate_sst_write_lifetime_hint_set";

/// Returns RocksDB's defaults: no file type, and level compaction.
pub(super) fn sets() -> BTreeMap<&'static str, BTreeSet<c_int>> {
    BTreeMap::from([(HANDOFF, BTreeSet::new()), (HINTS, BTreeSet::from([0]))])
}

unsafe fn change(
    options: *mut OptionsHandle,
    setter: &'static str,
    set: &'static str,
    change: impl FnOnce(&mut BTreeSet<c_int>),
) {
    if let Some(options) = unsafe { options.as_mut() } {
        change(options.kept_sets.entry(set).or_default());
        options.kept.set(setter, 1_u8.number());
    }
}

unsafe fn members<'a>(options: *const OptionsHandle, set: &str) -> Option<&'a BTreeSet<c_int>> {
    unsafe { options.as_ref() }?.kept_sets.get(set)
}

macro_rules! sets {
    ($($set:ident $add:ident $remove:ident $clear:ident $contains:ident $count:ident;)*) => {
        capi! {
            $(
                call $add(options: *mut OptionsHandle, member: c_int) {
                    change(options, stringify!($add), $set, |set| { set.insert(member); })
                }
                call $remove(options: *mut OptionsHandle, member: c_int) {
                    change(options, stringify!($add), $set, |set| { set.remove(&member); })
                }
                call $clear(options: *mut OptionsHandle) { change(options, stringify!($add), $set, BTreeSet::clear) }
                call $contains(options: *const OptionsHandle, member: c_int) -> c_uchar {
                    members(options, $set).is_some_and(|set| set.contains(&member)).into()
                }
                call $count(options: *const OptionsHandle) -> usize { members(options, $set).map_or(0, BTreeSet::len) }
            )*
        }
    };
}

mod of_numbers {
    use super::*;
    sets! {
        HANDOFF rocksdb_options_checksum_handoff_file_types_add rocksdb_options_checksum_handoff_file_types_remove rocksdb_options_checksum_handoff_file_types_clear rocksdb_options_checksum_handoff_file_types_contains rocksdb_options_checksum_handoff_file_types_count;
        HINTS rocksdb_options_calculate_sst_write_lifetime_hint_set_add rocksdb_options_calculate_sst_write_lifetime_hint_set_remove rocksdb_options_calculate_sst_write_lifetime_hint_set_clear rocksdb_options_calculate_sst_write_lifetime_hint_set_contains rocksdb_options_calculate_sst_write_lifetime_hint_set_count;
    }
}

mod others {
    use super::*;
    capi! {
        // The memtable has one type; RocksDB's names of others are not written to the OPTIONS file.
        call rocksdb_options_set_memtable_vector_rep(options: *mut OptionsHandle) {
            if let Some(options) = options.as_mut() { options.kept.set("rocksdb_options_set_memtable_vector_rep", 1_u8.number()) }
        }
        call rocksdb_options_set_hash_skip_list_rep(options: *mut OptionsHandle, _bucket_count: usize, _skiplist_height: i32, _skiplist_branching_factor: i32) {
            if let Some(options) = options.as_mut() { options.kept.set("rocksdb_options_set_hash_skip_list_rep", 1_u8.number()) }
        }
    }
}

pub(crate) const NAMES: &[&[crate::signature::Signature]] = &[of_numbers::NAMES, others::NAMES];
