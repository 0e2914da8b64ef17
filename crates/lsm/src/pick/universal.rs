//! Universal compaction: few sorted runs, merged with runs adjacent in age when they are of similar
//! size. It writes less than leveled compaction, for more space and more runs per read.
//!
//! In: a [`Tree`]. Out: the compaction that is most needed: all runs when files are old, runs up to
//! the oldest when the newer ones take too much space compared with it, adjacent runs of similar
//! size, adjacent runs of any size when there are too many, or a marked file with the files it
//! overlaps.
//!
//! A sorted run is a file of L0 or a whole level below it. Runs are numbered from the newest; a
//! compaction takes adjacent runs, so that the order by age is kept.
//!
//! Not implemented: `incremental` (compacting a part of the key range at a time): whole runs are
//! merged, as with the option off.

use super::assemble::{Draft, grandparents_of, output_blocked, universal_path};
use super::compaction::{Compaction, CompactionInput, CompactionReason};
use super::expand::{Grow, with_output_level, with_overlapping_l0};
use super::marked;
use super::score::scores;
use super::tree::{Selection, Tree};
use karst_format::options::choice::{CompactionStopStyle, Compression};
use karst_format::options::nested::UniversalOptions;

/// A sorted run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    level: usize,
    /// Index of the file in L0; 0 on other levels.
    l0_index: usize,
    bytes: u64,
    compensated_bytes: u64,
    taken: bool,
}

/// Returns the sorted runs from the newest to the oldest.
pub(crate) fn runs(tree: &Tree<'_>) -> Vec<Run> {
    let l0 = tree.files(0).iter().enumerate().map(|(l0_index, file)| Run {
        level: 0,
        l0_index,
        bytes: file.size_bytes,
        compensated_bytes: tree.compensated_bytes(file),
        taken: tree.taken(file),
    });
    let levels =
        (1..=tree.last_output_level()).filter(|&level| !tree.files(level).is_empty()).map(|level| Run {
            level,
            l0_index: 0,
            bytes: tree.level_bytes(level),
            compensated_bytes: tree.compensated_level_bytes(level, false),
            taken: tree.files(level).iter().any(|file| tree.taken(file)),
        });
    l0.chain(levels).collect()
}

struct Universal<'t, 'a> {
    tree: &'t Tree<'a>,
    options: &'a UniversalOptions,
    runs: Vec<Run>,
    score: f64,
}

pub(crate) fn pick(tree: &Tree<'_>) -> Option<Compaction> {
    let options = &tree.options().family.compaction_options_universal;
    let universal = Universal { tree, options, runs: runs(tree), score: scores(tree).of(0) };
    universal.pick()
}

impl Universal<'_, '_> {
    fn pick(&self) -> Option<Compaction> {
        if self.runs.is_empty() {
            return None;
        }
        if let Some(compaction) = self.periodic() {
            return Some(compaction);
        }
        // Only free runs count: while a large compaction runs, the few runs added meanwhile would
        // be merged two by two, and again with its output.
        if self.score >= 1.0 {
            let found = self
                .for_size_amplification()
                .or_else(|| {
                    self.by_size_ratio(
                        self.options.size_ratio,
                        usize::MAX,
                        CompactionReason::UniversalSizeRatio,
                    )
                })
                .or_else(|| self.for_run_count());
            if found.is_some() {
                return found;
            }
        }
        self.marked()
    }

    /// Compacts all free runs, from the oldest on, if a file has not been rewritten for too long.
    fn periodic(&self) -> Option<Compaction> {
        let due = marked::periodic(self.tree);
        if due.is_empty() {
            return None;
        }
        let start = self.runs.iter().rposition(|run| run.taken).map_or(0, |index| index + 1);
        let last = self.runs.len() - 1;
        if start > last {
            return None;
        }
        if start == last {
            let oldest = self.runs[last];
            let included = |&(level, index): &(usize, usize)| {
                level == oldest.level && (level != 0 || index == oldest.l0_index)
            };
            if !due.iter().any(included) {
                return None;
            }
        }
        self.whole_runs(start, last, CompactionReason::PeriodicCompaction)
    }

    /// Compacts the free runs from the oldest on, if those newer than it take more than
    /// `max_size_amplification_percent` of its size.
    fn for_size_amplification(&self) -> Option<Compaction> {
        let end = self.runs.len() - 1;
        let base = self.runs[end];
        if base.taken {
            return None;
        }
        let mut start = self.runs[..end].iter().rposition(|run| run.taken).map_or(0, |index| index + 1);
        if start == end {
            return None;
        }
        let mut bytes = self.compensated(start, end);
        (start, bytes) = self.without_newest_l0(start, end, bytes);
        if !self.amplifies(bytes, base.bytes) {
            return None;
        }
        self.whole_runs(start, end, CompactionReason::UniversalSizeAmplification)
    }

