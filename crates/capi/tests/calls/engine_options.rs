//! Numeric options of the engine, each tested by its effect.

use super::*;

api! {
    fn rocksdb_block_based_options_create() -> H;
    fn rocksdb_block_based_options_destroy(o: H);
    fn rocksdb_options_set_block_based_table_factory(o: H, t: H);
    fn rocksdb_block_based_options_set_block_size(o: H, v: usize);
    fn rocksdb_block_based_options_set_use_delta_encoding(o: H, v: c_uchar);
    fn rocksdb_block_based_options_get_use_delta_encoding(o: H) -> c_uchar;
    fn rocksdb_block_based_options_set_data_block_index_type(o: H, v: c_int);
    fn rocksdb_block_based_options_set_block_align(o: H, v: c_uchar);
    fn rocksdb_block_based_options_set_super_block_alignment_size(o: H, v: usize);
    fn rocksdb_block_based_options_get_super_block_alignment_size(o: H) -> usize;
    fn rocksdb_block_based_options_set_super_block_alignment_space_overhead_ratio(o: H, v: usize);
    fn rocksdb_block_based_options_get_super_block_alignment_space_overhead_ratio(o: H) -> usize;
    fn rocksdb_options_set_compression_options(o: H, w: c_int, l: c_int, s: c_int, d: c_int);
    fn rocksdb_options_set_compression_options_zstd_max_train_bytes(o: H, v: c_int);
    fn rocksdb_options_get_compression_options_zstd_max_train_bytes(o: H) -> c_int;
    fn rocksdb_options_set_compression_options_use_zstd_dict_trainer(o: H, v: c_uchar);
    fn rocksdb_options_get_compression_options_use_zstd_dict_trainer(o: H) -> c_uchar;
    fn rocksdb_options_set_bottommost_compression_options_use_zstd_dict_trainer(o: H, v: c_uchar, e: c_uchar);
    fn rocksdb_options_get_bottommost_compression_options_use_zstd_dict_trainer(o: H) -> c_uchar;
    fn rocksdb_options_set_min_level_to_compress(o: H, v: c_int);
    fn rocksdb_options_set_sample_for_compression(o: H, v: u64);
    fn rocksdb_options_get_sample_for_compression(o: H) -> u64;
    fn rocksdb_options_set_arena_block_size(o: H, v: usize);
    fn rocksdb_options_get_arena_block_size(o: H) -> usize;
    fn rocksdb_options_set_disallow_memtable_writes(o: H, v: c_uchar);
    fn rocksdb_options_get_disallow_memtable_writes(o: H) -> c_uchar;
    fn rocksdb_options_set_paranoid_memory_checks(o: H, v: c_uchar);
    fn rocksdb_options_get_paranoid_memory_checks(o: H) -> c_uchar;
    fn rocksdb_options_set_verify_output_flags(o: H, v: c_int);
    fn rocksdb_options_get_verify_output_flags(o: H) -> c_int;
    fn rocksdb_options_set_enforce_write_buffer_manager_during_recovery(o: H, v: c_uchar);
    fn rocksdb_options_get_enforce_write_buffer_manager_during_recovery(o: H) -> c_uchar;
    fn rocksdb_options_set_db_write_buffer_size(o: H, v: usize);
    fn rocksdb_options_set_disable_auto_compactions(o: H, v: c_int);
    fn rocksdb_options_enable_statistics(o: H);
    fn rocksdb_options_statistics_get_ticker_count(o: H, t: u32) -> u64;
    fn rocksdb_options_set_max_file_opening_threads(o: H, v: c_int);
    fn rocksdb_options_get_max_file_opening_threads(o: H) -> c_int;
    fn rocksdb_options_set_open_files_async(o: H, v: c_uchar);
    fn rocksdb_options_get_open_files_async(o: H) -> c_uchar;
    fn rocksdb_options_set_skip_stats_update_on_db_open(o: H, v: c_uchar);
    fn rocksdb_options_set_daily_offpeak_time_utc(o: H, t: B);
    fn rocksdb_compact_range(db: H, s: B, sn: usize, l: B, ln: usize);
}

