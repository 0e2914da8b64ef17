//! One cache entry: its state word, its key, its charge and its value; and the rules by which
//! threads share it. Used by the table (which owns the slots) and by handles (which pin them).
//!
//! The state word:
//!
//! | bits | what |
//! |---|---|
//! | 0..28 | A: pins taken |
//! | 28..56 | R: pins given back |
//! | 56..58 | priority |
//! | 58 | CLOSED: the cache is gone; the last pin frees the value |
//! | 59 | STANDALONE: never was in a table; the last pin frees the slot |
//! | 60 | LISTED: standalone, and others may find it while it is pinned (`in_use.rs`) |
//! | 62 | VISIBLE: may be found by key |
//! | 63 | SHAREABLE: holds a value that may be pinned |
//!
//! States: neither bit (free, or owned by one thread that fills or empties it), invisible
//! (SHAREABLE alone: erased while pinned) and visible (both). Which slots are free, the table's
//! tags say.
//!
//! Invariants:
//! - A - R is the number of pins, and while it is not 0 nobody takes a value away. When it is 0, A
//!   (= R) is the clock's count: how many rounds of the eviction hand the entry still survives. So
//!   a hit is one add on A and its release one add on R, and no separate write marks the entry as
//!   used.
//! - Only a compare-and-swap from an unpinned shareable word to 0, or setting the tag of a free
//!   slot, makes a thread the owner; words of such slots may carry stray counts of searches that
//!   came too late, which publishing overwrites.
//! - A handle's release does not touch the slot after its add, unless the word told it that it was
//!   the last pin of a closed or standalone slot, which makes it the owner. So no release races
//!   with the end of the table. An invisible slot is freed by the hand, by the migration or by the
//!   end of the cache.
//!
//! Why two counters and not one with a mark: marking the entry as used would be a second atomic
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

/// The clock's count never helps an entry for more than this many rounds.
pub(super) const COUNT_AT_MOST: u64 = 3;
/// Pins of one slot before the process aborts (as `Arc` does): only a leak of handles gets there.
const PINS_AT_MOST: u64 = 1 << (COUNT_BITS - 2);

/// A copy of a state word.
#[derive(Clone, Copy)]
pub(super) struct Word(pub(super) u64);

impl Word {
    pub(super) fn pins(self) -> u64 {
        self.0.wrapping_sub(self.0 >> COUNT_BITS) & COUNT_MASK
    }
    /// Meaningful while unpinned.
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
    /// The word of a published entry with `pins` pins that will then survive `count` rounds.
    fn visible(priority: Priority, count: u64, pins: u64) -> u64 {
        STATE_MASK
            | ((priority as u64) << PRIORITY_SHIFT)
            | ((count + pins) * TAKEN_ONE)
            | (count * RELEASED_ONE)
    }
}

/// What a slot holds, moved out of it or about to be moved in.
pub(super) struct Entry<V> {
    pub(super) key: [u64; 2],
    pub(super) value: V,
    /// Bytes that the entry counts for in the cache's usage.
    pub(super) charge: usize,
    pub(super) priority: Priority,
    /// Rounds of the clock to survive.
    pub(super) count: u64,
}

/// Invariant: all-zero bytes are an empty slot (outside loom), so that a table is memory fresh from
/// the system.
///
/// Why this layout: a hit needs the word, the key and the head of the value; they share the first
/// cache line.
#[repr(C, align(64))]
pub(super) struct Slot<V> {
    pub(super) word: AtomicU64,
    key: [AtomicU64; 2],
    /// The charge, as an address without a target; in a closed slot the table to give up last.
    charge_or_table: AtomicPtr<()>,
    value: Cell<MaybeUninit<V>>,
}

impl<V> Slot<V> {
    /// An empty slot.
    pub(super) fn empty() -> Self {
        Self {
            word: AtomicU64::new(0),
            key: [AtomicU64::new(0), AtomicU64::new(0)],
            charge_or_table: AtomicPtr::new(ptr::null_mut()),
            value: Cell::new(MaybeUninit::uninit()),
        }
    }

    /// A pinned slot outside of any table; one that goes on a list is said to be `listed`.
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

    /// REQUIRES: a pin is held, so that the key does not change.
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

    /// Pin the slot if it is visible and holds `key`.
    #[inline(always)]
    pub(super) fn try_pin(&self, key: [u64; 2]) -> bool {
        // Ordering: Acquire pairs with the Release of `publish`, so that key and value are seen.
        let old = Word(self.word.fetch_add(TAKEN_ONE, Ordering::Acquire));
        if old.is_visible() && self.has_key(key) {
            if old.0 & TAKEN_TOP != 0 {
                self.keep_counts_in_range();
            }
            return true;
        }
        if old.is_shareable() {
            // A pin was taken, on a slot that is not the one looked for: take it back.
            // Ordering: Release; whatever this thread read of the slot comes before its reuse.
            self.word.fetch_sub(TAKEN_ONE, Ordering::Release);
        }
        false
    }

