//! Refused files: the error has the reason, the database is unchanged, and no file is left behind.

use super::*;
use karst_engine::format::Comparator;
use karst_engine::{ErrorKind, FlushOptions, IngestExternalFileArg, IngestExternalFileOptions};
use karst_format::key::ValueType;
use karst_format::wide_column::{WideColumn, encode_into};
use karst_testkit::eventually;

fn tables_in(db: &Db) -> usize {
    let names = db.env().fs().list_dir("/db".as_ref()).unwrap();
    names.iter().filter(|name| name.ends_with(".sst")).count()
}

/// Asserts that ingesting `files` fails with an error of this kind that contains `says`, and leaves
/// the database unchanged.
fn refused(db: &Db, options: IngestExternalFileOptions, files: &[&str], kind: ErrorKind, says: &str) {
    let (before, at) = (all(db), db.latest_sequence_number());
    let error = db.ingest_external_file(&options, files.iter().copied()).unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(says), "{error}");
    assert_eq!((all(db), db.latest_sequence_number()), (before, at));
    eventually(db.live_files().len(), || tables_in(db));
    db.put("still", "writable").unwrap();
    db.delete("still").unwrap();
    db.flush(&FlushOptions::default()).unwrap();
}

fn checked() -> IngestExternalFileOptions {
    IngestExternalFileOptions { verify_checksums_before_ingest: true, ..Default::default() }
}

#[test]
fn what_cannot_be_ingested_changes_nothing() {
    let how = in_memory().column_families(|family| family.disable_auto_compactions = true);
    let db = Db::open("/db", &how).unwrap();
    db.put("a", "1").unwrap();
    db.put("z", "1").unwrap();
    let fs = db.env().fs().clone();
    let any = IngestExternalFileOptions::default();
    use ErrorKind::{Corruption, InvalidArgument, NotFound};

    refused(&db, any, &[], InvalidArgument, "the list of files is empty");
    refused(&db, any, &["/none.sst"], NotFound, "/none.sst");
    let both = IngestExternalFileOptions { move_files: true, link_files: true, ..any };
    refused(&db, both, &["/none.sst"], InvalidArgument, "do not go together");

    write_file(&how.clone().comparator(None, Comparator::ReverseBytewise), "/foreign.sst", &[("b", "1")]);
    refused(&db, any, &["/foreign.sst"], InvalidArgument, "comparator");

    write_file(&how, "/good.sst", &[("b", "1"), ("y", "1")]);
    refused(&db, any, &["/good.sst", "/none.sst"], NotFound, "/none.sst");
    let bytes = fs.read_file("/good.sst".as_ref()).unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let mut file = fs.create(name.as_ref()).unwrap();
        file.append(bytes).unwrap();
    };
    for cut in [0, 1, bytes.len() / 2, bytes.len() - 1] {
        write("/cut.sst", &bytes[..cut]);
        refused(&db, any, &["/cut.sst"], Corruption, "");
    }
    // Flips a bit in each block; verification of all blocks must find every flip.
    for at in (0..bytes.len() - 60).step_by(7) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 4;
        write("/flipped.sst", &flipped);
        let error = db.ingest_external_file(&checked(), ["/flipped.sst"]);
        // The kind of the error depends on the block.
        if let Err(error) = error {
            assert!(
                matches!(error.kind(), Corruption | ErrorKind::NotSupported | InvalidArgument),
                "{at}: {error}"
            );
        } else {
            panic!("a bit at {at} of {} was not noticed", bytes.len());
        }
    }
    // A format version that no reader knows yet.
    write_file(&how.clone().set("checksum", "kNoChecksum").unwrap(), "/newer.sst", &[("b", "1")]);
    let mut newer = fs.read_file("/newer.sst".as_ref()).unwrap();
    let version = b"version\x02\0\0\0";
    let place = newer.windows(version.len()).position(|window| window == version).unwrap();
    newer[place + b"version".len()] = 3;
    write("/newer.sst", &newer);
    refused(&db, any, &["/newer.sst"], Corruption, "unknown version 3");

    db.put("m", "in memory").unwrap();
    let no_flush = IngestExternalFileOptions { allow_blocking_flush: false, ..any };
    refused(&db, no_flush, &["/good.sst"], InvalidArgument, "allow_blocking_flush");
    let plain = IngestExternalFileOptions { allow_global_seqno: false, ..any };
    refused(&db, plain, &["/good.sst"], InvalidArgument, "allow_global_seqno");
    refused(&db, plain, &["/good.sst", "/good.sst"], InvalidArgument, "allow_global_seqno");
    db.ingest_external_file(&any, ["/good.sst", "/good.sst"]).unwrap();
    assert_eq!(all(&db).len(), 5);
}

