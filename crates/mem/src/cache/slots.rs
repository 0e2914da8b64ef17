//! The memory of a table: a fixed number of slots, all empty at first. Used by the table alone.
//!
//! Large arrays are mapped from the system and touched by nobody before use, so that they cost memory
//! only where entries are; they ask for huge pages, since a lookup goes to a random place and would
//! otherwise pay for a page walk as well. Small arrays, and all of them under Miri and loom, come from the
//! global allocator.

use super::slot::Slot;
use std::ptr::NonNull;

pub(super) struct Slots<V> {
    first: NonNull<Slot<V>>,
    len: usize,
    memory: Memory,
}

#[derive(Clone, Copy, PartialEq)]
enum Memory {
    Boxed,
    #[cfg(all(unix, not(miri), not(loom)))]
    Mapped,
}

/// Arrays below this size are not worth pages of their own.
#[cfg(all(unix, not(miri), not(loom)))]
const MAPPED_FROM_BYTES: usize = 256 << 10;

impl<V> Slots<V> {
    /// `len` empty slots; `None` if the system has not the memory.
    pub(super) fn new(len: usize) -> Option<Self> {
        #[cfg(all(unix, not(miri), not(loom)))]
        if len.checked_mul(size_of::<Slot<V>>())? >= MAPPED_FROM_BYTES {
            let first = map(len * size_of::<Slot<V>>())?.cast();
            return Some(Self { first, len, memory: Memory::Mapped });
        }
        let boxed: Box<[Slot<V>]> = (0..len).map(|_| Slot::empty()).collect();
        let first = NonNull::new(Box::into_raw(boxed).cast())?;
        Some(Self { first, len, memory: Memory::Boxed })
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[cfg(all(unix, not(miri), not(loom)))]
    fn bytes(&self) -> usize {
        self.len * size_of::<Slot<V>>()
    }

    /// REQUIRES: `index < len`; every index in this crate comes from a home or a step that wraps at `len`.
    #[inline(always)]
    pub(super) fn at(&self, index: usize) -> &Slot<V> {
        assert!(index < self.len);
        // SAFETY: in bounds; slots are initialised from the start and live as long as `self`.
        unsafe { self.first.add(index).as_ref() }
    }

    /// Give the memory back to the system but keep its addresses; reading them finds empty slots.
    ///
    /// REQUIRES: all slots are empty and nobody claims one any more. Late searches may still read them.
    pub(super) fn discard(&self) {
        #[cfg(all(unix, not(miri), not(loom)))]
        if self.memory == Memory::Mapped {
            // SAFETY: a mapping of this very size; the pages read as zero afterwards, that is as empty slots,
            // which late searches bear at any time. No slot holds anything, by the requirement.
            unsafe { libc::madvise(self.first.as_ptr().cast(), self.bytes(), libc::MADV_DONTNEED) };
        }
    }
}

impl<V> Drop for Slots<V> {
    fn drop(&mut self) {
        match self.memory {
            Memory::Boxed => {
                let slots = std::ptr::slice_from_raw_parts_mut(self.first.as_ptr(), self.len);
                // SAFETY: made by `Box::into_raw` of a slice of this length. A slot drops no value by itself.
                drop(unsafe { Box::from_raw(slots) });
            }
            #[cfg(all(unix, not(miri), not(loom)))]
            Memory::Mapped => {
                // SAFETY: a mapping of this very size, which nobody uses any more.
                unsafe { libc::munmap(self.first.as_ptr().cast(), self.bytes()) };
            }
        }
    }
}

#[cfg(all(unix, not(miri), not(loom)))]
fn map(bytes: usize) -> Option<NonNull<u8>> {
    // SAFETY: a new private mapping at an address of the system's choice touches nothing that exists.
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
