//! Going through a whole list, several parts of it at the same time.
//!
//! Where an entry lies stands in the one before it, so whoever goes from one to the next waits for
//! memory at every step. A [`Sweep`] goes through [`LANES`] parts of the list in turns, which wait
//! together, notes where their entries are, and hands them out in order.
//!
//! Invariant: each entry that was in the list when the sweep began comes once, in order. One that
//! is inserted meanwhile may come.

use super::{KeyOrder, MAX_HEIGHT, Node, Position, READ, SkipList, Tower, prefetch};
use std::ptr;

/// Parts walked at the same time. Why: a processor waits for some ten cache lines at once, and
/// parts are of uneven length, so that in the end few are still walked.
const LANES: usize = 16;
/// A part is what a link on this level leads over: 64 entries on average.
const LEVEL: usize = if MAX_HEIGHT > 6 { 6 } else { MAX_HEIGHT - 1 };
/// So many entries ahead the processor is told to fetch all of an entry.
const AHEAD: usize = 4;
/// What a walk reads of a node: its lowest link. In bytes behind the link.
const WALKED: [usize; 1] = [0];

/// How far somebody has gone through a list; see [`SkipList::sweep`].
#[derive(Debug, Default)]
pub struct Sweep {
    /// The entries that come next; those before `at` have been handed out.
    noted: Vec<Position>,
    at: usize,
    begun: bool,
    /// The entry behind those that are noted, which has a link on [`LEVEL`]; `None` before the
    /// first and behind the last.
    behind: Option<Position>,
    lanes: [Vec<Position>; LANES],
}

impl<C: KeyOrder> SkipList<C> {
    /// The next entry for somebody who goes through the whole list, from the first entry on with a
    /// new [`Sweep`]. Entries are looked for some hundred at a time.
    ///
    /// # Panics
    /// If `sweep` is seen to have gone through another list, which it must not.
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

    /// Notes the next entries, if there are more.
    fn sweep_on(&self, sweep: &mut Sweep) {
        sweep.noted.clear();
        sweep.at = 0;
        // Each lane's way, from its first node up to the next lane's.
        let mut ways = [(ptr::null_mut::<Node>(), ptr::null_mut::<Node>()); LANES];
        // SAFETY: of the head, which has every level, or of a node that a link on this level led
        // to.
        let end_of = |tower: Tower| unsafe { tower.next(LEVEL) };
        ways[0] = match sweep.behind {
            Some(behind) => (self.check(behind), end_of(Tower::of(self.check(behind)))),
            None if sweep.begun => return,
            None => {
                // Why the end first: whatever is inserted in between, the way from what is the
                // first node then leads there.
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
                // SAFETY: a node of this list, in front of the lane's end; every node has level 0,
                // on which the end is linked too.
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
