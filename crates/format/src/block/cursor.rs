//! Walking a block.
//!
//! In: a [`Block`] with every call, so that an iterator that is carried across waits can keep block and cursor side by side.
//! Out: key and value of the current entry, borrowed from the block where the key is stored whole and from the cursor's
//! buffer where it is put together.
//!
//! Invariants: a cursor is only ever used with the block that it was positioned in, until it is positioned anew. Nothing is
//! allocated for keys of 64 bytes or fewer, except by `prev`, which remembers one restart interval. Corrupt entries end in an
//! error and leave the cursor invalid.

use std::ops::Range;

use smallvec::SmallVec;

use super::entry::{self, Entry, KeyKind, ValueLayout};
use super::search::{Bytewise, General, Order, Scan};
use super::{BUCKET_COLLISION, BUCKET_EMPTY, Block};
use crate::comparator::Comparator;
use crate::corruption::Corruption;
use crate::key::{self, SeqNo};

/// How many bytes of keys `prev` remembers at most; an interval with more is walked anew for each step.
const REMEMBERED_KEY_BYTES: usize = 256 << 10;

/// What a point lookup in one block tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PointSeek {
    /// The cursor stands at the first entry not smaller than the target.
    At,
    /// Every entry is smaller than the target; the next block may hold it.
    PastEnd,
    /// Neither this block nor a later one holds the user key at the target's sequence number or before it.
    Absent,
}

/// A position in a block; see the module's documentation.
#[derive(Debug, Clone, Default)]
pub struct BlockCursor {
    valid: bool,
    /// Whether the key lies in `buffer`; else in the block at `key_start..key_end`.
    buffered: bool,
    /// Offset of the current entry, and of the one behind it.
    at: usize,
    next: usize,
    /// The restart interval in which the entry lies; maintained by `next` only where values are separated.
    restart: usize,
    key_start: usize,
    key_end: usize,
    value_start: usize,
    value_end: usize,
    buffer: SmallVec<[u8; 64]>,
    /// Entries of one restart interval before the current one, in order.
    remembered: Vec<Remembered>,
    remembered_keys: Vec<u8>,
    /// The key as shown, where the file's entries all have one sequence number that is stored elsewhere.
    restamped: Option<Box<Restamped>>,
}

#[derive(Debug, Clone)]
struct Remembered {
    at: usize,
    next: usize,
    restart: usize,
    value_start: usize,
    value_end: usize,
    /// In the block, or in `remembered_keys` if `buffered`.
    key_start: usize,
    key_end: usize,
    buffered: bool,
}

#[derive(Debug, Clone)]
struct Restamped {
    seq: SeqNo,
    key: Vec<u8>,
}

impl BlockCursor {
    /// A cursor that stands nowhere.
    #[must_use]
    pub fn new() -> Self {
        BlockCursor::default()
    }

    /// A cursor for the blocks of a file whose entries all have the sequence number `seq`, which its properties hold and its
    /// keys do not (an ingested file). [`BlockCursor::key`] then shows keys with that sequence number. Allocates.
    #[must_use]
    pub fn with_global_seqno(seq: SeqNo) -> Self {
        BlockCursor {
            restamped: Some(Box::new(Restamped { seq, key: Vec::new() })),
            ..BlockCursor::default()
        }
    }

    /// Forgets the position; the buffers stay.
    pub fn reset(&mut self) {
        self.valid = false;
        self.remembered.clear();
        self.remembered_keys.clear();
    }

    /// Whether the cursor stands at an entry.
    #[inline(always)]
    #[must_use]
    pub fn valid(&self) -> bool {
        self.valid
    }

    /// The current key. The cursor must be valid.
    #[inline(always)]
    #[must_use]
    pub fn key<'a>(&'a self, block: &'a Block) -> &'a [u8] {
        debug_assert!(self.valid);
        match &self.restamped {
            Some(restamped) => &restamped.key,
            None => self.stored_key(block),
        }
    }

    /// Where the current key lies in the block's contents, if it is stored there whole.
    #[must_use]
    pub fn key_range(&self) -> Option<Range<usize>> {
        (self.valid && !self.buffered && self.restamped.is_none()).then_some(self.key_start..self.key_end)
    }

