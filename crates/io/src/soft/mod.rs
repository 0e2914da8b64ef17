//! File systems for tests and simulations: in memory, slower than the one below, or faulty.
//!
//! They work through the same channel as the operating system's: their reads are in flight like any
//! other, complete later on the channel's timer, and can be abandoned; many are in flight at a
//! time.

mod aligned;
#[cfg(feature = "testing")]
mod disturbed;
#[cfg(feature = "testing")]
mod fault;
#[cfg(feature = "testing")]
mod latency;
mod memory;

pub(crate) use aligned::UnalignedRefused;
#[cfg(feature = "testing")]
pub use disturbed::{Disturb, DisturbedFileSystem};
#[cfg(feature = "testing")]
pub use fault::{FaultCounts, FaultFileSystem, FaultPlan, Faults};
#[cfg(feature = "testing")]
pub use latency::{Latency, LatencyFileSystem};
pub use memory::MemoryFileSystem;
#[cfg(feature = "testing")]
pub(crate) use memory::normal;

use std::io;

pub(crate) fn errno(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}
