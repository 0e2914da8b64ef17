//! Manual operations on the files of a range that do not read them: deleting the files within it,
//! and suggesting them for compaction.
//!
//! In: ranges of user keys. Out: a compaction that deletes whole files; or marks on files.

use super::PickContext;
use super::assemble::Draft;
use super::compaction::{Compaction, CompactionInput, CompactionReason, CompactionWork};
use super::tree::{Selection, Tree};
use crate::file::FileMetadata;
use crate::version::Version;
use karst_format::ids::Level;
use karst_format::key::user_key;
use std::cmp::Ordering;
use std::sync::Arc;

/// A range of user keys; `None` is unbounded.
pub type UserKeyRange<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);

/// Returns the deletion of all files that lie within one of the ranges, whose second key is
/// inclusive if `include_end` is set. `None` if no file lies within a range.
///
/// Compat: files of L0 are kept, because deleting newer ones would expose older entries; so are
/// files that are being compacted, and files at the ends of a range that share their last user key
/// with a neighbour outside of it.
pub fn delete_files_in_ranges(
    context: PickContext<'_>,
    ranges: &[UserKeyRange<'_>],
    include_end: bool,
) -> Option<Compaction> {
    let tree = Tree::new(context);
    let mut inputs = Vec::new();
    for level in 1..tree.level_count {
        let files = tree.files(level);
        let mut chosen: Vec<usize> = Vec::new();
        for range in ranges {
            let within = within(&tree, level, *range);
            chosen.extend(within.indexes.iter().filter(|&&at| {
                let ends_range = range.1.is_some_and(|end| {
                    tree.comparator().compare_user(user_key(&files[at].largest), end).is_eq()
                });
                !tree.taken(&files[at]) && (include_end || !ends_range)
            }));
        }
        chosen.sort_unstable();
        chosen.dedup();
        let files: Vec<Arc<FileMetadata>> = chosen.into_iter().map(|at| files[at].clone()).collect();
        if !files.is_empty() {
            inputs.push(CompactionInput { level: Level(level as u8), files });
        }
    }
    let last = inputs.last()?.level.index();
    let mut draft = Draft::new(&tree, inputs, last, CompactionReason::ManualCompaction);
    draft.work = Some(CompactionWork::Delete);
    Some(draft.assemble(&tree))
}

/// Returns the files of a level that lie within the range, and share no user key with a file
/// outside of it.
fn within(tree: &Tree<'_>, level: usize, (begin, end): UserKeyRange<'_>) -> Selection {
    let (files, comparator) = (tree.files(level), tree.comparator());
    let mut first = begin.map_or(0, |begin| {
        files.partition_point(|file| comparator.compare_user(user_key(&file.smallest), begin).is_lt())
    });
    let mut last = end.map_or(files.len(), |end| {
        files.partition_point(|file| comparator.compare_user(user_key(&file.largest), end).is_le())
    });
    while first < last && !tree.clean_before(level, first) {
        first += 1;
    }
    while last > first && !tree.clean_before(level, last) {
        last -= 1;
    }
    Selection::of(level, first..last.max(first))
}

/// Suggests the files that overlap the range, both keys inclusive, for compaction, except for those
/// of the deepest level, which have no level to move to. Returns their number.
pub fn suggest_range(version: &Version, (begin, end): UserKeyRange<'_>) -> usize {
    let comparator = version.comparator();
    let deepest = version.levels().iter().rposition(|level| !level.is_empty()).unwrap_or(0);
    let before = |a: &[u8], b: &[u8]| comparator.compare_user(a, b) == Ordering::Less;
    let overlaps = |file: &FileMetadata| {
        !begin.is_some_and(|begin| before(user_key(&file.largest), begin))
            && !end.is_some_and(|end| before(end, user_key(&file.smallest)))
    };
    let files = version.all_files().filter(|(level, _)| level.index() < deepest);
    let overlapping = files.filter(|(_, file)| overlaps(file));
    overlapping.inspect(|(_, file)| file.suggest_compaction()).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pick::tests::TestTree;

    const TEXT: &str = "num_levels=4;level_compaction_dynamic_level_bytes=false;max_bytes_for_level_base=1G";

    fn tree() -> TestTree {
        let mut tree = TestTree::new(TEXT);
        tree.file(0, "a", "z", 10);
        for (smallest, largest) in [("a", "c"), ("d", "f"), ("g", "i"), ("j", "l")] {
            tree.file(1, smallest, largest, 10);
        }
        tree.file(2, "b", "e", 10);
        tree.file(2, "h", "k", 10);
        tree
    }

    fn deleted(tree: &TestTree, ranges: &[(&str, &str)], include_end: bool) -> Vec<u64> {
        let key = |text: &'static str| (!text.is_empty()).then_some(text.as_bytes());
        let ranges: Vec<_> = ranges
            .iter()
            .map(|(from, to)| (key(from.to_string().leak()), key(to.to_string().leak())))
            .collect();
        let found = tree.with(|context| delete_files_in_ranges(context, &ranges, include_end));
        let found = found.iter().flat_map(|compaction| {
            assert_eq!(compaction.work, CompactionWork::Delete);
            compaction.input_files().map(|(_, file)| file.number.0).collect::<Vec<_>>()
        });
        found.collect()
    }

    #[test]
    fn files_within_a_range_go_but_for_those_of_l0() {
        let tree = tree();
        assert_eq!(deleted(&tree, &[("", "")], true), [2, 3, 4, 5, 6, 7]);
        assert_eq!(deleted(&tree, &[("a", "f")], true), [2, 3, 6]);
        assert_eq!(deleted(&tree, &[("a", "f")], false), [2, 6], "d..f ends with the range");
        assert_eq!(deleted(&tree, &[("b", "f"), ("g", "zz"), ("h", "zz")], true), [3, 4, 5, 6, 7]);
        assert_eq!(deleted(&tree, &[("e", "f"), ("m", "")], true), [0u64; 0]);
    }

    #[test]
    fn suggested_files_are_compacted() {
        tree().with(|context| {
            assert!(crate::pick::pick(context).is_none());
            assert_eq!(suggest_range(context.version, (Some(b"e"), Some(b"g"))), 3, "of L0 and L1");
            let picked = crate::pick::pick(context).unwrap();
            assert_eq!(picked.reason, CompactionReason::FilesMarkedForCompaction);
            let marked = context.version.all_files().filter(|(_, file)| file.is_marked());
            let marked: Vec<u64> = marked.map(|(_, file)| file.number.0).collect();
            assert_eq!(marked, [1, 3, 4]);
        });
    }
}
