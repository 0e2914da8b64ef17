//! Memory of all clients together, for `maxmemory-clients` and INFO.
//!
//! In: the memory of single clients as it changes, in steps of [`STEP`] bytes, from any thread.
//! Out: their sum.
//!
//! Invariants: the sum is that of the [`Charge`]s that are not closed; a closed one stays 0. A
//! client whose memory stays within a step changes nothing that threads share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Memory that is counted together, in bytes.
const STEP: u64 = 4 << 10;

/// Sum of the memory of all clients, in bytes.
#[derive(Debug, Default)]
pub(crate) struct ClientMemory(AtomicU64);

impl ClientMemory {
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Memory of one client within the sum.
#[derive(Debug)]
pub(super) struct Charge {
    of: Arc<ClientMemory>,
    bytes: AtomicU64,
    is_closed: AtomicBool,
}

impl Charge {
    pub(super) fn new(of: Arc<ClientMemory>) -> Self {
        Self { of, bytes: AtomicU64::new(0), is_closed: AtomicBool::new(false) }
    }

    /// Bytes that are counted.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Counts this memory in place of what was counted.
    pub(super) fn set(&self, bytes: u64) {
        let bytes = bytes / STEP * STEP;
        if bytes != self.bytes() {
            self.replace(bytes);
            // Ordering: of this thread and one that closes it, at least one sees what the other has
            // stored, and takes it back.
            if self.is_closed.load(Ordering::SeqCst) {
                self.replace(0);
            }
        }
    }

    /// Counts nothing from now on.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.replace(0);
    }

    /// Each change is by what was there, so that the changes of all threads add up to the last one.
    fn replace(&self, bytes: u64) {
        let before = self.bytes.swap(bytes, Ordering::SeqCst);
        self.of.0.fetch_add(bytes.wrapping_sub(before), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_add_up_until_they_are_closed() {
        let memory = Arc::<ClientMemory>::default();
        let (one, other) = (Charge::new(memory.clone()), Charge::new(memory.clone()));
        one.set(STEP - 1);
        assert_eq!(memory.bytes(), 0);
        one.set(3 * STEP + 5);
        other.set(STEP);
        assert_eq!((memory.bytes(), one.bytes()), (4 * STEP, 3 * STEP));
        one.set(STEP);
        assert_eq!(memory.bytes(), 2 * STEP);
        one.close();
        one.set(9 * STEP);
        assert_eq!((memory.bytes(), one.bytes()), (STEP, 0));
        other.close();
        assert_eq!(memory.bytes(), 0);
    }

    #[test]
    fn charges_of_many_threads_add_up() {
        let memory = Arc::<ClientMemory>::default();
        let charge = Charge::new(memory.clone());
        std::thread::scope(|scope| {
            for thread in 1..5 {
                let charge = &charge;
                scope.spawn(move || (0..1000).for_each(|step| charge.set(step * thread * STEP)));
            }
            scope.spawn(|| charge.close());
        });
        assert_eq!((memory.bytes(), charge.bytes()), (0, 0));
    }
}