const NO_COMPRESSION: c_int = 0;
const SNAPPY: c_int = 1;
const ZSTD: c_int = 7;

/// Returns incompressible bytes.
fn noise(seed: u32, bytes: u32) -> Vec<u8> {
    let mixed = |n: u32| (seed.wrapping_mul(7919) ^ n).wrapping_mul(2_654_435_761) ^ n.wrapping_mul(40_503);
    (0..bytes).map(|n| (mixed(n) >> 17) as u8).collect()
}

impl Setup {
    fn flush_all(&self, db: H) {
        unsafe {
            let options = rocksdb_flushoptions_create();
            ok(|e| rocksdb_flush(db, options, e));
            rocksdb_flushoptions_destroy(options);
        }
    }

    /// Returns one number of the aggregated table properties.
    fn table_property(&self, db: H, name: &str) -> u64 {
        unsafe {
            let text = rocksdb_property_value(db, c"rocksdb.aggregated-table-properties".as_ptr());
            let all = CStr::from_ptr(text).to_str().unwrap().to_owned();
            rocksdb_free(text.cast());
            let value = all.split("; ").find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
            value.unwrap_or_else(|| panic!("{name} in {all}")).parse().unwrap()
        }
    }
}

/// Returns the size in bytes of the data blocks of a table of `entries`, with the given options.
fn data_bytes(entries: &[(Vec<u8>, Vec<u8>)], set: impl FnOnce(H, H)) -> u64 {
    let setup = Setup::new();
    unsafe {
        rocksdb_options_set_compression(setup.options, NO_COMPRESSION);
        let tables = rocksdb_block_based_options_create();
        set(setup.options, tables);
        rocksdb_options_set_block_based_table_factory(setup.options, tables);
        rocksdb_block_based_options_destroy(tables);
        let db = setup.open();
        entries.iter().for_each(|(key, value)| setup.put(db, key, value));
        setup.flush_all(db);
        entries.iter().for_each(|(key, value)| assert_eq!(setup.get(db, key).as_ref(), Some(value)));
        let bytes = setup.table_property(db, "data block size");
        rocksdb_close(db);
        bytes
    }
}

#[test]
fn keys_are_stored_whole_without_delta_encoding() {
    let entries: Vec<_> = (0..500)
        .map(|n| (format!("{}{n:05}", "a long prefix ".repeat(4)).into_bytes(), b"v".to_vec()))
        .collect();
    let with = |delta: u8| {
        data_bytes(&entries, |_, tables| unsafe {
            assert_eq!(rocksdb_block_based_options_get_use_delta_encoding(tables), 1);
            rocksdb_block_based_options_set_use_delta_encoding(tables, delta);
            assert_eq!(rocksdb_block_based_options_get_use_delta_encoding(tables), delta);
        })
    };
    let (shared, whole) = (with(1), with(0));
    let keys: u64 = entries.iter().map(|(key, _)| key.len() as u64).sum();
    assert!(shared < keys / 2 && whole > keys, "{shared} {keys} {whole}");
}

unsafe extern "C" fn bytewise(_: H, a: B, an: usize, b: B, bn: usize) -> c_int {
    let bytes = |data: B, length| unsafe { std::slice::from_raw_parts(data.cast::<u8>(), length) };
    bytes(a, an).cmp(bytes(b, bn)) as c_int
}

unsafe extern "C" fn own_order(_: H) -> B {
    c"own.Order".as_ptr()
}

