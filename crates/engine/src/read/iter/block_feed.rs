//! The data blocks of one table in the order of a scan, with readahead, in either direction.
//!
//! In: seeks and steps. Out: handles and decoded blocks, in order. While the scan reads in order,
//! the feed runs ahead of it in the index and requests the next blocks in large reads: neighbouring
//! blocks that are not in the cache make a *run*, which is one read. A block is cut out of its run,
//! verified and decompressed when the scan reaches it, so unused blocks are not decoded, and blocks
//! ahead take no more memory than their bytes in the file.
//!
//! The index is walked once: `edge` is the furthest block ahead, `queue` holds those between it and
//! the scan.
//!
//! Invariants:
//! - `queue` and `runs` are in the order of the scan; a queued block that is not cached lies in the
//!   first run that has blocks left.
//! - The current block is the front of the queue if `in_queue`, otherwise the one at the edge.
//! - Steps move in the direction of the last seek.

use crate::read::iter::Bounds;
use crate::read::iter::index_position::{IndexPosition, To, take_block};
use crate::read::iter::readahead::{ReadaheadLimits, Window};
use crate::read::iter::run::Run;
use karst_base::error::{Error, Result};
use karst_base::stats::Ticker;
use karst_format::handle::{BLOCK_TRAILER_BYTES, BlockHandle};
use karst_storage::block::{BlockKind, BlockRef};
use karst_storage::table::Table;
use karst_storage::table::context::ReadCtx;
use karst_storage::table::needs::{Needs, Stop};
use std::collections::VecDeque;
use std::sync::Arc;

#[derive(Debug)]
struct Queued {
    handle: BlockHandle,
    /// The block, if it was in the cache; otherwise it is in a run.
    cached: Option<BlockRef>,
}

/// Neighbouring blocks, read in one request.
#[derive(Debug)]
struct BlockRun {
    run: Run,
    /// Number of its blocks that are still in the queue.
    blocks_left: u32,
}

/// The blocks of one table in the order of a scan.
#[derive(Debug)]
pub(super) struct BlockFeed {
    edge: IndexPosition,
    /// The edge has left the last block of the queue (or the current one), but not reached the
    /// next, because the next index partition is not in memory.
    edge_is_on_its_way: bool,
    /// The edge has reached the end of the table.
    edge_is_through: bool,
    /// Error that the edge met in the index; the scan reports it if it gets there.
    edge_error: Option<Error>,
    /// No block behind the edge is worth requesting.
    at_end: bool,
    queue: VecDeque<Queued>,
    in_queue: bool,
    runs: VecDeque<BlockRun>,
    /// Total size of the queued blocks behind the current one, in bytes.
    ahead_bytes: u64,
    window: Window,
    forward: bool,
    /// The block that the scan has left; the next block may reuse its memory.
    spare: Option<BlockRef>,
}

impl BlockFeed {
    pub(super) fn new(limits: ReadaheadLimits) -> Self {
        BlockFeed::with_window(Window::new(limits))
    }

    /// Creates the feed of the file behind the one that `before` feeds.
    pub(super) fn in_next_file(before: &BlockFeed, adaptive: bool) -> Self {
        BlockFeed::with_window(before.window.in_next_file(adaptive))
    }

    fn with_window(window: Window) -> Self {
        BlockFeed {
            edge: IndexPosition::default(),
            edge_is_on_its_way: false,
            edge_is_through: false,
            edge_error: None,
            at_end: false,
            queue: VecDeque::new(),
            in_queue: false,
            runs: VecDeque::new(),
            ahead_bytes: 0,
            window,
            forward: true,
            spare: None,
        }
    }

    /// Drops all requests and closes the window, because the scan moves elsewhere.
    pub(super) fn close(&mut self, needs: &mut Needs) {
        self.window.close();
        self.drop_queue(needs);
    }

    /// Closes the feed and its index position, because the scan moves to another table.
    pub(super) fn change_table(&mut self, needs: &mut Needs) {
        self.close(needs);
        self.edge = IndexPosition::default();
    }

    /// Drops all requests, because the scan does not reach their blocks.
    pub(super) fn drop_queue(&mut self, needs: &mut Needs) {
        self.queue.clear();
        self.in_queue = false;
        self.runs.drain(..).for_each(|of| of.run.give_up(needs));
        self.ahead_bytes = 0;
        self.edge_is_on_its_way = false;
        self.edge_is_through = false;
        self.edge_error = None;
        self.at_end = false;
    }

