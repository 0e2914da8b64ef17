//! A pin on a value: what a lookup or an insert gives. As long as one lives, its value stays where
//! it is, even if the entry is erased or the cache dropped.
//!
//! Invariant: a handle owns exactly one pin of a shareable slot, of a table or standalone.

use super::account::Charge;
use super::in_use::InUse;
use super::slot::{CLOSED, RELEASED_ONE, STANDALONE, Slot, Word};
use super::table::Table;
use crate::sync::{Arc, Ordering};
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;

/// A pinned value; gives it up when dropped. Cloning takes another pin.
///
/// Neither operation blocks or allocates. A handle may outlive its cache and move between threads.
pub struct Handle<V> {
    slot: NonNull<Slot<V>>,
}

// SAFETY: a handle is a shared reference to a `V` with a share in dropping it, like `Arc<V>`.
unsafe impl<V: Send + Sync> Send for Handle<V> {}
// SAFETY: as above.
unsafe impl<V: Send + Sync> Sync for Handle<V> {}

/// Invariant: the slot is first, so that a handle to the slot is a pointer to the whole.
#[repr(C)]
struct Standalone<V> {
    slot: Slot<V>,
    charge: Option<Charge>,
    /// Where it can be found, and its key there.
    listed: Option<([u64; 2], Arc<InUse<V>>)>,
}

impl<V> Handle<V> {
    /// A handle to a value that no cache knows. Allocates.
    pub fn standalone(value: V) -> Self {
        Self::outside(Standalone { slot: Slot::standalone(value, false), charge: None, listed: None })
    }

    fn outside(whole: Standalone<V>) -> Self {
        // SAFETY: not null: it comes from a box.
        Self { slot: unsafe { NonNull::new_unchecked(Box::into_raw(Box::new(whole))) }.cast() }
    }

    /// A handle to a value outside of the table, which gives up `charge` with it and can be found
    /// in `list` under `key` while it is held. If there is one of this key, it wins: its handle is
    /// returned and `value` dropped.
    pub(super) fn listed(value: V, charge: Charge, key: [u64; 2], list: &Arc<InUse<V>>) -> Self {
        let slot = Slot::standalone(value, true);
        let own = Self::outside(Standalone { slot, charge: Some(charge), listed: Some((key, list.clone())) });
        match list.add(key, own.slot) {
            Some(slot) => Self { slot },
            None => own,
        }
    }

    /// A handle to what is found in `list` under `key`.
    pub(super) fn of_listed(key: [u64; 2], list: &InUse<V>) -> Option<Self> {
        list.find(key).map(|slot| Self { slot })
    }

    /// REQUIRES: the caller took a pin for this handle.
    #[inline(always)]
    pub(super) fn from_pinned(slot: &Slot<V>) -> Self {
        Self { slot: NonNull::from(slot) }
    }

    /// Puts `value` in the place of a value that no cache knows and nobody else holds, and returns
    /// that; else `value` comes back. Saves whoever makes many such handles, one after the other,
    /// an allocation for each.
    ///
    /// # Errors
    /// The handle is one of several, or its value belongs to a cache; nothing has changed.
    pub fn replace_if_alone(&mut self, value: V) -> Result<V, V> {
        // Why it stays true: nobody finds a standalone slot, and the only handle to it is borrowed
        // here.
        if self.is_alone() { Ok(self.slot().replace_value(value)) } else { Err(value) }
    }

    /// Whether no cache knows the value and nobody else holds it.
    pub fn is_alone(&self) -> bool {
        self.slot().is_standalone_with_one_pin()
    }

    /// Whether both are pins on the same value.
    pub fn ptr_eq(a: &Self, b: &Self) -> bool {
        a.slot == b.slot
    }

    #[inline(always)]
    fn slot(&self) -> &Slot<V> {
        // SAFETY: pinned slots are not freed.
        unsafe { self.slot.as_ref() }
    }
}

impl<V> Deref for Handle<V> {
    type Target = V;

    #[inline(always)]
    fn deref(&self) -> &V {
        // SAFETY: this handle's pin lasts as long as the borrow.
        unsafe { self.slot().value() }
    }
}

impl<V> AsRef<V> for Handle<V> {
    fn as_ref(&self) -> &V {
        self
    }
}

impl<V> Clone for Handle<V> {
    fn clone(&self) -> Self {
        self.slot().pin_again();
        Self { slot: self.slot }
    }
}

impl<V: fmt::Debug> fmt::Debug for Handle<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<V> Drop for Handle<V> {
    #[inline]
    fn drop(&mut self) {
        // Ordering: Release; all use of the value comes before whoever drops it next.
        let before = self.slot().word.fetch_add(RELEASED_ONE, Ordering::Release);
        // Invariant: nothing of the slot is touched from here on, unless this was the last pin and
        // no table or cache is there to own it.
        if before & (CLOSED | STANDALONE) != 0 && Word(before).pins() == 1 {
            // SAFETY: the last pin of a slot that nobody can find makes this thread the owner.
            unsafe { drop_last(self.slot, before) };
        }
    }
}

/// # Safety
/// The caller must have given back the last pin of a closed or standalone slot.
#[cold]
unsafe fn drop_last<V>(slot: NonNull<Slot<V>>, word: u64) {
    // SAFETY: alive until freed below; the last pin is gone, and nobody else finds the slot.
    let owned = unsafe { slot.as_ref() };
    // Ordering: Acquire pairs with the Release of the other pins, and with the Release that closed
    // the slot.
    // Why no fence: it would do, but ThreadSanitizer knows none.
    owned.word.load(Ordering::Acquire);
    if word & STANDALONE != 0 {
        let whole = slot.cast::<Standalone<V>>();
        // SAFETY: standalone slots are made as the first field of a boxed `Standalone`, and alive
        // as above.
        if let Some((key, list)) = unsafe { &whole.as_ref().listed } {
            list.remove(*key, slot);
        }
        // Why only now: a box is the only way to what it owns, and searches look at a slot for as
        // long as it is listed.
        // SAFETY: made by `Box::into_raw`, and freed only here.
        let whole = unsafe { Box::from_raw(whole.as_ptr()) };
        whole.slot.drop_value();
    } else {
        let table = owned.closed_table().cast::<Table<V>>();
        owned.drop_value();
        // SAFETY: a closed pinned slot holds a share of its table.
        unsafe { Table::give_up(table) };
    }
}
