//! A table's filter: tests if a key may be in the table.
//!
//! In: an internal key. Out: true if its user key, or its prefix, may be in the table. A filter is
//! one block or partitioned; without one the result is unknown.
//!
//! The table's own prefix extractor is used because the filter was built with it. The column family
//! may have another one by now, which does not change the filter's contents; RocksDB then ignores
//! the filter.

use crate::block::BlockKind;
use crate::table::context::ReadCtx;
use crate::table::filter_history::Lately;
use crate::table::needs::{Needs, Stop};
use crate::table::{MetaBlock, MetaRef, Table};
use karst_base::perf_context::{self, LevelMetric, PerfMetric};
use karst_base::stats::Ticker;
use karst_format::filter::FilterHash;
use karst_format::index::IndexCursor;
use karst_format::key;
use karst_format::slice_transform::PrefixExtractor;
use std::sync::Arc;

/// The filter of an open table.
#[derive(Debug)]
pub(super) struct TableFilter {
    pub(super) block: MetaBlock,
    /// True if it contains whole keys.
    pub(super) whole_keys: bool,
    /// The extractor of its prefixes, if it contains prefixes.
    pub(super) prefixes: Option<PrefixExtractor>,
    /// Share of passed keys that were in the table, over lookups that had to wait.
    pub(super) right: Lately,
}

/// The hash of a user key, computed for the first filter and reused for all.
pub type KeyHash = Option<FilterHash>;

impl TableFilter {
    pub(super) fn is_partitioned(&self) -> bool {
        self.block.kind == BlockKind::FilterIndex
    }
}

impl Table {
    /// Returns true if an entry of `key`'s user key may be in the table; `None` if no filter can
    /// tell.
    #[inline]
    pub fn key_may_match(
        self: &Arc<Self>,
        ctx: &ReadCtx<'_>,
        needs: &mut Needs,
        key: &[u8],
        hash: &mut KeyHash,
    ) -> Result<Option<bool>, Stop> {
        let Some(filter) = &self.filter else { return Ok(None) };
        let user_key = self.comparator.bare(key::user_key(key));
        let (hashed, hash) = if filter.whole_keys {
            (user_key, *hash.get_or_insert_with(|| FilterHash::new(user_key)))
        } else {
            match filter.prefixes.as_ref().and_then(|extractor| extractor.prefix(user_key)) {
                Some(prefix) => (prefix, FilterHash::new(prefix)),
                None => return Ok(None),
            }
        };
        self.probe(ctx, needs, filter, key, hashed, hash).map(Some)
    }

    /// Returns true if a key with the prefix of `key` may be in the table; `None` if no filter can
    /// tell.
    ///
    /// For iterators in prefix mode. `key` is the internal key they seek.
    pub fn prefix_may_match(
        self: &Arc<Self>,
        ctx: &ReadCtx<'_>,
        needs: &mut Needs,
        key: &[u8],
        extractor: &PrefixExtractor,
    ) -> Result<Option<bool>, Stop> {
        let Some(filter) = &self.filter else { return Ok(None) };
        let same = filter.prefixes.as_ref().is_some_and(|own| own.name() == extractor.name());
        let prefix = if same { extractor.prefix(self.comparator.bare(key::user_key(key))) } else { None };
        let Some(prefix) = prefix else { return Ok(None) };
        self.probe(ctx, needs, filter, key, prefix, FilterHash::new(prefix)).map(Some)
    }

    #[inline]
    fn probe(
        self: &Arc<Self>,
        ctx: &ReadCtx<'_>,
        needs: &mut Needs,
        filter: &TableFilter,
        key: &[u8],
        hashed: &[u8],
        hash: FilterHash,
    ) -> Result<bool, Stop> {
        let block = self.meta(&filter.block, ctx, needs)?;
        if !filter.is_partitioned() {
            return Ok(block.as_filter().may_match(hashed, hash));
        }
        match self.filter_partition(&block, filter, key)? {
            Some(handle) => {
                let partition = needs.block(ctx, self, handle, BlockKind::FilterPartition)?;
                Ok(partition.as_filter().may_match(hashed, hash))
            }
            None => Ok(true),
        }
    }

