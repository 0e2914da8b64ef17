//! Behaviour that the tests of other languages' bindings rely on, beyond RocksDB's header.

use super::*;

unsafe extern "C" {
    fn rocksdb_key_may_exist(
        db: H,
        r: H,
        k: B,
        n: usize,
        v: E,
        l: *mut usize,
        t: B,
        tn: usize,
        f: *mut c_uchar,
    ) -> c_uchar;
    fn rocksdb_backup_engine_open_opts(o: H, env: H, e: E) -> H;
    fn rocksdb_backup_engine_options_get_max_valid_backups_to_open(o: H) -> c_int;
    fn rocksdb_backup_engine_options_get_share_files_with_checksum_naming(o: H) -> c_int;
    fn rocksdb_backup_engine_options_set_share_files_with_checksum_naming(o: H, v: c_int);
    fn rocksdb_backup_engine_options_get_schema_version(o: H) -> c_int;
    fn rocksdb_create_default_env() -> H;
    fn rocksdb_cache_create_lru(n: usize) -> H;
    fn rocksdb_cache_create_lru_opts(o: H) -> H;
    fn rocksdb_cache_get_capacity(c: H) -> usize;
    fn rocksdb_cache_get_usage(c: H) -> usize;
    fn rocksdb_cache_destroy(c: H);
    fn rocksdb_lru_cache_options_create() -> H;
    fn rocksdb_lru_cache_options_destroy(o: H);
    fn rocksdb_lru_cache_options_set_capacity(o: H, n: usize);
    fn rocksdb_lru_cache_options_set_memory_allocator(o: H, a: H);
    fn rocksdb_hyper_clock_cache_options_create(n: usize, charge: usize) -> H;
    fn rocksdb_hyper_clock_cache_options_destroy(o: H);
    fn rocksdb_hyper_clock_cache_options_set_memory_allocator(o: H, a: H);
    fn rocksdb_cache_create_hyper_clock_opts(o: H) -> H;
    fn rocksdb_jemalloc_nodump_allocator_create(e: E) -> H;
    fn rocksdb_memory_allocator_destroy(a: H);
    fn rocksdb_options_set_enable_blob_files(o: H, v: c_uchar);
    fn rocksdb_options_set_blob_cache(o: H, c: H);
    fn rocksdb_memory_consumers_create() -> H;
    fn rocksdb_memory_consumers_destroy(m: H);
    fn rocksdb_memory_consumers_add_cache(m: H, c: H);
    fn rocksdb_approximate_memory_usage_create(m: H, e: E) -> H;
    fn rocksdb_approximate_memory_usage_destroy(u: H);
    fn rocksdb_approximate_memory_usage_get_cache_total(u: H) -> u64;
    fn rocksdb_block_based_options_create() -> H;
    fn rocksdb_block_based_options_destroy(o: H);
    fn rocksdb_block_based_options_set_block_cache(o: H, c: H);
    fn rocksdb_options_set_block_based_table_factory(o: H, t: H);
    fn rocksdb_get_default_column_family_handle(db: H) -> H;
    fn rocksdb_flush_cf(db: H, o: H, cf: H, e: E);
    fn rocksdb_env_destroy(env: H);
}

#[test]
fn a_key_that_is_known_is_found_also_if_it_is_known_to_be_gone() {
    let setup = Setup::new();
    let db = setup.open();
    // Returns the answer, `found`, the value and its length.
    let look = |key: &[u8]| unsafe {
        let (mut value, mut length, mut found) = (null_mut(), 7, 7);
        let may = rocksdb_key_may_exist(
            db,
            setup.read,
            at(key),
            key.len(),
            &mut value,
            &mut length,
            null(),
            0,
            &mut found,
        );
        (may, found, owned(value, length), length)
    };
    setup.put(db, b"there", b"value");
    setup.put(db, b"gone", b"value");
    ok(|e| unsafe { rocksdb_delete(db, setup.write, at(b"gone"), 4, e) });
    assert_eq!(look(b"there"), (1, 1, Some(b"value".to_vec()), 5));
    assert_eq!(look(b"gone"), (0, 1, None, 0));
    assert_eq!(look(b"never"), (0, 1, None, 0));
    unsafe {
        rocksdb_close(db);
        // Reads a table of which no block has been read yet.
        let db = setup.open();
        let flush = rocksdb_flushoptions_create();
        ok(|e| rocksdb_flush(db, flush, e));
        rocksdb_flushoptions_destroy(flush);
        rocksdb_close(db);
        let db = setup.open();
        let (mut value, mut length, mut found) = (null_mut(), 7, 7);
        let may = rocksdb_key_may_exist(
            db,
            setup.read,
            at(b"there"),
            5,
            &mut value,
            &mut length,
            null(),
            0,
            &mut found,
        );
        assert_eq!((may, found, value.is_null(), length), (1, 0, true, 7));
        rocksdb_close(db);
    }
}

