//! Table properties collectors: code of the user that looks at each entry of a table while it is
//! written, and adds properties to it.
//!
//! In: every entry that a table gets, in the order in which it gets them, range tombstones last.
//! Out: names and values, which stand in the table's properties block beside RocksDB's own, and
//! whether the table is to be compacted soon. A [`TablePropertiesCollectorFactory`] makes a
//! collector for each table of flushes, compactions and recoveries, and for
//! files that are made to be ingested.
//!
//! Collectors are called on the threads that write tables, in the middle of it: they must not block
//! or use the database. As in RocksDB, one that fails never fails the table: what it says is left
//! out.

use crate::error::Result;
use karst_format::key::ValueType;
use std::collections::BTreeMap;
use std::fmt::Debug;

/// An entry that goes into a table.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CollectedEntry<'a> {
    /// The user key; of a range tombstone, the first key of the range.
    pub key: &'a [u8],
    /// The value as the table holds it: of a value in a blob file the reference; of a range
    /// tombstone the key that the range ends before.
    pub value: &'a [u8],
    /// What kind of entry it is.
    pub entry_type: ValueType,
    /// Its sequence number.
    pub seq: u64,
    /// Bytes that the file has so far, without the block that the entry goes into.
    pub file_bytes: u64,
}

impl<'a> CollectedEntry<'a> {
    /// An entry.
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

/// Looks at the entries of one table; see the module.
pub trait TablePropertiesCollector: Send {
    /// One more entry.
    ///
    /// # Errors
    /// Whatever it finds wrong: said once through `tracing`, without any other consequence.
    fn add(&mut self, entry: &CollectedEntry<'_>) -> Result<()>;

    /// Called once, when the table has all its entries: the properties to add. Names that begin
    /// with `rocksdb.` are RocksDB's own, and left out.
    ///
    /// # Errors
    /// Nothing is added then.
    fn finish(&mut self) -> Result<UserCollectedProperties>;

    /// Whether the table is to be compacted soon. Asked after `finish`.
    fn need_compact(&self) -> bool {
        false
    }
}

/// The table that a collector is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TablePropertiesCollectorContext {
    /// The column family.
    pub column_family_id: u32,
    /// The level that the table is made for; `None` of one that is made to be ingested.
    pub level_at_creation: Option<u32>,
    /// How many levels the column family has.
    pub num_levels: u32,
}

impl TablePropertiesCollectorContext {
    /// A table.
    #[doc(hidden)]
    pub fn new(column_family_id: u32, level_at_creation: Option<u32>, num_levels: u32) -> Self {
        TablePropertiesCollectorContext { column_family_id, level_at_creation, num_levels }
    }
}

/// Makes collectors; see the module.
pub trait TablePropertiesCollectorFactory: Send + Sync + Debug {
    /// The name that tables tell among `rocksdb.property.collectors`.
    fn name(&self) -> &str;

    /// The collector for one table; `None` for none.
    fn create(&self, context: &TablePropertiesCollectorContext) -> Option<Box<dyn TablePropertiesCollector>>;
}
