//! Compaction scores: urgency of each level, and the bytes of compaction due in total.
//!
//! In: a [`Tree`]. Out: [`Scores`] (a level with a score of 1 or more is due; the largest is picked
//! first), the need for compaction ([`needs_compaction`]), and
//! [`estimated_pending_compaction_bytes`], on which write stalls depend.
//!
//! Files that are being compacted do not count, because they are already dealt with.

use super::PickContext;
use super::fifo;
use super::marked;
use super::options::CompactionOptions;
use super::targets::LevelTargets;
use super::tree::Tree;
use crate::version::Version;
use karst_format::options::choice::CompactionStyle;

/// The levels that compactions start from, by urgency.
#[derive(Clone, Debug, PartialEq)]
pub struct Scores {
    /// Level and score, the largest score first.
    pub by_urgency: Vec<(usize, f64)>,
}

impl Scores {
    /// Returns the scores of the context's version.
    pub fn new(context: PickContext<'_>) -> Scores {
        scores(&Tree::new(context))
    }

    /// Returns the score of one level; 0 for a level that no compaction starts from.
    pub fn of(&self, level: usize) -> f64 {
        self.by_urgency.iter().find(|(at, _)| *at == level).map_or(0.0, |(_, score)| *score)
    }

    /// Returns the largest score.
    pub fn largest(&self) -> f64 {
        self.by_urgency.first().map_or(0.0, |(_, score)| *score)
    }
}

pub(crate) fn scores(tree: &Tree<'_>) -> Scores {
    let mut by_urgency = match tree.options().family.compaction_style {
        CompactionStyle::Level => leveled(tree),
        CompactionStyle::Universal => vec![(0, sorted_run_score(tree))],
        CompactionStyle::Fifo => vec![(0, fifo::score(tree))],
        CompactionStyle::None => Vec::new(),
    };
    by_urgency.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    Scores { by_urgency }
}

/// Factor of scores from 1 upwards under dynamic levels, so that such a score can be lowered and
/// still exceed 1.
const SCALE: f64 = 10.0;

fn leveled(tree: &Tree<'_>) -> Vec<(usize, f64)> {
    let mut scores = vec![(0, l0_score(tree))];
    // Bytes that will soon reach the current level from above.
    let mut coming_down = tree.level_bytes(0) as f64;
    for level in 1..tree.last_output_level() {
        scores.push((level, level_score(tree, level, coming_down)));
        let (bytes, target) = (tree.level_bytes(level), tree.targets.of(level));
        if tree.targets.lowest_unnecessary.is_some_and(|lowest| level <= lowest) {
            coming_down += bytes as f64;
        } else {
            coming_down += bytes.saturating_sub(target) as f64;
        }
    }
    scores
}

/// Returns L0's score: by the number of its files, because each is one more file that a read must
/// search; and by its bytes, because data that stays in L0 for long makes large compactions.
fn l0_score(tree: &Tree<'_>) -> f64 {
    let family = &tree.options().family;
    let free = tree.files(0).iter().filter(|file| !tree.taken(file)).count();
    let bytes = tree.compensated_level_bytes(0, true);
    let mut score = free as f64 / f64::from(family.level0_file_num_compaction_trigger);
    if tree.level_count == 1 {
        return score;
    }
    let base_bytes_max = family.max_bytes_for_level_base;
    if !tree.options().dynamic_level_bytes() {
        return score.max(bytes as f64 / base_bytes_max as f64);
    }
    if bytes >= base_bytes_max {
        // These bytes are counted as pending, which may stop writes; so they must be due.
        score = score.max(1.01);
    }
    let base = tree.targets.base_level.unwrap_or(tree.last_output_level());
    let target = tree.targets.of(base);
    if bytes > target {
        // Compared with the base level's actual size, because the base level's own score is divided
        // by its target and the bytes coming down, so that L0 is picked first exactly if it is the
        // larger of the two.
        let base_bytes = tree.compensated_level_bytes(base, false);
        score = score.max(bytes as f64 / base_bytes.max(target) as f64);
    }
    if score > 1.0 { score * SCALE } else { score }
}

