//! Options of waiting, flushing and compacting, and thread priorities, each tested by its effect.

use super::*;

type OfJob = Option<unsafe extern "C" fn(H, H, H)>;
type OfPart = Option<unsafe extern "C" fn(H, H)>;
type OfError = Option<unsafe extern "C" fn(H, u32, H)>;

unsafe extern "C" {
    fn rocksdb_eventlistener_create(
        s: H,
        d: Option<unsafe extern "C" fn(H)>,
        fb: OfJob,
        fc: OfJob,
        cb: OfJob,
        cc: OfJob,
        sb: OfPart,
        sc: OfPart,
        i: OfJob,
        e: OfError,
        w: OfPart,
        m: OfPart,
    ) -> H;
    fn rocksdb_options_add_eventlistener(o: H, l: H);
    fn rocksdb_wait_for_compact_options_create() -> H;
    fn rocksdb_wait_for_compact_options_destroy(o: H);
    fn rocksdb_wait_for_compact_options_set_close_db(o: H, v: c_uchar);
    fn rocksdb_wait_for_compact_options_get_close_db(o: H) -> c_uchar;
    fn rocksdb_wait_for_compact(db: H, o: H, e: E);
    fn rocksdb_flushoptions_set_force_atomic_flush(o: H, v: c_uchar);
    fn rocksdb_flushoptions_get_force_atomic_flush(o: H) -> c_uchar;
    fn rocksdb_flushoptions_set_listener_wait(o: H, v: c_uchar);
    fn rocksdb_flushoptions_get_listener_wait(o: H) -> c_uchar;
    fn rocksdb_flush_cfs(db: H, o: H, cfs: *const H, n: c_int, e: E);
    fn rocksdb_put_cf(db: H, o: H, cf: H, k: B, kn: usize, v: B, vn: usize, e: E);
    fn rocksdb_property_int(db: H, p: B, n: *mut u64) -> c_int;
    fn rocksdb_readoptions_set_deadline(o: H, v: u64);
    fn rocksdb_readoptions_get_deadline(o: H) -> u64;
    fn rocksdb_verify_checksum_with_options(db: H, o: H, e: E);
    fn rocksdb_compactoptions_create() -> H;
    fn rocksdb_compactoptions_destroy(o: H);
    fn rocksdb_compactoptions_set_bottommost_level_compaction(o: H, v: c_uchar);
    fn rocksdb_compactoptions_set_blob_garbage_collection_policy(o: H, v: c_int);
    fn rocksdb_compactoptions_get_blob_garbage_collection_policy(o: H) -> c_int;
    fn rocksdb_compactoptions_set_blob_garbage_collection_age_cutoff(o: H, v: f64);
    fn rocksdb_compactoptions_get_blob_garbage_collection_age_cutoff(o: H) -> f64;
    fn rocksdb_compact_range_opt(db: H, o: H, s: B, sn: usize, l: B, ln: usize);
    fn rocksdb_options_set_enable_blob_files(o: H, v: c_uchar);
    fn rocksdb_options_set_disable_auto_compactions(o: H, v: c_int);
    fn rocksdb_create_mem_env() -> H;
    fn rocksdb_env_destroy(env: H);
    fn rocksdb_options_set_env(o: H, env: H);
    fn rocksdb_env_join_all_threads(env: H);
    fn rocksdb_env_lower_thread_pool_io_priority(env: H);
    fn rocksdb_env_lower_thread_pool_cpu_priority(env: H);
    fn rocksdb_env_lower_high_priority_thread_pool_io_priority(env: H);
    fn rocksdb_env_lower_high_priority_thread_pool_cpu_priority(env: H);
    fn rocksdb_options_enable_statistics(o: H);
    fn rocksdb_get_default_column_family_handle(db: H) -> H;
}

#[test]
fn waiting_ends_with_the_database_closed_if_it_is_to() {
    let setup = Setup::new();
    let db = setup.open();
    unsafe {
        let wait = rocksdb_wait_for_compact_options_create();
        assert_eq!(rocksdb_wait_for_compact_options_get_close_db(wait), 0);
        setup.put(db, b"k", b"v");
        ok(|e| rocksdb_wait_for_compact(db, wait, e));
        assert_eq!(setup.get(db, b"k").unwrap(), b"v");
        rocksdb_wait_for_compact_options_set_close_db(wait, 1);
        assert_eq!(rocksdb_wait_for_compact_options_get_close_db(wait), 1);
        ok(|e| rocksdb_wait_for_compact(db, wait, e));
        let mut length = 0;
        let closed = failed(|e| rocksdb_get(db, setup.read, at(b"k"), 1, &mut length, e));
        assert!(closed.contains("closed"), "{closed}");
        // The directory can be opened again.
        let again = setup.open();
        assert_eq!(setup.get(again, b"k").unwrap(), b"v");
        rocksdb_close(again);
        rocksdb_wait_for_compact_options_destroy(wait);
        rocksdb_close(db);
    }
}

