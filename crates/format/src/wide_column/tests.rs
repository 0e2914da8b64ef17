//! Tests of wide-column entities: round trips of both versions, order, exactness, hostile bytes.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

type Columns = BTreeMap<Vec<u8>, (Vec<u8>, bool)>;

fn columns(blobs: bool) -> impl Strategy<Value = Columns> {
    let name = proptest::collection::vec(any::<u8>(), 0..6);
    let value = proptest::collection::vec(any::<u8>(), 0..150);
    proptest::collection::btree_map(name, (value, any::<bool>().prop_map(move |b| b && blobs)), 0..8)
}

fn borrowed(columns: &Columns) -> Vec<WideColumn<'_>> {
    columns.iter().map(|(name, (value, is_blob))| WideColumn { name, value, is_blob: *is_blob }).collect()
}

proptest! {
    #[test]
    fn columns_come_back(columns in prop_oneof![columns(false), columns(true)], cut: prop::sample::Index) {
        let expected = borrowed(&columns);
        let mut entity = Vec::new();
        encode_into(&expected, &mut entity);
        prop_assert_eq!(u32::from(entity[0]), if expected.iter().any(|c| c.is_blob) { VERSION_2 } else { VERSION_1 });
        prop_assert_eq!(&decode(&entity).unwrap(), &expected);
        prop_assert_eq!(has_blobs(&entity).unwrap(), expected.iter().any(|c| c.is_blob));
        let default = default_column(&entity).unwrap();
        match expected.first().filter(|c| c.name.is_empty()) {
            None => prop_assert_eq!(default, DefaultColumn::Absent),
            Some(c) => match default {
                DefaultColumn::Inline(at) => { prop_assert!(!c.is_blob); prop_assert_eq!(&entity[at], c.value); }
                DefaultColumn::Blob(at) => { prop_assert!(c.is_blob); prop_assert_eq!(&entity[at], c.value); }
                DefaultColumn::Absent => prop_assert!(false),
            }
        }
        // Missing or extra bytes are an error.
        prop_assert!(decode(&entity[..cut.index(entity.len())]).is_err());
        entity.push(0);
        prop_assert!(decode(&entity).is_err());
        prop_assert!(default_column(&entity).is_err());
    }

    #[test]
    fn hostile_bytes(version in 0u8..4, count in 0u8..6, rest in proptest::collection::vec(prop_oneof![0u8..20, any::<u8>()], 0..60), head: bool) {
        let mut entity = if head { vec![version, count] } else { vec![] };
        entity.extend_from_slice(&rest);
        match decode(&entity) {
            Ok(columns) => {
                prop_assert!(columns.is_sorted_by(|a, b| a.name < b.name));
                let mut back = Vec::new();
                encode_into(&columns, &mut back);
                prop_assert_eq!(decode(&back).unwrap(), columns);
            }
            Err(e) => prop_assert!(e.offset <= entity.len() as u64),
        }
        prop_assert_eq!(decode(&entity).is_ok(), default_column(&entity).is_ok());
    }
}

#[test]
fn layouts() {
    let plain = |name, value| WideColumn { name, value, is_blob: false };
    let mut entity = Vec::new();
    encode_into(&[plain(&b""[..], &b"d"[..]), plain(b"ab", b"xyz")], &mut entity);
    assert_eq!(entity, b"\x01\x02\x00\x01\x02ab\x03dxyz");
    let blob = WideColumn { name: b"ab", value: b"ref", is_blob: true };
    entity.clear();
    encode_into(&[plain(b"", b"d"), blob], &mut entity);
    assert_eq!(entity, b"\x02\x02\x02\x02\x02\x01\x11\x00\x02\x01\x03abdref");
    entity.clear();
    encode_into(&[], &mut entity);
    assert_eq!(decode(&entity).unwrap(), []);
    assert_eq!(decode(b"\x02\x00\x00\x00\x00").unwrap(), []);
}

#[test]
fn refused() {
    for (entity, what) in [
        (&b""[..], "varint"),
        (b"\x01", "varint"),
        (b"\x03\x00", "version 3"),
        (b"\x00\x00", "version 0"),
        (b"\x01\x02\x01b\x00\x01a\x00", "not sorted"),
        (b"\x01\x02\x01a\x00\x01a\x00", "not sorted"),
        (b"\x01\x01\x01a\x05abc", "5 bytes"),
        (b"\x01\x01\x01a\x02abc", "2 bytes"),
        (b"\x01\xff\xff\xff\xff\x0f", "columns"),
        (b"\x02\x01\x01\x01\x00\x02\x00\x00", "type 0x02"),
        (b"\x02\x01\x01\x01\x00\x16\x00\x00", "type 0x16"),
        (b"\x02\x01\x01\x01\x01\x01\x00\x00a", "longer"),
        (b"\x02\x01\x02\x01\x00\x01\x00\x00\x00", "longer"),
        (b"\x02\x01\x01\x01\x00\x01\x01\x00", "name is cut off"),
        (b"\x02\x01\x01\x01\x00\x01\x00\x09", "value is cut off"),
    ] {
        let error = decode(entity).unwrap_err();
        assert!(error.what.contains(what), "{entity:?}: {error}");
        assert!(default_column(entity).is_err());
    }
}
