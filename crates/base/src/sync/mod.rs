//! The locks, atomics, exchanged values and events that this crate and those above it are written
//! against.
//!
//! Without `--cfg shuttle` they are parking_lot's, arc-swap's, `karst_io`'s and the standard
//! library's, as they are. With it they are shuttle's, or made of shuttle's (`sync/explored.rs`),
//! so that shuttle decides at each of them which thread goes on:
//! docs/decisions/explored-threads.md.
//!
//! Invariant: no other module names what is re-exported here by its own path; `cargo xtask tidy`
//! checks it. Threads come from `io::Env`.

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

/// For what is counted, and for names that are given out: nothing that another thread waits for is
/// decided by it, so it is no part of what shuttle explores. Lock: nothing else is locked under
/// such a mutex.
pub mod counting {
    pub use parking_lot::Mutex;
    pub use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
}
