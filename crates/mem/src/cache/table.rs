//! Open addressing over a fixed array of slots: find and pin, place, erase, and the clock hand that
//! evicts. Used by `BlockCache`, which owns a chain of tables, and by the last handle of a table
//! that closed.
//!
//! Slots come in groups of seven, and each group has one word, apart from the slots:
//!
//! | bits of a group's word | what |
//! |---|---|
//! | 8 * i .. 8 * i + 8, i in 0..7 | tag of slot i: 0 if free, else 8 bits of its key's hash (never 0) |
//! | 56..64 | passed: how many entries found the group full and went on to the next; 255 stays 255 |
//!
//! Invariants:
//! - An entry lies in the first group on its path that had a free slot when it was placed. Each
//!   group it passed counts it until it goes; a search ends at a group that nobody passed. So slots
//!   become free at once, and there are no tombstones to clean.
//! - Setting the tag of a free slot makes a thread the slot's owner; the owner alone clears it.
//! - `live` counts entries and inserts under way; it is raised before an insert touches the table
//!   and lowered after the last access. So the slots of a retired table with `live` 0 are never
//!   written again, but for the counts of searches that came too late.
//!
//! Why tags apart from the slots: they take one byte for each slot and stay in the processor's
//! caches, so a search learns from them where its entry is and goes to main memory once, for that
//! slot; a miss does not go there at all. Searching the slots themselves costs another access
//! whenever the entry is not in the first place looked at, and the processor guesses wrong whether
//! it is, just where finding out takes longest.
//!
//! Why a search steps by a stride of the key's own (double hashing) and not to the next group: the
//! hand empties a stretch of neighbours at a time, so the groups it comes to next are the fullest
//! of all, with up to twice the average. Searches that stepped to the next group walked thousands
//! there, once a cache had been full for a while; strides lead out at once.

use super::slot::{Entry, Slot, Word};
use super::slots::Slots;
use crate::sync::{AtomicU64, AtomicUsize, Ordering};

/// The slot of a group where an entry with this hash should lie, if it is free.
#[inline(always)]
fn favourite(hash: u64) -> usize {
    (((hash >> 8) & 0xffff) as usize * GROUP_SLOTS) >> 16
}

/// Slots of a group.
pub(super) const GROUP_SLOTS: usize = 7;
const EACH_TAG: u64 = 0x0001_0101_0101_0101;
const PASSED_SHIFT: u32 = 56;
const PASSED_ONE: u64 = 1 << PASSED_SHIFT;
const PASSED_MOST: u64 = 0xff;
/// How often an entry is tried to be looked at while others use it.
const LOOKS_AT_MOST: usize = 100;

/// Bit 7 of each byte of `word` that is 0, among the tags; above the lowest such byte it may err.
#[inline(always)]
fn zero_tags(word: u64) -> u64 {
    word.wrapping_sub(EACH_TAG) & !word & (EACH_TAG << 7)
}

#[inline(always)]
fn tag_of(hash: u64) -> u64 {
    // Why the low bits: the high ones choose the group.
    (hash & 0xff).max(1)
}

/// Set in `live` when the table takes no more inserts.
const RETIRED: usize = 1 << (usize::BITS - 1);

pub(super) struct Table<V> {
    groups: Slots<AtomicU64>,
    slots: Slots<Slot<V>>,
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
    /// An empty table of at least `slots` slots, in a number of groups that is a power of two;
    /// `None` if the system has not the memory.
    pub(super) fn new(slots: usize, older: *mut Table<V>) -> Option<*mut Self> {
        let groups = slots.div_ceil(GROUP_SLOTS).next_power_of_two();
        let table = Self {
            groups: Slots::new(groups)?,
            slots: Slots::new(groups * GROUP_SLOTS)?,
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

    /// Memory beyond the slots that have entries, which these are charged for.
    pub(super) fn uncharged_bytes(&self) -> usize {
        let free = self.len().saturating_sub(self.live());
        free * size_of::<Slot<V>>() + self.groups.len() * size_of::<AtomicU64>()
    }

    /// Entries, and inserts under way.
    pub(super) fn live(&self) -> usize {
        self.live.load(Ordering::Relaxed) & !RETIRED
    }

    /// Three quarters full: more entries would make searches long; time for a larger table.
    pub(super) fn is_crowded(&self) -> bool {
        self.live() >= self.len() * 3 / 4
    }

    /// Entries a table of `len` slots takes at most; some slots stay free, so that searches end.
    fn live_at_most(&self) -> usize {
        self.len() - self.len() / 8 - 1
    }

    #[inline(always)]
    fn home(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.groups.len() as u128) >> 64) as usize
    }

