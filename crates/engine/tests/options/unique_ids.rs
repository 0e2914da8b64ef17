//! Swapped tables: each is intact but not the one that the MANIFEST records. KarstDB's and
//! RocksDB's tables, read by either engine.

use karst_engine::{Db, ErrorKind, FlushOptions, Options};
use karst_testkit::rocksdb_tools as tools;
use std::path::{Path, PathBuf};

/// Writes a database with two tables of equal size.
fn written_by_karst(path: &Path) {
    let options = "format_version=5;disable_auto_compactions=true";
    let options = Options::new().set_all(options).unwrap().db(|db| db.create_if_missing = true);
    let db = Db::open(path, &options).unwrap();
    for value in ["one", "two"] {
        db.put("key", value).unwrap();
        db.flush(&FlushOptions::default()).unwrap();
    }
}

fn written_by_rocksdb(path: &Path) {
    let entry = |value: &str| vec![(b"key".to_vec(), value.as_bytes().to_vec())];
    for value in ["one", "two"] {
        tools::ldb_load(path, "default", &["--create_if_missing", "--disable_wal"], &entry(value)).unwrap();
    }
}

fn tables(path: &Path) -> Vec<PathBuf> {
    let all = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let mut tables: Vec<_> = all.filter(|path| path.extension().is_some_and(|e| e == "sst")).collect();
    tables.sort();
    tables
}

/// Exchanges two tables of equal size, so that only their identity tells them apart. Returns their
/// names.
fn swap(path: &Path) -> Vec<String> {
    let tables = tables(path);
    let [a, b] = &tables[..] else { panic!("two tables: {tables:?}") };
    assert_eq!(a.metadata().unwrap().len(), b.metadata().unwrap().len());
    let aside = path.join("aside");
    std::fs::rename(a, &aside).unwrap();
    std::fs::rename(b, a).unwrap();
    std::fs::rename(aside, b).unwrap();
    tables.iter().map(|table| table.file_name().unwrap().to_string_lossy().into_owned()).collect()
}

#[test]
fn swapped_tables_are_named_unless_the_option_says_not_to_look() {
    for write in [written_by_karst, written_by_rocksdb] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("db");
        write(&path);
        let sound = Db::open_read_only(&path, &Options::new()).unwrap();
        assert_eq!(sound.get("key").unwrap().as_deref(), Some(&b"two"[..]));
        drop(sound);
        assert!(tools::ldb(&path, &["get", "key"], b"").unwrap().contains("two"));
        let names = swap(&path);
        // Tables are opened with the database, or when they are first read.
        for max_open_files in ["-1", "100"] {
            let options = || Options::new().set("max_open_files", max_open_files).unwrap();
            let result = Db::open_read_only(&path, &options()).and_then(|db| db.get("key"));
            let error = result.map(drop).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corruption);
            let text = error.to_string();
            assert!(names.iter().any(|name| text.contains(name)) && text.contains("unique id"), "{text}");
            let careless = options().set("verify_sst_unique_id_in_manifest", "false").unwrap();
            assert!(Db::open_read_only(&path, &careless).unwrap().get("key").is_ok());
        }
        let said = tools::ldb(&path, &["get", "key"], b"").unwrap_err();
        assert!(said.contains("unique ID"), "RocksDB notices by what the MANIFEST says: {said}");
    }
}
