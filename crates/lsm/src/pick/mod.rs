//! Compaction picking: chooses the files to compact next, and the kind of compaction.
//!
//! In: a [`Version`], the family's [`CompactionOptions`], the [`Running`] compactions, the oldest
//! snapshot, and the time: together a [`PickContext`]. Out: a [`Compaction`], or nothing to do.
//! Pure: equal input gives equal picks.
//!
//! The caller registers a pick in that [`Running`] before anything else is picked, and releases it
//! when the result is installed or the job is abandoned.
//!
//! | module | holds |
//! |---|---|
//! | [`compaction`] | the result of a pick |
//! | [`options`] | the options that picks depend on, made consistent |
//! | [`running`] | the compactions that are running |
//! | `targets` | target sizes of levels, and the level that L0 is compacted into |
//! | `score` | urgency of each level, and the bytes due in total |
//! | `marked`, `priority` | files due independently of their level's size; order of the files of a level |
//! | `leveled`, `intra_l0`, `universal`, `fifo` | the strategies |
//! | [`manual`], `compact_files` | compactions requested by the user |
//! | `tree`, `expand`, `assemble` | shared parts: ranges and clean cuts, the output level's files, the complete compaction |
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

/// Input of a decision.
#[derive(Clone, Copy, Debug)]
pub struct PickContext<'a> {
    /// The family's current version.
    pub version: &'a Arc<Version>,
    /// The family's options.
    pub options: &'a CompactionOptions,
    /// The family's running compactions.
    pub running: &'a Running,
    /// At the last release of a snapshot: the oldest remaining snapshot, or the last visible
    /// sequence number if none remained; 0 as long as no snapshot has been released.
    ///
    /// The current oldest snapshot would not do, because data written without snapshots has no
    /// hidden entries that a rewrite could drop: every load that moved to the last level without a
    /// rewrite would be rewritten there at once.
    pub oldest_snapshot: SeqNo,
    /// Unix time in seconds.
    pub now_s: u64,
}

/// Returns the next compaction that the tree needs, if it can start beside the running ones. `None`
/// under `disable_auto_compactions`.
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
