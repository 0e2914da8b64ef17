//! Backward moves of a block cursor.
//!
//! Entries lead only forwards, so a step back walks a restart interval from its start. The entries
//! passed are remembered, so that the interval is walked once and not once for each of its entries.
//!
//! In: a valid cursor. Out: the cursor one entry earlier. Invariant: remembered keys take at most
//! [`REMEMBERED_KEY_BYTES`], for any length of the interval.

use super::BlockCursor;
use crate::block::Block;
use crate::block::entry::ValueLayout;
use crate::corruption::Corruption;

/// Maximum bytes of keys that `prev` remembers; an interval with more is walked again for each
/// step.
const REMEMBERED_KEY_BYTES: usize = 256 << 10;

#[derive(Debug, Clone)]
pub(super) struct Remembered {
    at: usize,
    next: usize,
    restart: usize,
    value_start: usize,
    value_end: usize,
    /// Offset of the key in the block, or in `remembered_keys` if `buffered`.
    key_start: usize,
    key_end: usize,
    buffered: bool,
}

impl BlockCursor {
    pub(crate) fn prev_in(&mut self, block: &Block, layout: ValueLayout) -> Result<bool, Corruption> {
        debug_assert!(self.valid);
        if self.remembered.last().is_some_and(|last| last.next == self.at) {
            self.recall(block);
            return Ok(true);
        }
        self.go_before(block, self.at, layout)
    }

    /// Moves to the last entry that starts before `bound`, and remembers the entries between its
    /// restart point and it.
    pub(super) fn go_before(
        &mut self,
        block: &Block,
        bound: usize,
        layout: ValueLayout,
    ) -> Result<bool, Corruption> {
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
        // Invariant: `prev` must end before `bound`. Unordered restart offsets of a corrupt block
        // may lead elsewhere.
        if self.at >= bound {
            return Err(self.fail(self.at));
        }
        Ok(true)
    }

    /// Remembers the current entry; returns false, with nothing remembered, if the keys exceed the
    /// limit.
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
}

/// Returns the last restart point before `bound`.
pub(super) fn last_restart_before(block: &Block, bound: usize) -> Option<usize> {
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
