//! Which files to compact next, and how.
//!
//! In: a [`Version`](crate::Version), the family's [`CompactionOptions`], what is [`Running`], the oldest snapshot, and
//! the time: together a [`PickContext`]. Out: a [`Compaction`], or nothing to do. Pure: the same input gives the same pick.
//!
//! Whoever picks registers the result in the same [`Running`] before anybody picks again, and takes it out when the result
//! is installed or the job is given up.
//!
//! | module | holds |
//! |---|---|
//! | [`compaction`] | what a pick is |
//! | [`options`] | the options that picks depend on, made consistent |
//! | [`running`] | what is being compacted now |
pub mod compaction;
pub mod options;
pub mod running;

use std::sync::Arc;

use karst_format::key::SeqNo;

use crate::version::Version;

pub use compaction::{Compaction, CompactionInput, CompactionReason, CompactionWork, OlderData};
pub use options::CompactionOptions;
pub use running::{Running, RunningId};

/// What a decision depends on.
#[derive(Clone, Copy, Debug)]
pub struct PickContext<'a> {
    /// The family's current version.
    pub version: &'a Arc<Version>,
    /// The family's options.
    pub options: &'a CompactionOptions,
    /// The family's running compactions.
    pub running: &'a Running,
    /// The oldest snapshot's sequence number, or the last visible one if there is no snapshot.
    pub oldest_snapshot: SeqNo,
    /// Unix time in seconds.
    pub now_s: u64,
}

/// The next compaction that the tree needs, if it can start beside those that run.
///
/// Not done: the strategies; this picks nothing until they are in.
pub fn pick(context: &PickContext<'_>) -> Option<Compaction> {
    let _ = context;
    None
}
