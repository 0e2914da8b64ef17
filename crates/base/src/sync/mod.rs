//! Locks, atomics, exchanged values and events used by this crate and those above it.
//!
//! Without `--cfg shuttle` they are those of parking_lot, arc-swap, `karst_io` and the standard
//! library, re-exported. With it they are shuttle's, or built from shuttle's (`sync/explored.rs`),
//! so that shuttle decides at each of them which thread runs: docs/decisions/explored-threads.md.
//!
//! Invariant: no other module uses the re-exported items by their original paths; `cargo xtask
//! tidy` checks it. Threads come from `io::Env`.

#[cfg(shuttle)]
mod explored;

#[cfg(shuttle)]
pub use explored::{
    ArcSwap, ArcSwapOption, Condvar, Event, Listener as EventListener, Mutex, MutexGuard, RwLock, atomic,
};

#[cfg(not(shuttle))]
pub use arc_swap::{ArcSwap, ArcSwapOption};
#[cfg(not(shuttle))]
pub use karst_io::{Event, EventListener};
#[cfg(not(shuttle))]
pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
#[cfg(not(shuttle))]
pub use std::sync::atomic;

pub use arc_swap::Guard;
pub use karst_io::let_others_run;

/// Primitives for counters and id allocation: no thread's wait depends on them, so shuttle does not
/// explore them. Lock: no other lock is taken under such a mutex.
pub mod counting {
    pub use parking_lot::Mutex;
    pub use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
}
