//! Recovery: decides which logs, and how much of each, are trusted when a database is opened.
//!
//! It takes the bytes of each log, oldest first, and the recovery mode. [`Replay`] fills the
//! memtables, or an error names the log and the offset.
//!
//! | mode | damage in a log | later logs |
//! |---|---|---|
//! | `TolerateCorruptedTailRecords` | a torn tail is ignored; all other damage is an error | a log whose recorded predecessor is missing or was longer is an error |
//! | `AbsoluteConsistency` | all damage is an error, a torn tail too | as above |
//! | `PointInTimeRecovery` | the rest of the log is skipped | replay resumes at the first record that follows the last replayed one |
//! | `SkipAnyCorruptedRecords` | all readable records are replayed | |
//!
//! A log records its predecessor in one of two forms: our own note (`Follows`) or, with
//! `track_and_verify_wals`, RocksDB's record ([`Predecessor`]). Both are checked in one way, and
//! the option does not matter when a log is read.
//!
//! Invariant: in every mode but `SkipAnyCorruptedRecords` the recovered state is a prefix of the
//! written one, as far as the logs tell; a column family whose tables hold entries newer than that
//! prefix is an error, because the families would be inconsistent.
//!
//! Compat: without `track_and_verify_wals` RocksDB does not compare logs with each other; under
//! `TolerateCorruptedTailRecords` it recovers the logs after a missing or torn one, with a gap.

use super::log_chain::Follows;
use super::replay::{Behind, Replay, Target, Undecided};
use super::replay_duplicates::Passed;
use karst_base::error::{Error, Named, Result};
use karst_format::Corruption;
use karst_format::ids::{ColumnFamilyId, FileNumber};
use karst_format::key::SeqNo;
use karst_format::log::{BLOCK_BYTES, LogEvent, LogReader, Predecessor, Record, RecoveryMode, TimestampSize};
use karst_format::write_batch::BatchReader;
use karst_io::report;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Callback that takes out a full memtable.
pub type OnFull<'a> = &'a mut dyn FnMut(&mut Target) -> Result<()>;

/// Replays logs, oldest first.
#[derive(Debug)]
pub struct Recovery {
    mode: RecoveryMode,
    replay: Replay,
    /// Logs below this number may be missing.
    first_needed: FileNumber,
    /// Prepared transactions may exist, so records may take no sequence number.
    two_phases: bool,
    /// Possible sequence numbers of the next batch; `None` before the first.
    expected: Option<Behind>,
    /// Point at which replay stopped, until it resumes.
    stopped: Option<Stopped>,
    /// The log before the current one.
    previous: Option<Predecessor>,
    /// The last log read, and the end of its last replayed record.
    last_log: Option<(FileNumber, u64)>,
    /// Timestamp sizes named by each log that replay may resume in, if it named any.
    timestamp_sizes: BTreeMap<FileNumber, Vec<TimestampSize>>,
    /// Damage was skipped.
    skipped: bool,
    /// Last sequence number known to the MANIFEST; see [`watch`](Self::watch).
    known_to: SeqNo,
    missing: Option<SeqNo>,
}

/// The point after which logs are skipped.
#[derive(Clone, Debug)]
pub struct Stopped {
    /// The log in which replay stopped.
    pub log: FileNumber,
    /// Its file.
    pub path: PathBuf,
    /// Damage at that point.
    pub corruption: Corruption,
    /// The point may be where records of the recycled file's former log begin: the log's end,
    /// unless records of later logs contradict it.
    pub former_life: bool,
    /// Records of later logs were skipped.
    pub left_out: bool,
}

impl Stopped {
    /// Returns true if it is the end of the newest log in a recycled file, and no damage.
    pub fn is_plain_end(&self) -> bool {
        self.former_life && !self.left_out
    }

    /// Skips the rest of a later log.
    fn leave_out(&mut self) -> Then {
        self.left_out = true;
        Then::LeaveLog
    }
}

