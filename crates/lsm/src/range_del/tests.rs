//! Fragments and aggregates against the definition: every tombstone is checked in turn.

use super::*;
use karst_format::comparator::Comparator;
use karst_format::key::SeqNo;
use proptest::prelude::*;
use std::sync::Arc;

fn t(start: &str, end: &str, seq: u64) -> RangeTombstone {
    RangeTombstone::new(start.as_bytes(), end.as_bytes(), SeqNo(seq))
}

fn shown(f: &Fragments) -> Vec<String> {
    let text = |key: &[u8]| String::from_utf8(key.to_vec()).unwrap();
    (0..f.len())
        .map(|i| {
            let seqs: Vec<_> = f.seqs(i).iter().map(|s| s.0).collect();
            format!("{}..{} {seqs:?}", text(f.start(i)), text(f.end(i)))
        })
        .collect()
}

#[test]
fn overlaps_are_cut() {
    let f = Fragments::build(
        &Comparator::Bytewise,
        vec![t("b", "f", 9), t("a", "d", 7), t("x", "x", 8), t("z", "y", 8)],
    );
    assert_eq!(shown(&f), ["a..b [7]", "b..d [9, 7]", "d..f [9]"]);
    assert_eq!(f.tombstone_count(), 2);
    let seq = |key: &str, read| f.covering_seq(&Comparator::Bytewise, key.as_bytes(), SeqNo(read)).0;
    assert_eq!((seq("c", 100), seq("c", 8), seq("c", 6)), (9, 7, 0));
    assert_eq!((seq("f", 100), seq("", 100), seq("e", 8)), (0, 0, 0));
}

#[test]
fn touching_equal_ranges_join_and_gaps_stay() {
    let f = Fragments::build(
        &Comparator::Bytewise,
        vec![t("a", "b", 5), t("b", "c", 5), t("d", "e", 5), t("a", "c", 5)],
    );
    assert_eq!(shown(&f), ["a..c [5]", "d..e [5]"]);
    assert_eq!(f.overlapping(&Comparator::Bytewise, Some(b"c"), None), 1..2);
    assert_eq!(f.overlapping(&Comparator::Bytewise, Some(b"b"), Some(b"d")), 0..1);
    assert_eq!(f.overlapping(&Comparator::Bytewise, Some(b"x"), Some(b"y")), 2..2);
}

#[test]
fn a_reverse_order_has_its_own_empty_ranges() {
    let f = Fragments::build(&Comparator::ReverseBytewise, vec![t("f", "b", 3), t("a", "d", 4)]);
    assert_eq!(shown(&f), ["f..b [3]"]);
    assert_eq!(f.covering_seq(&Comparator::ReverseBytewise, b"c", SeqNo(9)), SeqNo(3));
}

#[test]
fn a_clipped_source_holds_within_its_file_only() {
    let f = Arc::new(Fragments::build(&Comparator::Bytewise, vec![t("a", "z", 9)]));
    let mut all = Aggregate::new(Comparator::Bytewise, SeqNo::MAX);
    assert!(all.is_empty() && !all.hides(b"m", SeqNo(1)));
    all.add_clipped(f.clone(), Some(b"c"), Some((b"k", false)));
    assert!(all.hides(b"c", SeqNo(8)) && !all.hides(b"c", SeqNo(9)));
    assert!(!all.hides(b"b", SeqNo(1)) && !all.hides(b"k", SeqNo(1)));
    assert_eq!(all.hidden_until(b"d", SeqNo(1)), Some(&b"k"[..]));
    assert_eq!(all.hidden_until(b"d", SeqNo(9)), None);
    all.add_clipped(f, Some(b"k"), Some((b"m", true)));
    assert!(all.hides(b"m", SeqNo(1)) && !all.hides(b"n", SeqNo(1)));
}

fn tombstones() -> impl Strategy<Value = Vec<RangeTombstone>> {
    let key = || proptest::collection::vec(b'a'..=b'd', 0..3);
    let one = (key(), key(), 1u64..30).prop_map(|(a, b, seq)| RangeTombstone::new(&a, &b, SeqNo(seq)));
    proptest::collection::vec(one, 0..12)
}

proptest! {
    #[test]
    fn agrees_with_looking_at_every_tombstone(
        sets in proptest::collection::vec(tombstones(), 1..4),
        probes in proptest::collection::vec((proptest::collection::vec(b'a'..=b'e', 0..4), 0u64..32), 1..40),
        reverse: bool,
    ) {
        let comparator = if reverse { Comparator::ReverseBytewise } else { Comparator::Bytewise };
        for read in [SeqNo(0), SeqNo(15), SeqNo::MAX] {
            let mut all = Aggregate::new(comparator.clone(), read);
            for set in &sets {
                all.add(Arc::new(Fragments::build(&comparator, set.clone())));
            }
            for (key, seq) in &probes {
                let over = |t: &&RangeTombstone| {
                    comparator.compare_user(&t.start, key).is_le() && comparator.compare_user(key, &t.end).is_lt() && t.seq <= read
                };
                let newest = sets.iter().flatten().filter(over).map(|t| t.seq).max().unwrap_or(SeqNo(0));
                prop_assert_eq!(all.covering_seq(key), newest);
                prop_assert_eq!(all.hides(key, SeqNo(*seq)), newest > SeqNo(*seq));
                let until = all.hidden_until(key, SeqNo(*seq)).map(<[u8]>::to_vec);
                prop_assert_eq!(until.is_some(), newest > SeqNo(*seq));
                if let Some(until) = until {
                    prop_assert!(comparator.compare_user(key, &until).is_lt());
                }
            }
        }
    }
}
