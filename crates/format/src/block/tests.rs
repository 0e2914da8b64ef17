//! Tests of [`super`]: round trips, handmade layouts, hostile bytes.
use super::*;
use crate::comparator::Comparator;
use crate::key::{self, InternalKey, SeqNo, ValueType};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Sorted internal keys with values; user keys come in groups that share prefixes, with several
/// versions each.
fn entries() -> impl Strategy<Value = Vec<(Vec<u8>, Vec<u8>)>> {
    let piece = prop_oneof![
        Just(b"a".to_vec()),
        Just(b"ab".to_vec()),
        Just(vec![0]),
        Just(vec![1]),
        Just(vec![0xff]),
        Just(b"prefix-of-some-length".to_vec()),
        proptest::collection::vec(any::<u8>(), 0..4)
    ];
    let user = proptest::collection::vec(piece, 0..4).prop_map(|p| p.concat());
    let seq = prop_oneof![0u64..4, 254u64..260, any::<u64>().prop_map(|s| s >> 8)];
    proptest::collection::vec(((user, seq), proptest::collection::vec(any::<u8>(), 0..10)), 0..60).prop_map(
        |list| {
            let sorted: BTreeMap<(Vec<u8>, std::cmp::Reverse<u64>), Vec<u8>> = list
                .into_iter()
                .map(|((user, seq), value)| ((user, std::cmp::Reverse(seq)), value))
                .collect();
            sorted.into_iter().map(|((user, seq), value)| (internal(&user, seq.0), value)).collect()
        },
    )
}

fn internal(user_key: &[u8], seq: u64) -> Vec<u8> {
    InternalKey { user_key, seq: SeqNo(seq), kind: ValueType::Value }.to_vec()
}

fn shape() -> impl Strategy<Value = BlockShape> {
    (1usize..6, any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(interval, share, hash, separate)| {
        BlockShape {
            restart_interval: interval,
            share_prefixes: share,
            hash_index_ratio: hash.then_some(0.75),
            separate_values: separate,
        }
    })
}

