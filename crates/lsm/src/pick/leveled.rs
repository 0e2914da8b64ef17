//! Leveled compaction: each level below L0 is one sorted run, larger than the level above it by a
//! fixed factor.
//!
//! In: a [`Tree`]. Out: the most urgent compaction that can start beside the running ones.
//!
//! Order: levels by score; then files marked for compaction, bottommost files whose old entries no
//! snapshot needs, expired files, files due for their periodic rewrite, and files that keep garbage
//! blobs alive.

use super::assemble::{Draft, grandparents_of, output_blocked};
use super::compaction::{Compaction, CompactionReason};
use super::expand::{Grow, with_output_level, with_overlapping_l0};
use super::intra_l0;
use super::marked::{self, Place};
use super::priority;
use super::score::scores;
use super::tree::{Selection, Tree};
use karst_format::options::choice::CompactionPriority;

/// Maximum number of files that move to the next level together; more would overload that level.
const MOST_MOVED: usize = 4;

/// Initial files of a compaction.
#[derive(Clone, Debug)]
struct Start {
    files: Selection,
    output_level: usize,
    reason: CompactionReason,
    score: f64,
    /// True if the files are of L0 and overlap neither each other nor older ones: they move without
    /// a rewrite.
    moves_from_l0: bool,
}

/// Destination of a file that is compacted independently of its level's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Onward {
    /// Its own level.
    Stay,
    /// The next level; files of the deepest level stay on it.
    Next,
    /// The next level; files of the deepest level are not compacted, unless that is L0.
    NextOrNot,
}

pub(crate) fn pick(tree: &Tree<'_>) -> Option<Compaction> {
    let start = start(tree)?;
    complete(tree, start)
}

fn start(tree: &Tree<'_>) -> Option<Start> {
    if let Some(start) = by_score(tree) {
        return Some(start);
    }
    let alone = |places: Vec<Place>, onward, reason| for_its_own_sake(tree, &places, onward, reason);
    let periodic = if tree.options().dynamic_level_bytes() { Onward::Next } else { Onward::Stay };
    marked_by_users(tree)
        .or_else(|| alone(marked::bottommost(tree), Onward::Stay, CompactionReason::BottommostFiles))
        .or_else(|| expired_by_turn(tree))
        .or_else(|| alone(marked::expired(tree), Onward::NextOrNot, CompactionReason::Ttl))
        .or_else(|| alone(marked::periodic(tree), periodic, CompactionReason::PeriodicCompaction))
        .or_else(|| alone(marked::blob_garbage(tree), Onward::Stay, CompactionReason::ForcedBlobGc))
}

fn next_level(tree: &Tree<'_>, level: usize) -> usize {
    if level == 0 { tree.targets.base_level.unwrap_or(1) } else { level + 1 }
}

fn by_score(tree: &Tree<'_>) -> Option<Start> {
    let mut l0_blocked = false;
    for (level, score) in scores(tree).by_urgency {
        if score < 1.0 {
            break;
        }
        if l0_blocked && Some(level) == tree.targets.base_level {
            // Compactions from the base level would keep L0 waiting for it.
            continue;
        }
        let reason =
            if level == 0 { CompactionReason::LevelL0FilesNum } else { CompactionReason::LevelMaxLevelSize };
        let started = |(files, output_level, moves_from_l0)| Start {
            files,
            output_level,
            reason,
            score,
            moves_from_l0,
        };
        if let Some(found) = from_level(tree, level) {
            return Some(started(found));
        }
        if level == 0 {
            l0_blocked = true;
            // L0 may wait for long; fewer files in it keep reads fast and writes from being
            // stopped.
            if let Some(files) = intra_l0::beside_others(tree) {
                return Some(started((files, 0, false)));
            }
        }
    }
    None
}

/// Returns the initial files of `level`, their output level, and true if they move from L0 without
/// a rewrite.
fn from_level(tree: &Tree<'_>, level: usize) -> Option<(Selection, usize, bool)> {
    if level == 0 {
        if tree.context.running.holds_l0() {
            return intra_l0::too_small_for_base(tree).map(|files| (files, 0, false));
        }
        if let Some(files) = l0_files_that_move(tree) {
            return Some((files, next_level(tree, 0), true));
        }
        if let Some(files) = intra_l0::too_small_for_base(tree) {
            return Some((files, 0, false));
        }
    }
    by_priority(tree, level).map(|files| (files, next_level(tree, level), false))
}

fn by_priority(tree: &Tree<'_>, level: usize) -> Option<Selection> {
    let in_turn = tree.options().family.compaction_pri == CompactionPriority::RoundRobin;
    let output_level = next_level(tree, level);
    for index in priority::order(tree, level) {
        let found = startable(tree, level, index, output_level, in_turn);
        // Round robin does not skip a file that has to wait.
        if found.is_some() || in_turn {
            return found;
        }
    }
    None
}

