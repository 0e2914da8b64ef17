//! Manual compaction of a range of keys: `compact_range`.
//!
//! In: a range and [`CompactRangeOptions`]; then, at each step, the current tree. Out: the next
//! compaction to run, or a wait for running ones, until it is done.
//!
//! Leveled: from the first level that has files in the range one level down at a time, each level
//! in pieces of limited size; at the end the deepest level is rewritten if the options request it.
//! Universal: all files at once. FIFO: its regular pick.
//!
//! Invariant: it ends. Each piece begins behind the previous one, levels only increase, and the
//! last pass skips files that were written after it began.
//!
//! Callers: the engine's `compact_range`, which runs a step, installs it, and requests the next.

use super::PickContext;
use super::assemble::{
    BlobGarbageCollection, BlobGarbageCollectionPolicy, Draft, grandparents_of, output_blocked,
};
use super::compact_files::Refused;
use super::compaction::{Compaction, CompactionReason, CompactionWork};
use super::expand::{Grow, with_output_level};
use super::fifo;
use super::tree::{Selection, Span, Tree};
use karst_format::ids::{FileNumber, Level};
use karst_format::key::{InternalKey, SeqNo, ValueType};
use karst_format::options::choice::CompactionStyle;

/// Policy for rewriting the deepest level of the range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum BottommostLevelCompaction {
    /// It is not rewritten.
    Skip,
    /// It is rewritten if there is a compaction filter, which then sees every entry.
    #[default]
    IfHaveCompactionFilter,
    /// It is rewritten, including files that this compaction has written there.
    Force,
    /// It is rewritten, except for files that this compaction has written there.
    ForceOptimized,
}

/// Options for the compaction of a range. RocksDB's names and defaults.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CompactRangeOptions {
    /// True if no other compaction may run at the same time. Default false.
    pub exclusive_manual_compaction: bool,
    /// True if at the end the files of the output level move to another level. Default false.
    pub change_level: bool,
    /// That other level; `None` is the uppermost that is empty and large enough. Default `None`.
    pub target_level: Option<usize>,
    /// Index of the path that outputs are written to. Default 0.
    pub target_path_id: u8,
    /// Policy for rewriting the deepest level. With universal compaction it also decides if a
    /// single table is rewritten or moved to the deepest level.
    pub bottommost_level_compaction: BottommostLevelCompaction,
    /// True if the flush at the start may stall writers; otherwise it waits until it stalls none.
    /// Default false. Handled by the engine.
    pub allow_write_stall: bool,
    /// Maximum number of subcompactions at a time; 0 takes the database's. Default 0.
    pub max_subcompactions: u32,
    /// Policy for moving blobs from old blob files to new ones.
    pub blob_garbage_collection_policy: BlobGarbageCollectionPolicy,
    /// Fraction of the blob files that count as old, 0 to 1; `None` takes the family's. Default
    /// `None`, for which RocksDB has -1.
    pub blob_garbage_collection_age_cutoff: Option<f64>,
    /// In a column family with timestamps: drop the history before this timestamp, as
    /// `Db::increase_full_history_ts_low` does, before the compaction. Unless
    /// `bottommost_level_compaction` is `Skip`, the deepest level is rewritten too, as with
    /// `ForceOptimized`. Default: none.
    pub full_history_ts_low: Option<Vec<u8>>,
}

/// Next step of a manual compaction.
#[derive(Debug)]
pub enum ManualStep {
    /// Run this compaction, install it, and request the next step.
    Run(Box<Compaction>),
    /// Another compaction is in the way: request the step again when one has ended.
    Wait,
    /// Done. The level of the range's data, if there was any.
    Done(Option<Level>),
    /// The compaction cannot be done.
    Refused(Refused),
}

/// State of a range compaction.
#[derive(Clone, Debug)]
pub struct ManualCompaction {
    options: CompactRangeOptions,
    begin: Option<Vec<u8>>,
    end: Option<Vec<u8>>,
    /// Smallest number of files written after the compaction began.
    first_new_file: FileNumber,
    stage: Stage,
}

