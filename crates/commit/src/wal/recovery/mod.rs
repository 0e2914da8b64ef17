//! Which logs, and how much of each, are trusted when a database is opened.
//!
//! In: the bytes of each log, oldest first, and the recovery mode. Out: memtables filled by
//! [`Replay`], or an error that names the log and the offset.
//!
//! | mode | damage in a log | after that |
//! |---|---|---|
//! | `TolerateCorruptedTailRecords` | a torn tail is no damage; anything else is an error | a log that says that the one before was longer, or was there, is an error |
//! | `AbsoluteConsistency` | everything is an error, a torn tail too | the same |
//! | `PointInTimeRecovery` | the rest of the log is left out | later logs count from the first record that follows the last replayed one |
//! | `SkipAnyCorruptedRecords` | what can be read is replayed | |
//!
//! A log says what the one before it was in one of two forms: our own note (`Follows`) or, with
//! `track_and_verify_wals`, RocksDB's record ([`Predecessor`]). Both are compared in one way, and
//! the option does not matter when a log is read.
//!
//! Invariant: in every mode but `SkipAnyCorruptedRecords` what is recovered is a prefix of what was
//! written, as far as the logs tell; a column family whose tables hold something newer than that
//! prefix is an error, as its families would not fit together.
//!
//! Compat: without `track_and_verify_wals` RocksDB does not compare logs with each other; under
//! `TolerateCorruptedTailRecords` it shows what is behind a log that is gone or torn, with a hole.

use super::doubts::Passed;
use super::following::Follows;
use super::replay::{Behind, Replay, Target, Undecided};
use karst_base::error::{Error, Named, Result};
use karst_format::Corruption;
use karst_format::ids::{ColumnFamilyId, FileNumber};
use karst_format::key::SeqNo;
use karst_format::log::{BLOCK_BYTES, LogEvent, LogReader, Predecessor, Record, RecoveryMode, TimestampSize};
use karst_format::write_batch::BatchReader;
use karst_io::report;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What is done with a full memtable.
pub type OnFull<'a> = &'a mut dyn FnMut(&mut Target) -> Result<()>;

/// Replays logs, oldest first.
#[derive(Debug)]
pub struct Recovery {
    mode: RecoveryMode,
    replay: Replay,
    /// Logs below this number need not be there.
    first_needed: FileNumber,
    /// Records may take no number.
    two_phases: bool,
    /// Behind the last batch that was replayed; `None` before the first.
    expected: Option<Behind>,
    /// Where replay stopped, while it has not been taken up again.
    stopped: Option<Stopped>,
    /// The log before the current one.
    previous: Option<Predecessor>,
    /// The last log that was read, and where its last record that was replayed ends.
    last_log: Option<(FileNumber, u64)>,
    /// Of each log that may be gone on with, what it said of timestamps, if it said anything.
    timestamp_sizes: BTreeMap<FileNumber, Vec<TimestampSize>>,
    /// Damage was passed over.
    skipped: bool,
    /// See [`watch`](Self::watch).
    known_to: SeqNo,
    missing: Option<SeqNo>,
}

/// The place behind which logs are left out.
#[derive(Clone, Debug)]
pub struct Stopped {
    /// The log that it is in.
    pub log: FileNumber,
    /// Its file.
    pub path: PathBuf,
    /// What is wrong there.
    pub corruption: Corruption,
    /// It may be where the file's former life begins: the log's end, unless records of later logs
    /// tell otherwise.
    pub former_life: bool,
    /// Records of later logs were left out.
    pub left_out: bool,
}

impl Stopped {
    /// Whether it is the end of the newest log in a file that was another's before, and no damage.
    pub fn is_plain_end(&self) -> bool {
        self.former_life && !self.left_out
    }

    /// Leaves out the rest of a later log.
    fn leave_out(&mut self) -> Then {
        self.left_out = true;
        Then::LeaveLog
    }
}

/// Whether a log that begins at `seq` goes on behind what was `expected`, though recovery may have
/// `stopped` before. What may begin anywhere shows no hole, so it must not make one good.
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