#[test]
fn backups_may_be_in_the_directory_of_their_database() {
    let setup = Setup::new();
    let db = setup.open();
    setup.put(db, b"a", b"1");
    unsafe {
        let engine = ok(|e| rocksdb_backup_engine_open(setup.options, setup.path("db").as_ptr(), e));
        ok(|e| rocksdb_backup_engine_create_new_backup(engine, db, e));
        let error = failed(|e| rocksdb_backup_engine_open(setup.options, setup.path("db").as_ptr(), e));
        assert!(error.contains("another engine has the directory open"), "{error}");
        setup.put(db, b"b", b"2");
        ok(|e| rocksdb_backup_engine_create_new_backup(engine, db, e));
        rocksdb_close(db);
        let db = setup.open();
        assert_eq!(setup.keys(db), [b"a", b"b"]);
        let restore = rocksdb_restore_options_create();
        let to = setup.path("restored");
        ok(|e| {
            rocksdb_backup_engine_restore_db_from_latest_backup(engine, to.as_ptr(), to.as_ptr(), restore, e);
        });
        rocksdb_restore_options_destroy(restore);
        rocksdb_backup_engine_close(engine);
        rocksdb_close(db);
        let db = ok(|e| rocksdb_open(setup.options, to.as_ptr(), e));
        assert_eq!(setup.keys(db), [b"a", b"b"]);
        rocksdb_close(db);
    }
}

#[test]
fn settings_of_backups_tell_what_backups_are_made_like() {
    let setup = Setup::new();
    unsafe {
        let settings = rocksdb_backup_engine_options_create(setup.path("backups").as_ptr());
        assert_eq!(rocksdb_backup_engine_options_get_max_valid_backups_to_open(settings), c_int::MAX);
        assert_eq!(rocksdb_backup_engine_options_get_schema_version(settings), 1);
        let naming = rocksdb_backup_engine_options_get_share_files_with_checksum_naming(settings);
        assert_eq!(naming as u32, 0x8000_0002, "by session and size");
        rocksdb_backup_engine_options_set_share_files_with_checksum_naming(settings, 3);
        assert_eq!(rocksdb_backup_engine_options_get_share_files_with_checksum_naming(settings), 3);
        rocksdb_backup_engine_options_set_share_files_with_checksum_naming(settings, naming);
        // An engine accepts the settings.
        let env = rocksdb_create_default_env();
        let engine = ok(|e| rocksdb_backup_engine_open_opts(settings, env, e));
        let db = setup.open();
        setup.put(db, b"a", b"1");
        let flush = rocksdb_flushoptions_create();
        ok(|e| rocksdb_flush(db, flush, e));
        rocksdb_flushoptions_destroy(flush);
        ok(|e| rocksdb_backup_engine_create_new_backup(engine, db, e));
        let shared = setup.directory.path().join("backups/shared_checksum");
        let mut tables = std::fs::read_dir(shared).unwrap().map(|entry| entry.unwrap());
        let table = tables.next().unwrap();
        let size = table.metadata().unwrap().len();
        let name = table.file_name().into_string().unwrap();
        assert!(name.contains("_s") && name.ends_with(&format!("_{size}.sst")), "{name}");
        rocksdb_close(db);
        rocksdb_backup_engine_close(engine);
        rocksdb_env_destroy(env);
        rocksdb_backup_engine_options_destroy(settings);
    }
}