    /// Returns the partition for `key`. `None` if there are no partitions.
    fn filter_partition(
        &self,
        top: &MetaRef<'_>,
        filter: &TableFilter,
        key: &[u8],
    ) -> Result<Option<karst_format::handle::BlockHandle>, Stop> {
        let corrupt = |corruption| Stop::Error(self.corrupt(filter.block.handle, corruption));
        let mut cursor = IndexCursor::new();
        let top = top.as_index();
        // The last partition is used after the end, because it may have the prefix of a larger key.
        let found = cursor.seek(top, &self.comparator, key).map_err(corrupt)?
            || cursor.seek_to_last(top).map_err(corrupt)?;
        Ok(found.then(|| cursor.handle()))
    }

    /// Records the lookup of a key that the filter let pass; `found`: the table had the key.
    #[cold]
    pub fn note_passed(&self, found: bool) {
        if let Some(filter) = &self.filter {
            filter.right.note(found);
        }
    }

    /// Returns true if at least a quarter of the keys that the filter recently let pass were not in
    /// the table: a lookup of such a key should read the next levels at the same time. This also
    /// holds if few of all keys are in the table, for any filter.
    pub fn filter_is_often_wrong(&self) -> bool {
        const RIGHT_AT_MOST: u32 = Lately::ALWAYS / 4 * 3;
        self.filter.as_ref().is_some_and(|filter| filter.right.share() <= RIGHT_AT_MOST)
    }

    /// Counts a key that was found in a table whose filter had let it pass.
    #[inline]
    pub fn count_true_positive(&self, ctx: &ReadCtx<'_>, level: u8) {
        let Some(filter) = &self.filter else { return };
        let ticker = if filter.whole_keys {
            Ticker::BloomFilterFullTruePositive
        } else {
            Ticker::BloomFilterPrefixTruePositive
        };
        ctx.stats().tick(ticker);
        perf_context::count_at_level(LevelMetric::BloomFilterFullTruePositive, u32::from(level), 1);
    }

    /// Counts a filter's result for an iterator's seek.
    pub fn count_prefix_filter(&self, ctx: &ReadCtx<'_>, may_match: bool) {
        ctx.stats().tick(match (self.is_on_last_level, may_match) {
            (true, true) => Ticker::LastLevelSeekFilterMatch,
            (true, false) => Ticker::LastLevelSeekFiltered,
            (false, true) => Ticker::NonLastLevelSeekFilterMatch,
            (false, false) => Ticker::NonLastLevelSeekFiltered,
        });
        count_bloom(may_match);
    }

    /// Counts a filter's result for a lookup.
    #[inline]
    pub fn count_filter(&self, ctx: &ReadCtx<'_>, may_match: bool, level: u8) {
        let stats = ctx.stats();
        if stats.enabled() {
            let whole_keys = self.filter.as_ref().is_some_and(|filter| filter.whole_keys);
            let ticker = match (whole_keys, may_match) {
                (true, true) => Some(Ticker::BloomFilterFullPositive),
                (true, false) => Some(Ticker::BloomFilterUseful),
                (false, false) => Some(Ticker::BloomFilterPrefixUseful),
                (false, true) => None,
            };
            if !whole_keys {
                stats.tick(Ticker::BloomFilterPrefixChecked);
            }
            if let Some(ticker) = ticker {
                stats.tick(ticker);
            }
        }
        let metric =
            if may_match { LevelMetric::BloomFilterFullPositive } else { LevelMetric::BloomFilterUseful };
        perf_context::count_at_level(metric, u32::from(level), 1);
        count_bloom(may_match);
    }
}

/// Compat: RocksDB counts a key that may be present as a hit.
#[inline]
fn count_bloom(may_match: bool) {
    let metric = if may_match { PerfMetric::BloomSstHitCount } else { PerfMetric::BloomSstMissCount };
    perf_context::count(metric, 1);
}
