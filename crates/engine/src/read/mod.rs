//! Reading: point lookups, batches of them, and merges; iterators build on the same steps.
//!
//! In: a pinned superversion, a sequence number, keys. Out: values that pin their blocks. Everything is plain code over what is in
//! memory; what is not is fetched by the one loop in `table::drive`, for the synchronous and the asynchronous forms alike.

pub(crate) mod get;
mod lookup;
pub(crate) mod merge;
pub(crate) mod multi_get;

use std::sync::Arc;

use crate::merge_operator::MergeOperator;
use crate::options::ReadOptions;
use crate::superversion::SuperVersion;
use crate::table::cache::TableCache;
use crate::table::context::ReadCtx;

/// How a column family is read: what does not change while it is open.
#[derive(Debug)]
pub(crate) struct ColumnReader {
    /// Its tables, and through them cache, environment and statistics.
    pub(crate) tables: Arc<TableCache>,
    /// Makes values of merge operands.
    pub(crate) merge_operator: Option<Arc<dyn MergeOperator>>,
    /// Filters of the last level are not asked: nearly every key that gets there is found.
    pub(crate) optimize_filters_for_hits: bool,
}

/// A column family as one read sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub(crate) column: &'a ColumnReader,
    pub(crate) superversion: &'a SuperVersion,
    pub(crate) ctx: ReadCtx<'a>,
}

impl<'a> View<'a> {
    #[inline]
    pub(crate) fn new(
        column: &'a ColumnReader,
        superversion: &'a SuperVersion,
        options: &'a ReadOptions,
    ) -> Self {
        View { column, superversion, ctx: ReadCtx::new(&column.tables, options) }
    }

    /// Whether filters of `level` are not asked.
    #[inline]
    pub(crate) fn skips_filter(&self, level: u8) -> bool {
        self.column.optimize_filters_for_hits && self.is_last_level(level)
    }

    #[cold]
    fn is_last_level(&self, level: u8) -> bool {
        let levels = self.superversion.version.levels();
        levels.iter().rposition(|files| !files.is_empty()) == Some(usize::from(level))
    }
}