#[derive(Clone, Debug)]
enum Stage {
    Begin,
    /// Files of `level` are compacted one level down; `from` is the internal key at which the next
    /// piece begins.
    Down {
        level: usize,
        from: Option<Box<[u8]>>,
    },
    /// Files of the deepest level are rewritten.
    Bottom {
        level: usize,
        from: Option<Box<[u8]>>,
    },
    /// The deepest level is rewritten. Files that another compaction has moved further down
    /// meanwhile are next.
    Below {
        level: usize,
    },
    /// Files of the level move to another one.
    Refit {
        level: usize,
    },
    Done(Option<usize>),
}

/// Result of cutting a piece of a level.
enum Piece {
    /// The compaction of the piece, and the key at which the next piece begins, if any.
    Run(Box<Compaction>, Option<Box<[u8]>>),
    /// No file of the level is left in the range.
    Nothing,
    Conflict,
}

impl ManualCompaction {
    /// Returns a compaction of the user keys from `begin` to `end`, both inclusive; `None` is
    /// unbounded. `next_file` is the next file number to be assigned.
    ///
    /// # Errors
    /// If the options contradict the family's.
    pub fn new(
        begin: Option<&[u8]>,
        end: Option<&[u8]>,
        options: CompactRangeOptions,
        family: &super::CompactionOptions,
        next_file: FileNumber,
    ) -> Result<ManualCompaction, Refused> {
        let fifo = family.family.compaction_style == CompactionStyle::Fifo;
        if usize::from(options.target_path_id) >= family.path_target_sizes.len() {
            return Err(Refused::invalid(format!("there is no path {}", options.target_path_id)));
        }
        if options.change_level && fifo {
            return Err(Refused::invalid("FIFO compaction has no levels to change to"));
        }
        if options.target_level.is_some_and(|level| level >= family.level_count()) {
            return Err(Refused::invalid("the target level exceeds the number of levels"));
        }
        if options.change_level
            && options.target_level.is_some_and(|level| Some(level) == family.reserved_level())
        {
            return Err(Refused::invalid("the target level is reserved for files that are ingested behind"));
        }
        let ranged = family.family.compaction_style == CompactionStyle::Level;
        Ok(ManualCompaction {
            options,
            begin: begin.filter(|_| ranged).map(<[u8]>::to_vec),
            end: end.filter(|_| ranged).map(<[u8]>::to_vec),
            first_new_file: next_file,
            stage: Stage::Begin,
        })
    }

    /// Returns the next step on the current tree. Must be called again after a step was installed,
    /// or after a wait.
    pub fn next(&mut self, context: PickContext<'_>) -> ManualStep {
        if self.options.exclusive_manual_compaction && !context.running.is_empty() {
            return ManualStep::Wait;
        }
        let tree = Tree::new(context);
        loop {
            let step = match self.stage.clone() {
                Stage::Begin => self.begin(&tree),
                Stage::Down { level, from } => self.down(&tree, level, from),
                Stage::Bottom { level, from } => self.bottom(&tree, level, from),
                Stage::Below { level } => {
                    self.below(&tree, level);
                    None
                }
                Stage::Refit { level } => self.refit(&tree, level),
                Stage::Done(level) => Some(ManualStep::Done(level.map(|level| Level(level as u8)))),
            };
            if let Some(step) = step {
                return step;
            }
        }
    }

    fn begin(&mut self, tree: &Tree<'_>) -> Option<ManualStep> {
        match tree.options().family.compaction_style {
            CompactionStyle::Level => {
                let bounds = self.bounds(None);
                let first = (0..=tree.last_output_level())
                    .find(|&level| !overlapping(tree, level, bounds.span()).is_empty());
                self.stage = first.map_or(Stage::Done(None), |level| Stage::Down { level, from: None });
                None
            }
            CompactionStyle::Universal => self.everything(tree),
            CompactionStyle::Fifo => {
                let picked = fifo::pick(tree);
                let waits = picked.is_none() && tree.context.running.holds_l0();
                if waits {
                    return Some(ManualStep::Wait);
                }
                self.stage = Stage::Done(Some(0));
                picked.map(|compaction| ManualStep::Run(Box::new(compaction)))
            }
            CompactionStyle::None => {
                self.stage = Stage::Done(None);
                None
            }
        }
    }

