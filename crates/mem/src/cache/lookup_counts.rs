//! Hits and misses, counted without an atomic read-modify-write in the common case.
//!
//! Each thread has a number, unique among living threads; a small number is the index of a stripe
//! that no other thread writes, which makes a plain load and store exact. Threads with a larger
//! number share the last stripe and pay for an atomic add. Reading sums the stripes.

use crate::sync::{AtomicU64, Ordering};

/// Stripes with one writer; the one after them is shared.
const OWN_STRIPES: usize = if cfg!(loom) { 0 } else { 63 };

#[repr(align(64))]
struct Stripe {
    hits: AtomicU64,
    misses: AtomicU64,
}

pub(super) struct LookupCounts {
    stripes: Box<[Stripe]>,
}

impl LookupCounts {
    pub(super) fn new() -> Self {
        let stripe = |_| Stripe { hits: AtomicU64::new(0), misses: AtomicU64::new(0) };
        Self { stripes: (0..=OWN_STRIPES).map(stripe).collect() }
    }

    #[inline(always)]
    pub(super) fn hit(&self) {
        let thread = thread_number();
        self.add(thread, |s| &s.hits);
    }

    #[inline(always)]
    pub(super) fn miss(&self) {
        let thread = thread_number();
        self.add(thread, |s| &s.misses);
    }

    #[inline(always)]
    fn add(&self, thread: usize, counter: impl Fn(&Stripe) -> &AtomicU64) {
        if thread < OWN_STRIPES {
            let counter = counter(&self.stripes[thread]);
            // Ordering: Relaxed; a thread that takes over a number does so under a lock, after the
            // last write.
            counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        } else {
            counter(&self.stripes[OWN_STRIPES]).fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn hits(&self) -> u64 {
        self.stripes.iter().map(|s| s.hits.load(Ordering::Relaxed)).sum()
    }

    pub(super) fn misses(&self) -> u64 {
        self.stripes.iter().map(|s| s.misses.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(any(loom, shuttle))]
fn thread_number() -> usize {
    0
}

#[cfg(not(any(loom, shuttle)))]
use numbers::thread_number;

#[cfg(not(any(loom, shuttle)))]
mod numbers {
    use super::OWN_STRIPES;
    use crate::sync::Mutex;
    use std::cell::Cell;
    use std::sync::LazyLock;

    const UNKNOWN: usize = usize::MAX;

    /// Numbers below `OWN_STRIPES` that no living thread has.
    static FREE: LazyLock<Mutex<Vec<usize>>> = LazyLock::new(|| Mutex::new((0..OWN_STRIPES).rev().collect()));

    /// Releases the number at the end of its thread.
    struct Number(usize);

    impl Drop for Number {
        fn drop(&mut self) {
            // Lookups of this thread during its end count in the shared stripe.
            NUMBER.set(OWN_STRIPES);
            FREE.lock().push(self.0);
        }
    }

    thread_local! {
        /// Two cells, because reading this one needs no check for its destruction.
        static NUMBER: Cell<usize> = const { Cell::new(UNKNOWN) };
        static OWNED: Cell<Option<Number>> = const { Cell::new(None) };
    }

    #[inline(always)]
    pub(super) fn thread_number() -> usize {
        match NUMBER.get() {
            UNKNOWN => take_number(),
            number => number,
        }
    }

    #[cold]
    fn take_number() -> usize {
        let own = FREE.lock().pop();
        if let Some(number) = own {
            NUMBER.set(number);
            // A thread that is already ending cannot own it any more; the number is then never used
            // again.
            let _ = OWNED.try_with(|owned| owned.set(Some(Number(number))));
        } else {
            NUMBER.set(OWN_STRIPES);
        }
        NUMBER.get()
    }
}