#[test]
fn blob_values_lie_in_the_cache_that_the_options_were_given() {
    let setup = Setup::new();
    unsafe {
        let cache = rocksdb_cache_create_lru(1 << 20);
        rocksdb_options_set_enable_blob_files(setup.options, 1);
        let of_family = rocksdb_options_create();
        rocksdb_options_set_enable_blob_files(of_family, 1);
        rocksdb_options_set_blob_cache(of_family, cache);
        let db = setup.open();
        let family = ok(|e| rocksdb_create_column_family(db, of_family, c"own".as_ptr(), e));
        rocksdb_options_destroy(of_family);
        let flush = rocksdb_flushoptions_create();
        let value = [7; 10_000];
        let put = |family| {
            ok(|e| rocksdb_put_cf(db, setup.write, family, at(b"k"), 1, at(&value), value.len(), e));
            ok(|e| rocksdb_flush_cf(db, flush, family, e));
            let mut length = 0;
            let read = ok(|e| rocksdb_get_cf(db, setup.read, family, at(b"k"), 1, &mut length, e));
            assert_eq!(owned(read, length).unwrap(), value);
            rocksdb_cache_get_usage(cache)
        };
        let default = rocksdb_get_default_column_family_handle(db);
        assert_eq!(put(default), 0, "the default family has none");
        assert!(put(family) >= 10_000);
        rocksdb_column_family_handle_destroy(default);
        rocksdb_column_family_handle_destroy(family);
        rocksdb_flushoptions_destroy(flush);
        rocksdb_close(db);
        // The cache is removed from the options.
        let other = rocksdb_cache_create_lru(1 << 20);
        rocksdb_options_set_blob_cache(setup.options, other);
        rocksdb_options_set_blob_cache(setup.options, null_mut());
        let names = [c"default".as_ptr(), c"own".as_ptr()];
        let mut handles = [null_mut(); 2];
        let options = [setup.options; 2];
        let path = setup.path("db");
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
        let read = ok(|e| rocksdb_get_cf(db, setup.read, handles[1], at(b"k"), 1, &mut length, e));
        assert_eq!(owned(read, length).unwrap(), value);
        assert_eq!(rocksdb_cache_get_usage(other), 0);
        for handle in handles {
            rocksdb_column_family_handle_destroy(handle);
        }
        rocksdb_close(db);
        rocksdb_cache_destroy(other);
        rocksdb_cache_destroy(cache);
    }
}

#[test]
fn there_is_no_allocator_but_the_default_one() {
    unsafe {
        let error = failed(|e| assert!(rocksdb_jemalloc_nodump_allocator_create(e).is_null()));
        assert!(error.starts_with("Not implemented: ") && error.contains("without jemalloc"), "{error}");
        rocksdb_memory_allocator_destroy(null_mut());
        let settings = rocksdb_lru_cache_options_create();
        rocksdb_lru_cache_options_set_capacity(settings, 12345);
        rocksdb_lru_cache_options_set_memory_allocator(settings, null_mut());
        let lru = rocksdb_cache_create_lru_opts(settings);
        rocksdb_lru_cache_options_destroy(settings);
        let settings = rocksdb_hyper_clock_cache_options_create(54321, 0);
        rocksdb_hyper_clock_cache_options_set_memory_allocator(settings, null_mut());
        let clock = rocksdb_cache_create_hyper_clock_opts(settings);
        rocksdb_hyper_clock_cache_options_destroy(settings);
        assert_eq!([lru, clock].map(|cache| rocksdb_cache_get_capacity(cache)), [12345, 54321]);
        for cache in [lru, clock] {
            rocksdb_cache_destroy(cache);
        }
    }
}

#[test]
fn the_memory_of_a_cache_is_more_than_what_is_in_it() {
    let setup = Setup::new();
    unsafe {
        let (cache, table) = (rocksdb_cache_create_lru(1 << 20), rocksdb_block_based_options_create());
        rocksdb_block_based_options_set_block_cache(table, cache);
        rocksdb_options_set_block_based_table_factory(setup.options, table);
        rocksdb_block_based_options_destroy(table);
        let consumers = rocksdb_memory_consumers_create();
        rocksdb_memory_consumers_add_cache(consumers, cache);
        let memory = || {
            let usage = ok(|e| rocksdb_approximate_memory_usage_create(consumers, e));
            let bytes = rocksdb_approximate_memory_usage_get_cache_total(usage);
            rocksdb_approximate_memory_usage_destroy(usage);
            bytes as usize
        };
        let db = setup.open();
        assert_eq!(rocksdb_cache_get_usage(cache), 0);
        let empty = memory();
        assert!((1000..1 << 20).contains(&empty), "the slots of its table: {empty}");
        setup.put(db, b"k", &[7; 100_000]);
        let flush = rocksdb_flushoptions_create();
        ok(|e| rocksdb_flush(db, flush, e));
        rocksdb_flushoptions_destroy(flush);
        assert_eq!(setup.get(db, b"k").unwrap().len(), 100_000);
        let filled = memory();
        assert!((empty + 100_000..empty + 110_000).contains(&filled), "{filled} after {empty}");
        rocksdb_memory_consumers_destroy(consumers);
        rocksdb_close(db);
        rocksdb_cache_destroy(cache);
    }
}
