//! The order step: under one short lock a write gets a ticket and sequence numbers, and its record
//! is framed into the log buffer.
//!
//! It takes writes one at a time, new logs, and requests to stop ordering. It gives out tickets and
//! sequence numbers, and to the leader all framed records.
//!
//! Records are copied under the lock because they must be in the log in the order of their sequence
//! numbers, and a copy of some hundred bytes is cheaper than any way to mark it as unfinished.
//!
//! Invariant: a sequence number is never used twice, not even that of a failed write.
//!
//! Lock: [`Order::lock`] is the order lock. It is held neither while waiting nor during I/O. The
//! conflict table is locked under it.

use crate::conflicts::{Claim, Conflicts, Written};
use crate::handoff::Goals;
use crate::source::Source;
use crate::wal::writer::{LogFile, LogFraming, NewLog};
use karst_base::error::{Error, ErrorKind, Result};
use karst_base::stats::write_counts::WriteCounts;
use karst_base::sync::{Mutex, MutexGuard};
use karst_format::ids::{ColumnFamilyId, FileNumber};
use karst_format::key::SeqNo;
use karst_format::log::TimestampSize;
use std::sync::OnceLock;

/// Maximum bytes of records that wait for the leader; further writers wait before the order step.
pub(crate) const BUFFERED_BYTES: usize = 64 << 20;

/// State of the order step.
pub(crate) struct Order {
    line: Mutex<Line>,
    /// Recently written keys, once tracked. Set under the order lock.
    conflicts: OnceLock<Conflicts>,
}

/// State under the order lock.
#[derive(Debug)]
pub(crate) struct Line {
    next_ticket: u64,
    next_seq: SeqNo,
    framing: LogFraming,
    /// Framed records of the newest log that no leader has taken.
    buffer: Vec<u8>,
    /// Logs switched to since a leader last took records.
    switched: Vec<Switched>,
    /// Older logs that are still needed, and their sizes in bytes.
    older_logs: Vec<(FileNumber, u64)>,
    /// True if entries went to memtables without a record.
    unlogged: bool,
    /// Number of times the log is locked; above 0 no write is ordered.
    wal_locks: u64,
    /// Error of every write while writes are refused.
    refused: Option<Error>,
    /// Newest log at the time of the last failure. This and older logs may lack ordered writes.
    failed_log: FileNumber,
    /// Writers are held up, and no write is ordered; see `Pipeline::hold`.
    held: bool,
    /// Number of callers that wait to hold up writers.
    holders_waiting: u64,
    /// Writers are held up for one of the callers that wait for it, which has not taken it yet.
    hold_is_granted: bool,
    /// No write is ordered and no log is switched ever again. `refused` is set then, possibly by an
    /// earlier log failure.
    closed: bool,
    counts: WriteCounts,
}

/// A switch to a new log.
#[derive(Debug)]
pub(crate) struct Switched {
    /// Framed records of the previous log.
    pub(crate) rest: Vec<u8>,
    pub(crate) next: LogFile,
}

/// All framed records that no earlier leader has taken.
pub(crate) struct Taken {
    pub(crate) switched: Vec<Switched>,
    /// Records of the newest log.
    pub(crate) records: Vec<u8>,
    /// Bytes of records, those in `switched` included.
    pub(crate) bytes: usize,
    /// The ticket after the last one taken.
    pub(crate) end: u64,
    /// Bytes of all needed logs once this is written.
    pub(crate) log_bytes: u64,
}

/// Result of the order step for one write.
#[derive(Clone, Copy)]
pub(crate) struct Ordered {
    pub(crate) ticket: u64,
    pub(crate) first_seq: SeqNo,
    /// Last sequence number of the write, or of the writes before it if it takes none.
    pub(crate) last_seq: SeqNo,
    /// True if its record must leave the process before it is applied.
    pub(crate) persists: bool,
    /// Goals of the writes ordered before it.
    pub(crate) ahead: Goals,
}

/// Reason that a write was not ordered.
pub(crate) enum NotOrdered {
    /// Too many writes are in flight, the log is locked, or a memtable of the write is overfull;
    /// wait for room.
    Full,
    /// Writers were stopped after the write was admitted; it returns to write-stall control.
    Stopped,
    Refused(Error),
}

/// Result of a resumption.
pub(crate) enum Resumed {
    NothingFailed,
    /// The logs that replaced the failed ones, and have none of their records.
    Behind(Vec<LogFile>),
}

pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the database is closed")
}

