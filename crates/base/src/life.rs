//! Whether an open database may still be used: until somebody closes it, and, where it can be
//! written, by no process that was forked from the one that opened it.
//!
//! In: the end of the database. Out: for every public call and every move of an iterator, whether
//! to go on; two relaxed loads, of lines that hardly ever change.
//!
//! Why not in a fork's child: the threads that do the work of a database stayed with the parent,
//! and locks that they held are held for ever in the child; so what the child writes would be lost,
//! and what it waits for would never come. A database open for reading only needs no threads but
//! the caller's.
//!
//! Invariant: whoever writes to the directory outside of the pipeline and the MANIFEST, which
//! refuse by themselves, asks under a lock that closing takes before it gives LOCK back.

use crate::error::{Error, ErrorKind, Result};
use crate::sync::atomic::{AtomicBool, Ordering};
use karst_io::OwnProcess;

/// See the module.
#[derive(Debug)]
pub struct Life {
    closed: AtomicBool,
    opened_by: OwnProcess,
    writes: bool,
}

impl Life {
    /// Of a database that this process opens, for writing too if it `writes`.
    pub fn new(writes: bool) -> Self {
        Self { closed: AtomicBool::new(false), opened_by: OwnProcess::new(), writes }
    }

    /// Refuses what is asked of a database that is closed, or was opened for writing by another
    /// process.
    #[inline]
    pub fn check(&self) -> Result<()> {
        // Ordering: a flag only; whoever must not miss it asks under a lock.
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

    /// Whether this is a fork's child, and the database its parent's. Nothing of it may be waited
    /// for, written or given back then.
    #[inline]
    pub fn is_left_behind(&self) -> bool {
        self.writes && !self.opened_by.is_current()
    }

    /// From now on it is closed.
    pub fn end(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }
}
