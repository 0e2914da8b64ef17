//! Which files to compact next, and how.
//!
//! In: a [`Version`], the family's [`CompactionOptions`], what is [`Running`], the oldest snapshot,
//! and the time: together a [`PickContext`]. Out: a [`Compaction`], or nothing to do. Pure: the
//! same input gives the same pick.
//!
//! Whoever picks registers the result in the same [`Running`] before anybody picks again, and takes
//! it out when the result is installed or the job is given up.
//!
//! | module | holds |
//! |---|---|
//! | [`compaction`] | what a pick is |
//! | [`options`] | the options that picks depend on, made consistent |
//! | [`running`] | what is being compacted now |
//! | `targets` | level sizes, and where L0 goes |
//! | `score` | which level is most urgent, and how much is due in all |
//! | `marked`, `priority` | files due for their own sake; which file of a level goes first |
//! | `leveled`, `intra_l0`, `universal`, `fifo` | the strategies |
//! | [`manual`], `compact_files` | compactions that somebody asks for |
//! | `tree`, `expand`, `assemble` | what they share: ranges and clean cuts, the output level's files, the complete compaction |
mod assemble;
mod compact_files;
pub mod compaction;
mod delete_files;
mod expand;
mod fifo;
mod ingest;
mod intra_l0;
mod leveled;
pub mod manual;
mod marked;
mod offpeak;
pub mod options;
mod priority;
pub mod running;
mod score;
mod targets;
mod tree;
mod universal;

use crate::version::Version;
use karst_format::key::SeqNo;
use karst_format::options::choice::CompactionStyle;
use std::sync::Arc;
use tree::Tree;
pub(crate) use tree::boundary_order;

pub use assemble::BlobGarbageCollectionPolicy;
pub use compact_files::{CompactFilesOptions, Refused, compact_files};
pub use compaction::{Compaction, CompactionInput, CompactionReason, CompactionWork, OlderData};
pub use delete_files::{UserKeyRange, delete_files_in_ranges, suggest_range};
pub use ingest::{IngestPlace, NotBehind, place_behind, place_ingested};
pub use manual::{BottommostLevelCompaction, CompactRangeOptions, ManualCompaction, ManualStep};
pub use offpeak::Offpeak;
pub use options::CompactionOptions;
pub use running::{Running, RunningId};
pub use score::{Scores, estimated_pending_compaction_bytes, needs_compaction};
pub use targets::LevelTargets;

/// What a decision depends on.
#[derive(Clone, Copy, Debug)]
pub struct PickContext<'a> {
    /// The family's current version.
    pub version: &'a Arc<Version>,
    /// The family's options.
    pub options: &'a CompactionOptions,
    /// The family's running compactions.
    pub running: &'a Running,
    /// When a snapshot was released last, the oldest one left, or the last visible sequence number
    /// if none was left; 0 as long as none has been released.
    ///
    /// Why not the oldest snapshot as it is now: what was written without snapshots has nothing
    /// hidden that a rewrite could drop. With it, every load that moved to the last level as it was
    /// would be rewritten there at once.
    pub oldest_snapshot: SeqNo,
    /// Unix time in seconds.
    pub now_s: u64,
}

/// The next compaction that the tree needs, if it can start beside those that run. Nothing under
/// `disable_auto_compactions`.
///
/// Takes time proportional to the number of files.
pub fn pick(context: PickContext<'_>) -> Option<Compaction> {
    if context.options.family.disable_auto_compactions {
        return None;
    }
    let tree = Tree::new(context);
    match context.options.family.compaction_style {
        CompactionStyle::Level => leveled::pick(&tree),
        CompactionStyle::Universal => universal::pick(&tree),
        CompactionStyle::Fifo => fifo::pick(&tree),
        CompactionStyle::None => None,
    }
}

#[cfg(test)]
pub(crate) mod tests;