    /// Universal: compacts all files into one run.
    fn everything(&mut self, tree: &Tree<'_>) -> Option<ManualStep> {
        let output_level = tree.last_output_level();
        let levels = (0..=output_level).filter(|&level| !tree.files(level).is_empty());
        let all: Vec<Selection> =
            levels.map(|level| Selection::of(level, 0..tree.files(level).len())).collect();
        let Some(first) = all.first() else {
            self.stage = Stage::Done(None);
            return None;
        };
        let taken = all.iter().any(|selection| tree.any_taken(selection));
        if taken || (first.level == 0 && tree.context.running.holds_l0()) {
            return Some(ManualStep::Wait);
        }
        let inputs: Vec<_> = all.iter().map(|selection| tree.input(selection)).collect();
        if output_level != 0 && output_blocked(tree, &inputs, output_level) {
            return Some(ManualStep::Wait);
        }
        let mut draft = self.draft(tree, inputs, output_level);
        draft.max_compaction_bytes = u64::MAX;
        // A single file of L0 would otherwise move to the deepest level, with the entries that the
        // caller wants to drop.
        draft.work = self.rewrites(tree).then_some(CompactionWork::Merge);
        self.stage = self.after(output_level);
        Some(ManualStep::Run(Box::new(draft.assemble(tree))))
    }

    fn down(&mut self, tree: &Tree<'_>, level: usize, from: Option<Box<[u8]>>) -> Option<ManualStep> {
        if level > 0 && is_deepest(tree, level) {
            self.stage = Stage::Bottom { level, from: None };
            return None;
        }
        let output_level = if level == 0 { tree.targets.base_level.unwrap_or(1) } else { level + 1 };
        match self.piece(tree, level, output_level, from.as_deref(), None) {
            Piece::Conflict => Some(ManualStep::Wait),
            Piece::Nothing => {
                self.stage = Stage::Down { level: output_level, from: None };
                None
            }
            Piece::Run(compaction, next) => {
                self.stage = match next {
                    Some(next) => Stage::Down { level, from: Some(next) },
                    None => Stage::Down { level: output_level, from: None },
                };
                Some(ManualStep::Run(compaction))
            }
        }
    }

    fn bottom(&mut self, tree: &Tree<'_>, level: usize, from: Option<Box<[u8]>>) -> Option<ManualStep> {
        if !self.rewrites(tree) {
            self.stage = self.after(level);
            return None;
        }
        let only_old = self.options.bottommost_level_compaction != BottommostLevelCompaction::Force;
        let newest = only_old.then_some(self.first_new_file);
        match self.piece(tree, level, level, from.as_deref(), newest) {
            Piece::Conflict => Some(ManualStep::Wait),
            Piece::Nothing => {
                self.stage = Stage::Below { level };
                None
            }
            Piece::Run(compaction, next) => {
                self.stage = match next {
                    Some(next) => Stage::Bottom { level, from: Some(next) },
                    None => Stage::Below { level },
                };
                Some(ManualStep::Run(compaction))
            }
        }
    }

    /// Returns true if the files of the deepest level are rewritten.
    fn rewrites(&self, tree: &Tree<'_>) -> bool {
        match self.options.bottommost_level_compaction {
            BottommostLevelCompaction::Skip => false,
            BottommostLevelCompaction::IfHaveCompactionFilter => {
                tree.options().has_compaction_filter() || self.options.full_history_ts_low.is_some()
            }
            BottommostLevelCompaction::Force | BottommostLevelCompaction::ForceOptimized => true,
        }
    }

