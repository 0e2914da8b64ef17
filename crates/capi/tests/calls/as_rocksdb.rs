//! Behaviour that programs rely on beyond RocksDB's header.

use super::*;

/// Returns the keys from the iterator's position on.
fn rest(iter: H) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    while unsafe { rocksdb_iter_valid(iter) } != 0 {
        let mut length = 0;
        let key = unsafe { rocksdb_iter_key(iter, &mut length) };
        keys.push(unsafe { std::slice::from_raw_parts(key.cast::<u8>(), length) }.to_vec());
        unsafe { rocksdb_iter_next(iter) };
    }
    keys
}

#[test]
fn a_tailing_iterator_sees_what_comes_and_does_not_go_back() {
    let setup = Setup::new();
    let db = setup.open();
    setup.put(db, b"b", b"");
    unsafe {
        rocksdb_readoptions_set_tailing(setup.read, 1);
        assert_eq!(rocksdb_readoptions_get_tailing(setup.read), 1);
        let iter = rocksdb_create_iterator(db, setup.read);
        rocksdb_iter_seek_to_first(iter);
        for key in [b"a", b"c", b"d"] {
            setup.put(db, key, b"");
        }
        assert_eq!(rest(iter), [b"b", b"c", b"d"], "what came behind it is seen");
        rocksdb_iter_seek_to_first(iter);
        assert_eq!(rest(iter), [b"a", b"b", b"c", b"d"]);
        rocksdb_iter_seek(iter, at(b"b"), 1);
        ok(|e| rocksdb_delete(db, setup.write, at(b"b"), 1, e));
        ok(|e| rocksdb_delete(db, setup.write, at(b"c"), 1, e));
        assert_eq!(rest(iter), [b"b", b"d"], "the key under it is gone, and so is the next");
        rocksdb_iter_seek_to_first(iter);
        rocksdb_iter_prev(iter);
        assert_eq!(rocksdb_iter_valid(iter), 0);
        assert!(failed(|e| rocksdb_iter_get_error(iter, e)).starts_with("Not implemented"));
        rocksdb_iter_seek_to_last(iter);
        assert_eq!(rocksdb_iter_valid(iter), 0);
        rocksdb_iter_seek_to_first(iter);
        ok(|e| rocksdb_iter_get_error(iter, e));
        assert_eq!(rocksdb_iter_valid(iter), 1);
        rocksdb_iter_destroy(iter);
        rocksdb_close(db);
    }
}

#[test]
fn an_iteration_from_a_lower_bound_stays_in_its_prefix() {
    let setup = Setup::new();
    unsafe {
        let prefix = rocksdb_slicetransform_create_fixed_prefix(2);
        rocksdb_options_set_prefix_extractor(setup.options, prefix);
        let db = setup.open();
        for key in [b"p1a", b"p2a", b"p1b"] {
            setup.put(db, key, b"");
        }
        rocksdb_readoptions_set_prefix_same_as_start(setup.read, 1);
        rocksdb_readoptions_set_iterate_lower_bound(setup.read, at(b"p1"), 2);
        assert_eq!(setup.keys(db), [b"p1a", b"p1b"]);
        rocksdb_readoptions_set_iterate_upper_bound(setup.read, at(b"p2b"), 3);
        let iter = rocksdb_create_iterator(db, setup.read);
        rocksdb_iter_seek_to_last(iter);
        let mut length = 0;
        assert_eq!(*rocksdb_iter_key(iter, &mut length).cast::<[u8; 3]>(), *b"p2a");
        assert!(!rocksdb_iter_timestamp(iter, &mut length).is_null() && length == 0);
        rocksdb_iter_prev(iter);
        assert_eq!(rocksdb_iter_valid(iter), 0, "the upper bound's prefix has no more keys");
        rocksdb_iter_destroy(iter);
        rocksdb_close(db);
    }
}