impl Order {
    /// Creates the state for writes after `last_seq`, in a log that begins with `head`.
    pub(crate) fn new(last_seq: SeqNo, framing: LogFraming, head: Vec<u8>) -> Self {
        let line = Line {
            next_ticket: 0,
            next_seq: SeqNo(last_seq.0 + 1),
            framing,
            buffer: head,
            switched: Vec::new(),
            older_logs: Vec::new(),
            unlogged: false,
            wal_locks: 0,
            holders_waiting: 0,
            hold_is_granted: false,
            refused: None,
            failed_log: FileNumber(0),
            held: false,
            closed: false,
            counts: WriteCounts::default(),
        };
        Self { line: Mutex::new(line), conflicts: OnceLock::new() }
    }

    /// Takes the order lock.
    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, Line> {
        self.line.lock()
    }

    /// Tracks the keys of all writes from now on, in `buckets` buckets.
    pub(crate) fn track_conflicts(&self, buckets: u32) {
        let line = self.lock();
        self.conflicts.get_or_init(|| Conflicts::new(buckets, SeqNo(line.next_seq.0 - 1)));
    }

    /// Returns a claim that none of `keys` is written after `seen`; `None` is any key of its
    /// family.
    ///
    /// # Errors
    /// Keys are not tracked.
    pub(crate) fn claim<'a>(
        &self,
        keys: impl Iterator<Item = (ColumnFamilyId, Option<&'a [u8]>)>,
        seen: SeqNo,
    ) -> Result<Claim> {
        let conflicts = self.conflicts.get();
        let missing = || Error::invalid_argument("a write that depends on keys needs `track_conflicts`");
        Ok(conflicts.ok_or_else(missing)?.claim(keys, seen))
    }

    /// Returns the buckets that a write changes, if keys are tracked. Needs no lock.
    #[inline]
    pub(crate) fn written_by(&self, source: &Source<'_>) -> Option<Written> {
        self.conflicts.get().map(|conflicts| conflicts.written_by(source))
    }

    /// Fails with `Busy` unless the claim holds. Lock: under the order lock.
    pub(crate) fn check_claim(&self, claim: &Claim) -> Result<(), NotOrdered> {
        match self.conflicts.get().is_some_and(|conflicts| conflicts.holds(claim)) {
            true => Ok(()),
            false => {
                let text = "a key that the write depends on may have been written";
                Err(NotOrdered::Refused(Error::new(ErrorKind::Busy, text)))
            }
        }
    }

    /// Records a write that is ordered. Lock: under the order lock.
    #[inline]
    pub(crate) fn note(&self, written: Option<Written>, source: &Source<'_>, last_seq: SeqNo) {
        if let Some(conflicts) = self.conflicts.get() {
            // Computed here if tracking began after `written_by`.
            let written = written.unwrap_or_else(|| conflicts.written_by(source));
            conflicts.note(&written, last_seq);
        }
    }

    /// Records a write that may change any key.
    pub(crate) fn note_any_key(&self, last_seq: SeqNo) {
        if let Some(conflicts) = self.conflicts.get() {
            conflicts.note(&Written::of_any_key(), last_seq);
        }
    }
}

impl Line {
    /// Checks that writes are not refused.
    ///
    /// # Errors
    /// Writes are refused.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        self.refused.as_ref().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Returns the error of refused writes.
    pub(crate) fn refused(&self) -> Option<&Error> {
        self.refused.as_ref()
    }

    #[inline]
    pub(crate) fn next_ticket(&self) -> u64 {
        self.next_ticket
    }

    /// Returns the first unused sequence number.
    #[inline]
    pub(crate) fn next_seq(&self) -> SeqNo {
        self.next_seq
    }

    /// Returns the last used sequence number.
    pub(crate) fn last_seq(&self) -> SeqNo {
        SeqNo(self.next_seq.0 - 1)
    }

    /// Returns the last assigned ticket.
    pub(crate) fn last_ticket(&self) -> Option<u64> {
        self.next_ticket.checked_sub(1)
    }

    /// Returns true if writers are held up.
    pub(crate) fn is_held(&self) -> bool {
        self.held
    }

