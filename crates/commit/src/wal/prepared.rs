//! Logs that hold prepared sections which are neither committed nor rolled back.
//!
//! Counts the sections of each log, from when they are ordered until they are decided, and returns
//! the oldest log that is still needed for them.
//!
//! Invariants:
//! - A log is counted when its section is ordered, under the order lock, so a log with a section is
//!   never seen uncounted.
//! - A commit tells its memtables which log they need before that log is released here, so a caller
//!   that checks here first and the memtables afterwards misses none.
//!
//! Lock: its own, held briefly.

use karst_base::sync::Mutex;
use karst_format::ids::FileNumber;
use std::collections::BTreeMap;

/// Number of undecided sections by log.
#[derive(Debug, Default)]
pub struct PreparedLogs {
    /// Number of undecided sections of each log.
    held: Mutex<BTreeMap<FileNumber, usize>>,
}

impl PreparedLogs {
    /// Counts a section of `log`.
    pub fn hold(&self, log: FileNumber) {
        *self.held.lock().entry(log).or_default() += 1;
    }

    /// Releases a decided section of `log`.
    pub fn release(&self, log: FileNumber) {
        let mut held = self.held.lock();
        if let Some(count) = held.get_mut(&log) {
            *count -= 1;
            if *count == 0 {
                held.remove(&log);
            }
        }
    }

    /// Returns the oldest log with an undecided section.
    pub fn oldest(&self) -> Option<FileNumber> {
        self.held.lock().keys().next().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_held_while_any_section_of_it_is_undecided() {
        let logs = PreparedLogs::default();
        for log in [7, 9, 7] {
            logs.hold(FileNumber(log));
        }
        logs.release(FileNumber(7));
        assert_eq!(logs.oldest(), Some(FileNumber(7)));
        logs.release(FileNumber(7));
        assert_eq!(logs.oldest(), Some(FileNumber(9)));
        logs.release(FileNumber(9));
        assert_eq!(logs.oldest(), None);
    }
}
