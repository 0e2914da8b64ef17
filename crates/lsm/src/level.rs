//! The files of one level, in a layout that is fast to search.
//!
//! In: the level's files in their order (L0 newest first, others by key). Out: the files that may
//! hold a key, or overlap a range. No search allocates.
//!
//! Layout: under the bytewise comparator the level also keeps, in flat arrays, eight bytes of each
//! file's boundaries as big-endian integers, taken behind the prefix that all boundaries of the
//! level share. A search compares the shared prefix once, then adjacent integers, and reads a
//! file's own key only if eight bytes do not decide.
//!
//! Invariant: for two keys that both start with the shared prefix, `a < b` implies
//! `window(a) <= window(b)`; so unequal integers decide the order and equal ones do not.
use crate::file::FileMetadata;
use karst_format::comparator::Comparator;
use karst_format::ids::Level;
use karst_format::key::{SeqNo, ValueType, pack_trailer};
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::{Bound, Range};
use std::sync::Arc;

/// The files of one level of one version. Immutable.
#[derive(Debug)]
pub struct LevelFiles {
    level: Level,
    files: Box<[Arc<FileMetadata>]>,
    windows: Option<Windows>,
    size_bytes: u64,
}

/// Eight bytes of each boundary, behind the prefix that all boundaries share.
#[derive(Debug)]
struct Windows {
    shared_prefix: Box<[u8]>,
    smallest: Box<[u64]>,
    largest: Box<[u64]>,
}

/// Position of a key relative to a level whose boundaries share a prefix.
enum Placed {
    /// Before every boundary, so outside of every file.
    Before,
    /// Behind every boundary, so outside of every file.
    Behind,
    /// The next eight bytes of a key that starts with the shared prefix.
    Window(u64),
}

impl Windows {
    fn new(files: &[Arc<FileMetadata>]) -> Option<Windows> {
        let mut bounds = files.iter().flat_map(|file| [file.smallest_user_key(), file.largest_user_key()]);
        let first = bounds.next()?;
        let shared = bounds.fold(first.len(), |shared, key| shared_len(&first[..shared], key));
        let window_of = |key: &[u8]| window(&key[shared..]);
        Some(Windows {
            shared_prefix: first[..shared].into(),
            smallest: files.iter().map(|file| window_of(file.smallest_user_key())).collect(),
            largest: files.iter().map(|file| window_of(file.largest_user_key())).collect(),
        })
    }

    #[inline]
    fn place(&self, user_key: &[u8]) -> Placed {
        let shared = self.shared_prefix.len();
        if user_key.len() >= shared && user_key[..shared] == *self.shared_prefix {
            return Placed::Window(window(&user_key[shared..]));
        }
        // Invariant: every boundary starts with the shared prefix, and the key does not, so one
        // comparison with the prefix orders the key against all of them.
        if user_key < &*self.shared_prefix { Placed::Before } else { Placed::Behind }
    }
}

fn shared_len(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Returns the first eight bytes as a big-endian integer, a short key padded with zeros.
#[inline]
fn window(key: &[u8]) -> u64 {
    match key.first_chunk::<8>() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 8];
            bytes[..key.len()].copy_from_slice(key);
            u64::from_be_bytes(bytes)
        }
    }
}

/// Returns the trailer that sorts before every entry of a user key that is visible at `seq`.
#[inline]
pub(crate) fn seek_trailer(seq: SeqNo) -> u64 {
    pack_trailer(seq, ValueType::FOR_SEEK)
}

impl LevelFiles {
    /// Takes the files of `level`, which must be in the level's order: newest first on L0, by
    /// smallest key elsewhere.
    ///
    /// The order is not checked here; [`VersionBuilder`](crate::VersionBuilder) establishes and
    /// checks it.
    pub fn new(level: Level, files: Vec<Arc<FileMetadata>>, comparator: &Comparator) -> LevelFiles {
        let windows = match comparator {
            Comparator::Bytewise => Windows::new(&files),
            _ => None,
        };
        let size_bytes = files.iter().fold(0u64, |sum, file| sum.saturating_add(file.size_bytes));
        LevelFiles { level, files: files.into(), windows, size_bytes }
    }

