//! Checks of the size of memtables, and of the number that wait to be flushed.

use crate::machine::World;
use crate::store::Families;
use karst_engine::{ColumnFamily, Db, WriteBatch};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Bounds and counts of a run's memtables.
#[derive(Debug, Default)]
pub(crate) struct Memtables {
    /// Bytes and entries of the largest batch; each is a maximum of its own.
    largest_batch: (AtomicUsize, AtomicUsize),
    /// Number of checks that met as many waiting memtables as are allowed.
    pub(crate) at_most: AtomicU64,
}

/// Maximum memory in bytes of an entry beside its key and value.
const BESIDE: usize = 200;

impl Memtables {
    /// Records the size of a batch that is about to be written.
    pub(crate) fn note(&self, batch: &WriteBatch) {
        self.largest_batch.0.fetch_max(batch.data_size(), Ordering::Relaxed);
        self.largest_batch.1.fetch_max(batch.count() as usize, Ordering::Relaxed);
    }

    /// Checks that no memtable exceeds `write_buffer_size` by more than a tenth and the batches
    /// under way, and that no family has more than `max_write_buffer_number` waiting.
    pub(crate) fn check(&self, world: &World, db: &Db, families: &Families) {
        families.0.iter().for_each(|family| self.check_one(world, db, family));
    }

    fn check_one(&self, world: &World, db: &Db, family: &ColumnFamily) {
        let number = |name: &str| db.int_property_cf(family, name);
        let (Some(active), Some(waiting)) =
            (number("rocksdb.cur-size-active-mem-table"), number("rocksdb.num-immutable-mem-table"))
        else {
            return;
        };
        let Ok(options) = db.get_options(family) else { return };
        let (bytes, entries) = &self.largest_batch;
        let batch = bytes.load(Ordering::Relaxed) + entries.load(Ordering::Relaxed) * BESIDE;
        let size = options.write_buffer_size;
        // A block of memory has at least 8 KiB. Each writer has one batch under way, and a mark.
        let most = size + (size / 10).max(8 << 10) + (world.plan.writers + 1) * (batch + BESIDE);
        assert!(active as usize <= most, "a memtable of {size} bytes has {active}, at most {most}");
        let most = u64::try_from(options.max_write_buffer_number).unwrap();
        assert!(waiting <= most, "{waiting} memtables wait to be flushed, at most {most}");
        self.at_most.fetch_add(u64::from(waiting == most), Ordering::Relaxed);
    }
}