    fn amplifies(&self, newer: u64, base: u64) -> bool {
        let percent = u128::from(self.options.max_size_amplification_percent);
        u128::from(newer) * 100 >= percent * u128::from(base)
    }

    fn compensated(&self, start: usize, end: usize) -> u64 {
        self.runs[start..end].iter().fold(0, |sum, run| sum.saturating_add(run.compensated_bytes))
    }

    /// Leaves out some of the newest files of L0 if few would remain to be merged until writes
    /// stop, because the compaction will take long and its inputs are not free in the meantime.
    /// Only as many are left out as hardly change its effect.
    fn without_newest_l0(&self, start: usize, end: usize, bytes: u64) -> (usize, u64) {
        let l0_count = self.runs[start..end].iter().filter(|run| run.level == 0).count();
        if l0_count == 0 {
            return (start, bytes);
        }
        let family = &self.tree.options().family;
        let stop = usize::try_from(family.level0_stop_writes_trigger).unwrap_or(0);
        let most = (l0_count - 1).min(end - start - 1);
        // Number of runs that may be added before writes stop.
        let room = stop.saturating_sub(end - start + 1);
        let wanted = |width: u32| (width as usize).saturating_sub(room).min(most);
        let (least, most) = (wanted(self.options.min_merge_width), wanted(self.options.max_merge_width));
        let base = self.runs[end].bytes;
        let (mut excluded, mut left) = (0, bytes);
        for count in least..=most {
            let gone = self.compensated(start + excluded, start + count);
            let rest = left.saturating_sub(gone);
            if !self.amplifies(rest, base) || u128::from(rest) < u128::from(bytes) * 9 / 10 {
                break;
            }
            (excluded, left) = (count, rest);
        }
        (start + excluded, left)
    }

    /// Compacts adjacent runs each of which is not much larger than the newer ones among them
    /// together. `ratio` is in percent.
    fn by_size_ratio(&self, ratio: u32, most: usize, reason: CompactionReason) -> Option<Compaction> {
        let fewest = (self.options.min_merge_width as usize).max(2);
        let most = most.min(self.options.max_merge_width as usize);
        let mut first = 0;
        while first < self.runs.len() {
            if self.runs[first].taken {
                first += 1;
                continue;
            }
            let count = self.similar_from(first, ratio, most);
            if count >= fewest {
                return self.neighbours(first, first + count, reason);
            }
            first += 1;
        }
        None
    }

    /// Returns the number of runs from `first` on that are similar in size.
    fn similar_from(&self, first: usize, ratio: u32, most: usize) -> usize {
        let factor = (100.0 + f64::from(ratio)) / 100.0;
        let mut candidate = self.runs[first].compensated_bytes;
        let mut count = 1;
        for next in &self.runs[first + 1..] {
            if count >= most || next.taken || candidate as f64 * factor < next.bytes as f64 {
                break;
            }
            match self.options.stop_style {
                CompactionStopStyle::SimilarSize => {
                    if (next.bytes as f64) * factor < candidate as f64 {
                        break;
                    }
                    candidate = next.compensated_bytes;
                }
                CompactionStopStyle::TotalSize => {
                    candidate = candidate.saturating_add(next.compensated_bytes)
                }
            }
            count += 1;
        }
        count
    }

    /// Compacts adjacent runs of any size if there are too many, as many as reduce their number to
    /// the limit.
    fn for_run_count(&self) -> Option<Compaction> {
        let free = self.runs.iter().filter(|run| !run.taken).count();
        let most = self.most_runs();
        if free <= most {
            return None;
        }
        self.by_size_ratio(u32::MAX, free - most + 1, CompactionReason::UniversalSortedRunNum)
    }

    /// Returns the maximum number of runs: `max_read_amp`, or, if that is 0 with the stop style
    /// `TotalSize`, the number of runs needed to reach the largest if each is as large as all newer
    /// ones together.
    fn most_runs(&self) -> usize {
        let family = &self.tree.options().family;
        let trigger = usize::try_from(family.level0_file_num_compaction_trigger).unwrap_or(usize::MAX);
        match usize::try_from(self.options.max_read_amp) {
            Ok(0) if self.options.stop_style == CompactionStopStyle::TotalSize => {
                let largest = self.runs.iter().map(|run| run.bytes).max().unwrap_or(0) as f64;
                let factor = (100.0 + f64::from(self.options.size_ratio)) / 100.0;
                let mut level = (family.write_buffer_size as f64).max(1.0);
                let (mut total, mut count) = (0.0, 1);
                while level < largest {
                    total += level;
                    level = factor * total;
                    count += 1;
                }
                count
            }
            Ok(0) | Err(_) => trigger,
            Ok(most) => most,
        }
    }

