//! Block cursor: a position in a block and the moves between its entries.
//!
//! In: a [`Block`] with every call, so that an iterator that is held across awaits can own block
//! and cursor side by side. Out: key and value of the current entry, borrowed from the block if the
//! key is stored whole, else from the cursor's buffer.
//!
//! Invariants: a cursor is used only with the block that it was positioned in, until it is
//! positioned again. Nothing is allocated for keys of at most 64 bytes, except by `prev`, which
//! remembers one restart interval. A corrupt entry returns an error and leaves the cursor invalid.

use std::ops::Range;

mod backward;
mod seeking;

use self::backward::{Remembered, last_restart_before};
use super::Block;
use super::entry::{self, Entry, KeyKind, ValueLayout};
use crate::comparator::Comparator;
use crate::corruption::Corruption;
use crate::key::{self, SeqNo};
use smallvec::SmallVec;

/// Result of a point lookup in one block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PointSeek {
    /// The cursor is at the first entry not smaller than the target.
    At,
    /// Every entry is smaller than the target; the next block may hold it.
    PastEnd,
    /// Neither this block nor a later one holds the user key at the target's sequence number or an
    /// older one.
    Absent,
}

/// A position in a block; see the module's documentation.
#[derive(Debug, Clone, Default)]
pub struct BlockCursor {
    valid: bool,
    /// True if the key is in `buffer`; else it is in the block at `key_start..key_end`.
    buffered: bool,
    /// Offset of the current entry; `next` is that of the following one.
    at: usize,
    next: usize,
    /// Restart interval of the entry; `next` maintains it only if values are separated.
    restart: usize,
    key_start: usize,
    key_end: usize,
    value_start: usize,
    value_end: usize,
    buffer: SmallVec<[u8; 64]>,
    /// Entries before the current one in its restart interval, in order.
    remembered: Vec<Remembered>,
    remembered_keys: Vec<u8>,
    /// The key with the file's global sequence number, for files whose stored keys do not hold it.
    restamped: Option<Box<Restamped>>,
}

#[derive(Debug, Clone)]
struct Restamped {
    seq: SeqNo,
    key: Vec<u8>,
}

impl BlockCursor {
    /// Returns a cursor without a position.
    #[must_use]
    pub fn new() -> Self {
        BlockCursor::default()
    }

    /// Returns a cursor for the blocks of a file whose entries all have the sequence number `seq`,
    /// which its properties hold and its keys do not (an ingested file). [`BlockCursor::key`]
    /// returns keys with that sequence number. Allocates.
    #[must_use]
    pub fn with_global_seqno(seq: SeqNo) -> Self {
        BlockCursor {
            restamped: Some(Box::new(Restamped { seq, key: Vec::new() })),
            ..BlockCursor::default()
        }
    }

    /// Clears the position; the buffers are kept.
    pub fn reset(&mut self) {
        self.valid = false;
        self.remembered.clear();
        self.remembered_keys.clear();
    }

    /// Returns true if the cursor is at an entry.
    #[inline(always)]
    #[must_use]
    pub fn valid(&self) -> bool {
        self.valid
    }

    /// Returns the offset of the current entry in the block; comparable with that of another cursor
    /// over the same block. The cursor must be valid, or have been valid before its last move.
    #[must_use]
    pub fn entry_offset(&self) -> usize {
        self.at
    }

    /// Returns the current key. The cursor must be valid.
    #[inline(always)]
    #[must_use]
    pub fn key<'a>(&'a self, block: &'a Block) -> &'a [u8] {
        debug_assert!(self.valid);
        match &self.restamped {
            Some(restamped) => &restamped.key,
            None => self.stored_key(block),
        }
    }

    /// Returns the range of the current key in the block's contents, or `None` if it is not stored
    /// whole.
    #[must_use]
    pub fn key_range(&self) -> Option<Range<usize>> {
        (self.valid && !self.buffered && self.restamped.is_none()).then_some(self.key_start..self.key_end)
    }

