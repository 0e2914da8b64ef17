//! The check that an open database is usable: not closed, and, if opened for writing, not inherited
//! by a forked child process.
//!
//! In: the end of the database. Out: permission to proceed, for every public call and every
//! iterator step; two relaxed loads, of lines that rarely change.
//!
//! A forked child is refused because the database's threads stay with the parent and locks that
//! they held are never released in the child: its writes would be lost and its waits never end. A
//! database opened read-only needs no threads but the caller's.
//!
//! Invariant: code that writes to the directory outside of the pipeline and the MANIFEST, which
//! check by themselves, checks under a lock that closing takes before it releases LOCK.

use crate::error::{Error, ErrorKind, Result};
use crate::sync::atomic::{AtomicBool, Ordering};
use karst_io::OwnProcess;

/// Open or closed state of a database; see the module.
#[derive(Debug)]
pub struct Life {
    closed: AtomicBool,
    opened_by: OwnProcess,
    writes: bool,
}

impl Life {
    /// Creates the state of a database opened by this process, for writing if `writes`.
    pub fn new(writes: bool) -> Self {
        Self { closed: AtomicBool::new(false), opened_by: OwnProcess::new(), writes }
    }

    /// Returns an error if the database is closed, or was opened for writing by another process.
    #[inline]
    pub fn check(&self) -> Result<()> {
        // Ordering: a flag only; callers that must not miss it check under a lock.
        if self.closed.load(Ordering::Relaxed) || !self.opened_by.is_current() {
            self.refusal()
        } else {
            Ok(())
        }
    }

    #[cold]
    fn refusal(&self) -> Result<()> {
        let text = match self.closed.load(Ordering::Relaxed) {
            true => "the database is closed",
            false if self.is_left_behind() => {
                "the database was opened by the process that this one was forked from, and only that one can use it"
            }
            false => return Ok(()),
        };
        Err(Error::new(ErrorKind::Closed, text))
    }

    /// Returns true in a forked child whose parent opened the database for writing. The child must
    /// not wait for, write or release anything of the database.
    #[inline]
    pub fn is_left_behind(&self) -> bool {
        self.writes && !self.opened_by.is_current()
    }

    /// Marks the database closed.
    pub fn end(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }
}
