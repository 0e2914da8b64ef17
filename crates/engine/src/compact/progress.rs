//! How far a job is, and whether it has to stop. Shared by the job and those who watch it.
//!
//! Ordering: counters and a flag; nothing is published with them, so all accesses are relaxed.

use karst_base::error::{Error, ErrorKind, Result};
use karst_base::sync::atomic::{AtomicBool, Ordering};
use karst_base::sync::counting::AtomicU64;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Entries that the inputs hold, as their tables say; 0 until the job has begun.
    pub(crate) input_records: AtomicU64,
    /// Entries that have been read.
    pub(crate) records_read: AtomicU64,
    /// Keys and values that have been read, uncompressed, in bytes.
    pub(crate) raw_bytes_read: AtomicU64,
    /// Entries that have been written.
    pub(crate) records_written: AtomicU64,
    /// Bytes of tables and blob files that have been written.
    pub(crate) bytes_written: AtomicU64,
    /// Time on processors, in nanoseconds.
    pub(crate) cpu_nanos: AtomicU64,
    cancelled: AtomicBool,
}

impl Progress {
    /// Asks the job to stop. It ends with an error soon, and leaves nothing behind.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// The error of a job that was asked to stop.
    pub(crate) fn check(&self) -> Result<()> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Incomplete, "the compaction was cancelled"));
        }
        Ok(())
    }

    /// Part of the entries that have been read, 0 to 1.
    #[cfg(test)]
    pub(crate) fn part_done(&self) -> f64 {
        let all = self.input_records.load(Ordering::Relaxed);
        let read = self.records_read.load(Ordering::Relaxed);
        if all == 0 { 0.0 } else { (read as f64 / all as f64).min(1.0) }
    }
}

/// What one part of a job has reported already.
#[derive(Debug, Default)]
pub(crate) struct Reported {
    read: u64,
    raw: u64,
    written: u64,
    bytes: u64,
}

impl Reported {
    /// Adds what has come since the last report.
    pub(crate) fn report(&mut self, progress: &Progress, read: u64, raw: u64, written: u64, bytes: u64) {
        let add = |counter: &AtomicU64, now: u64, last: &mut u64| {
            counter.fetch_add(now - std::mem::replace(last, now), Ordering::Relaxed);
        };
        add(&progress.records_read, read, &mut self.read);
        add(&progress.raw_bytes_read, raw, &mut self.raw);
        add(&progress.records_written, written, &mut self.written);
        add(&progress.bytes_written, bytes, &mut self.bytes);
    }
}
