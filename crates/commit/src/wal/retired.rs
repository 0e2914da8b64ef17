//! What becomes of logs that nobody needs any more: files for the next logs
//! (`recycle_log_file_num`), archived, or removed.
//!
//! In: from the commit pipeline, which logs were ended; from whoever removes files, which nobody
//! needs. Out: spare files for new logs.
//!
//! Invariants:
//! - A spare is a log that was ended. Nobody has it open for writing, so nothing is done to it
//!   under its old name once it has a new one.
//! - A spare was written since the database was opened, with records that carry their log's number,
//!   so what is left of it in its next life is told apart.
//! - Every spare is in the directory under its own name until it is taken.
//!
//! Lock: the state's own; held to change it, never during I/O.

use super::archive::Archive;
use karst_base::options::DbOptions;
use karst_base::sync::Mutex;
use karst_format::ids::FileNumber;
use std::collections::{BTreeSet, VecDeque};
use std::path::Path;

/// See the module.
#[derive(Debug)]
pub struct RetiredLogs {
    /// Most spares.
    most: usize,
    /// Where the others go, if they are kept.
    pub archive: Option<Archive>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Logs that may become spares once nobody needs them.
    ended: BTreeSet<FileNumber>,
    spares: VecDeque<FileNumber>,
    closed: bool,
}

impl RetiredLogs {
    /// As the options, which were checked, have it; logs are in `wal_path`.
    pub fn new(options: &DbOptions, wal_path: &Path) -> Self {
        let archive = Archive::of(options, wal_path);
        Self { most: options.recycle_log_file_num, archive, state: Mutex::default() }
    }

    /// A log takes no more writes, and whoever wrote it has let go of it.
    pub fn ended(&self, log: FileNumber) {
        if self.most > 0 {
            self.state.lock().ended.insert(log);
        }
    }

    /// Nobody needs the log any more: whether its file is kept for a new one. If not, it is to be
    /// removed.
    pub fn keeps(&self, log: FileNumber) -> bool {
        let mut state = self.state.lock();
        // Why older ones are forgotten: logs end to be needed in their order; what is told of one
        // later comes too late.
        state.ended = state.ended.split_off(&log);
        // Why only what was ended: its writer may be about to cut it, which would cut the log that
        // it has become.
        let keeps = state.ended.remove(&log) && !state.closed && state.spares.len() < self.most;
        if keeps {
            state.spares.push_back(log);
        }
        keeps
    }

    /// A file for a new log. It is the caller's.
    pub fn take(&self) -> Option<FileNumber> {
        self.state.lock().spares.pop_front()
    }

    /// Keeps no more. The spares are to be removed.
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