static TOLD: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn nothing_to_destroy(_: H) {}

unsafe extern "C" fn told(_: H, _: H, _: H) {
    std::thread::sleep(std::time::Duration::from_millis(20));
    TOLD.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn flushes_go_together_and_are_told_before_they_end() {
    let setup = Setup::new();
    unsafe {
        rocksdb_options_enable_statistics(setup.options);
        let listener = rocksdb_eventlistener_create(
            null_mut(),
            Some(nothing_to_destroy),
            None,
            Some(told),
            None,
            None,
            None,
            None,
            None,
            None,
            None,
            None,
        );
        rocksdb_options_add_eventlistener(setup.options, listener);
        let db = setup.open();
        let family = ok(|e| rocksdb_create_column_family(db, setup.options, c"own".as_ptr(), e));
        let default = rocksdb_get_default_column_family_handle(db);
        let flush = rocksdb_flushoptions_create();
        assert_eq!(rocksdb_flushoptions_get_force_atomic_flush(flush), 0);
        assert_eq!(rocksdb_flushoptions_get_listener_wait(flush), 0);
        rocksdb_flushoptions_set_listener_wait(flush, 1);
        assert_eq!(rocksdb_flushoptions_get_listener_wait(flush), 1);
        for together in [0, 1] {
            rocksdb_flushoptions_set_force_atomic_flush(flush, together);
            assert_eq!(rocksdb_flushoptions_get_force_atomic_flush(flush), together);
            setup.put(db, b"k", b"v");
            ok(|e| rocksdb_put_cf(db, setup.write, family, at(b"k"), 1, at(b"v"), 1, e));
            let before = TOLD.load(Ordering::SeqCst);
            ok(|e| rocksdb_flush_cfs(db, flush, [default, family].as_ptr(), 2, e));
            assert_eq!(TOLD.load(Ordering::SeqCst) - before, 2, "both families");
            let of_all = setup.count("rocksdb.atomic_flush.request.reason.other");
            assert_eq!(of_all, u64::from(together));
        }
        rocksdb_flushoptions_destroy(flush);
        rocksdb_column_family_handle_destroy(default);
        rocksdb_column_family_handle_destroy(family);
        rocksdb_close(db);
    }
}

#[test]
fn a_manual_compaction_says_what_is_done_about_old_blobs() {
    let setup = Setup::new();
    unsafe {
        rocksdb_options_set_enable_blob_files(setup.options, 1);
        rocksdb_options_set_disable_auto_compactions(setup.options, 1);
        let db = setup.open();
        for round in 0..4_u8 {
            (0..20_u8).for_each(|n| setup.put(db, &[n], &[round; 500]));
            (0..20_u8).for_each(|n| setup.put(db, &[round, n], &[round; 500]));
            setup.flush(db);
        }
        let compact = rocksdb_compactoptions_create();
        rocksdb_compactoptions_set_bottommost_level_compaction(compact, 2);
        assert_eq!(rocksdb_compactoptions_get_blob_garbage_collection_policy(compact), 2);
        assert_eq!(rocksdb_compactoptions_get_blob_garbage_collection_age_cutoff(compact), -1.0);
        // Referenced blobs stay, move out of the older half of the files, or out of all.
        for (policy, cutoff, blob_files) in [(2, -1.0, 4), (1, 1.0, 4), (0, 0.5, 3), (0, 1.0, 1)] {
            rocksdb_compactoptions_set_blob_garbage_collection_policy(compact, policy);
            assert_eq!(rocksdb_compactoptions_get_blob_garbage_collection_policy(compact), policy);
            rocksdb_compactoptions_set_blob_garbage_collection_age_cutoff(compact, cutoff);
            assert_eq!(rocksdb_compactoptions_get_blob_garbage_collection_age_cutoff(compact), cutoff);
            rocksdb_compact_range_opt(db, compact, null_mut(), 0, null_mut(), 0);
            let mut count = 0;
            let number = c"rocksdb.num-blob-files";
            assert_eq!(rocksdb_property_int(db, number.as_ptr(), &mut count), 0);
            assert_eq!(count, blob_files, "{policy} {cutoff}");
        }
        assert_eq!(setup.keys(db).len(), 100);
        rocksdb_compactoptions_destroy(compact);
        rocksdb_close(db);
    }
}

/// Returns the niceness and I/O priority of the threads of this name.
fn threads(name: &str) -> Vec<(i64, i64)> {
    let mut found = Vec::new();
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let path = task.unwrap().path();
        // Other threads may end meanwhile.
        let Ok(text) = std::fs::read_to_string(path.join("stat")) else { continue };
        let (head, rest) = text.rsplit_once(')').unwrap();
        if head.ends_with(&format!("({name}")) {
            let number: c_int = path.file_name().unwrap().to_str().unwrap().parse().unwrap();
            let io = unsafe { libc::syscall(libc::SYS_ioprio_get, 1, number) };
            found.push((rest.split_whitespace().nth(16).unwrap().parse().unwrap(), io));
        }
    }
    found
}

