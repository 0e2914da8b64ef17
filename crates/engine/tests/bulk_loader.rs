//! RocksDB's tools open what the bulk loader makes.
//!
//! Needs `ldb` and `sst_dump` (Debian's `rocksdb-tools`); where they are missing the tests say so and pass.

use karst_engine::{BulkLoader, Options};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

fn tool(name: &str, arguments: &[&str]) -> Option<String> {
    let output = match Command::new(name).args(arguments).output() {
        Ok(output) => output,
        Err(e) => {
            eprintln!("{name} cannot be run ({e}); skipped");
            return None;
        }
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} {arguments:?}: {text}{errors}");
    Some(text)
}

/// What `ldb scan` prints, by key.
fn scan(directory: &Path, family: &str) -> Option<BTreeMap<String, String>> {
    let db = format!("--db={}", directory.display());
    let text = tool("ldb", &[&db, &format!("--column_family={family}"), "scan"])?;
    let pairs = text.lines().filter_map(|line| line.split_once(" : "));
    Some(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
}

/// Three runs over three levels, range tombstone included, in two column families. Returns what the default one then holds.
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
    let db = format!("--db={}", directory.path().display());
    let Some(consistency) = tool("ldb", &[&db, "checkconsistency"]) else { return };
    assert!(consistency.contains("OK"), "{consistency}");
    assert_eq!(scan(directory.path(), "default").unwrap(), expected, "{options}");
    assert_eq!(scan(directory.path(), "other").unwrap().len(), 500);
    let files = format!("--file={}", directory.path().display());
    let verified = tool("sst_dump", &[&files, "--command=verify"]).unwrap();
    assert!(!verified.contains("Corruption"), "{verified}");
    let opened = tool("ldb", &[&db, "--try_load_options", "--ignore_unknown_options", "get", "prefix03999"]);
    assert_eq!(opened.unwrap().trim(), expected["prefix03999"]);
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
