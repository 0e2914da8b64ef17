//! How large memtables get, and how many wait to be flushed, at any time.

use crate::machine::World;
use crate::store::Families;
use karst_engine::{ColumnFamily, Db, WriteBatch};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// What was seen of the memtables of a run.
#[derive(Debug, Default)]
pub(crate) struct Memtables {
    /// Bytes of the largest batch, and its entries.
    largest_batch: (AtomicUsize, AtomicUsize),
    /// How often there were as many as there may be.
    pub(crate) at_most: AtomicU64,
}

/// Bytes of memory of an entry beside its key and value, at most.
const BESIDE: usize = 200;

impl Memtables {
    /// A batch is about to be written.
    pub(crate) fn note(&self, batch: &WriteBatch) {
        self.largest_batch.0.fetch_max(batch.data_size(), Ordering::Relaxed);
        self.largest_batch.1.fetch_max(batch.count() as usize, Ordering::Relaxed);
    }

    /// No memtable is larger than a tenth more than it should be and what is under way, and no
    /// family has more of them waiting than `max_write_buffer_number`.
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
        // A block of memory has 8 KiB at least. Each writer has one batch under way, and a mark.
        let most = size + (size / 10).max(8 << 10) + (world.plan.writers + 1) * (batch + BESIDE);
        assert!(active as usize <= most, "a memtable of {size} bytes has {active}, at most {most}");
        let most = u64::try_from(options.max_write_buffer_number).unwrap();
        assert!(waiting <= most, "{waiting} memtables wait to be flushed, at most {most}");
        self.at_most.fetch_add(u64::from(waiting == most), Ordering::Relaxed);
    }
}
