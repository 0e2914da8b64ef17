//! Column families that are exported and imported elsewhere.

use crate::copies::{entries, key, memory, options};
use karst_engine::format::Comparator;
use karst_engine::{
    Checkpoint, CompactRangeOptions, Db, ErrorKind, ExportImportFilesMetaData, ExportedFile, FlushOptions,
    ImportColumnFamilyOptions, Options, ReadOptions, WriteOptions,
};
use karst_format::key::{self as format_key, SeqNo, ValueType};
use karst_format::wide_column::{WideColumn, encode_into};
use karst_io::{Env, FileSystem, MemoryFileSystem};
use std::path::Path;
use std::sync::Arc;

/// Returns a family with tables in two levels, overwritten and deleted keys, and a range tombstone.
fn exported(env: &Env, more: &str) -> (Db, ExportImportFilesMetaData) {
    let db = Db::open_cf("/db", &options(env, more), &["default", "goods"]).unwrap();
    let goods = db.column_family("goods").unwrap();
    let how = WriteOptions::default();
    for round in 0..3u64 {
        for number in 0..200 {
            db.put_cf(&how, &goods, key(number), format!("{round}-{number}")).unwrap();
            db.put(key(number), "elsewhere").unwrap();
        }
        db.delete_cf(&how, &goods, key(round)).unwrap();
        db.delete_range_cf(&how, &goods, key(100 + round * 10), key(105 + round * 10)).unwrap();
        db.flush_cfs(&FlushOptions::default(), &[&goods]).unwrap();
        if round == 0 {
            let all = CompactRangeOptions::default();
            db.compact_range_cf(&all, &goods, None::<&[u8]>, None::<&[u8]>).unwrap();
        }
    }
    db.put_cf(&how, &goods, "only in memory", "1").unwrap();
    let metadata = Checkpoint::new(&db).unwrap().export_column_family(&goods, "/export").unwrap();
    (db, metadata)
}

fn calm() -> &'static str {
    "disable_auto_compactions=true;level0_slowdown_writes_trigger=100;level0_stop_writes_trigger=100"
}

#[test]
fn what_is_exported_is_there_where_it_is_imported() {
    for move_files in [false, true] {
        let (env, files) = memory();
        let (db, metadata) = exported(&env, calm());
        assert_eq!(metadata.db_comparator_name, "leveldb.BytewiseComparator");
        let levels: Vec<u32> = metadata.files.iter().map(|file| file.level).collect();
        assert!(levels.contains(&0) && levels.iter().any(|level| *level > 0), "{levels:?}");
        let names = files.list_dir(Path::new("/export")).unwrap();
        assert_eq!(names.len(), metadata.files.len(), "{names:?}");
        let expected = entries(&db, "goods");
        // Imports into a new database, whose sequence numbers are far below.
        let all = options(&env, calm());
        let other = Db::open("/other", &all).unwrap();
        other.put("own", "1").unwrap();
        let import = ImportColumnFamilyOptions { move_files };
        let family = other.create_column_family_with_import("imported", &all, &import, &metadata).unwrap();
        assert_eq!(entries(&other, "imported"), expected);
        let left = files.list_dir(Path::new("/export")).unwrap().len();
        assert_eq!(left, if move_files { 0 } else { metadata.files.len() });
        // Later writes are newer than the imported entries, and all of them survive.
        other.put_cf(&WriteOptions::default(), &family, key(7), "newer").unwrap();
        other.put("own", "2").unwrap();
        let check = |db: &Db| {
            let family = db.column_family("imported").unwrap();
            let got = db.get_cf(&ReadOptions::new(), &family, key(7)).unwrap();
            assert_eq!(got.as_deref(), Some(&b"newer"[..]));
            assert_eq!(entries(db, "imported").len(), expected.len());
            assert_eq!(db.get("own").unwrap().as_deref(), Some(&b"2"[..]));
        };
        check(&other);
        drop(family);
        // Copies the files without closing, like a crash.
        let left = MemoryFileSystem::new();
        other.disable_file_deletions().unwrap();
        for name in files.list_dir(Path::new("/other")).unwrap() {
            let path = Path::new("/other").join(name);
            left.write_file(&path, files.read_file(&path).unwrap()).unwrap();
        }
        other.enable_file_deletions().unwrap();
        let killed = Env::builder().file_system(Arc::new(left)).build();
        check(&Db::open("/other", &options(&killed, calm())).unwrap());
        other.close().unwrap();
        drop(other);
        let other = Db::open("/other", &all).unwrap();
        check(&other);
        let family = other.column_family("imported").unwrap();
        let whole = CompactRangeOptions::default();
        other.compact_range_cf(&whole, &family, None::<&[u8]>, None::<&[u8]>).unwrap();
        check(&other);
        other.verify_checksum().unwrap();
        // The original keeps its own files.
        assert_eq!(entries(&db, "goods"), expected);
        db.verify_checksum().unwrap();
    }
}

