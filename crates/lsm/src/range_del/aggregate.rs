//! Range tombstones of several memtables and tables, aggregated for an iterator over all of them.
//!
//! In: the fragments of each source, clipped to the boundaries of the file they come from. Out: for
//! a user key the newest visible tombstone over it, from any source; and the hidden range around a
//! key, to seek past it.
//!
//! Invariant: sources are only added. An iterator moves in small steps, so each source remembers
//! the fragment of its last answer and starts there.

use super::fragments::Fragments;
use karst_format::comparator::Comparator;
use karst_format::key::SeqNo;
use std::cmp::Ordering;
use std::sync::Arc;

#[derive(Debug)]
struct Source {
    fragments: Arc<Fragments>,
    /// The file's boundaries as user keys. `lower` is inclusive; `upper` is inclusive if its flag
    /// is set.
    lower: Option<Box<[u8]>>,
    upper: Option<(Box<[u8]>, bool)>,
    /// The fragment of the last answer, or the one behind the gap of the last answer.
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
    /// Returns an aggregate without tombstones, for a reader at `read_seq`.
    pub fn new(comparator: Comparator, read_seq: SeqNo) -> Self {
        Self { comparator, read_seq, sources: Vec::new() }
    }

    /// Returns true if there are no sources, so nothing is hidden.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// Removes all sources.
    pub fn clear(&mut self) {
        self.sources.clear();
    }

    /// Adds the tombstones of a memtable, or of a file that needs no clipping. Returns the source's
    /// number.
    pub fn add(&mut self, fragments: Arc<Fragments>) -> usize {
        self.add_clipped(fragments, None, None)
    }

    /// Adds the tombstones of a table, valid from `lower` (inclusive) to `upper` (inclusive if its
    /// flag is set). Returns the source's number.
    ///
    /// They are clipped because a compaction may write a tombstone that crosses the boundary
    /// between two output files whole into both; beyond its file's boundary it would hide newer
    /// data of the neighbour that has been rewritten since.
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

    /// Returns the sequence number of the newest visible tombstone over `user_key`; 0 without one.
    #[inline]
    pub fn covering_seq(&mut self, user_key: &[u8]) -> SeqNo {
        let mut newest = SeqNo::ZERO;
        for source in &mut self.sources {
            newest = newest.max(source.covering_seq(&self.comparator, user_key, self.read_seq));
        }
        newest
    }

    /// Returns true if an entry of `user_key` with sequence number `seq` is hidden from the reader.
    #[inline]
    pub fn hides(&mut self, user_key: &[u8], seq: SeqNo) -> bool {
        !self.sources.is_empty() && self.covering_seq(user_key) > seq
    }

    /// Returns the first user key behind `user_key` that is not hidden by the furthest-reaching of
    /// the sources' tombstones over it that are newer than `seq`; `None` if no such tombstone is
    /// over `user_key`. An iterator whose entries there are all older than `seq` may seek to it.
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
    /// Invariant: afterwards, if the result is not 0, `cursor` is the fragment over the key.
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
