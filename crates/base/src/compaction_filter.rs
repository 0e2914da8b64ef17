//! Compaction filters: user code that keeps, changes or removes entries during flushes and
//! compactions.
//!
//! In: the newest entry that a job has of each user key, and merge operands. Out: a
//! [`FilterDecision`]. A filter is given as an instance that all compactions of a column family
//! share, or as a [`CompactionFilterFactory`], which makes one for each part of each job and may
//! filter flushes too.
//!
//! A filter may rely on the following, as in RocksDB:
//! - Values are shown even if a snapshot sees them: a read at a snapshot may miss entries that a
//!   filter has removed. Merge operands that the newest snapshot sees are kept without a call.
//! - Only the newest entry of a key in the job is shown, and never a deletion. A value that
//!   operands are merged with in the same job is not shown, nor is the result; the next job shows
//!   it.
//! - Entries are shown in key order within one part of a job; parts run at the same time.
//! - No entry is shown twice in one job. A given job may not show a key at all, because files may
//!   move to the last level unchanged. `CompactRangeOptions` with
//!   `BottommostLevelCompaction::ForceOptimized` shows every key once.
//!
//! Filters are called on background threads and must not block or use the database. [`from_name`]
//! finds the filter that RocksDB ships.

use karst_format::options::Object;
use std::fmt::Debug;
use std::sync::Arc;

/// The kind of job that creates a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TableCreationReason {
    /// A flush of memtables. Tables that are made while a log is recovered are not filtered.
    Flush,
    /// A compaction.
    Compaction,
}

/// The job that a filter is created for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterContext {
    /// True if the compaction reads all tables of the column family.
    pub is_full_compaction: bool,
    /// True if the user started the compaction.
    pub is_manual_compaction: bool,
    /// The level that the compaction starts from; `None` for a flush.
    pub input_start_level: Option<u32>,
    /// The column family's id.
    pub column_family_id: u32,
    /// The kind of job.
    pub reason: TableCreationReason,
}

/// An entry as shown to a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilterInput<'a> {
    /// A value, stored inline or in a blob file.
    Value(&'a [u8]),
    /// A merge operand.
    MergeOperand(&'a [u8]),
    /// The columns of a wide-column entity, as names and values, which are stored inline or in blob
    /// files.
    Entity(&'a [(&'a [u8], &'a [u8])]),
}

/// The fate of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilterDecision {
    /// The entry stays.
    Keep,
    /// The entry becomes a deletion, which hides older entries of the key in other files. A merge
    /// operand is dropped.
    Remove,
    /// The entry becomes a single deletion, for keys that are written once and removed by single
    /// deletions. A merge operand is dropped.
    Purge,
    /// The entry becomes a value with these bytes; an operand becomes this operand.
    ChangeValue(Vec<u8>),
    /// The entry becomes an entity with these columns, in any order. Not for operands.
    ChangeEntity(Vec<(Vec<u8>, Vec<u8>)>),
    /// Drops this entry and all entries with keys below this key, without writing deletions: older
    /// entries of those keys in other files may become visible again. If this key is not greater
    /// than the entry's, the entry stays. The skipped entries are still read.
    RemoveAndSkipUntil(Vec<u8>),
}

/// Decides which entries survive a flush or compaction; see the module.
pub trait CompactionFilter: Send + Sync + Debug {
    /// The name written to OPTIONS.
    fn name(&self) -> &str;

    /// Decides the fate of an entry. `level` is the level that the compaction starts from, 0 in a
    /// flush.
    fn filter(&self, level: u32, key: &[u8], entry: FilterInput<'_>) -> FilterDecision;

    /// Decides the fate of a value in a blob file before it is read. `None` has the value read and
    /// passed to `filter`.
    fn filter_blob_by_key(&self, level: u32, key: &[u8]) -> Option<FilterDecision> {
        let _ = (level, key);
        None
    }

    /// Must return true: values that snapshots see are filtered too. Compat: RocksDB has required
    /// this since 6.0; a filter that returns false is refused.
    fn ignore_snapshots(&self) -> bool {
        true
    }
}

/// Creates filters; see the module.
pub trait CompactionFilterFactory: Send + Sync + Debug {
    /// The name written to OPTIONS.
    fn name(&self) -> &str;

    /// Returns true if tables created for `reason` are filtered.
    fn should_filter(&self, reason: TableCreationReason) -> bool {
        reason == TableCreationReason::Compaction
    }

    /// Creates the filter for one part of a job; `None` filters nothing.
    fn create(&self, context: &FilterContext) -> Option<Box<dyn CompactionFilter>>;
}

/// RocksDB's filter that removes empty values.
#[derive(Clone, Copy, Debug, Default)]
pub struct RemoveEmptyValues;

impl CompactionFilter for RemoveEmptyValues {
    fn name(&self) -> &str {
        "RemoveEmptyValueCompactionFilter"
    }

    fn filter(&self, _: u32, _: &[u8], entry: FilterInput<'_>) -> FilterDecision {
        match entry {
            FilterInput::Value([]) => FilterDecision::Remove,
            _ => FilterDecision::Keep,
        }
    }
}

/// Returns the filter that RocksDB ships under `name`.
#[must_use]
pub fn from_name(name: &str) -> Option<Arc<dyn CompactionFilter>> {
    let named = Object::new(name);
    (named.id() == Some(RemoveEmptyValues.name()))
        .then(|| Arc::new(RemoveEmptyValues) as Arc<dyn CompactionFilter>)
}