#[test]
fn sizes_and_bounds_that_the_metadata_leaves_out_are_those_of_the_tables() {
    let (env, _files) = memory();
    let (db, mut metadata) = exported(&env, calm());
    let goods = db.column_family("goods").unwrap();
    // A table of which only a range tombstone is left, before all keys.
    db.delete_range_cf(&WriteOptions::default(), &goods, key(0), key(3)).unwrap();
    let checkpoint = Checkpoint::new(&db).unwrap();
    let newer = checkpoint.export_column_family(&goods, "/newer").unwrap();
    let expected = entries(&db, "goods");
    let whole = newer.clone();
    metadata.files = newer.files;
    for file in &mut metadata.files {
        (file.size_bytes, file.epoch_number) = (0, 0);
        (file.smallest, file.largest) = (Vec::new(), Vec::new());
    }
    let all = options(&env, calm());
    let other = Db::open("/other", &all).unwrap();
    let import = ImportColumnFamilyOptions::default();
    let imported = other.create_column_family_with_import("imported", &all, &import, &metadata).unwrap();
    assert_eq!(entries(&other, "imported"), expected);
    other.verify_checksum().unwrap();
    // The MANIFEST gets the bounds and sizes that complete metadata would have given.
    let bounds = |files: &[ExportedFile]| -> Vec<_> {
        let mut all: Vec<_> = files
            .iter()
            .map(|file| (file.level, file.size_bytes, file.smallest.clone(), file.largest.clone()))
            .collect();
        all.sort();
        all
    };
    let checkpoint = Checkpoint::new(&other).unwrap();
    let again = checkpoint.export_column_family(&imported, "/again").unwrap();
    assert_eq!(bounds(&again.files), bounds(&whole.files));
    // Metadata with one bound only is refused.
    metadata.files[0].largest = b"12345678".to_vec();
    let told = other.create_column_family_with_import("half", &all, &import, &metadata).unwrap_err();
    assert_eq!(told.kind(), ErrorKind::InvalidArgument, "{told}");
}

