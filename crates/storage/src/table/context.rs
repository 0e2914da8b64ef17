//! The context of a read: the column family's open tables (and through them cache, environment and
//! statistics) and the caller's read options. Borrowed and `Copy`, so that passing it costs nothing
//! on a hit.

use crate::blob::BlobFiles;
use crate::block::{BlockKind, BlockRef, CachedBlock};
use crate::table::cache::TableCache;
use karst_base::options::ReadOptions;
use karst_base::perf_context::{self, LevelMetric, PerfLevel, PerfMetric, Timer};
use karst_base::stats::{HistogramKind, Statistics, Ticker};
use karst_mem::BlockCache;
use std::sync::Arc;
use std::time::Duration;

/// The context of one read.
#[derive(Clone, Copy, Debug)]
pub struct ReadCtx<'a> {
    /// The open tables of the column family.
    pub tables: &'a Arc<TableCache>,
    /// The caller's read options.
    pub options: &'a ReadOptions,
    /// True for a flush or a compaction.
    is_job: bool,
}

impl<'a> ReadCtx<'a> {
    /// Creates the context of a user's read.
    pub fn new(tables: &'a Arc<TableCache>, options: &'a ReadOptions) -> Self {
        ReadCtx { tables, options, is_job: false }
    }

    /// Creates the context of a job's read.
    pub fn of_job(tables: &'a Arc<TableCache>, options: &'a ReadOptions) -> Self {
        ReadCtx { is_job: true, ..ReadCtx::new(tables, options) }
    }

    #[inline]
    /// Returns the block cache.
    pub fn cache(&self) -> &'a BlockCache<CachedBlock> {
        &self.tables.shared.cache
    }

    #[inline]
    /// Returns the blob files of the column family.
    pub fn blobs(&self) -> &'a Arc<BlobFiles> {
        &self.tables.blobs
    }

    #[inline]
    /// Returns the statistics.
    pub fn stats(&self) -> &'a Statistics {
        &self.tables.shared.stats
    }

    /// Starts a timer for the calling thread.
    #[inline]
    pub fn thread_timer(&self) -> Timer {
        Timer::start(&self.tables.shared.env)
    }

    /// Adds the time since `timer` began to a metric of the calling thread.
    #[inline]
    pub fn stop(&self, timer: Timer, metric: PerfMetric) {
        timer.stop(&self.tables.shared.env, metric);
    }

    /// Returns the time if times are collected; otherwise the clock is not read.
    #[inline]
    pub fn start_timer(&self) -> Option<Duration> {
        self.tables.shared.start_timer()
    }

    /// Returns the maximum time the read may wait now; `None` if unlimited.
    #[inline]
    pub(crate) fn longest_wait(&self) -> Option<Duration> {
        let left = |deadline: Duration| deadline.saturating_sub(self.tables.shared.env.now());
        match (self.options.deadline.map(left), self.options.io_timeout) {
            (None, span) | (span, None) => span,
            (Some(left), Some(span)) => Some(left.min(span)),
        }
    }

    /// Returns true if the read's deadline has passed. Without a deadline the clock is not read.
    #[inline]
    pub fn is_late(&self) -> bool {
        self.options.deadline.is_some_and(|deadline| self.tables.shared.env.now() >= deadline)
    }

    /// Adds the time since `began` to a histogram, if times are collected.
    #[inline]
    pub fn measure_since(&self, kind: HistogramKind, began: Option<Duration>) {
        self.tables.shared.measure_since(kind, began);
    }

    /// Counts a cache hit on a block of a table on `level`.
    #[inline]
    pub fn count_cache_hit(&self, kind: BlockKind, block: &BlockRef, level: u32) {
        if self.stats().enabled() || perf_context::level() >= PerfLevel::EnableCount {
            self.count_cache_hit_slow(kind, block, level);
        }
    }

    fn count_cache_hit_slow(&self, kind: BlockKind, block: &BlockRef, level: u32) {
        let (recorder, bytes) = (self.stats().recorder(), block.charge_bytes() as u64);
        recorder.tick(Ticker::BlockCacheHit);
        recorder.record(Ticker::BlockCacheBytesRead, bytes);
        perf_context::count(PerfMetric::BlockCacheHitCount, 1);
        perf_context::count(PerfMetric::BlockCacheReadByte, bytes);
        perf_context::count_at_level(LevelMetric::BlockCacheHitCount, level, 1);
        if kind.is_filter() {
            recorder.tick(Ticker::BlockCacheFilterHit);
            perf_context::count(PerfMetric::BlockCacheFilterHitCount, 1);
            perf_context::count(PerfMetric::BlockCacheFilterReadByte, bytes);
        } else if kind.is_metadata() {
            recorder.tick(Ticker::BlockCacheIndexHit);
            perf_context::count(PerfMetric::BlockCacheIndexHitCount, 1);
            perf_context::count(PerfMetric::BlockCacheIndexReadByte, bytes);
        } else {
            recorder.tick(Ticker::BlockCacheDataHit);
        }
    }

    /// Counts a cache miss on a block of a table on `level`.
    pub fn count_cache_miss(&self, kind: BlockKind, level: u32) {
        perf_context::count_at_level(LevelMetric::BlockCacheMissCount, level, 1);
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

    /// Counts bytes read ahead of a scan.
    pub(crate) fn count_prefetch(&self, bytes: u64) {
        match self.is_job {
            true => self.stats().measure(HistogramKind::CompactionPrefetchBytes, bytes),
            false => self.stats().record(Ticker::PrefetchBytes, bytes),
        }
    }

    /// Counts read-ahead bytes that a scan has reached.
    pub fn count_prefetch_hit(&self, bytes: u64) {
        if !self.is_job {
            let recorder = self.stats().recorder();
            recorder.tick(Ticker::PrefetchHits);
            recorder.record(Ticker::PrefetchBytesUseful, bytes);
        }
    }

    /// Counts a block inserted into the cache.
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
