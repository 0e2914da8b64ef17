//! The memory that the pools' regions are cut from, in huge pages where the system has them.
//!
//! In: how many bytes. Out: a [`Slice`] of a mapping that goes when its last slice is gone and it
//! is not the one being cut. The small regions of an environment's channels share mappings of one
//! huge page: a read of 5 KiB into it is one piece for the device, where ordinary pages, which lie
//! anywhere, make it two (docs/decisions/io-uring.md). Large regions have mappings of their own, of
//! ordinary pages.
//!
//! Invariant: no two slices of a mapping overlap while both exist.

use super::MEMORY_ALIGNMENT;
use crate::sync::Mutex;
use std::ptr::NonNull;
use std::sync::Arc;

/// What is cut into slices at a time, and the size of a huge page of most processors.
const SLAB_BYTES: usize = 2 << 20;

/// An anonymous mapping.
struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: private memory that this value owns; who may touch which part of it is up to the slices'
// owners.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(len: usize) -> Option<Self> {
        // SAFETY: an anonymous private mapping at an address of the kernel's choice touches nothing
        // of ours.
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

    /// One that a huge page fits into, if the system gives one.
    fn slab() -> Option<Self> {
        let mut mapping = Self::new(2 * SLAB_BYTES)?;
        let before = mapping.base.align_offset(SLAB_BYTES);
        mapping.shrink_to(before, SLAB_BYTES);
        // SAFETY: advice about memory that is ours. Why its answer does not count: ordinary pages
        // do as well.
        unsafe { libc::madvise(mapping.base.as_ptr().cast(), mapping.len, libc::MADV_HUGEPAGE) };
        Some(mapping)
    }

    /// Give back what lies before `from` and behind `from + len`.
    fn shrink_to(&mut self, from: usize, len: usize) {
        assert!(from + len <= self.len);
        let behind = self.len - from - len;
        // SAFETY: both parts lie inside the mapping, and nobody has been given any of it yet.
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
        // SAFETY: every slice holds an `Arc` of this mapping, so none is left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// A part of a mapping that nobody else has.
pub(super) struct Slice {
    base: NonNull<u8>,
    /// Keeps it mapped.
    _mapping: Arc<Mapping>,
}

impl Slice {
    /// The whole of it.
    fn of(mapping: Mapping) -> Self {
        Self { base: mapping.base, _mapping: Arc::new(mapping) }
    }

    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }
}

/// Where the channels of an environment get their regions from. Callable from any thread.
#[derive(Default)]
pub(crate) struct Slabs {
    current: Mutex<Option<Current>>,
}

/// The slab that the next slices come from.
struct Current {
    mapping: Arc<Mapping>,
    used: usize,
}

impl Current {
    fn new() -> Option<Self> {
        Some(Self { mapping: Arc::new(Mapping::slab()?), used: 0 })
    }

    /// The next `len` bytes; `None` if it has less left.
    fn cut(&mut self, len: usize) -> Option<Slice> {
        // Why: threads that come one after the other use the same memory again.
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
    /// `len` bytes of whatever contents that begin at a multiple of [`MEMORY_ALIGNMENT`]; shared
    /// with others if `small`. `None` if the system has no memory.
    pub(super) fn cut(&self, len: usize, small: bool) -> Option<Slice> {
        if !small || len > SLAB_BYTES {
            return Mapping::new(len).map(Slice::of);
        }
        if len == SLAB_BYTES {
            // Why not from the shared one: what others have left of it stays for those who come.
            return Mapping::slab().map(Slice::of);
        }
        let mut current = self.current.lock();
        let left = current.as_mut().and_then(|current| current.cut(len));
        left.or_else(|| current.insert(Current::new()?).cut(len))
    }
}