#[test]
fn a_transaction_takes_more_after_a_rollback() {
    let setup = Setup::new();
    unsafe {
        let use_again = |transaction: H| {
            let put = |key: &[u8]| {
                ok(|e| rocksdb_transaction_put(transaction, at(key), key.len(), at(b"v"), 1, e));
            };
            let get = |key: &[u8]| {
                let mut length = 0;
                let read = setup.read;
                let call = |e| rocksdb_transaction_get(transaction, read, at(key), key.len(), &mut length, e);
                owned(ok(call), length)
            };
            put(b"lost");
            ok(|e| rocksdb_transaction_rollback(transaction, e));
            ok(|e| rocksdb_transaction_rollback(transaction, e));
            assert_eq!(get(b"lost"), None);
            put(b"kept");
            rocksdb_transaction_set_savepoint(transaction);
            put(b"taken back");
            ok(|e| rocksdb_transaction_rollback_to_savepoint(transaction, e));
            assert!(
                failed(|e| rocksdb_transaction_rollback_to_savepoint(transaction, e)).starts_with("NotFound")
            );
            ok(|e| rocksdb_transaction_commit(transaction, e));
        };
        let settings = rocksdb_transactiondb_options_create();
        let db =
            ok(|e| rocksdb_transactiondb_open(setup.options, settings, setup.path("locking").as_ptr(), e));
        let options = rocksdb_transaction_options_create();
        let transaction = rocksdb_transaction_begin(db, setup.write, options, null_mut());
        use_again(transaction);
        failed(|e| rocksdb_transaction_rollback(transaction, e));
        rocksdb_transaction_destroy(transaction);
        // The database's handle is accepted where a `rocksdb_t` is wanted.
        assert_eq!(setup.keys(db), [b"kept"]);
        let name = CString::new("family").unwrap();
        let family = ok(|e| rocksdb_transactiondb_create_column_family(db, setup.options, name.as_ptr(), e));
        ok(|e| rocksdb_drop_column_family(db, family, e));
        rocksdb_column_family_handle_destroy(family);
        rocksdb_transaction_options_destroy(options);
        rocksdb_transactiondb_options_destroy(settings);
        rocksdb_transactiondb_close(db);

        let db =
            ok(|e| rocksdb_optimistictransactiondb_open(setup.options, setup.path("hopeful").as_ptr(), e));
        let options = rocksdb_optimistictransaction_options_create();
        let transaction = rocksdb_optimistictransaction_begin(db, setup.write, options, null_mut());
        use_again(transaction);
        use_again(transaction);
        ok(|e| rocksdb_transaction_rollback(transaction, e));
        rocksdb_transaction_destroy(transaction);
        let base = rocksdb_optimistictransactiondb_get_base_db(db);
        assert_eq!(setup.keys(base), [b"kept"]);
        rocksdb_optimistictransactiondb_close_base_db(base);
        rocksdb_optimistictransaction_options_destroy(options);
        rocksdb_optimistictransactiondb_close(db);
    }
}

fn tables(setup: &Setup) -> usize {
    let names = std::fs::read_dir(setup.directory.path().join("db")).unwrap();
    names.filter(|name| name.as_ref().unwrap().path().extension().is_some_and(|end| end == "sst")).count()
}

#[test]
fn files_that_were_kept_are_gone_when_deletions_are_enabled() {
    let setup = Setup::new();
    let db = setup.open();
    unsafe {
        ok(|e| rocksdb_disable_file_deletions(db, e));
        let flush = rocksdb_flushoptions_create();
        for key in [b"a", b"b"] {
            setup.put(db, key, b"v");
            ok(|e| rocksdb_delete(db, setup.write, at(b"c"), 1, e));
            ok(|e| rocksdb_flush(db, flush, e));
        }
        let files = rocksdb_livefiles(db);
        assert_eq!(rocksdb_livefiles_count(files), 2);
        assert_eq!((rocksdb_livefiles_entries(files, 0), rocksdb_livefiles_deletions(files, 1)), (2, 1));
        rocksdb_livefiles_destroy(files);
        rocksdb_flushoptions_destroy(flush);
        rocksdb_compact_range(db, null(), 0, null(), 0);
        assert_eq!(tables(&setup), 3);
        ok(|e| rocksdb_enable_file_deletions(db, e));
        assert_eq!(tables(&setup), 1);
        rocksdb_close(db);
        let db = setup.open();
        let files = rocksdb_livefiles(db);
        assert_eq!((rocksdb_livefiles_entries(files, 0), rocksdb_livefiles_deletions(files, 0)), (2, 0));
        rocksdb_livefiles_destroy(files);
        rocksdb_close(db);
    }
}