/// Returns true if a log that begins at `seq` continues at `expected`, although recovery may have
/// `stopped` before. A range of possible numbers is not accepted after damage, because it would
/// hide a gap.
fn continues(expected: Option<&Behind>, stopped: Option<&Stopped>, seq: SeqNo) -> bool {
    expected.is_some_and(|expected| {
        let is_certain = expected.start() == expected.end() || stopped.is_none_or(Stopped::is_plain_end);
        is_certain && expected.contains(&seq)
    })
}

impl std::fmt::Display for Stopped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, offset {}: {}", self.path.display(), self.corruption.offset, self.corruption.what)
    }
}

/// Result of a recovery.
#[derive(Debug)]
pub struct Recovered {
    /// First sequence number after all recovered ones.
    pub next_seq: SeqNo,
    /// Largest column family id in any record, even of families that do not exist.
    pub largest_family: ColumnFamilyId,
    /// Number of entries added to memtables.
    pub applied: u64,
    /// Records that were skipped because tables have them, by column family.
    pub passed: Vec<Passed>,
    /// Transactions that are prepared and neither committed nor rolled back. They have no effect
    /// yet.
    pub undecided: Vec<Undecided>,
    /// The logs have prepared sections, or decisions about them.
    pub two_phases: bool,
    /// Damage was skipped, so there may be gaps.
    pub skipped: bool,
    /// Point where point-in-time recovery ended, unless that is the end of the last log.
    pub stopped: Option<Stopped>,
}

/// Position up to which a log was replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// End offset of the last replayed record; 0 if none was.
    pub end: u64,
    /// Sequence number of that record.
    last_seq: SeqNo,
    recyclable: bool,
    compressed: bool,
}

impl Place {
    /// Returns the offset from which the file must be read to continue.
    pub fn read_from(&self) -> u64 {
        if self.compressed { 0 } else { self.end - self.end % BLOCK_BYTES as u64 }
    }
}

/// Next step in reading a log.
enum Then {
    Next,
    LeaveLog,
}

impl Recovery {
    /// Creates a recovery. `last_seq` is the last sequence number that the MANIFEST knows; logs
    /// below `first_needed` need not exist. `two_phases`: there may be prepared transactions.
    pub fn new(
        mode: RecoveryMode,
        targets: Vec<Target>,
        (last_seq, first_needed): (SeqNo, FileNumber),
        two_phases: bool,
    ) -> Self {
        let replay = Replay::new(targets, last_seq);
        Self {
            mode,
            replay,
            first_needed,
            two_phases,
            expected: None,
            stopped: None,
            previous: None,
            last_log: None,
            timestamp_sizes: BTreeMap::new(),
            skipped: false,
            known_to: last_seq,
            missing: None,
        }
    }

    /// Replays one log. Logs must come in ascending order of their numbers. Calls `full` for each
    /// memtable that is full; it must put an empty one in its place.
    pub fn log(&mut self, number: FileNumber, path: &Path, bytes: &[u8], full: OnFull<'_>) -> Result<()> {
        self.log_from(number, path, (0, bytes), Place::default(), full).map(drop)
    }

