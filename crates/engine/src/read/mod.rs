//! Reads: point lookups, batches of lookups and merges; iterators build on the same steps.
//!
//! In: a pinned superversion, a sequence number, keys. Out: values that pin their blocks.
//! Each step is plain code over data in memory; missing data is fetched by one loop in
//! `table::drive`, for the synchronous and the asynchronous forms alike.

mod found_value;
pub(crate) mod get;
pub mod iter;
mod lookup;
pub(crate) mod merge;
pub(crate) mod multi_get;
pub(crate) mod newest;
pub mod sizes;
pub mod sought_key;
#[cfg(test)]
mod tests;

use karst_base::options::ReadOptions;
use karst_base::snapshot::{self, ReadAt};
use karst_format::key::SeqNo;
use karst_lsm::Version;
use karst_mem::pending::Ranges;
use karst_storage::superversion::SuperVersion;
use karst_storage::table::cache::TableCache;
use karst_storage::table::context::ReadCtx;
use std::future::Future;
use std::sync::Arc;

/// Barrier that a read passes before its first step: resolves once every entry that the read must
/// see is in the memtables.
pub(crate) trait Gate: Future<Output = ()> + Send + Sync + Unpin {
    /// Blocks the calling thread until the barrier is passed.
    fn wait(&self);
}

/// A column family as one read sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub(crate) superversion: &'a SuperVersion,
    pub(crate) ctx: ReadCtx<'a>,
    /// Sequence numbers that were inserted and that this read must ignore, or None.
    pending: Option<&'a Ranges>,
}

impl<'a> View<'a> {
    #[inline]
    pub(crate) fn new(
        tables: &'a Arc<TableCache>,
        superversion: &'a SuperVersion,
        options: &'a ReadOptions,
    ) -> Self {
        View { superversion, ctx: ReadCtx::new(tables, options), pending: None }
    }

    /// Returns the view for a read at `at`, with its pending sequence numbers.
    #[inline]
    pub(crate) fn at(self, at: &'a ReadAt) -> Self {
        View { pending: at.pending(), ..self }
    }

    /// Returns true if a read at `at` does not see entries with sequence number `seq`.
    #[inline]
    pub(crate) fn hides(&self, seq: SeqNo, at: SeqNo) -> bool {
        snapshot::hides(self.pending, at, seq)
    }

    /// Returns true if the timestamp in `user_key` is later than the read's timestamp.
    #[inline]
    pub(crate) fn is_later(&self, user_key: &[u8]) -> bool {
        self.ctx.options.timestamp.as_deref().is_some_and(|timestamp| {
            let comparator = self.version().comparator();
            comparator.compare_timestamps(comparator.split_timestamp(user_key).1, timestamp).is_gt()
        })
    }

    /// Creates the view from a column family's tables and superversion in one tuple.
    #[inline]
    pub(crate) fn of(
        (tables, superversion): (&'a Arc<TableCache>, &'a Arc<SuperVersion>),
        options: &'a ReadOptions,
    ) -> Self {
        View::new(tables, superversion, options)
    }

    /// The LSM tree's version.
    #[inline]
    pub(crate) fn version(&self) -> &'a Arc<Version> {
        self.superversion.version()
    }
}