#[test]
fn a_checkpoint_behind_a_flush_has_an_empty_log() {
    let setup = Setup::new();
    let db = setup.open();
    setup.put(db, b"a", b"1");
    unsafe {
        let checkpoint = ok(|e| rocksdb_checkpoint_object_create(db, e));
        for (name, flushes) in [("flushed", 0), ("not", u64::MAX)] {
            setup.put(db, name.as_bytes(), b"2");
            let copy = setup.path(name);
            ok(|e| rocksdb_checkpoint_create(checkpoint, copy.as_ptr(), flushes, e));
            let files = std::fs::read_dir(setup.directory.path().join(name)).unwrap();
            let logs = files
                .map(Result::unwrap)
                .filter(|file| file.path().extension().is_some_and(|end| end == "log"));
            let bytes: u64 = logs.map(|log| log.metadata().unwrap().len()).sum();
            assert_eq!(bytes == 0, flushes == 0, "{name}: {bytes} bytes of logs");
            let of_copy = ok(|e| rocksdb_open(setup.options, copy.as_ptr(), e));
            assert_eq!(setup.get(of_copy, name.as_bytes()).unwrap(), b"2");
            setup.put(of_copy, b"more", b"3");
            rocksdb_close(of_copy);
            let of_copy = ok(|e| rocksdb_open(setup.options, copy.as_ptr(), e));
            assert_eq!(setup.get(of_copy, b"more").unwrap(), b"3");
            rocksdb_close(of_copy);
        }
        rocksdb_checkpoint_object_destroy(checkpoint);
        rocksdb_close(db);
    }
}

unsafe extern "C" fn not_to_be_called(_: H, _: B, _: usize, _: B, _: usize) -> c_int {
    panic!("one key has no order")
}

unsafe extern "C" fn orders_nothing(_: H) -> B {
    c"orders nothing".as_ptr()
}

#[test]
fn a_comparator_is_not_asked_about_one_key() {
    let setup = Setup::new();
    unsafe {
        let comparator = rocksdb_comparator_create(null_mut(), None, not_to_be_called, orders_nothing);
        rocksdb_options_set_comparator(setup.options, comparator);
        let db = setup.open();
        setup.put(db, b"k", b"v");
        let flush = rocksdb_flushoptions_create();
        ok(|e| rocksdb_flush(db, flush, e));
        rocksdb_flushoptions_destroy(flush);
        rocksdb_close(db);
        rocksdb_comparator_destroy(comparator);
    }
}

pub(crate) unsafe extern "C" fn merges_nothing(
    _: H,
    _: B,
    _: usize,
    _: B,
    _: usize,
    _: *const B,
    _: *const usize,
    _: c_int,
    success: *mut c_uchar,
    length: *mut usize,
) -> *mut c_char {
    unsafe {
        *success = 0;
        *length = 0;
    }
    null_mut()
}

#[test]
fn a_failed_merge_says_so_in_rocksdbs_words() {
    let setup = Setup::new();
    unsafe {
        let operator =
            rocksdb_mergeoperator_create(null_mut(), None, Some(merges_nothing), None, None, orders_nothing);
        rocksdb_options_set_merge_operator(setup.options, operator);
        let db = setup.open();
        ok(|e| rocksdb_merge(db, setup.write, at(b"k"), 1, at(b"v"), 1, e));
        let mut length = 0;
        let error = failed(|e| rocksdb_get(db, setup.read, at(b"k"), 1, &mut length, e));
        assert!(error.starts_with("Corruption") && error.contains("Merge operator failed"), "{error}");
        rocksdb_close(db);
    }
}