#[test]
fn data_blocks_have_no_hash_index_with_a_comparator_of_ones_own() {
    let entries: Vec<_> =
        (0..500).map(|n| (format!("{n:05}").into_bytes(), b"some value".to_vec())).collect();
    let comparator = unsafe { rocksdb_comparator_create(null_mut(), None, bytewise, own_order) };
    let with = |index_type, has_own_order| {
        data_bytes(&entries, |options, tables| unsafe {
            rocksdb_block_based_options_set_data_block_index_type(tables, index_type);
            if has_own_order {
                rocksdb_options_set_comparator(options, comparator);
            }
        })
    };
    assert!(with(1, false) > with(0, false));
    assert_eq!(with(1, true), with(0, true));
    unsafe { rocksdb_comparator_destroy(comparator) };
}

#[test]
fn data_blocks_are_aligned() {
    let entries: Vec<_> = (0..100).map(|n| (format!("{n:05}").into_bytes(), noise(n, 900))).collect();
    let bytes = |set: &dyn Fn(H)| {
        data_bytes(&entries, |_, tables| unsafe {
            rocksdb_block_based_options_set_block_size(tables, 2048);
            set(tables);
        })
    };
    let plain = bytes(&|_| {});
    let aligned = bytes(&|tables| unsafe { rocksdb_block_based_options_set_block_align(tables, 1) });
    assert_eq!((aligned, plain % 2048 != 0), (50 * 2048, true), "two entries are in each block");
    let super_blocks = |size, ratio| {
        bytes(&|tables| unsafe {
            assert_eq!(rocksdb_block_based_options_get_super_block_alignment_size(tables), 0);
            assert_eq!(
                rocksdb_block_based_options_get_super_block_alignment_space_overhead_ratio(tables),
                128
            );
            rocksdb_block_based_options_set_super_block_alignment_size(tables, size);
            rocksdb_block_based_options_set_super_block_alignment_space_overhead_ratio(tables, ratio);
            assert_eq!(rocksdb_block_based_options_get_super_block_alignment_size(tables), size);
            assert_eq!(
                rocksdb_block_based_options_get_super_block_alignment_space_overhead_ratio(tables),
                ratio
            );
        })
    };
    let (padded, less, without) = (super_blocks(16384, 4), super_blocks(16384, 128), super_blocks(16384, 0));
    assert!(padded > plain + 3000 && less < padded && without == plain, "{plain} {padded} {less} {without}");
}

#[test]
fn zstd_learns_a_dictionary_where_that_is_asked_for() {
    let value =
        |n: u32| format!("{{\"user\": {n}, \"city\": \"{}\", \"state\": \"active\"}}", noise(n, 1)[0] % 9);
    let entries: Vec<_> =
        (0..3000).map(|n| (format!("{n:08}").into_bytes(), value(n).into_bytes())).collect();
    let with = |train, trainer| {
        data_bytes(&entries, |options, tables| unsafe {
            rocksdb_options_set_compression(options, ZSTD);
            rocksdb_block_based_options_set_block_size(tables, 512);
            rocksdb_options_set_compression_options(options, -14, 32767, 0, 2048);
            assert_eq!(rocksdb_options_get_compression_options_zstd_max_train_bytes(options), 0);
            assert_eq!(rocksdb_options_get_compression_options_use_zstd_dict_trainer(options), 1);
            assert_eq!(rocksdb_options_get_bottommost_compression_options_use_zstd_dict_trainer(options), 1);
            rocksdb_options_set_compression_options_zstd_max_train_bytes(options, train);
            rocksdb_options_set_compression_options_use_zstd_dict_trainer(options, trainer);
            assert_eq!(rocksdb_options_get_compression_options_zstd_max_train_bytes(options), train);
            assert_eq!(rocksdb_options_get_compression_options_use_zstd_dict_trainer(options), trainer);
            rocksdb_options_set_bottommost_compression_options_use_zstd_dict_trainer(options, trainer, 0);
            assert_eq!(
                rocksdb_options_get_bottommost_compression_options_use_zstd_dict_trainer(options),
                trainer
            );
        })
    };
    let (raw, trained, untrained) = (with(0, 1), with(100_000, 1), with(100_000, 0));
    assert_ne!(trained, raw, "the dictionary is another one");
    assert_eq!(untrained, raw, "without the trainer it is the data itself");
}

