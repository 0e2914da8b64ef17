//! Memory of data blocks that have left the cache, kept by each thread for the blocks it decodes
//! next.
//!
//! In: the memory of dropped blocks. Out: memory for new ones, of whatever contents. Called where
//! blocks are decoded, and by their drop.
//!
//! Why: with a full cache every block that comes in drives one out. To free that one the allocator
//! has to touch what stands before and behind it, which is in no near cache of the processor;
//! handing its memory on touches nothing of it. docs/decisions/block-cache.md has what it saves.

use std::cell::RefCell;

/// Blocks' memory is allocated in multiples of this, so that blocks of about the same size can take
/// each other's.
const STEP: usize = 256;
/// Larger blocks are left to the allocator: what they cost lies elsewhere.
const MAX_BYTES: usize = 64 << 10;
/// How many a thread keeps: an insertion drives out a few at most.
const KEPT: usize = 8;

thread_local! {
    static STOCK: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Memory for `len` bytes or a little more, which may hold something already.
///
/// Invariant: how much it is depends on `len` alone, and so does what the block is charged.
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

/// Keeps the memory of a block that nobody uses any more, or frees it.
pub(crate) fn give(memory: Vec<u8>) {
    if memory.capacity() == 0 || memory.capacity() > MAX_BYTES {
        return;
    }
    // Why an error is ignored: a thread that ends keeps nothing.
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
        // The oldest goes when many come.
        (0..KEPT).for_each(|_| give(Vec::with_capacity(100)));
        STOCK.with(|stock| assert!(stock.borrow().iter().all(|memory| memory.capacity() < 4000)));
    }
}
