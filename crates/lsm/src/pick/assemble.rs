//! Completion of a pick: derives all fields of a [`Compaction`] that follow from the inputs and the
//! output level.
//!
//! In: a [`Draft`]. Out: the compaction with its key range, grandparents, compression, cut-offs,
//! and the choice between moving and merging its files.

use super::compaction::{Compaction, CompactionInput, CompactionReason, CompactionWork};
use super::tree::{Span, Tree};
use crate::file::FileMetadata;
use karst_format::ids::{FileNumber, Level};
use karst_format::key::user_key;
use karst_format::options::choice::{CompactionPriority, CompactionStyle, Compression};
use karst_format::version_edit::Temperature;
use std::sync::Arc;

/// Policy for moving blobs out of old blob files in a compaction. RocksDB's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum BlobGarbageCollectionPolicy {
    /// Blobs are moved.
    Force,
    /// Blobs are not moved.
    Disable,
    /// `enable_blob_garbage_collection` decides.
    #[default]
    UseDefault,
}

/// Settings for blobs in old blob files during a compaction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct BlobGarbageCollection {
    pub(crate) policy: BlobGarbageCollectionPolicy,
    /// Fraction of the blob files that count as old; `None` takes the option.
    pub(crate) age_cutoff: Option<f64>,
}

/// A pick before completion.
#[derive(Debug)]
pub(crate) struct Draft {
    /// Inputs by level from the newest; levels without files are omitted on completion.
    pub(crate) inputs: Vec<CompactionInput>,
    pub(crate) output_level: usize,
    pub(crate) output_path_id: u8,
    pub(crate) reason: CompactionReason,
    pub(crate) score: f64,
    pub(crate) target_file_size: u64,
    pub(crate) max_compaction_bytes: u64,
    /// Maximum number of subcompactions; 0 takes the option.
    pub(crate) max_subcompactions: u32,
    pub(crate) grandparents: Vec<Arc<FileMetadata>>,
    /// Compression; `None` chooses by level.
    pub(crate) compression: Option<Compression>,
    pub(crate) blob_garbage_collection: BlobGarbageCollection,
    /// True if the files of L0 among the inputs are known not to overlap.
    pub(crate) l0_inputs_disjoint: bool,
    /// Work done with the inputs; `None` moves them unchanged if possible, and merges them
    /// otherwise.
    pub(crate) work: Option<CompactionWork>,
}

impl Draft {
    /// Returns a draft with the defaults of `tree`'s options for an output on `output_level`.
    pub(crate) fn new(
        tree: &Tree<'_>,
        inputs: Vec<CompactionInput>,
        output_level: usize,
        reason: CompactionReason,
    ) -> Draft {
        Draft {
            inputs,
            output_level,
            output_path_id: 0,
            reason,
            score: -1.0,
            target_file_size: tree.options().target_file_size(output_level, tree.targets.base_level),
            max_compaction_bytes: tree.options().family.max_compaction_bytes,
            max_subcompactions: 0,
            grandparents: Vec::new(),
            compression: None,
            blob_garbage_collection: BlobGarbageCollection::default(),
            l0_inputs_disjoint: false,
            work: None,
        }
    }

    /// Completes the compaction.
    pub(crate) fn assemble(mut self, tree: &Tree<'_>) -> Compaction {
        self.inputs.retain(|input| !input.files.is_empty());
        let options = tree.options();
        let family = &options.family;
        let style = family.compaction_style;
        let span = tree.span(self.inputs.iter().flat_map(|input| &input.files));
        let smallest_user_key: Box<[u8]> = span.smallest.map(user_key).unwrap_or_default().into();
        let largest_user_key: Box<[u8]> = span.largest.map(user_key).unwrap_or_default().into();
        let base = compression_base(tree);
        let compression =
            self.compression.unwrap_or_else(|| options.compression(self.output_level, base, tree.deepest));
        let bottommost = self.is_bottommost(tree, &smallest_user_key, &largest_user_key);
        let moves =
            || if self.moves(tree, compression) { CompactionWork::Move } else { CompactionWork::Merge };
        let work = self.work.unwrap_or_else(moves);
        let loose = !bottommost && !self.grandparents.is_empty();
        let input_files: usize = self.inputs.iter().map(|input| input.files.len()).sum();
        Compaction {
            output_split_key: self.split_key(tree, &smallest_user_key, &largest_user_key),
            next_cursor: self.next_cursor(tree),
            blob_garbage_collection_cutoff: self.blob_cutoff(tree),
            ttl_cuts: if bottommost { Vec::new() } else { self.ttl_cuts(tree) },
            max_subcompactions: self.subcompactions(tree),
            version: Arc::clone(tree.context.version),
            output_level: Level(self.output_level as u8),
            output_path_id: self.output_path_id,
            work,
            reason: self.reason,
            score: self.score,
            target_file_size: self.target_file_size,
            max_output_file_size: self.target_file_size.saturating_mul(if loose { 2 } else { 1 }),
            size_includes_tail: family.target_file_size_is_upper_bound,
            max_compaction_bytes: self.max_compaction_bytes,
            bottommost,
            full: input_files == tree.context.version.file_count(),
            smallest_user_key,
            largest_user_key,
            compression,
            compression_options: options.compression_options(self.output_level, tree.deepest).clone(),
            output_temperature: self.temperature(tree),
            style,
            grandparents: self.grandparents,
            inputs: self.inputs,
        }
    }