#[test]
fn options_are_remembered_told_in_log_and_loaded() {
    let setup = Setup::new();
    unsafe {
        let cuckoo = rocksdb_cuckoo_options_create();
        assert_eq!(rocksdb_cuckoo_options_get_max_search_depth(cuckoo), 100);
        rocksdb_cuckoo_options_set_hash_ratio(cuckoo, 0.8);
        assert_eq!(rocksdb_cuckoo_options_get_hash_table_ratio(cuckoo), 0.8);
        rocksdb_options_set_cuckoo_table_factory(setup.options, cuckoo);
        rocksdb_cuckoo_options_destroy(cuckoo);

        rocksdb_options_set_ttl(setup.options, 86400);
        rocksdb_options_add_compact_on_deletion_collector_factory_del_ratio(setup.options, 5, 10, 0.5);
        failed(|e| load(&setup, e).0);
        let db = setup.open();
        setup.put(db, b"k", b"v");
        rocksdb_close(db);
        let log = std::fs::read_to_string(setup.directory.path().join("db/LOG")).unwrap();
        for line in [
            "Options.ttl: 86400\n",
            "Options.create_if_missing: 1\n",
            "CompactOnDeletionCollector (Sliding window size = 5 Deletion trigger = 10 Deletion ratio = 0.5)",
            "  cache_index_and_filter_blocks: 0\n",
            "  data_block_index_type: 0\n",
            "  data_block_hash_table_util_ratio: 0.750000\n",
            "Jemalloc supported: 0",
        ] {
            assert!(log.contains(line), "{line}: {log}");
        }
        let (db_options, names, options, count) = ok(|e| load(&setup, e));
        assert_eq!((count, CStr::from_ptr(*names)), (1, c"default"));
        assert_eq!(
            (rocksdb_options_get_ttl(*options), rocksdb_options_get_create_if_missing(db_options)),
            (86400, 1)
        );
        let path = setup.path("db");
        let db = ok(|e| rocksdb_open(db_options, path.as_ptr(), e));
        assert_eq!(setup.get(db, b"k").unwrap(), b"v");
        rocksdb_close(db);
        rocksdb_load_latest_options_destroy(db_options, names, options, count);
        std::fs::remove_dir_all(setup.directory.path().join("db")).unwrap();
        std::fs::create_dir(setup.directory.path().join("db")).unwrap();
        let error = failed(|e| load(&setup, e).0);
        assert!(error.starts_with("NotFound"), "{error}");
    }
}

pub(crate) fn load(setup: &Setup, error: E) -> (H, *mut *mut c_char, *mut H, usize) {
    let (mut db, mut names, mut options, mut count) = (null_mut(), null_mut(), null_mut(), 0);
    let path = setup.path("db");
    unsafe {
        rocksdb_load_latest_options(
            path.as_ptr(),
            null_mut(),
            false,
            null_mut(),
            &mut db,
            &mut count,
            &mut names,
            &mut options,
            error,
        );
    }
    (db, names, options, count)
}

