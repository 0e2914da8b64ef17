//! The level search against a scan over all files, under every comparator with a layout of its own.
use super::*;
use crate::version_builder::{TreeOptions, VersionBuilder};
use karst_format::key::{InternalKey, ValueType};
use karst_format::version_edit::{NewFile, VersionEdit};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::ops::Bound;

fn internal(user_key: &[u8], seq: u64, kind: ValueType) -> Vec<u8> {
    InternalKey { user_key, seq: SeqNo(seq), kind }.to_vec()
}

/// Keys that share prefixes of every length around the eight bytes of a window, and some without a
/// shared prefix.
fn user_key() -> impl Strategy<Value = Vec<u8>> {
    let tail = proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(0xff), any::<u8>()], 0..4);
    let head = prop_oneof![
        Just(&b""[..]),
        Just(&b"user"[..]),
        Just(&b"user0000"[..]),
        Just(&b"user00000000"[..]),
        Just(&b"user0000000000000000"[..]),
        Just(&b"\xff\xff\xff\xff\xff\xff\xff\xff\xff"[..]),
    ];
    (head, tail).prop_map(|(head, tail)| [head, &tail].concat())
}

/// A tree with arbitrary ranges on L0, and two sorted levels with arbitrary cuts between files. If
/// `share` is set, two files of a sorted level share a user key, with the newer entries in the
/// first one.
fn tree(comparator: Comparator) -> impl Strategy<Value = (Version, Vec<Vec<u8>>)> {
    let keys = proptest::collection::btree_set(user_key(), 2..40);
    let l0 = proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..6);
    let shares = proptest::collection::vec(any::<(bool, bool)>(), 40);
    (keys, l0, shares).prop_map(move |(keys, l0, shares)| build_tree(&comparator, keys, &l0, &shares))
}

fn build_tree(
    comparator: &Comparator,
    keys: BTreeSet<Vec<u8>>,
    l0: &[(prop::sample::Index, prop::sample::Index)],
    shares: &[(bool, bool)],
) -> (Version, Vec<Vec<u8>>) {
    let mut keys: Vec<Vec<u8>> = keys.into_iter().collect();
    keys.sort_by(|a, b| comparator.compare_user(a, b));
    let mut edit = VersionEdit::default();
    let mut number = 0;
    let mut add = |level: u8, smallest: Vec<u8>, largest: Vec<u8>, epoch: u64| {
        number += 1;
        let mut file = NewFile::new(FileNumber(number), 1, smallest, largest, SeqNo(1), SeqNo(number));
        file.epoch_number = epoch;
        edit.new_files.push((Level(level), file));
    };
    for (at, (a, b)) in l0.iter().enumerate() {
        let (a, b) = (a.index(keys.len()), b.index(keys.len()));
        let (a, b) = (a.min(b), a.max(b));
        let (smallest, largest) =
            (internal(&keys[a], 9, ValueType::Value), internal(&keys[b], 1, ValueType::Value));
        add(0, smallest, largest, 100 + at as u64);
    }
    // L1 has a file for each two keys; L3 one for each three, and its files touch.
    for pair in keys.chunks_exact(2) {
        add(1, internal(&pair[0], 9, ValueType::Value), internal(&pair[1], 1, ValueType::Merge), 2);
    }
    let mut from = internal(&keys[0], 9, ValueType::Value);
    for (at, key) in keys.iter().enumerate().skip(1).step_by(2) {
        let (share, sentinel) = shares[at % shares.len()];
        let last_seq = if sentinel { SeqNo::MAX.0 } else { 5 };
        let kind = if sentinel { ValueType::RangeDeletion } else { ValueType::Value };
        add(3, std::mem::take(&mut from), internal(key, last_seq, kind), 1);
        match (share || sentinel, keys.get(at + 1)) {
            (true, _) => from = internal(key, 4, ValueType::Value),
            (false, Some(next)) => from = internal(next, 9, ValueType::Value),
            (false, None) => return (build(comparator, &edit), keys),
        }
    }
    (build(comparator, &edit), keys)
}

fn build(comparator: &Comparator, edit: &VersionEdit) -> Version {
    let mut builder = VersionBuilder::new();
    builder.apply(edit).unwrap();
    let options = TreeOptions { comparator: comparator.clone(), level_count: 5, ..TreeOptions::default() };
    builder.build(&options).unwrap()
}

/// Returns the expected files: on L0 every file around the key; below it those that can hold an
/// entry of the key at or before `seq`.
fn scan(version: &Version, key: &[u8], seq: SeqNo) -> Vec<(Level, FileNumber)> {
    let comparator = version.comparator();
    let sought = internal(key, seq.0, ValueType::FOR_SEEK);
    let holds = |level: Level, file: &FileMetadata| {
        comparator.compare_user(key, file.smallest_user_key()).is_ge()
            && comparator.compare_user(key, file.largest_user_key()).is_le()
            && (level.0 == 0 || comparator.compare_internal(&file.largest, &sought).is_ge())
    };
    let found = version.all_files().filter(|(level, file)| holds(*level, file));
    found.map(|(level, file)| (level, file.number)).collect()
}

