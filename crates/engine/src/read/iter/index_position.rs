//! A position in a table's index, whole or partitioned: which data block comes next, in either
//! direction.
//!
//! In: seeks and moves. Out: handles of data blocks, in key order. A partition that is not in
//! memory stops [`IndexPosition::settle`] with a need; the move itself has happened by then and is
//! not repeated.
//!
//! Invariant: the cursors move in one direction between seeks, so a damaged index cannot make an
//! iteration endless.

use karst_base::error::Result;
use karst_format::handle::BlockHandle;
use karst_format::index::{IndexBlock, IndexCursor};
use karst_storage::block::{BlockKind, BlockRef};
use karst_storage::table::Table;
use karst_storage::table::context::ReadCtx;
use karst_storage::table::needs::{Needs, Stop};
use std::sync::Arc;

/// Where to stand after a seek, or after stepping into the next block or partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum To {
    First,
    Last,
    /// The first entry at or behind the target.
    AtOrAfter,
    /// The last entry at or before the target.
    AtOrBefore,
}

impl To {
    /// Whether the iteration goes on forwards from there.
    pub(super) fn is_forward(self) -> bool {
        matches!(self, To::First | To::AtOrAfter)
    }

    /// Where to stand in the neighbour of a block or partition that has nothing there.
    pub(super) fn in_neighbour(self) -> To {
        if self.is_forward() { To::First } else { To::Last }
    }
}

/// The entry of the index that leads to the current data block.
#[derive(Clone, Debug, Default)]
pub(super) struct IndexPosition {
    top: IndexCursor,
    /// The index block, if the table does not hold it itself.
    top_block: Option<BlockRef>,
    inner: IndexCursor,
    partition: Option<BlockRef>,
    /// The partition under `top` has to be loaded, and `inner` placed in it.
    enter: Option<To>,
}

impl IndexPosition {
    /// Stand at the block for `to`; whether there is one. Stops when the index block has to be
    /// fetched first, and then nothing has changed.
    pub(super) fn seek(
        &mut self,
        table: &Arc<Table>,
        ctx: &ReadCtx<'_>,
        needs: &mut Needs,
        to: To,
        target: &[u8],
    ) -> Result<bool, Stop> {
        if self.top_block.is_none() && table.held_index().is_none() {
            self.top_block = Some(take_block(table, ctx, needs, table.index_handle(), BlockKind::Index)?);
        }
        self.partition = None;
        self.enter = None;
        let (index, top) = (top_index(&self.top_block, table), &mut self.top);
        let found = place(top, index, table, table.index_handle(), to, target)?;
        if found && table.index_is_partitioned() {
            self.enter = Some(to);
        }
        Ok(found)
    }

    /// Finish what a seek or a move has begun; whether there is a block at all. Then
    /// [`IndexPosition::handle`] is its handle.
    pub(super) fn settle(
        &mut self,
        table: &Arc<Table>,
        ctx: &ReadCtx<'_>,
        needs: &mut Needs,
        target: &[u8],
    ) -> Result<bool, Stop> {
        while let Some(to) = self.enter {
            let handle = self.top.handle();
            let partition = take_block(table, ctx, needs, handle, BlockKind::IndexPartition)?;
            let found = place(&mut self.inner, partition.as_index(), table, handle, to, target)?;
            self.partition = Some(partition);
            self.enter = None;
            if !found && !self.step_top(table, to.is_forward())? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Move to the next or the previous block; whether there is one, as far as can be told before
    /// [`IndexPosition::settle`].
    pub(super) fn step(&mut self, table: &Arc<Table>, forward: bool) -> Result<bool> {
        let Some(partition) = &self.partition else { return self.step_top(table, forward) };
        let (index, inner) = (partition.as_index(), &mut self.inner);
        let moved = if forward { inner.next(index) } else { inner.prev(index) };
        Ok(moved.map_err(|c| table.corrupt(self.top.handle(), c))? || self.step_top(table, forward)?)
    }

    fn step_top(&mut self, table: &Arc<Table>, forward: bool) -> Result<bool> {
        let index = top_index(&self.top_block, table);
        let moved = if forward { self.top.next(index) } else { self.top.prev(index) };
        let moved = moved.map_err(|c| table.corrupt(table.index_handle(), c))?;
        self.partition = None;
        if moved && table.index_is_partitioned() {
            self.enter = Some(if forward { To::First } else { To::Last });
        }
        Ok(moved)
    }

    /// The current data block. The position must be settled.
    pub(super) fn handle(&self) -> BlockHandle {
        debug_assert!(self.enter.is_none(), "the position is settled");
        if self.partition.is_some() { self.inner.handle() } else { self.top.handle() }
    }

    /// A user key that no entry of the current block is behind, and that no entry of the next block
    /// is before.
    pub(super) fn separator<'a>(&'a self, table: &'a Arc<Table>) -> &'a [u8] {
        match &self.partition {
            Some(partition) => self.inner.user_key(partition.as_index()),
            None => self.top.user_key(top_index(&self.top_block, table)),
        }
    }
}

fn top_index<'a>(block: &'a Option<BlockRef>, table: &'a Arc<Table>) -> &'a IndexBlock {
    let held = || table.held_index().expect("an index that the table does not hold is fetched by the seek");
    block.as_deref().unwrap_or_else(held).as_index()
}

fn place(
    cursor: &mut IndexCursor,
    index: &IndexBlock,
    table: &Arc<Table>,
    handle: BlockHandle,
    to: To,
    target: &[u8],
) -> Result<bool> {
    let comparator = table.comparator();
    let placed = match to {
        To::First => cursor.seek_to_first(index),
        To::Last => cursor.seek_to_last(index),
        To::AtOrAfter => cursor.seek(index, comparator, target),
        To::AtOrBefore => match cursor.seek(index, comparator, target) {
            Ok(false) => cursor.seek_to_last(index),
            found => found,
        },
    };
    placed.map_err(|c| table.corrupt(handle, c))
}

/// A block for a cursor that keeps it itself: nothing of it stays in `needs`.
pub(super) fn take_block(
    table: &Arc<Table>,
    ctx: &ReadCtx<'_>,
    needs: &mut Needs,
    handle: BlockHandle,
    kind: BlockKind,
) -> Result<BlockRef, Stop> {
    let block = needs.block(ctx, table, handle, kind)?;
    needs.release_key(table.cache_key(handle));
    Ok(block)
}
