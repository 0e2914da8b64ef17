//! Settings of single calls, and objects that databases share, each tested by its effect.

use super::*;
use std::sync::mpsc;
use std::time::{Duration, Instant};

type Sizes = unsafe extern "C" fn(H, H, c_int, *const B, *const usize, *const B, *const usize, *mut u64, E);

unsafe extern "C" {
    fn rocksdb_size_approximation_options_create() -> H;
    fn rocksdb_size_approximation_options_destroy(o: H);
    fn rocksdb_size_approximation_options_set_include_memtables(o: H, v: c_uchar);
    fn rocksdb_size_approximation_options_get_include_memtables(o: H) -> c_uchar;
    fn rocksdb_size_approximation_options_set_include_files(o: H, v: c_uchar);
    fn rocksdb_size_approximation_options_get_include_files(o: H) -> c_uchar;
    fn rocksdb_size_approximation_options_set_include_blob_files(o: H, v: c_uchar);
    fn rocksdb_size_approximation_options_get_include_blob_files(o: H) -> c_uchar;
    fn rocksdb_size_approximation_options_set_files_size_error_margin(o: H, v: f64);
    fn rocksdb_size_approximation_options_get_files_size_error_margin(o: H) -> f64;
    fn rocksdb_approximate_sizes_with_options(
        db: H,
        o: H,
        n: c_int,
        s: *const B,
        sn: *const usize,
        l: *const B,
        ln: *const usize,
        out: *mut u64,
        e: E,
    );
    fn rocksdb_approximate_sizes_cf_with_options(
        db: H,
        cf: H,
        o: H,
        n: c_int,
        s: *const B,
        sn: *const usize,
        l: *const B,
        ln: *const usize,
        out: *mut u64,
        e: E,
    );
    fn rocksdb_approximate_sizes_cf_with_flags(
        db: H,
        cf: H,
        n: c_int,
        s: *const B,
        sn: *const usize,
        l: *const B,
        ln: *const usize,
        f: u8,
        out: *mut u64,
        e: E,
    );
    fn rocksdb_get_default_column_family_handle(db: H) -> H;
    fn rocksdb_options_set_max_write_buffer_number(o: H, n: c_int);
    fn rocksdb_options_set_enable_blob_files(o: H, v: c_uchar);
    fn rocksdb_options_set_manual_wal_flush(o: H, v: c_uchar);
    fn rocksdb_options_enable_statistics(o: H);
    fn rocksdb_options_statistics_get_string(o: H) -> *mut c_char;
    fn rocksdb_flushwaloptions_create() -> H;
    fn rocksdb_flushwaloptions_destroy(o: H);
    fn rocksdb_flushwaloptions_set_sync(o: H, v: c_uchar);
    fn rocksdb_flushwaloptions_get_sync(o: H) -> c_uchar;
    fn rocksdb_flushwaloptions_set_rate_limiter_priority(o: H, v: c_int);
    fn rocksdb_flushwaloptions_get_rate_limiter_priority(o: H) -> c_int;
    fn rocksdb_flush_wal_with_options(db: H, o: H, e: E);
    fn rocksdb_transactiondb_flush_wal_with_options(db: H, o: H, e: E);
    fn rocksdb_transactiondb_put(db: H, o: H, k: B, kn: usize, v: B, vn: usize, e: E);
    fn rocksdb_verify_checksum_with_options(db: H, o: H, e: E);
    fn rocksdb_verify_file_checksums_with_options(db: H, o: H, e: E);
    fn rocksdb_readoptions_set_io_timeout(o: H, v: u64);
    fn rocksdb_optimistictransactiondb_options_create() -> H;
    fn rocksdb_optimistictransactiondb_options_destroy(o: H);
    fn rocksdb_optimistictransactiondb_options_set_occ_lock_buckets(o: H, v: u32);
    fn rocksdb_optimistictransactiondb_options_get_occ_lock_buckets(o: H) -> u32;
    fn rocksdb_optimistictransactiondb_options_set_validate_policy(o: H, v: c_int);
    fn rocksdb_optimistictransactiondb_options_get_validate_policy(o: H) -> c_int;
    fn rocksdb_optimistictransactiondb_options_set_shared_lock_buckets(o: H, b: H);
    fn rocksdb_optimistictransactiondb_lock_buckets_create(n: usize, aligned: c_uchar) -> H;
    fn rocksdb_optimistictransactiondb_lock_buckets_approximate_memory_usage(b: H) -> usize;
    fn rocksdb_optimistictransactiondb_lock_buckets_destroy(b: H);
    fn rocksdb_optimistictransactiondb_open_with_otxn_db_options(o: H, t: H, n: B, e: E) -> H;
    fn rocksdb_optimistictransactiondb_open_column_families_with_otxn_db_options(
        o: H,
        t: H,
        n: B,
        count: c_int,
        names: *const B,
        os: *const H,
        hs: *mut H,
        e: E,
    ) -> H;
    fn rocksdb_ratelimiter_create_auto_tuned(rate: i64, period: i64, fairness: i32) -> H;
    fn rocksdb_ratelimiter_create_with_mode(
        rate: i64,
        period: i64,
        fairness: i32,
        mode: c_int,
        tuned: bool,
    ) -> H;
    fn rocksdb_ratelimiter_destroy(l: H);
    fn rocksdb_options_set_ratelimiter(o: H, l: H);
    fn rocksdb_cache_create_lru(n: usize) -> H;
    fn rocksdb_cache_create_lru_opts(o: H) -> H;
    fn rocksdb_cache_create_hyper_clock_opts(o: H) -> H;
    fn rocksdb_cache_get_capacity(c: H) -> usize;
    fn rocksdb_cache_destroy(c: H);
    fn rocksdb_lru_cache_options_create() -> H;
    fn rocksdb_lru_cache_options_destroy(o: H);
    fn rocksdb_lru_cache_options_set_capacity(o: H, n: usize);
    fn rocksdb_lru_cache_options_set_num_shard_bits(o: H, n: c_int);
    fn rocksdb_hyper_clock_cache_options_create(n: usize, charge: usize) -> H;
    fn rocksdb_hyper_clock_cache_options_destroy(o: H);
    fn rocksdb_hyper_clock_cache_options_set_num_shard_bits(o: H, n: c_int);
    fn rocksdb_write_buffer_manager_create(n: usize, stall: bool) -> H;
    fn rocksdb_write_buffer_manager_create_with_cache(n: usize, c: H, stall: bool) -> H;
    fn rocksdb_write_buffer_manager_memory_usage(b: H) -> usize;
    fn rocksdb_write_buffer_manager_dummy_entries_in_cache_usage(b: H) -> usize;
    fn rocksdb_write_buffer_manager_set_allow_stall(b: H, v: bool);
    fn rocksdb_write_buffer_manager_destroy(b: H);
    fn rocksdb_options_set_write_buffer_manager(o: H, b: H);
    fn rocksdb_pause_background_work(db: H, e: E);
    fn rocksdb_continue_background_work(db: H, e: E);
    fn rocksdb_options_checksum_handoff_file_types_add(o: H, v: c_int);
    fn rocksdb_options_checksum_handoff_file_types_remove(o: H, v: c_int);
    fn rocksdb_options_checksum_handoff_file_types_clear(o: H);
    fn rocksdb_options_checksum_handoff_file_types_contains(o: H, v: c_int) -> c_uchar;
    fn rocksdb_options_checksum_handoff_file_types_count(o: H) -> usize;
    fn rocksdb_options_calculate_sst_write_lifetime_hint_set_add(o: H, v: c_int);
    fn rocksdb_options_calculate_sst_write_lifetime_hint_set_remove(o: H, v: c_int);
    fn rocksdb_options_calculate_sst_write_lifetime_hint_set_clear(o: H);
    fn rocksdb_options_calculate_sst_write_lifetime_hint_set_contains(o: H, v: c_int) -> c_uchar;
    fn rocksdb_options_calculate_sst_write_lifetime_hint_set_count(o: H) -> usize;
    fn rocksdb_options_set_daily_offpeak_time_utc(o: H, t: B);
    fn rocksdb_options_get_daily_offpeak_time_utc(o: H, n: *mut usize) -> B;
    fn rocksdb_options_set_memtable_vector_rep(o: H);
    fn rocksdb_options_set_hash_skip_list_rep(o: H, n: usize, height: i32, factor: i32);
    fn rocksdb_readoptions_set_merge_operand_count_threshold(o: H, n: usize);
    fn rocksdb_readoptions_get_merge_operand_count_threshold(o: H) -> usize;
    fn rocksdb_readoptions_has_merge_operand_count_threshold(o: H) -> c_uchar;
    fn rocksdb_readoptions_clear_merge_operand_count_threshold(o: H);
    fn rocksdb_readoptions_set_request_id(o: H, s: B, n: usize);
    fn rocksdb_readoptions_get_request_id(o: H, n: *mut usize) -> B;
    fn rocksdb_readoptions_clear_request_id(o: H);
    fn rocksdb_readoptions_clear_table_index_factory(o: H);
    fn rocksdb_readoptions_get_table_index_factory_name(o: H, n: *mut usize) -> B;
    fn rocksdb_block_based_options_create() -> H;
    fn rocksdb_block_based_options_destroy(o: H);
    fn rocksdb_block_based_options_clear_user_defined_index_factory(o: H);
    fn rocksdb_block_based_options_get_user_defined_index_factory_name(o: H, n: *mut usize) -> B;
}

