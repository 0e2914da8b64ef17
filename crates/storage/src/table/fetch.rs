//! Fetching: all needs of an operation at the same time.
//!
//! In: needs taken from one or several [`Needs`]s, each with the number of the step that waits for
//! it. Out: tables and decoded blocks, delivered to every waiting step on arrival, independently of
//! each other.
//!
//! A need of several steps is fetched once. Adjacent blocks of a file are read together. With
//! `async_io=false`, one file at a time is fetched.
//!
//! Invariant: dropping a [`Fetches`] abandons its reads; their buffers belong to the I/O channel
//! and are not leaked.

use crate::block::BlockKind;
use crate::budget;
use crate::table::Table;
use crate::table::context::ReadCtx;
use crate::table::needs::{Held, Need, NeedKey, Needs, RunNeed};
use karst_base::error::{Error, Result};
use karst_base::options::ReadOptions;
use karst_base::perf_context::{PerfMetric, Timer};
use karst_base::stats::{HistogramKind, Ticker};
use karst_format::handle::{BLOCK_TRAILER_BYTES, BlockHandle};
use karst_io::ReadFuture;
use karst_mem::Charge;
use smallvec::{SmallVec, smallvec};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Maximum gap in bytes between blocks that are read together. One page, because reading it costs
/// the device nothing more.
pub const MAX_GAP_BYTES: u64 = 4096;

/// Maximum size in bytes of blocks read together, except for a filter with the index after it.
/// Bounded so that the first block's waiters do not wait long for other blocks.
const MAX_TOGETHER_BYTES: u64 = 64 << 10;

/// The number of a step among those that share a [`Fetches`].
pub type Waiter = u32;

/// Receives each result once for every waiting step.
pub type Deliver<'a> = dyn FnMut(Waiter, NeedKey, Result<Held>) + 'a;

type Task = Pin<Box<dyn Future<Output = Result<Held>> + Send>>;

struct Part {
    key: NeedKey,
    handle: BlockHandle,
    kind: BlockKind,
    waiters: SmallVec<[Waiter; 2]>,
}

enum Fetch {
    /// One read of one block, or of several adjacent ones.
    Blocks {
        table: Arc<Table>,
        start: u64,
        parts: SmallVec<[Part; 1]>,
        read: ReadFuture,
        began: Began,
        /// Held until the block is decoded; a cached block has its own charge.
        charge: Option<Charge>,
    },
    /// One read that is delivered undecoded.
    Run {
        key: NeedKey,
        waiters: SmallVec<[Waiter; 2]>,
        read: ReadFuture,
        began: Began,
        _charge: Option<Arc<Charge>>,
    },
    /// A fetch of several steps: opening a table, reading a blob.
    Task { key: NeedKey, waiters: SmallVec<[Waiter; 2]>, task: Task },
}

/// Start time of a read.
#[derive(Clone, Copy)]
struct Began {
    /// Set if the statistics collect times.
    at: Option<Duration>,
    /// Running if the thread takes times.
    timer: Timer,
}

struct Fresh {
    key: NeedKey,
    need: Need,
    waiters: SmallVec<[Waiter; 2]>,
}

/// The fetches in flight for one operation (or for one iterator, between its operations).
pub struct Fetches {
    running: SmallVec<[Fetch; 1]>,
    /// Collected but not started: in the order of collection, or, while being started, with the
    /// next one last.
    fresh: SmallVec<[Fresh; 1]>,
    one_file_at_a_time: bool,
    /// The histogram of read times for this kind of operation.
    read_micros: HistogramKind,
    /// Number of blocks fetched per level: metadata, data.
    fetched: [(u32, u32); LEVELS_COUNTED],
}

/// Number of levels counted separately; deeper ones count as the last.
const LEVELS_COUNTED: usize = 8;

impl Fetches {
    /// Creates an empty set that follows the options about parallel reads. `read_micros` is the
    /// histogram of reads for this kind of operation.
    pub fn new(options: &ReadOptions, read_micros: HistogramKind) -> Self {
        Fetches {
            running: SmallVec::new(),
            fresh: SmallVec::new(),
            one_file_at_a_time: !options.async_io,
            read_micros,
            fetched: [(0, 0); LEVELS_COUNTED],
        }
    }

    /// Takes the needs of a step that is the only user of this set.
    pub fn collect(&mut self, needs: &mut Needs) {
        self.collect_for(needs, 0);
    }

    /// Takes the needs of the step `waiter`. A need that is queued or in flight already gains a
    /// waiter.
    pub fn collect_for(&mut self, needs: &mut Needs, waiter: Waiter) {
        needs.take_needs(|key, need| {
            // Each run is requested once, by the one scan that waits for it.
            let asked_for = if matches!(need, Need::Run(_)) { None } else { self.waiters_of(key) };
            if let Some(waiters) = asked_for {
                if !waiters.contains(&waiter) {
                    waiters.push(waiter);
                }
            } else {
                self.fresh.push(Fresh { key, need, waiters: smallvec![waiter] });
            }
        });
    }

