//! Ranges of numbers that are written and still pending: each range is decided later, as a whole,
//! at a number of its own. Readers below that number ignore it.
//!
//! A range is added before any reader may read at a number in it, and is later decided at a number.
//! A reader pins the number it reads at together with the list of ranges that it may have to
//! ignore: [`PendingRanges::pin`]. It keeps the list, and tests every number that it meets:
//! [`Ranges::hides`].
//!
//! A list never changes; a change replaces it by another. One cell of a range changes: from 0 to
//! the number at which it was decided. A decision therefore costs one store, for any number of
//! numbers in the range, and every holder of the list sees it.
//!
//! Invariants, which the caller keeps:
//! - A range is added before a number in it, or above it, can be read at.
//! - It is decided at a number that is larger than all that were read at before, and before that
//!   number can be read at.
//! - It is removed ([`PendingRanges::remove_decided`]) only once every new reader reads at that
//!   number or above.
//!
//! It follows that `hides(number, at)` of a pinned list returns the same value for as long as the
//! list is kept: an undecided range hides, and so does one decided later, because that is at a
//! larger number than `at`.
//!
//! Ordering: `changes` is stored after a new list. A reader loads `changes`, the list, the number
//! to read at, and `changes` again. If it is unchanged, no range at or below the number is missing:
//! the thread that adds one stores `changes` before the number is published, therefore a reader
//! that loads the number sees that store. If the list lacks a removed range, the reader has seen
//! the store of that list, and with it the number that its remover had seen published; a number
//! that it loads after that is not below.

pub use crate::sync::Pinned;
use crate::sync::{AtomicU64, Mutex, Ordering, Swap};
use std::sync::Arc;

#[cfg(all(test, not(loom)))]
mod tests;

/// Number of decided ranges at which the list is copied without them.
const MANY_DECIDED: usize = 16;

/// Maximum number of ranges of a list that are copied when another is added.
const NEWER: usize = 128;

/// One range of numbers.
#[derive(Debug)]
pub struct Range {
    first: u64,
    /// The number after its last one.
    end: u64,
    /// The number at which it was decided; 0 before.
    decided_at: AtomicU64,
}

impl Range {
    /// Makes the range count for readers at `at` or above. A second decision has no effect.
    ///
    /// # Panics
    /// If `at` is within or below the range.
    pub fn decide(&self, at: u64) {
        assert!(at >= self.end, "a range is decided behind its end");
        let _ = self.decided_at.compare_exchange(0, at, Ordering::AcqRel, Ordering::Acquire);
    }

    fn is_decided(&self, published: u64) -> bool {
        self.decided_at().is_some_and(|at| at <= published)
    }

    /// Returns the number at which it was decided, or `None`.
    pub fn decided_at(&self) -> Option<u64> {
        Some(self.decided_at.load(Ordering::Acquire)).filter(|at| *at > 0)
    }

    /// Returns its first number.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Returns the number after its last one.
    pub fn end(&self) -> u64 {
        self.end
    }
}

/// An immutable list of ranges, in the order of their numbers.
///
/// It has two parts, because a range is usually added behind all others, and at a time when no
/// thread may take a number: only the newer part is then copied.
#[derive(Debug, Default)]
pub struct Ranges {
    older: Arc<Vec<Arc<Range>>>,
    /// Ranges behind all older ones.
    newer: Vec<Arc<Range>>,
}

impl Ranges {
    fn of(all: Vec<Arc<Range>>) -> Self {
        Self { older: Arc::new(all), newer: Vec::new() }
    }

    /// Returns true if `number` does not count for the reader that pinned this list together with
    /// `at`.
    #[inline]
    pub fn hides(&self, number: u64, at: u64) -> bool {
        match self.first() {
            Some(first) if number >= first => self.hides_here(number, at),
            _ => false,
        }
    }

    fn hides_here(&self, number: u64, at: u64) -> bool {
        let part = match self.newer.first() {
            Some(first) if number >= first.first => &self.newer,
            _ => &*self.older,
        };
        let behind = part.partition_point(|range| range.first <= number);
        let Some(range) = behind.checked_sub(1).map(|before| &part[before]) else { return false };
        number < range.end && range.decided_at().is_none_or(|decided| decided > at)
    }

