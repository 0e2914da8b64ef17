//! Batches since a sequence number, read from the logs, for programs that follow a database.
//!
//! In: a sequence number; the logs, including archived ones. Out: complete batches in write order,
//! up to the last visible one.
//!
//! | a reader finds | it returns |
//! |---|---|
//! | the next batch | the batch |
//! | nothing visible after the last returned batch | `None`; a later call finds batches that came meanwhile |
//! | numbers that no log has any more, or that were never logged | an error that names them, once; then it continues after them |
//! | a batch that `WriteBatch::from_bytes` refuses | its error, once; then it continues after the batch |
//! | damage in a log that has ended | an error with file and offset, once; then it continues with the next log |
//!
//! A log is read as a whole when the previous one is done, or when more of it has become visible.
//! It is not read piece by piece, because a log is about as large as a memtable, and compressed
//! logs and recycled files can only be read from their beginning.
//!
//! Invariant: a log counts as done only once a newer one is seen to have a record, because the
//! writer ends a log before the next one gets its first byte. The older one is read again after
//! that, so no late record is missed.
//!
//! Compat: RocksDB's `GetUpdatesSince`. Its reader ends permanently when a new log begins ("create
//! a new iterator"), this one continues; the first batch of either may have a larger number than
//! requested, if the logs do not reach back to it.

use super::Db;
use super::wal_files::{LogFile, logs_of};
use karst_base::error::{Error, ErrorKind, Result};
use karst_commit::WriteBatch;
use karst_format::ids::FileNumber;
use karst_format::write_batch::BatchReader;
use std::collections::VecDeque;
use std::fmt::Display;

/// A batch read from a log.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WalUpdate {
    /// Sequence number of the first operation; the following operations have consecutive numbers.
    pub sequence: u64,
    /// The operations.
    pub batch: WriteBatch,
}

/// The batches since some sequence number; see [`Db::get_updates_since`]. Each step may read a log,
/// and blocks while it does. `None` is not final: a later call may return a batch.
#[derive(Debug)]
pub struct WalUpdates {
    db: Db,
    /// Sequence number of the next batch to return.
    next: u64,
    /// True if a batch was returned, so that the next one must begin where it ended.
    begun: bool,
    /// The log being read.
    log: Option<FileNumber>,
    /// Batches of that log not yet returned: first and last number, and the record.
    ready: VecDeque<(u64, u64, Vec<u8>)>,
    /// Damage after these batches, until it is returned.
    damage: Option<Error>,
}

/// Unread batches of a log, and the damage that ends it.
#[derive(Default)]
struct Contents {
    ready: VecDeque<(u64, u64, Vec<u8>)>,
    damage: Option<Error>,
}

impl Db {
    /// Returns the batches since `sequence`: the first is the one with this number, or the oldest
    /// newer one in the logs. `WAL_ttl_seconds` and `WAL_size_limit_MB` limit how far back they
    /// reach. With `manual_wal_flush`, records not yet flushed to the log are not found. Batches
    /// without operations are skipped.
    ///
    /// # Errors
    /// `NotFound`: this number was not written yet. `NotSupported`: with `allow_2pc` records do not
    /// match sequence numbers. `Io`: a directory cannot be listed, or a log cannot be read.
    pub fn get_updates_since(&self, sequence: u64) -> Result<WalUpdates> {
        self.check_open()?;
        if self.options().allow_2pc {
            return Err(Error::not_supported("get_updates_since with allow_2pc"));
        }
        let latest = self.latest_sequence_number();
        if sequence > latest {
            let text = format!("sequence number {sequence} was not written yet; the latest is {latest}");
            return Err(Error::new(ErrorKind::NotFound, text));
        }
        let (next, ready) = (sequence.max(1), VecDeque::new());
        let mut updates = WalUpdates { db: self.clone(), next, begun: false, log: None, ready, damage: None };
        updates.find_start()?;
        Ok(updates)
    }
}