#[test]
fn levels_above_the_first_to_compress_are_not_compressed() {
    let setup = Setup::new();
    unsafe {
        rocksdb_options_set_compression(setup.options, SNAPPY);
        rocksdb_options_set_min_level_to_compress(setup.options, 1);
        let db = setup.open();
        (0..200_u32).for_each(|n| setup.put(db, format!("{n:05}").as_bytes(), &[b'v'; 1000]));
        setup.flush_all(db);
        let flushed = setup.table_property(db, "data block size");
        rocksdb_compact_range(db, null(), 0, null(), 0);
        let compacted = setup.table_property(db, "data block size");
        assert!(flushed > 200_000 && compacted < 50_000, "{flushed} {compacted}");
        rocksdb_close(db);
    }
}

#[test]
fn tables_tell_how_well_they_would_compress() {
    let setup = Setup::new();
    unsafe {
        rocksdb_options_set_compression(setup.options, NO_COMPRESSION);
        assert_eq!(rocksdb_options_get_sample_for_compression(setup.options), 0);
        rocksdb_options_set_sample_for_compression(setup.options, 3);
        assert_eq!(rocksdb_options_get_sample_for_compression(setup.options), 3);
        let db = setup.open();
        (0..200_u32).for_each(|n| setup.put(db, format!("{n:05}").as_bytes(), &[b'v'; 1000]));
        setup.flush_all(db);
        let [data, slow, fast] = [
            "data block size",
            "slow compression estimated data size",
            "fast compression estimated data size",
        ]
        .map(|name| setup.table_property(db, name));
        assert!(
            data > 200_000 && slow > 100 && slow < data / 5 && fast > 100 && fast < data / 5,
            "{data} {slow} {fast}"
        );
        rocksdb_close(db);
    }
}

impl Setup {
    fn number(&self, db: H, property: &CStr) -> u64 {
        unsafe {
            let text = rocksdb_property_value(db, property.as_ptr());
            assert!(!text.is_null(), "{property:?}");
            let number = CStr::from_ptr(text).to_str().unwrap().parse().unwrap();
            rocksdb_free(text.cast());
            number
        }
    }
}

#[test]
fn the_memory_of_a_memtable_grows_by_blocks_of_the_arena() {
    let bytes = |block: usize| unsafe {
        let setup = Setup::new();
        assert_eq!(rocksdb_options_get_arena_block_size(setup.options), 0);
        rocksdb_options_set_arena_block_size(setup.options, block);
        assert_eq!(rocksdb_options_get_arena_block_size(setup.options), block);
        let db = setup.open();
        (0..1300_u32).for_each(|n| setup.put(db, &n.to_be_bytes(), &[b'v'; 1000]));
        let bytes = setup.number(db, c"rocksdb.cur-size-active-mem-table");
        rocksdb_close(db);
        bytes
    };
    let (small, large) = (bytes(8 << 10), bytes(2 << 20));
    assert!((1_300_000..1_700_000).contains(&small) && large > 1_900_000, "{small} {large}");
}

#[test]
fn a_family_takes_no_writes_where_they_are_disallowed() {
    let setup = Setup::new();
    unsafe {
        let db = setup.open();
        let options = rocksdb_options_create();
        assert_eq!(rocksdb_options_get_disallow_memtable_writes(options), 0);
        rocksdb_options_set_disallow_memtable_writes(options, 1);
        assert_eq!(rocksdb_options_get_disallow_memtable_writes(options), 1);
        let family = ok(|e| rocksdb_create_column_family(db, options, c"filled".as_ptr(), e));
        let put = |e| rocksdb_put_cf(db, setup.write, family, at(b"k"), 1, at(b"v"), 1, e);
        let error = failed(put);
        assert!(
            error.starts_with("Invalid argument: ") && error.contains("disallow_memtable_writes"),
            "{error}"
        );
        setup.put(db, b"k", b"v");
        let mut length = 0;
        let found = ok(|e| rocksdb_get_cf(db, setup.read, family, at(b"k"), 1, &mut length, e));
        assert!(found.is_null());
        rocksdb_column_family_handle_destroy(family);
        rocksdb_options_destroy(options);
        rocksdb_close(db);
    }
}

