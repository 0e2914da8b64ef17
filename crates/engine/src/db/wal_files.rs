//! The logs of a database, including archived ones, for programs that copy or follow it.

use super::Db;
use karst_base::error::{Error, ErrorKind, Result};
use karst_commit::wal::archive::{Archive, archive_of, archived, logs_in};
use karst_format::file_name::FileName;
use karst_format::ids::FileNumber;
use karst_format::key::SeqNo;
use karst_format::log::{LogReader, RecoveryMode};
use karst_format::write_batch::BatchReader;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// A log with at least one record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct WalFile {
    /// Name below the directory of logs, as in RocksDB: `/archive/000012.log` or `/000013.log`.
    pub name: String,
    /// Log number. A larger number is a newer log.
    pub number: u64,
    /// True if the log is obsolete and archived.
    pub archived: bool,
    /// Size of the file in bytes.
    pub size_bytes: u64,
    /// Sequence number of the first record.
    pub start_sequence: u64,
}

/// Returns the directory of the logs.
fn directory_of(db: &Db) -> PathBuf {
    match db.options().wal_dir.as_str() {
        "" => db.path().clone(),
        elsewhere => PathBuf::from(elsewhere),
    }
}

/// Returns the numbers of the existing logs, including archived ones, ascending.
pub(super) fn logs_of(db: &Db) -> Result<BTreeSet<FileNumber>> {
    let directory = directory_of(db);
    let mut logs: BTreeSet<_> = db.0.as_subject().logs().into_iter().collect();
    // The directory is listed too, because a log is archived some time after it becomes obsolete;
    // and before the archive, so that a log archived meanwhile is in one of the two lists.
    if Archive::of(&db.options(), &directory).is_some() {
        logs.extend(logs_in(db.env(), &directory)?);
    }
    logs.extend(archived(db.env(), &directory)?);
    Ok(logs)
}

/// Content of a log file at the moment of the read.
pub(super) struct LogFile {
    pub(super) path: PathBuf,
    number: FileNumber,
    archived: bool,
    bytes: Vec<u8>,
}

impl LogFile {
    /// Reads the log from its directory or the archive; `None` if it is gone.
    pub(super) fn read(db: &Db, number: FileNumber) -> Result<Option<LogFile>> {
        let (directory, name) = (directory_of(db), FileName::Wal(number).to_string());
        // The log's directory first, because the log may be archived meanwhile.
        for (path, archived) in [(directory.join(&name), false), (archive_of(&directory).join(&name), true)] {
            match db.env().fs().read_file(&path) {
                Ok(bytes) => return Ok(Some(LogFile { path, number, archived, bytes })),
                Err(e) if e.is_not_found() => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(None)
    }

    /// Returns a reader of all records.
    pub(super) fn records(&self) -> LogReader<'_> {
        LogReader::new(&self.bytes, self.number, RecoveryMode::PointInTimeRecovery)
    }

    /// Returns the sequence number of the first record, or None if there is no record.
    pub(super) fn start_sequence(&self) -> Option<SeqNo> {
        let mut records = self.records();
        let record = records.next_record()?.ok()?;
        BatchReader::parse(record.bytes).ok().map(|batch| batch.seq())
    }
}

impl Db {
    /// Returns the existing logs, oldest first: archived ones (`WAL_ttl_seconds`,
    /// `WAL_size_limit_MB`) and those that hold entries not yet in tables. Logs without a record
    /// are skipped. Blocks: it reads all of them.
    ///
    /// # Errors
    /// A directory cannot be listed or a log cannot be read.
    pub fn get_sorted_wal_files(&self) -> Result<Vec<WalFile>> {
        self.check_open()?;
        let mut files = Vec::new();
        for number in logs_of(self)? {
            let Some(file) = LogFile::read(self, number)? else { continue };
            let Some(start) = file.start_sequence() else { continue };
            let folder = if file.archived { "/archive/" } else { "/" };
            files.push(WalFile {
                name: format!("{folder}{}", FileName::Wal(number)),
                number: number.0,
                archived: file.archived,
                size_bytes: file.bytes.len() as u64,
                start_sequence: start.0,
            });
        }
        Ok(files)
    }

    /// Returns the log that is being written, without reading it: its `start_sequence` is 0.
    /// Blocks.
    ///
    /// # Errors
    /// `NotFound`: there is no log yet. `Io`: its size cannot be read.
    pub fn get_current_wal_file(&self) -> Result<WalFile> {
        self.check_open()?;
        let none = || Error::new(ErrorKind::NotFound, "the database has no log");
        let number = self.0.as_subject().logs().last().copied().ok_or_else(none)?;
        let name = FileName::Wal(number).to_string();
        let found = self.env().fs().metadata(&directory_of(self).join(&name));
        let size_bytes = found.map_err(|e| if e.is_not_found() { none() } else { e.into() })?.len;
        Ok(WalFile {
            name: format!("/{name}"),
            number: number.0,
            archived: false,
            size_bytes,
            start_sequence: 0,
        })
    }
}