    fn start_level(&self) -> usize {
        self.inputs.first().map_or(self.output_level, |input| input.level.index())
    }

    fn is_bottommost(&self, tree: &Tree<'_>, smallest: &[u8], largest: &[u8]) -> bool {
        if self.reason == CompactionReason::RefitLevel {
            return false;
        }
        let last_of_l0 = || {
            let oldest = self.inputs.first()?.files.last()?;
            tree.files(0).iter().position(|file| file.number == oldest.number)
        };
        let l0_index = if self.output_level == 0 { last_of_l0() } else { None };
        !tree.older_data_may_exist(self.output_level, l0_index, smallest, largest)
    }

    /// Returns true if the inputs can move to the output level without a rewrite.
    fn moves(&self, tree: &Tree<'_>, compression: Compression) -> bool {
        let family = &tree.options().family;
        let start = self.start_level();
        if start == self.output_level {
            return false;
        }
        if start == 0 && !self.l0_inputs_disjoint && !tree.l0_disjoint() {
            return false;
        }
        if self.reason == CompactionReason::ManualCompaction && tree.options().has_compaction_filter() {
            // The user wants the filter to see every entry.
            return false;
        }
        if family.compaction_style == CompactionStyle::Universal
            && family.compaction_options_universal.allow_trivial_move
            && self.output_level != 0
        {
            // These two reasons are not moved, because their purpose is to rewrite.
            let rewrites = matches!(
                self.reason,
                CompactionReason::PeriodicCompaction | CompactionReason::ManualCompaction
            );
            return !rewrites && self.inputs_disjoint(tree);
        }
        let [input] = self.inputs.as_slice() else { return false };
        let base = compression_base(tree);
        if tree.options().compression(start, base, tree.deepest) != compression {
            return false;
        }
        let below = self.output_level + 1;
        input.files.iter().all(|file| {
            // A file that overlaps much of the level below would make its next compaction large.
            let overlap =
                if below < tree.level_count { tree.overlapping_bytes(below, tree.span([file])) } else { 0 };
            let fits = below >= tree.level_count
                || file.size_bytes.saturating_add(overlap) <= self.max_compaction_bytes;
            fits && file.path_id == self.output_path_id
        })
    }

    /// Returns true if no two inputs overlap, on any levels.
    fn inputs_disjoint(&self, tree: &Tree<'_>) -> bool {
        let comparator = tree.comparator();
        let mut files: Vec<_> = self.inputs.iter().flat_map(|input| &input.files).collect();
        files.sort_by(|a, b| comparator.compare_internal(&a.smallest, &b.smallest));
        files.windows(2).all(|pair| {
            let [a, b] = pair else { return true };
            comparator.compare_user(a.largest_user_key(), b.smallest_user_key()).is_lt()
        })
    }

    fn subcompactions(&self, tree: &Tree<'_>) -> u32 {
        let most = if self.max_subcompactions == 0 {
            tree.options().max_subcompactions
        } else {
            self.max_subcompactions
        };
        let manual = self.reason == CompactionReason::ManualCompaction;
        let may = match tree.options().family.compaction_style {
            CompactionStyle::Level => (self.start_level() == 0 || manual) && self.output_level > 0,
            CompactionStyle::Universal => tree.level_count > 1 && self.output_level > 0,
            CompactionStyle::Fifo | CompactionStyle::None => false,
        };
        if may { most.max(1) } else { 1 }
    }

    fn temperature(&self, tree: &Tree<'_>) -> Temperature {
        let family = &tree.options().family;
        let last = self.output_level + 1 == tree.level_count;
        let chosen = if last { family.last_level_temperature } else { family.default_write_temperature };
        Temperature::from_number(chosen.number())
    }

