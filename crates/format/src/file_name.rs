//! The names of the files in a database directory.
//!
//! | name | file |
//! |---|---|
//! | `000123.log` | write-ahead log; `archive/000123.log` once archived |
//! | `000123.sst` | table; `000123.ldb` in databases begun by LevelDB |
//! | `000123.blob` | blob file |
//! | `MANIFEST-000123` | log of version edits |
//! | `CURRENT` | names the current MANIFEST |
//! | `OPTIONS-000123` | options the database was opened with |
//! | `IDENTITY`, `LOCK` | unique id; lock |
//! | `LOG`, `LOG.old`, `LOG.old.1700000000000000` | info log and its predecessors, by time in microseconds |
//! | `METADB-1`, `COMPACTION_PROGRESS-1700000000` | internal files of RocksDB |
//! | `000123.dbtmp`, `OPTIONS-000123.dbtmp`, `COMPACTION_PROGRESS-1.dbtmp` | left over if a writer dies before its rename |
//!
//! Numbers are decimal, printed with six digits at least, read with any number of them. Specified
//! by RocksDB's file/filename.cc.
//!
//! In: a name without its directory. Out: a [`FileName`], whose `Display` prints the name; other
//! names are `None`.
//! Invariant: `parse` of a printed name returns the same `FileName`. Used by all code that lists,
//! opens or creates files of a database.
//!
//! Compat: RocksDB also accepts `OPTIONS-000005` with any suffix as an options file; here such a
//! name is foreign, so that a backup copy beside the file is never opened in its place.

use crate::ids::FileNumber;
use std::fmt;

/// Kind and number of a file in a database directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileName {
    /// Write-ahead log.
    Wal(FileNumber),
    /// Write-ahead log moved to `archive/`.
    ArchivedWal(FileNumber),
    /// Table.
    Table(FileNumber),
    /// Table under LevelDB's extension; RocksDB reads it when the `.sst` is missing.
    LevelDbTable(FileNumber),
    /// Blob file.
    Blob(FileNumber),
    /// Log of version edits.
    Manifest(FileNumber),
    /// The file that names the current MANIFEST.
    Current,
    /// Options file.
    Options(FileNumber),
    /// File with the database's unique id.
    Identity,
    /// Lock file.
    Lock,
    /// The info log being written.
    InfoLog,
    /// An older info log, with the time in its name, in microseconds, if any.
    OldInfoLog(Option<u64>),
    /// Meta database of old RocksDB releases.
    MetaDatabase(u64),
    /// Progress of a resumable compaction, by time.
    CompactionProgress(u64),
    /// Temporary name of a file before its rename.
    Temp(FileNumber),
    /// Temporary name of an options file before its rename.
    TempOptions(FileNumber),
    /// Temporary name of a compaction progress file before its rename.
    TempCompactionProgress(u64),
}

impl FileName {
    /// Parses a name, with or without a `/` in front; `None` for files that are not the database's.
    #[must_use]
    pub fn parse(name: &str) -> Option<FileName> {
        let name = name.strip_prefix('/').unwrap_or(name);
        match name {
            "CURRENT" => return Some(FileName::Current),
            "IDENTITY" => return Some(FileName::Identity),
            "LOCK" => return Some(FileName::Lock),
            "LOG" => return Some(FileName::InfoLog),
            "LOG.old" => return Some(FileName::OldInfoLog(None)),
            _ => {}
        }
        if let Some(time) = name.strip_prefix("LOG.old.") {
            return Some(FileName::OldInfoLog(Some(decimal(time)?)));
        }
        if let Some(number) = name.strip_prefix("MANIFEST-") {
            return decimal(number).map(|n| FileName::Manifest(FileNumber(n)));
        }
        if let Some(rest) = name.strip_prefix("OPTIONS-") {
            return match rest.strip_suffix(".dbtmp") {
                Some(number) => decimal(number).map(|n| FileName::TempOptions(FileNumber(n))),
                None => decimal(rest).map(|n| FileName::Options(FileNumber(n))),
            };
        }
        if let Some(rest) = name.strip_prefix("COMPACTION_PROGRESS-") {
            return match rest.strip_suffix(".dbtmp") {
                Some(time) => decimal(time).map(FileName::TempCompactionProgress),
                None => decimal(rest).map(FileName::CompactionProgress),
            };
        }
        if let Some(number) = name.strip_prefix("METADB-") {
            return decimal(number).map(FileName::MetaDatabase);
        }
        if let Some(rest) = name.strip_prefix("archive/") {
            return decimal(rest.strip_suffix(".log")?).map(|n| FileName::ArchivedWal(FileNumber(n)));
        }
        let (number, extension) = name.split_once('.')?;
        let number = FileNumber(decimal(number)?);
        match extension {
            "log" => Some(FileName::Wal(number)),
            "sst" => Some(FileName::Table(number)),
            "ldb" => Some(FileName::LevelDbTable(number)),
            "blob" => Some(FileName::Blob(number)),
            "dbtmp" => Some(FileName::Temp(number)),
            _ => None,
        }
    }

