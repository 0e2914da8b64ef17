//! Options of one read. RocksDB's names; RocksDB's defaults but for `async_io`.
//!
//! In: what the user sets. Out: plain fields that lookups and iterators consult. Nothing here does
//! anything; a field that the read path does not honour is not here.

use crate::snapshot::Snapshot;
use karst_format::properties::TableProperties;
use std::sync::Arc;
use std::time::Duration;

/// Where a read may look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadTier {
    /// Everywhere: memtables, block cache, storage.
    #[default]
    All,
    /// Memtables and block cache; a read that would need storage fails with `Incomplete`. RocksDB's
    /// `kBlockCacheTier`.
    BlockCache,
    /// Memtables only; what is not there counts as not found. RocksDB's `kMemtableTier`; point
    /// lookups only.
    Memtable,
}

/// Which tables an iterator reads, by what they say of themselves: a function that says no for
/// those that are to be passed by.
#[derive(Clone)]
pub struct TableFilterFn(Arc<dyn Fn(&TableProperties) -> bool + Send + Sync>);

impl TableFilterFn {
    /// Reads the tables that `wanted` says yes for.
    pub fn new(wanted: impl Fn(&TableProperties) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(wanted))
    }

    /// Whether a table is read.
    pub fn wants(&self, properties: &TableProperties) -> bool {
        (self.0)(properties)
    }
}

impl std::fmt::Debug for TableFilterFn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TableFilterFn")
    }
}

/// Options of one read. Cheap to make; pass the same one to many reads.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// Read as of this snapshot; as of the start of the read if there is none.
    pub snapshot: Option<Snapshot>,
    /// Where the read may look.
    pub read_tier: ReadTier,
    /// Verify the checksum of every block read from storage. Default true.
    pub verify_checksums: bool,
    /// Put blocks read from storage into the block cache. Turn it off for long scans that should
    /// leave it alone. Default true.
    pub fill_cache: bool,
    /// Do not look for range tombstones. Wrong results if there are any that matter. Default false.
    pub ignore_range_deletions: bool,
    /// Have several reads in flight for one operation: blocks of a batch, children of a seek, the
    /// road ahead of a scan. With false, what one file is wanted for is read at the same time, and
    /// files one after another, as RocksDB does it. Default true.
    ///
    /// Compat: RocksDB's default is false because it pays for it with threads' stacks and slower
    /// cached reads; here it is free.
    pub async_io: bool,
    /// In a `multi_get` with `async_io`, look into all levels at once: fewest round trips, at the
    /// price of reads in levels below the one that has the key. With false, go level by level.
    /// Default true.
    pub optimize_multiget_for_io: bool,
    /// When the read gives up waiting for storage, and fails with `TimedOut`: a time of the
    /// environment's clock, such as `db.env().now() + Duration::from_millis(5)`. What is in memory
    /// is found however late it is; of a `multi_get`, the keys that are answered by then are; an
    /// iterator has to be sent somewhere anew. Default: never.
    ///
    /// Compat: RocksDB's is in microseconds since the epoch, and is looked at between reads. Here a
    /// read that is late does not hold up the caller; it is abandoned.
    pub deadline: Option<Duration>,
    /// How long the read waits for storage without anything coming, before it fails with
    /// `TimedOut`. Default: for ever.
    pub io_timeout: Option<Duration>,
    /// In a `multi_get`, the size in bytes of returned values after which the remaining keys fail
    /// with `LimitReached`; at least one key is read. Default: no limit.
    pub value_size_soft_limit: u64,
    /// An iterator's readahead in bytes; 0 lets it grow by itself on sequential use. Default 0.
    pub readahead_size: usize,
    /// How many entries an iterator may skip in one call before it fails with `Incomplete`; 0 for
    /// no limit. Default 0.
    pub max_skippable_internal_keys: u64,
    /// Iterate no further back than this key, which is included.
    pub iterate_lower_bound: Option<Vec<u8>>,
    /// Iterate no further than this key, which is excluded.
    pub iterate_upper_bound: Option<Vec<u8>>,
    /// See every key in order, whatever prefix extractor and index the tables have; prefix filters
    /// are not used. Default false.
    pub total_order_seek: bool,
    /// As `total_order_seek`, but use prefix filters where they cannot change the result. Default
    /// false.
    pub auto_prefix_mode: bool,
    /// End the iteration where the prefix of the seek key ends. Default false.
    pub prefix_same_as_start: bool,
    /// Carry the readahead of an iterator over from file to file. Default false.
    pub adaptive_readahead: bool,
    /// Trim readahead at the upper bound and at the end of the prefix. Default true.
    pub auto_readahead_size: bool,
    /// An iterator asks this of each table that it comes to, with the properties of the table, and
    /// reads no entry of those that it says no for; with a collector of properties it can pass
    /// tables by that hold nothing of interest. What is in memtables is read in any case, and range
    /// tombstones of every table count. It is asked on the thread that moves the iterator, once
    /// each time that the iterator opens a table, and must not block. One that panics does so to
    /// the caller of the move; the iterator can be sent elsewhere then. Point lookups do not ask
    /// it. Default: none.
    ///
    /// What an iterator shows without a table need not be a state that the database was ever in: an
    /// older entry may come to light, and a merge lack operands.
    pub table_filter: Option<TableFilterFn>,
    /// In a column family whose comparator has timestamps: read as of this timestamp. Of each key
    /// the newest entry counts that is no later. Every read of such a family needs one, of its
    /// comparator's size, and no other family takes one; else the read fails with
    /// `InvalidArgument`, as it does where the timestamp is before the family's
    /// `full_history_ts_low`. Default: none.
    pub timestamp: Option<Vec<u8>>,
    /// An iterator shows every entry of each key whose timestamp is between this one and
    /// [`timestamp`](Self::timestamp), both included, the latest first, and deletions too. Merge
    /// operands cannot be shown so. Default: none.
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
    /// The defaults.
    #[inline]
    pub fn new() -> Self {
        Self::default()
    }
}