#[test]
fn memtables_are_read_with_their_order_checked() {
    let setup = Setup::new();
    unsafe {
        assert_eq!(rocksdb_options_get_paranoid_memory_checks(setup.options), 0);
        rocksdb_options_set_paranoid_memory_checks(setup.options, 1);
        assert_eq!(rocksdb_options_get_paranoid_memory_checks(setup.options), 1);
        let db = setup.open();
        (0..300_u32).for_each(|n| setup.put(db, &(n * 77 % 300).to_be_bytes(), &n.to_be_bytes()));
        (0..300_u32).for_each(|n| assert!(setup.get(db, &n.to_be_bytes()).is_some()));
        assert_eq!(setup.get(db, b"none"), None);
        rocksdb_close(db);
    }
}

#[test]
fn outputs_of_compactions_are_read_as_the_flags_say() {
    const NO_FILE_OPENS: u32 = 74;
    let opens = |flags: c_int| unsafe {
        let setup = Setup::new();
        rocksdb_options_enable_statistics(setup.options);
        assert_eq!(rocksdb_options_get_verify_output_flags(setup.options), 0);
        rocksdb_options_set_verify_output_flags(setup.options, flags);
        assert_eq!(rocksdb_options_get_verify_output_flags(setup.options), flags);
        let db = setup.open();
        for _ in 0..2 {
            (0..100_u32).for_each(|n| setup.put(db, &n.to_be_bytes(), b"value"));
            setup.flush_all(db);
        }
        rocksdb_compact_range(db, null(), 0, null(), 0);
        rocksdb_close(db);
        rocksdb_options_statistics_get_ticker_count(setup.options, NO_FILE_OPENS)
    };
    // Verification reads the blocks once from the file itself; without the flag it does not.
    assert_eq!((opens(1), opens(1 | 1 << 10)), (opens(0), opens(0) + 1));
}

#[test]
fn the_budget_of_memtables_is_enforced_while_logs_are_replayed() {
    let tables = |enforces: u8| unsafe {
        let setup = Setup::new();
        let db = setup.open();
        (0..3000_u32).for_each(|n| setup.put(db, &n.to_be_bytes(), &[b'v'; 500]));
        rocksdb_close(db);
        assert_eq!(rocksdb_options_get_enforce_write_buffer_manager_during_recovery(setup.options), 1);
        rocksdb_options_set_enforce_write_buffer_manager_during_recovery(setup.options, enforces);
        assert_eq!(rocksdb_options_get_enforce_write_buffer_manager_during_recovery(setup.options), enforces);
        rocksdb_options_set_db_write_buffer_size(setup.options, 512 << 10);
        rocksdb_options_set_disable_auto_compactions(setup.options, 1);
        let db = setup.open();
        let tables = setup.number(db, c"rocksdb.num-files-at-level0");
        (0..3000_u32).for_each(|n| assert!(setup.get(db, &n.to_be_bytes()).is_some()));
        rocksdb_close(db);
        tables
    };
    let (enforced, not) = (tables(1), tables(0));
    assert!(enforced > 2 && not == 1, "{enforced} {not}");
}