/// Returns the file's clean cut, if neither it nor the files it overlaps on the output level are
/// being compacted.
fn startable(
    tree: &Tree<'_>,
    level: usize,
    index: usize,
    output_level: usize,
    in_turn: bool,
) -> Option<Selection> {
    let one = Selection::of(level, [index]);
    if tree.any_taken(&one) {
        return None;
    }
    let files = tree.free_clean_cut(&one)?;
    let span = tree.span_of(&[&files]);
    if tree.written_to(output_level, span) {
        return None;
    }
    let below = tree.overlapping(output_level, span);
    if below.is_empty() {
        if level > 0 && files.len() == 1 {
            return Some(more_that_move(tree, files, output_level, in_turn));
        }
        return Some(files);
    }
    tree.free_clean_cut(&below).map(|_| files)
}

/// Returns true if files can be expected to move between levels without a rewrite.
fn moves_are_likely(tree: &Tree<'_>) -> bool {
    let options = tree.options();
    options.path_target_sizes.len() <= 1 && options.family.compression_per_level.is_empty()
}

/// Extends a file that overlaps nothing on the next level by neighbours that overlap nothing
/// either.
fn more_that_move(tree: &Tree<'_>, one: Selection, output_level: usize, right_only: bool) -> Selection {
    let level = one.level;
    let files = tree.files(level);
    if !moves_are_likely(tree) {
        return one;
    }
    let (mut start, mut end) = (one.indexes[0], one.indexes[0] + 1);
    let limit = tree.options().family.max_compaction_bytes;
    let mut bytes = files[start].size_bytes;
    // Returns true if the range can grow to include the file at `added`.
    let may_add = |added: usize, range: std::ops::Range<usize>, bytes: u64| {
        let range = Selection::of(level, range);
        !tree.taken(&files[added])
            && range.len() <= MOST_MOVED
            && bytes.saturating_add(files[added].size_bytes) <= limit
            && tree.overlapping(output_level, tree.span_of(&[&range])).is_empty()
            && !tree.written_to(output_level, tree.span_of(&[&range]))
    };
    while end < files.len() && tree.clean_before(level, end + 1) && may_add(end, start..end + 1, bytes) {
        bytes += files[end].size_bytes;
        end += 1;
    }
    while !right_only
        && start > 0
        && tree.clean_before(level, start - 1)
        && may_add(start - 1, start - 1..end, bytes)
    {
        start -= 1;
        bytes += files[start].size_bytes;
    }
    Selection::of(level, start..end)
}

/// Returns the oldest files of L0 that overlap neither each other nor the base level, as a sorted
/// load produces them. They move without a rewrite. `None` if the base level is empty, because then
/// all of L0 is compacted into it anyway.
fn l0_files_that_move(tree: &Tree<'_>) -> Option<Selection> {
    let base = tree.targets.base_level?;
    if !moves_are_likely(tree) || tree.files(base).is_empty() {
        return None;
    }
    let comparator = tree.comparator();
    let files = tree.files(0);
    let mut moved: Vec<usize> = Vec::new();
    for index in (0..files.len()).rev() {
        let file = &files[index];
        if tree.taken(file) {
            break;
        }
        let taken_so_far = Selection::of(0, moved.iter().copied());
        let span = tree.span_of(&[&taken_so_far]);
        let before = span.smallest.is_none_or(|key| comparator.compare_internal(&file.largest, key).is_lt());
        let behind = span.largest.is_none_or(|key| comparator.compare_internal(&file.smallest, key).is_gt());
        if !before && !behind {
            break;
        }
        let grown = Selection::of(0, moved.iter().copied().chain([index]));
        let span = tree.span_of(&[&grown]);
        if !tree.overlapping(base, span).is_empty() || tree.written_to(base, span) {
            break;
        }
        moved.push(index);
    }
    moved.reverse();
    (!moved.is_empty()).then(|| Selection::of(0, moved))
}

fn marked_by_users(tree: &Tree<'_>) -> Option<Start> {
    // Compat: RocksDB begins with a random file; this order is fixed, so that picks are
    // reproducible.
    for (level, index) in marked::by_users(tree) {
        if level == 0 && tree.context.running.holds_l0() {
            continue;
        }
        if let Some(files) = tree.free_clean_cut(&Selection::of(level, [index])) {
            return Some(Start {
                files,
                output_level: next_level(tree, level),
                reason: CompactionReason::FilesMarkedForCompaction,
                score: 0.0,
                moves_from_l0: false,
            });
        }
    }
    None
}

