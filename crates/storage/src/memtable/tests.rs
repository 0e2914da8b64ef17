//! Tests of memtables against a sorted list of all entries added.

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
        .unwrap()
        .map(Result::unwrap)
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
    let entry = memtable.entries_of(&seek_key(b"kk", 9)).unwrap().next().unwrap().unwrap().at;
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
                    // Everything published is present: the value, and the tombstone directly above
                    // it.
                    assert_eq!(found(&memtable, &key, seq)[0].0, seq - 1);
                    assert_eq!(memtable.covering_tombstone(&key, SeqNo(seq)), SeqNo(seq));
                }
            });
        }
    });
}

/// Returns the filter with this number: none, of whole keys, of prefixes, of both.
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

/// Returns `key` with a timestamp, in storage format.
fn at(key: &[u8], timestamp: u64) -> Vec<u8> {
    [key, &timestamp.to_le_bytes()].concat()
}

#[test]
fn deletions_of_keys_with_timestamps_are_marked_and_filters_leave_the_timestamp_out() {
    for bytes in [0, 8] {
        let (protection, filter) = (Protection::of(bytes), filter(1));
        let memtable = MemTable { protection, filter, ..MemTable::new(Comparator::BytewiseU64Ts) };
        memtable.add(SeqNo(1), ValueType::Value, &at(b"k", 5), b"five").unwrap();
        memtable.add(SeqNo(2), ValueType::Deletion, &at(b"k", 7), b"").unwrap();
        memtable.add_many(&[(SeqNo(3), ValueType::SingleDeletion, &at(b"k", 6), b"")]).unwrap();
        let deleted = at(b"j", 1);
        let prepared = memtable.prepare(&(SeqNo(4), ValueType::Deletion, &deleted, b""));
        memtable.link([prepared]).unwrap();
        let mut all = Vec::new();
        let mut next = memtable.first();
        while let Some(position) = next {
            memtable.check(position).unwrap();
            let (user_key, trailer) = key::split(memtable.key(position));
            all.push((user_key.to_vec(), ValueType::from_u8(trailer as u8).unwrap()));
            next = memtable.next(position);
        }
        let expected = [
            (deleted, ValueType::DeletionWithTimestamp),
            (at(b"k", 7), ValueType::DeletionWithTimestamp),
            (at(b"k", 6), ValueType::SingleDeletion),
            (at(b"k", 5), ValueType::Value),
        ];
        assert_eq!(all, expected, "{bytes} bytes of protection");
        assert_eq!((memtable.entry_count(), memtable.delete_count()), (4, 3));
        let filter = memtable.filter.as_ref().unwrap();
        assert!(filter.may_hold(b"k") && filter.may_hold(b"j"));
        let others = (0..500).filter(|n| filter.may_hold(&at(b"k", *n))).count();
        assert!(others < 10, "{others} keys with timestamps may be there");
    }
}

fn protected(bytes_per_key: u32, checks_searches: bool) -> MemTable {
    let protection = Protection::of(bytes_per_key);
    let tombstones = Tombstones::new(protection);
    MemTable { protection, checks_searches, tombstones, ..MemTable::new(Comparator::Bytewise) }
}

fn walk(memtable: &MemTable) -> Result<usize> {
    let mut count = 0;
    let mut at = memtable.first();
    while let Some(position) = at {
        memtable.check(position)?;
        count += 1;
        at = memtable.next(position);
    }
    Ok(count)
}

#[test]
fn a_protected_memtable_gives_what_it_was_given() {
    for bytes in Protection::SUPPORTED {
        let memtable = protected(bytes, true);
        memtable.add(SeqNo(1), ValueType::Value, b"k", b"one").unwrap();
        memtable.add(SeqNo(2), ValueType::Deletion, b"k", b"").unwrap();
        memtable.add_many(&[(SeqNo(3), ValueType::Value, b"l", b"three")]).unwrap();
        let prepared = memtable.prepare(&(SeqNo(4), ValueType::Merge, b"l", b""));
        memtable.link([prepared]).unwrap();
        memtable.add(SeqNo(5), ValueType::RangeDeletion, b"x", b"z").unwrap();
        let all = [(2, ValueType::Deletion, vec![]), (1, ValueType::Value, b"one".to_vec())];
        assert_eq!(found(&memtable, b"k", 9), all, "{bytes} bytes");
        let all = [(4, ValueType::Merge, vec![]), (3, ValueType::Value, b"three".to_vec())];
        assert_eq!(found(&memtable, b"l", 9), all, "{bytes} bytes");
        assert_eq!(walk(&memtable).unwrap(), 4);
        memtable.check_tombstones().unwrap();
        assert_eq!(memtable.range_tombstones().unwrap().tombstone_count(), 1);
        memtable.check_tombstones().unwrap();
    }
}

