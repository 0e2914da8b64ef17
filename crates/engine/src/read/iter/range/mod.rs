//! A range of keys as an owned Rust iterator that can be read from both ends.
//!
//! In: an iterator without a position. Out: its entries, in key order from the front and in reverse
//! from the back, until both meet. The second end gets an iterator of its own over the same state,
//! created on its first use.

use super::{DbIterator, Direction, EntryStream, Streamed};
use futures_core::Stream;
use karst_base::error::{Error, Result, check_range};
use karst_base::options::ReadOptions;
use karst_format::comparator::Comparator;
use karst_storage::value::Value;
use std::cmp::Ordering;
use std::iter::FusedIterator;
use std::ops::{Bound, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

/// The entries of a range of keys, as of one moment: an [`Iterator`] and [`DoubleEndedIterator`] of
/// keys and values that owns the state it reads. Created by [`Db::range`](crate::Db::range) and
/// [`Db::prefix`](crate::Db::prefix).
///
/// Each step blocks the calling thread if it has to read. The range ends after an error; errors are
/// those of [`DbIterator`]. Values pin their memory, keys are copies. A range pins memtables and
/// files while it lives.
///
/// It is `Send`, and not meant to be shared.
#[must_use = "iterators do nothing unless consumed"]
pub struct Range {
    /// The iterator in its initial state, until one of the ends starts with it.
    idle: Option<DbIterator>,
    front: Option<DbIterator>,
    back: Option<DbIterator>,
    edges: Edges,
    ended: bool,
}

/// A range of keys: any of the standard library's ranges, or a pair of [`Bound`]s, of keys that are
/// `AsRef<[u8]>`.
///
/// Used instead of `RangeBounds`, with which the key type of `..` and of a range of `b"a"` could
/// not be inferred.
pub trait KeyBounds {
    /// Converts the range into owned bounds.
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>);
}

fn included(key: impl AsRef<[u8]>) -> Bound<Vec<u8>> {
    Bound::Included(key.as_ref().to_vec())
}

fn excluded(key: impl AsRef<[u8]>) -> Bound<Vec<u8>> {
    Bound::Excluded(key.as_ref().to_vec())
}

impl KeyBounds for RangeFull {
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        (Bound::Unbounded, Bound::Unbounded)
    }
}

impl<K: AsRef<[u8]>> KeyBounds for std::ops::Range<K> {
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        (included(self.start), excluded(self.end))
    }
}

impl<K: AsRef<[u8]>> KeyBounds for RangeInclusive<K> {
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        let (start, end) = self.into_inner();
        (included(start), included(end))
    }
}

impl<K: AsRef<[u8]>> KeyBounds for RangeFrom<K> {
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        (included(self.start), Bound::Unbounded)
    }
}

impl<K: AsRef<[u8]>> KeyBounds for RangeTo<K> {
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        (Bound::Unbounded, excluded(self.end))
    }
}

impl<K: AsRef<[u8]>> KeyBounds for RangeToInclusive<K> {
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        (Bound::Unbounded, included(self.end))
    }
}

impl<K: AsRef<[u8]>> KeyBounds for (Bound<K>, Bound<K>) {
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        let owned = |key: K| key.as_ref().to_vec();
        (self.0.map(owned), self.1.map(owned))
    }
}

/// Bounds that iterators cannot express, because theirs include the lower key and exclude the
/// upper.
#[derive(Debug, Default)]
struct Edges {
    /// The lower key, if it is excluded.
    behind: Option<Vec<u8>>,
    /// The upper key, if it is included.
    through: Option<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Front,
    Back,
}

