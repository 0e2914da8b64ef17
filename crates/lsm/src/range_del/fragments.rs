//! Range tombstones cut into fragments that do not overlap.
//!
//! In: tombstones `[start, end)` with sequence numbers, in any order. Out: fragments in key order,
//! each with the sequence numbers of all tombstones over it, newest first; and for a key and a
//! reader the newest visible tombstone over it.
//!
//! | fragment | covers | sequence numbers |
//! |---|---|---|
//! | `a..d@7`, `b..f@9` become | `a..b` | 7 |
//! | | `b..d` | 9, 7 |
//! | | `d..f` | 9 |
//!
//! Invariants: fragments are sorted, do not overlap and are not empty; adjacent fragments with
//! equal sequence numbers are merged; the numbers of a fragment are distinct and descend. Immutable
//! once built; a lookup allocates nothing.

use karst_format::comparator::Comparator;
use karst_format::key::SeqNo;
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::ops::Range;

/// One range tombstone as it was written: it hides entries older than `seq` in `[start, end)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeTombstone {
    /// First user key hidden.
    pub start: Box<[u8]>,
    /// First user key no longer hidden.
    pub end: Box<[u8]>,
    /// Entries with smaller sequence numbers are hidden.
    pub seq: SeqNo,
}

impl RangeTombstone {
    /// Returns a tombstone over `[start, end)`.
    pub fn new(start: &[u8], end: &[u8], seq: SeqNo) -> Self {
        Self { start: start.into(), end: end.into(), seq }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fragment {
    /// Indexes of its start and end in the boundary keys.
    start: u32,
    end: u32,
    /// Its sequence numbers are `seqs[first_seq..]` up to the next fragment's.
    first_seq: u32,
}

/// The fragments of a set of range tombstones.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Fragments {
    /// Boundary keys, ascending and distinct, concatenated.
    bytes: Box<[u8]>,
    /// End of each boundary key in `bytes`.
    ends: Box<[u32]>,
    fragments: Box<[Fragment]>,
    seqs: Box<[SeqNo]>,
    tombstones: usize,
}

impl Fragments {
    /// Cuts tombstones into fragments. Tombstones whose range is empty in `comparator`'s order are
    /// dropped.
    ///
    /// # Panics
    /// If the boundary keys exceed 4 GiB or the sequence numbers 2^32, which no table or memtable
    /// holds.
    pub fn build<T: Borrow<RangeTombstone>>(comparator: &Comparator, tombstones: Vec<T>) -> Self {
        let tombstones = tombstones.iter().map(Borrow::borrow);
        let mut tombstones: Vec<&RangeTombstone> =
            tombstones.filter(|t| comparator.compare_user(&t.start, &t.end) == Ordering::Less).collect();
        tombstones.sort_by(|a, b| comparator.compare_user(&a.start, &b.start).then(b.seq.cmp(&a.seq)));
        let mut boundaries: Vec<&[u8]> = tombstones.iter().flat_map(|t| [&*t.start, &*t.end]).collect();
        boundaries.sort_by(|a, b| comparator.compare_user(a, b));
        boundaries.dedup_by(|a, b| comparator.compare_user(a, b) == Ordering::Equal);

        let mut cut = Cut::default();
        let mut next = tombstones.iter().peekable();
        let place =
            |key: &[u8]| boundaries.partition_point(|b| comparator.compare_user(b, key) == Ordering::Less);
        for (at, boundary) in boundaries.iter().enumerate() {
            cut.active.retain(|&(end, _)| end > at);
            while let Some(t) =
                next.next_if(|t| comparator.compare_user(&t.start, boundary) == Ordering::Equal)
            {
                cut.active.push((place(&t.end), t.seq));
            }
            cut.emit(at);
        }
        let mut bytes = Vec::with_capacity(boundaries.iter().map(|b| b.len()).sum());
        let ends = boundaries
            .iter()
            .map(|b| {
                bytes.extend_from_slice(b);
                u32::try_from(bytes.len()).expect("boundary keys of one table fit 4 GiB")
            })
            .collect();
        Self {
            bytes: bytes.into(),
            ends,
            fragments: cut.fragments.into(),
            seqs: cut.seqs.into(),
            tombstones: tombstones.len(),
        }
    }

    /// Returns true if there are no tombstones.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.fragments.is_empty()
    }

    /// Returns the number of fragments.
    pub fn len(&self) -> usize {
        self.fragments.len()
    }

    /// Returns the number of tombstones that the fragments were cut from.
    pub fn tombstone_count(&self) -> usize {
        self.tombstones
    }

