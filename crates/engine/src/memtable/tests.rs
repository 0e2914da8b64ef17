//! Memtables against a sorted list of everything that was added.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn seek_key(user_key: &[u8], seq: u64) -> Vec<u8> {
    let mut key = Vec::new();
    key::append(&mut key, user_key, key::pack_trailer(SeqNo(seq), ValueType::FOR_SEEK));
    key
}

fn found(memtable: &MemTable, user_key: &[u8], seq: u64) -> Vec<(u64, ValueType, Vec<u8>)> {
    memtable
        .entries_of(&seek_key(user_key, seq))
        .map(|e| (e.seq.0, e.kind, memtable.value(e.at).to_vec()))
        .collect()
}

#[test]
fn a_key_gives_its_visible_entries_newest_first() {
    let memtable = MemTable::new(Comparator::Bytewise);
    assert!(memtable.is_empty());
    memtable.add(SeqNo(5), ValueType::Value, b"k", b"five").unwrap();
    memtable.add(SeqNo(7), ValueType::Merge, b"k", b"seven").unwrap();
    memtable.add(SeqNo(6), ValueType::Deletion, b"k", b"").unwrap();
    memtable.add(SeqNo(8), ValueType::Value, b"kk", b"other").unwrap();
    let all = [
        (7, ValueType::Merge, b"seven".to_vec()),
        (6, ValueType::Deletion, vec![]),
        (5, ValueType::Value, b"five".to_vec()),
    ];
    assert_eq!(found(&memtable, b"k", 100), all);
    assert_eq!(found(&memtable, b"k", 6), all[1..]);
    assert_eq!(found(&memtable, b"k", 4), []);
    assert_eq!(found(&memtable, b"j", 100), []);
    assert_eq!((memtable.entry_count(), memtable.delete_count()), (4, 1));
    assert_eq!(memtable.add(SeqNo(5), ValueType::Value, b"k", b"again"), Err(DuplicateEntry));
    let entry = memtable.entries_of(&seek_key(b"kk", 9)).next().map(|e| e.at).unwrap();
    assert_eq!(memtable.value(entry), b"other");
    assert_eq!(memtable.value(entry.slice(1..4).slice(1..3)), b"he");
}

#[test]
fn tombstones_are_seen_as_soon_as_they_are_added() {
    let memtable = MemTable::new(Comparator::Bytewise);
    assert!(memtable.range_tombstones().is_none());
    memtable.add(SeqNo(5), ValueType::RangeDeletion, b"b", b"d").unwrap();
    memtable.add(SeqNo(6), ValueType::RangeDeletion, b"d", b"b").unwrap();
    assert_eq!(memtable.covering_tombstone(b"c", SeqNo(9)), SeqNo(5));
    assert_eq!(memtable.covering_tombstone(b"c", SeqNo(4)), SeqNo(0));
    memtable.add(SeqNo(7), ValueType::RangeDeletion, b"a", b"c\0").unwrap();
    assert_eq!(memtable.covering_tombstone(b"c", SeqNo(9)), SeqNo(7));
    assert_eq!(memtable.range_tombstones().unwrap().tombstone_count(), 2);
    assert_eq!(memtable.entry_count(), 2);
    assert!(memtable.first().is_none() && memtable.memory_bytes() > 0);
}

#[test]
fn readers_and_writers_at_the_same_time() {
    let memtable = MemTable::new(Comparator::Bytewise);
    let published = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for seq in (2..2000).step_by(2) {
                let key = [(seq % 7) as u8];
                memtable.add(SeqNo(seq), ValueType::Value, &key, &seq.to_le_bytes()).unwrap();
                memtable.add(SeqNo(seq + 1), ValueType::RangeDeletion, &key, &[key[0] + 1]).unwrap();
                published.store(seq + 1, Ordering::Release);
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                while published.load(Ordering::Acquire) < 1999 {
                    let seq = published.load(Ordering::Acquire);
                    if seq == 0 {
                        continue;
                    }
                    let key = [((seq - 1) % 7) as u8];
                    // Everything published is there: the value, and the tombstone right above it.
                    assert_eq!(found(&memtable, &key, seq)[0].0, seq - 1);
                    assert_eq!(memtable.covering_tombstone(&key, SeqNo(seq)), SeqNo(seq));
                }
            });
        }
    });
}

