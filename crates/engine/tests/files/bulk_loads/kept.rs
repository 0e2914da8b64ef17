//! The bulk loader keeps all readable entries and uses the directories that the options name.

use crate::bulk_loads::{entries, memory, options};
use karst_engine::{BulkLoader, Db, DbPath, ReadOptions};
use karst_format::ids::ColumnFamilyId;
use karst_format::key::ValueType;
use std::collections::BTreeSet;

fn stamped(key: &str, timestamp: u64) -> Vec<u8> {
    [key.as_bytes(), &timestamp.to_le_bytes()].concat()
}

#[test]
fn entries_of_a_key_at_several_timestamps_are_all_kept() {
    let (env, _) = memory();
    let all = options(&env, "comparator=leveldb.BytewiseComparator.u64ts");
    let mut loader = BulkLoader::create("/db", &all).unwrap();
    let mut run = loader.sorted_run(ColumnFamilyId::DEFAULT, 6).unwrap();
    run.put(&stamped("key", 2), b"v2").unwrap();
    run.put(&stamped("key", 1), b"v1").unwrap();
    run.write(ValueType::Deletion, &stamped("other", 4), b"").unwrap();
    run.put(&stamped("other", 3), b"v3").unwrap();
    run.finish().unwrap();
    for timestamp in 3..=5 {
        loader.put(&stamped("key", timestamp), format!("old{timestamp}").as_bytes()).unwrap();
        loader.put(&stamped("key", timestamp), format!("v{timestamp}").as_bytes()).unwrap();
    }
    loader.delete(&stamped("key", 6)).unwrap();
    loader.put(&stamped("key", 7), b"v7").unwrap();
    loader.finish().unwrap();
    let db = Db::open("/db", &all).unwrap();
    let read = |key: &str, timestamp: u64| {
        let at = ReadOptions { timestamp: Some(timestamp.to_le_bytes().to_vec()), ..ReadOptions::new() };
        let value = db.get_cf(&at, db.default_column_family(), key).unwrap();
        value.map(|value| String::from_utf8(value.to_vec()).unwrap())
    };
    for timestamp in [1, 2, 3, 4, 5, 7] {
        assert_eq!(read("key", timestamp), Some(format!("v{timestamp}")), "at {timestamp}");
    }
    assert_eq!((read("key", 6), read("other", 3), read("other", 4)), (None, Some("v3".to_owned()), None));
}

#[test]
fn tables_and_blob_files_go_to_the_directories_of_the_options() {
    let (env, _) = memory();
    let more =
        "enable_blob_files=true;min_blob_size=100;max_bytes_for_level_base=1000;compression=kNoCompression";
    let all = options(&env, more)
        .db_paths([DbPath::new("/fast", 5_000), DbPath::new("/large", 1 << 30)])
        .cf_paths(Some("other"), [DbPath::new("/own", 1 << 30)]);
    let mut loader = BulkLoader::create("/db", &all).unwrap();
    let other = loader.create_column_family("other").unwrap();
    loader.put(b"a", b"on the last level").unwrap();
    loader.put(b"b", &[b'b'; 200]).unwrap();
    loader.seal(6).unwrap();
    loader.put(b"c", b"in L0").unwrap();
    loader.write(other, ValueType::Value, b"d", &[b'd'; 200]).unwrap();
    loader.finish().unwrap();
    let db = Db::open("/db", &all).unwrap();
    let found: BTreeSet<_> = db
        .live_files()
        .into_iter()
        .map(|file| (file.column_family, file.level, file.directory.to_string_lossy().into_owned()))
        .collect();
    let found: Vec<_> =
        found.iter().map(|(family, level, at)| (family.as_str(), *level, at.as_str())).collect();
    let expected = [
        ("default", None, "/fast"),
        ("default", Some(0), "/fast"),
        ("default", Some(6), "/large"),
        ("other", None, "/own"),
        ("other", Some(0), "/own"),
    ];
    assert_eq!(found, expected);
    let keys: Vec<_> = entries(&db, "default").into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, [b"a", b"b", b"c"]);
    assert_eq!(entries(&db, "other"), [(b"d".to_vec(), vec![b'd'; 200])]);
}
