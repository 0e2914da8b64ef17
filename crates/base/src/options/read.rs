//! Options of one read. RocksDB's names; RocksDB's defaults except for `async_io`.
//!
//! In: the user's settings. Out: plain fields that lookups and iterators consult. Every field here
//! is honoured by the read path.

use crate::snapshot::Snapshot;
use karst_format::properties::TableProperties;
use std::sync::Arc;
use std::time::Duration;

/// The storage tiers that a read may access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadTier {
    /// Memtables, block cache and storage.
    #[default]
    All,
    /// Memtables and block cache; a read that would need storage fails with `Incomplete`. RocksDB's
    /// `kBlockCacheTier`.
    BlockCache,
    /// Memtables only; a key that they lack counts as not found. RocksDB's `kMemtableTier`; point
    /// lookups only.
    Memtable,
}

/// Selects the tables an iterator reads: a predicate over a table's properties that is false for
/// tables to skip.
#[derive(Clone)]
pub struct TableFilterFn(Arc<dyn Fn(&TableProperties) -> bool + Send + Sync>);

impl TableFilterFn {
    /// Reads the tables for which `wanted` returns true.
    pub fn new(wanted: impl Fn(&TableProperties) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(wanted))
    }

    /// Returns true if a table with these properties is read.
    pub fn wants(&self, properties: &TableProperties) -> bool {
        (self.0)(properties)
    }
}

impl std::fmt::Debug for TableFilterFn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TableFilterFn")
    }
}

/// Options of one read. Cheap to create, and reusable for many reads.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// Snapshot to read at; `None` reads the state at the start of the read.
    pub snapshot: Option<Snapshot>,
    /// The storage tiers that the read may access.
    pub read_tier: ReadTier,
    /// Verify the checksum of every block read from storage. Default true.
    pub verify_checksums: bool,
    /// Insert blocks read from storage into the block cache. Disable it for long scans that should
    /// not displace other blocks. Default true.
    pub fill_cache: bool,
    /// Ignore range tombstones. Results are wrong if a range tombstone covers a key read. Default
    /// false.
    pub ignore_range_deletions: bool,
    /// Keep several reads in flight for one operation: blocks of a batch, children of a seek,
    /// readahead of a scan. If false, the blocks needed from one file are read together, and files
    /// one after another, as in RocksDB. Default true.
    ///
    /// Compat: RocksDB's default is false because its implementation costs thread stacks and slows
    /// cached reads; here it has no cost.
    pub async_io: bool,
    /// In a `multi_get` with `async_io`, read all levels at once: fewest round trips, at the price
    /// of reads in levels below the one that has the key. If false, read level by level. Default
    /// true.
    pub optimize_multiget_for_io: bool,
    /// Time at which the read stops waiting for storage and fails with `TimedOut`: a time of the
    /// environment's clock, such as `db.env().now() + Duration::from_millis(5)`. Data in memory is
    /// returned even after the deadline; a `multi_get` returns the keys found by then; an iterator
    /// must be positioned again. Default: none.
    ///
    /// Compat: RocksDB's is in microseconds since the epoch, and is checked between reads. Here a
    /// late read does not delay the caller; it is abandoned.
    pub deadline: Option<Duration>,
    /// Maximum time the read waits for any one storage response before it fails with `TimedOut`.
    /// Default: none.
    pub io_timeout: Option<Duration>,
    /// In a `multi_get`, the size in bytes of returned values after which the remaining keys fail
    /// with `LimitReached`; at least one key is read. Default: no limit.
    pub value_size_soft_limit: u64,
    /// An iterator's readahead in bytes; 0 lets it grow automatically on sequential use. Default 0.
    pub readahead_size: usize,
    /// Maximum number of entries an iterator may skip in one call before it fails with
    /// `Incomplete`; 0 for no limit. Default 0.
    pub max_skippable_internal_keys: u64,
    /// Lower bound of iteration, inclusive.
    pub iterate_lower_bound: Option<Vec<u8>>,
    /// Upper bound of iteration, exclusive.
    pub iterate_upper_bound: Option<Vec<u8>>,
    /// Iterate over all keys in order, regardless of the tables' prefix extractors and indexes;
    /// prefix filters are not used. Default false.
    pub total_order_seek: bool,
    /// Iterate as with `total_order_seek`, but use prefix filters if they cannot change the result.
    /// Default false.
    pub auto_prefix_mode: bool,
    /// End the iteration when a key's prefix differs from the seek key's. Default false.
    pub prefix_same_as_start: bool,
    /// Carry an iterator's readahead size over from file to file. Default false.
    pub adaptive_readahead: bool,
    /// Trim readahead at the upper bound and at the end of the prefix. Default true.
    pub auto_readahead_size: bool,
    /// Predicate over a table's properties: an iterator skips the entries of tables for which it
    /// returns false; with a properties collector, this skips tables without relevant entries.
    /// Memtables are always read, and range tombstones of every table apply. It is called on the
    /// thread that moves the iterator, each time the iterator opens a table, and must not block. If
    /// it panics, the panic reaches the caller of the move; the iterator can be positioned again
    /// afterwards. Point lookups ignore it. Default: none.
    ///
    /// The entries shown without a table need not be a state that the database was ever in: an
    /// older entry may become visible, and a merge may lack operands.
    pub table_filter: Option<TableFilterFn>,
    /// In a column family whose comparator has timestamps: read as of this timestamp, that is, the
    /// newest entry of each key that is not later. Every read of such a family must set one, of the
    /// comparator's size, and reads of other families must not; otherwise the read fails with
    /// `InvalidArgument`, and likewise if the timestamp is before the family's
    /// `full_history_ts_low`. Default: none.
    pub timestamp: Option<Vec<u8>>,
    /// An iterator shows every entry of each key whose timestamp is between this one and
    /// [`timestamp`](Self::timestamp), both included, latest first, deletions too. Merge operands
    /// are not supported in this mode. Default: none.
    pub iter_start_ts: Option<Vec<u8>>,
}

impl Default for ReadOptions {
    #[inline]
    fn default() -> Self {
        Self {
            snapshot: None,
            read_tier: ReadTier::All,
            verify_checksums: true,
            fill_cache: true,
            ignore_range_deletions: false,
            async_io: true,
            optimize_multiget_for_io: true,
            deadline: None,
            io_timeout: None,
            value_size_soft_limit: u64::MAX,
            readahead_size: 0,
            max_skippable_internal_keys: 0,
            iterate_lower_bound: None,
            iterate_upper_bound: None,
            total_order_seek: false,
            auto_prefix_mode: false,
            prefix_same_as_start: false,
            adaptive_readahead: false,
            auto_readahead_size: true,
            table_filter: None,
            timestamp: None,
            iter_start_ts: None,
        }
    }
}

impl ReadOptions {
    /// Returns the default options.
    #[inline]
    pub fn new() -> Self {
        Self::default()
    }
}
