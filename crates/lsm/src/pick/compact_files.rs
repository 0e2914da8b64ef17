//! Manual compaction of named files: `compact_files`.
//!
//! In: file numbers and an output level. Out: a compaction of these files and of those that must be
//! compacted with them: neighbours that share a user key, older files of L0, and all overlapping
//! files on the levels down to the output.

use super::PickContext;
use super::assemble::{Draft, output_blocked};
use super::compaction::{Compaction, CompactionReason, CompactionWork};
use super::tree::{Selection, Tree};
use crate::file::FileMetadata;
use karst_format::ids::FileNumber;
use karst_format::options::choice::{CompactionStyle, Compression};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// Reason for which a manual compaction cannot run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The reason, for people.
    pub why: String,
    /// True if running compactions are in the way, so that a later attempt may succeed.
    pub busy: bool,
}

impl Refused {
    pub(crate) fn invalid(why: impl Into<String>) -> Refused {
        Refused { why: why.into(), busy: false }
    }

    fn busy(why: impl Into<String>) -> Refused {
        Refused { why: why.into(), busy: true }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for Refused {}

/// Options for the compaction of named files. RocksDB's `CompactionOptions`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactFilesOptions {
    /// Compression of the outputs; `Disable` chooses as for any compaction. Default `Disable`.
    pub compression: Compression,
    /// Size in bytes at which outputs are cut. Default: no limit.
    pub output_file_size_limit: u64,
    /// Maximum number of subcompactions at a time; 0 takes the database's. Default 0.
    pub max_subcompactions: u32,
    /// Index of the path that outputs are written to. Default 0.
    pub output_path_id: u8,
    /// True if files may move without a rewrite where possible. Default false.
    pub allow_trivial_move: bool,
}

impl Default for CompactFilesOptions {
    fn default() -> CompactFilesOptions {
        CompactFilesOptions {
            compression: Compression::Disable,
            output_file_size_limit: u64::MAX,
            max_subcompactions: 0,
            output_path_id: 0,
            allow_trivial_move: false,
        }
    }
}

/// Returns a compaction of these files, and of those that must be compacted with them, to
/// `output_level`.
///
/// # Errors
/// [`Refused`] when a file is not in the tree or is below the output level, when the tree cannot
/// have that level, or when a running compaction is in the way.
pub fn compact_files(
    context: PickContext<'_>,
    files: &[FileNumber],
    output_level: usize,
    options: &CompactFilesOptions,
) -> Result<Compaction, Refused> {
    let tree = Tree::new(context);
    let deepest_allowed = match tree.options().family.compaction_style {
        CompactionStyle::Fifo => 0,
        // The deepest level may be reserved for files ingested behind all others.
        _ => tree.last_output_level(),
    };
    if output_level > deepest_allowed {
        return Err(Refused::invalid(format!(
            "the output level is {output_level}, which exceeds {deepest_allowed}"
        )));
    }
    if usize::from(options.output_path_id) >= tree.options().path_target_sizes.len() {
        return Err(Refused::invalid(format!("there is no path {}", options.output_path_id)));
    }
    let named: BTreeSet<FileNumber> = files.iter().copied().collect();
    check_named(&tree, &named, output_level)?;
    let selections = completed(&tree, &named, output_level);
    let taken =
        selections.iter().flat_map(|selection| tree.selected(selection)).find(|file| tree.taken(file));
    if let Some(file) = taken {
        return Err(Refused::busy(format!(
            "table file {}, which is needed, is being compacted",
            file.number
        )));
    }
    let inputs: Vec<_> = selections.iter().map(|selection| tree.input(selection)).collect();
    if selections[0].level == 0 && context.running.holds_l0() {
        return Err(Refused::busy("other files of L0 are being compacted"));
    }
    if output_level != 0 && output_blocked(&tree, &inputs, output_level) {
        return Err(Refused::busy("a running compaction writes to the same keys of the output level"));
    }
    let mut draft = Draft::new(&tree, inputs, output_level, CompactionReason::ManualCompaction);
    draft.target_file_size = options.output_file_size_limit;
    draft.max_subcompactions = options.max_subcompactions;
    draft.output_path_id = options.output_path_id;
    draft.compression = (options.compression != Compression::Disable).then_some(options.compression);
    // A rewrite by default, because the user may want the named files rewritten, for example with
    // another compression.
    draft.work = (!options.allow_trivial_move).then_some(CompactionWork::Merge);
    Ok(draft.assemble(&tree))
}

fn check_named(tree: &Tree<'_>, named: &BTreeSet<FileNumber>, output_level: usize) -> Result<(), Refused> {
    if named.is_empty() {
        return Err(Refused::invalid("a compaction needs at least one file"));
    }
    let mut missing = named.clone();
    for (level, file) in tree.context.version.all_files() {
        if missing.remove(&file.number) && level.index() > output_level {
            return Err(Refused::invalid(format!(
                "table file {} is on {level}, below the output level {output_level}",
                file.number
            )));
        }
    }
    match missing.first() {
        Some(number) => Err(Refused::invalid(format!("table file {number} is not in the tree"))),
        None => Ok(()),
    }
}

/// Returns the named files and all files that must be compacted with them, by level.
fn completed(tree: &Tree<'_>, named: &BTreeSet<FileNumber>, output_level: usize) -> Vec<Selection> {
    let mut chosen: Vec<Selection> = Vec::new();
    for level in 0..=output_level {
        let files = tree.files(level);
        let is_named = |file: &Arc<FileMetadata>| named.contains(&file.number);
        let from_above = tree.span(chosen.iter().flat_map(|selection| tree.selected(selection)));
        let overlapping = if level == 0 || chosen.is_empty() {
            Selection::of(level, [])
        } else {
            tree.overlapping(level, from_above)
        };
        let first =
            files.iter().position(is_named).into_iter().chain(overlapping.indexes.first().copied()).min();
        let last =
            files.iter().rposition(is_named).into_iter().chain(overlapping.indexes.last().copied()).max();
        let (Some(first), Some(last)) = (first, last) else { continue };
        // Older files of L0 may hold older entries of the same keys, and would then be above the
        // output.
        let last = if level == 0 && output_level > 0 { files.len() - 1 } else { last };
        chosen.push(tree.clean_cut(&Selection::of(level, first..last + 1)));
    }
    chosen
}
