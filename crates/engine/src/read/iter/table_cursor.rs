//! A resumable iterator over one table.
//!
//! In: a file of a version; seeks and moves. Out: internal keys and values in order, in either
//! direction. A call to `begin_*` only sets the target (and moves at once if that is inside the
//! current block); [`TableCursor::settle`] completes the move and may stop for a block that has to
//! be fetched. Calling `settle` again continues; nothing is applied twice.
//!
//! Invariant: `key` and `value` are called only when the cursor is settled and valid.

use crate::read::iter::block_feed::BlockFeed;
use crate::read::iter::index_position::To;
use crate::read::iter::readahead::ReadaheadLimits;
use crate::read::iter::{Bounds, PrefixFilter};
use karst_base::error::Result;
use karst_format::block::BlockCursor;
use karst_format::handle::BlockHandle;
use karst_lsm::FileMetadata;
use karst_storage::block::BlockRef;
use karst_storage::table::Table;
use karst_storage::table::context::ReadCtx;
use karst_storage::table::needs::{Needs, Stop};
use karst_storage::value::Value;
use std::sync::Arc;

/// Work left until the cursor is at its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goal {
    /// Nothing: the cursor is at an entry, or has none.
    Settled,
    /// Open the table, and consult its prefix filter.
    Start(To),
    /// Search its index.
    Seek(To),
    /// Load the feed's current block, then move to the target in it. `true` if the block comes in
    /// order: the neighbour of the last one, or the first of the scan.
    Load(To, bool),
}

/// An iterator over one table.
#[derive(Debug)]
pub(super) struct TableCursor {
    file: Arc<FileMetadata>,
    level: u32,
    table: Option<Arc<Table>>,
    /// The reader's `table_filter` rejects the table: it is treated as empty.
    passed_by: bool,
    goal: Goal,
    valid: bool,
    target: Vec<u8>,
    feed: BlockFeed,
    handle: BlockHandle,
    block: Option<BlockRef>,
    cursor: BlockCursor,
    /// A cursor ahead of `cursor` in the current block, once `entry_ahead` was called.
    scout: Option<Scout>,
}

/// A second position in a block.
#[derive(Debug)]
struct Scout {
    cursor: BlockCursor,
    /// Direction in which it has reached the end of the block.
    through: Option<bool>,
}

impl TableCursor {
    pub(super) fn new(file: Arc<FileMetadata>, level: u32, readahead: ReadaheadLimits) -> Self {
        TableCursor::with_feed(file, level, BlockFeed::new(readahead))
    }

    /// Creates a cursor at the near end of `file`, which continues the scan of `before`; with
    /// `adaptive`, the readahead window keeps its width.
    pub(super) fn continuing(before: &TableCursor, file: &Arc<FileMetadata>, to: To, adaptive: bool) -> Self {
        let feed = BlockFeed::in_next_file(&before.feed, adaptive);
        let mut cursor = TableCursor::with_feed(file.clone(), before.level, feed);
        cursor.goal = Goal::Start(to);
        cursor
    }

    fn with_feed(file: Arc<FileMetadata>, level: u32, feed: BlockFeed) -> Self {
        TableCursor {
            file,
            level,
            table: None,
            passed_by: false,
            goal: Goal::Settled,
            valid: false,
            target: Vec::new(),
            feed,
            handle: BlockHandle::default(),
            block: None,
            cursor: BlockCursor::new(),
            scout: None,
        }
    }

    /// Switches to another file of the level; a seek follows.
    pub(super) fn change_file(&mut self, file: &Arc<FileMetadata>, needs: &mut Needs) {
        self.feed.change_table(needs);
        self.file = file.clone();
        self.table = None;
        self.valid = false;
        self.goal = Goal::Settled;
        self.block = None;
        self.cursor = BlockCursor::new();
        self.scout = None;
    }

    /// Drops all requests, because the scan does not reach this file or has left it.
    pub(super) fn give_up(&mut self, needs: &mut Needs) {
        self.feed.drop_queue(needs);
    }