    /// Where the current value lies in the block's contents. The cursor must be valid.
    #[inline(always)]
    #[must_use]
    pub fn value_range(&self) -> Range<usize> {
        debug_assert!(self.valid);
        self.value_start..self.value_end
    }

    /// The current value. The cursor must be valid.
    #[inline(always)]
    #[must_use]
    pub fn value<'a>(&self, block: &'a Block) -> &'a [u8] {
        &block.contents[self.value_range()]
    }

    /// Moves to the first entry whose internal key is not smaller than `target`; whether there is one.
    #[inline]
    pub fn seek(
        &mut self,
        block: &Block,
        comparator: &Comparator,
        target: &[u8],
    ) -> Result<bool, Corruption> {
        self.seek_in(block, comparator, target, KeyKind::Internal, ValueLayout::Sized)
    }

    /// Moves to the last entry whose internal key is not greater than `target`; whether there is one.
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

    /// Moves to the first entry; whether there is one.
    pub fn seek_to_first(&mut self, block: &Block) -> Result<bool, Corruption> {
        self.seek_to_first_in(block, ValueLayout::Sized)
    }

    /// Moves to the last entry; whether there is one.
    pub fn seek_to_last(&mut self, block: &Block) -> Result<bool, Corruption> {
        self.seek_to_last_in(block, ValueLayout::Sized)
    }

    /// Moves one entry forward; whether there is one. The cursor must be valid.
    #[inline]
    pub fn next(&mut self, block: &Block) -> Result<bool, Corruption> {
        self.next_in(block, ValueLayout::Sized)
    }

    /// Moves one entry back; whether there is one. The cursor must be valid.
    pub fn prev(&mut self, block: &Block) -> Result<bool, Corruption> {
        self.prev_in(block, ValueLayout::Sized)
    }

    /// A point lookup of the internal key `target`, through the block's hash index if it has one.
    ///
    /// Only after [`PointSeek::At`] is the cursor valid; it may stand at another user key.
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

    fn seek_by_hash(
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
            // Why: the user key is not in this block, but the next block may start with it, when this block's index key was
            // made from an older entry of it. The last interval tells whether the target is past the end.
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
        // Where the values are restamped, keys have to be put together to compare them.
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
            // Why: the bucket was another key's, and this key is not here, but only a greater entry proves that the next block
            // does not hold it either.
            let found = self.seek(block, comparator, target)?;
            return Ok(if found { PointSeek::At } else { PointSeek::PastEnd });
        }
        if comparator.equal_user(key::user_key(self.key(block)), user_key) {
            return Ok(PointSeek::At);
        }
        self.valid = false;
        Ok(PointSeek::Absent)
    }

    /// [`BlockCursor::seek`] for any kind of keys and values.
    #[inline(always)]
    pub(crate) fn seek_in(
        &mut self,
        block: &Block,
        comparator: &Comparator,
        target: &[u8],
        kind: KeyKind,
        layout: ValueLayout,
    ) -> Result<bool, Corruption> {
        let found = match (comparator, kind) {
            (Comparator::Bytewise, KeyKind::Internal) => {
                self.seek_bytewise(block, &Bytewise::<true>::new(target), layout)
            }
            (Comparator::Bytewise, KeyKind::User) => {
                self.seek_bytewise(block, &Bytewise::<false>::new(target), layout)
            }
            _ => self.seek_general(block, &General { comparator, kind, target }, layout),
        }?;
        // Why: the search compares stored keys. Where these stand for keys with a greater sequence number, the entry found may
        // sort in front of the target; user keys are unique in such files, so one step is enough.
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
    ) -> Result<bool, Corruption> {
        let Some((restart, interval)) = self.find_interval(block, order, layout)? else {
            return Ok(self.valid);
        };
        self.scan_bytewise(block, order, restart, interval, layout)
    }

    /// Moves to the first entry of a restart interval that is not smaller than the target, or else behind the interval.
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
    ) -> Result<bool, Corruption> {
        let Some((restart, _)) = self.find_interval(block, order, layout)? else {
            return Ok(self.valid);
        };
        self.go_to_restart(block, restart, layout)?;
        self.scan_from_here(block, order, restart, layout)
    }

    /// Finds the restart interval that has to be scanned; `None` when there is none to scan and the cursor is in place.
    #[inline(always)]
    fn find_interval(
        &mut self,
        block: &Block,
        order: &impl Order,
        layout: ValueLayout,
    ) -> Result<Option<(usize, Range<usize>)>, Corruption> {
        self.reset();
        if block.is_empty() {
            return Ok(None);
        }
        let Some((restart, equal)) = order.first_restart_not_below(block, layout) else {
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

    /// Moves to the entry behind restart interval `restart`, which the search knows to be greater than the target.
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

    /// Moves on to the first entry that is not smaller than the target, or else behind restart interval `restart`, at whose
    /// first entry the cursor stands.
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

    /// Whether the current entry's key shares bytes with the one before, which is where values may be stored as differences.
    #[inline(always)]
    pub(crate) fn shares_with_previous(&self) -> bool {
        self.buffered
    }

    /// Hands the values from the current entry's restart point up to it, itself excluded, to `visit`, each with whether its
    /// key shares bytes with the one before.
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

    pub(crate) fn prev_in(&mut self, block: &Block, layout: ValueLayout) -> Result<bool, Corruption> {
        debug_assert!(self.valid);
        if self.remembered.last().is_some_and(|last| last.next == self.at) {
            self.recall(block);
            return Ok(true);
        }
        self.go_before(block, self.at, layout)
    }

    /// Moves to the last entry that starts in front of `bound`, and remembers those between its restart point and it.
    fn go_before(&mut self, block: &Block, bound: usize, layout: ValueLayout) -> Result<bool, Corruption> {
        self.reset();
        let Some(restart) = last_restart_before(block, bound) else { return Ok(false) };
        self.go_to_restart(block, restart, layout)?;
        let mut remember = true;
        while self.next < bound {
            if remember {
                remember = self.remember();
            }
            self.next_in(block, layout)?;
        }
        // Invariant: restart offsets in disorder may lead here from behind; `prev` must end up in front all the same.
        if self.at >= bound {
            return Err(self.fail(self.at));
        }
        Ok(true)
    }

    /// Remembers the current entry; false, with nothing remembered, when the keys grow too many.
    fn remember(&mut self) -> bool {
        let (mut key_start, mut key_end) = (self.key_start, self.key_end);
        if self.buffered {
            if self.remembered_keys.len() + self.buffer.len() > REMEMBERED_KEY_BYTES {
                self.remembered.clear();
                self.remembered_keys.clear();
                return false;
            }
            key_start = self.remembered_keys.len();
            self.remembered_keys.extend_from_slice(&self.buffer);
            key_end = self.remembered_keys.len();
        }
        self.remembered.push(Remembered {
            at: self.at,
            next: self.next,
            restart: self.restart,
            value_start: self.value_start,
            value_end: self.value_end,
            key_start,
            key_end,
            buffered: self.buffered,
        });
        true
    }

    /// Moves to the last remembered entry and forgets it.
    fn recall(&mut self, block: &Block) {
        let Some(r) = self.remembered.pop() else { return };
        self.at = r.at;
        self.next = r.next;
        self.restart = r.restart;
        self.value_start = r.value_start;
        self.value_end = r.value_end;
        self.buffered = r.buffered;
        if r.buffered {
            self.buffer.clear();
            self.buffer.extend_from_slice(&self.remembered_keys[r.key_start..r.key_end]);
            self.remembered_keys.truncate(r.key_start);
        } else {
            self.key_start = r.key_start;
            self.key_end = r.key_end;
        }
        self.restamp(block);
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

/// The last restart point that lies in front of `bound`.
fn last_restart_before(block: &Block, bound: usize) -> Option<usize> {
    let (mut low, mut high) = (0, block.restart_count());
    while low < high {
        let middle = low + (high - low) / 2;
        if block.restart_offset(middle) < bound {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low.checked_sub(1)
}

#[cold]
fn bad_entry(at: usize) -> Corruption {
    Corruption::new("bad entry in block", at)
}
