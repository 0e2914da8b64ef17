//! Column families: each has its own memtables, tree and options; they share log, cache and sequence numbers.
//!
//! In: superversions, as open and later flushes and compactions install them. Out: a cheap pin of the current one.
//!
//! Invariant: a superversion that is installed holds everything its forerunner held, or what became of it.

use crate::options::FamilyConfig;
use crate::superversion::SuperVersion;
use crate::table::cache::TableCache;
use arc_swap::{ArcSwap, Guard};
use std::sync::Arc;

/// A column family of an open database. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct ColumnFamily(pub(crate) Arc<Family>);

/// The state of a column family.
#[derive(Debug)]
pub(crate) struct Family {
    pub(crate) config: Arc<FamilyConfig>,
    pub(crate) tables: Arc<TableCache>,
    /// Names the database it is of.
    pub(crate) database: u64,
    current: ArcSwap<SuperVersion>,
}

impl Family {
    pub(crate) fn new(
        database: u64,
        config: Arc<FamilyConfig>,
        tables: Arc<TableCache>,
        superversion: SuperVersion,
    ) -> Self {
        Self { config, tables, database, current: ArcSwap::from_pointee(superversion) }
    }

    /// Pins the current superversion. Takes no lock and counts no reference; keep it for one operation, and clone the `Arc` to keep it longer.
    #[inline]
    pub(crate) fn pin(&self) -> Guard<Arc<SuperVersion>> {
        self.current.load()
    }

    /// The current superversion, for an operation that may wait.
    pub(crate) fn superversion(&self) -> Arc<SuperVersion> {
        self.current.load_full()
    }
}

impl ColumnFamily {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.config.name
    }

    /// Its id, by which logs and the MANIFEST call it.
    pub fn id(&self) -> u32 {
        self.0.config.id.0
    }

    /// The options it is read with.
    pub fn options(&self) -> &crate::options::ColumnFamilyOptions {
        &self.0.config.options
    }

    /// The name of its comparator.
    pub fn comparator_name(&self) -> &str {
        self.0.config.comparator.name()
    }
}
