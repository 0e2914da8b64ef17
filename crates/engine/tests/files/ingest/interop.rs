//! RocksDB's tools ingest KarstDB's files, and KarstDB ingests theirs; either opens the resulting
//! database of the other.

use super::*;
use karst_engine::{FlushOptions, IngestExternalFileOptions};
use karst_testkit::rocksdb_tools::{ldb, ldb_scan, verify_tables};
use std::path::Path;

fn how() -> Options {
    Options::new().set("format_version", "5").unwrap().db(|db| db.create_if_missing = true)
}

fn scanned(directory: &Path) -> Entries {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    ldb_scan(directory, "default").unwrap().into_iter().map(|(key, value)| (text(key), text(value))).collect()
}

#[test]
fn rocksdb_ingests_a_file_of_karstdb_and_karstdb_goes_on() {
    for text in
        ["compression=kSnappyCompression", "compression=kZSTD;filter_policy=bloomfilter:10;block_size=300"]
    {
        let directory = tempfile::tempdir().unwrap();
        let (db, file) = (directory.path().join("db"), directory.path().join("file.sst"));
        let mut writer = SstFileWriter::create(&how().set_all(text).unwrap()).unwrap();
        writer.open(&file).unwrap();
        for i in 0..1000 {
            writer.put(format!("k{i:04}"), format!("ingested{i}")).unwrap();
        }
        writer.delete("k2000").unwrap();
        writer.delete_range("r", "s").unwrap();
        writer.finish().unwrap();
        for (key, value) in [("k0500", "old"), ("k2000", "old"), ("ra", "old"), ("z", "old")] {
            ldb(&db, &["--create_if_missing", "put", key, value], b"").unwrap();
        }
        ldb(&db, &["ingest_extern_sst", file.to_str().unwrap()], b"").unwrap();
        let mut expected: Entries = (0..1000).map(|i| (format!("k{i:04}"), format!("ingested{i}"))).collect();
        expected.insert("z".into(), "old".into());
        assert_eq!(scanned(&db), expected);
        let opened = Db::open(&db, &how()).unwrap();
        assert_eq!(all(&opened), expected);
        opened.put("k0500", "newer").unwrap();
        opened.flush(&FlushOptions::default()).unwrap();
        opened.close().unwrap();
        expected.insert("k0500".into(), "newer".into());
        assert_eq!(scanned(&db), expected);
    }
}

#[test]
fn karstdb_ingests_a_file_of_rocksdb_and_rocksdb_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    let file = directory.path().join("file.sst");
    let input: String = (0..1000).map(|i| format!("k{i:04} ==> ingested{i}\n")).collect();
    // The lines go to the file; the database only supplies its options.
    let args = ["--create_if_missing", "write_extern_sst", file.to_str().unwrap()];
    ldb(&from, &args, input.as_bytes()).unwrap();
    let db = Db::open(&to, &how()).unwrap();
    db.put("k0500", "old").unwrap();
    db.put("z", "old").unwrap();
    let checked = IngestExternalFileOptions { verify_checksums_before_ingest: true, ..Default::default() };
    db.ingest_external_file(&checked, [&file]).unwrap();
    let mut expected: Entries = (0..1000).map(|i| (format!("k{i:04}"), format!("ingested{i}"))).collect();
    expected.insert("z".into(), "old".into());
    assert_eq!(all(&db), expected);
    db.put("k0001", "newer").unwrap();
    expected.insert("k0001".into(), "newer".into());
    // Ingests a second file in the middle of these entries, newer than all of them.
    let file = directory.path().join("second.sst");
    write_file(&how(), file.to_str().unwrap(), &[("k0001", "newest"), ("k0002", "newest")]);
    db.ingest_external_file(&IngestExternalFileOptions::default(), [&file]).unwrap();
    expected.extend(entries(&[("k0001", "newest"), ("k0002", "newest")]));
    assert_eq!(all(&db), expected);
    db.close().unwrap();
    assert_eq!(scanned(&to), expected);
    let consistency = ldb(&to, &["checkconsistency"], b"").unwrap();
    assert!(consistency.contains("OK"), "{consistency}");
    verify_tables(&to).unwrap();
    // RocksDB writes and compacts, and KarstDB reads the result.
    ldb(&to, &["put", "k0003", "by RocksDB"], b"").unwrap();
    ldb(&to, &["compact"], b"").unwrap();
    expected.insert("k0003".into(), "by RocksDB".into());
    assert_eq!(all(&Db::open_read_only(&to, &Options::new()).unwrap()), expected);
}
