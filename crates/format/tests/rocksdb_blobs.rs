//! Blob files of RocksDB 7.8: every reference in the tables leads to the record of its key, every
//! value decompresses to the one that `ldb scan` prints, and this crate encodes equal bytes.
//!
//! Needs Debian's rocksdb-tools, like the other tests against RocksDB.

mod support;

use karst_format::blob::{
    BlobFooter, BlobHeader, BlobIndex, BlobRecord, BlobRecordHeader, FOOTER_BYTES, HEADER_BYTES,
    RECORD_HEADER_BYTES,
};
use karst_format::compression::{self, CompressionType, MAX_BLOCK_BYTES};
use karst_format::file_name::FileName;
use karst_format::ids::{ColumnFamilyId, FileNumber};
use karst_format::key::{InternalKey, ValueType};
use karst_testkit::rocksdb_tools::{db_bench, ldb_scan};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use support::Table;

/// Checks the whole blob file, and returns its records by the offset of their value.
fn records(bytes: &[u8], compression: CompressionType) -> BTreeMap<u64, BlobRecord<'_>> {
    let header = BlobHeader::decode(&bytes[..HEADER_BYTES]).unwrap();
    let expected = BlobHeader {
        column_family: ColumnFamilyId::DEFAULT,
        compression,
        has_ttl: false,
        expiration_range: (0, 0),
    };
    assert_eq!(header, expected);
    let footer_at = bytes.len() - FOOTER_BYTES;
    let footer = BlobFooter::decode(&bytes[footer_at..]).unwrap();

    let mut again = Vec::new();
    header.encode_into(&mut again);
    let mut found = BTreeMap::new();
    let mut at = HEADER_BYTES;
    while at < footer_at {
        let start = BlobRecordHeader::decode(&bytes[at..at + RECORD_HEADER_BYTES]).unwrap();
        let end = at + start.record_bytes().unwrap() as usize;
        let record = BlobRecord::parse(&bytes[at..end]).unwrap();
        assert_eq!(record.expiration, 0);
        record.encode_into(&mut again);
        found.insert((at + RECORD_HEADER_BYTES + record.key.len()) as u64, record);
        at = end;
    }
    assert_eq!(footer, BlobFooter { blob_count: found.len() as u64, expiration_range: (0, 0) });
    footer.encode_into(&mut again);
    assert!(again == bytes, "encoded again it has other bytes");
    found
}

fn files(db: &Path) -> Vec<(FileName, Vec<u8>)> {
    fs::read_dir(db)
        .unwrap()
        .filter_map(|entry| {
            let path = entry.unwrap().path();
            let name = FileName::parse(path.file_name()?.to_str()?)?;
            Some((name, fs::read(&path).unwrap()))
        })
        .collect()
}

#[test]
fn every_reference_leads_to_its_value() {
    for (compression, name) in [
        (CompressionType::None, "none"),
        (CompressionType::Snappy, "snappy"),
        (CompressionType::Zlib, "zlib"),
        (CompressionType::Lz4, "lz4"),
        (CompressionType::Lz4hc, "lz4hc"),
        (CompressionType::Zstd, "zstd"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let db = dir.path().join("db");
        let flag = format!("-blob_compression_type={name}");
        let flags = [
            "-benchmarks=fillrandom,flush",
            "-num=3000",
            "-value_size=700",
            "-value_size_distribution_type=uniform",
            "-value_size_min=1",
            "-value_size_max=3000",
            "-enable_blob_files=true",
            "-min_blob_size=100",
            "-blob_file_size=300000",
            "-disable_auto_compactions=true",
            &flag,
        ];
        db_bench(&db, &flags).unwrap();

        let files = files(&db);
        let blobs: BTreeMap<FileNumber, _> = files
            .iter()
            .filter_map(|(name, bytes)| match name {
                FileName::Blob(number) => Some((*number, records(bytes, compression))),
                _ => None,
            })
            .collect();
        assert!(blobs.len() > 3, "{compression:?}: {} blob files", blobs.len());
        let values: BTreeMap<Vec<u8>, Vec<u8>> = ldb_scan(&db, "default").unwrap().into_iter().collect();
        let (mut stored, mut plain) = (0, 0);
        for (name, bytes) in &files {
            if !matches!(name, FileName::Table(_)) {
                continue;
            }
            for (key, value) in Table::from_bytes(bytes.clone()).scan().unwrap() {
                let key = InternalKey::parse(&key).unwrap();
                if key.kind != ValueType::BlobIndex {
                    plain += 1;
                    assert_eq!(values[key.user_key], value);
                    continue;
                }
                stored += 1;
                let index = BlobIndex::decode(&value).unwrap();
                let BlobIndex::Stored { file, offset, size, compression: how } = index else {
                    panic!("{index:?}")
                };
                assert_eq!(how, compression);
                let mut again = Vec::new();
                index.encode_into(&mut again);
                assert_eq!(again, value);
                let record = blobs[&file][&offset];
                assert_eq!((record.key, record.value.len() as u64), (key.user_key, size));
                let whole =
                    compression::decompress(compression, record.value, None, 2, MAX_BLOCK_BYTES).unwrap();
                assert!(values[key.user_key][..] == whole[..], "{compression:?}: another value");
            }
        }
        assert!(stored > 1000 && plain > 20, "{compression:?}: {stored} stored, {plain} plain");
        assert_eq!(stored + plain, values.len());
    }
}
