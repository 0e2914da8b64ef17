//! What a read of a column family sees: its memtables and its tree, pinned together.
//!
//! In: memtables and versions as replay, and later flushes and compactions, install them. Out: an
//! immutable set of both that a read pins with one cheap guard.
//!
//! Invariant: a read pins its superversion first and takes the sequence number to read at after
//! that; everything up to it is in what was pinned, or the read pins again (`db/read_at.rs`). A
//! superversion keeps its memtables, its version and through that the files alive.

use crate::memtable::MemTable;
use karst_base::options::FamilyConfig;
use karst_base::sync::atomic::{AtomicU64, Ordering};
use karst_format::key::SeqNo;
use karst_lsm::Version;
use std::sync::Arc;

/// A column family at one moment. Immutable, but for entries that writers add to the newest
/// memtable.
#[derive(Debug)]
pub struct SuperVersion {
    pub(crate) number: u64,
    pub(crate) config: Arc<FamilyConfig>,
    pub(crate) mem: Arc<MemTable>,
    pub(crate) immutable: Box<[Arc<MemTable>]>,
    pub(crate) version: Arc<Version>,
    /// The level whose tables are read without asking their filters.
    unfiltered_level: Option<u8>,
    /// From this sequence number on its tree lacks a file that was ingested; `u64::MAX` while it
    /// lacks none. Those that lack the same share it.
    lacks_from: Arc<AtomicU64>,
}

impl SuperVersion {
    /// `number` grows with every superversion of the column family; `immutable` are the sealed
    /// memtables that are in no table yet, newest first.
    pub fn new(
        number: u64,
        config: Arc<FamilyConfig>,
        mem: Arc<MemTable>,
        immutable: Vec<Arc<MemTable>>,
        version: Arc<Version>,
    ) -> Self {
        // Compat: with optimize_filters_for_hits the last level has no filters worth asking.
        let last = version.levels().iter().rposition(|level| !level.is_empty());
        let unfiltered_level =
            last.filter(|_| config.options.optimize_filters_for_hits).map(|level| level as u8);
        let lacks_from = Arc::new(AtomicU64::new(u64::MAX));
        Self { number, config, mem, immutable: immutable.into(), version, unfiltered_level, lacks_from }
    }

    /// The same, which lacks the ingested files that `before` lacks.
    pub fn lacking_as(self, before: &SuperVersion) -> Self {
        Self { lacks_from: before.lacks_from.clone(), ..self }
    }

    /// Says that its tree, and those of its forerunners, lack a file that whoever reads at `seq` or
    /// later has to see.
    ///
    /// Why: an ingested file changes the tree and seals no memtable, so that nothing else tells.
    pub fn lacks_from(&self, seq: SeqNo) {
        // Ordering: who reads at `seq` has seen it published, which comes after this; with 0, who
        // has pinned another family's new tree, which is exchanged after this.
        self.lacks_from.fetch_min(seq.0, Ordering::Release);
    }

    /// Grows with every superversion of the column family.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// What the column family is read with.
    #[inline]
    pub fn config(&self) -> &Arc<FamilyConfig> {
        &self.config
    }

    /// The memtable that takes writes.
    #[inline]
    pub fn mem(&self) -> &Arc<MemTable> {
        &self.mem
    }

    /// Sealed memtables that are in no table yet, newest first.
    pub fn immutable(&self) -> &[Arc<MemTable>] {
        &self.immutable
    }

    /// All memtables, newest first.
    #[inline]
    pub fn memtables(&self) -> impl Iterator<Item = &Arc<MemTable>> {
        std::iter::once(&self.mem).chain(self.immutable.iter())
    }

    /// Whether everything up to `seq` is in it, or will be once it is inserted; `seq` was taken
    /// after this was pinned.
    #[inline]
    pub fn has_all_to(&self, seq: SeqNo) -> bool {
        self.mem.has_all_to(seq) && seq.0 < self.lacks_from.load(Ordering::Relaxed)
    }

    /// The tree.
    #[inline]
    pub fn version(&self) -> &Arc<Version> {
        &self.version
    }

    /// Whether tables of `level` are read without asking their filters.
    #[inline]
    pub fn skips_filter(&self, level: u8) -> bool {
        self.unfiltered_level == Some(level)
    }
}
