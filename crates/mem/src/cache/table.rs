//! Open addressing over a fixed array of slots: find and pin, place, erase, and the clock hand that
//! evicts. Used by `BlockCache`, which owns a chain of tables, and by the last handle of a closed
//! table.
//!
//! Slots are in groups of seven, and each group has one word, apart from the slots:
//!
//! | bits of a group's word | content |
//! |---|---|
//! | 8 * i .. 8 * i + 8, i in 0..7 | tag of slot i: 0 if free, else 8 bits of its key's hash (never 0) |
//! | 56..64 | passed: number of entries that found the group full and went on to the next; 255 stays 255 |
//!
//! Invariants:
//! - An entry lies in the first group on its path that had a free slot when it was placed. Each
//!   group it passed counts it until it is removed; a search ends at a group that no entry passed.
//!   Slots therefore become free at once, and the table has no tombstones to clean.
//! - Setting the tag of a free slot makes a thread the slot's owner; only the owner clears it.
//! - `live` counts entries and inserts in progress; it is raised before an insert touches the table
//!   and lowered after the last access. The slots of a retired table with `live` 0 are therefore
//!   never written again, except for the counts of late searches.
//!
//! Tags are apart from the slots, because they take one byte for each slot and stay in the
//! processor's caches: a search finds its slot by them and accesses main memory once, for that
//! slot; a miss does not access it at all. Searching the slots themselves costs another access if
//! the entry is not in the first place, and a branch misprediction just where its resolution takes
//! longest.
//!
//! A search steps by a stride of the key's own (double hashing) and not to the next group, because
//! the hand empties neighbouring slots together, which makes the groups just before it the fullest
//! of all, with up to twice the average. Searches that stepped to the next group visited thousands
//! there, once a cache had been full for a while; strides leave the region at once.

use super::slot::{Entry, Slot, Word};
use super::slots::Slots;
use crate::sync::{AtomicU64, AtomicUsize, Ordering};

/// Returns the preferred slot in a group for an entry with this hash.
#[inline(always)]
fn favourite(hash: u64) -> usize {
    (((hash >> 8) & 0xffff) as usize * GROUP_SLOTS) >> 16
}

/// Number of slots of a group.
pub(super) const GROUP_SLOTS: usize = 7;
const EACH_TAG: u64 = 0x0001_0101_0101_0101;
const PASSED_SHIFT: u32 = 56;
const PASSED_ONE: u64 = 1 << PASSED_SHIFT;
const PASSED_MOST: u64 = 0xff;
/// Maximum number of attempts to inspect an entry while other threads use it.
const LOOKS_AT_MOST: usize = 100;

/// Returns bit 7 of each tag byte of `word` that is 0; may err above the lowest such byte.
#[inline(always)]
fn zero_tags(word: u64) -> u64 {
    word.wrapping_sub(EACH_TAG) & !word & (EACH_TAG << 7)
}

#[inline(always)]
fn tag_of(hash: u64) -> u64 {
    // The low bits, because the high ones select the group.
    (hash & 0xff).max(1)
}

/// Set in `live` when the table takes no more inserts.
const RETIRED: usize = 1 << (usize::BITS - 1);

pub(super) struct Table<V> {
    groups: Slots<AtomicU64>,
    slots: Slots<Slot<V>>,
    live: AtomicUsize,
    /// Slots that the hand has passed since the beginning; its position is this modulo the length.
    hand: AtomicUsize,
    /// After the end of the cache: number of pinned slots left, plus one for the thread that closes
    /// the table.
    outstanding: AtomicUsize,
    /// The table that this one replaced, from which entries still move here.
    pub(super) older: *mut Table<V>,
}