    /// Pin the slot if its word is still `seen`, which is visible, to look at it; the pin is taken
    /// back by [`look_away`](Self::look_away), and nobody counts it as a use.
    pub(super) fn try_look(&self, seen: Word) -> bool {
        debug_assert!(seen.is_visible());
        // Ordering: Acquire pairs with the Release of `publish`, so that the value is seen.
        let pinned = seen.0 + TAKEN_ONE;
        self.word.compare_exchange(seen.0, pinned, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// REQUIRES: a pin of `try_look` is held.
    pub(super) fn look_away(&self) {
        // Ordering: Release; whatever this thread read of the slot comes before its reuse.
        self.word.fetch_sub(TAKEN_ONE, Ordering::Release);
    }

    /// Another pin by one who holds a pin.
    pub(super) fn pin_again(&self) {
        // Ordering: Relaxed, as for `Arc`: the pin held keeps the value; nothing is learnt from
        // this one.
        let old = self.word.fetch_add(TAKEN_ONE, Ordering::Relaxed);
        if old & TAKEN_TOP != 0 {
            self.keep_counts_in_range();
        }
    }

    /// Another pin by one who holds none, if there is one; the slot stays alive meanwhile by other
    /// means.
    pub(super) fn pin_if_pinned(&self) -> bool {
        let another = |word| (Word(word).pins() != 0).then_some(word + TAKEN_ONE);
        // Ordering: Relaxed, as for `pin_again`: the lock that led here showed the value.
        let pinned = self.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, another);
        if pinned.is_ok_and(|old| old & TAKEN_TOP != 0) {
            self.keep_counts_in_range();
        }
        pinned.is_ok()
    }

    /// Whether somebody holds it now.
    pub(super) fn is_pinned(&self) -> bool {
        self.load(Ordering::Relaxed).pins() != 0
    }

    /// REQUIRES: a pin is held. Drops the top bit of both counters once both have it; their
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
            // Why: the count would wrap and a value in use be freed; nothing weaker is safe.
            std::process::abort();
        }
    }

    /// REQUIRES: the caller owns the slot. Puts the entry in, for all to see, with `pins` pins.
    pub(super) fn publish(&self, entry: Entry<V>, pins: u64) {
        self.key[0].store(entry.key[0], Ordering::Relaxed);
        self.key[1].store(entry.key[1], Ordering::Relaxed);
        self.charge_or_table.store(ptr::without_provenance_mut(entry.charge), Ordering::Relaxed);
        // SAFETY: the owner is alone with the value, and there is none to drop.
        self.value.with_mut(|v| unsafe { (*v).write(entry.value) });
        // Ordering: Release publishes the above.
        // Why swap: a store would do (it overwrites the counts of searches that came too late), but
        // loom does not order a plain store after a concurrent read-modify-write. Only misses pay
        // for it.
        self.word.swap(Word::visible(entry.priority, entry.count, pins), Ordering::Release);
    }

    /// Become the owner of an unpinned shareable slot, if its word is still `seen`.
    pub(super) fn try_own(&self, seen: Word) -> bool {
        debug_assert!(seen.is_shareable() && seen.pins() == 0);
        // Ordering: Acquire pairs with the Release of every pin given back.
        self.word.compare_exchange(seen.0, 0, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// REQUIRES: the caller became the owner by `try_own(seen)` and has not taken the entry yet.
    /// Moves it out.
    pub(super) fn take(&self, seen: Word) -> Entry<V> {
        // SAFETY: the owner is alone with the value, which was there while the slot was shareable,
        // and which nobody reads again: the slot is not shareable until another value is published.
        let value = self.value.with(|v| unsafe { (*v).assume_init_read() });
        Entry {
            key: self.key(),
            value,
            charge: self.charge(),
            priority: seen.priority(),
            count: seen.count(),
        }
    }

    /// Lower the clock's count of an unpinned entry; no matter if another thread was faster.
    pub(super) fn age(&self, seen: Word) {
        let count = (seen.count() - 1).min(COUNT_AT_MOST - 1);
        let aged =
            (seen.0 & !(COUNT_MASK | (COUNT_MASK << COUNT_BITS))) | (count * (TAKEN_ONE | RELEASED_ONE));
        // Ordering: Relaxed; an RMW goes on with the release sequence of `publish`.
        let _ = self.word.compare_exchange(seen.0, aged, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Hide a pinned entry from searches, if its word is still `seen`.
    pub(super) fn try_hide(&self, seen: Word) -> bool {
        self.word.compare_exchange(seen.0, seen.0 & !VISIBLE, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// REQUIRES: no search can be under way any more. Leaves the slot to its pins: the last one
    /// frees the value and gives up `table`. `false` if there was no pin, and so the caller is the
    /// owner.
    pub(super) fn close(&self, table: *mut ()) -> bool {
        self.charge_or_table.store(table, Ordering::Relaxed);
        // Ordering: Release for `table`; Acquire for the pins already given back.
        Word(self.word.fetch_or(CLOSED, Ordering::AcqRel)).pins() != 0
    }

    /// REQUIRES: the caller holds the last pin of a closed slot.
    pub(super) fn closed_table(&self) -> *mut () {
        self.charge_or_table.load(Ordering::Relaxed)
    }

    /// REQUIRES: the caller owns the slot or is alone with it, it holds a value, and nobody uses it
    /// again.
    pub(super) fn drop_value(&self) {
        // SAFETY: by the requirement.
        self.value.with_mut(|v| unsafe { (*v).assume_init_drop() });
    }

    /// # Safety
    /// The caller must hold a pin for as long as it uses the reference.
    #[inline(always)]
    pub(super) unsafe fn value(&self) -> &V {
        // SAFETY: while pinned, the value is there and nobody writes it.
        self.value.with(|v| unsafe { (*v).assume_init_ref() })
    }

    /// Whether it is outside of any table, cannot be found and is pinned once.
    pub(super) fn is_standalone_with_one_pin(&self) -> bool {
        // Ordering: Acquire pairs with the Release of the pins that are gone; what they read comes
        // before what is written now.
        let word = self.load(Ordering::Acquire);
        word.0 & (STANDALONE | LISTED) == STANDALONE && word.pins() == 1
    }

    /// REQUIRES: the caller holds the only pin of a standalone slot.
    pub(super) fn replace_value(&self, value: V) -> V {
        // SAFETY: by the requirement nobody else reads it, and it holds a value.
        self.value.with_mut(|v| unsafe { std::mem::replace((*v).assume_init_mut(), value) })
    }
}
