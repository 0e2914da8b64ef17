//! Files that programs name and describe: exports and imports, compactions of named files, logs,
//! backups, and the metadata of a family.

use super::*;
use std::time::Duration;

unsafe extern "C" {
    fn rocksdb_checkpoint_export_column_family(c: H, cf: H, d: B, e: E) -> H;
    fn rocksdb_export_import_files_metadata_create() -> H;
    fn rocksdb_export_import_files_metadata_destroy(m: H);
    fn rocksdb_export_import_files_metadata_get_db_comparator_name(m: H) -> *mut c_char;
    fn rocksdb_export_import_files_metadata_set_db_comparator_name(m: H, n: B);
    fn rocksdb_export_import_files_metadata_get_files(m: H) -> H;
    fn rocksdb_export_import_files_metadata_set_files(m: H, f: H);
    fn rocksdb_import_column_family_options_create() -> H;
    fn rocksdb_import_column_family_options_destroy(o: H);
    fn rocksdb_import_column_family_options_set_move_files(o: H, v: c_uchar);
    fn rocksdb_import_column_family_options_get_move_files(o: H) -> c_uchar;
    fn rocksdb_create_column_family_with_import(db: H, o: H, n: B, i: H, m: H, e: E) -> H;
    fn rocksdb_get_default_column_family_handle(db: H) -> H;
    fn rocksdb_livefiles_create() -> H;
    fn rocksdb_livefiles_add(fs: H, f: H);
    fn rocksdb_livefile_create() -> H;
    fn rocksdb_livefile_destroy(f: H);
    fn rocksdb_livefile_set_column_family_name(f: H, n: B);
    fn rocksdb_livefile_set_level(f: H, v: c_int);
    fn rocksdb_livefile_set_name(f: H, n: B);
    fn rocksdb_livefile_set_directory(f: H, n: B);
    fn rocksdb_livefile_set_size(f: H, v: usize);
    fn rocksdb_livefile_set_smallest_key(f: H, k: B, n: usize);
    fn rocksdb_livefile_set_largest_key(f: H, k: B, n: usize);
    fn rocksdb_livefile_set_smallest_seqno(f: H, v: u64);
    fn rocksdb_livefile_set_largest_seqno(f: H, v: u64);
    fn rocksdb_livefile_set_num_entries(f: H, v: u64);
    fn rocksdb_livefile_set_num_deletions(f: H, v: u64);
    fn rocksdb_livefiles_column_family_name(f: H, i: c_int) -> B;
    fn rocksdb_livefiles_name(f: H, i: c_int) -> B;
    fn rocksdb_livefiles_directory(f: H, i: c_int) -> B;
    fn rocksdb_livefiles_level(f: H, i: c_int) -> c_int;
    fn rocksdb_livefiles_size(f: H, i: c_int) -> usize;
    fn rocksdb_livefiles_smallestkey(f: H, i: c_int, n: *mut usize) -> B;
    fn rocksdb_livefiles_largestkey(f: H, i: c_int, n: *mut usize) -> B;
    fn rocksdb_livefiles_smallest_seqno(f: H, i: c_int) -> u64;
    fn rocksdb_livefiles_largest_seqno(f: H, i: c_int) -> u64;
    fn rocksdb_livefiles_storage_info_temperature(i: H, at: usize) -> c_int;
    fn rocksdb_get_sorted_wal_files(db: H, e: E) -> H;
    fn rocksdb_get_current_wal_file(db: H, e: E) -> H;
    fn rocksdb_wal_files_count(l: H) -> usize;
    fn rocksdb_wal_files_get_wal_file(l: H, i: usize) -> H;
    fn rocksdb_wal_files_destroy(l: H);
    fn rocksdb_wal_file_path_name(l: H) -> B;
    fn rocksdb_wal_file_log_number(l: H) -> u64;
    fn rocksdb_wal_file_type(l: H) -> c_int;
    fn rocksdb_wal_file_start_sequence(l: H) -> u64;
    fn rocksdb_wal_file_size_file_bytes(l: H) -> u64;
    fn rocksdb_wal_file_destroy(l: H);
    fn rocksdb_wal_readoptions_create() -> H;
    fn rocksdb_wal_readoptions_destroy(o: H);
    fn rocksdb_wal_readoptions_get_verify_checksums(o: H) -> c_uchar;
    fn rocksdb_wal_readoptions_set_verify_checksums(o: H, v: c_uchar);
    fn rocksdb_get_updates_since(db: H, n: u64, o: H, e: E) -> H;
    fn rocksdb_wal_iter_valid(i: H) -> c_uchar;
    fn rocksdb_wal_iter_destroy(i: H);
    fn rocksdb_options_set_WAL_ttl_seconds(o: H, v: u64);
    fn rocksdb_options_set_disable_auto_compactions(o: H, v: c_int);
    fn rocksdb_options_set_env(o: H, env: H);
    fn rocksdb_compact_files(
        db: H,
        o: H,
        names: *const B,
        n: usize,
        level: c_int,
        path: c_int,
        out: *mut *mut *mut c_char,
        outn: *mut usize,
        info: H,
        e: E,
    );
    fn rocksdb_compact_files_cf(
        db: H,
        cf: H,
        o: H,
        names: *const B,
        n: usize,
        level: c_int,
        path: c_int,
        out: *mut *mut *mut c_char,
        outn: *mut usize,
        info: H,
        e: E,
    );
    fn rocksdb_compactionjobinfo_create() -> H;
    fn rocksdb_compactionjobinfo_destroy(i: H);
    fn rocksdb_compactionjobinfo_output_level(i: H) -> c_int;
    fn rocksdb_compactionjobinfo_input_files_count(i: H) -> usize;
    fn rocksdb_compactionjobinfo_output_records(i: H) -> u64;
    fn rocksdb_compactionjobinfo_output_files_count(i: H) -> usize;
    fn rocksdb_compactionjobinfo_output_file_at(i: H, at: usize, n: *mut usize) -> B;
    fn rocksdb_compact_files_output_file_names_destroy(names: *mut *mut c_char, n: usize);
    fn rocksdb_compaction_options_create() -> H;
    fn rocksdb_compaction_options_destroy(o: H);
    fn rocksdb_compaction_options_set_compression(o: H, v: c_int);
    fn rocksdb_compaction_options_get_compression(o: H) -> c_int;
    fn rocksdb_compaction_options_set_output_file_size_limit(o: H, v: u64);
    fn rocksdb_compaction_options_get_output_file_size_limit(o: H) -> u64;
    fn rocksdb_compaction_options_set_max_subcompactions(o: H, v: u32);
    fn rocksdb_compaction_options_get_max_subcompactions(o: H) -> u32;
    fn rocksdb_compaction_options_set_allow_trivial_move(o: H, v: c_uchar);
    fn rocksdb_compaction_options_get_allow_trivial_move(o: H) -> c_uchar;
    fn rocksdb_compaction_options_set_output_temperature_override(o: H, v: c_int);
    fn rocksdb_compaction_options_get_output_temperature_override(o: H) -> c_int;
    fn rocksdb_compaction_options_canceled_create() -> *mut c_uchar;
    fn rocksdb_compaction_options_canceled_destroy(c: *mut c_uchar);
    fn rocksdb_compaction_options_canceled_set(c: *mut c_uchar, v: c_uchar);
    fn rocksdb_compaction_options_set_canceled(o: H, c: *mut c_uchar);
    fn rocksdb_compactionfilter_create(
        s: H,
        d: Option<unsafe extern "C" fn(H)>,
        f: unsafe extern "C" fn(H, c_int, B, usize, B, usize, E, *mut usize, *mut c_uchar) -> c_uchar,
        n: unsafe extern "C" fn(H) -> B,
    ) -> H;
    fn rocksdb_get_column_family_metadata_with_options(db: H, o: H) -> H;
    fn rocksdb_get_column_family_metadata_cf_with_options(db: H, cf: H, o: H) -> H;
    fn rocksdb_column_family_metadata_options_create() -> H;
    fn rocksdb_column_family_metadata_options_destroy(o: H);
    fn rocksdb_column_family_metadata_options_set_start_key(o: H, k: B, n: usize);
    fn rocksdb_column_family_metadata_options_get_start_key(o: H, n: *mut usize) -> B;
    fn rocksdb_column_family_metadata_options_set_end_key(o: H, k: B, n: usize);
    fn rocksdb_column_family_metadata_options_get_end_key(o: H, n: *mut usize) -> B;
    fn rocksdb_column_family_metadata_options_set_level(o: H, v: c_int);
    fn rocksdb_column_family_metadata_options_get_level(o: H) -> c_int;
    fn rocksdb_backup_engine_options_set_backup_dir(o: H, d: B);
    fn rocksdb_backup_engine_options_get_backup_dir(o: H, n: *mut usize) -> B;
    fn rocksdb_backup_engine_options_set_env(o: H, env: H);
    fn rocksdb_options_enable_statistics(o: H);
    fn rocksdb_backup_engine_open_opts(o: H, env: H, e: E) -> H;
    fn rocksdb_create_backup_options_create() -> H;
    fn rocksdb_create_backup_options_destroy(o: H);
    fn rocksdb_create_backup_options_set_atomic_flush(o: H, v: c_uchar);
    fn rocksdb_create_backup_options_get_atomic_flush(o: H) -> c_uchar;
    fn rocksdb_create_backup_options_set_flush_before_backup(o: H, v: c_uchar);
    fn rocksdb_backup_engine_options_set_backup_log_files(o: H, v: c_uchar);
    fn rocksdb_backup_engine_create_new_backup_with_options(b: H, db: H, o: H, id: *mut u32, e: E);
    fn rocksdb_livefiles_storage_info_options_set_atomic_flush(o: H, v: c_uchar);
    fn rocksdb_livefiles_storage_info_options_get_atomic_flush(o: H) -> c_uchar;
    fn rocksdb_options_set_atomic_flush(o: H, v: c_uchar);
    fn rocksdb_create_mem_env() -> H;
    fn rocksdb_create_default_env() -> H;
    fn rocksdb_env_destroy(env: H);
    fn rocksdb_ingestexternalfileoptions_create() -> H;
    fn rocksdb_ingestexternalfileoptions_destroy(o: H);
    fn rocksdb_ingest_external_file(db: H, fs: *const B, n: usize, o: H, e: E);
    fn rocksdb_table_properties_external_sst_file_global_seqno_offset(p: H) -> u64;
    fn rocksdb_table_properties_readable_properties_count(p: H) -> usize;
    fn rocksdb_table_properties_readable_properties_key_at(p: H, at: usize, n: *mut usize) -> B;
    fn rocksdb_table_properties_readable_properties_value_at(p: H, at: usize, n: *mut usize) -> B;
}