fn build(shape: BlockShape, entries: &[(Vec<u8>, Vec<u8>)]) -> Block {
    let mut builder = BlockBuilder::new(shape);
    for (key, value) in entries {
        builder.add(key, value);
    }
    let estimate = builder.size_estimate();
    let contents = builder.finish();
    if shape.hash_index_ratio.is_none() {
        assert_eq!(estimate, contents.len());
    }
    assert!(builder.is_empty());
    Block::parse(contents).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn walks_both_ways(entries in entries(), shape in shape()) {
        let block = build(shape, &entries);
        let mut cursor = BlockCursor::new();
        let mut found = cursor.seek_to_first(&block).unwrap();
        for (key, value) in &entries {
            prop_assert!(found);
            prop_assert_eq!(cursor.key(&block), &key[..]);
            prop_assert_eq!(cursor.value(&block), &value[..]);
            found = cursor.next(&block).unwrap();
        }
        prop_assert!(!found && !cursor.valid());
        found = cursor.seek_to_last(&block).unwrap();
        for (key, value) in entries.iter().rev() {
            prop_assert!(found);
            prop_assert_eq!(cursor.key(&block), &key[..]);
            prop_assert_eq!(cursor.value(&block), &value[..]);
            found = cursor.prev(&block).unwrap();
        }
        prop_assert!(!found && !cursor.valid());
    }

    #[test]
    fn seeks_like_a_sorted_list(
        entries in entries(), shape in shape(), targets in self::entries(), zigzag in any::<u16>(),
    ) {
        let block = build(shape, &entries);
        let mut cursor = BlockCursor::new();
        let comparator = Comparator::Bytewise;
        for (target, _) in targets.iter().chain(&entries) {
            let at = entries.partition_point(|(key, _)| comparator.compare_internal(key, target).is_lt());
            let expected = entries.get(at);
            prop_assert_eq!(cursor.seek(&block, &comparator, target).unwrap(), expected.is_some());
            if let Some((key, value)) = expected {
                prop_assert_eq!(cursor.key(&block), &key[..]);
                prop_assert_eq!(cursor.value(&block), &value[..]);
                // Random steps back and forth from this entry.
                let mut here = at as isize;
                for bit in 0..16 {
                    let forward = zigzag >> bit & 1 == 1;
                    here += if forward { 1 } else { -1 };
                    let found = if forward { cursor.next(&block) } else { cursor.prev(&block) }.unwrap();
                    let Some((key, value)) = usize::try_from(here).ok().and_then(|i| entries.get(i)) else {
                        prop_assert!(!found);
                        break;
                    };
                    prop_assert!(found);
                    prop_assert_eq!(cursor.key(&block), &key[..]);
                    prop_assert_eq!(cursor.value(&block), &value[..]);
                }
            }
            let before = entries.partition_point(|(key, _)| comparator.compare_internal(key, target).is_le());
            let expected = before.checked_sub(1).map(|i| &entries[i].0[..]);
            let found = cursor.seek_for_prev(&block, &comparator, target).unwrap();
            prop_assert_eq!(found.then(|| cursor.key(&block)), expected);
            // A point lookup finds the same user key, with or without hash index.
            let user = key::user_key(target);
            let expected = entries.get(at);
            match cursor.seek_for_get(&block, &comparator, target).unwrap() {
                PointSeek::At => {
                    let (key, value) = expected.unwrap();
                    prop_assert_eq!(cursor.key(&block), &key[..]);
                    prop_assert_eq!(cursor.value(&block), &value[..]);
                }
                PointSeek::PastEnd => prop_assert!(expected.is_none()),
                PointSeek::Absent => prop_assert!(expected.is_some_and(|(key, _)| key::user_key(key) != user)),
            }
        }
    }

    #[test]
    fn other_orders_agree_with_bytewise(entries in entries(), shape in shape(), targets in self::entries()) {
        #[derive(Debug)]
        struct AsBytes;
        impl crate::comparator::UserComparator for AsBytes {
            fn name(&self) -> &str { "as bytes" }
            fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering { a.cmp(b) }
        }
        let block = build(shape, &entries);
        let custom = Comparator::Custom(std::sync::Arc::new(AsBytes));
        let (mut a, mut b) = (BlockCursor::new(), BlockCursor::new());
        for (target, _) in &targets {
            let found = a.seek(&block, &Comparator::Bytewise, target).unwrap();
            prop_assert_eq!(b.seek(&block, &custom, target).unwrap(), found);
            if found {
                prop_assert_eq!(a.key(&block), b.key(&block));
                prop_assert_eq!(a.value(&block), b.value(&block));
            }
        }
    }

    #[test]
    fn user_key_blocks(users in proptest::collection::btree_set(proptest::collection::vec(0u8..3, 0..12), 0..40),
        shape in shape(), targets in proptest::collection::vec(proptest::collection::vec(0u8..3, 0..12), 0..20)) {
        let users: Vec<_> = users.into_iter().map(|user| (user, vec![7])).collect();
        let block = build(BlockShape { hash_index_ratio: None, ..shape }, &users);
        let mut cursor = BlockCursor::new();
        for target in &targets {
            let expected = users.iter().find(|(user, _)| user >= target);
            let found = cursor
                .seek_in(&block, &Comparator::Bytewise, target, KeyKind::User, ValueLayout::Sized, 0..block.restart_count())
                .unwrap();
            prop_assert_eq!(found.then(|| cursor.key(&block)), expected.map(|(user, _)| &user[..]));
        }
    }

    #[test]
    fn many_restart_points(
        steps in proptest::collection::vec(prop_oneof![8 => 1u64..100, 1 => 1u64..1 << 40, 1 => Just(1u64 << 56)], 33..400),
        prefix in proptest::collection::vec(any::<u8>(), 0..12), short in any::<bool>(),
        targets in proptest::collection::vec((any::<proptest::sample::Index>(), -3i64..4), 1..30), user_keys: bool,
    ) {
        let mut number = 0u64;
        let encode = |number: u64| {
            let mut user = prefix.clone();
            user.extend_from_slice(&number.to_be_bytes());
            // Index blocks have shortened separators, without trailing zeroes.
            while short && user.len() > prefix.len() + 1 && user.last() == Some(&0) {
                user.pop();
            }
            if user_keys { user } else { internal(&user, 5) }
        };
        let numbers: Vec<u64> = steps.iter().map(|step| { number = number.saturating_add(*step); number }).collect();
        let mut keys: Vec<Vec<u8>> = numbers.iter().map(|n| encode(*n)).collect();
        keys.dedup();
        let entries: Vec<_> = keys.into_iter().map(|key| (key, vec![])).collect();
        let block = build(BlockShape::plain(1), &entries);
        let mut cursor = BlockCursor::new();
        let outer = [encode(0), encode(u64::MAX), if user_keys { vec![] } else { internal(b"", 1) }];
        let near = targets.iter().map(|(index, by)| encode(numbers[index.index(numbers.len())].saturating_add_signed(*by)));
        for target in near.chain(outer) {
            let kind = if user_keys { KeyKind::User } else { KeyKind::Internal };
            let not_below = |key: &[u8]| match kind {
                KeyKind::User => key >= &target[..],
                KeyKind::Internal => Comparator::Bytewise.compare_internal(key, &target).is_ge(),
            };
            let expected = entries.iter().find(|(key, _)| not_below(key));
            let found = cursor.seek_in(&block, &Comparator::Bytewise, &target, kind, ValueLayout::Sized, 0..block.restart_count()).unwrap();
            prop_assert_eq!(found.then(|| cursor.key(&block)), expected.map(|(key, _)| &key[..]));
        }
    }

    #[test]
    fn hostile_bytes_end_in_errors(
        entries in entries(), shape in shape(), targets in self::entries(),
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4), cut in any::<Option<u8>>(),
    ) {
        let mut bytes = build(shape, &entries).take_memory();
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(bytes.len().saturating_sub(cut.into()));
        }
        exercise(bytes, &targets);
    }

    #[test]
    fn arbitrary_bytes_end_in_errors(mut bytes in proptest::collection::vec(any::<u8>(), 0..80), tail in 0u32..6, targets in self::entries()) {
        bytes.extend_from_slice(&tail.to_le_bytes());
        exercise(bytes, &targets);
    }
}

