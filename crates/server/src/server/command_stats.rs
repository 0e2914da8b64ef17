//! Statistics of commands by their numbers, and of errors by their codes.
//!
//! Commands are counted without locks. Lock: the mutex of the errors, for one addition or a copy;
//! errors are few.

use super::histogram::Histogram;
use super::stats::Counter;
use super::users::COMMANDS_AT_MOST;
use crate::wrong::Wrong;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

/// Maximum number of codes of errors that are counted; scripts can make any.
const CODES_AT_MOST: usize = 128;

/// Statistics of a command.
#[derive(Debug, Default)]
pub(crate) struct OfCommand {
    /// Number of times that it was carried out.
    pub(crate) calls: Counter,
    /// Sum of their times in nanoseconds.
    pub(crate) nanos: Counter,
    /// Number of times that it was refused before.
    pub(crate) rejected: Counter,
    /// Number of times that it has ended with an error.
    pub(crate) failed: Counter,
    /// Times, once there is one.
    times: OnceLock<Box<Histogram>>,
}

impl OfCommand {
    pub(crate) fn times(&self) -> Option<&Histogram> {
        self.times.get().map(|times| &**times)
    }

    /// True if it was carried out or refused.
    pub(crate) fn is_used(&self) -> bool {
        self.calls.get() + self.rejected.get() + self.failed.get() > 0
    }
}

/// Statistics of all commands and errors, since the start or CONFIG RESETSTAT.
#[derive(Debug)]
pub(crate) struct CommandStats {
    commands: Box<[OfCommand]>,
    errors: Mutex<BTreeMap<String, u64>>,
}

impl Default for CommandStats {
    fn default() -> Self {
        Self {
            commands: (0..COMMANDS_AT_MOST).map(|_| OfCommand::default()).collect(),
            errors: Mutex::default(),
        }
    }
}

impl CommandStats {
    /// Statistics of the command of a number below [`COMMANDS_AT_MOST`].
    pub(crate) fn of(&self, number: usize) -> &OfCommand {
        &self.commands[number]
    }

    /// Counts commands of one number that took this time together. `keeps_times`: also in the
    /// histogram.
    pub(crate) fn ran(&self, number: usize, count: u64, took: Duration, keeps_times: bool) {
        let command = self.of(number);
        command.calls.add(count);
        command.nanos.add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        if keeps_times {
            command.times.get_or_init(Box::default).add(took, count);
        }
    }

    /// Counts error replies.
    pub(crate) fn note_error(&self, wrong: &Wrong, count: u64) {
        let code = wrong.text().split(' ').next().unwrap_or_default();
        let mut errors = self.errors.lock();
        if let Some(sum) = errors.get_mut(code) {
            *sum += count;
        } else if errors.len() < CODES_AT_MOST {
            errors.insert(code.to_owned(), count);
        }
    }

    /// Codes of errors and their numbers.
    pub(crate) fn errors(&self) -> BTreeMap<String, u64> {
        self.errors.lock().clone()
    }

    /// Sets all to zero.
    pub(crate) fn reset(&self) {
        for command in &self.commands {
            for counter in [&command.calls, &command.nanos, &command.rejected, &command.failed] {
                counter.reset();
            }
            if let Some(times) = command.times() {
                times.reset();
            }
        }
        self.errors.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_errors_are_counted() {
        let stats = CommandStats::default();
        stats.ran(3, 2, Duration::from_micros(5), true);
        stats.of(4).rejected.add(1);
        stats.note_error(&Wrong::err("a b"), 2);
        stats.note_error(&Wrong::wrong_type(), 1);
        (0..200).for_each(|n| stats.note_error(&Wrong::new(format!("CODE{n} x")), 1));
        assert_eq!((stats.of(3).calls.get(), stats.of(3).nanos.get()), (2, 5000));
        assert!(stats.of(4).is_used() && !stats.of(5).is_used() && stats.of(4).times().is_none());
        let errors = stats.errors();
        assert_eq!((errors.len(), errors["ERR"], errors["WRONGTYPE"]), (CODES_AT_MOST, 2, 1));
        stats.reset();
        assert!(!stats.of(3).is_used() && stats.errors().is_empty());
        stats.ran(9, 1, Duration::ZERO, false);
        assert!(stats.of(9).times().is_none());
    }
}
