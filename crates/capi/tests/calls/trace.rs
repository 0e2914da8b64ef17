//! Traces, their readers, and replays.

use super::*;

unsafe extern "C" {
    fn rocksdb_trace_options_create() -> H;
    fn rocksdb_trace_options_destroy(o: H);
    fn rocksdb_trace_options_set_max_trace_file_size(o: H, v: u64);
    fn rocksdb_trace_options_get_max_trace_file_size(o: H) -> u64;
    fn rocksdb_trace_options_set_sampling_frequency(o: H, v: u64);
    fn rocksdb_trace_options_get_sampling_frequency(o: H) -> u64;
    fn rocksdb_trace_options_set_filter(o: H, v: u64);
    fn rocksdb_trace_options_get_filter(o: H) -> u64;
    fn rocksdb_trace_options_set_preserve_write_order(o: H, v: c_uchar);
    fn rocksdb_trace_options_get_preserve_write_order(o: H) -> c_uchar;
    fn rocksdb_start_trace(db: H, env: H, eo: H, o: H, path: B, e: E);
    fn rocksdb_start_io_trace(db: H, env: H, eo: H, o: H, path: B, e: E);
    fn rocksdb_end_io_trace(db: H, e: E);
    fn rocksdb_end_trace(db: H, e: E);
    fn rocksdb_trace_reader_create(env: H, eo: H, path: B, e: E) -> H;
    fn rocksdb_trace_reader_read(r: H, n: *mut usize, e: E) -> *mut c_char;
    fn rocksdb_trace_reader_reset(r: H, e: E);
    fn rocksdb_trace_reader_close(r: H, e: E);
    fn rocksdb_trace_reader_destroy(r: H);
    fn rocksdb_replay_options_create() -> H;
    fn rocksdb_replay_options_destroy(o: H);
    fn rocksdb_replay_options_set_num_threads(o: H, v: u32);
    fn rocksdb_replay_options_get_num_threads(o: H) -> u32;
    fn rocksdb_replay_options_set_fast_forward(o: H, v: f64);
    fn rocksdb_replay_options_get_fast_forward(o: H) -> f64;
    fn rocksdb_new_default_replayer(db: H, fs: *mut H, n: usize, env: H, eo: H, path: B, e: E) -> H;
    fn rocksdb_replayer_prepare(r: H, e: E);
    fn rocksdb_replayer_get_header_timestamp(r: H) -> u64;
    fn rocksdb_replayer_replay(r: H, o: H, e: E);
    fn rocksdb_replayer_destroy(r: H);
    fn rocksdb_create_default_env() -> H;
    fn rocksdb_env_destroy(e: H);
    fn rocksdb_envoptions_create() -> H;
    fn rocksdb_envoptions_destroy(o: H);
    fn rocksdb_get_default_column_family_handle(db: H) -> H;
}

/// Returns the kinds of a trace's records.
fn kinds(path: &CString) -> Vec<u8> {
    unsafe {
        let env = rocksdb_create_default_env();
        let reader = ok(|e| rocksdb_trace_reader_create(env, null_mut(), path.as_ptr(), e));
        let read = || {
            let mut size = 77;
            let record = ok(|e| rocksdb_trace_reader_read(reader, &raw mut size, e));
            if record.is_null() {
                assert_eq!(size, 0);
                return None;
            }
            assert!(size >= 13);
            let kind = record.add(8).read() as u8;
            rocksdb_free(record.cast());
            Some(kind)
        };
        let kinds: Vec<u8> = std::iter::from_fn(read).collect();
        ok(|e| rocksdb_trace_reader_reset(reader, e));
        assert_eq!(std::iter::from_fn(read).collect::<Vec<u8>>(), kinds, "after a reset");
        ok(|e| rocksdb_trace_reader_close(reader, e));
        assert!(failed(|e| rocksdb_trace_reader_reset(reader, e)).contains("closed"));
        let mut size = 77;
        assert!(failed(|e| rocksdb_trace_reader_read(reader, &raw mut size, e)).contains("closed"));
        assert_eq!(size, 0);
        rocksdb_trace_reader_destroy(reader);
        rocksdb_env_destroy(env);
        kinds
    }
}

#[test]
fn options_of_traces_and_replays_are_kept() {
    unsafe {
        let o = rocksdb_trace_options_create();
        assert_eq!(rocksdb_trace_options_get_max_trace_file_size(o), 64 << 30);
        assert_eq!(rocksdb_trace_options_get_sampling_frequency(o), 1);
        assert_eq!(rocksdb_trace_options_get_filter(o), 0);
        assert_eq!(rocksdb_trace_options_get_preserve_write_order(o), 0);
        rocksdb_trace_options_set_max_trace_file_size(o, 5);
        rocksdb_trace_options_set_sampling_frequency(o, 6);
        rocksdb_trace_options_set_filter(o, 7);
        rocksdb_trace_options_set_preserve_write_order(o, 8);
        assert_eq!(rocksdb_trace_options_get_max_trace_file_size(o), 5);
        assert_eq!(rocksdb_trace_options_get_sampling_frequency(o), 6);
        assert_eq!(rocksdb_trace_options_get_filter(o), 7);
        assert_eq!(rocksdb_trace_options_get_preserve_write_order(o), 1);
        rocksdb_trace_options_destroy(o);
        let o = rocksdb_replay_options_create();
        assert_eq!(
            (rocksdb_replay_options_get_num_threads(o), rocksdb_replay_options_get_fast_forward(o)),
            (1, 1.0)
        );
        rocksdb_replay_options_set_num_threads(o, 3);
        rocksdb_replay_options_set_fast_forward(o, 2.5);
        assert_eq!(
            (rocksdb_replay_options_get_num_threads(o), rocksdb_replay_options_get_fast_forward(o)),
            (3, 2.5)
        );
        rocksdb_replay_options_destroy(o);
    }
}