unsafe fn text(text: B) -> String {
    unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned()
}

unsafe fn flush(db: H) {
    unsafe {
        let options = rocksdb_flushoptions_create();
        ok(|e| rocksdb_flush(db, options, e));
        rocksdb_flushoptions_destroy(options);
    }
}

unsafe fn key_of(get: unsafe extern "C" fn(H, c_int, *mut usize) -> B, files: H, at: c_int) -> Vec<u8> {
    let mut length = 0;
    unsafe { std::slice::from_raw_parts(get(files, at, &mut length).cast::<u8>(), length) }.to_vec()
}

/// Returns the name, level and first key of each table.
unsafe fn tables(db: H) -> Vec<(String, c_int, Vec<u8>)> {
    unsafe {
        let files = rocksdb_livefiles(db);
        let told = (0..rocksdb_livefiles_count(files)).map(|at| {
            let first = key_of(rocksdb_livefiles_smallestkey, files, at);
            (text(rocksdb_livefiles_name(files, at)), rocksdb_livefiles_level(files, at), first)
        });
        let told = told.collect();
        rocksdb_livefiles_destroy(files);
        told
    }
}

impl Setup {
    fn get_of(&self, db: H, family: H, key: &[u8]) -> Option<Vec<u8>> {
        let mut length = 0;
        let value =
            ok(|e| unsafe { rocksdb_get_cf(db, self.read, family, at(key), key.len(), &mut length, e) });
        owned(value, length)
    }