/// Walks and seeks through arbitrary bytes; every walk must end.
fn exercise(bytes: Vec<u8>, targets: &[(Vec<u8>, Vec<u8>)]) {
    let limit = bytes.len() + 2;
    let Ok(block) = Block::parse(bytes) else { return };
    let mut cursor = BlockCursor::new();
    let mut steps = 0;
    let mut found = cursor.seek_to_first(&block);
    while let Ok(true) = found {
        let _ = (cursor.key(&block), cursor.value(&block));
        steps += 1;
        assert!(steps < limit);
        found = cursor.next(&block);
    }
    steps = 0;
    found = cursor.seek_to_last(&block);
    while let Ok(true) = found {
        let _ = (cursor.key(&block), cursor.value(&block));
        steps += 1;
        assert!(steps < limit);
        found = cursor.prev(&block);
    }
    for (target, _) in targets {
        for comparator in [Comparator::Bytewise, Comparator::ReverseBytewise] {
            let _ = cursor.seek_for_get(&block, &comparator, target);
            let _ = cursor.seek_for_prev(&block, &comparator, target);
            if let Ok(true) = cursor.seek(&block, &comparator, target) {
                let _ = (cursor.key(&block), cursor.value(&block));
                let _ = cursor.prev(&block);
                let _ = cursor.valid() && cursor.next(&block).is_ok();
            }
            let _ = cursor.seek_in(
                &block,
                &comparator,
                target,
                KeyKind::User,
                ValueLayout::HandleAndFirstKey,
                0..block.restart_count(),
            );
            let _ = cursor.valid() && cursor.next_in(&block, ValueLayout::HandleAndFirstKey).is_ok();
        }
    }
}

