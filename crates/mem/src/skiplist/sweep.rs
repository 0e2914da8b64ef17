//! Scan of a whole list, several parts of it at the same time.
//!
//! The address of an entry is in the one before it; a plain scan therefore waits for memory at
//! every step. A [`Sweep`] walks [`LANES`] parts of the list in turns, which wait together,
//! collects the positions of their entries, and returns them in order.
//!
//! Invariant: each entry that was in the list when the sweep began is returned once, in order. One
//! that is inserted meanwhile may be returned.

use super::{KeyOrder, MAX_HEIGHT, Node, Position, READ, SkipList, Tower, prefetch};
use std::ptr;

/// Number of parts walked at the same time: more than the ten or so cache lines that a processor
/// waits for at once, because parts are of uneven length, and few are left at the end.
const LANES: usize = 16;
/// Level whose links delimit the parts: 64 entries each on average.
const LEVEL: usize = if MAX_HEIGHT > 6 { 6 } else { MAX_HEIGHT - 1 };
/// Number of entries ahead for which an entry is prefetched completely.
const AHEAD: usize = 4;
/// Offsets that a walk reads of a node, in bytes behind its lowest link: that link.
const WALKED: [usize; 1] = [0];

/// Progress of a scan through a list; see [`SkipList::sweep`].
#[derive(Debug, Default)]
pub struct Sweep {
    /// The next entries; those before `at` have been returned.
    noted: Vec<Position>,
    at: usize,
    begun: bool,
    /// The entry behind the collected ones, which has a link on [`LEVEL`]; `None` before the first
    /// and behind the last.
    behind: Option<Position>,
    lanes: [Vec<Position>; LANES],
}

impl<C: KeyOrder> SkipList<C> {
    /// Returns the next entry of a scan of the whole list; a new [`Sweep`] begins at the first
    /// entry. Entries are collected some hundred at a time.
    ///
    /// # Panics
    /// `sweep` is found to belong to another list.
    #[inline]
    pub fn sweep(&self, sweep: &mut Sweep) -> Option<Position> {
        if sweep.at == sweep.noted.len() {
            self.sweep_on(sweep);
        }
        let next = *sweep.noted.get(sweep.at)?;
        if let Some(ahead) = sweep.noted.get(sweep.at + AHEAD) {
            prefetch(ahead.node.as_ptr(), READ);
        }
        sweep.at += 1;
        Some(next)
    }

    /// Collects the next entries, if the list has more.
    fn sweep_on(&self, sweep: &mut Sweep) {
        sweep.noted.clear();
        sweep.at = 0;
        // The first node of each lane and its end, the first of the next lane.
        let mut ways = [(ptr::null_mut::<Node>(), ptr::null_mut::<Node>()); LANES];
        // SAFETY: a tower of the head, which has every level, or of a node that a link on this
        // level led to.
        let end_of = |tower: Tower| unsafe { tower.next(LEVEL) };
        ways[0] = match sweep.behind {
            Some(behind) => (self.check(behind), end_of(Tower::of(self.check(behind)))),
            None if sweep.begun => return,
            None => {
                // The end is loaded first, because nodes inserted in between then lie between the
                // first node and the end.
                let end = end_of(self.head());
                // SAFETY: the head has every level.
                (unsafe { self.head().next(0) }, end)
            }
        };
        for lane in 1..LANES {
            let start = ways[lane - 1].1;
            if start.is_null() {
                break;
            }
            ways[lane] = (start, end_of(Tower::of(start)));
        }
        sweep.begun = true;
        sweep.behind = self.position(ways[LANES - 1].1);
        let mut under_way = true;
        while std::mem::take(&mut under_way) {
            for ((node, end), noted) in ways.iter_mut().zip(&mut sweep.lanes) {
                if *node == *end {
                    continue;
                }
                noted.extend(self.position(*node));
                // SAFETY: a node of this list, before the lane's end; every node has level 0, on
                // which the end is linked too.
                *node = unsafe { Tower::of(*node).next(0) };
                prefetch(*node, WALKED);
                under_way = true;
            }
        }
        for lane in &mut sweep.lanes {
            sweep.noted.append(lane);
        }
    }
}
