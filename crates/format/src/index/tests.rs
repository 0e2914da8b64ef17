//! Tests of [`super`]: round trips, hand-made layouts, hostile bytes.
use proptest::prelude::*;

use super::*;
use crate::block::{BlockBuilder, BlockShape};
use crate::key::{InternalKey, ValueType};

#[derive(Debug, Clone)]
struct Entry {
    key: Vec<u8>,
    handle: BlockHandle,
    first_key: Vec<u8>,
}

fn internal(user_key: &[u8], seq: u64) -> Vec<u8> {
    InternalKey { user_key, seq: SeqNo(seq), kind: ValueType::Value }.to_vec()
}

fn build(layout: IndexLayout, restart_interval: usize, entries: &[Entry]) -> Vec<u8> {
    let mut builder = BlockBuilder::new(BlockShape::plain(restart_interval));
    let mut previous = BlockHandle::NULL;
    for entry in entries {
        let first_key = layout.first_keys.then_some(&entry.first_key[..]);
        let (mut whole, mut delta) = (Vec::new(), Vec::new());
        encode_value(&mut whole, entry.handle, first_key);
        let key = if layout.user_keys { key::user_key(&entry.key) } else { &entry.key };
        if layout.delta_handles {
            if !previous.is_null() {
                encode_delta(&mut delta, entry.handle, previous, first_key);
            }
            builder.add_undelimited(key, &whole, &delta);
        } else {
            builder.add(key, &whole);
        }
        previous = entry.handle;
    }
    builder.finish()
}

fn layouts() -> impl Strategy<Value = IndexLayout> {
    any::<(bool, bool, bool)>().prop_map(|(user_keys, delta_handles, first_keys)| IndexLayout {
        user_keys,
        delta_handles,
        first_keys,
    })
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    proptest::collection::btree_map(
        proptest::collection::vec(prop_oneof![Just(b'a'), Just(b'b'), any::<u8>()], 0..12),
        1u64..100_000,
        0..40,
    )
    .prop_map(|map| {
        let mut offset = 0;
        map.into_iter()
            .map(|(user, size)| {
                let entry = Entry {
                    key: internal(&user, 7),
                    handle: BlockHandle { offset, size },
                    first_key: internal(&user, 9),
                };
                offset += size + 5;
                entry
            })
            .collect()
    })
}

fn check(cursor: &IndexCursor, index: &IndexBlock, entry: &Entry) -> Result<(), TestCaseError> {
    prop_assert!(cursor.valid());
    prop_assert_eq!(cursor.handle(), entry.handle);
    prop_assert_eq!(cursor.user_key(index), key::user_key(&entry.key));
    prop_assert_eq!(
        cursor.first_internal_key(index),
        index.layout().first_keys.then_some(&entry.first_key[..])
    );
    Ok(())
}

proptest! {
    #[test]
    fn every_layout_reads_back(
        layout in layouts(), interval in 1usize..5, entries in entries(),
        targets in proptest::collection::vec(proptest::collection::vec(prop_oneof![Just(b'a'), Just(b'b'), any::<u8>()], 0..12), 0..10),
    ) {
        let index = IndexBlock::parse(build(layout, interval, &entries).into(), layout).unwrap();
        let mut cursor = IndexCursor::new();
        let mut found = cursor.seek_to_first(&index).unwrap();
        for entry in &entries {
            prop_assert!(found);
            check(&cursor, &index, entry)?;
            found = cursor.next(&index).unwrap();
        }
        prop_assert!(!found);
        found = cursor.seek_to_last(&index).unwrap();
        for entry in entries.iter().rev() {
            prop_assert!(found);
            check(&cursor, &index, entry)?;
            found = cursor.prev(&index).unwrap();
        }
        prop_assert!(!found);
        for target in targets.iter().map(|t| &t[..]).chain(entries.iter().map(|e| key::user_key(&e.key))) {
            let target = internal(target, 8);
            let at = entries.partition_point(|e| Comparator::Bytewise.compare_internal(&e.key, &target).is_lt());
            prop_assert_eq!(cursor.seek(&index, &Comparator::Bytewise, &target).unwrap(), at < entries.len());
            prop_assert_eq!(index.find(&Comparator::Bytewise, &target).unwrap(), entries.get(at).map(|e| e.handle));
            if at < entries.len() {
                check(&cursor, &index, &entries[at])?;
                if cursor.next(&index).unwrap() {
                    check(&cursor, &index, &entries[at + 1])?;
                    prop_assert!(cursor.prev(&index).unwrap());
                    check(&cursor, &index, &entries[at])?;
                }
            }
        }
    }

    #[test]
    fn hostile_bytes_end_in_errors(
        layout in layouts(), interval in 1usize..5, entries in entries(), target: Vec<u8>,
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = build(layout, interval, &entries);
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let limit = bytes.len();
        let Ok(index) = IndexBlock::parse(bytes.into(), layout) else { return Ok(()) };
        let mut cursor = IndexCursor::with_global_seqno(SeqNo(3));
        let mut steps = 0;
        let mut found = cursor.seek_to_first(&index);
        while let Ok(true) = found {
            let _ = (cursor.key(&index), cursor.first_internal_key(&index));
            steps += 1;
            prop_assert!(steps <= limit);
            found = cursor.next(&index);
        }
        found = cursor.seek_to_last(&index);
        while let Ok(true) = found {
            steps += 1;
            prop_assert!(steps <= 2 * limit);
            found = cursor.prev(&index);
        }
        let _ = cursor.seek(&index, &Comparator::Bytewise, &target);
    }
}

#[test]
fn first_keys_of_ingested_files() {
    let layout = IndexLayout { user_keys: true, delta_handles: true, first_keys: true };
    let entry = Entry {
        key: internal(b"k", 0),
        handle: BlockHandle { offset: 0, size: 9 },
        first_key: internal(b"a", 0),
    };
    let index = IndexBlock::parse(build(layout, 1, &[entry]).into(), layout).unwrap();
    let mut cursor = IndexCursor::with_global_seqno(SeqNo(55));
    assert!(cursor.seek_to_first(&index).unwrap());
    assert_eq!(cursor.first_internal_key(&index).unwrap(), internal(b"a", 55));
}
