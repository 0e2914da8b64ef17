//! Table properties collectors: user code that sees each entry of a table while it is written, and
//! adds properties to the table.
//!
//! In: every entry of a table, in the order of writing, range tombstones last. Out: names and
//! values, stored in the table's properties block beside RocksDB's own, and a flag that asks for
//! the table's compaction. A [`TablePropertiesCollectorFactory`] creates a collector for each table
//! of flushes, compactions and recoveries, and for files written for ingestion.
//!
//! Collectors are called on the threads that write tables, in between entries: they must not block
//! or use the database. As in RocksDB, a failing collector never fails the table: its properties
//! are omitted.

use crate::error::Result;
use karst_format::key::ValueType;
use std::collections::BTreeMap;
use std::fmt::Debug;

/// An entry of a table.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CollectedEntry<'a> {
    /// The user key; for a range tombstone, the first key of the range.
    pub key: &'a [u8],
    /// The value as stored in the table: for a value in a blob file, the reference; for a range
    /// tombstone, the exclusive end of the range.
    pub value: &'a [u8],
    /// The type of the entry.
    pub entry_type: ValueType,
    /// The entry's sequence number.
    pub seq: u64,
    /// Size of the file so far in bytes, without the entry's own block.
    pub file_bytes: u64,
}

impl<'a> CollectedEntry<'a> {
    /// Describes an entry.
    #[doc(hidden)]
    #[inline]
    pub fn new(
        (key, value): (&'a [u8], &'a [u8]),
        entry_type: ValueType,
        seq: u64,
        file_bytes: u64,
    ) -> CollectedEntry<'a> {
        CollectedEntry { key, value, entry_type, seq, file_bytes }
    }
}

/// Properties that a collector adds, by name.
pub type UserCollectedProperties = BTreeMap<Vec<u8>, Vec<u8>>;

/// Collects properties from the entries of one table; see the module.
pub trait TablePropertiesCollector: Send {
    /// Called for each entry.
    ///
    /// # Errors
    /// Any; the first error is logged through `tracing`, without other consequences.
    fn add(&mut self, entry: &CollectedEntry<'_>) -> Result<()>;

    /// Called once, after the table's last entry; returns the properties to add. Names that begin
    /// with `rocksdb.` are reserved and dropped.
    ///
    /// # Errors
    /// Any; no properties are added then.
    fn finish(&mut self) -> Result<UserCollectedProperties>;

    /// Returns true if the table should be compacted soon. Called after `finish`.
    fn need_compact(&self) -> bool {
        false
    }
}

/// The table that a collector is created for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TablePropertiesCollectorContext {
    /// The column family's id.
    pub column_family_id: u32,
    /// The level that the table is written for; `None` for a file written for ingestion.
    pub level_at_creation: Option<u32>,
    /// Number of levels of the column family.
    pub num_levels: u32,
}

impl TablePropertiesCollectorContext {
    /// Describes a table.
    #[doc(hidden)]
    pub fn new(column_family_id: u32, level_at_creation: Option<u32>, num_levels: u32) -> Self {
        TablePropertiesCollectorContext { column_family_id, level_at_creation, num_levels }
    }
}

/// Creates collectors; see the module.
pub trait TablePropertiesCollectorFactory: Send + Sync + Debug {
    /// The name recorded in tables under `rocksdb.property.collectors`.
    fn name(&self) -> &str;

    /// Creates the collector for one table; `None` for none.
    fn create(&self, context: &TablePropertiesCollectorContext) -> Option<Box<dyn TablePropertiesCollector>>;
}
