//! Blocks of the size of a huge page, kept ready for any arena of the process.
//!
//! In: blocks of arenas that were dropped, and new ones that [`stock_blocks`] makes on a thread
//! that has time. Out: blocks whose memory the kernel has given already.
//!
//! Why: the first touch of a new huge page keeps the kernel busy. It clears 2 MiB, and when memory
//! is fragmented it moves pages about until it has 2 MiB in one piece. Measured: half a millisecond
//! where memory is plenty, two on average and seven at worst where the page cache has filled it;
//! all of it in the middle of some writer's insert.
//!
//! Invariants: at most [`KEPT`] blocks are kept, and no more than the last [`trim_stock`] and
//! [`stock_blocks`] allowed: this crate knows no budgets, its user does. Whoever takes one of the
//! last ones says that more are wanted; this crate has no threads, so its user asks
//! ([`wants_blocks`]) and sees to it.

use super::{HUGE_PAGE_BYTES, huge};
use parking_lot::Mutex;
use std::ptr::NonNull;
// Why std's: what is one for the whole process is no part of what loom explores.
use std::sync::atomic::{AtomicBool, Ordering};

/// Blocks that are kept when arenas are dropped: those of one memtable of the default size.
const KEPT: usize = 32;
/// More are wanted when fewer than this are left.
const LOW: usize = 2;
/// How many are there after [`stock_blocks`].
const STOCKED: usize = 6;

/// Memory of [`HUGE_PAGE_BYTES`] that nobody uses.
struct Piece(NonNull<u8>);

// SAFETY: memory that nobody uses may be used by any thread.
unsafe impl Send for Piece {}

struct Stock(Mutex<Vec<Piece>>);

static STOCK: Stock = Stock(Mutex::new(Vec::new()));
static WANTED: AtomicBool = AtomicBool::new(false);

/// A block from the stock. It holds whatever its last user left.
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
/// Nobody uses it any more.
pub(super) unsafe fn give(data: NonNull<u8>) {
    {
        let mut stock = STOCK.0.lock();
        if stock.len() < KEPT {
            stock.push(Piece(data));
            return;
        }
    }
    // SAFETY: it came from there, says the caller, and is unused.
    unsafe { huge::free(data) };
}

/// Whether blocks should be made with [`stock_blocks`]; says so once.
#[inline]
pub fn wants_blocks() -> bool {
    // Ordering: a hint.
    WANTED.load(Ordering::Relaxed) && WANTED.swap(false, Ordering::Relaxed)
}

/// Makes blocks until a few are ready, of at most `bytes` together. Takes a millisecond or so for
/// each: to be called where nobody waits.
pub fn stock_blocks(bytes: usize) {
    STOCK.fill(STOCKED.min(bytes / HUGE_PAGE_BYTES));
}

/// Gives back blocks until those that are left have at most `bytes`.
pub fn trim_stock(bytes: usize) {
    STOCK.trim(bytes / HUGE_PAGE_BYTES);
}

/// Bytes of the blocks that are ready.
pub fn stock_bytes() -> usize {
    STOCK.0.lock().len() * HUGE_PAGE_BYTES
}

impl Stock {
    fn fill(&self, blocks: usize) {
        while self.0.lock().len() < blocks {
            let Some(data) = huge::allocate() else { return };
            for at in (0..HUGE_PAGE_BYTES).step_by(4096) {
                // SAFETY: within the allocation, which nobody else has. Volatile, for nobody reads
                // it.
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
            // SAFETY: all of the stock came from there, and nobody uses it.
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
        // Why so small: a request of more than a quarter of the first block would get a block of
        // its own.
        const REQUEST: usize = 1024;
        let allocate = |bytes: usize| {
            for _ in 0..bytes / REQUEST {
                // SAFETY: the range was just handed out to this caller.
                unsafe { arena.allocate(REQUEST).as_ptr().write_bytes(1, REQUEST) };
            }
        };
        // More than there are: the stock runs low on the way, and what is missing is made.
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