/// What was recovered.
#[derive(Debug)]
pub struct Recovered {
    /// The sequence number behind everything.
    pub next_seq: SeqNo,
    /// The largest id of a column family that the logs are about, whether it exists or not.
    pub largest_family: ColumnFamilyId,
    /// Entries in memtables.
    pub applied: u64,
    /// Records that were passed over because tables have them, by column family.
    pub passed: Vec<Passed>,
    /// Transactions that are prepared and neither committed nor rolled back. They have no effect.
    pub undecided: Vec<Undecided>,
    /// Damage was passed over, so there may be holes.
    pub skipped: bool,
    /// Where point-in-time recovery ended, if it was not the end of the last log.
    pub stopped: Option<Stopped>,
}

/// Up to where a log was replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Behind its last record that was; 0 if none was.
    pub end: u64,
    /// The number of that record.
    last_seq: SeqNo,
    recyclable: bool,
    compressed: bool,
}

impl Place {
    /// From which offset the file has to be read to go on.
    pub fn read_from(&self) -> u64 {
        if self.compressed { 0 } else { self.end - self.end % BLOCK_BYTES as u64 }
    }
}

/// How reading one log goes on.
enum Then {
    Next,
    LeaveLog,
}

impl Recovery {
    /// `last_seq` is the last sequence number the MANIFEST knows; logs below `first_needed` need
    /// not exist. `two_phases`: there may be prepared transactions.
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

    /// Replays one log. Logs come in ascending order of their numbers. `full` is called for each
    /// memtable that has become as large as it should, and puts an empty one in its place.
    pub fn log(&mut self, number: FileNumber, path: &Path, bytes: &[u8], full: OnFull<'_>) -> Result<()> {
        self.log_from(number, path, (0, bytes), Place::default(), full).map(drop)
    }