    /// Returns the memory that the fragments occupy, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.len()
            + self.ends.len() * size_of::<u32>()
            + self.fragments.len() * size_of::<Fragment>()
            + self.seqs.len() * size_of::<SeqNo>()
    }

    fn boundary(&self, at: u32) -> &[u8] {
        let at = at as usize;
        let start = if at == 0 { 0 } else { self.ends[at - 1] as usize };
        &self.bytes[start..self.ends[at] as usize]
    }

    /// Returns the start of fragment `i`: its first hidden user key.
    pub fn start(&self, i: usize) -> &[u8] {
        self.boundary(self.fragments[i].start)
    }

    /// Returns the end of fragment `i`: the first user key behind it, not hidden by it.
    pub fn end(&self, i: usize) -> &[u8] {
        self.boundary(self.fragments[i].end)
    }

    /// Returns the sequence numbers of the tombstones over fragment `i`, newest first.
    pub fn seqs(&self, i: usize) -> &[SeqNo] {
        let upto = self.fragments.get(i + 1).map_or(self.seqs.len(), |f| f.first_seq as usize);
        &self.seqs[self.fragments[i].first_seq as usize..upto]
    }

    /// Returns the newest tombstone over fragment `i` that a reader at `read_seq` sees.
    pub fn visible_seq(&self, i: usize, read_seq: SeqNo) -> Option<SeqNo> {
        let seqs = self.seqs(i);
        seqs.get(seqs.partition_point(|s| *s > read_seq)).copied()
    }

    /// Returns the first fragment that ends behind `user_key`: the one over it, or else the next;
    /// `len()` if it is behind all fragments.
    #[inline]
    pub fn seek(&self, comparator: &Comparator, user_key: &[u8]) -> usize {
        self.fragments
            .partition_point(|f| comparator.compare_user(self.boundary(f.end), user_key) != Ordering::Greater)
    }

    /// Returns the fragment over `user_key`.
    #[inline]
    pub fn covering(&self, comparator: &Comparator, user_key: &[u8]) -> Option<usize> {
        let i = self.seek(comparator, user_key);
        (i < self.len() && comparator.compare_user(self.start(i), user_key) != Ordering::Greater).then_some(i)
    }

    /// Returns the sequence number of the newest tombstone over `user_key` that a reader at
    /// `read_seq` sees; 0, which hides nothing, without one. Entries of the key with smaller
    /// numbers are deleted for that reader.
    #[inline]
    pub fn covering_seq(&self, comparator: &Comparator, user_key: &[u8], read_seq: SeqNo) -> SeqNo {
        if self.is_empty() {
            return SeqNo::ZERO;
        }
        let found = self.covering(comparator, user_key).and_then(|i| self.visible_seq(i, read_seq));
        found.unwrap_or(SeqNo::ZERO)
    }

    /// Returns the fragments that overlap `[lower, upper)`, for building an aggregate over several
    /// tables.
    pub fn overlapping(
        &self,
        comparator: &Comparator,
        lower: Option<&[u8]>,
        upper: Option<&[u8]>,
    ) -> Range<usize> {
        let first = lower.map_or(0, |key| self.seek(comparator, key));
        let last = upper.map_or(self.len(), |key| {
            self.fragments
                .partition_point(|f| comparator.compare_user(self.boundary(f.start), key) == Ordering::Less)
        });
        first..last.max(first)
    }
}

/// State of the sweep over the boundaries: the tombstones over the current one, and the fragments
/// so far.
#[derive(Default)]
struct Cut {
    /// (Index of the boundary at which the tombstone ends, sequence number.)
    active: Vec<(usize, SeqNo)>,
    fragments: Vec<Fragment>,
    seqs: Vec<SeqNo>,
    sorted: Vec<SeqNo>,
}

impl Cut {
    /// Adds the fragment from boundary `at` to the next, or extends the last one to it.
    fn emit(&mut self, at: usize) {
        if self.active.is_empty() {
            return;
        }
        self.sorted.clear();
        self.sorted.extend(self.active.iter().map(|&(_, seq)| seq));
        self.sorted.sort_unstable_by(|a, b| b.cmp(a));
        self.sorted.dedup();
        let index = |n: usize| u32::try_from(n).expect("fragments of one table are counted in 32 bits");
        if let Some(last) = self.fragments.last_mut()
            && last.end as usize == at
            && self.seqs[last.first_seq as usize..] == self.sorted[..]
        {
            last.end = index(at + 1);
            return;
        }
        self.fragments.push(Fragment {
            start: index(at),
            end: index(at + 1),
            first_seq: index(self.seqs.len()),
        });
        self.seqs.extend_from_slice(&self.sorted);
    }
}
