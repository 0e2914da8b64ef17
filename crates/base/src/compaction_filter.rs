//! Compaction filters: the user's say in which entries survive a flush or a compaction, and as
//! what.
//!
//! In: the newest entry that a job has of each user key, and merge operands. Out: a
//! [`FilterDecision`]. A filter is given as an instance that all compactions of a column family
//! share, or as a [`CompactionFilterFactory`], which makes one for each part of each job and may
//! ask for flushes too.
//!
//! What a filter may rely on, as in RocksDB:
//! - Values are shown whether or not a snapshot sees them: who reads at a snapshot may miss what a
//!   filter removes. Merge operands that the newest snapshot sees are kept without asking.
//! - Only the newest entry of a key in the job is shown, and never a deletion. A value that
//!   operands are merged with in the same job is not shown, nor is the result; the next job shows
//!   it.
//! - Entries are shown in the order of keys within one part of a job; parts run at the same time.
//! - Nothing is shown twice in one job. Whether a key is shown in a given job at all is not
//!   promised: files may move to the last level as they are. `CompactRangeOptions` with
//!   `BottommostLevelCompaction::ForceOptimized` shows everything once.
//!
//! Filters are called on background threads and must not block or use the database. [`from_name`]
//! finds the one that RocksDB ships.

use karst_format::options::Object;
use std::fmt::Debug;
use std::sync::Arc;

/// What a table is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TableCreationReason {
    /// A flush of memtables. Tables that are made while a log is recovered are not filtered.
    Flush,
    /// A compaction.
    Compaction,
}

/// The job that a filter is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterContext {
    /// The compaction takes all tables of the column family.
    pub is_full_compaction: bool,
    /// Somebody asked for the compaction.
    pub is_manual_compaction: bool,
    /// The level that the compaction starts from; `None` for a flush.
    pub input_start_level: Option<u32>,
    /// The column family.
    pub column_family_id: u32,
    /// What the tables are made for.
    pub reason: TableCreationReason,
}

/// What a filter is shown of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilterInput<'a> {
    /// A value, wherever it is stored.
    Value(&'a [u8]),
    /// A merge operand.
    MergeOperand(&'a [u8]),
    /// The columns of a wide-column entity, by name, wherever their values are stored.
    Entity(&'a [(&'a [u8], &'a [u8])]),
}

/// What becomes of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilterDecision {
    /// It stays.
    Keep,
    /// It becomes a deletion, which hides what older files hold of the key; of an operand, the
    /// operand goes.
    Remove,
    /// It becomes a single deletion: for keys that are written once and removed by single
    /// deletions. Of an operand, the operand goes.
    Purge,
    /// It becomes a value with these bytes; an operand becomes this operand.
    ChangeValue(Vec<u8>),
    /// It becomes an entity with these columns, in any order. Not for operands.
    ChangeEntity(Vec<(Vec<u8>, Vec<u8>)>),
    /// It and all entries of keys below this one go, and leave no deletion behind: entries of the
    /// keys in older files may come to light again. With a key that is not above the entry's, the
    /// entry stays. The entries that are passed over are still read.
    RemoveAndSkipUntil(Vec<u8>),
}

/// Decides about entries; see the module.
pub trait CompactionFilter: Send + Sync + Debug {
    /// The name kept in OPTIONS.
    fn name(&self) -> &str;

    /// What becomes of an entry. `level` is the level that the compaction starts from, 0 in a
    /// flush.
    fn filter(&self, level: u32, key: &[u8], entry: FilterInput<'_>) -> FilterDecision;

    /// The same of a value in a blob file, before it is read. `None` to have it read and shown.
    fn filter_blob_by_key(&self, level: u32, key: &[u8]) -> Option<FilterDecision> {
        let _ = (level, key);
        None
    }

    /// Whether the filter is asked also about values that snapshots see. Compat: as in RocksDB
    /// there is no other way since 6.0; a filter that says no is refused.
    fn ignore_snapshots(&self) -> bool {
        true
    }
}

/// Makes filters; see the module.
pub trait CompactionFilterFactory: Send + Sync + Debug {
    /// The name kept in OPTIONS.
    fn name(&self) -> &str;

    /// Whether tables made for `reason` are filtered.
    fn should_filter(&self, reason: TableCreationReason) -> bool {
        reason == TableCreationReason::Compaction
    }

    /// The filter for one part of a job; `None` to filter nothing.
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

/// The filter that RocksDB ships under `name`.
#[must_use]
pub fn from_name(name: &str) -> Option<Arc<dyn CompactionFilter>> {
    let named = Object::new(name);
    (named.id() == Some(RemoveEmptyValues.name()))
        .then(|| Arc::new(RemoveEmptyValues) as Arc<dyn CompactionFilter>)
}