    /// Opens a database without automatic compactions.
    fn open_calm(&self) -> H {
        unsafe { rocksdb_options_set_disable_auto_compactions(self.options, 1) };
        self.open()
    }
}

/// Builds a description of the file from its metadata, as a program would.
unsafe fn described(files: H, at: c_int) -> H {
    unsafe {
        let file = rocksdb_livefile_create();
        rocksdb_livefile_set_column_family_name(file, rocksdb_livefiles_column_family_name(files, at));
        rocksdb_livefile_set_level(file, rocksdb_livefiles_level(files, at));
        rocksdb_livefile_set_name(file, rocksdb_livefiles_name(files, at));
        rocksdb_livefile_set_directory(file, rocksdb_livefiles_directory(files, at));
        rocksdb_livefile_set_size(file, rocksdb_livefiles_size(files, at));
        let mut length = 0;
        let first = rocksdb_livefiles_smallestkey(files, at, &mut length);
        rocksdb_livefile_set_smallest_key(file, first, length);
        let last = rocksdb_livefiles_largestkey(files, at, &mut length);
        rocksdb_livefile_set_largest_key(file, last, length);
        rocksdb_livefile_set_smallest_seqno(file, rocksdb_livefiles_smallest_seqno(files, at));
        rocksdb_livefile_set_largest_seqno(file, rocksdb_livefiles_largest_seqno(files, at));
        rocksdb_livefile_set_num_entries(file, rocksdb_livefiles_entries(files, at));
        rocksdb_livefile_set_num_deletions(file, rocksdb_livefiles_deletions(files, at));
        file
    }
}

/// Returns all metadata of a file.
unsafe fn all_of(files: H, at: c_int) -> impl PartialEq + std::fmt::Debug {
    unsafe {
        (
            [rocksdb_livefiles_column_family_name, rocksdb_livefiles_name, rocksdb_livefiles_directory]
                .map(|get| text(get(files, at))),
            (rocksdb_livefiles_level(files, at), rocksdb_livefiles_size(files, at)),
            [rocksdb_livefiles_smallestkey, rocksdb_livefiles_largestkey].map(|get| key_of(get, files, at)),
            [
                rocksdb_livefiles_smallest_seqno,
                rocksdb_livefiles_largest_seqno,
                rocksdb_livefiles_entries,
                rocksdb_livefiles_deletions,
            ]
            .map(|get| get(files, at)),
        )
    }
}

#[test]
fn a_family_is_exported_and_imported_also_by_metadata_made_by_its_user() {
    let setup = Setup::new();
    unsafe {
        let db = setup.open_calm();
        for (key, value) in [(b"a", b"1"), (b"b", b"2")] {
            setup.put(db, key, value);
        }
        flush(db);
        rocksdb_compact_range(db, null(), 0, null(), 0);
        setup.put(db, b"b", b"3");
        ok(|e| rocksdb_delete(db, setup.write, at(b"a"), 1, e));
        let family = rocksdb_get_default_column_family_handle(db);
        let checkpoint = ok(|e| rocksdb_checkpoint_object_create(db, e));
        let directory = setup.path("export");
        let exports =
            ok(|e| rocksdb_checkpoint_export_column_family(checkpoint, family, directory.as_ptr(), e));
        failed(|e| rocksdb_checkpoint_export_column_family(checkpoint, family, directory.as_ptr(), e));
        rocksdb_checkpoint_object_destroy(checkpoint);
        rocksdb_column_family_handle_destroy(family);

        let comparator = rocksdb_export_import_files_metadata_get_db_comparator_name(exports);
        assert_eq!(text(comparator), "leveldb.BytewiseComparator");
        let files = rocksdb_export_import_files_metadata_get_files(exports);
        assert_eq!(rocksdb_livefiles_count(files), 2);
        let made_here = rocksdb_export_import_files_metadata_create();
        let made = rocksdb_livefiles_create();
        let mut told = Vec::new();
        for at in 0..2 {
            rocksdb_livefiles_add(made, described(files, at));
            assert_eq!(all_of(made, at), all_of(files, at));
            assert_eq!(text(rocksdb_livefiles_directory(files, at)), directory.to_str().unwrap());
            assert_eq!(text(rocksdb_livefiles_column_family_name(files, at)), "", "as RocksDB has it");
            told.push((
                rocksdb_livefiles_level(files, at) > 0,
                key_of(rocksdb_livefiles_smallestkey, files, at),
                rocksdb_livefiles_entries(files, at),
                rocksdb_livefiles_deletions(files, at),
            ));
        }
        told.sort();
        assert_eq!(told, [(false, b"a".to_vec(), 0, 0), (true, b"a".to_vec(), 0, 0)]);
        rocksdb_livefiles_destroy(files);
        rocksdb_livefile_destroy(rocksdb_livefile_create());
        rocksdb_export_import_files_metadata_set_files(made_here, made);

        // Imports both descriptions into the same database.
        let import = rocksdb_import_column_family_options_create();
        let of = |name: &CStr, metadata: H, e: E| {
            rocksdb_create_column_family_with_import(db, setup.options, name.as_ptr(), import, metadata, e)
        };
        let copied = ok(|e| of(c"copied", exports, e));
        assert_eq!(setup.get_of(db, copied, b"b").unwrap(), b"3");
        assert_eq!(setup.get_of(db, copied, b"a"), None);
        rocksdb_column_family_handle_destroy(copied);
        assert_eq!(std::fs::read_dir(directory.to_str().unwrap()).unwrap().count(), 2);

        let error = failed(|e| of(c"other", made_here, e));
        assert!(error.starts_with("Invalid argument"), "no comparator was set: {error}");
        rocksdb_export_import_files_metadata_set_db_comparator_name(made_here, comparator);
        rocksdb_free(comparator.cast());
        assert_eq!(rocksdb_import_column_family_options_get_move_files(import), 0);
        rocksdb_import_column_family_options_set_move_files(import, 1);
        assert_eq!(rocksdb_import_column_family_options_get_move_files(import), 1);
        let moved = ok(|e| of(c"moved", made_here, e));
        assert_eq!(setup.get_of(db, moved, b"b").unwrap(), b"3");
        assert_eq!(setup.get_of(db, moved, b"a"), None);
        rocksdb_column_family_handle_destroy(moved);
        assert_eq!(std::fs::read_dir(directory.to_str().unwrap()).unwrap().count(), 0);
        failed(|e| of(c"gone", made_here, e));
        rocksdb_import_column_family_options_destroy(import);
        rocksdb_export_import_files_metadata_destroy(made_here);
        rocksdb_export_import_files_metadata_destroy(exports);
        rocksdb_close(db);
    }
}

