//! Which logs, and how much of each, are trusted when a database is opened.
//!
//! In: the bytes of each log, oldest first, and the recovery mode. Out: memtables filled by [`Replay`], or an error that names the log and the offset.
//!
//! | mode | damage in a log | after that |
//! |---|---|---|
//! | `TolerateCorruptedTailRecords` | a torn tail is no damage; anything else is an error | |
//! | `AbsoluteConsistency` | everything is an error, a torn tail too | |
//! | `PointInTimeRecovery` | the rest of the log is left out | later logs count from the first record that follows the last replayed one |
//! | `SkipAnyCorruptedRecords` | what can be read is replayed | |
//!
//! Invariant: under `PointInTimeRecovery` what is recovered is a prefix of what was written; a column family whose tables hold something
//! newer than that prefix is an error, as its families would not fit together.

use super::replay::{Replay, Target};
use crate::error::{Error, Result};
use karst_format::Corruption;
use karst_format::ids::FileNumber;
use karst_format::key::SeqNo;
use karst_format::log::{LogEvent, LogReader, Predecessor, RecoveryMode};
use karst_format::write_batch::BatchReader;
use std::path::{Path, PathBuf};

/// Replays logs, oldest first.
#[derive(Debug)]
pub(crate) struct Recovery {
    mode: RecoveryMode,
    replay: Replay,
    /// Logs below this number need not be there.
    first_needed: FileNumber,
    /// Behind the last batch that was replayed; `None` before the first.
    expected: Option<SeqNo>,
    /// Where replay stopped, while it has not been taken up again.
    stopped: Option<Stopped>,
    /// The log before the current one.
    previous: Option<Predecessor>,
}

/// The place behind which logs are left out.
#[derive(Clone, Debug)]
pub(crate) struct Stopped {
    pub(crate) log: FileNumber,
    pub(crate) path: PathBuf,
    pub(crate) corruption: Corruption,
    /// It may be where the file's former life begins: the log's end, unless records of later logs tell otherwise.
    pub(crate) former_life: bool,
    /// Records of later logs were left out.
    pub(crate) left_out: bool,
}

impl Stopped {
    /// Whether it is the end of the newest log in a file that was another's before, and no damage.
    pub(crate) fn is_plain_end(&self) -> bool {
        self.former_life && !self.left_out
    }
}

impl std::fmt::Display for Stopped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, offset {}: {}", self.path.display(), self.corruption.offset, self.corruption.what)
    }
}

/// What was recovered.
#[derive(Debug)]
pub(crate) struct Recovered {
    /// The sequence number behind everything.
    pub(crate) next_seq: SeqNo,
    /// Entries in memtables.
    pub(crate) applied: u64,
    /// Transactions that are prepared and neither committed nor rolled back. They have no effect.
    pub(crate) undecided: usize,
    /// Where point-in-time recovery ended, if it was not the end of the last log.
    pub(crate) stopped: Option<Stopped>,
}

/// How reading one log goes on.
enum Then {
    Next,
    LeaveLog,
}

impl Recovery {
    /// `last_seq` is the last sequence number the MANIFEST knows; logs below `first_needed` need not exist.
    pub(crate) fn new(
        mode: RecoveryMode,
        targets: Vec<Target>,
        last_seq: SeqNo,
        first_needed: FileNumber,
    ) -> Self {
        let replay = Replay::new(targets, last_seq);
        Self { mode, replay, first_needed, expected: None, stopped: None, previous: None }
    }

