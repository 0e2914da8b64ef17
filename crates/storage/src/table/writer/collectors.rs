//! The properties collectors of one table.
//!
//! In: the table's entries. Out: the properties that the collectors add, and true if one requests
//! the table's compaction.
//!
//! Invariant: no failure of a collector fails the table. One that panics is not called again.

use super::TablePlace;
use karst_base::error::Result;
use karst_base::options::FamilyConfig;
use karst_base::table_properties_collector::{
    CollectedEntry, TablePropertiesCollector, TablePropertiesCollectorContext, UserCollectedProperties,
};
use karst_format::key::{InternalKey, SeqNo, ValueType};
use karst_format::table_builder::TableBuilder;
use karst_io::report;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Prefix of property names reserved for RocksDB.
const RESERVED: &[u8] = b"rocksdb.";

/// Maximum size of one collector's properties, in bytes, because a block's lengths are 32 bits.
const MOST_BYTES: usize = 1 << 30;

/// The collectors of one table; see the module.
#[derive(Default)]
pub(super) struct Collectors(Vec<One>);

struct One {
    name: String,
    /// `None` once it has panicked.
    collector: Option<Box<dyn TablePropertiesCollector>>,
    /// True if a failure was already reported.
    failed: bool,
}

impl Collectors {
    /// Creates the collectors for a table.
    pub(super) fn new(config: &FamilyConfig, place: &TablePlace) -> Collectors {
        let level = place.external.is_none().then(|| u32::try_from(place.level).unwrap_or(u32::MAX));
        let levels = u32::try_from(config.options.num_levels).unwrap_or(0);
        let context = TablePropertiesCollectorContext::new(config.id.0, level, levels);
        let made = config.collectors.iter().filter_map(|factory| {
            let name = factory.name().to_owned();
            let made = catch_unwind(AssertUnwindSafe(|| factory.create(&context)));
            let collector = made.inspect_err(|_| panicked(&name)).ok().flatten()?;
            Some(One { name, collector: Some(collector), failed: false })
        });
        Collectors(made.collect())
    }

    /// Passes an entry to all collectors.
    #[inline]
    pub(super) fn add(&mut self, internal_key: &[u8], value: &[u8], file_bytes: u64) {
        if !self.0.is_empty() {
            self.add_to_all(internal_key, value, file_bytes);
        }
    }

    fn add_to_all(&mut self, internal_key: &[u8], value: &[u8], file_bytes: u64) {
        // Invariant: the table has accepted the key.
        let Ok(InternalKey { user_key, seq, kind }) = InternalKey::parse(internal_key) else { return };
        self.show(&CollectedEntry::new((user_key, value), kind, seq.0, file_bytes));
    }

    /// Passes a range tombstone to all collectors.
    pub(super) fn add_range_deletion(&mut self, start: &[u8], end: &[u8], seq: SeqNo, file_bytes: u64) {
        self.show(&CollectedEntry::new((start, end), ValueType::RangeDeletion, seq.0, file_bytes));
    }

    fn show(&mut self, entry: &CollectedEntry<'_>) {
        for one in &mut self.0 {
            one.call(|collector| collector.add(entry));
        }
    }

    /// Adds the collectors' properties after the last entry. Returns true if one requests
    /// compaction.
    pub(super) fn finish(&mut self, builder: &mut TableBuilder) -> bool {
        let mut asks = false;
        for one in &mut self.0 {
            let found = one.call(|collector| collector.finish()).unwrap_or_default();
            if bytes(&found) > MOST_BYTES {
                report!(warn, collector = one.name, "the collector's properties are too large, and left out");
            } else {
                for (name, value) in found {
                    if name.starts_with(RESERVED) {
                        let name = String::from_utf8_lossy(&name).into_owned();
                        report!(warn, collector = one.name, name, "a property of RocksDB's is left out");
                        continue;
                    }
                    builder.set_user_property(name, value);
                }
            }
            asks |= one.call(|collector| Ok(collector.need_compact())).unwrap_or_default();
        }
        asks
    }
}

fn bytes(properties: &UserCollectedProperties) -> usize {
    properties.iter().fold(0, |sum, (name, value)| sum.saturating_add(name.len() + value.len()))
}

impl One {
    /// Calls the collector; returns `None` if it fails or panics, or has panicked before.
    fn call<T>(&mut self, call: impl FnOnce(&mut dyn TablePropertiesCollector) -> Result<T>) -> Option<T> {
        let collector = self.collector.as_mut()?;
        match catch_unwind(AssertUnwindSafe(|| call(&mut **collector))) {
            Ok(Ok(answer)) => Some(answer),
            Ok(Err(error)) => {
                if !std::mem::replace(&mut self.failed, true) {
                    report!(warn, collector = self.name, %error, "a table properties collector failed");
                }
                None
            }
            Err(_) => {
                panicked(&self.name);
                self.collector = None;
                None
            }
        }
    }
}

fn panicked(collector: &str) {
    report!(error, collector, "a table properties collector panicked; its properties are left out");
}

impl std::fmt::Debug for Collectors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|one| &one.name)).finish()
    }
}
