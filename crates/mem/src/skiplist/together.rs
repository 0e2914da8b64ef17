//! Searches for many keys, which wait for memory together.
//!
//! A search is a chain of cache misses: the address of each node is in the one before it. A plain
//! search in a list larger than the processor's caches therefore waits for memory at nearly every
//! step. [`LANES`] searches that step in turns wait together: each prefetches the node that it
//! compares next, and compares it in the next round.
//!
//! Invariant: each result is that of [`SkipList::seek_ge`] at some moment during the call.

use super::{KeyOrder, Node, Position, READ, SEARCHED, SkipList, Tower, prefetch};
use crate::sync::Ordering;
use std::cmp;
use std::ptr;

/// Maximum number of searches that step in turns: more than the ten or so cache lines that a
/// processor waits for at once, because searches are of uneven length.
pub const LANES: usize = 16;

/// Progress of one search.
#[derive(Clone, Copy)]
struct Lane {
    /// The last node found smaller than the key, or the head.
    before: Tower,
    /// The first node found not smaller than the key; null if none was.
    larger: *mut Node,
    /// Node to compare next, prefetched; null before the first round.
    next: *mut Node,
    /// Number of levels from the one searched now down to the lowest.
    levels: usize,
}

impl Lane {
    /// Takes the result of comparing `next` with the key.
    fn compared(&mut self, order: cmp::Ordering) {
        match order {
            cmp::Ordering::Less => self.before = Tower::of(self.next),
            cmp::Ordering::Equal => (self.larger, self.levels) = (self.next, 0),
            cmp::Ordering::Greater => {
                self.larger = self.next;
                self.levels -= 1;
            }
        }
    }

    /// Goes down to the next node to compare, and prefetches it; or to the end of the search.
    ///
    /// # Safety
    /// `before` is the head or a node of a live list, and was reached on the current level or one
    /// above.
    unsafe fn advance(&mut self) {
        while let Some(level) = self.levels.checked_sub(1) {
            // SAFETY: the caller's promise.
            self.next = unsafe { self.before.next(level) };
            if !self.next.is_null() && self.next != self.larger {
                prefetch(self.next, SEARCHED);
                return;
            }
            self.levels = level;
        }
        // The caller reads the entry that was found.
        prefetch(self.larger, READ);
    }
}

impl<C: KeyOrder> SkipList<C> {
    /// Returns for each of the first [`LANES`] keys the smallest entry whose key is equal or
    /// larger, as [`seek_ge`](Self::seek_ge) does, and leaves in the processor's caches the nodes
    /// that the searches have compared.
    pub fn seek_ge_together(&self, keys: &[&[u8]]) -> [Option<Position>; LANES] {
        let levels = self.height.load(Ordering::Relaxed);
        let (larger, next) = (ptr::null_mut(), ptr::null_mut());
        let mut lanes = [Lane { before: self.head(), larger, next, levels }; LANES];
        let mut is_under_way = true;
        while std::mem::take(&mut is_under_way) {
            for (lane, key) in lanes.iter_mut().zip(keys).filter(|(lane, _)| lane.levels > 0) {
                if !lane.next.is_null() {
                    // SAFETY: a linked node of this list.
                    lane.compared(self.order.compare(unsafe { super::key_of(lane.next) }, key));
                }
                // SAFETY: `before` is the head of this list, or a node that a link on this level or
                // one above led to.
                unsafe { lane.advance() };
                is_under_way |= lane.levels > 0;
            }
        }
        lanes.map(|lane| self.position(lane.larger))
    }
}