impl Range {
    /// Creates the entries of `range`, read with `options`, by iterators that `make` creates.
    ///
    /// # Errors
    /// `InvalidArgument` if the range ends before it begins, and the errors of `make`.
    pub(crate) fn new(
        range: impl KeyBounds,
        options: &ReadOptions,
        order: &Comparator,
        make: impl FnOnce(&ReadOptions) -> Result<DbIterator>,
    ) -> Result<Range> {
        let (lower, upper) = range.into_bounds();
        let (mut options, mut edges) = (in_order(options), Edges::default());
        if let (Some(lower), Some(upper)) = (key_of(&lower), key_of(&upper)) {
            check_range(order, lower, upper)?;
        }
        match lower {
            Bound::Unbounded => {}
            Bound::Included(key) => options.iterate_lower_bound = Some(key),
            Bound::Excluded(key) => {
                edges.behind = Some(key.clone());
                options.iterate_lower_bound = Some(key);
            }
        }
        match upper {
            Bound::Unbounded => {}
            Bound::Excluded(key) => options.iterate_upper_bound = Some(key),
            Bound::Included(key) => {
                // The bound avoids readahead beyond the range; other orders have no computable next
                // key.
                let next = matches!(order, Comparator::Bytewise).then(|| [&key[..], &[0]].concat());
                options.iterate_upper_bound = next;
                edges.through = Some(key);
            }
        }
        Ok(Range { idle: Some(make(&options)?), front: None, back: None, edges, ended: false })
    }

    /// Creates the entries whose keys begin with `prefix`.
    ///
    /// # Errors
    /// `NotSupported` if the comparator does not order by bytes, and the errors of `make`.
    pub(crate) fn of_prefix(
        prefix: &[u8],
        options: &ReadOptions,
        order: &Comparator,
        make: impl FnOnce(&ReadOptions) -> Result<DbIterator>,
    ) -> Result<Range> {
        let first = Bound::Included(prefix.to_vec());
        let behind = first_behind(prefix).map_or(Bound::Unbounded, Bound::Excluded);
        match order {
            Comparator::Bytewise => Range::new((first, behind), options, order, make),
            // In reverse order the first key is the range's last.
            Comparator::ReverseBytewise => Range::new((behind, first), options, order, make),
            _ => {
                let text =
                    format!("prefix() in the order {}: keys with one prefix may lie apart", order.name());
                Err(Error::not_supported(text))
            }
        }
    }

    /// Returns the keys alone.
    pub fn keys(self) -> impl DoubleEndedIterator<Item = Result<Box<[u8]>>> + FusedIterator + Send {
        self.map(|entry| entry.map(|(key, _)| key))
    }

    /// Returns the values alone.
    pub fn values(self) -> impl DoubleEndedIterator<Item = Result<Value>> + FusedIterator + Send {
        self.map(|entry| entry.map(|(_, value)| value))
    }

    /// Returns all entries as a `futures_core::Stream`, which never blocks: from the first, or,
    /// backward, from the last.
    ///
    /// # Errors
    /// `InvalidArgument` if entries were read already.
    pub fn into_stream(
        self,
        direction: Direction,
    ) -> Result<impl Stream<Item = Result<(Box<[u8]>, Value)>> + Send + Unpin> {
        let read_already = || Error::invalid_argument("a stream of a range that was read from already");
        let iter = self.idle.ok_or_else(read_already)?;
        let end = if direction == Direction::Forward { End::Front } else { End::Back };
        Ok(EntryStream::new(Bounded { iter, edges: self.edges, end }, direction))
    }

    /// Moves one end by one entry; returns true if it reached an entry that the
    /// other end has not returned.
    fn step(&mut self, end: End) -> Result<bool> {
        let (own, other) = match end {
            End::Front => (&mut self.front, &self.back),
            End::Back => (&mut self.back, &self.front),
        };
        match own {
            Some(iter) if end == End::Front => iter.next()?,
            Some(iter) => iter.prev()?,
            None => {
                let iter = match (self.idle.take(), other) {
                    (Some(idle), _) => idle,
                    (None, other) => other.as_ref().expect("one of the three has it").twin()?,
                };
                let iter = own.insert(iter);
                self.edges.begin(iter, end)?;
            }
        }
        let own = own.as_ref().expect("it has begun");
        if !own.valid() {
            return Ok(false);
        }
        let beyond = |other: &DbIterator| !other.valid() || own.compare(other.key()) != behind_of(end);
        Ok(!self.edges.passed_by(own, end) && !other.as_ref().is_some_and(beyond))
    }