/// Round robin: an expired file triggers a compaction of its level at the cursor.
fn expired_by_turn(tree: &Tree<'_>) -> Option<Start> {
    if tree.options().family.compaction_pri != CompactionPriority::RoundRobin {
        return None;
    }
    let (level, _) = marked::expired(tree).into_iter().next().filter(|(level, _)| *level > 0)?;
    let (files, output_level, moves_from_l0) = from_level(tree, level)?;
    Some(Start { files, output_level, reason: CompactionReason::RoundRobinTtl, score: 0.0, moves_from_l0 })
}

fn for_its_own_sake(
    tree: &Tree<'_>,
    places: &[Place],
    onward: Onward,
    reason: CompactionReason,
) -> Option<Start> {
    let deepest = tree.deepest?.min(tree.last_output_level());
    for &(level, index) in places {
        let blocked = level == 0 && tree.context.running.holds_l0();
        // L0 counts although it may be the deepest level, because it has levels below it, even if
        // they are empty.
        let moves_on = level < deepest || (onward == Onward::NextOrNot && level == 0);
        if blocked || (onward == Onward::NextOrNot && !moves_on) {
            continue;
        }
        let output_level = if onward == Onward::Stay || !moves_on { level } else { next_level(tree, level) };
        if let Some(files) = tree.free_clean_cut(&Selection::of(level, [index])) {
            return Some(Start { files, output_level, reason, score: 0.0, moves_from_l0: false });
        }
    }
    None
}

/// Adds the other inputs and completes the compaction.
fn complete(tree: &Tree<'_>, start: Start) -> Option<Compaction> {
    let Start { mut files, output_level, reason, score, moves_from_l0 } = start;
    if files.level == 0 && output_level != 0 && !moves_from_l0 {
        files = with_overlapping_l0(tree, &files, output_level)?;
    }
    let mut inputs = Vec::with_capacity(2);
    if output_level == 0 || moves_from_l0 {
        inputs.push(tree.input(&files));
    } else {
        let in_turn = tree.options().family.compaction_pri == CompactionPriority::RoundRobin
            && reason == CompactionReason::LevelMaxLevelSize;
        if in_turn {
            files = a_longer_turn(tree, files, output_level);
        }
        let grow = if in_turn { Grow::Right } else { Grow::Both };
        let both = with_output_level(tree, files, output_level, grow)?;
        inputs.push(tree.input(&both.start));
        if !both.output.is_empty() {
            inputs.push(tree.input(&both.output));
        }
    }
    if output_level != 0 && output_blocked(tree, &inputs, output_level) {
        return None;
    }
    let from_l0 = inputs[0].level.0 == 0;
    // Compat: a single file of L0 to which no other was added overlaps none.
    let disjoint = moves_from_l0 || !from_l0 || (inputs.len() == 1 && inputs[0].files.len() == 1);
    let grandparents = if output_level == 0 || moves_from_l0 {
        Vec::new()
    } else {
        grandparents_of(tree, &inputs, output_level)
    };
    let mut draft = Draft::new(tree, inputs, output_level, reason);
    draft.score = score;
    draft.grandparents = grandparents;
    draft.l0_inputs_disjoint = disjoint;
    draft.output_path_id = tree.options().path_of_level(output_level);
    Some(draft.assemble(tree))
}

/// Round robin: adds as many of the following files as bring the level below its target, without
/// wrapping around, and without exceeding the size of a compaction.
fn a_longer_turn(tree: &Tree<'_>, first: Selection, output_level: usize) -> Selection {
    let level = first.level;
    if level == 0 || first.is_empty() {
        return first;
    }
    let files = tree.files(level);
    let free = files
        .iter()
        .filter(|file| !tree.taken(file))
        .fold(0u64, |sum, file| sum.saturating_add(file.size_bytes));
    let surplus = free.saturating_sub(tree.targets.of(level));
    let moves = tree.overlapping(output_level, tree.span_of(&[&first])).is_empty() && first.len() > 1;
    if moves || files[first.indexes[0]].size_bytes >= surplus {
        return first;
    }
    let mut best = first;
    while let Some(&last) = best.indexes.last() {
        let Some(next) = files.get(last + 1) else { break };
        if tree.taken(next) {
            break;
        }
        let longer = Selection::of(level, best.indexes[0]..last + 2);
        let Some(longer) = tree.free_clean_cut(&longer) else { break };
        let span = tree.span_of(&[&longer]);
        let Some(below) = tree.free_clean_cut(&tree.overlapping(output_level, span)) else { break };
        let bytes = tree.selected_bytes(&longer);
        let all = bytes.saturating_add(tree.selected_bytes(&below));
        if tree.written_to(output_level, span) || all > tree.options().family.max_compaction_bytes {
            break;
        }
        best = longer;
        if bytes > surplus {
            break;
        }
    }
    best
}
