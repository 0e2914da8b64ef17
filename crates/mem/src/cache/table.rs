//! Open addressing over a fixed array of slots: find and pin, place, erase, and the clock hand that evicts.
//! Used by `BlockCache`, which owns a chain of tables, and by the last handle of a table that closed.
//!
//! Invariants:
//! - An entry lies at the first slot, from its home on, that was free when it was placed. Each slot it passed
//!   over counts it in `passed_over` until it goes; a search ends at a slot that nobody passed over. So slots
//!   become free at once, and there are no tombstones to clean.
//! - `live` counts entries and inserts under way; it is raised before an insert touches a slot and lowered
//!   after the last access. So a retired table with `live` 0 is never written again, but for the counts of
//!   searches that came too late.
//!
//! Why linear steps and not double hashing: neighbours share pages and the next line is often fetched
//! already, and tables are kept below three quarters full, where the sequences are short.

use super::slot::{Entry, Slot, Word};
use super::slots::Slots;
use crate::sync::{AtomicUsize, Ordering, fence};

/// Set in `live` when the table takes no more inserts.
const RETIRED: usize = 1 << (usize::BITS - 1);

pub(super) struct Table<V> {
    slots: Slots<V>,
    live: AtomicUsize,
    /// Slots the hand has passed since the beginning; its place is this modulo the length.
    hand: AtomicUsize,
    /// After the end of the cache: pinned slots left, and one for whoever closes the table.
    outstanding: AtomicUsize,
    /// The table that this one replaced, from which entries still move here.
    pub(super) older: *mut Table<V>,
}

/// What a stretch of the hand came to.
#[derive(Clone, Copy, Default)]
pub(super) struct Swept {
    pub(super) slots: usize,
    pub(super) pinned: usize,
    pub(super) aged: usize,
}

impl std::ops::AddAssign for Swept {
    fn add_assign(&mut self, more: Self) {
        self.slots += more.slots;
        self.pinned += more.pinned;
        self.aged += more.aged;
    }
}