/// Flips each bit of an entry's key, sequence number, kind and value in turn. With 8 and 4 bytes
/// each flip is detected; with fewer, a few are missed by chance.
#[test]
fn each_bit_that_flips_is_found() {
    let whole = b"river".len() + 8 + b"valley".len();
    for (bytes, missed_at_most) in [(8, 0), (4, 0), (2, 0), (1, 4)] {
        let mut missed = 0;
        for (at, bit) in (0..whole).flat_map(|at| (0..8).map(move |bit| (at, 1 << bit))) {
            let mut memtable = protected(bytes, false);
            memtable.add(SeqNo(7), ValueType::Value, b"river", b"valley").unwrap();
            let position = memtable.first().unwrap();
            memtable.list.flip_bits(position, at, bit);
            match walk(&memtable) {
                Ok(_) => missed += 1,
                Err(error) => assert_eq!(error.kind(), ErrorKind::Corruption),
            }
            memtable.list.flip_bits(position, at, bit);
            assert_eq!(walk(&memtable).unwrap(), 1);
        }
        assert!(missed <= missed_at_most, "{missed} of {} with {bytes} bytes", whole * 8);
    }
}

#[test]
fn a_damaged_checksum_is_found_and_without_protection_nothing_is() {
    let mut memtable = protected(2, false);
    memtable.add(SeqNo(7), ValueType::Value, b"k", b"v").unwrap();
    let position = memtable.first().unwrap();
    memtable.list.flip_bits(position, 1 + 8 + 1 + 1, 0x10);
    assert!(walk(&memtable).is_err());
    let mut memtable = protected(0, true);
    memtable.add(SeqNo(7), ValueType::Value, b"k", b"v").unwrap();
    let position = memtable.first().unwrap();
    memtable.list.flip_bits(position, 9, 0x10);
    assert_eq!(found(&memtable, b"k", 9), [(7, ValueType::Value, b"f".to_vec())]);
}

#[test]
fn a_lookup_finds_the_damage_of_what_it_meets_and_a_checking_search_that_of_what_it_passes() {
    for checks_searches in [false, true] {
        let mut memtable = protected(8, checks_searches);
        for seq in 0..100 {
            let key = format!("k{seq:02}");
            memtable.add(SeqNo(seq), ValueType::Value, key.as_bytes(), b"v").unwrap();
        }
        let searched = |memtable: &MemTable, key: &[u8]| -> Result<usize> {
            memtable
                .entries_of(&seek_key(key, 500))?
                .map(|entry| entry.map(|_| ()))
                .collect::<Result<Vec<_>>>()
                .map(|all| all.len())
        };
        let position = memtable.seek_ge(&seek_key(b"k50", 500)).unwrap().unwrap();
        // The value of k50, which the searches for its neighbours pass.
        memtable.list.flip_bits(position, 3 + 8, 1);
        assert_eq!(searched(&memtable, b"k50").unwrap_err().kind(), ErrorKind::Corruption);
        let passed_by = (0..100)
            .filter(|n| *n < 49 || *n > 50)
            .any(|n| searched(&memtable, format!("k{n:02}").as_bytes()).is_err());
        assert_eq!(passed_by, checks_searches);
        memtable.list.flip_bits(position, 3 + 8, 1);
        // A changed key: the search reports the damaged entry instead of a missing key.
        memtable.list.flip_bits(position, 2, 4);
        assert_eq!(searched(&memtable, b"k50").unwrap_err().kind(), ErrorKind::Corruption);
    }
}

/// Without checksums, a changed key is out of order, which searches and steps next to it detect.
#[test]
fn readers_notice_an_entry_that_is_out_of_its_place_where_they_check() {
    for checks_order in [false, true] {
        let mut memtable = MemTable { checks_order, ..MemTable::new(Comparator::Bytewise) };
        for seq in 0..100 {
            let key = format!("k{seq:02}");
            memtable.add(SeqNo(seq), ValueType::Value, key.as_bytes(), b"v").unwrap();
        }
        let steps = |memtable: &MemTable| {
            let mut at = memtable.first();
            let mut outcome = Ok(());
            while let Some(position) = at {
                at = memtable.next(position);
                outcome = outcome.and(at.map_or(Ok(()), |next| memtable.check_step(position, next)));
            }
            outcome
        };
        let any_search_fails = |memtable: &MemTable| {
            (0..100).any(|n| memtable.seek_ge(&seek_key(format!("k{n:02}").as_bytes(), 500)).is_err())
        };
        assert!(steps(&memtable).is_ok() && !any_search_fails(&memtable));
        let position = memtable.seek_ge(&seek_key(b"k50", 500)).unwrap().unwrap();
        memtable.list.flip_bits(position, 1, 0x04);
        assert_eq!(steps(&memtable).is_err(), checks_order);
        assert_eq!(any_search_fails(&memtable), checks_order);
        if checks_order {
            let error = steps(&memtable).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corruption);
            assert!(error.to_string().contains("out of order"), "{error}");
        }
    }
}

#[test]
fn a_checksum_from_before_is_gone_on_with() {
    let memtable = protected(4, false);
    let pair = pair_checksum(b"k", b"meant");
    memtable.add_with_checksum(&(SeqNo(1), ValueType::Value, b"k", b"meant"), pair).unwrap();
    assert_eq!(walk(&memtable).unwrap(), 1);
    memtable.add_with_checksum(&(SeqNo(2), ValueType::Value, b"k", b"means"), pair).unwrap();
    assert!(walk(&memtable).is_err());
    let memtable = protected(4, false);
    memtable.add_with_checksum(&(SeqNo(3), ValueType::RangeDeletion, b"k", b"means"), pair).unwrap();
    assert!(memtable.check_tombstones().unwrap_err().to_string().contains("range tombstone"));
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
