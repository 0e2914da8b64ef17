//! The logs of a database, archived ones included, for those who copy or follow it.

use super::Db;
use crate::error::Result;
use crate::wal::archive::{archive_of, archived};
use karst_format::file_name::FileName;
use karst_format::ids::FileNumber;
use karst_format::log::{LogReader, RecoveryMode};
use karst_format::write_batch::BatchReader;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A log with at least one record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WalFile {
    /// Its name below the directory of logs, as RocksDB has it: `/archive/000012.log` or `/000013.log`.
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
    // Why first: a log that is archived meanwhile is in one of the two.
    let needed = db.0.opened.logs();
    let mut logs: BTreeSet<_> = needed.into_iter().collect();
    logs.extend(archived(db.env(), &directory_of(db))?);
    Ok(logs)
}

/// The file of a log and its bytes, wherever it is; `None` if it is gone.
pub(super) fn log_bytes(db: &Db, number: FileNumber) -> Result<Option<(PathBuf, Vec<u8>)>> {
    let (directory, name) = (directory_of(db), FileName::Wal(number).to_string());
    for path in [directory.join(&name), archive_of(&directory).join(&name)] {
        match db.env().fs().read_file(&path) {
            Ok(bytes) => return Ok(Some((path, bytes))),
            Err(e) if e.is_not_found() => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(None)
}

impl Db {
    /// The logs that are there, the oldest first: archived ones (`WAL_ttl_seconds`, `WAL_size_limit_MB`) and those that hold what is not in tables. Those without a
    /// record are passed over. Blocks: it reads all of them.
    ///
    /// # Errors
    /// A directory cannot be listed or a log not be read.
    pub fn get_sorted_wal_files(&self) -> Result<Vec<WalFile>> {
        let directory = directory_of(self);
        // Why first: a log that is archived meanwhile is still looked for, and found in the archive.
        let needed = self.0.opened.logs();
        let mut files = Vec::new();
        for number in archived(self.env(), &directory)? {
            files.extend(self.wal_file(&archive_of(&directory), "/archive/", number)?);
        }
        for number in needed {
            if files.iter().any(|file: &WalFile| file.number == number.0) {
                continue;
            }
            let found = match self.wal_file(&directory, "/", number)? {
                Some(found) => Some(found),
                None => self.wal_file(&archive_of(&directory), "/archive/", number)?,
            };
            files.extend(found);
        }
        files.sort_by_key(|file| file.number);
        Ok(files)
    }

    /// What is known of a log; `None` if it is gone or has no record.
    fn wal_file(&self, directory: &Path, prefix: &str, number: FileNumber) -> Result<Option<WalFile>> {
        let file = FileName::Wal(number).to_string();
        let bytes = match self.env().fs().read_file(&directory.join(&file)) {
            Ok(bytes) => bytes,
            Err(e) if e.is_not_found() => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        let mut reader = LogReader::new(&bytes, number, RecoveryMode::PointInTimeRecovery);
        let first = reader.next_record().and_then(std::result::Result::ok);
        let batch = first.and_then(|record| BatchReader::parse(record.bytes).ok());
        Ok(batch.map(|batch| WalFile {
            name: format!("{prefix}{file}"),
            number: number.0,
            archived: prefix != "/",
            size_bytes: bytes.len() as u64,
            start_sequence: batch.seq().0,
        }))
    }
}