    /// Returns true if readahead has reached the end of the file.
    pub(super) fn has_asked_for_all(&self) -> bool {
        self.feed.has_asked_for_all()
    }

    /// The open table, once the cursor has settled for the first time.
    pub(super) fn table(&self) -> Option<&Arc<Table>> {
        self.table.as_ref()
    }

    pub(super) fn file(&self) -> &Arc<FileMetadata> {
        &self.file
    }

    /// Starts a move to `to`; `target` is the internal key of a seek.
    pub(super) fn begin(&mut self, to: To, target: &[u8], needs: &mut Needs) {
        self.feed.close(needs);
        self.target.clear();
        self.target.extend_from_slice(target);
        self.valid = false;
        self.scout = None;
        self.goal = Goal::Start(to);
    }

    /// Starts a move to the next entry. The cursor must be valid.
    #[inline]
    pub(super) fn begin_next(&mut self) -> Result<()> {
        let (Some(block), Some(table)) = (&self.block, &self.table) else {
            unreachable!("the cursor is valid")
        };
        match self.cursor.next(block.as_data()) {
            Ok(true) => Ok(()),
            Ok(false) => self.leave_block(true),
            Err(c) => Err(table.corrupt(self.handle, c)),
        }
    }

    /// Starts a move to the previous entry. The cursor must be valid.
    #[inline]
    pub(super) fn begin_prev(&mut self) -> Result<()> {
        let (Some(block), Some(table)) = (&self.block, &self.table) else {
            unreachable!("the cursor is valid")
        };
        match self.cursor.prev(block.as_data()) {
            Ok(true) => Ok(()),
            Ok(false) => self.leave_block(false),
            Err(c) => Err(table.corrupt(self.handle, c)),
        }
    }

    #[cold]
    fn leave_block(&mut self, forward: bool) -> Result<()> {
        self.valid = false;
        self.scout = None;
        self.feed.recycle(self.block.take());
        let table = self.table.as_ref().expect("a block was loaded from it");
        self.goal = if self.feed.step(table)? {
            Goal::Load(if forward { To::First } else { To::Last }, true)
        } else {
            Goal::Settled
        };
        Ok(())
    }

    /// Returns true if the cursor has nothing left to do.
    #[inline]
    pub(super) fn is_settled(&self) -> bool {
        self.goal == Goal::Settled
    }

    /// Completes the move that the last `begin` started, as far as data in memory allows.
    pub(super) fn settle(
        &mut self,
        ctx: &ReadCtx<'_>,
        needs: &mut Needs,
        prefix: &PrefixFilter,
        bounds: &Bounds,
    ) -> Result<(), Stop> {
        loop {
            match self.goal {
                Goal::Settled => return Ok(()),
                Goal::Start(to) => {
                    let table = self.open(ctx, needs)?;
                    if self.passed_by {
                        self.goal = Goal::Settled;
                        return Ok(());
                    }
                    if to == To::AtOrAfter && !prefix.may_match(&table, ctx, needs, &self.target)? {
                        self.goal = Goal::Settled;
                        return Ok(());
                    }
                    self.goal = Goal::Seek(to);
                }
                Goal::Seek(to) => {
                    let table = self.open(ctx, needs)?;
                    let found = self.feed.seek(&table, ctx, needs, to, &self.target)?;
                    let in_order = matches!(to, To::First | To::Last);
                    self.goal = if found { Goal::Load(to, in_order) } else { Goal::Settled };
                }
                Goal::Load(to, in_order) => self.load(ctx, needs, to, in_order, bounds)?,
            }
        }
    }