#[test]
fn threads_of_an_environment_get_a_lower_priority() {
    const IDLE: i64 = 3 << 13;
    let setup = Setup::new();
    unsafe {
        let env = rocksdb_create_mem_env();
        rocksdb_options_set_env(setup.options, env);
        let db = setup.open();
        setup.put(db, b"k", b"v");
        setup.flush(db);
        // No other test lowers these priorities.
        assert!(threads("karst-high").iter().all(|found| found.0 < 19 && found.1 != IDLE));
        rocksdb_env_lower_high_priority_thread_pool_cpu_priority(env);
        assert_eq!(threads("karst-high").iter().filter(|found| found.0 == 19 && found.1 != IDLE).count(), 1);
        rocksdb_env_lower_high_priority_thread_pool_io_priority(env);
        assert_eq!(threads("karst-high").iter().filter(|found| **found == (19, IDLE)).count(), 1);
        // Later threads get the priority, too.
        rocksdb_env_lower_thread_pool_cpu_priority(env);
        rocksdb_env_lower_thread_pool_io_priority(env);
        assert!(threads("karst-low").iter().all(|found| found.1 != IDLE));
        setup.put(db, b"k", b"v");
        setup.flush(db);
        rocksdb_compact_range(db, null_mut(), 0, null_mut(), 0);
        assert_eq!(threads("karst-low").iter().filter(|found| **found == (19, IDLE)).count(), 1);
        // C cannot start any other threads, so there is nothing to wait for.
        rocksdb_env_join_all_threads(env);
        rocksdb_close(db);
        rocksdb_env_destroy(env);
    }
}

#[test]
fn a_read_gives_up_at_its_deadline() {
    let setup = Setup::new();
    unsafe {
        let hour = 3_600_000_000;
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let now = u64::try_from(now.as_micros()).unwrap();
        let db = setup.open();
        setup.put(db, b"k", b"v");
        setup.flush(db);
        setup.put(db, b"memory", b"v");
        let read = rocksdb_readoptions_create();
        assert_eq!(rocksdb_readoptions_get_deadline(read), 0);
        let mut length = 0;
        rocksdb_readoptions_set_deadline(read, now - hour);
        assert_eq!(rocksdb_readoptions_get_deadline(read), now - hour);
        // A value in the memtable is found after the deadline, because it needs no I/O.
        let value = ok(|e| rocksdb_get(db, read, at(b"memory"), 6, &mut length, e));
        assert_eq!(owned(value, length).unwrap(), b"v");
        let late = failed(|e| rocksdb_get(db, read, at(b"k"), 1, &mut length, e));
        assert!(late.starts_with("Operation timed out"), "{late}");
        let iter = rocksdb_create_iterator(db, read);
        rocksdb_iter_seek_to_first(iter);
        assert_eq!(rocksdb_iter_valid(iter), 0);
        let late = failed(|e| rocksdb_iter_get_error(iter, e));
        assert!(late.starts_with("Operation timed out"), "{late}");
        rocksdb_iter_destroy(iter);
        let refused = failed(|e| rocksdb_verify_checksum_with_options(db, read, e));
        assert!(refused.starts_with("Not implemented"), "{refused}");
        rocksdb_readoptions_set_deadline(read, now + hour);
        let value = ok(|e| rocksdb_get(db, read, at(b"k"), 1, &mut length, e));
        assert_eq!(owned(value, length).unwrap(), b"v");
        rocksdb_readoptions_destroy(read);
        rocksdb_close(db);
    }
}
