//! Behaviour that programs and bindings of RocksDB 7.8 rely on: texts of errors, defaults, and
//! functions that later headers lack.

use super::as_rocksdb::{load, merges_nothing};
use super::*;

unsafe extern "C" {
    fn rocksdb_block_based_options_create() -> H;
    fn rocksdb_block_based_options_destroy(o: H);
    fn rocksdb_block_based_options_set_block_cache_compressed(o: H, c: H);
    fn rocksdb_block_based_options_set_filter_policy(o: H, p: H);
    fn rocksdb_cache_create_lru(n: usize) -> H;
    fn rocksdb_cache_destroy(c: H);
    fn rocksdb_delete_file(db: H, n: B);
    fn rocksdb_filterpolicy_create_bloom_format(bits: f64, original: bool) -> H;
    fn rocksdb_filterpolicy_create_bloom_full(bits: f64) -> H;
    fn rocksdb_filterpolicy_create_ribbon(bits: f64) -> H;
    fn rocksdb_filterpolicy_create_ribbon_format(bits: f64, level: c_int) -> H;
    fn rocksdb_filterpolicy_create_ribbon_hybrid(bits: f64, level: c_int) -> H;
    fn rocksdb_open_for_read_only(o: H, n: B, wal: c_uchar, e: E) -> H;
    fn rocksdb_optimistictransaction_begin(db: H, w: H, t: H, old: H) -> H;
    fn rocksdb_optimistictransaction_options_create() -> H;
    fn rocksdb_optimistictransaction_options_destroy(o: H);
    fn rocksdb_optimistictransaction_options_set_set_snapshot(o: H, v: c_uchar);
    fn rocksdb_optimistictransactiondb_close(db: H);
    fn rocksdb_optimistictransactiondb_open(o: H, n: B, e: E) -> H;
    fn rocksdb_options_enable_statistics(o: H);
    fn rocksdb_options_get_access_hint_on_compaction_start(o: H) -> c_int;
    fn rocksdb_options_get_max_write_buffer_number_to_maintain(o: H) -> c_int;
    fn rocksdb_options_get_skip_checking_sst_file_sizes_on_db_open(o: H) -> c_uchar;
    fn rocksdb_options_get_statistics_level(o: H) -> c_int;
    fn rocksdb_options_set_access_hint_on_compaction_start(o: H, v: c_int);
    fn rocksdb_options_set_block_based_table_factory(o: H, t: H);
    fn rocksdb_options_set_compaction_style(o: H, v: c_int);
    fn rocksdb_options_set_error_if_exists(o: H, v: c_uchar);
    fn rocksdb_options_set_max_write_buffer_number_to_maintain(o: H, v: c_int);
    fn rocksdb_options_set_skip_checking_sst_file_sizes_on_db_open(o: H, v: c_uchar);
    fn rocksdb_options_set_statistics_level(o: H, v: c_int);
    fn rocksdb_perfcontext_create() -> H;
    fn rocksdb_perfcontext_destroy(p: H);
    fn rocksdb_perfcontext_metric(p: H, metric: c_int) -> u64;
    fn rocksdb_perfcontext_reset(p: H);
    fn rocksdb_readoptions_set_managed(o: H, v: c_uchar);
    fn rocksdb_set_perf_level(level: c_int);
}

const LEVEL_STYLE: c_int = 0;
const FIFO_STYLE: c_int = 2;

/// Returns the size in bytes of the filters of a flushed table with 2000 keys.
fn filter_bytes(style: c_int, policy: H) -> u64 {
    let setup = Setup::new();
    unsafe {
        let tables = rocksdb_block_based_options_create();
        rocksdb_block_based_options_set_filter_policy(tables, policy);
        rocksdb_options_set_block_based_table_factory(setup.options, tables);
        rocksdb_block_based_options_destroy(tables);
        rocksdb_options_set_compaction_style(setup.options, style);
        let db = setup.open();
        for key in 0..2000_u32 {
            setup.put(db, &key.to_be_bytes(), b"v");
        }
        let flush = rocksdb_flushoptions_create();
        ok(|e| rocksdb_flush(db, flush, e));
        rocksdb_flushoptions_destroy(flush);
        let value = rocksdb_property_value(db, c"rocksdb.aggregated-table-properties".as_ptr());
        let text = CStr::from_ptr(value).to_str().unwrap().to_owned();
        rocksdb_free(value.cast());
        rocksdb_close(db);
        let size = text.split("; ").find_map(|part| part.strip_prefix("filter block size="));
        size.unwrap_or_else(|| panic!("{text}")).parse().unwrap()
    }
}

