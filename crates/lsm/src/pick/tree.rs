//! View of a version for the pickers: its files, the running compactions' inputs, and ranges of
//! keys over them.
//!
//! In: a [`PickContext`]. Out: [`Tree`], which finds the files that overlap a range, clean cuts,
//! and the sizes of files for scores.
//!
//! Boundaries are compared as in RocksDB (`boundary_order`): by user key, and a file that ends with
//! the end of a range tombstone ends before the entries of that user key. Files that otherwise
//! share a user key must be compacted together, because an old entry of the key could else end up
//! above a newer one.

use super::PickContext;
use super::compaction::CompactionInput;
use super::options::CompactionOptions;
use super::targets::LevelTargets;
use crate::file::FileMetadata;
use crate::level::overlapping_in_turn;
use karst_format::comparator::Comparator;
use karst_format::ids::Level;
use karst_format::key::{RANGE_TOMBSTONE_SENTINEL, split, user_key};
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

/// A version with the derived values that picks use repeatedly.
#[derive(Clone, Debug)]
pub(crate) struct Tree<'a> {
    pub(crate) context: PickContext<'a>,
    pub(crate) targets: LevelTargets,
    /// Number of levels of the tree, empty ones included.
    pub(crate) level_count: usize,
    /// The deepest level that has files.
    pub(crate) deepest: Option<usize>,
    /// Average stored bytes of a value in the files; 0 if unknown.
    average_value_bytes: u64,
}

/// A range of internal keys, both ends inclusive; `None` is unbounded.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Span<'k> {
    pub(crate) smallest: Option<&'k [u8]>,
    pub(crate) largest: Option<&'k [u8]>,
}

/// Files of one level, by their indexes in it, ascending. On levels other than L0 they are
/// adjacent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selection {
    pub(crate) level: usize,
    pub(crate) indexes: Vec<usize>,
}

impl Selection {
    pub(crate) fn of(level: usize, indexes: impl IntoIterator<Item = usize>) -> Selection {
        Selection { level, indexes: indexes.into_iter().collect() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.indexes.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.indexes.len()
    }
}

/// Returns the order of two boundaries: by user key, and at equal user keys the end of a range
/// tombstone sorts first.
pub(crate) fn boundary_order(comparator: &Comparator, a: &[u8], b: &[u8]) -> Ordering {
    let ((user_a, trailer_a), (user_b, trailer_b)) = (split(a), split(b));
    let sentinel = |trailer: u64| trailer == RANGE_TOMBSTONE_SENTINEL;
    comparator.compare_user(user_a, user_b).then_with(|| sentinel(trailer_b).cmp(&sentinel(trailer_a)))
}

impl<'a> Tree<'a> {
    pub(crate) fn new(context: PickContext<'a>) -> Tree<'a> {
        let version = context.version;
        let level_count = version.levels().len().max(context.options.level_count());
        let deepest = version.levels().iter().rposition(|level| !level.is_empty());
        Tree {
            context,
            targets: LevelTargets::new(version, context.options),
            level_count,
            deepest,
            average_value_bytes: average_value_bytes(context.version.all_files().map(|(_, file)| file)),
        }
    }

    pub(crate) fn options(&self) -> &'a CompactionOptions {
        self.context.options
    }

    pub(crate) fn comparator(&self) -> &'a Comparator {
        self.context.version.comparator()
    }

