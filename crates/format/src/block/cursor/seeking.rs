//! Seeks of a block cursor: find the restart interval by search or hash index, then the entry in
//! it.
//!
//! In: a target. Out: the cursor at the first entry not smaller than it. Keys are compared in
//! [`crate::block::search`].
//! Invariant: on any bytes, a search that does not fail leaves the cursor at an entry or invalid.

use super::{BlockCursor, PointSeek, bad_entry};
use crate::block::entry::{KeyKind, ValueLayout};
use crate::block::search::{Bytewise, General, Order, Scan};
use crate::block::{BUCKET_COLLISION, BUCKET_EMPTY, Block};
use crate::comparator::Comparator;
use crate::corruption::Corruption;
use crate::key;
use std::ops::Range;

impl BlockCursor {
    pub(super) fn seek_by_hash(
        &mut self,
        block: &Block,
        comparator: &Comparator,
        target: &[u8],
    ) -> Result<PointSeek, Corruption> {
        let user_key = key::user_key(target);
        let last = block.restart_count().wrapping_sub(1);
        let restart = match block.bucket(user_key) {
            BUCKET_COLLISION => {
                let found = self.seek(block, comparator, target)?;
                return Ok(if found { PointSeek::At } else { PointSeek::PastEnd });
            }
            // The user key is not in this block, but the next block may start with it if this
            // block's index key was made from an older entry of it. The search continues in the
            // last interval, which shows if the target is past the end.
            BUCKET_EMPTY => last,
            restart => restart as usize,
        };
        self.reset();
        if block.is_empty() {
            return Ok(PointSeek::PastEnd);
        }
        if restart >= block.restart_count() {
            return Err(Corruption::new(
                format!("hash index names restart point {restart} of {}", block.restart_count()),
                block.restarts_start,
            ));
        }
        // Restamped keys are assembled, because the stored ones cannot be compared.
        let found = if matches!(comparator, Comparator::Bytewise) && self.restamped.is_none() {
            let order = Bytewise::<true>::new(target);
            let interval = block.restart_offset(restart)..self.interval_end(block, restart);
            self.scan_bytewise(block, &order, restart, interval, ValueLayout::Sized)?
        } else {
            self.go_to_restart(block, restart, ValueLayout::Sized)?;
            let order = General { comparator, kind: KeyKind::Internal, target };
            self.scan_from_here(block, &order, restart, ValueLayout::Sized)?
        };
        if !found {
            return Ok(PointSeek::PastEnd);
        }
        let order = comparator.compare_internal(self.key(block), target);
        if order.is_lt() {
            // The bucket belongs to another key and the target's key is not here, but only a
            // greater entry proves that the next block does not hold it either.
            let found = self.seek(block, comparator, target)?;
            return Ok(if found { PointSeek::At } else { PointSeek::PastEnd });
        }
        if comparator.equal_user(key::user_key(self.key(block)), user_key) {
            return Ok(PointSeek::At);
        }
        self.valid = false;
        Ok(PointSeek::Absent)
    }

    /// [`BlockCursor::seek`] for all kinds of keys and values. Only the restart points in `within`
    /// are compared: those before have smaller keys than the target, those behind greater ones.
    #[inline(always)]
    pub(crate) fn seek_in(
        &mut self,
        block: &Block,
        comparator: &Comparator,
        target: &[u8],
        kind: KeyKind,
        layout: ValueLayout,
        within: Range<usize>,
    ) -> Result<bool, Corruption> {
        let found = match (comparator, kind) {
            (Comparator::Bytewise, KeyKind::Internal) => {
                self.seek_bytewise(block, &Bytewise::<true>::new(target), layout, within)
            }
            (Comparator::Bytewise, KeyKind::User) => {
                self.seek_bytewise(block, &Bytewise::<false>::new(target), layout, within)
            }
            _ => self.seek_general(block, &General { comparator, kind, target }, layout, within),
        }?;
        // The search compares stored keys. If they are restamped with a greater sequence number,
        // the entry found may sort before the target; user keys are unique in such files, so one
        // step suffices.
        if found && self.restamped.is_some() && comparator.compare_internal(self.key(block), target).is_lt() {
            return self.next_in(block, layout);
        }
        Ok(found)
    }