    /// Continues the replay of a log at `place`, and returns the new position. `bytes` are the
    /// file's from offset `base` on: see [`Place::read_from`].
    pub fn log_from(
        &mut self,
        number: FileNumber,
        path: &Path,
        (base, bytes): (u64, &[u8]),
        place: Place,
        full: OnFull<'_>,
    ) -> Result<Place> {
        let mut reader = LogReader::new(bytes, number, self.mode);
        if place.end > 0 && !place.compressed {
            reader = reader.resumed(base, place.end, place.recyclable);
            // Timestamp sizes that the log named before `place` are not read again.
            reader =
                reader.with_timestamp_sizes(self.timestamp_sizes.get(&number).cloned().unwrap_or_default());
        }
        // Cleared, because an earlier read may have ended where records were still to come.
        self.stopped.take_if(|stopped| stopped.log == number);
        let Place { mut last_seq, mut end, .. } = place;
        while let Some(event) = reader.next_event() {
            let outcome = match event {
                LogEvent::Record(record) if record.end <= place.end => Ok(Then::Next),
                LogEvent::Record(record) => {
                    let applied = self.record(number, path, &record, &mut last_seq);
                    self.replay.check()?;
                    if let Ok(Then::Next) = applied {
                        end = record.end;
                    }
                    applied.map_err(|e| Corruption::new(e.what, record.offset))
                }
                LogEvent::Damage(damage) => Err(damage.corruption),
                LogEvent::OldRecord { offset } => {
                    // Compat: only the first number of the next log shows if this is the end of the
                    // log or a gap.
                    self.stop(number, path, Corruption::new("a record of an older log", offset), true);
                    Ok(Then::LeaveLog)
                }
                LogEvent::Predecessor(_) if place.end > 0 => Ok(Then::Next),
                LogEvent::Predecessor(recorded) => self.check_predecessor(recorded, path),
            };
            match outcome {
                Ok(Then::Next) => {
                    for target in self.replay.full_targets() {
                        full(target)?;
                    }
                }
                Ok(Then::LeaveLog) => break,
                // In every mode, because it is no damage, and existing records must not be skipped.
                Err(corruption) if corruption.missing_feature.is_some() => {
                    return Err(Error::in_file(path, 0, corruption));
                }
                Err(corruption) => match self.mode {
                    RecoveryMode::SkipAnyCorruptedRecords => {
                        let offset = corruption.offset;
                        report!(warn, log = %path.display(), offset, "skipped: {}", corruption.what);
                        self.skipped = true;
                    }
                    RecoveryMode::PointInTimeRecovery => {
                        // In a recycled file the last record ends anywhere, mostly inside an older
                        // record.
                        self.stop(number, path, corruption, reader.is_recyclable());
                        break;
                    }
                    RecoveryMode::TolerateCorruptedTailRecords | RecoveryMode::AbsoluteConsistency => {
                        return Err(Error::in_file(path, 0, corruption));
                    }
                },
            }
        }
        if !reader.timestamp_sizes().is_empty() {
            self.timestamp_sizes.insert(number, reader.timestamp_sizes().to_vec());
        }
        self.last_log = Some((number, end));
        let size_bytes = base + bytes.len() as u64;
        self.previous = Some(Predecessor { log: number, size_bytes, last_seq });
        let (recyclable, compressed) = (reader.is_recyclable(), reader.is_compressed());
        Ok(Place { end, last_seq, recyclable, compressed })
    }

    /// Forgets which logs were replayed: the next one need not follow them, because tables hold
    /// their records.
    pub fn jump(&mut self) {
        (self.expected, self.stopped, self.previous, self.last_log) = (None, None, None, None);
    }

    /// Raises the oldest needed log. Transactions prepared in older logs, and not prepared anew,
    /// were decided.
    pub fn needs_from(&mut self, first_needed: FileNumber) {
        self.first_needed = first_needed;
        self.replay.forget_decided(first_needed);
        self.timestamp_sizes = self.timestamp_sizes.split_off(&first_needed);
    }

    /// Starts recording which number is [missing](Self::missing) after `known_to`, the last one
    /// that the MANIFEST knows.
    pub fn watch(&mut self, known_to: SeqNo) {
        (self.known_to, self.missing) = (known_to, None);
    }

    /// Returns the first number without a record that later records skipped and the MANIFEST did
    /// not know: it belongs to a write without a log, or to a file ingested after the MANIFEST was
    /// read.
    pub fn missing(&self) -> Option<SeqNo> {
        self.missing
    }

    /// Returns true if memtables hold every record that was read so far: none was skipped or held
    /// back, and no section awaits a decision.
    pub fn is_whole(&self) -> bool {
        self.stopped.is_none() && !self.skipped && self.replay.holds_nothing()
    }

    /// Returns the point at which replay stopped, if it did.
    pub fn stopped(&self) -> Option<&Stopped> {
        self.stopped.as_ref()
    }