fn level_score(tree: &Tree<'_>, level: usize, coming_down: f64) -> f64 {
    let free = tree.compensated_level_bytes(level, true);
    let target = tree.targets.of(level);
    let ratio = free as f64 / target as f64;
    if !tree.options().dynamic_level_bytes() {
        return ratio;
    }
    let mut score = ratio;
    if free >= target {
        // A level that will soon receive much from above is better compacted afterwards, all at
        // once.
        score = free as f64 / (target as f64 + coming_down) * SCALE;
    }
    // Levels that the data does not need are drained, the upper ones first, but after L0.
    if let Some(lowest) = tree.targets.lowest_unnecessary.filter(|lowest| level <= *lowest && free > 0) {
        score = score.max(SCALE * (1.001 + 0.001 * (lowest - level) as f64));
    }
    score
}

/// Universal: returns the number of sorted runs, each file of L0 and each other level being one.
fn sorted_run_score(tree: &Tree<'_>) -> f64 {
    let files = tree.files(0).iter().filter(|file| !tree.taken(file)).count();
    let levels = (1..=tree.last_output_level())
        .filter(|&level| tree.files(level).first().is_some_and(|file| !tree.taken(file)))
        .count();
    (files + levels) as f64 / f64::from(tree.options().family.level0_file_num_compaction_trigger)
}

/// Returns true if there may be a compaction to pick. A pick may still find nothing, if the due
/// files are blocked by running compactions.
pub fn needs_compaction(context: PickContext<'_>) -> bool {
    let tree = Tree::new(context);
    if scores(&tree).largest() >= 1.0 {
        return true;
    }
    match tree.options().family.compaction_style {
        CompactionStyle::Level => {
            !marked::by_users(&tree).is_empty()
                || !marked::bottommost(&tree).is_empty()
                || !marked::expired(&tree).is_empty()
                || !marked::periodic(&tree).is_empty()
                || !marked::blob_garbage(&tree).is_empty()
        }
        CompactionStyle::Universal => {
            !marked::by_users(&tree).is_empty() || !marked::periodic(&tree).is_empty()
        }
        CompactionStyle::Fifo | CompactionStyle::None => false,
    }
}

/// Returns the approximate bytes that compactions must read and write until every level is within
/// its target. 0 unless compaction is leveled. Takes time linear in the number of levels.
pub fn estimated_pending_compaction_bytes(version: &Version, options: &CompactionOptions) -> u64 {
    if options.family.compaction_style != CompactionStyle::Level {
        return 0;
    }
    let targets = LevelTargets::new(version, options);
    let count = targets.max_bytes.len();
    let bytes_of = |level: usize| version.levels().get(level).map_or(0, |files| files.size_bytes());
    let l0_bytes = bytes_of(0);
    let l0_files = version.levels().first().map_or(0, |level| level.len());
    let trigger = options.family.level0_file_num_compaction_trigger;
    let l0_due = i64::try_from(l0_files).unwrap_or(i64::MAX) >= i64::from(trigger)
        || l0_bytes >= options.family.max_bytes_for_level_base;
    let mut pending = if l0_due { l0_bytes } else { 0 };
    // Bytes that a level receives from the one above it.
    let mut coming = pending;
    let base = targets.base_level.unwrap_or(1);
    for level in base..count.saturating_sub(1) {
        let own = bytes_of(level);
        if level == base && l0_due {
            pending = pending.saturating_add(own);
        }
        let bytes = own.saturating_add(coming);
        coming = bytes.saturating_sub(targets.of(level));
        let next = bytes_of(level + 1);
        if coming > 0 && next > 0 {
            // Each byte that moves down is merged with as many bytes of the next level as that
            // level has for one of this level's.
            let fan_out = next as f64 / bytes as f64 + 1.0;
            pending = pending.saturating_add((coming as f64 * fan_out) as u64);
        }
    }
    pending
}
