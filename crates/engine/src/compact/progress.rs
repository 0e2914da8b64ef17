//! Progress of a job and its cancellation; shared by the job and its observers.
//!
//! Ordering: counters and a flag that publish no other data, so all accesses are relaxed.

use karst_base::error::{Error, ErrorKind, Result};
use karst_base::sync::atomic::{AtomicBool, Ordering};
use karst_base::sync::counting::AtomicU64;

/// Progress counters and the cancellation flag of a job.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Entries in the inputs, from their tables' properties; 0 until the job has begun.
    pub(crate) input_records: AtomicU64,
    /// Entries read.
    pub(crate) records_read: AtomicU64,
    /// Keys and values read, uncompressed, in bytes.
    pub(crate) raw_bytes_read: AtomicU64,
    /// Entries written.
    pub(crate) records_written: AtomicU64,
    /// Bytes written to tables and blob files.
    pub(crate) bytes_written: AtomicU64,
    /// CPU time, in nanoseconds.
    pub(crate) cpu_nanos: AtomicU64,
    cancelled: AtomicBool,
}

impl Progress {
    /// Requests cancellation. The job soon ends with an error, and leaves no file.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Returns the error of a cancelled job, or Ok.
    pub(crate) fn check(&self) -> Result<()> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Incomplete, "the compaction was cancelled"));
        }
        Ok(())
    }

    /// Share of the entries already read, 0 to 1.
    #[cfg(test)]
    pub(crate) fn part_done(&self) -> f64 {
        let all = self.input_records.load(Ordering::Relaxed);
        let read = self.records_read.load(Ordering::Relaxed);
        if all == 0 { 0.0 } else { (read as f64 / all as f64).min(1.0) }
    }
}

/// Counts that one part of a job has already reported.
#[derive(Debug, Default)]
pub(crate) struct Reported {
    read: u64,
    raw: u64,
    written: u64,
    bytes: u64,
}

impl Reported {
    /// Adds the increase since the last report.
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
