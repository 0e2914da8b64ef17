//! The order step: under one short lock a write gets a ticket and sequence numbers, and its record
//! is framed into the buffer of the log.
//!
//! In: writes, one after the other; new logs; requests that nothing is ordered. Out: tickets,
//! numbers, and for the leader all that was framed.
//!
//! Why the record is copied under the lock: the order of records in the log must be that of their
//! sequence numbers, and a copy of some hundred bytes is cheaper than any way to tell others that
//! it is not finished yet.
//!
//! Invariant: a sequence number is never used twice, failed writes' included.
//!
//! Lock: [`Order::lock`] is the order lock. It is held neither while waiting nor during I/O. Under
//! it the table of conflicts is locked.

use crate::bargain::Goals;
use crate::conflicts::{Claim, Conflicts, Written};
use crate::source::Source;
use crate::wal::writer::{LogFile, LogFraming, NewLog};
use karst_base::error::{Error, ErrorKind, Result};
use karst_base::stats::write_counts::WriteCounts;
use karst_base::sync::{Mutex, MutexGuard};
use karst_format::ids::{ColumnFamilyId, FileNumber};
use karst_format::key::SeqNo;
use karst_format::log::TimestampSize;
use std::sync::OnceLock;

/// Bytes of records that may wait for the leader; more writers wait before order.
pub(crate) const BUFFERED_BYTES: usize = 64 << 20;

/// See the module's head.
pub(crate) struct Order {
    line: Mutex<Line>,
    /// Which keys were written lately, once somebody wants to know. Set under the order lock.
    conflicts: OnceLock<Conflicts>,
}

/// What the order lock guards.
#[derive(Debug)]
pub(crate) struct Line {
    next_ticket: u64,
    next_seq: SeqNo,
    framing: LogFraming,
    /// Framed records for the newest log that no leader has taken.
    buffer: Vec<u8>,
    /// Logs that took over since a leader last came: the rest of the one before, and the new file.
    switched: Vec<Switched>,
    /// Logs before the newest one that are still needed, and their sizes in bytes.
    older_logs: Vec<(FileNumber, u64)>,
    /// Whether entries went to memtables without a record.
    unlogged: bool,
    /// How often the log is locked: nothing is ordered meanwhile.
    wal_locks: u64,
    /// Why nothing is ordered.
    refused: Option<Error>,
    /// The newest log when one failed last. It and older ones may lack what was ordered.
    failed_log: FileNumber,
    /// Writers are held up, and nothing is ordered; see `Pipeline::hold`.
    held: bool,
    /// Nothing is ordered ever again, and no log is exchanged. Then `refused` says why, which may
    /// be a log that failed before.
    closed: bool,
    counts: WriteCounts,
}

/// A log that took over.
#[derive(Debug)]
pub(crate) struct Switched {
    /// What was framed for the log before it.
    pub(crate) rest: Vec<u8>,
    pub(crate) next: LogFile,
}

/// All that was framed and taken by no leader before.
pub(crate) struct Taken {
    pub(crate) switched: Vec<Switched>,
    /// For the newest log.
    pub(crate) records: Vec<u8>,
    /// Of both.
    pub(crate) bytes: usize,
    /// The ticket behind the last.
    pub(crate) end: u64,
    /// Bytes of all logs that are still needed, once this is written.
    pub(crate) log_bytes: u64,
}

/// What a write got from the order step.
#[derive(Clone, Copy)]
pub(crate) struct Ordered {
    pub(crate) ticket: u64,
    pub(crate) first_seq: SeqNo,
    /// The last sequence number of the write, or of those before it if it takes none.
    pub(crate) last_seq: SeqNo,
    /// Whether it has a record that must leave the process before it is applied.
    pub(crate) persists: bool,
    /// What writes ordered before it wait for.
    pub(crate) ahead: Goals,
}

/// Why a write was not ordered.
pub(crate) enum NotOrdered {
    /// Too many are in flight, the log is locked, or a memtable that it goes to is overfull; wait
    /// for room.
    Full,
    /// Writers have been stopped since it came in; back to the door.
    Stopped,
    Refused(Error),
}

/// What is to be resumed: whether nothing is, as nothing failed, or behind which logs.
pub(crate) enum Resumed {
    NothingFailed,
    /// These logs took the place of those that failed, and have nothing of theirs.
    Behind(Vec<LogFile>),
}

pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the database is closed")
}

impl Order {
    /// Goes on behind `last_seq`, in a log whose beginning is `head`.
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
            refused: None,
            failed_log: FileNumber(0),
            held: false,
            closed: false,
            counts: WriteCounts::default(),
        };
        Self { line: Mutex::new(line), conflicts: OnceLock::new() }
    }

    /// The order lock.
    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, Line> {
        self.line.lock()
    }

    /// Takes note from now on of the keys of all writes, in so many buckets.
    pub(crate) fn track_conflicts(&self, buckets: u32) {
        let line = self.lock();
        self.conflicts.get_or_init(|| Conflicts::new(buckets, SeqNo(line.next_seq.0 - 1)));
    }

    /// A claim that none of `keys` is written behind `seen`; `None` is any key of its family.
    ///
    /// # Errors
    /// Nobody takes note of what is written.
    pub(crate) fn claim<'a>(
        &self,
        keys: impl Iterator<Item = (ColumnFamilyId, Option<&'a [u8]>)>,
        seen: SeqNo,
    ) -> Result<Claim> {
        let conflicts = self.conflicts.get();
        let missing = || Error::invalid_argument("a write that depends on keys needs `track_conflicts`");
        Ok(conflicts.ok_or_else(missing)?.claim(keys, seen))
    }

    /// What is to be noted of a write, if anybody wants to know. Needs no lock.
    #[inline]
    pub(crate) fn written_by(&self, source: &Source<'_>) -> Option<Written> {
        self.conflicts.get().map(|conflicts| conflicts.written_by(source))
    }

    /// Whether a claim holds. Lock: under the order lock.
    pub(crate) fn check_claim(&self, claim: &Claim) -> Result<(), NotOrdered> {
        match self.conflicts.get().is_some_and(|conflicts| conflicts.holds(claim)) {
            true => Ok(()),
            false => {
                let text = "a key that the write depends on may have been written";
                Err(NotOrdered::Refused(Error::new(ErrorKind::Busy, text)))
            }
        }
    }

    /// Takes note of a write that is ordered. Lock: under the order lock.
    #[inline]
    pub(crate) fn note(&self, written: Option<Written>, source: &Source<'_>, last_seq: SeqNo) {
        if let Some(conflicts) = self.conflicts.get() {
            // Why computed again where it is missing: somebody has begun to take note since.
            let written = written.unwrap_or_else(|| conflicts.written_by(source));
            conflicts.note(&written, last_seq);
        }
    }

    /// The same of what may have any key.
    pub(crate) fn note_any_key(&self, last_seq: SeqNo) {
        if let Some(conflicts) = self.conflicts.get() {
            conflicts.note(&Written::of_any_key(), last_seq);
        }
    }
}

impl Line {
    /// # Errors
    /// Nothing is ordered any more.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        self.refused.as_ref().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Why nothing is ordered.
    pub(crate) fn refused(&self) -> Option<&Error> {
        self.refused.as_ref()
    }

    #[inline]
    pub(crate) fn next_ticket(&self) -> u64 {
        self.next_ticket
    }

    /// The first sequence number that nobody has taken.
    #[inline]
    pub(crate) fn next_seq(&self) -> SeqNo {
        self.next_seq
    }

    /// The last sequence number that somebody has taken.
    pub(crate) fn last_seq(&self) -> SeqNo {
        SeqNo(self.next_seq.0 - 1)
    }

    /// The last ticket that was given out.
    pub(crate) fn last_ticket(&self) -> Option<u64> {
        self.next_ticket.checked_sub(1)
    }

    /// Whether writers are held up.
    pub(crate) fn is_held(&self) -> bool {
        self.held
    }

