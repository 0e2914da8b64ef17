//! A bump allocator for many threads: an atomic add hands memory out, and dropping the arena frees
//! all of it at once. The skiplist keeps its nodes in it.
//!
//! Allocations are pointers to uninitialised memory, 8-byte aligned, valid until the arena is
//! dropped, never handed out twice.
//!
//! Invariant: a block is linked (`older`) before it becomes `current` and is never unlinked; a
//! holder of `&Arena` may therefore use any block it has seen. Blocks grow from
//! [`FIRST_BLOCK_BYTES`] by doubling up to the owner's limit, at most [`LARGEST_BLOCK_BYTES`],
//! which keeps a small memtable small and a large one to few allocations. A request of more than a
//! quarter of a block gets a block of its own and leaves the current one in use; it counts for the
//! size of the next one, which lets requests that are all too large for the first block soon share
//! one.
//!
//! The largest blocks are huge pages, where the system has them, because a search touches all of a
//! large list's memory, and with small pages almost every access misses the translation caches too.

use crate::sync::{AtomicPtr, AtomicUsize, Mutex, Ordering};
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::{self, NonNull};

/// Alignment of every allocation, in bytes.
pub(crate) const ALIGN: usize = 8;
const FIRST_BLOCK_BYTES: usize = if cfg!(any(miri, loom)) { 512 } else { 8 << 10 };
pub(crate) const LARGEST_BLOCK_BYTES: usize = HUGE_PAGE_BYTES;
/// Size and alignment in bytes of the most common huge pages.
const HUGE_PAGE_BYTES: usize = 2 << 20;

mod huge;
pub(crate) mod stock;

struct Block {
    /// Bytes handed out from `data`; exceeds `bytes` after a request that did not fit.
    used: AtomicUsize,
    data: NonNull<u8>,
    bytes: usize,
    older: *mut Block,
}

pub(crate) struct Arena {
    largest_block_bytes: usize,
    current: AtomicPtr<Block>,
    allocated_bytes: AtomicUsize,
    /// Lock: guards the list of blocks; taken only to add one. The newest block of the list.
    newest: Mutex<*mut Block>,
}

// SAFETY: the raw pointers lead to blocks that only `drop` frees; `used` is atomic, and the bytes
// of a block are never read or written here: each belongs to the one caller that got it.
unsafe impl Send for Arena {}
// SAFETY: as for `Send`; the list of blocks is changed under `newest` only.
unsafe impl Sync for Arena {}

impl Arena {
    /// Returns an arena whose blocks grow up to `block_bytes`, rounded down to a power of two.
    pub(crate) fn new(block_bytes: usize) -> Self {
        let power = block_bytes.clamp(FIRST_BLOCK_BYTES, LARGEST_BLOCK_BYTES).ilog2();
        Self {
            largest_block_bytes: 1 << power,
            current: AtomicPtr::new(ptr::null_mut()),
            allocated_bytes: AtomicUsize::new(0),
            newest: Mutex::new(ptr::null_mut()),
        }
    }

    /// Returns the bytes of all blocks and their headers, used or not.
    pub(crate) fn allocated_bytes(&self) -> usize {
        self.allocated_bytes.load(Ordering::Relaxed)
    }

    /// Returns uninitialised memory of `bytes` bytes, aligned to [`ALIGN`]. Takes a lock only when
    /// a block is full.
    ///
    /// # Panics
    /// If `bytes` is more than a quarter of the address space.
    pub(crate) fn allocate(&self, bytes: usize) -> NonNull<u8> {
        assert!(bytes <= isize::MAX as usize / 2, "an allocation of {bytes} bytes");
        let bytes = bytes.next_multiple_of(ALIGN);
        // Ordering: Acquire pairs with the Release that published the block's header.
        let block = self.current.load(Ordering::Acquire);
        // SAFETY: a published block lives as long as `self`.
        match unsafe { block.as_ref() }.and_then(|b| b.take(bytes)) {
            Some(data) => data,
            None => self.allocate_slowly(bytes),
        }
    }

    #[cold]
    fn allocate_slowly(&self, bytes: usize) -> NonNull<u8> {
        let mut newest = self.newest.lock();
        let current = self.current.load(Ordering::Acquire);
        // SAFETY: a published block lives as long as `self`.
        let current_ref = unsafe { current.as_ref() };
        // Tried again, because another thread may have added a block while this one waited for the
        // lock.
        if let Some(data) = current_ref.and_then(|b| b.take(bytes)) {
            return data;
        }
        let doubled = current_ref.map_or(FIRST_BLOCK_BYTES, |b| b.bytes * 2);
        // Limited before it is rounded, because the sum of a large arena may have no power of two
        // above it.
        let so_far = self.allocated_bytes().min(self.largest_block_bytes).next_power_of_two();
        let next_bytes = doubled.max(so_far).clamp(FIRST_BLOCK_BYTES, self.largest_block_bytes);
        let alone = bytes > next_bytes / 4;
        let block = Block::new(if alone { bytes } else { next_bytes }, *newest);
        *newest = block;
        // SAFETY: just created, and only `drop` frees it.
        let block_ref = unsafe { &*block };
        self.allocated_bytes.fetch_add(block_ref.bytes + size_of::<Block>(), Ordering::Relaxed);
        let data = block_ref.take(bytes).expect("a new block holds what it was made for");
        if !alone {
            self.current.store(block, Ordering::Release);
        }
        data
    }
}

