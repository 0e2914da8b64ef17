//! The memory of a table: a fixed array of slots, all free at first, or of group words, all zero.
//! Used by the table alone.
//!
//! Large arrays are mapped from the system and not touched before use, because they then cost
//! memory only for their entries; they ask for huge pages, because a lookup goes to a random place
//! and would otherwise pay for a page walk too. Small arrays, and all of them under Miri and loom,
//! come from the global allocator.

use super::slot::Slot;
use crate::sync::AtomicU64;
use std::ptr::NonNull;

/// # Safety
/// All-zero bytes must be what `fresh` returns (outside loom and Miri).
pub(super) unsafe trait Fresh {
    /// Returns a value in its initial state.
    fn fresh() -> Self;
}

// SAFETY: atomics of integers and of a null pointer are zero bytes, and an absent value may have
// any bytes.
unsafe impl<V> Fresh for Slot<V> {
    fn fresh() -> Self {
        Slot::empty()
    }
}

// SAFETY: an atomic zero is zero bytes.
unsafe impl Fresh for AtomicU64 {
    fn fresh() -> Self {
        AtomicU64::new(0)
    }
}

/// Invariant: dropping a `T` does nothing, in any state.
pub(super) struct Slots<T> {
    first: NonNull<T>,
    len: usize,
    memory: Memory,
}

#[derive(Clone, Copy, PartialEq)]
enum Memory {
    Boxed,
    #[cfg(all(unix, not(miri), not(any(loom, shuttle))))]
    Mapped,
}

/// Minimum size in bytes of an array that gets pages of its own.
#[cfg(all(unix, not(miri), not(any(loom, shuttle))))]
const MAPPED_FROM_BYTES: usize = 256 << 10;

impl<T: Fresh> Slots<T> {
    /// Returns `len` fresh slots; `None` if the system does not have the memory.
    pub(super) fn new(len: usize) -> Option<Self> {
        #[cfg(all(unix, not(miri), not(any(loom, shuttle))))]
        if len.checked_mul(size_of::<T>())? >= MAPPED_FROM_BYTES {
            let first = map(len * size_of::<T>())?.cast();
            return Some(Self { first, len, memory: Memory::Mapped });
        }
        let boxed: Box<[T]> = (0..len).map(|_| T::fresh()).collect();
        let first = NonNull::new(Box::into_raw(boxed).cast())?;
        Some(Self { first, len, memory: Memory::Boxed })
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// REQUIRES: `index < len`; every index in this crate comes from a home or a step that wraps at
    /// `len`.
    #[inline(always)]
    pub(super) fn at(&self, index: usize) -> &T {
        assert!(index < self.len);
        // SAFETY: in bounds; slots are initialised from the start and live as long as `self`.
        unsafe { self.first.add(index).as_ref() }
    }

    /// Prefetches a slot into the processor's cache.
    #[inline(always)]
    pub(super) fn prefetch(&self, index: usize) {
        debug_assert!(index < self.len);
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: in bounds; a prefetch has no effect but on the caches.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(self.first.as_ptr().add(index).cast()) };
        }
    }

    /// Returns the memory to the system but keeps its addresses, which then read as fresh slots.
    ///
    /// REQUIRES: no slot's content is needed and no thread writes any. Late searches may still read
    /// them.
    pub(super) fn discard(&self) {
        #[cfg(all(unix, not(miri), not(any(loom, shuttle))))]
        if self.memory == Memory::Mapped {
            // SAFETY: a mapping of this size; its pages read as zero afterwards, which means fresh
            // slots, and late searches tolerate those at any time. No slot holds a value, by the
            // requirement.
            unsafe {
                libc::madvise(self.first.as_ptr().cast(), self.len * size_of::<T>(), libc::MADV_DONTNEED)
            };
        }
    }
}

impl<T> Drop for Slots<T> {
    fn drop(&mut self) {
        match self.memory {
            Memory::Boxed => {
                let slots = std::ptr::slice_from_raw_parts_mut(self.first.as_ptr(), self.len);
                // SAFETY: made by `Box::into_raw` of a slice of this length. Dropping a slot drops
                // no value.
                drop(unsafe { Box::from_raw(slots) });
            }
            #[cfg(all(unix, not(miri), not(any(loom, shuttle))))]
            Memory::Mapped => {
                // SAFETY: a mapping of this size, which is no longer in use.
                unsafe { libc::munmap(self.first.as_ptr().cast(), self.len * size_of::<T>()) };
            }
        }
    }
}

#[cfg(all(unix, not(miri), not(any(loom, shuttle))))]
fn map(bytes: usize) -> Option<NonNull<u8>> {
    // SAFETY: a new private mapping at an address of the system's choice overlaps no existing
    // memory.
    let memory = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if memory == libc::MAP_FAILED {
        return None;
    }
    #[cfg(target_os = "linux")]
    // SAFETY: advice on the mapping just made; a refusal changes nothing.
    unsafe {
        libc::madvise(memory, bytes, libc::MADV_HUGEPAGE)
    };
    NonNull::new(memory.cast())
}