    /// Returns the file number in the name; `None` if there is no number or it is a time.
    #[must_use]
    pub fn number(&self) -> Option<FileNumber> {
        use FileName::*;
        match *self {
            Wal(n) | ArchivedWal(n) | Table(n) | LevelDbTable(n) | Blob(n) | Manifest(n) | Options(n)
            | Temp(n) | TempOptions(n) => Some(n),
            MetaDatabase(_)
            | CompactionProgress(_)
            | TempCompactionProgress(_)
            | OldInfoLog(_)
            | Current
            | Identity
            | Lock
            | InfoLog => None,
        }
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use FileName::*;
        match *self {
            Wal(n) => write!(f, "{:06}.log", n.0),
            ArchivedWal(n) => write!(f, "archive/{:06}.log", n.0),
            Table(n) => write!(f, "{:06}.sst", n.0),
            LevelDbTable(n) => write!(f, "{:06}.ldb", n.0),
            Blob(n) => write!(f, "{:06}.blob", n.0),
            Manifest(n) => write!(f, "MANIFEST-{:06}", n.0),
            Current => f.write_str("CURRENT"),
            Options(n) => write!(f, "OPTIONS-{:06}", n.0),
            Identity => f.write_str("IDENTITY"),
            Lock => f.write_str("LOCK"),
            InfoLog => f.write_str("LOG"),
            OldInfoLog(None) => f.write_str("LOG.old"),
            OldInfoLog(Some(time)) => write!(f, "LOG.old.{time}"),
            MetaDatabase(n) => write!(f, "METADB-{n}"),
            CompactionProgress(time) => write!(f, "COMPACTION_PROGRESS-{time}"),
            Temp(n) => write!(f, "{:06}.dbtmp", n.0),
            TempOptions(n) => write!(f, "OPTIONS-{:06}.dbtmp", n.0),
            TempCompactionProgress(time) => write!(f, "COMPACTION_PROGRESS-{time}.dbtmp"),
        }
    }
}

/// Returns the MANIFEST that the contents of `CURRENT` name; `None` unless they are one MANIFEST
/// name and a newline.
#[must_use]
pub fn parse_current(contents: &[u8]) -> Option<FileName> {
    let name = std::str::from_utf8(contents).ok()?.strip_suffix('\n')?;
    FileName::parse(name).filter(|f| matches!(f, FileName::Manifest(FileNumber(_))))
}

/// Suffix of files that are waiting to be deleted.
pub const TRASH_EXTENSION: &str = ".trash";

/// Returns true if this is the name of a table, blob file or log that waits to be deleted: its own
/// name, an optional number, and [`TRASH_EXTENSION`].
#[must_use]
pub fn is_trash(name: &str) -> bool {
    let Some(name) = name.strip_suffix(TRASH_EXTENSION) else { return false };
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit());
    matches!(FileName::parse(name), Some(FileName::Table(_) | FileName::Blob(_) | FileName::Wal(_)))
}