#[test]
fn logs_are_told_alive_and_archived() {
    let setup = Setup::new();
    unsafe {
        rocksdb_options_set_WAL_ttl_seconds(setup.options, 1000);
        let db = setup.open();
        setup.put(db, b"a", b"1");
        let before = ok(|e| rocksdb_get_current_wal_file(db, e));
        flush(db);
        setup.put(db, b"b", b"2");
        let now = ok(|e| rocksdb_get_current_wal_file(db, e));
        assert!(rocksdb_wal_file_log_number(now) > rocksdb_wal_file_log_number(before));
        assert_eq!((rocksdb_wal_file_type(now), rocksdb_wal_file_start_sequence(now)), (1, 0));
        let old = rocksdb_wal_file_log_number(before);
        let archived = setup.directory.path().join(format!("db/archive/{old:06}.log"));
        // The log is archived in the background.
        eventually(|| archived.exists());
        let logs = ok(|e| rocksdb_get_sorted_wal_files(db, e));
        let told: Vec<_> = (0..rocksdb_wal_files_count(logs))
            .map(|at| {
                let log = rocksdb_wal_files_get_wal_file(logs, at);
                let path = text(rocksdb_wal_file_path_name(log));
                let size = rocksdb_wal_file_size_file_bytes(log);
                let file = setup.directory.path().join("db").join(&path[1..]);
                assert_eq!(size, std::fs::metadata(file).unwrap().len(), "{path}");
                (path, rocksdb_wal_file_type(log), rocksdb_wal_file_start_sequence(log))
            })
            .collect();
        let new = rocksdb_wal_file_log_number(now);
        let wanted = [(format!("/archive/{old:06}.log"), 0, 1), (format!("/{new:06}.log"), 1, 2)];
        assert_eq!(told, wanted);
        assert!(rocksdb_wal_files_get_wal_file(logs, 2).is_null());
        rocksdb_wal_files_destroy(logs);
        rocksdb_wal_file_destroy(before);
        rocksdb_wal_file_destroy(now);

        let reading = rocksdb_wal_readoptions_create();
        assert_eq!(rocksdb_wal_readoptions_get_verify_checksums(reading), 1);
        rocksdb_wal_readoptions_set_verify_checksums(reading, 0);
        assert_eq!(rocksdb_wal_readoptions_get_verify_checksums(reading), 0);
        let updates = ok(|e| rocksdb_get_updates_since(db, 1, reading, e));
        assert_eq!(rocksdb_wal_iter_valid(updates), 1);
        rocksdb_wal_iter_destroy(updates);
        rocksdb_wal_readoptions_destroy(reading);
        rocksdb_close(db);
    }
}

/// Opens a database with three tables of `keys` keys each in L0.
unsafe fn with_three_tables(setup: &Setup, keys: usize, value: &[u8]) -> H {
    unsafe {
        let db = setup.open_calm();
        for table in 0..3 {
            for n in 0..keys {
                setup.put(db, format!("{table}{n:02}").as_bytes(), value);
            }
            flush(db);
        }
        db
    }
}