impl<V> Table<V> {
    /// An empty table of `len` slots; `None` if the system has not the memory.
    pub(super) fn new(len: usize, older: *mut Table<V>) -> Option<*mut Self> {
        let table = Self {
            slots: Slots::new(len)?,
            live: AtomicUsize::new(0),
            hand: AtomicUsize::new(0),
            outstanding: AtomicUsize::new(0),
            older,
        };
        Some(Box::into_raw(Box::new(table)))
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Entries, and inserts under way.
    pub(super) fn live(&self) -> usize {
        self.live.load(Ordering::Relaxed) & !RETIRED
    }

    /// Three quarters full: more entries would make searches long; time for a larger table.
    pub(super) fn is_crowded(&self) -> bool {
        self.live() >= self.len() / 4 * 3
    }

    /// Entries a table of `len` slots takes at most; some slots stay free, so that searches end.
    fn live_at_most(&self) -> usize {
        self.len() - self.len() / 8 - 1
    }

    #[inline(always)]
    fn home(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.len() as u128) >> 64) as usize
    }

    #[inline(always)]
    fn step(&self, index: usize) -> usize {
        if index + 1 == self.len() { 0 } else { index + 1 }
    }

    /// The visible entry with this key, pinned for the caller.
    #[inline(always)]
    pub(super) fn find(&self, hash: u64, key: [u64; 2]) -> Option<&Slot<V>> {
        let mut index = self.home(hash);
        for _ in 0..self.len() {
            let slot = self.slots.at(index);
            // Why look before pinning: a pin on another's entry would write to its cache line for nothing.
            if slot.has_key(key) && slot.load(Ordering::Relaxed).is_visible() && slot.try_pin(key) {
                return Some(slot);
            }
            // Ordering: Relaxed; an entry whose insert returned before this search began is counted.
            if slot.passed_over.load(Ordering::Relaxed) == 0 {
                return None;
            }
            index = self.step(index);
        }
        None
    }

    /// Put an entry in a free slot, with `pins` pins; gives it back if the table is full or retired.
    pub(super) fn place(&self, hash: u64, entry: Entry<V>, pins: u64) -> Result<&Slot<V>, Entry<V>> {
        // Ordering: Acquire pairs with the Release that retired the table or lowered the count.
        let before = self.live.fetch_add(1, Ordering::Acquire);
        if before & RETIRED != 0 || before >= self.live_at_most() {
            self.live.fetch_sub(1, Ordering::Release);
            return Err(entry);
        }
        let home = self.home(hash);
        let mut index = home;
        for _ in 0..self.len() {
            let slot = self.slots.at(index);
            if !slot.load(Ordering::Relaxed).is_occupied() && slot.try_claim() {
                slot.publish(entry, pins);
                return Ok(slot);
            }
            slot.passed_over.fetch_add(1, Ordering::Relaxed);
            index = self.step(index);
        }
        // Others filled each slot just before this thread came to it.
        self.forget_path(home, self.len());
        self.live.fetch_sub(1, Ordering::Release);
        Err(entry)
    }

    /// Undo the marks of an entry that had passed over `steps` slots.
    fn forget_path(&self, home: usize, steps: usize) {
        let mut index = home;
        for _ in 0..steps {
            self.slots.at(index).passed_over.fetch_sub(1, Ordering::Relaxed);
            index = self.step(index);
        }
    }

    /// REQUIRES: the caller owns the slot at `index`, from a word that was `seen`. Frees it.
    fn remove(&self, index: usize, seen: Word) -> Entry<V> {
        let slot = self.slots.at(index);
        let entry = slot.take(seen);
        slot.clear();
        let home = self.home(super::key::hash(entry.key));
        self.forget_path(home, (index + self.len() - home) % self.len());
        self.live.fetch_sub(1, Ordering::Release);
        entry
    }

    /// Erase every visible entry with this key: unpinned ones go to `removed`, pinned ones become invisible and
    /// go when the hand finds them unpinned. Whether there was one.
    pub(super) fn erase(&self, hash: u64, key: [u64; 2], removed: &mut impl FnMut(Entry<V>)) -> bool {
        let mut index = self.home(hash);
        let mut found = false;
        for _ in 0..self.len() {
            let slot = self.slots.at(index);
            if slot.has_key(key) && slot.try_pin(key) {
                // Pinned, so the slot stays this entry; hide it, then give up the pin.
                while !slot.try_hide(slot.load(Ordering::Relaxed)) {}
                // Ordering: Release, as for every pin given back.
                slot.word.fetch_add(super::slot::RELEASED_ONE, Ordering::Release);
                found = true;
                let seen = slot.load(Ordering::Relaxed);
                if seen.is_shareable() && !seen.is_visible() && seen.pins() == 0 && slot.try_own(seen) {
                    removed(self.remove(index, seen));
                }
            }
            if slot.passed_over.load(Ordering::Relaxed) == 0 {
                break;
            }
            index = self.step(index);
        }
        found
    }

    /// Move the hand over `slots` slots: unpinned entries whose count ran out go to `evicted`, others age.
    /// Those of high priority are spared in most rounds if `spares_high`.
    pub(super) fn sweep(&self, slots: usize, spares_high: bool, evicted: &mut impl FnMut(Entry<V>)) -> Swept {
        let slots = slots.min(self.len());
        let start = self.hand.fetch_add(slots, Ordering::Relaxed);
        let mut swept = Swept { slots, ..Swept::default() };
        for place in start..start.wrapping_add(slots) {
            let index = place % self.len();
            let spares_high = spares_high && !(place / self.len()).is_multiple_of(super::HIGH_AGES_EVERY);
            let slot = self.slots.at(index);
            let seen = slot.load(Ordering::Relaxed);
            if !seen.is_shareable() {
                continue;
            }
            if seen.pins() != 0 {
                swept.pinned += 1;
            } else if seen.is_visible() && spares_high && seen.priority() == super::Priority::High {
                continue;
            } else if seen.is_visible() && seen.count() > 0 {
                slot.age(seen);
                swept.aged += 1;
            } else if slot.try_own(seen) {
                evicted(self.remove(index, seen));
            }
        }
        swept
    }

    /// Take no more inserts. They are drained by [`drain`](Self::drain).
    pub(super) fn retire(&self) {
        self.live.fetch_or(RETIRED, Ordering::AcqRel);
    }

    /// Move up to `slots` slots' unpinned entries out of a retired table, to `moved` (with whether they could be
    /// found). When the last is gone, the table's memory goes back to the system.
    ///
    /// Lock: the cache's `migration`.
    pub(super) fn drain(&self, slots: usize, moved: &mut impl FnMut(Entry<V>, bool)) {
        let slots = slots.min(self.len());
        let start = self.hand.fetch_add(slots, Ordering::Relaxed);
        for place in start..start.wrapping_add(slots) {
            let index = place % self.len();
            let slot = self.slots.at(index);
            let seen = slot.load(Ordering::Relaxed);
            if seen.is_shareable() && seen.pins() == 0 && slot.try_own(seen) {
                moved(self.remove(index, seen), seen.is_visible());
            }
        }
        // Ordering: Acquire pairs with the Release of each insert and removal that ended.
        if self.live.load(Ordering::Acquire) == RETIRED {
            self.slots.discard();
        }
    }

    /// Bytes charged for entries that are pinned now. Looks at every slot.
    pub(super) fn pinned_bytes(&self) -> usize {
        if self.live() == 0 {
            return 0;
        }
        let charge_if_pinned = |i| {
            let slot = self.slots.at(i);
            let seen = slot.load(Ordering::Relaxed);
            if seen.is_shareable() && seen.pins() != 0 { slot.charge() } else { 0 }
        };
        (0..self.len()).map(charge_if_pinned).sum()
    }

    /// Drop all values that nobody pins and free the table; if some are pinned, the last pin frees it.
    ///
    /// # Safety
    /// `table` must come from [`new`](Self::new), and nobody but handles may use it any more.
    pub(super) unsafe fn close(table: *mut Self) {
        // SAFETY: alive until `outstanding` falls to 0, which takes this function's own share.
        let this = unsafe { &*table };
        this.outstanding.store(1, Ordering::Relaxed);
        // Why: an empty table may be large, and looking at its slots would bring them all into memory.
        if this.live() != 0 {
            for index in 0..this.len() {
                let slot = this.slots.at(index);
                if !slot.load(Ordering::Relaxed).is_shareable() {
                    continue;
                }
                this.outstanding.fetch_add(1, Ordering::Relaxed);
                if !slot.close(table.cast()) {
                    slot.drop_value();
                    this.outstanding.fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
        // SAFETY: this function's own share.
        unsafe { Self::give_up(table) };
    }

    /// Give up one share of a closed table; the last one frees it.
    ///
    /// # Safety
    /// The caller must own a share (of `close`, or of a closed slot whose last pin it held) and use the table
    /// no more.
    pub(super) unsafe fn give_up(table: *mut Self) {
        // SAFETY: alive as long as the caller's share is not given up.
        if unsafe { &*table }.outstanding.fetch_sub(1, Ordering::Release) == 1 {
            // Ordering: everything that other sharers did comes before the end.
            fence(Ordering::Acquire);
            // SAFETY: made by `Box::into_raw` in `new`; no share is left.
            drop(unsafe { Box::from_raw(table) });
        }
    }
}
