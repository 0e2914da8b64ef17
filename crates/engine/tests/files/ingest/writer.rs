//! Files that `SstFileWriter` makes, and calls that it refuses.

use super::*;
use karst_engine::ErrorKind;
use karst_engine::format::Comparator;
use karst_testkit::rocksdb_tools::run;

fn names(options: &Options) -> Vec<String> {
    let env = options_env(options);
    env.fs().list_dir("/".as_ref()).unwrap()
}

/// Returns the environment of the options, which a database opened with them has.
fn options_env(options: &Options) -> Env {
    Db::open("/probe", options).unwrap().env().clone()
}

#[test]
fn the_file_tells_what_is_in_it_and_the_tools_agree() {
    let directory = tempfile::tempdir().unwrap();
    for text in [
        "compression=kNoCompression",
        "compression=kZSTD;filter_policy=bloomfilter:10;block_size=512;index_type=kTwoLevelIndexSearch;partition_filters=true",
        "compression_per_level=kNoCompression:kLZ4Compression;checksum=kCRC32c;enable_blob_files=true;min_blob_size=0",
    ] {
        let options = Options::new().set_all(&format!("format_version=5;{text}")).unwrap();
        let path = directory.path().join("file.sst");
        let mut writer = SstFileWriter::create(&options).unwrap();
        writer.open(&path).unwrap();
        assert_eq!(writer.file_size(), 0);
        writer.delete_range("x", "z").unwrap();
        for i in 0..3000 {
            let key = format!("key{i:05}");
            match i % 3 {
                0 => writer.put(&key, format!("value{i}")).unwrap(),
                1 => writer.merge(&key, "operand").unwrap(),
                _ => writer.delete(&key).unwrap(),
            }
        }
        assert!(writer.file_size() > 0, "{text}");
        writer.put("last", "value").unwrap();
        writer.delete_range("a", "c").unwrap();
        writer.delete_range("b", "d").unwrap();
        writer.delete_range("e", "e").unwrap();
        let info = writer.finish().unwrap();
        assert_eq!((&info.smallest_key[..], &info.largest_key[..]), (&b"key00000"[..], &b"last"[..]));
        assert_eq!(
            (&info.smallest_range_del_key[..], &info.largest_range_del_key[..]),
            (&b"a"[..], &b"z"[..])
        );
        assert_eq!((info.num_entries, info.num_range_del_entries), (3001, 2), "two that overlap are one");
        assert_eq!((info.version, info.sequence_number), (2, 0));
        assert_eq!(info.file_size, std::fs::metadata(&path).unwrap().len());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "no value goes elsewhere");

        let file = format!("--file={}", path.display());
        let shown = run("sst_dump", &[&file, "--command=scan", "--show_properties"], b"").unwrap();
        for line in [
            "# entries: 3003",
            "# deletions: 1002",
            "# merge operands: 1000",
            "# range deletions: 2",
            "DB identity: SST Writer",
            "column family ID: N/A",
            "rocksdb.external_sst_file.global_seqno: 0x0000000000000000",
            "rocksdb.external_sst_file.version: 0x02000000",
        ] {
            assert!(shown.contains(line), "{line} is not in\n{shown}");
        }
        let verified = run("sst_dump", &[&file, "--command=verify"], b"").unwrap();
        assert!(!verified.contains("orruption"), "{verified}");
        let scanned = run("sst_dump", &[&file, "--command=scan"], b"").unwrap();
        assert!(scanned.contains("'key00000' seq:0, type:1 => value0"), "{scanned}");
    }
}

#[test]
fn a_file_may_consist_of_range_tombstones_only() {
    let options = in_memory();
    let mut writer = SstFileWriter::create(&options).unwrap();
    writer.open("/ranges.sst").unwrap();
    writer.delete_range("m", "p").unwrap();
    let info = writer.finish().unwrap();
    assert_eq!((info.num_entries, info.num_range_del_entries), (0, 1));
    assert!(info.smallest_key.is_empty() && info.largest_key.is_empty());
    let db = Db::open("/db", &options).unwrap();
    for key in ["l", "m", "o", "p"] {
        db.put(key, key).unwrap();
    }
    db.ingest_external_file(&Default::default(), ["/ranges.sst"]).unwrap();
    assert_eq!(all(&db), entries(&[("l", "l"), ("p", "p")]));
}