#[test]
fn a_ribbon_policy_builds_bloom_filters_below_its_level() {
    let bytes = |style, policy: H| filter_bytes(style, policy);
    unsafe {
        let bloom = bytes(LEVEL_STYLE, rocksdb_filterpolicy_create_bloom_full(8.0));
        let ribbon = bytes(LEVEL_STYLE, rocksdb_filterpolicy_create_ribbon(8.0));
        assert!(ribbon < bloom * 9 / 10, "{ribbon} {bloom}");
        for (style, policy, wanted) in [
            (LEVEL_STYLE, rocksdb_filterpolicy_create_ribbon_hybrid(8.0, -1), ribbon),
            (LEVEL_STYLE, rocksdb_filterpolicy_create_ribbon_format(8.0, -1), ribbon),
            (LEVEL_STYLE, rocksdb_filterpolicy_create_ribbon_hybrid(8.0, 0), bloom),
            (LEVEL_STYLE, rocksdb_filterpolicy_create_bloom_format(8.0, true), bloom),
            // FIFO style has no levels: flushes get Bloom filters only if `bloom_before_level` is
            // the maximum.
            (FIFO_STYLE, rocksdb_filterpolicy_create_ribbon_hybrid(8.0, 0), ribbon),
            (FIFO_STYLE, rocksdb_filterpolicy_create_ribbon_hybrid(8.0, c_int::MAX), bloom),
        ] {
            assert_eq!(bytes(style, policy), wanted, "style {style}");
        }
    }
}

#[test]
fn a_thread_that_has_a_perf_context_counts() {
    const GET_READ_BYTES: c_int = 7;
    let setup = Setup::new();
    let db = setup.open();
    setup.put(db, b"k", b"12345");
    let counted = |level: Option<c_int>| unsafe {
        level.into_iter().for_each(|level| rocksdb_set_perf_level(level));
        let context = rocksdb_perfcontext_create();
        rocksdb_perfcontext_reset(context);
        assert_eq!(setup.get(db, b"k").unwrap(), b"12345");
        let bytes = rocksdb_perfcontext_metric(context, GET_READ_BYTES);
        rocksdb_perfcontext_destroy(context);
        bytes
    };
    let with: Vec<_> = std::thread::scope(|scope| {
        let at_level = |level: Option<c_int>| {
            let counted = AssertSend(&counted);
            scope.spawn(move || counted.get()(level)).join().unwrap()
        };
        [None, Some(1), Some(2)].map(at_level).to_vec()
    });
    assert_eq!(with, [5, 0, 5]);
    unsafe { rocksdb_close(db) };
}

/// Makes a handle `Send`.
struct AssertSend<T>(T);
unsafe impl<T> Send for AssertSend<T> {}
impl<T: Copy> AssertSend<T> {
    fn get(&self) -> T {
        self.0
    }
}

#[test]
fn the_level_is_that_of_the_statistics() {
    let setup = Setup::new();
    unsafe {
        rocksdb_options_set_statistics_level(setup.options, 5);
        assert_eq!(rocksdb_options_get_statistics_level(setup.options), 0);
        rocksdb_options_enable_statistics(setup.options);
        assert_eq!(rocksdb_options_get_statistics_level(setup.options), 3);
        rocksdb_options_set_statistics_level(setup.options, 99);
        assert_eq!(rocksdb_options_get_statistics_level(setup.options), 5);
    }
}

#[test]
fn checksums_of_files_are_verified_only_of_a_database_that_makes_them() {
    let setup = Setup::new();
    unsafe {
        let db = setup.open();
        let error = failed(|e| rocksdb_verify_file_checksums(db, e));
        assert!(
            error.starts_with("Invalid argument") && error.contains("file_checksum_gen_factory"),
            "{error}"
        );
        rocksdb_close(db);
    }
}