    /// Returns the smallest sequence number that later records may have; `None` if nothing was
    /// replayed.
    pub fn expected(&self) -> Option<SeqNo> {
        self.expected.as_ref().map(|expected| *expected.start())
    }

    /// Returns the replay.
    pub fn replay_mut(&mut self) -> &mut Replay {
        &mut self.replay
    }

    fn stop(&mut self, log: FileNumber, path: &Path, corruption: Corruption, former_life: bool) {
        let left_out = self.stopped.as_ref().is_some_and(|before| before.left_out);
        self.stopped = Some(Stopped { log, path: path.to_owned(), corruption, former_life, left_out });
    }

    fn record(
        &mut self,
        log: FileNumber,
        path: &Path,
        record: &Record<'_>,
        last_seq: &mut SeqNo,
    ) -> Result<Then, Corruption> {
        let batch = BatchReader::parse(record.bytes)?;
        *last_seq = batch.seq();
        let strict = self.mode != RecoveryMode::SkipAnyCorruptedRecords;
        if let Some(follows) = Follows::of(&batch)
            && follows.log >= self.first_needed
            && let Some(then) = self.check_follows(follows, path)?
        {
            return Ok(then);
        }
        if let Some(stopped) = &mut self.stopped {
            if strict && !continues(self.expected.as_ref(), Some(stopped), batch.seq()) {
                if self.mode == RecoveryMode::PointInTimeRecovery {
                    return Ok(stopped.leave_out());
                }
                let what = format!("records before this one are missing; recovery stopped at {stopped}");
                return Err(Corruption::new(what, 0u64));
            }
            self.stopped = None;
        }
        let gap = self.expected.as_ref().is_some_and(|expected| !expected.contains(&batch.seq()));
        // Even without a gap, because a prepared section or a rollback, which take no number, may
        // have been there.
        if record.behind_zeroes && (gap || self.two_phases) && strict {
            return Err(Corruption::new(
                "zeroed space, and records missing where it is, or they may be",
                0u64,
            ));
        }
        let next = self.expected.as_ref().map_or(SeqNo::ZERO, |expected| *expected.end());
        let next = next.max(SeqNo(self.known_to.0 + 1));
        if batch.seq() > next {
            self.missing.get_or_insert(next);
        }
        if let Err(unfit) = self.replay.check_timestamps(log, &batch, record.timestamp_sizes) {
            // In every mode, because it is no damage, and existing records must not be skipped.
            let at = format!("{}, offset {}", path.display(), record.offset);
            self.replay.fail(unfit.in_context(at));
            return Err(Corruption::new("a batch that does not fit the comparators", 0u64));
        }
        self.expected = Some(self.replay.apply(log, batch)?);
        Ok(Then::Next)
    }

    /// Checks a log's note about its predecessor; returns the next step if the predecessor is not
    /// whole.
    ///
    /// Sequence numbers alone are not sufficient, because writes without a log take some too, so
    /// there may be a gap between two whole logs.
    fn check_follows(&mut self, follows: Follows, path: &Path) -> Result<Option<Then>, Corruption> {
        if follows.end == SeqNo::ZERO {
            return Ok(None);
        }
        let last = self.last_log.filter(|(log, _)| *log == follows.log);
        let whole = match (last, follows.size_bytes) {
            (None, _) => false,
            // The sizes are compared, not the sequence numbers, because some records take none, and
            // replay cannot tell how many some others took.
            (Some((_, end)), Some(size)) => end == size,
            (Some(_), None) => continues(self.expected.as_ref(), self.stopped.as_ref(), follows.end),
        };
        if whole {
            self.expected = Some(follows.end..=follows.end);
            self.stopped = None;
            return Ok(None);
        }
        let found = match (last, &self.expected) {
            (None, _) => "that log does not exist".to_owned(),
            (Some((_, end)), Some(expected)) => {
                format!("that log ends before {}, at offset {end}", expected.start())
            }
            (Some(_), None) => "that log has no record".to_owned(),
        };
        let what = format!(
            "the previous log, {}, should have all records before sequence number {}{}; {found}",
            follows.log,
            follows.end,
            follows.size_bytes.map_or(String::new(), |size| format!(", which end at offset {size}"))
        );
        self.is_not_whole(follows.log, path, what).map(Some)
    }

