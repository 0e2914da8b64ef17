//! Range tombstones of several memtables and tables, as an iterator over all of them needs them.
//!
//! In: the fragments of each source, clipped to the boundaries of the file they come from. Out: for
//! a user key the newest tombstone over it that the reader sees, from any source; and the range
//! around a key that is hidden as a whole, to seek past it.
//!
//! Invariant: sources are only added. An iterator moves in small steps, so each source remembers
//! the fragment it answered with last and looks there first.

use super::fragments::Fragments;
use karst_format::comparator::Comparator;
use karst_format::key::SeqNo;
use std::cmp::Ordering;
use std::sync::Arc;

#[derive(Debug)]
struct Source {
    fragments: Arc<Fragments>,
    /// The file's boundaries as user keys. `lower` is included; `upper` is included if the flag
    /// says so.
    lower: Option<Box<[u8]>>,
    upper: Option<(Box<[u8]>, bool)>,
    /// The fragment of the last answer, or the one after the gap of the last answer.
    cursor: usize,
}

/// Range tombstones of several sources for one reader.
#[derive(Debug)]
pub struct Aggregate {
    comparator: Comparator,
    read_seq: SeqNo,
    sources: Vec<Source>,
}

impl Aggregate {
    /// No tombstones yet, for a reader at `read_seq`.
    pub fn new(comparator: Comparator, read_seq: SeqNo) -> Self {
        Self { comparator, read_seq, sources: Vec::new() }
    }

    /// Whether nothing can be hidden.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// Forgets all sources.
    pub fn clear(&mut self) {
        self.sources.clear();
    }

    /// Adds the tombstones of a memtable, or of a file whose boundaries need not be heeded. Returns
    /// the source's number.
    pub fn add(&mut self, fragments: Arc<Fragments>) -> usize {
        self.add_clipped(fragments, None, None)
    }

    /// Adds the tombstones of a table that hold from `lower` (included) to `upper` (included if its
    /// flag is set). Returns the source's number.
    ///
    /// Why: a compaction may cut a tombstone at the boundary between two of its output files and
    /// write it whole into both; beyond its file's boundary it would hide newer data of the
    /// neighbour's that was since rewritten.
    pub fn add_clipped(
        &mut self,
        fragments: Arc<Fragments>,
        lower: Option<&[u8]>,
        upper: Option<(&[u8], bool)>,
    ) -> usize {
        if !fragments.is_empty() {
            let upper = upper.map(|(key, included)| (key.into(), included));
            self.sources.push(Source { fragments, lower: lower.map(Into::into), upper, cursor: 0 });
        }
        self.sources.len()
    }

    /// The sequence number of the newest tombstone over `user_key` that the reader sees; 0 if there
    /// is none.
    #[inline]
    pub fn covering_seq(&mut self, user_key: &[u8]) -> SeqNo {
        let mut newest = SeqNo::ZERO;
        for source in &mut self.sources {
            newest = newest.max(source.covering_seq(&self.comparator, user_key, self.read_seq));
        }
        newest
    }

    /// Whether an entry of `user_key` with sequence number `seq` is hidden from the reader.
    #[inline]
    pub fn hides(&mut self, user_key: &[u8], seq: SeqNo) -> bool {
        !self.sources.is_empty() && self.covering_seq(user_key) > seq
    }

    /// How far a tombstone newer than `seq` reaches forward from `user_key`: the first user key
    /// that the one reaching furthest no longer hides. `None` if none is over `user_key`. An
    /// iterator whose entries there are all older than `seq` may seek to it.
    pub fn hidden_until(&mut self, user_key: &[u8], seq: SeqNo) -> Option<&[u8]> {
        let (comparator, read_seq) = (&self.comparator, self.read_seq);
        let mut furthest: Option<&[u8]> = None;
        for source in &mut self.sources {
            if source.covering_seq(comparator, user_key, read_seq) <= seq {
                continue;
            }
            let end = source.fragments.end(source.cursor);
            let end = match &source.upper {
                Some((upper, _)) if comparator.compare_user(upper, end) == Ordering::Less => upper,
                _ => end,
            };
            if furthest.is_none_or(|f| comparator.compare_user(end, f) == Ordering::Greater) {
                furthest = Some(end);
            }
        }
        furthest
    }
}

impl Source {
    /// Invariant: afterwards, if the answer is not 0, `cursor` is the fragment over the key.
    #[inline]
    fn covering_seq(&mut self, comparator: &Comparator, user_key: &[u8], read_seq: SeqNo) -> SeqNo {
        if let Some(lower) = &self.lower
            && comparator.compare_user(user_key, lower) == Ordering::Less
        {
            return SeqNo::ZERO;
        }
        if let Some((upper, included)) = &self.upper {
            match comparator.compare_user(user_key, upper) {
                Ordering::Greater => return SeqNo::ZERO,
                Ordering::Equal if !included => return SeqNo::ZERO,
                _ => {}
            }
        }
        let fragments = &self.fragments;
        let ends_behind = |i: usize| comparator.compare_user(fragments.end(i), user_key) == Ordering::Greater;
        let near = self.cursor;
        let fits = (near == fragments.len() || ends_behind(near)) && (near == 0 || !ends_behind(near - 1));
        if !fits {
            self.cursor = fragments.seek(comparator, user_key);
        }
        if self.cursor == fragments.len()
            || comparator.compare_user(fragments.start(self.cursor), user_key) == Ordering::Greater
        {
            return SeqNo::ZERO;
        }
        fragments.visible_seq(self.cursor, read_seq).unwrap_or(SeqNo::ZERO)
    }
}