    #[inline]
    fn seek_bytewise<const INTERNAL: bool>(
        &mut self,
        block: &Block,
        order: &Bytewise<'_, INTERNAL>,
        layout: ValueLayout,
        within: Range<usize>,
    ) -> Result<bool, Corruption> {
        let Some((restart, interval)) = self.find_interval(block, order, layout, within)? else {
            return Ok(self.valid);
        };
        self.scan_bytewise(block, order, restart, interval, layout)
    }

    /// Moves to the first entry of a restart interval that is not smaller than the target, or else
    /// behind the interval.
    #[inline]
    fn scan_bytewise<const INTERNAL: bool>(
        &mut self,
        block: &Block,
        order: &Bytewise<'_, INTERNAL>,
        restart: usize,
        interval: Range<usize>,
        layout: ValueLayout,
    ) -> Result<bool, Corruption> {
        match order.scan(block, interval.start, interval.end, layout) {
            Scan::Found { at, entry } => {
                self.restart = restart;
                self.place(at, &entry);
                if entry.shared == 0 {
                    self.buffered = false;
                } else {
                    self.buffer.clear();
                    self.buffer.extend_from_slice(&order.user_key()[..entry.shared]);
                    self.buffer.extend_from_slice(&block.contents[entry.key_start..entry.key_end]);
                    self.buffered = true;
                }
                self.restamp(block);
                Ok(true)
            }
            Scan::Exhausted => self.go_behind_interval(block, restart, layout),
            Scan::NeedsKeys => {
                self.go_to_restart(block, restart, layout)?;
                self.scan_from_here(block, order, restart, layout)
            }
            Scan::Corrupt { at } => Err(bad_entry(at)),
        }
    }

    fn seek_general(
        &mut self,
        block: &Block,
        order: &impl Order,
        layout: ValueLayout,
        within: Range<usize>,
    ) -> Result<bool, Corruption> {
        let Some((restart, _)) = self.find_interval(block, order, layout, within)? else {
            return Ok(self.valid);
        };
        self.go_to_restart(block, restart, layout)?;
        self.scan_from_here(block, order, restart, layout)
    }

    /// Returns the restart interval to scan; `None` if the cursor is already in place.
    #[inline(always)]
    fn find_interval(
        &mut self,
        block: &Block,
        order: &impl Order,
        layout: ValueLayout,
        within: Range<usize>,
    ) -> Result<Option<(usize, Range<usize>)>, Corruption> {
        self.reset();
        if block.is_empty() {
            return Ok(None);
        }
        let Some((restart, equal)) = order.first_restart_not_below(block, layout, within) else {
            return Err(Corruption::new("restart point refers to no entry", block.restarts_start));
        };
        if equal || restart == 0 {
            self.go_to_restart(block, restart, layout)?;
            return Ok(None);
        }
        let start = block.restart_offset(restart - 1);
        let end = self.interval_end(block, restart - 1);
        Ok(Some((restart - 1, start..end)))
    }

    fn interval_end(&self, block: &Block, restart: usize) -> usize {
        let keys_end = block.keys_end as usize;
        if restart + 1 < block.restart_count() {
            block.restart_offset(restart + 1).min(keys_end)
        } else {
            keys_end
        }
    }

    /// Moves to the entry behind restart interval `restart`, which is known to be greater than the
    /// target.
    fn go_behind_interval(
        &mut self,
        block: &Block,
        restart: usize,
        layout: ValueLayout,
    ) -> Result<bool, Corruption> {
        if restart + 1 < block.restart_count() {
            self.go_to_restart(block, restart + 1, layout)?;
        } else {
            self.valid = false;
        }
        Ok(self.valid)
    }

    /// Moves forward to the first entry that is not smaller than the target, or else behind restart
    /// interval `restart`, at whose first entry the cursor is.
    #[inline(never)]
    fn scan_from_here(
        &mut self,
        block: &Block,
        order: &impl Order,
        restart: usize,
        layout: ValueLayout,
    ) -> Result<bool, Corruption> {
        let end = self.interval_end(block, restart);
        loop {
            if order.compare(self.stored_key(block)).is_ge() {
                return Ok(true);
            }
            if self.next >= end {
                return self.go_behind_interval(block, restart, layout);
            }
            self.next_in(block, layout)?;
        }
    }
}