    /// Returns the level's number.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Returns the files in the level's order.
    #[inline]
    pub fn files(&self) -> &[Arc<FileMetadata>] {
        &self.files
    }

    /// Returns the number of files.
    #[inline]
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Returns true if the level has no file.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Returns the size of all files together, in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Returns true if files may overlap each other, in which case they are ordered by age and not
    /// by key.
    #[inline]
    pub fn overlapping_files(&self) -> bool {
        self.level.0 == 0
    }

    /// Returns, on a level sorted by key, the index of the first file whose largest internal key is
    /// at or behind (`user_key`, `trailer`), or `len()`.
    ///
    /// Iterators seek with it: the file found is the first that can hold an entry at or behind the
    /// key.
    #[inline]
    pub fn seek(&self, comparator: &Comparator, user_key: &[u8], trailer: u64) -> usize {
        debug_assert!(!self.overlapping_files(), "L0 is ordered by age");
        let Some(windows) = &self.windows else {
            return self.files.partition_point(|file| ends_before(comparator, file, user_key, trailer));
        };
        let window = match windows.place(user_key) {
            Placed::Before => return 0,
            Placed::Behind => return self.files.len(),
            Placed::Window(window) => window,
        };
        let first = windows.largest.partition_point(|&largest| largest < window);
        // Most searches stop here: the next window is larger, or the level has no further one.
        if windows.largest.get(first).is_none_or(|&largest| largest > window) {
            return first;
        }
        let undecided = windows.largest[first..].partition_point(|&largest| largest == window);
        let equal = &self.files[first..first + undecided];
        first + equal.partition_point(|file| ends_before(&Comparator::Bytewise, file, user_key, trailer))
    }

    /// Returns, on a level sorted by key, the first file that may hold an entry of `user_key` at or
    /// behind `trailer`, and true if the file ends with the user key, so that the next file may
    /// hold more of it.
    ///
    /// Faster than `seek` and `contains`, because for nearly every key it reads only the flat
    /// arrays. A file's own keys are two cache misses away, and a lookup calls this once a level.
    #[inline]
    pub fn find(&self, comparator: &Comparator, user_key: &[u8], trailer: u64) -> Option<(usize, bool)> {
        debug_assert!(!self.overlapping_files(), "L0 is ordered by age");
        if let Some(windows) = &self.windows {
            let Placed::Window(window) = windows.place(user_key) else { return None };
            let index = windows.largest.partition_point(|&largest| largest < window);
            if *windows.largest.get(index)? > window {
                return match window.cmp(&windows.smallest[index]) {
                    Ordering::Less => None,
                    Ordering::Greater => Some((index, false)),
                    Ordering::Equal => {
                        (user_key >= self.files[index].smallest_user_key()).then_some((index, false))
                    }
                };
            }
        }
        self.find_by_keys(comparator, user_key, trailer)
    }

    fn find_by_keys(&self, comparator: &Comparator, user_key: &[u8], trailer: u64) -> Option<(usize, bool)> {
        let index = self.seek(comparator, user_key, trailer);
        let file = self.files.get(index)?;
        if comparator.compare_user(user_key, file.smallest_user_key()) == Ordering::Less {
            return None;
        }
        let ends = comparator.compare_user(user_key, file.largest_user_key()) == Ordering::Equal;
        Some((index, ends))
    }

    /// Returns true if `user_key` lies within the boundaries of the file at `index`, both
    /// inclusive.
    #[inline]
    pub fn contains(&self, comparator: &Comparator, index: usize, user_key: &[u8]) -> bool {
        if let Some(windows) = &self.windows {
            let Placed::Window(window) = windows.place(user_key) else { return false };
            let (smallest, largest) = (windows.smallest[index], windows.largest[index]);
            if window < smallest || window > largest {
                return false;
            }
            if window > smallest && window < largest {
                return true;
            }
            let file = &self.files[index];
            return user_key >= file.smallest_user_key() && user_key <= file.largest_user_key();
        }
        let file = &self.files[index];
        comparator.compare_user(user_key, file.smallest_user_key()) != Ordering::Less
            && comparator.compare_user(user_key, file.largest_user_key()) != Ordering::Greater
    }