    /// Returns true if writes may be ordered: the log is not locked, and writers are not held up.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.wal_locks == 0 && !self.held
    }

    /// Returns the number of the newest log.
    #[inline]
    pub(crate) fn log(&self) -> FileNumber {
        self.framing.number()
    }

    /// Returns the newest log at the time of the last failure.
    pub(crate) fn failed_log(&self) -> FileNumber {
        self.failed_log
    }

    /// Returns the bytes of records that no leader has taken.
    #[inline]
    pub(crate) fn buffered_bytes(&self) -> usize {
        self.buffer.len() + self.switched.iter().map(|switched| switched.rest.len()).sum::<usize>()
    }

    /// Returns true if writes after a seal need a new log, because the current one has records or
    /// failed.
    pub(crate) fn needs_new_log(&self) -> bool {
        !self.framing.is_empty() || self.refused.is_some()
    }

    /// Returns the bytes of all logs that are still needed.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.framing.bytes() + self.older_logs.iter().map(|(_, bytes)| bytes).sum::<u64>()
    }

    /// Returns the older logs that are still needed, and their sizes in bytes.
    pub(crate) fn older_logs(&self) -> &[(FileNumber, u64)] {
        &self.older_logs
    }

    /// Returns the counters of writes.
    pub(crate) fn counts(&self) -> WriteCounts {
        self.counts
    }

    /// Returns true if entries went to memtables without a record.
    pub(crate) fn has_unlogged(&self) -> bool {
        self.unlogged
    }

    /// Writes the timestamp sizes of these column families into the log, unless it has them. Called
    /// before the first record with such keys.
    #[cold]
    pub(crate) fn name_timestamps(&mut self, sizes: &[TimestampSize]) {
        self.framing.name_timestamps(sizes, &mut self.buffer);
    }

    /// Frames a record of `bytes` bytes, which `put` appends, at the next sequence number, for
    /// `count` sequence numbers.
    ///
    /// # Errors
    /// Compression failed; no record was framed.
    #[inline]
    pub(crate) fn frame(
        &mut self,
        count: u32,
        record: (usize, impl FnOnce(&mut Vec<u8>)),
    ) -> Result<(), NotOrdered> {
        self.framing.append(self.next_seq, count, record, &mut self.buffer).map_err(|e| {
            let text = format!("framing a record of log {}: {e}", self.framing.number());
            NotOrdered::Refused(Error::with_source(ErrorKind::Io, text, e))
        })
    }

    /// Assigns the next ticket, and all sequence numbers up to `last_seq`, to a write of `count`
    /// operations and `bytes` bytes.
    #[inline]
    pub(crate) fn give(&mut self, last_seq: SeqNo, (count, bytes): (u32, usize), is_logged: bool) {
        self.unlogged |= !is_logged && count > 0;
        self.counts.writes += 1;
        self.counts.keys += u64::from(count);
        self.counts.bytes += bytes as u64;
        self.counts.logged += u64::from(is_logged);
        self.counts.groups += u64::from(!is_logged);
        self.give_to(last_seq);
    }

    /// Assigns the next ticket, and all sequence numbers up to `last_seq`, without counting a
    /// write.
    #[inline]
    pub(crate) fn give_to(&mut self, last_seq: SeqNo) {
        self.next_ticket += 1;
        self.next_seq = SeqNo(last_seq.0 + 1);
    }

    /// Takes all framed records, for the leader; `spare` becomes the new buffer.
    #[inline]
    pub(crate) fn take(&mut self, spare: Vec<u8>) -> Taken {
        Taken {
            bytes: self.buffered_bytes(),
            records: std::mem::replace(&mut self.buffer, spare),
            switched: std::mem::take(&mut self.switched),
            end: self.next_ticket,
            log_bytes: self.log_bytes(),
        }
    }

    /// Switches to the log `spare` if a seal needs a log without records of the sealed memtables.
    /// Returns true if it switched; `None`, without effect, if a log is needed and `spare` has
    /// none.
    ///
    /// # Errors
    /// The beginning of the new log could not be framed. Its number is not above the current log's,
    /// although recovery reads logs in the order of their numbers. The state is closed.
    pub(crate) fn switch(&mut self, spare: &mut Option<NewLog>) -> Result<Option<bool>> {
        if self.closed {
            return Err(closed());
        }
        let switches = self.needs_new_log();
        if switches {
            let Some(NewLog { mut framing, file, mut head }) = spare.take() else { return Ok(None) };
            if framing.number() <= self.framing.number() {
                let text = format!("log {} cannot follow log {}", framing.number(), self.framing.number());
                return Err(Error::invalid_argument(text));
            }
            framing.follow(&self.framing, self.next_seq, &mut head).map_err(|e| {
                let text = format!("framing the beginning of log {}: {e}", framing.number());
                Error::with_source(ErrorKind::Io, text, e)
            })?;
            self.older_logs.push((self.framing.number(), self.framing.bytes()));
            let rest = std::mem::replace(&mut self.buffer, head);
            self.framing = framing;
            self.switched.push(Switched { rest, next: file });
        }
        Ok(Some(switches))
    }

    /// Drops the logs below `number`, which are no longer needed.
    pub(crate) fn release_logs(&mut self, number: FileNumber) {
        self.older_logs.retain(|(log, _)| *log >= number);
    }

    /// Holds up writers if nothing prevents it, or if they are held up for a caller that
    /// [waits](Self::wait_to_hold) and this is one. Returns true if it does.
    pub(crate) fn take_hold(&mut self, has_waited: bool) -> bool {
        let granted = has_waited && std::mem::take(&mut self.hold_is_granted);
        let taken = granted || self.is_open();
        self.held |= taken;
        taken
    }

    /// Releases writers.
    pub(crate) fn release_hold(&mut self) {
        self.held = false;
    }

    /// Counts a caller that waits to hold up writers.
    pub(crate) fn wait_to_hold(&mut self) {
        self.holders_waiting += 1;
    }

    /// Undoes one [`wait_to_hold`](Self::wait_to_hold). Returns true if this releases writers.
    pub(crate) fn leave_holders(&mut self) -> bool {
        self.holders_waiting -= 1;
        let releases = self.holders_waiting == 0 && std::mem::take(&mut self.hold_is_granted);
        self.held &= !releases;
        releases
    }

    /// Returns true if a caller that waits to hold up writers can take that.
    pub(crate) fn can_take_hold(&self) -> bool {
        self.hold_is_granted || self.is_open()
    }

    /// Stops ordering until the log is [unlocked](Self::unlock_wal) as often as it was locked.
    pub(crate) fn lock_wal(&mut self) {
        self.wal_locks += 1;
    }

    /// Undoes one [`lock_wal`](Self::lock_wal). With the last one, writers are held up for a caller
    /// that waits for it, because the log may be locked again before that caller runs.
    ///
    /// # Errors
    /// The log is not locked.
    pub(crate) fn unlock_wal(&mut self) -> Result<()> {
        if self.wal_locks == 0 {
            return Err(Error::invalid_argument("the log is not locked"));
        }
        self.wal_locks -= 1;
        if self.is_open() && self.holders_waiting > 0 {
            self.held = true;
            self.hold_is_granted = true;
        }
        Ok(())
    }

    /// Checks that the state is not closed.
    ///
    /// # Errors
    /// The state is [closed](Self::close).
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed { Err(closed()) } else { Ok(()) }
    }

    /// Stops ordering for good. Returns true if writes were refused already.
    pub(crate) fn close(&mut self) -> bool {
        self.closed = true;
        let was_refused = self.refused.is_some();
        self.refused.get_or_insert_with(closed);
        was_refused
    }

    /// Refuses writes because of a failed log, and drops the records that no leader has taken.
    pub(crate) fn fail(&mut self, error: &Error) {
        if self.refused.is_none() {
            self.refused = Some(error.clone());
        }
        self.failed_log = self.framing.number();
        self.buffer.clear();
        self.switched.iter_mut().for_each(|switched| switched.rest.clear());
    }

    /// Orders writes again after a failure, in `first_log` or a later one.
    ///
    /// # Errors
    /// That log or a later one has failed too, no new log has replaced it, or the state is closed.
    pub(crate) fn resume(&mut self, first_log: FileNumber) -> Result<Resumed> {
        if self.closed {
            return Err(closed());
        }
        if self.refused.is_none() {
            return Ok(Resumed::NothingFailed);
        }
        if first_log.min(self.framing.number()) <= self.failed_log {
            return Err(Error::invalid_argument(
                "writes cannot be resumed before the failed log is replaced",
            ));
        }
        // The switches up to `first_log` hold records of failed writes only.
        let is_first = |switched: &Switched| switched.next.number() == first_log;
        let failed = self.switched.iter().position(is_first).map_or(self.switched.len(), |at| at + 1);
        let replaced = self.switched.drain(..failed).map(|switched| switched.next).collect();
        self.refused = None;
        Ok(Resumed::Behind(replaced))
    }

    /// Returns true if a log was switched to since a leader last took records.
    pub(crate) fn has_switched(&self) -> bool {
        !self.switched.is_empty()
    }
}