    /// Returns true if readahead has walked the index to its end, in the direction of the scan.
    pub(super) fn has_asked_for_all(&self) -> bool {
        self.edge_is_through && self.window.is_open()
    }

    /// Moves to the block for `to`; returns true if there is one. Stops if the index block has to
    /// be fetched first; nothing has changed then.
    pub(super) fn seek(
        &mut self,
        table: &Arc<Table>,
        ctx: &ReadCtx<'_>,
        needs: &mut Needs,
        to: To,
        target: &[u8],
    ) -> Result<bool, Stop> {
        debug_assert!(self.queue.is_empty(), "a feed is closed before a seek");
        self.forward = to.is_forward();
        self.edge.seek(table, ctx, needs, to, target)
    }

    /// Moves to the next block in the direction of the scan; returns true if there is one, as far
    /// as known before [`BlockFeed::block`].
    pub(super) fn step(&mut self, table: &Arc<Table>) -> Result<bool> {
        if self.in_queue {
            self.leave_front();
        }
        if let Some(front) = self.queue.front() {
            self.in_queue = true;
            self.ahead_bytes -= front.handle.size;
            return Ok(true);
        }
        self.in_queue = false;
        if let Some(error) = &self.edge_error {
            return Err(error.clone());
        }
        if self.edge_is_through {
            return Ok(false);
        }
        if std::mem::take(&mut self.edge_is_on_its_way) {
            return Ok(true);
        }
        self.edge.step(table, self.forward)
    }

    fn leave_front(&mut self) {
        if self.queue.pop_front().is_some_and(|left| left.cached.is_none())
            && let Some(front) = self.runs.front_mut()
        {
            front.blocks_left -= 1;
            if front.blocks_left == 0 {
                self.runs.pop_front();
            }
        }
    }

    /// Returns the current block, or `None` if the index turns out to have no more. Stops if the
    /// block has to be fetched.
    pub(super) fn block(
        &mut self,
        table: &Arc<Table>,
        ctx: &ReadCtx<'_>,
        needs: &mut Needs,
        target: &[u8],
    ) -> Result<Option<(BlockHandle, BlockRef)>, Stop> {
        if self.in_queue {
            return self.queued_block(table, ctx, needs).map(Some);
        }
        if !self.edge.settle(table, ctx, needs, target)? {
            return Ok(None);
        }
        let handle = self.edge.handle();
        Ok(Some((handle, take_block(table, ctx, needs, handle, BlockKind::Data)?)))
    }

    fn queued_block(
        &mut self,
        table: &Arc<Table>,
        ctx: &ReadCtx<'_>,
        needs: &mut Needs,
    ) -> Result<(BlockHandle, BlockRef), Stop> {
        let front = self.queue.front_mut().expect("the current block is queued");
        let handle = front.handle;
        if let Some(block) = &front.cached {
            return Ok((handle, table.checked(block.clone(), handle, BlockKind::Data)?));
        }
        let BlockRun { run, .. } =
            self.runs.front_mut().expect("a queued block that is not cached is in a run");
        let from = (handle.offset - run.start) as usize;
        let bytes = run.bytes(ctx, needs, &mut self.window)?;
        let to = from + handle.size as usize + BLOCK_TRAILER_BYTES;
        let Some(bytes) = bytes.get(from..to) else {
            return Err(table.truncated(handle, BlockKind::Data).into());
        };
        ctx.count_prefetch_hit(handle.size);
        Ok((handle, table.decode_into(ctx, handle, BlockKind::Data, bytes, &mut self.spare)?))
    }

    /// Takes back a block that the scan has left, to reuse its memory.
    pub(super) fn recycle(&mut self, block: Option<BlockRef>) {
        self.spare = block.filter(|block| block.is_alone());
    }

    /// Records that the scan has entered the current block (`in_order` as in `Goal::Load`),
    /// and requests the next blocks.
    pub(super) fn entered(
        &mut self,
        table: &Arc<Table>,
        ctx: &ReadCtx<'_>,
        needs: &mut Needs,
        in_order: bool,
        bounds: &Bounds,
    ) {
        if !in_order && !self.window.starts_at_once() {
            return;
        }
        self.window.note_block(ctx);
        if !self.at_end
            && let Some(more) = self.window.refill(ctx, self.ahead_bytes)
        {
            self.refill(table, ctx, needs, bounds, self.ahead_bytes + more);
            self.window.grow();
        }
    }

