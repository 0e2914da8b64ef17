//! Ranges of numbers that are there already and do not count yet: whether they do is decided later,
//! each range as a whole, at a number of its own.
//!
//! In: ranges, added before anybody may read at a number in them; later, of each, the number at
//! which it was decided. Out: for a reader, the number it reads at together with the list of ranges
//! that may not count for it: [`PendingRanges::pin`]. A reader keeps the list, and asks it about
//! every number that it meets: [`Ranges::hides`].
//!
//! A list never changes; a change puts another in its place. What changes in a range is one cell:
//! 0, then the number at which it was decided. So a decision costs one store, however many numbers
//! the range has, and whoever has the list sees it.
//!
//! Invariants, which the caller keeps:
//! - A range is added before a number in it, or above it, can be read at.
//! - It is decided at a number that is larger than all that were read at so far, before that number
//!   can be read at.
//! - It is removed ([`PendingRanges::remove_decided`]) only once everybody who comes reads at that
//!   number or above.
//!
//! What follows: `hides(number, at)` of a pinned list is the same whenever it is asked, for as long
//! as the list is kept. Undecided, it hides; decided later, that is at a larger number than `at`.
//!
//! Ordering: `changes` is stored after a new list is. A reader loads `changes`, the list, the
//! number to read at, and `changes` again. If it is the same, no range at or below the number is
//! missing: whoever adds one stores `changes` before the number is published, so who loads the
//! number sees it. If the list lacks a range that was removed, the reader has seen the store of
//! that list, and with it the number that its remover had seen published; so what it loads after
//! that is not below.

pub use crate::sync::Pinned;
use crate::sync::{AtomicU64, Mutex, Ordering, Swap};
use std::sync::Arc;

#[cfg(all(test, not(loom)))]
mod tests;

/// So many decided ranges are worth a copy of the list without them.
const MANY_DECIDED: usize = 16;

/// Most ranges of a list that are copied when another is added.
const NEWER: usize = 128;

/// One range.
#[derive(Debug)]
pub struct Range {
    first: u64,
    /// Behind its last number.
    end: u64,
    /// At which number it was decided; 0 before.
    decided_at: AtomicU64,
}

impl Range {
    /// Says that it counts for whoever reads at `at` or above. What was decided before stays.
    ///
    /// # Panics
    /// When `at` is not behind it.
    pub fn decide(&self, at: u64) {
        assert!(at >= self.end, "a range is decided behind its end");
        let _ = self.decided_at.compare_exchange(0, at, Ordering::AcqRel, Ordering::Acquire);
    }

    fn is_decided(&self, published: u64) -> bool {
        self.decided_at().is_some_and(|at| at <= published)
    }

    /// At which number it was decided, if it was.
    pub fn decided_at(&self) -> Option<u64> {
        Some(self.decided_at.load(Ordering::Acquire)).filter(|at| *at > 0)
    }

    /// Its first number.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Behind its last number.
    pub fn end(&self) -> u64 {
        self.end
    }
}

/// A list of ranges that does not change, in the order of their numbers.
///
/// Why in two parts: a range is added behind all others, as a rule, and while nobody may take a
/// number. Then only the newer part is copied.
#[derive(Debug, Default)]
pub struct Ranges {
    older: Arc<Vec<Arc<Range>>>,
    /// Behind all that are older.
    newer: Vec<Arc<Range>>,
}

impl Ranges {
    fn of(all: Vec<Arc<Range>>) -> Self {
        Self { older: Arc::new(all), newer: Vec::new() }
    }

    /// Whether `number` does not count for whoever pinned this list together with `at`.
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

    /// The first number of the first range.
    #[inline]
    pub fn first(&self) -> Option<u64> {
        self.older.first().or(self.newer.first()).map(|range| range.first)
    }

    /// All of them, ascending.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Range>> {
        self.older.iter().chain(&self.newer)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.older.len() + self.newer.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.older.is_empty() && self.newer.is_empty()
    }
}

/// See the module's head.
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
    /// No range.
    pub fn new() -> Self {
        Self {
            changes: AtomicU64::new(0),
            list: Swap::new(Arc::new(Ranges::default())),
            changing: Mutex::new(()),
        }
    }

    /// Adds the range of `count` numbers from `first` on, undecided. It has none in common with
    /// another. From time to time removes those that were decided at `published` or below.
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

    /// Removes those that were decided at `published` or below; if others stay, only once there are
    /// many, as the list is copied for it, and the next that is added removes them too.
    pub fn remove_decided(&self, published: u64) {
        let now = self.list.load();
        let decided = now.iter().filter(|range| range.is_decided(published)).count();
        if decided < now.len().clamp(1, MANY_DECIDED) {
            return;
        }
        self.keep(|range| !range.is_decided(published));
    }

    /// Removes a range of numbers that nothing has.
    pub fn withdraw(&self, range: &Arc<Range>) {
        self.keep(|other| !Arc::ptr_eq(other, range));
    }

    fn keep(&self, keeps: impl Fn(&Arc<Range>) -> bool) {
        self.change(|ranges| {
            let kept: Vec<_> = ranges.iter().filter(|range| keeps(range)).cloned().collect();
            (kept.len() < ranges.len()).then(|| Ranges::of(kept))
        });
    }

    /// Puts what `edit` makes of the list in its place, if it makes something.
    fn change(&self, edit: impl FnOnce(&Ranges) -> Option<Ranges>) {
        let _changing = self.changing.lock();
        let edited = edit(&self.list.load());
        if let Some(ranges) = edited {
            let any = u64::from(!ranges.is_empty());
            self.list.store(Arc::new(ranges));
            // Ordering: under the lock; see the module's head.
            let changes = self.changes.load(Ordering::Relaxed);
            self.changes.store((changes | 1) + 1 + any, Ordering::Release);
        }
    }

    /// What `number` says, and the ranges that may not count for whoever reads at it. `number` may
    /// be called more than once.
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

    /// The list as it is now.
    pub fn now(&self) -> Arc<Ranges> {
        self.list.load_full()
    }
}
