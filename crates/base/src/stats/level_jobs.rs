//! Sums over the flushes and compactions since the database was opened, by output level: the
//! numbers of `rocksdb.stats`.
//!
//! Lock: its own; held to add one job, or to copy.

use crate::sync::counting::Mutex;
use karst_io::Priority;

/// Sums over jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobSums {
    /// Number of jobs.
    pub count: u64,
    /// Total elapsed time of the jobs, in microseconds.
    pub micros: u64,
    /// Total processor time, in microseconds, without the threads that compress or write for a job.
    pub cpu_micros: u64,
    /// Bytes of input tables from the levels above.
    pub read_above_bytes: u64,
    /// Bytes of input tables from the level itself.
    pub read_level_bytes: u64,
    /// Bytes of values read from blob files.
    pub read_blob_bytes: u64,
    /// Bytes of tables written.
    pub written_bytes: u64,
    /// Bytes of tables written, before compression.
    pub raw_bytes: u64,
    /// Bytes of blob files written.
    pub written_blob_bytes: u64,
    /// Bytes of tables moved to the level unchanged.
    pub moved_bytes: u64,
    /// Number of entries read.
    pub input_records: u64,
    /// Number of those entries that were dropped.
    pub dropped_records: u64,
}

impl JobSums {
    /// Adds the sums of `other`.
    pub fn add(&mut self, other: &JobSums) {
        self.count += other.count;
        self.micros += other.micros;
        self.cpu_micros += other.cpu_micros;
        self.read_above_bytes += other.read_above_bytes;
        self.read_level_bytes += other.read_level_bytes;
        self.read_blob_bytes += other.read_blob_bytes;
        self.written_bytes += other.written_bytes;
        self.raw_bytes += other.raw_bytes;
        self.written_blob_bytes += other.written_blob_bytes;
        self.moved_bytes += other.moved_bytes;
        self.input_records += other.input_records;
        self.dropped_records += other.dropped_records;
    }
}

/// Sums over all jobs of a family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FamilyJobs {
    /// Sums by output level, up to the highest level written.
    pub levels: Vec<JobSums>,
    /// Sums by thread priority: bottom, low, high.
    pub priorities: [JobSums; 3],
    /// Bytes of tables and blob files that flushes wrote.
    pub flushed_bytes: u64,
}

/// Sums over jobs, thread-safe; see the module.
#[derive(Debug, Default)]
pub struct LevelJobs(Mutex<FamilyJobs>);

impl LevelJobs {
    /// Adds a job that wrote to `level` on threads of `priority`.
    pub fn add(&self, level: usize, priority: Priority, job: &JobSums) {
        let mut sums = self.0.lock();
        if sums.levels.len() <= level {
            sums.levels.resize(level + 1, JobSums::default());
        }
        sums.levels[level].add(job);
        let place = match priority {
            Priority::Bottom => 0,
            Priority::Low => 1,
            Priority::High => 2,
        };
        sums.priorities[place].add(job);
    }

    /// Adds a flush of `written` bytes of tables and `blobs` bytes of blob files.
    pub fn flush(&self, (micros, cpu_micros): (u64, u64), written: u64, blobs: u64) {
        let job = JobSums {
            count: 1,
            micros,
            cpu_micros,
            written_bytes: written,
            written_blob_bytes: blobs,
            ..JobSums::default()
        };
        self.add(0, Priority::High, &job);
        self.0.lock().flushed_bytes += written + blobs;
    }

    /// Returns the sums so far.
    pub fn sums(&self) -> FamilyJobs {
        self.0.lock().clone()
    }
}
