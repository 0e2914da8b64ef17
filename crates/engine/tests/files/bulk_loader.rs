//! RocksDB's tools open databases that the bulk loader made.

use karst_engine::{BulkLoader, Db, Options};
use karst_testkit::rocksdb_tools::{ldb, ldb_scan, run};
use std::collections::BTreeMap;
use std::path::Path;

/// Returns the entries that `ldb scan` prints, by key.
fn scan(directory: &Path, family: &str) -> BTreeMap<String, String> {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    ldb_scan(directory, family).unwrap().into_iter().map(|(key, value)| (text(key), text(value))).collect()
}

/// Loads three runs into three levels, including a range tombstone, in two column families. Returns
/// the entries of the default family.
fn load(directory: &Path, options: &str) -> BTreeMap<String, String> {
    let all = format!("format_version=5;target_file_size_base=30K;{options}");
    let options = Options::new().set_all(&all).unwrap();
    let mut loader = BulkLoader::create(directory, &options).unwrap();
    let other = loader.create_column_family("other").unwrap();
    let mut expected = BTreeMap::new();
    let key = |i: usize| format!("prefix{:05}", i * 7919 % 4000);
    for i in 0..4000 {
        let (key, value) = (key(i), format!("value{}", i * i));
        loader.put(key.as_bytes(), value.as_bytes()).unwrap();
        expected.insert(key, value);
    }
    loader.seal(5).unwrap();
    loader.delete_range(b"prefix01000", b"prefix01500").unwrap();
    expected.retain(|key, _| !("prefix01000".."prefix01500").contains(&key.as_str()));
    for i in 0..700 {
        let (key, value) = (key(i), format!("newer{i}"));
        loader.put(key.as_bytes(), value.as_bytes()).unwrap();
        expected.insert(key, value);
    }
    loader.seal(2).unwrap();
    for i in 0..100 {
        loader.delete(key(i).as_bytes()).unwrap();
        expected.remove(&key(i));
    }
    let mut run = loader.sorted_run(other, 6).unwrap();
    for i in 0..500 {
        run.put(format!("o{i:04}").as_bytes(), b"v").unwrap();
    }
    run.finish().unwrap();
    loader.finish().unwrap();
    expected
}

fn check(options: &str) {
    let directory = tempfile::tempdir().unwrap();
    let expected = load(directory.path(), options);
    let consistency = ldb(directory.path(), &["checkconsistency"], b"").unwrap();
    assert!(consistency.contains("OK"), "{consistency}");
    assert_eq!(scan(directory.path(), "default"), expected, "{options}");
    assert_eq!(scan(directory.path(), "other").len(), 500);
    let files = format!("--file={}", directory.path().display());
    let verified = run("sst_dump", &[&files, "--command=verify"], b"").unwrap();
    assert!(!verified.contains("Corruption"), "{verified}");
    // A writing RocksDB opens it too, and KarstDB reads the result.
    ldb(directory.path(), &["put", "prefix03999", "changed"], b"").unwrap();
    ldb(directory.path(), &["compact"], b"").unwrap();
    let db = Db::open_read_only(directory.path(), &Options::new()).unwrap();
    for (key, value) in &expected {
        let value = if key == "prefix03999" { "changed" } else { value };
        assert_eq!(db.get(key).unwrap().as_deref(), Some(value.as_bytes()), "{key}");
    }
}

#[test]
fn plain() {
    check("");
}

#[test]
fn filters_and_partitions() {
    check(
        "filter_policy=bloomfilter:10:false;index_type=kTwoLevelIndexSearch;partition_filters=true;metadata_block_size=256",
    );
}

#[test]
fn ribbon_zstd_and_hash_indexes() {
    check(
        "filter_policy=ribbonfilter:10:-1;compression=kZSTD;data_block_index_type=kDataBlockBinaryAndHash;checksum=kCRC32c",
    );
}

#[test]
fn prefixes_and_first_keys() {
    check(
        "prefix_extractor=rocksdb.FixedPrefix.8;filter_policy=bloomfilter:10;index_type=kBinarySearchWithFirstKey;compression=kLZ4Compression",
    );
}
