//! Tests of blob files: round trips of every part, detection of damage, hostile bytes. Files that
//! RocksDB wrote are read in tests/rocksdb_blobs.rs.

use super::*;
use proptest::prelude::*;

fn compression() -> impl Strategy<Value = CompressionType> {
    proptest::sample::select(CompressionType::ALL.to_vec())
}

fn index(kind: u8, numbers: [u64; 4], value: &[u8], compression: CompressionType) -> BlobIndex<'_> {
    let [expiration, file, offset, size] = numbers;
    let file = FileNumber(file);
    match kind {
        0 => BlobIndex::InlinedTtl { expiration, value },
        1 => BlobIndex::Stored { file, offset, size, compression },
        _ => BlobIndex::StoredTtl { expiration, file, offset, size, compression },
    }
}

proptest! {
    #[test]
    fn parts_come_back(cf: u32, numbers: [u64; 4], has_ttl: bool, compression in compression(), key: Vec<u8>, value: Vec<u8>) {
        let header = BlobHeader { column_family: ColumnFamilyId(cf), compression, has_ttl, expiration_range: (numbers[0], numbers[1]) };
        let footer = BlobFooter { blob_count: numbers[2], expiration_range: (numbers[0], numbers[1]) };
        let record = BlobRecord { key: &key, value: &value, expiration: numbers[3] };
        let mut out = Vec::new();
        header.encode_into(&mut out);
        prop_assert_eq!(out.len(), HEADER_BYTES);
        prop_assert_eq!(BlobHeader::decode(&out).unwrap(), header);
        out.clear();
        footer.encode_into(&mut out);
        prop_assert_eq!(out.len(), FOOTER_BYTES);
        prop_assert_eq!(BlobFooter::decode(&out).unwrap(), footer);
        out.clear();
        record.encode_into(&mut out);
        prop_assert_eq!(BlobRecord::parse(&out).unwrap(), record);
        let start = BlobRecordHeader::decode(&out[..RECORD_HEADER_BYTES]).unwrap();
        prop_assert_eq!(start.record_bytes(), Some(out.len() as u64));
        for kind in 0..3 {
            out.clear();
            let index = index(kind, numbers, &value, compression);
            index.encode_into(&mut out);
            prop_assert_eq!(BlobIndex::decode(&out).unwrap(), index);
        }
    }

    #[test]
    fn a_flipped_bit_in_a_record_is_found(key: Vec<u8>, value: Vec<u8>, at: prop::sample::Index, bit in 0u8..8) {
        let mut out = Vec::new();
        BlobRecord { key: &key, value: &value, expiration: 0 }.encode_into(&mut out);
        let at = at.index(out.len());
        out[at] ^= 1 << bit;
        let error = BlobRecord::parse(&out).unwrap_err();
        prop_assert!(error.offset <= out.len() as u64);
        out[at] ^= 1 << bit;
        prop_assert!(BlobRecord::parse(&out[..at]).is_err());
        out.push(0);
        prop_assert!(BlobRecord::parse(&out).is_err());
    }

    #[test]
    fn hostile_bytes_are_refused_in_place(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        let end = bytes.len() as u64;
        if let Err(e) = BlobHeader::decode(&bytes) { prop_assert!(e.offset <= end); }
        if let Err(e) = BlobFooter::decode(&bytes) { prop_assert!(e.offset <= end); }
        if let Err(e) = BlobRecord::parse(&bytes) { prop_assert!(e.offset <= end); }
        if let Err(e) = BlobRecordHeader::decode(&bytes) { prop_assert!(e.offset <= end); }
        if let Err(e) = BlobIndex::decode(&bytes) { prop_assert!(e.offset <= end); }
    }

    #[test]
    fn references_cut_off_or_too_long_are_refused(kind in 1u8..3, numbers: [u64; 4], compression in compression(), cut: prop::sample::Index) {
        let mut out = Vec::new();
        index(kind, numbers, b"", compression).encode_into(&mut out);
        prop_assert!(BlobIndex::decode(&out[..cut.index(out.len())]).is_err());
        out.push(0);
        prop_assert!(BlobIndex::decode(&out).is_err());
    }
}

#[test]
fn foreign_files() {
    let mut out = Vec::new();
    let header = BlobHeader {
        column_family: ColumnFamilyId(1),
        compression: CompressionType::None,
        has_ttl: false,
        expiration_range: (0, 0),
    };
    header.encode_into(&mut out);
    for (at, value, what) in [(0, 0xff, "magic"), (4, 2, "version 2"), (13, 6, "Xpress")] {
        let mut bad = out.clone();
        bad[at] = value;
        let error = BlobHeader::decode(&bad).unwrap_err();
        assert!(error.what.contains(what), "{error}");
        assert_eq!(error.offset, at as u64);
    }
    assert!(BlobIndex::decode(&[]).is_err());
    assert!(BlobIndex::decode(&[3, 1, 1, 1, 0]).is_err());
}

#[test]
fn a_record_with_hostile_lengths_has_no_length() {
    let mut header = Vec::new();
    coding::put_fixed64(&mut header, u64::MAX);
    coding::put_fixed64(&mut header, 1);
    coding::put_fixed64(&mut header, 0);
    let crc = mask_crc(crc32c::crc32c(&header));
    coding::put_fixed32(&mut header, crc);
    coding::put_fixed32(&mut header, 0);
    assert_eq!(BlobRecordHeader::decode(&header).unwrap().record_bytes(), None);
    assert!(BlobRecord::parse(&header).is_err());
}
