//! Databases created by the loader, read back by KarstDB. (RocksDB's tools read them in
//! `tests/files/bulk_loader.rs`.)

use super::BulkLoader;
use crate::{Db, Options};
use karst_format::ids::ColumnFamilyId;
use karst_format::key::ValueType;

fn key(i: usize) -> Vec<u8> {
    format!("key{i:06}").into_bytes()
}

#[test]
fn runs_on_several_levels_are_read_newest_first() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::new()
        .set_all("target_file_size_base=20K;write_buffer_size=64M;compression=kNoCompression")
        .unwrap();
    let mut loader = BulkLoader::create(directory.path(), &options).unwrap();
    let mut run = loader.sorted_run(ColumnFamilyId::DEFAULT, 6).unwrap();
    for i in 0..3000 {
        run.put(&key(i), format!("old{i}").as_bytes()).unwrap();
    }
    run.finish().unwrap();
    for i in (0..3000).rev().step_by(3) {
        loader.put(&key(i), format!("middle{i}").as_bytes()).unwrap();
    }
    loader.seal(3).unwrap();
    loader.delete(&key(5)).unwrap();
    loader.delete_range(&key(100), &key(200)).unwrap();
    loader.put(&key(150), b"new").unwrap();
    loader.put(&key(150), b"newer").unwrap();
    loader.seal(0).unwrap();
    loader.put(&key(7), b"newest").unwrap();
    loader.finish().unwrap();

    let db = Db::open_read_only(directory.path(), &Options::new()).unwrap();
    for i in 0..3001 {
        let expected = match i {
            5 | 3000 => None,
            7 => Some("newest".to_owned()),
            150 => Some("newer".to_owned()),
            100..200 => None,
            _ if i % 3 == 2 => Some(format!("middle{i}")),
            _ => Some(format!("old{i}")),
        };
        let value = db.get(key(i)).unwrap();
        assert_eq!(value.as_deref(), expected.as_deref().map(str::as_bytes), "{i}");
    }
    let files = |level: u32| db.live_files().iter().filter(|f| f.level == Some(level)).count();
    assert_eq!((files(0), files(1), files(2)), (2, 0, 0));
    assert!(files(3) > 1 && files(6) > 2, "{} {}", files(3), files(6));
    assert_eq!(db.latest_sequence_number(), 3000 + 1000 + 4 + 1);
    assert!(db.identity().is_some_and(|id| id.len() == 36));
}

#[test]
fn a_range_tombstone_is_cut_where_files_are() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::new().set_all("target_file_size_base=8K;compression=kNoCompression").unwrap();
    let mut loader = BulkLoader::create(directory.path(), &options).unwrap();
    for i in 0..2000 {
        loader.put(&key(i), &[b'o'; 40]).unwrap();
    }
    loader.seal(4).unwrap();
    loader.delete_range(&key(500), &key(1500)).unwrap();
    for i in (0..2000).step_by(4) {
        loader.put(&key(i), &[b'n'; 100]).unwrap();
    }
    loader.seal(2).unwrap();
    // A run with a single tombstone and no other entry.
    loader.delete_range(&key(1900), &key(1950)).unwrap();
    loader.seal(1).unwrap();
    loader.finish().unwrap();
    let db = Db::open_read_only(directory.path(), &Options::new()).unwrap();
    for i in 0..2000 {
        let value = db.get(key(i)).unwrap().map(|v| v[0]);
        let expected = match i {
            1900..1950 => None,
            _ if i % 4 == 0 => Some(b'n'),
            500..1500 => None,
            _ => Some(b'o'),
        };
        assert_eq!(value, expected, "{i}");
    }
    let level_2: Vec<_> = db.live_files().into_iter().filter(|f| f.level == Some(2)).collect();
    assert!(level_2.len() > 3);
    assert!(level_2.windows(2).all(|w| w[0].largest_key <= w[1].smallest_key));
}

#[test]
fn column_families_full_buffers_and_merges() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::new()
        .set_all("write_buffer_size=100K")
        .unwrap()
        .column_family("counts", |cf| cf.merge_operator = karst_format::options::Object::new("uint64add"));
    let mut loader = BulkLoader::create(directory.path(), &options).unwrap();
    let counts = loader.create_column_family("counts").unwrap();
    assert!(loader.create_column_family("counts").is_err());
    for i in 0..5000usize {
        loader.put(&key(i * 7919 % 5000), &[b'x'; 60]).unwrap();
        loader.write(counts, ValueType::Merge, &key(i % 10), &1u64.to_le_bytes()).unwrap();
    }
    loader.finish().unwrap();
    let db = Db::open_read_only(directory.path(), &Options::new()).unwrap();
    let counts = db.column_family("counts").unwrap();
    for i in 0..10 {
        let value = db.get_cf(&crate::ReadOptions::new(), &counts, key(i)).unwrap().unwrap();
        assert_eq!(*value, 500u64.to_le_bytes());
    }
    assert!(db.live_files().iter().filter(|f| f.column_family == "default").count() > 3);
    assert!((0..5000).all(|i| db.get(key(i)).unwrap().is_some()));
    assert_eq!(db.int_property("rocksdb.estimate-num-keys"), Some(5000));
}

#[test]
fn runs_out_of_order_and_second_databases_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let mut loader = BulkLoader::create(directory.path(), &Options::new()).unwrap();
    loader.put(b"a", b"1").unwrap();
    assert!(loader.sorted_run(ColumnFamilyId::DEFAULT, 1).unwrap_err().to_string().contains("sealed first"));
    loader.seal(2).unwrap();
    loader.put(b"a", b"2").unwrap();
    assert!(loader.seal(2).unwrap_err().to_string().contains("level 2"));
    assert!(loader.seal(9).unwrap_err().to_string().contains("no level 9"));
    assert!(BulkLoader::create(directory.path(), &Options::new()).is_err(), "locked");
    loader.finish().unwrap();
    let error = BulkLoader::create(directory.path(), &Options::new()).unwrap_err().to_string();
    assert!(error.contains("CURRENT: there is a database already"), "{error}");
    let bad = Options::new().set_all("compression=kXpressCompression").unwrap();
    let other = tempfile::tempdir().unwrap();
    assert!(BulkLoader::create(other.path(), &bad).unwrap_err().to_string().contains("kXpress"));
}

#[test]
fn values_in_blob_files_are_read_back() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::new()
        .set_all("enable_blob_files=true;min_blob_size=64;blob_file_size=20K;blob_compression_type=kZSTD;target_file_size_base=4K")
        .unwrap();
    let value = |i: usize| vec![b'a' + (i % 26) as u8; if i.is_multiple_of(3) { 20 } else { 200 + i }];
    let mut loader = BulkLoader::create(directory.path(), &options).unwrap();
    let mut run = loader.sorted_run(ColumnFamilyId::DEFAULT, 5).unwrap();
    for i in 0..2000 {
        run.put(&key(i), &value(i)).unwrap();
    }
    run.finish().unwrap();
    loader.put(&key(7), &value(8)).unwrap();
    loader.finish().unwrap();
    let db = Db::open_read_only(directory.path(), &Options::new()).unwrap();
    for i in 0..2000 {
        let expected = if i == 7 { value(8) } else { value(i) };
        assert_eq!(db.get(key(i)).unwrap().as_deref(), Some(&expected[..]), "{i}");
    }
    assert!(db.int_property("rocksdb.num-blob-files").unwrap() > 2);
}