    fn waiters_of(&mut self, key: NeedKey) -> Option<&mut SmallVec<[Waiter; 2]>> {
        if let Some(fresh) = self.fresh.iter_mut().find(|fresh| fresh.key == key) {
            return Some(&mut fresh.waiters);
        }
        self.running.iter_mut().find_map(|fetch| match fetch {
            Fetch::Blocks { parts, .. } => {
                parts.iter_mut().find(|part| part.key == key).map(|part| &mut part.waiters)
            }
            Fetch::Task { key: running, waiters, .. } => (*running == key).then_some(waiters),
            Fetch::Run { .. } => None,
        })
    }

    /// Returns true if nothing is queued or in flight.
    pub fn is_empty(&self) -> bool {
        self.running.is_empty() && self.fresh.is_empty()
    }

    /// Starts the collected fetches.
    pub fn launch(&mut self, ctx: &ReadCtx<'_>) {
        if self.fresh.is_empty() {
            return;
        }
        let began = Began { at: ctx.start_timer(), timer: ctx.thread_timer() };
        let mut later = SmallVec::new();
        if self.one_file_at_a_time {
            if !self.running.is_empty() {
                return;
            }
            let file = self.fresh[0].key.0;
            (self.fresh, later) =
                std::mem::take(&mut self.fresh).into_iter().partition(|fresh| fresh.key.0 == file);
        }
        if self.fresh.len() > 1 {
            // Sorted so that adjacent blocks of a file are merged, and the device sees ascending
            // offsets.
            self.fresh.sort_unstable_by_key(|fresh| std::cmp::Reverse((fresh.key.0, fresh.key.1)));
        }
        while let Some(fresh) = self.fresh.pop() {
            self.start(ctx, fresh, began);
        }
        self.fresh = later;
        ctx.stats().measure(HistogramKind::MultigetIoBatchSize, self.running.len() as u64);
    }

    /// Starts one fetch; a block's read includes adjacent blocks after it in the queue.
    fn start(&mut self, ctx: &ReadCtx<'_>, fresh: Fresh, began: Began) {
        let Fresh { key, need, waiters } = fresh;
        let fetch = match need {
            Need::Block { table, handle, kind } => {
                let start = handle.offset;
                let mut parts: SmallVec<[Part; 1]> = smallvec![Part { key, handle, kind, waiters }];
                let mut end = end_of(handle);
                let mut last = kind;
                while let Some(next) = self.neighbour(&table, start, end, last) {
                    (end, last) = (end_of(next.handle), next.kind);
                    parts.push(next);
                }
                // Invariant: `Needs` has checked every handle against the size of the file.
                let (shared, len) = (&ctx.tables.shared, (end - start) as usize);
                table.count_read(ctx, len as u64);
                let charge = shared.charge(budget::READS, len);
                let read = karst_io::read(&shared.env, table.file(), start, len);
                Fetch::Blocks { table, start, parts, read, began, charge }
            }
            Need::Run(RunNeed { file, table, start, len, charge: _charge }) => {
                ctx.count_prefetch(len as u64);
                if let Some(table) = table {
                    table.count_read(ctx, len as u64);
                }
                // Invariant: the scan has checked every handle in it against the size of the file.
                let read = karst_io::read(&ctx.tables.shared.env, &file, start, len);
                // Not timed, because the scan may poll for it long after it has arrived.
                let began = Began { timer: Timer::NONE, ..began };
                Fetch::Run { key, waiters, read, began, _charge }
            }
            Need::Open { tables, file, level } => {
                let task = Box::pin(async move { tables.open(&file, level).await.map(Held::Table) });
                Fetch::Task { key, waiters, task }
            }
            Need::Blob(need) => {
                let (verify, fill) = (ctx.options.verify_checksums, ctx.options.fill_cache);
                let task = Box::pin(async move { need.fetch(verify, fill).await.map(Held::Block) });
                Fetch::Task { key, waiters, task }
            }
        };
        self.running.push(fetch);
    }

    /// Takes the next block in the queue if it is a block of `table` close after `end`, which ends
    /// a block of kind `last`, in a read that began at `start`.
    fn neighbour(&mut self, table: &Arc<Table>, start: u64, end: u64, last: BlockKind) -> Option<Part> {
        let Need::Block { table: next, handle, kind } = &self.fresh.last()?.need else { return None };
        // Joined at any size, because a lookup that requests both at once waits for both.
        let both = last == BlockKind::Filter && *kind == BlockKind::Index;
        let close = Arc::ptr_eq(table, next)
            && handle.offset >= end
            && handle.offset - end <= MAX_GAP_BYTES
            && (both || end_of(*handle) - start <= MAX_TOGETHER_BYTES);
        if !close {
            return None;
        }
        let Fresh { key, need, waiters } = self.fresh.pop()?;
        match need {
            Need::Block { handle, kind, .. } => Some(Part { key, handle, kind, waiters }),
            Need::Open { .. } | Need::Run(_) | Need::Blob(_) => unreachable!("the last was a block"),
        }
    }

