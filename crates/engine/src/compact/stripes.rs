//! Stripes: the ranges of sequence numbers that no snapshot tells apart.
//!
//! Snapshots at 10 and 20 make three stripes: up to 10, 11 to 20, and all above. Of several entries of a key in one stripe every reader sees the
//! newest or none.
//!
//! In: the snapshots' sequence numbers when the job began. Out: for an entry the stripe it is in, named by the snapshot that ends it.
//! Invariant: a snapshot taken later reads above everything a job sees, so it needs no stripe of its own.

use karst_format::key::SeqNo;

/// The stripe of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stripe {
    /// The oldest snapshot that sees the entry; `SeqNo::MAX` if only readers without a snapshot do.
    pub(crate) top: SeqNo,
    /// The newest snapshot that does not see it; 0 if there is none.
    pub(crate) below: SeqNo,
}

/// The stripes that a list of snapshots makes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stripes {
    snapshots: Box<[SeqNo]>,
}

impl Stripes {
    /// `snapshots` in any order.
    pub(crate) fn new(snapshots: impl IntoIterator<Item = SeqNo>) -> Stripes {
        let mut snapshots: Vec<SeqNo> = snapshots.into_iter().collect();
        snapshots.sort_unstable();
        snapshots.dedup();
        Stripes { snapshots: snapshots.into() }
    }

    /// The stripe of an entry with this sequence number.
    #[inline]
    pub(crate) fn of(&self, seq: SeqNo) -> Stripe {
        if self.snapshots.is_empty() {
            return Stripe { top: SeqNo::MAX, below: SeqNo::ZERO };
        }
        let at = self.snapshots.partition_point(|snapshot| *snapshot < seq);
        Stripe {
            top: self.snapshots.get(at).copied().unwrap_or(SeqNo::MAX),
            below: at.checked_sub(1).map_or(SeqNo::ZERO, |before| self.snapshots[before]),
        }
    }

    /// Every reader sees entries up to this one, or newer ones of their keys.
    #[inline]
    pub(crate) fn earliest(&self) -> SeqNo {
        self.snapshots.first().copied().unwrap_or(SeqNo::MAX)
    }

    /// The newest snapshot; 0 if there is none.
    pub(crate) fn latest(&self) -> SeqNo {
        self.snapshots.last().copied().unwrap_or(SeqNo::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_end_stripes() {
        let stripes = Stripes::new([SeqNo(20), SeqNo(10), SeqNo(20)]);
        let of = |seq| {
            let stripe = stripes.of(SeqNo(seq));
            (stripe.top.0, stripe.below.0)
        };
        assert_eq!([of(1), of(10), of(11), of(20)], [(10, 0), (10, 0), (20, 10), (20, 10)]);
        assert_eq!(of(21), (SeqNo::MAX.0, 20));
        assert_eq!((stripes.earliest().0, stripes.latest().0), (10, 20));
        let none = Stripes::default();
        assert_eq!(
            (none.of(SeqNo(7)).top, none.earliest(), none.latest()),
            (SeqNo::MAX, SeqNo::MAX, SeqNo(0))
        );
    }
}