#[test]
fn a_file_of_another_column_family_and_a_family_that_is_gone_are_refused() {
    let how = in_memory();
    let db = Db::open("/db", &how).unwrap();
    let other = db.create_column_family("other", &how).unwrap();
    let mut writer = SstFileWriter::for_column_family(&how, &other).unwrap();
    writer.open("/file.sst").unwrap();
    writer.put("k", "v").unwrap();
    writer.finish().unwrap();
    let any = IngestExternalFileOptions::default();
    refused(&db, any, &["/file.sst"], ErrorKind::InvalidArgument, "column family");
    let arg = |family: &karst_engine::ColumnFamily| IngestExternalFileArg::new(family, ["/file.sst"], any);
    let twice = db.ingest_external_files(&[arg(&other), arg(&other)]).unwrap_err();
    assert!(twice.to_string().contains("named twice"), "{twice}");
    db.drop_column_family(&other).unwrap();
    let gone = db.ingest_external_files(&[arg(&other)]).unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound, "{gone}");
    let elsewhere = Db::open("/elsewhere", &how).unwrap();
    let foreign = db.ingest_external_files(&[arg(elsewhere.default_column_family())]).unwrap_err();
    assert_eq!(foreign.kind(), ErrorKind::InvalidArgument, "{foreign}");
    eventually(db.live_files().len(), || tables_in(&db));
    db.close().unwrap();
    let closed = db.ingest_external_file(&any, ["/file.sst"]).unwrap_err();
    assert_eq!(closed.kind(), ErrorKind::Closed);
    let reader = Db::open_read_only("/db", &how).unwrap();
    let error = reader.ingest_external_file(&any, ["/file.sst"]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
}

#[test]
fn entries_that_are_not_sorted_are_found_when_all_are_looked_at() {
    // Written in reverse order, then the name of the bytewise comparator is put in the place of the
    // other, which is as long.
    let how = in_memory();
    let db = Db::open("/db", &how).unwrap();
    #[derive(Debug)]
    struct Backwards;
    impl karst_engine::format::UserComparator for Backwards {
        fn name(&self) -> &str {
            "leveldb.BytewiseComparator"
        }
        fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
            b.cmp(a)
        }
    }
    let backwards = how.clone().comparator(None, Comparator::Custom(Arc::new(Backwards)));
    write_file(&backwards, "/file.sst", &[("c", "1"), ("b", "1"), ("a", "1")]);
    for options in [IngestExternalFileOptions::default(), checked()] {
        refused(&db, options, &["/file.sst"], ErrorKind::Corruption, "not sorted");
    }
}

