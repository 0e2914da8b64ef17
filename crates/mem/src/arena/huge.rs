//! Allocation of blocks of the size of a huge page, one at a time. On Linux they are mapped from
//! the operating system.
//!
//! Not from the allocator, because aligning one block takes 4 MiB of it, and it keeps freed blocks:
//! a program that fills and drops memtables for hours gets little memory back. A mapping is
//! returned whole.

use super::HUGE_PAGE_BYTES;
use std::ptr::NonNull;

/// Returns one block, aligned to its size; the system is asked to back it with a huge page. Getting
/// ordinary pages instead is no error.
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
pub(super) fn allocate() -> Option<NonNull<u8>> {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: an anonymous private mapping at an address of the kernel's choice overlaps no other
    // memory of the process.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), 2 * HUGE_PAGE_BYTES, protection, flags, -1, 0) };
    if base == libc::MAP_FAILED {
        return None;
    }
    let base: *mut u8 = base.cast();
    let before = base.align_offset(HUGE_PAGE_BYTES);
    let behind = HUGE_PAGE_BYTES - before;
    // SAFETY: the cut parts lie before and behind the block, inside the mapping, and are not in
    // use. The advice concerns the block just mapped.
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

/// Returns a block to the system.
///
/// # Safety
/// The block came from [`allocate`] and is no longer in use.
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
pub(super) unsafe fn free(block: NonNull<u8>) {
    // SAFETY: the caller's promise. The result is ignored, because unmapping a mapped range cannot
    // fail.
    unsafe { libc::munmap(block.as_ptr().cast(), HUGE_PAGE_BYTES) };
}

#[cfg(not(all(target_os = "linux", not(miri), not(loom))))]
fn layout() -> std::alloc::Layout {
    std::alloc::Layout::from_size_align(HUGE_PAGE_BYTES, HUGE_PAGE_BYTES).expect("a power of two")
}

/// Returns one block, aligned to its size.
#[cfg(not(all(target_os = "linux", not(miri), not(loom))))]
pub(super) fn allocate() -> Option<NonNull<u8>> {
    // SAFETY: the layout is not empty.
    NonNull::new(unsafe { std::alloc::alloc(layout()) })
}

/// Returns a block to the allocator.
///
/// # Safety
/// The block came from [`allocate`] and is no longer in use.
#[cfg(not(all(target_os = "linux", not(miri), not(loom))))]
pub(super) unsafe fn free(block: NonNull<u8>) {
    // SAFETY: the caller's promise; `allocate` had this layout.
    unsafe { std::alloc::dealloc(block.as_ptr(), layout()) };
}