#[test]
fn functions_of_7_8_that_later_headers_lack() {
    let setup = Setup::new();
    unsafe {
        let options = setup.options;
        assert_eq!(rocksdb_options_get_access_hint_on_compaction_start(options), 1);
        rocksdb_options_set_access_hint_on_compaction_start(options, 2);
        assert_eq!(rocksdb_options_get_access_hint_on_compaction_start(options), 2);
        assert_eq!(rocksdb_options_get_max_write_buffer_number_to_maintain(options), 0);
        rocksdb_options_set_max_write_buffer_number_to_maintain(options, 3);
        assert_eq!(rocksdb_options_get_max_write_buffer_number_to_maintain(options), 3);
        assert_eq!(rocksdb_options_get_skip_checking_sst_file_sizes_on_db_open(options), 0);
        rocksdb_options_set_skip_checking_sst_file_sizes_on_db_open(options, 1);
        assert_eq!(rocksdb_options_get_skip_checking_sst_file_sizes_on_db_open(options), 1);
        let (tables, cache) = (rocksdb_block_based_options_create(), rocksdb_cache_create_lru(1 << 20));
        rocksdb_block_based_options_set_block_cache_compressed(tables, cache);
        rocksdb_options_set_block_based_table_factory(options, tables);
        rocksdb_cache_destroy(cache);
        rocksdb_block_based_options_destroy(tables);

        let db = setup.open();
        setup.put(db, b"k", b"v");
        rocksdb_delete_file(db, c"000008.sst".as_ptr());
        rocksdb_readoptions_set_managed(setup.read, 1);
        let iter = rocksdb_create_iterator(db, setup.read);
        assert!(failed(|e| rocksdb_iter_get_error(iter, e)).starts_with("Not implemented"));
        rocksdb_iter_destroy(iter);
        rocksdb_readoptions_set_managed(setup.read, 0);
        assert_eq!(setup.keys(db), [b"k"]);
        rocksdb_close(db);
    }
}

unsafe extern "C" fn by_bytes(_: H, a: B, an: usize, b: B, bn: usize) -> c_int {
    let of = |data: B, length| unsafe { std::slice::from_raw_parts(data.cast::<u8>(), length) };
    of(a, an).cmp(of(b, bn)) as c_int
}

unsafe extern "C" fn name_of_order(_: H) -> B {
    c"foo".as_ptr()
}

unsafe extern "C" fn name_of_merge(_: H) -> B {
    c"mine".as_ptr()
}

#[test]
fn loaded_options_are_without_what_only_the_program_has() {
    let setup = Setup::new();
    let path = setup.path("db");
    unsafe {
        let comparator = rocksdb_comparator_create(null_mut(), None, by_bytes, name_of_order);
        let merge = || {
            rocksdb_mergeoperator_create(null_mut(), None, Some(merges_nothing), None, None, name_of_merge)
        };
        rocksdb_options_set_comparator(setup.options, comparator);
        rocksdb_options_set_merge_operator(setup.options, merge());
        let db = setup.open();
        setup.put(db, b"k", b"v");
        rocksdb_close(db);

        let (db_options, names, options, count) = ok(|e| load(&setup, e));
        assert_eq!(count, 1);
        let open = |e| {
            let mut handle = null_mut();
            let db = rocksdb_open_column_families(
                db_options,
                path.as_ptr(),
                1,
                names.cast(),
                options,
                &mut handle,
                e,
            );
            if !db.is_null() {
                rocksdb_column_family_handle_destroy(handle);
            }
            db
        };
        let error = failed(open);
        let told = "Invalid argument: leveldb.BytewiseComparator: does not match existing comparator foo";
        assert_eq!(error, told);
        rocksdb_options_set_comparator(*options, comparator);
        let db = ok(open);
        assert_eq!(setup.get(db, b"k").unwrap(), b"v");
        rocksdb_close(db);
        rocksdb_options_set_merge_operator(*options, merge());
        rocksdb_close(ok(open));
        rocksdb_load_latest_options_destroy(db_options, names, options, count);
        rocksdb_comparator_destroy(comparator);
    }
}