/// Result of a stretch of the hand.
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
    /// Returns an empty table of at least `slots` slots, in a number of groups that is a power of
    /// two; `None` if the system does not have the memory.
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

    /// Returns the bytes of memory beyond the slots of entries, which the entries are charged for.
    pub(super) fn uncharged_bytes(&self) -> usize {
        let free = self.len().saturating_sub(self.live());
        free * size_of::<Slot<V>>() + self.groups.len() * size_of::<AtomicU64>()
    }

    /// Returns the number of entries and inserts in progress.
    pub(super) fn live(&self) -> usize {
        self.live.load(Ordering::Relaxed) & !RETIRED
    }

    /// Returns true if the table is three quarters full: more entries would make searches long, and
    /// a larger table is due.
    pub(super) fn is_crowded(&self) -> bool {
        self.live() >= self.len() * 3 / 4
    }

    /// Returns the maximum number of entries; some slots stay free, because searches must end.
    fn live_at_most(&self) -> usize {
        self.len() - self.len() / 8 - 1
    }

    #[inline(always)]
    fn home(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.groups.len() as u128) >> 64) as usize
    }

    /// Returns the group after `group` in the search for a key with this hash.
    ///
    /// Invariant: the stride is odd and the number of groups a power of two, which lets a search
    /// reach every group.
    #[inline(always)]
    fn step(&self, group: usize, hash: u64) -> usize {
        // These bits, because the low ones are tag and preferred slot, and the high ones selected
        // the group.
        group.wrapping_add((hash >> 24) as usize | 1) & (self.groups.len() - 1)
    }

    /// Prefetches the slot that the tags suggest for this hash.
    #[inline(always)]
    pub(super) fn prefetch(&self, hash: u64) {
        let group = self.home(hash);
        let equal = zero_tags(self.groups.at(group).load(Ordering::Relaxed) ^ (tag_of(hash) * EACH_TAG));
        let slot = (equal.trailing_zeros() / 8) as usize;
        self.slots.prefetch(group * GROUP_SLOTS + slot.min(GROUP_SLOTS - 1));
    }

    /// Returns the visible entry with this key, pinned for the caller.
    #[inline(always)]
    pub(super) fn find(&self, hash: u64, key: [u64; 2]) -> Option<&Slot<V>> {
        self.find_where(hash, key, |_, slot| Some(slot))
    }

    /// Pins the visible entries with this key, one after the other, until `found` returns `Some`.
    #[inline(always)]
    fn find_where<'a, R>(
        &'a self,
        hash: u64,
        key: [u64; 2],
        mut found: impl FnMut(usize, &'a Slot<V>) -> Option<R>,
    ) -> Option<R> {
        let mut group = self.home(hash);
        // Prefetched, because this access need not wait for the tags, and is right in two of three
        // cases.
        self.slots.prefetch(group * GROUP_SLOTS + favourite(hash));
        for _ in 0..self.groups.len() {
            // Ordering: Relaxed; tags are hints, and an entry whose insert returned before this
            // search began has set its tag and the counts on its way.
            let word = self.groups.at(group).load(Ordering::Relaxed);
            let mut equal = zero_tags(word ^ (tag_of(hash) * EACH_TAG));
            while equal != 0 {
                let index = group * GROUP_SLOTS + (equal.trailing_zeros() / 8) as usize;
                let slot = self.slots.at(index);
                // Pinned before the key is compared, because the line is then fetched once, for
                // writing.
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

    /// Returns the number of groups that a search for an absent key visits.
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

    /// Puts an entry in a free slot, with `pins` pins; returns it if the table is full or retired.
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
        // Other threads filled each group just before this one reached it.
        self.forget_path(hash, None);
        self.live.fetch_sub(1, Ordering::Release);
        Err(entry)
    }

    /// Makes the caller the owner of a free slot of the group.
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
        // Ordering: Relaxed; see `find_where`. 255 stays, because the exact number is then no
        // longer known.
        let _ = self.groups.at(group).fetch_update(Ordering::Relaxed, Ordering::Relaxed, |word| {
            let passed = word >> PASSED_SHIFT;
            (passed != PASSED_MOST).then(|| word - passed * PASSED_ONE + change(passed) * PASSED_ONE)
        });
    }

    /// Undoes the counts of an entry that had passed the groups from its home up to `end`, or all
    /// of them.
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

    /// REQUIRES: the caller owns the slot at `index`, by a word that was `seen`. Frees the slot and
    /// returns its entry.
    fn remove(&self, index: usize, seen: Word) -> Entry<V> {
        let entry = self.slots.at(index).take(seen);
        let (group, slot) = (index / GROUP_SLOTS, index % GROUP_SLOTS);
        // Ordering: Release; taking the entry comes before the next owner's writes.
        self.groups.at(group).fetch_and(!(0xff << (8 * slot)), Ordering::Release);
        self.forget_path(super::key::hash(entry.key), Some(group));
        self.live.fetch_sub(1, Ordering::Release);
        entry
    }

    fn is_free(&self, index: usize) -> bool {
        let word = self.groups.at(index / GROUP_SLOTS).load(Ordering::Relaxed);
        (word >> (8 * (index % GROUP_SLOTS))) & 0xff == 0
    }

    /// Returns the slots that are not free, and their words.
    fn taken(&self) -> impl Iterator<Item = (&Slot<V>, Word)> {
        (0..self.len()).filter(|i| !self.is_free(*i)).map(|i| {
            let slot = self.slots.at(i);
            (slot, slot.load(Ordering::Relaxed))
        })
    }

    /// Erases every visible entry with this key: unpinned ones go to `removed`, pinned ones become
    /// invisible and are removed when the hand finds them unpinned. Returns true if any was found.
    pub(super) fn erase(&self, hash: u64, key: [u64; 2], removed: &mut impl FnMut(Entry<V>)) -> bool {
        let mut any = false;
        self.find_where(hash, key, |index, slot| {
            any = true;
            // The pin keeps the slot with this entry: hide it, then release the pin.
            while !slot.try_hide(slot.load(Ordering::Relaxed)) {}
            // Ordering: Release, as for every released pin.
            slot.word.fetch_add(super::slot::RELEASED_ONE, Ordering::Release);
            let seen = slot.load(Ordering::Relaxed);
            if seen.is_shareable() && !seen.is_visible() && seen.pins() == 0 && slot.try_own(seen) {
                removed(self.remove(index, seen));
            }
            None::<()>
        });
        any
    }

    /// Moves the hand over the free slots before it, and then over `slots` slots: unpinned entries
    /// whose count has run out go to `evicted`, others age. Those of High priority are spared in
    /// most rounds if `spares_high`.
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

    /// Reserves for this thread the next `slots` slots of the hand's way, from the first that is
    /// not free. Returns their start, and the number of free ones passed.
    ///
    /// Free slots are skipped, because large entries leave the table nearly empty, and a step for
    /// every free slot was then most of the cost of an eviction.
    fn advance_hand(&self, slots: usize) -> (usize, usize) {
        let mut hand = self.hand.load(Ordering::Relaxed);
        loop {
            let free = self.free_from(hand % self.len());
            let start = hand.wrapping_add(free);
            // Ordering: Relaxed; the hand assigns slots to threads, and publishes nothing about
            // them.
            let next = start.wrapping_add(slots);
            match self.hand.compare_exchange_weak(hand, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return (start, free),
                Err(now) => hand = now,
            }
        }
    }

    /// Returns the number of free slots from `index` on, at most all of the table.
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

    /// Refuses further inserts. The entries leave through [`drain`](Self::drain).
    pub(super) fn retire(&self) {
        self.live.fetch_or(RETIRED, Ordering::AcqRel);
    }

    /// Moves the unpinned entries of up to `slots` slots out of a retired table, to `moved` (with
    /// true if visible). When the last is gone, the table's memory is returned to the system.
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
        // Ordering: Acquire pairs with the Release at the end of each insert and removal.
        if self.live.load(Ordering::Acquire) == RETIRED {
            self.slots.discard();
        }
    }

    /// Returns the bytes charged for entries that are pinned now. Visits every entry.
    pub(super) fn pinned_bytes(&self) -> usize {
        let pinned = |(slot, word): (&Slot<V>, Word)| {
            if word.is_shareable() && word.pins() != 0 { slot.charge() } else { 0 }
        };
        if self.live() == 0 { 0 } else { self.taken().map(pinned).sum() }
    }

    /// Calls `show` for all visible entries with their charges. May skip an entry that other
    /// threads use at this moment.
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
            // Tried again, because a hit at this moment changes the word.
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

    /// Drops all unpinned values and frees the table; if some values are pinned, the last pin frees
    /// it.
    ///
    /// # Safety
    /// `table` must come from [`new`](Self::new), and only handles may still use it.
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

    /// Releases one share of a closed table; the last one frees it.
    ///
    /// # Safety
    /// The caller must own a share (of `close`, or of a closed slot whose last pin it held) and use
    /// the table no more.
    pub(super) unsafe fn give_up(table: *mut Self) {
        // SAFETY: alive until the caller's share is released.
        let outstanding = &unsafe { &*table }.outstanding;
        if outstanding.fetch_sub(1, Ordering::Release) == 1 {
            // Ordering: Acquire; all accesses by other sharers come before the end.
            outstanding.load(Ordering::Acquire);
            // SAFETY: made by `Box::into_raw` in `new`; no share is left.
            drop(unsafe { Box::from_raw(table) });
        }
    }
}
