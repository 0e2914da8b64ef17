//! The memory of a table: a fixed array of slots, all free at first, or of group words, all zero.
//! Used by the table alone.
//!
//! Large arrays are mapped from the system and touched by nobody before use, so that they cost
//! memory only where entries are; they ask for huge pages, since a lookup goes to a random place
//! and would otherwise pay for a page walk as well. Small arrays, and all of them under Miri and
//! loom, come from the global allocator.

use super::slot::Slot;
use crate::sync::AtomicU64;
use std::ptr::NonNull;

/// # Safety
/// All-zero bytes must be what `fresh` returns (outside loom and Miri).
pub(super) unsafe trait Fresh {
    /// A value as at the start.
    fn fresh() -> Self;
}

// SAFETY: atomics of integers and of a null pointer are zero bytes, and a value that is not there
// may be any.
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

/// Invariant: dropping a `T` does nothing, whatever it holds.
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

/// Arrays below this size are not worth pages of their own.
#[cfg(all(unix, not(miri), not(any(loom, shuttle))))]
const MAPPED_FROM_BYTES: usize = 256 << 10;

impl<T: Fresh> Slots<T> {
    /// `len` fresh slots; `None` if the system has not the memory.
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

    /// Begin to fetch a slot into the processor's cache.
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

    /// Give the memory back to the system but keep its addresses; reading them finds fresh slots.
    ///
    /// REQUIRES: nothing in the slots is needed and nobody puts anything there. Late searches may
    /// still read them.
    pub(super) fn discard(&self) {
        #[cfg(all(unix, not(miri), not(any(loom, shuttle))))]
        if self.memory == Memory::Mapped {
            // SAFETY: a mapping of this very size; the pages read as zero afterwards, that is as
            // fresh slots, which late searches bear at any time. No slot holds a value, by the
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
                // SAFETY: a mapping of this very size, which nobody uses any more.
                unsafe { libc::munmap(self.first.as_ptr().cast(), self.len * size_of::<T>()) };
            }
        }
    }
}

#[cfg(all(unix, not(miri), not(any(loom, shuttle))))]
fn map(bytes: usize) -> Option<NonNull<u8>> {
    // SAFETY: a new private mapping at an address of the system's choice touches nothing that
    // exists.
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