#[test]
fn a_named_file_that_lies_alone_moves_if_it_may() {
    let setup = Setup::new();
    unsafe {
        rocksdb_options_set_disable_auto_compactions(setup.options, 1);
        let db = setup.open();
        setup.put(db, b"k", b"v");
        setup.flush(db);
        let options = rocksdb_compaction_options_create();
        assert_eq!(rocksdb_compaction_options_get_allow_trivial_move(options), 0);
        for (to, moves) in [(1, 0), (2, 1), (3, 0)] {
            rocksdb_compaction_options_set_allow_trivial_move(options, moves);
            assert_eq!(rocksdb_compaction_options_get_allow_trivial_move(options), moves);
            let before = tables(db).remove(0).0;
            let name = CString::new(before.as_str()).unwrap();
            let none = (null_mut(), null_mut());
            ok(|e| {
                rocksdb_compact_files(db, options, &name.as_ptr(), 1, to, 0, none.0, none.1, null_mut(), e)
            });
            let after = tables(db).remove(0);
            assert_eq!((after.0 == before, after.1), (moves == 1, to), "to {to}");
        }
        rocksdb_compaction_options_destroy(options);
        rocksdb_close(db);
    }
}

#[test]
fn named_files_are_compacted_to_a_level() {
    let setup = Setup::new();
    unsafe {
        let db = with_three_tables(&setup, 40, &[b'v'; 1000]);
        let named: Vec<_> = tables(db).into_iter().filter(|(.., first)| first < &b"2".to_vec()).collect();
        assert_eq!(named.len(), 2);
        let names: Vec<_> = named.iter().map(|(name, ..)| CString::new(name.as_str()).unwrap()).collect();
        let names: Vec<B> = names.iter().map(|name| name.as_ptr()).collect();
        let (mut out, mut count) = (null_mut(), 0);
        let options = rocksdb_compaction_options_create();
        assert_eq!(rocksdb_compaction_options_get_compression(options), 0xff);
        assert_eq!(rocksdb_compaction_options_get_output_file_size_limit(options), u64::MAX);
        rocksdb_compaction_options_set_compression(options, 0);
        rocksdb_compaction_options_set_output_file_size_limit(options, 20_000);
        rocksdb_compaction_options_set_max_subcompactions(options, 2);
        assert_eq!(rocksdb_compaction_options_get_compression(options), 0);
        assert_eq!(rocksdb_compaction_options_get_output_file_size_limit(options), 20_000);
        assert_eq!(rocksdb_compaction_options_get_max_subcompactions(options), 2);
        // The setting is remembered.
        rocksdb_compaction_options_set_output_temperature_override(options, 4);
        assert_eq!(rocksdb_compaction_options_get_output_temperature_override(options), 4);
        ok(|e| {
            let (to, path) = (3, -1);
            rocksdb_compact_files(
                db,
                options,
                names.as_ptr(),
                2,
                to,
                path,
                &mut out,
                &mut count,
                null_mut(),
                e,
            );
        });
        assert!(count >= 4, "80 keys of 1000 bytes in files of 20000: {count}");
        let mut made = Vec::new();
        for name in std::slice::from_raw_parts(out, count) {
            let path = text(*name);
            assert!(std::path::Path::new(&path).exists(), "{path}");
            let size = std::fs::metadata(&path).unwrap().len();
            assert!((1000..30_000).contains(&size), "{path} has {size}");
            made.push(path.rsplit('/').next().map(|name| format!("/{name}")).unwrap());
        }
        rocksdb_compact_files_output_file_names_destroy(out, count);
        let now = tables(db);
        let below: Vec<_> =
            now.iter().filter(|(_, level, _)| *level == 3).map(|(name, ..)| name.clone()).collect();
        let sorted = |mut names: Vec<String>| {
            names.sort();
            names
        };
        assert_eq!(sorted(below), sorted(made));
        assert_eq!(now.iter().filter(|(_, level, _)| *level == 0).count(), 1);
        assert_eq!(setup.keys(db).len(), 120);

        // Names of removed files, and invalid arguments.
        let none = (null_mut(), null_mut());
        let to = |name: &CStr, level, path, info, e: E| {
            rocksdb_compact_files(db, options, &name.as_ptr(), 1, level, path, none.0, none.1, info, e);
        };
        let left = now.iter().find(|(_, level, _)| *level == 0).unwrap();
        let left = CString::new(left.0.as_str()).unwrap();
        for (error, what) in [
            (failed(|e| to(CStr::from_ptr(names[0]), 3, 0, null_mut(), e)), "it is gone"),
            (failed(|e| to(c"no table", 3, 0, null_mut(), e)), "no name"),
            (failed(|e| to(&left, 70, 0, null_mut(), e)), "no level"),
            (failed(|e| to(&left, -1, 0, null_mut(), e)), "a negative level"),
            (failed(|e| to(&left, 3, 7, null_mut(), e)), "no path"),
        ] {
            assert!(error.starts_with("Invalid argument"), "{what}: {error}");
        }
        // A column family other than the default.
        let family = ok(|e| rocksdb_create_column_family(db, setup.options, c"own".as_ptr(), e));
        ok(|e| rocksdb_put_cf(db, setup.write, family, at(b"k"), 1, at(b"v"), 1, e));
        let of_family = |e: E| {
            let name = left.as_ptr();
            rocksdb_compact_files_cf(db, family, null_mut(), &name, 1, 3, 0, none.0, none.1, null_mut(), e);
        };
        let error = failed(of_family);
        assert!(error.starts_with("Invalid argument"), "the file is of another family: {error}");
        rocksdb_column_family_handle_destroy(family);
        let info = rocksdb_compactionjobinfo_create();
        failed(|e| to(&left, 70, 0, info, e));
        assert_eq!(rocksdb_compactionjobinfo_input_files_count(info), 0);
        ok(|e| to(&left, 3, 0, info, e));
        assert_eq!(rocksdb_compactionjobinfo_input_files_count(info), 1);
        assert_eq!(rocksdb_compactionjobinfo_output_level(info), 3);
        assert_eq!(rocksdb_compactionjobinfo_output_records(info), 40);
        assert!(rocksdb_compactionjobinfo_output_files_count(info) >= 2);
        let mut length = 0;
        let path = rocksdb_compactionjobinfo_output_file_at(info, 0, &mut length);
        let path = std::slice::from_raw_parts(path.cast::<u8>(), length);
        assert!(std::path::Path::new(std::str::from_utf8(path).unwrap()).exists());
        rocksdb_compactionjobinfo_destroy(info);
        assert!(tables(db).iter().all(|(_, level, _)| *level == 3));
        rocksdb_compaction_options_destroy(options);
        rocksdb_close(db);
    }
}