    /// Returns the indexes of the files that may overlap the range of user keys. On L0 these are
    /// all files, since they are ordered by age; filter them with [`overlaps`](Self::overlaps).
    pub fn overlapping(
        &self,
        comparator: &Comparator,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
    ) -> Range<usize> {
        if self.overlapping_files() {
            return 0..self.files.len();
        }
        let start = match lower {
            Bound::Unbounded => 0,
            // The largest trailer sorts before every entry of the key.
            Bound::Included(key) => self.seek(comparator, key, u64::MAX),
            Bound::Excluded(key) => self.files.partition_point(|file| {
                comparator.compare_user(file.largest_user_key(), key) != Ordering::Greater
            }),
        };
        let end = self.files.partition_point(|file| starts_within(comparator, file, upper));
        start..end.max(start)
    }

    /// Returns true if the file at `index` may overlap the range of user keys.
    pub fn overlaps(
        &self,
        comparator: &Comparator,
        index: usize,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
    ) -> bool {
        let file = &self.files[index];
        let ends = comparator_allows(comparator, file.largest_user_key(), lower, Ordering::Less);
        ends && starts_within(comparator, file, upper)
    }
}

/// Returns the indexes of the files that overlap a range of user keys, of those that overlap one of
/// them, and so on. `ends` returns the smallest and the largest key of each of `count` files; both
/// ends of the range are inclusive, and `None` is unbounded.
pub fn overlapping_in_turn<'k>(
    comparator: &Comparator,
    count: usize,
    ends: impl Fn(usize) -> (&'k [u8], &'k [u8]),
    (mut smallest, mut largest): (Option<&'k [u8]>, Option<&'k [u8]>),
) -> BTreeSet<usize> {
    let mut left: BTreeSet<usize> = (0..count).collect();
    let mut found = BTreeSet::new();
    loop {
        let before = found.len();
        left.retain(|&index| {
            let (from, to) = ends(index);
            if !overlap(comparator, (from, to), (smallest, largest)) {
                return true;
            }
            if smallest.is_some_and(|key| comparator.compare_user(from, key).is_lt()) {
                smallest = Some(from);
            }
            if largest.is_some_and(|key| comparator.compare_user(to, key).is_gt()) {
                largest = Some(to);
            }
            found.insert(index);
            false
        });
        if found.len() == before {
            return found;
        }
    }
}

/// Returns true if a file with these smallest and largest user keys overlaps a range; all ends are
/// inclusive, and `None` is unbounded.
pub fn overlap(
    comparator: &Comparator,
    (from, to): (&[u8], &[u8]),
    (smallest, largest): (Option<&[u8]>, Option<&[u8]>),
) -> bool {
    !smallest.is_some_and(|key| comparator.compare_user(to, key).is_lt())
        && !largest.is_some_and(|key| comparator.compare_user(from, key).is_gt())
}

/// Returns true if the file's largest internal key sorts before (`user_key`, `trailer`).
#[inline]
fn ends_before(comparator: &Comparator, file: &FileMetadata, user_key: &[u8], trailer: u64) -> bool {
    match comparator.compare_with_timestamps(file.largest_user_key(), user_key) {
        Ordering::Less => true,
        Ordering::Greater => false,
        // Greater trailers sort first.
        Ordering::Equal => file.largest_trailer() > trailer,
    }
}

fn starts_within(comparator: &Comparator, file: &FileMetadata, upper: Bound<&[u8]>) -> bool {
    comparator_allows(comparator, file.smallest_user_key(), upper, Ordering::Greater)
}

/// Returns true if `key` is not on the `outside` of `bound`.
fn comparator_allows(comparator: &Comparator, key: &[u8], bound: Bound<&[u8]>, outside: Ordering) -> bool {
    match bound {
        Bound::Unbounded => true,
        Bound::Included(bound) => comparator.compare_user(key, bound) != outside,
        Bound::Excluded(bound) => {
            let order = comparator.compare_user(key, bound);
            order != outside && order != Ordering::Equal
        }
    }
}
