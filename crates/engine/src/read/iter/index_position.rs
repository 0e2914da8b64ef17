//! A position in a table's index, whole or partitioned; yields the data blocks in either direction.
//!
//! In: seeks and moves. Out: handles of data blocks, in key order. If a partition is not in memory,
//! [`IndexPosition::settle`] stops with a need; the move itself has been made by then and is not
//! repeated.
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

/// Target of a seek, or of a step into the next block or partition.
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
    /// Returns true if the iteration continues forward from there.
    pub(super) fn is_forward(self) -> bool {
        matches!(self, To::First | To::AtOrAfter)
    }

    /// Returns the target in the neighbour of a block or partition that has no entry at this
    /// target.
    pub(super) fn in_neighbour(self) -> To {
        if self.is_forward() { To::First } else { To::Last }
    }
}

/// The entry of the index that leads to the current data block.
#[derive(Clone, Debug, Default)]
pub(super) struct IndexPosition {
    top: IndexCursor,
    /// The index block, unless the table holds it.
    top_block: Option<BlockRef>,
    inner: IndexCursor,
    partition: Option<BlockRef>,
    /// The partition under `top` has to be loaded, and `inner` placed in it.
    enter: Option<To>,
}

impl IndexPosition {
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

    /// Completes a seek or a move; returns true if there is a block. [`IndexPosition::handle`] is
    /// then its handle.
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

    /// Moves to the next or the previous block; returns true if there is one, as far as known
    /// before [`IndexPosition::settle`].
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

    /// The handle of the current data block. The position must be settled.
    pub(super) fn handle(&self) -> BlockHandle {
        debug_assert!(self.enter.is_none(), "the position is settled");
        if self.partition.is_some() { self.inner.handle() } else { self.top.handle() }
    }

    /// A user key at or behind every entry of the current block and at or before every entry of the
    /// next block.
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

/// Returns a block for a cursor that holds it itself: `needs` keeps no reference to it.
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