    /// Ready as soon as at least one result has been delivered. Polls everything in flight.
    pub fn poll(&mut self, cx: &mut Context<'_>, ctx: &ReadCtx<'_>, deliver: &mut Deliver<'_>) -> Poll<()> {
        assert!(!self.is_empty(), "a step stopped without recording what it needs");
        let mut delivered = false;
        let mut index = 0;
        while index < self.running.len() {
            if !self.running[index].poll(cx, ctx, &mut self.fetched, self.read_micros, deliver) {
                index += 1;
                continue;
            }
            self.running.swap_remove(index);
            delivered = true;
        }
        if delivered { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Counts the blocks that a finished batch read on each level.
    pub fn count_levels(&self, ctx: &ReadCtx<'_>) {
        let stats = ctx.stats();
        if !stats.enabled() {
            return;
        }
        let mut levels = 0;
        for &(metadata, data) in &self.fetched {
            if metadata > 0 {
                stats.measure(HistogramKind::NumIndexAndFilterBlocksReadPerLevel, u64::from(metadata));
            }
            if data > 0 {
                stats.measure(HistogramKind::NumSstReadPerLevel, u64::from(data));
                levels += 1;
            }
        }
        if levels > 0 {
            stats.measure(HistogramKind::NumLevelReadPerMultiget, levels);
        }
    }

    /// Polls fetches in flight once, without waiting.
    pub(crate) fn poll_now(&mut self, cx: &mut Context<'_>, ctx: &ReadCtx<'_>, deliver: &mut Deliver<'_>) {
        if !self.is_empty() {
            let _ = self.poll(cx, ctx, deliver);
        }
    }
}

impl Fetch {
    /// Returns true once all results of the fetch have been delivered.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        ctx: &ReadCtx<'_>,
        fetched: &mut [(u32, u32); LEVELS_COUNTED],
        read_micros: HistogramKind,
        deliver: &mut Deliver<'_>,
    ) -> bool {
        match self {
            Fetch::Task { key, waiters, task } => {
                let Poll::Ready(result) = task.as_mut().poll(cx) else { return false };
                hand_out(waiters, *key, result, deliver);
            }
            Fetch::Run { key, waiters, read, began, .. } => {
                let Poll::Ready(result) = Pin::new(read).poll(cx) else { return false };
                measure_read(ctx, *began, read_micros, result.is_err());
                if let Ok(bytes) = &result {
                    ctx.stats().measure(HistogramKind::AsyncReadBytes, bytes.len() as u64);
                }
                hand_out(waiters, *key, result.map(Held::Bytes).map_err(Error::from), deliver);
            }
            Fetch::Blocks { table, start, parts, read, began, charge } => {
                let Poll::Ready(result) = Pin::new(read).poll(cx) else { return false };
                *charge = None;
                measure_read(ctx, *began, read_micros, result.is_err());
                match result {
                    Ok(bytes) => {
                        ctx.stats().measure(HistogramKind::AsyncReadBytes, bytes.len() as u64);
                        let level = (table.level() as usize).min(LEVELS_COUNTED - 1);
                        for part in parts {
                            let count = &mut fetched[level];
                            *(if part.kind.is_metadata() { &mut count.0 } else { &mut count.1 }) += 1;
                            let from = (part.handle.offset - *start) as usize;
                            let to = from + part.handle.size as usize + BLOCK_TRAILER_BYTES;
                            let result = match bytes.get(from..to) {
                                Some(bytes) => table.decode(ctx, part.handle, part.kind, bytes),
                                None => Err(table.truncated(part.handle, part.kind)),
                            };
                            ctx.measure_since(HistogramKind::ReadBlockGetMicros, began.at);
                            hand_out(&part.waiters, part.key, result.map(Held::Block), deliver);
                        }
                    }
                    Err(error) => {
                        let error = Error::from(error);
                        for part in parts {
                            hand_out(&part.waiters, part.key, Err(error.clone()), deliver);
                        }
                    }
                }
            }
        }
        true
    }
}

/// Records a read's time, and its failure.
fn measure_read(ctx: &ReadCtx<'_>, began: Began, read_micros: HistogramKind, failed: bool) {
    ctx.stop(began.timer, PerfMetric::BlockReadTime);
    let shared = &ctx.tables.shared;
    shared.stats.measure_since(&shared.env, &[HistogramKind::SstReadMicros, read_micros], began.at);
    if failed {
        ctx.stats().tick(Ticker::AsyncReadErrorCount);
    }
}

fn end_of(handle: BlockHandle) -> u64 {
    handle.offset + handle.size + BLOCK_TRAILER_BYTES as u64
}

fn hand_out(waiters: &[Waiter], key: NeedKey, result: Result<Held>, deliver: &mut Deliver<'_>) {
    if let Some((last, rest)) = waiters.split_last() {
        for waiter in rest {
            deliver(*waiter, key, result.clone());
        }
        deliver(*last, key, result);
    }
}
