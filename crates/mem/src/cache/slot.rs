//! The slot of a cache entry: its state word, key, charge and value, and the protocol by which
//! threads share it. Used by the table (which owns the slots) and by handles (which pin them).
//!
//! The state word:
//!
//! | bits | content |
//! |---|---|
//! | 0..28 | A: pins taken |
//! | 28..56 | R: pins released |
//! | 56..58 | priority |
//! | 58 | CLOSED: the cache is gone; the last pin frees the value |
//! | 59 | STANDALONE: never was in a table; the last pin frees the slot |
//! | 60 | LISTED: standalone, and can be found while it is pinned (`in_use.rs`) |
//! | 62 | VISIBLE: can be found by key |
//! | 63 | SHAREABLE: holds a value that may be pinned |
//!
//! States: neither bit (free, or owned by one thread that fills or empties it), invisible
//! (SHAREABLE alone: erased while pinned) and visible (both). The table's tags mark the free slots.
//!
//! Invariants:
//! - A - R is the number of pins, and while it is not 0 no thread takes the value away. When it is
//!   0, A (= R) is the clock's count: the number of rounds of the eviction hand that the entry
//!   still survives. A hit is therefore one add on A and its release one add on R, and no separate
//!   write marks the entry as used.
//! - Only a compare-and-swap from an unpinned shareable word to 0, or setting the tag of a free
//!   slot, makes a thread the owner; words of such slots may carry stray counts of late searches,
//!   which publishing overwrites.
//! - A handle's release does not touch the slot after its add, unless the word showed that it was
//!   the last pin of a closed or standalone slot, which makes it the owner. No release therefore
//!   races with the end of the table. An invisible slot is freed by the hand, by the migration or
//!   by the end of the cache.
//!
//! Two counters and not one with a mark, because marking the entry as used would be a second atomic
//! operation, and pins by compare-and-swap would slow down on blocks that many threads hit at once.

use super::Priority;
use crate::sync::{AtomicPtr, AtomicU64, Cell, Ordering};
use std::mem::MaybeUninit;
use std::ptr;

pub(super) const TAKEN_ONE: u64 = 1;
const COUNT_BITS: u32 = 28;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;
pub(super) const RELEASED_ONE: u64 = 1 << COUNT_BITS;
const TAKEN_TOP: u64 = 1 << (COUNT_BITS - 1);
const RELEASED_TOP: u64 = TAKEN_TOP << COUNT_BITS;
const PRIORITY_SHIFT: u32 = 56;
pub(super) const CLOSED: u64 = 1 << 58;
pub(super) const STANDALONE: u64 = 1 << 59;
const LISTED: u64 = 1 << 60;
const VISIBLE: u64 = 1 << 62;
const SHAREABLE: u64 = 1 << 63;
const STATE_MASK: u64 = SHAREABLE | VISIBLE;

/// Maximum count of the clock: the rounds that an entry survives without use.
pub(super) const COUNT_AT_MOST: u64 = 3;
/// Maximum number of pins of one slot before the process aborts (like `Arc`): only a leak of
/// handles reaches it.
const PINS_AT_MOST: u64 = 1 << (COUNT_BITS - 2);

/// A copy of a state word.
#[derive(Clone, Copy)]
pub(super) struct Word(pub(super) u64);

impl Word {
    pub(super) fn pins(self) -> u64 {
        self.0.wrapping_sub(self.0 >> COUNT_BITS) & COUNT_MASK
    }
    /// The clock's count. Meaningful while unpinned.
    pub(super) fn count(self) -> u64 {
        self.0 & COUNT_MASK
    }
    pub(super) fn is_shareable(self) -> bool {
        self.0 & SHAREABLE != 0
    }
    pub(super) fn is_visible(self) -> bool {
        self.0 & STATE_MASK == STATE_MASK
    }
    pub(super) fn priority(self) -> Priority {
        Priority::ALL[(self.0 >> PRIORITY_SHIFT) as usize & 3]
    }
    /// Returns the word of a published entry with `pins` pins that will then survive `count`
    /// rounds.
    fn visible(priority: Priority, count: u64, pins: u64) -> u64 {
        STATE_MASK
            | ((priority as u64) << PRIORITY_SHIFT)
            | ((count + pins) * TAKEN_ONE)
            | (count * RELEASED_ONE)
    }
}

/// The content of a slot, moved out of it or about to be moved in.
pub(super) struct Entry<V> {
    pub(super) key: [u64; 2],
    pub(super) value: V,
    /// Bytes of the entry in the cache's usage.
    pub(super) charge: usize,
    pub(super) priority: Priority,
    /// Rounds of the clock that it survives.
    pub(super) count: u64,
}

