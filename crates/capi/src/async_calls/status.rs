//! Outcome of an operation: a status number and a message.

use crate::boundary::{is_of_missing_file, status_text};
use karstdb::{Error, ErrorKind};
use std::ffi::CString;

/// Outcome of an operation: `karst_status_t`. The numbers up to 13 are those of RocksDB's
/// `Status::Code`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Status {
    Ok = 0,
    NotFound = 1,
    Corruption = 2,
    NotSupported = 3,
    InvalidArgument = 4,
    IoError = 5,
    Incomplete = 7,
    ShutdownInProgress = 8,
    TimedOut = 9,
    Aborted = 10,
    Busy = 11,
    Expired = 12,
    TryAgain = 13,
    /// It was cancelled, or its reactor was destroyed before it ended.
    Cancelled = 100,
    /// A comparator, a merge operator or the library itself panicked.
    Panicked = 101,
}

impl Status {
    /// All statuses, with their names in C.
    pub(crate) const ALL: &[(&str, Status)] = &[
        ("KARST_OK", Status::Ok),
        ("KARST_NOT_FOUND", Status::NotFound),
        ("KARST_CORRUPTION", Status::Corruption),
        ("KARST_NOT_SUPPORTED", Status::NotSupported),
        ("KARST_INVALID_ARGUMENT", Status::InvalidArgument),
        ("KARST_IO_ERROR", Status::IoError),
        ("KARST_INCOMPLETE", Status::Incomplete),
        ("KARST_SHUTDOWN_IN_PROGRESS", Status::ShutdownInProgress),
        ("KARST_TIMED_OUT", Status::TimedOut),
        ("KARST_ABORTED", Status::Aborted),
        ("KARST_BUSY", Status::Busy),
        ("KARST_EXPIRED", Status::Expired),
        ("KARST_TRY_AGAIN", Status::TryAgain),
        ("KARST_CANCELLED", Status::Cancelled),
        ("KARST_PANICKED", Status::Panicked),
    ];

    fn of(error: &Error) -> Status {
        match error.kind() {
            ErrorKind::Corruption => Status::Corruption,
            ErrorKind::NotFound if is_of_missing_file(error) => Status::IoError,
            ErrorKind::Io | ErrorKind::Locked | ErrorKind::NoSpace => Status::IoError,
            ErrorKind::InvalidArgument => Status::InvalidArgument,
            ErrorKind::NotSupported => Status::NotSupported,
            ErrorKind::NotFound => Status::NotFound,
            ErrorKind::Incomplete => Status::Incomplete,
            ErrorKind::TimedOut => Status::TimedOut,
            ErrorKind::Busy | ErrorKind::Deadlock => Status::Busy,
            ErrorKind::TryAgain => Status::TryAgain,
            ErrorKind::Expired => Status::Expired,
            ErrorKind::Closed => Status::ShutdownInProgress,
            ErrorKind::Panicked => Status::Panicked,
            _ => Status::Aborted,
        }
    }
}

/// A status with its message; success has no message.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) status: Status,
    pub(crate) message: Option<CString>,
}

impl Verdict {
    pub(crate) const OK: Verdict = Verdict { status: Status::Ok, message: None };

    pub(crate) fn of(error: &Error) -> Verdict {
        Verdict::with(Status::of(error), status_text(error))
    }

    pub(crate) fn with(status: Status, message: impl Into<Vec<u8>>) -> Verdict {
        let mut message = message.into();
        message.retain(|byte| *byte != 0);
        Verdict { status, message: CString::new(message).ok() }
    }
}