impl WalUpdates {
    /// Selects the newest log that begins at or before the wanted number, or else the oldest.
    fn find_start(&mut self) -> Result<()> {
        for log in logs_of(&self.db)?.into_iter().rev() {
            let Some(start) = LogFile::read(&self.db, log)?.and_then(|file| file.start_sequence()) else {
                continue;
            };
            self.log = Some(log);
            if start.0 <= self.next {
                break;
            }
        }
        Ok(())
    }

    /// Returns the visible batches of `log` after the last returned one.
    fn contents(&self, log: FileNumber) -> Result<Contents> {
        // Taken before the file is read, so that everything visible is in the file, if it was
        // logged and has left the process.
        let visible = self.db.latest_sequence_number();
        let Some(file) = LogFile::read(&self.db, log)? else { return Ok(Contents::default()) };
        let damaged = |what: &dyn Display| {
            Some(Error::new(ErrorKind::Corruption, format!("{}: {what}", file.path.display())))
        };
        let mut reader = file.records();
        let mut contents = Contents::default();
        while let Some(record) = reader.next_record() {
            let record = match record {
                Ok(record) => record,
                Err(damage) => {
                    contents.damage = damaged(&damage.corruption);
                    break;
                }
            };
            let batch = match BatchReader::parse(record.bytes) {
                Ok(batch) => batch,
                Err(corruption) => {
                    let place = format!("the record at offset {}: {corruption}", record.offset);
                    contents.damage = damaged(&place);
                    break;
                }
            };
            let (first, count) = (batch.seq().0, u64::from(batch.count()));
            let last = first + count.saturating_sub(1);
            if count > 0 && last > visible {
                break;
            }
            if count > 0 && last >= self.next {
                contents.ready.push_back((first, last, record.bytes.to_vec()));
            }
        }
        Ok(contents)
    }

    /// Loads further batches, or the damage that ends the log.
    fn load(&mut self) -> Result<()> {
        let all = logs_of(&self.db)?;
        let current = match self.log {
            Some(log) => self.contents(log)?,
            None => Contents::default(),
        };
        if !current.ready.is_empty() {
            self.ready = current.ready;
            return Ok(());
        }
        for younger in all.into_iter().filter(|log| self.log.is_none_or(|current| *log > current)) {
            let found = self.contents(younger)?;
            if found.ready.is_empty() {
                continue;
            }
            // Read again, because only now is it certain that nothing is appended to it.
            let ended = match self.log {
                Some(log) => self.contents(log)?,
                None => Contents::default(),
            };
            if !ended.ready.is_empty() {
                self.ready = ended.ready;
                return Ok(());
            }
            self.damage = ended.damage;
            (self.log, self.ready) = (Some(younger), found.ready);
            return Ok(());
        }
        Ok(())
    }

    fn step(&mut self) -> Result<Option<WalUpdate>> {
        self.db.check_open()?;
        if self.ready.is_empty() {
            if self.db.latest_sequence_number() < self.next {
                return Ok(None);
            }
            self.load()?;
        }
        if let Some(damage) = self.damage.take() {
            return Err(damage);
        }
        let Some(&(first, last, _)) = self.ready.front() else { return Ok(None) };
        if self.begun && first > self.next {
            let (from, to) = (self.next, first - 1);
            self.next = first;
            let text = format!("no existing log holds sequence numbers {from} to {to}");
            return Err(Error::new(ErrorKind::NotFound, text));
        }
        let (_, _, bytes) = self.ready.pop_front().expect("looked at above");
        (self.begun, self.next) = (true, last + 1);
        Ok(Some(WalUpdate { sequence: first, batch: WriteBatch::from_bytes(bytes)? }))
    }
}

impl Iterator for WalUpdates {
    type Item = Result<WalUpdate>;

    fn next(&mut self) -> Option<Result<WalUpdate>> {
        self.step().transpose()
    }
}
