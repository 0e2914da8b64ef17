//! An iterator over one level below L0, whose files do not overlap: one table after the other.
//!
//! Like [`TableCursor`]: `begin_*` sets the target, `settle` completes the move and may be called
//! again. Invariant: files are entered in order, also those that turn out to hold range tombstones
//! only, so that the merging iterator has seen every file's tombstones before it reaches a key
//! inside the file's boundaries.

use crate::read::iter::index_position::To;
use crate::read::iter::readahead::ReadaheadLimits;
use crate::read::iter::table_cursor::TableCursor;
use crate::read::iter::{Bounds, PrefixFilter};
use karst_base::error::Result;
use karst_format::comparator::Comparator;
use karst_format::key;
use karst_lsm::LevelFiles;
use karst_storage::table::Table;
use karst_storage::table::context::ReadCtx;
use karst_storage::table::needs::{Needs, Stop};
use std::sync::Arc;

/// An iterator over one sorted level, or over some of its files.
#[derive(Debug)]
pub(super) struct LevelCursor {
    files: Arc<LevelFiles>,
    comparator: Comparator,
    /// The current file; `None` before the first and behind the last.
    index: Option<usize>,
    table: TableCursor,
    /// The index of the next file in the direction of the scan, and its cursor, opened and read
    /// ahead while the current file ends; no cursor if that has failed.
    successor: Option<(usize, Option<Box<TableCursor>>)>,
    forward: bool,
}

impl LevelCursor {
    /// Creates a cursor over at least one file.
    pub(super) fn new(files: &Arc<LevelFiles>, comparator: &Comparator, readahead: ReadaheadLimits) -> Self {
        let first = files.files()[0].clone();
        LevelCursor {
            table: TableCursor::new(first, u32::from(files.level().0), readahead),
            files: files.clone(),
            comparator: comparator.clone(),
            index: None,
            successor: None,
            forward: true,
        }
    }

    /// The smallest and the largest user key of the files.
    pub(super) fn boundaries(&self) -> [&[u8]; 2] {
        let files = self.files.files();
        [files[0].smallest_user_key(), files[files.len() - 1].largest_user_key()]
    }

    /// Starts a move to `to`; `target` is the internal key of a seek.
    pub(super) fn begin(&mut self, to: To, target: &[u8], needs: &mut Needs) {
        self.forward = to.is_forward();
        let comparator = &self.comparator;
        let (files, count) = (&self.files, self.files.len());
        let index = match to {
            To::First => Some(0),
            To::Last => Some(count - 1),
            To::AtOrAfter => {
                let (user_key, trailer) = key::split(target);
                Some(files.seek(comparator, user_key, trailer)).filter(|index| *index < count)
            }
            To::AtOrBefore => {
                let (user_key, trailer) = key::split(target);
                let at_or_after = files.seek(comparator, user_key, trailer);
                let begins_before = |index: usize| {
                    comparator.compare_internal(&files.files()[index].smallest, target).is_le()
                };
                if at_or_after < count && begins_before(at_or_after) {
                    Some(at_or_after)
                } else {
                    at_or_after.checked_sub(1)
                }
            }
        };
        self.index = index;
        if let Some((_, Some(mut successor))) = self.successor.take() {
            successor.give_up(needs);
        }
        if let Some(index) = index {
            let file = &self.files.files()[index];
            if !Arc::ptr_eq(self.table.file(), file) {
                self.table.change_file(file, needs);
            }
            self.table.begin(to, target, needs);
        }
    }

    #[inline]
    pub(super) fn begin_next(&mut self) -> Result<()> {
        self.forward = true;
        self.table.begin_next()
    }

    #[inline]
    pub(super) fn begin_prev(&mut self) -> Result<()> {
        self.forward = false;
        self.table.begin_prev()
    }

    /// Returns true if the cursor is at an entry and has nothing left to do.
    #[inline]
    pub(super) fn is_at_entry(&self) -> bool {
        self.index.is_some() && self.table.is_settled() && self.table.valid()
    }

    /// Completes the move that the last `begin` started. Calls `opened` for each table that it
    /// enters.
    pub(super) fn settle(
        &mut self,
        ctx: &ReadCtx<'_>,
        needs: &mut Needs,
        prefix: &PrefixFilter,
        bounds: &Bounds,
        opened: &mut dyn FnMut(&Arc<Table>, &TableCursor),
    ) -> Result<(), Stop> {
        while let Some(index) = self.index {
            self.table.settle(ctx, needs, prefix, bounds)?;
            if let Some(table) = self.table.table() {
                opened(table, &self.table);
            }
            if self.table.valid() {
                self.prepare_successor(index, ctx, needs, prefix, bounds);
                return Ok(());
            }
            self.index = self.next_index(index, bounds);
            if let Some(next) = self.index {
                self.enter(next, ctx, needs);
            }
        }
        Ok(())
    }

    /// Returns the index of the file behind the one at `index` in the direction of the scan, or
    /// None if the bounds exclude it.
    fn next_index(&self, index: usize, bounds: &Bounds) -> Option<usize> {
        let next = if self.forward { index + 1 } else { index.wrapping_sub(1) };
        let file = self.files.files().get(next)?;
        let outside = if self.forward {
            bounds.upper_excludes(&self.comparator, file.smallest_user_key())
        } else {
            bounds.lower_excludes(&self.comparator, file.largest_user_key())
        };
        (!outside).then_some(next)
    }

    /// Enters the file at `index`, the next in the direction of the scan.
    fn enter(&mut self, index: usize, ctx: &ReadCtx<'_>, needs: &mut Needs) {
        self.table.give_up(needs);
        match self.successor.take() {
            Some((prepared, Some(successor))) if prepared == index => self.table = *successor,
            _ => self.table = self.cursor_behind(index, ctx),
        }
    }

    fn cursor_behind(&self, index: usize, ctx: &ReadCtx<'_>) -> TableCursor {
        let to = if self.forward { To::First } else { To::Last };
        TableCursor::continuing(&self.table, &self.files.files()[index], to, ctx.options.adaptive_readahead)
    }

    /// Opens the next file and reads its first blocks ahead, once readahead has reached the end of
    /// the current file.
    fn prepare_successor(
        &mut self,
        index: usize,
        ctx: &ReadCtx<'_>,
        needs: &mut Needs,
        prefix: &PrefixFilter,
        bounds: &Bounds,
    ) {
        if !self.table.has_asked_for_all() {
            return;
        }
        if self.successor.is_none() {
            let Some(next) = self.next_index(index, bounds) else { return };
            self.successor = Some((next, Some(Box::new(self.cursor_behind(next, ctx)))));
        }
        let Some((_, prepared)) = &mut self.successor else { return };
        let Some(successor) = prepared.as_mut().filter(|successor| !successor.is_settled()) else { return };
        if let Err(Stop::Error(_)) = successor.settle(ctx, needs, prefix, bounds) {
            // The scan meets the error itself, if it gets there.
            successor.give_up(needs);
            *prepared = None;
        }
    }

    pub(super) fn table(&self) -> &TableCursor {
        &self.table
    }

    pub(super) fn table_mut(&mut self) -> &mut TableCursor {
        &mut self.table
    }
}
