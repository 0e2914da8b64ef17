//! Small databases to be damaged.

use super::{Files, read_all};
use karst_engine::{BulkLoader, Options};
use karst_format::ids::ColumnFamilyId;
use karst_format::key::ValueType;
use karst_io::PosixFileSystem;
use karst_testkit::random::Random;
use karst_testkit::rocksdb_tools::ldb_load;
use std::collections::BTreeMap;
use std::path::Path;

/// Entries of a column family, by key.
pub(crate) type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// A database and its entries.
pub(crate) struct Sample {
    pub(crate) name: &'static str,
    pub(crate) files: Files,
    /// Files, by equal names, of another database with the same keys and shape but other values.
    /// May be empty.
    pub(crate) twin: Files,
    pub(crate) families: Vec<(&'static str, Contents)>,
    /// True if a running database appended to the MANIFEST, so that any prefix of it is an older
    /// database.
    pub(crate) appended_manifest: bool,
}

fn key(i: usize) -> Vec<u8> {
    format!("key{:06}", i * 37).into_bytes()
}

/// Returns a database that the bulk loader wrote: two column families; in the default one, three
/// levels and L0, in which newer values, merge operands, deletions and a range tombstone hide lower
/// entries, so that a missing file is noticed.
pub(crate) fn loaded(name: &'static str, options: &str) -> Sample {
    let write = |seed: u64| {
        let directory = tempfile::tempdir().unwrap();
        let families = load(directory.path(), options, seed);
        (read_all(&PosixFileSystem, directory.path()), families)
    };
    let (files, families) = write(1);
    let (twin, _) = write(2);
    let tables = files.keys().filter(|name| name.ends_with(".sst")).count();
    assert!(tables >= 7, "{tables} tables");
    Sample { name, files, twin, families, appended_manifest: false }
}

fn load(directory: &Path, options: &str, seed: u64) -> Vec<(&'static str, Contents)> {
    let all = format!(
        "target_file_size_base=4096;target_file_size_multiplier=1;block_size=512;merge_operator=uint64add;{options}"
    );
    let mut loader = BulkLoader::create(directory, &Options::new().set_all(&all).unwrap()).unwrap();
    let other = loader.create_column_family("other").unwrap();
    let mut random = Random::new(seed);
    let (mut default, mut second) = (Contents::new(), Contents::new());
    let mut value = || random.next_u64().to_le_bytes().to_vec();
    let mut put = |loader: &mut BulkLoader, i: usize, value: Vec<u8>| {
        loader.put(&key(i), &value).unwrap();
        default.insert(key(i), value);
    };
    (0..500).for_each(|i| put(&mut loader, i, value()));
    loader.seal(6).unwrap();
    (0..500).step_by(3).for_each(|i| put(&mut loader, i, value()));
    loader.delete_range(&key(100), &key(140)).unwrap();
    default.retain(|k, _| !(key(100)..key(140)).contains(k));
    loader.seal(4).unwrap();
    for i in (1..500).step_by(11) {
        loader.merge(&key(i), &7u64.to_le_bytes()).unwrap();
        let sum = default.entry(key(i)).or_insert(vec![0; 8]);
        let old = u64::from_le_bytes(sum[..].try_into().unwrap());
        *sum = old.wrapping_add(7).to_le_bytes().to_vec();
    }
    loader.seal(2).unwrap();
    for i in (2..500).step_by(13) {
        loader.delete(&key(i)).unwrap();
        default.remove(&key(i));
    }
    loader.seal(0).unwrap();
    for i in 0..60 {
        let v = value();
        loader.write(other, ValueType::Value, &key(i), &v).unwrap();
        second.insert(key(i), v);
    }
    assert_ne!(other, ColumnFamilyId::DEFAULT);
    loader.finish().unwrap();
    vec![("default", default), ("other", second)]
}

/// Returns a database that RocksDB 7.8 wrote: several L0 tables with values in blob files, and an
/// unflushed log. Every key is written once, so that a shorter history lacks keys but has no other
/// values.
pub(crate) fn blobs_and_log() -> Sample {
    let directory = tempfile::tempdir().unwrap();
    let mut random = Random::new(3);
    let mut contents = Contents::new();
    for part in 0..3 {
        let entries: Vec<_> = (0..40)
            .map(|i| {
                let length = if i % 4 == 0 { 10 } else { 60 + random.index(60) };
                (key(i * 3 + part), random.bytes(length))
            })
            .collect();
        let flags = [
            "--create_if_missing",
            "--auto_compaction=false",
            "--enable_blob_files",
            "--min_blob_size=50",
            "--blob_file_size=3000",
        ];
        ldb_load(directory.path(), "default", &flags, &entries).unwrap();
        contents.extend(entries);
    }
    let mut files = read_all(&PosixFileSystem, directory.path());
    // Old info logs are dropped, because they are long and never read; LOG stays.
    files.retain(|name, _| !name.starts_with("LOG.old"));
    let some = |ending: &str| files.iter().any(|(name, bytes)| name.ends_with(ending) && !bytes.is_empty());
    assert!(some(".sst") && some(".blob") && some(".log"), "{:?}", files.keys());
    let families = vec![("default", contents)];
    Sample { name: "blobs and log", files, twin: Files::new(), families, appended_manifest: true }
}