    pub(crate) fn files(&self, level: usize) -> &'a [Arc<FileMetadata>] {
        let levels = self.context.version.levels();
        levels.get(level).map_or(&[], |level| level.files())
    }

    pub(crate) fn level_bytes(&self, level: usize) -> u64 {
        self.context.version.levels().get(level).map_or(0, |level| level.size_bytes())
    }

    /// Returns the level that is reserved for files that are ingested behind all others. No
    /// compaction reads from it or writes to it.
    pub(crate) fn reserved_level(&self) -> Option<usize> {
        self.options().reserved_of(self.level_count)
    }

    /// Returns the last level that compactions may read from or write to.
    pub(crate) fn last_output_level(&self) -> usize {
        self.level_count - 1 - usize::from(self.reserved_level().is_some())
    }

    /// Returns true if the file is an input of a running compaction.
    pub(crate) fn taken(&self, file: &FileMetadata) -> bool {
        self.context.running.holds(file)
    }

    pub(crate) fn any_taken(&self, selection: &Selection) -> bool {
        self.selected(selection).any(|file| self.taken(file))
    }

    pub(crate) fn selected<'s>(
        &self,
        selection: &'s Selection,
    ) -> impl Iterator<Item = &'a Arc<FileMetadata>> + use<'a, 's> {
        let files = self.files(selection.level);
        selection.indexes.iter().map(move |&index| &files[index])
    }

    pub(crate) fn selected_bytes(&self, selection: &Selection) -> u64 {
        self.selected(selection).fold(0, |sum, file| sum.saturating_add(file.size_bytes))
    }

    pub(crate) fn input(&self, selection: &Selection) -> CompactionInput {
        CompactionInput {
            level: Level(selection.level as u8),
            files: self.selected(selection).map(Arc::clone).collect(),
        }
    }

    /// Returns the span from the smallest to the largest boundary of the files; unbounded without
    /// files.
    pub(crate) fn span<'f>(&self, files: impl IntoIterator<Item = &'f Arc<FileMetadata>>) -> Span<'f> {
        let comparator = self.comparator();
        let mut span = Span::default();
        for file in files {
            if span.smallest.is_none_or(|key| comparator.compare_internal(&file.smallest, key).is_lt()) {
                span.smallest = Some(&file.smallest);
            }
            if span.largest.is_none_or(|key| comparator.compare_internal(&file.largest, key).is_gt()) {
                span.largest = Some(&file.largest);
            }
        }
        span
    }

    pub(crate) fn span_of(&self, selections: &[&Selection]) -> Span<'a> {
        self.span(selections.iter().flat_map(|selection| self.selected(selection)))
    }

    /// Returns the files of a level sorted by key that overlap the span.
    pub(crate) fn overlapping(&self, level: usize, span: Span<'_>) -> Selection {
        let files = self.files(level);
        let comparator = self.comparator();
        let start = span.smallest.map_or(0, |key| {
            files.partition_point(|file| boundary_order(comparator, &file.largest, key).is_lt())
        });
        let end = span.largest.map_or(files.len(), |key| {
            files.partition_point(|file| boundary_order(comparator, &file.smallest, key).is_le())
        });
        Selection::of(level, start..end.max(start))
    }

    pub(crate) fn overlapping_bytes(&self, level: usize, span: Span<'_>) -> u64 {
        let overlapping = self.overlapping(level, span);
        self.selected_bytes(&overlapping)
    }

    /// Returns the files of L0 that overlap the span, those that overlap one of them, and so on.
    pub(crate) fn overlapping_l0(&self, span: Span<'_>) -> Selection {
        let files = self.files(0);
        let ends = |at: usize| (files[at].smallest_user_key(), files[at].largest_user_key());
        let range = (span.smallest.map(user_key), span.largest.map(user_key));
        Selection::of(0, overlapping_in_turn(self.comparator(), files.len(), ends, range))
    }

    /// Adds the neighbours that share a user key with the selection's ends. L0 needs none, because
    /// its files are chosen by overlap.
    pub(crate) fn clean_cut(&self, selection: &Selection) -> Selection {
        let (Some(&first), Some(&last)) = (selection.indexes.first(), selection.indexes.last()) else {
            return selection.clone();
        };
        if selection.level == 0 {
            return selection.clone();
        }
        let range = self.widened(selection.level, first..last + 1);
        Selection::of(selection.level, range)
    }

    fn widened(&self, level: usize, range: Range<usize>) -> Range<usize> {
        let Range { mut start, mut end } = range;
        while start > 0 && !self.clean_before(level, start) {
            start -= 1;
        }
        while end < self.files(level).len() && !self.clean_before(level, end) {
            end += 1;
        }
        start..end
    }

    /// Returns true if the file at `index` of a sorted level shares no user key with the previous
    /// one.
    pub(crate) fn clean_before(&self, level: usize, index: usize) -> bool {
        let files = self.files(level);
        index == 0
            || index >= files.len()
            || boundary_order(self.comparator(), &files[index - 1].largest, &files[index].smallest).is_ne()
    }

    /// Returns the clean cut around the selection, or `None` if one of its files is an input of a
    /// running compaction.
    pub(crate) fn free_clean_cut(&self, selection: &Selection) -> Option<Selection> {
        let cut = self.clean_cut(selection);
        (!self.any_taken(&cut)).then_some(cut)
    }

    /// Returns the largest clean cut of a sorted level that lies within the span.
    pub(crate) fn clean_within(&self, level: usize, span: Span<'_>) -> Selection {
        let files = self.files(level);
        let comparator = self.comparator();
        let mut start = span.smallest.map_or(0, |key| {
            files.partition_point(|file| boundary_order(comparator, &file.smallest, key).is_lt())
        });
        let mut end = span.largest.map_or(files.len(), |key| {
            files.partition_point(|file| boundary_order(comparator, &file.largest, key).is_le())
        });
        while start < end && !self.clean_before(level, start) {
            start += 1;
        }
        while end > start && !self.clean_before(level, end) {
            end -= 1;
        }
        Selection::of(level, start..end.max(start))
    }

    /// Returns true if a running compaction may write into the span on `level`.
    pub(crate) fn written_to(&self, level: usize, span: Span<'_>) -> bool {
        let (Some(smallest), Some(largest)) = (span.smallest, span.largest) else { return false };
        let level = Level(level as u8);
        self.context.running.writes_to(self.comparator(), level, user_key(smallest), user_key(largest))
    }

    /// Returns the files that the span overlaps on the first overlapped level below `output`.
    pub(crate) fn grandparents(&self, output: usize, span: Span<'_>) -> Vec<Arc<FileMetadata>> {
        let below = (output + 1..self.level_count).map(|level| self.overlapping(level, span));
        let first = below.into_iter().find(|selection| !selection.is_empty());
        first.map_or(Vec::new(), |selection| self.selected(&selection).map(Arc::clone).collect())
    }

    /// Returns a file's size plus a surcharge for the space that its deletions will free.
    pub(crate) fn compensated_bytes(&self, file: &FileMetadata) -> u64 {
        // Twice, because a deletion frees itself and the value it deletes.
        const DELETION_WEIGHT: u64 = 2;
        let counts = file.counts().copied().unwrap_or_default();
        let deletions = counts.deletions.saturating_sub(counts.range_deletions).saturating_mul(2);
        // Only the surplus counts, because a steady workload deletes about as much as it puts, and
        // its tree should keep its shape.
        let surplus = deletions.saturating_sub(counts.entries);
        let freed = surplus.saturating_mul(self.average_value_bytes).saturating_mul(DELETION_WEIGHT);
        file.size_bytes.saturating_add(freed).saturating_add(file.compensated_range_deletion_bytes)
    }

    pub(crate) fn compensated_level_bytes(&self, level: usize, free_only: bool) -> u64 {
        let files = self.files(level).iter().filter(|file| !free_only || !self.taken(file));
        files.fold(0, |sum, file| sum.saturating_add(self.compensated_bytes(file)))
    }

    /// Returns true if no two files of L0 overlap.
    pub(crate) fn l0_disjoint(&self) -> bool {
        let comparator = self.comparator();
        let mut files: Vec<_> = self.files(0).iter().collect();
        files.sort_by(|a, b| comparator.compare_internal(&a.smallest, &b.smallest));
        files.windows(2).all(|pair| {
            let [a, b] = pair else { return true };
            comparator.compare_internal(&a.largest, &b.smallest).is_lt()
        })
    }

    /// Returns true if data older than that of `level` (on L0: of its files up to `l0_index`) may
    /// lie in the range of user keys.
    pub(crate) fn older_data_may_exist(
        &self,
        level: usize,
        l0_index: Option<usize>,
        smallest: &[u8],
        largest: &[u8],
    ) -> bool {
        if level == 0 && l0_index.is_none_or(|index| index + 1 != self.files(0).len()) {
            return true;
        }
        (level + 1..self.level_count).any(|below| {
            let comparator = self.comparator();
            let files = self.files(below);
            if level == 0 || files.is_empty() {
                return !files.is_empty();
            }
            let from = files
                .partition_point(|file| comparator.compare_user(file.largest_user_key(), smallest).is_lt());
            files
                .get(from)
                .is_some_and(|file| comparator.compare_user(file.smallest_user_key(), largest).is_le())
        })
    }
}

/// Returns the average stored bytes of a value, computed from the files whose counts are known.
fn average_value_bytes<'f>(files: impl Iterator<Item = &'f Arc<FileMetadata>>) -> u64 {
    let (mut file_bytes, mut key_bytes, mut value_bytes, mut puts) = (0u128, 0u128, 0u128, 0u128);
    for file in files {
        let Some(counts) = file.counts() else { continue };
        file_bytes += u128::from(file.size_bytes);
        key_bytes += u128::from(counts.raw_key_bytes);
        value_bytes += u128::from(counts.raw_value_bytes);
        puts += u128::from(counts.entries.saturating_sub(counts.deletions));
    }
    if puts == 0 || file_bytes == 0 {
        return 0;
    }
    let average = value_bytes / puts * file_bytes / (key_bytes + value_bytes).max(1);
    u64::try_from(average).unwrap_or(u64::MAX)
}
