//! Which logs hold prepared sections that are neither committed nor rolled back.
//!
//! In: the log of each section, when it is ordered and when it is decided. Out: the oldest log that
//! is still needed for them.
//!
//! Invariants:
//! - A log counts from the moment at which its section is ordered, under the order lock; so no log
//!   that has a section is ever seen without.
//! - A commit tells the memtables that it goes to which log they need before that log stops
//!   counting here; so whoever asks here first and the memtables after that misses none.
//!
//! Lock: its own, for a moment.

use karst_base::sync::Mutex;
use karst_format::ids::FileNumber;
use std::collections::BTreeMap;

/// See the module's head.
#[derive(Debug, Default)]
pub struct PreparedLogs {
    /// How many sections each log has.
    held: Mutex<BTreeMap<FileNumber, usize>>,
}

impl PreparedLogs {
    /// A section went to `log`.
    pub fn hold(&self, log: FileNumber) {
        *self.held.lock().entry(log).or_default() += 1;
    }

    /// A section of `log` was decided.
    pub fn release(&self, log: FileNumber) {
        let mut held = self.held.lock();
        if let Some(count) = held.get_mut(&log) {
            *count -= 1;
            if *count == 0 {
                held.remove(&log);
            }
        }
    }

    /// The oldest log with a section.
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
