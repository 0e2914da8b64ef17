//! Stripes: the ranges of sequence numbers that no snapshot separates.
//!
//! Snapshots at 10 and 20 make three stripes: up to 10, 11 to 20, and all above. Of several entries
//! of a key in one stripe every reader sees the newest or none.
//!
//! In: the snapshots' sequence numbers when the job began. Out: for an entry its stripe, named by
//! the snapshot that ends it.
//! Invariant: a snapshot taken later reads above everything in a job, so it needs no stripe of its
//! own.
//!
//! An entry that a transaction inserted when it was prepared is visible from the sequence number at
//! which the transaction was decided on: it belongs to the stripe of that number. Undecided entries
//! have stripes of their own, one for each number, so they hide nothing, and an entry that hides
//! them is visible to every reader. docs/decisions/write-prepared.md has the argument.

use karst_base::snapshot::Readers;
use karst_format::key::SeqNo;

/// The stripe of an entry. An undecided entry has a stripe of its own, with a `below` above all
/// sequence numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stripe {
    /// The oldest snapshot that sees the entry; `SeqNo::MAX` if only readers without a snapshot do.
    pub(crate) top: SeqNo,
    /// The newest snapshot that does not see the entry, or 0.
    pub(crate) below: SeqNo,
}

/// The stripes of a list of snapshots.
#[derive(Clone, Debug)]
pub(crate) struct Stripes {
    snapshots: Box<[SeqNo]>,
    /// Ranges of pending sequence numbers, as in [`Readers`].
    pending: Box<[(SeqNo, SeqNo, Option<SeqNo>)]>,
    /// First pending sequence number; `u64::MAX` without any.
    pending_from: SeqNo,
    may_have_rolled_back: bool,
}

impl Default for Stripes {
    fn default() -> Self {
        Stripes::new([])
    }
}

impl Stripes {
    /// Creates the stripes of `snapshots`, given in any order.
    pub(crate) fn new(snapshots: impl IntoIterator<Item = SeqNo>) -> Stripes {
        let mut snapshots: Vec<SeqNo> = snapshots.into_iter().collect();
        snapshots.sort_unstable();
        snapshots.dedup();
        let (pending, pending_from) = (Box::default(), SeqNo(u64::MAX));
        Stripes { snapshots: snapshots.into(), pending, pending_from, may_have_rolled_back: false }
    }

    /// Creates the stripes of `readers`.
    pub(crate) fn of_readers(readers: &Readers) -> Stripes {
        let pending_from = readers.pending.first().map_or(SeqNo(u64::MAX), |(first, ..)| *first);
        let pending = readers.pending.clone().into();
        let may_have_rolled_back = readers.may_have_rolled_back;
        Stripes {
            pending,
            pending_from,
            may_have_rolled_back,
            ..Stripes::new(readers.snapshots.iter().copied())
        }
    }

    /// Returns the sequence number from which on an entry numbered `seq` is visible; `None` if it
    /// is undecided.
    #[inline]
    fn seen_from(&self, seq: SeqNo) -> Option<SeqNo> {
        if seq < self.pending_from {
            return Some(seq);
        }
        let behind = self.pending.partition_point(|(first, ..)| *first <= seq);
        let (_, end, decided) = self.pending[behind - 1];
        if seq < end { decided } else { Some(seq) }
    }

    /// Returns true if any sequence number is pending.
    #[inline]
    pub(crate) fn have_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Returns true if a key may have entries that its user does not know of: rolled back ones, and
    /// those that restored the previous value.
    #[inline]
    pub(crate) fn may_have_rolled_back(&self) -> bool {
        self.may_have_rolled_back
    }

    /// Returns true if the entry with this sequence number is undecided.
    #[inline]
    pub(crate) fn is_undecided(&self, seq: SeqNo) -> bool {
        self.seen_from(seq).is_none()
    }

    /// Returns true if every reader sees the entry with this sequence number, or a newer one of its
    /// key.
    #[inline]
    pub(crate) fn seen_by_all(&self, seq: SeqNo) -> bool {
        self.seen_from(seq).is_some_and(|from| from <= self.earliest())
    }

    /// Returns the stripe of an entry with this sequence number.
    #[inline]
    pub(crate) fn of(&self, seq: SeqNo) -> Stripe {
        let Some(seq) = self.seen_from(seq) else {
            // `top` is the oldest snapshot, because an entry above it that the oldest snapshot sees
            // hides it from every reader, regardless of the decision.
            return Stripe { top: self.earliest(), below: SeqNo(u64::MAX - seq.0) };
        };
        if self.snapshots.is_empty() {
            return Stripe { top: SeqNo::MAX, below: SeqNo::ZERO };
        }
        let at = self.snapshots.partition_point(|snapshot| *snapshot < seq);
        Stripe {
            top: self.snapshots.get(at).copied().unwrap_or(SeqNo::MAX),
            below: at.checked_sub(1).map_or(SeqNo::ZERO, |before| self.snapshots[before]),
        }
    }

    /// The largest sequence number up to which every reader sees entries, or newer ones of their
    /// keys.
    #[inline]
    pub(crate) fn earliest(&self) -> SeqNo {
        self.snapshots.first().copied().unwrap_or(SeqNo::MAX)
    }

    /// The newest snapshot, or 0.
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
    #[test]
    fn what_was_decided_later_is_in_a_later_stripe_and_what_was_not_in_one_of_its_own() {
        let pending = vec![(SeqNo(5), SeqNo(7), Some(SeqNo(15))), (SeqNo(12), SeqNo(13), None)];
        let stripes = Stripes::of_readers(&Readers {
            snapshots: vec![SeqNo(10), SeqNo(20)],
            pending,
            ..Readers::default()
        });
        let of = |seq| stripes.of(SeqNo(seq));
        assert_eq!((of(5), of(6), of(4), of(7)), (of(15), of(15), of(10), of(10)));
        assert!((0..30).filter(|seq| *seq != 12).all(|seq| of(seq) != of(12)));
        let seen = |seq| stripes.seen_by_all(SeqNo(seq));
        assert_eq!([seen(4), seen(5), seen(8), seen(12)], [true, false, true, false]);
        assert!(stripes.is_undecided(SeqNo(12)) && !stripes.is_undecided(SeqNo(5)));
    }
}
