//! File systems for tests and simulations: in memory, slower than the one below, or faulty.
//!
//! They work through the same channel as the operating system's: their reads are in flight like any
//! other, complete later on the channel's timer, can be abandoned, and many are in flight at a
//! time.

mod aligned;
mod disturbed;
mod fault;
mod latency;
mod memory;

pub(crate) use aligned::UnalignedRefused;
pub use disturbed::{Disturb, DisturbedFileSystem};
pub use fault::{FaultCounts, FaultFileSystem, FaultPlan, Faults};
pub use latency::{Latency, LatencyFileSystem};
pub use memory::MemoryFileSystem;
pub(crate) use memory::normal;

use std::io;

pub(crate) fn errno(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}