    /// Requests the next blocks until about `up_to` bytes are ahead ([`Window::is_filled`]).
    fn refill(
        &mut self,
        table: &Arc<Table>,
        ctx: &ReadCtx<'_>,
        needs: &mut Needs,
        bounds: &Bounds,
        up_to: u64,
    ) {
        let asked_for = self.runs.len();
        loop {
            let last_request = self.runs.range(asked_for..).next_back().map_or(0, |of| of.run.len());
            if self.window.is_filled(up_to.saturating_sub(self.ahead_bytes), last_request)
                || !self.advance_edge(table, ctx, needs, bounds)
            {
                break;
            }
            let handle = self.edge.handle();
            if !self.enqueue(table, ctx, handle) {
                // A handle outside the file is left for the scan to report, if it gets there.
                self.edge_is_on_its_way = true;
                self.at_end = true;
                break;
            }
        }
        let asked = self.runs.iter_mut().skip(asked_for);
        asked.for_each(|of| of.run.ask(ctx, needs, table.file(), Some(table)));
    }

    /// Moves the edge by one block; returns false if no further block may be requested yet.
    fn advance_edge(
        &mut self,
        table: &Arc<Table>,
        ctx: &ReadCtx<'_>,
        needs: &mut Needs,
        bounds: &Bounds,
    ) -> bool {
        let trims = ctx.options.auto_readahead_size;
        if !self.edge_is_on_its_way {
            if self.forward && trims && bounds.upper_excludes(table.comparator(), self.edge.separator(table))
            {
                ctx.stats().tick(Ticker::ReadaheadTrimmed);
                self.at_end = true;
                return false;
            }
            match self.edge.step(table, self.forward) {
                Ok(true) => self.edge_is_on_its_way = true,
                Ok(false) => return self.end_ahead(None),
                Err(error) => return self.end_ahead(Some(error)),
            }
        }
        match self.edge.settle(table, ctx, needs, &[]) {
            Ok(true) => {}
            Ok(false) => return self.end_ahead(None),
            // The partition has been requested; the next refill continues there.
            Err(Stop::Need) => return false,
            Err(Stop::Error(error)) => return self.end_ahead(Some(error)),
        }
        // Every key of the block is at or before its separator.
        if !self.forward && trims && bounds.lower_excludes(table.comparator(), self.edge.separator(table)) {
            ctx.stats().tick(Ticker::ReadaheadTrimmed);
            self.at_end = true;
            return false;
        }
        self.edge_is_on_its_way = false;
        true
    }

    fn end_ahead(&mut self, error: Option<Error>) -> bool {
        self.edge_is_on_its_way = false;
        self.edge_is_through = error.is_none();
        self.edge_error = error;
        self.at_end = true;
        false
    }

    /// Appends the block at `handle` to the queue; returns false if it is not inside the file.
    fn enqueue(&mut self, table: &Arc<Table>, ctx: &ReadCtx<'_>, handle: BlockHandle) -> bool {
        let cached = ctx.cache().get(table.cache_key(handle));
        match &cached {
            Some(block) => ctx.count_cache_hit(BlockKind::Data, block, table.level()),
            None => {
                if table.check_bounds(handle).is_err() {
                    return false;
                }
                ctx.count_cache_miss(BlockKind::Data, table.level());
                self.add_to_run(handle);
            }
        }
        self.queue.push_back(Queued { handle, cached });
        self.ahead_bytes += handle.size;
        true
    }

    fn add_to_run(&mut self, handle: BlockHandle) {
        let (start, end) = (handle.offset, handle.offset + handle.size + BLOCK_TRAILER_BYTES as u64);
        // The last block may exceed the request size, because a request cut before it would leave
        // it to a request of its own.
        if let Some(last) = self.runs.back_mut()
            && last.run.is_close_to(start, end, self.forward)
            && last.run.len() < self.window.request_bytes()
        {
            last.run.extend(start, end);
            last.blocks_left += 1;
            return;
        }
        self.runs.push_back(BlockRun { run: Run::new(start, end), blocks_left: 1 });
    }
}