#[test]
fn a_table_that_is_damaged_keeps_nobody_from_opening_where_tables_are_opened_later() {
    let setup = Setup::new();
    unsafe {
        assert_eq!(rocksdb_options_get_max_file_opening_threads(setup.options), 16);
        rocksdb_options_set_max_file_opening_threads(setup.options, 1);
        assert_eq!(rocksdb_options_get_max_file_opening_threads(setup.options), 1);
        let db = setup.open();
        setup.put(db, b"k", b"v");
        setup.flush_all(db);
        rocksdb_close(db);
        let files = std::fs::read_dir(setup.directory.path().join("db")).unwrap();
        let tables = files
            .map(|file| file.unwrap().path())
            .filter(|path| path.extension().is_some_and(|e| e == "sst"));
        tables.for_each(|table| {
            std::fs::write(&table, vec![0; std::fs::metadata(&table).unwrap().len() as usize]).unwrap()
        });
        failed(|e| rocksdb_open(setup.options, setup.path("db").as_ptr(), e));
        assert_eq!(rocksdb_options_get_open_files_async(setup.options), 0);
        rocksdb_options_set_open_files_async(setup.options, 1);
        rocksdb_options_set_skip_stats_update_on_db_open(setup.options, 1);
        assert_eq!(rocksdb_options_get_open_files_async(setup.options), 1);
        let db = setup.open();
        setup.put(db, b"other", b"v");
        assert_eq!(setup.get(db, b"other").as_deref(), Some(&b"v"[..]));
        rocksdb_close(db);
    }
}

#[test]
fn a_time_of_little_use_that_is_none_is_refused() {
    let setup = Setup::new();
    unsafe {
        rocksdb_options_set_daily_offpeak_time_utc(setup.options, c"from 7 to 8".as_ptr());
        let error = failed(|e| rocksdb_open(setup.options, setup.path("db").as_ptr(), e));
        assert!(
            error.starts_with("Invalid argument: ") && error.contains("daily_offpeak_time_utc"),
            "{error}"
        );
        rocksdb_options_set_daily_offpeak_time_utc(setup.options, c"23:30-06:00".as_ptr());
        rocksdb_close(setup.open());
    }
}

unsafe extern "C" {
    fn rocksdb_options_set_stats_persist_period_sec(o: H, v: std::ffi::c_uint);
    fn rocksdb_options_get_stats_persist_period_sec(o: H) -> std::ffi::c_uint;
    fn rocksdb_options_set_stats_history_buffer_size(o: H, v: usize);
    fn rocksdb_options_get_stats_history_buffer_size(o: H) -> usize;
}

/// The kept statistics are readable from Rust only, as RocksDB's are from C++.
#[test]
fn statistics_are_kept_with_the_periods_that_are_set() {
    let setup = Setup::new();
    unsafe {
        assert_eq!(rocksdb_options_get_stats_persist_period_sec(setup.options), 600);
        assert_eq!(rocksdb_options_get_stats_history_buffer_size(setup.options), 1 << 20);
        rocksdb_options_set_stats_persist_period_sec(setup.options, 1);
        rocksdb_options_set_stats_history_buffer_size(setup.options, 1000);
        rocksdb_close(setup.open());
        let files =
            std::fs::read_dir(setup.directory.path().join("db")).unwrap().map(|file| file.unwrap().path());
        let options = files.filter(|path| path.to_str().unwrap().contains("OPTIONS-")).max().unwrap();
        let text = std::fs::read_to_string(options).unwrap();
        assert!(
            text.contains("stats_persist_period_sec=1\n")
                && text.contains("stats_history_buffer_size=1000\n")
        );
    }
}

unsafe extern "C" {
    fn rocksdb_options_set_uncache_aggressiveness(o: H, v: u32);
    fn rocksdb_options_get_uncache_aggressiveness(o: H) -> u32;
    fn rocksdb_options_set_prepopulate_blob_cache(o: H, v: c_int);
    fn rocksdb_options_get_prepopulate_blob_cache(o: H) -> c_int;
}

