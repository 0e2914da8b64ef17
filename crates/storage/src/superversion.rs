//! The state that a read of a column family sees: its memtables and its tree, pinned together.
//!
//! In: memtables and versions installed by replay, flushes and compactions. Out: an immutable set
//! of both that a read pins with one cheap guard.
//!
//! Invariant: a read pins its superversion first and takes its sequence number afterwards;
//! everything up to it is in the pinned state, or the read pins again (`db/read_at.rs`). A
//! superversion keeps its memtables, its version and through that the files alive.

use crate::memtable::MemTable;
use karst_base::options::FamilyConfig;
use karst_base::sync::atomic::{AtomicU64, Ordering};
use karst_format::key::SeqNo;
use karst_lsm::Version;
use std::sync::Arc;

/// A column family at one moment. Immutable, except for entries that writers add to the active
/// memtable.
#[derive(Debug)]
pub struct SuperVersion {
    pub(crate) number: u64,
    pub(crate) config: Arc<FamilyConfig>,
    pub(crate) mem: Arc<MemTable>,
    pub(crate) immutable: Box<[Arc<MemTable>]>,
    pub(crate) version: Arc<Version>,
    /// The level whose tables are read without using their filters.
    unfiltered_level: Option<u8>,
    /// First sequence number at which the tree lacks an ingested file; `u64::MAX` if it lacks none.
    /// Shared by superversions that lack the same file.
    lacks_from: Arc<AtomicU64>,
}

impl SuperVersion {
    /// `number` grows with every superversion of the column family; `immutable` are the sealed
    /// memtables that are not in tables yet, newest first.
    pub fn new(
        number: u64,
        config: Arc<FamilyConfig>,
        mem: Arc<MemTable>,
        immutable: Vec<Arc<MemTable>>,
        version: Arc<Version>,
    ) -> Self {
        // Compat: with optimize_filters_for_hits the last level's filters are not used.
        let last = version.levels().iter().rposition(|level| !level.is_empty());
        let unfiltered_level =
            last.filter(|_| config.options.optimize_filters_for_hits).map(|level| level as u8);
        let lacks_from = Arc::new(AtomicU64::new(u64::MAX));
        Self { number, config, mem, immutable: immutable.into(), version, unfiltered_level, lacks_from }
    }

    /// Shares `lacks_from` with `before`, because it lacks the same ingested files.
    pub fn lacking_as(self, before: &SuperVersion) -> Self {
        Self { lacks_from: before.lacks_from.clone(), ..self }
    }

    /// Marks its tree, and those of its predecessors, as lacking a file that reads at `seq` or
    /// later must see.
    ///
    /// Needed because an ingested file changes the tree without sealing a memtable.
    pub fn lacks_from(&self, seq: SeqNo) {
        // Ordering: a reader at `seq` has seen it published, which happens after this store; with
        // 0, a reader has pinned another family's new tree, which is installed after this store.
        self.lacks_from.fetch_min(seq.0, Ordering::Release);
    }

    /// Returns its number, which grows with every superversion of the column family.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the column family's configuration.
    #[inline]
    pub fn config(&self) -> &Arc<FamilyConfig> {
        &self.config
    }

    /// Returns the active memtable.
    #[inline]
    pub fn mem(&self) -> &Arc<MemTable> {
        &self.mem
    }

    /// Returns the sealed memtables that are not in tables yet, newest first.
    pub fn immutable(&self) -> &[Arc<MemTable>] {
        &self.immutable
    }

    /// Returns all memtables, newest first.
    #[inline]
    pub fn memtables(&self) -> impl Iterator<Item = &Arc<MemTable>> {
        std::iter::once(&self.mem).chain(self.immutable.iter())
    }

    /// Returns true if everything up to `seq` is in it, or will be once inserted; `seq` was read
    /// after this was pinned.
    #[inline]
    pub fn has_all_to(&self, seq: SeqNo) -> bool {
        self.mem.has_all_to(seq) && seq.0 < self.lacks_from.load(Ordering::Relaxed)
    }

    /// Returns the tree.
    #[inline]
    pub fn version(&self) -> &Arc<Version> {
        &self.version
    }

    /// Returns true if tables of `level` are read without using their filters.
    #[inline]
    pub fn skips_filter(&self, level: u8) -> bool {
        self.unfiltered_level == Some(level)
    }
}
