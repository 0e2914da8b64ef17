//! Per-thread stock of memory from evicted data blocks, for the blocks decoded next.
//!
//! In: the memory of dropped blocks. Out: memory for new ones, with arbitrary contents. Called when
//! blocks are decoded, and by their drop.
//!
//! The stock exists because with a full cache every inserted block evicts another. To free its
//! memory the allocator would touch the memory before and behind it, which is in no near cache of
//! the processor; reusing it touches none of that. docs/decisions/block-cache.md has the
//! measurements.

use std::cell::RefCell;

/// Allocation granularity in bytes, so that blocks of similar size can reuse each other's memory.
const STEP: usize = 256;
/// Maximum size kept, in bytes; for larger blocks the allocator's cost does not matter.
const MAX_BYTES: usize = 64 << 10;
/// Maximum number of buffers kept per thread: an insertion evicts a few blocks at most.
const KEPT: usize = 8;

thread_local! {
    static STOCK: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Returns memory for `len` bytes or slightly more, with arbitrary contents.
///
/// Invariant: the capacity depends on `len` alone, and so does the block's charge.
pub(crate) fn take(len: usize) -> Vec<u8> {
    if len > MAX_BYTES {
        return Vec::with_capacity(len);
    }
    let bytes = len.next_multiple_of(STEP);
    let fits = |memory: &Vec<u8>| memory.capacity() == bytes;
    STOCK
        .try_with(|stock| {
            let mut stock = stock.borrow_mut();
            let found = stock.iter().rposition(fits)?;
            Some(stock.swap_remove(found))
        })
        .ok()
        .flatten()
        .unwrap_or_else(|| Vec::with_capacity(bytes))
}

/// Keeps the memory of a dropped block, or frees it.
pub(crate) fn give(memory: Vec<u8>) {
    if memory.capacity() == 0 || memory.capacity() > MAX_BYTES {
        return;
    }
    // The error is ignored because an ending thread keeps nothing.
    let _ = STOCK.try_with(|stock| {
        let mut stock = stock.borrow_mut();
        if stock.len() >= KEPT {
            stock.remove(0);
        }
        stock.push(memory);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_to_the_next_block_of_its_size() {
        let block = take(4000);
        let at = block.as_ptr();
        give(block);
        let (small, large) = (take(100), take(8000));
        assert!(small.as_ptr() != at && large.as_ptr() != at, "neither fits");
        let again = take(3900);
        assert_eq!(again.as_ptr(), at);
        give(again);
        // The oldest buffer is dropped when the stock is full.
        (0..KEPT).for_each(|_| give(Vec::with_capacity(100)));
        STOCK.with(|stock| assert!(stock.borrow().iter().all(|memory| memory.capacity() < 4000)));
    }
}