    /// Returns the range of the current value in the block's contents. The cursor must be valid.
    #[inline(always)]
    #[must_use]
    pub fn value_range(&self) -> Range<usize> {
        debug_assert!(self.valid);
        self.value_start..self.value_end
    }

    /// Returns the current value. The cursor must be valid.
    #[inline(always)]
    #[must_use]
    pub fn value<'a>(&self, block: &'a Block) -> &'a [u8] {
        &block.contents[self.value_range()]
    }

    /// Moves to the first entry whose internal key is not smaller than `target`; returns false if
    /// there is no such entry.
    #[inline]
    pub fn seek(
        &mut self,
        block: &Block,
        comparator: &Comparator,
        target: &[u8],
    ) -> Result<bool, Corruption> {
        let all = 0..block.restart_count();
        self.seek_in(block, comparator, target, KeyKind::Internal, ValueLayout::Sized, all)
    }

    /// Moves to the last entry whose internal key is not greater than `target`; returns false if
    /// there is no such entry.
    pub fn seek_for_prev(
        &mut self,
        block: &Block,
        comparator: &Comparator,
        target: &[u8],
    ) -> Result<bool, Corruption> {
        if !self.seek(block, comparator, target)? {
            return self.seek_to_last(block);
        }
        if comparator.compare_internal(self.key(block), target).is_gt() {
            return self.prev(block);
        }
        Ok(true)
    }

    /// Moves to the first entry; returns false if the block is empty.
    pub fn seek_to_first(&mut self, block: &Block) -> Result<bool, Corruption> {
        self.seek_to_first_in(block, ValueLayout::Sized)
    }

    /// Moves to the last entry; returns false if the block is empty.
    pub fn seek_to_last(&mut self, block: &Block) -> Result<bool, Corruption> {
        self.seek_to_last_in(block, ValueLayout::Sized)
    }

    /// Moves one entry forward; returns false at the end. The cursor must be valid.
    #[inline]
    pub fn next(&mut self, block: &Block) -> Result<bool, Corruption> {
        self.next_in(block, ValueLayout::Sized)
    }

    /// Moves one entry back; returns false at the start. The cursor must be valid.
    pub fn prev(&mut self, block: &Block) -> Result<bool, Corruption> {
        self.prev_in(block, ValueLayout::Sized)
    }

    /// Looks up the internal key `target`, through the block's hash index if it has one.
    ///
    /// The cursor is valid only after [`PointSeek::At`]; it may be at another user key.
    #[inline]
    pub fn seek_for_get(
        &mut self,
        block: &Block,
        comparator: &Comparator,
        target: &[u8],
    ) -> Result<PointSeek, Corruption> {
        if block.has_hash_index() && !comparator.different_bytes_may_be_equal() {
            return self.seek_by_hash(block, comparator, target);
        }
        Ok(if self.seek(block, comparator, target)? { PointSeek::At } else { PointSeek::PastEnd })
    }

    pub(crate) fn seek_to_first_in(
        &mut self,
        block: &Block,
        layout: ValueLayout,
    ) -> Result<bool, Corruption> {
        self.reset();
        if !block.is_empty() {
            self.go_to_restart(block, 0, layout)?;
        }
        Ok(self.valid)
    }

    pub(crate) fn seek_to_last_in(&mut self, block: &Block, layout: ValueLayout) -> Result<bool, Corruption> {
        self.reset();
        if block.is_empty() {
            return Ok(false);
        }
        self.go_before(block, block.keys_end as usize, layout)
    }

    /// Returns true if the current entry's key shares bytes with the previous one, in which case an
    /// index block stores its handle as a difference.
    #[inline(always)]
    pub(crate) fn shares_with_previous(&self) -> bool {
        self.buffered
    }

    /// Calls `visit` with each value from the current entry's restart point up to the entry, which
    /// is excluded, and with true if the value's key shares bytes with the previous one.
    pub(crate) fn for_each_value_before(
        &self,
        block: &Block,
        layout: ValueLayout,
        mut visit: impl FnMut(bool, &[u8]) -> Result<(), Corruption>,
    ) -> Result<(), Corruption> {
        let restart = last_restart_before(block, self.at).ok_or_else(|| bad_entry(self.at))?;
        let mut at = block.restart_offset(restart);
        let (mut is_restart, mut value_end) = (true, 0);
        while at < self.at {
            let entry =
                entry::decode(block, at, is_restart, value_end, layout).ok_or_else(|| bad_entry(at))?;
            visit(entry.shared != 0, &block.contents[entry.value_start..entry.value_end])?;
            is_restart = false;
            value_end = entry.value_end;
            at = entry.next;
        }
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn next_in(&mut self, block: &Block, layout: ValueLayout) -> Result<bool, Corruption> {
        debug_assert!(self.valid);
        let at = self.next;
        if at >= block.keys_end as usize {
            self.valid = false;
            return Ok(false);
        }
        let mut is_restart = false;
        if block.separated && self.restart + 1 < block.restart_count() {
            is_restart = block.restart_offset(self.restart + 1) == at;
            self.restart += usize::from(is_restart);
        }
        let Some(entry) = entry::decode(block, at, is_restart, self.value_end, layout) else {
            return Err(self.fail(at));
        };
        if entry.shared == 0 {
            self.buffered = false;
        } else if self.buffered {
            if entry.shared > self.buffer.len() {
                return Err(self.fail(at));
            }
            self.buffer.truncate(entry.shared);
            self.buffer.extend_from_slice(&block.contents[entry.key_start..entry.key_end]);
        } else {
            if entry.shared > self.key_end - self.key_start {
                return Err(self.fail(at));
            }
            self.buffer.clear();
            self.buffer.extend_from_slice(&block.contents[self.key_start..self.key_start + entry.shared]);
            self.buffer.extend_from_slice(&block.contents[entry.key_start..entry.key_end]);
            self.buffered = true;
        }
        self.place(at, &entry);
        self.restamp(block);
        Ok(true)
    }

    /// Moves to the entry at restart point `restart`.
    #[inline]
    fn go_to_restart(
        &mut self,
        block: &Block,
        restart: usize,
        layout: ValueLayout,
    ) -> Result<(), Corruption> {
        let at = block.restart_offset(restart);
        match entry::decode(block, at, true, 0, layout) {
            Some(entry) if entry.shared == 0 => {
                self.restart = restart;
                self.buffered = false;
                self.place(at, &entry);
                self.restamp(block);
                Ok(())
            }
            _ => Err(self.fail(at)),
        }
    }

    #[inline(always)]
    fn place(&mut self, at: usize, entry: &Entry) {
        self.valid = true;
        self.at = at;
        self.next = entry.next;
        self.key_start = entry.key_start;
        self.key_end = entry.key_end;
        self.value_start = entry.value_start;
        self.value_end = entry.value_end;
    }

    #[inline(always)]
    fn restamp(&mut self, block: &Block) {
        if self.restamped.is_some() {
            self.restamp_slow(block);
        }
    }

    #[cold]
    fn restamp_slow(&mut self, block: &Block) {
        let Some(mut restamped) = self.restamped.take() else { return };
        let (user_key, trailer) = key::split(self.stored_key(block));
        restamped.key.clear();
        key::append(&mut restamped.key, user_key, (restamped.seq.0 << 8) | (trailer & 0xff));
        self.restamped = Some(restamped);
    }

    #[inline(always)]
    fn stored_key<'a>(&'a self, block: &'a Block) -> &'a [u8] {
        if self.buffered { &self.buffer } else { &block.contents[self.key_start..self.key_end] }
    }

    #[cold]
    fn fail(&mut self, at: usize) -> Corruption {
        self.reset();
        bad_entry(at)
    }
}

#[cold]
fn bad_entry(at: usize) -> Corruption {
    Corruption::new("bad entry in block", at)
}