/// Number of keys that the filter has seen.
static FILTERED: AtomicUsize = AtomicUsize::new(0);
/// Milliseconds that the filter sleeps at the first key.
static PAUSE: AtomicUsize = AtomicUsize::new(0);

/// A filter that sets the cancel flag at the first key, and then gives the caller time to see it.
unsafe extern "C" fn cancelling(
    flag: H,
    _: c_int,
    _: B,
    _: usize,
    _: B,
    _: usize,
    _: E,
    _: *mut usize,
    _: *mut c_uchar,
) -> c_uchar {
    if FILTERED.fetch_add(1, Ordering::Relaxed) == 0 {
        unsafe { rocksdb_compaction_options_canceled_set(flag.cast(), 1) };
        std::thread::sleep(Duration::from_millis(PAUSE.load(Ordering::Relaxed) as u64));
    }
    0
}

unsafe extern "C" fn name(_: H) -> B {
    c"cancelling".as_ptr()
}

#[test]
fn a_compaction_of_named_files_is_cancelled_by_a_flag() {
    // Longer pauses, until the caller sees the flag in time, which depends on the machine.
    assert!([500, 5_000, 50_000].into_iter().any(is_cancelled_by_a_flag));
}

/// Returns true if a compaction of named files that pauses this long is cancelled while it runs;
/// then it has also tested the flag before and without a run.
fn is_cancelled_by_a_flag(pause_ms: usize) -> bool {
    PAUSE.store(pause_ms, Ordering::Relaxed);
    FILTERED.store(0, Ordering::Relaxed);
    let setup = Setup::new();
    unsafe {
        let flag = rocksdb_compaction_options_canceled_create();
        // The options own the filter from now on.
        let filter = rocksdb_compactionfilter_create(flag.cast(), None, cancelling, name);
        rocksdb_options_set_compaction_filter(setup.options, filter);
        let db = with_three_tables(&setup, 3000, b"value");
        let options = rocksdb_compaction_options_create();
        rocksdb_compaction_options_set_canceled(options, flag);
        let names: Vec<_> = tables(db).into_iter().map(|(name, ..)| CString::new(name).unwrap()).collect();
        let names: Vec<B> = names.iter().map(|name| name.as_ptr()).collect();
        let compact = |e: E| {
            let (out, count) = (null_mut(), null_mut());
            rocksdb_compact_files(db, options, names.as_ptr(), 3, 2, 0, out, count, null_mut(), e);
        };
        let is_paused = |error: &str| {
            let told = error.starts_with("Result incomplete: ") && error.contains("Manual compaction paused");
            assert!(told, "{error}");
        };
        // The flag is set while the compaction runs.
        let mut error = null_mut();
        compact(&mut error);
        if error.is_null() {
            rocksdb_compaction_options_destroy(options);
            rocksdb_close(db);
            rocksdb_compaction_options_canceled_destroy(flag);
            return false;
        }
        is_paused(&failed(|e| *e = error));
        let seen = FILTERED.load(Ordering::Relaxed);
        assert!((1..9000).contains(&seen), "{seen} of 9000 keys were seen");
        assert_eq!(tables(db).iter().filter(|(_, level, _)| *level == 0).count(), 3);
        // The flag is set before it starts.
        let error = failed(compact);
        is_paused(&error);
        assert_eq!(FILTERED.load(Ordering::Relaxed), seen);
        // Without a flag it runs to its end.
        rocksdb_compaction_options_set_canceled(options, null_mut());
        ok(compact);
        assert!(tables(db).iter().all(|(_, level, _)| *level == 2));
        rocksdb_compaction_options_destroy(options);
        rocksdb_close(db);
        rocksdb_compaction_options_canceled_destroy(flag);
        true
    }
}

#[test]
fn a_part_of_a_family_is_told() {
    let setup = Setup::new();
    unsafe {
        let db = with_three_tables(&setup, 40, b"value");
        let options = rocksdb_column_family_metadata_options_create();
        let mut length = 7;
        assert!(rocksdb_column_family_metadata_options_get_start_key(options, &mut length).is_null());
        assert_eq!((length, rocksdb_column_family_metadata_options_get_level(options)), (0, -1));
        let family = rocksdb_get_default_column_family_handle(db);
        let count = |options| {
            let both = [
                rocksdb_get_column_family_metadata_with_options(db, options),
                rocksdb_get_column_family_metadata_cf_with_options(db, family, options),
            ];
            let [files, again] = both.map(|metadata| {
                let files = rocksdb_column_family_metadata_get_file_count(metadata);
                let levels = rocksdb_column_family_metadata_get_level_count(metadata);
                assert_eq!(levels, usize::from(files > 0), "empty levels are left out");
                rocksdb_column_family_metadata_destroy(metadata);
                files
            });
            assert_eq!(files, again);
            files
        };
        assert_eq!((count(options), count(null_mut())), (3, 3));
        rocksdb_column_family_metadata_options_set_start_key(options, at(b"110"), 3);
        assert_eq!(count(options), 2);
        rocksdb_column_family_metadata_options_set_end_key(options, at(b"199"), 3);
        assert_eq!(count(options), 1);
        let start = rocksdb_column_family_metadata_options_get_start_key(options, &mut length);
        assert_eq!(std::slice::from_raw_parts(start.cast::<u8>(), length), b"110");
        let end = rocksdb_column_family_metadata_options_get_end_key(options, &mut length);
        assert_eq!(std::slice::from_raw_parts(end.cast::<u8>(), length), b"199");
        rocksdb_column_family_metadata_options_set_start_key(options, null(), 0);
        assert_eq!(count(options), 2);
        rocksdb_column_family_metadata_options_set_level(options, 1);
        assert_eq!(rocksdb_column_family_metadata_options_get_level(options), 1);
        assert_eq!(count(options), 0);
        rocksdb_column_family_metadata_options_set_level(options, 0);
        rocksdb_column_family_metadata_options_set_end_key(options, null(), 0);
        assert_eq!(count(options), 3);
        rocksdb_column_family_handle_destroy(family);
        rocksdb_column_family_metadata_options_destroy(options);

        let info = ok(|e| rocksdb_get_livefiles_storage_info(db, null_mut(), e));
        let files = rocksdb_livefiles_storage_info_count(info);
        assert!((0..files).all(|at| rocksdb_livefiles_storage_info_temperature(info, at) == 0));
        rocksdb_livefiles_storage_info_destroy(info);
        rocksdb_close(db);
    }
}

