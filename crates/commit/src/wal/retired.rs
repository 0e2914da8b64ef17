//! Retirement of logs that are no longer needed: their files become spares for new logs
//! (`recycle_log_file_num`), or are archived, or removed.
//!
//! The commit pipeline reports ended logs, and the job that removes files asks if one is kept.
//!
//! Invariants:
//! - A spare is a log that was ended. Its file is not open for writing, so it is not changed under
//!   its old name once it has a new one.
//! - A spare was written since the database was opened, with records that carry their log's number,
//!   so its old records are recognized in its next life.
//! - Every spare is in the directory under its own name until it is taken.
//!
//! Lock: the state's own; held to change it, never during I/O.

use super::archive::Archive;
use karst_base::options::DbOptions;
use karst_base::sync::Mutex;
use karst_format::ids::FileNumber;
use std::collections::{BTreeSet, VecDeque};
use std::path::Path;

/// Spare files of retired logs, and their archive.
#[derive(Debug)]
pub struct RetiredLogs {
    /// Maximum number of spares.
    most: usize,
    /// Archive of the logs that do not become spares, if they are kept.
    pub archive: Option<Archive>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Logs that may become spares once they are no longer needed.
    ended: BTreeSet<FileNumber>,
    spares: VecDeque<FileNumber>,
    closed: bool,
}

impl RetiredLogs {
    /// Creates the state for checked options; logs are in `wal_path`.
    pub fn new(options: &DbOptions, wal_path: &Path) -> Self {
        let archive = Archive::of(options, wal_path);
        Self { most: options.recycle_log_file_num, archive, state: Mutex::default() }
    }

    /// Records that a log takes no more writes, and that its writer has closed it.
    pub fn ended(&self, log: FileNumber) {
        if self.most > 0 {
            self.state.lock().ended.insert(log);
        }
    }

    /// Returns true if the file of a log that is no longer needed is kept for a new one. Otherwise
    /// the caller removes it.
    pub fn keeps(&self, log: FileNumber) -> bool {
        let mut state = self.state.lock();
        // Older logs are forgotten, because logs retire in order; a later report of one comes too
        // late.
        state.ended = state.ended.split_off(&log);
        // Only ended logs are kept: another log's writer may be about to truncate the file, which
        // would truncate the log that it has become.
        let keeps = state.ended.remove(&log) && !state.closed && state.spares.len() < self.most;
        if keeps {
            state.spares.push_back(log);
        }
        keeps
    }

    /// Returns a spare file for a new log, which the caller then owns.
    pub fn take(&self) -> Option<FileNumber> {
        self.state.lock().spares.pop_front()
    }

    /// Stops keeping spares, and returns those that the caller must remove.
    pub fn close(&self) -> Vec<FileNumber> {
        let mut state = self.state.lock();
        state.closed = true;
        state.spares.drain(..).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(most: usize) -> RetiredLogs {
        let options = DbOptions { recycle_log_file_num: most, ..DbOptions::default() };
        RetiredLogs::new(&options, Path::new("/db"))
    }

    #[test]
    fn only_logs_that_were_ended_become_spares_and_only_so_many() {
        let retired = of(2);
        assert!(!retired.keeps(FileNumber(1)), "its writer has not let go of it");
        // Too late: it is being removed.
        retired.ended(FileNumber(1));
        for log in 2..=4 {
            retired.ended(FileNumber(log));
            assert_eq!(retired.keeps(FileNumber(log)), log < 4, "{log}");
        }
        assert_eq!(
            (retired.take(), retired.take(), retired.take()),
            (Some(FileNumber(2)), Some(FileNumber(3)), None)
        );
        retired.ended(FileNumber(5));
        assert!(retired.keeps(FileNumber(5)) && !retired.keeps(FileNumber(5)));
        assert_eq!(retired.close(), [FileNumber(5)]);
        retired.ended(FileNumber(6));
        assert!(!retired.keeps(FileNumber(6)));
        let none = of(0);
        none.ended(FileNumber(1));
        assert!(!none.keeps(FileNumber(1)));
    }
}