/// Invariant: all-zero bytes are an empty slot (outside loom), because a table is memory fresh from
/// the system.
///
/// The word, the key and the head of the value share the first cache line, because a hit needs
/// these.
#[repr(C, align(64))]
pub(super) struct Slot<V> {
    pub(super) word: AtomicU64,
    key: [AtomicU64; 2],
    /// The charge, as an address without a target; in a closed slot the table to release last.
    charge_or_table: AtomicPtr<()>,
    value: Cell<MaybeUninit<V>>,
}

impl<V> Slot<V> {
    /// Returns an empty slot.
    pub(super) fn empty() -> Self {
        Self {
            word: AtomicU64::new(0),
            key: [AtomicU64::new(0), AtomicU64::new(0)],
            charge_or_table: AtomicPtr::new(ptr::null_mut()),
            value: Cell::new(MaybeUninit::uninit()),
        }
    }

    /// Returns a pinned slot outside of any table; `listed` if it goes on the list of values in
    /// use.
    pub(super) fn standalone(value: V, listed: bool) -> Self {
        let slot = Self { value: Cell::new(MaybeUninit::new(value)), ..Self::empty() };
        let listed = if listed { LISTED } else { 0 };
        slot.word.store(SHAREABLE | STANDALONE | listed | TAKEN_ONE, Ordering::Relaxed);
        slot
    }

    #[inline(always)]
    pub(super) fn load(&self, ordering: Ordering) -> Word {
        Word(self.word.load(ordering))
    }

    /// REQUIRES: a pin is held, which keeps the key from changing.
    #[inline(always)]
    fn has_key(&self, key: [u64; 2]) -> bool {
        self.key[0].load(Ordering::Relaxed) == key[0] && self.key[1].load(Ordering::Relaxed) == key[1]
    }

    fn key(&self) -> [u64; 2] {
        [self.key[0].load(Ordering::Relaxed), self.key[1].load(Ordering::Relaxed)]
    }

    pub(super) fn charge(&self) -> usize {
        self.charge_or_table.load(Ordering::Relaxed).addr()
    }

    /// Pins the slot if it is visible and holds `key`.
    #[inline(always)]
    pub(super) fn try_pin(&self, key: [u64; 2]) -> bool {
        // Ordering: Acquire pairs with the Release of `publish`, which makes key and value visible.
        let old = Word(self.word.fetch_add(TAKEN_ONE, Ordering::Acquire));
        if old.is_visible() && self.has_key(key) {
            if old.0 & TAKEN_TOP != 0 {
                self.keep_counts_in_range();
            }
            return true;
        }
        if old.is_shareable() {
            // The pin was taken on the slot of another key, and is removed. Ordering: Release; all
            // reads of the slot by this thread come before its reuse.
            self.word.fetch_sub(TAKEN_ONE, Ordering::Release);
        }
        false
    }