#[test]
fn the_checksum_of_a_whole_file_is_verified_if_it_is_known() {
    let how = in_memory().set("file_checksum_gen_factory", "FileChecksumGenCrc32cFactory").unwrap();
    let db = Db::open("/db", &how).unwrap();
    let mut writer = SstFileWriter::create(&how).unwrap();
    writer.open("/file.sst").unwrap();
    writer.put("k", "v").unwrap();
    let info = writer.finish().unwrap();
    let arg = |checksum: Vec<u8>, function: &str, verify_file_checksum| {
        let options = IngestExternalFileOptions { verify_file_checksum, ..Default::default() };
        IngestExternalFileArg {
            files_checksums: vec![checksum],
            files_checksum_func_names: vec![function.to_owned()],
            ..IngestExternalFileArg::new(db.default_column_family(), ["/file.sst"], options)
        }
    };
    let name = &*info.file_checksum_func_name;
    let mut wrong = info.file_checksum.clone();
    wrong[0] ^= 1;
    let error = db.ingest_external_files(&[arg(wrong.clone(), name, true)]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    let error = db.ingest_external_files(&[arg(info.file_checksum.clone(), "Other", true)]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    let mut half = arg(info.file_checksum.clone(), name, true);
    half.files_checksum_func_names.clear();
    assert_eq!(db.ingest_external_files(&[half]).unwrap_err().kind(), ErrorKind::InvalidArgument);
    db.ingest_external_files(&[arg(info.file_checksum.clone(), name, true)]).unwrap();
    db.verify_file_checksums().unwrap();
    db.ingest_external_files(&[arg(wrong, name, false)]).unwrap();
    assert!(db.verify_file_checksums().is_err(), "the wrong one was believed");
}

#[test]
fn a_table_that_leaves_no_sequence_number_for_later_writes_is_refused() {
    let how = in_memory().set("checksum", "kNoChecksum").unwrap();
    let how = how.set("compression", "kNoCompression").unwrap();
    let from = Db::open("/from", &how).unwrap();
    from.put("key", "value").unwrap();
    from.flush(&FlushOptions::default()).unwrap();
    let table = format!("/from/{:06}.sst", from.live_files()[0].number);
    let fs = from.env().fs().clone();
    let mut bytes = fs.read_file(table.as_ref()).unwrap();
    let entry = b"key\x01\x01\0\0\0\0\0\0";
    let at = bytes.windows(entry.len()).position(|window| window == entry).unwrap();
    bytes[at + 4..at + entry.len()].fill(0xff);
    fs.create("/last.sst".as_ref()).unwrap().append(&bytes).unwrap();
    let db = Db::open("/db", &how).unwrap();
    let any = IngestExternalFileOptions { allow_db_generated_files: true, ..Default::default() };
    refused(&db, any, &["/last.sst"], ErrorKind::InvalidArgument, "/last.sst: an entry has sequence number");
    db.ingest_external_file(&any, [&table]).unwrap();
}

#[test]
fn entities_with_columns_in_blob_files_are_refused() {
    let how = in_memory().set_all("checksum=kNoChecksum;compression=kNoCompression").unwrap();
    let db = Db::open("/db", &how).unwrap();
    let fs = db.env().fs().clone();
    let index = b"\x01\x07\x00\x05\x00"; // of five bytes in blob file 7
    let mut in_blob_file = Vec::new();
    encode_into(&[WideColumn { name: b"column", value: index, is_blob: true }], &mut in_blob_file);
    for (entity, kind, says) in [
        (&in_blob_file[..], ErrorKind::NotSupported, "blob file"),
        (b"\x09\x01none", ErrorKind::Corruption, "/entity.sst: columns of an entry"),
    ] {
        // The entity is written as a plain value, and then its type is changed in the file.
        let mut writer = SstFileWriter::create(&how).unwrap();
        writer.open("/entity.sst").unwrap();
        writer.put("key", entity).unwrap();
        writer.finish().unwrap();
        let mut bytes = fs.read_file("/entity.sst".as_ref()).unwrap();
        let entry = b"key\x01\0\0\0\0\0\0\0";
        let at = bytes.windows(entry.len()).position(|window| window == entry).unwrap();
        bytes[at + 3] = ValueType::WideColumnEntity as u8;
        fs.create("/entity.sst".as_ref()).unwrap().append(&bytes).unwrap();
        for options in [IngestExternalFileOptions::default(), checked()] {
            refused(&db, options, &["/entity.sst"], kind, says);
        }
    }
}

#[test]
fn a_file_with_other_entries_than_its_properties_say_is_refused_when_all_are_looked_at() {
    let how = in_memory().set("checksum", "kNoChecksum").unwrap();
    let how = how.set("compression", "kNoCompression").unwrap();
    let db = Db::open("/db", &how).unwrap();
    let fs = db.env().fs().clone();
    let mut writer = SstFileWriter::create(&how).unwrap();
    writer.open("/file.sst").unwrap();
    writer.put("a", "1").unwrap();
    writer.put("b", "1").unwrap();
    writer.delete_range("c", "d").unwrap();
    writer.finish().unwrap();
    let bytes = fs.read_file("/file.sst".as_ref()).unwrap();
    // Suffix of a property's name, and its one-byte value before and after.
    for (changes, says) in [
        (&[("entries", 3, 4)][..], "2 entries were found, its properties say that it has 3"),
        (&[("range-deletions", 1, 0)], "2 entries were found, its properties say that it has 3"),
        (&[("entries", 3, 2), ("range-deletions", 1, 0)], "range tombstones were found"),
    ] {
        let mut changed = bytes.clone();
        for (name, from, to) in changes {
            let end = |window: &[u8]| window.ends_with(&[*from]) && window.starts_with(name.as_bytes());
            let at = changed.windows(name.len() + 1).position(end).unwrap();
            changed[at + name.len()] = *to;
        }
        fs.create("/changed.sst".as_ref()).unwrap().append(&changed).unwrap();
        refused(&db, checked(), &["/changed.sst"], ErrorKind::Corruption, says);
    }
    db.ingest_external_file(&checked(), ["/file.sst"]).unwrap();
}

#[test]
fn tables_of_the_database_itself_are_not_moved() {
    let how = in_memory();
    let db = Db::open("/db", &how).unwrap();
    db.put("key", "value").unwrap();
    db.flush(&FlushOptions::default()).unwrap();
    let table = format!("/db/{:06}.sst", db.live_files()[0].number);
    let any = IngestExternalFileOptions { allow_db_generated_files: true, ..Default::default() };
    let moved = IngestExternalFileOptions { move_files: true, ..any };
    let other = db.create_column_family("other", &how).unwrap();
    let arg = |options| karst_engine::IngestExternalFileArg::new(&other, [&table], options);
    let error = db.ingest_external_files(&[arg(moved)]).unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidArgument && error.to_string().contains(&table), "{error}");
    // Without `move_files` the tables are copied.
    db.ingest_external_files(&[arg(any)]).unwrap();
    assert_eq!(all(&db), entries(&[("key", "value")]));
    assert_eq!(db.cf("other").unwrap().get("key").unwrap().as_deref(), Some(&b"value"[..]));
    db.verify_checksum().unwrap();
}