#[test]
fn a_trace_is_taken_read_and_replayed() {
    let (setup, other) = (Setup::new(), Setup::new());
    let (db, again) = (setup.open(), other.open());
    let (trace, second, missing) = (setup.path("trace"), setup.path("second"), setup.path("no/trace"));
    let none = null_mut();
    unsafe {
        assert!(failed(|e| rocksdb_end_trace(db, e)).contains("no trace"));
        let eo = rocksdb_envoptions_create();
        ok(|e| rocksdb_start_trace(db, none, eo, none, trace.as_ptr(), e));
        setup.put(db, b"a", b"1");
        setup.put(db, b"b", b"2");
        assert_eq!(setup.get(db, b"a").unwrap(), b"1");
        ok(|e| rocksdb_end_trace(db, e));
        assert_eq!(kinds(&trace), [1, 3, 3, 4, 2]);

        let default = rocksdb_get_default_column_family_handle(again);
        let fast = rocksdb_replay_options_create();
        rocksdb_replay_options_set_fast_forward(fast, 1e9);
        for families in [&mut [][..], &mut [default]] {
            let (list, count) = (families.as_mut_ptr(), families.len());
            let replayer =
                ok(|e| rocksdb_new_default_replayer(again, list, count, none, eo, trace.as_ptr(), e));
            assert_eq!(rocksdb_replayer_get_header_timestamp(replayer), 0);
            assert!(failed(|e| rocksdb_replayer_replay(replayer, fast, e)).contains("not prepared"));
            ok(|e| rocksdb_replayer_prepare(replayer, e));
            assert!(rocksdb_replayer_get_header_timestamp(replayer) > 1 << 50, "microseconds since 1970");
            assert_eq!(other.get(again, b"b"), None);
            ok(|e| rocksdb_replayer_replay(replayer, fast, e));
            assert_eq!(other.get(again, b"b").unwrap(), b"2");
            ok(|e| rocksdb_delete(again, other.write, at(b"b"), 1, e));
            rocksdb_replay_options_set_fast_forward(fast, 0.0);
            ok(|e| rocksdb_replayer_prepare(replayer, e));
            assert!(failed(|e| rocksdb_replayer_replay(replayer, fast, e)).contains("fast_forward"));
            rocksdb_replay_options_set_fast_forward(fast, 1e9);
            rocksdb_replayer_destroy(replayer);
        }
        failed(|e| rocksdb_new_default_replayer(again, none.cast(), 0, none, eo, missing.as_ptr(), e));
        failed(|e| rocksdb_new_default_replayer(again, none.cast(), 1, none, eo, trace.as_ptr(), e));
        failed(|e| rocksdb_start_trace(db, none, eo, none, missing.as_ptr(), e));
        failed(|e| rocksdb_trace_reader_create(none, eo, trace.as_ptr(), e));

        // Filtered operations are not recorded, and a second trace ends the first, even in the same
        // file.
        let options = rocksdb_trace_options_create();
        rocksdb_trace_options_set_filter(options, 1);
        rocksdb_trace_options_set_preserve_write_order(options, 1);
        ok(|e| rocksdb_start_trace(db, none, eo, options, trace.as_ptr(), e));
        setup.put(db, b"c", b"3");
        ok(|e| rocksdb_start_trace(db, none, eo, options, second.as_ptr(), e));
        assert_eq!(kinds(&trace), [1, 3, 2]);
        ok(|e| rocksdb_start_trace(db, none, eo, options, second.as_ptr(), e));
        setup.get(db, b"a");
        setup.put(db, b"d", b"4");
        ok(|e| rocksdb_end_trace(db, e));
        assert_eq!(kinds(&second), [1, 3, 2]);
        rocksdb_trace_options_destroy(options);
        rocksdb_replay_options_destroy(fast);
        rocksdb_column_family_handle_destroy(default);
        rocksdb_envoptions_destroy(eo);
        rocksdb_close(db);
        rocksdb_close(again);
    }
}

#[test]
fn what_is_done_to_files_is_traced() {
    let setup = Setup::new();
    let (db, trace, missing) = (setup.open(), setup.path("trace"), setup.path("no/trace"));
    let none = null_mut();
    unsafe {
        ok(|e| rocksdb_end_io_trace(db, e));
        failed(|e| rocksdb_start_io_trace(db, none, none, none, missing.as_ptr(), e));
        ok(|e| rocksdb_start_io_trace(db, none, none, none, trace.as_ptr(), e));
        let other = setup.path("other");
        assert!(
            failed(|e| rocksdb_start_io_trace(db, none, none, none, other.as_ptr(), e))
                .contains("traced already")
        );
        setup.put(db, b"a", b"1");
        let flush = rocksdb_flushoptions_create();
        ok(|e| rocksdb_flush(db, flush, e));
        rocksdb_flushoptions_destroy(flush);
        ok(|e| rocksdb_end_io_trace(db, e));
        let kinds = kinds(&trace);
        assert_eq!(kinds[0], 1);
        assert!(kinds.len() > 3 && kinds[1..].iter().all(|kind| *kind == 12), "{kinds:?}");
        rocksdb_close(db);
    }
}