    /// Pins the slot for inspection if its word is still `seen`, which is visible.
    /// [`look_away`](Self::look_away) removes the pin, which does not count as a use.
    pub(super) fn try_look(&self, seen: Word) -> bool {
        debug_assert!(seen.is_visible());
        // Ordering: Acquire pairs with the Release of `publish`, which makes the value visible.
        let pinned = seen.0 + TAKEN_ONE;
        self.word.compare_exchange(seen.0, pinned, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// REQUIRES: a pin of `try_look` is held.
    pub(super) fn look_away(&self) {
        // Ordering: Release; all reads of the slot by this thread come before its reuse.
        self.word.fetch_sub(TAKEN_ONE, Ordering::Release);
    }

    /// Takes another pin for a holder of a pin.
    pub(super) fn pin_again(&self) {
        // Ordering: Relaxed, as for `Arc`: the pin held keeps the value; the new one need not see
        // more.
        let old = self.word.fetch_add(TAKEN_ONE, Ordering::Relaxed);
        if old & TAKEN_TOP != 0 {
            self.keep_counts_in_range();
        }
    }

    /// Takes another pin if the slot is pinned, for a caller without a pin; other means keep the
    /// slot alive meanwhile.
    pub(super) fn pin_if_pinned(&self) -> bool {
        let another = |word| (Word(word).pins() != 0).then_some(word + TAKEN_ONE);
        // Ordering: Relaxed, as for `pin_again`: the lock that led here made the value visible.
        let pinned = self.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, another);
        if pinned.is_ok_and(|old| old & TAKEN_TOP != 0) {
            self.keep_counts_in_range();
        }
        pinned.is_ok()
    }

    /// Returns true if it is pinned now.
    pub(super) fn is_pinned(&self) -> bool {
        self.load(Ordering::Relaxed).pins() != 0
    }

    /// REQUIRES: a pin is held. Clears the top bit of both counters once both have it; their
    /// difference stays.
    #[cold]
    fn keep_counts_in_range(&self) {
        let mut word = self.word.load(Ordering::Relaxed);
        while word & RELEASED_TOP != 0 && word & TAKEN_TOP != 0 {
            let lower = word & !(TAKEN_TOP | RELEASED_TOP);
            match self.word.compare_exchange_weak(word, lower, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
        if Word(word).pins() > PINS_AT_MOST {
            // Aborts, because the count would wrap and a value in use be freed; nothing weaker is
            // safe.
            std::process::abort();
        }
    }

    /// REQUIRES: the caller owns the slot. Publishes the entry with `pins` pins.
    pub(super) fn publish(&self, entry: Entry<V>, pins: u64) {
        self.key[0].store(entry.key[0], Ordering::Relaxed);
        self.key[1].store(entry.key[1], Ordering::Relaxed);
        self.charge_or_table.store(ptr::without_provenance_mut(entry.charge), Ordering::Relaxed);
        // SAFETY: the owner is alone with the slot, which has no value to drop.
        self.value.with_mut(|v| unsafe { (*v).write(entry.value) });
        // Ordering: Release publishes the above.
        // A swap, although a store would do (it overwrites the counts of late searches), because
        // loom does not order a plain store after a concurrent read-modify-write. Only misses pay
        // for it.
        self.word.swap(Word::visible(entry.priority, entry.count, pins), Ordering::Release);
    }

    /// Makes the caller the owner of an unpinned shareable slot, if its word is still `seen`.
    pub(super) fn try_own(&self, seen: Word) -> bool {
        debug_assert!(seen.is_shareable() && seen.pins() == 0);
        // Ordering: Acquire pairs with the Release of every released pin.
        self.word.compare_exchange(seen.0, 0, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// REQUIRES: the caller became the owner by `try_own(seen)` and has not taken the entry yet.
    /// Moves the entry out.
    pub(super) fn take(&self, seen: Word) -> Entry<V> {
        // SAFETY: the owner is alone with the value, which exists because the slot was shareable,
        // and which is not read again: the slot is not shareable until another value is published.
        let value = self.value.with(|v| unsafe { (*v).assume_init_read() });
        Entry {
            key: self.key(),
            value,
            charge: self.charge(),
            priority: seen.priority(),
            count: seen.count(),
        }
    }

    /// Lowers the clock's count of an unpinned entry; does nothing if the word is no longer `seen`.
    pub(super) fn age(&self, seen: Word) {
        let count = (seen.count() - 1).min(COUNT_AT_MOST - 1);
        let aged =
            (seen.0 & !(COUNT_MASK | (COUNT_MASK << COUNT_BITS))) | (count * (TAKEN_ONE | RELEASED_ONE));
        // Ordering: Relaxed; a read-modify-write continues the release sequence of `publish`.
        let _ = self.word.compare_exchange(seen.0, aged, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Hides a pinned entry from searches, if its word is still `seen`.
    pub(super) fn try_hide(&self, seen: Word) -> bool {
        self.word.compare_exchange(seen.0, seen.0 & !VISIBLE, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// REQUIRES: no search can be in progress any more. Leaves the slot to its pins: the last one
    /// frees the value and releases `table`. Returns `false` if the slot has no pin, which makes
    /// the caller the owner.
    pub(super) fn close(&self, table: *mut ()) -> bool {
        self.charge_or_table.store(table, Ordering::Relaxed);
        // Ordering: Release for `table`; Acquire for the pins already released.
        Word(self.word.fetch_or(CLOSED, Ordering::AcqRel)).pins() != 0
    }

    /// REQUIRES: the caller holds the last pin of a closed slot.
    pub(super) fn closed_table(&self) -> *mut () {
        self.charge_or_table.load(Ordering::Relaxed)
    }

    /// REQUIRES: the caller owns the slot or is alone with it, the slot holds a value, and the
    /// value is not used again.
    pub(super) fn drop_value(&self) {
        // SAFETY: by the requirement.
        self.value.with_mut(|v| unsafe { (*v).assume_init_drop() });
    }

    /// # Safety
    /// The caller must hold a pin for as long as it uses the reference.
    #[inline(always)]
    pub(super) unsafe fn value(&self) -> &V {
        // SAFETY: a pinned slot holds a value that no thread writes.
        self.value.with(|v| unsafe { (*v).assume_init_ref() })
    }

    /// Returns true if the slot is outside of any table, cannot be found and is pinned once.
    pub(super) fn is_standalone_with_one_pin(&self) -> bool {
        // Ordering: Acquire pairs with the Release of the released pins; their reads come before
        // the next write.
        let word = self.load(Ordering::Acquire);
        word.0 & (STANDALONE | LISTED) == STANDALONE && word.pins() == 1
    }

    /// REQUIRES: the caller holds the only pin of a standalone slot.
    pub(super) fn replace_value(&self, value: V) -> V {
        // SAFETY: by the requirement no other thread reads it, and it holds a value.
        self.value.with_mut(|v| unsafe { std::mem::replace((*v).assume_init_mut(), value) })
    }
}
