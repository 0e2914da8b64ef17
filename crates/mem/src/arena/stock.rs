//! Stock of blocks of the size of a huge page, ready for any arena of the process.
//!
//! It holds blocks of dropped arenas, and new ones that [`stock_blocks`] makes on a thread that has
//! time. The kernel has already backed their memory with pages.
//!
//! Reason: the first touch of a new huge page keeps the kernel busy. It clears 2 MiB, and with
//! fragmented memory it moves pages until it has 2 MiB in one piece. Measured: half a millisecond
//! with plenty of memory, two on average and seven at worst if the page cache has filled it; all of
//! it in the middle of a writer's insert.
//!
//! Invariant: at most [`KEPT`] blocks are kept. This crate's user knows the memory budget: it
//! bounds [`stock_blocks`] and lowers the stock with [`trim_stock`]. An arena that takes one of the
//! last blocks requests more; this crate has no threads, therefore its user polls for the request
//! ([`wants_blocks`]) and fills the stock.

use super::{HUGE_PAGE_BYTES, huge};
use parking_lot::Mutex;
use std::ptr::NonNull;
// The standard library's atomics, because state of the whole process is not part of a loom model.
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum number of blocks kept from dropped arenas: those of one memtable of the default size.
const KEPT: usize = 32;
/// Number of blocks below which more are requested.
const LOW: usize = 2;
/// Number of blocks after [`stock_blocks`].
const STOCKED: usize = 6;

/// Memory of [`HUGE_PAGE_BYTES`] that is not in use.
struct Piece(NonNull<u8>);

// SAFETY: memory that is not in use may be used by any thread.
unsafe impl Send for Piece {}

struct Stock(Mutex<Vec<Piece>>);

static STOCK: Stock = Stock(Mutex::new(Vec::new()));
static WANTED: AtomicBool = AtomicBool::new(false);

/// Takes a block from the stock. Its content is undefined.
pub(super) fn take() -> Option<NonNull<u8>> {
    let (taken, left) = {
        let mut stock = STOCK.0.lock();
        (stock.pop(), stock.len())
    };
    if left < LOW {
        WANTED.store(true, Ordering::Relaxed);
    }
    taken.map(|piece| piece.0)
}

/// Takes back a block from here or from [`huge::allocate`].
///
/// # Safety
/// The block is no longer in use.
pub(super) unsafe fn give(data: NonNull<u8>) {
    {
        let mut stock = STOCK.0.lock();
        if stock.len() < KEPT {
            stock.push(Piece(data));
            return;
        }
    }
    // SAFETY: by the caller's promise it came from `huge::allocate` and is not in use.
    unsafe { huge::free(data) };
}

/// Returns true, once, if [`stock_blocks`] should be called.
#[inline]
pub fn wants_blocks() -> bool {
    // Ordering: Relaxed, because it is a hint.
    WANTED.load(Ordering::Relaxed) && WANTED.swap(false, Ordering::Relaxed)
}

/// Makes blocks until a few are ready, or as many as fit into `bytes`. Takes about a
/// millisecond for each, therefore call it where no writer waits.
pub fn stock_blocks(bytes: usize) {
    STOCK.fill(STOCKED.min(bytes / HUGE_PAGE_BYTES));
}

/// Frees blocks until at most `bytes` are left.
pub fn trim_stock(bytes: usize) {
    STOCK.trim(bytes / HUGE_PAGE_BYTES);
}

/// Returns the bytes of the blocks that are ready.
pub fn stock_bytes() -> usize {
    STOCK.0.lock().len() * HUGE_PAGE_BYTES
}

impl Stock {
    fn fill(&self, blocks: usize) {
        while self.0.lock().len() < blocks {
            let Some(data) = huge::allocate() else { return };
            for at in (0..HUGE_PAGE_BYTES).step_by(4096) {
                // SAFETY: within the allocation, which has no other user. Volatile, because the
                // compiler could drop a write that is never read.
                unsafe { data.as_ptr().add(at).write_volatile(0) };
            }
            self.0.lock().push(Piece(data));
        }
    }

    fn trim(&self, blocks: usize) {
        let gone = {
            let mut pieces = self.0.lock();
            if pieces.len() <= blocks {
                return;
            }
            pieces.split_off(blocks)
        };
        for piece in gone {
            // SAFETY: all blocks of the stock came from `huge::allocate` and are not in use.
            unsafe { huge::free(piece.0) };
        }
    }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::super::{Arena, LARGEST_BLOCK_BYTES};
    use super::*;

    #[test]
    fn blocks_go_from_arena_to_arena_and_are_wanted_before_they_are_used_up() {
        stock_blocks(usize::MAX);
        assert!(STOCK.0.lock().len() >= STOCKED.min(LOW));
        let arena = Arena::new(LARGEST_BLOCK_BYTES);
        // Small, because a request of more than a quarter of the first block would get a block of
        // its own.
        const REQUEST: usize = 1024;
        let allocate = |bytes: usize| {
            for _ in 0..bytes / REQUEST {
                // SAFETY: the range was just handed out to this caller.
                unsafe { arena.allocate(REQUEST).as_ptr().write_bytes(1, REQUEST) };
            }
        };
        // More than the stock holds: it runs low on the way, and the missing blocks are allocated.
        allocate((KEPT + STOCKED + 8) * HUGE_PAGE_BYTES);
        assert!(wants_blocks());
        drop(arena);
        let kept = STOCK.0.lock().len();
        assert!((1..=KEPT).contains(&kept), "{kept} blocks");
    }

    #[test]
    fn a_stock_is_no_larger_than_it_may_be() {
        let stock = Stock(Mutex::new(Vec::new()));
        stock.fill(3);
        assert_eq!(stock.0.lock().len(), 3);
        stock.trim(4);
        assert_eq!(stock.0.lock().len(), 3);
        stock.trim(1);
        assert_eq!(stock.0.lock().len(), 1);
        stock.trim(0);
        assert!(stock.0.lock().is_empty());
    }
}