/// The filters there can be, by number: none, of whole keys, of prefixes, of both.
fn filter(number: u8) -> Option<Filter> {
    use karst_format::options::{ColumnFamilyOptions, OptionSet};
    let mut options = ColumnFamilyOptions {
        memtable_prefix_bloom_size_ratio: 0.01,
        memtable_whole_key_filtering: number & 1 != 0,
        ..Default::default()
    };
    if number & 2 != 0 {
        options.set_all("prefix_extractor=rocksdb.FixedPrefix.1").unwrap();
    }
    let id = karst_format::ids::ColumnFamilyId(0);
    let config = FamilyConfig::resolve(id, "default", options, None, Default::default()).unwrap();
    Filter::of(&config)
}

#[test]
fn a_filter_passes_keys_by_that_were_not_added() {
    for (number, of_prefix) in [(1, 0), (2, 500), (3, 0)] {
        let memtable = MemTable { filter: filter(number), ..MemTable::new(Comparator::Bytewise) };
        memtable
            .add_many(&[(SeqNo(1), ValueType::Value, b"a", b""), (SeqNo(2), ValueType::Value, b"b1", b"")])
            .unwrap();
        let filter = memtable.filter.as_ref().unwrap();
        assert!([&b"a"[..], b"b1"].iter().all(|key| filter.may_hold(key)), "filter {number}");
        let may_hold = (1000..1500).filter(|n| filter.may_hold(format!("b{n}").as_bytes())).count();
        let others = (1000..1500).filter(|n| filter.may_hold(format!("{n}").as_bytes())).count();
        assert!(may_hold.abs_diff(of_prefix) < 10 && others < 10, "filter {number}: {may_hold}, {others}");
        assert!(memtable.memory_bytes() > filter.memory_bytes());
    }
    assert!(filter(0).is_none(), "nothing to put into a filter");
}

proptest! {
    #[test]
    fn agrees_with_a_sorted_list(
        adds in proptest::collection::vec((proptest::collection::vec(0u8..4, 0..3), 1u64..50, 0u8..3), 0..60),
        reverse: bool,
        filtered in 0u8..4,
    ) {
        let comparator = if reverse { Comparator::ReverseBytewise } else { Comparator::Bytewise };
        let memtable = MemTable { filter: filter(filtered), ..MemTable::new(comparator.clone()) };
        let mut model: BTreeMap<(Vec<u8>, u64), ValueType> = BTreeMap::new();
        for (user_key, seq, kind) in &adds {
            let kind = [ValueType::Value, ValueType::Merge, ValueType::Deletion][usize::from(*kind)];
            if model.contains_key(&(user_key.clone(), *seq)) {
                continue;
            }
            memtable.add(SeqNo(*seq), kind, user_key, b"v").unwrap();
            model.insert((user_key.clone(), *seq), kind);
        }
        for (user_key, seq, _) in &adds {
            let expected: Vec<_> =
                model.range((user_key.clone(), 0)..=(user_key.clone(), *seq)).rev().map(|((_, s), k)| (*s, *k)).collect();
            let got: Vec<_> = found(&memtable, user_key, *seq).into_iter().map(|(s, k, _)| (s, k)).collect();
            prop_assert_eq!(got, expected);
        }
        let mut forward = Vec::new();
        let mut at = memtable.first();
        while let Some(position) = at {
            forward.push(memtable.key(position).to_vec());
            at = memtable.next(position);
        }
        prop_assert!(forward.is_sorted_by(|a, b| comparator.compare_internal(a, b).is_lt()));
        prop_assert_eq!(forward.len(), model.len());
        let mut backward = Vec::new();
        let mut at = memtable.last();
        while let Some(position) = at {
            backward.push(memtable.key(position).to_vec());
            at = memtable.prev(position);
        }
        backward.reverse();
        prop_assert_eq!(forward, backward);
    }
}