#[test]
fn entities_with_columns_in_blob_files_and_tables_in_another_order_are_not_imported() {
    let (env, files) = memory();
    let plain = "checksum=kNoChecksum;compression=kNoCompression";
    let all = options(&env, plain);
    let db = Db::open("/db", &all).unwrap();
    let index = b"\x01\x07\x00\x05\x00"; // of five bytes in blob file 7
    let mut entity = Vec::new();
    encode_into(&[WideColumn { name: b"column", value: index, is_blob: true }], &mut entity);
    // The entity is written as a plain value, and then its type is changed in the file.
    db.put("key", entity).unwrap();
    let family = db.default_column_family();
    let mut metadata = Checkpoint::new(&db).unwrap().export_column_family(family, "/export").unwrap();
    let path = Path::new("/export").join(&metadata.files[0].name);
    let mut bytes = files.read_file(&path).unwrap();
    let entry = b"key\x01\x01\0\0\0\0\0\0";
    let at = bytes.windows(entry.len()).position(|window| window == entry).unwrap();
    bytes[at + 3] = ValueType::WideColumnEntity as u8;
    files.remove(&path).unwrap();
    files.write_file(&path, bytes).unwrap();
    let file = &mut metadata.files[0];
    for end in [&mut file.smallest, &mut file.largest] {
        end[3] = ValueType::WideColumnEntity as u8;
    }
    let import = ImportColumnFamilyOptions::default();
    let told = db.create_column_family_with_import("bad", &all, &import, &metadata).unwrap_err();
    assert_eq!(told.kind(), ErrorKind::NotSupported, "{told}");
    assert!(told.to_string().contains("blob file"), "{told}");

    let reverse = options(&env, plain).comparator(None, Comparator::ReverseBytewise);
    let other = Db::open("/reverse", &reverse).unwrap();
    ["a", "b", "c"].iter().for_each(|key| other.put(key, "value").unwrap());
    let family = other.default_column_family();
    let mut metadata = Checkpoint::new(&other).unwrap().export_column_family(family, "/reversed").unwrap();
    // Metadata of a caller that knows the keys but not the table's comparator.
    metadata.db_comparator_name = "leveldb.BytewiseComparator".into();
    let file = &mut metadata.files[0];
    std::mem::swap(&mut file.smallest, &mut file.largest);
    let told = db.create_column_family_with_import("bad", &all, &import, &metadata).unwrap_err();
    assert_eq!(told.kind(), ErrorKind::InvalidArgument, "{told}");
    assert!(told.to_string().contains("comparator"), "{told}");
}