#[test]
fn backups_go_where_their_options_say() {
    let setup = Setup::new();
    unsafe {
        let (memory, disk) = (rocksdb_create_mem_env(), rocksdb_create_default_env());
        rocksdb_options_set_env(setup.options, memory);
        let db = setup.open();
        setup.put(db, b"k", b"v");
        let settings = rocksdb_backup_engine_options_create(setup.path("first").as_ptr());
        let second = setup.path("second");
        rocksdb_backup_engine_options_set_backup_dir(settings, second.as_ptr());
        let mut length = 0;
        let told = rocksdb_backup_engine_options_get_backup_dir(settings, &mut length);
        assert_eq!(std::slice::from_raw_parts(told.cast::<u8>(), length), second.as_bytes());
        rocksdb_backup_engine_options_set_env(settings, disk);
        let error = failed(|e| rocksdb_backup_engine_open_opts(settings, memory, e));
        assert!(error.starts_with("Not implemented"), "{error}");
        let engine = ok(|e| rocksdb_backup_engine_open_opts(settings, disk, e));
        rocksdb_backup_engine_close(engine);
        assert!(setup.directory.path().join("second/meta").exists());
        assert!(!setup.directory.path().join("first").exists());
        std::fs::remove_dir_all(setup.directory.path().join("second")).unwrap();
        rocksdb_backup_engine_options_set_env(settings, memory);
        let engine = ok(|e| rocksdb_backup_engine_open_opts(settings, memory, e));
        ok(|e| rocksdb_backup_engine_create_new_backup(engine, db, e));
        let infos = rocksdb_backup_engine_get_backup_info(engine);
        assert_eq!(rocksdb_backup_engine_info_count(infos), 1);
        rocksdb_backup_engine_info_destroy(infos);
        assert!(!setup.directory.path().join("second").exists(), "it is in memory");
        rocksdb_backup_engine_close(engine);
        rocksdb_backup_engine_options_destroy(settings);
        rocksdb_close(db);

        rocksdb_env_destroy(memory);
        rocksdb_env_destroy(disk);
    }
}

#[test]
fn families_are_flushed_together_for_a_copy_whatever_the_database_does() {
    for together in [false, true] {
        let setup = Setup::new();
        unsafe {
            rocksdb_options_set_atomic_flush(setup.options, together.into());
            rocksdb_options_enable_statistics(setup.options);
            let db = setup.open();
            let family = ok(|e| rocksdb_create_column_family(db, setup.options, c"own".as_ptr(), e));
            // Number of requests to flush all families together.
            let count = || setup.count("rocksdb.atomic_flush.request.reason.other");
            let mut asked = count();
            let create = rocksdb_create_backup_options_create();
            assert_eq!(rocksdb_create_backup_options_get_atomic_flush(create), 0);
            rocksdb_create_backup_options_set_atomic_flush(create, 1);
            assert_eq!(rocksdb_create_backup_options_get_atomic_flush(create), 1);
            rocksdb_create_backup_options_set_flush_before_backup(create, 1);
            let settings = rocksdb_backup_engine_options_create(setup.path("backups").as_ptr());
            for with_logs in [true, false] {
                rocksdb_backup_engine_options_set_backup_log_files(settings, with_logs.into());
                let engine = ok(|e| rocksdb_backup_engine_open_opts(settings, null_mut(), e));
                let make = |e: E| {
                    rocksdb_backup_engine_create_new_backup_with_options(engine, db, create, null_mut(), e);
                };
                setup.put(db, b"k", b"v");
                ok(make);
                asked += 1;
                assert_eq!(count(), asked);
                rocksdb_backup_engine_close(engine);
            }
            rocksdb_backup_engine_options_destroy(settings);
            rocksdb_create_backup_options_destroy(create);

            let options = rocksdb_livefiles_storage_info_options_create();
            assert_eq!(rocksdb_livefiles_storage_info_options_get_atomic_flush(options), 0);
            rocksdb_livefiles_storage_info_options_set_atomic_flush(options, 1);
            assert_eq!(rocksdb_livefiles_storage_info_options_get_atomic_flush(options), 1);
            let info = ok(|e| rocksdb_get_livefiles_storage_info(db, options, e));
            rocksdb_livefiles_storage_info_destroy(info);
            assert_eq!(count(), asked + 1);
            rocksdb_livefiles_storage_info_options_set_wal_size_for_flush(options, u64::MAX);
            let info = ok(|e| rocksdb_get_livefiles_storage_info(db, options, e));
            rocksdb_livefiles_storage_info_destroy(info);
            rocksdb_livefiles_storage_info_options_destroy(options);
            rocksdb_column_family_handle_destroy(family);
            rocksdb_close(db);
        }
    }
}