#[test]
fn blocks_of_removed_tables_leave_the_cache() {
    let left = |aggressiveness: u32| unsafe {
        let setup = Setup::new();
        assert_eq!(rocksdb_options_get_uncache_aggressiveness(setup.options), 0);
        rocksdb_options_set_uncache_aggressiveness(setup.options, aggressiveness);
        assert_eq!(rocksdb_options_get_uncache_aggressiveness(setup.options), aggressiveness);
        rocksdb_options_set_compression(setup.options, NO_COMPRESSION);
        rocksdb_options_set_disable_auto_compactions(setup.options, 1);
        let db = setup.open();
        for _ in 0..2 {
            (0..500_u32).for_each(|n| setup.put(db, &n.to_be_bytes(), &[b'v'; 500]));
            setup.flush_all(db);
            (0..500_u32).for_each(|n| assert!(setup.get(db, &n.to_be_bytes()).is_some()));
        }
        let before = setup.number(db, c"rocksdb.block-cache-usage");
        rocksdb_compact_range(db, null(), 0, null(), 0);
        let mut left = setup.number(db, c"rocksdb.block-cache-usage");
        if aggressiveness > 0 {
            // Tables are removed in the background.
            eventually(|| {
                left = setup.number(db, c"rocksdb.block-cache-usage");
                left < before / 4
            });
        }
        rocksdb_close(db);
        (before, left)
    };
    let ((before, stays), (_, leaves)) = (left(0), left(300));
    assert!(before > 400_000 && stays >= before && leaves < before / 4, "{before} {stays} {leaves}");
}

#[test]
fn values_are_in_the_blob_cache_once_they_are_flushed() {
    let usage = |prepopulates: c_int| unsafe {
        let setup = Setup::new();
        assert_eq!(rocksdb_options_get_prepopulate_blob_cache(setup.options), 0);
        rocksdb_options_set_prepopulate_blob_cache(setup.options, prepopulates);
        assert_eq!(rocksdb_options_get_prepopulate_blob_cache(setup.options), prepopulates);
        let options = rocksdb_options_create();
        let text = c"create_if_missing=true;enable_blob_files=true;blob_cache=8M";
        ok(|e| rocksdb_get_options_from_string(setup.options, text.as_ptr(), options, e));
        let db = ok(|e| rocksdb_open(options, setup.path("db").as_ptr(), e));
        (0..100_u32).for_each(|n| setup.put(db, &n.to_be_bytes(), &[b'v'; 1000]));
        setup.flush_all(db);
        let usage = setup.number(db, c"rocksdb.blob-cache-usage");
        rocksdb_close(db);
        rocksdb_options_destroy(options);
        usage
    };
    let (empty, full) = (usage(0), usage(1));
    assert!(empty < 10_000 && full >= 100_000, "{empty} {full}");
}

unsafe extern "C" {
    fn rocksdb_options_set_verify_manifest_content_on_close(o: H, v: c_uchar);
    fn rocksdb_options_get_verify_manifest_content_on_close(o: H) -> c_uchar;
}

#[test]
fn a_manifest_is_read_back_when_the_database_is_closed() {
    let setup = Setup::new();
    unsafe {
        assert_eq!(rocksdb_options_get_verify_manifest_content_on_close(setup.options), 0);
        rocksdb_options_set_verify_manifest_content_on_close(setup.options, 1);
        assert_eq!(rocksdb_options_get_verify_manifest_content_on_close(setup.options), 1);
        let db = setup.open();
        setup.put(db, b"k", b"v");
        setup.flush_all(db);
        let directory = setup.directory.path().join("db");
        let current = std::fs::read_to_string(directory.join("CURRENT")).unwrap();
        let manifest = directory.join(current.trim());
        let mut bytes = std::fs::read(&manifest).unwrap();
        bytes[20] ^= 1;
        // Overwritten in place, because the database has the file open.
        let file = std::fs::OpenOptions::new().write(true).open(&manifest).unwrap();
        std::io::Write::write_all(&mut &file, &bytes).unwrap();
        rocksdb_close(db);
        assert!(!manifest.exists(), "another took its place");
        let db = setup.open();
        assert_eq!(setup.get(db, b"k").as_deref(), Some(&b"v"[..]));
        rocksdb_close(db);
    }
}
