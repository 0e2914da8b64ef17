//! The error of this crate: the operation that failed, its path, its offset, and the cause.
//!
//! Every fallible public function returns [`Error`]. Inside the channel one outcome may go to
//! several waiters; it travels there as a [`Failure`], which can be cloned, and becomes an
//! [`Error`] at the future that asked.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A failed operation on a file, directory or thread.
#[derive(Debug)]
pub struct Error {
    /// The operation: `"open"`, `"read"`, `"rename"`, ...
    pub op: &'static str,
    /// The file or directory of the operation; empty for an operation without one.
    pub path: PathBuf,
    /// Offset in the file, in bytes, of a read or write.
    pub offset: Option<u64>,
    /// The error of the operating system, or of the file system standing in for it.
    pub source: io::Error,
}

/// The result of an operation of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Returns an error of `op` on `path` as a whole.
    pub fn new(op: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self { op, path: path.into(), offset: None, source }
    }

    /// Returns an error of `op` at `offset` of `path`.
    pub fn at(op: &'static str, path: impl Into<PathBuf>, offset: u64, source: io::Error) -> Self {
        Self { op, path: path.into(), offset: Some(offset), source }
    }

    /// Returns the kind of the underlying error.
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }

    /// Returns true if the file system refuses direct I/O on the file; without direct I/O the
    /// operation may succeed.
    ///
    /// Compat: on Linux most file systems return `EINVAL`, some `EOPNOTSUPP`; a refusal found with
    /// `statx` is `Unsupported`.
    pub fn is_direct_unsupported(&self) -> bool {
        matches!(self.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported)
    }

    /// Returns true if a hard link cannot be made: the target is on another file system, the file
    /// system has no hard links, the file has the maximum number of links, or another user owns it.
    pub fn is_link_unsupported(&self) -> bool {
        use io::ErrorKind::{CrossesDevices, PermissionDenied, TooManyLinks, Unsupported};
        matches!(self.kind(), CrossesDevices | PermissionDenied | TooManyLinks | Unsupported)
    }

    /// Returns true if the write found no space: the device is full, or a quota is used up.
    pub fn is_no_space(&self) -> bool {
        matches!(self.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }

    /// Returns true if another process or another holder in this one has the requested lock; see
    /// [`FileSystem::lock`](crate::FileSystem::lock).
    pub fn is_locked(&self) -> bool {
        self.op == "lock" && self.kind() == io::ErrorKind::WouldBlock
    }

    /// Returns true if the file or directory does not exist.
    pub fn is_not_found(&self) -> bool {
        self.kind() == io::ErrorKind::NotFound
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.op, self.path.display())?;
        if let Some(offset) = self.offset {
            write!(f, " at offset {offset}")?;
        }
        write!(f, ": {}", self.source)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Adds the operation and the path to a plain `io::Error`.
pub(crate) trait Context<T> {
    fn context(self, op: &'static str, path: &Path) -> Result<T>;
}

impl<T> Context<T> for io::Result<T> {
    fn context(self, op: &'static str, path: &Path) -> Result<T> {
        self.map_err(|source| Error::new(op, path, source))
    }
}

/// A copy of an `io::Error` for every waiter of one operation.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    kind: io::ErrorKind,
    errno: Option<i32>,
    message: Option<Arc<str>>,
}

impl Failure {
    pub(crate) fn from_errno(errno: i32) -> Self {
        Self { kind: io::Error::from_raw_os_error(errno).kind(), errno: Some(errno), message: None }
    }

    pub(crate) fn new(kind: io::ErrorKind, message: &str) -> Self {
        Self { kind, errno: None, message: Some(message.into()) }
    }

    pub(crate) fn of(e: &io::Error) -> Self {
        match e.raw_os_error() {
            Some(errno) => Self::from_errno(errno),
            None => Self { kind: e.kind(), errno: None, message: Some(e.to_string().into()) },
        }
    }

    pub(crate) fn to_io(&self) -> io::Error {
        match (self.errno, &self.message) {
            (Some(errno), _) => io::Error::from_raw_os_error(errno),
            (None, Some(message)) => io::Error::new(self.kind, message.to_string()),
            (None, None) => self.kind.into(),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(e: io::Error) -> Self {
        Self::of(&e)
    }
}