#[test]
fn reverse_order() {
    let comparator = Comparator::ReverseBytewise;
    let keys: Vec<_> = (0u8..50).rev().map(|i| (internal(&[b'k', i], 5), vec![i])).collect();
    let block = build(BlockShape::plain(4), &keys);
    let mut cursor = BlockCursor::new();
    assert!(cursor.seek(&block, &comparator, &internal(&[b'k', 20], 9)).unwrap());
    assert_eq!(cursor.value(&block), [20]);
    assert!(cursor.next(&block).unwrap());
    assert_eq!(cursor.value(&block), [19]);
    assert!(cursor.seek_for_prev(&block, &comparator, &internal(&[b'k', 200], 9)).is_ok_and(|found| !found));
}

#[test]
fn one_sequence_number_for_all() {
    let keys: Vec<_> = (0u8..50).map(|i| (internal(&[b'k', i], 0), vec![i])).collect();
    let block = build(BlockShape::plain(4), &keys);
    let mut cursor = BlockCursor::with_global_seqno(SeqNo(77));
    let comparator = Comparator::Bytewise;
    // A read at or after the ingestion sees the key, an older one moves on to the next key.
    assert!(cursor.seek(&block, &comparator, &internal(&[b'k', 20], 77)).unwrap());
    assert_eq!((cursor.value(&block), cursor.key(&block)), (&[20][..], &internal(&[b'k', 20], 77)[..]));
    assert!(cursor.seek(&block, &comparator, &internal(&[b'k', 20], 76)).unwrap());
    assert_eq!((cursor.value(&block), cursor.key(&block)), (&[21][..], &internal(&[b'k', 21], 77)[..]));
    assert!(cursor.prev(&block).unwrap());
    assert_eq!(cursor.key(&block), internal(&[b'k', 20], 77));
    assert!(cursor.seek_for_prev(&block, &comparator, &internal(&[b'k', 20], 76)).unwrap());
    assert_eq!(cursor.value(&block), [20]);
}

#[test]
fn a_block_is_as_long_as_a_cache_line() {
    assert_eq!(size_of::<Block>(), 64);
}

#[test]
fn empty_blocks() {
    for shape in [BlockShape::plain(1), BlockShape { separate_values: true, ..BlockShape::plain(16) }] {
        let block = build(shape, &[]);
        assert!(block.is_empty());
        let mut cursor = BlockCursor::new();
        assert!(!cursor.seek_to_first(&block).unwrap());
        assert!(!cursor.seek_to_last(&block).unwrap());
        assert!(!cursor.seek(&block, &Comparator::Bytewise, &internal(b"k", 1)).unwrap());
    }
    assert!(Block::parse([0, 0, 0]).is_err());
    assert!(Block::parse([0, 0, 0, 0]).unwrap().is_empty());
}

#[test]
fn unknown_feature_bit_is_refused() {
    let mut contents = BlockBuilder::new(BlockShape::plain(1)).finish();
    let last = contents.len() - 1;
    contents[last] |= 0x40;
    assert!(Block::parse(contents).unwrap_err().what.contains("feature"));
}

#[test]
fn an_interval_too_large_to_remember_is_walked_anew() {
    let long = vec![b'x'; 3000];
    let keys: Vec<_> =
        (0u32..300).map(|i| (internal(&[&long[..], &i.to_be_bytes()].concat(), 1), vec![])).collect();
    let block = build(BlockShape::plain(1000), &keys);
    let mut cursor = BlockCursor::new();
    assert!(cursor.seek_to_last(&block).unwrap());
    for (key, _) in keys.iter().rev() {
        assert_eq!(cursor.key(&block), key);
        let _ = cursor.prev(&block).unwrap();
    }
    assert!(!cursor.valid());
}