#[test]
fn what_does_not_fit_is_refused_and_leaves_no_family() {
    let (env, files) = memory();
    let (db, metadata) = exported(&env, calm());
    let all = options(&env, calm());
    let names_before = || {
        let mut names = files.list_dir(Path::new("/db")).unwrap();
        names.retain(|name| name.ends_with(".sst"));
        names
    };
    let before = names_before();
    let refused = |metadata: &ExportImportFilesMetaData, options: &Options| {
        let import = ImportColumnFamilyOptions { move_files: true };
        let told = db.create_column_family_with_import("bad", options, &import, metadata).unwrap_err();
        assert!(db.column_family("bad").is_none(), "{told}");
        karst_testkit::eventually(before.clone(), names_before);
        assert_eq!(files.list_dir(Path::new("/export")).unwrap().len(), metadata.files.len());
        told.kind()
    };
    let changed = |change: &dyn Fn(&mut ExportImportFilesMetaData)| {
        let mut other = metadata.clone();
        change(&mut other);
        other
    };
    use ErrorKind::{Corruption, InvalidArgument};
    let count = metadata.files.len();
    assert!(count >= 3);
    for (what, kind, bad) in [
        ("the comparator", InvalidArgument, changed(&|m| m.db_comparator_name = "mine".into())),
        ("the last number", InvalidArgument, changed(&|m| m.files[0].largest_seq = (1 << 56) - 1)),
        ("a level", InvalidArgument, changed(&|m| m.files[0].level = 70)),
        ("a bound", InvalidArgument, changed(&|m| m.files[0].smallest.truncate(3))),
        (
            "a bound behind what is there",
            Corruption,
            changed(&|m| {
                let file = &mut m.files[count - 1];
                file.smallest = file.largest.clone();
            }),
        ),
        (
            "a bound before what is there",
            Corruption,
            changed(&|m| {
                let file = &mut m.files[count - 1];
                file.largest = file.smallest.clone();
            }),
        ),
        (
            "bounds that are none",
            InvalidArgument,
            changed(&|m| {
                let file = &mut m.files[count - 1];
                std::mem::swap(&mut file.smallest, &mut file.largest);
            }),
        ),
        (
            "numbers",
            Corruption,
            changed(&|m| m.files[count - 1].largest_seq = m.files[count - 1].smallest_seq),
        ),
        ("a name", InvalidArgument, changed(&|m| m.files[0].name = "../db/CURRENT".into())),
        ("the size", Corruption, changed(&|m| m.files[0].size_bytes += 1)),
        ("the order", InvalidArgument, changed(&|m| m.files.iter_mut().for_each(|file| file.level = 3))),
    ] {
        assert_eq!(refused(&bad, &all), kind, "{what}");
    }
    let reverse = all.clone().set("comparator", "rocksdb.ReverseBytewiseComparator");
    if let Ok(reverse) = reverse {
        assert_eq!(refused(&metadata, &reverse), InvalidArgument);
    }
    let none = changed(&|m| m.files.clear());
    let import = ImportColumnFamilyOptions::default();
    let told = db.create_column_family_with_import("bad", &all, &import, &none).unwrap_err();
    assert_eq!(told.kind(), InvalidArgument);
    let two = changed(&|m| m.files.push(m.files[0].clone()));
    let told = db.create_column_family_with_import("bad", &all, &import, &two).unwrap_err();
    assert!(told.kind() == InvalidArgument && told.to_string().contains("twice"), "{told}");
    // The table's content is replaced by zeros.
    let path = Path::new("/export").join(&metadata.files[0].name);
    files.remove(&path).unwrap();
    files.write_file(&path, vec![0; metadata.files[0].size_bytes as usize]).unwrap();
    assert_eq!(refused(&metadata, &all), Corruption);
    let twice = db.create_column_family_with_import("goods", &all, &import, &metadata).unwrap_err();
    assert_eq!(twice.kind(), InvalidArgument);
    assert!(db.column_family("goods").is_some());
    // Impossible exports.
    let goods = db.column_family("goods").unwrap();
    let checkpoint = Checkpoint::new(&db).unwrap();
    assert_eq!(checkpoint.export_column_family(&goods, "/export").unwrap_err().kind(), InvalidArgument);
    let blobs = db.create_column_family("blobs", &options(&env, "enable_blob_files=true")).unwrap();
    db.put_cf(&WriteOptions::default(), &blobs, "key", "value").unwrap();
    let told = checkpoint.export_column_family(&blobs, "/blobs").unwrap_err();
    assert_eq!(told.kind(), ErrorKind::NotSupported);
    // Made-up metadata for one of its tables is refused, because the values stay in the blob file.
    let table = db.live_files().into_iter().find(|file| file.column_family == "blobs").unwrap();
    let name = format!("{:06}.sst", table.number);
    let bound = |trailer: u64| [&b"key"[..], &trailer.to_le_bytes()].concat();
    let made_up = ExportedFile {
        size_bytes: files.metadata(&Path::new("/db").join(&name)).unwrap().len,
        name,
        directory: "/db".into(),
        level: 0,
        smallest: bound(format_key::pack_trailer(SeqNo::MAX, ValueType::BlobIndex)),
        largest: bound(0),
        smallest_seq: 0,
        largest_seq: db.latest_sequence_number(),
        epoch_number: 0,
        checksum: None,
    };
    let metadata = ExportImportFilesMetaData { files: vec![made_up], ..metadata.clone() };
    let told = db.create_column_family_with_import("bad", &all, &import, &metadata).unwrap_err();
    assert_eq!(told.kind(), ErrorKind::NotSupported, "{told}");
    assert!(told.to_string().contains("blob file"), "{told}");
    db.drop_column_family(&goods).unwrap();
    let told = checkpoint.export_column_family(&goods, "/dropped").unwrap_err();
    assert!(matches!(told.kind(), ErrorKind::NotFound | InvalidArgument), "{told}");
    assert!(!files.exists(Path::new("/blobs")).unwrap() && !files.exists(Path::new("/dropped")).unwrap());
}