    fn blob_cutoff(&self, tree: &Tree<'_>) -> FileNumber {
        let family = &tree.options().family;
        let BlobGarbageCollection { policy, age_cutoff } = self.blob_garbage_collection;
        let collects = match policy {
            BlobGarbageCollectionPolicy::Force => true,
            BlobGarbageCollectionPolicy::Disable => false,
            BlobGarbageCollectionPolicy::UseDefault => family.enable_blob_garbage_collection,
        };
        if !collects {
            return FileNumber(0);
        }
        let cutoff = age_cutoff.unwrap_or(family.blob_garbage_collection_age_cutoff);
        let blob_files = tree.context.version.blob_files();
        let collected = (cutoff * blob_files.len() as f64) as usize;
        blob_files.keys().nth(collected).copied().unwrap_or(FileNumber(u64::MAX))
    }

    /// Returns the inputs of the output level that have reached half of their time to live, unless
    /// they are small.
    fn ttl_cuts(&self, tree: &Tree<'_>) -> Vec<Arc<FileMetadata>> {
        let family = &tree.options().family;
        let leveled = family.compaction_style == CompactionStyle::Level
            && family.compaction_pri == CompactionPriority::MinOverlappingRatio;
        let [_, .., last] = self.inputs.as_slice() else { return Vec::new() };
        if !leveled
            || family.ttl == 0
            || tree.context.now_s < family.ttl
            || last.level.index() != self.output_level
        {
            return Vec::new();
        }
        let half_life = tree.context.now_s - family.ttl / 2;
        let old = |file: &FileMetadata| {
            file.oldest_ancestor_time_s != 0
                && file.oldest_ancestor_time_s < half_life
                && file.size_bytes > family.target_file_size_base / 2
        };
        last.files.iter().filter(|file| old(file)).map(Arc::clone).collect()
    }

    fn split_key(&self, tree: &Tree<'_>, smallest: &[u8], largest: &[u8]) -> Option<Box<[u8]>> {
        if !takes_turns(tree) {
            return None;
        }
        let cursor = tree.context.version.compact_cursors().get(&Level(self.output_level as u8))?;
        let comparator = tree.comparator();
        let within = comparator.compare_user(user_key(cursor), smallest).is_gt()
            && comparator.compare_user(user_key(cursor), largest).is_le();
        within.then(|| cursor.clone())
    }

    fn next_cursor(&self, tree: &Tree<'_>) -> Option<(Level, Box<[u8]>)> {
        let by_turn =
            matches!(self.reason, CompactionReason::LevelMaxLevelSize | CompactionReason::RoundRobinTtl);
        let start = self.start_level();
        if !takes_turns(tree) || !by_turn || start == 0 {
            return None;
        }
        let last = self.inputs.first()?.files.last()?;
        let files = tree.files(start);
        let at = files.iter().position(|file| file.number == last.number)?;
        let next = files.get(at + 1).or(files.first())?;
        Some((Level(start as u8), next.smallest.clone()))
    }
}

fn takes_turns(tree: &Tree<'_>) -> bool {
    let family = &tree.options().family;
    family.compaction_style == CompactionStyle::Level
        && family.compaction_pri == CompactionPriority::RoundRobin
}

/// Returns the level that the second entry of `compression_per_level` applies to.
fn compression_base(tree: &Tree<'_>) -> usize {
    tree.targets.base_level.unwrap_or(1)
}

/// Returns the path that a universal run of `bytes` is written to: one that can hold it, and with
/// the paths before it also the data added until the run is merged again.
pub(crate) fn universal_path(tree: &Tree<'_>, bytes: u64) -> u8 {
    let paths = &tree.options().path_target_sizes;
    let ratio = u64::from(tree.options().family.compaction_options_universal.size_ratio).min(100);
    let future = u128::from(bytes) * u128::from(100 - ratio) / 100;
    let mut before = 0u128;
    for (path, &target) in paths.iter().enumerate().take(paths.len() - 1) {
        if target > bytes && before + u128::from(target - bytes) > future {
            return u8::try_from(path).unwrap_or(u8::MAX);
        }
        before += u128::from(target);
    }
    u8::try_from(paths.len() - 1).unwrap_or(u8::MAX)
}

/// Returns the files that the inputs overlap on the first overlapped level below `output`.
pub(crate) fn grandparents_of(
    tree: &Tree<'_>,
    inputs: &[CompactionInput],
    output: usize,
) -> Vec<Arc<FileMetadata>> {
    let span: Span<'_> = tree.span(inputs.iter().flat_map(|input| &input.files));
    tree.grandparents(output, span)
}

/// Returns true if a running compaction may write to the range that these inputs would be written
/// to.
pub(crate) fn output_blocked(tree: &Tree<'_>, inputs: &[CompactionInput], output: usize) -> bool {
    tree.written_to(output, tree.span(inputs.iter().flat_map(|input| &input.files)))
}
