//! A build without compressions: errors for compressed data, and the compression of its own writes.
//!
//! Runs with `cargo test -p karstdb --no-default-features --test without_codecs`; with the features
//! it is empty.
#![cfg(not(any(
    feature = "snappy",
    feature = "zlib",
    feature = "bzip2",
    feature = "lz4",
    feature = "zstd"
)))]

use karstdb::{Db, Error, ErrorKind, FlushOptions, Options};
use std::path::Path;
use std::process::Command;

/// Runs RocksDB's tool directly, because the crate of test helpers would enable the compressions.
fn ldb(path: &Path, args: &[&str]) {
    let run = Command::new("ldb").arg(format!("--db={}", path.display())).args(args).output().unwrap();
    assert!(run.status.success(), "{args:?}: {}", String::from_utf8_lossy(&run.stderr));
}

fn refused(error: &Error, feature: &str) {
    assert_eq!(error.kind(), ErrorKind::NotSupported, "{error}");
    assert!(error.to_string().contains(&format!("the feature `{feature}`")), "{error}");
}

#[test]
fn tables_are_refused_by_the_name_of_the_feature() {
    let value = "v".repeat(4000);
    for (name, feature) in
        [("snappy", "snappy"), ("zlib", "zlib"), ("bzip2", "bzip2"), ("lz4", "lz4"), ("zstd", "zstd")]
    {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let how = format!("--compression_type={name}");
        ldb(path, &["--create_if_missing", &how, "put", "key", &value]);
        ldb(path, &[&how, "compact"]);
        let db = Db::open_read_only(path, &Options::new()).unwrap();
        let error = db.get("key").unwrap_err();
        refused(&error, feature);
        assert!(error.to_string().contains(".sst"), "the file is named: {error}");
        drop(db);
        // Writing needs another compression, because OPTIONS names the missing one.
        let plain = Options::new().column_families(|family| {
            family.compression = karstdb::options::Compression::None;
        });
        let db = Db::open(path, &plain).unwrap();
        refused(&db.get("key").unwrap_err(), feature);
        db.put("other", &value).unwrap();
        db.flush(&FlushOptions::default()).unwrap();
        assert!(db.get("other").unwrap().is_some());
        db.close().unwrap();
    }
}

#[test]
fn options_that_ask_for_what_is_not_there_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let create = || Options::new().db(|db| db.create_if_missing = true);
    for (option, value, feature) in [
        ("compression", "kSnappyCompression", "snappy"),
        ("bottommost_compression", "kZSTD", "zstd"),
        ("compression_per_level", "kNoCompression:kLZ4HCCompression", "lz4"),
        ("blob_compression_type", "kZlibCompression", "zlib"),
        ("compression", "kBZip2Compression", "bzip2"),
        ("wal_compression", "kZSTD", "zstd"),
    ] {
        let error = Db::open(&path, &create().set(option, value).unwrap()).unwrap_err();
        refused(&error, feature);
        assert!(error.to_string().contains(option), "the option is named: {error}");
        assert!(!path.join("CURRENT").exists(), "nothing was made");
    }
    // The default compression is one that the build has.
    let db = Db::open(&path, &create()).unwrap();
    db.put("key", "v".repeat(4000)).unwrap();
    db.flush(&FlushOptions::default()).unwrap();
    let family = db.default_column_family();
    refused(&db.set_options(family, &[("compression", "kZSTD")]).unwrap_err(), "zstd");
    assert!(db.get("key").unwrap().is_some());
    db.close().unwrap();
}

#[test]
fn a_compressed_log_is_no_damage() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    ldb(path, &["--create_if_missing", "--compression_type=no", "put", "key", "value"]);
    let is_options = |path: &Path| path.file_name().unwrap().to_str().unwrap().starts_with("OPTIONS-");
    let all = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    for file in all.filter(|file| is_options(file)) {
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.contains("wal_compression=kNoCompression"));
        std::fs::write(file, text.replace("wal_compression=kNoCompression", "wal_compression=kZSTD"))
            .unwrap();
    }
    ldb(path, &["--try_load_options", "put", "key", "value"]);
    refused(&Db::open_read_only(path, &Options::new()).unwrap_err(), "zstd");
    let other = Options::new().set("wal_compression", "kNoCompression").unwrap();
    refused(&Db::open(path, &other).unwrap_err(), "zstd");
}
