//! Tests of [`super`]: round trips, handmade layouts, hostile bytes.
use super::*;
use crate::block::{BlockBuilder, BlockShape};
use crate::key::{InternalKey, ValueType};
use proptest::prelude::*;

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

/// Returns ascending keys, enough for a guide: with a common prefix, with equal first bytes, and of
/// different lengths.
fn many_keys(restarts: usize, prefix: &[u8], alike: usize) -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = (0..restarts as u32)
        .map(|i| {
            let mut key = prefix.to_vec();
            key.extend((i / alike as u32 * 7919).to_be_bytes());
            key.extend(std::iter::repeat_n(0, (i as usize % alike) * 3));
            if i % 5 == 0 {
                key.extend(b"tail");
            }
            key
        })
        .collect();
    keys.sort();
    keys.dedup();
    keys
}

#[test]
fn a_guided_search_finds_what_a_search_of_the_whole_block_finds() {
    for (prefix, alike) in [(&b""[..], 1), (b"user:", 1), (b"", 40), (b"p", 700)] {
        for layout in [(true, true, false), (false, true, false), (false, false, true)] {
            let layout = IndexLayout { user_keys: layout.0, delta_handles: layout.1, first_keys: layout.2 };
            let keys = many_keys(3000, prefix, alike);
            let mut offset = 0;
            let entries: Vec<Entry> = keys
                .iter()
                .enumerate()
                .map(|(i, user)| {
                    let handle = BlockHandle { offset, size: 4000 + i as u64 % 90 };
                    offset += handle.size + BLOCK_TRAILER_BYTES as u64;
                    Entry { key: internal(user, 7), handle, first_key: internal(user, 9) }
                })
                .collect();
            let bytes = build(layout, 1, &entries);
            let guided = IndexBlock::parse(bytes.clone().into(), layout).unwrap();
            assert!(guided.guide.is_some() && guided.memory_bytes() > guided.block().memory_bytes());
            let mut targets = keys.clone();
            targets.extend(keys.iter().map(|key| [&key[..], b"\0"].concat()));
            targets.extend(keys.iter().map(|key| key[..key.len() - 1].to_vec()));
            targets.extend([vec![], vec![0xff; 20], prefix.to_vec(), b"usez".to_vec(), b"a".to_vec()]);
            for (i, target) in targets.iter().enumerate() {
                let target = internal(target, if i % 2 == 0 { 7 } else { 8 });
                let comparator = Comparator::Bytewise;
                let smaller = |entry: &Entry| match layout.user_keys {
                    true => {
                        comparator.compare_user(key::user_key(&entry.key), key::user_key(&target)).is_lt()
                    }
                    false => comparator.compare_internal(&entry.key, &target).is_lt(),
                };
                let expected = entries.get(entries.partition_point(smaller));
                let found = guided.find(&comparator, &target).unwrap();
                assert_eq!(found, expected.map(|entry| entry.handle), "{target:?}, {layout:?}");
            }
        }
    }
}

#[test]
fn a_guide_is_not_made_of_keys_that_do_not_ascend() {
    let layout = IndexLayout { user_keys: true, delta_handles: false, first_keys: false };
    let entries: Vec<Entry> = many_keys(1000, b"k", 1)
        .iter()
        .rev()
        .enumerate()
        .map(|(i, user)| Entry {
            key: internal(user, 1),
            handle: BlockHandle { offset: i as u64 * 100, size: 95 },
            first_key: vec![],
        })
        .collect();
    let block = IndexBlock::parse(build(layout, 1, &entries).into(), layout).unwrap();
    for entry in entries.iter().cycle().take(3000) {
        // A search in the keys' real order finds all of them; the guide is built for another order
        // and is not used.
        let found = block.find(&Comparator::ReverseBytewise, &entry.key).unwrap();
        assert_eq!(found, Some(entry.handle));
        block.find(&Comparator::Bytewise, &entry.key).unwrap();
    }
}