#[test]
fn entries_of_a_database_with_a_ttl_expire_and_hide_their_times() {
    let setup = Setup::new();
    let one = 1_u64.to_le_bytes();
    unsafe {
        rocksdb_options_set_uint64add_merge_operator(setup.options);
        let path = setup.path("db");
        let open = |ttl| ok(|e| rocksdb_open_with_ttl(setup.options, path.as_ptr(), ttl, e));
        let db = open(1000);
        setup.put(db, b"empty", b"");
        let batch = rocksdb_writebatch_create();
        rocksdb_writebatch_put(batch, at(b"a"), 1, at(b"value"), 5);
        rocksdb_writebatch_delete(batch, at(b"none"), 4);
        ok(|e| rocksdb_write(db, setup.write, batch, e));
        rocksdb_writebatch_destroy(batch);
        for _ in 0..3 {
            ok(|e| rocksdb_merge(db, setup.write, at(b"sum"), 3, at(&one), 8, e));
        }
        let check = |db: H| {
            assert_eq!(setup.get(db, b"a").unwrap(), b"value");
            assert_eq!(setup.get(db, b"empty").unwrap(), b"");
            assert_eq!(setup.get(db, b"sum").unwrap(), 3_u64.to_le_bytes());
            let mut length = 0;
            let pinned = ok(|e| rocksdb_get_pinned(db, setup.read, at(b"a"), 1, e));
            let value = rocksdb_pinnableslice_value(pinned, &mut length);
            assert_eq!(std::slice::from_raw_parts(value.cast::<u8>(), length), b"value");
            rocksdb_pinnableslice_destroy(pinned);
            let iter = rocksdb_create_iterator(db, setup.read);
            rocksdb_iter_seek(iter, at(b"a"), 1);
            let value = rocksdb_iter_value(iter, &mut length);
            assert_eq!(std::slice::from_raw_parts(value.cast::<u8>(), length), b"value");
            rocksdb_iter_destroy(iter);
            let (mut value, mut error) = (null_mut(), null_mut());
            rocksdb_multi_get(db, setup.read, 1, &at(b"a"), &1, &mut value, &mut length, &mut error);
            assert!(error.is_null());
            assert_eq!(owned(value, length).unwrap(), b"value");
        };
        check(db);
        rocksdb_compact_range(db, null(), 0, null(), 0);
        check(db);
        let name = CString::new("for ever").unwrap();
        let family = ok(|e| rocksdb_create_column_family_with_ttl(db, setup.options, name.as_ptr(), 0, e));
        ok(|e| rocksdb_put_cf(db, setup.write, family, at(b"a"), 1, at(b"stays"), 5, e));
        rocksdb_column_family_handle_destroy(family);
        rocksdb_close(db);

        let names = [c"default".as_ptr(), name.as_ptr()];
        let both = [setup.options; 2];
        let mut families = [null_mut(); 2];
        let options = setup.options;
        let call = |e| {
            rocksdb_open_column_families_with_ttl(
                options,
                path.as_ptr(),
                2,
                names.as_ptr(),
                both.as_ptr(),
                families.as_mut_ptr(),
                [1, 0].as_ptr(),
                e,
            )
        };
        let db = ok(call);
        std::thread::sleep(std::time::Duration::from_millis(2100));
        check(db);
        // The entry expires after a second; a slow machine may need several attempts.
        loop {
            let put = std::time::Instant::now();
            setup.put(db, b"new", b"young");
            rocksdb_compact_range(db, null(), 0, null(), 0);
            let keys = setup.keys(db);
            if keys == [b"new"] {
                break;
            }
            assert!(keys.is_empty() && put.elapsed().as_secs() >= 1, "{keys:?} after {:?}", put.elapsed());
        }
        rocksdb_compact_range_cf(db, families[1], null(), 0, null(), 0);
        let mut length = 0;
        let stays = ok(|e| rocksdb_get_cf(db, setup.read, families[1], at(b"a"), 1, &mut length, e));
        assert_eq!(owned(stays, length).unwrap(), b"stays");
        families.into_iter().for_each(|family| rocksdb_column_family_handle_destroy(family));
        rocksdb_close(db);

        // RocksDB stores the time in seconds behind the value.
        let call = |e| {
            rocksdb_open_column_families(
                options,
                path.as_ptr(),
                2,
                names.as_ptr(),
                both.as_ptr(),
                families.as_mut_ptr(),
                e,
            )
        };
        let db = ok(call);
        let stored = setup.get(db, b"new").unwrap();
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
        let (value, time) = stored.split_last_chunk::<4>().unwrap();
        let age = now - u64::from(u32::from_le_bytes(*time));
        assert!(value == b"young" && age < 1000, "{age} s");
        let error = failed(|e| rocksdb_create_column_family_with_ttl(db, setup.options, c"x".as_ptr(), 1, e));
        assert!(error.starts_with("Invalid argument"), "{error}");
        setup.put(db, b"without", b"it");
        families.into_iter().for_each(|family| rocksdb_column_family_handle_destroy(family));
        rocksdb_close(db);
        let db = ok(|e| {
            rocksdb_open_column_families_with_ttl(
                options,
                path.as_ptr(),
                2,
                names.as_ptr(),
                both.as_ptr(),
                families.as_mut_ptr(),
                [0, 0].as_ptr(),
                e,
            )
        });
        let mut length = 0;
        let error = failed(|e| rocksdb_get(db, setup.read, at(b"without"), 7, &mut length, e));
        assert!(error.starts_with("Corruption"), "{error}");
        families.into_iter().for_each(|family| rocksdb_column_family_handle_destroy(family));
        rocksdb_close(db);
    }
}