macro_rules! remembered {
    ($($c:ty, $get:ident, $set:ident, $default:literal;)*) => {
        unsafe extern "C" {
            fn rocksdb_envoptions_create() -> H;
            fn rocksdb_envoptions_destroy(o: H);
            $( fn $get(o: H) -> $c; fn $set(o: H, v: $c); )*
        }

        #[test]
        fn options_of_files_are_remembered() {
            unsafe {
                let options = rocksdb_envoptions_create();
                $(
                    assert_eq!($get(options), $default, stringify!($get));
                    $set(options, 1 - $default.min(1));
                    assert_eq!($get(options), 1 - $default.min(1), stringify!($get));
                )*
                // The options are accepted, without effect.
                let setup = Setup::new();
                let writer = rocksdb_sstfilewriter_create(options, setup.options);
                ok(|e| rocksdb_sstfilewriter_open(writer, setup.path("made.sst").as_ptr(), e));
                ok(|e| rocksdb_sstfilewriter_put(writer, at(b"k"), 1, at(b"v"), 1, e));
                ok(|e| rocksdb_sstfilewriter_finish(writer, e));
                rocksdb_sstfilewriter_destroy(writer);
                rocksdb_envoptions_destroy(options);
            }
        }
    };
}
remembered! {
    c_uchar, rocksdb_envoptions_get_use_mmap_reads, rocksdb_envoptions_set_use_mmap_reads, 0_u8;
    c_uchar, rocksdb_envoptions_get_use_mmap_writes, rocksdb_envoptions_set_use_mmap_writes, 1_u8;
    c_uchar, rocksdb_envoptions_get_use_direct_reads, rocksdb_envoptions_set_use_direct_reads, 0_u8;
    c_uchar, rocksdb_envoptions_get_use_direct_writes, rocksdb_envoptions_set_use_direct_writes, 0_u8;
    c_uchar, rocksdb_envoptions_get_allow_fallocate, rocksdb_envoptions_set_allow_fallocate, 1_u8;
    c_uchar, rocksdb_envoptions_get_fd_cloexec, rocksdb_envoptions_set_fd_cloexec, 1_u8;
    u64, rocksdb_envoptions_get_bytes_per_sync, rocksdb_envoptions_set_bytes_per_sync, 0_u64;
    c_uchar, rocksdb_envoptions_get_strict_bytes_per_sync, rocksdb_envoptions_set_strict_bytes_per_sync, 0_u8;
    c_uchar, rocksdb_envoptions_get_fallocate_with_keep_size, rocksdb_envoptions_set_fallocate_with_keep_size, 1_u8;
    usize, rocksdb_envoptions_get_compaction_readahead_size, rocksdb_envoptions_set_compaction_readahead_size, 0_usize;
    usize, rocksdb_envoptions_get_writable_file_max_buffer_size, rocksdb_envoptions_set_writable_file_max_buffer_size, 1_048_576_usize;
}

/// Offsets of global sequence numbers that the table filter has seen.
static SEEN: Mutex<Vec<u64>> = Mutex::new(Vec::new());

unsafe extern "C" fn look(_: H, table: H) -> c_uchar {
    unsafe {
        SEEN.lock().unwrap().push(rocksdb_table_properties_external_sst_file_global_seqno_offset(table));
        let mut length = 7;
        assert_eq!(rocksdb_table_properties_readable_properties_count(table), 0);
        assert!(rocksdb_table_properties_readable_properties_key_at(table, 0, &mut length).is_null());
        assert_eq!(length, 0);
        length = 7;
        assert!(rocksdb_table_properties_readable_properties_value_at(table, 0, &mut length).is_null());
        assert_eq!(length, 0);
    }
    1
}

unsafe extern "C" fn nothing(_: H) {}

#[test]
fn a_table_that_was_ingested_says_where_its_number_stands() {
    let setup = Setup::new();
    unsafe {
        let path = setup.path("made.sst");
        let writer = rocksdb_sstfilewriter_create(null_mut(), setup.options);
        ok(|e| rocksdb_sstfilewriter_open(writer, path.as_ptr(), e));
        ok(|e| rocksdb_sstfilewriter_put(writer, at(b"k"), 1, at(b"v"), 1, e));
        ok(|e| rocksdb_sstfilewriter_finish(writer, e));
        rocksdb_sstfilewriter_destroy(writer);
        let bytes = std::fs::read(path.to_str().unwrap()).unwrap();
        let db = setup.open();
        let ingest = rocksdb_ingestexternalfileoptions_create();
        ok(|e| rocksdb_ingest_external_file(db, &path.as_ptr(), 1, ingest, e));
        rocksdb_ingestexternalfileoptions_destroy(ingest);
        rocksdb_readoptions_set_table_filter(setup.read, null_mut(), nothing, look);
        assert_eq!(setup.keys(db), [b"k"]);
        // The property's name precedes its value.
        let property = b"external_sst_file.global_seqno";
        let place = bytes.windows(property.len()).position(|window| window == property).unwrap();
        let offset = SEEN.lock().unwrap()[0] as usize;
        assert_eq!(offset, place + property.len());
        assert_eq!(bytes[offset..offset + 8], [0; 8]);
        rocksdb_close(db);
    }
}
