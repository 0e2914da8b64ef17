//! Pacing: delays that keep memory and disk within bounds. Write stalls for writers, a rate limiter
//! for background writes, a memory budget for memtables.
//!
//! In: stall conditions of each column family, by the rules in `lsm`; bytes to be written. Out:
//! asynchronous waiting, timed by `Env` so that a virtual clock can run it; and the values of the
//! related properties.
//!
//! Invariant: nothing here evaluates stall conditions or does background work; a writer that is not
//! stalled pays one atomic load.

mod bucket;
mod race;
mod rate_limiter;
mod stall;
mod write_buffer;

pub use race::{Raced, race};
pub use rate_limiter::{IoPriority, RateLimiter};
pub use stall::{Entry, Relief, StallController, StallCounts, describe};
pub use write_buffer::Charge;
pub use write_buffer::ChargedCache;
pub use write_buffer::WriteBufferManager;
