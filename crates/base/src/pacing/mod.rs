//! Pacing: who has to wait so that memory and disk keep up. Writers at the door, background writes
//! at the device, memtables at their budget.
//!
//! In: what the rules in `lsm` say of each column family, bytes that want in. Out: waiting that is
//! asynchronous and takes its time from `Env`, so that a virtual clock can run it; and what the
//! properties report of it.
//!
//! Invariant: nothing here decides how bad things are, and nothing here does work; a writer that is
//! not held up pays one atomic load.

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
