//! Reading: point lookups, batches of them, and merges; iterators build on the same steps.
//!
//! In: a pinned superversion, a sequence number, keys. Out: values that pin their blocks.
//! Everything is plain code over what is in memory; what is not is fetched by the one loop in
//! `table::drive`, for the synchronous and the asynchronous forms alike.

mod base;
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

/// What a read may have to wait for before its first step: that everything it has to see is in the
/// memtables.
pub(crate) trait Gate: Future<Output = ()> + Send + Sync + Unpin {
    /// The same on the calling thread.
    fn wait(&self);
}

/// A column family as one read sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub(crate) superversion: &'a SuperVersion,
    pub(crate) ctx: ReadCtx<'a>,
    /// What was inserted and may not count for this read.
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

    /// The same for a read at `at`.
    #[inline]
    pub(crate) fn at(self, at: &'a ReadAt) -> Self {
        View { pending: at.pending(), ..self }
    }

    /// Whether a read at `at` does not see an entry with the number `seq`.
    #[inline]
    pub(crate) fn hides(&self, seq: SeqNo, at: SeqNo) -> bool {
        snapshot::hides(self.pending, at, seq)
    }

    /// Whether an entry of a stored user key is later than what is read at.
    #[inline]
    pub(crate) fn is_later(&self, user_key: &[u8]) -> bool {
        self.ctx.options.timestamp.as_deref().is_some_and(|timestamp| {
            let comparator = self.version().comparator();
            comparator.compare_timestamps(comparator.split_timestamp(user_key).1, timestamp).is_gt()
        })
    }

    /// The same of a column family's tables and superversion in one.
    #[inline]
    pub(crate) fn of(
        (tables, superversion): (&'a Arc<TableCache>, &'a Arc<SuperVersion>),
        options: &'a ReadOptions,
    ) -> Self {
        View::new(tables, superversion, options)
    }

    /// The tree.
    #[inline]
    pub(crate) fn version(&self) -> &'a Arc<Version> {
        self.superversion.version()
    }
}