#[test]
fn errors_have_the_words_that_programs_look_for() {
    let setup = Setup::new();
    let path = setup.path("db");
    let begins = |told: String, wanted: &str| {
        let wanted = wanted.replace("DB", path.to_str().unwrap());
        assert!(told.starts_with(&wanted), "{told}, wanted {wanted}");
    };
    unsafe {
        let options = rocksdb_options_create();
        let mut count = 0;
        let list = failed(|e| rocksdb_list_column_families(options, path.as_ptr(), &mut count, e));
        begins(list, "IO error: No such file or directory");
        let read_only = failed(|e| rocksdb_open_for_read_only(options, path.as_ptr(), 0, e));
        begins(read_only, "IO error: No such file or directory");
        let open = |options: H| failed(|e| rocksdb_open(options, path.as_ptr(), e));
        begins(open(options), "Invalid argument: DB/CURRENT: does not exist (create_if_missing is false)");
        ok(|e| rocksdb_destroy_db(options, path.as_ptr(), e));
        let nowhere = failed(|e| rocksdb_open(setup.options, c"/proc/none/db".as_ptr(), e));
        begins(nowhere, "IO error: No such file or directory");

        let db = setup.open();
        begins(open(setup.options), "IO error: While lock file: ");
        let create = |e| rocksdb_create_column_family(db, setup.options, c"col0".as_ptr(), e);
        rocksdb_column_family_handle_destroy(ok(create));
        begins(failed(create), "Invalid argument: Column family already exists");
        rocksdb_close(db);
        let log = std::fs::read_to_string(setup.directory.path().join("db/LOG")).unwrap();
        for family in ["default", "col0"] {
            let line = format!("Options for column family [{family}]:");
            assert_eq!(log.matches(&line).count(), 1, "{line}");
        }
        begins(open(setup.options), "Invalid argument: Column families not opened: col0");
        let (names, both) = ([c"default".as_ptr(), c"zz".as_ptr()], [setup.options; 2]);
        let mut handles = [null_mut(); 2];
        let unknown = failed(|e| {
            let (names, both, handles) = (names.as_ptr(), both.as_ptr(), handles.as_mut_ptr());
            rocksdb_open_column_families(setup.options, path.as_ptr(), 2, names, both, handles, e)
        });
        begins(unknown, "Invalid argument: Column family not found: zz");
        rocksdb_options_set_error_if_exists(setup.options, 1);
        begins(open(setup.options), "Invalid argument: DB: exists (error_if_exists is true)");
        rocksdb_options_destroy(options);
    }
}

#[test]
fn an_optimistic_transaction_keeps_its_snapshot_beyond_its_commit() {
    let setup = Setup::new();
    unsafe {
        let db = ok(|e| rocksdb_optimistictransactiondb_open(setup.options, setup.path("db").as_ptr(), e));
        for has_snapshot in [false, true] {
            let options = rocksdb_optimistictransaction_options_create();
            rocksdb_optimistictransaction_options_set_set_snapshot(options, has_snapshot.into());
            let transaction = rocksdb_optimistictransaction_begin(db, setup.write, options, null_mut());
            let put = || ok(|e| rocksdb_transaction_put(transaction, at(b"k"), 1, at(b"v"), 1, e));
            put();
            ok(|e| rocksdb_transaction_commit(transaction, e));
            ok(|e| rocksdb_transaction_commit(transaction, e));
            put();
            if has_snapshot {
                // Conflict: the key was written after the snapshot, although by the transaction
                // itself.
                let error = failed(|e| rocksdb_transaction_commit(transaction, e));
                assert!(error.starts_with("Resource busy"), "{error}");
            } else {
                ok(|e| rocksdb_transaction_commit(transaction, e));
            }
            rocksdb_transaction_destroy(transaction);
            rocksdb_optimistictransaction_options_destroy(options);
        }
        rocksdb_optimistictransactiondb_close(db);
    }
}