fn decimal(digits: &str) -> Option<u64> {
    // Checked because `u64::from_str` also accepts a sign.
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_of_a_real_directory() {
        for (name, file) in [
            ("000004.log", FileName::Wal(FileNumber(4))),
            ("archive/000004.log", FileName::ArchivedWal(FileNumber(4))),
            ("1234567.sst", FileName::Table(FileNumber(1_234_567))),
            ("000009.ldb", FileName::LevelDbTable(FileNumber(9))),
            ("000010.blob", FileName::Blob(FileNumber(10))),
            ("MANIFEST-000005", FileName::Manifest(FileNumber(5))),
            ("OPTIONS-000007", FileName::Options(FileNumber(7))),
            ("OPTIONS-000007.dbtmp", FileName::TempOptions(FileNumber(7))),
            ("000011.dbtmp", FileName::Temp(FileNumber(11))),
            ("CURRENT", FileName::Current),
            ("IDENTITY", FileName::Identity),
            ("LOCK", FileName::Lock),
            ("LOG", FileName::InfoLog),
            ("LOG.old", FileName::OldInfoLog(None)),
            ("LOG.old.1700000000000001", FileName::OldInfoLog(Some(1_700_000_000_000_001))),
            ("METADB-2", FileName::MetaDatabase(2)),
            ("COMPACTION_PROGRESS-3", FileName::CompactionProgress(3)),
            ("COMPACTION_PROGRESS-3.dbtmp", FileName::TempCompactionProgress(3)),
        ] {
            assert_eq!(FileName::parse(name), Some(file), "{name}");
            assert_eq!(file.to_string(), name);
        }
        assert_eq!(FileName::parse("/000004.log"), Some(FileName::Wal(FileNumber(4))));
    }

    #[test]
    fn trash_is_no_file_of_the_database_and_is_known() {
        for name in ["000004.sst.trash", "000004.sst12.trash", "000010.blob.trash", "000003.log.trash"] {
            assert!(is_trash(name), "{name}");
            assert_eq!(FileName::parse(name), None, "{name}");
        }
        for name in
            ["000004.sst", ".trash", "notes.trash", "CURRENT.trash", "000004.trash", "000004.sst.trash.old"]
        {
            assert!(!is_trash(name), "{name}");
        }
    }

    #[test]
    fn foreign_names() {
        for name in [
            "",
            "foo",
            "foo-000100.log",
            ".log",
            "manifest",
            "CURREN",
            "CURRENTX",
            "MANIFES",
            "MANIFEST",
            "MANIFEST-",
            "MANIFEST-+3",
            "XMANIFEST-3",
            "MANIFEST-3x",
            "OPTIONS-000005.bak",
            "OPTIONS-",
            "archive",
            "archive/",
            "archive/000004.sst",
            "LOC",
            "LOCKx",
            "LOG.older",
            "184467440737095516150.log",
            "100",
            "100.",
            "100.lop",
            "+1.sst",
            "1.sst.bak",
        ] {
            assert_eq!(FileName::parse(name), None, "{name}");
        }
    }

    #[test]
    fn current() {
        assert_eq!(parse_current(b"MANIFEST-000005\n"), Some(FileName::Manifest(FileNumber(5))));
        for bad in [&b"MANIFEST-000005"[..], b"", b"\n", b"000005.sst\n", b"MANIFEST-000005\n\n", b"\xff\n"] {
            assert_eq!(parse_current(bad), None);
        }
    }

    proptest! {
        #[test]
        fn printing_what_parses_parses_to_the_same(name in "(MANIFEST-|OPTIONS-|archive/|LOG.old.)?[0-9]{1,21}(\\.(log|sst|blob|dbtmp))?") {
            if let Some(file) = FileName::parse(&name) {
                prop_assert_eq!(FileName::parse(&file.to_string()), Some(file));
            }
        }
    }
}