impl Setup {
    pub(super) fn flush(&self, db: H) {
        unsafe {
            let options = rocksdb_flushoptions_create();
            ok(|e| rocksdb_flush(db, options, e));
            rocksdb_flushoptions_destroy(options);
        }
    }

    /// Returns the value of a ticker.
    pub(super) fn count(&self, name: &str) -> u64 {
        unsafe {
            let text = rocksdb_options_statistics_get_string(self.options);
            let lines = CStr::from_ptr(text).to_str().unwrap().to_owned();
            rocksdb_free(text.cast());
            let line = lines.lines().find(|line| line.starts_with(name)).unwrap();
            line.rsplit(' ').next().unwrap().parse().unwrap()
        }
    }
}

#[test]
fn sizes_are_those_of_what_the_options_include() {
    let setup = Setup::new();
    unsafe { rocksdb_options_set_enable_blob_files(setup.options, 1) };
    let db = setup.open();
    // Incompressible values.
    let value: Vec<u8> = (0..1000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let fill = |letter: u8| (0..100).for_each(|n| setup.put(db, &[letter, n], &value));
    fill(b'a');
    setup.flush(db);
    fill(b'b');
    unsafe {
        let options = rocksdb_size_approximation_options_create();
        let family = rocksdb_get_default_column_family_handle(db);
        assert_eq!(rocksdb_size_approximation_options_get_files_size_error_margin(options), -1.0);
        rocksdb_size_approximation_options_set_files_size_error_margin(options, 0.5);
        assert_eq!(rocksdb_size_approximation_options_get_files_size_error_margin(options), 0.5);
        rocksdb_size_approximation_options_set_files_size_error_margin(options, -1.0);
        let (starts, limits, lengths) = ([at(b"a"), at(b"b")], [at(b"b"), at(b"c")], [1, 1]);
        let (s, l, n) = (starts.as_ptr(), limits.as_ptr(), lengths.as_ptr());
        // Returns the sizes in files and in memory, after comparing all calls.
        let sizes = |memory: u8, files: u8, blobs: u8| {
            rocksdb_size_approximation_options_set_include_memtables(options, memory);
            rocksdb_size_approximation_options_set_include_files(options, files);
            rocksdb_size_approximation_options_set_include_blob_files(options, blobs);
            assert_eq!(rocksdb_size_approximation_options_get_include_memtables(options), memory);
            assert_eq!(rocksdb_size_approximation_options_get_include_files(options), files);
            assert_eq!(rocksdb_size_approximation_options_get_include_blob_files(options), blobs);
            let [mut plain, mut of_family, mut by_flags] = [[0; 2]; 3];
            ok(|e| rocksdb_approximate_sizes_with_options(db, options, 2, s, n, l, n, plain.as_mut_ptr(), e));
            ok(|e| {
                rocksdb_approximate_sizes_cf_with_options(
                    db,
                    family,
                    options,
                    2,
                    s,
                    n,
                    l,
                    n,
                    of_family.as_mut_ptr(),
                    e,
                )
            });
            let flags = memory | files << 1 | blobs << 2;
            ok(|e| {
                rocksdb_approximate_sizes_cf_with_flags(
                    db,
                    family,
                    2,
                    s,
                    n,
                    l,
                    n,
                    flags,
                    by_flags.as_mut_ptr(),
                    e,
                )
            });
            assert_eq!((plain, plain), (of_family, by_flags));
            plain
        };
        let [memory, files, blobs] = [sizes(1, 0, 0), sizes(0, 1, 0), sizes(0, 0, 1)];
        assert!(memory[0] == 0 && memory[1] > 50_000, "{memory:?}");
        assert!(files[0] > 100 && files[0] < 50_000 && files[1] == 0, "{files:?}");
        assert!(blobs[0] > 50_000 && blobs[1] == 0, "{blobs:?}");
        assert_eq!(sizes(1, 1, 1), [0, 1].map(|at| memory[at] + files[at] + blobs[at]));

        let mut out = [0; 2];
        let call: Sizes = rocksdb_approximate_sizes_with_options;
        ok(|e| call(db, null_mut(), 2, s, n, l, n, out.as_mut_ptr(), e));
        assert_eq!(out, files, "the defaults");
        rocksdb_size_approximation_options_set_include_memtables(options, 0);
        rocksdb_size_approximation_options_set_include_files(options, 0);
        rocksdb_size_approximation_options_set_include_blob_files(options, 0);
        let nothing = failed(|e| call(db, options, 2, s, n, l, n, out.as_mut_ptr(), e));
        assert!(nothing.starts_with("Invalid argument"), "{nothing}");
        rocksdb_size_approximation_options_destroy(options);
        rocksdb_column_family_handle_destroy(family);
        rocksdb_close(db);
    }
}

/// Returns the bytes of the logs in a directory.
fn logged(path: &CStr) -> u64 {
    let files = std::fs::read_dir(path.to_str().unwrap()).unwrap().map(Result::unwrap);
    let logs = files.filter(|file| file.path().extension().is_some_and(|ext| ext == "log"));
    logs.map(|file| file.metadata().unwrap().len()).sum()
}

#[test]
fn the_log_is_flushed_with_options() {
    let setup = Setup::new();
    unsafe {
        rocksdb_options_set_manual_wal_flush(setup.options, 1);
        rocksdb_options_enable_statistics(setup.options);
        let options = rocksdb_flushwaloptions_create();
        assert_eq!(rocksdb_flushwaloptions_get_rate_limiter_priority(options), 4);
        rocksdb_flushwaloptions_set_rate_limiter_priority(options, 0);
        assert_eq!(rocksdb_flushwaloptions_get_rate_limiter_priority(options), 0);
        assert_eq!(rocksdb_flushwaloptions_get_sync(options), 0);

        let (db, path) = (setup.open(), setup.path("db"));
        setup.put(db, b"a", b"1");
        let before = logged(&path);
        ok(|e| rocksdb_flush_wal_with_options(db, null_mut(), e));
        let after = logged(&path);
        assert!(after > before, "{before} {after}");
        let syncs = setup.count("rocksdb.wal.synced");
        setup.put(db, b"b", b"2");
        ok(|e| rocksdb_flush_wal_with_options(db, options, e));
        assert!(logged(&path) > after && setup.count("rocksdb.wal.synced") == syncs);
        rocksdb_flushwaloptions_set_sync(options, 1);
        assert_eq!(rocksdb_flushwaloptions_get_sync(options), 1);
        ok(|e| rocksdb_flush_wal_with_options(db, options, e));
        assert!(setup.count("rocksdb.wal.synced") > syncs);
        rocksdb_close(db);

        let settings = rocksdb_transactiondb_options_create();
        let path = setup.path("locking");
        let db = ok(|e| rocksdb_transactiondb_open(setup.options, settings, path.as_ptr(), e));
        ok(|e| rocksdb_transactiondb_put(db, setup.write, at(b"a"), 1, at(b"1"), 1, e));
        let (before, syncs) = (logged(&path), setup.count("rocksdb.wal.synced"));
        ok(|e| rocksdb_transactiondb_flush_wal_with_options(db, options, e));
        assert!(logged(&path) > before && setup.count("rocksdb.wal.synced") > syncs);
        rocksdb_transactiondb_options_destroy(settings);
        rocksdb_flushwaloptions_destroy(options);
        rocksdb_transactiondb_close(db);
    }
}

#[test]
fn files_are_verified_with_read_options() {
    let setup = Setup::new();
    unsafe {
        let factory = rocksdb_file_checksum_gen_crc32c_factory_create();
        rocksdb_options_set_file_checksum_gen_factory(setup.options, factory);
        rocksdb_file_checksum_gen_factory_destroy(factory);
    }
    let db = setup.open();
    setup.put(db, b"a", &[b'v'; 5000]);
    setup.flush(db);
    let calls = [rocksdb_verify_checksum_with_options, rocksdb_verify_file_checksums_with_options];
    unsafe {
        for options in [null_mut(), setup.read] {
            calls.iter().for_each(|call| ok(|e| call(db, options, e)));
        }
        let limited = rocksdb_readoptions_create();
        rocksdb_readoptions_set_io_timeout(limited, 1);
        for call in calls {
            assert!(failed(|e| call(db, limited, e)).starts_with("Not implemented"));
        }
        rocksdb_readoptions_destroy(limited);
        let files =
            std::fs::read_dir(setup.path("db").to_str().unwrap()).unwrap().map(|file| file.unwrap().path());
        let table = { files }.find(|path| path.extension().is_some_and(|ext| ext == "sst")).unwrap();
        let mut bytes = std::fs::read(&table).unwrap();
        bytes[10] ^= 1;
        std::fs::write(&table, bytes).unwrap();
        for call in calls {
            let error = failed(|e| call(db, setup.read, e));
            assert!(error.starts_with("Corruption"), "{error}");
        }
        rocksdb_close(db);
    }
}

#[test]
fn optimistic_transactions_have_options_of_their_database() {
    let setup = Setup::new();
    unsafe {
        let options = rocksdb_optimistictransactiondb_options_create();
        assert_eq!(rocksdb_optimistictransactiondb_options_get_occ_lock_buckets(options), 1 << 20);
        assert_eq!(rocksdb_optimistictransactiondb_options_get_validate_policy(options), 1);
        rocksdb_optimistictransactiondb_options_set_validate_policy(options, 0);
        assert_eq!(rocksdb_optimistictransactiondb_options_get_validate_policy(options), 0);
        let buckets = rocksdb_optimistictransactiondb_lock_buckets_create(1, 1);
        assert_eq!(rocksdb_optimistictransactiondb_lock_buckets_approximate_memory_usage(buckets), 8);
        let begin = rocksdb_optimistictransaction_options_create();
        // Of two transactions on one key, the first commits, with any number of buckets.
        let one_wins = |db: H| {
            let [first, second] =
                [(); 2].map(|()| rocksdb_optimistictransaction_begin(db, setup.write, begin, null_mut()));
            for transaction in [first, second] {
                ok(|e| rocksdb_transaction_put(transaction, at(b"a"), 1, at(b"1"), 1, e));
            }
            ok(|e| rocksdb_transaction_commit(first, e));
            let lost = failed(|e| rocksdb_transaction_commit(second, e));
            assert!(lost.starts_with("Resource busy"), "{lost}");
            rocksdb_transaction_destroy(first);
            rocksdb_transaction_destroy(second);
        };
        let path = setup.path("db");
        rocksdb_optimistictransactiondb_options_set_occ_lock_buckets(options, 2);
        assert_eq!(rocksdb_optimistictransactiondb_options_get_occ_lock_buckets(options), 2);
        for settings in [null_mut(), options] {
            let open = rocksdb_optimistictransactiondb_open_with_otxn_db_options;
            let db = ok(|e| open(setup.options, settings, path.as_ptr(), e));
            one_wins(db);
            rocksdb_optimistictransactiondb_close(db);
        }
        // Shared buckets leave the number unchanged.
        rocksdb_optimistictransactiondb_options_set_shared_lock_buckets(options, buckets);
        rocksdb_optimistictransactiondb_lock_buckets_destroy(buckets);
        assert_eq!(rocksdb_optimistictransactiondb_options_get_occ_lock_buckets(options), 2);
        let (names, families, mut handles) = ([c"default".as_ptr()], [setup.options], [null_mut()]);
        let open = rocksdb_optimistictransactiondb_open_column_families_with_otxn_db_options;
        let db = ok(|e| {
            open(
                setup.options,
                options,
                path.as_ptr(),
                1,
                names.as_ptr(),
                families.as_ptr(),
                handles.as_mut_ptr(),
                e,
            )
        });
        one_wins(db);
        rocksdb_column_family_handle_destroy(handles[0]);
        rocksdb_optimistictransactiondb_close(db);
        rocksdb_optimistictransactiondb_options_set_shared_lock_buckets(options, null_mut());
        rocksdb_optimistictransaction_options_destroy(begin);
        rocksdb_optimistictransactiondb_options_destroy(options);
    }
}

#[test]
fn limiters_of_writes_slow_flushes_down() {
    let value: Vec<u8> = (0..300_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    unsafe {
        // Both admit 100 KB in a period of 100 ms; the auto-tuned one begins with half of its rate.
        let tuned = rocksdb_ratelimiter_create_auto_tuned(2_000_000, 100_000, 10);
        let plain = rocksdb_ratelimiter_create_with_mode(1_000_000, 100_000, 10, 1, false);
        for limiter in [tuned, plain] {
            assert!(!limiter.is_null());
            let setup = Setup::new();
            rocksdb_options_set_compression(setup.options, 0);
            rocksdb_options_set_ratelimiter(setup.options, limiter);
            rocksdb_ratelimiter_destroy(limiter);
            let db = setup.open();
            setup.put(db, b"a", &value);
            let start = Instant::now();
            setup.flush(db);
            assert!(start.elapsed() >= Duration::from_millis(150), "{:?}", start.elapsed());
            rocksdb_close(db);
        }
        // Limiters of reads, and of reads and writes, are refused.
        for mode in [0, 2] {
            assert!(rocksdb_ratelimiter_create_with_mode(1_000_000, 100_000, 10, mode, false).is_null());
        }
    }
}

#[test]
fn a_budget_of_memtables_is_told_and_stalls_while_it_may() {
    const LIMIT: usize = 1 << 20;
    let setup = Setup::new();
    unsafe {
        let cache = rocksdb_cache_create_lru(64 << 20);
        let buffers = rocksdb_write_buffer_manager_create_with_cache(LIMIT, cache, true);
        assert_eq!(rocksdb_write_buffer_manager_dummy_entries_in_cache_usage(buffers), 0);
        rocksdb_options_set_write_buffer_manager(setup.options, buffers);
        // The budget stops writers, not the number of memtables.
        rocksdb_options_set_max_write_buffer_number(setup.options, 100);
        let db = setup.open();
        // Nothing is flushed, so that the budget stays exhausted.
        ok(|e| rocksdb_pause_background_work(db, e));
        let (done, wait) = mpsc::channel();
        let handles = [db as usize, setup.write as usize];
        let writer = std::thread::spawn(move || {
            let [db, write] = handles.map(|handle| handle as H);
            for number in 0..4 * LIMIT / 1024 {
                let key = number.to_be_bytes();
                ok(|e| rocksdb_put(db, write, at(&key), key.len(), at(&[0; 1024]), 1024, e));
            }
            done.send(()).unwrap();
        });
        let start = Instant::now();
        while rocksdb_write_buffer_manager_memory_usage(buffers) < LIMIT {
            assert!(start.elapsed() < Duration::from_secs(60), "the budget is never used up");
            std::thread::yield_now();
        }
        assert!(rocksdb_write_buffer_manager_dummy_entries_in_cache_usage(buffers) >= LIMIT);
        assert!(wait.recv_timeout(Duration::from_millis(200)).is_err(), "the writer did not wait");
        assert!(rocksdb_write_buffer_manager_memory_usage(buffers) < 3 * LIMIT);
        rocksdb_write_buffer_manager_set_allow_stall(buffers, false);
        wait.recv_timeout(Duration::from_secs(60)).expect("the writer goes on");
        writer.join().unwrap();
        ok(|e| rocksdb_continue_background_work(db, e));
        rocksdb_close(db);
        rocksdb_write_buffer_manager_destroy(buffers);
        rocksdb_cache_destroy(cache);
        let alone = rocksdb_write_buffer_manager_create(LIMIT, false);
        assert_eq!(rocksdb_write_buffer_manager_dummy_entries_in_cache_usage(alone), 0);
        rocksdb_write_buffer_manager_destroy(alone);
    }
}

#[test]
fn what_has_no_effect_is_remembered() {
    let setup = Setup::new();
    let o = setup.options;
    unsafe {
        let handoff = rocksdb_options_checksum_handoff_file_types_contains;
        assert_eq!(rocksdb_options_checksum_handoff_file_types_count(o), 0);
        rocksdb_options_checksum_handoff_file_types_add(o, 2);
        rocksdb_options_checksum_handoff_file_types_add(o, 3);
        rocksdb_options_checksum_handoff_file_types_remove(o, 2);
        assert_eq!((handoff(o, 2), handoff(o, 3)), (0, 1));
        rocksdb_options_checksum_handoff_file_types_clear(o);
        assert_eq!(rocksdb_options_checksum_handoff_file_types_count(o), 0);

        let hint = rocksdb_options_calculate_sst_write_lifetime_hint_set_contains;
        assert_eq!((hint(o, 0), hint(o, 1)), (1, 0), "level compaction by default");
        rocksdb_options_calculate_sst_write_lifetime_hint_set_add(o, 1);
        rocksdb_options_calculate_sst_write_lifetime_hint_set_remove(o, 0);
        assert_eq!((hint(o, 0), hint(o, 1)), (0, 1));
        rocksdb_options_calculate_sst_write_lifetime_hint_set_clear(o);
        assert_eq!(rocksdb_options_calculate_sst_write_lifetime_hint_set_count(o), 0);

        let mut length = 9;
        rocksdb_options_get_daily_offpeak_time_utc(o, &mut length);
        assert_eq!(length, 0);
        rocksdb_options_set_daily_offpeak_time_utc(o, c"23:30-06:00".as_ptr());
        let time = rocksdb_options_get_daily_offpeak_time_utc(o, &mut length);
        assert_eq!(std::slice::from_raw_parts(time.cast::<u8>(), length), b"23:30-06:00");
        rocksdb_options_set_memtable_vector_rep(o);
        rocksdb_options_set_hash_skip_list_rep(o, 1000, 4, 4);

        // The memtable stays the ordered one.
        let db = setup.open();
        setup.put(db, b"b", b"");
        setup.put(db, b"a", b"");
        assert_eq!(setup.keys(db), [b"a", b"b"]);
        rocksdb_close(db);

        let read = setup.read;
        assert_eq!(rocksdb_readoptions_has_merge_operand_count_threshold(read), 0);
        rocksdb_readoptions_set_merge_operand_count_threshold(read, 0);
        assert_eq!(rocksdb_readoptions_has_merge_operand_count_threshold(read), 1);
        rocksdb_readoptions_set_merge_operand_count_threshold(read, 7);
        assert_eq!(rocksdb_readoptions_get_merge_operand_count_threshold(read), 7);
        rocksdb_readoptions_clear_merge_operand_count_threshold(read);
        assert_eq!(rocksdb_readoptions_has_merge_operand_count_threshold(read), 0);
        assert_eq!(rocksdb_readoptions_get_merge_operand_count_threshold(read), 0);

        assert!(rocksdb_readoptions_get_request_id(read, &mut length).is_null());
        rocksdb_readoptions_set_request_id(read, at(b"id"), 2);
        let id = rocksdb_readoptions_get_request_id(read, &mut length);
        assert_eq!(std::slice::from_raw_parts(id.cast::<u8>(), length), b"id");
        rocksdb_readoptions_clear_request_id(read);
        assert!(rocksdb_readoptions_get_request_id(read, null_mut()).is_null());
        rocksdb_readoptions_set_request_id(read, at(b"id"), 2);
        rocksdb_readoptions_set_request_id(read, null(), 0);
        assert!(rocksdb_readoptions_get_request_id(read, &mut length).is_null());

        // User-defined indexes do not exist.
        rocksdb_readoptions_clear_table_index_factory(read);
        length = 9;
        assert!(rocksdb_readoptions_get_table_index_factory_name(read, &mut length).is_null());
        assert_eq!(std::mem::replace(&mut length, 9), 0);
        let table = rocksdb_block_based_options_create();
        rocksdb_block_based_options_clear_user_defined_index_factory(table);
        assert!(
            rocksdb_block_based_options_get_user_defined_index_factory_name(table, &mut length).is_null()
        );
        assert_eq!(length, 0);
        rocksdb_block_based_options_destroy(table);

        // A cache has no shards: their number has no effect.
        let lru = rocksdb_lru_cache_options_create();
        rocksdb_lru_cache_options_set_capacity(lru, 1 << 20);
        rocksdb_lru_cache_options_set_num_shard_bits(lru, 6);
        let clock = rocksdb_hyper_clock_cache_options_create(1 << 20, 0);
        rocksdb_hyper_clock_cache_options_set_num_shard_bits(clock, 6);
        for cache in [rocksdb_cache_create_lru_opts(lru), rocksdb_cache_create_hyper_clock_opts(clock)] {
            assert_eq!(rocksdb_cache_get_capacity(cache), 1 << 20);
            rocksdb_cache_destroy(cache);
        }
        rocksdb_lru_cache_options_destroy(lru);
        rocksdb_hyper_clock_cache_options_destroy(clock);
    }
}

/// RocksDB's enumerations take any number, and the getter returns it; an unknown number of an
/// option with an effect makes the open call fail.
#[test]
fn numbers_that_name_nothing_here_are_given_back() {
    unsafe extern "C" {
        fn rocksdb_options_set_metadata_write_temperature(o: H, v: c_int);
        fn rocksdb_options_get_metadata_write_temperature(o: H) -> c_int;
        fn rocksdb_transactiondb_options_set_write_policy(t: H, v: c_int);
        fn rocksdb_transactiondb_options_get_write_policy(t: H) -> c_int;
    }
    let setup = Setup::new();
    unsafe {
        assert_eq!(rocksdb_options_get_metadata_write_temperature(setup.options), 0);
        for temperature in [2, 4, 77, 0] {
            rocksdb_options_set_metadata_write_temperature(setup.options, temperature);
            assert_eq!(rocksdb_options_get_metadata_write_temperature(setup.options), temperature);
        }
        rocksdb_close(setup.open());
        let settings = rocksdb_transactiondb_options_create();
        for policy in [2, 1, 0] {
            rocksdb_transactiondb_options_set_write_policy(settings, policy);
            assert_eq!(rocksdb_transactiondb_options_get_write_policy(settings), policy);
            let path = setup.path(&format!("policy {policy}"));
            let open = |e: E| rocksdb_transactiondb_open(setup.options, settings, path.as_ptr(), e);
            match policy {
                2 => assert!(failed(open).contains("WriteUnprepared")),
                _ => rocksdb_transactiondb_close(ok(open)),
            }
        }
        rocksdb_transactiondb_options_destroy(settings);
    }
}
