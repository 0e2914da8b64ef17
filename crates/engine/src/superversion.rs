//! What a read of a column family sees: its memtables and its tree, pinned together.
//!
//! In: memtables and versions as replay, and later flushes and compactions, install them. Out: an immutable set of both that a read pins with one cheap guard.
//!
//! Invariant: a read pins its superversion first and takes the visible sequence number after that, so everything visible is in what it has pinned.
//! A superversion keeps its memtables, its version and through that the files alive.

use crate::memtable::MemTable;
use karst_lsm::Version;
use std::sync::Arc;

/// A column family at one moment. Immutable, but for entries that writers add to the newest memtable.
#[derive(Debug)]
pub(crate) struct SuperVersion {
    /// Grows with every installation in the column family.
    pub(crate) number: u64,
    /// The memtable that takes writes.
    pub(crate) mem: Arc<MemTable>,
    /// Sealed memtables that are not in a table yet, newest first.
    pub(crate) immutable: Box<[Arc<MemTable>]>,
    /// The tree.
    pub(crate) version: Arc<Version>,
}

impl SuperVersion {
    /// All memtables, newest first.
    #[inline]
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<MemTable>> {
        std::iter::once(&self.mem).chain(self.immutable.iter())
    }
}
