//! The logs of a database, archived ones included, for those who copy or follow it.

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
    /// Its name below the directory of logs, as RocksDB has it: `/archive/000012.log` or
    /// `/000013.log`.
    pub name: String,
    /// Its number. A log with a larger one is younger.
    pub number: u64,
    /// Nobody needs it any more.
    pub archived: bool,
    /// Bytes of the file.
    pub size_bytes: u64,
    /// The sequence number that its first record begins with.
    pub start_sequence: u64,
}

/// Where the logs are.
fn directory_of(db: &Db) -> PathBuf {
    match db.options().wal_dir.as_str() {
        "" => db.path().clone(),
        elsewhere => PathBuf::from(elsewhere),
    }
}

/// Numbers of the logs that are there, archived ones included, ascending.
pub(super) fn logs_of(db: &Db) -> Result<BTreeSet<FileNumber>> {
    let directory = directory_of(db);
    let mut logs: BTreeSet<_> = db.0.as_subject().logs().into_iter().collect();
    // Why: a log is archived some time after nobody needs it any more. Why in this order: so one
    // that is archived meanwhile is in one of the two.
    if Archive::of(&db.options(), &directory).is_some() {
        logs.extend(logs_in(db.env(), &directory)?);
    }
    logs.extend(archived(db.env(), &directory)?);
    Ok(logs)
}

/// A log's file as it is at the moment.
pub(super) struct LogFile {
    pub(super) path: PathBuf,
    number: FileNumber,
    archived: bool,
    bytes: Vec<u8>,
}

impl LogFile {
    /// Reads it, wherever it is; `None` if it is gone.
    pub(super) fn read(db: &Db, number: FileNumber) -> Result<Option<LogFile>> {
        let (directory, name) = (directory_of(db), FileName::Wal(number).to_string());
        // Why in this order: it may be archived meanwhile.
        for (path, archived) in [(directory.join(&name), false), (archive_of(&directory).join(&name), true)] {
            match db.env().fs().read_file(&path) {
                Ok(bytes) => return Ok(Some(LogFile { path, number, archived, bytes })),
                Err(e) if e.is_not_found() => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(None)
    }

    /// Its records from the first.
    pub(super) fn records(&self) -> LogReader<'_> {
        LogReader::new(&self.bytes, self.number, RecoveryMode::PointInTimeRecovery)
    }

    /// The sequence number that its first record begins with, if it has a record.
    pub(super) fn start_sequence(&self) -> Option<SeqNo> {
        let mut records = self.records();
        let record = records.next_record()?.ok()?;
        BatchReader::parse(record.bytes).ok().map(|batch| batch.seq())
    }
}

impl Db {
    /// The logs that are there, the oldest first: archived ones (`WAL_ttl_seconds`,
    /// `WAL_size_limit_MB`) and those that hold what is not in tables. Those without a record are
    /// passed over. Blocks: it reads all of them.
    ///
    /// # Errors
    /// A directory cannot be listed or a log not be read.
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

    /// The log that is written at the moment, without looking into it: its start is told as 0.
    /// Blocks.
    ///
    /// # Errors
    /// `NotFound`: there is no log yet. `Io`: its size cannot be read.
    pub fn get_current_wal_file(&self) -> Result<WalFile> {
        self.check_open()?;
        let none = || Error::new(ErrorKind::NotFound, "there is no log");
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
