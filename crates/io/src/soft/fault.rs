//! A file system with faults: errors, short reads, flipped bits, reads that are stuck and complete
//! late.
//!
//! The faults are a function of the seed and of the number of earlier draws.

use super::disturbed::{Disturb, DisturbedFileSystem};
use crate::file::Disturbance;
use crate::random::mix;
use crate::sync::Mutex;
use crate::sync::{AtomicU64, Ordering};
use std::io;
use std::path::Path;
use std::time::Duration;

/// Probabilities of faults, from 0 to 1.
#[derive(Clone, Debug)]
pub struct FaultPlan {
    /// The read fails with `read_errno`.
    pub read_error: f64,
    /// The errno of failing reads; the channel retries `EINTR` and `EAGAIN`.
    pub read_errno: i32,
    /// The read returns fewer bytes than asked, before the end of the file.
    pub short_read: f64,
    /// One bit of the bytes read is wrong.
    pub bit_flip: f64,
    /// The read completes `stuck_for` late.
    pub stuck: f64,
    /// Delay of a stuck read.
    pub stuck_for: Duration,
    /// Opening a file fails with `EIO`.
    pub open_error: f64,
    /// Creating, appending, syncing, renaming or removing fails with `EIO`.
    pub write_error: f64,
    /// A step of a write by the channel writes fewer bytes than asked.
    pub short_write: f64,
    /// A step of a write or sync by the channel is interrupted (`EINTR`).
    pub interrupted_write: f64,
}

impl Default for FaultPlan {
    /// No faults.
    fn default() -> Self {
        Self {
            read_error: 0.0,
            read_errno: libc::EIO,
            short_read: 0.0,
            bit_flip: 0.0,
            stuck: 0.0,
            stuck_for: Duration::ZERO,
            open_error: 0.0,
            write_error: 0.0,
            short_write: 0.0,
            interrupted_write: 0.0,
        }
    }
}

/// Numbers of faults that have occurred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Reads that failed.
    pub read_errors: u64,
    /// Reads that were cut short.
    pub short_reads: u64,
    /// Reads with a wrong bit.
    pub bit_flips: u64,
    /// Reads that were stuck.
    pub stuck: u64,
    /// Files that failed to open.
    pub open_errors: u64,
    /// Changes that failed.
    pub write_errors: u64,
    /// Steps of writes that were cut short.
    pub short_writes: u64,
    /// Steps of writes and syncs that were interrupted.
    pub interrupted_writes: u64,
}

/// A source of faults.
#[derive(Debug)]
pub struct Faults {
    plan: Mutex<FaultPlan>,
    seed: u64,
    drawn: AtomicU64,
    counts: [AtomicU64; 8],
}

/// A file system with faults.
pub type FaultFileSystem = DisturbedFileSystem<Faults>;

impl Faults {
    /// Returns faults with the probabilities of `plan`, drawn from `seed`.
    pub fn new(seed: u64, plan: FaultPlan) -> Self {
        Self { plan: Mutex::new(plan), seed, drawn: AtomicU64::new(0), counts: Default::default() }
    }

    /// Replaces the plan from now on.
    pub fn set_plan(&self, plan: FaultPlan) {
        *self.plan.lock() = plan;
    }

    /// Returns the numbers of faults that have occurred.
    pub fn counts(&self) -> FaultCounts {
        let count = |which: usize| self.counts[which].load(Ordering::Relaxed);
        FaultCounts {
            read_errors: count(0),
            short_reads: count(1),
            bit_flips: count(2),
            stuck: count(3),
            open_errors: count(4),
            write_errors: count(5),
            short_writes: count(6),
            interrupted_writes: count(7),
        }
    }

    fn draw(&self) -> u64 {
        let number = self.drawn.fetch_add(1, Ordering::Relaxed);
        mix(self.seed ^ mix(number.wrapping_add(0x9E37_79B9_7F4A_7C15)))
    }

    /// Draws an event of this probability; counts it under `which` if it happens.
    fn happens(&self, probability: f64, which: usize) -> bool {
        let happens = probability > 0.0 && (self.draw() >> 11) as f64 / ((1u64 << 53) as f64) < probability;
        if happens {
            self.counts[which].fetch_add(1, Ordering::Relaxed);
        }
        happens
    }
}

impl Disturb for Faults {
    fn read(&self, _: &Path, _: u64, len: usize) -> Option<Disturbance> {
        let plan = self.plan.lock();
        let mut disturbance = Disturbance::default();
        if self.happens(plan.read_error, 0) {
            disturbance.fail = Some(plan.read_errno);
        }
        if len > 1 && self.happens(plan.short_read, 1) {
            disturbance.shorten_to = Some(1 + (self.draw() % (len as u64 - 1)) as usize);
        }
        if self.happens(plan.bit_flip, 2) {
            disturbance.flip_bit = Some(self.draw());
        }
        if self.happens(plan.stuck, 3) {
            disturbance.delay = Some(plan.stuck_for);
        }
        (disturbance != Disturbance::default()).then_some(disturbance)
    }

    fn open(&self, _: &Path) -> io::Result<()> {
        let probability = self.plan.lock().open_error;
        if self.happens(probability, 4) { Err(io::Error::from_raw_os_error(libc::EIO)) } else { Ok(()) }
    }

    fn write(&self, _: &Path) -> io::Result<()> {
        let probability = self.plan.lock().write_error;
        if self.happens(probability, 5) { Err(io::Error::from_raw_os_error(libc::EIO)) } else { Ok(()) }
    }

    fn follows_channel(&self) -> bool {
        true
    }

    fn step(&self, _: &Path, _: u64, len: usize) -> Option<Disturbance> {
        let plan = self.plan.lock();
        let mut disturbance = Disturbance::default();
        if self.happens(plan.interrupted_write, 7) {
            disturbance.fail = Some(libc::EINTR);
        } else if self.happens(plan.write_error, 5) {
            disturbance.fail = Some(libc::EIO);
        }
        if len > 1 && self.happens(plan.short_write, 6) {
            disturbance.shorten_to = Some(1 + (self.draw() % (len as u64 - 1)) as usize);
        }
        (disturbance != Disturbance::default()).then_some(disturbance)
    }
}
