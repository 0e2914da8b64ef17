//! Options of the engine that numbers set, each by what comes of it.

use super::*;

api! {
    fn rocksdb_block_based_options_create() -> H;
    fn rocksdb_block_based_options_destroy(o: H);
    fn rocksdb_options_set_block_based_table_factory(o: H, t: H);
    fn rocksdb_block_based_options_set_block_size(o: H, v: usize);
    fn rocksdb_block_based_options_set_use_delta_encoding(o: H, v: c_uchar);
    fn rocksdb_block_based_options_get_use_delta_encoding(o: H) -> c_uchar;
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
    fn rocksdb_compact_range(db: H, s: B, sn: usize, l: B, ln: usize);
}

const NO_COMPRESSION: c_int = 0;
const SNAPPY: c_int = 1;
const ZSTD: c_int = 7;

/// Bytes in which nothing repeats.
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

    /// A number of a property that is a list of them.
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

/// The bytes of the data of a table of `entries`, with options of tables.
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
