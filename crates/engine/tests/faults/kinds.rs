//! Kinds of files, the faults that each operation can have, and undetectable damage.

use karst_format::file_name::FileName;
use karst_io::{Fault, Operation};
use std::path::Path;
use std::time::Duration;

/// Kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Log,
    Table,
    Blob,
    Manifest,
    Current,
    Options,
    Identity,
    Lock,
    InfoLog,
    /// A temporary file that will become CURRENT, IDENTITY or OPTIONS.
    Temporary,
    Directory,
    /// A table outside of the database, to be ingested.
    External,
}

impl Kind {
    pub(crate) fn of(path: &Path) -> Kind {
        let name = path.file_name().map(|name| name.to_string_lossy());
        match name.and_then(|name| FileName::parse(&name)) {
            Some(FileName::Wal(_)) => Kind::Log,
            Some(FileName::Table(_)) => Kind::Table,
            Some(FileName::Blob(_)) => Kind::Blob,
            Some(FileName::Manifest(_)) => Kind::Manifest,
            Some(FileName::Current) => Kind::Current,
            Some(FileName::Options(_)) => Kind::Options,
            Some(FileName::Identity) => Kind::Identity,
            Some(FileName::Lock) => Kind::Lock,
            Some(FileName::InfoLog | FileName::OldInfoLog(_)) => Kind::InfoLog,
            Some(_) => Kind::Temporary,
            None if path.extension().is_some_and(|extension| extension == "sst") => Kind::External,
            None => Kind::Directory,
        }
    }
}

/// Returns the faults that an operation can have.
pub(crate) fn faults(operation: Operation) -> &'static [Fault] {
    const EIO: Fault = Fault::Fail(libc::EIO);
    const NO_SPACE: Fault = Fault::Fail(libc::ENOSPC);
    const FLIP: Fault = Fault::Flip(0x5EED_0BAD);
    const LATE: Fault = Fault::Delay(Duration::from_secs(10));
    use Operation::*;
    match operation {
        Read => &[EIO, Fault::Short, LATE, FLIP, Fault::Misdirected, Fault::Stale],
        ReadAll => &[EIO, FLIP, Fault::Misdirected, Fault::Stale],
        Write => &[EIO, NO_SPACE, FLIP, Fault::Misdirected, Fault::Stale],
        Create | CreateDirectory | Rename | Truncate => &[EIO, NO_SPACE],
        Open | OpenToWrite | Sync | Link | Remove | List | Metadata | SyncDirectory | Lock => &[EIO],
    }
}

/// Visibility of a fault: `Told` if the faulty operation returns an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nature {
    Told,
    Silent,
}

pub(crate) fn nature(fault: Fault) -> Nature {
    match fault {
        Fault::Fail(_) | Fault::Short | Fault::Delay(_) => Nature::Told,
        Fault::Flip(_) | Fault::Misdirected | Fault::Stale => Nature::Silent,
    }
}

/// Returns the reason why this damage may lose batches undetected, or `None` if it may not. The
/// remaining batches must still be a prefix.
pub(crate) fn unseen(kind: Kind, fault: Fault) -> Option<&'static str> {
    match (kind, fault) {
        (Kind::Log, Fault::Stale) => Some(
            "a log ends where its records do, and where zeros are it looks as if the machine had not come to write",
        ),
        _ => None,
    }
}