    /// The group after `group` in the search for a key with this hash.
    ///
    /// Invariant: the stride is odd and the number of groups a power of two, so a search comes to
    /// every group.
    #[inline(always)]
    fn step(&self, group: usize, hash: u64) -> usize {
        // Why these bits: the low ones are tag and favourite, the high ones chose the group.
        group.wrapping_add((hash >> 24) as usize | 1) & (self.groups.len() - 1)
    }

    /// Begin to fetch the slot where an entry with this hash lies, as far as its tag tells.
    #[inline(always)]
    pub(super) fn prefetch(&self, hash: u64) {
        let group = self.home(hash);
        let equal = zero_tags(self.groups.at(group).load(Ordering::Relaxed) ^ (tag_of(hash) * EACH_TAG));
        let slot = (equal.trailing_zeros() / 8) as usize;
        self.slots.prefetch(group * GROUP_SLOTS + slot.min(GROUP_SLOTS - 1));
    }

    /// The visible entry with this key, pinned for the caller.
    #[inline(always)]
    pub(super) fn find(&self, hash: u64, key: [u64; 2]) -> Option<&Slot<V>> {
        self.find_where(hash, key, |_, slot| Some(slot))
    }

    /// Pin the visible entries with this key, one after the other, until `found` returns something.
    #[inline(always)]
    fn find_where<'a, R>(
        &'a self,
        hash: u64,
        key: [u64; 2],
        mut found: impl FnMut(usize, &'a Slot<V>) -> Option<R>,
    ) -> Option<R> {
        let mut group = self.home(hash);
        // Why: this fetch need not wait for the tags, and is right in two of three cases.
        self.slots.prefetch(group * GROUP_SLOTS + favourite(hash));
        for _ in 0..self.groups.len() {
            // Ordering: Relaxed; tags are hints, and an entry whose insert returned before this
            // search began has set its tag and the counts on its way.
            let word = self.groups.at(group).load(Ordering::Relaxed);
            let mut equal = zero_tags(word ^ (tag_of(hash) * EACH_TAG));
            while equal != 0 {
                let index = group * GROUP_SLOTS + (equal.trailing_zeros() / 8) as usize;
                let slot = self.slots.at(index);
                // Why pin before looking at the key: the line is fetched once, for writing.
                if slot.try_pin(key)
                    && let Some(result) = found(index, slot)
                {
                    return Some(result);
                }
                equal &= equal - 1;
            }
            if word >> PASSED_SHIFT == 0 {
                return None;
            }
            group = self.step(group, hash);
        }
        None
    }

    /// How many groups a search for a key that is not there looks at.
    #[cfg(all(test, not(loom)))]
    pub(super) fn groups_searched(&self, hash: u64) -> usize {
        let mut group = self.home(hash);
        let passed = |group| self.groups.at(group).load(Ordering::Relaxed) >> PASSED_SHIFT != 0;
        let steps = (0..self.groups.len()).take_while(|_| {
            let goes_on = passed(group);
            group = self.step(group, hash);
            goes_on
        });
        steps.count() + 1
    }

    /// Put an entry in a free slot, with `pins` pins; gives it back if the table is full or
    /// retired.
    pub(super) fn place(&self, hash: u64, entry: Entry<V>, pins: u64) -> Result<&Slot<V>, Entry<V>> {
        // Ordering: Acquire pairs with the Release that retired the table or lowered the count.
        let before = self.live.fetch_add(1, Ordering::Acquire);
        if before & RETIRED != 0 || before >= self.live_at_most() {
            self.live.fetch_sub(1, Ordering::Release);
            return Err(entry);
        }
        let mut group = self.home(hash);
        for _ in 0..self.groups.len() {
            if let Some(slot) = self.claim(group, hash) {
                slot.publish(entry, pins);
                return Ok(slot);
            }
            self.count_passed(group, |passed| passed + 1);
            group = self.step(group, hash);
        }
        // Others filled each group just before this thread came to it.
        self.forget_path(hash, None);
        self.live.fetch_sub(1, Ordering::Release);
        Err(entry)
    }