    /// Compacts the runs from `start` to `after`, exclusive, which were chosen by size.
    fn neighbours(&self, start: usize, after: usize, reason: CompactionReason) -> Option<Compaction> {
        let mut draft = self.draft(start, after, reason)?;
        // The output's path depends on all newer runs too, because it will soon be merged with
        // them.
        let bytes = self.runs[..after].iter().fold(0u64, |sum, run| sum.saturating_add(run.bytes));
        draft.output_path_id = universal_path(self.tree, bytes);
        if !self.compresses(after) {
            draft.compression = Some(Compression::None);
        }
        Some(draft.assemble(self.tree))
    }

    /// Returns true if the output of runs up to `after` is compressed: unless
    /// `compression_size_percent` of the data is older.
    fn compresses(&self, after: usize) -> bool {
        let Ok(percent) = u128::try_from(self.options.compression_size_percent) else { return true };
        let total: u128 = self.runs.iter().map(|run| u128::from(run.compensated_bytes)).sum();
        let older: u128 = self.runs[after..].iter().map(|run| u128::from(run.bytes)).sum();
        after == self.runs.len() || older * 100 < total * percent
    }

    /// Compacts all runs from `start` to `end`, inclusive.
    fn whole_runs(&self, start: usize, end: usize, reason: CompactionReason) -> Option<Compaction> {
        let mut draft = self.draft(start, end + 1, reason)?;
        let bytes = self.runs[start..=end].iter().fold(0u64, |sum, run| sum.saturating_add(run.bytes));
        draft.output_path_id = universal_path(self.tree, bytes);
        Some(draft.assemble(self.tree))
    }

    /// Drafts a merge of the runs from `start` to `after`, exclusive, to the level just above the
    /// next older run.
    fn draft(&self, start: usize, after: usize, reason: CompactionReason) -> Option<Draft> {
        let output_level = match self.runs.get(after) {
            None => self.tree.last_output_level(),
            Some(next) if next.level == 0 => 0,
            Some(next) => next.level - 1,
        };
        let inputs = self.inputs(start, after);
        if output_level != 0 && output_blocked(self.tree, &inputs, output_level) {
            return None;
        }
        let mut draft = Draft::new(self.tree, inputs, output_level, reason);
        draft.score = self.score;
        draft.max_compaction_bytes = u64::MAX;
        Some(draft)
    }

    fn inputs(&self, start: usize, after: usize) -> Vec<CompactionInput> {
        let runs = &self.runs[start..after];
        let l0 = Selection::of(0, runs.iter().filter(|run| run.level == 0).map(|run| run.l0_index));
        let levels = runs.iter().filter(|run| run.level > 0);
        let whole = levels.map(|run| Selection::of(run.level, 0..self.tree.files(run.level).len()));
        let all = std::iter::once(l0).chain(whole).filter(|selection| !selection.is_empty());
        all.map(|selection| self.tree.input(&selection)).collect()
    }

    /// Compacts a marked file with the files it overlaps on the next non-empty level; in a tree of
    /// one level, with all older runs.
    fn marked(&self) -> Option<Compaction> {
        let tree = self.tree;
        let places = marked::by_users(tree);
        if tree.level_count == 1 {
            // The oldest run has no older one to be merged with.
            let &(_, start) = places.iter().find(|(_, index)| index + 1 < self.runs.len())?;
            let taken = self.runs[start + 1..].iter().position(|run| run.taken);
            let after = taken.map_or(self.runs.len(), |count| start + 1 + count);
            if after < start + 2 {
                return None;
            }
            return self.whole_runs(start, after - 1, CompactionReason::FilesMarkedForCompaction);
        }
        for (level, index) in places {
            if level == 0 && tree.context.running.holds_l0() {
                continue;
            }
            if let Some(files) = tree.free_clean_cut(&Selection::of(level, [index])) {
                return self.to_next_level(files);
            }
        }
        None
    }

    fn to_next_level(&self, files: Selection) -> Option<Compaction> {
        let tree = self.tree;
        let last = tree.last_output_level();
        let below = (files.level + 1..=last).find(|&level| !tree.files(level).is_empty());
        // A file of L0 may go to the last level; on deeper levels a move would free nothing.
        let output_level = below.or((files.level == 0).then_some(last))?;
        let mut files = files;
        if files.level == 0 {
            files = with_overlapping_l0(tree, &files, output_level)?;
        }
        let both = with_output_level(tree, files, output_level, Grow::Both)?;
        let selections = [&both.start, &both.output];
        let inputs: Vec<_> =
            selections.into_iter().filter(|files| !files.is_empty()).map(|files| tree.input(files)).collect();
        if output_blocked(tree, &inputs, output_level) {
            return None;
        }
        let mut draft = Draft::new(tree, inputs, output_level, CompactionReason::FilesMarkedForCompaction);
        draft.grandparents = grandparents_of(tree, &draft.inputs, output_level);
        draft.score = self.score;
        draft.max_compaction_bytes = u64::MAX;
        draft.output_path_id = universal_path(tree, tree.level_bytes(output_level));
        Some(draft.assemble(tree))
    }
}