    fn open(&mut self, ctx: &ReadCtx<'_>, needs: &mut Needs) -> Result<Arc<Table>, Stop> {
        if let Some(table) = &self.table {
            return Ok(table.clone());
        }
        let table: Arc<Table> = needs.table(ctx, &self.file, self.level)?.clone();
        self.cursor = match table.global_seqno() {
            Some(seq) => BlockCursor::with_global_seqno(seq),
            None => BlockCursor::new(),
        };
        let filter = ctx.options.table_filter.as_ref();
        self.passed_by = filter.is_some_and(|filter| !filter.wants(table.properties()));
        self.table = Some(table.clone());
        Ok(table)
    }

    fn load(
        &mut self,
        ctx: &ReadCtx<'_>,
        needs: &mut Needs,
        to: To,
        in_order: bool,
        bounds: &Bounds,
    ) -> Result<(), Stop> {
        let table = self.table.clone().expect("the table was opened before its index was searched");
        let Some((handle, block)) = self.feed.block(&table, ctx, needs, &self.target)? else {
            self.goal = Goal::Settled;
            return Ok(());
        };
        let data = block.as_data();
        let found = match to {
            To::First => self.cursor.seek_to_first(data),
            To::Last => self.cursor.seek_to_last(data),
            To::AtOrAfter => self.cursor.seek(data, table.comparator(), &self.target),
            To::AtOrBefore => self.cursor.seek_for_prev(data, table.comparator(), &self.target),
        }
        .map_err(|c| table.corrupt(handle, c))?;
        self.feed.entered(&table, ctx, needs, in_order, bounds);
        self.goal = Goal::Settled;
        if found {
            self.handle = handle;
            self.block = Some(block);
            self.valid = true;
        } else if self.feed.step(&table)? {
            self.goal = Goal::Load(to.in_neighbour(), true);
        }
        Ok(())
    }

    /// Returns true if the cursor is at an entry.
    #[inline]
    pub(super) fn valid(&self) -> bool {
        self.valid
    }

    /// The internal key.
    #[inline]
    pub(super) fn key(&self) -> &[u8] {
        self.cursor.key(self.block.as_ref().expect("the cursor is valid").as_data())
    }

    /// The value as it is stored.
    #[inline]
    pub(super) fn value(&self) -> &[u8] {
        self.cursor.value(self.block.as_ref().expect("the cursor is valid").as_data())
    }

    /// The current key and value.
    #[inline]
    pub(super) fn entry(&self) -> (&[u8], &[u8]) {
        let data = self.block.as_ref().expect("the cursor is valid").as_data();
        (self.cursor.key(data), self.cursor.value(data))
    }

    /// Returns the next entry of the current block for a caller that looks ahead in this direction:
    /// the current one, or the one behind the last passed. The cursor must be valid.
    pub(super) fn entry_ahead(&mut self, forward: bool) -> Option<(&[u8], &[u8])> {
        let data = self.block.as_ref().expect("the cursor is valid").as_data();
        let here = self.cursor.entry_offset();
        let was_passed = |scout: &Scout| {
            let there = scout.cursor.entry_offset();
            if forward { there < here } else { there > here }
        };
        if self.scout.as_ref().is_none_or(was_passed) {
            self.scout = Some(Scout { cursor: self.cursor.clone(), through: None });
        }
        let scout = self.scout.as_ref().filter(|scout| scout.through != Some(forward))?;
        scout.cursor.valid().then(|| (scout.cursor.key(data), scout.cursor.value(data)))
    }

    /// Passes the entry that [`entry_ahead`](Self::entry_ahead) returned.
    pub(super) fn pass_entry_ahead(&mut self, forward: bool) {
        let data = self.block.as_ref().expect("the cursor is valid").as_data();
        let Some(scout) = &mut self.scout else { return };
        let moved = if forward { scout.cursor.next(data) } else { scout.cursor.prev(data) };
        // A damaged entry is left for the scan to report, if it gets there.
        if !moved.unwrap_or(false) {
            scout.through = Some(forward);
        }
    }

    /// The value, with a pin on its memory.
    pub(super) fn pin_value(&self) -> Value {
        let block = self.block.as_ref().expect("the cursor is valid");
        Value::in_block(block.clone(), self.cursor.value_range())
    }
}