    /// Become the owner of a free slot of the group.
    fn claim(&self, group: usize, hash: u64) -> Option<&Slot<V>> {
        let word = self.groups.at(group);
        let mut seen = word.load(Ordering::Relaxed);
        loop {
            let free = zero_tags(seen);
            if free == 0 {
                return None;
            }
            let slot = match favourite(hash) {
                slot if (seen >> (8 * slot)) & 0xff == 0 => slot,
                _ => (free.trailing_zeros() / 8) as usize,
            };
            let claimed = seen | (tag_of(hash) << (8 * slot));
            // Ordering: Acquire pairs with the Release that freed the slot.
            match word.compare_exchange_weak(seen, claimed, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(self.slots.at(group * GROUP_SLOTS + slot)),
                Err(now) => seen = now,
            }
        }
    }
    fn count_passed(&self, group: usize, change: impl Fn(u64) -> u64) {
        // Ordering: Relaxed; see `find_where`. Why 255 stays: how many passed is not known any
        // more.
        let _ = self.groups.at(group).fetch_update(Ordering::Relaxed, Ordering::Relaxed, |word| {
            let passed = word >> PASSED_SHIFT;
            (passed != PASSED_MOST).then(|| word - passed * PASSED_ONE + change(passed) * PASSED_ONE)
        });
    }

    /// Undo the counts of an entry that had passed the groups from its home up to `end`, or all.
    fn forget_path(&self, hash: u64, end: Option<usize>) {
        let mut group = self.home(hash);
        for _ in 0..self.groups.len() {
            if Some(group) == end {
                return;
            }
            self.count_passed(group, |passed| passed - 1);
            group = self.step(group, hash);
        }
    }

    /// REQUIRES: the caller owns the slot at `index`, from a word that was `seen`. Frees it.
    fn remove(&self, index: usize, seen: Word) -> Entry<V> {
        let entry = self.slots.at(index).take(seen);
        let (group, slot) = (index / GROUP_SLOTS, index % GROUP_SLOTS);
        // Ordering: Release; the taking comes before the next owner's writing.
        self.groups.at(group).fetch_and(!(0xff << (8 * slot)), Ordering::Release);
        self.forget_path(super::key::hash(entry.key), Some(group));
        self.live.fetch_sub(1, Ordering::Release);
        entry
    }

    fn is_free(&self, index: usize) -> bool {
        let word = self.groups.at(index / GROUP_SLOTS).load(Ordering::Relaxed);
        (word >> (8 * (index % GROUP_SLOTS))) & 0xff == 0
    }

    /// The slots that are not free, and their words.
    fn taken(&self) -> impl Iterator<Item = (&Slot<V>, Word)> {
        (0..self.len()).filter(|i| !self.is_free(*i)).map(|i| {
            let slot = self.slots.at(i);
            (slot, slot.load(Ordering::Relaxed))
        })
    }

    /// Erase every visible entry with this key: unpinned ones go to `removed`, pinned ones become
    /// invisible and go when the hand finds them unpinned. Whether there was one.
    pub(super) fn erase(&self, hash: u64, key: [u64; 2], removed: &mut impl FnMut(Entry<V>)) -> bool {
        let mut any = false;
        self.find_where(hash, key, |index, slot| {
            any = true;
            // Pinned, so the slot stays this entry: hide it, then give up the pin.
            while !slot.try_hide(slot.load(Ordering::Relaxed)) {}
            // Ordering: Release, as for every pin given back.
            slot.word.fetch_add(super::slot::RELEASED_ONE, Ordering::Release);
            let seen = slot.load(Ordering::Relaxed);
            if seen.is_shareable() && !seen.is_visible() && seen.pins() == 0 && slot.try_own(seen) {
                removed(self.remove(index, seen));
            }
            None::<()>
        });
        any
    }

