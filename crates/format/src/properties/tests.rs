//! Tests of [`super`]: round trips, handmade layouts, hostile bytes.
use super::*;
use crate::checksum::{ChecksumType, append_block_trailer};
use crate::handle::BlockHandle;
use proptest::prelude::*;

fn footer(format_version: u32) -> Footer {
    Footer {
        format_version,
        checksum: ChecksumType::Xxh3,
        metaindex_handle: BlockHandle::NULL,
        index_handle: None,
        base_context_checksum: if format_version >= 6 { 99 } else { 0 },
    }
}

proptest! {
    #[test]
    fn round_trip(
        numbers in any::<[u64; 6]>(), text in "[a-z]{0,12}",
        user in proptest::collection::btree_map("user\\.[a-z]{0,5}", proptest::collection::vec(any::<u8>(), 0..9), 0..5),
        index_type in 0u32..4, whole: bool, prefix: bool,
    ) {
        let mut properties = TableProperties {
            num_entries: numbers[0],
            data_size: numbers[1],
            key_largest_seqno: numbers[2],
            index_key_is_user_key: numbers[3] & 1,
            index_value_is_delta_encoded: numbers[4] & 1,
            user_defined_timestamps_persisted: numbers[5] & 1,
            comparator_name: text,
            user_collected: user.into_iter().map(|(k, v)| (k.into_bytes(), v)).collect(),
            ..TableProperties::default()
        };
        properties.set_index_type(IndexType::from_u32(index_type).unwrap());
        properties.set_filtering(whole, prefix);
        let back = TableProperties::decode(properties.encode().into()).unwrap();
        prop_assert_eq!(&back, &properties);
        prop_assert_eq!(back.index_type().unwrap() as u32, index_type);
        prop_assert_eq!((back.whole_key_filtering(), back.prefix_filtering()), (whole, prefix));
        prop_assert_eq!(back.index_layout().first_keys, index_type == 3);
        prop_assert!(!back.to_pairs().is_empty());
    }

    #[test]
    fn any_bytes_decode_or_fail(bytes: Vec<u8>, version in 5u32..7) {
        let _ = TableProperties::decode_verified(&bytes, &footer(version), 7);
        let _ = TableProperties::decode(bytes.into());
    }
}

#[test]
fn an_overwritten_global_seqno_passes_the_checksum() {
    let mut properties = TableProperties::default();
    properties.set_external_file();
    let mut bytes = properties.encode();
    append_block_trailer(&mut bytes, 0, 0, ChecksumType::Xxh3, footer(6).context(7));
    assert!(TableProperties::decode_verified(&bytes, &footer(6), 7).is_ok());
    assert!(TableProperties::decode_verified(&bytes, &footer(6), 8).is_err());
    let place = decode_with_seqno_place(bytes[..bytes.len() - 5].into()).unwrap().1.unwrap();
    bytes[place.start] = 42;
    let back = TableProperties::decode_verified(&bytes, &footer(6), 7).unwrap();
    assert_eq!(back.external_global_seqno(), Some(SeqNo(42)));
    assert_eq!(back.external_file_version(), Some(2));
    assert_eq!(back.external_sst_file_global_seqno_offset, 7 + place.start as u64);
    bytes[place.start - 1] ^= 1;
    assert!(TableProperties::decode_verified(&bytes, &footer(6), 7).is_err());
}

#[test]
fn disorder_and_unknown_index_types() {
    let mut builder = BlockBuilder::new(BlockShape::plain(16));
    builder.add(b"b", b"");
    builder.add(b"a", b"");
    assert!(TableProperties::decode(builder.finish().into()).unwrap_err().what.contains("order"));
    let mut properties = TableProperties::default();
    properties.user_collected.insert(INDEX_TYPE.into(), vec![9, 0, 0, 0]);
    assert_eq!(properties.index_type(), Err(9));
    assert!(properties.whole_key_filtering());
}

#[test]
fn what_cannot_be_read_is_named() {
    let mut properties = TableProperties::default();
    assert_eq!(properties.unsupported(7), None);
    for name in ["", ";;", "BuiltinV2;0407;", "nullptr;01;"] {
        properties.compression_name = name.into();
        assert_eq!(properties.unsupported(7), None, "{name}");
    }
    properties.compression_name = "acme-zip;80;".into();
    assert!(properties.unsupported(7).unwrap().contains("acme-zip"));
    assert_eq!(properties.unsupported(6), None);
    properties.user_collected.insert(EMBEDDED_BLOBS.into(), Vec::new());
    assert!(properties.unsupported(6).unwrap().contains("embedded"));
    let stripped = TableProperties { user_defined_timestamps_persisted: 0, ..TableProperties::default() };
    assert!(stripped.unsupported(6).unwrap().contains("timestamps"));
}
