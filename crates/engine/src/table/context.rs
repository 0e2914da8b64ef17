//! What a read carries along: the column family's open tables (and through them cache, environment and statistics) and the
//! caller's read options. Borrowed and `Copy`, so that passing it costs nothing on a hit.

use std::sync::Arc;
use std::time::Duration;

use karst_mem::BlockCache;

use crate::blob::BlobFiles;
use crate::options::ReadOptions;
use crate::perf_context::{self, PerfMetric};
use crate::stats::{HistogramKind, Statistics, Ticker};
use crate::table::block::{BlockKind, BlockRef, CachedBlock};
use crate::table::cache::TableCache;

/// The surroundings of one read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadCtx<'a> {
    /// The tables of the column family.
    pub(crate) tables: &'a Arc<TableCache>,
    /// What the caller asked for.
    pub(crate) options: &'a ReadOptions,
}

impl<'a> ReadCtx<'a> {
    pub(crate) fn new(tables: &'a Arc<TableCache>, options: &'a ReadOptions) -> Self {
        ReadCtx { tables, options }
    }

    #[inline]
    pub(crate) fn cache(&self) -> &'a BlockCache<CachedBlock> {
        &self.tables.shared.cache
    }

    #[inline]
    pub(crate) fn blobs(&self) -> &'a Arc<BlobFiles> {
        &self.tables.blobs
    }

    #[inline]
    pub(crate) fn stats(&self) -> &'a Statistics {
        &self.tables.shared.stats
    }

    /// The time, if times are collected; else the clock is not read.
    #[inline]
    pub(crate) fn start_timer(&self) -> Option<Duration> {
        self.stats().timers_enabled().then(|| self.tables.shared.env.now())
    }

    /// How long the read may wait now, if not for ever.
    #[inline]
    pub(crate) fn longest_wait(&self) -> Option<Duration> {
        let left = |deadline: Duration| deadline.saturating_sub(self.tables.shared.env.now());
        match (self.options.deadline.map(left), self.options.io_timeout) {
            (None, span) | (span, None) => span,
            (Some(left), Some(span)) => Some(left.min(span)),
        }
    }

    /// The whole microseconds since `began`.
    pub(crate) fn micros_since(&self, began: Duration) -> u64 {
        self.tables.shared.env.now().saturating_sub(began).as_micros() as u64
    }

    /// Adds the time since `began` to a histogram, if times are collected.
    #[inline]
    pub(crate) fn measure_since(&self, kind: HistogramKind, began: Option<Duration>) {
        if let Some(began) = began {
            self.stats().measure(kind, self.micros_since(began));
        }
    }

    /// Counts a block found in the cache.
    #[inline]
    pub(crate) fn count_cache_hit(&self, kind: BlockKind, block: &BlockRef) {
        perf_context::count(PerfMetric::BlockCacheHitCount, 1);
        if self.stats().enabled() {
            self.count_cache_hit_slow(kind, block);
        }
    }

    fn count_cache_hit_slow(&self, kind: BlockKind, block: &BlockRef) {
        let recorder = self.stats().recorder();
        recorder.tick(Ticker::BlockCacheHit);
        recorder.tick(if kind.is_filter() {
            Ticker::BlockCacheFilterHit
        } else if kind.is_metadata() {
            Ticker::BlockCacheIndexHit
        } else {
            Ticker::BlockCacheDataHit
        });
        recorder.record(Ticker::BlockCacheBytesRead, block.charge_bytes() as u64);
    }

    /// Counts a block that was not in the cache.
    pub(crate) fn count_cache_miss(&self, kind: BlockKind) {
        let recorder = self.stats().recorder();
        recorder.tick(Ticker::BlockCacheMiss);
        recorder.tick(if kind.is_filter() {
            Ticker::BlockCacheFilterMiss
        } else if kind.is_metadata() {
            Ticker::BlockCacheIndexMiss
        } else {
            Ticker::BlockCacheDataMiss
        });
    }

    /// Counts a block put into the cache.
    pub(crate) fn count_cache_add(&self, kind: BlockKind, charge_bytes: usize) {
        count_cache_add(self.stats(), kind, charge_bytes);
    }
}

/// See [`ReadCtx::count_cache_add`].
pub(crate) fn count_cache_add(stats: &Statistics, kind: BlockKind, charge_bytes: usize) {
    let recorder = stats.recorder();
    let bytes = charge_bytes as u64;
    recorder.tick(Ticker::BlockCacheAdd);
    recorder.record(Ticker::BlockCacheBytesWrite, bytes);
    let (add, inserted) = if kind.is_filter() {
        (Ticker::BlockCacheFilterAdd, Ticker::BlockCacheFilterBytesInsert)
    } else if kind.is_metadata() {
        (Ticker::BlockCacheIndexAdd, Ticker::BlockCacheIndexBytesInsert)
    } else {
        (Ticker::BlockCacheDataAdd, Ticker::BlockCacheDataBytesInsert)
    };
    recorder.tick(add);
    recorder.record(inserted, bytes);
}