    fn below(&mut self, tree: &Tree<'_>, level: usize) {
        let bounds = self.bounds(None);
        let has_old = |level: &usize| {
            let all = overlapping(tree, *level, bounds.span());
            !first_stretch_below(tree, &all, self.first_new_file).is_empty()
        };
        self.stage = match (level + 1..=tree.last_output_level()).find(has_old) {
            Some(level) => Stage::Bottom { level, from: None },
            None => self.after(level),
        };
    }

    /// Returns the stage that follows once the data is on `level`.
    fn after(&self, level: usize) -> Stage {
        if self.options.change_level { Stage::Refit { level } } else { Stage::Done(Some(level)) }
    }

    /// Returns the compaction of a part of the level's files in the range, from `from` on, limited
    /// to the size of one compaction. With `below_number` only files with smaller numbers are
    /// taken.
    fn piece(
        &self,
        tree: &Tree<'_>,
        level: usize,
        output_level: usize,
        from: Option<&[u8]>,
        below_number: Option<FileNumber>,
    ) -> Piece {
        let bounds = self.bounds(from);
        let all = overlapping(tree, level, bounds.span());
        if all.is_empty() {
            return Piece::Nothing;
        }
        if level == 0 && tree.context.running.holds_l0() {
            return Piece::Conflict;
        }
        let wanted = match below_number {
            Some(number) => first_stretch_below(tree, &all, number),
            None => all.clone(),
        };
        if wanted.is_empty() {
            return Piece::Nothing;
        }
        let part = if level == 0 { wanted } else { not_too_large(tree, &wanted, output_level) };
        // Key at which the files behind this piece begin.
        let next_of = |part: &Selection| {
            let last = part.indexes.last().copied()?;
            all.indexes.contains(&(last + 1)).then(|| tree.files(level)[last + 1].smallest.clone())
        };
        let Some(part) = tree.free_clean_cut(&part) else { return Piece::Conflict };
        let next = if level == 0 { None } else { next_of(&part) };
        let Some(both) = with_output_level(tree, part, output_level, Grow::Both) else {
            return Piece::Conflict;
        };
        let selections = [&both.start, &both.output];
        if selections.iter().any(|selection| tree.any_taken(selection)) {
            return Piece::Conflict;
        }
        let inputs: Vec<_> =
            selections.into_iter().filter(|files| !files.is_empty()).map(|files| tree.input(files)).collect();
        if output_level != 0 && output_blocked(tree, &inputs, output_level) {
            return Piece::Conflict;
        }
        let mut draft = self.draft(tree, inputs, output_level);
        draft.grandparents = grandparents_of(tree, &draft.inputs, output_level);
        Piece::Run(Box::new(draft.assemble(tree)), next)
    }

    fn draft(&self, tree: &Tree<'_>, inputs: Vec<super::CompactionInput>, output_level: usize) -> Draft {
        let mut draft = Draft::new(tree, inputs, output_level, CompactionReason::ManualCompaction);
        draft.output_path_id = self.options.target_path_id;
        draft.max_subcompactions = self.options.max_subcompactions;
        draft.blob_garbage_collection = BlobGarbageCollection {
            policy: self.options.blob_garbage_collection_policy,
            age_cutoff: self.options.blob_garbage_collection_age_cutoff,
        };
        draft
    }

