//! Faults of single operations on a simulated disk: which operation of which file goes wrong, and
//! how.
//!
//! In: a function that is asked before every operation
//! ([`super::SimulatedFileSystem::set_faults`]). Out: an error, or silently other bytes than were
//! written or read.

use std::fmt;
use std::path::Path;
use std::time::Duration;

/// What is done to a file or a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    /// Opened for reading at any offset.
    Open,
    /// Read as a whole.
    ReadAll,
    /// Read at an offset.
    Read,
    /// Opened for writing; it is there.
    OpenToWrite,
    /// Written to.
    Write,
    /// Made durable.
    Sync,
    /// Cut, or grown.
    Truncate,
    /// Made, or emptied.
    Create,
    /// Given another name.
    Rename,
    /// Given a second name.
    Link,
    /// Removed.
    Remove,
    /// A directory's names are listed.
    List,
    /// Asked for its length and kind.
    Metadata,
    /// A directory's names are made durable.
    SyncDirectory,
    /// A directory is made.
    CreateDirectory,
    /// Locked.
    Lock,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It fails with this errno; a write after the first half of it, and a sync may have lost for
    /// good what it was for.
    Fail(i32),
    /// A read at an offset comes back short, before the end of the file.
    Short,
    /// A read at an offset takes so much longer.
    Delay(Duration),
    /// A bit of what is read or written is another: this number modulo the bits there are.
    Flip(u64),
    /// What is read comes from another place of the file; what is written goes to one.
    Misdirected,
    /// What is read is as it was before it was written; what is written is not, though the write
    /// says so.
    Stale,
}

impl Fault {
    /// Do to bytes that are read or written what the fault does to them.
    pub(super) fn flip(self, bytes: &mut [u8]) {
        if let (Self::Flip(number), false) = (self, bytes.is_empty()) {
            let bit = (number % (bytes.len() as u64 * 8)) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

/// Another place of a file of `len` bytes, for what should be at `offset`.
pub(super) fn elsewhere(offset: usize, len: usize) -> usize {
    if offset == 0 { len / 2 } else { offset / 2 }
}

type Ask = dyn FnMut(Operation, &Path) -> Option<Fault> + Send;

/// Says what goes wrong with an operation.
pub(super) struct Faulty(pub(super) Box<Ask>);

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Faulty")
    }
}
