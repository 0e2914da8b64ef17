//! Slabs: mappings from which the pools' regions are cut, in huge pages if the system has them.
//!
//! A [`Slice`] is a part of a mapping; the mapping is unmapped when its last slice is gone and it
//! is not the one being cut. The small regions of an environment's channels share mappings of one
//! huge page each: the device sees a read of 5 KiB into a huge page as one piece, but as two pieces
//! into ordinary pages, which are not contiguous (docs/decisions/io-uring.md). Large regions have
//! mappings of their own, of ordinary pages.
//!
//! Invariant: no two slices of a mapping overlap while both exist.

use super::MEMORY_ALIGNMENT;
use crate::sync::Mutex;
use std::ptr::NonNull;
use std::sync::Arc;

/// Size in bytes of a shared mapping, and of a huge page on most processors.
const SLAB_BYTES: usize = 2 << 20;

/// An anonymous mapping.
struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: private memory that this value owns; the owners of the slices decide which thread
// accesses which part.
unsafe impl Send for Mapping {}
// SAFETY: as for `Send`.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(len: usize) -> Option<Self> {
        // SAFETY: an anonymous private mapping at an address of the kernel's choice overlaps no
        // other memory of the process.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return None;
        }
        Some(Self { base: NonNull::new(base.cast())?, len })
    }

    /// Returns a mapping of one aligned huge page, backed by one if the system has it.
    fn slab() -> Option<Self> {
        let mut mapping = Self::new(2 * SLAB_BYTES)?;
        let before = mapping.base.align_offset(SLAB_BYTES);
        mapping.shrink_to(before, SLAB_BYTES);
        // SAFETY: advice about a mapping that this value owns. Its result is ignored, because
        // ordinary pages work too.
        unsafe { libc::madvise(mapping.base.as_ptr().cast(), mapping.len, libc::MADV_HUGEPAGE) };
        Some(mapping)
    }

    /// Unmaps the parts before `from` and behind `from + len`.
    fn shrink_to(&mut self, from: usize, len: usize) {
        assert!(from + len <= self.len);
        let behind = self.len - from - len;
        // SAFETY: both parts lie inside the mapping, and no slice of it exists yet.
        unsafe {
            if from > 0 {
                libc::munmap(self.base.as_ptr().cast(), from);
            }
            self.base = self.base.add(from);
            if behind > 0 {
                libc::munmap(self.base.add(len).as_ptr().cast(), behind);
            }
        }
        self.len = len;
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: every slice holds an `Arc` of this mapping, which means that none exists any
        // more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// A part of a mapping, owned exclusively.
pub(super) struct Slice {
    base: NonNull<u8>,
    /// Keeps the memory mapped.
    _mapping: Arc<Mapping>,
}

impl Slice {
    /// Returns the whole mapping as one slice.
    fn of(mapping: Mapping) -> Self {
        Self { base: mapping.base, _mapping: Arc::new(mapping) }
    }

    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }
}

/// The source of memory for the channels of an environment. Callable from any thread.
#[derive(Default)]
pub(crate) struct Slabs {
    current: Mutex<Option<Current>>,
}

/// The slab that the next slices are cut from.
struct Current {
    mapping: Arc<Mapping>,
    used: usize,
}

impl Current {
    fn new() -> Option<Self> {
        Some(Self { mapping: Arc::new(Mapping::slab()?), used: 0 })
    }

    /// Cuts the next `len` bytes; `None` if the slab has less left.
    fn cut(&mut self, len: usize) -> Option<Slice> {
        // Starts over if no slice exists, which lets threads that come one after the other reuse
        // the same memory.
        if Arc::get_mut(&mut self.mapping).is_some() {
            self.used = 0;
        }
        if self.used + len > self.mapping.len {
            return None;
        }
        // SAFETY: inside the mapping as just checked.
        let base = unsafe { self.mapping.base.add(self.used) };
        self.used += len.next_multiple_of(MEMORY_ALIGNMENT);
        Some(Slice { base, _mapping: self.mapping.clone() })
    }
}

impl Slabs {
    /// Returns `len` bytes of undefined content that begin at a multiple of [`MEMORY_ALIGNMENT`];
    /// from a slab shared with other channels if `small`. `None` if the system has no memory.
    pub(super) fn cut(&self, len: usize, small: bool) -> Option<Slice> {
        if !small || len > SLAB_BYTES {
            return Mapping::new(len).map(Slice::of);
        }
        if len == SLAB_BYTES {
            // A slab of its own, because that leaves the rest of the shared one to later callers.
            return Mapping::slab().map(Slice::of);
        }
        let mut current = self.current.lock();
        let left = current.as_mut().and_then(|current| current.cut(len));
        left.or_else(|| current.insert(Current::new()?).cut(len))
    }
}