fn check_search(version: &Version, key: &[u8], seq: SeqNo) -> Result<(), TestCaseError> {
    let found: Vec<_> = version.candidates(key, seq).map(|found| (found.level, found.file.number)).collect();
    prop_assert_eq!(found, scan(version, key, seq), "key {:?} at {}", key, seq);
    for start in 0..version.levels().len() as u8 {
        let mut position = SearchPosition::at_level(Level(start));
        let first = version.next_candidate(key, seq, &mut position).map(|found| found.file.number);
        let expected = scan(version, key, seq).into_iter().find(|(level, _)| level.0 >= start);
        prop_assert_eq!(first, expected.map(|(_, number)| number));
    }
    Ok(())
}

fn check_ranges(version: &Version, a: &[u8], b: &[u8]) -> Result<(), TestCaseError> {
    use Bound::{Excluded, Included, Unbounded};
    let comparator = version.comparator();
    for lower in [Unbounded, Included(a), Excluded(a)] {
        for upper in [Unbounded, Included(b), Excluded(b)] {
            if comparator.compare_user(a, b).is_gt() && lower != Unbounded && upper != Unbounded {
                continue;
            }
            for level in version.levels() {
                let range = level.overlapping(comparator, lower, upper);
                for (index, file) in level.files().iter().enumerate() {
                    let behind = match lower {
                        Unbounded => true,
                        Included(key) => comparator.compare_user(file.largest_user_key(), key).is_ge(),
                        Excluded(key) => comparator.compare_user(file.largest_user_key(), key).is_gt(),
                    };
                    let before = match upper {
                        Unbounded => true,
                        Included(key) => comparator.compare_user(file.smallest_user_key(), key).is_le(),
                        Excluded(key) => comparator.compare_user(file.smallest_user_key(), key).is_lt(),
                    };
                    prop_assert_eq!(level.overlaps(comparator, index, lower, upper), behind && before);
                    let in_range = range.contains(&index);
                    prop_assert_eq!(in_range, level.overlapping_files() || behind && before);
                }
            }
        }
    }
    Ok(())
}

/// Bytewise order as a user comparator, which takes the general path through the search.
#[derive(Debug)]
struct Plain;

impl karst_format::comparator::UserComparator for Plain {
    fn name(&self) -> &str {
        "test.Plain"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        a.cmp(b)
    }
}

fn comparators() -> impl Strategy<Value = Comparator> {
    prop_oneof![
        3 => Just(Comparator::Bytewise),
        1 => Just(Comparator::ReverseBytewise),
        1 => Just(Comparator::Custom(Arc::new(Plain))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn the_search_finds_what_a_scan_finds(
        (version, keys) in comparators().prop_flat_map(tree),
        others in proptest::collection::vec(user_key(), 10),
        seq in prop_oneof![0..10u64, Just(SeqNo::MAX.0)],
    ) {
        for key in keys.iter().chain(&others) {
            check_search(&version, key, SeqNo(seq))?;
        }
        for pair in keys.iter().chain(&others).collect::<Vec<_>>().chunks_exact(2) {
            check_ranges(&version, pair[0], pair[1])?;
        }
    }
}

#[test]
fn a_search_in_an_empty_tree_finds_nothing() {
    let version = Version::empty(Comparator::Bytewise, 7);
    assert_eq!(version.candidates(b"k", SeqNo::MAX).count(), 0);
    assert_eq!((version.file_count(), version.size_bytes(), version.levels().len()), (0, 0, 7));
    assert_eq!(Version::empty(Comparator::Bytewise, 0).levels().len(), 1);
    assert_eq!(Version::empty(Comparator::Bytewise, 1000).levels().len(), 256);
    assert!(version.files(Level(9)).is_empty());
}

#[test]
fn a_tree_of_256_levels_is_searched_to_its_end() {
    let mut edit = VersionEdit::default();
    let key = internal(b"k", 1, ValueType::Value);
    let mut file = NewFile::new(FileNumber(1), 1, key.clone(), key, SeqNo(1), SeqNo(1));
    file.epoch_number = 1;
    edit.new_files.push((Level(255), file));
    let version = build(&Comparator::Bytewise, &edit);
    let mut position = SearchPosition::START;
    assert_eq!(version.next_candidate(b"k", SeqNo::MAX, &mut position).unwrap().level, Level(255));
    assert!(version.next_candidate(b"k", SeqNo::MAX, &mut position).is_none());
    assert!(version.next_candidate(b"k", SeqNo::MAX, &mut position).is_none());
}