    /// Moves all files of `level` to the target level.
    fn refit(&mut self, tree: &Tree<'_>, level: usize) -> Option<ManualStep> {
        if !tree.context.running.is_empty() {
            return Some(ManualStep::Wait);
        }
        let target = self.options.target_level.unwrap_or_else(|| uppermost_that_fits(tree, level));
        self.stage = Stage::Done(Some(target));
        if target == level || tree.files(level).is_empty() {
            return None;
        }
        if [level, target].map(Some).contains(&tree.reserved_level()) {
            return Some(ManualStep::Refused(Refused::invalid(
                "the last level is reserved for files that are ingested behind",
            )));
        }
        let between = if target > level { level + 1..target + 1 } else { target..level };
        if level == 0 {
            return Some(ManualStep::Refused(Refused::invalid(
                "files of L0 overlap and cannot change their level",
            )));
        }
        if target == 0 && tree.files(level).len() > 1 {
            return Some(ManualStep::Refused(Refused::invalid(
                "more than one file would move to L0, which reduces no level's size",
            )));
        }
        if between.into_iter().any(|level| !tree.files(level).is_empty()) {
            return Some(ManualStep::Refused(Refused::invalid(
                "the levels between the one that was reached and the target are not empty",
            )));
        }
        let files = Selection::of(level, 0..tree.files(level).len());
        let mut draft = Draft::new(tree, vec![tree.input(&files)], target, CompactionReason::RefitLevel);
        draft.work = Some(CompactionWork::Move);
        Some(ManualStep::Run(Box::new(draft.assemble(tree))))
    }

    fn bounds(&self, from: Option<&[u8]>) -> Bounds {
        let key = |user_key: &[u8], seq, kind| InternalKey { user_key, seq, kind }.to_vec();
        let begin = self.begin.as_ref().map(|begin| key(begin, SeqNo::MAX, ValueType::FOR_SEEK));
        Bounds {
            begin: from.map(<[u8]>::to_vec).or(begin),
            end: self.end.as_ref().map(|end| key(end, SeqNo(0), ValueType::Deletion)),
        }
    }
}

/// A range of internal keys that owns its ends.
struct Bounds {
    begin: Option<Vec<u8>>,
    end: Option<Vec<u8>>,
}

impl Bounds {
    fn span(&self) -> Span<'_> {
        Span { smallest: self.begin.as_deref(), largest: self.end.as_deref() }
    }
}

/// Returns the files of any level in the span; on L0 with all files that overlap them.
fn overlapping(tree: &Tree<'_>, level: usize, span: Span<'_>) -> Selection {
    if level == 0 { tree.overlapping_l0(span) } else { tree.overlapping(level, span) }
}

/// Returns true if data of `level` has no level below it to be compacted into.
fn is_deepest(tree: &Tree<'_>, level: usize) -> bool {
    if tree.options().dynamic_level_bytes() {
        return level >= tree.last_output_level();
    }
    tree.deepest.is_none_or(|deepest| level >= deepest.min(tree.last_output_level()))
}

/// Returns the first files of the selection that one compaction can take; at least one.
fn not_too_large(tree: &Tree<'_>, all: &Selection, output_level: usize) -> Selection {
    let limit = tree.options().family.max_compaction_bytes;
    let first = all.indexes[0];
    let mut count = 1;
    while count < all.len() {
        let longer = Selection::of(all.level, first..first + count + 1);
        let own = tree.selected_bytes(&longer);
        let below = tree.overlapping_bytes(output_level, tree.span_of(&[&longer]));
        if own.saturating_add(below) > limit {
            break;
        }
        count += 1;
    }
    Selection::of(all.level, first..first + count)
}

/// Returns the first adjacent files with numbers below the given one.
fn first_stretch_below(tree: &Tree<'_>, part: &Selection, number: FileNumber) -> Selection {
    let files = tree.files(part.level);
    let old = |index: &usize| files[*index].number < number;
    let start = part.indexes.iter().position(old).unwrap_or(part.len());
    let stretch = part.indexes[start..].iter().copied().take_while(|index| old(index));
    Selection::of(part.level, stretch)
}

/// Returns the uppermost level that is empty, as are those between it and `level`, and may hold
/// `level`'s bytes.
fn uppermost_that_fits(tree: &Tree<'_>, level: usize) -> usize {
    let bytes = tree.level_bytes(level);
    let fits = |upper: &usize| tree.files(*upper).is_empty() && tree.targets.of(*upper) >= bytes;
    (1..level).rev().take_while(fits).last().unwrap_or(level)
}