    /// Returns the next step after the log in `path` has shown that `log`, its predecessor, is not
    /// whole.
    ///
    /// Under `PointInTimeRecovery` replay stops in `log`, because a column family that needs none
    /// of that log has tables with later entries. The rest of the log in `path` is skipped, so a
    /// family whose tables hold some of it shows that the state is inconsistent.
    fn is_not_whole(&mut self, log: FileNumber, path: &Path, what: String) -> Result<Then, Corruption> {
        if self.mode != RecoveryMode::PointInTimeRecovery {
            return Err(Corruption::new(what, 0u64));
        }
        if self.stopped.is_none() {
            self.stop(log, path, Corruption::new(what, 0u64), false);
        }
        Ok(self.stopped.as_mut().map_or(Then::LeaveLog, Stopped::leave_out))
    }

    /// Checks RocksDB's record of the predecessor against the log that was read.
    fn check_predecessor(&mut self, recorded: Predecessor, path: &Path) -> Result<Then, Corruption> {
        // An empty predecessor has no records to lose.
        if recorded.log < self.first_needed || recorded.size_bytes == 0 {
            return Ok(Then::Next);
        }
        let has_all = self.last_log == Some((recorded.log, recorded.size_bytes));
        if has_all || (self.stopped.is_none() && self.previous == Some(recorded)) {
            // Accepted with any sequence number, because all its records were replayed. A file
            // ingested between the two logs may have taken numbers.
            self.stopped = None;
            return Ok(Then::Next);
        }
        let found = self.previous.map_or("no such log exists".to_owned(), |p| {
            let (log, size, seq) = (p.log, p.size_bytes, p.last_seq);
            format!("found log {log} of {size} bytes up to sequence number {seq}")
        });
        let what = format!(
            "the previous log should be {} of {} bytes up to sequence number {}; {found}",
            recorded.log, recorded.size_bytes, recorded.last_seq
        );
        self.is_not_whole(recorded.log, path, what)
    }

    /// Ends the recovery. `families` are the open column families that have tables: name and log
    /// number.
    ///
    /// # Errors
    /// A family holds data newer than the place where recovery stopped.
    pub fn finish<'a>(
        mut self,
        families: impl IntoIterator<Item = (&'a str, FileNumber)>,
    ) -> Result<Recovered> {
        let passed = self.replay.end()?;
        if let Some(stopped) = &self.stopped {
            // Not at the plain end of a recycled log: a flush syncs the logs before the MANIFEST
            // has its tables, so that log is complete. The marks of its end, the truncation of its
            // file and the beginning of the next log, may reach the device later.
            let ahead = families.into_iter().filter(|_| !stopped.is_plain_end());
            for (name, log_number) in ahead {
                if log_number > stopped.log {
                    let error = Error::in_file(&stopped.path, 0, stopped.corruption.clone());
                    return Err(error.in_context(format!(
                        "column family {:?} has tables with data newer than the damage in a log",
                        Named(name)
                    )));
                }
            }
            let (log, offset) = (stopped.path.display(), stopped.corruption.offset);
            if stopped.is_plain_end() {
                report!(debug, %log, offset, "the newest log ends before its file does");
            } else {
                report!(warn, %log, offset, "recovered up to damage in a log: {}", stopped.corruption.what);
            }
        }
        Ok(Recovered {
            next_seq: self.replay.next_seq(),
            largest_family: self.replay.largest_family(),
            applied: self.replay.applied(),
            passed,
            two_phases: self.replay.has_two_phases(),
            undecided: self.replay.into_undecided(),
            skipped: self.skipped,
            stopped: self.stopped,
        })
    }
}

#[cfg(test)]
mod tests;