    /// Whether writes may be ordered: the log is not locked, and nothing is being ingested.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.wal_locks == 0 && !self.held
    }

    /// The number of the newest log.
    #[inline]
    pub(crate) fn log(&self) -> FileNumber {
        self.framing.number()
    }

    /// The newest log when one failed last.
    pub(crate) fn failed_log(&self) -> FileNumber {
        self.failed_log
    }

    /// Bytes of records that no leader has taken.
    #[inline]
    pub(crate) fn buffered_bytes(&self) -> usize {
        self.buffer.len() + self.switched.iter().map(|switched| switched.rest.len()).sum::<usize>()
    }

    /// Whether what is written after a seal must not go to the present log: it has records, or it
    /// failed.
    pub(crate) fn needs_new_log(&self) -> bool {
        !self.framing.is_empty() || self.refused.is_some()
    }

    /// Bytes of all logs that are still needed.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.framing.bytes() + self.older_logs.iter().map(|(_, bytes)| bytes).sum::<u64>()
    }

    /// Logs before the newest one that are still needed, and their sizes in bytes.
    pub(crate) fn older_logs(&self) -> &[(FileNumber, u64)] {
        &self.older_logs
    }

    /// What writers have done so far.
    pub(crate) fn counts(&self) -> WriteCounts {
        self.counts
    }

    /// Whether entries went to memtables without a record.
    pub(crate) fn has_unlogged(&self) -> bool {
        self.unlogged
    }

    /// Has the log say how many bytes of timestamps keys of these column families end in, unless it
    /// does. Before the first record with such keys.
    #[cold]
    pub(crate) fn name_timestamps(&mut self, sizes: &[TimestampSize]) {
        self.framing.name_timestamps(sizes, &mut self.buffer);
    }

    /// Frames a record of `bytes` bytes, which `put` appends, with the next sequence number. It
    /// takes `count` of them.
    ///
    /// # Errors
    /// Compression failed; nothing was framed.
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

    /// Gives the next ticket, and all sequence numbers up to `last_seq`, to a write of so many
    /// operations and bytes.
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

    /// Gives the next ticket, and all sequence numbers up to `last_seq`, to who is no write.
    #[inline]
    pub(crate) fn give_to(&mut self, last_seq: SeqNo) {
        self.next_ticket += 1;
        self.next_seq = SeqNo(last_seq.0 + 1);
    }

    /// All that was framed, for the leader. What comes next goes into `spare`.
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

    /// Has `spare` take the place of the newest log, if a seal needs one that has nothing of what
    /// is sealed. `None`, and nothing was done, if that needs a spare log and there is none; else
    /// whether there is a new log.
    ///
    /// # Errors
    /// The beginning of the new log could not be framed; its number is not above that of the
    /// present one, and recovery reads logs in the order of their numbers.
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

    /// Logs below `number` are needed no more.
    pub(crate) fn release_logs(&mut self, number: FileNumber) {
        self.older_logs.retain(|(log, _)| *log >= number);
    }

    /// Holds writers up, or lets them go.
    pub(crate) fn hold(&mut self, held: bool) {
        self.held = held;
    }

    /// Orders nothing until the log is [unlocked](Self::unlock_wal) as often.
    pub(crate) fn lock_wal(&mut self) {
        self.wal_locks += 1;
    }

    /// # Errors
    /// The log is not locked.
    pub(crate) fn unlock_wal(&mut self) -> Result<()> {
        if self.wal_locks == 0 {
            return Err(Error::invalid_argument("the log is not locked"));
        }
        self.wal_locks -= 1;
        Ok(())
    }

    /// # Errors
    /// It is [closed](Self::close).
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed { Err(closed()) } else { Ok(()) }
    }

    /// Orders nothing ever again. Whether that was so already.
    pub(crate) fn close(&mut self) -> bool {
        self.closed = true;
        let was_refused = self.refused.is_some();
        self.refused.get_or_insert_with(closed);
        was_refused
    }

    /// Orders nothing from now on, because of a failed log, and gives up what no leader has taken.
    pub(crate) fn fail(&mut self, error: &Error) {
        if self.refused.is_none() {
            self.refused = Some(error.clone());
        }
        self.failed_log = self.framing.number();
        self.buffer.clear();
        self.switched.iter_mut().for_each(|switched| switched.rest.clear());
    }

    /// Orders writes again after a failure, in `first_log` or one behind it.
    ///
    /// # Errors
    /// That log, or one behind it, has failed as well, or no new log took its place; it is closed.
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
        // Why: bytes framed for logs before `first_log` are of writes that failed.
        let is_first = |switched: &Switched| switched.next.number() == first_log;
        let failed = self.switched.iter().position(is_first).map_or(self.switched.len(), |at| at + 1);
        let replaced = self.switched.drain(..failed).map(|switched| switched.next).collect();
        self.refused = None;
        Ok(Resumed::Behind(replaced))
    }

    /// Whether logs took over since a leader last came.
    pub(crate) fn has_switched(&self) -> bool {
        !self.switched.is_empty()
    }
}
