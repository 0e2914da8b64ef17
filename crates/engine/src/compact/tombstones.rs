//! Range tombstones in a job: the entries that they hide, and the tombstones left to write.
//!
//! In: the fragments of all inputs together, each clipped to its file's boundaries. Out: for each
//! entry, in order, true if a tombstone of its stripe hides it; and the fragments to write.
//!
//! Invariant: a tombstone drops an entry only inside one stripe, because a snapshot between them
//! sees the entry.

use super::stripes::{Stripe, Stripes};
use karst_format::comparator::Comparator;
use karst_format::key::SeqNo;
use karst_lsm::range_del::{Fragments, RangeTombstone};
use std::sync::Arc;

/// The tombstones of a job, positioned at the current entry.
#[derive(Debug)]
pub(crate) struct PassedTombstones {
    comparator: Comparator,
    fragments: Arc<Fragments>,
    /// Index of the first fragment that ends behind the last key passed to `hides`.
    at: usize,
}

impl PassedTombstones {
    pub(crate) fn new(comparator: Comparator, fragments: Arc<Fragments>) -> Self {
        PassedTombstones { comparator, fragments, at: 0 }
    }

    /// Returns true if an entry is hidden from every reader that would see it. User keys must not
    /// descend from call to call.
    #[inline]
    pub(crate) fn hides(&mut self, user_key: &[u8], seq: SeqNo, stripe: Stripe) -> bool {
        let (fragments, comparator) = (&self.fragments, &self.comparator);
        while self.at < fragments.len() && comparator.compare_user(fragments.end(self.at), user_key).is_le() {
            self.at += 1;
        }
        self.at < fragments.len()
            && comparator.compare_user(fragments.start(self.at), user_key).is_le()
            && fragments.visible_seq(self.at, stripe.top).is_some_and(|tombstone| tombstone > seq)
    }
}

/// The tombstones left to write, and the number dropped.
#[derive(Debug)]
pub(crate) struct LeftTombstones {
    pub(crate) fragments: Arc<Fragments>,
    /// Number of tombstones dropped because they hide nothing any more.
    pub(crate) dropped_obsolete: u64,
}

/// Returns the tombstones to write: the newest of each stripe, without those that every reader sees
/// where `may_overlap` returns false, that is, no older data lies between two user keys (the second
/// included). Ranges ascend from call to call.
pub(crate) fn left_over(
    comparator: &Comparator,
    fragments: &Fragments,
    stripes: &Stripes,
    mut may_overlap: impl FnMut(&[u8], &[u8]) -> bool,
) -> LeftTombstones {
    let mut left = Vec::new();
    let mut dropped_obsolete = 0;
    for i in 0..fragments.len() {
        let (start, end) = (fragments.start(i), fragments.end(i));
        let needed = may_overlap(start, end);
        let mut last_top = None;
        for &seq in fragments.seqs(i) {
            let top = stripes.of(seq).top;
            let obsolete = seq <= stripes.earliest() && !needed;
            if obsolete {
                dropped_obsolete += 1;
            } else if last_top != Some(top) {
                left.push(RangeTombstone::new(start, end, seq));
            }
            last_top = Some(top);
        }
    }
    LeftTombstones { fragments: Arc::new(Fragments::build(comparator, left)), dropped_obsolete }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(left: &LeftTombstones) -> Vec<(String, Vec<u64>)> {
        let f = &left.fragments;
        let text = |i| format!("{}..{}", f.start(i).escape_ascii(), f.end(i).escape_ascii());
        (0..f.len()).map(|i| (text(i), f.seqs(i).iter().map(|s| s.0).collect())).collect()
    }

    #[test]
    fn of_each_stripe_the_newest_is_left() {
        let t = |a: &str, b: &str, seq| RangeTombstone::new(a.as_bytes(), b.as_bytes(), SeqNo(seq));
        let fragments = Fragments::build(
            &Comparator::Bytewise,
            vec![t("a", "m", 5), t("a", "m", 7), t("c", "m", 12), t("c", "z", 15), t("c", "d", 25)],
        );
        let stripes = Stripes::new([SeqNo(10), SeqNo(20)]);
        let left = left_over(&Comparator::Bytewise, &fragments, &stripes, |_, _| true);
        let expected =
            [("a..c", vec![7]), ("c..d", vec![25, 15, 7]), ("d..m", vec![15, 7]), ("m..z", vec![15])];
        assert_eq!(shown(&left), expected.map(|(range, seqs)| (range.to_owned(), seqs)));
        assert_eq!(left.dropped_obsolete, 0);
        let left = left_over(&Comparator::Bytewise, &fragments, &stripes, |start, _| start < b"c".as_slice());
        let expected = [("a..c", vec![7]), ("c..d", vec![25, 15]), ("d..z", vec![15])];
        assert_eq!(shown(&left), expected.map(|(range, seqs)| (range.to_owned(), seqs)));
        assert_eq!(left.dropped_obsolete, 4);
    }

    #[test]
    fn an_entry_is_hidden_inside_of_its_stripe_only() {
        let fragments = vec![RangeTombstone::new(b"b", b"d", SeqNo(15))];
        let fragments = Arc::new(Fragments::build(&Comparator::Bytewise, fragments));
        let stripes = Stripes::new([SeqNo(10)]);
        let mut passed = PassedTombstones::new(Comparator::Bytewise, fragments);
        let mut hides = |key: &[u8], seq| passed.hides(key, SeqNo(seq), stripes.of(SeqNo(seq)));
        assert!(!hides(b"a", 11));
        assert!(hides(b"b", 14) && !hides(b"b", 15) && !hides(b"b", 10));
        assert!(hides(b"c", 11) && !hides(b"d", 11));
    }
}
