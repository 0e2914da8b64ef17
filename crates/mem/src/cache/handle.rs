//! A pin on a value, returned by a lookup or an insert. While a handle lives, its value stays in
//! place, even if the entry is erased or the cache dropped.
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

/// A pinned value; dropping it releases the pin. Cloning takes another pin.
///
/// Neither operation blocks or allocates. A handle may outlive its cache and move between threads.
pub struct Handle<V> {
    slot: NonNull<Slot<V>>,
}

// SAFETY: a handle is a shared reference to a `V` with a share in dropping it, like `Arc<V>`.
unsafe impl<V: Send + Sync> Send for Handle<V> {}
// SAFETY: as for `Send`.
unsafe impl<V: Send + Sync> Sync for Handle<V> {}

/// Invariant: the slot is the first field, because a pointer to the slot must be a pointer to the
/// whole.
#[repr(C)]
struct Standalone<V> {
    slot: Slot<V>,
    charge: Option<Charge>,
    /// The key and the list under which other threads can find it.
    listed: Option<([u64; 2], Arc<InUse<V>>)>,
}

impl<V> Handle<V> {
    /// Returns a handle to a value outside of any cache. Allocates.
    pub fn standalone(value: V) -> Self {
        Self::outside(Standalone { slot: Slot::standalone(value, false), charge: None, listed: None })
    }

    fn outside(whole: Standalone<V>) -> Self {
        // SAFETY: not null: it comes from a box.
        Self { slot: unsafe { NonNull::new_unchecked(Box::into_raw(Box::new(whole))) }.cast() }
    }

    /// Returns a handle to a value outside of the table, which holds `charge` and can be found in
    /// `list` under `key` while it is pinned. If `key` is already listed, returns a handle to the
    /// listed value and drops `value`.
    pub(super) fn listed(value: V, charge: Charge, key: [u64; 2], list: &Arc<InUse<V>>) -> Self {
        let slot = Slot::standalone(value, true);
        let own = Self::outside(Standalone { slot, charge: Some(charge), listed: Some((key, list.clone())) });
        match list.add(key, own.slot) {
            Some(slot) => Self { slot },
            None => own,
        }
    }

    /// Returns a handle to the value listed under `key` in `list`.
    pub(super) fn of_listed(key: [u64; 2], list: &InUse<V>) -> Option<Self> {
        list.find(key).map(|slot| Self { slot })
    }

    /// REQUIRES: the caller took a pin for this handle.
    #[inline(always)]
    pub(super) fn from_pinned(slot: &Slot<V>) -> Self {
        Self { slot: NonNull::from(slot) }
    }

    /// Replaces a value that is outside of any cache and has no other handle, and returns the old
    /// value; else returns `value`. Saves an allocation per handle to a caller that makes many, one
    /// after the other.
    ///
    /// # Errors
    /// The handle is one of several, or its value belongs to a cache; nothing has changed.
    pub fn replace_if_alone(&mut self, value: V) -> Result<V, V> {
        // It stays alone, because a standalone slot cannot be found, and the only handle to it is
        // borrowed here.
        if self.is_alone() { Ok(self.slot().replace_value(value)) } else { Err(value) }
    }

    /// Returns true if the value is outside of any cache and has no other handle.
    pub fn is_alone(&self) -> bool {
        self.slot().is_standalone_with_one_pin()
    }

    /// Returns true if both are pins on the same value.
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
        // Ordering: Release; all use of the value comes before its drop on another thread.
        let before = self.slot().word.fetch_add(RELEASED_ONE, Ordering::Release);
        // Invariant: the slot is not accessed from here on, unless this was the last pin and no
        // table or cache owns the slot.
        if before & (CLOSED | STANDALONE) != 0 && Word(before).pins() == 1 {
            // SAFETY: the last pin of a slot that cannot be found makes this thread the owner.
            unsafe { drop_last(self.slot, before) };
        }
    }
}

/// # Safety
/// The caller must have released the last pin of a closed or standalone slot.
#[cold]
unsafe fn drop_last<V>(slot: NonNull<Slot<V>>, word: u64) {
    // SAFETY: alive until freed below; the last pin is gone, and the slot cannot be found.
    let owned = unsafe { slot.as_ref() };
    // Ordering: Acquire pairs with the Release of the other pins, and with the Release that closed
    // the slot.
    // A load and not a fence, because ThreadSanitizer does not support fences.
    owned.word.load(Ordering::Acquire);
    if word & STANDALONE != 0 {
        let whole = slot.cast::<Standalone<V>>();
        // SAFETY: standalone slots are made as the first field of a boxed `Standalone`; it is alive
        // as above.
        if let Some((key, list)) = unsafe { &whole.as_ref().listed } {
            list.remove(*key, slot);
        }
        // The box is made only now, because it must be the only access to its content, and searches
        // read a slot while it is listed.
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
