//! Blocks of the size of a huge page, one at a time. On Linux they come from the operating system
//! itself.
//!
//! Why not from the allocator: of the 4 MiB that it needs to align one, and of what it keeps when
//! one is freed, a program that fills and drops memtables for hours gets back little. A mapping is
//! given back whole.

use super::HUGE_PAGE_BYTES;
use std::ptr::NonNull;

/// One block, aligned to its size, which the system is asked to back with a huge page. That there
/// is none is no error.
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
pub(super) fn allocate() -> Option<NonNull<u8>> {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: an anonymous private mapping at an address of the kernel's choice touches nothing of
    // ours.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), 2 * HUGE_PAGE_BYTES, protection, flags, -1, 0) };
    if base == libc::MAP_FAILED {
        return None;
    }
    let base: *mut u8 = base.cast();
    let before = base.align_offset(HUGE_PAGE_BYTES);
    let behind = HUGE_PAGE_BYTES - before;
    // SAFETY: what is cut off lies before and behind the block, inside the mapping, and nobody has
    // been given any of it. The advice is about memory of ours.
    unsafe {
        let block = base.add(before);
        if before > 0 {
            libc::munmap(base.cast(), before);
        }
        if behind > 0 {
            libc::munmap(block.add(HUGE_PAGE_BYTES).cast(), behind);
        }
        libc::madvise(block.cast(), HUGE_PAGE_BYTES, libc::MADV_HUGEPAGE);
        NonNull::new(block)
    }
}

/// Gives a block back.
///
/// # Safety
/// It came from [`allocate`], and nobody uses it any more.
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
pub(super) unsafe fn free(block: NonNull<u8>) {
    // SAFETY: the caller's promise. Why an error is ignored: there is none for a range that is
    // mapped.
    unsafe { libc::munmap(block.as_ptr().cast(), HUGE_PAGE_BYTES) };
}

#[cfg(not(all(target_os = "linux", not(miri), not(loom))))]
fn layout() -> std::alloc::Layout {
    std::alloc::Layout::from_size_align(HUGE_PAGE_BYTES, HUGE_PAGE_BYTES).expect("a power of two")
}

/// One block, aligned to its size.
#[cfg(not(all(target_os = "linux", not(miri), not(loom))))]
pub(super) fn allocate() -> Option<NonNull<u8>> {
    // SAFETY: the layout is not empty.
    NonNull::new(unsafe { std::alloc::alloc(layout()) })
}

/// Gives a block back.
///
/// # Safety
/// It came from [`allocate`], and nobody uses it any more.
#[cfg(not(all(target_os = "linux", not(miri), not(loom))))]
pub(super) unsafe fn free(block: NonNull<u8>) {
    // SAFETY: the caller's promise; `allocate` had this layout.
    unsafe { std::alloc::dealloc(block.as_ptr(), layout()) };
}