impl Block {
    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, ALIGN).expect("bounded by `allocate`")
    }

    fn new(bytes: usize, older: *mut Block) -> *mut Block {
        let layout = Self::layout(bytes.max(ALIGN));
        let data = if layout.size() == HUGE_PAGE_BYTES {
            stock::take().or_else(huge::allocate)
        } else {
            // SAFETY: the layout is not empty.
            NonNull::new(unsafe { alloc(layout) })
        };
        let Some(data) = data else { handle_alloc_error(layout) };
        Box::into_raw(Box::new(Block { used: AtomicUsize::new(0), data, bytes: layout.size(), older }))
    }

    fn take(&self, bytes: usize) -> Option<NonNull<u8>> {
        // Checked first, because `used` could otherwise run far past the end and wrap.
        if self.used.load(Ordering::Relaxed) + bytes > self.bytes {
            return None;
        }
        // Ordering: Relaxed; the add alone makes ranges disjoint, and it publishes nothing.
        let start = self.used.fetch_add(bytes, Ordering::Relaxed);
        if start + bytes > self.bytes {
            return None;
        }
        // SAFETY: start + bytes lies within the allocation.
        Some(unsafe { self.data.add(start) })
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let mut block = *self.newest.lock();
        while !block.is_null() {
            // SAFETY: `&mut self` excludes all other users; every block was made by `Block::new`,
            // once.
            let owned = unsafe { Box::from_raw(block) };
            if owned.bytes == HUGE_PAGE_BYTES {
                // SAFETY: a block of this size came from the stock or from `huge::allocate`, and
                // its user is gone.
                unsafe { stock::give(owned.data) };
            } else {
                // SAFETY: allocated with this layout.
                unsafe { dealloc(owned.data.as_ptr(), Block::layout(owned.bytes)) };
            }
            block = owned.older;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn small_blocks_leave_little_unused() {
        let allocated = |block_bytes: usize| {
            let arena = Arena::new(block_bytes);
            (0..256).for_each(|_| _ = arena.allocate(1 << 10));
            arena.allocated_bytes()
        };
        let used = 256 << 10;
        assert!(allocated(60_000) < used + used / 8, "blocks of 32 KiB");
        assert!(allocated(LARGEST_BLOCK_BYTES) > used + used / 2, "the last is as large as all before it");
        assert!(allocated(0) >= used, "and never smaller than the first");
    }

    #[test]
    fn ranges_are_aligned_and_disjoint() {
        let arena = Arena::new(LARGEST_BLOCK_BYTES);
        let sizes = [1, 7, 8, 9, 100, 127, 128, 129, 4000, 1 << 16, 3];
        let mut ranges: Vec<(usize, usize)> = Vec::new();
        for round in 0..if cfg!(miri) { 2 } else { 50 } {
            for size in sizes {
                let data = arena.allocate(size + round);
                // SAFETY: the range was just handed out to this caller.
                unsafe { data.as_ptr().write_bytes(0xa5, size + round) };
                assert_eq!(data.as_ptr().addr() % ALIGN, 0);
                ranges.push((data.as_ptr().addr(), size + round));
            }
        }
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0));
        assert!(arena.allocated_bytes() >= ranges.iter().map(|r| r.1).sum());
    }

    #[test]
    fn requests_too_large_for_the_first_block_soon_share_one() {
        let arena = Arena::new(LARGEST_BLOCK_BYTES);
        let request = FIRST_BLOCK_BYTES / 4 + ALIGN;
        let blocks = |arena: &Arena| {
            let mut count = 0;
            let mut block = *arena.newest.lock();
            // SAFETY: blocks live as long as the arena.
            while let Some(one) = unsafe { block.as_ref() } {
                (count, block) = (count + 1, one.older);
            }
            count
        };
        for _ in 0..64 {
            arena.allocate(request);
        }
        assert!(blocks(&arena) < 16, "{} blocks for 64 requests", blocks(&arena));
        assert!(arena.allocated_bytes() < 64 * request * 4, "{} bytes", arena.allocated_bytes());
    }

    #[test]
    fn stress_many_threads_share_no_byte() {
        let arena = Arena::new(LARGEST_BLOCK_BYTES);
        let per_thread = if cfg!(miri) { 40 } else { 20_000 };
        let mut all: Vec<usize> = std::thread::scope(|s| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    s.spawn(|| {
                        (0..per_thread).map(|_| arena.allocate(24).as_ptr().addr()).collect::<Vec<_>>()
                    })
                })
                .collect();
            threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
        });
        all.sort_unstable();
        assert!(all.windows(2).all(|w| w[0] + 24 <= w[1]));
    }
}