    /// Move the hand over the free slots before it, and then over `slots` slots: unpinned entries
    /// whose count ran out go to `evicted`, others age. Those of high priority are spared in most
    /// rounds if `spares_high`.
    pub(super) fn sweep(&self, slots: usize, spares_high: bool, evicted: &mut impl FnMut(Entry<V>)) -> Swept {
        let slots = slots.min(self.len());
        let (start, passed) = self.advance_hand(slots);
        let mut swept = Swept { slots: passed + slots, ..Swept::default() };
        for place in (0..slots).map(|i| start.wrapping_add(i)) {
            let index = place % self.len();
            let spares_high = spares_high && !(place / self.len()).is_multiple_of(super::HIGH_AGES_EVERY);
            if self.is_free(index) {
                continue;
            }
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

    /// Takes the next `slots` slots of the hand's way, from the first that is not free on, for this
    /// thread. Where they start, and how many free ones were passed.
    ///
    /// Why: large entries leave the table nearly empty, and a step for every free slot was then
    /// most of what an eviction cost.
    fn advance_hand(&self, slots: usize) -> (usize, usize) {
        let mut hand = self.hand.load(Ordering::Relaxed);
        loop {
            let free = self.free_from(hand % self.len());
            let start = hand.wrapping_add(free);
            // Ordering: Relaxed; the hand says whose turn it is, and nothing of the slots.
            let next = start.wrapping_add(slots);
            match self.hand.compare_exchange_weak(hand, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return (start, free),
                Err(now) => hand = now,
            }
        }
    }

    /// How many slots from `index` on are free, at most all of the table.
    fn free_from(&self, index: usize) -> usize {
        const TAGS: u64 = PASSED_ONE - 1;
        let mut group = index / GROUP_SLOTS;
        let first = (self.groups.at(group).load(Ordering::Relaxed) & TAGS) >> (8 * (index % GROUP_SLOTS));
        if first != 0 {
            return first.trailing_zeros() as usize / 8;
        }
        let mut free = GROUP_SLOTS - index % GROUP_SLOTS;
        while free < self.len() {
            group = (group + 1) & (self.groups.len() - 1);
            let tags = self.groups.at(group).load(Ordering::Relaxed) & TAGS;
            if tags != 0 {
                return (free + tags.trailing_zeros() as usize / 8).min(self.len());
            }
            free += GROUP_SLOTS;
        }
        self.len()
    }

    /// Take no more inserts. The entries go by [`drain`](Self::drain).
    pub(super) fn retire(&self) {
        self.live.fetch_or(RETIRED, Ordering::AcqRel);
    }

    /// Move up to `slots` slots' unpinned entries out of a retired table, to `moved` (with whether
    /// they could be found). When the last is gone, the table's memory goes back to the system.
    ///
    /// Lock: the cache's `migration`.
    pub(super) fn drain(&self, slots: usize, moved: &mut impl FnMut(Entry<V>, bool)) {
        let slots = slots.min(self.len());
        let start = self.hand.fetch_add(slots, Ordering::Relaxed);
        for place in start..start.wrapping_add(slots) {
            let index = place % self.len();
            if self.is_free(index) {
                continue;
            }
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

    /// Bytes charged for entries that are pinned now. Looks at every entry.
    pub(super) fn pinned_bytes(&self) -> usize {
        let pinned = |(slot, word): (&Slot<V>, Word)| {
            if word.is_shareable() && word.pins() != 0 { slot.charge() } else { 0 }
        };
        if self.live() == 0 { 0 } else { self.taken().map(pinned).sum() }
    }

    /// Show all visible entries, each with its charge. One that others use at this very moment may
    /// be passed over.
    pub(super) fn for_each(&self, show: &mut impl FnMut(&V, usize)) {
        struct Looking<'a, V>(&'a Slot<V>);
        impl<V> Drop for Looking<'_, V> {
            fn drop(&mut self) {
                self.0.look_away();
            }
        }
        if self.live() == 0 {
            return;
        }
        for (slot, mut word) in self.taken() {
            // Why again: a hit at this moment changes the word.
            for _ in 0..LOOKS_AT_MOST {
                if !word.is_visible() {
                    break;
                }
                if slot.try_look(word) {
                    let looking = Looking(slot);
                    // SAFETY: `looking` holds a pin.
                    show(unsafe { looking.0.value() }, slot.charge());
                    break;
                }
                word = slot.load(Ordering::Relaxed);
            }
        }
    }

    /// Drop all values that nobody pins and free the table; if some are pinned, the last pin frees
    /// it.
    ///
    /// # Safety
    /// `table` must come from [`new`](Self::new), and nobody but handles may use it any more.
    pub(super) unsafe fn close(table: *mut Self) {
        // SAFETY: alive until `outstanding` falls to 0, which takes this function's own share.
        let this = unsafe { &*table };
        this.outstanding.store(1, Ordering::Relaxed);
        for (slot, word) in this.taken() {
            if word.is_shareable() {
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
    /// The caller must own a share (of `close`, or of a closed slot whose last pin it held) and use
    /// the table no more.
    pub(super) unsafe fn give_up(table: *mut Self) {
        // SAFETY: alive as long as the caller's share is not given up.
        let outstanding = &unsafe { &*table }.outstanding;
        if outstanding.fetch_sub(1, Ordering::Release) == 1 {
            // Ordering: everything that other sharers did comes before the end.
            outstanding.load(Ordering::Acquire);
            // SAFETY: made by `Box::into_raw` in `new`; no share is left.
            drop(unsafe { Box::from_raw(table) });
        }
    }
}
