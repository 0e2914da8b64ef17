//! Reading ahead of a scan: which blocks to ask for before they are needed.
//!
//! In: the scan's position in the index, each time it enters a block in order. Out: wants in [`Pending`], as many as the
//! window holds; the fetch loop starts them together and neighbours in one read.
//!
//! The window opens when a scan has read a few blocks in order, doubles with each refill up to the table option
//! `max_auto_readahead_size`, and beyond that for as long as the scan waits noticeably for blocks it had asked for (the storage
//! has more latency than the window covers), up to [`MOST_BYTES`]. A seek closes it.
//!
//! Invariant: every want is either taken by the scan, in order, or released.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use karst_format::handle::BlockHandle;
use karst_mem::CacheKey;

use crate::read::iter::Bounds;
use crate::read::iter::index_position::IndexPosition;
use crate::stats::Ticker;
use crate::table::Table;
use crate::table::context::ReadCtx;
use crate::table::pending::Pending;

/// The widest window, in bytes. Why: 4 MiB in flight cover 1 ms at 4 GB/s.
const MOST_BYTES: u64 = 4 << 20;

/// A wait longer than this is evidence that the window is too small. Why: what only has to be copied from the page cache
/// takes less, and a wider window would not make it faster.
const NOTICEABLE: Duration = Duration::from_micros(50);

/// How a column family's scans read ahead: its table options and the read's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadaheadLimits {
    /// The first window, in bytes.
    pub(crate) initial_bytes: u64,
    /// The widest window that needs no evidence of waiting, in bytes.
    pub(crate) max_bytes: u64,
    /// Blocks read in order before the window opens.
    pub(crate) blocks_before: u32,
}

impl ReadaheadLimits {
    /// One window of this size from the first block on.
    pub(crate) fn fixed(bytes: u64) -> Self {
        ReadaheadLimits { initial_bytes: bytes, max_bytes: bytes, blocks_before: 0 }
    }

    /// No reading ahead.
    pub(crate) fn off() -> Self {
        ReadaheadLimits { initial_bytes: 0, max_bytes: 0, blocks_before: u32::MAX }
    }
}

/// How far one scan reads ahead.
#[derive(Debug)]
pub(super) struct Readahead {
    limits: ReadaheadLimits,
    window_bytes: u64,
    max_bytes: u64,
    in_order: u32,
    forward: bool,
    /// Behind the last block asked for; `None` while nothing is.
    ahead: Option<IndexPosition>,
    /// There is nothing to ask for behind `ahead`.
    at_end: bool,
    /// Asked for and not yet taken, in order.
    asked: VecDeque<(CacheKey, BlockHandle)>,
    asked_bytes: u64,
    /// Since when the scan waits for the front of `asked`.
    waiting_since: Option<Duration>,
}

impl Readahead {
    pub(super) fn new(limits: ReadaheadLimits) -> Self {
        Readahead {
            limits,
            window_bytes: limits.initial_bytes,
            max_bytes: limits.max_bytes,
            in_order: 0,
            forward: true,
            ahead: None,
            at_end: false,
            asked: VecDeque::new(),
            asked_bytes: 0,
            waiting_since: None,
        }
    }

    /// Whether the window is open before there is evidence of a scan.
    pub(super) fn starts_at_once(&self) -> bool {
        self.limits.blocks_before == 0
    }

    /// The scan goes elsewhere: give up what was asked for, and start small again.
    pub(super) fn close(&mut self, pending: &mut Pending) {
        self.drop_asked(pending);
        self.in_order = 0;
        self.window_bytes = self.limits.initial_bytes;
        self.max_bytes = self.limits.max_bytes;
    }

    /// The scan goes on in another file. With `adaptive_readahead` the window stays as it is.
    pub(super) fn change_file(&mut self, pending: &mut Pending, adaptive: bool) {
        if adaptive {
            self.drop_asked(pending);
        } else {
            self.close(pending);
        }
    }

    fn drop_asked(&mut self, pending: &mut Pending) {
        for (key, _) in self.asked.drain(..) {
            pending.release_key(key);
        }
        self.asked_bytes = 0;
        self.ahead = None;
        self.at_end = false;
        self.waiting_since = None;
    }

    /// The scan needs the block at `handle` and has to wait for it.
    pub(super) fn note_wait(&mut self, ctx: &ReadCtx<'_>, handle: BlockHandle) {
        if self.waiting_since.is_none()
            && self.asked.front().is_some_and(|(_, front)| front.offset == handle.offset)
        {
            self.waiting_since = Some(ctx.tables.shared.env.now());
        }
    }

    /// The scan has entered the block at `position`, the neighbour of the one before. Ask for what comes next.
    pub(super) fn entered(
        &mut self,
        table: &Arc<Table>,
        ctx: &ReadCtx<'_>,
        pending: &mut Pending,
        position: &IndexPosition,
        forward: bool,
        bounds: &Bounds,
    ) {
        if forward != self.forward {
            self.close(pending);
            self.forward = forward;
        }
        self.in_order = self.in_order.saturating_add(1);
        let waited = self.waiting_since.take().map(|since| ctx.tables.shared.env.now().saturating_sub(since));
        if waited.is_some_and(|waited| waited > NOTICEABLE) {
            self.max_bytes = (self.max_bytes * 2).min(MOST_BYTES.max(self.limits.max_bytes));
        }
        let handle = position.handle();
        if self.asked.front().is_some_and(|(_, front)| front.offset == handle.offset) {
            self.asked.pop_front();
            self.asked_bytes -= handle.size;
            ctx.stats().record(Ticker::PrefetchBytesUseful, handle.size);
        } else if !self.asked.is_empty() {
            self.drop_asked(pending);
        }
        if self.in_order <= self.limits.blocks_before
            || self.at_end
            || self.asked_bytes * 2 > self.window_bytes
        {
            return;
        }
        self.refill(table, ctx, pending, position, bounds);
        self.window_bytes = (self.window_bytes * 2).min(self.max_bytes);
    }

    fn refill(
        &mut self,
        table: &Arc<Table>,
        ctx: &ReadCtx<'_>,
        pending: &mut Pending,
        position: &IndexPosition,
        bounds: &Bounds,
    ) {
        let forward = self.forward;
        let ahead = self.ahead.get_or_insert_with(|| position.clone());
        while self.asked_bytes < self.window_bytes {
            if forward
                && ctx.options.auto_readahead_size
                && bounds.upper_excludes(table.comparator(), ahead.separator(table))
            {
                ctx.stats().tick(Ticker::ReadaheadTrimmed);
                self.at_end = true;
                return;
            }
            // Why errors end it without a word: the scan meets them itself, if it gets there.
            let moved = ahead.step(table, forward).unwrap_or(false);
            match moved.then(|| ahead.settle(table, ctx, pending, &[])) {
                Some(Ok(true)) => {}
                _ => {
                    // A partition that is not in memory has just been asked for; the next refill starts over from the scan's own place.
                    self.at_end = !moved;
                    if moved {
                        self.ahead = None;
                    }
                    return;
                }
            }
            let handle = ahead.handle();
            let key = table.cache_key(handle);
            // Where a refill starts over from the scan's place, it comes by what was asked for before.
            let asked_before = self.asked.back().is_some_and(|(_, last)| {
                if forward { handle.offset <= last.offset } else { handle.offset >= last.offset }
            });
            if asked_before {
                continue;
            }
            if !pending.want_block(ctx, table, handle) {
                ctx.stats().record(Ticker::PrefetchBytes, handle.size);
            }
            self.asked.push_back((key, handle));
            self.asked_bytes += handle.size;
        }
    }
}
