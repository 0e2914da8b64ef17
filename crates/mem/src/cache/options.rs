//! The options of a cache, the priorities of its entries, and its counters.

/// The priority of an entry; determines how long it stays without being used.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Priority {
    /// Evicted first: read once, by a scan or by compaction.
    Bottom = 0,
    /// Data blocks.
    Low = 1,
    /// Metadata: index, filters, dictionaries.
    High = 2,
}

impl Priority {
    /// Priorities by number; the fourth value of the two bits does not occur.
    pub(super) const ALL: [Priority; 4] = [Priority::Bottom, Priority::Low, Priority::High, Priority::High];

    pub(super) fn rounds_unused(self) -> u64 {
        self as u64 + 1
    }
}

/// Options of a [`BlockCache`](super::BlockCache).
#[derive(Clone, Debug)]
pub struct CacheOptions {
    /// Maximum bytes of charges. 0: nothing is cached.
    pub capacity_bytes: usize,
    /// Charge of a typical entry, in bytes; determines the size of the first table of a small
    /// cache, which grows if entries are smaller. 0 means 4 KiB.
    pub estimated_entry_bytes: usize,
    /// True to keep the capacity even when everything is pinned: then `insert` returns standalone
    /// handles, and `try_insert` and `try_reserve` refuse. Otherwise pinned entries may exceed the
    /// capacity for a while.
    pub strict_capacity: bool,
    /// Fraction of the capacity (0.0 to 1.0) up to which entries of High priority are kept before
    /// all others.
    pub metadata_fraction: f64,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self {
            capacity_bytes: 32 << 20,
            estimated_entry_bytes: 4 << 10,
            strict_capacity: false,
            metadata_fraction: 0.75,
        }
    }
}

/// Counters of a cache, at about one instant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheCounters {
    /// Lookups that found their key.
    pub hits: u64,
    /// Lookups that did not find their key.
    pub misses: u64,
    /// Entries placed in the table.
    pub inserts: u64,
    /// Inserts that ended in a standalone handle.
    pub standalone_inserts: u64,
    /// Entries removed to make room.
    pub evictions: u64,
    /// Entries in the table.
    pub entries: usize,
    /// All charges: of entries, of standalone handles, of reservations.
    pub usage_bytes: usize,
    /// Charges of standalone handles and reservations.
    pub charged_bytes: usize,
    /// Charges of entries of High, Low and Bottom priority.
    pub high_bytes: usize,
    /// See `high_bytes`.
    pub low_bytes: usize,
    /// See `high_bytes`.
    pub bottom_bytes: usize,
}
