//! What flushes and compactions have done since the database was opened, by the level they wrote
//! to: the numbers of `rocksdb.stats`.
//!
//! Lock: its own; held to add one job, or to copy.

use crate::sync::counting::Mutex;
use karst_io::Priority;

/// Sums over jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobSums {
    /// How many jobs, and how long they took together, in microseconds.
    pub count: u64,
    /// See `count`.
    pub micros: u64,
    /// The part of it on processors, in microseconds; that of threads which compress or write for a
    /// job is not in it.
    pub cpu_micros: u64,
    /// Bytes of input tables above the level, of the level itself, and of values in blob files.
    pub read_above_bytes: u64,
    /// See `read_above_bytes`.
    pub read_level_bytes: u64,
    /// See `read_above_bytes`.
    pub read_blob_bytes: u64,
    /// Bytes of tables, the same before compression, and bytes of blob files.
    pub written_bytes: u64,
    /// See `written_bytes`.
    pub raw_bytes: u64,
    /// See `written_bytes`.
    pub written_blob_bytes: u64,
    /// Bytes of tables that moved here as they were.
    pub moved_bytes: u64,
    /// Entries that were read, and those of them that were dropped.
    pub input_records: u64,
    /// See `input_records`.
    pub dropped_records: u64,
}

impl JobSums {
    /// Adds others.
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
    /// By the level they wrote to, as far as there are any.
    pub levels: Vec<JobSums>,
    /// By the threads they ran on: bottom, low, high.
    pub priorities: [JobSums; 3],
    /// Bytes of tables and blob files that flushes wrote.
    pub flushed_bytes: u64,
}

/// See the module.
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

    /// The sums so far.
    pub fn sums(&self) -> FamilyJobs {
        self.0.lock().clone()
    }
}