/// Returns a text and frees it.
unsafe fn text_of(text: *mut c_char) -> String {
    let copy = unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned();
    unsafe { libc::free(text.cast()) };
    copy
}

#[test]
fn a_family_is_told_level_by_level_and_the_files_of_a_copy_by_kind() {
    let setup = Setup::new();
    let host = CString::new("a host").unwrap();
    unsafe {
        rocksdb_options_set_db_host_id(setup.options, host.as_ptr());
        let mut length = 0;
        let told = rocksdb_options_get_db_host_id(setup.options, &mut length);
        assert_eq!(std::slice::from_raw_parts(told.cast::<u8>(), length), b"a host");
        let db = setup.open();
        let flush = rocksdb_flushoptions_create();
        for key in [b"a", b"b"] {
            setup.put(db, key, b"v");
        }
        ok(|e| rocksdb_flush(db, flush, e));
        rocksdb_flushoptions_destroy(flush);
        rocksdb_compact_range(db, null(), 0, null(), 0);

        let metadata = rocksdb_get_column_family_metadata(db);
        let levels = rocksdb_column_family_metadata_get_level_count(metadata);
        assert_eq!((levels, rocksdb_column_family_metadata_get_file_count(metadata)), (7, 1));
        assert!(rocksdb_column_family_metadata_get_level_metadata(metadata, levels).is_null());
        let mut bytes = 0;
        for at in 0..levels {
            let level = rocksdb_column_family_metadata_get_level_metadata(metadata, at);
            assert_eq!(rocksdb_level_metadata_get_level(level), at as c_int);
            bytes += rocksdb_level_metadata_get_size(level);
            let count = rocksdb_level_metadata_get_file_count(level);
            assert!(rocksdb_level_metadata_get_sst_file_metadata(level, count).is_null());
            if count == 1 {
                let table = rocksdb_level_metadata_get_sst_file_metadata(level, 0);
                // The table's handle outlives its level's.
                rocksdb_level_metadata_destroy(level);
                let directory = text_of(rocksdb_sst_file_metadata_get_directory(table));
                let name = text_of(rocksdb_sst_file_metadata_get_relative_filename(table));
                let size = std::fs::metadata(format!("{directory}/{name}")).unwrap().len();
                assert_eq!(rocksdb_sst_file_metadata_get_size(table), size);
                let key = |get: unsafe extern "C" fn(H, *mut usize) -> *mut c_char| {
                    let mut length = 0;
                    let key = get(table, &mut length);
                    (length, text_of(key))
                };
                assert_eq!(key(rocksdb_sst_file_metadata_get_smallestkey), (1, "a".to_owned()));
                assert_eq!(key(rocksdb_sst_file_metadata_get_largestkey), (1, "b".to_owned()));
                rocksdb_sst_file_metadata_destroy(table);
            } else {
                assert_eq!(count, 0);
                rocksdb_level_metadata_destroy(level);
            }
        }
        assert_eq!(rocksdb_column_family_metadata_get_size(metadata), bytes);
        rocksdb_column_family_metadata_destroy(metadata);

        setup.put(db, b"c", b"in the log");
        let options = rocksdb_livefiles_storage_info_options_create();
        assert_eq!(rocksdb_livefiles_storage_info_options_get_wal_size_for_flush(options), 0);
        rocksdb_livefiles_storage_info_options_set_wal_size_for_flush(options, u64::MAX);
        assert_eq!(rocksdb_livefiles_storage_info_options_get_wal_size_for_flush(options), u64::MAX);
        rocksdb_livefiles_storage_info_options_set_include_checksum_info(options, 1);
        assert_eq!(rocksdb_livefiles_storage_info_options_get_include_checksum_info(options), 1);
        let info = ok(|e| rocksdb_get_livefiles_storage_info(db, options, e));
        rocksdb_livefiles_storage_info_options_destroy(options);
        let count = rocksdb_livefiles_storage_info_count(info);
        assert!(rocksdb_livefiles_storage_info_directory(info, count).is_null());
        let mut kinds = Vec::new();
        for at in 0..count {
            let text = |text: B| CStr::from_ptr(text).to_str().unwrap().to_owned();
            let name = text(rocksdb_livefiles_storage_info_relative_filename(info, at));
            let directory = text(rocksdb_livefiles_storage_info_directory(info, at));
            let kind = rocksdb_livefiles_storage_info_file_type(info, at);
            let number = rocksdb_livefiles_storage_info_file_number(info, at);
            assert!(name == "CURRENT" || name.contains(&number.to_string()), "{name}: {number}");
            let size = rocksdb_livefiles_storage_info_size(info, at);
            assert!(size <= std::fs::metadata(format!("{directory}/{name}")).unwrap().len(), "{name}");
            let mut length = 0;
            let contents = rocksdb_livefiles_storage_info_replacement_contents(info, at, &mut length);
            assert_eq!((length > 0, !contents.is_null()), (name == "CURRENT", true), "{name}");
            let grows = rocksdb_livefiles_storage_info_trim_to_size(info, at) != 0;
            assert_eq!(grows, matches!(kind, 0 | 3), "{name}");
            assert_eq!(text(rocksdb_livefiles_storage_info_file_checksum(info, at)), "");
            assert_eq!(text(rocksdb_livefiles_storage_info_file_checksum_func_name(info, at)), "");
            kinds.push(kind);
        }
        kinds.sort_unstable();
        assert_eq!(kinds, [0, 2, 3, 4, 9]);
        rocksdb_livefiles_storage_info_destroy(info);
        rocksdb_close(db);
    }
}

