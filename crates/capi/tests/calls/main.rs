//! Calls through the exported C functions.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "every block is a call of the API on handles it gave out"
)]

mod as_7_8;
mod as_bindings;
mod as_rocksdb;
mod backup_options;
mod files;
mod indexed_batch;
mod settings;
mod trace;
mod waiting;

use libc::{c_char, c_int, c_uchar, c_void};
use std::ffi::{CStr, CString};
use std::ptr::{null, null_mut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

macro_rules! api {
    ($(fn $name:ident($($arg:ident : $type:ty),*) $(-> $ret:ty)?;)*) => {
        unsafe extern "C" { $(fn $name($($arg: $type),*) $(-> $ret)?;)* }
    };
}

type H = *mut c_void;
type E = *mut *mut c_char;
type B = *const c_char;

#[repr(C)]
struct Slice(B, usize);

api! {
    fn rocksdb_options_create() -> H;
    fn rocksdb_options_destroy(o: H);
    fn rocksdb_get_options_from_string(base: H, text: B, new: H, e: E);
    fn rocksdb_sstfilewriter_create(env: H, o: H) -> H;
    fn rocksdb_sstfilewriter_open(w: H, n: B, e: E);
    fn rocksdb_sstfilewriter_put(w: H, k: B, kn: usize, v: B, vn: usize, e: E);
    fn rocksdb_sstfilewriter_finish(w: H, e: E);
    fn rocksdb_sstfilewriter_file_size(w: H, n: *mut u64);
    fn rocksdb_sstfilewriter_destroy(w: H);
    fn rocksdb_options_set_create_if_missing(o: H, v: c_uchar);
    fn rocksdb_options_get_create_if_missing(o: H) -> c_uchar;
    fn rocksdb_options_set_compression(o: H, v: c_int);
    fn rocksdb_options_get_compression(o: H) -> c_int;
    fn rocksdb_options_set_write_buffer_size(o: H, v: usize);
    fn rocksdb_options_get_write_buffer_size(o: H) -> usize;
    fn rocksdb_options_set_use_adaptive_mutex(o: H, v: c_uchar);
    fn rocksdb_options_get_use_adaptive_mutex(o: H) -> c_uchar;
    fn rocksdb_options_set_comparator(o: H, c: H);
    fn rocksdb_options_set_merge_operator(o: H, m: H);
    fn rocksdb_options_set_compaction_filter(o: H, f: H);
    fn rocksdb_open(o: H, name: B, e: E) -> H;
    fn rocksdb_open_column_families(o: H, name: B, n: c_int, names: *const B, os: *const H, hs: *mut H, e: E) -> H;
    fn rocksdb_close(db: H);
    fn rocksdb_destroy_db(o: H, name: B, e: E);
    fn rocksdb_list_column_families(o: H, name: B, n: *mut usize, e: E) -> *mut *mut c_char;
    fn rocksdb_list_column_families_destroy(l: *mut *mut c_char, n: usize);
    fn rocksdb_create_column_family(db: H, o: H, name: B, e: E) -> H;
    fn rocksdb_column_family_handle_destroy(h: H);
    fn rocksdb_writeoptions_create() -> H;
    fn rocksdb_writeoptions_destroy(o: H);
    fn rocksdb_readoptions_create() -> H;
    fn rocksdb_readoptions_destroy(o: H);
    fn rocksdb_readoptions_set_snapshot(o: H, s: H);
    fn rocksdb_readoptions_set_table_filter(o: H, s: H, d: unsafe extern "C" fn(H), f: unsafe extern "C" fn(H, H) -> c_uchar);
    fn rocksdb_readoptions_clear_table_filter(o: H);
    fn rocksdb_readoptions_has_table_filter(o: H) -> c_uchar;
    fn rocksdb_table_properties_num_entries(p: H) -> u64;
    fn rocksdb_table_properties_has_key_largest_seqno(p: H) -> c_uchar;
    fn rocksdb_table_properties_column_family_name(p: H, n: *mut usize) -> B;
    fn rocksdb_table_properties_user_collected_properties_count(p: H) -> usize;
    fn rocksdb_table_properties_user_collected_properties_key_at(p: H, at: usize, n: *mut usize) -> B;
    fn rocksdb_table_properties_user_collected_properties_value_at(p: H, at: usize, n: *mut usize) -> B;
    fn rocksdb_sst_partitioner_fixed_prefix_factory_create(n: usize) -> H;
    fn rocksdb_sst_partitioner_factory_destroy(f: H);
    fn rocksdb_options_set_sst_partitioner_factory(o: H, f: H);
    fn rocksdb_file_checksum_gen_crc32c_factory_create() -> H;
    fn rocksdb_file_checksum_gen_factory_destroy(f: H);
    fn rocksdb_options_set_file_checksum_gen_factory(o: H, f: H);
    fn rocksdb_verify_file_checksums(db: H, e: E);
    fn rocksdb_readoptions_set_iterate_upper_bound(o: H, k: B, n: usize);
    fn rocksdb_put(db: H, o: H, k: B, kn: usize, v: B, vn: usize, e: E);
    fn rocksdb_put_cf(db: H, o: H, cf: H, k: B, kn: usize, v: B, vn: usize, e: E);
    fn rocksdb_delete(db: H, o: H, k: B, kn: usize, e: E);
    fn rocksdb_merge(db: H, o: H, k: B, kn: usize, v: B, vn: usize, e: E);
    fn rocksdb_get(db: H, o: H, k: B, kn: usize, vn: *mut usize, e: E) -> *mut c_char;
    fn rocksdb_get_cf(db: H, o: H, cf: H, k: B, kn: usize, vn: *mut usize, e: E) -> *mut c_char;
    fn rocksdb_free(p: *mut c_void);
    fn rocksdb_write(db: H, o: H, b: H, e: E);
    fn rocksdb_writebatch_create() -> H;
    fn rocksdb_writebatch_destroy(b: H);
    fn rocksdb_writebatch_put(b: H, k: B, kn: usize, v: B, vn: usize);
    fn rocksdb_writebatch_delete(b: H, k: B, kn: usize);
    fn rocksdb_writebatch_count(b: H) -> c_int;
    fn rocksdb_create_iterator(db: H, o: H) -> H;
    fn rocksdb_iter_destroy(i: H);
    fn rocksdb_iter_valid(i: H) -> c_uchar;
    fn rocksdb_iter_seek_to_first(i: H);
    fn rocksdb_iter_next(i: H);
    fn rocksdb_iter_key(i: H, n: *mut usize) -> B;
    fn rocksdb_iter_get_error(i: H, e: E);
    fn rocksdb_create_snapshot(db: H) -> H;
    fn rocksdb_release_snapshot(db: H, s: H);
    fn rocksdb_flushoptions_create() -> H;
    fn rocksdb_flushoptions_destroy(o: H);
    fn rocksdb_flush(db: H, o: H, e: E);
    fn rocksdb_compact_range(db: H, s: B, sn: usize, l: B, ln: usize);
    fn rocksdb_property_value(db: H, n: B) -> *mut c_char;
    fn rocksdb_checkpoint_object_create(db: H, e: E) -> H;
    fn rocksdb_checkpoint_create(c: H, d: B, n: u64, e: E);
    fn rocksdb_checkpoint_object_destroy(c: H);
    fn rocksdb_comparator_create(s: H, d: Option<unsafe extern "C" fn(H)>, c: unsafe extern "C" fn(H, B, usize, B, usize) -> c_int, n: unsafe extern "C" fn(H) -> B) -> H;
    fn rocksdb_comparator_destroy(c: H);
    fn rocksdb_mergeoperator_create(s: H, d: Option<unsafe extern "C" fn(H)>, full: Option<unsafe extern "C" fn(H, B, usize, B, usize, *const B, *const usize, c_int, *mut c_uchar, *mut usize) -> *mut c_char>, partial: Option<unsafe extern "C" fn(H, B, usize, *const B, *const usize, c_int, *mut c_uchar, *mut usize) -> *mut c_char>, delete: Option<unsafe extern "C" fn(H, B, usize)>, n: unsafe extern "C" fn(H) -> B) -> H;
    fn rocksdb_transactiondb_options_create() -> H;
    fn rocksdb_transactiondb_options_destroy(o: H);
    fn rocksdb_transaction_options_create() -> H;
    fn rocksdb_transaction_options_destroy(o: H);
    fn rocksdb_transactiondb_open(o: H, t: H, n: B, e: E) -> H;
    fn rocksdb_transactiondb_close(db: H);
    fn rocksdb_transactiondb_get(db: H, o: H, k: B, kn: usize, vn: *mut usize, e: E) -> *mut c_char;
    fn rocksdb_transaction_begin(db: H, w: H, t: H, old: H) -> H;
    fn rocksdb_transaction_put(t: H, k: B, kn: usize, v: B, vn: usize, e: E);
    fn rocksdb_transaction_get(t: H, o: H, k: B, kn: usize, vn: *mut usize, e: E) -> *mut c_char;
    fn rocksdb_transaction_commit(t: H, e: E);
    fn rocksdb_transaction_destroy(t: H);
    fn rocksdb_block_based_options_set_user_defined_index_factory_from_string(t: H, s: B, n: usize, e: E);
    fn rocksdb_backup_engine_open(o: H, d: B, e: E) -> H;
    fn rocksdb_backup_engine_create_new_backup(b: H, db: H, e: E);
    fn rocksdb_backup_engine_get_backup_info(b: H) -> H;
    fn rocksdb_backup_engine_info_count(i: H) -> c_int;
    fn rocksdb_backup_engine_info_destroy(i: H);
    fn rocksdb_backup_engine_restore_db_from_latest_backup(b: H, d: B, w: B, o: H, e: E);
    fn rocksdb_backup_engine_close(b: H);
    fn rocksdb_sst_file_manager_create(env: H) -> H;
    fn rocksdb_sst_file_manager_destroy(m: H);
    fn rocksdb_sst_file_manager_set_max_allowed_space_usage(m: H, n: u64);
    fn rocksdb_sst_file_manager_set_compaction_buffer_size(m: H, n: u64);
    fn rocksdb_sst_file_manager_is_max_allowed_space_reached(m: H) -> bool;
    fn rocksdb_sst_file_manager_is_max_allowed_space_reached_including_compactions(m: H) -> bool;
    fn rocksdb_sst_file_manager_get_total_size(m: H) -> u64;
    fn rocksdb_sst_file_manager_get_total_trash_size(m: H) -> u64;
    fn rocksdb_sst_file_manager_get_delete_rate_bytes_per_second(m: H) -> i64;
    fn rocksdb_sst_file_manager_set_delete_rate_bytes_per_second(m: H, n: i64);
    fn rocksdb_sst_file_manager_get_max_trash_db_ratio(m: H) -> f64;
    fn rocksdb_sst_file_manager_set_max_trash_db_ratio(m: H, n: f64);
    fn rocksdb_options_set_sst_file_manager(o: H, m: H);
    fn rocksdb_dbpath_create(n: B, size: u64) -> H;
    fn rocksdb_dbpath_destroy(p: H);
    fn rocksdb_options_set_cf_paths(o: H, ps: *const H, n: usize);
    fn rocksdb_options_set_info_log(o: H, l: H);
    fn rocksdb_batched_multi_get_cf_slice(db: H, r: H, f: H, n: usize, ks: *const Slice, vs: *mut H, es: E, s: bool);
    fn rocksdb_get_pinned_v2(db: H, r: H, k: B, n: usize, e: E) -> H;
    fn rocksdb_pinnable_handle_get_value(s: H, n: *mut usize) -> B;
    fn rocksdb_pinnable_handle_destroy(s: H);
    fn rocksdb_get_into_buffer(db: H, r: H, k: B, n: usize, b: *mut c_char, s: usize, l: *mut usize, f: *mut c_uchar, e: E) -> c_uchar;
    fn rocksdb_options_get_info_log(o: H) -> H;
    fn rocksdb_logger_create_stderr_logger(level: c_int, prefix: B) -> H;
    fn rocksdb_logger_create_callback_logger(level: c_int, log: Option<unsafe extern "C" fn(H, u32, *mut c_char, usize)>, s: H) -> H;
    fn rocksdb_logger_destroy(l: H);
    fn rocksdb_cancel_all_background_work(db: H, wait: c_uchar);
    fn rocksdb_restore_options_create() -> H;
    fn rocksdb_restore_options_destroy(o: H);
    fn rocksdb_drop_column_family(db: H, cf: H, e: E);
    fn rocksdb_transactiondb_create_column_family(db: H, o: H, name: B, e: E) -> H;
    fn rocksdb_transaction_rollback(t: H, e: E);
    fn rocksdb_transaction_set_savepoint(t: H);
    fn rocksdb_transaction_rollback_to_savepoint(t: H, e: E);
    fn rocksdb_optimistictransaction_options_create() -> H;
    fn rocksdb_optimistictransaction_options_destroy(o: H);
    fn rocksdb_optimistictransactiondb_open(o: H, n: B, e: E) -> H;
    fn rocksdb_optimistictransactiondb_close(db: H);
    fn rocksdb_optimistictransactiondb_get_base_db(db: H) -> H;
    fn rocksdb_optimistictransactiondb_close_base_db(db: H);
    fn rocksdb_optimistictransaction_begin(db: H, w: H, t: H, old: H) -> H;
    fn rocksdb_readoptions_set_tailing(o: H, v: c_uchar);
    fn rocksdb_readoptions_get_tailing(o: H) -> c_uchar;
    fn rocksdb_readoptions_set_prefix_same_as_start(o: H, v: c_uchar);
    fn rocksdb_readoptions_set_iterate_lower_bound(o: H, k: B, n: usize);
    fn rocksdb_iter_seek(i: H, k: B, n: usize);
    fn rocksdb_iter_prev(i: H);
    fn rocksdb_iter_seek_to_last(i: H);
    fn rocksdb_iter_timestamp(i: H, n: *mut usize) -> B;
    fn rocksdb_livefiles(db: H) -> H;
    fn rocksdb_livefiles_count(f: H) -> c_int;
    fn rocksdb_get_column_family_metadata(db: H) -> H;
    fn rocksdb_column_family_metadata_destroy(m: H);
    fn rocksdb_column_family_metadata_get_size(m: H) -> u64;
    fn rocksdb_column_family_metadata_get_file_count(m: H) -> usize;
    fn rocksdb_column_family_metadata_get_level_count(m: H) -> usize;
    fn rocksdb_column_family_metadata_get_level_metadata(m: H, i: usize) -> H;
    fn rocksdb_level_metadata_destroy(l: H);
    fn rocksdb_level_metadata_get_level(l: H) -> c_int;
    fn rocksdb_level_metadata_get_size(l: H) -> u64;
    fn rocksdb_level_metadata_get_file_count(l: H) -> usize;
    fn rocksdb_level_metadata_get_sst_file_metadata(l: H, i: usize) -> H;
    fn rocksdb_sst_file_metadata_destroy(t: H);
    fn rocksdb_sst_file_metadata_get_relative_filename(t: H) -> *mut c_char;
    fn rocksdb_sst_file_metadata_get_directory(t: H) -> *mut c_char;
    fn rocksdb_sst_file_metadata_get_size(t: H) -> u64;
    fn rocksdb_sst_file_metadata_get_smallestkey(t: H, n: *mut usize) -> *mut c_char;
    fn rocksdb_sst_file_metadata_get_largestkey(t: H, n: *mut usize) -> *mut c_char;
    fn rocksdb_livefiles_storage_info_options_create() -> H;
    fn rocksdb_livefiles_storage_info_options_destroy(o: H);
    fn rocksdb_livefiles_storage_info_options_set_wal_size_for_flush(o: H, v: u64);
    fn rocksdb_livefiles_storage_info_options_get_wal_size_for_flush(o: H) -> u64;
    fn rocksdb_livefiles_storage_info_options_set_include_checksum_info(o: H, v: c_uchar);
    fn rocksdb_livefiles_storage_info_options_get_include_checksum_info(o: H) -> c_uchar;
    fn rocksdb_get_livefiles_storage_info(db: H, o: H, e: E) -> H;
    fn rocksdb_livefiles_storage_info_destroy(i: H);
    fn rocksdb_livefiles_storage_info_count(i: H) -> usize;
    fn rocksdb_livefiles_storage_info_relative_filename(i: H, at: usize) -> B;
    fn rocksdb_livefiles_storage_info_directory(i: H, at: usize) -> B;
    fn rocksdb_livefiles_storage_info_file_number(i: H, at: usize) -> u64;
    fn rocksdb_livefiles_storage_info_file_type(i: H, at: usize) -> c_int;
    fn rocksdb_livefiles_storage_info_size(i: H, at: usize) -> u64;
    fn rocksdb_livefiles_storage_info_file_checksum(i: H, at: usize) -> B;
    fn rocksdb_livefiles_storage_info_file_checksum_func_name(i: H, at: usize) -> B;
    fn rocksdb_livefiles_storage_info_replacement_contents(i: H, at: usize, n: *mut usize) -> B;
    fn rocksdb_livefiles_storage_info_trim_to_size(i: H, at: usize) -> c_uchar;
    fn rocksdb_options_set_db_host_id(o: H, v: B);
    fn rocksdb_options_get_db_host_id(o: H, n: *mut usize) -> B;
    fn rocksdb_livefiles_entries(f: H, i: c_int) -> u64;
    fn rocksdb_livefiles_deletions(f: H, i: c_int) -> u64;
    fn rocksdb_livefiles_destroy(f: H);
    fn rocksdb_disable_file_deletions(db: H, e: E);
    fn rocksdb_enable_file_deletions(db: H, e: E);
    fn rocksdb_options_set_prefix_extractor(o: H, p: H);
    fn rocksdb_slicetransform_create_fixed_prefix(n: usize) -> H;
    fn rocksdb_backup_engine_options_create(d: B) -> H;
    fn rocksdb_backup_engine_options_destroy(o: H);
    fn rocksdb_options_add_compact_on_deletion_collector_factory_del_ratio(o: H, w: usize, t: usize, r: f64);
    fn rocksdb_options_set_ttl(o: H, v: u64);
    fn rocksdb_options_get_ttl(o: H) -> u64;
    fn rocksdb_open_with_ttl(o: H, n: B, ttl: c_int, e: E) -> H;
    fn rocksdb_open_column_families_with_ttl(o: H, n: B, count: c_int, names: *const B, os: *const H, hs: *mut H, ttls: *const c_int, e: E) -> H;
    fn rocksdb_create_column_family_with_ttl(db: H, o: H, n: B, ttl: c_int, e: E) -> H;
    fn rocksdb_compact_range_cf(db: H, cf: H, s: B, sn: usize, l: B, ln: usize);
    fn rocksdb_options_set_uint64add_merge_operator(o: H);
    fn rocksdb_get_pinned(db: H, o: H, k: B, kn: usize, e: E) -> H;
    fn rocksdb_pinnableslice_value(s: H, n: *mut usize) -> B;
    fn rocksdb_pinnableslice_destroy(s: H);
    fn rocksdb_multi_get(db: H, o: H, n: usize, ks: *const B, kns: *const usize, vs: *mut *mut c_char, vns: *mut usize, es: *mut *mut c_char);
    fn rocksdb_iter_value(i: H, n: *mut usize) -> B;
    fn rocksdb_cuckoo_options_create() -> H;
    fn rocksdb_cuckoo_options_destroy(o: H);
    fn rocksdb_cuckoo_options_set_hash_ratio(o: H, v: f64);
    fn rocksdb_cuckoo_options_get_hash_table_ratio(o: H) -> f64;
    fn rocksdb_cuckoo_options_get_max_search_depth(o: H) -> u32;
    fn rocksdb_options_set_cuckoo_table_factory(o: H, c: H);
    fn rocksdb_load_latest_options(d: B, env: H, ignore: bool, cache: H, o: *mut H, n: *mut usize, names: *mut *mut *mut c_char, os: *mut *mut H, e: E);
    fn rocksdb_load_latest_options_destroy(o: H, names: *mut *mut c_char, os: *mut H, n: usize);
}

mod engine_options;
mod events;
mod timestamps;
mod transactions;

// Without a use of the crate the linker would drop its symbols.
#[test]
fn the_library_is_linked() {
    assert!(!karst_capi::functions().is_empty());
}

/// Makes a call whose `errptr` must stay null.
fn ok<T>(call: impl FnOnce(E) -> T) -> T {
    let mut error = null_mut();
    let value = call(&mut error);
    assert!(error.is_null(), "{:?}", unsafe { CStr::from_ptr(error) });
    value
}

/// Makes a call that must fail, and returns its error.
fn failed<T>(call: impl FnOnce(E) -> T) -> String {
    let mut error = null_mut();
    call(&mut error);
    assert!(!error.is_null(), "the call succeeded");
    let text = unsafe { CStr::from_ptr(error) }.to_str().unwrap().to_owned();
    unsafe { rocksdb_free(error.cast()) };
    text
}

/// Waits until `holds` returns true, for effects of background work.
fn eventually(mut holds: impl FnMut() -> bool) {
    let begin = std::time::Instant::now();
    while !holds() {
        assert!(begin.elapsed().as_secs() < 300, "it does not come true");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

fn at(bytes: &[u8]) -> B {
    bytes.as_ptr().cast()
}

fn owned(value: *mut c_char, length: usize) -> Option<Vec<u8>> {
    if value.is_null() {
        return None;
    }
    let copy = unsafe { std::slice::from_raw_parts(value.cast::<u8>(), length) }.to_vec();
    unsafe { rocksdb_free(value.cast()) };
    Some(copy)
}

/// A directory with options, and the options of reads and writes.
struct Setup {
    directory: tempfile::TempDir,
    options: H,
    write: H,
    read: H,
}

impl Setup {
    fn new() -> Setup {
        unsafe {
            let options = rocksdb_options_create();
            rocksdb_options_set_create_if_missing(options, 1);
            let (write, read) = (rocksdb_writeoptions_create(), rocksdb_readoptions_create());
            Setup { directory: tempfile::tempdir().unwrap(), options, write, read }
        }
    }

    fn path(&self, name: &str) -> CString {
        CString::new(self.directory.path().join(name).to_str().unwrap()).unwrap()
    }

    fn open(&self) -> H {
        ok(|e| unsafe { rocksdb_open(self.options, self.path("db").as_ptr(), e) })
    }

    fn put(&self, db: H, key: &[u8], value: &[u8]) {
        ok(|e| unsafe { rocksdb_put(db, self.write, at(key), key.len(), at(value), value.len(), e) });
    }

    fn get(&self, db: H, key: &[u8]) -> Option<Vec<u8>> {
        let mut length = 0;
        owned(ok(|e| unsafe { rocksdb_get(db, self.read, at(key), key.len(), &mut length, e) }), length)
    }

    fn keys(&self, db: H) -> Vec<Vec<u8>> {
        let mut keys = Vec::new();
        unsafe {
            let iter = rocksdb_create_iterator(db, self.read);
            rocksdb_iter_seek_to_first(iter);
            while rocksdb_iter_valid(iter) != 0 {
                let mut length = 0;
                let key = rocksdb_iter_key(iter, &mut length);
                keys.push(std::slice::from_raw_parts(key.cast::<u8>(), length).to_vec());
                rocksdb_iter_next(iter);
            }
            ok(|e| rocksdb_iter_get_error(iter, e));
            rocksdb_iter_destroy(iter);
        }
        keys
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        unsafe {
            rocksdb_options_destroy(self.options);
            rocksdb_writeoptions_destroy(self.write);
            rocksdb_readoptions_destroy(self.read);
        }
    }
}

#[test]
fn a_manager_of_files_limits_the_databases_that_have_it() {
    let setup = Setup::new();
    unsafe {
        let manager = rocksdb_sst_file_manager_create(null_mut());
        rocksdb_options_set_sst_file_manager(setup.options, manager);
        let db = setup.open();
        let flush = rocksdb_flushoptions_create();
        setup.put(db, b"key", b"value");
        ok(|e| rocksdb_flush(db, flush, e));
        let bytes = rocksdb_sst_file_manager_get_total_size(manager);
        assert!(bytes > 500, "{bytes}");
        assert_eq!(rocksdb_sst_file_manager_get_total_trash_size(manager), 0);
        rocksdb_sst_file_manager_set_max_allowed_space_usage(manager, bytes + 1);
        rocksdb_sst_file_manager_set_compaction_buffer_size(manager, 1000);
        assert!(!rocksdb_sst_file_manager_is_max_allowed_space_reached(manager));
        assert!(!rocksdb_sst_file_manager_is_max_allowed_space_reached_including_compactions(manager));
        setup.put(db, b"other", b"value");
        ok(|e| rocksdb_flush(db, flush, e));
        assert!(rocksdb_sst_file_manager_is_max_allowed_space_reached(manager));
        let told = failed(|e| rocksdb_put(db, setup.write, at(b"k"), 1, at(b"v"), 1, e));
        assert!(told.starts_with("IO error: Space limit reached"), "{told}");
        rocksdb_sst_file_manager_set_delete_rate_bytes_per_second(manager, 5000);
        assert_eq!(rocksdb_sst_file_manager_get_delete_rate_bytes_per_second(manager), 5000);
        rocksdb_sst_file_manager_set_delete_rate_bytes_per_second(manager, -1);
        assert_eq!(rocksdb_sst_file_manager_get_delete_rate_bytes_per_second(manager), 0);
        assert_eq!(rocksdb_sst_file_manager_get_max_trash_db_ratio(manager), 0.25);
        rocksdb_sst_file_manager_set_max_trash_db_ratio(manager, 0.5);
        assert_eq!(rocksdb_sst_file_manager_get_max_trash_db_ratio(manager), 0.5);
        rocksdb_flushoptions_destroy(flush);
        rocksdb_close(db);
        rocksdb_sst_file_manager_destroy(manager);
    }
}

#[test]
fn a_column_family_has_directories_of_its_own() {
    let setup = Setup::new();
    let db = setup.open();
    unsafe {
        let path = rocksdb_dbpath_create(setup.path("elsewhere").as_ptr(), 1 << 30);
        let options = rocksdb_options_create();
        rocksdb_options_set_cf_paths(options, [path].as_ptr(), 1);
        rocksdb_dbpath_destroy(path);
        let name = CString::new("own").unwrap();
        let own = ok(|e| rocksdb_create_column_family(db, options, name.as_ptr(), e));
        ok(|e| rocksdb_put_cf(db, setup.write, own, at(b"k"), 1, at(b"v"), 1, e));
        rocksdb_column_family_handle_destroy(own);
        rocksdb_close(db);
        // Opening the database writes the log's contents to a table.
        let names = [c"default".as_ptr(), name.as_ptr()];
        let (all, mut handles) = ([setup.options, options], [null_mut(); 2]);
        let db = ok(|e| {
            let (names, all) = (names.as_ptr(), all.as_ptr());
            rocksdb_open_column_families(
                setup.options,
                setup.path("db").as_ptr(),
                2,
                names,
                all,
                handles.as_mut_ptr(),
                e,
            )
        });
        let files = std::fs::read_dir(setup.directory.path().join("elsewhere")).unwrap();
        let is_table = |file: &std::io::Result<std::fs::DirEntry>| {
            file.as_ref().unwrap().path().extension().is_some_and(|extension| extension == "sst")
        };
        assert_eq!(files.filter(is_table).count(), 1);
        handles.iter().for_each(|handle| rocksdb_column_family_handle_destroy(*handle));
        rocksdb_close(db);
        rocksdb_options_destroy(options);
    }
}

#[test]
fn values_come_pinned_or_into_the_callers_memory() {
    let setup = Setup::new();
    let db = setup.open();
    setup.put(db, b"a", b"of a");
    setup.put(db, b"empty", b"");
    unsafe {
        let keys = [Slice(at(b"a"), 1), Slice(at(b"gone"), 4), Slice(at(b"empty"), 5)];
        let (mut values, mut errors) = ([null_mut(); 3], [null_mut(); 3]);
        rocksdb_batched_multi_get_cf_slice(
            db,
            setup.read,
            null_mut(),
            3,
            keys.as_ptr(),
            values.as_mut_ptr(),
            errors.as_mut_ptr(),
            false,
        );
        assert_eq!(errors, [null_mut(); 3]);
        let mut length = 9;
        let value = rocksdb_pinnableslice_value(values[0], &mut length);
        assert_eq!(std::slice::from_raw_parts(value.cast::<u8>(), length), b"of a");
        assert!(values[1].is_null() && !values[2].is_null());
        rocksdb_pinnableslice_value(values[2], &mut length);
        assert_eq!(length, 0);
        values
            .iter()
            .filter(|value| !value.is_null())
            .for_each(|value| rocksdb_pinnableslice_destroy(*value));

        let pinned = ok(|e| rocksdb_get_pinned_v2(db, setup.read, at(b"a"), 1, e));
        let value = rocksdb_pinnable_handle_get_value(pinned, &mut length);
        assert_eq!(std::slice::from_raw_parts(value.cast::<u8>(), length), b"of a");
        rocksdb_pinnable_handle_destroy(pinned);
        assert!(ok(|e| rocksdb_get_pinned_v2(db, setup.read, at(b"gone"), 4, e)).is_null());
        assert!(rocksdb_pinnable_handle_get_value(null_mut(), &mut length).is_null() && length == 0);

        let into = |key: &[u8], size: usize| {
            let (mut buffer, mut length, mut found) = ([b'-'; 8], 9, 9);
            let fits = ok(|e| {
                rocksdb_get_into_buffer(
                    db,
                    setup.read,
                    at(key),
                    key.len(),
                    buffer.as_mut_ptr().cast(),
                    size,
                    &mut length,
                    &mut found,
                    e,
                )
            });
            (fits, found, length, buffer)
        };
        assert_eq!(into(b"a", 4), (1, 1, 4, *b"of a----"));
        assert_eq!(into(b"a", 3), (0, 1, 4, *b"--------"));
        assert_eq!(into(b"empty", 0), (1, 1, 0, *b"--------"));
        assert_eq!(into(b"gone", 8), (0, 0, 0, *b"--------"));
        rocksdb_close(db);
    }
}

/// Appends a line with its level, after a check that it ends with 0.
unsafe extern "C" fn keep_line(lines: H, level: u32, text: *mut c_char, length: usize) {
    unsafe {
        assert_eq!(CStr::from_ptr(text).count_bytes(), length);
        let line = String::from_utf8(CStr::from_ptr(text).to_bytes().to_vec()).unwrap();
        // The callback may write to the line.
        text.write(b'!' as c_char);
        let lines = &*lines.cast::<Mutex<Vec<(u32, String)>>>();
        lines.lock().unwrap().push((level, line));
    }
}

#[test]
fn a_callback_takes_the_lines_of_log_for_as_long_as_databases_are_open() {
    let lines = Box::new(Mutex::new(Vec::<(u32, String)>::new()));
    let state = (&raw const *lines).cast_mut().cast();
    let setup = Setup::new();
    unsafe {
        let none = rocksdb_options_get_info_log(setup.options);
        rocksdb_options_set_info_log(setup.options, none);
        let logger = rocksdb_logger_create_callback_logger(0, Some(keep_line), state);
        rocksdb_options_set_info_log(setup.options, logger);
        rocksdb_logger_destroy(logger);
        let again = rocksdb_options_get_info_log(setup.options);
        let other = rocksdb_options_create();
        rocksdb_options_set_create_if_missing(other, 1);
        rocksdb_options_set_info_log(other, again);
        rocksdb_logger_destroy(again);
        rocksdb_logger_destroy(none);
        for (options, name) in [(setup.options, "db"), (other, "other")] {
            let db = ok(|e| rocksdb_open(options, setup.path(name).as_ptr(), e));
            let flush = rocksdb_flushoptions_create();
            setup.put(db, b"k", b"v");
            ok(|e| rocksdb_flush(db, flush, e));
            rocksdb_flushoptions_destroy(flush);
            rocksdb_close(db);
            let told = std::mem::take(&mut *lines.lock().unwrap());
            assert!(
                told.iter().any(|(level, line)| *level == 5 && line.contains("Options.create_if_missing: 1")),
                "{told:?}"
            );
            assert!(
                told.iter().any(|(level, line)| *level == 1 && line.contains("Flushed 1 entries")),
                "{told:?}"
            );
            assert!(!setup.directory.path().join(name).join("LOG").exists());
        }
        rocksdb_options_destroy(other);
        drop(setup);
        assert!(lines.lock().unwrap().is_empty(), "nobody calls after the end");
    }
}

/// Runs in a process of its own, started by the test below, because stderr belongs to the process.
#[test]
fn a_program_that_logs_to_stderr() {
    if std::env::var_os("KARST_TEST_STDERR_LOGGER").is_none() {
        return;
    }
    let setup = Setup::new();
    unsafe {
        let logger = rocksdb_logger_create_stderr_logger(5, c"mine".as_ptr());
        rocksdb_options_set_info_log(setup.options, logger);
        rocksdb_logger_destroy(logger);
        rocksdb_close(setup.open());
        assert!(!setup.directory.path().join("db/LOG").exists());
    }
}

#[test]
fn lines_go_to_stderr_with_a_date_and_the_prefix() {
    let program = std::env::current_exe().unwrap();
    let ran = std::process::Command::new(program)
        .args(["--exact", "a_program_that_logs_to_stderr", "--nocapture"])
        .env("KARST_TEST_STDERR_LOGGER", "1")
        .output()
        .unwrap();
    let told = String::from_utf8(ran.stderr).unwrap();
    assert!(ran.status.success(), "{told}");
    let line = told.lines().find(|line| line.contains(" mine DB: ")).unwrap_or_else(|| panic!("{told}"));
    let (date, _) = line.split_once(' ').unwrap();
    let kinds: String = date.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    assert_eq!(kinds, "0000/00/00-00:00:00.000000");
    assert!(!told.contains("Flushed"), "only headers were asked for: {told}");
}

#[test]
fn cancelled_background_work_stays_so_and_writes_go_on() {
    let setup = Setup::new();
    let db = setup.open();
    unsafe {
        let flush = rocksdb_flushoptions_create();
        setup.put(db, b"key", b"value");
        rocksdb_cancel_all_background_work(db, 1);
        setup.put(db, b"other", b"value");
        let told = failed(|e| rocksdb_flush(db, flush, e));
        assert!(told.starts_with("Shutdown in progress"), "{told}");
        rocksdb_flushoptions_destroy(flush);
        rocksdb_close(db);
        let db = setup.open();
        assert_eq!(setup.keys(db), [b"key".to_vec(), b"other".to_vec()]);
        rocksdb_close(db);
    }
}

#[test]
fn puts_gets_batches_iterators_and_snapshots() {
    let setup = Setup::new();
    let db = setup.open();
    setup.put(db, b"a\0b", b"1");
    setup.put(db, b"", b"");
    assert_eq!(setup.get(db, b"a\0b").unwrap(), b"1");
    assert_eq!(setup.get(db, b"").unwrap(), b"");
    assert_eq!(setup.get(db, b"none"), None);
    unsafe {
        let snapshot = rocksdb_create_snapshot(db);
        let batch = rocksdb_writebatch_create();
        rocksdb_writebatch_put(batch, at(b"c"), 1, at(b"2"), 1);
        rocksdb_writebatch_delete(batch, at(b"a\0b"), 3);
        assert_eq!(rocksdb_writebatch_count(batch), 2);
        ok(|e| rocksdb_write(db, setup.write, batch, e));
        rocksdb_writebatch_destroy(batch);
        assert_eq!(setup.keys(db), [b"".to_vec(), b"c".to_vec()]);
        rocksdb_readoptions_set_snapshot(setup.read, snapshot);
        assert_eq!(setup.keys(db), [b"".to_vec(), b"a\0b".to_vec()]);
        rocksdb_readoptions_set_snapshot(setup.read, null_mut());
        rocksdb_release_snapshot(db, snapshot);
        rocksdb_readoptions_set_iterate_upper_bound(setup.read, at(b"b"), 1);
        assert_eq!(setup.keys(db), [b"".to_vec()]);
        rocksdb_readoptions_set_iterate_upper_bound(setup.read, null(), 0);
        ok(|e| rocksdb_delete(db, setup.write, at(b"c"), 1, e));
        let flush = rocksdb_flushoptions_create();
        ok(|e| rocksdb_flush(db, flush, e));
        rocksdb_flushoptions_destroy(flush);
        rocksdb_compact_range(db, null(), 0, null(), 0);
        let files = rocksdb_property_value(db, c"rocksdb.num-files-at-level0".as_ptr());
        assert_eq!(CStr::from_ptr(files), c"0");
        rocksdb_free(files.cast());
        assert!(rocksdb_property_value(db, c"rocksdb.no-such-property".as_ptr()).is_null());
        rocksdb_close(db);
    }
    let db = setup.open();
    assert_eq!(setup.keys(db), [b"".to_vec()]);
    unsafe { rocksdb_close(db) };
    ok(|e| unsafe { rocksdb_destroy_db(setup.options, setup.path("db").as_ptr(), e) });
}

#[test]
fn column_families_have_handles_in_the_callers_order() {
    let setup = Setup::new();
    let db = setup.open();
    unsafe {
        let family = ok(|e| rocksdb_create_column_family(db, setup.options, c"two".as_ptr(), e));
        ok(|e| rocksdb_put_cf(db, setup.write, family, at(b"k"), 1, at(b"v"), 1, e));
        rocksdb_column_family_handle_destroy(family);
        rocksdb_close(db);
        let (path, mut count) = (setup.path("db"), 0);
        let names = ok(|e| rocksdb_list_column_families(setup.options, path.as_ptr(), &mut count, e));
        assert_eq!(count, 2);
        assert_eq!(CStr::from_ptr(*names.add(1)), c"two");
        rocksdb_list_column_families_destroy(names, count);

        let refused = failed(|e| rocksdb_open(setup.options, path.as_ptr(), e));
        assert!(refused.starts_with("Invalid argument: "), "{refused}");
        let (names, options) = ([c"two".as_ptr(), c"default".as_ptr()], [setup.options; 2]);
        let mut handles = [null_mut(); 2];
        let db = ok(|e| {
            rocksdb_open_column_families(
                setup.options,
                path.as_ptr(),
                2,
                names.as_ptr(),
                options.as_ptr(),
                handles.as_mut_ptr(),
                e,
            )
        });
        let mut length = 0;
        let value = ok(|e| rocksdb_get_cf(db, setup.read, handles[0], at(b"k"), 1, &mut length, e));
        assert_eq!(owned(value, length).unwrap(), b"v");
        for handle in handles {
            rocksdb_column_family_handle_destroy(handle);
        }
        rocksdb_close(db);
    }
}

#[test]
fn options_are_set_and_read_by_number() {
    let setup = Setup::new();
    let options = setup.options;
    unsafe {
        assert_eq!(rocksdb_options_get_create_if_missing(options), 1);
        for compression in [0, 1, 4, 7] {
            rocksdb_options_set_compression(options, compression);
            assert_eq!(rocksdb_options_get_compression(options), compression);
        }
        rocksdb_options_set_write_buffer_size(options, 1 << 20);
        assert_eq!(rocksdb_options_get_write_buffer_size(options), 1 << 20);
        rocksdb_options_set_use_adaptive_mutex(options, 1);
        assert_eq!(rocksdb_options_get_use_adaptive_mutex(options), 1, "what has no effect is remembered");
    }
}

/// Number of destructor calls of table filters' states.
static FILTERS_ENDED: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn filter_ended(_: H) {
    FILTERS_ENDED.fetch_add(1, Ordering::SeqCst);
}

/// Skips tables whose number of entries is that of the state.
unsafe extern "C" fn has_other_count(state: H, table: H) -> c_uchar {
    unsafe {
        let mut length = 0;
        let name = rocksdb_table_properties_column_family_name(table, &mut length);
        assert_eq!(std::slice::from_raw_parts(name.cast::<u8>(), length), b"default");
        assert!(rocksdb_table_properties_has_key_largest_seqno(table) <= 1);
        let count = rocksdb_table_properties_user_collected_properties_count(table);
        for at in 0..count + 1 {
            let key = rocksdb_table_properties_user_collected_properties_key_at(table, at, &mut length);
            assert!(!key.is_null() && (length == 0) == (at == count));
            rocksdb_table_properties_user_collected_properties_value_at(table, at, &mut length);
        }
        (rocksdb_table_properties_num_entries(table) != *state.cast::<u64>()).into()
    }
}

#[test]
fn tables_are_filtered_partitioned_and_have_checksums() {
    let setup = Setup::new();
    unsafe {
        let partitioner = rocksdb_sst_partitioner_fixed_prefix_factory_create(1);
        rocksdb_options_set_sst_partitioner_factory(setup.options, partitioner);
        rocksdb_sst_partitioner_factory_destroy(partitioner);
        let checksums = rocksdb_file_checksum_gen_crc32c_factory_create();
        rocksdb_options_set_file_checksum_gen_factory(setup.options, checksums);
        rocksdb_file_checksum_gen_factory_destroy(checksums);
    }
    let db = setup.open();
    for key in [b"a1", b"a2", b"b1"] {
        setup.put(db, key, b"v");
    }
    let mut passed_by = 2_u64;
    unsafe {
        let flush = rocksdb_flushoptions_create();
        ok(|e| rocksdb_flush(db, flush, e));
        rocksdb_flushoptions_destroy(flush);
        rocksdb_compact_range(db, null(), 0, null(), 0);
        ok(|e| rocksdb_verify_file_checksums(db, e));
        assert_eq!(rocksdb_readoptions_has_table_filter(setup.read), 0);
        let state = (&raw mut passed_by).cast();
        rocksdb_readoptions_set_table_filter(setup.read, state, filter_ended, has_other_count);
        assert_eq!(rocksdb_readoptions_has_table_filter(setup.read), 1);
    }
    assert_eq!(setup.keys(db), [b"b1".to_vec()], "the table of a1 and a2 is passed by, so there are two");
    unsafe {
        rocksdb_readoptions_clear_table_filter(setup.read);
        assert_eq!(rocksdb_readoptions_has_table_filter(setup.read), 0);
        assert_eq!(FILTERS_ENDED.load(Ordering::SeqCst), 1);
    }
    assert_eq!(setup.keys(db).len(), 3);
    unsafe { rocksdb_close(db) };
}

static DESTROYED: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn destroyed(_: H) {
    DESTROYED.fetch_add(1, Ordering::SeqCst);
}

unsafe extern "C" fn backwards(_: H, a: B, an: usize, b: B, bn: usize) -> c_int {
    let of = |data: B, length| unsafe { std::slice::from_raw_parts(data.cast::<u8>(), length) };
    of(b, bn).cmp(of(a, an)) as c_int
}

unsafe extern "C" fn order_name(_: H) -> B {
    c"backwards".as_ptr()
}

unsafe extern "C" fn merge_name(_: H) -> B {
    c"joined".as_ptr()
}

/// Concatenates the existing value and all operands.
unsafe extern "C" fn full_merge(
    _: H,
    _: B,
    _: usize,
    existing: B,
    existing_length: usize,
    operands: *const B,
    lengths: *const usize,
    count: c_int,
    success: *mut c_uchar,
    length: *mut usize,
) -> *mut c_char {
    let of = |data: B, length: usize| match data.is_null() {
        true => Vec::new(),
        false => unsafe { std::slice::from_raw_parts(data.cast::<u8>(), length) }.to_vec(),
    };
    let mut merged = of(existing, existing_length);
    for at in 0..usize::try_from(count).unwrap() {
        merged.extend(unsafe { of(*operands.add(at), *lengths.add(at)) });
    }
    unsafe {
        *success = 1;
        *length = merged.len();
        let memory = libc::malloc(merged.len().max(1)).cast::<c_char>();
        std::ptr::copy_nonoverlapping(merged.as_ptr().cast(), memory, merged.len());
        memory
    }
}

#[test]
fn callbacks_are_called_and_destroyed_once() {
    let setup = Setup::new();
    unsafe {
        let comparator = rocksdb_comparator_create(null_mut(), Some(destroyed), backwards, order_name);
        let operator = rocksdb_mergeoperator_create(
            null_mut(),
            Some(destroyed),
            Some(full_merge),
            None,
            None,
            merge_name,
        );
        rocksdb_options_set_comparator(setup.options, comparator);
        rocksdb_options_set_merge_operator(setup.options, operator);
        rocksdb_options_set_compaction_filter(setup.options, null_mut());
        let db = setup.open();
        setup.put(db, b"a", b"1");
        setup.put(db, b"b", b"2");
        for operand in [b"x", b"y"] {
            ok(|e| rocksdb_merge(db, setup.write, at(b"a"), 1, at(operand), 1, e));
        }
        assert_eq!(setup.keys(db), [b"b".to_vec(), b"a".to_vec()]);
        assert_eq!(setup.get(db, b"a").unwrap(), b"1xy");
        rocksdb_close(db);
        rocksdb_comparator_destroy(comparator);
    }
    assert_eq!(DESTROYED.load(Ordering::SeqCst), 0, "the options still have both");
    drop(setup);
    assert_eq!(DESTROYED.load(Ordering::SeqCst), 2);
}

#[test]
fn transactions_commit() {
    let setup = Setup::new();
    unsafe {
        let (settings, own) = (rocksdb_transactiondb_options_create(), rocksdb_transaction_options_create());
        let path = setup.path("db");
        let db = ok(|e| rocksdb_transactiondb_open(setup.options, settings, path.as_ptr(), e));
        let transaction = rocksdb_transaction_begin(db, setup.write, own, null_mut());
        ok(|e| rocksdb_transaction_put(transaction, at(b"k"), 1, at(b"v"), 1, e));
        let mut length = 0;
        let seen = ok(|e| rocksdb_transaction_get(transaction, setup.read, at(b"k"), 1, &mut length, e));
        assert_eq!(owned(seen, length).unwrap(), b"v");
        let other = rocksdb_transaction_begin(db, setup.write, own, null_mut());
        let refused = failed(|e| rocksdb_transaction_put(other, at(b"k"), 1, at(b"w"), 1, e));
        assert!(
            refused.starts_with("Operation timed out: ") || refused.starts_with("Resource busy: "),
            "{refused}"
        );
        rocksdb_transaction_destroy(other);
        assert!(ok(|e| rocksdb_transactiondb_get(db, setup.read, at(b"k"), 1, &mut length, e)).is_null());
        ok(|e| rocksdb_transaction_commit(transaction, e));
        rocksdb_transaction_destroy(transaction);
        let seen = ok(|e| rocksdb_transactiondb_get(db, setup.read, at(b"k"), 1, &mut length, e));
        assert_eq!(owned(seen, length).unwrap(), b"v");
        rocksdb_transactiondb_close(db);
        rocksdb_transactiondb_options_destroy(settings);
        rocksdb_transaction_options_destroy(own);
    }
}

#[test]
fn checkpoints_and_backups_can_be_opened() {
    let setup = Setup::new();
    let db = setup.open();
    setup.put(db, b"k", b"v");
    unsafe {
        let checkpoint = ok(|e| rocksdb_checkpoint_object_create(db, e));
        ok(|e| rocksdb_checkpoint_create(checkpoint, setup.path("copy").as_ptr(), 0, e));
        rocksdb_checkpoint_object_destroy(checkpoint);
        let engine = ok(|e| rocksdb_backup_engine_open(setup.options, setup.path("backups").as_ptr(), e));
        ok(|e| rocksdb_backup_engine_create_new_backup(engine, db, e));
        let infos = rocksdb_backup_engine_get_backup_info(engine);
        assert_eq!(rocksdb_backup_engine_info_count(infos), 1);
        rocksdb_backup_engine_info_destroy(infos);
        let (restore, to) = (rocksdb_restore_options_create(), setup.path("restored"));
        ok(|e| {
            rocksdb_backup_engine_restore_db_from_latest_backup(engine, to.as_ptr(), to.as_ptr(), restore, e)
        });
        rocksdb_restore_options_destroy(restore);
        rocksdb_backup_engine_close(engine);
        rocksdb_close(db);
        for copy in ["copy", "restored"] {
            let db = ok(|e| rocksdb_open(setup.options, setup.path(copy).as_ptr(), e));
            assert_eq!(setup.get(db, b"k").unwrap(), b"v", "{copy}");
            rocksdb_close(db);
        }
    }
}

#[test]
fn what_is_refused_says_so_and_null_handles_do_nothing() {
    let setup = Setup::new();
    let db = setup.open();
    unsafe {
        let refused = failed(|e| {
            rocksdb_block_based_options_set_user_defined_index_factory_from_string(null_mut(), at(b"i"), 1, e)
        });
        let name = "rocksdb_block_based_options_set_user_defined_index_factory_from_string";
        assert!(refused.starts_with("Not implemented: ") && refused.contains(name), "{refused}");
        assert_eq!(setup.get(db, b"k"), None);
        rocksdb_close(db);
        rocksdb_close(null_mut());
        rocksdb_iter_seek_to_first(null_mut());
        assert_eq!(rocksdb_iter_valid(null_mut()), 0);
        rocksdb_options_destroy(null_mut());
        let mut length = 7;
        let refused = failed(|e| rocksdb_get(null_mut(), setup.read, at(b"k"), 1, &mut length, e));
        assert!(refused.starts_with("Invalid argument: "), "{refused}");
        assert_eq!(length, 0);
        rocksdb_free(null_mut());
    }
}

#[test]
fn option_strings_are_refused_or_count() {
    let setup = Setup::new();
    let options = setup.options;
    unsafe {
        let text = c"write_buffer_size=65536;compression_opts={level=3}";
        ok(|e| rocksdb_get_options_from_string(options, text.as_ptr(), options, e));
        assert_eq!(rocksdb_options_get_write_buffer_size(options), 65536);
        for wrong in [c"nosuchoption", c"nosuchoption=1"] {
            failed(|e| rocksdb_get_options_from_string(options, wrong.as_ptr(), options, e));
        }
    }
}

#[test]
fn a_finished_table_has_a_size() {
    let setup = Setup::new();
    unsafe {
        let (writer, mut size) = (rocksdb_sstfilewriter_create(null_mut(), setup.options), 0);
        ok(|e| rocksdb_sstfilewriter_open(writer, setup.path("made.sst").as_ptr(), e));
        ok(|e| rocksdb_sstfilewriter_put(writer, at(b"k"), 1, at(b"v"), 1, e));
        ok(|e| rocksdb_sstfilewriter_finish(writer, e));
        rocksdb_sstfilewriter_file_size(writer, &mut size);
        assert_eq!(size, std::fs::metadata(setup.directory.path().join("made.sst")).unwrap().len());
        rocksdb_sstfilewriter_destroy(writer);
    }
}
