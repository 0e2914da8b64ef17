//! Faults of single operations on a simulated disk.
//!
//! A function ([`super::SimulatedFileSystem::set_faults`]) is called before every operation and
//! returns its fault: an error, or silently different bytes written or read.

use std::fmt;
use std::path::Path;
use std::time::Duration;

/// An operation on a file or a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    /// Open a file for reading at any offset.
    Open,
    /// Read a whole file.
    ReadAll,
    /// Read at an offset.
    Read,
    /// Open an existing file for writing.
    OpenToWrite,
    /// Write to a file.
    Write,
    /// Make a file durable.
    Sync,
    /// Truncate or extend a file.
    Truncate,
    /// Create or empty a file.
    Create,
    /// Rename a file.
    Rename,
    /// Make a hard link.
    Link,
    /// Remove a file.
    Remove,
    /// List a directory's names.
    List,
    /// Get length and kind.
    Metadata,
    /// Make a directory's names durable.
    SyncDirectory,
    /// Create a directory.
    CreateDirectory,
    /// Take a lock.
    Lock,
}

/// A fault of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The operation fails with this errno: a write after its first half, and a sync after possibly
    /// losing the unsynced data for good.
    Fail(i32),
    /// A read at an offset is short, before the end of the file.
    Short,
    /// A read at an offset takes this long.
    Delay(Duration),
    /// One bit of the bytes read or written is flipped: this number modulo their number of bits.
    Flip(u64),
    /// A read returns, or a write changes, another place of the file.
    Misdirected,
    /// A read returns a sector as it was before it was written; a write succeeds but leaves the old
    /// content.
    Stale,
}

impl Fault {
    /// Applies a flipped bit to bytes that are read or written.
    pub(super) fn flip(self, bytes: &mut [u8]) {
        if let (Self::Flip(number), false) = (self, bytes.is_empty()) {
            let bit = (number % (bytes.len() as u64 * 8)) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

/// Returns the wrong offset, in a file of `len` bytes, of a misdirected access to `offset`.
pub(super) fn elsewhere(offset: usize, len: usize) -> usize {
    if offset == 0 { len / 2 } else { offset / 2 }
}

type Ask = dyn FnMut(Operation, &Path) -> Option<Fault> + Send;

/// The function that chooses an operation's fault.
pub(super) struct Faulty(pub(super) Box<Ask>);

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Faulty")
    }
}