    /// Replays what a log has behind `place`, up to which it was replayed before; says up to where
    /// it is replayed now. `bytes` are the file's from an offset on: see [`Place::read_from`].
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
            // Why: what was said before does not come again.
            reader =
                reader.with_timestamp_sizes(self.timestamp_sizes.get(&number).cloned().unwrap_or_default());
        }
        // Why: if it was read before, it may have ended where more was still to come.
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
                    // Compat: whether this is the end of the log or a hole, only the next log's
                    // first number tells.
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
                // Why in every mode: it is no damage, and what is there must not be left out.
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
                        // Why: the last record ends where it will, mostly in the middle of an older
                        // one.
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

    /// Forgets which logs were replayed: the next one need not follow them, as tables have what
    /// they held.
    pub fn jump(&mut self) {
        (self.expected, self.stopped, self.previous, self.last_log) = (None, None, None, None);
    }

    /// Logs below this number are needed no more, so every transaction that was prepared in them
    /// and is not prepared anew was decided.
    pub fn needs_from(&mut self, first_needed: FileNumber) {
        self.first_needed = first_needed;
        self.replay.forget_decided(first_needed);
        self.timestamp_sizes = self.timestamp_sizes.split_off(&first_needed);
    }

    /// From now on notes which number is [missing](Self::missing) behind `known_to`, the last one
    /// that the MANIFEST knows.
    pub fn watch(&mut self, known_to: SeqNo) {
        (self.known_to, self.missing) = (known_to, None);
    }

    /// The first number that no record had though later ones came, and that the MANIFEST did not
    /// know: a write without a log had it, or a file that was ingested after the MANIFEST was read.
    pub fn missing(&self) -> Option<SeqNo> {
        self.missing
    }

    /// Whether all that was read so far is in memtables: nothing was left out, passed over or held
    /// back, and nothing waits for a decision.
    pub fn is_whole(&self) -> bool {
        self.stopped.is_none() && !self.skipped && self.replay.holds_nothing()
    }

    /// Where replay stopped, if it did.
    pub fn stopped(&self) -> Option<&Stopped> {
        self.stopped.as_ref()
    }

    /// No record that comes has a smaller number than this; `None` if nothing was replayed.
    pub fn expected(&self) -> Option<SeqNo> {
        self.expected.as_ref().map(|expected| *expected.start())
    }

    /// What it fills.
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
                let what = format!("records are missing before it, behind {stopped}");
                return Err(Corruption::new(what, 0u64));
            }
            self.stopped = None;
        }
        let gap = self.expected.as_ref().is_some_and(|expected| !expected.contains(&batch.seq()));
        // Why also without a gap: a prepared section, or a rollback, may have been there, which
        // take no number.
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
            // Why in every mode: it is no damage to be passed over, and what is there must not be
            // left out.
            let at = format!("{}, offset {}", path.display(), record.offset);
            self.replay.fail(unfit.in_context(at));
            return Err(Corruption::new("a batch that does not fit the comparators", 0u64));
        }
        self.expected = Some(self.replay.apply(log, batch)?);
        Ok(Then::Next)
    }

    /// Takes note of what a log says of the one before it; says what to do if that one is not
    /// whole.
    ///
    /// Why not by the sequence numbers alone: writes without a log take some as well, so there may
    /// be a gap between two logs that are whole.
    fn check_follows(&mut self, follows: Follows, path: &Path) -> Result<Option<Then>, Corruption> {
        if follows.end == SeqNo::ZERO {
            return Ok(None);
        }
        let last = self.last_log.filter(|(log, _)| *log == follows.log);
        let whole = match (last, follows.size_bytes) {
            (None, _) => false,
            // Why not by the sequence number: some records take none, and of some replay cannot
            // tell how many they took.
            (Some((_, end)), Some(size)) => end == size,
            (Some(_), None) => continues(self.expected.as_ref(), self.stopped.as_ref(), follows.end),
        };
        if whole {
            self.expected = Some(follows.end..=follows.end);
            self.stopped = None;
            return Ok(None);
        }
        let found = match (last, &self.expected) {
            (None, _) => "it is not there".to_owned(),
            (Some((_, end)), Some(expected)) => {
                format!("it ends before {}, at offset {end}", expected.start())
            }
            (Some(_), None) => "it has no record".to_owned(),
        };
        let what = format!(
            "the log before, {}, should have all records before sequence number {}{}; {found}",
            follows.log,
            follows.end,
            follows.size_bytes.map_or(String::new(), |size| format!(", which end at offset {size}"))
        );
        self.is_not_whole(follows.log, path, what).map(Some)
    }

    /// Says what to do as the log in `path` has told that `log`, the one before it, is not whole.
    ///
    /// Under `PointInTimeRecovery` replay stops in `log`, because a column family that needs
    /// none of that log has tables with what came behind it. The rest of the log in `path` is left
    /// out, so a family whose tables have some of it shows that the state is torn.
    fn is_not_whole(&mut self, log: FileNumber, path: &Path, what: String) -> Result<Then, Corruption> {
        if self.mode != RecoveryMode::PointInTimeRecovery {
            return Err(Corruption::new(what, 0u64));
        }
        if self.stopped.is_none() {
            self.stop(log, path, Corruption::new(what, 0u64), false);
        }
        Ok(self.stopped.as_mut().map_or(Then::LeaveLog, Stopped::leave_out))
    }

    /// Compares RocksDB's record of the log before with what was read of that log.
    fn check_predecessor(&mut self, recorded: Predecessor, path: &Path) -> Result<Then, Corruption> {
        // Why none that is empty: it has nothing that could be missing.
        if recorded.log < self.first_needed || recorded.size_bytes == 0 {
            return Ok(Then::Next);
        }
        let has_all = self.last_log == Some((recorded.log, recorded.size_bytes));
        if has_all || (self.stopped.is_none() && self.previous == Some(recorded)) {
            // Why whatever the numbers: all that it had was replayed. A file that was ingested
            // between the two logs may have taken some.
            self.stopped = None;
            return Ok(Then::Next);
        }
        let found = self.previous.map_or("there is none".to_owned(), |p| {
            let (log, size, seq) = (p.log, p.size_bytes, p.last_seq);
            format!("log {log} of {size} bytes up to sequence number {seq} is there")
        });
        let what = format!(
            "the log before should be {} of {} bytes up to sequence number {}; {found}",
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
            // Why not behind the end of a log in a file that was another's: a flush has the logs
            // synced before the MANIFEST has its tables, so that log has all that was in it. What
            // says where it ends, the cut of its file and the beginning of the next log, may come
            // later to the device.
            let ahead = families.into_iter().filter(|_| !stopped.is_plain_end());
            for (name, log_number) in ahead {
                if log_number > stopped.log {
                    let error = Error::in_file(&stopped.path, 0, stopped.corruption.clone());
                    return Err(error.in_context(format!(
                        "column family {:?} has tables with data from behind the damage in a log",
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
            undecided: self.replay.into_undecided(),
            skipped: self.skipped,
            stopped: self.stopped,
        })
    }
}

#[cfg(test)]
mod tests;