unsafe extern "C" {
    fn rocksdb_disable_manual_compaction(db: H);
    fn rocksdb_enable_manual_compaction(db: H);
    fn rocksdb_create_dir_if_missing(env: H, dir: B, e: E);
    fn rocksdb_create_default_env() -> H;
    fn rocksdb_env_destroy(env: H);
}

#[test]
fn manual_compaction_is_switched_off_and_on() {
    let setup = Setup::new();
    let db = setup.open();
    let in_level_0 = || unsafe {
        let files = rocksdb_property_value(db, c"rocksdb.num-files-at-level0".as_ptr());
        let text = CStr::from_ptr(files).to_owned();
        rocksdb_free(files.cast());
        text
    };
    setup.put(db, b"a", b"1");
    unsafe {
        let flush = rocksdb_flushoptions_create();
        ok(|e| rocksdb_flush(db, flush, e));
        rocksdb_flushoptions_destroy(flush);
        rocksdb_disable_manual_compaction(db);
        rocksdb_compact_range(db, null(), 0, null(), 0);
        assert_eq!(in_level_0().as_c_str(), c"1");
        rocksdb_enable_manual_compaction(db);
        rocksdb_compact_range(db, null(), 0, null(), 0);
        assert_eq!(in_level_0().as_c_str(), c"0");
        // In the other order one disabling call is cancelled, too.
        rocksdb_enable_manual_compaction(db);
        rocksdb_disable_manual_compaction(db);
        for expected in [c"0", c"1"] {
            setup.put(db, b"a", b"2");
            let flush = rocksdb_flushoptions_create();
            ok(|e| rocksdb_flush(db, flush, e));
            rocksdb_flushoptions_destroy(flush);
            rocksdb_compact_range(db, null(), 0, null(), 0);
            assert_eq!(in_level_0().as_c_str(), expected);
            rocksdb_disable_manual_compaction(db);
        }
        rocksdb_close(db);
    }
}

#[test]
fn an_environment_makes_directories() {
    let setup = Setup::new();
    let env = unsafe { rocksdb_create_default_env() };
    for _ in 0..2 {
        ok(|e| unsafe { rocksdb_create_dir_if_missing(env, setup.path("made").as_ptr(), e) });
    }
    let made = std::path::PathBuf::from(setup.path("made").to_str().unwrap());
    assert!(made.is_dir());
    std::fs::write(made.join("file"), "").unwrap();
    failed(|e| unsafe { rocksdb_create_dir_if_missing(env, setup.path("made/file").as_ptr(), e) });
    unsafe { rocksdb_env_destroy(env) };
}
