//! A file system with slower reads, each delayed independently: a slow device with unlimited
//! queues.

use super::disturbed::{Disturb, DisturbedFileSystem};
use crate::file::Disturbance;
use crate::random::mix;
use crate::sync::counting::{AtomicU64, Ordering};
use std::io;
use std::path::Path;
use std::time::Duration;

/// Delays added to those of the file system below.
#[derive(Debug)]
pub struct Latency {
    read: Duration,
    jitter: Duration,
    open: Duration,
    reads: AtomicU64,
    seed: u64,
}

/// A file system with added latency.
pub type LatencyFileSystem = DisturbedFileSystem<Latency>;

impl Latency {
    /// Returns a delay of at least `read` for each read.
    pub fn of_reads(read: Duration) -> Self {
        Self { read, jitter: Duration::ZERO, open: Duration::ZERO, reads: AtomicU64::new(0), seed: 0 }
    }

    /// Adds up to `most`, random, which lets reads complete out of order.
    pub fn with_jitter(self, most: Duration, seed: u64) -> Self {
        Self { jitter: most, seed, ..self }
    }

    /// Adds `open` to the opening of a file.
    pub fn of_opens(self, open: Duration) -> Self {
        Self { open, ..self }
    }

    /// Returns the number of reads.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }
}

impl Disturb for Latency {
    fn read(&self, _: &Path, _: u64, _: usize) -> Option<Disturbance> {
        let number = self.reads.fetch_add(1, Ordering::Relaxed);
        let jitter_ns = u64::try_from(self.jitter.as_nanos()).unwrap_or(u64::MAX);
        let extra = match jitter_ns {
            0 => 0,
            most => mix(self.seed ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15)) % most,
        };
        Some(Disturbance { delay: Some(self.read + Duration::from_nanos(extra)), ..Disturbance::default() })
    }

    fn open(&self, _: &Path) -> io::Result<()> {
        if !self.open.is_zero() {
            std::thread::sleep(self.open);
        }
        Ok(())
    }
}