    /// Replays one log. Logs come in ascending order of their numbers.
    pub(crate) fn log(&mut self, number: FileNumber, path: &Path, bytes: &[u8]) -> Result<()> {
        let mut reader = LogReader::new(bytes, number, self.mode);
        let mut last_seq = SeqNo::ZERO;
        while let Some(event) = reader.next_event() {
            let outcome = match event {
                LogEvent::Record(record) => {
                    let applied = self.record(number, record.bytes, &mut last_seq);
                    applied.map_err(|e| Corruption::new(e.what, record.offset))
                }
                LogEvent::Damage(damage) => Err(damage.corruption),
                LogEvent::OldRecord { offset } => {
                    // Compat: whether this is the end of the log or a hole, only the next log's first number tells.
                    self.stop(number, path, Corruption::new("a record of an older log", offset), true);
                    Ok(Then::LeaveLog)
                }
                LogEvent::Predecessor(recorded) => self.check_predecessor(recorded).map(|()| Then::Next),
            };
            match outcome {
                Ok(Then::Next) => {}
                Ok(Then::LeaveLog) => break,
                Err(corruption) => match self.mode {
                    RecoveryMode::SkipAnyCorruptedRecords => {
                        let offset = corruption.offset;
                        tracing::warn!(log = %path.display(), offset, "skipped: {}", corruption.what);
                    }
                    RecoveryMode::PointInTimeRecovery => {
                        // Why: the last record ends where it will, mostly in the middle of an older one.
                        self.stop(number, path, corruption, reader.is_recyclable());
                        break;
                    }
                    RecoveryMode::TolerateCorruptedTailRecords | RecoveryMode::AbsoluteConsistency => {
                        return Err(Error::in_file(path, 0, corruption));
                    }
                },
            }
        }
        self.previous = Some(Predecessor { log: number, size_bytes: bytes.len() as u64, last_seq });
        Ok(())
    }

    fn stop(&mut self, log: FileNumber, path: &Path, corruption: Corruption, former_life: bool) {
        let left_out = self.stopped.as_ref().is_some_and(|before| before.left_out);
        self.stopped = Some(Stopped { log, path: path.to_owned(), corruption, former_life, left_out });
    }

    fn record(&mut self, log: FileNumber, record: &[u8], last_seq: &mut SeqNo) -> Result<Then, Corruption> {
        let batch = BatchReader::parse(record)?;
        *last_seq = batch.seq();
        if let Some(stopped) = &mut self.stopped {
            if self.expected != Some(batch.seq()) {
                stopped.left_out = true;
                return Ok(Then::LeaveLog);
            }
            self.stopped = None;
        }
        self.expected = Some(self.replay.apply(log, batch)?);
        Ok(Then::Next)
    }

    /// Compares what a log says of the one before it with what was read.
    fn check_predecessor(&self, recorded: Predecessor) -> Result<(), Corruption> {
        if self.stopped.is_some() || recorded.log < self.first_needed {
            return Ok(());
        }
        match self.previous {
            Some(previous) if previous == recorded => Ok(()),
            previous => {
                let found = previous.map_or("there is none".to_owned(), |p| {
                    format!(
                        "log {} of {} bytes up to sequence number {} is there",
                        p.log, p.size_bytes, p.last_seq
                    )
                });
                Err(Corruption::new(
                    format!(
                        "the log before should be {} of {} bytes up to sequence number {}; {found}",
                        recorded.log, recorded.size_bytes, recorded.last_seq
                    ),
                    0u64,
                ))
            }
        }
    }

    /// Ends the recovery. `families` are the open column families that have tables: name and log number.
    ///
    /// # Errors
    /// A family holds data newer than the place where recovery stopped.
    pub(crate) fn finish<'a>(
        self,
        families: impl IntoIterator<Item = (&'a str, FileNumber)>,
    ) -> Result<Recovered> {
        if let Some(stopped) = &self.stopped {
            for (name, log_number) in families {
                if log_number > stopped.log {
                    let error = Error::in_file(&stopped.path, 0, stopped.corruption.clone());
                    return Err(error.in_context(format!(
                        "column family {name:?} has tables with data from behind the damage in a log"
                    )));
                }
            }
            let (log, offset) = (stopped.path.display(), stopped.corruption.offset);
            if stopped.is_plain_end() {
                tracing::debug!(%log, offset, "the newest log ends before its file does");
            } else {
                tracing::warn!(%log, offset, "recovered up to damage in a log: {}", stopped.corruption.what);
            }
        }
        Ok(Recovered {
            next_seq: self.replay.next_seq(),
            applied: self.replay.applied(),
            undecided: self.replay.undecided(),
            stopped: self.stopped,
        })
    }
}

#[cfg(test)]
mod tests;