#[test]
fn entities_of_columns_can_be_ingested() {
    let options = in_memory();
    let mut writer = SstFileWriter::create(&options).unwrap();
    writer.open("/wide.sst").unwrap();
    writer.put_entity("wide", &[(b"b", b"2"), (b"", b"plain")]).unwrap();
    assert!(writer.put_entity("wider", &[(b"b", b"2"), (b"b", b"3")]).is_err());
    writer.finish().unwrap();
    let db = Db::open("/db", &options).unwrap();
    db.ingest_external_file(&Default::default(), ["/wide.sst"]).unwrap();
    assert_eq!(all(&db), entries(&[("wide", "plain")]));
}

#[test]
fn keys_have_to_ascend_in_the_order_of_the_comparator() {
    let options = in_memory().comparator(None, Comparator::ReverseBytewise);
    let mut writer = SstFileWriter::create(&options).unwrap();
    writer.open("/file.sst").unwrap();
    writer.put("b", "1").unwrap();
    for key in ["b", "c"] {
        let error = writer.put(key, "2").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("is not greater than the previous key"), "{error}");
    }
    assert_eq!(writer.delete_range("a", "b").unwrap_err().kind(), ErrorKind::InvalidArgument);
    writer.put("a", "3").unwrap();
    assert_eq!(writer.finish().unwrap().num_entries, 2);
    let db = Db::open("/db", &options).unwrap();
    db.ingest_external_file(&Default::default(), ["/file.sst"]).unwrap();
    assert_eq!(all(&db), entries(&[("a", "3"), ("b", "1")]));
}

#[test]
fn what_is_not_finished_leaves_no_file() {
    let options = in_memory();
    let before = names(&options);
    let mut writer = SstFileWriter::create(&options).unwrap();
    for error in [writer.put("a", "1").unwrap_err(), writer.finish().unwrap_err()] {
        assert!(error.to_string().contains("no file is open"), "{error}");
    }
    writer.open("/empty.sst").unwrap();
    assert!(writer.open("/other.sst").unwrap_err().to_string().contains("/empty.sst has to be finished"));
    assert!(writer.finish().unwrap_err().to_string().contains("has no entry"));
    assert_eq!(names(&options), before);
    writer.open("/dropped.sst").unwrap();
    writer.put("a", vec![b'v'; 3 << 20]).unwrap();
    drop(writer);
    assert_eq!(names(&options), before);
    let mut writer = SstFileWriter::create(&options).unwrap();
    assert_eq!(writer.open("/none/file.sst").unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_writer_for_a_column_family_has_its_options_and_its_id() {
    let options = in_memory().set("file_checksum_gen_factory", "FileChecksumGenCrc32cFactory").unwrap();
    let db = Db::open("/db", &options).unwrap();
    let of_family = options.clone().column_family("other", |family| {
        family.comparator = karst_engine::options::Object::new("rocksdb.ReverseBytewiseComparator");
    });
    let other = db.create_column_family("other", &of_family).unwrap();
    let mut writer = SstFileWriter::for_column_family(&options, &other).unwrap();
    writer.open("/file.sst").unwrap();
    writer.put("b", "1").unwrap();
    writer.put("a", "2").unwrap();
    let info = writer.finish().unwrap();
    assert_eq!((info.file_checksum.len(), &*info.file_checksum_func_name), (4, "FileChecksumCrc32c"));
    let error = db.ingest_external_file(&Default::default(), ["/file.sst"]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    let arg = karst_engine::IngestExternalFileArg::new(&other, ["/file.sst"], Default::default());
    db.ingest_external_files(&[arg]).unwrap();
    assert_eq!(db.get_cf(&ReadOptions::new(), &other, "a").unwrap().as_deref(), Some(&b"2"[..]));
}

#[test]
fn a_writer_takes_every_kind_of_memtable_as_it_has_none() {
    for kind in ["vector", "prefix_hash", "hash_linkedlist", "SkipListFactory"] {
        let apart = in_memory().set_all("allow_concurrent_memtable_write=false").unwrap();
        let apart = apart.set_all(&format!("memtable_factory={kind}")).unwrap();
        let db = Db::open("/db", &apart).unwrap();
        let family = db.default_column_family();
        // The writer's own options allow concurrent inserts, as the defaults do.
        let mut writer = SstFileWriter::for_column_family(&Options::new(), family)
            .unwrap_or_else(|error| panic!("{kind}: {error}"));
        writer.open("/file.sst").unwrap();
        writer.put("a", "1").unwrap();
        writer.finish().unwrap();
        let named = in_memory().set("memtable_factory", kind).unwrap();
        SstFileWriter::create(&named).unwrap_or_else(|error| panic!("{kind}: {error}"));
        db.ingest_external_file(&Default::default(), ["/file.sst"]).unwrap();
        assert_eq!(db.get("a").unwrap().as_deref(), Some(&b"1"[..]), "{kind}");
    }
}