    /// Returns the first number of the first range.
    #[inline]
    pub fn first(&self) -> Option<u64> {
        self.older.first().or(self.newer.first()).map(|range| range.first)
    }

    /// Returns all ranges, ascending.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Range>> {
        self.older.iter().chain(&self.newer)
    }

    /// Returns the number of ranges.
    pub fn len(&self) -> usize {
        self.older.len() + self.newer.len()
    }

    /// Returns true if the list is empty.
    pub fn is_empty(&self) -> bool {
        self.older.is_empty() && self.newer.is_empty()
    }
}

/// The current list of ranges. See the module documentation.
pub struct PendingRanges {
    /// Twice the number of changes, plus one unless the list is empty.
    changes: AtomicU64,
    list: Swap<Ranges>,
    /// Lock: held to change the list.
    changing: Mutex<()>,
}

impl Default for PendingRanges {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for PendingRanges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PendingRanges").field("ranges", &self.list.load().len()).finish()
    }
}

impl PendingRanges {
    /// Returns an empty list.
    pub fn new() -> Self {
        Self {
            changes: AtomicU64::new(0),
            list: Swap::new(Arc::new(Ranges::default())),
            changing: Mutex::new(()),
        }
    }

    /// Adds the undecided range of `count` numbers from `first` on, which must not overlap another.
    /// Occasionally removes those that were decided at `published` or below.
    pub fn add(&self, first: u64, count: u64, published: u64) -> Arc<Range> {
        let range = Arc::new(Range { first, end: first + count, decided_at: AtomicU64::new(0) });
        self.change(|ranges| {
            let is_last = ranges.iter().last().is_none_or(|last| last.first < first);
            if is_last && ranges.newer.len() < NEWER {
                let undecided = ranges.newer.iter().filter(|range| !range.is_decided(published));
                let newer = undecided.chain([&range]).cloned().collect();
                return Some(Ranges { older: ranges.older.clone(), newer });
            }
            let mut all: Vec<_> =
                ranges.iter().filter(|range| !range.is_decided(published)).cloned().collect();
            let at = all.partition_point(|other| other.first < first);
            all.insert(at, range.clone());
            Some(Ranges::of(all))
        });
        range
    }

    /// Removes ranges that were decided at `published` or below. If others stay, it does so only
    /// once there are many, because it copies the list, and the next `add` removes them too.
    pub fn remove_decided(&self, published: u64) {
        let now = self.list.load();
        let decided = now.iter().filter(|range| range.is_decided(published)).count();
        if decided < now.len().clamp(1, MANY_DECIDED) {
            return;
        }
        self.keep(|range| !range.is_decided(published));
    }

    /// Removes a range whose numbers are not used.
    pub fn withdraw(&self, range: &Arc<Range>) {
        self.keep(|other| !Arc::ptr_eq(other, range));
    }

    fn keep(&self, keeps: impl Fn(&Arc<Range>) -> bool) {
        self.change(|ranges| {
            let kept: Vec<_> = ranges.iter().filter(|range| keeps(range)).cloned().collect();
            (kept.len() < ranges.len()).then(|| Ranges::of(kept))
        });
    }

    /// Replaces the list by the result of `edit`, unless that is `None`.
    fn change(&self, edit: impl FnOnce(&Ranges) -> Option<Ranges>) {
        let _changing = self.changing.lock();
        let edited = edit(&self.list.load());
        if let Some(ranges) = edited {
            let any = u64::from(!ranges.is_empty());
            self.list.store(Arc::new(ranges));
            // Ordering: under the lock; see the module documentation.
            let changes = self.changes.load(Ordering::Relaxed);
            self.changes.store((changes | 1) + 1 + any, Ordering::Release);
        }
    }

    /// Returns the result of `number`, and the ranges that a reader at it may have to ignore. May
    /// call `number` several times.
    #[inline]
    pub fn pin(&self, number: impl Fn() -> u64) -> (u64, Option<Pinned<Ranges>>) {
        loop {
            let changes = self.changes.load(Ordering::Acquire);
            let pinned = (changes & 1 == 1).then(|| self.list.load());
            let at = number();
            if self.changes.load(Ordering::Acquire) == changes {
                return (at, pinned);
            }
        }
    }

    /// Returns the current list.
    pub fn now(&self) -> Arc<Ranges> {
        self.list.load_full()
    }
}