    fn entry(&mut self, end: End) -> Option<Result<(Box<[u8]>, Value)>> {
        if self.ended {
            return None;
        }
        match self.step(end) {
            Ok(true) => {
                let iter = if end == End::Front { &self.front } else { &self.back };
                let iter = iter.as_ref().expect("it has begun");
                Some(Ok((iter.key().into(), iter.pinned_value())))
            }
            Ok(false) => {
                self.end();
                None
            }
            Err(error) => {
                self.end();
                Some(Err(error))
            }
        }
    }

    /// Ends the range and drops its iterators.
    fn end(&mut self) {
        self.ended = true;
        (self.idle, self.front, self.back) = (None, None, None);
    }
}

impl Edges {
    /// Moves an iterator to its end of the range.
    fn begin(&self, iter: &mut DbIterator, end: End) -> Result<()> {
        match (end, &self.through) {
            (End::Front, _) => iter.seek_to_first()?,
            (End::Back, Some(key)) => iter.seek_for_prev(key)?,
            (End::Back, None) => iter.seek_to_last()?,
        }
        if self.stands_at_excluded(iter, end) { iter.next() } else { Ok(()) }
    }

    async fn begin_async(&self, iter: &mut DbIterator, end: End) -> Result<()> {
        match (end, &self.through) {
            (End::Front, _) => iter.seek_to_first_async().await?,
            (End::Back, Some(key)) => iter.seek_for_prev_async(key).await?,
            (End::Back, None) => iter.seek_to_last_async().await?,
        }
        if self.stands_at_excluded(iter, end) { iter.next_async().await } else { Ok(()) }
    }

    fn stands_at_excluded(&self, iter: &DbIterator, end: End) -> bool {
        let excluded = |key: &Vec<u8>| iter.valid() && iter.compare(key).is_eq();
        end == End::Front && self.behind.as_ref().is_some_and(excluded)
    }

    /// Returns true if an iterator has passed the far edge.
    fn passed_by(&self, iter: &DbIterator, end: End) -> bool {
        match end {
            End::Front => self.through.as_ref().is_some_and(|key| iter.compare(key).is_gt()),
            End::Back => self.behind.as_ref().is_some_and(|key| iter.compare(key).is_le()),
        }
    }
}

/// One end of a range, for a stream.
struct Bounded {
    iter: DbIterator,
    edges: Edges,
    end: End,
}

impl Streamed for Bounded {
    fn was_sent(&self) -> bool {
        self.iter.was_sent()
    }

    fn valid(&self) -> bool {
        self.iter.valid() && !self.edges.passed_by(&self.iter, self.end)
    }

    fn status(&self) -> Result<()> {
        self.iter.status()
    }

    fn entry(&self) -> (Box<[u8]>, Value) {
        Streamed::entry(&self.iter)
    }

    async fn advance(&mut self, direction: Direction) -> Result<()> {
        if self.iter.was_sent() {
            return self.iter.advance(direction).await;
        }
        self.edges.begin_async(&mut self.iter, self.end).await
    }
}

/// Order of an end's keys relative to the other end's, while entries are left between them.
fn behind_of(end: End) -> Ordering {
    match end {
        End::Front => Ordering::Less,
        End::Back => Ordering::Greater,
    }
}

/// Returns options that read all keys of a range, regardless of the prefix extractor.
fn in_order(options: &ReadOptions) -> ReadOptions {
    ReadOptions { auto_prefix_mode: true, prefix_same_as_start: false, ..options.clone() }
}

fn key_of(bound: &Bound<Vec<u8>>) -> Option<&[u8]> {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key),
        Bound::Unbounded => None,
    }
}

/// Returns the first key, in byte order, behind all keys that begin with `prefix`; `None` if no key
/// is.
fn first_behind(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != u8::MAX)?;
    let mut key = prefix[..=last].to_vec();
    key[last] += 1;
    Some(key)
}

impl Iterator for Range {
    type Item = Result<(Box<[u8]>, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.entry(End::Front)
    }
}

impl DoubleEndedIterator for Range {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.entry(End::Back)
    }
}

impl FusedIterator for Range {}

impl std::fmt::Debug for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Range").field("ended", &self.ended).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
